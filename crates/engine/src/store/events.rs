//! What comes into the engine, and what goes out of it.

use crate::api::{
    ControlCompletion, ControlError, ControlId, ControlReply, ControlRequest, Notice,
};
use crate::store::jobs::Job;
use windrow_io::{Completion, MemberCommand, MemberDone, Reply, Request, RequestError, RequestId};
use windrow_types::Lsn;

/// Input of the engine.
#[derive(Debug)]
pub enum Event {
    /// A request from a front-end.
    Request(Request),
    /// A member command has ended.
    Member(MemberDone),
    /// A job has run.
    Job(Job),
    /// An administrator's command.
    Control(ControlRequest),
    /// Current time, in nanoseconds of a monotonic clock. Required at least as often as
    /// [`Outbox::wake_at_ns`] asks. As the last event of a group it is the time of the whole group.
    Tick(u64),
}

/// Effects that the driver executes. It drains them after every `apply`.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Commands, to be started in this order; they may complete in any order.
    pub commands: Vec<MemberCommand>,
    /// Jobs to run on any thread (`Job::run`) and then return.
    pub jobs: Vec<Job>,
    /// Answers to requests.
    pub completions: Vec<Completion>,
    /// Answers to control requests.
    pub control: Vec<ControlCompletion>,
    /// Events for the administrator.
    pub notices: Vec<Notice>,
    /// Latest time for the next [`Event::Tick`], if any.
    pub wake_at_ns: Option<u64>,
}

impl Outbox {
    pub(crate) fn fail(&mut self, id: RequestId, error: RequestError) {
        self.completions.push(Completion {
            id,
            result: Err(error),
            lsns: None,
        });
    }

    pub(crate) fn answer_command(
        &mut self,
        id: ControlId,
        result: Result<ControlReply, ControlError>,
    ) {
        self.control.push(ControlCompletion { id, result });
    }

    pub(crate) fn answer(&mut self, id: RequestId, lsns: Option<(Lsn, Lsn)>) {
        self.completions.push(Completion {
            id,
            result: Ok(Reply::Done),
            lsns,
        });
    }
}

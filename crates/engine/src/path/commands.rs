//! Commands of an administrator that wait: for room, for a round of the journal, for a superblock.

use crate::api::{Control, ControlError, ControlId, ControlRequest};
use crate::store::events::Outbox;
use crate::store::member::Ticket;
use std::collections::VecDeque;

/// Commands that wait.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    /// Those that wait for a write in chunked admission, for room, or for a flag of the format.
    pub(crate) waiting: VecDeque<ControlRequest>,
    /// Those that wait for a superblock generation.
    pub(crate) recorded: Vec<(ControlId, Ticket)>,
    /// Ticket of the superblock write that sets the flags for compressed payload.
    pub(crate) compressed_ticket: Ticket,
    /// The same for shared content.
    pub(crate) shared_ticket: Ticket,
}

impl Commands {
    /// True if volume operations wait for room.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// True if changes of members wait; they wait for the end of a round of the journal.
    pub(crate) fn members_wait(&self) -> bool {
        self.waiting
            .iter()
            .any(|request| matches!(request.command, Control::Member { .. }))
    }

    /// True if volume operations that take an LSN wait.
    pub(crate) fn volumes_wait(&self) -> bool {
        self.waiting
            .iter()
            .any(|request| request.command.takes_lsn())
    }

    /// True if a volume waits to be deleted.
    pub(crate) fn deletes_wait(&self) -> bool {
        self.waiting
            .iter()
            .any(|request| matches!(request.command, Control::VolumeDelete { .. }))
    }

    /// Refuses waiting volume operations, as the pool has no room for them. True if there was one.
    pub(crate) fn refuse_volumes(&mut self, why: &str, out: &mut Outbox) -> bool {
        let (refused, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|request| request.command.takes_lsn());
        self.waiting = others.into();
        refused.iter().for_each(|request| {
            out.answer_command(request.id, Err(ControlError::NoSpace(why.into())))
        });
        !refused.is_empty()
    }

    /// Answers when this superblock request is fulfilled.
    pub(crate) fn when_recorded(&mut self, id: ControlId, ticket: Ticket) {
        self.recorded.push((id, ticket));
    }
}

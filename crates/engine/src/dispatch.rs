//! From events to components, and from results of a component to whoever waits for them: the only
//! place where data goes up.

use crate::fetch::{Ended, FetchGoal};
use crate::member::Purpose;
use crate::member::slot_state::Change;
use crate::write::EDGE_UNITS;
use crate::{Engine, Job, Outbox, StopReason, jobs};
use windrow_io::{Buf, MemberDone};
use windrow_types::MemberId;

impl Engine {
    pub(crate) fn job_done(&mut self, job: Job, out: &mut Outbox) {
        match job.0 {
            jobs::Work::Seal(work) => self.sealed(*work, out),
            jobs::Work::Checksum(work) => {
                let ended = self.fetch_verified(work.fetch, work.good, out);
                self.deliver_above(ended, out);
            }
            jobs::Work::Rebuild(work) => {
                let ended = self.fetch_rebuilt(*work, out);
                self.deliver_above(ended, out);
            }
            jobs::Work::Verify(work) => self.verified(*work, out),
            jobs::Work::Journal(work) => self.record_encoded(*work, out),
            jobs::Work::Decompress(work) => self.part_decompressed(*work, out),
            jobs::Work::Reduce(work) => self.admission.reduced(*work),
            jobs::Work::Fingerprint(work) => self.printed(*work),
            jobs::Work::Compare(work) => self.compared(*work),
            jobs::Work::Repack(work) => self.repacked(*work),
        }
    }

    /// Handles the end of a member command.
    pub(crate) fn member_done(&mut self, done: MemberDone, out: &mut Outbox) {
        let Some(purpose) = self.drives.came_back(&done) else {
            return self.stop(
                StopReason::Internal("a member command came back twice"),
                out,
            );
        };
        if purpose.is_disowned() {
            return;
        }
        let failed = done.result.is_err();
        if let Err(error) = done.result {
            self.drives.members.note_error(done.member);
            let is_read = purpose.is_read();
            let is_discard = matches!(purpose, Purpose::Discard { .. });
            let gone = error.kind == windrow_io::MemberErrorKind::Gone;
            if (!is_read && !is_discard) || gone {
                self.latch_member(done.member, Change::Fault, error.to_string(), out);
            }
        }
        self.command_ended(done.member, purpose, done.buf, failed, out);
    }

    /// Handles a command that has ended. A command that is not sent, because its member is out of
    /// use or the pool has stopped, has failed.
    fn command_ended(
        &mut self,
        member: MemberId,
        purpose: Purpose,
        buf: Option<Buf>,
        failed: bool,
        out: &mut Outbox,
    ) {
        match purpose {
            Purpose::BatchWrite {
                stream,
                seq,
                column,
            } => {
                self.drives.members.note_written(member, failed);
                self.batch_write_done(stream, seq, column, failed, out);
            }
            // A shadow that failed is dropped: the member has the column.
            Purpose::ShadowWrite { stream, seq, .. } => {
                self.drives.members.note_written(member, failed);
                self.batch_column_ended(stream, seq, out);
            }
            Purpose::Fetch { fetch, column, row } => {
                let ended =
                    self.fetch_read_done(fetch, column, row, member, buf.filter(|_| !failed), out);
                self.deliver_above(ended, out);
            }
            Purpose::Verify {
                verification,
                column,
                first,
                rows,
            } => self.verify_read(
                verification,
                column,
                first..first + rows,
                buf.filter(|_| !failed),
                out,
            ),
            Purpose::Rebuild { column } => {
                self.drives.members.note_written(member, failed);
                self.column_piece_written(column, failed, out);
            }
            Purpose::Flush => {
                self.flush_done(out);
            }
            Purpose::JournalWrite => {
                self.record_written(member, failed, out);
            }
            Purpose::JournalFlush => {
                self.records_flushed(out);
            }
            Purpose::SuperblockWrite | Purpose::SuperblockFlush => self.superblock_step_done(out),
            Purpose::Label(step) => {
                self.label_step_done(member, step, buf.filter(|_| !failed), failed, out)
            }
            Purpose::Discard { segment } => self.space.segments.discard_done(segment),
            Purpose::Disowned { .. } => {}
        }
        self.after_rounds(out);
    }

    /// Ends cancelled and disowned commands; true if there were any.
    pub(crate) fn end_cancelled(&mut self, out: &mut Outbox) -> bool {
        let any = self.drives.has_cancelled();
        while let Some((member, purpose)) = self.drives.next_disowned() {
            match purpose {
                // Nothing follows: a label that is not known to be wrong must not be written or
                // reported.
                Purpose::Label(_) => self.integrity.scrub.label_given_up(),
                purpose => self.command_ended(member, purpose, None, true, out),
            }
        }
        while let Some((member, purpose)) = self.drives.next_cancelled() {
            if let Some(purpose) = purpose {
                self.command_ended(member, purpose, None, true, out);
            }
        }
        any
    }

    /// Updates the load: at the beginning of `apply`, and at its end.
    pub(crate) fn look_at_load(&mut self) {
        // A request that waits while there is room waits for the members, and cleaning does not
        // help.
        let no_room = || {
            self.admission.pace.per_1024().is_some()
                || self.room_units() < EDGE_UNITS
                || !self.durability.is_settled_after_start()
        };
        let short = (self.wants_room() && no_room())
            || self.durability.checkpoint.wants_segment()
            || self.pool.closing.is_under_way();
        self.drives.set_load(&self.pool, &self.observe, short);
    }

    /// End of an `apply`: releases held commands that may be sent, and sends everything by class.
    pub(crate) fn send_scheduled(&mut self, out: &mut Outbox) {
        if self.drives.scheduler.held() > 0 {
            self.look_at_load();
            self.drives.send_held(&self.pool, &mut self.observe);
        }
        self.drives.send_all(out);
    }

    /// A generation of the superblock is recorded, or a step of it.
    fn superblock_step_done(&mut self, out: &mut Outbox) {
        if !self.superblock_step_ended(out) {
            return;
        }
        self.checkpoint_step(out);
        self.commit_ready(out);
        self.check_flush_round(out);
        self.control_step(out);
    }

    /// Begins or ends a round of flushes, and continues what waits for its end.
    pub(crate) fn check_flush_round(&mut self, out: &mut Outbox) {
        self.flush_round_check(out);
        self.after_rounds(out);
    }

    /// Continues what waits for the end of a round of flushes.
    pub(crate) fn after_rounds(&mut self, out: &mut Outbox) {
        while self.durability.flush.take_ended() {
            self.checkpoint_step(out);
            self.rebuild_step(out);
            self.flush_round_check(out);
        }
    }

    /// Hands the result of a fetch to cleaning or the scrub, or to the data path.
    pub(crate) fn deliver_above(&mut self, ended: Ended, out: &mut Outbox) {
        let Some((goal, fetched)) = self.deliver(ended, out) else {
            return;
        };
        match goal {
            FetchGoal::CleanEnd {
                victim,
                batch_row,
                part,
            } => self.clean_end_read(victim, batch_row, part, fetched.ok(), out),
            FetchGoal::CleanRun { victim, run } => {
                self.clean_run_read(victim, run, fetched.ok(), out)
            }
            FetchGoal::Doubt { doubt, .. } => self.doubt_read(doubt, fetched.ok(), out),
            goal => unreachable!("{goal:?} belongs to the data path"),
        }
    }
}

//! From events to components, and from results of a component to those that wait for them: the
//! only place where data goes up.

use crate::engine::Engine;
use crate::path::write::EDGE_UNITS;
use crate::store::events::Outbox;
use crate::store::jobs;
use crate::store::jobs::Job;
use crate::store::member::Purpose;
use crate::store::member::slot_state::Change;
use crate::store::pool::StopReason;
use windrow_io::{Buf, MemberDone};
use windrow_types::MemberId;

impl Engine {
    pub(crate) fn job_done(&mut self, job: Job, out: &mut Outbox) {
        match job.0 {
            jobs::Work::Seal(work) => self.core.paths.sealed(*work, &mut self.core.store, out),
            jobs::Work::Checksum(work) => {
                let ended = self.core.store.fetch_verified(work.fetch, work.good, out);
                self.upkeep.deliver_above(ended, &mut self.core, out);
            }
            jobs::Work::Rebuild(work) => {
                let ended = self.core.store.fetch_rebuilt(*work, out);
                self.upkeep.deliver_above(ended, &mut self.core, out);
            }
            jobs::Work::Verify(work) => self.upkeep.verified(*work, &mut self.core, out),
            jobs::Work::Journal(work) => {
                self.core
                    .paths
                    .record_encoded(*work, &mut self.core.store, out)
            }
            jobs::Work::Decompress(work) => {
                self.core
                    .paths
                    .part_decompressed(*work, &mut self.core.store, out)
            }
            jobs::Work::Reduce(work) => self.core.paths.admission.reduced(*work),
            jobs::Work::Fingerprint(work) => self.core.paths.printed(*work, &mut self.core.store),
            jobs::Work::Compare(work) => self.core.paths.compared(*work, &mut self.core.store),
            jobs::Work::Repack(work) => self.upkeep.repacked(*work, &mut self.core),
        }
    }

    /// Handles the end of a member command.
    pub(crate) fn member_done(&mut self, done: MemberDone, out: &mut Outbox) {
        let Some(purpose) = self.core.store.drives.came_back(&done) else {
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
            self.core.store.drives.members.note_error(done.member);
            let is_read = purpose.is_read();
            let is_discard = matches!(purpose, Purpose::Discard { .. });
            let gone = error.kind == windrow_io::MemberErrorKind::Gone;
            if (!is_read && !is_discard) || gone {
                self.upkeep.latch_member(
                    done.member,
                    Change::Fault,
                    error.to_string(),
                    &mut self.core,
                    out,
                );
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
                self.core.store.drives.members.note_written(member, failed);
                self.core.paths.batch_write_done(
                    stream,
                    seq,
                    column,
                    failed,
                    &mut self.core.store,
                    out,
                );
            }
            // A shadow that failed is dropped: the member has the column.
            Purpose::ShadowWrite { stream, seq, .. } => {
                self.core.store.drives.members.note_written(member, failed);
                self.core
                    .paths
                    .batch_column_ended(stream, seq, &mut self.core.store, out);
            }
            Purpose::Fetch { fetch, column, row } => {
                let ended = self.core.store.fetch_read_done(
                    fetch,
                    column,
                    row,
                    member,
                    buf.filter(|_| !failed),
                    out,
                );
                self.upkeep.deliver_above(ended, &mut self.core, out);
            }
            Purpose::Verify {
                verification,
                column,
                first,
                rows,
            } => self.upkeep.verify_read(
                verification,
                column,
                first..first + rows,
                buf.filter(|_| !failed),
                &mut self.core,
                out,
            ),
            Purpose::Rebuild { column } => {
                self.core.store.drives.members.note_written(member, failed);
                self.upkeep
                    .column_piece_written(column, failed, &mut self.core, out);
            }
            Purpose::Flush => {
                self.core.paths.flush_done(&mut self.core.store, out);
            }
            Purpose::JournalWrite => {
                self.core
                    .paths
                    .record_written(member, failed, &mut self.core.store, out);
            }
            Purpose::JournalFlush => {
                self.core.paths.records_flushed(&mut self.core.store, out);
            }
            Purpose::SuperblockWrite | Purpose::SuperblockFlush => self.superblock_step_done(out),
            Purpose::Label(step) => self.upkeep.label_step_done(
                member,
                step,
                buf.filter(|_| !failed),
                failed,
                &mut self.core,
                out,
            ),
            Purpose::Discard { segment } => self.core.store.segments.discard_done(segment),
            Purpose::Disowned { .. } => {}
        }
        self.upkeep.after_rounds(&mut self.core, out);
    }

    /// Ends cancelled and disowned commands; true if there were any.
    pub(crate) fn end_cancelled(&mut self, out: &mut Outbox) -> bool {
        let any = self.core.store.drives.has_cancelled();
        while let Some((member, purpose)) = self.core.store.drives.next_disowned() {
            match purpose {
                // Nothing follows: a label that is not known to be wrong must not be written or
                // reported.
                Purpose::Label(_) => self.upkeep.integrity.scrub.label_given_up(),
                purpose => self.command_ended(member, purpose, None, true, out),
            }
        }
        while let Some((member, purpose)) = self.core.store.drives.next_cancelled() {
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
            self.core.paths.admission.pace.per_1024().is_some()
                || self.core.paths.room_units(&self.core.store) < EDGE_UNITS
                || !self.core.paths.durability.is_settled_after_start()
        };
        let short = (self.upkeep.wants_room(&self.core) && no_room())
            || self.core.paths.durability.checkpoint.wants_segment()
            || self.core.store.pool.closing.is_under_way();
        self.core
            .store
            .drives
            .set_load(&self.core.store.pool, &self.core.store.observe, short);
    }

    /// End of an `apply`: releases held commands that may be sent, and sends everything by class.
    pub(crate) fn send_scheduled(&mut self, out: &mut Outbox) {
        if self.core.store.drives.scheduler.held() > 0 {
            self.look_at_load();
            self.core
                .store
                .drives
                .send_held(&self.core.store.pool, &mut self.core.store.observe);
        }
        self.core.store.drives.send_all(out);
    }

    /// A generation of the superblock is recorded, or a step of it.
    fn superblock_step_done(&mut self, out: &mut Outbox) {
        let durable = self.core.paths.durability.durable_lsn();
        if !self.core.store.superblock_step_ended(durable, out) {
            return;
        }
        self.upkeep.checkpoint_step(&mut self.core, out);
        self.core.paths.commit_ready(&mut self.core.store, out);
        self.check_flush_round(out);
        self.control_step(out);
    }

    /// Begins or ends a round of flushes, and continues what waits for its end.
    pub(crate) fn check_flush_round(&mut self, out: &mut Outbox) {
        self.core.paths.flush_round_check(&mut self.core.store, out);
        self.upkeep.after_rounds(&mut self.core, out);
    }
}

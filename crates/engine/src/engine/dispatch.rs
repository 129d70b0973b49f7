//! From ends of jobs and member commands to those that wait for them. With `upkeep/rounds.rs` the
//! only place where data goes up.

use crate::engine::Engine;
use crate::path::write::EDGE_UNITS;
use crate::store::events::Outbox;
use crate::store::jobs::{self, Job};
use crate::store::member::Purpose;
use crate::store::member::slot_state::Change;
use crate::store::pool::StopReason;
use windrow_io::{Buf, MemberDone};
use windrow_types::MemberId;

impl Engine {
    pub(crate) fn job_done(&mut self, job: Job, out: &mut Outbox) {
        let Self { core, upkeep, .. } = self;
        match job.0 {
            jobs::Work::Seal(work) => core.paths.sealed(*work, &mut core.store, out),
            jobs::Work::Checksum(work) => {
                let ended = core.store.fetch_verified(work.fetch, work.good, out);
                upkeep.deliver_above(ended, core, out);
            }
            jobs::Work::Rebuild(work) => {
                let ended = core.store.fetch_rebuilt(*work, out);
                upkeep.deliver_above(ended, core, out);
            }
            jobs::Work::Verify(work) => upkeep.verified(*work, core, out),
            jobs::Work::Journal(work) => core.paths.record_encoded(*work, &mut core.store, out),
            jobs::Work::Decompress(work) => {
                core.paths.part_decompressed(*work, &mut core.store, out)
            }
            jobs::Work::Reduce(work) => core.paths.admission.reduced(*work),
            jobs::Work::Fingerprint(work) => core.paths.printed(*work, &mut core.store),
            jobs::Work::Compare(work) => core.paths.compared(*work, &mut core.store),
            jobs::Work::Repack(work) => upkeep.repacked(*work, core),
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
        let Self { core, upkeep, .. } = self;
        match purpose {
            Purpose::BatchWrite {
                stream,
                seq,
                column,
            } => {
                core.store.drives.members.note_written(member, failed);
                core.paths
                    .batch_write_done(stream, seq, column, failed, &mut core.store, out);
            }
            // A shadow that failed is dropped: the member has the column.
            Purpose::ShadowWrite { stream, seq, .. } => {
                core.store.drives.members.note_written(member, failed);
                core.paths
                    .batch_column_ended(stream, seq, &mut core.store, out);
            }
            Purpose::Fetch { fetch, column, row } => {
                let ended = core.store.fetch_read_done(
                    fetch,
                    column,
                    row,
                    member,
                    buf.filter(|_| !failed),
                    out,
                );
                upkeep.deliver_above(ended, core, out);
            }
            Purpose::Verify {
                verification,
                column,
                first,
                rows,
            } => upkeep.verify_read(
                verification,
                column,
                first..first + rows,
                buf.filter(|_| !failed),
                core,
                out,
            ),
            Purpose::Rebuild { column } => {
                core.store.drives.members.note_written(member, failed);
                upkeep.column_piece_written(column, failed, core, out);
            }
            Purpose::Flush => {
                core.paths.flush_done(&mut core.store, out);
            }
            Purpose::JournalWrite => {
                core.paths
                    .record_written(member, failed, &mut core.store, out);
            }
            Purpose::JournalFlush => {
                core.paths.records_flushed(&mut core.store, out);
            }
            Purpose::SuperblockWrite | Purpose::SuperblockFlush => {
                return self.superblock_step_done(out);
            }
            Purpose::Label(step) => {
                upkeep.label_step_done(member, step, buf.filter(|_| !failed), failed, core, out)
            }
            Purpose::Discard { segment } => core.store.segments.discard_done(segment),
            Purpose::Disowned { .. } => {}
        }
        upkeep.after_rounds(core, out);
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
        self.upkeep.check_flush_round(&mut self.core, out);
        self.control_step(out);
        self.upkeep.after_rounds(&mut self.core, out);
    }
}

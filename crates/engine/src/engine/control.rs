//! Administrator's commands: volumes, properties, checkpoint, shutdown.
//!
//! Volume operations take an LSN, are logged as records in the user stream, take effect in the
//! table on admission, and are answered when durable. A property goes to the superblock. A shutdown
//! refuses new requests, waits until nothing is in flight, writes a checkpoint and a last
//! superblock.

use crate::api::{Control, ControlError, ControlId, ControlReply, ControlRequest, MemberChange};
use crate::base::limits::{MAX_NAME_BYTES, MAX_VOLUME_BYTES, MAX_VOLUMES, USER_STREAMS};
use crate::engine::Engine;
use crate::path::Core;
use crate::path::flush::Waiter;
use crate::store::events::Outbox;
use crate::store::member::Ticket;
use crate::store::pool::{Closing, StopReason};
use windrow_format::batch::{Entry, RangeState, VolumeChange};
use windrow_format::checkpoint::{Compression, Dedup, SyncMode, VolumeRecord};
use windrow_format::superblock::{Features, PoolState, Properties};
use windrow_types::{BLOCK_BYTES, Lba, Lsn, VolumeId};

/// Stage of a shutdown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Waits until nothing is in flight.
    Draining,
    /// Waits for its checkpoint.
    Checkpoint { after: u64 },
    /// Waits for the last superblock.
    Superblock { ticket: Ticket },
}

/// State of control requests.
#[derive(Debug, Default)]
pub(crate) struct ControlState {
    shutdown: Option<(ControlId, bool, Stage)>,
    /// Requests that wait for a checkpoint which began after them.
    checkpoints: Vec<(ControlId, u64)>,
}

impl Engine {
    /// Handles an arriving control request.
    pub(crate) fn control_request(&mut self, request: ControlRequest, out: &mut Outbox) {
        let id = request.id;
        // A pool that waits for an unresponsive member would never end.
        let lets_go = request.command.lets_go();
        if self.core.store.pool.stopped.is_some()
            || (self.core.store.pool.closing.is_under_way() && !lets_go)
        {
            return out.answer_command(id, Err(ControlError::Stopped));
        }
        let writes = !matches!(
            request.command,
            Control::Shutdown { .. } | Control::CountSharing
        );
        if self.core.store.pool.read_only && writes {
            return out.answer_command(
                id,
                Err(ControlError::Invalid("the pool is open read-only".into())),
            );
        }
        if self.must_wait(&request.command) {
            return self.core.paths.commands.waiting.push_back(request);
        }
        if let Err(error) = self.execute(id, request.command, out) {
            out.answer_command(id, Err(error));
        }
    }

    /// True if the command has to wait: for room in the log, for a write in chunked admission, for
    /// a change of the reduction mode, or for the end of a round of the journal.
    fn must_wait(&self, command: &Control) -> bool {
        let Core { store, paths } = &self.core;
        if command.takes_lsn()
            && (paths.admission.is_held_up()
                || paths.ranges.holds_walks()
                || paths.ranges.is_full()
                || paths.room_units(store) == 0)
        {
            return true;
        }
        // A write in chunked admission has all its space reserved: a larger spare factor has to
        // wait, or a later chunk would be refused. Later requests do not overtake waiting ones: of
        // two changes the later one must prevail.
        let changes_plan = |command: &Control| {
            matches!(
                command,
                Control::SetProperties(_) | Control::Grow { .. } | Control::Remove { .. }
            )
        };
        let waits = || {
            let mut waiting = paths.commands.waiting.iter();
            paths.admission.is_held_up() || waiting.any(|waiting| changes_plan(&waiting.command))
        };
        if paths.reduction.waits_for_reduction(command) || (changes_plan(command) && waits()) {
            return true;
        }
        // Rounds of the journal depend on the set of devices at their beginning.
        let changes_journal = match command {
            Control::Member { member, change } => match change {
                MemberChange::Serve { .. } => true,
                MemberChange::GiveUp => store.pool.is_journal_device(*member),
                _ => false,
            },
            _ => false,
        };
        changes_journal && !paths.durability.journal.journal_may_change()
    }

    /// Executes a command. It is answered when it is durable, or here with an error.
    fn execute(
        &mut self,
        id: ControlId,
        command: Control,
        out: &mut Outbox,
    ) -> Result<(), ControlError> {
        match command {
            Control::VolumeCreate { name, size_bytes } => {
                self.volume_create(id, name, size_bytes, out)
            }
            Control::VolumeResize {
                volume,
                size_bytes,
                shrink,
            } => self.volume_resize(id, volume, (size_bytes, shrink), out),
            Control::VolumeDelete { volume } => self.volume_delete(id, volume, out),
            Control::VolumeSync { volume, sync } => self.volume_sync(id, volume, sync, out),
            Control::VolumeCompression {
                volume,
                compression,
            } => self.volume_compression(id, volume, compression, out),
            Control::VolumeDedup { volume, dedup } => self.volume_dedup(id, volume, dedup, out),
            Control::VolumeRename { volume, name } => self.volume_rename(id, volume, name, out),
            Control::PoolRename { name } => self.pool_rename(id, name, out),
            Control::CountSharing => {
                self.upkeep.integrity.count_sharing(id);
                Ok(())
            }
            Control::SetProperties(properties) => self.set_properties(id, properties, out),
            Control::Grow { members } => self.upkeep.grow(id, members, &mut self.core, out),
            Control::Remove { member } => {
                self.upkeep.remove_member(id, member, &mut self.core, out)
            }
            Control::Checkpoint => {
                self.core.paths.durability.checkpoint.request();
                self.admin
                    .control
                    .checkpoints
                    .push((id, self.core.paths.durability.checkpoint.begun));
                Ok(())
            }
            Control::WallClock { unix_s } => {
                self.core
                    .store
                    .observe
                    .wall
                    .set(unix_s, self.core.store.pool.now_ns);
                out.answer_command(id, Ok(ControlReply::Done));
                Ok(())
            }
            Control::Scrub(command) => {
                let result = self.upkeep.scrub_command(command, &mut self.core);
                if result.is_ok() {
                    out.answer_command(id, Ok(ControlReply::Done));
                }
                result
            }
            Control::Member { member, change } => {
                self.upkeep
                    .member_change(id, member, change, &mut self.core, out)
            }
            Control::Shutdown { export } => {
                self.admin.control.shutdown = Some((id, export, Stage::Draining));
                self.core.store.pool.closing = if export {
                    Closing::Export
                } else {
                    Closing::Shutdown
                };
                Ok(())
            }
        }
    }

    fn volume_create(
        &mut self,
        id: ControlId,
        name: String,
        size_bytes: u64,
        out: &mut Outbox,
    ) -> Result<(), ControlError> {
        check_name(&name)?;
        check_size(size_bytes)?;
        if self.core.store.volumes.by_name(&name).is_some() {
            return Err(ControlError::NameTaken);
        }
        if self.core.store.volumes.is_full() {
            return Err(ControlError::NoSpace(format!(
                "the pool has {MAX_VOLUMES} volumes, the maximum"
            )));
        }
        if self.core.store.volumes.lacks_table_page() {
            return Err(ControlError::NoSpace(
                "the pool has no room for another page of the volume table".into(),
            ));
        }
        let volume = VolumeId(self.core.store.volumes.last_id + 1);
        if volume >= VolumeId::INDEX {
            return Err(ControlError::NoSpace(
                "all volume ids of the pool are used up".into(),
            ));
        }
        let lsn = self.core.paths.durability.lsns.take(1);
        self.core.paths.durability.checkpoint.note_applied(lsn);
        self.core
            .store
            .volumes
            .add(VolumeRecord::new(volume, size_bytes, name.clone()));
        self.core.store.volumes.count_table_pages();
        self.core.paths.admission.queue_record(
            &mut self.core.paths.durability,
            Entry::Volume {
                volume,
                lsn,
                change: VolumeChange::Create { name, size_bytes },
            },
            lsn,
        );
        self.upkeep.report_promises(&mut self.core, out);
        self.core.paths.flush_through(
            lsn,
            Waiter::Control {
                id,
                reply: ControlReply::Volume(volume),
            },
            &mut self.core.store,
            out,
        );
        Ok(())
    }

    fn volume_resize(
        &mut self,
        id: ControlId,
        volume: VolumeId,
        (size_bytes, shrink): (u64, bool),
        out: &mut Outbox,
    ) -> Result<(), ControlError> {
        check_size(size_bytes)?;
        let old = self
            .core
            .store
            .volumes
            .active(volume)
            .ok_or(ControlError::NoVolume)?
            .record
            .size_bytes;
        // Compared with the current size: the client may have seen another one.
        if size_bytes < old && !shrink {
            return Err(ControlError::Smaller { size_bytes: old });
        }
        let lsn = self.core.paths.durability.lsns.take(1);
        self.core
            .store
            .volumes
            .change(volume, |record| record.size_bytes = size_bytes);
        self.core.paths.durability.checkpoint.note_applied(lsn);
        if size_bytes < old {
            self.core.store.volumes.note_cut();
            self.core.paths.begin_range(
                volume,
                Lba(size_bytes / BLOCK_BYTES),
                Lba(old / BLOCK_BYTES),
                lsn,
                RangeState::Hole,
                &mut self.core.store,
            );
        }
        self.core.paths.admission.queue_record(
            &mut self.core.paths.durability,
            Entry::Volume {
                volume,
                lsn,
                change: VolumeChange::Resize { size_bytes },
            },
            lsn,
        );
        self.upkeep.report_promises(&mut self.core, out);
        self.core.paths.flush_through(
            lsn,
            Waiter::Control {
                id,
                reply: ControlReply::Done,
            },
            &mut self.core.store,
            out,
        );
        Ok(())
    }

    fn volume_delete(
        &mut self,
        id: ControlId,
        volume: VolumeId,
        out: &mut Outbox,
    ) -> Result<(), ControlError> {
        self.core
            .store
            .volumes
            .active(volume)
            .ok_or(ControlError::NoVolume)?;
        let lsn = self.core.paths.durability.lsns.take(1);
        self.core
            .paths
            .begin_delete(volume, lsn, &mut self.core.store);
        self.core.paths.admission.queue_record(
            &mut self.core.paths.durability,
            Entry::Volume {
                volume,
                lsn,
                change: VolumeChange::Delete,
            },
            lsn,
        );
        self.upkeep.report_promises(&mut self.core, out);
        self.core.paths.flush_through(
            lsn,
            Waiter::Control {
                id,
                reply: ControlReply::Done,
            },
            &mut self.core.store,
            out,
        );
        Ok(())
    }

    fn volume_sync(
        &mut self,
        id: ControlId,
        volume: VolumeId,
        sync: SyncMode,
        out: &mut Outbox,
    ) -> Result<(), ControlError> {
        self.core
            .store
            .volumes
            .active(volume)
            .ok_or(ControlError::NoVolume)?;
        if self
            .core
            .store
            .pool
            .superblock
            .journals
            .areas()
            .next()
            .is_none()
        {
            // The format has the operation only together with the journal's flag.
            return Err(ControlError::Invalid(
                "the pool was created without a journal: sync modes need one".into(),
            ));
        }
        self.core
            .store
            .volumes
            .change(volume, |record| record.sync = sync);
        self.log_change(id, volume, VolumeChange::SetSync(sync), out);
        Ok(())
    }

    fn volume_rename(
        &mut self,
        id: ControlId,
        volume: VolumeId,
        name: String,
        out: &mut Outbox,
    ) -> Result<(), ControlError> {
        check_name(&name)?;
        self.core
            .store
            .volumes
            .active(volume)
            .ok_or(ControlError::NoVolume)?;
        if self.core.store.volumes.by_name(&name).is_some() {
            return Err(ControlError::NameTaken);
        }
        if !self.may_compress(Features::RENAMED, out) {
            // The format has the operation only with a durable flag.
            self.core.paths.commands.waiting.push_back(ControlRequest {
                id,
                command: Control::VolumeRename { volume, name },
            });
            return Ok(());
        }
        self.core
            .store
            .volumes
            .change(volume, |record| record.name.clone_from(&name));
        self.log_change(id, volume, VolumeChange::Rename { name }, out);
        Ok(())
    }

    /// Activated by one superblock: a crash leaves the pool with the one name or the other.
    fn pool_rename(
        &mut self,
        id: ControlId,
        name: String,
        out: &mut Outbox,
    ) -> Result<(), ControlError> {
        check_name(&name)?;
        self.core.store.pool.superblock.pool_name = name;
        let ticket = self.core.store.drives.superblock_writer.request();
        self.core.paths.commands.when_recorded(id, ticket);
        self.core.paths.superblock_step(&mut self.core.store, out);
        Ok(())
    }

    /// Logs a change of a volume that is already in the volume table; answered when it is durable.
    fn log_change(
        &mut self,
        id: ControlId,
        volume: VolumeId,
        change: VolumeChange,
        out: &mut Outbox,
    ) {
        let lsn = self.core.paths.durability.lsns.take(1);
        self.core.paths.durability.checkpoint.note_applied(lsn);
        self.core.paths.admission.queue_record(
            &mut self.core.paths.durability,
            Entry::Volume {
                volume,
                lsn,
                change,
            },
            lsn,
        );
        self.core.paths.flush_through(
            lsn,
            Waiter::Control {
                id,
                reply: ControlReply::Done,
            },
            &mut self.core.store,
            out,
        );
    }

    fn volume_compression(
        &mut self,
        id: ControlId,
        volume: VolumeId,
        compression: Compression,
        out: &mut Outbox,
    ) -> Result<(), ControlError> {
        self.core
            .store
            .volumes
            .active(volume)
            .ok_or(ControlError::NoVolume)?;
        // Also for "off": the format has the operation only with its flag.
        if !self.may_compress(Features::COMPRESSED | compression.features(), out) {
            // The format has the operation only after a durable flag.
            self.core.paths.commands.waiting.push_back(ControlRequest {
                id,
                command: Control::VolumeCompression {
                    volume,
                    compression,
                },
            });
            return Ok(());
        }
        self.core
            .store
            .volumes
            .change(volume, |record| record.compression = compression);
        self.log_change(id, volume, VolumeChange::SetCompression(compression), out);
        Ok(())
    }

    /// True if the superblock in force has these flags, such as those of compressed payload.
    /// Otherwise requests them.
    fn may_compress(&mut self, flags: u64, out: &mut Outbox) -> bool {
        let features = &mut self.core.store.pool.superblock.features.incompatible;
        if *features & flags != flags {
            *features |= flags;
            let ticket = self.core.store.drives.superblock_writer.request();
            self.core.paths.commands.compressed_ticket = ticket;
            self.core.paths.superblock_step(&mut self.core.store, out);
        }
        self.core
            .store
            .drives
            .superblock_writer
            .has_recorded(self.core.paths.commands.compressed_ticket)
    }

    fn volume_dedup(
        &mut self,
        id: ControlId,
        volume: VolumeId,
        dedup: Dedup,
        out: &mut Outbox,
    ) -> Result<(), ControlError> {
        let now = self
            .core
            .store
            .volumes
            .active(volume)
            .ok_or(ControlError::NoVolume)?
            .record
            .dedup;
        let has_pages =
            self.core.store.pool.superblock.features.incompatible & Features::DEDUP_INDEX != 0;
        if now == dedup && (dedup == Dedup::Off || has_pages) {
            // "Off" costs nothing if nothing else was ever set.
            self.core.paths.flush_through(
                self.core.paths.durability.lsns.last(),
                Waiter::Control {
                    id,
                    reply: ControlReply::Done,
                },
                &mut self.core.store,
                out,
            );
            return Ok(());
        }
        if !self.may_share(out)? {
            // The format has the operation only after a durable flag.
            self.core.paths.commands.waiting.push_back(ControlRequest {
                id,
                command: Control::VolumeDedup { volume, dedup },
            });
            return Ok(());
        }
        self.core
            .store
            .volumes
            .change(volume, |record| record.dedup = dedup);
        self.log_change(id, volume, VolumeChange::SetDedup(dedup), out);
        Ok(())
    }

    /// True if the superblock in force permits shared content. Otherwise requests that, if the pool
    /// has room for a second map.
    fn may_share(&mut self, out: &mut Outbox) -> Result<bool, ControlError> {
        // If there is no room for pages of the index, it is kept in memory only.
        let wishes = [Features::SHARED | Features::DEDUP_INDEX, Features::SHARED];
        let now = self.core.store.pool.superblock.features.incompatible;
        if let Some(wish) = wishes
            .into_iter()
            .find(|wish| now & wish == *wish || self.fits_with(*wish))
            && now & wish != wish
        {
            self.core.store.pool.superblock.features.incompatible |= wish;
            if let Ok(plan) = self.upkeep.plan_now(
                self.core.store.pool.superblock.properties.spare_per_mille,
                &self.core,
            ) {
                self.upkeep.take_plan(plan, &mut self.core);
            }
            let ticket = self.core.store.drives.superblock_writer.request();
            self.core.paths.commands.shared_ticket = ticket;
            self.core.paths.superblock_step(&mut self.core.store, out);
        }
        if !self.core.store.pool.shares() {
            return Err(ControlError::NoSpace(
                "the pool is too full, or too small, for the map of shared blocks".into(),
            ));
        }
        self.core.paths.make_index(&mut self.core.store);
        Ok(self
            .core
            .store
            .drives
            .superblock_writer
            .has_recorded(self.core.paths.commands.shared_ticket))
    }

    /// True if the data in the pool leaves room for the overhead of these further flags.
    fn fits_with(&mut self, wish: u64) -> bool {
        let now = self.core.store.pool.superblock.features.incompatible;
        self.core.store.pool.superblock.features.incompatible |= wish;
        let plan = self.upkeep.plan_now(
            self.core.store.pool.superblock.properties.spare_per_mille,
            &self.core,
        );
        self.core.store.pool.superblock.features.incompatible = now;
        plan.is_ok_and(|plan| {
            self.core.paths.bytes_beside(&plan, &self.core.store) <= plan.usable_bytes
        })
    }

    fn set_properties(
        &mut self,
        id: ControlId,
        properties: Properties,
        out: &mut Outbox,
    ) -> Result<(), ControlError> {
        crate::store::plan::check_properties(&properties).map_err(ControlError::Invalid)?;
        if properties.reduction != self.core.store.pool.superblock.properties.reduction {
            return self
                .upkeep
                .change_reduction(id, properties, &mut self.core, out);
        }
        // While data moves between layouts the same spare factor may give a little less than was
        // promised, and a crash may have undone trims that a larger one was admitted for: a spare
        // factor that is not larger takes nothing away, and is never refused.
        let asks_for_more =
        // While data moves between layouts, the same spare factor may give slightly less space than
        // before. A crash may also have undone trims after which a larger one was admitted. So a
        // spare factor that is not larger takes nothing away, and is never refused.
            properties.spare_per_mille > self.core.store.pool.superblock.properties.spare_per_mille;
        let plan = match self.upkeep.plan_now(properties.spare_per_mille, &self.core) {
            Ok(plan)
                if asks_for_more || plan.usable_bytes >= self.core.store.pool.plan.usable_bytes =>
            {
                plan
            }
            // Between two layouts a tiny pool may have too few segments for the reserve of the
            // larger map.
            Err(_) if asks_for_more => {
                let why = "too few segments are usable for now: wait until `pool status` shows no growth or removal";
                return Err(ControlError::NoSpace(why.into()));
            }
            Ok(_) | Err(_) => self.core.store.pool.plan.clone(),
        };
        if asks_for_more
            && self.core.paths.bytes_beside(&plan, &self.core.store) > plan.usable_bytes
        {
            return Err(ControlError::NoSpace(
                "the data in the pool leaves no room for this spare factor".into(),
            ));
        }
        let policy = self
            .core
            .paths
            .policy_for(&properties, &plan, &self.core.store)
            .map_err(ControlError::Invalid)?;
        self.upkeep.take_plan(plan, &mut self.core);
        self.core
            .paths
            .space
            .take_policy(&mut self.core.store.segments, policy);
        self.upkeep.report_promises(&mut self.core, out);
        self.core
            .store
            .segments
            .set_rule(crate::store::segment::victim_rule(&properties));
        self.core.store.pool.superblock.properties = properties;
        let ticket = self.core.store.drives.superblock_writer.request();
        self.core.paths.commands.when_recorded(id, ticket);
        self.core.paths.superblock_step(&mut self.core.store, out);
        Ok(())
    }

    /// Answers requests whose condition is fulfilled; advances a shutdown.
    pub(crate) fn control_step(&mut self, out: &mut Outbox) {
        self.upkeep.reduction_step(&mut self.core, out);
        let completed = self.core.paths.durability.checkpoint.completed;
        self.core.paths.commands.recorded.retain(|(id, ticket)| {
            let ready = self
                .core
                .store
                .drives
                .superblock_writer
                .has_recorded(*ticket);
            if ready {
                out.answer_command(*id, Ok(ControlReply::Done));
            }
            !ready
        });
        self.admin.control.checkpoints.retain(|(id, begun)| {
            let ready = completed > *begun;
            if ready {
                out.answer_command(*id, Ok(ControlReply::Done));
            }
            !ready
        });
        for id in self.upkeep.take_settled(&mut self.core) {
            out.answer_command(id, Ok(ControlReply::Done));
        }
        self.upkeep.switch_step(&mut self.core, out);
        let members_waited = self.core.paths.commands.members_wait();
        for request in std::mem::take(&mut self.core.paths.commands.waiting) {
            self.control_request(request, out);
        }
        if members_waited && !self.core.paths.commands.members_wait() {
            // No round of the journal began meanwhile, and a refused change triggers no other
            // event.
            self.upkeep.check_flush_round(&mut self.core, out);
        }
        self.shutdown_step(out);
    }

    fn shutdown_step(&mut self, out: &mut Outbox) {
        let Some((id, export, stage)) = self.admin.control.shutdown else {
            return;
        };
        if self.core.store.pool.read_only {
            return self.end_as_is(id, out);
        }
        if self.upkeep.has_no_room_to_end(&self.core) {
            return self.end_without_checkpoint((id, export), out);
        }
        match stage {
            Stage::Draining => {
                if !self.core.paths.admission.is_idle() || !self.core.paths.user_reads.is_empty() {
                    return;
                }
                self.core.paths.close_index(&mut self.core.store, out);
                self.core
                    .paths
                    .seal_users(Lsn(u64::MAX), &mut self.core.store, out);
                let sealed = USER_STREAMS
                    .iter()
                    .all(|id| self.core.paths.log.stream(*id).open.is_empty());
                let quiet = sealed
                    && self
                        .core
                        .paths
                        .log
                        .streams
                        .iter()
                        .all(|s| s.in_flight.is_empty())
                    && self.core.paths.log.pending.is_empty();
                if quiet
                    && self.core.store.reads.fetches_are_answered()
                    && self.upkeep.integrity.verifications.is_empty()
                    && self.upkeep.integrity.scrub.is_at_rest()
                    && self.upkeep.integrity.rebuild.is_at_rest()
                    && self.core.paths.durability.flush.is_idle()
                    && self.core.paths.durability.checkpoint.is_idle()
                {
                    self.core.paths.durability.checkpoint.request();
                    self.admin.control.shutdown = Some((
                        id,
                        export,
                        Stage::Checkpoint {
                            after: self.core.paths.durability.checkpoint.begun,
                        },
                    ));
                    self.upkeep.checkpoint_step(&mut self.core, out);
                }
            }
            Stage::Checkpoint { after } => {
                // Another host may write as soon as the pool is exported. A discard still in flight
                // would destroy that host's data. (No further one is sent.)
                let has_ended = !export || self.core.store.drives.members.changes_have_ended();
                if self.core.paths.durability.checkpoint.completed > after
                    && self.core.paths.durability.checkpoint.is_idle()
                    && has_ended
                {
                    // Nothing to replay from here on. The host field alone decides which host may
                    // open it next.
                    self.core.store.pool.superblock.state = PoolState::Exported;
                    if export {
                        self.core.store.pool.superblock.host = windrow_types::Uuid::default();
                    }
                    let ticket = self.core.store.drives.superblock_writer.request();
                    self.admin.control.shutdown = Some((id, export, Stage::Superblock { ticket }));
                    self.core.paths.superblock_step(&mut self.core.store, out);
                }
            }
            Stage::Superblock { ticket } => {
                // A member that has left meanwhile has given rise to a further one, and of one that
                // hangs the last one is on its way.
                let has_ended = self.core.store.drives.superblock_writer.has_recorded_all()
                    && (!export || self.core.store.drives.members.changes_have_ended());
                if self
                    .core
                    .store
                    .drives
                    .superblock_writer
                    .has_recorded(ticket)
                    && has_ended
                {
                    self.admin.control.shutdown = None;
                    self.core.store.pool.closing = Closing::No;
                    out.answer_command(id, Ok(ControlReply::Done));
                    self.stop(StopReason::Shutdown, out);
                }
            }
        }
    }

    /// Ends the pool in the state that its members hold.
    fn end_as_is(&mut self, id: ControlId, out: &mut Outbox) {
        self.admin.control.shutdown = None;
        self.core.store.pool.closing = Closing::No;
        out.answer_command(id, Ok(ControlReply::Done));
        self.stop(StopReason::Shutdown, out);
    }

    /// Ends the pool without the last checkpoint: it gets no segment, and nothing can free one. The
    /// next start replays the log. Such a pool cannot be exported.
    fn end_without_checkpoint(&mut self, (id, export): (ControlId, bool), out: &mut Outbox) {
        if export {
            self.admin.control.shutdown = None;
            self.core.store.pool.closing = Closing::No;
            let why = "no segment is free for its last checkpoint: trim, or delete a volume, and export it then";
            return out.answer_command(id, Err(ControlError::NoSpace(why.into())));
        }
        // Acknowledged data may still be in the open batch.
        self.core
            .paths
            .seal_users(Lsn(u64::MAX), &mut self.core.store, out);
        if self.core.paths.durability.lsns.durable() == self.core.paths.durability.lsns.last() {
            return self.end_as_is(id, out);
        }
        self.core.paths.durability.flush.request();
        self.upkeep.check_flush_round(&mut self.core, out);
    }

    /// Refuses all waiting requests: the pool has stopped.
    pub(crate) fn control_refuse(&mut self, out: &mut Outbox) {
        let control = std::mem::take(&mut self.admin.control);
        self.core.store.pool.closing = Closing::No;
        let waiting = std::mem::take(&mut self.core.paths.commands);
        if let Some(id) = self.upkeep.reshape.give_up_coming() {
            out.answer_command(id, Err(ControlError::Stopped));
        }
        for (id, _) in std::mem::take(&mut self.core.store.drives.exchanges.settling) {
            out.answer_command(id, Err(ControlError::Stopped));
        }
        if let Some(id) = self.core.store.drives.exchanges.give_up_waiting_switch() {
            out.answer_command(id, Err(ControlError::Stopped));
        }
        self.core.paths.damage.contents.take_unnamed();
        for id in self.upkeep.integrity.survey.give_up() {
            out.answer_command(id, Err(ControlError::Stopped));
        }
        let ids = control.shutdown.map(|s| s.0).into_iter();
        for id in ids
            .chain(waiting.waiting.iter().map(|r| r.id))
            .chain(control.checkpoints.iter().map(|c| c.0))
            .chain(waiting.recorded.iter().map(|p| p.0))
        {
            out.answer_command(id, Err(ControlError::Stopped));
        }
    }
}

impl Control {
    /// True if it releases a device that the shutdown of a pool would wait for.
    fn lets_go(&self) -> bool {
        use MemberChange::{Settle, Switched, TakeOut, Thaw};
        matches!(
            self,
            Self::Member {
                change: TakeOut | Settle | Switched | Thaw,
                ..
            }
        )
    }

    /// True if it is logged as a record with its own LSN.
    pub(crate) fn takes_lsn(&self) -> bool {
        matches!(
            self,
            Self::VolumeCreate { .. }
                | Self::VolumeResize { .. }
                | Self::VolumeDelete { .. }
                | Self::VolumeSync { .. }
                | Self::VolumeCompression { .. }
                | Self::VolumeDedup { .. }
                | Self::VolumeRename { .. }
        )
    }
}

fn check_name(name: &str) -> Result<(), ControlError> {
    if name.is_empty()
        || name.len() > MAX_NAME_BYTES
        || name.chars().any(|c| c.is_control() || c == '/')
    {
        return Err(ControlError::Invalid(format!(
            "a name has 1 to {MAX_NAME_BYTES} bytes, without '/' and control characters"
        )));
    }
    if name.starts_with('-') {
        return Err(ControlError::Invalid(
            "a name does not begin with '-', as options do".into(),
        ));
    }
    Ok(())
}

fn check_size(size_bytes: u64) -> Result<(), ControlError> {
    if size_bytes == 0 || !size_bytes.is_multiple_of(BLOCK_BYTES) || size_bytes > MAX_VOLUME_BYTES {
        return Err(ControlError::Invalid(format!(
            "a volume's size is a multiple of 4096 bytes, from 4096 to {MAX_VOLUME_BYTES} ({} TiB)",
            MAX_VOLUME_BYTES >> 40
        )));
    }
    Ok(())
}

//! Commit: batches of a stream take effect in the order of their batch sequence numbers. A batch
//! commits when all its columns are written, or the loss of the member that prevented one is
//! recorded.

use crate::base::limits::{STREAMS, is_cleaned, is_user};
use crate::base::piece::units_of;
use crate::base::stages::Stage;
use crate::base::weight::weight;
use crate::path::Paths;
use crate::path::write::admit::RECORD_COST;
use crate::store::Store;
use crate::store::events::Outbox;
use crate::store::pending::{BlockKey, Committed, PendingSlot};
use crate::store::stream::{Batch, BatchStage, Item};
use windrow_format::batch::PayloadOffsets;
use windrow_format::checkpoint::PagePointer;
use windrow_format::map_entry::MapEntry;
use windrow_types::{BLOCK_BYTES, BatchSeq, FULL_BLOCK_UNITS, Lba, Lsn, VolumeId};

impl Paths {
    /// Commits every batch that is next in its stream and complete.
    pub(crate) fn commit_ready(&mut self, store: &mut Store, out: &mut Outbox) {
        for stream in STREAMS {
            while let Some(batch) = self.log.stream(stream).in_flight.front() {
                if batch.stage != BatchStage::Written
                    || (batch.lost_columns != 0 && store.drives.members.unrecorded_loss)
                    || store.pool.stopped.is_some()
                {
                    break;
                }
                let Some(batch) = self.log.stream_mut(stream).in_flight.pop_front() else {
                    break;
                };
                self.commit(stream, batch, store, out);
            }
        }
    }

    fn commit(&mut self, stream: usize, batch: Batch, store: &mut Store, out: &mut Outbox) {
        let shape = *store.pool.zones.shape(batch.segment);
        let first_unit = u64::from(batch.row) * u64::from(shape.data) * u64::from(FULL_BLOCK_UNITS);
        let mut addresses = PayloadOffsets::new(batch.head_blocks, batch.whole_blocks, batch.rows);
        let last_lsn = batch.lsns.map_or(Lsn(0), |o| o.1);
        store.warm_commit(&batch);
        let codec = store.pool.codec;
        let mut payloads = batch.payloads.iter().zip(&batch.checksums);
        // One address per item with payload: both come from the same table.
        let mut stored = || {
            let (units, checksum) = payloads
                .next()
                .map_or((FULL_BLOCK_UNITS, 0), |(payload, checksum)| {
                    (units_of(payload), *checksum)
                });
            MapEntry::stored(
                codec.pack(batch.segment, first_unit + addresses.next(units)),
                units,
                checksum,
            )
        };
        let mut freed = 0u64;
        for item in &batch.items {
            match *item {
                Item::Data { key, lsn, pending } => {
                    let entry = stored();
                    freed += BLOCK_BYTES;
                    if let Some(by) =
                        self.commit_version((key, pending, lsn), entry, last_lsn, store)
                    {
                        // Already superseded when it commits. The newer version must be durable
                        // before this segment is reused, too.
                        store.segments.superseded(batch.segment, by);
                    }
                }
                Item::Content { id, lsn } => {
                    let entry = stored().with_incarnation(lsn.0 as u32);
                    self.shared.content_committed(id);
                    self.install(
                        VolumeId::SHARED,
                        Lba(u64::from(id)),
                        entry,
                        last_lsn,
                        BatchSeq(0),
                        store,
                    );
                }
                Item::IndexPage { page } => {
                    let entry = stored();
                    self.install(
                        VolumeId::INDEX,
                        Lba(u64::from(page)),
                        entry,
                        last_lsn,
                        BatchSeq(0),
                        store,
                    );
                    self.shared.index_page_committed(page);
                }
                Item::Reference {
                    key,
                    lsn,
                    pending,
                    id,
                } => {
                    freed += BLOCK_BYTES;
                    // The pending version is in the map now, or is dropped.
                    if self
                        .commit_version(
                            (key, pending, lsn),
                            store.volumes.ids.entry(id),
                            last_lsn,
                            store,
                        )
                        .is_some()
                    {
                        self.release_content(id, last_lsn, store);
                    }
                }
                Item::Fill {
                    key,
                    lsn,
                    pending,
                    ones,
                } => {
                    freed += RECORD_COST;
                    self.commit_version(
                        (key, pending, lsn),
                        if ones { MapEntry::ONES } else { MapEntry::ZERO },
                        last_lsn,
                        store,
                    );
                }
                Item::Record => freed += RECORD_COST,
                Item::Move { key, from } => {
                    let entry = stored();
                    self.settle_range(key.volume(), key.lba(), store);
                    if let Some(old) = store.volumes.entry_at(key.volume(), key.lba(), from) {
                        self.charge_moved(key, &old, &entry, store);
                        self.install(
                            key.volume(),
                            key.lba(),
                            entry.with_incarnation(old.incarnation()),
                            Lsn(0),
                            batch.number,
                            store,
                        );
                    }
                    store.segments.unpin(store.pool.codec.segment(from));
                }
                Item::Page { object, index } => {
                    let page = stored();
                    store.segments.add_live(batch.segment, FULL_BLOCK_UNITS);
                    self.durability.page_committed(
                        &mut store.volumes,
                        object,
                        index,
                        PagePointer::to(
                            page.address(),
                            page.checksum(),
                            batch.row as u16,
                            batch.rows as u16,
                        ),
                    );
                }
            }
        }
        self.batch_committed(stream, batch, freed, store, out);
    }

    /// Follow-up when all entries of a batch are in effect; `freed`: pending bytes that it
    /// releases.
    fn batch_committed(
        &mut self,
        stream: usize,
        batch: Batch,
        freed: u64,
        store: &mut Store,
        out: &mut Outbox,
    ) {
        let last_lsn = batch.lsns.map_or(Lsn(0), |o| o.1);
        self.admission.pending_bytes -= freed;
        self.durability.checkpoint.note_applied(last_lsn);
        if let Some((first, last)) = batch.lsns
            && is_user(stream)
        {
            // With further streams a batch does not hold all LSNs between its first and its last
            // one.
            match self.has_further_lsns(store) {
                false => self.durability.lsns.commit(first, last),
                true => self
                    .durability
                    .lsns
                    .commit_through(self.committed_through(store)),
            }
            self.settle_unsettled(store);
            store.observe.counters.committed_user_bytes += freed;
        }
        let clock = store.observe.counters.log_bytes / BLOCK_BYTES;
        store
            .segments
            .batch_committed(batch.segment, clock, batch.last_of_segment);
        self.batch_stage(stream, Stage::WriteCommit, batch.stage_ns, store);
        if is_cleaned(stream) {
            store
                .observe
                .stages
                .record(Stage::CleaningBatch, batch.opened_ns, store.pool.now_ns);
            self.space.cleaner.moves_committed(batch.items.len() as u32);
        }
        self.log.stream_mut(stream).committed_batch(batch);
        self.flush_round_check(store, out);
    }

    /// Commits a version of a block: `entry` goes into the map, unless the returned LSN has already
    /// superseded it. With the last version in flight, the charge of the block changes from that of
    /// its newest version to that of its map entry.
    #[inline]
    fn commit_version(
        &mut self,
        (key, pending, lsn): (BlockKey, PendingSlot, Lsn),
        entry: MapEntry,
        last_lsn: Lsn,
        store: &mut Store,
    ) -> Option<Lsn> {
        let Committed { superseded, last } = self.log.pending.commit(pending, lsn);
        if superseded.is_none() {
            self.install(key.volume(), key.lba(), entry, last_lsn, BatchSeq(0), store);
        }
        if let Some(was_data) = last {
            let mapped = match superseded {
                None => weight(&entry),
                Some(_) => weight(&store.volumes.look_up(key.volume(), key.lba())),
            };
            store.volumes.take_space(0, mapped);
            if was_data {
                store.volumes.release_space(0, u64::from(FULL_BLOCK_UNITS));
            }
        }
        superseded
    }

    /// Adjusts the charge before a move is installed: the difference is given back, unless the
    /// block is charged for a version in flight. (Shared content is charged as it is installed;
    /// index pages are not charged at all.)
    fn charge_moved(&mut self, key: BlockKey, old: &MapEntry, new: &MapEntry, store: &mut Store) {
        let (before, after) = (weight(old), weight(new));
        if before != after
            && ![VolumeId::SHARED, VolumeId::INDEX].contains(&key.volume())
            && self.log.pending.find(key).is_none()
        {
            store.volumes.take_space(0, after);
            store.volumes.release_space(0, before);
        }
    }

    /// Puts an entry into the map and updates the live counters. `by` and `moved_by` supersede the
    /// old entry.
    fn install(
        &mut self,
        volume: VolumeId,
        lba: Lba,
        entry: MapEntry,
        by: Lsn,
        moved_by: BatchSeq,
        store: &mut Store,
    ) {
        if !self.damage.is_empty() {
            self.damage.clear(volume, lba, Lba(lba.0 + 1));
        }
        let Some((v, arena)) = store.volumes.get_mut(volume) else {
            return;
        };
        let old = v.map.replace(arena, lba, entry);
        if volume == VolumeId::SHARED {
            store.volumes.take_space(0, weight(&entry));
            store.volumes.release_space(0, weight(&old));
        }
        if entry.has_payload() {
            store.segments.add_live(
                store.pool.codec.segment(entry.address()),
                entry.length_units(),
            );
        }
        if old.has_payload() {
            store.segments.remove_live(
                store.pool.codec.segment(old.address()),
                old.length_units(),
                by,
                moved_by,
            );
        }
        if let Some(id) = old.shared_id() {
            self.release_content(id.0 as u32, by, store);
        }
    }
}

//! Checkpoints: images of the tables, written during normal operation in bounded steps.
//!
//! ```text
//! Idle -> Maps (changed map pages) -> Tables (volume table, segment table, counters) -> Leaves
//!      -> List -> Top -> Sync (everything contained is durable and at or below the recovery point)
//!      -> Root (superblock generation) -> Idle
//! ```
//! 1. **Begin.** The number is raised. The replay position of each stream is that of its oldest
//!    uncommitted batch; batches in flight belong to the replay of the new checkpoint.
//! 2. **Pages** are copied in turn, with their content at that time (fuzzy). Replay applies
//!    everything from the replay positions again, which gives the same result.
//! 3. **Root.** Before it is written, every LSN and every move that a copied page can show is
//!    durable.
//!
//! **Space.** A page image is live while one of the two kept roots can reach it. A replaced image
//! is still reached by the previous root, so it is `retiring`. When the next root is durable it is
//! `retired`, and dead.
//!
//! **List.** The list pages name the leaves. The top pages name the list pages (records with object
//! `OBJECT_LIST`) and form a chain that ends in the root. One top page names 168 list pages, 28 224
//! leaves, 7.2 million map pages.

use crate::base::limits::{
    CHECKPOINT_COST_RATIO, MAX_VICTIMS, OPPORTUNITY_COST_RATIO, RELIEF_RESERVE, STREAM_CHECKPOINT,
    STREAMS, VICTIMS_LOG_SHARE,
};
use crate::path::Core;
use crate::path::checkpointing::*;
use crate::store::events::Outbox;
use crate::store::map::PageSlot;
use crate::store::stream::Item;
use crate::upkeep::Upkeep;
use std::collections::{BTreeSet, VecDeque};
use windrow_format::batch::Entry;
use windrow_format::checkpoint::{
    LIST_RECORDS, LeafRecord, ListPage, OBJECT_COUNTERS, OBJECT_LEAF, OBJECT_LIST, OBJECT_MAP,
    OBJECT_SEGMENTS, OBJECT_VOLUMES, PagePointer, SegmentRecord, encode_counters, encode_leaf,
    encode_list, encode_map_page, encode_segment, encode_volumes,
};
use windrow_format::superblock::CheckpointRoot;
use windrow_io::Buf;
use windrow_types::{
    BLOCK_BYTES, BLOCK_SIZE, BatchSeq, FULL_BLOCK_UNITS, Lsn, MAX_STREAMS, StreamId,
};

impl Upkeep {
    /// Advances the checkpoint in progress, or begins one that is due.
    pub(crate) fn checkpoint_step(&mut self, core: &mut Core, out: &mut Outbox) {
        if core.store.pool.read_only || core.store.pool.stopped.is_some() {
            return;
        }
        loop {
            let before = core.paths.durability.checkpoint.stage;
            match before {
                Stage::Idle
                    if self.checkpoint_due(core)
                        && core.paths.durability.is_settled_after_start() =>
                {
                    let has_walks = core.paths.ranges.has_walks();
                    core.paths.ranges.hold_walks(has_walks);
                    if core.paths.ranges.holds_walks() {
                        return;
                    }
                    self.begin_checkpoint(core);
                }
                Stage::Idle => {
                    core.paths.ranges.hold_walks(false);
                    return;
                }
                Stage::Maps | Stage::Tables | Stage::Leaves | Stage::List | Stage::Top(_) => {
                    self.copy_pages(core, out)
                }
                Stage::Sync => self.checkpoint_sync(core, out),
                Stage::Root { ticket } => {
                    if !core.store.drives.superblock_writer.has_recorded(ticket) {
                        return;
                    }
                    self.end_checkpoint(core);
                }
            }
            if core.paths.durability.checkpoint.stage == before {
                return;
            }
        }
    }

    fn checkpoint_due(&self, core: &Core) -> bool {
        let since = core.store.observe.counters.committed_user_bytes
            - core.paths.durability.checkpoint.user_bytes_at_last;
        let cost = (core.store.volumes.arena.dirty_pages() as u64) * BLOCK_BYTES;
        // Below what it may need, a checkpoint waits for the cleaner; only one that is asked for
        // does not.
        let room = core.store.segments.free_count()
            > core.paths.durability.checkpoint.reserve_segments() + RELIEF_RESERVE;
        let due = since
            >= core
                .paths
                .durability
                .checkpoint
                .min_log_bytes
                .max(CHECKPOINT_COST_RATIO * cost);
        let costs_enough = core.paths.durability.checkpoint.opportunity_cost
            >= OPPORTUNITY_COST_RATIO * core.paths.durability.checkpoint_cost(&core.store.volumes);
        core.paths.durability.checkpoint.requested
            || (room && (due || costs_enough || self.victims_run_out(core)))
    }

    /// True if the candidates hardly exceed what the log takes while a checkpoint is written.
    /// Younger segments can be cleaned only after one, and clients would stall until then.
    fn victims_run_out(&self, core: &Core) -> bool {
        let log_bytes = core.store.observe.counters.log_bytes
            - core.paths.durability.checkpoint.log_bytes_at_begin;
        let needed = 2
            * (core.paths.durability.checkpoint_cost(&core.store.volumes)
                / core.store.segments.payload_bytes_max()
                + MAX_VICTIMS as u64);
        u64::from(core.store.segments.candidate_count()) <= needed
            && log_bytes >= core.store.pool.plan.data_bytes / VICTIMS_LOG_SHARE
            && core.store.segments.checkpoint_frees()
    }

    fn begin_checkpoint(&mut self, core: &mut Core) {
        core.paths
            .space
            .ledger
            .begin_checkpoint(core.paths.durability.checkpoint.reserve_segments);
        core.paths.durability.checkpoint.requested = false;
        core.paths.durability.checkpoint.current += 1;
        core.paths.durability.checkpoint.begun = core.paths.durability.checkpoint.current;
        core.paths.durability.checkpoint.user_bytes_at_last =
            core.store.observe.counters.committed_user_bytes;
        core.paths.durability.checkpoint.opportunity_cost = 0;
        core.paths.durability.checkpoint.bytes_at_begin =
            core.store.observe.counters.checkpoint_log_bytes;
        core.paths.durability.checkpoint.log_bytes_at_begin = core.store.observe.counters.log_bytes;
        let id = core.paths.durability.checkpoint.current;
        let mut replay = [crate::store::stream::Stream::closed_position(); MAX_STREAMS];
        for stream in &core.paths.log.streams {
            replay[stream.id] = stream.replay_position();
            for batch in &stream.in_flight {
                core.store.segments.get_mut(batch.segment).last_checkpoint = id;
            }
            for (position, _) in &stream.unsettled {
                core.store
                    .segments
                    .get_mut(position.segment)
                    .last_checkpoint = id;
            }
        }
        let dirty = core.store.volumes.arena.take_dirty();
        let page = |slot: PageSlot| {
            core.store.volumes.arena.meta(slot).map(|meta| Work::Map {
                slot,
                volume: meta.volume,
                index: meta.index,
            })
        };
        let work: VecDeque<Work> = dirty.into_iter().filter_map(page).collect();
        core.paths
            .durability
            .take_dropped_pages(&mut core.store.volumes);
        core.paths.durability.checkpoint.building = Some(Building {
            lsn: core.paths.durability.lsns.committed(),
            replay,
            work,
            outstanding: 0,
            leaves: Vec::new(),
            records: Vec::new(),
            list: Vec::new(),
            top: Vec::new(),
            contained: Lsn(0),
            contained_moves: BatchSeq(0),
            last_page: BatchSeq(0),
        });
        core.paths.durability.checkpoint.stage = Stage::Maps;
    }

    /// Table pages that changed. Taken only now, when all map pages have been copied, so that they
    /// include the segments which those pages refer to.
    fn take_tables(&mut self, core: &mut Core) -> BTreeSet<(u32, u32)> {
        let mut tables = std::mem::take(&mut core.paths.durability.checkpoint.rewrite);
        tables.extend(
            std::mem::take(&mut core.store.volumes.dirty_pages)
                .into_iter()
                .map(|p| (OBJECT_VOLUMES, p)),
        );
        let geometry = core.paths.durability.checkpoint.geometry;
        tables.extend(
            core.store
                .segments
                .take_dirty()
                .into_iter()
                .map(|s| (OBJECT_SEGMENTS, geometry.locate(s).0)),
        );
        tables.insert((OBJECT_COUNTERS, 0));
        tables
    }

    /// Appends pages of the current stage; enters the next stage when all of this one are
    /// committed.
    fn copy_pages(&mut self, core: &mut Core, out: &mut Outbox) {
        let waited = core.paths.durability.checkpoint.wants_segment;
        loop {
            let Some(building) = core.paths.durability.checkpoint.building.as_ref() else {
                return;
            };
            let Some(work) = building.work.front().copied() else {
                if core.paths.durability.checkpoint.stage != Stage::Maps {
                    break;
                }
                let tables = self.take_tables(core);
                core.paths.durability.checkpoint.stage = Stage::Tables;
                if let Some(building) = core.paths.durability.checkpoint.building.as_mut() {
                    building.work.extend(
                        tables
                            .into_iter()
                            .map(|(object, index)| Work::Table { object, index }),
                    );
                }
                continue;
            };
            core.paths.durability.checkpoint.wants_segment = false;
            if !core.paths.make_room(
                STREAM_CHECKPOINT,
                32,
                FULL_BLOCK_UNITS,
                &mut core.store,
                out,
            ) {
                return self.note_starved(waited, core);
            }
            if let Some(building) = core.paths.durability.checkpoint.building.as_mut() {
                building.work.pop_front();
            }
            if let Some((object, index, page)) = self.page_image(work, core) {
                let seq = core.paths.log.stream(STREAM_CHECKPOINT).position.seq;
                if let Some(building) = core.paths.durability.checkpoint.building.as_mut() {
                    building.outstanding += 1;
                    building.last_page = seq;
                }
                core.paths.append(
                    STREAM_CHECKPOINT,
                    &Entry::Page { object, index },
                    Item::Page { object, index },
                    Some(page.freeze()),
                    None,
                    &mut core.store,
                );
            }
        }
        core.paths.durability.checkpoint.wants_segment = false;
        if !core.paths.log.stream(STREAM_CHECKPOINT).open.is_empty() {
            core.paths.seal(STREAM_CHECKPOINT, &mut core.store, out);
            return self.note_starved(waited, core);
        }
        if core
            .paths
            .durability
            .checkpoint
            .building
            .as_ref()
            .is_some_and(|b| b.outstanding == 0)
        {
            self.next_stage(core);
        }
    }

    /// Notes if unsealed pages wait for a segment: then cleaning must free one.
    fn note_starved(&mut self, waited: bool, core: &mut Core) {
        let stream = core.paths.log.stream(STREAM_CHECKPOINT);
        let waits = !stream.open.is_empty() && stream.in_flight.is_empty();
        core.paths.durability.checkpoint.wants_segment = waits;
        if waits && !waited {
            // Cleaning has had its turn, and no other event may follow.
            core.paths.space.cleaner.cleaning_has_more();
        }
    }

    fn next_stage(&mut self, core: &mut Core) {
        let moves = core.paths.moves_committed_through(&core.store);
        if core.paths.durability.checkpoint.stage == Stage::Tables {
            core.paths
                .durability
                .take_dropped_pages(&mut core.store.volumes);
        }
        let state = &mut core.paths.durability.checkpoint;
        let Some(building) = state.building.as_mut() else {
            return;
        };
        match state.stage {
            Stage::Tables => {
                building.work.extend(
                    std::mem::take(&mut state.dirty_leaves)
                        .into_iter()
                        .map(|(object, leaf)| Work::Leaf { object, leaf }),
                );
                state.stage = Stage::Leaves;
            }
            Stage::Leaves => {
                // From here on no table page is copied any more.
                building.contained = state.applied;
                building.contained_moves = moves;
                building.records = state
                    .leaves
                    .iter()
                    .map(|((object, leaf), p)| LeafRecord {
                        object: *object,
                        leaf: *leaf,
                        pointer: *p,
                    })
                    .collect();
                let pages = building.records.len().div_ceil(LIST_RECORDS) as u32;
                building.list = vec![PagePointer::default(); pages as usize];
                building
                    .work
                    .extend((0..pages).map(|index| Work::List { index }));
                state.stage = Stage::List;
            }
            Stage::List | Stage::Top(_) => {
                let tops = building.list.len().div_ceil(LIST_RECORDS).max(1);
                if building.top.len() < tops {
                    // One at a time: each names its predecessor.
                    let index = building.top.len() as u32;
                    building.work.push_back(Work::Top { index });
                    building.top.push(PagePointer::default());
                    state.stage = Stage::Top(index);
                } else {
                    state.stage = Stage::Sync;
                }
            }
            Stage::Idle | Stage::Maps | Stage::Sync | Stage::Root { .. } => {}
        }
    }

    /// Image and name of a page; `None` if the page is gone or was already copied.
    fn page_image(&mut self, work: Work, core: &mut Core) -> Option<(u32, u32, Buf)> {
        let mut page = core.store.memory.buffers.zeroed(BLOCK_SIZE);
        match work {
            Work::Map {
                slot,
                volume,
                index,
            } => {
                let arena = &mut core.store.volumes.arena;
                let is_it = arena
                    .meta(slot)
                    .is_some_and(|meta| (meta.volume, meta.index) == (volume, index));
                if !is_it || !arena.clear_dirty(slot) {
                    return None;
                }
                encode_map_page(arena.page(slot), &mut page);
                Some((OBJECT_MAP + volume.0, index, page))
            }
            Work::Table { object, index } => {
                match object {
                    OBJECT_VOLUMES => {
                        encode_volumes(&core.store.volumes.table_page(index), &mut page)
                    }
                    OBJECT_SEGMENTS => self.encode_segment_page(index, &mut page, core),
                    _ => {
                        self.forget_reopened(core);
                        encode_counters(&self.saved_counters(core), &mut page)
                    }
                }
                Some((object, index, page))
            }
            Work::Leaf { object, leaf } => {
                let pointers =
                    core.paths
                        .durability
                        .leaf_pointers(&core.store.volumes, object, leaf);
                if pointers.iter().all(|p| !p.present) {
                    if let Some(old) = core
                        .paths
                        .durability
                        .checkpoint
                        .leaves
                        .remove(&(object, leaf))
                    {
                        core.paths.durability.checkpoint.retire(old);
                    }
                    return None;
                }
                encode_leaf(&pointers, &mut page);
                let building = core.paths.durability.checkpoint.building.as_mut()?;
                building.leaves.push((object, leaf));
                Some((OBJECT_LEAF, building.leaves.len() as u32 - 1, page))
            }
            Work::List { index } => {
                let building = core.paths.durability.checkpoint.building.as_ref()?;
                let first = index as usize * LIST_RECORDS;
                let records = building.records
                    [first..(first + LIST_RECORDS).min(building.records.len())]
                    .to_vec();
                encode_list(
                    &ListPage {
                        checkpoint: core.paths.durability.checkpoint.current,
                        previous: PagePointer::default(),
                        records,
                    },
                    &mut page,
                );
                Some((OBJECT_LIST, index, page))
            }
            Work::Top { index } => {
                let building = core.paths.durability.checkpoint.building.as_ref()?;
                let first = index as usize * LIST_RECORDS;
                let chunk = building
                    .list
                    .iter()
                    .enumerate()
                    .skip(first)
                    .take(LIST_RECORDS);
                let records = chunk
                    .map(|(i, p)| LeafRecord {
                        object: OBJECT_LIST,
                        leaf: i as u32,
                        pointer: *p,
                    })
                    .collect();
                let previous = index
                    .checked_sub(1)
                    .map_or(PagePointer::default(), |i| building.top[i as usize]);
                encode_list(
                    &ListPage {
                        checkpoint: core.paths.durability.checkpoint.current,
                        previous,
                        records,
                    },
                    &mut page,
                );
                Some((OBJECT_LIST, building.list.len() as u32 + index, page))
            }
        }
    }

    fn encode_segment_page(&self, index: u32, page: &mut [u8], core: &Core) {
        let geometry = core.paths.durability.checkpoint.geometry;
        // A shadow is copied from the beginning after each start.
        let rebuilding =
            core.store.drives.members.rebuilding() & !core.store.drives.exchanges.shadow_bit();
        for i in 0..geometry.per_page {
            let id = index * geometry.per_page as u32 + i as u32;
            if id >= core.store.segments.count() {
                break;
            }
            let id = windrow_types::SegmentId(id);
            let s = core.store.segments.get(id);
            let record = SegmentRecord {
                segment: id,
                stream: StreamId(s.stream),
                in_use: s.filled_rows > 0,
                filled_rows: s.filled_rows,
                last_checkpoint: s.last_checkpoint,
                last_seq: s.last_seq,
                // Without members that have become complete meanwhile: an empty segment is never
                // rebuilt, and may have been stale on many members in turn.
                stale: if s.filled_rows > 0 {
                    s.stale & rebuilding
                } else {
                    0
                },
                starts: if s.filled_rows > 0 {
                    s.starts.to_vec()
                } else {
                    vec![0; s.starts.len()]
                },
            };
            let (_, at) = geometry.locate(id);
            encode_segment(&record, &mut page[at..at + geometry.stride]);
        }
    }

    /// Waits until everything that the image can show is durable; then requests the root.
    fn checkpoint_sync(&mut self, core: &mut Core, out: &mut Outbox) {
        let Some(building) = core.paths.durability.checkpoint.building.as_ref() else {
            return;
        };
        let (contained, moves, last_page) = (
            building.contained,
            building.contained_moves,
            building.last_page,
        );
        let durable = core.paths.durability.lsns.durable() >= contained
            && core.paths.space.cleaner.numbers.durable() >= moves
            && core.paths.log.stream(STREAM_CHECKPOINT).durable >= last_page;
        if !durable {
            if core.paths.durability.lsns.committed() < contained {
                // A trim or a volume operation in an open batch, or with several streams the write
                // of another one.
                if core.paths.users_are_written(&core.store) {
                    core.paths.seal_users(contained, &mut core.store, out);
                }
                return;
            }
            core.paths.durability.flush.request();
            core.paths.flush_round_check(&mut core.store, out);
            return self.after_rounds(core, out);
        }
        let Some(building) = core.paths.durability.checkpoint.building.take() else {
            return;
        };
        let mut flushed_seq = [BatchSeq(0); MAX_STREAMS];
        for id in STREAMS {
            flushed_seq[id] = core.paths.log.stream(id).durable;
        }
        let root = CheckpointRoot {
            id: core.paths.durability.checkpoint.current,
            lsn: building.lsn,
            epoch: core.store.pool.superblock.epoch,
            replay: building.replay,
            flushed_seq,
            flushed_through: core.paths.durability.lsns.durable(),
            list: building.top.last().copied().unwrap_or_default(),
            list_pages: (building.list.len() + building.top.len()) as u32,
            last_volume: core.store.volumes.last_id,
        };
        let older = core.store.pool.superblock.checkpoints[0];
        core.store.pool.superblock.checkpoints = [Some(root), older];
        if let Some(older) = older {
            core.store
                .pool
                .superblock
                .fences
                .retain(|f| f.epoch > older.epoch);
        }
        for pointer in std::mem::replace(
            &mut core.paths.durability.checkpoint.list,
            [building.list, building.top].concat(),
        ) {
            core.paths.durability.checkpoint.retire(pointer);
        }
        let ticket = core.store.drives.superblock_writer.request();
        core.paths.durability.checkpoint.stage = Stage::Root { ticket };
        core.paths.superblock_step(&mut core.store, out);
    }

    /// Completes the checkpoint. The root is durable: pages that only the dropped root could reach
    /// are dead.
    fn end_checkpoint(&mut self, core: &mut Core) {
        let retired = std::mem::replace(
            &mut core.paths.durability.checkpoint.retired,
            std::mem::take(&mut core.paths.durability.checkpoint.retiring),
        );
        for address in retired {
            core.store.segments.remove_live(
                core.store.pool.codec.segment(address),
                FULL_BLOCK_UNITS,
                Lsn(0),
                BatchSeq(0),
            );
        }
        core.paths.durability.checkpoint.stage = Stage::Idle;
        core.paths.durability.checkpoint.kept_oldest = core.store.pool.oldest_checkpoint();
        // Segments that are no longer young become candidates at once: other steps run before
        // segments are freed.
        core.store
            .segments
            .set_oldest_checkpoint(core.paths.durability.checkpoint.kept_oldest);
        core.paths.durability.checkpoint.completed = core.paths.durability.checkpoint.current;
        core.paths.durability.checkpoint.last_bytes =
            core.store.observe.counters.checkpoint_log_bytes
                - core.paths.durability.checkpoint.bytes_at_begin;
        core.store.observe.counters.checkpoints += 1;
    }
}

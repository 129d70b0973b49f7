//! Cleaning: live data of a victim moves to the cleaned stream, so that its segment can be reused.
//!
//! 1. When too few segments are free or about to become free, the policy picks a victim.
//! 2. The two ends of each batch are read: the table lists its blocks, the map tells which of them
//!    are live. (For wrong ends see `upkeep/clean/damage.rs`.)
//! 3. Live blocks are read in runs (one by one where a run is unreadable), and verified. They are
//!    appended as moves, which keep their birth and name their old address.
//! 4. When its last move has committed, the victim is dead; it becomes free by the reuse rule.
//!    Checkpoint pages are not moved: they are marked changed, so that the next checkpoint writes
//!    them elsewhere.
//! 5. If space is short, the cleaner requests what keeps dead segments from being freed: a flush or
//!    a checkpoint (`upkeep/clean/free.rs`).
//!
//! Segments that the oldest kept checkpoint may still replay are not cleaned: they would become
//! free only two checkpoints later. So after one flush every victim pays back the segment that its
//! moves may need. A checkpoint is forced only when nothing else is left to clean.
//!
//! Moved data may be recompressed (`upkeep/clean/repack.rs`). The moves themselves:
//! `upkeep/clean/moves.rs`.
//!
//! Repairs requested by reads and scrubs use the same path: a move with the reconstructed bytes
//! (`upkeep/clean/repair.rs`).

mod damage;
mod force;
mod free;
mod moves;
mod repack;
mod repair;
mod take;

use crate::base::limits::{CLEANED_STREAMS, STREAM_CHECKPOINT, VICTIM_BATCHES_AHEAD};
use crate::base::piece::{Piece, address_in};
use crate::path::Core;
use crate::path::cleaning::*;
use crate::store::events::Outbox;
use crate::store::fetch::{FetchGoal, FetchSpec};
use crate::store::jobs::Move;
use crate::store::pending::BlockKey;
use crate::upkeep::Upkeep;
use windrow_format::batch::{DecodedBatch, Entry, PayloadInfo, decode_batch};
use windrow_format::checkpoint::OBJECT_MAP;
use windrow_geometry::Column;
use windrow_io::Payload;
use windrow_types::{Address, BLOCK_BYTES, FULL_BLOCK_UNITS, SegmentId, VolumeId};

/// Maximum gap of dead blocks that is read along rather than splitting a run.
const GAP_BLOCKS: u32 = 2;
impl Upkeep {
    /// True if moves wait for room in the log.
    pub(crate) fn wants_room(&self, core: &Core) -> bool {
        core.paths.admission.wants_room()
            || core.paths.commands.is_waiting()
            || !core.paths.durability.is_settled_after_start()
            || core.paths.is_refusing_data(&core.store)
    }

    /// Advances cleaning.
    pub(crate) fn clean_step(&mut self, core: &mut Core, out: &mut Outbox) {
        if core.store.pool.read_only
            || (core.store.pool.closing.is_under_way()
                && !self.wants_room(core)
                && core.paths.durability.checkpoint.is_idle())
        {
            core.paths.space.cleaner.again = false;
            return;
        }
        core.paths.space.cleaner.again = false;
        self.take_victims(core);
        let victims: Vec<u32> = core
            .paths
            .space
            .cleaner
            .victims
            .iter_mut()
            .map(|(at, _)| at)
            .collect();
        for at in &victims {
            self.read_victim(*at, core, out);
        }
        self.verify_victims(core, out);
        self.append_moves(core, out);
        for at in victims {
            self.end_victim(at, core);
        }
        if core.paths.space.cleaner.is_idle() {
            core.paths.space.ledger.end_victims();
        }
        self.hurry(core, out);
    }

    /// Starts reading the ends of the victim's next batches.
    fn read_victim(&mut self, at: u32, core: &mut Core, out: &mut Outbox) {
        loop {
            let waiting = core.paths.space.cleaner.waiting_blocks();
            let Some(victim) = core.paths.space.cleaner.victims.get_mut(at) else {
                return;
            };
            if victim.is_searching() {
                return self.search_map(at, core, out);
            }
            let segment = victim.segment;
            let s = core.store.segments.get(segment);
            let busy = victim.ends.len() + victim.runs.len().min(1);
            if victim.next_row >= s.filled_rows
                || busy >= VICTIM_BATCHES_AHEAD
                || waiting >= READY_BOUND
            {
                return;
            }
            if s.live_units == 0 || (victim.is_tried() && victim.missed) {
                // Everything in it has died, or this pass needs no more batches: nothing to read.
                victim.next_row = s.filled_rows;
                return;
            }
            let (row, rows) = s.batch_at(victim.next_row);
            victim.next_row = row + rows;
            let whole = victim.pass == Pass::Whole;
            victim.ends.push(Ends {
                row,
                rows,
                head: Vec::new(),
                tail: None,
                left: 0,
                wrong: whole,
            });
            if !whole {
                self.read_ends(at, row, rows.min(HEAD_ROWS), 1, core, out);
            }
        }
    }

    /// Reads the tail and `head_rows` rows of the first `head_columns` columns of a batch.
    fn read_ends(
        &mut self,
        at: u32,
        row: u32,
        head_rows: u32,
        head_columns: u8,
        core: &mut Core,
        out: &mut Outbox,
    ) {
        let Some(victim) = core.paths.space.cleaner.victims.get_mut(at) else {
            return;
        };
        let segment = victim.segment;
        let Some(ends) = victim.ends.iter_mut().find(|e| e.row == row) else {
            return;
        };
        ends.head = (0..head_columns).map(|_| None).collect();
        ends.left = head_columns + 1;
        let tail_row = row + ends.rows - 1;
        let tail_column = Column(core.store.pool.zones.shape(segment).data - 1);
        let goal = |part| FetchGoal::CleanEnd {
            victim: at,
            batch_row: row,
            part,
        };
        for c in 0..head_columns {
            let spec = FetchSpec {
                segment,
                column: Column(c),
                row,
                rows: head_rows,
                pieces: Vec::new(),
                goal: goal(Some(c)),
                singly: false,
            };
            let ended = core.store.start_fetch(spec, out);
            self.deliver_above(ended, core, out);
        }
        let spec = FetchSpec {
            segment,
            column: tail_column,
            row: tail_row,
            rows: 1,
            pieces: Vec::new(),
            goal: goal(None),
            singly: false,
        };
        let ended = core.store.start_fetch(spec, out);
        self.deliver_above(ended, core, out);
    }

    /// Handles a read end of a batch.
    pub(crate) fn clean_end_read(
        &mut self,
        at: u32,
        row: u32,
        part: Option<u8>,
        bytes: Option<Payload>,
        core: &mut Core,
        out: &mut Outbox,
    ) {
        let Some(victim) = core.paths.space.cleaner.victims.get_mut(at) else {
            return;
        };
        let segment = victim.segment;
        let Some(ends) = victim.ends.iter_mut().find(|e| e.row == row) else {
            return;
        };
        match part {
            None => ends.tail = bytes,
            Some(c) => ends.head[usize::from(c)] = bytes,
        }
        ends.left -= 1;
        if ends.left > 0 {
            return;
        }
        let rows = ends.rows;
        let head = ends.head_bytes(
            &core.store.pool.superblock.pool,
            segment,
            core.store.pool.zones.shape(segment),
        );
        if let Some(Err(blocks)) = head {
            // A long table: the header tells how far it reaches.
            let columns = blocks.div_ceil(rows) as u8;
            return self.read_ends(at, row, rows.min(blocks), columns, core, out);
        }
        let decoded = match (head, &ends.tail) {
            (Some(Ok(head)), Some(tail)) => {
                decode_batch(&head, tail, &core.store.pool.superblock.pool, segment, row).ok()
            }
            _ => None,
        };
        let current =
            decoded.is_some_and(|batch| self.read_live(at, segment, row, &batch, core, out));
        let Some(victim) = core.paths.space.cleaner.victims.get_mut(at) else {
            return;
        };
        if current {
            victim.ends.retain(|e| e.row != row);
        } else {
            victim
                .ends
                .iter_mut()
                .filter(|e| e.row == row)
                .for_each(|e| e.wrong = true);
            self.verify_victims(core, out);
        }
    }

    /// Finds the live blocks of a batch and reads them in runs. False if it is a stale batch, left
    /// where a member lost a write: the map has another checksum for one of its blocks. Its payload
    /// verifies, but is not the live data.
    fn read_live(
        &mut self,
        at: u32,
        segment: SegmentId,
        row: u32,
        batch: &DecodedBatch,
        core: &mut Core,
        out: &mut Outbox,
    ) -> bool {
        let shape = *core.store.pool.zones.shape(segment);
        let first = u64::from(row) * u64::from(shape.data);
        let rows = batch.frame.header.rows;
        core.store.warm_decoded(batch);
        let mut live: Vec<(PayloadInfo, LiveBlock)> = Vec::with_capacity(batch.entries.len());
        for decoded in &batch.entries {
            let Some(payload) = &decoded.payload else {
                continue;
            };
            let address = address_in(&core.store.pool.codec, segment, row, shape.data, payload);
            let (key, birth) = match decoded.entry {
                Entry::Data { volume, lba, birth }
                | Entry::Move {
                    volume, lba, birth, ..
                } => (BlockKey::new(volume, lba), birth),
                Entry::Page { object, index } => {
                    self.rewrite_page(object, index, address, core);
                    continue;
                }
                _ => continue,
            };
            if let Some(checksum) = core.store.volumes.shown(key.volume(), key.lba(), address) {
                if checksum != payload.checksum {
                    return false;
                }
                live.push((
                    *payload,
                    LiveBlock {
                        piece: Piece::row(0, 0),
                        key,
                        birth,
                        from: address,
                    },
                ));
            }
        }
        if batch.frame.compressed_blocks > 0 {
            // Compressed payload follows the whole blocks, whatever the order of the entries.
            live.sort_unstable_by_key(|(payload, _)| payload.unit);
        }
        let mut index = 0;
        while index < live.len() {
            let start = live[index].0.block();
            let column_end = (start / rows + 1) * rows;
            let mut end = index + 1;
            while end < live.len()
                && live[end].0.block() < column_end
                && live[end].0.block() <= live[end - 1].0.last_block() + GAP_BLOCKS + 1
            {
                end += 1;
            }
            let run_rows = live[end - 1].0.last_block() - start + 1;
            let piece = |payload: &PayloadInfo| {
                Piece::of_units(
                    payload.unit - start * u32::from(FULL_BLOCK_UNITS),
                    payload.units,
                    payload.checksum,
                )
            };
            let blocks = live[index..end]
                .iter()
                .map(|(payload, block)| LiveBlock {
                    piece: piece(payload),
                    ..*block
                })
                .collect();
            index = end;
            let (column, run_row) = shape.locate(row, rows, first + u64::from(start));
            self.read_run(
                at,
                Run {
                    column,
                    row: run_row,
                    rows: run_rows,
                    blocks,
                },
                core,
                out,
            );
        }
        true
    }

    fn read_run(&mut self, at: u32, run: Run, core: &mut Core, out: &mut Outbox) {
        let Some(victim) = core.paths.space.cleaner.victims.get_mut(at) else {
            return;
        };
        let (segment, column, row, rows) = (victim.segment, run.column, run.row, run.rows);
        let pieces = run.blocks.iter().map(|block| block.piece).collect();
        let goal = FetchGoal::CleanRun {
            victim: at,
            run: victim.runs.insert(run),
        };
        let ended = core.store.start_fetch(
            FetchSpec {
                segment,
                column,
                row,
                rows,
                pieces,
                goal,
                singly: false,
            },
            out,
        );
        self.deliver_above(ended, core, out);
    }

    /// Handles a read run of blocks.
    pub(crate) fn clean_run_read(
        &mut self,
        at: u32,
        run: u32,
        bytes: Option<Payload>,
        core: &mut Core,
        out: &mut Outbox,
    ) {
        let Some(victim) = core.paths.space.cleaner.victims.get_mut(at) else {
            return;
        };
        let Some(run) = victim.runs.remove(run) else {
            return;
        };
        let Some(bytes) = bytes else {
            if run.blocks.len() > 1 {
                // One unreadable block must not fail its neighbours.
                for block in run.blocks {
                    let (first, last) = block.piece.rows();
                    let blocks = vec![LiveBlock {
                        piece: block.piece.behind(first),
                        ..block
                    }];
                    self.read_run(
                        at,
                        Run {
                            column: run.column,
                            row: run.row + first,
                            rows: last - first + 1,
                            blocks,
                        },
                        core,
                        out,
                    );
                }
                return;
            }
            if victim.is_tried() {
                // Blocks that died meanwhile are not missed, and index pages are rewritten
                // elsewhere.
                let is_missed = run.blocks.iter().any(|b| {
                    b.key.volume() != VolumeId::INDEX
                        && core
                            .store
                            .volumes
                            .shows(b.key.volume(), b.key.lba(), b.from)
                });
                core.paths
                    .space
                    .cleaner
                    .victims
                    .get_mut(at)
                    .into_iter()
                    .for_each(|victim| victim.missed |= is_missed);
                return;
            }
            victim.missed = true;
            let (mut of_users, mut of_index) = (false, false);
            // A block that another pass may still find is not lost yet.
            let last = victim.is_last_pass();
            for block in run.blocks {
                if last
                    && core
                        .store
                        .volumes
                        .shows(block.key.volume(), block.key.lba(), block.from)
                {
                    core.paths.note_lost(block.key, &mut core.store, out);
                    let is_page = block.key.volume() == VolumeId::INDEX;
                    (of_users, of_index) = (of_users || !is_page, of_index || is_page);
                    if is_page {
                        core.paths.shared.give_up_page(block.key.lba());
                    }
                }
            }
            if let Some(victim) = core.paths.space.cleaner.victims.get_mut(at) {
                (victim.lost_users, victim.lost_index) =
                    (victim.lost_users || of_users, victim.lost_index || of_index);
            }
            return;
        };
        if victim.is_tried() {
            return;
        }
        let moves = run.blocks.into_iter().map(|block| {
            let payload = bytes.slice(block.piece.at as usize, block.piece.length as usize);
            (
                block.piece.checksum,
                Move {
                    key: block.key,
                    birth: block.birth,
                    from: block.from,
                    checksum: None,
                    payload,
                    stream: None,
                },
            )
        });
        let moves: Vec<(u32, Move)> = moves.collect();
        self.take_moves(at, moves, core, out);
    }

    /// Ends a victim whose moves have all committed, or starts another pass for the rest of it.
    fn end_victim(&mut self, at: u32, core: &mut Core) {
        let committed = CLEANED_STREAMS.map(|id| core.paths.log.stream(id).committed);
        let Some(victim) = core.paths.space.cleaner.victims.get_mut(at) else {
            return;
        };
        let s = core.store.segments.get(victim.segment);
        if victim.reading(s.filled_rows)
            || victim.ready > 0
            || victim
                .last
                .iter()
                .zip(committed)
                .any(|(last, committed)| *last > committed)
        {
            return;
        }
        let (segment, missed, gain, gives, moved) = (
            victim.segment,
            victim.missed,
            victim.gain,
            victim.gives,
            victim.weight.saturating_sub(s.weight()),
        );
        let tried = victim.is_tried();
        // Index pages are rewritten elsewhere.
        let is_index_alone = victim.lost_index && !victim.lost_users;
        let (is_left, is_checkpoint) =
            (s.live_units > 0, usize::from(s.stream) == STREAM_CHECKPOINT);
        if is_left && !is_checkpoint && victim.goes_another_way() {
            core.paths.space.cleaner.again = true;
            return;
        }
        if is_left && is_checkpoint && missed {
            // Only the pointers to them show which pages they are.
            let codec = core.store.pool.codec;
            core.paths
                .durability
                .rewrite_pages_where(&mut core.store.volumes, |address| {
                    codec.segment(address) == segment
                });
        }
        let takes = core.paths.space.in_parts(&core.store.segments, moved);
        core.paths.admission.pace.earn_rest(&gain);
        if !tried {
            core.paths.space.cleaner.gains.spend(1);
        }
        core.paths.space.cleaner.victims.remove(at);
        let left_bytes = core.store.segments.live_bytes(segment);
        self.reshape
            .victim_ended(segment, left_bytes, core.store.pool.now_ns);
        let clock = core.store.observe.counters.log_bytes / BLOCK_BYTES;
        if is_left {
            // Checkpoint pages leave with the next two checkpoints; unreadable blocks stay until
            // they are overwritten.
            core.store.segments.quarantine(segment, tried);
            if tried && moved > 0 {
                // It died on its own: nothing is moved.
                core.store.segments.touch(segment);
            }
            if !is_checkpoint && !is_index_alone && !tried {
                core.paths.space.cleaner.deficit =
                    (core.paths.space.cleaner.deficit + takes).min(2 * FUTILE_DEFICIT);
            }
            // There may be other victims, and no other event may follow.
            core.paths.space.cleaner.again = true;
        } else {
            core.paths.space.cleaner.deficit =
                core.paths.space.cleaner.deficit.saturating_sub(gives);
            core.store.segments.end_cleaning(segment, clock);
            core.store.observe.counters.segments_cleaned += 1;
        }
    }

    /// Has a checkpoint page in a victim or in a damaged row written elsewhere, if it is still in
    /// use. True if it is.
    pub(crate) fn rewrite_page(
        &mut self,
        object: u32,
        index: u32,
        address: Address,
        core: &mut Core,
    ) -> bool {
        if object < OBJECT_MAP {
            return core
                .paths
                .durability
                .checkpoint
                .rewrite(object, index, address);
        }
        let volume = windrow_types::VolumeId(object - OBJECT_MAP);
        let slot = core
            .store
            .volumes
            .get(volume)
            .and_then(|v| v.map.slot(u64::from(index)));
        let used = slot.filter(|slot| {
            core.store
                .volumes
                .arena
                .meta(*slot)
                .is_some_and(|m| m.pointer.present && m.pointer.address == address)
        });
        if let Some(slot) = used {
            core.store.volumes.arena.mark_dirty(slot);
        }
        used.is_some()
    }
}

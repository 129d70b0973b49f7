//! Moves: ready blocks go into the open batches of the streams of moved blocks, and victims count
//! what is left.

use crate::base::limits::STREAM_CLEANED;
use crate::base::piece::units_of;
use crate::path::Core;
use crate::path::policy::Takes;
use crate::store::events::Outbox;
use crate::store::jobs::Move;
use crate::store::stream::Item;
use crate::upkeep::Upkeep;
use windrow_format::batch::Entry;
use windrow_types::Lsn;

/// Upper bound of the size of a move's entry.
const MOVE_ENTRY_BYTES: usize = 64;
/// Number of moves whose map entries are prefetched together.
const WARM_MOVES: usize = 128;

impl Upkeep {
    /// Appends ready blocks to the cleaned streams.
    pub(super) fn append_moves(&mut self, core: &mut Core, out: &mut Outbox) {
        loop {
            let spare = self.has_room_for_repairs(core);
            let repairs = spare && self.next_repair_is_durable(core);
            if core.paths.space.cleaner.ready.is_empty()
                && !(repairs && core.paths.space.cleaner.has_repairs())
            {
                return;
            }
            // Repairs gain no space: they never take what the moves of a victim need.
            let first = if repairs {
                core.paths.space.cleaner.repairs.first()
            } else {
                None
            };
            let is_repair = first.is_some();
            let Some(units) = first
                .or(core
                    .paths
                    .space
                    .cleaner
                    .ready
                    .front()
                    .map(|(_, moved)| moved))
                .map(|moved| units_of(&moved.payload))
            else {
                return;
            };
            let Some(stream) = self.stream_for_move(is_repair, units, core, out) else {
                return;
            };
            if core.paths.space.cleaner.ready_warm == 0 {
                self.warm_moves(core);
            }
            let seq = core.paths.log.stream(stream).position.seq;
            let repair = if repairs {
                core.paths.space.cleaner.repairs.pop()
            } else {
                None
            };
            let (victim, moved) = match repair {
                Some(repair) => (None, repair),
                None => match core.paths.space.cleaner.ready.pop_front() {
                    Some((at, moved)) => {
                        core.paths.space.cleaner.ready_warm =
                            core.paths.space.cleaner.ready_warm.saturating_sub(1);
                        (Some(at), moved)
                    }
                    None => return,
                },
            };
            let alive = self.is_still_there(&moved, core);
            if let Some(victim) = victim.and_then(|at| core.paths.space.cleaner.victims.get_mut(at))
            {
                if alive && !spare && victim.leaves_something() {
                    victim.ready -= 1;
                    continue;
                }
                core.paths.admission.pace.earn_by_move(&mut victim.gain);
                victim.ready -= 1;
                if alive {
                    victim.last[crate::base::limits::cleaned_slot(stream)] = seq;
                }
            }
            if !alive {
                continue;
            }
            if victim.is_none() {
                core.paths.space.cleaner.repairs.note_placed(seq);
            }
            core.paths.space.cleaner.moves_in_flight += 1;
            let entry = Entry::Move {
                volume: moved.key.volume(),
                lba: moved.key.lba(),
                birth: self.birth_of(&moved, core),
                from: moved.from,
            };
            // (Replay compares places, too: none may be another block's before the move has
            // committed.)
            core.store
                .segments
                .get_mut(core.store.pool.codec.segment(moved.from))
                .pins += 1;
            core.paths.append(
                stream,
                &entry,
                Item::Move {
                    key: moved.key,
                    from: moved.from,
                },
                Some(moved.payload),
                None,
                &mut core.store,
            );
            core.paths.note_placed(moved.key, stream, &mut core.store);
        }
    }

    /// True if the map still shows the block to be moved. While a repair waited for room, its
    /// segment may have been rewritten, with the same block at the same address but other content.
    fn is_still_there(&mut self, moved: &Move, core: &mut Core) -> bool {
        let (volume, lba) = (moved.key.volume(), moved.key.lba());
        if moved.birth == Lsn(0) {
            // Its birth will be above that of a trim whose walk has not reached it.
            core.paths.settle_range(volume, lba, &mut core.store);
        }
        core.store
            .volumes
            .shown(volume, lba, moved.from)
            .is_some_and(|shown| moved.checksum.is_none_or(|checksum| shown == checksum))
    }

    /// Prefetches the map entries that the next moves are compared with.
    fn warm_moves(&mut self, core: &mut Core) {
        let ready = std::mem::take(&mut core.paths.space.cleaner.ready);
        core.paths.space.cleaner.ready_warm = ready.len().min(WARM_MOVES);
        core.store.warm_blocks(
            ready
                .iter()
                .take(WARM_MOVES)
                .map(|(_, moved)| (moved.key.volume(), moved.key.lba())),
        );
        core.paths.space.cleaner.ready = ready;
    }

    /// Stream for the next repair, or for the next block of a victim; `None`: it has to wait.
    ///
    /// Repairs always go to the first stream. A block may be repaired right after cleaning has
    /// moved it, so replay may find two moves of it. Replay applies the first stream last, and its
    /// entries in order. Two moves of victims are never replayed together: segments that a kept
    /// checkpoint may replay are no victims.
    fn stream_for_move(
        &mut self,
        is_repair: bool,
        units: u16,
        core: &mut Core,
        out: &mut Outbox,
    ) -> Option<usize> {
        let front = core
            .paths
            .space
            .cleaner
            .ready
            .front()
            .filter(|_| !is_repair)
            .map(|(_, moved)| (moved.key, moved.from, moved.stream));
        let meant = match front {
            None => STREAM_CLEANED,
            Some((_, _, Some(stream))) => stream,
            Some((key, from, None)) => {
                let stream = core.paths.space.stream_of_moved(
                    &core.store.volumes,
                    &core.store.segments,
                    key,
                    core.store.pool.codec.segment(from),
                );
                if let Some((_, moved)) = core.paths.space.cleaner.ready.front_mut() {
                    moved.stream = Some(stream);
                }
                stream
            }
        };
        if meant != STREAM_CLEANED {
            match core
                .paths
                .extra_takes(meant, MOVE_ENTRY_BYTES, units, &mut core.store, out)
            {
                Takes::Yes => return Some(meant),
                Takes::Later => return None,
                Takes::No => core.paths.space.policy.note_overflow(),
            }
        }
        core.paths
            .make_room(
                STREAM_CLEANED,
                MOVE_ENTRY_BYTES,
                units,
                &mut core.store,
                out,
            )
            .then_some(STREAM_CLEANED)
    }
}

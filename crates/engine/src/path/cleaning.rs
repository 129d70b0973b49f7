//! State of cleaning: which segments are being emptied, what is read of them, and what waits to be
//! moved. The steps are in `upkeep/clean.rs`; the data path asks how far they are.

mod repairs;
mod rest;

use crate::base::limits::{CLEANED_STREAMS, FUTILE_VICTIMS};
use crate::base::piece::Piece;
use crate::base::slab::Slab;
use crate::path::Space;
use crate::path::write::pace::Gain;
use crate::store::events::Outbox;
use crate::store::jobs::{Job, Move, RepackWork, Work};
use crate::store::pending::BlockKey;
use crate::store::pool::Memory;
pub(crate) use repairs::{RepairFor, Repairs};
pub(crate) use rest::*;
use std::collections::VecDeque;
use windrow_format::batch::{HeaderFrame, PayloadInfo, decode_header};
use windrow_geometry::{Column, Shape};
use windrow_io::Payload;
use windrow_types::{
    Address, AddressCodec, BLOCK_SIZE, BatchSeq, FULL_BLOCK_UNITS, Lsn, PoolUuid, SegmentId,
};

/// Rows of column 0 that are read speculatively; they usually hold the whole head.
pub(crate) const HEAD_ROWS: u32 = 3;

/// Number of blocks waiting for their address above which no more batches are read.
pub(crate) const READY_BOUND: usize = 4096;

/// A live block of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LiveBlock {
    /// Its bytes in the run.
    pub(crate) piece: Piece,
    pub(crate) key: BlockKey,
    pub(crate) birth: Lsn,
    pub(crate) from: Address,
}

/// Live blocks that are read together, with the dead blocks between them.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) column: Column,
    pub(crate) row: u32,
    pub(crate) rows: u32,
    pub(crate) blocks: Vec<LiveBlock>,
}

/// The two ends of a batch being read.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) row: u32,
    pub(crate) rows: u32,
    /// Parts of the head by column: nearly always one.
    pub(crate) head: Vec<Option<Payload>>,
    pub(crate) tail: Option<Payload>,
    pub(crate) left: u8,
    /// They are wrong: the whole batch is to be verified, or is being verified.
    pub(crate) wrong: bool,
}

impl Ends {
    /// Bytes of the head, once the header shows its length in blocks; `Err(blocks)` if more must be
    /// read.
    pub(crate) fn head_bytes(
        &self,
        pool: &PoolUuid,
        segment: SegmentId,
        shape: &Shape,
    ) -> Option<Result<Vec<u8>, u32>> {
        if self.head.iter().any(Option::is_none) {
            return None;
        }
        let first = self.head.first()?.as_ref()?;
        // A header of a previous incarnation of the segment, or of a previous layout that used its
        // number, verifies as well. Its table may be longer than this batch.
        let is_its_own =
            |frame: &HeaderFrame| frame.header.rows == self.rows && frame.header.shape == *shape;
        let frame = decode_header(first.get(..BLOCK_SIZE)?, pool, segment, self.row)
            .ok()
            .filter(is_its_own)?;
        let wanted = frame.head_blocks as usize * BLOCK_SIZE;
        let mut bytes = Vec::with_capacity(wanted);
        for part in self.head.iter().flatten() {
            bytes.extend_from_slice(&part[..part.len().min(wanted - bytes.len())]);
        }
        Some(if bytes.len() == wanted {
            Ok(bytes)
        } else {
            Err(frame.head_blocks)
        })
    }
}

/// A segment being cleaned.
#[derive(Debug)]
pub(crate) struct Victim {
    pub(crate) segment: SegmentId,
    pub(crate) next_row: u32,
    pub(crate) ends: Vec<Ends>,
    pub(crate) runs: Slab<Run>,
    /// Blocks that are read and wait for the cleaned stream.
    pub(crate) ready: u32,
    /// Blocks that are read and at the workers.
    pub(crate) repacking: u32,
    /// For each stream of moved blocks the number of the batch that takes the victim's last move.
    pub(crate) last: [BatchSeq; CLEANED_STREAMS.len()],
    /// Method by which its live data is found.
    pub(crate) pass: Pass,
    /// True if something in it was unreadable in this pass.
    pub(crate) missed: bool,
    /// True if user blocks in it are unreadable; `lost_index`: pages of the deduplication index.
    pub(crate) lost_users: bool,
    pub(crate) lost_index: bool,
    /// Credit that user writes get for it.
    pub(crate) gain: Gain,
    /// Space that it frees, in parts of a segment.
    pub(crate) gives: u64,
    /// Weight of its live data when it was begun.
    pub(crate) weight: u32,
    /// Segments that its moves may need.
    pub(crate) needs: u32,
}

impl Victim {
    pub(crate) fn reading(&self, filled: u32) -> bool {
        self.next_row < filled || self.has_reads()
    }

    pub(crate) fn has_reads(&self) -> bool {
        !self.ends.is_empty() || !self.runs.is_empty() || self.repacking > 0 || self.is_searching()
    }
}

/// Numbers of the batches of moved blocks over all streams of them, in the order of sealing, from 1
/// since the start.
#[derive(Debug, Default)]
pub(crate) struct MoveNumbers {
    /// Last number given.
    pub(crate) given: BatchSeq,
    /// All batches up to this one are durable.
    pub(crate) durable: BatchSeq,
}

impl MoveNumbers {
    /// The last one given.
    pub(crate) fn given(&self) -> BatchSeq {
        self.given
    }

    /// All moves up to this number are durable.
    pub(crate) fn durable(&self) -> BatchSeq {
        self.durable
    }

    /// A round of flushes ended that covers the moves up to `number`.
    pub(crate) fn note_durable(&mut self, number: BatchSeq) {
        self.durable = self.durable.max(number);
    }

    /// Next number.
    pub(crate) fn give(&mut self) -> BatchSeq {
        self.given = self.given.next();
        self.given
    }
}

/// State of cleaning.
#[derive(Debug, Default)]
pub(crate) struct Cleaner {
    pub(crate) numbers: MoveNumbers,
    pub(crate) victims: Slab<Victim>,
    pub(crate) ready: VecDeque<(u32, Move)>,
    /// Number of blocks at its front whose map entries have been prefetched.
    pub(crate) ready_warm: usize,
    pub(crate) repairs: Repairs,
    pub(crate) moves_in_flight: u32,
    /// Deficit: space taken by victims that left data behind, less what other victims and trims
    /// have given back since. In parts of a segment ([`GAIN_PARTS`]).
    pub(crate) deficit: u64,
    /// Segments of user data when last computed.
    pub(crate) data_segments: u64,
    /// A batch of a victim is being verified: one at a time, to bound the memory.
    pub(crate) verifying: bool,
    /// There is more to do, and possibly nothing in flight that would trigger it: it continues at
    /// once.
    pub(crate) again: bool,
    pub(crate) rest: Rest<Seen>,
    pub(crate) gains: Rest<Users>,
}

impl Cleaner {
    /// Number of victims in progress.
    pub(crate) fn victim_count(&self) -> u32 {
        self.victims.len() as u32
    }

    /// Segments that their moves may need.
    pub(crate) fn segments_needed(&self) -> u32 {
        self.victims.iter().map(|victim| victim.needs).sum()
    }

    /// State in one line, for diagnosis.
    pub(crate) fn describe(&self) -> String {
        let victims: Vec<_> = self
            .victims
            .iter()
            .map(|v| {
                (
                    v.segment.0,
                    v.pass,
                    v.next_row,
                    v.ends.len(),
                    v.runs.len(),
                    v.last,
                )
            })
            .collect();
        format!(
            "victims (segment, pass, row, ends, runs, last batch) {victims:?}, ready {}, repairs {}, moves {}",
            self.ready.len(),
            self.repairs.len(),
            self.moves_in_flight
        )
    }

    /// Blocks that are read and wait for the cleaned stream, or are at the workers.
    pub(crate) fn waiting_blocks(&self) -> usize {
        self.ready.len()
            + self
                .victims
                .iter()
                .map(|victim| victim.repacking as usize)
                .sum::<usize>()
    }

    /// True if reads of victims are in flight, or their data is at the workers.
    pub(crate) fn has_reads(&self) -> bool {
        self.victims.iter().any(Victim::has_reads)
    }

    /// True if more moves will come without a further event.
    pub(crate) fn is_reading(&self) -> bool {
        !self.ready.is_empty() || self.has_reads()
    }

    /// True if nothing is in progress.
    pub(crate) fn is_idle(&self) -> bool {
        self.victims.is_empty()
            && self.ready.is_empty()
            && self.repairs.is_empty()
            && self.moves_in_flight == 0
    }
}

/// Backlog from which victims count as futile.
pub(crate) const FUTILE_DEFICIT: u64 = FUTILE_VICTIMS as u64 * GAIN_PARTS;

/// Method by which the live data of a victim is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pass {
    /// All its live data is read, and nothing is moved.
    Trial,
    Ends,
    Whole,
    /// `page`: next page of the map to search; `None`: done.
    Map {
        page: Option<u32>,
    },
}

/// A block found in the map.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MappedBlock {
    pub(crate) key: BlockKey,
    pub(crate) address: Address,
    pub(crate) units: u16,
    pub(crate) checksum: u32,
}

impl MappedBlock {
    /// Its bytes in the rows that contain it.
    pub(crate) fn piece(&self, codec: &AddressCodec) -> Piece {
        let within = codec.offset_units(self.address) % u64::from(FULL_BLOCK_UNITS);
        Piece::of_units(within as u32, self.units, self.checksum)
    }
}

/// A live block of a batch, with the batch's description of its payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) key: BlockKey,
    pub(crate) birth: Lsn,
    pub(crate) from: Address,
    pub(crate) payload: PayloadInfo,
}

impl Victim {
    /// True if the map is being searched for its live data.
    pub(crate) fn is_searching(&self) -> bool {
        matches!(self.pass, Pass::Map { page: Some(_) })
    }

    /// True if it is only read.
    pub(crate) fn is_tried(&self) -> bool {
        self.pass == Pass::Trial
    }

    /// True if no further pass can find what is unreadable in this one.
    pub(crate) fn is_last_pass(&self) -> bool {
        matches!(self.pass, Pass::Map { .. })
    }

    /// True if it is known to contain lost blocks. Moving the rest frees no space, so it is moved
    /// only if there is plenty.
    pub(crate) fn leaves_something(&self) -> bool {
        self.missed && self.is_last_pass()
    }

    /// Starts the next pass for the live data that is left. False if there is no further pass.
    pub(crate) fn goes_another_way(&mut self) -> bool {
        let next = match self.pass {
            Pass::Trial if self.missed => return false,
            Pass::Trial => Pass::Ends,
            Pass::Ends if !self.missed => Pass::Whole,
            Pass::Ends | Pass::Whole => Pass::Map { page: Some(0) },
            Pass::Map { .. } => return false,
        };
        if matches!(next, Pass::Ends | Pass::Whole) {
            self.next_row = 0;
        }
        (self.pass, self.missed) = (next, false);
        true
    }
}

impl Cleaner {
    /// There is something to be looked at, and cleaning has had its turn.
    pub(crate) fn cleaning_has_more(&mut self) {
        self.again = true;
    }

    /// True if a victim goes on at once, although nothing is under way that would make it.
    pub(crate) fn cleaning_goes_on(&self) -> bool {
        self.again
    }
}

impl Cleaner {
    /// A cleaned batch of `count` moves has committed.
    pub(crate) fn moves_committed(&mut self, count: u32) {
        self.moves_in_flight -= count;
    }
}

impl Space {
    pub(crate) fn repack(&mut self, memory: &Memory, at: u32, moves: Vec<Move>, out: &mut Outbox) {
        let Some(victim) = self.cleaner.victims.get_mut(at) else {
            return;
        };
        victim.repacking += moves.len() as u32;
        let (buffers, codecs) = (memory.buffers.clone(), memory.codecs.clone());
        let work = RepackWork {
            victim: at,
            moves,
            buffers,
            codecs,
            tried_bytes: 0,
            before_bytes: 0,
            after_bytes: 0,
        };
        out.jobs.push(Job(Work::Repack(Box::new(work))));
    }
}

#[cfg(test)]
mod tests;

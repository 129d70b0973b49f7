//! Durable data that is lost, as exactly as it is known.

use serde::Serialize;
use std::fmt;
use windrow_format::batch::Entry;
use windrow_types::{BatchSeq, Lba, Lsn, SegmentId, VolumeId};

/// Limit of the block runs that one loss lists; further ones are only counted.
const RUNS_MAX: usize = 64;

/// A run of blocks of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct LostBlocks {
    /// Volume id.
    pub volume: VolumeId,
    /// First block.
    pub first: Lba,
    /// Number of blocks.
    pub count: u64,
}

/// A durable batch that is unreadable, with everything of its stream after it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Loss {
    /// Stream id.
    pub stream: u8,
    /// Number of the first lost batch.
    pub seq: BatchSeq,
    /// Number of the last batch of the stream that is known to be durable.
    pub durable_seq: BatchSeq,
    /// Segment of the first lost batch ([`SegmentId::NONE`]: not known).
    pub segment: SegmentId,
    /// Its first row.
    pub row: u32,
    /// End of the lost rows, as far as it is known.
    pub end_row: u32,
    /// First and last LSN of durable operations that are missing (user streams only).
    pub lsns: Option<(Lsn, Lsn)>,
    /// Blocks known to be in the lost batch.
    pub blocks: Vec<LostBlocks>,
    /// Number of further runs of blocks, not listed.
    pub more_runs: u64,
    /// Reason that the batch counts as lost.
    pub why: &'static str,
}

impl Loss {
    /// Adds the blocks that entries name.
    pub(super) fn note_blocks(&mut self, entries: &[Entry]) {
        for entry in entries {
            let (volume, first, count) = match entry {
                // Shared content is reported through the blocks that refer to it, and index pages
                // belong to no volume.
                Entry::Data {
                    volume: VolumeId::SHARED | VolumeId::INDEX,
                    ..
                }
                | Entry::Move {
                    volume: VolumeId::SHARED | VolumeId::INDEX,
                    ..
                } => continue,
                Entry::Data { volume, lba, .. }
                | Entry::Fill { volume, lba, .. }
                | Entry::Reference { volume, lba, .. }
                | Entry::Move { volume, lba, .. } => (*volume, *lba, 1),
                Entry::Range {
                    volume, lba, count, ..
                } => (*volume, *lba, *count),
                Entry::Volume { .. } | Entry::Covered { .. } | Entry::Page { .. } => continue,
            };
            let follows = |run: &&mut LostBlocks| {
                run.volume == volume && run.first.0.saturating_add(run.count) == first.0
            };
            if let Some(run) = self.blocks.last_mut().filter(follows) {
                run.count = run.count.saturating_add(count);
            } else if self.blocks.len() < RUNS_MAX {
                self.blocks.push(LostBlocks {
                    volume,
                    first,
                    count,
                });
            } else {
                self.more_runs += 1;
            }
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream {} batch {}", self.stream, self.seq)?;
        if self.durable_seq > self.seq {
            write!(f, " (and those up to {})", self.durable_seq)?;
        }
        if self.segment != SegmentId::NONE {
            write!(
                f,
                " in segment {} rows {}..{}",
                self.segment, self.row, self.end_row
            )?;
        }
        write!(f, ": {}", self.why)?;
        if let Some((first, last)) = self.lsns {
            write!(f, "; lost LSNs: {first} to {last}")?;
        }
        for (i, run) in self.blocks.iter().enumerate() {
            let lead = if i == 0 { "; known to be in it:" } else { "," };
            write!(
                f,
                "{lead} volume {} blocks {}..{}",
                run.volume,
                run.first,
                run.first.0.saturating_add(run.count)
            )?;
        }
        if self.more_runs > 0 {
            write!(f, " and {} more runs", self.more_runs)?;
        }
        Ok(())
    }
}

/// All losses of a pool that was refused because of them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Losses(pub Vec<Loss>);

impl fmt::Display for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, loss) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("; ")?;
            }
            loss.fmt(f)?;
        }
        Ok(())
    }
}

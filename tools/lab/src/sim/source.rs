//! Input of a simulation: a pattern of overwrites, a published load, or a recorded trace, as
//! operations that can be iterated repeatedly.

use crate::commands::trace::Noticed;
use crate::commands::trace::load::Loaded;
use crate::drawing::{Along, Grid, sizes};
use windrow_charts::Picture;
use windrow_trace::Summary;
use windrow_wa_sim::wa::operation::Operation;
use windrow_wa_sim::wa::requests::{Load, client_published};
use windrow_wa_sim::wa::workload::{Pattern, Workload, fill};

const BLOCK: u64 = 4096;

/// A workload by name.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Named {
    /// Single blocks with a distribution.
    Pattern(Pattern),
    /// Requests as published.
    Load(Load),
}

impl Named {
    /// Looks up a workload by name; the error lists the valid ones.
    pub fn parse(text: &str) -> Result<Self, String> {
        let pattern = Pattern::from_name(text).map(Self::Pattern);
        let found = pattern.or_else(|| Load::from_name(text).map(Self::Load));
        let loads = || Load::ALL.map(Load::name).join(", ");
        found.ok_or_else(|| {
            let patterns = "uniform, zipf:THETA, hot:WRITES/BLOCKS, sequential:STREAMS, mixed, moving, phases, journal";
            format!("'{text}' is no workload; there are {patterns}, {}", loads())
        })
    }

    /// Its name.
    pub fn name(self) -> String {
        match self {
            Self::Pattern(pattern) => pattern.name(),
            Self::Load(load) => load.name().to_owned(),
        }
    }
}

/// Repeatable operations.
pub enum Source {
    /// A trace, with its number of repetitions.
    Trace(Box<Loaded>, u32),
    /// A pattern after a fill, with a number of passes over the blocks.
    Pattern {
        /// Pattern with static data and trims.
        workload: Workload,
        /// Number of addressable blocks.
        blocks: u32,
        /// Overwrites in sizes.
        passes: u32,
        /// Seed.
        seed: u64,
    },
    /// A published load after a fill: whole if it is finite, else a number of passes over the
    /// blocks.
    Load {
        /// The load.
        load: Load,
        /// Number of addressable blocks.
        blocks: u32,
        /// Overwrites in sizes.
        passes: u32,
        /// Seed.
        seed: u64,
        /// Trims are honoured.
        trims: bool,
    },
}

/// Operations up to this number of blocks written.
fn up_to(
    blocks: u64,
    operations: impl Iterator<Item = Operation>,
) -> impl Iterator<Item = Operation> {
    let mut left = blocks;
    operations.take_while(move |operation| {
        let going = left > 0;
        if let Operation::Write { count, .. } = operation {
            left = left.saturating_sub(u64::from(*count));
        }
        going
    })
}

impl Source {
    /// Findings of a trace's reader.
    pub fn noticed(&self) -> Option<&Noticed> {
        if let Self::Trace(trace, _) = self {
            Some(&trace.noticed)
        } else {
            None
        }
    }

    /// All operations.
    pub fn operations(&self) -> Box<dyn Iterator<Item = Operation> + '_> {
        match self {
            Self::Trace(trace, repeat) => Box::new(trace.recorded.rounds(*repeat)),
            Self::Pattern {
                workload,
                blocks,
                passes,
                seed,
            } => {
                let overwrites = u64::from(*blocks) * u64::from(*passes);
                Box::new(fill(*blocks).chain(up_to(overwrites, workload.stream(*blocks, *seed))))
            }
            Self::Load {
                load,
                blocks,
                passes,
                seed,
                trims,
            } => {
                let bytes = u64::from(*blocks) * BLOCK;
                let most = if load.writes(bytes).is_some() {
                    u64::MAX
                } else {
                    u64::from(*blocks) * u64::from(*passes)
                };
                let trims = *trims;
                let operations = load
                    .operations(bytes, *seed)
                    .filter(move |operation| trims || matches!(operation, Operation::Write { .. }));
                Box::new(fill(*blocks).chain(up_to(most, operations)))
            }
        }
    }

    /// Number of addressable blocks.
    pub fn blocks(&self) -> u32 {
        match self {
            Self::Trace(trace, _) => trace.recorded.blocks,
            Self::Pattern { blocks, .. } | Self::Load { blocks, .. } => *blocks,
        }
    }

    /// Total number of blocks written; for a finite load as published.
    pub fn written(&self) -> u64 {
        match self {
            Self::Trace(trace, repeat) => trace.recorded.written * u64::from(*repeat),
            Self::Load {
                load: Load::Client,
                blocks,
                ..
            } => {
                let bytes = u64::from(*blocks) * BLOCK;
                u64::from(*blocks)
                    + client_published::scaled(client_published::WRITTEN_BYTES, bytes) / BLOCK
            }
            Self::Pattern { blocks, passes, .. } | Self::Load { blocks, passes, .. } => {
                u64::from(*blocks) * (1 + u64::from(*passes))
            }
        }
    }

    /// Writes by address and time after the fill; for a load also request lengths.
    pub fn pictures(&self, name: &str) -> Vec<(&'static str, Picture)> {
        let mut grid = Grid::new(
            0,
            u64::from(self.blocks()) * BLOCK,
            (self.written() - self.filled()) * BLOCK,
        );
        let (mut at, mut filled) = (0, 0);
        for operation in self.operations() {
            let Operation::Write { block, count } = operation else {
                continue;
            };
            if filled < self.filled() {
                filled += u64::from(count);
                continue;
            }
            grid.add(at, u64::from(block) * BLOCK, u64::from(count) * BLOCK);
            at += u64::from(count) * BLOCK;
        }
        let mut pictures = vec![("heat", grid.picture("writes", name, Along::Written))];
        if let Self::Load {
            load, blocks, seed, ..
        } = self
        {
            // Enough for the shares; larger loads have the same ones.
            const LOOKED_AT: usize = 1_000_000;
            let mut summary = Summary::default();
            load.requests(u64::from(*blocks) * BLOCK, *seed)
                .take(LOOKED_AT)
                .for_each(|request| summary.add(&request));
            pictures.extend(sizes(&summary.figures(), name));
        }
        pictures
    }

    /// Number of blocks that only fill the space before the load begins.
    pub fn filled(&self) -> u64 {
        if matches!(self, Self::Trace(..)) {
            0
        } else {
            u64::from(self.blocks())
        }
    }
}

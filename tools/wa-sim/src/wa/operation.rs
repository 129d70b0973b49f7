//! What a simulated pool is asked to do.

/// One operation of a workload or a trace, in blocks of 4 KiB. Several volumes are laid side by
/// side in one range of blocks by whoever makes the operations.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// Blocks `block .. block + count` are written, one after the other.
    Write {
        /// First block.
        block: u32,
        /// Number of blocks.
        count: u32,
    },
    /// Blocks `block .. block + count` are trimmed (or zeroed, which costs no space either).
    Trim {
        /// First block.
        block: u32,
        /// Number of blocks.
        count: u32,
    },
    /// Nobody asks for anything for so long; matters to cleaning in idle time only.
    Pause {
        /// Blocks that members could have taken in that time.
        blocks: u32,
    },
    /// The next request of a trace comes so much later than the one that came before; matters to
    /// cleaning in idle time only.
    Arrival {
        /// Blocks that members take in that time; `u32::MAX` also stands for more (16 TiB: no
        /// simulated volume has so much to clean).
        after: u32,
        /// Blocks that were read meanwhile, which took members' time.
        reads: u32,
    },
    /// What was written before is to be durable. Costs the simulated log nothing.
    Flush,
    /// The write that follows is to be durable when it is answered. Costs the simulated log
    /// nothing.
    Durable,
}

impl Operation {
    /// One block written.
    pub const fn write(block: u32) -> Self {
        Self::Write { block, count: 1 }
    }
}

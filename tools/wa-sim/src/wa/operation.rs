//! Operations of a simulated pool.

/// One operation of a workload or a trace, in blocks of 4 KiB. The source of the operations maps
/// several volumes to one range of blocks.
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
    /// No requests for a time; only matters to cleaning in idle time.
    Pause {
        /// Number of blocks that members could have processed in that time.
        blocks: u32,
    },
    /// Time from the previous request of a trace to the next; only matters to cleaning in idle
    /// time.
    Arrival {
        /// Number of blocks that members process in that time; `u32::MAX` also represents more (16
        /// TiB: no simulated volume has that much to clean).
        after: u32,
        /// Blocks read meanwhile, which took members' time.
        reads: u32,
    },
    /// Earlier writes must be durable. Costs the simulated log nothing.
    Flush,
    /// The following write must be durable when it is answered. Costs the simulated log nothing.
    Durable,
}

impl Operation {
    /// A write of one block.
    pub const fn write(block: u32) -> Self {
        Self::Write { block, count: 1 }
    }
}

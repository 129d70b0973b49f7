//! Workloads of requests: published loads as seen by block devices, generated from a seed.
//!
//! | load | published | assumed |
//! |---|---|---|
//! | [`Load::Enterprise`] | JESD219: sizes, 40 % reads, 50/30/20 % of the requests to 5/15/80 % of the space, 4 KiB boundaries | uniform within each part |
//! | [`Load::Client`] | 2017 source, JEDEC client test: totals, means, static share, measured write amplification | see `client` |
//! | [`Load::Journalling`] | 2017 source: 32 to 80 KiB of journal and metadata with each write | addresses, sizes of the data; see `journalling` |
//! | [`Load::Transaction`], [`Load::Data`], [`Load::Talk`] | journal talk: sizes of reads and writes, share of reads, that both ran together | uniform addresses |
//! | [`Load::Jetstress`] | FTL talk: writes of up to 32 KiB are 75 % of the writes and 12 % of their bytes, heavy and quiet times, always reads | addresses; see `jetstress` |
//!
//! All scale with the size of the space, and are endless except the client test, which ends when
//! the trace would. Times are nanoseconds from the first request, with exponential gaps of a mean
//! specific to the load.

mod client;
mod draw;
mod enterprise;
mod jetstress;
mod journalling;
mod talk;

pub use client::published as client_published;

use super::operation::Operation;
use windrow_trace::{Kind, Request};

/// Bytes of a block.
const BLOCK: u64 = 4096;

/// A published load.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Load {
    /// JESD219 enterprise.
    Enterprise,
    /// Like the client trace of JESD219A.
    Client,
    /// A journalling file system.
    Journalling,
    /// The journal talk's "Transaction WL".
    Transaction,
    /// Its "Data WL".
    Data,
    /// Both at once, as measured.
    Talk,
    /// Like Exchange's Jetstress.
    Jetstress,
}

impl Load {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Enterprise,
        Self::Client,
        Self::Journalling,
        Self::Transaction,
        Self::Data,
        Self::Talk,
        Self::Jetstress,
    ];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Enterprise => "jesd219-enterprise",
            Self::Client => "jesd219-client",
            Self::Journalling => "journalling-fs",
            Self::Transaction => "transaction",
            Self::Data => "data",
            Self::Talk => "transaction+data",
            Self::Jetstress => "jetstress",
        }
    }

    /// Looks up a load by name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|load| load.name() == name)
    }

    /// Smallest space on which its parts fit, in bytes.
    pub const fn bytes_least(self) -> u64 {
        64 << 20
    }

    /// Its requests on a space of `bytes` bytes, in whole blocks. See [`Load::bytes_least`].
    pub fn requests(self, bytes: u64, seed: u64) -> Box<dyn Iterator<Item = Request>> {
        let blocks = bytes.max(self.bytes_least()) / BLOCK;
        match self {
            Self::Enterprise => Box::new(enterprise::Enterprise::new(blocks, seed)),
            Self::Client => Box::new(client::Client::new(blocks, seed)),
            Self::Journalling => Box::new(journalling::Journalling::new(blocks, seed)),
            Self::Transaction => {
                Box::new(talk::Talk::new(&[crate::mix::TRANSACTION], blocks, seed))
            }
            Self::Data => Box::new(talk::Talk::new(&[crate::mix::DATA], blocks, seed)),
            Self::Talk => Box::new(talk::Talk::new(
                &[crate::mix::TRANSACTION, crate::mix::DATA],
                blocks,
                seed,
            )),
            Self::Jetstress => Box::new(jetstress::Jetstress::new(blocks, seed)),
        }
    }

    /// Number of writes of the whole load on this space; `None` if it is endless.
    pub fn writes(self, bytes: u64) -> Option<u64> {
        (self == Self::Client).then(|| client::published::scaled(client::published::WRITES, bytes))
    }

    /// Operations for a simulated pool: blocks that writes touch, blocks that trims cover. Reads
    /// and flushes cost nothing.
    pub fn operations(self, bytes: u64, seed: u64) -> impl Iterator<Item = Operation> {
        self.requests(bytes, seed)
            .filter_map(|request| operation(&request))
    }
}

/// A request as an operation on blocks; `None` if it changes none.
pub fn operation(request: &Request) -> Option<Operation> {
    let (from, to) = match request.kind {
        Kind::Write => (request.offset / BLOCK, request.end().div_ceil(BLOCK)),
        Kind::Trim => (request.offset.div_ceil(BLOCK), request.end() / BLOCK),
        Kind::Read | Kind::Flush => return None,
    };
    let (block, count) = (
        u32::try_from(from).ok()?,
        u32::try_from(to.checked_sub(from)?)
            .ok()
            .filter(|count| *count > 0)?,
    );
    Some(if request.kind == Kind::Write {
        Operation::Write { block, count }
    } else {
        Operation::Trim { block, count }
    })
}

#[cfg(test)]
mod tests;

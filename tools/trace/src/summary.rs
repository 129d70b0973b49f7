//! Summary figures of a trace.
//!
//! The working set is counted exactly in blocks of 4 KiB, as bitmaps of 16 MiB each that exist only
//! where blocks were accessed. Their number is bounded; above the bound the figure is marked as a
//! lower bound.

use crate::blocks::{BLOCK, Blocks};
use crate::request::{KINDS, Kind, Request};
use serde::Serialize;
use std::collections::BTreeMap;

/// Maximum number of bitmaps: 512 bytes each, half a gigabyte in total, for at least 16 TiB of
/// dense accesses.
const MAPS_MOST: usize = 1 << 20;
/// Number of size classes: class `n` has lengths up to `512 << n`, the last one all longer ones.
const CLASSES: usize = 16;

/// Figures of one kind of request.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct OfKind {
    /// Requests.
    pub requests: u64,
    /// Bytes.
    pub bytes: u64,
    /// Requests that begin where the preceding one of this kind ended on the same device.
    pub sequential: u64,
    /// Requests whose ends are not both multiples of 4 KiB.
    pub unaligned: u64,
    /// By size: up to 512 bytes, 1 KiB, 2 KiB ... 8 MiB, more.
    pub sizes: [u64; CLASSES],
    /// Bytes of the requests of each size.
    pub size_bytes: [u64; CLASSES],
    /// Longest request.
    pub longest: u64,
}

/// Accumulates requests.
#[derive(Clone, Debug)]
pub struct Summary {
    kinds: [OfKind; 4],
    ends: BTreeMap<(u32, Kind), u64>,
    touched: Blocks,
    written: Blocks,
    written_blocks: u64,
    fua: u64,
    last_ns: u64,
    backwards: u64,
    before_ns: u64,
    address_end: u64,
}

impl Default for Summary {
    fn default() -> Self {
        Self::with_maps(MAPS_MOST)
    }
}

impl Summary {
    /// With another limit of bitmaps.
    fn with_maps(most: usize) -> Self {
        Self {
            kinds: Default::default(),
            ends: BTreeMap::new(),
            touched: Blocks::new(most / 2),
            written: Blocks::new(most / 2),
            written_blocks: 0,
            fua: 0,
            last_ns: 0,
            backwards: 0,
            before_ns: 0,
            address_end: 0,
        }
    }

    /// Adds a request.
    pub fn add(&mut self, request: &Request) {
        let index = KINDS
            .iter()
            .position(|kind| *kind == request.kind)
            .unwrap_or(0);
        let of = &mut self.kinds[index];
        of.requests += 1;
        of.bytes = of.bytes.saturating_add(request.length);
        self.backwards += u64::from(request.time_ns < self.before_ns);
        self.before_ns = request.time_ns;
        self.last_ns = self.last_ns.max(request.time_ns);
        if request.kind == Kind::Flush {
            return;
        }
        of.longest = of.longest.max(request.length);
        of.unaligned += u64::from(
            !request.offset.is_multiple_of(BLOCK) || !request.length.is_multiple_of(BLOCK),
        );
        let class = (request.length.max(1) - 1)
            .checked_ilog2()
            .map_or(0, |log| (log + 1).saturating_sub(9) as usize)
            .min(CLASSES - 1);
        of.sizes[class] += 1;
        of.size_bytes[class] = of.size_bytes[class].saturating_add(request.length);
        let end = self
            .ends
            .insert((request.device, request.kind), request.end());
        of.sequential += u64::from(end == Some(request.offset));
        self.fua += u64::from(request.fua);
        if matches!(request.kind, Kind::Read | Kind::Write) {
            self.address_end = self.address_end.max(request.end());
            self.touched
                .add(request.device, request.offset, request.length);
        }
        if request.kind == Kind::Write && request.length > 0 {
            self.written
                .add(request.device, request.offset, request.length);
            self.written_blocks += (request.end() - 1) / BLOCK - request.offset / BLOCK + 1;
        }
    }

    /// Returns the figures.
    pub fn figures(&self) -> Figures {
        let seconds = self.last_ns as f64 / 1e9;
        let requests: u64 = self.kinds.iter().map(|kind| kind.requests).sum();
        let moved = self.kinds[0].bytes.saturating_add(self.kinds[1].bytes);
        let [read, write, trim, flush] = self.kinds.clone();
        Figures {
            requests,
            duration_ns: self.last_ns,
            requests_per_second: (self.last_ns > 0).then(|| requests as f64 / seconds),
            bytes_per_second: (self.last_ns > 0).then(|| moved as f64 / seconds),
            read,
            write,
            trim,
            flush,
            fua_writes: self.fua,
            working_set_bytes: self.touched.count() * BLOCK,
            written_set_bytes: self.written.count() * BLOCK,
            sets_are_at_least: self.touched.is_at_least() || self.written.is_at_least(),
            written_blocks: self.written_blocks,
            overwrites: (self.written.count() > 0)
                .then(|| self.written_blocks as f64 / self.written.count() as f64),
            address_end: self.address_end,
            backwards: self.backwards,
        }
    }
}

/// The figures of a trace.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Figures {
    /// Requests.
    pub requests: u64,
    /// Time from the first request to the last.
    pub duration_ns: u64,
    /// Requests per second; none if the trace has no times.
    pub requests_per_second: Option<f64>,
    /// Bytes read and written per second.
    pub bytes_per_second: Option<f64>,
    /// Reads.
    pub read: OfKind,
    /// Writes.
    pub write: OfKind,
    /// Trims.
    pub trim: OfKind,
    /// Flushes.
    pub flush: OfKind,
    /// Writes that must be durable when they are answered.
    pub fua_writes: u64,
    /// Bytes of all blocks that are read or written.
    pub working_set_bytes: u64,
    /// Bytes of all blocks that are written.
    pub written_set_bytes: u64,
    /// True if both are lower bounds, because there are too many to count.
    pub sets_are_at_least: bool,
    /// Blocks written, in part or completely, repeated writes included.
    pub written_blocks: u64,
    /// Mean number of writes of a written block.
    pub overwrites: Option<f64>,
    /// End of the last byte that is read or written, on any device.
    pub address_end: u64,
    /// Requests with an earlier time than the preceding one.
    pub backwards: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(device: u32, offset: u64, length: u64, time_ns: u64) -> Request {
        Request::new(Kind::Write, device, offset, length, time_ns)
    }

    #[test]
    fn figures_of_a_few_requests() {
        let mut summary = Summary::default();
        summary.add(&write(0, 0, 4096, 0));
        summary.add(&write(0, 4096, 8192, 500_000_000));
        // A byte in the middle of a block: the block counts whole, and the end is not aligned.
        summary.add(&write(0, 5000, 1, 400_000_000));
        summary.add(&write(1, 12_288, 4096, 1_000_000_000));
        summary.add(&Request::new(Kind::Read, 0, 1 << 30, 512, 2_000_000_000));
        summary.add(&Request::new(Kind::Trim, 0, 0, u64::MAX, 2_000_000_000));
        summary.add(&Request::new(Kind::Flush, 0, 0, 0, 2_000_000_000));
        let figures = summary.figures();
        assert_eq!(
            (
                figures.requests,
                figures.write.requests,
                figures.write.bytes,
                figures.write.sequential
            ),
            (7, 4, 16_385, 1)
        );
        assert_eq!(
            (
                figures.write.unaligned,
                figures.backwards,
                figures.requests_per_second
            ),
            (1, 1, Some(3.5))
        );
        assert_eq!(
            (
                figures.written_set_bytes,
                figures.working_set_bytes,
                figures.written_blocks
            ),
            (4 * 4096, 5 * 4096, 5)
        );
        assert_eq!(
            (figures.trim.bytes, figures.address_end),
            (u64::MAX, (1 << 30) + 512)
        );
        assert_eq!(
            (
                figures.write.size_bytes[0],
                figures.write.size_bytes.iter().sum::<u64>()
            ),
            (1, figures.write.bytes)
        );
        let sizes = |of: &OfKind| {
            of.sizes
                .iter()
                .enumerate()
                .filter(|(_, count)| **count > 0)
                .map(|(class, count)| (512u64 << class, *count))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (sizes(&figures.write), sizes(&figures.read)),
            (vec![(512, 1), (4096, 2), (8192, 1)], vec![(512, 1)])
        );
    }

    #[test]
    fn more_than_can_be_counted_is_a_lower_bound() {
        let mut summary = Summary::with_maps(4);
        for at in 0..5 {
            summary.add(&write(0, at << 40, 4096, 0));
        }
        let figures = summary.figures();
        assert_eq!(
            (
                figures.written_set_bytes,
                figures.sets_are_at_least,
                figures.write.requests
            ),
            (2 * 4096, true, 5)
        );
    }

    #[test]
    fn a_range_over_several_bitmaps_counts_each_block_once() {
        let mut summary = Summary::default();
        summary.add(&write(0, (16 << 20) - 4096, 48 << 20, 0));
        summary.add(&write(0, 16 << 20, 16 << 20, 0));
        assert_eq!(summary.figures().written_set_bytes, 48 << 20);
        // The very end of the address space.
        summary.add(&write(0, u64::MAX - 4095, 4095, 0));
        assert_eq!(summary.figures().written_set_bytes, (48 << 20) + 4096);
    }
}

//! Sets of blocks of 4 KiB, and a dense numbering of the blocks that a trace writes.
//!
//! A set consists of bitmaps of 16 MiB each that exist only where blocks were added, on any device.
//! Their number is bounded.

use crate::request::{Kind, Request};
use std::collections::BTreeMap;

/// Bytes of a block.
pub const BLOCK: u64 = 4096;
/// Words of 64 blocks in a bitmap.
const MAP_WORDS: usize = 64;
/// Blocks in a bitmap.
const MAP_BLOCKS: u64 = 64 * MAP_WORDS as u64;

type Map = Box<[u64; MAP_WORDS]>;

/// A set of blocks.
#[derive(Clone, Debug)]
pub struct Blocks {
    maps: BTreeMap<(u32, u64), Map>,
    most: usize,
    count: u64,
    at_least: bool,
}

impl Blocks {
    /// An empty set with at most `most` bitmaps.
    pub fn new(most: usize) -> Self {
        Self {
            maps: BTreeMap::new(),
            most,
            count: 0,
            at_least: false,
        }
    }

    /// Number of blocks.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// True if some were omitted, because there were too many bitmaps.
    pub fn is_at_least(&self) -> bool {
        self.at_least
    }

    /// Adds the blocks that a range of bytes touches.
    pub fn add(&mut self, device: u32, offset: u64, length: u64) {
        if length == 0 {
            return;
        }
        let (first, last) = (offset / BLOCK, (offset + (length - 1)) / BLOCK);
        let mut block = first;
        while block <= last {
            let map = block / MAP_BLOCKS;
            let until = ((map + 1) * MAP_BLOCKS).min(last + 1);
            if self.maps.len() >= self.most && !self.maps.contains_key(&(device, map)) {
                self.at_least = true;
            } else {
                let words = self
                    .maps
                    .entry((device, map))
                    .or_insert_with(|| Box::new([0; MAP_WORDS]));
                for bit in block % MAP_BLOCKS..=(until - 1) % MAP_BLOCKS {
                    let (word, mask) = ((bit / 64) as usize, 1u64 << (bit % 64));
                    self.count += u64::from(words[word] & mask == 0);
                    words[word] |= mask;
                }
            }
            block = until;
        }
    }
}

/// The blocks that a trace writes, numbered from 0 in the order of devices and addresses, without
/// gaps.
///
/// Traces access a few blocks of large disks; a model with an entry for each block of its volume
/// needs them dense. Neighbouring blocks that are both written stay neighbours, so a request is one
/// range. Used in two passes over the trace: all requests are added, then looked up.
#[derive(Clone, Debug)]
pub struct Dense {
    blocks: Blocks,
    /// Number of blocks before each bitmap; computed by the first look-up.
    before: BTreeMap<(u32, u64), u64>,
}

/// Maximum number of bitmaps: 256 MiB, for at least 8 TiB of dense writes.
const DENSE_MAPS_MOST: usize = 1 << 19;

impl Default for Dense {
    fn default() -> Self {
        Self {
            blocks: Blocks::new(DENSE_MAPS_MOST),
            before: BTreeMap::new(),
        }
    }
}

impl Dense {
    /// Adds a request of the first pass: only writes count.
    pub fn add(&mut self, request: &Request) {
        if request.kind == Kind::Write {
            self.blocks
                .add(request.device, request.offset, request.length);
            self.before.clear();
        }
    }

    /// Number of blocks.
    pub fn count(&self) -> u64 {
        self.blocks.count()
    }

    /// True if some blocks have no number, because the trace writes to too many areas.
    pub fn is_partial(&self) -> bool {
        self.blocks.is_at_least()
    }

    /// First block and number of blocks of a request of the second pass: the blocks that a read or
    /// write touches, and those that a trim covers completely, as far as they are ever written.
    /// `None` if there are none.
    pub fn range(&mut self, request: &Request) -> Option<(u64, u64)> {
        let (from, to) = match request.kind {
            Kind::Flush => return None,
            Kind::Read | Kind::Write => (request.offset / BLOCK, request.end().div_ceil(BLOCK)),
            Kind::Trim => (request.offset.div_ceil(BLOCK), request.end() / BLOCK),
        };
        if request.length == 0 || to <= from {
            return None;
        }
        let (first, end) = (
            self.rank(request.device, from),
            self.rank(request.device, to),
        );
        (end > first).then(|| (first, end - first))
    }

    /// Number of blocks of the set before a block.
    fn rank(&mut self, device: u32, block: u64) -> u64 {
        if self.before.is_empty() {
            let mut count = 0;
            for (key, words) in &self.blocks.maps {
                self.before.insert(*key, count);
                count += words
                    .iter()
                    .map(|word| u64::from(word.count_ones()))
                    .sum::<u64>();
            }
        }
        let map = block / MAP_BLOCKS;
        // The bitmap of the block, or the last one before it.
        let Some((key, words)) = self.blocks.maps.range(..=(device, map)).next_back() else {
            return 0;
        };
        let within = if *key == (device, map) {
            (block % MAP_BLOCKS) as usize
        } else {
            MAP_BLOCKS as usize
        };
        let (whole, rest) = (within / 64, within % 64);
        let mut count = self.before.get(key).copied().unwrap_or(0)
            + words[..whole]
                .iter()
                .map(|word| u64::from(word.count_ones()))
                .sum::<u64>();
        if rest > 0 {
            count += u64::from((words[whole] & ((1 << rest) - 1)).count_ones());
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn written_blocks_lie_side_by_side() {
        let write = |device, block: u64, count: u64| {
            Request::new(Kind::Write, device, block * BLOCK, count * BLOCK, 0)
        };
        let trim = |offset, length| Request::new(Kind::Trim, 0, offset, length, 0);
        let mut dense = Dense::default();
        for request in [
            write(0, 10, 2),
            write(0, 1 << 30, 4),
            write(1, 0, 1),
            write(0, 11, 3),
        ] {
            dense.add(&request);
        }
        assert_eq!((dense.count(), dense.is_partial()), (9, false));
        assert_eq!(
            (
                dense.range(&write(0, 10, 2)),
                dense.range(&write(0, (1 << 30) + 1, 3)),
                dense.range(&write(1, 0, 1))
            ),
            (Some((0, 2)), Some((5, 3)), Some((8, 1)))
        );
        // A write of a part of a block touches it; a trim of a part has no effect.
        assert_eq!(
            dense.range(&Request::new(Kind::Write, 0, 10 * BLOCK + 1, 1, 0)),
            Some((0, 1))
        );
        assert_eq!(
            (
                dense.range(&trim(10 * BLOCK + 1, 2 * BLOCK)),
                dense.range(&trim(10 * BLOCK, BLOCK - 1)),
                dense.range(&trim(0, u64::MAX))
            ),
            (Some((1, 1)), None, Some((0, 8)))
        );
        // Blocks that are never written have no number.
        assert_eq!(
            (
                dense.range(&Request::new(Kind::Read, 0, 0, BLOCK, 0)),
                dense.range(&Request::new(Kind::Read, 2, 0, BLOCK, 0))
            ),
            (None, None)
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

        /// Compares with a plain ordered set of blocks.
        #[test]
        fn numbers_are_ranks(writes in prop::collection::vec((0u32..3, 0u64..20_000, 1u64..300), 1..40), asked in prop::collection::vec((0u32..3, 0u64..20_000, 1u64..9000, any::<bool>()), 1..20)) {
            let mut dense = Dense::default();
            let mut plain = BTreeSet::new();
            for (device, block, count) in writes {
                dense.add(&Request::new(Kind::Write, device, block * BLOCK, count * BLOCK, 0));
                plain.extend((block..block + count).map(|block| (device, block)));
            }
            prop_assert_eq!(dense.count(), plain.len() as u64);
            for (device, block, count, trim) in asked {
                let kind = if trim { Kind::Trim } else { Kind::Read };
                let first = plain.range(..(device, block)).count() as u64;
                let inside = plain.range((device, block)..(device, block + count)).count() as u64;
                let expected = (inside > 0).then_some((first, inside));
                prop_assert_eq!(dense.range(&Request::new(kind, device, block * BLOCK, count * BLOCK, 0)), expected);
            }
        }
    }
}

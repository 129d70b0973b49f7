//! One member in memory, with a volatile write cache.
//!
//! Two images: `current`, which reads see, and `durable`, which certainly survives a power cut. A
//! write changes `current` and is recorded in `cached`; a flush copies every recorded write that
//! had completed before the flush began into `durable`. A power cut chooses, for each recorded
//! write, whether it is lost, kept or torn at sectors. It applies the kept ones to `durable` in a
//! random order, and makes `current` equal to `durable` again. A discard destroys the content at
//! once, in both images and in the cache: that is the worst case that a device may show.
//!
//! A member *without cache* never loses power again: every write is durable at once, and there is
//! only `current`.

use crate::content::SECTOR;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use windrow_random::{Rng, mix};

const PAGE: usize = 1 << 14;
/// Number of recent writes whose positions a member records.
const RECENT: usize = 4;

/// Part of an image. Clones of an image share it until one of them writes.
#[derive(Clone)]
struct Page {
    bytes: Box<[u8]>,
    /// Hash of the bytes, if it was requested since they changed.
    hash: OnceLock<u64>,
}

/// A sparse image: pages that were never written read as zero.
#[derive(Clone, Default)]
pub struct Image {
    pages: Vec<Option<Arc<Page>>>,
}

impl Image {
    /// Fills `out` from `offset`.
    pub fn read(&self, offset: u64, out: &mut [u8]) {
        self.pieces(offset, out.len(), |page, at, range| {
            match self.pages.get(page) {
                Some(Some(page)) => {
                    out[range.clone()].copy_from_slice(&page.bytes[at..at + range.len()])
                }
                _ => out[range].fill(0),
            }
        });
    }

    /// Writes `bytes` at `offset`.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut pages = std::mem::take(&mut self.pages);
        self.pieces(offset, bytes.len(), |page, at, range| {
            if pages.len() <= page {
                pages.resize_with(page + 1, || None);
            }
            let page = pages[page].get_or_insert_with(|| {
                Arc::new(Page {
                    bytes: vec![0; PAGE].into_boxed_slice(),
                    hash: OnceLock::new(),
                })
            });
            let page = Arc::make_mut(page);
            page.bytes[at..at + range.len()].copy_from_slice(&bytes[range]);
            page.hash = OnceLock::new();
        });
        self.pages = pages;
    }

    /// Hash of the content.
    pub fn hash(&self) -> u64 {
        let pages = self
            .pages
            .iter()
            .enumerate()
            .filter_map(|(number, page)| Some((number as u64, page.as_ref()?)));
        pages.fold(0, |hash, (number, page)| {
            let own = *page.hash.get_or_init(|| {
                page.bytes.chunks_exact(8).fold(0, |hash: u64, word| {
                    let word = u64::from_le_bytes(std::array::from_fn(|i| word[i]));
                    (hash ^ word)
                        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                        .rotate_left(29)
                })
            });
            mix(hash ^ mix(own ^ number))
        })
    }

    /// Copies `length` bytes at `offset` from another image.
    fn copy_from(&mut self, other: &Self, offset: u64, length: usize) {
        let mut bytes = vec![0; length];
        other.read(offset, &mut bytes);
        self.write(offset, &bytes);
    }

    fn pieces(
        &self,
        offset: u64,
        length: usize,
        mut each: impl FnMut(usize, usize, std::ops::Range<usize>),
    ) {
        let mut done = 0;
        while done < length {
            let position = offset as usize + done;
            let take = (PAGE - position % PAGE).min(length - done);
            each(position / PAGE, position % PAGE, done..done + take);
            done += take;
        }
    }
}

/// A write in the cache.
#[derive(Clone)]
struct CachedWrite {
    number: u64,
    offset: u64,
    bytes: Vec<u8>,
}

/// Device counters of a member, to compare with the engine's.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Received {
    /// Bytes of completed writes.
    pub written_bytes: u64,
    /// Bytes of completed reads.
    pub read_bytes: u64,
    /// Completed flushes.
    pub flushes: u64,
    /// Bytes of completed discards.
    pub discarded_bytes: u64,
    /// Operations that failed.
    pub errors: u64,
}

/// Writes that a power cut spares.
#[derive(Clone, Copy)]
enum Mercy {
    None,
    All,
    PerMille(u64),
}

/// Remainder of one unflushed write after a power cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Survival {
    /// Nothing.
    Lost,
    /// All of it.
    Whole,
    /// Its first sectors, at least one and not all; the number selects how many.
    First(u64),
    /// Its last sectors.
    Last(u64),
}

impl Survival {
    /// Surviving bytes of a write of `length` bytes.
    fn bytes(self, length: usize) -> std::ops::Range<usize> {
        // A write of a single sector is whole or lost.
        let cut =
            |number: u64| (1 + (number % (length / SECTOR - 1).max(1) as u64) as usize) * SECTOR;
        match self {
            Self::Lost => 0..0,
            Self::Whole => 0..length,
            Self::First(number) => 0..cut(number),
            Self::Last(number) => length.min(cut(number))..length,
        }
    }
}

/// A member in memory.
#[derive(Clone, Default)]
pub struct VirtualMember {
    size: u64,
    current: Image,
    durable: Image,
    cached: Vec<CachedWrite>,
    /// Writes that a flush should have made durable, if the canary of the reordered discard is on.
    unresolved: Vec<CachedWrite>,
    discarded_since_flush: bool,
    /// Without cache.
    uncached: bool,
    /// Writes to it are durable when they end.
    pub power_safe: bool,
    /// Offset and length of the newest writes.
    recent: VecDeque<(u64, u64)>,
    next_number: u64,
    /// Byte with which a discarded range is filled.
    pub discard_fill: u8,
    /// Ranges that cannot be read until they are written again.
    pub read_errors: Vec<(u64, u64)>,
    /// Counters.
    pub received: Received,
}

impl VirtualMember {
    /// An empty member of `size` bytes.
    pub fn new(size: u64, discard_fill: u8) -> Self {
        Self {
            size,
            discard_fill,
            ..Self::default()
        }
    }

    /// An empty device that could replace it: of its size and kind.
    pub fn successor(&self) -> Self {
        Self {
            power_safe: self.power_safe,
            ..Self::new(self.size, self.discard_fill)
        }
    }

    /// Sets a larger size.
    pub fn grow(&mut self, size: u64) {
        self.size = self.size.max(size);
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// True if the whole range is readable.
    pub fn is_readable(&self, offset: u64, length: u64) -> bool {
        !self
            .read_errors
            .iter()
            .any(|(start, len)| offset < start + len && *start < offset + length)
    }

    /// Reads the newest content, durable or not.
    pub fn read(&self, offset: u64, out: &mut [u8]) {
        self.current.read(offset, out);
    }

    /// Writes into the cache.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.current.write(offset, bytes);
        self.recent.push_back((offset, bytes.len() as u64));
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
        if !self.uncached {
            self.cached.push(CachedWrite {
                number: self.next_number,
                offset,
                bytes: bytes.to_vec(),
            });
            self.next_number += 1;
        }
        if !self.read_errors.is_empty() {
            // A write makes the sectors readable again; only whole ranges, which is enough for the
            // injected faults.
            self.read_errors.retain(|(start, len)| {
                *start < offset || start + len > offset + bytes.len() as u64
            });
        }
    }

    /// Begins a flush; the result goes to [`VirtualMember::flush_end`].
    pub fn flush_begin(&self) -> u64 {
        self.next_number
    }

    /// Makes the writes durable that were complete at `mark`; with `one_late` (a canary) those of
    /// the previous flush.
    pub fn flush_end(&mut self, mark: u64, one_late: bool) {
        self.settle_unresolved();
        self.discarded_since_flush = false;
        let (covered, rest) = std::mem::take(&mut self.cached)
            .into_iter()
            .partition(|write| write.number < mark);
        self.cached = rest;
        self.unresolved = covered;
        if !one_late {
            self.settle_unresolved();
        }
    }

    fn settle_unresolved(&mut self) {
        for write in self.unresolved.drain(..) {
            self.durable.write(write.offset, &write.bytes);
        }
    }

    /// Destroys a range at once.
    pub fn discard(&mut self, offset: u64, length: u64) {
        let fill = vec![self.discard_fill; length as usize];
        self.current.write(offset, &fill);
        if self.uncached {
            return;
        }
        self.durable.write(offset, &fill);
        self.discarded_since_flush = true;
        let end = offset + length;
        for write in self.cached.iter_mut().chain(&mut self.unresolved) {
            let write_end = write.offset + write.bytes.len() as u64;
            if write.offset < end && offset < write_end {
                let (from, to) = (offset.max(write.offset), end.min(write_end));
                write.bytes[(from - write.offset) as usize..(to - write.offset) as usize]
                    .fill(self.discard_fill);
            }
        }
        self.cached
            .retain(|write| write.offset < offset || write.offset + write.bytes.len() as u64 > end);
    }

    /// A flush that fails: the device silently drops some of its cached writes.
    pub fn flush_fails(&mut self, rng: &mut Rng) {
        self.power_cut(rng, Vec::new());
    }

    /// Cuts the power. `in_flight`: writes that had been started and had not completed.
    pub fn power_cut(&mut self, rng: &mut Rng, in_flight: Vec<(u64, Vec<u8>)>) {
        let reordered = self.discarded_since_flush;
        let mut writes: Vec<CachedWrite> = std::mem::take(&mut self.cached);
        if reordered {
            writes.append(&mut self.unresolved);
        } else {
            self.settle_unresolved();
        }
        writes.extend(in_flight.into_iter().map(|(offset, bytes)| CachedWrite {
            number: 0,
            offset,
            bytes,
        }));
        rng.shuffle(&mut writes);
        let mercy = match rng.below(100) {
            0..30 => Mercy::None,
            30..45 => Mercy::All,
            _ => Mercy::PerMille(rng.between(50, 950)),
        };
        for write in &writes {
            match mercy {
                Mercy::None => {}
                Mercy::All => self.durable.write(write.offset, &write.bytes),
                Mercy::PerMille(chance) if rng.chance(150) => self.tear(rng, write, chance),
                Mercy::PerMille(chance) if rng.chance(chance) => {
                    self.durable.write(write.offset, &write.bytes)
                }
                Mercy::PerMille(_) => {}
            }
        }
        for write in &writes {
            self.current
                .copy_from(&self.durable, write.offset, write.bytes.len());
        }
        self.discarded_since_flush = false;
    }

    /// A copy without cache in the state after a power cut; `survival` is called once for each
    /// write, in the order of their start.
    pub fn after_cut<'a>(
        &'a self,
        mut survival: impl FnMut() -> Survival,
        in_flight: impl Iterator<Item = (u64, &'a [u8])>,
    ) -> Self {
        let mut current = self.durable.clone();
        self.unresolved
            .iter()
            .for_each(|write| current.write(write.offset, &write.bytes));
        let cached = self
            .cached
            .iter()
            .map(|write| (write.offset, &write.bytes[..]));
        for (offset, bytes) in cached.chain(in_flight) {
            let range = survival().bytes(bytes.len());
            current.write(offset + range.start as u64, &bytes[range]);
        }
        let (recent, read_errors) = (self.recent.clone(), self.read_errors.clone());
        Self {
            size: self.size,
            current,
            uncached: true,
            recent,
            discard_fill: self.discard_fill,
            read_errors,
            received: self.received,
            ..Self::default()
        }
    }

    /// Lets some sectors of the write reach the medium: a first part, a last part, or any.
    fn tear(&mut self, rng: &mut Rng, write: &CachedWrite, chance: u64) {
        let sectors = write.bytes.len() / SECTOR;
        let kind = rng.below(3);
        let at = rng.below(sectors as u64 + 1) as usize;
        for (index, sector) in write.bytes.chunks(SECTOR).enumerate() {
            let kept = match kind {
                0 => index < at,
                1 => index >= at,
                _ => rng.chance(chance),
            };
            if kept {
                self.durable
                    .write(write.offset + (index * SECTOR) as u64, sector);
            }
        }
    }

    /// Flips bits of a range silently.
    pub fn corrupt(&mut self, rng: &mut Rng, offset: u64, length: u64) {
        let mut bytes = vec![0; length as usize];
        let durable = (!self.uncached).then_some(&mut self.durable);
        for image in std::iter::once(&mut self.current).chain(durable) {
            image.read(offset, &mut bytes);
            let pattern = rng.bits() | 1;
            for (index, byte) in bytes.iter_mut().enumerate() {
                *byte ^= (pattern >> (8 * (index % 8))) as u8;
            }
            image.write(offset, &bytes);
        }
        // Cached writes have gone through the medium too: a later flush must not heal it.
        for write in self.cached.iter_mut().chain(&mut self.unresolved) {
            let write_end = write.offset + write.bytes.len() as u64;
            if write.offset < offset + length && offset < write_end {
                self.current.read(write.offset, &mut write.bytes);
            }
        }
    }

    /// Flips bits of the last write.
    pub fn corrupt_recent(&mut self, rng: &mut Rng) {
        for (offset, length) in self.recent.clone() {
            self.corrupt(rng, offset, length);
        }
    }

    /// Makes the last write unreadable until it is rewritten.
    pub fn lose_recent(&mut self) {
        self.read_errors.extend(&self.recent);
    }

    /// Hash of the medium's content and its unreadable ranges.
    pub fn hash(&self) -> u64 {
        let image = if self.uncached {
            &self.current
        } else {
            &self.durable
        };
        self.read_errors
            .iter()
            .fold(image.hash(), |hash, (offset, length)| {
                mix(mix(hash ^ offset) ^ length)
            })
    }

    /// Number of writes that a power cut could lose now.
    pub fn cached_writes(&self) -> usize {
        self.cached.len()
    }
}

//! Like the client trace of JESD219A: eight months of one person's Windows system on 128 GB, which
//! is not freely available.
//!
//! Published ([`published`]; 2017 source, "JEDEC 128GB Client Trace Test"): number, bytes and so
//! the mean of writes and trims, the share of the space that is never written, the write
//! amplification of a greedy log with one stream at four spares and without trim. The generator
//! meets the first by construction:
//!
//! 1. *Overwrites*: a circular journal, metadata, and documents and databases in place ([`WARM`]);
//!    sizes of [`OVERWRITES`].
//! 2. *Files*: slots of five sizes ([`FILES`]) that are written as a whole in 64 KiB requests.
//!    Short files die in the order of creation, long ones mostly so, one of four at random. The
//!    slot is then trimmed and reused after all other free ones. Whenever fewer bytes have been
//!    written than the mean size requires, a file comes next.
//! 3. *Trims of all free space*, as Windows does occasionally: whenever the trimmed bytes lag the
//!    published share by the free space.
//! 4. *Static*: the rest, interleaved in units of 8 MiB.
//!
//! Assumed and chosen by hand: the sizes, and the shares [`WARM_PERCENT`], [`LONG_PERCENT`],
//! [`FREE_PERCENT`], [`SHORT_PERCENT`] with the areas. They were set so that greedy cleaning with
//! one stream has about the published amplification. With four shares for five figures this fit
//! proves little; that other figures follow from the same shares proves more. See
//! `docs/lab/overview.md`.

use super::BLOCK;
use super::draw::{Pace, Sizes, size};
use crate::rng::Rng;
use std::collections::VecDeque;
use windrow_trace::{Kind, Request};

/// Published figures of the trace and of its test.
pub mod published {
    /// Bytes of the space, filled in sequence first.
    pub const BYTES: u64 = 128_002_187_264;
    /// Number of writes.
    pub const WRITES: u64 = 35_391_419;
    /// Bytes written.
    pub const WRITTEN_BYTES: u64 = 781_330_000_000;
    /// Number of trims.
    pub const TRIMS: u64 = 2_498_963;
    /// Bytes trimmed.
    pub const TRIMMED_BYTES: u64 = 821_330_000_000;
    /// Share of the space that is never written, per cent.
    pub const STATIC_PERCENT: u64 = 62;
    /// Spare share of all space, write amplification, trims honoured.
    pub const WAF: [(f64, f64); 4] = [(0.05, 1.363), (0.07, 1.295), (0.10, 1.216), (0.20, 1.111)];
    /// At 10 % without trims.
    pub const WAF_WITHOUT_TRIM: f64 = 1.437;

    /// Scales a published count or byte number to a space of `bytes`.
    pub fn scaled(value: u64, bytes: u64) -> u64 {
        (u128::from(value) * u128::from(bytes) / u128::from(BYTES)) as u64
    }
}

/// Sizes of overwrites, mean 11 KiB.
pub const OVERWRITES: &Sizes = &[
    (4 << 10, 62),
    (8 << 10, 14),
    (16 << 10, 12),
    (32 << 10, 7),
    (64 << 10, 5),
];
/// Sizes of files, in thousandths of their number: mean 322 KiB, which is the mean of the trims.
pub const FILES: &Sizes = &[
    (4 << 20, 35),
    (1 << 20, 100),
    (256 << 10, 200),
    (64 << 10, 300),
    (16 << 10, 365),
];
/// Bytes of a write to a file.
const CHUNK: u64 = 64 << 10;

/// Written parts of the space, in thousandths of the whole. Together 406: some long files outlive
/// the stream, so that 380 are written, as published.
const JOURNAL: u64 = 2;
const METADATA: u64 = 8;
/// Documents and databases that are written in place.
pub const WARM: u64 = 30;
const SLOTS: u64 = 366;
/// Overwrites to the journal, per cent.
const JOURNAL_PERCENT: u64 = 50;
/// Overwrites in place, per cent; the rest is metadata.
pub const WARM_PERCENT: u64 = 4;
/// Long-lived files, per cent.
pub const LONG_PERCENT: u64 = 9;
/// Free slots, per cent.
pub const FREE_PERCENT: u64 = 20;
/// Slots with short files, per cent.
pub const SHORT_PERCENT: u64 = 6;

/// Number of blocks of a group of neighbours, which are static or not as a whole.
const GROUP: u64 = 2048;
/// Eight months.
const TIME_NS: u64 = 243 * 86_400 * 1_000_000_000;

/// Slots of one size. Free ones are used in the order in which they became free.
#[derive(Default)]
struct Class {
    blocks: u64,
    free: VecDeque<u64>,
    short: VecDeque<u64>,
    long: VecDeque<u64>,
    short_most: usize,
}

/// The trace.
pub struct Client {
    journal: u64,
    metadata: u64,
    warm: Vec<u64>,
    classes: Vec<Class>,
    head: u64,
    /// State for the next write: writes requested and done, bytes of both kinds.
    writes: u64,
    done: u64,
    written: u64,
    trimmed: u64,
    free_bytes: u64,
    gap_ns: u64,
    random: Rng,
    pace: Pace,
    due: VecDeque<(Kind, u64, u64)>,
}

impl Client {
    pub fn new(blocks: u64, seed: u64) -> Self {
        let writes = published::scaled(published::WRITES, blocks * BLOCK).max(1);
        // A request of 64 KiB must fit.
        let (journal, metadata) = (
            (blocks * JOURNAL / 1000).max(16),
            (blocks * METADATA / 1000).max(16),
        );
        let groups = written_groups(journal + metadata, blocks);
        let cut = (groups.len() as u64 * WARM / (WARM + SLOTS)).max(1) as usize;
        let (warm, files) = groups.split_at(cut.min(groups.len()));
        let classes = slots(files);
        let free_bytes = classes
            .iter()
            .map(|class| class.free.len() as u64 * class.blocks * BLOCK)
            .sum();
        Self {
            journal,
            metadata,
            warm: warm.to_vec(),
            classes,
            head: 0,
            writes,
            done: 0,
            written: 0,
            trimmed: 0,
            free_bytes,
            gap_ns: TIME_NS / writes,
            random: Rng::stream(seed, "client"),
            pace: Pace::new(seed),
            due: VecDeque::new(),
        }
    }

    fn overwrite(&mut self) {
        let count = size(OVERWRITES, &mut self.random) / BLOCK;
        let draw = self.random.below(100);
        let block = if draw < JOURNAL_PERCENT {
            if self.head + count > self.journal {
                self.head = 0;
            }
            self.head += count;
            self.head - count
        } else if draw < JOURNAL_PERCENT + WARM_PERCENT {
            self.warm[self.random.below(self.warm.len() as u64) as usize]
                + self.random.below(GROUP - count + 1)
        } else {
            self.journal + self.random.below(self.metadata - count + 1)
        };
        self.due.push_back((Kind::Write, block, count));
    }

    /// Creates a file, and ends an old one.
    fn file(&mut self) {
        let bytes = size(FILES, &mut self.random);
        let Some(class) = self
            .classes
            .iter_mut()
            .find(|class| class.blocks * BLOCK == bytes)
        else {
            return;
        };
        let long = self.random.below(100) < LONG_PERCENT && !class.long.is_empty();
        let dead = if long {
            match self.random.below(4) {
                0..3 => class.long.pop_front(),
                _ => class
                    .long
                    .swap_remove_back(self.random.below(class.long.len() as u64) as usize),
            }
        } else if class.short.len() >= class.short_most {
            class.short.pop_front()
        } else {
            None
        };
        if let Some(slot) = dead {
            self.due.push_back((Kind::Trim, slot, class.blocks));
            class.free.push_back(slot);
        }
        let Some(slot) = class.free.pop_front() else {
            return;
        };
        if long {
            class.long.push_back(slot)
        } else {
            class.short.push_back(slot)
        }
        let step = CHUNK / BLOCK;
        for at in (0..class.blocks).step_by(step as usize) {
            self.due
                .push_back((Kind::Write, slot + at, step.min(class.blocks - at)));
        }
    }

    /// Trims all free space as soon as trims lag by that much.
    fn trim_free(&mut self) {
        let target = (u128::from(self.written) * u128::from(published::TRIMMED_BYTES)
            / u128::from(published::WRITTEN_BYTES)) as u64;
        if target >= self.trimmed + self.free_bytes {
            for class in &self.classes {
                self.due.extend(
                    class
                        .free
                        .iter()
                        .map(|slot| (Kind::Trim, *slot, class.blocks)),
                );
            }
        }
    }

    fn refill(&mut self) {
        self.trim_free();
        if !self.due.is_empty() {
            return;
        }
        let asked = u128::from(self.done) * u128::from(published::WRITTEN_BYTES)
            / u128::from(published::WRITES);
        if u128::from(self.written) < asked {
            self.file();
        }
        if self.due.is_empty() {
            self.overwrite();
        }
    }
}

/// First blocks of the written groups, spread evenly over the space after `from`.
fn written_groups(from: u64, blocks: u64) -> Vec<u64> {
    let all = (blocks - from) / GROUP;
    // Number of groups for the part of the written share that the preceding areas leave.
    let wanted = (blocks * (WARM + SLOTS) / 1000 / GROUP).clamp(2, all);
    (0..all)
        .filter(|group| (group + 1) * wanted / all > group * wanted / all)
        .map(|group| from + group * GROUP)
        .collect()
}

/// Divides groups into slots, longest first, so that none crosses a border; then into free ones,
/// short and long files.
fn slots(groups: &[u64]) -> Vec<Class> {
    let room = groups.len() as u64 * GROUP;
    let mean: u64 = FILES
        .iter()
        .map(|(bytes, parts)| bytes / BLOCK * parts)
        .sum();
    let mut next = 0;
    let mut classes = Vec::new();
    for (bytes, parts) in FILES {
        let blocks = bytes / BLOCK;
        let number = (room * parts / mean).max(1);
        let mut all: Vec<u64> = Vec::new();
        while (all.len() as u64) < number && next + blocks <= room {
            all.push(groups[(next / GROUP) as usize] + next % GROUP);
            next += blocks;
        }
        let part = |percent: u64| (all.len() as u64 * percent).div_ceil(100) as usize;
        let (free, short) = (part(FREE_PERCENT), part(SHORT_PERCENT));
        classes.push(Class {
            blocks,
            short_most: short,
            free: all.iter().take(free).copied().collect(),
            short: all.iter().skip(free).take(short).copied().collect(),
            long: all.iter().skip(free + short).copied().collect(),
        });
    }
    classes
}

impl Iterator for Client {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        if self.done == self.writes {
            return None;
        }
        if self.due.is_empty() {
            self.refill();
        }
        let (kind, block, count) = self.due.pop_front()?;
        let bytes = count * BLOCK;
        if kind == Kind::Write {
            self.done += 1;
            self.written += bytes;
        } else {
            self.trimmed += bytes;
        }
        let gap = if kind == Kind::Write { self.gap_ns } else { 0 };
        Some(self.pace.request(kind, block * BLOCK, bytes, gap))
    }
}

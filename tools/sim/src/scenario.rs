//! Decisions of a seed before the run begins: members, redundancy, geometry, limits, and power
//! cuts.

use crate::workload::{draw_policy, draw_properties, draw_rates, draw_way, draws_capacity};
use windrow_engine::limits::MAX_CHUNK_ROWS;
use windrow_engine::{Engine, FormatError, JournalSpec, Limits, PoolSpec};
use windrow_format::superblock::{Properties, RESERVED_BYTES, Reduction};
use windrow_geometry::Redundancy;
use windrow_random::Rng;
use windrow_types::{BLOCK_BYTES, Uuid};

/// A fault of one member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A member dies.
    Death,
    /// Part of a member becomes unreadable.
    ReadErrors,
    /// Part of a member changes silently.
    Corruption,
    /// One write fails.
    WriteError,
    /// One flush fails and loses the cached writes.
    FlushError,
    /// Superblock slots, and maybe the label, change silently.
    Superblocks,
    /// The next reads fail, then the same ranges are readable again.
    TransientReads,
    /// The next writes are acknowledged and lost.
    LostWrites,
    /// The next writes are acknowledged and land at other addresses of the member.
    MisdirectedWrites,
    /// Everything takes 10 to 1000 times as long, temporarily or permanently. Nothing is wrong: any
    /// member may be slow.
    Slow,
    /// One command hangs for up to minutes, then ends normally. Nothing is wrong here either.
    Stall,
    /// A member answers no reads for a while, then all of them. Nothing is wrong here either.
    Mute,
}

impl Fault {
    /// All faults; silent damage is listed twice.
    const ALL: [Self; 16] = [
        Self::Death,
        Self::ReadErrors,
        Self::Corruption,
        Self::Corruption,
        Self::WriteError,
        Self::FlushError,
        Self::Superblocks,
        Self::TransientReads,
        Self::LostWrites,
        Self::LostWrites,
        Self::MisdirectedWrites,
        Self::MisdirectedWrites,
        Self::Slow,
        Self::Slow,
        Self::Stall,
        Self::Mute,
    ];

    /// Draws any fault.
    pub fn draw(rng: &mut Rng) -> Self {
        rng.pick(&Self::ALL)
    }

    /// True if it does not reduce the redundancy.
    pub fn is_harmless(self) -> bool {
        matches!(self, Self::Slow | Self::Stall | Self::Mute)
    }

    /// True if a rebuild repairs the member: nothing on it changed silently.
    pub fn is_curable(self) -> bool {
        matches!(
            self,
            Self::Death | Self::WriteError | Self::FlushError | Self::TransientReads
        )
    }
}

/// End of a cycle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The power goes at any moment.
    Crash,
    /// The power goes during a checkpoint.
    CrashInCheckpoint,
    /// The power goes while the pool shuts down.
    CrashInShutdown,
    /// The power goes and a member does not return.
    CrashAndLoss,
    /// A clean shutdown.
    Shutdown,
}

/// One cycle: start, work, end.
#[derive(Clone, Debug)]
pub struct Cycle {
    /// Number of block operations.
    pub blocks: u64,
    /// Numbers of writes and flushes after which starts are interrupted.
    pub cut_starts: Vec<u64>,
    /// Faults, each with the number of the cycle's block operations that precede it, in this order.
    pub faults: Vec<(u64, Fault)>,
    /// A read-only start precedes the cycle.
    pub look_first: bool,
    /// Dead members return with stale content at the start.
    pub returns: bool,
    /// A new device replaces a member before the start.
    pub replaces: bool,
    /// Superblock slots that no start needs change silently before the start.
    pub slots_rot: bool,
    /// Another host tries to start the pool first.
    pub foreign_host: bool,
    /// End of the cycle.
    pub end: End,
    /// Turns of the event loop between the last request and the power cut.
    pub turns_to_crash: u64,
}

impl Cycle {
    /// A cycle without work.
    pub fn idle() -> Self {
        Self {
            blocks: 0,
            cut_starts: Vec::new(),
            faults: Vec::new(),
            look_first: false,
            returns: false,
            replaces: false,
            slots_rot: false,
            foreign_host: false,
            end: End::Shutdown,
            turns_to_crash: 0,
        }
    }
}

/// Decisions of a seed.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Sizes of the members in bytes.
    pub sizes: Vec<u64>,
    /// Redundancy.
    pub redundancy: Redundancy,
    /// Rows of a chunk.
    pub chunk_rows: u32,
    /// Rows of a segment.
    pub segment_rows: u32,
    /// Properties.
    pub properties: Properties,
    /// Limits of the engine.
    pub limits: Limits,
    /// Total size of the volumes, in thousandths of the pool's capacity.
    pub fill_per_mille: u64,
    /// Number of map pages that blocks are spread over, in thousandths of the limit: each in a leaf
    /// of its own; `None`: volumes are dense.
    pub spread_per_mille: Option<u64>,
    /// Content of discarded ranges.
    pub discard_fill: u8,
    /// Rate at which a member leaves, or is exchanged, while the pool is in use: in thousandths of
    /// turns.
    pub exchanges_per_mille: u64,
    /// The journal.
    pub journal: Option<JournalSpec>,
    /// Maximum number of growths.
    pub grows: u64,
    /// See [`Scenario::grows`].
    pub grows_per_mille: u64,
    /// Maximum number of members that leave for good.
    pub removes: u64,
    /// See [`Scenario::removes`].
    pub removes_per_mille: u64,
    /// The cycles.
    pub cycles: Vec<Cycle>,
}

/// Half of the pools have a journal, often one small enough to become full. Some have dedicated
/// devices for it.
fn draw_journal(seed: u64) -> Option<JournalSpec> {
    let mut rng = Rng::stream(seed, "journal");
    let bytes_each = rng.pick(&[64 << 10, 80 << 10, 128 << 10, 512 << 10]);
    let granule = rng.pick(&[512, 512, 4096]);
    if !rng.chance(if Streams::draw(seed).is_some() {
        800
    } else {
        500
    }) {
        return None;
    }
    let mut journal = JournalSpec::internal(Some(bytes_each), granule);
    if rng.chance(450) {
        let bytes = RESERVED_BYTES + rng.pick(&[64 << 10, 128 << 10, 1 << 20]);
        journal.devices = (0..rng.between(1, 2))
            .map(|_| (Uuid::from_random(rng.bytes16()), bytes))
            .collect();
        journal.power_safe = rng.chance(300);
    }
    Some(journal)
}

/// A pool with several user streams, and a load that fills them: synchronous writes of few blocks,
/// often the same ones. Most other pools never get that far.
#[derive(Clone, Copy, Debug)]
pub struct Streams {
    /// Placement of the pool from the start.
    pub placement: u8,
    /// Enough for all streams.
    pub spare_per_mille: u16,
    /// Small volumes, so that blocks are rewritten often enough to be classified.
    pub fill_per_mille: u64,
    /// Volumes may share content: there is only one user stream then.
    pub shares: bool,
}

impl Streams {
    /// Drawn for a fifth of the seeds.
    pub fn draw(seed: u64) -> Option<Self> {
        let mut rng = Rng::stream(seed, "streams of users");
        let drawn = Self {
            placement: rng.pick(&[1, 1, 2, 4, 4, 6, 7]),
            spare_per_mille: rng.pick(&[200, 300, 400]),
            fill_per_mille: rng.pick(&[30, 100, 400]),
            shares: rng.chance(150),
        };
        rng.chance(200).then_some(drawn)
    }

    /// The same properties except for those that open the streams.
    pub fn open(&self, properties: Properties) -> Properties {
        Properties {
            placement: self.placement,
            spare_per_mille: self.spare_per_mille,
            seal_age_ms: 100,
            ..properties
        }
    }
}

/// Draws the limits, including the cost of a flush, so that all ways of serving one are used
/// (docs/internals/journal.md, Cost).
fn draw_limits(rng: &mut Rng, seed: u64) -> Limits {
    let limits = Limits {
        pending_bytes: rng.between(1, 8) << 20,
        batches_in_flight: rng.between(2, 8) as u32,
        map_bytes: 64 << 20,
        waiting_requests: 4096,
        ..Limits::default()
    };
    // Members are small here: with the default windows hardly anything would ever be delayed
    // (docs/internals/scheduling.md).
    let mut windows = Rng::stream(seed, "windows");
    let [foreground_window_bytes, background_window_bytes] = [
        limits.foreground_window_bytes,
        limits.background_window_bytes,
    ]
    .map(|usual| windows.pick(&[0, 64 << 10, 128 << 10, usual]));
    let index_bytes = Rng::stream(seed, "index of fingerprints").pick(&[
        0,
        1 << 10,
        8 << 10,
        24 << 10,
        64 << 10,
        limits.index_bytes,
    ]);
    let limits = Limits {
        foreground_window_bytes,
        background_window_bytes,
        index_bytes,
        ..limits
    };
    let mut rng = Rng::stream(seed, "ways of flushes");
    let (flush_cost_bytes, journal_device_bytes) = (
        rng.pick(&[0, 4 << 10, limits.flush_cost_bytes]),
        rng.pick(&[16 << 10, 64 << 10, 256 << 10]),
    );
    let flush_cost_bytes = if Streams::draw(seed).is_some() {
        limits.flush_cost_bytes
    } else {
        flush_cost_bytes
    };
    Limits {
        flush_cost_bytes,
        journal_device_bytes,
        compresses_records: rng.chance(700),
        ..limits
    }
}

/// Maximum size of a member.
const LARGEST_BYTES: u64 = 512 << 20;

impl Scenario {
    /// True if the seed's pool has journal devices.
    pub fn has_journal_devices(seed: u64) -> bool {
        draw_journal(seed).is_some_and(|journal| !journal.devices.is_empty())
    }

    /// Draws everything. `blocks` is the number of block operations of all cycles together.
    pub fn draw(seed: u64, blocks: u64) -> Self {
        let mut rng = Rng::stream(seed, "scenario");
        let count = rng.between(1, 9) as usize;
        let mut choices = vec![Redundancy::None];
        choices.extend((count >= 2).then_some(Redundancy::Copies(2)));
        choices.extend((count >= 3).then_some(Redundancy::Copies(3)));
        choices.extend((count >= 4).then_some(Redundancy::Copies(4)));
        choices.extend(
            (count >= 3)
                .then_some([Redundancy::Single; 2])
                .into_iter()
                .flatten(),
        );
        choices.extend(
            (count >= 4)
                .then_some([Redundancy::Double; 3])
                .into_iter()
                .flatten(),
        );
        let redundancy = rng.pick(&choices);
        let chunk_rows = rng.pick(&[4, 8, 16]);
        let data = redundancy
            .shape(count, chunk_rows, chunk_rows)
            .map_or(1, |shape| u64::from(shape.data));
        let wanted_rows = rng.between(32, 96) / data;
        let segment_rows = (wanted_rows as u32)
            .clamp(8, 64)
            .next_multiple_of(chunk_rows)
            .min(64);
        let extents = rng.between(24, 72);
        // Small pools cannot afford streams beyond the first ones: some pools are large enough for
        // several.
        let mut sizes_drawn = Rng::stream(seed, "large pools");
        let streams = Streams::draw(seed);
        let spread_per_mille = draw_spread(seed);
        let large = sizes_drawn.chance(250) || streams.is_some() || spread_per_mille.is_some();
        let (chunk_rows, segment_rows) = match (large, data >= 3) {
            (true, true) => (4, 8),
            (true, false) => (8, 16),
            (false, _) => (chunk_rows, segment_rows),
        };
        // (Pools to be filled must be small enough to be filled several times.)
        let extents = match (large, spread_per_mille) {
            (_, Some(_)) => sizes_drawn.between(100, 200),
            (true, None) => sizes_drawn.between(200, 500),
            (false, None) => extents,
        };
        let extent_bytes = u64::from(segment_rows) * BLOCK_BYTES;
        let journal = draw_journal(seed);
        let journal_bytes = journal
            .as_ref()
            .and_then(|journal| journal.bytes_each)
            .unwrap_or(0);
        let uneven = rng.chance(300);
        let sizes = (0..count)
            .map(|_| {
                let more = if uneven {
                    rng.pick(&[0, 0, extents / 2, extents])
                } else {
                    0
                };
                RESERVED_BYTES
                    + journal_bytes
                    + (extents + more) * extent_bytes
                    + rng.below(2) * BLOCK_BYTES
            })
            .collect();
        let mut policies = Rng::stream(seed, "policy");
        let properties = draw_policy(&mut policies, draw_properties(&mut rng));
        let properties = draw_rates(&mut Rng::stream(seed, "rates"), properties);
        let properties = streams.map_or(properties, |streams| streams.open(properties));
        let reduction = if draws_capacity(seed) {
            draw_way(&mut Rng::stream(seed, "first reduction"))
        } else {
            Reduction::Spare
        };
        let properties = Properties {
            reduction,
            ..properties
        };
        let limits = draw_limits(&mut rng, seed);
        let fill_per_mille = rng.pick(&[300, 600, 800, 900, 1000, 1300]);
        let fill_per_mille = streams.map_or(fill_per_mille, |streams| streams.fill_per_mille);
        // Nearly full pools with a spread map are those whose checkpoints need all of their
        // reserve.
        let fill_per_mille = if spread_per_mille.is_some() {
            Rng::stream(seed, "fill of spread maps").pick(&[900, 950, 980, 1000, 1000])
        } else {
            fill_per_mille
        };
        let discard_fill = rng.pick(&[0x00, 0xff, 0xa5]);
        let cycles = draw_cycles(&mut rng, blocks);
        let exchanges_per_mille = if redundancy.tolerance() > 0 {
            rng.pick(&[0, 0, 1, 3])
        } else {
            0
        };
        let (grows, grows_per_mille) = (rng.pick(&[0, 0, 0, 1, 1, 2, 3]), rng.pick(&[1, 3, 10]));
        let mut removal = Rng::stream(seed, "removal");
        let (removes, removes_per_mille) =
            (removal.pick(&[0, 0, 1, 1, 2, 3]), removal.pick(&[1, 3, 10]));
        let drawn = Self {
            sizes,
            redundancy,
            chunk_rows,
            segment_rows,
            properties,
            limits,
            fill_per_mille,
            spread_per_mille,
            discard_fill,
            exchanges_per_mille,
            grows,
            grows_per_mille,
            removes,
            removes_per_mille,
            journal,
            cycles,
        };
        drawn.of_sufficient_size(extent_bytes)
    }

    /// Enlarges members that are too small for the other draws (the map of `reduction=capacity`
    /// needs many segments if they are short). If that does not converge, because the map grows
    /// with them, it enlarges chunks and segments (seed 8300101).
    pub(crate) fn of_sufficient_size(mut self, mut extent_bytes: u64) -> Self {
        let mut drawn = self.sizes.clone();
        while let Err(FormatError::TooSmall { segments, needed }) =
            Engine::plan(&self.spec(&mut Rng::stream(0, "any names")))
        {
            self.sizes
                .iter_mut()
                .for_each(|size| *size += u64::from(needed - segments) * extent_bytes);
            if self.sizes.iter().all(|size| *size <= LARGEST_BYTES) {
                continue;
            }
            self.sizes.clone_from(&drawn);
            if self.chunk_rows < MAX_CHUNK_ROWS {
                (self.chunk_rows, self.segment_rows, extent_bytes) =
                    (2 * self.chunk_rows, 2 * self.segment_rows, 2 * extent_bytes);
            } else {
                // The space that only one member has cannot hold the map of all of them (seed
                // 43000361).
                let largest = drawn.iter().copied().max().unwrap_or(LARGEST_BYTES);
                self.sizes.fill(largest);
                drawn.fill(largest);
            }
        }
        self
    }

    /// Sizes of all initial members: data members, then journal devices.
    pub fn all_sizes(&self) -> Vec<u64> {
        let devices = self
            .journal
            .iter()
            .flat_map(|journal| &journal.devices)
            .map(|device| device.1);
        self.sizes.iter().copied().chain(devices).collect()
    }

    /// Journal devices that need no flush, as a bit mask.
    pub fn power_safe(&self) -> u64 {
        let devices = self.sizes.len()..self.all_sizes().len();
        let safe = self
            .journal
            .as_ref()
            .is_some_and(|journal| journal.power_safe);
        devices
            .filter(|_| safe)
            .fold(0, |mask, member| mask | 1 << member)
    }

    /// The pool to create.
    pub fn spec(&self, rng: &mut Rng) -> PoolSpec {
        PoolSpec {
            name: "simulated".to_string(),
            redundancy: self.redundancy,
            chunk_rows: Some(self.chunk_rows),
            segment_rows: Some(self.segment_rows),
            align_bytes: BLOCK_BYTES,
            pool: Uuid::from_random(rng.bytes16()),
            members: self
                .sizes
                .iter()
                .map(|size| (Uuid::from_random(rng.bytes16()), *size))
                .collect(),
            created_unix_s: 1_700_000_000,
            journal: self.journal.clone(),
            properties: self.properties,
        }
    }
}

/// A sixth of the pools have spread maps: over the maximum number of pages, over half of it, or
/// over more, so that the map is full before the pool.
fn draw_spread(seed: u64) -> Option<u64> {
    let mut rng = Rng::stream(seed, "spread maps");
    rng.chance(160)
        .then(|| rng.pick(&[1000, 1000, 1000, 500, 1500]))
}

fn draw_cycles(rng: &mut Rng, blocks: u64) -> Vec<Cycle> {
    let count = rng.between(2, 7);
    let faulty = rng.chance(850);
    let mut left = blocks;
    let mut cycles = Vec::new();
    for index in 0..count {
        let own = if index + 1 == count {
            left
        } else {
            rng.below(2 * left / (count - index)).min(left)
        };
        left -= own;
        let cut_starts = if rng.chance(300) {
            (0..rng.between(1, 2)).map(|_| rng.below(60)).collect()
        } else {
            Vec::new()
        };
        let planned = if faulty {
            rng.pick(&[0, 1, 1, 2, 3])
        } else {
            0
        };
        let mut faults: Vec<(u64, Fault)> = (0..planned)
            .map(|_| (rng.below(own + 1), Fault::draw(rng)))
            .collect();
        faults.sort_by_key(|(after, _)| *after);
        let end = match rng.below(100) {
            0..50 => End::Crash,
            50..65 => End::CrashInCheckpoint,
            65..75 => End::CrashInShutdown,
            75..85 if faulty => End::CrashAndLoss,
            75..85 => End::Crash,
            _ => End::Shutdown,
        };
        let (look_first, returns, turns_to_crash) =
            (rng.chance(150), rng.chance(400), rng.below(60));
        let (slots_rot, foreign_host, replaces) =
            (rng.chance(250), rng.chance(150), faulty && rng.chance(200));
        cycles.push(Cycle {
            blocks: own,
            cut_starts,
            faults,
            look_first,
            returns,
            replaces,
            slots_rot,
            foreign_host,
            end,
            turns_to_crash,
        });
    }
    cycles
}

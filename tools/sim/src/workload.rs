//! Client workload: phases of different mixes, over several volumes, with overlapping, unaligned
//! and bursting requests.

use crate::content::{FIRST_COMMON, FIRST_STAMP, ONES, SECTORS, ZERO};
use crate::model::{Asked, Model, VolumeChange, VolumeModel};
use crate::scenario::Streams;
use std::collections::BTreeSet;
use windrow_engine::ScrubCommand;
use windrow_format::checkpoint::{Compression, Dedup, SyncMode};
use windrow_format::superblock::{Properties, Reduction};
use windrow_random::Rng;
use windrow_types::VolumeId;

const VOLUMES_MAX: usize = 4;

/// Next action.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// A request.
    Request(VolumeId, Asked),
    /// A volume operation.
    Change(VolumeChange),
    /// A checkpoint.
    Checkpoint,
    /// A count of the blocks that volumes do not share.
    Count,
    /// A command to the scrub; it may be refused.
    Scrub(ScrubCommand),
    /// New properties.
    Properties(Properties),
    /// Compression of a volume; the volume may be deleted.
    Compression(VolumeId, Compression),
    /// Sets the sync mode of a volume.
    Sync(VolumeId, SyncMode),
    /// Deduplication of a volume; the volume may be deleted, and the pool may be too full.
    Dedup(VolumeId, Dedup),
}

/// Characteristics of the requests for a while.
#[derive(Clone, Copy, Debug)]
struct Phase {
    requests_left: u64,
    depth: u64,
    burst: u64,
    /// Weights of read, write, trim, write-zeroes, flush, status, volume operation, checkpoint.
    weights: [u64; 8],
    blocks_max: u64,
    unaligned_per_mille: u64,
    fua_per_mille: u64,
    fill_per_mille: u64,
    hot_per_mille: u64,
    hot_blocks: u64,
    sequential: bool,
}

/// Draws for deduplication.
struct Sharing {
    rng: Rng,
    met: BTreeSet<VolumeId>,
    /// Rate of sharing volumes, rate of changes, and rate of blocks with common content, in
    /// thousandths.
    sharing_per_mille: u64,
    changes_per_mille: u64,
    common_per_mille: u64,
    /// Number of common contents.
    contents: u64,
}

impl Sharing {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::stream(seed, "dedup");
        let sharing_per_mille = if Streams::draw(seed).is_some_and(|streams| !streams.shares) {
            0
        } else {
            rng.pick(&[0, 0, 500, 1000])
        };
        let some = |value: u64| if sharing_per_mille == 0 { 0 } else { value };
        let (changes_per_mille, common_per_mille) = (
            some(rng.pick(&[0, 2, 20])),
            some(rng.pick(&[100, 500, 900])),
        );
        let contents = rng.pick(&[2, 12, 64]);
        Self {
            rng,
            met: BTreeSet::new(),
            sharing_per_mille,
            changes_per_mille,
            common_per_mille,
            contents,
        }
    }

    /// A new volume may be set to share, and occasionally one changes.
    fn next(&mut self, model: &Model) -> Option<Action> {
        let volumes = || {
            model
                .volumes()
                .iter()
                .filter(|(_, volume)| !volume.deleting)
                .map(|(id, _)| *id)
        };
        let kinds = [Dedup::Hash, Dedup::Verify, Dedup::Verify];
        if let Some(volume) = volumes().find(|id| !self.met.contains(id)) {
            self.met.insert(volume);
            return self
                .rng
                .chance(self.sharing_per_mille)
                .then(|| Action::Dedup(volume, self.rng.pick(&kinds)));
        }
        if !self.rng.chance(self.changes_per_mille) {
            return None;
        }
        let volumes: Vec<VolumeId> = volumes().collect();
        (!volumes.is_empty()).then(|| {
            Action::Dedup(
                self.rng.pick(&volumes),
                self.rng
                    .pick(&[Dedup::Off, Dedup::Hash, Dedup::Verify, Dedup::Verify]),
            )
        })
    }
}

/// A stream of actions.
pub struct Workload {
    rng: Rng,
    phase: Phase,
    stamp: u64,
    cursor: u64,
    names: u64,
    /// Draws for compression alone, so that everything else stays the same; the volumes seen so
    /// far; the rates of compressing volumes and of changes, in thousandths.
    compression: Rng,
    met: BTreeSet<VolumeId>,
    compressing_per_mille: u64,
    changes_per_mille: u64,
    /// Draws for policies alone.
    policies: Rng,
    /// Draws for rates alone.
    rates: Rng,
    /// Draws for the reduction mode alone, if it is ever other than spare space.
    ways: Option<Rng>,
    /// Draws for deduplication alone.
    sharing: Sharing,
    /// Draws for sync modes alone, if volumes are to differ in them.
    syncs: Option<Rng>,
    /// Set if several user streams are to be filled.
    streams: Option<Streams>,
    /// Draws for phases that keep the pool full, if wanted.
    pressure: Option<Rng>,
    /// Limit of the blocks of all volumes together.
    space_blocks: u64,
}

impl Workload {
    /// A workload over volumes of `space_blocks` blocks in total.
    pub fn new(seed: u64, space_blocks: u64) -> Self {
        let mut rng = Rng::stream(seed, "workload");
        let phase = draw_phase(&mut rng);
        let mut compression = Rng::stream(seed, "compression");
        let (compressing_per_mille, changes_per_mille) = (
            compression.pick(&[0, 0, 500, 1000]),
            compression.pick(&[0, 2, 20]),
        );
        let mut ways = draws_capacity(seed).then(|| Rng::stream(seed, "reduction changes"));
        // If nothing is compressed both modes are nearly alike.
        let compressing_per_mille = ways.as_mut().map_or(compressing_per_mille, |rng| {
            rng.pick(&[compressing_per_mille, 1000, 1000, 800])
        });
        let changes_per_mille = if compressing_per_mille == 0 {
            0
        } else {
            changes_per_mille
        };
        Self {
            rng,
            phase,
            stamp: FIRST_STAMP,
            cursor: 0,
            names: 0,
            compression,
            policies: Rng::stream(seed, "policy changes"),
            rates: Rng::stream(seed, "changes of rates"),
            ways,
            met: BTreeSet::new(),
            compressing_per_mille,
            changes_per_mille,
            sharing: Sharing::new(seed),
            syncs: None,
            streams: Streams::draw(seed),
            pressure: None,
            space_blocks: space_blocks.max(16),
        }
    }

    /// For a pool with a permanent journal: in some runs the sync mode of a volume changes
    /// occasionally.
    pub fn with_syncs(mut self, seed: u64) -> Self {
        let mut rng = Rng::stream(seed, "sync");
        self.syncs = rng.chance(400).then_some(rng);
        self
    }

    /// Lets most phases fill the pool, or overwrite at random.
    pub fn with_pressure(mut self, seed: u64) -> Self {
        self.pressure = Some(Rng::stream(seed, "pressure"));
        self
    }

    /// Current limit of requests in flight.
    pub fn depth(&self) -> u64 {
        self.phase.depth
    }

    /// Current number of requests in a burst.
    pub fn burst(&mut self) -> u64 {
        self.rng.between(1, self.phase.burst)
    }

    /// Draws the next phase: occasionally a burst that writes volumes from end to end, until the
    /// pool is as full as it gets, and continues over it.
    fn next_phase(&mut self) -> Phase {
        let phase = draw_phase(&mut self.rng);
        if self.streams.is_some() && self.policies.chance(700) {
            return synchronous_phase(&mut self.policies, phase);
        }
        let overwrites = self
            .pressure
            .as_mut()
            .and_then(|rng| rng.chance(600).then(|| overwriting_phase(rng, phase)));
        if let Some(phase) = overwrites {
            return phase;
        }
        if !self
            .rng
            .chance(if self.pressure.is_some() { 500 } else { 60 })
        {
            return phase;
        }
        // In a tiny pool both may be none.
        let requests_left = ((self.space_blocks / 24).min(400) + self.rng.below(50)).max(1);
        Phase {
            requests_left,
            depth: 64,
            burst: 32,
            weights: [2, 95, 0, 0, 1, 1, 1, 0],
            blocks_max: 64,
            fill_per_mille: 0,
            sequential: true,
            ..phase
        }
    }

    /// Creates the first volume.
    pub fn first_volume(&mut self) -> Action {
        let share = self.rng.pick(&[2, 3, 4]);
        self.create(self.space_blocks * share / 4)
    }

    fn create(&mut self, blocks: u64) -> Action {
        self.names += 1;
        Action::Change(VolumeChange::Create(
            format!("volume-{}", self.names),
            blocks.max(1),
        ))
    }

    /// Draws the next action; returns its cost in block operations.
    pub fn next(&mut self, model: &Model) -> (Action, u64) {
        if let Some(action) = self.compression(model) {
            return (action, 1);
        }
        if let Some(action) = self.sharing.next(model) {
            return (action, 1);
        }
        if let Some(rng) = &mut self.syncs
            && rng.chance(4)
        {
            let volumes: Vec<VolumeId> = model
                .volumes()
                .iter()
                .filter(|(_, volume)| !volume.deleting)
                .map(|(id, _)| *id)
                .collect();
            if !volumes.is_empty() {
                let mode = rng.pick(&[
                    SyncMode::Standard,
                    SyncMode::Always,
                    SyncMode::Always,
                    SyncMode::Disabled,
                ]);
                return (Action::Sync(rng.pick(&volumes), mode), 1);
            }
        }
        if self.phase.requests_left == 0 {
            self.phase = self.next_phase();
        }
        self.phase.requests_left -= 1;
        // Occasionally requests also go to blocks that a resize is about to remove or add, or to a
        // volume that is about to be deleted.
        let (to_the_end, to_the_doomed) = (self.rng.chance(400), self.rng.chance(100));
        let volumes = model
            .volumes()
            .iter()
            .filter(|(_, volume)| to_the_doomed || !volume.deleting);
        let size = |volume: &VolumeModel| {
            if to_the_end {
                volume.blocks.len() as u64
            } else {
                volume.steady_blocks()
            }
        };
        let usable: Vec<(VolumeId, u64)> =
            volumes.map(|(id, volume)| (*id, size(volume))).collect();
        let total: u64 = self.phase.weights.iter().sum();
        let mut at = self.rng.below(total);
        let kind = self
            .phase
            .weights
            .iter()
            .position(|weight| at.checked_sub(*weight).map(|rest| at = rest).is_none())
            .unwrap_or(0);
        if usable.is_empty() {
            return (self.first_volume(), 1);
        }
        if kind == 6 {
            return (self.change(model), 1);
        }
        if kind == 7 {
            let action = match self.rng.below(1000) {
                0..450 => Action::Checkpoint,
                450..600 => Action::Count,
                _ => Action::Scrub(self.scrub()),
            };
            return (action, 1);
        }
        let (volume, blocks) = self.rng.pick(&usable);
        let asked = self.request(kind, blocks);
        let cost = asked.blocks().clamp(1, 64);
        (Action::Request(volume, asked), cost)
    }

    /// A new volume may be set to compress, and occasionally one changes.
    fn compression(&mut self, model: &Model) -> Option<Action> {
        let volumes = || {
            model
                .volumes()
                .iter()
                .filter(|(_, volume)| !volume.deleting)
                .map(|(id, _)| *id)
        };
        if let Some(volume) = volumes().find(|id| !self.met.contains(id)) {
            self.met.insert(volume);
            return self
                .compression
                .chance(self.compressing_per_mille)
                .then(|| {
                    Action::Compression(volume, self.compression.pick(&Compression::ALL[1..]))
                });
        }
        if !self.compression.chance(self.changes_per_mille) {
            return None;
        }
        let volumes: Vec<VolumeId> = volumes().collect();
        (!volumes.is_empty()).then(|| {
            Action::Compression(
                self.compression.pick(&volumes),
                self.compression.pick(&Compression::ALL),
            )
        })
    }

    fn scrub(&mut self) -> ScrubCommand {
        let bytes_per_second = self.rng.pick(&[0, 0, 100 << 20, 5 << 20]);
        let start = ScrubCommand::Start {
            unix_s: 0,
            bytes_per_second,
        };
        self.rng.pick(&[
            start,
            start,
            start,
            ScrubCommand::Pause,
            ScrubCommand::Resume,
            ScrubCommand::Stop,
        ])
    }

    fn request(&mut self, kind: usize, volume_blocks: u64) -> Asked {
        let long = matches!(kind, 2 | 3) && self.rng.chance(100);
        let wanted = if long {
            self.rng.between(1, volume_blocks)
        } else {
            self.length()
        };
        let blocks = wanted.min(volume_blocks);
        let first = self.first_block(volume_blocks - blocks + 1, blocks);
        let (at, count) = self.align(first, blocks);
        let fua = self.rng.chance(self.phase.fua_per_mille);
        match kind {
            0 => Asked::Read { at, count },
            1 => {
                let touched = (at + count).div_ceil(SECTORS as u64) - at / SECTORS as u64;
                let stamps = (0..touched).map(|_| self.stamp()).collect();
                Asked::Write {
                    at,
                    count,
                    stamps,
                    fua,
                }
            }
            2 => Asked::Zero {
                at,
                count,
                no_hole: None,
                fua,
            },
            3 => Asked::Zero {
                at,
                count,
                no_hole: Some(self.rng.chance(500)),
                fua,
            },
            4 => Asked::Flush,
            _ => Asked::Status { at, count },
        }
    }

    fn length(&mut self) -> u64 {
        let max = self.phase.blocks_max;
        if self.rng.chance(600) {
            self.rng.between(1, max.min(2))
        } else {
            self.rng.between(1, max)
        }
    }

    fn first_block(&mut self, bound: u64, blocks: u64) -> u64 {
        if self.phase.sequential {
            let first = self.cursor % bound;
            self.cursor = first + blocks;
            first
        } else if self.rng.chance(self.phase.hot_per_mille) {
            self.rng.below(bound.min(self.phase.hot_blocks))
        } else {
            self.rng.below(bound)
        }
    }

    fn align(&mut self, first: u64, blocks: u64) -> (u64, u64) {
        let sectors = SECTORS as u64;
        let (at, count) = (first * sectors, blocks * sectors);
        if !self.rng.chance(self.phase.unaligned_per_mille) {
            return (at, count);
        }
        let skip = self.rng.below(count.min(sectors));
        let cut = self.rng.below((count - skip).min(sectors));
        (at + skip, count - skip - cut)
    }

    fn stamp(&mut self) -> u64 {
        if self.rng.chance(self.phase.fill_per_mille) {
            return self.rng.pick(&[ZERO, ONES]);
        }
        self.stamp += 1;
        if self.sharing.rng.chance(self.sharing.common_per_mille) {
            return FIRST_COMMON + self.sharing.rng.below(self.sharing.contents);
        }
        self.stamp
    }

    fn change(&mut self, model: &Model) -> Action {
        let space: u64 = model
            .volumes()
            .values()
            .map(|volume| volume.blocks.len() as u64)
            .sum();
        let room = self.space_blocks.saturating_sub(space);
        let usable: Vec<(VolumeId, u64)> = model
            .volumes()
            .iter()
            .filter(|(_, volume)| !volume.deleting)
            .map(|(id, volume)| (*id, volume.steady_blocks()))
            .collect();
        let kind = self.rng.below(12);
        if kind >= 10 {
            return Action::Properties(self.properties());
        }
        if usable.is_empty() {
            return self.first_volume();
        }
        let (volume, blocks) = self.rng.pick(&usable);
        let busy = model
            .volumes()
            .get(&volume)
            .is_none_or(|volume| volume.resizing.is_some());
        match kind {
            0..3 if model.volumes().len() < VOLUMES_MAX => {
                let blocks = self.rng.between(1, room.max(1));
                self.create(blocks)
            }
            3..5 if usable.len() > 1 && !busy => Action::Change(VolumeChange::Delete(volume)),
            // Requests to removed blocks must have been answered before other blocks take their
            // place.
            5..7 if !busy && room > 0 && !model.is_touched(volume, blocks..u64::MAX) => {
                Action::Change(VolumeChange::Resize(
                    volume,
                    blocks + self.rng.between(1, room),
                ))
            }
            7..9 if !busy && blocks > 1 => {
                let smaller = self.rng.between(blocks / 2, blocks - 1).max(1);
                Action::Change(VolumeChange::Resize(volume, smaller))
            }
            _ => Action::Request(volume, Asked::Flush),
        }
    }

    fn properties(&mut self) -> Properties {
        let properties = draw_properties(&mut self.rng);
        let properties = draw_rates(&mut self.rates, draw_policy(&mut self.policies, properties));
        let properties = match self.streams {
            Some(streams) if self.policies.chance(800) => streams.open(properties),
            _ => properties,
        };
        Properties {
            reduction: self.ways.as_mut().map_or(Reduction::Spare, draw_way),
            ..properties
        }
    }
}

/// True if reduction is capacity, at first or after some change of properties: a third of the
/// seeds.
pub fn draws_capacity(seed: u64) -> bool {
    Rng::stream(seed, "reduction").chance(333)
}

/// Draws a mode.
pub fn draw_way(rng: &mut Rng) -> Reduction {
    rng.pick(&[
        Reduction::Capacity,
        Reduction::Capacity,
        Reduction::Capacity,
        Reduction::Spare,
    ])
}

/// Changes the policy: half of the results have the default placement, and one of the two victim
/// rules that were drawn.
pub fn draw_policy(rng: &mut Rng, properties: Properties) -> Properties {
    let (placement, victim_policy, victim_number) = (
        rng.between(1, u64::from(Properties::PLACEMENT_MAX)) as u8,
        rng.between(1, 6) as u8,
        rng.pick(&[0, 1, 3, 200]),
    );
    let victim_policy = if placement == 6 && rng.chance(700) {
        6
    } else {
        victim_policy
    };
    if rng.chance(400) {
        properties
    } else {
        Properties {
            placement,
            victim_policy,
            victim_number,
            ..properties
        }
    }
}

/// Changes the rates of rebuilds and the latency bound of reads: half of the results have the
/// defaults.
pub fn draw_rates(rng: &mut Rng, properties: Properties) -> Properties {
    // The members are small: a rebuild at the lowest rate takes minutes.
    let rebuild_rate_min = rng.pick(&[64 << 10, 1 << 20, 10 << 20, 1 << 30]);
    let rebuild_rate = rng.pick(&[0, rebuild_rate_min, 4 * rebuild_rate_min]);
    let read_latency_bound_ms = rng.pick(&[0, 1, 1, 5, 50, 1000]);
    if rng.chance(500) {
        properties
    } else {
        Properties {
            rebuild_rate,
            rebuild_rate_min,
            read_latency_bound_ms,
            ..properties
        }
    }
}

/// Draws the properties of a pool.
pub fn draw_properties(rng: &mut Rng) -> Properties {
    Properties {
        spare_per_mille: rng.pick(&[30, 50, 100, 250]),
        seal_age_ms: rng.pick(&[1, 5, 20, 100]),
        victim_policy: rng.below(2) as u8,
        discard: rng.chance(700),
        warn_at: rng.pick(&[[0; 4], [80, 90, 95, 0], [1, 2, 50, 100], [99, 0, 0, 0]]),
        ..Properties::DEFAULT
    }
}

/// Single blocks are overwritten at random, with few flushes.
fn overwriting_phase(rng: &mut Rng, phase: Phase) -> Phase {
    let (depth, burst) = (rng.between(1, 32), rng.between(1, 8));
    let weights = [
        1,
        95,
        0,
        0,
        rng.pick(&[0, 1, 4]),
        0,
        0,
        rng.pick(&[0, 0, 1]),
    ];
    Phase {
        requests_left: rng.between(200, 1500),
        depth,
        burst,
        weights,
        blocks_max: 1,
        unaligned_per_mille: 0,
        fill_per_mille: 0,
        hot_per_mille: 0,
        sequential: false,
        ..phase
    }
}

/// Database-like load: few blocks, often the same, and a flush after some of them.
fn synchronous_phase(rng: &mut Rng, phase: Phase) -> Phase {
    Phase {
        depth: rng.pick(&[1, 2, 8]),
        burst: rng.pick(&[1, 4]),
        weights: rng.pick(&[[5, 60, 0, 4, 30, 1, 0, 0], [5, 85, 0, 2, 8, 0, 1, 0]]),
        blocks_max: rng.pick(&[1, 2, 4]),
        unaligned_per_mille: 0,
        hot_per_mille: rng.pick(&[500, 800]),
        hot_blocks: rng.between(16, 200),
        sequential: false,
        ..phase
    }
}

fn draw_phase(rng: &mut Rng) -> Phase {
    let weights = match rng.below(8) {
        0 => [10, 80, 2, 2, 4, 1, 1, 0],
        1 => [40, 40, 5, 5, 5, 3, 2, 1],
        2 => [10, 30, 30, 15, 5, 5, 5, 1],
        3 => [5, 90, 0, 0, 0, 0, 0, 0],
        4 => [20, 60, 1, 1, 15, 1, 1, 1],
        5 => [70, 20, 2, 2, 2, 3, 1, 0],
        _ => [15, 75, 3, 2, 3, 1, 1, 0],
    };
    Phase {
        requests_left: rng.between(50, 600),
        depth: rng.pick(&[1, 2, 8, 16, 32, 64]),
        burst: rng.pick(&[1, 1, 4, 32]),
        weights,
        blocks_max: rng.pick(&[1, 2, 4, 16, 64]),
        unaligned_per_mille: rng.pick(&[0, 0, 50, 400]),
        fua_per_mille: rng.pick(&[0, 0, 20, 200]),
        fill_per_mille: rng.pick(&[0, 50, 300]),
        hot_per_mille: rng.pick(&[0, 0, 500, 950]),
        hot_blocks: rng.between(1, 64),
        sequential: rng.chance(150),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seed 1034808012 crashed the simulator with an overflow.
    #[test]
    fn a_phase_has_requests_in_the_smallest_pool_too() {
        for seed in 0..500 {
            let mut workload = Workload::new(seed, 1);
            assert!(
                (0..100).all(|_| workload.next_phase().requests_left > 0),
                "seed {seed}"
            );
        }
    }
}

//! Layers: usable segments while zones of several layouts describe the same bytes
//! (docs/internals/reshape.md).
//!
//! 1. No two segments in use share an extent.
//! 2. A segment of an older layout that becomes free by the reuse rule is not written again if a
//!    segment of the active layout can have its extents.
//! 3. A segment of the active layout is *shadowed* while a segment in use of an older layout shares
//!    an extent with it (its *blockers* are counted). It becomes free when the last blocker has
//!    gone; the rest of the older layouts in its extents is *retired* then.
//!
//! In zones with as many columns as members, each old segment shares its extents with one or two
//! new ones. It retires as soon as it is free. Zones with more members than columns rotate: a new
//! segment waits for several old ones. Until then the free ones among them are *idle*, and may be
//! taken after all others. So no free space is lost to a segment that cannot be used yet.
//!
//! **A member leaves** (docs/internals/reshape.md): segments of the active layout are smaller or
//! fewer.
//!
//! 4. They are activated by *groups*: segments of all layouts that are linked by shared extents.
//!    The segments of the active layout wait for all older ones of their group. So at any time a
//!    group has one layout or the other, and no extent is lost between the two.
//! 5. Segments of older layouts in whose extents the new one has nothing (*uncovered*: the rest of
//!    a large member whose peer leaves) may be taken like idle ones until they are retired, one by
//!    one.
//! 6. A segment of an older layout counts as full for cleaning when it holds as much as the active
//!    layout has in its extents: moving more would take more than it gives.
//!
//! Nothing of this is stored. It follows from the segments in use, so a crash cannot contradict it:
//! [`Segments::settle_layers`].

use super::{Segment, SegmentState, Segments};
use crate::store::plan::{Holding, payload_blocks};
use std::collections::BTreeSet;
use windrow_geometry::ZoneMap;
use windrow_policy::VictimIndex;
use windrow_types::{BatchSeq, FULL_BLOCK_UNITS, Lsn, SegmentId};

/// State of the layers.
#[derive(Debug)]
pub(super) struct Layers {
    zones: ZoneMap,
    newest: u32,
    /// For each segment of the active layout, the number of segments in use of older layouts that
    /// share an extent with it.
    blockers: Vec<u32>,
    /// Idle segments: they may be taken.
    idle: BTreeSet<SegmentId>,
    /// Segments of older layouts that are in use.
    older: BTreeSet<SegmentId>,
    /// While a member leaves: the groups in which segments are activated.
    groups: Option<Groups>,
}

/// Groups of segments that are linked by shared extents.
#[derive(Debug)]
struct Groups {
    /// Group of each segment.
    of: Vec<u32>,
    /// Segments of the active layout in each group, and those of older ones.
    newest: Vec<Vec<SegmentId>>,
    older: Vec<Vec<SegmentId>>,
}

impl Groups {
    fn new(zones: &ZoneMap) -> Self {
        let count = zones.segment_count() as usize;
        let newest = zones.layout();
        let mut groups = Self {
            of: vec![u32::MAX; count],
            newest: Vec::new(),
            older: Vec::new(),
        };
        for first in zones.segments() {
            if groups.of[first.index()] != u32::MAX {
                continue;
            }
            let group = groups.newest.len() as u32;
            groups.newest.push(Vec::new());
            groups.older.push(Vec::new());
            groups.of[first.index()] = group;
            let mut open = vec![first];
            while let Some(id) = open.pop() {
                let list = if zones.zone(id).layout == newest {
                    &mut groups.newest
                } else {
                    &mut groups.older
                };
                list[group as usize].push(id);
                for over in zones.overlapping(id) {
                    if groups.of[over.index()] == u32::MAX {
                        groups.of[over.index()] = group;
                        open.push(over);
                    }
                }
            }
        }
        groups
    }

    fn newest(&self, id: SegmentId) -> &[SegmentId] {
        &self.newest[self.of[id.index()] as usize]
    }

    fn older(&self, id: SegmentId) -> &[SegmentId] {
        &self.older[self.of[id.index()] as usize]
    }
}

/// Number of older segments in the largest group of these zones, while a member leaves. All of them
/// must be empty before any segment of the active layout may be used there.
pub(crate) fn largest_group(zones: &ZoneMap) -> usize {
    Groups::new(zones)
        .older
        .iter()
        .map(Vec::len)
        .max()
        .unwrap_or(0)
}

/// Payload of the active layout in the extents of a segment of an older one, in blocks.
fn given(zones: &ZoneMap, id: SegmentId) -> u64 {
    let newest = zones.layout();
    let of =
        |over: SegmentId| payload_blocks(zones.shape(over)) / u64::from(zones.shape(over).width);
    zones
        .sharing(id)
        .into_iter()
        .filter(|over| zones.zone(*over).layout == newest)
        .map(of)
        .sum()
}

impl Layers {
    fn is_newest(&self, id: SegmentId) -> bool {
        self.zones.zone(id).layout == self.newest
    }

    /// Segments of the active layout that wait for this one of an older layout.
    fn newest_over(&self, id: SegmentId) -> Vec<SegmentId> {
        if let Some(groups) = &self.groups {
            return groups.newest(id).to_vec();
        }
        let mut over = self.zones.overlapping(id);
        over.retain(|other| self.is_newest(*other));
        over
    }
}

/// A segment of `rows` rows that was never written.
fn fresh(rows: u32, state: SegmentState) -> Segment {
    Segment {
        state,
        stream: 0,
        live_units: 0,
        live_compressed: 0,
        filled_rows: 0,
        uncommitted: 0,
        pins: 0,
        last_checkpoint: 0,
        sealed_at: 0,
        sealed_user: 0,
        opened_user: 0,
        tag: 0,
        last_seq: BatchSeq(0),
        superseded_by: Lsn(0),
        moved_by: BatchSeq(0),
        stale: 0,
        touched: false,
        tried: false,
        damaged: false,
        dirty: false,
        starts: vec![0; rows.div_ceil(64) as usize].into_boxed_slice(),
    }
}

impl Segments {
    /// Makes the tables fit these zones. New segments are free; others keep their state.
    pub(super) fn resize(&mut self, zones: &ZoneMap) {
        let count = zones.segment_count().max(self.count());
        let rows = |id: SegmentId| {
            if zones.contains(id) {
                zones.shape(id).rows
            } else {
                0
            }
        };
        for id in (0..count).map(SegmentId) {
            let words = rows(id).div_ceil(64) as usize;
            if self
                .table
                .get(id.index())
                .is_none_or(|s| s.starts.len() != words)
            {
                let state = if words == 0 {
                    SegmentState::Retired
                } else {
                    SegmentState::Free
                };
                let segment = fresh(rows(id), state);
                if id.0 == self.count() {
                    self.table.push(segment)
                } else {
                    self.table[id.index()] = segment
                }
            }
        }
        let units = |blocks: u64| (blocks * u64::from(FULL_BLOCK_UNITS)) as u32;
        // Payload of a segment of full batches, without headers: a segment with that much live data
        // is not worth cleaning.
        let leaves = zones.leaving() != 0;
        let capacity = |id: SegmentId| match zones.contains(id) {
            false => 0,
            true if leaves && zones.zone(id).layout != zones.layout() => {
                units(given(zones, id).min(payload_blocks(zones.shape(id)))).max(1)
            }
            true => units(payload_blocks(zones.shape(id))),
        };
        self.capacities = (0..count).map(SegmentId).map(capacity).collect();
        self.victims =
            VictimIndex::new(count, units(zones.max_data_blocks()), self.victims.policy());
    }

    /// Adopts changed zones of the pool: a layout was added, or old ones without segments in use
    /// were dropped.
    pub fn lay_over(&mut self, zones: &ZoneMap) {
        self.resize(zones);
        self.young.clear();
        for id in zones.segments() {
            if self.table[id.index()].state == SegmentState::Sealed {
                self.make_candidate(id);
            }
        }
        self.settle_layers(zones);
    }

    /// Determines the usable segments from those in use.
    pub(super) fn settle_layers(&mut self, zones: &ZoneMap) {
        self.free.clear();
        let newest = zones.layout();
        let mut layers = Layers {
            zones: zones.clone(),
            newest,
            blockers: vec![0; self.table.len()],
            idle: BTreeSet::new(),
            older: BTreeSet::new(),
            groups: (zones.leaving() != 0).then(|| Groups::new(zones)),
        };
        for id in (0..self.count()).map(SegmentId) {
            let in_use = self.table[id.index()].state.is_in_use();
            if !zones.contains(id) {
                self.table[id.index()].state = SegmentState::Retired;
            } else if zones.zone(id).layout == newest {
                continue;
            } else if in_use {
                layers.older.insert(id);
                layers
                    .newest_over(id)
                    .into_iter()
                    .for_each(|over| layers.blockers[over.index()] += 1);
            } else {
                self.empty(id, SegmentState::Idle);
            }
        }
        let superseded = zones.has_superseded();
        let blocked: Vec<bool> = layers
            .blockers
            .iter()
            .map(|blockers| *blockers > 0)
            .collect();
        self.layers = superseded.then(|| Box::new(layers));
        for id in zones
            .segments()
            .filter(|id| zones.zone(*id).layout == newest)
        {
            match self.table[id.index()].state.is_in_use() {
                true => self.retire_under(id),
                false if blocked[id.index()] => {
                    self.table[id.index()].state = SegmentState::Shadowed
                }
                false => self.convert(id),
            }
        }
        for id in zones.segments().filter(|_| superseded) {
            if self.table[id.index()].state == SegmentState::Idle {
                self.park(id);
            }
        }
    }

    /// True if a segment only seems to be dead (recovery): another one has been written over it
    /// since, so it had satisfied the reuse rule. The table is older and does not show that; and
    /// after a start it is unknown when shared content lost its last reference. No replay needs it:
    /// its last batch is older than the kept checkpoints. The segment written over it is of a newer
    /// layout, or one that replay does need, as free segments of older layouts may be taken again.
    pub(super) fn is_overwritten(&self, id: SegmentId, zones: &ZoneMap) -> bool {
        let segment = &self.table[id.index()];
        let is_later = |other: &SegmentId| {
            let over = &self.table[other.index()];
            over.state.is_in_use()
                && (zones.zone(*other).layout > zones.zone(id).layout
                    || over.last_checkpoint >= self.oldest_checkpoint)
        };
        segment.state == SegmentState::Dead
            && segment.last_checkpoint < self.oldest_checkpoint
            && zones.contains(id)
            && zones.overlapping(id).iter().any(is_later)
    }

    /// Notes that a segment of an older layout is no longer in use.
    fn empty(&mut self, id: SegmentId, state: SegmentState) {
        let segment = &mut self.table[id.index()];
        segment.state = state;
        segment.stale = 0;
        if segment.filled_rows > 0 {
            segment.filled_rows = 0;
            self.mark_dirty(id);
        }
    }

    /// Gives a segment of the active layout its extents.
    fn convert(&mut self, id: SegmentId) {
        self.table[id.index()].state = SegmentState::Free;
        self.free.push_back(id);
        self.retire_under(id);
    }

    /// Retires free segments in the extents of a segment that is free or in use.
    fn retire_under(&mut self, id: SegmentId) {
        let Some(layers) = &mut self.layers else {
            return;
        };
        for under in layers.zones.overlapping(id) {
            if self.table[under.index()].state == SegmentState::Idle {
                self.table[under.index()].state = SegmentState::Retired;
                layers.idle.remove(&under);
            }
        }
    }

    /// Makes an idle segment that gave nothing to the active layout available, if it may be taken.
    fn park(&mut self, id: SegmentId) {
        let Some(layers) = &mut self.layers else {
            return;
        };
        let over = layers.zones.overlapping(id);
        // One of its extents may be in use by a third layout, or wait in another idle segment.
        let taken = over.iter().any(|other| {
            self.table[other.index()].state.is_in_use() || layers.idle.contains(other)
        });
        if taken || (layers.groups.is_none() && !over.iter().any(|other| layers.is_newest(*other)))
        {
            self.table[id.index()].state = SegmentState::Retired;
        } else {
            layers.idle.insert(id);
        }
    }

    /// Frees a segment that satisfies the reuse rule and whose discards are done.
    pub(super) fn set_free(&mut self, id: SegmentId) {
        let Some(layers) = &mut self.layers else {
            return self.convert(id);
        };
        if layers.is_newest(id) {
            // Only a salvage of the map can leave it with data of an older layout in its extents.
            return if layers.blockers[id.index()] == 0 {
                self.convert(id)
            } else {
                self.table[id.index()].state = SegmentState::Shadowed
            };
        }
        layers.older.remove(&id);
        let over = layers.newest_over(id);
        let mut unblocked = Vec::with_capacity(over.len());
        for over in over {
            layers.blockers[over.index()] -= 1;
            if layers.blockers[over.index()] == 0
                && self.table[over.index()].state == SegmentState::Shadowed
            {
                unblocked.push(over);
            }
        }
        self.empty(id, SegmentState::Idle);
        unblocked.into_iter().for_each(|over| self.convert(over));
        if self.table[id.index()].state == SegmentState::Idle {
            self.park(id);
        }
    }

    /// Takes a free segment of an older layout, because none of the active layout is free.
    pub(super) fn take_idle(&mut self) -> Option<SegmentId> {
        let layers = self.layers.as_mut()?;
        // The last one: they are emptied from the first on.
        let id = layers.idle.pop_last()?;
        layers.older.insert(id);
        for over in layers.newest_over(id) {
            layers.blockers[over.index()] += 1;
        }
        Some(id)
    }

    /// Returns an unused segment that was reserved for a stream.
    pub fn give_back(&mut self, id: SegmentId) {
        debug_assert_eq!(self.table[id.index()].state, SegmentState::Reserved);
        self.set_free(id);
    }

    /// True if a member leaves and the active layout has nothing in the extents of this segment.
    pub fn is_uncovered(&self, id: SegmentId) -> bool {
        let groups = self
            .layers
            .as_ref()
            .and_then(|layers| layers.groups.as_ref());
        groups.is_some_and(|groups| groups.newest(id).is_empty())
    }

    /// Retires a free segment in whose extents the active layout has nothing. False if there is
    /// none.
    pub fn give_up_idle(&mut self) -> bool {
        let Some(id) = self
            .layers
            .iter()
            .flat_map(|layers| layers.idle.iter().copied())
            .find(|id| self.is_uncovered(*id))
        else {
            return false;
        };
        self.layers
            .iter_mut()
            .for_each(|layers| _ = layers.idle.remove(&id));
        self.table[id.index()].state = SegmentState::Retired;
        true
    }

    /// Units that a segment of an older layout gives to the active layout, less those that its
    /// moves take: the gain of moving it.
    pub fn gain(&self, id: SegmentId) -> i64 {
        i64::from(self.capacities[id.index()]) - i64::from(self.table[id.index()].weight())
    }

    pub(super) fn idle_count(&self) -> usize {
        self.layers.as_ref().map_or(0, |layers| layers.idle.len())
    }

    /// Number of segments of older layouts that are in use, or may be again.
    pub fn older_count(&self) -> u32 {
        self.layers
            .as_ref()
            .map_or(0, |layers| (layers.older.len() + layers.idle.len()) as u32)
    }

    /// True if there are older layouts in addition to the active one.
    pub fn has_layers(&self) -> bool {
        self.layers.is_some()
    }

    /// Segments of older layouts that are in use.
    pub fn older(&self) -> impl Iterator<Item = SegmentId> + '_ {
        self.layers
            .iter()
            .flat_map(|layers| layers.older.iter().copied())
    }

    /// Segments that data may be written to: all except shadowed and retired ones.
    pub(crate) fn holdings(&self, zones: &ZoneMap) -> Vec<Holding> {
        let usable = |id: &u32| {
            !matches!(
                self.table[*id as usize].state,
                SegmentState::Shadowed | SegmentState::Retired
            )
        };
        let segments = |first: u32, end: u32| (first..end).filter(usable).count() as u32;
        zones
            .zones()
            .iter()
            .map(|z| Holding {
                shape: z.shape,
                segments: segments(z.first_segment, z.end_segment()),
            })
            .collect()
    }

    /// True if it may be cleaned now.
    pub fn is_candidate(&self, id: SegmentId) -> bool {
        self.table[id.index()].state == SegmentState::Sealed && self.victims.get(id.0).is_some()
    }

    /// Takes this candidate for cleaning; false if it is not a candidate.
    pub fn take_candidate(&mut self, id: SegmentId) -> bool {
        let taken = self.is_candidate(id);
        if taken {
            self.victims.remove(id.0);
            self.table[id.index()].state = SegmentState::Cleaning;
        }
        taken
    }

    /// True if a checkpoint would bring it nearer to being free.
    pub fn waits_for_checkpoint(&self, id: SegmentId) -> bool {
        let s = &self.table[id.index()];
        match s.state {
            SegmentState::Sealed => self.victims.get(id.0).is_none(),
            SegmentState::Dead => s.last_checkpoint >= self.oldest_checkpoint,
            SegmentState::Quarantined => self.holds_pages(id),
            _ => false,
        }
    }

    /// Checks rule 1 and all counts.
    pub(super) fn check_layers(&self) -> Result<(), String> {
        let Some(layers) = &self.layers else {
            let odd = |s: &Segment| {
                matches!(s.state, SegmentState::Shadowed | SegmentState::Idle)
                    || (s.state == SegmentState::Retired && !s.starts.is_empty())
            };
            return self.table.iter().position(odd).map_or(Ok(()), |index| {
                Err(format!(
                    "segment {index} has a state of layers, and there are none"
                ))
            });
        };
        for id in layers.zones.segments() {
            let state = self.table[id.index()].state;
            let (newest, over) = (layers.is_newest(id), layers.zones.overlapping(id));
            let used = over
                .iter()
                .filter(|other| self.table[other.index()].state.is_in_use());
            let in_use = |other: &&SegmentId| self.table[other.index()].state.is_in_use();
            let blockers = match &layers.groups {
                Some(groups) if newest => groups.older(id).iter().filter(in_use).count(),
                _ => used
                    .clone()
                    .filter(|other| !layers.is_newest(**other))
                    .count(),
            };
            let right = match state {
                SegmentState::Shadowed => newest && blockers > 0,
                SegmentState::Free => newest && blockers == 0,
                SegmentState::Idle => !newest && layers.idle.contains(&id) && used.count() == 0,
                SegmentState::Retired => !newest,
                _ => used.count() == 0 && newest != layers.older.contains(&id),
            };
            if !right || (newest && blockers != layers.blockers[id.index()] as usize) {
                return Err(format!(
                    "segment {id} of layout {} is {state:?} with {blockers} blockers over {over:?}",
                    layers.zones.zone(id).layout
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

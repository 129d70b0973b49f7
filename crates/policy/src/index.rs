//! Index of the sealed segments in order of their value as victims.
//!
//! 1. Every segment is in one bucket by its utilisation: bucket 0 holds the empty ones, the last
//!    bucket the full ones (which are never offered), those between hold equal steps. Buckets are
//!    doubly linked lists through arrays indexed by segment.
//! 2. A tree of bit sets (64 buckets to a word, 64 words to a word above) marks the buckets that
//!    are not empty, so the lowest is found in three steps.
//! 3. When a live count falls without leaving its bucket, only the count is stored; else the
//!    segment changes lists: O(1).
//! 4. *Greedy* takes the lowest bucket and in it the exact minimum. If buckets are single live
//!    counts and capacities are equal that is the first segment, otherwise the bucket is scanned.
//!    Wide buckets make updates cheaper (one per block written) and victims more expensive (one per
//!    segment); [`SEGMENTS_PER_BUCKET`] balances them.
//! 5. *Cost-benefit* depends on age, so its order changes without any update. For equal utilisation
//!    the older segment wins; buckets (then [`CLASSES`] of them) keep the older segments near the
//!    front, and the first [`CANDIDATES`] of each are scored: work is bounded, whatever the number
//!    of segments.
//!
//! Ties go to the segment that has been longest in its bucket. All memory is allocated at
//! construction. [`VictimIndex::new_lazy`] gives the same greedy victims with less work for each
//! block and an occasional scan of all segments (`far.rs`).

use crate::victim::{SegmentStats, cost_benefit};
use bits::BucketBits;
use far::{FAR, Near};

mod bits;
mod far;

/// Rule that selects the next victim.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum VictimPolicy {
    /// The one with the least live share.
    #[default]
    Greedy,
    /// The one with the highest [`cost_benefit`].
    CostBenefit,
}

impl VictimPolicy {
    /// Its name in properties and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Greedy => "greedy",
            Self::CostBenefit => "cost-benefit",
        }
    }
}

/// Segments per bucket of the greedy policy, within [`BUCKETS_MIN`] and [`BUCKETS_MAX`].
pub const SEGMENTS_PER_BUCKET: u32 = 64;
/// Minimum number of buckets of the greedy policy between the empty and the full one.
pub const BUCKETS_MIN: u32 = 1 << 10;
/// Maximum number of buckets of the greedy policy between the empty and the full one.
pub const BUCKETS_MAX: u32 = 1 << 16;
/// Maximum number of utilisation classes of the cost-benefit policy between the empty and the full
/// one.
pub const CLASSES: u32 = 128;
/// Number of segments of each class that the cost-benefit policy scores.
pub const CANDIDATES: usize = 16;

const NONE: u32 = u32::MAX;

/// A list's ends.
#[derive(Clone, Copy)]
struct Bucket {
    first: u32,
    last: u32,
}

const EMPTY: Bucket = Bucket {
    first: NONE,
    last: NONE,
};

/// A segment's links and numbers; `bucket` is `NONE` while it is not in the index.
#[derive(Clone, Copy)]
struct Node {
    previous: u32,
    next: u32,
    bucket: u32,
    live_units: u32,
    capacity_units: u32,
    /// Time at which it entered its bucket, see `far.rs`.
    stamp: u32,
    sealed_at: u64,
}

const ABSENT: Node = Node {
    previous: NONE,
    next: NONE,
    bucket: NONE,
    live_units: 0,
    capacity_units: 1,
    stamp: 0,
    sealed_at: 0,
};

impl Node {
    fn stats(&self) -> SegmentStats {
        SegmentStats {
            live_units: self.live_units,
            capacity_units: self.capacity_units,
            sealed_at: self.sealed_at,
        }
    }
}

/// Finds the best victim among sealed segments.
pub struct VictimIndex {
    policy: VictimPolicy,
    capacity_units_max: u32,
    /// Live counts (of a segment of the largest capacity) per bucket, as a shift.
    shift: u32,
    /// The bucket of full segments: the last one in use.
    full_bucket: u32,
    nodes: Vec<Node>,
    buckets: Vec<Bucket>,
    occupied: BucketBits,
    len: u32,
    /// Number of indexed segments below the largest capacity; their bucket gives their utilisation
    /// only roughly.
    smaller: u32,
    near: Near,
}

impl VictimIndex {
    /// An empty index for segments `0 .. segments` of at most `capacity_units_max` units. Takes 32
    /// bytes for each segment and 8 bytes for each bucket.
    pub fn new(segments: u32, capacity_units_max: u32, policy: VictimPolicy) -> Self {
        Self::build(segments, capacity_units_max, policy, false)
    }

    /// Same victims in the same order in less time, except that occasional calls take time in
    /// proportion to the number of segments. For callers that tolerate a pause; only greedy gains.
    pub fn new_lazy(segments: u32, capacity_units_max: u32, policy: VictimPolicy) -> Self {
        Self::build(segments, capacity_units_max, policy, true)
    }

    fn build(segments: u32, capacity_units_max: u32, policy: VictimPolicy, lazy: bool) -> Self {
        let buckets = greedy_buckets(segments).max(CLASSES) + 3;
        let mut index = Self {
            policy,
            capacity_units_max,
            shift: 0,
            full_bucket: 0,
            nodes: vec![ABSENT; segments as usize],
            buckets: vec![EMPTY; buckets as usize],
            occupied: BucketBits::new(buckets),
            len: 0,
            smaller: 0,
            near: Near::new(lazy),
        };
        index.set_policy(policy);
        index
    }

    /// The policy.
    pub fn policy(&self) -> VictimPolicy {
        self.policy
    }

    /// Changes the policy and sorts all segments again; the one call that takes time in proportion
    /// to their number.
    pub fn set_policy(&mut self, policy: VictimPolicy) {
        self.policy = policy;
        let buckets_max = match policy {
            VictimPolicy::Greedy => greedy_buckets(self.nodes.len() as u32),
            VictimPolicy::CostBenefit => CLASSES,
        };
        self.shift = shift_for(self.capacity_units_max, buckets_max);
        self.full_bucket = full_bucket(self.capacity_units_max, self.shift);
        self.buckets.fill(EMPTY);
        self.occupied.clear();
        self.near.reset(policy);
        for segment in 0..self.nodes.len() as u32 {
            if self.nodes[segment as usize].bucket != NONE {
                self.sort_in(segment);
            }
        }
        self.raise_bound();
    }

    /// The largest capacity, as given at construction.
    pub fn capacity_units_max(&self) -> u32 {
        self.capacity_units_max
    }

    /// Number of segments in the index.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// True if no segment is in the index.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Numbers of a segment, if it is in the index.
    pub fn get(&self, segment: u32) -> Option<SegmentStats> {
        self.nodes
            .get(segment as usize)
            .filter(|node| node.bucket != NONE)
            .map(Node::stats)
    }

    /// Adds a sealed segment; if it is in the index already, its numbers are replaced.
    ///
    /// # Panics
    /// If the segment is out of the range given at construction, or its capacity is 0 or above the
    /// largest.
    pub fn insert(&mut self, segment: u32, stats: SegmentStats) {
        assert!(
            (1..=self.capacity_units_max).contains(&stats.capacity_units),
            "capacity {} of segment {segment}",
            stats.capacity_units
        );
        self.remove(segment);
        let SegmentStats {
            live_units,
            capacity_units,
            sealed_at,
        } = stats;
        self.nodes[segment as usize] = Node {
            live_units,
            capacity_units,
            sealed_at,
            ..ABSENT
        };
        self.len += 1;
        self.smaller += u32::from(capacity_units != self.capacity_units_max);
        self.sort_in(segment);
        self.raise_bound();
    }

    /// Stores a new live count. Returns `false` and changes nothing for a segment that is not in
    /// the index (open, or being cleaned).
    #[inline]
    pub fn update(&mut self, segment: u32, live_units: u32) -> bool {
        let node = match self.nodes.get_mut(segment as usize) {
            Some(node) if node.bucket != NONE => node,
            _ => return false,
        };
        let (old, live_before, capacity_units) =
            (node.bucket, node.live_units, node.capacity_units);
        node.live_units = live_units;
        let new = self.bucket_of(live_units, capacity_units);
        if old == FAR {
            let before = self.bucket_of(live_before, capacity_units);
            if new != before {
                self.move_beyond(segment, before, new);
            }
        } else if old != new {
            self.unlink(segment);
            self.sort_in(segment);
            self.raise_bound();
        }
        true
    }

    /// Takes a segment out and returns its numbers, if it was in.
    pub fn remove(&mut self, segment: u32) -> Option<SegmentStats> {
        let stats = self.get(segment)?;
        match self.nodes[segment as usize].bucket {
            FAR => {
                self.near.beyond -= u32::from(
                    self.bucket_of(stats.live_units, stats.capacity_units) < self.full_bucket,
                )
            }
            _ => self.unlink(segment),
        }
        self.nodes[segment as usize].bucket = NONE;
        self.len -= 1;
        self.smaller -= u32::from(stats.capacity_units != self.capacity_units_max);
        self.raise_bound();
        Some(stats)
    }

    /// Best victim at time `now` (on the clock of `sealed_at`; greedy ignores it). Full segments
    /// are never offered.
    pub fn peek_best(&self, now: u64) -> Option<(u32, SegmentStats)> {
        let lowest = self
            .occupied
            .next_from(0)
            .filter(|bucket| *bucket < self.full_bucket)?;
        let segment = match self.policy {
            _ if lowest == 0 => self.buckets[0].first,
            VictimPolicy::Greedy => self.least_utilised(lowest),
            VictimPolicy::CostBenefit => self.best_score(lowest, now),
        };
        Some((segment, self.nodes[segment as usize].stats()))
    }

    /// Takes the best victim out.
    pub fn pop_best(&mut self, now: u64) -> Option<(u32, SegmentStats)> {
        let (segment, stats) = self.peek_best(now)?;
        self.remove(segment);
        Some((segment, stats))
    }

    /// Checks every link, bit and count; for tests and the engine's own self-check. Takes time in
    /// proportion to the number of segments.
    ///
    /// # Errors
    /// Description of the inconsistency.
    pub fn self_check(&self) -> Result<(), String> {
        let mut found = 0;
        for (number, bucket) in self.buckets.iter().enumerate() {
            if self.occupied.contains(number as u32) != (bucket.first != NONE) {
                return Err(format!("bit of bucket {number}"));
            }
            let (mut previous, mut at) = (NONE, bucket.first);
            while at != NONE {
                let node = self
                    .nodes
                    .get(at as usize)
                    .ok_or_else(|| format!("link to segment {at}"))?;
                let right = self.bucket_of(node.live_units, node.capacity_units);
                if node.bucket != number as u32
                    || right != number as u32
                    || node.previous != previous
                    || found == self.len
                {
                    return Err(format!(
                        "segment {at} in bucket {number}, belongs in {right}"
                    ));
                }
                found += 1;
                (previous, at) = (at, node.next);
            }
            if bucket.last != previous {
                return Err(format!("end of bucket {number}"));
            }
        }
        let present = self.nodes.iter().filter(|node| node.bucket != NONE);
        let smaller = present
            .clone()
            .filter(|node| node.capacity_units != self.capacity_units_max)
            .count();
        match (
            present.count() == self.len as usize,
            found == self.near.len,
            smaller == self.smaller as usize,
        ) {
            (true, true, true) => self.check_bound(),
            _ => Err(format!("{found} segments linked, {} counted", self.len)),
        }
    }

    /// Segment of exactly the least utilisation in a bucket that is not empty.
    fn least_utilised(&self, bucket: u32) -> u32 {
        let mut best = self.buckets[bucket as usize].first;
        if self.shift == 0 && self.smaller == 0 {
            return best;
        }
        let mut least = self.nodes[best as usize].stats();
        let mut at = self.nodes[best as usize].next;
        while at != NONE {
            let stats = self.nodes[at as usize].stats();
            if stats.compare_utilisation(&least).is_lt() {
                (best, least) = (at, stats);
            }
            at = self.nodes[at as usize].next;
        }
        best
    }

    /// Highest score among the first segments of each class from `lowest` on.
    fn best_score(&self, lowest: u32, now: u64) -> u32 {
        let mut best = (self.buckets[lowest as usize].first, f64::NEG_INFINITY);
        let mut class = Some(lowest);
        while let Some(bucket) = class.filter(|bucket| *bucket < self.full_bucket) {
            let mut at = self.buckets[bucket as usize].first;
            for _ in 0..CANDIDATES {
                if at == NONE {
                    break;
                }
                let node = &self.nodes[at as usize];
                let score = cost_benefit(&node.stats(), now);
                if score > best.1 {
                    best = (at, score);
                }
                at = node.next;
            }
            class = self.occupied.next_from(bucket + 1);
        }
        best.0
    }

    #[inline]
    fn bucket_of(&self, live_units: u32, capacity_units: u32) -> u32 {
        if live_units == 0 {
            return 0;
        }
        if live_units >= capacity_units {
            return self.full_bucket;
        }
        let scaled = match capacity_units == self.capacity_units_max {
            true => live_units,
            // Below the largest capacity, because live is below this segment's.
            false => {
                (u64::from(live_units) * u64::from(self.capacity_units_max)
                    / u64::from(capacity_units)) as u32
            }
        };
        1 + (scaled >> self.shift)
    }

    /// Moves a node beyond the bound from one bucket to another. This is nearly every update, so it
    /// is short.
    #[inline]
    fn move_beyond(&mut self, segment: u32, before: u32, new: u32) {
        self.near.beyond -= u32::from(before < self.full_bucket);
        if new < self.near.below || self.near.len == 0 {
            self.sort_in(segment);
            self.lower_bound();
            self.raise_bound();
        } else {
            self.nodes[segment as usize].stamp = self.near.stamp();
            self.near.beyond += u32::from(new < self.full_bucket);
        }
    }

    /// Puts an unlinked, uncounted node where its numbers belong: into a list, or beyond the bound.
    fn sort_in(&mut self, segment: u32) {
        let stamp = self.near.stamp();
        let node = &mut self.nodes[segment as usize];
        (node.stamp, node.bucket) = (stamp, FAR);
        let node = *node;
        let bucket = self.bucket_of(node.live_units, node.capacity_units);
        if bucket < self.near.below {
            self.link(segment);
        } else {
            self.near.beyond += u32::from(bucket < self.full_bucket);
        }
    }

    /// Puts an unlinked node into the list that its numbers belong to.
    fn link(&mut self, segment: u32) {
        let node = self.nodes[segment as usize];
        let number = self.bucket_of(node.live_units, node.capacity_units);
        let next = match self.policy {
            VictimPolicy::Greedy => NONE,
            VictimPolicy::CostBenefit => {
                self.younger_in(self.buckets[number as usize], node.sealed_at)
            }
        };
        let previous = if next == NONE {
            self.buckets[number as usize].last
        } else {
            self.nodes[next as usize].previous
        };
        self.nodes[segment as usize] = Node {
            previous,
            next,
            bucket: number,
            ..node
        };
        self.near.len += 1;
        self.join(previous, segment, number);
        self.join(segment, next, number);
        self.occupied.insert(number);
    }

    /// Successor in a list for a segment of this age; `NONE` for the end. Looks only at the first
    /// and the last few, so a list is roughly in order of age. Otherwise a cold segment that decays
    /// slowly would follow young ones that decayed quickly.
    fn younger_in(&self, bucket: Bucket, sealed_at: u64) -> u32 {
        let is_younger =
            |segment: u32| segment != NONE && self.nodes[segment as usize].sealed_at > sealed_at;
        let mut at = bucket.first;
        for _ in 0..CANDIDATES {
            if at == NONE || is_younger(at) {
                return at;
            }
            at = self.nodes[at as usize].next;
        }
        let (mut before, mut at) = (NONE, bucket.last);
        for _ in 0..CANDIDATES {
            if !is_younger(at) {
                break;
            }
            (before, at) = (at, self.nodes[at as usize].previous);
        }
        before
    }

    /// Unlinks a node from its list. Its own links keep their values.
    fn unlink(&mut self, segment: u32) {
        let Node {
            previous,
            next,
            bucket,
            ..
        } = self.nodes[segment as usize];
        self.near.len -= 1;
        self.join(previous, next, bucket);
        if previous == NONE && next == NONE {
            self.buckets[bucket as usize] = EMPTY;
            self.occupied.remove(bucket);
        }
    }

    /// Makes two nodes neighbours; `NONE` on one side makes the other an end of the list.
    fn join(&mut self, left: u32, right: u32, bucket: u32) {
        match left {
            NONE => self.buckets[bucket as usize].first = right,
            _ => self.nodes[left as usize].next = right,
        }
        match right {
            NONE => self.buckets[bucket as usize].last = left,
            _ => self.nodes[right as usize].previous = left,
        }
    }
}

/// Maximum number of buckets between the empty and the full one for this many segments.
fn greedy_buckets(segments: u32) -> u32 {
    (segments / SEGMENTS_PER_BUCKET).clamp(BUCKETS_MIN, BUCKETS_MAX)
}

/// Smallest shift with which the live counts of segments that are neither empty nor full need at
/// most `buckets_max` buckets.
fn shift_for(capacity_units_max: u32, buckets_max: u32) -> u32 {
    let counts = capacity_units_max.saturating_sub(1);
    (0..32)
        .find(|shift| counts >> shift < buckets_max)
        .unwrap_or(31)
}

/// The bucket of full segments: after the empty one and those for `0 ..= (capacity - 1) >> shift`.
fn full_bucket(capacity_units_max: u32, shift: u32) -> u32 {
    2 + (capacity_units_max.saturating_sub(1) >> shift)
}

impl std::fmt::Debug for VictimIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "VictimIndex({} segments, {})",
            self.len,
            self.policy.name()
        )
    }
}

#[cfg(test)]
mod tests;

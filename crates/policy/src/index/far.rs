//! Segments that are far from being cleaned, without a list.
//!
//! Nearly every block that dies lies in a segment that will not be cleaned soon. A lazy index
//! ([`VictimIndex::new_lazy`], greedy only) keeps lists only for the buckets below `near_below`. A
//! segment beyond stores only its numbers, which is one memory write instead of six, and a stamp of
//! its entry into its bucket.
//!
//! 1. Every segment below the bound is in a list; every other is marked [`FAR`]. If any segment can
//!    be offered, one is below the bound. The best is therefore found as without a bound, and
//!    [`VictimIndex::peek_best`] needs no change.
//! 2. When the last segment below the bound leaves, all segments are scanned once and the bound is
//!    raised, so that about one in sixteen is below it ([`VictimIndex::raise_bound`]). They enter
//!    their lists in stamp order: ties go to the same segment as with lists for all.
//! 3. When more than one in eight is below the bound, it is lowered.
//!
//! In a steady load as many segments fall below the bound as are cleaned, and it stays where it is.

use super::{EMPTY, NONE, VictimIndex, VictimPolicy};

/// Bucket of a segment that is in no list. [`NONE`] means that it is not in the index at all.
pub(super) const FAR: u32 = NONE - 1;

/// Bound of the lists.
pub(super) struct Near {
    /// Buckets below it are lists; [`FAR`]: all are.
    pub(super) below: u32,
    /// Segments in them.
    pub(super) len: u32,
    /// Number of segments beyond the bound that are not full.
    pub(super) beyond: u32,
    /// Number of buckets that the bound is raised by beyond the first nonempty one.
    width: u32,
    /// Next stamp. It wraps: segments without deaths for 2^32 deaths may lose a tie that they
    /// should win.
    clock: u32,
    lazy: bool,
}

impl Near {
    pub(super) fn new(lazy: bool) -> Self {
        Self {
            below: FAR,
            len: 0,
            beyond: 0,
            width: 1,
            clock: 0,
            lazy,
        }
    }

    /// Resets the bound for this policy after all segments have been unlinked.
    pub(super) fn reset(&mut self, policy: VictimPolicy) {
        self.below = if self.lazy && policy == VictimPolicy::Greedy {
            0
        } else {
            FAR
        };
        (self.len, self.beyond) = (0, 0);
    }

    /// True if all segments have lists.
    fn has_no_bound(&self) -> bool {
        self.below == FAR
    }

    pub(super) fn stamp(&mut self) -> u32 {
        self.clock = self.clock.wrapping_add(1);
        self.clock
    }
}

impl VictimIndex {
    /// Raises the bound when nothing is below it, if any segment beyond can be offered. Takes time
    /// in proportion to the number of segments.
    pub(super) fn raise_bound(&mut self) {
        if self.near.len > 0 || self.near.beyond == 0 {
            return;
        }
        let bucket_of = |index: &Self, segment: u32| {
            let node = &index.nodes[segment as usize];
            (node.bucket == FAR)
                .then(|| index.bucket_of(node.live_units, node.capacity_units))
                .filter(|bucket| *bucket < index.full_bucket)
        };
        let segments = self.nodes.len() as u32;
        let Some(lowest) = (0..segments)
            .filter_map(|segment| bucket_of(self, segment))
            .min()
        else {
            return;
        };
        self.near.below = (lowest + self.near.width).min(self.full_bucket);
        let (mut chain, mut found) = (NONE, 0);
        for segment in 0..segments {
            if bucket_of(self, segment).is_some_and(|bucket| bucket < self.near.below) {
                self.nodes[segment as usize].next = chain;
                (chain, found) = (segment, found + 1);
            }
        }
        let mut at = self.sorted_by_stamp(chain);
        while at != NONE {
            let next = self.nodes[at as usize].next;
            self.link(at);
            at = next;
        }
        self.near.beyond -= found;
        if found > self.len / 8 {
            self.near.width = (self.near.width / 2).max(1);
        } else if found < self.len / 32 {
            self.near.width = (self.near.width * 2).min(self.full_bucket);
        }
    }

    /// Lowers the bound while too many are below it, but never past the last nonempty bucket.
    pub(super) fn lower_bound(&mut self) {
        while !self.near.has_no_bound() && self.near.len > (self.len / 8).max(16) {
            let bucket = self.near.below - 1;
            if self.occupied.next_from(0) == Some(bucket) {
                return;
            }
            let mut at = self.buckets[bucket as usize].first;
            while at != NONE {
                let next = self.nodes[at as usize].next;
                self.nodes[at as usize].bucket = FAR;
                self.near.len -= 1;
                self.near.beyond += 1;
                at = next;
            }
            self.buckets[bucket as usize] = EMPTY;
            self.occupied.remove(bucket);
            self.near.below = bucket;
        }
    }

    /// Sorts a chain of nodes, oldest stamp first, by merging chains of equal length: no memory
    /// besides the links.
    fn sorted_by_stamp(&mut self, mut chain: u32) -> u32 {
        let mut sorted = [NONE; 32];
        while chain != NONE {
            let mut carry = chain;
            chain = self.nodes[chain as usize].next;
            self.nodes[carry as usize].next = NONE;
            let mut size = 0;
            while sorted[size] != NONE {
                carry = self.merged(sorted[size], carry);
                sorted[size] = NONE;
                size += 1;
            }
            sorted[size] = carry;
        }
        sorted
            .into_iter()
            .filter(|chain| *chain != NONE)
            .fold(NONE, |all, chain| self.merged(chain, all))
    }

    fn merged(&mut self, mut one: u32, mut other: u32) -> u32 {
        // Compared by distance, so that a wrapped clock does no harm.
        let ago = |index: &Self, segment: u32| {
            index
                .near
                .clock
                .wrapping_sub(index.nodes[segment as usize].stamp)
        };
        let (mut first, mut last) = (NONE, NONE);
        while one != NONE || other != NONE {
            let takes_one = other == NONE || (one != NONE && ago(self, one) > ago(self, other));
            let taken = if takes_one { one } else { other };
            let next = self.nodes[taken as usize].next;
            if takes_one {
                one = next
            } else {
                other = next
            }
            match last {
                NONE => first = taken,
                _ => self.nodes[last as usize].next = taken,
            }
            last = taken;
        }
        if last != NONE {
            self.nodes[last as usize].next = NONE;
        }
        first
    }

    /// Checks the bound's invariants; for [`VictimIndex::self_check`].
    pub(super) fn check_bound(&self) -> Result<(), String> {
        let far = |segment: &u32| self.nodes[*segment as usize].bucket == FAR;
        let right = |segment: &u32| {
            let node = &self.nodes[*segment as usize];
            self.bucket_of(node.live_units, node.capacity_units)
        };
        let segments = 0..self.nodes.len() as u32;
        if let Some(segment) = segments
            .clone()
            .filter(far)
            .find(|segment| right(segment) < self.near.below)
        {
            return Err(format!(
                "segment {segment} in no list, belongs in {}",
                right(&segment)
            ));
        }
        if !self.near.has_no_bound()
            && self.near.len == 0
            && segments
                .clone()
                .filter(far)
                .any(|segment| right(&segment) < self.full_bucket)
        {
            return Err("nothing is offered, though something could be".into());
        }
        let beyond = segments
            .clone()
            .filter(far)
            .filter(|segment| right(segment) < self.full_bucket)
            .count();
        if beyond != self.near.beyond as usize {
            return Err(format!(
                "{beyond} segments beyond the lists, {} counted",
                self.near.beyond
            ));
        }
        let listed = segments
            .filter(|segment| self.nodes[*segment as usize].bucket < FAR)
            .count();
        if listed == self.near.len as usize {
            Ok(())
        } else {
            Err(format!(
                "{listed} segments in lists, {} counted",
                self.near.len
            ))
        }
    }
}

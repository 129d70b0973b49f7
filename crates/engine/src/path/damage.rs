//! Lost blocks of volumes: the state of data, apart from the state of members.
//!
//! 1. Reads, cleaning and scrubs report each block that can neither be read nor be reconstructed.
//!    It joins a set of ranges.
//! 2. A notice names it when it is new, and once more in each scrub: a client that repeats a read
//!    causes no second notice.
//! 3. A block leaves the set when it is written, trimmed, moved, or read successfully.
//! 4. A scrub that began and completed in one run of the daemon has read everything: blocks that it
//!    did not find are not lost.
//! 5. Checkpoints keep the number and the first ranges. After a start these are *recalled*. The
//!    pool reports neither them as lost nor the data as intact until they are written or such a
//!    scrub completes.
//!
//! The sets are bounded. A block without room is counted, not named.

use crate::api::{DamageStatus, Notice, VolumeRange};
use crate::base::limits::{DAMAGE_RANGES_MAX, DAMAGE_SAVED_RANGES, SURVEY_LOST_MAX};
use crate::path::Paths;
use crate::store::Store;
use crate::store::events::Outbox;
use crate::store::pending::BlockKey;
use std::collections::{BTreeMap, BTreeSet};
use windrow_types::{Lba, VolumeId};

/// Number of words that a checkpoint keeps: the number of blocks, the time of the first one, the
/// number of ranges, and the ranges.
pub(crate) const SAVED_WORDS: usize = 3 + 3 * DAMAGE_SAVED_RANGES;

/// Disjoint ranges of blocks, by volume.
#[derive(Clone, Debug, Default)]
struct RangeSet {
    /// Volume and first block -> end.
    ranges: BTreeMap<(VolumeId, u64), u64>,
    blocks: u64,
}

impl RangeSet {
    fn contains(&self, volume: VolumeId, lba: u64) -> bool {
        let before = self.ranges.range(..=(volume, lba)).next_back();
        before.is_some_and(|((of, _), end)| *of == volume && lba < *end)
    }

    /// Adds blocks that are not in the set. False if there is no room for another range.
    fn add(&mut self, volume: VolumeId, first: u64, blocks: u64) -> bool {
        let before = self
            .ranges
            .range_mut(..(volume, first))
            .next_back()
            .filter(|((of, _), end)| *of == volume && **end == first);
        let mut end = first + blocks;
        let (start, joins) = before.map_or((first, false), |((_, start), _)| (*start, true));
        match self.ranges.remove(&(volume, end)) {
            Some(of_next) => end = of_next,
            None if !joins && self.ranges.len() >= DAMAGE_RANGES_MAX => return false,
            None => {}
        }
        self.ranges.insert((volume, start), end);
        self.blocks += blocks;
        true
    }

    /// Removes blocks `first .. end`.
    fn remove(&mut self, volume: VolumeId, first: u64, end: u64) {
        while let Some((start, stop)) = self
            .last_before(volume, end)
            .filter(|(_, stop)| *stop > first)
        {
            self.ranges.remove(&(volume, start));
            self.blocks -= stop.min(end) - start.max(first);
            if start < first {
                self.ranges.insert((volume, start), first);
            }
            if end < stop {
                self.ranges.insert((volume, end), stop);
            }
        }
    }

    fn last_before(&self, volume: VolumeId, end: u64) -> Option<(u64, u64)> {
        let found = self
            .ranges
            .range(..(volume, end))
            .next_back()
            .filter(|((of, _), _)| *of == volume);
        found.map(|((_, start), stop)| (*start, *stop))
    }

    fn first(&self, most: usize) -> Vec<VolumeRange> {
        let ranges = self
            .ranges
            .iter()
            .map(|((volume, first), end)| VolumeRange {
                volume: *volume,
                lba: *first,
                blocks: end - first,
            });
        ranges.take(most).collect()
    }
}

/// Lost blocks.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    /// Lost shared content.
    pub(crate) contents: LostContents,
    known: RangeSet,
    /// Blocks that a notice has named since the last scrub began.
    named: RangeSet,
    /// Blocks found since the last scrub began, named or not, and the number of further ones that
    /// it found in the map without naming them.
    seen: RangeSet,
    seen_more: u64,
    /// Blocks from before the start.
    recalled: RangeSet,
    /// Number of recalled blocks that the checkpoint does not name.
    recalled_more: u64,
    /// Number of blocks without room in the sets.
    unlisted: u64,
    /// Time when the oldest of them was found, in seconds since 1970; 0: not known.
    since_unix_s: u64,
    /// Set if the scrub began since the start, so that it reads everything.
    scrub_is_whole: bool,
    /// Set if a scrub has completed, and references to lost content are still being named.
    completing: bool,
    /// Number of blocks at the last checkpoint request for them.
    kept: u64,
}

/// Lost shared content whose references are to be named.
#[derive(Debug, Default)]
pub(crate) struct LostContents {
    /// Id and incarnation of those to name.
    lost: BTreeMap<u32, u32>,
    /// Id and incarnation of those already named, to avoid repeated notices.
    named: BTreeSet<(u32, u32)>,
}

impl LostContents {
    /// Requests that the blocks that refer to a content are named, unless they have been.
    pub(crate) fn name(&mut self, id: u32, incarnation: u32) {
        if self.named.len() < SURVEY_LOST_MAX && self.named.insert((id, incarnation)) {
            self.lost.insert(id, incarnation);
        }
    }

    /// Makes named contents be named again when they are found again.
    pub(crate) fn forget_named(&mut self) {
        self.named.clear();
    }

    /// True if there are some to name.
    pub(crate) fn has_unnamed(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Takes those to name.
    pub(crate) fn take_unnamed(&mut self) -> BTreeMap<u32, u32> {
        std::mem::take(&mut self.lost)
    }
}

impl Damage {
    /// State from the counters of a checkpoint.
    pub(crate) fn restored(saved: &[u64]) -> Self {
        let word = |at: usize| saved.get(at).copied().unwrap_or(0);
        let mut damage = Self {
            since_unix_s: word(1),
            ..Self::default()
        };
        for at in (0..(word(2) as usize).min(DAMAGE_SAVED_RANGES)).map(|range| 3 + 3 * range) {
            let (volume, first, blocks) = (VolumeId(word(at) as u32), word(at + 1), word(at + 2));
            if first.checked_add(blocks).is_some()
                && damage
                    .recalled
                    .last_before(volume, first.saturating_add(blocks))
                    .is_none_or(|(_, end)| end <= first)
            {
                damage.recalled.add(volume, first, blocks);
            }
        }
        damage.recalled_more = word(0).saturating_sub(damage.recalled.blocks);
        damage
    }

    /// Counters for a checkpoint; their order is part of the format.
    pub(crate) fn saved(&self) -> Vec<u64> {
        let blocks = self.known.blocks + self.unlisted + self.recalled.blocks + self.recalled_more;
        let mut ranges = self.known.first(DAMAGE_SAVED_RANGES);
        ranges.extend(self.recalled.first(DAMAGE_SAVED_RANGES - ranges.len()));
        let head = [blocks, self.since_unix_s, ranges.len() as u64];
        let ranges = ranges
            .iter()
            .flat_map(|range| [u64::from(range.volume.0), range.lba, range.blocks]);
        head.into_iter().chain(ranges).collect()
    }

    /// True if no block is lost or recalled.
    pub(crate) fn is_empty(&self) -> bool {
        self.known.blocks + self.recalled.blocks + self.recalled_more + self.unlisted == 0
    }

    /// Status for `status`. Shared content is counted by the blocks that refer to it.
    pub(crate) fn status(&self, most: usize) -> DamageStatus {
        let of_content = |set: &RangeSet| {
            let content = set
                .ranges
                .range((VolumeId::SHARED, 0)..=(VolumeId::SHARED, u64::MAX));
            content.map(|((_, first), end)| end - first).sum::<u64>()
        };
        let of_users = |set: &RangeSet| {
            let mut ranges =
                set.first(most.saturating_add(set.ranges.len().min(DAMAGE_RANGES_MAX)));
            ranges.retain(|range| range.volume != VolumeId::SHARED);
            ranges.truncate(most);
            ranges
        };
        DamageStatus {
            lost_blocks: self.known.blocks - of_content(&self.known) + self.unlisted,
            lost_contents: of_content(&self.known),
            lost: of_users(&self.known),
            recalled_blocks: self.recalled.blocks - of_content(&self.recalled) + self.recalled_more,
            recalled: of_users(&self.recalled),
            since_unix_s: if self.is_empty() {
                0
            } else {
                self.since_unix_s
            },
        }
    }

    /// Adds a lost block. True if a notice is to name it.
    fn note(&mut self, key: BlockKey, unix_s: u64) -> bool {
        self.note_named(key, unix_s);
        let (volume, lba) = (key.volume(), key.lba().0);
        !self.named.contains(volume, lba) && self.named.add(volume, lba, 1)
    }

    /// Adds a lost block that another notice names.
    fn note_named(&mut self, key: BlockKey, unix_s: u64) {
        let (volume, lba) = (key.volume(), key.lba().0);
        if self.is_empty() {
            self.since_unix_s = unix_s;
        }
        self.recalled.remove(volume, lba, lba + 1);
        if !self.seen.contains(volume, lba) {
            self.seen.add(volume, lba, 1);
        }
        if !self.known.contains(volume, lba) && !self.known.add(volume, lba, 1) {
            // It may be counted twice: then the number only indicates that there are many.
            self.unlisted += 1;
        }
    }

    /// Sets the number of further lost blocks without names.
    pub(crate) fn note_unlisted(&mut self, blocks: u64) {
        self.unlisted = self.unlisted.max(blocks);
        self.seen_more = blocks;
    }

    /// Removes blocks `first .. end` that are written, trimmed or intact.
    pub(crate) fn clear(&mut self, volume: VolumeId, first: Lba, end: Lba) {
        if self.is_empty() {
            return;
        }
        for set in [
            &mut self.known,
            &mut self.named,
            &mut self.seen,
            &mut self.recalled,
        ] {
            set.remove(volume, first.0, end.0);
        }
        if self.known.blocks == 0
            && self.recalled.blocks == 0
            && self.unlisted == 0
            && self.recalled_more == 0
        {
            (self.since_unix_s, self.kept) = (0, 0);
        }
    }

    /// Handles the start of a scrub: blocks that it finds are named again.
    pub(crate) fn scrub_begins(&mut self) {
        (self.named, self.seen, self.seen_more) = (RangeSet::default(), RangeSet::default(), 0);
        (self.completing, self.scrub_is_whole) = (false, true);
    }

    /// Handles the completion of a scrub.
    pub(crate) fn scrub_completed(&mut self) {
        self.completing = self.scrub_is_whole;
    }

    /// Drops the blocks that a completed scrub has not found again, once the references to lost
    /// content are named (`no_survey`).
    pub(crate) fn step(&mut self, no_survey: bool) {
        if self.completing && no_survey {
            let before = std::mem::take(self);
            let unlisted = if before.seen.ranges.len() < DAMAGE_RANGES_MAX {
                before.seen_more
            } else {
                before.unlisted
            };
            let since_unix_s = if before.seen.blocks + unlisted == 0 {
                0
            } else {
                before.since_unix_s
            };
            let known = before.seen.clone();
            *self = Damage {
                known,
                named: before.named,
                seen: before.seen,
                unlisted,
                since_unix_s,
                kept: before.kept,
                contents: before.contents,
                scrub_is_whole: true,
                ..Damage::default()
            };
        }
    }
}

impl Paths {
    /// Records a block that can neither be read nor be reconstructed.
    pub(crate) fn note_lost(&mut self, key: BlockKey, store: &mut Store, out: &mut Outbox) {
        if key.volume() == VolumeId::INDEX {
            // No user data.
            return;
        }
        if self.note_damage(key, store) {
            let (volume, lba) = (key.volume(), key.lba().0);
            match out.notices.last_mut() {
                Some(Notice::Unrecoverable {
                    volume: of,
                    lba: first,
                    blocks,
                }) if *of == volume && *first + *blocks == lba => *blocks += 1,
                _ => out.notices.push(Notice::Unrecoverable {
                    volume,
                    lba,
                    blocks: 1,
                }),
            }
        }
        self.note_lost_content(key, store);
    }

    /// Adds a lost block. True if a notice is to name it. The first one, and each doubling,
    /// requests a checkpoint: a daemon that is killed must not forget that data is damaged.
    pub(crate) fn note_damage(&mut self, key: BlockKey, store: &mut Store) -> bool {
        let is_new = self
            .damage
            .note(key, store.observe.wall.unix_s(store.pool.now_ns));
        self.keep_damage(store);
        is_new
    }

    /// Adds a block that is lost with shared content: a notice of its own names it.
    pub(crate) fn note_reference_lost(&mut self, key: BlockKey, store: &mut Store) {
        self.damage
            .note_named(key, store.observe.wall.unix_s(store.pool.now_ns));
        self.keep_damage(store);
    }

    fn keep_damage(&mut self, store: &mut Store) {
        let known = self.damage.known.blocks;
        if known > 2 * self.damage.kept
            && !store.pool.read_only
            && !store.pool.closing.is_under_way()
        {
            self.damage.kept = known;
            self.durability.checkpoint.request();
        }
    }
}

#[cfg(test)]
mod tests;

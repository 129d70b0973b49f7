//! Pending blocks: admitted and not committed yet. Reads see them before the map does.
//!
//! A record exists while versions of its block are in flight. `newest` is the content that a read
//! must return. `installed` is the newest LSN whose effect the map already shows (a commit, or a
//! trim, which takes effect on admission). A committing version installs only if its LSN is above
//! `installed`.

mod index;

use crate::base::limits::LBA_BITS;
use index::{Index, Link, NONE};
use windrow_io::Payload;
use windrow_types::{Lba, Lsn, VolumeId};

/// (volume, block) packed into 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockKey(pub u64);

impl BlockKey {
    /// Packs a key. Volumes are below 2^24 and blocks below 2^40 (`base/limits.rs`).
    #[inline]
    pub fn new(volume: VolumeId, lba: Lba) -> Self {
        Self(u64::from(volume.0) << LBA_BITS | lba.0)
    }

    /// The volume.
    pub fn volume(self) -> VolumeId {
        VolumeId((self.0 >> LBA_BITS) as u32)
    }

    /// The block.
    pub fn lba(self) -> Lba {
        Lba(self.0 & ((1 << LBA_BITS) - 1))
    }
}

/// Content of a block in memory.
#[derive(Clone, Debug)]
pub enum Content {
    /// Bytes.
    Data(Payload),
    /// All 0x00, allocated.
    Zero,
    /// All 0xFF.
    Ones,
    /// A hole.
    Hole,
}

impl Content {
    /// True if it takes space in the pool.
    pub fn is_data(&self) -> bool {
        matches!(self, Self::Data(_))
    }
}

/// Number of a record; stable while versions of its block are in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PendingSlot(u32);

/// Instructions for a committing version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Committed {
    /// LSN that has superseded it already; `None`: it must be installed.
    pub superseded: Option<Lsn>,
    /// Set if it was the last version in flight: true if the newest version was data. `None`:
    /// others follow.
    pub last: Option<bool>,
}

/// One record.
#[derive(Debug)]
pub struct PendingBlock {
    key: BlockKey,
    /// Content that a read returns.
    pub newest: Content,
    /// Newest LSN whose effect the map shows.
    pub installed: Lsn,
    /// Versions in flight; 0 while the record is free.
    pub in_flight: u32,
    /// Next record of its chain in the index.
    next: u32,
}

impl Link for PendingBlock {
    #[inline]
    fn key(&self) -> BlockKey {
        self.key
    }

    #[inline]
    fn next(&self) -> u32 {
        self.next
    }

    #[inline]
    fn set_next(&mut self, next: u32) {
        self.next = next;
    }
}

/// All records. They are compact in memory and reused last in, first out, and the index is sized
/// for their number. So the memory that a write touches here stays in the cache, whatever the
/// capacity.
#[derive(Debug, Default)]
pub struct Pending {
    index: Index,
    records: Vec<PendingBlock>,
    free: Vec<u32>,
}

impl Pending {
    /// A table with room for `capacity` records, so that it never grows in service.
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            index: Index::with_capacity(capacity),
            records: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
        }
    }

    /// Number of a block's record.
    #[inline]
    pub fn find(&self, key: BlockKey) -> Option<PendingSlot> {
        self.index.find(&self.records, key).map(PendingSlot)
    }

    /// A record by its number.
    #[inline]
    pub fn record(&self, slot: PendingSlot) -> &PendingBlock {
        &self.records[slot.0 as usize]
    }

    /// The record of a block.
    #[inline]
    pub fn get(&self, key: BlockKey) -> Option<&PendingBlock> {
        self.find(key).map(|slot| self.record(slot))
    }

    /// Notes a new version of a block in flight. `known` is the result that [`Pending::find`] just
    /// gave for it.
    #[inline]
    pub fn admit(
        &mut self,
        key: BlockKey,
        known: Option<PendingSlot>,
        content: Content,
    ) -> PendingSlot {
        if let Some(slot) = known {
            let record = &mut self.records[slot.0 as usize];
            debug_assert!(record.key == key && record.in_flight > 0);
            record.newest = content;
            record.in_flight += 1;
            return slot;
        }
        debug_assert_eq!(self.find(key), None);
        let record = PendingBlock {
            key,
            newest: content,
            installed: Lsn(0),
            in_flight: 1,
            next: NONE,
        };
        let at = match self.free.pop() {
            Some(at) => {
                self.records[at as usize] = record;
                at
            }
            None => {
                self.records.push(record);
                (self.records.len() - 1) as u32
            }
        };
        self.index.insert(&mut self.records, at);
        PendingSlot(at)
    }

    /// Commits the version with LSN `lsn` of the record in `slot`. Drops the record after the last
    /// version.
    #[inline]
    pub fn commit(&mut self, slot: PendingSlot, lsn: Lsn) -> Committed {
        let record = &mut self.records[slot.0 as usize];
        let superseded = (lsn <= record.installed).then_some(record.installed);
        if superseded.is_none() {
            record.installed = lsn;
        }
        record.in_flight -= 1;
        if record.in_flight > 0 {
            return Committed {
                superseded,
                last: None,
            };
        }
        let was_data = record.newest.is_data();
        record.newest = Content::Hole;
        self.index.remove(&mut self.records, slot.0);
        self.free.push(slot.0);
        Committed {
            superseded,
            last: Some(was_data),
        }
    }

    /// Blocks that have a record, and true if their newest version is data.
    pub fn newest(&self) -> impl Iterator<Item = (BlockKey, bool)> + '_ {
        self.records
            .iter()
            .filter(|record| record.in_flight > 0)
            .map(|record| (record.key, record.newest.is_data()))
    }

    /// True if nothing is in flight.
    pub fn is_empty(&self) -> bool {
        self.index.len() == 0
    }

    /// Calls `f` for each record of `volume` in `first .. end`, by the shorter of the two ways.
    pub fn for_range(
        &mut self,
        volume: VolumeId,
        first: Lba,
        end: Lba,
        mut f: impl FnMut(BlockKey, &mut PendingBlock),
    ) {
        if self.is_empty() {
            return;
        }
        if self.is_shorter_by_block(end.0 - first.0) {
            for lba in first.0..end.0 {
                let key = BlockKey::new(volume, Lba(lba));
                if let Some(slot) = self.find(key) {
                    f(key, &mut self.records[slot.0 as usize]);
                }
            }
        } else {
            let (low, high) = (
                BlockKey::new(volume, first),
                BlockKey::new(volume, Lba(end.0 - 1)),
            );
            for record in self
                .records
                .iter_mut()
                .filter(|r| r.in_flight > 0 && (low..=high).contains(&r.key))
            {
                f(record.key, record);
            }
        }
    }

    /// True if this number of blocks is smaller than the number of records. There are as many
    /// records as blocks were ever in flight at the same time.
    fn is_shorter_by_block(&self, blocks: u64) -> bool {
        blocks <= self.records.len() as u64
    }
}

impl Pending {
    /// True if no request holds the key and no version of it is in flight. Cleaning asks this
    /// before a repair.
    pub(crate) fn is_settled(&self, key: BlockKey) -> bool {
        self.get(key).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After a burst of writes with a few still in flight, each page that a large trim emptied
    /// caused a scan of all records of the burst.
    #[test]
    fn a_page_is_looked_up_after_a_burst() {
        let volume = VolumeId(1);
        let mut pending = Pending::default();
        let slots: Vec<_> = (0..1000)
            .map(|lba| pending.admit(BlockKey::new(volume, Lba(lba)), None, Content::Zero))
            .collect();
        slots[3..]
            .iter()
            .for_each(|slot| _ = pending.commit(*slot, Lsn(1)));
        assert!(pending.is_shorter_by_block(256));
        let found = |pending: &mut Pending, first, end| {
            let mut found = Vec::new();
            pending.for_range(volume, Lba(first), Lba(end), |key, _| {
                found.push(key.lba().0)
            });
            found.sort_unstable();
            found
        };
        assert_eq!(
            (found(&mut pending, 1, 257), found(&mut pending, 0, 1 << 40)),
            (vec![1, 2], vec![0, 1, 2])
        );
        slots[..3]
            .iter()
            .for_each(|slot| _ = pending.commit(*slot, Lsn(2)));
        assert!(
            found(&mut pending, 0, 256).is_empty() && found(&mut pending, 0, 1 << 40).is_empty()
        );
    }
}

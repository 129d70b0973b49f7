//! Blocks that were admitted and are not committed yet: what reads see before the map does.
//!
//! A record lives while versions of its block are on their way. `newest` is what a read must return; `installed` is the newest
//! order whose effect the map already shows (a commit, or a trim, which takes effect on admission). A committing version
//! installs only if its order is above `installed`.

use crate::limits::LBA_BITS;
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use windrow_io::Payload;
use windrow_units::{Lba, Order, VolumeId};

/// (volume, block) packed into 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockKey(pub u64);

impl BlockKey {
    /// Packs. Volumes are below 2^24 and blocks below 2^40 (limits.rs).
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

/// One record.
#[derive(Debug)]
pub struct PendingBlock {
    /// What a read returns.
    pub newest: Content,
    /// Newest order whose effect the map shows.
    pub installed: Order,
    /// Versions on their way.
    pub in_flight: u32,
}

/// All records.
#[derive(Debug, Default)]
pub struct Pending {
    blocks: HashMap<u64, PendingBlock, FxBuildHasher>,
}

impl Pending {
    /// With room for `capacity` records, so that the table never grows in service.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { blocks: HashMap::with_capacity_and_hasher(capacity, FxBuildHasher) }
    }

    /// The record of a block.
    #[inline]
    pub fn get(&self, key: BlockKey) -> Option<&PendingBlock> {
        self.blocks.get(&key.0)
    }

    /// A new version of a block is on its way. Returns whether the version before (in flight) held data, `None` if there was none.
    #[inline]
    pub fn admit(&mut self, key: BlockKey, content: Content) -> Option<bool> {
        match self.blocks.entry(key.0) {
            hashbrown::hash_map::Entry::Occupied(mut slot) => {
                let record = slot.get_mut();
                let was_data = record.newest.is_data();
                record.newest = content;
                record.in_flight += 1;
                Some(was_data)
            }
            hashbrown::hash_map::Entry::Vacant(slot) => {
                slot.insert(PendingBlock { newest: content, installed: Order(0), in_flight: 1 });
                None
            }
        }
    }

    /// A version with order `order` commits: `None` if it is to be installed, else the order that superseded it already.
    /// Forgets the record after the last version.
    #[inline]
    pub fn commit(&mut self, key: BlockKey, order: Order) -> Option<Order> {
        let hashbrown::hash_map::Entry::Occupied(mut slot) = self.blocks.entry(key.0) else {
            return Some(order);
        };
        let record = slot.get_mut();
        let superseded = (order <= record.installed).then_some(record.installed);
        if superseded.is_none() {
            record.installed = order;
        }
        record.in_flight -= 1;
        if record.in_flight == 0 {
            slot.remove();
        }
        superseded
    }

    /// True if nothing is on its way.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Calls `f` for each record of `volume` in `first .. end`, whichever way is shorter.
    pub fn for_range(&mut self, volume: VolumeId, first: Lba, end: Lba, mut f: impl FnMut(BlockKey, &mut PendingBlock)) {
        if end.0 - first.0 <= self.blocks.len() as u64 {
            for lba in first.0..end.0 {
                let key = BlockKey::new(volume, Lba(lba));
                if let Some(record) = self.blocks.get_mut(&key.0) {
                    f(key, record);
                }
            }
        } else {
            let (low, high) = (BlockKey::new(volume, first).0, BlockKey::new(volume, Lba(end.0 - 1)).0);
            for (key, record) in self.blocks.iter_mut().filter(|(k, _)| (low..=high).contains(*k)) {
                f(BlockKey(*key), record);
            }
        }
    }
}

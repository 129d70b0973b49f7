//! Room for the journal's operations: volumes, and sizes, that only its records have.
//!
//! Segments with the records that created or enlarged a volume may have been reused or be lost.
//! Then its size is made up from the blocks that batches wrote ([`super::gather`]), and there may
//! be no batch with a block of it. The journal's entries come after all valid batches and take
//! effect in their order. The blocks that an entry writes existed when it was written. So the
//! volume is created, or enlarged to that, before the entry takes effect; a later resize or
//! deletion in the journal then corrects it. Volumes that are known to be deleted do not come back.

use super::super::Tables;
use super::gather::made_up_name;
use crate::base::limits::MAX_VOLUME_BYTES;
use std::collections::BTreeSet;
use windrow_format::batch::{Entry, RangeState, VolumeChange};
use windrow_format::checkpoint::{VolumeRecord, VolumeState};
use windrow_types::{BLOCK_BYTES, VolumeId};

/// Creates and enlarges volumes.
pub(super) struct Room<'r> {
    deleted: &'r BTreeSet<VolumeId>,
    /// Volumes that were created: their names are made up.
    made: BTreeSet<VolumeId>,
    /// Volumes whose size was made up and is in no record since.
    grown: BTreeSet<VolumeId>,
}

impl<'r> Room<'r> {
    /// Volumes that are `deleted` are not created.
    pub(super) fn without(deleted: &'r BTreeSet<VolumeId>) -> Self {
        Self {
            deleted,
            made: BTreeSet::new(),
            grown: BTreeSet::new(),
        }
    }

    /// Volumes whose names or sizes had to be made up.
    pub(super) fn made_up(self) -> impl Iterator<Item = VolumeId> {
        self.made.into_iter().chain(self.grown)
    }

    /// Makes room for an entry that is about to take effect.
    pub(super) fn make(&mut self, entry: &Entry, tables: &mut Tables) {
        // End of the written blocks.
        let (volume, end) = match entry {
            Entry::Data { volume, lba, .. } | Entry::Fill { volume, lba, .. } => {
                (*volume, lba.0.saturating_add(1))
            }
            Entry::Range {
                volume,
                lba,
                count,
                state: RangeState::Zero,
                ..
            } => (*volume, lba.0.saturating_add(*count)),
            Entry::Volume {
                change: VolumeChange::Create { .. } | VolumeChange::Delete,
                ..
            } => return,
            Entry::Volume { volume, .. } => (*volume, 0),
            _ => return,
        };
        // A correct pool never writes what no user volume can have.
        if !volume.is_of_user()
            || end > MAX_VOLUME_BYTES / BLOCK_BYTES
            || self.deleted.contains(&volume)
        {
            return;
        }
        if tables.volumes.get(volume).is_none() {
            tables
                .volumes
                .add(VolumeRecord::new(volume, BLOCK_BYTES, made_up_name(volume)));
            self.made.insert(volume);
        }
        if tables
            .volumes
            .get(volume)
            .is_some_and(|v| v.record.state == VolumeState::Active && v.blocks() < end)
        {
            tables
                .volumes
                .change(volume, |record| record.size_bytes = end * BLOCK_BYTES);
            self.grown.insert(volume);
        }
        if matches!(
            entry,
            Entry::Volume {
                change: VolumeChange::Resize { .. },
                ..
            }
        ) {
            self.grown.remove(&volume);
        }
    }
}

//! What other components ask of the volumes and their maps.

use crate::store::volume::Volumes;
use windrow_format::checkpoint::{
    Compression, Dedup, OBJECT_MAP, PagePointer, SyncMode, VolumeRecord,
};
use windrow_format::map_entry::MapEntry;
use windrow_io::RequestError;
use windrow_reduction::Codec;
use windrow_types::{Address, Lba, VolumeId};

impl Volumes {
    /// Entry of a block; a hole if its volume or its page does not exist.
    ///
    /// Data path and upkeep read entries here only (walks over whole pages apart). All pages of the
    /// maps are in memory; once they need not be, this is where a look-up may answer that its page
    /// has to be read first.
    #[inline]
    pub(crate) fn look_up(&self, volume: VolumeId, lba: Lba) -> MapEntry {
        self.get(volume)
            .map_or(MapEntry::HOLE, |v| v.map.get(&self.arena, lba))
    }

    /// Returns the pointer that is to be retired: the old one, or the new one if the page is gone
    /// meanwhile.
    pub(crate) fn set_map_pointer(
        &mut self,
        object: u32,
        index: u32,
        pointer: PagePointer,
    ) -> PagePointer {
        let slot = self
            .get(VolumeId(object - OBJECT_MAP))
            .and_then(|v| v.map.slot(u64::from(index)));
        match slot.and_then(|s| self.arena.meta_mut(s)) {
            Some(meta) => std::mem::replace(&mut meta.pointer, pointer),
            None => pointer,
        }
    }

    /// True if content that volumes share may become zstd.
    pub(crate) fn repacks_shared(&self) -> bool {
        self.iter()
            .any(|v| v.record.dedup != Dedup::Off && v.record.compression.may_be_zstd())
    }

    /// The content that a shared block refers to; `None` if it is absent or of
    /// another incarnation.
    pub(crate) fn content_of(&self, entry: MapEntry) -> Option<MapEntry> {
        let id = entry.shared_id()?;
        let content = self.look_up(VolumeId::SHARED, id);
        (content.has_payload() && content.incarnation() == entry.incarnation()).then_some(content)
    }

    /// Pages of the index that are there.
    pub(crate) fn index_pages_mapped(&self) -> u64 {
        self.get(VolumeId::INDEX).map_or(0, |v| v.map.mapped_blocks)
    }

    /// Of these, those beyond what a plan has room for.
    pub(crate) fn index_pages_beyond(&self, plan: &crate::api::PoolPlan) -> u64 {
        self.index_pages_mapped().saturating_sub(plan.index_pages)
    }

    /// True if blocks of any volume may be shared, now or with the next write.
    pub(crate) fn wants_index(&self) -> bool {
        self.iter()
            .any(|v| v.record.dedup != windrow_format::checkpoint::Dedup::Off)
    }

    pub(crate) fn index_page_entry(&self, page: u32) -> MapEntry {
        self.look_up(VolumeId::INDEX, Lba(u64::from(page)))
    }

    pub(crate) fn is_given_up(&self, entry: MapEntry) -> bool {
        entry == MapEntry::LOST || (entry.shared_id().is_some() && self.content_of(entry).is_none())
    }

    /// What flushes of a volume do.
    pub(crate) fn sync_of(&self, volume: VolumeId) -> SyncMode {
        self.active(volume)
            .map_or(SyncMode::Standard, |v| v.record.sync)
    }

    /// Checks offset and length against the volume.
    pub(crate) fn check_range(
        &self,
        volume: VolumeId,
        offset: u64,
        length: u64,
    ) -> Result<&VolumeRecord, RequestError> {
        let v = self.active(volume).ok_or(RequestError::NoVolume)?;
        if length == 0 {
            return Err(RequestError::Invalid);
        }
        match offset.checked_add(length) {
            Some(end) if end <= v.record.size_bytes => Ok(&v.record),
            _ => Err(RequestError::OutOfRange),
        }
    }

    /// True if the map shows `address` for the block.
    pub(crate) fn shows(&self, volume: VolumeId, lba: Lba, address: Address) -> bool {
        self.shown(volume, lba, address).is_some()
    }

    /// Checksum of the block, if the map has it at this address.
    pub(crate) fn shown(&self, volume: VolumeId, lba: Lba, address: Address) -> Option<u32> {
        self.entry_at(volume, lba, address)
            .map(|entry| entry.checksum())
    }

    /// Entry of the block, if the map has it at this address.
    pub(crate) fn entry_at(
        &self,
        volume: VolumeId,
        lba: Lba,
        address: Address,
    ) -> Option<MapEntry> {
        let entry = self.look_up(volume, lba);
        (entry.has_payload() && entry.address() == address).then_some(entry)
    }

    /// Compression of the blocks that are written to a volume, if any.
    pub(crate) fn packs(&self, volume: VolumeId) -> Option<Codec> {
        match self.get(volume)?.record.compression {
            Compression::Off => None,
            Compression::Lz4 | Compression::Lz4ThenZstd => Some(Codec::Lz4),
            Compression::Zstd => Some(Codec::Zstd),
        }
    }
}

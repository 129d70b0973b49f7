//! Tables of a pool: volumes, maps, segments. Loaded from a checkpoint, changed by replay.

use std::collections::{BTreeMap, BTreeSet};
use windrow_format::batch::{BatchHeader, FillState, RangeState, VolumeChange};
use windrow_format::checkpoint::{MAP_PAGE_ENTRIES, VolumeRecord, VolumeState};
use windrow_format::map_entry::MapEntry;
use windrow_geometry::ZoneMap;
use windrow_types::{BLOCK_BYTES, BatchSeq, Lba, StreamId, VolumeId};

const PAGE: u64 = MAP_PAGE_ENTRIES as u64;

/// Contents of a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    /// Stream that wrote it.
    pub(crate) stream: StreamId,
    /// Number of its last batch.
    pub(crate) last_seq: BatchSeq,
    /// Rows that hold batches.
    pub(crate) filled_rows: u32,
    /// Bit `r` of word `r / 64`: a batch starts there. Empty before the first one.
    pub(crate) starts: Vec<u64>,
}

impl Segment {
    fn batches(&self) -> u64 {
        self.starts
            .iter()
            .map(|word| u64::from(word.count_ones()))
            .sum()
    }

    /// Number of its first batch: a stream writes a segment without gaps.
    pub(crate) fn first_seq(&self) -> BatchSeq {
        BatchSeq((self.last_seq.0 + 1).saturating_sub(self.batches()))
    }

    /// Forgets everything from `row` on.
    pub(crate) fn truncate(&mut self, row: u32) {
        let before = self.batches();
        self.filled_rows = self.filled_rows.min(row);
        for (i, word) in self.starts.iter_mut().enumerate() {
            let first = i as u32 * 64;
            if first >= row {
                *word = 0;
            } else if row - first < 64 {
                *word &= (1 << (row - first)) - 1;
            }
        }
        self.last_seq.0 = self.last_seq.0.saturating_sub(before - self.batches());
    }

    /// Enters an accepted batch; earlier knowledge of its rows and those after it is discarded.
    pub(crate) fn add(&mut self, header: &BatchHeader) {
        let row = header.row;
        self.truncate(row);
        if self.starts.len() <= row as usize / 64 {
            self.starts.resize(row as usize / 64 + 1, 0);
        }
        self.starts[row as usize / 64] |= 1 << (row % 64);
        self.filled_rows = row + header.rows;
        (self.stream, self.last_seq) = (header.stream, header.seq);
    }

    /// Rows at which batches start.
    pub(crate) fn start_rows(&self) -> Vec<u32> {
        let word = |row: u32| self.starts.get(row as usize / 64).copied().unwrap_or(0);
        (0..self.filled_rows)
            .filter(|r| word(*r) >> (r % 64) & 1 == 1)
            .collect()
    }
}

/// All tables.
#[derive(Default)]
pub(crate) struct Tables {
    pub(crate) volumes: BTreeMap<VolumeId, VolumeRecord>,
    maps: BTreeMap<(VolumeId, u64), Box<[MapEntry; MAP_PAGE_ENTRIES]>>,
    pub(crate) segments: Vec<Segment>,
    /// Blocks whose newest version is only in the journal. They have no address; their map entry is
    /// a hole.
    journalled: BTreeSet<(VolumeId, Lba)>,
}

impl Tables {
    /// Empty tables of a pool.
    pub(crate) fn new(zones: &ZoneMap) -> Self {
        let empty = |_| Segment {
            stream: StreamId(0),
            last_seq: BatchSeq(0),
            filled_rows: 0,
            starts: Vec::new(),
        };
        Self {
            segments: (0..zones.segment_count()).map(empty).collect(),
            ..Self::default()
        }
    }

    /// Takes a page of a map from a checkpoint.
    pub(crate) fn put_page(
        &mut self,
        volume: VolumeId,
        page: u64,
        entries: Box<[MapEntry; MAP_PAGE_ENTRIES]>,
    ) {
        self.maps.insert((volume, page), entries);
    }

    fn is_writable(&self, volume: VolumeId, lba: Lba) -> bool {
        let is_users = self
            .volumes
            .get(&volume)
            .is_some_and(|v| v.state == VolumeState::Active && lba.0 < v.size_bytes / BLOCK_BYTES);
        is_users || [VolumeId::SHARED, VolumeId::INDEX].contains(&volume)
    }

    /// The entry of a block.
    pub(crate) fn get(&self, volume: VolumeId, lba: Lba) -> MapEntry {
        self.maps
            .get(&(volume, lba.0 / PAGE))
            .map_or(MapEntry::HOLE, |page| page[(lba.0 % PAGE) as usize])
    }

    /// Sets the entry of a block. Blocks of deleted volumes and past the end are skipped: a later
    /// operation removed them.
    pub(crate) fn set(&mut self, volume: VolumeId, lba: Lba, entry: MapEntry) {
        if self.is_writable(volume, lba) {
            self.journalled.remove(&(volume, lba));
            let page = self
                .maps
                .entry((volume, lba.0 / PAGE))
                .or_insert_with(|| Box::new([MapEntry::HOLE; MAP_PAGE_ENTRIES]));
            page[(lba.0 % PAGE) as usize] = entry;
        }
    }

    /// Marks a block as being only in the journal: its previous address is void.
    pub(crate) fn set_journalled(&mut self, volume: VolumeId, lba: Lba) {
        self.set(volume, lba, MapEntry::HOLE);
        if self.is_writable(volume, lba) {
            self.journalled.insert((volume, lba));
        }
    }

    /// Number of blocks of a volume that are only in the journal.
    pub(crate) fn journalled_blocks(&self, volume: VolumeId) -> u64 {
        self.journalled
            .range((volume, Lba(0))..=(volume, Lba(u64::MAX)))
            .count() as u64
    }

    /// Sets a block without payload.
    pub(crate) fn fill(&mut self, volume: VolumeId, lba: Lba, state: FillState) {
        let entry = match state {
            FillState::Zero => MapEntry::ZERO,
            FillState::Ones => MapEntry::ONES,
        };
        self.set(volume, lba, entry);
    }

    /// Sets a range. Pages that do not exist are not created: a hole and a zero refer to nothing,
    /// and a check looks only at references.
    pub(crate) fn set_range(&mut self, volume: VolumeId, lba: Lba, count: u64, state: RangeState) {
        let entry = match state {
            RangeState::Hole => MapEntry::HOLE,
            RangeState::Zero => MapEntry::ZERO,
        };
        let end = lba.0.saturating_add(count);
        self.forget_journalled(volume, lba, Lba(end - 1));
        for ((_, page), entries) in self
            .maps
            .range_mut((volume, lba.0 / PAGE)..=(volume, (end - 1) / PAGE))
        {
            let first = page * PAGE;
            let from = lba.0.saturating_sub(first) as usize;
            let to = (end - first).min(PAGE) as usize;
            entries[from..to].fill(entry);
        }
    }

    /// Applies a volume operation.
    pub(crate) fn change_volume(&mut self, id: VolumeId, change: &VolumeChange) {
        match change {
            VolumeChange::Create { name, size_bytes } => {
                let record = VolumeRecord::new(id, *size_bytes, name.clone());
                self.volumes.insert(id, record);
            }
            VolumeChange::Resize { size_bytes } => {
                if let Some(volume) = self.volumes.get_mut(&id) {
                    volume.size_bytes = *size_bytes;
                }
                let blocks = size_bytes / BLOCK_BYTES;
                self.set_range(id, Lba(blocks), u64::MAX - blocks, RangeState::Hole);
            }
            VolumeChange::Delete => {
                if let Some(volume) = self.volumes.get_mut(&id) {
                    volume.state = VolumeState::Deleting;
                }
                self.drop_map(id);
            }
            VolumeChange::SetReadOnly(read_only) => {
                if let Some(volume) = self.volumes.get_mut(&id) {
                    volume.read_only = *read_only;
                }
            }
            VolumeChange::SetCompression(compression) => {
                if let Some(volume) = self.volumes.get_mut(&id) {
                    volume.compression = *compression;
                }
            }
            VolumeChange::SetDedup(dedup) => {
                if let Some(volume) = self.volumes.get_mut(&id) {
                    volume.dedup = *dedup;
                }
            }
            VolumeChange::Rename { name } => {
                if let Some(volume) = self.volumes.get_mut(&id) {
                    volume.name.clone_from(name);
                }
            }
            VolumeChange::SetSync(sync) => {
                if let Some(volume) = self.volumes.get_mut(&id) {
                    volume.sync = *sync;
                }
            }
        }
    }

    fn forget_journalled(&mut self, volume: VolumeId, first: Lba, last: Lba) {
        let gone: Vec<_> = self
            .journalled
            .range((volume, first)..=(volume, last))
            .copied()
            .collect();
        gone.iter().for_each(|key| _ = self.journalled.remove(key));
    }

    fn drop_map(&mut self, volume: VolumeId) {
        self.forget_journalled(volume, Lba(0), Lba(u64::MAX));
        let pages: Vec<_> = self
            .maps
            .range((volume, 0)..=(volume, u64::MAX))
            .map(|(key, _)| *key)
            .collect();
        for key in pages {
            self.maps.remove(&key);
        }
    }

    /// Drops blocks of deleted volumes and past the end of volumes: they are free, even if the walk
    /// that clears their entries has not reached them yet.
    pub(crate) fn drop_unreachable(&mut self) {
        let ids: std::collections::BTreeSet<VolumeId> =
            self.maps.keys().map(|(volume, _)| *volume).collect();
        for id in ids
            .into_iter()
            .filter(|id| ![VolumeId::SHARED, VolumeId::INDEX].contains(id))
        {
            match self.volumes.get(&id) {
                Some(v) if v.state == VolumeState::Active => {
                    let blocks = v.size_bytes / BLOCK_BYTES;
                    self.set_range(id, Lba(blocks), u64::MAX - blocks, RangeState::Hole);
                }
                _ => self.drop_map(id),
            }
        }
    }

    /// Number of references to each content of the shared volume. Content without references is
    /// free, even if its entry still exists: a start makes it a hole.
    pub(crate) fn settle_shared(&mut self) -> BTreeMap<Lba, u64> {
        let mut references: BTreeMap<Lba, u64> = BTreeMap::new();
        for (_, _, entry) in self.entries() {
            if let Some(id) = entry.shared_id() {
                *references.entry(id).or_default() += 1;
            }
        }
        let contents: Vec<Lba> = self
            .entries()
            .filter(|(volume, ..)| *volume == VolumeId::SHARED)
            .map(|(_, id, _)| id)
            .collect();
        for id in contents
            .into_iter()
            .filter(|id| !references.contains_key(id))
        {
            self.set(VolumeId::SHARED, id, MapEntry::HOLE);
        }
        references
    }

    /// Every entry that is not a hole.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (VolumeId, Lba, MapEntry)> + '_ {
        self.maps.iter().flat_map(|(&(volume, page), entries)| {
            let used = entries
                .iter()
                .enumerate()
                .filter(|(_, entry)| **entry != MapEntry::HOLE);
            used.map(move |(i, entry)| (volume, Lba(page * PAGE + i as u64), *entry))
        })
    }
}

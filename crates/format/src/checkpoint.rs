//! Checkpoint pages.
//!
//! A checkpoint is an image of several *objects*, each an array of 4 KiB pages. A *leaf* holds the
//! pointers of 256 consecutive pages of one object; the *list* holds the pointers of all leaves.
//! The superblock points to the last page of a chain; each page points to the preceding one.
//! Records of object [`OBJECT_LIST`] in the chain name further list pages, all others name leaves.
//! Only changed pages and leaves are rewritten; the list is written whole. Every pointer carries
//! the CRC-32C of its page; check it before decoding.

mod pages;
mod segments;
mod volumes;

pub(crate) use pages::pointer_at;
pub use pages::{
    COUNTERS_PER_PAGE, LIST_MAGIC, decode_counters, decode_leaf, decode_list, decode_map_page,
    encode_counters, encode_leaf, encode_list, encode_map_page,
};
pub use segments::{SegmentTableGeometry, decode_segment, encode_segment};
pub use volumes::{VOLUME_RECORD_BYTES, VOLUMES_PER_PAGE, decode_volumes, encode_volumes};

use crate::superblock::Features;
use serde::Serialize;
use windrow_types::{Address, BatchSeq, SegmentId, StreamId, VolumeId};

/// Object: the volume table.
pub const OBJECT_VOLUMES: u32 = 1;
/// Object: the segment table.
pub const OBJECT_SEGMENTS: u32 = 2;
/// Object: lifetime counters, an array of little-endian 64-bit numbers.
pub const OBJECT_COUNTERS: u32 = 3;
/// Object number used by the entries of leaf pages.
pub const OBJECT_LEAF: u32 = 4;
/// Object number used by the entries of list pages.
pub const OBJECT_LIST: u32 = 5;
/// The map of volume `v` is object `OBJECT_MAP + v`.
pub const OBJECT_MAP: u32 = 16;

/// Map entries in a map page.
pub const MAP_PAGE_ENTRIES: usize = 256;
/// Most members on which a segment can be stale: no redundancy covers more.
pub const STALE_MEMBERS_MAX: usize = 4;
/// Pointers in a leaf.
pub const LEAF_POINTERS: usize = 256;
/// Most leaves of an object: its pages are counted in 32 bits.
pub const LEAVES_MAX: u32 = 1 << 24;

/// Reason that a page is not the one its pointer describes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PageError {
    /// Not the length of a page or record.
    #[error("the page or record has the wrong length")]
    WrongLength,
    /// Not a page of a list.
    #[error("not a page of a checkpoint list")]
    NoList,
    /// The content breaks the format.
    #[error("malformed page: {0}")]
    Malformed(&'static str),
}

/// Address of a checkpoint page. All zero: no such page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct PagePointer {
    /// Address of the page.
    pub address: Address,
    /// CRC-32C of the page.
    pub checksum: u32,
    /// First row of the batch that holds the page. A checkpoint page must be found before the
    /// segment table is loaded; for all other addresses that table identifies the batch.
    pub batch_row: u16,
    /// Number of rows of that batch.
    pub batch_rows: u16,
    /// False if there is no such page.
    pub present: bool,
}

/// One record of a list page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct LeafRecord {
    /// Object.
    pub object: u32,
    /// Index of the leaf in the object: it covers pages `256*leaf .. 256*leaf + 256`.
    pub leaf: u32,
    /// Address of the leaf.
    pub pointer: PagePointer,
}

impl LeafRecord {
    /// True if such a leaf can exist, so that readers may rely on its object and page numbers.
    fn can_be(&self) -> bool {
        self.object <= OBJECT_MAP + VolumeId::INDEX.0 && self.leaf < LEAVES_MAX
    }
}

/// A page of the list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ListPage {
    /// Number of the checkpoint.
    pub checkpoint: u64,
    /// The preceding page, absent in the first.
    pub previous: PagePointer,
    /// At most [`LIST_RECORDS`] records.
    pub records: Vec<LeafRecord>,
}

/// Most records of a list page.
pub const LIST_RECORDS: usize = 168;

/// State of a volume in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumeState {
    /// In use.
    Active,
    /// Deleted; its blocks are being freed.
    Deleting,
}

/// Effect of a flush of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SyncMode {
    /// As the client requests.
    #[default]
    Standard,
    /// Every write, trim and zeroing is durable before it is answered.
    Always,
    /// Flushes are answered at once and forced unit access is ignored: a crash may lose the last
    /// writes, in LSN order.
    Disabled,
}

impl SyncMode {
    /// Its on-disk number.
    pub(crate) fn to_u8(self) -> u8 {
        match self {
            Self::Standard => 0,
            Self::Always => 1,
            Self::Disabled => 2,
        }
    }

    pub(crate) fn from_u8(value: u8) -> Option<Self> {
        [Self::Standard, Self::Always, Self::Disabled]
            .into_iter()
            .find(|mode| mode.to_u8() == value)
    }
}

/// Compression of the blocks of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// Uncompressed.
    #[default]
    Off,
    /// LZ4 if that saves an eighth.
    Lz4,
    /// Zstd if that saves an eighth. Cleaning recompresses moved blocks that are not zstd yet, if
    /// that saves enough.
    Zstd,
    /// LZ4 for writes; zstd for blocks moved by cleaning, which are cold.
    #[serde(rename = "lz4-then-zstd")]
    Lz4ThenZstd,
}

impl Compression {
    /// All modes.
    pub const ALL: [Self; 4] = [Self::Off, Self::Lz4, Self::Zstd, Self::Lz4ThenZstd];

    /// Its name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
            Self::Lz4ThenZstd => "lz4-then-zstd",
        }
    }

    /// True if blocks may be stored as zstd.
    pub fn may_be_zstd(self) -> bool {
        matches!(self, Self::Zstd | Self::Lz4ThenZstd)
    }

    /// Incompatible flags that must be active before a volume has this mode.
    pub fn features(self) -> u64 {
        match self {
            Self::Off => 0,
            Self::Lz4 => Features::COMPRESSED,
            Self::Zstd | Self::Lz4ThenZstd => Features::COMPRESSED | Features::ZSTD,
        }
    }

    /// Its on-disk number.
    pub(crate) fn to_u8(self) -> u8 {
        match self {
            Self::Off => 0,
            Self::Lz4 => 1,
            Self::Zstd => 2,
            Self::Lz4ThenZstd => 3,
        }
    }

    pub(crate) fn from_u8(value: u8) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|compression| compression.to_u8() == value)
    }
}

/// Deduplication of the blocks of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dedup {
    /// Off: every block is stored separately.
    #[default]
    Off,
    /// Duplicates are found by a fast hash, then compared byte by byte.
    Verify,
    /// Duplicates are found by 128 bits of a cryptographic hash.
    Hash,
}

impl Dedup {
    /// Its on-disk number.
    pub(crate) fn to_u8(self) -> u8 {
        match self {
            Self::Off => 0,
            Self::Verify => 1,
            Self::Hash => 2,
        }
    }

    pub(crate) fn from_u8(value: u8) -> Option<Self> {
        [Self::Off, Self::Verify, Self::Hash]
            .into_iter()
            .find(|dedup| dedup.to_u8() == value)
    }
}

/// A volume in the table (128 bytes on disk, 32 in a page; an all-zero record is free).
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct VolumeRecord {
    /// Id, never reused.
    pub id: VolumeId,
    /// State.
    pub state: VolumeState,
    /// Read-only flag.
    pub read_only: bool,
    /// Effect of flushes.
    pub sync: SyncMode,
    /// Compression of its blocks.
    pub compression: Compression,
    /// Deduplication of its blocks.
    pub dedup: Dedup,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Name, at most 63 bytes.
    pub name: String,
}

impl VolumeRecord {
    /// A new volume: active, writable, standard flushes, not compressed.
    pub fn new(id: VolumeId, size_bytes: u64, name: String) -> Self {
        Self {
            id,
            state: VolumeState::Active,
            read_only: false,
            sync: SyncMode::Standard,
            compression: Compression::Off,
            dedup: Dedup::Off,
            size_bytes,
            name,
        }
    }
}

/// A segment in the table. On disk: 32 bytes + `rows/8` bytes of batch starts, rounded up to 32;
/// records do not cross pages.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SegmentRecord {
    /// Segment id (implied by the position in the table, stored as a check).
    pub segment: SegmentId,
    /// Stream that wrote it last.
    pub stream: StreamId,
    /// True if it was written since it was last free.
    pub in_use: bool,
    /// Number of rows that hold batches.
    pub filled_rows: u32,
    /// Number of the checkpoint that was current (the last one begun) when its last batch was
    /// sealed.
    pub last_checkpoint: u64,
    /// Sequence number of its last batch.
    pub last_seq: BatchSeq,
    /// Members, as a bit mask, that are being rebuilt and on which the segment is not complete yet;
    /// at most [`STALE_MEMBERS_MAX`].
    pub stale: u64,
    /// Bit `r` of word `r/64` is set if a batch starts at row `r`.
    pub starts: Vec<u64>,
}

#[cfg(test)]
mod tests;

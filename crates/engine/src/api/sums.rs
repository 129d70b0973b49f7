//! Sums of reduction and deduplication.

use windrow_format::superblock::Reduction;

/// Use of reduction, and its effect on cleaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct ReductionUse {
    /// The way.
    pub way: Reduction,
    /// Bytes of blocks with data.
    pub blocks_bytes: u64,
    /// Charge of these: their stored size, with 32 bytes more for each compressed one, and whole
    /// blocks for those in flight.
    pub charged_bytes: u64,
    /// Bytes of payload in all segments except the reserve, for live data and garbage.
    pub room_bytes: u64,
    /// (user + moved) / user in millionths under uniform overwrites of all data, by the closed form
    /// for first-in-first-out cleaning, with the present live data.
    pub cleaning_now_ppm: u64,
    /// The same for a pool filled by `spare` with data of the present reduction ratio; 0: not
    /// known, as there is no data.
    pub cleaning_full_spare_ppm: u64,
    /// The same by `capacity`.
    pub cleaning_full_capacity_ppm: u64,
}

/// Present state of deduplication.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct DedupStatus {
    /// Blocks of volumes that refer to shared content, in bytes.
    pub referred_bytes: u64,
    /// Blocks of content that they refer to, in bytes (before compression).
    pub unique_bytes: u64,
    /// Stored size of that content, compressed where it is.
    pub stored_bytes: u64,
    /// Number of index entries, and its limit.
    pub index_entries: u64,
    /// See `index_entries`.
    pub index_entries_max: u64,
    /// Number of index pages on the members, and its limit.
    pub index_pages: u64,
    /// See `index_pages`.
    pub index_pages_max: u64,
    /// Number of fingerprints with a known page.
    pub index_hooks: u64,
    /// Number of index pages scanned since the start, and to be scanned. Until the end of the scan
    /// fewer duplicates are found.
    pub index_pages_scanned: u64,
    /// See `index_pages_scanned`.
    pub index_pages_to_scan: u64,
    /// Memory of the index, and of the state of its pages.
    pub index_bytes: u64,
    /// Memory of the table of ids.
    pub ids_bytes: u64,
    /// Counters since start.
    pub sums: DedupSums,
}

/// Compression counters since start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct ReductionSums {
    /// Bytes of user blocks of compressing volumes. Not all of them are tried: see
    /// `path/write/reduce.rs`.
    pub tried_bytes: u64,
    /// User bytes of the blocks that were stored compressed.
    pub compressed_user_bytes: u64,
    /// Bytes of codec output for these.
    #[serde(alias = "lz4_bytes")]
    pub codec_bytes: u64,
    /// Stored bytes of these: in whole units of 16 bytes.
    pub stored_bytes: u64,
    /// Whole blocks that the stored bytes took in batches, with the gaps between them, in bytes.
    pub area_bytes: u64,
    /// Stored bytes of moved blocks that were tried with zstd.
    pub repack_tried_bytes: u64,
    /// Stored bytes of those that became smaller, before recompression.
    pub repacked_from_bytes: u64,
    /// Stored bytes of those after recompression.
    pub repacked_to_bytes: u64,
}

impl ReductionSums {
    /// Counters in the order in which checkpoints store them.
    pub(crate) fn to_words(self) -> [u64; 8] {
        let Self {
            tried_bytes,
            compressed_user_bytes,
            codec_bytes,
            stored_bytes,
            area_bytes,
            repack_tried_bytes,
            repacked_from_bytes,
            repacked_to_bytes,
        } = self;
        [
            tried_bytes,
            compressed_user_bytes,
            codec_bytes,
            stored_bytes,
            area_bytes,
            repack_tried_bytes,
            repacked_from_bytes,
            repacked_to_bytes,
        ]
    }

    /// Counters from the words of a checkpoint.
    pub(crate) fn from_words(words: [u64; 8]) -> Self {
        let [
            tried_bytes,
            compressed_user_bytes,
            codec_bytes,
            stored_bytes,
            area_bytes,
            repack_tried_bytes,
            repacked_from_bytes,
            repacked_to_bytes,
        ] = words;
        Self {
            tried_bytes,
            compressed_user_bytes,
            codec_bytes,
            stored_bytes,
            area_bytes,
            repack_tried_bytes,
            repacked_from_bytes,
            repacked_to_bytes,
        }
    }

    /// Sum of both.
    pub(crate) fn and(self, other: &Self) -> Self {
        let (mine, other) = (self.to_words(), other.to_words());
        Self::from_words(std::array::from_fn(|at| mine[at].saturating_add(other[at])))
    }
}

/// Counters of deduplication since start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct DedupSums {
    /// Number of blocks whose fingerprint was looked up.
    pub looked_up: u64,
    /// Number of blocks that became references.
    pub found: u64,
    /// Number of blocks whose bytes were compared.
    pub compared: u64,
    /// Number of blocks that had the fingerprint of other content, or of unreadable content.
    pub mismatched: u64,
    /// Number of evicted index entries.
    pub evicted: u64,
    /// Number of index pages written.
    pub pages_written: u64,
    /// Number of index pages dropped because there was no room.
    pub pages_dropped: u64,
    /// Number of index pages read, including those of a start.
    pub pages_read: u64,
    /// Number of index pages that were unreadable or too old.
    pub pages_void: u64,
}

/// Number of words that a checkpoint keeps of [`DedupSums`].
pub(crate) const DEDUP_WORDS: usize = 9;

impl DedupSums {
    /// Words in checkpoint order.
    pub(crate) fn to_words(self) -> [u64; DEDUP_WORDS] {
        let Self {
            looked_up,
            found,
            compared,
            mismatched,
            evicted,
            pages_written,
            pages_dropped,
            pages_read,
            pages_void,
        } = self;
        [
            looked_up,
            found,
            compared,
            mismatched,
            evicted,
            pages_written,
            pages_dropped,
            pages_read,
            pages_void,
        ]
    }

    /// Counters from the words of a checkpoint.
    pub(crate) fn from_words(words: [u64; DEDUP_WORDS]) -> Self {
        let [
            looked_up,
            found,
            compared,
            mismatched,
            evicted,
            pages_written,
            pages_dropped,
            pages_read,
            pages_void,
        ] = words;
        Self {
            looked_up,
            found,
            compared,
            mismatched,
            evicted,
            pages_written,
            pages_dropped,
            pages_read,
            pages_void,
        }
    }

    /// Sum of both.
    pub(crate) fn and(self, other: &Self) -> Self {
        let (mine, other) = (self.to_words(), other.to_words());
        Self::from_words(std::array::from_fn(|at| mine[at].saturating_add(other[at])))
    }
}

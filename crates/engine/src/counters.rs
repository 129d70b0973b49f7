//! Counters since the start of the engine.

/// Counters since start, and the lifetime totals they began with.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) user_write_bytes: u64,
    pub(crate) user_read_bytes: u64,
    pub(crate) fill_blocks: u64,
    pub(crate) flushes: u64,
    pub(crate) checkpoints: u64,
    /// Checkpoints that the cleaner requested because no other segment could be cleaned.
    pub(crate) checkpoints_forced: u64,
    pub(crate) segments_cleaned: u64,
    pub(crate) victims: u64,
    pub(crate) repaired_reads: u64,
    /// Bytes of data space that batches took: the clock of segment ages.
    pub(crate) log_bytes: u64,
    /// Bytes of checkpoint batches among them.
    pub(crate) checkpoint_log_bytes: u64,
    /// Bytes of committed user blocks and records.
    pub(crate) committed_user_bytes: u64,
    /// Lifetime totals with which the engine started.
    pub(crate) lifetime_user_bytes: u64,
    pub(crate) lifetime_member_bytes: u64,
    pub(crate) lifetime_reduction: ReductionSums,
    pub(crate) lifetime_dedup: DedupSums,
    /// Highest warning in force.
    pub(crate) filling_reported: u8,
    pub(crate) overcommitted_reported: bool,
    /// Writes refused because no map page was left, and because there was no space.
    pub(crate) refused_map_pages: u64,
    pub(crate) refused_space: u64,
    pub(crate) map_full_reported: bool,
}

/// Compression counters since start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct ReductionSums {
    /// Bytes of user blocks of compressing volumes. Not all of them are tried: see
    /// `write/reduce.rs`.
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

/// Number of words that a checkpoint keeps of [`DedupSums`].
pub(crate) const DEDUP_WORDS: usize = 9;

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

//! Figures of the modelled members: one committed file, each value with its source.

use serde::Deserialize;

/// A value and its source, or "assumed".
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure<T> {
    /// The value, in the unit of its name's suffix.
    pub value: T,
    /// Its source.
    pub source: String,
}

/// An SSD.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(
    missing_docs,
    reason = "timings.toml says what each figure is, and where it is from"
)]
pub struct SsdTimings {
    pub channels: Figure<u64>,
    pub dies_per_channel: Figure<u64>,
    pub planes: Figure<u64>,
    pub page_bytes: Figure<u64>,
    pub pages_per_word_line: Figure<u64>,
    pub erase_block_bytes: Figure<u64>,
    pub read_page_ns: Figure<[u64; 3]>,
    pub program_word_line_ns: Figure<u64>,
    pub program_spread_per_mille: Figure<u64>,
    pub erase_ns: Figure<u64>,
    pub channel_bytes_per_second: Figure<u64>,
    pub program_suspend: Figure<u64>,
    pub program_suspend_ns: Figure<u64>,
    pub controller_read_ns: Figure<u64>,
    pub controller_write_ns: Figure<u64>,
    pub link_read_bytes_per_second: Figure<u64>,
    pub link_write_bytes_per_second: Figure<u64>,
    pub buffer_bytes: Figure<u64>,
    pub flush_ns: Figure<u64>,
    pub raw_per_mille_of_usable: Figure<u64>,
}

/// A memory device.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "as above")]
pub struct MemoryTimings {
    pub latency_ns: Figure<u64>,
    pub commands_per_second: Figure<u64>,
    pub bytes_per_second: Figure<u64>,
    pub flush_ns: Figure<u64>,
}

/// Processor time of the engine and its jobs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "as above")]
pub struct ProcessorTimings {
    pub apply_ns: Figure<u64>,
    pub block_ns: Figure<u64>,
    pub job_byte_ps: Figure<u64>,
    pub workers: Figure<u64>,
}

/// The array written in place.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "as above")]
pub struct InPlaceTimings {
    pub chunk_bytes: Figure<u64>,
    pub stripe_cache_rows: Figure<u64>,
    pub journal_bytes: Figure<u64>,
    pub request_ns: Figure<u64>,
}

/// All figures.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timings {
    /// Members, and journal devices like them.
    pub ssd: SsdTimings,
    /// The other kind of journal device.
    pub memory: MemoryTimings,
    /// The host.
    pub processor: ProcessorTimings,
    /// The talk's array.
    pub in_place: InPlaceTimings,
}

impl Timings {
    /// Figures of the committed file.
    ///
    /// # Panics
    /// If the file does not match this program: a test reads it.
    pub fn published() -> Self {
        match toml::from_str(include_str!("../timings.toml")) {
            Ok(timings) => timings,
            Err(error) => panic!("timings.toml: {error}"),
        }
    }
}

/// Nanoseconds of a transfer at this rate, rounded up.
pub fn transfer_ns(bytes: u64, bytes_per_second: u64) -> u64 {
    (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(bytes_per_second.max(1))) as u64
}

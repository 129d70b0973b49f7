//! Planning: capacity, cost, write rate and endurance of drive arrays, and the write amplification
//! of each layer.
//!
//! Pure: numbers and texts in, numbers and texts out; no files, no clock. `docs/lab/plan.md` has
//! the formulas with their sources.
//!
//! - [`drive`]: drives and catalogues of them. [`topology`]: number of data drives, and cost of a write in place.
//! - [`array`](mod@array): one drive model in one topology, alone or under a log: capacity, cost, rate, overwrites a day for five years.
//! - [`overwrites`]: overwrites of classes of drives, counted in gross bytes. [`classes`]: duty and endurance classes, composite gains.
//! - [`mixed`]: reads and writes that share a drive's time.
//! - [`ftl`]: models of flash translation layers. [`layers`]: write amplification by layer, without and with a log below the file system.
//! - [`health`]: health figures reported by drives (SMART, NVMe).
//! - [`sources`]: the published tables, recomputed, with the misprints listed.

pub mod array;
pub mod classes;
pub mod drive;
pub mod ftl;
pub mod health;
pub mod layers;
pub mod mixed;
pub mod overwrites;
pub mod rounding;
pub mod sources;
pub mod topology;

/// Days in the five years for which endurance is stated.
pub const FIVE_YEARS_DAYS: f64 = 5.0 * 365.0;

/// Block size that random writes are counted in.
pub const BLOCK_BYTES: u64 = 4096;

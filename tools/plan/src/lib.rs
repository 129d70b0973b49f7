//! Planning: what an array of drives holds, costs, writes each second and survives, and what each
//! layer adds to what is written.
//!
//! Pure: numbers and texts in, numbers and texts out; no files, no clock. `docs/lab/plan.md` has
//! the formulas with their sources.
//!
//! - [`drive`]: drives and catalogues of them. [`topology`]: how many drives hold data, and what a write costs in place.
//! - [`array`](mod@array): one drive model in one topology, alone or under a log: capacity, cost, rate, overwrites a day for five years.
//! - [`overwrites`]: the same for classes of drives, counted in gross bytes. [`classes`]: duty and endurance classes, composite gains.
//! - [`mixed`]: reads and writes that share a drive's time.
//! - [`ftl`]: models of what a drive does inside. [`layers`]: write amplification by layer, without and with a log below the file system.
//! - [`health`]: what drives say of themselves (SMART, NVMe).
//! - [`sources`]: the published tables, computed again, with the misprints named.

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

/// Bytes of the block that random writes are counted in.
pub const BLOCK_BYTES: u64 = 4096;

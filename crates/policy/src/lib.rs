//! Placement streams, victim selection, pacing: the policies of the log, pure.
//!
//! Nothing here knows of members, blocks in flight or time; all functions are of numbers, so the engine and the laboratory run the very same
//! code and a simulation answers for the product. Equal call sequences give equal results on every machine.
//!
//! Read in this order: [`stream`] (where a block goes), [`victim`] (which segment is worth cleaning), [`index`] (finding it among
//! hundreds of thousands), [`pacing`] (how much cleaning per user write), [`analytic`] (what write amplification theory expects).

pub mod analytic;
pub mod index;
pub mod pacing;
pub mod stream;
pub mod victim;

pub use index::{VictimIndex, VictimPolicy};
pub use pacing::{MoveDebt, Pace, Watermarks, cleaning_share};
pub use stream::{Origin, Stream, placement};
pub use victim::{SegmentStats, cost_benefit};

//! Placement streams and victim selection: the policies of the log, pure.
//!
//! Nothing here knows of members, blocks in flight or time; all functions are of numbers, so the
//! engine and the laboratory run the very same code and a simulation answers for the product. Equal
//! call sequences give equal results on every machine.
//!
//! Read in this order: [`stream`] (where a block goes), [`victim`] (which segment is worth
//! cleaning), [`index`] (finding it among hundreds of thousands), [`analytic`] (what write
//! amplification theory expects).

pub mod analytic;
pub mod any;
pub mod chain;
pub mod index;
pub mod kind;
pub mod learn;
pub mod place;
pub mod select;
pub mod stream;
pub mod victim;

pub use index::{VictimIndex, VictimPolicy};
pub use stream::{Origin, Stream, placement};
pub use victim::{SegmentStats, cost_benefit, opportunity_cost};

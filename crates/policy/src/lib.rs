//! Placement streams and victim selection: the policies of the log, pure.
//!
//! Nothing here knows members, blocks in flight or time; all functions take numbers. The engine and
//! the laboratory therefore run the same code, and simulation results hold for the product. Equal
//! call sequences give equal results on every machine.
//!
//! Read in this order: [`stream`] (stream of a block), [`victim`] (value of a segment as a victim),
//! [`index`] (search among hundreds of thousands), [`analytic`] (write amplification predicted by
//! theory).

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

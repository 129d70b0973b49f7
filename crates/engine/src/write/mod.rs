//! The write path: admit (edge, part) -> place -> seal -> commit.

pub(crate) mod admit;
mod commit;
mod edge;
pub(crate) mod pace;
mod part;
mod place;
mod room;
mod rows;
mod seal;

pub(crate) use admit::{Admission, Arrived, Placing};
pub(crate) use room::{EDGE_UNITS, segments_ahead};
pub(crate) use rows::FullRows;

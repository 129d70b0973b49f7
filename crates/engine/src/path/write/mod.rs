//! The write path: admit (RMW, chunked) -> reduce -> place -> seal -> commit.

pub(crate) mod admit;
mod chunked;
mod commit;
mod exhausted;
pub(crate) mod pace;
mod place;
mod reduce;
pub(crate) mod risk;
mod rmw;
mod room;
mod rows;
mod seal;

pub(crate) use crate::store::plan::{DATA_UNITS, EDGE_UNITS, RECORD_UNITS};
pub(crate) use admit::{Admission, Arrived, Placing};
pub(crate) use rows::FullRows;

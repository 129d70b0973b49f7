//! The write path: admit -> place -> seal -> commit.

pub(crate) mod admit;
mod commit;
mod place;
mod room;
mod seal;

pub(crate) use admit::Admission;
pub(crate) use room::EDGE_UNITS;

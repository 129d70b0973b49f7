//! The write path: admit -> place -> seal -> commit.

pub(crate) mod admit;
mod room;
mod commit;
mod place;
mod seal;

pub(crate) use admit::Admission;

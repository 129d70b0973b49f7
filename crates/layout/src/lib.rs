//! Every byte on disk: encode, decode, check. Pure, total on any input; `docs/on-disk-format.md` is its specification.
//!
//! Read in this order: [`superblock`] (what a member is and where to begin), [`batch`] (what the log is made of),
//! [`checkpoint`] (pages that images of the tables are made of), [`map_entry`] (16 bytes for each block of a volume).

pub mod batch;
pub mod checkpoint;
pub mod map_entry;
pub mod superblock;

//! Geometry of the members: stripe shapes, zones, and the area of the journal.
//!
//! Pure arithmetic: no I/O, no allocation on a hot path.

mod journal;
mod shape;

pub use journal::{
    JOURNAL_CHUNK_MAX, JOURNAL_CHUNK_MIN, JOURNAL_CHUNKS_MAX, JOURNAL_CHUNKS_MIN, JournalArea,
};
pub use shape::{
    Code, Column, MAX_MEMBERS, Redundancy, RedundancyError, SegmentLocation, Shape, Zone, ZoneMap,
};

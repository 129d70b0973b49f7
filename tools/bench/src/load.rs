//! Loads: random numbers, incompressible data, in-process requests through a session, and raw reads
//! and writes of members.

pub mod chained;
pub mod mixed;
pub mod paced;
pub mod raw_read;
pub mod raw_rebuild;
pub mod sync;

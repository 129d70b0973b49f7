//! Loads: random numbers, data that cannot be compressed, requests in process through a session,
//! and raw reads and writes of members.

pub mod chained;
pub mod mixed;
pub mod paced;
pub mod raw_read;
pub mod raw_rebuild;
pub mod sync;

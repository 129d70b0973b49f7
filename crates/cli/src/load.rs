//! Loads: random numbers, data that cannot be compressed, requests in process through a session, and raw linear writes.

pub mod linear;
pub mod random;
pub mod session;

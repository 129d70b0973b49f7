//! Loads of the demo and the benchmarks: random numbers, data that cannot be compressed, requests
//! in process through a session, raw reads and writes of members, an NBD client, fio, and the
//! processor use meanwhile.

pub mod fio;
pub mod in_place;
pub mod linear;
pub mod machine;
pub mod nbd_client;
pub mod random;
pub mod session;

//! The tests of the crate from outside, in one binary: one build and one link instead of many. A
//! module is named for the behaviour that it proves.

#[path = "../support/mod.rs"]
mod support;

mod attended;
mod greedy;
mod hostile;
mod real_clients;
mod server;

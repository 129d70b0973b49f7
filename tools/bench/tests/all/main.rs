//! Tests of the crate from outside, in one binary. A module is named for the behaviour that it
//! proves.

#[path = "../../../../tests/support/mod.rs"]
mod support;

mod benchmarks;
mod numbers;

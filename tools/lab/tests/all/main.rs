//! Tests of the crate from outside, in one binary. A module is named for the behaviour that it
//! proves.

#[path = "../../../../tests/support/mod.rs"]
mod support;

mod files;
mod numbers;
mod plan_and_traces;
mod trace_record;

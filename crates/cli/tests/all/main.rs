//! The tests of the crate from outside, in one binary: one build and one link instead of many. A
//! module is named for the behaviour that it proves.

#[path = "../../../../tests/support/mod.rs"]
mod support;

mod agreement;
mod bad_input;
mod database;
mod environment;
mod estimate;
mod exports;
mod file_system_kills;
mod file_systems;
mod journal;
mod kill_loop;
mod life_of_a_pool;
mod limits;
mod map_memory;
mod members;
mod members_at_rest;
mod members_unfit;
mod metrics;
mod numbers;
mod outside;
mod real_clients;
mod rebuild_map;
mod scrub;
mod served_members;
mod surroundings;
mod two_pools;

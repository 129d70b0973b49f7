//! Data in self-identifying pieces, and the states of members.

use super::nbd::Client;
use super::{Random, World};
use serde_json::Value;

pub const PIECE: usize = 256 << 10;

pub fn status(world: &World) -> Value {
    serde_json::from_str(&world.succeeds("pool status tank -o json")).expect("JSON")
}

pub fn member_state(world: &World, member: usize) -> String {
    let status = status(world);
    status["members"][member]["state"]
        .as_str()
        .unwrap_or_else(|| panic!("no state in {status}"))
        .to_owned()
}

pub fn piece(number: u64, round: u64) -> Vec<u8> {
    Random(number * 1000 + round).bytes(PIECE)
}

/// Writes the first pieces, and flushes.
pub fn fill(client: &mut Client, pieces: u64, round: u64) {
    for number in 0..pieces {
        client.write(number, number * PIECE as u64, &piece(number, round), false);
        client.push().expect("sent");
        client.answer().expect("answered");
    }
    client.flush(1);
    client.push().expect("sent");
    client.answer().expect("flushed");
}

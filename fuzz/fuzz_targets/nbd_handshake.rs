//! Input of a server before the client enters an export, as a program of messages and as plain
//! bytes.
#![no_main]

#[path = "../../crates/nbd/tests/support/hostile.rs"]
mod hostile;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    hostile::handshake(&hostile::wire(data));
    hostile::handshake(data);
});

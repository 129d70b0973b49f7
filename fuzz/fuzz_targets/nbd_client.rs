//! Input of our NBD client from a server: unchanged, and after a valid handshake.
//!
//! The client has requested sixteen reads and two writes. It must end with an error, and answer
//! nothing that was not requested.
#![no_main]

#[path = "../../crates/load/src/nbd_client.rs"]
#[allow(dead_code)]
mod nbd_client;

use libfuzzer_sys::fuzz_target;
use nbd_client::NbdClient;
use std::io::{Cursor, sink};

/// Greeting, an export of 64 KiB, its end.
const ENTERED: &[u8] = b"NBDMAGICIHAVEOPT\x00\x03\
    \x00\x03\xe8\x89\x04\x55\x65\xa9\x00\x00\x00\x07\x00\x00\x00\x03\x00\x00\x00\x0c\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x01\
    \x00\x03\xe8\x89\x04\x55\x65\xa9\x00\x00\x00\x07\x00\x00\x00\x01\x00\x00\x00\x00";

fn talk(from_server: &[u8]) -> bool {
    let Ok(mut client) = NbdClient::over(Cursor::new(from_server), sink(), "volume") else {
        return false;
    };
    (0..16).for_each(|cookie| {
        client
            .read(cookie, cookie * 64, 64)
            .expect("a sink takes all")
    });
    (0..2).for_each(|_| client.write(16, 0, &[0; 64]).expect("a sink takes all"));
    let mut answers = 0;
    while let Ok(answer) = client.answer() {
        let is_read = answer.cookie < 16 && answer.error == 0;
        assert!(answer.cookie <= 16 && answer.data.len() == if is_read { 64 } else { 0 });
        answers += 1;
    }
    assert!(answers <= 18, "more answers than requests");
    true
}

fuzz_target!(|data: &[u8]| {
    talk(data);
    assert!(talk(&[ENTERED, data].concat()), "a handshake in order");
});

//! A whole connection to a server over in-memory volumes, with a well-behaved second client that
//! must not be affected.
#![no_main]

#[path = "../../crates/nbd/tests/support/hostile.rs"]
mod hostile;

use libfuzzer_sys::fuzz_target;
use std::sync::{LazyLock, Mutex};

static TARGET: LazyLock<Mutex<hostile::Target>> =
    LazyLock::new(|| Mutex::new(hostile::Target::new()));

fuzz_target!(|data: &[u8]| {
    if let Ok(mut target) = TARGET.lock() {
        target.attack(&hostile::wire(data));
    }
});

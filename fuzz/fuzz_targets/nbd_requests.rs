//! Input of a server in the transmission phase; the first byte selects the negotiated options.
#![no_main]

#[path = "../../crates/nbd/tests/support/hostile.rs"]
mod hostile;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((mode, program)) = data.split_first() else {
        return;
    };
    hostile::requests(&hostile::wire(program), *mode);
    hostile::requests(program, *mode);
});

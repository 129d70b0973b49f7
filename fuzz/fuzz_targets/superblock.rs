//! A superblock slot, unchanged and with a valid checksum. What is accepted must encode to bytes
//! with the same meaning.
#![no_main]

use libfuzzer_sys::fuzz_target;
use windrow_format::superblock::{SLOT_BYTES, Superblock};

fuzz_target!(|data: &[u8]| {
    let _ = Superblock::decode(data);
    let mut slot = data.to_vec();
    slot.resize(SLOT_BYTES, 0);
    signing::sign_superblock(&mut slot);
    let Ok(superblock) = Superblock::decode(&slot) else {
        return;
    };
    assert_eq!(Superblock::decode(&superblock.encode()), Ok(superblock));
});

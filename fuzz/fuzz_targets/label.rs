//! A label, unchanged and with a valid checksum.
#![no_main]

use libfuzzer_sys::fuzz_target;
use windrow_format::superblock::{LABEL_BYTES, Label};

fuzz_target!(|data: &[u8]| {
    let _ = Label::decode(data);
    let mut bytes = data.to_vec();
    bytes.resize(LABEL_BYTES, 0);
    signing::sign_label(&mut bytes);
    let Ok(label) = Label::decode(&bytes) else {
        return;
    };
    assert_eq!(Label::decode(&label.encode()), Ok(label));
});

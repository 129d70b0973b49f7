//! Foreign signatures on a device: the first three bytes are its size in units of 512 bytes,
//! followed by offsets and bytes. Every signature found lies on the device.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::os::unix::fs::FileExt;
use windrow_device::probe::signature::{Window, find};

/// Larger devices look the same: only their two ends are read.
const SIZE_MAX: u64 = 8 << 20;

fuzz_target!(|input: &[u8]| {
    let [a, b, c, rest @ ..] = input else { return };
    let size = (u64::from(*a) | u64::from(*b) << 8 | u64::from(*c) << 16) * 512 % SIZE_MAX;
    let file = tempfile::tempfile_in("/dev/shm")
        .or_else(|_| tempfile::tempfile())
        .expect("a file");
    file.set_len(size).expect("a size");
    let mut rest = rest;
    while let [from_end, low, high, length, more @ ..] = rest {
        let (bytes, behind) = more.split_at(usize::from(*length).min(more.len()));
        let distance = u64::from(*low) | u64::from(*high) << 8;
        let at = if from_end & 1 == 1 {
            size.saturating_sub(distance * u64::from(from_end >> 1 | 1))
        } else {
            distance * u64::from(from_end >> 1 | 1)
        };
        let room = size.saturating_sub(at).min(bytes.len() as u64) as usize;
        file.write_all_at(&bytes[..room], at).expect("written");
        rest = behind;
    }
    let window = Window::read(&file).expect("read");
    assert_eq!(window.size_bytes(), size);
    assert!(
        find(&window)
            .iter()
            .all(|signature| signature.offset < size)
    );
});

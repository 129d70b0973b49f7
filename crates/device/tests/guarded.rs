//! Fingerprints of blocks at the end of readable memory. The assembly that hashes many blocks at
//! once must not read past its inputs: it would crash if a block is followed by an unmapped page
//! (simulator, seeds 9640550 to 9640760).

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use windrow_reduction::Fingerprint;

const BLOCK: usize = 4096;

/// Memory followed by an inaccessible page.
struct Guarded {
    base: *mut std::ffi::c_void,
    bytes: usize,
}

impl Guarded {
    fn new(bytes: usize) -> Self {
        // SAFETY: a new mapping, at an address that the kernel chooses; its last page is made
        // inaccessible and is in no slice.
        let base = unsafe {
            let base = mmap_anonymous(
                std::ptr::null_mut(),
                bytes + BLOCK,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
            .expect("memory");
            mprotect(
                base.cast::<u8>().add(bytes).cast(),
                BLOCK,
                MprotectFlags::empty(),
            )
            .expect("a guard");
            base
        };
        Self { base, bytes }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: mapped, readable and writable while `self` lives, borrowed as `self` is.
        unsafe { std::slice::from_raw_parts_mut(self.base.cast(), self.bytes) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` created, to which no references remain.
        _ = unsafe { munmap(self.base, self.bytes + BLOCK) };
    }
}

#[test]
fn nothing_is_read_behind_a_block() {
    for count in 1..=34 {
        // All blocks but the last one elsewhere, in front of it, or each before its own guard page.
        let mut each: Vec<Guarded> = (0..count).map(|_| Guarded::new(BLOCK)).collect();
        let mut together = Guarded::new(count * BLOCK);
        for (number, block) in each.iter_mut().enumerate() {
            block
                .bytes()
                .iter_mut()
                .enumerate()
                .for_each(|(at, byte)| *byte = ((at * (number + 1) * 31) >> 3) as u8);
            together.bytes()[number * BLOCK..][..BLOCK].copy_from_slice(block.bytes());
        }
        let singly: Vec<u128> = each
            .iter_mut()
            .map(|block| Fingerprint::Strong.of(block.bytes()))
            .collect();
        assert_eq!(
            Fingerprint::of_all(
                each.iter_mut()
                    .map(|block| (Fingerprint::Strong, &block.bytes()[..]))
            ),
            singly,
            "{count} blocks"
        );
        assert_eq!(
            Fingerprint::of_all(
                together
                    .bytes()
                    .chunks_exact(BLOCK)
                    .map(|block| (Fingerprint::Strong, block))
            ),
            singly,
            "{count} blocks"
        );
    }
}

//! Members of a small pool with data, changed as the input says (superblocks with right checksums again): opened by the engine, for reading and for
//! writing, and checked without it. Anything may be refused; nothing may panic.
//!
//! The input is a list of changes: kind, member, place (two bytes), length, and so many bytes.
#![no_main]

#[path = "../../crates/engine/tests/machine/mod.rs"]
mod machine;

use libfuzzer_sys::fuzz_target;
use machine::{Machine, Memory, PROPERTIES};
use std::sync::LazyLock;
use windrow_engine::{Control, Engine, Limits, OpenOptions, PoolSpec};
use windrow_inspect::CheckOptions;
use windrow_io::{BufPool, MemberError, MemberErrorKind, MemberIo};
use windrow_layout::superblock::{SLOT_BYTES, SLOT_COUNT, SLOT_OFFSET, SLOT_STRIDE};
use windrow_units::{MemberId, Redundancy, Uuid};

const MEMBERS: usize = 3;
const MEMBER_BYTES: usize = 4 << 20;
const BLOCK: usize = 4096;

/// As [`Memory`], but a request beyond the end is refused, as a device does it.
struct Members(Memory);

impl Members {
    fn inside(&self, member: MemberId, offset: u64, length: usize) -> Result<(), MemberError> {
        let size = self.0.size(member);
        let fits = offset.checked_add(length as u64).is_some_and(|end| end <= size);
        if fits { Ok(()) } else { Err(MemberError { member, kind: MemberErrorKind::Media, offset, code: 5 }) }
    }
}

impl MemberIo for Members {
    fn member_count(&self) -> usize {
        self.0.member_count()
    }
    fn is_present(&self, member: MemberId) -> bool {
        self.0.is_present(member)
    }
    fn size(&self, member: MemberId) -> u64 {
        self.0.size(member)
    }
    fn read(&mut self, member: MemberId, offset: u64, buf: &mut [u8]) -> Result<(), MemberError> {
        self.inside(member, offset, buf.len())?;
        self.0.read(member, offset, buf)
    }
    fn write(&mut self, member: MemberId, offset: u64, buf: &[u8]) -> Result<(), MemberError> {
        self.inside(member, offset, buf.len())?;
        self.0.write(member, offset, buf)
    }
    fn flush(&mut self, member: MemberId) -> Result<(), MemberError> {
        self.0.flush(member)
    }
}

/// A pool with two checkpoints, batches after them, trims, and no clean end.
static POOL: LazyLock<Memory> = LazyLock::new(|| {
    let mut memory = Memory {
        data: vec![vec![0; MEMBER_BYTES]; MEMBERS],
        present: vec![true; MEMBERS],
        failing: vec![false; MEMBERS],
        vanishing: vec![false; MEMBERS],
        writes_left: None,
        bad: Vec::new(),
        written: vec![0; MEMBERS],
        flushed: vec![0; MEMBERS],
    };
    let spec = PoolSpec {
        name: "fuzz".into(),
        redundancy: Redundancy::Single,
        chunk_rows: Some(4),
        segment_rows: Some(16),
        align_bytes: 4096,
        pool: Uuid([9; 16]),
        members: (0..MEMBERS as u8).map(|member| (Uuid([member + 1; 16]), MEMBER_BYTES as u64)).collect(),
        created_unix_s: 0,
        journal: None,
        properties: PROPERTIES,
    };
    Engine::format(&mut memory, &spec).expect("format");
    let mut machine = Machine::open(memory);
    let volume = machine.volume(1 << 20);
    for round in 0..3 {
        (0..40).for_each(|lba| machine.write(volume, lba * 3 % 64, lba as u8 + round));
        machine.flush(volume);
        if round < 2 {
            machine.command(Control::Checkpoint);
        }
    }
    machine.crash().memory
});

fn change(memory: &mut Memory, kind: u8, member: usize, place: usize, bytes: &[u8]) {
    let data = &mut memory.data[member];
    match kind {
        // A superblock slot, signed.
        0..=2 => {
            let slot = &mut data[(SLOT_OFFSET + (place as u64 % SLOT_COUNT) * SLOT_STRIDE) as usize..][..SLOT_BYTES];
            // What has a meaning is near the start.
            let at = 16 + place / 4 % 2000;
            slot[at..at + bytes.len()].copy_from_slice(bytes);
            signing::sign_superblock(slot);
        }
        // Bytes anywhere, as they are.
        3 => {
            let at = place * 64 % (MEMBER_BYTES - 256);
            data[at..at + bytes.len()].copy_from_slice(bytes);
        }
        // A block that never was, and one that belongs elsewhere.
        4 => data[place * BLOCK % MEMBER_BYTES..][..BLOCK].fill(bytes.first().copied().unwrap_or(0)),
        5 => {
            let from = bytes.first().map_or(0, |byte| usize::from(*byte) * BLOCK) % MEMBER_BYTES;
            data.copy_within(from..from + BLOCK, place * BLOCK % MEMBER_BYTES);
        }
        6 => memory.present[member] = false,
        _ => memory.bad.push((member, place * BLOCK % MEMBER_BYTES)),
    }
}

fuzz_target!(|input: &[u8]| {
    let mut memory = POOL.clone();
    let mut rest = input;
    while let [kind, member, low, high, length, more @ ..] = rest {
        let (bytes, behind) = more.split_at(usize::from(*length).min(more.len()));
        change(&mut memory, kind % 8, usize::from(*member) % MEMBERS, usize::from(*low) | usize::from(*high) << 8, bytes);
        rest = behind;
    }
    let mut members = Members(memory);
    let options = |read_only, force| OpenOptions { host: Uuid([1; 16]), read_only, force, discard_journal: false, limits: Limits::default() };
    let buffers = BufPool::new(16 << 20);
    windrow_inspect::check(&mut members, &CheckOptions { verify_payload: true, verify_parity: true }, &mut |_| ());
    _ = Engine::open(&mut members, buffers.clone(), &options(true, false));
    _ = Engine::open(&mut members, buffers.clone(), &options(false, true));
    _ = Engine::rebuild_map(&mut members, buffers, &options(true, true), Default::default(), &mut |_| ());
});

//! Small pools on in-memory members, and changes of their content, for the targets that read whole
//! pools.
//!
//! The first byte of an input selects the pool. A list of changes follows: kind, member, address
//! (two bytes), length, and the bytes.

#[path = "../crates/engine/tests/machine/mod.rs"]
mod machine;

use machine::{Machine, Memory, PROPERTIES};
use std::sync::LazyLock;
use windrow_engine::{Control, ControlReply, Engine, JournalSpec, Limits, OpenOptions, PoolSpec};
use windrow_format::batch::decode_header;
use windrow_format::checkpoint::{Compression, Dedup};
use windrow_format::journal::decode_record_header;
use windrow_format::superblock::{SLOT_BYTES, SLOT_COUNT, SLOT_OFFSET, SLOT_STRIDE};
use windrow_geometry::{JournalArea, Redundancy};
use windrow_io::{BufPool, MemberError, MemberErrorKind, MemberIo};
use windrow_types::{MemberId, Uuid, VolumeId};

const MEMBER_BYTES: usize = 4 << 20;
const JOURNAL_BYTES: u64 = 256 << 10;
const BLOCK: usize = 4096;
const FOOTER_AT: usize = 4032;
/// Replaces a record or batch address: all copies are changed alike, not just the first.
const ALL_COPIES: usize = 0x8000;

/// As [`Memory`], but a request past the end is refused, as a device does it.
pub struct Members(Memory);

impl Members {
    fn inside(&self, member: MemberId, offset: u64, length: usize) -> Result<(), MemberError> {
        let size = self.0.size(member);
        let fits = offset
            .checked_add(length as u64)
            .is_some_and(|end| end <= size);
        if fits {
            Ok(())
        } else {
            Err(MemberError {
                member,
                kind: MemberErrorKind::Media,
                offset,
                code: 5,
            })
        }
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

/// Member and byte offset.
type Address = (usize, usize);

/// A journal record: positions of its copies, and its length.
struct Record {
    copies: Vec<Address>,
    bytes: usize,
}

/// Ends of a batch with a head of one block, and their copies.
struct Ends {
    heads: Vec<Address>,
    tails: Vec<Address>,
}

/// A pool with two checkpoints, batches after them, and no clean end; with a journal also records
/// that the log lacks.
struct Pool {
    memory: Memory,
    records: Vec<Record>,
    batches: Vec<Ends>,
}

static POOLS: [LazyLock<Pool>; 4] = [
    LazyLock::new(|| Pool::of(Redundancy::Single, 3, None, Compression::Off, Dedup::Off)),
    LazyLock::new(|| {
        Pool::of(
            Redundancy::Double,
            4,
            Some(internal()),
            Compression::Off,
            Dedup::Off,
        )
    }),
    LazyLock::new(|| {
        Pool::of(
            Redundancy::Copies(2),
            4,
            Some(internal()),
            Compression::Lz4ThenZstd,
            Dedup::Off,
        )
    }),
    LazyLock::new(|| {
        let devices = vec![(Uuid([0xd0; 16]), MEMBER_BYTES as u64)];
        Pool::of(
            Redundancy::Single,
            4,
            Some(JournalSpec {
                devices,
                ..internal()
            }),
            Compression::Zstd,
            Dedup::Hash,
        )
    }),
];

fn internal() -> JournalSpec {
    JournalSpec::internal(Some(JOURNAL_BYTES), 512)
}

pub fn options(read_only: bool, force: bool) -> OpenOptions {
    OpenOptions {
        host: Uuid([1; 16]),
        read_only,
        force,
        discard_journal: false,
        limits: Limits::default(),
    }
}

impl Pool {
    fn of(
        redundancy: Redundancy,
        members: usize,
        journal: Option<JournalSpec>,
        compression: Compression,
        dedup: Dedup,
    ) -> Self {
        let has_journal = journal.is_some();
        let mut machine = Machine::open_with(
            formatted(redundancy, members, journal),
            &options(false, false),
        );
        let volume = machine.volume(1 << 20);
        for command in [
            Control::VolumeCompression {
                volume,
                compression,
            },
            Control::VolumeDedup { volume, dedup },
        ] {
            assert_eq!(machine.command(command), Some(Ok(ControlReply::Done)));
        }
        for round in 0..3 {
            write(&mut machine, volume, 0..40, round);
            if round < 2 {
                machine.command(Control::Checkpoint);
            }
        }
        let mut machine = Machine::open_with(machine.memory, &options(false, false));
        if has_journal {
            // Small flushes, so that their data is only in the journal.
            (0..6).for_each(|round| write(&mut machine, volume, 50..52, round));
        }
        let memory = machine.memory;
        let (records, batches) = (records(&memory), batches(&memory));
        let (_, found) = Engine::open(
            &mut memory.clone(),
            BufPool::new(16 << 20),
            &options(true, false),
        )
        .expect("a start");
        let has_more = found.log_lsn < found.recovery_lsn;
        assert_eq!(
            (has_more, records.is_empty(), batches.is_empty()),
            (has_journal, !has_journal, false),
            "what can be changed is there"
        );
        Self {
            memory,
            records,
            batches,
        }
    }
}

fn formatted(redundancy: Redundancy, members: usize, journal: Option<JournalSpec>) -> Memory {
    let count = members + journal.as_ref().map_or(0, |journal| journal.devices.len());
    let mut memory = Memory {
        data: vec![vec![0; MEMBER_BYTES]; count],
        present: vec![true; count],
        failing: vec![false; count],
        vanishing: vec![false; count],
        writes_left: None,
        bad: Vec::new(),
        written: vec![0; count],
        flushed: vec![0; count],
    };
    let spec = PoolSpec {
        name: "fuzz".into(),
        redundancy,
        chunk_rows: Some(4),
        segment_rows: Some(16),
        align_bytes: 4096,
        pool: Uuid([9; 16]),
        members: (0..members as u8)
            .map(|member| (Uuid([member + 1; 16]), MEMBER_BYTES as u64))
            .collect(),
        created_unix_s: 0,
        journal,
        properties: PROPERTIES,
    };
    Engine::format(&mut memory, &spec).expect("format");
    memory
}

/// Writes `blocks` blocks, some with equal content, and flushes.
fn write(machine: &mut Machine, volume: VolumeId, blocks: std::ops::Range<u64>, round: u8) {
    blocks.for_each(|block| machine.write(volume, block * 3 % 64, (block as u8 + round) % 32));
    machine.flush(volume);
    assert!(
        machine
            .completions
            .drain(..)
            .all(|completion| completion.result.is_ok()),
        "there is room"
    );
}

/// Records of all journals.
fn records(memory: &Memory) -> Vec<Record> {
    let superblock = memory.superblock();
    let chunks = |area: JournalArea| (0..area.chunks).map(move |chunk| (area, chunk));
    let mut found = Vec::new();
    for (area, chunk) in superblock.journals.areas().copied().flat_map(chunks) {
        let addresses: Vec<Address> = area
            .copies_of(chunk)
            .map(|(member, at)| (member.index(), at as usize))
            .collect();
        let (member, from) = addresses[0];
        let bytes = &memory.data[member][from..from + area.chunk_bytes as usize];
        let mut at = 0;
        while let Ok((_, length)) = decode_record_header(
            &bytes[at..],
            &superblock.pool,
            chunk,
            at as u32,
            area.granule,
        ) {
            let copies = addresses
                .iter()
                .map(|(member, from)| (*member, from + at))
                .collect();
            found.push(Record {
                copies,
                bytes: length as usize,
            });
            at += length as usize;
        }
    }
    found
}

/// Batches of the pool whose heads have one block.
fn batches(memory: &Memory) -> Vec<Ends> {
    let pool = memory.superblock().pool;
    let block = |(member, at): &Address| &memory.data[*member][*at..at + BLOCK];
    let mut found = Vec::new();
    for (segment, row, header) in memory.headers() {
        let is_head = |address: &Address| {
            decode_header(block(address), &pool, segment, row)
                .is_ok_and(|frame| frame.head_blocks == 1)
        };
        let heads: Vec<Address> = memory
            .blocks(segment, row..row + 1)
            .into_iter()
            .filter(is_head)
            .collect();
        let is_tail = |address: &Address| block(address)[FOOTER_AT..].starts_with(b"WNDRWEND");
        let tails: Vec<Address> = memory
            .blocks(segment, row..row + header.rows)
            .into_iter()
            .filter(is_tail)
            .collect();
        if !heads.is_empty() && !tails.is_empty() {
            found.push(Ends { heads, tails });
        }
    }
    found
}

/// Members of a pool, changed according to the input.
pub fn garbled(input: &[u8]) -> Option<Members> {
    let (which, mut rest) = input.split_first()?;
    let pool: &Pool = &POOLS[usize::from(*which) % POOLS.len()];
    let mut memory = pool.memory.clone();
    while let [kind, which, low, high, length, more @ ..] = rest {
        let (bytes, behind) = more.split_at(usize::from(*length).min(more.len()));
        let (which, address) = (
            usize::from(*which),
            usize::from(*low) | usize::from(*high) << 8,
        );
        match kind % 12 {
            8 | 9 => change_record(&mut memory, &pool.records, which, address, bytes),
            10 | 11 => change_batch(&mut memory, &pool.batches, which, address, bytes),
            kind => change_member(&mut memory, kind, which, address, bytes),
        }
        rest = behind;
    }
    Some(Members(memory))
}

fn change_member(memory: &mut Memory, kind: u8, which: usize, address: usize, bytes: &[u8]) {
    let member = which % memory.data.len();
    let data = &mut memory.data[member];
    match kind {
        // A superblock slot, signed.
        0..=2 => {
            let slot = &mut data
                [(SLOT_OFFSET + (address as u64 % SLOT_COUNT) * SLOT_STRIDE) as usize..]
                [..SLOT_BYTES];
            // The fields are near the start.
            let at = 16 + address / 4 % 2000;
            slot[at..at + bytes.len()].copy_from_slice(bytes);
            signing::sign_superblock(slot);
        }
        // Arbitrary bytes at any address.
        3 => {
            let at = address * 64 % (MEMBER_BYTES - 256);
            data[at..at + bytes.len()].copy_from_slice(bytes);
        }
        // A block that never existed, and one from another address.
        4 => data[address * BLOCK % MEMBER_BYTES..][..BLOCK]
            .fill(bytes.first().copied().unwrap_or(0)),
        5 => {
            let from = bytes.first().map_or(0, |byte| usize::from(*byte) * BLOCK) % MEMBER_BYTES;
            data.copy_within(from..from + BLOCK, address * BLOCK % MEMBER_BYTES);
        }
        6 => memory.present[member] = false,
        _ => memory.bad.push((member, address * BLOCK % MEMBER_BYTES)),
    }
}

/// Puts `new` at some position after the magic number and the checksum.
fn put(bytes: &mut [u8], address: usize, new: &[u8]) {
    let at = 16 + address % ALL_COPIES % (bytes.len() - 16);
    let count = new.len().min(bytes.len() - at);
    bytes[at..at + count].copy_from_slice(&new[..count]);
}

/// One copy, or all.
fn chosen(copies: &[Address], address: usize) -> &[Address] {
    if address & ALL_COPIES == 0 {
        &copies[..1]
    } else {
        copies
    }
}

/// A journal record, signed.
fn change_record(
    memory: &mut Memory,
    records: &[Record],
    which: usize,
    address: usize,
    bytes: &[u8],
) {
    let Some(record) = which
        .checked_rem(records.len())
        .map(|number| &records[number])
    else {
        return;
    };
    for (member, at) in chosen(&record.copies, address) {
        let copy = &mut memory.data[*member][*at..at + record.bytes];
        put(copy, address, bytes);
        signing::sign_record(copy);
    }
}

/// Head and tail of a batch, signed.
fn change_batch(memory: &mut Memory, batches: &[Ends], which: usize, address: usize, bytes: &[u8]) {
    let ends = &batches[which % batches.len()];
    for ((head_on, head_at), (tail_on, tail_at)) in
        chosen(&ends.heads, address).iter().zip(&ends.tails)
    {
        let mut head = memory.data[*head_on][*head_at..head_at + BLOCK].to_vec();
        let mut tail = memory.data[*tail_on][*tail_at..tail_at + BLOCK].to_vec();
        put(&mut head, address, bytes);
        signing::sign_batch(&mut head, &mut tail);
        memory.data[*head_on][*head_at..head_at + BLOCK].copy_from_slice(&head);
        memory.data[*tail_on][*tail_at..tail_at + BLOCK].copy_from_slice(&tail);
    }
}

//! Bugs that were found, each as the story of its cause. Members are plain memory; the order of
//! events is explicit.

use crate::machine;

use machine::{Machine, PROPERTIES, numbers::Numbers};
use windrow_engine::*;
use windrow_format::superblock::{
    PoolState, Properties, SLOT_BYTES, SLOT_COUNT, SLOT_OFFSET, SLOT_STRIDE, Superblock,
    slot_offset,
};
use windrow_geometry::Redundancy;
use windrow_io::*;
use windrow_types::{MemberId, VolumeId};

/// A checkpoint began while the walk of a large write-zeroes was half done: its pages showed the
/// old bytes, and replay began after the record. After a clean shutdown zeroed blocks had their old
/// bytes.
#[test]
fn zeroed_blocks_stay_zero_over_a_clean_shutdown() {
    let mut machine = Machine::new(3, 256, 100);
    let volume = machine.volume(4 << 30);
    for page in 0..600 {
        machine.write(volume, page * 256, 0xaa);
    }
    machine.flush(volume);
    machine.request(
        volume,
        Op::WriteZeroes {
            offset: 0,
            length: 4 << 30,
            no_hole: false,
            fua: true,
        },
    );
    // The shutdown is requested before the walk could continue.
    assert_eq!(
        machine.command(Control::Shutdown { export: true }),
        Some(Ok(ControlReply::Done))
    );
    let mut machine = machine.crash();
    assert_eq!(machine.engine.status().used_bytes, 0);
    assert!((0..600).all(|page| machine.byte(volume, page * 256) == 0));
}

/// A generation reached one member only; the others continued without it to the same number. When
/// it returned it prevailed, and a flushed write was gone.
#[test]
fn a_generation_that_only_a_minority_has_does_not_rule() {
    let mut machine = Machine::new(3, 64, 100);
    let volume = machine.volume(1 << 30);
    machine.write(volume, 0, 0x11);
    machine.flush(volume);
    machine.held = Some(Vec::new());
    machine.command(Control::SetProperties(Properties {
        seal_age_ms: 30,
        ..PROPERTIES
    }));
    for command in machine.held.take().unwrap_or_default() {
        if command.member == MemberId(2) {
            machine.carry_out(command);
        }
    }
    machine.memory.present[2] = false;
    let mut machine = machine.crash();
    machine.write(volume, 0, 0x77);
    machine.flush(volume);
    machine.memory.present[2] = true;
    let mut machine = machine.crash();
    assert_eq!(machine.byte(volume, 0), 0x77);
}

/// Edge blocks in memory were read at once, and each finished write admitted the next one
/// recursively.
#[test]
fn thousands_of_unaligned_writes_do_not_overflow_the_stack() {
    let mut machine = Machine::new(8, 64, 100);
    let volume = machine.volume(1 << 30);
    machine.held = Some(Vec::new());
    let block = Payload::copy_of(&[1; 4096]);
    for lba in 0..16_000 {
        machine.request(
            volume,
            Op::Write {
                offset: lba * 4096,
                data: block.clone(),
                fua: false,
            },
        );
    }
    machine.settle();
    for lba in 0..20_000 {
        machine.request(
            volume,
            Op::Write {
                offset: (100_000 + lba) * 4096,
                data: block.slice(0, 512),
                fua: false,
            },
        );
    }
    machine.settle();
    while let Some(held) = machine.held.take().filter(|h| !h.is_empty()) {
        machine.held = Some(Vec::new());
        for command in held {
            machine.carry_out(command);
        }
        machine.settle();
    }
    machine.held = None;
    assert!(machine.wait_for(36_000), "{}", machine.engine.describe());
}

/// A full pool under random overwrites stalled: the cleaner's last blocks waited for a segment, and
/// the checkpoint that would have freed one waited for the cleaner. And a shutdown stopped the
/// cleaner that admitted writes waited for.
#[test]
fn a_full_pool_moves_and_shuts_down() {
    let mut machine = Machine::new(4, 96, 100);
    let usable = machine.engine.status().plan.usable_bytes / 4096;
    let volume = machine.volume(usable * 4096);
    let block = Payload::copy_of(&[[5u8; 8], [1; 8]].concat().repeat(256));
    let mut numbers = Numbers::default();
    let mut sent = 0;
    for n in 0..usable * 2 {
        let state = numbers.draw();
        let lba = if n < usable { n } else { state % usable };
        machine.request(
            volume,
            Op::Write {
                offset: lba * 4096,
                data: block.clone(),
                fua: false,
            },
        );
        sent += 1;
        if n % 128 == 0 && n < usable * 7 / 4 {
            assert!(machine.wait_for(sent), "{}", machine.engine.describe());
        }
    }
    machine.events.push(Event::Control(ControlRequest {
        id: ControlId(2),
        command: Control::Shutdown { export: true },
    }));
    assert!(machine.wait_for(sent), "{}", machine.engine.describe());
    assert!(machine.completions.iter().all(|c| c.result.is_ok()));
    machine.wait_for(usize::MAX);
    assert!(
        machine
            .control
            .iter()
            .any(|c| c.id == ControlId(2) && c.result.is_ok()),
        "{}",
        machine.engine.describe()
    );
}

/// The usual failure of an SSD: it reads, but fails writes. One such member made the pool
/// impossible to open.
#[test]
fn a_member_that_fails_writes_is_left_out_at_the_start() {
    let mut machine = Machine::new(3, 64, 100);
    let volume = machine.volume(1 << 30);
    machine.write(volume, 5, 0x42);
    machine.flush(volume);
    machine.memory.failing[1] = true;
    let mut machine = machine.crash();
    assert_eq!(machine.engine.status().state, "degraded");
    assert_eq!(machine.byte(volume, 5), 0x42);
    machine.write(volume, 6, 0x43);
    machine.flush(volume);
    let mut machine = machine.crash();
    assert_eq!(
        (machine.byte(volume, 5), machine.byte(volume, 6)),
        (0x42, 0x43)
    );
}

/// The counter of user flushes rose with every volume operation, because those wait for a flush
/// too.
#[test]
fn volume_operations_are_no_flushes_of_a_user() {
    let mut machine = Machine::new(3, 64, 100);
    let volume = machine.volume(1 << 30);
    machine.command(Control::VolumeResize {
        volume,
        size_bytes: 2 << 30,
        shrink: true,
    });
    assert_eq!(machine.engine.status().flushes, 0);
    machine.write(volume, 1, 0x42);
    machine.flush(volume);
    assert_eq!(machine.engine.status().flushes, 1);
}

/// A long write with unaligned ends was admitted as a whole when the log had room for its ends
/// only. The excess could never be sealed, and a flush waited for it for ever.
#[test]
fn long_unaligned_writes_wait_for_room() {
    let mut machine = Machine::new(4, 24, 100);
    let usable = machine.engine.status().plan.usable_bytes;
    let volume = machine.volume(usable / 4096 * 4096);
    let bytes = Payload::copy_of(&[[5u8; 8], [1; 8]].concat().repeat(200 * 4096 / 16));
    let mut numbers = Numbers::default();
    for sent in 1..1500 {
        let state = numbers.draw();
        let sectors = 1 + state % (bytes.len() as u64 / 512);
        let offset = state / 7919 % ((usable - sectors * 512) / 512) * 512;
        machine.request(
            volume,
            Op::Write {
                offset,
                data: bytes.slice(0, sectors as usize * 512),
                fua: state.is_multiple_of(5),
            },
        );
        assert!(machine.wait_for(sent), "{}", machine.engine.describe());
    }
    assert!(machine.completions.iter().all(|c| c.result.is_ok()));
}

/// A write of zeroes that begins inside a block and ends at a block boundary was waiting for that
/// first block when the volume shrank. Only the part of the block was checked again, and it was
/// still within the volume. Blocks past the volume's end became zeroes and took map pages.
#[test]
fn zeroes_past_the_end_of_a_volume_that_shrank_are_refused() {
    for no_hole in [true, false] {
        let (size_bytes, small_bytes) = (4 << 30, 4 << 20);
        let mut machine = Machine::new(3, 64, 100);
        let volume = machine.volume(size_bytes);
        machine.write(volume, 0, 0x42);
        machine.flush(volume);
        machine.completions.clear();
        let pages = machine.engine.status().map_pages;
        machine.held = Some(Vec::new());
        machine.request(
            volume,
            Op::WriteZeroes {
                offset: 512,
                length: size_bytes - 512,
                no_hole,
                fua: false,
            },
        );
        assert_eq!(
            machine.command(Control::VolumeResize {
                volume,
                size_bytes: small_bytes,
                shrink: true
            }),
            None,
            "answered when it is durable"
        );
        machine.release();
        assert_eq!(
            machine.completions.pop().and_then(|c| c.result.err()),
            Some(RequestError::OutOfRange)
        );
        assert_eq!(
            machine.control.pop().map(|c| c.result),
            Some(Ok(ControlReply::Done))
        );
        assert_eq!(
            (machine.engine.status().map_pages, machine.byte(volume, 0)),
            (pages, 0x42),
            "nothing was changed"
        );
        machine.command(Control::VolumeResize {
            volume,
            size_bytes,
            shrink: true,
        });
        machine.request(
            volume,
            Op::BlockStatus {
                offset: small_bytes,
                length: size_bytes - small_bytes,
                max_extents: 8,
            },
        );
        machine.settle();
        let hole = Extent {
            length: size_bytes - small_bytes,
            state: ExtentState::Hole,
        };
        assert!(
            matches!(machine.completions.pop().map(|c| c.result), Some(Ok(Reply::Extents(extents))) if extents == [hole])
        );
    }
}

/// A pool that was shut down and opened again, and its volume: block `lba` of the first 100 holds
/// the byte `lba | 1`.
fn with_a_past(redundancy: Redundancy, members: usize) -> (Machine, VolumeId) {
    let mut machine = Machine::with(redundancy, members, 24, 100);
    let volume = machine.volume(1 << 30);
    for lba in 0..100 {
        machine.write(volume, lba, lba as u8 | 1);
    }
    machine.flush(volume);
    assert_eq!(
        machine.command(Control::Shutdown { export: false }),
        Some(Ok(ControlReply::Done))
    );
    (machine.crash(), volume)
}

/// The maximum number of members that the redundancy covers were silently wrong everywhere. Of
/// three or four copies only two were tried. With P and Q the head of a batch was unreadable when
/// its own column and another data column were wrong. Reads failed, and the pool did not open.
#[test]
fn silently_wrong_members_are_corrected_up_to_the_redundancy() {
    for (redundancy, members) in [
        (Redundancy::Copies(3), 3),
        (Redundancy::Copies(4), 4),
        (Redundancy::Double, 5),
        (Redundancy::Double, 6),
        (Redundancy::Single, 4),
    ] {
        for first in [0, members - 2] {
            let (mut machine, volume) = with_a_past(redundancy, members);
            for lba in 60..150 {
                machine.write(volume, lba, lba as u8 | 1);
            }
            machine.flush(volume);
            (0..redundancy.tolerance()).for_each(|n| machine.garble((first + n) % members));
            (0..150).for_each(|lba| {
                assert_eq!(
                    machine.byte(volume, lba),
                    lba as u8 | 1,
                    "{} block {lba}",
                    redundancy.name()
                )
            });
            let mut machine = machine.crash();
            (0..150).for_each(|lba| {
                assert_eq!(
                    machine.byte(volume, lba),
                    lba as u8 | 1,
                    "{} block {lba} after a start",
                    redundancy.name()
                )
            });
        }
    }
}

/// One more member is wrong than the redundancy covers: unverifiable data is an error, never bytes.
#[test]
fn too_many_wrong_members_give_errors_and_no_bytes() {
    for (redundancy, members) in [(Redundancy::Copies(3), 3), (Redundancy::Double, 5)] {
        let (mut machine, volume) = with_a_past(redundancy, members);
        (0..=redundancy.tolerance()).for_each(|member| machine.garble(member));
        let mut lost = 0;
        for lba in 0..100 {
            machine.completions.clear();
            machine.request(
                volume,
                Op::Read {
                    offset: lba * 4096,
                    length: 4096,
                },
            );
            machine.settle();
            match machine.completions.pop().map(|c| c.result) {
                Some(Ok(Reply::Data(parts))) => assert_eq!(parts[0][1], lba as u8 | 1),
                Some(Err(RequestError::Io)) => lost += 1,
                other => panic!("read answered {other:?}"),
            }
        }
        assert!(lost > 0);
        let opened = Engine::open(
            &mut machine.memory,
            BufPool::new(64 << 20),
            &Machine::options(),
        )
        .map(drop);
        assert!(opened.is_err(), "{}", redundancy.name());
    }
}

/// One member took the new superblock, the next one failed, and the start was repeated without that
/// one: the writes of the first attempt were not counted.
#[test]
fn writes_of_a_repeated_start_are_counted() {
    let mut machine = Machine::new(4, 24, 100);
    let volume = machine.volume(1 << 30);
    for lba in 0..50 {
        machine.write(volume, lba, 7);
    }
    machine.flush(volume);
    for failing in [None, Some(1), Some(3)] {
        let mut memory = machine.memory.clone();
        memory.failing = (0..4).map(|member| failing == Some(member)).collect();
        (memory.written, memory.flushed) = (vec![0; 4], vec![0; 4]);
        let machine = Machine::open(memory);
        let status = machine.engine.status();
        assert_eq!(
            status.state,
            if failing.is_some() {
                "degraded"
            } else {
                "online"
            }
        );
        for (member, stats) in status.member_stats.iter().enumerate() {
            assert_eq!(
                stats.written.total(),
                machine.memory.written[member],
                "bytes of member {member}, {failing:?} fails"
            );
            assert_eq!(
                stats.flushes, machine.memory.flushed[member],
                "flushes of member {member}, {failing:?} fails"
            );
        }
        assert!(
            failing.is_none() || machine.memory.written[0] >= 2 * 4096,
            "there were two attempts"
        );
    }
}

/// Newer software enabled a feature and continued in the next superblock slot. The slot of the
/// previous generation still decoded, so the pool was opened in that state, and the newer state
/// overwritten.
#[test]
fn older_slots_left_by_newer_software_are_not_used() {
    let mut machine = Machine::new(3, 24, 100);
    let volume = machine.volume(1 << 30);
    machine.write(volume, 0, 7);
    assert_eq!(
        machine.command(Control::Shutdown { export: false }),
        Some(Ok(ControlReply::Done))
    );
    let mut memory = machine.memory;
    let at = |slot: u64| (SLOT_OFFSET + slot * SLOT_STRIDE) as usize;
    for member in 0..3 {
        let slots = (0..SLOT_COUNT).filter_map(|slot| {
            Superblock::decode(&memory.data[member][at(slot)..][..SLOT_BYTES]).ok()
        });
        let mut newer = slots.max_by_key(|s| s.generation).expect("a superblock");
        newer.parent_hash = newer.content_hash();
        newer.generation = newer.generation.next();
        newer.features.incompatible = 1 << 40;
        let slot = slot_offset(newer.generation) as usize;
        memory.data[member][slot..slot + SLOT_BYTES].copy_from_slice(&newer.encode());
    }
    let before = memory.data.clone();
    let refused = Engine::open(&mut memory, BufPool::new(64 << 20), &Machine::options()).map(drop);
    assert!(
        matches!(refused, Err(OpenError::Features { incompatible, .. }) if incompatible == 1 << 40),
        "{refused:?}"
    );
    assert!(memory.data == before, "nothing was written");
}

/// Address of a block: member and byte offset.
type Spot = (usize, usize);

/// A pool with one batch of 64 blocks, each of its own kind: the volume, the bytes, and the
/// addresses of the blocks of each row of the batch.
fn one_batch(
    redundancy: Redundancy,
    members: usize,
) -> (Machine, VolumeId, Vec<u8>, Vec<Vec<Spot>>) {
    let mut machine = Machine::with(redundancy, members, 24, 100);
    let volume = machine.volume(1 << 30);
    let bytes: Vec<u8> = (0..64 * 4096usize)
        .map(|at| (at / 4096 + at % 251) as u8)
        .collect();
    machine.request(
        volume,
        Op::Write {
            offset: 0,
            data: Payload::copy_of(&bytes),
            fua: true,
        },
    );
    machine.settle();
    let (segment, row, header) = machine
        .memory
        .headers()
        .into_iter()
        .max_by_key(|(_, _, header)| header.rows)
        .expect("a batch");
    assert!(header.stream.0 == 0 && header.rows >= 8, "{header:?}");
    let rows = (row..row + header.rows)
        .map(|row| machine.memory.blocks(segment, row..row + 1))
        .collect();
    (machine, volume, bytes, rows)
}

/// Blocks reported as repaired and as lost.
fn noted(machine: &mut Machine) -> (Vec<u64>, Vec<u64>) {
    let (mut repaired, mut lost) = (Vec::new(), Vec::new());
    for notice in std::mem::take(&mut machine.out.notices) {
        match notice {
            Notice::Repaired { lba, .. } => repaired.push(lba),
            Notice::Unrecoverable { lba, blocks, .. } => lost.extend(lba..lba + blocks),
            _ => {}
        }
    }
    repaired.sort_unstable();
    lost.sort_unstable();
    (repaired, lost)
}

/// Three members had a bad sector each, in different rows: every row was repairable. But
/// neighbouring blocks were read and reconstructed together, so three columns were missing in all
/// rows, and the read of the whole run failed.
#[test]
fn bad_sectors_in_different_rows_do_not_add_up() {
    for (redundancy, members) in [(Redundancy::Double, 6), (Redundancy::Single, 4)] {
        let (mut machine, volume, bytes, rows) = one_batch(redundancy, members);
        let per_column = rows.len();
        // Column after column, one row further down each time; the first row holds the head of the
        // batch.
        machine.memory.bad = (0..=redundancy.tolerance())
            .map(|n| rows[2 + n][n])
            .collect();
        assert!(
            machine.read(volume, 0, 64 * 4096) == bytes,
            "{}",
            redundancy.name()
        );
        let (repaired, lost) = noted(&mut machine);
        let expected: Vec<u64> = (0..=redundancy.tolerance())
            .map(|n| (n * per_column + 2 + n) as u64 - 1)
            .collect();
        assert_eq!(
            (repaired, lost),
            (expected, Vec::new()),
            "{}",
            redundancy.name()
        );
        // Damaged blocks have been rewritten to the log.
        machine.now_ns += 1_000_000_000;
        machine.events.push(Event::Tick(machine.now_ns));
        machine.settle();
        assert!(machine.read(volume, 0, 64 * 4096) == bytes);
        assert_eq!(
            noted(&mut machine),
            (Vec::new(), Vec::new()),
            "{}",
            redundancy.name()
        );
    }
}

/// Of a run with a lost block only the first block was reported, whichever was lost. Each lost
/// block must be reported, and no other; the read is an error, reads around it are not.
#[test]
fn each_lost_block_of_a_run_is_reported() {
    for (redundancy, members) in [
        (Redundancy::Double, 6),
        (Redundancy::Single, 4),
        (Redundancy::None, 3),
    ] {
        let (mut machine, volume, bytes, rows) = one_batch(redundancy, members);
        let per_column = rows.len();
        // One more block of two rows than the redundancy covers.
        let columns = 0..=redundancy.tolerance();
        let all: Vec<_> = [3, 5]
            .into_iter()
            .flat_map(|row| columns.clone().map(move |column| (row, column)))
            .collect();
        machine.memory.bad = all
            .iter()
            .map(|(row, column)| rows[*row][*column])
            .collect();
        let mut expected: Vec<u64> = all
            .iter()
            .map(|(row, column)| (column * per_column + row) as u64 - 1)
            .collect();
        expected.sort_unstable();
        machine.completions.clear();
        machine.request(
            volume,
            Op::Read {
                offset: 0,
                length: 64 * 4096,
            },
        );
        machine.settle();
        assert_eq!(
            machine.completions.pop().and_then(|c| c.result.err()),
            Some(RequestError::Io)
        );
        assert_eq!(
            noted(&mut machine),
            (Vec::new(), expected.clone()),
            "{}",
            redundancy.name()
        );
        for lba in (0..64).filter(|lba| !expected.contains(lba)) {
            assert!(
                machine.read(volume, lba * 4096, 4096) == bytes[lba as usize * 4096..][..4096],
                "{} block {lba}",
                redundancy.name()
            );
        }
    }
}

/// The same in the first rows of batches, which cleaning reads without knowing their checksums: it
/// abandoned the segments, and a full pool stalled with garbage in it.
#[test]
fn cleaning_sees_through_bad_sectors_in_different_rows_of_a_head() {
    let mut machine = Machine::new(4, 32, 100);
    let usable = machine.engine.status().plan.usable_bytes / 4096;
    let volume = machine.volume(usable * 4096);
    let block = Payload::copy_of(&[[5u8; 8], [1; 8]].concat().repeat(256));
    for lba in 0..usable {
        machine.request(
            volume,
            Op::Write {
                offset: lba * 4096,
                data: block.clone(),
                fua: false,
            },
        );
        assert!(
            lba % 128 != 0 || machine.wait_for(lba as usize + 1),
            "{}",
            machine.engine.describe()
        );
    }
    machine.flush(volume);
    let long = machine
        .memory
        .headers()
        .into_iter()
        .filter(|(_, _, header)| header.stream.0 == 0 && header.rows >= 4);
    machine.memory.bad = long
        .flat_map(|(segment, row, _)| {
            [1, 2].map(|n| machine.memory.blocks(segment, row + n..row + n + 1)[n as usize - 1])
        })
        .collect();
    assert!(machine.memory.bad.len() > 100);
    machine.completions.clear();
    for sent in 0..usable {
        machine.request(
            volume,
            Op::Write {
                offset: sent * 7919 % usable * 4096,
                data: block.clone(),
                fua: false,
            },
        );
        assert!(
            sent % 128 != 0 || machine.wait_for(sent as usize + 1),
            "{}",
            machine.engine.describe()
        );
    }
    assert!(
        machine.wait_for(usable as usize),
        "{}",
        machine.engine.describe()
    );
    assert!(machine.completions.iter().all(|c| c.result.is_ok()));
    assert_eq!(noted(&mut machine).1, Vec::new());
}

/// A machine that holds its discards, with dead segments.
struct Discarding {
    machine: Machine,
    discards: Vec<MemberCommand>,
}

impl Discarding {
    fn new() -> Self {
        let mut machine = Machine::new(3, 32, 100);
        machine.command(Control::SetProperties(Properties {
            discard: true,
            ..PROPERTIES
        }));
        let volume = machine.volume(16 << 20);
        for round in 0..3 {
            (0..2000).for_each(|lba| machine.write(volume, lba, round));
        }
        machine.flush(volume);
        Self {
            machine,
            discards: Vec::new(),
        }
    }

    fn ask(&mut self, command: Control) {
        let machine = &mut self.machine;
        machine.control.clear();
        machine.events.push(Event::Control(ControlRequest {
            id: ControlId(7),
            command,
        }));
        for _ in 0..200 {
            machine.held = Some(Vec::new());
            machine.turn();
            let is_discard =
                |command: &MemberCommand| matches!(command.op, MemberOp::Discard { .. });
            let (kept, others): (Vec<_>, Vec<_>) = machine
                .held
                .take()
                .expect("held")
                .into_iter()
                .partition(is_discard);
            self.discards.extend(kept);
            others
                .into_iter()
                .for_each(|command| machine.carry_out(command));
            machine.now_ns += 50_000_000;
            machine.events.push(Event::Tick(machine.now_ns));
        }
    }

    fn is_released(&self) -> bool {
        let superblock = self.machine.memory.superblock();
        superblock.state == PoolState::Exported && superblock.host == windrow_types::Uuid::default()
    }
}

/// A pool was exported while discards of its segments were in flight. Another host that imported it
/// could write there and flush, and the discards destroyed that data.
#[test]
fn a_pool_is_released_when_its_discards_have_ended_and_sends_no_further_ones() {
    let mut pool = Discarding::new();
    (0..3).for_each(|_| pool.ask(Control::Checkpoint));
    let under_way = pool.discards.len();
    pool.ask(Control::Shutdown { export: true });
    assert!(
        under_way > 0 && pool.machine.control.is_empty() && !pool.is_released(),
        "{under_way} discards, {:?}",
        pool.machine.control
    );
    assert_eq!(pool.discards.len(), under_way, "no further ones");
    std::mem::take(&mut pool.discards)
        .into_iter()
        .for_each(|command| pool.machine.carry_out(command));
    pool.machine.settle();
    assert!(pool.is_released() && pool.machine.control.len() == 1);
    // Segments that the last checkpoint frees were discarded after the export.
    let mut pool = Discarding::new();
    pool.ask(Control::Shutdown { export: true });
    assert!(
        pool.is_released() && pool.machine.control.len() == 1 && pool.discards.is_empty(),
        "{} discards",
        pool.discards.len()
    );
}

/// Executes one operation at any byte, on the engine and on a plain byte array.
fn operate_at_bytes(
    machine: &mut Machine,
    volume: VolumeId,
    model: &mut [u8],
    numbers: &mut Numbers,
) {
    let size = model.len() as u64;
    let length = [
        1 + numbers.below(7),
        1 + numbers.below(600),
        4090 + numbers.below(12),
        1 + numbers.below(5 * 4096),
    ][numbers.below(4) as usize];
    // Half of them begin or end near a block boundary.
    let near = (1 + numbers.below(size / 4096 - 6)) * 4096;
    let offset = [
        numbers.below(size - length),
        near.saturating_sub(length) + numbers.below(3),
        near + numbers.below(3),
        near - 1,
    ][numbers.below(4) as usize];
    let range = offset as usize..(offset + length) as usize;
    let fua = numbers.below(8) == 0;
    let kind = numbers.below(6);
    let op = match kind {
        0 => Op::Trim {
            offset,
            length,
            fua,
        },
        1 => Op::WriteZeroes {
            offset,
            length,
            no_hole: numbers.below(2) == 0,
            fua,
        },
        2 => Op::BlockStatus {
            offset,
            length,
            max_extents: 64,
        },
        _ => {
            let mut data = vec![[0, 0xff, 7][numbers.below(3) as usize]; length as usize];
            if numbers.below(2) == 0 {
                numbers.fill(&mut data);
            }
            Op::Write {
                offset,
                data: Payload::copy_of(&data),
                fua,
            }
        }
    };
    match &op {
        Op::Write { data, .. } => model[range.clone()].copy_from_slice(data),
        Op::BlockStatus { .. } => {}
        _ => model[range.clone()].fill(0),
    }
    machine.completions.clear();
    machine.request(volume, op);
    assert!(machine.wait_for(1), "no answer");
    match machine
        .completions
        .pop()
        .map(|completion| completion.result)
    {
        Some(Ok(Reply::Done)) => {}
        Some(Ok(Reply::Extents(extents))) => {
            let mut at = offset;
            for extent in extents {
                let end = at + extent.length;
                assert!(
                    extent.length > 0 && (end == offset + length || end.is_multiple_of(4096)),
                    "states are those of blocks: {at} to {end}"
                );
                let is_zero = model[at as usize..end as usize]
                    .iter()
                    .all(|byte| *byte == 0);
                assert!(
                    is_zero || extent.state == ExtentState::Data,
                    "{at} to {end} is {:?}",
                    extent.state
                );
                at = end;
            }
            assert_eq!(at, offset + length);
        }
        other => panic!("{other:?}"),
    }
    assert!(
        machine.read(volume, offset, length as u32) == model[range],
        "operation {kind} at {offset}, {length} bytes"
    );
}

/// Requests had to be multiples of 512 bytes; `e2fsck` writes two.
#[test]
fn operations_at_any_byte_do_what_they_do_to_a_row_of_bytes() {
    const SIZE: usize = 40 * 4096;
    for (seed, mut machine) in [
        Machine::new(3, 64, 100),
        Machine::journalled(Redundancy::Single, 4, 64, 1 << 20),
    ]
    .into_iter()
    .enumerate()
    {
        let (volume, mut model, mut numbers) = (
            machine.volume(1 << 20),
            vec![0; SIZE],
            Numbers::of(seed as u64 + 1),
        );
        for round in 0..4 {
            (0..150).for_each(|_| operate_at_bytes(&mut machine, volume, &mut model, &mut numbers));
            assert!(
                machine.read(volume, 0, SIZE as u32) == model,
                "round {round}"
            );
            machine.flush(volume);
            machine = machine.crash();
            assert!(
                machine.read(volume, 0, SIZE as u32) == model,
                "after the crash of round {round}"
            );
        }
        // At the last byte, and past it.
        machine.request(
            volume,
            Op::Write {
                offset: (1 << 20) - 1,
                data: Payload::copy_of(&[9]),
                fua: false,
            },
        );
        machine.settle();
        assert_eq!(machine.read(volume, (1 << 20) - 2, 2), [0, 9]);
        machine.completions.clear();
        machine.request(
            volume,
            Op::Write {
                offset: (1 << 20) - 1,
                data: Payload::copy_of(&[9, 9]),
                fua: false,
            },
        );
        machine.settle();
        assert_eq!(
            machine
                .completions
                .pop()
                .map(|completion| completion.result.map(drop)),
            Some(Err(RequestError::OutOfRange))
        );
    }
}

/// Several at once in one block: none may undo another one's write.
#[test]
fn small_writes_to_one_block_at_the_same_time_are_all_there() {
    let mut machine = Machine::new(3, 64, 100);
    let volume = machine.volume(1 << 20);
    let mut expected = vec![0; 2 * 4096];
    for round in 0..20u64 {
        machine.completions.clear();
        for number in 0..64u64 {
            let (offset, byte) = (number * 127 + round % 5, 1 + ((round + number) % 255) as u8);
            expected[offset as usize..offset as usize + 2].fill(byte);
            machine.request(
                volume,
                Op::Write {
                    offset,
                    data: Payload::copy_of(&[byte; 2]),
                    fua: false,
                },
            );
        }
        assert!(machine.wait_for(64));
        assert!(
            machine
                .completions
                .iter()
                .all(|completion| completion.result.is_ok())
        );
        assert!(
            machine.read(volume, 0, 2 * 4096) == expected,
            "round {round}"
        );
    }
}

//! Stories of compressed volumes: compressed blocks cross sectors, and read back unchanged whatever
//! happens to these sectors.

use crate::machine;

use machine::{Machine, numbers::Numbers, pass};
use windrow_engine::*;
use windrow_format::checkpoint::Compression;
use windrow_format::superblock::Features;
use windrow_geometry::Redundancy;
use windrow_io::*;
use windrow_types::{SegmentId, VolumeId};

const MIB: u64 = 1 << 20;

/// A block with this number of random bytes.
fn block(random: usize, seed: u64) -> Vec<u8> {
    let mut block = vec![seed as u8 | 1; 4096];
    Numbers::of(seed).fill(&mut block[..random]);
    block
}

/// Content of block `lba` after `round`: of every compressibility.
fn content(lba: u64, round: u64) -> Vec<u8> {
    block(
        [4096, 700, 2500, 100, 3300, 1500, 4000][(lba * 5 + round) as usize % 7],
        lba * 1000 + round,
    )
}

fn write(
    machine: &mut Machine,
    volume: VolumeId,
    lbas: std::ops::Range<u64>,
    content: impl Fn(u64) -> Vec<u8>,
) {
    let bytes: Vec<u8> = lbas.clone().flat_map(content).collect();
    machine.request(
        volume,
        Op::Write {
            offset: lbas.start * 4096,
            data: Payload::copy_of(&bytes),
            fua: false,
        },
    );
    machine.settle();
}

fn verify(
    machine: &mut Machine,
    volume: VolumeId,
    lbas: std::ops::Range<u64>,
    content: impl Fn(u64) -> Vec<u8>,
    what: &str,
) {
    let all = machine.read(
        volume,
        lbas.start * 4096,
        ((lbas.end - lbas.start) * 4096) as u32,
    );
    for (found, lba) in all.chunks_exact(4096).zip(lbas.clone()) {
        assert!(found == content(lba), "{what}: block {lba} in a large read");
    }
    for lba in lbas {
        assert!(
            machine.read(volume, lba * 4096, 4096) == content(lba),
            "{what}: block {lba} by itself"
        );
    }
}

fn compress(machine: &mut Machine, volume: VolumeId, compression: Compression) {
    assert_eq!(
        machine.command(Control::VolumeCompression {
            volume,
            compression
        }),
        Some(Ok(ControlReply::Done))
    );
}

fn pool(redundancy: Redundancy, members: usize) -> (Machine, VolumeId) {
    let mut machine = Machine::with(redundancy, members, 24, 100);
    let volume = machine.volume(16 * MIB);
    compress(&mut machine, volume, Compression::Lz4);
    (machine, volume)
}

#[test]
fn compressed_blocks_take_only_their_stored_bytes() {
    let (mut machine, volume) = pool(Redundancy::Single, 4);
    write(&mut machine, volume, 0..100, |lba| block(1000, lba));
    machine.flush(volume);
    let status = machine.engine.status();
    let sums = status.reduction;
    assert_eq!(
        (sums.tried_bytes, sums.compressed_user_bytes),
        (100 * 4096, 100 * 4096)
    );
    assert!(
        sums.codec_bytes > 100 * 1000 && sums.codec_bytes < 100 * 1060,
        "{sums:?}"
    );
    assert!(
        sums.stored_bytes > sums.codec_bytes && sums.stored_bytes <= sums.codec_bytes + 100 * 16,
        "filled to whole units"
    );
    assert!(
        sums.area_bytes >= sums.stored_bytes && sums.area_bytes <= sums.stored_bytes + 4 * 4096,
        "no sector is wasted but at the ends: {sums:?}"
    );
    assert_eq!(
        (status.stored_bytes, status.used_bytes),
        (sums.stored_bytes, 100 * 4096)
    );
    assert_eq!(
        status.written.user, sums.stored_bytes,
        "members get what is stored, to the byte"
    );
    verify(
        &mut machine,
        volume,
        0..100,
        |lba| block(1000, lba),
        "from the members",
    );
    let mut machine = machine.crash();
    verify(
        &mut machine,
        volume,
        0..100,
        |lba| block(1000, lba),
        "after a crash",
    );
    assert_eq!(machine.engine.status().stored_bytes, sums.stored_bytes);
}

/// Room was reserved for uncompressed blocks until the batch was sealed, and a batch with small
/// payloads is not full for long. Writes stalled until it was 50 ms old, or a flush arrived.
/// `bench dedup` found about 80 MB/s in a pool with segments of 2 MiB.
#[test]
fn writes_do_not_wait_for_time_where_blocks_become_small() {
    let (mut machine, volume) = pool(Redundancy::Single, 4);
    for run in 0..200 {
        write(&mut machine, volume, run * 16..(run + 1) * 16, |lba| {
            block(40, lba)
        });
    }
    assert_eq!(
        machine
            .completions
            .iter()
            .filter(|done| done.result.is_ok())
            .count(),
        200
    );
    verify(
        &mut machine,
        volume,
        0..3200,
        |lba| block(40, lba),
        "while nothing but writes went on",
    );
    machine.flush(volume);
    let status = machine.engine.status();
    assert!(
        status.written.header + status.written.padding < status.user_write_bytes / 16,
        "{:?}",
        status.written
    );
}

/// LZ4 would make random bytes longer. No stored payload is longer than the block.
#[test]
fn what_does_not_compress_is_stored_as_it_is() {
    let (mut machine, volume) = pool(Redundancy::Single, 4);
    write(&mut machine, volume, 0..50, |lba| block(4096, lba));
    write(&mut machine, volume, 50..60, |lba| block(3700, lba));
    machine.flush(volume);
    let status = machine.engine.status();
    assert_eq!(
        (
            status.reduction.tried_bytes,
            status.reduction.stored_bytes,
            status.stored_bytes
        ),
        (60 * 4096, 0, 60 * 4096),
        "an eighth has to be saved"
    );
    verify(
        &mut machine,
        volume,
        0..50,
        |lba| block(4096, lba),
        "whole blocks",
    );
}

/// Old software cannot read compressed blocks: the flag is in force before anything is compressed,
/// and only then.
#[test]
fn the_flag_is_durable_before_the_first_volume_compresses() {
    let mut machine = Machine::with(Redundancy::Single, 4, 24, 100);
    let volume = machine.volume(MIB);
    machine.flush(volume);
    let has_flag = |machine: &Machine, member| {
        machine.memory.superblock_of(member).features.incompatible & Features::COMPRESSED != 0
    };
    assert!((0..4).all(|member| !has_flag(&machine, member)));
    machine.held = Some(Vec::new());
    assert_eq!(
        machine.command(Control::VolumeCompression {
            volume,
            compression: Compression::Lz4
        }),
        None,
        "its superblocks are in flight"
    );
    assert_eq!(
        machine.engine.status().volumes[0].compression,
        Compression::Off
    );
    machine.release();
    assert!((0..4).all(|member| has_flag(&machine, member)));
    assert_eq!(
        machine.control.pop().map(|answer| answer.result),
        Some(Ok(ControlReply::Done))
    );
    assert_eq!(
        machine.engine.status().volumes[0].compression,
        Compression::Lz4
    );
    let mut machine = machine.crash();
    assert_eq!(
        machine.engine.status().volumes[0].compression,
        Compression::Lz4,
        "it is an operation of the log"
    );
    compress(&mut machine, volume, Compression::Off);
    assert_eq!(
        machine.engine.status().volumes[0].compression,
        Compression::Off
    );
}

/// Workers may end in any order. Blocks take effect in the order of their writes, reads see the
/// newest, and a flush waits for all.
#[test]
fn lsns_stay_in_order() {
    let (mut machine, compressed) = pool(Redundancy::Single, 4);
    let plain = match machine.command(Control::VolumeCreate {
        name: "plain".into(),
        size_bytes: MIB,
    }) {
        Some(Ok(ControlReply::Volume(volume))) => volume,
        other => panic!("{other:?}"),
    };
    let batches = machine.memory.headers().len();
    machine.completions.clear();
    let mut jobs = Vec::new();
    for round in 0..3u64 {
        for (volume, lba) in [(plain, 7), (compressed, 7)] {
            let data = Payload::copy_of(&block(900, round * 10 + lba));
            machine.events.push(Event::Request(Request {
                id: RequestId(round),
                volume,
                op: Op::Write {
                    offset: lba * 4096,
                    data,
                    fua: false,
                },
            }));
        }
        machine.engine.apply(&mut machine.events, &mut machine.out);
        jobs.append(&mut machine.out.jobs);
    }
    assert_eq!(
        (jobs.len(), machine.out.completions.len()),
        (3, 6),
        "acknowledged, and with the workers"
    );
    machine.out.completions.clear();
    machine.flush(compressed);
    assert!(machine.completions.is_empty(), "the flush waits");
    assert!(
        machine.read(compressed, 7 * 4096, 4096) == block(900, 27)
            && machine.read(plain, 7 * 4096, 4096) == block(900, 27)
    );
    for mut job in jobs.into_iter().rev() {
        job.run();
        machine.events.push(Event::Job(job));
        machine.settle();
    }
    assert_eq!(machine.completions.len(), 1, "the flush is answered");
    assert_eq!(
        machine.memory.headers().len(),
        batches + 1,
        "all in one batch: none was sealed while a worker had a part of it"
    );
    let mut machine = machine.crash();
    assert!(
        machine.read(compressed, 7 * 4096, 4096) == block(900, 27)
            && machine.read(plain, 7 * 4096, 4096) == block(900, 27)
    );
}

const CODES: [(Redundancy, usize); 4] = [
    (Redundancy::Copies(2), 2),
    (Redundancy::Single, 4),
    (Redundancy::Double, 5),
    (Redundancy::Double, 8),
];

/// All rows with user data, with one member each, every row another one.
fn one_of_each_row(machine: &Machine, members: usize) -> Vec<(usize, usize)> {
    let rows: Vec<(SegmentId, u32, u32)> = machine
        .memory
        .headers()
        .iter()
        .map(|(segment, row, header)| (*segment, *row, header.rows))
        .collect();
    let rows = rows
        .into_iter()
        .flat_map(|(segment, row, rows)| (row..row + rows).map(move |row| (segment, row)));
    rows.map(|(segment, row)| machine.memory.blocks(segment, row..row + 1)[row as usize % members])
        .collect()
}

/// A compressed block may be in two rows. Each row has a bad sector, in another column than its
/// neighbour. Each is within its redundancy, so both are readable, although no column is readable
/// over both.
#[test]
fn bad_sectors_in_neighbouring_rows_do_not_add_up() {
    for (redundancy, members) in CODES {
        let (mut machine, volume) = pool(redundancy, members);
        write(&mut machine, volume, 0..300, |lba| content(lba, 1));
        machine.flush(volume);
        machine.memory.bad = one_of_each_row(&machine, members);
        verify(
            &mut machine,
            volume,
            0..300,
            |lba| content(lba, 1),
            &format!("{redundancy:?} with bad sectors"),
        );
    }
}

/// The same with members that return wrong bytes. Blocks that reads had to reconstruct are
/// rewritten in stored form, and in the end nothing is wrong any more.
#[test]
fn silently_wrong_data_is_reconstructed_and_repaired() {
    for (redundancy, members) in CODES {
        let (mut machine, volume) = pool(redundancy, members);
        write(&mut machine, volume, 0..300, |lba| content(lba, 1));
        machine.flush(volume);
        let stored = machine.engine.status().stored_bytes;
        for (n, (member, at)) in one_of_each_row(&machine, members).into_iter().enumerate() {
            machine.memory.data[member][at..at + 4096]
                .iter_mut()
                .for_each(|byte| *byte ^= 0x35 + n as u8 % 64);
        }
        verify(
            &mut machine,
            volume,
            0..300,
            |lba| content(lba, 1),
            &format!("{redundancy:?} with lies"),
        );
        pass(&mut machine, 50);
        machine.command(Control::Scrub(ScrubCommand::Start {
            unix_s: 5,
            bytes_per_second: 0,
        }));
        pass(&mut machine, 300);
        let status = machine.engine.status();
        assert_eq!(
            (
                status.scrub.state,
                status.scrub.lost_blocks,
                status.scrub.damaged_batches
            ),
            (ScrubState::Completed, 0, 0)
        );
        assert_eq!(status.stored_bytes, stored, "moved as it is stored");
        // The redundancy is restored: now a whole member may be wrong.
        machine.garble(0);
        verify(
            &mut machine,
            volume,
            0..300,
            |lba| content(lba, 1),
            &format!("{redundancy:?} after the scrub"),
        );
    }
}

/// Cleaning moves compressed blocks among uncompressed ones, again and again, with trims and
/// unaligned writes between.
#[test]
fn cleaning_moves_what_is_stored() {
    let mut machine = Machine::with_rows(Redundancy::Single, 4, 12, 8, 16);
    let volume = machine.volume(16 * MIB);
    compress(&mut machine, volume, Compression::Lz4);
    let blocks = machine.engine.status().plan.usable_bytes / 4096 * 9 / 10;
    let blocks = blocks.min(4096);
    let mut rounds = vec![0u64; blocks as usize];
    let mut numbers = Numbers::default();
    for round in 1..8u64 {
        for _ in 0..blocks / 6 {
            let x = numbers.draw();
            let first = x % (blocks - 8);
            let lbas = first..first + 1 + (x >> 40) % 8;
            if round == 4 && x >> 50 & 7 == 0 {
                compress(
                    &mut machine,
                    volume,
                    if x >> 60 & 1 == 0 {
                        Compression::Off
                    } else {
                        Compression::Lz4
                    },
                );
            }
            lbas.clone().for_each(|lba| rounds[lba as usize] = round);
            write(&mut machine, volume, lbas, |lba| content(lba, round));
        }
        machine.flush(volume);
    }
    pass(&mut machine, 50);
    assert!(
        machine.engine.status().segments_cleaned > 20,
        "{} segments cleaned",
        machine.engine.status().segments_cleaned
    );
    let expected = |lba: u64| {
        if rounds[lba as usize] == 0 {
            vec![0; 4096]
        } else {
            content(lba, rounds[lba as usize])
        }
    };
    for lba in 0..blocks {
        assert!(
            machine.read(volume, lba * 4096, 4096) == expected(lba),
            "block {lba}"
        );
    }
    let mut machine = machine.crash();
    assert!((0..blocks).all(|lba| machine.read(volume, lba * 4096, 4096) == expected(lba)));
}

/// A part of a compressed block is written: the rest of it is read, decompressed, and written
/// again.
#[test]
fn a_part_of_a_compressed_block_is_changed() {
    let (mut machine, volume) = pool(Redundancy::Double, 5);
    write(&mut machine, volume, 0..20, |lba| block(1200, lba));
    machine.flush(volume);
    machine.request(
        volume,
        Op::Write {
            offset: 3 * 4096 + 512,
            data: Payload::copy_of(&[0x77; 8192]),
            fua: false,
        },
    );
    machine.settle();
    machine.flush(volume);
    let mut expected: Vec<u8> = (0..20).flat_map(|lba| block(1200, lba)).collect();
    expected[3 * 4096 + 512..5 * 4096 + 512].fill(0x77);
    assert!(machine.read(volume, 0, 20 * 4096) == expected);
    let mut machine = machine.crash();
    assert!(machine.read(volume, 512, 19 * 4096) == expected[512..512 + 19 * 4096]);
}

/// Blocks that only the journal has after a crash are compressed like any other when they go to the
/// log.
#[test]
fn readmitted_blocks_are_compressed() {
    let mut machine = Machine::journalled(Redundancy::Double, 6, 24, MIB);
    let volume = machine.volume(16 * MIB);
    compress(&mut machine, volume, Compression::Lz4);
    for lba in 0..30 {
        write(&mut machine, volume, lba..lba + 1, |lba| content(lba, 2));
        machine.flush(volume);
    }
    let mut machine = machine.crash();
    verify(
        &mut machine,
        volume,
        0..30,
        |lba| content(lba, 2),
        "after a crash",
    );
    pass(&mut machine, 60);
    machine.flush(volume);
    verify(
        &mut machine,
        volume,
        0..30,
        |lba| content(lba, 2),
        "from the log",
    );
    assert!(
        machine.engine.status().stored_bytes < 30 * 4096 * 9 / 10,
        "{}",
        machine.engine.status().stored_bytes
    );
}

/// While blocks were being compressed, the batch before them reached its age and was sealed with
/// padding. They had been admitted into the room that the padding took, and could not all be placed
/// any more.
#[test]
fn padding_takes_no_room_from_blocks_under_compression() {
    let mut machine = Machine::with_rows(Redundancy::Single, 4, 24, 8, 16);
    let compressed = machine.volume(8 * MIB);
    compress(&mut machine, compressed, Compression::Lz4);
    let plain = match machine.command(Control::VolumeCreate {
        name: "plain".into(),
        size_bytes: MIB,
    }) {
        Some(Ok(ControlReply::Volume(volume))) => volume,
        other => panic!("{other:?}"),
    };
    machine.flush(plain);
    let all: Vec<u8> = (0..1024).flat_map(|lba| block(4096, lba)).collect();
    for (volume, data) in [(plain, &all[..4096]), (compressed, &all[..])] {
        let op = Op::Write {
            offset: 0,
            data: Payload::copy_of(data),
            fua: false,
        };
        machine.events.push(Event::Request(Request {
            id: RequestId(1),
            volume,
            op,
        }));
    }
    machine.engine.apply(&mut machine.events, &mut machine.out);
    assert!(
        !machine.out.jobs.is_empty(),
        "as much as there is room for is with the workers"
    );
    let mut jobs = std::mem::take(&mut machine.out.jobs);
    machine.now_ns += 60_000_000;
    machine.events.push(Event::Tick(machine.now_ns));
    machine.settle();
    for mut job in jobs.drain(..) {
        job.run();
        machine.events.push(Event::Job(job));
    }
    machine.settle();
    machine.flush(compressed);
    for (lba, expected) in (0..1024).zip(all.chunks_exact(4096)) {
        assert!(
            machine.read(compressed, lba * 4096, 4096) == expected,
            "block {lba}"
        );
    }
}

/// One bad bit in a block of several compressed payloads: the scrub called all of them lost and did
/// not move them, although clients could read all but one.
#[test]
fn a_scrub_loses_no_readable_compressed_payload() {
    let (mut machine, volume) = pool(Redundancy::None, 3);
    write(&mut machine, volume, 0..300, |lba| content(lba, 1));
    machine.flush(volume);
    let rows: Vec<_> = machine
        .memory
        .headers()
        .into_iter()
        .filter(|(_, _, header)| header.stream.0 == 0 && header.rows > 4)
        .collect();
    for (segment, row, header) in &rows {
        // Payload is in the middle of a batch; compressed payload follows uncompressed blocks.
        for (member, at) in machine
            .memory
            .blocks(*segment, row + header.rows / 2..row + header.rows - 1)
        {
            machine.memory.data[member][at + 2000] ^= 4;
        }
    }
    let unreadable: Vec<u64> = (0..300)
        .filter(|lba| machine.is_lost(volume, *lba))
        .collect();
    assert!(!unreadable.is_empty());
    machine.command(Control::Scrub(ScrubCommand::Start {
        unix_s: 5,
        bytes_per_second: 0,
    }));
    pass(&mut machine, 300);
    let scrub = machine.engine.status().scrub;
    let mut lost: Vec<u64> = scrub.lost.iter().map(|block| block.lba).collect();
    lost.sort_unstable();
    assert_eq!(
        (scrub.state, &lost, scrub.damaged_batches),
        (ScrubState::Completed, &unreadable, 0)
    );
    assert!(
        scrub.lost_blocks == lost.len() as u64 && scrub.moved_blocks > lost.len() as u64,
        "{scrub:?}"
    );
    // Readable payloads have been moved elsewhere.
    rows.iter().for_each(|(segment, row, header)| {
        machine
            .memory
            .overwrite(*segment, *row..row + header.rows, 0xee)
    });
    let held = (0..300)
        .filter(|lba| !machine.is_lost(volume, *lba))
        .count();
    assert_eq!(held as u64, scrub.moved_blocks);
}

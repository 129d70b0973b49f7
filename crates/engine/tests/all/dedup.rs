//! Stories of volumes that share blocks: content is stored once, and every block reads as it was
//! written, whatever happens to other references to its content.

use crate::machine;

use machine::{Machine, numbers::Numbers};
use std::collections::BTreeMap;
use windrow_engine::*;
use windrow_format::checkpoint::{Compression, Dedup, MAP_PAGE_ENTRIES};
use windrow_format::superblock::{Features, SLOT_COUNT, SLOT_OFFSET, SLOT_STRIDE};
use windrow_geometry::Redundancy;
use windrow_io::*;
use windrow_types::{Lba, VolumeId};

const MIB: u64 = 1 << 20;

/// Content number `n`: no two are the same; every other one is compressible.
fn content(n: u64) -> Vec<u8> {
    let mut block = vec![n as u8 | 1; 4096];
    Numbers::of(n).fill(&mut block[..if n.is_multiple_of(2) { 4096 } else { 900 }]);
    block[..8].copy_from_slice(&(n + 1).to_le_bytes());
    block
}

fn write(machine: &mut Machine, volume: VolumeId, lba: u64, numbers: &[u64]) {
    let bytes: Vec<u8> = numbers.iter().flat_map(|n| content(*n)).collect();
    machine.request(
        volume,
        Op::Write {
            offset: lba * 4096,
            data: Payload::copy_of(&bytes),
            fua: false,
        },
    );
    machine.settle();
}

fn trim(machine: &mut Machine, volume: VolumeId, lba: u64, blocks: u64) {
    machine.request(
        volume,
        Op::Trim {
            offset: lba * 4096,
            length: blocks * 4096,
            fua: false,
        },
    );
    machine.settle();
}

fn verify(machine: &mut Machine, volume: VolumeId, lba: u64, numbers: &[u64], what: &str) {
    let bytes = machine.read(volume, lba * 4096, (numbers.len() * 4096) as u32);
    for (i, (found, n)) in bytes.chunks_exact(4096).zip(numbers).enumerate() {
        assert!(
            found == content(*n),
            "{what}: block {} is not content {n}",
            lba + i as u64
        );
    }
}

fn share(machine: &mut Machine, volume: VolumeId, dedup: Dedup) {
    assert_eq!(
        machine.command(Control::VolumeDedup { volume, dedup }),
        Some(Ok(ControlReply::Done))
    );
}

fn create(machine: &mut Machine, name: &str, size_bytes: u64, dedup: Dedup) -> VolumeId {
    match machine.command(Control::VolumeCreate {
        name: name.into(),
        size_bytes,
    }) {
        Some(Ok(ControlReply::Volume(volume))) => {
            share(machine, volume, dedup);
            volume
        }
        other => panic!("{other:?}"),
    }
}

fn pool(dedup: Dedup) -> (Machine, VolumeId) {
    let mut machine = Machine::with(Redundancy::Single, 4, 24, 100);
    let volume = create(&mut machine, "v", 16 * MIB, dedup);
    (machine, volume)
}

fn rest(machine: &mut Machine, volume: VolumeId) -> PoolStatus {
    machine.flush(volume);
    machine::pass(machine, 20);
    machine
        .engine
        .self_check()
        .unwrap_or_else(|error| panic!("{error}"));
    machine.engine.status()
}

#[test]
fn what_is_written_often_is_stored_once() {
    for dedup in [Dedup::Hash, Dedup::Verify] {
        let (mut machine, volume) = pool(dedup);
        let other = create(&mut machine, "other", 4 * MIB, dedup);
        let numbers: Vec<u64> = (0..100).collect();
        write(&mut machine, volume, 0, &numbers);
        write(&mut machine, volume, 500, &numbers);
        machine.flush(volume);
        write(&mut machine, other, 7, &numbers);
        let status = rest(&mut machine, volume);
        let shared = status.dedup;
        assert_eq!(
            (
                shared.referred_bytes,
                shared.unique_bytes,
                shared.stored_bytes
            ),
            (300 * 4096, 100 * 4096, 100 * 4096)
        );
        assert_eq!(
            (
                shared.sums.looked_up,
                shared.sums.found,
                shared.sums.mismatched
            ),
            (300, 200, 0)
        );
        assert_eq!(
            (status.used_bytes, status.stored_bytes, status.written.user),
            (300 * 4096, 100 * 4096, 100 * 4096),
            "to the byte"
        );
        assert_eq!(
            shared.sums.compared,
            if dedup == Dedup::Verify { 200 } else { 0 }
        );
        for what in ["now", "after a crash", "after another"] {
            verify(&mut machine, volume, 0, &numbers, what);
            verify(&mut machine, volume, 500, &numbers, what);
            verify(&mut machine, other, 7, &numbers, what);
            machine = machine.crash();
            let after = rest(&mut machine, volume);
            assert_eq!(
                (
                    after.dedup.referred_bytes,
                    after.dedup.unique_bytes,
                    after.stored_bytes
                ),
                (300 * 4096, 100 * 4096, 100 * 4096),
                "{what}"
            );
            machine.command(Control::Checkpoint);
            machine::pass(&mut machine, 20);
        }
    }
}

/// Equal blocks within one request are found although the first one is not in the log yet.
#[test]
fn duplicates_within_a_request_are_found() {
    for dedup in [Dedup::Hash, Dedup::Verify] {
        let (mut machine, volume) = pool(dedup);
        let numbers: Vec<u64> = (0..90).map(|i| i % 3).collect();
        write(&mut machine, volume, 0, &numbers);
        let status = rest(&mut machine, volume);
        assert_eq!(
            (status.dedup.unique_bytes, status.dedup.sums.found),
            (3 * 4096, 87)
        );
        verify(&mut machine, volume, 0, &numbers, "now");
        verify(&mut machine.crash(), volume, 0, &numbers, "after a crash");
    }
}

#[test]
fn content_is_freed_with_the_last_reference() {
    let (mut machine, volume) = pool(Dedup::Hash);
    write(&mut machine, volume, 0, &[1, 2, 3, 1, 2, 3]);
    write(&mut machine, volume, 0, &[4]);
    assert_eq!(rest(&mut machine, volume).dedup.unique_bytes, 4 * 4096);
    write(&mut machine, volume, 3, &[5]);
    assert_eq!(
        rest(&mut machine, volume).dedup.unique_bytes,
        4 * 4096,
        "1 has gone, 5 has come"
    );
    trim(&mut machine, volume, 1, 1);
    verify(
        &mut machine,
        volume,
        2,
        &[3, 5, 2, 3],
        "a trim takes one reference",
    );
    trim(&mut machine, volume, 4, 1);
    assert_eq!(
        rest(&mut machine, volume).dedup.unique_bytes,
        3 * 4096,
        "3, 4 and 5"
    );
    write(&mut machine, volume, 9, &[1, 2, 4, 6]);
    let status = rest(&mut machine, volume);
    assert_eq!(
        (status.dedup.unique_bytes, status.dedup.sums.found),
        (6 * 4096, 4),
        "what has gone is not found"
    );
    let mut machine = machine.crash();
    verify(&mut machine, volume, 2, &[3, 5], "after a crash");
    verify(&mut machine, volume, 9, &[1, 2, 4, 6], "after a crash");
    let other = create(&mut machine, "other", 4 * MIB, Dedup::Hash);
    write(&mut machine, other, 0, &[3, 3, 77]);
    assert_eq!(
        machine.command(Control::VolumeDelete { volume }),
        Some(Ok(ControlReply::Done))
    );
    let status = rest(&mut machine, other);
    assert_eq!(
        (status.dedup.unique_bytes, status.dedup.referred_bytes),
        (2 * 4096, 3 * 4096)
    );
    let mut machine = machine.crash();
    verify(
        &mut machine,
        other,
        0,
        &[3, 3, 77],
        "what a deleted volume had written first",
    );
    trim(&mut machine, other, 0, 1024);
    let status = rest(&mut machine, other);
    assert_eq!(
        (
            status.dedup.unique_bytes,
            status.used_bytes,
            status.stored_bytes
        ),
        (0, 0, 0)
    );
}

/// Old software cannot read shared content: the flag is in force before anything is shared, and
/// only then.
#[test]
fn the_flag_is_durable_before_the_first_volume_shares() {
    let mut machine = Machine::with(Redundancy::Single, 4, 24, 100);
    let volume = machine.volume(MIB);
    machine.flush(volume);
    let usable = machine.engine.status().plan.usable_bytes;
    let has_flag = |machine: &Machine, member| {
        machine.memory.superblock_of(member).features.incompatible & Features::SHARED != 0
    };
    assert!((0..4).all(|member| !has_flag(&machine, member)));
    machine.held = Some(Vec::new());
    assert_eq!(
        machine.command(Control::VolumeDedup {
            volume,
            dedup: Dedup::Hash
        }),
        None,
        "its superblocks are in flight"
    );
    assert_eq!(machine.engine.status().volumes[0].dedup, Dedup::Off);
    machine.release();
    assert!((0..4).all(|member| has_flag(&machine, member)));
    assert_eq!(
        machine.control.pop().map(|answer| answer.result),
        Some(Ok(ControlReply::Done))
    );
    let mut machine = machine.crash();
    assert_eq!(
        machine.engine.status().volumes[0].dedup,
        Dedup::Hash,
        "it is an operation of the log"
    );
    assert!(
        machine.engine.status().plan.usable_bytes <= usable,
        "the second map is in the plan"
    );
    share(&mut machine, volume, Dedup::Off);
    assert_eq!(machine.engine.status().volumes[0].dedup, Dedup::Off);
}

const SLOTS: std::ops::Range<usize> =
    SLOT_OFFSET as usize..(SLOT_OFFSET + SLOT_COUNT * SLOT_STRIDE) as usize;

fn superblock_slots(machine: &Machine) -> Vec<Vec<u8>> {
    machine
        .memory
        .data
        .iter()
        .map(|data| data[SLOTS].to_vec())
        .collect()
}

fn restore(machine: &mut Machine, slots: &[Vec<u8>]) {
    for (data, before) in machine.memory.data.iter_mut().zip(slots) {
        data[SLOTS].copy_from_slice(before);
    }
}

/// The superblocks with the flag are lost on all members. Old software would take such a pool, and
/// its plan would lack the second map (simulator beyond redundancy, seed 951456).
#[test]
fn the_flag_follows_from_what_there_is() {
    let mut machine = Machine::with(Redundancy::Single, 4, 24, 100);
    let volume = machine.volume(MIB);
    machine.flush(volume);
    let plain = machine.engine.status().plan.usable_bytes;
    let before = superblock_slots(&machine);
    share(&mut machine, volume, Dedup::Hash);
    let numbers: Vec<u64> = (0..40).map(|n| n % 10).collect();
    write(&mut machine, volume, 0, &numbers);
    machine.flush(volume);
    restore(&mut machine, &before);
    assert!((0..4).all(
        |member| machine.memory.superblock_of(member).features.incompatible & Features::SHARED == 0
    ));
    let mut machine = machine.crash();
    verify(
        &mut machine,
        volume,
        0,
        &numbers,
        "with the superblocks of before",
    );
    machine.flush(volume);
    assert!((0..4).all(
        |member| machine.memory.superblock_of(member).features.incompatible & Features::SHARED != 0
    ));
    assert!(
        machine.engine.status().plan.usable_bytes < plain,
        "the second map is in the plan"
    );
}

/// The superblocks with the sharing flags are lost, and the map has more pages than that of a pool
/// without sharing. The capacity with these flags is computed first: reduction stays spare.
#[test]
fn lost_flags_do_not_change_what_reduction_is_used_for() {
    let mut machine = Machine::with(Redundancy::Single, 4, 24, 100);
    let volume = create(&mut machine, "v", 1024 * MIB, Dedup::Off);
    machine.flush(volume);
    let alone = machine.engine.status().map_pages_max;
    let before = superblock_slots(&machine);
    share(&mut machine, volume, Dedup::Hash);
    for page in 0..alone + 4 {
        write(
            &mut machine,
            volume,
            page * MAP_PAGE_ENTRIES as u64,
            &[page],
        );
    }
    machine.flush(volume);
    assert!(
        machine.engine.status().map_pages > alone,
        "{} pages of {alone}",
        machine.engine.status().map_pages
    );
    restore(&mut machine, &before);
    let mut machine = machine.crash();
    let status = machine.engine.status();
    assert_eq!(status.properties.reduction, Reduction::Spare);
    assert!(
        status.map_pages_max > status.map_pages,
        "{} pages of {}",
        status.map_pages,
        status.map_pages_max
    );
    for page in 0..alone + 4 {
        verify(
            &mut machine,
            volume,
            page * MAP_PAGE_ENTRIES as u64,
            &[page],
            "with the superblocks of before",
        );
    }
}

/// The fingerprint of almost all contents is the same. Bytes are compared, so no client reads data
/// that it did not write.
#[test]
fn collisions_are_found_by_comparing() {
    let (mut machine, volume) = pool(Dedup::Verify);
    machine.engine.inject_weak_fingerprints();
    let numbers: Vec<u64> = (0..60).map(|i| i * i % 23).collect();
    write(&mut machine, volume, 0, &numbers);
    machine.flush(volume);
    write(&mut machine, volume, 100, &numbers);
    let status = rest(&mut machine, volume);
    assert!(
        status.dedup.sums.mismatched > 50 && status.dedup.sums.found > 0,
        "{:?}",
        status.dedup
    );
    verify(&mut machine, volume, 0, &numbers, "now");
    verify(&mut machine, volume, 100, &numbers, "now");
    let mut machine = machine.crash();
    verify(&mut machine, volume, 0, &numbers, "after a crash");
    verify(&mut machine, volume, 100, &numbers, "after a crash");
}

/// A trim takes effect on admission, and older writes may still be at a worker then. None of them
/// may get the id that the trim freed: the trim may be lost while the older write is not.
#[test]
fn an_older_write_does_not_get_the_id_that_a_younger_trim_made_free() {
    let (mut machine, volume) = pool(Dedup::Hash);
    write(&mut machine, volume, 0, &[1]);
    machine.flush(volume);
    // The write of block 5 is at a worker while block 0 is trimmed.
    let data = Payload::copy_of(&content(2));
    machine.events.push(Event::Request(Request {
        id: RequestId(7),
        volume,
        op: Op::Write {
            offset: 5 * 4096,
            data,
            fua: false,
        },
    }));
    machine.engine.apply(&mut machine.events, &mut machine.out);
    let jobs = std::mem::take(&mut machine.out.jobs);
    assert_eq!(jobs.len(), 1);
    machine.events.push(Event::Request(Request {
        id: RequestId(8),
        volume,
        op: Op::Trim {
            offset: 0,
            length: 4096,
            fua: false,
        },
    }));
    machine.settle();
    for mut job in jobs {
        job.run();
        machine.events.push(Event::Job(job));
    }
    machine.settle();
    let ids: Vec<u64> = machine
        .engine
        .status()
        .volumes
        .iter()
        .map(|v| v.shared_bytes)
        .collect();
    assert_eq!(ids.len(), 1);
    machine.flush(volume);
    assert_eq!(machine.engine.content_ids(volume, 5..6), [Some(1)], "not 0");
    verify(&mut machine, volume, 5, &[2], "now");
    write(&mut machine, volume, 6, &[3]);
    machine.flush(volume);
    assert_eq!(
        machine.engine.content_ids(volume, 6..7),
        [Some(0)],
        "a younger one does"
    );
    let mut machine = machine.crash();
    verify(&mut machine, volume, 5, &[2, 3], "after a crash");
}

/// Two blocks refer to one content. One is trimmed, which takes effect at once. The other is
/// overwritten by an older write that commits, and is durable before the trim. The trim may still
/// be lost, so the address of the content is not free before the trim is durable.
#[test]
fn content_keeps_its_address_until_the_trim_of_its_last_but_one_reference_is_durable() {
    let (mut machine, volume) = pool(Dedup::Hash);
    let plain = create(&mut machine, "plain", MIB, Dedup::Off);
    write(&mut machine, volume, 0, &[1, 1]);
    // The content is the only live data in its segment, which no replay needs any more.
    write(&mut machine, plain, 0, &(2000..2100).collect::<Vec<_>>());
    machine.flush(volume);
    trim(&mut machine, plain, 0, 256);
    for _ in 0..3 {
        write(&mut machine, plain, 0, &[5]);
        rest(&mut machine, volume);
        assert_eq!(
            machine.command(Control::Checkpoint),
            Some(Ok(ControlReply::Done))
        );
    }
    let before = rest(&mut machine, volume);
    assert_eq!(before.dedup.unique_bytes, 4096);
    machine.held = Some(Vec::new());
    write(&mut machine, volume, 0, &[2]);
    machine.request(volume, Op::Flush);
    machine.settle();
    trim(&mut machine, volume, 1, 1);
    machine.release();
    let status = machine.engine.status();
    assert!(status.durable_lsn < status.lsn, "the trim is not durable");
    assert_eq!(
        (status.dedup.unique_bytes, status.free_segments),
        (4096, before.free_segments),
        "nothing is free"
    );
    let mut lost = Machine::open(machine.memory);
    verify(&mut lost, volume, 0, &[2, 1], "the trim is lost");
}

/// A pool full to the last block, all of it one content. Overwriting a block frees nothing, but
/// must succeed.
#[test]
fn a_full_pool_of_one_content_can_be_overwritten() {
    let mut machine = Machine::with(Redundancy::Single, 4, 24, 100);
    let volume = create(&mut machine, "v", 256 * MIB, Dedup::Hash);
    let blocks = machine.engine.status().plan.usable_bytes / 4096;
    for first in (0..blocks).step_by(64) {
        write(
            &mut machine,
            volume,
            first,
            &vec![1000; 64.min(blocks - first) as usize],
        );
    }
    machine.completions.clear();
    write(&mut machine, volume, blocks, &[1]);
    let refused = machine.completions.pop().map(|c| c.result);
    assert!(
        matches!(refused, Some(Err(RequestError::NoSpace))),
        "each block counts: {refused:?}"
    );
    let status = rest(&mut machine, volume);
    assert_eq!(
        (status.dedup.unique_bytes, status.used_bytes),
        (4096, blocks * 4096)
    );
    for round in 0..3u64 {
        for lba in 0..blocks {
            write(&mut machine, volume, lba, &[2000 + round * blocks + lba]);
        }
        let status = rest(&mut machine, volume);
        assert_eq!(
            (status.dedup.unique_bytes, status.refused_space),
            (blocks * 4096, 1),
            "round {round}"
        );
        for lba in 0..blocks {
            verify(
                &mut machine,
                volume,
                lba,
                &[2000 + round * blocks + lba],
                "rewritten",
            );
        }
    }
    for first in (0..blocks).step_by(64) {
        write(
            &mut machine,
            volume,
            first,
            &vec![1000; 64.min(blocks - first) as usize],
        );
    }
    assert_eq!(rest(&mut machine, volume).dedup.unique_bytes, 4096);
}

/// The map of content takes pages of its own: a pool too full for the larger map refuses sharing.
#[test]
fn a_pool_too_full_for_a_second_map_is_refused() {
    let mut machine = Machine::with(Redundancy::Single, 4, 96, 100);
    let volume = machine.volume(1024 * MIB);
    let blocks = machine.engine.status().plan.usable_bytes / 4096;
    for first in (0..blocks).step_by(64) {
        write(
            &mut machine,
            volume,
            first,
            &(first..(first + 64).min(blocks)).collect::<Vec<_>>(),
        );
    }
    assert!(matches!(
        machine.command(Control::VolumeDedup {
            volume,
            dedup: Dedup::Hash
        }),
        Some(Err(ControlError::NoSpace(_)))
    ));
    trim(&mut machine, volume, 0, blocks / 10);
    share(&mut machine, volume, Dedup::Hash);
    assert!(machine.engine.status().plan.usable_bytes < blocks * 4096);
}

/// A member returns wrong bytes of content with many references. All references read correct bytes,
/// and one repair serves all.
#[test]
fn wrong_shared_content_on_a_member_is_repaired_once() {
    let (mut machine, volume) = pool(Dedup::Hash);
    let numbers: Vec<u64> = (0..30).collect();
    for first in [0, 100, 200] {
        write(&mut machine, volume, first, &numbers);
    }
    rest(&mut machine, volume);
    machine.garble(1);
    verify(&mut machine, volume, 100, &numbers, "with a lying member");
    let status = rest(&mut machine, volume);
    assert!(
        status.written.moved + status.written.repair > 0,
        "wrong blocks are rewritten"
    );
    machine.out.notices.clear();
    for first in [0, 100, 200] {
        verify(&mut machine, volume, first, &numbers, "after the repair");
    }
    let repaired = machine
        .out
        .notices
        .iter()
        .any(|notice| matches!(notice, Notice::Repaired { .. }));
    assert!(!repaired, "no reference reads wrong bytes any more");
    verify(&mut machine.crash(), volume, 200, &numbers, "after a crash");
}

/// All checkpoints are gone, and the map is salvaged from batches. A reference to content that was
/// replaced since is an error, never other bytes.
#[test]
fn references_are_salvaged_from_batches() {
    let (mut machine, volume) = pool(Dedup::Hash);
    let numbers: Vec<u64> = (0..40).map(|i| i % 13).collect();
    write(&mut machine, volume, 0, &numbers);
    write(&mut machine, volume, 100, &[500, 501]);
    machine.flush(volume);
    // Both contents are removed, and their ids go to others.
    write(&mut machine, volume, 100, &[0, 1]);
    machine.flush(volume);
    write(&mut machine, volume, 200, &[600, 601]);
    rest(&mut machine, volume);
    assert_eq!(
        machine.engine.content_ids(volume, 200..202),
        [Some(13), Some(14)],
        "used again"
    );
    assert_eq!(
        machine.command(Control::Shutdown { export: false }),
        Some(Ok(ControlReply::Done))
    );
    let mut memory = machine.memory;
    for (segment, row, header) in memory
        .headers()
        .into_iter()
        .filter(|(_, _, header)| header.stream.0 == 3)
    {
        memory.overwrite(segment, row..row + header.rows, 0xee);
    }
    let report = Engine::rebuild_map(
        &mut memory,
        BufPool::new(64 << 20),
        &Machine::options(),
        RebuildWork {
            write: true,
            ..Default::default()
        },
        &mut |_| {},
    )
    .expect("rebuilt");
    assert!(
        report.losses.is_empty() && report.lost_blocks.is_empty(),
        "{report:?}"
    );
    let mut machine = Machine::open(memory);
    verify(&mut machine, volume, 0, &numbers, "rebuilt");
    verify(&mut machine, volume, 100, &[0, 1], "rebuilt");
    verify(&mut machine, volume, 200, &[600, 601], "rebuilt");
    let status = rest(&mut machine, volume);
    assert_eq!(
        (status.dedup.unique_bytes, status.volumes[0].dedup),
        (15 * 4096, Dedup::Hash)
    );
}

/// Regression: a salvage reported unreadable shared content as lost although no block referred to
/// it any more: losses without any block.
#[test]
fn unreferenced_content_is_not_missed() {
    let mut machine = Machine::with_rows_only(Redundancy::Single, 4, 12, 8, 32);
    let volume = create(&mut machine, "v", 16 * MIB, Dedup::Hash);
    let numbers: Vec<u64> = (0..200).collect();
    write(&mut machine, volume, 0, &numbers);
    for n in 0..3 {
        write(&mut machine, volume, 500, &[500 + n]);
        rest(&mut machine, volume);
        assert_eq!(
            machine.command(Control::Checkpoint),
            Some(Ok(ControlReply::Done))
        );
    }
    let first: Vec<_> = machine
        .memory
        .headers()
        .iter()
        .filter(|(.., header)| header.stream.0 == 0)
        .map(|(segment, ..)| *segment)
        .collect();
    write(
        &mut machine,
        volume,
        0,
        &numbers.iter().map(|n| n + 1000).collect::<Vec<_>>(),
    );
    machine.flush(volume);
    let lost = first[0];
    let losses = |machine: &Machine| {
        let mut memory = machine.memory.clone();
        memory.overwrite(lost, 8..16, 0xee);
        Engine::rebuild_map(
            &mut memory,
            BufPool::new(64 << 20),
            &Machine::options(),
            RebuildWork::default(),
            &mut |_| {},
        )
        .expect("a look")
    };
    let report = losses(&machine);
    assert!(report.checkpoint > 0, "{report:?}");
    assert_eq!(report.losses, []);
}

/// Regression: repairs of shared content had birth 0, and thus incarnation 0. When their source
/// address had been rewritten, a salvage made an error of every block that refers to the content.
#[test]
fn repaired_content_keeps_its_incarnation_in_a_salvage() {
    let mut machine = Machine::with_rows_only(Redundancy::Single, 4, 12, 8, 32);
    let volume = create(&mut machine, "v", 16 * MIB, Dedup::Hash);
    let numbers: Vec<u64> = (0..60).collect();
    write(&mut machine, volume, 0, &numbers);
    // Later references are in another segment, with much data that stays: a reference whose batch
    // is gone is unknown to a salvage.
    for first in (300..900).step_by(50) {
        write(
            &mut machine,
            volume,
            first,
            &(first..first + 50).collect::<Vec<_>>(),
        );
    }
    for n in numbers.clone() {
        write(&mut machine, volume, 100 + n, &[n]);
        write(&mut machine, volume, 1000 + n * 2, &[2000 + n, 3000 + n]);
    }
    rest(&mut machine, volume);
    machine.garble(1);
    verify(&mut machine, volume, 0, &numbers, "with a lying member");
    rest(&mut machine, volume);
    let repaired = machine.out.notices.iter().filter_map(|notice| {
        if let Notice::Repaired { lba, .. } = notice {
            Some(*lba)
        } else {
            None
        }
    });
    let repaired: Vec<u64> = repaired.collect();
    assert!(!repaired.is_empty());
    // Nothing else stays in its segment, and that is rewritten.
    (0..60)
        .chain(300..500)
        .for_each(|lba| trim(&mut machine, volume, lba, 1));
    numbers
        .iter()
        .filter(|n| !repaired.contains(n))
        .for_each(|n| trim(&mut machine, volume, 100 + n, 1));
    for n in 0..15_000 {
        write(&mut machine, volume, 1200 + n % 1500, &[10_000 + n]);
    }
    rest(&mut machine, volume);
    assert_eq!(
        machine.command(Control::Shutdown { export: false }),
        Some(Ok(ControlReply::Done))
    );
    let mut memory = machine.memory;
    for (segment, row, header) in memory
        .headers()
        .into_iter()
        .filter(|(_, _, header)| header.stream.0 == 3)
    {
        memory.overwrite(segment, row..row + header.rows, 0xee);
    }
    let report = Engine::rebuild_map(
        &mut memory,
        BufPool::new(64 << 20),
        &Machine::options(),
        RebuildWork {
            write: true,
            ..Default::default()
        },
        &mut |_| {},
    )
    .expect("rebuilt");
    // Trimmed blocks may return, as an error.
    let is_lost = |lba: &&u64| report.lost_blocks.contains(&(volume, Lba(100 + **lba)));
    assert_eq!(
        (report.losses.len(), repaired.iter().find(is_lost)),
        (0, None)
    );
    let mut machine = Machine::open(memory);
    for lba in repaired {
        verify(&mut machine, volume, 100 + lba, &[lba], "rebuilt");
    }
}

/// The batch with the last version of two blocks is lost, so a salvage finds only their earlier
/// references. That content has been replaced since, so the blocks are errors.
#[test]
fn a_salvage_gives_no_block_the_content_of_another() {
    let (mut machine, volume) = pool(Dedup::Hash);
    let plain = create(&mut machine, "plain", MIB, Dedup::Off);
    write(&mut machine, volume, 0, &[500, 501]);
    machine.flush(volume);
    write(&mut machine, volume, 0, &[7, 8]);
    machine.flush(volume);
    let lost = machine
        .memory
        .headers()
        .into_iter()
        .rfind(|(_, _, header)| header.stream.0 == 0)
        .expect("a batch");
    // Later data is in another segment: a salvage continues there.
    write(&mut machine, plain, 0, &(2000..2100).collect::<Vec<_>>());
    machine.flush(volume);
    write(&mut machine, volume, 50, &[600, 601]);
    rest(&mut machine, volume);
    assert_eq!(
        machine.engine.content_ids(volume, 50..52),
        [Some(0), Some(1)],
        "used again"
    );
    assert_eq!(
        machine.command(Control::Shutdown { export: false }),
        Some(Ok(ControlReply::Done))
    );
    let mut memory = machine.memory;
    for (segment, row, header) in memory
        .headers()
        .into_iter()
        .filter(|(_, _, header)| header.stream.0 == 3)
        .chain([lost])
    {
        memory.overwrite(segment, row..row + header.rows, 0xee);
    }
    let report = Engine::rebuild_map(
        &mut memory,
        BufPool::new(64 << 20),
        &Machine::options(),
        RebuildWork {
            write: true,
            ..Default::default()
        },
        &mut |_| {},
    )
    .expect("rebuilt");
    assert_eq!(
        (&report.lost_blocks[..], report.lost_blocks_total),
        (&[(volume, Lba(0)), (volume, Lba(1))][..], 2)
    );
    let mut machine = Machine::open(memory);
    verify(
        &mut machine,
        volume,
        50,
        &[600, 601],
        "those who wrote them",
    );
    for lba in 0..2 {
        machine.completions.clear();
        machine.request(
            volume,
            Op::Read {
                offset: lba * 4096,
                length: 4096,
            },
        );
        machine.settle();
        assert!(
            matches!(
                machine.completions.pop().map(|c| c.result),
                Some(Err(RequestError::Io))
            ),
            "block {lba} is lost, not wrong"
        );
    }
    write(&mut machine, volume, 0, &[9, 10]);
    verify(&mut machine, volume, 0, &[9, 10], "rewritten");
    rest(&mut machine, volume);
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

/// Writes, trims, deletes, cleaning, checkpoints and crashes with content from a small set; flushed
/// data is there.
#[test]
fn churn_with_crashes() {
    for seed in 0..4u64 {
        let mut rng = Rng(seed);
        let dedup = if seed % 2 == 0 {
            Dedup::Hash
        } else {
            Dedup::Verify
        };
        let mut machine = Machine::with(Redundancy::Single, 4, 7, 100);
        let volumes = [
            create(&mut machine, "a", 8 * MIB, dedup),
            create(&mut machine, "b", 8 * MIB, dedup),
        ];
        if seed % 3 == 0 {
            let compressed = Control::VolumeCompression {
                volume: volumes[0],
                compression: Compression::Lz4,
            };
            assert_eq!(machine.command(compressed), Some(Ok(ControlReply::Done)));
        }
        let mut model: BTreeMap<(usize, u64), u64> = BTreeMap::new();
        let mut cleaned = 0;
        for round in 0..12 {
            if seed % 2 == 1 {
                machine.engine.inject_weak_fingerprints();
            }
            for _ in 0..130 {
                let (at, lba, count) = (rng.below(2) as usize, rng.below(1150), 1 + rng.below(12));
                if rng.below(15) == 0 {
                    trim(&mut machine, volumes[at], lba, count);
                    (lba..lba + count).for_each(|lba| _ = model.remove(&(at, lba)));
                } else {
                    let numbers: Vec<u64> = (0..count)
                        .map(|_| {
                            if rng.below(3) > 0 {
                                rng.below(1 << 30) + 100
                            } else {
                                rng.below(60)
                            }
                        })
                        .collect();
                    write(&mut machine, volumes[at], lba, &numbers);
                    numbers
                        .iter()
                        .zip(lba..)
                        .for_each(|(n, lba)| _ = model.insert((at, lba), *n));
                }
            }
            cleaned += rest(&mut machine, volumes[0]).segments_cleaned;
            for ((at, lba), n) in &model {
                verify(
                    &mut machine,
                    volumes[*at],
                    *lba,
                    &[*n],
                    &format!("seed {seed} round {round}"),
                );
            }
            if rng.below(2) == 0 {
                machine = machine.crash();
                rest(&mut machine, volumes[0]);
            }
        }
        for volume in volumes {
            trim(&mut machine, volume, 0, 2048);
        }
        let status = rest(&mut machine, volumes[0]);
        assert_eq!(
            (
                status.dedup.unique_bytes,
                status.stored_bytes,
                status.used_bytes
            ),
            (0, 0, 0),
            "seed {seed}: nothing is left over"
        );
        assert!(cleaned > 0, "seed {seed}: content was moved");
    }
}

/// The open batch holds references, not the written payload. A journal that took entries over from
/// it, because a flush was the first one for long, had nothing to replay after a power loss (seed
/// 200650).
#[test]
fn a_first_flush_keeps_what_has_become_a_reference_in_the_open_batch() {
    let mut machine = Machine::journalled(Redundancy::Double, 6, 24, 1 << 20);
    let volume = create(&mut machine, "v", 4 * MIB, Dedup::Hash);
    // No flush arrives for a while: the backlog is not kept any more.
    machine::pass(&mut machine, 2000);
    write(&mut machine, volume, 10, &[1]);
    machine.flush(volume);
    verify(&mut machine.crash(), volume, 10, &[1], "after a crash");
}

/// Content written in sequence is adjacent: when it is written again, it is read together for
/// comparison.
#[test]
fn neighbours_are_compared_by_one_read() {
    let (mut machine, volume) = pool(Dedup::Verify);
    machine.command(Control::VolumeCompression {
        volume,
        compression: Compression::Lz4,
    });
    let numbers: Vec<u64> = (0..30).collect();
    write(&mut machine, volume, 0, &numbers);
    rest(&mut machine, volume);
    machine.held = Some(Vec::new());
    write(&mut machine, volume, 100, &numbers);
    let reads: Vec<usize> = machine
        .held
        .iter()
        .flatten()
        .filter_map(|command| {
            if let MemberOp::Read { buf, .. } = &command.op {
                Some(buf.len())
            } else {
                None
            }
        })
        .collect();
    assert!(
        reads.len() <= 5,
        "one for each column, and one where compressed blocks begin in the middle of one: {reads:?}"
    );
    assert!(
        reads.iter().sum::<usize>() < 22 * 4096,
        "15 uncompressed blocks, and 15 compressed into less than four: {reads:?}"
    );
    machine.release();
    assert_eq!(rest(&mut machine, volume).dedup.sums.found, 30);
    verify(&mut machine, volume, 100, &numbers, "compared");
}

/// Part of the content read together is lost: nothing refers to that part, and no block reads wrong
/// bytes.
#[test]
fn lost_content_among_neighbours_is_stored_again() {
    let (mut machine, volume) = pool(Dedup::Verify);
    let numbers: Vec<u64> = (0..30).collect();
    write(&mut machine, volume, 0, &numbers);
    rest(&mut machine, volume);
    let (segment, row, _) = machine
        .memory
        .headers()
        .into_iter()
        .find(|(_, _, header)| header.stream.0 == 0)
        .expect("a batch of users");
    machine.memory.overwrite(segment, row + 2..row + 3, 0x77);
    write(&mut machine, volume, 100, &numbers);
    let sums = rest(&mut machine, volume).dedup.sums;
    assert!(sums.compared == 30 && sums.mismatched > 0, "{sums:?}");
    verify(&mut machine, volume, 100, &numbers, "beside what is lost");
}

/// Regression: a write of a part of a block found its content lost and failed. The client wrote the
/// whole block again, and that became a reference to the lost content.
#[test]
fn content_that_an_unaligned_write_could_not_read_is_not_shared_any_more() {
    let (mut machine, volume) = pool(Dedup::Hash);
    let bytes = content(7);
    machine.request(
        volume,
        Op::Write {
            offset: 0,
            data: Payload::copy_of(&bytes),
            fua: true,
        },
    );
    rest(&mut machine, volume);
    machine.garble(1);
    machine.garble(2);
    machine.completions.clear();
    machine.out.notices.clear();
    machine.request(
        volume,
        Op::Write {
            offset: 512,
            data: Payload::copy_of(&[1; 512]),
            fua: true,
        },
    );
    machine.wait_for(1);
    assert!(matches!(
        machine.completions[0].result,
        Err(RequestError::Io)
    ));
    assert!(
        machine
            .out
            .notices
            .iter()
            .any(|notice| matches!(notice, Notice::Unrecoverable { lba: 0, .. })),
        "{:?}",
        machine.out.notices
    );
    machine.request(
        volume,
        Op::Write {
            offset: 0,
            data: Payload::copy_of(&bytes),
            fua: true,
        },
    );
    rest(&mut machine, volume);
    assert_eq!(machine.read(volume, 0, 4096), bytes);
}

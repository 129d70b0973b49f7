//! Stories of the deduplication index on flash: entries evicted from memory are found again, and
//! page entries of removed content are never trusted.

use crate::machine;

use machine::{Machine, numbers::Numbers, pass};
use windrow_engine::*;
use windrow_format::checkpoint::Dedup;
use windrow_format::superblock::Features;
use windrow_geometry::Redundancy;
use windrow_io::*;
use windrow_types::VolumeId;

const MIB: u64 = 1 << 20;
/// Blocks of a request.
const RUN: u64 = 64;

/// Content number `n`: no two are the same.
fn content(n: u64) -> Vec<u8> {
    let mut block = vec![0; 4096];
    Numbers::of(n).fill(&mut block);
    block[..8].copy_from_slice(&(n + 1).to_le_bytes());
    block
}

fn options(index_bytes: u64) -> OpenOptions {
    let mut options = Machine::options();
    options.limits.index_bytes = index_bytes;
    options
}

/// The pool with an index limited to this number of bytes of memory, after a crash.
fn reopen(machine: Machine, index_bytes: u64) -> Machine {
    let mut machine = Machine::open_with(machine.memory, &options(index_bytes));
    machine.settle();
    machine
}

fn pool(dedup: Dedup, index_bytes: u64) -> (Machine, VolumeId) {
    pool_of(Redundancy::Single, dedup, index_bytes)
}

fn pool_of(redundancy: Redundancy, dedup: Dedup, index_bytes: u64) -> (Machine, VolumeId) {
    let mut machine = Machine::open_with(
        Machine::with(redundancy, 4, 24, 100).memory,
        &options(index_bytes),
    );
    let Some(Ok(ControlReply::Volume(volume))) = machine.command(Control::VolumeCreate {
        name: "v".into(),
        size_bytes: 64 * MIB,
    }) else {
        panic!("no volume");
    };
    assert_eq!(
        machine.command(Control::VolumeDedup { volume, dedup }),
        Some(Ok(ControlReply::Done))
    );
    (machine, volume)
}

/// Writes contents, in order, from `lba` on.
fn write(machine: &mut Machine, volume: VolumeId, lba: u64, numbers: &[u64]) {
    for (at, run) in (lba..)
        .step_by(RUN as usize)
        .zip(numbers.chunks(RUN as usize))
    {
        let bytes: Vec<u8> = run.iter().flat_map(|n| content(*n)).collect();
        machine.request(
            volume,
            Op::Write {
                offset: at * 4096,
                data: Payload::copy_of(&bytes),
                fua: false,
            },
        );
        machine.settle();
    }
}

fn verify(machine: &mut Machine, volume: VolumeId, lba: u64, numbers: &[u64], what: &str) {
    for (at, run) in (lba..)
        .step_by(RUN as usize)
        .zip(numbers.chunks(RUN as usize))
    {
        let bytes = machine.read(volume, at * 4096, (run.len() * 4096) as u32);
        for (i, (found, n)) in bytes.chunks_exact(4096).zip(run).enumerate() {
            assert!(
                found == content(*n),
                "{what}: block {} is not content {n}",
                at + i as u64
            );
        }
    }
}

fn rest(machine: &mut Machine, volume: VolumeId) -> PoolStatus {
    machine.flush(volume);
    pass(machine, 20);
    machine
        .engine
        .self_check()
        .unwrap_or_else(|error| panic!("{error}"));
    machine.engine.status()
}

fn found(machine: &Machine) -> u64 {
    machine.engine.status().dedup.sums.found
}

/// 32 KiB of memory hold about 1100 entries, and point to about 9400 more.
const SMALL: u64 = 32 << 10;

#[test]
fn entries_evicted_from_memory_are_found_on_flash() {
    for dedup in [Dedup::Hash, Dedup::Verify] {
        let (mut machine, volume) = pool(dedup, SMALL);
        let numbers: Vec<u64> = (0..4000).collect();
        write(&mut machine, volume, 0, &numbers);
        let before = rest(&mut machine, volume).dedup;
        assert!(
            before.index_entries_max < 1200 && before.index_bytes <= SMALL,
            "{before:?}"
        );
        assert_eq!(
            (
                before.sums.pages_written,
                before.sums.pages_dropped,
                before.index_pages
            ),
            (23, 0, 23)
        );
        write(&mut machine, volume, 5000, &numbers);
        let status = rest(&mut machine, volume);
        let after = status.dedup;
        assert!(
            after.sums.found >= 3980,
            "{dedup:?}: {} found",
            after.sums.found
        );
        assert!(
            after.sums.pages_read <= 2 * 23,
            "one read for many: {after:?}"
        );
        assert_eq!(status.written.index, status.dedup.sums.pages_written * 4096);
        verify(&mut machine, volume, 0, &numbers, "now");
        verify(&mut machine, volume, 5000, &numbers, "now");
        let mut machine = reopen(machine, SMALL);
        verify(&mut machine, volume, 5000, &numbers, "after a crash");
        rest(&mut machine, volume);
    }
}

#[test]
fn after_a_start_the_index_is_restored() {
    for index_bytes in [64 << 10, 64 << 20] {
        let (mut machine, volume) = pool(Dedup::Hash, index_bytes);
        let numbers: Vec<u64> = (0..2704).collect();
        write(&mut machine, volume, 0, &numbers);
        rest(&mut machine, volume);
        for what in ["replayed", "from a checkpoint"] {
            machine = reopen(machine, index_bytes);
            let status = rest(&mut machine, volume).dedup;
            assert_eq!(
                (status.index_pages_scanned, status.index_pages_to_scan),
                (16, 16),
                "{what}"
            );
            write(&mut machine, volume, 4000, &numbers);
            assert!(
                found(&machine) >= 2650,
                "{what}, {index_bytes}: {} found",
                found(&machine)
            );
            rest(&mut machine, volume);
            machine.command(Control::Checkpoint);
            pass(&mut machine, 20);
        }
        verify(&mut machine, volume, 4000, &numbers, "at the end");
    }
}

/// Pages name content that was removed, and whose ids have other content now.
#[test]
fn page_entries_of_removed_content_are_not_trusted() {
    for dedup in [Dedup::Hash, Dedup::Verify] {
        let (mut machine, volume) = pool(dedup, SMALL);
        let old: Vec<u64> = (0..1690).collect();
        let new: Vec<u64> = (10_000..11_690).collect();
        write(&mut machine, volume, 0, &old);
        rest(&mut machine, volume);
        write(&mut machine, volume, 0, &new);
        let status = rest(&mut machine, volume).dedup;
        assert_eq!((status.unique_bytes, status.sums.found), (1690 * 4096, 0));
        // The ids of the old content are used again.
        write(&mut machine, volume, 4000, &old);
        assert_eq!(found(&machine), 0, "what has gone is not found");
        rest(&mut machine, volume);
        for what in ["now", "after a crash"] {
            verify(&mut machine, volume, 0, &new, what);
            verify(&mut machine, volume, 4000, &old, what);
            machine = reopen(machine, SMALL);
            rest(&mut machine, volume);
        }
        write(&mut machine, volume, 8000, &[&old[..], &new[..]].concat());
        verify(
            &mut machine,
            volume,
            8000,
            &[&old[..], &new[..]].concat(),
            "all again",
        );
        assert!(found(&machine) >= 3200, "{} found", found(&machine));
    }
}

/// Four fingerprints for all contents, so nearly every page entry is wrong.
#[test]
fn collisions_are_told_apart_by_their_bytes() {
    let (mut machine, volume) = pool(Dedup::Verify, SMALL);
    machine.engine.inject_weak_fingerprints();
    let numbers: Vec<u64> = (0..2000).collect();
    write(&mut machine, volume, 0, &numbers);
    write(&mut machine, volume, 4000, &numbers);
    verify(&mut machine, volume, 0, &numbers, "first");
    verify(&mut machine, volume, 4000, &numbers, "second");
    rest(&mut machine, volume);
}

/// A pool that is older than the pages, or too full for them, keeps its index in memory only.
#[test]
fn pages_are_written_after_a_durable_flag() {
    let (machine, _) = pool(Dedup::Hash, SMALL);
    let flag = Features::SHARED | Features::DEDUP_INDEX;
    assert!(
        (0..4).all(
            |member| machine.memory.superblock_of(member).features.incompatible & flag == flag
        )
    );
    let plan = machine.engine.status().plan;
    assert!(
        plan.index_pages * 169 * 4096 >= plan.usable_bytes,
        "room for all that may be unique: {plan:?}"
    );
}

/// Regression: blocks that waited for a page continued when it arrived, but their candidates were
/// never read, as no other event followed in the pool (seed 1023).
#[test]
fn blocks_that_waited_for_a_page_are_compared_without_further_events() {
    let (mut machine, volume) = pool(Dedup::Verify, SMALL);
    let numbers: Vec<u64> = (0..3380).collect();
    write(&mut machine, volume, 0, &numbers);
    rest(&mut machine, volume);
    // Evicted long ago, a few at a time: a page is read for some of them.
    for first in (0..1690).step_by(64) {
        let bytes: Vec<u8> = (first..first + 8).flat_map(content).collect();
        machine.request(
            volume,
            Op::Write {
                offset: (5000 + first) * 4096,
                data: Payload::copy_of(&bytes),
                fua: false,
            },
        );
        machine.request(volume, Op::Flush);
        machine.settle();
        assert!(
            machine.engine.is_quiet(),
            "content {first}: {:?}",
            machine.engine.status().dedup
        );
    }
    assert!(machine.engine.status().dedup.sums.pages_read > 5);
}

/// All pages are corrupted, and there is no redundancy: duplicates are lost and nothing else,
/// without any report.
#[test]
fn a_damaged_page_loses_duplicates_and_nothing_else() {
    let (mut machine, volume) = pool_of(Redundancy::None, Dedup::Hash, SMALL);
    let numbers: Vec<u64> = (0..3380).collect();
    write(&mut machine, volume, 0, &numbers);
    rest(&mut machine, volume);
    machine.command(Control::Checkpoint);
    pass(&mut machine, 20);
    let mut hit = 0;
    for member in &mut machine.memory.data {
        for block in member
            .chunks_exact_mut(4096)
            .filter(|block| block.starts_with(b"WIDX"))
        {
            block[100..140].fill(0xee);
            hit += 1;
        }
    }
    let pages = machine.engine.status().dedup.index_pages;
    assert_eq!((hit, pages), (20, 20), "each page once");
    write(&mut machine, volume, 5000, &numbers);
    let status = rest(&mut machine, volume).dedup;
    assert!(
        status.sums.pages_void >= 15 && status.sums.found < 500,
        "{status:?}"
    );
    assert!(
        status.sums.pages_written >= 35 && status.index_pages < 40,
        "the damaged ones are rewritten: {status:?}"
    );
    verify(&mut machine, volume, 0, &numbers, "first");
    verify(&mut machine, volume, 5000, &numbers, "second");
    // They are found in the rewritten pages.
    let before = found(&machine);
    write(&mut machine, volume, 9000, &numbers[..1690]);
    assert!(
        found(&machine) - before > 1500,
        "{} found",
        found(&machine) - before
    );
}

/// Regression: a page named lost content, and in mode `hash` its bytes are not compared. A client
/// that rewrote the bytes to repair the block got a reference to the lost content. After a start
/// the loss was not even known.
#[test]
fn lost_content_that_a_page_names_is_not_referred_to() {
    for restart in [false, true] {
        let (mut machine, volume) = pool_of(
            Redundancy::None,
            Dedup::Hash,
            if restart { 1 << 20 } else { SMALL },
        );
        let numbers: Vec<u64> = (0..3380).collect();
        write(&mut machine, volume, 0, &numbers);
        rest(&mut machine, volume);
        let wanted = content(5);
        for member in &mut machine.memory.data {
            for block in member
                .chunks_exact_mut(4096)
                .filter(|block| **block == wanted[..])
            {
                block.fill(0xee);
            }
        }
        assert!(machine.is_lost(volume, 5), "lost");
        if restart {
            machine = reopen(machine, 1 << 20);
            rest(&mut machine, volume);
        }
        let before = found(&machine);
        write(&mut machine, volume, 0, &numbers[..32]);
        rest(&mut machine, volume);
        assert!(
            !machine.is_lost(volume, 5),
            "written again, restart {restart}"
        );
        assert!(
            found(&machine) - before >= 16,
            "{} of the others found, restart {restart}",
            found(&machine) - before
        );
    }
}

/// Regression: a count of sharing read the number of contents for each round again. With contents
/// arriving meanwhile, rounds of one content each never ended; without any content the count did
/// not complete.
#[test]
fn a_count_of_shared_content_ends_while_contents_come() {
    for first in [0, 64] {
        let (mut machine, volume) = pool(Dedup::Hash, SMALL);
        let numbers: Vec<u64> = (0..first).collect();
        write(&mut machine, volume, 0, &numbers);
        rest(&mut machine, volume);
        machine.control.clear();
        machine.events.push(Event::Control(ControlRequest {
            id: ControlId(1),
            command: Control::CountSharing,
        }));
        let mut next = first;
        for turn in 0..400 {
            let bytes: Vec<u8> = (next..next + 8).flat_map(content).collect();
            machine.request(
                volume,
                Op::Write {
                    offset: next * 4096,
                    data: Payload::copy_of(&bytes),
                    fua: false,
                },
            );
            next += 8;
            machine.turn();
            if machine
                .control
                .iter()
                .any(|answer| answer.id == ControlId(1))
            {
                break;
            }
            assert!(turn < 300, "it has not ended");
        }
    }
}

/// The newest contents are in no page yet at a shutdown. A partial page is written, so up to 168
/// contents are found after the next start. That start continues the page, so that pages of a few
/// contents each do not accumulate.
#[test]
fn content_written_just_before_a_shutdown_is_found_after_the_start() {
    for flushed in [true, false] {
        let (mut machine, volume) = pool(Dedup::Hash, SMALL);
        let mut numbers: Vec<u64> = (0..200).collect();
        write(&mut machine, volume, 0, &numbers);
        for round in 1..6 {
            if flushed {
                rest(&mut machine, volume);
            }
            assert_eq!(
                machine.command(Control::Shutdown { export: false }),
                Some(Ok(ControlReply::Done))
            );
            machine = reopen(machine, SMALL);
            let status = rest(&mut machine, volume).dedup;
            assert_eq!(
                (
                    status.index_pages,
                    status.index_pages_scanned,
                    status.sums.pages_void
                ),
                (2, 2, 0),
                "start {round}"
            );
            write(&mut machine, volume, round * 1000, &numbers);
            assert_eq!(
                found(&machine),
                numbers.len() as u64,
                "start {round}, flushed {flushed}"
            );
            // A few more, in some of the rounds.
            let more: Vec<u64> = (round * 10_000..round * 10_000 + round % 2 * 7).collect();
            write(&mut machine, volume, round * 1000 + 500, &more);
            numbers.extend(more);
        }
        verify(
            &mut machine,
            volume,
            5000,
            &numbers[..numbers.len() - 7],
            "at the end",
        );
        rest(&mut machine, volume);
        // A crash loses only entries that no page has.
        machine = reopen(machine, SMALL);
        rest(&mut machine, volume);
        write(&mut machine, volume, 8000, &numbers);
        assert!(found(&machine) >= 200, "{} found", found(&machine));
        verify(&mut machine, volume, 8000, &numbers, "after a crash");
    }
}

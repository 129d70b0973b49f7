//! Stale data of a previous incarnation of a segment, left on a member by a lost write, is never
//! taken for live data. Data that the redundancy covers is found and moved all the same, and
//! cleaning always makes progress.

use crate::machine;

use machine::{Machine, Memory, pass};
use std::collections::BTreeSet;
use windrow_engine::*;
use windrow_geometry::Redundancy;
use windrow_io::{BufPool, Op, Reply};
use windrow_types::VolumeId;

const CODES: [(Redundancy, usize); 5] = [
    (Redundancy::Copies(2), 2),
    (Redundancy::Copies(3), 3),
    (Redundancy::Single, 3),
    (Redundancy::Single, 4),
    (Redundancy::Double, 5),
];

/// Blocks at the same addresses in each history: two histories of one pool that diverged at a power
/// loss.
fn life(memory: &Memory, volume: VolumeId, blocks: std::ops::Range<u64>, round: u64) -> Machine {
    let mut machine = Machine::open(memory.clone());
    blocks.for_each(|lba| machine.write(volume, lba, (lba * 3 + round) as u8));
    machine.flush(volume);
    assert_eq!(
        machine.command(Control::Checkpoint),
        Some(Ok(ControlReply::Done))
    );
    machine
}

/// An empty pool that was shut down, its volume, and a number of blocks that is most of it.
fn empty(redundancy: Redundancy, members: usize) -> (Memory, VolumeId, u64) {
    let mut machine = Machine::with(redundancy, members, 12, 100);
    let volume = machine.volume(1 << 30);
    assert_eq!(
        machine.command(Control::Shutdown { export: false }),
        Some(Ok(ControlReply::Done))
    );
    let blocks = machine.engine.status().plan.usable_bytes / 4096 * 8 / 10;
    (machine.memory, volume, blocks)
}

/// A member gets the content that the other history of the pool wrote to it.
fn take_over(machine: &mut Machine, member: usize, former: &Machine) {
    let start = machine.engine.status().plan.zones[0].start as usize;
    machine.memory.data[member][start..].copy_from_slice(&former.memory.data[member][start..]);
}

/// Overwrites every other block repeatedly, so that the blocks between are moved. Returns the
/// number of cleaned segments.
fn churn(
    machine: &mut Machine,
    volume: VolumeId,
    blocks: std::ops::Range<u64>,
    rounds: std::ops::Range<u64>,
) -> u64 {
    let before = machine.engine.status().segments_cleaned;
    for round in rounds {
        blocks
            .clone()
            .step_by(2)
            .for_each(|lba| machine.write(volume, lba, (lba * 3 + round) as u8));
        machine.flush(volume);
    }
    machine.engine.status().segments_cleaned - before
}

/// Blocks that no read returns; all others must hold their data.
fn unreadable(
    machine: &mut Machine,
    volume: VolumeId,
    blocks: std::ops::Range<u64>,
    round: impl Fn(u64) -> u64,
) -> BTreeSet<u64> {
    let mut lost = BTreeSet::new();
    for lba in blocks {
        machine.completions.clear();
        machine.request(
            volume,
            Op::Read {
                offset: lba * 4096,
                length: 4096,
            },
        );
        machine.settle();
        match machine.completions.pop().expect("an answer").result {
            Ok(Reply::Data(parts)) => {
                assert_eq!(parts[0][1], (lba * 3 + round(lba)) as u8, "block {lba}")
            }
            Ok(other) => panic!("{other:?}"),
            Err(_) => _ = lost.insert(lba),
        }
    }
    lost
}

/// Cleaning took the table of a previous incarnation for that of the batch: its blocks have their
/// addresses and the right checksums for their own bytes, and were moved as live data. With parity
/// it reconstructed both head and tail of a batch, one of them from a wrong column. It had neither,
/// quarantined segment after segment, and stalled when none was left.
#[test]
fn cleaning_moves_live_data_and_not_stale_data() {
    for (redundancy, members) in CODES {
        for liar in [0, members - 1] {
            let (memory, volume, blocks) = empty(redundancy, members);
            let former = life(&memory, volume, 0..blocks, 1);
            let mut machine = life(&memory, volume, 0..blocks, 2);
            take_over(&mut machine, liar, &former);
            let cleaned = churn(&mut machine, volume, 0..blocks, 3..6);
            assert!(
                cleaned > 4,
                "{redundancy:?}: {cleaned} cleaned; {}",
                machine.engine.describe()
            );
            // Segments of pages are quarantined until two checkpoints have rewritten these.
            let none_is_quarantined = (0..4).any(|_| {
                let none = machine.engine.describe().contains(" 0 quarantined");
                none || machine.command(Control::Checkpoint).is_none()
            });
            assert!(none_is_quarantined, "{}", machine.engine.describe());
            let lost = unreadable(&mut machine, volume, 0..blocks, |lba| {
                if lba % 2 == 0 { 5 } else { 2 }
            });
            assert_eq!(lost, BTreeSet::new(), "{redundancy:?}, member {liar}");
        }
    }
}

/// A stale batch with other blocks at the same addresses contradicts nothing in the map. The live
/// data there was left behind, and its segment was cleaned again and again without end.
#[test]
fn a_stale_batch_of_other_blocks_does_not_hide_live_data_at_its_address() {
    for (redundancy, members) in CODES {
        let (memory, volume, blocks) = empty(redundancy, members);
        let former = life(&memory, volume, blocks..blocks * 2, 1);
        let mut machine = life(&memory, volume, 0..blocks, 2);
        take_over(&mut machine, 0, &former);
        let cleaned = churn(&mut machine, volume, 0..blocks, 3..6);
        assert!(
            cleaned > 4,
            "{redundancy:?}: {cleaned} cleaned; {}",
            machine.engine.describe()
        );
        let lost = unreadable(&mut machine, volume, 0..blocks, |lba| {
            if lba % 2 == 0 { 5 } else { 2 }
        });
        assert_eq!(lost, BTreeSet::new(), "{redundancy:?}");
    }
}

/// One member more than the redundancy covers has the previous incarnation. Unreadable data is
/// reported block by block, and nothing loops: when all moves are done nothing is in progress any
/// more.
#[test]
fn data_lost_on_too_many_members_is_reported() {
    for (redundancy, members) in CODES {
        for other_blocks in [false, true] {
            let (memory, volume, blocks) = empty(redundancy, members);
            let former = life(
                &memory,
                volume,
                if other_blocks {
                    blocks..blocks * 2
                } else {
                    0..blocks
                },
                1,
            );
            let mut machine = life(&memory, volume, 0..blocks, 2);
            (0..=redundancy.tolerance())
                .for_each(|member| take_over(&mut machine, member, &former));
            let round = |lba: u64| if lba.is_multiple_of(2) { 3 } else { 2 };
            churn(&mut machine, volume, 0..blocks / 4, 3..4);
            let victims = machine.engine.status().segments_cleaned;
            machine.out.notices.clear();
            let lost = unreadable(&mut machine, volume, 0..blocks / 4, round);
            assert!(!lost.is_empty(), "{redundancy:?}");
            machine.out.notices.clear();
            // It ends, and it reports exactly the lost blocks.
            assert_eq!(
                machine.command(Control::Scrub(ScrubCommand::Start {
                    unix_s: 5,
                    bytes_per_second: 0
                })),
                Some(Ok(ControlReply::Done))
            );
            pass(&mut machine, 300);
            let scrub = machine.engine.status().scrub;
            assert_eq!(
                scrub.state,
                ScrubState::Completed,
                "{redundancy:?}: {}",
                machine.engine.describe()
            );
            let told: BTreeSet<u64> = machine
                .out
                .notices
                .iter()
                .flat_map(|n| {
                    if let Notice::Unrecoverable { lba, blocks, .. } = n {
                        *lba..lba + blocks
                    } else {
                        0..0
                    }
                })
                .collect();
            assert_eq!(told.len() as u64, scrub.lost_blocks, "{redundancy:?}");
            let all = unreadable(&mut machine, volume, 0..blocks, |lba| {
                if lba < blocks / 4 { round(lba) } else { 2 }
            });
            assert_eq!(
                told, all,
                "{redundancy:?}, other blocks: {other_blocks}, cleaned {victims}"
            );
            // Data that reads could reconstruct is moved as far as there is room; then the pool is
            // quiescent.
            pass(&mut machine, 300);
            assert!(
                machine.engine.is_quiet(),
                "{redundancy:?}: {}",
                machine.engine.describe()
            );
        }
    }
}

/// A batch that a start refused is on the only member that it had reached. That member missed the
/// batch which then got its number and address, and which is longer. The fence that refused it is
/// not kept any more. A salvage took the refused batch, as its number is the next, and found
/// nothing after it. It reported the rest of the segment as lost (simulator, seed 10164104).
#[test]
fn a_refused_batch_hides_nothing_when_its_fence_is_gone() {
    let mut machine = Machine::with_rows_only(Redundancy::Single, 4, 64, 8, 32);
    let volume = machine.volume(1 << 30);
    let newest = |memory: &Memory| {
        memory
            .headers()
            .into_iter()
            .filter(|found| found.2.stream.0 == 0)
            .max_by_key(|found| (found.2.epoch, found.2.seq))
            .expect("a batch")
    };
    (0..20).for_each(|lba| machine.write(volume, lba, 5));
    machine.flush(volume);
    machine.write(volume, 20, 6);
    pass(&mut machine, 4);
    let (segment, row, refused) = newest(&machine.memory);
    assert_ne!(row % 8, 0, "a batch came before in its chunk");
    let addresses = machine.memory.blocks(segment, row..row + refused.rows);
    let (first, at) = addresses[0];
    let former = machine.memory.data[first][at..at + 4096].to_vec();
    addresses
        .iter()
        .filter(|(member, _)| *member != first)
        .for_each(|(member, at)| machine.memory.data[*member][*at..*at + 4096].fill(0));

    let mut machine = machine.crash();
    (20..27).for_each(|lba| machine.write(volume, lba, 7));
    machine.flush(volume);
    let (_, _, counts) = newest(&machine.memory);
    assert_eq!(
        (counts.segment, counts.row, counts.seq),
        (segment, row, refused.seq)
    );
    assert!(
        counts.epoch > refused.epoch && counts.rows > refused.rows,
        "{counts:?} after {refused:?}"
    );
    (27..200).for_each(|lba| machine.write(volume, lba, 8));
    machine.flush(volume);
    while machine
        .memory
        .superblock()
        .fences
        .iter()
        .any(|fence| fence.epoch <= counts.epoch)
    {
        machine = machine.crash();
        machine.write(volume, 300, 9);
        assert_eq!(
            machine.command(Control::Checkpoint),
            Some(Ok(ControlReply::Done))
        );
    }
    assert_eq!(
        machine.command(Control::Shutdown { export: false }),
        Some(Ok(ControlReply::Done))
    );

    let mut memory = machine.memory;
    memory.data[first][at..at + 4096].copy_from_slice(&former);
    for without_checkpoint in [false, true] {
        let mut memory = memory.clone();
        let work = RebuildWork {
            write: true,
            without_checkpoint,
        };
        let report = Engine::rebuild_map(
            &mut memory,
            BufPool::new(64 << 20),
            &Machine::options(),
            work,
            &mut |_| {},
        )
        .expect("rebuilt");
        assert_eq!(
            (report.losses.len(), report.lost_lsns),
            (0, None),
            "{report:?}"
        );
        let mut machine = Machine::open(memory);
        let byte = |lba: u64| [5, 7, 8][usize::from(lba >= 20) + usize::from(lba >= 27)];
        (0..200).for_each(|lba| assert_eq!(machine.byte(volume, lba), byte(lba), "block {lba}"));
    }
}

//! Report of a salvage where nothing is left that could show a loss: whole segments without one
//! readable batch.

use crate::machine;

use machine::{Machine, Memory};
use windrow_engine::*;
use windrow_format::batch::BatchHeader;
use windrow_geometry::ZoneMap;
use windrow_io::*;
use windrow_types::{BLOCK_BYTES, SegmentId, VolumeId};

fn look(memory: &mut Memory) -> RebuildReport {
    Engine::rebuild_map(
        memory,
        BufPool::new(64 << 20),
        &Machine::options(),
        RebuildWork::default(),
        &mut |_| {},
    )
    .expect("a look")
}

/// A pool that was used for a while, with blocks that stay in place, and was shut down.
fn used() -> (Memory, u64) {
    let mut machine = Machine::new(3, 32, 100);
    let usable = machine.engine.status().plan.usable_bytes / BLOCK_BYTES;
    let volume = machine.volume(usable * BLOCK_BYTES);
    let still = usable / 2;
    (0..still).for_each(|lba| machine.write(volume, lba, 5));
    machine.flush(volume);
    for round in 0..12u64 {
        (still..still + usable / 4).for_each(|lba| machine.write(volume, lba, 6 + round as u8));
        machine.flush(volume);
    }
    assert_eq!(
        machine.command(Control::Shutdown { export: false }),
        Some(Ok(ControlReply::Done))
    );
    (machine.memory, still)
}

fn zones(memory: &Memory) -> ZoneMap {
    ZoneMap::new(memory.superblock().zones)
}

/// Zeroes everything in a segment.
fn blank(memory: &mut Memory, segment: SegmentId) {
    let rows = zones(memory).shape(segment).rows;
    memory.overwrite(segment, 0..rows, 0);
}

/// Blocks that a sound checkpoint shows are in a segment that was wiped completely. No batch of it
/// is left to leave a gap, and it is far below the replay position. The salvage must report the
/// loss.
#[test]
fn a_wiped_segment_in_which_a_checkpoint_shows_blocks_is_reported() {
    let (mut memory, _) = used();
    assert_eq!(look(&mut memory).losses, []);
    let (segment, _, _) = memory
        .headers()
        .into_iter()
        .filter(|(_, _, header)| header.stream.0 == 0)
        .min_by_key(|(_, _, header)| header.seq)
        .expect("a batch");
    blank(&mut memory, segment);
    let report = look(&mut memory);
    assert!(
        report.checkpoint > 0 && report.unread_checkpoint.is_none(),
        "{report:?}"
    );
    assert_eq!(
        report
            .losses
            .iter()
            .map(|loss| (loss.segment, loss.row))
            .collect::<Vec<_>>(),
        [(segment, 0)]
    );
}

/// A segment was wiped after its first batch. The resulting gap was reported only to the end of a
/// chunk.
#[test]
fn the_wiped_end_of_a_segment_is_reported_to_its_last_row() {
    let mut machine = Machine::with_rows_only(windrow_geometry::Redundancy::Single, 3, 64, 8, 32);
    let volume = machine.volume(8 << 20);
    (0..20).for_each(|lba| machine.write(volume, lba, 5));
    machine.flush(volume);
    (20..500).for_each(|lba| machine.write(volume, lba, 5));
    assert_eq!(
        machine.command(Control::Shutdown { export: false }),
        Some(Ok(ControlReply::Done))
    );
    let mut memory = machine.memory;
    let in_first = |(segment, ..): &Placed| *segment == SegmentId(0);
    let starts: Vec<u32> = memory
        .headers()
        .into_iter()
        .filter(in_first)
        .map(|(_, row, _)| row)
        .collect();
    let from = starts[1];
    assert!(from < 16, "{starts:?}");
    memory.overwrite(SegmentId(0), from..32, 0);
    let report = look(&mut memory);
    let told: Vec<(u32, u32)> = report
        .losses
        .iter()
        .filter(|loss| loss.segment == SegmentId(0))
        .map(|loss| (loss.row, loss.end_row))
        .collect();
    assert_eq!(told, [(from, 32)], "{report:?}");
}

/// Everything was overwritten, including the checkpoint. No batch is left that could be missed, and
/// `check` called the pool sound afterwards. Likewise a pool that lost only its checkpoint, and
/// whose segments were reused, cannot be called complete.
#[test]
fn without_the_checkpoint_the_pool_is_not_called_complete() {
    let (mut memory, still) = used();
    for segment in zones(&memory).segments().collect::<Vec<_>>() {
        blank(&mut memory, segment);
    }
    let report = look(&mut memory);
    assert_eq!((report.checkpoint, report.volumes.len()), (0, 0));
    let unread = report
        .unread_checkpoint
        .expect("a checkpoint that is named and gone");
    assert!(
        unread.missing_lsns > still && unread.missing_lsns <= unread.lsn.0,
        "{unread:?}"
    );

    let (mut memory, _) = used();
    let headers = memory.headers();
    for (segment, row, header) in headers.iter().filter(|(_, _, header)| header.stream.0 == 3) {
        memory.overwrite(*segment, *row..row + header.rows, 0xee);
    }
    let unread = look(&mut memory)
        .unread_checkpoint
        .expect("segments were used again");
    assert!(
        unread.missing_lsns > 0 && unread.missing_lsns < unread.lsn.0,
        "{unread:?}"
    );
}

/// The same must be reported if the checkpoint is not used: `--without-checkpoint` reported no
/// loss, whatever had been in unreadable segments.
#[test]
fn losses_known_only_to_an_unused_checkpoint_are_reported() {
    let (mut memory, _) = used();
    let work = RebuildWork {
        without_checkpoint: true,
        ..Default::default()
    };
    let report = Engine::rebuild_map(
        &mut memory,
        BufPool::new(64 << 20),
        &Machine::options(),
        work,
        &mut |_| {},
    )
    .expect("a look");
    let unread = report
        .unread_checkpoint
        .expect("a checkpoint that does not count");
    assert!(
        report.checkpoint == 0 && unread.missing_lsns > 0 && unread.missing_lsns < unread.lsn.0,
        "{unread:?}"
    );
}

/// A young pool: every LSN is in a batch, so nothing can be missing although the checkpoint is
/// gone.
#[test]
fn where_every_lsn_is_there_nothing_is_missing_without_the_checkpoint() {
    let mut machine = Machine::new(3, 32, 100);
    let volume = machine.volume(64 << 20);
    (0..100).for_each(|lba| machine.write(volume, lba, 5));
    machine.flush(volume);
    let mut machine = machine.crash();
    (0..50).for_each(|lba| machine.write(volume, lba, 6));
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
    let report = look(&mut memory);
    assert_eq!(
        (
            report.checkpoint,
            report.unread_checkpoint,
            report.losses.len()
        ),
        (0, None, 0)
    );
    assert_eq!(report.volumes[0].mapped_blocks, 100);
}

type Placed = (SegmentId, u32, BatchHeader);

/// A pool with chunks of 16 rows, two checkpoints, and after them `count` batches of one block
/// each, in their order.
fn small_batches(count: u64) -> (Memory, VolumeId, Vec<Placed>) {
    let mut machine = Machine::with_rows_only(windrow_geometry::Redundancy::Single, 3, 64, 16, 64);
    let volume = machine.volume(8 << 20);
    (0..30).for_each(|lba| machine.write(volume, lba, 5));
    machine.flush(volume);
    assert_eq!(
        machine.command(Control::Checkpoint),
        Some(Ok(ControlReply::Done))
    );
    assert_eq!(
        machine.command(Control::Checkpoint),
        Some(Ok(ControlReply::Done))
    );
    let of_users = |memory: &Memory| -> Vec<Placed> {
        memory
            .headers()
            .into_iter()
            .filter(|(.., header)| header.stream.0 == 0)
            .collect()
    };
    let before = of_users(&machine.memory)
        .iter()
        .map(|(.., header)| header.seq)
        .max()
        .expect("a batch");
    for number in 0..count {
        machine.write(volume, 100 + number, 6);
        machine.flush(volume);
    }
    let mut behind: Vec<Placed> = of_users(&machine.memory)
        .into_iter()
        .filter(|(.., header)| header.seq > before)
        .collect();
    behind.sort_unstable_by_key(|(.., header)| header.seq);
    (machine.memory, volume, behind)
}

/// Three small batches after a checkpoint, all in one chunk, and the first of them destroyed. If
/// only the beginnings of other chunks are tried after an unreadable batch, the two others are not
/// found, nor the durable LSN in them. Then no loss is reported.
#[test]
fn batches_of_the_same_chunk_are_found_after_a_lost_one() {
    let (mut memory, _, behind) = small_batches(3);
    let (segment, row, header) = &behind[0];
    let in_chunk =
        |(other, other_row, _): &Placed| (*other, other_row / 16) == (*segment, row / 16);
    assert!(
        behind.len() == 3 && behind.iter().all(in_chunk),
        "{:?}",
        behind
            .iter()
            .map(|(segment, row, _)| (segment, row))
            .collect::<Vec<_>>()
    );
    memory.overwrite(*segment, *row..row + header.rows, 0xee);
    let report = look(&mut memory);
    assert!(report.checkpoint > 0, "{report:?}");
    let told: Vec<_> = report
        .losses
        .iter()
        .map(|loss| (loss.segment, loss.row, loss.seq))
        .collect();
    assert_eq!(told, [(*segment, *row, header.seq)], "{report:?}");
}

/// The last batch of a chunk and the first one of the next are lost. If only the beginning of that
/// next chunk is tried, the batches after it, complete and flushed, are lost as well.
#[test]
fn batches_inside_the_next_chunk_are_found_where_its_beginning_is_lost() {
    let (mut memory, volume, behind) = small_batches(14);
    let begins = |at: usize| {
        behind[at].1.is_multiple_of(16) && behind[at].1 > 0 && behind[at - 1].0 == behind[at].0
    };
    let at = (1..behind.len() - 2)
        .find(|at| begins(*at))
        .expect("a batch that begins a chunk");
    for (segment, row, header) in &behind[at - 1..=at] {
        memory.overwrite(*segment, *row..row + header.rows, 0xee);
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
    );
    let report = report.expect("rebuilt");
    let told: Vec<_> = report
        .losses
        .iter()
        .map(|loss| (loss.segment, loss.row, loss.end_row, loss.seq))
        .collect();
    assert_eq!(
        told,
        [(
            behind[at - 1].0,
            behind[at - 1].1,
            behind[at + 1].1,
            behind[at - 1].2.seq
        )],
        "{report:?}"
    );
    let mut machine = Machine::open(memory);
    let kept = (0..14)
        .filter(|number| machine.byte(volume, 100 + number) == 6)
        .count();
    assert_eq!(kept, 12, "two of fourteen are lost");
}

/// A flushed batch is lost, and none after it was flushed. Ending the log there cost the same
/// number of durable LSNs as continuing, so it ended there, and complete batches after the lost one
/// were dropped.
#[test]
fn unflushed_batches_stay_where_an_earlier_one_is_lost() {
    let (memory, volume, _) = small_batches(0);
    let mut machine = Machine::open(memory);
    machine.write(volume, 100, 6);
    machine.flush(volume);
    let flushed = machine.engine.status().lsn;
    (200..500).for_each(|lba| machine.write(volume, lba, 7));
    let mut memory = machine.memory;
    let of_users = memory
        .headers()
        .into_iter()
        .filter(|(.., header)| header.stream.0 == 0 && header.flushed_through < flushed);
    let (segment, row, header) = of_users
        .max_by_key(|(.., header)| header.seq)
        .expect("the flushed batch");
    memory.overwrite(segment, row..row + header.rows, 0xee);
    let work = RebuildWork {
        write: true,
        ..Default::default()
    };
    let report = Engine::rebuild_map(
        &mut memory,
        BufPool::new(64 << 20),
        &Machine::options(),
        work,
        &mut |_| {},
    )
    .expect("rebuilt");
    let lost = report.lost_lsns.expect("the promise of the lost batch");
    assert_eq!(
        (lost.first, lost.last, lost.count),
        (flushed, flushed, 1),
        "{report:?}"
    );
    let mut machine = Machine::open(memory);
    let kept = (200..500)
        .filter(|lba| machine.byte(volume, *lba) == 7)
        .count();
    assert!(
        kept > 100,
        "{kept} of 300 blocks behind the lost one: {report:?}"
    );
}

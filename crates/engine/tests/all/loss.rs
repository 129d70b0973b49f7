//! Loss beyond the redundancy, each case as a story: the pool is refused with the list of losses,
//! and nothing is written.

use crate::machine;

use machine::given_again::{GivenAgain, mirror};
use machine::{Machine, Memory};
use windrow_engine::*;
use windrow_format::batch::BatchHeader;
use windrow_format::superblock::slot_offset;
use windrow_geometry::Redundancy;
use windrow_io::*;
use windrow_types::{BatchSeq, Lsn, SegmentId, VolumeId};

fn open(memory: &mut Memory) -> Result<OpenReport, OpenError> {
    Engine::open(memory, BufPool::new(64 << 20), &Machine::options()).map(|(_, report)| report)
}

/// A pool with this number of flushed writes after its checkpoint, each in a batch of its own of
/// two rows.
fn flushed(writes: u64) -> Memory {
    let mut machine = Machine::new(3, 64, 100);
    let volume = machine.volume(1 << 30);
    for lba in 0..writes {
        machine.write(volume, lba, lba as u8);
        machine.flush(volume);
    }
    machine.memory
}

/// A flushed batch is lost on more members than the redundancy covers. If the chain ended there as
/// at a torn tail, the pool would open without it and everything after it, without a report.
#[test]
fn a_lost_durable_batch_is_not_a_torn_tail() {
    let mut memory = flushed(40);
    let start = memory.superblock().checkpoints[0]
        .expect("a checkpoint")
        .replay[0];
    // The volume's creation is the first batch, of one row; the fourth write is the fifth.
    memory.overwrite(start.segment, start.row + 7..start.row + 9, 0);
    let before = memory.data.clone();
    let error = open(&mut memory).expect_err("the loss is found");
    assert!(memory.data == before, "nothing was written");
    let OpenError::Lost(Losses(losses)) = error else {
        panic!("{error}")
    };
    assert_eq!(losses.len(), 1);
    let loss = &losses[0];
    assert_eq!(
        (loss.stream, loss.seq, loss.segment, loss.row),
        (0, BatchSeq(5), start.segment, start.row + 7)
    );
    assert!(
        loss.durable_seq > loss.seq,
        "later batches say that it was durable"
    );
    let (first, last) = loss.lsns.expect("LSNs are known");
    assert!(first == Lsn(5) && last >= Lsn(30), "LSNs {first} to {last}");
}

/// The pool is refused. Before that, a member whose superblock was one generation behind was given
/// the newest one. A member that returned with old content from elsewhere was then taken for one
/// that had missed nothing.
#[test]
fn a_refused_start_leaves_superblocks_alone() {
    let mut memory = flushed(40);
    let superblock = memory.superblock();
    let slot = slot_offset(superblock.generation) as usize;
    memory.data[1][slot..slot + 4096].fill(0);
    let start = superblock.checkpoints[0].expect("a checkpoint").replay[0];
    memory.overwrite(start.segment, start.row + 7..start.row + 9, 0);
    let before = memory.data.clone();
    let error = open(&mut memory).expect_err("the loss is found");
    assert!(matches!(error, OpenError::Lost(_)), "{error}");
    assert!(memory.data == before, "nothing was written");
}

/// Only the tail block of a lost batch is gone: its header still names the blocks in it.
#[test]
fn the_blocks_of_a_lost_batch_are_named_if_its_head_is_left() {
    let mut memory = flushed(40);
    let start = memory.superblock().checkpoints[0]
        .expect("a checkpoint")
        .replay[0];
    memory.overwrite(start.segment, start.row + 8..start.row + 9, 0);
    let error = open(&mut memory).expect_err("the loss is found");
    let OpenError::Lost(Losses(losses)) = &error else {
        panic!("{error}")
    };
    let blocks: Vec<(u64, u64)> = losses[0]
        .blocks
        .iter()
        .map(|b| (b.first.0, b.count))
        .collect();
    assert_eq!(blocks, [(3, 1)], "{error}");
    assert!(
        error.to_string().contains("volume 1 blocks 3..4"),
        "{error}"
    );
}

/// The same batch, lost before its durability was recorded anywhere, is a torn tail: a power loss
/// may leave that.
#[test]
fn a_batch_not_known_as_durable_is_a_torn_tail() {
    let mut machine = Machine::new(3, 64, 100);
    let volume = machine.volume(1 << 30);
    machine.write(volume, 0, 1);
    machine.flush(volume);
    machine.write(volume, 1, 2);
    machine.now_ns += 1_000_000_000;
    machine.events.push(Event::Tick(machine.now_ns));
    machine.settle();
    let mut memory = machine.memory;
    let start = memory.superblock().checkpoints[0]
        .expect("a checkpoint")
        .replay[0];
    memory.overwrite(start.segment, start.row + 3..start.row + 5, 0);
    let report = open(&mut memory).expect("a torn tail is no damage");
    assert_eq!(report.recovery_lsn, Lsn(2));
    assert!(report.notes.is_empty());
}

/// A bad sector in one row of a batch removed the whole column of its member from all its rows.
/// With a member absent, and one that had lost its write of another row, an intact batch was taken
/// for torn (simulator, seed 38241).
#[test]
fn a_bad_sector_loses_no_other_rows_of_a_batch() {
    let mut machine = Machine::with(Redundancy::Double, 5, 64, 100);
    let volume = machine.volume(1 << 30);
    machine.write(volume, 0, 1);
    machine.flush(volume);
    (1..40).for_each(|lba| machine.write(volume, lba, lba as u8));
    machine.now_ns += 1_000_000_000;
    machine.events.push(Event::Tick(machine.now_ns));
    machine.settle();
    let mut memory = machine.memory;
    let (segment, row, header) = memory
        .headers()
        .into_iter()
        .max_by_key(|(.., header)| header.seq)
        .expect("the batch");
    assert!(header.rows > 8, "{} rows", header.rows);
    let width = memory.data.len();
    let (bad, lost) = (
        memory.blocks(segment, row + 3..row + 4)[1],
        memory.blocks(segment, row + 6..row + 7)[2],
    );
    let away = (0..width)
        .find(|member| ![bad.0, lost.0].contains(member))
        .expect("a third one");
    memory.present[away] = false;
    memory.bad.push(bad);
    memory.data[lost.0][lost.1..lost.1 + 4096].fill(0x99);
    let (engine, report) =
        Engine::open(&mut memory, BufPool::new(64 << 20), &Machine::options()).expect("a start");
    assert_eq!(
        (report.recovery_lsn, report.completed_batches),
        (Lsn(41), 1)
    );
    drop(engine);
}

/// LSNs between two epochs were given out and lost at the power loss. The fence records that, and
/// no later start may call them damage.
#[test]
fn lsns_after_a_fence_are_not_lost() {
    let mut machine = Machine::new(3, 64, 100);
    let volume = machine.volume(1 << 30);
    for round in 0..6u8 {
        for lba in 0..20 {
            machine.write(volume, lba, round);
            machine.flush(volume);
        }
        // Admitted, acknowledged, never flushed.
        for lba in 0..50 {
            machine.write(volume, 100 + lba, round);
        }
        machine = machine.crash();
        assert!(
            (0..20).all(|lba| machine.byte(volume, lba) == round),
            "round {round}"
        );
    }
}

/// The pool after two shutdowns, with the list of its newest checkpoint lost; and the number of the
/// previous one.
fn without_newest_checkpoint(mut machine: Machine, volume: VolumeId) -> (Memory, u64) {
    for byte in [101, 102] {
        // Each shutdown writes a checkpoint; the start after it keeps the one that it used.
        machine = machine.crash();
        machine.write(volume, 50, byte);
        assert_eq!(
            machine.command(Control::Shutdown { export: false }),
            Some(Ok(ControlReply::Done))
        );
    }
    let mut memory = machine.memory;
    let sb = memory.superblock();
    let (newest, older) = (
        sb.checkpoints[0].expect("newest"),
        sb.checkpoints[1].expect("the one before"),
    );
    let codec = sb.address_codec();
    let (row, rows) = (
        u32::from(newest.list.batch_row),
        u32::from(newest.list.batch_rows),
    );
    memory.overwrite(codec.segment(newest.list.address), row..row + rows, 0);
    (memory, older.id)
}

/// The last batch was lost together with the newest checkpoint. Neither the previous one nor a
/// later header knew that batch, so it was taken for a torn tail and flushed data was silently
/// gone. But the root of the unused checkpoint shows how far the log was durable.
#[test]
fn a_lost_checkpoint_still_shows_the_durable_lsn() {
    let mut machine = Machine::new(3, 64, 100);
    let volume = machine.volume(1 << 30);
    machine.write(volume, 50, 7);
    machine.flush(volume);
    let (mut memory, _) = without_newest_checkpoint(machine, volume);
    let (segment, row, header) = memory
        .headers()
        .into_iter()
        .filter(|(.., h)| h.stream.0 == 0)
        .max_by_key(|(.., h)| h.seq)
        .expect("a batch");
    memory.overwrite(segment, row..row + header.rows, 0);
    let before = memory.data.clone();
    let OpenError::Lost(Losses(losses)) = open(&mut memory)
        .map(|_| ())
        .expect_err("the loss is found")
    else {
        panic!("another error")
    };
    assert!(memory.data == before, "nothing was written");
    assert_eq!(
        (
            losses.len(),
            losses[0].stream,
            losses[0].seq,
            losses[0].durable_seq
        ),
        (1, 0, header.seq, header.seq)
    );
}

/// A page of the newest checkpoint is lost. The previous one serves, with a longer replay. The
/// batches of the lost one are in that replay, and their absence is no loss of data.
#[test]
fn a_lost_checkpoint_is_noted_and_the_one_before_serves() {
    let mut machine = Machine::new(3, 64, 100);
    let volume = machine.volume(1 << 30);
    for lba in 0..30 {
        machine.write(volume, lba, 7);
        machine.flush(volume);
    }
    let (mut memory, older) = without_newest_checkpoint(machine, volume);
    let report = open(&mut memory).expect("the older checkpoint serves");
    assert_eq!(report.checkpoint, older);
    assert!(
        report.notes.iter().any(|n| n.contains("checkpoint")),
        "{:?}",
        report.notes
    );
    let mut machine = Machine::open(memory);
    assert!((0..30).all(|lba| machine.byte(volume, lba) == 7));
    assert_eq!(machine.byte(volume, 50), 102);
}

/// The superblocks of the last epoch are lost on all members. The previous one was taken for the
/// newest, and the pool opened in its state before that epoch: everything flushed since was
/// silently gone.
#[test]
fn lost_superblocks_of_an_epoch_are_noticed_by_its_batches() {
    let mut machine = Machine::new(3, 64, 100);
    let volume = machine.volume(1 << 30);
    machine.write(volume, 0, 1);
    machine.flush(volume);
    let epoch = machine.memory.superblock().epoch;
    machine = machine.crash();
    machine.write(volume, 0, 2);
    machine.flush(volume);
    let mut memory = machine.memory;
    assert!(memory.superblock().epoch > epoch);
    while memory.superblock().epoch > epoch {
        let slot = slot_offset(memory.superblock().generation) as usize;
        memory
            .data
            .iter_mut()
            .for_each(|member| member[slot..slot + 4096].fill(0xee));
    }
    let before = memory.data.clone();
    let error = open(&mut memory).expect_err("the loss is found");
    assert!(memory.data == before, "nothing was written");
    assert!(error.to_string().contains("superblock"), "{error}");
}

/// A pool after a shutdown with a map on many pages: most of them are of an older checkpoint, some
/// of the newest.
fn with_checkpoints() -> (Memory, VolumeId) {
    let mut machine = Machine::new(3, 64, 100);
    let volume = machine.volume(1 << 30);
    for round in 1..=3u8 {
        for page in (0..PAGES).step_by(usize::from(round)) {
            machine.completions.clear();
            machine.write(volume, page * 256, round);
            assert!(machine.wait_for(1) && machine.completions[0].result.is_ok());
        }
        assert_eq!(
            machine.command(Control::Shutdown { export: false }),
            Some(Ok(ControlReply::Done))
        );
        if round < 3 {
            machine = machine.crash();
        }
    }
    (machine.memory, volume)
}

/// Pages of the map: about the maximum of so small a pool.
const PAGES: u64 = 170;

fn is_whole(machine: &mut Machine, volume: VolumeId) -> bool {
    (0..PAGES).all(|page| {
        let last = (1..=3u8).rev().find(|round| page % u64::from(*round) == 0);
        Some(machine.byte(volume, page * 256)) == last
    })
}

/// Makes the header of a batch unreadable, and nothing else in its row: first column and parity.
fn lose_header(
    memory: &mut Memory,
    segment: SegmentId,
    row: u32,
) -> Vec<((usize, usize), Vec<u8>)> {
    let blocks = memory.blocks(segment, row..row + 1);
    let lost = [blocks[0], blocks[blocks.len() - 1]]
        .map(|(member, at)| ((member, at), memory.data[member][at..at + 4096].to_vec()));
    for ((member, at), _) in &lost {
        memory.data[*member][*at..*at + 4096].fill(0xee);
    }
    lost.to_vec()
}

/// The batches that the newest checkpoint wrote for itself.
fn own_batches(memory: &Memory) -> Vec<(SegmentId, u32)> {
    let root = memory.superblock().checkpoints[0].expect("a checkpoint");
    let start = root.replay[3];
    let own = memory.headers().into_iter().filter(|(.., h)| {
        usize::from(h.stream.0) == 3 && h.epoch == root.epoch && h.seq >= start.seq
    });
    own.map(|(segment, row, _)| (segment, row)).collect()
}

/// The header of one of the checkpoint's own batches is unreadable, its pages are fine. The pool
/// opened; its next checkpoint was written over the pages after that header, and the next start was
/// refused.
#[test]
fn pages_after_a_lost_header_of_their_checkpoint_are_not_overwritten() {
    let (memory, volume) = with_checkpoints();
    let own = own_batches(&memory);
    let segments: std::collections::BTreeSet<SegmentId> =
        own.iter().map(|(segment, _)| *segment).collect();
    assert!(
        own.len() > 3 && segments.len() > 1,
        "the checkpoint continues in another segment: {own:?}"
    );
    for (segment, row) in own {
        let mut memory = memory.clone();
        lose_header(&mut memory, segment, row);
        let report = open(&mut memory.clone()).expect("the pages can be read");
        assert!(
            report.notes.iter().any(|n| n.contains("checkpoint")),
            "{:?}",
            report.notes
        );
        // The start requests a checkpoint; a crash follows, then a shutdown with another one.
        let mut machine = Machine::open(memory);
        machine.settle();
        assert!(
            is_whole(&mut machine, volume),
            "segment {segment} row {row}"
        );
        let mut machine = machine.crash();
        assert!(
            is_whole(&mut machine, volume),
            "segment {segment} row {row}"
        );
        assert_eq!(
            machine.command(Control::Shutdown { export: false }),
            Some(Ok(ControlReply::Done))
        );
        let report = open(&mut machine.memory).expect("complete again");
        assert!(report.notes.is_empty(), "{:?}", report.notes);
        // Nothing in use is at the damaged addresses.
        let root = machine.memory.superblock().checkpoints[0].expect("a checkpoint");
        assert!(root.replay[3].segment != segment || root.replay[3].row == 0);
        let status = Machine::open(machine.memory).engine.status();
        assert!(status.lsn >= Lsn(PAGES));
    }
}

/// A header is lost at one start and there again at the next (a cable). The log of the checkpoints
/// continued elsewhere meanwhile. If its chain were complete again, the stream would continue where
/// others may write.
#[test]
fn a_log_of_checkpoints_that_broke_once_stays_broken_until_the_next_checkpoint() {
    let (mut memory, volume) = with_checkpoints();
    let (segment, row) = *own_batches(&memory).last().expect("batches");
    let lost = lose_header(&mut memory, segment, row);
    for _ in 0..3 {
        // Each crash comes before a byte of the next checkpoint is written.
        let report = open(&mut memory).expect("the pages can be read");
        assert_eq!(report.notes.len(), 1, "{:?}", report.notes);
    }
    for ((member, at), bytes) in lost {
        memory.data[member][at..at + 4096].copy_from_slice(&bytes);
    }
    let report = open(&mut memory).expect("all is there");
    assert_eq!(report.notes.len(), 1, "{:?}", report.notes);
    let mut machine = Machine::open(memory);
    machine.settle();
    assert!(is_whole(&mut machine, volume));
    let mut machine = machine.crash();
    assert!(is_whole(&mut machine, volume));
    assert!(open(&mut machine.memory).expect("whole").notes.is_empty());
}

/// A read of a block with a damaged only copy was in flight while the block was rewritten: it
/// reported the block as lost, which it is no longer.
#[test]
fn a_failed_read_does_not_report_a_block_rewritten_since() {
    for (again, flushed) in [(false, false), (true, false), (true, true)] {
        let mut machine = Machine::with(Redundancy::None, 2, 16, 100);
        let volume = machine.volume(1 << 30);
        machine.write(volume, 5, 1);
        machine.flush(volume);
        let (segment, row, header) = machine
            .memory
            .headers()
            .into_iter()
            .max_by_key(|(.., header)| header.seq)
            .expect("the batch");
        machine
            .memory
            .overwrite(segment, row..row + header.rows, 0x55);
        machine.held = Some(Vec::new());
        machine.request(
            volume,
            Op::Read {
                offset: 5 * 4096,
                length: 4096,
            },
        );
        machine.settle();
        let read = machine.held.replace(Vec::new());
        if again {
            machine.write(volume, 5, 2);
        }
        if flushed {
            // Into the same segment.
            machine.held = None;
            machine.flush(volume);
        }
        machine.held = machine
            .held
            .take()
            .into_iter()
            .chain(read)
            .reduce(|all, more| all.into_iter().chain(more).collect());
        machine.release();
        machine.flush(volume);
        let is_named = |notice: &Notice| matches!(notice, Notice::Unrecoverable { lba: 5, .. });
        assert_eq!(machine.out.notices.iter().any(is_named), !again);
        assert_eq!(machine.is_lost(volume, 5), !again);
    }
}

/// Flushed writes of `blocks` blocks, each in a batch of its own, until the last one begins a chunk
/// or follows its predecessor in one. Returns both batches, and the first block of the last one.
fn flushed_until(
    members: usize,
    blocks: u64,
    last_begins_a_chunk: bool,
) -> (Memory, VolumeId, [(SegmentId, u32, BatchHeader); 2], u64) {
    let mut machine = Machine::with_rows_only(Redundancy::Single, members, 64, 8, 64);
    let volume = machine.volume(1 << 30);
    for lba in (0..40).map(|number| number * blocks) {
        (lba..lba + blocks).for_each(|lba| machine.write(volume, lba, lba as u8));
        machine.flush(volume);
        let mut batches: Vec<_> = machine
            .memory
            .headers()
            .into_iter()
            .filter(|(.., header)| header.stream.0 == 0)
            .collect();
        batches.sort_by_key(|(.., header)| header.seq);
        let [.., lost, last] = &batches[..] else {
            continue;
        };
        if lba > 8 * blocks
            && lost.0 == last.0
            && last.1.is_multiple_of(8) == last_begins_a_chunk
            && last.2.flushed_seq[0] == lost.2.seq
        {
            return (machine.memory, volume, [lost.clone(), last.clone()], lba);
        }
    }
    panic!("no write ended there");
}

/// The lost batch is the last but one, and no chunk begins after it. Reading only the beginnings of
/// chunks, the pool opened without both.
#[test]
fn a_later_batch_in_its_chunk_shows_that_a_batch_is_lost() {
    let (mut memory, _, [(segment, row, lost), _], _) = flushed_until(3, 1, false);
    memory.overwrite(segment, row..row + lost.rows, 0);
    let error = open(&mut memory).expect_err("the loss is found");
    let OpenError::Lost(Losses(losses)) = &error else {
        panic!("{error}")
    };
    assert_eq!(
        (losses[0].seq, losses[0].end_row),
        (lost.seq, row + lost.rows),
        "{error}"
    );
}

/// The only batch that shows the loss begins the next chunk, and the member of its header missed
/// that write: one fault, which redundancy covers. Headers after the end of a chain were used as
/// read, without reconstruction. And a salvage discarded the last batch with the lost one.
#[test]
fn a_header_that_missed_its_write_is_reconstructed_after_a_lost_batch() {
    is_rebuilt_behind_a_lost_batch(3, 1);
    // A row of the next chunk makes no sense in the column order of this one.
    is_rebuilt_behind_a_lost_batch(5, 6);
}

fn is_rebuilt_behind_a_lost_batch(members: usize, blocks: u64) {
    let (mut memory, volume, [(segment, row, lost), last], lba) =
        flushed_until(members, blocks, true);
    memory.overwrite(segment, row..row + lost.rows, 0);
    let (member, at) = memory.blocks(last.0, last.1..last.1 + 1)[0];
    memory.data[member][at..at + 4096].fill(0);
    let error = open(&mut memory).expect_err("the loss is found");
    let OpenError::Lost(Losses(losses)) = &error else {
        panic!("{error}")
    };
    assert_eq!(losses[0].seq, lost.seq, "{error}");

    let work = RebuildWork {
        write: true,
        without_checkpoint: false,
    };
    let report = Engine::rebuild_map(
        &mut memory,
        BufPool::new(64 << 20),
        &Machine::options(),
        work,
        &mut |_| {},
    )
    .expect("rebuilt");
    let lost_numbers: Vec<_> = report
        .losses
        .iter()
        .map(|loss| (loss.seq, loss.segment, loss.row, loss.end_row))
        .collect();
    assert_eq!(
        lost_numbers,
        [(lost.seq, segment, row, last.1)],
        "{report:?}"
    );
    assert_eq!(Machine::open(memory).byte(volume, lba), lba as u8);
}

fn is_right(pool: GivenAgain, blocks: u64) {
    let mut machine = Machine::open(pool.memory);
    assert_eq!(machine.byte(pool.volume, 0), 1);
    (1..=blocks)
        .chain(100..133)
        .for_each(|lba| assert_eq!(machine.byte(pool.volume, lba), 2, "block {lba}"));
}

/// The refused header fits in its place, and its ends do not verify. Redundancy has everything, so
/// the pool must open.
#[test]
fn the_header_of_a_refused_batch_hides_nothing_when_its_fence_is_gone() {
    let mut pool = GivenAgain::new(Machine::new(3, 64, 100), 1, 19, 1, 1);
    pool.missed(0, 0..1);
    is_right(pool, 1);
}

/// Head and tail of a batch are on one member in a mirror. There the refused one verified, and
/// silently took the place of the flushed one. So did the first of two, of which only the last was
/// checked.
#[test]
fn a_refused_batch_on_one_copy_is_not_taken_for_the_flushed_one_on_the_other() {
    for (batches, again, copy) in [(1, 19, 0), (1, 19, 1), (2, 19, 0), (2, 12, 0), (1, 12, 0)] {
        let mut pool = GivenAgain::new(mirror(), batches, 19, 4, again);
        let rows = pool.rows;
        pool.missed(copy, 0..rows);
        is_right(pool, batches * again);
    }
}

/// Beyond redundancy: the flushed batch is corrupt on the copy that has it, and the other copy
/// holds the refused one. That is a loss, whichever copy is read first.
#[test]
fn a_refused_batch_does_not_come_back_for_a_flushed_one_that_is_lost() {
    for copy in 0..2 {
        let mut pool = GivenAgain::new(mirror(), 1, 19, 4, 19);
        let rows = pool.rows;
        pool.missed(copy, 0..rows);
        let (member, at) = pool
            .memory
            .blocks(pool.segment, pool.row + rows - 1..pool.row + rows)[1 - copy];
        pool.memory.data[member][at..at + 4096].fill(0);
        let error = open(&mut pool.memory).expect_err("the loss is found");
        assert!(matches!(error, OpenError::Lost(_)), "{error}");
    }
}

//! Loss beyond what redundancy covers, each case as a story: the pool is refused with the list of what is lost, and nothing is written.

mod machine;

use machine::{Machine, Memory};
use windrow_engine::*;
use windrow_io::*;
use windrow_layout::superblock::slot_offset;
use windrow_units::{Order, Seq};

fn open(memory: &mut Memory) -> Result<OpenReport, OpenError> {
    Engine::open(memory, BufPool::new(64 << 20), &Machine::options()).map(|(_, report)| report)
}

/// A pool with so many flushed writes after its checkpoint, each a batch of its own of two rows.
fn flushed(writes: u64) -> Memory {
    let mut machine = Machine::new(3, 64, 100);
    let volume = machine.volume(1 << 30);
    for lba in 0..writes {
        machine.write(volume, lba, lba as u8);
        machine.flush(volume);
    }
    machine.memory
}

/// A flushed batch was lost on more members than the redundancy covers. The chain ended there as at a torn tail: the pool opened without
/// it and without everything behind it, and nobody was told.
#[test]
fn a_lost_durable_batch_is_not_a_torn_tail() {
    let mut memory = flushed(40);
    let start = memory.superblock().checkpoints[0].expect("a checkpoint").replay[0];
    // The volume's creation is the first batch, of one row; the fourth write is the fifth.
    memory.overwrite(start.segment, start.row + 7..start.row + 9, 0);
    let before = memory.data.clone();
    let error = open(&mut memory).expect_err("the loss is found");
    assert!(memory.data == before, "nothing was written");
    let OpenError::Lost(Losses(losses)) = error else { panic!("{error}") };
    assert_eq!(losses.len(), 1);
    let loss = &losses[0];
    assert_eq!((loss.stream, loss.seq, loss.segment, loss.row), (0, Seq(5), start.segment, start.row + 7));
    assert!(loss.durable_seq > loss.seq, "later batches say that it was durable");
    let (first, last) = loss.orders.expect("orders are known");
    assert!(first == Order(5) && last >= Order(30), "orders {first} to {last}");
}

/// Only the tail block of a lost batch is gone: its header still tells which blocks were in it.
#[test]
fn the_blocks_of_a_lost_batch_are_named_if_its_head_is_left() {
    let mut memory = flushed(40);
    let start = memory.superblock().checkpoints[0].expect("a checkpoint").replay[0];
    memory.overwrite(start.segment, start.row + 8..start.row + 9, 0);
    let error = open(&mut memory).expect_err("the loss is found");
    let OpenError::Lost(Losses(losses)) = &error else { panic!("{error}") };
    let blocks: Vec<(u64, u64)> = losses[0].blocks.iter().map(|b| (b.first.0, b.count)).collect();
    assert_eq!(blocks, [(3, 1)], "{error}");
    assert!(error.to_string().contains("volume 1 blocks 3..4"), "{error}");
}

/// The same batch, lost before anything said that it was durable, is a torn tail: what a power cut may leave.
#[test]
fn what_nothing_calls_durable_is_a_torn_tail() {
    let mut machine = Machine::new(3, 64, 100);
    let volume = machine.volume(1 << 30);
    machine.write(volume, 0, 1);
    machine.flush(volume);
    machine.write(volume, 1, 2);
    machine.now_ns += 1_000_000_000;
    machine.events.push(Event::Tick(machine.now_ns));
    machine.settle();
    let mut memory = machine.memory;
    let start = memory.superblock().checkpoints[0].expect("a checkpoint").replay[0];
    memory.overwrite(start.segment, start.row + 3..start.row + 5, 0);
    let report = open(&mut memory).expect("a torn tail is no damage");
    assert_eq!(report.accepted_order, Order(2));
    assert!(report.notes.is_empty());
}

/// Orders between two epochs were given out and lost with the power; the fence says so, and no later start may call them damage.
#[test]
fn orders_behind_a_fence_are_not_lost() {
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
        assert!((0..20).all(|lba| machine.byte(volume, lba) == round), "round {round}");
    }
}

/// A page of the newest checkpoint is lost. The one before serves, with a longer replay; the batches of the lost one are in that replay,
/// and their absence must not be taken for a loss of data.
#[test]
fn a_lost_checkpoint_is_noted_and_the_one_before_serves() {
    let mut machine = Machine::new(3, 64, 100);
    let volume = machine.volume(1 << 30);
    for lba in 0..30 {
        machine.write(volume, lba, 7);
        machine.flush(volume);
    }
    for byte in [101, 102] {
        // Each shutdown writes a checkpoint; the start after it keeps the one that it used.
        machine = machine.crash();
        machine.write(volume, 50, byte);
        assert_eq!(machine.command(Control::Shutdown { export: false }), Some(Ok(ControlReply::Done)));
    }
    let mut memory = machine.memory;
    let sb = memory.superblock();
    let (newest, older) = (sb.checkpoints[0].expect("newest"), sb.checkpoints[1].expect("the one before"));
    let codec = sb.place_codec();
    let (row, rows) = (u32::from(newest.list.batch_row), u32::from(newest.list.batch_rows));
    memory.overwrite(codec.segment(newest.list.place), row..row + rows, 0);
    let report = open(&mut memory).expect("the older checkpoint serves");
    assert_eq!(report.checkpoint, older.id);
    assert!(report.notes.iter().any(|n| n.contains("checkpoint")), "{:?}", report.notes);
    let mut machine = Machine::open(memory);
    assert!((0..30).all(|lba| machine.byte(volume, lba) == 7));
    assert_eq!(machine.byte(volume, 50), 102);
}

/// The superblocks of the last epoch rotted on all members. The one before was taken for the newest, and the pool opened as it had been before
/// that epoch: everything flushed since was gone without a word.
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
        memory.data.iter_mut().for_each(|member| member[slot..slot + 4096].fill(0xee));
    }
    let before = memory.data.clone();
    let error = open(&mut memory).expect_err("the loss is found");
    assert!(memory.data == before, "nothing was written");
    assert!(error.to_string().contains("superblock"), "{error}");
}

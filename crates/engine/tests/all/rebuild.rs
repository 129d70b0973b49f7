//! Salvage: pools with destroyed checkpoints are recovered from their batches and compared with
//! what was written.

use crate::machine;

use machine::{Machine, Memory, numbers::Numbers};
use std::collections::BTreeMap;
use windrow_engine::*;
use windrow_format::batch::{BatchHeader, Entry, decode_head};
use windrow_format::checkpoint::OBJECT_VOLUMES;
use windrow_format::superblock::SLOT_BYTES;
use windrow_io::*;
use windrow_types::{BLOCK_BYTES, MemberId, SegmentId, VolumeId};

/// Destroys every batch of the checkpoint stream, wherever one begins.
fn destroy_checkpoints(memory: &mut Memory) -> usize {
    let mut headers = memory.headers();
    headers.retain(|(_, _, header)| header.stream.0 == 3);
    for (segment, row, header) in &headers {
        memory.overwrite(*segment, *row..row + header.rows, 0xee);
    }
    headers.len()
}

fn rebuild(memory: &mut dyn MemberIo, write: bool) -> Result<RebuildReport, OpenError> {
    Engine::rebuild_map(
        memory,
        BufPool::new(64 << 20),
        &Machine::options(),
        RebuildWork {
            write,
            ..Default::default()
        },
        &mut |_| {},
    )
}

/// A pool whose segments were used several times: its volume, and the byte in each block.
fn worn(seed: u64, members: usize, overwrites: u64) -> (Machine, VolumeId, BTreeMap<u64, u8>) {
    let mut machine = Machine::new(members, 32, 100);
    let usable = machine.engine.status().plan.usable_bytes / BLOCK_BYTES;
    let volume = machine.volume(usable * BLOCK_BYTES);
    let mut numbers = Numbers(seed | 1);
    let mut model = BTreeMap::new();
    let live = usable * 8 / 10;
    for n in 0..live * overwrites {
        let lba = if n < live { n } else { numbers.below(live) };
        let byte = numbers.below(250) as u8 + 1;
        machine.write(volume, lba, byte);
        model.insert(lba, byte);
        if n % 1500 == 1499 {
            machine.flush(volume);
        }
    }
    machine.flush(volume);
    (machine, volume, model)
}

fn compare(machine: &mut Machine, volume: VolumeId, model: &BTreeMap<u64, u8>) {
    for (lba, byte) in model {
        assert_eq!(machine.byte(volume, *lba), *byte, "block {lba}");
    }
}

/// The main case: reused segments, blocks moved by cleaning, several epochs, no trims. Every block
/// has its content.
#[test]
fn a_pool_without_any_checkpoint_is_salvaged_to_the_last_block() {
    for (seed, members) in [(11, 3), (12, 4)] {
        let (machine, volume, mut model) = worn(seed, members, 4);
        assert!(
            machine.engine.status().segments_cleaned > 20,
            "blocks were moved"
        );
        let mut machine = machine.crash();
        for lba in 0..50 {
            machine.write(volume, lba * 7, 200);
            model.insert(lba * 7, 200);
        }
        machine.flush(volume);
        assert_eq!(
            machine.command(Control::Shutdown { export: false }),
            Some(Ok(ControlReply::Done))
        );
        let size = machine.engine.status().volumes[0].size_bytes;
        let mut memory = machine.memory;
        assert!(destroy_checkpoints(&mut memory) > 0);
        let refused =
            Engine::open(&mut memory, BufPool::new(64 << 20), &Machine::options()).map(drop);
        assert!(
            refused.is_err(),
            "without its checkpoints the pool cannot be opened"
        );
        let before = memory.data.clone();
        let looked = rebuild(&mut memory, false).expect("a look");
        assert!(
            memory.data == before && looked.written_bytes == 0,
            "a look writes nothing"
        );
        let report = rebuild(&mut memory, true).expect("rebuilt");
        assert!(report.losses.is_empty(), "{:?}", report.losses);
        assert_eq!(report.volumes[0].mapped_blocks, model.len() as u64);
        let mut machine = Machine::open(memory);
        compare(&mut machine, volume, &model);
        // It continues as any pool: writes, cleaning, crashes, another salvage.
        for lba in 0..2000 {
            machine.write(volume, lba, 77);
            model.insert(lba, 77);
        }
        machine.flush(volume);
        let mut machine = machine.crash();
        compare(&mut machine, volume, &model);
        assert_eq!(
            machine.command(Control::Shutdown { export: false }),
            Some(Ok(ControlReply::Done))
        );
        let mut memory = machine.memory;
        destroy_checkpoints(&mut memory);
        let report = rebuild(&mut memory, true).expect("rebuilt again");
        assert!(report.losses.is_empty(), "{:?}", report.losses);
        let mut machine = Machine::open(memory);
        compare(&mut machine, volume, &model);
        assert!(machine.engine.status().volumes[0].size_bytes <= size);
    }
}

/// Only a batch after the checkpoint is lost. With a readable checkpoint the salvage forgot as much
/// as without one. Blocks that had been trimmed or set to ones had their earlier content, and a
/// volume got the size of the oldest record left.
#[test]
fn a_salvage_from_a_checkpoint_forgets_nothing_in_it() {
    let mut machine = Machine::with_rows_only(windrow_geometry::Redundancy::Single, 3, 64, 8, 32);
    let volume = machine.volume(8 << 20);
    (0..400).for_each(|lba| machine.write(volume, lba, 5));
    machine.flush(volume);
    machine.request(
        volume,
        Op::Trim {
            offset: 0,
            length: 100 * BLOCK_BYTES,
            fua: true,
        },
    );
    machine.settle();
    (100..200).for_each(|lba| machine.write(volume, lba, 0xff));
    machine.command(Control::VolumeResize {
        volume,
        size_bytes: 16 << 20,
        shrink: true,
    });
    for round in 0..3 {
        (1000..1200).for_each(|lba| machine.write(volume, lba, 6 + round));
        machine.flush(volume);
        assert_eq!(
            machine.command(Control::Checkpoint),
            Some(Ok(ControlReply::Done))
        );
    }
    (300..310).for_each(|lba| machine.write(volume, lba, 7));
    machine.flush(volume);
    let mut memory = machine.memory;
    let (segment, row, header) = memory
        .headers()
        .into_iter()
        .filter(|(_, _, h)| h.stream.0 == 0)
        .max_by_key(|(_, _, h)| h.seq)
        .expect("a batch");
    memory.overwrite(segment, row..row + header.rows, 0xee);
    let report = rebuild(&mut memory, true).expect("rebuilt");
    assert!(report.checkpoint > 0, "{report:?}");
    let mut machine = Machine::open(memory);
    assert_eq!(machine.engine.status().volumes[0].size_bytes, 16 << 20);
    for (blocks, byte) in [
        (0..100, 0),
        (100..200, 0xff),
        (200..300, 5),
        (310..400, 5),
        (1000..1200, 8),
    ] {
        blocks.for_each(|lba| assert_eq!(machine.byte(volume, lba), byte, "block {lba}"));
    }
}

/// Writes all over a nearly full pool from a checkpoint on, so that segments are reused, and
/// flushes.
fn overwrite_behind_a_checkpoint(
    machine: &mut Machine,
    volume: VolumeId,
    numbers: &mut Numbers,
    written: &mut BTreeMap<u64, Vec<u8>>,
) {
    assert_eq!(
        machine.command(Control::Checkpoint),
        Some(Ok(ControlReply::Done))
    );
    let blocks = written.len() as u64;
    for n in 0..blocks * 2 {
        let (lba, byte) = (numbers.below(blocks), numbers.below(250) as u8 + 1);
        machine.write(volume, lba, byte);
        written.entry(lba).or_default().push(byte);
        if n % 100 == 99 {
            machine.flush(volume);
        }
    }
    machine.flush(volume);
    // The engine may have begun another checkpoint at the very end.
    while behind_the_checkpoint(&machine.memory).len() < BEHIND_LEAST {
        for _ in 0..100 {
            let (lba, byte) = (numbers.below(blocks), numbers.below(250) as u8 + 1);
            machine.write(volume, lba, byte);
            written.entry(lba).or_default().push(byte);
        }
        machine.flush(volume);
    }
}

/// Batches after the checkpoint of which a lost one must be noticed: enough for others to be found
/// after it.
const BEHIND_LEAST: usize = 20;

/// User and cleaning batches after the first of the superblock's roots, with their segment and
/// first row, user batches first.
fn behind_the_checkpoint(memory: &Memory) -> Vec<(SegmentId, u32, BatchHeader)> {
    let start = memory.superblock().checkpoints[0].expect("a root").replay;
    let mut headers = memory.headers();
    headers.retain(|(_, _, header)| {
        let position = start[header.stream.index()];
        header.stream.0 != 3 && header.seq >= position.seq && position.segment != SegmentId::NONE
    });
    headers.sort_by_key(|(_, _, header)| (header.stream.0, header.seq));
    headers
}

/// After the checkpoint segments were reused, and batches that show that are lost. The data that
/// the checkpoint shows in them is gone. Such blocks had addresses in batches that do not exist any
/// more. A read of one divided by zero rows or asked for columns that no segment has. Reads return
/// something that was written there, or an error.
#[test]
fn whatever_is_lost_after_a_checkpoint_no_block_reads_as_another() {
    let (mut told, mut on_checkpoints, mut lost_blocks) = (0, 0, 0);
    for seed in 0..12 {
        let (mut machine, volume, model) = worn(100 + seed, 3, 2);
        let mut numbers = Numbers(seed * 2 + 1);
        let mut written: BTreeMap<u64, Vec<u8>> = model
            .iter()
            .map(|(lba, byte)| (*lba, vec![*byte]))
            .collect();
        overwrite_behind_a_checkpoint(&mut machine, volume, &mut numbers, &mut written);
        let mut memory = machine.memory;
        let share = [5, 30, 95][seed as usize % 3];
        for (at, (segment, row, header)) in behind_the_checkpoint(&memory).into_iter().enumerate() {
            // The first user batch in any case: of few batches none may be drawn.
            if at == 0 || numbers.below(100) < share {
                memory.overwrite(segment, row..row + header.rows, 0xee);
            }
        }
        let report = rebuild(&mut memory, true).expect("rebuilt");
        // Where nearly all are lost, nothing may be left that shows that they were durable.
        assert!(!report.losses.is_empty() || share > 90, "seed {seed}");
        told += u32::from(!report.losses.is_empty());
        on_checkpoints += u32::from(report.checkpoint > 0);
        lost_blocks += report.lost_blocks_total;
        // The next one starts from the checkpoint of this one, in which they are lost already.
        let again = rebuild(&mut memory, false).expect("a look");
        assert_eq!(
            (again.lost_blocks, again.lost_blocks_total),
            (report.lost_blocks, report.lost_blocks_total),
            "seed {seed}"
        );
        let mut machine = Machine::open(memory);
        for (lba, bytes) in &written {
            if !machine.is_lost(volume, *lba) {
                let byte = machine.byte(volume, *lba);
                assert!(bytes.contains(&byte), "seed {seed}, block {lba}: {byte}");
            }
        }
        written
            .keys()
            .for_each(|lba| machine.write(volume, *lba, (lba % 250) as u8 + 1));
        machine.flush(volume);
        let mut machine = machine.crash();
        written.keys().for_each(|lba| {
            assert_eq!(
                machine.byte(volume, *lba),
                (lba % 250) as u8 + 1,
                "seed {seed}, block {lba}"
            )
        });
        assert_eq!(
            machine.command(Control::Shutdown { export: false }),
            Some(Ok(ControlReply::Done))
        );
    }
    assert!(
        told > 9 && on_checkpoints > 6 && lost_blocks > 0,
        "{told} with losses, {on_checkpoints} on a checkpoint, {lost_blocks} lost blocks"
    );
}

/// Trims with readable records are applied; volumes keep name and size while their records are
/// readable; a deleted volume stays deleted.
#[test]
fn readable_records_are_applied() {
    let mut machine = Machine::new(3, 64, 100);
    let volume = machine.volume(1 << 30);
    let other = match machine.command(Control::VolumeCreate {
        name: "gone".into(),
        size_bytes: 1 << 20,
    }) {
        Some(Ok(ControlReply::Volume(other))) => other,
        answer => panic!("{answer:?}"),
    };
    for lba in 0..100 {
        machine.write(volume, lba, 9);
        machine.write(other, lba % 256, 8);
    }
    machine.request(
        volume,
        Op::Trim {
            offset: 10 * BLOCK_BYTES,
            length: 20 * BLOCK_BYTES,
            fua: true,
        },
    );
    machine.settle();
    machine.write(volume, 15, 33);
    machine.flush(volume);
    machine.command(Control::VolumeDelete { volume: other });
    machine.command(Control::Shutdown { export: false });
    let mut memory = machine.memory;
    destroy_checkpoints(&mut memory);
    let report = rebuild(&mut memory, true).expect("rebuilt");
    assert_eq!(report.volumes.len(), 1, "{:?}", report.volumes);
    assert_eq!(
        (
            report.volumes[0].name.as_str(),
            report.volumes[0].size_bytes,
            report.volumes[0].made_up
        ),
        ("v", 1 << 30, false)
    );
    let mut machine = Machine::open(memory);
    for lba in 0..100 {
        let expected = match lba {
            15 => 33,
            10..30 => 0,
            _ => 9,
        };
        assert_eq!(machine.byte(volume, lba), expected, "block {lba}");
    }
}

/// Members of which some fail every write after a number of bytes. If none is given, all lose power
/// then, and partial writes stay. No superblock may be written that names no checkpoint.
struct Failing<'m> {
    memory: &'m mut Memory,
    left: usize,
    failing: &'m [usize],
}

impl MemberIo for Failing<'_> {
    fn member_count(&self) -> usize {
        self.memory.member_count()
    }
    fn is_present(&self, member: MemberId) -> bool {
        self.memory.is_present(member)
    }
    fn size(&self, member: MemberId) -> u64 {
        self.memory.size(member)
    }
    fn read(&mut self, member: MemberId, offset: u64, buf: &mut [u8]) -> Result<(), MemberError> {
        self.memory.read(member, offset, buf)
    }
    fn write(&mut self, member: MemberId, offset: u64, buf: &[u8]) -> Result<(), MemberError> {
        if let Ok(superblock) = windrow_format::superblock::Superblock::decode(buf) {
            assert!(
                superblock.checkpoints[0].is_some(),
                "generation {} names no checkpoint",
                superblock.generation
            );
        }
        if !self.failing.is_empty() {
            self.left = self.left.saturating_sub(buf.len());
            let fails = self.left == 0 && self.failing.contains(&member.index());
            return if fails {
                Err(MemberError {
                    member,
                    kind: MemberErrorKind::Media,
                    offset,
                    code: 5,
                })
            } else {
                self.memory.write(member, offset, buf)
            };
        }
        let part = buf.len().min(self.left) / 512 * 512;
        self.memory.write(member, offset, &buf[..part])?;
        self.left -= part;
        if part < buf.len() {
            Err(MemberError {
                member,
                kind: MemberErrorKind::PowerCut,
                offset,
                code: 0,
            })
        } else {
            Ok(())
        }
    }
    fn flush(&mut self, _: MemberId) -> Result<(), MemberError> {
        Ok(())
    }
}

/// Power loss in the middle of the writing, at every kind of address. The superblock is unchanged,
/// and a repeated salvage gives the same pool, also after several such attempts.
#[test]
fn a_salvage_that_is_cut_short_can_be_repeated() {
    let (mut machine, volume, model) = worn(21, 3, 2);
    machine.command(Control::Shutdown { export: false });
    let mut memory = machine.memory;
    destroy_checkpoints(&mut memory);
    let whole = rebuild(
        &mut Failing {
            memory: &mut memory.clone(),
            left: usize::MAX,
            failing: &[],
        },
        true,
    )
    .expect("rebuilt")
    .written_bytes as usize;
    for step in 1..8 {
        let generation = memory.superblock().generation;
        // The last steps are in the superblocks.
        let left = if step < 5 {
            whole * step / 8
        } else {
            whole - 9000 * (8 - step) - 3 * SLOT_BYTES
        };
        let cut = rebuild(
            &mut Failing {
                memory: &mut memory,
                left,
                failing: &[],
            },
            true,
        );
        assert!(
            matches!(cut, Err(OpenError::Member(_))),
            "cut after {left} of {whole}: {cut:?}"
        );
        assert!(memory.superblock().generation <= generation.next());
    }
    let report = rebuild(&mut memory, true).expect("rebuilt");
    assert!(report.losses.is_empty(), "{:?}", report.losses);
    let mut machine = Machine::open(memory);
    compare(&mut machine, volume, &model);
}

/// A member fails a write before the new root is in force. A superblock that recorded its loss
/// named neither the old roots and fences nor a new one: after a power loss no start accepted the
/// pool. The salvage is repeated without the member; where the redundancy does not cover that, the
/// superblock stays unchanged.
#[test]
fn a_member_that_fails_writes_is_left_out_of_the_salvage() {
    let (mut machine, volume, model) = worn(23, 4, 2);
    machine.command(Control::Shutdown { export: false });
    let mut memory = machine.memory;
    destroy_checkpoints(&mut memory);
    let before = memory.superblock();
    let whole = rebuild(&mut memory.clone(), true)
        .expect("rebuilt")
        .written_bytes as usize;
    for (failing, left) in [
        (&[2][..], 1),
        (&[2], whole / 2),
        (&[2], whole - 4 * SLOT_BYTES),
        (&[1, 2], whole / 2),
    ] {
        let mut memory = memory.clone();
        let result = rebuild(
            &mut Failing {
                memory: &mut memory,
                left,
                failing,
            },
            true,
        );
        if failing.len() > 1 {
            assert!(
                result.is_err() && memory.superblock() == before,
                "{result:?}"
            );
            continue;
        }
        assert_eq!(result.expect("rebuilt").losses, []);
        let mut machine = Machine::open(memory);
        compare(&mut machine, volume, &model);
    }
}

/// A batch of user data is lost as well: it is listed, everything else is there.
#[test]
fn lost_batches_are_listed_and_the_rest_is_salvaged() {
    let mut machine = Machine::new(3, 64, 100);
    let volume = machine.volume(1 << 30);
    for lba in 0..80 {
        machine.write(volume, lba, 5);
        machine.flush(volume);
    }
    machine.command(Control::Shutdown { export: false });
    let mut memory = machine.memory;
    destroy_checkpoints(&mut memory);
    memory.overwrite(SegmentId(0), 7..9, 0);
    let report = rebuild(&mut memory, true).expect("rebuilt");
    assert_eq!(report.losses.len(), 1, "{:?}", report.losses);
    assert_eq!(
        (report.losses[0].segment, report.losses[0].row),
        (SegmentId(0), 7)
    );
    let mut machine = Machine::open(memory);
    let held = (0..80)
        .filter(|lba| machine.byte(volume, *lba) == 5)
        .count();
    // After the lost batch the next known position is the next chunk.
    let lost = report.losses[0].end_row - 7;
    assert_eq!(
        held,
        80 - lost as usize / 2,
        "rows 7..{}",
        report.losses[0].end_row
    );
}

/// The first batch of a segment is lost, or everything in the segment. No header before it shows
/// that something was there. The salvage reported no loss while blocks had their earlier content.
#[test]
fn a_lost_beginning_of_a_segment_is_listed() {
    let mut machine = Machine::with_rows_only(windrow_geometry::Redundancy::Single, 3, 64, 8, 32);
    let volume = machine.volume(1 << 30);
    assert_eq!(
        machine.command(Control::Checkpoint),
        Some(Ok(ControlReply::Done))
    );
    for lba in 0..12 {
        machine.write(volume, lba, 5);
        machine.flush(volume);
    }
    let memory = machine.memory;
    let start = memory.superblock().checkpoints[1]
        .expect("two checkpoints")
        .replay[0];
    assert_eq!(
        (start.segment, start.row, start.seq.0),
        (SegmentId(0), 0, 1)
    );
    let last = memory
        .headers()
        .iter()
        .filter(|(.., header)| header.stream.0 == 0)
        .map(|(.., header)| header.seq)
        .max()
        .expect("batches");
    let rows = windrow_geometry::ZoneMap::new(memory.superblock().zones)
        .shape(SegmentId(0))
        .rows;
    for lost in [0..1, 0..rows] {
        let mut memory = memory.clone();
        memory.overwrite(SegmentId(0), lost.clone(), 0xee);
        // Batches after it show that it was durable; without any, a root must.
        if lost.end == rows {
            for member in 0..3 {
                // As if a later superblock had it.
                let mut superblock = memory.superblock_of(member);
                superblock.checkpoints[0]
                    .as_mut()
                    .expect("a root")
                    .flushed_seq[0] = last;
                let at = windrow_format::superblock::slot_offset(superblock.generation) as usize;
                let bytes = superblock.encode();
                memory.data[member][at..at + bytes.len()].copy_from_slice(&bytes);
            }
        }
        let report = rebuild(&mut memory, false).expect("a look");
        assert_eq!(report.losses.len(), 1, "{lost:?}: {:?}", report.losses);
        let loss = &report.losses[0];
        assert_eq!(
            (loss.stream, loss.seq.0, loss.segment, loss.row),
            (0, 1, SegmentId(0), 0),
            "{loss}"
        );
        assert_eq!(loss.durable_seq == last, lost.end == rows, "{loss}");
    }
}

/// The same in a segment that no root mentions any more: it is a loss as long as some of the
/// segment is in use; otherwise the remains are of a previous incarnation.
#[test]
fn a_lost_beginning_counts_where_the_segment_is_in_use() {
    let mut machine = Machine::with_rows_only(windrow_geometry::Redundancy::Single, 3, 64, 8, 32);
    let volume = machine.volume(1 << 30);
    (0..2000).for_each(|lba| machine.write(volume, lba, 5));
    machine.flush(volume);
    for _ in 0..3 {
        machine.write(volume, 5000, 6);
        assert_eq!(
            machine.command(Control::Checkpoint),
            Some(Ok(ControlReply::Done))
        );
    }
    let start = machine.memory.superblock().checkpoints[1]
        .expect("two checkpoints")
        .replay[0];
    assert!(start.seq.0 > 2, "{start:?}");
    let losses = |memory: &Memory| {
        let mut memory = memory.clone();
        // The record of the volume, which the checkpoint knows, and the first batch of blocks.
        let second = memory
            .headers()
            .into_iter()
            .filter(|(segment, ..)| *segment == SegmentId(0))
            .map(|(_, row, _)| row)
            .nth(1)
            .expect("two batches");
        memory.overwrite(SegmentId(0), 0..second + 1, 0xee);
        rebuild(&mut memory, false).expect("a look").losses
    };
    let found = losses(&machine.memory);
    assert_eq!(
        found
            .iter()
            .map(|loss| (loss.segment, loss.row))
            .collect::<Vec<_>>(),
        [(SegmentId(0), 0)]
    );
    (0..6000).for_each(|lba| machine.write(volume, lba, 7));
    machine.flush(volume);
    assert_eq!(losses(&machine.memory), []);
}

/// A segment of which nothing is readable seemed never to have been written, and the new checkpoint
/// went there first.
#[test]
fn an_unreadable_segment_is_overwritten_last() {
    let mut machine = Machine::with_rows_only(windrow_geometry::Redundancy::Single, 3, 64, 8, 32);
    let volume = machine.volume(1 << 30);
    (0..200).for_each(|lba| machine.write(volume, lba, 5));
    machine.flush(volume);
    machine.command(Control::Shutdown { export: false });
    let mut memory = machine.memory;
    destroy_checkpoints(&mut memory);
    memory.bad = memory.blocks(SegmentId(0), 0..32);
    let held: Vec<Vec<u8>> = memory
        .bad
        .iter()
        .map(|(member, at)| memory.data[*member][*at..*at + BLOCK_BYTES as usize].to_vec())
        .collect();
    let addresses = memory.bad.clone();
    rebuild(&mut memory, true).expect("rebuilt");
    assert_eq!(memory.bad, addresses, "nothing is written there");
    let root = memory.superblock().checkpoints[0].expect("a root");
    assert!(
        root.replay
            .iter()
            .all(|position| position.segment != SegmentId(0)),
        "no stream continues there: {:?}",
        root.replay
    );
    assert!(
        addresses
            .iter()
            .zip(&held)
            .all(|((member, at), bytes)| memory.data[*member][*at..].starts_with(bytes))
    );
    // It is readable again: another salvage restores everything, if it does not start from the
    // result of this one.
    memory.bad.clear();
    let work = RebuildWork {
        write: true,
        without_checkpoint: true,
    };
    Engine::rebuild_map(
        &mut memory,
        BufPool::new(64 << 20),
        &Machine::options(),
        work,
        &mut |_| {},
    )
    .expect("rebuilt again");
    let mut machine = Machine::open(memory);
    (0..200).for_each(|lba| assert_eq!(machine.byte(volume, lba), 5, "block {lba}"));
}

/// A member silently lost all writes for a while. Where it holds the first header of a segment,
/// that of the previous incarnation was used. The live data there did not count, although the
/// redundancy covers it.
#[test]
fn a_header_of_a_previous_incarnation_hides_nothing() {
    let (mut machine, volume, mut model) = worn(31, 4, 2);
    let before = machine.memory.data[0].clone();
    let mut numbers = Numbers(77);
    let live = model.len() as u64;
    for n in 0..2 * live {
        let (lba, byte) = (numbers.below(live), numbers.below(250) as u8 + 1);
        machine.write(volume, lba, byte);
        model.insert(lba, byte);
        if n % 1500 == 1499 {
            machine.flush(volume);
        }
    }
    machine.flush(volume);
    machine.command(Control::Shutdown { export: false });
    let mut memory = machine.memory;
    destroy_checkpoints(&mut memory);
    let first = memory.superblock().zones[0].start as usize;
    // With as many members as columns it has the first header of every segment.
    memory.data[0][first..].copy_from_slice(&before[first..]);
    // Where a checkpoint was destroyed the stale header is all that is left: it may be listed as
    // lost.
    rebuild(&mut memory, true).expect("rebuilt");
    let mut machine = Machine::open(memory);
    compare(&mut machine, volume, &model);
}

/// Without any checkpoint, and with blocks, trims and a volume that only the journal has: durable
/// data is there after the salvage.
#[test]
fn data_only_in_the_journal_survives_a_salvage() {
    let mut machine = Machine::journalled(windrow_geometry::Redundancy::Double, 6, 24, 1 << 20);
    let volume = machine.volume(16 << 20);
    let mut model: BTreeMap<u64, u8> = (0..300).map(|lba| (lba, lba as u8 | 1)).collect();
    model
        .iter()
        .for_each(|(lba, byte)| machine.write(volume, *lba, *byte));
    machine.flush(volume);
    // A start leaves a checkpoint, and a superblock of a newer epoch.
    let mut machine = machine.crash();
    machine::pass(&mut machine, 3);
    assert_eq!(
        machine.command(Control::Checkpoint),
        Some(Ok(ControlReply::Done))
    );
    machine.flush(volume);
    let log = machine.memory.headers().len();
    for lba in [7, 8, 1000, 7] {
        let byte = model.get(&lba).map_or(200, |byte| byte.wrapping_add(40)) | 1;
        machine.write(volume, lba, byte);
        machine.flush(volume);
        model.insert(lba, byte);
    }
    machine.request(
        volume,
        Op::Trim {
            offset: 20 * BLOCK_BYTES,
            length: 4 * BLOCK_BYTES,
            fua: true,
        },
    );
    machine.settle();
    (20..24).for_each(|lba| _ = model.insert(lba, 0));
    assert_eq!(
        machine.memory.headers().len(),
        log,
        "nothing of it is in a batch: {:?}",
        machine.engine.status().journal
    );
    let mut memory = machine.memory;
    assert!(destroy_checkpoints(&mut memory) > 0);
    assert!(
        Engine::open(&mut memory, BufPool::new(64 << 20), &Machine::options()).is_err(),
        "without its checkpoints the pool cannot be opened"
    );
    let before = memory.data.clone();
    let looked = rebuild(&mut memory, false).expect("a look");
    assert!(memory.data == before && looked.losses.is_empty());
    let report = rebuild(&mut memory, true).expect("rebuilt");
    assert!(
        report.losses.is_empty() && report.recovery_lsn == looked.recovery_lsn,
        "{report:?}"
    );
    // Two members are lost at once: data from the journal is in the log now.
    memory.present[1] = false;
    memory.present[4] = false;
    let mut machine = Machine::open(memory);
    compare(&mut machine, volume, &model);
    // It continues: the journal is used again, and survives a crash.
    machine.write(volume, 9, 99);
    machine.flush(volume);
    machine.write(volume, 10, 98);
    machine.flush(volume);
    model.extend([(9, 99), (10, 98)]);
    compare(&mut machine.crash(), volume, &model);
}

/// The last batch did not reach one of the members before the power loss. A start completes it. The
/// salvage called it complete and left it so, and the next loss of a member took durable data.
#[test]
fn a_batch_that_one_member_missed_is_completed() {
    let mut machine = Machine::new(4, 32, 100);
    let volume = machine.volume(8 << 20);
    (0..300).for_each(|lba| machine.write(volume, lba, (lba % 250) as u8 + 1));
    machine.flush(volume);
    (300..310).for_each(|lba| machine.write(volume, lba, (lba % 250) as u8 + 1));
    // It is sealed by its age, without a flush.
    machine::pass(&mut machine, 4);
    let mut memory = machine.memory;
    let (segment, row, header) = memory
        .headers()
        .into_iter()
        .filter(|(_, _, header)| header.stream.0 == 0)
        .max_by_key(|(_, _, header)| header.seq)
        .expect("a batch");
    for (member, at) in memory.blocks(segment, row..row + header.rows) {
        if member == 2 {
            memory.data[member][at..at + BLOCK_BYTES as usize].fill(0);
        }
    }
    rebuild(&mut memory, true).expect("rebuilt");
    let mut machine = Machine::open(memory);
    machine.memory.present[0] = false;
    let mut machine = machine.crash();
    (0..310).for_each(|lba| {
        assert_eq!(
            machine.byte(volume, lba),
            (lba % 250) as u8 + 1,
            "block {lba}"
        )
    });
}

/// Repairs requested by readers had birth 0. When their source address had been rewritten, a
/// salvage took an older version of the block that was still in the log. Where an earlier trim was
/// it took nothing.
#[test]
fn repaired_blocks_are_the_newest_ones_after_a_salvage() {
    let (mut machine, volume, mut model) = worn(31, 4, 2);
    let live = model.len() as u64;
    for lba in (0..live).step_by(3) {
        machine.request(
            volume,
            Op::Trim {
                offset: lba * BLOCK_BYTES,
                length: BLOCK_BYTES,
                fua: false,
            },
        );
        machine.settle();
        machine.write(volume, lba, 251);
        model.insert(lba, 251);
    }
    machine.flush(volume);
    machine.garble(1);
    compare(&mut machine, volume, &model);
    machine::pass(&mut machine, 3);
    let repaired = machine
        .out
        .notices
        .iter()
        .filter(|notice| matches!(notice, Notice::Repaired { .. }))
        .count();
    assert!(repaired as u64 > live / 8, "{repaired} of {live} blocks");
    // Emptied segments are rewritten, and cleaning moves some of the repaired blocks.
    let mut numbers = Numbers(5);
    for n in 0..live * 2 {
        let lba = numbers.below(live) / 8 * 8;
        machine.write(volume, lba, n as u8 | 1);
        model.insert(lba, n as u8 | 1);
    }
    machine.flush(volume);
    compare(&mut machine, volume, &model);
    machine.command(Control::Shutdown { export: false });
    let mut memory = machine.memory;
    destroy_checkpoints(&mut memory);
    let report = rebuild(&mut memory, true).expect("rebuilt");
    assert!(report.losses.is_empty(), "{:?}", report.losses);
    compare(&mut Machine::open(memory), volume, &model);
}

/// Every operation after a repair is newer than it: a write, a trim, a shrink of the volume. And so
/// is an operation that gets a reused LSN after a power loss.
#[test]
fn a_repair_is_older_than_what_follows_it() {
    let mut machine = Machine::new(3, 64, 100);
    let volume = machine.volume(400 * BLOCK_BYTES);
    (0..400).for_each(|lba| machine.write(volume, lba, 5));
    machine.flush(volume);
    // Many LSNs that no batch holds yet, and none will.
    machine.garble(0);
    machine.held = Some(Vec::new());
    (350..399).for_each(|lba| machine.write(volume, lba, 6));
    let mut lost = machine.held.take().unwrap_or_default();
    lost.retain(|command| !matches!(command.op, MemberOp::Write { .. }));
    lost.into_iter()
        .for_each(|command| machine.carry_out(command));
    (0..300).for_each(|lba| assert_eq!(machine.byte(volume, lba), 5));
    machine::pass(&mut machine, 3);
    assert!(
        machine
            .out
            .notices
            .iter()
            .any(|notice| matches!(notice, Notice::Repaired { .. }))
    );
    let mut machine = machine.crash();
    (0..300).for_each(|lba| assert_eq!(machine.byte(volume, lba), 5));
    machine::pass(&mut machine, 3);
    (0..40).for_each(|lba| machine.write(volume, lba, 7));
    machine.request(
        volume,
        Op::Trim {
            offset: 40 * BLOCK_BYTES,
            length: 40 * BLOCK_BYTES,
            fua: true,
        },
    );
    machine.settle();
    machine.command(Control::VolumeResize {
        volume,
        size_bytes: 200 * BLOCK_BYTES,
        shrink: true,
    });
    machine.command(Control::VolumeResize {
        volume,
        size_bytes: 400 * BLOCK_BYTES,
        shrink: true,
    });
    machine.flush(volume);
    let expected: BTreeMap<u64, u8> = (0..300)
        .map(|lba| (lba, [7, 0, 5, 5, 5, 0, 0, 0][lba as usize / 40]))
        .collect();
    compare(&mut machine, volume, &expected);
    // The same number of LSNs as before, and no fence shows any more which of them were given
    // twice.
    (200..399).for_each(|lba| machine.write(volume, lba, 0));
    for _ in 0..2 {
        assert_eq!(
            machine.command(Control::Checkpoint),
            Some(Ok(ControlReply::Done))
        );
    }
    machine.command(Control::Shutdown { export: false });
    let mut memory = machine.memory;
    destroy_checkpoints(&mut memory);
    rebuild(&mut memory, true).expect("rebuilt");
    compare(&mut Machine::open(memory), volume, &expected);
}

/// A power loss took a delete that was not durable, and left a page of a checkpoint in progress in
/// a segment of its own: the volume as being deleted. The start restored the volume, and no later
/// checkpoint had a reason to write that page of the table. When the batches that had reused the
/// numbers of that checkpoint were gone, its image was the newest one. Without a checkpoint to
/// start from, the volume was gone (seed 9005008). So each start of the pool writes the table once.
#[test]
fn the_first_checkpoint_after_a_start_has_the_whole_table_of_volumes() {
    let mut machine = Machine::with_rows_only(windrow_geometry::Redundancy::Single, 4, 64, 8, 32);
    let volume = machine.volume(1 << 30);
    assert_eq!(
        machine.command(Control::Checkpoint),
        Some(Ok(ControlReply::Done))
    );
    let images = |machine: &Machine| {
        let (memory, epoch) = (&machine.memory, machine.memory.superblock().epoch);
        let batches = memory
            .headers()
            .into_iter()
            .filter(|(_, _, header)| header.stream.0 == 3 && header.epoch == epoch);
        let entries = batches.flat_map(|(segment, row, _)| {
            let (member, at) = memory.blocks(segment, row..row + 1)[0];
            decode_head(
                &memory.data[member][at..at + BLOCK_BYTES as usize],
                &memory.superblock().pool,
                segment,
                row,
            )
            .expect("a head of one block")
        });
        entries
            .filter(|entry| {
                matches!(
                    entry,
                    Entry::Page {
                        object: OBJECT_VOLUMES,
                        ..
                    }
                )
            })
            .count()
    };
    assert_eq!(images(&machine), 1, "it was written since this start");
    for _ in 0..3 {
        machine = machine.crash();
        machine.write(volume, 7, 1);
        assert_eq!(images(&machine), 0);
        (0..2).for_each(|_| {
            assert_eq!(
                machine.command(Control::Checkpoint),
                Some(Ok(ControlReply::Done))
            )
        });
        assert_eq!(images(&machine), 1, "once since each start");
    }
}

/// A checkpoint's maps showed blocks in a segment that was opened while they were copied, and its
/// table had nothing of that segment. When none of it was readable, a salvage made a map of it that
/// stopped the pool with a panic at the first read.
#[test]
fn blocks_mapped_in_an_unreadable_segment_opened_meanwhile_are_errors() {
    let mut machine = Machine::with_rows_only(windrow_geometry::Redundancy::Single, 4, 64, 8, 32);
    let volume = machine.volume(1 << 30);
    machine.flush(volume);
    // Two batches hold the maximum number of pages in flight.
    let limits = Limits {
        batches_in_flight: 2,
        ..Machine::options().limits
    };
    machine = Machine::open_with(
        machine.memory,
        &OpenOptions {
            limits,
            ..Machine::options()
        },
    );
    // A page of the table has 85 segments: the next ones will be on another page than all that
    // changes before.
    let highest = |machine: &Machine| {
        machine
            .memory
            .headers()
            .iter()
            .map(|(segment, ..)| segment.0)
            .max()
            .expect("batches")
    };
    for lba in 100_000..120_000 {
        machine.write(volume, lba, lba as u8 | 1);
        if lba % 90 == 0 && highest(&machine) >= 50 {
            break;
        }
    }
    let pages = 200;
    for byte in [5, 6] {
        (0..pages).for_each(|page| machine.write(volume, page * 256, byte));
        machine.flush(volume);
        if byte == 5 {
            assert_eq!(
                machine.command(Control::Checkpoint),
                Some(Ok(ControlReply::Done))
            );
        }
    }
    let last = |machine: &Machine| {
        machine
            .memory
            .headers()
            .iter()
            .filter(|(.., h)| h.stream.0 == 0)
            .map(|(.., h)| h.seq)
            .max()
            .expect("batches")
    };
    let before = last(&machine);
    assert!(highest(&machine) < 65, "{}", highest(&machine));
    // It has begun, and its first pages are in flight for long: clients write meanwhile.
    machine.held = Some(Vec::new());
    assert_eq!(machine.command(Control::Checkpoint), None);
    let first_pages = machine.held.replace(Vec::new()).expect("commands");
    assert!(!first_pages.is_empty());
    for n in 0..3000 {
        machine.write(volume, (pages - 1) * 256 + 1 + n % 250, 7);
        for command in machine.held.replace(Vec::new()).expect("commands") {
            machine.carry_out(command);
        }
        machine.settle();
    }
    machine.held.get_or_insert_default().extend(first_pages);
    machine.release();
    machine::pass(&mut machine, 5);
    assert_eq!(
        machine.control.pop().map(|answer| answer.result),
        Some(Ok(ControlReply::Done))
    );
    let mut memory = machine.memory;
    let opened: Vec<SegmentId> = memory
        .headers()
        .iter()
        .filter(|(_, row, h)| h.stream.0 == 0 && *row == 0 && h.seq > before)
        .map(|(id, ..)| *id)
        .collect();
    assert!(opened.iter().any(|id| id.0 > 85), "{opened:?}");
    opened
        .iter()
        .for_each(|id| memory.overwrite(*id, 0..32, 0xee));
    let report = rebuild(&mut memory, true).expect("rebuilt");
    assert!(
        report.checkpoint > 0 && !report.losses.is_empty(),
        "{report:?}"
    );
    let mut machine = Machine::open(memory);
    let lost = (0..250)
        .filter(|lba| machine.is_lost(volume, (pages - 1) * 256 + 1 + lba))
        .count();
    assert!(lost > 100, "{lost}");
    (0..pages).for_each(|page| assert_eq!(machine.byte(volume, page * 256), 6, "page {page}"));
}

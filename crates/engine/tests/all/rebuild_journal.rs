//! Salvage and the journal: data that is durable there and in no batch is there afterwards, or
//! reported.

use crate::machine;

use machine::{Machine, Memory, numbers::Numbers};
use windrow_engine::*;
use windrow_format::batch::{Entry, TableWriter};
use windrow_format::journal::{RecordHeader, decode_record, encode_record};
use windrow_geometry::Redundancy;
use windrow_io::*;
use windrow_types::{BLOCK_BYTES, Lba, Lsn, VolumeId};

const MIB: u64 = 1 << 20;

/// Destroys every batch of the checkpoint stream, and salvages.
fn rebuild_without_checkpoints(memory: &mut Memory) -> RebuildReport {
    for (segment, row, header) in memory
        .headers()
        .into_iter()
        .filter(|(.., header)| header.stream.0 == 3)
    {
        memory.overwrite(segment, row..row + header.rows, 0xee);
    }
    Engine::rebuild_map(
        memory,
        BufPool::new(64 << 20),
        &Machine::options(),
        RebuildWork {
            write: true,
            ..Default::default()
        },
        &mut |_| {},
    )
    .expect("rebuilt")
}

fn create(machine: &mut Machine, name: &str, size_bytes: u64) -> VolumeId {
    match machine.command(Control::VolumeCreate {
        name: name.into(),
        size_bytes,
    }) {
        Some(Ok(ControlReply::Volume(volume))) => volume,
        answer => panic!("{answer:?}"),
    }
}

/// Does something and flushes. Only the journal has it then.
fn journalled(machine: &mut Machine, volume: VolumeId, what: impl FnOnce(&mut Machine)) {
    let log = machine.memory.headers().len();
    what(machine);
    machine.completions.clear();
    machine.flush(volume);
    assert!(
        machine.completions.iter().all(|done| done.result.is_ok())
            && !machine.completions.is_empty(),
        "{}",
        machine.engine.describe()
    );
    let (durable, durable_lsn) = machine.engine.durable_lsns();
    assert!(
        durable < durable_lsn && machine.memory.headers().len() == log,
        "{}",
        machine.engine.describe()
    );
}

/// Volumes in the report of a salvage: id, blocks, and true if name or size are made up.
fn told(report: &RebuildReport) -> Vec<(VolumeId, u64, bool)> {
    report
        .volumes
        .iter()
        .map(|volume| (volume.id, volume.size_bytes / BLOCK_BYTES, volume.made_up))
        .collect()
}

/// No checkpoint is readable, and the segments with the records that created the volumes were
/// reused. Their sizes were made up from batches alone: flushed blocks beyond those, and of volumes
/// that only the journal had, were dropped without a report. A size or a deletion in the journal
/// itself still counts.
#[test]
fn volumes_are_as_large_as_what_the_journal_has_of_them() {
    let mut machine = Machine::journalled(Redundancy::Single, 3, 32, MIB);
    let usable = machine.engine.status().plan.usable_bytes / BLOCK_BYTES;
    let [volume, alone, cut, gone] = ["v", "alone", "cut", "gone"]
        .map(|name| create(&mut machine, name, 4 * usable * BLOCK_BYTES));
    let (live, mut numbers) = (usable * 8 / 10, Numbers(77));
    let mut model = vec![0; live as usize];
    for n in 0..live * 4 {
        let (lba, byte) = (
            if n < live { n } else { numbers.below(live) },
            numbers.below(250) as u8 + 1,
        );
        machine.write(volume, lba, byte);
        model[lba as usize] = byte;
        if n % 1500 == 1499 {
            machine.flush(volume);
        }
    }
    machine.flush(volume);
    let mut machine = machine.crash();
    machine::pass(&mut machine, 3);
    assert_eq!(
        machine.command(Control::Checkpoint),
        Some(Ok(ControlReply::Done))
    );
    machine.flush(volume);
    for of in [volume, alone, cut, gone] {
        [2 * usable, 2 * usable + 1]
            .iter()
            .for_each(|lba| journalled(&mut machine, of, |machine| machine.write(of, *lba, 201)));
    }
    journalled(&mut machine, cut, |machine| {
        machine.write(cut, 5, 202);
        assert_eq!(
            machine.command(Control::VolumeResize {
                volume: cut,
                size_bytes: 100 * BLOCK_BYTES,
                shrink: true
            }),
            Some(Ok(ControlReply::Done))
        );
    });
    journalled(&mut machine, volume, |machine| {
        assert_eq!(
            machine.command(Control::VolumeDelete { volume: gone }),
            Some(Ok(ControlReply::Done))
        )
    });
    let mut memory = machine.memory;
    let report = rebuild_without_checkpoints(&mut memory);
    assert_eq!(
        told(&report),
        [
            (volume, 2 * usable + 2, true),
            (alone, 2 * usable + 2, true),
            (cut, 100, true)
        ]
    );
    assert!(
        report.losses.is_empty() && report.lost_lsns.is_none() && report.lost_blocks_total == 0,
        "{report:?}"
    );
    let mut machine = Machine::open(memory).crash();
    for (lba, byte) in model.iter().enumerate() {
        assert_eq!(machine.byte(volume, lba as u64), *byte, "block {lba}");
    }
    for of in [volume, alone] {
        assert_eq!(
            [0, 1].map(|at| machine.byte(of, 2 * usable + at)),
            [201, 201]
        );
    }
    assert_eq!([5, 6].map(|lba| machine.byte(cut, lba)), [202, 0]);
    assert_eq!(machine.engine.status().volumes.len(), 3);
}

/// The batch that made a volume larger is lost. The journal's blocks of the new part were dropped
/// with it.
#[test]
fn a_volume_grows_for_the_journal_where_the_record_that_made_it_larger_is_lost() {
    let mut machine = Machine::journalled(Redundancy::Single, 3, 32, MIB);
    let volume = create(&mut machine, "v", 8 * MIB);
    (0..300).for_each(|lba| machine.write(volume, lba, 7));
    machine.flush(volume);
    // This number of blocks is cheaper in the log, and takes the record that follows them along.
    (300..340).for_each(|lba| machine.write(volume, lba, 7));
    let before = (
        machine.memory.headers(),
        machine.engine.status().journal.records,
    );
    assert_eq!(
        machine.command(Control::VolumeResize {
            volume,
            size_bytes: 16 * MIB,
            shrink: true
        }),
        Some(Ok(ControlReply::Done))
    );
    assert_eq!(
        machine.engine.status().journal.records,
        before.1,
        "the log has the new size"
    );
    let is_new = |(segment, row, header): &(_, _, windrow_format::batch::BatchHeader)| {
        header.stream.0 == 0
            && before
                .0
                .iter()
                .all(|(old, old_row, _)| (old, old_row) != (segment, row))
    };
    let (segment, row, header) = machine
        .memory
        .headers()
        .into_iter()
        .filter(is_new)
        .max_by_key(|(.., header)| header.seq)
        .expect("a batch with the new size");
    (340..700).for_each(|lba| machine.write(volume, lba, 7));
    machine.flush(volume);
    journalled(&mut machine, volume, |machine| {
        machine.write(volume, 3000, 8)
    });
    let mut memory = machine.memory;
    memory.overwrite(segment, row..row + header.rows, 0xee);
    let report = rebuild_without_checkpoints(&mut memory);
    assert_eq!(told(&report), [(volume, 3001, true)], "{report:?}");
    let mut machine = Machine::open(memory);
    assert_eq!(
        [299, 699, 3000].map(|lba| machine.byte(volume, lba)),
        [7, 7, 8]
    );
}

/// Appends a record of one block to the journal, in all copies; returns its LSN.
fn forge(memory: &mut Memory, volume: VolumeId, lba: Lba) -> Lsn {
    let superblock = memory.superblock();
    let area = superblock.journals.internal.expect("a journal");
    let mut last = None::<(RecordHeader, usize)>;
    for chunk in 0..area.chunks {
        let (member, start) = area.locate(chunk, 0);
        let bytes = &memory.data[member.index()][start as usize..][..area.chunk_bytes as usize];
        let mut at = 0;
        while let Ok(record) = decode_record(
            &bytes[at..],
            &superblock.pool,
            chunk,
            at as u32,
            area.granule,
        ) {
            at += record.length as usize;
            last = last
                .into_iter()
                .chain([(record.header, at)])
                .max_by_key(|(header, _)| header.seq);
        }
    }
    let (last, end) = last.expect("a record");
    let lsn = last.last.next();
    let mut table = TableWriter::new();
    table.push(&Entry::Data {
        volume,
        lba,
        birth: lsn,
    });
    let mut record =
        vec![0; windrow_format::journal::record_bytes(table.bytes().len(), 1, area.granule)];
    let header = RecordHeader {
        seq: last.seq.next(),
        offset: end as u32,
        first: lsn,
        last: lsn,
        ..last
    };
    encode_record(
        &header,
        &table,
        [&[9; BLOCK_BYTES as usize][..]].into_iter(),
        area.granule,
        &mut record,
    );
    for (member, start) in area.copies_of(header.chunk) {
        memory.data[member.index()][start as usize + end..][..record.len()]
            .copy_from_slice(&record);
    }
    lsn
}

/// The journal has a block of a volume that batches show as deleted (no correct engine writes
/// that). There is no room for it, but it is reported.
#[test]
fn data_without_room_is_reported() {
    let mut machine = Machine::journalled(Redundancy::Single, 3, 32, MIB);
    let [volume, gone] = ["v", "gone"].map(|name| create(&mut machine, name, 8 * MIB));
    assert_eq!(
        machine.command(Control::VolumeDelete { volume: gone }),
        Some(Ok(ControlReply::Done))
    );
    (0..700).for_each(|lba| machine.write(volume, lba, 7));
    machine.flush(volume);
    journalled(&mut machine, volume, |machine| machine.write(volume, 5, 8));
    let mut memory = machine.memory;
    let lsn = forge(&mut memory, gone, Lba(3));
    let report = rebuild_without_checkpoints(&mut memory);
    assert_eq!(
        report.lost_lsns,
        Some(LostLsns {
            first: lsn,
            last: lsn,
            count: 1
        })
    );
    assert_eq!(told(&report), [(volume, 2048, false)]);
    assert_eq!(Machine::open(memory).byte(volume, 5), 8);
}

/// The journal has blocks that no volume can have (no correct engine writes those). Room was made
/// for the first, and the checkpoint could not be written because of its volume's size.
#[test]
fn no_volume_becomes_larger_than_one_can_be() {
    let mut machine = Machine::journalled(Redundancy::Single, 3, 32, MIB);
    let volume = create(&mut machine, "v", 8 * MIB);
    (0..700).for_each(|lba| machine.write(volume, lba, 7));
    machine.flush(volume);
    journalled(&mut machine, volume, |machine| machine.write(volume, 5, 8));
    for (of, lba) in [
        (volume, 1 << 37),
        (VolumeId::SHARED, 3),
        (VolumeId::INDEX, 3),
    ] {
        let mut memory = machine.memory.clone();
        let lsn = forge(&mut memory, of, Lba(lba));
        let report = rebuild_without_checkpoints(&mut memory);
        assert_eq!(
            report.lost_lsns,
            Some(LostLsns {
                first: lsn,
                last: lsn,
                count: 1
            }),
            "block {lba} of volume {of}"
        );
        assert_eq!(told(&report), [(volume, 2048, false)]);
        assert_eq!(Machine::open(memory).byte(volume, 5), 8);
    }
}

//! Starts with checkpoints that have valid checksums and impossible numbers: they are not used, and
//! nothing is computed or allocated from their values.

use crate::machine;

use machine::{Machine, Memory, pass, verify, write};
use windrow_engine::*;
use windrow_format::batch::payload_checksum;
use windrow_format::checkpoint::{
    LeafRecord, OBJECT_COUNTERS, OBJECT_MAP, OBJECT_SEGMENTS, OBJECT_VOLUMES, PagePointer,
    decode_leaf, decode_list,
};
use windrow_format::superblock::{
    CheckpointRoot, SLOT_BYTES, SLOT_COUNT, SLOT_OFFSET, SLOT_STRIDE,
};
use windrow_geometry::{Redundancy, ZoneMap};
use windrow_io::BufPool;
use windrow_types::{AddressCodec, VolumeId};

/// Offset and size of the records of a list page in bytes.
const RECORDS: (usize, usize) = (64, 24);

fn create(name: &str) -> Control {
    Control::VolumeCreate {
        name: name.into(),
        size_bytes: 1 << 20,
    }
}

/// A pool without redundancy, with a volume and two checkpoints that have no page in common.
fn pool() -> (Memory, VolumeId) {
    let mut machine = Machine::with(Redundancy::None, 2, 24, 100);
    let volume = machine.volume(8 << 20);
    for round in 1..3 {
        assert!(matches!(
            machine.command(create(&format!("v{round}"))),
            Some(Ok(ControlReply::Volume(_)))
        ));
        write(&mut machine, volume, 0..100, round);
        assert_eq!(
            machine.command(Control::Checkpoint),
            Some(Ok(ControlReply::Done))
        );
        pass(&mut machine, 20);
    }
    write(&mut machine, volume, 0..50, 2);
    (machine.memory, volume)
}

/// Address of the page that a pointer leads to: member and byte offset.
fn address(memory: &Memory, pointer: &PagePointer) -> (usize, usize) {
    let superblock = memory.superblock();
    let (zones, codec) = (
        ZoneMap::new(superblock.zones),
        AddressCodec::new(superblock.address_offset_bits),
    );
    let location = zones.locate(codec.segment(pointer.address));
    let (column, row) = location.shape().locate(
        pointer.batch_row.into(),
        pointer.batch_rows.into(),
        codec.block(pointer.address),
    );
    let (member, offset) = location.address(row, column);
    (member.index(), offset as usize)
}

fn page<'m>(memory: &'m mut Memory, pointer: &PagePointer) -> &'m mut [u8] {
    let (member, at) = address(memory, pointer);
    let page = &mut memory.data[member][at..at + 4096];
    assert_eq!(payload_checksum(page), pointer.checksum);
    page
}

/// Changes a page and updates the pointer to it.
fn change_page(memory: &mut Memory, pointer: &mut PagePointer, change: impl FnOnce(&mut [u8])) {
    let page = page(memory, pointer);
    change(page);
    pointer.checksum = payload_checksum(page);
}

/// Changes the root of the newest checkpoint on all members.
fn change_root(memory: &mut Memory, change: impl Fn(&mut CheckpointRoot)) {
    for member in 0..memory.data.len() {
        let mut superblock = memory.superblock_of(member);
        change(superblock.checkpoints[0].as_mut().expect("a checkpoint"));
        let at = (SLOT_OFFSET + superblock.generation.0 % SLOT_COUNT * SLOT_STRIDE) as usize;
        memory.data[member][at..at + SLOT_BYTES].copy_from_slice(&superblock.encode());
    }
}

/// Changes the list record of the first leaf of an object, and everything above it.
fn change_leaf(
    memory: &mut Memory,
    object: u32,
    change: impl FnOnce(&mut Memory, &mut [u8; 24], &mut PagePointer),
) {
    let mut top = memory.superblock().checkpoints[0]
        .expect("a checkpoint")
        .list;
    let mut list = decode_list(page(memory, &top)).expect("a top page").records[0].pointer;
    let records = decode_list(page(memory, &list))
        .expect("a list page")
        .records;
    let at = RECORDS.0
        + RECORDS.1
            * records
                .iter()
                .position(|record| record.object == object)
                .expect("a leaf of the object");
    let mut bytes = *page(memory, &list)[at..].first_chunk().expect("a record");
    let mut leaf = records[(at - RECORDS.0) / RECORDS.1].pointer;
    change(memory, &mut bytes, &mut leaf);
    bytes[8..].copy_from_slice(&leaf.to_bytes());
    change_page(memory, &mut list, |page| {
        page[at..at + RECORDS.1].copy_from_slice(&bytes)
    });
    change_page(memory, &mut top, |page| {
        page[RECORDS.0 + 8..RECORDS.0 + 24].copy_from_slice(&list.to_bytes())
    });
    change_root(memory, |root| root.list = top);
}

/// Changes the record of the first volume, and everything above it.
fn change_volume(memory: &mut Memory, change: impl FnOnce(&mut [u8])) {
    change_leaf(memory, OBJECT_VOLUMES, |memory, _, leaf| {
        let mut volumes = decode_leaf(page(memory, leaf))[0];
        change_page(memory, &mut volumes, change);
        change_page(memory, leaf, |page| {
            page[..16].copy_from_slice(&volumes.to_bytes())
        });
    });
}

/// Checks that the older checkpoint is used, and that all data is there.
fn starts_with_the_older_one(memory: Memory, volume: VolumeId, what: &str) {
    let older = memory.superblock().checkpoints[1]
        .expect("two checkpoints")
        .id;
    let (_, report) = Engine::open(
        &mut memory.clone(),
        BufPool::new(64 << 20),
        &Machine::options(),
    )
    .expect(what);
    assert_eq!(report.checkpoint, older, "{what}: {:?}", report.notes);
    assert!(
        report.notes.iter().any(|note| note.contains("is not used")),
        "{what}: {:?}",
        report.notes
    );
    verify(&mut Machine::open(memory), volume, 0..100, 2);
}

#[test]
fn a_forged_pool_that_nothing_was_changed_in_starts() {
    let (mut memory, volume) = pool();
    change_leaf(&mut memory, OBJECT_SEGMENTS, |_, _, _| ());
    change_volume(&mut memory, |_| ());
    let newest = memory.superblock().checkpoints[0].expect("a checkpoint").id;
    let (_, report) = Engine::open(
        &mut memory.clone(),
        BufPool::new(64 << 20),
        &Machine::options(),
    )
    .expect("open");
    assert_eq!(report.checkpoint, newest, "{:?}", report.notes);
    verify(&mut Machine::open(memory), volume, 0..100, 2);
}

/// Regression: the tables were sized by the highest page that a leaf named: 26 TB.
#[test]
fn a_leaf_of_impossible_pages_allocates_nothing() {
    let (memory, volume) = pool();
    for object in [
        OBJECT_VOLUMES,
        OBJECT_SEGMENTS,
        OBJECT_COUNTERS,
        OBJECT_MAP + volume.0,
    ] {
        for leaf in [1, 1 << 20, u32::MAX] {
            // (The second leaf of a map is valid like the first one, but its blocks are beyond the
            // end of the volume. A segment table may have had that page when it was larger.)
            if (object >= OBJECT_MAP || object == OBJECT_SEGMENTS) && leaf == 1 {
                continue;
            }
            let mut memory = memory.clone();
            change_leaf(&mut memory, object, |_, record: &mut [u8; 24], _| {
                record[4..8].copy_from_slice(&u32::to_le_bytes(leaf))
            });
            starts_with_the_older_one(memory, volume, &format!("leaf {leaf} of object {object}"));
        }
    }
    for object in [0, 6, OBJECT_MAP + VolumeId::INDEX.0 + 1, u32::MAX] {
        let mut memory = memory.clone();
        change_leaf(&mut memory, OBJECT_SEGMENTS, |_, record, _| {
            record[..4].copy_from_slice(&object.to_le_bytes())
        });
        starts_with_the_older_one(memory, volume, &format!("object {object}"));
    }
}

/// Regression: its map pages were counted twice.
#[test]
fn a_leaf_that_is_there_twice_does_not_count() {
    let (mut memory, volume) = pool();
    let map = {
        let top = memory.superblock().checkpoints[0]
            .expect("a checkpoint")
            .list;
        let list = decode_list(page(&mut memory, &top))
            .expect("a top page")
            .records[0]
            .pointer;
        let records = decode_list(page(&mut memory, &list))
            .expect("a list page")
            .records;
        *records
            .iter()
            .find(|record: &&LeafRecord| record.object == OBJECT_MAP + volume.0)
            .expect("a leaf of the map")
    };
    change_leaf(&mut memory, OBJECT_COUNTERS, |_, record, leaf| {
        record[..4].copy_from_slice(&map.object.to_le_bytes());
        *leaf = map.pointer;
    });
    starts_with_the_older_one(memory, volume, "a leaf that is there twice");
}

/// The next volume has an invalid id, or that of the index.
#[test]
fn an_impossible_volume_is_invalid() {
    let (memory, volume) = pool();
    for id in [VolumeId::INDEX.0, u32::MAX] {
        let mut memory = memory.clone();
        change_volume(&mut memory, |page| {
            page[..4].copy_from_slice(&id.to_le_bytes())
        });
        starts_with_the_older_one(memory, volume, &format!("volume {id}"));
    }
    for size in [limits::MAX_VOLUME_BYTES + 4096, !4095] {
        let mut memory = memory.clone();
        change_volume(&mut memory, |page| {
            page[8..16].copy_from_slice(&u64::to_le_bytes(size))
        });
        starts_with_the_older_one(memory, volume, &format!("a volume of {size} bytes"));
    }
    let mut memory = memory.clone();
    change_volume(&mut memory, |page| page.copy_within(..128, 128));
    starts_with_the_older_one(memory, volume, "a volume that is there twice");
}

#[test]
fn no_volume_is_created_after_the_last_id() {
    let (mut memory, volume) = pool();
    change_root(&mut memory, |root| root.last_volume = VolumeId::INDEX.0 - 2);
    let mut machine = Machine::open(memory);
    assert_eq!(
        machine.command(create("last")),
        Some(Ok(ControlReply::Volume(VolumeId(VolumeId::INDEX.0 - 1))))
    );
    assert!(matches!(
        machine.command(create("none")),
        Some(Err(ControlError::NoSpace(_)))
    ));
    assert_eq!(
        machine.command(Control::Checkpoint),
        Some(Ok(ControlReply::Done))
    );
    let mut machine = machine.crash();
    assert!(matches!(
        machine.command(create("none")),
        Some(Err(ControlError::NoSpace(_)))
    ));
    verify(&mut machine, volume, 0..100, 2);
}

/// A superblock with a volume id beyond the limit is invalid: its predecessor counts, or the start
/// is refused.
#[test]
fn a_superblock_with_too_many_volumes_is_invalid() {
    for last in [VolumeId::INDEX.0, u32::MAX] {
        let (mut memory, volume) = pool();
        change_root(&mut memory, |root| root.last_volume = last);
        let Ok((engine, _)) = Engine::open(
            &mut memory.clone(),
            BufPool::new(64 << 20),
            &Machine::options(),
        ) else {
            continue;
        };
        drop(engine);
        let mut machine = Machine::open(memory);
        assert_eq!(
            machine.command(create("next")),
            Some(Ok(ControlReply::Volume(VolumeId(volume.0 + 3))))
        );
    }
}

/// Deleted volumes keep their slots during replay. The table then has more slots than the maximum
/// of volumes, and its checkpoint is valid.
#[test]
fn a_table_of_more_places_than_volumes_is_read() {
    let (memory, volume) = pool();
    let mut machine = Machine::open(memory);
    // Many at a time, so that the log does not grow enough for a checkpoint.
    let mut ask = |commands: Vec<Control>| {
        machine.events.extend(commands.into_iter().map(|command| {
            Event::Control(ControlRequest {
                id: ControlId(1),
                command,
            })
        }));
        machine.settle();
        std::mem::take(&mut machine.control)
            .into_iter()
            .map(|answer| answer.result.expect("done"))
            .collect::<Vec<_>>()
    };
    for _ in 0..5 {
        let made = ask((0..1000).map(|n| create(&n.to_string())).collect());
        let delete = |reply| {
            if let ControlReply::Volume(volume) = reply {
                Control::VolumeDelete { volume }
            } else {
                panic!("{reply:?}")
            }
        };
        ask(made.into_iter().map(delete).collect());
    }
    let mut machine = machine.crash();
    assert_eq!(
        machine.command(Control::Checkpoint),
        Some(Ok(ControlReply::Done))
    );
    let mut memory = machine.memory;
    let mut pages = 0;
    change_leaf(&mut memory, OBJECT_VOLUMES, |memory, _, leaf| {
        pages = decode_leaf(page(memory, leaf))
            .iter()
            .filter(|page| page.present)
            .count()
    });
    assert!(pages > limits::MAX_VOLUMES / 32, "{pages} pages");
    let newest = memory.superblock().checkpoints[0].expect("a checkpoint").id;
    let (_, report) = Engine::open(
        &mut memory.clone(),
        BufPool::new(64 << 20),
        &Machine::options(),
    )
    .expect("open");
    assert_eq!(report.checkpoint, newest, "{:?}", report.notes);
    verify(&mut Machine::open(memory), volume, 0..100, 2);
}

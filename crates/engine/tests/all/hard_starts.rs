//! Starts in difficult states: a map at its limit, discarded journals that return, less memory than
//! before.

use crate::machine;

use machine::{Machine, numbers::Numbers, pass};
use windrow_engine::*;
use windrow_format::checkpoint::Dedup;
use windrow_geometry::Redundancy;
use windrow_io::*;
use windrow_types::VolumeId;

const DEVICES: [usize; 2] = [4, 5];

fn page(number: u64) -> u64 {
    number * 256
}

/// A start may take more map pages than are permitted in service, and frees them at its end. If
/// their slots were reused without a check of the limit, the map would outgrow the reserve of its
/// image. A block that only the journal had would find no page at the next start.
#[test]
fn pages_freed_by_a_start_are_beyond_the_limit() {
    let mut machine = Machine::journalled(Redundancy::Single, 4, 24, 1 << 20);
    let most = machine.engine.status().map_pages_max;
    let volume = machine.volume(1 << 40);
    for round in 1..4 {
        let pages = round * 1000..round * 1000 + most - 4;
        pages
            .clone()
            .for_each(|number| machine.write(volume, page(number), 2));
        machine.flush(volume);
        machine.request(
            volume,
            Op::Trim {
                offset: page(pages.start) * 4096,
                length: (page(pages.end) - page(pages.start)) * 4096,
                fua: false,
            },
        );
        machine.settle();
        pass(&mut machine, 3);
    }
    machine.flush(volume);
    pass(&mut machine, 60);
    let mut machine = machine.crash();
    pass(&mut machine, 60);
    let mut number = 50_000;
    loop {
        machine.completions.clear();
        machine.write(volume, page(number), 4);
        machine.wait_for(1);
        if machine.completions.iter().any(|c| c.result.is_err()) {
            break;
        }
        number += 1;
        assert!(
            number < 50_000 + most + 1,
            "{} pages of {most}",
            machine.engine.status().map_pages
        );
    }
    machine.flush(volume);
    machine.request(
        volume,
        Op::Trim {
            offset: page(number - 1) * 4096,
            length: 256 * 4096,
            fua: false,
        },
    );
    machine.settle();
    machine.flush(volume);
    pass(&mut machine, 60);
    machine.command(Control::Checkpoint);
    pass(&mut machine, 60);
    machine.completions.clear();
    machine.write(volume, page(60_000), 9);
    machine.flush(volume);
    assert!(machine.completions.iter().all(|c| c.result.is_ok()));
    let mut machine = machine.crash();
    assert_eq!(machine.byte(volume, page(60_000)), 9);
}

/// Executes commands, but delays writes to the zones of the first members, whose checkpoint pages
/// are slow.
fn slowly(machine: &mut Machine, slow: &mut Vec<MemberCommand>, turns: usize, step_ns: u64) {
    let start = machine.engine.status().plan.zones[0].start;
    for _ in 0..turns {
        machine.held = Some(Vec::new());
        machine.events.push(Event::Tick(machine.now_ns));
        machine.turn();
        machine.now_ns += step_ns;
        for command in machine.held.take().unwrap_or_default() {
            let is_slow = matches!(&command.op, MemberOp::Write { offset, .. } if *offset >= start && command.member.index() < DEVICES[0]);
            if is_slow {
                slow.push(command)
            } else {
                machine.carry_out(command)
            }
        }
    }
}

/// The content of journal devices is discarded; then the devices return. An older fence had
/// accepted it, so a later start took it from their records. Data that clients had seen discarded
/// came back in part.
#[test]
fn discarded_data_stays_discarded_when_the_devices_return() {
    let mut machine = Machine::with_journal_devices(Redundancy::Single, 4, 24, 2, false);
    let volume = machine.volume(8 << 20);
    machine.write(volume, 1500, 1);
    machine.flush(volume);
    pass(&mut machine, 60);
    for lba in 0..40 {
        machine.write(volume, lba, lba as u8 + 1);
        machine.flush(volume);
    }
    // A start accepts all; power fails before any of it is in the log.
    let mut memory = Machine::open(machine.memory).memory;
    DEVICES
        .iter()
        .for_each(|device| memory.present[*device] = false);
    let options = OpenOptions {
        discard_journal: true,
        ..Machine::options()
    };
    let mut memory = Machine::open_with(memory, &options).memory;
    DEVICES
        .iter()
        .for_each(|device| memory.present[*device] = true);
    let mut machine = Machine::open(memory);
    let mut slow = Vec::new();
    slowly(&mut machine, &mut slow, 400, 50_000_000);
    assert!(
        (0..40).all(|lba| machine.byte(volume, lba) == 0),
        "given up"
    );
    machine.completions.clear();
    machine.request(
        volume,
        Op::Write {
            offset: 100 * 4096,
            data: Payload::copy_of(&[77; 4096]),
            fua: false,
        },
    );
    machine.request(volume, Op::Flush);
    slowly(&mut machine, &mut slow, 100, 0);
    let durable_lsn = machine.completions.len() == 2;
    let mut machine = machine.crash();
    let all: Vec<u8> = (0..40).map(|lba| machine.byte(volume, lba)).collect();
    assert_eq!(all, vec![0; 40]);
    assert!(!durable_lsn || machine.byte(volume, 100) == 77);
}

fn reads(machine: &mut Machine, volume: VolumeId, offset: u64, expected: &[u8]) -> bool {
    machine.completions.clear();
    machine.request(
        volume,
        Op::Read {
            offset,
            length: expected.len() as u32,
        },
    );
    machine.wait_for(1);
    matches!(&machine.completions[0].result, Ok(Reply::Data(parts)) if parts.iter().flat_map(|part| part.iter().copied()).eq(expected.iter().copied()))
}

/// Ids were limited by the memory that maps may take now: with less of it, blocks with high ids
/// counted as damaged and were lost.
#[test]
fn less_memory_for_maps_loses_no_shared_blocks() {
    let mut machine = Machine::new(4, 64, 100);
    let volume = machine.volume(1 << 30);
    assert_eq!(
        machine.command(Control::VolumeDedup {
            volume,
            dedup: Dedup::Verify
        }),
        Some(Ok(ControlReply::Done))
    );
    let (mut numbers, mib, mut last) = (Numbers::default(), 90u64, Vec::new());
    for at in 0..mib {
        last = numbers.bytes(1 << 20);
        machine.completions.clear();
        machine.request(
            volume,
            Op::Write {
                offset: at << 20,
                data: Payload::copy_of(&last),
                fua: false,
            },
        );
        assert!(
            machine.wait_for(1) && machine.completions[0].result.is_ok(),
            "{at}"
        );
    }
    machine.flush(volume);
    machine.request(
        volume,
        Op::Trim {
            offset: 0,
            length: (mib - 1) << 20,
            fua: true,
        },
    );
    machine.settle();
    pass(&mut machine, 20);
    machine.command(Control::Checkpoint);
    pass(&mut machine, 20);
    let mut machine = machine.crash();
    pass(&mut machine, 20);
    machine.command(Control::Checkpoint);
    pass(&mut machine, 20);
    assert_eq!(
        machine.command(Control::Shutdown { export: false }),
        Some(Ok(ControlReply::Done))
    );
    let mut options = Machine::options();
    options.limits.map_bytes = 16 * 4096;
    let mut machine = Machine::open_with(machine.memory, &options);
    assert!(reads(&mut machine, volume, (mib - 1) << 20, &last));
    assert_eq!(machine.engine.self_check(), Ok(()));
}

/// A start gave map pages to ids of blocks that only the journal had, and no page was left for a
/// block of the journal: with a map at its limit the pool could not be opened any more.
#[test]
fn blocks_that_only_the_journal_has_find_their_pages_before_ids_do() {
    let machine = Machine::journalled(Redundancy::Single, 4, 24, 4 << 20);
    let mut options = Machine::options();
    options.limits.map_bytes = 40 * 4096;
    let mut machine = Machine::open_with(machine.memory, &options);
    let sharing = machine.volume(1 << 30);
    let create = Control::VolumeCreate {
        name: "plain".into(),
        size_bytes: 1 << 40,
    };
    let Some(Ok(ControlReply::Volume(plain))) = machine.command(create) else {
        panic!("it is made")
    };
    assert_eq!(
        machine.command(Control::VolumeDedup {
            volume: sharing,
            dedup: Dedup::Hash
        }),
        Some(Ok(ControlReply::Done))
    );
    let (mut numbers, mut number) = (Numbers::default(), 0);
    let mut put = |machine: &mut Machine, lba: u64| {
        machine.request(
            sharing,
            Op::Write {
                offset: lba * 4096,
                data: Payload::copy_of(&numbers.bytes(4096)),
                fua: false,
            },
        );
        machine.settle();
    };
    // With the next ones ids need another page.
    (0..240).for_each(|lba| put(&mut machine, lba));
    machine.flush(sharing);
    while machine
        .completions
        .iter()
        .all(|answer| answer.result.is_ok())
    {
        machine.completions.clear();
        machine.write(plain, page(number), 4);
        machine.wait_for(1);
        number += 1;
    }
    machine.flush(plain);
    machine.command(Control::Checkpoint);
    pass(&mut machine, 20);
    let batches = machine.memory.headers().len();
    for lba in 0..24 {
        put(&mut machine, lba);
        machine.flush(sharing);
    }
    machine.request(
        plain,
        Op::Trim {
            offset: 0,
            length: 256 * 4096,
            fua: true,
        },
    );
    machine.settle();
    machine.completions.clear();
    machine.write(plain, page(1000), 9);
    machine.flush(plain);
    assert!(
        machine
            .completions
            .iter()
            .all(|answer| answer.result.is_ok())
    );
    assert_eq!(
        machine.memory.headers().len(),
        batches,
        "only the journal has them"
    );
    let mut machine = Machine::open_with(machine.memory, &options);
    assert_eq!(machine.byte(plain, page(1000)), 9);
    pass(&mut machine, 60);
    assert_eq!(machine.engine.self_check(), Ok(()));
}

/// A checkpoint identified pages by their slots in memory. A trim freed a slot before its turn, and
/// the first page of a volume younger than the checkpoint took it. So the image held a page of a
/// volume that its own table lacks, and no start could use it.
#[test]
fn a_checkpoint_holds_no_pages_of_volumes_that_are_younger() {
    let machine = Machine::with_rows_only(Redundancy::Single, 4, 24, 8, 64);
    let limits = Limits {
        batches_in_flight: 1,
        ..Limits::default()
    };
    let options = OpenOptions {
        limits,
        ..Machine::options()
    };
    let mut machine = Machine::open_with(machine.memory, &options);
    let old = machine.volume(1 << 40);
    (0..200).for_each(|number| machine.write(old, page(number), 2));
    machine.flush(old);
    let before = machine.engine.status().checkpoints;
    machine.held = Some(Vec::new());
    machine.command(Control::Checkpoint);
    let first_pages = machine.held.take().unwrap_or_default();
    assert!(!first_pages.is_empty(), "it has begun");
    machine.request(
        old,
        Op::Trim {
            offset: 0,
            length: page(200) * 4096,
            fua: false,
        },
    );
    machine.settle();
    let create = Control::VolumeCreate {
        name: "young".into(),
        size_bytes: 1 << 30,
    };
    let Some(Ok(ControlReply::Volume(young))) = machine.command(create) else {
        panic!("it is made")
    };
    (0..100).for_each(|number| machine.write(young, page(number), 3));
    machine.flush(young);
    assert_eq!(
        machine.engine.status().checkpoints,
        before,
        "it is not over"
    );
    first_pages
        .into_iter()
        .for_each(|command| machine.carry_out(command));
    machine.settle();
    pass(&mut machine, 3);
    assert_eq!(machine.engine.status().checkpoints, before + 1);
    let (_, report) = Engine::open(
        &mut machine.memory.clone(),
        BufPool::new(64 << 20),
        &options,
    )
    .expect("open");
    assert!(report.notes.is_empty(), "{:?}", report.notes);
    let mut machine = machine.crash();
    assert_eq!(
        (machine.byte(young, page(99)), machine.byte(old, page(99))),
        (3, 0)
    );
}

/// Ids of shared content were far above the highest page in use after a start. The first block to
/// share took all remaining pages on the way there, which were not enough, and kept them. It was
/// not shared, and no other write to a new address succeeded.
#[test]
fn pages_for_ids_are_taken_all_or_none() {
    let mut machine = Machine::with(Redundancy::Single, 4, 64, 100);
    let named = |machine: &mut Machine, name: &str, dedup| {
        let answer = machine.command(Control::VolumeCreate {
            name: name.into(),
            size_bytes: 1 << 40,
        });
        let Some(Ok(ControlReply::Volume(volume))) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!(
            machine.command(Control::VolumeDedup { volume, dedup }),
            Some(Ok(ControlReply::Done))
        );
        volume
    };
    let [many, few, plain] = [
        ("many", Dedup::Hash),
        ("few", Dedup::Hash),
        ("plain", Dedup::Off),
    ]
    .map(|(name, dedup)| named(&mut machine, name, dedup));
    let mut numbers = Numbers::of(5);
    let mut write = |machine: &mut Machine, volume, lba: u64| {
        machine.completions.clear();
        let data = Payload::copy_of(&numbers.bytes(4096));
        machine.request(
            volume,
            Op::Write {
                offset: lba * 4096,
                data,
                fua: false,
            },
        );
        machine.settle();
        machine.wait_for(1);
        machine
            .completions
            .iter()
            .all(|completion| completion.result.is_ok())
    };
    assert!((0..30 * 256).all(|lba| write(&mut machine, many, lba)));
    assert!(write(&mut machine, few, 0));
    machine.flush(few);
    assert_eq!(
        machine.command(Control::VolumeDelete { volume: many }),
        Some(Ok(ControlReply::Done))
    );
    machine.flush(few);
    pass(&mut machine, 60);
    let mut options = Machine::options();
    options.limits.map_bytes = 40 * 4096;
    let mut machine = Machine::open_with(machine.memory, &options);
    pass(&mut machine, 60);
    let mut number = 0;
    while machine.engine.status().map_pages + 12 < machine.engine.status().map_pages_max {
        assert!(write(&mut machine, plain, page(number)));
        number += 1;
    }
    assert!(number > 10, "{number} pages");
    // In an existing page.
    assert!(write(&mut machine, few, 1));
    assert!(
        (0..8).all(|more| write(&mut machine, plain, page(number + more))),
        "there were pages for them"
    );
}

/// One half of a mirror continued without the other; then the other one was used alone for longer.
/// That one counts when both are there. The start must report that data acknowledged meanwhile was
/// on the first one.
#[test]
fn a_device_of_another_history_is_reported() {
    let mut machine = Machine::with(Redundancy::Copies(2), 2, 24, 100);
    let volume = machine.volume(1 << 20);
    machine.write(volume, 1, 1);
    machine.flush(volume);
    machine.memory.failing[0] = true;
    machine.write(volume, 1, 2);
    machine.flush(volume);
    machine::pass(&mut machine, 5);
    let mut memory = machine.memory;
    let went_on = memory.superblock_of(1).generation;
    (memory.failing[0], memory.present[1]) = (false, false);
    let force = OpenOptions {
        force: true,
        ..Machine::options()
    };
    while memory.superblock_of(0).generation <= went_on {
        let mut machine = Machine::open_with(memory, &force);
        machine.write(volume, 1, 3);
        machine.flush(volume);
        machine.command(Control::Shutdown { export: true });
        memory = machine.memory;
    }
    memory.present[1] = true;
    let (_, report) =
        Engine::open(&mut memory, BufPool::new(64 << 20), &Machine::options()).expect("open");
    assert!(report.notes.iter().any(|note| note.contains("the device of member 1") && note.contains("another history")), "{:?}", report.notes);
    let mut machine = Machine::open(memory);
    assert_eq!(machine.byte(volume, 1), 3);
}

/// A trim that only the journal had removed the last reference to the highest id. The start forgot
/// that this id had ever been given, and a journal block older than the trim got it. If the batch
/// of that block is durable, that of the trim is not, and the journal is lost, the trimmed block
/// must be there as before. It would refer to content of another incarnation.
#[test]
fn an_id_that_only_the_journal_frees_goes_to_no_older_block() {
    let content = |number: u64| {
        let mut block = [0; 4096];
        Numbers::of(number).fill(&mut block);
        block
    };
    let put = |machine: &mut Machine, volume, lba: u64, number| {
        machine.request(
            volume,
            Op::Write {
                offset: lba * 4096,
                data: Payload::copy_of(&content(number)),
                fua: false,
            },
        );
    };
    let mut machine = Machine::with_rows_and_device(Redundancy::Single, 4, 24, 8, 64);
    let volume = machine.volume(8 << 20);
    assert_eq!(
        machine.command(Control::VolumeDedup {
            volume,
            dedup: Dedup::Hash
        }),
        Some(Ok(ControlReply::Done))
    );
    put(&mut machine, volume, 0, 1);
    machine.settle();
    machine.flush(volume);
    pass(&mut machine, 20);
    assert_eq!(
        machine.command(Control::Checkpoint),
        Some(Ok(ControlReply::Done))
    );
    pass(&mut machine, 20);
    let (before, _) = machine.engine.durable_lsns();
    let mut log = Vec::new();
    for lba in 0..40 {
        put(&mut machine, volume, 100 + lba, 10 + lba);
        machine.request(volume, Op::Flush);
        slowly(&mut machine, &mut log, 30, 0);
    }
    machine.request(
        volume,
        Op::Trim {
            offset: 0,
            length: 4096,
            fua: false,
        },
    );
    machine.request(volume, Op::Flush);
    slowly(&mut machine, &mut log, 30, 0);
    let (in_log, durable_lsn) = machine.engine.durable_lsns();
    assert_eq!(
        (in_log, durable_lsn.0),
        (before, before.0 + 41),
        "only the journal has it"
    );
    // A start has all of it. Its first batch becomes durable, the second one with the trim does
    // not.
    let mut machine = Machine::open(machine.memory);
    log.clear();
    slowly(&mut machine, &mut log, 30, 0);
    assert!(log.len() > 4, "there are two batches");
    log.drain(..4)
        .for_each(|command| machine.carry_out(command));
    let mut memory = machine.memory;
    memory.present[4] = false;
    let options = OpenOptions {
        discard_journal: true,
        ..Machine::options()
    };
    let mut machine = Machine::open_with(memory, &options);
    assert_eq!(
        machine.read(volume, 100 * 4096, 4096),
        content(10),
        "the first batch is there"
    );
    assert!(!machine.is_lost(volume, 0));
    assert_eq!(
        machine.read(volume, 0, 4096),
        content(1),
        "and the trim is not"
    );
    assert_eq!(machine.engine.self_check(), Ok(()));
}

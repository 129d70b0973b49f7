//! Policies: whatever streams blocks go to, nothing is lost, and a pool does not do what it cannot
//! afford.

use crate::machine;

use machine::{Machine, Memory, PROPERTIES, numbers::Numbers};
use windrow_engine::*;
use windrow_format::batch::{BatchHeader, decode_head};
use windrow_format::superblock::{Features, MemberState, Properties, RESERVED_BYTES};
use windrow_geometry::Redundancy;
use windrow_io::{BufPool, MemberCommand, MemberOp, Op};
use windrow_types::{BLOCK_BYTES, Lsn, SegmentId, VolumeId};

/// With this much spare space a pool of some hundred segments affords all streams.
const WIDE: Properties = Properties {
    spare_per_mille: 250,
    ..PROPERTIES
};

/// A pool of some hundred small segments, a volume that nearly fills it, and its expected content.
struct Story {
    machine: Machine,
    volume: VolumeId,
    content: Vec<u8>,
    random: Numbers,
}

impl Story {
    fn new() -> Self {
        Self::of(Machine::with_rows_only(Redundancy::Single, 4, 20, 8, 8))
    }

    fn of(mut machine: Machine) -> Self {
        assert_eq!(
            machine.command(Control::SetProperties(WIDE)),
            Some(Ok(ControlReply::Done))
        );
        let blocks = machine.engine.status().plan.usable_bytes / 4096 * 19 / 20;
        let volume = machine.volume(blocks * 4096);
        Self {
            machine,
            volume,
            content: vec![0; blocks as usize],
            random: Numbers(7),
        }
    }

    fn set(&mut self, properties: Properties) -> Option<Result<ControlReply, ControlError>> {
        self.machine.command(Control::SetProperties(properties))
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random.below(below)
    }

    /// Seven writes of ten hit a fifth of the blocks.
    fn work(&mut self, writes: usize) {
        let blocks = self.content.len() as u64;
        for _ in 0..writes {
            let hot = self.draw(10) > 2;
            let lba = self.draw(if hot { blocks / 5 } else { blocks });
            let byte = self.draw(250) as u8 + 1;
            self.machine.write(self.volume, lba, byte);
            self.content[lba as usize] = byte;
        }
        self.machine.settle();
    }

    fn set_block(&mut self, lba: u64, byte: u8) {
        self.machine.write(self.volume, lba, byte);
        self.content[lba as usize] = byte;
    }

    fn trim(&mut self, lba: u64) {
        self.machine.request(
            self.volume,
            Op::Trim {
                offset: lba * 4096,
                length: 4096,
                fua: false,
            },
        );
        self.machine.settle();
        self.content[lba as usize] = 0;
    }

    fn flush(&mut self) {
        self.machine.completions.clear();
        self.machine.flush(self.volume);
        assert!(
            self.machine.wait_for(1),
            "{}",
            self.machine.engine.describe()
        );
        self.machine.completions.clear();
    }

    fn crash(self) -> Self {
        Self {
            machine: self.machine.crash(),
            ..self
        }
    }

    fn verify(&mut self, what: &str) {
        for lba in 0..self.content.len() as u64 {
            assert_eq!(
                self.machine.byte(self.volume, lba),
                self.content[lba as usize],
                "{what}: block {lba}"
            );
        }
    }

    fn status(&self) -> PoolStatus {
        self.machine.engine.status()
    }
}

#[test]
fn every_placement_keeps_its_streams_over_crashes() {
    for placement in 0..=Properties::PLACEMENT_MAX {
        let mut story = Story::new();
        let victim_policy = if placement == 6 { 6 } else { 2 };
        let answer = story.set(Properties {
            placement,
            victim_policy,
            ..WIDE
        });
        assert_eq!(
            answer,
            Some(Ok(ControlReply::Done)),
            "placement {placement}"
        );
        story.work(24_000);
        let status = story.status();
        let streams = (status.user_streams, status.moved_streams);
        let wanted = [
            (1, 1),
            (3, 4),
            (3, 4),
            (3, 4),
            (2, 4),
            (1, 4),
            (3, 4),
            (2, 4),
        ][usize::from(placement)];
        assert_eq!(streams, wanted, "placement {placement}");
        assert!(
            status.segments_cleaned > 20,
            "placement {placement}: {} segments cleaned",
            status.segments_cleaned
        );
        // Only blocks that are moved a second time leave the first stream of generations.
        let is_some = status.further_blocks > if placement == 5 { 0 } else { 1000 };
        assert!(
            is_some == (placement != 0) || placement == 5,
            "placement {placement}: {} blocks in further streams",
            status.further_blocks
        );
        let has_flag =
            story.machine.memory.superblock().features.incompatible & Features::STREAMS != 0;
        assert_eq!(has_flag, placement != 0);
        story.flush();
        let mut story = story.crash();
        story.verify("after a crash");
        assert_eq!(
            (
                story.status().placement,
                story.status().victim_policy.as_str()
            ),
            (status.placement, status.victim_policy.as_str())
        );
        // The streams are there from the start, and used when both kept checkpoints are younger
        // than that. Learned state is not kept: FADaC calls all blocks cold until most have been
        // rewritten, and MiDAS has an epoch with one group before the first with several.
        story.work(8_000);
        assert_eq!(
            story.status().further_blocks > 100,
            ![0, 3, 5, 7].contains(&placement),
            "placement {placement}: {}",
            story.status().further_blocks
        );
        // With another policy they are not used any more.
        assert_eq!(story.set(WIDE), Some(Ok(ControlReply::Done)));
        story.work(4_000);
        story.flush();
        let mut story = story.crash();
        story.verify("after another policy and another crash");
        assert_eq!(story.machine.engine.self_check(), Ok(()));
    }
}

/// Placements with the victim policies that go with them.
fn with_its_rule(placement: u8) -> Properties {
    Properties {
        placement,
        victim_policy: if placement == 6 { 6 } else { 2 },
        ..WIDE
    }
}

/// Segments keep the marks of the placement that filled them until the pool has another one. From
/// MiDAS to the learned one the engine stopped, because its marks were taken for plans.
#[test]
fn each_placement_follows_each_other_on_a_pool_at_work() {
    let mut story = Story::new();
    story.work(16_000);
    for first in 0..=Properties::PLACEMENT_MAX {
        for second in first + 1..=Properties::PLACEMENT_MAX {
            // There and back.
            for (from, to) in [(first, second), (second, first)] {
                let cleaned = story.status().segments_cleaned;
                for placement in [from, to] {
                    assert_eq!(
                        story.set(with_its_rule(placement)),
                        Some(Ok(ControlReply::Done))
                    );
                    story.work(1_200);
                }
                let status = story.status();
                assert!(
                    status.properties.placement == to && status.segments_cleaned > cleaned,
                    "{from} to {to}: {} segments cleaned",
                    status.segments_cleaned
                );
                assert_eq!(story.machine.engine.self_check(), Ok(()), "{from} to {to}");
            }
        }
        story.verify(&format!("{first} and all others in turn"));
        story.flush();
        story = story.crash();
        story.verify(&format!("{first} and all others in turn, and a crash"));
    }
}

/// After a start the MiDAS group of an older segment is unknown. All were taken for the group of
/// hot blocks, and cleaned first in, first out, whatever live data they had.
#[test]
fn segments_of_before_a_start_are_cleaned_by_the_victim_policy() {
    let moved_by_more = |crash: bool| {
        let mut story = Story::new();
        assert_eq!(story.set(with_its_rule(7)), Some(Ok(ControlReply::Done)));
        story.work(40_000);
        story.flush();
        if crash {
            story = story.crash();
        }
        let before = story.status().written.moved;
        story.work(4_000);
        let moved = (story.status().written.moved - before) / BLOCK_BYTES;
        story.work(20_000);
        story.verify(if crash {
            "after a start"
        } else {
            "without a start"
        });
        assert_eq!(story.machine.engine.self_check(), Ok(()));
        moved
    };
    let (without, after) = (moved_by_more(false), moved_by_more(true));
    assert!(
        without > 1_000 && after > 800 && after < without * 6 / 5,
        "{after} blocks moved after a start, {without} without one"
    );
}

/// Report of a start, without changing anything.
fn look(memory: &mut Memory) -> OpenReport {
    let options = OpenOptions {
        read_only: true,
        ..Machine::options()
    };
    Engine::open(memory, BufPool::new(64 << 20), &options)
        .expect("open")
        .1
}

/// First and last LSN of each user batch since the last start.
fn lsns_of_batches(memory: &Memory) -> Vec<(Lsn, Lsn)> {
    let superblock = memory.superblock();
    let users = memory.headers().into_iter().filter(|(.., header)| {
        [0, 1, 4].contains(&header.stream.0) && header.epoch == superblock.epoch
    });
    let lsns = |(segment, row, _): (SegmentId, u32, BatchHeader)| {
        let (member, at) = memory.blocks(segment, row..row + 1)[0];
        let entries = decode_head(
            &memory.data[member][at..at + BLOCK_BYTES as usize],
            &superblock.pool,
            segment,
            row,
        )
        .ok()?;
        let all: Vec<(Lsn, u64)> = entries.iter().filter_map(|entry| entry.lsns()).collect();
        Some((
            all.iter().map(|(first, _)| *first).min()?,
            all.iter()
                .map(|(first, count)| Lsn(first.0 + count - 1))
                .max()?,
        ))
    };
    users.filter_map(lsns).collect()
}

/// A pool with a journal and several user streams, at a moment at which a crash leaves a gap. The
/// log lacks an LSN that is in an open batch, batches of other streams hold later ones, and the
/// journal has all of them. Some of the blocks after the gap are trimmed since, some rewritten.
fn with_a_gap() -> Story {
    with_a_gap_and(|_, _| true)
}

/// The same at a moment at which another condition holds as well.
fn with_a_gap_and(is_it: impl Fn(&Memory, &OpenReport) -> bool) -> Story {
    let mut story = Story::of(Machine::with_rows(Redundancy::Single, 4, 20, 8, 8));
    assert_eq!(
        story.set(Properties {
            placement: 1,
            ..WIDE
        }),
        Some(Ok(ControlReply::Done))
    );
    story.work(24_000);
    for _ in 0..400 {
        let before = story.content.clone();
        story.work(11);
        story.flush();
        let report = look(&mut story.machine.memory.clone());
        if report.void_lsns >= 8 && report.recovery_lsn > report.log_lsn {
            let written: Vec<u64> = (0..before.len())
                .filter(|at| before[*at] != story.content[*at])
                .map(|at| at as u64)
                .collect();
            for (i, lba) in written.into_iter().enumerate() {
                match i % 3 {
                    0 => story.trim(lba),
                    1 => story.set_block(lba, 251),
                    _ => {}
                }
            }
            story.flush();
            let report = look(&mut story.machine.memory.clone());
            if report.void_lsns >= 8
                && report.recovery_lsn > report.log_lsn
                && is_it(&story.machine.memory, &report)
            {
                return story;
            }
        }
    }
    panic!("no gap: {:?}", story.status().journal);
}

#[test]
fn streams_with_a_journal_leave_gaps_that_a_start_closes() {
    let story = with_a_gap_and(|memory, report| {
        lsns_of_batches(memory)
            .iter()
            .any(|(first, _)| *first > report.log_lsn)
    });
    let status = story.status();
    assert_eq!((status.user_streams, status.moved_streams), (3, 4));
    assert!(
        status.journal.rounds > 0 && status.further_blocks > 1000,
        "{:?}",
        status.journal
    );
    let written = story.machine.memory.headers();
    let mut story = story.crash();
    // Batches in which nothing counts are skipped, and the stream continues at their address:
    // readmitted entries need no more room than they had.
    let fence = *story
        .machine
        .memory
        .superblock()
        .fences
        .last()
        .expect("a fence");
    let is_left_out = |header: &BatchHeader| {
        [0, 1, 4].contains(&header.stream.0) && header.seq > fence.last_seq[header.stream.index()]
    };
    assert!(
        written.iter().any(|(_, _, header)| is_left_out(header)),
        "{fence:?}"
    );
    story.verify("after a crash");
    story.flush();
    story.machine.settle();
    let report = look(&mut story.machine.memory.clone());
    assert_eq!(
        report.log_lsn, report.recovery_lsn,
        "the log has taken over"
    );
    let mut story = story.crash();
    story.verify("after another crash");
    story.work(3_000);
    story.flush();
    let mut story = story.crash();
    story.verify("after more work");
}

/// Readmitted entries have their old LSNs in new batches; old batches after the gap have the same
/// ones. Power fails again and again while they are written to the log: of each LSN only the new
/// batch counts, and trimmed blocks stay trimmed.
#[test]
fn repeated_crashes_take_each_lsn_from_one_batch_only() {
    for writes in [0, 1, 3, 4, 6, 9, 12, 200] {
        let Story {
            machine,
            volume,
            content,
            ..
        } = with_a_gap();
        let mut memory = machine.memory;
        let (accepted, mut void) = (look(&mut memory.clone()).recovery_lsn, 0);
        for start in 0..3 {
            let mut machine = Machine::open(memory);
            let fence = *machine.memory.superblock().fences.last().expect("a fence");
            machine.held = Some(Vec::new());
            machine.events.push(Event::Tick(2));
            machine.settle();
            let commands = machine.held.take().unwrap_or_default();
            commands
                .into_iter()
                .filter(|c| matches!(c.op, MemberOp::Write { .. }))
                .take(if start == 0 { 0 } else { writes })
                .for_each(|c| machine.carry_out(c));
            memory = machine.memory;
            let report = look(&mut memory.clone());
            let what = format!("{writes} writes, start {start}: {report:?}");
            assert_eq!(report.recovery_lsn, accepted, "{what}");
            assert!(report.log_lsn >= fence.covered_lsn, "{what}");
            // Of the void batches only those stay in the chains that have something before the gap,
            // too.
            assert!(
                report.void_lsns >= void,
                "a block after the gap counts again: {what}"
            );
            void = report.void_lsns;
        }
        let machine = Machine::open(memory);
        let mut story = Story {
            machine,
            volume,
            content,
            random: Numbers(1),
        };
        story.verify(&format!("{writes} writes"));
        assert_eq!(story.machine.engine.self_check(), Ok(()));
    }
}

/// Without any checkpoint: in a salvage the log ends before its gap, too. The journal's entries
/// after it are applied, trims included.
#[test]
fn a_salvage_ends_at_the_gap() {
    let Story {
        machine,
        volume,
        content,
        ..
    } = with_a_gap();
    let mut memory = machine.memory;
    let before = look(&mut memory.clone());
    for (segment, row, header) in memory
        .headers()
        .into_iter()
        .filter(|(_, _, header)| header.stream.0 == 3)
    {
        memory.overwrite(segment, row..row + header.rows, 0xee);
    }
    assert!(
        Engine::open(&mut memory, BufPool::new(64 << 20), &Machine::options()).is_err(),
        "without its checkpoints the pool cannot be opened"
    );
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
        (report.recovery_lsn, report.losses.len()),
        (before.recovery_lsn, 0)
    );
    // Its size is only known from the highest block that is there.
    let blocks = (report.volumes[0].size_bytes / 4096) as usize;
    assert!(content[blocks..].iter().all(|byte| *byte == 0));
    let mut story = Story {
        machine: Machine::open(memory),
        volume,
        content: content[..blocks].to_vec(),
        random: Numbers(1),
    };
    story.verify("after a rebuild");
}

/// The journal device failed, which is recorded, and power failed before the log had its durable
/// data; streams hold later LSNs after the gap. The salvage did not read the device, as the streams
/// reach further than the durable LSN: blocks in the gap had their previous content (simulator,
/// seed 9778387).
#[test]
fn a_salvage_reads_a_device_that_left_for_data_missing_in_the_gap() {
    const DEVICE: usize = 4;
    let mut story = Story::of(Machine::with_rows_and_device(
        Redundancy::Single,
        4,
        20,
        8,
        8,
    ));
    assert_eq!(
        story.set(Properties {
            placement: 1,
            ..WIDE
        }),
        Some(Ok(ControlReply::Done))
    );
    story.work(24_000);
    let mut is_behind = false;
    for _ in 0..400 {
        story.work(11);
        story.flush();
        let durable_lsn = story.status().lsn;
        story.work(15);
        let now = look(&mut story.machine.memory.clone());
        is_behind = now.log_lsn < durable_lsn
            && lsns_of_batches(&story.machine.memory)
                .iter()
                .any(|(_, last)| *last > durable_lsn);
        if is_behind {
            break;
        }
    }
    assert!(is_behind, "no gap: {:?}", story.status().journal);
    // The device fails, and the members get only the record of that.
    story.machine.memory.failing[DEVICE] = true;
    story.machine.held = Some(Vec::new());
    story.set_block(3, 251);
    story.machine.flush(story.volume);
    for _ in 0..20 {
        let is_of_data = |command: &MemberCommand| matches!(&command.op, MemberOp::Write { offset, .. } if *offset >= RESERVED_BYTES && command.member.index() != DEVICE);
        let commands = story.machine.held.replace(Vec::new()).unwrap_or_default();
        commands
            .into_iter()
            .filter(|command| !is_of_data(command))
            .for_each(|command| story.machine.carry_out(command));
        story.machine.settle();
    }
    let mut memory = story.machine.memory;
    memory.failing[DEVICE] = false;
    assert_eq!(
        memory.superblock().members[DEVICE].state,
        MemberState::Absent
    );
    let report = look(&mut memory.clone());
    assert!(
        report.recovery_lsn > report.log_lsn
            && report.notes.iter().any(|note| note.contains("were read")),
        "{report:?}"
    );
    let mut started = Machine::open(memory.clone());
    let work = RebuildWork {
        write: true,
        ..Default::default()
    };
    let rebuilt = Engine::rebuild_map(
        &mut memory,
        BufPool::new(64 << 20),
        &Machine::options(),
        work,
        &mut |_| {},
    )
    .expect("rebuilt");
    assert_eq!(
        (rebuilt.recovery_lsn, rebuilt.losses.len()),
        (report.recovery_lsn, 0)
    );
    let mut machine = Machine::open(memory);
    for lba in 0..story.content.len() as u64 {
        assert_eq!(
            machine.byte(story.volume, lba),
            started.byte(story.volume, lba),
            "block {lba}"
        );
    }
}

/// Blocks were moved to several streams, damaged there, and moved by a scrub, and some of them
/// again by cleaning. A salvage must take the last copy, not the damaged one, so it reads the
/// streams in the order of replay.
#[test]
fn a_salvage_takes_the_last_copy_of_all_streams() {
    for after in [0, 3_000] {
        let mut story = Story::new();
        assert_eq!(
            story.set(Properties {
                placement: 4,
                victim_policy: 2,
                ..WIDE
            }),
            Some(Ok(ControlReply::Done))
        );
        story.work(24_000);
        story.flush();
        story.machine.garble(1);
        assert_eq!(
            story.machine.command(Control::Scrub(ScrubCommand::Start {
                unix_s: 5,
                bytes_per_second: 0
            })),
            Some(Ok(ControlReply::Done))
        );
        machine::pass(&mut story.machine, 2000);
        let scrub = story.machine.engine.status().scrub;
        assert!(
            scrub.state == ScrubState::Completed
                && scrub.moved_blocks > 1000
                && scrub.lost_blocks + scrub.unmoved_blocks == 0,
            "{scrub:?}"
        );
        story.work(after);
        story.flush();
        story.machine.command(Control::Shutdown { export: false });
        let Story {
            machine,
            volume,
            content,
            ..
        } = story;
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
        assert_eq!(report.losses.len(), 0);
        let blocks = (report.volumes[0].size_bytes / 4096) as usize;
        let mut story = Story {
            machine: Machine::open(memory),
            volume,
            content: content[..blocks].to_vec(),
            random: Numbers(1),
        };
        story.verify("after a rebuild");
        let repaired = story
            .machine
            .out
            .notices
            .iter()
            .filter(|notice| matches!(notice, Notice::Repaired { .. }))
            .count();
        assert_eq!(
            repaired, 0,
            "after {after} more: damaged copies are not the last ones"
        );
    }
}

#[test]
fn a_flush_covers_what_lies_in_all_streams() {
    let mut story = Story::new();
    assert_eq!(
        story.set(Properties {
            placement: 4,
            victim_policy: 2,
            ..WIDE
        }),
        Some(Ok(ControlReply::Done))
    );
    story.work(9_000);
    for round in 0..40 {
        // Hot and cold blocks, so both streams of SepBIT have some; only the flush seals.
        story.work(30);
        story.flush();
        let (durable, durable_lsn) = story.machine.engine.durable_lsns();
        assert!(durable_lsn >= durable);
        if round % 8 == 7 {
            story = story.crash();
            story.verify("after a flush and a crash");
        }
    }
}

#[test]
fn a_small_pool_has_the_streams_that_it_can_afford() {
    let mut machine = Machine::new(4, 8, 100);
    let answer = machine.command(Control::SetProperties(Properties {
        placement: 6,
        victim_policy: 6,
        spare_per_mille: 30,
        ..PROPERTIES
    }));
    assert_eq!(answer, Some(Ok(ControlReply::Done)));
    let status = machine.engine.status();
    assert_eq!(
        (status.placement, status.user_streams, status.moved_streams),
        ("learned", 1, 1)
    );
    assert_eq!(
        machine.memory.superblock().features.incompatible & Features::STREAMS,
        0
    );
}

#[test]
fn unknown_policies_are_refused() {
    let mut machine = Machine::new(4, 8, 100);
    for (properties, why) in [
        (
            Properties {
                placement: 8,
                ..PROPERTIES
            },
            "there is no placement of number 8",
        ),
        (
            Properties {
                victim_policy: 9,
                ..PROPERTIES
            },
            "there is no victim policy of number 9",
        ),
    ] {
        assert_eq!(
            machine.command(Control::SetProperties(properties)),
            Some(Err(ControlError::Invalid(why.into())))
        );
    }
}

#[test]
fn a_placement_that_would_take_too_much_memory_is_refused_and_left_out_at_a_start() {
    let mut story = Story::new();
    assert_eq!(
        story.set(Properties {
            placement: 6,
            victim_policy: 6,
            ..WIDE
        }),
        Some(Ok(ControlReply::Done))
    );
    let bytes = story.status().placement_bytes;
    assert!(bytes > 2 << 20 && bytes < 4 << 20, "{bytes}");
    let mut options = Machine::options();
    options.limits.placement_bytes = bytes - 1;
    let mut machine = Machine::open_with(story.machine.memory, &options);
    let status = machine.engine.status();
    assert_eq!((status.placement_bytes, status.user_streams), (0, 1));
    let answer = machine.command(Control::SetProperties(Properties {
        placement: 5,
        ..WIDE
    }));
    assert_eq!(
        answer,
        Some(Ok(ControlReply::Done)),
        "generations keep nothing"
    );
    let answer = machine.command(Control::SetProperties(Properties {
        placement: 6,
        ..WIDE
    }));
    let Some(Err(ControlError::Invalid(refused))) = answer else {
        panic!("{answer:?}")
    };
    assert!(
        refused.starts_with("placement 'learned' would keep")
            && refused.contains(&format!("{} are allowed", bytes - 1)),
        "{refused}"
    );
}

//! Command order at a member: reads and durability commands overtake cleaning, which is held back
//! for them and still makes progress (docs/internals/scheduling.md).
//!
//! Members here end only the commands that a story lets them end, in the order in which they were
//! sent.

use crate::machine;

use machine::{Machine, numbers::Numbers};
use std::collections::VecDeque;
use windrow_engine::*;
use windrow_geometry::Redundancy;
use windrow_io::*;
use windrow_types::{MemberId, VolumeId};

/// Number of requests waiting or in flight.
const DEPTH: u64 = 32;
/// Most bytes of writes and background reads in flight at a member while a client reads or flushes
/// and space is short: two windows of 1 MiB.
const UNDER_WAY_MAX: u64 = 2 << 20;

/// A full pool under a load of random overwrites, each 16th followed by a flush and a read.
struct Load {
    machine: Machine,
    volume: VolumeId,
    /// Commands sent to members and not ended, in order.
    queue: VecDeque<MemberCommand>,
    blocks: u64,
    numbers: Numbers,
    asked: u64,
    answers: Vec<Completion>,
}

impl Load {
    fn new() -> Self {
        let mut machine = Machine::with_rows(Redundancy::Single, 3, 64, 64, 128);
        let blocks = machine.engine.status().plan.usable_bytes / 4096;
        let volume = machine.volume(blocks * 4096);
        let mut load = Self {
            machine,
            volume,
            queue: VecDeque::new(),
            blocks,
            numbers: Numbers(1),
            asked: 0,
            answers: Vec::new(),
        };
        for lba in 0..blocks {
            load.write(lba);
            load.keep_up();
        }
        load
    }

    fn ask(&mut self, id: u64, op: Op) {
        self.asked += 1;
        self.machine.events.push(Event::Request(Request {
            id: RequestId(id),
            volume: self.volume,
            op,
        }));
        self.apply();
    }

    /// The first bytes of a block hold its number.
    fn write(&mut self, lba: u64) {
        let mut bytes = [1u8; 4096];
        bytes[..8].copy_from_slice(&lba.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.asked.to_le_bytes());
        self.ask(
            lba,
            Op::Write {
                offset: lba * 4096,
                data: Payload::copy_of(&bytes),
                fua: false,
            },
        );
    }

    fn read(&mut self, lba: u64) {
        self.ask(
            lba,
            Op::Read {
                offset: lba * 4096,
                length: 4096,
            },
        );
    }

    fn apply(&mut self) {
        let machine = &mut self.machine;
        while !machine.events.is_empty() {
            machine.engine.apply(&mut machine.events, &mut machine.out);
            assert_eq!(machine.engine.self_check(), Ok(()));
            for mut job in std::mem::take(&mut machine.out.jobs) {
                job.run();
                machine.events.push(Event::Job(job));
            }
            self.queue.extend(machine.out.commands.drain(..));
            for answer in machine.out.completions.drain(..) {
                if let Ok(Reply::Data(parts)) = &answer.result {
                    assert_eq!(parts[0][..8], answer.id.0.to_le_bytes(), "another block");
                }
                assert!(answer.result.is_ok(), "{answer:?}");
                self.answers.push(answer);
            }
        }
    }

    fn unanswered(&self) -> u64 {
        self.asked - self.answers.len() as u64
    }

    /// Ends the command at this position of the queue.
    fn end(&mut self, at: usize) {
        if let Some(command) = self.queue.remove(at) {
            self.machine.carry_out(command);
            self.apply();
        }
    }

    fn pass(&mut self, ns: u64) {
        self.machine.now_ns += ns;
        self.machine.events.push(Event::Tick(self.machine.now_ns));
        self.apply();
    }

    /// Lets members end commands until few requests wait.
    fn keep_up(&mut self) {
        while self.unanswered() >= DEPTH {
            if self.queue.is_empty() {
                self.pass(20_000_000)
            } else {
                self.end(0)
            }
        }
    }

    /// One step of the load.
    fn step(&mut self) {
        let lba = self.numbers.below(self.blocks);
        self.write(lba);
        if self.numbers.draw().is_multiple_of(16) {
            // Requests that wait for these are not delayed by commands sent before, if possible.
            let sent = self.queue.len();
            self.ask(0, Op::Flush);
            let lba = self.numbers.below(self.blocks);
            self.read(lba);
            while self.queue.len() > sent {
                self.end(sent);
            }
        }
        self.keep_up();
    }

    fn held(&self) -> u64 {
        self.machine.engine.status().held_commands
    }

    /// Continues the load until at least this much is held back; nothing waits for room then.
    fn until_held(&mut self, least: u64) {
        for _ in 0..20_000 {
            self.step();
            if self.held() >= least && self.unanswered() == 0 {
                return;
            }
        }
        panic!("never so much: {}", self.machine.engine.describe());
    }

    /// Bytes in flight at a member, without reads of a single block.
    fn under_way(&self, member: usize) -> u64 {
        let of_it = self
            .queue
            .iter()
            .filter(|command| command.member.index() == member);
        let bytes = of_it.map(|command| match &command.op {
            MemberOp::Write { buf, .. } => buf.len() as u64,
            MemberOp::Read { buf, .. } if buf.len() > 4096 => buf.len() as u64,
            _ => 0,
        });
        bytes.sum()
    }

    /// Ends everything in flight, and what follows from it.
    fn run_out(&mut self) {
        for _ in 0..200 {
            while !self.queue.is_empty() {
                self.end(0);
            }
            self.pass(20_000_000);
        }
        assert_eq!(
            (self.unanswered(), self.held()),
            (0, 0),
            "{}",
            self.machine.engine.describe()
        );
    }

    /// Checks that written data is readable (one block of seven), and that the members' counters
    /// agree with the engine's.
    fn check(&mut self) {
        self.run_out();
        for lba in (0..self.blocks).step_by(7) {
            self.read(lba);
            while !self.queue.is_empty() {
                self.end(0);
            }
        }
        self.run_out();
        let status = self.machine.engine.status();
        // The harness counts from the creation of the pool on, the engine from the start.
        let counted: Vec<u64> = status
            .member_stats
            .iter()
            .map(|stats| stats.written.total())
            .collect();
        let differences: Vec<u64> = self
            .machine
            .memory
            .written
            .iter()
            .zip(&counted)
            .map(|(device, engine)| device - engine)
            .collect();
        assert!(
            differences
                .iter()
                .all(|difference| *difference == differences[0]),
            "{differences:?}"
        );
    }
}

/// Regression: a user read waited for everything that cleaning had sent before.
#[test]
fn reads_overtake_what_is_held_of_cleaning() {
    let mut load = Load::new();
    for _ in 0..20 {
        load.until_held(3);
        let (held, sent) = (load.held(), load.queue.len());
        let most = (0..3).map(|member| load.under_way(member)).max();
        assert!(
            most <= Some(UNDER_WAY_MAX),
            "{most:?} bytes are in front of a read"
        );
        // A block that is in the log and not in flight.
        let lba = (0..).find(|lba| {
            load.read(*lba);
            load.unanswered() == 1
        });
        assert_eq!(
            load.queue.len(),
            sent + 1,
            "the read of block {lba:?} went at once"
        );
        assert!(
            load.held() >= held,
            "although others are held back: {} of {held}",
            load.held()
        );
        load.end(sent);
        assert_eq!(load.unanswered(), 0, "and nothing else had to end for it");
    }
    load.check();
}

/// A flush served by the journal is answered while nothing else ends at any member.
#[test]
fn records_of_the_journal_overtake_what_is_held_of_cleaning() {
    let mut load = Load::new();
    let mut by_journal = 0;
    for _ in 0..20 {
        load.until_held(3);
        let (sent, rounds) = (
            load.queue.len(),
            load.machine.engine.status().journal.rounds,
        );
        load.write(7);
        load.ask(0, Op::Flush);
        // Only commands sent after it end.
        while load.queue.len() > sent {
            load.end(sent);
        }
        by_journal += u32::from(
            load.unanswered() == 0 && load.machine.engine.status().journal.rounds > rounds,
        );
    }
    // The log serves those for which it is cheaper.
    assert!(by_journal >= 10, "{by_journal} of 20");
    load.check();
}

/// An endless sequence of reads is always answered first; of the rest one command ends for sixteen
/// of them.
#[test]
fn cleaning_continues_under_endless_reads() {
    let mut load = Load::new();
    load.until_held(3);
    let cleaned = load.machine.engine.status().segments_cleaned;
    let held = load.held();
    let mut ends = 0;
    while load.held() > 0 || load.machine.engine.status().segments_cleaned < cleaned + 8 {
        ends += 1;
        assert!(
            ends < 20_000,
            "held {held}, now {}; {}",
            load.held(),
            load.machine.engine.describe()
        );
        let sent = load.queue.len();
        for _ in 0..16 {
            let lba = load.numbers.below(load.blocks);
            load.read(lba);
        }
        while load.queue.len() > sent {
            load.end(sent);
        }
        assert_eq!(load.unanswered(), 0);
        if ends % 4 == 0 {
            let lba = load.numbers.below(load.blocks);
            load.write(lba);
            load.machine.now_ns += 1_000_000;
            load.pass(0);
        }
        load.end(0);
        load.keep_up();
    }
    load.check();
}

/// A member that never ends a command: commands held for it end as failed when it is taken out,
/// without having been sent.
#[test]
fn commands_held_for_an_unresponsive_member_end_when_it_is_taken_out() {
    let mut load = Load::new();
    let hung = MemberId(2);
    load.until_held(3);
    // From now on it does not answer; the others continue until its outstanding commands block
    // everything.
    for _ in 0..10_000 {
        if load.unanswered() < DEPTH {
            let lba = load.numbers.below(load.blocks);
            load.write(lba);
        }
        match load.queue.iter().position(|command| command.member != hung) {
            Some(at) => load.end(at),
            None if load.unanswered() < DEPTH => {}
            None => break,
        }
    }
    assert!(load.held() > 0, "{}", load.machine.engine.describe());
    let (member, sent) = (
        hung.index(),
        load.queue
            .iter()
            .filter(|command| command.member == hung)
            .count(),
    );
    let command = |change| ControlRequest {
        id: ControlId(1),
        command: Control::Member {
            member: hung,
            change,
        },
    };
    load.machine
        .events
        .push(Event::Control(command(MemberChange::TakeOut)));
    load.machine.events.push(Event::Control(ControlRequest {
        id: ControlId(2),
        ..command(MemberChange::Settle)
    }));
    load.apply();
    assert_eq!(
        load.held(),
        0,
        "nothing is held for it any more, and nothing for others"
    );
    for _ in 0..400 {
        match load.queue.iter().position(|command| command.member != hung) {
            Some(at) => load.end(at),
            None => load.pass(20_000_000),
        }
    }
    assert_eq!(
        load.queue
            .iter()
            .filter(|command| command.member == hung)
            .count(),
        sent,
        "nothing more was sent to it"
    );
    let answered = |load: &Load, id| {
        load.machine
            .out
            .control
            .iter()
            .any(|answer| answer.id == ControlId(id) && answer.result.is_ok())
    };
    assert!(
        answered(&load, 1) && !answered(&load, 2),
        "what was sent to it is still with it"
    );
    while let Some(at) = load.queue.iter().position(|command| command.member == hung) {
        load.end(at);
    }
    load.run_out();
    assert!(answered(&load, 2), "settled");
    assert_eq!(
        load.machine.engine.status().member_stats[member].errors,
        0,
        "it saw nothing of what was held for it"
    );
    load.check();
}

/// Ends the commands held by the harness at a time, and holds the following ones.
fn end_at(machine: &mut Machine, ms: u64) {
    machine.now_ns = ms * 1_000_000;
    for command in machine.held.replace(Vec::new()).unwrap_or_default() {
        machine.carry_out(command);
    }
    machine.events.push(Event::Tick(machine.now_ns));
    machine.settle();
}

/// One write, its flush, its sealing to the log, and its read, with members that take a known time
/// for each.
#[test]
fn stages_show_where_the_time_went() {
    let mut machine = Machine::journalled(Redundancy::Single, 4, 32, 1 << 20);
    let volume = machine.volume(1 << 20);
    let stage = |machine: &Machine, name: &str| {
        let times = machine
            .engine
            .stage_times()
            .into_iter()
            .find(|shown| shown.stage == name)
            .expect("a stage")
            .times;
        (times.count, times.max_ns / 1_000_000)
    };
    // The volume's creation is durable: by the journal, at a time that stood still.
    let before = ["log_flush", "write_open", "write_members"].map(|name| stage(&machine, name).0);
    assert_eq!(
        [
            "journal_write",
            "journal_flush",
            "flush_wait",
            "write_admission"
        ]
        .map(|name| stage(&machine, name)),
        [(1, 0), (1, 0), (0, 0), (0, 0)]
    );
    end_at(&mut machine, 10);
    machine.write(volume, 3, 9);
    machine.flush(volume);
    end_at(&mut machine, 13);
    assert_eq!(
        (
            stage(&machine, "journal_write"),
            stage(&machine, "journal_flush").0
        ),
        ((2, 3), 1)
    );
    end_at(&mut machine, 18);
    assert_eq!(machine.completions.len(), 2, "the flush is answered");
    assert_eq!(
        [
            stage(&machine, "write_admission"),
            stage(&machine, "flush_wait"),
            stage(&machine, "journal_flush")
        ],
        [(1, 0), (1, 0), (2, 5)]
    );
    // The open batch is sealed when it is old, and its members take 4 ms.
    end_at(&mut machine, 1010);
    end_at(&mut machine, 1014);
    // The volume's record has been in it from the beginning.
    assert_eq!(stage(&machine, "write_open"), (before[1] + 1, 1010));
    assert_eq!(
        (
            stage(&machine, "write_members"),
            stage(&machine, "write_commit").1
        ),
        ((before[2] + 1, 4), 0)
    );
    machine.request(
        volume,
        Op::Read {
            offset: 3 * 4096,
            length: 4096,
        },
    );
    machine.settle();
    end_at(&mut machine, 1021);
    assert_eq!(
        (
            stage(&machine, "read_member"),
            stage(&machine, "read_verify").0,
            stage(&machine, "read_rebuild").0
        ),
        ((1, 7), 0, 0)
    );
    assert_eq!(
        (
            stage(&machine, "held_background").0,
            stage(&machine, "log_flush").0 >= before[0]
        ),
        (0, true)
    );
}

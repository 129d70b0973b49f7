//! Event loop that drives one engine: virtual clock, member commands and jobs that end in an order
//! drawn from the seed, answers checked by the model.
//!
//! A *turn*:
//! 1. The clock advances to the next end of a command or job (or to the engine's wake time).
//! 2. Everything that has ended by then, and all new submissions, go to the engine in one `apply`.
//! 3. The resulting commands are started with drawn durations; answers go to the model.

mod answers;
mod branches;
mod checks;
mod commands;
mod pace;

pub use branches::Cuts;

use crate::members::{Started, VirtualMembers};
use crate::model::{Model, VolumeChange};
use crate::run::{Canary, Tries};
use crate::spread::Spread;
use crate::trace::Trace;
use crate::violation::{Broken, Violation, ensure};
use std::collections::{BTreeMap, BTreeSet};
use windrow_engine::{
    ControlError, ControlId, ControlReply, Engine, Event, Job, OpenError, OpenOptions, OpenReport,
    Outbox, PoolStatus,
};
use windrow_io::{BufPool, MemberCommand, MemberIo, MemberOp, RequestId};
use windrow_random::Rng;
use windrow_types::{MemberId, VolumeId};

/// Turns without any effect after which a pool with outstanding work is stuck.
const IDLE_TURNS_MAX: u32 = 5_000;
/// Turns between two self-checks of the engine: they scan every segment.
const SELF_CHECK_TURNS: u64 = 8;
/// Turns without an answer after which a pool with outstanding answers is stuck, however busy it
/// is. (With a member that answers no reads for 100 s, reads that wait for a hedge wake the engine
/// every few milliseconds.)
const SILENT_TURNS_MAX: u32 = 100_000;
/// A turn of this length, with a command in flight and no new work, counts as waiting.
const WAITS_NS: u64 = 100_000;
/// Maximum lag of the engine's clock.
const LATE_NS: u64 = 1_000_000_000;
/// Limit of turns for quiescing.
const REST_TURNS_MAX: u32 = 50_000;
/// Limit of turns for one wait.
pub const TURNS_MAX: u64 = 2_000_000;
/// Idle memory kept in the buffers of a world.
pub const BUFFER_BYTES_KEPT: usize = 16 << 20;

enum Pending {
    Command(Started),
    Job(Job),
}

/// An unanswered control command.
enum Commanded {
    Volume(VolumeChange),
    Properties,
    /// May be refused.
    Scrub,
    /// For this volume, which may be deleted.
    Setting(VolumeId, &'static str),
    /// The requester takes the answer.
    Member,
    /// Same, and it waits for the commands of a member.
    Settle,
    Other,
}

/// Reason that a start did not yield an engine.
#[derive(Debug)]
pub enum StartFailure {
    /// The power went.
    PowerCut,
    /// The engine refused.
    Refused(String),
}

/// One pool under simulation, with its members, its clients' view and its clock.
pub struct World {
    /// The members.
    pub members: VirtualMembers,
    /// Reference model.
    pub model: Model,
    /// Trace of the run.
    pub trace: Trace,
    /// Faulty members: the engine may latch them out and repair from others.
    pub failing_members: BTreeSet<MemberId>,
    /// Members with failed reads since the start: data in flight at that time may be repaired when
    /// they are healthy again.
    pub flaky: BTreeSet<MemberId>,
    /// First blocks of reads that failed in the comparison.
    pub unreadable: BTreeSet<(VolumeId, u64)>,
    /// Blocks that the engine has reported as repaired by a read.
    pub repaired: BTreeSet<(VolumeId, u64)>,
    /// Number of labels that the engine has reported as rewritten.
    pub labels_written: u64,
    /// Blocks that the engine has reported as lost.
    pub told_lost: BTreeSet<(VolumeId, u64)>,
    /// Placement of the model's blocks in the engine's volumes.
    pub spread: Spread,
    /// Answers to operations that may be refused.
    pub tries: Tries,
    /// Injected bug of the engine.
    pub injected: Canary,
    /// Weak fingerprints: different blocks have the same one.
    weak_fingerprints: bool,
    /// Reason of the last refused start.
    pub refusal: Option<OpenError>,
    engine: Option<Engine>,
    buffers: BufPool,
    rng: Rng,
    paces: Vec<pace::Pace>,
    left_behind: Option<pace::LeftBehind>,
    now_ns: u64,
    sequence: u64,
    pending: BTreeMap<(u64, u64), Pending>,
    /// Ranges being written or discarded, by member: offset, length, tag.
    busy: Vec<Vec<(u64, u64, u64)>>,
    wake_at_ns: Option<u64>,
    events: Vec<Event>,
    outbox: Outbox,
    changes: BTreeMap<ControlId, Commanded>,
    /// Unclaimed answers to member commands.
    answers: BTreeMap<ControlId, Result<ControlReply, ControlError>>,
    /// Bytes that the engine counted for devices replaced since the start.
    former_bytes: u64,
    reading_back: BTreeMap<RequestId, (VolumeId, u64)>,
    /// Bytes that the members had read at the end of the start: recovery counts no reads.
    read_before: Vec<u64>,
    /// Minimum of usable bytes since properties began to change, or in the last turn of a growing
    /// pool.
    usable_bytes: u64,
    /// Used bytes before the last turn: the space that a trim freed in it was occupied when a write
    /// was refused.
    used_bytes: u64,
    /// Number of buffer owners outside the engine.
    handles_outside: usize,
    /// Bytes of memory for maps at that time.
    map_bytes: u64,
    grows: bool,
    /// Members that the engine has reported as gone for good.
    pub gone: Vec<MemberId>,
    /// Buffers alive at the end of the start.
    handles_at_start: usize,
    next_id: u64,
    idle_turns: u32,
    silent_turns: u32,
    turns: u64,
    stopping: bool,
    exporting: bool,
    read_only: bool,
}

impl World {
    /// A world around members.
    pub fn new(seed: u64, members: VirtualMembers, story: bool) -> Self {
        Self::with_buffers(seed, members, story, BufPool::new(BUFFER_BYTES_KEPT))
    }

    /// A world around members, with reused buffers.
    pub fn with_buffers(seed: u64, members: VirtualMembers, story: bool, buffers: BufPool) -> Self {
        let mut rng = Rng::stream(seed, "devices");
        let count = members.member_count();
        let paces = (0..count)
            .map(|_| pace::Pace::new(rng.between(50, 200)))
            .collect();
        Self {
            members,
            model: Model::default(),
            trace: Trace::new(story),
            failing_members: BTreeSet::new(),
            flaky: BTreeSet::new(),
            unreadable: BTreeSet::new(),
            repaired: BTreeSet::new(),
            labels_written: 0,
            told_lost: BTreeSet::new(),
            spread: Spread::default(),
            tries: Tries::default(),
            injected: Canary::None,
            weak_fingerprints: Rng::stream(seed, "weak fingerprints").chance(500),
            refusal: None,
            engine: None,
            handles_outside: buffers.handles(),
            buffers,
            rng,
            paces,
            left_behind: None,
            now_ns: 1_000_000,
            sequence: 0,
            pending: BTreeMap::new(),
            busy: vec![Vec::new(); count],
            wake_at_ns: None,
            events: Vec::new(),
            outbox: Outbox::default(),
            changes: BTreeMap::new(),
            answers: BTreeMap::new(),
            former_bytes: 0,
            reading_back: BTreeMap::new(),
            read_before: vec![0; count],
            usable_bytes: u64::MAX,
            used_bytes: 0,
            map_bytes: u64::MAX,
            grows: false,
            gone: Vec::new(),
            handles_at_start: 0,
            next_id: 1,
            idle_turns: 0,
            silent_turns: 0,
            turns: 0,
            stopping: false,
            exporting: false,
            read_only: false,
        }
    }

    /// Virtual time.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Starts the engine on the current members.
    pub fn start(&mut self, options: &OpenOptions) -> Result<OpenReport, StartFailure> {
        // The previous engine is gone, and so is everything that it held.
        assert_eq!(
            self.buffers.handles(),
            self.handles_outside,
            "buffers outlive their engine"
        );
        self.members.reset_received();
        self.former_bytes = 0;
        self.flaky.clear();
        let opened = Engine::open(&mut self.members, self.buffers.clone(), options);
        if self.members.is_cut() {
            return Err(StartFailure::PowerCut);
        }
        let (mut engine, report) = opened.map_err(|error| {
            self.refusal = Some(error.clone());
            StartFailure::Refused(error.to_string())
        })?;
        if self.weak_fingerprints {
            engine.inject_weak_fingerprints();
        }
        if let Canary::InEngine(bug) = self.injected {
            engine.inject(bug);
        }
        self.trace.add(report.recovery_lsn.0);
        self.trace
            .tell(|| format!("{} start: {report:?}", self.now_ns));
        self.engine = Some(engine);
        // The engine receives the time before anything else, as from any driver.
        self.wake_at_ns = Some(self.now_ns);
        self.read_before = (0..self.members.member_count())
            .map(|m| self.members.member(MemberId(m as u8)).received.read_bytes)
            .collect();
        (self.stopping, self.exporting) = (false, false);
        self.read_only = options.read_only;
        self.handles_at_start = self.buffers.handles();
        Ok(report)
    }

    /// The engine's status.
    ///
    /// # Panics
    /// If there is no engine: the caller has just started it.
    pub fn status(&self) -> PoolStatus {
        match &self.engine {
            Some(engine) => self.spread.known_status(engine.status()),
            None => unreachable!("status is asked of a running pool only"),
        }
    }

    /// LSNs durable in the log, and in log or journal; 0 without an engine.
    pub fn durable_lsns(&self) -> (u64, u64) {
        let lsns = self.engine.as_ref().map(Engine::durable_lsns);
        lsns.map_or((0, 0), |(log, all)| (log.0, all.0))
    }

    /// True if the member is in service and not being rebuilt.
    pub fn is_whole(&self, member: MemberId) -> bool {
        self.engine
            .as_ref()
            .is_some_and(|engine| engine.is_whole(member))
    }

    /// True if flushes are served by journal devices.
    pub fn uses_journal_devices(&self) -> bool {
        self.engine
            .as_ref()
            .is_some_and(Engine::uses_journal_devices)
    }

    /// True if there is an engine.
    pub fn is_up(&self) -> bool {
        self.engine.is_some()
    }

    /// Cuts the power: the engine is lost with everything in flight. Returns the newest LSN that it
    /// had assigned.
    pub fn power_cut(&mut self) -> u64 {
        let read_only = self.read_only;
        self.model.scarce_pages |= self.is_up() && self.pages_may_be_scarce();
        let newest = self.engine.take().map_or(0, |engine| {
            let status = engine.status();
            if !read_only {
                self.model.claimed_durable(status.durable_lsn.0);
            }
            status.lsn.0
        });
        let started = std::mem::take(&mut self.pending)
            .into_values()
            .filter_map(|pending| match pending {
                Pending::Command(started) => Some(started),
                Pending::Job(_) => None,
            });
        let started: Vec<Started> = started.collect();
        self.trace.tell(|| {
            let cached: usize = (0..self.paces.len()).map(|m| self.members.member(MemberId(m as u8)).cached_writes()).sum();
            format!("{} power cut: {} commands in flight, {cached} writes cached, newest order {newest}", self.now_ns, started.len())
        });
        self.members.power_cut(started);
        self.busy.iter_mut().for_each(Vec::clear);
        self.wake_at_ns = None;
        self.end_hangs();
        self.events.clear();
        self.outbox = Outbox::default();
        self.changes.clear();
        self.answers.clear();
        self.reading_back.clear();
        newest
    }

    /// Number of unanswered requests and control commands.
    pub fn unanswered(&self) -> usize {
        self.model.in_flight() + self.changes.len()
    }

    /// Number of unanswered control commands.
    pub fn unanswered_controls(&self) -> usize {
        self.changes.len()
    }

    /// One line: pending work, and the engine's own summary.
    pub fn summary(&self) -> String {
        let requests = self.model.describe_in_flight();
        let Some(engine) = &self.engine else {
            return format!("no engine; waiting: {requests}");
        };
        let status = engine.status();
        format!(
            "{} requests and {} control commands wait ({requests}); state {}, {} free of {} segments, {} of {} bytes used, {} pending, {} at risk, orders {} \
             (durable {}), {} cleaned, {} checkpoints; {}",
            self.model.in_flight(),
            self.changes.len(),
            status.state,
            status.free_segments,
            status.plan.segments,
            status.used_bytes,
            status.plan.usable_bytes,
            status.pending_bytes,
            status.at_risk_bytes,
            status.lsn,
            status.durable_lsn,
            status.segments_cleaned,
            status.checkpoints,
            engine.describe()
        )
    }

    /// Number of commands and jobs in flight.
    pub fn under_way(&self) -> usize {
        self.pending.len()
    }

    /// Runs one turn; false if nothing is in flight and nothing will ever happen by itself.
    pub fn turn(&mut self) -> Result<bool, Violation> {
        let began_ns = self.now_ns;
        let due = self.pending.first_key_value().map(|((time, _), _)| *time);
        let next = [due, self.wake_at_ns].into_iter().flatten().min();
        self.check_patience(next.unwrap_or(0))?;
        match next {
            None if self.events.is_empty() => return Ok(false),
            Some(time) if self.events.is_empty() => self.now_ns = self.now_ns.max(time),
            _ => self.now_ns += self.rng.below(2_000),
        }
        let window = if self.rng.chance(300) {
            self.rng.below(100_000)
        } else {
            0
        };
        let until = self.now_ns + window;
        while let Some(entry) = self
            .pending
            .first_entry()
            .filter(|entry| entry.key().0 <= until)
        {
            let ended = entry.remove();
            self.ended(ended);
        }
        self.now_ns = until;
        if self.wake_at_ns.is_some_and(|time| time <= self.now_ns) {
            self.wake_at_ns = None;
            self.events.insert(0, Event::Tick(self.now_ns));
        } else if self.rng.chance(300) || self.now_ns - began_ns >= LATE_NS {
            // (A driver does so each time.)
            self.events.push(Event::Tick(self.now_ns));
        }
        let Some(engine) = &mut self.engine else {
            return Ok(false);
        };
        (self.usable_bytes, self.map_bytes) = (u64::MAX, u64::MAX);
        self.used_bytes = engine.used_bytes();
        let is_changing = self.model.is_changing_properties();
        let limits_move = self.grows || is_changing;
        let status = (limits_move || self.model.trims_edges()).then(|| engine.status());
        if limits_move && let Some(status) = &status {
            self.usable_bytes = status.plan.usable_bytes;
            self.map_bytes = if self.grows {
                status.limits.map_bytes
            } else {
                u64::MAX
            };
        }
        let before = (self.usable_bytes, self.map_bytes, self.used_bytes);
        let bytes = self.model.bytes_in_flight();
        if self.model.trims_edges()
            && let Some(status) = &status
            && answers::is_full(status, before, is_changing, bytes)
        {
            self.model.note_full();
        }
        engine.apply(&mut self.events, &mut self.outbox);
        ensure!(
            self.events.is_empty(),
            Protocol,
            "apply left {} events",
            self.events.len()
        );
        self.turns += 1;
        if self.turns.is_multiple_of(SELF_CHECK_TURNS)
            && let Err(text) = engine.self_check()
        {
            return Err(Violation::new(Broken::Protocol, text));
        }
        self.effects(began_ns)?;
        ensure!(
            self.silent_turns < SILENT_TURNS_MAX,
            Stuck,
            "busy without an answer; {}",
            self.summary()
        );
        ensure!(
            self.idle_turns < IDLE_TURNS_MAX || self.unanswered() == 0,
            Stuck,
            "nothing happens; {}",
            self.summary()
        );
        Ok(true)
    }

    /// Runs turns while the condition holds. An idle pool whose condition still holds is stuck.
    pub fn run_while(
        &mut self,
        what: &str,
        mut condition: impl FnMut(&Self) -> bool,
    ) -> Result<(), Violation> {
        for _ in 0..TURNS_MAX {
            if !condition(self) {
                return Ok(());
            }
            let alive = self.turn()?;
            ensure!(
                alive || !condition(self),
                Stuck,
                "{what}: nothing in progress; {}",
                self.summary()
            );
        }
        Err(Self::without_end(what))
    }

    /// Violation: more turns than anything takes.
    pub fn without_end(what: &str) -> Violation {
        Violation::new(
            Broken::Stuck,
            format!("{what}: no end after {TURNS_MAX} turns"),
        )
    }

    /// Runs turns until nothing is in flight and the engine wants nothing.
    pub fn run_to_rest(&mut self) -> Result<(), Violation> {
        self.run_while("coming to rest", |world| world.unanswered() > 0)?;
        let mut quiet = 0;
        for _ in 0..REST_TURNS_MAX {
            let alive = self.turn()?;
            quiet = if self.pending.is_empty() {
                quiet + 1
            } else {
                0
            };
            // Work that waits for its time (a batch that is not full) is not at rest.
            let engine_is_quiet = self.engine.as_ref().is_none_or(Engine::is_quiet);
            if !alive || (quiet > 200 && (engine_is_quiet || quiet > 10_000)) {
                return Ok(());
            }
        }
        Err(Violation::new(
            Broken::Stuck,
            format!("the pool never quiesces; {}", self.summary()),
        ))
    }

    fn ended(&mut self, pending: Pending) {
        match pending {
            Pending::Command(started) => {
                let (member, tag) = (started.command.member, started.command.tag.0);
                let done = self.members.finish(started);
                self.busy[member.index()].retain(|(_, _, busy)| *busy != tag);
                self.trace.add(tag << 8 | u64::from(member.0));
                self.events.push(Event::Member(done));
            }
            Pending::Job(mut job) => {
                job.run();
                self.events.push(Event::Job(job));
            }
        }
    }

    /// Performs the engine's effects after a turn that began at this time.
    fn effects(&mut self, began_ns: u64) -> Result<(), Violation> {
        let mut outbox = std::mem::take(&mut self.outbox);
        let busy = !(outbox.commands.is_empty()
            && outbox.jobs.is_empty()
            && outbox.completions.is_empty()
            && outbox.control.is_empty());
        let answers = outbox.completions.len() + outbox.control.len();
        // (A member may hang for minutes, and the engine may check every millisecond: seed
        // 10282391.)
        let waits = !busy && !self.pending.is_empty() && self.now_ns - began_ns >= WAITS_NS;
        self.silent_turns = if answers > 0 || self.unanswered() == 0 {
            0
        } else {
            self.silent_turns + u32::from(!waits)
        };
        self.idle_turns = if busy || !self.pending.is_empty() {
            0
        } else {
            self.idle_turns + 1
        };
        for command in outbox.commands.drain(..) {
            self.start_command(command)?;
        }
        for job in outbox.jobs.drain(..) {
            let duration = self.rng.between(1_000, 200_000);
            self.schedule(duration, Pending::Job(job));
        }
        // (Requests are refused for it in the same turn.)
        self.model.exhausted |= outbox
            .notices
            .iter()
            .any(|notice| matches!(notice, windrow_engine::Notice::Exhausted { .. }));
        for completion in outbox.completions.drain(..) {
            self.completed(&completion)?;
        }
        for completion in outbox.control.drain(..) {
            self.control_completed(&completion)?;
        }
        for notice in outbox.notices.drain(..) {
            self.noticed(&notice)?;
        }
        if let Some(time) = outbox.wake_at_ns.take() {
            self.wake_at_ns = Some(self.wake_at_ns.map_or(time, |other| other.min(time)));
        }
        self.outbox = outbox;
        Ok(())
    }

    fn schedule(&mut self, duration_ns: u64, pending: Pending) {
        self.sequence += 1;
        self.pending
            .insert((self.now_ns + duration_ns, self.sequence), pending);
    }

    fn start_command(&mut self, command: MemberCommand) -> Result<(), Violation> {
        let member = command.member.index();
        ensure!(
            member < self.paces.len(),
            Protocol,
            "a command for member {}",
            command.member
        );
        let (kind, offset, length, micros) = match &command.op {
            MemberOp::Read { offset, buf } => (1, *offset, buf.len() as u64, 80),
            MemberOp::Write { offset, buf } => {
                (2, *offset, buf.len() as u64, 60 + buf.len() as u64 / 1024)
            }
            MemberOp::Flush => (3, 0, 0, 800),
            MemberOp::Discard { offset, length } => (4, *offset, *length, 100),
        };
        self.trace
            .add(self.now_ns ^ kind << 56 ^ (member as u64) << 48);
        self.trace.add(offset ^ length << 40);
        if let MemberOp::Write { buf, .. } = &command.op {
            self.trace.add_bytes(buf);
        }
        self.check_command(&command, kind, offset, length)?;
        self.trace.tell(|| {
            format!(
                "{} member {member} {} at {offset} + {length}",
                self.now_ns,
                ["", "read", "write", "flush", "discard"][kind as usize]
            )
        });
        let duration =
            self.paces[member].duration_ns(self.now_ns, kind == 1, micros, &mut self.rng);
        let started = self
            .members
            .start(command, self.paces[member].hangs(self.now_ns));
        self.schedule(duration, Pending::Command(started));
        Ok(())
    }
}

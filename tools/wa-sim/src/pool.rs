//! Windrow on modelled members: the third driver of the engine, in addition to the host and the
//! simulator.
//!
//! A turn:
//! 1. The clock advances to the next end of an operation.
//! 2. If the engine thread is free, all new input goes to the engine in one `apply`, which takes a
//!    given time.
//! 3. When that time is over, its commands go to the devices, its jobs to the least busy worker,
//!    its answers to the tasks. Jobs run immediately; only their time is virtual.
//!
//! Outside virtual time (`settle`) commands and jobs end at once: for filling, and for the steady
//! state.
//!
//! Content: a block holds one word made of its number and the number of its write. Requests in
//! flight never overlap, so a read has one right answer, and every block of it is compared.

use crate::device::{Member, Members, blocks_of};
use crate::load::{Target, Want};
use crate::nand::{Ask, Counters, Wake};
use crate::timings::ProcessorTimings;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use windrow_engine::{
    Control, ControlCompletion, ControlId, ControlReply, ControlRequest, Engine, Event, Job,
    Limits, OpenOptions, Outbox, PoolSpec, PoolStatus,
};
use windrow_io::{
    BufPool, Completion, MemberCommand, MemberDone, MemberOp, Op, Payload, Reply, Request,
    RequestId,
};
use windrow_random::mix;
use windrow_types::{BLOCK_BYTES, BLOCK_SIZE, Uuid, VolumeId};

/// Idle memory kept in the buffers.
const BUFFER_BYTES_KEPT: usize = 64 << 20;
/// Time that passes between two steps outside virtual time.
const STEP_NS: u64 = 1000;
/// Number of steps without an answer after which the pool counts as stuck.
const STEPS_MAX: u32 = 10_000_000;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum What {
    Device(usize, Wake),
    Job(usize),
    Answer(usize),
    Engine,
}

/// A stopped pool: its members, and the content of its volume.
#[derive(Clone, Debug)]
pub struct Image {
    /// The members.
    pub members: Members,
    volume: VolumeId,
    /// Number of the newest write of each block; 0: none.
    versions: Vec<u32>,
}

/// A running pool.
pub struct Pool {
    engine: Engine,
    members: Members,
    processor: ProcessorTimings,
    buffers: BufPool,
    volume: VolumeId,
    versions: Vec<u32>,
    written: u32,
    now_ns: u64,
    heap: BinaryHeap<Reverse<(u64, u64, What)>>,
    sequence: u64,
    events: Vec<Event>,
    out: Outbox,
    /// Blocks of new requests among the events.
    new_blocks: u64,
    engine_free_ns: u64,
    /// Time of the engine's next turn, if known; its other turns in the heap are void.
    engine_at: Option<u64>,
    workers: Vec<u64>,
    jobs: Vec<Option<Job>>,
    free_jobs: Vec<usize>,
    /// Commands in flight, by member and number.
    commands: Vec<Vec<Option<MemberCommand>>>,
    wanted: Vec<Want>,
    control: Vec<ControlCompletion>,
    timed: bool,
}

/// Word of a block after a write.
fn word_of(block: u64, version: u32) -> u64 {
    // Neither all zeroes nor all ones: such blocks take no space.
    mix(block << 32 | u64::from(version)) >> 1 | 1
}

impl Image {
    /// Creates a pool with one volume over this share of the usable space.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn make(
        mut members: Members,
        spec: &PoolSpec,
        live_percent: u64,
        processor: &ProcessorTimings,
    ) -> Result<Self, String> {
        Engine::format(&mut members, spec).map_err(|error| error.to_string())?;
        let image = Self {
            members,
            volume: VolumeId(0),
            versions: Vec::new(),
        };
        let mut pool = Pool::open(image, processor)?;
        let usable = pool.engine.status().plan.usable_bytes;
        let blocks = usable / BLOCK_BYTES * live_percent / 100;
        match pool.command(Control::VolumeCreate {
            name: "data".into(),
            size_bytes: blocks * BLOCK_BYTES,
        })? {
            ControlReply::Volume(volume) => pool.volume = volume,
            ControlReply::Done | ControlReply::Sharing(_) => {
                return Err("no volume was made".into());
            }
        }
        pool.versions = vec![0; blocks as usize];
        pool.close()
    }
}

impl Pool {
    /// Opens a pool.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn open(image: Image, processor: &ProcessorTimings) -> Result<Self, String> {
        let Image {
            mut members,
            volume,
            versions,
        } = image;
        let buffers = BufPool::new(BUFFER_BYTES_KEPT);
        // Blocks repeat eight bytes to save memory, and represent incompressible data.
        let limits = Limits {
            compresses_records: false,
            ..Limits::default()
        };
        let options = OpenOptions {
            host: Uuid([1; 16]),
            read_only: false,
            force: false,
            discard_journal: false,
            limits,
        };
        let (engine, _) = Engine::open(&mut members, buffers.clone(), &options)
            .map_err(|error| error.to_string())?;
        Ok(Self {
            engine,
            commands: members.0.iter().map(|_| Vec::new()).collect(),
            members,
            processor: processor.clone(),
            buffers,
            volume,
            written: versions.iter().copied().max().unwrap_or(0),
            versions,
            now_ns: 1_000_000,
            heap: BinaryHeap::new(),
            sequence: 0,
            events: Vec::new(),
            out: Outbox::default(),
            new_blocks: 0,
            engine_free_ns: 0,
            engine_at: None,
            workers: vec![0; processor.workers.value as usize],
            jobs: Vec::new(),
            free_jobs: Vec::new(),
            wanted: Vec::new(),
            control: Vec::new(),
            timed: false,
        })
    }

    /// Starts the clock.
    pub fn start_clock(&mut self) {
        self.timed = true;
    }

    /// Status reported by the engine.
    pub fn status(&self) -> PoolStatus {
        self.engine.status()
    }

    /// Shuts the pool down, outside virtual time.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn close(mut self) -> Result<Image, String> {
        self.command(Control::Shutdown { export: true })?;
        self.come_to_rest()?;
        Ok(Image {
            members: self.members,
            volume: self.volume,
            versions: self.versions,
        })
    }

    fn come_to_rest(&mut self) -> Result<(), String> {
        for _ in 0..STEPS_MAX {
            if self.heap.is_empty() && self.events.is_empty() {
                return Ok(());
            }
            self.turn()?;
        }
        Err("the members never become idle".into())
    }

    /// Runs an administrative command.
    ///
    /// # Errors
    /// The command's error.
    pub fn command(&mut self, command: Control) -> Result<ControlReply, String> {
        self.event(Event::Control(ControlRequest {
            id: ControlId(1),
            command,
        }));
        for _ in 0..STEPS_MAX {
            if let Some(answer) = self.control.pop() {
                return answer.result.map_err(|error| error.to_string());
            }
            self.turn()?;
        }
        Err("a command is not answered".into())
    }

    fn event(&mut self, event: Event) {
        self.events.push(event);
        self.want_engine(self.now_ns);
    }

    /// Schedules a turn of the engine as soon as its thread is free.
    fn want_engine(&mut self, time_ns: u64) {
        let time_ns = time_ns.max(self.engine_free_ns).max(self.now_ns);
        if self.engine_at.is_none_or(|at| time_ns < at) {
            self.engine_at = Some(time_ns);
            self.at(time_ns, What::Engine);
        }
    }

    fn at(&mut self, time_ns: u64, what: What) {
        self.sequence += 1;
        self.heap.push(Reverse((time_ns, self.sequence, what)));
    }

    /// Handles the next event.
    fn turn(&mut self) -> Result<(), String> {
        let Some(Reverse((time, _, what))) = self.heap.pop() else {
            return Err(format!(
                "nothing is in progress: {}",
                self.engine.describe()
            ));
        };
        self.now_ns = self.now_ns.max(time);
        match what {
            What::Device(member, wake) => {
                self.members.0[member].device.wake(self.now_ns, wake);
                self.look_at(member);
            }
            What::Job(at) => {
                if let Some(job) = self.jobs[at].take() {
                    self.free_jobs.push(at);
                    self.event(Event::Job(job));
                }
            }
            What::Engine if self.engine_at == Some(time) => self.apply()?,
            What::Engine => {}
            What::Answer(task) => {
                return Err(format!("an answer to task {task} that is not waiting"));
            }
        }
        Ok(())
    }

    /// Takes the completions and wakes of a device.
    fn look_at(&mut self, member: usize) {
        let mut wakes = std::mem::take(self.members.0[member].device.wakes());
        wakes
            .drain(..)
            .for_each(|(time, wake)| self.at(time, What::Device(member, wake)));
        *self.members.0[member].device.wakes() = wakes;
        let mut done = std::mem::take(self.members.0[member].device.done());
        for id in done.drain(..) {
            if let Some(command) = self.commands[member][id as usize].take() {
                self.finish(command);
            }
        }
        *self.members.0[member].device.done() = done;
    }

    /// Completes a command: reads or changes the content.
    fn finish(&mut self, command: MemberCommand) {
        let MemberCommand { member, tag, op } = command;
        let content = &mut self.members.0[member.index()].content;
        let buf = match op {
            MemberOp::Read { offset, mut buf } => {
                content.read(offset, &mut buf);
                Some(buf)
            }
            MemberOp::Write { offset, buf } => {
                content.write(offset, &buf);
                Some(buf)
            }
            MemberOp::Flush | MemberOp::Discard { .. } => None,
        };
        self.event(Event::Member(MemberDone {
            member,
            tag,
            buf,
            result: Ok(()),
        }));
    }

    fn apply(&mut self) -> Result<(), String> {
        self.engine_at = None;
        self.events.push(Event::Tick(self.now_ns));
        let blocks = std::mem::take(&mut self.new_blocks);
        self.engine.apply(&mut self.events, &mut self.out);
        let cost = if self.timed {
            self.processor.apply_ns.value + blocks * self.processor.block_ns.value
        } else {
            STEP_NS
        };
        let then = self.now_ns + cost;
        self.engine_free_ns = then;
        let mut out = std::mem::take(&mut self.out);
        for command in out.commands.drain(..) {
            self.start(command, then);
        }
        for mut job in out.jobs.drain(..) {
            job.run();
            self.start_job(job, then);
        }
        for completion in out.completions.drain(..) {
            let id = completion.id.0;
            self.check(&completion)?;
            self.at(then, What::Answer(id as usize));
        }
        self.control.append(&mut out.control);
        if let Some(notice) = out.notices.iter().find(|notice| matches!(notice, windrow_engine::Notice::Stopped { reason } if !reason.is_empty())) {
            return Err(format!("the pool stopped: {notice:?}"));
        }
        out.notices.clear();
        let wake = out.wake_at_ns.take();
        self.out = out;
        if !self.events.is_empty() {
            self.want_engine(then);
        }
        if let Some(wake) = wake {
            self.want_engine(wake.max(then));
        }
        Ok(())
    }

    fn start(&mut self, command: MemberCommand, then: u64) {
        let ask = match &command.op {
            MemberOp::Read { offset, buf } => (*offset, buf.len() as u64, 0),
            MemberOp::Write { offset, buf } => (*offset, buf.len() as u64, 1),
            MemberOp::Flush => (0, 0, 2),
            MemberOp::Discard { offset, length } => (*offset, *length, 3),
        };
        let (block, count) = blocks_of(ask.0, ask.1);
        let ask = match ask.2 {
            0 => Ask::Read { block, count },
            1 => Ask::Write { block, count },
            2 => Ask::Flush,
            _ => Ask::Discard { block, count },
        };
        let member = command.member.index();
        let Member { device, .. } = &mut self.members.0[member];
        if !self.timed {
            device.do_now(ask);
            return self.finish(command);
        }
        let id = device.submit(then, ask) as usize;
        let list = &mut self.commands[member];
        if list.len() <= id {
            list.resize_with(id + 1, || None);
        }
        list[id] = Some(command);
        self.look_at(member);
    }

    fn start_job(&mut self, job: Job, then: u64) {
        if !self.timed {
            return self.event(Event::Job(job));
        }
        let cost = job.bytes() as u64 * self.processor.job_byte_ps.value / 1000;
        let Some(worker) = self.workers.iter_mut().min() else {
            unreachable!("there is a worker")
        };
        *worker = (*worker).max(then) + cost;
        let ends = *worker;
        let at = self.free_jobs.pop().unwrap_or(self.jobs.len());
        if at == self.jobs.len() {
            self.jobs.push(None);
        }
        self.jobs[at] = Some(job);
        self.at(ends, What::Job(at));
    }

    fn request(&mut self, id: u64, want: Want) {
        let op = match want {
            Want::Read { block, count } => Op::Read {
                offset: block * BLOCK_BYTES,
                length: (count * BLOCK_BYTES) as u32,
            },
            Want::Write {
                block,
                count,
                durable,
            } => Op::Write {
                offset: block * BLOCK_BYTES,
                data: self.payload(block, count),
                fua: durable,
            },
            Want::Flush => Op::Flush,
        };
        if let Want::Read { count, .. } | Want::Write { count, .. } = want {
            self.new_blocks += count;
        }
        self.event(Event::Request(Request {
            id: RequestId(id),
            volume: self.volume,
            op,
        }));
    }

    fn payload(&mut self, first: u64, count: u64) -> Payload {
        self.written += 1;
        let mut data = self.buffers.get(count as usize * BLOCK_SIZE);
        for (block, bytes) in (first..).zip(data.chunks_exact_mut(BLOCK_SIZE)) {
            self.versions[block as usize] = self.written;
            let word = word_of(block, self.written).to_le_bytes();
            bytes
                .chunks_exact_mut(8)
                .for_each(|target| target.copy_from_slice(&word));
        }
        data.freeze()
    }

    /// Checks that a read returns the last write.
    fn check(&self, completion: &Completion) -> Result<(), String> {
        let want = self.wanted.get(completion.id.0 as usize);
        let parts = match (&completion.result, want) {
            (Ok(Reply::Data(parts)), Some(Want::Read { .. })) => parts,
            (Ok(_), _) => return Ok(()),
            (Err(error), _) => return Err(format!("{want:?} was answered: {error}")),
        };
        let Some(Want::Read { block, count }) = want else {
            return Ok(());
        };
        let mut at = *block;
        for bytes in parts
            .iter()
            .flat_map(|part| part.bytes().chunks_exact(BLOCK_SIZE))
        {
            let version = self.versions[at as usize];
            let word = if version == 0 {
                0
            } else {
                word_of(at, version)
            }
            .to_le_bytes();
            if bytes[..8] != word || bytes[BLOCK_SIZE - 8..] != word {
                return Err(format!(
                    "block {at} does not hold its newest write ({version})"
                ));
            }
            at += 1;
        }
        if at == block + count {
            Ok(())
        } else {
            Err(format!("a read of {count} blocks gave {}", at - block))
        }
    }

    /// Reads or writes outside virtual time, and waits for the answers.
    ///
    /// # Errors
    /// As [`Target::answers`].
    pub fn do_all(&mut self, wants: &[Want]) -> Result<(), String> {
        self.wanted = wants.to_vec();
        for (id, want) in wants.iter().enumerate() {
            self.request(id as u64, *want);
        }
        let (mut left, mut answers) = (wants.len(), Vec::new());
        while left > 0 {
            self.answers(&mut answers)?;
            left -= answers.drain(..).count();
        }
        Ok(())
    }

    /// The members.
    pub fn members(&self) -> &Members {
        &self.members
    }
}

impl Target for Pool {
    fn span(&self) -> u64 {
        self.versions.len() as u64
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn ask(&mut self, task: usize, want: Want) {
        if self.wanted.len() <= task {
            self.wanted.resize(task + 1, Want::Flush);
        }
        self.wanted[task] = want;
        self.request(task as u64, want);
    }

    fn answers(&mut self, answers: &mut Vec<(usize, u64)>) -> Result<(), String> {
        for _ in 0..STEPS_MAX {
            if let Some(Reverse((time, _, What::Answer(task)))) = self.heap.peek().copied() {
                self.heap.pop();
                self.now_ns = self.now_ns.max(time);
                answers.push((task, self.now_ns));
                return Ok(());
            }
            self.turn()?;
        }
        Err(format!("no answer: {}", self.engine.describe()))
    }

    fn counters(&self) -> Counters {
        self.members.counters()
    }

    fn causes(&self) -> Vec<(&'static str, u64)> {
        let written = self.engine.status().written;
        vec![
            ("user", written.user),
            ("header", written.header),
            ("parity", written.parity),
            ("padding", written.padding),
            ("moved", written.moved),
            ("journal", written.journal),
            ("checkpoint", written.checkpoint),
            ("index", written.index),
            ("superblock", written.superblock),
            ("repair", written.repair + written.rebuild),
        ]
    }
}

#[cfg(test)]
mod tests;

//! The engine itself under a workload, on one member without parity that counts bytes and stores
//! one word of each user block.
//!
//! 1. A pool of one member without redundancy is created, just large enough for the blocks at the
//!    spare factor. Nothing in the engine is disabled, and cleaning verifies its reads. A user
//!    block is derived from one word, so the member stores eight bytes of it, and whole heads,
//!    tables and pages ([`crate::content`]). It is incompressible, so the journal takes the same
//!    space as for incompressible production data.
//! 2. Operations go to the engine a few at a time; its commands are performed at once. Flushes and
//!    writes with FUA are waited for.
//! 3. Cleaning write amplification is `(user + moved) / user` of its own counters.
//!
//! **Differences from the simulated log.** The engine keeps a reserve and holds segments open, in
//! advance, free, and for checkpoints. Segments that a kept checkpoint may replay are no victims.
//! Space outside closed data segments is not available to cleaning, and users do not fill the
//! reserve. So the relevant space is that of the closed data segments, averaged over the steady
//! state: [`Outcome::effective_spare`]. The comparison uses a simulated log with a spare share that
//! gives it as many closed segments ([`Outcome::model`]).

use super::log::{Shape, When};
use super::operation::Operation;
use super::run::{PlacementKind, Plan, Policy, run_with_checkpoints as simulate};
use super::served::shapes_of;
use crate::content::{Content, spread};
use serde::Serialize;
use windrow_engine::{
    Control, ControlCompletion, ControlId, ControlReply, ControlRequest, Engine, Event,
    JournalSpec, Limits, OpenOptions, Outbox, PoolSpec, PoolStatus, WrittenBytes,
};
use windrow_format::superblock::{Properties, RESERVED_BYTES};
use windrow_geometry::Redundancy;
use windrow_io::{
    BufPool, MemberDone, MemberError, MemberIo, MemberOp, Op, Payload, Request, RequestError,
    RequestId,
};
use windrow_random::mix;
use windrow_types::{BLOCK_BYTES, BLOCK_SIZE, MemberId, Uuid, VolumeId};

/// Number of requests passed to the engine at once.
const GROUP: usize = 16;
/// Maximum number of blocks of a write request.
const REQUEST_BLOCKS: u32 = 256;
/// Bytes of the journal on each member, if there is one.
const JOURNAL_BYTES: u64 = 16 << 20;
/// Number of turns without an answer after which the engine counts as stuck.
const TURNS_MAX: u32 = 1_000_000;
/// Number of user writes between two samples of the closed space.
const LOOK: u64 = 4096;

/// A pool for the engine.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct EnginePlan {
    /// Number of blocks of the volume.
    pub blocks: u32,
    /// Rows of a segment: with one data column its blocks, including headers.
    pub segment_rows: u32,
    /// Spare factor of the pool, per mille.
    pub spare_per_mille: u16,
    /// Number of user writes before the steady state.
    pub steady_after: u64,
    /// Number of user writes between requested checkpoints; 0: the engine begins them by itself.
    pub checkpoint_after: u64,
    /// Number of user writes between additional flushes; 0: none.
    pub flush_after: u64,
    /// True if the pool has a journal, of 16 MiB.
    pub journal: bool,
}

/// Results. Shares are of user bytes, in the steady state.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Outcome {
    /// Cleaning write amplification in the steady state.
    pub steady: f64,
    /// Cleaning write amplification of the whole run.
    pub whole: f64,
    /// User blocks written, and blocks moved.
    pub user_blocks: u64,
    /// See [`Outcome::user_blocks`].
    pub moved_blocks: u64,
    /// Headers and tables.
    pub headers: f64,
    /// Padding.
    pub padding: f64,
    /// Checkpoint pages.
    pub checkpoints: f64,
    /// Journal records.
    pub journal: f64,
    /// Spare share of the closed data segments, which cleaning can use.
    pub effective_spare: f64,
    /// Mean number of closed data segments that are not being emptied.
    pub closed_segments: f64,
    /// Payload blocks of a segment.
    pub segment_blocks: u32,
    /// Number of segments, and of those in the reserve.
    pub segments: u32,
    /// See [`Outcome::segments`].
    pub reserve_segments: u32,
    /// Number of user streams and cleaning streams.
    pub user_streams: u8,
    /// See [`Outcome::user_streams`].
    pub moved_streams: u8,
    /// Segments cleaned.
    pub victims: u64,
    /// Mean number of user and moved blocks from one checkpoint to the next.
    pub checkpoint_every: u64,
}

impl Outcome {
    /// Simulated logs with equal space: the one below, the one above (they differ by a segment),
    /// and the weight of the second.
    pub fn equal_shapes(&self, blocks: u32) -> ([Shape; 2], f64) {
        // Half of each open segment is space as well; and the simulated log has a free one.
        let streams = f64::from(self.user_streams + self.moved_streams);
        shapes_of(
            blocks,
            self.segment_blocks,
            self.closed_segments + streams / 2.0 + 1.0,
        )
    }

    /// The cleaning write amplification of the simulated log with the same space, the same
    /// checkpoints and the same policy.
    ///
    /// # Errors
    /// As [`simulate`].
    pub fn model<I: Iterator<Item = Operation>>(
        &self,
        policy: Policy,
        plan: &EnginePlan,
        operations: impl Fn() -> I,
        tell: &mut dyn FnMut(u64) -> bool,
    ) -> Result<f64, String> {
        let (shapes, share) = self.equal_shapes(plan.blocks);
        let mut waf = [0.0; 2];
        for (waf, shape) in waf.iter_mut().zip(shapes) {
            let plan = Plan {
                shape,
                seed: 1,
                window: u64::MAX,
                steady_after: plan.steady_after,
                idle_free: 0,
            };
            *waf = simulate(
                policy,
                &plan,
                When::Every(self.checkpoint_every),
                &operations,
                tell,
            )?
            .steady;
        }
        Ok(waf[0] + (waf[1] - waf[0]) * share)
    }
}

/// Properties of a policy.
///
/// # Errors
/// The engine does not have it.
pub fn properties(policy: &Policy, spare_per_mille: u16) -> Result<Properties, String> {
    let Some(placement) = policy.placement.code() else {
        return Err(format!(
            "the engine has no placement '{}': moved blocks have streams of their own there; the nearest is separate",
            policy.placement.name()
        ));
    };
    let (victim_policy, victim_number) = policy.rule.code();
    let others = Properties {
        discard: false,
        scrub_interval_days: 0,
        seal_age_ms: 3_600_000,
        ..Properties::DEFAULT
    };
    Ok(Properties {
        placement,
        victim_policy,
        victim_number,
        spare_per_mille,
        ..others
    })
}

/// The member.
struct Counting(Content);

impl MemberIo for Counting {
    fn member_count(&self) -> usize {
        1
    }
    fn is_present(&self, _: MemberId) -> bool {
        true
    }
    fn size(&self, _: MemberId) -> u64 {
        self.0.blocks() * BLOCK_BYTES
    }
    fn read(&mut self, _: MemberId, offset: u64, buf: &mut [u8]) -> Result<(), MemberError> {
        self.0.read(offset, buf);
        Ok(())
    }
    fn write(&mut self, _: MemberId, offset: u64, buf: &[u8]) -> Result<(), MemberError> {
        self.0.write(offset, buf);
        Ok(())
    }
    fn flush(&mut self, _: MemberId) -> Result<(), MemberError> {
        Ok(())
    }
}

struct Driver {
    engine: Engine,
    member: Counting,
    buffers: BufPool,
    volume: VolumeId,
    events: Vec<Event>,
    out: Outbox,
    control: Vec<ControlCompletion>,
    now_ns: u64,
    outstanding: usize,
    version: u64,
    /// The next write must be durable when it is answered.
    durable: bool,
}

fn spec(plan: &EnginePlan, properties: Properties, segments: u64) -> PoolSpec {
    let journal = plan
        .journal
        .then(|| JournalSpec::internal(Some(JOURNAL_BYTES), 512));
    let journal_bytes = if journal.is_some() { JOURNAL_BYTES } else { 0 };
    let bytes =
        RESERVED_BYTES + journal_bytes + segments * u64::from(plan.segment_rows) * BLOCK_BYTES;
    PoolSpec {
        name: "counting".into(),
        redundancy: Redundancy::None,
        chunk_rows: Some(plan.segment_rows.min(64)),
        segment_rows: Some(plan.segment_rows),
        align_bytes: BLOCK_BYTES,
        pool: Uuid([9; 16]),
        members: vec![(Uuid([1; 16]), bytes)],
        created_unix_s: 0,
        journal,
        properties,
    }
}

/// Smallest pool that takes `blocks` blocks, by its number of segments; `least` segments are
/// certainly too few.
pub(super) fn least_spec(
    blocks: u32,
    least: u64,
    spec: impl Fn(u64) -> PoolSpec,
) -> Result<PoolSpec, String> {
    let wanted = u64::from(blocks) * BLOCK_BYTES;
    let fits = |segments: u64| {
        Engine::plan(&spec(segments)).is_ok_and(|found| found.usable_bytes >= wanted)
    };
    let mut high = least + 64;
    while !fits(high) {
        high *= 2;
        if high > 1 << 28 {
            return Err(Engine::plan(&spec(high)).map_or_else(
                |error| error.to_string(),
                |_| "no pool is large enough".into(),
            ));
        }
    }
    let mut low = 0;
    while high - low > 1 {
        let middle = low.midpoint(high);
        if fits(middle) {
            high = middle
        } else {
            low = middle
        }
    }
    Ok(spec(high))
}

impl Driver {
    fn new(plan: &EnginePlan, properties: Properties) -> Result<Self, String> {
        let spec = least_spec(
            plan.blocks,
            u64::from(plan.blocks / plan.segment_rows),
            |segments| spec(plan, properties, segments),
        )?;
        let mut member = Counting(Content::new(spec.members[0].1 / BLOCK_BYTES));
        let buffers = BufPool::new(64 << 20);
        let words = |error: &dyn std::fmt::Display| error.to_string();
        Engine::format(&mut member, &spec).map_err(|error| words(&error))?;
        let limits = Limits {
            map_bytes: u64::MAX,
            placement_bytes: u64::MAX,
            ..Limits::default()
        };
        let options = OpenOptions {
            host: Uuid([1; 16]),
            read_only: false,
            force: false,
            discard_journal: false,
            limits,
        };
        let (engine, _) =
            Engine::open(&mut member, buffers.clone(), &options).map_err(|error| words(&error))?;
        let (events, out) = (Vec::new(), Outbox::default());
        let mut driver = Self {
            engine,
            member,
            buffers,
            volume: VolumeId(0),
            events,
            out,
            control: Vec::new(),
            now_ns: 1,
            outstanding: 0,
            version: 0,
            durable: false,
        };
        let size_bytes = u64::from(plan.blocks) * BLOCK_BYTES;
        match driver.command(Control::VolumeCreate {
            name: "data".into(),
            size_bytes,
        })? {
            ControlReply::Volume(volume) => driver.volume = volume,
            ControlReply::Done | ControlReply::Sharing(_) => {
                return Err("no volume was made".into());
            }
        }
        Ok(driver)
    }

    /// Processes everything that follows without the passing of time.
    fn settle(&mut self) -> Result<(), String> {
        loop {
            while !self.events.is_empty() {
                self.engine.apply(&mut self.events, &mut self.out);
                for command in self.out.commands.drain(..) {
                    let buf = match command.op {
                        MemberOp::Read { offset, mut buf } => {
                            self.member.0.read(offset, &mut buf);
                            Some(buf)
                        }
                        MemberOp::Write { offset, buf } => {
                            self.member.0.write(offset, &buf);
                            Some(buf)
                        }
                        MemberOp::Flush | MemberOp::Discard { .. } => None,
                    };
                    self.events.push(Event::Member(MemberDone {
                        member: command.member,
                        tag: command.tag,
                        buf,
                        result: Ok(()),
                    }));
                }
                for mut job in self.out.jobs.drain(..) {
                    job.run();
                    self.events.push(Event::Job(job));
                }
                for completion in self.out.completions.drain(..) {
                    self.outstanding -= 1;
                    if let Err(error) = completion.result {
                        return Err(refused(&error));
                    }
                }
                self.control.append(&mut self.out.control);
                self.out.notices.clear();
            }
            match self.out.wake_at_ns.take() {
                Some(at) if at <= self.now_ns => self.events.push(Event::Tick(self.now_ns)),
                _ => return Ok(()),
            }
        }
    }

    /// Advances time until all requests are answered.
    fn finish(&mut self) -> Result<(), String> {
        for _ in 0..TURNS_MAX {
            self.settle()?;
            if self.outstanding == 0 {
                return Ok(());
            }
            self.now_ns += 1_000_000;
            self.events.push(Event::Tick(self.now_ns));
        }
        Err(format!("the engine stalls: {}", self.engine.describe()))
    }

    fn command(&mut self, command: Control) -> Result<ControlReply, String> {
        self.events.push(Event::Control(ControlRequest {
            id: ControlId(1),
            command,
        }));
        for _ in 0..TURNS_MAX {
            self.settle()?;
            if let Some(answer) = self.control.pop() {
                return answer.result.map_err(|error| error.to_string());
            }
            self.now_ns += 1_000_000;
            self.events.push(Event::Tick(self.now_ns));
        }
        Err(format!(
            "a command is not answered: {}",
            self.engine.describe()
        ))
    }

    fn ask(&mut self, op: Op) -> Result<(), String> {
        self.outstanding += 1;
        self.events.push(Event::Request(Request {
            id: RequestId(1),
            volume: self.volume,
            op,
        }));
        if self.outstanding >= GROUP {
            self.finish()
        } else {
            Ok(())
        }
    }

    /// Incompressible blocks of which the member stores a word each ([`spread`]).
    fn content(&mut self, block: u32, count: u32) -> Payload {
        let mut data = self.buffers.get(count as usize * BLOCK_SIZE);
        for (at, bytes) in data.chunks_exact_mut(BLOCK_SIZE).enumerate() {
            self.version += 1;
            spread(
                mix(u64::from(block) + at as u64 + (self.version << 32)),
                bytes,
            );
        }
        data.freeze()
    }

    fn write(&mut self, block: u32, count: u32) -> Result<(), String> {
        let fua = std::mem::take(&mut self.durable);
        for first in (block..block + count).step_by(REQUEST_BLOCKS as usize) {
            let data = self.content(first, REQUEST_BLOCKS.min(block + count - first));
            self.ask(Op::Write {
                offset: u64::from(first) * BLOCK_BYTES,
                data,
                fua,
            })?;
        }
        // The requester waits for it.
        if fua { self.finish() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), String> {
        self.ask(Op::Flush)?;
        self.finish()
    }

    fn apply(&mut self, operation: Operation) -> Result<(), String> {
        let bytes = |block: u32| u64::from(block) * BLOCK_BYTES;
        match operation {
            Operation::Write { block, count } => self.write(block, count),
            Operation::Trim { block, count } => self.ask(Op::Trim {
                offset: bytes(block),
                length: bytes(count),
                fua: false,
            }),
            Operation::Flush => self.flush(),
            Operation::Durable => {
                self.durable = true;
                Ok(())
            }
            Operation::Pause { .. } | Operation::Arrival { .. } => Ok(()),
        }
    }
}

fn refused(error: &RequestError) -> String {
    format!("the engine refused a request: {error:?}")
}

fn written_since(now: &WrittenBytes, before: &WrittenBytes) -> (f64, [f64; 4]) {
    let user = (now.user - before.user).max(1) as f64;
    let share = |of: fn(&WrittenBytes) -> u64| (of(now) - of(before)) as f64 / user;
    (
        1.0 + share(|w| w.moved),
        [
            share(|w| w.header),
            share(|w| w.padding),
            share(|w| w.checkpoint),
            share(|w| w.journal),
        ],
    )
}

/// Approximate memory of a run: for each block of space the engine's map, the member's word, and
/// its share of whole headers, tables and pages; buffers and the journal.
pub fn memory_bytes(blocks: u32, spare_per_mille: u16) -> u64 {
    let space = u64::from(blocks) * 1000 / u64::from(1000 - spare_per_mille.min(999));
    space * 128 + (160 << 20)
}

/// Runs the engine. `tell` is called periodically with the number of user writes done, and may stop
/// the run by returning false.
///
/// # Errors
/// The engine does not have the policy, the pool cannot be created, a request was refused, or the
/// run was stopped.
pub fn run(
    policy: &Policy,
    plan: &EnginePlan,
    operations: impl Iterator<Item = Operation>,
    tell: &mut dyn FnMut(u64) -> bool,
) -> Result<Outcome, String> {
    let properties = properties(policy, plan.spare_per_mille)?;
    let mut driver = Driver::new(plan, properties)?;
    let (mut done, mut looked, mut checkpoint, mut flushed) = (0u64, 0, 0, 0);
    let mut steady: Option<PoolStatus> = None;
    let (mut closed, mut looks) = (0u64, 0u64);
    for operation in operations {
        driver.apply(operation)?;
        if let Operation::Write { count, .. } = operation {
            done += u64::from(count);
        }
        if plan.checkpoint_after > 0 && done - checkpoint >= plan.checkpoint_after {
            checkpoint = done;
            driver.finish()?;
            driver.command(Control::Checkpoint)?;
        }
        if plan.flush_after > 0 && done - flushed >= plan.flush_after {
            flushed = done;
            driver.flush()?;
        }
        if done - looked < LOOK {
            continue;
        }
        looked = done;
        if !tell(done) {
            return Err("stopped".into());
        }
        if done >= plan.steady_after {
            driver.finish()?;
            let status = driver.engine.status();
            (closed, looks) = (
                closed
                    + u64::from(
                        status.data_segments - status.cleaning_segments.min(status.data_segments),
                    ),
                looks + 1,
            );
            steady = steady.or(Some(status));
        }
    }
    driver.finish()?;
    let status = driver.engine.status();
    let before = steady
        .as_ref()
        .map_or_else(WrittenBytes::default, |status| status.written);
    let checkpoints_since =
        (status.checkpoints - steady.as_ref().map_or(0, |status| status.checkpoints)).max(1);
    let logged =
        (status.written.user + status.written.moved - before.user - before.moved) / BLOCK_BYTES;
    let (waf, [headers, padding, checkpoints, journal]) = written_since(&status.written, &before);
    let plan_of_pool = &status.plan;
    let payload =
        plan_of_pool.usable_bytes as f64 / (1.0 - f64::from(plan.spare_per_mille) / 1000.0);
    let segment_blocks = (payload
        / f64::from(plan_of_pool.segments - plan_of_pool.reserve_segments)
        / BLOCK_BYTES as f64)
        .round() as u32;
    let closed_segments = if looks == 0 {
        f64::from(status.data_segments)
    } else {
        closed as f64 / looks as f64
    };
    let live = (status.used_bytes / BLOCK_BYTES) as f64;
    Ok(Outcome {
        steady: waf,
        whole: written_since(&status.written, &WrittenBytes::default()).0,
        user_blocks: status.written.user / BLOCK_BYTES,
        moved_blocks: status.written.moved / BLOCK_BYTES,
        headers,
        padding,
        checkpoints,
        journal,
        effective_spare: 1.0 - live / (closed_segments * f64::from(segment_blocks)),
        closed_segments,
        segment_blocks,
        segments: plan_of_pool.segments,
        reserve_segments: plan_of_pool.reserve_segments,
        user_streams: status.user_streams,
        moved_streams: status.moved_streams,
        victims: status.segments_cleaned,
        checkpoint_every: logged / checkpoints_since,
    })
}

/// Placement nearest to `kind` that the engine has.
pub fn nearest(kind: PlacementKind) -> PlacementKind {
    if kind.code().is_some() {
        kind
    } else {
        PlacementKind::Separate
    }
}

#[cfg(test)]
mod tests;

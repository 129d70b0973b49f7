//! The combining driver: the engine has one owner at a time, and each thread that posts events
//! drives it.
//!
//! 1. Events are *posted* to the inbox, a vector under its own mutex, which is held only to push or
//!    to swap.
//! 2. The posting thread then *drives*: it tries to take the engine's lock. With the lock it swaps
//!    the inbox out, applies the events, and collects member commands, jobs and answers. It
//!    releases the lock, hands big jobs to the workers, starts the commands (`outgoing.rs`) and
//!    delivers the answers. It runs small jobs itself, whose results are events again, and looks at
//!    the inbox once more.
//! 3. If it does not get the lock, it returns: the holder sees its events.
//!
//! **No event is left behind.** Let thread A post event e and fail to take the lock. Some thread B
//! held it at that moment, so B releases it after e was posted. After every release B looks at the
//! inbox; the inbox's mutex orders the two. So B finds e unless another thread has swapped it out.
//! If B finds e, it is in A's position: it takes the lock, or a third thread C holds it and
//! releases it later still, and the same holds for C. Only a thread that finds the inbox empty
//! after its own release returns, so the last one leaves the inbox empty.
//!
//! Some threads hand their turn over and wake the service thread first, which drives: a thread
//! after `ROUNDS_MAX` rounds, one that only reads the state, and one that gives an administrator's
//! command. The last one may later wait for an unresponsive device. The kernel ends what a thread
//! has given to its rings in that thread, so healthy members must not depend on it.
//!
//! A write at queue depth one is admitted and answered by the connection's own thread without any
//! hand-off. Under load groups form by themselves: events that arrive while one thread drives are
//! applied in its next round.
//!
//! **Locks.** engine > inbox; engine > commands waiting; members' queue > both of these. Sinks,
//! jobs and hooks are called with no lock held but that of the thread's own lane (`lanes.rs`). A
//! panic inside the engine or a job latches the pool: every request in flight and every later one
//! is answered with `Stopped`; no client hangs.

use crate::alarm::Alarm;
use crate::controls::Controls;
use crate::lanes::Lanes;
use crate::members::{Members, Task};
use crate::outgoing::Outgoing;
use crate::recorder::Recorder;
use crate::sessions::{SessionState, Sessions, lock, session_number};
use crate::workers::{Workers, panic_text};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::{Duration, Instant};
use windrow_device::Member;
use windrow_device::queue::{Queue, ReadLane};
use windrow_engine::Job;
use windrow_engine::{
    Control, ControlCompletion, ControlError, ControlReply, Event, Notice, Outbox, PoolStatus,
    VolumeStatus,
};
use windrow_io::{Completion, MemberDone, Request, RequestError};
use windrow_types::MemberId;

/// Interface of the engine to the driver; tests drive a small machine of their own.
pub(crate) trait StateMachine: Send {
    /// Applies all events (leaves the vector empty) and adds effects to the outbox.
    fn apply(&mut self, events: &mut Vec<Event>, outbox: &mut Outbox);
    /// The state shown to administrators.
    fn status(&self) -> PoolStatus;
    /// One volume, by name.
    fn volume(&self, name: &str) -> Option<VolumeStatus>;
}

impl StateMachine for windrow_engine::Engine {
    fn apply(&mut self, events: &mut Vec<Event>, outbox: &mut Outbox) {
        Self::apply(self, events, outbox);
    }

    fn status(&self) -> PoolStatus {
        PoolStatus {
            stages: self.stage_times(),
            ..Self::status(self)
        }
    }

    fn volume(&self, name: &str) -> Option<VolumeStatus> {
        self.volume_named(name)
    }
}

/// Work of at most this many bytes is done by the current thread: at memory speed it takes less
/// time than a wake-up.
const INLINE_BYTES: usize = 64 << 10;
/// Most rounds that a client's thread drives before the service thread takes over.
const ROUNDS_MAX: u32 = 64;

/// Kind of the driving thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Caller {
    /// A client's thread: may help with jobs, returns to its client after a bounded time.
    Client,
    /// A client's thread with completions of reads, not all of them its client's: leaves big jobs
    /// to workers, returns after a bounded time.
    Attendant,
    /// A worker: helps, never hands over.
    Worker,
    /// The thread that reaps member completions or keeps the time: leaves big jobs to workers.
    Service,
}

struct Core {
    machine: Box<dyn StateMachine>,
    events: Vec<Event>,
    outbox: Outbox,
}

/// The session of the driving thread.
pub(crate) struct Own<'a> {
    /// Its answers are pushed to `ready` instead of its sink.
    pub(crate) session: &'a SessionState,
    pub(crate) ready: &'a mut Vec<Completion>,
    /// The thread's own queue to the members, for reads.
    pub(crate) lane: Option<&'a mut ReadLane>,
}

/// Vectors that a driving thread needs. They are kept by thread, so that driving allocates nothing
/// once they have grown.
#[derive(Default)]
struct Scratch {
    completions: Vec<Completion>,
    delivery: Vec<Completion>,
    controls: Vec<ControlCompletion>,
    notices: Vec<Notice>,
    /// Member commands wait to be started.
    posted: bool,
    /// Reads wait in the thread's own lane.
    laned: bool,
    ended: Vec<MemberDone>,
    small: Vec<Task>,
    big: Vec<Task>,
    results: Vec<Event>,
}

thread_local! {
    /// One for each level: a sink may submit, and so drive, while its completions are delivered.
    static SCRATCH: RefCell<Vec<Scratch>> = const { RefCell::new(Vec::new()) };
}

/// The monotonic clock of one driver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    /// Nanoseconds since the driver was made, at least 1.
    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos())
            .unwrap_or(u64::MAX)
            .saturating_add(1)
    }
}

/// The engine and everything around it that turns events into effects.
pub(crate) struct Driver {
    inbox: Mutex<Vec<Event>>,
    core: Mutex<Core>,
    /// Queue of members that work asynchronously; `None` if workers carry out their commands.
    outgoing: Option<Outgoing>,
    pub(crate) lanes: Lanes,
    members: Members,
    pub(crate) workers: Workers<Task>,
    pub(crate) sessions: Sessions,
    controls: Controls,
    pub(crate) alarm: Alarm,
    pub(crate) clock: Clock,
    pub(crate) recorder: Recorder,
    stopped: AtomicBool,
    stop_reason: Mutex<Option<String>>,
    /// Takes notices; `None` reports that time has passed.
    notify: Box<dyn Fn(Option<Notice>) + Send + Sync>,
}

impl Driver {
    /// A driver whose threads are not running yet.
    pub(crate) fn new(
        machine: Box<dyn StateMachine>,
        submitter: Option<Box<dyn Queue>>,
        members: Members,
        workers: usize,
        notify: Box<dyn Fn(Option<Notice>) + Send + Sync>,
    ) -> Self {
        let core = Core {
            machine,
            events: Vec::new(),
            outbox: Outbox::default(),
        };
        Self {
            inbox: Mutex::default(),
            core: Mutex::new(core),
            outgoing: submitter.map(Outgoing::new),
            lanes: Lanes::default(),
            members,
            workers: Workers::new(workers),
            sessions: Sessions::default(),
            controls: Controls::default(),
            alarm: Alarm::default(),
            clock: Clock(Instant::now()),
            recorder: Recorder::default(),
            stopped: AtomicBool::new(false),
            stop_reason: Mutex::default(),
            notify,
        }
    }

    /// Takes requests of a session. Immediate answers go to its vector, later ones to its sink.
    pub(crate) fn submit(&self, requests: &mut Vec<Request>, own: Own<'_>) {
        if requests.is_empty() {
            return;
        }
        // Slots that are failed are lost, so a client that continues to send must get none.
        if self.is_stopped() {
            own.ready
                .extend(requests.drain(..).map(|request| Completion {
                    id: request.id,
                    result: Err(RequestError::Stopped),
                    lsns: None,
                }));
            return;
        }
        let now = self.clock.now_ns();
        self.recorder.see(requests, now);
        own.session.register(requests, now);
        // The flag is read after the slots are taken and set before all slots are failed: one of
        // the two threads sees the other.
        if self.is_stopped() {
            requests.clear();
            own.session.fail(RequestError::Stopped, own.ready);
            return;
        }
        lock(&self.inbox).extend(requests.drain(..).map(Event::Request));
        self.drive(Caller::Client, Some(own));
    }

    /// Takes completions from the lane of a session's thread.
    pub(crate) fn collect_lane(&self, lane: &mut ReadLane, done: &mut Vec<MemberDone>) {
        if let Err(error) = lane.collect(done) {
            self.stop(&format!(
                "the queue of a connection's reads failed: {error}"
            ));
        }
    }

    /// Carries out an administrator's command and waits for its end. The service thread drives.
    pub(crate) fn control(&self, command: Control) -> Result<ControlReply, ControlError> {
        self.control_within(command, None)
            .unwrap_or(Err(ControlError::Stopped))
    }

    /// Carries out a command, waiting at most `patience`; `None` if it has not ended by then.
    pub(crate) fn control_within(
        &self,
        command: Control,
        patience: Option<Duration>,
    ) -> Option<Result<ControlReply, ControlError>> {
        let request = self.controls.register(command);
        let id = request.id;
        if self.is_stopped() {
            self.controls.fail_all();
        } else {
            self.post(Event::Control(request));
            self.alarm.poke();
        }
        self.controls.wait_within(id, patience)
    }

    /// Replaces the device of a member that has no command in flight and gets none meanwhile.
    ///
    /// # Errors
    /// The queue cannot take the device.
    pub(crate) fn exchange(
        &self,
        member: MemberId,
        device: Option<Arc<dyn Member>>,
    ) -> std::io::Result<()> {
        if let Some(outgoing) = &self.outgoing {
            outgoing.exchange(member, device.clone())?;
        }
        self.members.exchange(member, device.clone());
        // After the table that new lanes start with.
        self.lanes.exchange(member, device.as_ref())
    }

    /// Members as a lane uses them; `None` if members are not reached through a queue of the
    /// kernel.
    pub(crate) fn lane_members(&self) -> Option<windrow_device::queue::Members> {
        self.lanes.wanted.then(|| self.members.all())
    }

    /// The device in a member's slot.
    pub(crate) fn device(&self, member: MemberId) -> Option<Arc<dyn Member>> {
        self.members.device(member)
    }

    /// The state of the pool; `None` once the engine has panicked.
    pub(crate) fn status(&self) -> Option<PoolStatus> {
        self.look(|machine| machine.status())
    }

    /// One volume, by name.
    pub(crate) fn volume(&self, name: &str) -> Option<Option<VolumeStatus>> {
        self.look(|machine| machine.volume(name))
    }

    fn look<T>(&self, look: impl FnOnce(&dyn StateMachine) -> T) -> Option<T> {
        let seen = match self.core.lock() {
            Ok(core) => {
                let seen = catch_unwind(AssertUnwindSafe(|| look(&*core.machine)));
                drop(core);
                seen.map_err(|panic| {
                    self.stop(&format!(
                        "the engine failed while it reported its state: {}",
                        panic_text(&*panic)
                    ))
                })
                .ok()
            }
            Err(_) => None,
        };
        // Others may have found the lock taken meanwhile and returned.
        self.alarm.poke();
        seen
    }

    /// Adds one event to the inbox; to be followed by [`Driver::drive`].
    pub(crate) fn post(&self, event: Event) {
        lock(&self.inbox).push(event);
    }

    /// Adds events to the inbox; to be followed by [`Driver::drive`].
    pub(crate) fn post_all(&self, events: impl Iterator<Item = Event>) {
        lock(&self.inbox).extend(events);
    }

    /// Drives until the inbox is empty or another thread drives. Answers for `own` are pushed to
    /// its vector instead of its sink.
    pub(crate) fn drive(&self, caller: Caller, mut own: Option<Own<'_>>) {
        let mut scratch = SCRATCH.with_borrow_mut(Vec::pop).unwrap_or_default();
        let mut rounds = 0;
        loop {
            let outcome = match self.core.try_lock() {
                Ok(mut core) => self.round(
                    &mut core,
                    &mut scratch,
                    own.as_mut().and_then(|own| own.lane.as_deref_mut()),
                ),
                Err(TryLockError::WouldBlock) => break,
                Err(TryLockError::Poisoned(_)) => {
                    lock(&self.inbox).clear();
                    Err("the engine failed while it was locked".to_owned())
                }
            };
            if let Err(reason) = outcome {
                self.stop(&reason);
            }
            self.hand_out(caller, &mut scratch);
            self.start_commands(
                &mut scratch,
                own.as_mut().and_then(|own| own.lane.as_deref_mut()),
            );
            self.deliver(&mut scratch, &mut own);
            self.run_small(&mut scratch);
            if lock(&self.inbox).is_empty() {
                break;
            }
            rounds += 1;
            if rounds >= ROUNDS_MAX && matches!(caller, Caller::Client | Caller::Attendant) {
                self.alarm.poke();
                break;
            }
        }
        SCRATCH.with_borrow_mut(|idle| idle.push(scratch));
    }

    /// With the engine's lock: applies the inbox until there is work to do outside the lock.
    fn round(
        &self,
        core: &mut Core,
        scratch: &mut Scratch,
        mut lane: Option<&mut ReadLane>,
    ) -> Result<(), String> {
        loop {
            core.events.clear();
            std::mem::swap(&mut *lock(&self.inbox), &mut core.events);
            if core.events.is_empty() || self.is_stopped() {
                return Ok(());
            }
            // The last one of a group, so that nothing is moved for it.
            core.events.push(Event::Tick(self.clock.now_ns()));
            core.outbox.wake_at_ns = None;
            let (machine, events, outbox) = (&mut core.machine, &mut core.events, &mut core.outbox);
            catch_unwind(AssertUnwindSafe(|| machine.apply(events, outbox)))
                .map_err(|panic| format!("the engine failed: {}", panic_text(&*panic)))?;
            if let Some(at) = core.outbox.wake_at_ns {
                self.alarm.wake_by(at);
            }
            self.collect(core, scratch, lane.as_deref_mut());
            let idle = !scratch.posted
                && !scratch.laned
                && scratch.completions.is_empty()
                && scratch.small.is_empty()
                && scratch.big.is_empty()
                && scratch.controls.is_empty();
            if !idle || !scratch.notices.is_empty() {
                return Ok(());
            }
        }
    }

    /// Empties the outbox: posts member commands, sorts the rest into the scratch vectors.
    fn collect(&self, core: &mut Core, scratch: &mut Scratch, lane: Option<&mut ReadLane>) {
        scratch.completions.append(&mut core.outbox.completions);
        scratch.controls.append(&mut core.outbox.control);
        scratch.notices.append(&mut core.outbox.notices);
        for job in core.outbox.jobs.drain(..) {
            let heap = if job.bytes() <= INLINE_BYTES {
                &mut scratch.small
            } else {
                &mut scratch.big
            };
            heap.push(Task::Job(job));
        }
        if let Some(lane) = lane.filter(|_| !core.outbox.commands.is_empty()) {
            scratch.laned |= lane.take(&mut core.outbox.commands, &mut scratch.ended);
        }
        match &self.outgoing {
            Some(outgoing) if !core.outbox.commands.is_empty() => {
                outgoing.post(&mut core.outbox.commands);
                scratch.posted = true;
            }
            Some(_) => {}
            None => {
                for command in core.outbox.commands.drain(..) {
                    let heap = if self.members.weight(&command) <= INLINE_BYTES {
                        &mut scratch.small
                    } else {
                        &mut scratch.big
                    };
                    heap.push(Task::Command(command));
                }
            }
        }
    }

    /// Hands big work to the workers. If their queue is full, a client or a worker does it itself.
    fn hand_out(&self, caller: Caller, scratch: &mut Scratch) {
        if scratch.big.is_empty() {
            return;
        }
        match caller {
            Caller::Service | Caller::Attendant => self.workers.push_all(&mut scratch.big),
            Caller::Client | Caller::Worker => {
                self.workers.offer(&mut scratch.big);
                scratch.small.append(&mut scratch.big);
            }
        }
    }

    /// Without the engine's lock: starts member commands.
    fn start_commands(&self, scratch: &mut Scratch, lane: Option<&mut ReadLane>) {
        if let Some(lane) = lane.filter(|_| std::mem::take(&mut scratch.laned)) {
            self.post_all(scratch.ended.drain(..).map(Event::Member));
            if let Err(error) = lane.start() {
                self.stop(&format!(
                    "the queue of a connection's reads failed: {error}"
                ));
            }
        }
        if let Some(outgoing) = self
            .outgoing
            .as_ref()
            .filter(|_| std::mem::take(&mut scratch.posted))
            && let Err(reason) =
                outgoing.start(|done| self.post_all(done.drain(..).map(Event::Member)))
        {
            self.stop(reason);
        }
    }

    /// Without a lock: answers to sessions, administrators and hooks.
    fn deliver(&self, scratch: &mut Scratch, own: &mut Option<Own<'_>>) {
        for notice in scratch.notices.drain(..) {
            (self.notify)(Some(notice));
        }
        if !scratch.controls.is_empty() {
            self.controls.complete(scratch.controls.drain(..));
        }
        if scratch.completions.is_empty() {
            return;
        }
        let now = self.clock.now_ns();
        let number_of = |completion: &Completion| session_number(completion.id);
        if !scratch.completions.is_sorted_by_key(number_of) {
            scratch.completions.sort_unstable_by_key(number_of);
        }
        let mut rest = scratch.completions.drain(..).peekable();
        while let Some(number) = rest.peek().map(number_of) {
            let group =
                std::iter::from_fn(|| rest.next_if(|completion| number_of(completion) == number));
            if let Some(own) = own.as_mut().filter(|own| own.session.number() == number) {
                own.session.finish(group, now, own.ready);
            } else if let Some(session) = self.sessions.get(number) {
                session.finish(group, now, &mut scratch.delivery);
                session.sink().complete(&mut scratch.delivery);
                scratch.delivery.clear();
            } else {
                group.for_each(drop);
            }
        }
    }

    /// Runs the work that stayed with this thread; its results are posted.
    fn run_small(&self, scratch: &mut Scratch) {
        if scratch.small.is_empty() {
            return;
        }
        for task in scratch.small.drain(..) {
            match catch_unwind(AssertUnwindSafe(|| task.run(&self.members))) {
                Ok(event) => scratch.results.push(event),
                Err(panic) => self.stop(&format!("a job failed: {}", panic_text(&*panic))),
            }
        }
        self.post_all(scratch.results.drain(..));
    }

    /// Runs a worker's task.
    pub(crate) fn run_task(&self, task: Task) {
        self.post(task.run(&self.members));
        self.drive(Caller::Worker, None);
    }

    /// Notices that were held back may be due.
    pub(crate) fn look_at_notices(&self) {
        (self.notify)(None);
    }

    /// True once the pool has been latched.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Reason that the pool was latched.
    pub(crate) fn stop_reason(&self) -> Option<String> {
        lock(&self.stop_reason).clone()
    }

    /// Latches the pool: every request in flight and every later one is answered with `Stopped`.
    /// Called with no lock held.
    pub(crate) fn stop(&self, reason: &str) {
        {
            let mut known = lock(&self.stop_reason);
            if known.is_none() {
                *known = Some(reason.to_owned());
            }
        }
        if !self.stopped.swap(true, Ordering::SeqCst) {
            (self.notify)(Some(Notice::Stopped {
                reason: reason.to_owned(),
            }));
        }
        self.fail_all();
    }

    /// Ends the service without an event: requests in flight and later ones are answered with
    /// `Stopped`.
    pub(crate) fn close(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.fail_all();
    }

    fn fail_all(&self) {
        let mut failed = Vec::new();
        for session in self.sessions.all() {
            session.fail(RequestError::Stopped, &mut failed);
            if !failed.is_empty() {
                session.sink().complete(&mut failed);
                failed.clear();
            }
        }
        self.controls.fail_all();
    }
}

/// Starts the worker threads of a driver.
pub(crate) fn start_workers(driver: &Arc<Driver>) -> std::io::Result<()> {
    let (runner, reporter) = (driver.clone(), driver.clone());
    driver.workers.start(
        move |task| runner.run_task(task),
        move |text| reporter.stop(&format!("a worker failed: {text}")),
    )
}

const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Job>();
};

#[cfg(test)]
pub(crate) mod tests;

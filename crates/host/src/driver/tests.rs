//! A small machine in the engine's place. It answers writes at once, reads after a member command,
//! flushes at the first tick after 1 ms, and fails on trims.

use super::*;
use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use windrow_engine::{Limits, PoolPlan, ScrubStatus, VolumeStatus, WrittenBytes};
use windrow_frontend::Sink;
use windrow_io::{Buf, IoTag, MemberCommand, MemberOp, Op, Payload, Reply, RequestId};
use windrow_types::{Lsn, MemberId, Uuid, VolumeId};

pub(crate) struct FakeMachine {
    pub(crate) applied: Arc<AtomicU64>,
    /// Completed member commands.
    pub(crate) ended: Arc<AtomicU64>,
    reads: HashMap<u64, RequestId>,
    /// Due time and request.
    flushes: Vec<(u64, RequestId)>,
    volumes: Vec<VolumeStatus>,
    next_tag: u64,
    now: u64,
}

impl FakeMachine {
    pub(crate) fn new() -> Self {
        let volume = VolumeStatus {
            id: VolumeId(1),
            name: "data".to_owned(),
            size_bytes: 1 << 20,
            mapped_bytes: 0,
            read_only: false,
            sync: Default::default(),
            compression: Default::default(),
            dedup: Default::default(),
            shared_bytes: 0,
            stored_bytes: 0,
            deleting: false,
        };
        Self {
            applied: Arc::default(),
            ended: Arc::default(),
            reads: HashMap::new(),
            flushes: Vec::new(),
            volumes: vec![volume],
            next_tag: 0,
            now: 0,
        }
    }

    fn request(&mut self, request: Request, outbox: &mut Outbox) {
        let done = |result| Completion {
            id: request.id,
            result,
            lsns: None,
        };
        match request.op {
            Op::Write { .. } => outbox.completions.push(done(Ok(Reply::Done))),
            Op::Read { offset, length } => {
                self.next_tag += 1;
                self.reads.insert(self.next_tag, request.id);
                let op = MemberOp::Read {
                    offset,
                    buf: Buf::unpooled(length as usize),
                };
                outbox.commands.push(MemberCommand {
                    member: MemberId(0),
                    tag: IoTag(self.next_tag),
                    op,
                });
            }
            Op::Flush => {
                self.flushes.push((self.now + 1_000_000, request.id));
            }
            Op::Trim { .. } => panic!("the machine breaks"),
            _ => outbox.completions.push(done(Err(RequestError::Invalid))),
        }
    }

    fn control(&mut self, command: Control) -> Result<ControlReply, ControlError> {
        match command {
            Control::VolumeCreate { name, size_bytes } => {
                let id = VolumeId(self.volumes.len() as u32 + 1);
                self.volumes.push(VolumeStatus {
                    id,
                    name,
                    size_bytes,
                    mapped_bytes: 0,
                    read_only: false,
                    sync: Default::default(),
                    compression: Default::default(),
                    dedup: Default::default(),
                    shared_bytes: 0,
                    stored_bytes: 0,
                    deleting: false,
                });
                Ok(ControlReply::Volume(id))
            }
            Control::Shutdown { .. } => Ok(ControlReply::Done),
            _ => Err(ControlError::NoVolume),
        }
    }
}

impl StateMachine for FakeMachine {
    fn apply(&mut self, events: &mut Vec<Event>, outbox: &mut Outbox) {
        if let Some(Event::Tick(now)) = events.last() {
            self.now = self.now.max(*now);
        }
        for event in events.drain(..) {
            self.applied.fetch_add(1, Ordering::Relaxed);
            match event {
                Event::Request(request) => self.request(request, outbox),
                Event::Member(done) => {
                    self.ended.fetch_add(1, Ordering::Relaxed);
                    let id = self
                        .reads
                        .remove(&done.tag.0)
                        .expect("each command comes back once");
                    let result = done
                        .result
                        .map(|()| Reply::Data(done.buf.into_iter().map(Buf::freeze).collect()))
                        .map_err(|_| RequestError::Io);
                    outbox.completions.push(Completion {
                        id,
                        result,
                        lsns: None,
                    });
                }
                Event::Control(request) => {
                    let result = self.control(request.command);
                    outbox.control.push(ControlCompletion {
                        id: request.id,
                        result,
                    });
                }
                Event::Tick(now) => {
                    self.now = self.now.max(now);
                    let due = self.flushes.extract_if(.., |(at, _)| *at <= self.now);
                    outbox.completions.extend(due.map(|(_, id)| Completion {
                        id,
                        result: Ok(Reply::Done),
                        lsns: None,
                    }));
                }
                Event::Job(_) => {}
            }
        }
        outbox.wake_at_ns = self.flushes.iter().map(|(at, _)| *at).min();
    }

    fn volume(&self, name: &str) -> Option<VolumeStatus> {
        self.volumes
            .iter()
            .find(|volume| volume.name == name)
            .cloned()
    }

    fn status(&self) -> PoolStatus {
        PoolStatus {
            damage: Default::default(),
            stop_reason: None,
            pool: Uuid([1; 16]),
            name: "fake".to_owned(),
            redundancy: "0",
            state: "online",
            created_unix_s: 0,
            generation: 1,
            epoch: 1,
            members: Vec::new(),
            volumes: self.volumes.clone(),
            volumes_version: self.volumes.len() as u64,
            spare_per_mille: 100,
            seal_age_ms: 50,
            placement: "separate",
            user_streams: 1,
            moved_streams: 1,
            placement_bytes: 0,
            further_blocks: 0,
            overflowed_blocks: 0,
            victim_policy: "greedy".into(),
            discard: false,
            properties: windrow_format::superblock::Properties::DEFAULT,
            plan: PoolPlan {
                index_pages: 0,
                overhead: Default::default(),
                zones: Vec::new(),
                segments: 0,
                data_bytes: 0,
                usable_bytes: 0,
                reserve_segments: 0,
                checkpoint_segments: 0,
                map_pages_max: 0,
                map_bytes: 0,
                ids_bytes: 0,
            },
            used_bytes: 0,
            reduction_use: Default::default(),
            free_segments: 0,
            data_segments: 0,
            cleaning_segments: 0,
            data_live_bytes: 0,
            garbage_bytes: 0,
            warned_percent: 0,
            physical_bytes: 0,
            map_bytes: 0,
            map_pages: 0,
            map_pages_max: 0,
            refused_map_pages: 0,
            refused_space: 0,
            refuses_data: false,
            checkpoints_forced: 0,
            limits: Limits::default(),
            at_risk_bytes: 0,
            pending_bytes: 0,
            member_stats: Vec::new(),
            written: WrittenBytes::default(),
            user_write_bytes: 0,
            user_read_bytes: 0,
            fill_blocks: 0,
            reduction: Default::default(),
            dedup: Default::default(),
            stored_bytes: 0,
            flushes: 0,
            checkpoints: 0,
            segments_cleaned: 0,
            users_per_1024_gained: None,
            scrub: ScrubStatus::default(),
            rebuild: windrow_engine::RebuildStatus::default(),
            reshape: windrow_engine::ReshapeStatus::default(),
            journal: windrow_engine::JournalStatus::default(),
            held_commands: 0,
            stages: Vec::new(),
            lsn: Lsn(0),
            durable_lsn: Lsn(0),
            lifetime_user_bytes: 0,
            lifetime_member_bytes: 0,
            lifetime_reduction: Default::default(),
            lifetime_dedup: Default::default(),
        }
    }
}

/// Keeps what it gets.
#[derive(Default)]
pub(crate) struct Collector {
    pub(crate) got: Mutex<Vec<Completion>>,
    changed: std::sync::Condvar,
}

impl Sink for Collector {
    fn complete(&self, completions: &mut Vec<Completion>) {
        lock(&self.got).append(completions);
        self.changed.notify_all();
    }
}

impl Collector {
    /// Waits until `count` completions have come, and takes them.
    pub(crate) fn wait(&self, count: usize) -> Vec<Completion> {
        let patience = std::time::Duration::from_secs(20);
        let (mut got, timeout) = self
            .changed
            .wait_timeout_while(lock(&self.got), patience, |got| got.len() < count)
            .unwrap();
        assert!(
            !timeout.timed_out(),
            "only {} of {count} completions came",
            got.len()
        );
        std::mem::take(&mut *got)
    }
}

pub(crate) fn write(id: u64) -> Request {
    Request {
        id: RequestId(id),
        volume: VolumeId(1),
        op: Op::Write {
            offset: 0,
            data: Payload::copy_of(&[1; 512]),
            fua: false,
        },
    }
}

pub(crate) fn request(id: u64, op: Op) -> Request {
    Request {
        id: RequestId(id),
        volume: VolumeId(1),
        op,
    }
}

fn driver(machine: FakeMachine) -> Driver {
    Driver::new(
        Box::new(machine),
        None,
        Members::new(Vec::new()),
        1,
        Box::new(|_| {}),
    )
}

#[test]
fn every_posting_thread_drives_and_no_event_is_left_behind() {
    const THREADS: u64 = 4;
    const GROUPS: u64 = 5000;
    const GROUP: u64 = 3;
    let machine = FakeMachine::new();
    let applied = machine.applied.clone();
    let driver = Arc::new(driver(machine));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let sink = Arc::new(Collector::default());
                let session = driver.sessions.open(sink.clone());
                let (mut requests, mut ready, mut answered) =
                    (Vec::new(), Vec::new(), vec![0u8; (GROUPS * GROUP) as usize]);
                for group in 0..GROUPS {
                    requests.extend((0..GROUP).map(|i| write(group * GROUP + i)));
                    driver.submit(
                        &mut requests,
                        Own {
                            session: &session,
                            ready: &mut ready,
                            lane: None,
                        },
                    );
                    assert!(requests.is_empty());
                }
                // No service thread runs here: a missing completion must come from the other
                // clients, or it was left behind.
                let end = Instant::now() + std::time::Duration::from_secs(20);
                while session.in_flight() > 0 {
                    assert!(
                        Instant::now() < end,
                        "{} requests were left behind",
                        session.in_flight()
                    );
                    if driver.alarm.take_poke() {
                        driver.drive(Caller::Service, None);
                    }
                    std::thread::yield_now();
                }
                // An answer taken from its slot may not be delivered yet.
                while ready.len() + lock(&sink.got).len() < answered.len() {
                    std::thread::yield_now();
                }
                for completion in ready.iter().chain(lock(&sink.got).iter()) {
                    answered[completion.id.0 as usize] += 1;
                }
                assert!(
                    answered.iter().all(|count| *count == 1),
                    "each request exactly once"
                );
            });
        }
    });
    assert!(applied.load(Ordering::Relaxed) >= THREADS * GROUPS * GROUP);
    assert!(lock(&driver.inbox).is_empty());
}

#[test]
fn a_write_of_a_lone_client_is_answered_before_submit_returns() {
    let driver = driver(FakeMachine::new());
    let session = driver.sessions.open(Arc::new(Collector::default()));
    for id in 0..100 {
        let mut ready = Vec::new();
        driver.submit(
            &mut vec![write(id)],
            Own {
                session: &session,
                ready: &mut ready,
                lane: None,
            },
        );
        assert_eq!(
            ready
                .iter()
                .map(|completion| completion.id.0)
                .collect::<Vec<_>>(),
            [id]
        );
    }
}

#[test]
fn a_panic_of_the_engine_answers_everyone_with_stopped() {
    let driver = driver(FakeMachine::new());
    let (sink, mut ready) = (Arc::new(Collector::default()), Vec::new());
    let session = driver.sessions.open(sink.clone());
    driver.submit(
        &mut vec![request(1, Op::Flush)],
        Own {
            session: &session,
            ready: &mut ready,
            lane: None,
        },
    );
    driver.submit(
        &mut vec![request(
            2,
            Op::Trim {
                offset: 0,
                length: 4096,
                fua: false,
            },
        )],
        Own {
            session: &session,
            ready: &mut ready,
            lane: None,
        },
    );
    let mut failed = sink.wait(2);
    failed.append(&mut ready);
    assert!(
        failed
            .iter()
            .all(|completion| matches!(completion.result, Err(RequestError::Stopped)))
    );
    assert!(driver.stop_reason().unwrap().contains("the machine breaks"));
    driver.submit(
        &mut vec![write(3)],
        Own {
            session: &session,
            ready: &mut ready,
            lane: None,
        },
    );
    assert!(matches!(ready[0].result, Err(RequestError::Stopped)));
    assert_eq!(
        driver.control(Control::Checkpoint),
        Err(ControlError::Stopped)
    );
}

#[test]
fn answers_of_several_sessions_reach_their_own_sinks() {
    let driver = driver(FakeMachine::new());
    let sinks: Vec<Arc<Collector>> = (0..3).map(|_| Arc::default()).collect();
    let sessions: Vec<_> = sinks
        .iter()
        .map(|sink| driver.sessions.open(sink.clone()))
        .collect();
    for round in 0..4 {
        for session in &sessions {
            driver.submit(
                &mut vec![request(round, Op::Flush)],
                Own {
                    session,
                    ready: &mut Vec::new(),
                    lane: None,
                },
            );
        }
    }
    driver.post(Event::Tick(5_000_000));
    driver.drive(Caller::Service, None);
    for sink in &sinks {
        let mut ids: Vec<u64> = sink
            .wait(4)
            .iter()
            .map(|completion| completion.id.0)
            .collect();
        ids.sort_unstable();
        assert_eq!(ids, [0, 1, 2, 3]);
    }
}

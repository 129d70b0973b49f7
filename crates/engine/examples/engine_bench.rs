//! Cost of the engine's own thread per user block placed and per block moved: `apply` alone,
//! without jobs, copying, parity and device time.
//!
//! 1. Fill a volume of `blocks` blocks.
//! 2. Overwrite at random while there is fresh space: the cost of a user block.
//! 3. Continue until cleaning is in a steady state, then measure: the cost beyond that of the user
//!    blocks is the cost of the moved ones.
//!
//! Jobs run on a thread of their own, as workers do. Members remember a block of known content by
//! its number, so that ten million blocks fit in memory. This needs redundancy 0, as parity is
//! never known content. The number of columns, which determines the work of the engine's thread, is
//! the same. Times are processor times of the thread.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use windrow_engine::*;
use windrow_format::superblock::Properties;
use windrow_geometry::Redundancy;
use windrow_io::*;
use windrow_types::{BLOCK_SIZE, MemberId, Uuid, VolumeId};

/// Number of different contents of user blocks.
const CONTENTS: usize = 255;
/// First bytes of each of them, followed by its number.
const MARK: [u8; 7] = *b"content";
const MEMBERS: u8 = 8;

/// Processor time of this thread: other load on the machine changes it little.
fn thread_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Marsaglia's xorshift generator: the same numbers in each run.
fn xorshift(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

/// Contents of user blocks, one after the other.
fn contents(buffers: &BufPool, random: &mut impl FnMut() -> u64) -> Payload {
    let mut data = buffers.get(CONTENTS * BLOCK_SIZE);
    data.chunks_exact_mut(8)
        .for_each(|chunk| chunk.copy_from_slice(&random().to_le_bytes()));
    for (number, block) in data.chunks_exact_mut(BLOCK_SIZE).enumerate() {
        block[..7].copy_from_slice(&MARK);
        block[7] = number as u8;
    }
    data.freeze()
}

/// One member: for each block the number of its content plus one, or 0 and the block itself in a
/// separate map.
struct Store {
    known: Vec<u8>,
    others: HashMap<u64, Box<[u8]>>,
}

struct Stores {
    members: Vec<Store>,
    contents: Payload,
    /// The same, each with its own memory, as requests have.
    singles: Vec<Payload>,
}

impl MemberIo for Stores {
    fn member_count(&self) -> usize {
        self.members.len()
    }

    fn is_present(&self, _: MemberId) -> bool {
        true
    }

    fn size(&self, member: MemberId) -> u64 {
        (self.members[member.index()].known.len() * BLOCK_SIZE) as u64
    }

    fn read(&mut self, member: MemberId, offset: u64, buf: &mut [u8]) -> Result<(), MemberError> {
        let store = &self.members[member.index()];
        for (i, target) in buf.chunks_mut(BLOCK_SIZE).enumerate() {
            let at = offset / BLOCK_SIZE as u64 + i as u64;
            match (store.known[at as usize], store.others.get(&at)) {
                (0, Some(block)) => target.copy_from_slice(&block[..target.len()]),
                (0, None) => target.fill(0),
                (number, _) => target.copy_from_slice(
                    &self.contents[(usize::from(number) - 1) * BLOCK_SIZE..][..target.len()],
                ),
            }
        }
        Ok(())
    }

    fn write(&mut self, member: MemberId, offset: u64, buf: &[u8]) -> Result<(), MemberError> {
        let store = &mut self.members[member.index()];
        for (i, source) in buf.chunks(BLOCK_SIZE).enumerate() {
            let at = offset / BLOCK_SIZE as u64 + i as u64;
            if source.starts_with(&MARK) {
                store.known[at as usize] = source[7] + 1;
                store.others.remove(&at);
            } else {
                store.known[at as usize] = 0;
                store.others.insert(at, source.into());
            }
        }
        Ok(())
    }

    fn flush(&mut self, _: MemberId) -> Result<(), MemberError> {
        Ok(())
    }
}

struct Driver {
    engine: Engine,
    io: Stores,
    volume: VolumeId,
    events: Vec<Event>,
    out: Outbox,
    applied: Duration,
    control: Vec<ControlCompletion>,
    to_worker: Sender<Job>,
    from_worker: Receiver<Job>,
}

/// A worker: takes jobs and returns them done.
fn worker() -> (Sender<Job>, Receiver<Job>) {
    let (to_worker, jobs) = channel::<Job>();
    let (done, from_worker) = channel();
    std::thread::spawn(move || {
        for mut job in jobs {
            job.run();
            if done.send(job).is_err() {
                return;
            }
        }
    });
    (to_worker, from_worker)
}

impl Driver {
    /// A new pool with room for `blocks` and `fresh` more, and a volume of `blocks`.
    fn new(blocks: u64, fresh: u64, buffers: &BufPool, contents: Payload) -> Self {
        let member_bytes =
            ((blocks + fresh) * 4096 / u64::from(MEMBERS)).next_multiple_of(1 << 20) + (64 << 20);
        let spec = PoolSpec {
            name: "bench".into(),
            redundancy: Redundancy::None,
            chunk_rows: None,
            segment_rows: None,
            align_bytes: 4096,
            pool: Uuid([9; 16]),
            members: (0..MEMBERS)
                .map(|i| (Uuid([i; 16]), member_bytes))
                .collect(),
            created_unix_s: 0,
            journal: None,
            properties: Properties {
                spare_per_mille: 100,
                seal_age_ms: 3_600_000,
                victim_policy: 0,
                discard: false,
                ..Properties::DEFAULT
            },
        };
        let store = |_| Store {
            known: vec![0; (member_bytes / BLOCK_SIZE as u64) as usize],
            others: HashMap::new(),
        };
        let singles = contents
            .chunks_exact(BLOCK_SIZE)
            .map(Payload::copy_of)
            .collect();
        let mut io = Stores {
            members: (0..MEMBERS).map(store).collect(),
            contents,
            singles,
        };
        Engine::format(&mut io, &spec).expect("format");
        let limits = Limits {
            map_bytes: u64::MAX,
            ..Limits::default()
        };
        let options = OpenOptions {
            host: Uuid([1; 16]),
            read_only: false,
            force: false,
            discard_journal: false,
            limits,
        };
        let (engine, _) = Engine::open(&mut io, buffers.clone(), &options).expect("open");
        let (to_worker, from_worker) = worker();
        let (applied, volume) = (Duration::ZERO, VolumeId(0));
        let mut driver = Self {
            engine,
            io,
            volume,
            events: Vec::new(),
            out: Outbox::default(),
            applied,
            control: Vec::new(),
            to_worker,
            from_worker,
        };
        let command = Control::VolumeCreate {
            name: "v".into(),
            size_bytes: blocks * 4096,
        };
        driver.events.push(Event::Control(ControlRequest {
            id: ControlId(1),
            command,
        }));
        driver.settle();
        let Some(Ok(ControlReply::Volume(volume))) = driver.control.pop().map(|c| c.result) else {
            panic!("no volume")
        };
        driver.volume = volume;
        driver
    }

    /// Applies what is queued and everything that follows from it; only `apply` is timed.
    fn settle(&mut self) {
        while !self.events.is_empty() {
            let start = thread_time();
            self.engine.apply(&mut self.events, &mut self.out);
            self.applied += thread_time() - start;
            for MemberCommand { member, tag, op } in self.out.commands.drain(..) {
                let buf = match op {
                    MemberOp::Read { offset, mut buf } => {
                        self.io.read(member, offset, &mut buf).map(|()| Some(buf))
                    }
                    MemberOp::Write { offset, buf } => {
                        self.io.write(member, offset, &buf).map(|()| Some(buf))
                    }
                    MemberOp::Flush | MemberOp::Discard { .. } => Ok(None),
                };
                let buf = buf.expect("stores do not fail");
                self.events.push(Event::Member(MemberDone {
                    member,
                    tag,
                    buf,
                    result: Ok(()),
                }));
            }
            let jobs = self.out.jobs.len();
            for job in self.out.jobs.drain(..) {
                self.to_worker
                    .send(job)
                    .expect("the worker lives as long as this driver");
            }
            self.events
                .extend(self.from_worker.iter().take(jobs).map(Event::Job));
            assert!(
                self.out
                    .completions
                    .drain(..)
                    .all(|completion| completion.result.is_ok()),
                "a write failed"
            );
            self.control.append(&mut self.out.control);
            for notice in self.out.notices.drain(..) {
                println!("{notice:?}");
            }
        }
    }

    fn write(&mut self, lba: u64, data: Payload) {
        let op = Op::Write {
            offset: lba * 4096,
            data,
            fua: false,
        };
        self.events.push(Event::Request(Request {
            id: RequestId(0),
            volume: self.volume,
            op,
        }));
    }

    /// Overwrites `count` of `blocks` at random, 128 at a time; returns nanoseconds of processor
    /// time and blocks moved.
    fn overwrite(
        &mut self,
        blocks: u64,
        count: u64,
        random: &mut impl FnMut() -> u64,
    ) -> (f64, f64) {
        let (begin, moved) = (self.applied, self.engine.status().written.moved);
        for _ in 0..count / 128 {
            for _ in 0..128 {
                let lba = random() % blocks;
                let data = self.io.singles[(random() % CONTENTS as u64) as usize].clone();
                self.write(lba, data);
            }
            self.settle();
        }
        let moved = self.engine.status().written.moved - moved;
        (
            (self.applied - begin).as_nanos() as f64,
            moved as f64 / BLOCK_SIZE as f64,
        )
    }
}

fn main() {
    let mut args = std::env::args()
        .skip(1)
        .map(|a| a.parse::<u64>().expect("a number"));
    let blocks = args.next().unwrap_or(10_000_000);
    let writes = args.next().unwrap_or(2_000_000) / 128 * 128;
    let fresh = writes + writes / 4 + blocks / 12;
    let buffers = BufPool::new(512 << 20);
    let mut random = xorshift(0x9e37_79b9_7f4a_7c15);
    let contents = contents(&buffers, &mut random);
    let mut driver = Driver::new(blocks, fresh, &buffers, contents);
    let mut lba = 0;
    while lba < blocks {
        let count = (CONTENTS as u64).min(blocks - lba);
        let data = driver.io.contents.slice(0, count as usize * BLOCK_SIZE);
        driver.write(lba, data);
        driver.settle();
        lba += count;
    }
    println!(
        "filled {blocks} blocks: {:.0} ns a block",
        driver.applied.as_nanos() as f64 / blocks as f64
    );
    // Buffers are allocated for the first time until the number of map pages that change between
    // two checkpoints has reached its maximum.
    driver.overwrite(blocks, writes / 8, &mut random);
    let (time, moved) = driver.overwrite(blocks, writes, &mut random);
    let each = time / writes as f64;
    println!("{writes} random overwrites, {moved:.0} moved: {each:.0} ns a user block");
    driver.overwrite(blocks, fresh * 2, &mut random);
    let (time, moved) = driver.overwrite(blocks, writes, &mut random);
    let per_move = (time - each * writes as f64) / moved.max(1.0);
    println!(
        "{writes} random overwrites, {moved:.0} moved: {per_move:.0} ns a moved block, beside {each:.0} ns a user block"
    );
    let status = driver.engine.status();
    println!(
        "checkpoints {} cleaned {} free {} of {} segments",
        status.checkpoints, status.segments_cleaned, status.free_segments, status.plan.segments
    );
}

//! What the engine's own thread costs for each user block: `apply` alone, without jobs, copying, parity and device time.
//!
//! Members are null devices (writes are dropped, so nothing may be read back); jobs run on a thread of their own, as workers do. Random 4 KiB overwrites
//! of a volume with `blocks` mapped blocks. `cargo run --release -p windrow-engine --example engine_bench [blocks] [writes]`

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use windrow_engine::*;
use windrow_io::*;
use windrow_layout::superblock::Properties;
use windrow_units::{MemberId, Redundancy, Uuid, VolumeId};

/// Processor time of this thread: what else runs on the machine changes it little.
fn thread_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Keeps only the first MiB of each member: labels and superblocks.
struct NullMembers(Vec<(Vec<u8>, u64)>);

impl MemberIo for NullMembers {
    fn member_count(&self) -> usize {
        self.0.len()
    }
    fn is_present(&self, _: MemberId) -> bool {
        true
    }
    fn size(&self, member: MemberId) -> u64 {
        self.0[member.index()].1
    }
    fn read(&mut self, member: MemberId, offset: u64, buf: &mut [u8]) -> Result<(), MemberError> {
        buf.fill(0);
        if let Some(source) = self.0[member.index()].0.get(offset as usize..offset as usize + buf.len()) {
            buf.copy_from_slice(source);
        }
        Ok(())
    }
    fn write(&mut self, member: MemberId, offset: u64, buf: &[u8]) -> Result<(), MemberError> {
        if let Some(target) = self.0[member.index()].0.get_mut(offset as usize..offset as usize + buf.len()) {
            target.copy_from_slice(buf);
        }
        Ok(())
    }
    fn flush(&mut self, _: MemberId) -> Result<(), MemberError> {
        Ok(())
    }
}

struct Driver {
    engine: Engine,
    events: Vec<Event>,
    out: Outbox,
    applied: Duration,
    control: Vec<ControlCompletion>,
    completions: u64,
    to_worker: Sender<Job>,
    from_worker: Receiver<Job>,
}

/// A worker: takes jobs and gives them back done.
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
    /// Applies what is queued and everything that follows from it; only `apply` is on the clock.
    fn settle(&mut self) {
        while !self.events.is_empty() {
            let start = thread_time();
            self.engine.apply(&mut self.events, &mut self.out);
            self.applied += thread_time() - start;
            for command in self.out.commands.drain(..) {
                let buf = match command.op {
                    MemberOp::Read { buf, .. } | MemberOp::Write { buf, .. } => Some(buf),
                    MemberOp::Flush | MemberOp::Discard { .. } => None,
                };
                self.events.push(Event::Member(MemberDone { member: command.member, tag: command.tag, buf, result: Ok(()) }));
            }
            let jobs = self.out.jobs.len();
            for job in self.out.jobs.drain(..) {
                self.to_worker.send(job).expect("the worker lives as long as this driver");
            }
            self.events.extend(self.from_worker.iter().take(jobs).map(Event::Job));
            self.completions += self.out.completions.drain(..).filter(|c| c.result.is_ok()).count() as u64;
            self.control.append(&mut self.out.control);
            for notice in self.out.notices.drain(..) {
                println!("{notice:?}");
            }
        }
    }
}

/// Marsaglia's generator: the same numbers in each run.
fn xorshift(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

fn main() {
    let mut args = std::env::args().skip(1).map(|a| a.parse::<u64>().expect("a number"));
    let blocks = args.next().unwrap_or(10_000_000);
    let writes = args.next().unwrap_or(4_000_000);
    let member_bytes = (blocks * 4096 / 6 * 2).next_multiple_of(1 << 20) + (1 << 30) + writes * 4096 / 4;
    let properties = Properties { spare_per_mille: 100, seal_age_ms: 3_600_000, victim_policy: 0, discard: false };
    let members: Vec<(Uuid, u64)> = (0..8).map(|i| (Uuid([i; 16]), member_bytes)).collect();
    let spec = PoolSpec {
        name: "bench".into(),
        redundancy: Redundancy::Double,
        chunk_rows: None,
        segment_rows: None,
        align_bytes: 4096,
        pool: Uuid([9; 16]),
        members,
        created_unix_s: 0,
        properties,
    };
    let mut io = NullMembers((0..8).map(|_| (vec![0; 1 << 20], member_bytes)).collect());
    Engine::format(&mut io, &spec).expect("format");
    let limits = Limits { map_bytes: u64::MAX, ..Limits::default() };
    let options = OpenOptions { host: Uuid([1; 16]), read_only: false, force: false, limits };
    let buffers = BufPool::new(512 << 20);
    let (engine, _) = Engine::open(&mut io, buffers.clone(), &options).expect("open");
    let (to_worker, from_worker) = worker();
    let mut driver =
        Driver { to_worker, from_worker, engine, events: Vec::new(), out: Outbox::default(), applied: Duration::ZERO, control: Vec::new(), completions: 0 };
    let command = Control::VolumeCreate { name: "v".into(), size_bytes: blocks * 4096 };
    driver.events.push(Event::Control(ControlRequest { id: ControlId(1), command }));
    driver.settle();
    let Some(Ok(ControlReply::Volume(volume))) = driver.control.pop().map(|c| c.result) else { panic!("no volume") };

    let mut random = xorshift(0x9e37_79b9_7f4a_7c15);
    let mut data = buffers.get(1 << 20);
    data.chunks_exact_mut(8).for_each(|c| c.copy_from_slice(&random().to_le_bytes()));
    let data = data.freeze();
    let write = |driver: &mut Driver, volume: VolumeId, lba: u64, at: usize, len: usize| {
        let op = Op::Write { offset: lba * 4096, data: data.slice(at * 4096, len), fua: false };
        driver.events.push(Event::Request(Request { id: RequestId(0), volume, op }));
    };
    let mut lba = 0;
    while lba < blocks {
        let count = 256.min(blocks - lba);
        write(&mut driver, volume, lba, 0, count as usize * 4096);
        driver.settle();
        lba += count;
    }
    println!("filled {blocks} blocks: {:.0} ns a block", driver.applied.as_nanos() as f64 / blocks as f64);
    driver.applied = Duration::ZERO;
    let (before, mut done) = (driver.completions, 0);
    while done < writes {
        for _ in 0..128 {
            write(&mut driver, volume, random() % blocks, (random() % 256) as usize, 4096);
        }
        driver.settle();
        done += 128;
    }
    let status = driver.engine.status();
    println!(
        "{} random overwrites, {} answered: {:.0} ns a block on the engine's thread",
        done,
        driver.completions - before,
        driver.applied.as_nanos() as f64 / done as f64
    );
    println!("checkpoints {} cleaned {} free {} of {} segments", status.checkpoints, status.segments_cleaned, status.free_segments, status.plan.segments);
}

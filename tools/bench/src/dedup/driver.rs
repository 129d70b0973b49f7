//! The engine alone, on members that keep written data in memory: no thread, no clock, so every
//! figure is reproducible.

use super::failed;
use std::collections::HashMap;
use windrow_engine::*;
use windrow_format::superblock::Properties;
use windrow_geometry::Redundancy;
use windrow_host::Failure;
use windrow_io::*;
use windrow_types::{BLOCK_SIZE, MemberId, Uuid, VolumeId};

const MEMBERS: usize = 5;
/// Ticks given to background work, a twentieth of a second each.
const TICKS: usize = 200;
/// Memory for buffers.
const BUFFER_BYTES: usize = 256 << 20;

/// Members that allocate memory only for written data.
struct Stores {
    bytes: u64,
    blocks: Vec<HashMap<u64, Box<[u8]>>>,
}

impl MemberIo for Stores {
    fn member_count(&self) -> usize {
        self.blocks.len()
    }
    fn is_present(&self, _: MemberId) -> bool {
        true
    }
    fn size(&self, _: MemberId) -> u64 {
        self.bytes
    }
    fn read(&mut self, member: MemberId, offset: u64, buf: &mut [u8]) -> Result<(), MemberError> {
        for (at, target) in (offset / BLOCK_SIZE as u64..).zip(buf.chunks_mut(BLOCK_SIZE)) {
            match self.blocks[member.index()].get(&at) {
                Some(block) => target.copy_from_slice(&block[..target.len()]),
                None => target.fill(0),
            }
        }
        Ok(())
    }
    fn write(&mut self, member: MemberId, offset: u64, buf: &[u8]) -> Result<(), MemberError> {
        for (at, source) in (offset / BLOCK_SIZE as u64..).zip(buf.chunks(BLOCK_SIZE)) {
            self.blocks[member.index()].insert(at, source.into());
        }
        Ok(())
    }
    fn flush(&mut self, _: MemberId) -> Result<(), MemberError> {
        Ok(())
    }
}

/// A pool and its driver.
pub struct Driver {
    /// The engine.
    pub engine: Engine,
    io: Stores,
    options: OpenOptions,
    events: Vec<Event>,
    out: Outbox,
    control: Vec<ControlCompletion>,
    now_ns: u64,
}

impl Driver {
    /// A new pool with `member_bytes` on each member, and `index_bytes` of memory for its index.
    pub fn new(member_bytes: u64, index_bytes: u64) -> Result<Self, Failure> {
        let spec = PoolSpec {
            name: "bench".into(),
            redundancy: Redundancy::Single,
            chunk_rows: None,
            segment_rows: None,
            align_bytes: 4096,
            pool: Uuid([9; 16]),
            members: (0..MEMBERS as u8)
                .map(|i| (Uuid([i; 16]), member_bytes))
                .collect(),
            created_unix_s: 0,
            journal: None,
            properties: Properties {
                spare_per_mille: 100,
                ..Properties::DEFAULT
            },
        };
        let mut io = Stores {
            bytes: member_bytes,
            blocks: vec![HashMap::new(); MEMBERS],
        };
        Engine::format(&mut io, &spec).map_err(failed)?;
        let limits = Limits {
            index_bytes,
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
            Engine::open(&mut io, BufPool::new(BUFFER_BYTES), &options).map_err(failed)?;
        Ok(Self {
            engine,
            io,
            options,
            events: Vec::new(),
            out: Outbox::default(),
            control: Vec::new(),
            now_ns: 1,
        })
    }

    /// Restarts the pool as after a crash.
    pub fn restart(&mut self) -> Result<(), Failure> {
        let (engine, _) = Engine::open(&mut self.io, BufPool::new(BUFFER_BYTES), &self.options)
            .map_err(failed)?;
        (self.engine, self.out) = (engine, Outbox::default());
        self.pass()
    }

    /// Lets time pass for background work.
    pub fn pass(&mut self) -> Result<(), Failure> {
        (0..TICKS).try_for_each(|_| {
            self.now_ns += 50_000_000;
            self.events.push(Event::Tick(self.now_ns));
            self.settle()
        })
    }

    /// Submits a request; [`Driver::settle`] runs it.
    pub fn request(&mut self, volume: VolumeId, op: Op) {
        self.events.push(Event::Request(Request {
            id: RequestId(0),
            volume,
            op,
        }));
    }

    /// Runs all pending work to its end.
    pub fn settle(&mut self) -> Result<(), Failure> {
        while !self.events.is_empty() {
            self.engine.apply(&mut self.events, &mut self.out);
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
                let buf = buf.map_err(failed)?;
                self.events.push(Event::Member(MemberDone {
                    member,
                    tag,
                    buf,
                    result: Ok(()),
                }));
            }
            for mut job in self.out.jobs.drain(..) {
                job.run();
                self.events.push(Event::Job(job));
            }
            for completion in self.out.completions.drain(..) {
                completion.result.map_err(failed)?;
            }
            self.control.append(&mut self.out.control);
        }
        Ok(())
    }

    /// Runs an administrative command; returns its answer.
    pub fn command(&mut self, command: Control) -> Result<ControlReply, Failure> {
        self.events.push(Event::Control(ControlRequest {
            id: ControlId(1),
            command,
        }));
        self.settle()?;
        if self.control.is_empty() {
            // It waits for background work.
            self.pass()?;
        }
        self.control
            .pop()
            .ok_or_else(|| failed("no answer"))?
            .result
            .map_err(failed)
    }
}

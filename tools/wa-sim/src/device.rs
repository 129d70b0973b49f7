//! Modelled members: a timed device (an SSD, or a memory device) and the content of its blocks.

use crate::content::Content;
use crate::nand::{Ask, Counters, Ssd, Wake};
use crate::timings::{MemoryTimings, Timings, transfer_ns};
use windrow_io::{MemberError, MemberErrorKind, MemberIo};
use windrow_types::{BLOCK_BYTES, MemberId};

/// A memory device: commands one after the other at its rate, each with its latency in addition;
/// answered writes are durable.
#[derive(Clone, Debug)]
pub struct Memory {
    timings: MemoryTimings,
    busy_until: u64,
    next: u64,
    counters: Counters,
    wakes: Vec<(u64, Wake)>,
    done: Vec<u64>,
}

impl Memory {
    fn submit(&mut self, now: u64, ask: Ask) -> u64 {
        let rate =
            |count: u64| transfer_ns(count * BLOCK_BYTES, self.timings.bytes_per_second.value);
        let (service, latency) = match ask {
            Ask::Read { count, .. } | Ask::Write { count, .. } => (
                rate(count).max(1_000_000_000 / self.timings.commands_per_second.value),
                self.timings.latency_ns.value,
            ),
            Ask::Flush => (0, self.timings.flush_ns.value),
            Ask::Discard { .. } => (0, self.timings.latency_ns.value),
        };
        self.count(ask);
        self.busy_until = self.busy_until.max(now) + service;
        self.next += 1;
        self.wakes
            .push((self.busy_until + latency, Wake::End(self.next)));
        self.next
    }

    fn count(&mut self, ask: Ask) {
        match ask {
            Ask::Read { count, .. } => self.counters.read_bytes += count * BLOCK_BYTES,
            Ask::Write { count, .. } => self.counters.written_bytes += count * BLOCK_BYTES,
            Ask::Flush => self.counters.flushes += 1,
            Ask::Discard { .. } => {}
        }
    }
}

/// A timed device.
#[derive(Clone, Debug)]
pub enum Device {
    /// An SSD.
    Ssd(Box<Ssd>),
    /// A memory device.
    Memory(Box<Memory>),
}

impl Device {
    /// An SSD with `blocks` blocks.
    pub fn ssd(timings: &Timings, blocks: u64, options: &DeviceOptions) -> Self {
        Self::Ssd(Box::new(Ssd::new(&timings.ssd, blocks, options)))
    }

    /// A memory device.
    pub fn memory(timings: &Timings) -> Self {
        let timings = timings.memory.clone();
        Self::Memory(Box::new(Memory {
            timings,
            busy_until: 0,
            next: 0,
            counters: Counters::default(),
            wakes: Vec::new(),
            done: Vec::new(),
        }))
    }

    /// Submits a command; its number is returned among the completed ones.
    pub fn submit(&mut self, now: u64, ask: Ask) -> u64 {
        match self {
            Self::Ssd(ssd) => ssd.submit(now, ask),
            Self::Memory(memory) => memory.submit(now, ask),
        }
    }

    /// Handles a wake whose time has come.
    pub fn wake(&mut self, now: u64, wake: Wake) {
        match (self, wake) {
            (Self::Ssd(ssd), _) => ssd.wake(now, wake),
            (Self::Memory(memory), Wake::End(id)) => memory.done.push(id),
            (Self::Memory(_), Wake::Begin(_) | Wake::Die(..)) => {}
        }
    }

    /// Performs a command at once, outside virtual time.
    pub fn do_now(&mut self, ask: Ask) {
        match self {
            Self::Ssd(ssd) => ssd.do_now(ask),
            Self::Memory(memory) => memory.count(ask),
        }
    }

    /// Takes the pending wakes.
    pub fn wakes(&mut self) -> &mut Vec<(u64, Wake)> {
        match self {
            Self::Ssd(ssd) => &mut ssd.wakes,
            Self::Memory(memory) => &mut memory.wakes,
        }
    }

    /// Takes the completed commands.
    pub fn done(&mut self) -> &mut Vec<u64> {
        match self {
            Self::Ssd(ssd) => &mut ssd.done,
            Self::Memory(memory) => &mut memory.done,
        }
    }

    /// Counters. Writes of a memory device count as programmed.
    pub fn counters(&self) -> Counters {
        match self {
            Self::Ssd(ssd) => ssd.counters,
            Self::Memory(memory) => Counters {
                programmed_bytes: memory.counters.written_bytes,
                ..memory.counters
            },
        }
    }
}

/// Kind of SSD.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceOptions {
    /// Capacitors protect the write buffer.
    pub protected: bool,
    /// Programs are suspended for reads.
    pub suspend: bool,
    /// Reads queue after the programs that wait for their die.
    pub in_order: bool,
}

/// A member of a pool.
#[derive(Clone, Debug)]
pub struct Member {
    /// Content of its blocks.
    pub content: Content,
    /// Its device.
    pub device: Device,
}

/// All members of a pool; as [`MemberIo`] they take no virtual time.
#[derive(Clone, Debug)]
pub struct Members(pub Vec<Member>);

impl Members {
    /// Sums over all members.
    pub fn counters(&self) -> Counters {
        sum(self.0.iter().map(|member| member.device.counters()))
    }
}

/// The sum of counters.
pub fn sum(counters: impl Iterator<Item = Counters>) -> Counters {
    counters.fold(Counters::default(), |a, b| Counters {
        written_bytes: a.written_bytes + b.written_bytes,
        programmed_bytes: a.programmed_bytes + b.programmed_bytes,
        read_bytes: a.read_bytes + b.read_bytes,
        flushes: a.flushes + b.flushes,
        erases: a.erases + b.erases,
        suspensions: a.suspensions + b.suspensions,
    })
}

/// The blocks that a range of bytes touches.
pub fn blocks_of(offset: u64, bytes: u64) -> (u64, u64) {
    (
        offset / BLOCK_BYTES,
        (offset % BLOCK_BYTES + bytes).div_ceil(BLOCK_BYTES),
    )
}

impl MemberIo for Members {
    fn member_count(&self) -> usize {
        self.0.len()
    }

    fn is_present(&self, _: MemberId) -> bool {
        true
    }

    fn size(&self, member: MemberId) -> u64 {
        self.0[member.index()].content.blocks() * BLOCK_BYTES
    }

    fn read(&mut self, member: MemberId, offset: u64, buf: &mut [u8]) -> Result<(), MemberError> {
        if offset + buf.len() as u64 > self.size(member) {
            return Err(MemberError {
                member,
                kind: MemberErrorKind::Media,
                offset,
                code: 0,
            });
        }
        self.0[member.index()].content.read(offset, buf);
        Ok(())
    }

    fn write(&mut self, member: MemberId, offset: u64, buf: &[u8]) -> Result<(), MemberError> {
        if offset + buf.len() as u64 > self.size(member) {
            return Err(MemberError {
                member,
                kind: MemberErrorKind::Media,
                offset,
                code: 0,
            });
        }
        let (block, count) = blocks_of(offset, buf.len() as u64);
        self.0[member.index()].content.write(offset, buf);
        self.0[member.index()]
            .device
            .do_now(Ask::Write { block, count });
        Ok(())
    }

    fn flush(&mut self, member: MemberId) -> Result<(), MemberError> {
        self.0[member.index()].device.do_now(Ask::Flush);
        Ok(())
    }
}

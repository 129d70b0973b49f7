//! Member wrapper with a limited rate, for benchmarks of drives that are slower than this machine's
//! disk.
//!
//! Reads and writes take turns on a simulated wire. Each begins when the preceding one has ended,
//! takes its length at the rate, and is not answered before that (nor before the inner member is
//! done). Commands therefore wait for one another as in a drive with one queue; idle time is not
//! saved up. Flushes and discards pass.
//!
//! A buffer simulates a drive with a protected write cache. A write is answered as soon as it and
//! the queued writes fit into the buffer, and goes over the wire later. A read does not wait for
//! buffered writes; they wait for it.

#[cfg(test)]
mod tests;

use crate::DeviceError;
use crate::member::{Member, MemberInfo};
use std::os::fd::RawFd;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Rate and buffer of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// Bytes read and written per second, in total; at least 1.
    pub bytes_per_second: u64,
    /// Bytes of writes that may be answered before they have gone over the wire.
    pub buffer_bytes: u64,
}

/// The wire.
#[derive(Debug)]
struct Wire {
    pace: Pace,
    /// Time at which it is free.
    free: Instant,
    /// Time at which it would be free without the writes.
    free_of_reads: Instant,
}

impl Wire {
    fn new(pace: Pace, now: Instant) -> Self {
        Self {
            pace,
            free: now,
            free_of_reads: now,
        }
    }

    fn time_of(&self, bytes: u64) -> Duration {
        let ns = u128::from(bytes) * 1_000_000_000 / u128::from(self.pace.bytes_per_second.max(1));
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// Completion time of a read that arrives now.
    fn read(&mut self, now: Instant, bytes: u64) -> Instant {
        let takes = self.time_of(bytes);
        self.free = self.free.max(now) + takes;
        self.free_of_reads = self.free_of_reads.max(now) + takes;
        if self.pace.buffer_bytes == 0 {
            self.free
        } else {
            self.free_of_reads
        }
    }

    /// Completion time of a write that arrives now.
    fn write(&mut self, now: Instant, bytes: u64) -> Instant {
        self.free = self.free.max(now) + self.time_of(bytes);
        self.free
            .checked_sub(self.time_of(self.pace.buffer_bytes))
            .unwrap_or(now)
    }
}

/// Paces the inner member. It hides that member's descriptor, so that nothing bypasses the wire.
#[derive(Debug)]
pub struct PacedMember<M> {
    inner: M,
    wire: Mutex<Wire>,
}

impl<M: Member> PacedMember<M> {
    /// Wraps a member with this pace.
    pub fn new(inner: M, pace: Pace) -> Self {
        Self {
            inner,
            wire: Mutex::new(Wire::new(pace, Instant::now())),
        }
    }

    fn paced(
        &self,
        turn: impl FnOnce(&mut Wire, Instant) -> Instant,
        operation: impl FnOnce() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let until = turn(
            &mut self.wire.lock().unwrap_or_else(PoisonError::into_inner),
            Instant::now(),
        );
        let result = operation();
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
        result
    }
}

impl<M: Member> Member for PacedMember<M> {
    fn info(&self) -> &MemberInfo {
        self.inner.info()
    }

    fn size_now(&self) -> Result<u64, DeviceError> {
        self.inner.size_now()
    }

    fn is_nameless(&self) -> bool {
        self.inner.is_nameless()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        let length = buf.len() as u64;
        self.paced(
            |wire, now| wire.read(now, length),
            || self.inner.read_at(offset, buf),
        )
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.paced(
            |wire, now| wire.write(now, data.len() as u64),
            || self.inner.write_at(offset, data),
        )
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.inner.discard(offset, length)
    }

    fn erase_behind(&self) -> Result<(), DeviceError> {
        self.inner.erase_behind()
    }

    fn raw_fd(&self) -> Option<RawFd> {
        None
    }
}

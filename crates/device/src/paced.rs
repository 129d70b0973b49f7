//! A member that takes no more than so many bytes a second, for benchmarks of drives that are
//! slower than this machine's disk.
//!
//! Each read and write has its turn on an imaginary wire: it begins when the one before has ended,
//! takes its length at the rate, and is not answered before that (nor before the member inside has
//! done it). So commands wait for one another as in a drive with one queue, and an idle wire saves
//! nothing up. Flushes and discards pass.
//!
//! With a buffer, as of a drive whose capacitors protect it: a write is answered as soon as what is
//! before it and itself fits into the buffer, and goes over the wire later; a read does not wait
//! for buffered writes, only they for it.

#[cfg(test)]
mod tests;

use crate::DeviceError;
use crate::member::{Member, MemberInfo};
use std::os::fd::RawFd;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How fast a member is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// Bytes read and written each second, together; at least 1.
    pub bytes_per_second: u64,
    /// Bytes of writes that are answered before they have gone over the wire.
    pub buffer_bytes: u64,
}

/// The wire.
#[derive(Debug)]
struct Wire {
    pace: Pace,
    /// When it is free.
    free: Instant,
    /// When it would be free without the writes.
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

    /// When a read that comes now is answered.
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

    /// When a write that comes now is answered.
    fn write(&mut self, now: Instant, bytes: u64) -> Instant {
        self.free = self.free.max(now) + self.time_of(bytes);
        self.free
            .checked_sub(self.time_of(self.pace.buffer_bytes))
            .unwrap_or(now)
    }
}

/// Paces what goes to the member inside. It hides the descriptor of that, so that nothing goes past
/// the wire.
#[derive(Debug)]
pub struct PacedMember<M> {
    inner: M,
    wire: Mutex<Wire>,
}

impl<M: Member> PacedMember<M> {
    /// No faster than that.
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

//! A member that takes no more than so many bytes a second, for benchmarks of drives that are slower than this machine's disk.
//!
//! Each read and write has its turn on an imaginary wire: it begins when the one before has ended, takes its length at the rate, and is not answered before that
//! (nor before the member inside has done it). So commands wait for one another as in a drive with one queue, and an idle wire saves nothing up. Flushes and discards pass.

#[cfg(test)]
mod tests;

use crate::DeviceError;
use crate::member::{Member, MemberInfo};
use std::os::fd::RawFd;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The wire.
#[derive(Debug)]
struct Wire {
    bytes_per_second: u64,
    /// When it is free.
    free: Instant,
}

impl Wire {
    /// When a command that comes now has gone over it.
    fn take(&mut self, now: Instant, bytes: u64) -> Instant {
        let takes = Duration::from_nanos((u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second)) as u64);
        self.free = self.free.max(now) + takes;
        self.free
    }
}

/// Paces what goes to the member inside. It hides the descriptor of that, so that nothing goes past the wire.
#[derive(Debug)]
pub struct PacedMember<M> {
    inner: M,
    wire: Mutex<Wire>,
}

impl<M: Member> PacedMember<M> {
    /// At most so many bytes a second; at least 1.
    pub fn new(inner: M, bytes_per_second: u64) -> Self {
        Self { inner, wire: Mutex::new(Wire { bytes_per_second: bytes_per_second.max(1), free: Instant::now() }) }
    }

    fn paced(&self, bytes: usize, operation: impl FnOnce() -> Result<(), DeviceError>) -> Result<(), DeviceError> {
        let now = Instant::now();
        let until = self.wire.lock().unwrap_or_else(PoisonError::into_inner).take(now, bytes as u64);
        let result = operation();
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
        result
    }
}

impl<M: Member> Member for PacedMember<M> {
    fn info(&self) -> &MemberInfo {
        self.inner.info()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.paced(buf.len(), || self.inner.read_at(offset, buf))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.paced(data.len(), || self.inner.write_at(offset, data))
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

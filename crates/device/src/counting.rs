//! Member wrapper that counts operations and bytes, for the test of the accounting invariant.
//!
//! Only successful operations count towards bytes, each exactly once; failed ones are counted
//! separately. It hides the descriptor of the inner member, so that nothing bypasses the counters.

#[cfg(test)]
mod tests;

use crate::DeviceError;
use crate::member::{Member, MemberInfo};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a [`CountingMember`]. Each number is exact; a snapshot taken during operations may
/// fall between two updates.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Bytes discarded.
    pub discarded_bytes: u64,
    /// Successful reads.
    pub reads: u64,
    /// Successful writes.
    pub writes: u64,
    /// Successful flushes.
    pub flushes: u64,
    /// Successful discards.
    pub discards: u64,
    /// Operations of any kind that failed.
    pub failures: u64,
}

#[derive(Debug, Default)]
struct Counters {
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    discarded_bytes: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
    flushes: AtomicU64,
    discards: AtomicU64,
    failures: AtomicU64,
}

/// Counts the operations of the inner member.
#[derive(Debug)]
pub struct CountingMember<M> {
    inner: M,
    counters: Counters,
}

impl<M: Member> CountingMember<M> {
    /// Wraps a member; all counters are zero.
    pub fn new(inner: M) -> Self {
        Self {
            inner,
            counters: Counters::default(),
        }
    }

    /// Current counters.
    pub fn counts(&self) -> Counts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            read_bytes: get(&self.counters.read_bytes),
            written_bytes: get(&self.counters.written_bytes),
            discarded_bytes: get(&self.counters.discarded_bytes),
            reads: get(&self.counters.reads),
            writes: get(&self.counters.writes),
            flushes: get(&self.counters.flushes),
            discards: get(&self.counters.discards),
            failures: get(&self.counters.failures),
        }
    }

    /// The inner member.
    pub fn inner(&self) -> &M {
        &self.inner
    }

    fn count(
        &self,
        result: Result<(), DeviceError>,
        operations: &AtomicU64,
        bytes: Option<(&AtomicU64, u64)>,
    ) -> Result<(), DeviceError> {
        match result {
            Ok(()) => {
                operations.fetch_add(1, Ordering::Relaxed);
                if let Some((counter, amount)) = bytes {
                    counter.fetch_add(amount, Ordering::Relaxed);
                }
            }
            Err(_) => {
                self.counters.failures.fetch_add(1, Ordering::Relaxed);
            }
        }
        result
    }
}

impl<M: Member> Member for CountingMember<M> {
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
        let result = self.inner.read_at(offset, buf);
        self.count(
            result,
            &self.counters.reads,
            Some((&self.counters.read_bytes, buf.len() as u64)),
        )
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        let result = self.inner.write_at(offset, data);
        self.count(
            result,
            &self.counters.writes,
            Some((&self.counters.written_bytes, data.len() as u64)),
        )
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let result = self.inner.flush();
        self.count(result, &self.counters.flushes, None)
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        let result = self.inner.discard(offset, length);
        self.count(
            result,
            &self.counters.discards,
            Some((&self.counters.discarded_bytes, length)),
        )
    }

    fn raw_fd(&self) -> Option<RawFd> {
        None
    }
}

//! Member wrapper that injects faults. Test use only.
//!
//! Faults are rules: a kind, a byte range, and a number of strikes. The first rule that matches an
//! operation and has strikes left decides about errors; corruption and latency rules all apply.

#[cfg(test)]
mod tests;

use crate::DeviceError;
use crate::member::{Member, MemberInfo};
use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::{Condvar, Mutex};
use std::time::Duration;
use windrow_io::MemberErrorKind;

/// Handle of an injected fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FaultId(u64);

/// Kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// Reads that touch the range fail.
    ReadError(MemberErrorKind),
    /// Writes that touch the range fail and change nothing.
    WriteError(MemberErrorKind),
    /// Flushes fail; the range does not matter.
    FlushError(MemberErrorKind),
    /// Reads succeed, but the bytes in the range come back with these bits flipped.
    CorruptRead {
        /// Flipped in every byte; not zero.
        bits: u8,
    },
    /// Writes succeed, but the bytes in the range are stored with these bits flipped.
    CorruptWrite {
        /// Flipped in every byte; not zero.
        bits: u8,
    },
    /// Writes that touch the range succeed and change nothing.
    LostWrite,
    /// Operations that touch the range (and flushes) are delayed by this time.
    Latency(Duration),
    /// Operations that touch the range (and flushes) do not end until the fault is removed,
    /// regardless of their number.
    Hang,
}

/// A fault to inject.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Kind.
    pub kind: FaultKind,
    /// Byte range of the member.
    pub range: Range<u64>,
    /// Number of operations it affects; `None`: all until removed.
    pub strikes: Option<u32>,
}

impl Fault {
    /// A fault of the whole member, until removed.
    pub fn everywhere(kind: FaultKind) -> Self {
        Self {
            kind,
            range: 0..u64::MAX,
            strikes: None,
        }
    }
}

#[derive(Debug, Default)]
struct Rules {
    next: u64,
    list: Vec<(FaultId, Fault)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Read,
    Write,
    Flush,
    Discard,
}

/// Decision of the rules for one operation.
#[derive(Default)]
struct Verdict {
    error: Option<MemberErrorKind>,
    lost: bool,
    delay: Duration,
    hangs: Vec<FaultId>,
    flips: Vec<(Range<u64>, u8)>,
}

/// Injects faults into the inner member.
#[derive(Debug)]
pub struct FaultyMember<M> {
    inner: M,
    rules: Mutex<Rules>,
    taken_away: Condvar,
}

impl<M: Member> FaultyMember<M> {
    /// Wraps a member; no faults yet.
    pub fn new(inner: M) -> Self {
        Self {
            inner,
            rules: Mutex::new(Rules::default()),
            taken_away: Condvar::new(),
        }
    }

    /// Adds a fault.
    pub fn add(&self, fault: Fault) -> FaultId {
        let mut rules = self.rules.lock().unwrap_or_else(|e| e.into_inner());
        rules.next += 1;
        let id = FaultId(rules.next);
        rules.list.push((id, fault));
        id
    }

    /// Removes a fault; false if it no longer exists.
    pub fn remove(&self, id: FaultId) -> bool {
        let mut rules = self.rules.lock().unwrap_or_else(|e| e.into_inner());
        let before = rules.list.len();
        rules.list.retain(|(known, _)| *known != id);
        self.taken_away.notify_all();
        rules.list.len() < before
    }

    /// Removes all faults.
    pub fn clear(&self) {
        self.rules
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .list
            .clear();
        self.taken_away.notify_all();
    }

    /// The inner member.
    pub fn inner(&self) -> &M {
        &self.inner
    }

    fn judge(&self, operation: Operation, offset: u64, length: u64) -> Verdict {
        let mut verdict = Verdict::default();
        let end = offset.saturating_add(length);
        let mut rules = self.rules.lock().unwrap_or_else(|e| e.into_inner());
        for (id, fault) in &mut rules.list {
            let touched = fault.range.start.max(offset)..fault.range.end.min(end);
            if operation != Operation::Flush && touched.is_empty() {
                continue;
            }
            let struck = match (fault.kind, operation) {
                (FaultKind::ReadError(kind), Operation::Read)
                | (FaultKind::WriteError(kind), Operation::Write)
                | (FaultKind::FlushError(kind), Operation::Flush) => {
                    verdict.error.is_none() && verdict.error.replace(kind).is_none()
                }
                (FaultKind::CorruptRead { bits }, Operation::Read)
                | (FaultKind::CorruptWrite { bits }, Operation::Write) => {
                    verdict
                        .flips
                        .push((touched.start - offset..touched.end - offset, bits));
                    true
                }
                (FaultKind::LostWrite, Operation::Write) => {
                    verdict.lost = true;
                    true
                }
                (FaultKind::Latency(delay), _) => {
                    verdict.delay += delay;
                    true
                }
                (FaultKind::Hang, _) => {
                    verdict.hangs.push(*id);
                    false
                }
                _ => false,
            };
            if struck && let Some(left) = &mut fault.strikes {
                *left = left.saturating_sub(1);
            }
        }
        rules.list.retain(|(_, fault)| fault.strikes != Some(0));
        drop(rules);
        if !verdict.delay.is_zero() {
            std::thread::sleep(verdict.delay);
        }
        let mut rules = self.rules.lock().unwrap_or_else(|e| e.into_inner());
        while rules.list.iter().any(|(id, _)| verdict.hangs.contains(id)) {
            rules = self
                .taken_away
                .wait(rules)
                .unwrap_or_else(|e| e.into_inner());
        }
        verdict
    }
}

fn error(kind: MemberErrorKind, offset: u64) -> DeviceError {
    let code = match kind {
        MemberErrorKind::Gone => libc::ENODEV,
        MemberErrorKind::Media => libc::EIO,
        MemberErrorKind::Other => libc::EPROTO,
        MemberErrorKind::PowerCut => 0,
    };
    DeviceError { kind, offset, code }
}

fn flip(bytes: &mut [u8], flips: &[(Range<u64>, u8)]) {
    for (range, bits) in flips {
        for byte in &mut bytes[range.start as usize..range.end as usize] {
            *byte ^= bits;
        }
    }
}

impl<M: Member> Member for FaultyMember<M> {
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
        let verdict = self.judge(Operation::Read, offset, buf.len() as u64);
        if let Some(kind) = verdict.error {
            return Err(error(kind, offset));
        }
        self.inner.read_at(offset, buf)?;
        flip(buf, &verdict.flips);
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        let verdict = self.judge(Operation::Write, offset, data.len() as u64);
        if let Some(kind) = verdict.error {
            return Err(error(kind, offset));
        }
        if verdict.lost {
            return self.info().check_write(offset, data.len() as u64);
        }
        if verdict.flips.is_empty() {
            return self.inner.write_at(offset, data);
        }
        let mut bad = data.to_vec();
        flip(&mut bad, &verdict.flips);
        self.inner.write_at(offset, &bad)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        match self.judge(Operation::Flush, 0, 0).error {
            Some(kind) => Err(error(kind, 0)),
            None => self.inner.flush(),
        }
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.judge(Operation::Discard, offset, length);
        self.inner.discard(offset, length)
    }

    fn raw_fd(&self) -> Option<RawFd> {
        None
    }
}

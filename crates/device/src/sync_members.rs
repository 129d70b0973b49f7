//! Synchronous access to the members, for creation, recovery and checks.
//!
//! Recovery reads tens of thousands of single blocks (headers of batches, pages of the map) at
//! random positions; one after the other each would cost a device latency. `read_many` therefore
//! keeps many in flight: through its own io_uring where all members have descriptors, otherwise
//! with a few threads. Memory members are simply copied.

#[cfg(test)]
mod tests;

use crate::DeviceError;
use crate::member::{Member, MemberKind};
use crate::queue::{Members, Queue, Reap, UringReaper, UringSubmitter, uring, uring_available};
use std::sync::Arc;
use windrow_io::{
    BufPool, IoTag, MemberCommand, MemberDone, MemberError, MemberErrorKind, MemberIo, MemberOp,
    ReadItem,
};
use windrow_types::MemberId;

/// Number of reads in flight in the ring: enough for the deepest queue of a drive, over several of
/// them.
const RING_DEPTH: u32 = 256;
/// Fewer reads than this are performed one by one.
const WORTH_OVERLAPPING: usize = 4;
const THREADS_MAX: usize = 16;

/// A member table with synchronous access. A member that is gone, or whose flush failed, counts as
/// absent from then on.
pub struct SyncMembers {
    members: Members,
    latched: Vec<bool>,
    ring: Ring,
    placeholders: BufPool,
}

enum Ring {
    NotTried,
    Refused,
    Open(Box<(UringSubmitter, UringReaper)>),
}

impl SyncMembers {
    /// Access to these members; the index is the member id, `None` an absent member.
    pub fn new(members: Members) -> Self {
        let latched = vec![false; members.len()];
        Self {
            members,
            latched,
            ring: Ring::NotTried,
            placeholders: BufPool::new(16 << 20),
        }
    }

    /// The members, to pass them to a queue.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// The members, to pass them to a queue; releases the ring.
    pub fn into_members(self) -> Members {
        self.members
    }

    fn present(&self, member: MemberId, offset: u64) -> Result<Arc<dyn Member>, MemberError> {
        match (
            self.members.get(member.index()),
            self.latched.get(member.index()),
        ) {
            (Some(Some(present)), Some(false)) => Ok(present.clone()),
            _ => Err(DeviceError::gone(offset).of(member)),
        }
    }

    fn latch_if_gone(&mut self, member: MemberId, result: &Result<(), MemberError>) {
        if let (Err(error), Some(latched)) = (result, self.latched.get_mut(member.index())) {
            *latched |= matches!(
                error.kind,
                MemberErrorKind::Gone | MemberErrorKind::PowerCut
            );
        }
    }

    /// The ring, if all members have descriptors and one is available.
    fn ring(&mut self) -> Option<&mut (UringSubmitter, UringReaper)> {
        if matches!(self.ring, Ring::NotTried) {
            let possible =
                self.members.iter().flatten().all(|m| m.raw_fd().is_some()) && uring_available();
            self.ring = match possible.then(|| uring(self.members.clone(), RING_DEPTH)) {
                Some(Ok(halves)) => Ring::Open(Box::new(halves)),
                _ => Ring::Refused,
            };
        }
        match &mut self.ring {
            Ring::Open(halves) => Some(halves),
            Ring::NotTried | Ring::Refused => None,
        }
    }

    /// Sends all reads through the ring. False if the ring broke: unanswered items keep their
    /// previous error.
    fn read_through_ring(&mut self, items: &mut [ReadItem]) -> bool {
        let placeholders = self.placeholders.clone();
        let mut commands: Vec<MemberCommand> = Vec::with_capacity(items.len());
        for (index, item) in items.iter_mut().enumerate() {
            item.result = self.present(item.member, item.offset).map(drop);
            if item.result.is_ok() {
                item.result = Err(MemberError {
                    member: item.member,
                    kind: MemberErrorKind::Other,
                    offset: item.offset,
                    code: libc::EIO,
                });
                let buf = std::mem::replace(&mut item.buf, placeholders.get(0));
                commands.push(MemberCommand {
                    member: item.member,
                    tag: IoTag(index as u64),
                    op: MemberOp::Read {
                        offset: item.offset,
                        buf,
                    },
                });
            }
        }
        let Some((submitter, reaper)) = self.ring() else {
            return false;
        };
        let mut left = commands.len();
        let mut done: Vec<MemberDone> = Vec::with_capacity(left.min(RING_DEPTH as usize));
        submitter.submit(&mut commands, &mut done);
        while left > 0 {
            for item in done.drain(..) {
                left -= 1;
                let Some(place) = usize::try_from(item.tag.0)
                    .ok()
                    .and_then(|index| items.get_mut(index))
                else {
                    continue;
                };
                place.result = item.result;
                if let Some(buf) = item.buf {
                    place.buf = buf;
                }
            }
            if left > 0 && reaper.wait(&mut done).is_err() {
                return false;
            }
        }
        true
    }

    fn read_with_threads(&self, items: &mut [ReadItem]) {
        let threads = (items.len() / WORTH_OVERLAPPING).clamp(1, THREADS_MAX);
        let share = items.len().div_ceil(threads);
        let this = &self.members;
        let latched = &self.latched;
        std::thread::scope(|scope| {
            for part in items.chunks_mut(share) {
                scope.spawn(move || {
                    for item in part {
                        item.result = match (
                            this.get(item.member.index()),
                            latched.get(item.member.index()),
                        ) {
                            (Some(Some(member)), Some(false)) => member
                                .read_at(item.offset, &mut item.buf)
                                .map_err(|e| e.of(item.member)),
                            _ => Err(DeviceError::gone(item.offset).of(item.member)),
                        };
                    }
                });
            }
        });
    }
}

impl MemberIo for SyncMembers {
    fn member_count(&self) -> usize {
        self.members.len()
    }

    fn is_present(&self, member: MemberId) -> bool {
        self.present(member, 0).is_ok()
    }

    fn size(&self, member: MemberId) -> u64 {
        self.present(member, 0).map_or(0, |m| m.info().size_bytes)
    }

    fn sector_bytes(&self, member: MemberId) -> u32 {
        self.present(member, 0)
            .map_or(512, |m| m.info().logical_sector)
    }

    fn read(&mut self, member: MemberId, offset: u64, buf: &mut [u8]) -> Result<(), MemberError> {
        let result = self
            .present(member, offset)?
            .read_at(offset, buf)
            .map_err(|e| e.of(member));
        self.latch_if_gone(member, &result);
        result
    }

    fn read_many(&mut self, items: &mut [ReadItem]) {
        let memory_only = self
            .members
            .iter()
            .flatten()
            .all(|m| m.info().kind == MemberKind::Memory && m.raw_fd().is_none());
        if items.len() < WORTH_OVERLAPPING || memory_only {
            for item in items {
                item.result = self.read(item.member, item.offset, &mut item.buf);
            }
            return;
        }
        if self.ring().is_some() {
            if !self.read_through_ring(items) {
                self.ring = Ring::Refused;
            }
        } else {
            self.read_with_threads(items);
        }
        for item in items {
            self.latch_if_gone(item.member, &item.result);
        }
    }

    fn write(&mut self, member: MemberId, offset: u64, buf: &[u8]) -> Result<(), MemberError> {
        let result = self
            .present(member, offset)?
            .write_at(offset, buf)
            .map_err(|e| e.of(member));
        self.latch_if_gone(member, &result);
        result
    }

    fn flush(&mut self, member: MemberId) -> Result<(), MemberError> {
        let result = self.present(member, 0)?.flush().map_err(|e| e.of(member));
        if result.is_err() {
            self.latched[member.index()] = true;
        }
        result
    }
}

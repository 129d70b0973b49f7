//! Members of a simulated pool: media, faults, and two interfaces.
//!
//! *Synchronous*, as [`MemberIo`], while a pool is created or opened. A countdown can cut the power
//! after a number of writes and flushes: from then on every call returns `PowerCut`, and the write
//! in progress may be partly on the medium.
//!
//! *Asynchronous*, for the engine in service: [`VirtualMembers::start`] when the engine sends a
//! command, [`VirtualMembers::finish`] when the command ends in the driver's virtual time. A write
//! becomes visible at its end; a flush covers writes that had ended before its start; a discard
//! destroys at its start, on a hung member at its end.

mod media;

pub use media::{Image, Received, Survival, VirtualMember};

use windrow_io::{MemberCommand, MemberDone, MemberError, MemberErrorKind, MemberIo, MemberOp};
use windrow_random::{Rng, mix};
use windrow_types::{BLOCK_BYTES, MemberId};

/// Fault injection of the members: the checks must find it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DeviceBug {
    /// None: the members are correct.
    #[default]
    None,
    /// Members `0..members` acknowledge every flush without performing it.
    DroppedFlush {
        /// Number of members: one more than the redundancy covers.
        members: usize,
    },
    /// A discard takes effect before the preceding flush.
    DiscardBeforeFlush,
}

/// Faults of one member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ailment {
    /// Every operation returns `Gone`.
    pub gone: bool,
    /// The next write fails with a medium error.
    pub next_write_fails: bool,
    /// Every write fails: the member is worn out, but readable.
    pub worn_out: bool,
    /// The next flush fails and drops the cached writes.
    pub next_flush_fails: bool,
    /// Number of reads that fail from now on.
    pub failing_reads: u32,
    /// Number of writes from now on that are acknowledged and lost.
    pub lost_writes: u32,
    /// Number of writes from now on that are acknowledged and land elsewhere on the member.
    pub misdirected_writes: u32,
}

/// A command in flight.
#[derive(Debug)]
pub struct Started {
    /// The command, with its buffer.
    pub command: MemberCommand,
    mark: u64,
    /// True if a discard destroys at its end.
    is_late: bool,
}

/// The members of a pool.
#[derive(Clone)]
pub struct VirtualMembers {
    members: Vec<VirtualMember>,
    ailments: Vec<Ailment>,
    canary: DeviceBug,
    countdown: Option<u64>,
    cut: bool,
    rng: Rng,
}

impl VirtualMembers {
    /// Empty members of these sizes.
    pub fn new(sizes: &[u64], discard_fill: u8, rng: Rng) -> Self {
        let members: Vec<_> = sizes
            .iter()
            .map(|size| VirtualMember::new(*size, discard_fill))
            .collect();
        Self {
            ailments: vec![Ailment::default(); members.len()],
            members,
            canary: DeviceBug::None,
            countdown: None,
            cut: false,
            rng,
        }
    }

    /// Sets new sizes; members only grow.
    pub fn resize(&mut self, sizes: &[u64]) {
        self.members
            .iter_mut()
            .zip(sizes)
            .for_each(|(member, size)| member.grow(*size));
    }

    /// A member.
    pub fn member(&self, member: MemberId) -> &VirtualMember {
        &self.members[member.index()]
    }

    /// A member, for fault injection.
    pub fn member_mut(&mut self, member: MemberId) -> &mut VirtualMember {
        &mut self.members[member.index()]
    }

    /// Faults of a member, for fault injection.
    pub fn ailment_mut(&mut self, member: MemberId) -> &mut Ailment {
        &mut self.ailments[member.index()]
    }

    /// Flips bits of a member's last write.
    pub fn corrupt_recent(&mut self, member: MemberId) {
        self.members[member.index()].corrupt_recent(&mut self.rng);
    }

    /// Hash of the content of all present media.
    pub fn hash(&self) -> u64 {
        self.members
            .iter()
            .zip(&self.ailments)
            .fold(0, |hash, (member, ailment)| {
                mix(hash ^ if ailment.gone { 1 } else { member.hash() })
            })
    }

    /// Flips bits of a range of a member.
    pub fn corrupt(&mut self, member: MemberId, offset: u64, length: u64) {
        self.members[member.index()].corrupt(&mut self.rng, offset, length);
    }

    /// Makes writes to the devices of this bit mask durable when they end; to the others, when they
    /// are flushed.
    pub fn set_power_safe(&mut self, members: u64) {
        self.members
            .iter_mut()
            .enumerate()
            .for_each(|(index, member)| member.power_safe = members >> index & 1 == 1);
    }

    /// Enables a canary from now on.
    pub fn set_canary(&mut self, canary: DeviceBug) {
        self.canary = canary;
    }

    /// Cuts the power after `count` more synchronous writes and flushes; `None` cancels it.
    pub fn set_countdown(&mut self, count: Option<u64>) {
        self.countdown = count;
    }

    /// True if the countdown has expired.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Resets the counters of every member.
    pub fn reset_received(&mut self) {
        for member in &mut self.members {
            member.received = Received::default();
        }
    }

    /// Cuts and restores the power. `in_flight`: commands that had been started and had not ended.
    pub fn power_cut(&mut self, in_flight: Vec<Started>) {
        let mut writes: Vec<Vec<(u64, Vec<u8>)>> =
            self.members.iter().map(|_| Vec::new()).collect();
        for started in in_flight {
            if let MemberOp::Write { offset, buf } = &started.command.op
                && !self.ailments[started.command.member.index()].gone
            {
                writes[started.command.member.index()].push((*offset, buf.to_vec()));
            }
        }
        for (member, writes) in self.members.iter_mut().zip(writes) {
            member.power_cut(&mut self.rng, writes);
        }
        for ailment in &mut self.ailments {
            *ailment = Ailment {
                gone: ailment.gone,
                ..Ailment::default()
            };
        }
        self.cut = false;
        self.countdown = None;
    }

    /// Adds a device.
    pub fn push(&mut self, device: VirtualMember) {
        self.members.push(device);
        self.ailments.push(Ailment::default());
    }

    /// Replaces a member's device by a new, empty one. Returns the old one, as if its power had
    /// been cut long ago.
    pub fn exchange(&mut self, member: MemberId, device: VirtualMember) -> VirtualMember {
        self.ailments[member.index()] = Ailment::default();
        std::mem::replace(&mut self.members[member.index()], device)
    }

    /// A copy, without cache, in the state after a power cut; `survival` decides for each unflushed
    /// write, by a number that counts all of them.
    pub fn after_cut(&self, in_flight: &[&Started], survival: impl Fn(usize) -> Survival) -> Self {
        let mut number = 0;
        let mut next = || {
            number += 1;
            survival(number - 1)
        };
        let members = self.members.iter().enumerate().map(|(index, member)| {
            let own = in_flight
                .iter()
                .filter(|started| started.command.member.index() == index);
            let writes = own.filter_map(|started| match &started.command.op {
                MemberOp::Write { offset, buf } => Some((*offset, &buf[..])),
                _ => None,
            });
            member.after_cut(&mut next, writes)
        });
        let members = members.collect();
        Self {
            members,
            ailments: self.ailments.clone(),
            canary: self.canary,
            countdown: None,
            cut: false,
            rng: self.rng.clone(),
        }
    }

    /// Starts a command of the engine. `is_late`: its member hangs, so that it has no effect before
    /// its end.
    pub fn start(&mut self, command: MemberCommand, is_late: bool) -> Started {
        let member = &mut self.members[command.member.index()];
        let gone = self.ailments[command.member.index()].gone;
        let mut mark = 0;
        match &command.op {
            MemberOp::Flush => mark = member.flush_begin(),
            MemberOp::Discard { offset, length } if !gone && !is_late => {
                member.discard(*offset, *length)
            }
            _ => {}
        }
        Started {
            command,
            mark,
            is_late,
        }
    }

    /// Ends a command.
    pub fn finish(&mut self, started: Started) -> MemberDone {
        let Started {
            command,
            mark,
            is_late,
        } = started;
        let (member, tag) = (command.member, command.tag);
        let (result, buf) = match command.op {
            MemberOp::Read { offset, mut buf } => {
                (self.do_read(member, offset, &mut buf), Some(buf))
            }
            MemberOp::Write { offset, buf } => (self.do_write(member, offset, &buf), Some(buf)),
            MemberOp::Flush => (self.do_flush(member, mark), None),
            MemberOp::Discard { offset, length } => {
                (self.do_discard(member, offset, length, is_late), None)
            }
        };
        MemberDone {
            member,
            tag,
            buf,
            result,
        }
    }

    fn fault(&mut self, member: MemberId, kind: MemberErrorKind, offset: u64) -> MemberError {
        self.members[member.index()].received.errors += 1;
        MemberError {
            member,
            kind,
            offset,
            code: 5,
        }
    }

    fn check_present(&mut self, member: MemberId, offset: u64) -> Result<(), MemberError> {
        match self.ailments.get(member.index()) {
            Some(ailment) if !ailment.gone => Ok(()),
            Some(_) => Err(self.fault(member, MemberErrorKind::Gone, offset)),
            None => Err(MemberError {
                member,
                kind: MemberErrorKind::Gone,
                offset,
                code: 19,
            }),
        }
    }

    fn do_read(&mut self, id: MemberId, offset: u64, buf: &mut [u8]) -> Result<(), MemberError> {
        self.check_present(id, offset)?;
        let member = &mut self.members[id.index()];
        // The requested length counts, as the engine counts it, even if the operation fails.
        member.received.read_bytes += buf.len() as u64;
        let fails = take_one(&mut self.ailments[id.index()].failing_reads);
        if fails
            || offset + buf.len() as u64 > member.size()
            || !member.is_readable(offset, buf.len() as u64)
        {
            buf.fill(0x5a);
            return Err(self.fault(id, MemberErrorKind::Media, offset));
        }
        member.read(offset, buf);
        Ok(())
    }

    fn do_write(&mut self, id: MemberId, offset: u64, buf: &[u8]) -> Result<(), MemberError> {
        self.check_present(id, offset)?;
        let member = &mut self.members[id.index()];
        let ailment = &mut self.ailments[id.index()];
        if offset + buf.len() as u64 > member.size()
            || ailment.worn_out
            || std::mem::take(&mut ailment.next_write_fails)
        {
            return Err(self.fault(id, MemberErrorKind::Media, offset));
        }
        member.received.written_bytes += buf.len() as u64;
        if take_one(&mut self.ailments[id.index()].lost_writes) {
            return Ok(());
        }
        let wrong = take_one(&mut self.ailments[id.index()].misdirected_writes);
        let last = (member.size() - buf.len() as u64) / BLOCK_BYTES;
        let offset = if wrong {
            self.rng.below(last + 1) * BLOCK_BYTES
        } else {
            offset
        };
        member.write(offset, buf);
        if member.power_safe {
            let mark = member.flush_begin();
            member.flush_end(mark, false);
        }
        Ok(())
    }

    fn do_flush(&mut self, id: MemberId, mark: u64) -> Result<(), MemberError> {
        self.check_present(id, 0)?;
        let member = &mut self.members[id.index()];
        if std::mem::take(&mut self.ailments[id.index()].next_flush_fails) {
            member.flush_fails(&mut self.rng);
            return Err(self.fault(id, MemberErrorKind::Other, 0));
        }
        match self.canary {
            DeviceBug::DroppedFlush { members } if id.index() < members => {}
            canary => member.flush_end(mark, canary == DeviceBug::DiscardBeforeFlush),
        }
        member.received.flushes += 1;
        Ok(())
    }

    fn do_discard(
        &mut self,
        id: MemberId,
        offset: u64,
        length: u64,
        is_late: bool,
    ) -> Result<(), MemberError> {
        self.check_present(id, 0)?;
        if is_late {
            self.members[id.index()].discard(offset, length);
        }
        self.members[id.index()].received.discarded_bytes += length;
        Ok(())
    }

    /// Counts down; true if the power is gone.
    fn power_goes(&mut self) -> bool {
        match &mut self.countdown {
            Some(0) => self.cut = true,
            Some(count) => *count -= 1,
            None => {}
        }
        self.cut
    }
}

/// Takes one of a number of pending events; true if there was one.
fn take_one(left: &mut u32) -> bool {
    let any = *left > 0;
    *left -= u32::from(any);
    any
}

impl MemberIo for VirtualMembers {
    fn member_count(&self) -> usize {
        self.members.len()
    }

    fn is_present(&self, member: MemberId) -> bool {
        self.ailments
            .get(member.index())
            .is_some_and(|ailment| !ailment.gone)
    }

    fn size(&self, member: MemberId) -> u64 {
        if self.is_present(member) {
            self.members[member.index()].size()
        } else {
            0
        }
    }

    fn read(&mut self, member: MemberId, offset: u64, buf: &mut [u8]) -> Result<(), MemberError> {
        if self.cut {
            return Err(MemberError {
                member,
                kind: MemberErrorKind::PowerCut,
                offset,
                code: 0,
            });
        }
        self.do_read(member, offset, buf)
    }

    fn write(&mut self, member: MemberId, offset: u64, buf: &[u8]) -> Result<(), MemberError> {
        let was_cut = self.cut;
        if self.power_goes() {
            if !was_cut && self.is_present(member) {
                // In progress when the power went: it may be on the medium, completely or in part.
                self.members[member.index()].write(offset, buf);
            }
            return Err(MemberError {
                member,
                kind: MemberErrorKind::PowerCut,
                offset,
                code: 0,
            });
        }
        self.do_write(member, offset, buf)
    }

    fn flush(&mut self, member: MemberId) -> Result<(), MemberError> {
        if self.power_goes() {
            return Err(MemberError {
                member,
                kind: MemberErrorKind::PowerCut,
                offset: 0,
                code: 0,
            });
        }
        let mark = self
            .members
            .get(member.index())
            .map_or(0, VirtualMember::flush_begin);
        self.do_flush(member, mark)
    }
}

#[cfg(test)]
mod tests;

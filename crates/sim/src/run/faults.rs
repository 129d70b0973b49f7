//! Faults within redundancy: never more members with faults than the pool can lose.

use super::Run;
use crate::scenario::Fault;
use windrow_io::MemberIo;
use windrow_layout::superblock::RESERVED_BYTES;
use windrow_units::{BLOCK_BYTES, MemberId};

impl Run {
    /// A member that may have a fault: one that has one already, or another while the redundancy allows it.
    fn victim(&mut self) -> Option<MemberId> {
        let count = self.scenario.sizes.len();
        let tolerance = self.scenario.redundancy.tolerance();
        let ailing: Vec<MemberId> = self.world.ailing.iter().copied().filter(|member| self.world.members.is_present(*member)).collect();
        if self.world.ailing.len() < tolerance {
            let healthy: Vec<MemberId> = (0..count as u8).map(MemberId).filter(|member| !self.world.ailing.contains(member)).collect();
            Some(self.rng.pick(&healthy))
        } else if ailing.is_empty() {
            None
        } else {
            Some(self.rng.pick(&ailing))
        }
    }

    pub(super) fn plant(&mut self, fault: Fault) {
        let Some(member) = self.victim() else { return };
        self.world.trace.tell(|| format!("fault: {fault:?} of member {member}"));
        self.world.ailing.insert(member);
        let ailment = self.world.members.ailment_mut(member);
        match fault {
            Fault::Death => ailment.gone = true,
            Fault::WriteError => ailment.next_write_fails = true,
            Fault::FlushError => ailment.next_flush_fails = true,
            Fault::ReadErrors => {
                for _ in 0..self.rng.between(1, 8) {
                    let range = self.range(member);
                    self.world.members.member_mut(member).read_errors.push(range);
                }
            }
            Fault::Corruption => {
                for _ in 0..self.rng.between(1, 20) {
                    let (offset, length) = self.range(member);
                    self.world.members.corrupt(member, offset, length);
                }
            }
        }
    }

    /// A range of the member's extents.
    fn range(&mut self, member: MemberId) -> (u64, u64) {
        let blocks = (self.world.members.member(member).size() - RESERVED_BYTES) / BLOCK_BYTES;
        let length = self.rng.pick(&[1, 1, 4, 32]).min(blocks);
        (RESERVED_BYTES + self.rng.below(blocks - length + 1) * BLOCK_BYTES, length * BLOCK_BYTES)
    }

    /// After a power cut: a member does not come back.
    pub(super) fn lose_member(&mut self) {
        if let Some(member) = self.victim() {
            self.world.trace.tell(|| format!("member {member} does not come back"));
            self.world.ailing.insert(member);
            self.world.members.ailment_mut(member).gone = true;
        }
    }

    /// Before a start: dead members are there again, with what they had.
    pub(super) fn return_members(&mut self) {
        for member in self.world.ailing.clone() {
            if !self.world.members.is_present(member) {
                self.world.trace.tell(|| format!("member {member} comes back with old content"));
                self.world.members.ailment_mut(member).gone = false;
            }
        }
    }
}

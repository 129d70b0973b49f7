//! Faults within redundancy: never more faulty members than the pool can lose.

use super::Run;
use crate::members::Ailment;
use crate::scenario::Fault;
use windrow_format::superblock::{
    LABEL_BYTES, LABEL_OFFSET, RESERVED_BYTES, SLOT_BYTES, SLOT_COUNT, SLOT_OFFSET, SLOT_STRIDE,
    Superblock,
};
use windrow_io::MemberIo;
use windrow_types::{BLOCK_BYTES, MemberId};

impl Run {
    /// A member that may get a fault: one that has one already, or another while the redundancy
    /// allows it.
    pub(super) fn victim(&mut self) -> Option<MemberId> {
        let tolerance = self.scenario.redundancy.tolerance();
        let failing_members: Vec<MemberId> = self
            .world
            .failing_members
            .iter()
            .copied()
            .filter(|member| self.world.members.is_present(*member) && self.data.contains(member))
            .collect();
        if self.failing_data() < tolerance {
            let healthy: Vec<MemberId> = self
                .data
                .iter()
                .copied()
                .filter(|member| !self.world.failing_members.contains(member))
                .collect();
            Some(self.rng.pick(&healthy))
        } else if failing_members.is_empty() {
            None
        } else {
            Some(self.rng.pick(&failing_members))
        }
    }

    /// Records that a member has a fault from now on.
    pub(super) fn note_fault(&mut self, member: MemberId, curable: bool) {
        let fresh = self.world.failing_members.insert(member);
        if curable && (fresh || self.curable.contains(&member)) {
            self.curable.insert(member);
        } else {
            self.curable.remove(&member);
        }
    }

    /// Clears the faults of members that are whole again: others may fail now.
    pub(super) fn heal(&mut self) {
        let status = self.world.status();
        for member in self.curable.clone() {
            if self.exchange.is_some_and(|exchange| exchange.is_of(member))
                || self.is_to_be_taken_out(member)
            {
                continue;
            }
            let online = status
                .members
                .iter()
                .any(|m| m.member == member && m.state == "online");
            if online && *self.world.members.ailment_mut(member) == Ailment::default() {
                self.world
                    .trace
                    .tell(|| format!("member {member} is whole again"));
                self.curable.remove(&member);
                self.world.failing_members.remove(&member);
                self.rebuilt += 1;
            }
        }
    }

    pub(super) fn fault_member(&mut self, fault: Fault) {
        self.heal();
        if fault.is_harmless() {
            return self.slow_down(fault);
        }
        let Some(member) = self.victim() else { return };
        self.world
            .trace
            .tell(|| format!("fault: {fault:?} of member {member}"));
        self.faults += 1;
        self.note_fault(member, fault.is_curable());
        self.watch_loss(member, fault);
        let few = self.rng.pick(&[1, 1, 2, 8]);
        let ailment = self.world.members.ailment_mut(member);
        match fault {
            Fault::Death => ailment.gone = true,
            Fault::WriteError => ailment.next_write_fails = true,
            Fault::FlushError => ailment.next_flush_fails = true,
            Fault::TransientReads => {
                ailment.failing_reads = few * 4;
                self.world.flaky.insert(member);
            }
            Fault::LostWrites => ailment.lost_writes = few,
            Fault::MisdirectedWrites => ailment.misdirected_writes = few,
            Fault::Slow | Fault::Stall | Fault::Mute => {}
            Fault::Superblocks => {
                if self.rng.chance(500) {
                    self.world
                        .members
                        .corrupt(member, LABEL_OFFSET, LABEL_BYTES as u64);
                }
                for slot in 0..SLOT_COUNT {
                    if self.rng.chance(600) {
                        self.world.members.corrupt(
                            member,
                            SLOT_OFFSET + slot * SLOT_STRIDE,
                            SLOT_BYTES as u64,
                        );
                    }
                }
            }
            Fault::ReadErrors => {
                for _ in 0..self.rng.between(1, 8) {
                    let range = self.range(member);
                    self.world
                        .members
                        .member_mut(member)
                        .read_errors
                        .push(range);
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

    /// Makes a member slow, hangs its next command, or all its reads.
    fn slow_down(&mut self, fault: Fault) {
        let member = self.rng.pick(&self.data);
        self.faults += 1;
        if fault == Fault::Mute {
            let for_ms = self.rng.pick(&[100, 1_000, 10_000, 100_000]);
            self.world
                .trace
                .tell(|| format!("fault: member {member} answers no reads for {for_ms} ms"));
            return self.world.fall_silent(member, for_ms * 1_000_000);
        }
        let (factor, for_ns) = if fault == Fault::Slow {
            let for_ms = self.rng.pick(&[10, 100, 1_000, 100_000, u64::MAX >> 24]);
            (self.rng.pick(&[10, 30, 100, 1000]), for_ms * 1_000_000)
        } else {
            (1, 0)
        };
        let hangs_ns = if fault == Fault::Stall {
            self.rng.between(1_000, 300_000) * 1_000_000
        } else {
            0
        };
        self.world.trace.tell(|| format!("fault: member {member} is {factor} times as slow for {for_ns} ns, its next command hangs for {hangs_ns} ns"));
        self.world.slow_down(member, factor, for_ns, hangs_ns);
    }

    /// A range of the member's extents.
    fn range(&mut self, member: MemberId) -> (u64, u64) {
        let blocks = (self.world.members.member(member).size() - RESERVED_BYTES) / BLOCK_BYTES;
        let length = self.rng.pick(&[1, 1, 4, 32]).min(blocks);
        (
            RESERVED_BYTES + self.rng.below(blocks - length + 1) * BLOCK_BYTES,
            length * BLOCK_BYTES,
        )
    }

    /// After a power cut: a member does not return.
    pub(super) fn lose_member(&mut self) {
        if let Some(member) = self.victim() {
            self.world
                .trace
                .tell(|| format!("member {member} does not come back"));
            self.faults += 1;
            self.note_fault(member, true);
            self.world.members.ailment_mut(member).gone = true;
        }
    }

    /// Before a start: slots with generations older than the newest two change silently, on any
    /// members.
    pub(super) fn rot_slots(&mut self) {
        let members = self.data.clone();
        let slots = members
            .iter()
            .flat_map(|member| (0..SLOT_COUNT).map(|slot| self.slot_generation(*member, slot)));
        let newest = slots.max().unwrap_or(0);
        for member in members {
            for slot in 0..SLOT_COUNT {
                let is_needed = slot == newest % SLOT_COUNT
                    || slot + 1 == newest % SLOT_COUNT
                    || slot == SLOT_COUNT - 1 + newest % SLOT_COUNT;
                if !is_needed && self.rng.chance(400) {
                    self.world
                        .trace
                        .tell(|| format!("slot {slot} of member {member} rots"));
                    self.world.members.corrupt(
                        member,
                        SLOT_OFFSET + slot * SLOT_STRIDE,
                        SLOT_BYTES as u64,
                    );
                }
            }
        }
    }

    /// Generation in a superblock slot, 0 if there is none.
    pub(super) fn slot_generation(&self, member: MemberId, slot: u64) -> u64 {
        let mut bytes = vec![0; SLOT_BYTES];
        self.world
            .members
            .member(member)
            .read(SLOT_OFFSET + slot * SLOT_STRIDE, &mut bytes);
        Superblock::decode(&bytes).map_or(0, |superblock| superblock.generation.0)
    }

    /// Before a start: dead members are back with their content.
    pub(super) fn return_members(&mut self) {
        for member in self.world.failing_members.clone() {
            if !self.world.members.is_present(member) {
                self.world
                    .trace
                    .tell(|| format!("member {member} comes back with old content"));
                self.world.members.ailment_mut(member).gone = false;
            }
        }
    }
}

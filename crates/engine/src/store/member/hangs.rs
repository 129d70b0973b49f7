//! Unresponsive members: an awaited command has had no answer for [`HANGS_NS`].
//!
//! This is reported and shown in `status`. The engine does not take such a member out of service.
//! The administrator does (docs/internals/members.md, "Unresponsive members"), or the kernel
//! fails a command that takes too long.
//!
//! The commands in flight are checked every [`HANG_LOOK_NS`] as long as there are any. If a check
//! comes much later than due, the process was stopped (or had nothing in flight), and answers that
//! arrived meanwhile are not processed yet. Then the check is skipped and the interval restarts.

use super::Purpose;
use crate::api::Notice;
use crate::base::limits::{DISCARD_HANGS_NS, HANG_LOOK_NS, HANGS_NS};
use crate::store::Drives;
use crate::store::events::Outbox;
use crate::store::member::Members;
use crate::store::pool::Pool;
use windrow_format::superblock::MemberState;
use windrow_types::MemberId;

impl Members {
    /// When members are to be looked at again; `None` while nothing is under way that could hang.
    pub(crate) fn hang_wake_ns(&self) -> Option<u64> {
        let is_waited_for = self
            .list
            .iter()
            .any(|member| member.in_flight > member.disowned || member.hangs);
        is_waited_for.then_some(self.hang_look_ns)
    }
}

impl Drives {
    /// Nanoseconds for which each member has been unresponsive; 0: it is not.
    pub(crate) fn hangs_for_ns(&self, pool: &Pool) -> Vec<u64> {
        let mut hangs = vec![0u64; self.members.list.len()];
        for under_way in self.members.in_flight.iter() {
            let bound = match under_way.purpose {
                Purpose::Disowned { .. } => continue,
                // Some drives take minutes for discards, and hardly any request waits for one.
                Purpose::Discard { .. } => DISCARD_HANGS_NS,
                _ => HANGS_NS,
            };
            let age = pool.now_ns.saturating_sub(under_way.went_ns);
            let longest = &mut hangs[under_way.member.index()];
            if age >= bound {
                *longest = age.max(*longest);
            }
        }
        hangs
    }

    /// Reports members that have become unresponsive, and those that answer again.
    pub(crate) fn hang_step(&mut self, pool: &Pool, out: &mut Outbox) {
        let due_ns = self.members.hang_look_ns;
        if pool.now_ns < due_ns {
            return;
        }
        self.members.hang_look_ns = pool.now_ns + HANG_LOOK_NS;
        if pool.now_ns > due_ns + HANG_LOOK_NS / 4 {
            return;
        }
        for (member, hangs_ns) in (0..).map(MemberId).zip(self.hangs_for_ns(pool)) {
            let (record, state) = (
                pool.superblock.members[member.index()].state,
                &mut self.members.list[member.index()],
            );
            let has_hung = std::mem::replace(&mut state.hangs, hangs_ns > 0);
            if state.hangs && !has_hung {
                out.notices.push(Notice::MemberHangs {
                    member,
                    commands: state.in_flight,
                });
            } else if has_hung && !state.hangs && (state.online || record == MemberState::Spare) {
                out.notices.push(Notice::MemberAnswers { member });
            }
        }
    }
}

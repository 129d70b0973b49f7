//! Members that hang: a command that somebody waits for has had no answer for [`HANGS_NS`]. That is told, and shown; who throws such a member out is the
//! administrator (docs/members.md, "Members that answer nothing"), or the kernel, which fails what it waits for too long itself.
//!
//! The commands under way are looked through every [`HANG_LOOK_NS`] as long as there are any. Discards do not count: some drives take minutes for them, and
//! nobody but the space that they free waits.

use super::Purpose;
use crate::limits::{HANG_LOOK_NS, HANGS_NS};
use crate::{Engine, Notice, Outbox};
use windrow_units::MemberId;

impl Engine {
    /// For each member, since when its oldest command that somebody waits for has been there; `u64::MAX`: there is none.
    fn oldest_commands_ns(&self) -> Vec<u64> {
        let mut oldest = vec![u64::MAX; self.members.list.len()];
        let waited_for = self.members.in_flight.iter().filter(|under_way| !matches!(under_way.purpose, Purpose::Discard { .. } | Purpose::Disowned { .. }));
        for under_way in waited_for {
            let since = &mut oldest[under_way.member.index()];
            *since = under_way.went_ns.min(*since);
        }
        oldest
    }

    /// For each member, for how long it hangs; 0: it does not.
    pub(super) fn hangs_for_ns(&self) -> Vec<u64> {
        let age = |since_ns| self.now_ns.saturating_sub(since_ns);
        self.oldest_commands_ns().into_iter().map(|since_ns| Some(age(since_ns)).filter(|age| *age >= HANGS_NS).unwrap_or(0)).collect()
    }

    /// Milliseconds for which each member hangs; 0: it does not.
    pub(crate) fn hangs_for_ms(&self) -> Vec<u64> {
        self.hangs_for_ns().into_iter().map(|ns| ns / 1_000_000).collect()
    }

    /// Tells which members hang, and which do not any more.
    pub(crate) fn hang_step(&mut self, out: &mut Outbox) {
        if self.now_ns < self.members.hang_look_ns {
            return;
        }
        self.members.hang_look_ns = self.now_ns + HANG_LOOK_NS;
        for (member, hangs_ns) in (0..).map(MemberId).zip(self.hangs_for_ns()) {
            let state = &mut self.members.list[member.index()];
            let has_hung = std::mem::replace(&mut state.hangs, hangs_ns > 0);
            if state.hangs && !has_hung {
                out.notices.push(Notice::MemberHangs { member, commands: state.in_flight });
            } else if has_hung && !state.hangs && state.disowned == 0 {
                out.notices.push(Notice::MemberAnswers { member });
            }
        }
    }

    /// When members are to be looked at again; `None` while nothing is under way that could hang.
    pub(crate) fn hang_wake_ns(&self) -> Option<u64> {
        let is_waited_for = self.members.list.iter().any(|member| member.in_flight > member.disowned || member.hangs);
        is_waited_for.then_some(self.members.hang_look_ns)
    }
}

//! Commands run in the caller, one after the other, and are done when `submit` returns.

use super::{Members, Queue, execute};
use windrow_io::{MemberCommand, MemberDone};

/// Runs everything at once: for memory members, where a hand-over would cost more than the copy, and for deterministic tests.
pub struct InlineQueue {
    members: Members,
}

impl InlineQueue {
    /// Over these members.
    pub fn new(members: Members) -> Self {
        Self { members }
    }
}

impl Queue for InlineQueue {
    fn submit(&mut self, commands: &mut Vec<MemberCommand>, done: &mut Vec<MemberDone>) {
        done.extend(commands.drain(..).map(|command| execute(&self.members, command)));
    }

    fn in_flight(&self) -> usize {
        0
    }
}

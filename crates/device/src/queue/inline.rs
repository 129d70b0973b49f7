//! Queue that runs commands in the caller, one after the other; they are done when `submit`
//! returns.

use super::{Members, Queue, device_of, execute, put_device};
use crate::member::Member;
use std::io;
use std::sync::Arc;
use windrow_io::{MemberCommand, MemberDone};
use windrow_types::MemberId;

/// Runs everything at once: for memory members, where a hand-over would cost more than the copy,
/// and for deterministic tests.
pub struct InlineQueue {
    members: Members,
}

impl InlineQueue {
    /// A queue over these members.
    pub fn new(members: Members) -> Self {
        Self { members }
    }
}

impl Queue for InlineQueue {
    fn exchange(&mut self, member: MemberId, device: Option<Arc<dyn Member>>) -> io::Result<()> {
        put_device(&mut self.members, member, device);
        Ok(())
    }

    fn submit(&mut self, commands: &mut Vec<MemberCommand>, done: &mut Vec<MemberDone>) {
        done.extend(
            commands
                .drain(..)
                .map(|command| execute(device_of(&self.members, command.member), command)),
        );
    }

    fn in_flight(&self) -> usize {
        0
    }
}

//! Commands that wait for a slot in a queue, and the number of slots that each member holds.
//!
//! 1. Each member has its own list, oldest first. Members with startable commands take turns.
//! 2. A member holds no more than its *share* of all slots. An unresponsive one fills its share,
//!    and its further commands wait in its own list; the others use the rest.
//! 3. Each step takes constant time for any number of commands and members, except a change of the
//!    members.

use super::Members;
use std::collections::VecDeque;
use windrow_io::MemberCommand;
use windrow_types::MemberId;

/// Minimum share, as far as there are slots: a slow flush must not delay the reads of its member.
const SHARE_LEAST: u32 = 4;

/// Maximum number of slots for one of `members` members: 1.5 times the even part. Uneven loads keep
/// their speed, and with half of all members unresponsive a quarter of the slots is left. A single
/// member may hold all of them; with several members none may.
fn share(places: u32, members: usize) -> u32 {
    match u32::try_from(members).unwrap_or(u32::MAX) {
        0 | 1 => places,
        members => (places.saturating_mul(3) / 2)
            .div_ceil(members)
            .max(SHARE_LEAST)
            .min(places.saturating_sub(1))
            .max(1),
    }
}

#[derive(Default)]
struct Own {
    commands: VecDeque<MemberCommand>,
    held: u32,
    /// True if it is in `turns`.
    has_turn: bool,
}

pub(super) struct Waiting {
    members: Vec<Own>,
    /// Members that may start a command, each once. Some may no longer be allowed to, if the share
    /// has become smaller.
    turns: VecDeque<MemberId>,
    places: u32,
    share: u32,
}

impl Waiting {
    /// Lists for a queue with `places` slots.
    pub(super) fn new(places: u32, members: &Members) -> Self {
        let mut waiting = Self {
            members: Vec::new(),
            turns: VecDeque::new(),
            places,
            share: 0,
        };
        waiting.adapt(members);
        waiting
    }

    /// Recomputes the shares after a change of the members.
    pub(super) fn adapt(&mut self, members: &Members) {
        self.share = share(self.places, members.iter().flatten().count());
        self.members
            .resize_with(members.len().max(self.members.len()), Own::default);
        (0..=u8::MAX)
            .map(MemberId)
            .take(self.members.len())
            .for_each(|member| self.give_turn(member));
    }

    /// Queues a command for a member of the table.
    pub(super) fn push(&mut self, command: MemberCommand) {
        let member = command.member;
        self.members[member.index()].commands.push_back(command);
        self.give_turn(member);
    }

    /// Takes the next startable command: its member holds a slot from now on.
    pub(super) fn next(&mut self) -> Option<MemberCommand> {
        while let Some(member) = self.turns.pop_front() {
            let own = &mut self.members[member.index()];
            own.has_turn = false;
            if own.held < self.share
                && let Some(command) = own.commands.pop_front()
            {
                own.held += 1;
                self.give_turn(member);
                return Some(command);
            }
        }
        None
    }

    /// Releases one slot of the member.
    pub(super) fn release(&mut self, member: MemberId) {
        self.members[member.index()].held -= 1;
        self.give_turn(member);
    }

    /// True if a further command of the member would start as soon as a slot is free.
    pub(super) fn has_room(&self, member: MemberId) -> bool {
        self.members
            .get(member.index())
            .is_some_and(|own| own.held as usize + own.commands.len() < self.share as usize)
    }

    /// True if commands of the member wait.
    pub(super) fn has_waiting(&self, member: MemberId) -> bool {
        self.members
            .get(member.index())
            .is_some_and(|own| !own.commands.is_empty())
    }

    /// True if the member holds a slot.
    pub(super) fn holds_place(&self, member: MemberId) -> bool {
        self.members
            .get(member.index())
            .is_some_and(|own| own.held > 0)
    }

    /// Drops all waiting commands.
    pub(super) fn clear(&mut self) {
        self.members.iter_mut().for_each(|own| own.commands.clear());
    }

    fn give_turn(&mut self, member: MemberId) {
        let own = &mut self.members[member.index()];
        if !own.has_turn && !own.commands.is_empty() && own.held < self.share {
            own.has_turn = true;
            self.turns.push_back(member);
        }
    }
}

#[cfg(test)]
mod tests;

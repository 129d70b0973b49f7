//! Commands that wait for a place in a queue, and how many places each member holds.
//!
//! 1. Each member has a list of its own, oldest first. Members that have something in it and may
//!    start it take turns.
//! 2. A member holds no more than its *share* of all places. One that never answers fills its
//!    share, and what else is for it waits in its own list; the others go on with the rest.
//! 3. Each step takes the same time however many commands and members there are, except a change of
//!    the members.

use super::Members;
use std::collections::VecDeque;
use windrow_io::MemberCommand;
use windrow_types::MemberId;

/// A share is no smaller, as far as there are places: a flush that takes long must not hold up the
/// reads of its member.
const SHARE_LEAST: u32 = 4;

/// Places that one of so many members may hold: half as many again as its even part, so that uneven
/// loads keep their speed, and half of all members may be mute and a quarter is left. A single
/// member may hold all of them; of several, none.
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
    /// It is among `turns`.
    has_turn: bool,
}

pub(super) struct Waiting {
    members: Vec<Own>,
    /// Members that may start something, each once. Some may not any more, when the share has
    /// become smaller.
    turns: VecDeque<MemberId>,
    places: u32,
    share: u32,
}

impl Waiting {
    /// For a queue with so many places.
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

    /// The members have changed, and with them the shares.
    pub(super) fn adapt(&mut self, members: &Members) {
        self.share = share(self.places, members.iter().flatten().count());
        self.members
            .resize_with(members.len().max(self.members.len()), Own::default);
        (0..=u8::MAX)
            .map(MemberId)
            .take(self.members.len())
            .for_each(|member| self.give_turn(member));
    }

    /// A command for a member of the table waits.
    pub(super) fn push(&mut self, command: MemberCommand) {
        let member = command.member;
        self.members[member.index()].commands.push_back(command);
        self.give_turn(member);
    }

    /// The next command that may be started: its member holds a place from now on.
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

    /// The member holds one place less.
    pub(super) fn release(&mut self, member: MemberId) {
        self.members[member.index()].held -= 1;
        self.give_turn(member);
    }

    /// True if a further command of the member would start as soon as there is a place.
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

    /// True if the member holds a place.
    pub(super) fn holds_place(&self, member: MemberId) -> bool {
        self.members
            .get(member.index())
            .is_some_and(|own| own.held > 0)
    }

    /// Drops what waits.
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

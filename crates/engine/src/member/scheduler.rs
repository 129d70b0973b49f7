//! Whose turn it is at a member: which commands go at once, and which are held back so that others
//! do not stand behind them (docs/internals/scheduling.md). Pure: it knows classes and costs, not
//! what commands do.
//!
//! 1 Commands of the classes `Read` and `Journal` go at once, always.
//! 2 The two lower classes have a **lane** each at each member: what is under way of them, and what
//!   is held. A command goes at once if nothing is held in its lane and there is room: fewer than
//!   [`LANE_COMMANDS_LEAST`] are under way, or its cost fits into the [window](Windows::of).
//! 3 What does not go is held in the order in which it came, and goes when there is room
//!   ([`Scheduler::next`]).
//!
//! Invariants: no command is lost or goes twice; within a lane they go in the order in which they
//! came; after `next` has given `None`, a lane that holds something has at least
//! [`LANE_COMMANDS_LEAST`] commands under way, so whatever is held waits for ends that come by
//! themselves, and for nothing else. Windows depend on who is about, never on what is held in
//! another lane.

use crate::Limits;
use crate::limits::{COMMAND_COST_BYTES, DISCARD_COST_BYTES, LANE_COMMANDS_LEAST};
use std::collections::VecDeque;
use windrow_io::MemberOp;
use windrow_types::MemberId;

/// What a member command is for, as far as its turn goes: the higher ones first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Class {
    /// A user waits for what is read.
    Read,
    /// A promise: records of the journal, flushes, superblocks. Small, and others wait for them.
    Journal,
    /// Batches of users.
    Foreground,
    /// Cleaning, checkpoints, rebuild, scrub, discards.
    Background,
}

impl Class {
    /// All of them, the highest first.
    pub(crate) const ALL: [Self; 4] = [
        Self::Read,
        Self::Journal,
        Self::Foreground,
        Self::Background,
    ];

    /// The lane of those that may be held back.
    const fn lane(self) -> Option<usize> {
        match self {
            Self::Read | Self::Journal => None,
            Self::Foreground => Some(0),
            Self::Background => Some(1),
        }
    }
}

/// The classes with lanes, by lane.
const LANES: [Class; 2] = [Class::Foreground, Class::Background];

/// Who is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Load {
    /// Users are about.
    pub(crate) users: bool,
    /// Some of them read or flush: they notice each command that stands in front of theirs.
    pub(crate) prompt: bool,
    /// Something waits for room: what frees segments is as urgent as what waits for it.
    pub(crate) short: bool,
}

/// The windows of the two lower classes while they step aside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Windows {
    foreground: u64,
    background: u64,
}

impl Windows {
    /// Most that may be under way of a class at a member, beyond which commands are held back.
    const fn of(self, class: Class, load: Load) -> u64 {
        match class {
            Class::Read | Class::Journal => u64::MAX,
            Class::Foreground if load.prompt => self.foreground,
            Class::Foreground => u64::MAX,
            Class::Background if !load.users && !load.prompt => u64::MAX,
            Class::Background if load.short && load.prompt => self.foreground,
            Class::Background if load.short => u64::MAX,
            Class::Background => self.background,
        }
    }
}

/// What a command takes of a window.
pub(crate) fn cost(op: &MemberOp) -> u64 {
    match op {
        MemberOp::Read { buf, .. } | MemberOp::Write { buf, .. } => {
            (buf.len() as u64).max(COMMAND_COST_BYTES)
        }
        MemberOp::Flush => COMMAND_COST_BYTES,
        MemberOp::Discard { .. } => DISCARD_COST_BYTES,
    }
}

#[derive(Debug)]
struct Held<T> {
    item: T,
    cost: u64,
    since_ns: u64,
}

#[derive(Debug)]
struct Lane<T> {
    under_way: u32,
    cost: u64,
    held: VecDeque<Held<T>>,
}

impl<T> Default for Lane<T> {
    fn default() -> Self {
        Self {
            under_way: 0,
            cost: 0,
            held: VecDeque::new(),
        }
    }
}

impl<T> Lane<T> {
    fn has_room(&self, cost: u64, window: u64) -> bool {
        self.under_way < LANE_COMMANDS_LEAST || self.cost.saturating_add(cost) <= window
    }

    fn begin(&mut self, cost: u64) {
        self.under_way += 1;
        self.cost += cost;
    }
}

/// The lanes of all members.
#[derive(Debug)]
pub(crate) struct Scheduler<T> {
    members: Vec<[Lane<T>; LANES.len()]>,
    windows: Windows,
    load: Load,
    /// Commands held, in all lanes.
    held: usize,
}

impl<T> Scheduler<T> {
    /// Without members: their lanes begin empty.
    pub(crate) fn new(limits: &Limits) -> Self {
        let windows = Windows {
            foreground: limits.foreground_window_bytes,
            background: limits.background_window_bytes,
        };
        Self {
            members: Vec::new(),
            windows,
            load: Load::default(),
            held: 0,
        }
    }

    /// Says who is about from now on.
    pub(crate) fn set_load(&mut self, load: Load) {
        self.load = load;
    }

    /// Who is about.
    pub(crate) fn load(&self) -> Load {
        self.load
    }

    /// Commands held.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    fn lane(&mut self, member: MemberId, lane: usize) -> &mut Lane<T> {
        if self.members.len() <= member.index() {
            self.members
                .resize_with(member.index() + 1, Default::default);
        }
        &mut self.members[member.index()][lane]
    }

    /// True if a command may go now; then it is under way until [`Scheduler::end`]. If not, it is
    /// to be held.
    #[must_use]
    pub(crate) fn begin(&mut self, member: MemberId, class: Class, cost: u64) -> bool {
        let Some(lane) = class.lane() else {
            return true;
        };
        let window = self.windows.of(class, self.load);
        let lane = self.lane(member, lane);
        let goes = lane.held.is_empty() && lane.has_room(cost, window);
        if goes {
            lane.begin(cost);
        }
        goes
    }

    /// Holds a command back that may not go.
    pub(crate) fn hold(&mut self, member: MemberId, class: Class, cost: u64, now_ns: u64, item: T) {
        if let Some(lane) = class.lane() {
            self.lane(member, lane).held.push_back(Held {
                item,
                cost,
                since_ns: now_ns,
            });
            self.held += 1;
        }
    }

    /// A command that went has ended.
    pub(crate) fn end(&mut self, member: MemberId, class: Class, cost: u64) {
        if let Some(lane) = class.lane() {
            let lane = self.lane(member, lane);
            lane.under_way -= 1;
            lane.cost -= cost;
        }
    }

    /// The next command that was held and may go now, its class, and since when it was held. It is
    /// under way from then on. `None`: all that may go has gone.
    pub(crate) fn next(&mut self) -> Option<(T, Class, u64)> {
        if self.held == 0 {
            return None;
        }
        for (at, class) in LANES.into_iter().enumerate() {
            let window = self.windows.of(class, self.load);
            for lanes in &mut self.members {
                let lane = &mut lanes[at];
                if let Some(cost) = lane
                    .held
                    .front()
                    .map(|held| held.cost)
                    .filter(|cost| lane.has_room(*cost, window))
                    && let Some(Held { item, since_ns, .. }) = lane.held.pop_front()
                {
                    lane.begin(cost);
                    self.held -= 1;
                    return Some((item, class, since_ns));
                }
            }
        }
        None
    }

    /// What is held for a member.
    pub(crate) fn held_for(&self, member: MemberId) -> impl Iterator<Item = &T> {
        let lanes = self.members.get(member.index()).into_iter().flatten();
        lanes
            .flat_map(|lane| lane.held.iter())
            .map(|held| &held.item)
    }

    /// Takes everything that is held for a member: it is not to go any more.
    pub(crate) fn cancel(&mut self, member: MemberId) -> Vec<T> {
        let lanes = self.members.get_mut(member.index()).into_iter().flatten();
        let items: Vec<T> = lanes
            .flat_map(|lane| lane.held.drain(..))
            .map(|held| held.item)
            .collect();
        self.held -= items.len();
        items
    }

    /// Checks the invariants that hold between two calls of `apply`.
    pub(crate) fn self_check(&self) -> Result<(), String> {
        let mut held = 0;
        for (member, lanes) in self.members.iter().enumerate() {
            for (lane, class) in lanes.iter().zip(LANES) {
                held += lane.held.len();
                if !lane.held.is_empty() && lane.under_way < LANE_COMMANDS_LEAST {
                    return Err(format!(
                        "member {member}: {} commands of class {class:?} are held, and {} under way",
                        lane.held.len(),
                        lane.under_way
                    ));
                }
                if lane.under_way == 0 && lane.cost != 0 {
                    return Err(format!(
                        "member {member}: nothing of class {class:?} is under way, at a cost of {}",
                        lane.cost
                    ));
                }
            }
        }
        if held != self.held {
            Err(format!("{held} commands are held, {} counted", self.held))
        } else {
            Ok(())
        }
    }

    /// One line for a diagnosis.
    pub(crate) fn describe(&self) -> String {
        let busy = self
            .members
            .iter()
            .enumerate()
            .filter(|(_, lanes)| lanes.iter().any(|lane| !lane.held.is_empty()));
        let busy: Vec<_> = busy
            .map(|(member, lanes)| {
                (
                    member,
                    lanes
                        .each_ref()
                        .map(|lane| (lane.under_way, lane.cost, lane.held.len())),
                )
            })
            .collect();
        format!(
            "{:?}, held back {} (member, lanes: under way, cost, held) {busy:?}",
            self.load, self.held
        )
    }
}

#[cfg(test)]
mod tests;

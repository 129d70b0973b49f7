//! I/O scheduler: decides which commands to a member are sent at once, and which are held back so
//! that they do not delay others (docs/internals/scheduling.md). Pure: it knows classes and costs,
//! not commands.
//!
//! 1. Commands of the classes `Read` and `Journal` are always sent at once.
//! 2. The two lower classes have a **lane** each per member: their commands in flight, and those
//!    held. A command is sent at once if none is held in its lane and there is room. There is room
//!    if fewer than [`LANE_COMMANDS_LEAST`] are in flight, or its cost fits into the
//!    [window](Windows::of).
//! 3. Other commands are held in order of arrival, and sent when there is room
//!    ([`Scheduler::next`]).
//!
//! Invariants:
//!
//! - No command is lost or sent twice.
//! - Within a lane commands are sent in order of arrival.
//! - After `next` has returned `None`, a lane with held commands has at least
//!   [`LANE_COMMANDS_LEAST`] commands in flight. So held commands wait only for completions that
//!   come without further action.
//! - Windows depend on the load, never on the commands held in another lane.

use crate::api::Limits;
use crate::base::limits::{COMMAND_COST_BYTES, DISCARD_COST_BYTES, LANE_COMMANDS_LEAST};
use std::collections::VecDeque;
use windrow_io::MemberOp;
use windrow_types::MemberId;

/// Scheduling class of a member command, the highest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Class {
    /// A user request waits for the data.
    Read,
    /// Durability: records of the journal, flushes, superblocks. They are small, and others wait
    /// for them.
    Journal,
    /// User batches.
    Foreground,
    /// Cleaning, checkpoints, rebuild, scrub, discards.
    Background,
}

impl Class {
    /// All classes, the highest first.
    pub(crate) const ALL: [Self; 4] = [
        Self::Read,
        Self::Journal,
        Self::Foreground,
        Self::Background,
    ];

    /// Lane of a class whose commands may be held back.
    const fn lane(self) -> Option<usize> {
        match self {
            Self::Read | Self::Journal => None,
            Self::Foreground => Some(0),
            Self::Background => Some(1),
        }
    }
}

/// Classes with lanes, by lane.
const LANES: [Class; 2] = [Class::Foreground, Class::Background];

/// Foreground load of the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Load {
    /// Foreground I/O is active.
    pub(crate) users: bool,
    /// Some of it is reads or flushes: each command ahead of these delays a client.
    pub(crate) prompt: bool,
    /// Some request waits for room: commands that free segments are as urgent as that request.
    pub(crate) short: bool,
}

/// Windows of the two lower classes under foreground load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Windows {
    foreground: u64,
    background: u64,
}

impl Windows {
    /// Most bytes of a class in flight at a member; further commands are held back.
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

/// Window bytes that a command takes.
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

/// Lanes of all members.
#[derive(Debug)]
pub(crate) struct Scheduler<T> {
    members: Vec<[Lane<T>; LANES.len()]>,
    windows: Windows,
    load: Load,
    /// Commands held in all lanes.
    held: usize,
}

impl<T> Scheduler<T> {
    /// A scheduler without members; their lanes are created empty.
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

    /// Sets the current load.
    pub(crate) fn set_load(&mut self, load: Load) {
        self.load = load;
    }

    /// Current load.
    pub(crate) fn load(&self) -> Load {
        self.load
    }

    /// Number of commands held.
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

    /// True if a command may be sent now; it is in flight until [`Scheduler::end`]. Otherwise it
    /// must be held.
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

    /// Holds a command that may not be sent.
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

    /// Ends a command that was sent.
    pub(crate) fn end(&mut self, member: MemberId, class: Class, cost: u64) {
        if let Some(lane) = class.lane() {
            let lane = self.lane(member, lane);
            lane.under_way -= 1;
            lane.cost -= cost;
        }
    }

    /// Next held command that may be sent now, its class, and the time since which it was held. It
    /// counts as in flight from now on. `None`: none may be sent.
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

    /// Commands held for a member.
    pub(crate) fn held_for(&self, member: MemberId) -> impl Iterator<Item = &T> {
        let lanes = self.members.get(member.index()).into_iter().flatten();
        lanes
            .flat_map(|lane| lane.held.iter())
            .map(|held| &held.item)
    }

    /// Removes all commands held for a member: they are not sent any more.
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
                        "member {member}: {} commands of class {class:?} are held, and {} in flight",
                        lane.held.len(),
                        lane.under_way
                    ));
                }
                if lane.under_way == 0 && lane.cost != 0 {
                    return Err(format!(
                        "member {member}: nothing of class {class:?} is in flight, at a cost of {}",
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

    /// State in one line, for diagnosis.
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
            "{:?}, held back {} (member, lanes: in flight, cost, held) {busy:?}",
            self.load, self.held
        )
    }
}

#[cfg(test)]
mod tests;

//! Memory for requests and replies: one budget for all connections of a server, shared out by peer.
//!
//! A request is *charged* before its buffer exists and before the volume sees it: a write for its
//! payload, a read for the buffers of its reply. The charge is returned when the last byte of the
//! reply has left, or the reply is discarded. So a reply is produced only when it has room, and
//! unread replies cost at most the budget.
//!
//! 1. Each connection has [`OWN_BYTES`] of its own, in addition to the budget: small requests never
//!    wait for other clients.
//! 2. The rest comes from one of two lanes, by the size of the charge ([`LARGE_CHARGE`]). Each lane
//!    may fill most of the budget, except the other lane's need for one request of its largest
//!    size. An empty lane takes any request.
//! 3. A peer (an address, or a process on a unix socket) that holds memory gets at most twice as
//!    much as it would leave free. One peer alone thus takes two thirds of a lane, two take two
//!    fifths each. A new peer always finds room for a request of the size of the others'. In the
//!    lane of large requests a peer that holds nothing may use the last room.
//! 4. A request that does not fit waits. Released room goes to the waiting request whose peer would
//!    hold least with it; a new request does not pass a waiting one that precedes it in this order.
//!
//! No deadlock: a connection waits while it holds charges, but these are released without it: by
//! completions, by the socket, or by the end of a stalled client.

use crate::protocol::{HELD_TIMES, MAX_REQUEST_BYTES};
use crate::socket::Bell;
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

/// Largest charge: a read of the largest size whose reply waits.
pub(crate) const LARGEST_CHARGE: u64 = HELD_TIMES as u64 * MAX_REQUEST_BYTES as u64;
/// Smallest budget: one request of the largest size in each lane.
pub(crate) const MEMORY_BYTES_MIN: u64 = 2 * LARGEST_CHARGE;
/// Charges above this go to the lane of large requests.
pub(crate) const LARGE_CHARGE: u64 = 8 << 20;
/// Memory that each connection has of its own for small requests.
pub(crate) const OWN_BYTES: u64 = 128 << 10;

const _: () = assert!(LARGE_CHARGE <= MEMORY_BYTES_MIN - LARGEST_CHARGE);

/// A party whose connections share a part of the bounds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Peer {
    /// A host.
    Address(IpAddr),
    /// A process on this host.
    Process(i32),
    /// A process that the system does not identify.
    Unknown,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{address}"),
            Self::Process(process) => write!(f, "process {process}"),
            Self::Unknown => f.write_str("unknown process"),
        }
    }
}

/// Charges that go together; see [`Lane`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Charges {
    /// Of small requests.
    pub(crate) small: u64,
    /// Of large ones.
    pub(crate) large: u64,
}

impl Charges {
    pub(crate) fn of(charge: u32) -> Self {
        let charge = u64::from(charge);
        match Lane::of(charge) {
            Lane::Small => Self {
                small: charge,
                large: 0,
            },
            Lane::Large => Self {
                small: 0,
                large: charge,
            },
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.small += other.small;
        self.large += other.large;
    }

    fn is_empty(self) -> bool {
        self == Self::default()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lane {
    Small,
    Large,
}

impl Lane {
    fn of(charge: u64) -> Self {
        if charge > LARGE_CHARGE {
            Self::Large
        } else {
            Self::Small
        }
    }
}

/// Use of a budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Use {
    pub(crate) bytes: u64,
    pub(crate) bytes_max: u64,
    /// Most bytes since the start.
    pub(crate) peak: u64,
    /// Connections that wait for memory now.
    pub(crate) waiting: usize,
    /// Requests that had to wait since the start.
    pub(crate) waits: u64,
}

struct Waiter {
    connection: u64,
    peer: Peer,
    lane: Lane,
    amount: u64,
    bell: Arc<Bell>,
}

#[derive(Default)]
struct Inner {
    used: [u64; 2],
    peers: HashMap<Peer, [u64; 2]>,
    /// In order of arrival.
    waiting: Vec<Waiter>,
    /// Charges granted to waiting connections that have not collected them yet.
    granted: HashMap<u64, u64>,
    peak: u64,
    waits: u64,
}

/// The memory of all connections.
pub(crate) struct Budget {
    bytes_max: u64,
    inner: Mutex<Inner>,
}

impl Inner {
    fn held(&self, peer: Peer, lane: Lane) -> u64 {
        self.peers.get(&peer).map_or(0, |held| held[lane as usize])
    }

    fn add(&mut self, peer: Peer, lane: Lane, amount: u64) {
        self.used[lane as usize] += amount;
        self.peers.entry(peer).or_default()[lane as usize] += amount;
        self.peak = self.peak.max(self.used.iter().sum());
    }

    fn remove(&mut self, peer: Peer, lane: Lane, amount: u64) {
        self.used[lane as usize] -= amount;
        let Some(held) = self.peers.get_mut(&peer) else {
            panic!("{amount} bytes given back by a peer that holds nothing")
        };
        held[lane as usize] -= amount;
        if *held == [0; 2] {
            self.peers.remove(&peer);
        }
    }

    /// Rank of a waiting request: the least is first.
    fn rank(&self, peer: Peer, lane: Lane, amount: u64) -> u64 {
        match lane {
            Lane::Small => self.held(peer, lane) + amount,
            Lane::Large => self.held(peer, lane),
        }
    }
}

impl Budget {
    pub(crate) fn new(bytes_max: u64) -> Arc<Self> {
        Arc::new(Self {
            bytes_max,
            inner: Mutex::default(),
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn usage(&self) -> Use {
        let inner = self.inner();
        Use {
            bytes: inner.used.iter().sum(),
            bytes_max: self.bytes_max,
            peak: inner.peak,
            waiting: inner.waiting.len(),
            waits: inner.waits,
        }
    }

    /// Bytes of the budget that each peer holds.
    pub(crate) fn held_by(&self) -> HashMap<Peer, u64> {
        self.inner()
            .peers
            .iter()
            .map(|(peer, held)| (*peer, held.iter().sum()))
            .collect()
    }

    /// Most that a lane may hold.
    fn lane_max(&self, lane: Lane) -> u64 {
        match lane {
            Lane::Small => (self.bytes_max / 4 * 3).min(self.bytes_max - LARGEST_CHARGE),
            Lane::Large => (self.bytes_max / 4 * 3).max(LARGEST_CHARGE),
        }
    }

    fn fits(&self, inner: &Inner, peer: Peer, lane: Lane, amount: u64) -> bool {
        let (used, all) = (
            inner.used[lane as usize] + amount,
            inner.used.iter().sum::<u64>() + amount,
        );
        let (Some(of_lane), Some(of_all)) = (
            self.lane_max(lane).checked_sub(used),
            self.bytes_max.checked_sub(all),
        ) else {
            return false;
        };
        let held = inner.held(peer, lane) + amount;
        let is_first = match lane {
            Lane::Small => used == amount,
            Lane::Large => held == amount,
        };
        is_first || held <= 2 * of_lane.min(of_all)
    }

    /// Takes an amount for a connection; returns the amount taken. 0: the connection must wait, and
    /// the bell rings when it can ask again. More than the amount: the connection has waited and
    /// needs less by now.
    fn take(&self, connection: u64, peer: Peer, lane: Lane, amount: u64, bell: &Arc<Bell>) -> u64 {
        let mut inner = self.inner();
        if let Some(granted) = inner.granted.remove(&connection) {
            return granted;
        }
        if let Some(waiter) = inner
            .waiting
            .iter_mut()
            .find(|waiter| waiter.connection == connection)
        {
            waiter.amount = amount;
            let rung = self.serve(&mut inner);
            let granted = inner.granted.remove(&connection);
            drop(inner);
            rung.iter().for_each(|bell| bell.ring());
            return granted.unwrap_or(0);
        }
        let rank = inner.rank(peer, lane, amount);
        let is_passing = inner
            .waiting
            .iter()
            .any(|other| other.lane == lane && inner.rank(other.peer, lane, other.amount) <= rank);
        if !is_passing && self.fits(&inner, peer, lane, amount) {
            inner.add(peer, lane, amount);
            return amount;
        }
        inner.waits += 1;
        inner.waiting.push(Waiter {
            connection,
            peer,
            lane,
            amount,
            bell: bell.clone(),
        });
        0
    }

    /// Returns charges, and serves waiting requests.
    fn give(&self, peer: Peer, small: u64, large: u64) {
        let mut inner = self.inner();
        for (lane, amount) in [(Lane::Small, small), (Lane::Large, large)] {
            if amount > 0 {
                inner.remove(peer, lane, amount);
            }
        }
        let rung = self.serve(&mut inner);
        drop(inner);
        rung.iter().for_each(|bell| bell.ring());
    }

    /// Grants waiting requests that fit; returns their bells.
    fn serve(&self, inner: &mut Inner) -> Vec<Arc<Bell>> {
        let mut rung = Vec::new();
        loop {
            let fitting =
                inner.waiting.iter().enumerate().filter(|(_, waiter)| {
                    self.fits(inner, waiter.peer, waiter.lane, waiter.amount)
                });
            let best = fitting
                .min_by_key(|(at, waiter)| {
                    (inner.rank(waiter.peer, waiter.lane, waiter.amount), *at)
                })
                .map(|(at, _)| at);
            let Some(at) = best else { return rung };
            let waiter = inner.waiting.remove(at);
            inner.add(waiter.peer, waiter.lane, waiter.amount);
            inner.granted.insert(waiter.connection, waiter.amount);
            rung.push(waiter.bell);
        }
    }

    /// Ends the wait of a connection; returns the amount granted to it meanwhile.
    fn forget(&self, connection: u64) -> u64 {
        let mut inner = self.inner();
        inner
            .waiting
            .retain(|waiter| waiter.connection != connection);
        inner.granted.remove(&connection).unwrap_or(0)
    }
}

#[derive(Default)]
struct Held {
    /// Charges of small requests.
    small: u64,
    /// The part of them that is beyond [`OWN_BYTES`].
    of_budget: u64,
    large: u64,
    /// Lane of the waiting request.
    waiting: Option<Lane>,
}

impl Held {
    /// Takes out the part of the budget that is not needed any more.
    fn take_surplus(&mut self) -> u64 {
        let needed = self.small.saturating_sub(OWN_BYTES);
        let surplus = self.of_budget - needed;
        self.of_budget = needed;
        surplus
    }
}

/// Charges of one connection. Any thread returns them; only the connection's own takes.
pub(crate) struct Account {
    budget: Arc<Budget>,
    connection: u64,
    peer: Peer,
    bell: Arc<Bell>,
    held: Mutex<Held>,
}

impl Account {
    pub(crate) fn new(budget: Arc<Budget>, connection: u64, peer: Peer, bell: Arc<Bell>) -> Self {
        Self {
            budget,
            connection,
            peer,
            bell,
            held: Mutex::default(),
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Charges a request. Without room it waits, and the bell rings when it can be asked again, for
    /// the same request.
    pub(crate) fn take(&self, charge: u32) -> bool {
        let mut held = self.held();
        let (charge, lane) = (u64::from(charge), Lane::of(u64::from(charge)));
        let amount = match lane {
            Lane::Large => charge,
            Lane::Small => (held.small + charge).saturating_sub(OWN_BYTES + held.of_budget),
        };
        if amount == 0 {
            self.stop_waiting(&mut held);
            held.small += charge;
            return true;
        }
        let taken = self
            .budget
            .take(self.connection, self.peer, lane, amount, &self.bell);
        held.waiting = (taken == 0).then_some(lane);
        match lane {
            _ if taken == 0 => return false,
            Lane::Large => held.large += taken,
            Lane::Small => {
                held.small += charge;
                held.of_budget += taken;
                let surplus = held.take_surplus();
                self.give_to_budget(surplus, 0);
            }
        }
        true
    }

    fn give_to_budget(&self, small: u64, large: u64) {
        if small + large > 0 {
            self.budget.give(self.peer, small, large);
        }
    }

    fn stop_waiting(&self, held: &mut Held) {
        let Some(lane) = held.waiting.take() else {
            return;
        };
        let granted = self.budget.forget(self.connection);
        match lane {
            Lane::Small => self.give_to_budget(granted, 0),
            Lane::Large => self.give_to_budget(0, granted),
        }
    }

    /// Returns charges.
    pub(crate) fn give(&self, charges: Charges) {
        if charges.is_empty() {
            return;
        }
        let mut held = self.held();
        held.small -= charges.small;
        held.large -= charges.large;
        let surplus = held.take_surplus();
        self.give_to_budget(surplus, charges.large);
    }

    /// Ends the account: the connection takes nothing any more.
    pub(crate) fn leave(&self) {
        self.stop_waiting(&mut self.held());
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.leave();
        let held = std::mem::take(&mut *self.held());
        self.give_to_budget(held.of_budget, held.large);
    }
}

#[cfg(test)]
mod tests;

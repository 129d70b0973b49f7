//! Clients, and commands that would remove an export in use.
//!
//! Listing the clients and barring new ones is one step ([`Pool::bar`], under the catalogue's
//! lock), and a client enters under the same lock. So a client that connects meanwhile is either
//! seen, or refused until the command has ended. With `force`, connected clients are asked to
//! leave, so that requests in flight are answered, and cut off if they do not.

use super::Pool;
use super::catalogue::Catalogue;
use crate::exports::{ClientReport, ExportReport};
use crate::failure::{Failure, id};
use crate::sessions::{Client, SessionState};
use std::sync::Arc;
use std::time::{Duration, Instant};
use windrow_types::VolumeId;

/// Longest time that a client that has closed its connection stays in the table before it counts as
/// connected: its last requests may be in flight.
const GRACE: Duration = Duration::from_secs(5);
/// Longest wait for a client after it was asked to leave.
const LEAVE: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 5000 });
/// Longest wait for a client after it was cut off.
const CUT: Duration = Duration::from_secs(1);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(5);
/// Most peers that a refusal names.
const NAMED: usize = 8;

/// Target that a command removes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// The pool.
    Pool,
    /// A volume, or a part of it.
    Volume(VolumeId),
    /// An export.
    Export(String),
    /// The default export, for clients that name none.
    Default,
}

impl Target {
    fn is_of(&self, client: &Client) -> bool {
        match self {
            Self::Pool => true,
            Self::Volume(volume) => client.volume == *volume,
            Self::Export(export) => client.export == *export,
            Self::Default => client.by_default,
        }
    }
}

/// Result of a disconnection.
#[derive(Debug, Default)]
pub(crate) struct Disconnected {
    /// The clients, as they were before.
    pub(crate) clients: Vec<ClientReport>,
    /// Of these, the clients that had to be cut off.
    pub(crate) cut: usize,
    /// Of these, the clients with unanswered requests: their connections end when the pool answers.
    pub(crate) unfinished: usize,
}

/// Keeps new clients out until it is dropped.
pub(crate) struct Bar<'a> {
    pool: &'a Pool,
    number: u64,
}

impl Bar<'_> {
    /// Keeps the bar for good.
    pub(crate) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Bar<'_> {
    fn drop(&mut self) {
        let mut catalogue = self
            .pool
            .0
            .catalogue
            .write()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        catalogue.bars.retain(|(number, _)| *number != self.number);
    }
}

impl Catalogue {
    /// True if a command is removing this client's export.
    pub(super) fn is_barred(&self, client: &Client) -> bool {
        self.bars.iter().any(|(_, target)| target.is_of(client))
    }
}

impl Pool {
    fn sessions_of(&self, target: &Target) -> Vec<Arc<SessionState>> {
        let mut sessions = self.0.driver.sessions.all();
        sessions.retain(|session| session.client().is_some_and(|client| target.is_of(&client)));
        sessions.sort_by_key(|session| session.number());
        sessions
    }

    /// All clients, the oldest first.
    pub fn clients(&self) -> Vec<ClientReport> {
        self.sessions_of(&Target::Pool)
            .iter()
            .filter_map(|session| session.report())
            .collect()
    }

    /// All exports with their clients, the default one first if there is one.
    pub fn exports(&self) -> Vec<ExportReport> {
        let clients = self.clients();
        let catalogue = self.catalogue();
        let mut exports = catalogue.exports();
        for client in clients {
            if let Some(at) = catalogue.position(&client.export) {
                exports[at].clients.push(client);
            }
        }
        exports
    }

    /// Names of volumes that no export serves.
    pub fn not_served(&self) -> Vec<String> {
        self.catalogue().not_served()
    }

    /// The volume that an export of this name serves, if its name differs.
    pub(crate) fn other_volume_of(&self, export: &str) -> Option<String> {
        self.catalogue().other_volume(export)
    }

    /// Keeps new clients away from a target that is being removed. With `force`, connected clients
    /// are disconnected.
    ///
    /// # Errors
    /// Clients are connected.
    pub(crate) fn bar(&self, what: &str, target: &Target, force: bool) -> Result<Bar<'_>, Failure> {
        let end = Instant::now() + GRACE;
        let (bar, clients) = loop {
            let mut catalogue = self
                .0
                .catalogue
                .write()
                .unwrap_or_else(|poisoned| poisoned.into_inner());
            let clients = self.sessions_of(target);
            if clients.is_empty() || force {
                catalogue.last_bar += 1;
                let number = catalogue.last_bar;
                catalogue.bars.push((number, target.clone()));
                break (Bar { pool: self, number }, clients);
            }
            drop(catalogue);
            if Instant::now() >= end || !clients.iter().all(|session| session.sink().is_gone()) {
                return Err(in_use(what, &clients));
            }
            std::thread::sleep(PAUSE);
        };
        self.end_sessions(&clients);
        Ok(bar)
    }

    /// Disconnects clients: those of an export, or of all, or one of them. They may reconnect.
    ///
    /// # Errors
    /// There is no such export or client.
    pub(crate) fn disconnect(
        &self,
        export: Option<&str>,
        client: Option<u32>,
    ) -> Result<Disconnected, Failure> {
        let what = "no client is disconnected";
        let mut sessions = self
            .sessions_of(&export.map_or(Target::Pool, |export| Target::Export(export.to_owned())));
        if let Some(export) = export
            && sessions.is_empty()
            && self.catalogue().position(export).is_none()
        {
            return Err(Failure::new(
                id::EXPORT_UNKNOWN,
                what,
                format!("there is no export '{export}'"),
            )
            .remedy("see `windrow export list POOL`"));
        }
        if let Some(client) = client {
            sessions.retain(|session| session.number() == client);
            if sessions.is_empty() {
                return Err(Failure::new(
                    id::CLIENT_UNKNOWN,
                    what,
                    format!("there is no client {client}"),
                )
                .remedy("see `windrow export list POOL`"));
            }
        }
        Ok(self.end_sessions(&sessions))
    }

    fn end_sessions(&self, sessions: &[Arc<SessionState>]) -> Disconnected {
        let clients = sessions
            .iter()
            .filter_map(|session| session.report())
            .collect();
        sessions.iter().for_each(|session| session.sink().leave());
        let left = self.wait_for_end(sessions.to_vec(), LEAVE);
        left.iter().for_each(|session| session.sink().cut());
        let cut = left.len();
        Disconnected {
            clients,
            cut,
            unfinished: self.wait_for_end(left, CUT).len(),
        }
    }

    /// Waits until the sessions are closed; returns those that are still open at the deadline.
    fn wait_for_end(
        &self,
        mut sessions: Vec<Arc<SessionState>>,
        time: Duration,
    ) -> Vec<Arc<SessionState>> {
        let end = Instant::now() + time;
        loop {
            sessions.retain(|session| self.0.driver.sessions.get(session.number()).is_some());
            if sessions.is_empty() || Instant::now() >= end {
                return sessions;
            }
            std::thread::sleep(PAUSE);
        }
    }
}

fn in_use(what: &str, clients: &[Arc<SessionState>]) -> Failure {
    let peer = |client: Client| format!("{} at '{}'", client.peer, client.export);
    let mut peers: Vec<String> = clients
        .iter()
        .filter_map(|session| session.client())
        .take(NAMED)
        .map(peer)
        .collect();
    if clients.len() > NAMED {
        peers.push(format!("{} more", clients.len() - NAMED));
    }
    let number = if clients.len() == 1 {
        "1 client is".to_owned()
    } else {
        format!("{} clients are", clients.len())
    };
    let remedy =
        "see `windrow export list POOL`; end the clients, or give --force, which disconnects them";
    Failure::new(
        id::IN_USE,
        what,
        format!("{number} connected: {}", peers.join(", ")),
    )
    .remedy(remedy)
}

#[cfg(test)]
mod tests;

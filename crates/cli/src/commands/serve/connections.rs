//! Options, log and report of NBD connections.

use super::config::Config;
use clap::Args;
use std::collections::HashMap;
use std::mem::discriminant;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use windrow_console::values::{Size, number_within, size_within};
use windrow_host::failure::lacking;
use windrow_host::{ConnectionReport, PeerReport};
use windrow_nbd::{Ending, Event, Limit, Observer, ServerOptions, Watch};

/// At most one line of a kind is logged in this time; the next one has the count of suppressed
/// lines.
const LOG_PAUSE: Duration = Duration::from_secs(10);
/// Most peers that are shown.
const PEERS_SHOWN: usize = 16;

const MEMORY_MIN: u64 = *ServerOptions::MEMORY_BYTES.start();
const MEMORY_MAX: u64 = *ServerOptions::MEMORY_BYTES.end();
const CONNECTIONS_MAX: u64 = *ServerOptions::CONNECTIONS.end() as u64;
const SECONDS_MAX: u64 = *ServerOptions::SECONDS.end();

/// Limits of connections; absent ones have their defaults.
#[derive(Args, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConnectionArguments {
    /// Most bytes of memory for requests and replies of all NBD clients; else 256M, or as much as
    /// --pending if that is more. 128M to 1T.
    #[arg(long, value_name = "SIZE", value_parser = size_within(MEMORY_MIN, MEMORY_MAX))]
    pub request_memory: Option<Size>,
    /// Most NBD clients at a time; else 256. 1 to 16384.
    #[arg(long, value_name = "N", value_parser = number_within(1, CONNECTIONS_MAX))]
    pub connections: Option<u64>,
    /// Most connections of one client (an address, or a process on a unix socket); else half of the
    /// limit, so that another client finds a place.
    #[arg(long, value_name = "N", value_parser = number_within(1, CONNECTIONS_MAX))]
    pub connections_per_client: Option<u64>,
    /// Most connections to one export; else the limit of all connections.
    #[arg(long, value_name = "N", value_parser = number_within(1, CONNECTIONS_MAX))]
    pub connections_per_export: Option<u64>,
    /// Most connections that have not named an export yet; else 64. A new one displaces the oldest.
    #[arg(long, value_name = "N", value_parser = number_within(1, CONNECTIONS_MAX))]
    pub handshakes: Option<u64>,
    /// Seconds that a client may stay silent before it has named an export; else 5.
    #[arg(long, value_name = "SECONDS", value_parser = number_within(1, SECONDS_MAX))]
    pub handshake_timeout: Option<u64>,
    /// Seconds that a client may take nothing of its replies, or stop in the middle of a request;
    /// else 60.
    #[arg(long, value_name = "SECONDS", value_parser = number_within(1, SECONDS_MAX))]
    pub stall_timeout: Option<u64>,
    /// Seconds of silence after which a TCP client is probed; after three probes without an answer
    /// it counts as dead. Else 60.
    #[arg(long, value_name = "SECONDS", value_parser = number_within(1, SECONDS_MAX))]
    pub keepalive: Option<u64>,
}

impl ConnectionArguments {
    /// Fills absent values from the configuration file.
    pub fn or(self, config: &Config) -> Self {
        let file = &config.connections;
        Self {
            request_memory: self.request_memory.or(file.request_memory),
            connections: self.connections.or(file.connections),
            connections_per_client: self.connections_per_client.or(file.connections_per_client),
            connections_per_export: self.connections_per_export.or(file.connections_per_export),
            handshakes: self.handshakes.or(file.handshakes),
            handshake_timeout: self.handshake_timeout.or(file.handshake_timeout),
            stall_timeout: self.stall_timeout.or(file.stall_timeout),
            keepalive: self.keepalive.or(file.keepalive),
        }
    }

    /// The limits of a server whose pool holds at most `pending` bytes of writes.
    pub fn options(&self, pending: u64) -> ServerOptions {
        let default = ServerOptions::default();
        let connections_max = self
            .connections
            .map_or(default.connections_max, |count| count as usize);
        let per_export = self
            .connections_per_export
            .map_or(connections_max, |count| count as usize);
        // One client must not take all places of an export either.
        let half = connections_max.min(per_export).div_ceil(2);
        let seconds =
            |given: Option<u64>, default: Duration| given.map_or(default, Duration::from_secs);
        let memory = self
            .request_memory
            .map_or(default.memory_bytes.max(pending), |size| size.0);
        ServerOptions {
            connections_max,
            connections_per_peer: self
                .connections_per_client
                .map_or(half, |count| count as usize),
            connections_per_export: per_export,
            handshakes_max: self
                .handshakes
                .map_or(default.handshakes_max, |count| count as usize),
            memory_bytes: memory.clamp(MEMORY_MIN, MEMORY_MAX),
            handshake_timeout: seconds(self.handshake_timeout, default.handshake_timeout),
            stall_timeout: seconds(self.stall_timeout, default.stall_timeout),
            keepalive: seconds(self.keepalive, default.keepalive),
            observer: Some(observer()),
            ..default
        }
    }
}

/// Report on the server while it runs.
pub fn report(watch: &Watch, options: &ServerOptions) -> Option<ConnectionReport> {
    let usage = watch.usage()?;
    let peers = usage.peers.iter().take(PEERS_SHOWN);
    Some(ConnectionReport {
        connections: usage.connections as u64,
        connections_max: options.connections_max as u64,
        connections_per_peer: options.connections_per_peer as u64,
        connections_per_export: options.connections_per_export as u64,
        handshakes: usage.handshakes as u64,
        handshakes_max: options.handshakes_max as u64,
        handshake_seconds: options.handshake_timeout.as_secs(),
        stall_seconds: options.stall_timeout.as_secs(),
        keepalive_seconds: options.keepalive.as_secs(),
        refused: usage.refused,
        displaced: usage.displaced,
        timed_out: usage.timed_out,
        stalled: usage.stalled,
        memory_bytes: usage.memory_bytes,
        memory_bytes_max: options.memory_bytes,
        memory_peak_bytes: usage.memory_peak_bytes,
        memory_waiting: usage.waiting as u64,
        memory_waits: usage.waits,
        peers: peers
            .map(|peer| PeerReport {
                peer: peer.peer.to_string(),
                connections: peer.connections as u64,
                memory_bytes: peer.memory_bytes,
            })
            .collect(),
    })
}

/// Kinds of lines, each with its own pause.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Kind {
    Refused(std::mem::Discriminant<Limit>),
    Ended(std::mem::Discriminant<Ending>),
    NotAccepted,
}

/// Time of the last logged line of each kind, and the number suppressed since.
#[derive(Default)]
struct Pauses(HashMap<Kind, (Instant, u64)>);

impl Pauses {
    /// Number of suppressed lines of this kind, if another one is due.
    fn due(&mut self, kind: Kind, now: Instant) -> Option<u64> {
        match self.0.get_mut(&kind) {
            Some((last, left_out)) if now.duration_since(*last) < LOG_PAUSE => {
                *left_out += 1;
                None
            }
            _ => self
                .0
                .insert(kind, (now, 0))
                .map_or(Some(0), |(_, left_out)| Some(left_out)),
        }
    }
}

/// Logs events for the administrator; others with WINDROW_LOG=info.
fn observer() -> Observer {
    let pauses = Mutex::new(Pauses::default());
    let due = move |kind| {
        pauses
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .due(kind, Instant::now())
    };
    Arc::new(move |event: &Event| match event {
        Event::Entered { peer, export, .. } => {
            tracing::info!(%peer, %export, "a client has entered an export")
        }
        Event::TurnedAway { peer, limit } => {
            if let Some(left_out) = due(Kind::Refused(discriminant(limit))) {
                tracing::warn!(%peer, left_out, "a client was refused: {limit}");
            }
        }
        Event::AcceptFailed { cause } => {
            if let Some(left_out) = due(Kind::NotAccepted) {
                let remedy = lacking(cause)
                    .map(|remedy| format!("; {remedy}"))
                    .unwrap_or_default();
                tracing::warn!(left_out, "a client could not be accepted: {cause}{remedy}");
            }
        }
        Event::Ended { peer, ending, .. } => match ending {
            Ending::Closed | Ending::Stopped | Ending::Disconnected => {
                tracing::info!(%peer, "a connection has ended: {ending}")
            }
            _ => {
                if let Some(left_out) = due(Kind::Ended(discriminant(ending))) {
                    tracing::warn!(%peer, left_out, "a connection was closed: {ending}");
                }
            }
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_follows_the_pending_writes_unless_it_is_given() {
        let memory = |given: Option<u64>, pending| {
            ConnectionArguments {
                request_memory: given.map(Size),
                ..Default::default()
            }
            .options(pending)
            .memory_bytes
        };
        assert_eq!(
            (
                memory(None, 64 << 20),
                memory(None, 1 << 30),
                memory(Some(1 << 28), 1 << 30)
            ),
            (256 << 20, 1 << 30, 256 << 20)
        );
        let options = ConnectionArguments {
            connections: Some(9),
            ..Default::default()
        }
        .options(0);
        assert_eq!(
            (
                options.connections_max,
                options.connections_per_peer,
                options.connections_per_export
            ),
            (9, 5, 9)
        );
        let options = ConnectionArguments {
            connections_per_export: Some(4),
            ..Default::default()
        }
        .options(0);
        assert_eq!(
            (
                options.connections_max,
                options.connections_per_peer,
                options.connections_per_export
            ),
            (256, 2, 4)
        );
    }

    #[test]
    fn lines_of_one_kind_have_a_pause_and_are_counted() {
        let (mut pauses, now) = (Pauses::default(), Instant::now());
        let refused = Kind::Refused(discriminant(&Limit::Handshakes));
        assert_eq!(
            [
                pauses.due(refused, now),
                pauses.due(refused, now),
                pauses.due(refused, now)
            ],
            [Some(0), None, None]
        );
        assert_eq!(pauses.due(Kind::NotAccepted, now), Some(0));
        assert_eq!(pauses.due(refused, now + LOG_PAUSE), Some(2));
    }
}

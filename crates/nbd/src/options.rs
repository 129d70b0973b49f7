//! All bounds of a server.

use crate::budget::{MEMORY_BYTES_MIN, OWN_BYTES};
use crate::intake::INTAKE_BYTES;
use crate::protocol::MAX_REQUEST_BYTES;
use crate::server::Observer;
use std::io::{self, ErrorKind};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Bounds and settings of a server.
#[derive(Clone)]
pub struct ServerOptions {
    /// Listen on addresses that other hosts can reach too.
    pub allow_remote: bool,
    /// Permissions of unix socket files.
    pub unix_mode: u32,
    /// Most clients at a time that have entered an export; further ones are refused.
    pub connections_max: usize,
    /// Most of them from one peer: an address, or a process on a unix socket.
    pub connections_per_peer: usize,
    /// Most of them in one export.
    pub connections_per_export: usize,
    /// Most connections that have not entered an export yet. They have slots of their own: a new
    /// connection beyond displaces the oldest one of the peer that has most.
    pub handshakes_max: usize,
    /// Memory for requests and replies of all connections: see [`ServerOptions::MEMORY_BYTES`].
    pub memory_bytes: u64,
    /// Most requests in flight of one connection, unsent replies included (1 to 65536).
    pub requests_in_flight_max: u32,
    /// Most bytes of payload in flight of one connection, unsent replies included; at least 32 MiB.
    pub bytes_in_flight_max: u64,
    /// Time that a client may stay silent during negotiation; all of it may take twelve times as
    /// long.
    pub handshake_timeout: Duration,
    /// Time that a client may stop in the middle of a request, or take nothing of its replies.
    pub stall_timeout: Duration,
    /// Silence after which a TCP peer is probed; it is dead when three probes find no answer.
    pub keepalive: Duration,
    /// Called for each event of a connection.
    pub observer: Option<Observer>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            allow_remote: false,
            unix_mode: 0o600,
            connections_max: 256,
            connections_per_peer: 128,
            connections_per_export: 256,
            handshakes_max: 64,
            memory_bytes: 256 << 20,
            requests_in_flight_max: 128,
            bytes_in_flight_max: 64 << 20,
            handshake_timeout: Duration::from_secs(5),
            stall_timeout: Duration::from_secs(60),
            keepalive: Duration::from_secs(60),
            observer: None,
        }
    }
}

impl ServerOptions {
    /// Range of the bounds on the number of connections.
    pub const CONNECTIONS: RangeInclusive<usize> = 1..=16384;
    /// Range of the memory for requests and replies: at least twice the need of the largest request
    /// and its reply.
    pub const MEMORY_BYTES: RangeInclusive<u64> = MEMORY_BYTES_MIN..=1 << 40;
    /// Range of the times, in seconds. (The kernel allows no longer keepalive.)
    pub const SECONDS: RangeInclusive<u64> = 1..=32767;

    /// The most memory in bytes that clients can make the server hold, without stacks of threads.
    pub fn memory_bytes_max(&self) -> u64 {
        let connections = (self.connections_max + 2 * self.handshakes_max) as u64;
        self.memory_bytes + connections * (INTAKE_BYTES as u64 + OWN_BYTES)
    }

    pub(crate) fn check(&self) -> io::Result<()> {
        let wrong = |text: String| Err(io::Error::new(ErrorKind::InvalidInput, text));
        if !(1..=65536).contains(&self.requests_in_flight_max) {
            return wrong("requests in flight must be between 1 and 65536".to_owned());
        }
        if self.bytes_in_flight_max < u64::from(MAX_REQUEST_BYTES) {
            return wrong(
                "bytes in flight must be at least 32 MiB, one largest request".to_owned(),
            );
        }
        if !Self::MEMORY_BYTES.contains(&self.memory_bytes) {
            return wrong(format!(
                "memory for requests must be between {} and {} bytes",
                Self::MEMORY_BYTES.start(),
                Self::MEMORY_BYTES.end()
            ));
        }
        let counts = [
            self.connections_max,
            self.connections_per_peer,
            self.connections_per_export,
            self.handshakes_max,
        ];
        if counts
            .iter()
            .any(|count| !Self::CONNECTIONS.contains(count))
        {
            return wrong(format!(
                "bounds of connections must be between {} and {}",
                Self::CONNECTIONS.start(),
                Self::CONNECTIONS.end()
            ));
        }
        if [self.handshake_timeout, self.stall_timeout]
            .iter()
            .any(Duration::is_zero)
            || !Self::SECONDS.contains(&self.keepalive.as_secs())
        {
            return wrong(format!(
                "times must not be zero, and keepalive at most {} s",
                Self::SECONDS.end()
            ));
        }
        Ok(())
    }
}

//! Report on the connections of a front-end and the memory that they hold.

use serde::{Deserialize, Serialize};

/// Connections and memory of one peer: an address, or a process on a unix socket.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PeerReport {
    /// The peer.
    pub peer: String,
    /// Its connections, those that have not entered an export included.
    pub connections: u64,
    /// Bytes of the memory for requests and replies.
    pub memory_bytes: u64,
}

/// Connections and their limits.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ConnectionReport {
    /// Clients that have entered an export.
    pub connections: u64,
    /// Most clients.
    pub connections_max: u64,
    /// Most clients from one peer.
    pub connections_per_peer: u64,
    /// Most clients in one export.
    pub connections_per_export: u64,
    /// Connections that have not entered an export yet.
    pub handshakes: u64,
    /// Most handshakes; beyond it the oldest is closed for a new one.
    pub handshakes_max: u64,
    /// Seconds that a client may stay silent before it enters an export.
    pub handshake_seconds: u64,
    /// Seconds that a client may stop in the middle of a request, or take nothing of its replies.
    pub stall_seconds: u64,
    /// Seconds of silence after which a TCP peer is probed.
    pub keepalive_seconds: u64,
    /// Clients refused since the start because a limit was reached.
    pub refused: u64,
    /// Connections closed before they entered an export, to make room for newer ones.
    pub displaced: u64,
    /// Connections that did not enter an export in time.
    pub timed_out: u64,
    /// Connections closed because the client stalled.
    pub stalled: u64,
    /// Memory for requests and replies in use.
    pub memory_bytes: u64,
    /// Most such memory.
    pub memory_bytes_max: u64,
    /// Highest such memory since the start.
    pub memory_peak_bytes: u64,
    /// Connections that wait for such memory now.
    pub memory_waiting: u64,
    /// Requests that waited for it since the start.
    pub memory_waits: u64,
    /// The peers that hold most memory, at most sixteen.
    #[serde(default)]
    pub peers: Vec<PeerReport>,
}

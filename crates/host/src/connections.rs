//! What is shown of the connections of a front-end, and of the memory that they hold.

use serde::{Deserialize, Serialize};

/// What one peer holds: an address, or a process on a unix socket.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PeerReport {
    /// The peer.
    pub peer: String,
    /// Its connections, those that have not entered an export included.
    pub connections: u64,
    /// Bytes of the memory for requests and replies.
    pub memory_bytes: u64,
}

/// Connections and their bounds.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ConnectionReport {
    /// Clients that have entered an export.
    pub connections: u64,
    /// Most of them.
    pub connections_max: u64,
    /// Most of them from one peer.
    pub connections_per_peer: u64,
    /// Most of them in one export.
    pub connections_per_export: u64,
    /// Connections that have not entered an export yet.
    pub handshakes: u64,
    /// Most of them; the oldest gives way to a new one.
    pub handshakes_max: u64,
    /// Seconds that a client may stay silent before it has entered an export.
    pub handshake_seconds: u64,
    /// Seconds that a client may stop in the middle of a request, or take nothing of its replies.
    pub stall_seconds: u64,
    /// Seconds of silence after which a TCP peer is probed.
    pub keepalive_seconds: u64,
    /// Clients refused since the start because a bound was reached.
    pub refused: u64,
    /// Connections that gave way to newer ones before they entered an export.
    pub displaced: u64,
    /// Connections that did not enter an export in time.
    pub timed_out: u64,
    /// Connections closed because the client stalled.
    pub stalled: u64,
    /// Memory for requests and replies in use.
    pub memory_bytes: u64,
    /// Most such memory.
    pub memory_bytes_max: u64,
    /// The most that was in use since the start.
    pub memory_peak_bytes: u64,
    /// Connections that wait for such memory now.
    pub memory_waiting: u64,
    /// Requests that waited for it since the start.
    pub memory_waits: u64,
    /// The peers, those that hold most memory first; sixteen at most.
    #[serde(default)]
    pub peers: Vec<PeerReport>,
}

//! The control socket: newline-delimited JSON over a unix socket, one request and one answer at a
//! time on each connection.
//!
//! ```text
//! -> {"version":2,"pool":"tank","command":"volume-create","name":"data","size_bytes":1073741824}
//! <- {"version":2,"working":true}
//! <- {"version":2,"ok":{"kind":"volume","id":1,"name":"data",...}}
//! <- {"version":2,"error":{"id":"WR-VOLUME-002","what":"...","why":"...","remedy":"..."}}
//! ```
//! 1. `pool` is the name or identifier of the pool. The daemon refuses a command for another pool,
//!    and any command without `pool` except `identify` and `status`. Otherwise a mistyped socket
//!    path would change the wrong pool.
//! 2. While a command runs, the daemon writes `working` each second. Without `working` or an answer
//!    the client concludes that the process hangs; with it, the client waits as long as the command
//!    takes.
//! 3. Lines and connections are bounded. Fewer commands than connections may run: with an
//!    unresponsive member they wait, each holding its connection. The command that shows or ends
//!    that state must find a free one. Idle connections are closed after a while, or when room is
//!    needed.
//!
//! Only the user who started the daemon may use the socket (mode 0600), unless the administrator
//! sets another mode.

mod client;
mod server;

pub use client::{ControlClient, Patience};
pub use server::ControlServer;

use crate::exports::{ClientReport, ExportReport};
use crate::failure::{Failure, id};
use crate::offline::partition::Partitioning;
use crate::recorder::Lot;
use crate::report::{MemberReport, PoolReport, VolumeReport};
use crate::served::OpenMember;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;
use windrow_engine::Sharing;
use windrow_types::Uuid;

/// Version of the protocol. From 2 on each command names its pool; a daemon of version 1 ignores
/// the name, so it must refuse the command.
pub const CONTROL_VERSION: u32 = 2;
/// Interval of the `working` lines.
const PULSE: Duration = Duration::from_secs(1);

fn may_shrink() -> bool {
    true
}

/// Requests to a daemon.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum Command {
    /// Name of the daemon's pool, and whether the daemon is ending. Answered without the engine,
    /// which may be unresponsive.
    Identify,
    /// Everything about the pool.
    Status,
    /// A new volume.
    VolumeCreate {
        /// Its name.
        name: String,
        /// Its size.
        size_bytes: u64,
        /// Make it the default export.
        #[serde(default)]
        default: bool,
        /// Proceed although clients are connected by the current default: disconnect them.
        #[serde(default)]
        force: bool,
    },
    /// A new size.
    VolumeResize {
        /// Name of the volume.
        name: String,
        /// Its size.
        size_bytes: u64,
        /// Allows a smaller size. Absent means true: older clients omit it and check the size
        /// themselves.
        #[serde(default = "may_shrink")]
        shrink: bool,
        /// If the size shrinks while clients are connected: disconnect them.
        #[serde(default)]
        force: bool,
    },
    /// Set the effect of flushes of a volume.
    VolumeSync {
        /// Name of the volume.
        name: String,
        /// `standard`, `always` or `disabled`.
        sync: windrow_format::checkpoint::SyncMode,
    },
    /// Set the compression of blocks written to a volume from now on.
    VolumeCompression {
        /// Name of the volume.
        name: String,
        /// `off`, `lz4`, `zstd` or `lz4-then-zstd`.
        compression: windrow_format::checkpoint::Compression,
    },
    /// Set the deduplication of blocks written to a volume from now on.
    VolumeDedup {
        /// Name of the volume.
        name: String,
        /// `off`, `verify` or `hash`.
        dedup: windrow_format::checkpoint::Dedup,
    },
    /// Rename a volume; its exports follow.
    VolumeRename {
        /// Name of the volume.
        name: String,
        /// The new name.
        new_name: String,
    },
    /// Delete a volume.
    VolumeDelete {
        /// Name of the volume.
        name: String,
        /// Proceed although clients are connected: disconnect them.
        #[serde(default)]
        force: bool,
    },
    /// Count what each volume keeps for itself; walks the maps of all volumes.
    Sharing,
    /// Change properties; absent ones stay.
    PoolSet(PropertyChange),
    /// All exports.
    ExportList,
    /// A new export.
    ExportAdd {
        /// Name that clients ask for.
        name: String,
        /// The volume that is served.
        volume: String,
        /// Refuse writes.
        #[serde(default)]
        read_only: bool,
        /// Free text.
        #[serde(default)]
        description: String,
        /// Make it the default.
        #[serde(default)]
        default: bool,
        /// Proceed although clients are connected by the current default: disconnect them.
        #[serde(default)]
        force: bool,
    },
    /// Remove an export.
    ExportRemove {
        /// Name of the export.
        name: String,
        /// Take away only the default; the export stays.
        #[serde(default)]
        default: bool,
        /// Proceed although clients are connected: disconnect them.
        #[serde(default)]
        force: bool,
    },
    /// Disconnect clients.
    ExportDisconnect {
        /// Clients of this export only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        export: Option<String>,
        /// This client only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        client: Option<u32>,
    },
    /// Write a checkpoint now.
    Checkpoint,
    /// Start, pause, resume or stop a scrub. Answered at once; `status` shows the progress.
    Scrub {
        /// The action.
        action: ScrubAction,
        /// For a start: most bytes read from members each second; absent or 0: no limit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bytes_per_second: Option<u64>,
    },
    /// Take a member out of service.
    MemberOffline {
        /// Its slot.
        member: u8,
    },
    /// Bring a member back: it is rebuilt with what it missed.
    MemberOnline {
        /// Its slot.
        member: u8,
        /// New path of the device, if it has moved.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<PathBuf>,
    },
    /// Replace a member's device: the new one is rebuilt.
    MemberReplace {
        /// Its slot.
        member: u8,
        /// The new device.
        path: PathBuf,
        /// Overwrite existing content.
        #[serde(default)]
        overwrite: bool,
        /// The device is power-safe: a completed write is durable without a flush.
        #[serde(default)]
        power_safe: bool,
        /// Choice of a partition on it.
        #[serde(default)]
        partitioning: Partitioning,
    },
    /// Add a spare.
    SpareAdd {
        /// Its device.
        path: PathBuf,
        /// Overwrite existing content.
        #[serde(default)]
        overwrite: bool,
        /// Proceed although it is too small to replace any member.
        #[serde(default)]
        small: bool,
        /// Choice of a partition on it.
        #[serde(default)]
        partitioning: Partitioning,
    },
    /// Use spares for data from now on.
    Grow {
        /// Their slots.
        members: Vec<u8>,
    },
    /// Add a journal device.
    JournalAdd {
        /// Its device.
        path: PathBuf,
        /// Overwrite existing content.
        #[serde(default)]
        overwrite: bool,
        /// The device is power-safe: a completed write is durable without a flush.
        #[serde(default)]
        power_safe: bool,
        /// Choice of a partition on it.
        #[serde(default)]
        partitioning: Partitioning,
    },
    /// Remove a spare, a journal device, or a member. A member leaves when its data has moved to
    /// the others.
    SpareRemove {
        /// Its slot.
        member: u8,
    },
    /// Start recording the requests of one volume or of all. Answered with an empty lot that names
    /// the recording.
    RecordStart {
        /// Name of the volume; `None`: all volumes.
        name: Option<String>,
    },
    /// Take the requests recorded since the last take.
    RecordTake {
        /// The recording.
        token: u64,
        /// End it.
        #[serde(default)]
        end: bool,
    },
    /// End the daemon; answered when everything is finished.
    Shutdown {
        /// Release the pool for another host.
        #[serde(default)]
        export: bool,
        /// Release it although clients are connected: disconnect them.
        #[serde(default)]
        force: bool,
    },
}

impl Command {
    /// True if the command never waits long for a member.
    fn waits_for_none(&self) -> bool {
        let is_bounded = matches!(self, Self::ExportDisconnect { .. });
        let is_look = matches!(self, Self::Identify | Self::Status | Self::ExportList);
        is_bounded
            || is_look
            || matches!(
                self,
                Self::MemberOffline { .. } | Self::RecordStart { .. } | Self::RecordTake { .. }
            )
    }

    /// True if the command may omit the pool: it changes nothing, and its answer names the pool.
    fn is_for_any_pool(&self) -> bool {
        matches!(self, Self::Identify | Self::Status)
    }

    /// `Some(true)` if more commands of a subscription follow on this connection, which is then not
    /// idle; `Some(false)` if the subscription ends.
    fn subscribes(&self) -> Option<bool> {
        match self {
            Self::RecordStart { .. } | Self::RecordTake { end: false, .. } => Some(true),
            Self::RecordTake { end: true, .. } => Some(false),
            _ => None,
        }
    }
}

/// Actions of a scrub.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScrubAction {
    /// Start one.
    Start,
    /// Pause it until it is resumed.
    Pause,
    /// Resume it.
    Resume,
    /// End it at its position.
    Stop,
}

/// Properties to change.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PropertyChange {
    /// Spare factor in thousandths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spare_per_mille: Option<u16>,
    /// Longest time before data is sealed, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal_age_ms: Option<u32>,
    /// Age at which unflushed data is flushed, milliseconds; 0: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flush_age_ms: Option<u32>,
    /// Name of the victim rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub victim_policy: Option<String>,
    /// Name of the placement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<String>,
    /// Discards for freed segments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discard: Option<bool>,
    /// Most bytes each second that a rebuild reads from, or writes to, one member; 0: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebuild_rate: Option<u64>,
    /// Bytes each second of one member that a rebuild gets even while foreground I/O is active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebuild_rate_min: Option<u64>,
    /// Days from the end of a scrub to the automatic start of the next; 0: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scrub_interval_days: Option<u16>,
    /// Milliseconds after which a slow read is hedged; 0: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_latency_bound_ms: Option<u32>,
    /// Fill levels in per cent at which a warning is logged; an empty list: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warn_at: Option<Vec<u8>>,
    /// Name of the use of the space saved by compression and deduplication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reduction: Option<String>,
}

/// An answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Reply {
    /// Done.
    Done,
    /// The daemon.
    Daemon {
        /// Name of its pool.
        name: String,
        /// Identifier of its pool.
        pool: Uuid,
        /// Its process.
        process: u32,
        /// Its end has been requested.
        ending: bool,
        /// Members that it has open.
        #[serde(default)]
        members: Vec<OpenMember>,
    },
    /// The pool.
    Pool(Box<PoolReport>),
    /// A volume.
    Volume(VolumeReport),
    /// A member.
    Member(Box<MemberReport>),
    /// Exports.
    Exports {
        /// All of them, the default one first if there is one.
        exports: Vec<ExportReport>,
        /// Names of volumes that no export serves.
        #[serde(default)]
        not_served: Vec<String>,
    },
    /// Result of disconnecting clients.
    Disconnected {
        /// Clients that were disconnected.
        clients: Vec<ClientReport>,
        /// Of these, clients that did not close in time and were cut off.
        cut: usize,
        /// Of these, clients whose connection closes when the pool has answered their requests.
        unfinished: usize,
    },
    /// The recorded requests.
    Recorded(Lot),
    /// Blocks that each volume keeps for itself.
    Sharing(Sharing),
}

/// The pool of a daemon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServedPool {
    /// Its name.
    pub name: String,
    /// Its identifier.
    pub pool: Uuid,
}

impl ServedPool {
    /// Verifies that `meant`, a name or an identifier, is this pool.
    ///
    /// # Errors
    /// It is another one.
    pub fn must_be(&self, meant: &str) -> Result<(), Failure> {
        if meant == self.name || meant == self.pool.to_string() {
            return Ok(());
        }
        let (what, why) = (
            format!("nothing is done with pool '{meant}'"),
            format!(
                "the daemon that was asked serves pool '{}' ({})",
                self.name, self.pool
            ),
        );
        Err(Failure::new(id::POOL_UNKNOWN, what, why)
            .remedy("leave --control out, or give the socket of the daemon that serves the pool"))
    }
}

/// Handler of commands.
pub trait ControlHandler: Send + Sync {
    /// The pool of the handler. Waits for nothing.
    fn serves(&self) -> ServedPool;

    /// Carries out one command; may take as long as it needs.
    fn handle(&self, command: Command) -> Result<Reply, Failure>;
}

#[derive(Serialize, Deserialize)]
struct Question {
    version: u32,
    /// Name or identifier of the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pool: Option<String>,
    #[serde(flatten)]
    command: Command,
}

#[derive(Default, Serialize, Deserialize)]
struct Answer {
    version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ok: Option<Reply>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<Failure>,
    /// The command still runs; the answer follows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    working: bool,
    /// Too many connections: the command was not carried out and may be sent again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    full: bool,
}

impl Answer {
    fn of(result: Result<Reply, Failure>) -> Self {
        let (ok, error) = match result {
            Ok(reply) => (Some(reply), None),
            Err(failure) => (None, Some(failure)),
        };
        Self {
            version: CONTROL_VERSION,
            ok,
            error,
            ..Self::default()
        }
    }

    fn to_line(&self) -> std::io::Result<Vec<u8>> {
        let mut text = serde_json::to_vec(self)?;
        text.push(b'\n');
        Ok(text)
    }
}

#[cfg(test)]
mod tests;

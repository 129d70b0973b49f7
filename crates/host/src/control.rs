//! The control socket: newline-delimited JSON over a unix socket, one request and one answer at a
//! time on each connection.
//!
//! ```text
//! -> {"version":2,"pool":"tank","command":"volume-create","name":"data","size_bytes":1073741824}
//! <- {"version":2,"working":true}
//! <- {"version":2,"ok":{"kind":"volume","id":1,"name":"data",...}}
//! <- {"version":2,"error":{"id":"WR-VOLUME-002","what":"...","why":"...","remedy":"..."}}
//! ```
//! 1. `pool` is the name or the identifier of the pool that is meant. The daemon refuses a command
//!    for another pool, and any command without `pool` except `identify` and `status`: a socket
//!    that is named by mistake must not change a pool that was not named.
//! 2. While a command runs, the daemon writes `working` each second. A client that gets neither
//!    that nor an answer knows that the process stands, and one that gets it can wait for a long
//!    command as long as that takes.
//! 3. Lines and connections are bounded. Fewer commands than there are connections may run: with an
//!    unresponsive member they wait, each with its connection, and the command that shows or ends
//!    that must find one. Idle connections are closed after a while, or when room is needed.
//!
//! The socket is for the user who started the daemon only (mode 0600) unless the administrator sets
//! another mode.

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

/// Version of the protocol. Since 2 each command names its pool: a daemon that does not look at the
/// name must refuse the command.
pub const CONTROL_VERSION: u32 = 2;
/// Time between two lines that say that a command runs.
const PULSE: Duration = Duration::from_secs(1);

fn may_shrink() -> bool {
    true
}

/// What can be asked of a daemon.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum Command {
    /// Which pool the daemon serves, and whether it is about to end. Answered without the pool,
    /// which may not answer any more.
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
        /// Although clients are connected by the default that there is: disconnect them.
        #[serde(default)]
        force: bool,
    },
    /// A new size.
    VolumeResize {
        /// Which.
        name: String,
        /// Its size.
        size_bytes: u64,
        /// It may become smaller. Absent, as older clients leave it, which asked before they sent
        /// it: it may.
        #[serde(default = "may_shrink")]
        shrink: bool,
        /// Although clients are connected, if it becomes smaller: disconnect them.
        #[serde(default)]
        force: bool,
    },
    /// What flushes of a volume do.
    VolumeSync {
        /// Which.
        name: String,
        /// `standard`, `always` or `disabled`.
        sync: windrow_format::checkpoint::SyncMode,
    },
    /// How blocks of a volume are stored from now on.
    VolumeCompression {
        /// Which.
        name: String,
        /// `off`, `lz4`, `zstd` or `lz4-then-zstd`.
        compression: windrow_format::checkpoint::Compression,
    },
    /// Whether blocks of a volume are shared from now on.
    VolumeDedup {
        /// Which.
        name: String,
        /// `off`, `verify` or `hash`.
        dedup: windrow_format::checkpoint::Dedup,
    },
    /// Another name for a volume; its exports follow.
    VolumeRename {
        /// Which.
        name: String,
        /// The name that it gets.
        new_name: String,
    },
    /// Delete a volume.
    VolumeDelete {
        /// Which.
        name: String,
        /// Although clients are connected: disconnect them.
        #[serde(default)]
        force: bool,
    },
    /// Count what each volume keeps for itself; looks through the maps of all volumes.
    Sharing,
    /// Change properties; what is absent stays.
    PoolSet(PropertyChange),
    /// All exports.
    ExportList,
    /// A new export.
    ExportAdd {
        /// Name that clients ask for.
        name: String,
        /// Volume behind it.
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
        /// Although clients are connected by the default that there is: disconnect them.
        #[serde(default)]
        force: bool,
    },
    /// Remove an export.
    ExportRemove {
        /// Which.
        name: String,
        /// Take the default away from it alone; it stays.
        #[serde(default)]
        default: bool,
        /// Although clients are connected: disconnect them.
        #[serde(default)]
        force: bool,
    },
    /// Disconnect clients.
    ExportDisconnect {
        /// Of this export; of all if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        export: Option<String>,
        /// This one alone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        client: Option<u32>,
    },
    /// Write a checkpoint now.
    Checkpoint,
    /// Begin, pause, resume or stop a scrub. Answered at once; `status` shows how it goes on.
    Scrub {
        /// What to do.
        action: ScrubAction,
        /// For a start: most bytes read from members each second; absent or 0: no bound.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bytes_per_second: Option<u64>,
    },
    /// Take a member out of service.
    MemberOffline {
        /// Its slot.
        member: u8,
    },
    /// Bring a member back: it is rebuilt with what it has missed.
    MemberOnline {
        /// Its slot.
        member: u8,
        /// Where its device is, if not where it was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<PathBuf>,
    },
    /// Put a new device in the place of a member: it is rebuilt.
    MemberReplace {
        /// Its slot.
        member: u8,
        /// The new device.
        path: PathBuf,
        /// Although it holds something.
        #[serde(default)]
        overwrite: bool,
        /// What is written to it is durable without a flush.
        #[serde(default)]
        power_safe: bool,
        /// Whether a partition is made of it.
        #[serde(default)]
        partitioning: Partitioning,
    },
    /// Add a spare.
    SpareAdd {
        /// Its device.
        path: PathBuf,
        /// Although it holds something.
        #[serde(default)]
        overwrite: bool,
        /// Although it is too small for the place of any member.
        #[serde(default)]
        small: bool,
        /// Whether a partition is made of it.
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
        /// It.
        path: PathBuf,
        /// Although it holds something.
        #[serde(default)]
        overwrite: bool,
        /// What is written to it is durable without a flush.
        #[serde(default)]
        power_safe: bool,
        /// Whether a partition is made of it.
        #[serde(default)]
        partitioning: Partitioning,
    },
    /// Remove a spare or a journal device; or a member that holds data, which leaves when that has
    /// moved to the others.
    SpareRemove {
        /// Its slot.
        member: u8,
    },
    /// Begin to record what a volume, or every volume, is asked for; answered with an empty lot
    /// that names the recording.
    RecordStart {
        /// Which; all if there is none.
        name: Option<String>,
    },
    /// Take what was recorded since the last time.
    RecordTake {
        /// Which recording.
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
    /// True if it waits for no member for long.
    fn waits_for_nobody(&self) -> bool {
        let is_bounded = matches!(self, Self::ExportDisconnect { .. });
        let is_look = matches!(self, Self::Identify | Self::Status | Self::ExportList);
        is_bounded
            || is_look
            || matches!(
                self,
                Self::MemberOffline { .. } | Self::RecordStart { .. } | Self::RecordTake { .. }
            )
    }

    /// True if it may come without the name of a pool: it changes nothing, and the answer says
    /// which pool it is about.
    fn is_for_any_pool(&self) -> bool {
        matches!(self, Self::Identify | Self::Status)
    }

    /// `Some(true)` if more is to come on this connection, which is not idle then; `Some(false)` if
    /// that is over.
    fn subscribes(&self) -> Option<bool> {
        match self {
            Self::RecordStart { .. } | Self::RecordTake { end: false, .. } => Some(true),
            Self::RecordTake { end: true, .. } => Some(false),
            _ => None,
        }
    }
}

/// What a scrub is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScrubAction {
    /// Begin.
    Start,
    /// Stand still until it is resumed.
    Pause,
    /// Go on.
    Resume,
    /// End it where it is.
    Stop,
}

/// Properties to change.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PropertyChange {
    /// Spare factor in thousandths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spare_per_mille: Option<u16>,
    /// Age bound of data that is not sealed, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal_age_ms: Option<u32>,
    /// Age at which data that no flush covers is flushed, milliseconds; 0: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flush_age_ms: Option<u32>,
    /// A victim rule by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub victim_policy: Option<String>,
    /// A placement by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<String>,
    /// Discards for freed segments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discard: Option<bool>,
    /// Most bytes each second that a rebuild reads from, or writes to, one member; 0: no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebuild_rate: Option<u64>,
    /// Bytes each second of one member that a rebuild is given even while users are about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebuild_rate_min: Option<u64>,
    /// Days from the end of a scrub to the beginning of the next one, which begins by itself; 0:
    /// never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scrub_interval_days: Option<u16>,
    /// Milliseconds after which a read that takes much longer than usual is looked for elsewhere;
    /// 0: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_latency_bound_ms: Option<u32>,
    /// Per cent at which it is told that the pool fills; none: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warn_at: Option<Vec<u8>>,
    /// What compression and deduplication save is used for, by its name.
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
        /// Its end has been asked for.
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
    /// What became of clients.
    Disconnected {
        /// Those that were disconnected.
        clients: Vec<ClientReport>,
        /// Of these, those that did not end their connection in time and were cut off.
        cut: usize,
        /// Of these, those whose connection ends when the pool has answered their requests.
        unfinished: usize,
    },
    /// What was recorded.
    Recorded(Lot),
    /// What each volume keeps for itself.
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
    /// That this pool is meant; `meant` is a name or an identifier.
    ///
    /// # Errors
    /// Another one is.
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

/// Carries out commands.
pub trait ControlHandler: Send + Sync {
    /// The pool that commands are carried out on. Waits for nothing.
    fn serves(&self) -> ServedPool;

    /// Carries out one command; may take as long as it needs.
    fn handle(&self, command: Command) -> Result<Reply, Failure>;
}

#[derive(Serialize, Deserialize)]
struct Question {
    version: u32,
    /// Name or identifier of the pool that is meant.
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
    /// Not the answer yet: the command runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    working: bool,
    /// Not carried out, as there are too many connections; it may be sent again.
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

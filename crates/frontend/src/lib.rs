//! What a front-end (NBD, later ublk and vhost-user-blk) needs to serve volumes, and nothing of how
//! they are stored.
//!
//! A front-end opens a [`Session`] for each connection, hands it groups of requests and gets
//! completions back on two ways: those that were ready at once come back from [`Session::submit`],
//! the others reach the connection's [`Sink`] later, from any thread. The order of completions is
//! free; each request is answered exactly once. A front-end with a thread for each connection may
//! let that thread [attend](Session::attend) to its session.

#[cfg(feature = "testing")]
pub mod ram;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use windrow_io::{BufPool, Completion, Request, RequestError};
use windrow_types::VolumeId;

/// What clients are told of an export.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportInfo {
    /// Name that clients ask for.
    pub name: String,
    /// Free text.
    pub description: String,
    /// The volume behind it.
    pub volume: VolumeId,
    /// Size in bytes.
    pub size_bytes: u64,
    /// True if writes are refused.
    pub read_only: bool,
    /// Smallest request in bytes (1).
    pub min_block: u32,
    /// Preferred request in bytes (4096).
    pub preferred_block: u32,
    /// Largest request in bytes (32 MiB).
    pub max_block: u32,
}

/// Where completions go that were not ready at once. Called from any thread, must not block; may
/// submit further requests, whose completions may then come through a call within the call.
pub trait Sink: Send + Sync {
    /// Takes the completions (leaves the vector empty).
    fn complete(&self, completions: &mut Vec<Completion>);
    /// Asks the front-end to end the connection: requests in flight finish and are answered, later
    /// ones are refused.
    fn leave(&self) {}
    /// True if the peer has closed the connection: the session ends as soon as its requests are
    /// answered.
    fn is_gone(&self) -> bool {
        false
    }
    /// Ends the connection at once, for a client that does not let it end by [`Sink::leave`].
    fn cut(&self) {}
}

/// One connection's way to one volume.
pub trait Session: Send + Sync {
    /// Takes all `requests` (leaves the vector empty). Completions that are ready at once are
    /// pushed to `ready`.
    fn submit(&self, requests: &mut Vec<Request>, ready: &mut Vec<Completion>);
    /// The export as it is now (its size can change while it is served).
    fn info(&self) -> ExportInfo;
    /// Ties the session to the calling thread, so that what it submits need not pass through other
    /// threads: from now on this thread calls [`Session::progress`] whenever the descriptor is
    /// readable, until the session is dropped, which it does itself. `None`: there is nothing to
    /// look after.
    fn attend(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// Carries on with what the thread that attends has submitted; completions that are ready are
    /// pushed to `ready`. True if there is more to carry on with at once; answers may be sent
    /// before.
    fn progress(&self, _ready: &mut Vec<Completion>) -> bool {
        false
    }
}

/// What can be served.
pub trait ExportSource: Send + Sync {
    /// All exports; the default one (empty name) first, if there is one.
    fn list(&self) -> Vec<ExportInfo>;
    /// Opens a session of this process itself, which counts as no client. The empty name means the
    /// default export, if one was named. `RequestError::NoVolume` if there is no such export,
    /// `Stopped` while it is taken out of service.
    fn open(&self, name: &str, sink: Arc<dyn Sink>) -> Result<Box<dyn Session>, RequestError>;
    /// Opens the session of a client. Until it is dropped, commands that would take the export away
    /// see the client by `peer`.
    fn enter(
        &self,
        name: &str,
        _peer: &str,
        sink: Arc<dyn Sink>,
    ) -> Result<Box<dyn Session>, RequestError> {
        self.open(name, sink)
    }
    /// Where request buffers come from.
    fn buffers(&self) -> &BufPool;
}

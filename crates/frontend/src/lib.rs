//! Interface between a front-end (NBD, later ublk and vhost-user-blk) and the volumes, independent
//! of their storage.
//!
//! A front-end opens a [`Session`] for each connection and hands it groups of requests. Completions
//! come back on two ways: immediate ones from [`Session::submit`], the others later through the
//! connection's [`Sink`], from any thread. The order of completions is free; each request is
//! answered exactly once. A front-end with a thread for each connection may let that thread
//! [attend](Session::attend) to its session.

#[cfg(feature = "testing")]
pub mod ram;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use windrow_io::{BufPool, Completion, Request, RequestError};
use windrow_types::VolumeId;

/// Description of an export for clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportInfo {
    /// Name that clients ask for.
    pub name: String,
    /// Free text.
    pub description: String,
    /// The volume that is served.
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

/// Receiver of completions that were not immediate. Called from any thread, must not block. It may
/// submit further requests, whose completions may then come through a nested call.
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

/// Session of one connection with one volume.
pub trait Session: Send + Sync {
    /// Takes all `requests` (leaves the vector empty). Immediate completions are pushed to `ready`.
    fn submit(&self, requests: &mut Vec<Request>, ready: &mut Vec<Completion>);
    /// The export as it is now (its size can change while it is served).
    fn info(&self) -> ExportInfo;
    /// Ties the session to the calling thread, so that its requests need not pass through other
    /// threads. From now on this thread calls [`Session::progress`] whenever the descriptor is
    /// readable, until it drops the session itself. `None`: the session needs no attention.
    fn attend(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// Continues the requests of the attending thread; their completions are pushed to `ready`.
    /// True if there is more to do at once; answers may be sent first.
    fn progress(&self, _ready: &mut Vec<Completion>) -> bool {
        false
    }
}

/// A set of exports.
pub trait ExportSource: Send + Sync {
    /// All exports; the default one (empty name) first, if there is one.
    fn list(&self) -> Vec<ExportInfo>;
    /// Opens a session of this process itself, which does not count as a client. The empty name
    /// means the default export, if there is one. `RequestError::NoVolume` if there is no such
    /// export, `Stopped` while it is being removed.
    fn open(&self, name: &str, sink: Arc<dyn Sink>) -> Result<Box<dyn Session>, RequestError>;
    /// Opens the session of a client. Until it is dropped, commands that would remove the export
    /// see the client by `peer`.
    fn enter(
        &self,
        name: &str,
        _peer: &str,
        sink: Arc<dyn Sink>,
    ) -> Result<Box<dyn Session>, RequestError> {
        self.open(name, sink)
    }
    /// Pool of request buffers.
    fn buffers(&self) -> &BufPool;
}

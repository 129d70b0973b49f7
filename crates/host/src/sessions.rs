//! The table of sessions and of their requests in flight.
//!
//! A request travels through the engine with an id of the host: session number in the upper 32
//! bits, slot in the lower. The slot keeps the front-end's own id, the kind and the start time.
//! Invariants:
//!
//! 1. A slot is taken exactly once: by the engine's completion, or by the failure of the whole
//!    pool, whichever comes first. The other one finds it empty and drops its answer. So each
//!    request is answered exactly once, whatever fails. A failed slot is not used again: the
//!    engine's completion may still be in flight, and would be taken for that of the next request.
//!    The pool has ended then, so only few slots are lost.
//! 2. Session numbers are not reused while the process runs (they would have to wrap). So a late
//!    completion of a closed session finds no session and is dropped.
//! 3. No lock of this module is held while a sink is called.

use crate::exports::ClientReport;
use crate::histogram::{Latencies, Operation};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use windrow_frontend::Sink;
use windrow_io::{Completion, Op, Request, RequestError, RequestId};
use windrow_types::VolumeId;

/// Locks a mutex whose holders never leave it half-changed, so that the poison of a panicking
/// thread may be ignored.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

struct Slot {
    id: RequestId,
    operation: Option<Operation>,
    bytes: u64,
    started_ns: u64,
}

/// The client at the other end of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Client {
    /// Address, or process and user.
    pub(crate) peer: String,
    /// The export that it has entered, by its present name.
    pub(crate) export: String,
    /// The volume of that export at the time.
    pub(crate) volume: VolumeId,
    /// It named none.
    pub(crate) by_default: bool,
    /// Time when it entered, seconds since 1970.
    pub(crate) since_unix_s: u64,
}

/// Answered requests of a session.
#[derive(Clone, Copy, Default, Debug)]
struct Traffic {
    reads: u64,
    read_bytes: u64,
    writes: u64,
    written_bytes: u64,
    errors: u64,
}

impl Traffic {
    fn count(&mut self, slot: &Slot, is_ok: bool) {
        match slot.operation {
            _ if !is_ok => self.errors += 1,
            Some(Operation::Read) => {
                (self.reads, self.read_bytes) = (self.reads + 1, self.read_bytes + slot.bytes)
            }
            Some(Operation::Write) => {
                (self.writes, self.written_bytes) =
                    (self.writes + 1, self.written_bytes + slot.bytes)
            }
            _ => {}
        }
    }
}

#[derive(Default)]
struct Inner {
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    latencies: Latencies,
    traffic: Traffic,
}

impl Inner {
    fn take(&mut self, index: u32) -> Option<Slot> {
        self.slots.get_mut(index as usize)?.take()
    }
}

/// One open session.
pub(crate) struct SessionState {
    number: u32,
    sink: Arc<dyn Sink>,
    /// `None`: a session of this process itself.
    client: Option<Mutex<Client>>,
    inner: Mutex<Inner>,
}

fn operation(op: &Op) -> Option<Operation> {
    match op {
        Op::Read { .. } => Some(Operation::Read),
        Op::Write { .. } => Some(Operation::Write),
        Op::Flush => Some(Operation::Flush),
        Op::Trim { .. } | Op::WriteZeroes { .. } => Some(Operation::Trim),
        Op::BlockStatus { .. } => None,
    }
}

fn payload_bytes(op: &Op) -> u64 {
    match op {
        Op::Read { length, .. } => u64::from(*length),
        Op::Write { data, .. } => data.len() as u64,
        _ => 0,
    }
}

/// The session number inside an id of the host.
pub(crate) fn session_number(id: RequestId) -> u32 {
    (id.0 >> 32) as u32
}

impl SessionState {
    /// Its number.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Sink for completions that are not returned at once.
    pub(crate) fn sink(&self) -> &dyn Sink {
        &*self.sink
    }

    /// Gives each request a slot and the host's id.
    pub(crate) fn register(&self, requests: &mut [Request], now_ns: u64) {
        let mut inner = lock(&self.inner);
        for request in requests {
            let slot = Slot {
                id: request.id,
                operation: operation(&request.op),
                bytes: payload_bytes(&request.op),
                started_ns: now_ns,
            };
            let index = match inner.free.pop() {
                Some(index) => {
                    inner.slots[index as usize] = Some(slot);
                    index
                }
                None => {
                    inner.slots.push(Some(slot));
                    (inner.slots.len() - 1) as u32
                }
            };
            request.id = RequestId(u64::from(self.number) << 32 | u64::from(index));
        }
    }

    /// Frees the slots of `completions`, counts their latency, and pushes them with the front-end's
    /// ids to `out`.
    pub(crate) fn finish(
        &self,
        completions: impl Iterator<Item = Completion>,
        now_ns: u64,
        out: &mut Vec<Completion>,
    ) {
        let mut inner = lock(&self.inner);
        for mut completion in completions {
            let index = completion.id.0 as u32;
            let Some(slot) = inner.take(index) else {
                continue;
            };
            inner.free.push(index);
            inner.traffic.count(&slot, completion.result.is_ok());
            if let (Some(operation), Ok(_)) = (slot.operation, &completion.result) {
                inner
                    .latencies
                    .record(operation, now_ns.saturating_sub(slot.started_ns));
            }
            completion.id = slot.id;
            out.push(completion);
        }
    }

    /// Takes every request in flight and answers it with `error`, after the pool has ended.
    pub(crate) fn fail(&self, error: RequestError, out: &mut Vec<Completion>) {
        let mut inner = lock(&self.inner);
        for index in 0..inner.slots.len() as u32 {
            if let Some(slot) = inner.take(index) {
                out.push(Completion {
                    id: slot.id,
                    result: Err(error),
                    lsns: None,
                });
            }
        }
    }

    /// Requests in flight.
    #[cfg(test)]
    pub(crate) fn in_flight(&self) -> usize {
        lock(&self.inner).slots.iter().flatten().count()
    }

    /// The client at the other end; `None` for a session of this process itself.
    pub(crate) fn client(&self) -> Option<Client> {
        self.client.as_ref().map(|client| lock(client).clone())
    }

    /// Updates the client's export to its new name.
    pub(crate) fn rename_export(&self, volume: VolumeId, name: &str, new_name: &str) {
        let Some(mut client) = self.client.as_ref().map(lock) else {
            return;
        };
        if client.volume == volume && client.export == name {
            new_name.clone_into(&mut client.export);
        }
    }

    /// Report on the client, with its traffic.
    pub(crate) fn report(&self) -> Option<ClientReport> {
        let client = self.client()?;
        let (traffic, in_flight) = {
            let inner = lock(&self.inner);
            (inner.traffic, inner.slots.iter().flatten().count() as u64)
        };
        Some(ClientReport {
            client: self.number,
            export: client.export,
            by_default: client.by_default,
            peer: client.peer,
            since_unix_s: client.since_unix_s,
            reads: traffic.reads,
            read_bytes: traffic.read_bytes,
            writes: traffic.writes,
            written_bytes: traffic.written_bytes,
            errors: traffic.errors,
            in_flight,
        })
    }
}

/// All sessions.
#[derive(Default)]
pub(crate) struct Sessions {
    open: RwLock<HashMap<u32, Arc<SessionState>>>,
    last_number: AtomicU32,
    /// Latencies of sessions that are closed.
    closed: Mutex<Latencies>,
}

impl Sessions {
    /// Opens a session of this process itself.
    #[cfg(test)]
    pub(crate) fn open(&self, sink: Arc<dyn Sink>) -> Arc<SessionState> {
        self.open_for(sink, None)
    }

    /// Opens a session, for a client if there is one.
    pub(crate) fn open_for(
        &self,
        sink: Arc<dyn Sink>,
        client: Option<Client>,
    ) -> Arc<SessionState> {
        let mut open = self
            .open
            .write()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut number = self
            .last_number
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_add(1);
        while open.contains_key(&number) {
            number = self
                .last_number
                .fetch_add(1, Ordering::Relaxed)
                .wrapping_add(1);
        }
        let session = Arc::new(SessionState {
            number,
            sink,
            client: client.map(Mutex::new),
            inner: Mutex::default(),
        });
        open.insert(number, session.clone());
        session
    }

    /// Closes a session: requests in flight complete without an answer.
    pub(crate) fn close(&self, session: &SessionState) {
        let mut open = self
            .open
            .write()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        if open.remove(&session.number).is_some() {
            lock(&self.closed).merge(&lock(&session.inner).latencies);
        }
    }

    /// The open session of this number.
    pub(crate) fn get(&self, number: u32) -> Option<Arc<SessionState>> {
        self.open
            .read()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .get(&number)
            .cloned()
    }

    /// All open sessions.
    pub(crate) fn all(&self) -> Vec<Arc<SessionState>> {
        self.open
            .read()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .values()
            .cloned()
            .collect()
    }

    /// Latencies of all sessions since start. The table is held meanwhile, so that a session that
    /// closes is counted once.
    pub(crate) fn latencies(&self) -> Latencies {
        let open = self
            .open
            .read()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut sum = lock(&self.closed).clone();
        for session in open.values() {
            sum.merge(&lock(&session.inner).latencies);
        }
        sum
    }
}

#[cfg(test)]
mod tests;

//! One connection as several threads see it: its socket, its requests in flight, and the replies.
//!
//! Two locks, never held together, and neither is held while the volume is called:
//! 1. `ledger`: table look-ups only, so that a thread which delivers completions never waits for a
//!    system call.
//! 2. `queue`: encoding and sending (never waits for the socket).
//!
//! A thread that delivers completions while no thread sends becomes the sender. It takes all
//! completions that have arrived, encodes, sends, and looks again until there are no new ones.
//! Other threads only leave theirs and return, so bursts of completions share system calls. Bytes
//! that the socket does not take stay queued for the connection's thread, which waits for the
//! socket anyway.

use crate::budget::Account;
use crate::ledger::{Answer, Bounds, Ledger, Totals};
use crate::protocol::{
    Action, Incoming, MAX_REQUEST_BYTES, Question, Refusal, Released, ReplyQueue,
};
use crate::socket::{Bell, Socket};
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use windrow_frontend::Sink;
use windrow_io::{Completion, Reply, Request};
use windrow_types::VolumeId;

/// Pieces of one send.
const SEND_SLICES: usize = 128;

pub(crate) struct Link {
    pub(crate) socket: Socket,
    pub(crate) bell: Arc<Bell>,
    /// Memory of requests and unsent replies.
    pub(crate) account: Account,
    bounds: Bounds,
    ledger: Mutex<Ledger>,
    queue: Mutex<ReplyQueue>,
    /// The socket was full and replies wait.
    blocked: AtomicBool,
    /// Replies cannot reach the client any more and are discarded.
    broken: AtomicBool,
    /// The connection is ending: it takes no new requests.
    leaving: AtomicBool,
    /// Bytes that the socket has taken.
    sent_bytes: AtomicU64,
}

/// Result of a request that the connection answers without the volume.
pub(crate) type Outcome = Result<Reply, Refusal>;

impl Link {
    pub(crate) fn new(
        socket: Socket,
        bounds: Bounds,
        account: impl FnOnce(Arc<Bell>) -> Account,
    ) -> io::Result<Self> {
        let bell = Arc::new(Bell::new()?);
        Ok(Self {
            socket,
            account: account(bell.clone()),
            bell,
            bounds,
            ledger: Mutex::new(Ledger::new(bounds)),
            queue: Mutex::new(ReplyQueue::new(false)),
            blocked: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            sent_bytes: AtomicU64::new(0),
        })
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn queue(&self) -> MutexGuard<'_, ReplyQueue> {
        self.queue
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Sets the form of replies, before the first request.
    pub(crate) fn begin(&self, structured: bool) {
        *self.queue() = ReplyQueue::new(structured);
    }

    pub(crate) fn totals(&self) -> (Totals, u32) {
        let ledger = self.ledger();
        (ledger.totals, ledger.held().requests)
    }

    pub(crate) fn held(&self) -> Released {
        self.ledger().held()
    }

    /// True if one more request of the largest size stays within the bounds.
    pub(crate) fn has_room(&self, held: Released) -> bool {
        held.requests < self.bounds.requests
            && held.bytes + u64::from(MAX_REQUEST_BYTES) <= self.bounds.bytes
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::SeqCst)
    }

    /// Bytes that the socket has taken: a measure of the client's progress.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::SeqCst)
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::SeqCst)
    }

    /// True if `condition` holds; then the bell rings at the next release.
    pub(crate) fn wanted(&self, condition: impl Fn(&Ledger) -> bool) -> bool {
        let mut ledger = self.ledger();
        ledger.wanted = condition(&ledger);
        ledger.wanted
    }

    /// Registers a group: requests for the volume are pushed to `requests`, answers to the others
    /// are queued.
    pub(crate) fn register(
        &self,
        group: &mut Vec<Incoming>,
        volume: VolumeId,
        cache: impl Fn(&Incoming) -> Outcome,
        requests: &mut Vec<Request>,
    ) {
        let mut ledger = self.ledger();
        for incoming in group.drain(..) {
            let question = Question::from(&incoming);
            ledger.take(&question);
            match incoming.action {
                Action::Submit(op) => ledger.register(question, volume, op, requests),
                Action::Refuse(refusal) => ledger.answer(Answer {
                    question,
                    result: Err(refusal),
                }),
                Action::Cache => ledger.answer(Answer {
                    question,
                    result: cache(&incoming),
                }),
            }
        }
    }

    /// Sends completions together with all queued answers.
    pub(crate) fn deliver(&self, completions: &mut Vec<Completion>) {
        let mut ledger = self.ledger();
        completions
            .drain(..)
            .for_each(|completion| ledger.arrive(completion));
        if ledger.sending {
            return;
        }
        ledger.sending = true;
        while !ledger.arrived.is_empty() {
            let spare = std::mem::take(&mut ledger.spare);
            let mut batch = std::mem::replace(&mut ledger.arrived, spare);
            drop(ledger);
            let released = self.encode_and_send(&mut batch);
            self.account.give(released.charges);
            ledger = self.ledger();
            ledger.spare = batch;
            ledger.release(released);
        }
        ledger.sending = false;
        // Rung also for a full socket: the connection's thread has to wait for it.
        let ring = std::mem::take(&mut ledger.wanted) || self.is_blocked();
        drop(ledger);
        if ring {
            self.bell.ring();
        }
    }

    fn encode_and_send(&self, batch: &mut Vec<Answer>) -> Released {
        let mut queue = self.queue();
        batch
            .drain(..)
            .for_each(|answer| queue.push(&answer.question, answer.result));
        self.send(&mut queue)
    }

    /// Sends queued bytes as far as the socket takes them. For the connection's own thread.
    pub(crate) fn flush(&self) {
        let released = self.send(&mut self.queue());
        self.account.give(released.charges);
        self.ledger().release(released);
    }

    /// Discards replies from now on.
    pub(crate) fn give_up(&self) {
        self.broken.store(true, Ordering::SeqCst);
        self.flush();
    }

    fn send(&self, queue: &mut ReplyQueue) -> Released {
        let mut released = Released::default();
        let mut add = |part: Released| {
            released.requests += part.requests;
            released.bytes += part.bytes;
            released.charges.add(part.charges);
        };
        while !queue.is_empty() {
            if self.is_broken() {
                add(queue.clear());
                break;
            }
            let mut slices = [IoSlice::new(&[]); SEND_SLICES];
            let count = queue.slices(&mut slices);
            match self.socket.send(&slices[..count]) {
                Ok(Some(length)) => {
                    self.sent_bytes.fetch_add(length as u64, Ordering::Relaxed);
                    add(queue.sent(length));
                }
                Ok(None) => {
                    queue.settle();
                    self.blocked.store(true, Ordering::SeqCst);
                    return released;
                }
                Err(_) => {
                    self.broken.store(true, Ordering::SeqCst);
                    // It may have failed for lack of memory: the client is still there, and would
                    // wait for the discarded replies. Wakes our thread, too.
                    self.socket.cut();
                }
            }
        }
        self.blocked.store(false, Ordering::SeqCst);
        released
    }
}

impl Sink for Link {
    fn complete(&self, completions: &mut Vec<Completion>) {
        self.deliver(completions);
    }

    fn leave(&self) {
        self.leaving.store(true, Ordering::SeqCst);
        self.bell.ring();
    }

    fn is_gone(&self) -> bool {
        self.socket.is_hung_up()
    }

    fn cut(&self) {
        self.leaving.store(true, Ordering::SeqCst);
        self.socket.cut();
    }
}

#[cfg(test)]
mod tests;

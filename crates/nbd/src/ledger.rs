//! What one connection has in flight, and the bounds of it.
//!
//! A request takes a slot and its share of the bounds when it is registered. Its slot is free again when it is completed; its
//! share only when its reply has left, so that one bound covers requests, completions and the reply queue together.
//! The id given to the volume holds slot and generation: a completion that comes twice finds no question and is dropped.

use crate::protocol::{Question, Refusal, Released};
use windrow_io::{Completion, Reply, RequestId};

/// A completed request whose reply is not encoded yet.
pub(crate) struct Answer {
    pub(crate) question: Question,
    pub(crate) result: Result<Reply, Refusal>,
}

/// Bounds of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) requests: u32,
    pub(crate) bytes: u64,
}

/// Sums since the connection was made.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Totals {
    pub(crate) requests: u64,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) errors: u64,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    generation: u32,
    question: Option<Question>,
}

pub(crate) struct Ledger {
    slots: Vec<Slot>,
    free: Vec<u32>,
    held: Released,
    /// Completions that no thread has begun to send.
    pub(crate) arrived: Vec<Answer>,
    /// An empty vector whose memory is used again.
    pub(crate) spare: Vec<Answer>,
    /// A thread is sending and will look at `arrived` again before it stops.
    pub(crate) sending: bool,
    /// The connection's thread wants to be woken when something is released.
    pub(crate) wanted: bool,
    pub(crate) totals: Totals,
}

impl Ledger {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            slots: vec![Slot::default(); bounds.requests as usize],
            free: (0..bounds.requests).rev().collect(),
            held: Released::default(),
            arrived: Vec::new(),
            spare: Vec::new(),
            sending: false,
            wanted: false,
            totals: Totals::default(),
        }
    }

    /// What is taken of the bounds.
    pub(crate) fn held(&self) -> Released {
        self.held
    }

    /// Takes a share of the bounds.
    pub(crate) fn take(&mut self, question: &Question) {
        self.held.requests += 1;
        self.held.bytes += u64::from(question.cost_bytes());
        self.totals.requests += 1;
    }

    /// Takes a slot for a request that goes to the volume.
    ///
    /// # Panics
    /// If there is none: the caller reads no more requests than the bounds allow.
    pub(crate) fn register(&mut self, question: Question) -> RequestId {
        let Some(index) = self.free.pop() else { panic!("more requests than slots") };
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.question = Some(question);
        RequestId(u64::from(slot.generation) << 32 | u64::from(index))
    }

    /// Frees the slot of a completed request and puts its answer up for sending.
    pub(crate) fn arrive(&mut self, completion: Completion) {
        let (index, generation) = (completion.id.0 as u32, (completion.id.0 >> 32) as u32);
        let Some(slot) = self.slots.get_mut(index as usize).filter(|slot| slot.generation == generation) else { return };
        let Some(question) = slot.question.take() else { return };
        self.free.push(index);
        self.answer(Answer { question, result: completion.result.map_err(Refusal::Volume) });
    }

    /// Puts an answer up for sending.
    pub(crate) fn answer(&mut self, answer: Answer) {
        match &answer.result {
            Ok(Reply::Data(_)) => self.totals.read_bytes += u64::from(answer.question.length),
            Ok(_) => self.totals.written_bytes += u64::from(answer.question.cost_bytes()),
            Err(_) => self.totals.errors += 1,
        }
        self.arrived.push(answer);
    }

    /// Gives back what replies that have left had taken.
    pub(crate) fn release(&mut self, released: Released) {
        self.held.requests -= released.requests;
        self.held.bytes -= released.bytes;
    }

    /// Nothing in flight, nothing waiting to be sent.
    pub(crate) fn is_idle(&self) -> bool {
        self.held.requests == 0
    }
}

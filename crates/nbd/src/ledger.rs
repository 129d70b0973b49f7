//! Requests in flight of one connection, and their bounds.
//!
//! A request takes a slot and its share of the bounds when it is registered. Its slot is free again
//! when it is completed; its share only when its reply has left. So one bound covers requests,
//! completions and the reply queue together. The id given to the volume holds slot and generation:
//! a completion that comes twice matches no request and is dropped.
//!
//! A read of more than [`PIECE_BYTES`] goes to the volume in pieces, each with its own slot. It is
//! answered when all of them are complete. Otherwise the volume would take buffers for the whole
//! request at once, and other clients would wait for them.

use crate::protocol::{Question, Refusal, Released};
use windrow_io::{Completion, Op, Payload, Reply, Request, RequestId};
use windrow_types::VolumeId;

/// Largest read that the volume gets as one request.
pub(crate) const PIECE_BYTES: u32 = 1 << 20;

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

/// Request to the volume in one slot.
#[derive(Clone, Copy)]
enum Asked {
    Whole(Question),
    /// Piece `number` of a read in pieces.
    Piece {
        read: u32,
        number: u32,
    },
}

#[derive(Clone, Copy, Default)]
struct Slot {
    generation: u32,
    asked: Option<Asked>,
}

/// A read in pieces.
struct Pieces {
    question: Question,
    data: Vec<Vec<Payload>>,
    left: u32,
    failed: Option<Refusal>,
}

pub(crate) struct Ledger {
    slots: Vec<Slot>,
    free: Vec<u32>,
    slots_max: usize,
    /// Reads in pieces; `None` is a slot for reuse.
    reads: Vec<Option<Pieces>>,
    held: Released,
    /// Completions that no thread has begun to send.
    pub(crate) arrived: Vec<Answer>,
    /// An empty vector whose memory is reused.
    pub(crate) spare: Vec<Answer>,
    /// A thread is sending and will look at `arrived` again before it stops.
    pub(crate) sending: bool,
    /// The connection's thread must be woken at the next release.
    pub(crate) wanted: bool,
    pub(crate) totals: Totals,
}

impl Ledger {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            slots: vec![Slot::default(); bounds.requests as usize],
            free: (0..bounds.requests).rev().collect(),
            // A read that is just too long for one piece has two.
            slots_max: bounds.requests as usize
                + 2 * (bounds.bytes / u64::from(PIECE_BYTES)) as usize,
            reads: Vec::new(),
            held: Released::default(),
            arrived: Vec::new(),
            spare: Vec::new(),
            sending: false,
            wanted: false,
            totals: Totals::default(),
        }
    }

    /// The share of the bounds in use.
    pub(crate) fn held(&self) -> Released {
        self.held
    }

    /// Takes a share of the bounds.
    pub(crate) fn take(&mut self, question: &Question) {
        self.held.requests += 1;
        self.held.bytes += u64::from(question.cost_bytes());
        self.totals.requests += 1;
    }

    /// Registers a request that goes to the volume, as one or in pieces.
    ///
    /// # Panics
    /// If there is no slot: the caller reads no more requests than the bounds allow.
    pub(crate) fn register(
        &mut self,
        question: Question,
        volume: VolumeId,
        op: Op,
        requests: &mut Vec<Request>,
    ) {
        let Op::Read { offset, length } = op else {
            return requests.push(Request {
                id: self.take_slot(Asked::Whole(question)),
                volume,
                op,
            });
        };
        if length <= PIECE_BYTES {
            return requests.push(Request {
                id: self.take_slot(Asked::Whole(question)),
                volume,
                op,
            });
        }
        let count = length.div_ceil(PIECE_BYTES);
        let pieces = Pieces {
            question,
            data: vec![Vec::new(); count as usize],
            left: count,
            failed: None,
        };
        let read = match self.reads.iter().position(Option::is_none) {
            Some(vacant) => {
                self.reads[vacant] = Some(pieces);
                vacant
            }
            None => {
                self.reads.push(Some(pieces));
                self.reads.len() - 1
            }
        };
        for number in 0..count {
            let from = number * PIECE_BYTES;
            let op = Op::Read {
                offset: offset + u64::from(from),
                length: PIECE_BYTES.min(length - from),
            };
            requests.push(Request {
                id: self.take_slot(Asked::Piece {
                    read: read as u32,
                    number,
                }),
                volume,
                op,
            });
        }
    }

    fn take_slot(&mut self, asked: Asked) -> RequestId {
        let index = self.free.pop().unwrap_or_else(|| {
            assert!(
                self.slots.len() < self.slots_max,
                "more requests than slots"
            );
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.asked = Some(asked);
        RequestId(u64::from(slot.generation) << 32 | u64::from(index))
    }

    /// Frees the slot of a completed request and queues its answer, if nothing else of it is
    /// missing.
    pub(crate) fn arrive(&mut self, completion: Completion) {
        let (index, generation) = (completion.id.0 as u32, (completion.id.0 >> 32) as u32);
        let Some(slot) = self
            .slots
            .get_mut(index as usize)
            .filter(|slot| slot.generation == generation)
        else {
            return;
        };
        let Some(asked) = slot.asked.take() else {
            return;
        };
        self.free.push(index);
        let result = completion.result.map_err(Refusal::Volume);
        match asked {
            Asked::Whole(question) => self.answer(Answer { question, result }),
            Asked::Piece { read, number } => {
                self.piece_arrived(read as usize, number as usize, result)
            }
        }
    }

    fn piece_arrived(&mut self, read: usize, number: usize, result: Result<Reply, Refusal>) {
        let Some(pieces) = &mut self.reads[read] else {
            panic!("a piece of a read that is answered")
        };
        match result {
            Ok(Reply::Data(data)) => pieces.data[number] = data,
            // A piece without data makes the whole too short, which is an error.
            Ok(_) => {}
            Err(refusal) => pieces.failed = pieces.failed.or(Some(refusal)),
        }
        pieces.left -= 1;
        if pieces.left == 0
            && let Some(Pieces {
                question,
                data,
                failed,
                ..
            }) = self.reads[read].take()
        {
            let result = failed.map_or_else(
                || Ok(Reply::Data(data.into_iter().flatten().collect())),
                Err,
            );
            self.answer(Answer { question, result });
        }
    }

    /// Queues an answer.
    pub(crate) fn answer(&mut self, answer: Answer) {
        match &answer.result {
            Ok(Reply::Data(_)) => self.totals.read_bytes += u64::from(answer.question.length),
            Ok(_) => self.totals.written_bytes += u64::from(answer.question.cost_bytes()),
            Err(_) => self.totals.errors += 1,
        }
        self.arrived.push(answer);
    }

    /// Returns the shares of replies that have left.
    pub(crate) fn release(&mut self, released: Released) {
        self.held.requests -= released.requests;
        self.held.bytes -= released.bytes;
    }

    /// True if nothing is in flight or queued.
    pub(crate) fn is_idle(&self) -> bool {
        self.held.requests == 0
    }
}

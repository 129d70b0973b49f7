//! Load like that of a journalling file system (ext4, XFS, NTFS) with synchronous writers.
//!
//! Published (2017 source): each write, whatever its size, causes 32 to 80 KiB of journal and
//! metadata writes, which are overwritten soon; they are 50 to 60 % of all writes. Assumed:
//! [`DATA`] (mean 45.5 KiB, so that the share comes out), four fifths of the writes to a fifth of
//! the data, a journal of 1/64 and metadata of 1/50 of the space, a quarter of the additional
//! writes being metadata in place.
//!
//! One round: 1. the data; 2. a flush; 3. the transaction, in sequence in the circular journal; 4.
//! its commit block, with FUA; 5. metadata in place, block by block.

use super::BLOCK;
use super::draw::{Pace, Sizes, size};
use crate::rng::Rng;
use std::collections::VecDeque;
use windrow_trace::{Kind, Request};

/// Sizes of data writes.
pub const DATA: &Sizes = &[
    (4 << 10, 40),
    (16 << 10, 20),
    (32 << 10, 15),
    (64 << 10, 10),
    (128 << 10, 10),
    (256 << 10, 5),
];
/// Minimum and maximum KiB of journal and metadata with each write; uniform between them in steps
/// of 4.
pub const ALONG_KIB: (u64, u64) = (32, 80);

/// Gap between two requests of a round.
const GAP_NS: u64 = 200_000;

/// The endless stream.
pub struct Journalling {
    journal: u64,
    metadata: u64,
    blocks: u64,
    head: u64,
    random: Rng,
    pace: Pace,
    round: VecDeque<Request>,
}

impl Journalling {
    pub fn new(blocks: u64, seed: u64) -> Self {
        Self {
            journal: blocks / 64,
            metadata: blocks / 50,
            blocks,
            head: 0,
            random: Rng::stream(seed, "journalling"),
            pace: Pace::new(seed),
            round: VecDeque::new(),
        }
    }

    fn ask(&mut self, kind: Kind, block: u64, count: u64) {
        let request = self
            .pace
            .request(kind, block * BLOCK, count * BLOCK, GAP_NS);
        self.round.push_back(request);
    }

    /// First block of the data.
    fn data(&self) -> u64 {
        self.journal + self.metadata
    }

    fn begin(&mut self) {
        let count = size(DATA, &mut self.random) / BLOCK;
        let (first, room) = (self.data(), self.blocks - self.data() - count + 1);
        let hot = room / 5;
        let at = if self.random.below(100) < 80 {
            self.random.below(hot)
        } else {
            hot + self.random.below(room - hot)
        };
        self.ask(Kind::Write, first + at, count);
        self.ask(Kind::Flush, 0, 0);
        let along = self.random.between(ALONG_KIB.0 / 4, ALONG_KIB.1 / 4);
        let in_place = along / 4;
        let transaction = along - in_place - 1;
        // A transaction that would exceed the end begins at the front.
        if self.head + transaction + 1 > self.journal {
            self.head = 0;
        }
        self.ask(Kind::Write, self.head, transaction);
        self.ask(Kind::Write, self.head + transaction, 1);
        if let Some(commit) = self.round.back_mut() {
            commit.fua = true;
        }
        self.head += transaction + 1;
        for _ in 0..in_place {
            let block = self.journal + self.random.below(self.metadata);
            self.ask(Kind::Write, block, 1);
        }
    }
}

impl Iterator for Journalling {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        if self.round.is_empty() {
            self.begin();
        }
        self.round.pop_front()
    }
}

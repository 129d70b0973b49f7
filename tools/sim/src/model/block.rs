//! Reference model of one block.
//!
//! A block is a *base* (stamps of its eight sectors, settled) under two lists: `known`, writes with
//! a known LSN, ascending, and `open`, writes whose LSN is not known yet (not answered), or never
//! will be (interrupted by a crash). Content is legal if and only if a history explains it: the
//! base, then all known writes up to some cut in LSN order, with any of the open ones at any point
//! between.
//!
//! The search goes backwards. It starts with all observed sectors as unexplained. The last write of
//! the history must match every unexplained sector that it covers; these are then explained, and
//! the preceding write is next. Taking an open write whenever it matches is never wrong, because it
//! only leaves less to explain. The greedy search is therefore exact.
//!
//! An observation of a sector is a `Seen`: a read shows its stamp, block status only whether it is
//! a hole, zero, or anything else.

use crate::content::{EMPTY, HOLE, ONES, SECTORS, Stamps, ZERO};
use windrow_io::{ExtentState, RequestId};

/// All sectors of a block.
pub const FULL: u8 = 0xff;

/// A write of one block, or of some of its sectors.
#[derive(Clone, Copy, Debug)]
pub struct BlockWrite {
    /// The request.
    pub request: RequestId,
    /// Sectors, as a bit mask.
    pub mask: u8,
    /// Their stamp.
    pub stamp: u64,
    /// First LSN of the request that decides this block; 0 while unknown.
    pub first: u64,
    /// Last LSN that decides this block; 0 while unknown. Differs from `first` for trims only.
    pub last: u64,
    /// Lower bound (exclusive) of the LSN: the highest one acknowledged at submission.
    pub above: u64,
    /// A trim of a part of the block, in a full pool: it may have left the block unchanged.
    pub may_pass: bool,
}

/// Observation of a sector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seen {
    /// A read: this stamp; holes read as zeroes.
    Stamp(u64),
    /// Block status: a hole.
    Hole,
    /// Zeroes, and not a hole.
    Zero,
    /// Zeroes or a hole.
    Empty,
    /// Neither.
    Data,
}

impl Seen {
    fn fits(self, stamp: u64) -> bool {
        match self {
            Self::Stamp(seen) => seen == stamp || (seen == ZERO && is_empty(stamp)),
            Self::Hole => matches!(stamp, HOLE | EMPTY),
            Self::Zero => matches!(stamp, ZERO | EMPTY),
            Self::Empty => is_empty(stamp),
            Self::Data => !is_empty(stamp),
        }
    }
}

/// True if sectors with this stamp read as zeroes.
pub(super) fn is_empty(stamp: u64) -> bool {
    matches!(stamp, ZERO | HOLE | EMPTY)
}

/// Reference state of one block.
#[derive(Clone, Debug)]
pub struct BlockModel {
    base: Stamps,
    known: Vec<BlockWrite>,
    open: Vec<BlockWrite>,
    /// Number of reads of this block in flight.
    pub readers: u32,
}

impl Default for BlockModel {
    fn default() -> Self {
        Self {
            base: [HOLE; SECTORS],
            known: Vec::new(),
            open: Vec::new(),
            readers: 0,
        }
    }
}

impl BlockModel {
    /// Records a submitted write.
    pub fn submit(&mut self, write: BlockWrite) {
        self.open.push(write);
    }

    /// Records a successful write with these LSNs. `may_pass`: where it covers the block in part it
    /// may have left it unchanged.
    pub fn acknowledge(&mut self, request: RequestId, first: u64, last: u64, may_pass: bool) {
        if let Some(at) = self.open.iter().position(|write| write.request == request) {
            let write = self.open.remove(at);
            let write = BlockWrite {
                first,
                last,
                may_pass: may_pass && write.mask != FULL,
                ..write
            };
            let at = self.known.partition_point(|other| other.last < last);
            self.known.insert(at, write);
        }
    }

    /// Removes a write that failed without effect.
    pub fn withdraw(&mut self, request: RequestId) {
        self.open.retain(|write| write.request != request);
    }

    /// Newest known LSN of this block, 0 if there is none.
    pub fn newest(&self) -> u64 {
        self.known.last().map_or(0, |write| write.last)
    }

    /// True if nothing is in flight and the content is certain.
    pub fn is_certain(&self) -> bool {
        self.open.is_empty()
    }

    /// Folds known writes up to `floor` into the base: they can never be undone. Not while requests
    /// in flight may still need them.
    pub fn fold(&mut self, floor: u64) {
        if self.open.is_empty() && self.readers == 0 {
            let settled = self.known.partition_point(|write| write.last <= floor);
            let count = (0..settled)
                .find(|at| self.is_left_open(*at, settled))
                .unwrap_or(settled);
            for write in self.known.drain(..count) {
                overlay(&mut self.base, &write);
            }
        }
    }

    /// True if it is unknown whether this one of the first `count` known writes has happened, and
    /// it would show.
    fn is_left_open(&self, at: usize, count: usize) -> bool {
        let later = self.known[at + 1..count]
            .iter()
            .filter(|write| !write.may_pass)
            .fold(0, |mask, write| mask | write.mask);
        self.known[at].may_pass && self.known[at].mask & !later != 0
    }

    /// True if the newest content depends on a trim that may have left the block unchanged.
    pub fn is_left_to_see(&self) -> bool {
        (0..self.known.len()).any(|at| self.is_left_open(at, self.known.len()))
    }

    /// Records a legal read while nothing is in flight: it shows which trims have left the block
    /// unchanged. Whether a block of zeroes is a hole stays open.
    pub fn see(&mut self, observed: &Stamps) {
        let seen = observed.map(Seen::Stamp);
        let mut unexplained = FULL;
        for at in (0..self.known.len()).rev() {
            let write = &mut self.known[at];
            let covered = write.mask & unexplained;
            if write.may_pass && covered != 0 {
                if !matches(&seen, covered, write.stamp) {
                    self.known.remove(at);
                    continue;
                }
                (write.may_pass, write.stamp) = (false, EMPTY);
            }
            unexplained &= !covered;
        }
    }

    /// Applies a crash that left exactly the LSNs up to `accepted`.
    pub fn crash(&mut self, accepted: u64) {
        self.readers = 0;
        let mut undecided = Vec::new();
        for write in std::mem::take(&mut self.known) {
            if write.last <= accepted {
                self.known.push(write);
            } else if write.first <= accepted {
                undecided.push(write);
            }
        }
        self.open.retain(|write| write.above < accepted);
        self.open.append(&mut undecided);
        if self.open.is_empty() {
            self.fold(accepted);
        }
    }

    /// Applies a start with scarce map pages: it dropped pages of zeroes (seed 31000010), so a
    /// block of zeroes may be a hole now.
    pub fn may_become_hole(&mut self) {
        // (Zeroes in a part of a hole are a block of zeroes, too: seed 37000270.)
        if self.base.iter().all(|stamp| is_empty(*stamp)) {
            self.base = [EMPTY; SECTORS];
        }
        self.known
            .iter_mut()
            .filter(|write| write.stamp == ZERO)
            .for_each(|write| write.stamp = EMPTY);
    }

    /// After a crash: the content that was read is the base from now on. A block of zeroes may be a
    /// hole or not.
    pub fn settle(&mut self, observed: &Stamps) {
        let only_zeroes = observed.iter().all(|stamp| is_empty(*stamp));
        self.base = if only_zeroes {
            [EMPTY; SECTORS]
        } else {
            *observed
        };
        self.known.clear();
        self.open.clear();
    }

    /// Applies the block status of a block of which it was unknown if it is a hole.
    pub fn settle_status(&mut self, state: ExtentState) {
        if self.base == [EMPTY; SECTORS] && self.open.is_empty() && self.known.is_empty() {
            self.base = if state == ExtentState::Hole {
                [HOLE; SECTORS]
            } else {
                [ZERO; SECTORS]
            };
        }
    }

    /// True if some legal history explains the observed sectors of `mask`. Known writes up to
    /// `required` have happened.
    pub fn explains(&self, observed: &Stamps, mask: u8, required: u64) -> bool {
        self.explains_seen(&observed.map(Seen::Stamp), mask, required)
    }

    /// True if some legal history explains this state of the whole block.
    pub fn explains_status(&self, state: ExtentState, required: u64) -> bool {
        let with_one = |one: Seen, others: Seen, mask_others: bool| {
            (0..SECTORS).any(|at| {
                let seen = std::array::from_fn(|sector| if sector == at { one } else { others });
                self.explains_seen(&seen, if mask_others { FULL } else { 1 << at }, required)
            })
        };
        match state {
            ExtentState::Hole => self.explains_seen(&[Seen::Hole; SECTORS], FULL, required),
            // A write of zeroes into a part of a hole makes it a block of zeroes.
            ExtentState::Zero => with_one(Seen::Zero, Seen::Empty, true),
            ExtentState::Data => with_one(Seen::Data, Seen::Data, false),
        }
    }

    fn explains_seen(&self, observed: &[Seen; SECTORS], mask: u8, required: u64) -> bool {
        let certain = self.known.partition_point(|write| write.last <= required);
        (certain..=self.known.len())
            .rev()
            .any(|cut| self.explained_by(&self.known[..cut], observed, mask))
    }

    fn explained_by(&self, known: &[BlockWrite], observed: &[Seen; SECTORS], mask: u8) -> bool {
        let mut unexplained = mask;
        let mut used = 0u64;
        for write in known.iter().rev() {
            self.take_open(observed, &mut unexplained, &mut used);
            let covered = write.mask & unexplained;
            if !matches(observed, covered, write.stamp) {
                if write.may_pass {
                    continue;
                }
                return false;
            }
            unexplained &= !covered;
            if unexplained == 0 {
                return true;
            }
        }
        self.take_open(observed, &mut unexplained, &mut used);
        (0..SECTORS).all(|sector| {
            unexplained >> sector & 1 == 0 || observed[sector].fits(self.base[sector])
        })
    }

    fn take_open(&self, observed: &[Seen; SECTORS], unexplained: &mut u8, used: &mut u64) {
        let mut changed = !self.open.is_empty();
        while changed && *unexplained != 0 {
            changed = false;
            for (index, write) in self.open.iter().enumerate() {
                let covered = write.mask & *unexplained;
                let bit = 1u64 << (index % 64);
                if covered != 0 && *used & bit == 0 && matches(observed, covered, write.stamp) {
                    *unexplained &= !covered;
                    *used |= bit;
                    changed = true;
                }
            }
        }
    }

    /// Content if nothing is open.
    pub fn newest_content(&self) -> Stamps {
        let mut content = self.base;
        self.known
            .iter()
            .for_each(|write| overlay(&mut content, write));
        content
    }

    /// True if the newest content is neither all zeroes nor all ones.
    pub fn has_data(&self) -> bool {
        let content = self.newest_content();
        !content.iter().all(|stamp| is_empty(*stamp)) && content != [ONES; SECTORS]
    }

    /// Describes the legal contents.
    pub fn describe(&self) -> String {
        let list = |writes: &[BlockWrite]| -> Vec<String> {
            writes
                .iter()
                .map(|w| {
                    format!(
                        "request {} stamp {} sectors {:08b} orders {}..{} (above {}){}",
                        w.request.0,
                        w.stamp,
                        w.mask,
                        w.first,
                        w.last,
                        w.above,
                        if w.may_pass { " or nothing" } else { "" }
                    )
                })
                .collect()
        };
        format!(
            "base {:?}, known [{}], open [{}]",
            self.base,
            list(&self.known).join("; "),
            list(&self.open).join("; ")
        )
    }
}

fn matches(observed: &[Seen; SECTORS], mask: u8, stamp: u64) -> bool {
    (0..SECTORS).all(|sector| mask >> sector & 1 == 0 || observed[sector].fits(stamp))
}

fn overlay(base: &mut Stamps, write: &BlockWrite) {
    for (sector, stamp) in base.iter_mut().enumerate() {
        if write.mask >> sector & 1 == 1 {
            *stamp = write.stamp;
        }
    }
}

#[cfg(test)]
mod tests;

//! Written, acknowledged and flushed versions: the reference against which a volume is verified
//! after a crash.
//!
//! Every write of a block contains the next version of that block, and all of its 4096 bytes follow
//! from (block, version). After a crash a block must hold a version `v` with
//! `flushed <= v <= issued`: not older than a completed flush covered, not newer than was sent, and
//! never anything else. A flush covers the writes acknowledged before it was sent.

use windrow_load::random::Random;

/// Bytes of a block.
pub const BLOCK: usize = 4096;
const MAGIC: u64 = u64::from_le_bytes(*b"windrowD");

/// Fills a block with its stamp and with bytes that follow from it.
pub fn stamp(block: u64, version: u32, bytes: &mut [u8]) {
    Random::new(block << 32 | u64::from(version)).fill(bytes);
    bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[8..16].copy_from_slice(&block.to_le_bytes());
    bytes[16..20].copy_from_slice(&version.to_le_bytes());
}

/// The version of the bytes, if they are exactly one that was written to this block; 0 for zeroes.
pub fn version_of(block: u64, bytes: &[u8]) -> Option<u32> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Some(0);
    }
    let version = u32::from_le_bytes(std::array::from_fn(|at| bytes[16 + at]));
    let mut expected = [0; BLOCK];
    stamp(block, version, &mut expected);
    (version > 0 && bytes == expected).then_some(version)
}

/// The ledger.
pub struct Ledger {
    issued: Vec<u32>,
    acknowledged: Vec<u32>,
    flushed: Vec<u32>,
    busy: Vec<bool>,
    /// Acknowledged since the last flush was sent.
    fresh: Vec<u32>,
    /// Writes that the flush in flight will cover.
    covered: Option<Vec<(u32, u32)>>,
}

/// Result of the verification.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Verdict {
    /// Blocks read.
    pub blocks: u64,
    /// Blocks with a flushed version.
    pub promised: u64,
    /// Blocks with a newer version than the flushed one.
    pub newer: u64,
    /// Blocks with an older version than the flushed one: lost.
    pub lost: u64,
    /// Blocks with bytes that were never written there.
    pub wrong: u64,
}

impl Verdict {
    /// True if no flushed block is lost and none is wrong.
    pub fn is_good(&self) -> bool {
        self.lost == 0 && self.wrong == 0
    }
}

impl Ledger {
    /// For an empty volume of `blocks` blocks.
    pub fn new(blocks: usize) -> Self {
        let zeroes = || vec![0; blocks];
        Self {
            issued: zeroes(),
            acknowledged: zeroes(),
            flushed: zeroes(),
            busy: vec![false; blocks],
            fresh: Vec::new(),
            covered: None,
        }
    }

    /// Number of blocks.
    pub fn blocks(&self) -> u64 {
        self.issued.len() as u64
    }

    /// Issues a write of a block: its next version, or `None` while another write to it is in
    /// flight.
    pub fn issue(&mut self, block: u64) -> Option<u32> {
        let at = block as usize;
        if std::mem::replace(&mut self.busy[at], true) {
            return None;
        }
        self.issued[at] += 1;
        Some(self.issued[at])
    }

    /// Records that the write to this block was acknowledged.
    pub fn acknowledge(&mut self, block: u64) {
        let at = block as usize;
        self.busy[at] = false;
        self.acknowledged[at] = self.issued[at];
        self.fresh.push(at as u32);
    }

    /// Records that a flush is sent. One at a time.
    pub fn begin_flush(&mut self) {
        debug_assert!(self.covered.is_none());
        self.covered = Some(
            self.fresh
                .drain(..)
                .map(|at| (at, self.acknowledged[at as usize]))
                .collect(),
        );
    }

    /// Records that the flush was answered.
    pub fn end_flush(&mut self) {
        for (at, version) in self.covered.take().unwrap_or_default() {
            let flushed = &mut self.flushed[at as usize];
            *flushed = (*flushed).max(version);
        }
    }

    /// Judges the content of a block.
    pub fn judge(&self, block: u64, bytes: &[u8], verdict: &mut Verdict) {
        let (flushed, issued) = (self.flushed[block as usize], self.issued[block as usize]);
        verdict.blocks += 1;
        verdict.promised += u64::from(flushed > 0);
        match version_of(block, bytes) {
            Some(version) if version < flushed => verdict.lost += 1,
            Some(version) if version <= issued => verdict.newer += u64::from(version > flushed),
            _ => verdict.wrong += 1,
        }
    }
}

#[cfg(test)]
mod tests;

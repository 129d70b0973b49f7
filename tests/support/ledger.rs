//! Sent, acknowledged and durable operations: the reference against which a volume is judged after
//! a crash.
//!
//! 1. Each operation on each block gets a number, in the order of sending over one connection,
//!    which is the order of admission. A written block contains its number; all its other bytes
//!    follow from (block, number). A trim has one number for all its blocks.
//! 2. When a flush is sent, the highest acknowledged number is noted; its answer promises
//!    everything up to there. A forced write promises itself and the operations acknowledged before
//!    it was sent.
//! 3. After a crash there must be a recovery point, not below the promised number, such that every
//!    block holds exactly the effect of the operations up to it: nothing lost, nothing torn, and no
//!    later operation without all the earlier ones.

use super::Random;

/// Bytes of a block.
pub const BLOCK: usize = 4096;

/// One operation on one block.
#[derive(Clone, Copy)]
struct Step {
    number: u64,
    is_zero: bool,
}

/// The ledger.
pub struct Ledger {
    /// By block: its content at the last judgement, then the operations since, in order.
    blocks: Vec<Vec<Step>>,
    /// Number of the last operation sent.
    sent: u64,
    /// Highest number of an acknowledged operation.
    acknowledged: u64,
    /// Everything up to this number must be there.
    promised: u64,
    /// First number since the last judgement.
    first: u64,
}

/// Result of a judgement.
pub struct Verdict {
    /// Operations in effect, since the last judgement.
    pub kept: u64,
    /// Operations that had to be in effect.
    pub promised: u64,
}

/// Fills a block with the content of this operation.
fn stamp(block: u64, number: u64, bytes: &mut [u8]) {
    Random(block << 40 ^ number).fill(bytes);
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[8..16].copy_from_slice(&block.to_le_bytes());
}

impl Ledger {
    /// For an empty volume.
    pub fn new(size_bytes: u64) -> Self {
        let blocks = vec![
            vec![Step {
                number: 0,
                is_zero: true
            }];
            size_bytes as usize / BLOCK
        ];
        Self {
            blocks,
            sent: 0,
            acknowledged: 0,
            promised: 0,
            first: 0,
        }
    }

    pub fn blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Records that a write of `count` blocks is sent; returns its bytes, and the number of its
    /// last block.
    pub fn write(&mut self, block: u64, count: u64) -> (Vec<u8>, u64) {
        let mut bytes = vec![0; count as usize * BLOCK];
        let first = self.sent + 1;
        self.wrote(block, count);
        for (at, part) in bytes.chunks_exact_mut(BLOCK).enumerate() {
            stamp(block + at as u64, first + at as u64, part);
        }
        (bytes, self.sent)
    }

    /// Records a write without its bytes: for a ledger that is rebuilt from notes.
    pub fn wrote(&mut self, block: u64, count: u64) {
        for at in block..block + count {
            self.sent += 1;
            self.blocks[at as usize].push(Step {
                number: self.sent,
                is_zero: false,
            });
        }
    }

    /// Records that a trim of `count` blocks is sent; returns its number.
    pub fn trim(&mut self, block: u64, count: u64) -> u64 {
        self.sent += 1;
        for at in block..block + count {
            self.blocks[at as usize].push(Step {
                number: self.sent,
                is_zero: true,
            });
        }
        self.sent
    }

    /// Records that the operation with this number was answered.
    pub fn acknowledge(&mut self, number: u64) {
        self.acknowledged = self.acknowledged.max(number);
    }

    /// Number that a flush sent now must cover.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Records that a flush which covers this number was answered.
    pub fn promise(&mut self, number: u64) {
        self.promised = self.promised.max(number);
    }

    /// Judges the whole volume, and continues from its content.
    pub fn judge(&mut self, content: &[u8]) -> Result<Verdict, String> {
        let span = (self.sent - self.first + 1) as usize;
        // By candidate for the recovery point: number of blocks that agree with it, as differences.
        let mut agree = vec![0i64; span + 1];
        let mut held = Vec::with_capacity(self.blocks.len());
        for (block, bytes) in content.chunks_exact(BLOCK).enumerate() {
            held.push(self.agree(block, bytes, &mut agree)?);
        }
        let mut running = 0;
        let counts = agree[..span].iter().map(|difference| {
            running += difference;
            running
        });
        let wanted = self.blocks.len() as i64;
        let newest = counts
            .enumerate()
            .filter(|(_, count)| *count == wanted)
            .map(|(at, _)| self.first + at as u64)
            .max();
        let Some(newest) = newest else {
            return Err(self.explain(&held));
        };
        if newest < self.promised {
            return Err(format!(
                "lost: operations are there up to {newest}, promised were all up to {}",
                self.promised
            ));
        }
        let verdict = Verdict {
            kept: newest - self.first,
            promised: self.promised.saturating_sub(self.first),
        };
        for (steps, step) in self.blocks.iter_mut().zip(held) {
            *steps = vec![step];
        }
        (self.first, self.acknowledged, self.promised) = (self.sent, self.sent, self.sent);
        Ok(verdict)
    }

    /// Content at the last judgement: the last number of all, then (number, zero) of each block.
    pub fn held(&self) -> (u64, impl Iterator<Item = (u64, bool)>) {
        let last = self.blocks.iter().filter_map(|steps| steps.first());
        (self.sent, last.map(|step| (step.number, step.is_zero)))
    }

    /// Continues from the result of [`Self::held`].
    pub fn resume(&mut self, sent: u64, held: impl Iterator<Item = (u64, bool)>) {
        for (steps, (number, is_zero)) in self.blocks.iter_mut().zip(held) {
            *steps = vec![Step { number, is_zero }];
        }
        (self.first, self.sent, self.acknowledged, self.promised) = (sent, sent, sent, sent);
    }

    /// Marks the candidates that this block agrees with, and returns its content.
    fn agree(&self, block: usize, bytes: &[u8], agree: &mut [i64]) -> Result<Step, String> {
        let is_zero = bytes.iter().all(|byte| *byte == 0);
        let number = u64::from_le_bytes(std::array::from_fn(|at| bytes[at]));
        let steps = &self.blocks[block];
        let mut found = None;
        for (at, step) in steps.iter().enumerate() {
            if step.is_zero != is_zero || (!is_zero && step.number != number) {
                continue;
            }
            let from = step.number.max(self.first) - self.first;
            let until = steps.get(at + 1).map_or(self.sent + 1, |next| next.number) - self.first;
            agree[from as usize] += 1;
            agree[until as usize] -= 1;
            found = Some(*step);
        }
        let step = found.ok_or_else(|| format!("wrong: block {block} holds what was never to be there (number {number}, zero: {is_zero})"))?;
        if !is_zero {
            let mut expected = [0; BLOCK];
            stamp(block as u64, number, &mut expected);
            if bytes != expected {
                return Err(format!(
                    "wrong: block {block} holds only a part of operation {number}"
                ));
            }
        }
        Ok(step)
    }

    /// Explains why no recovery point fits: a block has a newer operation while another one misses
    /// an older one.
    fn explain(&self, held: &[Step]) -> String {
        let newest = held.iter().enumerate().max_by_key(|(_, step)| step.number);
        let missed = held.iter().enumerate().filter_map(|(block, step)| {
            let next = self.blocks[block]
                .iter()
                .find(|other| other.number > step.number)?;
            Some((next.number, block))
        });
        let promise = self.promised;
        format!(
            "no prefix: newest operation held (block, number) {:?}, oldest one missed (number, block) {:?}, promised up to {promise}",
            newest.map(|(block, step)| (block, step.number)),
            missed.min()
        )
    }
}

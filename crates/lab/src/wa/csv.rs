//! Reader of normalised traces: one request a line, `op,offset_bytes,length_bytes,timestamp_us`, op being R, W or T (trim). Reads are
//! skipped; writes count every block that they touch, trims only those that they cover. Blocks are numbered in the order in which they appear, so that
//! sparse volumes take no room.

use super::operation::Operation;
use rustc_hash::FxHashMap;

const BLOCK: u64 = 4096;

/// A trace, made dense.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Trace {
    /// Blocks that appear in it.
    pub blocks: u32,
    /// Its writes and trims.
    pub operations: Vec<Operation>,
}

impl Trace {
    /// Reads a trace; trims are left out unless they are wanted.
    ///
    /// # Errors
    /// Names the first line that cannot be understood.
    pub fn parse(text: &str, trims: bool) -> Result<Self, String> {
        let mut numbers: FxHashMap<u64, u32> = FxHashMap::default();
        let mut trace = Self::default();
        for (at, line) in text.lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            let (op, offset, length) = request(line).ok_or_else(|| format!("line {}: '{line}' is not op,offset,length,time", at + 1))?;
            let end = offset.checked_add(length).ok_or_else(|| format!("line {}: beyond 2^64", at + 1))?;
            match op {
                _ if length == 0 => {}
                'W' => {
                    for block in offset / BLOCK..end.div_ceil(BLOCK) {
                        let next = numbers.len() as u32;
                        let number = *numbers.entry(block).or_insert(next);
                        trace.push(number, true);
                    }
                }
                'T' if trims => {
                    for block in offset.div_ceil(BLOCK)..end / BLOCK {
                        if let Some(number) = numbers.get(&block) {
                            trace.push(*number, false);
                        }
                    }
                }
                _ => {}
            }
        }
        trace.blocks = numbers.len() as u32;
        Ok(trace)
    }

    /// Appends a block, to the last operation if it goes on there.
    fn push(&mut self, number: u32, write: bool) {
        match (self.operations.last_mut(), write) {
            (Some(Operation::Write { block, count }), true) | (Some(Operation::Trim { block, count }), false) if *block + *count == number => *count += 1,
            (_, true) => self.operations.push(Operation::write(number)),
            (_, false) => self.operations.push(Operation::Trim { block: number, count: 1 }),
        }
    }

    /// Blocks written.
    pub fn written(&self) -> u64 {
        let blocks = |operation: &Operation| if let Operation::Write { count, .. } = operation { u64::from(*count) } else { 0 };
        self.operations.iter().map(blocks).sum()
    }
}

fn request(line: &str) -> Option<(char, u64, u64)> {
    let mut fields = line.split(',').map(str::trim);
    let op = fields.next()?.chars().next().filter(|op| "RWT".contains(*op))?;
    Some((op, fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests;

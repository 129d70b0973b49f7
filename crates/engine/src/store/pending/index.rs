//! Index from blocks to pending records: a table of chains, sized for the records in use and not
//! for the capacity.
//!
//! The memory is allocated at the start, but only the first `buckets` are in use. They are doubled
//! when there are more records than buckets, and halved when there is one for eight. So the part
//! touched at random is about as large as the records themselves, and stays in the cache with them.
//! Splitting or merging chains takes time proportional to the buckets in use. At least that order
//! of records has come or gone since the last resize. The links are in the records.

use super::BlockKey;

/// No record.
pub(super) const NONE: u32 = u32::MAX;
/// Minimum number of buckets in use.
const LEAST: usize = 1024;

/// Part of a record that the index uses.
pub(super) trait Link {
    /// Its block.
    fn key(&self) -> BlockKey;
    /// Next record of its chain.
    fn next(&self) -> u32;
    /// Sets it.
    fn set_next(&mut self, next: u32);
}

/// First record of each chain.
#[derive(Debug)]
pub(super) struct Index {
    heads: Vec<u32>,
    buckets: usize,
    len: usize,
}

impl Default for Index {
    fn default() -> Self {
        Self::with_capacity(0)
    }
}

impl Index {
    /// An index for about `capacity` records; more make the chains longer.
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self {
            heads: vec![NONE; capacity.next_power_of_two().max(LEAST)],
            buckets: LEAST,
            len: 0,
        }
    }

    /// Number of records.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bucket by Fibonacci hashing: the product's bits from 40 on depend on the block as well as on
    /// the volume, which begins there.
    #[inline]
    fn bucket(&self, key: BlockKey) -> usize {
        (key.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize & (self.buckets - 1)
    }

    /// The record of a block.
    #[inline]
    pub(super) fn find<R: Link>(&self, records: &[R], key: BlockKey) -> Option<u32> {
        let mut at = self.heads[self.bucket(key)];
        while at != NONE {
            let record = &records[at as usize];
            if record.key() == key {
                return Some(at);
            }
            at = record.next();
        }
        None
    }

    /// Inserts a record; its block has none yet.
    #[inline]
    pub(super) fn insert<R: Link>(&mut self, records: &mut [R], at: u32) {
        let bucket = self.bucket(records[at as usize].key());
        records[at as usize].set_next(self.heads[bucket]);
        self.heads[bucket] = at;
        self.len += 1;
        if self.len > self.buckets && self.buckets < self.heads.len() {
            self.split(records);
        }
    }

    /// Removes a record, which must be present.
    #[inline]
    pub(super) fn remove<R: Link>(&mut self, records: &mut [R], at: u32) {
        let bucket = self.bucket(records[at as usize].key());
        let next = records[at as usize].next();
        if self.heads[bucket] == at {
            self.heads[bucket] = next;
        } else {
            let mut before = self.heads[bucket];
            while records[before as usize].next() != at {
                before = records[before as usize].next();
            }
            records[before as usize].set_next(next);
        }
        self.len -= 1;
        if self.len * 8 < self.buckets && self.buckets > LEAST {
            self.merge(records);
        }
    }

    /// Doubles the buckets: some records of each chain move to the bucket that is the old number of
    /// buckets after it.
    #[cold]
    fn split<R: Link>(&mut self, records: &mut [R]) {
        let before = self.buckets;
        self.buckets *= 2;
        for bucket in 0..before {
            let mut at = std::mem::replace(&mut self.heads[bucket], NONE);
            while at != NONE {
                let next = records[at as usize].next();
                let to = self.bucket(records[at as usize].key());
                records[at as usize].set_next(self.heads[to]);
                self.heads[to] = at;
                at = next;
            }
        }
    }

    /// Halves the buckets.
    #[cold]
    fn merge<R: Link>(&mut self, records: &mut [R]) {
        self.buckets /= 2;
        for bucket in 0..self.buckets {
            let mut at = std::mem::replace(&mut self.heads[bucket + self.buckets], NONE);
            while at != NONE {
                let next = records[at as usize].next();
                records[at as usize].set_next(self.heads[bucket]);
                self.heads[bucket] = at;
                at = next;
            }
        }
    }
}

#[cfg(test)]
mod tests;

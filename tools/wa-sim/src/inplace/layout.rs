//! Block locations of the array, and the reads and writes of an update: chunks, rows, P and Q,
//! stripe cache.

use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Stripe cache: rows and their cached columns.
#[derive(Clone, Debug, Default)]
struct Cache {
    rows: FxHashMap<u64, u32>,
    order: VecDeque<u64>,
}

impl Cache {
    fn known(&self, row: u64) -> u32 {
        self.rows.get(&row).copied().unwrap_or(0)
    }

    fn learn(&mut self, row: u64, columns: u32, most: usize) {
        if let Some(known) = self.rows.get_mut(&row) {
            *known |= columns;
            return;
        }
        self.rows.insert(row, columns);
        self.order.push_back(row);
        while self.order.len() > most {
            if let Some(oldest) = self.order.pop_front() {
                self.rows.remove(&oldest);
            }
        }
    }
}

/// Rows of one stripe in which the same columns are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Group {
    pub(super) stripe: u64,
    pub(super) row: u64,
    pub(super) rows: u64,
    pub(super) columns: u32,
}

/// The array.
#[derive(Clone, Debug)]
pub(super) struct Array {
    members: u64,
    /// Number of blocks in a chunk.
    chunk: u64,
    cache: Cache,
    cache_rows: usize,
}

impl Array {
    pub(super) fn new(members: u64, chunk: u64, cache_rows: usize) -> Self {
        Self {
            members,
            chunk,
            cache: Cache::default(),
            cache_rows,
        }
    }

    fn data_columns(&self) -> u64 {
        self.members - 2
    }

    /// Member of a column; P and Q are the last two.
    pub(super) fn member(&self, stripe: u64, column: u64) -> usize {
        let (members, data) = (self.members, self.data_columns());
        let p = members - 1 - stripe % members;
        let at = if column < data {
            p + 2 + column
        } else {
            p + column - data
        };
        (at % members) as usize
    }

    /// Member and member block of a block of the array.
    pub(super) fn place(&self, block: u64) -> (usize, u64) {
        let (stripe, inside) = (
            block / (self.chunk * self.data_columns()),
            block % (self.chunk * self.data_columns()),
        );
        (
            self.member(stripe, inside / self.chunk),
            stripe * self.chunk + inside % self.chunk,
        )
    }

    /// Row groups of a range of blocks of the array.
    pub(super) fn groups(&self, first: u64, count: u64) -> Vec<Group> {
        let mut groups = Vec::new();
        let stripe_blocks = self.chunk * self.data_columns();
        let (mut at, end) = (first, first + count);
        while at < end {
            let stripe = at / stripe_blocks;
            let (low, high) = (
                at % stripe_blocks,
                (end - stripe * stripe_blocks).min(stripe_blocks),
            );
            let mut marks = [0, low % self.chunk, (high - 1) % self.chunk + 1, self.chunk];
            marks.sort_unstable();
            for pair in marks.windows(2).filter(|pair| pair[0] < pair[1]) {
                let is_written =
                    |column: &u64| (low..high).contains(&(column * self.chunk + pair[0]));
                let columns = (0..self.data_columns())
                    .filter(is_written)
                    .fold(0u32, |mask, column| mask | 1 << column);
                if columns != 0 {
                    groups.push(Group {
                        stripe,
                        row: pair[0],
                        rows: pair[1] - pair[0],
                        columns,
                    });
                }
            }
            at = (stripe + 1) * stripe_blocks;
        }
        groups
    }

    /// Columns to read before a group can be written, and columns to write. All of them are cached
    /// afterwards.
    pub(super) fn plan(&mut self, group: &Group) -> (u32, u32) {
        let (all, parity) = (
            (1u32 << self.data_columns()) - 1,
            0b11 << self.data_columns(),
        );
        let rows = (group.row..group.row + group.rows).map(|row| group.stripe * self.chunk + row);
        let known = rows
            .clone()
            .fold(u32::MAX, |known, row| known & self.cache.known(row));
        let (modify, others) = (
            (group.columns | parity) & !known,
            all & !group.columns & !known,
        );
        let reads = if modify.count_ones() < others.count_ones() {
            modify
        } else {
            others
        };
        rows.for_each(|row| {
            self.cache
                .learn(row, reads | group.columns | parity, self.cache_rows)
        });
        (reads, group.columns | parity)
    }

    /// Member, first block and number of blocks of each of these columns of a group.
    pub(super) fn ranges(&self, group: &Group, columns: u32) -> Vec<(usize, u64, u64)> {
        let block = group.stripe * self.chunk + group.row;
        (0..self.members)
            .filter(|column| columns >> column & 1 == 1)
            .map(|column| (self.member(group.stripe, column), block, group.rows))
            .collect()
    }
}

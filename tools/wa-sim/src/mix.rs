//! The two workloads of the talk: block sizes of reads and writes, in parts as they were printed.
//! Some columns do not add up to 100 (110, 101, 102), so each column is scaled by its own sum.

use windrow_random::Rng;

/// Blocks of 4 KiB of each size, 4 KiB to 256 KiB.
pub const SIZES: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];

/// A workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mix {
    /// Its name.
    pub name: &'static str,
    /// Reads per 100 requests.
    pub read_percent: u64,
    /// Parts of each size among reads.
    pub reads: [u64; 7],
    /// Parts of each size among writes.
    pub writes: [u64; 7],
}

/// "Transaction WL", 50/50.
pub const TRANSACTION: Mix = Mix {
    name: "transaction",
    read_percent: 50,
    reads: [34, 26, 7, 7, 10, 12, 14],
    writes: [48, 12, 12, 6, 7, 12, 3],
};
/// "Data WL", 70/30.
pub const DATA: Mix = Mix {
    name: "data",
    read_percent: 70,
    reads: [9, 6, 3, 2, 30, 38, 13],
    writes: [14, 4, 2, 1, 27, 43, 11],
};

impl Mix {
    /// Draws a request: true for a read, and its number of blocks.
    pub fn draw(&self, rng: &mut Rng) -> (bool, u64) {
        let is_read = rng.below(100) < self.read_percent;
        (
            is_read,
            draw_size(if is_read { &self.reads } else { &self.writes }, rng),
        )
    }

    /// Draws the number of blocks of a write.
    pub fn draw_write(&self, rng: &mut Rng) -> u64 {
        draw_size(&self.writes, rng)
    }
}

fn draw_size(parts: &[u64; 7], rng: &mut Rng) -> u64 {
    let mut at = rng.below(parts.iter().sum());
    for (part, size) in parts.iter().zip(SIZES) {
        if at < *part {
            return size;
        }
        at -= part;
    }
    unreachable!("the draw is below the sum of the parts")
}

/// Mean blocks of a column.
pub fn mean_blocks(parts: &[u64; 7]) -> f64 {
    let sum: u64 = parts.iter().sum();
    parts
        .iter()
        .zip(SIZES)
        .map(|(part, size)| (part * size) as f64)
        .sum::<f64>()
        / sum as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_the_sums_of_the_source_and_means_by_hand() {
        let columns = [
            TRANSACTION.reads,
            TRANSACTION.writes,
            DATA.reads,
            DATA.writes,
        ];
        assert_eq!(
            columns.map(|column| column.iter().sum::<u64>()),
            [110, 100, 101, 102]
        );
        // Blocks of 4 KiB: 34 + 52 + 28 + 56 + 160 + 384 + 896 = 1610 of 110 and so on.
        let by_hand = [
            1610.0 / 110.0,
            856.0 / 100.0,
            2577.0 / 101.0,
            2550.0 / 102.0,
        ];
        columns.iter().zip(by_hand).for_each(|(column, mean)| {
            assert!(
                (mean_blocks(column) - mean).abs() < 1e-9,
                "{column:?} {mean}"
            )
        });
    }

    #[test]
    fn what_is_drawn_has_the_means_and_shares_of_the_table() {
        for mix in [TRANSACTION, DATA] {
            let (mut rng, mut reads, mut read_blocks, mut write_blocks) =
                (Rng::stream(1, "mix"), 0, 0, 0);
            const DRAWS: u64 = 200_000;
            for _ in 0..DRAWS {
                match mix.draw(&mut rng) {
                    (true, blocks) => (reads, read_blocks) = (reads + 1, read_blocks + blocks),
                    (false, blocks) => write_blocks += blocks,
                }
            }
            assert!((reads as f64 / DRAWS as f64 * 100.0 - mix.read_percent as f64).abs() < 0.5);
            assert!(
                (read_blocks as f64 / reads as f64 / mean_blocks(&mix.reads) - 1.0).abs() < 0.02
            );
            assert!(
                (write_blocks as f64 / (DRAWS - reads) as f64 / mean_blocks(&mix.writes) - 1.0)
                    .abs()
                    < 0.02
            );
        }
    }
}

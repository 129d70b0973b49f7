use super::*;

fn block(n: u64, random_bytes: usize) -> Vec<u8> {
    let mut x = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut block = vec![7; BLOCK_SIZE];
    block[..random_bytes].fill_with(|| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    });
    block
}

fn plan(dedup: bool, entries_max: usize) -> Plan {
    Plan {
        codecs: vec![Codec::Lz4, Codec::Zstd],
        dedup,
        entries_max,
    }
}

#[test]
fn fills_duplicates_and_compression_are_counted_separately() {
    let mut tally = Tally::new(plan(true, 1000));
    for _ in 0..3 {
        (0..10).for_each(|n| tally.add(&block(n, 1000)));
    }
    tally.add(&[0; 2 * BLOCK_SIZE]);
    tally.add(&[0xff; BLOCK_SIZE]);
    tally.add(&block(99, BLOCK_SIZE));
    assert_eq!(
        (tally.data_blocks, tally.zero_blocks, tally.ones_blocks),
        (31, 2, 1)
    );
    assert_eq!(
        tally.unique(),
        Sum {
            bytes: 11 * BLOCK_BYTES,
            margin_bytes: 0
        }
    );
    let each = Compressor::default()
        .compress_stored(Codec::Lz4, &block(0, 1000), &mut Vec::new())
        .unwrap() as u64;
    assert!(
        tally.stored(0).bytes.abs_diff(10 * each + BLOCK_BYTES) <= 160,
        "{:?}",
        tally.stored(0)
    );
    assert!(tally.stored(1).bytes < tally.stored(0).bytes + 320 && tally.is_exact());
    let mut alone = Tally::new(plan(false, 0));
    (0..3).for_each(|_| alone.add(&block(1, 1000)));
    assert_eq!(
        (alone.unique().bytes, alone.stored(0).bytes),
        (
            3 * BLOCK_BYTES,
            3 * Compressor::default()
                .compress_stored(Codec::Lz4, &block(1, 1000), &mut Vec::new())
                .unwrap() as u64
        )
    );
}

/// A file's last block is filled up with zeroes.
#[test]
fn the_end_of_a_file_is_a_block() {
    let mut tally = Tally::new(plan(true, 1000));
    tally.add(&block(1, 4000)[..4001]);
    tally.add(&[0; 5]);
    assert_eq!((tally.data_blocks, tally.zero_blocks), (1, 1));
}

/// Beyond the limit it is an estimate, and the truth lies within its margin; the sample is of
/// distinct blocks, so that copies do not weigh.
#[test]
fn beyond_the_bound_the_truth_is_within_the_margin() {
    let distinct = 20_000u64;
    let mut exact = Tally::new(plan(true, usize::MAX));
    let mut sampled = Tally::new(plan(true, 1000));
    for tally in [&mut exact, &mut sampled] {
        for n in 0..distinct {
            // Some have many copies, also long after the table was full.
            let copies = if n % 50 == 0 { 3 } else { 1 };
            (0..copies).for_each(|_| tally.add(&block(n, 200 + (n as usize * 37) % 3800)));
        }
        (0..2000).for_each(|n| tally.add(&block(n, 200 + (n as usize * 37) % 3800)));
    }
    assert!(exact.is_exact() && !sampled.is_exact() && sampled.known.len() <= 1000);
    assert_eq!(exact.unique().bytes, distinct * BLOCK_BYTES);
    for (truth, found) in [
        (exact.unique(), sampled.unique()),
        (exact.stored(0), sampled.stored(0)),
        (exact.stored(1), sampled.stored(1)),
    ] {
        let off = truth.bytes.abs_diff(found.bytes);
        assert!(
            off <= found.margin_bytes,
            "{off} of {truth:?} and {found:?}"
        );
        assert!(
            found.margin_bytes * 10 < found.bytes,
            "and the margin says something: {found:?}"
        );
    }
}

#[test]
fn a_ratio_of_extents_has_a_margin_that_shrinks() {
    let mut few = Ratio::default();
    (0..10).for_each(|n| few.note(100, 40 + n % 3 * 10));
    let mut many = Ratio::default();
    (0..1000).for_each(|n| many.note(100, 40 + n % 3 * 10));
    let (ratio, margin) = many.estimate(0.01);
    assert!((ratio - 0.5).abs() < 0.01 && margin < few.estimate(0.01).1 / 8.0);
    assert_eq!(many.estimate(1.0).1, 0.0, "all of it is no sample");
    assert!(Ratio::default().estimate(0.1) == (0.0, 0.0));
    let mut one = Ratio::default();
    one.note(100, 30);
    assert!(
        one.estimate(0.1).1 > 0.9,
        "one extent says nothing of others"
    );
}

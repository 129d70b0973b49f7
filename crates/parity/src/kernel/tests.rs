use super::*;
use crate::oracle;

/// A small generator, so that the tests are the same on every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| (self.next() >> 24) as u8).collect()
    }
}

/// Columns with different alignments inside their buffers.
struct Columns {
    buffers: Vec<(Vec<u8>, usize)>,
    length: usize,
}

impl Columns {
    fn random(random: &mut Random, count: usize, length: usize) -> Self {
        let buffers = (0..count)
            .map(|_| {
                let offset = random.below(65);
                (random.bytes(length + offset), offset)
            })
            .collect();
        Self { buffers, length }
    }

    fn slices(&self) -> Vec<&[u8]> {
        self.buffers
            .iter()
            .map(|(bytes, offset)| &bytes[*offset..*offset + self.length])
            .collect()
    }
}

/// Lengths around every group size, and some random ones.
fn lengths(random: &mut Random) -> Vec<usize> {
    let mut lengths = vec![
        0, 1, 7, 8, 15, 16, 31, 33, 63, 64, 65, 127, 511, 512, 513, 1023,
    ];
    lengths.extend((0..4).map(|_| random.below(1500)));
    lengths
}

#[test]
fn encoding_equals_oracle() {
    let mut random = Random(0x5eed);
    for count in 0..=62 {
        let all = lengths(&mut random);
        // All lengths for a few counts, two random ones for the rest: the loops do not depend on
        // both together.
        let chosen = if count < 9 || count == 62 {
            all
        } else {
            vec![all[random.below(16)], all[16 + random.below(4)]]
        };
        for length in chosen {
            let columns = Columns::random(&mut random, count, length);
            let data = columns.slices();
            let (mut p, mut q) = (vec![0; length], vec![0; length]);
            oracle::encode_pq(&data, &mut p, &mut q);
            for kernel in Kernel::available() {
                let offset = random.below(17);
                let (mut p_found, mut q_found) = (vec![0xa5; length + 64], vec![0xa5; length + 64]);
                kernel.encode_pq(
                    &data,
                    &mut p_found[offset..offset + length],
                    &mut q_found[offset..offset + length],
                );
                assert_eq!(
                    &p_found[offset..offset + length],
                    p,
                    "P, {}, {count} columns of {length}",
                    kernel.name()
                );
                assert_eq!(
                    &q_found[offset..offset + length],
                    q,
                    "Q, {}, {count} columns of {length}",
                    kernel.name()
                );
                for found in [&p_found, &q_found] {
                    assert!(
                        found[..offset]
                            .iter()
                            .chain(&found[offset + length..])
                            .all(|b| *b == 0xa5),
                        "written outside, {}",
                        kernel.name()
                    );
                }
                let mut p_alone = vec![0xa5; length];
                kernel.encode_p(&data, &mut p_alone);
                assert_eq!(
                    p_alone,
                    p,
                    "P alone, {}, {count} columns of {length}",
                    kernel.name()
                );
            }
        }
    }
}

#[test]
fn weighted_sums_equal_oracle() {
    let mut random = Random(0xfee1);
    for length in lengths(&mut random) {
        let count = random.below(12);
        let columns = Columns::random(&mut random, count, length);
        let data = columns.slices();
        let weights = [random.bytes(count), random.bytes(count)];
        let mut wanted = [vec![0; length], vec![0; length]];
        for (weights, out) in weights.iter().zip(&mut wanted) {
            oracle::weighted_sum(&data, weights, out);
        }
        for kernel in Kernel::available() {
            let (mut first, mut second) = (vec![1; length], vec![1; length]);
            kernel.weighted_sums(&data, [&weights[0], &weights[1]], [&mut first, &mut second]);
            assert_eq!(
                [&first, &second],
                [&wanted[0], &wanted[1]],
                "{}, {count} columns of {length}",
                kernel.name()
            );
            first.fill(2);
            kernel.weighted_sum(&data, &weights[0], &mut first);
            assert_eq!(
                first,
                wanted[0],
                "{}, {count} columns of {length}",
                kernel.name()
            );
        }
    }
}

#[test]
fn every_weight_times_every_byte() {
    let bytes: Vec<u8> = (0..=255).collect();
    for weight in 0..=255u8 {
        let wanted: Vec<u8> = bytes
            .iter()
            .map(|byte| crate::gf::multiply(*byte, weight))
            .collect();
        for kernel in Kernel::available() {
            let mut found = vec![0; 256];
            kernel.weighted_sum(&[&bytes], &[weight], &mut found);
            assert_eq!(found, wanted, "{}, weight {weight}", kernel.name());
        }
    }
}

#[test]
fn xor_into_adds() {
    let mut random = Random(77);
    for length in lengths(&mut random) {
        let (start, src) = (random.bytes(length), random.bytes(length));
        let wanted: Vec<u8> = start.iter().zip(&src).map(|(a, b)| a ^ b).collect();
        for kernel in Kernel::available() {
            let mut dst = start.clone();
            kernel.xor_into(&mut dst, &src);
            assert_eq!(dst, wanted, "{}, length {length}", kernel.name());
        }
    }
}

#[test]
fn known_values() {
    // Two columns computed by hand: P = a + b, Q = a + 2 b; 2 * 0x80 = 0x1d and 2 * 0x01 = 0x02.
    let (a, b) = ([0x01, 0x80, 0xff], [0x80, 0x01, 0x00]);
    let (mut p, mut q) = ([0; 3], [0; 3]);
    crate::encode_pq(&[&a, &b], &mut p, &mut q);
    assert_eq!((p, q), ([0x81, 0x81, 0xff], [0x1c, 0x82, 0xff]));
}

#[test]
fn best_is_the_last_available() {
    assert_eq!(Kernel::available().last(), Some(&Kernel::best()));
}

#[test]
#[should_panic(expected = "columns differ in length")]
fn unequal_lengths_are_refused() {
    crate::encode_pq(&[&[0; 64], &[0; 63]], &mut [0; 64], &mut [0; 64]);
}

use super::*;
use crate::oracle;

fn word(data_columns: usize, code: Parity, length: usize) -> Vec<Vec<u8>> {
    let mut state = 0x1234_5678_9abc_def1u64 ^ (data_columns as u64) << 40 ^ length as u64;
    let mut columns: Vec<Vec<u8>> = (0..data_columns)
        .map(|_| {
            (0..length)
                .map(|_| {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    (state >> 56) as u8
                })
                .collect()
        })
        .collect();
    let data: Vec<&[u8]> = columns.iter().map(Vec::as_slice).collect();
    let (mut p, mut q) = (vec![0; length], vec![0; length]);
    oracle::encode_pq(&data, &mut p, &mut q);
    columns.push(p);
    if code == Parity::PQ {
        columns.push(q);
    }
    columns
}

/// Loses `lost`, omits `absent`, reconstructs, and compares.
fn check(kernel: Kernel, code: Parity, word: &[Vec<u8>], lost: &[usize], absent: &[usize]) {
    let mut damaged = word.to_vec();
    for index in lost {
        damaged[*index].fill(0xee);
    }
    let mut columns: Vec<Column<'_>> = damaged
        .iter_mut()
        .enumerate()
        .map(|(index, bytes)| match index {
            _ if absent.contains(&index) => Column::Absent,
            _ if lost.contains(&index) => Column::Lost(bytes),
            _ => Column::Present(bytes),
        })
        .collect();
    let data_columns = word.len() - code.columns();
    assert_eq!(
        reconstruct_with(kernel, code, data_columns, &mut columns),
        Ok(())
    );
    assert!(
        damaged == word,
        "{}, {code:?}, {data_columns} data columns, lost {lost:?}, absent {absent:?}",
        kernel.name()
    );
}

#[test]
fn every_pair_is_rebuilt() {
    for data_columns in [1, 2, 3, 6, 11, 22] {
        let word = word(data_columns, Parity::PQ, 77);
        for kernel in Kernel::available() {
            for x in 0..word.len() {
                check(kernel, Parity::PQ, &word, &[x], &[]);
                for y in 0..word.len() {
                    if x < y {
                        check(kernel, Parity::PQ, &word, &[x, y], &[]);
                    }
                    if x != y {
                        check(kernel, Parity::PQ, &word, &[x], &[y]);
                    }
                }
            }
        }
    }
}

#[test]
fn every_pair_of_the_widest_word_is_rebuilt() {
    let word = word(62, Parity::PQ, 600);
    for x in 0..word.len() {
        for y in x + 1..word.len() {
            check(Kernel::best(), Parity::PQ, &word, &[x, y], &[]);
        }
    }
}

#[test]
fn every_single_loss_with_one_redundancy_column() {
    for data_columns in [1, 2, 5, 31, 63] {
        let word = word(data_columns, Parity::P, 130);
        for x in 0..word.len() {
            check(Kernel::best(), Parity::P, &word, &[x], &[]);
            check(Kernel::best(), Parity::P, &word, &[], &[x]);
        }
        check(Kernel::best(), Parity::P, &word, &[], &[]);
    }
}

#[test]
fn too_many_are_refused_and_nothing_is_written() {
    for (code, tolerance) in [(Parity::P, 1), (Parity::PQ, 2)] {
        let mut lost = vec![vec![7; 16]; tolerance];
        let present = vec![1; 16];
        let mut columns: Vec<Column<'_>> =
            lost.iter_mut().map(|bytes| Column::Lost(bytes)).collect();
        columns.push(Column::Absent);
        columns.push(Column::Present(&present));
        let data_columns = columns.len() - code.columns();
        let found = reconstruct(code, data_columns, &mut columns);
        assert_eq!(
            found,
            Err(TooManyErasures {
                missing: tolerance + 1,
                tolerance
            })
        );
        assert!(lost.iter().all(|bytes| bytes == &[7; 16]));
    }
}

#[test]
fn error_says_how_many() {
    let text = TooManyErasures {
        missing: 3,
        tolerance: 2,
    }
    .to_string();
    assert_eq!(text, "3 columns are missing, the code can do without 2");
}

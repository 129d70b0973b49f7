use super::*;

fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed * 2 + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// Columns of a few rows as a batch would have them.
fn columns(shape: &Shape, rows: usize) -> Vec<Buf> {
    let mut columns: Vec<Buf> = (0..shape.width).map(|_| Buf::unpooled(rows * BLOCK_SIZE)).collect();
    for (c, column) in columns.iter_mut().take(shape.data.into()).enumerate() {
        column.copy_from_slice(&noise(rows * BLOCK_SIZE, c as u64 + 1));
    }
    encode_redundancy(shape, &mut columns);
    columns
}

/// What a rebuild of column `wanted` gives when the blocks `wrong` (column, row) are silently wrong and the columns `missing` can not be read.
fn rebuilt(shape: Shape, wanted: usize, rows: usize, wrong: &[(usize, usize)], missing: &[usize]) -> Option<Payload> {
    let mut columns = columns(&shape, rows);
    let checksums = columns[wanted].chunks_exact(BLOCK_SIZE).map(windrow_reduce::checksum).collect();
    for (n, (column, row)) in wrong.iter().enumerate() {
        columns[*column][row * BLOCK_SIZE..][..BLOCK_SIZE].copy_from_slice(&noise(BLOCK_SIZE, 1000 + n as u64));
    }
    let own = (!missing.contains(&wanted)).then(|| Payload::copy_of(&columns[wanted]));
    let columns = columns.into_iter().enumerate().map(|(c, column)| (c != wanted && !missing.contains(&c)).then_some(column)).collect();
    let buffers = BufPool::new(1 << 20);
    let mut work = RebuildWork { fetch: 0, shape, column: Column(wanted as u8), columns, own, checksums, buffers, rebuilt: None };
    work.run();
    work.rebuilt
}

fn right(shape: Shape, wanted: usize, rows: usize) -> Option<Vec<u8>> {
    Some(columns(&shape, rows)[wanted].to_vec())
}

fn shape(code: Code, width: u8, data: u8) -> Shape {
    Shape { width, data, code, rows: 64, chunk_rows: 64 }
}

/// Only the first two of the copies were ever looked at.
#[test]
fn each_copy_is_tried() {
    for (copies, data) in [(3, 1), (4, 1), (3, 2), (4, 3)] {
        let shape = shape(Code::Copies, copies * data, data);
        for wanted in 0..usize::from(data) {
            let all: Vec<usize> = (0..usize::from(copies)).map(|n| wanted + n * usize::from(data)).collect();
            for good in &all {
                let wrong: Vec<(usize, usize)> = all.iter().filter(|c| *c != good).map(|c| (*c, 0)).collect();
                assert_eq!(rebuilt(shape, wanted, 1, &wrong, &[]).as_deref(), right(shape, wanted, 1).as_deref(), "{copies} copies, {good} is good");
            }
            let wrong: Vec<(usize, usize)> = all.iter().map(|c| (*c, 0)).collect();
            assert!(rebuilt(shape, wanted, 1, &wrong, &[]).is_none(), "nothing is left, and nothing is made up");
        }
    }
}

#[test]
fn with_p_and_q_any_two_columns_may_be_wrong() {
    let shape = shape(Code::PQ, 7, 5);
    for wanted in 0..5 {
        for other in 0..7 {
            let expected = right(shape, wanted, 1);
            assert_eq!(rebuilt(shape, wanted, 1, &[(wanted, 0), (other, 0)], &[]).as_deref(), expected.as_deref(), "{wanted} and {other} wrong");
            assert_eq!(rebuilt(shape, wanted, 1, &[(other, 0)], &[wanted]).as_deref(), expected.as_deref(), "{wanted} missing, {other} wrong");
            let third = (0..7).find(|c| *c != wanted && *c != other).unwrap_or(0);
            if other != wanted {
                assert!(rebuilt(shape, wanted, 1, &[(wanted, 0), (other, 0), (third, 0)], &[]).is_none(), "three wrong ones are too many");
                assert!(rebuilt(shape, wanted, 1, &[(other, 0), (third, 0)], &[wanted]).is_none());
            }
        }
    }
}

/// The columns that are wrong differ from row to row. The rows were rebuilt together, and no set of columns fitted all of them.
#[test]
fn each_row_has_its_own_wrong_columns() {
    let shape = shape(Code::PQ, 6, 4);
    // Row 0: this column and another one. Row 1: this column and a third. Row 2: it is right, but two others are wrong, as are three in row 3.
    let wrong = [(1, 0), (0, 0), (1, 1), (4, 1), (2, 2), (3, 2), (0, 3), (2, 3), (5, 3)];
    assert_eq!(rebuilt(shape, 1, 4, &wrong, &[]).as_deref(), right(shape, 1, 4).as_deref());
    let single = Shape { width: 5, code: Code::P, ..shape };
    assert_eq!(rebuilt(single, 1, 3, &[(1, 0), (2, 1), (3, 2)], &[]).as_deref(), right(single, 1, 3).as_deref());
    assert!(rebuilt(single, 1, 3, &[(1, 0), (2, 0)], &[]).is_none());
}

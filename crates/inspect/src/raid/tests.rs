use super::*;

fn columns(shape: &Shape) -> Vec<Vec<u8>> {
    let byte = |c: usize, i: usize| (c * 89 + i * 31 + i * i * 7) as u8 ^ 0x5c;
    let data: Vec<Vec<u8>> = (0..usize::from(shape.data))
        .map(|c| (0..64).map(|i| byte(c, i)).collect())
        .collect();
    let views: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let redundancy = redundancy(shape, &views);
    data.into_iter().chain(redundancy).collect()
}

fn shape(width: u8, data: u8, code: Code) -> Shape {
    Shape {
        width,
        data,
        code,
        rows: 8,
        chunk_rows: 8,
    }
}

#[test]
fn field_arithmetic_is_that_of_the_format() {
    assert_eq!(
        (multiply(0x80, 2), multiply(2, 0x80), multiply(0, 77)),
        (0x1d, 0x1d, 0)
    );
    assert!((1..=255u8).all(|a| multiply(a, inverse(a)) == 1));
    for x in 0..=255u8 {
        assert_eq!(
            double(u64::from_le_bytes([x; 8])),
            u64::from_le_bytes([multiply(x, 2); 8])
        );
    }
    let columns = columns(&shape(5, 3, Code::PQ));
    let q = (0..3).fold(0, |sum, c| sum ^ multiply(columns[c][5], power(c)));
    assert_eq!(columns[4][5], q);
}

#[test]
fn any_tolerated_loss_is_rebuilt_and_more_is_not() {
    let shapes = [
        shape(4, 3, Code::P),
        shape(6, 4, Code::PQ),
        shape(66 - 2, 62, Code::PQ),
        shape(6, 2, Code::Copies),
        shape(2, 2, Code::None),
        shape(3, 1, Code::PQ),
    ];
    for shape in shapes {
        let columns = columns(&shape);
        let width = columns.len();
        for target in 0..usize::from(shape.data) {
            for other in 0..width {
                let row: Vec<Option<&[u8]>> = (0..width)
                    .map(|c| (c != target && c != other).then_some(&columns[c][..]))
                    .collect();
                let lost = if other == target { 1 } else { 2 };
                let rebuilt = rebuild(&shape, &row, target);
                if lost <= shape.tolerance() {
                    assert_eq!(
                        rebuilt.as_ref(),
                        Some(&columns[target]),
                        "{shape:?} {target} {other}"
                    );
                } else if shape.code != Code::Copies && other < usize::from(shape.data) {
                    assert_eq!(rebuilt, None, "{shape:?} {target} {other}");
                }
            }
        }
    }
}

#[test]
fn an_unsuspected_wrong_column_is_found() {
    for shape in [shape(6, 4, Code::PQ), shape(3, 1, Code::Copies)] {
        let good = columns(&shape);
        for wrong in 1..good.len() {
            let mut columns = good.clone();
            columns[wrong][3] ^= 0x40;
            columns[0].fill(0);
            let row: Vec<Option<&[u8]>> = columns.iter().map(|c| Some(&c[..])).collect();
            assert_eq!(
                search(&shape, &row, 0, |bytes| bytes == good[0]),
                Some(good[0].clone()),
                "{wrong}"
            );
        }
    }
    let shape = shape(4, 3, Code::P);
    let mut columns = columns(&shape);
    let good = columns[0].clone();
    columns[1][0] ^= 1;
    let row: Vec<Option<&[u8]>> = columns.iter().map(|c| Some(&c[..])).collect();
    assert_eq!(search(&shape, &row, 0, |bytes| bytes == good), None);
}

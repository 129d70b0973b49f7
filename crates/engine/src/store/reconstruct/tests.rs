use super::*;

fn shape(code: Code, width: u8, data: u8) -> Shape {
    Shape {
        width,
        data,
        code,
        rows: 64,
        chunk_rows: 64,
    }
}

/// Blocks of one byte: a code does not care.
fn row(shape: &Shape, content: u8) -> Vec<Vec<u8>> {
    let mut columns: Vec<windrow_io::Buf> = (0..shape.width)
        .map(|_| windrow_io::Buf::unpooled(16))
        .collect();
    columns
        .iter_mut()
        .take(shape.data.into())
        .enumerate()
        .for_each(|(c, column)| column.fill(content.wrapping_mul(c as u8 * 2 + 3)));
    crate::store::jobs::encode_redundancy(shape, &mut columns);
    columns.iter().map(|c| c.to_vec()).collect()
}

/// Whatever columns are wrong, if they are no more than the code corrects, one hypothesis gives all
/// data columns as they were.
#[test]
fn one_hypothesis_fits_every_set_within_the_tolerance() {
    for shape in [
        shape(Code::P, 4, 3),
        shape(Code::PQ, 6, 4),
        shape(Code::Copies, 3, 1),
        shape(Code::Copies, 4, 1),
    ] {
        let right = row(&shape, 7);
        for set in 0u32..1 << shape.width {
            let is_in = |c: usize| set >> c & 1 == 1;
            let fits = |missing: bool| {
                let read: Vec<Vec<u8>> = right
                    .iter()
                    .enumerate()
                    .map(|(c, b)| {
                        b.iter()
                            .map(|b| if is_in(c) { b ^ (0x11 + c as u8) } else { *b })
                            .collect()
                    })
                    .collect();
                let read: Vec<Option<&[u8]>> = read
                    .iter()
                    .enumerate()
                    .map(|(c, b)| (!missing || !is_in(c)).then_some(&b[..]))
                    .collect();
                let mut out = [0; 16];
                hypotheses(&shape).any(|h| {
                    (0..usize::from(shape.data))
                        .all(|c| suppose(&shape, c, &read, h, &mut out) && out[..] == right[c])
                })
            };
            let within = set.count_ones() as usize <= shape.tolerance();
            assert!(
                !within || (fits(false) && fits(true)),
                "{shape:?} set {set:b}"
            );
            assert!(
                within || !fits(true),
                "{shape:?} set {set:b} is unrecoverable"
            );
        }
    }
}

#[test]
fn there_are_no_hypotheses_without_redundancy() {
    assert_eq!(hypotheses(&shape(Code::None, 4, 4)).count(), 0);
    assert_eq!(hypotheses(&shape(Code::PQ, 64, 62)).count(), 2081);
}

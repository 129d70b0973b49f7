use super::*;

fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed * 2 + 1;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// Columns of a few rows, as in a batch.
fn columns(shape: &Shape, rows: usize) -> Vec<Buf> {
    let mut columns: Vec<Buf> = (0..shape.width)
        .map(|_| Buf::unpooled(rows * BLOCK_SIZE))
        .collect();
    for (c, column) in columns.iter_mut().take(shape.data.into()).enumerate() {
        column.copy_from_slice(&noise(rows * BLOCK_SIZE, c as u64 + 1));
    }
    encode_redundancy(shape, &mut columns);
    columns
}

/// Reconstruction of column `wanted` when the blocks `wrong` (column, row) are silently wrong and
/// the columns `missing` are unreadable.
fn rebuilt(
    shape: Shape,
    wanted: usize,
    rows: usize,
    wrong: &[(usize, usize)],
    missing: &[usize],
) -> Option<Payload> {
    let mut columns = columns(&shape, rows);
    let pieces = (0..)
        .zip(columns[wanted].chunks_exact(BLOCK_SIZE))
        .map(|(row, block)| Piece::row(row, windrow_reduction::checksum(block)))
        .collect();
    for (n, (column, row)) in wrong.iter().enumerate() {
        columns[*column][row * BLOCK_SIZE..][..BLOCK_SIZE]
            .copy_from_slice(&noise(BLOCK_SIZE, 1000 + n as u64));
    }
    let own = (!missing.contains(&wanted)).then(|| Payload::copy_of(&columns[wanted]));
    let columns = columns
        .into_iter()
        .enumerate()
        .map(|(c, column)| (c != wanted && !missing.contains(&c)).then_some(column))
        .collect();
    let buffers = BufPool::new(1 << 20);
    let mut work = RebuildWork {
        fetch: 0,
        shape,
        column: Column(wanted as u8),
        columns,
        own,
        lost: Vec::new(),
        rows: rows as u32,
        pieces,
        buffers,
        rebuilt: None,
    };
    work.run();
    work.rebuilt
}

fn right(shape: Shape, wanted: usize, rows: usize) -> Option<Vec<u8>> {
    Some(columns(&shape, rows)[wanted].to_vec())
}

fn shape(code: Code, width: u8, data: u8) -> Shape {
    Shape {
        width,
        data,
        code,
        rows: 64,
        chunk_rows: 64,
    }
}

/// Only the first two copies were ever tried.
#[test]
fn each_copy_is_tried() {
    for (copies, data) in [(3, 1), (4, 1), (3, 2), (4, 3)] {
        let shape = shape(Code::Copies, copies * data, data);
        for wanted in 0..usize::from(data) {
            let all: Vec<usize> = (0..usize::from(copies))
                .map(|n| wanted + n * usize::from(data))
                .collect();
            for good in &all {
                let wrong: Vec<(usize, usize)> =
                    all.iter().filter(|c| *c != good).map(|c| (*c, 0)).collect();
                assert_eq!(
                    rebuilt(shape, wanted, 1, &wrong, &[]).as_deref(),
                    right(shape, wanted, 1).as_deref(),
                    "{copies} copies, {good} is good"
                );
            }
            let wrong: Vec<(usize, usize)> = all.iter().map(|c| (*c, 0)).collect();
            assert!(
                rebuilt(shape, wanted, 1, &wrong, &[]).is_none(),
                "nothing is left, and nothing is made up"
            );
        }
    }
}

#[test]
fn with_p_and_q_any_two_columns_may_be_wrong() {
    let shape = shape(Code::PQ, 7, 5);
    for wanted in 0..5 {
        for other in 0..7 {
            let expected = right(shape, wanted, 1);
            assert_eq!(
                rebuilt(shape, wanted, 1, &[(wanted, 0), (other, 0)], &[]).as_deref(),
                expected.as_deref(),
                "{wanted} and {other} wrong"
            );
            assert_eq!(
                rebuilt(shape, wanted, 1, &[(other, 0)], &[wanted]).as_deref(),
                expected.as_deref(),
                "{wanted} missing, {other} wrong"
            );
            let third = (0..7).find(|c| *c != wanted && *c != other).unwrap_or(0);
            if other != wanted {
                assert!(
                    rebuilt(
                        shape,
                        wanted,
                        1,
                        &[(wanted, 0), (other, 0), (third, 0)],
                        &[]
                    )
                    .is_none(),
                    "three wrong ones are too many"
                );
                assert!(rebuilt(shape, wanted, 1, &[(other, 0), (third, 0)], &[wanted]).is_none());
            }
        }
    }
}

/// The wrong columns differ from row to row. The rows were reconstructed together, and no set of
/// columns fitted all of them.
#[test]
fn each_row_has_its_own_wrong_columns() {
    let shape = shape(Code::PQ, 6, 4);
    // Row 0: this column and another one. Row 1: this column and a third. Row 2: this column is
    // right, but two others are wrong, as are three in row 3.
    let wrong = [
        (1, 0),
        (0, 0),
        (1, 1),
        (4, 1),
        (2, 2),
        (3, 2),
        (0, 3),
        (2, 3),
        (5, 3),
    ];
    assert_eq!(
        rebuilt(shape, 1, 4, &wrong, &[]).as_deref(),
        right(shape, 1, 4).as_deref()
    );
    let single = Shape {
        width: 5,
        code: Code::P,
        ..shape
    };
    assert_eq!(
        rebuilt(single, 1, 3, &[(1, 0), (2, 1), (3, 2)], &[]).as_deref(),
        right(single, 1, 3).as_deref()
    );
    assert!(rebuilt(single, 1, 3, &[(1, 0), (2, 0)], &[]).is_none());
}

/// Reconstruction of compressed payload in two rows of column `wanted`, when the blocks `wrong`
/// (column, row) are silently wrong.
fn rebuilt_piece(shape: Shape, wanted: usize, wrong: &[(usize, usize)]) -> Option<bool> {
    let mut columns = columns(&shape, 2);
    let mut piece = Piece {
        at: 3000,
        length: 2000,
        checksum: 0,
    };
    let right = columns[wanted][piece.range()].to_vec();
    piece.checksum = windrow_reduction::checksum(&right);
    for (n, (column, row)) in wrong.iter().enumerate() {
        columns[*column][row * BLOCK_SIZE..][..BLOCK_SIZE]
            .copy_from_slice(&noise(BLOCK_SIZE, 1000 + n as u64));
    }
    let own = Some(Payload::copy_of(&columns[wanted]));
    let columns = columns
        .into_iter()
        .enumerate()
        .map(|(c, column)| (c != wanted).then_some(column))
        .collect();
    let buffers = BufPool::new(1 << 20);
    let mut work = RebuildWork {
        fetch: 0,
        shape,
        column: Column(wanted as u8),
        columns,
        own,
        lost: Vec::new(),
        rows: 2,
        pieces: vec![piece],
        buffers,
        rebuilt: None,
    };
    work.run();
    work.rebuilt.map(|bytes| bytes[piece.range()] == right)
}

/// Compressed payload over two rows has one checksum for both: the wrong columns in the one row say
/// nothing about the other.
#[test]
fn a_piece_in_two_rows_has_its_own_wrong_columns_in_each() {
    let single = shape(Code::P, 4, 3);
    for wrong in [
        vec![(1, 0)],
        vec![(1, 1)],
        vec![(1, 0), (1, 1)],
        vec![(1, 0), (2, 1)],
        vec![(0, 0), (1, 1)],
        vec![(3, 0), (1, 1)],
    ] {
        assert_eq!(rebuilt_piece(single, 1, &wrong), Some(true), "{wrong:?}");
    }
    assert_eq!(
        rebuilt_piece(single, 1, &[(1, 0), (2, 0)]),
        None,
        "beyond its redundancy, and nothing is made up"
    );
    let double = shape(Code::PQ, 6, 4);
    assert_eq!(
        rebuilt_piece(double, 1, &[(1, 0), (4, 0), (1, 1), (0, 1)]),
        Some(true)
    );
    assert_eq!(rebuilt_piece(double, 1, &[(1, 0), (4, 0), (0, 0)]), None);
    let copies = shape(Code::Copies, 3, 1);
    assert_eq!(
        rebuilt_piece(copies, 0, &[(0, 0), (1, 0), (2, 1), (0, 1)]),
        Some(true)
    );
}

/// For a piece in two rows, one row of another column was unreadable. It was taken for zeroes,
/// which is right only for padding. So a block was returned that the offline check, which assumes
/// nothing, rightly declares lost (seed 750028 beyond redundancy).
#[test]
fn an_unreadable_row_is_not_taken_for_padding() {
    let shape = shape(Code::P, 4, 3);
    let rebuilt = |lost: Vec<(u8, u8)>, own_is_right: bool| {
        let mut columns = columns(&shape, 2);
        columns[2].fill(0);
        encode_redundancy(&shape, &mut columns);
        let mut piece = Piece {
            at: 3000,
            length: 2000,
            checksum: 0,
        };
        piece.checksum = windrow_reduction::checksum(&columns[1][piece.range()]);
        if !own_is_right {
            columns[1][BLOCK_SIZE..].fill(1);
        }
        let own = Some(Payload::copy_of(&columns[1]));
        let columns = columns
            .into_iter()
            .enumerate()
            .map(|(c, column)| (c != 1).then_some(column))
            .collect();
        let (buffers, column) = (BufPool::new(1 << 20), Column(1));
        let mut work = RebuildWork {
            fetch: 0,
            shape,
            column,
            columns,
            own,
            lost,
            rows: 2,
            pieces: vec![piece],
            buffers,
            rebuilt: None,
        };
        work.run();
        work.rebuilt.is_some()
    };
    assert!(
        rebuilt(vec![], false),
        "one block of its second row is wrong: P corrects that"
    );
    assert!(
        rebuilt(vec![(2, 0)], false),
        "and it does not matter there what is lost of its first row"
    );
    assert!(
        !rebuilt(vec![(2, 1)], false),
        "with another one lost in that row it does not"
    );
    assert!(
        rebuilt(vec![(2, 0), (2, 1), (0, 1)], true),
        "what is right itself needs no others"
    );
    assert!(!rebuilt(vec![(1, 0), (0, 0)], true));
}

fn regular(length: usize, seed: u64) -> Vec<u8> {
    let mut block = noise(length, seed);
    block.resize(BLOCK_SIZE, 7);
    block
}

/// A batch with uncompressed and compressed payload decodes. Its blocks have the checksums of the
/// table, each payload is at its address, and every byte has a cause.
#[test]
fn a_batch_with_compressed_payload_matches_its_table() {
    let shape = Shape {
        width: 4,
        data: 3,
        code: Code::P,
        rows: 64,
        chunk_rows: 64,
    };
    let (mut table, mut payloads, mut compressor) = (
        TableWriter::new(),
        Vec::new(),
        windrow_reduction::Compressor::default(),
    );
    for i in 0..60u64 {
        let block = regular([4096, 100, 1500, 3000, 2222][i as usize % 5], i);
        let mut stored = Vec::new();
        let payload = if compressor
            .compress_stored(windrow_reduction::Codec::Lz4, &block, &mut stored)
            .is_some()
        {
            stored
        } else {
            block
        };
        let entry = batch::Entry::Data {
            volume: windrow_types::VolumeId(1),
            lba: windrow_types::Lba(i),
            birth: windrow_types::Lsn(i + 1),
        };
        table.push_stored(&entry, units_of(&payload));
        payloads.push(Payload::copy_of(&payload));
    }
    let plan = table.plan(&shape, 0).expect("room");
    let pool = windrow_types::PoolUuid::from_random([7; 16]);
    let header = BatchHeader {
        pool,
        epoch: windrow_types::Epoch(1),
        stream: windrow_types::StreamId(0),
        seq: BatchSeq(1),
        segment: windrow_types::SegmentId(0),
        row: 0,
        rows: plan.rows,
        shape,
        members: 0xf,
        next_segment: windrow_types::SegmentId(1),
        flushed_through: windrow_types::Lsn(0),
        flushed_seq: [BatchSeq(0); 8],
    };
    let (columns, checksums, written, buffers) =
        (Vec::new(), Vec::new(), Vec::new(), BufPool::new(1 << 20));
    // Buffers return with their old content.
    (0..4)
        .map(|_| buffers.get(plan.rows as usize * BLOCK_SIZE))
        .collect::<Vec<_>>()
        .iter_mut()
        .for_each(|buf| buf.fill(0xee));
    let mut work = SealWork {
        stream: 0,
        seq: BatchSeq(1),
        header,
        plan,
        table,
        payloads: payloads.clone(),
        index_pages: Vec::new(),
        cause: BlockCause::User,
        buffers,
        columns,
        checksums,
        written,
    };
    work.run();
    let space: Vec<u8> = work.columns[..3].iter().flat_map(|c| c.to_vec()).collect();
    let (head, tail) = (
        &space[..plan.head_blocks as usize * BLOCK_SIZE],
        &space[space.len() - BLOCK_SIZE..],
    );
    let decoded =
        batch::decode_batch(head, tail, &pool, windrow_types::SegmentId(0), 0).expect("it decodes");
    for (block, sum) in decoded.payload_blocks() {
        assert_eq!(
            windrow_reduction::checksum(&space[block as usize * BLOCK_SIZE..][..BLOCK_SIZE]),
            sum,
            "block {block}"
        );
    }
    for ((entry, payload), sum) in decoded.entries.iter().zip(&payloads).zip(&work.checksums) {
        let info = entry.payload.expect("payload");
        assert_eq!(
            &space[info.unit as usize * ADDRESS_UNIT..][..payload.len()],
            &payload[..]
        );
        assert_eq!((info.checksum, info.units), (*sum, units_of(payload)));
    }
    // Bytes that no payload covers are zero.
    let mut rest = space[plan.head_blocks as usize * BLOCK_SIZE..space.len() - BLOCK_SIZE].to_vec();
    for info in decoded.entries.iter().filter_map(|entry| entry.payload) {
        let at = info.unit as usize * ADDRESS_UNIT - plan.head_blocks as usize * BLOCK_SIZE;
        rest[at..at + usize::from(info.units) * ADDRESS_UNIT].fill(0);
    }
    assert!(rest.iter().all(|byte| *byte == 0));
    assert!(decoded.frame.compressed_blocks > 3 && decoded.frame.whole_blocks() >= 12);
    let user: u64 = work.written.iter().map(|w| w.user).sum();
    assert_eq!(
        user,
        payloads.iter().map(|p| p.len() as u64).sum::<u64>(),
        "compressed bytes are counted to the unit"
    );
    for written in &work.written[..3] {
        assert_eq!(
            written.user + written.padding + written.header,
            plan.rows as u64 * BLOCK_BYTES
        );
    }
}

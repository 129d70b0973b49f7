use super::*;
use crate::test_pool::*;
use windrow_geometry::Redundancy;
use windrow_types::Uuid;

fn pool() -> TestPool {
    let mut pool = TestPool::new(Redundancy::Double, 5);
    pool.create(1, "v", 100);
    pool.write(1, &[3, 4, 5]);
    pool.trim(1, 4, 1);
    pool
}

#[test]
fn a_batch_is_shown_with_its_entries_and_addresses() {
    let mut pool = pool();
    let (segment, row, rows) = pool.batches[1];
    let dump = dump_batch(&mut pool.io, segment, row).unwrap();
    assert!(dump.whole && dump.ends_verify && dump.redundancy_wrong_rows.is_empty());
    assert_eq!(
        (
            dump.frame.header.rows,
            dump.entries.len(),
            dump.columns.len()
        ),
        (rows, 3, 5)
    );
    for (i, entry) in dump.entries.iter().enumerate() {
        let payload = entry.payload.unwrap();
        assert_eq!(
            (payload.member, payload.found),
            (pool.address(1, 1 + i as u32).0, BlockFound::Good)
        );
    }
    let json = serde_json::to_value(&dump).unwrap();
    assert_eq!(json["entries"][0]["entry"]["data"]["lba"], 3);
}

#[test]
fn damage_shows_in_a_dump() {
    let mut pool = pool();
    let (segment, row, _) = pool.batches[1];
    pool.damage(1, 2);
    let dump = dump_batch(&mut pool.io, segment, row).unwrap();
    let found: Vec<BlockFound> = dump
        .entries
        .iter()
        .map(|e| e.payload.unwrap().found)
        .collect();
    assert_eq!(
        (found, dump.whole),
        (
            vec![BlockFound::Good, BlockFound::RebuiltWrong, BlockFound::Good],
            true
        )
    );
    let missing = pool.address(1, 1).0;
    let member = pool.io.members[missing.index()].take();
    let dump = dump_batch(&mut pool.io, segment, row).unwrap();
    assert_eq!(
        dump.entries[0].payload.unwrap().found,
        BlockFound::RebuiltAbsent
    );
    pool.io.members[missing.index()] = member;
    pool.lose_columns(1, 1..5);
    let dump = dump_batch(&mut pool.io, segment, row).unwrap();
    assert!(!dump.whole && !dump.ends_verify && dump.entries.is_empty());
}

#[test]
fn the_batches_of_a_segment_are_listed() {
    let mut pool = pool();
    let list = list_batches(&mut pool.io, pool.batches[0].0).unwrap();
    let found: Vec<(u32, u32)> = list.iter().map(|b| (b.row, b.rows)).collect();
    let expected: Vec<(u32, u32)> = pool
        .batches
        .iter()
        .map(|(_, row, rows)| (*row, *rows))
        .collect();
    assert_eq!(found, expected);
    assert_eq!(
        (
            list[1].entries,
            list[1].payload_blocks,
            list[1].overhead_blocks,
            list[1].seq
        ),
        (3, 3, 2, BatchSeq(2))
    );
    assert_eq!(list_batches(&mut pool.io, SegmentId(9)).unwrap(), vec![]);
}

#[test]
fn what_is_not_there_is_refused_with_the_reason() {
    let mut pool = pool();
    let segment = pool.batches[0].0;
    assert_eq!(
        dump_batch(&mut pool.io, SegmentId(99), 0),
        Err(DumpError::NoPlace {
            segment: SegmentId(99),
            row: 0
        })
    );
    assert_eq!(
        dump_batch(&mut pool.io, segment, 32),
        Err(DumpError::NoPlace { segment, row: 32 })
    );
    assert!(
        matches!(dump_batch(&mut pool.io, segment, 9), Err(DumpError::NoBatch { problem, .. }) if problem == "no batch header")
    );
    for member in &mut pool.io.members {
        member.as_mut().unwrap()[..1 << 20].fill(0);
    }
    assert_eq!(list_batches(&mut pool.io, segment), Err(DumpError::NoPool));
    assert_ne!(Uuid::default(), pool.superblock.pool);
}

#[test]
fn records_of_the_journal_are_listed_and_shown() {
    let mut pool = TestPool::journalled(Redundancy::Double, 5);
    pool.create(1, "v", 100);
    pool.sync(1, &[3, 4]);
    pool.turn();
    pool.sync(1, &[5]);
    let (chunk, at, _) = pool.sync(1, &[6]);
    let wrong = pool.damage_copy(chunk, 1, 600);
    (0..3).for_each(|copy| _ = pool.damage_copy(chunk, copy, at + 600));
    let list = list_records(&mut pool.io).unwrap();
    let found: Vec<_> = list
        .iter()
        .map(|r| {
            (
                r.header.seq.0,
                r.header.chunk,
                r.whole,
                r.payload_blocks,
                r.wrong.clone(),
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            (1, 0, true, 2, vec![]),
            (2, 1, true, 1, vec![wrong]),
            (3, 1, false, 0, vec![])
        ]
    );
    let dump = dump_chunk(&mut pool.io, false, 1).unwrap();
    assert_eq!(
        (
            dump.copies.len(),
            dump.records.len(),
            dump.records[0].entries.len(),
            dump.records[0].summary.copies
        ),
        (3, 2, 1, 3)
    );
    let json = serde_json::to_value(&dump).unwrap();
    assert_eq!(
        (
            &json["records"][0]["entries"][0]["entry"]["data"]["lba"],
            &json["records"][1]["header"]["offset"]
        ),
        (&5.into(), &at.into())
    );
    assert_eq!(
        dump_chunk(&mut pool.io, false, 99),
        Err(DumpError::NoChunk { chunk: 99 })
    );
    assert_eq!(dump_chunk(&mut pool.io, true, 0), Err(DumpError::NoJournal));
    assert_eq!(
        list_records(&mut self::pool().io),
        Err(DumpError::NoJournal)
    );
}

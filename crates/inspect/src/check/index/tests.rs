use crate::report::{FindingKind::*, Severity::*};
use crate::test_pool::*;
use crate::{CheckOptions, check};
use windrow_format::batch::{Entry, payload_checksum};
use windrow_format::index_page::{IndexEntry, NO_INDEX_PAGE, encode_index_page};
use windrow_format::map_entry::MapEntry;
use windrow_geometry::*;
use windrow_types::*;

/// A pool with page `lba` of the index after a write. Returns the number of its batch.
fn pool_with_page(lba: u64, page: Vec<u8>) -> (TestPool, usize) {
    let mut pool = TestPool::new(Redundancy::Double, 6);
    pool.create(1, "v", 100);
    pool.write(1, &[5]);
    let (batch, birth, checksum) = (pool.batches.len(), Lsn(pool.lsn), payload_checksum(&page));
    let addresses = pool.batch(
        USER,
        &[(
            Entry::Data {
                volume: VolumeId::INDEX,
                lba: Lba(lba),
                birth,
            },
            Some(page),
        )],
    );
    pool.map.insert(
        (VolumeId::INDEX.0, lba),
        MapEntry::plain(addresses[0], checksum),
    );
    pool.flush();
    pool.checkpoint();
    (pool, batch)
}

fn page(lsns: &[u64], previous: u32) -> Vec<u8> {
    let mut page = vec![0; BLOCK_SIZE];
    let entries: Vec<IndexEntry> = lsns
        .iter()
        .map(|lsn| IndexEntry {
            fingerprint: 77,
            id: 3,
            lsn: Lsn(*lsn),
        })
        .collect();
    encode_index_page(&entries, previous, &mut page);
    page
}

#[test]
fn pages_are_decoded_and_their_entries_counted() {
    let (mut pool, _) = pool_with_page(0, page(&[1, 2], NO_INDEX_PAGE));
    let report = pool.expect_clean();
    assert!(
        report.findings.list.is_empty(),
        "{:#?}",
        report.findings.list
    );
    assert_eq!(
        (
            report.index_pages,
            report.index_entries,
            report.index_entries_in_use
        ),
        (1, 2, 0)
    );
    // An entry is in use while its id has the content that its LSN gave it.
    let addresses = pool.write(1, &[5, 6]);
    let sum = pool.map[&(1, 6)].checksum();
    let birth = Lsn(pool.lsn);
    let content = content(birth.0);
    let shared = pool.batch(
        USER,
        &[(
            Entry::Data {
                volume: VolumeId::SHARED,
                lba: Lba(3),
                birth: Lsn(2),
            },
            Some(content),
        )],
    );
    assert_ne!(addresses[1], shared[0]);
    pool.map.insert(
        (VolumeId::SHARED.0, 3),
        MapEntry::plain(shared[0], sum).with_incarnation(2),
    );
    pool.map.insert((1, 6), MapEntry::shared(Lba(3), 2));
    pool.flush();
    pool.checkpoint();
    let report = pool.check();
    assert!(
        report.findings.list.is_empty(),
        "{:#?}",
        report.findings.list
    );
    assert_eq!(
        (
            report.contents,
            report.index_entries,
            report.index_entries_in_use
        ),
        (1, 2, 1)
    );
}

#[test]
fn an_invalid_page_is_reported_and_loses_no_data() {
    let of_the_future = page(&[1 << 40], NO_INDEX_PAGE);
    let mut no_page = page(&[1], NO_INDEX_PAGE);
    no_page[4000] = 1;
    for (lba, bytes) in [
        (0, of_the_future),
        (0, no_page),
        (0, vec![0; BLOCK_SIZE]),
        (0, page(&[1], 1 << 28)),
        (1 << 28, page(&[1], NO_INDEX_PAGE)),
    ] {
        let (mut pool, _) = pool_with_page(lba, bytes);
        let report = pool.check();
        assert_eq!(
            kinds(&report),
            [(IndexPageWrong, Repairable)],
            "{:#?}",
            report.findings.list
        );
        assert_eq!(
            (report.findings.list[0].volume, report.findings.list[0].lba),
            (Some(VolumeId::INDEX), Some(Lba(lba)))
        );
        assert_eq!(
            (report.index_entries, report.lost_blocks, report.exit_code()),
            (0, 0, 4)
        );
        // Without its bytes the page cannot be classified.
        assert!(
            check(&mut pool.io, &CheckOptions::default(), &mut |_| {})
                .findings
                .is_clean()
        );
    }
}

#[test]
fn an_unreadable_page_loses_no_user_data() {
    let (mut pool, batch) = pool_with_page(0, page(&[1], NO_INDEX_PAGE));
    pool.lose_columns(batch, 1..4);
    pool.damage(batch, 0);
    let report = pool.check();
    assert!(
        report.findings.worst == Some(Repairable),
        "{:#?}",
        report.findings.list
    );
    pool.lose_columns(batch, 0..6);
    let report = pool.check();
    assert!(
        report.findings.worst == Some(Repairable),
        "{:#?}",
        report.findings.list
    );
    assert!(
        report
            .findings
            .list
            .iter()
            .any(|finding| finding.lba == Some(Lba(0)) && finding.volume == Some(VolumeId::INDEX))
    );
}

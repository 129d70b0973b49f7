use super::*;
use windrow_format::batch::Entry;
use windrow_types::{Lba, VolumeId};

#[test]
fn a_backlog_covers_what_it_has_without_a_gap() {
    let mut backlog = Backlog {
        listening: true,
        ..Backlog::default()
    };
    for (first, count) in [(3, 2), (10, 1), (11, 5), (16, 4)] {
        backlog.push(
            Entry::Covered {
                first: Lsn(first),
                count,
            },
            None,
        );
    }
    assert_eq!(
        (backlog.entries.len(), backlog.end),
        (3, Lsn(20)),
        "entries before a gap are dropped"
    );
    assert!(backlog.covers(Lsn(10), Lsn(19)) && backlog.covers(Lsn(12), Lsn(12)));
    assert!(!backlog.covers(Lsn(9), Lsn(12)) && !backlog.covers(Lsn(10), Lsn(20)));
    backlog.release(Lsn(14));
    assert_eq!(
        backlog.entries.front().map(|l| l.last),
        Some(Lsn(15)),
        "an entry is dropped when its last LSN is durable"
    );
    backlog.clear();
    assert!(!backlog.covers(Lsn(16), Lsn(19)));
}

#[test]
fn chunks_are_reused_when_the_log_has_their_content() {
    let area = JournalArea::fit(0b111, 3, 1 << 20, 64 << 10, 16 << 10, 512).expect("four chunks");
    let mut ring = Ring::new(area, Vec::new(), 3);
    assert!(ring.turn(Lsn(0)));
    for (chunk, last) in [(0, 10), (1, 20), (2, 30), (3, 40)] {
        assert_eq!(ring.chunk, chunk);
        ring.last[chunk as usize] = Lsn(last);
        assert_eq!(ring.turn(Lsn(9)), chunk < 3);
    }
    assert_eq!(ring.used(Lsn(9)), 4);
    assert!(!ring.turn(Lsn(9)) && ring.turn(Lsn(10)));
    assert_eq!((ring.chunk, ring.offset, ring.used(Lsn(25))), (0, 0, 2));
}

#[test]
fn entries_of_all_kinds_have_lsns() {
    let data = Entry::Data {
        volume: VolumeId(1),
        lba: Lba(3),
        birth: Lsn(7),
    };
    assert_eq!(data.lsns(), Some((Lsn(7), 1)));
}

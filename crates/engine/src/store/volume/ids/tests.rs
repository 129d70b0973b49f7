use super::*;

#[test]
fn an_id_is_reused_only_for_lsns_above_the_applied_one() {
    let mut ids = Ids::default();
    let (a, b) = (ids.take(Lsn(10)), ids.take(Lsn(11)));
    assert!(ids.refer(a));
    assert!(!ids.release(a) && ids.release(a));
    ids.free(a, Lsn(50));
    // An older write still in the queue must not get content that a lost trim brings back.
    let c = ids.take(Lsn(45));
    assert!(c != a && c != b);
    assert_eq!(ids.take(Lsn(51)), a);
    assert_eq!((ids.incarnation(a), ids.end(), ids.in_use()), (51, 3, 3));
}

#[test]
fn an_id_free_for_a_younger_block_is_not_free_for_an_older_one() {
    let mut ids = Ids::default();
    let first = [ids.take(Lsn(1)), ids.take(Lsn(2))];
    for id in first {
        assert!(ids.release(id));
        ids.free(id, Lsn(20));
    }
    assert_eq!(ids.take(Lsn(21)), first[0]);
    // Decided late: its bytes had to be compared.
    assert_eq!(ids.take(Lsn(19)), 2);
    assert_eq!(ids.take(Lsn(22)), first[1]);
}

#[test]
fn a_start_finds_gaps_free() {
    let mut ids = Ids::default();
    ids.found(Lba(3));
    ids.found(Lba(3));
    ids.found(Lba(1));
    ids.settle(Lsn(7), |id| id.0 as u32 + 100);
    assert_eq!(
        (
            ids.end(),
            ids.in_use(),
            ids.references(Lba(3)),
            ids.references(Lba(9)),
            ids.incarnation(3)
        ),
        (4, 2, 2, 0, 103)
    );
    assert_eq!(
        (
            ids.take(Lsn(7)),
            ids.take(Lsn(8)),
            ids.take(Lsn(9)),
            ids.take(Lsn(10))
        ),
        (4, 0, 2, 5)
    );
}

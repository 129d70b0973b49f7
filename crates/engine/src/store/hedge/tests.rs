use super::*;

const MS: u64 = 1_000_000;

fn with_reads(members: &[u64]) -> HedgedReads {
    let mut slow = HedgedReads::default();
    for (member, took) in members.iter().enumerate() {
        (0..500).for_each(|_| slow.end(MemberId(member as u8), 0, took * MS));
    }
    slow
}

#[test]
fn the_bound_is_that_of_the_typical_member() {
    assert_eq!(HedgedReads::default().bound_ns(50), 50 * MS);
    assert_eq!(
        with_reads(&[1, 1, 1, 1]).bound_ns(50),
        50 * MS,
        "fast members: the floor"
    );
    let fast = with_reads(&[1, 1, 1]).bound_ns(1);
    assert!(fast <= SLOW_FACTOR * 2 * MS, "{fast}");
    assert_eq!(
        with_reads(&[1, 1, 1, 5000]).bound_ns(1),
        fast,
        "one slow member does not raise it"
    );
    assert_eq!(with_reads(&[1, 5000]).bound_ns(1), fast, "nor of two");
    assert!(
        with_reads(&[100, 100, 100, 90]).bound_ns(50) >= SLOW_FACTOR * 100 * MS,
        "slow disks all of them"
    );
}

#[test]
fn a_rare_slow_read_is_not_typical_and_old_times_decay() {
    let mut tempo = Tempo::default();
    (0..500).for_each(|n| tempo.note(if n % 200 == 0 { 3000 * MS } else { MS }));
    assert!(tempo.p99_ns() <= 2 * MS, "{}", tempo.p99_ns());
    (0..500).for_each(|_| tempo.note(400 * MS));
    assert!(tempo.p99_ns() >= 400 * MS);
    (0..20_000).for_each(|_| tempo.note(MS / 10));
    assert_eq!((tempo.p99_ns(), tempo.reads < READS_KEPT), (MS, true));
}

#[test]
fn the_budget_is_a_share_of_all_reads() {
    let mut slow = HedgedReads::default();
    let watch = Watch {
        fetch: 0,
        serial: 0,
        member: MemberId(0),
        since_ns: 0,
        was_late: false,
    };
    while slow.take_budget() {}
    let around = (0..10_000).filter(|_| {
        slow.begin(watch);
        slow.take_budget()
    });
    assert_eq!(around.count() as u32, 10_000 / AROUND_SHARE);
}

#[test]
fn a_member_is_slow_after_some_bad_spans_and_no_longer_after_the_same_number_of_good_ones() {
    let mut tempo = Tempo::default();
    let mut span = |reads, late| {
        (tempo.span_reads, tempo.span_late) = (reads, late);
        tempo.end_span();
        tempo.slow
    };
    let bad: Vec<bool> = (0..SLOW_SPANS).map(|_| span(100, 60)).collect();
    assert!(bad.iter().rev().skip(1).all(|slow| !slow) && bad[SLOW_SPANS as usize - 1]);
    assert!(span(0, 0), "without reads nothing is known");
    (1..SLOW_SPANS).for_each(|_| assert!(span(100, 0)));
    assert!(!span(100, 0));
    (0..20).for_each(|_| assert!(!span(1000, SLOW_LEAST), "a few late ones are nothing"));
    (0..20).for_each(|n| {
        assert!(
            !span(100, if n % SLOW_SPANS == 0 { 0 } else { 100 }),
            "with pauses"
        )
    });
}

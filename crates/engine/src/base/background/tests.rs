use super::*;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

/// Runs batches of 1 MiB for ten seconds. Each takes `took`, and the members run `at_once` of them
/// in parallel; foreground I/O is always active or never. Returns the bytes done, and the share of
/// time in thousandths during which something was in progress.
fn run(took: u64, at_once: usize, busy: bool, bound: u64, floor: u64) -> (u64, u64) {
    let (mut throttle, mut users) = (Throttle::default(), Users::default());
    let (mut ends, mut done, mut at_work) = (std::collections::VecDeque::new(), 0, 0);
    for now in (1..10_000).map(|ms| ms * MS) {
        if busy {
            users.note(now);
        }
        while ends.front().is_some_and(|end| *end <= now) {
            ends.pop_front();
            throttle.end(now, 1 << 20);
            done += 1 << 20;
        }
        while throttle.may_begin(now, &users) {
            throttle.begin(
                now,
                1 << 20,
                time_at(1 << 20, bound),
                time_at(1 << 20, floor),
            );
            // The members run the first ones in parallel, the others after them.
            let before = ends.len().checked_sub(at_once).map_or(now, |at| ends[at]);
            ends.push_back(before + took);
        }
        at_work += u64::from(!ends.is_empty());
    }
    (done, at_work / 10)
}

#[test]
fn without_foreground_io_members_are_never_idle() {
    let (done, at_work) = run(5 * MS, 4, false, 0, 1 << 20);
    assert!(
        at_work > 990 && done > (4 * 1900) << 20,
        "{at_work} {}",
        done >> 20
    );
}

/// Whatever the speed of the members, foreground I/O has them to itself for most of the time.
#[test]
fn with_foreground_io_it_gives_way() {
    for took in [MS, 5 * MS, 50 * MS] {
        let (done, at_work) = run(took, 4, true, 0, 1);
        assert!((150..=334).contains(&at_work), "{took}: {at_work}");
        assert!(done > 0);
    }
}

/// The members are so busy that a batch takes seconds: the pause after it would be longer still.
#[test]
fn the_guaranteed_rate_is_kept_however_slow_the_members_are() {
    let (done, _) = run(400 * MS, 64, true, 0, 20 << 20);
    assert!(done >= 180 << 20, "{}", done >> 20);
}

#[test]
fn the_bound_is_kept_always() {
    for busy in [false, true] {
        let (done, _) = run(MS, 4, busy, 30 << 20, 10 << 20);
        assert!((295 << 20..=310 << 20).contains(&done), "{}", done >> 20);
    }
}

#[test]
fn users_are_forgotten_after_a_while_and_the_throttle_says_when() {
    let (mut throttle, mut users) = (Throttle::default(), Users::default());
    users.note(SECOND);
    assert!(throttle.may_begin(SECOND, &users));
    throttle.begin(SECOND, 1 << 20, 0, time_at(1 << 20, 1));
    throttle.end(SECOND + 500 * MS, 1 << 20);
    assert!(!throttle.may_begin(SECOND + 500 * MS, &users));
    let wake = throttle.wake_at_ns(SECOND + 500 * MS).unwrap();
    assert_eq!(wake, SECOND + USERS_ABOUT_NS);
    assert!(throttle.may_begin(wake, &users) && throttle.wake_at_ns(wake).is_none());
}

#[test]
fn memory_is_bounded() {
    let mut throttle = Throttle::default();
    let mut begun = 0;
    while throttle.may_begin(SECOND, &Users::default()) {
        throttle.begin(SECOND, AHEAD_BYTES / 4, 0, 1);
        begun += 1;
    }
    assert_eq!(begun, 4);
    // Batches larger than the limit: two, or members would wait for each other.
    let mut throttle = Throttle::default();
    (0..2).for_each(|_| {
        assert!(throttle.may_begin(SECOND, &Users::default()));
        throttle.begin(SECOND, AHEAD_BYTES * 2, 0, 1);
    });
    assert!(!throttle.may_begin(SECOND, &Users::default()) && throttle.wake_at_ns(0).is_none());
}

#[test]
fn the_meter_shows_the_last_seconds() {
    let mut meter = Meter::default();
    for ms in 1..20_000u64 {
        meter.note(ms * MS, ms.min(10_000) * 1000);
        if ms == 10_000 {
            assert!((990_000..=1_010_000).contains(&meter.rate(ms * MS, ms * 1000)));
        }
    }
    assert!(
        meter.rate(20 * SECOND, 10_000_000) < 70_000,
        "it stood still for ten seconds"
    );
}

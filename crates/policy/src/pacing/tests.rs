use super::*;

const MARKS: Watermarks = Watermarks { low: 1000, high: 3000 };

fn victim(live_units: u32) -> SegmentStats {
    SegmentStats { live_units, capacity_units: 512, sealed_at: 0 }
}

#[test]
fn ends_of_the_band() {
    assert_eq!(cleaning_share(3000, MARKS, Some(&victim(256))), Pace::Idle);
    assert_eq!(cleaning_share(u64::MAX, MARKS, Some(&victim(256))), Pace::Idle);
    assert_eq!(cleaning_share(1000, MARKS, Some(&victim(256))), Pace::WritesWait);
    assert_eq!(cleaning_share(0, MARKS, None), Pace::WritesWait);
    assert_eq!(cleaning_share(1001, MARKS, None), Pace::Idle);
    assert_eq!(cleaning_share(1001, MARKS, Some(&victim(512))), Pace::Idle);
    assert_eq!(cleaning_share(1001, MARKS, Some(&victim(511))), Pace::Moves { per_1024_writes: 1024 * MOVES_PER_WRITE_MAX });
}

#[test]
fn breaks_even_in_the_middle() {
    // u = 3/4: three moves gain one block.
    assert_eq!(cleaning_share(2000, MARKS, Some(&victim(384))), Pace::Moves { per_1024_writes: 3 * 1024 });
    assert_eq!(cleaning_share(2000, MARKS, Some(&victim(0))), Pace::Moves { per_1024_writes: 0 });
}

#[test]
fn share_grows_as_space_falls() {
    let share = |free| match cleaning_share(free, MARKS, Some(&victim(400))) {
        Pace::Moves { per_1024_writes } => per_1024_writes,
        pace => panic!("{pace:?} at {free}"),
    };
    assert!((1001..2999).all(|free| share(free) >= share(free + 1)));
}

#[test]
fn wrong_marks_do_not_panic() {
    let marks = Watermarks { low: 10, high: 5 };
    assert_eq!(cleaning_share(10, marks, Some(&victim(1))), Pace::WritesWait);
    assert_eq!(cleaning_share(11, marks, Some(&victim(1))), Pace::Idle);
    let marks = Watermarks { low: u64::MAX, high: u64::MAX };
    assert_eq!(cleaning_share(u64::MAX, marks, Some(&victim(1))), Pace::WritesWait);
    let widest = SegmentStats { live_units: u32::MAX - 1, capacity_units: u32::MAX, sealed_at: 0 };
    let pace = cleaning_share(1, Watermarks { low: 0, high: u64::MAX }, Some(&widest));
    assert_eq!(pace, Pace::Moves { per_1024_writes: 1024 * MOVES_PER_WRITE_MAX });
}

#[test]
fn debt_keeps_fractions() {
    let mut debt = MoveDebt::default();
    for _ in 0..4 {
        debt.charge(1, Pace::Moves { per_1024_writes: 256 + 512 });
    }
    assert_eq!(debt.due(), 3);
    debt.pay(2);
    assert_eq!(debt.due(), 1);
    debt.charge(1000, Pace::Idle);
    debt.charge(1000, Pace::WritesWait);
    assert_eq!(debt.due(), 1);
    debt.pay(u64::MAX);
    assert_eq!(debt, MoveDebt::default());
}

/// A load that never rests, space that comes back whole segments late, victims of changing utilisation: free space stays above the
/// low mark, writes never have to wait, and the level rests near the middle.
#[test]
fn level_rests_in_the_band() {
    const SEGMENT: u64 = 512;
    let marks = Watermarks { low: 4 * SEGMENT, high: 24 * SEGMENT };
    let (mut free, mut debt, mut moved_of_victim, mut lowest) = (30 * SEGMENT, MoveDebt::default(), 0, u64::MAX);
    // Segments emptied, not yet reusable: three of them at a time wait for a flush.
    let mut waiting = 0;
    let mut victims = [256u32, 480, 300, 128, 505, 400].into_iter().cycle();
    let mut live = victims.next().unwrap_or(1);
    for step in 0..400_000u32 {
        let pace = cleaning_share(free, marks, Some(&victim(live)));
        assert_ne!(pace, Pace::WritesWait, "step {step}");
        free -= 1;
        debt.charge(1, pace);
        while debt.due() > 0 && free > 0 {
            debt.pay(1);
            free -= 1;
            moved_of_victim += 1;
            if moved_of_victim >= live {
                (moved_of_victim, waiting) = (0, waiting + 1);
                live = victims.next().unwrap_or(1);
                if waiting == 3 {
                    (free, waiting) = (free + 3 * SEGMENT, 0);
                }
            }
        }
        if step > 20_000 {
            lowest = lowest.min(free);
            assert!(free < marks.high, "step {step}");
        }
    }
    assert!(lowest > marks.low, "{lowest}");
}

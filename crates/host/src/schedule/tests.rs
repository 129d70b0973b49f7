use super::*;
use crate::offline::{ScratchSpec, ram_members, scratch_pool};
use windrow_engine::ScrubStatus;

const NOW: u64 = 1_800_000_000;

fn status(days: u16, created: u64, scrub: ScrubStatus) -> PoolStatus {
    let opened = scratch_pool(ram_members(4, 32 << 20).unwrap(), &ScratchSpec::default()).unwrap();
    let mut status = opened.engine.status();
    status.properties.scrub_interval_days = days;
    (status.created_unix_s, status.scrub) = (created, scrub);
    status
}

#[test]
fn the_interval_counts_from_the_last_end_or_from_the_creation() {
    let of = |days, created, scrub| next_scrub(&status(days, created, scrub), &Clock::new(NOW));
    let ended = |state, ended_unix_s, completed_unix_s| ScrubStatus {
        state,
        started_unix_s: 5000,
        ended_unix_s,
        completed_unix_s,
        ..ScrubStatus::default()
    };
    assert_eq!(
        of(30, NOW - DAY_S, ScrubStatus::default()),
        Some(NOW + 29 * DAY_S),
        "a new pool"
    );
    assert_eq!(
        of(30, NOW - 40 * DAY_S, ScrubStatus::default()),
        Some(NOW - 10 * DAY_S),
        "due"
    );
    assert_eq!(
        of(
            7,
            1000,
            ended(ScrubState::Completed, NOW - DAY_S, NOW - DAY_S)
        ),
        Some(NOW + 6 * DAY_S)
    );
    assert_eq!(
        of(
            7,
            1000,
            ended(ScrubState::Stopped, NOW - DAY_S, NOW - 90 * DAY_S)
        ),
        Some(NOW + 6 * DAY_S),
        "it was stopped"
    );
    let unknown = ScrubStatus {
        state: ScrubState::Completed,
        started_unix_s: NOW - DAY_S,
        active_ms: 7_200_000,
        ..ScrubStatus::default()
    };
    assert_eq!(of(1, 1000, unknown), Some(NOW + 7200), "begin and duration");
}

#[test]
fn no_scrub_starts_while_one_runs_or_if_none_is_wanted_or_no_time_is_known() {
    let old = NOW - 400 * DAY_S;
    assert_eq!(
        next_scrub(&status(0, old, ScrubStatus::default()), &Clock::new(NOW)),
        None
    );
    for state in [ScrubState::Running, ScrubState::Paused] {
        assert_eq!(
            next_scrub(
                &status(
                    30,
                    old,
                    ScrubStatus {
                        state,
                        ..ScrubStatus::default()
                    }
                ),
                &Clock::new(NOW)
            ),
            None
        );
    }
    assert_eq!(
        next_scrub(&status(30, 0, ScrubStatus::default()), &Clock::new(NOW)),
        None
    );
}

/// A host whose clock was once in the year 2100 must not defer scrubs until then.
#[test]
fn a_clock_that_was_wrong_puts_nothing_off() {
    let wrong = ScrubStatus {
        state: ScrubState::Completed,
        ended_unix_s: NOW * 2,
        completed_unix_s: NOW * 2,
        ..ScrubStatus::default()
    };
    assert_eq!(
        next_scrub(&status(30, NOW - 40 * DAY_S, wrong), &Clock::new(NOW)),
        Some(NOW - 10 * DAY_S)
    );
    let summer = ScrubStatus {
        state: ScrubState::Completed,
        ended_unix_s: NOW + 3600,
        completed_unix_s: NOW + 3600,
        ..ScrubStatus::default()
    };
    assert_eq!(
        next_scrub(&status(30, 1000, summer), &Clock::new(NOW)),
        Some(NOW + 3600 + 30 * DAY_S)
    );
    // The pool was made then, and never scrubbed.
    assert_eq!(
        next_scrub(
            &status(30, NOW * 2, ScrubStatus::default()),
            &Clock::new(NOW)
        ),
        Some(NOW + DAY_S)
    );
}

/// A machine that does not know the time at boot must not start a scrub at each boot.
#[test]
fn a_wrong_clock_starts_a_scrub_only_after_it_has_run_for_a_day() {
    let pool = status(30, NOW, ScrubStatus::default());
    let mut clock = Clock::new(0);
    for minute in 0..=24 * 60 {
        clock.look(minute * 60);
        assert_eq!(
            next_scrub(&pool, &clock),
            Some(DAY_S),
            "after {minute} minutes"
        );
    }
    // The clock is set.
    clock.look(NOW + 5);
    assert_eq!(next_scrub(&pool, &clock), Some(NOW + 30 * DAY_S));
    clock.look(100);
    assert_eq!(
        next_scrub(&pool, &clock),
        Some(100 + DAY_S),
        "set back: the run starts again"
    );
}

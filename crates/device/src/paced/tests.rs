use super::*;
use crate::testing::{SIZE, compare, refuses_bad_ranges, steps};
use crate::{RamAllocation, RamMember};
use proptest::prelude::*;

fn member(bytes_per_second: u64) -> PacedMember<RamMember> {
    let pace = Pace {
        bytes_per_second,
        buffer_bytes: 0,
    };
    PacedMember::new(
        RamMember::new(SIZE, RamAllocation::Sparse).expect("memory"),
        pace,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn content_is_as_in_the_model(steps in steps()) {
        compare(&member(u64::MAX), &steps);
    }
}

#[test]
fn nothing_goes_past_the_wire() {
    let member = member(u64::MAX);
    refuses_bad_ranges(&member);
    assert_eq!(member.raw_fd(), None);
}

/// With the test's clock only: commands queue, and idle time is lost.
#[test]
fn commands_take_their_length_one_after_the_other() {
    let start = Instant::now();
    let mut wire = Wire::new(
        Pace {
            bytes_per_second: 1_000_000,
            buffer_bytes: 0,
        },
        start,
    );
    let ms = |count: u64| start + Duration::from_millis(count);
    assert_eq!(wire.write(ms(0), 4_000), ms(4));
    assert_eq!(wire.read(ms(1), 2_000), ms(6));
    assert_eq!(
        wire.write(ms(10), 1_000),
        ms(11),
        "the wire was idle, and saves nothing up"
    );
    assert_eq!(wire.read(ms(10), 0), ms(11));
}

#[test]
fn a_buffer_answers_writes_before_they_are_done_and_reads_pass_them() {
    let start = Instant::now();
    let mut wire = Wire::new(
        Pace {
            bytes_per_second: 1_000_000,
            buffer_bytes: 10_000,
        },
        start,
    );
    let ms = |count: u64| start + Duration::from_millis(count);
    assert!(
        wire.write(ms(0), 4_000) <= ms(0) && wire.write(ms(0), 6_000) <= ms(0),
        "both fit"
    );
    assert_eq!(
        wire.write(ms(0), 5_000),
        ms(5),
        "full: when as much has left it"
    );
    assert_eq!(
        (wire.read(ms(1), 2_000), wire.read(ms(1), 2_000)),
        (ms(3), ms(5)),
        "reads wait for reads alone"
    );
    assert_eq!(
        wire.write(ms(6), 1_000),
        ms(10),
        "and writes for both: 15 + 4 + 1 ms, less the 10 that wait in the buffer"
    );
    assert!(wire.write(ms(30), 1_000) <= ms(30), "empty again");
}

/// A command takes at least its length, on a machine of any speed.
#[test]
fn a_command_is_not_answered_before_its_time() {
    let member = member(1 << 20);
    let begin = Instant::now();
    member.write_at(0, &[7; 16 << 10]).expect("write");
    let mut buf = [0; 4096];
    member.read_at(4096, &mut buf).expect("read");
    assert!(
        begin.elapsed() >= Duration::from_micros(19_500) && buf == [7; 4096],
        "{:?}",
        begin.elapsed()
    );
}

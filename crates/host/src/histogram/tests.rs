use super::*;

#[test]
fn merging_equals_recording_in_one() {
    let (mut left, mut right, mut both) = (
        Latencies::default(),
        Latencies::default(),
        Latencies::default(),
    );
    for value in 0..1000u64 {
        let side = if value % 3 == 0 {
            &mut left
        } else {
            &mut right
        };
        side.record(Operation::Flush, value * value);
        both.record(Operation::Flush, value * value);
    }
    left.merge(&right);
    assert_eq!(left.summary(), both.summary());
    assert_eq!(left.of(Operation::Read).count(), 0);
}

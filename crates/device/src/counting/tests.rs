use super::*;
use crate::testing::{SIZE, compare, refuses_bad_ranges, steps};
use crate::{RamAllocation, RamMember};
use proptest::prelude::*;

fn member() -> CountingMember<RamMember> {
    CountingMember::new(RamMember::new(SIZE, RamAllocation::Sparse).expect("memory"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn content_is_as_in_the_model(steps in steps()) {
        compare(&member(), &steps);
    }
}

#[test]
fn every_byte_counts_once_and_failures_apart() {
    let member = member();
    member.write_at(0, &[1; 8192]).expect("write");
    member.write_at(4096, &[1; 512]).expect("write");
    member.read_at(0, &mut [0; 4096]).expect("read");
    member.discard(8192, 65536).expect("discard");
    member.flush().expect("flush");
    refuses_bad_ranges(&member);
    let expected = Counts {
        read_bytes: 4096,
        written_bytes: 8704,
        discarded_bytes: 65536,
        reads: 2,
        writes: 3,
        flushes: 1,
        discards: 1,
        failures: 7,
    };
    assert_eq!(
        member.counts(),
        expected,
        "the two empty operations at the end count as operations"
    );
    assert_eq!(member.raw_fd(), None, "nothing may go past the counters");
}

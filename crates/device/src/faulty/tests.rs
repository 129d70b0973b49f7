use super::*;
use crate::testing::{SIZE, compare, refuses_bad_ranges, steps};
use crate::{RamAllocation, RamMember};
use proptest::prelude::*;
use std::time::Instant;

fn member() -> FaultyMember<RamMember> {
    FaultyMember::new(RamMember::new(SIZE, RamAllocation::Sparse).expect("memory"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn without_faults_content_is_as_in_the_model(steps in steps()) {
        compare(&member(), &steps);
    }
}

#[test]
fn errors_strike_in_their_range_as_often_as_configured() {
    let member = member();
    refuses_bad_ranges(&member);
    member.add(Fault {
        kind: FaultKind::ReadError(MemberErrorKind::Media),
        range: 4096..4097,
        strikes: Some(2),
    });
    let mut buf = [0; 4096];
    member.read_at(0, &mut buf).expect("outside the range");
    for _ in 0..2 {
        let error = member.read_at(4096, &mut buf).expect_err("in the range");
        assert_eq!(
            (error.kind, error.offset, error.code),
            (MemberErrorKind::Media, 4096, libc::EIO)
        );
    }
    member
        .read_at(4096, &mut buf)
        .expect("the fault is used up");

    let id = member.add(Fault::everywhere(FaultKind::WriteError(
        MemberErrorKind::Gone,
    )));
    assert_eq!(
        member.write_at(0, &[1; 512]).expect_err("gone").kind,
        MemberErrorKind::Gone
    );
    assert!(member.remove(id) && !member.remove(id));
    member.read_at(0, &mut buf).expect("read");
    assert_eq!(buf, [0; 4096], "a failed write changes nothing");

    member.add(Fault::everywhere(FaultKind::FlushError(
        MemberErrorKind::Other,
    )));
    assert!(member.flush().is_err());
    member.clear();
    member.flush().expect("no faults left");
}

#[test]
fn corruption_and_lost_writes_are_silent() {
    let member = member();
    member.add(Fault {
        kind: FaultKind::CorruptRead { bits: 0x80 },
        range: 600..601,
        strikes: Some(1),
    });
    let mut buf = [0; 1024];
    member.read_at(512, &mut buf).expect("silent");
    assert_eq!(buf.iter().position(|b| *b == 0x80), Some(88));
    member.read_at(512, &mut buf).expect("read");
    assert_eq!(buf, [0; 1024]);

    member.add(Fault {
        kind: FaultKind::CorruptWrite { bits: 1 },
        range: 0..2,
        strikes: Some(1),
    });
    member.write_at(0, &[6; 512]).expect("silent");
    member.add(Fault {
        kind: FaultKind::LostWrite,
        range: 0..SIZE,
        strikes: Some(1),
    });
    member.write_at(0, &[9; 512]).expect("silent");
    member.read_at(0, &mut buf).expect("read");
    assert_eq!(buf[..3], [7, 7, 6]);
}

/// Other operations continue; each way to remove the fault releases the hung operations.
#[test]
fn hung_operations_end_when_the_fault_is_removed() {
    let member = member();
    for clear in [false, true] {
        let fault = member.add(Fault {
            kind: FaultKind::Hang,
            range: 512..1024,
            strikes: None,
        });
        std::thread::scope(|scope| {
            let hanging = scope.spawn(|| member.write_at(512, &[7; 512]).expect("write"));
            let flush = scope.spawn(|| member.flush().expect("flush"));
            member.write_at(0, &[8; 512]).expect("elsewhere");
            assert!(!hanging.is_finished() && !flush.is_finished());
            if clear {
                member.clear()
            } else {
                assert!(member.remove(fault))
            }
        });
        let mut bytes = [0; 512];
        member.read_at(512, &mut bytes).expect("read");
        assert_eq!(bytes, [7; 512]);
    }
}

#[test]
fn latency_is_added() {
    let member = member();
    member.add(Fault {
        kind: FaultKind::Latency(Duration::from_millis(20)),
        range: 0..512,
        strikes: Some(1),
    });
    let start = Instant::now();
    member.write_at(0, &[1; 512]).expect("write");
    assert!(start.elapsed() >= Duration::from_millis(20));
}

use super::*;
use windrow_io::{Buf, IoTag};

const M: MemberId = MemberId(0);

fn members(count: usize) -> VirtualMembers {
    VirtualMembers::new(&vec![1 << 20; count], 0xa5, Rng::stream(7, "test"))
}

fn read(members: &mut VirtualMembers, offset: u64) -> u8 {
    let mut buf = [0; 4096];
    members.read(M, offset, &mut buf).unwrap();
    assert!(buf.iter().all(|byte| *byte == buf[0]), "torn");
    buf[0]
}

fn command(op: MemberOp) -> MemberCommand {
    MemberCommand {
        member: M,
        tag: IoTag(1),
        op,
    }
}

#[test]
fn a_flushed_write_survives_and_an_unflushed_one_may_be_lost() {
    let mut fates = [0; 2];
    for _ in 0..200 {
        let mut members = members(1);
        members.rng = Rng::stream(fates.iter().sum::<u64>(), "fates");
        members.write(M, 0, &[1; 4096]).unwrap();
        members.flush(M).unwrap();
        members.write(M, 8192, &[2; 4096]).unwrap();
        assert_eq!(read(&mut members, 8192), 2, "visible at once");
        members.power_cut(Vec::new());
        assert_eq!(read(&mut members, 0), 1);
        let mut buf = [0; 4096];
        members.read(M, 8192, &mut buf).unwrap();
        fates[usize::from(buf == [2; 4096])] += 1;
    }
    assert!(fates[0] > 50 && fates[1] > 30, "{fates:?}");
}

#[test]
fn a_flush_covers_what_was_complete_when_it_began() {
    let mut lost = false;
    for seed in 0..50 {
        let mut members = members(1);
        members.rng = Rng::stream(seed, "late");
        members.write(M, 0, &[1; 4096]).unwrap();
        let flush = members.start(command(MemberOp::Flush), false);
        members.write(M, 4096, &[2; 4096]).unwrap();
        assert!(members.finish(flush).result.is_ok());
        members.power_cut(Vec::new());
        assert_eq!(read(&mut members, 0), 1);
        let mut buf = [0; 4096];
        members.read(M, 4096, &mut buf).unwrap();
        lost |= buf[0] == 0;
    }
    assert!(
        lost,
        "a write that completed after the flush began is not covered by it"
    );
}

#[test]
fn a_write_in_flight_may_reach_the_medium() {
    let mut seen = [false; 3];
    for seed in 0..100 {
        let mut members = members(1);
        members.rng = Rng::stream(seed, "flight");
        let mut buf = Buf::unpooled(4096);
        buf.fill(9);
        let started = members.start(command(MemberOp::Write { offset: 0, buf }), false);
        members.power_cut(vec![started]);
        let mut buf = [0; 4096];
        members.read(M, 0, &mut buf).unwrap();
        let kept = buf.chunks(512).filter(|sector| sector[0] == 9).count();
        seen[match kept {
            0 => 0,
            8 => 1,
            _ => 2,
        }] = true;
    }
    assert_eq!(seen, [true; 3], "lost, kept and torn all happen");
}

#[test]
fn a_discard_destroys_at_once_and_what_comes_later_stays() {
    let mut members = members(1);
    members.write(M, 0, &[1; 8192]).unwrap();
    members.flush(M).unwrap();
    let discard = members.start(
        command(MemberOp::Discard {
            offset: 0,
            length: 4096,
        }),
        false,
    );
    assert_eq!(read(&mut members, 0), 0xa5);
    assert!(members.finish(discard).result.is_ok());
    members.power_cut(Vec::new());
    assert_eq!((read(&mut members, 0), read(&mut members, 4096)), (0xa5, 1));
}

#[test]
fn the_countdown_cuts_the_power() {
    let mut members = members(1);
    members.set_countdown(Some(1));
    members.write(M, 0, &[1; 4096]).unwrap();
    let error = members.flush(M).unwrap_err();
    assert_eq!(error.kind, MemberErrorKind::PowerCut);
    assert!(members.is_cut() && members.read(M, 0, &mut [0; 4096]).is_err());
    members.power_cut(Vec::new());
    assert!(!members.is_cut() && members.flush(M).is_ok());
}

#[test]
fn canaries_lose_what_was_flushed() {
    let lost = |canary: DeviceBug, discard: bool| {
        (0..50).any(|seed| {
            let mut members = members(1);
            members.rng = Rng::stream(seed, "canary");
            members.set_canary(canary);
            members.write(M, 0, &[1; 4096]).unwrap();
            members.flush(M).unwrap();
            if discard {
                let started = members.start(
                    command(MemberOp::Discard {
                        offset: 65536,
                        length: 4096,
                    }),
                    false,
                );
                members.finish(started);
            }
            members.power_cut(Vec::new());
            let mut buf = [0; 4096];
            members.read(M, 0, &mut buf).unwrap();
            buf != [1; 4096]
        })
    };
    assert!(lost(DeviceBug::DroppedFlush { members: 1 }, false));
    assert!(lost(DeviceBug::DiscardBeforeFlush, true));
    assert!(!lost(DeviceBug::DiscardBeforeFlush, false) && !lost(DeviceBug::None, true));
}

#[test]
fn faults_show_as_errors_until_they_are_written_over() {
    let mut members = members(2);
    members.member_mut(M).read_errors.push((4096, 4096));
    assert!(
        members.read(M, 4096, &mut [0; 4096]).is_err()
            && members.read(M, 0, &mut [0; 4096]).is_ok()
    );
    members.write(M, 4096, &[3; 4096]).unwrap();
    assert_eq!(read(&mut members, 4096), 3);
    members.corrupt(M, 4096, 4096);
    let mut buf = [0; 4096];
    members.read(M, 4096, &mut buf).unwrap();
    assert_ne!(buf, [3; 4096]);
    members.ailment_mut(M).gone = true;
    assert!(
        !members.is_present(M)
            && members.read(M, 0, &mut buf).is_err()
            && members.is_present(MemberId(1))
    );
    assert_eq!(members.member(M).received.errors, 2);
}

#[test]
fn lost_and_misdirected_writes_are_acknowledged_and_reads_fail_for_a_while() {
    let mut members = members(1);
    members.ailment_mut(M).lost_writes = 1;
    members.write(M, 0, &[1; 4096]).unwrap();
    assert_eq!(read(&mut members, 0), 0, "it never got there");
    members.ailment_mut(M).misdirected_writes = 1;
    members.write(M, 0, &[2; 4096]).unwrap();
    let found: Vec<u64> = (0..256)
        .map(|block| block * 4096)
        .filter(|offset| read(&mut members, *offset) == 2)
        .collect();
    assert_eq!(found.len(), 1, "it is at one address");
    members.write(M, 4096, &[3; 4096]).unwrap();
    members.ailment_mut(M).failing_reads = 2;
    let results: Vec<bool> = (0..3)
        .map(|_| members.read(M, 4096, &mut [0; 4096]).is_ok())
        .collect();
    assert_eq!(results, [false, false, true]);
    assert_eq!(
        members.member(M).received.written_bytes,
        3 * 4096,
        "the device counts what it took"
    );
}

//! Lanes: reads of one thread.

use super::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

fn lane(path: &Path, depth: u32) -> Option<ReadLane> {
    if !uring_available() {
        eprintln!("SKIPPED: no io_uring here");
        return None;
    }
    Some(ReadLane::open(member(path), depth).expect("lane"))
}

fn fill(path: &Path) {
    let members = member(path);
    for block in 0..256u64 {
        members[0]
            .as_ref()
            .expect("present")
            .write_at(block * 4096, &[block as u8; 4096])
            .expect("write");
    }
}

fn read(tag: u64, offset: u64) -> MemberCommand {
    other(
        tag,
        MemberOp::Read {
            offset,
            buf: Buf::unpooled(4096),
        },
    )
}

/// Fails after ten seconds without a completion: a thread that sleeps on the descriptor would sleep
/// forever.
fn sleep_on(lane: &ReadLane) {
    let mut fds = [PollFd::from_borrowed_fd(lane.fd(), PollFlags::IN)];
    let woken = poll(
        &mut fds,
        Some(&Timespec {
            tv_sec: 10,
            tv_nsec: 0,
        }),
    )
    .expect("poll");
    assert_eq!(woken, 1, "a read ended without a wakeup");
}

#[test]
fn a_thread_that_sleeps_on_the_descriptor_is_woken_for_every_read() {
    let place = place();
    fill(&place.path);
    let Some(mut lane) = lane(&place.path, 8) else {
        return;
    };
    for round in 0..2000u64 {
        let mut commands: Vec<_> = (0..round % 8 + 1)
            .map(|i| read(i, (round + i) % 256 * 4096))
            .collect();
        let count = commands.len();
        let mut done = Vec::new();
        assert!(lane.take(&mut commands, &mut done) && commands.is_empty() && done.is_empty());
        lane.start().expect("started");
        while lane.in_flight() > 0 {
            sleep_on(&lane);
            lane.collect(&mut done).expect("collected");
        }
        assert_eq!(done.len(), count);
        for item in done {
            assert!(
                item.result.is_ok()
                    && item
                        .buf
                        .expect("a buffer")
                        .iter()
                        .all(|byte| u64::from(*byte) == (round + item.tag.0) % 256)
            );
        }
    }
}

#[test]
fn what_is_no_read_or_finds_no_room_is_left_to_others() {
    let place = place();
    fill(&place.path);
    let Some(mut lane) = lane(&place.path, 2) else {
        return;
    };
    let outside = MemberCommand {
        member: MemberId(7),
        tag: IoTag(9),
        op: MemberOp::Read {
            offset: 0,
            buf: Buf::unpooled(4096),
        },
    };
    let mut commands = vec![
        write(1, 0, 5, 4096),
        outside,
        read(2, 0),
        other(3, MemberOp::Flush),
        read(4, 4096),
    ];
    let mut done = Vec::new();
    lane.take(&mut commands, &mut done);
    assert_eq!(
        done.iter()
            .map(|done| (done.tag.0, done.result.is_ok()))
            .collect::<Vec<_>>(),
        [(9, false)],
        "there is no such member"
    );
    assert_eq!(
        commands
            .iter()
            .map(|command| command.tag.0)
            .collect::<Vec<_>>(),
        [1, 3, 4],
        "the absent member had a place, too"
    );
    commands.push(read(5, 8192));
    lane.take(&mut commands, &mut done);
    assert_eq!(
        commands
            .iter()
            .map(|command| command.tag.0)
            .collect::<Vec<_>>(),
        [1, 3, 5]
    );
    assert_eq!(
        lane.exchange(MemberId(0), None)
            .expect_err("it waits")
            .kind(),
        io::ErrorKind::ResourceBusy
    );
    lane.start().expect("started");
    while lane.in_flight() > 0 {
        sleep_on(&lane);
        lane.collect(&mut done).expect("collected");
    }
    assert_eq!(done.iter().filter(|done| done.result.is_ok()).count(), 2);
    std::thread::scope(|scope| {
        scope
            .spawn(|| lane.exchange(MemberId(0), None).expect("at rest"))
            .join()
            .expect("thread")
    });
    let mut commands = vec![read(6, 0)];
    done.clear();
    lane.take(&mut commands, &mut done);
    assert_eq!(
        done[0].result.expect_err("the member is away").kind,
        MemberErrorKind::Gone
    );
}

#[test]
fn a_lane_that_goes_waits_for_the_kernel() {
    let place = place();
    fill(&place.path);
    let Some(mut lane) = lane(&place.path, 64) else {
        return;
    };
    let mut commands: Vec<_> = (0..64).map(|i| read(i, i * 4096)).collect();
    lane.take(&mut commands, &mut Vec::new());
    lane.start().expect("started");
    drop(lane);
}

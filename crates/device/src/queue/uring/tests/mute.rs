//! An unresponsive member.

use super::*;
use crate::{DeviceError, MemberInfo};
use std::os::fd::RawFd;
use std::sync::mpsc;

/// All its reads and discards wait until the other end of the pipe is closed.
struct Mute {
    info: MemberInfo,
    pipe: OwnedFd,
}

impl Member for Mute {
    fn info(&self) -> &MemberInfo {
        &self.info
    }
    fn read_at(&self, _offset: u64, _buf: &mut [u8]) -> Result<(), DeviceError> {
        unreachable!("reads go through the ring")
    }
    fn write_at(&self, _offset: u64, _data: &[u8]) -> Result<(), DeviceError> {
        unreachable!("nothing is written")
    }
    fn flush(&self) -> Result<(), DeviceError> {
        unreachable!("nothing is flushed")
    }
    fn discard(&self, _offset: u64, _length: u64) -> Result<(), DeviceError> {
        rustix::io::read(&self.pipe, &mut [0; 1])
            .map(drop)
            .map_err(|errno| DeviceError::from_code(errno.raw_os_error(), 0))
    }
    fn raw_fd(&self) -> Option<RawFd> {
        Some(self.pipe.as_raw_fd())
    }
}

/// The member of this path and an unresponsive one, and a handle that makes the latter answer when
/// dropped.
fn members(path: &Path) -> (Members, io::PipeWriter) {
    let mut members = member(path);
    let (pipe, other_end) = std::io::pipe().expect("pipe");
    let info = members[0].as_ref().expect("present").info().clone();
    members.push(Some(Arc::new(Mute {
        info,
        pipe: pipe.into(),
    })));
    (members, other_end)
}

fn read(member: u8, tag: u64) -> MemberCommand {
    MemberCommand {
        member: MemberId(member),
        tag: IoTag(tag),
        op: MemberOp::Read {
            offset: 0,
            buf: Buf::unpooled(4096),
        },
    }
}

/// Waits as the reaper does; false after ten seconds, so that a failing test does not wait forever.
fn wait_a_while(reaper: &mut UringReaper, done: &mut Vec<MemberDone>) -> bool {
    let waker = reaper.waker();
    let (over, watch) = mpsc::channel::<()>();
    let watching = std::thread::spawn(move || {
        watch
            .recv_timeout(Duration::from_secs(10))
            .inspect_err(|_| waker.wake())
            .is_err()
    });
    reaper.wait(done).expect("ring");
    let _ = over.send(());
    !watching.join().expect("thread")
}

#[test]
fn reads_of_other_members_end_while_many_wait_for_an_unresponsive_one() {
    if !uring_available() {
        return eprintln!("SKIPPED: no io_uring here");
    }
    let place = place();
    let (members, other_end) = members(&place.path);
    let (mut submitter, mut reaper) = uring(members, 8).expect("ring");
    submitter.submit(
        &mut (0..50).map(|tag| read(1, tag)).collect(),
        &mut Vec::new(),
    );
    let mut others = Vec::new();
    for tag in 100..120 {
        submitter.submit(&mut vec![read(0, tag)], &mut Vec::new());
        if !wait_a_while(&mut reaper, &mut others) {
            break;
        }
    }
    // It answers at last, possibly with an error: each of its reads is returned.
    drop(other_end);
    let others: Vec<_> = others
        .iter()
        .map(|done| (done.tag.0, done.result.is_ok()))
        .collect();
    assert_eq!(
        others,
        (100..120).map(|tag| (tag, true)).collect::<Vec<_>>(),
        "they do not wait for the unresponsive one"
    );
    let done = wait_for(&mut reaper, 50);
    assert!(
        done.iter()
            .all(|done| done.member == MemberId(1) && done.result.is_err())
    );
    assert_eq!(submitter.in_flight(), 0);
}

#[test]
fn reads_of_an_unresponsive_member_do_not_fill_a_lane() {
    if !uring_available() {
        return eprintln!("SKIPPED: no io_uring here");
    }
    let place = place();
    let (members, other_end) = members(&place.path);
    let mut lane = ReadLane::open(members, 8).expect("lane");
    // Declared after the lane, so also dropped first if the test fails: the lane waits for its
    // reads.
    let other_end = other_end;
    let mut commands: Vec<_> = (0..5).map(|tag| read(1, tag)).collect();
    assert!(lane.take(&mut commands, &mut Vec::new()) && commands.is_empty());
    commands.extend((5..20).map(|tag| read(1, tag)));
    commands.push(read(0, 50));
    assert!(lane.take(&mut commands, &mut Vec::new()));
    assert_eq!(
        commands
            .iter()
            .map(|command| command.tag.0)
            .collect::<Vec<_>>(),
        (6..20).collect::<Vec<_>>(),
        "six of eight are its share"
    );
    assert!(
        !lane.take(&mut commands, &mut Vec::new()) && commands.len() == 14,
        "nothing was taken"
    );
    lane.start().expect("started");
    let mut done = Vec::new();
    for _ in 0..1000 {
        lane.collect(&mut done).expect("collected");
        if !done.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(
        done.iter()
            .map(|done| (done.tag.0, done.result.is_ok()))
            .collect::<Vec<_>>(),
        [(50, true)]
    );
    assert_eq!(
        lane.exchange(MemberId(1), None)
            .expect_err("six reads are outstanding")
            .kind(),
        io::ErrorKind::ResourceBusy
    );
    drop(other_end);
    while lane.in_flight() > 0 {
        lane.collect(&mut done).expect("collected");
    }
    assert_eq!(done.len(), 7);
    lane.exchange(MemberId(1), None).expect("at rest");
}

/// A hung discard of one member must not delay the discards of others.
#[test]
fn discards_of_others_end_while_one_hangs() {
    if !uring_available() {
        return eprintln!("SKIPPED: no io_uring here");
    }
    let place = place();
    let (members, other_end) = members(&place.path);
    let (mut submitter, mut reaper) = uring(members, 8).expect("ring");
    // Also dropped before the submitter if the test fails: the submitter waits for its threads.
    let other_end = other_end;
    let discard = |member, tag| MemberCommand {
        member: MemberId(member),
        tag: IoTag(tag),
        op: MemberOp::Discard {
            offset: 0,
            length: 4096,
        },
    };
    assert_eq!(
        submitter.discards.threads(),
        0,
        "none before the first discard"
    );
    submitter.submit(
        &mut vec![discard(1, 1), discard(0, 2), discard(1, 3), discard(0, 4)],
        &mut Vec::new(),
    );
    let mut done = Vec::new();
    while done.len() < 2 && wait_a_while(&mut reaper, &mut done) {}
    assert_eq!(
        done.iter()
            .map(|done| (done.tag.0, done.result.is_ok()))
            .collect::<Vec<_>>(),
        [(2, true), (4, true)]
    );
    assert_eq!(
        (submitter.in_flight(), submitter.discards.threads()),
        (2, 2)
    );
    assert_eq!(
        submitter
            .exchange(MemberId(1), None)
            .expect_err("two are outstanding")
            .kind(),
        io::ErrorKind::ResourceBusy
    );
    drop(other_end);
    assert!(
        wait_for(&mut reaper, 2)
            .iter()
            .all(|done| done.member == MemberId(1) && done.result.is_ok())
    );
    submitter.exchange(MemberId(1), None).expect("at rest");
    assert_eq!(
        (submitter.in_flight(), submitter.discards.threads()),
        (0, 1),
        "its thread has gone with it"
    );
}

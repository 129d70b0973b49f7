use super::*;
use crate::{Allocation, DiscardPolicy, FileMember, OpenOptions, create_file};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use windrow_io::{Buf, IoTag, MemberErrorKind};
use windrow_types::MemberId;

const SIZE: u64 = 4 << 20;
/// Time after which a missing result is a failure.
const FOR_EVER: Duration = Duration::from_secs(30);

struct Place {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

fn place() -> Place {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("member");
    create_file(&path, SIZE, Allocation::Preallocate).expect("create");
    Place {
        _folder: folder,
        path,
    }
}

fn member(path: &Path) -> Members {
    let options = OpenOptions {
        discard: DiscardPolicy::PunchHoles,
        ..OpenOptions::default()
    };
    vec![Some(Arc::new(
        FileMember::open(path, &options).expect("open"),
    ))]
}

fn ring(path: &Path, depth: u32) -> Option<(UringSubmitter, UringReaper)> {
    if !uring_available() {
        eprintln!("SKIPPED: no io_uring here");
        return None;
    }
    Some(uring(member(path), depth).expect("ring"))
}

fn write(tag: u64, offset: u64, byte: u8, length: usize) -> MemberCommand {
    let mut buf = Buf::unpooled(length);
    buf.fill(byte);
    MemberCommand {
        member: MemberId(0),
        tag: IoTag(tag),
        op: MemberOp::Write { offset, buf },
    }
}

fn other(tag: u64, op: MemberOp) -> MemberCommand {
    MemberCommand {
        member: MemberId(0),
        tag: IoTag(tag),
        op,
    }
}

fn wait_for(reaper: &mut UringReaper, count: usize) -> Vec<MemberDone> {
    let mut done = Vec::new();
    while done.len() < count {
        reaper.wait(&mut done).expect("ring");
    }
    done
}

#[test]
fn halves_on_two_threads_keep_each_other_going() {
    let place = place();
    let Some((mut submitter, mut reaper)) = ring(&place.path, 4) else {
        return;
    };
    let total = 3000u64;
    let reaping = std::thread::spawn(move || wait_for(&mut reaper, total as usize));
    for first in (0..total).step_by(100) {
        let mut commands = (first..first + 100)
            .map(|i| write(i, i % 1024 * 4096, i as u8, 4096))
            .collect();
        submitter.submit(&mut commands, &mut Vec::new());
    }
    let mut done = reaping.join().expect("thread");
    done.sort_by_key(|d| d.tag);
    assert!(
        done.iter()
            .enumerate()
            .all(|(i, d)| d.tag.0 == i as u64 && d.result.is_ok())
    );
    assert_eq!(submitter.in_flight(), 0);
}

#[test]
fn commands_of_a_thread_that_has_ended_are_still_done() {
    let place = place();
    let Some((submitter, mut reaper)) = ring(&place.path, 64) else {
        return;
    };
    let submitter = Mutex::new(submitter);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut commands: Vec<_> = (0..30).map(|i| write(i, i * 65536, 3, 65536)).collect();
            commands.push(other(30, MemberOp::Flush));
            submitter
                .lock()
                .expect("lock")
                .submit(&mut commands, &mut Vec::new());
        });
    });
    assert!(wait_for(&mut reaper, 31).iter().all(|d| d.result.is_ok()));
}

#[test]
fn discards_come_back_through_the_reaper() {
    let place = place();
    let Some((mut submitter, mut reaper)) = ring(&place.path, 4) else {
        return;
    };
    submitter.submit(&mut vec![write(0, 0, 7, 65536)], &mut Vec::new());
    wait_for(&mut reaper, 1);
    let mut done = Vec::new();
    submitter.submit(
        &mut (1..6)
            .map(|i| {
                other(
                    i,
                    MemberOp::Discard {
                        offset: i * 4096,
                        length: 4096,
                    },
                )
            })
            .collect(),
        &mut done,
    );
    assert!(done.is_empty());
    assert!(
        wait_for(&mut reaper, 5)
            .iter()
            .all(|d| d.result.is_ok() && d.buf.is_none())
    );
    submitter.submit(
        &mut vec![other(
            9,
            MemberOp::Read {
                offset: 0,
                buf: Buf::unpooled(65536),
            },
        )],
        &mut done,
    );
    let read = wait_for(&mut reaper, 1).remove(0).buf.expect("buffer");
    let first_bytes: Vec<u8> = read.chunks(4096).map(|block| block[0]).collect();
    assert_eq!(first_bytes[..8], [7, 0, 0, 0, 0, 0, 7, 7]);
    assert_eq!(submitter.in_flight(), 0);
}

#[test]
fn a_file_cut_short_gives_an_error_and_not_stale_bytes() {
    let place = place();
    let Some((mut submitter, mut reaper)) = ring(&place.path, 4) else {
        return;
    };
    std::fs::OpenOptions::new()
        .write(true)
        .open(&place.path)
        .expect("open")
        .set_len(12288)
        .expect("truncate");
    submitter.submit(
        &mut vec![other(
            0,
            MemberOp::Read {
                offset: 8192,
                buf: Buf::unpooled(8192),
            },
        )],
        &mut Vec::new(),
    );
    let error = wait_for(&mut reaper, 1)[0]
        .result
        .expect_err("half of it is gone");
    assert_eq!(
        (error.kind, error.code, error.offset),
        (MemberErrorKind::Media, libc::EIO, 12288)
    );
}

#[test]
fn dropping_a_busy_queue_waits_for_the_kernel_and_releases_the_member() {
    let place = place();
    for _ in 0..20 {
        let Some((mut submitter, reaper)) = ring(&place.path, 8) else {
            return;
        };
        let waker = reaper.waker();
        let mut commands: Vec<_> = (0..40).map(|i| write(i, i * 65536, 9, 65536)).collect();
        commands.push(other(99, MemberOp::Flush));
        submitter.submit(&mut commands, &mut Vec::new());
        drop(submitter);
        drop(reaper);
        waker.wake();
        let options = OpenOptions {
            lock_patience: Duration::from_secs(10),
            ..OpenOptions::default()
        };
        FileMember::open(&place.path, &options).expect("the lock is free again");
    }
}

#[test]
fn a_member_without_a_descriptor_is_refused() {
    let ram = crate::RamMember::new(SIZE, crate::RamAllocation::Sparse).expect("memory");
    assert!(uring(vec![Some(Arc::new(ram))], 8).is_err());
}

mod table {
    use super::*;

    /// A table over members that are never accessed.
    fn of(capacity: u32, members: usize) -> Table {
        let mut table = Table::new(capacity, vec![None; members]).expect("no member");
        table.records = (0..members)
            .map(|_| {
                Some(MemberRecord {
                    fd: 0,
                    sector: 512,
                    flush_failed: false,
                })
            })
            .collect();
        table
    }

    fn one(command: MemberCommand) -> Table {
        let mut table = of(2, 1);
        table.waiting.push(command);
        let mut entries = Vec::new();
        table.fill(&mut entries);
        assert_eq!((entries.len(), table.occupied()), (1, 1));
        table
    }

    fn again(outcome: Option<Outcome>) -> u32 {
        match outcome {
            Some(Outcome::Again(_, retries)) => retries,
            _ => panic!("must continue"),
        }
    }

    fn over(outcome: Option<Outcome>) -> MemberDone {
        match outcome {
            Some(Outcome::Done(done)) => done,
            _ => panic!("must be over"),
        }
    }

    #[test]
    fn short_transfers_are_continued_from_the_last_whole_sector() {
        let mut table = one(write(5, 4096, 1, 8192));
        assert_eq!(again(table.complete(0, 1024)), 0);
        assert_eq!(again(table.complete(0, 3000)), 0, "2560 of them count");
        assert_eq!(again(table.complete(0, -libc::EINTR)), 1);
        assert_eq!(again(table.complete(0, -libc::ECANCELED)), 2);
        let done = over(table.complete(0, 8192 - 1024 - 2560));
        assert!(done.result.is_ok() && done.tag == IoTag(5) && table.occupied() == 0);
        assert!(
            table.complete(0, 0).is_none() && table.complete(77, 0).is_none(),
            "unknown completions are ignored"
        );
    }

    #[test]
    fn errors_end_it_at_the_offset_reached() {
        let mut table = one(write(5, 4096, 1, 8192));
        again(table.complete(0, 4096));
        let error = over(table.complete(0, -libc::EIO))
            .result
            .expect_err("error");
        assert_eq!((error.kind, error.offset), (MemberErrorKind::Media, 8192));
        let mut table = one(write(5, 4096, 1, 8192));
        assert_eq!(
            over(table.complete(0, 100))
                .result
                .expect_err("no progress")
                .code,
            libc::EIO
        );
        let mut table = one(other(5, MemberOp::Flush));
        for _ in 0..4096 {
            again(table.complete(0, -libc::EAGAIN));
        }
        assert_eq!(
            over(table.complete(0, -libc::EAGAIN))
                .result
                .expect_err("enough")
                .code,
            libc::EAGAIN
        );
    }

    #[test]
    fn flushes_of_one_member_go_one_at_a_time() {
        let mut table = of(4, 2);
        let flush = |member, tag| MemberCommand {
            member: MemberId(member),
            tag: IoTag(tag),
            op: MemberOp::Flush,
        };
        [flush(0, 1), flush(0, 2), flush(1, 3), flush(0, 4)]
            .into_iter()
            .for_each(|command| table.waiting.push(command));
        let mut entries = Vec::new();
        table.fill(&mut entries);
        assert_eq!(entries.len(), 2, "one of each member");
        let mut order = Vec::new();
        for _ in 0..3 {
            order.push(over(table.complete(0, 0)).tag.0);
            table.fill(&mut entries);
        }
        assert_eq!((order, entries.len()), (vec![1, 2, 4], 4));
        assert_eq!(over(table.complete(1, 0)).tag.0, 3);
        assert_eq!(table.occupied(), 0);
    }
}

#[test]
fn nothing_is_exchanged_under_a_command_in_flight() {
    let mut table = Table::new(4, vec![None, None]).expect("no member");
    table.records[0] = Some(MemberRecord {
        fd: 0,
        sector: 512,
        flush_failed: true,
    });
    table.waiting.push(write(5, 4096, 1, 8192));
    assert_eq!(
        table
            .exchange(MemberId(0), None)
            .expect_err("it waits")
            .kind(),
        io::ErrorKind::ResourceBusy
    );
    table.fill(&mut Vec::new());
    assert_eq!(
        table
            .exchange(MemberId(0), None)
            .expect_err("the kernel has it")
            .kind(),
        io::ErrorKind::ResourceBusy
    );
    assert!(table.complete(0, 8192).is_some());
    table.exchange(MemberId(0), None).expect("at rest");
    table.exchange(MemberId(5), None).expect("the table grows");
    assert!(table.records[0].is_none() && table.members.len() == 6);
}

mod lane;
mod mute;

#[test]
fn after_a_failed_flush_none_succeeds() {
    let (first, second) = (place(), place());
    let Some((mut submitter, reaper)) = ring(&first.path, 4) else {
        return;
    };
    let item = |result| MemberDone {
        member: MemberId(0),
        tag: IoTag(0),
        buf: None,
        result,
    };
    let mut done = [
        item(Ok(())),
        item(Err(DeviceError::from_code(libc::EIO, 0).of(MemberId(0)))),
        item(Ok(())),
    ];
    reaper.latch_failed_flushes(&mut done);
    assert_eq!(done.map(|d| d.result.is_ok()), [true, false, false]);
    let mut refused = Vec::new();
    submitter.submit(&mut vec![other(1, MemberOp::Flush)], &mut refused);
    assert_eq!(
        refused[0].result.expect_err("latched").kind,
        MemberErrorKind::Gone
    );
    // That was the device, not its slot.
    let other_device = FileMember::open(&second.path, &OpenOptions::default()).expect("open");
    submitter
        .exchange(MemberId(0), Some(Arc::new(other_device)))
        .expect("exchanged");
    submitter.submit(&mut vec![other(2, MemberOp::Flush)], &mut refused);
    assert_eq!(refused.len(), 1, "it is in flight");
}

/// Two helpers end close together: the reaper takes both results with the signal of the first, and
/// the second signal is empty.
#[test]
fn an_empty_signal_does_not_stop_later_wakeups() {
    let place = place();
    for round in 0..20 {
        let Some((submitter, mut reaper)) = ring(&place.path, 4) else {
            return;
        };
        let waker = reaper.waker();
        let (tell, told) = mpsc::channel();
        submitter.shared.signal();
        let reaping = std::thread::spawn(move || {
            reaper.wait(&mut Vec::new()).expect("ring");
            tell.send(()).expect("the test waits for it");
        });
        while is_rung(&submitter.shared) && !reaping.is_finished() {
            std::thread::yield_now();
        }
        waker.wake();
        assert!(
            told.recv_timeout(FOR_EVER).is_ok(),
            "round {round}: the waker was not heard"
        );
        reaping.join().expect("thread");
    }
}

fn is_rung(shared: &Shared) -> bool {
    let mut fds = [rustix::event::PollFd::new(
        &shared.event,
        rustix::event::PollFlags::IN,
    )];
    rustix::event::poll(
        &mut fds,
        Some(&rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        }),
    )
    .expect("poll")
        == 1
}

#[test]
fn discards_of_several_members_all_come_back() {
    let places: Vec<Place> = (0..4).map(|_| place()).collect();
    if ring(&places[0].path, 4).is_none() {
        return;
    }
    let (mut submitter, mut reaper) = uring(
        places
            .iter()
            .flat_map(|place| member(&place.path))
            .collect(),
        16,
    )
    .expect("ring");
    let (tell, told) = mpsc::channel();
    let rounds = 300;
    let reaping = std::thread::spawn(move || {
        let mut left = rounds * 4;
        while left > 0 {
            let done = wait_for(&mut reaper, 1);
            left -= done.len() as u64;
            done.iter()
                .for_each(|_| tell.send(()).expect("the test waits for it"));
        }
    });
    for round in 0..rounds {
        let discard = |member| MemberCommand {
            member: MemberId(member),
            ..other(
                round,
                MemberOp::Discard {
                    offset: 4096 * round,
                    length: 4096,
                },
            )
        };
        submitter.submit(&mut (0..4).map(discard).collect(), &mut Vec::new());
        let came = (0..4)
            .take_while(|_| told.recv_timeout(FOR_EVER).is_ok())
            .count();
        assert_eq!((round, came), (round, 4));
    }
    reaping.join().expect("thread");
}

/// Commands of a hung member must not occupy all of the kernel's workers for a ring (by default
/// four per processor).
#[test]
fn the_kernel_may_have_a_worker_for_each_command() {
    let place = place();
    let Some((submitter, _reaper)) = ring(&place.path, 64) else {
        return;
    };
    // Zeroes change nothing and return the current values.
    let mut workers = [0, 0];
    match submitter
        .shared
        .ring
        .submitter()
        .register_iowq_max_workers(&mut workers)
    {
        Ok(()) => assert!(workers[0] > 64, "{workers:?}"),
        Err(error) => eprintln!("SKIPPED: this kernel has no bound that can be set: {error}"),
    }
}

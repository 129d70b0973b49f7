use super::*;
use crate::{
    Allocation, Fault, FaultKind, FaultyMember, FileMember, OpenOptions, RamAllocation, RamMember,
    create_file,
};
use windrow_io::{Buf, IoTag};
use windrow_types::MemberId;

const SIZE: u64 = 2 << 20;

fn files(folder: &tempfile::TempDir, count: usize) -> Members {
    let open = |i: usize| -> Option<Arc<dyn Member>> {
        let path = folder.path().join(format!("member-{i}"));
        create_file(&path, SIZE, Allocation::Preallocate).expect("create");
        Some(Arc::new(
            FileMember::open(&path, &OpenOptions::default()).expect("open"),
        ))
    };
    (0..count).map(open).collect()
}

fn rams(count: usize) -> Members {
    (0..count)
        .map(|_| {
            Some(
                Arc::new(RamMember::new(SIZE, RamAllocation::Sparse).expect("memory"))
                    as Arc<dyn Member>,
            )
        })
        .collect()
}

fn filled(byte: u8, length: usize) -> Buf {
    let mut buf = Buf::unpooled(length);
    buf.fill(byte);
    buf
}

fn command(member: u8, tag: u64, op: MemberOp) -> MemberCommand {
    MemberCommand {
        member: MemberId(member),
        tag: IoTag(tag),
        op,
    }
}

/// Submits everything and waits for everything; results by tag.
fn run(
    submitter: &mut dyn Queue,
    reaper: &mut dyn Reap,
    mut commands: Vec<MemberCommand>,
) -> Vec<MemberDone> {
    let total = commands.len();
    let mut done = Vec::new();
    submitter.submit(&mut commands, &mut done);
    assert!(commands.is_empty());
    while done.len() < total {
        reaper.wait(&mut done).expect("queue");
    }
    assert_eq!((done.len(), submitter.in_flight()), (total, 0));
    done.sort_by_key(|item| item.tag);
    assert!(
        done.windows(2).all(|pair| pair[0].tag != pair[1].tag),
        "each exactly once"
    );
    done
}

/// One table for each kind of queue, all with an absent member 1.
fn kinds(folder: &tempfile::TempDir) -> Vec<(Members, QueueOptions)> {
    let options = |kind| QueueOptions {
        kind,
        depth: 8,
        threads: 3,
    };
    let mut kinds = vec![
        (rams(3), options(QueueKind::Inline)),
        (rams(3), options(QueueKind::Threaded)),
        (files(folder, 3), options(QueueKind::Automatic)),
    ];
    kinds.iter_mut().for_each(|(members, _)| members[1] = None);
    kinds
}

#[test]
fn many_more_commands_than_places_all_come_back_with_the_right_bytes() {
    let folder = tempfile::tempdir().expect("folder");
    for (members, options) in kinds(&folder) {
        let (mut submitter, mut reaper) = open(members, &options).expect("open");
        let blocks = SIZE / 4096;
        let write = |i: u64| {
            command(
                (i % 2) as u8 * 2,
                i,
                MemberOp::Write {
                    offset: i / 2 * 4096,
                    buf: filled(i as u8, 4096),
                },
            )
        };
        let done = run(
            &mut submitter,
            &mut reaper,
            (0..2 * blocks).map(write).collect(),
        );
        assert!(
            done.iter()
                .all(|d| d.result.is_ok() && d.buf.as_ref().is_some_and(|b| b.len() == 4096))
        );
        let flush = |i: u64| command((i % 2) as u8 * 2, i, MemberOp::Flush);
        assert!(
            run(&mut submitter, &mut reaper, (0..20).map(flush).collect())
                .iter()
                .all(|d| d.result.is_ok() && d.buf.is_none())
        );
        let read = |i: u64| {
            command(
                (i % 2) as u8 * 2,
                i,
                MemberOp::Read {
                    offset: i / 2 * 4096,
                    buf: Buf::unpooled(4096),
                },
            )
        };
        for item in run(
            &mut submitter,
            &mut reaper,
            (0..2 * blocks).map(read).collect(),
        ) {
            assert!(
                item.buf
                    .expect("buffer")
                    .iter()
                    .all(|b| *b == item.tag.0 as u8),
                "block {}",
                item.tag.0
            );
        }
    }
}

#[test]
fn what_cannot_be_done_is_refused_and_the_buffer_comes_back() {
    let folder = tempfile::tempdir().expect("folder");
    for (members, options) in kinds(&folder) {
        let (mut submitter, mut reaper) = open(members, &options).expect("open");
        let cases = vec![
            command(
                1,
                0,
                MemberOp::Read {
                    offset: 0,
                    buf: Buf::unpooled(4096),
                },
            ),
            command(
                9,
                1,
                MemberOp::Write {
                    offset: 0,
                    buf: Buf::unpooled(4096),
                },
            ),
            command(
                0,
                2,
                MemberOp::Write {
                    offset: SIZE - 4096,
                    buf: Buf::unpooled(8192),
                },
            ),
            command(
                0,
                3,
                MemberOp::Read {
                    offset: 100,
                    buf: Buf::unpooled(4096),
                },
            ),
            command(1, 4, MemberOp::Flush),
            command(
                0,
                5,
                MemberOp::Discard {
                    offset: SIZE,
                    length: 4096,
                },
            ),
            command(
                0,
                6,
                MemberOp::Discard {
                    offset: 0,
                    length: 4096,
                },
            ),
            command(
                0,
                7,
                MemberOp::Write {
                    offset: 0,
                    buf: Buf::unpooled(0),
                },
            ),
        ];
        let done = run(&mut submitter, &mut reaper, cases);
        let codes: Vec<i32> = done
            .iter()
            .map(|d| d.result.err().map_or(0, |e| e.code))
            .collect();
        assert_eq!(
            codes,
            [
                libc::ENODEV,
                libc::ENODEV,
                libc::ERANGE,
                libc::EINVAL,
                libc::ENODEV,
                libc::ERANGE,
                0,
                0
            ]
        );
        assert!(
            done.iter()
                .all(|d| d.buf.is_some() == matches!(d.tag.0, 0..=3 | 7))
        );
        assert_eq!(done[1].result.expect_err("refused").member, MemberId(9));
        assert_eq!(
            std::fs::metadata(folder.path().join("member-0"))
                .expect("metadata")
                .len(),
            SIZE,
            "no write grows a file"
        );
    }
}

#[test]
fn another_device_replaces_a_member() {
    let folder = tempfile::tempdir().expect("folder");
    for (members, options) in kinds(&folder) {
        let automatic = options.kind == QueueKind::Automatic;
        let (mut submitter, mut reaper) = open(members, &options).expect("open");
        let first = run(
            &mut submitter,
            &mut reaper,
            vec![command(
                0,
                0,
                MemberOp::Write {
                    offset: 0,
                    buf: filled(7, 4096),
                },
            )],
        );
        assert!(first[0].result.is_ok());
        let folder = tempfile::tempdir().expect("folder");
        let mut others = if automatic {
            files(&folder, 3)
        } else {
            rams(3)
        };
        for (member, device) in [0, 1, 5].into_iter().zip(others.drain(..)) {
            submitter
                .exchange(MemberId(member), device)
                .expect("exchanged");
        }
        for member in [0, 1, 5] {
            let read = |tag| {
                command(
                    member,
                    tag,
                    MemberOp::Read {
                        offset: 0,
                        buf: filled(9, 4096),
                    },
                )
            };
            let done = run(
                &mut submitter,
                &mut reaper,
                vec![read(0), command(member, 1, MemberOp::Flush)],
            );
            assert!(done.iter().all(|d| d.result.is_ok()));
            assert!(
                done[0]
                    .buf
                    .as_ref()
                    .expect("buffer")
                    .iter()
                    .all(|b| *b == 0),
                "nothing was written to this one"
            );
        }
        submitter.exchange(MemberId(0), None).expect("taken away");
        assert_eq!(
            run(
                &mut submitter,
                &mut reaper,
                vec![command(0, 0, MemberOp::Flush)]
            )[0]
            .result
            .expect_err("gone")
            .code,
            libc::ENODEV
        );
    }
}

#[test]
fn a_waker_ends_the_wait_from_another_thread() {
    let folder = tempfile::tempdir().expect("folder");
    for (members, options) in kinds(&folder) {
        let (mut submitter, mut reaper) = open(members, &options).expect("open");
        for _ in 0..3 {
            let waker = reaper.waker();
            std::thread::scope(|scope| {
                scope.spawn(move || waker.wake());
                reaper.wait(&mut Vec::new()).expect("queue");
            });
        }
        let done = run(
            &mut submitter,
            &mut reaper,
            vec![command(0, 1, MemberOp::Flush)],
        );
        assert!(done[0].result.is_ok());
    }
}

#[test]
fn errors_carry_member_kind_and_offset_and_a_panic_is_an_error_too() {
    struct Panicking(RamMember);
    impl Member for Panicking {
        fn info(&self) -> &crate::MemberInfo {
            self.0.info()
        }
        fn read_at(&self, _offset: u64, _buf: &mut [u8]) -> Result<(), DeviceError> {
            panic!("a bug in a member")
        }
        fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
            self.0.write_at(offset, data)
        }
        fn flush(&self) -> Result<(), DeviceError> {
            self.0.flush()
        }
        fn discard(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
            self.0.discard(offset, length)
        }
        fn raw_fd(&self) -> Option<std::os::fd::RawFd> {
            None
        }
    }
    let ram = || RamMember::new(SIZE, RamAllocation::Sparse).expect("memory");
    for kind in [QueueKind::Inline, QueueKind::Threaded] {
        let faulty = FaultyMember::new(ram());
        faulty.add(Fault {
            kind: FaultKind::ReadError(MemberErrorKind::Media),
            range: 8192..8193,
            strikes: None,
        });
        let members: Members = vec![
            None,
            Some(Arc::new(faulty)),
            Some(Arc::new(Panicking(ram()))),
        ];
        let (mut submitter, mut reaper) = open(
            members,
            &QueueOptions {
                kind,
                ..QueueOptions::default()
            },
        )
        .expect("open");
        let read = |member, tag, offset| {
            command(
                member,
                tag,
                MemberOp::Read {
                    offset,
                    buf: Buf::unpooled(4096),
                },
            )
        };
        let done = run(
            &mut submitter,
            &mut reaper,
            vec![read(1, 0, 4096), read(1, 1, 8192), read(2, 2, 4096)],
        );
        assert!(done[0].result.is_ok());
        let error = done[1].result.expect_err("injected");
        assert_eq!(
            (error.member, error.kind, error.offset),
            (MemberId(1), MemberErrorKind::Media, 8192)
        );
        let error = done[2].result.expect_err("panic");
        assert_eq!(
            (error.member, error.kind, error.offset),
            (MemberId(2), MemberErrorKind::Other, 4096)
        );
    }
}

/// Memory whose reads wait for the gate to open.
struct Gated {
    memory: RamMember,
    open: Arc<(Mutex<bool>, Condvar)>,
}

impl Member for Gated {
    fn info(&self) -> &crate::MemberInfo {
        self.memory.info()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        let guard = self.open.0.lock().expect("gate");
        drop(self.open.1.wait_while(guard, |open| !*open).expect("gate"));
        self.memory.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.memory.write_at(offset, data)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        self.memory.flush()
    }
    fn discard(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.memory.discard(offset, length)
    }
    fn raw_fd(&self) -> Option<std::os::fd::RawFd> {
        None
    }
}

#[test]
fn a_member_that_answers_nothing_keeps_no_threads_from_others() {
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let gated = |_| {
        let memory = RamMember::new(SIZE, RamAllocation::Sparse).expect("memory");
        Some(Arc::new(Gated {
            memory,
            open: gate.clone(),
        }) as Arc<dyn Member>)
    };
    // Two of four are unresponsive.
    let members: Members = (0..2).map(gated).chain(rams(2)).collect();
    let (mut submitter, reaper) = threaded(members, 16).expect("threads");
    let read = |member, tag| {
        command(
            member,
            tag,
            MemberOp::Read {
                offset: 0,
                buf: Buf::unpooled(4096),
            },
        )
    };
    submitter.submit(
        &mut (0..100).map(|tag| read((tag % 2) as u8, tag)).collect(),
        &mut Vec::new(),
    );
    // The reaper runs on its own thread: a failing test must not wait forever.
    let (results, ends) = std::sync::mpsc::channel();
    let reaping = std::thread::spawn(move || {
        let (mut reaper, mut total) = (reaper, 0);
        while total < 150 {
            let mut done = Vec::new();
            reaper.wait(&mut done).expect("queue");
            total += done.len();
            done.into_iter().for_each(|item| drop(results.send(item)));
        }
    });
    let next = || ends.recv_timeout(std::time::Duration::from_secs(10)).ok();
    let mut others = Vec::new();
    for tag in 100..150 {
        submitter.submit(&mut vec![read(2 + (tag % 2) as u8, tag)], &mut Vec::new());
        let Some(item) = next() else { break };
        others.push(item.tag.0);
    }
    *gate.0.lock().expect("gate") = true;
    gate.1.notify_all();
    assert_eq!(
        others,
        (100..150).collect::<Vec<_>>(),
        "they do not wait for the unresponsive ones"
    );
    let mut late: Vec<_> = (0..100)
        .filter_map(|_| next())
        .map(|item| item.tag.0)
        .collect();
    late.sort_unstable();
    assert_eq!(
        late,
        (0..100).collect::<Vec<_>>(),
        "each comes back when its member answers"
    );
    reaping.join().expect("thread");
    assert_eq!(submitter.in_flight(), 0);
}

/// A device must not be exchanged under a command that a thread is running: the check for busy must
/// include running commands, not only waiting ones.
#[test]
fn nothing_is_exchanged_under_a_command_that_a_thread_runs() {
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let memory = RamMember::new(SIZE, RamAllocation::Sparse).expect("memory");
    let gated = Arc::new(Gated {
        memory,
        open: gate.clone(),
    });
    let (mut submitter, mut reaper) = threaded(vec![Some(gated)], 2).expect("threads");
    submitter.submit(
        &mut vec![command(
            0,
            1,
            MemberOp::Read {
                offset: 0,
                buf: Buf::unpooled(4096),
            },
        )],
        &mut Vec::new(),
    );
    while submitter.has_waiting(MemberId(0)) {
        std::thread::yield_now();
    }
    let refused = submitter
        .exchange(MemberId(0), None)
        .map_err(|error| error.kind());
    *gate.0.lock().expect("gate") = true;
    gate.1.notify_all();
    assert_eq!(
        refused,
        Err(io::ErrorKind::ResourceBusy),
        "a thread runs it"
    );
    reaper.wait(&mut Vec::new()).expect("queue");
    submitter
        .exchange(MemberId(0), None)
        .expect("after the end was returned the device may be exchanged");
}

/// A kernel with room for the trial ring but not for the queue's ring must not fail the start of
/// the pool.
#[test]
fn without_room_for_the_ring_threads_are_chosen() {
    let folder = tempfile::tempdir().expect("folder");
    let no_room = |_, _| Err(io::ErrorKind::OutOfMemory.into());
    let members = files(&folder, 2);
    let opened = |kind| {
        open_with(
            members.clone(),
            &QueueOptions {
                kind,
                ..QueueOptions::default()
            },
            no_room,
        )
        .map(|(submitter, _)| submitter.kind())
    };
    assert_eq!(
        opened(QueueKind::Automatic).expect("threads do"),
        QueueKind::Threaded
    );
    assert_eq!(
        opened(QueueKind::Uring)
            .expect_err("it was asked for")
            .kind(),
        io::ErrorKind::OutOfMemory
    );
}

#[test]
fn the_automatic_choice() {
    let folder = tempfile::tempdir().expect("folder");
    let kind = |members: Members| {
        open(members, &QueueOptions::default())
            .expect("open")
            .0
            .kind()
    };
    assert_eq!(kind(rams(2)), QueueKind::Inline);
    let with_files = kind(files(&folder, 2));
    assert_eq!(
        with_files,
        if uring_available() {
            QueueKind::Uring
        } else {
            QueueKind::Threaded
        }
    );
    let folder = tempfile::tempdir().expect("folder");
    let mut mixed = files(&folder, 2);
    mixed.extend(rams(1));
    assert_eq!(kind(mixed), QueueKind::Threaded);
}

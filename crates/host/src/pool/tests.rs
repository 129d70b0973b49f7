use super::*;
use crate::driver::tests::{Collector, FakeMachine, request, write};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use windrow_device::queue::QueueKind;
use windrow_device::{
    Allocation, FileMember, Member, OpenOptions, RamAllocation, RamMember, create_file,
};
use windrow_io::Reply;

fn start(table: MemberTable, kind: QueueKind) -> Pool {
    start_with(FakeMachine::new(), table, kind)
}

fn start_with(machine: FakeMachine, table: MemberTable, kind: QueueKind) -> Pool {
    let options = HostOptions {
        queue: QueueOptions {
            kind,
            ..QueueOptions::default()
        },
        ..HostOptions::default()
    };
    Pool::start_machine(Box::new(machine), table, BufPool::new(1 << 20), options).unwrap()
}

fn ram() -> MemberTable {
    vec![Some(
        Arc::new(RamMember::new(1 << 20, RamAllocation::Preallocate).unwrap()) as Arc<dyn Member>,
    )]
}

fn read_everything(pool: &Pool) {
    let sink = Arc::new(Collector::default());
    let session = pool.open("data", sink.clone()).unwrap();
    let (mut requests, mut ready) = (Vec::new(), Vec::new());
    for id in 0..64 {
        requests.push(request(
            id,
            Op::Read {
                offset: id * 4096,
                length: 4096,
            },
        ));
    }
    session.submit(&mut requests, &mut ready);
    let mut all = sink.wait(64 - ready.len());
    all.append(&mut ready);
    assert_eq!(all.len(), 64);
    for completion in all {
        let Ok(Reply::Data(data)) = completion.result else {
            panic!("a read failed: {completion:?}")
        };
        assert!(
            data.iter()
                .all(|part| part.iter().all(|byte| *byte == completion.id.0 as u8))
        );
    }
}

#[test]
fn member_commands_come_back_by_every_kind_of_queue() {
    let table = ram();
    for block in 0..64u64 {
        table[0]
            .as_ref()
            .unwrap()
            .write_at(block * 4096, &[block as u8; 4096])
            .unwrap();
    }
    read_everything(&start(table, QueueKind::Automatic));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("member");
    create_file(&path, 1 << 20, Allocation::Preallocate).unwrap();
    let member: Arc<dyn Member> =
        Arc::new(FileMember::open(&path, &OpenOptions::default()).unwrap());
    for block in 0..64u64 {
        member.write_at(block * 4096, &[block as u8; 4096]).unwrap();
    }
    for kind in [QueueKind::Threaded, QueueKind::Automatic] {
        read_everything(&start(vec![Some(member.clone())], kind));
    }
}

/// A pool over one file whose block `n` is full of `n`.
fn on_file(path: &std::path::Path, machine: FakeMachine) -> Pool {
    create_file(path, 1 << 20, Allocation::Preallocate).unwrap();
    let member: Arc<dyn Member> =
        Arc::new(FileMember::open(path, &OpenOptions::default()).unwrap());
    for block in 0..64u64 {
        member.write_at(block * 4096, &[block as u8; 4096]).unwrap();
    }
    start_with(machine, vec![Some(member)], QueueKind::Automatic)
}

fn check_read(completion: &Completion) {
    let Ok(Reply::Data(data)) = &completion.result else {
        panic!("a read failed: {completion:?}")
    };
    assert!(
        data.iter()
            .all(|part| part.iter().all(|byte| *byte == completion.id.0 as u8))
    );
}

#[test]
fn a_thread_that_attends_to_its_session_gets_its_reads_itself() {
    let dir = tempfile::tempdir().unwrap();
    let pool = on_file(&dir.path().join("member"), FakeMachine::new());
    let sink = Arc::new(Collector::default());
    let session = pool.open("data", sink.clone()).unwrap();
    let Some(fd) = session.attend() else {
        eprintln!("SKIPPED: no io_uring here");
        return;
    };
    let mut own_rounds = 0;
    for _ in 0..50 {
        let mut requests: Vec<_> = (0..64)
            .map(|id| {
                request(
                    id,
                    Op::Read {
                        offset: id * 4096,
                        length: 4096,
                    },
                )
            })
            .collect();
        let (mut ready, mut others, mut waits) = (Vec::new(), Vec::new(), 0);
        session.submit(&mut requests, &mut ready);
        while ready.len() + others.len() < 64 {
            let mut fds = [rustix::event::PollFd::from_borrowed_fd(
                fd,
                rustix::event::PollFlags::IN,
            )];
            let a_moment = rustix::event::Timespec {
                tv_sec: 0,
                tv_nsec: 10_000_000,
            };
            if rustix::event::poll(&mut fds, Some(&a_moment)).unwrap() == 1 {
                while session.progress(&mut ready) {}
            }
            // If the clock's thread drives just then, it takes the requests along, and their
            // completions take the common queue.
            others.append(&mut sink.wait(0));
            waits += 1;
            assert!(waits < 2000, "reads ended without a completion");
        }
        ready.iter().chain(&others).for_each(check_read);
        own_rounds += u32::from(others.is_empty());
    }
    assert!(own_rounds > 0, "never its own");
}

#[test]
fn a_session_does_not_close_before_its_reads_are_reported_to_the_engine() {
    let dir = tempfile::tempdir().unwrap();
    let machine = FakeMachine::new();
    let ended = machine.ended.clone();
    let pool = on_file(&dir.path().join("member"), machine);
    let session = pool.open("data", Arc::new(Collector::default())).unwrap();
    if session.attend().is_none() {
        eprintln!("SKIPPED: no io_uring here");
        return;
    }
    let mut requests: Vec<_> = (0..64)
        .map(|id| {
            request(
                id,
                Op::Read {
                    offset: id * 4096,
                    length: 4096,
                },
            )
        })
        .collect();
    session.submit(&mut requests, &mut Vec::new());
    // The client is gone: the lane has no thread any more, but its reads may be those of others.
    drop(session);
    // If the clock's thread drove just then, it took the requests along, and their completions take
    // the common queue, a little later.
    let patience = Instant::now();
    while ended.load(Ordering::Relaxed) < 64 {
        assert!(
            patience.elapsed() < Duration::from_secs(30),
            "{} of 64 reads ended",
            ended.load(Ordering::Relaxed)
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(
        (ended.load(Ordering::Relaxed), pool.0.driver.lanes.in_use()),
        (64, 0)
    );
}

/// Reads of this member wait until the other end of its pipe is closed.
struct Mute {
    info: windrow_device::MemberInfo,
    pipe: std::io::PipeReader,
}

impl Member for Mute {
    fn info(&self) -> &windrow_device::MemberInfo {
        &self.info
    }
    fn read_at(&self, _: u64, _: &mut [u8]) -> Result<(), windrow_device::DeviceError> {
        unreachable!("reads go through the ring")
    }
    fn write_at(&self, _: u64, _: &[u8]) -> Result<(), windrow_device::DeviceError> {
        unreachable!("nothing is written")
    }
    fn flush(&self) -> Result<(), windrow_device::DeviceError> {
        unreachable!("nothing is flushed")
    }
    fn discard(&self, _: u64, _: u64) -> Result<(), windrow_device::DeviceError> {
        unreachable!("nothing is discarded")
    }
    fn raw_fd(&self) -> Option<std::os::fd::RawFd> {
        Some(std::os::fd::AsRawFd::as_raw_fd(&self.pipe))
    }
}

/// An unresponsive member must not hold the thread and slot of a closed connection, or no client is
/// admitted in the end.
#[test]
fn a_session_closes_although_a_member_never_answers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("member");
    create_file(&path, 1 << 20, Allocation::Preallocate).unwrap();
    for _ in 0..50 {
        let info = FileMember::open(&path, &OpenOptions::default())
            .unwrap()
            .info()
            .clone();
        let (pipe, other_end) = std::io::pipe().unwrap();
        let mute: Arc<dyn Member> = Arc::new(Mute { info, pipe });
        let pool = start_with(FakeMachine::new(), vec![Some(mute)], QueueKind::Automatic);
        let session = pool.open("data", Arc::new(Collector::default())).unwrap();
        if session.attend().is_none() {
            eprintln!("SKIPPED: no io_uring here");
            return;
        }
        let mut requests = vec![request(
            0,
            Op::Read {
                offset: 0,
                length: 4096,
            },
        )];
        session.submit(&mut requests, &mut Vec::new());
        drop(session);
        let has_waiters = pool.0.driver.lanes.in_use() == 1;
        drop(other_end);
        while pool.0.driver.lanes.in_use() > 0 {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        // If the clock's thread drove just then, it took the request along: then there was nothing
        // to wait for.
        if has_waiters {
            return assert!(pool.0.driver.sessions.all().is_empty());
        }
    }
    panic!("never its own");
}

/// A device that does not answer must not be waited for with the lock of all changes: spares of
/// other members wait. A pipe in a device's place must not be waited for at all.
#[test]
fn a_device_that_is_to_come_back_is_looked_at_before_others_have_to_wait() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    let pool = on_file(&dir.path().join("member"), FakeMachine::new());
    let (sender, refused) = std::sync::mpsc::channel();
    let _one = crate::sessions::lock(&pool.0.exchanging);
    let other = pool.clone();
    // This thread is left behind if it waits.
    std::thread::spawn(move || {
        drop(sender.send(other.bring_back(windrow_types::MemberId(0), Some(&pipe))))
    });
    let refused = refused
        .recv_timeout(std::time::Duration::from_secs(10))
        .expect("no thread waits for another");
    assert!(
        refused
            .unwrap_err()
            .why
            .contains("it is no member of any pool")
    );
}

/// The exchange of a device holds the lane for a moment. Taking that for an empty lane would drop
/// reads that no other thread completes.
#[test]
fn sessions_that_go_while_devices_are_exchanged_lose_no_read() {
    let dir = tempfile::tempdir().unwrap();
    let machine = FakeMachine::new();
    let ended = machine.ended.clone();
    let pool = on_file(&dir.path().join("member"), machine);
    let over = std::sync::atomic::AtomicBool::new(false);
    let mut lost = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                // A slot without a device: nothing is in flight for it.
                pool.0
                    .driver
                    .lanes
                    .exchange(windrow_types::MemberId(5), None)
                    .unwrap();
            }
        });
        for round in 1..=200 {
            let session = pool.open("data", Arc::new(Collector::default())).unwrap();
            if session.attend().is_none() {
                break;
            }
            let mut ready = Vec::new();
            session.submit(
                &mut (0..64)
                    .map(|id| {
                        request(
                            id,
                            Op::Read {
                                offset: id * 4096,
                                length: 4096,
                            },
                        )
                    })
                    .collect(),
                &mut ready,
            );
            drop(session);
            // If the lane was held just then, reads took the common queue, and end by themselves.
            let patience = std::time::Instant::now() + std::time::Duration::from_secs(60);
            while ended.load(Ordering::Relaxed) < round * 64 && std::time::Instant::now() < patience
            {
                std::thread::yield_now();
            }
            lost += round * 64 - ended.load(Ordering::Relaxed);
            if lost > 0 {
                break;
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(lost, 0);
}

#[test]
fn requests_from_another_thread_than_the_one_that_attends_go_the_common_way() {
    let dir = tempfile::tempdir().unwrap();
    let pool = on_file(&dir.path().join("member"), FakeMachine::new());
    let sink = Arc::new(Collector::default());
    let session = pool.open("data", sink.clone()).unwrap();
    session.attend();
    let mut ready = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            session.submit(
                &mut (0..64)
                    .map(|id| {
                        request(
                            id,
                            Op::Read {
                                offset: id * 4096,
                                length: 4096,
                            },
                        )
                    })
                    .collect(),
                &mut ready,
            )
        });
    });
    let mut all = sink.wait(64 - ready.len());
    all.append(&mut ready);
    all.iter().for_each(check_read);
}

#[test]
fn time_passes_for_the_engine() {
    let pool = start(ram(), QueueKind::Automatic);
    let sink = Arc::new(Collector::default());
    let session = pool.open("data", sink.clone()).unwrap();
    for id in 0..20 {
        let mut ready = Vec::new();
        session.submit(&mut vec![request(id, Op::Flush)], &mut ready);
        if ready.is_empty() {
            sink.wait(1);
        }
    }
    let report = pool.report().unwrap();
    assert_eq!(report.latency.flush.count, 20);
    assert!(
        report.latency.flush.p50_ns < 100_000_000,
        "the wish of the engine counts, not the heartbeat: {:?}",
        report.latency.flush
    );
}

#[test]
fn exports_follow_the_volumes() {
    let pool = start(ram(), QueueKind::Automatic);
    assert!(pool.open("other", Arc::new(Collector::default())).is_err());
    pool.control(Control::VolumeCreate {
        name: "other".to_owned(),
        size_bytes: 8192,
    })
    .unwrap();
    let session = pool.open("other", Arc::new(Collector::default())).unwrap();
    assert_eq!(
        (session.info().size_bytes, session.info().volume),
        (8192, VolumeId(2))
    );
    assert_eq!(
        pool.list()
            .iter()
            .map(|info| info.name.as_str())
            .collect::<Vec<_>>(),
        ["data", "other"]
    );
    pool.add_export(
        "look",
        NamedExport {
            volume: "data".to_owned(),
            read_only: true,
            description: "to look at".to_owned(),
            ..NamedExport::default()
        },
        false,
    )
    .unwrap();
    let session = pool.open("look", Arc::new(Collector::default())).unwrap();
    let mut ready = Vec::new();
    session.submit(&mut vec![write(5)], &mut ready);
    assert!(matches!(ready[0].result, Err(RequestError::ReadOnly)));
    pool.remove_export("look").unwrap();
    assert_eq!(pool.exports().len(), 2);
}

/// Of two concurrent commands, the first to read the engine may finish last: the other one's volume
/// must stay visible.
#[test]
fn an_older_look_at_the_volumes_does_not_win() {
    let pool = start(ram(), QueueKind::Automatic);
    let before = pool.status().unwrap();
    pool.control(Control::VolumeCreate {
        name: "other".to_owned(),
        size_bytes: 8192,
    })
    .unwrap();
    pool.0.catalogue.write().unwrap().take_over(&before);
    assert!(pool.open("other", Arc::new(Collector::default())).is_ok());
}

#[test]
fn after_shutdown_requests_are_answered_with_stopped() {
    let pool = start(ram(), QueueKind::Automatic);
    let session = pool.open("data", Arc::new(Collector::default())).unwrap();
    pool.shutdown(true).unwrap();
    let mut ready = Vec::new();
    session.submit(&mut vec![write(1)], &mut ready);
    assert!(matches!(ready[0].result, Err(RequestError::Stopped)));
    assert!(pool.open("data", Arc::new(Collector::default())).is_err());
    assert_eq!(pool.stop_reason(), None, "an orderly end is no fault");
    assert_eq!(
        pool.control(Control::Checkpoint),
        Err(ControlError::Stopped)
    );
}

/// If it were accepted, the first record of the journal would fail it, again and again.
#[test]
fn a_device_whose_sectors_are_larger_than_what_the_journal_writes_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("member");
    create_file(&path, 1 << 20, Allocation::Preallocate).unwrap();
    let member = FileMember::open(&path, &OpenOptions::default()).unwrap();
    let sector = member.info().logical_sector;
    let failure =
        exchange::check_sector(&member, sector / 2, "cannot replace member 2").unwrap_err();
    assert!(
        failure
            .to_string()
            .contains(&format!("sectors have {sector} bytes")),
        "{failure}"
    );
    exchange::check_sector(&member, sector, "cannot replace member 2").unwrap();
}

/// A device on which another command has put a pool since the probe must not be erased: it is read
/// again under the lock.
#[test]
fn what_others_wrote_since_the_probe_is_not_erased() {
    use crate::offline::{self, Newcomer, tests};
    use crate::registry::Registry;
    let (dir, other, state) = (
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    let pool = tests::open_again(
        &tests::create_pool(dir.path()),
        &Registry::new(state.path()),
    );
    let path = dir.path().join("new");
    create_file(&path, 32 << 20, Allocation::Sparse).unwrap();
    let newcomer = Newcomer {
        path: path.clone(),
        overwrite: true,
    };
    let probed = newcomer.examine("").unwrap();
    let status = pool.status().unwrap();
    let needs = exchange::Needs {
        bytes: 0,
        sector_max: 4096,
        power_safe: false,
    };
    let open = || {
        pool.open_probed(
            &status,
            (windrow_types::MemberId(6), needs),
            &newcomer,
            probed,
            "cannot add it",
        )
        .map(drop)
    };
    std::fs::copy(&tests::create_pool(other.path())[0], &path).unwrap();
    let before = std::fs::read(&path).unwrap();
    let refused = open().unwrap_err();
    assert!(
        refused.id == crate::failure::id::MEMBER_IN_USE
            && refused.why.contains("new")
            && refused.remedy.contains("run it again"),
        "{refused}"
    );
    assert!(std::fs::read(&path).unwrap() == before);
    std::fs::remove_file(&path).unwrap();
    create_file(&path, 32 << 20, Allocation::Sparse).unwrap();
    open().unwrap();
    assert_eq!(
        offline::examine(&path).unwrap().unwrap().label.pool,
        status.pool
    );
    pool.shutdown(false).unwrap();
}

/// A member that comes back may be used without the pool while its lock is waited for: its earlier
/// content proves nothing.
#[test]
fn a_member_that_comes_back_is_read_again_under_the_lock() {
    use crate::offline::{examine, tests};
    let (dir, other, state) = (
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    let paths = tests::create_pool(dir.path());
    let before = examine(&paths[0]).unwrap().unwrap().superblock.unwrap();
    tests::open_again(&paths, &crate::registry::Registry::new(state.path()))
        .shutdown(false)
        .unwrap();
    let bears = || {
        exchange::borne_under_lock(
            &FileMember::open(&paths[0], &OpenOptions::default()).unwrap(),
            &paths[0],
            &before,
        )
    };
    let now = examine(&paths[0]).unwrap().unwrap().superblock;
    assert!(now.as_ref().unwrap().generation > before.generation);
    assert_eq!(bears(), now);
    std::fs::copy(&tests::create_pool(other.path())[0], &paths[0]).unwrap();
    assert_eq!(bears(), None);
}

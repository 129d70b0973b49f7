use super::*;
use crate::HostOptions;
use crate::control::{Command, ControlHandler};
use crate::daemon::{Daemon, create_volume};
use crate::driver::tests::{Collector, request};
use crate::offline::{Newcomer, ScratchSpec, ram_members, scratch_pool};
use windrow_device::{
    Allocation, Fault, FaultKind, FaultyMember, FileMember, Member, OpenOptions, RamAllocation,
    RamMember, create_file,
};
use windrow_engine::{MemberStatus, PoolStatus};
use windrow_frontend::ExportSource;
use windrow_io::{MemberErrorKind, Op, Payload};
use windrow_types::{MemberId, Uuid};

const MIB: u64 = 1 << 20;

/// A pool with these members: state, size in MiB, and MiB that the slot needs.
fn status(members: &[(&'static str, u64, u64)]) -> PoolStatus {
    let mut status = scratch_pool(ram_members(4, 32 << 20).unwrap(), &ScratchSpec::default())
        .unwrap()
        .engine
        .status();
    let any = status.members[0].clone();
    let of = |(slot, (state, size, needed)): (usize, &(&'static str, u64, u64))| MemberStatus {
        member: MemberId(slot as u8),
        state,
        size_bytes: size * MIB,
        needed_bytes: needed * MIB,
        leaving: false,
        ..any.clone()
    };
    status.members = members.iter().enumerate().map(of).collect();
    status
}

/// The vacancies as numbers.
fn of(status: &PoolStatus, patient: bool) -> Vec<(u8, Vec<u8>)> {
    vacancies(status, patient)
        .into_iter()
        .map(|(member, spares)| (member.0, spares.iter().map(|spare| spare.0).collect()))
        .collect()
}

#[test]
fn only_a_member_that_failed_is_replaced_at_once_and_one_that_was_taken_out_never() {
    for (state, at_once, later) in [
        ("online", false, false),
        ("rebuilding", false, false),
        ("faulted", true, true),
        ("missing", false, true),
        ("offline", false, false),
        ("removed", false, false),
        ("spare", false, false),
    ] {
        let mut status = status(&[("online", 30, 30), (state, 30, 30), ("spare", 30, 0)]);
        for (patient, expected) in [(false, at_once), (true, later)] {
            let found = of(&status, patient);
            assert_eq!(
                !found.is_empty(),
                expected,
                "{state}, waited for: {patient}: {found:?}"
            );
            assert!(
                found.iter().all(|vacancy| *vacancy == (1, vec![2])),
                "{found:?}"
            );
        }
        status.members[1].leaving = true;
        assert_eq!(
            of(&status, true),
            [],
            "{state}: nothing comes in the place of one that leaves"
        );
        (status.members[1].leaving, status.members[1].power_safe) = (false, true);
        assert_eq!(
            of(&status, true),
            [],
            "{state}: the spare is not declared power-safe"
        );
    }
}

#[test]
fn the_smallest_spare_that_is_large_enough_is_tried_first() {
    let status = status(&[
        ("faulted", 40, 39),
        ("missing", 20, 20),
        ("spare", 80, 0),
        ("spare", 38, 0),
        ("spare", 39, 0),
        ("spare", 50, 0),
        ("faulted", 90, 90),
    ]);
    assert_eq!(
        of(&status, true),
        [(0, vec![4, 5, 2]), (1, vec![3, 4, 5, 2])],
        "no spare is large enough for the last one"
    );
    assert_eq!(of(&status, false), [(0, vec![4, 5, 2])]);
}

/// A pool in memory that survives the loss of two of its five members; each fails on demand.
struct Failing {
    pool: Pool,
    members: Vec<Arc<FaultyMember<RamMember>>>,
    dir: tempfile::TempDir,
}

impl Failing {
    fn new(spare_patience: Duration) -> Self {
        let member = |_| {
            Arc::new(FaultyMember::new(
                RamMember::new(32 * MIB, RamAllocation::Preallocate).unwrap(),
            ))
        };
        let members: Vec<_> = (0..5).map(member).collect();
        let table = members
            .iter()
            .map(|member| Some(member.clone() as Arc<dyn Member>))
            .collect();
        let opened = scratch_pool(
            table,
            &ScratchSpec {
                segment_rows: Some(64),
                chunk_rows: Some(16),
                ..ScratchSpec::default()
            },
        )
        .unwrap();
        let options = HostOptions {
            spare_patience: Some(spare_patience),
            ..HostOptions::default()
        };
        let pool = Pool::start(opened.engine, opened.members, opened.buffers, options).unwrap();
        create_volume(&pool, "data", 4 * MIB).unwrap();
        Self {
            pool,
            members,
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn add_spare(&self, mib: u64) -> MemberId {
        let path = self.dir.path().join(format!("spare-{mib}"));
        create_file(&path, mib * MIB, Allocation::Sparse).unwrap();
        self.pool
            .add_spare(&Newcomer {
                path,
                overwrite: false,
            })
            .unwrap()
    }

    /// The next write to the member fails, and one comes.
    fn fail(&self, member: usize) {
        self.members[member].add(Fault::everywhere(FaultKind::WriteError(
            MemberErrorKind::Media,
        )));
        let sink = Arc::new(Collector::default());
        let session = self.pool.open("data", sink.clone()).unwrap();
        let write = |block: u64| {
            request(
                block,
                Op::Write {
                    offset: block * 4096,
                    data: Payload::copy_of(&[member as u8 + 1; 4096]),
                    fua: false,
                },
            )
        };
        let mut requests: Vec<_> = (0..64).map(write).chain([request(64, Op::Flush)]).collect();
        let mut ready = Vec::new();
        session.submit(&mut requests, &mut ready);
        let mut all = sink.wait(65 - ready.len());
        all.append(&mut ready);
        assert!(
            all.iter().all(|completion| completion.result.is_ok()),
            "the redundancy covers it"
        );
    }

    fn states(&self) -> Vec<&'static str> {
        self.pool
            .status()
            .unwrap()
            .members
            .iter()
            .map(|member| member.state)
            .collect()
    }

    /// Waits until the members are in these states.
    fn wait_for(&self, states: &[&str]) {
        let end = Instant::now() + Duration::from_secs(60);
        while self.states() != states {
            assert!(
                Instant::now() < end,
                "{:?} instead of {states:?}",
                self.states()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Replacement of a member that fails in service, not only of one that was missing at the start.
#[test]
fn a_member_that_fails_in_service_is_replaced_by_the_smallest_spare_that_fits() {
    // A failed member is replaced at once, without this wait.
    let failing = Failing::new(Duration::from_secs(3600));
    assert_eq!([64, 8, 32].map(|mib| failing.add_spare(mib).0), [5, 6, 7]);
    failing.fail(2);
    failing.wait_for(&[
        "online", "online", "online", "online", "online", "spare", "spare", "removed",
    ]);
    let report = failing.pool.report().unwrap();
    assert!(
        report.members[2].path.ends_with("spare-32"),
        "{}",
        report.members[2].path
    );
    failing.pool.shutdown(false).unwrap();
}

#[test]
fn a_member_that_was_taken_out_is_passed_over() {
    // Without a wait, spares would replace this one first: its number is smaller.
    let failing = Failing::new(Duration::ZERO);
    failing.pool.take_out(MemberId(0)).unwrap();
    failing.add_spare(32);
    assert_eq!(
        failing.states(),
        ["offline", "online", "online", "online", "online", "spare"]
    );
    failing.fail(3);
    failing.wait_for(&["offline", "online", "online", "online", "online", "removed"]);
    // With another spare there and nothing else to do.
    let spare = failing.add_spare(40);
    fill_vacancies(&failing.pool, true);
    assert_eq!(
        (failing.states()[0], failing.states()[spare.index()]),
        ("offline", "spare")
    );
    failing.pool.shutdown(false).unwrap();
}

/// A member that hangs, until the end of the test at the latest: a failing test must end, too.
struct Hanging(Arc<FaultyMember<FileMember>>);

impl Hanging {
    fn clear(&self) {
        self.0.clear();
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A pool of four files, and the files. The second member hangs with commands in flight and is out
/// of service.
fn beside_one_that_hangs() -> (tempfile::TempDir, Pool, Hanging) {
    while_one_hangs(|pool| pool.take_out(MemberId(1)).unwrap())
}

/// The same; `take_out` takes it out of service.
fn while_one_hangs(take_out: impl FnOnce(&Pool)) -> (tempfile::TempDir, Pool, Hanging) {
    let dir = tempfile::tempdir().unwrap();
    let member = |number: usize| {
        let path = dir.path().join(format!("m{number}"));
        create_file(&path, 32 * MIB, Allocation::Sparse).unwrap();
        Arc::new(FaultyMember::new(
            FileMember::open(&path, &OpenOptions::default()).unwrap(),
        ))
    };
    let members: Vec<_> = (0..4).map(member).collect();
    let table = members
        .iter()
        .map(|member| Some(member.clone() as Arc<dyn Member>))
        .collect();
    let opened = scratch_pool(
        table,
        &ScratchSpec {
            segment_rows: Some(64),
            chunk_rows: Some(16),
            ..ScratchSpec::default()
        },
    )
    .unwrap();
    let pool = Pool::start(
        opened.engine,
        opened.members,
        opened.buffers,
        HostOptions::default(),
    )
    .unwrap();
    create_volume(&pool, "data", 4 * MIB).unwrap();
    let sink = Arc::new(Collector::default());
    let session = pool.open("data", sink.clone()).unwrap();
    let sent = || pool.status().unwrap().member_stats[1].written.total();
    let before = sent();
    let hanging = Hanging(members[1].clone());
    members[1].add(Fault::everywhere(FaultKind::Hang));
    let write = |block: u64| {
        request(
            block,
            Op::Write {
                offset: block * 4096,
                data: Payload::copy_of(&[3; 4096]),
                fua: false,
            },
        )
    };
    let mut requests: Vec<_> = (0..256)
        .map(write)
        .chain([request(256, Op::Flush)])
        .collect();
    let mut ready = Vec::new();
    session.submit(&mut requests, &mut ready);
    until("something has gone to it", &|| sent() > before);
    take_out(&pool);
    let mut all = sink.wait(257 - ready.len());
    all.append(&mut ready);
    assert!(
        all.iter().all(|completion| completion.result.is_ok()),
        "the pool goes on without it"
    );
    drop(session);
    (dir, pool, hanging)
}

fn until(what: &str, is_so: &dyn Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Taking out a hanging member must not wait for its device, nor hold up new writes. The device is
/// closed when it answers.
#[test]
fn a_member_that_hangs_is_taken_out_at_once_and_closed_when_it_answers() {
    let (dir, pool, member) = beside_one_that_hangs();
    let report = pool.report().unwrap();
    assert!(report.members[1].unanswered > 0 && report.members[1].state == "offline");
    pool.close_left();
    assert!(
        pool.0.driver.device(MemberId(1)).is_some(),
        "its commands are with it"
    );
    member.clear();
    until("its commands end", &|| {
        pool.status().unwrap().members[1].unanswered == 0
    });
    pool.close_left();
    assert!(pool.0.driver.device(MemberId(1)).is_none());
    pool.bring_back(MemberId(1), Some(&dir.path().join("m1")))
        .unwrap_err();
    drop(member);
    pool.bring_back(MemberId(1), Some(&dir.path().join("m1")))
        .unwrap();
    pool.shutdown(false).unwrap();
}

/// The next start must not find all members in use while one hangs.
#[test]
fn a_pool_that_has_ended_lets_go_of_its_members_though_one_hangs() {
    let (dir, pool, member) = beside_one_that_hangs();
    let daemon = Arc::new(Daemon::new(pool.clone(), "data", None));
    let asking = daemon.clone();
    let asked = std::thread::spawn(move || {
        asking.handle(Command::Shutdown {
            export: false,
            force: false,
        })
    });
    until("the end is asked for", &|| {
        daemon.wait_for_end(Duration::from_secs(1))
    });
    daemon.finish(false).unwrap();
    assert!(
        asked.join().unwrap().is_ok(),
        "who asked for it is answered"
    );
    pool.let_go();
    let is_free = |number: usize| {
        FileMember::open(
            &dir.path().join(format!("m{number}")),
            &OpenOptions::default(),
        )
        .is_ok()
    };
    assert!([0, 2, 3].into_iter().all(is_free));
    assert!(!is_free(1), "what it was given may land at any time");
    member.clear();
    drop((member, daemon, pool));
    until("it is free", &|| is_free(1));
}

fn newcomer(dir: &tempfile::TempDir, name: &str) -> Newcomer {
    let path = dir.path().join(name);
    create_file(&path, 32 * MIB, Allocation::Sparse).unwrap();
    Newcomer {
        path,
        overwrite: false,
    }
}

/// Replacing a member whose device hangs must not block other changes.
#[test]
fn other_changes_proceed_while_a_member_that_hangs_is_replaced() {
    let mut replacing = None;
    let (dir, pool, member) = while_one_hangs(|pool| {
        let (pool, dir) = (pool.clone(), tempfile::tempdir().unwrap());
        let state = pool.clone();
        // Nothing is recorded while it hangs and is in service.
        let begins = move || state.0.driver.device(MemberId(4)).is_some();
        let again = pool.clone();
        replacing = Some(std::thread::spawn(move || {
            pool.replace(MemberId(1), &newcomer(&dir, "another"), false)
        }));
        until("it begins", &begins);
        again.take_out(MemberId(1)).unwrap();
    });
    let spare = pool.add_spare(&newcomer(&dir, "spare")).unwrap();
    pool.remove(spare).unwrap();
    member.clear();
    replacing.unwrap().join().unwrap().unwrap();
    assert_ne!(pool.status().unwrap().members[1].state, "offline");
    pool.shutdown(false).unwrap();
}

/// The second one must not throw out the device that the first has just put there.
#[test]
fn two_that_replace_the_same_member_do_not_replace_one_another() {
    let (dir, pool, member) = beside_one_that_hangs();
    let is_labelled = |name: &str| {
        crate::offline::examine(&dir.path().join(name))
            .unwrap()
            .is_some()
    };
    let replacing = ["first", "second"].map(|name| {
        let newcomer = Newcomer {
            overwrite: true,
            ..newcomer(&dir, name)
        };
        let device = FileMember::open(&newcomer.path, &OpenOptions::default()).unwrap();
        let status = pool.status().unwrap();
        crate::offline::label(
            &device,
            status.pool,
            &status.name,
            MemberId(0),
            Uuid([7; 16]),
        )
        .unwrap();
        drop(device);
        assert!(is_labelled(name));
        let pool = pool.clone();
        std::thread::spawn(move || pool.replace(MemberId(1), &newcomer, false))
    });
    // A device that was in the pool before is zeroed, so that both are seen to be at it.
    until("both have begun", &|| {
        !is_labelled("first") && !is_labelled("second")
    });
    member.clear();
    let replaced = replacing.map(|replacing| replacing.join().unwrap());
    let [first, second] = replaced.each_ref().map(Result::is_ok);
    assert!(first != second, "one of them has its place: {replaced:?}");
    assert_eq!(
        [first, second],
        ["first", "second"].map(is_labelled),
        "the other one is free"
    );
    let refusal = replaced.into_iter().find_map(Result::err).unwrap();
    assert!(refusal.why.contains("meanwhile"), "{refusal:?}");
    pool.shutdown(false).unwrap();
}

/// A hanging device that is to come back must not be waited for with the lock of all changes.
#[test]
fn other_changes_proceed_while_a_device_that_hangs_is_to_come_back() {
    let (dir, pool, member) = beside_one_that_hangs();
    let (coming, path) = (pool.clone(), dir.path().join("m1"));
    let back = std::thread::spawn(move || coming.bring_back(MemberId(1), Some(&path)));
    for number in 0..8 {
        let spare = pool
            .add_spare(&newcomer(&dir, &format!("spare-{number}")))
            .unwrap();
        pool.remove(spare).unwrap();
    }
    assert!(!back.is_finished(), "the device owes answers");
    let other = dir.path().join("m2");
    let refused = pool.bring_back(MemberId(1), Some(&other)).unwrap_err();
    assert!(
        refused.why.contains("another device"),
        "said before anything is waited for: {refused:?}"
    );
    member.clear();
    let refused = back.join().unwrap().unwrap_err();
    assert_eq!(
        refused.id,
        crate::failure::id::POOL_BUSY,
        "it was open here until now: {refused:?}"
    );
    pool.shutdown(false).unwrap();
}

/// The process holds the old device itself: the spare must not be refused as in use, nor its slot
/// be left empty.
#[test]
fn a_spare_that_cannot_be_read_any_more_comes_back_from_its_path() {
    let failing = Failing::new(Duration::from_secs(3600));
    let spare = failing.add_spare(32);
    let path = failing.dir.path().join("spare-32");
    failing.pool.0.driver.exchange(spare, None).unwrap();
    let device = FaultyMember::new(FileMember::open(&path, &OpenOptions::default()).unwrap());
    device.add(Fault::everywhere(FaultKind::ReadError(
        MemberErrorKind::Media,
    )));
    failing
        .pool
        .0
        .driver
        .exchange(spare, Some(Arc::new(device)))
        .unwrap();
    failing.pool.bring_back(spare, Some(&path)).unwrap();
    assert!(
        failing
            .pool
            .0
            .driver
            .device(spare)
            .is_some_and(|device| device.read_at(0, &mut [0; 4096]).is_ok())
    );
    failing.pool.shutdown(false).unwrap();
}

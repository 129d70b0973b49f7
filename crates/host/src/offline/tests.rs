//! Pools through their whole life with the real engine.

use super::*;
use crate::daemon;
use crate::driver::tests::Collector;
use crate::{HostOptions, Pool};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use windrow_device::{Allocation, CountingMember, Member, RamAllocation, RamMember};
use windrow_engine::Limits;
use windrow_format::superblock::Properties;
use windrow_frontend::{ExportSource, Session};
use windrow_geometry::Redundancy;
use windrow_io::{BufPool, Completion, Op, Payload, Reply, Request, RequestId};
use windrow_types::VolumeId;

const MEMBER_BYTES: u64 = 32 << 20;

pub(super) fn request(dir: &Path) -> CreateRequest {
    CreateRequest {
        name: "tank".to_owned(),
        redundancy: Redundancy::Double,
        members: (0..6)
            .map(|number| dir.join(format!("member-{number}")))
            .collect(),
        file_bytes: Some(MEMBER_BYTES),
        allocation: Allocation::Sparse,
        chunk_rows: Some(16),
        segment_rows: Some(64),
        align_bytes: 1 << 16,
        properties: Properties {
            spare_per_mille: 100,
            seal_age_ms: 10,
            victim_policy: 0,
            discard: false,
            ..Properties::DEFAULT
        },
        journal_bytes: None,
        journal_devices: Vec::new(),
        journal_power_safe: false,
        force: false,
        partitioning: Default::default(),
    }
}

pub(crate) fn create_pool(dir: &Path) -> Vec<PathBuf> {
    let request = request(dir);
    let plan = plan(&request).unwrap();
    assert!(
        plan.members.iter().all(|member| member.is_new),
        "planning writes nothing"
    );
    create(&request, &plan, &mut |_, _| ()).unwrap();
    request.members
}

fn start(opened: OpenedPool) -> Pool {
    Pool::start(
        opened.engine,
        opened.members,
        opened.buffers,
        HostOptions::default(),
    )
    .unwrap()
}

pub(crate) fn open_again(members: &[PathBuf], registry: &Registry) -> Pool {
    let target = PoolTarget {
        members: members.to_vec(),
        ..PoolTarget::default()
    };
    start(
        open(
            &locate(&target, registry).unwrap(),
            registry,
            &OpenRequest::default(),
        )
        .unwrap(),
    )
}

struct Client {
    session: Box<dyn Session>,
    sink: Arc<Collector>,
}

impl Client {
    fn new(pool: &Pool, export: &str) -> Self {
        let sink = Arc::new(Collector::default());
        Self {
            session: pool.open(export, sink.clone()).unwrap(),
            sink,
        }
    }

    fn ask(&self, ops: Vec<Op>) -> Vec<Completion> {
        let count = ops.len();
        let numbered = ops.into_iter().enumerate();
        let mut requests = numbered
            .map(|(id, op)| Request {
                id: RequestId(id as u64),
                volume: VolumeId(0),
                op,
            })
            .collect();
        let mut all = Vec::new();
        self.session.submit(&mut requests, &mut all);
        while all.len() < count {
            all.append(&mut self.sink.wait(1));
        }
        all.sort_by_key(|completion| completion.id);
        all
    }

    fn write(&self, block: u64, byte: u8) -> Op {
        Op::Write {
            offset: block * 4096,
            data: Payload::copy_of(&[byte; 4096]),
            fua: false,
        }
    }

    fn read(&self, block: u64) -> Vec<u8> {
        let answer = self
            .ask(vec![Op::Read {
                offset: block * 4096,
                length: 4096,
            }])
            .remove(0);
        match answer.result {
            Ok(Reply::Data(parts)) => parts.iter().flat_map(|part| part.to_vec()).collect(),
            other => panic!("a read answered {other:?}"),
        }
    }
}

#[test]
fn a_pool_is_created_served_closed_and_opened_again() {
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let registry = Registry::new(state.path());
    let members = create_pool(dir.path());
    let pool = open_again(&members, &registry);
    daemon::create_volume(&pool, "data", 4 << 20).unwrap();
    let client = Client::new(&pool, "data");
    let writes = (0..300)
        .map(|block| client.write(block, block as u8 | 1))
        .chain([Op::Flush])
        .collect();
    assert!(
        client
            .ask(writes)
            .iter()
            .all(|completion| completion.result.is_ok())
    );
    assert_eq!(
        open(
            &scan(&[dir.path().to_owned()])[0],
            &registry,
            &OpenRequest::default()
        )
        .err()
        .unwrap()
        .id,
        id::POOL_BUSY,
        "members are locked"
    );
    drop(client);
    pool.shutdown(false).unwrap();
    drop(pool);
    let pool = open_again(&members, &registry);
    let client = Client::new(&pool, "data");
    for block in 0..300 {
        assert_eq!(client.read(block), [block as u8 | 1; 4096]);
    }
    drop(client);
    pool.shutdown(true).unwrap();
}

#[test]
fn creation_refuses_members_with_data_and_leaves_them_alone() {
    let dir = tempfile::tempdir().unwrap();
    let first = create_pool(dir.path());
    let before = std::fs::read(&first[0]).unwrap();
    let again = request(dir.path());
    let refused = create(&again, &plan(&again).unwrap(), &mut |_, _| ()).unwrap_err();
    assert!(
        refused.id == id::MEMBER_IN_USE && refused.why.contains("tank"),
        "{refused}"
    );
    assert_eq!(std::fs::read(&first[0]).unwrap(), before);
    let mut twice = request(dir.path());
    twice.members[1] = twice.members[0].clone();
    assert_eq!(plan(&twice).unwrap_err().id, id::POOL_CREATE);
    let mut forced = request(dir.path());
    forced.force = true;
    create(&forced, &plan(&forced).unwrap(), &mut |_, _| ()).unwrap();
}

/// A signature at the end of a device must be erased, not only reported: md would assemble the
/// former mirror member at the next boot, and write to it.
#[test]
fn what_others_left_at_the_end_is_erased() {
    use std::os::unix::fs::FileExt;
    const ODD_BYTES: u64 = MEMBER_BYTES + 1536;
    let (md, label_at) = (
        [0xfc, 0x4e, 0x2b, 0xa9],
        (ODD_BYTES / 512 - 16) / 8 * 8 * 512,
    );
    let dir = tempfile::tempdir().unwrap();
    let mut request = request(dir.path());
    let bear = |path: &Path| {
        let file = std::fs::File::create(path).unwrap();
        file.set_len(ODD_BYTES).unwrap();
        file.write_all_at(&md, label_at).unwrap();
        file.write_all_at(&[0xde, 0x11, 0xde, 0x11], ODD_BYTES - 512)
            .unwrap();
    };
    let found = |path: &Path| {
        windrow_device::probe::probe(path, |_| None)
            .unwrap()
            .signatures
    };
    request.members.iter().for_each(|path| bear(path));
    assert_eq!(found(&request.members[0]).len(), 2);
    request.force = true;
    create(&request, &plan(&request).unwrap(), &mut |_, _| ()).unwrap();
    let newcomer = dir.path().join("newcomer");
    bear(&newcomer);
    let opened = open_member(
        &newcomer,
        windrow_types::MemberId(0),
        &OpenRequest::default(),
        "",
    )
    .unwrap();
    erase(&*opened).unwrap();
    for path in request.members.iter().chain([&newcomer]) {
        // A file system without direct access by 512 bytes leaves the last sectors alone.
        let left = found(path)
            .into_iter()
            .filter(|left| left.offset < MEMBER_BYTES || opened.info().logical_sector == 512);
        assert_eq!(left.collect::<Vec<_>>(), [], "{}", path.display());
    }
}

#[test]
fn pools_are_found_by_name_folder_and_registry_and_are_gone_when_destroyed() {
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let registry = Registry::new(state.path());
    let members = create_pool(dir.path());
    std::fs::write(dir.path().join("something-else"), [7; 10_000]).unwrap();
    let by_folder = locate(
        &PoolTarget {
            name: Some("tank".to_owned()),
            dirs: vec![dir.path().to_owned()],
            ..PoolTarget::default()
        },
        &registry,
    )
    .unwrap();
    assert_eq!((by_folder.members.len(), by_folder.missing()), (6, vec![]));
    registry
        .save(&crate::registry::PoolEntry::new(
            "tank",
            by_folder.pool,
            members.clone(),
        ))
        .unwrap();
    std::fs::remove_file(&members[2]).unwrap();
    let by_registry = locate(
        &PoolTarget {
            name: Some("tank".to_owned()),
            ..PoolTarget::default()
        },
        &registry,
    )
    .unwrap();
    assert_eq!(by_registry.missing(), [2]);
    assert_eq!(
        examine(&dir.path().join("something-else"))
            .unwrap()
            .map(|found| found.path),
        None
    );
    drop(open(&by_registry, &registry, &OpenRequest::default()).unwrap());
    let by_registry = locate(
        &PoolTarget {
            name: Some("tank".to_owned()),
            ..PoolTarget::default()
        },
        &registry,
    )
    .unwrap();
    // A host that sees the devices of another one, and takes them for its own.
    let foreign = destroy(&by_registry, true, Some(Uuid::from_random([7; 16]))).unwrap_err();
    assert_eq!(foreign.id, id::POOL_FOREIGN);
    destroy(&by_registry, false, Some(host_id(&registry).unwrap())).unwrap();
    let found = scan(&[dir.path().to_owned()]);
    assert!(
        open(&found[0], &registry, &OpenRequest::default()).is_err(),
        "a destroyed pool is not opened"
    );
    destroy(&found[0], true, None).unwrap();
    assert!(scan(&[dir.path().to_owned()]).is_empty());
}

/// A name of the form of an identifier must not select another pool, and a pool at rest is found by
/// its identifier.
#[test]
fn an_identifier_is_not_the_name_of_another_pool() {
    let (state, dirs) = (
        tempfile::tempdir().unwrap(),
        [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()],
    );
    let registry = Registry::new(state.path());
    let members = create_pool(dirs[0].path());
    let tank = scan(&members)[0].pool;
    // (The command line refuses such a name; older versions did not.)
    let request = CreateRequest {
        name: tank.to_string(),
        ..request(dirs[1].path())
    };
    let plan = plan(&request).unwrap();
    create(&request, &plan, &mut |_, _| ()).unwrap();
    let by_name = |name: &str, dirs: Vec<PathBuf>| {
        locate(
            &PoolTarget {
                name: Some(name.to_owned()),
                dirs,
                ..PoolTarget::default()
            },
            &registry,
        )
    };
    let folders = || {
        dirs.iter()
            .map(|dir| dir.path().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(by_name(&tank.to_string(), folders()).unwrap().pool, tank);
    assert_eq!(
        by_name(&tank.to_string(), vec![dirs[1].path().to_owned()])
            .unwrap()
            .pool,
        plan.pool(),
        "it stays usable by its name"
    );
    registry
        .save(&crate::registry::PoolEntry::new(
            &request.name,
            plan.pool(),
            request.members.clone(),
        ))
        .unwrap();
    assert_eq!(
        by_name(&tank.to_string(), Vec::new()).unwrap().pool,
        plan.pool()
    );
    registry
        .save(&crate::registry::PoolEntry::new("tank", tank, members))
        .unwrap();
    assert_eq!(by_name(&tank.to_string(), Vec::new()).unwrap().pool, tank);
    assert_eq!(
        by_name(&plan.pool().to_string(), Vec::new()).unwrap().pool,
        plan.pool()
    );
}

/// A pool of newer software must not be reported as destroyed: nothing was written, and its host is
/// unknown.
#[test]
fn a_pool_that_cannot_be_read_is_not_called_destroyed() {
    use std::os::unix::fs::FileExt;
    use windrow_format::superblock::{SLOT_COUNT, SLOT_OFFSET, SLOT_STRIDE};
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let registry = Registry::new(state.path());
    let members = create_pool(dir.path());
    let write = |slots: u64| {
        for member in &scan(&[dir.path().to_owned()])[0].members {
            let mut superblock = member.superblock.clone().unwrap();
            superblock.features.incompatible |= 1 << 63;
            let file = std::fs::OpenOptions::new()
                .write(true)
                .open(&member.path)
                .unwrap();
            (0..slots).for_each(|slot| {
                file.write_all_at(&superblock.encode(), SLOT_OFFSET + slot * SLOT_STRIDE)
                    .unwrap()
            });
        }
    };
    let contents = || {
        members
            .iter()
            .map(|path| std::fs::read(path).unwrap())
            .collect::<Vec<_>>()
    };
    let ours = host_id(&registry).unwrap();
    // In the first slot only: an older state can be read, and is not the pool's.
    for slots in [1, SLOT_COUNT] {
        write(slots);
        let before = contents();
        let found = scan(&[dir.path().to_owned()]).remove(0);
        for (wipe, host) in [(false, Some(ours)), (false, None), (true, Some(ours))] {
            assert_eq!(
                destroy(&found, wipe, host).unwrap_err().id,
                id::POOL_NEWER,
                "{slots} {wipe} {host:?}"
            );
        }
        assert!(contents() == before);
    }
    let unreadable = scan(&[dir.path().to_owned()]).remove(0);
    assert!(unreadable.superblock().is_none());
    destroy(&unreadable, true, None).unwrap();
    assert!(scan(&[dir.path().to_owned()]).is_empty());
}

/// A member and the device that replaced it, or a copy, must not hide each other.
#[test]
fn two_devices_of_one_place_are_not_read_together() {
    let dir = tempfile::tempdir().unwrap();
    let members = create_pool(dir.path());
    let copy = dir.path().join("copy");
    std::fs::copy(&members[1], &copy).unwrap();
    let found: Vec<_> = members
        .iter()
        .chain([&copy])
        .map(|path| examine(path).unwrap().unwrap())
        .collect();
    let refused = open_for_reading(&found, false).err().unwrap();
    assert!(
        refused.id == id::POOL_REFUSED
            && refused.why.contains("member-1 and ")
            && refused.why.contains("copy are both member 1"),
        "{refused}"
    );
    assert!(open_for_reading(&found[..6], false).is_ok());
}

/// With one drive unplugged and a bad sector on another, a salvage would discard the data on the
/// unplugged drive for good.
#[test]
fn a_rebuild_of_the_map_waits_for_members_that_are_only_away() {
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let registry = Registry::new(state.path());
    let members = create_pool(dir.path());
    let target = PoolTarget {
        members: members[1..].to_vec(),
        ..PoolTarget::default()
    };
    let found = locate(&target, &registry).unwrap();
    let contents = || {
        members
            .iter()
            .map(|path| std::fs::read(path).unwrap())
            .collect::<Vec<_>>()
    };
    let before = contents();
    let request = OpenRequest::default();
    let ask = |leave| rebuild(&found, &registry, &request, leave, &mut |_| ());
    let leave = RebuildLeave {
        write: true,
        even_if_sound: true,
        ..RebuildLeave::default()
    };
    let refused = ask(leave).unwrap_err();
    assert!(
        refused.id == id::POOL_MEMBERS
            && refused.why.contains("[0]")
            && refused.remedy.contains("--without-missing"),
        "{refused}"
    );
    assert!(contents() == before);
    ask(RebuildLeave {
        write: false,
        ..leave
    })
    .unwrap();
    ask(RebuildLeave {
        without_missing: true,
        ..leave
    })
    .unwrap();
}

#[test]
fn counters_agree_with_what_the_members_received_to_the_byte() {
    let counting: Vec<Arc<CountingMember<RamMember>>> = (0..6)
        .map(|_| {
            Arc::new(CountingMember::new(
                RamMember::new(MEMBER_BYTES, RamAllocation::Sparse).unwrap(),
            ))
        })
        .collect();
    let table = || {
        counting
            .iter()
            .map(|member| Some(member.clone() as Arc<dyn Member>))
            .collect::<Vec<_>>()
    };
    let spec = ScratchSpec {
        chunk_rows: Some(16),
        segment_rows: Some(64),
        limits: Limits::default(),
        ..ScratchSpec::default()
    };
    let opened = scratch_pool(table(), &spec).unwrap();
    // The engine counts from its opening on; the difference at this point is the writes of
    // formatting and opening.
    let base: Vec<u64> = counting
        .iter()
        .zip(&opened.engine.status().member_stats)
        .map(|(member, stats)| member.counts().written_bytes - stats.written.total())
        .collect();
    let pool = start(opened);
    daemon::create_volume(&pool, "data", 4 << 20).unwrap();
    let client = Client::new(&pool, "data");
    for round in 0..8u64 {
        let mut ops: Vec<Op> = (0..200)
            .map(|at| client.write((at * 37 + round * 11) % 1024, round as u8 + 1))
            .collect();
        ops.push(Op::Trim {
            offset: round << 16,
            length: 1 << 16,
            fua: false,
        });
        ops.push(Op::Flush);
        assert!(
            client
                .ask(ops)
                .iter()
                .all(|completion| completion.result.is_ok())
        );
        assert_eq!(client.read((37 + round * 11) % 1024).len(), 4096);
    }
    pool.control(windrow_engine::Control::Checkpoint).unwrap();
    let report = daemon::report(&pool).unwrap();
    for ((member, stats), base) in counting.iter().zip(&report.members).zip(base) {
        assert_eq!(
            member.counts().written_bytes - base,
            stats.counters.written.total(),
            "member {}",
            stats.member
        );
    }
    assert_eq!(
        report.counters.written.total(),
        report
            .members
            .iter()
            .map(|member| member.counters.written.total())
            .sum::<u64>()
    );
    let buffers: &BufPool = pool.buffers();
    assert!(buffers.idle_bytes() > 0, "buffers come back");
}

/// A device of a member out of service, or of a spare, may be in use for something else. The pool
/// must start without it.
#[test]
fn a_device_that_the_pool_does_not_count_on_is_left_out_where_it_is_in_use() {
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let registry = Registry::new(state.path());
    let mut members = create_pool(dir.path());
    let spare = dir.path().join("spare");
    windrow_device::create_file(&spare, MEMBER_BYTES, Allocation::Sparse).unwrap();
    let pool = open_again(&members, &registry);
    pool.take_out(windrow_types::MemberId(2)).unwrap();
    pool.add_spare(&Newcomer {
        path: spare.clone(),
        overwrite: false,
    })
    .unwrap();
    pool.shutdown(false).unwrap();
    drop(pool);
    members.push(spare);
    let open_all = || {
        open(
            &locate(
                &PoolTarget {
                    members: members.clone(),
                    ..PoolTarget::default()
                },
                &registry,
            )
            .unwrap(),
            &registry,
            &OpenRequest::default(),
        )
    };
    let take = |member: usize| {
        windrow_device::FileMember::open(&members[member], &windrow_device::OpenOptions::default())
            .unwrap()
    };
    let taken = [take(2), take(6)];
    let opened = open_all().unwrap();
    let there: Vec<bool> = opened.members.iter().map(Option::is_some).collect();
    assert_eq!(there, [true, true, false, true, true, true, false]);
    let notes = opened.report.notes.join("\n");
    assert!(
        ["member 2 is left out: ", "member 6 is left out: ", "in use"]
            .iter()
            .all(|text| notes.contains(text)),
        "{notes}"
    );
    drop((opened, taken));
    let taken = take(1);
    assert_eq!(
        open_all().err().unwrap().id,
        id::POOL_BUSY,
        "the pool counts on it"
    );
    drop(taken);
}

/// A device that disappears just before it is opened counts as missing. But if it alone has the
/// newest superblock, the others are an older state of the pool: opening them would lose the writes
/// since.
#[test]
fn a_device_that_alone_has_the_newest_superblock_is_not_left_out() {
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let registry = Registry::new(state.path());
    let members = create_pool(dir.path());
    let before: Vec<Vec<u8>> = members
        .iter()
        .map(|member| std::fs::read(member).unwrap())
        .collect();
    open_again(&members, &registry).shutdown(false).unwrap();
    for alone in [false, true] {
        for (member, bytes) in members.iter().zip(&before).take(if alone { 5 } else { 0 }) {
            std::fs::write(member, bytes).unwrap();
        }
        let found = locate(
            &PoolTarget {
                members: members.clone(),
                ..PoolTarget::default()
            },
            &registry,
        )
        .unwrap();
        std::fs::rename(&members[5], dir.path().join("gone")).unwrap();
        match open(&found, &registry, &OpenRequest::default()) {
            Ok(opened) => {
                assert!(
                    !alone
                        && opened.members[5].is_none()
                        && opened
                            .report
                            .notes
                            .join("")
                            .contains("member 5 is left out"),
                    "{:?}",
                    opened.report.notes
                )
            }
            Err(failure) => assert!(alone && failure.id == id::MEMBER_OPEN, "{failure}"),
        }
        std::fs::rename(dir.path().join("gone"), &members[5]).unwrap();
    }
}

/// One of two journal devices that cannot be opened counts as missing. The last one does not:
/// durable records may be on it alone, unless the administrator discards them.
#[test]
fn the_last_journal_device_is_not_left_out() {
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let registry = Registry::new(state.path());
    let devices: Vec<PathBuf> = ["j0", "j1"]
        .iter()
        .map(|name| dir.path().join(name))
        .collect();
    let request = CreateRequest {
        journal_devices: devices.clone(),
        ..request(dir.path())
    };
    create(&request, &plan(&request).unwrap(), &mut |_, _| ()).unwrap();
    let members: Vec<PathBuf> = request.members.iter().chain(&devices).cloned().collect();
    let found = || {
        locate(
            &PoolTarget {
                members: members.clone(),
                ..PoolTarget::default()
            },
            &registry,
        )
        .unwrap()
    };
    // In use from now on, and not shut down.
    drop(open(&found(), &registry, &OpenRequest::default()).unwrap());
    let before: Vec<Vec<u8>> = members
        .iter()
        .map(|member| std::fs::read(member).unwrap())
        .collect();
    for (gone, discard_journal, starts) in [(1, false, true), (2, false, false), (2, true, true)] {
        members
            .iter()
            .zip(&before)
            .for_each(|(member, bytes)| std::fs::write(member, bytes).unwrap());
        let found = found();
        devices
            .iter()
            .take(gone)
            .for_each(|device| std::fs::remove_file(device).unwrap());
        match open(
            &found,
            &registry,
            &OpenRequest {
                discard_journal,
                ..OpenRequest::default()
            },
        ) {
            Ok(opened) => assert!(
                starts
                    && opened
                        .report
                        .notes
                        .join("")
                        .contains("member 6 is left out"),
                "{:?}",
                opened.report.notes
            ),
            Err(failure) => assert!(!starts && failure.id == id::MEMBER_OPEN, "{failure}"),
        }
    }
}

/// A start on named devices must not wait for a hanging one for ever.
#[test]
fn a_device_that_does_not_answer_is_reported_after_a_timeout() {
    let path = std::path::Path::new("/dev/hanging");
    let (let_go, gate) = std::sync::mpsc::channel::<()>();
    let hangs = move || {
        _ = gate.recv();
        Ok(())
    };
    let failure = find::in_time(path, std::time::Duration::from_millis(20), hangs).unwrap_err();
    assert!(
        failure.to_string().contains("/dev/hanging")
            && failure.to_string().contains("has not answered"),
        "{failure}"
    );
    drop(let_go);
    assert_eq!(
        find::in_time(path, std::time::Duration::from_secs(60), || Ok(5)).ok(),
        Some(5)
    );
}

//! Another command had the members between the search and the lock.

use super::*;
use crate::offline::tests::{create_pool, open_again, request};
use crate::offline::{
    CreateRequest, Newcomer, OpenRequest, PoolTarget, RebuildLeave, create, destroy, host_id,
    locate, open, open_for_reading, plan, rebuild, scan,
};
use crate::registry::Registry;
use std::path::PathBuf;
use windrow_device::{Allocation, create_file};
use windrow_engine::{Control, MemberChange};

fn found(dir: &tempfile::TempDir) -> FoundPool {
    scan(&[dir.path().to_owned()]).remove(0)
}

fn contents(members: &[PathBuf]) -> Vec<Vec<u8>> {
    members
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect()
}

fn must_say_run_it_again(outcome: Result<(), Failure>, id: &str) {
    let failure = outcome.unwrap_err();
    assert!(
        failure.id == id && failure.remedy.contains("nothing was written; run it again"),
        "{failure}"
    );
}

/// While `pool destroy tank --wipe` waits for a lock, its holder makes another pool there: that one
/// must not be erased.
#[test]
fn another_pool_that_came_to_the_members_is_neither_destroyed_nor_opened() {
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let registry = Registry::new(state.path());
    let members = create_pool(dir.path());
    let tank = found(&dir);
    let other = CreateRequest {
        name: "other".to_owned(),
        force: true,
        ..request(dir.path())
    };
    create(&other, &plan(&other).unwrap(), &mut |_, _| ()).unwrap();
    let before = contents(&members);
    for (wipe, host) in [
        (true, None),
        (true, Some(host_id(&registry).unwrap())),
        (false, None),
        (false, Some(host_id(&registry).unwrap())),
    ] {
        must_say_run_it_again(destroy(&tank, wipe, host), id::POOL_REFUSED);
    }
    must_say_run_it_again(
        open(&tank, &registry, &OpenRequest::default()).map(drop),
        id::POOL_REFUSED,
    );
    must_say_run_it_again(
        open_for_reading(&tank.members, true).map(drop),
        id::POOL_REFUSED,
    );
    let leave = RebuildLeave {
        write: true,
        even_if_sound: true,
        ..RebuildLeave::default()
    };
    must_say_run_it_again(
        rebuild(
            &tank,
            &registry,
            &OpenRequest::default(),
            leave,
            &mut |_| (),
        )
        .map(drop),
        id::POOL_REFUSED,
    );
    assert!(contents(&members) == before);
    open_again(&members, &registry).shutdown(false).unwrap();
}

/// The mark of destruction must follow the superblock under the lock: a newer one would outlive it.
#[test]
fn a_pool_that_was_used_meanwhile_is_destroyed_all_the_same() {
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let registry = Registry::new(state.path());
    let members = create_pool(dir.path());
    let before = found(&dir);
    let pool = open_again(&members, &registry);
    crate::daemon::create_volume(&pool, "data", 1 << 20).unwrap();
    pool.shutdown(false).unwrap();
    drop(pool);
    assert!(found(&dir).superblock().unwrap().generation > before.superblock().unwrap().generation);
    destroy(&before, false, Some(host_id(&registry).unwrap())).unwrap();
    let refused = open(&found(&dir), &registry, &OpenRequest::default())
        .map(drop)
        .unwrap_err();
    assert!(
        refused.id == id::POOL_REFUSED && refused.why.contains("destroyed"),
        "{refused}"
    );
}

/// The pool's host is that of the newest superblock, too.
#[test]
fn a_pool_that_another_host_took_meanwhile_is_not_destroyed() {
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let members = create_pool(dir.path());
    let before = found(&dir);
    open_again(&members, &Registry::new(state.path()))
        .shutdown(false)
        .unwrap();
    let refused = destroy(&before, false, Some(Uuid::from_random([7; 16]))).unwrap_err();
    assert_eq!(refused.id, id::POOL_FOREIGN);
}

/// A new member must not be left out: it would not be destroyed, or would be recorded as missing.
#[test]
fn a_pool_that_has_other_members_now_is_looked_for_again() {
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let registry = Registry::new(state.path());
    let mut members = create_pool(dir.path());
    let target = |members: &[PathBuf]| PoolTarget {
        members: members.to_vec(),
        ..PoolTarget::default()
    };
    let before = locate(&target(&members), &registry).unwrap();
    let new = dir.path().join("new");
    create_file(&new, 32 << 20, Allocation::Sparse).unwrap();
    let pool = open_again(&members, &registry);
    pool.take_out(MemberId(2)).unwrap();
    pool.replace(
        MemberId(2),
        &Newcomer {
            path: new.clone(),
            overwrite: false,
        },
        false,
    )
    .unwrap();
    pool.shutdown(false).unwrap();
    drop(pool);
    must_say_run_it_again(destroy(&before, false, None), id::POOL_REFUSED);
    must_say_run_it_again(
        open(&before, &registry, &OpenRequest::default()).map(drop),
        id::POOL_REFUSED,
    );
    members[2] = new;
    open_again(&members, &registry).shutdown(false).unwrap();
}

/// Opened like a spare but not flushed, records reported as durable would only be in the page cache
/// and the file system.
#[test]
fn a_spare_that_became_a_power_safe_journal_device_is_looked_at_again() {
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let registry = Registry::new(state.path());
    let members = create_pool(dir.path());
    let path = dir.path().join("spare");
    create_file(&path, 32 << 20, Allocation::Sparse).unwrap();
    let pool = open_again(&members, &registry);
    let spare = pool
        .add_spare(&Newcomer {
            path,
            overwrite: false,
        })
        .unwrap();
    pool.shutdown(false).unwrap();
    drop(pool);
    let before = found(&dir);
    let pool = open_again(
        &before
            .members
            .iter()
            .map(|member| member.path.clone())
            .collect::<Vec<_>>(),
        &registry,
    );
    pool.control(Control::Member {
        member: spare,
        change: MemberChange::Serve {
            granule: 512,
            power_safe: true,
        },
    })
    .unwrap();
    pool.shutdown(false).unwrap();
    drop(pool);
    must_say_run_it_again(
        open(&before, &registry, &OpenRequest::default()).map(drop),
        id::POOL_REFUSED,
    );
    open(&found(&dir), &registry, &OpenRequest::default())
        .map(drop)
        .unwrap();
}

/// Both must not report success when the second has overwritten the first.
#[test]
fn of_two_creations_on_the_same_members_the_second_is_refused() {
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = request(dir.path());
    first
        .members
        .iter()
        .for_each(|path| create_file(path, 32 << 20, Allocation::Sparse).unwrap());
    let second = CreateRequest {
        name: "second".to_owned(),
        ..first.clone()
    };
    // Also with force: the decision was for empty members.
    let forced = CreateRequest {
        force: true,
        ..second.clone()
    };
    let plans = [&first, &second, &forced].map(|request| plan(request).unwrap());
    create(&first, &plans[0], &mut |_, _| ()).unwrap();
    let before = contents(&first.members);
    for (request, plan) in [(&second, &plans[1]), (&forced, &plans[2])] {
        must_say_run_it_again(
            create(request, plan, &mut |_, _| ()).map(drop),
            id::MEMBER_IN_USE,
        );
    }
    assert!(contents(&first.members) == before);
    open_again(&first.members, &Registry::new(state.path()))
        .shutdown(false)
        .unwrap();
}

/// A creation that finds another pool in the files it has just made must not remove them.
#[test]
fn a_file_that_another_command_has_taken_is_not_removed() {
    let dir = tempfile::tempdir().unwrap();
    let members = create_pool(dir.path());
    let pool = found(&dir).pool;
    let blank = dir.path().join("blank");
    create_file(&blank, 1 << 20, Allocation::Sparse).unwrap();
    unmake(&members[0], |_| false);
    let held = FileMember::open(&members[1], &OpenOptions::default()).unwrap();
    unmake(&members[1], |_| true);
    drop(held);
    assert!(members[0].exists() && members[1].exists());
    unmake(&members[1], |member| member.label.pool == pool);
    unmake(&blank, |_| false);
    assert!(!members[1].exists() && !blank.exists());
}

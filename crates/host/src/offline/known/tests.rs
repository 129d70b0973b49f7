//! Names that have changed, devices that are gone, and pools that only look alike.

use super::*;
use crate::offline::find::{examine, locate_beside};
use crate::offline::tests::create_pool;
use crate::offline::{OpenRequest, PoolTarget, open};
use std::path::Path;
use windrow_format::superblock::Label;

/// A pool of six in one folder, known to the registry, and an empty folder.
struct World {
    before: tempfile::TempDir,
    now: tempfile::TempDir,
    _state: tempfile::TempDir,
    registry: Registry,
    members: Vec<PathBuf>,
}

impl World {
    fn new() -> Self {
        let [before, now, state] = [0; 3].map(|_| tempfile::tempdir().unwrap());
        let (registry, members) = (Registry::new(state.path()), create_pool(before.path()));
        let pool = scan(&[before.path().to_owned()])[0].pool;
        registry
            .save(&PoolEntry::new("tank", pool, members.clone()))
            .unwrap();
        Self {
            before,
            now,
            _state: state,
            registry,
            members,
        }
    }

    /// Renames a member without any record of it.
    fn rename(&self, member: usize, name: &str) -> PathBuf {
        let path = self.now.path().join(name);
        std::fs::rename(&self.members[member], &path).unwrap();
        path
    }

    fn locate(&self) -> Result<FoundPool, Failure> {
        let target = PoolTarget {
            name: Some("tank".to_owned()),
            ..PoolTarget::default()
        };
        locate_beside(&target, &self.registry, &|| {
            vec![self.now.path().to_owned()]
        })
    }
}

fn paths(found: &FoundPool) -> Vec<&Path> {
    found
        .members
        .iter()
        .map(|member| member.path.as_path())
        .collect()
}

/// A known path that never answers must not block the start for ever. (A pipe is the only such path
/// available everywhere.)
#[test]
fn a_known_place_that_does_not_answer_holds_nothing_up() {
    let world = World::new();
    world.rename(2, "sdd");
    let silent = &world.members[2];
    assert!(
        std::process::Command::new("mkfifo")
            .arg(silent)
            .status()
            .unwrap()
            .success()
    );
    std::thread::scope(|scope| {
        let (ended, wait) = std::sync::mpsc::channel();
        let world = &world;
        scope.spawn(move || {
            ended
                .send(world.locate().map(|found| found.is_away()))
                .unwrap()
        });
        let located = wait.recv_timeout(std::time::Duration::from_secs(10));
        // Both ends at once, so that a thread waiting for the other end continues if this test
        // fails.
        drop(
            std::fs::File::options()
                .read(true)
                .write(true)
                .open(silent)
                .unwrap(),
        );
        assert!(!located.expect("an answer in time").expect("the pool"));
    });
}

/// After a reboot `sdb` may be `sdd`: the pool must not start without it, nor a spare replace it.
#[test]
fn a_member_that_has_another_name_now_is_found() {
    let world = World::new();
    let elsewhere = world.rename(2, "sdd");
    let found = world.locate().unwrap();
    assert!(
        (found.missing(), found.is_away(), found.is_searched) == (vec![], false, true),
        "{found:?}"
    );
    assert_eq!(paths(&found)[2], elsewhere);
    assert_eq!(
        paths(&found)[3],
        world.members[3],
        "the others by the names that were known"
    );
    // As the next start does: both names are kept, the known one first.
    let mut entry = world.registry.load("tank").unwrap().unwrap();
    entry.add_members(
        found
            .members
            .iter()
            .map(|member| member.path.clone())
            .collect(),
    );
    assert_eq!(entry.members, [&world.members[..], &[elsewhere]].concat());
    let opened = open(&found, &world.registry, &OpenRequest::default()).unwrap();
    assert_eq!(opened.engine.status().state, "online");
}

#[test]
fn a_pool_of_which_every_name_has_changed_is_found() {
    let world = World::new();
    for member in 0..6 {
        world.rename(member, &format!("sd{}", 5 - member));
    }
    // The old names belong to other devices now.
    std::fs::write(&world.members[0], [7; 10_000]).unwrap();
    create_pool_named_alike(&world.members[1]);
    let found = world.locate().unwrap();
    assert!(
        (found.missing(), found.members.len(), found.is_searched) == (vec![], 6, true),
        "{found:?}"
    );
    let entry = world.registry.load("tank").unwrap().unwrap();
    assert_eq!(found.pool, entry.pool);
    let listed = list_beside(&world.registry, &[], &|| vec![world.now.path().to_owned()]);
    assert_eq!(
        listed
            .iter()
            .find(|pool| pool.pool == entry.pool)
            .unwrap()
            .members
            .len(),
        6
    );
}

/// A member of another pool with the name of ours.
fn create_pool_named_alike(path: &Path) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(&create_pool(dir.path())[1], path).unwrap();
}

#[test]
fn what_is_away_for_good_leaves_a_degraded_pool() {
    let world = World::new();
    std::fs::remove_file(&world.members[4]).unwrap();
    let found = world.locate().unwrap();
    assert_eq!((found.missing(), found.is_searched), (vec![4], false));
    let opened = open(&found, &world.registry, &OpenRequest::default()).unwrap();
    assert_eq!(opened.engine.status().state, "degraded");
}

#[test]
fn nothing_is_searched_while_everything_is_where_it_was_or_where_the_user_says() {
    let world = World::new();
    let never = || panic!("other devices were looked at");
    let by_name = PoolTarget {
        name: Some("tank".to_owned()),
        ..PoolTarget::default()
    };
    assert!(
        !locate_beside(&by_name, &world.registry, &never)
            .unwrap()
            .is_searched
    );
    assert_eq!(list_beside(&world.registry, &[], &never).len(), 1);
    world.rename(0, "sda");
    let folders = PoolTarget {
        dirs: vec![world.before.path().to_owned()],
        ..by_name.clone()
    };
    assert_eq!(
        locate_beside(&folders, &world.registry, &never)
            .unwrap()
            .missing(),
        [0]
    );
    let members = PoolTarget {
        members: world.members[1..5].to_vec(),
        ..by_name
    };
    assert_eq!(
        locate_beside(&members, &world.registry, &never)
            .unwrap()
            .missing(),
        [0, 5]
    );
}

/// Links are kept as they are, so a file may be known by two names.
#[test]
fn two_names_of_one_file_are_no_copy() {
    let world = World::new();
    let link = world.before.path().join("by-id");
    std::os::unix::fs::symlink(&world.members[3], &link).unwrap();
    let mut entry = world.registry.load("tank").unwrap().unwrap();
    entry.members.insert(0, link.clone());
    world.registry.save(&entry).unwrap();
    std::fs::remove_file(&world.members[4]).unwrap();
    let found = world.locate().unwrap();
    assert_eq!(
        (paths(&found)[3], found.missing()),
        (link.as_path(), vec![4])
    );
}

/// Gives a member the label that a newer version would write.
fn make_newer(path: &Path) {
    use std::os::unix::fs::FileExt;
    use windrow_format::superblock::{FORMAT_VERSION, LABEL_OFFSET};
    let label = Label {
        version: FORMAT_VERSION + 1,
        ..examine(path).unwrap().unwrap().label
    };
    std::fs::File::options()
        .write(true)
        .open(path)
        .unwrap()
        .write_all_at(&label.encode(), LABEL_OFFSET)
        .unwrap();
}

/// A pool made by newer software must be reported as such, not as "not found".
#[test]
fn a_pool_with_labels_of_newer_software_is_reported() {
    let world = World::new();
    make_newer(&world.members[2]);
    assert_eq!(
        world.locate().unwrap().missing(),
        [2],
        "one of them is not the pool"
    );
    world
        .members
        .iter()
        .enumerate()
        .filter(|(at, _)| *at != 2)
        .for_each(|(_, path)| make_newer(path));
    let by_folder = PoolTarget {
        name: Some("tank".to_owned()),
        dirs: vec![world.before.path().to_owned()],
        ..PoolTarget::default()
    };
    let unnamed = PoolTarget {
        name: None,
        ..by_folder.clone()
    };
    let elsewhere = |target: &PoolTarget| locate_beside(target, &world.registry, &|| Vec::new());
    for failure in
        [world.locate(), elsewhere(&by_folder), elsewhere(&unnamed)].map(Result::unwrap_err)
    {
        assert!(
            failure.id == id::POOL_NEWER && failure.why.contains("member-0 (and 5 more)"),
            "{failure}"
        );
    }
    // Its paths are not recorded.
    world
        .registry
        .forget("tank", world.registry.load("tank").unwrap().unwrap().pool)
        .unwrap();
    let devices = || vec![world.before.path().to_owned()];
    let by_name = PoolTarget {
        dirs: Vec::new(),
        ..by_folder
    };
    assert_eq!(
        locate_beside(&by_name, &world.registry, &devices)
            .unwrap_err()
            .id,
        id::POOL_NEWER
    );
}

#[test]
fn another_pool_of_the_same_name_is_reported_and_not_opened() {
    let world = World::new();
    let before = scan(&[world.before.path().to_owned()])[0].pool;
    for member in &world.members {
        std::fs::remove_file(member).unwrap();
    }
    assert!(
        world
            .locate()
            .unwrap_err()
            .why
            .contains("no member of it was found")
    );
    create_pool(world.now.path());
    let failure = world.locate().unwrap_err();
    let other = scan(&[world.now.path().to_owned()])[0].pool;
    assert!(
        other != before
            && failure.id == id::POOL_UNKNOWN
            && failure.why.contains(&other.to_string()),
        "{failure}"
    );
}

use super::*;
use crate::Pool;
use crate::offline::tests::{create_pool, open_again};

/// A pool of six members in files; the third was missing at the start.
struct Late {
    pool: Pool,
    paths: Vec<PathBuf>,
    watch: Watch,
    dir: tempfile::TempDir,
    _state: tempfile::TempDir,
}

impl Late {
    fn new() -> Self {
        let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let paths = create_pool(dir.path());
        let there: Vec<PathBuf> = paths
            .iter()
            .enumerate()
            .filter(|(at, _)| *at != 2)
            .map(|(_, path)| path.clone())
            .collect();
        std::fs::rename(&paths[2], dir.path().join("elsewhere")).unwrap();
        let pool = open_again(&there, &Registry::new(state.path()));
        let watch = Watch {
            places: Places {
                paths: paths.clone(),
                block_devices: false,
            },
            ..Watch::default()
        };
        Self {
            pool,
            paths,
            watch,
            dir,
            _state: state,
        }
    }

    fn elsewhere(&self) -> PathBuf {
        self.dir.path().join("elsewhere")
    }

    fn look(&mut self) -> Vec<(MemberId, PathBuf)> {
        self.watch.look(&self.pool)
    }

    fn take_in(&mut self) {
        let (first, second) = (self.look(), self.look());
        assert_eq!(
            (first, second),
            (vec![], vec![(MemberId(2), self.paths[2].clone())]),
            "it is seen twice first"
        );
        self.pool
            .bring_back(MemberId(2), Some(&self.paths[2]))
            .unwrap();
        self.watch.taken_in(&self.pool, MemberId(2));
    }

    fn end(self) {
        self.pool.shutdown(false).unwrap();
    }
}

#[test]
fn a_member_that_was_missing_is_found_where_it_shows_up_and_nothing_else_is() {
    let mut late = Late::new();
    assert_eq!(late.look(), []);
    // Another member under the missing one's path.
    std::fs::copy(&late.paths[1], &late.paths[2]).unwrap();
    assert!((0..3).all(|_| late.look().is_empty()));
    std::fs::rename(late.elsewhere(), &late.paths[2]).unwrap();
    late.take_in();
    assert_eq!(late.look(), []);
    late.end();
}

#[test]
fn a_device_that_is_served_is_not_opened_and_one_that_was_looked_at_not_again() {
    let mut late = Late::new();
    late.watch.places.paths = vec![late.dir.path().to_owned()];
    let stranger = late.dir.path().join("stranger");
    std::fs::write(&stranger, [0; 8192]).unwrap();
    late.look();
    // (It has the member's label.)
    assert_eq!(late.look(), [(MemberId(2), late.elsewhere())]);
    let mut looked_at: Vec<_> = late.watch.seen.keys().cloned().collect();
    looked_at.sort();
    assert_eq!(
        looked_at,
        [late.elsewhere(), stranger],
        "none of the five that are served"
    );
    assert_eq!(late.look(), []);
    // A member that could not be taken in is tried again later, not at once.
    late.watch.refused(
        &late.elsewhere(),
        &Failure::new(id::MEMBER_STATE, "no", "no"),
    );
    assert_eq!(late.look(), []);
    late.watch.seen.get_mut(&late.elsewhere()).unwrap().1 = Some(Instant::now());
    assert_eq!(late.look(), [(MemberId(2), late.elsewhere())]);
    late.end();
}

#[test]
fn a_member_that_was_taken_out_on_purpose_stays_out() {
    let mut late = Late::new();
    late.pool.take_out(MemberId(2)).unwrap();
    std::fs::rename(late.elsewhere(), &late.paths[2]).unwrap();
    assert!((0..3).all(|_| late.look().is_empty()));
    late.end();
}

#[test]
fn a_member_that_failed_comes_back_once_and_only_if_its_device_was_gone() {
    let mut late = Late::new();
    std::fs::rename(late.elsewhere(), &late.paths[2]).unwrap();
    late.take_in();
    let status = |state: &'static str, pool: &Pool| {
        let mut status = pool.status().unwrap();
        status.members[2].state = state;
        status
    };
    let known = late.pool.paths();
    let is_awaited = |late: &mut Late| {
        let status = status("faulted", &late.pool);
        late.watch.note_gone(&status, &late.pool, &known);
        late.watch.is_awaited(&status.members[2], &late.pool)
    };
    assert!(
        !is_awaited(&mut late),
        "its device is still there, and failed"
    );
    std::fs::rename(&late.paths[2], late.elsewhere()).unwrap();
    assert!(is_awaited(&mut late), "it is unplugged");
    std::fs::rename(late.elsewhere(), &late.paths[2]).unwrap();
    assert!(is_awaited(&mut late), "and back");
    late.watch.taken_in(&late.pool, MemberId(2));
    std::fs::rename(&late.paths[2], late.elsewhere()).unwrap();
    assert!(!is_awaited(&mut late), "not again and again");
    late.end();
}

#[test]
fn a_start_waits_for_what_the_pool_counts_on_and_for_nothing_else() {
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let paths = create_pool(dir.path());
    let registry = Registry::new(state.path());
    let target = PoolTarget {
        dirs: vec![dir.path().to_owned()],
        ..PoolTarget::default()
    };
    let places = Places::of(&target, &registry).unwrap();
    let is_awaited =
        |target: &PoolTarget| awaited(&offline::locate(target, &registry), target, &places);
    assert_eq!(is_awaited(&target), None);
    let away = dir.path().with_extension("away");
    std::fs::rename(&paths[3], &away).unwrap();
    assert_eq!(is_awaited(&target).as_deref(), Some("member 3"));
    let named = PoolTarget {
        members: paths.clone(),
        ..PoolTarget::default()
    };
    assert_eq!(is_awaited(&named), Some(paths[3].display().to_string()));
    let others: Vec<PathBuf> = paths.iter().filter(|path| path.exists()).cloned().collect();
    // Patience that has ended is the same as none.
    let mut told = Vec::new();
    let found = locate_patiently(&target, &registry, Duration::ZERO, &|| false, &mut |what| {
        told.push(what.to_owned())
    })
    .unwrap();
    assert_eq!((found.members.len(), told.len()), (others.len(), 0));
    open_again(&others, &registry).shutdown(false).unwrap();
    assert_eq!(is_awaited(&target), None, "its loss is recorded");
    let nothing = PoolTarget {
        name: Some("tank".to_owned()),
        ..PoolTarget::default()
    };
    assert_eq!(
        awaited(
            &Err(Failure::new(id::POOL_UNKNOWN, "", "")),
            &nothing,
            &Places::default()
        ),
        None,
        "a wrong name is no reason to wait"
    );
    std::fs::remove_file(away).unwrap();
}

//! Concurrent commands, and scrubs that start automatically.

use super::*;
use crate::HostOptions;
use crate::offline::{ScratchSpec, ram_members, scratch_pool};
use std::os::unix::fs::MetadataExt;

fn pool() -> Pool {
    let opened = scratch_pool(
        ram_members(4, 32 << 20).unwrap(),
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
    create_volume(&pool, "data", 4 << 20).unwrap();
    pool
}

fn daemon(registry: Registry) -> Daemon {
    Daemon::new(pool(), "tank", Some(registry))
}

/// Time for another command to end, if nothing holds it.
fn let_pass<T>(other: &std::thread::ScopedJoinHandle<'_, T>) {
    let begin = Instant::now();
    while !other.is_finished() && begin.elapsed() < Duration::from_millis(300) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// If both read the properties before either sets them, the later one undoes the other.
#[test]
fn of_two_changes_of_properties_none_is_undone() {
    let pool = pool();
    std::thread::scope(|scope| {
        let set = pool.change_properties(|properties| {
            let_pass(&scope.spawn(|| {
                set_properties(
                    &pool,
                    &PropertyChange {
                        seal_age_ms: Some(33),
                        ..PropertyChange::default()
                    },
                )
                .unwrap()
            }));
            properties.spare_per_mille = 250;
            Ok(())
        });
        set.unwrap();
    });
    let now = report(&pool).unwrap().properties;
    assert_eq!((now.spare_per_mille, now.seal_age_ms), (250, 33));
}

/// If the older table is stored last, the second export is gone after the next start.
#[test]
fn of_two_changes_of_exports_the_newer_table_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(Registry::new(dir.path()));
    let export = || NamedExport {
        volume: "data".to_owned(),
        read_only: true,
        ..NamedExport::default()
    };
    std::thread::scope(|scope| {
        let kept = daemon.change_exports(|pool| {
            let table = pool.add_export("one", export(), false);
            let_pass(&scope.spawn(|| {
                daemon
                    .change_exports(|pool| pool.add_export("two", export(), false))
                    .unwrap()
            }));
            table
        });
        kept.unwrap();
    });
    let kept = Registry::new(dir.path())
        .load("tank")
        .unwrap()
        .unwrap()
        .exports;
    assert_eq!(kept.added.keys().collect::<Vec<_>>(), ["one", "two"]);
}

/// A change that is not stored must not be in effect until the next start; a second try must not
/// find it done.
#[test]
fn changes_of_exports_that_cannot_be_kept_are_undone() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(Registry::new(dir.path()));
    let add = |name: &str| Command::ExportAdd {
        name: name.to_owned(),
        volume: "data".to_owned(),
        read_only: true,
        description: String::new(),
        default: true,
        force: false,
    };
    daemon.handle(add("one")).unwrap();
    let before = daemon.pool.exports();
    // Nothing can be created under a dangling link, not even by root.
    let (folder, aside) = (dir.path().join("pools"), dir.path().join("aside"));
    std::fs::rename(&folder, &aside).unwrap();
    std::os::unix::fs::symlink("nowhere", &folder).unwrap();
    for command in [
        add("two"),
        Command::ExportRemove {
            name: "one".to_owned(),
            default: false,
            force: false,
        },
        Command::ExportRemove {
            name: "data".to_owned(),
            default: false,
            force: false,
        },
    ] {
        assert_eq!(daemon.handle(command).unwrap_err().id, id::LOCAL_FILE);
        assert_eq!(daemon.pool.exports(), before);
    }
    std::fs::remove_file(&folder).unwrap();
    std::fs::rename(&aside, &folder).unwrap();
    daemon.handle(add("two")).unwrap();
    let kept = Registry::new(dir.path())
        .load("tank")
        .unwrap()
        .unwrap()
        .exports;
    assert_eq!(kept.added.keys().collect::<Vec<_>>(), ["one", "two"]);
}

/// A delete that rewrites the pool's file waits for the device below it, which takes most of its
/// time.
#[test]
fn deletes_write_the_registry_only_where_exports_change() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(Registry::new(dir.path()));
    daemon
        .change_exports(|pool| {
            pool.add_export(
                "one",
                NamedExport {
                    volume: "data".to_owned(),
                    ..NamedExport::default()
                },
                false,
            )
        })
        .unwrap();
    let file = || {
        std::fs::metadata(dir.path().join("pools/tank.json"))
            .unwrap()
            .ino()
    };
    let before = file();
    create_volume(&daemon.pool, "other", 4 << 20).unwrap();
    daemon.delete_volume("other", false).unwrap();
    assert_eq!(file(), before);
    daemon.delete_volume("data", false).unwrap();
    let kept = Registry::new(dir.path())
        .load("tank")
        .unwrap()
        .unwrap()
        .exports;
    assert_eq!((file() != before, kept), (true, ExportTable::default()));
}

/// A member's old path must not be stored after its new one.
#[test]
fn of_two_changes_of_members_the_newer_places_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(Registry::new(dir.path()));
    let look = |path: &str| {
        let mut report = crate::report::tests::sample();
        report.members[0].path = path.to_owned();
        Ok(report)
    };
    std::thread::scope(|scope| {
        let kept = daemon.keep_members(MemberId(0), || {
            let before = look("/dev/disk/by-id/before");
            let_pass(&scope.spawn(|| {
                daemon
                    .keep_members(MemberId(0), || look("/dev/disk/by-id/now"))
                    .unwrap()
            }));
            before
        });
        kept.unwrap();
    });
    let kept = Registry::new(dir.path())
        .load("tank")
        .unwrap()
        .unwrap()
        .members;
    assert_eq!(kept, [PathBuf::from("/dev/disk/by-id/now")]);
}

/// With "30 MiB" and "20 MiB" at the same time, neither sees the other: 30 becomes 20 without
/// permission to shrink.
#[test]
fn a_volume_shrinks_only_if_the_change_allows_it() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = daemon(Registry::new(dir.path()));
    let resize = |mib: u64, shrink| {
        daemon.handle(Command::VolumeResize {
            name: "data".to_owned(),
            size_bytes: mib << 20,
            shrink,
            force: false,
        })
    };
    let size = || {
        report(daemon.pool())
            .unwrap()
            .volume("data")
            .unwrap()
            .size_bytes
            >> 20
    };
    resize(30, false).unwrap();
    let refused = resize(20, false).unwrap_err();
    assert!(
        refused.id == id::POOL_VALUE && refused.remedy.contains("--shrink"),
        "{refused}"
    );
    assert_eq!(size(), 30);
    resize(30, false).unwrap();
    resize(20, true).unwrap();
    assert_eq!(size(), 20);
}

/// Another thread requests an export of a pool that is ending already.
fn ask_late<'scope>(
    daemon: &'scope Daemon,
    scope: &'scope std::thread::Scope<'scope, '_>,
) -> std::thread::ScopedJoinHandle<'scope, Result<Reply, Failure>> {
    let asking = scope.spawn(|| {
        daemon.handle(Command::Shutdown {
            export: true,
            force: false,
        })
    });
    while lock(&daemon.end).requested != Some(true) && !asking.is_finished() {
        std::thread::yield_now();
    }
    asking
}

/// A request while connections drain must be carried out, as it is reported as done.
#[test]
fn an_export_that_is_asked_for_while_the_daemon_ends_is_one() {
    let daemon = Daemon::new(pool(), "tank", None);
    daemon.request_end(false);
    assert!(daemon.wait_for_end(Duration::ZERO));
    std::thread::scope(|scope| {
        let asking = ask_late(&daemon, scope);
        daemon.finish(false).unwrap();
        assert!(matches!(asking.join().unwrap(), Ok(Reply::Done)));
    });
    assert_eq!(lock(&daemon.end).decided, Some(true));
}

#[test]
fn an_export_that_comes_too_late_fails() {
    let daemon = Daemon::new(pool(), "tank", None);
    daemon.request_end(false);
    assert!(!daemon.decide());
    std::thread::scope(|scope| {
        let asking = ask_late(&daemon, scope);
        daemon.announce(
            daemon
                .pool
                .shutdown(false)
                .map_err(|error| control_failure(String::new(), &error)),
        );
        assert_eq!(
            asking.join().unwrap().unwrap_err().what,
            "the pool is not exported"
        );
    });
    assert!(
        daemon
            .handle(Command::Shutdown {
                export: true,
                force: false
            })
            .is_err(),
        "nor when it is over"
    );
    assert!(matches!(
        daemon.handle(Command::Shutdown {
            export: false,
            force: false
        }),
        Ok(Reply::Done)
    ));
}

/// The automatic start itself, not only the due time.
#[test]
fn a_scrub_that_is_due_begins() {
    const DAY_S: u64 = 86_400;
    const LAST: u64 = 1_800_000_000;
    let daemon = Daemon::new(pool(), "tank", None);
    let scrub = || daemon.pool.status().unwrap().scrub;
    let every = |days| {
        set_properties(
            &daemon.pool,
            &PropertyChange {
                scrub_interval_days: Some(days),
                ..PropertyChange::default()
            },
        )
        .unwrap()
    };
    let end = Instant::now() + Duration::from_secs(60);
    let ended = || {
        while scrub().state == ScrubState::Running {
            assert!(Instant::now() < end, "{:?}", scrub());
            std::thread::sleep(Duration::from_millis(1));
        }
        scrub()
    };
    // Only the time of the last scrub is known. (The pool is almost empty: the scrub ends at once.)
    every(7);
    daemon
        .pool
        .control(Control::Scrub(ScrubCommand::Start {
            unix_s: LAST,
            bytes_per_second: 1 << 30,
        }))
        .unwrap();
    let last = ended();
    assert!(
        last.state == ScrubState::Completed && last.started_unix_s == LAST,
        "{last:?}"
    );
    daemon.keep_schedule(LAST + 6 * DAY_S);
    assert_eq!(scrub(), last, "it is not due yet");
    every(0);
    daemon.keep_schedule(LAST + 8 * DAY_S);
    assert_eq!(scrub(), last, "none is wanted");
    every(7);
    daemon.keep_schedule(LAST + 8 * DAY_S);
    let begun = ended();
    assert_eq!(
        (begun.state, begun.started_unix_s, begun.bytes_per_second),
        (ScrubState::Completed, LAST + 8 * DAY_S, 0),
        "{begun:?}"
    );
    // The next look a minute later starts no other one.
    daemon.keep_schedule(LAST + 8 * DAY_S + 60);
    assert_eq!(scrub().started_unix_s, LAST + 8 * DAY_S);
    daemon.pool.shutdown(false).unwrap();
    daemon.keep_schedule(LAST + 30 * DAY_S);
}

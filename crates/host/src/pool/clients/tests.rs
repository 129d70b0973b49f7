use super::*;
use crate::HostOptions;
use crate::driver::tests::{Collector, request, write};
use crate::offline::{ScratchSpec, ram_members, scratch_pool};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use windrow_engine::Control;
use windrow_frontend::{ExportSource, Session, Sink};
use windrow_io::{Completion, Op, RequestError};

fn pool() -> Pool {
    let spec = ScratchSpec {
        segment_rows: Some(64),
        chunk_rows: Some(16),
        ..ScratchSpec::default()
    };
    let opened = scratch_pool(ram_members(4, 32 << 20).unwrap(), &spec).unwrap();
    let pool = Pool::start(
        opened.engine,
        opened.members,
        opened.buffers,
        HostOptions::default(),
    )
    .unwrap();
    for name in ["data", "other"] {
        pool.control(Control::VolumeCreate {
            name: name.to_owned(),
            size_bytes: 4 << 20,
        })
        .unwrap();
    }
    pool
}

fn volume(pool: &Pool, name: &str) -> Target {
    Target::Volume(pool.report().unwrap().volume(name).unwrap().id)
}

/// A connection that ends on request, or only when it is cut off.
struct Guest {
    session: Mutex<Option<Box<dyn Session>>>,
    leaves: bool,
    was_asked: AtomicBool,
}

impl Sink for Guest {
    fn complete(&self, completions: &mut Vec<Completion>) {
        completions.clear();
    }

    fn leave(&self) {
        self.was_asked.store(true, Ordering::SeqCst);
        if self.leaves {
            self.cut();
        }
    }

    fn cut(&self) {
        drop(self.session.lock().unwrap().take());
    }
}

fn enter(pool: &Pool, export: &str, leaves: bool) -> Arc<Guest> {
    let guest = Arc::new(Guest {
        session: Mutex::default(),
        leaves,
        was_asked: AtomicBool::new(false),
    });
    *guest.session.lock().unwrap() = Some(pool.enter(export, "unix pid 7", guest.clone()).unwrap());
    guest
}

#[test]
fn what_clients_use_is_not_taken_away_without_force() {
    let pool = pool();
    pool.add_export(
        "look",
        crate::NamedExport {
            volume: "data".to_owned(),
            read_only: true,
            ..Default::default()
        },
        true,
    )
    .unwrap();
    let inside = pool.open("data", Arc::new(Collector::default())).unwrap();
    assert!(
        pool.bar("x", &Target::Pool, false).is_ok(),
        "a session of this process is no client"
    );
    let guests = [enter(&pool, "data", true), enter(&pool, "", false)];
    assert_eq!(
        pool.clients()
            .iter()
            .map(|client| client.by_default)
            .collect::<Vec<_>>(),
        [false, true]
    );
    for target in [
        Target::Pool,
        volume(&pool, "data"),
        Target::Export("data".to_owned()),
        Target::Export("look".to_owned()),
        Target::Default,
    ] {
        let refused = pool
            .bar("cannot do it", &target, false)
            .map(drop)
            .unwrap_err();
        assert!(
            refused.id == id::IN_USE && refused.why.contains("unix pid 7"),
            "{target:?}: {refused}"
        );
    }
    let refused = pool
        .bar("cannot do it", &volume(&pool, "data"), false)
        .map(drop)
        .unwrap_err();
    assert!(refused.why.contains("2 clients are connected"), "{refused}");
    assert!(pool.bar("x", &volume(&pool, "other"), false).is_ok());
    assert!(
        pool.bar("x", &Target::Export("other".to_owned()), false)
            .is_ok()
    );
    let counted: Vec<usize> = pool
        .exports()
        .iter()
        .map(|export| export.clients.len())
        .collect();
    assert_eq!(counted, [1, 1, 0], "the default, data, other");
    let bar = pool.bar("x", &volume(&pool, "data"), true).unwrap();
    assert_eq!(pool.clients(), []);
    assert!(
        guests
            .iter()
            .all(|guest| guest.was_asked.load(Ordering::SeqCst)
                && guest.session.lock().unwrap().is_none())
    );
    assert!(inside.info().size_bytes > 0);
    for export in ["data", "look", ""] {
        assert_eq!(
            pool.enter(export, "late", Arc::new(Collector::default()))
                .err(),
            Some(RequestError::Stopped),
            "{export}"
        );
    }
    drop(enter(&pool, "other", true));
    drop(bar);
    drop(enter(&pool, "data", true));
}

/// A client that closed its connection a moment ago must not count as connected.
#[test]
fn a_client_that_has_closed_its_connection_is_waited_for() {
    struct Closed;
    impl Sink for Closed {
        fn complete(&self, _: &mut Vec<Completion>) {}
        fn is_gone(&self) -> bool {
            true
        }
    }
    let pool = pool();
    let session = pool.enter("data", "p", Arc::new(Closed)).unwrap();
    std::thread::scope(|scope| {
        let bar = scope.spawn(|| pool.bar("x", &Target::Pool, false).map(drop));
        std::thread::yield_now();
        drop(session);
        bar.join().unwrap().unwrap();
    });
}

/// A client that connects while a command looks is seen by it, or refused: it is never there when
/// the command proceeds.
#[test]
fn a_client_that_comes_meanwhile_is_seen_or_refused() {
    let pool = pool();
    let target = volume(&pool, "data");
    let (over, entered) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    if let Ok(session) = pool.enter("data", "p", Arc::new(Collector::default())) {
                        entered.fetch_add(1, Ordering::SeqCst);
                        drop(session);
                    }
                    std::thread::yield_now();
                }
            });
        }
        let mut barred = 0;
        while barred < 10 {
            if let Ok(bar) = pool.bar("x", &target, false) {
                (0..20).for_each(|_| assert_eq!(pool.clients(), []));
                drop(bar);
                barred += 1;
            }
            let before = entered.load(Ordering::SeqCst);
            while entered.load(Ordering::SeqCst) == before {
                std::thread::yield_now();
            }
        }
        over.store(true, Ordering::SeqCst);
    });
}

#[test]
fn clients_are_disconnected_by_export_or_number() {
    let pool = pool();
    let guests = [
        enter(&pool, "data", true),
        enter(&pool, "data", true),
        enter(&pool, "other", true),
    ];
    let second = pool.clients()[1].client;
    assert_eq!(
        pool.disconnect(Some("other"), Some(second)).unwrap_err().id,
        id::CLIENT_UNKNOWN
    );
    assert_eq!(
        pool.disconnect(Some("nothing"), None).unwrap_err().id,
        id::EXPORT_UNKNOWN
    );
    assert_eq!(
        pool.disconnect(None, Some(second)).unwrap().clients.len(),
        1
    );
    assert!(
        guests[1].session.lock().unwrap().is_none() && guests[0].session.lock().unwrap().is_some()
    );
    assert_eq!(
        pool.disconnect(Some("data"), None).unwrap().clients.len(),
        1
    );
    let gone = pool.disconnect(None, None).unwrap();
    assert_eq!(
        (gone.clients[0].export.as_str(), gone.cut, gone.unfinished),
        ("other", 0, 0)
    );
    let stubborn = enter(&pool, "data", false);
    let gone = pool.disconnect(Some("data"), None).unwrap();
    assert_eq!(
        (
            gone.cut,
            gone.unfinished,
            stubborn.session.lock().unwrap().is_none()
        ),
        (1, 0, true)
    );
    assert_eq!(pool.disconnect(Some("data"), None).unwrap().clients, []);
}

#[test]
fn what_a_client_does_is_counted() {
    let pool = pool();
    let sink = Arc::new(Collector::default());
    let session = pool.enter("data", "p", sink.clone()).unwrap();
    for (at, op) in [
        Op::Read {
            offset: 0,
            length: 8192,
        },
        Op::Read {
            offset: 4 << 20,
            length: 4096,
        },
        Op::Flush,
    ]
    .into_iter()
    .enumerate()
    {
        let mut ready = Vec::new();
        session.submit(&mut vec![request(at as u64, op)], &mut ready);
        if ready.is_empty() {
            sink.wait(1);
        }
    }
    let mut ready = Vec::new();
    session.submit(&mut vec![write(9)], &mut ready);
    if ready.is_empty() {
        sink.wait(1);
    }
    let client = pool.clients().remove(0);
    assert_eq!(
        (
            client.reads,
            client.read_bytes,
            client.writes,
            client.errors,
            client.in_flight
        ),
        (1, 8192, 1, 1, 0)
    );
    assert_eq!(client.written_bytes, 512);
}

/// Under the old name, removing the new one would miss them, and a new volume of the old name would
/// have them.
#[test]
fn clients_follow_the_new_name_of_their_volume() {
    let pool = pool();
    let Target::Volume(id) = volume(&pool, "data") else {
        unreachable!("a volume")
    };
    let _guests = [enter(&pool, "data", true), enter(&pool, "other", true)];
    pool.control(Control::VolumeRename {
        volume: id,
        name: "archive".to_owned(),
    })
    .unwrap();
    pool.rename_in_exports(id, "data", "archive");
    pool.control(Control::VolumeCreate {
        name: "data".to_owned(),
        size_bytes: 4 << 20,
    })
    .unwrap();
    let mut clients: Vec<_> = pool
        .exports()
        .into_iter()
        .map(|export| (export.name, export.clients.len()))
        .collect();
    clients.sort();
    assert_eq!(
        clients,
        [
            ("archive".to_owned(), 1),
            ("data".to_owned(), 0),
            ("other".to_owned(), 1)
        ]
    );
    assert!(
        pool.bar("x", &Target::Export("archive".to_owned()), false)
            .is_err()
    );
    assert!(
        pool.bar("x", &Target::Export("data".to_owned()), false)
            .is_ok()
    );
}

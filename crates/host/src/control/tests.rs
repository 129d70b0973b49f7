use super::server::{BACKLOG, COMMANDS_MAX, CONNECTIONS_MAX, bind_private};
use super::*;
use crate::report::tests::sample;
use crate::sessions::lock;
use rustix::net::listen;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

struct Fixed;

const POOL: Uuid = Uuid([7; 16]);

/// A client of the pool that [`Fixed`] serves.
fn client(path: &Path) -> ControlClient {
    ControlClient::connect(path, Some("tank")).unwrap().unwrap()
}

impl ControlHandler for Fixed {
    fn serves(&self) -> ServedPool {
        ServedPool {
            name: "tank".to_owned(),
            pool: POOL,
        }
    }

    fn handle(&self, command: Command) -> Result<Reply, Failure> {
        match command {
            Command::Status => Ok(Reply::Pool(Box::new(sample()))),
            Command::VolumeDelete { name, .. } => Err(Failure::new(
                id::VOLUME_UNKNOWN,
                format!("cannot delete '{name}'"),
                "there is none",
            )
            .remedy("look again")),
            _ => Ok(Reply::Done),
        }
    }
}

#[test]
fn questions_and_answers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tank.sock");
    assert!(ControlClient::connect(&path, None).unwrap().is_none());
    let server = ControlServer::start(&path, Arc::new(Fixed)).unwrap();
    assert_eq!(
        ControlServer::start(&path, Arc::new(Fixed))
            .err()
            .unwrap()
            .id,
        id::POOL_BUSY
    );
    let mut client = client(&path);
    let Reply::Pool(report) = client.ask(Command::Status).unwrap() else {
        panic!("a pool was asked for")
    };
    assert_eq!(report.name, "ta\"nk");
    let change = PropertyChange {
        seal_age_ms: Some(5),
        ..PropertyChange::default()
    };
    assert!(matches!(
        client.ask(Command::PoolSet(change)).unwrap(),
        Reply::Done
    ));
    let failure = client
        .ask(Command::VolumeDelete {
            name: "x".to_owned(),
            force: false,
        })
        .unwrap_err();
    assert_eq!(
        failure.to_string(),
        "WR-VOLUME-001: cannot delete 'x': there is none; look again"
    );
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    server.stop();
    assert!(!path.exists());
    assert_eq!(client.ask(Command::Status).unwrap_err().id, id::NO_DAEMON);
}

#[test]
fn nonsense_is_answered_and_a_dead_socket_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tank.sock");
    drop(UnixListener::bind(&path).unwrap());
    let _server = ControlServer::start(&path, Arc::new(Fixed)).unwrap();
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(b"{\"version\":2,\"command\":\"dance\"}\n\xff\xfe\n{\"version\":9,\"command\":\"status\"}\n").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert_eq!(text.matches(id::NO_DAEMON).count(), 3, "{text}");
}

/// Each ended connection must close its descriptor: otherwise a status each minute uses all of them
/// up within a day.
#[test]
fn nothing_is_left_of_connections_that_have_ended() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tank.sock");
    let server = ControlServer::start(&path, Arc::new(Fixed)).unwrap();
    for _ in 0..CONNECTIONS_MAX * 2 {
        let mut client = client(&path);
        assert!(client.ask(Command::Status).is_ok());
        drop(client);
        while server.open.count() > 0 {
            std::thread::yield_now();
        }
    }
    let kept: Vec<_> = (0..CONNECTIONS_MAX).map(|_| client(&path)).collect();
    while server.open.count() < kept.len() {
        std::thread::yield_now();
    }
    // The limit is reached: the connection idle for longest is closed.
    assert!(client(&path).ask(Command::Status).is_ok());
    let streams: Vec<_> = lock(&server.open.open)
        .values()
        .map(Arc::downgrade)
        .collect();
    drop(kept);
    while streams.iter().any(|stream| stream.strong_count() > 0) {
        std::thread::yield_now();
    }
}

/// One of each kind. The match fails to compile when a kind is added: add one to the list then.
fn one_of_each() -> Vec<Command> {
    use Command::*;
    let (name, path, member) = (|| "data".to_owned(), || PathBuf::from("/m"), 1);
    let (overwrite, power_safe) = (false, false);
    let all = vec![
        Identify,
        Status,
        VolumeCreate {
            name: name(),
            size_bytes: 4096,
            default: false,
            force: false,
        },
        VolumeResize {
            name: name(),
            size_bytes: 4096,
            shrink: true,
            force: false,
        },
        VolumeSync {
            name: name(),
            sync: windrow_format::checkpoint::SyncMode::Always,
        },
        VolumeCompression {
            name: name(),
            compression: windrow_format::checkpoint::Compression::Lz4,
        },
        VolumeDedup {
            name: name(),
            dedup: windrow_format::checkpoint::Dedup::Hash,
        },
        VolumeRename {
            name: name(),
            new_name: name(),
        },
        VolumeDelete {
            name: name(),
            force: false,
        },
        Sharing,
        PoolSet(PropertyChange::default()),
        ExportList,
        ExportAdd {
            name: name(),
            volume: name(),
            read_only: true,
            description: name(),
            default: false,
            force: false,
        },
        ExportRemove {
            name: name(),
            default: false,
            force: false,
        },
        ExportDisconnect {
            export: None,
            client: None,
        },
        Checkpoint,
        Scrub {
            action: ScrubAction::Start,
            bytes_per_second: None,
        },
        MemberOffline { member },
        MemberOnline { member, path: None },
        MemberReplace {
            member,
            path: path(),
            overwrite,
            power_safe,
            partitioning: Partitioning::Never,
        },
        SpareAdd {
            path: path(),
            overwrite,
            small: false,
            partitioning: Partitioning::AllDevices,
        },
        Grow { members: vec![1] },
        JournalAdd {
            path: path(),
            overwrite,
            power_safe,
            partitioning: Partitioning::Disks,
        },
        SpareRemove { member },
        RecordStart { name: None },
        RecordTake {
            token: 1,
            end: true,
        },
        Shutdown {
            export: true,
            force: false,
        },
    ];
    let number = |command: &Command| match command {
        Identify => 0,
        Status => 1,
        VolumeCreate { .. } => 2,
        VolumeResize { .. } => 3,
        VolumeSync { .. } => 4,
        VolumeCompression { .. } => 5,
        VolumeDedup { .. } => 6,
        VolumeRename { .. } => 7,
        VolumeDelete { .. } => 8,
        Sharing => 9,
        PoolSet(_) => 10,
        ExportList => 11,
        ExportAdd { .. } => 12,
        ExportRemove { .. } => 13,
        ExportDisconnect { .. } => 14,
        Checkpoint => 15,
        Scrub { .. } => 16,
        MemberOffline { .. } => 17,
        MemberOnline { .. } => 18,
        MemberReplace { .. } => 19,
        SpareAdd { .. } => 20,
        Grow { .. } => 21,
        JournalAdd { .. } => 22,
        SpareRemove { .. } => 23,
        RecordStart { .. } => 24,
        RecordTake { .. } => 25,
        Shutdown { .. } => 26,
    };
    assert_eq!(
        all.iter().map(number).collect::<Vec<_>>(),
        (0..all.len()).collect::<Vec<_>>()
    );
    all
}

/// Counts the commands that are carried out.
struct Counting(std::sync::atomic::AtomicUsize);

impl ControlHandler for Counting {
    fn serves(&self) -> ServedPool {
        Fixed.serves()
    }

    fn handle(&self, _: Command) -> Result<Reply, Failure> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(Reply::Done)
    }
}

/// `volume delete p0/qq --control tank.control` must not delete in tank and report p0.
#[test]
fn no_command_acts_on_another_pool_than_the_one_it_names() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tank.sock");
    let counting = Arc::new(Counting(0.into()));
    let _server = ControlServer::start(&path, counting.clone()).unwrap();
    let connect = |pool: Option<&str>| ControlClient::connect(&path, pool).unwrap().unwrap();
    for command in one_of_each() {
        let before = counting.0.load(Ordering::SeqCst);
        let refused = connect(Some("p0")).ask(command.clone()).unwrap_err();
        let (text, id) = (refused.to_string(), POOL.to_string());
        assert!(
            refused.id == id::POOL_UNKNOWN
                && text.contains("'p0'")
                && text.contains("'tank'")
                && text.contains(&id),
            "{command:?}: {text}"
        );
        let unnamed = connect(None)
            .ask(command.clone())
            .map(drop)
            .map_err(|failure| failure.id);
        let shows_only = matches!(command, Command::Identify | Command::Status);
        assert_eq!(
            unnamed,
            if shows_only {
                Ok(())
            } else {
                Err(id::NO_DAEMON.to_owned())
            },
            "{command:?}"
        );
        assert_eq!(
            counting.0.load(Ordering::SeqCst) - before,
            usize::from(shows_only),
            "{command:?}"
        );
        connect(Some("tank")).ask(command.clone()).unwrap();
        connect(Some(&id)).ask(command).unwrap();
    }
    let old = "{\"version\":1,\"command\":\"volume-delete\",\"name\":\"data\"}\n";
    let (mut stream, mut text) = (UnixStream::connect(&path).unwrap(), String::new());
    stream.write_all(old.as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    stream.read_to_string(&mut text).unwrap();
    assert!(
        text.contains("it speaks version 2, the request version 1"),
        "{text}"
    );
}

/// A daemon that hangs, under SIGSTOP or in a frozen group: the kernel takes the connection, and no
/// answer comes.
#[test]
fn a_daemon_that_hangs_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tank.sock");
    let _listener = UnixListener::bind(&path).unwrap();
    let patience = Patience {
        silence: Duration::from_millis(50),
        quick_answer: Duration::from_millis(50),
    };
    for command in [Command::Status, Command::Checkpoint] {
        let mut client = ControlClient::connect_within(&path, Some("tank"), patience)
            .unwrap()
            .unwrap();
        let text = client.ask(command).unwrap_err().to_string();
        let process = format!("(process {}) does not answer", std::process::id());
        assert!(
            text.starts_with(id::NO_DAEMON) && text.contains(&process),
            "{text}"
        );
    }
    // The same when its backlog is full.
    let full = bind_private(&dir.path().join("full.sock")).unwrap();
    listen(&full, 0).unwrap();
    let connect = || ControlClient::connect_within(&dir.path().join("full.sock"), None, patience);
    let _one = connect().unwrap().unwrap();
    let why = connect().map(drop).unwrap_err().to_string();
    assert!(why.contains("has not taken a connection"), "{why}");
}

/// A long command is waited for. A quick question has a timeout, and the process is not taken for
/// dead.
#[test]
fn a_busy_daemon_is_not_a_dead_one() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let working = "{\"version\":2,\"working\":true}\n";
    theirs
        .write_all(
            format!("{working}{working}{{\"version\":2,\"ok\":{{\"kind\":\"done\"}}}}\n")
                .as_bytes(),
        )
        .unwrap();
    let mut client = ControlClient::over(ours, Path::new("x"));
    assert!(matches!(client.ask(Command::Checkpoint), Ok(Reply::Done)));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tank.sock");
    let waiting = Arc::new(Waiting(Mutex::default()));
    let _server = ControlServer::start(&path, waiting.clone()).unwrap();
    let patience = Patience {
        silence: Duration::from_secs(60),
        quick_answer: Duration::from_millis(1),
    };
    let hangs = lock(&waiting.0);
    let failure = ControlClient::connect_within(&path, Some("tank"), patience)
        .unwrap()
        .unwrap()
        .ask(Command::ExportList)
        .unwrap_err();
    assert!(
        failure.id == id::POOL_BUSY && failure.why.contains("it is alive"),
        "{failure}"
    );
    drop(hangs);
}

/// Blocks checkpoints and lists of exports.
struct Waiting(Mutex<()>);

impl ControlHandler for Waiting {
    fn serves(&self) -> ServedPool {
        Fixed.serves()
    }

    fn handle(&self, command: Command) -> Result<Reply, Failure> {
        if matches!(command, Command::Checkpoint | Command::ExportList) {
            drop(lock(&self.0));
        }
        Fixed.handle(command)
    }
}

/// With a hanging member, a script that repeats a command must not block the command that takes the
/// member out.
#[test]
fn commands_that_wait_leave_room_for_those_that_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tank.sock");
    let waiting = Arc::new(Waiting(Mutex::default()));
    let hangs = lock(&waiting.0);
    let server = ControlServer::start(&path, waiting.clone()).unwrap();
    let ask = |command| client(&path).ask(command);
    std::thread::scope(|scope| {
        let asked: Vec<_> = (0..COMMANDS_MAX)
            .map(|_| scope.spawn(|| ask(Command::Checkpoint)))
            .collect();
        while server.open.commands.load(Ordering::Relaxed) < COMMANDS_MAX {
            std::thread::yield_now();
        }
        let commands = [
            Command::Checkpoint,
            Command::Status,
            Command::MemberOffline { member: 1 },
        ];
        for command in commands.iter().cycle().take(3 * CONNECTIONS_MAX) {
            let refusal = ask(command.clone()).err().map(|failure| failure.id);
            assert_eq!(
                refusal.as_deref(),
                (*command == Command::Checkpoint).then_some(id::POOL_BUSY)
            );
            while server.open.count() > COMMANDS_MAX {
                std::thread::yield_now();
            }
        }
        drop(hangs);
        assert!(asked.into_iter().all(|asked| asked.join().unwrap().is_ok()));
        assert!(ask(Command::Checkpoint).is_ok());
    });
}

/// `serve --control m3` must not remove the member file of that name.
#[test]
fn a_file_that_is_no_socket_is_never_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("member");
    std::fs::write(&path, "the only copy").unwrap();
    let failure = ControlServer::start(&path, Arc::new(Fixed)).err().unwrap();
    assert_eq!(
        (
            failure.id.as_str(),
            std::fs::read_to_string(&path).unwrap().as_str()
        ),
        (id::LOCAL_FILE, "the only copy")
    );
}

/// Other users must not be able to connect between `bind` and `chmod`.
#[test]
fn no_client_can_connect_before_the_socket_is_private() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tank.sock");
    let bound = bind_private(&path).unwrap();
    assert_eq!(
        UnixStream::connect(&path).unwrap_err().kind(),
        std::io::ErrorKind::ConnectionRefused
    );
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    listen(&bound, BACKLOG).unwrap();
    assert!(UnixStream::connect(&path).is_ok());
}

#[test]
fn a_scrub_command_on_the_wire() {
    let start = Command::Scrub {
        action: ScrubAction::Start,
        bytes_per_second: Some(7),
    };
    let text = serde_json::to_string(&Question {
        version: CONTROL_VERSION,
        pool: None,
        command: start.clone(),
    })
    .unwrap();
    assert_eq!(
        text,
        r#"{"version":2,"command":"scrub","action":"start","bytes_per_second":7}"#
    );
    let read = |text: &str| serde_json::from_str::<Question>(text).map(|question| question.command);
    assert_eq!(read(&text).unwrap(), start);
    let pause = read(r#"{"version":2,"command":"scrub","action":"pause"}"#).unwrap();
    assert_eq!(
        pause,
        Command::Scrub {
            action: ScrubAction::Pause,
            bytes_per_second: None
        }
    );
    assert!(read(r#"{"version":2,"command":"scrub","action":"dance"}"#).is_err());
}

/// Older clients check the size themselves, and omit `shrink`.
#[test]
fn a_resize_of_an_older_client_may_make_a_volume_smaller() {
    let read = |text: &str| {
        serde_json::from_str::<Question>(text)
            .map(|question| question.command)
            .unwrap()
    };
    let resize = |shrink| Command::VolumeResize {
        name: "data".to_owned(),
        size_bytes: 4096,
        shrink,
        force: false,
    };
    assert_eq!(
        read(r#"{"version":2,"command":"volume-resize","name":"data","size_bytes":4096}"#),
        resize(true)
    );
    let text = serde_json::to_string(&Question {
        version: CONTROL_VERSION,
        pool: None,
        command: resize(false),
    })
    .unwrap();
    assert_eq!(read(&text), resize(false));
}

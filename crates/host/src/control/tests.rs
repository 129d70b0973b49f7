use super::*;
use crate::report::tests::sample;

struct Fixed;

impl ControlHandler for Fixed {
    fn handle(&self, command: Command) -> Result<Reply, Failure> {
        match command {
            Command::Status => Ok(Reply::Pool(Box::new(sample()))),
            Command::VolumeDelete { name, .. } => {
                Err(Failure::new(id::VOLUME_UNKNOWN, format!("cannot delete '{name}'"), "there is none").remedy("look again"))
            }
            _ => Ok(Reply::Done),
        }
    }
}

#[test]
fn questions_and_answers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run").join("tank.sock");
    assert!(ControlClient::connect(&path).is_none());
    let server = ControlServer::start(&path, Arc::new(Fixed)).unwrap();
    assert_eq!(ControlServer::start(&path, Arc::new(Fixed)).err().unwrap().id, id::POOL_BUSY);
    let mut client = ControlClient::connect(&path).unwrap();
    let Reply::Pool(report) = client.ask(Command::Status).unwrap() else { panic!("a pool was asked for") };
    assert_eq!(report.name, "ta\"nk");
    let change = PropertyChange { seal_age_ms: Some(5), ..PropertyChange::default() };
    assert!(matches!(client.ask(Command::PoolSet(change)).unwrap(), Reply::Done));
    let failure = client.ask(Command::VolumeDelete { name: "x".to_owned(), force: false }).unwrap_err();
    assert_eq!(failure.to_string(), "WR-VOLUME-001: cannot delete 'x': there is none; look again");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
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
    stream.write_all(b"{\"version\":1,\"command\":\"dance\"}\n\xff\xfe\n{\"version\":9,\"command\":\"status\"}\n").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert_eq!(text.matches(id::NO_DAEMON).count(), 3, "{text}");
}

/// Each of them left a descriptor behind: a status each minute, and after a day nobody could connect any more.
#[test]
fn nothing_is_left_of_connections_that_have_ended() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tank.sock");
    let server = ControlServer::start(&path, Arc::new(Fixed)).unwrap();
    for _ in 0..CONNECTIONS_MAX * 2 {
        let mut client = ControlClient::connect(&path).unwrap();
        assert!(client.ask(Command::Status).is_ok());
        drop(client);
        while server.open.count() > 0 {
            std::thread::yield_now();
        }
    }
    let kept: Vec<_> = (0..CONNECTIONS_MAX).map(|_| ControlClient::connect(&path).unwrap()).collect();
    while server.open.count() < kept.len() {
        std::thread::yield_now();
    }
    assert_eq!(ControlClient::connect(&path).unwrap().ask(Command::Status).unwrap_err().id, id::NO_DAEMON, "there are as many as there may be");
    let streams: Vec<_> = lock(&server.open.open).values().map(Arc::downgrade).collect();
    drop(kept);
    while streams.iter().any(|stream| stream.strong_count() > 0) {
        std::thread::yield_now();
    }
}

/// Keeps checkpoints waiting.
struct Waiting(Mutex<()>);

impl ControlHandler for Waiting {
    fn handle(&self, command: Command) -> Result<Reply, Failure> {
        if command == Command::Checkpoint {
            drop(lock(&self.0));
        }
        Fixed.handle(command)
    }
}

/// Beside a member that hung a script asked again and again, and nobody could take the member out any more.
#[test]
fn commands_that_wait_leave_room_for_those_that_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tank.sock");
    let waiting = Arc::new(Waiting(Mutex::default()));
    let hangs = lock(&waiting.0);
    let server = ControlServer::start(&path, waiting.clone()).unwrap();
    let ask = |command| ControlClient::connect(&path).unwrap().ask(command);
    std::thread::scope(|scope| {
        let asked: Vec<_> = (0..COMMANDS_MAX).map(|_| scope.spawn(|| ask(Command::Checkpoint))).collect();
        while server.open.commands.load(Ordering::Relaxed) < COMMANDS_MAX {
            std::thread::yield_now();
        }
        let commands = [Command::Checkpoint, Command::Status, Command::MemberOffline { member: 1 }];
        for command in commands.iter().cycle().take(3 * CONNECTIONS_MAX) {
            let refusal = ask(command.clone()).err().map(|failure| failure.id);
            assert_eq!(refusal.as_deref(), (*command == Command::Checkpoint).then_some(id::POOL_BUSY));
            while server.open.count() > COMMANDS_MAX {
                std::thread::yield_now();
            }
        }
        drop(hangs);
        assert!(asked.into_iter().all(|asked| asked.join().unwrap().is_ok()));
        assert!(ask(Command::Checkpoint).is_ok());
    });
}

/// `serve --control m3` once removed the member file of that name.
#[test]
fn a_file_that_is_no_socket_is_never_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("member");
    std::fs::write(&path, "the only copy").unwrap();
    let failure = ControlServer::start(&path, Arc::new(Fixed)).err().unwrap();
    assert_eq!((failure.id.as_str(), std::fs::read_to_string(&path).unwrap().as_str()), (id::LOCAL_FILE, "the only copy"));
}

/// Between `bind` and `chmod` others could connect.
#[test]
fn nobody_can_connect_before_the_socket_is_private() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tank.sock");
    let bound = bind_private(&path).unwrap();
    assert_eq!(UnixStream::connect(&path).unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    listen(&bound, BACKLOG).unwrap();
    assert!(UnixStream::connect(&path).is_ok());
}

#[test]
fn a_scrub_command_on_the_wire() {
    let start = Command::Scrub { action: ScrubAction::Start, bytes_per_second: Some(7) };
    let text = serde_json::to_string(&Question { version: CONTROL_VERSION, command: start.clone() }).unwrap();
    assert_eq!(text, r#"{"version":1,"command":"scrub","action":"start","bytes_per_second":7}"#);
    let read = |text: &str| serde_json::from_str::<Question>(text).map(|question| question.command);
    assert_eq!(read(&text).unwrap(), start);
    let pause = read(r#"{"version":1,"command":"scrub","action":"pause"}"#).unwrap();
    assert_eq!(pause, Command::Scrub { action: ScrubAction::Pause, bytes_per_second: None });
    assert!(read(r#"{"version":1,"command":"scrub","action":"dance"}"#).is_err());
}

/// Older clients looked at the size themselves, and sent only what was meant.
#[test]
fn a_resize_of_an_older_client_may_make_a_volume_smaller() {
    let read = |text: &str| serde_json::from_str::<Question>(text).map(|question| question.command).unwrap();
    let resize = |shrink| Command::VolumeResize { name: "data".to_owned(), size_bytes: 4096, shrink, force: false };
    assert_eq!(read(r#"{"version":1,"command":"volume-resize","name":"data","size_bytes":4096}"#), resize(true));
    let text = serde_json::to_string(&Question { version: CONTROL_VERSION, command: resize(false) }).unwrap();
    assert_eq!(read(&text), resize(false));
}

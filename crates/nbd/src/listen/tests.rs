use super::*;

fn open(path: &Path) -> io::Result<Listener> {
    Listener::open(&Listen::Unix(path.to_owned()), false, 0o600)
}

#[test]
fn a_stale_socket_is_replaced_and_a_living_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    drop(UnixListener::bind(&path).unwrap());
    let first = open(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    assert_eq!(
        open(&path).map(|_| ()).unwrap_err().kind(),
        ErrorKind::AddrInUse
    );
    drop(first);
    assert!(!path.exists());
}

/// Opens an address on its own thread; returns the result, or `None` after ten seconds.
fn opened_beside(path: &Path, meanwhile: impl FnOnce()) -> Option<Result<(), ErrorKind>> {
    let (result, wait) = std::sync::mpsc::channel();
    let path = path.to_owned();
    std::thread::spawn(move || result.send(open(&path).map(drop).map_err(|error| error.kind())));
    meanwhile();
    wait.recv_timeout(Duration::from_secs(10)).ok()
}

/// A running server with a full backlog, busy or stopped, must not block the start of another one.
#[test]
fn a_server_with_a_full_backlog_delays_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let (busy, address) = (
        stream_socket().unwrap(),
        SocketAddrUnix::new(&path).unwrap(),
    );
    bind(&busy, &address).unwrap();
    listen(&busy, 0).unwrap();
    let mut waiting = Vec::new();
    let full = loop {
        let client = stream_socket().unwrap();
        match connect(&client, &address) {
            Ok(()) => waiting.push(client),
            Err(errno) => break errno,
        }
    };
    assert_eq!(full, Errno::AGAIN);
    assert_eq!(opened_beside(&path, || ()), Some(Err(ErrorKind::AddrInUse)));
}

/// A socket between `bind` and `listen` must not be taken for stale by a server that starts at the
/// same moment: the first one would listen without a file.
#[test]
fn of_two_servers_that_start_at_once_one_listens() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let first = FolderLock::take(&path);
    let (socket, address) = (
        stream_socket().unwrap(),
        SocketAddrUnix::new(&path).unwrap(),
    );
    bind(&socket, &address).unwrap();
    let second = opened_beside(&path, || {
        std::thread::sleep(Duration::from_millis(100));
        listen(&socket, BACKLOG).unwrap();
        drop(first);
    });
    assert_eq!(second, Some(Err(ErrorKind::AddrInUse)));
    connect(stream_socket().unwrap(), &address).unwrap();
}

/// Any user may hold the lock of a folder that all may write to: servers must start there all the
/// same.
#[test]
fn a_folder_locked_by_others_keeps_no_server_from_listening() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let _another = FolderLock::take(&path);
    assert!(open(&path).is_ok());
}

#[test]
fn other_files_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    std::fs::write(&path, "text").unwrap();
    assert_eq!(
        open(&path).map(|_| ()).unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    std::fs::remove_file(&path).unwrap();
    let listener = open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "another's").unwrap();
    drop(listener);
    assert!(path.exists());
}

#[test]
fn remote_addresses_need_leave() {
    let any: Listen = "tcp:0.0.0.0:0".parse().unwrap();
    assert_eq!(
        Listener::open(&any, false, 0)
            .map(|_| ())
            .unwrap_err()
            .kind(),
        ErrorKind::InvalidInput
    );
    assert!(Listener::open(&any, true, 0).is_ok());
    let local = Listener::open(&"tcp:[::1]:0".parse().unwrap(), false, 0);
    let mapped: Listen = "tcp:[::ffff:127.0.0.1]:0".parse().unwrap();
    assert!(
        local.is_ok() || Listener::open(&mapped, false, 0).is_ok(),
        "loopback in some form of IPv6, unless the system has none"
    );
}

#[test]
fn addresses_have_a_text() {
    for text in ["unix:/a/b:c", "tcp:127.0.0.1:10809", "tcp:[::1]:1"] {
        assert_eq!(text.parse::<Listen>().unwrap().to_string(), text);
    }
    assert!(
        "tcp:somewhere:1".parse::<Listen>().is_err()
            && "unix:".parse::<Listen>().is_err()
            && "x".parse::<Listen>().is_err()
    );
}

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
    assert_eq!(open(&path).map(|_| ()).unwrap_err().kind(), ErrorKind::AddrInUse);
    drop(first);
    assert!(!path.exists());
}

#[test]
fn other_files_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    std::fs::write(&path, "text").unwrap();
    assert_eq!(open(&path).map(|_| ()).unwrap_err().kind(), ErrorKind::AlreadyExists);
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
    assert_eq!(Listener::open(&any, false, 0).map(|_| ()).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert!(Listener::open(&any, true, 0).is_ok());
    let local = Listener::open(&"tcp:[::1]:0".parse().unwrap(), false, 0);
    let mapped: Listen = "tcp:[::ffff:127.0.0.1]:0".parse().unwrap();
    assert!(local.is_ok() || Listener::open(&mapped, false, 0).is_ok(), "loopback in some form of IPv6, unless the system has none");
}

#[test]
fn addresses_have_a_text() {
    for text in ["unix:/a/b:c", "tcp:127.0.0.1:10809", "tcp:[::1]:1"] {
        assert_eq!(text.parse::<Listen>().unwrap().to_string(), text);
    }
    assert!("tcp:somewhere:1".parse::<Listen>().is_err() && "unix:".parse::<Listen>().is_err() && "x".parse::<Listen>().is_err());
}

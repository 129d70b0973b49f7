use super::*;
use crate::control::{ControlHandler, ControlServer, ServedPool};
use crate::registry::PoolEntry;
use std::os::unix::net::UnixListener;

/// Serves a pool with one member, at a path.
struct Fixed(PathBuf);

const POOL: Uuid = Uuid([7; 16]);

impl ControlHandler for Fixed {
    fn serves(&self) -> ServedPool {
        ServedPool {
            name: "tank".to_owned(),
            pool: POOL,
        }
    }

    fn handle(&self, _: Command) -> Result<Reply, Failure> {
        let member = OpenMember {
            member: 3,
            uuid: Uuid([3; 16]),
            identity: identity(&self.0).ok().flatten().expect("a file"),
        };
        // (Another process id: members of this process are left out.)
        Ok(Reply::Daemon {
            name: "tank".to_owned(),
            pool: POOL,
            process: 1,
            ending: false,
            members: vec![member],
        })
    }
}

#[test]
fn a_member_is_known_by_its_file_and_not_by_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| {
        std::fs::write(dir.path().join(name), [0; 512]).unwrap();
        dir.path().join(name)
    };
    let (member, other, link, name) = (
        file("a"),
        file("b"),
        dir.path().join("link"),
        dir.path().join("name"),
    );
    std::os::unix::fs::symlink(&member, &link).unwrap();
    std::fs::hard_link(&member, &name).unwrap();
    std::fs::create_dir(dir.path().join("run")).unwrap();
    let socket = dir.path().join("run/tank.control");
    let _server = ControlServer::start(&socket, Arc::new(Fixed(member.clone()))).unwrap();
    let served = Served::at_beside(
        0,
        &[socket, dir.path().join("nothing.control")],
        &Registry::new(dir.path()),
    );
    for path in [&member, &link, &name] {
        let held = served.held(path).expect("held");
        assert_eq!(
            (held.member, held.uuid, held.holder.pool),
            (Some(3), Some(Uuid([3; 16])), POOL)
        );
        let failure = held.failure(id::POOL_BUSY, "no", path);
        assert!(
            failure
                .why
                .contains("is member 3 of pool 'tank', which process 1 serves"),
            "{failure}"
        );
    }
    assert_eq!(served.held(&other), None);
    assert_eq!(served.held(&dir.path().join("nothing")), None);
    assert_eq!(served.in_places(&[dir.path().to_owned()]).len(), 1);
    assert_eq!(served.in_places(&[other]), []);
    // The file's old path may belong to another file by now.
    std::fs::remove_file(&member).unwrap();
    file("a");
    assert_eq!(served.held(&member), None);
    assert!(served.held(&name).is_some());
    for pool in ["tank", &POOL.to_string()] {
        assert_eq!(
            served.daemon_of(pool).map(|daemon| daemon.process),
            Some(Some(1))
        );
    }
    assert_eq!(served.daemon_of("other"), None);
}

#[test]
fn a_daemon_that_does_not_answer_still_has_the_members_that_are_known() {
    let dir = tempfile::tempdir().unwrap();
    let (member, socket) = (dir.path().join("a"), dir.path().join("tank.control"));
    std::fs::write(&member, [0; 512]).unwrap();
    let registry = Registry::new(&dir.path().join("state"));
    registry
        .save(&PoolEntry::new(
            "tank",
            POOL,
            vec![member.clone(), dir.path().join("gone")],
        ))
        .unwrap();
    let listener = UnixListener::bind(&socket).unwrap();
    // It takes connections and closes them. (The thread ends with the process.)
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let served = Served::at_beside(0, &[socket], &registry);
    let held = served.held(&member).expect("held");
    assert_eq!((held.holder.pool, held.member), (POOL, None));
    let failure = held.holder.busy("no");
    assert!(
        failure.id == id::POOL_BUSY && failure.why.contains("does not answer"),
        "{failure}"
    );
}

/// A daemon with all connections in use must not refuse to open its own members.
#[test]
fn a_daemon_does_not_take_itself_for_another_one() {
    let dir = tempfile::tempdir().unwrap();
    let (member, socket) = (dir.path().join("a"), dir.path().join("tank.control"));
    std::fs::write(&member, [0; 512]).unwrap();
    let registry = Registry::new(&dir.path().join("state"));
    registry
        .save(&PoolEntry::new("tank", POOL, vec![member.clone()]))
        .unwrap();
    // Connections stay in its backlog, without an answer.
    let _listener = UnixListener::bind(&socket).unwrap();
    let served = Served::at(&[socket], &registry);
    assert!(served.held(&member).is_none() && served.daemons().is_empty());
}

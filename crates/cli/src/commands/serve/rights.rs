//! Access rights of the sockets of a daemon.

use rustix::fs::{FileType, Mode, OFlags};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::str::FromStr;
use windrow_host::Failure;
use windrow_host::failure::id;

/// The mode of a socket: 0600, 0660 or 0666. To connect is to write, and a client of the control
/// socket may delete volumes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketMode(u32);

impl FromStr for SocketMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_octal =
            (3..=4).contains(&text.len()) && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
        let mode = u32::from_str_radix(text, 8)
            .ok()
            .filter(|mode| is_octal && [0o600, 0o660, 0o666].contains(mode));
        mode.map(Self).ok_or_else(|| format!("'{text}' is not the mode of a socket: 0600 (its user), 0660 (its group, too) or 0666 (every user)"))
    }
}

/// Mode and group of the sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rights {
    mode: Option<SocketMode>,
    group: Option<u32>,
}

impl Rights {
    /// Rights as given; a group without a mode may connect.
    ///
    /// # Errors
    /// There is no such group.
    pub fn new(mode: Option<SocketMode>, group: Option<&str>) -> Result<Self, Failure> {
        let unknown = |name: &str| {
            Failure::new(
                id::USAGE,
                "cannot set the group of the sockets",
                format!("there is no group '{name}'"),
            )
            .remedy("give the name or number of a group")
        };
        let group = group
            .map(|name| group_id(name).ok_or_else(|| unknown(name)))
            .transpose()?;
        Ok(Self {
            mode: mode.or(group.map(|_| SocketMode(0o660))),
            group,
        })
    }

    /// Applies them to a socket that only its user can connect to so far.
    ///
    /// # Errors
    /// System errors: only root can give a file to a group that it is not in.
    pub fn apply(self, socket: &Path) -> Result<(), Failure> {
        let failure = |error: std::io::Error| {
            let what = format!("cannot set the rights of the socket {}", socket.display());
            Failure::new(id::LOCAL_FILE, what, error)
                .remedy("a daemon that is not root can give its sockets only to groups of its user")
        };
        if self == Self::default() {
            return Ok(());
        }
        // By a descriptor: another file at the path, or a link, gets no rights.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::open(socket, flags, Mode::empty())
            .map_err(|errno| failure(errno.into()))?;
        let found = rustix::fs::fstat(&opened).map_err(|errno| failure(errno.into()))?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Socket {
            return Err(failure(std::io::Error::other("it is no socket")));
        }
        let socket = &format!("/proc/self/fd/{}", opened.as_raw_fd());
        // The group first: with the mode alone another group could connect.
        if let Some(group) = self.group {
            std::os::unix::fs::chown(socket, None, Some(group)).map_err(failure)?;
        }
        if let Some(SocketMode(mode)) = self.mode {
            std::fs::set_permissions(socket, std::fs::Permissions::from_mode(mode))
                .map_err(failure)?;
        }
        Ok(())
    }
}

/// Number of a group, given by number or name.
fn group_id(name: &str) -> Option<u32> {
    let in_file = |text: &str| {
        let mut lines = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
        lines
            .find(|fields| fields.first() == Some(&name) && !name.is_empty())
            .and_then(|fields| fields.get(2)?.parse().ok())
    };
    let by_file = || in_file(&std::fs::read_to_string("/etc/group").ok()?);
    // Groups of a directory service are not in the file.
    let by_service = || {
        let output = std::process::Command::new("getent")
            .args(["group", "--", name])
            .output()
            .ok()?;
        in_file(std::str::from_utf8(&output.stdout).ok()?)
    };
    name.parse().ok().or_else(by_file).or_else(by_service)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_that_are_nonsense_are_refused() {
        for (text, mode) in [
            ("600", 0o600),
            ("0600", 0o600),
            ("0660", 0o660),
            ("666", 0o666),
        ] {
            assert_eq!(text.parse(), Ok(SocketMode(mode)));
        }
        for text in [
            "",
            "0",
            "0000",
            "0066",
            "0400",
            "0640",
            "0606",
            "0777",
            "4660",
            "00660",
            "660 ",
            "+660",
            "rw-rw----",
            "0o660",
            "9999",
            "432",
        ] {
            assert!(
                text.parse::<SocketMode>().unwrap_err().contains("0660"),
                "{text}"
            );
        }
    }

    #[test]
    fn groups_have_names_and_numbers() {
        assert_eq!(
            (
                group_id("root"),
                group_id("0"),
                group_id("no such group"),
                group_id("")
            ),
            (Some(0), Some(0), None, None)
        );
        assert_eq!(
            Rights::new(None, Some("0")).unwrap().mode,
            Some(SocketMode(0o660))
        );
        assert_eq!(Rights::new(None, None).unwrap(), Rights::default());
        assert_eq!(
            Rights::new(None, Some("no such group")).unwrap_err().id,
            id::USAGE
        );
    }

    /// The target of a link must not get the rights.
    #[test]
    fn only_a_socket_gets_rights() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let mode = |name: &str| std::fs::metadata(path(name)).unwrap().permissions().mode() & 0o777;
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        std::fs::write(path("file"), "").unwrap();
        for name in ["socket", "file"] {
            std::fs::set_permissions(path(name), std::fs::Permissions::from_mode(0o600)).unwrap();
            std::os::unix::fs::symlink(path(name), path(&format!("to-{name}"))).unwrap();
        }
        let rights = Rights::new(Some(SocketMode(0o666)), None).unwrap();
        for name in ["file", "to-file", "to-socket"] {
            assert!(
                rights
                    .apply(&path(name))
                    .unwrap_err()
                    .why
                    .contains("it is no socket"),
                "{name}"
            );
        }
        assert_eq!((mode("file"), mode("socket")), (0o600, 0o600));
        rights.apply(&path("socket")).unwrap();
        assert_eq!(mode("socket"), 0o666);
    }
}

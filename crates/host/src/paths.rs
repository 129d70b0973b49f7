//! Where windrow keeps its own files: sockets of running daemons, and what it knows of pools
//! between runs.
//!
//! Whoever can put a socket into the folder of sockets can answer as a daemon, and
//! `/tmp/windrow-UID` can be made by anybody: the folder is used only if it belongs to the user and
//! nobody else may write to it.

use crate::failure::{Failure, id};
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

fn from_environment(name: &str) -> Option<PathBuf> {
    std::env::var_os(name)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Folder of sockets: `$WINDROW_RUN`, else `/run/windrow` for root, else
/// `$XDG_RUNTIME_DIR/windrow`, else `/tmp/windrow-UID`.
pub fn run_dir() -> PathBuf {
    if let Some(dir) = from_environment("WINDROW_RUN") {
        return dir;
    }
    // A root shell may have the folder of a session, and the daemon that the system started has
    // none.
    if is_root() {
        return PathBuf::from("/run/windrow");
    }
    match from_environment("XDG_RUNTIME_DIR") {
        Some(dir) => dir.join("windrow"),
        None => PathBuf::from(format!(
            "/tmp/windrow-{}",
            rustix::process::geteuid().as_raw()
        )),
    }
}

/// The folder of sockets, if it is there. Nobody else can have put anything into it.
///
/// # Errors
/// It belongs to another user, others may write to it, or it is no folder.
pub fn trusted_run_dir() -> Result<Option<PathBuf>, Failure> {
    let folder = run_dir();
    Ok(trust(&folder, rustix::process::geteuid().as_raw())?.then_some(folder))
}

/// The folder of sockets, made if it is not there.
///
/// # Errors
/// As [`trusted_run_dir`], or it cannot be made.
pub fn make_run_dir() -> Result<(), Failure> {
    let folder = run_dir();
    // What was made by somebody else just before is seen behind.
    let made = make_socket_folder(&folder);
    let is_there = trust(&folder, rustix::process::geteuid().as_raw())?;
    match made {
        Err(error) if !is_there => {
            let failure = Failure::new(
                id::LOCAL_FILE,
                format!(
                    "cannot make the folder of control sockets {}",
                    folder.display()
                ),
                error,
            );
            Err(failure.remedy("name another one with WINDROW_RUN, or a socket with --control"))
        }
        _ => Ok(()),
    }
}

/// Whether a folder is there; an error if others than `user` could have put something into it.
fn trust(folder: &Path, user: u32) -> Result<bool, Failure> {
    let refused = |why: String, remedy: &str| {
        let failure = Failure::new(
            id::LOCAL_FILE,
            format!(
                "will not use the folder of control sockets {}",
                folder.display()
            ),
            why,
        );
        Err(failure.remedy(format!(
            "{remedy}, or name another one with WINDROW_RUN or a socket with --control"
        )))
    };
    // A link that another user made does not become ours by what it points to.
    let found = match std::fs::symlink_metadata(folder) {
        Ok(found) => found,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return refused(error.to_string(), "check your rights to it"),
    };
    if !found.is_dir() {
        return refused("it is not a folder".to_owned(), "remove it");
    }
    // Root can answer as any daemon anyway.
    if found.uid() != user && found.uid() != 0 {
        return refused(
            format!(
                "it belongs to user {}, not to user {user}: who can write to it can answer as a daemon",
                found.uid()
            ),
            "remove it",
        );
    }
    if found.mode() & 0o022 != 0 {
        let why = format!(
            "others may write to it (mode {:04o}): who can write to it can answer as a daemon",
            found.mode() & 0o7777
        );
        return refused(why, "take that right from them (chmod go-w)");
    }
    Ok(true)
}

/// Bytes of a file of windrow's own at most.
const OWN_FILE_BYTES_MAX: u64 = 64 << 20;

/// Reads a file of windrow's own; no other user can have written it.
///
/// # Errors
/// Those of the system; it is no regular file or too large; it, or its folder, belongs to another
/// user, or others may write to it.
pub(crate) fn read_own(path: &Path) -> std::io::Result<Vec<u8>> {
    let user = rustix::process::geteuid().as_raw();
    // NONBLOCK: a pipe in its place is not waited for.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("it is no regular file"));
    }
    let folder = path.parent().map(std::fs::metadata).transpose()?;
    for (name, found) in [("", Some(file.metadata()?)), ("its folder: ", folder)] {
        let Some(found) = found else { continue };
        if found.uid() != user && found.uid() != 0 {
            return Err(std::io::Error::other(format!(
                "{name}it belongs to user {}, not to user {user}",
                found.uid()
            )));
        }
        if found.mode() & 0o022 != 0 {
            let mode = found.mode() & 0o7777;
            return Err(std::io::Error::other(format!(
                "{name}others may write to it (mode {mode:04o}); take that right from them (chmod go-w)"
            )));
        }
    }
    let mut bytes = Vec::new();
    file.take(OWN_FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > OWN_FILE_BYTES_MAX {
        return Err(std::io::Error::other(format!(
            "it is larger than {OWN_FILE_BYTES_MAX} bytes"
        )));
    }
    Ok(bytes)
}

/// Bytes of the path of a unix socket at most: `sun_path` of the kernel, without the zero at its
/// end that most clients need.
const SOCKET_PATH_MAX: usize = 107;

/// Reason why the path of a unix socket cannot be used, if it is too long.
pub(crate) fn too_long_for_socket(path: &Path) -> Option<String> {
    let length = path.as_os_str().len();
    (length > SOCKET_PATH_MAX).then(|| {
        format!("the path has {length} bytes, and that of a socket at most {SOCKET_PATH_MAX}")
    })
}

/// Sees that a socket can be made at this path. Of all folders only the run folder is made: another
/// one that does not exist is a typing error.
///
/// # Errors
/// The path is too long, or its folder is not there: the reason.
pub fn must_fit_socket(path: &Path) -> Result<(), String> {
    if let Some(why) = too_long_for_socket(path) {
        return Err(why);
    }
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    match std::fs::metadata(folder) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(format!("{} is not a folder", folder.display())),
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("{}: {error}", folder.display()))
        }
        Err(_) if folder != run_dir() => {
            Err(format!("the folder {} does not exist", folder.display()))
        }
        Err(_) => make_socket_folder(folder)
            .map_err(|error| format!("the folder {} cannot be made: {error}", folder.display())),
    }
}

/// Makes a folder for sockets, to which others can not write whatever the user's mask is.
///
/// # Errors
/// Those of the system.
fn make_socket_folder(folder: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(folder)
}

/// Folder of the registry: `$WINDROW_STATE`, else `/var/lib/windrow` for root, else
/// `$XDG_STATE_HOME/windrow` or `~/.local/state/windrow`.
pub fn state_dir() -> PathBuf {
    if let Some(dir) = from_environment("WINDROW_STATE") {
        return dir;
    }
    if is_root() {
        return PathBuf::from("/var/lib/windrow");
    }
    let state = from_environment("XDG_STATE_HOME")
        .or_else(|| from_environment("HOME").map(|home| home.join(".local/state")));
    state
        .unwrap_or_else(|| PathBuf::from("/tmp"))
        .join("windrow")
}

/// The control socket of a pool.
pub fn control_socket(run_dir: &Path, pool: &str) -> PathBuf {
    run_dir.join(format!("{}.control", file_stem(pool)))
}

/// The pool whose control socket this is, by the name of the file; the path itself if it is named
/// otherwise.
pub fn pool_of_socket(path: &Path) -> String {
    let stem = path
        .file_name()
        .and_then(|name| name.to_str())
        .and_then(|name| name.strip_suffix(".control"));
    stem.and_then(name_of_stem)
        .unwrap_or_else(|| path.display().to_string())
}

/// The opposite of [`file_stem`]; `None` if that makes no such stem.
pub(crate) fn name_of_stem(stem: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(stem.len()), stem.bytes());
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        bytes.push(if byte == b'%' {
            (digit(rest.next())? * 16 + digit(rest.next())?) as u8
        } else {
            byte
        });
    }
    String::from_utf8(bytes)
        .ok()
        .filter(|name| file_stem(name) == stem)
}

/// A pool's name as the stem of a file name: everything but letters, digits, `-` and `_` is
/// escaped, so that no name leaves the folder and no two names meet.
pub(crate) fn file_stem(name: &str) -> String {
    let mut stem = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => stem.push(char::from(byte)),
            _ => stem.push_str(&format!("%{byte:02x}")),
        }
    }
    stem
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_socket_names_its_pool() {
        for name in ["tank", "a b/c%d", "größe", "%41"] {
            assert_eq!(
                pool_of_socket(&control_socket(Path::new("/run"), name)),
                name
            );
        }
        for path in [
            "/x/tank.sock",
            "/x/a%zz.control",
            "/x/%41.control",
            "/x/%f.control",
        ] {
            assert_eq!(pool_of_socket(Path::new(path)), path);
        }
    }

    /// `serve --nbd unix:/nonexist/dir/x` made the folders.
    #[test]
    fn a_socket_has_a_folder_and_a_path_that_clients_take() {
        let dir = tempfile::tempdir().unwrap();
        let why = |path: &Path| must_fit_socket(path).err().unwrap_or_default();
        assert_eq!(why(&dir.path().join("s")), "");
        assert!(
            why(&dir.path().join("none/deep/s")).ends_with("none/deep does not exist")
                && !dir.path().join("none").exists()
        );
        std::fs::write(dir.path().join("file"), "").unwrap();
        assert!(why(&dir.path().join("file/s")).ends_with("is not a folder"));
        let of = |bytes: usize| PathBuf::from("s".repeat(bytes));
        assert_eq!(
            (why(&of(107)), why(&of(108))),
            (
                String::new(),
                "the path has 108 bytes, and that of a socket at most 107".to_owned()
            )
        );
        // The kernel itself also takes 108 bytes without a zero; clients do not.
        let is_taken = |path: &Path| std::os::unix::net::SocketAddr::from_pathname(path).is_ok();
        assert!(is_taken(&of(107)) && !is_taken(&of(108)));
    }

    /// A pipe was waited for, and a file was read whatever its size.
    #[test]
    fn what_is_no_file_of_our_own_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        rustix::fs::mknodat(
            rustix::fs::CWD,
            path("pipe"),
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .unwrap();
        std::fs::File::create(path("large"))
            .unwrap()
            .set_len(OWN_FILE_BYTES_MAX + 1)
            .unwrap();
        std::fs::write(path("small"), "bytes").unwrap();
        let why = |name: &str| read_own(&path(name)).map_err(|error| error.to_string());
        assert_eq!(why("small"), Ok(b"bytes".to_vec()));
        assert_eq!(why("pipe"), Err("it is no regular file".to_owned()));
        assert!(why("large").is_err_and(|why| why.contains("larger than 67108864 bytes")));
    }

    /// Another user could make /tmp/windrow-UID first, and answer as the daemon.
    #[test]
    fn a_folder_of_sockets_that_others_could_write_to_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, me) = (dir.path().join("run"), rustix::process::geteuid().as_raw());
        let refused = |folder: &Path, user| {
            trust(folder, user)
                .err()
                .map(|failure| (failure.id, failure.why))
        };
        assert_eq!(refused(&folder, me), None, "it is made when it is needed");
        make_socket_folder(&folder).unwrap();
        assert_eq!(refused(&folder, me), None);
        // Only root can give it to another user; a folder of root is one that any user may use.
        let other = if me == 0 { 4711 } else { me };
        std::os::unix::fs::chown(&folder, Some(other), None).unwrap();
        let (id, why) = refused(&folder, other + 1).unwrap();
        assert!(
            id == id::LOCAL_FILE && why.contains("belongs to user"),
            "{why}"
        );
        std::os::unix::fs::chown(&folder, Some(me), None).unwrap();
        assert_eq!(refused(Path::new("/"), 4711), None);
        for mode in [0o775, 0o757, 0o1777] {
            std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(
                refused(&folder, me).unwrap().1.contains("others may write"),
                "{mode:o}"
            );
        }
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(refused(&folder, me), None);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&folder, &link).unwrap();
        assert!(refused(&link, me).unwrap().1.contains("not a folder"));
    }
}

//! Folders of windrow's own files: sockets of running daemons, and the registry of pools.
//!
//! A user who can put a socket into the folder of sockets can answer as a daemon, and any user can
//! create `/tmp/windrow-UID` first. So the folder is used only if it belongs to the user and no one
//! else may write to it.

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
    // A root shell may have a session's folder in its environment; a daemon started by the system
    // has none.
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

/// The folder of sockets, if it exists. No other user can have put anything into it.
///
/// # Errors
/// It belongs to another user, others may write to it, or it is no folder.
pub fn trusted_run_dir() -> Result<Option<PathBuf>, Failure> {
    let folder = run_dir();
    Ok(trust(&folder, rustix::process::geteuid().as_raw())?.then_some(folder))
}

/// The folder of sockets, created if it does not exist.
///
/// # Errors
/// As [`trusted_run_dir`], or it cannot be created.
pub fn make_run_dir() -> Result<(), Failure> {
    let folder = run_dir();
    // The check after the creation finds a folder that another user made just before.
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

/// True if the folder exists; an error if others than `user` could have put something into it.
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
    // A link that another user made is not trusted, whatever it points to.
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

/// Largest size of a file of windrow's own, in bytes.
const OWN_FILE_BYTES_MAX: u64 = 64 << 20;

/// Reads a file of windrow's own; no other user can have written it.
///
/// # Errors
/// - System errors.
/// - It is no regular file, or too large.
/// - It or its folder belongs to another user, or others may write to it.
pub(crate) fn read_own(path: &Path) -> std::io::Result<Vec<u8>> {
    let user = rustix::process::geteuid().as_raw();
    // NONBLOCK: never wait for a pipe in its place.
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

/// Longest path of a unix socket in bytes: `sun_path` of the kernel, without the final zero that
/// most clients need.
const SOCKET_PATH_MAX: usize = 107;

/// Reason why the path of a unix socket cannot be used, if it is too long.
pub(crate) fn too_long_for_socket(path: &Path) -> Option<String> {
    let length = path.as_os_str().len();
    (length > SOCKET_PATH_MAX).then(|| {
        format!("the path has {length} bytes, and that of a socket at most {SOCKET_PATH_MAX}")
    })
}

/// Checks that a socket can be made at this path. The run folder is created if needed. Any other
/// missing folder is a typing error.
///
/// # Errors
/// The reason: the path is too long, or its folder does not exist.
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

/// Makes a folder for sockets that others cannot write to, whatever the user's mask.
///
/// # Errors
/// System errors.
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

/// The pool of this control socket, from the file's name; the path itself if the name has another
/// form.
pub fn pool_of_socket(path: &Path) -> String {
    let stem = path
        .file_name()
        .and_then(|name| name.to_str())
        .and_then(|name| name.strip_suffix(".control"));
    stem.and_then(name_of_stem)
        .unwrap_or_else(|| path.display().to_string())
}

/// The inverse of [`file_stem`]; `None` if the stem is not one of its results.
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
/// escaped. No name leaves the folder, and no two names collide.
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

    /// `serve --nbd unix:/nonexist/dir/x` must not create the folders.
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

    /// A pipe must not be waited for, and a file of any size must not be read.
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
        // Only root can give it to another user; any user may use a folder of root.
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

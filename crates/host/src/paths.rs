//! Where windrow keeps its own files: sockets of running daemons, and what it knows of pools between runs.

use std::path::{Path, PathBuf};

fn from_environment(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Folder of sockets: `$WINDROW_RUN`, else `$XDG_RUNTIME_DIR/windrow`, else `/run/windrow` for root, else `/tmp/windrow-UID`.
pub fn run_dir() -> PathBuf {
    if let Some(dir) = from_environment("WINDROW_RUN") {
        return dir;
    }
    if let Some(dir) = from_environment("XDG_RUNTIME_DIR") {
        return dir.join("windrow");
    }
    if is_root() { PathBuf::from("/run/windrow") } else { PathBuf::from(format!("/tmp/windrow-{}", rustix::process::geteuid().as_raw())) }
}

/// Folder of the registry: `$WINDROW_STATE`, else `/var/lib/windrow` for root, else `$XDG_STATE_HOME/windrow` or `~/.local/state/windrow`.
pub fn state_dir() -> PathBuf {
    if let Some(dir) = from_environment("WINDROW_STATE") {
        return dir;
    }
    if is_root() {
        return PathBuf::from("/var/lib/windrow");
    }
    let state = from_environment("XDG_STATE_HOME").or_else(|| from_environment("HOME").map(|home| home.join(".local/state")));
    state.unwrap_or_else(|| PathBuf::from("/tmp")).join("windrow")
}

/// The control socket of a pool.
pub fn control_socket(run_dir: &Path, pool: &str) -> PathBuf {
    run_dir.join(format!("{}.control", file_stem(pool)))
}

/// A pool's name as the stem of a file name: everything but letters, digits, `-` and `_` is escaped, so that no name leaves the folder and
/// no two names meet.
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

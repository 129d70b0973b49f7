//! Running other programs.

use crate::scratch;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Directory of the workspace's manifest.
pub fn workspace_root() -> Result<PathBuf, String> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent()
        .map(Path::to_path_buf)
        .ok_or_else(|| "the manifest directory has no parent".to_owned())
}

/// The running cargo, so that a toolchain override stays in effect.
pub fn cargo(root: &Path) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    prepared(root, Command::new(program))
}

/// Any program, run in `root` without standard input.
pub fn program(root: &Path, name: &str) -> Command {
    prepared(root, Command::new(name))
}

/// Without standard input, and with the temporary folder of this run if there is one.
fn prepared(root: &Path, mut command: Command) -> Command {
    command.current_dir(root).stdin(Stdio::null());
    if let Some(folder) = scratch::folder() {
        command.env("TMPDIR", folder);
    }
    command
}

/// True on a continuous-integration machine.
pub fn on_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| !value.is_empty() && value != "false")
}

/// Runs to the end with output shown. On CI a hanging command is ended after `limit_s` seconds.
/// Elsewhere the user has Ctrl-C, which a command under `timeout` would not receive.
pub fn run(command: Command, limit_s: u32) -> Result<(), String> {
    let shown = show(&command);
    let mut command = if on_ci() {
        limited(&command, limit_s)
    } else {
        command
    };
    let status = command
        .status()
        .map_err(|error| format!("cannot start `{shown}`: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("`{shown}` ended with {status}"))
    }
}

/// Runs to the end and returns standard output.
pub fn output(mut command: Command) -> Result<String, String> {
    let shown = show(&command);
    let output = command
        .output()
        .map_err(|error| format!("cannot start `{shown}`: {error}"))?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        return Err(format!(
            "`{shown}` ended with {}: {}",
            output.status,
            message.trim()
        ));
    }
    String::from_utf8(output.stdout)
        .map_err(|_| format!("`{shown}` printed something that is not UTF-8"))
}

/// True if the command can be started and succeeds; its output is discarded.
pub fn succeeds(mut command: Command) -> bool {
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Path of a program, including the administrators' directories: they are often missing from the
/// path of an ordinary user.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let extra = ["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(extra)
        .map(|directory| directory.join(name))
        .find(|file| file.is_file())
}

fn limited(command: &Command, limit_s: u32) -> Command {
    let mut outer = Command::new("timeout");
    outer
        .arg("--kill-after=20")
        .arg(limit_s.to_string())
        .arg(command.get_program())
        .args(command.get_args())
        .stdin(Stdio::null());
    if let Some(directory) = command.get_current_dir() {
        outer.current_dir(directory);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer
}

fn show(command: &Command) -> String {
    let program = Path::new(command.get_program())
        .file_name()
        .unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}

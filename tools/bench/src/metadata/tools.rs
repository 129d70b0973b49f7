//! External programs: run to their end, and the packages of missing ones.

use std::ffi::OsStr;
use std::process::{Command, Stdio};
use windrow_host::Failure;
use windrow_host::failure::id;

/// Programs and the Debian packages that contain them.
const PACKAGES: [(&str, &str); 9] = [
    ("mke2fs", "e2fsprogs"),
    ("debugfs", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("nbdfuse", "libnbd-bin"),
    ("fusermount3", "fuse3"),
    ("losetup", "mount"),
    ("mount", "mount"),
    ("umount", "mount"),
    ("sync", "coreutils"),
];

/// True if it is on the path, or in the administrators' directories.
fn is_installed(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|dir| dir.join(program).is_file())
}

/// Fails with one line that names the packages to install, if any program is missing.
pub fn need(programs: &[&str]) -> Result<(), Failure> {
    missing(programs, is_installed)
}

fn missing(programs: &[&str], is_installed: impl Fn(&str) -> bool) -> Result<(), Failure> {
    let missing: Vec<&str> = programs
        .iter()
        .copied()
        .filter(|program| !is_installed(program))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut packages: Vec<&str> = PACKAGES
        .iter()
        .filter(|(program, _)| missing.contains(program))
        .map(|(_, package)| *package)
        .collect();
    packages.dedup();
    let why = format!("not installed: {}", missing.join(", "));
    Err(
        Failure::new(id::NOT_AVAILABLE, "cannot make file systems", why)
            .remedy(format!("apt-get install {}", packages.join(" "))),
    )
}

/// A program, also from the administrators' directories.
pub fn command(program: &str) -> Command {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    let mut command = Command::new(program);
    command
        .env("PATH", path)
        .env("LC_ALL", "C")
        .stdin(Stdio::null());
    command
}

/// Runs a program to its end; returns its output.
pub fn run<A: AsRef<OsStr>>(
    program: &str,
    arguments: impl IntoIterator<Item = A>,
) -> Result<String, Failure> {
    let mut command = command(program);
    command.args(arguments);
    let failure =
        |why: String| Failure::new(id::NOT_AVAILABLE, format!("cannot run {program}"), why);
    let output = command
        .output()
        .map_err(|error| failure(error.to_string()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.trim().lines().last().unwrap_or_default();
    Err(failure(format!("{}: {last}", output.status)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_says_what_to_install() {
        let error = missing(&["mke2fs", "debugfs", "nbdfuse", "mount"], |program| {
            program == "mount"
        })
        .unwrap_err()
        .to_string();
        assert!(
            error.contains("mke2fs, debugfs, nbdfuse")
                && error.contains("apt-get install e2fsprogs libnbd-bin"),
            "{error}"
        );
        assert!(missing(&["mount"], |_| true).is_ok());
        // Every required program is in the list.
        assert!(
            super::super::PROGRAMS
                .iter()
                .all(|program| PACKAGES.iter().any(|(known, _)| known == program))
        );
    }
}

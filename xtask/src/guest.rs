//! `guest`: the cases of `tests/guest`, each in a virtual machine. Its kernel has features that the
//! host's may lack (device mapper with fault injection, disks with other sectors, a power switch).
//! Not part of `test`: it needs QEMU and takes an hour.

use crate::tools;
use std::path::{Path, PathBuf};

const CASES: &str = "tests/guest";
/// Scripts of the folder that are not cases.
const HELPERS: &[&str] = &["lib", "log_writes_hook"];
/// Default folder of the scripts that boot the guest, relative to the project.
const GUEST_DIR: &str = "../shared/guest";
const HOUR_S: u32 = 3600;

/// `[--guest DIR] [CASE...]`.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let (guest, wanted) = parse(root, arguments)?;
    let cases = cases(root)?;
    if let Some(unknown) = wanted.iter().find(|name| !cases.contains(name)) {
        return Err(format!(
            "there is no case `{unknown}`; there are: {}",
            cases.join(", ")
        ));
    }
    obstacle(&guest)?;
    let programs = build(root)?;
    let mut failed = Vec::new();
    for case in cases
        .iter()
        .filter(|case| wanted.is_empty() || wanted.contains(case))
    {
        println!("--- {case}");
        let work = programs.join("guest-work").join(case);
        // Leftovers of an earlier run, if any.
        _ = std::fs::remove_dir_all(&work);
        std::fs::create_dir_all(&work).map_err(|error| format!("{}: {error}", work.display()))?;
        let mut command = tools::program(root, "bash");
        command.arg(root.join(CASES).join(format!("{case}.sh")));
        command
            .env("GUEST_DIR", &guest)
            .env("WORK", &work)
            .env("WINDROW", programs.join("windrow"))
            .env("PROMISES", programs.join("examples/promises"));
        match tools::run(command, HOUR_S) {
            Ok(()) => _ = std::fs::remove_dir_all(&work),
            Err(why) => {
                println!("{why}; disks and notes are in {}", work.display());
                failed.push(case.as_str());
            }
        }
    }
    if failed.is_empty() {
        Ok(())
    } else {
        Err(format!("failed in the guest: {}", failed.join(", ")))
    }
}

fn parse(root: &Path, arguments: &[String]) -> Result<(PathBuf, Vec<String>), String> {
    let mut guest =
        std::env::var_os("WINDROW_GUEST").map_or_else(|| root.join(GUEST_DIR), PathBuf::from);
    let mut wanted = Vec::new();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--guest" => {
                guest = words
                    .next()
                    .map(PathBuf::from)
                    .ok_or("--guest needs a folder")?
            }
            option if option.starts_with('-') => {
                return Err(format!(
                    "there is no option `{option}`; see `cargo xtask help`"
                ));
            }
            case => wanted.push(case.to_owned()),
        }
    }
    Ok((guest, wanted))
}

fn cases(root: &Path) -> Result<Vec<String>, String> {
    let folder =
        std::fs::read_dir(root.join(CASES)).map_err(|error| format!("{CASES}: {error}"))?;
    let names = folder.filter_map(|entry| {
        entry
            .ok()?
            .file_name()
            .to_str()?
            .strip_suffix(".sh")
            .map(str::to_owned)
    });
    let mut cases: Vec<String> = names
        .filter(|name| !HELPERS.contains(&name.as_str()))
        .collect();
    cases.sort_unstable();
    Ok(cases)
}

fn obstacle(guest: &Path) -> Result<(), String> {
    if !guest.join("run-guest.sh").is_file() {
        return Err(format!(
            "{} has no run-guest.sh, which boots the guest: name its folder with --guest or WINDROW_GUEST",
            guest.display()
        ));
    }
    let needed = [
        ("qemu-system-x86_64", "qemu-system-x86"),
        ("dmsetup", "dmsetup"),
        ("depmod", "kmod"),
        ("busybox", "busybox-static"),
        ("mmdebstrap", "mmdebstrap"),
        ("qemu-img", "qemu-utils"),
    ];
    let missing: Vec<&str> = needed
        .iter()
        .filter(|(program, _)| tools::find_program(program).is_none())
        .map(|(_, package)| *package)
        .collect();
    if !missing.is_empty() {
        return Err(format!(
            "packages for the guest are missing: apt-get install {}",
            missing.join(" ")
        ));
    }
    Ok(())
}

/// Builds the release binaries, because the guest is slow; returns their folder.
fn build(root: &Path) -> Result<PathBuf, String> {
    let mut command = tools::cargo(root);
    command.args([
        "build",
        "--release",
        "--quiet",
        "--package",
        "windrow",
        "--bin",
        "windrow",
        "--example",
        "promises",
        "--message-format",
        "json-render-diagnostics",
    ]);
    let messages = tools::output(command)?;
    let parsed = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let windrow = parsed
        .filter(|message| message["target"]["name"] == "windrow")
        .filter_map(|message| message["executable"].as_str().map(PathBuf::from))
        .next();
    windrow
        .as_deref()
        .and_then(Path::parent)
        .map(Path::to_path_buf)
        .ok_or_else(|| "cargo built no `windrow`".to_owned())
}

//! Reports of a drive of this machine, queried with `smartctl`, which knows the commands of each
//! kind of drive and needs the privileges for them.

use serde_json::Value;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::{Command, Stdio};
use windrow_host::Failure;
use windrow_host::failure::id;

/// True for a device, false for a file.
pub fn is_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| {
        found.file_type().is_block_device() || found.file_type().is_char_device()
    })
}

/// Output of `smartctl -j -x` for a device.
///
/// # Errors
/// There is no `smartctl`, or it could not query the drive.
pub fn ask(device: &Path) -> Result<String, Failure> {
    let title = || format!("cannot ask {} how it is", device.display());
    let run = Command::new("smartctl")
        .args(["-j", "-x"])
        .arg(device)
        .stdin(Stdio::null())
        .output();
    let output = run.map_err(|error| {
        let remedy = "install smartmontools, or give the report of the drive as a file";
        Failure::new(
            id::PLAN_INPUT,
            title(),
            format!("smartctl does not run: {error}"),
        )
        .remedy(remedy)
    })?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // The lowest two bits of its status: wrong usage, or the device could not be opened. The others
    // describe the drive's state.
    match output.status.code() {
        Some(status) if status & 3 == 0 => Ok(text),
        _ => Err(Failure::new(
            id::PLAN_INPUT,
            title(),
            complaint(&text).unwrap_or_else(|| format!("smartctl ended with {}", output.status)),
        )
        .remedy("it needs root, and a drive that answers")),
    }
}

/// Error message in its output.
fn complaint(text: &str) -> Option<String> {
    let json: Value = serde_json::from_str(text).ok()?;
    let first = json.pointer("/smartctl/messages/0/string")?.as_str()?;
    Some(first.replace('\n', " "))
}

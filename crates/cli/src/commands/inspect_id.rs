//! `inspect-id`: identity of a device, for udev. One read; nothing is locked or written.
//!
//! The rule in `packaging/udev` imports the lines, so that `blkid`, `lsblk -f` and installers
//! recognise a member, also without a partition. Names come from the device. Each is encoded as in
//! libblkid, so that every byte of it is only text to udev, a shell or a link below `/dev/disk`.

use clap::Args;
use std::path::PathBuf;
use windrow_format::superblock::FORMAT_VERSION;
use windrow_host::Failure;
use windrow_host::offline::{self, FoundMember};
use windrow_host::served::Served;
use windrow_types::Uuid;

/// Exit code for a device that is no member.
const NO_MEMBER: u8 = 2;

/// Arguments of `inspect-id`.
#[derive(Args)]
#[command(after_help = "Examples:
  windrow inspect-id --udev /dev/sdb1")]
pub struct InspectIdArguments {
    /// Print KEY=VALUE lines for udev.
    #[arg(long, required = true)]
    udev: bool,
    /// Block device or file.
    device: PathBuf,
}

/// Runs it. Exit code 2 without output if the device is no member.
pub fn run(arguments: &InspectIdArguments) -> Result<u8, Failure> {
    // udev asks after each change of a device. A member that is served is not opened for that.
    if let Some(held) = Served::now().held(&arguments.device) {
        windrow_console::output::print(&lines_of(
            &held.holder.name,
            held.holder.pool,
            held.uuid,
            FORMAT_VERSION,
        ));
        return Ok(0);
    }
    let Some(found) = offline::examine(&arguments.device)? else {
        return Ok(NO_MEMBER);
    };
    windrow_console::output::print(&lines(&found));
    Ok(0)
}

fn lines(found: &FoundMember) -> String {
    let name = found
        .superblock
        .as_ref()
        .map_or(found.label.pool_name.as_str(), |superblock| {
            &superblock.pool_name
        });
    lines_of(
        name,
        found.label.pool,
        Some(found.label.member_uuid),
        found.label.version,
    )
}

fn lines_of(name: &str, pool: Uuid, member: Option<Uuid>, version: u32) -> String {
    let member = member.map(|member| member.to_string()).unwrap_or_default();
    let fields = [
        ("ID_FS_TYPE", "windrow_member".to_owned()),
        ("ID_FS_USAGE", "raid".to_owned()),
        ("ID_FS_VERSION", version.to_string()),
        ("ID_FS_UUID", pool.to_string()),
        ("ID_FS_UUID_ENC", pool.to_string()),
        ("ID_FS_UUID_SUB", member.clone()),
        ("ID_FS_UUID_SUB_ENC", member),
        ("ID_FS_LABEL", safe(name)),
        ("ID_FS_LABEL_ENC", encoded(name)),
    ];
    fields
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(key, value)| format!("{key}={value}\n"))
        .collect()
}

/// Characters that need no encoding, as in libblkid.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric()
        || "#+-.:=@_".contains(c)
        || !c.is_ascii() && !c.is_control() && !c.is_whitespace()
}

/// The name with `_` for other characters.
fn safe(name: &str) -> String {
    name.chars()
        .map(|c| if is_plain(c) { c } else { '_' })
        .collect()
}

/// The name with `\xNN` for each byte of other characters.
fn encoded(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    let mut bytes = [0; 4];
    for c in name.chars() {
        match is_plain(c) {
            true => text.push(c),
            false => c
                .encode_utf8(&mut bytes)
                .bytes()
                .for_each(|byte| text.push_str(&format!("\\x{byte:02x}"))),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The creator of a pool chooses its name, and udev reads it as root.
    #[test]
    fn no_name_is_more_than_text_to_udev() {
        let name = "a b\"$(x)`\n%k\u{85}ü/..";
        assert_eq!(safe(name), "a_b___x____k_ü_..");
        assert_eq!(
            encoded(name),
            "a\\x20b\\x22\\x24\\x28x\\x29\\x60\\x0a\\x25k\\xc2\\x85ü\\x2f.."
        );
        assert_eq!(
            (safe("tank-1_b.c"), encoded("tank-1_b.c")),
            ("tank-1_b.c".to_owned(), "tank-1_b.c".to_owned())
        );
    }
}

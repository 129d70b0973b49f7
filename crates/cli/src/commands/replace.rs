//! `pool replace`.

use crate::context::{self, PoolPlace};
use crate::output::Output;
use crate::progress::Progress;
use crate::values::Size;
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};
use windrow_device::Allocation;
use windrow_host::Failure;
use windrow_host::failure::id;
use windrow_host::offline::{self, FoundPool, ReplaceRequest};

/// Arguments of `pool replace`.
#[derive(Args)]
#[command(after_help = "Examples:
  windrow pool replace tank 2 /dev/sdf
  windrow pool replace tank /dev/sdc /dev/sdf
  windrow pool replace tank 2 new.img --sparse

The pool must not be served meanwhile. The new device is rebuilt as soon as it is: `windrow pool status` shows it.")]
pub struct ReplaceArguments {
    /// Pool.
    pool: String,
    /// The member: its index, identifier or path.
    member: String,
    /// What takes its place: a block device or a file; a file that does not exist is made.
    #[arg(value_name = "PATH")]
    new: PathBuf,
    #[command(flatten)]
    place: PoolPlace,
    /// Do not reserve the room of a new file.
    #[arg(long)]
    sparse: bool,
    /// Overwrite a device that holds data or bears a signature. What is in use is refused all the same.
    #[arg(long)]
    overwrite: bool,
    /// Although another host has the pool, or too many members are missing.
    #[arg(long)]
    force: bool,
}

/// Runs it.
pub fn run(arguments: &ReplaceArguments, output: &Output) -> Result<u8, Failure> {
    let what = format!("cannot replace a member of pool '{}'", arguments.pool);
    if context::daemon_of(&arguments.pool, &arguments.place).is_some() {
        return Err(Failure::new(id::POOL_BUSY, what, "a daemon serves it").remedy("stop the daemon first"));
    }
    let registry = context::registry();
    let found = offline::locate(&arguments.place.target(Some(&arguments.pool)), &registry)?;
    let member = member(&found, &arguments.member)
        .ok_or_else(|| Failure::new(id::USAGE, what, format!("'{}' is no member of it", arguments.member)).remedy("see `windrow pool status`"))?;
    let request = ReplaceRequest {
        member,
        path: arguments.new.clone(),
        allocation: if arguments.sparse { Allocation::Sparse } else { Allocation::Preallocate },
        overwrite: arguments.overwrite,
        force: arguments.force,
    };
    let mut progress = Progress::new("making the file");
    let replaced = offline::replace(&found, &registry, &request, &mut |bytes| progress.note(&Size(bytes).to_string()))?;
    // The registry knows paths only.
    let entry = registry.load(&found.name)?;
    let old = found.members.iter().find(|old| old.label.member.0 == member).map(|old| canonical(&old.path));
    if let Some(mut entry) = entry {
        entry.members.retain(|path| Some(path) != old.as_ref());
        entry.members.push(canonical(&arguments.new));
        registry.save(&entry)?;
    }
    let value = json!({ "pool": found.name, "member": member, "path": arguments.new, "uuid": replaced.uuid, "size_bytes": replaced.size_bytes });
    output.result("pool-replace", &value, || {
        format!("{} is member {member} of pool '{}' now; it is rebuilt when the pool is served", arguments.new.display(), found.name)
    });
    Ok(0)
}

fn canonical(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Index of the member that is meant.
fn member(found: &FoundPool, name: &str) -> Option<u8> {
    let members = found.superblock().map(|superblock| superblock.members.as_slice()).unwrap_or_default();
    let by_index = name.parse::<u8>().ok().filter(|index| usize::from(*index) < members.len());
    let by_uuid = || members.iter().position(|record| record.uuid.to_string() == name).map(|index| index as u8);
    let wanted = canonical(Path::new(name));
    let by_path = || found.members.iter().find(|member| canonical(&member.path) == wanted).map(|member| member.label.member.0);
    by_index.or_else(by_uuid).or_else(by_path)
}

//! `pool replace`, `offline`, `online`, `add`, `remove`: changes of members, by the daemon that
//! serves the pool, or at rest.

use clap::Args;
use serde::Serialize;
use serde_json::Value;
use std::path::{Path, PathBuf};
use windrow_console::context::{self, PoolPlace};
use windrow_console::output::Output;
use windrow_console::progress::Progress;
use windrow_console::values::Size;
use windrow_device::Allocation;
use windrow_device::disk::is_partition_of;
use windrow_host::Failure;
use windrow_host::control::{Command, Reply};
use windrow_host::failure::id;
use windrow_host::offline;
use windrow_host::offline::files::{self, NewFile, Purpose};
use windrow_host::offline::partition::Partitioning;
use windrow_host::report::{MemberReport, PoolReport};
use windrow_host::text::{shown, shown_path};

/// Bytes of a new file for the first journal device of a pool: the largest journal, with label and
/// superblocks.
const JOURNAL_FILE_BYTES: u64 = 257 << 20;

/// Options for making files.
#[derive(Args)]
struct Making {
    /// Make a file of the needed size if a path does not exist (never below /dev, nor in memory).
    #[arg(long)]
    create_files: bool,
    /// Do not reserve the space of a new file.
    #[arg(long, requires = "create_files")]
    sparse: bool,
}

/// Options for partitioning disks.
#[derive(Args, Clone, Debug, Default)]
pub struct Disks {
    /// Use disks without a partition. Otherwise a disk gets a GPT with one partition, so that other
    /// tools see that it is in use; the partition is the member.
    #[arg(long, conflicts_with = "partition")]
    whole_disk: bool,
    /// Also partition block devices that are no disks (loop devices, device-mapper volumes).
    #[arg(long)]
    partition: bool,
}

impl Disks {
    /// The options in the host's form.
    pub fn partitioning(&self) -> Partitioning {
        match (self.whole_disk, self.partition) {
            (true, _) => Partitioning::Never,
            (_, true) => Partitioning::AllDevices,
            _ => Partitioning::Disks,
        }
    }

    /// Remark on a device used without the partition that was requested.
    fn remark(&self, given: &Path, used: &str) -> String {
        let wanted = offline::partition::planned(given, self.partitioning(), 1 << 20).is_some();
        match wanted && offline::absolute(given) == Path::new(used) {
            true => format!(
                "\nthe bare disk {} is used: a partition on it would be too small for the place that it takes",
                shown_path(given)
            ),
            false => String::new(),
        }
    }
}

/// Arguments of `pool replace`.
#[derive(Args)]
#[command(after_help = "Examples:
  windrow pool replace tank 2 /dev/sdf
  windrow pool replace tank /dev/sdc /dev/sdf
  windrow pool replace tank 2 new.img --create-files

A member that is online stays in use until the new device is a complete copy, so the pool keeps its redundancy. Until then the new device
is a spare: `windrow pool remove tank SPARE` cancels the replacement. If the daemon ends before that, its next start begins the copy again.
A member that is out of service, or hangs, is replaced at once, and the new device is rebuilt from the others.
Both need a daemon that serves the pool: `windrow pool status` shows the progress.")]
pub struct ReplaceArguments {
    /// Pool.
    pool: String,
    /// The member: its index, identifier or path.
    member: String,
    /// The new device: a block device or a file.
    #[arg(value_name = "PATH")]
    new: PathBuf,
    #[command(flatten)]
    place: PoolPlace,
    #[command(flatten)]
    making: Making,
    #[command(flatten)]
    disks: Disks,
    /// Overwrite a device that holds data or a signature. A device in use is refused all the same.
    #[arg(long)]
    overwrite: bool,
    /// The new device is power-safe: a completed write is durable without a flush. Required if it
    /// replaces a power-safe journal device.
    #[arg(long)]
    power_safe: bool,
    /// At rest: proceed although another host has the pool, or too many members are missing.
    #[arg(long)]
    force: bool,
}

/// Arguments of `pool offline`.
#[derive(Args)]
#[command(after_help = "Examples:
  windrow pool offline tank 2
  windrow pool offline tank /dev/sdc

Nothing is read from or written to the member any more, and its device is closed: it can be unplugged. It stays out, over restarts too, until
`windrow pool online`. Refused if the redundancy would not cover its loss.

Flushes and writes no longer wait for a device that hangs. It is closed when it answers again.")]
pub struct OfflineArguments {
    /// Pool.
    pool: String,
    /// The member: its index, identifier or path.
    member: String,
    #[command(flatten)]
    place: PoolPlace,
}

/// Arguments of `pool online`.
#[derive(Args)]
#[command(after_help = "Examples:
  windrow pool online tank 2
  windrow pool online tank 2 /dev/sdg

The member is rebuilt with what it missed. Only the device that left is taken back, and only if it was not used elsewhere meanwhile.")]
pub struct OnlineArguments {
    /// Pool.
    pool: String,
    /// The member: its index, identifier or path.
    member: String,
    /// Path of its device, if that has moved.
    path: Option<PathBuf>,
    #[command(flatten)]
    place: PoolPlace,
}

/// Arguments of `pool add`.
#[derive(Args)]
#[command(after_help = "Examples:
  windrow pool add tank /dev/sdg /dev/sdh
  windrow pool add tank --spare /dev/sdi
  windrow pool add tank --spare spare.img --create-files --sparse
  windrow pool add tank --journal /dev/nvme0n1

Devices without --spare hold data from now on: new stripes go over all members at once, cleaning moves the old ones in the background (`windrow pool
status` shows the progress), and usable space grows step by step. This cannot be undone. A spare replaces a member that fails automatically. It should be as large as the largest member.
A journal device takes the data of small flushes and has a copy of all of it. It is used once the log has everything that was written before.")]
pub struct AddArguments {
    /// Pool.
    pool: String,
    /// A block device or a file that waits as a spare.
    #[arg(long, value_name = "PATH", required_unless_present_any = ["devices", "journal"], conflicts_with = "devices")]
    spare: Option<PathBuf>,
    /// A block device or a file that holds only a journal (a copy, if there are others).
    #[arg(long, value_name = "PATH", conflicts_with_all = ["devices", "spare"])]
    journal: Option<PathBuf>,
    /// The journal device is power-safe: a completed write is durable without a flush (MRAM,
    /// NVDIMM, a cache that survives loss of power). A file is written synchronously.
    #[arg(long, requires = "journal")]
    power_safe: bool,
    /// Block devices or files that the pool grows over.
    #[arg(value_name = "PATH")]
    devices: Vec<PathBuf>,
    #[command(flatten)]
    place: PoolPlace,
    #[command(flatten)]
    making: Making,
    #[command(flatten)]
    disks: Disks,
    /// Overwrite a device that holds data or a signature. A device in use is refused all the same.
    #[arg(long)]
    overwrite: bool,
    /// Add a spare although it is too small to replace any member.
    #[arg(long, requires = "spare")]
    force: bool,
}

/// Arguments of `pool remove`.
#[derive(Args)]
#[command(after_help = "Examples:
  windrow pool remove tank 8
  windrow pool remove tank /dev/sdc
  windrow pool remove tank --journal /dev/nvme0n1
  windrow pool status tank

A spare leaves at once, a journal device when the log has its durable records. A member with data leaves in the background: from now on usable space is that of the others, its
data moves to them (`windrow pool status` shows the progress), and then its label is erased. Refused if too few members would be left, if the data
does not fit on them, or while a member is missing. Replace a dying drive instead: see `windrow pool replace`.")]
pub struct RemoveArguments {
    /// Pool.
    pool: String,
    /// The spare, journal device or member: its index, identifier or path.
    member: String,
    /// Only if it is a journal device.
    #[arg(long)]
    journal: bool,
    #[command(flatten)]
    place: PoolPlace,
}

/// Runs `pool replace`.
pub fn replace(arguments: &ReplaceArguments, output: &Output) -> Result<u8, Failure> {
    let what = format!("cannot replace a member of pool '{}'", arguments.pool);
    let report = context::status(&arguments.pool, &arguments.place)?;
    let member = find(&report, &arguments.member, &what)?;
    let made = make(&arguments.new, member.size_bytes, &arguments.making, &what)?;
    announce(&report, &arguments.new, arguments.overwrite);
    let path = offline::absolute(&arguments.new);
    let command = Command::MemberReplace {
        member: member.member,
        path,
        overwrite: arguments.overwrite,
        power_safe: arguments.power_safe,
        partitioning: arguments.disks.partitioning(),
    };
    let member = ask(&arguments.pool, &arguments.place, command, arguments.force)
        .map_err(|failure| unmake(made, &arguments.new, failure))?;
    let when = if report.served {
        "now"
    } else {
        "when the pool is served"
    };
    let created: &[&Path] = if made { &[&arguments.new] } else { &[] };
    output.result("pool-replace", &with_created(&member, created), || {
        let lines = created_lines(created, member.size_bytes) + &arguments.disks.remark(&arguments.new, &member.path);
        let (new, pool) = (shown(&arguments.new.display().to_string()), &arguments.pool);
        match member.replaces {
            Some(of) => {
                format!("member {of} of pool '{pool}' is copied to {new} {when} (spare {}), and stays in use until {new} can replace it{lines}", member.member)
            }
            None => format!("{} is member {} of pool '{pool}' now; it is rebuilt {when}{lines}", shown(&member.path), member.member),
        }
    });
    Ok(0)
}

/// Runs `pool offline`.
pub fn offline(arguments: &OfflineArguments, output: &Output) -> Result<u8, Failure> {
    let what = format!(
        "cannot take a member of pool '{}' out of service",
        arguments.pool
    );
    let report = context::status(&arguments.pool, &arguments.place)?;
    let member = find(&report, &arguments.member, &what)?.member;
    let member = ask(
        &arguments.pool,
        &arguments.place,
        Command::MemberOffline { member },
        false,
    )?;
    let hangs = match member.unanswered {
        0 => String::new(),
        commands => format!(
            "; its device stays open until its commands have ended ({commands}), and cannot be replaced before that"
        ),
    };
    output.result("pool-offline", &member, || {
        format!(
            "member {} of pool '{}' is out of service{hangs}",
            member.member, arguments.pool
        )
    });
    Ok(0)
}

/// Runs `pool online`.
pub fn online(arguments: &OnlineArguments, output: &Output) -> Result<u8, Failure> {
    let what = format!("cannot bring a member of pool '{}' back", arguments.pool);
    let report = context::status(&arguments.pool, &arguments.place)?;
    let member = find(&report, &arguments.member, &what)?;
    let path = arguments.path.as_deref().map(offline::absolute);
    let member = ask(
        &arguments.pool,
        &arguments.place,
        Command::MemberOnline {
            member: member.member,
            path,
        },
        false,
    )?;
    let when = if report.served {
        ""
    } else {
        " when the pool is served"
    };
    output.result("pool-online", &member, || {
        format!(
            "member {} of pool '{}' is back; what it has missed is rebuilt{when}",
            member.member, arguments.pool
        )
    });
    Ok(0)
}

/// Runs `pool add`.
pub fn add(arguments: &AddArguments, output: &Output) -> Result<u8, Failure> {
    if let Some(device) = &arguments.journal {
        return add_journal(arguments, device, output);
    }
    let Some(spare) = &arguments.spare else {
        return grow(arguments, output);
    };
    let what = format!("cannot add a spare to pool '{}'", arguments.pool);
    let report = context::status(&arguments.pool, &arguments.place)?;
    let largest = largest_member(&report);
    let (member, made) = add_one(arguments, spare, &report, &what)?;
    let small = member.size_bytes < largest;
    let created: &[&Path] = if made { &[spare] } else { &[] };
    output.result("pool-add", &with_created(&member, created), || {
        let remark = if small {
            "; it is smaller than the largest member, and cannot replace every member"
        } else {
            ""
        };
        format!(
            "{} is spare {} of pool '{}'{remark}{}",
            shown(&member.path),
            member.member,
            arguments.pool,
            created_lines(created, member.size_bytes)
                + &arguments.disks.remark(spare, &member.path)
        )
    });
    Ok(0)
}

/// Adds a journal device. A new file is as large as the present journal devices, or large enough
/// for the largest journal.
fn add_journal(arguments: &AddArguments, path: &Path, output: &Output) -> Result<u8, Failure> {
    let what = format!("cannot add a journal device to pool '{}'", arguments.pool);
    let report = context::status(&arguments.pool, &arguments.place)?;
    let size = report
        .members
        .iter()
        .filter(|member| member.journal)
        .map(|member| member.size_bytes)
        .max()
        .unwrap_or(JOURNAL_FILE_BYTES);
    let made = make(path, size, &arguments.making, &what)?;
    announce(&report, path, arguments.overwrite);
    let command = Command::JournalAdd {
        path: offline::absolute(path),
        overwrite: arguments.overwrite,
        power_safe: arguments.power_safe,
        partitioning: arguments.disks.partitioning(),
    };
    let member = ask(&arguments.pool, &arguments.place, command, false)
        .map_err(|failure| unmake(made, path, failure))?;
    let when = if report.served {
        "when the log has what was written before"
    } else {
        "when the pool is served"
    };
    let created: &[&Path] = if made { &[path] } else { &[] };
    output.result("pool-add", &with_created(&member, created), || {
        let lines = created_lines(created, member.size_bytes);
        format!(
            "{} is journal device {} of pool '{}'; it is used {when}{lines}",
            shown(&member.path),
            member.member,
            arguments.pool
        )
    });
    Ok(0)
}

fn largest_member(report: &PoolReport) -> u64 {
    let members = report
        .members
        .iter()
        .filter(|member| !member.journal && !["spare", "removed"].contains(&member.state.as_str()));
    members.map(|member| member.size_bytes).max().unwrap_or(0)
}

/// Adds a device as a spare; true if its file was made for that.
fn add_one(
    arguments: &AddArguments,
    path: &Path,
    report: &PoolReport,
    what: &str,
) -> Result<(MemberReport, bool), Failure> {
    let made = make(path, largest_member(report), &arguments.making, what)?;
    announce(report, path, arguments.overwrite);
    // The pool may grow over devices of any size.
    let small = arguments.force || arguments.spare.is_none();
    let command = Command::SpareAdd {
        path: offline::absolute(path),
        overwrite: arguments.overwrite,
        small,
        partitioning: arguments.disks.partitioning(),
    };
    let member = ask(&arguments.pool, &arguments.place, command, false)
        .map_err(|failure| unmake(made, path, failure))?;
    Ok((member, made))
}

/// Adds all devices as spares first, then the pool grows over them; if it cannot, they are removed
/// again.
fn grow(arguments: &AddArguments, output: &Output) -> Result<u8, Failure> {
    let what = format!("pool '{}' cannot grow", arguments.pool);
    let report = context::status(&arguments.pool, &arguments.place)?;
    let before = report.capacity.usable_bytes;
    // Checked first: a device that waits as a spare would replace a missing member.
    let is_data = |member: &&MemberReport| {
        !member.journal && !["spare", "removed"].contains(&member.state.as_str())
    };
    if let Some(member) = report
        .members
        .iter()
        .filter(is_data)
        .find(|member| member.state != "online")
    {
        let why = format!(
            "member {} is {}: a pool grows only while all its members are present and complete",
            member.member, member.state
        );
        return Err(
            Failure::new(id::MEMBER_STATE, what, why).remedy("replace it, or wait for its rebuild")
        );
    }
    let mut added: Vec<(MemberReport, &Path, bool)> = Vec::new();
    let mut grown = Ok(());
    for path in &arguments.devices {
        match add_one(arguments, path, &report, &what) {
            Ok((member, made)) => added.push((member, path, made)),
            Err(failure) => grown = Err(failure),
        }
        if grown.is_err() {
            break;
        }
    }
    let members = added.iter().map(|(member, ..)| member.member).collect();
    let grown = grown.and_then(|()| {
        match context::ask_with(
            &arguments.pool,
            &arguments.place,
            Command::Grow { members },
            false,
        )? {
            Reply::Pool(report) => Ok(report),
            _ => Err(context::unexpected()),
        }
    });
    let report = grown.map_err(|failure| {
        // Best effort: the failure is the one to report. Changes of a daemon that was lost stay.
        let is_lost = failure.id == id::NO_DAEMON;
        added.iter().fold(failure, |failure, (member, path, made)| {
            let given_back = || {
                ask(
                    &arguments.pool,
                    &arguments.place,
                    Command::SpareRemove {
                        member: member.member,
                    },
                    false,
                )
                .is_ok()
            };
            unmake(!is_lost && given_back() && *made, path, failure)
        })
    })?;
    let created: Vec<&Path> = added
        .iter()
        .filter(|(.., made)| *made)
        .map(|(_, path, _)| *path)
        .collect();
    output.result("pool-grow", &with_created(&report, &created), || {
        let lines: String = added
            .iter()
            .filter(|(.., made)| *made)
            .map(|(member, path, _)| created_lines(&[path], member.size_bytes))
            .collect();
        let now = report.capacity.usable_bytes;
        let (usable, more) = (
            windrow_console::values::Size(now),
            windrow_console::values::Size(now.saturating_sub(before)),
        );
        format!(
            "pool '{}' has {} members more; {usable} usable, {more} more than before{lines}\n{}",
            arguments.pool,
            added.len(),
            super::pool::reshape(&report)
        )
    });
    Ok(0)
}

/// Runs `pool remove`.
pub fn remove(arguments: &RemoveArguments, output: &Output) -> Result<u8, Failure> {
    let what = format!("cannot remove a member from pool '{}'", arguments.pool);
    let report = context::status(&arguments.pool, &arguments.place)?;
    let found = find(&report, &arguments.member, &what)?;
    let (member, kind) = (
        found.member,
        if found.journal {
            "journal device"
        } else {
            "spare"
        },
    );
    if arguments.journal && !found.journal {
        let why = format!("member {member} is no journal device, as --journal says");
        return Err(Failure::new(id::USAGE, what, why)
            .remedy("look at `windrow pool status`, and name another one or leave --journal out"));
    }
    let member = ask(
        &arguments.pool,
        &arguments.place,
        Command::SpareRemove { member },
        false,
    )?;
    if member.leaving {
        let now = context::status(&arguments.pool, &arguments.place)?;
        let when = if report.served {
            "now"
        } else {
            "when the pool is served"
        };
        output.result("pool-remove", &member, || {
            let (index, usable, before) = (member.member, Size(now.capacity.usable_bytes), Size(report.capacity.usable_bytes));
            let moves = super::pool::reshape(&now);
            format!("member {index} leaves pool '{}': what lies on it moves to the others {when}; {usable} usable, {before} before\n{moves}", arguments.pool)
        });
        return Ok(0);
    }
    output.result("pool-remove", &member, || {
        format!(
            "{kind} {} is no part of pool '{}' any more",
            member.member, arguments.pool
        )
    });
    Ok(0)
}

fn ask(
    pool: &str,
    place: &PoolPlace,
    command: Command,
    force: bool,
) -> Result<MemberReport, Failure> {
    match context::ask_with(pool, place, command, force)? {
        Reply::Member(member) => Ok(*member),
        _ => Err(context::unexpected()),
    }
}

/// Explains the long wait for a device that was in this pool before. (Without --overwrite it is
/// refused.)
fn announce(report: &PoolReport, path: &Path, overwrite: bool) {
    let Some(bytes) = offline::zeroed_first(path, report.pool).filter(|_| overwrite) else {
        return;
    };
    windrow_console::output::error_text(&format!(
        "{} was in pool '{}' before: all of its {} are zeroed first, so that nothing it got apart from the pool is ever taken for the pool's; that takes as long as writing it once\n",
        shown_path(path),
        shown(&report.name),
        Size(bytes)
    ));
}

/// Makes the file if it does not exist and one was requested. True if it was made.
fn make(path: &Path, size_bytes: u64, making: &Making, what: &str) -> Result<bool, Failure> {
    if path.exists() {
        return Ok(false);
    }
    if !making.create_files {
        return Err(files::does_not_exist(path, what, "--create-files"));
    }
    let allocation = if making.sparse {
        Allocation::Sparse
    } else {
        Allocation::Preallocate
    };
    let mut progress = Progress::new("making the file");
    let file = NewFile {
        path,
        size_bytes,
        allocation,
        purpose: Purpose::Device,
    };
    files::make(&file, what, &mut |bytes| {
        progress.note(&Size(bytes).to_string())
    })?;
    Ok(true)
}

/// The failure, after files that were made for it are removed.
fn unmake(made: bool, path: &Path, failure: Failure) -> Failure {
    if made {
        files::unmake_after(path, failure)
    } else {
        failure
    }
}

/// A result with the files that were made for it.
fn with_created(result: &impl Serialize, created: &[&Path]) -> Value {
    let mut value = serde_json::to_value(result).unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        fields.insert(
            "created_files".to_owned(),
            created
                .iter()
                .map(|path| offline::absolute(path).to_string_lossy().into_owned())
                .collect(),
        );
    }
    value
}

/// A line for each file that was made.
fn created_lines(created: &[&Path], size_bytes: u64) -> String {
    created
        .iter()
        .map(|path| {
            format!(
                "\ncreated the file {} ({})",
                shown_path(&offline::absolute(path)),
                Size(size_bytes)
            )
        })
        .collect()
}

/// The selected member: by index, identifier or path.
fn find<'a>(report: &'a PoolReport, name: &str, what: &str) -> Result<&'a MemberReport, Failure> {
    let by_index = name
        .parse::<u8>()
        .ok()
        .and_then(|index| report.members.iter().find(|member| member.member == index));
    let by_uuid = || {
        report
            .members
            .iter()
            .find(|member| member.uuid.to_string() == name)
    };
    let found = by_index
        .or_else(by_uuid)
        .or_else(|| at_path(&report.members, Path::new(name)));
    found.ok_or_else(|| {
        Failure::new(id::USAGE, what, format!("'{name}' is no member of it"))
            .remedy("see `windrow pool status`")
    })
}

/// The member at a path, or on the one partition of a disk that is a member. A slot keeps the path
/// that its device had: another slot may have that device, or the path, now.
fn at_path<'a>(members: &'a [MemberReport], path: &Path) -> Option<&'a MemberReport> {
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    let (named, named_real) = (offline::absolute(path), real(path));
    // A missing member has no link left to follow.
    let is_it = |path: &Path| {
        offline::absolute(path) == named || (named_real.is_some() && real(path) == named_real)
    };
    let rank = |member: &&MemberReport| match member.state.as_str() {
        "online" | "rebuilding" | "spare" => 0,
        "removed" => 2,
        _ => 1,
    };
    let there = || members.iter().filter(|member| !member.path.is_empty());
    let of_disk = || {
        let mut found = there()
            .filter(|member| rank(member) < 2 && is_partition_of(Path::new(&member.path), path));
        found.next().filter(|_| found.next().is_none())
    };
    there()
        .filter(|member| is_it(Path::new(&member.path)))
        .min_by_key(rank)
        .or_else(of_disk)
}

#[cfg(test)]
mod tests {
    use super::*;
    use windrow_host::report::MemberCounters;
    use windrow_types::Uuid;

    /// Several slots may have this path: a former spare whose device took a member's slot, or a
    /// member out of service since.
    #[test]
    fn a_path_names_the_slot_that_has_the_device_now() {
        let member = |member, state: &str| MemberReport {
            member,
            uuid: Uuid::default(),
            path: "/dev/none".to_owned(),
            last_path: String::new(),
            model: String::new(),
            serial: String::new(),
            seen_unix_s: 0,
            reason: String::new(),
            since_unix_s: 0,
            state: state.to_owned(),
            size_bytes: 0,
            slow: false,
            unanswered: 0,
            spare_in_seconds: None,
            replaces: None,
            hangs_ms: 0,
            journal: false,
            leaving: false,
            counters: MemberCounters::default(),
        };
        let found = |states: [&str; 2]| {
            let members = [member(3, states[0]), member(5, states[1])];
            at_path(&members, Path::new("/dev/none")).map_or(0, |member| member.member)
        };
        assert_eq!(
            [
                ["removed", "online"],
                ["offline", "spare"],
                ["removed", "missing"]
            ]
            .map(found),
            [5; 3]
        );
        assert_eq!(
            [["rebuilding", "removed"], ["faulted", "removed"]].map(found),
            [3; 2]
        );
    }
}

//! `pool`: commands for whole pools.

use super::create::{self, CreateArguments};
use super::list::{self, ListArguments};
use super::members::{
    self, AddArguments, OfflineArguments, OnlineArguments, RemoveArguments, ReplaceArguments,
};
use super::rename::{self, RenameArguments};
use super::scrub::{self, ScrubArguments};
use crate::daemons;
use clap::{Args, Subcommand};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use windrow_console::context::{self, OpenedAtRest, PoolPlace};
use windrow_console::figures::{clock, megabytes, utc};
use windrow_console::output::Output;
use windrow_console::properties;
use windrow_console::table::Table;
use windrow_console::values::{Size, property};
use windrow_engine::{Reduction, ReshapeWait};
use windrow_host::control::Command;
use windrow_host::failure::id;
use windrow_host::offline::{self, FoundPool, OpenRequest};
use windrow_host::registry::{Content, PoolEntry};
use windrow_host::report::{BoundsReport, MemberReport, PoolReport, RebuildReport};
use windrow_host::schedule::unix_now;
use windrow_host::served::Served;
use windrow_host::{Failure, KnownMember};
use windrow_types::Uuid;

/// Commands for pools.
#[derive(Subcommand)]
pub enum PoolCommand {
    /// Make a pool of drives or files.
    Create(CreateArguments),
    /// Take over a pool whose members are found here.
    Import(ImportArguments),
    /// Release a pool for another host: shut it down cleanly and forget its members' paths. Its
    /// exports are kept for its next import here.
    Export(ExportArguments),
    /// Mark a pool as destroyed. Its volumes are lost.
    Destroy(DestroyArguments),
    /// Rename a pool at rest.
    Rename(RenameArguments),
    /// Show the pools that are served, known or found.
    List(ListArguments),
    /// Show the state of pools.
    Status(StatusArguments),
    /// Replace a member with a new device.
    Replace(ReplaceArguments),
    /// Take a member out of service.
    Offline(OfflineArguments),
    /// Bring back a member that is out of service.
    Online(OnlineArguments),
    /// Add members that data spreads over, a spare, or a journal device.
    Add(AddArguments),
    /// Remove a member, a spare or a journal device.
    Remove(RemoveArguments),
    /// Read and verify all live data of a served pool, and repair what is wrong.
    Scrub(ScrubArguments),
    /// Change properties.
    #[command(after_help = properties_help("set", "windrow pool set tank spare=15% seal-age=20\n  windrow pool set tank reduction=capacity"))]
    Set(SetArguments),
    /// Show properties.
    #[command(after_help = properties_help("get", "windrow pool get tank\n  windrow pool get tank spare"))]
    Get(GetArguments),
}

fn properties_help(_command: &str, example: &str) -> String {
    format!("Examples:\n  {example}\n\n{}", properties::HELP)
}

/// One pool by name.
#[derive(Args)]
pub struct NamedPool {
    /// Pool.
    pool: String,
    #[command(flatten)]
    place: PoolPlace,
}

/// Arguments of `pool export`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  windrow pool export tank\n  windrow pool export tank --force\n\nRefused while clients are connected (`windrow export list`)."
)]
pub struct ExportArguments {
    #[command(flatten)]
    pool: NamedPool,
    /// Proceed although clients are connected: they are disconnected.
    #[arg(long)]
    force: bool,
}

/// Arguments of `pool get`.
#[derive(Args)]
pub struct GetArguments {
    /// Pool.
    pool: String,
    /// Only this property.
    property: Option<String>,
    #[command(flatten)]
    place: PoolPlace,
}

/// Arguments of `pool import`.
#[derive(Args)]
#[command(after_help = "Examples:
  windrow pool import tank --dir /srv/members
  windrow pool import --members /dev/sdb,/dev/sdc,/dev/sdd
  windrow pool import tank --dry-run")]
pub struct ImportArguments {
    /// Pool; may be left out if only one is found.
    pool: Option<String>,
    #[command(flatten)]
    place: PoolPlace,
    /// Show what recovery would find; write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Import although another host has the pool, or too many members are missing. If that host
    /// still serves it, both destroy it: its members must be out of that host's reach. Missing
    /// members leave the pool for good.
    #[arg(long)]
    force: bool,
    /// Replace another known pool of this name: its members' paths are forgotten; its exports are
    /// kept for its return.
    #[arg(long)]
    replace_known: bool,
    /// Start without the journal devices although durable writes may be on them alone: these are
    /// lost then.
    #[arg(long)]
    discard_journal: bool,
}

/// Arguments of `pool destroy`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  windrow pool destroy tank --yes\n  windrow pool destroy tank --yes --wipe"
)]
pub struct DestroyArguments {
    #[command(flatten)]
    pool: NamedPool,
    /// Confirm that everything in it is lost.
    #[arg(long)]
    yes: bool,
    /// Erase the labels, too, so that the members look empty.
    #[arg(long)]
    wipe: bool,
    /// Destroy it although another host has it; with --wipe, also one that this version cannot
    /// read.
    #[arg(long)]
    force: bool,
    /// Also if at most half of its members were found: no later start takes the others together
    /// with these.
    #[arg(long)]
    partial: bool,
}

/// Arguments of `pool status`.
#[derive(Args)]
#[command(after_help = "Examples:
  windrow pool status
  windrow pool status tank -o json
  windrow pool status tank --exit-code

Without a pool, shows all that respond; the others are named on standard error (`failed` in JSON), and the exit code is 4.
Exit codes with --exit-code: 0 online, 3 online and filled beyond a warning or refusing data, 1 degraded, 5 data is damaged or not verified since it was, 2 stopped, 4 error (the worst of
all pools).")]
pub struct StatusArguments {
    /// Pool; else all known ones.
    pool: Option<String>,
    #[command(flatten)]
    place: PoolPlace,
    /// Report the state in the exit code.
    #[arg(long)]
    exit_code: bool,
}

/// Arguments of `pool set`.
#[derive(Args)]
pub struct SetArguments {
    /// Pool.
    pool: String,
    /// PROPERTY=VALUE, one or more.
    #[arg(required = true, value_parser = property)]
    properties: Vec<(String, String)>,
    #[command(flatten)]
    place: PoolPlace,
}

/// Runs it.
pub fn run(command: PoolCommand, output: &Output) -> Result<u8, Failure> {
    match command {
        PoolCommand::Create(arguments) => create::run(&arguments, output),
        PoolCommand::Import(arguments) => import(&arguments, output),
        PoolCommand::Export(arguments) => export(&arguments, output),
        PoolCommand::Destroy(arguments) => destroy(&arguments, output),
        PoolCommand::Rename(arguments) => rename::run(&arguments, output),
        PoolCommand::List(arguments) => list::run(&arguments, output),
        PoolCommand::Status(arguments) => status(&arguments, output),
        PoolCommand::Replace(arguments) => members::replace(&arguments, output),
        PoolCommand::Offline(arguments) => members::offline(&arguments, output),
        PoolCommand::Online(arguments) => members::online(&arguments, output),
        PoolCommand::Add(arguments) => members::add(&arguments, output),
        PoolCommand::Remove(arguments) => members::remove(&arguments, output),
        PoolCommand::Scrub(arguments) => Ok(scrub::run(&arguments, output)),
        PoolCommand::Set(arguments) => {
            let change = properties::parse(&arguments.properties)?;
            context::ask(&arguments.pool, &arguments.place, Command::PoolSet(change))?;
            get(
                &GetArguments {
                    pool: arguments.pool,
                    property: None,
                    place: arguments.place,
                },
                "pool-set",
                output,
            )
        }
        PoolCommand::Get(arguments) => get(&arguments, "pool-get", output),
    }
}

fn get(arguments: &GetArguments, name: &str, output: &Output) -> Result<u8, Failure> {
    let report = context::status(&arguments.pool, &arguments.place)?;
    let mut list = properties::list(&report.properties);
    if let Some(property) = &arguments.property {
        list.push((
            "policy",
            format!(
                "{}+{}",
                report.properties.placement, report.properties.victim_policy
            ),
        ));
        let value = properties::one_of(
            list,
            property,
            &format!(
                "cannot show property '{property}' of pool '{}'",
                report.name
            ),
            "windrow pool get",
        )?;
        output.result(
            name,
            &json!({ "pool": report.name, "property": property, "value": value }),
            || value.clone(),
        );
        return Ok(0);
    }
    output.result(
        name,
        &json!({ "pool": report.name, "properties": report.properties }),
        || properties::table(list),
    );
    Ok(0)
}

fn import(arguments: &ImportArguments, output: &Output) -> Result<u8, Failure> {
    let registry = context::registry();
    let chosen = arguments.force || arguments.discard_journal || arguments.replace_known;
    context::must_be_named(
        "cannot import a pool",
        arguments.pool.as_deref(),
        &arguments.place,
        chosen,
    )?;
    let found = offline::locate(
        &arguments.place.target(arguments.pool.as_deref()),
        &registry,
    )?;
    if context::is_served(&found, &arguments.place)? {
        let failure = Failure::new(
            id::POOL_BUSY,
            format!("cannot import pool '{}'", found.name),
            "a daemon serves it already",
        );
        return Err(failure.remedy("stop the daemon first"));
    }
    if !arguments.replace_known {
        registry.must_be_free(
            &format!("cannot import pool '{}'", found.name),
            &found.name,
            found.pool,
        )?;
    }
    if arguments.replace_known {
        context::must_not_replace_served(&registry, &found.name, found.pool)?;
    }
    let request = OpenRequest {
        read_only: arguments.dry_run,
        force: arguments.force,
        discard_journal: arguments.discard_journal,
        ..arguments.place.request()
    };
    let opened = OpenedAtRest::open(&found, &registry, &request)?;
    let (exports, not_served) = (opened.pool.export_table(), opened.not_served.clone());
    let (recovery, mut report) = (
        opened.report.clone(),
        windrow_host::daemon::report(&opened.pool)?,
    );
    report.served = false;
    if !arguments.dry_run {
        opened.close(false)?;
        let mut entry = entry(&found, registry.load_of(&found.name, found.pool)?);
        entry.exports = exports;
        entry.last_volume = Some(report.last_volume());
        registry.save(&entry)?;
    }
    let value = json!({ "dry_run": arguments.dry_run, "recovery": recovery, "pool": report, "not_served": not_served });
    output.result("pool-import", &value, || {
        let notes: String = recovery.notes.iter().map(|note| format!("\nnote: {note}")).collect();
        let head = if arguments.dry_run { "could be imported; nothing has been written" } else { "is imported" };
        format!(
            "pool '{}' {head}{}\nrecovery from checkpoint {}: {} batches ({}), {} entries, {} batches completed{notes}\n{}",
            found.name,
            made_elsewhere(&not_served),
            recovery.checkpoint,
            recovery.batches,
            Size(recovery.batch_bytes),
            recovery.entries,
            recovery.completed_batches,
            describe(&report)
        )
    });
    Ok(0)
}

/// A line for people on volumes that are not served because they were made on another host; empty
/// if there are none.
pub fn made_elsewhere(not_served: &[String]) -> String {
    match not_served {
        [] => String::new(),
        [one] => format!(
            "\nnote: volume '{one}' was made elsewhere and is not served: `windrow export add` serves it"
        ),
        many => format!(
            "\nnote: volumes '{}' were made elsewhere and are not served: `windrow export add` serves them",
            many.join("', '")
        ),
    }
}

/// Registry entry of a pool that was found; its exports stay, and while a member is missing, so do
/// its known paths.
pub fn entry(found: &FoundPool, known: Option<PoolEntry>) -> PoolEntry {
    let members = found
        .members
        .iter()
        .map(|member| offline::absolute(&member.path))
        .collect();
    let mut entry = known.unwrap_or_else(|| PoolEntry::new(&found.name, found.pool, Vec::new()));
    if found.is_searched {
        entry.add_members(members);
    } else {
        entry.set_members(members, found.is_away());
    }
    let here = found.members.iter().map(|member| {
        KnownMember::seen(
            member.label.member_uuid,
            &offline::absolute(&member.path),
            unix_now(),
        )
    });
    KnownMember::merge(&mut entry.known, here);
    entry
}

fn export(arguments: &ExportArguments, output: &Output) -> Result<u8, Failure> {
    let (named, force) = (&arguments.pool, arguments.force);
    let registry = context::registry();
    match context::daemon_of(&named.pool, &named.place)? {
        Some(mut client) => {
            // A pool that has stopped may not be able to report, and ends all the same.
            let served = context::report_of(&mut client).ok();
            client.ask(Command::Shutdown {
                export: true,
                force,
            })?;
            served.map_or(Ok(()), |served| registry.forget(&served.name, served.pool))?;
        }
        None => {
            let found = offline::locate(&named.place.target(Some(&named.pool)), &registry)?;
            let opened = OpenedAtRest::open(&found, &registry, &named.place.request())?;
            let (exports, report) = (
                opened.pool.export_table(),
                windrow_host::daemon::report(&opened.pool),
            );
            opened.close(true)?;
            registry.keep_exports(
                &found.name,
                found.pool,
                Some(report?.last_volume()),
                exports,
            )?;
            registry.forget(&found.name, found.pool)?;
        }
    }
    output.result("pool-export", &json!({ "pool": named.pool }), || {
        format!(
            "pool '{}' is exported: any host may import it; its exports are kept for its return",
            named.pool
        )
    });
    Ok(0)
}

fn destroy(arguments: &DestroyArguments, output: &Output) -> Result<u8, Failure> {
    let NamedPool { pool, place } = &arguments.pool;
    let found = context::at_rest(&format!("cannot destroy pool '{pool}'"), pool, place)?;
    let registry = context::registry();
    if !arguments.yes {
        return Err(Failure::new(
            id::USAGE,
            format!("pool '{pool}' is not destroyed"),
            "everything in it would be lost",
        )
        .remedy("give --yes to confirm"));
    }
    let missing = found.missing();
    if missing.len() >= found.members.len() && !arguments.partial {
        let why = format!(
            "members {missing:?} were not found: the pool may be in use, or be wanted, where they are"
        );
        let remedy = "connect them, or name them with --members; or give --partial to destroy what was found (--wipe makes single members blank again)";
        return Err(Failure::new(
            id::POOL_MEMBERS,
            format!("pool '{pool}' is not destroyed"),
            why,
        )
        .remedy(remedy));
    }
    let host = if arguments.force {
        None
    } else {
        Some(offline::host_id(&registry)?)
    };
    offline::destroy(&found, arguments.wipe, host)?;
    registry.forget(&found.name, found.pool)?;
    registry.forget_exports(found.pool)?;
    output.result("pool-destroy", &json!({ "pool": pool, "members": found.members.len(), "missing": missing, "wiped": arguments.wipe }), || {
        let rest = if missing.is_empty() { String::new() } else { format!("; members {missing:?} were not found and still contain it") };
        format!("pool '{pool}' is destroyed on {} members{rest}", found.members.len())
    });
    Ok(0)
}

/// The named members and folders. Each folder must exist, and each member: a missing one may be the
/// one that the pool has lost.
pub(super) fn named_places(place: &PoolPlace) -> Result<Vec<PathBuf>, Failure> {
    let missing = |path: &PathBuf| {
        std::fs::metadata(path)
            .err()
            .map(|error| (path.clone(), error))
    };
    // Folders are read here; members are checked later.
    let dir = place.dir.iter().find_map(|path| {
        std::fs::read_dir(path)
            .err()
            .map(|error| (path.clone(), error))
    });
    let none_is_there = place.members.iter().all(|path| missing(path).is_some());
    let wrong = dir.or_else(|| {
        place
            .members
            .first()
            .filter(|_| none_is_there)
            .and_then(missing)
    });
    match wrong {
        Some((path, error)) if error.kind() == std::io::ErrorKind::NotFound => Err(Failure::new(
            id::MEMBER_OPEN,
            "cannot look for pools",
            format!("{} is not there", path.display()),
        )
        .remedy("check the path")),
        Some((path, error)) => Err(Failure::new(
            id::MEMBER_OPEN,
            "cannot look for pools",
            format!("{}: {error}", path.display()),
        )
        .remedy("check the path, and your rights to it")),
        None => Ok(place.members.iter().chain(&place.dir).cloned().collect()),
    }
}

/// Reports a pool that cannot be shown alongside others.
pub(super) fn not_shown(pool: &str, failure: &Failure, output: &Output) {
    output.remark(&Failure {
        what: format!("pool '{pool}' is not shown: {}", failure.what),
        ..failure.clone()
    });
}

fn status(arguments: &StatusArguments, output: &Output) -> Result<u8, Failure> {
    let Some(name) = &arguments.pool else {
        return status_of_all(arguments, output);
    };
    let report = context::status(name, &arguments.place)?;
    output.result("pool-status", &report, || describe(&report));
    Ok(if arguments.exit_code {
        report.exit_code()
    } else {
        0
    })
}

/// All pools that are served or known. A pool that cannot be shown does not hide the others.
fn status_of_all(arguments: &StatusArguments, output: &Output) -> Result<u8, Failure> {
    let places = named_places(&arguments.place)?;
    let (mut reports, mut failed) = (BTreeMap::new(), Vec::new());
    let known: Vec<(String, Uuid)> = if places.is_empty() {
        let daemons = daemons::ask_all(&arguments.place)?;
        reports = daemons.pools;
        failed.extend(daemons.silent);
        let Content {
            entries,
            unreadable,
        } = context::registry().read_all()?;
        failed.extend(
            unreadable
                .into_iter()
                .filter(|(name, _)| !reports.contains_key(name)),
        );
        entries
            .into_iter()
            .map(|entry| (entry.name, entry.pool))
            .collect()
    } else {
        let served = Served::now()
            .in_places(&places)
            .into_iter()
            .map(|daemon| (daemon.name.clone(), daemon.pool));
        offline::list_in(&places)
            .into_iter()
            .map(|found| (found.name, found.pool))
            .chain(served)
            .collect()
    };
    for (name, pool) in known {
        // A pool with two entries (after a crash in a rename) is shown once.
        let is_shown = reports.values().any(|report| report.pool == pool);
        if is_shown
            || reports.contains_key(&name)
            || failed.iter().any(|(silent, _)| *silent == name)
        {
            continue;
        }
        match context::status(&name, &arguments.place) {
            Ok(report) => drop(reports.insert(name, report)),
            Err(failure) => failed.push((name, failure)),
        }
    }
    let reports: Vec<_> = reports.into_values().collect();
    let failures: Vec<_> = failed
        .iter()
        .map(|(pool, failure)| json!({ "pool": pool, "error": failure }))
        .collect();
    output.result(
        "pool-status-all",
        &json!({ "pools": reports, "failed": failures }),
        || match (reports.is_empty(), failed.is_empty()) {
            (true, true) if places.is_empty() => "no pools are known\n".to_owned(),
            (true, true) => "no pools are found there\n".to_owned(),
            _ => reports.iter().map(describe).collect::<Vec<_>>().join("\n"),
        },
    );
    for (pool, failure) in &failed {
        not_shown(pool, failure, output);
    }
    // Severity: stopped, then damaged data, then degraded, then filled.
    let worst = reports
        .iter()
        .map(PoolReport::exit_code)
        .max_by_key(|code| [0, 2, 4, 1, 0, 3][usize::from(*code).min(5)])
        .unwrap_or(0);
    Ok(match (failed.is_empty(), arguments.exit_code) {
        (false, _) => windrow_console::FAILED,
        (true, true) => worst,
        (true, false) => 0,
    })
}

/// Progress of a rebuild, as a line of the status; empty if there is none.
pub fn rebuild(rebuild: &RebuildReport) -> String {
    if rebuild.members.is_empty() {
        String::new()
    } else {
        format!("rebuild    {}\n", rebuild_line(rebuild))
    }
}

/// Progress of a rebuild.
pub fn rebuild_line(rebuild: &RebuildReport) -> String {
    let members = rebuild
        .members
        .iter()
        .map(u8::to_string)
        .collect::<Vec<_>>()
        .join(", ");
    let left = match (rebuild.left_seconds, rebuild.waits_seconds) {
        (Some(seconds), _) => format!("{} left", clock(seconds)),
        (None, 0) => "time left unknown".to_owned(),
        (None, seconds) => format!(
            "waits: the rest cannot be read, {} damaged batches, tried again in {seconds} s",
            rebuild.damaged_batches
        ),
    };
    format!(
        "member {members}: {} % done, {} of {}, {}, {left}, {} of {} segments",
        rebuild.done_per_mille() / 10,
        Size(rebuild.written_bytes),
        Size(rebuild.total_bytes),
        megabytes(rebuild.bytes_per_second as f64),
        rebuild.segments_done,
        rebuild.segments_total
    )
}

/// Progress of a reshape in one line; empty if all data has moved.
pub fn reshape(report: &PoolReport) -> String {
    let reshape = &report.reshape;
    if !reshape.active {
        return String::new();
    }
    let time = match reshape.waits_for {
        ReshapeWait::Rebuild => "waits for a rebuild".to_owned(),
        ReshapeWait::Room => "waits for free segments: delete or trim something".to_owned(),
        ReshapeWait::Checkpoint => "waits for a checkpoint".to_owned(),
        ReshapeWait::Damage => {
            "waits: blocks that cannot be read must be overwritten or trimmed".to_owned()
        }
        ReshapeWait::Nothing => reshape
            .left_bytes
            .checked_div(reshape.bytes_per_second)
            .map_or_else(
                || "time left unknown".to_owned(),
                |s| format!("{} left", clock(s)),
            ),
    };
    let damaged = if reshape.segments_damaged > 0 {
        format!(
            ", {} hold blocks that cannot be read",
            reshape.segments_damaged
        )
    } else {
        String::new()
    };
    let leaving: Vec<String> = report
        .members
        .iter()
        .filter(|member| member.leaving)
        .map(|member| member.member.to_string())
        .collect();
    if !leaving.is_empty() {
        let rate = megabytes(reshape.bytes_per_second as f64);
        let (members, done, total) = (
            leaving.join(", "),
            reshape.segments_done,
            reshape.segments_total,
        );
        return format!(
            "removal    member {members}: {done} of {total} segments moved to the others, {rate}, {time}{damaged}\n"
        );
    }
    format!(
        "growth     {} of {} segments moved to all members, {time}{damaged}\n",
        reshape.segments_done, reshape.segments_total
    )
}

/// The journal as a line: its use and its counters.
pub fn journal(report: &PoolReport) -> String {
    let journal = &report.journal;
    if journal.bytes == 0 {
        return "none: flushes pad rows".to_owned();
    }
    let done = match report.served {
        true => format!(
            "; {} flush rounds, {} records, {}",
            journal.rounds,
            journal.records,
            Size(journal.record_bytes)
        ),
        false => String::new(),
    };
    format!(
        "{} in {} copies, {} of {} chunks in use{done}",
        Size(journal.bytes),
        journal.copies,
        journal.chunks_used,
        journal.chunks
    )
}

/// Clients and their memory, as a line; empty if no address is served.
fn clients(report: &PoolReport) -> String {
    let Some(nbd) = &report.nbd else {
        return String::new();
    };
    let waiting = if nbd.memory_waiting > 0 {
        format!("; {} wait for memory", nbd.memory_waiting)
    } else {
        String::new()
    };
    let refused = if nbd.refused > 0 {
        format!("; {} refused since the start", nbd.refused)
    } else {
        String::new()
    };
    let (memory, most) = (Size(nbd.memory_bytes), Size(nbd.memory_bytes_max));
    format!(
        "clients    {} of {}, {memory} of {most} for requests and replies{waiting}{refused}\n",
        nbd.connections, nbd.connections_max
    )
}

/// Space of the blocks of all volumes, and the effect of sharing and compression.
fn stored(report: &PoolReport) -> String {
    let (space, dedup) = (&report.space, &report.counters.dedup);
    let ratio = |ppm: u64| format!("1 : {}.{:02}", ppm / 1_000_000, ppm % 1_000_000 / 10_000);
    let shared = match dedup.referred_bytes {
        0 => String::new(),
        referred => {
            let (unique, index) = (Size(dedup.unique_bytes), Size(dedup.index_bytes));
            let ratios = format!(
                "deduplication {}, compression {}",
                ratio(space.dedup_ppm),
                ratio(space.compression_ppm)
            );
            let scan = match (dedup.index_pages_scanned, dedup.index_pages_to_scan) {
                (done, all) if done < all => {
                    format!(", {done} of {all} pages of it looked through")
                }
                _ => String::new(),
            };
            let pages = Size(dedup.index_pages * 4096);
            format!(
                "; {ratios}; {unique} unique for {} shared, index {index} in memory and {pages} on the members{scan}",
                Size(referred)
            )
        }
    };
    format!(
        "{} for {} of blocks ({}){shared}",
        Size(space.stored_bytes),
        Size(space.logical_bytes),
        ratio(space.reduction_ppm)
    )
}

/// Provisioned size of the volumes, as a share of the usable space.
fn promised(report: &PoolReport) -> String {
    let space = &report.space;
    let over = if space.provisioned_ppm > 1_000_000 {
        ": more than there is, watch `used`"
    } else {
        ""
    };
    let percent = space.provisioned_ppm / 1000;
    format!(
        "{} in volumes ({}.{} % of what is usable{over})",
        Size(space.provisioned_bytes),
        percent / 10,
        percent % 10
    )
}

/// Replacements of a member by other devices.
fn other_devices(report: &PoolReport, member: &MemberReport) -> Vec<String> {
    let spare = member
        .spare_in_seconds
        .map(|left| format!("a spare takes its place in {left} s"));
    let copy = member
        .replaces
        .map(|of| format!("becomes a copy of member {of}, then replaces it"));
    let new = report
        .members
        .iter()
        .find(|other| other.replaces == Some(member.member) && other.state == "spare");
    let new = new.map(|other| format!("in use until {} can replace it", other.member));
    spare.into_iter().chain(copy).chain(new).collect()
}

/// A pool as text.
pub fn describe(report: &PoolReport) -> String {
    let capacity = &report.capacity;
    let warned = match report.space.warned_percent {
        0 => String::new(),
        percent => format!(", beyond the warning at {percent} %"),
    };
    let as_stored = match capacity.reduction.way {
        Reduction::Spare => String::new(),
        Reduction::Capacity => format!(
            ", as it is stored: {} of blocks",
            Size(capacity.reduction.blocks_bytes)
        ),
    };
    let percent = (u128::from(capacity.used_bytes) * 1000)
        .checked_div(u128::from(capacity.usable_bytes))
        .unwrap_or(0);
    let reason = report
        .stop_reason
        .as_ref()
        .map(|reason| format!(": {reason}"))
        .unwrap_or_default();
    let next_step = report
        .next_step
        .as_ref()
        .map(|step| format!("next step  {step}\n"))
        .unwrap_or_default();
    let served = if report.served { "" } else { " (not served)" };
    let refuses = if report.refuses_data {
        ", refuses data: no segment becomes free; delete or trim something, or bring missing members back"
    } else {
        ""
    };
    let refuses = if report.map_full {
        ", map full: writes to places that hold nothing yet are refused; trim, add members, or see `map pages` in `windrow stats`"
    } else {
        refuses
    };
    let maps = map_shortage(&report.bounds)
        .map(|text| format!("map memory {text}\n"))
        .unwrap_or_default();
    let members = members(report);
    let flushed = match report.properties.flush_age_ms {
        0 => String::new(),
        age_ms => format!(" (flushed after {} s)", f64::from(age_ms) / 1000.0),
    };
    format!(
        "pool       {} ({})\nstate      {}{reason}{}{refuses}{served}\n{next_step}redundancy {}\nused       {} of {} ({}.{} %{warned}){as_stored}\npromised   {}\nstored     {}\nsegments   {} free of {}; the others take {} of all members, and hold {} of garbage\nat risk    {} not durable yet{flushed}\n{maps}journal    {}\n{}scrub      {}\n{}{}{}{}",
        report.name,
        report.pool,
        report.state,
        report.data.remark(),
        report.redundancy,
        Size(capacity.used_bytes),
        Size(capacity.usable_bytes),
        percent / 10,
        percent % 10,
        promised(report),
        stored(report),
        capacity.free_segments,
        capacity.segments,
        Size(report.space.physical_bytes),
        Size(report.space.garbage_bytes),
        Size(report.bounds.at_risk_bytes),
        journal(report),
        clients(report),
        scrub::line(&report.scrub, report.served, None),
        scrub::lost_ranges(&report.data),
        rebuild(&report.rebuild) + &reshape(report),
        members.render(),
        super::volume::table(&report.volumes, report.served),
    )
}

/// Warning if map memory ends before the space does.
pub fn map_shortage(bounds: &BoundsReport) -> Option<String> {
    bounds
        .map_data_bytes_max
        .map(|data| map_limit(bounds.limits.map_bytes, bounds.map_bytes_full, data))
}

/// Map memory of `limit` bytes, if the full pool needs `full`: writes fail from `data` bytes on.
pub fn map_limit(limit: u64, full: u64, data: u64) -> String {
    let (limit, full, data) = (Size(limit), Size(full), Size(data));
    format!(
        "limit {limit}, {full} needed when full. Writes fail with ENOSPC from {data} of data on; raise it with --map-memory"
    )
}

/// The members: state, reason if out of service, and path.
fn members(report: &PoolReport) -> Table {
    let mut members = Table::new(&["MEMBER", "STATE", "SIZE", "ERRORS", "WRONG", "PATH"]);
    for member in report
        .members
        .iter()
        .filter(|member| member.state != "removed")
    {
        let counters = &member.counters;
        let remark = |is: bool, text: &str| {
            if is {
                format!(" ({text})")
            } else {
                String::new()
            }
        };
        let unanswered = format!("unanswered commands: {}", member.unanswered);
        let hangs = format!("no answer for {} s", member.hangs_ms / 1000);
        let others = other_devices(report, member);
        let own = [
            (member.journal, "journal"),
            (member.leaving, "leaving"),
            (member.slow, "slow"),
        ];
        let remarks = own.into_iter().chain([
            (member.hangs_ms > 0, &*hangs),
            (member.unanswered > 0, &*unanswered),
        ]);
        let remarks = remarks.chain(others.iter().map(|text| (true, text.as_str())));
        let state = member.state.clone()
            + &remarks
                .map(|(is, text)| remark(is, text))
                .collect::<String>();
        let (errors, wrong) = (
            counters.errors.to_string(),
            counters.wrong_blocks.to_string(),
        );
        members.row([
            member.member.to_string(),
            state,
            Size(member.size_bytes).to_string(),
            errors,
            wrong,
            place(member),
        ]);
    }
    members
}

/// Present or last path of a member, and why it is out of service.
fn place(member: &MemberReport) -> String {
    let mut text = member.path.clone();
    if text.is_empty() && !member.last_path.is_empty() {
        let serial = if member.serial.is_empty() {
            String::new()
        } else {
            format!(", serial {}", member.serial)
        };
        let seen = if member.seen_unix_s == 0 {
            String::new()
        } else {
            format!(" on {}", utc(member.seen_unix_s))
        };
        text = format!("(last seen at {}{seen}{serial})", member.last_path);
    }
    if !member.reason.is_empty() {
        let since = if member.since_unix_s == 0 {
            String::new()
        } else {
            format!(" since {}", utc(member.since_unix_s))
        };
        text = format!(
            "{text}{}{}{since}",
            if text.is_empty() { "" } else { "; " },
            member.reason
        );
    }
    text
}

#[cfg(test)]
mod tests;

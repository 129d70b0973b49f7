//! `pool list`: the pools that are served, known or found, a line each.

use super::pool::{named_places, not_shown};
use crate::daemons::{self, Daemons};
use clap::Args;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use windrow_console::context::{self, PoolPlace};
use windrow_console::output::Output;
use windrow_console::table::Table;
use windrow_console::values::Size;
use windrow_format::superblock::{MemberState, PoolState};
use windrow_host::Failure;
use windrow_host::failure::id;
use windrow_host::offline::{self, FoundPool};
use windrow_host::registry::Registry;
use windrow_host::report::PoolReport;

/// Arguments of `pool list`.
#[derive(Args)]
#[command(after_help = "Examples:
  windrow pool list
  windrow pool list --quick
  windrow pool list --dir /srv/members -o json

STATE: online; degraded: members are missing, and the redundancy covers them; stopped: it cannot serve; unresponsive: its daemon does not answer;
destroyed; foreign: another host has it; newer: another version has to read it; unknown: it could not be opened. `pool status POOL` shows the reason.")]
pub struct ListArguments {
    #[command(flatten)]
    place: PoolPlace,
    /// Do not open pools at rest for their state and use: SIZE and USED are unknown then.
    #[arg(long)]
    quick: bool,
}

/// Runs it.
pub fn run(arguments: &ListArguments, output: &Output) -> Result<u8, Failure> {
    let places = named_places(&arguments.place)?;
    let daemons = daemons::ask_all(&arguments.place)?;
    let registry = context::registry();
    let unreadable = registry.read_all()?.unreadable;
    let mut failed: Vec<(String, Failure)> = daemons.silent.clone().into_iter().collect();
    failed.extend(unreadable.into_iter().filter(|(name, _)| {
        !daemons.pools.contains_key(name) && !daemons.silent.contains_key(name)
    }));
    let rows = rows(
        arguments,
        &daemons,
        &registry,
        offline::list(&registry, &places),
    );
    let failures: Vec<_> = failed
        .iter()
        .map(|(pool, failure)| json!({ "pool": pool, "error": failure }))
        .collect();
    output.result(
        "pool-list",
        &json!({ "pools": rows, "failed": failures }),
        || match rows.is_empty() && failed.is_empty() {
            true => "no pools are served, known or found; look in folders with --dir\n".to_owned(),
            false => render(&rows),
        },
    );
    failed
        .iter()
        .for_each(|(pool, failure)| not_shown(pool, failure, output));
    Ok(if failed.is_empty() {
        0
    } else {
        windrow_console::FAILED
    })
}

/// Sorted by name and identifier.
fn rows(
    arguments: &ListArguments,
    daemons: &Daemons,
    registry: &Registry,
    found: Vec<FoundPool>,
) -> Vec<Value> {
    let mut rows = BTreeMap::new();
    let known = |name: &String| registry.load(name).ok().flatten().map(|entry| entry.pool);
    let silent: BTreeMap<&String, _> = daemons
        .silent
        .keys()
        .map(|name| (name, known(name)))
        .collect();
    let is_served = |pool| {
        daemons.pools.values().any(|report| report.pool == pool)
            || silent.values().any(|known| *known == Some(pool))
    };
    for found in found.into_iter().filter(|found| !is_served(found.pool)) {
        let mut row = at_rest(&found);
        if !arguments.quick && row["state"].is_null() {
            look_inside(&found, registry, &arguments.place, &mut row);
        }
        if row["state"].is_null() {
            row["state"] = if row["members_found"] == row["members"] {
                "online".into()
            } else {
                "degraded".into()
            };
        }
        rows.insert((found.name.clone(), found.pool.to_string()), row);
    }
    for report in daemons.pools.values() {
        rows.insert(
            (report.name.clone(), report.pool.to_string()),
            of_report(report),
        );
    }
    for (name, pool) in silent {
        rows.insert(
            (name.clone(), String::new()),
            json!({ "name": name, "pool": pool, "served": true, "state": "unresponsive" }),
        );
    }
    rows.into_values().collect()
}

/// Row of a pool at rest, from its members. Spares and slots of removed members do not count. A
/// member that the pool does not use counts as missing, as in a served pool.
fn at_rest(found: &FoundPool) -> Value {
    let superblock = found.superblock();
    let state = match superblock.map(|superblock| superblock.state) {
        None => Some("unknown"),
        Some(PoolState::Destroyed) => Some("destroyed"),
        Some(PoolState::Active | PoolState::Exported) => None,
    };
    let is_member = |slot: usize| {
        superblock.is_none_or(|s| {
            s.members
                .get(slot)
                .is_some_and(|m| ![MemberState::Spare, MemberState::Removed].contains(&m.state))
        })
    };
    let is_used = |slot: usize| {
        superblock.is_none_or(|s| {
            s.members
                .get(slot)
                .is_some_and(|m| m.state != MemberState::Absent)
        })
    };
    let here: Vec<usize> = found
        .members
        .iter()
        .map(|member| member.slot.index())
        .filter(|slot| is_member(*slot) && is_used(*slot))
        .collect();
    let wanted: Vec<usize> = superblock.map_or_else(
        || here.clone(),
        |s| {
            (0..s.members.len())
                .filter(|slot| is_member(*slot))
                .collect()
        },
    );
    let missing: Vec<&usize> = wanted.iter().filter(|slot| !here.contains(slot)).collect();
    json!({
        "name": found.name, "pool": found.pool, "served": false, "state": state, "redundancy": superblock.map_or("?", |s| s.redundancy.name()),
        "members": wanted.len(), "members_found": here.len(), "missing": missing,
        "paths": found.members.iter().map(|member| member.path.to_string_lossy()).collect::<Vec<_>>(),
    })
}

/// State, size and use, as in `pool status` of a pool at rest.
fn look_inside(found: &FoundPool, registry: &Registry, place: &PoolPlace, row: &mut Value) {
    match context::look_at_rest(found, registry, place) {
        Ok(report) => {
            for (name, value) in [
                ("state", json!(report.state)),
                ("usable_bytes", json!(report.capacity.usable_bytes)),
                ("used_bytes", json!(report.capacity.used_bytes)),
            ] {
                row[name] = value;
            }
        }
        Err(failure) => {
            row["state"] = match failure.id.as_str() {
                id::POOL_MEMBERS | id::POOL_DAMAGED | id::POOL_JOURNAL => "stopped".into(),
                id::POOL_FOREIGN => "foreign".into(),
                id::POOL_NEWER => "newer".into(),
                _ => "unknown".into(),
            };
            row["error"] = json!(failure);
        }
    }
}

/// A pool that is served.
fn of_report(report: &PoolReport) -> Value {
    let members = || {
        report
            .members
            .iter()
            .filter(|member| !["spare", "removed"].contains(&member.state.as_str()))
    };
    let missing: Vec<u8> = members()
        .filter(|member| ["missing", "faulted", "offline"].contains(&member.state.as_str()))
        .map(|member| member.member)
        .collect();
    json!({
        "name": report.name, "pool": report.pool, "served": true, "state": report.state, "redundancy": report.redundancy,
        "usable_bytes": report.capacity.usable_bytes, "used_bytes": report.capacity.used_bytes,
        "members": members().count(), "members_found": members().count() - missing.len(), "missing": missing,
        "paths": report.members.iter().filter(|member| member.state != "removed" && !member.path.is_empty()).map(|member| &member.path).collect::<Vec<_>>(),
    })
}

fn render(rows: &[Value]) -> String {
    let mut table = Table::new(&[
        "POOL",
        "STATE",
        "SERVED",
        "SIZE",
        "USED",
        "REDUNDANCY",
        "MEMBERS",
        "IDENTIFIER",
    ]);
    for row in rows {
        let text = |field: &str| row[field].as_str().unwrap_or_default().to_owned();
        let size = |field: &str| {
            row[field]
                .as_u64()
                .map_or_else(|| "-".to_owned(), |bytes| Size(bytes).to_string())
        };
        let served = if row["served"] == true { "yes" } else { "no" };
        let members = if row["members"].is_null() {
            "-".to_owned()
        } else {
            format!("{}/{}", row["members_found"], row["members"])
        };
        let (state, redundancy) = (text("state"), text("redundancy"));
        table.row([
            text("name"),
            state,
            served.to_owned(),
            size("usable_bytes"),
            size("used_bytes"),
            redundancy,
            members,
            text("pool"),
        ]);
    }
    table.render()
}

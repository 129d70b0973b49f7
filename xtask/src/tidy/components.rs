//! Floors and ownership inside the engine: no arrow goes up, and no module assigns what another
//! component owns.
//!
//! Each part of the engine has a home, the module that owns its type. A module outside of it may
//! call the verbs of the component and must not assign its fields. `counters` has no home: it is a
//! record of what happened, and each component adds to it.

use super::{Findings, Tree};
use crate::source;

/// Floors of the engine, from the ground up, with the modules on each. A module may name those of
/// its own floor and of lower ones. `recover` builds an engine, so it is above it.
const FLOORS: &[&str] = &[
    "base", "api", "store", "path", "upkeep", "engine", "recover",
];

/// Parts of the engine with the modules that own each: its state, and its steps.
const HOMES: &[(&str, &[&str])] = &[
    ("members", &["member", "membership"]),
    ("superblock_writer", &["member"]),
    ("exchanges", &["member", "membership"]),
    ("scheduler", &["member"]),
    ("segments", &["segment"]),
    ("volumes", &["volume"]),
    ("pending", &["pending"]),
    ("lsns", &["lsn"]),
    ("streams", &["stream"]),
    ("admission", &["write"]),
    ("ranges", &["ranges"]),
    ("shared", &["dedup"]),
    ("fetches", &["fetch"]),
    ("splits", &["fetch"]),
    ("user_reads", &["read"]),
    ("flush", &["flush"]),
    ("journal", &["journal"]),
    ("cleaner", &["clean", "cleaning"]),
    ("ledger", &["reserve"]),
    ("control", &["control"]),
    ("commands", &["commands", "control"]),
    ("reduction", &["reduction"]),
    ("verifications", &["verification"]),
    ("users", &["background"]),
    ("slow", &["hedge"]),
    ("stages", &["stages"]),
    ("wall", &["background"]),
    ("reshape", &["reshape"]),
    ("policy", &["policy"]),
    ("warmth", &["warm"]),
    ("survey", &["survey"]),
    ("rebuild", &["rebuild"]),
    ("checkpoint", &["checkpoint", "checkpointing"]),
    ("damage", &["damage"]),
];

/// What may stand before a component: the floors, and components that hold others.
const HOLDERS: &[&str] = &[
    "self",
    "core",
    "store",
    "paths",
    "upkeep",
    "engine",
    "drives",
    "log",
    "space",
    "durability",
    "reads",
    "integrity",
    "admin",
    "observe",
    "admission",
];

const FOLDER: &str = "crates/engine/src/";

/// Applies the rules.
pub fn check(tree: &Tree, findings: &mut Findings) {
    for (path, text) in tree.with_extension("rs") {
        let Some(inside) = path.strip_prefix(FOLDER) else {
            continue;
        };
        let mut parts = inside.split(['/', '.']);
        let floor = parts.next().unwrap_or_default();
        let module = parts.next().unwrap_or_default();
        let code = source::split(text).code;
        check_floor(path, floor, &code, findings);
        // Recovery builds the components, and its own state has fields of the same names.
        if floor == "recover" || inside.ends_with("tests.rs") {
            continue;
        }
        for (field, homes) in HOMES.iter().filter(|(_, homes)| !homes.contains(&module)) {
            for at in assignments(&code, field) {
                let message = format!(
                    "`{field}` belongs to `{}`: give that a verb, and call it from `{module}`",
                    homes[0]
                );
                findings.error("owner", path, source::line_of(&code, at), message);
            }
        }
    }
}

/// No module names one of a higher floor.
fn check_floor(path: &str, floor: &str, code: &str, findings: &mut Findings) {
    let Some(own) = FLOORS.iter().position(|name| *name == floor) else {
        return;
    };
    for at in source::words(code, "crate") {
        let Some(rest) = code[at + "crate".len()..].strip_prefix("::") else {
            continue;
        };
        let end = rest.find(|c: char| c != '_' && !c.is_alphanumeric());
        let named = &rest[..end.unwrap_or(rest.len())];
        let line = source::line_of(code, at);
        match FLOORS.iter().position(|name| *name == named) {
            Some(other) if other <= own => {}
            Some(_) => {
                let message = format!(
                    "`{floor}` is below `{named}`: return a result, and let the caller act on it"
                );
                findings.error("floor", path, line, message);
            }
            None => {
                let message = "name the floor: `crate::store::...`, not what the root exports";
                findings.error("floor", path, line, message.to_owned());
            }
        }
    }
}

/// Positions at which `holder.field.inner = ...` or a compound assignment stands.
fn assignments<'a>(code: &'a str, field: &'a str) -> impl Iterator<Item = usize> + 'a {
    source::words(code, field).filter(move |at| {
        let receiver = code[..*at].trim_end();
        let Some(receiver) = receiver.strip_suffix('.') else {
            return false;
        };
        is_engine(receiver.trim_end()) && is_assigned(&code[at + field.len()..])
    })
}

/// True if the text ends with a path of floors and components.
fn is_engine(receiver: &str) -> bool {
    let name = receiver.trim_end_matches(|c: char| c == '_' || c.is_alphanumeric());
    let is_holder = HOLDERS.contains(&&receiver[name.len()..]);
    is_holder
        && name
            .trim_end()
            .strip_suffix('.')
            .is_none_or(|of| is_engine(of.trim_end()))
}

/// True if a path of fields and indices follows, one field at least, and then an assignment.
fn is_assigned(mut rest: &str) -> bool {
    let mut fields = 0;
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix('.') {
            let after = after.trim_start();
            let end = after.find(|c: char| c != '_' && !c.is_alphanumeric());
            rest = &after[end.unwrap_or(after.len())..];
            fields += 1;
        } else if rest.starts_with('[') {
            let Some(end) = rest.find(']') else {
                return false;
            };
            rest = &rest[end + 1..];
        } else {
            break;
        }
    }
    let operators = ["+=", "-=", "|=", "&=", "*=", "<<=", ">>="];
    let is_plain = rest.starts_with('=') && !rest.starts_with("==") && !rest.starts_with("=>");
    fields > 0 && (is_plain || operators.iter().any(|operator| rest.starts_with(operator)))
}

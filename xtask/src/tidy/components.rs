//! Ownership inside the engine: no module assigns what another component owns.
//!
//! Each part of the engine has a home, the module that owns its type. A module outside of it may
//! call the verbs of the component and must not assign its fields. `counters` has no home: it is a
//! record of what happened, and each component adds to it.

use super::{Findings, Tree};
use crate::source;

/// Parts of the engine with the module that owns each.
const HOMES: &[(&str, &str)] = &[
    ("members", "member"),
    ("superblock_writer", "member"),
    ("exchanges", "member"),
    ("scheduler", "member"),
    ("segments", "segment"),
    ("volumes", "volume"),
    ("pending", "pending"),
    ("lsns", "lsn"),
    ("streams", "stream"),
    ("admission", "write"),
    ("ranges", "ranges"),
    ("shared", "dedup"),
    ("fetches", "fetch"),
    ("splits", "fetch"),
    ("flush", "flush"),
    ("journal", "journal"),
    ("cleaner", "clean"),
    ("ledger", "reserve"),
    ("control", "control"),
    ("reduction", "reduction"),
    ("verifications", "verification"),
    ("users", "background"),
    ("slow", "hedge"),
    ("stages", "stages"),
    ("wall", "background"),
    ("reshape", "reshape"),
    ("policy", "policy"),
    ("warmth", "warm"),
    ("survey", "survey"),
    ("rebuild", "rebuild"),
    ("checkpoint", "checkpoint"),
];

/// Fields of `Engine` that hold these.
const COMPONENTS: &[&str] = &[
    "drives",
    "map",
    "log",
    "space",
    "durability",
    "reads",
    "integrity",
    "admin",
    "observe",
];

const FOLDER: &str = "crates/engine/src/";

/// Applies the rule.
pub fn check(tree: &Tree, findings: &mut Findings) {
    for (path, text) in tree.with_extension("rs") {
        let Some(inside) = path.strip_prefix(FOLDER) else {
            continue;
        };
        // Recovery builds the components, and its own state has fields of the same names.
        let module = inside.split(['/', '.']).next().unwrap_or_default();
        if module == "recover" || inside.ends_with("tests.rs") {
            continue;
        }
        let code = source::split(text).code;
        for (field, home) in HOMES.iter().filter(|(_, home)| *home != module) {
            for at in assignments(&code, field) {
                let message = format!(
                    "`{field}` belongs to `{home}`: give that a verb, and call it from `{module}`"
                );
                findings.error("owner", path, source::line_of(&code, at), message);
            }
        }
    }
}

/// Positions at which `self.field.inner = ...` or a compound assignment stands.
fn assignments<'a>(code: &'a str, field: &'a str) -> impl Iterator<Item = usize> + 'a {
    source::words(code, field).filter(move |at| {
        let receiver = code[..*at].trim_end();
        let Some(receiver) = receiver.strip_suffix('.') else {
            return false;
        };
        is_engine(receiver.trim_end()) && is_assigned(&code[at + field.len()..])
    })
}

/// True if the text ends with `self`, or with a component of the engine.
fn is_engine(receiver: &str) -> bool {
    let name = receiver.trim_end_matches(|c: char| c == '_' || c.is_alphanumeric());
    let is_component = COMPONENTS.contains(&&receiver[name.len()..]);
    let outer = name.trim_end().strip_suffix('.').map(str::trim_end);
    receiver.ends_with("self") || (is_component && outer.is_some_and(|of| of.ends_with("self")))
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

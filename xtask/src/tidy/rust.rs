//! Rules for Rust source.

use super::{Findings, Tree, sizes};
use crate::source::{self, Views};

/// Crates that may contain `unsafe`.
const UNSAFE_ALLOWED: &[&str] = &["io", "parity", "device", "ublk", "vhost"];

/// Crates whose results depend only on their inputs: the engine, because the simulator replays it,
/// and its dependencies.
const PURE: &[&str] = &[
    "engine",
    "format",
    "geometry",
    "policy",
    "parity",
    "reduction",
    "types",
    "plan",
    "trace",
];

/// Names forbidden in pure crates, with the reason. A path covers everything below it.
const IMPURE: &[(&str, &str)] = &[
    ("std::fs", "files are the driver's"),
    ("std::net", "sockets are the driver's"),
    ("std::env", "the environment is no input"),
    ("std::process", "processes are the driver's"),
    ("std::thread", "threads are the driver's"),
    ("std::time::Instant", "time comes in events"),
    ("std::time::SystemTime", "time comes in events"),
    ("std::time::*", "names a clock"),
    (
        "std::collections::HashMap",
        "its order is random; use one with a fixed hasher or a BTreeMap",
    ),
    (
        "std::collections::HashSet",
        "its order is random; use one with a fixed hasher or a BTreeSet",
    ),
    ("std::hash::RandomState", "randomness is no input"),
    ("std::collections::hash_map", "its order is random"),
];

/// Modules of the standard library that lead to an impure name through a shorter path.
const IMPURE_MODULES: &[&str] = &["std::time", "std::collections", "std::collections::*"];

/// Applies the rules to all Rust files.
pub fn check(tree: &Tree, findings: &mut Findings) {
    for (path, text) in tree.with_extension("rs") {
        let views = source::split(text);
        let home = Home::of(path);
        unsafe_code(path, &home, &views, findings);
        leftovers(path, &views, findings);
        if !home.test {
            sizes::check(path, text, &views, findings);
        }
        if PURE.contains(&home.krate) && home.in_src && !home.test {
            purity(path, &views, findings);
        }
    }
}

/// Location of a file in the workspace.
struct Home<'a> {
    krate: &'a str,
    in_src: bool,
    test: bool,
}

impl<'a> Home<'a> {
    fn of(path: &'a str) -> Self {
        let parts: Vec<&str> = path.split('/').collect();
        let (krate, inside) = match parts.as_slice() {
            ["crates" | "tools", krate, inside @ ..] => (*krate, inside),
            [first, inside @ ..] => (*first, inside),
            [] => ("", &[][..]),
        };
        let file = inside.last().copied().unwrap_or_default();
        let test = inside.contains(&"tests") || file == "tests.rs" || file.ends_with("_tests.rs");
        Self {
            krate,
            in_src: inside.first() == Some(&"src"),
            test,
        }
    }
}

fn unsafe_code(path: &str, home: &Home<'_>, views: &Views, findings: &mut Findings) {
    if UNSAFE_ALLOWED.contains(&home.krate) {
        return;
    }
    for at in source::words(&views.code, "unsafe") {
        let line = source::line_of(&views.code, at);
        findings.error(
            "unsafe",
            path,
            line,
            format!("`unsafe` is for {} only", UNSAFE_ALLOWED.join(", ")),
        );
    }
}

fn leftovers(path: &str, views: &Views, findings: &mut Findings) {
    for word in ["todo", "unimplemented", "dbg"] {
        for at in source::words(&views.code, word)
            .filter(|at| views.code[at + word.len()..].starts_with('!'))
        {
            findings.error(
                "unfinished",
                path,
                source::line_of(&views.code, at),
                format!("`{word}!` in code"),
            );
        }
    }
    for word in ["FIXME", "TODO", "XXX"] {
        for at in source::words(&views.comments, word) {
            findings.error(
                "unfinished",
                path,
                source::line_of(&views.comments, at),
                format!("`{word}` in a comment: do it, or file an issue"),
            );
        }
    }
}

fn purity(path: &str, views: &Views, findings: &mut Findings) {
    for (at, used) in source::std_paths(&views.code) {
        let names = |impure: &str| {
            used == impure
                || used
                    .strip_prefix(impure)
                    .is_some_and(|rest| rest.starts_with("::"))
        };
        let line = source::line_of(&views.code, at);
        if let Some((impure, why)) = IMPURE.iter().find(|(impure, _)| names(impure)) {
            findings.error(
                "purity",
                path,
                line,
                format!("`{impure}` in a pure crate: {why}"),
            );
        } else if IMPURE_MODULES.contains(&used.as_str()) {
            findings.error(
                "purity",
                path,
                line,
                format!("`{used}` in a pure crate hides what is used of it; name the item"),
            );
        }
    }
    for name in ["rand", "getrandom", "fastrand"] {
        for at in source::words(&views.code, name)
            .filter(|at| views.code[at + name.len()..].starts_with("::"))
        {
            findings.error(
                "purity",
                path,
                source::line_of(&views.code, at),
                format!("`{name}` in a pure crate: randomness is no input"),
            );
        }
    }
}

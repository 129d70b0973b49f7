//! Rules for external packages and for manifests.

use super::{Findings, Tree, arrows};
use crate::metadata::Metadata;
use std::collections::BTreeSet;

const DOCUMENT: &str = "docs/dependencies.md";

/// Limit of external packages of the engine, counted with their dependencies, including macros and
/// the four that build the zstd library.
pub(super) const ENGINE_MOST: usize = 38;

/// Limit of external packages that `windrow` links without its optional features.
const PRODUCT_MOST: usize = 80;

/// Licences compatible with Apache-2.0 OR MIT without duties other than keeping their text.
const LICENCES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Applies the rules.
pub fn check(tree: &Tree, metadata: &Metadata, findings: &mut Findings) {
    documented(tree, metadata, findings);
    licences(metadata, findings);
    engine(metadata, findings);
    manifests(tree, metadata, findings);
}

/// Checks that direct dependencies and the lines of the document are the same set.
fn documented(tree: &Tree, metadata: &Metadata, findings: &mut Findings) {
    let direct: BTreeSet<&str> = metadata
        .members
        .iter()
        .flat_map(|package| &package.dependencies)
        .filter(|dependency| !dependency.ours)
        .map(|dependency| dependency.name.as_str())
        .collect();
    let Some(text) = tree.text(DOCUMENT) else {
        return findings.error("dependencies", DOCUMENT, 0, "the document is missing");
    };
    let lines: BTreeSet<&str> = text.lines().filter_map(table_name).collect();
    for name in direct.difference(&lines) {
        findings.error(
            "dependencies",
            DOCUMENT,
            0,
            format!("`{name}` is a direct dependency without a line that gives the reason"),
        );
    }
    for name in lines.difference(&direct) {
        findings.error(
            "dependencies",
            DOCUMENT,
            0,
            format!("`{name}` has a line but is no direct dependency"),
        );
    }
}

/// Name in a table line that begins with "| `name` |".
fn table_name(line: &str) -> Option<&str> {
    line.strip_prefix("| `")?
        .split_once("` |")
        .map(|(name, _)| name)
}

fn licences(metadata: &Metadata, findings: &mut Findings) {
    for package in &metadata.external {
        if !licence_fits(&package.license) {
            findings.error(
                "licences",
                "Cargo.lock",
                0,
                format!(
                    "`{}` has the licence `{}`, which is not on the list",
                    package.name, package.license
                ),
            );
        }
    }
}

/// True if one of the alternatives of a licence expression consists of licences on the list.
pub fn licence_fits(expression: &str) -> bool {
    // Deep nesting does not occur in practice. Without its parentheses an expression may be refused
    // wrongly, but `A AND (B OR C)` read as `A AND B OR C` could be accepted wrongly. A mixture of
    // both is therefore accepted only if all of it is on the list.
    let plain = expression.replace(['(', ')'], " ").replace('/', " OR ");
    let on_list =
        |name: &str| LICENCES.contains(&name.split(" WITH ").next().unwrap_or_default().trim());
    let names = || plain.split(" OR ").flat_map(|part| part.split(" AND "));
    let mixed = expression.contains('(') && plain.contains(" AND ") && plain.contains(" OR ");
    if mixed {
        names().all(on_list)
    } else {
        plain
            .split(" OR ")
            .any(|part| part.split(" AND ").all(on_list))
    }
}

fn engine(metadata: &Metadata, findings: &mut Findings) {
    let needs = metadata.external_closure("windrow-engine");
    if needs.len() > ENGINE_MOST {
        let list = needs
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(", ");
        findings.error(
            "engine-dependencies",
            &arrows::manifest("engine"),
            0,
            format!(
                "{} packages from outside, at most {ENGINE_MOST}: {list}",
                needs.len()
            ),
        );
    }
}

/// Counts the external packages in the output of `cargo tree` for `windrow` without its optional
/// features: names, versions, and our own paths.
pub fn product(tree: &str, findings: &mut Findings) {
    let is_outside = |line: &&str| !line.is_empty() && !line.starts_with("windrow");
    let names: BTreeSet<&str> = tree
        .lines()
        .map(|line| line.trim_end_matches(" (*)"))
        .filter(is_outside)
        .collect();
    if names.len() > PRODUCT_MOST {
        let list = names.iter().copied().collect::<Vec<_>>().join(", ");
        let message = format!(
            "{} packages from outside without default features, at most {PRODUCT_MOST}: {list}",
            names.len()
        );
        findings.error("product-dependencies", &arrows::manifest("cli"), 0, message);
    }
}

/// Checks that every crate uses the lints of the workspace.
fn manifests(tree: &Tree, metadata: &Metadata, findings: &mut Findings) {
    for package in &metadata.members {
        let path = arrows::manifest(arrows::short(&package.name));
        let text = tree.text(&path).unwrap_or_default();
        let inherits = text.split_once("[lints]").is_some_and(|(_, rest)| {
            rest.lines().map(str::trim).find(|line| !line.is_empty()) == Some("workspace = true")
        });
        if !inherits {
            findings.error("lints", &path, 0, "the crate does not take the lints of the workspace (`[lints]`, `workspace = true`)");
        }
    }
}

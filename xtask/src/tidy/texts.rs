//! Rules for documents and for files in general.

use super::{Findings, Tree, commands};
use std::collections::{BTreeMap, BTreeSet};

/// Largest binary file in the tree, in bytes.
const BINARY_BYTES_MOST: usize = 1 << 20;

/// Folders that exist on one machine only. Split in two parts, or this file would break its own
/// rule.
const MACHINE_FOLDERS: &[&str] = &[
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/wo", "rk/"),
];

/// Page that explains error ids.
const ERRORS: &str = "docs/reference/errors.md";

/// Cargo's own commands that documents may show.
const CARGO_COMMANDS: &[&str] = &[
    "add", "bench", "build", "check", "clippy", "doc", "fmt", "install", "run", "test", "tree",
    "update", "xtask",
];

/// Applies the rules.
pub fn check(tree: &Tree, findings: &mut Findings) {
    files(tree, findings);
    changelog(tree, findings);
    error_ids(tree, findings);
    let anchors: BTreeMap<&str, BTreeSet<String>> = tree
        .with_extension("md")
        .map(|(path, text)| (path, anchors(text)))
        .collect();
    for (path, text) in tree.with_extension("md") {
        links(tree, path, text, &anchors, findings);
        cargo_commands(path, text, findings);
    }
}

/// Suffixes of files that a run leaves.
const LEFTOVERS: [&str; 5] = [".log", ".err", ".out", ".pid", ".tmp"];

fn files(tree: &Tree, findings: &mut Findings) {
    for file in &tree.files {
        if LEFTOVERS.iter().any(|ending| file.path.ends_with(ending)) {
            findings.error("leftover", &file.path, 0, "left behind by a run: remove it");
        }
        let Some(text) = file.text() else {
            if file.bytes.len() > BINARY_BYTES_MOST {
                findings.error(
                    "binary",
                    &file.path,
                    0,
                    format!("{} bytes, at most {BINARY_BYTES_MOST}", file.bytes.len()),
                );
            }
            continue;
        };
        for (index, line) in text.lines().enumerate() {
            if line.starts_with("<<<<<<< ") || line.starts_with(">>>>>>> ") {
                findings.error(
                    "conflict",
                    &file.path,
                    index + 1,
                    "a merge was not settled here",
                );
            }
            for folder in MACHINE_FOLDERS {
                // Inside a longer path or an address the same letters mean something else.
                let absolute = |at: usize| {
                    !line[..at].ends_with(|c: char| {
                        c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | '}' | '>' | '~')
                    })
                };
                if line.match_indices(folder).any(|(at, _)| absolute(at)) {
                    findings.error(
                        "machine-path",
                        &file.path,
                        index + 1,
                        format!("`{folder}` exists on some machines only"),
                    );
                }
            }
        }
    }
}

fn changelog(tree: &Tree, findings: &mut Findings) {
    let text = tree.text("CHANGELOG.md").unwrap_or_default();
    let is_section = |line: &str| {
        let title = line
            .strip_prefix("## [")
            .or_else(|| line.strip_prefix("## "));
        title.is_some_and(|title| {
            title.starts_with("Unreleased") || title.starts_with(|c: char| c.is_ascii_digit())
        })
    };
    if !text.lines().any(is_section) {
        findings.error(
            "changelog",
            "CHANGELOG.md",
            0,
            "there is no section `Unreleased` and none of a version",
        );
    }
}

/// Error ids are an interface: each one in the code has a line in the reference, and the reference
/// lists no others.
fn error_ids(tree: &Tree, findings: &mut Findings) {
    let in_code: BTreeSet<&str> = tree
        .with_extension("rs")
        .filter(|(path, _)| path.starts_with("crates/") || path.starts_with("tools/"))
        .flat_map(|(_, text)| ids(text))
        .collect();
    let documented: BTreeSet<&str> = tree.text(ERRORS).map(ids).into_iter().flatten().collect();
    for id in in_code.difference(&documented) {
        findings.error(
            "error-ids",
            ERRORS,
            0,
            format!("`{id}` is used in the code and not explained"),
        );
    }
    for id in documented.difference(&in_code) {
        findings.error(
            "error-ids",
            ERRORS,
            0,
            format!("`{id}` is explained and not used in the code"),
        );
    }
}

/// Everything of the form `WR-AREA-123`.
fn ids(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("WR-").filter_map(|(at, _)| {
        let area = text[at + 3..]
            .bytes()
            .take_while(u8::is_ascii_uppercase)
            .count();
        let id = text.get(at..at + 3 + area + 4)?;
        let number = id[3 + area..].strip_prefix('-')?;
        (area > 0 && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(id)
    })
}

fn links(
    tree: &Tree,
    path: &str,
    text: &str,
    anchors: &BTreeMap<&str, BTreeSet<String>>,
    findings: &mut Findings,
) {
    for (line, target) in targets(text) {
        let outside = target.contains("://") || target.starts_with("mailto:");
        if outside || target.is_empty() {
            continue;
        }
        let (file, anchor) = target.split_once('#').unwrap_or((target.as_str(), ""));
        let Some(resolved) = (if file.is_empty() {
            Some(path.to_owned())
        } else {
            resolve(path, file)
        }) else {
            findings.error(
                "links",
                path,
                line,
                format!("`{target}` leads out of the tree"),
            );
            continue;
        };
        if !tree.exists(&resolved) {
            findings.error("links", path, line, format!("`{target}` does not exist"));
        } else if !anchor.is_empty()
            && anchors
                .get(resolved.as_str())
                .is_some_and(|known| !known.contains(anchor))
        {
            findings.error(
                "links",
                path,
                line,
                format!("`{target}`: the document has no such heading"),
            );
        }
    }
}

/// Targets of inline links and of reference definitions, outside code, with their lines.
fn targets(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (index, line) in prose(text) {
        // Every second part between backquotes is code.
        let line: String = line.split('`').step_by(2).collect::<Vec<_>>().join("``");
        for (at, _) in line.match_indices("](") {
            let target = line[at + 2..].split([')', ' ']).next().unwrap_or_default();
            found.push((index, target.trim_matches(['<', '>']).to_owned()));
        }
        if let Some((_, target)) = line
            .strip_prefix('[')
            .and_then(|rest| rest.split_once("]: "))
        {
            found.push((
                index,
                target.split(' ').next().unwrap_or_default().to_owned(),
            ));
        }
    }
    found
}

/// Lines outside fenced blocks, numbered from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((index + 1, line))
    })
}

/// Anchors of a document's headings, as the usual renderers generate them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut found = BTreeSet::new();
    for (_, line) in prose(text) {
        let level = line.chars().take_while(|&c| c == '#').count();
        if !(1..=6).contains(&level) || !line[level..].starts_with(' ') {
            continue;
        }
        let kept = line[level..]
            .trim()
            .to_lowercase()
            .chars()
            .filter(|&c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .collect::<String>();
        let anchor = kept.replace(' ', "-");
        let count = counts.entry(anchor.clone()).or_default();
        found.insert(if *count == 0 {
            anchor
        } else {
            format!("{anchor}-{count}")
        });
        *count += 1;
    }
    found
}

/// Path from the root of a link `target` in the file `from`; `None` if it leads out of the tree.
fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Checks that `cargo` and `cargo xtask` are followed by existing names. Arguments of `windrow` are
/// checked by `test`, which runs it.
fn cargo_commands(path: &str, text: &str, findings: &mut Findings) {
    for shown in commands::shown(text) {
        let words: Vec<&str> = shown
            .words
            .iter()
            .map(String::as_str)
            .filter(|word| !word.starts_with('+'))
            .collect();
        match words.as_slice() {
            ["cargo", "xtask", task, ..] if !crate::TASKS.iter().any(|(name, _)| name == task) => {
                findings.error(
                    "commands",
                    path,
                    shown.line,
                    format!("there is no task `cargo xtask {task}`"),
                );
            }
            ["cargo", command, ..] if !CARGO_COMMANDS.contains(command) => {
                findings.error(
                    "commands",
                    path,
                    shown.line,
                    format!("`cargo {command}` is not on the list of commands known here"),
                );
            }
            _ => {}
        }
    }
}

//! Words that hide who acts or what is meant. Each has a plain term of the field instead.

use super::{Findings, Tree};

/// Word, or words in a row, and what to write for it. A letter or digit beside it makes another
/// word of it.
const BANNED: &[(&str, &str)] = &[
    (concat!("no", "body"), "name the actor"),
    (concat!("some", "body"), "name the actor"),
    (concat!("who", "ever"), "name the actor"),
    (concat!("so ", "many"), "N, at most N, the number of"),
    (concat!("a", "new"), "again, rewritten, re-read"),
    (concat!("can ", "not"), "cannot"),
    (
        concat!("can be ", "had"),
        "available, readable, recoverable",
    ),
    (
        concat!("cannot be ", "had"),
        "unavailable, unreadable, unrecoverable",
    ),
    (concat!("on ", "record"), "recorded"),
    (concat!("for want ", "of"), "because there is no"),
    (concat!("reck", "on"), "compute, count, allow for"),
    (concat!("reck", "ons"), "computes, counts, allows for"),
    (concat!("reck", "oned"), "computed, counted, allowed for"),
    (concat!("in ", "vain"), "without progress"),
    (concat!("lagg", "ards"), "slow members"),
    (concat!("lim", "bo"), "unresolved"),
    (concat!("fore", "told"), "predicted"),
    (concat!("ail", "ing"), "failing"),
    (concat!("former ", "life"), "previous incarnation"),
];

/// Applies the rule to source and documents.
pub fn check(tree: &Tree, findings: &mut Findings) {
    for file in &tree.files {
        let is_text = [".rs", ".md", ".toml"]
            .iter()
            .any(|end| file.path.ends_with(end));
        let Some(text) = file.text().filter(|_| is_text) else {
            continue;
        };
        for (index, line) in text.lines().enumerate() {
            let line = line.to_ascii_lowercase();
            for (word, instead) in BANNED.iter().filter(|(word, _)| has(&line, word)) {
                let message = format!("`{word}`: write {instead}");
                findings.error("words", &file.path, index + 1, message);
            }
        }
    }
}

/// True if the words stand in the line by themselves. An underscore ends a word: names count too.
fn has(line: &str, words: &str) -> bool {
    let is_part = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    line.match_indices(words).any(|(at, found)| {
        !is_part(line[..at].chars().next_back())
            && !is_part(line[at + found.len()..].chars().next())
    })
}

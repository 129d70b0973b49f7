//! Commands in documents: lines of fenced blocks.

use std::iter::Peekable;
use std::str::Chars;

/// Programs of the workspace, each the only one of the package of its name.
pub const PROGRAMS: [&str; 3] = ["windrow", "windrow-lab", "windrow-bench"];

/// A command line in a document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shown {
    /// Line on which it begins, from 1.
    pub line: usize,
    /// Its words, without quotes, up to the first pipe, redirection, comment or separator.
    pub words: Vec<String>,
}

impl Shown {
    /// Workspace program that the line runs, directly, through `cargo run` or through
    /// `cargo xtask bench`, and its arguments.
    pub fn program(&self) -> Option<(&'static str, &[String])> {
        let words = self.words.as_slice();
        // A preceding `sudo` or environment settings do not change the program.
        let skip = words
            .iter()
            .take_while(|word| *word == "sudo" || word.contains('='))
            .count();
        let of = |name: &str| PROGRAMS.into_iter().find(|program| *program == name);
        match &words[skip..] {
            [cargo, xtask, bench, rest @ ..]
                if cargo == "cargo" && xtask == "xtask" && bench == "bench" =>
            {
                Some(("windrow-bench", rest))
            }
            [cargo, run, rest @ ..] if cargo == "cargo" && run == "run" => {
                let at = rest.iter().position(|word| word == "--")?;
                let package = rest[..at]
                    .iter()
                    .skip_while(|word| !["-p", "--package"].contains(&word.as_str()))
                    .nth(1);
                Some((
                    package.map_or(Some("windrow"), |name| of(name))?,
                    &rest[at + 1..],
                ))
            }
            [program, rest @ ..] => Some((of(program)?, rest)),
            [] => None,
        }
    }
}

/// Command lines of all fenced blocks of a Markdown text. A leading `$ ` is dropped, lines that end
/// in `\` are joined.
pub fn shown(text: &str) -> Vec<Shown> {
    let mut found = Vec::new();
    let mut fenced = false;
    let mut pending: Option<(usize, String)> = None;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            pending = None;
            continue;
        }
        if !fenced {
            continue;
        }
        let (start, mut whole) = pending.take().unwrap_or((index + 1, String::new()));
        let part = line.trim().strip_prefix("$ ").unwrap_or(line.trim());
        match part.strip_suffix('\\') {
            Some(part) => {
                whole.push_str(part);
                pending = Some((start, whole));
            }
            None => {
                whole.push_str(part);
                found.push(Shown {
                    line: start,
                    words: split(&whole),
                });
            }
        }
    }
    found.retain(|shown| !shown.words.is_empty());
    found
}

fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut chars = line.chars().peekable();
    loop {
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        match chars.peek() {
            None | Some('#' | '|' | '>' | '<' | '&' | ';') => return words,
            Some(_) => {}
        }
        let word = next_word(&mut chars);
        // The number of a redirection, as in `2>file`, is not an argument.
        if chars.peek() == Some(&'>') && word.chars().all(|c| c.is_ascii_digit()) {
            return words;
        }
        words.push(word);
    }
}

fn next_word(chars: &mut Peekable<Chars<'_>>) -> String {
    let mut word = String::new();
    while let Some(&c) = chars.peek() {
        match c {
            '\'' | '"' => {
                chars.next();
                word.extend(chars.by_ref().take_while(|&inner| inner != c));
            }
            c if c.is_whitespace() || matches!(c, '|' | '>' | '<' | '&' | ';') => break,
            c => {
                word.push(c);
                chars.next();
            }
        }
    }
    word
}

//! Rules of the code base that a machine can check.
//!
//! 1. `arrows`: crates depend only on what the table in [`arrows`] allows.
//! 2. `rust`: `unsafe` only where it is allowed, pure crates stay pure, no unfinished work;
//!    `sizes`: lengths of files and functions.
//! 3. `dependencies`: every direct dependency is listed with its reason, licences are compatible,
//!    the engine's list stays short.
//! 4. `texts`: links resolve, documented commands exist, error ids are explained, the
//!    changelog has a section, no machine-specific paths, no large binaries.
//!
//! Rules read a [`Tree`] in memory and report [`Finding`]s, so that tests can pass artificial
//! trees. Errors fail the run, warnings are only shown.

pub mod arrows;
pub mod commands;
pub mod components;
pub mod dependencies;
pub mod rust;
pub mod sizes;
pub mod texts;
pub mod tour;
pub mod words;

use crate::metadata::Metadata;
use crate::tools;
use std::fmt;
use std::path::Path;

/// A tracked file.
#[derive(Clone, Debug)]
pub struct File {
    /// Path from the root, with `/`.
    pub path: String,
    /// Content.
    pub bytes: Vec<u8>,
}

impl File {
    /// The content as text; `None` for binary files.
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.bytes)
            .ok()
            .filter(|text| !text.contains('\0'))
    }
}

/// All files that are or would be tracked.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// The files, sorted by path.
    pub files: Vec<File>,
}

impl Tree {
    /// Reads the files that git tracks and those it would add, except ignored ones.
    pub fn load(root: &Path) -> Result<Self, String> {
        let mut command = tools::program(root, "git");
        command.args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ]);
        let list = tools::output(command)?;
        let mut paths: Vec<&str> = list.split('\0').filter(|path| !path.is_empty()).collect();
        paths.sort_unstable();
        paths.dedup();
        // A tracked file that was deleted in the work tree cannot be read; it is not part of what
        // would be committed.
        let read = |path: &&str| {
            std::fs::read(root.join(path)).ok().map(|bytes| File {
                path: (*path).to_owned(),
                bytes,
            })
        };
        Ok(Self {
            files: paths.iter().filter_map(read).collect(),
        })
    }

    /// The text of a file.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|file| file.path == path)?.text()
    }

    /// Files whose path ends with `.extension`, with their text.
    pub fn with_extension<'a>(
        &'a self,
        extension: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        let matches = move |path: &str| {
            path.rsplit_once('.')
                .is_some_and(|(_, found)| found == extension)
        };
        self.files
            .iter()
            .filter(move |file| matches(&file.path))
            .filter_map(|file| Some((file.path.as_str(), file.text()?)))
    }

    /// True for a file and for a folder that holds a file.
    pub fn exists(&self, path: &str) -> bool {
        let inside = |file: &File| {
            file.path
                .strip_prefix(path)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        path.is_empty() || self.files.iter().any(inside)
    }
}

/// Severity of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// Shown only.
    Warning,
    /// Fails the run.
    Error,
}

/// A breach of a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Severity.
    pub severity: Severity,
    /// Name of the rule.
    pub rule: &'static str,
    /// File.
    pub path: String,
    /// Line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// Problem and expected state.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        write!(f, "{word}[{}] {}", self.rule, self.path)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}", self.message)
    }
}

/// Collects findings.
#[derive(Debug, Default)]
pub struct Findings {
    /// All findings.
    pub all: Vec<Finding>,
}

impl Findings {
    /// Adds an error.
    pub fn error(
        &mut self,
        rule: &'static str,
        path: &str,
        line: usize,
        message: impl Into<String>,
    ) {
        self.add(Severity::Error, rule, path, line, message.into());
    }

    /// Adds a warning.
    pub fn warn(
        &mut self,
        rule: &'static str,
        path: &str,
        line: usize,
        message: impl Into<String>,
    ) {
        self.add(Severity::Warning, rule, path, line, message.into());
    }

    fn add(
        &mut self,
        severity: Severity,
        rule: &'static str,
        path: &str,
        line: usize,
        message: String,
    ) {
        self.all.push(Finding {
            severity,
            rule,
            path: path.to_owned(),
            line,
            message,
        });
    }

    /// Number of findings of a severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.all
            .iter()
            .filter(|finding| finding.severity == severity)
            .count()
    }
}

/// Applies all rules.
pub fn check(tree: &Tree, metadata: &Metadata) -> Findings {
    let mut findings = Findings::default();
    arrows::check(metadata, &mut findings);
    rust::check(tree, &mut findings);
    components::check(tree, &mut findings);
    dependencies::check(tree, metadata, &mut findings);
    texts::check(tree, &mut findings);
    tour::check(tree, &mut findings);
    words::check(tree, &mut findings);
    findings
}

/// Checks the work tree and prints the findings.
pub fn run(root: &Path) -> Result<(), String> {
    let tree = Tree::load(root)?;
    let mut findings = check(&tree, &Metadata::load(root)?);
    dependencies::product(&product_packages(root)?, &mut findings);
    let mut shown: Vec<&Finding> = findings.all.iter().collect();
    shown.sort_by(|a, b| {
        a.severity
            .cmp(&b.severity)
            .then_with(|| (&a.path, a.line).cmp(&(&b.path, b.line)))
    });
    for finding in shown {
        println!("{finding}");
    }
    let (errors, warnings) = (
        findings.count(Severity::Error),
        findings.count(Severity::Warning),
    );
    println!(
        "tidy: {} files, {errors} errors, {warnings} warnings",
        tree.files.len()
    );
    if errors == 0 {
        Ok(())
    } else {
        Err(format!("tidy found {errors} errors"))
    }
}

/// All packages that `windrow` links without its optional features, one per line.
fn product_packages(root: &Path) -> Result<String, String> {
    let mut command = tools::cargo(root);
    command.args([
        "tree",
        "--locked",
        "--package",
        "windrow",
        "--no-default-features",
        "--edges",
        "normal",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ]);
    tools::output(command)
}

#[cfg(test)]
mod tests;

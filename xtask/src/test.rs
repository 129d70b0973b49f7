//! `test` and `ci`: the steps, cheapest failures first.

use crate::scratch::Scratch;
use crate::steps::{Done, Steps, passed};
use crate::tidy::{self, Tree, commands};
use crate::{fuzz, packages, sim, tools};
use std::path::Path;

/// Environment of the run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// A developer's machine.
    Local,
    /// A fresh clone.
    Ci,
}

/// Names of the steps.
pub const STEPS: &[&str] = &[
    "packages",
    "lock file",
    "format",
    "tidy",
    "clippy",
    "tests",
    "documentation",
    "simulator",
    "fuzzing",
    "documented commands",
    "demo",
    "clean tree",
];

/// Names of the steps of `--quick`.
pub const QUICK_STEPS: &[&str] = &["build", "engine", "end to end", "simulator", "demo"];

const MINUTE_S: u32 = 60;

/// Smoke test of this machine: a build, the core, a pool's lifetime through the command, some
/// seeds, the demonstration. It does not validate a change.
pub fn quick(root: &Path) -> Result<(), String> {
    let _scratch = Scratch::make(&std::env::temp_dir())?;
    let mut steps = Steps::new(&[]);
    steps.step("build", || build_windrow(root).and_then(|_| passed()));
    steps.step("engine", || {
        cargo(
            root,
            &["test", "--quiet", "--package", "windrow-engine", "--lib"],
            20,
        )
    });
    steps.step("end to end", || {
        cargo(
            root,
            &[
                "test",
                "--quiet",
                "--package",
                "windrow",
                "--test",
                "all",
                "life_of_a_pool",
            ],
            20,
        )
    });
    steps.step("simulator", || sim::few(root));
    steps.step("demo", || demo(root));
    println!("{}", steps.table());
    if steps.failed() {
        Err("a step failed".to_owned())
    } else {
        Ok(())
    }
}

/// Runs the steps, prints the table, fails if one failed.
pub fn run(root: &Path, mode: Mode, only: &[String]) -> Result<(), String> {
    if let Some(unknown) = only.iter().find(|name| !STEPS.contains(&name.as_str())) {
        return Err(format!(
            "there is no step `{unknown}`; there are: {}",
            STEPS.join(", ")
        ));
    }
    let before = untracked(root);
    let scratch = Scratch::make(&std::env::temp_dir())?;
    let wanted = |name: &str| mode == Mode::Ci || only.iter().any(|only| only == name);
    let mut steps = Steps::new(only);
    steps.step("packages", || packages::install(root));
    if wanted("lock file") {
        steps.step("lock file", || lock_file(root));
    }
    steps.step("format", || cargo(root, &["fmt", "--all", "--check"], 5));
    steps.step("tidy", || tidy::run(root).and_then(|()| passed()));
    steps.step("clippy", || {
        cargo(
            root,
            &[
                "clippy",
                "--workspace",
                "--all-targets",
                "--quiet",
                "--",
                "-D",
                "warnings",
            ],
            20,
        )?;
        // The command without optional features.
        cargo(
            root,
            &[
                "clippy",
                "--package",
                "windrow",
                "--no-default-features",
                "--bins",
                "--quiet",
                "--",
                "-D",
                "warnings",
            ],
            20,
        )
    });
    steps.step("tests", || {
        cargo(root, &["test", "--workspace", "--no-fail-fast"], 40)
    });
    steps.step("documentation", || documentation(root));
    steps.step("simulator", || sim::step(root));
    steps.step("fuzzing", || fuzz::step(root));
    steps.step("documented commands", || documented_commands(root));
    steps.step("demo", || demo(root));
    if wanted("clean tree") {
        steps.step("clean tree", || clean_tree(&before, &untracked(root)));
    }
    println!("{}", steps.table());
    match scratch.entries() {
        0 => {}
        left => println!("removed from the temporary folder: {left} leftover entries"),
    }
    if steps.failed() {
        Err("a step failed".to_owned())
    } else {
        Ok(())
    }
}

fn documentation(root: &Path) -> Result<Done, String> {
    let mut command = tools::cargo(root);
    command
        .args([
            "doc",
            "--workspace",
            "--exclude",
            "xtask",
            "--no-deps",
            "--quiet",
        ])
        .env("RUSTDOCFLAGS", "-D warnings");
    tools::run(command, 15 * MINUTE_S).and_then(|()| passed())
}

/// Checks that every documented command of a workspace program is valid: the program is called with
/// `--help` added, which makes it check the preceding words and do nothing.
fn documented_commands(root: &Path) -> Result<Done, String> {
    let (tree, programs) = (
        Tree::load(root)?,
        build_programs(root, &commands::PROGRAMS)?,
    );
    let mut wrong = Vec::new();
    let mut count = 0;
    for (path, text) in tree.with_extension("md") {
        for shown in commands::shown(text) {
            let Some((name, arguments)) = shown
                .program()
                .filter(|(_, arguments)| !arguments.iter().any(|argument| argument == "--"))
            else {
                continue;
            };
            let program = programs
                .iter()
                .find(|(built, _)| built == name)
                .map(|(_, path)| path)
                .ok_or_else(|| format!("cargo built no `{name}`"))?;
            count += 1;
            let mut command = tools::program(root, program);
            command.args(arguments).arg("--help");
            if let Err(message) = tools::output(command) {
                wrong.push(format!("{path}:{}: {message}", shown.line));
            }
        }
    }
    wrong.iter().for_each(|message| println!("{message}"));
    if wrong.is_empty() {
        Ok(Done::Passed(format!("{count} commands")))
    } else {
        Err(format!(
            "{} of {count} documented commands are not understood",
            wrong.len()
        ))
    }
}

/// Runs the demonstration at a size at which its guarantees are tested and its rates mean nothing.
fn demo(root: &Path) -> Result<Done, String> {
    let windrow = build_windrow(root)?;
    let mut help = tools::program(root, &windrow);
    help.args(["demo", "--help"]);
    if !tools::output(help).is_ok_and(|text| text.contains("--seconds")) {
        return Ok(Done::Skipped(
            "the program has no `demo` of a given length".to_owned(),
        ));
    }
    let mut command = tools::program(root, &windrow);
    command.args(["demo", "--size", "192M", "--seconds", "4"]);
    tools::run(command, 10 * MINUTE_S).and_then(|()| passed())
}

/// Cargo would silently update a stale lock file, and build something other than what was
/// committed.
fn lock_file(root: &Path) -> Result<Done, String> {
    let mut command = tools::cargo(root);
    command.args(["metadata", "--locked", "--format-version", "1"]);
    tools::output(command).and_then(|_| passed())
}

fn clean_tree(before: &str, after: &str) -> Result<Done, String> {
    if before == after {
        return passed();
    }
    println!("before:\n{before}after:\n{after}");
    Err("the steps changed files of the tree or left files".to_owned())
}

fn untracked(root: &Path) -> String {
    let mut command = tools::program(root, "git");
    command.args(["status", "--porcelain"]);
    tools::output(command).unwrap_or_default()
}

fn cargo(root: &Path, arguments: &[&str], minutes: u32) -> Result<Done, String> {
    let mut command = tools::cargo(root);
    command.args(arguments);
    tools::run(command, minutes * MINUTE_S).and_then(|()| passed())
}

/// Builds the command as the tests built it, and returns its path.
fn build_windrow(root: &Path) -> Result<String, String> {
    build_programs(root, &["windrow"])?
        .pop()
        .map(|(_, path)| path)
        .ok_or_else(|| "cargo built no `windrow`".to_owned())
}

/// Builds programs, each from the package of its name, and returns names and paths.
fn build_programs(root: &Path, names: &[&str]) -> Result<Vec<(String, String)>, String> {
    let mut command = tools::cargo(root);
    command
        .args([
            "build",
            "--quiet",
            "--message-format",
            "json-render-diagnostics",
        ])
        .args(names.iter().flat_map(|name| ["--package", name]));
    let messages = tools::output(command)?;
    let parsed = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let program = |message: serde_json::Value| {
        let name = message["target"]["name"]
            .as_str()
            .filter(|name| names.contains(name))?
            .to_owned();
        Some((name, message["executable"].as_str()?.to_owned()))
    };
    Ok(parsed.filter_map(program).collect())
}

//! `sim`, and the step `simulator` of `test` and `ci`: batches of seeds of the simulator.
//!
//! Seeds are derived from the commit unless they are given. Every commit thus tries other ones, and
//! the commit and a seed are enough to repeat a failure.

use crate::steps::{Done, passed};
use crate::tools;
use std::path::Path;

/// Seeds of the step within redundancy, and beyond it.
const STEP_SEEDS: [u64; 2] = [100, 60];
/// Default number of seeds of `sim`.
const DEFAULT_SEEDS: u64 = 100;
const MINUTE_S: u32 = 60;

/// The simulator in a release build.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let mut command = tools::cargo(root);
    command.args([
        "run",
        "--release",
        "--quiet",
        "--package",
        "windrow-sim",
        "--example",
        "sim",
        "--",
    ]);
    let commit = commit(root);
    command
        .args(translated(arguments, first_seed(&commit))?)
        .env("WINDROW_COMMIT", commit);
    tools::run(command, 24 * 60 * MINUTE_S)
}

/// Runs a few seeds in the build of the tests.
pub fn step(root: &Path) -> Result<Done, String> {
    let commit = commit(root);
    let first = first_seed(&commit);
    for (seeds, more) in STEP_SEEDS
        .into_iter()
        .zip([&[][..], &["--beyond", "--blocks", "3000"]])
    {
        let range = format!("{first}..{}", first + seeds);
        println!("seeds {range} {}", more.join(" "));
        let mut command = tools::cargo(root);
        command
            .args([
                "run",
                "--quiet",
                "--package",
                "windrow-sim",
                "--example",
                "sim",
                "--",
            ])
            .env("WINDROW_COMMIT", &commit);
        command
            .args(["--seeds", &range, "--jobs", &jobs().to_string()])
            .args(more);
        tools::run(command, 15 * MINUTE_S)?;
    }
    passed().map(|_| {
        Done::Passed(format!(
            "{} seeds from {first}",
            STEP_SEEDS.iter().sum::<u64>()
        ))
    })
}

/// Runs a handful of seeds as a smoke test.
pub fn few(root: &Path) -> Result<Done, String> {
    const SEEDS: u64 = 6;
    let mut command = tools::cargo(root);
    command.args([
        "run",
        "--quiet",
        "--package",
        "windrow-sim",
        "--example",
        "sim",
        "--",
        "--seeds",
        &format!("0..{SEEDS}"),
        "--jobs",
        &jobs().to_string(),
    ]);
    tools::run(command, 15 * MINUTE_S).map(|()| Done::Passed(format!("{SEEDS} seeds")))
}

/// Arguments for the simulator: it takes ranges of seeds, users give a number and a start.
fn translated(arguments: &[String], first: u64) -> Result<Vec<String>, String> {
    let (mut from, mut seeds, mut range, mut out, mut has_jobs) =
        (first, DEFAULT_SEEDS, None, Vec::new(), false);
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        let number = |text: &String| {
            text.parse::<u64>()
                .map_err(|_| format!("{word} {text}: not a number"))
        };
        match word.as_str() {
            "--from" => from = number(value()?)?,
            "--seed" => range = Some(value()?.clone()),
            "--seeds" => match value()? {
                text if text.contains("..") => range = Some(text.clone()),
                text => seeds = number(text)?,
            },
            other => {
                has_jobs |= other == "--jobs";
                out.push(word.clone());
            }
        }
    }
    out.splice(
        0..0,
        [
            "--seeds".to_owned(),
            range.unwrap_or_else(|| format!("{from}..{}", from.saturating_add(seeds))),
        ],
    );
    if !has_jobs {
        out.extend(["--jobs".to_owned(), jobs().to_string()]);
    }
    Ok(out)
}

fn commit(root: &Path) -> String {
    let mut command = tools::program(root, "git");
    command.args(["rev-parse", "HEAD"]);
    tools::output(command).unwrap_or_default().trim().to_owned()
}

fn first_seed(commit: &str) -> u64 {
    commit
        .get(..8)
        .and_then(|digits| u64::from_str_radix(digits, 16).ok())
        .unwrap_or(1)
}

fn jobs() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn numbers_of_seeds_become_ranges() {
        let run = |text: &str| translated(&words(text), 7).map(|words| words.join(" "));
        assert_eq!(run("--jobs 2"), Ok("--seeds 7..107 --jobs 2".to_owned()));
        assert_eq!(
            run("--seeds 20000 --from 100 --jobs 2 --beyond"),
            Ok("--seeds 100..20100 --jobs 2 --beyond".to_owned())
        );
        assert_eq!(
            run("--seeds 3..5 --jobs 1"),
            Ok("--seeds 3..5 --jobs 1".to_owned())
        );
        assert_eq!(
            run("--seed 12 --jobs 1"),
            Ok("--seeds 12 --jobs 1".to_owned())
        );
        assert!(run("--seeds many").is_err() && run("--from").is_err());
        assert_eq!(first_seed("0000000aff"), 10);
    }
}

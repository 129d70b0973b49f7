//! Tasks of the Windrow workspace: `cargo xtask ci|test|tidy|bench|sim|fuzz|kill-loop|guest`.
//!
//! `tidy` checks the rules of the code base, `test` runs everything that must pass before a change
//! is published, `ci` is `test` plus what only makes sense on a fresh clone. `bench` and `sim` are
//! short names for two long commands; `fuzz`, `kill-loop` and `guest` are long-running.

mod bench;
mod fuzz;
mod guest;
mod kills;
mod metadata;
mod packages;
mod scratch;
mod sim;
mod source;
mod steps;
mod test;
mod tidy;
mod tools;

use std::process::ExitCode;

/// Name and one line of help of each task; documents may name only these.
const TASKS: &[(&str, &str)] = &[
    (
        "ci",
        "what .ci/run calls: `test`, a current lock file, and no leftovers in the tree",
    ),
    (
        "test",
        "everything that must pass; with names of steps, only those; with --quick, whether it works here, in a few minutes",
    ),
    (
        "tidy",
        "the rules of the house (crate arrows, sizes, documents, licences)",
    ),
    (
        "bench",
        "all benchmarks in a short form ([--dir DIR] [--results DIR]); with a name, that `windrow-bench` in a release build",
    ),
    (
        "sim",
        "the simulator in a release build: [--seeds N] [--from A] [--jobs J] [--beyond] [--exhaustive N] ...; seeds are drawn from the commit unless named",
    ),
    (
        "fuzz",
        "the targets of fuzz/ under libFuzzer ([--seconds N] of processor time for each, 60; [TARGET...])",
    ),
    (
        "kill-loop",
        "kills of the real server under fio, ext4 and a ledger ([--kills N] [--seed N])",
    ),
    (
        "guest",
        "the cases of tests/guest in a guest kernel: crashes, drop-outs, 4 KiB sectors, power cuts ([--guest DIR] [CASE...])",
    ),
];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let task = arguments.next().unwrap_or_default();
    let rest: Vec<String> = arguments.collect();
    match run(&task, &rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: &str, rest: &[String]) -> Result<(), String> {
    let root = tools::workspace_root()?;
    // The simulator and the benchmarks have a help of their own.
    let asks_for_help = rest.iter().any(|word| word == "--help" || word == "-h")
        && !["sim", "bench"].contains(&task);
    if let Some((_, help)) = TASKS
        .iter()
        .find(|(name, _)| *name == task)
        .filter(|_| asks_for_help)
    {
        println!("cargo xtask {task}: {help}");
        return Ok(());
    }
    match task {
        "ci" => test::run(&root, test::Mode::Ci, rest),
        "test" if rest == ["--quick"] => test::quick(&root),
        "test" => test::run(&root, test::Mode::Local, rest),
        "tidy" => tidy::run(&root),
        "bench" => bench::run(&root, rest),
        "sim" => sim::run(&root, rest),
        "fuzz" => fuzz::run(&root, rest),
        "kill-loop" => kills::run(&root, rest),
        "guest" => guest::run(&root, rest),
        "" | "help" | "-h" | "--help" => {
            println!("cargo xtask <task>\n");
            for (name, help) in TASKS {
                println!("  {name:<9} {help}");
            }
            println!(
                "\nsteps of `test`: {}; of `test --quick`: {}",
                test::STEPS.join(", "),
                test::QUICK_STEPS.join(", ")
            );
            Ok(())
        }
        other => Err(format!(
            "there is no task `{other}`; see `cargo xtask help`"
        )),
    }
}

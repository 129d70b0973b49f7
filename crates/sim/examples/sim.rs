//! Runs seeds of the simulator: `--seeds A..B` (or one number), `--jobs J`, `--blocks N` block operations each, `--verbose` for the whole story of a
//! failure, `--no-shrink`, `--canary flush|discard`. Ends with code 1 if a seed fails.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use windrow_sim::shrink::shrink;
use windrow_sim::{Outcome, Planted, RunOptions, run_seed};

/// Lines of the story that are shown without `--verbose`.
const LAST_LINES: usize = 60;

struct Arguments {
    seeds: std::ops::Range<u64>,
    jobs: usize,
    verbose: bool,
    shrink: bool,
    options: RunOptions,
}

fn arguments() -> Result<Arguments, String> {
    let mut parsed = Arguments { seeds: 0..100, jobs: 1, verbose: false, shrink: true, options: RunOptions::default() };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        let number = |text: String| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
        match word.as_str() {
            "--seeds" => {
                let text = value()?;
                parsed.seeds = match text.split_once("..") {
                    Some((from, to)) => number(from.to_string())?..number(to.to_string())?,
                    None => number(text.clone())?..number(text)? + 1,
                };
            }
            "--jobs" => parsed.jobs = number(value()?)?.max(1) as usize,
            "--blocks" => parsed.options.block_operations = number(value()?)?,
            "--verbose" => parsed.verbose = true,
            "--no-shrink" => parsed.shrink = false,
            "--canary" => {
                parsed.options.canary = match value()?.as_str() {
                    "flush" => Planted::DroppedFlush,
                    "discard" => Planted::DiscardBeforeFlush,
                    other => return Err(format!("no canary {other}")),
                }
            }
            other => return Err(format!("unknown argument {other}")),
        }
    }
    Ok(parsed)
}

fn tell(arguments: &Arguments, failed: &Outcome) {
    let violation = failed.violation.as_ref().map(ToString::to_string).unwrap_or_default();
    println!("seed {} FAILS after {} block operations, {} power cuts: {violation}", failed.seed, failed.block_operations, failed.power_cuts);
    let story = if arguments.shrink {
        let short = shrink(failed.seed, &arguments.options, failed);
        let violation = short.violation.as_ref().map(ToString::to_string).unwrap_or_default();
        println!("  shortest failing run: --seeds {} cut at {} block operations: {violation}", short.seed, short.block_operations);
        short.story
    } else if arguments.verbose {
        run_seed(failed.seed, &RunOptions { story: true, ..arguments.options }).story
    } else {
        return;
    };
    let skip = if arguments.verbose { 0 } else { story.len().saturating_sub(LAST_LINES) };
    story.first().iter().filter(|_| skip > 0).for_each(|line| println!("  | {line}"));
    if skip > 0 {
        println!("  | ... {skip} lines, shown by --verbose ...");
    }
    story[skip..].iter().for_each(|line| println!("  | {line}"));
}

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let next = AtomicU64::new(arguments.seeds.start);
    let outcomes = Mutex::new(Vec::new());
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= arguments.seeds.end {
                        return;
                    }
                    let outcome = run_seed(seed, &arguments.options);
                    outcomes.lock().unwrap_or_else(|error| error.into_inner()).push(outcome);
                }
            });
        }
    });
    let seconds = began.elapsed().as_secs_f64();
    let mut outcomes = outcomes.into_inner().unwrap_or_else(|error| error.into_inner());
    outcomes.sort_by_key(|outcome| outcome.seed);
    let failed: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.violation.is_some()).collect();
    failed.iter().for_each(|outcome| tell(&arguments, outcome));
    let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    println!(
        "{} seeds, {} failed, {:.1} s ({:.0} a minute); {} block operations, {} power cuts, {} checkpoints, {} segments cleaned, {} refused for space",
        outcomes.len(),
        failed.len(),
        seconds,
        outcomes.len() as f64 * 60.0 / seconds,
        sum(|o| o.block_operations),
        sum(|o| o.power_cuts),
        sum(|o| o.checkpoints),
        sum(|o| o.segments_cleaned),
        sum(|o| o.refused),
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

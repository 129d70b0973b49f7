//! Runs seeds of the simulator; `--help` lists its arguments. Exits with 1 if a seed fails, with 2
//! if an argument is wrong.

use std::io::Write;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use windrow_engine::InjectedBug;
use windrow_random::mix;
use windrow_sim::exhaustive::Tried;
use windrow_sim::scenario::Scenario;
use windrow_sim::shrink::shrink;
use windrow_sim::{Canary, LeftOut, Outcome, RunOptions, Tries, run_without};

/// Text of `--help`. `cargo xtask sim` passes its arguments on to here, and has its own ways to
/// name seeds.
const HELP: &str = "\
Runs seeds of the simulator: the production engine on virtual members and a virtual clock. A seed always gives the same run.

  --seeds A..B        seeds from A up to B, exclusive (or one number)
  --jobs J            seeds run concurrently
  --blocks N          block operations of a seed (10000)
  --beyond            faults exceed redundancy: refusals and losses must be reported exactly
  --exhaustive N      instead: N actions on tiny pools, with the power cut at every moment
  --moment M          only the moment of this number, as given in a failure report
  --journal-devices   only seeds whose pools have journal devices
  --canary FAULT      inject a fault that must be caught: flush, discard, reuse, rebuild, chunk, pages, settle, waits, switch
  --verbose           the whole story of a failure
  --no-shrink         do not shrink failures
  --cut N --without STEPS   a shrunk run, as given in a failure report

cargo xtask sim also takes --seeds N (a number of seeds), --from A, and --seed S (one). For example:

  cargo xtask sim --seeds 1000                    a thousand seeds, drawn from the commit
  cargo xtask sim --seed 9850213 --verbose        one seed, with its story if it fails
  cargo xtask sim --exhaustive 20 --seeds 50      every moment of 50 short runs";

/// Number of script lines that are shown without `--verbose`.
const LAST_LINES: usize = 80;

/// Seconds after which a seed counts as hung: far more than any seed takes on a busy machine.
const HANG_S: u64 = 120;

/// Number of failures that are shrunk after all seeds have run; each further one gets one line.
const TOLD_MAX: usize = 5;

/// Seconds between two progress lines.
const PROGRESS_S: u64 = 10;

struct Arguments {
    seeds: std::ops::Range<u64>,
    jobs: usize,
    verbose: bool,
    shrink: bool,
    exhaustive: Option<u64>,
    /// Only this moment of them.
    moment: Option<u64>,
    /// Only seeds whose pools have journal devices.
    devices: bool,
    /// Steps to leave out.
    left_out: LeftOut,
    options: RunOptions,
}

/// Parses the arguments; `None` after help.
fn arguments() -> Result<Option<Arguments>, String> {
    let options = RunOptions::default();
    let left_out = LeftOut::default();
    let mut parsed = Arguments {
        seeds: 0..100,
        jobs: 1,
        verbose: false,
        shrink: true,
        exhaustive: None,
        moment: None,
        devices: false,
        left_out,
        options,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        let number = |text: String| {
            text.parse::<u64>()
                .map_err(|error| format!("{text}: {error}"))
        };
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
            "--cut" => parsed.options.cut_at = Some(number(value()?)?),
            "--without" => parsed.left_out = LeftOut::parse(&value()?)?,
            "--exhaustive" => parsed.exhaustive = Some(number(value()?)?),
            "--moment" => parsed.moment = Some(number(value()?)?),
            "--beyond" => parsed.options.beyond = true,
            "--journal-devices" => parsed.devices = true,
            "--verbose" => parsed.verbose = true,
            "--no-shrink" => parsed.shrink = false,
            "--canary" => {
                parsed.options.canary = match value()?.as_str() {
                    "flush" => Canary::DroppedFlush,
                    "discard" => Canary::DiscardBeforeFlush,
                    "reuse" => Canary::InEngine(InjectedBug::EarlyReuse),
                    "rebuild" => Canary::InEngine(InjectedBug::HollowRebuild),
                    "chunk" => Canary::InEngine(InjectedBug::EarlyChunk),
                    "reserve" => Canary::InEngine(InjectedBug::ShortReserve),
                    "pages" => Canary::InEngine(InjectedBug::KeptPages),
                    "settle" => Canary::InEngine(InjectedBug::EarlySettle),
                    "waits" => Canary::InEngine(InjectedBug::KeptWaiting),
                    "switch" => Canary::InEngine(InjectedBug::EarlySwitch),
                    other => return Err(format!("no canary {other}")),
                }
            }
            "--help" | "-h" => return Ok(None),
            other => {
                return Err(format!(
                    "unknown argument {other}: --help shows what there is"
                ));
            }
        }
    }
    Ok(Some(parsed))
}

/// Command that repeats a seed.
fn repeat(arguments: &Arguments, seed: u64) -> String {
    let options = &arguments.options;
    let canary = match options.canary {
        Canary::None | Canary::InEngine(InjectedBug::None) => "",
        Canary::DroppedFlush => " --canary flush",
        Canary::DiscardBeforeFlush => " --canary discard",
        Canary::InEngine(InjectedBug::EarlyReuse) => " --canary reuse",
        Canary::InEngine(InjectedBug::HollowRebuild) => " --canary rebuild",
        Canary::InEngine(InjectedBug::EarlyChunk) => " --canary chunk",
        Canary::InEngine(InjectedBug::ShortReserve) => " --canary reserve",
        Canary::InEngine(InjectedBug::KeptPages) => " --canary pages",
        Canary::InEngine(InjectedBug::EarlySettle) => " --canary settle",
        Canary::InEngine(InjectedBug::KeptWaiting) => " --canary waits",
        Canary::InEngine(InjectedBug::EarlySwitch) => " --canary switch",
    };
    let mode = arguments.exhaustive.map_or_else(
        || format!(" --blocks {}", options.block_operations),
        |actions| format!(" --exhaustive {actions}"),
    );
    let beyond = if options.beyond { " --beyond" } else { "" };
    let commit = std::env::var("WINDROW_COMMIT")
        .map_or_else(|_| String::new(), |commit| format!("at commit {commit}: "));
    let cut = options
        .cut_at
        .map_or_else(String::new, |cut| format!(" --cut {cut}"));
    let without = if arguments.left_out == LeftOut::default() {
        String::new()
    } else {
        format!(" --without {}", arguments.left_out)
    };
    format!(
        "  to repeat it, {commit}cargo xtask sim --seed {seed}{mode}{beyond}{canary}{cut}{without}"
    )
}

/// Periodic progress lines on standard error.
struct Progress {
    began: Instant,
    told: Instant,
    total: u64,
}

impl Progress {
    fn new(total: u64) -> Self {
        Self {
            began: Instant::now(),
            told: Instant::now(),
            total,
        }
    }

    fn tell(&mut self, done: u64, failed: usize, more: &str) {
        if self.told.elapsed().as_secs() < PROGRESS_S || done == 0 {
            return;
        }
        self.told = Instant::now();
        let rate = done as f64 / self.began.elapsed().as_secs_f64();
        let left = self.total.saturating_sub(done) as f64 / rate;
        eprintln!(
            "{done} of {} seeds, {failed} failed, {:.0} a minute, {:.0} min left{more}",
            self.total,
            rate * 60.0,
            left / 60.0
        );
    }
}

/// Prints one line about the failure and the command that repeats it.
fn tell(arguments: &Arguments, failed: &Outcome) {
    let violation = failed
        .violation
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default();
    println!(
        "seed {} FAILS after {} block operations, {} power cuts: {violation}",
        failed.seed, failed.block_operations, failed.power_cuts
    );
    println!("{}", repeat(arguments, failed.seed));
}

/// Prints the shrunk failing run with its script; with `--verbose` its whole story.
fn explain(arguments: &Arguments, failed: &Outcome) {
    let is_whole = arguments.left_out == LeftOut::default();
    let outcome = if arguments.shrink && is_whole {
        eprintln!("looking for a short run of seed {} that fails", failed.seed);
        let short = shrink(failed.seed, &arguments.options, failed);
        let violation = short
            .outcome
            .violation
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default();
        println!(
            "seed {}, shrunk: {} of its {} steps and {violation}",
            failed.seed,
            short.outcome.script.len(),
            failed.steps
        );
        let options = RunOptions {
            cut_at: Some(short.cut_at),
            ..arguments.options
        };
        println!(
            "{}",
            repeat(
                &Arguments {
                    options,
                    left_out: short.left_out,
                    seeds: 0..0,
                    ..*arguments
                },
                failed.seed
            )
        );
        short.outcome
    } else if arguments.verbose || !is_whole {
        run_without(
            failed.seed,
            &RunOptions {
                story: true,
                ..arguments.options
            },
            &arguments.left_out,
        )
    } else {
        return;
    };
    let lines = if arguments.verbose {
        outcome.story
    } else {
        outcome.script
    };
    let skip = if arguments.verbose {
        0
    } else {
        lines.len().saturating_sub(LAST_LINES)
    };
    if skip > 0 {
        println!("  | ... {skip} lines, shown by --verbose ...");
    }
    lines[skip..].iter().for_each(|line| println!("  | {line}"));
}

/// Starts a thread that runs seeds one after another. (A new thread for each would start with new
/// memory, and fault it in.)
fn start_worker(
    seeds: &Arc<Mutex<Receiver<u64>>>,
    outcomes: &Sender<Outcome>,
    arguments: &Arguments,
) {
    let (seeds, outcomes, options, left_out) = (
        seeds.clone(),
        outcomes.clone(),
        arguments.options,
        arguments.left_out.clone(),
    );
    std::thread::spawn(move || {
        loop {
            let next = seeds
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner())
                .recv();
            let Ok(seed) = next else { return };
            if outcomes
                .send(run_without(seed, &options, &left_out))
                .is_err()
            {
                return;
            }
        }
    });
}

/// Runs all seeds; also returns those that do not end.
fn run_all(arguments: &Arguments) -> (Vec<Outcome>, Vec<u64>) {
    let (lsns, waiting) = channel();
    let waiting = Arc::new(Mutex::new(waiting));
    let (sender, receiver) = channel();
    (0..arguments.jobs).for_each(|_| start_worker(&waiting, &sender, arguments));
    let mut running: Vec<(u64, Instant)> = Vec::new();
    let (mut outcomes, mut hanging) = (Vec::new(), Vec::new());
    let mut seeds = arguments.seeds.clone();
    let mut progress = Progress::new(seeds.end.saturating_sub(seeds.start));
    let mut failed = 0;
    loop {
        while running.len() < arguments.jobs
            && let Some(seed) =
                seeds.find(|seed| !arguments.devices || Scenario::has_journal_devices(*seed))
        {
            running.push((seed, Instant::now()));
            // The receiver lives here, too, so the send cannot fail.
            _ = lsns.send(seed);
        }
        if running.is_empty() {
            return (outcomes, hanging);
        }
        if let Ok(outcome) = receiver.recv_timeout(Duration::from_secs(1)) {
            running.retain(|(seed, _)| *seed != outcome.seed);
            if outcome.violation.is_some() {
                failed += 1;
                tell(arguments, &outcome);
            }
            outcomes.push(Outcome {
                story: Vec::new(),
                ..outcome
            });
        }
        progress.tell(outcomes.len() as u64, failed, "");
        running.retain(|(seed, since)| {
            let hangs = since.elapsed().as_secs() > HANG_S;
            if hangs {
                hanging.push(*seed);
                // Its thread is lost.
                start_worker(&waiting, &sender, arguments);
            }
            !hangs
        });
    }
}

/// Tries every power cut of short runs.
fn exhaust(arguments: &Arguments, actions: u64) -> ExitCode {
    let next = std::sync::atomic::AtomicU64::new(arguments.seeds.start);
    let results = Mutex::new((
        Vec::new(),
        Progress::new(arguments.seeds.end.saturating_sub(arguments.seeds.start)),
        0,
        0,
    ));
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if seed >= arguments.seeds.end {
                        return;
                    }
                    if arguments.devices && !Scenario::has_journal_devices(seed) {
                        continue;
                    }
                    let result = windrow_sim::exhaustive::run_at(seed, actions, arguments.options.canary, arguments.moment);
                    let mut results = results.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    let (list, progress, failed, images) = &mut *results;
                    match &result {
                        Ok(tried) => *images += tried.images,
                        Err((moment, violation)) => {
                            *failed += 1;
                            println!("seed {seed} FAILS at moment {moment}: {violation}\n{} --moment {moment}", repeat(arguments, seed));
                        }
                    }
                    list.push((seed, result));
                    progress.tell(list.len() as u64, *failed, &format!(", {images} images"));
                }
            });
        }
    });
    let (results, progress, ..) = results
        .into_inner()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    let passed: Vec<Tried> = results
        .iter()
        .filter_map(|(_, result)| result.as_ref().ok())
        .copied()
        .collect();
    let failed = results.len() - passed.len();
    let sum = |of: fn(&Tried) -> u64| passed.iter().map(of).sum::<u64>();
    println!(
        "{} seeds, {failed} failed, {:.0} s; {} moments, {} power cuts, {} different images of crashes; {} starts, {} of them with faults; {} times what an \
         image had given was held against another moment",
        results.len(),
        progress.began.elapsed().as_secs_f64(),
        sum(|tried| tried.moments),
        sum(|tried| tried.cuts),
        sum(|tried| tried.images),
        sum(|tried| tried.starts),
        sum(|tried| tried.with_faults),
        sum(|tried| tried.again),
    );
    ExitCode::from(u8::from(failed > 0))
}

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            // The reader may close the pipe early.
            _ = writeln!(std::io::stdout(), "{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    if let Some(actions) = arguments.exhaustive {
        return exhaust(&arguments, actions);
    }
    let began = Instant::now();
    let (mut outcomes, hanging) = run_all(&arguments);
    let seconds = began.elapsed().as_secs_f64();
    outcomes.sort_by_key(|outcome| outcome.seed);
    let failed: Vec<&Outcome> = outcomes
        .iter()
        .filter(|outcome| outcome.violation.is_some())
        .collect();
    let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    let fewest = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).min().unwrap_or(0);
    println!(
        "{} seeds, {} failed, {:.1} s ({:.0} a minute); {} block operations ({} at least in each), {} power cuts ({}), {} faults of members, {} checkpoints, {} segments cleaned, {} blocks in further streams, {} starts over gaps between streams, {} KiB became zstd, {} refused for space, {} blocks found wrong by scrubs, {} members rebuilt, {} replaced, {} exchanged in service, {} growths, {} members removed ({} refused), {} starts refused for journal devices, {} journals discarded, {} maps rebuilt from batches, {} starts just after losses, {} with a full journal, {} pools with a spread map ({} segments cleaned), {} places taken by spares, {} by copies of members in service",
        outcomes.len(),
        failed.len(),
        seconds,
        outcomes.len() as f64 * 60.0 / seconds,
        sum(|o| o.block_operations),
        fewest(|o| o.block_operations),
        sum(|o| o.power_cuts),
        fewest(|o| o.power_cuts),
        sum(|o| o.faults),
        sum(|o| o.checkpoints),
        sum(|o| o.segments_cleaned),
        sum(|o| o.further_blocks),
        sum(|o| o.gaps_readmitted),
        sum(|o| o.repacked_bytes) >> 10,
        sum(|o| o.refused),
        sum(|o| o.wrong_blocks),
        sum(|o| o.rebuilt),
        sum(|o| o.replaced),
        sum(|o| o.exchanged),
        sum(|o| o.grown),
        sum(|o| o.removed),
        sum(|o| o.removals_refused),
        sum(|o| o.devices_missed),
        sum(|o| o.journals_given_up),
        sum(|o| o.maps_rebuilt),
        sum(|o| o.starts_after_losses),
        sum(|o| o.starts_of_full_rings),
        sum(|o| u64::from(o.cleaned_spread.is_some())),
        sum(|o| o.cleaned_spread.unwrap_or(0)),
        sum(|o| o.spares_taken),
        sum(|o| o.renewed),
    );
    let traces = outcomes
        .iter()
        .fold(0u64, |sum, outcome| mix(sum ^ outcome.trace_hash));
    println!("hash of the traces: {traces:016x}");
    if arguments.options.beyond {
        println!(
            "beyond redundancy: {} starts worked, {} were refused; {} blocks lost, all named by scrubs; {} damaged batches",
            sum(|o| o.beyond.started),
            sum(|o| o.beyond.refused),
            sum(|o| o.beyond.lost),
            sum(|o| o.beyond.damaged_batches),
        );
    }
    let in_vain = Tries::never_succeeded(outcomes.iter().map(|outcome| &outcome.tries));
    in_vain.iter().for_each(|(kind, runs)| {
        println!(
            "REFUSED: {kind}, in all of {runs} runs that asked for it: no reason is that frequent"
        )
    });
    failed
        .iter()
        .take(TOLD_MAX)
        .for_each(|outcome| explain(&arguments, outcome));
    hanging.iter().for_each(|seed| {
        println!("seed {seed} HANGS: one apply or start takes more than {HANG_S} s")
    });
    // Not a return: threads of hung seeds never end.
    std::process::exit(i32::from(
        !failed.is_empty() || !hanging.is_empty() || !in_vain.is_empty(),
    ));
}

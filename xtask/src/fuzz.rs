//! `fuzz`, and the step `fuzzing` of `test` and `ci`: the targets of `fuzz/` under libFuzzer,
//! guided by coverage.
//!
//! 1. The targets are built by the installed compiler, with LLVM's coverage pass and for a named
//!    host, so that build scripts are not instrumented. Neither a nightly compiler nor `cargo-fuzz`
//!    is needed, only a C++ compiler for libFuzzer.
//! 2. Corpora start from the frozen files of the format and from requests of the tests. They, the
//!    build, and failing inputs lie under `target/fuzz`, and stay for the next run.
//! 3. Each target runs for a given processor time, one target per processor at a time: on a shared
//!    machine wall-clock time would mean little.

use crate::scratch::{self, Scratch};
use crate::steps::Done;
use crate::tools;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Compiler flags of libFuzzer's coverage instrumentation, as `cargo-fuzz` has them.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
                     -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions --cfg fuzzing -Ccodegen-units=4";
/// Seconds of processor time for each target in the step, and the default.
const STEP_S: u64 = 4;
const DEFAULT_S: u64 = 60;
/// Memory limit of a target, MiB: decoders must bound their allocations.
const MEMORY_MIB: u32 = 1024;
/// Limit of wall-clock seconds per second of processor time; beyond it the target hangs.
const CLOCK_SECONDS: u64 = 40;
/// Interval of the progress reports of a long run.
const REPORT: Duration = Duration::from_secs(60);
/// Clock ticks per second in which Linux reports processor time (`USER_HZ`, which is 100 for all
/// programs).
const TICKS_A_SECOND: u64 = 100;
/// Time limit for one input, seconds. Machines are shared, and one input may be a start of a whole
/// pool.
const INPUT_S: u32 = 60;

/// `cargo xtask fuzz [--seconds N] [TARGET...]`.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let (seconds, wanted) = parse(arguments)?;
    let targets = targets(root)?;
    if let Some(unknown) = wanted.iter().find(|name| !targets.contains(name)) {
        return Err(format!(
            "there is no fuzz target `{unknown}`; there are: {}",
            targets.join(", ")
        ));
    }
    let _scratch = Scratch::make(&std::env::temp_dir())?;
    fuzz(
        root,
        if wanted.is_empty() { &targets } else { &wanted },
        seconds,
    )
    .map(|summary| println!("{summary}"))
}

/// A few seconds for each target.
pub fn step(root: &Path) -> Result<Done, String> {
    if tools::find_program("c++").is_none() {
        let why = "libFuzzer needs a C++ compiler (apt-get install g++)".to_owned();
        // A check that is silently skipped proves nothing.
        return if tools::on_ci() {
            Err(why)
        } else {
            Ok(Done::Skipped(why))
        };
    }
    fuzz(root, &targets(root)?, STEP_S).map(Done::Passed)
}

fn parse(arguments: &[String]) -> Result<(u64, Vec<String>), String> {
    let (mut seconds, mut targets, mut words) = (DEFAULT_S, Vec::new(), arguments.iter());
    while let Some(word) = words.next() {
        match word.as_str() {
            "--seconds" => {
                let value = words.next().ok_or("--seconds needs a value")?;
                seconds = value
                    .parse()
                    .ok()
                    .filter(|seconds| *seconds > 0)
                    .ok_or_else(|| format!("--seconds {value}: not a number of seconds"))?;
            }
            flag if flag.starts_with('-') => {
                return Err(format!(
                    "`fuzz` does not know {flag}; it takes --seconds N and names of targets"
                ));
            }
            name => targets.push(name.to_owned()),
        }
    }
    Ok((seconds, targets))
}

/// Names of the targets.
fn targets(root: &Path) -> Result<Vec<String>, String> {
    let folder = root.join("fuzz/fuzz_targets");
    let entries = std::fs::read_dir(&folder)
        .map_err(|error| format!("cannot read {}: {error}", folder.display()))?;
    let names = entries.flatten().filter_map(|entry| {
        entry
            .path()
            .file_stem()
            .map(|name| name.to_string_lossy().into_owned())
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    Ok(names)
}

/// Folder of builds, corpora and findings.
fn home(root: &Path) -> PathBuf {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    root.join(target).join("fuzz")
}

fn host() -> Result<String, String> {
    let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    command.arg("-vV");
    let version = tools::output(command)?;
    version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .map(str::to_owned)
        .ok_or_else(|| "rustc does not name its host".to_owned())
}

/// Builds and runs `targets`; returns a summary with the number of inputs.
fn fuzz(root: &Path, targets: &[String], seconds: u64) -> Result<String, String> {
    let (home, host) = (home(root), host()?);
    let mut build = tools::cargo(&root.join("fuzz"));
    build
        .args([
            "build",
            "--release",
            "--locked",
            "--quiet",
            "--bins",
            "--target",
            &host,
            "--target-dir",
        ])
        .arg(&home)
        .env("RUSTFLAGS", FLAGS);
    tools::run(build, 30 * 60)?;
    let mut seeds = tools::cargo(root);
    seeds
        .args([
            "run",
            "--quiet",
            "--package",
            "windrow-nbd",
            "--example",
            "fuzz_seeds",
            "--",
        ])
        .arg(home.join("corpus"));
    tools::run(seeds, 15 * 60)?;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let (mut waiting, mut running, mut lines, mut failed) =
        (targets.iter(), Vec::new(), Vec::new(), Vec::new());
    let mut reported = Instant::now();
    loop {
        while running.len() < jobs
            && let Some(name) = waiting.next()
        {
            running.push(Running::start(&home, &host, name, seconds)?);
        }
        if running.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(200));
        if reported.elapsed() >= REPORT {
            reported = Instant::now();
            let words: Vec<String> = running
                .iter()
                .map(|one: &Running| format!("{} {} of {seconds} s", one.name, one.used_s()))
                .collect();
            println!(
                "{} of {} targets done; {}",
                lines.len() + failed.len(),
                targets.len(),
                words.join(", ")
            );
        }
        for mut one in std::mem::take(&mut running) {
            match one.ended()? {
                None => running.push(one),
                Some(Ok(inputs)) => {
                    println!("{}: {inputs} inputs, nothing found", one.name);
                    lines.push(inputs);
                }
                Some(Err(what)) => {
                    println!("{}: {what}", one.name);
                    failed.push(one.name);
                }
            }
        }
    }
    if failed.is_empty() {
        Ok(format!(
            "{} targets, {seconds} s of processor time each, {} inputs",
            lines.len(),
            lines.iter().sum::<u64>()
        ))
    } else {
        Err(format!(
            "found by fuzzing: {}; the inputs are in {}",
            failed.join(", "),
            home.join("artifacts").display()
        ))
    }
}

/// A running target.
struct Running {
    name: String,
    child: Child,
    log: PathBuf,
    /// Processor time after which it is asked to end.
    seconds: u64,
    asked: bool,
    /// Time at which it counts as hung.
    late: Instant,
}

impl Running {
    fn start(home: &Path, host: &str, name: &str, seconds: u64) -> Result<Self, String> {
        let (corpus, artifacts, log) = (
            home.join("corpus").join(name),
            home.join("artifacts").join(name),
            home.join(format!("{name}.log")),
        );
        let cannot =
            |error: std::io::Error| format!("cannot start the fuzz target `{name}`: {error}");
        std::fs::create_dir_all(&corpus)
            .and_then(|()| std::fs::create_dir_all(&artifacts))
            .map_err(cannot)?;
        let out = std::fs::File::create(&log).map_err(cannot)?;
        let mut command = Command::new(home.join(host).join("release").join(name));
        command
            .arg(format!("-rss_limit_mb={MEMORY_MIB}"))
            .arg(format!("-timeout={INPUT_S}"))
            .arg("-print_final_stats=1");
        command
            .arg(format!("-artifact_prefix={}/", artifacts.display()))
            .arg(&corpus);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(out);
        // Its statics are never dropped.
        if let Some(folder) = scratch::folder() {
            command.env("TMPDIR", folder);
        }
        let child = command.spawn().map_err(cannot)?;
        let late = Instant::now()
            + Duration::from_secs(
                seconds
                    .saturating_mul(CLOCK_SECONDS)
                    .saturating_add(4 * u64::from(INPUT_S)),
            );
        Ok(Self {
            name: name.to_owned(),
            child,
            log,
            seconds,
            asked: false,
            late,
        })
    }

    /// Processor time so far, in seconds.
    fn used_s(&self) -> u64 {
        std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))
            .ok()
            .and_then(|text| processor_ticks(&text))
            .unwrap_or(0)
            / TICKS_A_SECOND
    }

    /// Once it has ended: the number of inputs it tried, or the failure.
    fn ended(&mut self) -> Result<Option<Result<u64, String>>, String> {
        let Some(status) = self.child.try_wait().map_err(|error| error.to_string())? else {
            if !self.asked && self.used_s() >= self.seconds {
                // libFuzzer then prints its figures and exits successfully. (`kill` is built into
                // the shell; the program is not on every machine.)
                let mut ask = Command::new("sh");
                ask.args(["-c", &format!("kill -USR1 {}", self.child.id())]);
                self.asked = tools::succeeds(ask);
            }
            if Instant::now() < self.late {
                return Ok(None);
            }
            let _ = self.child.kill();
            let _ = self.child.wait();
            return Ok(Some(Err("it hung and was killed".to_owned())));
        };
        let log =
            String::from_utf8_lossy(&std::fs::read(&self.log).map_err(|error| error.to_string())?)
                .into_owned();
        if !status.success() {
            let end: Vec<&str> = log.lines().rev().take(40).collect();
            return Ok(Some(Err(format!(
                "{status}\n{}",
                end.into_iter().rev().collect::<Vec<_>>().join("\n")
            ))));
        }
        let inputs = log
            .lines()
            .find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))
            .and_then(|number| number.trim().parse().ok());
        Ok(Some(inputs.ok_or_else(|| {
            "it did not say how many inputs it tried".to_owned()
        })))
    }
}

/// User and system ticks of a line of `/proc/PID/stat`; the name in parentheses may contain
/// anything.
fn processor_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_of_a_program() {
        assert_eq!(
            processor_ticks("7 (a (b) c) S 1 7 7 0 -1 4194560 100 0 0 0 420 13 0 0 20 0 1 0 99"),
            Some(433)
        );
        assert_eq!(processor_ticks("7 (a"), None);
        let own = std::fs::read_to_string("/proc/self/stat").expect("Linux has /proc/self/stat");
        assert!(processor_ticks(&own).is_some());
    }

    #[test]
    fn arguments() {
        let run = |text: &str| {
            parse(
                &text
                    .split_whitespace()
                    .map(str::to_owned)
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(run(""), Ok((DEFAULT_S, Vec::new())));
        assert_eq!(
            run("--seconds 3600 batch"),
            Ok((3600, vec!["batch".to_owned()]))
        );
        assert!(run("--seconds").is_err() && run("--seconds 0").is_err() && run("--fast").is_err());
    }
}

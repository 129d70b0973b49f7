//! `pool scrub`: starts, controls and awaits a scrub.

use clap::Args;
use serde_json::json;
use std::collections::VecDeque;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use windrow_console::context::{self, PoolPlace, unexpected};
use windrow_console::figures::{clock, megabytes, utc};
use windrow_console::output::Output;
use windrow_console::progress::Progress;
use windrow_console::values::Size;
use windrow_engine::ScrubState;
use windrow_host::Failure;
use windrow_host::control::{Command, ControlClient, Reply, ScrubAction};
use windrow_host::data::DataReport;
use windrow_host::failure::id;
use windrow_host::report::PoolReport;
use windrow_host::scrub::ScrubReport;

/// Exit code if the command itself failed, or the scrub did not complete.
const NOT_MADE: u8 = 8;
/// Interval of progress queries while the command waits.
const PAUSE: Duration = Duration::from_millis(250);
/// The shown rate is that of this many answers.
const ANSWERS: usize = 20;
/// Most lost blocks that are listed as text; JSON has more.
const LOST_SHOWN: usize = 20;

/// Arguments of `pool scrub`.
#[derive(Args)]
#[command(after_help = "Examples:
  windrow pool scrub tank
  windrow pool scrub tank --rate 100M
  windrow pool scrub tank --wait -o json
  windrow pool scrub tank --pause
  windrow pool scrub tank --resume --wait
  windrow pool scrub tank --watch
  windrow pool scrub tank --stop

A scrub reads all live data with its redundancy on all members, while the pool is in use. Errors are repaired; lost blocks are listed by
volume and block (`pool status`, -o json). The daemon continues it, also after a restart. Ctrl-C ends --wait, not the scrub.

Exit codes: 0 done (with --wait or --watch: the scrub has ended without errors), 1 it found errors and repaired all of them,
4 it found blocks or batches that are lost, or the pool was too full to repair what it found, 8 the command failed, or the scrub was stopped before its end, 16 wrong usage.")]
pub struct ScrubArguments {
    /// Pool; a daemon has to serve it.
    pool: String,
    /// Pause the scrub until it is resumed, also across a restart.
    #[arg(long, group = "steer")]
    pause: bool,
    /// Resume a paused scrub.
    #[arg(long, group = "steer")]
    resume: bool,
    /// End the scrub at its position.
    #[arg(long, group = "steer")]
    stop: bool,
    /// Wait for the scrub in progress.
    #[arg(long, group = "steer")]
    watch: bool,
    /// Most bytes read from all members together each second; else as fast as user requests and the
    /// members allow.
    #[arg(long, value_name = "SIZE", conflicts_with = "steer")]
    rate: Option<Size>,
    /// Wait until the scrub ends, and show its progress.
    #[arg(long, conflicts_with_all = ["pause", "stop"])]
    wait: bool,
    /// Control socket of the daemon.
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

impl ScrubArguments {
    /// `None`: only show it.
    fn action(&self) -> Option<ScrubAction> {
        match (self.pause, self.resume, self.stop, self.watch) {
            (true, ..) => Some(ScrubAction::Pause),
            (_, true, ..) => Some(ScrubAction::Resume),
            (_, _, true, _) => Some(ScrubAction::Stop),
            (.., true) => None,
            _ => Some(ScrubAction::Start),
        }
    }
}

/// Runs it.
pub fn run(arguments: &ScrubArguments, output: &Output) -> u8 {
    match scrub(arguments, output) {
        Ok(code) => code,
        Err(failure) => {
            output.failure(&failure);
            NOT_MADE
        }
    }
}

fn scrub(arguments: &ScrubArguments, output: &Output) -> Result<u8, Failure> {
    let pool = &arguments.pool;
    let place = PoolPlace {
        control: arguments.control.clone(),
        ..PoolPlace::default()
    };
    let Some(mut client) = context::daemon_of(pool, &place)? else {
        let why = format!(
            "a scrub needs a pool that is served, and no daemon listens at {}",
            place.control_socket(pool).display()
        );
        return Err(
            Failure::new(id::NO_DAEMON, format!("cannot scrub pool '{pool}'"), why)
                .remedy("serve it, or use `windrow check --repair` on a pool at rest"),
        );
    };
    let action = arguments.action();
    if let Some(action) = action {
        client.ask(Command::Scrub {
            action,
            bytes_per_second: arguments.rate.map(|rate| rate.0),
        })?;
    }
    let waits = arguments.wait || arguments.watch;
    let report = if waits {
        wait(&mut client, pool)?
    } else {
        status(&mut client)?
    };
    let value = json!({ "pool": pool, "action": action, "scrub": report.scrub });
    output.result("pool-scrub", &value, || {
        format!(
            "scrub of pool '{pool}': {}\n{}",
            line(&report.scrub, report.served, None),
            lost(&report.scrub)
        )
    });
    Ok(if waits { report.scrub.exit_code() } else { 0 })
}

fn status(client: &mut ControlClient) -> Result<PoolReport, Failure> {
    match client.ask(Command::Status)? {
        Reply::Pool(report) => Ok(*report),
        _ => Err(unexpected()),
    }
}

fn wait(client: &mut ControlClient, pool: &str) -> Result<PoolReport, Failure> {
    let mut shown = Progress::new(format!("scrub of pool '{pool}'"));
    let mut answers = VecDeque::with_capacity(ANSWERS + 1);
    loop {
        let report = status(client)?;
        if let Some(reason) = &report.stop_reason {
            return Err(Failure::new(
                id::POOL_STOPPED,
                format!("the scrub of pool '{pool}' did not end"),
                reason,
            )
            .remedy("see the log of the daemon"));
        }
        if !report.scrub.is_under_way() {
            return Ok(report);
        }
        answers.push_back((Instant::now(), report.scrub.read_bytes));
        if answers.len() > ANSWERS {
            answers.pop_front();
        }
        shown.text(&line(&report.scrub, report.served, rate(&answers)));
        std::thread::sleep(PAUSE);
    }
}

/// Bytes each second from the first answer to the last one.
fn rate(answers: &VecDeque<(Instant, u64)>) -> Option<u64> {
    let ((begin, before), (end, after)) = (answers.front()?, answers.back()?);
    let milliseconds = end.duration_since(*begin).as_millis();
    let rate = (u128::from(after.saturating_sub(*before)) * 1000).checked_div(milliseconds)?;
    u64::try_from(rate).ok()
}

/// A scrub in one line. `rate`: bytes each second now; else its average.
pub fn line(scrub: &ScrubReport, served: bool, rate: Option<u64>) -> String {
    let begun = || format!("begun {}", utc(scrub.started_unix_s));
    // Without a recorded end the start is known.
    let ended = || {
        if scrub.ended_unix_s > 0 {
            format!(" {}", utc(scrub.ended_unix_s))
        } else {
            format!(", {}", begun())
        }
    };
    let next = scrub
        .next_unix_s
        .map(|at| format!(", next {}", utc(at)))
        .unwrap_or_default();
    let percent = scrub.done_per_mille() / 10;
    match scrub.state {
        ScrubState::None => format!("there has been none{next}"),
        ScrubState::Running if !served => format!(
            "interrupted at {percent} %, resumes when the pool is served, {}",
            found(scrub)
        ),
        ScrubState::Running => {
            let rate = rate.unwrap_or_else(|| scrub.rate());
            let left = scrub.left_bytes.checked_div(rate).map_or_else(
                || "time left unknown".to_owned(),
                |seconds| format!("{} left", clock(seconds)),
            );
            let bound = if scrub.bytes_per_second == 0 {
                String::new()
            } else {
                format!(" (at most {}/s)", Size(scrub.bytes_per_second))
            };
            format!(
                "running, {percent} % done, {}{bound}, {left}, {}",
                megabytes(rate as f64),
                found(scrub)
            )
        }
        ScrubState::Paused => format!("paused at {percent} %, {}, {}", begun(), found(scrub)),
        ScrubState::Completed => format!(
            "completed{}, in {}, {}{next}",
            ended(),
            clock(scrub.active_ms / 1000),
            found(scrub)
        ),
        ScrubState::Stopped => format!("stopped at {percent} %{}, {}{next}", ended(), found(scrub)),
    }
}

fn found(scrub: &ScrubReport) -> String {
    if !scrub.has_found() {
        return "0 wrong blocks".to_owned();
    }
    let mut text = format!(
        "{} wrong blocks, {} moved, {} lost",
        scrub.wrong_blocks, scrub.moved_blocks, scrub.lost_blocks
    );
    if scrub.unmoved_blocks > 0 {
        // Writing to a string does not fail.
        _ = write!(
            text,
            ", {} not moved because there is no room",
            scrub.unmoved_blocks
        );
    }
    if scrub.damaged_batches > 0 {
        // Writing to a string does not fail.
        _ = write!(text, ", {} damaged batches", scrub.damaged_batches);
    }
    text
}

/// The first of the lost blocks, a line each.
pub fn lost(scrub: &ScrubReport) -> String {
    let mut text = String::new();
    for lost in scrub.lost.iter().take(LOST_SHOWN) {
        // Writing to a string does not fail.
        _ = writeln!(
            text,
            "lost       volume '{}', block {} (4096 bytes at {})",
            lost.volume,
            lost.block,
            u128::from(lost.block) * 4096
        );
    }
    let more = scrub
        .lost_blocks
        .saturating_sub(scrub.lost.len().min(LOST_SHOWN) as u64);
    if more > 0 {
        let place = if scrub.lost.len() > LOST_SHOWN {
            "-o json lists more of them"
        } else {
            "`windrow pool status` shows their ranges"
        };
        _ = writeln!(text, "lost       {more} more blocks; {place}");
    }
    text
}

/// The first ranges of lost blocks, a line each.
pub fn lost_ranges(data: &DataReport) -> String {
    let mut text = String::new();
    for (word, ranges, blocks) in [
        ("lost      ", &data.lost, data.lost_blocks),
        ("unverified", &data.unverified, data.unverified_blocks),
    ] {
        let shown = ranges.iter().take(LOST_SHOWN);
        let more = blocks.saturating_sub(shown.clone().map(|range| range.blocks).sum());
        for range in shown {
            let last = if range.blocks == 1 {
                String::new()
            } else {
                format!(" to {}", range.block + range.blocks - 1)
            };
            let plural = if range.blocks == 1 { "" } else { "s" };
            let (bytes, at) = (
                u128::from(range.blocks) * 4096,
                u128::from(range.block) * 4096,
            );
            // Writing to a string does not fail.
            _ = writeln!(
                text,
                "{word} volume '{}', block{plural} {}{last} ({bytes} bytes at {at})",
                range.volume, range.block
            );
        }
        if more > 0 {
            let place = if ranges.len() > LOST_SHOWN {
                "-o json lists more ranges"
            } else {
                "`windrow pool scrub` finds them"
            };
            _ = writeln!(text, "{word} {more} more blocks; {place}");
        }
    }
    text
}

#[cfg(test)]
mod tests;

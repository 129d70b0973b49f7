//! Figures, tables and goals of `bench sync`.

use super::super::chart::{Group, groups};
use super::super::report::{Findings, Goal};
use super::super::rounds::{middle, ppm, ratio};
use super::stage::{Sample, Side};
use super::{Case, SyncArguments};
use crate::load::sync::Commit;
use serde_json::{Value, json};
use std::time::Duration;
use windrow_console::figures::{factor, nanoseconds};
use windrow_console::table::Table;
use windrow_engine::WrittenBytes;
use windrow_host::Histogram;
use windrow_types::BLOCK_BYTES;

/// Goals: rate with a journal, as a multiple of that without; bytes to members, as a share.
pub const GOALS: (f64, f64) = (3.0, 1.0 / 3.0);
/// Goal: padding on members with a journal device, relative to user bytes. Between measurements an
/// unfinished batch is padded once.
const GOAL_PADDING: f64 = 0.001;
/// Percentiles shown, per 100 000.
const PARTS: [(&str, u64); 4] = [
    ("50 %", 50_000),
    ("99 %", 99_000),
    ("99.9 %", 99_900),
    ("99.99 %", 99_990),
];

/// A load on one of the pools, over all rounds.
struct Figures {
    per_second: f64,
    commits_per_second: f64,
    latency: Histogram,
    commits: f64,
    user_bytes: f64,
    by_cause: Vec<(&'static str, u64)>,
    member_bytes: u64,
    member_flushes: u64,
    /// Rounds, bytes of records, flushes left to the log because: cheaper, not all listed, no free
    /// chunk.
    journal: [u64; 6],
    cpu_seconds: f64,
}

impl Figures {
    fn new(rounds: &[Sample]) -> Self {
        let mut latency = Histogram::default();
        rounds
            .iter()
            .for_each(|sample| latency.merge(&sample.load.latency));
        let sum = |of: &dyn Fn(&Sample) -> u64| rounds.iter().map(of).sum::<u64>();
        let causes = causes(&WrittenBytes::default()).map(|(name, _)| name);
        let by_cause: Vec<(&str, u64)> = causes
            .iter()
            .enumerate()
            .map(|(at, name)| (*name, sum(&|sample| causes_of(sample)[at])))
            .collect();
        Self {
            per_second: middle(rounds, |sample| sample.load.writes_per_second()),
            commits_per_second: middle(rounds, |sample| sample.load.commits_per_second()),
            latency,
            commits: sum(&|sample| sample.load.commits).max(1) as f64,
            user_bytes: (sum(&|sample| sample.load.blocks).max(1) * BLOCK_BYTES) as f64,
            by_cause,
            member_bytes: sum(&|sample| sample.written.total()),
            member_flushes: sum(&|sample| sample.member_flushes),
            journal: [
                sum(&|sample| sample.journal.rounds),
                sum(&|sample| sample.journal.record_bytes),
                sum(&|sample| sample.journal.log_cheaper),
                sum(&|sample| sample.journal.log_unlisted),
                sum(&|sample| sample.journal.log_full),
                sum(&|sample| sample.journal.both),
            ],
            cpu_seconds: rounds.iter().map(|sample| sample.cpu_seconds).sum(),
        }
    }

    fn bytes_per_user_byte(&self) -> f64 {
        self.member_bytes as f64 / self.user_bytes
    }

    fn flushes_per_commit(&self) -> f64 {
        self.member_flushes as f64 / self.commits
    }

    fn json(&self, case: &Case<'_>, side: &Side, rounds: &[Sample]) -> Value {
        let per_user_byte: serde_json::Map<String, Value> = self
            .by_cause
            .iter()
            .map(|(name, bytes)| {
                (
                    (*name).to_owned(),
                    json!(ppm(*bytes as f64 / self.user_bytes)),
                )
            })
            .collect();
        let [
            journal_rounds,
            record_bytes,
            log_cheaper,
            log_unlisted,
            log_full,
            both,
        ] = self.journal;
        json!({
            "load": case.load.name, "threads": case.threads, "pool": side.kind.name(),
            "writes_per_second": self.per_second as u64, "commits_per_second": self.commits_per_second as u64, "latency": self.latency.summary(),
            "member_bytes_per_user_byte_ppm": ppm(self.bytes_per_user_byte()), "by_cause_per_user_byte_ppm": per_user_byte,
            "member_flushes_per_commit_ppm": ppm(self.flushes_per_commit()), "cpu_ns_per_commit": (self.cpu_seconds * 1e9 / self.commits) as u64,
            "journal": {
                "rounds": journal_rounds, "record_bytes": record_bytes, "log_cheaper": log_cheaper, "log_unlisted": log_unlisted, "log_full": log_full, "both": both,
            },
            "rounds": rounds.iter().map(|sample| json!({
                "writes_per_second": sample.load.writes_per_second() as u64, "commits": sample.load.commits, "written": sample.written,
                "member_flushes": sample.member_flushes, "latency_p50_ns": sample.load.latency.quantile_ns(50_000),
            })).collect::<Vec<_>>(),
        })
    }
}

fn causes(written: &WrittenBytes) -> [(&'static str, u64); 10] {
    [
        ("user", written.user),
        ("header", written.header),
        ("parity", written.parity),
        ("padding", written.padding),
        ("moved", written.moved),
        ("journal", written.journal),
        ("checkpoint", written.checkpoint),
        ("index", written.index),
        ("superblock", written.superblock),
        ("repair", written.repair + written.rebuild),
    ]
}

fn causes_of(sample: &Sample) -> [u64; 10] {
    causes(&sample.written).map(|(_, bytes)| bytes)
}

/// Builds all results.
pub fn make(
    arguments: &SyncArguments,
    sides: &[Side],
    time: Duration,
    cases: &[(&Case<'_>, &[Vec<Sample>])],
) -> Findings {
    let mut heading = vec!["LOAD", "THREADS", "POOL", "WRITES/S", "TIMES", "FLUSHES/S"];
    heading.extend(PARTS.iter().map(|(name, _)| *name));
    heading.extend(["MAX", "CPU/FLUSH", "BYTES", "SHARE", "DEVICE FLUSHES"]);
    let mut rates = Table::new(&heading);
    let names: Vec<String> = causes(&WrittenBytes::default())
        .iter()
        .map(|(name, _)| name.to_uppercase())
        .collect();
    let heading: Vec<&str> = ["LOAD", "THREADS", "POOL"]
        .into_iter()
        .chain(names.iter().map(String::as_str))
        .collect();
    let mut bytes = Table::new(&heading);
    let mut journal = Table::new(&[
        "LOAD",
        "THREADS",
        "POOL",
        "FLUSHES",
        "ROUNDS",
        "RECORD BYTES",
        "LOG CHEAPER",
        "LOG UNLISTED",
        "LOG FULL",
    ]);
    let (mut rows, mut bars, mut goals) = (Vec::new(), Vec::new(), Vec::new());
    for (case, samples) in cases {
        let all: Vec<Figures> = samples.iter().map(|rounds| Figures::new(rounds)).collect();
        let padding = sides.len() - 1;
        for (at, (figures, side)) in all.iter().zip(sides).enumerate() {
            let times = ratio(
                &samples[at],
                &samples[padding],
                |sample| sample.load.writes_per_second(),
                |sample| sample.load.writes_per_second(),
            );
            let share =
                figures.bytes_per_user_byte() / all[padding].bytes_per_user_byte().max(1e-9);
            let own = [
                case.load.name.clone(),
                case.threads.to_string(),
                side.kind.name().to_owned(),
            ];
            let mut cells = own.to_vec();
            cells.extend([
                format!("{:.0}", figures.per_second),
                factor(ppm(times)),
                format!("{:.0}", figures.commits_per_second),
            ]);
            cells.extend(
                PARTS
                    .iter()
                    .map(|(_, part)| nanoseconds(figures.latency.quantile_ns(*part))),
            );
            cells.extend([
                nanoseconds(figures.latency.quantile_ns(100_000)),
                nanoseconds((figures.cpu_seconds * 1e9 / figures.commits) as u64),
            ]);
            cells.extend([
                factor(ppm(figures.bytes_per_user_byte())),
                factor(ppm(share)),
                factor(ppm(figures.flushes_per_commit())),
            ]);
            rates.row(cells);
            let per_user_byte = figures
                .by_cause
                .iter()
                .map(|(_, bytes)| factor(ppm(*bytes as f64 / figures.user_bytes)));
            bytes.row(own.clone().into_iter().chain(per_user_byte));
            rows.push(figures.json(case, side, &samples[at]));
            if at < padding {
                let counts = figures.journal.map(|count| count.to_string());
                journal.row(
                    own.into_iter()
                        .chain([format!("{:.0}", figures.commits)])
                        .chain(counts),
                );
                goals.extend(judged(case, side, figures, times, share));
            }
        }
        bars.push(Group {
            label: format!("{} x {}", case.load.name, case.threads),
            values: all.iter().map(|figures| Some(figures.per_second)).collect(),
        });
    }
    let mut text = format!(
        "Synchronous writes of 4 KiB: {}, {} of the usable space live, {} % of what is written random, {} rounds\n{}",
        sides[0].scratch.describe(),
        arguments.full,
        arguments.random,
        arguments.rounds.rounds,
        sides.iter().map(settled).collect::<String>(),
    );
    if !cases.is_empty() {
        text.push_str(&format!("in process, {:.1} s each; rates and their ratio are medians, latencies and bytes of all rounds\n", time.as_secs_f64()));
        text.push_str(&format!(
            "{}bytes to members for each byte that users wrote\n{}",
            rates.render(),
            bytes.render()
        ));
        text.push_str(&format!("of the journal\n{}", journal.render()));
    }
    let value = json!({
        "scratch": sides[0].scratch.json(), "full_per_mille": arguments.full.0, "random_percent": arguments.random, "journal_bytes": arguments.journal.map(|size| size.0),
        "rounds": arguments.rounds.rounds, "seconds_ppm": ppm(time.as_secs_f64()),
        "pools": sides.iter().map(|side| json!({
            "pool": side.kind.name(), "live_bytes": side.span, "utilisation_ppm": ppm(side.utilisation), "settled_ppm": ppm(side.settled),
        })).collect::<Vec<_>>(),
        "results": rows,
    });
    let picture = groups("Synchronous writes per second", &names_of(sides), &bars);
    Findings {
        name: "sync",
        value,
        text,
        picture,
        goals,
    }
}

fn settled(side: &Side) -> String {
    let (name, share, times) = (side.kind.name(), side.utilisation, side.settled);
    format!(
        "{name}: U {share:.3} after overwrites without flushes, then the space that was left written {times:.2} times by synchronous writers\n"
    )
}

fn names_of(sides: &[Side]) -> Vec<&'static str> {
    sides.iter().map(|side| side.kind.name()).collect()
}

/// Goals that apply: flushes of a single block. Those of rate and bytes are for a journal on the
/// members; with a journal device the members get full rows only.
fn judged(case: &Case<'_>, side: &Side, figures: &Figures, times: f64, share: f64) -> Vec<Goal> {
    if !matches!(case.load.commit, Commit::Flush(1) | Commit::Fua) {
        return Vec::new();
    }
    let name = side.kind.name();
    let of = |what: &str| format!("{} x {}, {what}", case.load.name, case.threads);
    let device_flushes = of(&format!("device flushes for each flush, {name}:"));
    if side.kind.is_on_devices() {
        let padding = figures
            .by_cause
            .iter()
            .find(|(cause, _)| *cause == "padding")
            .map_or(0, |(_, bytes)| *bytes);
        let goal = Goal::at_most(
            of(&format!("padding on members of the user's bytes, {name}:")),
            padding as f64 / figures.user_bytes,
            GOAL_PADDING,
        );
        return vec![
            goal,
            Goal::at_most(
                device_flushes,
                figures.flushes_per_commit(),
                side.kind.most_flushes(side.scratch.tolerance()),
            ),
        ];
    }
    vec![
        Goal::at_least(
            of("rate with a journal, of that with padding:"),
            times,
            GOALS.0,
        ),
        Goal::at_most(
            of("bytes to members with a journal, of those with padding:"),
            share,
            GOALS.1,
        ),
        Goal::at_most(
            device_flushes,
            figures.flushes_per_commit(),
            side.kind.most_flushes(side.scratch.tolerance()),
        ),
    ]
}

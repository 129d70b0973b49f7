//! `bench engine`: load in process. On files each round also measures the linear write rate of the
//! same files, written concurrently with the same write size. The ratio is to that rate times the
//! share of data columns.

use super::case::{Case, SPARE_PER_MILLE, Sample, fill, fresh, measure};
use super::chart::{Group, groups};
use super::report::{Findings, Goal, ReportArguments};
use super::rounds::{RoundArguments, Step, alternate, depth, middle, ppm, writers};
use super::scratch::{Scratch, ScratchArguments};
use super::steady::{self, SteadyPlan, SteadyResult};
use clap::Args;
use serde_json::{Value, json};
use std::time::Duration;
use windrow_console::figures::{factor, median, megabytes, nanoseconds};
use windrow_console::output::Output;
use windrow_console::table::Table;
use windrow_console::values::{Share, Size};
use windrow_host::daemon;
use windrow_host::failure::{Failure, id};
use windrow_load::linear::{self, LinearResult};
use windrow_load::machine::Meter;

/// Arguments of `bench engine`.
#[derive(Args)]
#[command(after_help = "Examples:
  windrow-bench engine
  windrow-bench engine --dir /var/tmp --size 2G --rounds 5 --full 70%,90%
  windrow-bench engine --block 4K,8K,16K,32K,64K,128K,256K --picture blocks.svg
  windrow-bench engine --writers 1,10,100 --depth 1
  windrow-bench engine --linear --writers 1,4
  windrow-bench engine --read-percent 70 -o json")]
pub struct EngineArguments {
    #[command(flatten)]
    scratch: ScratchArguments,
    #[command(flatten)]
    rounds: RoundArguments,
    #[command(flatten)]
    report: ReportArguments,
    /// Request sizes, one run each.
    #[arg(long, value_delimiter = ',', default_value = "4K")]
    block: Vec<Size>,
    /// Numbers of writers, one run each.
    #[arg(long, value_delimiter = ',', default_value = "1", value_parser = writers)]
    writers: Vec<usize>,
    /// Requests in flight of each writer.
    #[arg(long, default_value = "128", value_parser = depth)]
    depth: usize,
    /// Share of reads in per cent; the volume is filled first.
    #[arg(long, default_value = "0", value_parser = windrow_console::values::within::<u32>(0, 100))]
    read_percent: u32,
    /// Sequential addresses instead of random ones.
    #[arg(long)]
    linear: bool,
    /// Share of the usable space that a filled volume takes, in per cent.
    #[arg(long, default_value = "100", value_parser = windrow_console::values::within::<u64>(1, 100))]
    fill: u64,
    /// Continue when the fresh space is used up, instead of starting again with a new pool.
    #[arg(long)]
    overwrite: bool,
    /// Then measure the steady state of random overwrites at these shares of live space, as
    /// `bench steady` does.
    #[arg(long, value_delimiter = ',')]
    full: Vec<Share>,
}

/// Default seconds of a measurement on files and in memory.
const SECONDS: (u64, u64) = (30, 5);
/// Goal: 4 KiB random writes in memory, per second.
const GOAL_WRITES: f64 = 600_000.0;
/// Goal: 4 KiB random writes on fresh files, as a share of the files' linear rate.
const GOAL_RATIO: f64 = 0.85;

struct Round {
    sample: Sample,
    linear: Option<LinearResult>,
}

impl Round {
    fn ratio(&self, data_share: f64) -> Option<f64> {
        self.linear.map(|linear| {
            self.sample.load.bytes_per_second() / (linear.bytes_per_second() * data_share).max(1.0)
        })
    }
}

/// Runs the benchmark.
pub fn run(arguments: &EngineArguments, output: &Output) -> Result<u8, Failure> {
    let meter = Meter::start();
    let cases = cases(arguments)?;
    let scratch = Scratch::make(&arguments.scratch)?;
    let time = arguments.rounds.time(if scratch.is_files() {
        SECONDS.0
    } else {
        SECONDS.1
    });
    let names: Vec<String> = cases
        .iter()
        .map(|case| {
            format!(
                "{} x {} writers",
                Size(u64::from(case.block_bytes)),
                case.writers
            )
        })
        .collect();
    let rounds = alternate(&names, arguments.rounds.rounds, &mut |case, step| {
        round(arguments, &scratch, &cases[case], time, step)
    })?;
    let rows: Vec<Value> = cases
        .iter()
        .zip(&rounds)
        .map(|(case, rounds)| summarize(case, rounds, scratch.data_share()))
        .collect();
    let mut full = Vec::new();
    for wanted in &arguments.full {
        // Two overwrites after the fill bring uniform overwrites near their steady state; `settle`
        // continues until `U` is stable.
        let plan = SteadyPlan {
            overwrites: 2,
            measure: 1,
            depth: arguments.depth,
            linear_time: time,
        };
        full.push(steady::measure(&scratch, *wanted, &plan)?);
    }
    let value = json!({
        "scratch": scratch.json(), "depth": arguments.depth, "read_percent": arguments.read_percent, "linear": arguments.linear,
        "rounds": arguments.rounds.rounds, "seconds_ppm": ppm(time.as_secs_f64()), "results": rows,
        "full": full.iter().map(|result| result.json(scratch.data_share())).collect::<Vec<_>>(),
    });
    let bars: Vec<Group> = names
        .iter()
        .zip(&rows)
        .map(|(name, row)| bar(name, row))
        .collect();
    let series: &[&str] = if scratch.is_files() {
        &["windrow", "files x data share"]
    } else {
        &["windrow"]
    };
    let picture = groups(&format!("{}, MB/s", title(arguments)), series, &bars);
    let goals = goals(arguments, &scratch, &rows);
    Findings {
        name: "engine",
        value,
        text: text(arguments, &scratch, time, &rows, &full),
        picture,
        goals,
    }
    .publish(&meter, &arguments.report, output)
}

fn cases(arguments: &EngineArguments) -> Result<Vec<Case>, Failure> {
    let mut cases = Vec::new();
    for block in &arguments.block {
        let block_bytes = block_bytes(*block)?;
        let EngineArguments {
            depth,
            read_percent,
            linear,
            ..
        } = *arguments;
        cases.extend(arguments.writers.iter().map(|writers| Case {
            block_bytes,
            writers: *writers,
            depth,
            read_percent,
            linear,
        }));
    }
    Ok(cases)
}

/// A request size: a multiple of 512 bytes up to 32 MiB.
pub fn block_bytes(size: Size) -> Result<u32, Failure> {
    let fits = size.0 > 0 && size.0 <= 32 << 20 && size.0.is_multiple_of(512);
    let refused = || {
        Failure::new(
            id::USAGE,
            format!("requests cannot have {size}"),
            "they are multiples of 512 bytes, up to 32 MiB",
        )
    };
    u32::try_from(size.0)
        .ok()
        .filter(|_| fits)
        .ok_or_else(|| refused().remedy("choose another --block"))
}

fn title(arguments: &EngineArguments) -> String {
    let order = if arguments.linear { "Linear" } else { "Random" };
    match arguments.read_percent {
        0 => format!("{order} writes"),
        100 => format!("{order} reads"),
        share => format!("{order} accesses, {share} % reads"),
    }
}

fn round(
    arguments: &EngineArguments,
    scratch: &Scratch,
    case: &Case,
    time: Duration,
    step: &Step<'_>,
) -> Result<Round, Failure> {
    let mut linear = scratch.is_files().then(LinearResult::default);
    let mut slice_of_members = |slice: Duration| -> Result<(), Failure> {
        let Some(sum) = &mut linear else {
            return Ok(());
        };
        let mut progress = step.progress();
        *sum += linear::measure_from(
            sum.bytes,
            &scratch.members,
            scratch.chunk_bytes(),
            slice,
            &mut |bytes| {
                progress.time(slice, &format!("members alone {}", Size(bytes)));
            },
        )?;
        Ok(())
    };
    let sample = if case.read_percent == 0 && !arguments.overwrite {
        fresh(scratch, case, time, step, &mut slice_of_members)?
    } else {
        slice_of_members(time)?;
        let pool = scratch.pool(SPARE_PER_MILLE, 100)?;
        let mut span = daemon::report(&pool)?.capacity.usable_bytes / 100 * arguments.fill;
        if case.read_percent > 0 {
            span = fill(&pool, span, &step.label())?;
        }
        measure(
            &pool,
            &case.spec(span, time, step.round as u64 + 1),
            &mut step.progress(),
        )?
    };
    // The members get at least as much time as the load.
    let had = linear.map_or(time, |linear| linear.elapsed);
    if had < time {
        let Some(sum) = &mut linear else {
            return Ok(Round { sample, linear });
        };
        *sum += linear::measure_from(
            sum.bytes,
            &scratch.members,
            scratch.chunk_bytes(),
            time - had,
            &mut |_| (),
        )?;
    }
    Ok(Round { sample, linear })
}

fn summarize(case: &Case, rounds: &[Round], data_share: f64) -> Value {
    let linear: Vec<f64> = rounds
        .iter()
        .filter_map(|round| round.linear.map(|linear| linear.bytes_per_second()))
        .collect();
    let ratios: Vec<f64> = rounds
        .iter()
        .filter_map(|round| round.ratio(data_share))
        .collect();
    let of_files = |values: &[f64], scale: f64| {
        if values.is_empty() {
            Value::Null
        } else {
            json!((median(values) * scale) as u64)
        }
    };
    let latency = |part: u64| {
        middle(rounds, |round| {
            round.sample.load.latency.quantile_ns(part) as f64
        }) as u64
    };
    json!({
        "block_bytes": case.block_bytes,
        "writers": case.writers,
        "requests_per_second": middle(rounds, |round| round.sample.load.per_second()) as u64,
        "bytes_per_second": middle(rounds, |round| round.sample.load.bytes_per_second()) as u64,
        "linear_bytes_per_second": of_files(&linear, 1.0),
        "linear_data_bytes_per_second": of_files(&linear, data_share),
        "ratio_ppm": of_files(&ratios, 1e6),
        "cpu_ns_per_request": middle(rounds, |round| round.sample.cpu_ns()) as u64,
        "latency_p50_ns": latency(50_000),
        "latency_p99_9_ns": latency(99_900),
        "write_amplification_ppm": ppm(middle(rounds, |round| round.sample.amplification())),
        "rounds": rounds.iter().map(|round| json!({
            "requests_per_second": round.sample.load.per_second() as u64,
            "bytes_per_second": round.sample.load.bytes_per_second() as u64,
            "linear_bytes_per_second": round.linear.map(|linear| linear.bytes_per_second() as u64),
            "ratio_ppm": round.ratio(data_share).map(ppm),
            "elapsed_us": round.sample.load.elapsed.as_micros() as u64,
            "cpu_ns_per_request": round.sample.cpu_ns() as u64,
        })).collect::<Vec<_>>(),
    })
}

fn goals(arguments: &EngineArguments, scratch: &Scratch, rows: &[Value]) -> Vec<Goal> {
    let is_random_write = arguments.read_percent == 0
        && !arguments.linear
        && !arguments.overwrite
        && arguments.scratch.redundancy == "6";
    let judged = rows
        .iter()
        .filter(|row| is_random_write && row["block_bytes"] == 4096 && row["writers"] == 1);
    judged
        .map(|row| match scratch.is_files() {
            true => {
                let ratio = row["ratio_ppm"].as_f64().unwrap_or(f64::NAN) / 1e6;
                Goal::at_least(
                    "4 KiB random writes on fresh files, of (the files' linear rate x data share):",
                    ratio,
                    GOAL_RATIO,
                )
            }
            false => {
                let rate = row["requests_per_second"].as_f64().unwrap_or(f64::NAN);
                Goal::at_least(
                    "4 KiB random writes per second in memory:",
                    rate,
                    GOAL_WRITES,
                )
            }
        })
        .collect()
}

fn bar(name: &str, row: &Value) -> Group {
    let rate = |field: &str| row[field].as_f64().map(|bytes| bytes / 1e6);
    let values = [
        rate("bytes_per_second"),
        rate("linear_data_bytes_per_second"),
    ];
    Group {
        label: name.to_owned(),
        values: values.into_iter().filter(Option::is_some).collect(),
    }
}

fn text(
    arguments: &EngineArguments,
    scratch: &Scratch,
    time: Duration,
    rows: &[Value],
    full: &[SteadyResult],
) -> String {
    let mut table = Table::new(&[
        "BLOCK",
        "WRITERS",
        "REQUESTS/S",
        "MB/S",
        "LINEAR MB/S",
        "RATIO",
        "CPU NS",
        "MEDIAN",
        "99.9 %",
        "WAF",
    ]);
    rows.iter().for_each(|row| table.row(cells(row)));
    let mut text = format!(
        "{}: {}, {} rounds of {:.1} s, medians; ratio: to (linear rate of the members x {:.3})\n{}",
        title(arguments),
        scratch.describe(),
        arguments.rounds.rounds,
        time.as_secs_f64(),
        scratch.data_share(),
        table.render()
    );
    if !full.is_empty() {
        text.push_str(&format!(
            "steady state of random overwrites:\n{}",
            steady::render(full, scratch.data_share())
        ));
    }
    text
}

fn cells(row: &Value) -> Vec<String> {
    let number = |field: &str| row[field].as_u64();
    let rate = |field: &str| number(field).map_or("-".to_owned(), |bytes| megabytes(bytes as f64));
    vec![
        Size(number("block_bytes").unwrap_or(0)).to_string(),
        row["writers"].to_string(),
        row["requests_per_second"].to_string(),
        rate("bytes_per_second"),
        rate("linear_bytes_per_second"),
        number("ratio_ppm").map_or("-".to_owned(), factor),
        row["cpu_ns_per_request"].to_string(),
        nanoseconds(number("latency_p50_ns").unwrap_or(0)),
        nanoseconds(number("latency_p99_9_ns").unwrap_or(0)),
        factor(number("write_amplification_ppm").unwrap_or(0)),
    ]
}

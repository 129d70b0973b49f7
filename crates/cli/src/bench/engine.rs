//! `bench engine`.

use super::chart::{Bar, bars};
use super::scratch::{Scratch, ScratchArguments, cpu_seconds};
use crate::figures::{factor, median, megabytes, nanoseconds};
use crate::load::linear;
use crate::load::session::{LoadResult, LoadSpec, run as run_load};
use crate::output::Output;
use crate::progress::Progress;
use crate::table::Table;
use crate::values::Size;
use clap::Args;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;
use windrow_host::failure::{Failure, id};
use windrow_host::report::PoolReport;
use windrow_host::{Pool, daemon};

/// Arguments of `bench engine`.
#[derive(Args)]
#[command(after_help = "Examples:
  windrow bench engine
  windrow bench engine --dir /var/tmp --size 2G --seconds 30 --rounds 5
  windrow bench engine --block 4K,8K,16K,32K,64K,128K,256K --chart blocks.svg
  windrow bench engine --writers 1,10,100 --depth 1
  windrow bench engine --read-percent 70 -o json")]
pub struct EngineArguments {
    #[command(flatten)]
    scratch: ScratchArguments,
    /// Request sizes, one run each.
    #[arg(long, value_delimiter = ',', default_value = "4K")]
    block: Vec<Size>,
    /// Numbers of writers, one run each.
    #[arg(long, value_delimiter = ',', default_value = "1")]
    writers: Vec<usize>,
    /// Requests in flight of each writer.
    #[arg(long, default_value = "128")]
    depth: usize,
    /// Share of reads in per cent; the volume is filled before.
    #[arg(long, default_value = "0", value_parser = clap::value_parser!(u32).range(0..=100))]
    read_percent: u32,
    /// Addresses in order instead of at random.
    #[arg(long)]
    linear: bool,
    /// Share of the usable space that the volume takes, in per cent.
    #[arg(long, default_value = "100", value_parser = clap::value_parser!(u64).range(1..=100))]
    fill: u64,
    /// Seconds of each measurement. A write load ends before the fresh space is used up, unless --overwrite is given.
    #[arg(long, default_value = "5")]
    seconds: u64,
    /// Go on when the fresh space is used up.
    #[arg(long)]
    overwrite: bool,
    /// Rounds.
    #[arg(long, default_value = "5")]
    rounds: usize,
    /// Write a picture here (SVG).
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,
}

struct Round {
    result: LoadResult,
    cpu_seconds: f64,
    linear: Option<f64>,
    report: PoolReport,
}

/// Runs it.
pub fn run(arguments: &EngineArguments, output: &Output) -> Result<u8, Failure> {
    let scratch = Scratch::make(&arguments.scratch)?;
    let mut table = Table::new(&["BLOCK", "WRITERS", "REQUESTS/S", "MB/S", "LINEAR MB/S", "RATIO", "CPU NS", "MEDIAN", "99.9 %", "WAF"]);
    let (mut rows, mut chart) = (Vec::new(), Vec::new());
    for block in &arguments.block {
        for writers in &arguments.writers {
            let rounds = (0..arguments.rounds).map(|round| measure(arguments, &scratch, block.0, *writers, round)).collect::<Result<Vec<_>, _>>()?;
            let row = summarize(block.0, *writers, &rounds, scratch.data_share());
            table.row(cells(&row));
            chart.push(Bar { label: format!("{block} x{writers}"), value: row["bytes_per_second"].as_f64().unwrap_or(0.0) / 1e6 });
            rows.push(row);
        }
    }
    if let Some(path) = &arguments.chart {
        let picture = bars("Random writes, MB/s", &chart);
        std::fs::write(path, picture).map_err(|error| Failure::new(id::LOCAL_FILE, format!("cannot write {}", path.display()), error))?;
    }
    let value = json!({
        "members": arguments.scratch.members, "member_bytes": arguments.scratch.size.0, "files": scratch.is_files(),
        "redundancy": arguments.scratch.redundancy, "depth": arguments.depth, "read_percent": arguments.read_percent, "linear": arguments.linear,
        "rounds": arguments.rounds, "results": rows,
    });
    output.result("bench-engine", &value, || {
        format!(
            "{} members of {} {}, RAID-{}, {} rounds, medians; ratio: to (linear rate of the members x {:.3})\n{}",
            arguments.scratch.members,
            arguments.scratch.size,
            if scratch.is_files() { "in files" } else { "in memory" },
            arguments.scratch.redundancy,
            arguments.rounds,
            scratch.data_share(),
            table.render()
        )
    });
    Ok(0)
}

fn measure(arguments: &EngineArguments, scratch: &Scratch, block_bytes: u64, writers: usize, round: usize) -> Result<Round, Failure> {
    let time = Duration::from_secs(arguments.seconds);
    let linear = match scratch.is_files() {
        true => {
            let mut progress = Progress::new("linear rate of the members");
            let result =
                linear::measure(&scratch.members, arguments.scratch.chunk.0 as usize, time, &mut |bytes| progress.time(time, &Size(bytes).to_string()))?;
            Some(result.bytes_per_second())
        }
        false => None,
    };
    let pool = scratch.pool(100, None)?;
    let capacity = daemon::report(&pool)?.capacity;
    let span = capacity.usable_bytes / 100 * arguments.fill;
    let mut spec = LoadSpec {
        block_bytes: u32::try_from(block_bytes).unwrap_or(4096),
        span_bytes: span,
        writers,
        depth: arguments.depth,
        read_percent: arguments.read_percent,
        linear: arguments.linear,
        time_max: time,
        bytes_max: if arguments.overwrite { u64::MAX } else { capacity.data_bytes / 10 * 8 },
        seed: round as u64 + 1,
    };
    if arguments.read_percent > 0 {
        fill(&pool, span)?;
        spec.bytes_max = u64::MAX;
    }
    let cpu = cpu_seconds();
    let result = run_load(&pool, "data", &spec)?;
    let cpu_seconds = cpu_seconds() - cpu;
    if result.errors > 0 {
        let why = pool.stop_reason().unwrap_or_else(|| "see the log".to_owned());
        return Err(Failure::new(id::BENCH, format!("{} requests failed", result.errors), why));
    }
    let report = daemon::report(&pool)?;
    drop(pool);
    Ok(Round { result, cpu_seconds, linear, report })
}

/// Writes the span once, in order.
pub fn fill(pool: &Pool, span_bytes: u64) -> Result<(), Failure> {
    let block_bytes = 256 << 10;
    let spec = LoadSpec {
        block_bytes,
        span_bytes: span_bytes.next_multiple_of(u64::from(block_bytes)).min(span_bytes / u64::from(block_bytes) * u64::from(block_bytes)),
        writers: 1,
        depth: 16,
        read_percent: 0,
        linear: true,
        time_max: Duration::from_secs(3600),
        bytes_max: span_bytes / u64::from(block_bytes) * u64::from(block_bytes),
        seed: 99,
    };
    let result = run_load(pool, "data", &spec)?;
    match result.errors {
        0 => Ok(()),
        errors => Err(Failure::new(id::BENCH, format!("{errors} requests failed while the volume was filled"), pool.stop_reason().unwrap_or_default())),
    }
}

fn summarize(block_bytes: u64, writers: usize, rounds: &[Round], data_share: f64) -> Value {
    let of = |value: &dyn Fn(&Round) -> f64| median(&rounds.iter().map(value).collect::<Vec<_>>());
    let rate = of(&|round| round.result.bytes_per_second());
    let linear: Vec<f64> = rounds.iter().filter_map(|round| round.linear).collect();
    let ratios: Vec<f64> = rounds.iter().filter_map(|round| round.linear.map(|linear| round.result.bytes_per_second() / (linear * data_share))).collect();
    let latency = |pick: &dyn Fn(&LoadResult) -> u64| of(&|round| pick(&round.result) as f64) as u64;
    json!({
        "block_bytes": block_bytes,
        "writers": writers,
        "requests_per_second": of(&|round| round.result.per_second()) as u64,
        "bytes_per_second": rate as u64,
        "linear_bytes_per_second": if linear.is_empty() { Value::Null } else { json!(median(&linear) as u64) },
        "ratio_ppm": if ratios.is_empty() { Value::Null } else { json!((median(&ratios) * 1e6) as u64) },
        "cpu_ns_per_request": of(&|round| round.cpu_seconds * 1e9 / round.result.requests.max(1) as f64) as u64,
        "latency_p50_ns": latency(&|result| result.latency.quantile_ns(50_000)),
        "latency_p99_9_ns": latency(&|result| result.latency.quantile_ns(99_900)),
        "write_amplification_ppm": of(&|round| round.report.amplification.total_ppm as f64) as u64,
        "rounds": rounds.iter().map(|round| json!({
            "bytes_per_second": round.result.bytes_per_second() as u64, "linear_bytes_per_second": round.linear.map(|linear| linear as u64),
            "elapsed_us": round.result.elapsed.as_micros() as u64, "written": round.report.counters.written,
        })).collect::<Vec<_>>(),
    })
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

//! `bench reduce`: cost and gain of compression. 4 KiB random writes in process go to a volume
//! without compression, to one with LZ4 and to one with zstd. The codecs also compress the same
//! blocks alone, all in turn. Goals: the processor time of an LZ4 block against that of a plain one
//! and the codec together (shown for zstd, too), and the blocks that compressed payload takes in
//! batches against the codec's output. On members of a given rate, which set the pace,
//! LZ4-compressible blocks must be written faster than plain ones.

use super::case::{Case, EXPORT, SPARE_PER_MILLE, Sample, measure};
use super::chart::{Group, groups};
use super::report::{Findings, Goal, ReportArguments};
use super::rounds::{RoundArguments, Step, alternate, depth, middle, ppm};
use super::scratch::{Scratch, ScratchArguments};
use clap::Args;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use windrow_console::figures::{factor, median};
use windrow_console::output::Output;
use windrow_console::table::Table;
use windrow_engine::ReductionSums;
use windrow_format::checkpoint::{Compression, Dedup};
use windrow_host::daemon;
use windrow_host::failure::Failure;
use windrow_load::machine::{Meter, cpu_seconds};
use windrow_load::session::diluted;
use windrow_reduction::{Codec, Compressor};
use windrow_types::BLOCK_SIZE;

/// Arguments of `bench reduce`.
#[derive(Args)]
#[command(after_help = "Examples:
  windrow-bench reduce --size 256M
  windrow-bench reduce --size 1G --random 25,50,100 --rounds 5 -o json
  windrow-bench reduce --dir /var/tmp --member-rate 200M --random 25")]
pub struct ReduceArguments {
    #[command(flatten)]
    scratch: ScratchArguments,
    #[command(flatten)]
    rounds: RoundArguments,
    #[command(flatten)]
    report: ReportArguments,
    /// Shares of random bytes in the written data, in per cent; the rest is compressible.
    #[arg(long, value_delimiter = ',', default_value = "25,100", value_parser = windrow_console::values::within::<u32>(1, 100))]
    random: Vec<u32>,
    /// Requests in flight.
    #[arg(long, default_value = "128", value_parser = depth)]
    depth: usize,
}

/// Maximum processor time of a compressed block, relative to that of a plain one and the codec
/// together.
const GOAL_CPU: f64 = 1.15;
/// Maximum blocks of compressed payload, relative to the codec's output.
const GOAL_COMPRESSED: f64 = 1.03;

/// On members of a given rate: rate of a compressing volume relative to a plain one, with
/// compressible blocks.
const GOAL_RATE: f64 = 1.0;

/// Measurement of one content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Plain,
    /// A compressing volume.
    Compressed(Codec),
    /// The codec alone.
    Alone(Codec),
    /// LZ4, under the load of `bench dedup`.
    Undeduplicated,
    /// LZ4 and deduplication by a cryptographic hash, and by comparison.
    Hash,
    Verify,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    /// Processor time per request, in nanoseconds.
    pub(super) cpu_ns: f64,
    /// Requests per second.
    pub(super) requests_per_second: f64,
    sums: ReductionSums,
    /// Blocks that deduplication found.
    pub(super) found_ppm: u64,
}

/// Runs the benchmark.
pub fn run(arguments: &ReduceArguments, output: &Output) -> Result<u8, Failure> {
    let meter = Meter::start();
    let scratch = Scratch::make(&arguments.scratch)?;
    let time = arguments.rounds.time(5);
    let [compressed, alone] =
        [Kind::Compressed as fn(Codec) -> Kind, Kind::Alone].map(|kind| CODECS.map(kind));
    let kinds = [
        Kind::Plain,
        compressed[0],
        alone[0],
        compressed[1],
        alone[1],
    ];
    let cases: Vec<(u32, Kind)> = arguments
        .random
        .iter()
        .flat_map(|random| kinds.map(|kind| (*random, kind)))
        .collect();
    let names: Vec<String> = cases
        .iter()
        .map(|(random, kind)| format!("{random} % random, {kind:?}").to_lowercase())
        .collect();
    let rounds = alternate(&names, arguments.rounds.rounds, &mut |case, step| {
        let (random, kind) = cases[case];
        if let Kind::Alone(by) = kind {
            Ok(codec(by, random, time))
        } else {
            load(&scratch, arguments.depth, (random, 0), kind, time, step)
        }
    })?;
    let rows_of = |(random, of): (&u32, &[Vec<Figures>])| {
        [
            summarize(*random, CODECS[0], [&of[0], &of[1], &of[2]]),
            summarize(*random, CODECS[1], [&of[0], &of[3], &of[4]]),
        ]
    };
    let rows: Vec<Value> = arguments
        .random
        .iter()
        .zip(rounds.chunks_exact(kinds.len()))
        .flat_map(rows_of)
        .collect();
    let text = text(&scratch, arguments.rounds.rounds, time, &rows);
    let number =
        |row: &Value, field: &str| row[field].as_f64().map_or(f64::NAN, |value| value / 1e6);
    let mut goals = Vec::new();
    for row in &rows {
        let (random, codec) = (
            &row["random_percent"],
            row["codec"].as_str().unwrap_or_default(),
        );
        if codec == name(Codec::Lz4) {
            let what = format!(
                "processor time with {random} % random bytes, of (plain path + codec alone):"
            );
            goals.push(Goal::at_most(what, number(row, "cpu_ratio_ppm"), GOAL_CPU));
            if arguments.scratch.member_rate.is_some()
                && row["codec_bytes"].as_u64().is_some_and(|bytes| bytes > 0)
            {
                let what = format!(
                    "writes to a compressed volume with {random} % random bytes, where members set the pace, of those to a plain one:"
                );
                goals.push(Goal::at_least(
                    what,
                    number(row, "rate_ratio_ppm"),
                    GOAL_RATE,
                ));
            }
        }
        if row["codec_bytes"].as_u64().is_some_and(|bytes| bytes > 0) {
            goals.push(Goal::at_most(
                format!(
                    "compressed blocks ({codec}) with {random} % random bytes, of the codec's bytes:"
                ),
                number(row, "packed_ratio_ppm"),
                GOAL_COMPRESSED,
            ));
        }
    }
    let cpu = |row: &Value, field: &str| row[field].as_f64();
    let bars: Vec<Group> = rows
        .iter()
        .map(|row| {
            let values =
                ["plain_cpu_ns", "codec_cpu_ns", "packed_cpu_ns"].map(|field| cpu(row, field));
            Group {
                label: format!(
                    "{}, {} % random",
                    row["codec"].as_str().unwrap_or_default(),
                    row["random_percent"]
                ),
                values: values.to_vec(),
            }
        })
        .collect();
    let picture = groups(
        "Processor time of a 4 KiB write, ns",
        &["plain path", "codec alone", "compressed volume"],
        &bars,
    );
    let value = json!({ "scratch": scratch.json(), "rounds": arguments.rounds.rounds, "seconds_ppm": ppm(time.as_secs_f64()), "results": rows });
    Findings {
        name: "reduce",
        value,
        text,
        picture,
        goals,
    }
    .publish(&meter, &arguments.report, output)
}

/// Writes to new pools, each until its fresh space is nearly used up.
pub(super) fn load(
    scratch: &Scratch,
    depth: usize,
    (random_percent, distinct_percent): (u32, u32),
    kind: Kind,
    time: Duration,
    step: &Step<'_>,
) -> Result<Figures, Failure> {
    let case = Case {
        block_bytes: BLOCK_SIZE as u32,
        writers: 1,
        depth,
        read_percent: 0,
        linear: false,
    };
    let (mut sum, mut sums, mut looked_up, mut found) =
        (Sample::default(), ReductionSums::default(), 0u64, 0u64);
    let mut seed = step.round as u64 * 1000 + 1;
    while sum.load.elapsed < time {
        let pool = scratch.pool(SPARE_PER_MILLE, 100)?;
        match kind {
            Kind::Plain => {}
            Kind::Compressed(Codec::Zstd) => {
                _ = daemon::set_compression(&pool, EXPORT, Compression::Zstd)?
            }
            _ => _ = daemon::set_compression(&pool, EXPORT, Compression::Lz4)?,
        }
        match kind {
            Kind::Hash => _ = daemon::set_dedup(&pool, EXPORT, Dedup::Hash)?,
            Kind::Verify => _ = daemon::set_dedup(&pool, EXPORT, Dedup::Verify)?,
            Kind::Plain | Kind::Compressed(_) | Kind::Alone(_) | Kind::Undeduplicated => {}
        }
        let capacity = daemon::report(&pool)?.capacity;
        let mut spec = case.spec(capacity.usable_bytes, time, seed);
        (spec.bytes_max, spec.random_percent, spec.distinct_percent) = (
            capacity.data_bytes / 10 * 8,
            random_percent,
            distinct_percent,
        );
        let part = measure(&pool, &spec, &mut step.progress())?;
        let counters = daemon::report(&pool)?.counters;
        let of = counters.reduction;
        looked_up += counters.dedup.sums.looked_up;
        found += counters.dedup.sums.found;
        sums.tried_bytes += of.tried_bytes;
        sums.compressed_user_bytes += of.compressed_user_bytes;
        sums.codec_bytes += of.codec_bytes;
        sums.stored_bytes += of.stored_bytes;
        sums.area_bytes += of.area_bytes;
        sum.append(&part);
        seed += 1;
    }
    let rate = sum.load.requests as f64 / sum.load.elapsed.as_secs_f64().max(1e-9);
    Ok(Figures {
        cpu_ns: sum.cpu_ns(),
        requests_per_second: rate,
        sums,
        found_ppm: ppm(found as f64 / looked_up.max(1) as f64),
    })
}

/// Codecs in table order.
const CODECS: [Codec; 2] = [Codec::Lz4, Codec::Zstd];

fn name(codec: Codec) -> &'static str {
    match codec {
        Codec::Lz4 => "lz4",
        Codec::Zstd => "zstd",
    }
}

/// Runs a codec alone over the blocks that the loads write.
fn codec(by: Codec, random_percent: u32, time: Duration) -> Figures {
    let blocks = diluted(random_percent);
    let (mut compressor, mut stored) = (Compressor::default(), Vec::with_capacity(BLOCK_SIZE));
    let (begin, cpu, mut done) = (Instant::now(), cpu_seconds(), 0u64);
    while begin.elapsed() < time / 4 {
        for block in blocks.chunks_exact(BLOCK_SIZE).take(256) {
            stored.clear();
            std::hint::black_box(compressor.compress_stored(by, block, &mut stored));
            done += 1;
        }
    }
    let cpu_ns = (cpu_seconds() - cpu) * 1e9 / done.max(1) as f64;
    Figures {
        cpu_ns,
        requests_per_second: done as f64 / begin.elapsed().as_secs_f64().max(1e-9),
        sums: ReductionSums::default(),
        found_ppm: 0,
    }
}

/// A codec's row: plain volume, compressing volume, and codec alone.
fn summarize(random_percent: u32, by: Codec, [plain, compressed, codec]: [&[Figures]; 3]) -> Value {
    let together = plain
        .iter()
        .zip(codec)
        .map(|(plain, codec)| plain.cpu_ns + codec.cpu_ns);
    let ratios: Vec<f64> = compressed
        .iter()
        .zip(together)
        .map(|(compressed, together)| compressed.cpu_ns / together.max(1e-9))
        .collect();
    let rates: Vec<f64> = compressed
        .iter()
        .zip(plain)
        .map(|(compressed, plain)| {
            compressed.requests_per_second / plain.requests_per_second.max(1e-9)
        })
        .collect();
    let sum = |figure: fn(&ReductionSums) -> u64| {
        compressed
            .iter()
            .map(|figures| figure(&figures.sums))
            .sum::<u64>()
    };
    let (area, made) = (sum(|sums| sums.area_bytes), sum(|sums| sums.codec_bytes));
    json!({
        "random_percent": random_percent,
        "codec": name(by),
        "plain_cpu_ns": middle(plain, |figures| figures.cpu_ns) as u64,
        "codec_cpu_ns": middle(codec, |figures| figures.cpu_ns) as u64,
        "packed_cpu_ns": middle(compressed, |figures| figures.cpu_ns) as u64,
        "cpu_ratio_ppm": ppm(median(&ratios)),
        "plain_requests_per_second": middle(plain, |figures| figures.requests_per_second) as u64,
        "packed_requests_per_second": middle(compressed, |figures| figures.requests_per_second) as u64,
        "rate_ratio_ppm": ppm(median(&rates)),
        "tried_bytes": sum(|sums| sums.tried_bytes),
        "packed_user_bytes": sum(|sums| sums.compressed_user_bytes),
        "codec_bytes": made,
        "stored_bytes": sum(|sums| sums.stored_bytes),
        "area_bytes": area,
        "packed_ratio_ppm": if made == 0 { 0 } else { ppm(area as f64 / made as f64) },
    })
}

fn text(scratch: &Scratch, rounds: usize, time: Duration, rows: &[Value]) -> String {
    let mut table = Table::new(&[
        "RANDOM",
        "CODEC",
        "PLAIN NS",
        "CODEC NS",
        "VOLUME NS",
        "RATIO",
        "PLAIN/S",
        "VOLUME/S",
        "USER : PACKED",
        "PACKED : CODEC",
    ]);
    for row in rows {
        let number = |field: &str| row[field].as_u64().unwrap_or(0);
        let (user, area) = (number("packed_user_bytes"), number("area_bytes"));
        let share = if area == 0 {
            "-".to_owned()
        } else {
            factor(ppm(user as f64 / area as f64))
        };
        let compressed = if area == 0 {
            "-".to_owned()
        } else {
            factor(number("packed_ratio_ppm"))
        };
        table.row([
            format!("{} %", number("random_percent")),
            row["codec"].as_str().unwrap_or_default().to_owned(),
            number("plain_cpu_ns").to_string(),
            number("codec_cpu_ns").to_string(),
            number("packed_cpu_ns").to_string(),
            factor(number("cpu_ratio_ppm")),
            number("plain_requests_per_second").to_string(),
            number("packed_requests_per_second").to_string(),
            share,
            compressed,
        ]);
    }
    let seconds = time.as_secs_f64();
    let what = "4 KiB random writes, processor time of all threads for a request, load included";
    format!(
        "{what}: {}, {rounds} rounds of {seconds:.1} s, medians; ratio: compressed volume to (plain + codec)\n{}",
        scratch.describe(),
        table.render()
    )
}

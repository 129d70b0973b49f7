//! `bench dedup`: cost of deduplication, and duplicates found with an index too small for the
//! stored data.
//!
//! *Rate* (`dedup/rate.rs`): LZ4 and deduplication together against LZ4 alone, under the same load.
//!
//! *Found*: several copies of a machine image, with changes in between.
//! 1. The image is a file (of a file system made with `mkfs`), or generated (`dedup/image.rs`).
//! 2. It is written from beginning to end, then copies of it. Before each copy 2 % of the blocks
//!    become new and 2 % of the pieces move.
//! 3. The pool is restarted as after a crash, and one more copy is written.
//!
//! Found is the share of previously written blocks, at any address, that became references. Nothing
//! here depends on time.

mod driver;
mod image;
mod rate;

use super::chart::{Group, groups};
use super::report::{Findings, Goal, ReportArguments};
use super::rounds::{RoundArguments, depth, ppm};
use super::scratch::{Scratch, ScratchArguments};
use clap::Args;
use driver::Driver;
use image::{Content, Image};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::path::PathBuf;
use windrow_console::output::Output;
use windrow_console::progress::Progress;
use windrow_console::table::Table;
use windrow_console::values::Size;
use windrow_engine::{Control, ControlReply};
use windrow_format::checkpoint::{Compression, Dedup};
use windrow_host::failure::{Failure, id};
use windrow_io::{Op, Payload};
use windrow_load::machine::Meter;
use windrow_reduction::Fingerprint;
use windrow_types::{BLOCK_SIZE, VolumeId};

/// Arguments of `bench dedup`.
#[derive(Args)]
#[command(after_help = "Examples:
  windrow-bench dedup
  windrow-bench dedup --part rate --size 256M --distinct 100,50 --seconds 2 --rounds 3
  windrow-bench dedup --part found --image machine.img --copies 4 --index 1M -o json
  windrow-bench dedup --part found --image-size 64G --content repeated --copies 1")]
pub struct DedupArguments {
    #[command(flatten)]
    scratch: ScratchArguments,
    #[command(flatten)]
    rounds: RoundArguments,
    #[command(flatten)]
    report: ReportArguments,
    /// Measurements to run.
    #[arg(long, value_delimiter = ',', default_value = "rate,found", value_parser = ["rate", "found"])]
    part: Vec<String>,
    /// Rate: shares of distinct blocks, in per cent.
    #[arg(long, value_delimiter = ',', default_value = "100,50", value_parser = windrow_console::values::within::<u32>(1, 100))]
    distinct: Vec<u32>,
    /// Rate: requests in flight.
    #[arg(long, default_value = "128", value_parser = depth)]
    depth: usize,
    /// Found: the image; default: generated.
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// Found: size of the generated image.
    #[arg(long, default_value = "256M")]
    image_size: Size,
    /// Found: content of generated blocks. Repeated: 32 bytes, compressed with LZ4, so that a large
    /// index can be tried with little memory.
    #[arg(long, value_enum, default_value = "random")]
    content: Content,
    /// Found: number of copies before the pool is restarted.
    #[arg(long, default_value = "4", value_parser = windrow_console::values::within::<u32>(0, 1000))]
    copies: u32,
    /// Found: memory of the index; default 1/1024 of the image's data, like 64 MiB for 64 GiB.
    #[arg(long)]
    index: Option<Size>,
}

/// Minimum rate of deduplication and LZ4 together, relative to LZ4 alone.
const GOAL_RATE: f64 = 0.6;
/// Minimum share of duplicates found.
const GOAL_FOUND: f64 = 0.95;
/// Ratio of data to memory of the index.
const PART: usize = 1024;
/// Number of blocks of a request, and of concurrent requests.
const RUN: usize = 16;
const DEPTH: usize = 8;

fn failed(why: impl std::fmt::Display) -> Failure {
    Failure::new(id::BENCH_LOAD, "the pool in memory failed", why)
}

/// Runs the benchmark.
pub fn run(arguments: &DedupArguments, output: &Output) -> Result<u8, Failure> {
    let meter = Meter::start();
    let wants = |part: &str| arguments.part.iter().any(|wanted| wanted == part);
    let (mut rates, mut found, mut text, mut goals) =
        (Vec::new(), Vec::new(), String::new(), Vec::new());
    let number =
        |row: &Value, field: &str| row[field].as_f64().map_or(f64::NAN, |value| value / 1e6);
    if wants("rate") {
        let scratch = Scratch::make(&arguments.scratch)?;
        rates = rate::rows(
            &scratch,
            &arguments.rounds,
            &arguments.distinct,
            arguments.depth,
        )?;
        text += &format!(
            "{}, {} rounds\n{}",
            scratch.describe(),
            arguments.rounds.rounds,
            rate::text(&rates)
        );
        for row in &rates {
            for mode in ["hash", "verify"] {
                let what = format!(
                    "deduplication ({mode}) and LZ4 with {} % distinct blocks, of the rate of LZ4 alone:",
                    row["distinct_percent"]
                );
                goals.push(Goal::at_least(
                    what,
                    number(row, &format!("{mode}_ratio_ppm")),
                    GOAL_RATE,
                ));
            }
        }
    }
    if wants("found") {
        found = copies(arguments)?;
        text += &found_text(&found);
        for row in found.iter().filter(|row| row["duplicates"] != 0) {
            let what = format!(
                "duplicates found in {}:",
                row["step"].as_str().unwrap_or_default()
            );
            goals.push(Goal::at_least(what, number(row, "found_ppm"), GOAL_FOUND));
        }
    }
    let picture = picture(&rates, &found);
    let results: Vec<&Value> = rates.iter().chain(&found).collect();
    let value = json!({ "rounds": arguments.rounds.rounds, "copies": arguments.copies, "results": results, "rates": rates, "found": found });
    Findings {
        name: "dedup",
        value,
        text,
        picture,
        goals,
    }
    .publish(&meter, &arguments.report, output)
}

/// Writes the image and its copies; returns a row for each.
fn copies(arguments: &DedupArguments) -> Result<Vec<Value>, Failure> {
    let cannot = |path: &PathBuf, error: std::io::Error| {
        Failure::new(
            id::LOCAL_FILE,
            format!("cannot read {}", path.display()),
            error,
        )
    };
    let file = arguments
        .image
        .as_ref()
        .map(|path| std::fs::read(path).map_err(|error| cannot(path, error)))
        .transpose()?;
    let mut image = Image::new(
        file,
        arguments.image_size.0 as usize / BLOCK_SIZE,
        arguments.content,
    );
    let mut block = [0; BLOCK_SIZE];
    let stored = (0..image.len())
        .filter(|at| image.copy(*at, &mut block))
        .count();
    if stored == 0 {
        return Err(Failure::new(
            id::USAGE,
            "cannot write copies of the image",
            "it holds no data",
        )
        .remedy("name another one, or a larger --image-size"));
    }
    let index_bytes = arguments
        .index
        .map_or((stored * BLOCK_SIZE / PART) as u64, |size| size.0);
    let all = u64::from(arguments.copies) + 2;
    let image_bytes = (image.len() * BLOCK_SIZE) as u64;
    let mut driver = Driver::new(
        (image_bytes * (all + 1) / 4).next_multiple_of(1 << 20) + (64 << 20),
        index_bytes,
    )?;
    let mut known = HashSet::new();
    let mut progress = Progress::new("copies of an image");
    let mut rows = Vec::new();
    for copy in 0..all {
        let step = match copy {
            0 => "the first image".to_owned(),
            last if last == all - 1 => "a copy after a start".to_owned(),
            number => format!("copy {number}"),
        };
        if copy == all - 1 {
            driver.restart()?;
        }
        if copy > 0 {
            image.change();
        }
        let reply = driver.command(Control::VolumeCreate {
            name: format!("copy{copy}"),
            size_bytes: image_bytes,
        })?;
        let ControlReply::Volume(volume) = reply else {
            return Err(failed("no volume"));
        };
        driver.command(Control::VolumeDedup {
            volume,
            dedup: Dedup::Hash,
        })?;
        if arguments.content == Content::Repeated {
            driver.command(Control::VolumeCompression {
                volume,
                compression: Compression::Lz4,
            })?;
        }
        let before = driver.engine.status().dedup.sums;
        let blocks = image.len() as u64;
        let duplicates = write(&mut driver, volume, &image, &mut known, |done| {
            progress.steps(copy * blocks + done, all * blocks)
        })?;
        let status = driver.engine.status().dedup;
        let found = status.sums.found - before.found;
        let reads = status.sums.pages_read - before.pages_read;
        let looked_up = status.sums.looked_up - before.looked_up;
        rows.push(json!({
            "step": step, "duplicates": duplicates, "found": found, "looked_up": looked_up,
            "found_ppm": ppm(found as f64 / duplicates.max(1) as f64), "pages_read_per_found_ppm": ppm(reads as f64 / found.max(1) as f64),
            "image_bytes": image_bytes, "data_bytes": stored * BLOCK_SIZE, "unique_bytes": status.unique_bytes,
            "index_bytes": status.index_bytes, "index_entries_max": status.index_entries_max, "index_hooks": status.index_hooks, "index_pages": status.index_pages, "index_pages_dropped": status.sums.pages_dropped - before.pages_dropped,
        }));
    }
    Ok(rows)
}

/// Writes an image; returns the number of previously written blocks.
fn write(
    driver: &mut Driver,
    volume: VolumeId,
    image: &Image,
    known: &mut HashSet<u128>,
    mut progress: impl FnMut(u64),
) -> Result<u64, Failure> {
    let mut duplicates = 0;
    let mut bytes = vec![0; RUN * BLOCK_SIZE];
    for (number, first) in (0..image.len()).step_by(RUN).enumerate() {
        let run = RUN.min(image.len() - first);
        for (at, target) in (first..first + run).zip(bytes.chunks_exact_mut(BLOCK_SIZE)) {
            let is_data = image.copy(at, target);
            duplicates += u64::from(is_data && !known.insert(Fingerprint::Fast.of(target)));
        }
        let data = Payload::copy_of(&bytes[..run * BLOCK_SIZE]);
        driver.request(
            volume,
            Op::Write {
                offset: (first * BLOCK_SIZE) as u64,
                data,
                fua: false,
            },
        );
        if number % DEPTH == DEPTH - 1 {
            driver.settle()?;
            progress(first as u64);
        }
    }
    driver.request(volume, Op::Flush);
    driver.settle()?;
    driver.pass()?;
    Ok(duplicates)
}

fn found_text(rows: &[Value]) -> String {
    let mut table = Table::new(&[
        "STEP",
        "DUPLICATES",
        "FOUND",
        "PAGES READ FOR EACH",
        "UNIQUE",
        "PAGES",
        "HOOKS",
    ]);
    for row in rows {
        let number = |field: &str| row[field].as_u64().unwrap_or(0);
        let cells = [
            number("index_pages").to_string(),
            number("index_hooks").to_string(),
        ];
        let found = format!(
            "{}.{} %",
            number("found_ppm") / 10_000,
            number("found_ppm") % 10_000 / 1000
        );
        let reads = format!("{:.4}", number("pages_read_per_found_ppm") as f64 / 1e6);
        let head = [
            row["step"].as_str().unwrap_or_default().to_owned(),
            number("duplicates").to_string(),
            found,
            reads,
        ];
        table.row(
            head.into_iter()
                .chain([Size(number("unique_bytes")).to_string()])
                .chain(cells),
        );
    }
    let last = rows
        .last()
        .map_or(0, |row| row["index_bytes"].as_u64().unwrap_or(0));
    let data = rows
        .first()
        .map_or(0, |row| row["data_bytes"].as_u64().unwrap_or(0));
    format!(
        "Copies of an image with {} of data, {} of memory for the index\n{}",
        Size(data),
        Size(last),
        table.render()
    )
}

fn picture(rates: &[Value], found: &[Value]) -> String {
    let share = |row: &Value, field: &str| row[field].as_u64().map(|value| value as f64 / 1e4);
    if found.is_empty() {
        let values = |row: &Value| {
            ["hash_ratio_ppm", "verify_ratio_ppm"]
                .map(|field| share(row, field))
                .to_vec()
        };
        let bars: Vec<Group> = rates
            .iter()
            .map(|row| Group {
                label: format!("{} % distinct", row["distinct_percent"]),
                values: values(row),
            })
            .collect();
        return groups(
            "Rate of deduplication and LZ4, % of LZ4 alone",
            &["hash", "verify"],
            &bars,
        );
    }
    let bars: Vec<Group> = found
        .iter()
        .map(|row| Group {
            label: row["step"].as_str().unwrap_or_default().to_owned(),
            values: vec![share(row, "found_ppm")],
        })
        .collect();
    groups("Duplicates that are found, %", &["found"], &bars)
}

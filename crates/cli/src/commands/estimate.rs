//! `volume estimate`: predicted result of compression and deduplication of data.

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use windrow_console::context::PoolPlace;
use windrow_console::output::Output;
use windrow_console::progress::Progress;
use windrow_console::table::Table;
use windrow_console::values::{Share, Size};
use windrow_estimate::sources::Source;
use windrow_estimate::{ENTRY_BYTES, Plan, Ratio, Sum, Tally};
use windrow_host::Failure;
use windrow_host::failure::id;
use windrow_reduction::Codec;
use windrow_types::BLOCK_BYTES;

/// Method to estimate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum What {
    /// Compression alone.
    Compress,
    /// Deduplication alone.
    Dedup,
    /// Deduplication, and compression of the unique blocks.
    Both,
}

/// Arguments of `volume estimate`.
#[derive(Args)]
#[command(after_help = "Examples:
  windrow volume estimate both /srv/images
  windrow volume estimate compress /dev/sdb --sample 5% --codec lz4,zstd
  windrow volume estimate dedup vm-1.raw vm-2.raw -o json
  windrow volume estimate both tank/data
  windrow volume estimate both 'nbd+unix:///data?socket=/run/windrow/tank.nbd'")]
pub struct EstimateArguments {
    /// `compress`, `dedup` or `both`.
    what: What,
    /// Files, block devices, directory trees; volumes as POOL/VOLUME if the pool is at rest, as
    /// nbd+unix:///VOLUME?socket=PATH if it is served. Duplicates are searched in all of them
    /// together. Nothing is written.
    #[arg(required = true)]
    sources: Vec<String>,
    /// Codecs: lz4, zstd or both, each separately.
    #[arg(long, value_delimiter = ',', default_value = "lz4", value_parser = ["lz4", "zstd"])]
    codec: Vec<String>,
    /// Read only this share of the data, in extents of 1 MiB. Compression only: a share of the data
    /// reveals little about duplicates.
    #[arg(long, value_name = "SHARE")]
    sample: Option<Share>,
    /// Most memory for fingerprints: all duplicates are found in about 44 MiB of different data for
    /// each MiB. Beyond it the figures are estimates, with their error.
    #[arg(long, default_value = "512M")]
    memory: Size,
    #[command(flatten)]
    place: PoolPlace,
}

/// Data that was read.
struct Done {
    tally: Tally,
    /// By codec, with `--sample`.
    ratios: Vec<Ratio>,
    bytes: u64,
    read_bytes: u64,
    skipped: u64,
    skipped_first: Option<String>,
}

/// Runs it.
pub fn run(arguments: &EstimateArguments, output: &Output) -> Result<u8, Failure> {
    let dedup = arguments.what != What::Compress;
    if arguments.sample.is_some() && dedup {
        let why = "a share of the data says little about its duplicates";
        let remedy = "leave --sample out: where memory does not suffice, fingerprints are sampled, which is sound";
        return Err(Failure::new(
            id::USAGE,
            "cannot estimate deduplication from a sample",
            why,
        )
        .remedy(remedy));
    }
    let mut codecs: Vec<&str> = arguments.codec.iter().map(String::as_str).collect();
    codecs.sort_unstable();
    codecs.dedup();
    if arguments.what == What::Dedup {
        codecs.clear();
    }
    let plan = Plan {
        codecs: codecs
            .iter()
            .map(|name| {
                if *name == "zstd" {
                    Codec::Zstd
                } else {
                    Codec::Lz4
                }
            })
            .collect(),
        dedup,
        entries_max: usize::try_from(arguments.memory.0 / ENTRY_BYTES)
            .unwrap_or(usize::MAX)
            .max(1024),
    };
    let done = read(arguments, plan)?;
    let value = report(arguments, &codecs, &done);
    output.result("volume-estimate", &value, || describe(&value));
    Ok(0)
}

fn read(arguments: &EstimateArguments, plan: Plan) -> Result<Done, Failure> {
    let mut sources = Vec::new();
    for text in &arguments.sources {
        sources.push(Source::find(text, &arguments.place)?);
    }
    let all: u64 = sources.iter().map(|source| source.bytes).sum();
    let share = arguments.sample.map_or(1000, |share| u64::from(share.0));
    let mut done = Done {
        ratios: vec![Ratio::default(); plan.codecs.len()],
        tally: Tally::new(plan),
        bytes: all,
        read_bytes: 0,
        skipped: 0,
        skipped_first: None,
    };
    let mut progress = Progress::new("estimate");
    let mut number = 0u64;
    for source in &mut sources {
        let mut skipped = Vec::new();
        source.read(
            &mut || {
                number += 1;
                is_drawn(number, share)
            },
            &mut |bytes| {
                let before: Vec<u64> = done.stored();
                done.tally.add(bytes);
                done.read_bytes += bytes.len() as u64;
                let after = done.stored();
                if share < 1000 {
                    for (ratio, (before, after)) in
                        done.ratios.iter_mut().zip(before.into_iter().zip(after))
                    {
                        ratio.note(bytes.len() as u64, after - before);
                    }
                }
                progress.bytes(done.read_bytes, (all as f64 * share as f64 / 1000.0) as u64);
            },
            &mut |path, error| skipped.push(format!("{}: {error}", path.display())),
        )?;
        done.skipped += skipped.len() as u64;
        done.skipped_first = done.skipped_first.take().or(skipped.into_iter().next());
    }
    Ok(done)
}

impl Done {
    /// Stored bytes by codec, with all blocks compressed.
    fn stored(&self) -> Vec<u64> {
        if self.tally.is_shared() {
            vec![0; self.ratios.len()]
        } else {
            (0..self.ratios.len())
                .map(|codec| self.tally.stored(codec).bytes)
                .collect()
        }
    }
}

/// True for `per_mille` of the numbers, pseudo-randomly, so that periods of the data do not matter.
fn is_drawn(number: u64, per_mille: u64) -> bool {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) % 1000 < per_mille
}

fn ppm(bytes: u64, base: u64) -> u64 {
    (u128::from(bytes) * 1_000_000)
        .checked_div(u128::from(base))
        .map_or(1_000_000, |ppm| u64::try_from(ppm).unwrap_or(u64::MAX))
}

fn report(arguments: &EstimateArguments, codecs: &[&str], done: &Done) -> Value {
    let tally = &done.tally;
    let share = done.read_bytes as f64 / (done.bytes as f64).max(1.0);
    let sampled = arguments.sample.is_some();
    // The unread rest is assumed to be like the data that was read.
    let scale = if sampled && done.read_bytes > 0 {
        1.0 / share
    } else {
        1.0
    };
    let blocks = |count: u64| ((count * BLOCK_BYTES) as f64 * scale).round() as u64;
    let logical = blocks(tally.data_blocks);
    let unique = if tally.is_shared() {
        tally.unique()
    } else {
        Sum {
            bytes: logical,
            margin_bytes: 0,
        }
    };
    let stored: Vec<Value> = codecs
        .iter()
        .enumerate()
        .map(|(at, name)| {
            let sum = if sampled {
                let (ratio, margin) = done.ratios[at].estimate(share);
                Sum { bytes: (ratio * done.bytes as f64).round() as u64, margin_bytes: (margin * done.bytes as f64).ceil() as u64 }
            } else {
                tally.stored(at)
            };
            json!({
                "codec": name, "stored_bytes": sum.bytes, "margin_bytes": sum.margin_bytes,
                "compression_ppm": ppm(unique.bytes, sum.bytes), "reduction_ppm": ppm(logical, sum.bytes),
            })
        })
        .collect();
    json!({
        "sources": arguments.sources,
        "bytes": done.bytes,
        "read_bytes": done.read_bytes,
        "exact": tally.is_exact() && !sampled && done.skipped == 0,
        "logical_bytes": logical,
        "zero_bytes": blocks(tally.zero_blocks),
        "ones_bytes": blocks(tally.ones_blocks),
        "dedup": tally.is_shared(),
        "unique_bytes": unique.bytes,
        "unique_margin_bytes": unique.margin_bytes,
        "dedup_ppm": ppm(logical, unique.bytes),
        "codecs": stored,
        "files_skipped": done.skipped,
        "files_skipped_first": done.skipped_first,
    })
}

/// A value of the report.
fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn describe(value: &Value) -> String {
    let size = |field: &str| Size(number(&value[field])).to_string();
    let ratio = |ppm: u64| format!("1 : {}.{:02}", ppm / 1_000_000, ppm % 1_000_000 / 10_000);
    let margin = |bytes: u64| {
        if bytes == 0 {
            "exact".to_owned()
        } else {
            format!("+- {}", Size(bytes))
        }
    };
    let mut table = Table::new(&["WHAT", "BYTES", "RATIO", "ERROR (95 %)"]);
    let mut row = |what: String, bytes: String, ratio: String, error: String| {
        table.row([what, bytes, ratio, error])
    };
    let is_sampled = value["read_bytes"] != value["bytes"];
    let of_sample = if is_sampled { "by the sample" } else { "exact" };
    row(
        "all zeroes".to_owned(),
        size("zero_bytes"),
        String::new(),
        of_sample.to_owned(),
    );
    row(
        "all 0xFF".to_owned(),
        size("ones_bytes"),
        String::new(),
        of_sample.to_owned(),
    );
    row(
        "data".to_owned(),
        size("logical_bytes"),
        "1 : 1.00".to_owned(),
        of_sample.to_owned(),
    );
    if value["dedup"] == true {
        row(
            "of different blocks".to_owned(),
            size("unique_bytes"),
            ratio(number(&value["dedup_ppm"])),
            margin(number(&value["unique_margin_bytes"])),
        );
    }
    for codec in value["codecs"].as_array().into_iter().flatten() {
        let name = codec["codec"].as_str().unwrap_or_default();
        let error = margin(number(&codec["margin_bytes"]));
        row(
            format!("stored with {name}"),
            Size(number(&codec["stored_bytes"])).to_string(),
            ratio(number(&codec["reduction_ppm"])),
            error,
        );
    }
    let skipped = match number(&value["files_skipped"]) {
        0 => String::new(),
        count => format!(
            "{count} files could not be read, the first one: {}\n",
            value["files_skipped_first"].as_str().unwrap_or_default()
        ),
    };
    format!(
        "read {} of {}; nothing was written\n{}{skipped}",
        size("read_bytes"),
        size("bytes"),
        table.render()
    )
}

//! `bench table`: request sizes from 4 KiB to 256 KiB, numbers of writers from 1 to 100, the
//! latency of one writer.
//!
//! The first table has the columns of the published table for this design (random writes of plain
//! data, compressed, deduplicated and compressed, each with incompressible and compressible data;
//! and arrays written in place). Figures that are not measured yet are shown as `-`. Writes go to
//! fresh space, reads and the mix to a filled volume.

mod render;

use super::case::{Case, SPARE_PER_MILLE, Sample, fill, fresh, measure};
use super::engine::block_bytes;
use super::report::{Findings, ReportArguments};
use super::rounds::{RoundArguments, Step, alternate, depth, middle, ppm, writers};
use super::scratch::{Scratch, ScratchArguments};
use clap::Args;
use serde_json::{Value, json};
use std::time::Duration;
use windrow_console::output::Output;
use windrow_console::values::Size;
use windrow_host::failure::Failure;
use windrow_host::{Pool, daemon};
use windrow_load::machine::Meter;

/// Arguments of `bench table`.
#[derive(Args)]
#[command(after_help = "Examples:
  windrow-bench table
  windrow-bench table --dir /var/tmp --size 2G --seconds 5
  windrow-bench table --block 4K,64K --writers 1,100 --picture table.svg
  windrow-bench table --seconds 1 --rounds 3 -o json")]
pub struct TableArguments {
    #[command(flatten)]
    scratch: ScratchArguments,
    #[command(flatten)]
    rounds: RoundArguments,
    #[command(flatten)]
    report: ReportArguments,
    /// Request sizes.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "4K,8K,16K,32K,64K,128K,256K"
    )]
    block: Vec<Size>,
    /// Requests in flight for the table.
    #[arg(long, default_value = "100", value_parser = depth)]
    depth: usize,
    /// Numbers of writers, each with one request in flight, with 4 KiB.
    #[arg(long, value_delimiter = ',', default_value = "1,2,5,10,20,50,100", value_parser = writers)]
    writers: Vec<usize>,
    /// Share of the usable space that the volume for reads and the mix takes, in per cent.
    #[arg(long, default_value = "50", value_parser = windrow_console::values::within::<u64>(1, 100))]
    fill: u64,
}

/// Seconds of a measurement.
const SECONDS: u64 = 2;
/// Share of reads of the mix, in per cent.
const MIX_PERCENT: u32 = 70;

/// Content of a table cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    RandomWrite,
    RandomRead,
    Mix,
    LinearWrite,
    /// One writer, one request in flight.
    Single,
    /// This number of writers, each with one request in flight.
    Writers(usize),
}

impl Kind {
    fn name(self) -> String {
        match self {
            Self::RandomWrite => "random write".to_owned(),
            Self::RandomRead => "random read".to_owned(),
            Self::Mix => format!("mix {MIX_PERCENT}/{}", 100 - MIX_PERCENT),
            Self::LinearWrite => "linear write".to_owned(),
            Self::Single => "single writer".to_owned(),
            Self::Writers(count) => format!("{count} writers"),
        }
    }

    fn case(self, block_bytes: u32, depth: usize) -> Case {
        let (writers, depth, read_percent, linear) = match self {
            Self::RandomWrite => (1, depth, 0, false),
            Self::RandomRead => (1, depth, 100, false),
            Self::Mix => (1, depth, MIX_PERCENT, false),
            Self::LinearWrite => (1, depth, 0, true),
            Self::Single => (1, 1, 0, false),
            Self::Writers(count) => (count, 1, 0, false),
        };
        Case {
            block_bytes,
            writers,
            depth,
            read_percent,
            linear,
        }
    }

    fn reads(self) -> bool {
        matches!(self, Self::RandomRead | Self::Mix)
    }
}

/// One measurement of every round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cell {
    kind: Kind,
    block_bytes: u32,
}

/// Medians of a cell.
struct Figures {
    cell: Cell,
    per_second: f64,
    p50_ns: u64,
    p99_9_ns: u64,
    cpu_ns: f64,
    rounds: Vec<u64>,
}

impl Figures {
    fn new(cell: Cell, rounds: &[Sample]) -> Self {
        let latency = |part: u64| {
            middle(rounds, |sample| {
                sample.load.latency.quantile_ns(part) as f64
            }) as u64
        };
        Self {
            cell,
            per_second: middle(rounds, |sample| sample.load.per_second()),
            p50_ns: latency(50_000),
            p99_9_ns: latency(99_900),
            cpu_ns: middle(rounds, Sample::cpu_ns),
            rounds: rounds
                .iter()
                .map(|sample| sample.load.per_second() as u64)
                .collect(),
        }
    }

    fn json(&self) -> Value {
        json!({
            "load": self.cell.kind.name(), "block_bytes": self.cell.block_bytes, "requests_per_second": self.per_second as u64,
            "bytes_per_second": (self.per_second * f64::from(self.cell.block_bytes)) as u64,
            "latency_p50_ns": self.p50_ns, "latency_p99_9_ns": self.p99_9_ns, "cpu_ns_per_request": self.cpu_ns as u64, "rounds": self.rounds,
        })
    }
}

/// Runs the benchmark.
pub fn run(arguments: &TableArguments, output: &Output) -> Result<u8, Failure> {
    let meter = Meter::start();
    let cells = cells(arguments)?;
    let scratch = Scratch::make(&arguments.scratch)?;
    let time = arguments.rounds.time(SECONDS);
    let mut filled: Option<(Pool, u64)> = None;
    let names: Vec<String> = cells
        .iter()
        .map(|cell| {
            format!(
                "{} of {}",
                cell.kind.name(),
                Size(u64::from(cell.block_bytes))
            )
        })
        .collect();
    let rounds = alternate(&names, arguments.rounds.rounds, &mut |cell, step| {
        let cell = cells[cell];
        let case = cell.kind.case(cell.block_bytes, arguments.depth);
        if cell.kind.reads() {
            return on_filled(arguments, &scratch, &mut filled, &case, time, step);
        }
        // New pools on the same members: the filled one is gone.
        filled = None;
        fresh(&scratch, &case, time, step, &mut |_| Ok(()))
    })?;
    drop(filled);
    let figures: Vec<Figures> = cells
        .iter()
        .zip(&rounds)
        .map(|(cell, rounds)| Figures::new(*cell, rounds))
        .collect();
    let value = json!({
        "scratch": scratch.json(), "depth": arguments.depth, "fill_percent": arguments.fill, "rounds": arguments.rounds.rounds,
        "seconds_ppm": ppm(time.as_secs_f64()), "columns": render::columns(&arguments.block, &figures),
        "results": figures.iter().map(Figures::json).collect::<Vec<_>>(),
    });
    let head = format!(
        "{}, {} requests in flight, {} rounds of {:.1} s, medians",
        scratch.describe(),
        arguments.depth,
        arguments.rounds.rounds,
        time.as_secs_f64()
    );
    let text = render::text(&head, &arguments.block, &arguments.writers, &figures);
    let picture = render::picture(&arguments.block, &figures);
    Findings {
        name: "table",
        value,
        text,
        picture,
        goals: Vec::new(),
    }
    .publish(&meter, &arguments.report, output)
}

/// All cells; those that need the filled volume are adjacent, so that it is filled once per round.
fn cells(arguments: &TableArguments) -> Result<Vec<Cell>, Failure> {
    let sizes = arguments
        .block
        .iter()
        .map(|size| block_bytes(*size))
        .collect::<Result<Vec<u32>, _>>()?;
    let mut cells = Vec::new();
    for kind in [
        Kind::RandomWrite,
        Kind::LinearWrite,
        Kind::Single,
        Kind::RandomRead,
        Kind::Mix,
    ] {
        cells.extend(sizes.iter().map(|block_bytes| Cell {
            kind,
            block_bytes: *block_bytes,
        }));
    }
    cells.extend(arguments.writers.iter().map(|count| Cell {
        kind: Kind::Writers(*count),
        block_bytes: 4096,
    }));
    Ok(cells)
}

fn on_filled(
    arguments: &TableArguments,
    scratch: &Scratch,
    filled: &mut Option<(Pool, u64)>,
    case: &Case,
    time: Duration,
    step: &Step<'_>,
) -> Result<Sample, Failure> {
    if filled.is_none() {
        let pool = scratch.pool(SPARE_PER_MILLE, 100)?;
        let span = daemon::report(&pool)?.capacity.usable_bytes / 100 * arguments.fill;
        let span = fill(&pool, span, &step.label())?;
        *filled = Some((pool, span));
    }
    let Some((pool, span)) = filled else {
        return Ok(Sample::default());
    };
    measure(
        pool,
        &case.spec(*span, time, step.round as u64 + 1),
        &mut step.progress(),
    )
}

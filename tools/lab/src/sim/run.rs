//! `sim run` and `sim speed`.

use super::pictures::{Frame, Run, Speed, add_runs};
use super::source::{Named, Source};
use crate::commands::trace::{Noticed, TraceForm, TraceSource, load};
use crate::report::{Report, ReportArguments};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Instant;
use windrow_console::output::Output;
use windrow_console::progress::Progress;
use windrow_console::table::Table;
use windrow_console::values::{Share, Size};
use windrow_host::failure::{Failure, id};
use windrow_wa_sim::wa::log::{Shape, Space};
use windrow_wa_sim::wa::operation::Operation;
use windrow_wa_sim::wa::recorded::Wish;
use windrow_wa_sim::wa::run::{Outcome, Plan, Policy, memory_bytes, run as simulate};
use windrow_wa_sim::wa::workload::{Pattern, Workload};

const BLOCK: u64 = 4096;

/// Accounting of space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum SpaceName {
    /// Open segments and the reserve are part of the spare space.
    Strict,
    /// The SepBIT simulator's rule: one victim after each write while garbage exceeds the spare
    /// share of written blocks.
    Share,
}

impl From<SpaceName> for Space {
    fn from(name: SpaceName) -> Self {
        match name {
            SpaceName::Strict => Self::Strict,
            SpaceName::Share => Self::Share,
        }
    }
}

/// Parses a policy name; the error lists the valid ones.
fn policy(text: &str) -> Result<Policy, String> {
    Policy::from_name(text)
}

/// Parses a pattern of overwrites.
pub fn pattern(text: &str) -> Result<Pattern, String> {
    let all = "uniform, zipf:THETA, hot:WRITES/BLOCKS, sequential:STREAMS, mixed, moving, phases, journal";
    Pattern::from_name(text).ok_or_else(|| format!("'{text}' is no workload; there are {all}"))
}

/// Arguments of `sim run`.
#[derive(Args)]
#[command(after_help = "Examples:
  windrow-lab sim run                                                  ours and greedy on Zipf 0.99, 7, 10 and 15 % spare
  windrow-lab sim run --workload hot:80/20 --policy learned,sepbit,dac,fadac,sfs,none --space share
  windrow-lab sim run --workload uniform --policy none+fifo,none+choices:10,none --spare 5%,20%
  windrow-lab sim run --trace trace.csv --segment 1M --policy learned,sepbit -o json
  windrow-lab sim run --workload zipf --static 50% --trim 5% --policy learned --spare 7%
  windrow-lab sim run --workload jesd219-enterprise --size 8G --spare 10%
  windrow-lab sim run --workload jetstress --report jetstress.html

Policies: PLACEMENT[+RULE][/STREAMS]. Placements: none, separate, dac, sfs, fadac, sepbit, generations, midas, learned (ours), oracle
(knows the future). Rules: greedy, cost-benefit, age-root, fifo, choices:N, window:N, gain.")]
pub struct RunArguments {
    /// Policies, by comma.
    #[arg(long, value_delimiter = ',', default_value = "learned,none", value_parser = policy)]
    policy: Vec<Policy>,
    /// Overwrites after the fill: uniform, zipf:0.99, hot:80/20, sequential:4, mixed, moving,
    /// phases, journal; or a published load: jesd219-enterprise, jesd219-client, journalling-fs,
    /// transaction, data, transaction+data, jetstress.
    #[arg(long, default_value = "zipf:0.99", value_parser = Named::parse, conflicts_with = "trace")]
    workload: Named,
    /// A trace instead, of any format that `windrow-lab trace info` detects; `-` for standard
    /// input.
    #[arg(long)]
    trace: Option<PathBuf>,
    /// Number of repetitions of the trace.
    #[arg(long, default_value = "1", requires = "trace", value_parser = windrow_console::values::within::<u32>(1, 1000))]
    repeat: u32,
    /// Omit the trims of the trace or load.
    #[arg(long)]
    no_trims: bool,
    /// Memory limit of a trace's operations and all tables; a run that needs more is refused.
    #[arg(long, value_name = "BYTES", default_value = "8G")]
    memory: Size,
    /// Addressable space.
    #[arg(long, default_value = "1G")]
    size: Size,
    /// Size of a segment.
    #[arg(long, default_value = "2M")]
    segment: Size,
    /// Spare shares of all space, by comma, 0.5 to 95 %.
    #[arg(long, value_delimiter = ',', default_value = "7%,10%,15%")]
    spare: Vec<Share>,
    /// Accounting of space.
    #[arg(long, value_enum, default_value = "strict")]
    space: SpaceName,
    /// Overwrites after the fill, in sizes; the second half of all writes is the steady state. A
    /// load that ends (jesd219-client) is run as a whole.
    #[arg(long, default_value = "20", value_parser = windrow_console::values::within::<u32>(1, 10_000))]
    passes: u32,
    /// Share of the blocks that is filled and never rewritten.
    #[arg(long = "static", default_value = "0%")]
    static_share: Share,
    /// Share of operations that trim a block.
    #[arg(long, default_value = "0%")]
    trim: Share,
    /// Seed of all random numbers.
    #[arg(long, default_value = "1")]
    seed: u64,
    #[command(flatten)]
    report: ReportArguments,
}

/// A line of the result.
#[derive(Serialize)]
struct Line {
    policy: String,
    spare_ppm: u64,
    spare: f64,
    outcome: Outcome,
}

/// A failure of the simulator.
pub fn failed(why: String) -> Failure {
    Failure::new(id::BENCH_INPUT, "the simulation cannot be run", why)
        .remedy("see `windrow-lab sim run --help`")
}

fn source(arguments: &RunArguments) -> Result<Source, Failure> {
    if let Some(path) = &arguments.trace {
        let from = TraceSource {
            trace: path.clone(),
            form: TraceForm::default(),
        };
        let surveyed = load::survey(
            &from,
            Wish {
                trims: !arguments.no_trims,
                ..Wish::default()
            },
        )?;
        surveyed.allow(
            arguments.memory,
            tables(
                arguments,
                surveyed.blocks,
                surveyed.written() * u64::from(arguments.repeat),
            )?,
        )?;
        let loaded = surveyed.load()?;
        return Ok(Source::Trace(Box::new(loaded), arguments.repeat));
    }
    let blocks = whole_blocks("--size", arguments.size)?;
    let (passes, seed) = (arguments.passes, arguments.seed);
    let plain = arguments.static_share.0 == 0 && arguments.trim.0 == 0;
    match arguments.workload {
        Named::Pattern(pattern) => {
            let (static_share, trim_share) = (
                partial("--static", arguments.static_share)?,
                partial("--trim", arguments.trim)?,
            );
            let workload = Workload {
                pattern,
                static_share,
                trim_share,
            };
            Ok(Source::Pattern {
                workload,
                blocks,
                passes,
                seed,
            })
        }
        Named::Load(load) if !plain => Err(failed(format!(
            "{} has its own static space and trims: --static and --trim are for patterns",
            load.name()
        ))),
        Named::Load(load) if arguments.size.0 < load.bytes_least() => Err(failed(format!(
            "{} needs a size of {} at least",
            load.name(),
            Size(load.bytes_least())
        ))),
        Named::Load(load) => Ok(Source::Load {
            load,
            blocks,
            passes,
            seed,
            trims: !arguments.no_trims,
        }),
    }
}

/// Memory of the largest run.
fn tables(arguments: &RunArguments, blocks: u32, written: u64) -> Result<u64, Failure> {
    let mut most = 0;
    for spare in &arguments.spare {
        let shape = shape(blocks, arguments.segment, *spare, arguments.space)?;
        most = arguments
            .policy
            .iter()
            .map(|policy| memory_bytes(policy, &shape, written))
            .fold(most, u64::max);
    }
    Ok(most)
}

fn shape(blocks: u32, segment: Size, spare: Share, space: SpaceName) -> Result<Shape, Failure> {
    let segment_blocks = whole_blocks("--segment", segment)?;
    Ok(Shape {
        blocks,
        live_blocks: blocks,
        segment_blocks,
        header_blocks: 0,
        spare: simulated_spare(spare)?,
        space: space.into(),
    })
}

/// A spare share that can be simulated.
pub fn simulated_spare(spare: Share) -> Result<f64, Failure> {
    if !(5..=950).contains(&spare.0) {
        return Err(failed(format!(
            "{spare} spare: 0.5 to 95 % can be simulated"
        )));
    }
    Ok(f64::from(spare.0) / 1000.0)
}

/// A share below 1: of blocks that are never written, or of operations that are trims.
pub fn partial(option: &str, share: Share) -> Result<f64, Failure> {
    if share.0 >= 1000 {
        return Err(failed(format!(
            "{option} {share} leaves nothing to write; it must be less than 100%"
        )));
    }
    Ok(f64::from(share.0) / 1000.0)
}

/// A size as blocks, at least one.
pub fn whole_blocks(option: &str, size: Size) -> Result<u32, Failure> {
    let blocks = u32::try_from(size.0 / BLOCK)
        .ok()
        .filter(|blocks| *blocks > 0 && size.0.is_multiple_of(BLOCK));
    blocks.ok_or_else(|| {
        failed(format!(
            "{option} {size} ({} bytes) is not a number of blocks of 4 KiB from 1 block to 16 TiB",
            size.0
        ))
    })
}

/// `sim run`.
pub fn run(arguments: &RunArguments, output: &Output) -> Result<u8, Failure> {
    let source = source(arguments)?;
    let written = source.written();
    let tables = tables(arguments, source.blocks(), written)?;
    if tables > arguments.memory.0 {
        return Err(failed(format!(
            "it takes {} of memory, more than --memory allows ({})",
            Size(tables),
            arguments.memory
        )));
    }
    let mut lines = Vec::new();
    for policy in &arguments.policy {
        for spare in &arguments.spare {
            let shape = shape(source.blocks(), arguments.segment, *spare, arguments.space)?;
            let plan = Plan {
                shape,
                seed: arguments.seed,
                window: (written / 100).max(1),
                steady_after: written / 2,
                idle_free: 0,
            };
            let mut progress = Progress::new(format!("{} at {spare}", policy.name()));
            let mut tell = |done: u64| {
                progress.steps(done, written);
                true
            };
            let outcome =
                simulate(*policy, &plan, || source.operations(), &mut tell).map_err(failed)?;
            lines.push(Line {
                policy: policy.name(),
                spare_ppm: u64::from(spare.0) * 1000,
                spare: f64::from(spare.0) / 1000.0,
                outcome,
            });
        }
    }
    arguments
        .report
        .write(|| report(arguments, &source, &lines))?;
    let noticed = source.noticed();
    let workload = arguments.trace.is_none().then(|| arguments.workload.name());
    let value = serde_json::json!({
        "blocks": source.blocks(),
        "written_blocks": written,
        "lines": lines,
        "seed": arguments.seed,
        "segment_bytes": arguments.segment.0,
        "space": arguments.space.to_possible_value().map(|name| name.get_name().to_owned()),
        "workload": workload,
        "trace": noticed,
        "trace_file": arguments.trace.as_ref().map(|path| path.display().to_string()),
        "trims": !arguments.no_trims,
        "static_ppm": u64::from(arguments.static_share.0) * 1000,
        "trim_ppm": u64::from(arguments.trim.0) * 1000,
        "window_written_blocks": (written / 100).max(1),
        "steady_after_written_blocks": written / 2,
    });
    output.result("sim-run", &value, || {
        text(arguments, &lines) + &noticed.map(Noticed::remarks).unwrap_or_default()
    });
    Ok(0)
}

fn report(arguments: &RunArguments, source: &Source, lines: &[Line]) -> Report {
    let name = arguments.trace.as_ref().map_or_else(
        || arguments.workload.name(),
        |path| path.display().to_string(),
    );
    let (blocks, written) = (source.blocks(), source.written());
    let lead = format!(
        "{} on {} in segments of {}, seed {}. {} blocks of 4 KiB are written, the fill included; the steady state is the second half.",
        name,
        Size(u64::from(blocks) * BLOCK),
        arguments.segment,
        arguments.seed,
        written
    );
    let mut report =
        Report::new(&format!("Write amplification of {name}"), &lead).section("The load");
    for (file, picture) in source.pictures(&name) {
        report = report.picture(file, &picture);
    }
    let frame = Frame {
        whose: &name,
        figure: "steady write amplification",
        blocks: f64::from(blocks),
        window: (written / 100).max(1) as f64,
    };
    let runs = lines.iter().map(|line| Run {
        policy: &line.policy,
        spare: line.spare_ppm as f64 / 1e6,
        waf: line.outcome.steady,
        outcome: &line.outcome,
    });
    add_runs(report, &frame, &runs.collect::<Vec<_>>())
}

fn text(arguments: &RunArguments, lines: &[Line]) -> String {
    let heading: Vec<String> = std::iter::once("steady WAF".to_owned())
        .chain(arguments.spare.iter().map(ToString::to_string))
        .collect();
    let mut table = Table::new(&heading.iter().map(String::as_str).collect::<Vec<_>>());
    for row in lines.chunks(arguments.spare.len()) {
        table.row(
            std::iter::once(row[0].policy.clone())
                .chain(row.iter().map(|line| format!("{:.3}", line.outcome.steady))),
        );
    }
    let mut text = table.render();
    if let [line] = lines {
        let outcome = &line.outcome;
        let tenths = |windows: &[f64]| {
            windows
                .iter()
                .map(|waf| format!("{waf:.2}"))
                .collect::<Vec<_>>()
                .join(" ")
        };
        let percent = |shares: &[f64]| {
            shares
                .iter()
                .map(|share| format!("{:.1}", share * 100.0))
                .collect::<Vec<_>>()
                .join(" ")
        };
        _ = writeln!(
            text,
            "over time, in hundredths of all writes: {}",
            tenths(&outcome.windows)
        );
        _ = writeln!(
            text,
            "victims by emptiness, percent of them in each twentieth: {}",
            percent(&outcome.victims)
        );
        _ = writeln!(
            text,
            "emptiness by age, percent in each twentieth of the segments, youngest first: {}",
            percent(&outcome.emptiness)
        );
        _ = writeln!(
            text,
            "streams at the end: {}; tables: {:.1} bytes for each block",
            outcome.streams, outcome.bytes_per_block
        );
    }
    text
}

/// Arguments of `sim speed`.
#[derive(Args)]
#[command(after_help = "Examples:
  windrow-lab sim speed
  windrow-lab sim speed --size 119G --segment 1M --passes 5 --policy learned   about as many blocks and writes as the JEDEC client trace has")]
pub struct SpeedArguments {
    /// Policies, by comma.
    #[arg(long, value_delimiter = ',', default_value = "none,learned", value_parser = policy)]
    policy: Vec<Policy>,
    /// Overwrites.
    #[arg(long, default_value = "uniform", value_parser = pattern)]
    workload: Pattern,
    /// Addressable space.
    #[arg(long, default_value = "1G")]
    size: Size,
    /// Size of a segment.
    #[arg(long, default_value = "2M")]
    segment: Size,
    /// Spare share.
    #[arg(long, default_value = "20%")]
    spare: Share,
    /// Overwrites, in sizes.
    #[arg(long, default_value = "40", value_parser = windrow_console::values::within::<u32>(1, 10_000))]
    passes: u32,
    #[command(flatten)]
    report: ReportArguments,
}

/// Runs `sim speed`: operations are created before the clock starts, unless there are too many to
/// keep.
pub fn speed(arguments: &SpeedArguments, output: &Output) -> Result<u8, Failure> {
    const KEPT: u64 = 1 << 24;
    let blocks = whole_blocks("--size", arguments.size)?;
    let source = Source::Pattern {
        workload: arguments.workload.into(),
        blocks,
        passes: arguments.passes,
        seed: 1,
    };
    let written = source.written();
    let shape = shape(
        blocks,
        arguments.segment,
        arguments.spare,
        SpaceName::Strict,
    )?;
    let plan = Plan {
        shape,
        seed: 1,
        window: u64::MAX,
        steady_after: written / 2,
        idle_free: 0,
    };
    let kept: Vec<Operation> = if written <= KEPT {
        source.operations().collect()
    } else {
        Vec::new()
    };
    let meter = windrow_load::machine::Meter::start();
    let (mut rows, mut speeds, mut table) = (
        Vec::new(),
        Vec::new(),
        Table::new(&[
            "policy",
            "million user writes per CPU second",
            "million blocks placed",
            "seconds",
            "WAF",
            "bytes/block",
        ]),
    );
    for policy in &arguments.policy {
        let mut progress = Progress::new(policy.name());
        let mut tell = |done: u64| {
            progress.steps(done, written);
            true
        };
        let (begin, cpu) = (Instant::now(), windrow_load::machine::cpu_seconds());
        let operations = || {
            if kept.is_empty() {
                source.operations()
            } else {
                Box::new(kept.iter().copied())
            }
        };
        let outcome = simulate(*policy, &plan, operations, &mut tell).map_err(failed)?;
        let seconds = begin.elapsed().as_secs_f64();
        // Processor time, not wall-clock time: other load takes the core away, but does not make
        // the program slower by that.
        let cpu = (windrow_load::machine::cpu_seconds() - cpu).max(0.01);
        let rate = outcome.counts.written as f64 / cpu / 1e6;
        let placed = rate * outcome.whole;
        speeds.push(Speed {
            policy: policy.name(),
            written: rate,
            placed,
            cells: [seconds, outcome.whole, outcome.bytes_per_block],
        });
        let cells = [
            rate,
            placed,
            seconds,
            outcome.whole,
            outcome.bytes_per_block,
        ]
        .map(|value| format!("{value:.2}"));
        table.row(std::iter::once(policy.name()).chain(cells));
        rows.push(serde_json::json!({ "policy": policy.name(), "seconds": seconds, "cpu_seconds": cpu, "million_writes_per_cpu_second": rate,
            "million_placed_per_cpu_second": placed,
            "waf": outcome.whole, "bytes_per_block": outcome.bytes_per_block }));
    }
    let others = meter.others_ppm();
    arguments.report.write(|| {
        let (workload, size, busy) = (arguments.workload.name(), arguments.size, others as f64 / 1e4);
        let lead =
            format!("{written} block writes, {workload}, on {size} with {} spare; others took {busy:.0} % of the machine's processor time.", arguments.spare);
        super::pictures::speed(&speeds, &lead)
    })?;
    output.result(
        "sim-speed",
        &serde_json::json!({ "written_blocks": written, "others_ppm": others, "lines": rows }),
        || {
            format!(
                "{}{written} block writes; others took {:.0} % of the machine's processor time\n",
                table.render(),
                others as f64 / 1e4
            )
        },
    );
    Ok(0)
}

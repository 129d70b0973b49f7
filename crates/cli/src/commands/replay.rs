//! `replay`: a trace of any format on a simulated pool, policy by policy. Nothing is read or written but the trace.
//!
//! Two passes over the trace: the first finds the blocks it writes, which become the volume; the second makes the operations. Writes count every block
//! they touch, trims what they cover as a whole, reads and flushes nothing.
//!
//! With `--mode engine` the real engine takes the operations, on a member that counts and keeps what it must; with `both` the simulated log runs beside it with
//! as much space and as many checkpoints as the engine turned out to have.

use super::trace::TraceSource;
use crate::drawing::{Along, Grid, sizes};
use crate::output::Output;
use crate::progress::Progress;
use crate::report::{Report, ReportArguments};
use crate::sim::pictures::{Frame, Run, add_runs};
use crate::table::Table;
use crate::values::{Share, Size};
use clap::Args;
use serde::Serialize;
use windrow_host::Failure;
use windrow_host::failure::id;
use windrow_lab::wa::engine::{self, EnginePlan, Outcome as EngineOutcome};
use windrow_lab::wa::log::{Shape, Space};
use windrow_lab::wa::operation::Operation;
use windrow_lab::wa::run::{Outcome, Plan, Policy, run as simulate};
use windrow_trace::summary::Figures;
use windrow_trace::{Dense, Kind, Request, Summary};

const BLOCK: u64 = 4096;

/// Arguments of `replay`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  windrow replay trace.csv.zst\n  windrow replay disk.blktrace --event issued --policy learned,sepbit,none --spare 5%,7%,10%,20%\n  \
    windrow replay client.txt --format jesd219 --fill --segment 1M --spare 10%\n  windrow replay trace.wtrc --repeat 5 --no-trims -o json\n  windrow replay trace.wtrc --fill --mode both --policy separate+greedy,learned\n  windrow replay trace.wtrc --fill --mode engine --policy separate+greedy,learned --flush-every 2\n\nPolicies: see `windrow sim run --help`."
)]
pub struct ReplayArguments {
    #[command(flatten)]
    source: TraceSource,
    /// Policies, by comma.
    #[arg(long, value_delimiter = ',', default_value = "learned,none", value_parser = Policy::from_name)]
    policy: Vec<Policy>,
    /// Spare shares of all space, by comma, 0.5 to 95 %.
    #[arg(long, value_delimiter = ',', default_value = "10%")]
    spare: Vec<Share>,
    /// Size of a segment.
    #[arg(long, default_value = "2M")]
    segment: Size,
    /// The trace so many times.
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Write every block once before, in the order of addresses: a volume that is full. This is not counted.
    #[arg(long)]
    fill: bool,
    /// Leave the trims of the trace out.
    #[arg(long)]
    no_trims: bool,
    /// Seed of all that is random.
    #[arg(long, default_value = "1")]
    seed: u64,
    #[command(flatten)]
    report: ReportArguments,
    /// What runs: the simulated log, the engine, or both with equal space.
    #[arg(long, value_enum, default_value = "model")]
    mode: Mode,
    /// With --mode engine: a flush after so many blocks written, on a pool with a journal; 0: neither.
    #[arg(long, default_value = "0")]
    flush_every: u64,
}

/// See [`ReplayArguments::mode`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Mode {
    /// The simulated log: fast.
    Model,
    /// The engine on a member that counts.
    Engine,
    /// Both, with equal space.
    Both,
}

/// A run of the engine.
#[derive(Serialize)]
struct EngineLine {
    policy: String,
    spare_ppm: u64,
    engine: EngineOutcome,
    /// The simulated log with the same space and checkpoints.
    model: Option<f64>,
}

/// A trace as operations on a volume without gaps.
pub(super) struct Replayed {
    /// Blocks of the volume.
    pub(super) blocks: u32,
    /// Writes and trims.
    pub(super) operations: Vec<Operation>,
    /// Blocks written.
    pub(super) written: u64,
    /// Trims.
    pub(super) trims: u64,
    /// From the first request to the last one, in nanoseconds; 0 where the trace has no times.
    pub(super) duration_ns: u64,
    /// Sizes and kinds of its requests.
    figures: Figures,
}

#[derive(Serialize)]
struct Line {
    policy: String,
    spare_ppm: u64,
    /// Write amplification of the whole trace, without the fill.
    traced: f64,
    outcome: Outcome,
}

/// Runs it.
pub fn run(arguments: &ReplayArguments, output: &Output) -> Result<u8, Failure> {
    if arguments.flush_every > 0 && arguments.mode == Mode::Model {
        return Err(cannot("--flush-every is for --mode engine or both: the simulated log has no flushes"));
    }
    let trace = read(&arguments.source, arguments.no_trims)?;
    let before = if arguments.fill { u64::from(trace.blocks) } else { 0 };
    let traced = trace.written * u64::from(arguments.repeat);
    let fill = arguments.fill.then_some(Operation::Write { block: 0, count: trace.blocks });
    let operations = || fill.into_iter().chain((0..arguments.repeat).flat_map(|_| trace.operations.iter().copied()));
    if arguments.mode != Mode::Model {
        return run_engine(arguments, output, &trace, traced, operations);
    }
    let mut lines = Vec::new();
    for policy in &arguments.policy {
        for spare in &arguments.spare {
            let shape = shape(arguments, trace.blocks, *spare)?;
            // A fill moves nothing, so all that is moved belongs to the trace; the steady state is its second half.
            let plan = Plan { shape, seed: arguments.seed, window: (traced / 100).max(1), steady_after: before + traced / 2, idle_free: 0 };
            let mut progress = Progress::new(format!("{} at {spare}", policy.name()));
            let mut tell = |done: u64| {
                progress.steps(done, before + traced);
                true
            };
            let outcome = simulate(*policy, &plan, operations, &mut tell).map_err(|why| cannot(&why))?;
            let traced_waf = (traced + outcome.counts.moved) as f64 / traced as f64;
            lines.push(Line { policy: policy.name(), spare_ppm: u64::from(spare.0) * 1000, traced: traced_waf, outcome });
        }
    }
    arguments.report.write(|| report(arguments, &trace, traced, &lines))?;
    let value = serde_json::json!({ "blocks": trace.blocks, "written_blocks": traced, "filled_blocks": before, "lines": lines });
    output.result("replay", &value, || describe(arguments, &trace, traced, &lines));
    Ok(0)
}

fn run_engine<I: Iterator<Item = Operation>>(
    arguments: &ReplayArguments,
    output: &Output,
    trace: &Replayed,
    traced: u64,
    operations: impl Fn() -> I,
) -> Result<u8, Failure> {
    let before = if arguments.fill { u64::from(trace.blocks) } else { 0 };
    let segment_rows = u32::try_from(arguments.segment.0 / BLOCK).map_err(|_| cannot("a segment is smaller than 16 TiB"))?;
    let mut lines = Vec::new();
    for policy in &arguments.policy {
        for spare in &arguments.spare {
            let steady_after = before + traced / 2;
            let plan = EnginePlan {
                blocks: trace.blocks,
                segment_rows,
                spare_per_mille: spare.0,
                steady_after,
                checkpoint_after: 0,
                flush_after: arguments.flush_every,
                journal: arguments.flush_every > 0,
            };
            let mut progress = Progress::new(format!("engine, {} at {spare}", policy.name()));
            let mut tell = |done: u64| {
                progress.steps(done, before + traced);
                true
            };
            let engine = engine::run(policy, &plan, operations(), &mut tell).map_err(|why| cannot(&why))?;
            let model = match arguments.mode {
                Mode::Both => Some(engine.model(*policy, &plan, &operations, &mut tell).map_err(|why| cannot(&why))?),
                Mode::Model | Mode::Engine => None,
            };
            lines.push(EngineLine { policy: policy.name(), spare_ppm: u64::from(spare.0) * 1000, engine, model });
        }
    }
    let value = serde_json::json!({ "blocks": trace.blocks, "written_blocks": traced, "filled_blocks": before, "engine_lines": lines });
    output.result("replay", &value, || describe_engine(&lines));
    Ok(0)
}

fn describe_engine(lines: &[EngineLine]) -> String {
    let mut table =
        Table::new(&["POLICY", "SPARE", "CLEANING SPARE", "ENGINE WAF", "MODEL WAF", "STREAMS", "HEADERS", "PADDING", "CHECKPOINTS", "JOURNAL", "SEGMENTS"]);
    for EngineLine { policy, spare_ppm, engine, model } in lines {
        table.row([
            policy.clone(),
            format!("{} %", *spare_ppm as f64 / 10_000.0),
            format!("{:.1} %", engine.effective_spare * 100.0),
            format!("{:.3}", engine.steady),
            model.map_or("-".into(), |model| format!("{model:.3}")),
            format!("{}+{}", engine.user_streams, engine.moved_streams),
            format!("{:.3}", engine.headers),
            format!("{:.3}", engine.padding),
            format!("{:.3}", engine.checkpoints),
            format!("{:.3}", engine.journal),
            engine.segments.to_string(),
        ]);
    }
    format!(
        "{}\nWAF: cleaning, second half. Headers, padding, checkpoints and journal come on top of it, as shares of users' bytes. Cleaning spare: what is not alive in closed\n\
         segments; the pool is as small as the blocks allow at the spare factor, and its reserve is space that users do not fill.\n",
        table.render()
    )
}

pub(super) fn cannot(why: &str) -> Failure {
    Failure::new(id::BENCH, "the trace cannot be replayed", why).remedy("see `windrow replay --help`")
}

fn shape(arguments: &ReplayArguments, blocks: u32, spare: Share) -> Result<Shape, Failure> {
    let segment_blocks =
        u32::try_from(arguments.segment.0 / BLOCK).ok().filter(|blocks| *blocks > 0).ok_or_else(|| cannot("a segment has at least a block"))?;
    if !(5..=950).contains(&spare.0) {
        return Err(cannot(&format!("{spare} spare: 0.5 to 95 % can be simulated")));
    }
    Ok(Shape { blocks, live_blocks: blocks, segment_blocks, header_blocks: 0, spare: f64::from(spare.0) / 1000.0, space: Space::Strict })
}

/// Goes over the trace once.
fn each(source: &TraceSource, mut visit: impl FnMut(&Request)) -> Result<(), Failure> {
    let mut reader = source.open()?;
    while let Some(request) = reader.next_request().map_err(|error| source.failure(&error))? {
        visit(&request);
    }
    Ok(())
}

/// Reads a trace: twice.
pub(super) fn read(source: &TraceSource, no_trims: bool) -> Result<Replayed, Failure> {
    if source.name() == "-" {
        return Err(Failure::new(id::USAGE, "cannot replay standard input", "the trace is read twice").remedy("name a file"));
    }
    let (mut dense, mut summary) = (Dense::default(), Summary::default());
    each(source, |request| {
        dense.add(request);
        summary.add(request);
    })?;
    let blocks = u32::try_from(dense.count()).ok().filter(|_| !dense.is_partial()).ok_or_else(|| cannot("it writes at too many places"))?;
    if blocks == 0 {
        return Err(cannot("it writes nothing"));
    }
    let mut replayed = Replayed { blocks, operations: Vec::new(), written: 0, trims: 0, duration_ns: 0, figures: summary.figures() };
    let mut first = None;
    each(source, |request| {
        replayed.duration_ns = request.time_ns.saturating_sub(*first.get_or_insert(request.time_ns)).max(replayed.duration_ns);
        // Numbers of blocks are below `blocks`, which fits.
        let Some((block, count)) = dense.range(request).map(|(first, count)| (first as u32, count as u32)) else { return };
        match request.kind {
            Kind::Write => {
                replayed.written += u64::from(count);
                replayed.operations.push(Operation::Write { block, count });
            }
            Kind::Trim if !no_trims => {
                replayed.trims += 1;
                replayed.operations.push(Operation::Trim { block, count });
            }
            _ => {}
        }
    })?;
    Ok(replayed)
}

fn report(arguments: &ReplayArguments, trace: &Replayed, traced: u64, lines: &[Line]) -> Report {
    let name = arguments.source.short_name();
    let lead = format!(
        "{} written to {} of different blocks, laid side by side without gaps; segments of {}, the trace {} time(s){}.",
        Size(traced * BLOCK),
        Size(u64::from(trace.blocks) * BLOCK),
        arguments.segment,
        arguments.repeat,
        if arguments.fill { ", after a fill" } else { "" }
    );
    let mut grid = Grid::new(0, u64::from(trace.blocks) * BLOCK, trace.written * BLOCK);
    let mut at = 0;
    for operation in &trace.operations {
        if let Operation::Write { block, count } = operation {
            grid.add(at, u64::from(*block) * BLOCK, u64::from(*count) * BLOCK);
            at += u64::from(*count) * BLOCK;
        }
    }
    let mut report = Report::new(&format!("Replay of {name}"), &lead).section("The trace").picture("heat", &grid.picture("writes", &name, Along::Written));
    for (file, picture) in sizes(&trace.figures, &name) {
        report = report.picture(file, &picture);
    }
    let frame = Frame { whose: &name, figure: "write amplification of the trace", blocks: f64::from(trace.blocks), window: (traced / 100).max(1) as f64 };
    let runs = lines.iter().map(|line| Run { policy: &line.policy, spare: line.spare_ppm as f64 / 1e6, waf: line.traced, outcome: &line.outcome });
    add_runs(report, &frame, &runs.collect::<Vec<_>>())
}

fn describe(arguments: &ReplayArguments, trace: &Replayed, traced: u64, lines: &[Line]) -> String {
    let mut table = Table::new(&["POLICY", "SPARE", "WAF", "SECOND HALF", "MOVED", "TRIMMED", "VICTIMS"]);
    for line in lines {
        let counts = &line.outcome.counts;
        table.row([
            line.policy.clone(),
            format!("{} %", line.spare_ppm as f64 / 10_000.0),
            format!("{:.3}", line.traced),
            format!("{:.3}", line.outcome.steady),
            Size(counts.moved * BLOCK).to_string(),
            Size(counts.trimmed * BLOCK).to_string(),
            counts.victims.to_string(),
        ]);
    }
    format!(
        "{}: {} written to {} of different blocks, {:.2} times{}\n{}",
        arguments.source.name(),
        Size(traced * BLOCK),
        Size(u64::from(trace.blocks) * BLOCK),
        traced as f64 / f64::from(trace.blocks),
        if arguments.fill { ", after a fill" } else { "" },
        table.render()
    )
}

//! `replay`: a trace of any format on a simulated pool, policy by policy. Reads only the trace, and
//! writes nothing.
//!
//! Two passes over the trace (`trace/load.rs`): the first computes the volume, the second creates
//! the operations. Writes count every block they touch, trims only the blocks they cover
//! completely, reads nothing. Times matter only for cleaning in pauses (`--idle-cleaning`).
//!
//! With `--mode engine` the engine itself processes the operations, on a member that counts and
//! stores the minimum. With `both` the simulated log runs in addition, with as much space and as
//! many checkpoints as the engine used (`engine.rs`).

mod engine;

use super::trace::TraceSource;
use super::trace::load::{Loaded, Surveyed, VolumeArguments, survey};
use crate::drawing::{Along, Grid, sizes};
use crate::report::{Report, ReportArguments};
use crate::sim::pictures::{Frame, Run, add_pauses, add_runs};
use clap::Args;
use serde::Serialize;
use windrow_console::output::Output;
use windrow_console::progress::Progress;
use windrow_console::table::Table;
use windrow_console::values::{Share, Size};
use windrow_host::Failure;
use windrow_host::failure::id;
use windrow_wa_sim::wa::log::{Shape, Space};
use windrow_wa_sim::wa::operation::Operation;
use windrow_wa_sim::wa::recorded::Wish;
use windrow_wa_sim::wa::run::{Outcome, Plan, Policy, memory_bytes, run as simulate};
use windrow_wa_sim::wa::study::Burst;

const BLOCK: u64 = 4096;

/// Arguments of `replay`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  windrow-lab replay trace.csv.zst\n  windrow-lab replay disk.blktrace --event issued --policy learned,sepbit,none --spare 5%,7%,10%,20%\n  \
    windrow-lab replay client.txt --format jesd219 --size 128002187264 --prefill linear --segment 1M --headers 1 --spare 10%\n  windrow-lab replay trace.wtrc --repeat 5 --no-trims -o json\n  windrow-lab replay trace.wtrc --fill --idle-cleaning 0,16,64 --time-scale 2 --rate 400000\n  windrow-lab replay trace.wtrc --fill --mode both --policy separate+greedy,learned\n  windrow-lab replay trace.wtrc --fill --mode engine --policy separate+greedy,learned --flush-every 2\n\nPolicies: see `windrow-lab sim run --help`."
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
    /// Metadata blocks of each segment: they take space, and are written with every segment. The
    /// JEDEC client test has 1 in 1 MiB.
    #[arg(long, value_name = "BLOCKS", default_value = "0", value_parser = windrow_console::values::within::<u32>(0, 1_048_576))]
    headers: u32,
    /// Number of repetitions of the trace. Time continues: a round starts the mean time between two
    /// requests after the end of the preceding one.
    #[arg(long, default_value = "1", value_parser = windrow_console::values::within::<u32>(1, 1000))]
    repeat: u32,
    /// Clean in the pauses of the trace's times until this number of segments is free, by comma; 0:
    /// on demand only, for comparison.
    #[arg(long, value_name = "SEGMENTS", value_delimiter = ',', value_parser = windrow_console::values::within::<u32>(0, 4_000_000))]
    idle_cleaning: Vec<u32>,
    /// With --idle-cleaning: speed relative to the recording; 2 makes its pauses half as long.
    /// Default 1.
    #[arg(long, value_name = "FACTOR", requires = "idle_cleaning", value_parser = time_scale)]
    time_scale: Option<f64>,
    /// With --idle-cleaning: blocks of 4 KiB that the members read, write or move per second;
    /// default 100000, the 410 MB/s that one SATA drive sustains in long rows. A pool has that of
    /// all its data members together.
    #[arg(long, value_name = "BLOCKS", requires = "idle_cleaning", value_parser = windrow_console::values::within::<u64>(1, 1_000_000_000))]
    rate: Option<u64>,
    #[command(flatten)]
    volume: VolumeArguments,
    /// Omit the trims of the trace.
    #[arg(long)]
    no_trims: bool,
    /// With --mode engine: omit the flushes and the FUA of the trace.
    #[arg(long)]
    no_flushes: bool,
    /// Seed of random choices in policies; default 1. The engine has none.
    #[arg(long)]
    seed: Option<u64>,
    #[command(flatten)]
    report: ReportArguments,
    /// Simulated log, engine, or both with equal space.
    #[arg(long, value_enum, default_value = "model")]
    mode: Mode,
    /// With --mode engine: blocks written between two flushes in addition to those of the trace; 0:
    /// none.
    #[arg(long, default_value = "0", value_parser = windrow_console::values::within::<u64>(0, 1_000_000_000_000))]
    flush_every: u64,
}

/// Default number of blocks that members process per second.
const RATE: u64 = 100_000;

fn time_scale(text: &str) -> Result<f64, String> {
    let factor = text
        .parse()
        .ok()
        .filter(|factor| (1e-6..=1e6).contains(factor));
    factor.ok_or_else(|| format!("'{text}' is no factor from 0.000001 to 1000000"))
}

/// See [`ReplayArguments::mode`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Mode {
    /// The simulated log: fast.
    Model,
    /// The engine on a counting member.
    Engine,
    /// Both, with equal space.
    Both,
}

#[derive(Serialize)]
struct Line {
    policy: String,
    spare_ppm: u64,
    /// Write amplification of the whole trace, including headers, without the fill.
    traced: f64,
    /// Write amplification of its second half.
    second_half: f64,
    /// With cleaning in pauses: the second half.
    cleaning: Option<Burst>,
    /// Outcome of the log alone, without headers.
    outcome: Outcome,
}

impl Line {
    /// Policy, and number of segments that pauses leave free, if requested; short enough to fit
    /// below a bar.
    fn name(&self) -> String {
        match self.cleaning.as_ref().map(|cleaning| cleaning.idle_free) {
            None => self.policy.clone(),
            Some(0) => format!("{}, on demand", self.policy),
            Some(free) => format!("{}, {free} free", self.policy),
        }
    }
}

/// Runs the command.
pub fn run(arguments: &ReplayArguments, output: &Output) -> Result<u8, Failure> {
    check(arguments)?;
    let engine = arguments.mode != Mode::Model;
    let wish = arguments
        .volume
        .wish(!arguments.no_trims, engine && !arguments.no_flushes);
    let surveyed = survey(
        &arguments.source,
        Wish {
            blocks_per_s: arguments.blocks_per_s(),
            ..wish
        },
    )?;
    surveyed.allow(arguments.volume.memory, tables(arguments, &surveyed)?)?;
    let trace = surveyed.load()?;
    if !arguments.idle_cleaning.is_empty() && trace.duration_ns == 0 {
        return Err(cannot(
            "all requests of the trace come at one time, or it has no times: there are no pauses for --idle-cleaning",
        ));
    }
    if engine {
        engine::run(arguments, output, &trace)
    } else {
        model(arguments, output, &trace)
    }
}

impl ReplayArguments {
    /// Number of blocks that members process per second.
    fn rate(&self) -> u64 {
        self.rate.unwrap_or(RATE)
    }

    /// Same per second of the trace, if its times count.
    fn blocks_per_s(&self) -> Option<f64> {
        (!self.idle_cleaning.is_empty())
            .then(|| self.rate() as f64 / self.time_scale.unwrap_or(1.0))
    }

    /// Goals of cleaning in pauses, in turn; `None` without pauses.
    fn goals(&self) -> Vec<Option<u32>> {
        if self.idle_cleaning.is_empty() {
            vec![None]
        } else {
            self.idle_cleaning.iter().copied().map(Some).collect()
        }
    }
}

/// Refuses options that would have no effect.
fn check(arguments: &ReplayArguments) -> Result<(), Failure> {
    let engine = arguments.mode != Mode::Model;
    for (given, of_engine, what) in [
        (
            arguments.flush_every > 0,
            true,
            "--flush-every is for --mode engine or both: the simulated log has no flushes",
        ),
        (
            arguments.no_flushes,
            true,
            "--no-flushes is for --mode engine or both: the simulated log has no flushes",
        ),
        (
            arguments.headers > 0,
            false,
            "--headers is for --mode model: the engine writes headers of its own",
        ),
        (
            arguments.seed.is_some(),
            false,
            "--seed is for --mode model: the engine draws nothing by it",
        ),
        (
            !arguments.idle_cleaning.is_empty(),
            false,
            "--idle-cleaning is for --mode model: the engine here takes the operations one after the other",
        ),
        (
            arguments.report.wanted(),
            false,
            "--report and --pictures are for --mode model: there are no pictures of the engine",
        ),
    ] {
        if given && engine != of_engine {
            return Err(cannot(what));
        }
    }
    Ok(())
}

/// Number of blocks that are written before the trace.
fn filled(arguments: &ReplayArguments, blocks: u32) -> u64 {
    if arguments.volume.fills() {
        u64::from(blocks)
    } else {
        0
    }
}

/// The fill, and the repeated trace.
fn operations<'a>(
    arguments: &ReplayArguments,
    trace: &'a Loaded,
) -> impl Iterator<Item = Operation> + use<'a> {
    let fill = arguments.volume.fills().then_some(Operation::Write {
        block: 0,
        count: trace.recorded.blocks,
    });
    fill.into_iter()
        .chain(trace.recorded.rounds(arguments.repeat))
}

/// Memory of the largest run.
fn tables(arguments: &ReplayArguments, trace: &Surveyed<'_>) -> Result<u64, Failure> {
    let written = filled(arguments, trace.blocks) + trace.written() * u64::from(arguments.repeat);
    let mut most = 0;
    for spare in &arguments.spare {
        if arguments.mode != Mode::Model {
            most = most.max(engine::memory_bytes(trace.blocks, *spare));
        }
        let shape = shape(arguments, trace.blocks, *spare)?;
        most = arguments
            .policy
            .iter()
            .map(|policy| memory_bytes(policy, &shape, written))
            .fold(most, u64::max);
    }
    Ok(most)
}

/// Run parameters reported by all modes.
fn frame(arguments: &ReplayArguments, trace: &Loaded, traced: u64) -> serde_json::Value {
    let blocks = trace.recorded.blocks;
    serde_json::json!({
        "trace": trace.noticed, "blocks": blocks, "written_blocks": traced, "filled_blocks": filled(arguments, blocks), "trims": trace.recorded.trims,
        "addresses_kept": arguments.volume.size.is_some(), "repeat": arguments.repeat, "segment_bytes": arguments.segment.0, "space": "strict",
    })
}

fn model(arguments: &ReplayArguments, output: &Output, trace: &Loaded) -> Result<u8, Failure> {
    let before = filled(arguments, trace.recorded.blocks);
    let traced = trace.recorded.written * u64::from(arguments.repeat);
    let (seed, window) = (arguments.seed.unwrap_or(1), (traced / 100).max(1));
    let goals = arguments.goals();
    let mut lines = Vec::new();
    for (policy, spare) in arguments
        .policy
        .iter()
        .flat_map(|policy| arguments.spare.iter().map(move |spare| (policy, spare)))
    {
        let shape = shape(arguments, trace.recorded.blocks, *spare)?;
        for goal in &goals {
            // A fill moves nothing, so all moves belong to the trace; the steady state is its
            // second half.
            let plan = Plan {
                shape,
                seed,
                window,
                steady_after: before + traced / 2,
                idle_free: goal.unwrap_or(0),
            };
            let mut progress = Progress::new(format!("{} at {spare}", policy.name()));
            let mut tell = |done: u64| {
                progress.steps(done, before + traced);
                true
            };
            let outcome = simulate(*policy, &plan, || operations(arguments, trace), &mut tell)
                .map_err(|why| cannot(&why))?;
            let headers = f64::from(shape.segment_blocks + shape.header_blocks)
                / f64::from(shape.segment_blocks);
            let waf = (traced + outcome.counts.moved) as f64 / traced as f64;
            let (traced, second_half) = (waf * headers, outcome.steady * headers);
            let cleaning = goal.map(|goal| Burst::of(goal, &outcome, headers));
            lines.push(Line {
                policy: policy.name(),
                spare_ppm: u64::from(spare.0) * 1000,
                traced,
                second_half,
                cleaning,
                outcome,
            });
        }
    }
    arguments
        .report
        .write(|| report(arguments, trace, traced, &lines))?;
    let mut value = frame(arguments, trace, traced);
    value["seed"] = seed.into();
    value["window_blocks"] = window.into();
    value["header_blocks"] = arguments.headers.into();
    if let Some(per_s) = arguments.blocks_per_s() {
        let scale = arguments.time_scale.unwrap_or(1.0);
        value["time"] = serde_json::json!({ "trace_ns": trace.duration_ns, "time_scale": scale, "rate_blocks_per_s": arguments.rate(), "blocks_per_trace_s": per_s });
    }
    value["lines"] = serde_json::json!(lines);
    output.result("replay", &value, || {
        describe(arguments, trace, traced, &lines)
    });
    Ok(0)
}

pub(super) fn cannot(why: &str) -> Failure {
    Failure::new(id::BENCH_INPUT, "the trace cannot be replayed", why)
        .remedy("see `windrow-lab replay --help`")
}

fn shape(arguments: &ReplayArguments, blocks: u32, spare: Share) -> Result<Shape, Failure> {
    let all = u32::try_from(arguments.segment.0 / BLOCK)
        .map_err(|_| cannot("a segment is smaller than 16 TiB"))?;
    if !arguments.segment.0.is_multiple_of(BLOCK) {
        return Err(cannot(&format!(
            "--segment {} is not a number of blocks of 4 KiB",
            arguments.segment.0
        )));
    }
    let segment_blocks = all
        .checked_sub(arguments.headers)
        .filter(|blocks| *blocks > 0)
        .ok_or_else(|| cannot("a segment has at least a block in addition to its headers"))?;
    if !(5..=950).contains(&spare.0) {
        return Err(cannot(&format!(
            "{spare} spare: 0.5 to 95 % can be simulated"
        )));
    }
    let spare = f64::from(spare.0) / 1000.0;
    Ok(Shape {
        blocks,
        live_blocks: blocks,
        segment_blocks,
        header_blocks: arguments.headers,
        spare,
        space: Space::Strict,
    })
}

/// Describes the blocks of the volume.
fn volume(arguments: &ReplayArguments, trace: &Loaded) -> String {
    let size = Size(u64::from(trace.recorded.blocks) * BLOCK);
    if arguments.volume.size.is_some() {
        return format!("a volume of {size}");
    }
    let devices = trace.noticed.devices();
    let several = if devices > 1 && arguments.source.form.device().is_none() {
        format!(" ({devices} devices side by side: --device takes one)")
    } else {
        String::new()
    };
    format!("{size} of different blocks{several}")
}

fn report(arguments: &ReplayArguments, trace: &Loaded, traced: u64, lines: &[Line]) -> Report {
    let name = arguments.source.short_name();
    let lead = format!(
        "{} written to {}; segments of {}, the trace {} time(s){}. {}",
        Size(traced * BLOCK),
        volume(arguments, trace),
        arguments.segment,
        arguments.repeat,
        if arguments.volume.fills() {
            ", after a fill"
        } else {
            ""
        },
        trace.noticed.remarks().trim_end()
    );
    let blocks = trace.recorded.blocks;
    let mut grid = Grid::new(0, u64::from(blocks) * BLOCK, trace.recorded.written * BLOCK);
    let mut at = 0;
    for operation in &trace.recorded.operations {
        if let Operation::Write { block, count } = operation {
            grid.add(at, u64::from(*block) * BLOCK, u64::from(*count) * BLOCK);
            at += u64::from(*count) * BLOCK;
        }
    }
    let mut report = Report::new(&format!("Replay of {name}"), &lead)
        .section("The trace")
        .picture("heat", &grid.picture("writes", &name, Along::Written));
    for (file, picture) in sizes(&trace.figures, &name) {
        report = report.picture(file, &picture);
    }
    let frame = Frame {
        whose: &name,
        figure: "write amplification of the trace",
        blocks: f64::from(blocks),
        window: (traced / 100).max(1) as f64,
    };
    let names: Vec<String> = lines.iter().map(Line::name).collect();
    let runs = lines.iter().zip(&names).map(|(line, name)| Run {
        policy: name,
        spare: line.spare_ppm as f64 / 1e6,
        waf: line.traced,
        outcome: &line.outcome,
    });
    let report = add_runs(report, &frame, &runs.collect::<Vec<_>>());
    // Lines of one policy and spare differ in the cleaning in pauses.
    let groups =
        lines.chunk_by(|one, next| (&one.policy, one.spare_ppm) == (&next.policy, next.spare_ppm));
    groups.fold(report, |report, group| {
        let cleaning: Vec<Burst> = group
            .iter()
            .filter_map(|line| line.cleaning.clone())
            .collect();
        if cleaning.is_empty() {
            return report;
        }
        let name = format!(
            "{} at {} %",
            group[0].policy,
            group[0].spare_ppm as f64 / 10_000.0
        );
        let file = format!(
            "-{}-{}",
            group[0].policy.replace(['+', '/', ':'], "-"),
            group[0].spare_ppm / 1000
        );
        add_pauses(
            report.section(&format!("Cleaning in pauses: {name}")),
            &cleaning,
            &name,
            &file,
        )
    })
}

/// Describes the busy time of members and the time scale.
fn about_time(arguments: &ReplayArguments, trace: &Loaded, lines: &[Line]) -> String {
    let Some(per_s) = arguments.blocks_per_s() else {
        return String::new();
    };
    let behind = lines
        .iter()
        .map(|line| line.outcome.behind_blocks)
        .max()
        .unwrap_or(0) as f64
        / arguments.rate() as f64;
    format!(
        "times: {:.0} s of trace, {per_s:.0} blocks that members process per second; maximum lag {behind:.2} s. Moved in users' way and waits: second half\n",
        trace.duration_ns as f64 / 1e9
    )
}

fn describe(arguments: &ReplayArguments, trace: &Loaded, traced: u64, lines: &[Line]) -> String {
    let timed = !arguments.idle_cleaning.is_empty();
    let pauses = if timed {
        &["CLEANING", "IN THE WAY", "LONGEST WAIT"][..]
    } else {
        &[]
    };
    let heading = [
        "POLICY",
        "SPARE",
        "WAF",
        "SECOND HALF",
        "MOVED",
        "TRIMMED",
        "VICTIMS",
    ];
    let mut table = Table::new(&[&heading[..], pauses].concat());
    for line in lines {
        let counts = &line.outcome.counts;
        let of_pauses = line.cleaning.iter().flat_map(|found| {
            [
                found.name(),
                format!("{:.4}", found.in_the_way),
                found.longest_wait.to_string(),
            ]
        });
        let cells = [
            line.policy.clone(),
            format!("{} %", line.spare_ppm as f64 / 10_000.0),
            format!("{:.3}", line.traced),
            format!("{:.3}", line.second_half),
            Size(counts.moved * BLOCK).to_string(),
            Size(counts.trimmed * BLOCK).to_string(),
            counts.victims.to_string(),
        ];
        table.row(cells.into_iter().chain(of_pauses));
    }
    format!(
        "{}: {} written to {}, {:.2} times{}\n{}{}{}",
        arguments.source.name(),
        Size(traced * BLOCK),
        volume(arguments, trace),
        traced as f64 / f64::from(trace.recorded.blocks),
        if arguments.volume.fills() {
            ", after a fill"
        } else {
            ""
        },
        table.render(),
        about_time(arguments, trace, lines),
        trace.noticed.remarks()
    )
}

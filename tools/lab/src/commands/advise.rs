//! `advise`: policy, segment size and spare factor for the load of a trace or of a pool in service
//! (`live.rs`), the value of trims, and the resulting lifetime and rate of drives.
//!
//! 1. The trace is replayed with every policy of the engine and every spare factor, on the
//!    simulated log as in a pool of the engine (`windrow_wa_sim::wa::served`): with its reserve,
//!    its streams, its checkpoints, and the segment size of a pool of this many blocks.
//! 2. The best pair is the one with the least wear per usable byte: write amplification, including
//!    checkpoints, over the usable share. Of two within half a per cent the simpler policy wins.
//! 3. With that pair other segment sizes are tried, and the trace without its trims.
//! 4. Drives: the calculation of `windrow-lab plan`, in place and under a log with that write
//!    amplification.
//!
//! Nothing is written; only `--apply` changes a pool.

mod live;
mod report;

use super::plan::SmartReport;
use super::replay::cannot;
use super::trace::load::{Loaded, Surveyed, VolumeArguments, survey};
use super::trace::record::span;
use super::trace::{Noticed, TraceForm, TraceSource};
use crate::report::ReportArguments;
use clap::Args;
use live::Live;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;
use windrow_console::output::Output;
use windrow_console::progress::Progress;
use windrow_console::table::Table;
use windrow_console::values::{Share, Size};
use windrow_host::Failure;
use windrow_host::failure::id;
use windrow_host::text::quoted;
use windrow_plan::array::{Assumptions, Outcome as ArrayOutcome, Use, plan as plan_array};
use windrow_plan::layers::Log;
use windrow_plan::topology::Topology;
use windrow_wa_sim::wa::operation::Operation;
use windrow_wa_sim::wa::run::{PlacementKind, Policy, memory_bytes};
use windrow_wa_sim::wa::served::Pool;

const BLOCK: u64 = 4096;
/// Default number of segments of a pool.
const SEGMENTS_WANTED: u64 = 2000;
/// Relative difference within which write amplifications count as equal.
const SAME: f64 = 0.005;

/// Arguments of `advise`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  windrow-lab advise trace.csv.zst\n  windrow-lab advise --live tank --for 10m\n  windrow-lab advise disk.blktrace --event issued --drive samsung-pm9d3a-7680 --drives 8 --topology 6\n  \
    windrow-lab advise client.txt --format jesd219 --size 128002187264 --prefill linear --spare 7%,10%,20% --pool tank -o json\n  windrow-lab advise trace.csv.zst --report advice.html\n\nThe last lines are the commands that apply the advice."
)]
pub struct AdviseArguments {
    /// Trace. gzip and zstd are decompressed.
    #[arg(value_name = "TRACE", required_unless_present = "live")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    form: TraceForm,
    /// Instead of a trace: record the requests of this served pool, or of this one volume, and
    /// include all other data of the pool.
    #[arg(long, value_name = "POOL[/VOLUME]", conflicts_with_all = ["trace", "pool", "size", "prefill", "fill", "device"])]
    live: Option<String>,
    /// With --live: duration of the recording (30s, 10m, 2h).
    #[arg(long = "for", value_name = "TIME", value_parser = span, default_value = "1m")]
    time: Duration,
    /// With --live: the control socket of the pool's daemon.
    #[arg(long, value_name = "PATH", requires = "live")]
    control: Option<PathBuf>,
    /// With --live: apply the advice to the pool.
    #[arg(long, requires = "live")]
    apply: bool,
    /// Spare factors to try, by comma, 3 to 90 %.
    #[arg(long, value_delimiter = ',', default_value = "7%,10%,15%,20%")]
    spare: Vec<Share>,
    /// Number of repetitions of the trace; default: as many as write its blocks six times (with
    /// --size: and blocks for two volumes).
    #[arg(long, value_parser = windrow_console::values::within::<u32>(1, 1000))]
    repeat: Option<u32>,
    #[command(flatten)]
    volume: VolumeArguments,
    /// Drive, by its id in the catalogue (`windrow-lab plan drives`).
    #[arg(long, value_name = "ID", default_value = "samsung-pm9d3a-7680")]
    drive: String,
    /// Drives in the array.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = windrow_console::values::within::<u32>(0, 1_000_000))]
    drives: u32,
    /// Topology: 5 or 6.
    #[arg(long, default_value = "6")]
    topology: Topology,
    /// Name of the pool in the commands at the end.
    #[arg(long, value_name = "NAME", default_value = "POOL")]
    pool: String,
    #[command(flatten)]
    report: ReportArguments,
}

/// One simulated run.
#[derive(Clone, Serialize)]
struct Tried {
    policy: &'static str,
    victim_policy: String,
    spare_ppm: u64,
    segment_bytes: u64,
    /// Write amplification of cleaning and of checkpoints, in the second half.
    waf: f64,
    /// Part of checkpoints in it.
    checkpoints: f64,
    /// Write amplification over the usable share: wear per usable byte.
    wear: f64,
    bytes_per_block: f64,
}

/// One way to use the drives.
#[derive(Serialize)]
struct Used {
    name: String,
    plan: ArrayOutcome,
    /// Lifetime of the drives in years under the load of the trace, if it has times and the drive a
    /// rating.
    years: Option<f64>,
}

/// Figures reported by a member itself.
#[derive(Serialize)]
struct MemberOwn {
    member: u8,
    path: String,
    #[serde(flatten)]
    report: SmartReport,
}

#[derive(Serialize)]
struct Advice {
    source: String,
    trace: Noticed,
    blocks: u32,
    /// True if every block was written once before.
    filled: bool,
    written_blocks: u64,
    trims: u64,
    /// Duration of the load: of a trace from its first request to the last one, of a recording all
    /// of it.
    load_seconds: f64,
    repeat: u32,
    grid: Vec<Tried>,
    segments: Vec<Tried>,
    best: Tried,
    /// Write amplification of the default policy at the same spare factor.
    default_waf: f64,
    /// Current setting of the pool, if the load is that of a pool in service.
    now: Option<Tried>,
    /// True if `best` was applied to the pool.
    applied: bool,
    /// Write amplification without the trims of the trace, if it has any.
    without_trims: Option<f64>,
    drives: Vec<Used>,
    /// Figures reported by the pool's members, if they are drives that support it.
    members: Vec<MemberOwn>,
    reasons: Vec<String>,
    commands: Vec<String>,
}

/// Policy of a pool's settings.
fn policy_of(placement: &str, victim_policy: &str) -> Result<Policy, String> {
    Policy::from_name(&format!("{placement}+{victim_policy}"))
}

/// Policies to try, simplest first.
fn policies() -> Vec<Policy> {
    let kinds = [
        PlacementKind::Generations,
        PlacementKind::Clusters,
        PlacementKind::Fading,
        PlacementKind::Invalidation,
        PlacementKind::Chain,
        PlacementKind::Hotness,
        PlacementKind::Learned,
    ];
    let separate = |rule: &str| policy_of("separate", rule).ok();
    ["greedy", "cost-benefit"]
        .into_iter()
        .filter_map(separate)
        .chain(kinds.map(Policy::of))
        .collect()
}

/// Common parameters of the runs.
struct Runs<'a> {
    trace: &'a Loaded,
    /// Number of blocks that hold data: those of the trace, and other data of a pool in service.
    blocks: u32,
    repeat: u32,
    fill: bool,
    done: usize,
    all: usize,
}

/// Pool for a policy.
fn pool_of(policy: &Policy, blocks: u32, spare: Share, segment_bytes: u64) -> Result<Pool, String> {
    Pool::plan(
        policy,
        blocks,
        u32::try_from(segment_bytes / BLOCK).unwrap_or(u32::MAX),
        spare.0,
    )
}

/// True if a pool that can be cleaned exists: small ones have too few segments.
fn can_be_cleaned(policies: &[Policy], blocks: u32, spare: Share, segment_bytes: u64) -> bool {
    let fits = |pool: Pool| {
        pool.shapes()
            .0
            .iter()
            .all(|shape| shape.segments() >= shape.needed_segments())
    };
    policies
        .iter()
        .all(|policy| pool_of(policy, blocks, spare, segment_bytes).is_ok_and(fits))
}

/// Memory of the largest run.
fn tables(arguments: &AdviseArguments, trace: &Surveyed<'_>, blocks: u32) -> u64 {
    let policies = policies();
    let of = |spare: &Share| {
        let pool = policies
            .first()
            .and_then(|policy| pool_of(policy, blocks, *spare, usual_segment(blocks)).ok());
        let shape = pool.map(|pool| pool.shapes().0[1]);
        policies
            .iter()
            .filter_map(|policy| Some(memory_bytes(policy, &shape?, trace.written())))
            .max()
            .unwrap_or(0)
    };
    arguments.spare.iter().map(of).max().unwrap_or(0)
}

impl Runs<'_> {
    fn run(
        &mut self,
        policy: Policy,
        spare: Share,
        segment_bytes: u64,
        trims: bool,
    ) -> Result<Tried, Failure> {
        let (trace, blocks) = (self.trace, self.blocks);
        let trace = &trace.recorded;
        let traced = trace.written * u64::from(self.repeat);
        let before = if self.fill { u64::from(blocks) } else { 0 };
        let fill = self.fill.then_some(Operation::Write {
            block: 0,
            count: blocks,
        });
        let counts = |operation: &Operation| trims || !matches!(operation, Operation::Trim { .. });
        let operations = || {
            fill.into_iter().chain(
                (0..self.repeat).flat_map(|_| trace.operations.iter().copied().filter(counts)),
            )
        };
        let pool = pool_of(&policy, blocks, spare, segment_bytes).map_err(|why| cannot(&why))?;
        self.done += 1;
        let mut progress = Progress::new(format!(
            "run {} of {}: {} at {spare}, segments of {}",
            self.done,
            self.all,
            policy.name(),
            Size(segment_bytes)
        ));
        let mut tell = |done: u64| {
            progress.steps(done, before + traced);
            true
        };
        let outcome = pool
            .run(&policy, before + traced / 2, operations, &mut tell)
            .map_err(|why| cannot(&why))?;
        Ok(Tried {
            policy: policy.placement.name(),
            victim_policy: policy.rule.name(),
            spare_ppm: u64::from(spare.0) * 1000,
            segment_bytes,
            waf: outcome.all(),
            checkpoints: outcome.checkpoints,
            wear: outcome.all() / (1.0 - f64::from(spare.0) / 1000.0),
            bytes_per_block: f64::from(policy.placement.bytes_per_block()),
        })
    }
}

/// Segment size of a pool of `blocks` blocks: the largest power of two with 2000 segments, from 64
/// KiB to 64 MiB.
fn usual_segment(blocks: u32) -> u64 {
    let wanted = (u64::from(blocks) * BLOCK / SEGMENTS_WANTED).max(1);
    (1u64 << wanted.ilog2()).clamp(64 << 10, 64 << 20)
}

/// First of those within [`SAME`] of the least by `cost`: the simplest.
fn best_of(tried: &[Tried], cost: impl Fn(&Tried) -> f64) -> Option<&Tried> {
    let least = tried.iter().map(&cost).fold(f64::INFINITY, f64::min);
    tried.iter().find(|one| cost(one) <= least * (1.0 + SAME))
}

/// Runs the command.
pub fn run(arguments: &AdviseArguments, output: &Output) -> Result<u8, Failure> {
    if let Some(spare) = arguments
        .spare
        .iter()
        .find(|spare| !(30..=900).contains(&spare.0))
    {
        return Err(cannot(&format!(
            "a pool has 3 to 90 % spare, {spare} given"
        )));
    }
    if !matches!(arguments.topology, Topology::Raid5 | Topology::Raid6) {
        return Err(cannot(&format!(
            "Windrow is planned for RAID-5 and RAID-6, {} given",
            arguments.topology
        )));
    }
    let live = arguments
        .live
        .as_ref()
        .map(|source| Live::record(source, arguments.control.clone(), arguments.time))
        .transpose()?;
    let path = live
        .as_ref()
        .map(|live| live.path().to_owned())
        .or_else(|| arguments.trace.clone())
        .ok_or_else(|| cannot("no trace was named"))?;
    let source = TraceSource {
        trace: path,
        form: arguments.form.clone(),
    };
    let surveyed = survey(&source, arguments.volume.wish(true, false))?;
    let blocks = live
        .as_ref()
        .map_or(Ok(surveyed.blocks), |live| live.blocks(surveyed.blocks))?;
    surveyed.allow(
        arguments.volume.memory,
        tables(arguments, &surveyed, blocks),
    )?;
    let mut trace = surveyed.load()?;
    if let Some(live) = &live {
        trace.duration_ns = live.duration_ns;
    }
    let name = arguments.live.clone().unwrap_or_else(|| source.name());
    let mut advice = advise(arguments, name, (&trace, blocks), live.as_ref())?;
    if let Some(live) = live.filter(|_| arguments.apply) {
        live.apply(&advice.best)?;
        advice.applied = true;
    }
    arguments.report.write(|| report::page(&advice))?;
    output.result("advise", &advice, || describe(arguments, &advice));
    Ok(0)
}

/// Number of repetitions of a trace: until the blocks are written six times. For a volume with cold
/// data: until the blocks of the trace are written six times and twice the volume's blocks are
/// written, so that its spare space is used up long before the second half.
fn enough(blocks: u32, hot: Option<u64>, written: u64) -> u32 {
    let wanted = hot.map_or(6 * u64::from(blocks), |hot| {
        (6 * hot).max(2 * u64::from(blocks))
    });
    wanted.div_ceil(written.max(1)).clamp(1, 1000) as u32
}

/// Spare factors to try: the given ones, and that of a pool in service.
fn spares(named: &[Share], now: Option<Share>) -> Vec<Share> {
    let mut spares: Vec<Share> = named.iter().copied().chain(now).collect();
    spares.sort_by_key(|spare| spare.0);
    spares.dedup();
    spares
}

/// Segment sizes to try in addition to the default; each member has 32 KiB to 64 MiB of a segment.
fn other_sizes(arguments: &AdviseArguments, usual: u64) -> Result<Vec<u64>, Failure> {
    let data = u64::from(
        arguments
            .topology
            .data_drives(arguments.drives)
            .map_err(|error| cannot(&error.to_string()))?,
    );
    Ok([usual / 4, usual * 4]
        .into_iter()
        .filter(|size| (data * (32 << 10)..=data * (64 << 20)).contains(size))
        .collect())
}

fn advise(
    arguments: &AdviseArguments,
    source: String,
    (trace, blocks): (&Loaded, u32),
    live: Option<&Live>,
) -> Result<Advice, Failure> {
    let (policies, recorded) = (policies(), &trace.recorded);
    let setting = live.map(Live::setting).transpose()?;
    // A pool in service keeps its segment size.
    let usual = live.map_or_else(|| usual_segment(blocks), Live::segment_bytes);
    let sizes = if live.is_some() {
        Vec::new()
    } else {
        other_sizes(arguments, usual)?
    };
    let (spares, too_small): (Vec<Share>, Vec<Share>) =
        spares(&arguments.spare, setting.map(|(_, spare)| spare))
            .into_iter()
            .partition(|spare| can_be_cleaned(&policies, blocks, *spare, usual));
    if spares.is_empty() {
        return Err(cannot(
            "it writes to so few blocks that none of these spare factors leaves a segment for cleaning",
        ));
    }
    let repeat = arguments.repeat.unwrap_or_else(|| {
        enough(
            blocks,
            arguments
                .volume
                .size
                .map(|_| trace.figures.written_set_bytes / BLOCK),
            recorded.written,
        )
    });
    let all = policies.len() * spares.len()
        + sizes.len()
        + usize::from(recorded.trims > 0)
        + usize::from(live.is_some());
    let mut runs = Runs {
        trace,
        blocks,
        repeat,
        fill: arguments.volume.fills() || live.is_some(),
        done: 0,
        all,
    };
    let mut grid = Vec::new();
    for policy in &policies {
        for spare in &spares {
            grid.push(runs.run(*policy, *spare, usual, true)?);
        }
    }
    let now = setting
        .filter(|(_, spare)| spares.contains(spare))
        .map(|(policy, spare)| runs.run(policy, spare, usual, true))
        .transpose()?;
    let best = best_of(&grid, |one| one.wear)
        .cloned()
        .ok_or_else(|| cannot("no spare factor was given"))?;
    let spare = Share((best.spare_ppm / 1000) as u16);
    let same = |policy: &&Policy| {
        policy.placement.name() == best.policy && policy.rule.name() == best.victim_policy
    };
    let policy = *policies
        .iter()
        .find(same)
        .ok_or_else(|| cannot("the best policy is not known"))?;
    let mut segments = vec![best.clone()];
    for size in sizes
        .into_iter()
        .filter(|size| can_be_cleaned(&policies, blocks, spare, *size))
    {
        segments.push(runs.run(policy, spare, size, true)?);
    }
    let without_trims = if recorded.trims > 0 {
        Some(runs.run(policy, spare, usual, false)?.waf)
    } else {
        None
    };
    let chosen = best_of(&segments, |one| one.waf).cloned().unwrap_or(best);
    let default_waf = grid
        .iter()
        .find(|one| one.victim_policy == "greedy" && one.spare_ppm == chosen.spare_ppm)
        .map_or(chosen.waf, |one| one.waf);
    let drives = used(arguments, trace, &chosen)?;
    let mut advice = Advice {
        source,
        trace: trace.noticed.clone(),
        blocks,
        filled: arguments.volume.fills() || live.is_some(),
        written_blocks: recorded.written,
        trims: recorded.trims,
        load_seconds: trace.duration_ns as f64 / 1e9,
        repeat,
        grid,
        segments,
        best: chosen,
        default_waf,
        now,
        applied: false,
        without_trims,
        drives,
        members: Vec::new(),
        reasons: Vec::new(),
        commands: Vec::new(),
    };
    advice.reasons = reasons(&advice, usual);
    if let Some(live) = live {
        advice.reasons.splice(
            0..0,
            live.reasons(advice.now.as_ref(), recorded.written, blocks),
        );
        let (members, why_not) = live.members();
        advice.reasons.extend(members.iter().map(|own| {
            format!(
                "Member {} ({}): {}",
                own.member,
                own.path,
                own.report.sentence()
            )
        }));
        advice.reasons.extend(why_not);
        advice.members = members;
    }
    advice.reasons.extend(too_small.iter().map(|spare| {
        format!("Spare {spare} was not tried: of so few segments it leaves none for cleaning.")
    }));
    let pool = live.map_or(&arguments.pool, |live| &live.pool);
    advice.commands = commands(arguments, &advice, usual, pool);
    Ok(advice)
}

/// Drives in place, and under a log with that write amplification.
fn used(arguments: &AdviseArguments, trace: &Loaded, best: &Tried) -> Result<Vec<Used>, Failure> {
    let catalogue = windrow_plan::drive::builtin();
    let drive = catalogue.get(&arguments.drive).ok_or_else(|| {
        Failure::new(
            id::PLAN_VALUE,
            format!("no drive '{}'", arguments.drive),
            "the catalogue does not have it",
        )
        .remedy("`windrow-lab plan drives` lists them")
    })?;
    // Daily user writes in the trace.
    let days = trace.duration_ns as f64 / 86_400e9;
    let asked_gb = (days > 0.0).then(|| (trace.recorded.written * BLOCK) as f64 / 1e9 / days);
    let wear = Log::with_cleaning(best.waf);
    let tuned = Assumptions {
        usable_share: 1.0 - best.spare_ppm as f64 / 1e6,
        log_wear: wear.own * wear.cleaning * wear.inside,
        ..Assumptions::windrow()
    };
    let ways = [
        (
            "one drive alone".to_owned(),
            1,
            Topology::Raid0,
            Use::InPlace,
        ),
        (
            format!(
                "{} drives, {} in place",
                arguments.drives, arguments.topology
            ),
            arguments.drives,
            arguments.topology,
            Use::InPlace,
        ),
        (
            format!(
                "{} drives, {} under Windrow, tuned",
                arguments.drives, arguments.topology
            ),
            arguments.drives,
            arguments.topology,
            Use::Log,
        ),
    ];
    let of = |(name, drives, topology, how): (String, u32, Topology, Use)| {
        let plan = plan_array(drive, drives, topology, how, &tuned)
            .map_err(|error| cannot(&error.to_string()))?;
        let years = plan
            .overwrites_per_day
            .zip(asked_gb)
            .map(|(rated, asked_gb)| 5.0 * rated * plan.landable_gb / asked_gb);
        Ok(Used { name, plan, years })
    };
    ways.into_iter().map(of).collect()
}

fn percent(ppm: u64) -> String {
    format!("{} %", ppm as f64 / 10_000.0)
}

fn reasons(advice: &Advice, usual: u64) -> Vec<String> {
    let best = &advice.best;
    let mut reasons = Vec::new();
    let at = |policy: &str, victim: &str| {
        advice.grid.iter().find(|one| {
            one.policy == policy && one.victim_policy == victim && one.spare_ppm == best.spare_ppm
        })
    };
    // Effect of the policy and of trims in segments of the default size; the size has its own
    // reason.
    let usually = at(best.policy, &best.victim_policy).map_or(best.waf, |one| one.waf);
    if best.policy == "separate" {
        reasons.push(format!(
            "Policy {}+{}: no other is more than {} % better, so the load has little to tell hot blocks from cold ones by.",
            best.policy,
            best.victim_policy,
            SAME * 100.0
        ));
    } else {
        let gain = (1.0 - usually / advice.default_waf) * 100.0;
        reasons.push(format!(
            "Policy {}+{}: with the default, separate+greedy, cleaning and checkpoints make {:.3} of each byte that users write, with this one {:.3} ({gain:.0} % less); it keeps {} bytes in memory for each block of 4 KiB.",
            best.policy, best.victim_policy, advice.default_waf, usually, best.bytes_per_block
        ));
        reasons.push("Where volumes share blocks (deduplication) users' writes go to one stream, and it gains less.".to_owned());
    }
    if let Some(greedy) = at("separate", "greedy").filter(|greedy| greedy.waf < 1.05) {
        reasons.push(format!("The load is kind: even the default stays at {:.3}. Changing the policy will hardly be noticed.", greedy.waf));
    }
    reasons.push(format!(
        "Spare {}: with it the wear for each usable byte, write amplification over the usable share, is least of those tried ({:.3}).",
        percent(best.spare_ppm),
        best.wear
    ));
    if advice.segments.len() < 2 {
        let why = if advice.now.is_some() {
            "a pool keeps the size that it was made with"
        } else {
            "members would have too little or too much of a segment"
        };
        reasons.push(format!(
            "Segments of {} of data: no other size was tried, because {why}.",
            Size(usual)
        ));
    } else if best.segment_bytes == usual {
        reasons.push(format!("Segments of {} of data: other sizes bring nothing, and that is what a pool of this size has by itself.", Size(usual)));
    } else {
        reasons.push(format!(
            "Segments of {} of data instead of {}: they bring {:.3} instead of {usually:.3}.",
            Size(best.segment_bytes),
            Size(usual),
            best.waf
        ));
    }
    reasons.push(
        "Random writes a second under Windrow are what the members' linear rate carries with that write amplification; one host may carry less. Years: the bytes of the trace each day on such drives.".to_owned(),
    );
    reasons.push(match advice.without_trims {
        Some(without) if without > usually * (1.0 + SAME) => {
            format!("Trims: without them it would be {without:.3}. Let the file system send them (mount with discard, or fstrim each day).")
        }
        Some(without) => format!("Trims: they change next to nothing ({without:.3} without)."),
        None => "Trims: the trace has none. A file system that sends them gives more spare space than any factor.".to_owned(),
    });
    reasons
}

fn commands(arguments: &AdviseArguments, advice: &Advice, usual: u64, pool: &str) -> Vec<String> {
    let (best, pool) = (&advice.best, quoted(pool));
    let mut commands = vec![format!(
        "windrow pool set {pool} policy={}+{} spare={}%",
        best.policy,
        best.victim_policy,
        best.spare_ppm as f64 / 10_000.0
    )];
    if best.segment_bytes != usual {
        // A segment's data is spread over the data drives.
        let data = u64::from(
            arguments
                .topology
                .data_drives(arguments.drives)
                .unwrap_or(1),
        );
        let each = (best.segment_bytes / data).max(32 << 10);
        commands.push(format!(
            "windrow pool create {pool} --segment {} ...   (the size of segments is chosen once)",
            Size(1 << each.ilog2())
        ));
    }
    commands
}

fn describe(arguments: &AdviseArguments, advice: &Advice) -> String {
    let traced = advice.written_blocks * u64::from(advice.repeat);
    let mut text = format!(
        "{}: {} written to {} of blocks, {} trims, gone through {} times{}\n{}\nPredicted write amplification of cleaning and checkpoints, second half:\n",
        advice.source,
        Size(traced * BLOCK),
        Size(u64::from(advice.blocks) * BLOCK),
        advice.trims,
        advice.repeat,
        if advice.filled { ", after a fill" } else { "" },
        advice.trace.remarks()
    );
    let spares: Vec<u64> = advice
        .grid
        .iter()
        .take_while(|one| {
            (&one.policy, &one.victim_policy)
                == (&advice.grid[0].policy, &advice.grid[0].victim_policy)
        })
        .map(|one| one.spare_ppm)
        .collect();
    let headings: Vec<String> = ["POLICY".to_owned()]
        .into_iter()
        .chain(spares.iter().map(|spare| percent(*spare)))
        .collect();
    let mut table = Table::new(&headings.iter().map(String::as_str).collect::<Vec<_>>());
    for row in advice.grid.chunks(spares.len().max(1)) {
        let name = format!("{}+{}", row[0].policy, row[0].victim_policy);
        table.row(std::iter::once(name).chain(row.iter().map(|one| format!("{:.3}", one.waf))));
    }
    text += &table.render();
    let mut table = Table::new(&["SEGMENT", "WAF"]);
    advice.segments.iter().for_each(|one| {
        table.row([
            Size(one.segment_bytes).to_string(),
            format!("{:.3}", one.waf),
        ])
    });
    text += &format!("\n{}", table.render());
    let mut table = Table::new(&[
        arguments.drive.as_str(),
        "USABLE GB",
        "RANDOM WRITES/S",
        "OVERWRITES/DAY, 5 YEARS",
        "YEARS UNDER THIS LOAD",
    ]);
    let number = |value: Option<f64>, digits: usize| {
        value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
    };
    for used in &advice.drives {
        let plan = &used.plan;
        table.row([
            used.name.clone(),
            format!("{:.0}", plan.landable_gb),
            number(plan.random_write_iops, 0),
            number(plan.overwrites_per_day, 2),
            number(used.years, 1),
        ]);
    }
    text += &format!("\n{}\n", table.render());
    text += &advice
        .reasons
        .iter()
        .map(|reason| format!("{reason}\n"))
        .collect::<String>();
    if advice.applied {
        text += "\nThe pool was set so:";
    }
    text + "\n"
        + &advice
            .commands
            .iter()
            .map(|command| format!("{command}\n"))
            .collect::<String>()
}

#[cfg(test)]
mod tests;

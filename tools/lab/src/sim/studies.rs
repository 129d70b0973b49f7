//! `sim graph`, `sim table`, `sim bursts`: the 2017 source's graph and tables.

use super::run::{failed, partial, pattern, simulated_spare};
use crate::report::ReportArguments;
use clap::Args;
use windrow_console::output::Output;
use windrow_console::progress::Progress;
use windrow_console::table::Table;
use windrow_console::values::Share;
use windrow_host::Failure;
use windrow_wa_sim::wa::run::Policy;
use windrow_wa_sim::wa::study::{
    self, Burst, Curve, Emptiness, Step, StudyPool, bursts as burst_study, curve, decomposition,
    emptiness,
};
use windrow_wa_sim::wa::workload::Pattern;

/// The simulated pool.
#[derive(Args)]
struct PoolArguments {
    /// Segments of data (1 MiB each, with one block of metadata).
    #[arg(long, default_value = "2000", value_parser = windrow_console::values::within::<u32>(20, 4_000_000))]
    segments: u32,
    /// Overwrites after the fill, in sizes; the second half is the steady state.
    #[arg(long, default_value = "10", value_parser = windrow_console::values::within::<u32>(1, 10_000))]
    passes: u32,
    /// Seed.
    #[arg(long, default_value = "1")]
    seed: u64,
}

impl PoolArguments {
    /// Run parameters for the JSON output.
    fn described(
        &self,
        policy: &str,
        workload: &str,
    ) -> serde_json::Map<String, serde_json::Value> {
        let data_blocks = u64::from(self.segments) * u64::from(study::DATA);
        let fields = serde_json::json!({
            "seed": self.seed,
            "segments": self.segments,
            "segment_blocks": study::DATA,
            "header_blocks": study::HEADER,
            "blocks": data_blocks,
            "passes": self.passes,
            "space": "strict",
            "policy": policy,
            "workload": workload,
            "window_written_blocks": (data_blocks / u64::from(study::WINDOWS)).max(1),
            "steady_after_written_blocks": data_blocks + data_blocks * u64::from(self.passes) / 2,
        });
        match fields {
            serde_json::Value::Object(fields) => fields,
            _ => serde_json::Map::new(),
        }
    }

    fn pool(&self) -> StudyPool {
        StudyPool {
            segments: self.segments,
            seed: self.seed,
        }
    }

    /// Progress display of a run.
    fn teller(&self, what: &str) -> impl FnMut(u64) -> bool + use<> {
        let mut progress = Progress::new(what);
        let all = u64::from(self.segments) * 255 * u64::from(self.passes + 1);
        move |done| {
            progress.steps(done, all);
            true
        }
    }
}

/// Arguments of `sim graph`.
#[derive(Args)]
#[command(after_help = "Examples:
  windrow-lab sim graph
  windrow-lab sim graph --spare 5%,10%,20% --segments 10000 -o json
  windrow-lab sim graph --report graph.html --pictures .")]
pub struct GraphArguments {
    #[command(flatten)]
    pool: PoolArguments,
    /// Free shares of all space.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "5%,10%,15%,20%,30%,40%,50%,60%,70%,80%,90%,95%"
    )]
    spare: Vec<Share>,
    #[command(flatten)]
    report: ReportArguments,
}

/// `sim graph`.
pub fn graph(arguments: &GraphArguments, output: &Output) -> Result<u8, Failure> {
    let mut curves = Vec::new();
    for spare in &arguments.spare {
        let mut tell = arguments.pool.teller(&format!("{spare} free"));
        curves.push(
            curve(
                arguments.pool.pool(),
                simulated_spare(*spare)?,
                f64::from(arguments.pool.passes),
                &mut tell,
            )
            .map_err(failed)?,
        );
    }
    arguments.report.write(|| super::pictures::graph(&curves))?;
    let mut value = arguments.pool.described("none+greedy", "uniform");
    value.insert("curves".into(), serde_json::json!(curves));
    output.result("sim-graph", &value, || graph_text(&curves));
    Ok(0)
}

/// Steps of the text form: windows are fiftieths of a pass.
const SHOWN: [usize; 12] = [2, 5, 7, 10, 15, 20, 25, 35, 50, 100, 200, 400];

fn graph_text(curves: &[Curve]) -> String {
    let times: Vec<String> = SHOWN
        .iter()
        .map(|window| format!("{:.2}", *window as f64 / 50.0))
        .collect();
    let heading: Vec<&str> = ["free"]
        .into_iter()
        .chain(times.iter().map(String::as_str))
        .chain(["steady", "first hump", "second hump"])
        .collect();
    let mut table = Table::new(&heading);
    for curve in curves {
        let at = |window: &usize| {
            curve
                .windows
                .get(window - 1)
                .map_or(String::new(), |waf| format!("{waf:.2}"))
        };
        let hump = |hump: Option<(usize, f64)>| {
            hump.map_or("-".to_owned(), |(at, waf)| {
                format!("{waf:.2} at {:.2}", (at + 1) as f64 / 50.0)
            })
        };
        let cells = SHOWN.iter().map(at).chain([
            format!("{:.2}", curve.steady),
            hump(curve.first_hump),
            hump(curve.second_hump),
        ]);
        table.row(std::iter::once(format!("{:.0}%", curve.spare * 100.0)).chain(cells));
    }
    format!(
        "Write amplification by number of overwrites of the whole space (metadata included)\n{}",
        table.render()
    )
}

/// Arguments of `sim table`.
#[derive(Args)]
#[command(after_help = "Examples:
  windrow-lab sim table 1
  windrow-lab sim table 2 --static 50%
  windrow-lab sim table 3 -o json")]
pub struct TableArguments {
    /// 1: emptiness by age. 2: the same with static space. 3: the decomposition.
    #[arg(value_parser = windrow_console::values::within::<u8>(1, 3))]
    number: u8,
    #[command(flatten)]
    pool: PoolArguments,
    /// Free share of all space (tables 1 and 2).
    #[arg(long, default_value = "10%")]
    spare: Share,
    /// Static share of the live blocks (table 2).
    #[arg(long = "static", default_value = "50%")]
    static_share: Share,
    #[command(flatten)]
    report: ReportArguments,
}

/// `sim table`.
pub fn table(arguments: &TableArguments, output: &Output) -> Result<u8, Failure> {
    let mut tell = arguments
        .pool
        .teller(&format!("table {}", arguments.number));
    let (pool, passes) = (arguments.pool.pool(), f64::from(arguments.pool.passes));
    if arguments.number == 3 {
        let steps = decomposition(pool, passes, &mut tell).map_err(failed)?;
        arguments.report.write(|| super::pictures::steps(&steps))?;
        let mut value = arguments
            .pool
            .described("none+greedy and learned", "by step");
        value.extend([
            ("table".into(), 3.into()),
            ("steps".into(), serde_json::json!(steps)),
            ("spare_ppm".into(), 100_000.into()),
        ]);
        output.result("sim-table", &value, || steps_text(&steps));
        return Ok(0);
    }
    let still = if arguments.number == 1 {
        0.0
    } else {
        partial("--static", arguments.static_share)?
    };
    let found = emptiness(
        pool,
        simulated_spare(arguments.spare)?,
        still,
        passes,
        &mut tell,
    )
    .map_err(failed)?;
    arguments
        .report
        .write(|| super::pictures::emptiness(arguments.number, &found))?;
    let mut value = arguments.pool.described("none+greedy", "uniform");
    value.extend([
        ("table".into(), arguments.number.into()),
        ("emptiness".into(), serde_json::json!(found)),
    ]);
    output.result("sim-table", &value, || emptiness_text(&found));
    Ok(0)
}

fn emptiness_text(found: &Emptiness) -> String {
    let percent = |share: f64| format!("{:.1}%", share * 100.0);
    let mut table = Table::new(&["write blocks by age", "simulated", "linear", "source"]);
    for (at, empty) in found.by_age.iter().enumerate() {
        let line = |oldest: f64| percent(oldest * (at as f64 + 0.5) / found.by_age.len() as f64);
        table.row([
            format!("{} of {}", at + 1, found.by_age.len()),
            percent(*empty),
            line(found.linear.1),
            line(found.source.1),
        ]);
    }
    table.row([
        "average".into(),
        percent(found.average),
        percent(found.linear.0),
        percent(found.source.0),
    ]);
    table.row([
        "when cleaned".into(),
        percent(found.victims),
        percent(found.linear.1),
        percent(found.source.1),
    ]);
    let (free, still) = (percent(found.spare), percent(found.static_share));
    format!(
        "Emptiness with {free} free, {still} of the data static; steady WAF {:.2}\n{}",
        found.steady,
        table.render()
    )
}

fn steps_text(steps: &[Step]) -> String {
    let mut table = Table::new(&[
        "step",
        "source's factor",
        "source",
        "one stream, greedy",
        "learned",
        "learned factor",
        "trimmed, of all space",
    ]);
    let factor =
        |factor: Option<f64>| factor.map_or("-".to_owned(), |factor| format!("{factor:.2}"));
    for step in steps {
        table.row([
            step.what.clone(),
            factor(step.source_factor),
            format!("{:.2}", step.source),
            format!("{:.2}", step.one_stream),
            format!("{:.2}", step.learned),
            factor(step.factor),
            format!("{:.1}%", step.empty * 100.0),
        ]);
    }
    format!(
        "{}A factor multiplies the excess over one.\n",
        table.render()
    )
}

/// Arguments of `sim bursts`.
#[derive(Args)]
#[command(after_help = "Examples:
  windrow-lab sim bursts
  windrow-lab sim bursts --burst 20000 --free 0,8,64,128 --spare 20% --policy learned --workload zipf
  windrow-lab sim bursts --report bursts.html")]
pub struct BurstsArguments {
    #[command(flatten)]
    pool: PoolArguments,
    /// Free share of all space.
    #[arg(long, default_value = "20%")]
    spare: Share,
    /// Blocks written between two pauses.
    #[arg(long, default_value = "4096", value_parser = windrow_console::values::within::<u32>(1, 1_000_000_000))]
    burst: u32,
    /// Free segments that a pause cleans up to; 0 for cleaning on demand only.
    #[arg(long, value_delimiter = ',', default_value = "0,4,16,32,64,128", value_parser = windrow_console::values::within::<u32>(0, 4_000_000))]
    free: Vec<u32>,
    /// The policy.
    #[arg(long, default_value = "none", value_parser = Policy::from_name)]
    policy: Policy,
    /// Overwrites.
    #[arg(long, default_value = "uniform", value_parser = pattern)]
    workload: Pattern,
    #[command(flatten)]
    report: ReportArguments,
}

/// `sim bursts`.
pub fn bursts(arguments: &BurstsArguments, output: &Output) -> Result<u8, Failure> {
    let mut tell = arguments.pool.teller("bursts");
    let spare = simulated_spare(arguments.spare)?;
    let lines = burst_study(
        arguments.pool.pool(),
        arguments.policy,
        spare,
        arguments.burst,
        arguments.workload,
        &arguments.free,
        &mut tell,
    )
    .map_err(failed)?;
    arguments.report.write(|| {
        super::pictures::bursts(
            &lines,
            &arguments.policy.name(),
            &arguments.workload.name(),
            arguments.burst,
        )
    })?;
    let mut value = arguments
        .pool
        .described(&arguments.policy.name(), &arguments.workload.name());
    // (The overwrites of this study are always eight passes, regardless of --passes.)
    let blocks = u64::from(arguments.pool.segments) * u64::from(study::DATA);
    let fixed = [
        ("passes", study::BURST_PASSES.into()),
        (
            "steady_after_written_blocks",
            (blocks + blocks * study::BURST_PASSES / 2).into(),
        ),
    ];
    value.extend(fixed.map(|(name, passes)| (name.to_owned(), passes)));
    value.remove("window_written_blocks");
    value.extend([
        ("burst_blocks".into(), arguments.burst.into()),
        ("spare".into(), spare.into()),
        (
            "spare_ppm".into(),
            (u64::from(arguments.spare.0) * 1000).into(),
        ),
    ]);
    value.insert("lines".into(), serde_json::json!(lines));
    output.result("sim-bursts", &value, || bursts_text(&lines));
    Ok(0)
}

fn bursts_text(lines: &[Burst]) -> String {
    let mut table = Table::new(&[
        "cleaning",
        "WAF",
        "moved in users' way, per write",
        "longest wait, blocks",
    ]);
    for line in lines {
        table.row([
            line.name(),
            format!("{:.3}", line.steady),
            format!("{:.4}", line.in_the_way),
            line.longest_wait.to_string(),
        ]);
    }
    table.render()
}

//! `sim jedec`: the JEDEC client test. An uncounted linear fill, then the whole stream; the bytes
//! that go to the drive in that time over the bytes written.

use super::run::failed;
use super::source::Source;
use crate::report::ReportArguments;
use clap::Args;
use serde::Serialize;
use windrow_console::output::Output;
use windrow_console::progress::Progress;
use windrow_console::table::Table;
use windrow_console::values::Size;
use windrow_host::Failure;
use windrow_wa_sim::wa::log::{Shape, Space};
use windrow_wa_sim::wa::requests::{Load, client_published as published};
use windrow_wa_sim::wa::run::{Plan, Policy, run as simulate};

const BLOCK: u64 = 4096;
/// Write block of the source: 1 MiB with one block of metadata.
const DATA: u32 = 255;
const HEADER: u32 = 1;

/// Arguments of `sim jedec`.
#[derive(Args)]
#[command(after_help = "Examples:
  windrow-lab sim jedec
  windrow-lab sim jedec --scale 1 --policy none            the whole 128 GB and 781 GB
  windrow-lab sim jedec --policy none,learned,sepbit --report jedec.html -o json")]
pub struct JedecArguments {
    /// Divisor of the published space and stream.
    #[arg(long, value_name = "N", default_value = "16", value_parser = windrow_console::values::within::<u64>(1, 1000))]
    scale: u64,
    /// Policies, by comma. The source cleans the emptiest write block, with one stream: `none`.
    #[arg(long, value_delimiter = ',', default_value = "none,learned", value_parser = Policy::from_name)]
    policy: Vec<Policy>,
    /// Seed.
    #[arg(long, default_value = "1")]
    seed: u64,
    #[command(flatten)]
    report: ReportArguments,
}

/// A line of the result.
#[derive(Clone, Serialize)]
pub struct Line {
    /// Policy.
    pub policy: String,
    /// Spare share of all space.
    pub spare: f64,
    /// Trims are honoured.
    pub trims: bool,
    /// Write amplification of the stream, headers included.
    pub waf: f64,
    /// Published value.
    pub published: f64,
}

/// Runs the command.
pub fn run(arguments: &JedecArguments, output: &Output) -> Result<u8, Failure> {
    let bytes = published::BYTES / arguments.scale / BLOCK * BLOCK;
    let mut lines = Vec::new();
    for policy in &arguments.policy {
        let cases = published::WAF
            .map(|(spare, waf)| (spare, true, waf))
            .into_iter()
            .chain([(0.10, false, published::WAF_WITHOUT_TRIM)]);
        for (spare, trims, waf) in cases {
            lines.push(line(*policy, bytes, arguments.seed, (spare, trims, waf))?);
        }
    }
    arguments.report.write(|| super::pictures::client(&lines))?;
    let value = serde_json::json!({ "bytes": bytes, "scale": arguments.scale, "lines": lines });
    output.result("sim-jedec", &value, || text(bytes, &lines));
    Ok(0)
}

fn line(
    policy: Policy,
    bytes: u64,
    seed: u64,
    (spare, trims, published): (f64, bool, f64),
) -> Result<Line, Failure> {
    let blocks = (bytes / BLOCK) as u32;
    let source = Source::Load {
        load: Load::Client,
        blocks,
        passes: 0,
        seed,
        trims,
    };
    let shape = Shape {
        blocks,
        live_blocks: blocks,
        segment_blocks: DATA,
        header_blocks: HEADER,
        spare,
        space: Space::Strict,
    };
    let (all, filled) = (source.written(), source.filled());
    let plan = Plan {
        shape,
        seed,
        window: u64::MAX,
        steady_after: filled,
        idle_free: 0,
    };
    let mut progress = Progress::new(format!(
        "{} at {:.0} %{}",
        policy.name(),
        spare * 100.0,
        if trims { "" } else { " without trim" }
    ));
    let mut tell = |done: u64| {
        progress.steps(done, all);
        true
    };
    let outcome = simulate(policy, &plan, || source.operations(), &mut tell).map_err(failed)?;
    let waf = outcome.steady * f64::from(DATA + HEADER) / f64::from(DATA);
    Ok(Line {
        policy: policy.name(),
        spare,
        trims,
        waf,
        published,
    })
}

fn text(bytes: u64, lines: &[Line]) -> String {
    let mut table = Table::new(&["policy", "5 %", "7 %", "10 %", "20 %", "10 %, no trim"]);
    let row = |name: &str, of: &[Line], value: fn(&Line) -> f64| {
        std::iter::once(name.to_owned())
            .chain(of.iter().map(value).map(|waf| format!("{waf:.3}")))
            .collect::<Vec<_>>()
    };
    for (at, of) in lines.chunks(5).enumerate() {
        if at == 0 {
            table.row(row("published (ESS)", of, |line| line.published));
        }
        table.row(row(&of[0].policy, of, |line| line.waf));
    }
    format!(
        "{} of space, a stream like the client trace of JESD219A; write amplification after the fill, headers included\n{}",
        Size(bytes),
        table.render()
    )
}

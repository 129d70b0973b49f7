//! `bench steady`: cleaning in the steady state of uniform random overwrites, against the closed form.
//!
//! `U` is the share of live blocks among the payload slots of segments that hold data: reserve, free and checkpoint segments are not counted. It is
//! measured at the end, because how many segments are free then is the engine's own decision.

use super::engine::fill;
use super::scratch::{Scratch, ScratchArguments};
use crate::figures::factor;
use crate::load::session::{LoadSpec, run as run_load};
use crate::output::Output;
use crate::table::Table;
use crate::values::Share;
use clap::Args;
use serde_json::json;
use std::time::Duration;
use windrow_host::daemon;
use windrow_host::failure::{Failure, id};
use windrow_host::report::PoolReport;
use windrow_units::BLOCK_BYTES;

/// Arguments of `bench steady`.
#[derive(Args)]
#[command(after_help = "Examples:
  windrow bench steady
  windrow bench steady --utilisation 90% --overwrites 6 --size 1G
  windrow bench steady --dir /var/tmp --size 2G -o json")]
pub struct SteadyArguments {
    #[command(flatten)]
    scratch: ScratchArguments,
    /// Shares of the payload slots that are live.
    #[arg(long, value_delimiter = ',', default_value = "50%,70%,90%")]
    utilisation: Vec<Share>,
    /// Overwrites before the measurement, in multiples of the live data.
    #[arg(long, default_value = "4")]
    overwrites: u64,
    /// Requests in flight.
    #[arg(long, default_value = "128")]
    depth: usize,
}

/// The least a pool allows: how much is live is decided here.
const SPARE_PER_MILLE: u16 = 30;

/// Payload blocks of all segments outside the reserve, of the closed data segments now, and of one full segment.
fn slots(report: &PoolReport) -> (f64, f64, u32) {
    let Some(zone) = report.capacity.zones.first() else { return (1.0, 1.0, 1) };
    let shape = &zone.shape;
    // A full batch has one header block or two, and the footer block: what a chunk holds beside them is payload.
    let blocks = u64::from(shape.chunk_rows) * u64::from(shape.data);
    let overhead = 1 + (blocks * 12).div_ceil(BLOCK_BYTES);
    let per_segment = u64::from(shape.rows / shape.chunk_rows) * (blocks - overhead.min(blocks));
    let usable = u64::from(report.capacity.segments - report.capacity.reserve_segments.min(report.capacity.segments));
    let in_use = u64::from(report.capacity.data_segments.max(1));
    ((usable * per_segment) as f64, (in_use * per_segment) as f64, u32::try_from(per_segment).unwrap_or(u32::MAX))
}

/// Runs it.
pub fn run(arguments: &SteadyArguments, output: &Output) -> Result<u8, Failure> {
    let scratch = Scratch::make(&arguments.scratch)?;
    let mut table = Table::new(&["U WANTED", "U MEASURED", "CLEANING WAF", "CLOSED FORM", "OFF BY", "ALL WAF", "MB/S"]);
    let mut results = Vec::new();
    for wanted in &arguments.utilisation {
        let pool = scratch.pool(SPARE_PER_MILLE, None)?;
        let empty = daemon::report(&pool)?;
        let live = (slots(&empty).0 * f64::from(wanted.0) / 1000.0) as u64 * BLOCK_BYTES;
        let span = live.min(empty.capacity.usable_bytes) / (256 << 10) * (256 << 10);
        fill(&pool, span)?;
        let mut spec = LoadSpec {
            block_bytes: 4096,
            span_bytes: span,
            writers: 1,
            depth: arguments.depth,
            read_percent: 0,
            linear: false,
            time_max: Duration::from_secs(3600),
            bytes_max: span * arguments.overwrites,
            seed: 7,
        };
        run_load(&pool, "data", &spec)?;
        let before = daemon::report(&pool)?;
        spec.bytes_max = span;
        spec.seed = 8;
        let result = run_load(&pool, "data", &spec)?;
        if result.errors > 0 {
            return Err(Failure::new(id::BENCH, format!("{} requests failed", result.errors), pool.stop_reason().unwrap_or_default()));
        }
        let after = daemon::report(&pool)?;
        let (user, moved) = (after.counters.written.user - before.counters.written.user, after.counters.written.moved - before.counters.written.moved);
        let all = after.counters.written.total() - before.counters.written.total();
        let (_, in_use, per_segment) = slots(&after);
        let utilisation = (span / BLOCK_BYTES) as f64 / in_use;
        let waf = (user + moved) as f64 / user.max(1) as f64;
        let expected = windrow_policy::analytic::greedy_waf(utilisation.min(0.999), per_segment);
        table.row([
            wanted.to_string(),
            format!("{utilisation:.3}"),
            format!("{waf:.3}"),
            format!("{expected:.3}"),
            format!("{:.1} %", (waf / expected - 1.0).abs() * 100.0),
            format!("{:.3}", all as f64 / result.bytes as f64),
            format!("{:.0}", result.bytes_per_second() / 1e6),
        ]);
        results.push(json!({
            "utilisation_wanted_per_mille": wanted.0, "utilisation_ppm": (utilisation * 1e6) as u64, "cleaning_waf_ppm": (waf * 1e6) as u64,
            "closed_form_ppm": (expected * 1e6) as u64, "bytes_per_second": result.bytes_per_second() as u64,
            "written": after.counters.written, "user_bytes": user, "moved_bytes": moved, "free_segments": after.capacity.free_segments,
        }));
        tracing::info!(waf = factor((waf * 1e6) as u64), "steady state measured");
    }
    output.result("bench-steady", &json!({ "results": results }), || table.render());
    Ok(0)
}

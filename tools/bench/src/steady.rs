//! `bench steady`: cleaning in the steady state of uniform random overwrites, against the closed
//! form for greedy cleaning.
//!
//! `U` is live blocks / payload slots of the victim candidates: closed segments of user and cleaned
//! data. The engine decides how many segments are closed, hence these steps:
//! 1. Fill an estimate of the live set.
//! 2. Overwrite it until cleaning is in its steady state.
//! 3. Measure `U` in a short window and trim or extend the live set by the deviation, until it
//!    fits.
//! 4. Measure write amplification and `U` together over one overwrite of the live set; if `U` has
//!    drifted, adjust and measure again.
//!
//! Slots are those that batches had: data blocks of a segment x payload / (payload + headers +
//! padding).

pub mod window;

use super::case::{EXPORT, fill};
use super::chart::{Group, groups};
use super::report::{Findings, Goal, ReportArguments};
use super::rounds::{at_least_one, depth, ppm, seconds};
use super::scratch::{Scratch, ScratchArguments};
use clap::Args;
use serde_json::{Value, json};
use std::time::Duration;
use window::{Overwrites, Window};
use windrow_console::figures::megabytes;
use windrow_console::output::Output;
use windrow_console::progress::Progress;
use windrow_console::table::Table;
use windrow_console::values::{Share, Size};
use windrow_host::failure::{Failure, id};
use windrow_host::{Pool, daemon};
use windrow_load::linear::{self, LinearResult};
use windrow_load::machine::Meter;
use windrow_load::session::Requester;
use windrow_types::BLOCK_BYTES;

/// Arguments of `bench steady`.
#[derive(Args)]
#[command(after_help = "Examples:
  windrow-bench steady
  windrow-bench steady --utilisation 90% --overwrites 4 --size 1G --segment 1M
  windrow-bench steady --dir /var/tmp --size 2G --utilisation 50%,70%,90% -o json")]
pub struct SteadyArguments {
    #[command(flatten)]
    scratch: ScratchArguments,
    #[command(flatten)]
    report: ReportArguments,
    /// Live shares of the payload slots, one measurement each.
    #[arg(long, value_delimiter = ',', default_value = "50%,70%,90%")]
    utilisation: Vec<Share>,
    /// Overwrites before the measurement, in multiples of the live data.
    #[arg(long, default_value = "3", value_parser = at_least_one)]
    overwrites: usize,
    /// Overwrites of the measurement, in multiples of the live data.
    #[arg(long, default_value = "1", value_parser = at_least_one)]
    measure: usize,
    /// Requests in flight.
    #[arg(long, default_value = "128", value_parser = depth)]
    depth: usize,
    /// Duration of the files' linear measurement, before and after the pool.
    #[arg(long, default_value = "4", value_name = "SECONDS", value_parser = seconds)]
    linear_seconds: Duration,
}

/// Parameters of a steady-state measurement.
#[derive(Clone, Copy, Debug)]
pub struct SteadyPlan {
    /// Overwrites before the measurement, in multiples of the live data.
    pub overwrites: u64,
    /// Overwrites of the measurement.
    pub measure: u64,
    /// Requests in flight.
    pub depth: usize,
    /// Duration of the files' linear measurement, before and after the pool.
    pub linear_time: Duration,
}

/// Minimum that a pool allows: the live share is set here, and with the default 10 % a share of
/// 0.90 would be out of reach.
const SPARE_PER_MILLE: u16 = 30;
/// Maximum deviation of the measured `U`.
const TOLERANCE: f64 = 0.002;
/// Maximum deviation in a short window.
const TOLERANCE_SHORT: f64 = 0.001;
/// Limit of corrections of the live set.
const ADJUSTMENTS_MAX: u32 = 12;
/// Step of changes to the live set.
const GRANULE: u64 = 256 << 10;
/// Goals: deviation from the closed form, batch metadata, checkpoints and superblocks.
const GOAL_OFF: f64 = 0.05;
const GOAL_HEADER: f64 = 0.01;
const GOAL_CHECKPOINT: f64 = 0.05;

/// A steady state.
pub struct SteadyResult {
    wanted: Share,
    window: Window,
    live_bytes: u64,
    adjustments: u32,
    batch_bytes: u64,
    linear: Option<LinearResult>,
}

impl SteadyResult {
    fn closed_form(&self) -> f64 {
        windrow_policy::analytic::greedy_waf(
            self.window.utilisation.min(0.999),
            self.window.slots_per_segment,
        )
    }

    fn off(&self) -> f64 {
        (self.window.cleaning_waf() / self.closed_form() - 1.0).abs()
    }

    fn is_on_target(&self) -> bool {
        (self.window.utilisation - f64::from(self.wanted.0) / 1000.0).abs() <= TOLERANCE
    }

    fn ratio(&self, data_share: f64) -> Option<f64> {
        self.linear.map(|linear| {
            self.window.load.bytes_per_second() / (linear.bytes_per_second() * data_share).max(1.0)
        })
    }

    /// JSON form.
    pub fn json(&self, data_share: f64) -> Value {
        let window = &self.window;
        json!({
            "utilisation_wanted_per_mille": self.wanted.0, "utilisation_ppm": ppm(window.utilisation), "utilisation_on_target": self.is_on_target(),
            "live_bytes": self.live_bytes, "adjustments": self.adjustments, "slots_per_segment": window.slots_per_segment,
            "spare_per_mille": SPARE_PER_MILLE,
            "cleaning_waf_ppm": ppm(window.cleaning_waf()), "closed_form_ppm": ppm(self.closed_form()), "off_ppm": ppm(self.off()),
            "waf_ppm": ppm(window.per_user_byte(window.written.total())), "header_of_payload_ppm": ppm(window.header_share()),
            "checkpoint_waf_ppm": ppm(window.checkpoint_waf()), "padding_waf_ppm": ppm(window.per_user_byte(window.written.padding)),
            "bytes_per_second": window.load.bytes_per_second() as u64, "requests_per_second": window.load.per_second() as u64,
            "linear_bytes_per_second": self.linear.map(|linear| linear.bytes_per_second() as u64),
            "ratio_ppm": self.ratio(data_share).map(ppm), "written": window.written, "user_bytes": window.load.bytes,
        })
    }

    fn goals(&self) -> Vec<Goal> {
        let (at, window) = (
            format!("at U = {:.3}:", self.window.utilisation),
            &self.window,
        );
        let mut goals = Vec::new();
        if self.wanted.0 == 900 {
            goals.push(Goal::at_most(
                format!("deviation of U from {at}"),
                (window.utilisation - 0.9).abs(),
                TOLERANCE,
            ));
            goals.push(Goal::at_most(
                format!("distance of cleaning WAF from the closed form {at}"),
                self.off(),
                GOAL_OFF,
            ));
        }
        if self.batch_bytes >= 2 << 20 {
            goals.push(Goal::at_most(
                format!("batch metadata of payload {at}"),
                window.header_share(),
                GOAL_HEADER,
            ));
        }
        goals.push(Goal::at_most(
            format!("WAF of checkpoints and superblocks {at}"),
            window.checkpoint_waf(),
            GOAL_CHECKPOINT,
        ));
        goals
    }
}

/// Runs the benchmark.
pub fn run(arguments: &SteadyArguments, output: &Output) -> Result<u8, Failure> {
    let meter = Meter::start();
    let scratch = Scratch::make(&arguments.scratch)?;
    let (overwrites, measured) = (arguments.overwrites as u64, arguments.measure as u64);
    let plan = SteadyPlan {
        overwrites,
        measure: measured,
        depth: arguments.depth,
        linear_time: arguments.linear_seconds,
    };
    let results = arguments
        .utilisation
        .iter()
        .map(|wanted| measure(&scratch, *wanted, &plan))
        .collect::<Result<Vec<_>, _>>()?;
    let share = scratch.data_share();
    let value = json!({
        "scratch": scratch.json(), "depth": arguments.depth, "overwrites": arguments.overwrites,
        "results": results.iter().map(|result| result.json(share)).collect::<Vec<_>>(),
    });
    let bars = results.iter().map(|result| {
        Group::new(
            format!("U {:.3}", result.window.utilisation),
            [result.window.cleaning_waf(), result.closed_form()],
        )
    });
    let picture = groups(
        "Cleaning WAF, uniform random overwrites",
        &["measured", "closed form"],
        &bars.collect::<Vec<_>>(),
    );
    let goals = results.iter().flat_map(SteadyResult::goals).collect();
    let text = format!(
        "{}, uniform random overwrites of 4 KiB, spare {} so that every share can be reached\n{}",
        scratch.describe(),
        Share(SPARE_PER_MILLE),
        render(&results, share)
    );
    Findings {
        name: "steady",
        value,
        text,
        picture,
        goals,
    }
    .publish(&meter, &arguments.report, output)
}

/// The results as a table.
pub fn render(results: &[SteadyResult], data_share: f64) -> String {
    let heading = [
        "U WANTED",
        "U",
        "CLEANING WAF",
        "CLOSED FORM",
        "OFF BY",
        "ALL WAF",
        "METADATA",
        "CHECKPOINT",
        "PADDING",
        "MB/S",
        "LINEAR MB/S",
        "RATIO",
    ];
    let mut table = Table::new(&heading);
    for result in results {
        let window = &result.window;
        table.row([
            result.wanted.to_string(),
            format!(
                "{:.4}{}",
                window.utilisation,
                if result.is_on_target() {
                    ""
                } else {
                    " (out of reach)"
                }
            ),
            format!("{:.3}", window.cleaning_waf()),
            format!("{:.3}", result.closed_form()),
            format!("{:.1} %", result.off() * 100.0),
            format!("{:.3}", window.per_user_byte(window.written.total())),
            format!("{:.4}", window.header_share()),
            format!("{:.4}", window.checkpoint_waf()),
            format!("{:.4}", window.per_user_byte(window.written.padding)),
            megabytes(window.load.bytes_per_second()),
            result.linear.map_or("-".to_owned(), |linear| {
                megabytes(linear.bytes_per_second())
            }),
            result
                .ratio(data_share)
                .map_or("-".to_owned(), |ratio| format!("{ratio:.3}")),
        ]);
    }
    table.render()
}

/// Brings a new pool on the members to the steady state at this share, and measures it.
pub fn measure(
    scratch: &Scratch,
    wanted: Share,
    plan: &SteadyPlan,
) -> Result<SteadyResult, Failure> {
    let mut linear = scratch.is_files().then(LinearResult::default);
    members_alone(scratch, plan.linear_time, &mut linear)?;
    let pool = scratch.pool(SPARE_PER_MILLE, 100)?;
    let mut live = LiveSet::make(&pool, wanted)?;
    let window = live.settle(plan)?;
    let batch_bytes = daemon::report(&pool)?
        .capacity
        .zones
        .first()
        .map_or(0, |zone| {
            let shape = &zone.shape;
            u64::from(shape.chunk_rows) * u64::from(shape.width) * BLOCK_BYTES
        });
    let (live_bytes, adjustments) = (live.bytes, live.adjustments);
    drop(pool);
    members_alone(scratch, plan.linear_time, &mut linear)?;
    Ok(SteadyResult {
        wanted,
        window,
        live_bytes,
        adjustments,
        batch_bytes,
        linear,
    })
}

fn members_alone(
    scratch: &Scratch,
    time: Duration,
    sum: &mut Option<LinearResult>,
) -> Result<(), Failure> {
    let Some(sum) = sum else { return Ok(()) };
    let mut progress = Progress::new("members alone");
    *sum += linear::measure_from(
        sum.bytes,
        &scratch.members,
        scratch.chunk_bytes(),
        time,
        &mut |bytes| {
            progress.time(time, &Size(bytes).to_string());
        },
    )?;
    Ok(())
}

/// Overwritten blocks: the beginning of the volume.
struct LiveSet<'a> {
    pool: &'a Pool,
    wanted: Share,
    bytes: u64,
    bytes_max: u64,
    adjustments: u32,
    seed: u64,
}

impl<'a> LiveSet<'a> {
    /// Fills a first guess.
    fn make(pool: &'a Pool, wanted: Share) -> Result<Self, Failure> {
        let capacity = daemon::report(pool)?.capacity;
        let unreserved = capacity.data_bytes / u64::from(capacity.segments.max(1))
            * u64::from(capacity.segments.saturating_sub(capacity.reserve_segments));
        let guess = (unreserved / 1000 * u64::from(wanted.0)).min(capacity.usable_bytes);
        let bytes = fill(pool, guess, &format!("steady state at {wanted}"))?;
        Ok(Self {
            pool,
            wanted,
            bytes,
            bytes_max: capacity.usable_bytes / GRANULE * GRANULE,
            adjustments: 0,
            seed: 7,
        })
    }

    fn wanted(&self) -> f64 {
        f64::from(self.wanted.0) / 1000.0
    }

    fn overwrite(&mut self, bytes: u64, depth: usize, what: &str) -> Result<Window, Failure> {
        self.seed += 1;
        let label = format!("steady state at {}: {what}", self.wanted);
        window::measure(
            self.pool,
            &Overwrites {
                span_bytes: self.bytes,
                bytes: bytes.max(BLOCK_BYTES),
                depth,
                seed: self.seed,
            },
            &label,
        )
    }

    /// Steps 2 to 4 of the module's list.
    fn settle(&mut self, plan: &SteadyPlan) -> Result<Window, Failure> {
        self.overwrite(self.bytes * plan.overwrites, plan.depth, "settling")?;
        loop {
            loop {
                let short = self.overwrite(self.bytes / 4, plan.depth, "adjusting")?;
                if (short.utilisation - self.wanted()).abs() <= TOLERANCE_SHORT
                    || !self.adjust(&short)?
                {
                    break;
                }
            }
            self.overwrite(self.bytes / 2, plan.depth, "settling")?;
            let window = self.overwrite(self.bytes * plan.measure, plan.depth, "measuring")?;
            if (window.utilisation - self.wanted()).abs() <= TOLERANCE || !self.adjust(&window)? {
                return Ok(window);
            }
        }
    }

    /// Trims or extends the live set by the deviation of `U`. False if it cannot be changed
    /// further.
    fn adjust(&mut self, window: &Window) -> Result<bool, Failure> {
        if self.adjustments >= ADJUSTMENTS_MAX {
            return Ok(false);
        }
        let right = self.bytes as f64 * self.wanted() / window.utilisation.max(0.01);
        let right =
            ((right / GRANULE as f64).round() as u64 * GRANULE).clamp(GRANULE, self.bytes_max);
        if right == self.bytes {
            return Ok(false);
        }
        let requester = Requester::open(self.pool, EXPORT)?;
        if right < self.bytes {
            requester.trim(right, self.bytes)?
        } else {
            requester.fill(self.bytes, right)?
        }
        self.bytes = right;
        self.adjustments += 1;
        match self.pool.stop_reason() {
            Some(why) => Err(Failure::new(id::BENCH_LOAD, "the pool stopped", why)),
            None => Ok(true),
        }
    }
}

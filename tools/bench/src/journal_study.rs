//! `bench journal-study`: a published study of dedicated journal devices, repeated on modelled
//! members (docs/lab/journal-study.md).
//!
//! Time is virtual: figures depend only on the arguments. The published figures shown with them
//! were measured with both loads at once, at about a tenth of the load.

mod files;
mod findings;

use super::report::ReportArguments;
use super::rounds::{at_least_one, seconds};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use windrow_console::output::Output;
use windrow_console::progress::Progress;
use windrow_console::values::{Share, Size};
use windrow_host::failure::{Failure, id};
use windrow_load::machine::Meter;
use windrow_wa_sim::device::DeviceOptions;
use windrow_wa_sim::study::{Configuration, Pressure, Study, StudySpec, Workload};

/// Arguments of `bench journal-study`.
#[derive(Args)]
#[command(after_help = "Examples:
  windrow-bench journal-study
  windrow-bench journal-study --quick
  windrow-bench journal-study --configuration internal,ssd,memory --workload both --pressure tenth --requests 4000000 -o json
  windrow-bench journal-study --suspend --results results
  windrow-bench journal-study --dir /var/tmp --size 1G --seconds 10")]
pub struct JournalStudyArguments {
    #[command(flatten)]
    report: ReportArguments,
    /// Number of members.
    #[arg(long, default_value = "8", value_parser = windrow_console::values::within::<u8>(4, 32))]
    members: u8,
    /// Size of each.
    #[arg(long, default_value = "256M")]
    size: Size,
    /// Share of the usable space that is live.
    #[arg(long, default_value = "85%")]
    full: Share,
    /// Compared configurations: Windrow with padded rows (`padding`), with its journal on the data
    /// drives (`internal`), on an SSD (`ssd`), on power-safe memory (`memory`), and the same for an
    /// array in place with a file system that journals data (`in-place`, `in-place-ssd`,
    /// `in-place-memory`).
    #[arg(long, value_delimiter = ',', default_value = "padding,internal,ssd,memory,in-place,in-place-ssd,in-place-memory", value_parser = configuration)]
    configuration: Vec<Configuration>,
    /// `transaction` (50/50, small), `data` (70/30, large), `both` at once.
    #[arg(long, value_delimiter = ',', default_value = "both,transaction,data", value_parser = workload)]
    workload: Vec<Workload>,
    /// `tenth` of the bytes per second that the baseline writes at full load, `full`: 64 tasks
    /// without pauses.
    #[arg(long, value_delimiter = ',', default_value = "tenth,full", value_parser = pressure)]
    pressure: Vec<Pressure>,
    /// In addition to durable writes: writes that are not durable, with a flush by the same task
    /// after each N of them (0: omit). With both loads at once, or with the selected ones if `both`
    /// is not among them.
    #[arg(long, value_delimiter = ',', default_value = "1,8,32", value_parser = windrow_console::values::within::<u64>(0, 1_000_000))]
    flush: Vec<u64>,
    /// Requests of each measurement. A percentile needs ten above it. Default: 300 000 where the
    /// talk has figures (both loads at a tenth), 50 000 elsewhere, 20 000 with flushes.
    #[arg(long, value_parser = at_least_one)]
    requests: Option<usize>,
    /// Small members and few requests: takes some tens of seconds.
    #[arg(long)]
    quick: bool,
    /// Seed of all random numbers.
    #[arg(long, default_value = "1")]
    seed: u64,
    /// Drives suspend programs for reads.
    #[arg(long)]
    suspend: bool,
    /// Drives queue reads after the programs that wait for the same die.
    #[arg(long, conflicts_with = "suspend")]
    in_order: bool,
    /// Files in this folder instead of modelled members, with threads and a clock (removed
    /// afterwards); Windrow's configurations only.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Seconds of each measurement on files.
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds, requires = "dir")]
    seconds: Duration,
    /// Drives without capacitors: a flush waits until everything is programmed.
    #[arg(long)]
    no_power_loss_protection: bool,
}

/// Default requests of each measurement: where the talk has figures, elsewhere, and with flushes.
const REQUESTS: [u64; 3] = [300_000, 50_000, 20_000];
/// Same with `--quick`.
const QUICK_REQUESTS: [u64; 3] = [8_000, 3_000, 1_000];
const QUICK_BYTES: u64 = 96 << 20;

fn by_name<T: Copy>(text: &str, all: &[T], name: impl Fn(T) -> &'static str) -> Result<T, String> {
    all.iter()
        .copied()
        .find(|value| name(*value) == text)
        .ok_or_else(|| {
            let names: Vec<&str> = all.iter().map(|value| name(*value)).collect();
            format!("'{text}' is not one of {}", names.join(", "))
        })
}

fn configuration(text: &str) -> Result<Configuration, String> {
    by_name(text, &Configuration::ALL, Configuration::name)
}

fn workload(text: &str) -> Result<Workload, String> {
    by_name(text, &Workload::ALL, Workload::name)
}

fn pressure(text: &str) -> Result<Pressure, String> {
    by_name(text, &[Pressure::Tenth, Pressure::Full], pressure_name)
}

fn pressure_name(pressure: Pressure) -> &'static str {
    match pressure {
        Pressure::Tenth => "tenth",
        Pressure::Full => "full",
    }
}

fn study_spec(arguments: &JournalStudyArguments) -> StudySpec {
    let usual = if arguments.quick {
        QUICK_REQUESTS
    } else {
        REQUESTS
    };
    let [judged_requests, requests, flush_requests] = arguments
        .requests
        .map_or(usual, |requests| [requests as u64; 3]);
    // Limits the slowest part: with flushes only both loads at once, unless only others are
    // selected.
    let both: Vec<Workload> = arguments
        .workload
        .iter()
        .copied()
        .filter(|workload| *workload == Workload::Both)
        .collect();
    StudySpec {
        members: usize::from(arguments.members),
        member_bytes: if arguments.quick {
            arguments.size.0.min(QUICK_BYTES)
        } else {
            arguments.size.0
        },
        live_percent: u64::from(arguments.full.0) / 10,
        configurations: arguments.configuration.clone(),
        workloads: arguments.workload.clone(),
        pressures: arguments.pressure.clone(),
        flushes: arguments
            .flush
            .iter()
            .copied()
            .filter(|after| *after > 0)
            .collect(),
        flush_workloads: if both.is_empty() {
            arguments.workload.clone()
        } else {
            both
        },
        judged_requests,
        requests,
        flush_requests,
        seed: arguments.seed,
        devices: DeviceOptions {
            protected: !arguments.no_power_loss_protection,
            suspend: arguments.suspend,
            in_order: arguments.in_order,
        },
    }
}

/// Runs the benchmark.
pub fn run(arguments: &JournalStudyArguments, output: &Output) -> Result<u8, Failure> {
    let (meter, spec) = (Meter::start(), study_spec(arguments));
    if let Some(dir) = &arguments.dir {
        let rows = files::measure(&spec, dir, arguments.seconds)?;
        let text = format!(
            "RAID-6 of {} files of {}, {} % of the usable space live; real time, {:.1} s each",
            spec.members,
            Size(spec.member_bytes),
            spec.live_percent,
            arguments.seconds.as_secs_f64()
        );
        return findings::make(&spec, &text, &rows, &[], false).publish(
            &meter,
            &arguments.report,
            output,
        );
    }
    let mut study = Study::new(&spec);
    let mut progress = Progress::new("journal study");
    study
        .run(&mut |what, done, all| progress.text(&format!("{what}, {} of {all}", done.min(all))))
        .map_err(|why| Failure::new(id::BENCH_INPUT, "the study stopped", why))?;
    drop(progress);
    let text = format!(
        "RAID-6 of {} modelled members of {}, {} % of the usable space live, seed {}; virtual time",
        spec.members,
        Size(spec.member_bytes),
        spec.live_percent,
        spec.seed
    );
    findings::make(&spec, &text, &study.rows, &study.settling, true).publish(
        &meter,
        &arguments.report,
        output,
    )
}

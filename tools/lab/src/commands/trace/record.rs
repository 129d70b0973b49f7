//! `trace record`: the requests of a served volume, of all volumes of a pool, or of a block device
//! of this machine, as a trace.
//!
//! The daemon records volumes (`windrow_host::recorder`). It keeps a bounded number of requests
//! until they are taken through the control socket, and never waits for that. The kernel's
//! tracepoints record a device (`device.rs`). In both cases lost requests are counted and reported.

mod device;
mod volume;

use super::{Ended, FileWriter, Granules, To, target_of, write_trace};
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use windrow_console::context::PoolPlace;
use windrow_console::output::Output;
use windrow_console::progress::Progress;
use windrow_console::values::Size;
use windrow_host::Failure;
use windrow_host::failure::id;
use windrow_trace::Request;

/// Polling interval.
const PAUSE: Duration = Duration::from_millis(20);

/// Arguments of `trace record`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  windrow-lab trace record tank/data data.wtrc --for 10m\n  windrow-lab trace record tank/data data.csv.gz --requests 100000\n  \
    windrow-lab trace record tank pool.wtrc --for 10m\n  windrow-lab trace record /dev/nvme0n1 disk.wtrc --for 1h\n\nWithout --for and --requests it goes on until it is interrupted (Ctrl-C), and keeps what it has."
)]
pub struct RecordArguments {
    /// POOL/VOLUME that a daemon serves, POOL for all of its volumes, or a block device such as
    /// /dev/nvme0n1.
    #[arg(value_name = "SOURCE")]
    pub source: String,
    /// File to write; compressed if it ends in .gz.
    #[arg(value_name = "OUT")]
    pub out: PathBuf,
    /// Duration of the recording: 30s, 10m, 2h.
    #[arg(long = "for", value_name = "TIME", value_parser = span)]
    pub time: Option<Duration>,
    /// Number of requests to record.
    #[arg(long, value_name = "N", value_parser = windrow_console::values::within::<u64>(1, 1_000_000_000_000_000))]
    pub requests: Option<u64>,
    /// Format to write; default by the name: .csv, .iolog or .fio, and the compact format for all
    /// others.
    #[arg(long, value_enum)]
    pub to: Option<To>,
    #[command(flatten)]
    pub place: PoolPlace,
}

/// Parses a time such as `30s`, `10m`, `2h`.
pub fn span(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a time; write it as 30s, 10m or 2h");
    let (digits, seconds) = match text.char_indices().last().ok_or_else(wrong)? {
        (at, 's') => (&text[..at], 1),
        (at, 'm') => (&text[..at], 60),
        (at, 'h') => (&text[..at], 3600),
        _ => return Err(wrong()),
    };
    let number: u64 = digits
        .parse()
        .ok()
        .filter(|number| *number > 0)
        .ok_or_else(wrong)?;
    number
        .checked_mul(seconds)
        .map(Duration::from_secs)
        .ok_or_else(wrong)
}

/// Result of a recording.
#[derive(Serialize)]
pub struct Report {
    source: String,
    /// Number of requests in the trace.
    pub requests: u64,
    /// Number of requests that are missing.
    pub missed: u64,
    bytes: u64,
    /// Duration of the recording.
    pub seconds: f64,
    /// Reason of an early end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<Failure>,
}

/// Source of requests.
trait Tap {
    /// Requests since the last call, and the number of missed ones; with `end` for the last time.
    fn take(&mut self, end: bool) -> Result<(Vec<Request>, u64), Failure>;

    /// Names of the devices in the requests taken so far.
    fn names(&self) -> &[String];
}

/// Runs the command.
pub fn run(arguments: &RecordArguments, output: &Output) -> Result<u8, Failure> {
    let report = carry_out(arguments)?;
    output.result("trace-record", &report, || {
        describe(&report, &arguments.out)
    });
    Ok(u8::from(report.cut.is_some()))
}

/// Records until the limit, or a signal.
pub fn carry_out(arguments: &RecordArguments) -> Result<Report, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        // The first signal ends the recording, the next one the command.
        let wait =
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, stop.clone());
        wait.and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .map_err(|error| Failure::new(id::NOT_AVAILABLE, "cannot wait for signals", error))?;
    }
    let mut tap: Box<dyn Tap> = match arguments.source.starts_with('/') {
        true => Box::new(device::DeviceTap::open(Path::new(&arguments.source))?),
        false => Box::new(volume::VolumeTap::open(
            &arguments.source,
            &arguments.place,
        )?),
    };
    // Scripts can wait for this line.
    windrow_console::output::error_text(&format!("recording {}\n", arguments.source));
    let (begin, mut missed, mut cut) = (Instant::now(), 0, None);
    let (target, gzip) = target_of(&arguments.out, arguments.to, Granules::Byte);
    let (written, bytes) = write_trace(&arguments.out, target, gzip, |writer| {
        missed = record(&mut *tap, arguments, &stop, writer, &mut cut)?;
        Ok(())
    })?;
    stop.store(true, Ordering::Relaxed);
    Ok(Report {
        source: arguments.source.clone(),
        requests: written.requests,
        missed,
        bytes,
        seconds: begin.elapsed().as_secs_f64(),
        cut,
    })
}

/// Takes and writes requests until the limit. Requests taken before a failure are kept.
fn record(
    tap: &mut dyn Tap,
    arguments: &RecordArguments,
    stop: &AtomicBool,
    writer: &mut FileWriter,
    cut: &mut Option<Failure>,
) -> Result<u64, Ended> {
    let (begin, mut written, mut missed) = (Instant::now(), 0, 0);
    let most = arguments.requests.unwrap_or(u64::MAX);
    let mut progress = Progress::new(format!("recording {}", arguments.source));
    let mut first_ns = None;
    loop {
        let end = stop.load(Ordering::Relaxed)
            || arguments.time.is_some_and(|time| begin.elapsed() >= time)
            || written >= most;
        let lot = match tap.take(end) {
            Ok(lot) => lot,
            Err(failure) => {
                *cut = Some(failure);
                return Ok(missed);
            }
        };
        missed += lot.1;
        for request in lot
            .0
            .into_iter()
            .take(usize::try_from(most - written).unwrap_or(usize::MAX))
        {
            let first = *first_ns.get_or_insert(request.time_ns);
            writer.add(
                &Request {
                    time_ns: request.time_ns.saturating_sub(first),
                    ..request
                },
                tap.names(),
            )?;
            written += 1;
        }
        if end {
            return Ok(missed);
        }
        progress.text(&format!(
            "{written} requests, {missed} missed, {} s",
            begin.elapsed().as_secs()
        ));
        std::thread::sleep(PAUSE);
    }
}

fn describe(report: &Report, out: &Path) -> String {
    let missed = match report.missed {
        0 => String::new(),
        missed => {
            format!("{missed} more were not recorded, because more came than could be taken\n")
        }
    };
    let cut = report.cut.as_ref().map_or(String::new(), |failure| {
        format!("it ended early: {failure}\n")
    });
    format!(
        "{}: {} requests of {} in {:.1} s, {}\n{missed}{cut}",
        out.display(),
        report.requests,
        report.source,
        report.seconds,
        Size(report.bytes)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use windrow_host::recorder::{Recorded, RecordedKind};
    use windrow_trace::Kind;
    use windrow_types::VolumeId;

    #[test]
    fn times_and_requests() {
        assert_eq!(
            [span("30s"), span("10m"), span("2h")].map(|span| span.map(|span| span.as_secs())),
            [Ok(30), Ok(600), Ok(7200)]
        );
        assert!(
            [
                "",
                "s",
                "0s",
                "10",
                "5d",
                "-1s",
                "1.5h",
                "99999999999999999999h",
                "10µ"
            ]
            .iter()
            .all(|text| span(text).is_err())
        );
        let fua = volume::request(
            Recorded(RecordedKind::WriteFua, 4096, 512, 9, VolumeId(1)),
            2,
        );
        assert_eq!(
            (
                fua.kind,
                fua.fua,
                fua.device,
                fua.offset,
                fua.length,
                fua.time_ns
            ),
            (Kind::Write, true, 2, 4096, 512, 9)
        );
        assert_eq!(
            volume::request(Recorded(RecordedKind::Flush, 0, 0, 1, VolumeId(1)), 0),
            Request::new(Kind::Flush, 0, 0, 0, 1)
        );
    }
}

//! `trace info`.

use super::{Noticed, TraceSource};
use clap::Args;
use serde::Serialize;
use windrow_console::figures::clock;
use windrow_console::output::Output;
use windrow_console::table::Table;
use windrow_console::values::Size;
use windrow_host::Failure;
use windrow_trace::Summary;
use windrow_trace::summary::{Figures, OfKind};

/// Arguments of `trace info`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  windrow-lab trace info trace.csv.zst\n  windrow-lab trace info disk.blktrace --event issued -o json\n  \
    windrow-lab trace info own.txt --columns time_s,op,lba,sectors"
)]
pub struct InfoArguments {
    #[command(flatten)]
    source: TraceSource,
}

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    noticed: Noticed,
    #[serde(flatten)]
    figures: Figures,
}

/// Runs the command.
pub fn run(arguments: &InfoArguments, output: &Output) -> Result<u8, Failure> {
    let mut reader = arguments.source.open()?;
    let mut summary = Summary::default();
    while let Some(request) = reader
        .next_request()
        .map_err(|error| arguments.source.failure(&error))?
    {
        summary.add(&request);
    }
    let report = Report {
        noticed: Noticed::of(&reader),
        figures: summary.figures(),
    };
    output.result("trace-info", &report, || {
        describe(&arguments.source.name(), &report)
    });
    Ok(0)
}

fn describe(name: &str, report: &Report) -> String {
    let figures = &report.figures;
    let at_least = if figures.sets_are_at_least {
        "at least "
    } else {
        ""
    };
    let rate = match (figures.requests_per_second, figures.bytes_per_second) {
        (Some(requests), Some(bytes)) => {
            format!("{requests:.1} requests and {}/s", Size(bytes as u64))
        }
        _ => "no times".to_owned(),
    };
    let overwrites = figures.overwrites.map_or(String::new(), |times| {
        format!(", each block {times:.2} times")
    });
    let devices = report.noticed.devices.len();
    format!(
        "{name}: {} trace, {} requests, {devices} {}\n\
         time         {} ({:.3} s), {rate}\n\
         working set  {at_least}{} read or written, {at_least}{} written{overwrites}; addresses up to {}\n\n{}\n{}{}",
        report.noticed.format,
        figures.requests,
        if devices == 1 { "device" } else { "devices" },
        clock(figures.duration_ns / 1_000_000_000),
        figures.duration_ns as f64 / 1e9,
        Size(figures.working_set_bytes),
        Size(figures.written_set_bytes),
        Size(figures.address_end),
        kinds(figures),
        sizes(figures),
        report.noticed.remarks(),
    )
}

fn named(figures: &Figures) -> [(&'static str, &OfKind); 4] {
    [
        ("read", &figures.read),
        ("write", &figures.write),
        ("trim", &figures.trim),
        ("flush", &figures.flush),
    ]
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        "-".to_owned()
    } else {
        format!("{:.1} %", part as f64 * 100.0 / whole as f64)
    }
}

fn kinds(figures: &Figures) -> String {
    let mut table = Table::new(&[
        "KIND",
        "REQUESTS",
        "SHARE",
        "BYTES",
        "MEAN",
        "LONGEST",
        "SEQUENTIAL",
        "UNALIGNED",
    ]);
    for (name, kind) in named(figures)
        .into_iter()
        .filter(|(_, kind)| kind.requests > 0)
    {
        table.row([
            name.to_owned(),
            kind.requests.to_string(),
            percent(kind.requests, figures.requests),
            Size(kind.bytes).to_string(),
            Size(kind.bytes / kind.requests).to_string(),
            Size(kind.longest).to_string(),
            percent(kind.sequential, kind.requests),
            percent(kind.unaligned, kind.requests),
        ]);
    }
    let fua = if figures.fua_writes > 0 {
        format!("{} writes have FUA\n", figures.fua_writes)
    } else {
        String::new()
    };
    let backwards = if figures.backwards > 0 {
        format!(
            "{} requests are earlier than the one before\n",
            figures.backwards
        )
    } else {
        String::new()
    };
    format!("{}{fua}{backwards}", table.render())
}

fn sizes(figures: &Figures) -> String {
    let mut table = Table::new(&["UP TO", "READS", "WRITES", "TRIMS"]);
    let of = [&figures.read, &figures.write, &figures.trim];
    let classes = figures.read.sizes.len();
    for class in (0..classes).filter(|class| of.iter().any(|kind| kind.sizes[*class] > 0)) {
        let name = if class + 1 == classes {
            "more".to_owned()
        } else {
            Size(512 << class).to_string()
        };
        table.row(
            std::iter::once(name).chain(
                of.iter()
                    .map(|kind| percent(kind.sizes[class], kind.requests)),
            ),
        );
    }
    table.render()
}

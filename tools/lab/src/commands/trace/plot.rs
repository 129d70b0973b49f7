//! `trace plot`: a chart of a trace's writes by address (upwards) and time (to the right); a chart
//! of its request lengths; and both as a report.
//!
//! Two passes over the trace: the first finds its extent, so that the second needs only a grid of
//! fixed size.

use super::{Noticed, TraceSource};
use crate::drawing::{Along, Grid, sizes};
use crate::report::{Report, ReportArguments, save_picture};
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use windrow_console::output::Output;
use windrow_host::Failure;
use windrow_host::failure::id;
use windrow_trace::summary::Figures;
use windrow_trace::{Kind, Request, Summary};

/// Arguments of `trace plot`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  windrow-lab trace plot trace.csv.zst writes.svg\n  windrow-lab trace plot disk.blktrace reads.png --kind read\n  \
    windrow-lab trace plot trace.wtrc sizes.svg --picture sizes\n  windrow-lab trace plot trace.wtrc writes.svg --by-request --report trace.html"
)]
pub struct PlotArguments {
    #[command(flatten)]
    source: TraceSource,
    /// Chart to write: PNG if it ends in .png, else SVG.
    #[arg(value_name = "OUT")]
    out: PathBuf,
    /// Kind of chart.
    #[arg(long, value_enum, default_value = "heat")]
    picture: What,
    /// Requests to draw.
    #[arg(long, value_enum, default_value = "write")]
    kind: Drawn,
    /// Requests in sequence to the right, instead of the time.
    #[arg(long)]
    by_request: bool,
    #[command(flatten)]
    report: ReportArguments,
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum What {
    /// Bytes over address and time.
    Heat,
    /// Sizes of requests, by number and by bytes.
    Sizes,
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum Drawn {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Trims.
    Trim,
}

impl Drawn {
    fn kind(self) -> Kind {
        match self {
            Self::Read => Kind::Read,
            Self::Write => Kind::Write,
            Self::Trim => Kind::Trim,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Read => "reads",
            Self::Write => "writes",
            Self::Trim => "trims",
        }
    }
}

#[derive(Serialize)]
struct Drawing {
    #[serde(flatten)]
    noticed: Noticed,
    requests: u64,
    address_begin: u64,
    address_end: u64,
}

/// Range of a chart.
#[derive(Clone, Copy)]
struct Extent {
    requests: u64,
    last_ns: u64,
    begin: u64,
    end: u64,
}

/// Runs the command.
pub fn run(arguments: &PlotArguments, output: &Output) -> Result<u8, Failure> {
    if arguments.source.name() == "-" {
        return Err(Failure::new(
            id::USAGE,
            "cannot draw from standard input",
            "the trace is read twice",
        )
        .remedy("name a file"));
    }
    let mut extent = Extent {
        requests: 0,
        last_ns: 0,
        begin: u64::MAX,
        end: 0,
    };
    let mut summary = Summary::default();
    let noticed = each(arguments, |request| {
        summary.add(request);
        if is_drawn(arguments, request) {
            extent.requests += 1;
            extent.last_ns = extent.last_ns.max(request.time_ns);
            extent.begin = extent.begin.min(request.offset);
            extent.end = extent.end.max(request.end());
        }
    })?;
    if extent.requests == 0 {
        return Err(Failure::new(
            id::TRACE_FORMAT,
            format!("nothing to draw in {}", arguments.source.name()),
            "it has no request of that kind",
        )
        .remedy("see `windrow-lab trace info`"));
    }
    draw(arguments, &extent, &summary.figures())?;
    let drawing = Drawing {
        noticed,
        requests: extent.requests,
        address_begin: extent.begin,
        address_end: extent.end,
    };
    output.result("trace-plot", &drawing, || {
        format!(
            "{}: {} requests\n{}",
            arguments.out.display(),
            drawing.requests,
            drawing.noticed.remarks()
        )
    });
    Ok(0)
}

fn draw(arguments: &PlotArguments, extent: &Extent, figures: &Figures) -> Result<(), Failure> {
    let name = arguments.source.short_name();
    let mut grid = Grid::new(
        extent.begin,
        extent.end,
        if arguments.by_request {
            extent.requests
        } else {
            extent.last_ns.saturating_add(1)
        },
    );
    let mut number = 0;
    each(arguments, |request| {
        if is_drawn(arguments, request) {
            grid.add(
                if arguments.by_request {
                    number
                } else {
                    request.time_ns
                },
                request.offset,
                request.length,
            );
            number += 1;
        }
    })?;
    let heat = grid.picture(
        arguments.kind.name(),
        &name,
        if arguments.by_request {
            Along::Requests
        } else {
            Along::Time
        },
    );
    let sizes = sizes(figures, &name);
    let wanted = format!("sizes-{}", arguments.kind.name());
    match sizes
        .iter()
        .find(|(file, _)| arguments.picture == What::Sizes && *file == wanted)
    {
        Some((_, picture)) => save_picture(&arguments.out, picture)?,
        None => save_picture(&arguments.out, &heat)?,
    }
    arguments.report.write(|| {
        let report = Report::new(&format!("Trace {name}"), &lead(figures))
            .section("Where and when")
            .picture("heat", &heat)
            .section("Sizes");
        sizes.iter().fold(report, |report, (file, picture)| {
            report.picture(file, picture)
        })
    })
}

fn lead(figures: &Figures) -> String {
    let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
    format!(
        "{} requests in {:.1} s: {} reads, {} writes ({:.3} GiB), {} trims, {} flushes; {:.3} GiB of different blocks are written{}.",
        figures.requests,
        figures.duration_ns as f64 / 1e9,
        figures.read.requests,
        figures.write.requests,
        gib(figures.write.bytes),
        figures.trim.requests,
        figures.flush.requests,
        gib(figures.written_set_bytes),
        figures
            .overwrites
            .map_or(String::new(), |times| format!(", each {times:.2} times"))
    )
}

fn is_drawn(arguments: &PlotArguments, request: &Request) -> bool {
    request.kind == arguments.kind.kind() && request.length > 0
}

/// Visits all requests.
fn each(arguments: &PlotArguments, mut visit: impl FnMut(&Request)) -> Result<Noticed, Failure> {
    let mut reader = arguments.source.open()?;
    while let Some(request) = reader
        .next_request()
        .map_err(|error| arguments.source.failure(&error))?
    {
        visit(&request);
    }
    Ok(Noticed::of(&reader))
}

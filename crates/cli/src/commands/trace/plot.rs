//! `trace plot`: a picture of where (upwards) and when (to the right) a trace writes, and how much.
//!
//! Two passes over the trace: the first finds its extent, so that the second needs a grid of fixed size only.

use super::{Noticed, TraceSource};
use crate::output::Output;
use crate::values::Size;
use clap::Args;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::PathBuf;
use windrow_host::Failure;
use windrow_host::failure::id;
use windrow_trace::{Kind, Request};

const COLUMNS: usize = 240;
const ROWS: usize = 120;
const CELL: usize = 4;
/// Room for text around the grid.
const MARGIN: usize = 60;

/// Arguments of `trace plot`.
#[derive(Args)]
#[command(after_help = "Examples:\n  windrow trace plot trace.csv.zst writes.svg\n  windrow trace plot disk.blktrace reads.svg --kind read\n  \
    windrow trace plot trace.wtrc writes.svg --by-request")]
pub struct PlotArguments {
    #[command(flatten)]
    source: TraceSource,
    /// Picture to write (SVG).
    #[arg(value_name = "OUT")]
    out: PathBuf,
    /// What is drawn.
    #[arg(long, value_enum, default_value = "write")]
    kind: Drawn,
    /// One request after the other to the right, instead of the time.
    #[arg(long)]
    by_request: bool,
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
}

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    noticed: Noticed,
    requests: u64,
    address_begin: u64,
    address_end: u64,
}

/// What a picture spans.
#[derive(Clone, Copy)]
struct Extent {
    requests: u64,
    last_ns: u64,
    begin: u64,
    end: u64,
}

/// Runs it.
pub fn run(arguments: &PlotArguments, output: &Output) -> Result<u8, Failure> {
    if arguments.source.name() == "-" {
        return Err(Failure::new(id::USAGE, "cannot draw from standard input", "the trace is read twice").remedy("name a file"));
    }
    let mut extent = Extent { requests: 0, last_ns: 0, begin: u64::MAX, end: 0 };
    let noticed = each(arguments, |request| {
        extent.requests += 1;
        extent.last_ns = extent.last_ns.max(request.time_ns);
        extent.begin = extent.begin.min(request.offset);
        extent.end = extent.end.max(request.end());
    })?;
    if extent.requests == 0 {
        return Err(Failure::new(id::TRACE_FORMAT, format!("nothing to draw in {}", arguments.source.name()), "it has no request of that kind")
            .remedy("see `windrow trace info`"));
    }
    let mut grid = vec![0u64; COLUMNS * ROWS];
    let mut number = 0;
    each(arguments, |request| {
        let (at, whole) = if arguments.by_request { (number, extent.requests) } else { (request.time_ns, extent.last_ns.saturating_add(1)) };
        number += 1;
        draw(&mut grid, request, scaled(at, whole, COLUMNS), &extent);
    })?;
    let picture = render(&grid, arguments, &extent);
    std::fs::write(&arguments.out, picture).map_err(|error| {
        Failure::new(id::LOCAL_FILE, format!("cannot write {}", arguments.out.display()), error).remedy("check the folder, your rights to it and its room")
    })?;
    let report = Report { noticed, requests: extent.requests, address_begin: extent.begin, address_end: extent.end };
    output.result("trace-plot", &report, || format!("{}: {} requests\n{}", arguments.out.display(), report.requests, report.noticed.remarks()));
    Ok(0)
}

/// Goes over the requests that are drawn.
fn each(arguments: &PlotArguments, mut visit: impl FnMut(&Request)) -> Result<Noticed, Failure> {
    let mut reader = arguments.source.open()?;
    while let Some(request) = reader.next_request().map_err(|error| arguments.source.failure(&error))? {
        if request.kind == arguments.kind.kind() && request.length > 0 {
            visit(&request);
        }
    }
    Ok(Noticed::of(&reader))
}

/// `at` of `whole` as one of `steps`.
fn scaled(at: u64, whole: u64, steps: usize) -> usize {
    let step = u128::from(at) * steps as u128 / u128::from(whole.max(1));
    (step as usize).min(steps - 1)
}

/// Adds a request's bytes to the cells it touches.
fn draw(grid: &mut [u64], request: &Request, column: usize, extent: &Extent) {
    let span = (extent.end - extent.begin).max(1);
    let (first, last) = (scaled(request.offset - extent.begin, span, ROWS), scaled(request.end() - 1 - extent.begin, span, ROWS));
    let share = request.length / (last - first + 1) as u64;
    for row in first..=last {
        let cell = &mut grid[row * COLUMNS + column];
        *cell = cell.saturating_add(share.max(1));
    }
}

fn render(grid: &[u64], arguments: &PlotArguments, extent: &Extent) -> String {
    let (width, height) = (COLUMNS * CELL, ROWS * CELL);
    let most = grid.iter().copied().max().unwrap_or(1).max(2) as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
        width + 2 * MARGIN,
        height + 2 * MARGIN
    );
    for (index, bytes) in grid.iter().enumerate().filter(|(_, bytes)| **bytes > 0) {
        // Cells differ by powers of ten, so their shade follows the logarithm.
        let shade = (230.0 * (1.0 - (*bytes as f64).ln() / most.ln())).clamp(0.0, 230.0) as u8;
        let (x, y) = (MARGIN + index % COLUMNS * CELL, MARGIN + (ROWS - 1 - index / COLUMNS) * CELL);
        let _ = writeln!(svg, "<rect x=\"{x}\" y=\"{y}\" width=\"{CELL}\" height=\"{CELL}\" fill=\"rgb({shade},{shade},{})\"/>", shade / 2 + 110);
    }
    let along = if arguments.by_request { format!("{} requests", extent.requests) } else { format!("{:.1} s", extent.last_ns as f64 / 1e9) };
    let what = match arguments.kind {
        Drawn::Read => "reads",
        Drawn::Write => "writes",
        Drawn::Trim => "trims",
    };
    let _ = writeln!(svg, "<rect x=\"{MARGIN}\" y=\"{MARGIN}\" width=\"{width}\" height=\"{height}\" fill=\"none\" stroke=\"black\"/>");
    let _ = writeln!(
        svg,
        "<text x=\"{MARGIN}\" y=\"{}\">{what}: address {} to {} upwards, {along} to the right; darkest {} in a cell</text>",
        MARGIN - 12,
        Size(extent.begin),
        Size(extent.end),
        Size(most as u64)
    );
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_at_the_edges() {
        assert_eq!((scaled(0, 10, 5), scaled(9, 10, 5), scaled(10, 10, 5), scaled(u64::MAX, u64::MAX, 240), scaled(0, 0, 3)), (0, 4, 4, 239, 0));
        let extent = Extent { requests: 1, last_ns: 0, begin: 100, end: 1300 };
        let mut grid = vec![0; COLUMNS * ROWS];
        draw(&mut grid, &Request::new(Kind::Write, 0, 100, 1200, 0), 3, &extent);
        assert_eq!((grid.iter().sum::<u64>(), grid.iter().filter(|cell| **cell == 10).count()), (1200, ROWS));
    }
}

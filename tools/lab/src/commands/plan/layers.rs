//! `plan layers`.

use super::part::Part;
use super::{Cleaning, does_not_fit, factor};
use crate::report::{Report as Page, ReportArguments};
use clap::{Args, ValueEnum};
use serde::Serialize;
use windrow_charts::{Axis, Bars, Group, Unit};
use windrow_console::output::Output;
use windrow_console::table::Table;
use windrow_console::values::Size;
use windrow_host::Failure;
use windrow_host::failure::id;
use windrow_plan::layers::{self, Factor, FileSystem, Inside, Log, Stack, Total};
use windrow_plan::rounding::printed;
use windrow_plan::topology::Topology;

/// Arguments of `plan layers`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  windrow-lab plan layers\n  windrow-lab plan layers --file-system journalling --write-size 4K --topology 5 --drives 8\n  \
    windrow-lab plan layers --drive-spare 28% --cleaning 1.2\n  windrow-lab plan layers --drive-wear 2.5 -o json"
)]
pub struct LayersArguments {
    /// Drives in the array.
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = windrow_console::values::within::<u32>(0, 1_000_000))]
    drives: u32,
    /// Topology.
    #[arg(long, value_name = "LEVEL", default_value = "6")]
    topology: Topology,
    /// File system.
    #[arg(long, value_enum, default_value = "journalling")]
    file_system: Kind,
    /// Bytes of a write, for `journalling` and `ext4-journal`.
    #[arg(long, value_name = "SIZE", default_value = "32K")]
    write_size: Size,
    /// Bytes of journal and metadata per write, for the same: 32K to 80K in the source.
    #[arg(long, value_name = "SIZE", default_value = "32K")]
    journal_size: Size,
    /// Drive: spare of all its space, page-mapped and greedy; default an empty tail of 12 in 128
    /// pages, as in consumer drives.
    #[arg(long, value_name = "SHARE", conflicts_with = "drive_wear")]
    drive_spare: Option<Part>,
    /// Drive: its amplification of random writes, as specified or as measured by `plan smart`.
    #[arg(long, value_name = "FACTOR", value_parser = factor)]
    drive_wear: Option<f64>,
    /// Cleaning of Windrow: (user + moved) / user, or `uniform` for the worst case. `windrow stats`
    /// shows a pool's.
    #[arg(long, value_name = "FACTOR", default_value = "1.3")]
    cleaning: Cleaning,
    /// Share of the space that users fill, for `uniform`.
    #[arg(long, value_name = "SHARE", default_value = "90%")]
    usable: Part,
    #[command(flatten)]
    report: ReportArguments,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// None.
    None,
    /// FAT with one table.
    Fat,
    /// FAT with two tables.
    Fat2,
    /// XFS, ext4, NTFS.
    Journalling,
    /// ext4 with data=journal.
    Ext4Journal,
    /// ZFS with one parity of its own.
    ZfsZ1,
    /// ZFS with three.
    ZfsZ3,
    /// SQLite on YAFFS2.
    Sqlite,
}

#[derive(Serialize)]
struct Report {
    stack: Stack,
    by_file_system: Vec<Total>,
    baselines: Vec<Baseline>,
}

#[derive(Serialize)]
struct Baseline {
    layer: &'static str,
    #[serde(flatten)]
    factor: Factor,
}

/// Runs the command.
pub fn run(arguments: &LayersArguments, output: &Output) -> Result<u8, Failure> {
    let inside = match (arguments.drive_wear, arguments.drive_spare) {
        (Some(wear), _) => Inside::Stated(wear),
        (None, Some(spare)) => {
            spare.above_nothing(
                "--drive-spare",
                "without any spare space nothing can be written again",
            )?;
            Inside::PageMapped {
                spare: spare.below_all(
                    "--drive-spare",
                    "a drive of nothing but spare space holds nothing",
                )?,
            }
        }
        (None, None) => Inside::EmptyTail { tail: 12 },
    };
    if arguments.write_size.0 == 0 {
        let why = "a write of no bytes has no share of journal and metadata";
        return Err(
            Failure::new(id::USAGE, "--write-size 0 cannot be computed", why)
                .remedy("--write-size must be at least 1"),
        );
    }
    let log = Log::with_cleaning(arguments.cleaning.value(arguments.usable)?);
    let stack = layers::stack(
        file_system(arguments),
        arguments.topology,
        arguments.drives,
        inside,
        log,
    )
    .map_err(does_not_fit)?;
    let baselines = layers::baselines(arguments.drives)
        .into_iter()
        .map(|(layer, factor)| Baseline { layer, factor })
        .collect();
    let by_file_system =
        layers::totals(arguments.topology, arguments.drives, inside, log).map_err(does_not_fit)?;
    let report = Report {
        stack,
        by_file_system,
        baselines,
    };
    arguments.report.write(|| page(&report))?;
    output.result("plan-layers", &report, || describe(&report));
    Ok(0)
}

fn file_system(arguments: &LayersArguments) -> FileSystem {
    match arguments.file_system {
        Kind::None => FileSystem::None,
        Kind::Fat => FileSystem::Fat { tables: 1 },
        Kind::Fat2 => FileSystem::Fat { tables: 2 },
        Kind::Journalling => FileSystem::Journalling {
            data: arguments.write_size.0 as f64,
            journal: arguments.journal_size.0 as f64,
        },
        Kind::Ext4Journal => FileSystem::FullJournal {
            data: arguments.write_size.0 as f64,
            journal: arguments.journal_size.0 as f64,
        },
        Kind::ZfsZ1 => FileSystem::ZfsZ1,
        Kind::ZfsZ3 => FileSystem::ZfsZ3,
        Kind::Sqlite => FileSystem::SqliteOnFlash,
    }
}

/// The table and all file systems as a chart.
fn page(report: &Report) -> Page {
    let mut table = windrow_charts::Table::new(
        "Bytes to flash for each byte of the program",
        ["layer", "alone", "what", "Windrow", "what"],
    );
    for line in &report.stack.lines {
        table.row([
            line.layer,
            &printed(line.alone.factor, 2),
            &line.alone.name,
            &printed(line.under_windrow.factor, 2),
            &line.under_windrow.name,
        ]);
    }
    table.row([
        "all together",
        &printed(report.stack.alone, 2),
        "",
        &printed(report.stack.under_windrow, 2),
        "",
    ]);
    let bars = report.by_file_system.iter().map(|total| {
        Group::new(
            total.file_system.name.clone(),
            [total.alone, total.under_windrow],
        )
    });
    let picture = Bars::new(
        "Bytes to flash for each byte of the program, by file system",
        "Bars by file system, on a logarithmic axis: all layers together, the drives alone and with Windrow on them.",
        "",
        Axis::new("bytes to flash", Unit::Number).log().from(1.0),
        &["alone", "with Windrow"],
    )
    .with_all(bars)
    .picture();
    let mut known = windrow_charts::Table::new("Baselines", ["layer", "factor", "what", "source"]);
    for Baseline { layer, factor } in &report.baselines {
        known.row([
            *layer,
            &printed(factor.factor, 2),
            &factor.name,
            &factor.source,
        ]);
    }
    let lead = "Layers multiply: what a file system writes, what redundancy makes of it, what the drive makes of that.";
    Page::new("Write amplification by layer", lead)
        .table(&table)
        .picture("layers", &picture)
        .table(&known)
}

fn describe(report: &Report) -> String {
    let stack = &report.stack;
    let mut table = Table::new(&["LAYER", "ALONE", "WHAT", "WINDROW", "WHAT"]);
    for line in &stack.lines {
        table.row([
            line.layer.to_owned(),
            printed(line.alone.factor, 2),
            line.alone.name.clone(),
            printed(line.under_windrow.factor, 2),
            line.under_windrow.name.clone(),
        ]);
    }
    table.row([
        "all together".to_owned(),
        printed(stack.alone, 2),
        String::new(),
        printed(stack.under_windrow, 2),
        String::new(),
    ]);
    let mut known = Table::new(&["LAYER", "FACTOR", "WHAT", "SOURCE"]);
    for Baseline { layer, factor } in &report.baselines {
        known.row([
            (*layer).to_owned(),
            printed(factor.factor, 2),
            factor.name.clone(),
            factor.source.clone(),
        ]);
    }
    let mut all = Table::new(&["FILE SYSTEM", "FACTOR", "ALONE", "WINDROW"]);
    for Total {
        file_system,
        alone,
        under_windrow,
    } in &report.by_file_system
    {
        all.row([
            file_system.name.clone(),
            printed(file_system.factor, 2),
            printed(*alone, 1),
            printed(*under_windrow, 1),
        ]);
    }
    let less = stack.alone / stack.under_windrow;
    format!(
        "bytes to flash for each byte of the program\n{}\nWith Windrow {} times less is written.\n\nall layers together, by file system\n{}\nbaselines\n{}",
        table.render(),
        printed(less, 1),
        all.render(),
        known.render()
    )
}

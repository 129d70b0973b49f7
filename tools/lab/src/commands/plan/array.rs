//! Implementation of `plan`: drives by topologies.

use super::part::Part;
use super::{Cleaning, amount, catalogue, chosen, does_not_fit, factor};
use crate::report::{Report as Page, ReportArguments};
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use windrow_charts::{Axis, Bars, Group, Unit};
use windrow_console::output::Output;
use windrow_console::table::Table;
use windrow_host::Failure;
use windrow_host::failure::id;
use windrow_plan::array::{Assumptions, Outcome, Use, plan};
use windrow_plan::classes;
use windrow_plan::drive::Drive;
use windrow_plan::health::Findings;
use windrow_plan::rounding::printed;
use windrow_plan::topology::Topology;

/// Arguments of `plan`.
#[derive(Args)]
pub struct ArrayArguments {
    /// Drive, by its id in the catalogue (may be repeated); default all.
    #[arg(long, value_name = "ID")]
    drive: Vec<String>,
    /// Drives in the array.
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = windrow_console::values::within::<u32>(0, 1_000_000))]
    drives: u32,
    /// Topologies: 0, 5, 6, 10, 50, 60, 50xG and 60xG with G groups. Windrow is planned for 5 and
    /// 6.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "6,10"
    )]
    topology: Vec<Topology>,
    /// Catalogue of drives (TOML); default the built-in one.
    #[arg(long, value_name = "FILE")]
    catalogue: Option<PathBuf>,
    /// A drive of this machine, to be queried with smartctl, or its reports (`smartctl -j -a`,
    /// `nvme smart-log -o json`, `nvme ocp smart-add-log -o json`; may be repeated for one drive):
    /// plan with the drive's own measurements.
    #[arg(long, value_name = "DEVICE|FILE", conflicts_with_all = ["drive", "catalogue"])]
    smart: Vec<PathBuf>,
    /// With --smart: the drive's amplification of random writes in place. For a drive that was
    /// written in long rows so far (under Windrow, for example), whose report does not contain it.
    #[arg(long, value_name = "FACTOR", requires = "smart", value_parser = factor)]
    drive_wear: Option<f64>,
    /// Price of a drive, instead of the catalogue's.
    #[arg(long, value_name = "AMOUNT", value_parser = amount)]
    price: Option<f64>,
    /// Cost of everything except the drives.
    #[arg(long, value_name = "AMOUNT", value_parser = amount)]
    chassis: Option<f64>,
    /// Share of the space that users fill under Windrow; the rest is the pool's spare.
    #[arg(long, value_name = "SHARE", default_value = "90%")]
    usable: Part,
    /// Bytes that Windrow writes per user byte, without parity: a factor, or `uniform` for the
    /// worst case. The sources measured 1.43 on virtual machines without trim; `windrow stats`
    /// shows a pool's.
    #[arg(long, value_name = "FACTOR", default_value = "1.43")]
    cleaning: Cleaning,
    /// Share that compression removes: adds rows for more space, and for less wear.
    #[arg(long, value_name = "SHARE")]
    compression: Option<Part>,
    #[command(flatten)]
    report: ReportArguments,
}

#[derive(Serialize)]
struct Row {
    drive: String,
    topology: String,
    written: &'static str,
    outcome: Outcome,
    endurance: Option<&'static str>,
}

#[derive(Serialize)]
struct Report {
    drives: u32,
    assumptions: Assumptions,
    #[serde(skip_serializing_if = "Option::is_none")]
    measured: Option<Findings>,
    catalogue: Vec<Drive>,
    rows: Vec<Row>,
}

/// Runs the command.
pub fn run(arguments: &ArrayArguments, output: &Output) -> Result<u8, Failure> {
    let (mut drives, measured) = if arguments.smart.is_empty() {
        (
            chosen(&catalogue(arguments.catalogue.as_ref())?, &arguments.drive)?,
            None,
        )
    } else {
        let (health, findings) = super::others::report(&arguments.smart)?;
        let mut drive = windrow_plan::health::as_drive(&health, &findings).ok_or_else(|| {
            Failure::new(
                id::PLAN_INPUT,
                "cannot plan with the report",
                "it does not say the drive's capacity",
            )
            .remedy("use `smartctl -j -a`, which does")
        })?;
        if arguments.drive_wear.is_some() && findings.wear_amplification.is_none() {
            let why = "the report does not say what was written to flash, so what the drive stands is known for its load so far only";
            return Err(
                Failure::new(id::PLAN_INPUT, "--drive-wear has nothing to work on", why)
                    .remedy("leave it out, or add the report that says it"),
            );
        }
        drive.wear_amplification = arguments.drive_wear.or(drive.wear_amplification);
        (vec![drive], Some(findings))
    };
    for drive in &mut drives {
        drive.price = arguments.price.or(drive.price);
    }
    let removed = arguments
        .compression
        .map(|removed| {
            removed.below_all(
                "--compression",
                "data of which nothing is left takes no space",
            )
        })
        .transpose()?;
    let assume = Assumptions {
        usable_share: arguments
            .usable
            .above_nothing("--usable", "nothing is usable")?,
        log_wear: arguments.cleaning.value(arguments.usable)?,
        chassis: arguments.chassis.unwrap_or(0.0),
        compression: removed.map_or(1.0, |removed| 1.0 / (1.0 - removed)),
        ..Assumptions::windrow()
    };
    let mut rows = Vec::new();
    for drive in &drives {
        for topology in &arguments.topology {
            rows.extend(lines(drive, *topology, arguments, &assume)?);
        }
    }
    let report = Report {
        drives: arguments.drives,
        assumptions: assume,
        measured,
        catalogue: drives,
        rows,
    };
    arguments.report.write(|| page(&report, arguments))?;
    output.result("plan", &report, || describe(&report, arguments));
    Ok(0)
}

/// Rows of a drive in a topology.
fn lines(
    drive: &Drive,
    topology: Topology,
    arguments: &ArrayArguments,
    assume: &Assumptions,
) -> Result<Vec<Row>, Failure> {
    let row = |written: &'static str, how: Use, wear_share: f64| {
        let mut outcome =
            plan(drive, arguments.drives, topology, how, assume).map_err(does_not_fit)?;
        outcome.overwrites_per_day = outcome
            .overwrites_per_day
            .map(|overwrites| overwrites / wear_share);
        let endurance = outcome
            .overwrites_per_day
            .map(|overwrites| classes::endurance(overwrites).name());
        Ok(Row {
            drive: drive.id.clone(),
            topology: topology.to_string(),
            written,
            outcome,
            endurance,
        })
    };
    let mut rows = vec![row("in place", Use::InPlace, 1.0)?];
    if matches!(topology, Topology::Raid5 | Topology::Raid6) {
        rows.push(row("Windrow", Use::Log, 1.0)?);
        if let Some(removed) = arguments.compression {
            rows.push(row(
                "Windrow, compressed for space",
                Use::LogCompressed,
                1.0,
            )?);
            rows.push(row(
                "Windrow, compressed for wear",
                Use::Log,
                1.0 - removed.value(),
            )?);
        }
    }
    Ok(rows)
}

fn cells(row: &Row) -> [String; 8] {
    let cell = |value: Option<f64>, decimals| {
        value.map_or("-".to_owned(), |value| printed(value, decimals))
    };
    [
        row.drive.clone(),
        row.topology.clone(),
        row.written.to_owned(),
        printed(row.outcome.landable_gb, 0),
        cell(row.outcome.cost_per_gb, 2),
        cell(row.outcome.random_write_iops, 0),
        cell(row.outcome.overwrites_per_day, 2),
        row.endurance.map_or("-".to_owned(), str::to_owned),
    ]
}

/// Lifetime, cost and rate as charts.
fn page(report: &Report, arguments: &ArrayArguments) -> Page {
    let mut drives: Vec<&str> = report.rows.iter().map(|row| row.drive.as_str()).collect();
    drives.dedup();
    let mut ways: Vec<String> = report
        .rows
        .iter()
        .map(|row| format!("{} {}", row.topology, row.written))
        .collect();
    ways.sort_unstable();
    ways.dedup();
    let names: Vec<&str> = ways.iter().map(String::as_str).collect();
    let picture = |title: &str, about: &str, axis: Axis, value: fn(&Outcome) -> Option<f64>| {
        let of = |drive: &str, way: &str| {
            report.rows.iter().find(|row| {
                row.drive == drive && format!("{} {}", row.topology, row.written) == way
            })
        };
        let group = |drive: &&str| Group {
            label: (*drive).to_owned(),
            values: names
                .iter()
                .map(|way| of(drive, way).and_then(|row| value(&row.outcome)))
                .collect(),
        };
        // A figure that the catalogue has for no drive is not drawn.
        let any = report.rows.iter().any(|row| value(&row.outcome).is_some());
        any.then(|| {
            Bars::new(title, about, "", axis, &names)
                .with_all(
                    drives
                        .iter()
                        .filter(|drive| {
                            names.iter().any(|way| {
                                of(drive, way).is_some_and(|row| value(&row.outcome).is_some())
                            })
                        })
                        .map(group),
                )
                .picture()
        })
    };
    let plain = |title: &str| Axis::new(title, Unit::Number);
    let pictures = [
        (
            "life",
            picture(
                "Life: overwrites a day for five years",
                "Bars by drive and way of writing: how often the landable space may be overwritten each day for five years.",
                plain("overwrites a day"),
                |o| o.overwrites_per_day,
            ),
        ),
        (
            "cost",
            picture(
                "Cost",
                "Bars by drive and way of writing: cost of a landable gigabyte.",
                plain("cost per GB"),
                |o| o.cost_per_gb,
            ),
        ),
        (
            "rate",
            picture(
                "Random writes",
                "Bars by drive and way of writing: random writes of 4 KiB a second that the members carry.",
                plain("random writes a second"),
                |o| o.random_write_iops,
            ),
        ),
        (
            "capacity",
            picture(
                "Capacity",
                "Bars by drive and way of writing: landable gigabytes.",
                plain("landable GB"),
                |o| Some(o.landable_gb),
            ),
        ),
    ];
    let heads = [
        "drive",
        "topology",
        "written",
        "landable GB",
        "cost/GB",
        "random writes/s",
        "overwrites/day",
        "endurance of",
    ];
    let mut table = windrow_charts::Table::new(
        "Random writes of 4 KiB; overwrites of the landable space, each day for five years; - : not known",
        heads,
    );
    report.rows.iter().for_each(|row| table.row(cells(row)));
    let lead = format!(
        "{} drives. Under Windrow {} of the space is filled and {} bytes are written for each (--usable, --cleaning). A drive of which only the maker's rating is known is \
         planned with that rating, as if long linear writes spared it nothing.",
        report.drives,
        arguments.usable,
        printed(report.assumptions.log_wear, 2)
    );
    let page = Page::new("Plan of an array", &lead);
    let page = pictures
        .into_iter()
        .filter_map(|(name, picture)| Some((name, picture?)))
        .fold(page, |page, (name, picture)| page.picture(name, &picture));
    page.table(&table)
}

fn describe(report: &Report, arguments: &ArrayArguments) -> String {
    let mut table = Table::new(&[
        "DRIVE",
        "TOPOLOGY",
        "WRITTEN",
        "LANDABLE GB",
        "COST/GB",
        "RANDOM WRITES/S",
        "OVERWRITES/DAY",
        "ENDURANCE OF",
    ]);
    for row in &report.rows {
        table.row(cells(row));
    }
    let mut text = report.measured.map_or(String::new(), |findings| {
        super::others::describe_findings(&findings) + "\n"
    });
    let linear = |findings: &Findings| {
        findings
            .wear_amplification
            .is_some_and(|wear| wear < windrow_plan::health::LINEAR_WEAR_MOST)
    };
    if arguments.drive_wear.is_none() && report.measured.as_ref().is_some_and(linear) {
        text.push_str("It was written in long rows so far, so what it would make of random writes in place is not known; --drive-wear gives it.\n\n");
    }
    text.push_str(&format!("{} drives, random writes of 4 KiB; overwrites of the landable space, each day for five years\n", report.drives));
    text.push_str(&table.render());
    text.push_str(&format!(
        "\nUnder Windrow {} of the space is filled and {} bytes are written for each (--usable, --cleaning); a host may carry less than the members do.\n\
         A drive of which only the maker's rating is known is planned with that rating, as if long linear writes spared it nothing.\n\
         - : the catalogue does not say what it would take (--price, --catalogue).\n",
        arguments.usable,
        printed(report.assumptions.log_wear, 2)
    ));
    if arguments.compression.is_some() {
        text.push_str("The lines \"compressed\" show the effect of compression. They are computed for less wear, which is what a pool uses it for unless it is set to reduction=capacity.\n");
    }
    text
}

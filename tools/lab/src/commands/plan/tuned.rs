//! `plan tuned`: the model of the tunable-FTL talk: amplification by spare, speed and lifetime by
//! amplification; its two tables, computed.

use super::factor;
use super::part::Part;
use crate::report::{Report as Page, ReportArguments};
use clap::Args;
use serde::Serialize;
use windrow_charts::{Axis, Bars, Group, Unit};
use windrow_console::output::Output;
use windrow_console::table::Table;
use windrow_host::Failure;
use windrow_plan::ftl;
use windrow_plan::rounding::printed;

/// Arguments of `plan tuned`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  windrow-lab plan tuned\n  windrow-lab plan tuned --spare 7%,14%,28% --wear 4.0,1.24\n\nWhat a layer that knows its load makes of it: `windrow-lab sim run --workload jetstress`."
)]
pub struct TunedArguments {
    /// Spare shares of the logical space, by comma.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "7%,14%,28%"
    )]
    spare: Vec<Part>,
    /// Measured amplifications, by comma; default the talk's: 7 and 4 for a standard layer, 1 for a
    /// tuned one.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "7,4,1", value_parser = factor)]
    wear: Vec<f64>,
    #[command(flatten)]
    report: ReportArguments,
}

#[derive(Serialize)]
struct Row {
    what: String,
    /// Spare over logical space, if the amplification is derived from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    spare: Option<f64>,
    wear: f64,
    /// Random writes relative to a fresh drive.
    speed: f64,
    life_years: f64,
    /// Speed and lifetime printed in the talk.
    #[serde(skip_serializing_if = "Option::is_none")]
    printed: Option<&'static str>,
}

/// Number of planes of a stripe in the talk's backup table.
const PLANES: u32 = 128;

fn rows(arguments: &TunedArguments) -> Vec<Row> {
    let of_spare = |what: String, spare: f64, printed| {
        let found = ftl::tunable(spare);
        Row {
            what,
            spare: Some(spare),
            wear: found.wear,
            speed: found.speed,
            life_years: found.life_years,
            printed,
        }
    };
    let mut rows: Vec<Row> = arguments
        .spare
        .iter()
        .map(|spare| {
            of_spare(
                format!("standard, {spare} spare, uniform writes"),
                spare.value(),
                None,
            )
        })
        .collect();
    rows.extend(arguments.wear.iter().map(|wear| {
        let (what, printed) = match wear {
            7.0 => ("standard, at worst", Some("14 %, 3.3 years")),
            4.0 => ("standard, at best", Some("25 %, 5.7 years")),
            1.0 => (
                "tuned: spare for the small random area",
                Some("~100 %, 20+ years"),
            ),
            _ => ("measured", None),
        };
        Row {
            what: what.to_owned(),
            spare: None,
            wear: *wear,
            speed: 1.0 / wear,
            life_years: ftl::life_years(*wear),
            printed,
        }
    }));
    let usual = 0.07;
    rows.push(of_spare(
        "4 TB, protection of a LUN".to_owned(),
        usual,
        Some("13 %, 3 years"),
    ));
    for (what, unit, printed) in [
        ("no protection, quad plane", 4, "21 %, 4.2 years"),
        ("no protection, dual plane", 2, "17 %, 3.6 years"),
    ] {
        rows.push(of_spare(
            format!("4 TB, {what}"),
            ftl::without_protection(usual, unit, PLANES),
            Some(printed),
        ));
    }
    rows
}

/// Runs the command.
pub fn run(arguments: &TunedArguments, output: &Output) -> Result<u8, Failure> {
    for spare in &arguments.spare {
        spare.above_nothing("--spare", "no drive works without spare space")?;
    }
    let rows = rows(arguments);
    arguments.report.write(|| page(&rows))?;
    output.result("plan-tuned", &serde_json::json!({ "rows": rows }), || {
        describe(&rows)
    });
    Ok(0)
}

const HEADS: [&str; 6] = [
    "what",
    "spare",
    "amplification",
    "of fresh speed",
    "life, years",
    "the talk prints",
];

fn cells(row: &Row) -> [String; 6] {
    [
        row.what.clone(),
        row.spare.map_or("-".to_owned(), |spare| {
            format!("{} %", printed(spare * 100.0, 1))
        }),
        printed(row.wear, 2),
        format!("{} %", printed(row.speed * 100.0, 0)),
        printed(row.life_years, 1),
        row.printed.unwrap_or("-").to_owned(),
    ]
}

fn describe(rows: &[Row]) -> String {
    let mut table = Table::new(&HEADS);
    rows.iter().for_each(|row| table.row(cells(row)));
    format!(
        "{}Amplification (1 + op) / (2 op), op = spare / logical; speed 1 / amplification; life 3 years at 7 %. The speeds that the talk prints for drives without\n\
         protection do not follow from its own model.\n",
        table.render()
    )
}

fn page(rows: &[Row]) -> Page {
    let mut table = windrow_charts::Table::new("Spare over logical space", HEADS);
    rows.iter().for_each(|row| table.row(cells(row)));
    let picture = Bars::new(
        "Life of a drive by what its translation layer makes of the load",
        "Bars of years by case: with standard layers, a tuned one, and protection turned into spare space.",
        "",
        Axis::new("years", Unit::Number),
        &["life"],
    )
    .with_all(rows.iter().map(|row| Group::new(row.what.clone(), [row.life_years])))
    .picture();
    Page::new(
        "Standard and tuned translation layers",
        "The model of the tunable-FTL talk.",
    )
    .picture("life", &picture)
    .table(&table)
}

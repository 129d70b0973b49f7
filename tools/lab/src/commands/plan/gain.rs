//! `plan gain`: factor by which drives last longer under a log than in place.

use super::part::Part;
use super::{Cleaning, does_not_fit, factor};
use clap::Args;
use serde::Serialize;
use windrow_console::output::Output;
use windrow_console::table::Table;
use windrow_host::Failure;
use windrow_plan::classes;
use windrow_plan::rounding::printed;
use windrow_plan::topology::Topology;

/// Arguments of `plan gain`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  windrow-lab plan gain                                     the source's: 24 drives that make 3 or 8 of random writes\n  windrow-lab plan gain --drive-wear 2.5 --cleaning 1.2 --topology 5 --drives 8\n  windrow-lab plan gain --cleaning uniform --usable 90% -o json\n\nThe gain is (what drives make of random writes / what the log writes) * (writes to drives in place / those of full rows) / usable share."
)]
pub struct GainArguments {
    /// Drives in the array.
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = windrow_console::values::within::<u32>(0, 1_000_000))]
    drives: u32,
    /// Topologies, by comma.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "5,6"
    )]
    topology: Vec<Topology>,
    /// Drives' amplification of random writes in place, by comma; the source has 3 for drives with
    /// much free space and 8 for others. `plan smart` measures it.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "3,8", value_parser = factor)]
    drive_wear: Vec<f64>,
    /// Cleaning of Windrow: (user + moved) / user, or `uniform` for the worst case. `windrow stats`
    /// shows a pool's.
    #[arg(long, value_name = "FACTOR", default_value = "1.3")]
    cleaning: Cleaning,
    /// Share of the space that users fill under Windrow.
    #[arg(long, value_name = "SHARE", default_value = "95%")]
    usable: Part,
}

#[derive(Serialize)]
struct Row {
    topology: String,
    drive_wear: f64,
    gain: f64,
}

#[derive(Serialize)]
struct Report {
    drives: u32,
    log_wear: f64,
    usable_ppm: u64,
    rows: Vec<Row>,
}

/// Runs the command.
pub fn run(arguments: &GainArguments, output: &Output) -> Result<u8, Failure> {
    let usable = arguments
        .usable
        .above_nothing("--usable", "nothing is usable")?;
    let log_wear = arguments.cleaning.value(arguments.usable)?;
    let mut rows = Vec::new();
    for topology in &arguments.topology {
        for drive_wear in arguments.drive_wear.iter().copied() {
            let gain = classes::gain(drive_wear, log_wear, usable, *topology, arguments.drives)
                .map_err(does_not_fit)?;
            rows.push(Row {
                topology: topology.to_string(),
                drive_wear,
                gain,
            });
        }
    }
    let report = Report {
        drives: arguments.drives,
        log_wear,
        usable_ppm: (usable * 1e6).round() as u64,
        rows,
    };
    output.result("plan-gain", &report, || describe(&report, arguments.usable));
    Ok(0)
}

fn describe(report: &Report, usable: Part) -> String {
    let mut table = Table::new(&["TOPOLOGY", "INSIDE, IN PLACE", "LASTS LONGER"]);
    for row in &report.rows {
        table.row([
            row.topology.clone(),
            printed(row.drive_wear, 2),
            format!("{} times", printed(row.gain, 2)),
        ]);
    }
    let wear = printed(report.log_wear, 2);
    format!(
        "{} drives under a log that writes {wear} bytes for each and fills {usable} of the space, compared with random writes in place\n{}",
        report.drives,
        table.render()
    )
}

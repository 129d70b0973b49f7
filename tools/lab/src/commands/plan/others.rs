//! `plan drives`, `mixed`, `smart` and `sources`.

use super::part::Part;
use super::{amount, catalogue, read};
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use windrow_console::output::Output;
use windrow_console::table::Table;
use windrow_host::Failure;
use windrow_host::failure::id;
use windrow_plan::health::{self, Findings, Health};
use windrow_plan::rounding::printed;
use windrow_plan::{classes, drive, mixed as mixing, sources as papers};

/// Arguments of `plan drives`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  windrow-lab plan drives\n  windrow-lab plan drives --toml > my-drives.toml\n  windrow-lab plan drives --catalogue my-drives.toml -o json"
)]
pub struct DrivesArguments {
    /// Catalogue of drives (TOML); default the built-in one.
    #[arg(long, value_name = "FILE")]
    catalogue: Option<PathBuf>,
    /// Print the built-in catalogue, as a file to start from.
    #[arg(long, conflicts_with = "catalogue")]
    toml: bool,
}

/// Runs `plan drives`.
pub fn drives(arguments: &DrivesArguments, output: &Output) -> Result<u8, Failure> {
    if arguments.toml {
        windrow_console::output::print(drive::BUILTIN);
        return Ok(0);
    }
    let catalogue = catalogue(arguments.catalogue.as_ref())?;
    output.result("plan-drives", &catalogue, || {
        let mut table = Table::new(&[
            "ID",
            "GB",
            "PRICE",
            "WRITES/S",
            "LINEAR MB/S",
            "CYCLES",
            "DWPD",
            "INSIDE",
            "YEAR",
            "SOURCE",
        ]);
        let cell = |value: Option<f64>, decimals| {
            value.map_or("-".to_owned(), |value| printed(value, decimals))
        };
        for drive in &catalogue.drives {
            table.row([
                drive.id.clone(),
                printed(drive.capacity_gb, 0),
                cell(drive.price, 0),
                cell(drive.random_write_iops, 0),
                cell(drive.linear_write_mb_s, 0),
                cell(drive.erase_cycles, 0),
                cell(drive.overwrites_per_day, 2),
                cell(drive.wear_amplification, 1),
                drive.year.map_or("-".to_owned(), |year| year.to_string()),
                drive.source.clone(),
            ]);
        }
        table.render()
    });
    Ok(0)
}

/// Arguments of `plan mixed`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  windrow-lab plan mixed --reads 10000 --writes 1000 --read-share 70%\n  windrow-lab plan mixed --reads 10000 --writes 20000 -o json"
)]
pub struct MixedArguments {
    /// Reads per second without writes.
    #[arg(long, value_name = "RATE", value_parser = amount)]
    reads: f64,
    /// Writes per second without reads.
    #[arg(long, value_name = "RATE", value_parser = amount)]
    writes: f64,
    /// Share of reads in the mix.
    #[arg(long, value_name = "SHARE", default_value = "70%")]
    read_share: Part,
}

/// Runs `plan mixed`.
pub fn mixed(arguments: &MixedArguments, output: &Output) -> Result<u8, Failure> {
    let mix = mixing::mix(
        arguments.reads,
        arguments.writes,
        arguments.read_share.value(),
    )
    .ok_or_else(|| {
        Failure::new(id::USAGE, "cannot mix", "rates must be more than 0")
            .remedy("see `windrow-lab plan mixed --help`")
    })?;
    output.result("plan-mixed", &mix, || {
        format!(
            "{} operations a second: {} reads, {} writes; {} ms of each second go to writes",
            printed(mix.combined, 0),
            printed(mix.reads, 0),
            printed(mix.writes, 0),
            printed(mix.write_time_share * 1000.0, 0)
        )
    });
    Ok(0)
}

/// Arguments of `plan smart`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  windrow-lab plan smart /dev/nvme0                asks it with smartctl, which needs root\n  windrow-lab plan smart smartctl.json\n  windrow-lab plan smart nvme.json ocp.json -o json"
)]
pub struct SmartArguments {
    /// Drives, or their reports, several in one file too: `smartctl -j -x /dev/X`,
    /// `nvme smart-log -o json /dev/X`, `nvme ocp smart-add-log -o json /dev/X`.
    #[arg(value_name = "DEVICE|FILE", required = true)]
    files: Vec<PathBuf>,
}

/// A drive's own report, and the conclusions.
#[derive(Clone, Debug, Serialize)]
pub struct SmartReport {
    /// Its figures.
    pub health: Health,
    /// The conclusions.
    pub findings: Findings,
}

impl SmartReport {
    /// Model and serial number.
    fn name(&self) -> String {
        let model = self.health.model.as_deref().unwrap_or("drive");
        self.health
            .serial
            .as_ref()
            .map_or(model.to_owned(), |serial| format!("{model} {serial}"))
    }

    /// One-sentence summary.
    pub fn sentence(&self) -> String {
        let (health, found) = (&self.health, &self.findings);
        let said = [
            found.wear_amplification.map(|wear| {
                format!(
                    "it wrote {} bytes to flash for each that it got",
                    printed(wear, 2)
                )
            }),
            health
                .used_percent
                .map(|used| format!("{used} % of its rated life is used")),
            found.days_left.map(|days| {
                format!(
                    "at the load so far {} years are left",
                    printed(days / 365.0, 1)
                )
            }),
        ];
        let said: Vec<String> = said.into_iter().flatten().collect();
        let said = if said.is_empty() {
            "nothing of its wear".to_owned()
        } else {
            said.join(", ")
        };
        format!(
            "{} says of itself: {said}.",
            health.model.as_deref().unwrap_or("The drive")
        )
    }
}

/// Reads the reports of drives, or queries them.
fn reports(files: &[PathBuf]) -> Result<Vec<SmartReport>, Failure> {
    let unclear = |what: String, error: health::HealthError| {
        let remedy = "give it the JSON of `smartctl -j -x`, `nvme smart-log -o json` or `nvme ocp smart-add-log -o json`";
        Failure::new(id::PLAN_INPUT, what, error).remedy(remedy)
    };
    let mut all = Vec::new();
    for file in files {
        let text = if super::is_device(file) {
            super::drive_report::ask(file)?
        } else {
            read(file)?
        };
        all.extend(
            health::parse_all(&text)
                .map_err(|error| unclear(format!("cannot understand {}", file.display()), error))?,
        );
    }
    let drives = health::by_drive(all)
        .map_err(|error| unclear("cannot put these reports together".to_owned(), error))?;
    let conclude = |drive: health::Report| SmartReport {
        findings: health::findings(&drive.health, drive.pages),
        health: drive.health,
    };
    Ok(drives.into_iter().map(conclude).collect())
}

/// Reads the reports of one drive, or queries it; later figures replace earlier ones.
pub fn report(files: &[PathBuf]) -> Result<(Health, Findings), Failure> {
    match reports(files)?.as_slice() {
        [one] => Ok((one.health.clone(), one.findings)),
        several => {
            let names: Vec<String> = several.iter().map(SmartReport::name).collect();
            let why = format!(
                "there are reports of {} drives: {}",
                several.len(),
                names.join(", ")
            );
            Err(
                Failure::new(id::PLAN_INPUT, "one drive is planned with", why)
                    .remedy("give the reports of one; `windrow-lab plan smart` shows all"),
            )
        }
    }
}

/// Runs `plan smart`.
pub fn smart(arguments: &SmartArguments, output: &Output) -> Result<u8, Failure> {
    let drives = reports(&arguments.files)?;
    // A single drive is also at the top level.
    let value = match drives.as_slice() {
        [one] => {
            serde_json::json!({ "health": one.health, "findings": one.findings, "drives": drives })
        }
        _ => serde_json::json!({ "drives": drives }),
    };
    output.result("plan-smart", &value, || {
        drives
            .iter()
            .map(describe_drive)
            .collect::<Vec<_>>()
            .join("\n")
    });
    Ok(0)
}

fn describe_drive(report: &SmartReport) -> String {
    let bytes = |bytes: Option<u128>| {
        bytes.map_or("-".to_owned(), |bytes| {
            format!("{} TB", printed(bytes as f64 / 1e12, 2))
        })
    };
    let used = report
        .health
        .used_percent
        .map_or("-".to_owned(), |used| format!("{used} %"));
    let hours = report
        .health
        .power_on_hours
        .map_or("-".to_owned(), |hours| printed(hours as f64, 0));
    let assumed: String = report
        .health
        .assumed
        .iter()
        .map(|assumed| format!("assumed: {assumed}\n"))
        .collect();
    format!(
        "{}\nwritten by the host  {}\nwritten to flash     {}\nrated life used      {used}\nhours under power    {hours}\n{}{assumed}",
        report.name(),
        bytes(report.health.host_bytes),
        bytes(report.health.flash_bytes),
        describe_findings(&report.findings)
    )
}

/// The conclusions as text.
pub fn describe_findings(findings: &Findings) -> String {
    let cell = |value: Option<f64>, decimals, unit: &str| {
        value.map_or("not said".to_owned(), |value| {
            format!("{}{unit}", printed(value, decimals))
        })
    };
    let load = findings
        .overwrites_per_day
        .map_or(String::new(), |overwrites| {
            match classes::duty(overwrites) {
                classes::Duty::Low => " (low duty)".to_owned(),
                classes::Duty::LowToMedium => " (low to medium duty)".to_owned(),
                classes::Duty::Medium => " (medium duty)".to_owned(),
                classes::Duty::Heavy => " (heavy duty)".to_owned(),
            }
        });
    format!(
        "amplified inside     {}\noverwritten a day    {}{load}\nrated for            {} overwrites a day over five years, by its wear so far\nleft at this load    {}\n",
        cell(findings.wear_amplification, 2, ""),
        cell(findings.overwrites_per_day, 3, ""),
        cell(findings.rated_overwrites_per_day, 2, ""),
        cell(findings.days_left.map(|days| days / 365.0), 1, " years"),
    )
}

/// Arguments of `plan sources`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  windrow-lab plan sources\n  windrow-lab plan sources --misprints\n  windrow-lab plan sources -o json"
)]
pub struct SourcesArguments {
    /// Only contradictions in the sources.
    #[arg(long)]
    misprints: bool,
}

#[derive(Serialize)]
struct SourcesReport {
    tables: Vec<papers::Printed>,
    misprints: &'static [&'static str],
}

/// Runs `plan sources`.
pub fn sources(arguments: &SourcesArguments, output: &Output) -> Result<u8, Failure> {
    let tables = if arguments.misprints {
        Vec::new()
    } else {
        papers::all()
    };
    let report = SourcesReport {
        tables,
        misprints: papers::MISPRINTS,
    };
    output.result("plan-sources", &report, || {
        let mut text = String::new();
        for printed in &report.tables {
            let heading: Vec<&str> = std::iter::once("")
                .chain(printed.columns.iter().map(String::as_str))
                .collect();
            let mut table = Table::new(&heading);
            for (name, cells) in &printed.rows {
                table.row(std::iter::once(name.clone()).chain(cells.iter().cloned()));
            }
            text.push_str(&format!("{}\n{}\n", printed.title, table.render()));
        }
        text.push_str("What contradicts itself in the sources\n");
        for misprint in report.misprints {
            text.push_str(&format!("- {misprint}\n"));
        }
        text
    });
    Ok(0)
}

//! `plan`: capacity, cost, write rate and endurance of drive arrays, and the write amplification of
//! each layer. Writes nothing.

mod array;
mod drive_report;
mod gain;
mod layers;
mod others;
mod part;
mod tuned;

use clap::{Args, Subcommand};
use part::Part;
use std::path::{Path, PathBuf};
use windrow_console::output::Output;
use windrow_host::Failure;
use windrow_host::failure::id;
use windrow_plan::drive::{Catalogue, Drive};
use windrow_plan::topology::DoesNotFit;
use windrow_trace::input::wrapping;

/// Arguments of `plan`.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub struct PlanArguments {
    #[command(subcommand)]
    command: Option<PlanCommand>,
    #[command(flatten)]
    array: array::ArrayArguments,
}

const EXAMPLES: &str = "\
Examples:
  windrow-lab plan --drive micron-7600-max-6400 --drives 8 --topology 5,6,10
  windrow-lab plan --drive samsung-pm9d3a-7680 --price 900 --compression 50%
  windrow-lab plan --catalogue my-drives.toml -o json
  windrow-lab plan --smart report.json --drives 12
  windrow-lab plan layers
  windrow-lab plan gain --drive-wear 2.5
  windrow-lab plan smart /dev/nvme0
  windrow-lab plan tuned
  windrow-lab plan sources";

/// Further calculations.
#[derive(Subcommand)]
pub enum PlanCommand {
    /// List the drives of the catalogue with the sources of their figures.
    Drives(others::DrivesArguments),
    /// Show write amplification by layer, alone and with Windrow below the file system.
    Layers(layers::LayersArguments),
    /// Factor by which drives last longer under Windrow than in place.
    Gain(gain::GainArguments),
    /// Rates of reads and writes that share a drive's time.
    Mixed(others::MixedArguments),
    /// Tunable flash translation layer: effect of spare and tuning on amplification, speed and
    /// lifetime; the talk's tables.
    Tuned(tuned::TunedArguments),
    /// Drives' own reports: internal amplification, wear, remaining lifetime.
    Smart(others::SmartArguments),
    /// Published tables, recomputed, and their contradictions.
    Sources(others::SourcesArguments),
}

/// Runs the command.
pub fn run(arguments: &PlanArguments, output: &Output) -> Result<u8, Failure> {
    match &arguments.command {
        None => array::run(&arguments.array, output),
        Some(PlanCommand::Drives(arguments)) => others::drives(arguments, output),
        Some(PlanCommand::Layers(arguments)) => layers::run(arguments, output),
        Some(PlanCommand::Gain(arguments)) => gain::run(arguments, output),
        Some(PlanCommand::Mixed(arguments)) => others::mixed(arguments, output),
        Some(PlanCommand::Tuned(arguments)) => tuned::run(arguments, output),
        Some(PlanCommand::Smart(arguments)) => others::smart(arguments, output),
        Some(PlanCommand::Sources(arguments)) => others::sources(arguments, output),
    }
}

pub use drive_report::is_device;
pub use others::{SmartReport, report as report_of_drive};

/// Reads a text file given by the user. A byte order mark is skipped.
fn read(path: &Path) -> Result<String, Failure> {
    let cannot = || format!("cannot read {}", path.display());
    let bytes = std::fs::read(path).map_err(|error| {
        Failure::new(id::LOCAL_FILE, cannot(), error).remedy("check the path and your rights to it")
    })?;
    if let Some(found) = wrapping::find(&bytes) {
        let remedy = found.remedy.replace("FILE", &path.display().to_string());
        return Err(
            Failure::new(id::PLAN_INPUT, cannot(), format!("it is {}", found.name)).remedy(remedy),
        );
    }
    let text = bytes
        .strip_prefix(wrapping::UTF_8_MARK)
        .unwrap_or(&bytes)
        .to_vec();
    String::from_utf8(text).map_err(|error| {
        Failure::new(
            id::PLAN_INPUT,
            cannot(),
            format!("it is no UTF-8 text: {error}"),
        )
        .remedy("name another file")
    })
}

/// Catalogue of a file, or the built-in one.
fn catalogue(path: Option<&PathBuf>) -> Result<Catalogue, Failure> {
    let Some(path) = path else {
        return Ok(windrow_plan::drive::builtin());
    };
    Catalogue::parse(&read(path)?).map_err(|error| {
        let remedy =
            "`windrow-lab plan drives --toml` prints the catalogue that is built in, to start from";
        Failure::new(
            id::PLAN_INPUT,
            format!("cannot use the catalogue {}", path.display()),
            error,
        )
        .remedy(remedy)
    })
}

/// Drives of these ids; all of them if there are none.
fn chosen(catalogue: &Catalogue, ids: &[String]) -> Result<Vec<Drive>, Failure> {
    if ids.is_empty() {
        return Ok(catalogue.drives.clone());
    }
    let find = |name: &String| {
        catalogue.get(name).cloned().ok_or_else(|| {
            Failure::new(
                id::PLAN_VALUE,
                format!("no drive '{name}'"),
                "the catalogue does not have it",
            )
            .remedy("`windrow-lab plan drives` lists them")
        })
    };
    ids.iter().map(find).collect()
}

fn does_not_fit(error: DoesNotFit) -> Failure {
    Failure::new(
        id::PLAN_VALUE,
        format!("cannot plan {} drives", error.drives),
        error,
    )
    .remedy("choose another number or topology")
}

/// Cost of cleaning.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Cleaning {
    /// A given factor.
    Factor(f64),
    /// Worst case: uniform random writes over all that users may fill.
    Uniform,
}

impl std::str::FromStr for Cleaning {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "uniform" {
            Ok(Self::Uniform)
        } else {
            factor(text)
                .map(Self::Factor)
                .map_err(|error| format!("{error}, or 'uniform'"))
        }
    }
}

impl std::fmt::Display for Cleaning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Factor(value) => write!(f, "{value}"),
            Self::Uniform => write!(f, "uniform"),
        }
    }
}

impl Cleaning {
    /// Factor for this filled share of the space.
    ///
    /// # Errors
    /// Uniform writes with so little spare space that the cost exceeds any accepted factor.
    fn value(self, usable: Part) -> Result<f64, Failure> {
        let Self::Uniform = self else {
            return Ok(if let Self::Factor(value) = self {
                value
            } else {
                1.0
            });
        };
        // Segments are large: the limit of greedy cleaning.
        let found = windrow_policy::analytic::fifo_waf(usable.below_all(
            "--usable",
            "without spare space cleaning of uniform writes never ends",
        )?);
        if (1.0..=FACTOR_MOST).contains(&found) {
            return Ok(found);
        }
        let why = "cleaning of uniform writes costs more than a million blocks for each";
        Err(Failure::new(
            id::USAGE,
            format!("--usable {usable} leaves too little spare space"),
            why,
        )
        .remedy("lower it, or give --cleaning as a factor"))
    }
}

/// Maximum accepted factor.
const FACTOR_MOST: f64 = 1e6;

/// Parses a factor of one or more.
fn factor(text: &str) -> Result<f64, String> {
    let good = |value: &f64| (1.0..=FACTOR_MOST).contains(value);
    text.parse()
        .ok()
        .filter(good)
        .ok_or_else(|| format!("'{text}' is not a factor from 1 to 1000000; write it as 1.43"))
}

/// Parses an amount above zero.
fn amount(text: &str) -> Result<f64, String> {
    let good = |value: &f64| *value > 0.0 && *value <= 1e12;
    text.parse().ok().filter(good).ok_or_else(|| {
        format!("'{text}' is not an amount; write a number of more than 0, and at most 10^12")
    })
}

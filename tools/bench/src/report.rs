//! Output of a benchmark: text, JSON, a chart, and its goals.

use clap::Args;
use serde_json::{Value, json};
use std::path::PathBuf;
use windrow_console::figures::factor;
use windrow_console::files::save;
use windrow_console::output::{Output, with_schema};
use windrow_host::failure::{Failure, id};
use windrow_load::machine::Meter;

/// Destinations of results in addition to standard output.
#[derive(Args, Clone, Debug, Default)]
pub struct ReportArguments {
    /// Write a chart to this file (SVG).
    #[arg(long, value_name = "FILE")]
    pub picture: Option<PathBuf>,
    /// Also write text, JSON and chart to this folder.
    #[arg(long, value_name = "DIR")]
    pub results: Option<PathBuf>,
}

/// Side of the bound on which a figure must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bound {
    /// This or more.
    AtLeast,
    /// This or less.
    AtMost,
}

/// A figure with its required bound.
#[derive(Clone, PartialEq, Debug)]
pub struct Goal {
    what: String,
    value: f64,
    side: Bound,
    bound: f64,
}

impl Goal {
    /// `value` must be `bound` or more.
    pub fn at_least(what: impl Into<String>, value: f64, bound: f64) -> Self {
        Self {
            what: what.into(),
            value,
            side: Bound::AtLeast,
            bound,
        }
    }

    /// `value` must be `bound` or less.
    pub fn at_most(what: impl Into<String>, value: f64, bound: f64) -> Self {
        Self {
            what: what.into(),
            value,
            side: Bound::AtMost,
            bound,
        }
    }

    /// True if the bound is met.
    pub fn is_reached(&self) -> bool {
        match self.side {
            Bound::AtLeast => self.value >= self.bound,
            Bound::AtMost => self.value <= self.bound,
        }
    }

    fn line(&self) -> String {
        let number = |value: f64| {
            if value >= 1000.0 {
                format!("{value:.0}")
            } else {
                factor((value * 1e6) as u64)
            }
        };
        let side = if self.side == Bound::AtLeast {
            "at least"
        } else {
            "at most"
        };
        let verdict = if self.is_reached() {
            "reached"
        } else {
            "missed"
        };
        format!(
            "goal {verdict}: {} {}, {side} {}\n",
            self.what,
            number(self.value),
            number(self.bound)
        )
    }

    fn json(&self) -> Value {
        let ppm = |value: f64| (value * 1e6) as u64;
        let side = if self.side == Bound::AtLeast {
            "at-least"
        } else {
            "at-most"
        };
        json!({ "what": self.what, "value_ppm": ppm(self.value), "side": side, "bound_ppm": ppm(self.bound), "reached": self.is_reached() })
    }
}

/// Results of a benchmark.
pub struct Findings {
    /// `engine`, `nbd` ...
    pub name: &'static str,
    /// JSON object.
    pub value: Value,
    /// Text.
    pub text: String,
    /// Chart as SVG.
    pub picture: String,
    /// Goals.
    pub goals: Vec<Goal>,
}

impl Findings {
    /// Prints the results, and writes the requested files.
    pub fn publish(
        self,
        meter: &Meter,
        arguments: &ReportArguments,
        output: &Output,
    ) -> Result<u8, Failure> {
        let schema = format!("bench-{}", self.name);
        let (mut value, mut text) = (self.value, self.text);
        value["goals"] = self.goals.iter().map(Goal::json).collect();
        value["conditions"] = meter.conditions();
        self.goals
            .iter()
            .for_each(|goal| text.push_str(&goal.line()));
        let others = value["conditions"]["others_cpu_ppm"].as_u64().unwrap_or(0) / 10_000;
        text.push_str(&format!(
            "other processes used {others} % of the processors meanwhile\n"
        ));
        if let Some(path) = &arguments.picture {
            save(path, self.picture.as_bytes())?;
        }
        if let Some(dir) = &arguments.results {
            let failure = |error: std::io::Error| {
                Failure::new(
                    id::LOCAL_FILE,
                    format!("cannot make the folder {}", dir.display()),
                    error,
                )
            };
            std::fs::create_dir_all(dir).map_err(failure)?;
            save(
                &dir.join(format!("{schema}.json")),
                format!("{:#}\n", with_schema(&schema, &value)).as_bytes(),
            )?;
            save(&dir.join(format!("{schema}.txt")), text.as_bytes())?;
            save(&dir.join(format!("{schema}.svg")), self.picture.as_bytes())?;
        }
        output.result(&schema, &value, || text);
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_judged_on_their_side() {
        assert!(
            Goal::at_least("a", 0.9, 0.9).is_reached()
                && !Goal::at_least("a", 0.899, 0.9).is_reached()
        );
        assert!(
            Goal::at_most("a", 1.3, 1.3).is_reached()
                && !Goal::at_most("a", 1.31, 1.3).is_reached()
        );
        // A missing measurement is a missed goal.
        assert!(
            !Goal::at_least("a", f64::NAN, 0.9).is_reached()
                && !Goal::at_most("a", f64::NAN, 0.9).is_reached()
        );
        assert_eq!(
            Goal::at_least("rate", 650_000.0, 600_000.0).line(),
            "goal reached: rate 650000, at least 600000\n"
        );
        assert_eq!(Goal::at_most("latency", 1.5, 1.3).json()["reached"], false);
    }
}

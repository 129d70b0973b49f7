//! The tour of the engine names files and functions: each of them exists.

use super::{Findings, Tree};
use crate::source;

const TOUR: &str = "docs/internals/tour.md";
const ENGINE: &str = "crates/engine/src/";

/// Stops of a tour at most.
const STOPS_MOST: usize = 12;

/// Applies the rule.
pub fn check(tree: &Tree, findings: &mut Findings) {
    let Some(text) = tree.text(TOUR) else {
        return;
    };
    let mut stops = 0;
    for (index, line) in text.lines().enumerate() {
        if line.starts_with("## ") {
            stops = 0;
        }
        let stop = line
            .strip_prefix("- `")
            .and_then(|rest| rest.split_once('`'));
        let Some((file, function)) = stop.and_then(|(stop, _)| stop.split_once(':')) else {
            continue;
        };
        stops += 1;
        if stops > STOPS_MOST {
            let message = format!("more than {STOPS_MOST} stops: a path is to be seen at once");
            findings.error("tour", TOUR, index + 1, message);
        }
        let path = format!("{ENGINE}{file}");
        let Some(code) = tree.text(&path).map(|text| source::split(text).code) else {
            findings.error("tour", TOUR, index + 1, format!("there is no {path}"));
            continue;
        };
        if !source::functions(&code)
            .iter()
            .any(|found| found.name == function)
        {
            let message = format!("{path} has no function `{function}`");
            findings.error("tour", TOUR, index + 1, message);
        }
    }
}

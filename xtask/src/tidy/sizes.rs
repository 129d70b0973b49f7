//! Lengths of files and functions.
//!
//! Above the first limit there is a warning, above the second one an error. [`LONG_FILES`] and
//! [`LONG_FUNCTIONS`] list the exceptions: an entry may shrink, never grow, and is removed when no
//! longer needed.

use super::Findings;
use crate::source::{self, Views};

const FILE_LINES_GOOD: usize = 600;
const FILE_LINES_MOST: usize = 700;
const FUNCTION_LINES_GOOD: usize = 70;
const FUNCTION_LINES_MOST: usize = 110;

/// Files above the limit, with their allowed lines.
const LONG_FILES: &[(&str, usize)] = &[
    ("crates/cli/src/commands/members.rs", 750),
    ("crates/cli/src/commands/pool.rs", 1000),
    ("crates/engine/src/api.rs", 800),
    ("crates/engine/src/engine/control.rs", 950),
    ("crates/engine/src/path/dedup/pages.rs", 800),
    ("crates/engine/src/upkeep/rebuild.rs", 850),
    ("crates/engine/src/recover/chain.rs", 850),
    ("crates/engine/src/recover/quorum/model.rs", 1000),
    ("crates/engine/src/recover/salvage/gather.rs", 800),
    ("crates/engine/src/recover/salvage/scan.rs", 750),
    ("crates/engine/src/upkeep/scrub.rs", 800),
    ("crates/engine/src/path/write/admit.rs", 850),
    ("crates/host/src/daemon.rs", 1100),
    ("crates/host/src/metrics.rs", 1050),
    ("crates/host/src/offline/find.rs", 800),
    ("crates/host/src/offline/open.rs", 800),
    ("crates/host/src/pool.rs", 800),
    ("crates/host/src/pool/exchange.rs", 1150),
    ("crates/host/src/report.rs", 800),
    ("crates/inspect/src/check.rs", 1000),
    ("crates/inspect/src/replay.rs", 800),
    ("crates/inspect/src/test_pool.rs", 900),
    ("crates/format/src/batch/table.rs", 850),
    ("tools/lab/src/commands/advise.rs", 800),
    ("tools/sim/src/model/requests.rs", 750),
    ("tools/sim/src/run.rs", 800),
    ("tools/sim/src/run/beyond.rs", 750),
    ("tools/sim/src/run/devices.rs", 800),
    ("tools/wa-sim/src/inplace.rs", 750),
];

/// Functions above the limit: file, name, allowed lines.
const LONG_FUNCTIONS: &[(&str, &str, usize)] = &[
    ("crates/cli/src/commands/inspect.rs", "describe_check", 125),
    ("crates/cli/src/commands/volume.rs", "run", 195),
    ("crates/engine/src/recover/quorum.rs", "newest_without", 125),
    (
        "crates/engine/src/recover/salvage.rs",
        "rebuild_without",
        175,
    ),
    (
        "crates/engine/src/recover/replace.rs",
        "replace_member",
        125,
    ),
    ("crates/engine/src/path/write/commit.rs", "commit", 135),
    ("crates/engine/src/path/write/place.rs", "place", 155),
    ("crates/host/src/daemon.rs", "carry_out", 185),
    ("crates/host/src/metrics.rs", "counters", 205),
    ("crates/host/src/metrics.rs", "gauges", 195),
    ("crates/host/src/metrics.rs", "members", 125),
    ("crates/host/src/metrics.rs", "render", 145),
    ("crates/host/src/wording.rs", "sentence", 145),
    ("crates/inspect/src/members.rs", "judge_members", 125),
    ("crates/inspect/src/replay.rs", "replay", 145),
    ("crates/load/src/session.rs", "writer", 125),
    ("tools/bench/src/sync/findings.rs", "make", 135),
    ("tools/lab/src/commands/advise.rs", "advise", 145),
    ("tools/sim/src/run.rs", "begin", 125),
    ("tools/sim/src/run/beyond.rs", "live_on", 175),
    ("tools/sim/src/run/exchange.rs", "exchange_step", 125),
    ("tools/sim/src/scenario.rs", "draw", 135),
    ("tools/sim/src/world/checks.rs", "check_rest", 125),
    ("tools/trace/src/compact.rs", "chunk", 125),
];

/// Applies the rule to one file.
pub fn check(path: &str, text: &str, views: &Views, findings: &mut Findings) {
    let lines = text.lines().count();
    let allowed = LONG_FILES.iter().find(|entry| entry.0 == path);
    let most = allowed.map_or(FILE_LINES_MOST, |entry| entry.1);
    if lines > most {
        findings.error(
            "file-length",
            path,
            0,
            format!("{lines} lines, at most {most}"),
        );
    } else if allowed.is_some() && lines <= FILE_LINES_MOST {
        findings.error(
            "file-length",
            path,
            0,
            "is short enough to leave `LONG_FILES`",
        );
    } else if lines > FILE_LINES_GOOD {
        let message = format!("{lines} lines, better at most {FILE_LINES_GOOD}");
        findings.warn("file-length", path, 0, message);
    }
    for function in source::functions(&views.code) {
        let named = |entry: &&(&str, &str, usize)| entry.0 == path && entry.1 == function.name;
        let allowed = LONG_FUNCTIONS.iter().find(named);
        let most = allowed.map_or(FUNCTION_LINES_MOST, |entry| entry.2);
        let message = |most| format!("`{}` has {} lines, {most}", function.name, function.lines);
        let line = function.line;
        if function.lines > most {
            findings.error(
                "function-length",
                path,
                line,
                message(format!("at most {most}")),
            );
        } else if function.lines > FUNCTION_LINES_GOOD {
            let better = format!("better at most {FUNCTION_LINES_GOOD}");
            findings.warn("function-length", path, line, message(better));
        }
    }
}

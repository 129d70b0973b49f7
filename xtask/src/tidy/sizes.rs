//! Lengths of files and functions.
//!
//! Beyond the first limit there is a warning, beyond the second one an error. [`LONG_FILES`] and
//! [`LONG_FUNCTIONS`] name what is longer still: an entry may shrink, never grow, and goes when it
//! is not needed any more.

use super::Findings;
use crate::source::{self, Views};

const FILE_LINES_GOOD: usize = 600;
const FILE_LINES_MOST: usize = 700;
const FUNCTION_LINES_GOOD: usize = 70;
const FUNCTION_LINES_MOST: usize = 110;

/// Files above the limit, with the lines that each may have.
const LONG_FILES: &[(&str, usize)] = &[
    ("crates/cli/src/commands/members.rs", 734),
    ("crates/cli/src/commands/pool.rs", 959),
    ("crates/engine/src/api.rs", 750),
    ("crates/engine/src/checkpoint.rs", 816),
    ("crates/engine/src/clean.rs", 757),
    ("crates/engine/src/control.rs", 891),
    ("crates/engine/src/dedup/pages.rs", 741),
    ("crates/engine/src/format.rs", 841),
    ("crates/engine/src/rebuild.rs", 741),
    ("crates/engine/src/recover/chain.rs", 839),
    ("crates/engine/src/recover/mod.rs", 711),
    ("crates/engine/src/recover/quorum/model.rs", 986),
    ("crates/engine/src/recover/rebuild/gather.rs", 749),
    ("crates/engine/src/recover/rebuild/scan.rs", 724),
    ("crates/engine/src/scrub.rs", 738),
    ("crates/engine/src/write/admit.rs", 814),
    ("crates/host/src/daemon.rs", 1076),
    ("crates/host/src/metrics.rs", 1020),
    ("crates/host/src/offline/find.rs", 776),
    ("crates/host/src/offline/open.rs", 761),
    ("crates/host/src/pool.rs", 765),
    ("crates/host/src/pool/exchange.rs", 1113),
    ("crates/host/src/report.rs", 796),
    ("crates/inspect/src/check.rs", 1000),
    ("crates/inspect/src/replay.rs", 792),
    ("crates/inspect/src/test_pool.rs", 864),
    ("crates/layout/src/batch/table.rs", 829),
    ("tools/lab/src/commands/advise.rs", 755),
    ("tools/sim/src/model/requests.rs", 740),
    ("tools/sim/src/run.rs", 794),
    ("tools/sim/src/run/beyond.rs", 709),
    ("tools/sim/src/run/devices.rs", 783),
    ("tools/wa-sim/src/inplace.rs", 709),
];

/// Functions above the limit: file, name, lines that it may have.
const LONG_FUNCTIONS: &[(&str, &str, usize)] = &[
    ("crates/cli/src/commands/inspect.rs", "describe_check", 112),
    ("crates/cli/src/commands/volume.rs", "run", 184),
    ("crates/engine/src/recover/mod.rs", "open_without", 178),
    ("crates/engine/src/recover/quorum.rs", "newest_without", 116),
    (
        "crates/engine/src/recover/rebuild.rs",
        "rebuild_without",
        166,
    ),
    (
        "crates/engine/src/recover/replace.rs",
        "replace_member",
        117,
    ),
    ("crates/engine/src/write/commit.rs", "commit", 126),
    ("crates/engine/src/write/place.rs", "place", 146),
    ("crates/host/src/daemon.rs", "carry_out", 176),
    ("crates/host/src/metrics.rs", "counters", 197),
    ("crates/host/src/metrics.rs", "gauges", 184),
    ("crates/host/src/metrics.rs", "members", 111),
    ("crates/host/src/metrics.rs", "render", 139),
    ("crates/host/src/wording.rs", "sentence", 131),
    ("crates/inspect/src/members.rs", "judge_members", 119),
    ("crates/inspect/src/replay.rs", "replay", 135),
    ("crates/load/src/session.rs", "writer", 114),
    ("tools/bench/src/sync/findings.rs", "make", 124),
    ("tools/lab/src/commands/advise.rs", "advise", 131),
    ("tools/sim/src/run.rs", "begin", 113),
    ("tools/sim/src/run/beyond.rs", "live_on", 169),
    ("tools/sim/src/run/exchange.rs", "exchange_step", 114),
    ("tools/sim/src/scenario.rs", "draw", 121),
    ("tools/sim/src/world/checks.rs", "check_rest", 112),
    ("tools/trace/src/compact.rs", "chunk", 112),
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

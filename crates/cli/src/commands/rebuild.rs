//! `check --rebuild-map`: salvage of a pool's map from its batches, for emergencies.

use super::inspect::{CheckArguments, describe_check, run_check};
use clap::Args;
use serde::Serialize;
use std::fmt::Write;
use windrow_console::context;
use windrow_console::output::Output;
use windrow_console::progress::Progress;
use windrow_console::values::Size;
use windrow_engine::{RebuildPhase, RebuildProgress, RebuildReport};
use windrow_host::Failure;
use windrow_host::offline::{self, OpenRequest, RebuildLeave};
use windrow_inspect::{CheckOptions, CheckReport, exit};

/// Most lost blocks that are shown.
const LOST_SHOWN: usize = 16;

/// Arguments of the salvage.
#[derive(Args)]
pub struct RebuildArguments {
    /// Emergency: rebuild the map from the batches, for a pool that is damaged beyond its
    /// redundancy. It uses the newest readable checkpoint; without one, trimmed blocks may
    /// reappear. Shows the result only; with --repair it becomes the pool's state.
    #[arg(long, conflicts_with_all = ["payload", "parity"])]
    pub rebuild_map: bool,
    /// Repair what redundancy covers. Verifies as with --payload and --parity; after an error it
    /// opens the pool, scrubs it, brings members up to date, closes it and checks again. With
    /// --rebuild-map: write the rebuilt map.
    #[arg(long)]
    pub repair: bool,
    /// Rebuild although the pool can be opened as it is, or is refused for another reason than
    /// damage.
    #[arg(long, requires_all = ["rebuild_map", "repair"])]
    even_if_sound: bool,
    /// Rebuild although members that the pool counts on were not found: data that only they hold is
    /// lost for good.
    #[arg(long, requires_all = ["rebuild_map", "repair"])]
    without_missing: bool,
    /// Use no checkpoint although one can be read: after a rebuild that missed data which is
    /// readable today.
    #[arg(long, requires = "rebuild_map")]
    without_checkpoint: bool,
}

/// Result of the salvage.
#[derive(Serialize)]
struct Rebuilt {
    #[serde(flatten)]
    report: RebuildReport,
    /// A check that reads every live block, once the map is written: the salvage reads tables of
    /// batches, and their payload only if needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<CheckReport>,
}

impl Rebuilt {
    fn exit_code(&self, repair: bool) -> u8 {
        match &self.after {
            Some(after) if after.exit_code() > exit::CORRECTED => exit::ERRORS_LEFT,
            _ => exit_code(&self.report, repair),
        }
    }
}

/// Runs it; the result is the exit code.
pub fn run(arguments: &CheckArguments, output: &Output) -> u8 {
    let repair = arguments.rebuild.repair;
    match rebuild(arguments).and_then(|report| {
        Ok(Rebuilt {
            after: repair.then(|| read_payload(arguments)).transpose()?,
            report,
        })
    }) {
        Ok(done) => {
            output.result("check-rebuild-map", &done, || {
                let payload = match &done.after {
                    Some(after) => format!("afterwards, with every live block read:\n{}", describe_check(after)),
                    None => "payload was not read: blocks of which nothing is said here may be unreadable\n".to_owned(),
                };
                describe(&done.report, repair) + &payload
            });
            done.exit_code(repair)
        }
        Err(failure) => {
            output.failure(&failure);
            exit::OPERATIONAL
        }
    }
}

/// Exit code. Blocks that became I/O errors are a loss, like lost batches; an unknown loss is no
/// success either.
fn exit_code(report: &RebuildReport, repair: bool) -> u8 {
    let is_whole = report.losses.is_empty()
        && report.lost_blocks_total == 0
        && report.lost_lsns.is_none()
        && report.unread_checkpoint.is_none();
    match (is_whole, repair) {
        (true, true) => exit::CORRECTED,
        (true, false) => exit::CLEAN,
        (false, _) => exit::ERRORS_LEFT,
    }
}

fn read_payload(arguments: &CheckArguments) -> Result<CheckReport, Failure> {
    run_check(
        arguments,
        CheckOptions {
            verify_payload: true,
            ..CheckOptions::default()
        },
    )
}

fn rebuild(
    CheckArguments {
        pool,
        place,
        rebuild: arguments,
        ..
    }: &CheckArguments,
) -> Result<RebuildReport, Failure> {
    let found = context::at_rest(&format!("cannot check pool '{pool}'"), pool, place)?;
    let registry = context::registry();
    let request = OpenRequest {
        read_only: !arguments.repair,
        ..place.request()
    };
    let (mut phase, mut line) = (RebuildPhase::Scan, Progress::new("scanning segments"));
    let leave = RebuildLeave {
        write: arguments.repair,
        even_if_sound: arguments.even_if_sound,
        without_missing: arguments.without_missing,
        without_checkpoint: arguments.without_checkpoint,
    };
    offline::rebuild(
        &found,
        &registry,
        &request,
        leave,
        &mut |progress: RebuildProgress| {
            if progress.phase != phase {
                phase = progress.phase;
                line = Progress::new(match phase {
                    RebuildPhase::Scan => "scanning segments",
                    RebuildPhase::Map => "rebuilding the map from batches",
                    RebuildPhase::Write => "writing a checkpoint",
                });
            }
            match phase {
                RebuildPhase::Write => line.bytes(progress.done, progress.total),
                RebuildPhase::Scan | RebuildPhase::Map => line.steps(progress.done, progress.total),
            }
        },
    )
}

fn describe(report: &RebuildReport, repair: bool) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    _ = writeln!(
        text,
        "{} segments scanned: {} batches with {} entries count; {} are void, {} did not arrive as a whole; {} records honoured",
        report.segments,
        report.batches,
        report.entries,
        report.void_batches,
        report.torn_batches,
        report.records
    );
    for volume in &report.volumes {
        let made_up = if volume.made_up {
            " (name or size made up)"
        } else {
            ""
        };
        _ = writeln!(
            text,
            "volume '{}': {}, {} blocks{made_up}",
            volume.name,
            Size(volume.size_bytes),
            volume.mapped_blocks
        );
    }
    for loss in &report.losses {
        _ = writeln!(text, "LOST: {loss}");
    }
    if report.lost_blocks_total > 0 {
        let of = |(volume, lba): &(_, _)| format!("block {lba} of volume {volume}");
        let first: Vec<String> = report.lost_blocks.iter().take(LOST_SHOWN).map(of).collect();
        let more = report.lost_blocks_total - first.len() as u64;
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        let first = first.join(", ");
        _ = writeln!(
            text,
            "LOST: {} blocks are unrecoverable; reads of them are I/O errors: {first}{more}",
            report.lost_blocks_total
        );
    }
    if let Some(lost) = &report.lost_lsns {
        _ = writeln!(
            text,
            "LOST: {} operations, with LSNs from {} to {}, were durable, are in no batch, and could not be read from a journal; their blocks have older content",
            lost.count, lost.first, lost.last
        );
    }
    if let Some(unread) = &report.unread_checkpoint {
        _ = writeln!(
            text,
            "LOST, perhaps more: checkpoint {} does not count, and {} of the {} LSNs up to it are in no batch: they were overwritten and cleaned away, or they are lost. \
             Blocks and whole volumes may be missing that are not listed here",
            unread.id, unread.missing_lsns, unread.lsn.0
        );
    }
    match report.checkpoint {
        0 => {
            _ = writeln!(
                text,
                "no checkpoint counts: blocks that were trimmed or deleted before may be among them"
            )
        }
        checkpoint => _ = writeln!(text, "checkpoint {checkpoint} counts, and what is newer"),
    }
    if repair {
        _ = writeln!(
            text,
            "rebuilt; {} written. Check the file systems before use.",
            Size(report.written_bytes)
        );
    } else {
        _ = writeln!(
            text,
            "nothing was written; --repair makes this the pool's state"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use windrow_engine::{LostLsns, UnreadCheckpoint};
    use windrow_types::{Lba, Lsn, VolumeId};

    /// Blocks that become I/O errors must be shown, and must not end with the exit code of a full
    /// repair.
    #[test]
    fn lost_blocks_are_shown_and_are_no_success() {
        let mut report = RebuildReport::default();
        assert_eq!(
            (exit_code(&report, false), exit_code(&report, true)),
            (exit::CLEAN, exit::CORRECTED)
        );
        assert!(!describe(&report, true).contains("LOST"));
        report.unread_checkpoint = Some(UnreadCheckpoint {
            id: 7,
            lsn: Lsn(100),
            missing_lsns: 40,
        });
        assert_eq!(
            (exit_code(&report, false), exit_code(&report, true)),
            (exit::ERRORS_LEFT, exit::ERRORS_LEFT)
        );
        assert!(
            describe(&report, true)
                .contains("checkpoint 7 does not count, and 40 of the 100 LSNs up to it")
        );
        report.unread_checkpoint = None;
        report.lost_lsns = Some(LostLsns {
            first: Lsn(7),
            last: Lsn(9),
            count: 3,
        });
        assert_eq!(
            (exit_code(&report, false), exit_code(&report, true)),
            (exit::ERRORS_LEFT, exit::ERRORS_LEFT)
        );
        assert!(describe(&report, true).contains("LOST: 3 operations, with LSNs from 7 to 9"));
        report.lost_lsns = None;
        report.lost_blocks = (0..1024).map(|lba| (VolumeId(3), Lba(lba))).collect();
        report.lost_blocks_total = 5000;
        assert_eq!(
            (exit_code(&report, false), exit_code(&report, true)),
            (exit::ERRORS_LEFT, exit::ERRORS_LEFT)
        );
        let text = describe(&report, true);
        assert!(
            text.contains("LOST: 5000 blocks are unrecoverable")
                && text.contains("block 0 of volume 3, block 1 of")
                && text.contains(" and 4984 more"),
            "{text}"
        );
    }
}

//! `check --repair`: repairs what the redundancy of a pool at rest covers, with the means of a pool
//! in service.
//!
//! 1. A check with payload and redundancy. If it finds no error, nothing is written.
//! 2. The pool is opened as for any command, without force: that writes superblocks, parts of
//!    batches and copies of journal records. A pool that cannot be opened, or that lacks members it
//!    counts on, stays as it is.
//! 3. A scrub reads everything and rewrites wrong blocks elsewhere. Members that were missing are
//!    brought up to date.
//! 4. The pool is closed as it was (an exported one stays exported), and another check reports the
//!    rest.

use super::inspect::{CheckArguments, describe_check, not_made, run_check};
use super::{pool, scrub};
use serde::Serialize;
use std::fmt::Write;
use std::time::{Duration, Instant};
use windrow_console::context::{self, OpenedAtRest, unexpected};
use windrow_console::output::Output;
use windrow_console::progress::Progress;
use windrow_engine::ScrubState;
use windrow_format::superblock::MemberState;
use windrow_host::Failure;
use windrow_host::control::ScrubAction;
use windrow_host::daemon;
use windrow_host::failure::id;
use windrow_host::offline::{self, FoundPool, OpenRequest};
use windrow_host::report::PoolReport;
use windrow_host::scrub::ScrubReport;
use windrow_inspect::{CheckOptions, CheckReport, FindingKind, Severity, exit};
use windrow_types::{MemberId, Uuid};

/// Interval of progress queries to the pool.
const PAUSE: Duration = Duration::from_millis(50);
/// A rebuild that has not written anything for this long is not waited for any longer.
const STANDSTILL: Duration = Duration::from_secs(30);

/// Result of the repair.
#[derive(Serialize)]
struct Repair {
    /// The check before the repair.
    before: CheckReport,
    /// Notes of the pool's start.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    /// The scrub; `None` if the check found no error.
    scrub: Option<ScrubReport>,
    /// The check after the repair; `None` if the first one found no error.
    after: Option<CheckReport>,
}

impl Repair {
    fn exit_code(&self) -> u8 {
        match (&self.after, &self.scrub) {
            (None, _) => self.before.exit_code(),
            // Blocks that the scrub found lost are lost, whatever the check finds.
            (Some(after), Some(scrub))
                if after.exit_code() == exit::CLEAN && scrub.exit_code() <= exit::CORRECTED =>
            {
                exit::CORRECTED
            }
            (Some(after), _) => after.exit_code().max(exit::ERRORS_LEFT),
        }
    }
}

/// Runs it; the result is the exit code.
pub fn run(arguments: &CheckArguments, output: &Output) -> u8 {
    match repair(arguments) {
        Ok(done) => {
            output.result("check-repair", &done, || describe(&done));
            done.exit_code()
        }
        Err(failure) => {
            output.failure(&failure);
            exit::OPERATIONAL
        }
    }
}

fn checked(arguments: &CheckArguments) -> Result<CheckReport, Failure> {
    let report = run_check(arguments, CheckOptions::everything())?;
    match &report.failure {
        Some(why) => Err(not_made(&arguments.pool, &report, why)),
        None => Ok(report),
    }
}

/// The pool, with all members that it counts on.
fn complete(arguments: &CheckArguments) -> Result<FoundPool, Failure> {
    let found = context::at_rest(
        &format!("cannot repair pool '{}'", arguments.pool),
        &arguments.pool,
        &arguments.place,
    )?;
    let missing = found.missing();
    if missing.is_empty() {
        Ok(found)
    } else {
        Err(offline::incomplete(
            &found.name,
            &format!("members {missing:?} were not found"),
        ))
    }
}

/// Refuses if a member that was found does not count: it is an old copy, is too small, or answers
/// no reads. A start would continue without it, or rewrite it.
fn all_count(found: &FoundPool, before: &CheckReport) -> Result<(), Failure> {
    let is_online = |member: MemberId| {
        let record = found
            .superblock()
            .and_then(|superblock| superblock.members.get(member.index()));
        record.is_some_and(|record| record.state == MemberState::Online)
    };
    match missed(before, is_online) {
        Some((member, why)) => Err(offline::incomplete(
            &found.name,
            &format!("member {member} does not count ({why})"),
        )),
        None => Ok(()),
    }
}

/// A member in service by the superblock that a check calls missing, and the reason. (A leaving
/// member is only a note: it counts until it has left.)
fn missed(before: &CheckReport, is_online: impl Fn(MemberId) -> bool) -> Option<(MemberId, &str)> {
    let absent = before.findings.list.iter().filter(|finding| {
        finding.kind == FindingKind::MemberAbsent && finding.severity > Severity::Note
    });
    absent
        .filter_map(|finding| Some((finding.member?, &finding.message[..])))
        .find(|(member, _)| is_online(*member))
}

fn repair(arguments: &CheckArguments) -> Result<Repair, Failure> {
    let registry = context::registry();
    complete(arguments)?;
    let before = checked(arguments)?;
    if before.findings.is_clean() {
        return Ok(Repair {
            before,
            notes: Vec::new(),
            scrub: None,
            after: None,
        });
    }
    // The check may have taken hours.
    let found = complete(arguments)?;
    all_count(&found, &before)?;
    // A clean shutdown alone releases nothing: a pool is exported if no host has it.
    let was_exported = found
        .superblock()
        .is_some_and(|superblock| superblock.host == Uuid::default());
    let opened = OpenedAtRest::open(
        &found,
        &registry,
        &OpenRequest {
            complete: true,
            ..arguments.place.request()
        },
    )?;
    let notes = opened.report.notes.clone();
    let scrubbed = put_right(&opened);
    let closed = opened.close(was_exported);
    let scrub = scrubbed?;
    closed?;
    let after = checked(arguments)?;
    Ok(Repair {
        before,
        notes,
        scrub: Some(scrub),
        after: Some(after),
    })
}

/// Scrubs, and brings members up to date meanwhile.
fn put_right(opened: &OpenedAtRest) -> Result<ScrubReport, Failure> {
    // An interrupted scrub resumes by itself; it would not read again what it has read before.
    if report_of(opened)?.scrub.is_under_way() {
        daemon::scrub(&opened.pool, ScrubAction::Stop, None)?;
    }
    daemon::scrub(&opened.pool, ScrubAction::Start, None)?;
    let scrubbed = wait(opened, "scrub", |report| {
        report
            .scrub
            .is_under_way()
            .then(|| scrub::line(&report.scrub, true, None))
    })?;
    // In service, unreadable data is tried again and again; here the check that follows reports it.
    let (mut moved, mut since) = ((0, 0), Instant::now());
    wait(opened, "rebuild", |report| {
        let now = (report.rebuild.segments_done, report.rebuild.written_bytes);
        if now != moved {
            (moved, since) = (now, Instant::now());
        }
        let goes_on = report
            .members
            .iter()
            .any(|member| member.state == "rebuilding")
            && since.elapsed() < STANDSTILL;
        goes_on.then(|| pool::rebuild_line(&report.rebuild))
    })?;
    if scrubbed.scrub.state == ScrubState::Completed {
        return Ok(scrubbed.scrub);
    }
    Err(Failure::new(
        id::SCRUB_STATE,
        "the scrub did not reach its end",
        scrub::line(&scrubbed.scrub, true, None),
    )
    .remedy("try again"))
}

fn report_of(opened: &OpenedAtRest) -> Result<PoolReport, Failure> {
    let report = opened.pool.report().ok_or_else(unexpected)?;
    match &report.stop_reason {
        Some(reason) => Err(
            Failure::new(id::POOL_STOPPED, "the repair did not end", reason)
                .remedy("check the pool again"),
        ),
        None => Ok(report),
    }
}

/// Waits while `line` returns a line to show.
fn wait(
    opened: &OpenedAtRest,
    what: &str,
    mut line: impl FnMut(&PoolReport) -> Option<String>,
) -> Result<PoolReport, Failure> {
    let mut shown = Progress::new(what);
    loop {
        let report = report_of(opened)?;
        let Some(text) = line(&report) else {
            return Ok(report);
        };
        shown.text(&text);
        std::thread::sleep(PAUSE);
    }
}

fn describe(done: &Repair) -> String {
    let (Some(scrubbed), Some(after)) = (&done.scrub, &done.after) else {
        return format!(
            "{}nothing to repair; nothing was written\n",
            describe_check(&done.before)
        );
    };
    let mut text = describe_check(&done.before);
    // Writing to a string does not fail.
    done.notes
        .iter()
        .for_each(|note| _ = writeln!(text, "start: {note}"));
    _ = writeln!(
        text,
        "scrub: {}\n{}\nafterwards:",
        scrub::line(scrubbed, true, None),
        scrub::lost(scrubbed)
    );
    text.push_str(&describe_check(after));
    _ = writeln!(
        text,
        "{}",
        if done.exit_code() == exit::CORRECTED {
            "everything is repaired"
        } else {
            "not everything could be repaired"
        }
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use windrow_inspect::Finding;

    /// A member that is being removed is not missing, although a check lists it with the missing
    /// ones: the pool is repaired.
    #[test]
    fn a_member_that_is_leaving_is_not_missed() {
        let finding = |member, severity, message: &str| Finding {
            severity,
            kind: FindingKind::MemberAbsent,
            member: Some(MemberId(member)),
            segment: None,
            row: None,
            chunk: None,
            volume: None,
            lba: None,
            message: message.to_owned(),
        };
        let mut before = CheckReport::default();
        before.findings.list = vec![
            finding(3, Severity::Note, "it leaves the pool"),
            finding(2, Severity::Repairable, "recorded as absent"),
        ];
        assert_eq!(missed(&before, |member| member != MemberId(2)), None);
        before
            .findings
            .list
            .push(finding(1, Severity::Repairable, "left behind"));
        assert_eq!(
            missed(&before, |member| member != MemberId(2)),
            Some((MemberId(1), "left behind"))
        );
    }

    /// A block that a scrub cannot read is lost, even if the final check finds no error.
    #[test]
    fn what_is_lost_is_no_success() {
        let mut done = Repair {
            before: CheckReport::default(),
            notes: Vec::new(),
            scrub: None,
            after: None,
        };
        assert_eq!(done.exit_code(), exit::CLEAN);
        done.scrub = Some(ScrubReport {
            state: ScrubState::Completed,
            wrong_blocks: 3,
            moved_blocks: 9,
            ..ScrubReport::default()
        });
        done.after = Some(CheckReport::default());
        assert_eq!(done.exit_code(), exit::CORRECTED);
        done.scrub = Some(ScrubReport {
            lost_blocks: 1,
            ..done.scrub.take().expect("a scrub")
        });
        assert_eq!(done.exit_code(), exit::ERRORS_LEFT);
    }
}

//! `inspect` and `check`: the content of members, decoded without the engine.

use clap::Args;
use std::fmt::Write;
use std::path::PathBuf;
use windrow_console::context::{self, PoolPlace};
use windrow_console::output::Output;
use windrow_console::progress::Progress;
use windrow_console::table::Table;
use windrow_console::values::Size;
use windrow_format::superblock::{PoolState, Superblock};
use windrow_host::Failure;
use windrow_host::failure::id;
use windrow_host::offline::{self, FoundMember};
use windrow_inspect::{
    BatchSummary, CheckOptions, CheckReport, FindingKind, Findings, InspectReport, MAX_FINDINGS,
    RecordSummary, SpaceReport,
};
use windrow_types::{SegmentId, Uuid};

/// Arguments of `inspect`.
#[derive(Args)]
#[command(after_help = "Examples:
  windrow inspect /dev/sdb
  windrow inspect a.img b.img c.img d.img -o json
  windrow inspect a.img b.img c.img d.img --segment 7
  windrow inspect a.img b.img c.img d.img --segment 7 --row 64 -o json
  windrow inspect a.img b.img c.img d.img --journal
  windrow inspect a.img b.img c.img d.img --chunk 3 -o json")]
pub struct InspectArguments {
    /// Members. One is enough for its label and superblocks.
    #[arg(required = true, num_args = 1.., value_name = "MEMBER")]
    members: Vec<PathBuf>,
    /// List the batches of this segment.
    #[arg(long)]
    segment: Option<u32>,
    /// Decode the batch that begins at this row of the segment.
    #[arg(long, requires = "segment")]
    row: Option<u32>,
    /// List the records of the journal, oldest first, including those that no start would replay.
    #[arg(long, conflicts_with = "segment")]
    journal: bool,
    /// Decode the records of this chunk of the journal.
    #[arg(long, conflicts_with_all = ["segment", "journal"])]
    chunk: Option<u32>,
    /// The chunk is one of the journal devices.
    #[arg(long, requires = "chunk")]
    journal_device: bool,
}

/// Arguments of `check`.
#[derive(Args)]
#[command(after_help = "Examples:
  windrow check tank
  windrow check tank --payload --parity
  windrow check tank --dir /srv/members -o json
  windrow check tank --repair
  windrow check tank --rebuild-map
  windrow check tank --rebuild-map --repair

Exit codes: 0 sound, 1 repaired, or rebuilt (--rebuild-map --repair), 4 errors found or left, 8 the check could not be made, 16 wrong usage. Without --repair
nothing is written. A start completes batches that a crash interrupted, and the copies of journal records that it needs. Other errors are repaired by --repair, by a
scrub (`windrow pool scrub`), or by reads.")]
pub struct CheckArguments {
    /// Pool; it must not be served.
    pub(super) pool: String,
    #[command(flatten)]
    pub(super) place: PoolPlace,
    /// Read every live block and verify its checksum.
    #[arg(long)]
    payload: bool,
    /// Read every live batch and verify its redundancy.
    #[arg(long)]
    parity: bool,
    #[command(flatten)]
    pub(super) rebuild: super::rebuild::RebuildArguments,
}

fn inspect_failure(error: impl std::fmt::Display) -> Failure {
    Failure::new(id::CHECK_DAMAGE, "cannot decode", error).remedy("give all members of the pool")
}

/// Runs `inspect`.
pub fn inspect(arguments: &InspectArguments, output: &Output) -> Result<u8, Failure> {
    let mut members: Vec<FoundMember> = Vec::new();
    for path in &arguments.members {
        let found = offline::examine(&offline::member_path(path))?;
        members.push(found.ok_or_else(|| {
            let what = format!("{} is not a member of a pool", path.display());
            Failure::new(id::MEMBER_OPEN, what, "it has no readable label").remedy(
                "name another path; `windrow pool list -o json` shows the paths of known pools",
            )
        })?);
    }
    if members
        .iter()
        .any(|member| member.label.pool != members[0].label.pool)
    {
        let failure = Failure::new(
            id::USAGE,
            "cannot inspect these members together",
            "they belong to different pools",
        );
        return Err(failure.remedy("name the members of one pool at a time"));
    }
    let mut io = offline::open_for_reading(&members, false)?;
    if let Some(chunk) = arguments.chunk {
        let dump = windrow_inspect::dump_chunk(&mut io, arguments.journal_device, chunk)
            .map_err(inspect_failure)?;
        output.result("inspect-chunk", &dump, || {
            serde_json::to_string_pretty(&dump).unwrap_or_default()
        });
        return Ok(0);
    }
    if arguments.journal {
        let records = windrow_inspect::list_records(&mut io).map_err(inspect_failure)?;
        output.result(
            "inspect-journal",
            &serde_json::json!({ "records": records }),
            || record_table(&records),
        );
        return Ok(0);
    }
    match (arguments.segment, arguments.row) {
        (Some(segment), Some(row)) => {
            let dump = windrow_inspect::dump_batch(&mut io, SegmentId(segment), row)
                .map_err(inspect_failure)?;
            // A batch has many parts; both forms show it in full.
            output.result("inspect-batch", &dump, || {
                serde_json::to_string_pretty(&dump).unwrap_or_default()
            });
        }
        (Some(segment), None) => {
            let batches = windrow_inspect::list_batches(&mut io, SegmentId(segment))
                .map_err(inspect_failure)?;
            output.result(
                "inspect-segment",
                &serde_json::json!({ "segment": segment, "batches": batches }),
                || batch_table(&batches),
            );
        }
        (None, _) => {
            let report = windrow_inspect::inspect_members(&mut io);
            output.result("inspect", &report, || describe_members(&report));
        }
    }
    Ok(0)
}

fn batch_table(batches: &[BatchSummary]) -> String {
    let mut table = Table::new(&[
        "ROW",
        "ROWS",
        "STREAM",
        "SEQUENCE",
        "EPOCH",
        "ENTRIES",
        "PAYLOAD",
        "PADDING",
        "FLUSHED THROUGH",
    ]);
    for batch in batches {
        table.row([
            batch.row.to_string(),
            batch.rows.to_string(),
            batch.stream.to_string(),
            batch.seq.to_string(),
            batch.epoch.to_string(),
            batch.entries.to_string(),
            batch.payload_blocks.to_string(),
            batch.padding_blocks.to_string(),
            batch.flushed_through.to_string(),
        ]);
    }
    table.render()
}

fn record_table(records: &[RecordSummary]) -> String {
    let mut table = Table::new(&[
        "RECORD", "EPOCH", "JOURNAL", "CHUNK", "BYTE", "LENGTH", "ORDERS", "ENTRIES", "PAYLOAD",
        "DURABLE", "COPIES",
    ]);
    for record in records {
        let header = &record.header;
        table.row([
            header.seq.to_string(),
            header.epoch.to_string(),
            if record.external {
                "devices"
            } else {
                "members"
            }
            .to_owned(),
            header.chunk.to_string(),
            header.offset.to_string(),
            record
                .length
                .map_or("-".to_owned(), |length| length.to_string()),
            format!("{}..{}", header.first, header.last),
            record.entry_count.to_string(),
            record.payload_blocks.to_string(),
            header.durable.to_string(),
            if record.whole {
                format!(
                    "{} of {}",
                    record.copies as usize - record.wrong.len(),
                    record.copies
                )
            } else {
                "torn".to_owned()
            },
        ]);
    }
    table.render()
}

/// State of the pool. A cleanly closed pool counts as exported only if no host has it.
fn state(superblock: &Superblock) -> &'static str {
    match superblock.state {
        PoolState::Active => "active",
        PoolState::Exported if superblock.host == Uuid::default() => "exported",
        PoolState::Exported => "at rest",
        PoolState::Destroyed => "destroyed",
    }
}

fn describe_members(report: &InspectReport) -> String {
    let mut text = String::new();
    for member in report.members.iter().filter(|member| member.present) {
        let label = member.label.as_ref().map_or_else(
            || member.label_problem.clone().unwrap_or_default(),
            |label| {
                format!(
                    "pool '{}' ({}), format {}",
                    label.pool_name, label.pool, label.version
                )
            },
        );
        // Writing to a string does not fail.
        _ = writeln!(
            text,
            "member {}: {} {label}{}",
            member.member,
            Size(member.size_bytes),
            if member.usable { "" } else { ", not usable" }
        );
        for slot in &member.slots {
            let state = match (&slot.problem, slot.generation, slot.epoch) {
                (None, Some(generation), Some(epoch)) => {
                    format!("generation {generation}, epoch {epoch}")
                }
                (problem, ..) => problem.clone().unwrap_or_default(),
            };
            _ = writeln!(text, "  slot {} at {}: {state}", slot.slot, slot.offset);
        }
    }
    if let Some(newest) = &report.newest {
        _ = writeln!(
            text,
            "newest: generation {}, epoch {}, {}, redundancy {}, {} members, {} fences",
            newest.generation,
            newest.epoch,
            state(newest),
            newest.redundancy.name(),
            newest.members.len(),
            newest.fences.len()
        );
        for zone in &newest.zones {
            let shape = &zone.shape;
            _ = writeln!(
                text,
                "zone from segment {}: {} segments of {} + {} columns, {} rows, chunks of {} rows",
                zone.first_segment,
                zone.segments,
                shape.data,
                shape.redundant(),
                shape.rows,
                shape.chunk_rows
            );
        }
        for journal in newest.journals.areas() {
            let what = if journal.members & newest.journals.devices() == 0 {
                "members"
            } else {
                "devices of its own"
            };
            _ = writeln!(
                text,
                "journal at {}: {} chunks of {}, {} copies on {} {what}",
                journal.start,
                journal.chunks,
                Size(u64::from(journal.chunk_bytes)),
                journal.copies,
                journal.members.count_ones()
            );
        }
    }
    let quorum = if report.quorum {
        "these members can be imported"
    } else {
        "these members alone cannot be imported without force"
    };
    _ = writeln!(text, "{quorum}");
    describe_findings(&report.findings, &mut text);
    text
}

fn describe_findings(findings: &Findings, text: &mut String) {
    const SHOWN: usize = 50;
    for finding in findings.list.iter().take(SHOWN) {
        let mut place = String::new();
        let mut part = |name: &str, number: Option<String>| {
            if let Some(number) = number {
                _ = write!(place, " {name} {number}");
            }
        };
        part("member", finding.member.map(|member| member.to_string()));
        part(
            "segment",
            finding.segment.map(|segment| segment.to_string()),
        );
        part("row", finding.row.map(|row| row.to_string()));
        part("chunk", finding.chunk.map(|chunk| chunk.to_string()));
        part("volume", finding.volume.map(|volume| volume.to_string()));
        part("block", finding.lba.map(|block| block.to_string()));
        _ = writeln!(text, "{:?}{place}: {}", finding.severity, finding.message);
    }
    let more = findings.list.len().saturating_sub(SHOWN) as u64 + findings.unlisted;
    if more > 0 {
        let shown = if findings.unlisted == 0 {
            "them".to_owned()
        } else {
            format!("the first {MAX_FINDINGS} of all")
        };
        _ = writeln!(text, "and {more} more findings; -o json shows {shown}");
    }
}

/// Runs `check`.
pub fn check(arguments: &CheckArguments, output: &Output) -> Result<u8, Failure> {
    if arguments.rebuild.rebuild_map {
        return Ok(super::rebuild::run(arguments, output));
    }
    if arguments.rebuild.repair {
        return Ok(super::repair::run(arguments, output));
    }
    match run_check(
        arguments,
        CheckOptions {
            verify_payload: arguments.payload,
            verify_parity: arguments.parity,
            ..CheckOptions::default()
        },
    ) {
        Ok(report) => {
            match &report.failure {
                Some(why) => {
                    output.failure_after(&not_made(&arguments.pool, &report, why), &report)
                }
                None => output.result("check", &report, || describe_check(&report)),
            }
            Ok(report.exit_code())
        }
        Err(failure) => {
            output.failure(&failure);
            Ok(windrow_inspect::exit::OPERATIONAL)
        }
    }
}

pub(super) fn not_made(pool: &str, report: &CheckReport, why: &str) -> Failure {
    let find = |kind| {
        report
            .findings
            .list
            .iter()
            .find(|finding| finding.kind == kind)
    };
    let what = format!("cannot check pool '{pool}'");
    if find(FindingKind::NewerSoftware).is_some() {
        Failure::new(id::POOL_NEWER, what, why).remedy(offline::NEWER_REMEDY)
    } else if find(FindingKind::MapMemory).is_some() {
        Failure::new(id::POOL_MEMORY, what, why)
            .remedy("give it more (--map-memory), as much as the pool is served with")
    } else if find(FindingKind::PoolDestroyed).is_some() {
        Failure::new(id::POOL_REFUSED, what, why).remedy(offline::DESTROYED_REMEDY)
    } else if let Some(missing) = find(FindingKind::QuorumMissing) {
        Failure::new(
            id::POOL_MEMBERS,
            what,
            format!("{}; {why}", missing.message),
        )
        .remedy("name all members with --members, or their folder with --dir")
    } else if find(FindingKind::MemberAbsent).is_some() {
        Failure::new(id::POOL_DAMAGED, what, why)
            .remedy("members are missing: bring them back first, for they may have what cannot be read; else see \"Emergency\" in docs/guide/problems.md")
    } else {
        Failure::new(id::POOL_DAMAGED, what, why)
            .remedy("see \"Emergency\" in docs/guide/problems.md")
    }
}

pub(super) fn run_check(
    arguments: &CheckArguments,
    options: CheckOptions,
) -> Result<CheckReport, Failure> {
    let found = context::at_rest(
        &format!("cannot check pool '{}'", arguments.pool),
        &arguments.pool,
        &arguments.place,
    )?;
    let mut io = offline::open_for_reading(&found.members, true)?;
    let mut line = Progress::new("checking");
    let options = CheckOptions {
        map_bytes: arguments.place.request().limits.map_bytes,
        ..options
    };
    Ok(windrow_inspect::check(&mut io, &options, &mut |progress| {
        line.steps(progress.done, progress.total)
    }))
}

fn describe_space(space: &SpaceReport, text: &mut String) {
    _ = writeln!(
        text,
        "space: {} live, {} garbage and overhead in addition; {} of {} segments ({}) idle, {} kept for replay",
        Size(space.live_bytes),
        Size(space.garbage_bytes),
        space.idle_segments,
        space.segments,
        Size(space.segment_bytes),
        space.kept_segments
    );
}

pub(super) fn describe_check(report: &CheckReport) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    _ = writeln!(
        text,
        "pool '{}' ({}), generation {}, checkpoint {}",
        report.pool_name, report.pool, report.generation, report.checkpoint
    );
    _ = writeln!(
        text,
        "LSNs accepted up to {}, durable up to {}",
        report.recovery_lsn, report.flushed_through
    );
    for stream in &report.streams {
        _ = writeln!(
            text,
            "stream {}: {} batches after the checkpoint; {}",
            stream.stream, stream.batches, stream.end
        );
    }
    for journal in &report.journals {
        let what = if journal.external {
            "devices of its own"
        } else {
            "members"
        };
        _ = writeln!(
            text,
            "journal: bytes {} to {} of {} {what}, {} of {} chunks in use, {} records needed; {} of {} copies wrong",
            journal.start,
            journal.end,
            journal.members.len(),
            journal.chunks_in_use,
            journal.chunks,
            journal.records_needed,
            journal.copies_wrong,
            journal.copies_compared
        );
    }
    if report.log_lsn < report.recovery_lsn {
        _ = writeln!(
            text,
            "in the journal alone: LSNs above {}, {} blocks",
            report.log_lsn, report.journal_blocks
        );
    }
    if report.contents > 0 {
        _ = writeln!(
            text,
            "shared: {} contents, {} blocks refer to them",
            report.contents, report.references
        );
    }
    if report.index_pages > 0 {
        let decoded = match report.index_entries {
            0 => String::new(),
            entries => format!(
                ", {} of {entries} fingerprints in use",
                report.index_entries_in_use
            ),
        };
        _ = writeln!(
            text,
            "index:  {} pages of fingerprints{decoded}",
            report.index_pages
        );
    }
    for volume in &report.volumes {
        _ = writeln!(
            text,
            "volume '{}': {}, {} blocks",
            volume.name,
            Size(volume.size_bytes),
            volume.mapped_blocks
        );
    }
    if report.lost_blocks > 0 {
        _ = writeln!(
            text,
            "LOST: {} blocks were abandoned by an earlier rebuild of the map; write them (from a backup) or trim them",
            report.lost_blocks
        );
    }
    _ = writeln!(
        text,
        "{} live blocks in {} segments; verified {} batches, {} payload blocks, {} rows of redundancy; {} read",
        report.live_blocks,
        report.live_segments,
        report.batches_verified,
        report.payload_blocks_verified,
        report.parity_rows_verified,
        Size(report.read_bytes)
    );
    if report.payload_blocks_verified == 0 && report.live_blocks > 0 {
        _ = writeln!(
            text,
            "payload was not read: --payload verifies every live block"
        );
    }
    describe_space(&report.space, &mut text);
    describe_findings(&report.findings, &mut text);
    _ = writeln!(
        text,
        "{}",
        if report.findings.is_clean() {
            "sound"
        } else {
            "ERRORS FOUND"
        }
    );
    text
}

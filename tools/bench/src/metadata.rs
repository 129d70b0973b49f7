//! `bench metadata`: compression of data, metadata and journal of mainstream file systems, and
//! their shares of all writes.
//!
//! The claim of the sources: journal and metadata are 50 to 60 % of file system writes if user
//! writes are 32 to 64 KiB, and save 80 to 90 % by compression; data saves 20 to 30 %.
//!
//! 1. A file system is created on an in-memory disk that watches its writes (`watch.rs`), and
//!    mounted by the kernel of this machine (`mounted.rs`).
//! 2. A load writes files whose content comes from existing files (`loads.rs`).
//! 3. Until the unmount each written block is classified (`classes.rs`) and compressed by the
//!    engine's codecs, by its rules.
//!
//! `--at-rest` mounts nothing: it inspects images that the makers of file systems fill themselves
//! (`at_rest.rs`), so it measures stored instead of written blocks.

mod at_rest;
mod classes;
mod files;
mod loads;
mod mounted;
mod system;
mod tools;
mod watch;

use super::chart::{Group, groups};
use super::report::{Findings, Goal, ReportArguments};
use super::rounds::ppm;
use clap::Args;
use classes::{Bytes, CLASSES, Class, Classes};
use files::Sample;
use loads::Load;
use mounted::Mounted;
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use system::System;
use watch::Disk;
use windrow_console::output::Output;
use windrow_console::progress::Progress;
use windrow_console::table::Table;
use windrow_console::values::Size;
use windrow_host::failure::{Failure, id};
use windrow_load::machine::Meter;

/// Arguments of `bench metadata`.
#[derive(Args)]
#[command(after_help = "Examples:
  windrow-bench metadata
  windrow-bench metadata --case ext4-messages,xfs-messages --write 32K,64K --bytes 512M
  windrow-bench metadata --at-rest --tree /usr/share/doc -o json

It needs root, e2fsprogs, xfsprogs, libnbd-bin and fuse3, and a kernel that may mount (ext4, XFS, loop, FUSE); --at-rest needs e2fsprogs and xfsprogs only.")]
pub struct MetadataArguments {
    #[command(flatten)]
    report: ReportArguments,
    /// File systems and loads; default: all. At rest: ext4 and xfs.
    #[arg(long = "case", value_delimiter = ',', value_parser = clap::builder::PossibleValuesParser::new(CASES.map(|case| case.name)))]
    cases: Vec<String>,
    /// Source of the files' content.
    #[arg(long, value_name = "DIR", default_value = "/usr/share")]
    tree: PathBuf,
    /// Approximate amount of content.
    #[arg(long, default_value = "128M")]
    bytes: Size,
    /// Sizes of the writes of `messages` and `overwrite`, in turn.
    #[arg(long, value_delimiter = ',', default_value = "16K,32K,48K,64K")]
    write: Vec<Size>,
    /// Inspect file systems that were filled without being mounted: stored blocks instead of
    /// written ones.
    #[arg(long)]
    at_rest: bool,
}

/// A file system with a load.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    system: System,
    options: &'static str,
    load: Load,
}

const CASES: [Case; 7] = [
    Case {
        name: "ext4-copy",
        system: System::Ext4,
        options: "data=ordered",
        load: Load::Copy,
    },
    Case {
        name: "ext4-messages",
        system: System::Ext4,
        options: "data=ordered",
        load: Load::Messages,
    },
    Case {
        name: "ext4-overwrite",
        system: System::Ext4,
        options: "data=ordered",
        load: Load::Overwrite,
    },
    Case {
        name: "ext4-data-journal",
        system: System::Ext4,
        options: "data=journal",
        load: Load::Messages,
    },
    Case {
        name: "xfs-copy",
        system: System::Xfs,
        options: "defaults",
        load: Load::Copy,
    },
    Case {
        name: "xfs-messages",
        system: System::Xfs,
        options: "defaults",
        load: Load::Messages,
    },
    Case {
        name: "xfs-overwrite",
        system: System::Xfs,
        options: "defaults",
        load: Load::Overwrite,
    },
];

/// Programs required by a mounted run.
const PROGRAMS: [&str; 9] = [
    "mke2fs",
    "debugfs",
    "mkfs.xfs",
    "nbdfuse",
    "fusermount3",
    "losetup",
    "mount",
    "umount",
    "sync",
];
/// Programs required by a run at rest.
const PROGRAMS_AT_REST: [&str; 3] = ["mke2fs", "debugfs", "mkfs.xfs"];

/// Minimum saving of journal and metadata by LZ4, according to the claim.
const GOAL_SAVED: f64 = 0.8;
/// Their share of all writes for durable writes of 32 to 64 KiB, according to the claim.
const GOAL_SHARE: f64 = 0.5;
/// Write sizes of the claim.
const CLAIMED: std::ops::RangeInclusive<u64> = 32 << 10..=64 << 10;

/// Writes of a load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Totals {
    /// Number of files, messages or overwrites.
    writes: u64,
    /// Their bytes.
    bytes: u64,
}

impl Totals {
    fn note(&mut self, bytes: usize) {
        self.writes += 1;
        self.bytes += bytes as u64;
    }
}

fn cannot(what: &str, which: impl std::fmt::Display, why: impl std::fmt::Display) -> Failure {
    Failure::new(id::LOCAL_FILE, format!("cannot {what} {which}"), why)
}

/// Runs the benchmark.
pub fn run(arguments: &MetadataArguments, output: &Output) -> Result<u8, Failure> {
    let meter = Meter::start();
    tools::need(if arguments.at_rest {
        &PROGRAMS_AT_REST
    } else {
        &PROGRAMS
    })?;
    if arguments.at_rest && !arguments.cases.is_empty() {
        return Err(Failure::new(
            id::USAGE,
            "--case is of mounted file systems",
            "images at rest have no load",
        )
        .remedy("leave out --case or --at-rest"));
    }
    let sizes: Vec<usize> = arguments.write.iter().map(|size| size.0 as usize).collect();
    if sizes
        .iter()
        .any(|size| *size == 0 || !size.is_multiple_of(windrow_types::BLOCK_SIZE))
    {
        return Err(Failure::new(
            id::USAGE,
            "cannot write in such sizes",
            "--write takes multiples of 4K",
        )
        .remedy("give such sizes, as 4K,64K"));
    }
    let samples = files::choose(&arguments.tree, arguments.bytes.0)?;
    let stop = Arc::new(AtomicBool::new(false));
    let mut rows = Vec::new();
    if arguments.at_rest {
        for system in [System::Ext4, System::Xfs] {
            Progress::new(format!("{}: an image", system.name())).note("");
            let (classes, totals) = at_rest::look(system, &samples, disk_bytes(&samples))?;
            rows.push(row(system.name(), None, &classes, totals));
        }
    } else {
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, stop.clone()).map_err(|error| {
                Failure::new(id::NOT_AVAILABLE, "cannot wait for signals", error)
            })?;
        }
        for case in CASES.iter().filter(|case| {
            arguments.cases.is_empty() || arguments.cases.iter().any(|name| name == case.name)
        }) {
            let (classes, totals) = mounted(case, &samples, &sizes, &stop)?;
            rows.push(row(case.name, Some(case), &classes, totals));
        }
    }
    let value = json!({
        "at_rest": arguments.at_rest, "tree": arguments.tree, "bytes": arguments.bytes.0, "write_bytes": sizes, "files": samples.len(), "results": rows,
    });
    let goals = rows
        .iter()
        .flat_map(|row| goals(row, arguments.at_rest))
        .collect();
    Findings {
        name: "metadata",
        text: text(arguments, &samples, &rows),
        picture: picture(&rows),
        goals,
        value,
    }
    .publish(&meter, &arguments.report, output)
}

/// Space for the samples in any file system, and for the minimum of XFS.
fn disk_bytes(samples: &[Sample]) -> u64 {
    // One block more for each file.
    let content: u64 = samples.iter().map(|sample| sample.bytes + 4096).sum();
    (2 * content + (512 << 20)).next_multiple_of(1 << 20)
}

/// Runs one case. `stop`: end early, and leave nothing mounted.
fn mounted(
    case: &Case,
    samples: &[Sample],
    sizes: &[usize],
    stop: &AtomicBool,
) -> Result<(Classes, Totals), Failure> {
    let disk = Disk::new(disk_bytes(samples));
    let mut progress = Progress::new(case.name);
    let mounted = Mounted::new(&disk, case.system, case.options)?;
    let note = |bytes: &[u8]| {
        disk.content().classes.note_file(bytes);
        if stop.load(Ordering::Relaxed) {
            Err(std::io::Error::other("it was interrupted"))
        } else {
            Ok(())
        }
    };
    case.load.prepare(&mounted.files(), samples, &note)?;
    mounted.begin(&disk)?;
    let totals = case
        .load
        .run(&mounted.files(), samples, sizes, &note, &mut progress)?;
    mounted.end(&disk)?;
    let classes = std::mem::replace(&mut disk.content().classes, Classes::new());
    Ok((classes, totals))
}

/// A row of a case, as JSON.
fn row(name: &str, case: Option<&Case>, classes: &Classes, totals: Totals) -> Value {
    let of = CLASSES.map(|class| classes.bytes(class));
    let [_, metadata, journal] = of;
    let both = metadata.and(journal);
    let all = of
        .iter()
        .fold(Bytes::default(), |sum, bytes| sum.and(*bytes));
    let json_of = |bytes: &Bytes| {
        json!({
            "written_bytes": bytes.written, "lz4_bytes": bytes.lz4, "zstd_bytes": bytes.zstd,
            "share_ppm": ppm(bytes.written as f64 / all.written.max(1) as f64),
            "lz4_saves_ppm": ppm(bytes.saved(bytes.lz4)), "zstd_saves_ppm": ppm(bytes.saved(bytes.zstd)),
        })
    };
    let mut row = json!({
        "case": name,
        "mount_options": case.map(|case| case.options),
        "writes": totals.writes,
        "user_bytes": totals.bytes,
        "mean_write_bytes": totals.bytes / totals.writes.max(1),
        "beside_data_bytes_per_write": both.written / totals.writes.max(1),
        "fill_bytes": classes.fill_bytes(),
        "metadata_and_journal": json_of(&both),
        "all": json_of(&all),
    });
    for (class, bytes) in CLASSES.iter().zip(&of) {
        row[class.name()] = json_of(bytes);
    }
    row
}

/// The claim applied to a case. Its share applies only to durable writes of a given size, and not
/// to journals that contain the data.
fn goals(row: &Value, at_rest: bool) -> Vec<Goal> {
    let name = row["case"].as_str().unwrap_or_default();
    let number = |field: &str| {
        row["metadata_and_journal"][field]
            .as_u64()
            .map_or(f64::NAN, |value| value as f64 / 1e6)
    };
    if row["mount_options"] == "data=journal" {
        return Vec::new();
    }
    let mut goals = vec![Goal::at_least(
        format!("{name}: savings of LZ4 on metadata and journal:"),
        number("lz4_saves_ppm"),
        GOAL_SAVED,
    )];
    let is_claimed = row["mean_write_bytes"]
        .as_u64()
        .is_some_and(|bytes| CLAIMED.contains(&bytes));
    if !at_rest && is_claimed && !name.ends_with("-copy") {
        goals.push(Goal::at_least(
            format!("{name}: share of metadata and journal in all writes:"),
            number("share_ppm"),
            GOAL_SHARE,
        ));
    }
    goals
}

fn percent(value: &Value) -> String {
    value.as_u64().map_or_else(
        || "-".to_owned(),
        |ppm| format!("{}.{} %", ppm / 10_000, ppm % 10_000 / 1000),
    )
}

fn text(arguments: &MetadataArguments, samples: &[Sample], rows: &[Value]) -> String {
    let mut kinds = Table::new(&["CASE", "WHAT", "BYTES", "SHARE", "LZ4 SAVES", "ZSTD SAVES"]);
    let mut cases = Table::new(&[
        "CASE",
        "WRITES",
        "MEAN",
        "BESIDE DATA, EACH",
        "FILLS",
        "SHARE",
        "LZ4 SAVES",
        "ZSTD SAVES",
        "OF ALL, LZ4",
        "OF ALL, ZSTD",
    ]);
    for row in rows {
        let name = row["case"].as_str().unwrap_or_default();
        let size = |value: &Value| Size(value.as_u64().unwrap_or(0)).to_string();
        for class in CLASSES.map(Class::name) {
            let of = &row[class];
            let saved = |field: &str| {
                if of["written_bytes"] == 0 {
                    "-".to_owned()
                } else {
                    percent(&of[field])
                }
            };
            kinds.row([
                name.to_owned(),
                class.to_owned(),
                size(&of["written_bytes"]),
                percent(&of["share_ppm"]),
                saved("lz4_saves_ppm"),
                saved("zstd_saves_ppm"),
            ]);
        }
        let (both, all) = (&row["metadata_and_journal"], &row["all"]);
        let mut cells = vec![name.to_owned(), row["writes"].to_string()];
        cells.extend(
            [
                "mean_write_bytes",
                "beside_data_bytes_per_write",
                "fill_bytes",
            ]
            .map(|field| size(&row[field])),
        );
        cells.extend(
            ["share_ppm", "lz4_saves_ppm", "zstd_saves_ppm"].map(|field| percent(&both[field])),
        );
        cells.extend(["lz4_saves_ppm", "zstd_saves_ppm"].map(|field| percent(&all[field])));
        cases.row(cells);
    }
    let how = if arguments.at_rest {
        "Stored in images that were filled without being mounted"
    } else {
        "Written by mounted file systems"
    };
    let bytes = Size(samples.iter().map(|sample| sample.bytes).sum());
    format!(
        "{how}: {} files of {}, {bytes}; without blocks that are all 0x00 or all 0xFF (fills)\n{}\nMetadata and journal together, relative to the data of a write, and all that is written\n{}",
        samples.len(),
        arguments.tree.display(),
        kinds.render(),
        cases.render()
    )
}

fn picture(rows: &[Value]) -> String {
    let values = |row: &Value| {
        CLASSES
            .map(|class| {
                row[class.name()]["lz4_saves_ppm"]
                    .as_u64()
                    .map(|value| value as f64 / 1e4)
            })
            .to_vec()
    };
    let bars: Vec<Group> = rows
        .iter()
        .map(|row| Group {
            label: row["case"].as_str().unwrap_or_default().to_owned(),
            values: values(row),
        })
        .collect();
    groups(
        "Savings of LZ4 on file system writes, %",
        &CLASSES.map(Class::name),
        &bars,
    )
}

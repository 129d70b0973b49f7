//! `bench recovery`: time to open a pool after a kill at the worst moment.
//!
//! 1. A volume is filled and overwritten at random over several checkpoints, which gives their
//!    distance.
//! 2. After one more checkpoint it is overwritten until just before the next is due.
//! 3. Members in files: all this is done by a separate process, which is killed with SIGKILL while
//!    it writes. Members in memory: the engine is dropped without closing anything. Only the
//!    members' content remains. Files are read with `O_DIRECT`, so the page cache does not help.
//! 4. The pool is opened; each phase is timed.

use clap::Args;
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use windrow_console::context::LOCK_PATIENCE;
use windrow_console::figures::nanoseconds;
use windrow_console::output::Output;
use windrow_console::progress::Progress;
use windrow_console::table::Table;
use windrow_console::values::Size;
use windrow_device::queue::Members;
use windrow_device::{Allocation, FileMember, OpenError, OpenOptions, create_file_with_progress};
use windrow_engine::RebuildReport;
use windrow_engine::{OpenPhase, OpenReport};
use windrow_geometry::Redundancy;
use windrow_host::failure::{Failure, id};
use windrow_host::offline::{
    OpenedPool, ScratchSpec, ram_members, rebuild_scratch, reopen_scratch, scratch_pool,
};
use windrow_host::{HostOptions, Pool, daemon};
use windrow_load::session::{LoadSpec, run as run_load};
use windrow_types::BLOCK_BYTES;

/// Arguments of `bench recovery`.
#[derive(Args)]
#[command(after_help = "Examples:
  windrow-bench recovery
  windrow-bench recovery --dir /var/tmp
  windrow-bench recovery --dir /var/tmp --blocks 10000000 --redundancy 5 --room 12 --emergency -o json

The members take about 5 KiB for each block (with redundancy 6; 4.6 KiB with 0). Files are removed afterwards.")]
pub struct RecoveryArguments {
    /// Create the members as files in this folder instead of in memory.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Mapped blocks of 4 KiB.
    #[arg(long, default_value = "1000000", value_parser = windrow_console::values::within::<u64>(10_000, 4_294_967_296))]
    blocks: u64,
    /// Number of members.
    #[arg(long, default_value = "8", value_parser = windrow_console::values::within::<u64>(4, 64))]
    members: u64,
    /// Redundancy: 0, 5 or 6.
    #[arg(long, value_parser = ["0", "5", "6"], default_value = "6")]
    redundancy: String,
    /// Space of the pool above the blocks, in per cent: room for cleaning and checkpoints.
    #[arg(long, default_value = "22", value_parser = windrow_console::values::within::<u64>(5, 400))]
    room: u64,
    /// Also measure the salvage from batches alone, including its writes.
    #[arg(long)]
    emergency: bool,
    /// Internal: the process to be killed; its members are in `--dir`.
    #[arg(long, hide = true, requires = "dir")]
    until_killed: bool,
}

/// Minimum that a pool allows.
const SPARE_PER_MILLE: u16 = 30;
/// Share of the distance between two checkpoints that is written before the kill, in per cent.
const BEFORE_NEXT_PERCENT: u64 = 97;
/// Number of steps of the random load: each writes this fraction of the blocks.
const STEPS: u64 = 100;

struct Bench<'a> {
    arguments: &'a RecoveryArguments,
    spec: ScratchSpec,
    members: Members,
}

fn cannot_make(folder: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(
        id::MEMBER_OPEN,
        format!("cannot make members in {}", folder.display()),
        error,
    )
}

fn path_of(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("member-{number}"))
}

/// Creates the members in their own folder in `dir`.
fn make_files(arguments: &RecoveryArguments, dir: &Path) -> Result<tempfile::TempDir, Failure> {
    let folder = tempfile::Builder::new()
        .prefix("windrow-bench-")
        .tempdir_in(dir)
        .map_err(|error| cannot_make(dir, &error))?;
    let size = Bench::member_bytes(arguments);
    let mut progress = Progress::new("making members");
    for number in 0..arguments.members {
        let mut show = |bytes| progress.bytes(number * size + bytes, size * arguments.members);
        create_file_with_progress(
            &path_of(folder.path(), number),
            size,
            Allocation::Preallocate,
            &mut show,
        )
        .map_err(|error| cannot_make(dir, &error))?;
    }
    Ok(folder)
}

/// Runs the writing process and kills it; returns user bytes since its last checkpoint.
fn write_and_kill(arguments: &RecoveryArguments, folder: &Path) -> Result<u64, Failure> {
    let failure = |why: &dyn std::fmt::Display| {
        Failure::new(id::BENCH_LOAD, "the writing process failed", why)
    };
    let mut command = Command::new(std::env::current_exe().map_err(|error| failure(&error))?);
    command
        .args(["bench", "recovery", "--until-killed", "--dir"])
        .arg(folder)
        .args(["--redundancy", &arguments.redundancy]);
    for (flag, value) in [
        ("--blocks", arguments.blocks),
        ("--members", arguments.members),
        ("--room", arguments.room),
    ] {
        command.args([flag, &value.to_string()]);
    }
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| failure(&error))?;
    let mut line = String::new();
    let read = child
        .stdout
        .take()
        .map_or(Ok(0), |output| BufReader::new(output).read_line(&mut line));
    // SIGKILL.
    let killed = child.kill();
    let status = child.wait().map_err(|error| failure(&error))?;
    read.and(killed).map_err(|error| failure(&error))?;
    line.trim()
        .parse()
        .map_err(|_| failure(&format_args!("it ended before it was killed ({status})")))
}

/// The writing process: prepares, reports how much it wrote, and continues a little. It ends by
/// itself if the parent is gone.
fn until_killed(bench: &Bench) -> Result<u8, Failure> {
    let (pool, written, mut seed) = bench.prepare()?;
    std::thread::spawn(|| {
        _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(i32::from(windrow_console::FAILED));
    });
    windrow_console::output::print(&format!("{written}\n"));
    // Not so much that the next checkpoint comes first.
    for _ in 0..written / 100 / (64 * BLOCK_BYTES) {
        seed += 1;
        bench.load(&pool, false, 64 * BLOCK_BYTES, seed)?;
    }
    loop {
        std::thread::park();
    }
}

impl<'a> Bench<'a> {
    fn redundant(arguments: &RecoveryArguments) -> usize {
        match arguments.redundancy.as_str() {
            "0" => 0,
            "5" => 1,
            _ => 2,
        }
    }

    /// Size of each member in bytes.
    fn member_bytes(arguments: &RecoveryArguments) -> u64 {
        let data_bytes = arguments.blocks * BLOCK_BYTES * (100 + arguments.room) / 100;
        (data_bytes / (arguments.members - Self::redundant(arguments) as u64))
            .next_multiple_of(1 << 20)
            + (16 << 20)
    }

    fn of(arguments: &'a RecoveryArguments, members: Members) -> Self {
        let redundancy =
            [Redundancy::None, Redundancy::Single, Redundancy::Double][Self::redundant(arguments)];
        let mut spec = ScratchSpec {
            redundancy,
            ..ScratchSpec::default()
        };
        spec.properties.spare_per_mille = SPARE_PER_MILLE;
        Self {
            arguments,
            spec,
            members,
        }
    }

    fn in_memory(arguments: &'a RecoveryArguments) -> Result<Self, Failure> {
        Ok(Self::of(
            arguments,
            ram_members(arguments.members as usize, Self::member_bytes(arguments))?,
        ))
    }

    /// Opens the files created by [`make_files`].
    fn on_files(arguments: &'a RecoveryArguments, folder: &Path) -> Result<Self, Failure> {
        // The kernel releases a killed process's files slightly later.
        let options = OpenOptions {
            lock_patience: LOCK_PATIENCE,
            ..OpenOptions::default()
        };
        let open = |number| FileMember::open(&path_of(folder, number), &options);
        let members: Result<Members, _> = (0..arguments.members)
            .map(|number| Ok(Some(Arc::new(open(number)?) as _)))
            .collect();
        Ok(Self::of(
            arguments,
            members.map_err(|error: OpenError| cannot_make(folder, &error))?,
        ))
    }

    fn start(opened: OpenedPool) -> Result<Pool, Failure> {
        Pool::start(
            opened.engine,
            opened.members,
            opened.buffers,
            HostOptions::default(),
        )
    }

    fn load(&self, pool: &Pool, linear: bool, bytes: u64, seed: u64) -> Result<(), Failure> {
        let spec = LoadSpec {
            block_bytes: if linear {
                256 << 10
            } else {
                BLOCK_BYTES as u32
            },
            span_bytes: self.arguments.blocks * BLOCK_BYTES,
            writers: 1,
            depth: 128,
            read_percent: 0,
            linear,
            time_max: Duration::from_secs(3600),
            bytes_max: bytes,
            seed,
            random_percent: 100,
            distinct_percent: 0,
        };
        match run_load(pool, "data", &spec)?.errors {
            0 => Ok(()),
            errors => Err(Failure::new(
                id::BENCH_LOAD,
                format!("{errors} requests failed"),
                pool.stop_reason().unwrap_or_default(),
            )),
        }
    }

    /// Overwrites at random until a checkpoint completes; returns the bytes that it took, in steps.
    fn until_checkpoint(&self, pool: &Pool, seed: &mut u64) -> Result<u64, Failure> {
        let step = (self.arguments.blocks * BLOCK_BYTES / STEPS).max(BLOCK_BYTES);
        let before = daemon::report(pool)?.counters.checkpoints;
        let mut progress = Progress::new("writing until the next checkpoint");
        let mut bytes = 0;
        while daemon::report(pool)?.counters.checkpoints == before {
            *seed += 1;
            self.load(pool, false, step, *seed)?;
            bytes += step;
            progress.bytes(bytes, 0);
        }
        Ok(bytes)
    }

    /// Salvages the map from batches alone; it must show as many blocks as the pool had.
    fn emergency(&self, mapped_blocks: u64) -> Result<(RebuildReport, Duration), Failure> {
        let begin = Instant::now();
        let report = rebuild_scratch(self.members.clone(), self.spec.limits)?;
        let found: u64 = report.volumes.iter().map(|v| v.mapped_blocks).sum();
        if found != mapped_blocks || !report.losses.is_empty() {
            return Err(Failure::new(
                id::BENCH,
                "the rebuild did not find every block",
                format!("{found} of {mapped_blocks}"),
            ));
        }
        Ok((report, begin.elapsed()))
    }

    /// Fills, and writes until just before a checkpoint is due; returns the pool, user bytes
    /// written since the last one, and the last seed.
    fn prepare(&self) -> Result<(Pool, u64, u64), Failure> {
        let pool = Self::start(scratch_pool(self.members.clone(), &self.spec)?)?;
        let size = daemon::report(&pool)?.capacity.usable_bytes;
        let wanted = self.arguments.blocks * BLOCK_BYTES;
        if size < wanted {
            return Err(Failure::new(
                id::BENCH_INPUT,
                "the pool is too small for the blocks",
                format!("{} of {}", Size(size), Size(wanted)),
            )
            .remedy("raise --room"));
        }
        daemon::create_volume(&pool, "data", wanted)?;
        self.load(&pool, true, wanted.next_multiple_of(256 << 10), 1)?;
        let mut seed = 100;
        self.until_checkpoint(&pool, &mut seed)?;
        let mut distance = self.until_checkpoint(&pool, &mut seed)?;
        loop {
            let checkpoints = daemon::report(&pool)?.counters.checkpoints;
            let bytes = distance * BEFORE_NEXT_PERCENT / 100;
            seed += 1;
            self.load(&pool, false, bytes, seed)?;
            if daemon::report(&pool)?.counters.checkpoints == checkpoints {
                return Ok((pool, bytes, seed));
            }
            // It came earlier than the preceding one; the next distance counts from this one.
            self.until_checkpoint(&pool, &mut seed)?;
            distance = distance * 9 / 10;
        }
    }
}

/// Runs the benchmark.
pub fn run(arguments: &RecoveryArguments, output: &Output) -> Result<u8, Failure> {
    let (bench, written, _folder) = match &arguments.dir {
        None => {
            let bench = Bench::in_memory(arguments)?;
            // Dropped with everything in flight.
            let written = bench.prepare()?.1;
            (bench, written, None)
        }
        Some(folder) if arguments.until_killed => {
            return until_killed(&Bench::on_files(arguments, folder)?);
        }
        Some(dir) => {
            let folder = make_files(arguments, dir)?;
            let written = write_and_kill(arguments, folder.path())?;
            (
                Bench::on_files(arguments, folder.path())?,
                written,
                Some(folder),
            )
        }
    };
    let mut marks: Vec<(OpenPhase, Instant)> = Vec::new();
    let opened = reopen_scratch(bench.members.clone(), bench.spec.limits, &mut |phase| {
        marks.push((phase, Instant::now()))
    })?;
    let end = Instant::now();
    let OpenedPool {
        report, recovery, ..
    } = &opened;
    let ends = marks.iter().skip(1).map(|m| m.1).chain([end]);
    let phases: Vec<(OpenPhase, Duration)> = marks
        .iter()
        .zip(ends)
        .map(|((phase, begin), end)| (*phase, end - *begin))
        .collect();
    let mut results = results(report, written, *recovery, &phases);
    let rebuilt = if arguments.emergency {
        Some(bench.emergency(opened.engine.status().used_bytes / BLOCK_BYTES)?)
    } else {
        None
    };
    if let Some((report, time)) = &rebuilt {
        results["emergency"] = json!({ "report": report, "total_ns": time.as_nanos() as u64 });
    }
    output.result("bench-recovery", &json!({ "blocks": arguments.blocks, "redundancy": arguments.redundancy, "recovery": results }), || {
        let mut table = Table::new(&["WHAT", "FIGURE"]);
        table.row(["mapped blocks".to_owned(), arguments.blocks.to_string()]);
        table.row(["written since the checkpoint".to_owned(), Size(written).to_string()]);
        table.row(["replayed batches".to_owned(), format!("{} ({})", report.batches, Size(report.batch_bytes))]);
        table.row(["replayed entries".to_owned(), report.entries.to_string()]);
        table.row(["map pages loaded".to_owned(), report.map_pages.to_string()]);
        for (phase, time) in &phases {
            table.row([format!("{phase:?}").to_lowercase(), nanoseconds(time.as_nanos() as u64)]);
        }
        table.row(["total".to_owned(), nanoseconds(recovery.as_nanos() as u64)]);
        if let Some((report, time)) = &rebuilt {
            table.row(["emergency: batches read".to_owned(), report.batches.to_string()]);
            table.row(["emergency: entries".to_owned(), report.entries.to_string()]);
            table.row(["emergency: total".to_owned(), nanoseconds(time.as_nanos() as u64)]);
        }
        table.render()
    });
    Ok(0)
}

fn results(
    report: &OpenReport,
    written: u64,
    total: Duration,
    phases: &[(OpenPhase, Duration)],
) -> serde_json::Value {
    let phases: Vec<_> = phases
        .iter()
        .map(|(phase, time)| json!({ "phase": phase, "ns": time.as_nanos() as u64 }))
        .collect();
    json!({
        "written_since_checkpoint_bytes": written, "batches": report.batches, "batch_bytes": report.batch_bytes, "entries": report.entries,
        "map_pages": report.map_pages, "completed_batches": report.completed_batches, "phases": phases, "total_ns": total.as_nanos() as u64,
    })
}

//! Loads by fio, over NBD or on files, if it is installed.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use windrow_host::failure::{Failure, id};

/// Time beyond its own after which a load counts as stuck.
const PATIENCE: Duration = Duration::from_secs(30);

/// Result of one fio run.
#[derive(Clone, Copy, Debug, Default)]
pub struct FioResult {
    /// Requests per second.
    pub per_second: f64,
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// Median completion latency.
    pub p50_ns: u64,
    /// 99.9 % completion latency.
    pub p99_9_ns: u64,
    /// Median latency of flushes; 0 if there were none.
    pub flush_p50_ns: u64,
    /// 99 %.
    pub flush_p99_ns: u64,
    /// 99.9 %.
    pub flush_p99_9_ns: u64,
}

/// A fio load over NBD.
pub struct FioLoad<'a> {
    /// Unix socket.
    pub socket: &'a Path,
    /// Export.
    pub export: &'a str,
    /// `randwrite` ...
    pub pattern: &'a str,
    /// Requests in flight of each job.
    pub depth: u32,
    /// Jobs, each with a connection of its own.
    pub jobs: u32,
    /// A flush follows each write.
    pub flush: bool,
    /// Request size.
    pub block_bytes: u64,
    /// Bytes of the export that are used.
    pub span_bytes: u64,
    /// Each job uses its own range of this many bytes, one after the other.
    pub apart: bool,
    /// Random bytes in what is written, in per cent.
    pub random_percent: u32,
    /// Time; 0: once over the span, without a limit.
    pub seconds: u64,
}

/// A fio load on files, past the page cache, through io_uring.
pub struct FioFiles<'a> {
    /// The files; requests go to all of them at random.
    pub paths: &'a [PathBuf],
    /// `randread` ...
    pub pattern: &'a str,
    /// Requests in flight, over all files.
    pub depth: u32,
    /// Request size.
    pub block_bytes: u64,
    /// Time.
    pub seconds: u64,
}

/// True if fio with its nbd engine is installed.
pub fn fio_available() -> bool {
    fio_has_engine("nbd")
}

/// True if fio with this engine is installed.
pub fn fio_has_engine(engine: &str) -> bool {
    let engines = Command::new("fio")
        .arg("--enghelp")
        .stderr(Stdio::null())
        .output();
    engines.is_ok_and(|output| {
        String::from_utf8_lossy(&output.stdout)
            .split_whitespace()
            .any(|word| word == engine)
    })
}

/// Runs fio over NBD.
pub fn fio(load: &FioLoad<'_>) -> Result<FioResult, Failure> {
    let mut arguments = common(load.pattern, load.depth, load.block_bytes);
    arguments.push("--ioengine=nbd".to_owned());
    arguments.push(format!(
        "--uri=nbd+unix:///{}?socket={}",
        load.export,
        load.socket.display()
    ));
    arguments.push(format!("--size={}", load.span_bytes));
    arguments.extend([
        format!("--numjobs={}", load.jobs),
        "--group_reporting=1".to_owned(),
        format!("--fsync={}", u8::from(load.flush)),
    ]);
    if load.random_percent < 100 {
        arguments.push(format!(
            "--buffer_compress_percentage={}",
            100 - load.random_percent
        ));
    }
    if load.apart {
        arguments.push(format!("--offset_increment={}", load.span_bytes));
    }
    run(arguments, load.seconds)
}

/// Runs fio on files.
pub fn fio_files(load: &FioFiles<'_>) -> Result<FioResult, Failure> {
    let mut arguments = common(load.pattern, load.depth, load.block_bytes);
    // A colon ends a name.
    let names: Vec<String> = load
        .paths
        .iter()
        .map(|path| path.display().to_string().replace(':', "\\:"))
        .collect();
    arguments.extend(
        [
            "--ioengine=io_uring",
            "--direct=1",
            "--file_service_type=random",
        ]
        .map(str::to_owned),
    );
    arguments.push(format!("--filename={}", names.join(":")));
    if load.pattern.ends_with("read") {
        arguments.push("--readonly".to_owned());
    }
    run(arguments, load.seconds)
}

fn common(pattern: &str, depth: u32, block_bytes: u64) -> Vec<String> {
    let fixed = [
        "--name=load",
        "--refill_buffers=1",
        "--norandommap",
        "--randrepeat=0",
        "--output-format=json",
    ];
    let mut arguments: Vec<String> = fixed.map(str::to_owned).into();
    arguments.extend([
        format!("--rw={pattern}"),
        format!("--iodepth={depth}"),
        format!("--bs={block_bytes}"),
    ]);
    arguments
}

/// Time limit of a load without its own limit.
const UNLIMITED: Duration = Duration::from_secs(3600);

fn run(arguments: Vec<String>, seconds: u64) -> Result<FioResult, Failure> {
    let what = "cannot run fio";
    let dir = tempfile::tempdir().map_err(|error| Failure::new(id::LOCAL_FILE, what, error))?;
    let result = dir.path().join("result.json");
    let mut command = Command::new("fio");
    command
        .args(arguments)
        .arg(format!("--output={}", result.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if seconds > 0 {
        command.args(["--time_based=1".to_owned(), format!("--runtime={seconds}")]);
    }
    let mut child = command
        .spawn()
        .map_err(|error| Failure::new(id::NOT_AVAILABLE, what, error).remedy("install fio"))?;
    let limit = if seconds > 0 {
        Duration::from_secs(seconds) + PATIENCE
    } else {
        UNLIMITED
    };
    let end = Instant::now() + limit;
    while child
        .try_wait()
        .map_err(|error| Failure::new(id::BENCH_LOAD, what, error))?
        .is_none()
    {
        if Instant::now() > end {
            drop(child.kill());
            drop(child.wait());
            return Err(Failure::new(
                id::BENCH_LOAD,
                "the load failed",
                "requests were not answered in time",
            ));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let text = std::fs::read_to_string(&result).unwrap_or_default();
    let start = text.find('{').unwrap_or(0);
    let json: Value = serde_json::from_str(&text[start..]).map_err(|error| {
        Failure::new(
            id::BENCH_LOAD,
            what,
            format!("its result cannot be read: {error}"),
        )
    })?;
    let job = &json["jobs"][0];
    if job["error"].as_i64() != Some(0) {
        return Err(Failure::new(
            id::BENCH_LOAD,
            "the load failed",
            format!("fio reports error {}", job["error"]),
        ));
    }
    let sides = [&job["read"], &job["write"]];
    let sum = |field: &str| {
        sides
            .iter()
            .filter_map(|side| side[field].as_f64())
            .sum::<f64>()
    };
    let worst = |percentile: &str| {
        sides
            .iter()
            .filter_map(|side| side["clat_ns"]["percentile"][percentile].as_u64())
            .max()
            .unwrap_or(0)
    };
    let of_flushes = |percentile: &str| {
        job["sync"]["lat_ns"]["percentile"][percentile]
            .as_u64()
            .unwrap_or(0)
    };
    Ok(FioResult {
        per_second: sum("iops"),
        bytes_per_second: sum("bw_bytes"),
        p50_ns: worst("50.000000"),
        p99_9_ns: worst("99.900000"),
        flush_p50_ns: of_flushes("50.000000"),
        flush_p99_ns: of_flushes("99.000000"),
        flush_p99_9_ns: of_flushes("99.900000"),
    })
}

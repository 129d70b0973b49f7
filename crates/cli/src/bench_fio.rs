//! Loads by fio over NBD, where it is installed.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use windrow_host::failure::{Failure, id};

/// How long a load may take beyond its time before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(30);

/// One fio run.
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
}

/// A fio load over NBD.
pub struct FioLoad<'a> {
    /// Unix socket.
    pub socket: &'a Path,
    /// Export.
    pub export: &'a str,
    /// `randwrite` ...
    pub pattern: &'a str,
    /// Requests in flight.
    pub depth: u32,
    /// Request size.
    pub block_bytes: u64,
    /// Bytes of the export that are used.
    pub span_bytes: u64,
    /// Time.
    pub seconds: u64,
}

/// True if fio with its nbd engine is here.
pub fn fio_available() -> bool {
    let engines = Command::new("fio").arg("--enghelp").stderr(Stdio::null()).output();
    engines.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).split_whitespace().any(|word| word == "nbd"))
}

/// Runs fio.
pub fn fio(load: &FioLoad<'_>) -> Result<FioResult, Failure> {
    let what = "cannot run fio";
    let dir = tempfile::tempdir().map_err(|error| Failure::new(id::LOCAL_FILE, what, error))?;
    let result = dir.path().join("result.json");
    let mut child = Command::new("fio")
        .args(["--name=load", "--ioengine=nbd", "--refill_buffers=1", "--norandommap", "--randrepeat=0", "--time_based=1", "--output-format=json"])
        .arg(format!("--output={}", result.display()))
        .arg(format!("--uri=nbd+unix:///{}?socket={}", load.export, load.socket.display()))
        .arg(format!("--rw={}", load.pattern))
        .arg(format!("--iodepth={}", load.depth))
        .arg(format!("--bs={}", load.block_bytes))
        .arg(format!("--size={}", load.span_bytes))
        .arg(format!("--runtime={}", load.seconds))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| Failure::new(id::NOT_AVAILABLE, what, error).remedy("install fio"))?;
    let end = Instant::now() + Duration::from_secs(load.seconds) + PATIENCE;
    while child.try_wait().map_err(|error| Failure::new(id::BENCH, what, error))?.is_none() {
        if Instant::now() > end {
            drop(child.kill());
            drop(child.wait());
            return Err(Failure::new(id::BENCH, "the load failed", "requests were not answered in time"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let text = std::fs::read_to_string(&result).unwrap_or_default();
    let start = text.find('{').unwrap_or(0);
    let json: Value = serde_json::from_str(&text[start..]).map_err(|error| Failure::new(id::BENCH, what, format!("its result cannot be read: {error}")))?;
    let job = &json["jobs"][0];
    if job["error"].as_i64() != Some(0) {
        return Err(Failure::new(id::BENCH, "the load failed", format!("fio reports error {}", job["error"])));
    }
    let sides = [&job["read"], &job["write"]];
    let sum = |field: &str| sides.iter().filter_map(|side| side[field].as_f64()).sum::<f64>();
    let worst = |percentile: &str| sides.iter().filter_map(|side| side["clat_ns"]["percentile"][percentile].as_u64()).max().unwrap_or(0);
    Ok(FioResult { per_second: sum("iops"), bytes_per_second: sum("bw_bytes"), p50_ns: worst("50.000000"), p99_9_ns: worst("99.900000") })
}

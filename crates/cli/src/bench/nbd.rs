//! `bench nbd`: this server and `nbdkit memory` under the same fio load, in turn.

use crate::bench_fio::{FioLoad, FioResult, fio, fio_available};
use crate::commands::serve::ChildServer;
use crate::figures::{factor, median, nanoseconds};
use crate::output::Output;
use crate::table::Table;
use crate::values::Size;
use clap::Args;
use serde_json::json;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use windrow_host::failure::{Failure, id};

/// Arguments of `bench nbd`.
#[derive(Args)]
#[command(after_help = "Examples:
  windrow bench nbd
  windrow bench nbd --pattern randread --depth 1 --seconds 10 -o json")]
pub struct NbdArguments {
    /// Loads, as fio names them.
    #[arg(long, value_delimiter = ',', default_value = "randwrite,randread")]
    pattern: Vec<String>,
    /// Requests in flight.
    #[arg(long, value_delimiter = ',', default_value = "1,32")]
    depth: Vec<u32>,
    /// Request size.
    #[arg(long, default_value = "4K")]
    block: Size,
    /// Size of each of the eight members in memory; the volume and the comparison have half of the usable space.
    #[arg(long, default_value = "256M")]
    size: Size,
    /// Seconds of each measurement.
    #[arg(long, default_value = "5")]
    seconds: u64,
    /// Rounds.
    #[arg(long, default_value = "5")]
    rounds: usize,
}

struct Nbdkit(Child);

impl Nbdkit {
    fn start(socket: &Path, bytes: u64) -> Result<Self, Failure> {
        let failure = |why: String| Failure::new(id::NOT_AVAILABLE, "cannot run nbdkit", why).remedy("install nbdkit");
        let child =
            Command::new("nbdkit").args(["-f", "-U"]).arg(socket).args(["memory", &bytes.to_string()]).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = Self(child.map_err(|error| failure(error.to_string()))?);
        let end = Instant::now() + Duration::from_secs(5);
        while !socket.exists() {
            if Instant::now() > end {
                return Err(failure("it did not open its socket".to_owned()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(child)
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Runs it.
pub fn run(arguments: &NbdArguments, output: &Output) -> Result<u8, Failure> {
    if !fio_available() {
        return Err(Failure::new(id::NOT_AVAILABLE, "cannot measure NBD", "fio with its nbd engine is not installed").remedy("install fio"));
    }
    let dir = tempfile::tempdir().map_err(|error| Failure::new(id::LOCAL_FILE, "cannot make a folder for sockets", error))?;
    let server = ChildServer::start(dir.path(), "ram", |command| {
        command.arg("--ram-members").arg(arguments.size.0.to_string());
    })?;
    let span = crate::nbd_client::NbdClient::connect(server.socket(), "").map_err(|error| Failure::new(id::BENCH, "cannot connect", error))?.size_bytes();
    let other_socket = dir.path().join("nbdkit.sock");
    let _other = Nbdkit::start(&other_socket, span)?;
    // Both sides have all their memory from here on.
    for socket in [server.socket(), &other_socket] {
        let load = FioLoad { socket, export: "", pattern: "write", depth: 8, block_bytes: 256 << 10, span_bytes: span, seconds: 3 };
        fio(&load)?;
    }
    let mut table = Table::new(&["LOAD", "DEPTH", "WINDROW/S", "NBDKIT/S", "RATIO", "MEDIAN", "NBDKIT MEDIAN", "LATENCY RATIO"]);
    let mut results = Vec::new();
    for pattern in &arguments.pattern {
        for depth in &arguments.depth {
            let (mut mine, mut other) = (Vec::new(), Vec::new());
            for _ in 0..arguments.rounds {
                let load = |socket| FioLoad {
                    socket,
                    export: "",
                    pattern,
                    depth: *depth,
                    block_bytes: arguments.block.0,
                    span_bytes: span,
                    seconds: arguments.seconds,
                };
                mine.push(fio(&load(server.socket()))?);
                other.push(fio(&load(&other_socket))?);
            }
            let pick = |results: &[FioResult], value: &dyn Fn(&FioResult) -> f64| median(&results.iter().map(value).collect::<Vec<_>>());
            let ratios: Vec<f64> = mine.iter().zip(&other).map(|(mine, other)| mine.per_second / other.per_second.max(1.0)).collect();
            let latencies: Vec<f64> = mine.iter().zip(&other).map(|(mine, other)| mine.p50_ns as f64 / other.p50_ns.max(1) as f64).collect();
            let (rate, other_rate) = (pick(&mine, &|result| result.per_second), pick(&other, &|result| result.per_second));
            let (time, other_time) = (pick(&mine, &|result| result.p50_ns as f64) as u64, pick(&other, &|result| result.p50_ns as f64) as u64);
            let (ratio, latency_ratio) = ((median(&ratios) * 1e6) as u64, (median(&latencies) * 1e6) as u64);
            table.row([
                pattern.clone(),
                depth.to_string(),
                format!("{rate:.0}"),
                format!("{other_rate:.0}"),
                factor(ratio),
                nanoseconds(time),
                nanoseconds(other_time),
                factor(latency_ratio),
            ]);
            results.push(json!({
                "pattern": pattern, "depth": depth, "requests_per_second": rate as u64, "nbdkit_requests_per_second": other_rate as u64, "ratio_ppm": ratio,
                "bytes_per_second": pick(&mine, &|result| result.bytes_per_second) as u64,
                "latency_p99_9_ns": pick(&mine, &|result| result.p99_9_ns as f64) as u64, "nbdkit_latency_p99_9_ns": pick(&other, &|result| result.p99_9_ns as f64) as u64,
                "latency_p50_ns": time, "nbdkit_latency_p50_ns": other_time, "latency_ratio_ppm": latency_ratio,
            }));
        }
    }
    server.stop()?;
    output.result("bench-nbd", &json!({ "block_bytes": arguments.block.0, "span_bytes": span, "rounds": arguments.rounds, "results": results }), || {
        table.render()
    });
    Ok(0)
}

//! `trace generate`: a synthetic workload as a trace, so that other tools can run the laboratory's
//! workloads.

use super::{Granules, To, target_of, write_trace};
use crate::sim::Named;
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use windrow_console::output::Output;
use windrow_console::progress::Progress;
use windrow_console::values::Size;
use windrow_host::Failure;
use windrow_host::failure::id;
use windrow_trace::{Kind, Request};
use windrow_wa_sim::wa::operation::Operation;
use windrow_wa_sim::wa::workload::Workload;

const BLOCK: u64 = 4096;
/// Gap between two writes of a pattern, which has no times: 100 µs.
const GAP_NS: u64 = 100_000;
/// Number of requests of an endless workload.
const REQUESTS: u64 = 1_000_000;

/// Arguments of `trace generate`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  windrow-lab trace generate jesd219-enterprise enterprise.wtrc --size 8G --requests 1000000\n  \
    windrow-lab trace generate jesd219-client client.wtrc --size 2G      the whole stream, scaled to the space\n  \
    windrow-lab trace generate zipf:0.99 zipf.csv --size 1G --requests 500000 --seed 7\n  windrow-lab trace generate jetstress jetstress.iolog --size 4G --requests 200000"
)]
pub struct GenerateArguments {
    /// A workload of `windrow-lab sim run`: zipf:0.99, jesd219-enterprise, jesd219-client,
    /// journalling-fs, transaction, data, transaction+data, jetstress ...
    #[arg(value_name = "WORKLOAD", value_parser = Named::parse)]
    workload: Named,
    /// File to write; compressed if it ends in .gz.
    #[arg(value_name = "OUT")]
    out: PathBuf,
    /// Addressed space.
    #[arg(long, default_value = "1G")]
    size: Size,
    /// Requests; default a million, or the whole of a finite workload.
    #[arg(long, value_name = "N", value_parser = windrow_console::values::within::<u64>(1, 1_000_000_000_000_000))]
    requests: Option<u64>,
    /// Seed.
    #[arg(long, default_value = "1")]
    seed: u64,
    /// Format to write; default by the name: .csv, .iolog or .fio, and the compact format for all
    /// others.
    #[arg(long, value_enum)]
    to: Option<To>,
}

#[derive(Serialize)]
struct Generated {
    workload: String,
    size_bytes: u64,
    seed: u64,
    requests: u64,
    bytes: u64,
}

/// Runs the command.
pub fn run(arguments: &GenerateArguments, output: &Output) -> Result<u8, Failure> {
    let least = if let Named::Load(load) = arguments.workload {
        load.bytes_least()
    } else {
        BLOCK
    };
    if arguments.size.0 < least || arguments.size.0 / BLOCK > u64::from(u32::MAX) {
        let why = format!(
            "{} is not between {} and 16 TiB",
            arguments.size,
            Size(least)
        );
        return Err(Failure::new(
            id::USAGE,
            format!("cannot generate {}", arguments.workload.name()),
            why,
        )
        .remedy("choose another --size"));
    }
    let names = vec![arguments.workload.name()];
    let (target, gzip) = target_of(&arguments.out, arguments.to, Granules::Byte);
    let (written, bytes) = write_trace(&arguments.out, target, gzip, |writer| {
        let all = arguments.requests.or(whole(arguments)).unwrap_or(REQUESTS);
        let mut progress = Progress::new(format!("generating {}", names[0]));
        for (request, number) in requests(arguments).zip(0..) {
            writer.add(&request, &names)?;
            if number % 4096 == 0 {
                progress.steps(number, all);
            }
        }
        Ok(())
    })?;
    let generated = Generated {
        workload: names[0].clone(),
        size_bytes: arguments.size.0,
        seed: arguments.seed,
        requests: written.requests,
        bytes,
    };
    output.result("trace-generate", &generated, || {
        format!(
            "{}: {} requests of {} on {}, {}\n",
            arguments.out.display(),
            generated.requests,
            generated.workload,
            arguments.size,
            Size(bytes)
        )
    });
    Ok(0)
}

/// Number of writes of a finite workload; its trims are additional.
fn whole(arguments: &GenerateArguments) -> Option<u64> {
    if let Named::Load(load) = arguments.workload {
        load.writes(arguments.size.0)
    } else {
        None
    }
}

fn requests(arguments: &GenerateArguments) -> Box<dyn Iterator<Item = Request>> {
    let most = arguments.requests.unwrap_or(if whole(arguments).is_some() {
        u64::MAX
    } else {
        REQUESTS
    }) as usize;
    match arguments.workload {
        Named::Load(load) => Box::new(load.requests(arguments.size.0, arguments.seed).take(most)),
        Named::Pattern(pattern) => {
            let stream =
                Workload::from(pattern).stream((arguments.size.0 / BLOCK) as u32, arguments.seed);
            let asked = stream.zip(0u64..).filter_map(|(operation, number)| {
                let (kind, block, count) = match operation {
                    Operation::Write { block, count } => (Kind::Write, block, count),
                    Operation::Trim { block, count } => (Kind::Trim, block, count),
                    Operation::Pause { .. }
                    | Operation::Arrival { .. }
                    | Operation::Flush
                    | Operation::Durable => return None,
                };
                Some(Request::new(
                    kind,
                    0,
                    u64::from(block) * BLOCK,
                    u64::from(count) * BLOCK,
                    number * GAP_NS,
                ))
            });
            Box::new(asked.take(most))
        }
    }
}

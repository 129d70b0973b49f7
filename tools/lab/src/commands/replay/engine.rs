//! `replay --mode engine|both`: the engine itself under a trace.

use super::{BLOCK, Mode, ReplayArguments, cannot, filled, frame, operations};
use crate::commands::trace::load::Loaded;
use serde::Serialize;
use windrow_console::output::Output;
use windrow_console::progress::Progress;
use windrow_console::table::Table;
use windrow_console::values::Share;
use windrow_host::Failure;
use windrow_wa_sim::wa::engine::{self, EnginePlan, Outcome};

/// A run of the engine.
#[derive(Serialize)]
struct Line {
    policy: String,
    spare_ppm: u64,
    engine: Outcome,
    /// Simulated log with the same space and checkpoints.
    model: Option<f64>,
}

/// Memory of the engine and its member.
pub(super) fn memory_bytes(blocks: u32, spare: Share) -> u64 {
    engine::memory_bytes(blocks, spare.0)
}

/// Runs the engine.
pub(super) fn run(
    arguments: &ReplayArguments,
    output: &Output,
    trace: &Loaded,
) -> Result<u8, Failure> {
    let (blocks, flushes) = (trace.recorded.blocks, trace.recorded.flushes);
    let before = filled(arguments, blocks);
    let traced = trace.recorded.written * u64::from(arguments.repeat);
    let segment_rows = u32::try_from(arguments.segment.0 / BLOCK)
        .map_err(|_| cannot("a segment is smaller than 16 TiB"))?;
    let mut lines = Vec::new();
    for policy in &arguments.policy {
        for spare in &arguments.spare {
            let plan = EnginePlan {
                blocks,
                segment_rows,
                spare_per_mille: spare.0,
                steady_after: before + traced / 2,
                checkpoint_after: 0,
                flush_after: arguments.flush_every,
                journal: arguments.flush_every > 0 || flushes > 0,
            };
            let mut progress = Progress::new(format!("engine, {} at {spare}", policy.name()));
            let mut tell = |done: u64| {
                progress.steps(done, before + traced);
                true
            };
            let all = || operations(arguments, trace);
            let engine =
                engine::run(policy, &plan, all(), &mut tell).map_err(|why| cannot(&why))?;
            let model = match arguments.mode {
                Mode::Both => Some(
                    engine
                        .model(*policy, &plan, all, &mut tell)
                        .map_err(|why| cannot(&why))?,
                ),
                Mode::Model | Mode::Engine => None,
            };
            lines.push(Line {
                policy: policy.name(),
                spare_ppm: u64::from(spare.0) * 1000,
                engine,
                model,
            });
        }
    }
    let mut value = frame(arguments, trace, traced);
    value["flushes"] = flushes.into();
    value["flush_every"] = arguments.flush_every.into();
    value["engine_lines"] = serde_json::json!(lines);
    output.result("replay", &value, || {
        describe(&lines, flushes, &trace.noticed.remarks())
    });
    Ok(0)
}

fn describe(lines: &[Line], flushes: u64, remarks: &str) -> String {
    let mut table = Table::new(&[
        "POLICY",
        "SPARE",
        "CLEANING SPARE",
        "ENGINE WAF",
        "MODEL WAF",
        "STREAMS",
        "HEADERS",
        "PADDING",
        "CHECKPOINTS",
        "JOURNAL",
        "SEGMENTS",
    ]);
    for Line {
        policy,
        spare_ppm,
        engine,
        model,
    } in lines
    {
        table.row([
            policy.clone(),
            format!("{} %", *spare_ppm as f64 / 10_000.0),
            format!("{:.1} %", engine.effective_spare * 100.0),
            format!("{:.3}", engine.steady),
            model.map_or("-".into(), |model| format!("{model:.3}")),
            format!("{}+{}", engine.user_streams, engine.moved_streams),
            format!("{:.3}", engine.headers),
            format!("{:.3}", engine.padding),
            format!("{:.3}", engine.checkpoints),
            format!("{:.3}", engine.journal),
            engine.segments.to_string(),
        ]);
    }
    let flushes = if flushes > 0 {
        format!("{flushes} flushes and writes with FUA of the trace were passed on. ")
    } else {
        String::new()
    };
    format!(
        "{}\nWAF: cleaning, second half. Headers, padding, checkpoints and journal are added, as shares of user bytes. Cleaning spare: what is not alive in closed\n\
         segments; the pool is as small as the blocks allow at the spare factor, and its reserve is space that users do not fill.\n\
         {flushes}One member without parity, so one copy of the journal: a pool that may lose p members writes p + 1. Blocks are incompressible.\n{remarks}",
        table.render()
    )
}

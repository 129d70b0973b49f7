//! The same study on files: Windrow's configurations, with threads and a clock. The journal device
//! `ssd` is one more file next to the members, `memory` is in memory. On one disk a further file is
//! not a further drive, so gains in bandwidth do not show.

use super::super::case::{SPARE_PER_MILLE, fill};
use super::super::scratch::{Scratch, ScratchArguments};
use super::super::steady::window::{self, Overwrites};
use super::super::sync::stage::member_flushes;
use crate::load::mixed::{MixedSpec, run};
use std::path::Path;
use std::time::Duration;
use windrow_console::progress::Progress;
use windrow_device::queue::Members;
use windrow_host::{Failure, Pool, daemon};
use windrow_wa_sim::load::{Durability, Outcome};
use windrow_wa_sim::nand::Counters;
use windrow_wa_sim::study::{Configuration, FULL_TASKS, Pressure, Row, StudySpec, Workload};

/// Bytes of a journal device.
const DEVICE_BYTES: u64 = 320 << 20;
/// Requests in flight of the overwrites up to the steady state.
const DEPTH: usize = 64;

/// A pool of one configuration in its steady state; its files are removed when it is dropped.
struct Side {
    configuration: Configuration,
    pool: Pool,
    span_bytes: u64,
    _scratch: Scratch,
}

impl Side {
    fn make(configuration: Configuration, spec: &StudySpec, dir: &Path) -> Result<Self, Failure> {
        let scratch = Scratch::make(&ScratchArguments::of_files(
            spec.members,
            spec.member_bytes,
            dir,
        ))?;
        let devices: Members = match configuration {
            Configuration::Ssd | Configuration::Memory => {
                scratch.journal_device(DEVICE_BYTES, configuration == Configuration::Memory)?
            }
            _ => Vec::new(),
        };
        let journal_bytes = if configuration == Configuration::Padding {
            Some(0)
        } else {
            None
        };
        let pool = scratch.pool_with_journal(
            SPARE_PER_MILLE,
            100,
            journal_bytes,
            &devices,
            configuration == Configuration::Memory,
        )?;
        let usable = daemon::report(&pool)?.capacity.usable_bytes;
        let span_bytes = fill(
            &pool,
            usable / 100 * spec.live_percent,
            configuration.name(),
        )?;
        let overwrites = Overwrites {
            span_bytes,
            bytes: span_bytes,
            depth: DEPTH,
            seed: spec.seed,
        };
        window::measure(
            &pool,
            &overwrites,
            &format!("{}: overwriting", configuration.name()),
        )?;
        Ok(Self {
            configuration,
            pool,
            span_bytes,
            _scratch: scratch,
        })
    }

    fn measure(
        &self,
        spec: &StudySpec,
        workload: Workload,
        tasks: usize,
        durability: Durability,
        time: Duration,
    ) -> Result<Outcome, Failure> {
        Progress::new(format!(
            "{}: {} x {tasks}",
            self.configuration.name(),
            workload.name()
        ))
        .note("");
        let load = MixedSpec {
            tasks: workload.tasks(tasks),
            durability,
            span_bytes: self.span_bytes,
            time,
            seed: spec.seed,
        };
        let before = daemon::report(&self.pool)?;
        let mut outcome = run(&self.pool, super::super::case::EXPORT, &load)?;
        let after = daemon::report(&self.pool)?;
        let written_bytes = after.counters.written.total() - before.counters.written.total();
        outcome.devices = Counters {
            written_bytes,
            flushes: member_flushes(&after) - member_flushes(&before),
            ..Counters::default()
        };
        Ok(outcome)
    }
}

/// Runs the study, `time` for each measurement.
pub fn measure(spec: &StudySpec, dir: &Path, time: Duration) -> Result<Vec<Row>, Failure> {
    let wanted = spec
        .configurations
        .iter()
        .filter(|configuration| !configuration.is_in_place());
    let sides = wanted
        .map(|configuration| Side::make(*configuration, spec, dir))
        .collect::<Result<Vec<_>, _>>()?;
    let mut rows = Vec::new();
    let durabilities = std::iter::once(Durability::Each).chain(
        spec.flushes
            .iter()
            .map(|after| Durability::FlushAfter(*after)),
    );
    for durability in durabilities {
        for workload in &spec.workloads {
            for pressure in spec.pressures.iter().filter(|_| {
                durability == Durability::Each || spec.flush_workloads.contains(workload)
            }) {
                let tasks = if *pressure == Pressure::Full {
                    FULL_TASKS
                } else {
                    tenth(&sides, spec, *workload, time / 4)?
                };
                for side in &sides {
                    let outcome = side.measure(spec, *workload, tasks, durability, time)?;
                    rows.push(Row {
                        configuration: side.configuration,
                        workload: *workload,
                        pressure: *pressure,
                        durability,
                        tasks,
                        outcome,
                    });
                }
            }
        }
    }
    Ok(rows)
}

/// Number of tasks with which the baseline writes about a tenth of its bytes per second at full
/// load.
fn tenth(
    sides: &[Side],
    spec: &StudySpec,
    workload: Workload,
    time: Duration,
) -> Result<usize, Failure> {
    let base = sides
        .iter()
        .find(|side| side.configuration == side.configuration.baseline())
        .or(sides.first());
    let Some(base) = base else { return Ok(1) };
    let rate = |tasks: usize| {
        base.measure(spec, workload, tasks, Durability::Each, time)
            .map(|outcome| outcome.write_bytes_per_second())
    };
    let wanted = rate(FULL_TASKS)? / 10.0;
    let step = if workload == Workload::Both { 2 } else { 1 };
    let mut tasks = step;
    while tasks < FULL_TASKS && rate(tasks)? < wanted {
        tasks += step;
    }
    Ok(tasks)
}

//! A pool in the steady state of synchronous writes, and measurements of a load on it.

use super::super::case::{EXPORT, SPARE_PER_MILLE, fill};
use super::super::scratch::Scratch;
use super::super::steady::window::{self, Overwrites, since};
use super::SyncArguments;
use crate::load::sync::{Commit, SyncResult, SyncSpec, run};
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use windrow_console::progress::Progress;
use windrow_engine::JournalStatus;
use windrow_engine::WrittenBytes;
use windrow_host::report::PoolReport;
use windrow_host::{Failure, Pool, daemon};
use windrow_load::machine::cpu_seconds;

/// Requests in flight of the overwrites without flushes.
const DEPTH: usize = 128;
/// Number of writers that bring a pool to its steady state.
const SETTLERS: usize = 16;
/// Duration of each of their stretches.
const STRETCH: Duration = Duration::from_secs(1);
/// Bytes of a journal device.
const DEVICE_BYTES: u64 = 320 << 20;

/// Location of a pool's journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// On the members.
    Journal,
    /// On one more device like the members.
    Device,
    /// In one power-safe device in memory.
    Memory,
    /// No journal: flushes pad rows.
    Padding,
}

impl Kind {
    /// All kinds; the baseline comes last.
    pub const ALL: [Self; 4] = [Self::Journal, Self::Device, Self::Memory, Self::Padding];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Journal => "journal",
            Self::Device => "device",
            Self::Memory => "memory",
            Self::Padding => "padding",
        }
    }

    /// Maximum device flushes per user flush: those of its copies. A power-safe device needs none;
    /// freeing the ring of a device occasionally flushes members.
    pub fn most_flushes(self, tolerance: u64) -> f64 {
        match self {
            Self::Memory => 0.1,
            Self::Device => 1.1,
            Self::Journal | Self::Padding => (tolerance + 1) as f64,
        }
    }

    /// True if data members must get only full rows.
    pub fn is_on_devices(self) -> bool {
        matches!(self, Self::Device | Self::Memory)
    }
}

/// One of the pools.
pub struct Side {
    /// Location of its journal.
    pub kind: Kind,
    /// The running pool.
    pub pool: Pool,
    /// Live bytes.
    pub span: u64,
    /// Live blocks / payload slots of the closed segments, after the overwrites without flushes.
    pub utilisation: f64,
    /// Bytes written to members by synchronous writers before the measurements, in multiples of the
    /// remaining space.
    pub settled: f64,
    /// Random part of the synchronous writers' data, in per cent.
    pub random_percent: u32,
    /// Its members; dropped after the pool.
    pub scratch: Scratch,
}

/// Measurements of a load.
pub struct Sample {
    /// Results of the writers.
    pub load: SyncResult,
    /// Bytes to members by cause.
    pub written: WrittenBytes,
    /// Number of flushes of all members.
    pub member_flushes: u64,
    /// Status of the journal.
    pub journal: JournalStatus,
    /// Processor time of the process, load included.
    pub cpu_seconds: f64,
}

/// Number of flushes of all members so far.
pub fn member_flushes(report: &PoolReport) -> u64 {
    report
        .members
        .iter()
        .map(|member| member.counters.flushes)
        .sum()
}

impl Side {
    /// Steps 1 and 2 of the module's list.
    pub fn make(arguments: &SyncArguments, kind: Kind) -> Result<Self, Failure> {
        let name = kind.name();
        let scratch = Scratch::make(&arguments.scratch)?;
        let journal_bytes = if kind == Kind::Padding {
            Some(0)
        } else {
            arguments.journal.map(|size| size.0)
        };
        let power_safe = kind == Kind::Memory;
        let devices = if kind.is_on_devices() {
            scratch.journal_device(DEVICE_BYTES, power_safe)?
        } else {
            Vec::new()
        };
        let pool =
            scratch.pool_with_journal(SPARE_PER_MILLE, 100, journal_bytes, &devices, power_safe)?;
        let usable = daemon::report(&pool)?.capacity.usable_bytes;
        let span = fill(&pool, usable / 1000 * u64::from(arguments.full.0), name)?;
        let overwrites = Overwrites {
            span_bytes: span,
            bytes: span * arguments.overwrites as u64,
            depth: DEPTH,
            seed: 7,
        };
        let utilisation =
            window::measure(&pool, &overwrites, &format!("{name}: overwriting"))?.utilisation;
        let mut side = Self {
            kind,
            pool,
            span,
            utilisation,
            settled: 0.0,
            random_percent: arguments.random,
            scratch,
        };
        side.settle(arguments.settle)?;
        Ok(side)
    }

    /// Bytes of the members without live data.
    fn space_left(&self, report: &PoolReport) -> u64 {
        let all: u64 = report
            .members
            .iter()
            .filter(|member| !member.journal)
            .map(|member| member.size_bytes)
            .sum();
        all.saturating_sub((self.span as f64 / self.scratch.data_share()) as u64)
            .max(1)
    }

    fn settle(&mut self, time: Duration) -> Result<(), Failure> {
        let left = self.space_left(&daemon::report(&self.pool)?);
        let (mut progress, mut written, mut spent) = (
            Progress::new(format!("{}: settling", self.kind.name())),
            0,
            Duration::ZERO,
        );
        while written < left && spent < time {
            let sample = self.measure(
                SETTLERS,
                Commit::Flush(1),
                STRETCH.min(time),
                1000 + written,
            )?;
            written += sample.written.total()
                - if self.kind.is_on_devices() {
                    sample.written.journal
                } else {
                    0
                };
            spent += sample.load.elapsed;
            progress.bytes(written.min(left), left);
        }
        self.settled = written as f64 / left as f64;
        Ok(())
    }

    /// Runs a load.
    pub fn measure(
        &self,
        writers: usize,
        commit: Commit,
        time: Duration,
        seed: u64,
    ) -> Result<Sample, Failure> {
        let spec = SyncSpec {
            writers,
            commit,
            span_bytes: self.span,
            random_percent: self.random_percent,
            time,
            seed,
        };
        let (before, cpu) = (daemon::report(&self.pool)?, cpu_seconds());
        let load = run(&self.pool, EXPORT, &spec, &AtomicBool::new(false))?;
        let (after, cpu) = (daemon::report(&self.pool)?, cpu_seconds() - cpu);
        Ok(Sample {
            load,
            written: since(&after.counters.written, &before.counters.written),
            member_flushes: member_flushes(&after) - member_flushes(&before),
            journal: journal_since(&after.journal, &before.journal),
            cpu_seconds: cpu,
        })
    }
}

fn journal_since(after: &JournalStatus, before: &JournalStatus) -> JournalStatus {
    JournalStatus {
        rounds: after.rounds - before.rounds,
        records: after.records - before.records,
        record_bytes: after.record_bytes - before.record_bytes,
        member_flushes: after.member_flushes - before.member_flushes,
        log_cheaper: after.log_cheaper - before.log_cheaper,
        log_unlisted: after.log_unlisted - before.log_unlisted,
        log_full: after.log_full - before.log_full,
        both: after.both - before.both,
        ..*after
    }
}

//! `advise --live`: the load of a pool in service instead of a trace, the pool's other data, and
//! its settings.

use super::MemberOwn;
use crate::commands::plan::{SmartReport, is_device, report_of_drive};
use crate::commands::replay::cannot;
use crate::commands::trace::record::{self, RecordArguments};
use std::path::{Path, PathBuf};
use std::time::Duration;
use windrow_console::context::{self, PoolPlace};
use windrow_console::values::Share;
use windrow_host::Failure;
use windrow_host::control::Command;
use windrow_host::failure::id;
use windrow_host::report::PoolReport;
use windrow_wa_sim::wa::run::Policy;

const BLOCK: u64 = 4096;
/// Limit of simulated blocks: 128 GiB of data.
const BLOCKS_MOST: u64 = 32 << 20;

/// A pool in service, and its recorded requests.
pub(super) struct Live {
    /// Name of the pool.
    pub(super) pool: String,
    place: PoolPlace,
    /// Number of requests that were not recorded.
    pub(super) missed: u64,
    /// Duration of the recording in nanoseconds: pauses before the first request and after the last
    /// one are part of the load.
    pub(super) duration_ns: u64,
    /// The recording.
    trace: tempfile::NamedTempFile,
    report: PoolReport,
    /// Bytes held by the pool, or the volume.
    held_bytes: u64,
}

impl Live {
    /// Records `source`, a POOL or POOL/VOLUME, for `time`.
    pub(super) fn record(
        source: &str,
        control: Option<PathBuf>,
        time: Duration,
    ) -> Result<Self, Failure> {
        if source.starts_with('/') {
            let why = "it is no pool; what a device is asked for is recorded first";
            return Err(
                Failure::new(id::USAGE, format!("cannot advise on '{source}'"), why)
                    .remedy("`windrow-lab trace record DEVICE OUT`, then `windrow-lab advise OUT`"),
            );
        }
        let place = PoolPlace {
            control,
            ..PoolPlace::default()
        };
        let cannot_write = |error: std::io::Error| {
            Failure::new(id::LOCAL_FILE, "cannot write a recording", error)
                .remedy("TMPDIR names the folder for it")
        };
        let trace = tempfile::Builder::new()
            .suffix(".wtrc")
            .tempfile()
            .map_err(cannot_write)?;
        let wish = RecordArguments {
            source: source.to_owned(),
            out: trace.path().to_owned(),
            time: Some(time),
            requests: None,
            to: None,
            place: place.clone(),
        };
        let recorded = record::carry_out(&wish)?;
        if let Some(cut) = recorded.cut {
            return Err(cut);
        }
        let (pool, volume) = source
            .split_once('/')
            .map_or((source, None), |(pool, volume)| (pool, Some(volume)));
        let report = context::status(pool, &place)?;
        let held = report
            .volumes
            .iter()
            .filter(|known| volume.is_none_or(|volume| known.name == volume))
            .map(|known| known.mapped_bytes);
        Ok(Self {
            pool: pool.to_owned(),
            place,
            missed: recorded.missed,
            duration_ns: (recorded.seconds * 1e9) as u64,
            trace,
            held_bytes: held.sum(),
            report,
        })
    }

    /// Path of the recording.
    pub(super) fn path(&self) -> &Path {
        self.trace.path()
    }

    /// Number of blocks to simulate: those the pool holds, and at least the written ones.
    pub(super) fn blocks(&self, written: u32) -> Result<u32, Failure> {
        let blocks = (self.held_bytes / BLOCK).max(u64::from(written));
        u32::try_from(blocks).ok().filter(|blocks| u64::from(*blocks) <= BLOCKS_MOST).ok_or_else(|| {
            cannot(
                "it holds more than 128 GiB, which is more than is simulated; record one volume (POOL/VOLUME), or take a trace with `windrow-lab trace record`",
            )
        })
    }

    /// Data bytes of one of its segments.
    pub(super) fn segment_bytes(&self) -> u64 {
        let capacity = &self.report.capacity;
        (capacity.data_bytes / u64::from(capacity.segments.max(1))).max(BLOCK)
    }

    /// Current policy and spare factor.
    pub(super) fn setting(&self) -> Result<(Policy, Share), Failure> {
        let properties = &self.report.properties;
        let policy = super::policy_of(
            &properties.placement.to_string(),
            &properties.victim_policy.to_string(),
        )
        .map_err(|why| cannot(&why))?;
        Ok((policy, Share(properties.spare_per_mille)))
    }

    /// Remarks in addition to the prediction.
    pub(super) fn reasons(
        &self,
        now: Option<&super::Tried>,
        written: u64,
        blocks: u32,
    ) -> Vec<String> {
        let (capacity, measured) = (
            &self.report.capacity,
            self.report.amplification.cleaning_ppm as f64 / 1e6,
        );
        let measured = if measured > 0.0 {
            format!("; since its start it has measured {measured:.3}")
        } else {
            String::new()
        };
        let predicted = |now: &super::Tried| {
            let (policy, victim, spare) = (
                now.policy,
                &now.victim_policy,
                super::percent(now.spare_ppm),
            );
            format!(
                "As it is set now, {policy}+{victim} at {spare}, {:.3} are predicted for cleaning alone{measured}.",
                now.waf - now.checkpoints
            )
        };
        let mut reasons: Vec<String> = now.map(predicted).into_iter().collect();
        let filled = 100.0 * capacity.used_bytes as f64 / capacity.usable_bytes.max(1) as f64;
        if filled < 95.0 {
            reasons.push(format!(
                "The pool is filled to {filled:.0} %: all figures are those of a full one. Until it is full it does better, whatever it is set to."
            ));
        }
        if written < u64::from(blocks) {
            let share = 100.0 * written as f64 / f64::from(blocks);
            reasons.push(format!("What was recorded wrote only {share:.1} % of what is held, and is repeated: a longer recording (--for) tells more."));
        }
        if self.missed > 0 {
            reasons.push(format!(
                "{} requests were not recorded, because more came than could be taken.",
                self.missed
            ));
        }
        reasons
    }

    /// Figures reported by its members, and the reason that others report none. File members report
    /// nothing.
    pub(super) fn members(&self) -> (Vec<MemberOwn>, Option<String>) {
        let (mut found, mut why_not) = (Vec::new(), None);
        for member in self
            .report
            .members
            .iter()
            .filter(|member| is_device(Path::new(&member.path)))
        {
            match report_of_drive(&[PathBuf::from(&member.path)]) {
                Ok((health, findings)) => found.push(MemberOwn {
                    member: member.member,
                    path: member.path.clone(),
                    report: SmartReport { health, findings },
                }),
                Err(failure) => {
                    why_not = Some(format!(
                        "What drives say of themselves is not known: {}: {}.",
                        failure.what, failure.why
                    ))
                }
            }
        }
        (found, why_not)
    }

    /// Applies the advice to the pool.
    pub(super) fn apply(&self, best: &super::Tried) -> Result<(), Failure> {
        let pairs = [
            ("policy", format!("{}+{}", best.policy, best.victim_policy)),
            ("spare", format!("{}%", best.spare_ppm as f64 / 10_000.0)),
        ];
        let change = windrow_console::properties::parse(
            &pairs.map(|(name, value)| (name.to_owned(), value)),
        )?;
        context::ask(&self.pool, &self.place, Command::PoolSet(change)).map(|_| ())
    }
}

//! Latency of requests by stage: a histogram for each stage of a write, a flush and a read, of held
//! commands, and of cleaning (docs/internals/scheduling.md).
//!
//! Recording is an addition in a table; most stages count batches and rounds, not blocks. Time is
//! that of the last tick.

use serde::{Deserialize, Serialize};
use windrow_types::{Histogram, LatencySummary};

/// Stages, in the order in which they are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// A write, trim or zeroing arrived -> it has its LSN.
    WriteAdmission,
    /// First block in the open user batch -> sealed.
    WriteOpen,
    /// Sealed -> assembled by a worker.
    WriteEncode,
    /// Sent to the members -> the last column is written.
    WriteMembers,
    /// Written -> in effect.
    WriteCommit,
    /// A flush arrived -> a round began for it.
    FlushWait,
    /// A round of the journal began -> its records are written.
    JournalWrite,
    /// Records written -> their members are flushed.
    JournalFlush,
    /// A round of the log began -> its members are flushed.
    LogFlush,
    /// A user read was sent -> it returned.
    ReadMember,
    /// Read returned -> verified by a worker.
    ReadVerify,
    /// Other columns were requested -> the block is reconstructed.
    ReadRebuild,
    /// A command for a user batch was held back -> it was sent.
    HeldForeground,
    /// A command of cleaning or other background work was held back -> it was sent.
    HeldBackground,
    /// First moved block in the open batch of cleaning -> in effect.
    CleaningBatch,
}

impl Stage {
    const ALL: [Self; 15] = [
        Self::WriteAdmission,
        Self::WriteOpen,
        Self::WriteEncode,
        Self::WriteMembers,
        Self::WriteCommit,
        Self::FlushWait,
        Self::JournalWrite,
        Self::JournalFlush,
        Self::LogFlush,
        Self::ReadMember,
        Self::ReadVerify,
        Self::ReadRebuild,
        Self::HeldForeground,
        Self::HeldBackground,
        Self::CleaningBatch,
    ];

    /// Name in reports and metrics.
    const fn name(self) -> &'static str {
        match self {
            Self::WriteAdmission => "write_admission",
            Self::WriteOpen => "write_open",
            Self::WriteEncode => "write_encode",
            Self::WriteMembers => "write_members",
            Self::WriteCommit => "write_commit",
            Self::FlushWait => "flush_wait",
            Self::JournalWrite => "journal_write",
            Self::JournalFlush => "journal_flush",
            Self::LogFlush => "log_flush",
            Self::ReadMember => "read_member",
            Self::ReadVerify => "read_verify",
            Self::ReadRebuild => "read_rebuild",
            Self::HeldForeground => "held_foreground",
            Self::HeldBackground => "held_background",
            Self::CleaningBatch => "cleaning_batch",
        }
    }
}

/// Times of one stage since start.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StageTimes {
    /// Its name (docs/internals/scheduling.md).
    pub stage: String,
    /// Times.
    #[serde(flatten)]
    pub times: LatencySummary,
}

/// Histograms of all stages.
#[derive(Debug, Default)]
pub(crate) struct Stages([Histogram; Stage::ALL.len()]);

impl Stages {
    /// Records a stage that lasted from `since_ns` to `now_ns`.
    #[inline]
    pub(crate) fn record(&mut self, stage: Stage, since_ns: u64, now_ns: u64) {
        self.0[stage as usize].record(now_ns.saturating_sub(since_ns));
    }

    /// Times of all stages, also of those without a count.
    pub(crate) fn report(&self) -> Vec<StageTimes> {
        Stage::ALL
            .iter()
            .map(|stage| StageTimes {
                stage: stage.name().to_owned(),
                times: self.0[*stage as usize].summary(),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stage_has_its_own_histogram_and_name() {
        let mut stages = Stages::default();
        for (number, stage) in (1u64..).zip(Stage::ALL) {
            assert_eq!(
                stage as u64 + 1,
                number,
                "the list is in the order of the histograms"
            );
            (0..number).for_each(|_| stages.record(stage, 1000, 1000 + number));
        }
        stages.record(Stage::WriteOpen, 5, 3);
        let report = stages.report();
        for (number, shown) in (1u64..).zip(&report) {
            assert_eq!(
                (shown.times.count, shown.times.max_ns),
                (number + u64::from(number == 2), number),
                "{}",
                shown.stage
            );
        }
        let mut names: Vec<&str> = report.iter().map(|shown| &*shown.stage).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), report.len());
    }
}

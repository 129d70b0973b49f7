//! Where the time of requests goes: a histogram for each stage of a write, a flush, a read, of what
//! is held back, and of cleaning (docs/internals/scheduling.md).
//!
//! Recording is an addition in a table; most stages count batches and rounds, not blocks. Time is
//! that of the last tick.

use serde::{Deserialize, Serialize};
use windrow_types::{Histogram, LatencySummary};

/// The stages, in the order in which they are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// A write, trim or zeroing arrived -> it has its order.
    WriteAdmission,
    /// First block in the open batch of users -> sealed.
    WriteOpen,
    /// Sealed -> gathered by a worker.
    WriteEncode,
    /// Handed to the members -> the last column is written.
    WriteMembers,
    /// Written -> in effect.
    WriteCommit,
    /// A flush arrived -> a round began that is for it.
    FlushWait,
    /// A round of the journal began -> its records are written.
    JournalWrite,
    /// Then -> their members are flushed.
    JournalFlush,
    /// A round of the log began -> its members are flushed.
    LogFlush,
    /// A read of users was sent -> it came back.
    ReadMember,
    /// Then -> verified by a worker.
    ReadVerify,
    /// Other columns were asked -> the block is there.
    ReadRebuild,
    /// A command for a batch of users was held back -> it went.
    HeldForeground,
    /// A command of cleaning or the like was held back -> it went.
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

    /// Its name in reports and metrics.
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

/// What one stage took since start.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StageTimes {
    /// Its name (docs/internals/scheduling.md).
    pub stage: String,
    /// Its times.
    #[serde(flatten)]
    pub times: LatencySummary,
}

/// The histograms.
#[derive(Debug, Default)]
pub(crate) struct Stages([Histogram; Stage::ALL.len()]);

impl Stages {
    /// A stage lasted from then until now.
    #[inline]
    pub(crate) fn record(&mut self, stage: Stage, since_ns: u64, now_ns: u64) {
        self.0[stage as usize].record(now_ns.saturating_sub(since_ns));
    }

    /// All of them, those in which nothing was counted too.
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

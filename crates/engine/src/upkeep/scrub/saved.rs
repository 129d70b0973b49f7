//! A scrub in the counters of checkpoints.

use super::*;

impl Scrub {
    /// State from the counters of a checkpoint. A running scrub resumes at the start of its
    /// segment.
    pub(crate) fn restored(saved: &[u64]) -> Self {
        let mut counters = saved.iter().copied();
        let mut next = || counters.next().unwrap_or(0);
        let state = match next() {
            1 => ScrubState::Running,
            2 => ScrubState::Paused,
            3 => ScrubState::Completed,
            4 => ScrubState::Stopped,
            _ => ScrubState::None,
        };
        let segment = next().min(u64::from(u32::MAX)) as u32;
        let active_ns = next();
        let sums = ScrubStatus {
            state,
            started_unix_s: next(),
            bytes_per_second: next(),
            batches: next(),
            read_bytes: next(),
            wrong_blocks: next(),
            moved_blocks: next(),
            lost_blocks: next(),
            damaged_batches: next(),
            ended_unix_s: next(),
            completed_unix_s: next(),
            unmoved_blocks: next(),
            ..ScrubStatus::default()
        };
        Self {
            sums,
            segment,
            settled: segment,
            active_ns,
            ..Self::default()
        }
    }

    /// Counters for a checkpoint; their order is part of the format.
    pub(crate) fn saved(&self, now_ns: u64) -> [u64; 14] {
        let s = &self.sums;
        let state = match s.state {
            ScrubState::None => 0,
            ScrubState::Running => 1,
            ScrubState::Paused => 2,
            ScrubState::Completed => 3,
            ScrubState::Stopped => 4,
        };
        let segment = u64::from(self.settled);
        let sums = [
            s.batches,
            s.read_bytes,
            s.wrong_blocks,
            s.moved_blocks,
            s.lost_blocks,
            s.damaged_batches,
        ];
        let [batches, read_bytes, wrong, moved, lost, damaged] = sums;
        let (active_ns, [ended, completed]) =
            (self.active_ns(now_ns), [s.ended_unix_s, s.completed_unix_s]);
        [
            state,
            segment,
            active_ns,
            s.started_unix_s,
            s.bytes_per_second,
            batches,
            read_bytes,
            wrong,
            moved,
            lost,
            damaged,
            ended,
            completed,
            s.unmoved_blocks,
        ]
    }
}

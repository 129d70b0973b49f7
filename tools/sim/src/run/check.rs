//! Second opinion on the members' content: `windrow-inspect`, which knows the format and nothing of
//! the engine.

use super::Run;
use crate::violation::{Violation, ensure};
use windrow_inspect::{CheckOptions, CheckReport, Finding, FindingKind, Severity, check};
use windrow_io::MemberIo;
use windrow_types::{BLOCK_BYTES, Lsn, MemberId};

/// Number of further findings shown with the failing one.
const SHOWN: usize = 8;

impl Run {
    /// Checks the current members. Within redundancy everything must be recoverable. Returns the
    /// report unless some reads fail randomly.
    pub(super) fn check_members(&mut self, deep: bool) -> Result<Option<CheckReport>, Violation> {
        if self.reads_are_fickle() {
            return Ok(None);
        }
        let options = CheckOptions {
            verify_payload: deep,
            verify_parity: deep,
            ..CheckOptions::default()
        };
        let report = check(&mut self.world.members, &options, &mut |_| ());
        ensure!(
            report.failure.is_none(),
            Check,
            "no check: {:?}",
            report.failure
        );
        let worst = report
            .findings
            .list
            .iter()
            .find(|finding| finding.severity == Severity::Error);
        let beside = || {
            report
                .findings
                .list
                .iter()
                .filter(|finding| finding.segment == worst.and_then(|worst| worst.segment))
                .map(|finding| &finding.message)
        };
        ensure!(
            worst.is_none() || self.quorum_is_lost(),
            Check,
            "unrecoverable: {worst:?}; also {:?}",
            beside().take(SHOWN).collect::<Vec<_>>()
        );
        let promised = self.world.model.promised();
        ensure!(
            report.recovery_lsn.0 >= promised,
            Check,
            "the check finds recovery point {}, durable was {promised}",
            report.recovery_lsn
        );
        self.checks += 1;
        Ok(Some(report))
    }

    /// True if reads fail that would not fail again: the next reader may see more than this one.
    pub(super) fn reads_are_fickle(&mut self) -> bool {
        let count = self.world.members.member_count() as u8;
        (0..count)
            .map(MemberId)
            .any(|member| self.world.members.ailment_mut(member).failing_reads > 0)
    }

    /// Predicts the recovery point of the next start by a check.
    pub(super) fn predict(&mut self) -> Result<Option<CheckReport>, Violation> {
        if self.rng.chance(300) && !self.devices.discards {
            self.check_members(false)
        } else {
            Ok(None)
        }
    }

    /// Compares the recovery point of the start with the prediction.
    pub(super) fn compare_predicted(
        &self,
        predicted: Option<CheckReport>,
        accepted: Lsn,
    ) -> Result<(), Violation> {
        let Some(report) = predicted.filter(|report| report.recovery_lsn != accepted) else {
            return Ok(());
        };
        let findings: Vec<&str> = report
            .findings
            .list
            .iter()
            .map(|finding| finding.message.as_str())
            .collect();
        let text = format!(
            "P is {accepted}, a check found {}; its streams {:?}, its findings {findings:?}",
            report.recovery_lsn, report.streams
        );
        Err(Violation::new(crate::Broken::Check, text))
    }

    /// After a clean shutdown with all repairs done: volumes as the clients know them, nothing
    /// wrong without a fault that explains it.
    pub(super) fn check_at_the_end(&mut self) -> Result<(), Violation> {
        let Some(report) = self.check_members(true)? else {
            return Ok(());
        };
        // Only scrubs rewrite a damaged label.
        let has_old_label = |member| self.devices.is_one(member);
        let is_astray = |finding: &Finding| {
            finding.kind == FindingKind::LabelWrong && finding.member.is_some_and(has_old_label)
        };
        let first = report
            .findings
            .list
            .iter()
            .find(|finding| finding.severity > Severity::Note && !is_astray(finding));
        ensure!(
            first.is_none() || !self.world.failing_members.is_empty(),
            Check,
            "all members are well, but: {first:?}"
        );
        let shown = report.volumes.iter().filter(|volume| !volume.deleting);
        let shown: Vec<_> = shown
            .map(|volume| {
                (
                    volume.id,
                    volume.name.clone(),
                    self.world.spread.known_bytes(volume.size_bytes),
                    volume.mapped_blocks,
                )
            })
            .collect();
        let volumes = self.world.model.volumes().iter();
        let known: Vec<_> = volumes
            .map(|(id, volume)| {
                (
                    *id,
                    volume.name.clone(),
                    volume.size_bytes(),
                    self.world.model.blocks_with_data(*id),
                )
            })
            .collect();
        ensure!(
            shown == known,
            Check,
            "(id, name, bytes, mapped blocks): the check finds {shown:?}, clients know {known:?}"
        );
        let live = known.iter().map(|volume| volume.3).sum::<u64>();
        // Shared content is stored once.
        let found = report.live_blocks - report.contents + report.references;
        ensure!(
            found >= live,
            Check,
            "{} live blocks, clients wrote {live} ({} bytes)",
            report.live_blocks,
            live * BLOCK_BYTES
        );
        Ok(())
    }
}

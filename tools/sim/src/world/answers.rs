//! Answers and notices of the engine, checked by the model.

use super::{Commanded, World};
use crate::members::Ailment;
use crate::model::VolumeChange;
use crate::violation::{Broken, Violation, ensure};
use std::collections::BTreeSet;
use windrow_engine::{ControlCompletion, ControlError, ControlReply, Notice, PoolStatus, Sharing};
use windrow_io::{Completion, MemberIo, Reply};
use windrow_types::{BLOCK_BYTES, VolumeId};

impl World {
    pub(super) fn completed(&mut self, completion: &Completion) -> Result<(), Violation> {
        self.trace.add(completion.id.0);
        self.trace.tell(|| {
            let result = completion.result.as_ref().map(|_| "done");
            let lsns = completion.lsns.map(|(first, last)| (first.0, last.0));
            format!(
                "{} request {}: {result:?} {lsns:?}",
                self.now_ns, completion.id.0
            )
        });
        let (engine, before) = (
            self.engine.as_ref(),
            (self.usable_bytes, self.map_bytes, self.used_bytes),
        );
        let is_changing = self.model.is_changing_properties();
        let full = |bytes: u64| {
            engine.is_none_or(|engine| is_full(&engine.status(), before, is_changing, bytes))
        };
        self.model.complete(completion, full)?;
        match (self.reading_back.remove(&completion.id), &completion.result) {
            (Some((volume, first)), Ok(Reply::Data(slices))) => {
                let mut bytes = Vec::new();
                slices
                    .iter()
                    .for_each(|slice| bytes.extend_from_slice(slice));
                self.model.settle(volume, first, &bytes);
            }
            (Some((volume, first)), Err(_)) => _ = self.unreadable.insert((volume, first)),
            (Some((volume, first)), Ok(Reply::Extents(extents))) => {
                self.model.settle_status(volume, first, extents)
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn control_completed(
        &mut self,
        completion: &ControlCompletion,
    ) -> Result<(), Violation> {
        self.trace.tell(|| {
            format!(
                "{} control {}: {:?}",
                self.now_ns, completion.id.0, completion.result
            )
        });
        match self.changes.remove(&completion.id) {
            None => Err(Violation::new(
                Broken::Protocol,
                format!("control command {} is not in flight", completion.id.0),
            )),
            // As if the power had gone before an answer.
            Some(_) if self.model.lenient && completion.result.is_err() => Ok(()),
            Some(Commanded::Volume(change)) => {
                let kind = match change {
                    VolumeChange::Create(..) => "creation of volumes",
                    VolumeChange::Resize(..) => "resizing of volumes",
                    VolumeChange::Delete(_) => "deletion of volumes",
                };
                self.tries.note(kind, completion.result.is_ok());
                let newest = self
                    .engine
                    .as_ref()
                    .map_or(0, |engine| engine.status().lsn.0);
                self.model.note_change(newest);
                self.model.complete_change(&change, &completion.result)
            }
            Some(Commanded::Properties) => {
                self.tries
                    .note("change of properties", completion.result.is_ok());
                self.model
                    .complete_properties(completion.id, &completion.result)
            }
            Some(Commanded::Setting(volume, kind)) => {
                self.tries.note(kind, completion.result.is_ok());
                self.model
                    .complete_setting(completion.id, volume, &completion.result)
            }
            Some(Commanded::Scrub)
                if matches!(
                    completion.result,
                    Ok(_) | Err(ControlError::Invalid(_) | ControlError::Stopped)
                ) =>
            {
                Ok(())
            }
            Some(Commanded::Member | Commanded::Settle) => {
                self.answers
                    .insert(completion.id, completion.result.clone());
                Ok(())
            }
            Some(Commanded::Other) => match &completion.result {
                Ok(ControlReply::Sharing(sharing)) => self.counted(sharing),
                Ok(_) => Ok(()),
                Err(error) => Err(Violation::new(
                    Broken::Error,
                    format!("a control command failed: {error:?}"),
                )),
            },
            Some(Commanded::Scrub) => Err(Violation::new(
                Broken::Error,
                format!("a control command failed: {:?}", completion.result),
            )),
        }
    }

    /// Checks that unshared blocks do not exceed the total; a count of one moment has each volume
    /// once.
    fn counted(&self, sharing: &Sharing) -> Result<(), Violation> {
        let Some(engine) = &self.engine else {
            return Ok(());
        };
        let ids: BTreeSet<VolumeId> = sharing.volumes.iter().map(|volume| volume.id).collect();
        let sum: u64 = sharing
            .volumes
            .iter()
            .map(|volume| volume.exclusive_bytes)
            .sum();
        let most = engine.status().plan.data_bytes;
        ensure!(
            ids.len() == sharing.volumes.len(),
            Protocol,
            "a volume is counted twice: {:?}",
            sharing.volumes
        );
        ensure!(
            !sharing.exact || sum <= most,
            Protocol,
            "volumes keep {sum} bytes for themselves, the pool has {most}"
        );
        Ok(())
    }

    pub(super) fn noticed(&mut self, notice: &Notice) -> Result<(), Violation> {
        self.trace
            .tell(|| format!("{} notice: {notice:?}", self.now_ns));
        if let Notice::Repaired { volume, lba, .. } = notice {
            self.repaired.insert((*volume, self.spread.known(*lba)));
        }
        self.labels_written += u64::from(matches!(notice, Notice::LabelWritten { .. }));
        match notice {
            // A read-only start cannot complete what a crash left incomplete.
            Notice::Repaired { .. } if self.read_only => {}
            Notice::Repaired { member, .. } if self.flaky.contains(member) => {}
            Notice::LabelWritten { member }
                if self.flaky.contains(member) || self.journal_devices().contains(member) => {}
            Notice::MemberFailed { member, .. }
            | Notice::Repaired { member, .. }
            | Notice::LabelWritten { member } => {
                ensure!(
                    self.failing_members.contains(member),
                    Error,
                    "member {member} is healthy, but: {notice:?}"
                );
            }
            Notice::Unrecoverable {
                volume,
                lba,
                blocks,
            } if self.model.lenient => {
                let spread = self.spread;
                self.told_lost
                    .extend((*lba..lba + blocks).map(|lba| (*volume, spread.known(lba))));
            }
            Notice::UnrecoverableReference { .. } | Notice::UnnamedReferences { .. }
                if self.model.lenient => {}
            Notice::Unrecoverable { .. }
            | Notice::UnrecoverableReference { .. }
            | Notice::UnnamedReferences { .. }
            | Notice::Stopped { .. } => {
                ensure!(
                    self.stopping || self.model.lenient,
                    Error,
                    "within redundancy, but: {notice:?}"
                );
            }
            Notice::SpareFailed { member } => {
                let is_well = self.members.is_present(*member)
                    && *self.members.ailment_mut(*member) == Ailment::default();
                ensure!(
                    !is_well,
                    Error,
                    "spare {member} is healthy, but: {notice:?}"
                );
            }
            Notice::Exhausted { .. } => ensure!(
                self.model.lenient,
                Error,
                "within redundancy, but: {notice:?}"
            ),
            Notice::StartNote { .. } => {}
            Notice::MemberHangs { member, .. } => {
                ensure!(
                    self.has_hung(*member),
                    Error,
                    "member {member} answers in time, but: {notice:?}"
                );
            }
            Notice::MemberAnswers { .. } => {}
            Notice::ReplacementReady { .. }
            | Notice::ReplacementEnded { .. }
            | Notice::Replaced { .. } => {}
            Notice::Filling { .. }
            | Notice::MapFull { .. }
            | Notice::ScrubEnded { .. }
            | Notice::MemberSlow { .. }
            | Notice::MemberNotSlow { .. } => {}
            Notice::MemberRebuilding { .. }
            | Notice::MemberRebuilt { .. }
            | Notice::MemberOffline { .. }
            | Notice::MemberMissing { .. } => {}
            Notice::Grown { .. }
            | Notice::Leaving { .. }
            | Notice::Reshaped
            | Notice::Overcommitted { .. } => {}
            Notice::Removed { member, .. } => self.gone.push(*member),
        }
        Ok(())
    }
}

/// True if `bytes` more may be refused. `before`: usable bytes, map limit and used bytes a moment
/// ago.
pub(super) fn is_full(
    status: &PoolStatus,
    before: (u64, u64, u64),
    is_changing: bool,
    bytes: u64,
) -> bool {
    let (usable_before, map_before, used_before) = before;
    // Each block of a request may need a page of the map, and one more leads to it.
    let map_is_full = status.map_pages + bytes / BLOCK_BYTES + 1 > status.map_pages_max;
    let map_is_full = map_is_full
        || status.map_bytes + bytes + BLOCK_BYTES > status.limits.map_bytes.min(map_before);
    let beyond = status
        .dedup
        .index_pages
        .saturating_sub(status.plan.index_pages)
        * BLOCK_BYTES;
    let least = status
        .plan
        .usable_bytes
        .min(usable_before)
        .saturating_sub(beyond);
    // While the reduction mode changes both limits apply.
    let by_blocks =
        is_changing && status.reduction_use.blocks_bytes + status.pending_bytes + bytes > least;
    map_is_full
        || by_blocks
        || status.used_bytes.max(used_before) + status.pending_bytes + bytes > least
}

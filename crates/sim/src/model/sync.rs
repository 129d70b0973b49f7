//! What flushes of a volume promise: `sync=standard`, `always`, `disabled`.
//!
//! A change that is not answered may be in force or not, and one that comes while a request is under way may have come before it or after: then nothing is taken for promised.

use super::{InFlight, Model};
use windrow_engine::{ControlError, ControlId, ControlReply};
use windrow_layout::checkpoint::SyncMode;
use windrow_units::VolumeId;

/// What may be set on a volume.
#[derive(Clone, Debug)]
pub(super) struct Syncing {
    /// What was answered last, or found at the last start, and what was asked and is not answered.
    may_be: Vec<(ControlId, SyncMode)>,
    /// Counts what was asked, answered or found.
    changes: u64,
}

impl Default for Syncing {
    fn default() -> Self {
        Self { may_be: vec![(ControlId(0), SyncMode::Standard)], changes: 0 }
    }
}

impl Syncing {
    /// What is set, if that is known, and since which change.
    pub(super) fn known(&self) -> Option<(SyncMode, u64)> {
        if let [(_, mode)] = self.may_be[..] { Some((mode, self.changes)) } else { None }
    }

    /// What was answered may be lost with a journal that is given up.
    pub(super) fn lose(&mut self) {
        self.may_be = [SyncMode::Standard, SyncMode::Always, SyncMode::Disabled].map(|mode| (ControlId(0), mode)).to_vec();
        self.changes += 1;
    }

    /// True if a start may show this.
    pub(super) fn explains(&self, mode: SyncMode) -> bool {
        self.may_be.iter().any(|(_, other)| *other == mode)
    }

    /// A start shows this.
    pub(super) fn found(&mut self, mode: SyncMode) {
        (self.may_be, self.changes) = (vec![(ControlId(0), mode)], self.changes + 1);
    }
}

impl Model {
    /// What flushes do is to be changed.
    pub fn submit_sync(&mut self, id: ControlId, volume: VolumeId, mode: SyncMode) {
        self.unusual_sync |= mode != SyncMode::Standard;
        if let Some(volume) = self.volumes.get_mut(&volume) {
            volume.sync.may_be.push((id, mode));
            volume.sync.changes += 1;
        }
    }

    /// That is answered. False for an answer that is none.
    pub fn complete_sync(&mut self, id: ControlId, volume: VolumeId, result: &Result<ControlReply, ControlError>) -> bool {
        let Some(syncing) = self.volumes.get_mut(&volume).map(|volume| &mut volume.sync) else { return true };
        let Some(at) = syncing.may_be.iter().position(|(other, _)| *other == id) else { return true };
        syncing.changes += 1;
        match result {
            // One that was asked before and is not answered has waited, and comes into force later.
            Ok(ControlReply::Done) => syncing.may_be[0] = syncing.may_be.remove(at),
            Err(ControlError::NoVolume | ControlError::Stopped) => {}
            _ => return false,
        }
        true
    }

    /// True if a flush of a user is one, and nothing else is.
    pub fn counts_flushes(&self) -> bool {
        !self.unusual_sync
    }

    /// True if flushes of a volume are known to make everything durable.
    pub fn heeds_flushes(&self, volume: VolumeId) -> bool {
        let known = self.volumes.get(&volume).and_then(|volume| volume.sync.known());
        known.is_some_and(|(mode, _)| mode != SyncMode::Disabled)
    }

    /// What is set on the volume of a request, if it was the same all the time.
    pub(super) fn sync_during(&self, request: &InFlight) -> Option<SyncMode> {
        let known = self.volumes.get(&request.volume)?.sync.known();
        known.filter(|_| known == request.sync).map(|(mode, _)| mode)
    }
}

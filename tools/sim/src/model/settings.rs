//! Settings of volumes: sync mode (`sync=standard`, `always`, `disabled`), compression,
//! deduplication.
//!
//! An unanswered change may be in effect or not, and a concurrent change may precede or follow a
//! request: nothing counts as durable then.

use super::{InFlight, Model};
use crate::violation::{Violation, ensure};
use windrow_engine::{ControlError, ControlId, ControlReply, VolumeStatus};
use windrow_format::checkpoint::{Compression, Dedup, SyncMode};
use windrow_types::VolumeId;

/// Possible values of a setting.
#[derive(Clone, Debug)]
pub(super) struct Setting<T> {
    /// The last answered value (or that of the last start), and the unanswered requests.
    may_be: Vec<(ControlId, T)>,
    /// Number of requests, answers and starts.
    changes: u64,
}

impl<T: Default> Default for Setting<T> {
    fn default() -> Self {
        Self {
            may_be: vec![(ControlId(0), T::default())],
            changes: 0,
        }
    }
}

impl<T: Copy + PartialEq> Setting<T> {
    /// Current value, if known, and the change that set it.
    fn known(&self) -> Option<(T, u64)> {
        if let [(_, mode)] = self.may_be[..] {
            Some((mode, self.changes))
        } else {
            None
        }
    }

    fn ask(&mut self, id: ControlId, wanted: T) {
        self.may_be.push((id, wanted));
        self.changes += 1;
    }

    /// True if it was requested.
    fn answer(&mut self, id: ControlId, result: &Result<ControlReply, ControlError>) -> bool {
        let Some(at) = self.may_be.iter().position(|(other, _)| *other == id) else {
            return false;
        };
        self.changes += 1;
        match result {
            // An earlier unanswered request has waited, and takes effect later.
            Ok(_) => self.may_be[0] = self.may_be.remove(at),
            // A stopping pool may have recorded it.
            Err(ControlError::Stopped) => {}
            Err(_) => _ = self.may_be.remove(at),
        }
        true
    }

    /// An answered change may be lost with a discarded journal.
    fn lose(&mut self, all: &[T]) {
        self.may_be = all.iter().map(|mode| (ControlId(0), *mode)).collect();
        self.changes += 1;
    }

    fn explains(&self, mode: T) -> bool {
        self.may_be.iter().any(|(_, other)| *other == mode)
    }

    fn found(&mut self, mode: T) {
        (self.may_be, self.changes) = (vec![(ControlId(0), mode)], self.changes + 1);
    }
}

/// All settings of a volume.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    sync: Setting<SyncMode>,
    compression: Setting<Compression>,
    dedup: Setting<Dedup>,
}

impl Settings {
    /// Answered changes may be lost with a discarded journal.
    pub(super) fn lose(&mut self) {
        self.sync
            .lose(&[SyncMode::Standard, SyncMode::Always, SyncMode::Disabled]);
        self.compression.lose(&Compression::ALL);
        self.dedup.lose(&[Dedup::Off, Dedup::Verify, Dedup::Hash]);
    }

    /// Sync mode, if known, and the change that set it.
    pub(super) fn known_sync(&self) -> Option<(SyncMode, u64)> {
        self.sync.known()
    }

    /// Checks that the shown values were set, or requested and not answered.
    pub(super) fn check(&self, shown: &VolumeStatus) -> Result<(), Violation> {
        let known = (
            self.sync.explains(shown.sync),
            self.compression.explains(shown.compression),
            self.dedup.explains(shown.dedup),
        );
        let settings = (shown.sync, shown.compression, shown.dedup);
        ensure!(
            known == (true, true, true),
            Durability,
            "volume {} has (sync, compression, dedup) {settings:?}, not of {self:?}",
            shown.id
        );
        Ok(())
    }

    /// Records the values shown by a start.
    pub(super) fn found(&mut self, shown: &VolumeStatus) {
        self.sync.found(shown.sync);
        self.compression.found(shown.compression);
        self.dedup.found(shown.dedup);
    }
}

/// A requested setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// Effect of flushes.
    Sync(SyncMode),
    /// Compression of blocks.
    Compression(Compression),
    /// Deduplication of equal blocks.
    Dedup(Dedup),
}

impl Model {
    /// Records a requested setting.
    pub fn submit_setting(&mut self, id: ControlId, volume: VolumeId, wanted: Wanted) {
        self.unusual_sync |= matches!(wanted, Wanted::Sync(mode) if mode != SyncMode::Standard);
        let Some(settings) = self
            .volumes
            .get_mut(&volume)
            .map(|volume| &mut volume.settings)
        else {
            return;
        };
        match wanted {
            Wanted::Sync(mode) => settings.sync.ask(id, mode),
            Wanted::Compression(compression) => settings.compression.ask(id, compression),
            Wanted::Dedup(dedup) => settings.dedup.ask(id, dedup),
        }
    }

    /// Records the answer.
    pub fn complete_setting(
        &mut self,
        id: ControlId,
        volume: VolumeId,
        result: &Result<ControlReply, ControlError>,
    ) -> Result<(), Violation> {
        let Some(settings) = self
            .volumes
            .get_mut(&volume)
            .map(|volume| &mut volume.settings)
        else {
            return Ok(());
        };
        // (Only a request to share blocks can be refused because there is no room.)
        let shares = settings.dedup.answer(id, result);
        let legal = match result {
            Ok(_) | Err(ControlError::NoVolume | ControlError::Stopped) => true,
            Err(ControlError::NoSpace(_)) => shares,
            Err(_) => false,
        };
        ensure!(
            legal,
            Error,
            "a setting of volume {volume} was answered with {result:?}"
        );
        _ = settings.sync.answer(id, result) || settings.compression.answer(id, result);
        Ok(())
    }

    /// Checks that at rest the settings are shown as they were set.
    pub fn check_settings(&self, shown: &VolumeStatus) -> Result<(), Violation> {
        self.volumes
            .get(&shown.id)
            .map_or(Ok(()), |volume| volume.settings.check(shown))
    }

    /// True if each user flush is counted as a flush, and nothing else is.
    pub fn counts_flushes(&self) -> bool {
        !self.unusual_sync
    }

    /// True if flushes of a volume certainly make everything durable.
    pub fn heeds_flushes(&self, volume: VolumeId) -> bool {
        let known = self
            .volumes
            .get(&volume)
            .and_then(|volume| volume.settings.known_sync());
        known.is_some_and(|(mode, _)| mode != SyncMode::Disabled)
    }

    /// Sync mode during a request, if it was constant.
    pub(super) fn sync_during(&self, request: &InFlight) -> Option<SyncMode> {
        let known = self.volumes.get(&request.volume)?.settings.known_sync();
        known
            .filter(|_| known == request.sync)
            .map(|(mode, _)| mode)
    }
}

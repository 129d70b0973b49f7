//! What is set on a volume, and what may be: what its flushes promise (`sync=standard`, `always`,
//! `disabled`), compression, deduplication.
//!
//! A change that is not answered may be in force or not, and one that comes while a request is
//! under way may have come before it or after: then nothing is taken for promised.

use super::{InFlight, Model};
use crate::violation::{Violation, ensure};
use windrow_engine::{ControlError, ControlId, ControlReply, VolumeStatus};
use windrow_format::checkpoint::{Compression, Dedup, SyncMode};
use windrow_types::VolumeId;

/// What may be set.
#[derive(Clone, Debug)]
pub(super) struct Setting<T> {
    /// What was answered last, or found at the last start, and what was asked and is not answered.
    may_be: Vec<(ControlId, T)>,
    /// Counts what was asked, answered or found.
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
    /// What is set, if that is known, and since which change.
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

    /// True if it was asked for.
    fn answer(&mut self, id: ControlId, result: &Result<ControlReply, ControlError>) -> bool {
        let Some(at) = self.may_be.iter().position(|(other, _)| *other == id) else {
            return false;
        };
        self.changes += 1;
        match result {
            // One that was asked before and is not answered has waited, and comes into force later.
            Ok(_) => self.may_be[0] = self.may_be.remove(at),
            // A pool that stops may have it on record.
            Err(ControlError::Stopped) => {}
            Err(_) => _ = self.may_be.remove(at),
        }
        true
    }

    /// What was answered may be lost with a journal that is given up.
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

/// All that may be set on a volume.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    sync: Setting<SyncMode>,
    compression: Setting<Compression>,
    dedup: Setting<Dedup>,
}

impl Settings {
    /// What was answered may be lost with a journal that is given up.
    pub(super) fn lose(&mut self) {
        self.sync
            .lose(&[SyncMode::Standard, SyncMode::Always, SyncMode::Disabled]);
        self.compression.lose(&Compression::ALL);
        self.dedup.lose(&[Dedup::Off, Dedup::Verify, Dedup::Hash]);
    }

    /// What its flushes promise, if that is known, and since which change.
    pub(super) fn known_sync(&self) -> Option<(SyncMode, u64)> {
        self.sync.known()
    }

    /// What is shown must be what was set, or asked for and not answered.
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

    /// A start shows this.
    pub(super) fn found(&mut self, shown: &VolumeStatus) {
        self.sync.found(shown.sync);
        self.compression.found(shown.compression);
        self.dedup.found(shown.dedup);
    }
}

/// A setting to be changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// What flushes promise.
    Sync(SyncMode),
    /// How blocks are stored.
    Compression(Compression),
    /// Whether equal blocks are stored once.
    Dedup(Dedup),
}

impl Model {
    /// A setting of a volume is to be changed.
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

    /// That is answered.
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
        // (Only a pool that is to share has no room for it.)
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

    /// At rest the settings are shown as they were set.
    pub fn check_settings(&self, shown: &VolumeStatus) -> Result<(), Violation> {
        self.volumes
            .get(&shown.id)
            .map_or(Ok(()), |volume| volume.settings.check(shown))
    }

    /// True if a flush of a user is one, and nothing else is.
    pub fn counts_flushes(&self) -> bool {
        !self.unusual_sync
    }

    /// True if flushes of a volume are known to make everything durable.
    pub fn heeds_flushes(&self, volume: VolumeId) -> bool {
        let known = self
            .volumes
            .get(&volume)
            .and_then(|volume| volume.settings.known_sync());
        known.is_some_and(|(mode, _)| mode != SyncMode::Disabled)
    }

    /// What is set on the volume of a request, if it was the same all the time.
    pub(super) fn sync_during(&self, request: &InFlight) -> Option<SyncMode> {
        let known = self.volumes.get(&request.volume)?.settings.known_sync();
        known
            .filter(|_| known == request.sync)
            .map(|(mode, _)| mode)
    }
}

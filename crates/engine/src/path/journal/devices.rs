//! Journal devices that are added or removed while the pool is running.
//!
//! 1. A spare becomes a journal device: from then on it is a member in rebuild. It gets a copy of
//!    every new record, and is complete when the log has everything that was admitted before
//!    (`upkeep/rebuild.rs`); nothing is copied. The first device brings its own ring, which is used
//!    once the device is complete.
//! 2. A device that was taken out is dismissed when the log has all that it made durable. The ring
//!    goes with the last device.
//! 3. Both happen between two rounds, and are recorded in the superblock before they are answered.
//!
//! There are as many copies as devices, so every device holds every chunk at the same offset.
//! Chunks therefore keep their offsets when devices join or leave.

use super::{Journal, Ring};
use crate::api::ControlError;
use crate::path::{Durability, Paths};
use crate::store::Store;
use crate::store::member::NOT_POWER_SAFE;
use crate::store::member::slot_state::Change;
use crate::store::plan::{journal_devices, journal_devices_rule};
use crate::store::pool::Pool;
use windrow_format::checkpoint::{SyncMode, VolumeState};
use windrow_format::superblock::Features;
use windrow_geometry::JournalArea;
use windrow_types::{Lsn, MemberId, Uuid};

impl Journal {
    /// True if no round is in progress. Otherwise the request waits, and no further round begins
    /// meanwhile.
    pub(crate) fn journal_may_change(&self) -> bool {
        self.round.is_none()
    }
}

impl Durability {
    /// Makes a spare a journal device.
    pub(crate) fn add_journal_device(
        &mut self,
        pool: &mut Pool,
        member: MemberId,
        granule: u32,
        power_safe: bool,
    ) -> Result<(), ControlError> {
        let refused = |why: String| Err(ControlError::Member { member, why });
        let size = pool.superblock.members[member.index()].size_bytes;
        let area = match pool.superblock.journals.external {
            None => journal_devices(1 << member.0, size, granule, power_safe),
            Some(area) if granule > area.granule => {
                return refused(format!(
                    "it is written in units of {granule} bytes, records of this journal in units of {}",
                    area.granule
                ));
            }
            Some(area) if area.power_safe && !power_safe => {
                return refused(NOT_POWER_SAFE.into());
            }
            Some(area) if size < area.end() => {
                return refused(format!(
                    "the device has {size} bytes, a copy of the journal needs {}",
                    area.end()
                ));
            }
            Some(area) => {
                let (members, copies) = (area.members | 1 << member.0, area.copies + 1);
                journal_devices(members, u64::MAX, granule, power_safe).map(|_| JournalArea {
                    members,
                    copies,
                    ..area
                })
            }
        };
        let Some(area) = area else {
            return refused(journal_devices_rule());
        };
        pool.change_member(member, Change::Serve)
            .map_err(|why| ControlError::Member {
                member,
                why: why.into(),
            })?;
        self.set_journal_devices(pool, Some(area));
        Ok(())
    }

    /// True if the log has everything durable and no round is in progress, where the internal
    /// journal is about to move. If not, it requests that from the log.
    pub(crate) fn journal_has_left(&mut self) -> bool {
        if !self.journal.moves {
            return true;
        }
        self.journal.by_log = self.journal.by_log.max(self.journal.durable_lsn);
        self.journal.round.is_none() && self.lsns.durable() >= self.journal.durable_lsn
    }

    pub(crate) fn set_journal_devices(&mut self, pool: &mut Pool, area: Option<JournalArea>) {
        let had = pool.superblock.journals.external.is_some();
        pool.superblock.journals.external = area;
        let any = pool.superblock.journals.areas().next().is_some();
        let flags = &mut pool.superblock.features.incompatible;
        *flags = if any {
            *flags | Features::JOURNAL
        } else {
            *flags & !Features::JOURNAL
        };
        if !any {
            pool.superblock.journals.durable_lsn = Lsn(0);
        }
        let last = self.lsns.last();
        self.journal.set_devices(had, area, last);
    }
}

impl Paths {
    /// Dismisses a journal device that is out of use.
    pub(crate) fn dismiss_journal_device(
        &mut self,
        member: MemberId,
        store: &mut Store,
    ) -> Result<(), ControlError> {
        let refused = |why: String| Err(ControlError::Member { member, why });
        self.choose_journal(store);
        if self.journal_needs(member, store) {
            return refused(
                "the log does not have all that is durable on this journal device; try again"
                    .into(),
            );
        }
        let left = store
            .pool
            .superblock
            .journals
            .external
            .map(|area| JournalArea {
                members: area.members & !(1 << member.0),
                copies: area.copies - 1,
                ..area
            });
        let left = left.filter(|area| area.members != 0);
        let unusual = store
            .volumes
            .iter()
            .find(|v| v.record.state == VolumeState::Active && v.record.sync != SyncMode::Standard);
        if let Some(volume) =
            unusual.filter(|_| left.is_none() && store.pool.superblock.journals.internal.is_none())
        {
            // Without a journal the format has no operation that resets it.
            return refused(format!(
                "it is the last journal, and sync modes need one: set volume '{}' to sync=standard first",
                volume.record.name
            ));
        }
        store
            .pool
            .change_member(member, Change::Dismiss)
            .map_err(|why| ControlError::Member {
                member,
                why: why.into(),
            })?;
        store.pool.superblock.members[member.index()].uuid = Uuid::default();
        self.durability.set_journal_devices(&mut store.pool, left);
        Ok(())
    }
}

impl Journal {
    /// Moves the internal journal to this area; its content is not needed any more.
    pub(crate) fn take_moved(&mut self, area: JournalArea) {
        if let Some(ring) = self
            .rings
            .last_mut()
            .filter(|_| std::mem::take(&mut self.moves))
        {
            *ring = Ring::new(area, Vec::new(), area.chunks - 1);
        }
    }

    /// `had`: the first ring is that of devices. `last`: newest LSN admitted.
    fn set_devices(&mut self, had: bool, area: Option<JournalArea>, last: Lsn) {
        match area {
            Some(area) if had => self.rings[0].area = area,
            Some(area) => {
                if self.rings.is_empty() {
                    // Entries admitted while the backlog was not kept go to the log.
                    self.by_log = last;
                }
                self.rings
                    .insert(0, Ring::new(area, Vec::new(), area.chunks - 1));
                self.at += 1;
            }
            None if had => {
                self.rings.remove(0);
                self.at = self.at.saturating_sub(1);
                if self.rings.is_empty() {
                    self.by_log = Lsn(u64::MAX);
                    self.backlog.clear();
                }
            }
            None => {}
        }
    }
}

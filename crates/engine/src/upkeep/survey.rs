//! Survey: a background walk over the maps of all volumes that finds the references to shared
//! content.
//!
//! It answers two questions. *Which bytes are exclusive to each volume?*
//! ([`crate::api::Control::CountSharing`]): content with references from one volume only goes with
//! that volume, other content stays. *Which blocks are lost with unreadable content?* Only the maps
//! have the answers: an id has a number of references, not their sources.
//!
//! 1. A walk visits the pages of the map arena, a limited number in each engine step
//!    ([`SURVEY_PAGES_PER_STEP`]). A table records the source of the references to each content: no
//!    volume, one, or several.
//! 2. Then it visits the contents: those with references from one volume only are exclusive to it.
//! 3. The table has room for [`SURVEY_IDS`] contents. A pool with more takes several rounds, each
//!    over all pages.
//! 4. **Exactness.** Maps change during the walk. The result is marked exact if no reference was
//!    added or removed from its begin to its end, and no content changed its length. (Cleaning may
//!    compress content better, never worse, so an equal sum implies equal lengths.)
//! 5. The same pass names lost content: a notice for each block that refers to it. Each content is
//!    named once in a start, and once more by each scrub.

use crate::api::{ControlError, ControlId, ControlReply, Notice, Sharing, VolumeSharing};
use crate::base::limits::{SURVEY_IDS, SURVEY_NAMED_MAX, SURVEY_PAGES_PER_STEP};
use crate::path::Core;
use crate::path::damage::LostContents;
use crate::store::events::Outbox;
use crate::store::map::PageSlot;
use crate::store::pending::BlockKey;
use crate::upkeep::{Integrity, Upkeep};
use std::collections::BTreeMap;
use windrow_format::checkpoint::MAP_PAGE_ENTRIES;
use windrow_types::{ADDRESS_UNIT, Lba, VolumeId};

/// Content without references, as far as the walk has come.
const UNOWNED: u32 = 0;
/// Content with references from more than one volume.
const SEVERAL: u32 = u32::MAX;

/// Requests, and the walk in progress.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// Requests for a count that has not begun.
    asked: Vec<ControlId>,
    walk: Option<Walk>,
}

#[derive(Debug)]
struct Walk {
    stage: Stage,
    /// Lost contents, searched for in the first round.
    lost: BTreeMap<u32, u32>,
    /// Number of blocks that refer to them.
    references: u64,
    count: Option<Count>,
}

/// Position of a walk: the next number.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Slot of the arena.
    Pages(u32),
    /// Content id.
    Contents(u64),
}

/// A count of the exclusive bytes of volumes.
#[derive(Debug)]
struct Count {
    askers: Vec<ControlId>,
    /// First content of this round.
    base: u64,
    /// End of the contents when the count began.
    end: u64,
    /// For each content of the round, the source of its references.
    owners: Vec<u32>,
    /// Units of content with references from this volume only.
    exclusive: BTreeMap<VolumeId, u64>,
    /// Value of [`Upkeep::sharing_mark`] at the start.
    before: (u64, u64),
}

impl Survey {
    /// True if nothing is requested or in progress.
    pub(crate) fn is_idle(&self, lost: &LostContents) -> bool {
        self.walk.is_none() && self.asked.is_empty() && !lost.has_unnamed()
    }

    /// Ends all requests, and returns those waiting for an answer.
    pub(crate) fn give_up(&mut self) -> impl Iterator<Item = ControlId> + use<> {
        let begun = self
            .walk
            .take()
            .and_then(|walk| walk.count)
            .map(|count| count.askers)
            .unwrap_or_default();
        begun.into_iter().chain(std::mem::take(&mut self.asked))
    }
}

impl Integrity {
    /// Requests a count of the exclusive bytes of each volume.
    pub(crate) fn count_sharing(&mut self, id: ControlId) {
        self.survey.asked.push(id);
    }
}

impl Upkeep {
    /// Continues a walk, or begins a requested one.
    pub(crate) fn survey_step(&mut self, core: &mut Core, out: &mut Outbox) {
        if self.integrity.survey.is_idle(&core.paths.damage.contents) {
            return;
        }
        let Some(mut walk) = self
            .integrity
            .survey
            .walk
            .take()
            .or_else(|| self.begin_survey(core, out))
        else {
            return;
        };
        let ended = match walk.stage {
            Stage::Pages(at) => self.survey_pages(&mut walk, at, core, out),
            Stage::Contents(at) => self.survey_contents(&mut walk, at, core),
        };
        if !ended {
            self.integrity.survey.walk = Some(walk);
        } else if let Some(count) = walk.count {
            let reply = self.sharing(&count, core);
            count
                .askers
                .iter()
                .for_each(|id| out.answer_command(*id, Ok(ControlReply::Sharing(reply.clone()))));
        }
    }

    fn begin_survey(&mut self, core: &mut Core, out: &mut Outbox) -> Option<Walk> {
        let (askers, lost) = (
            std::mem::take(&mut self.integrity.survey.asked),
            core.paths.damage.contents.take_unnamed(),
        );
        let mut owners = Vec::new();
        let end = core.store.volumes.ids.end();
        let ids = end.min(SURVEY_IDS) as usize;
        if !askers.is_empty() && owners.try_reserve_exact(ids).is_err() {
            let error = ControlError::NoSpace("there is no memory to count shared content".into());
            askers
                .into_iter()
                .for_each(|id| out.answer_command(id, Err(error.clone())));
            return None;
        }
        owners.resize(if askers.is_empty() { 0 } else { ids }, UNOWNED);
        let before = self.sharing_mark(core);
        let count = (!askers.is_empty()).then_some(Count {
            askers,
            base: 0,
            end,
            owners,
            exclusive: BTreeMap::new(),
            before,
        });
        Some(Walk {
            stage: Stage::Pages(0),
            lost,
            references: 0,
            count,
        })
    }

    /// Mark that changes with each reference added or removed, and with each content that changes
    /// its length.
    fn sharing_mark(&self, core: &Core) -> (u64, u64) {
        let units = core
            .store
            .volumes
            .get(VolumeId::SHARED)
            .map_or(0, |v| v.map.stored_units);
        (core.store.volumes.arena.reference_changes(), units)
    }

    /// Visits the next pages. True if the walk has ended.
    fn survey_pages(
        &mut self,
        walk: &mut Walk,
        at: u32,
        core: &mut Core,
        out: &mut Outbox,
    ) -> bool {
        let end = core.store.volumes.arena.slots();
        let until = end.min(at.saturating_add(SURVEY_PAGES_PER_STEP));
        for slot in at..until {
            self.survey_page(walk, PageSlot(slot), core, out);
        }
        if until == end && walk.references > SURVEY_NAMED_MAX {
            out.notices.push(Notice::UnnamedReferences {
                more: walk.references - SURVEY_NAMED_MAX,
            });
            walk.references = 0;
        }
        walk.stage = if until < end {
            Stage::Pages(until)
        } else {
            Stage::Contents(walk.count.as_ref().map_or(0, |count| count.base))
        };
        until == end && walk.count.is_none()
    }

    fn survey_page(&mut self, walk: &mut Walk, slot: PageSlot, core: &mut Core, out: &mut Outbox) {
        let Some(meta) = core
            .store
            .volumes
            .arena
            .meta(slot)
            .filter(|meta| meta.volume != VolumeId::SHARED)
        else {
            return;
        };
        let (volume, first) = (meta.volume, u64::from(meta.index) * MAP_PAGE_ENTRIES as u64);
        let mut lost = Vec::new();
        for (lba, entry) in (first..).zip(core.store.volumes.arena.page(slot)) {
            let Some(id) = entry.shared_id() else {
                continue;
            };
            if let Some(count) = &mut walk.count
                && let Some(owner) =
                    id.0.checked_sub(count.base)
                        .and_then(|at| count.owners.get_mut(at as usize))
            {
                *owner = if matches!(*owner, UNOWNED) || *owner == volume.0 {
                    volume.0
                } else {
                    SEVERAL
                };
            }
            if walk.lost.get(&(id.0 as u32)).is_some_and(|incarnation| {
                *incarnation == core.store.volumes.ids.incarnation(id.0 as u32)
            }) {
                walk.references += 1;
                if walk.references <= SURVEY_NAMED_MAX {
                    out.notices.push(Notice::UnrecoverableReference {
                        volume,
                        lba,
                        content: id.0,
                    });
                }
                self.integrity.scrub.note_reference(volume, lba, id);
                lost.push(Lba(lba));
            }
        }
        // The notices above name them.
        for lba in lost {
            core.paths
                .note_reference_lost(BlockKey::new(volume, lba), &mut core.store);
        }
    }

    /// Visits the next contents. True if the walk has ended.
    fn survey_contents(&mut self, walk: &mut Walk, at: u64, core: &mut Core) -> bool {
        walk.lost.clear();
        let Some(count) = &mut walk.count else {
            return true;
        };
        let Some(shared) = core.store.volumes.get(VolumeId::SHARED) else {
            return true;
        };
        let end = count.base + count.owners.len() as u64;
        let until = end.min(at + u64::from(SURVEY_PAGES_PER_STEP) * MAP_PAGE_ENTRIES as u64);
        for id in at..until {
            let owner = count.owners[(id - count.base) as usize];
            if !matches!(owner, UNOWNED | SEVERAL) {
                let units = shared
                    .map
                    .get(&core.store.volumes.arena, Lba(id))
                    .length_units();
                *count.exclusive.entry(VolumeId(owner)).or_default() += u64::from(units);
            }
        }
        if until < end {
            walk.stage = Stage::Contents(until);
            return false;
        }
        // Later contents would make the sums inconsistent, but the count must end.
        let left = count.end.saturating_sub(end);
        if left == 0 {
            return true;
        }
        count.base = end;
        count.owners.truncate(left.min(SURVEY_IDS) as usize);
        count.owners.fill(UNOWNED);
        walk.stage = Stage::Pages(0);
        false
    }

    fn sharing(&self, count: &Count, core: &Core) -> Sharing {
        let bytes = |units: u64| units * ADDRESS_UNIT as u64;
        let volumes = core.store.volumes.iter().map(|v| {
            let exclusive_bytes =
                bytes(v.map.stored_units + count.exclusive.get(&v.record.id).copied().unwrap_or(0));
            VolumeSharing {
                id: v.record.id,
                exclusive_bytes,
            }
        });
        Sharing {
            volumes: volumes.collect(),
            exact: self.sharing_mark(core) == count.before,
        }
    }
}

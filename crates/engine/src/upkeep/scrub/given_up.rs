//! Search for user blocks that were lost before: a salvage declared them lost, or they refer to
//! missing shared content. They have no address, so no batch leads a scrub to them. At the end of
//! the pass all map pages are searched, a limited number at a time. Each scrub lists the same
//! blocks until they are written or trimmed.

use crate::api::VolumeBlock;
use crate::base::limits::{SCRUB_LOST_MAX, SURVEY_PAGES_PER_STEP};
use crate::path::Core;
use crate::store::events::Outbox;
use crate::store::map::PageSlot;
use crate::store::pending::BlockKey;
use crate::upkeep::Upkeep;
use windrow_format::checkpoint::{MAP_PAGE_ENTRIES, VolumeState};
use windrow_types::{Lba, VolumeId};

/// Progress of a search. It counts when it is complete: a restart begins it again.
#[derive(Debug, Default)]
pub(super) struct GivenUp {
    page: u32,
    blocks: u64,
    first: Vec<VolumeBlock>,
}

impl Upkeep {
    /// Continues the search; true when all pages were searched, and the blocks found are listed and
    /// counted.
    pub(super) fn search_given_up(&mut self, core: &mut Core, out: &mut Outbox) -> bool {
        let (page, end) = (
            self.integrity.scrub.given_up.page,
            core.store.volumes.arena.slots(),
        );
        let until = end.min(page.saturating_add(SURVEY_PAGES_PER_STEP));
        (page..until).for_each(|slot| self.look_for_given_up(PageSlot(slot), core));
        self.integrity.scrub.given_up.page = until;
        if until < end {
            return false;
        }
        let GivenUp { blocks, first, .. } = std::mem::take(&mut self.integrity.scrub.given_up);
        first.iter().for_each(|block| {
            core.paths.note_lost(
                BlockKey::new(block.volume, Lba(block.lba)),
                &mut core.store,
                out,
            )
        });
        core.paths.damage.note_unlisted(blocks - first.len() as u64);
        let sums = &mut self.integrity.scrub.sums;
        sums.lost_blocks += blocks;
        let room = SCRUB_LOST_MAX.saturating_sub(sums.lost.len());
        sums.lost.extend(first.into_iter().take(room));
        true
    }

    fn look_for_given_up(&mut self, slot: PageSlot, core: &mut Core) {
        let Some(meta) = core.store.volumes.arena.meta(slot) else {
            return;
        };
        let (volume, first) = (meta.volume, u64::from(meta.index) * MAP_PAGE_ENTRIES as u64);
        let is_users = ![VolumeId::SHARED, VolumeId::INDEX].contains(&volume);
        if !is_users
            || !core
                .store
                .volumes
                .get(volume)
                .is_some_and(|v| v.record.state == VolumeState::Active)
        {
            return;
        }
        let page = (first..).map(Lba).zip(core.store.volumes.arena.page(slot));
        let found: Vec<Lba> = page
            .filter(|(_, entry)| core.store.volumes.is_given_up(**entry))
            .map(|(lba, _)| lba)
            .collect();
        for lba in found {
            // A trim may not be applied yet, and a write may be in flight.
            core.paths.settle_range(volume, lba, &mut core.store);
            let entry = core.store.volumes.look_up(volume, lba);
            if !core.store.volumes.is_given_up(entry)
                || core
                    .paths
                    .log
                    .pending
                    .get(BlockKey::new(volume, lba))
                    .is_some()
            {
                continue;
            }
            let given_up = &mut self.integrity.scrub.given_up;
            given_up.blocks += 1;
            if given_up.first.len() < SCRUB_LOST_MAX {
                given_up.first.push(VolumeBlock { volume, lba: lba.0 });
            }
        }
    }
}

//! Victims with wrong tables. Three passes find the live data of a segment, each slower and more
//! reliable than the one before:
//!
//! 1. *Ends*: the two ends of each batch as they are read (`upkeep/clean.rs`), checked against the
//!    map: a stale batch, left where a member lost a write, has other checksums than the map. Where
//!    the ends do not verify, or are stale, the whole batch is verified (`store/verify.rs`). It
//!    tries one header after the other that its columns can give, until one does not contradict the
//!    map. (Reconstructing the two ends alone is not enough: a member with wrong columns takes part
//!    in reconstructing the end that it does not hold.)
//! 2. *Whole*: all batches are verified. A stale batch with other blocks at the same addresses
//!    contradicts nothing. It shows by the data that is still live when all moves have committed.
//! 3. *Map*: all map pages are searched for addresses in the segment, and each of these blocks is
//!    read on its own, as a user read does. Blocks unreadable now are lost, and are reported by
//!    volume and block. (The birth of a block is unknown then, see `upkeep/clean/repair.rs`.)
//!
//! If segments are quarantined already and space is short, a *trial* comes first. It reads all live
//! data of the victim as in the first pass and moves nothing. If something is unreadable, the
//! victim is quarantined as it is, which costs no space. (Without the trial its moves may take a
//! segment, and it gives none back.) When enough is free again it is a candidate again. Data that a
//! later pass can read is not counted as unreadable in a trial.
//!
//! So a victim ends in one of two ways: it is dead, or the rest of it is unreadable. Then it is
//! quarantined. It is cleaned again only after a start, when a member is complete again, or when a
//! scrub could read everything. It is also taken when some of it has died and nothing else is left
//! to gain.
//!
//! Quarantined victims take space and give none back. That counts as a backlog, which other victims
//! reduce by the space they free. While the backlog is large and space is short
//! ([`Upkeep::is_futile`]), victims are begun one at a time, and none that might take what a
//! checkpoint needs.

use crate::base::limits::{MAP_PAGES_PER_STEP, MAP_READS};
use crate::base::piece::address_in;
use crate::path::Core;
use crate::path::cleaning::*;
use crate::store::events::Outbox;
use crate::store::jobs::Move;
use crate::store::map::PageSlot;
use crate::store::pending::BlockKey;
use crate::store::verify::Verified;
use crate::upkeep::Upkeep;
use crate::upkeep::verification::VerifyGoal;
use windrow_format::batch::{DecodedBatch, Entry};
use windrow_format::checkpoint::MAP_PAGE_ENTRIES;
use windrow_types::{Address, Lba, Lsn, SegmentId, VolumeId};

impl Upkeep {
    /// True if victims may only take space: some have left data behind, others have not made up for
    /// that, and space is short.
    pub(crate) fn is_futile(&self, core: &Core) -> bool {
        // If no segment is quarantined any more, all may be readable again.
        core.paths.space.cleaner.deficit >= FUTILE_DEFICIT
            && core.store.segments.quarantined_for_damage_count() > 0
            && !self.has_room_for_repairs(core)
    }

    /// Makes quarantined segments candidates again: unreadable data may be readable now.
    pub(crate) fn recheck_quarantined(&mut self, core: &mut Core) {
        if core.store.segments.quarantined_for_damage_count() > 0 {
            core.store.segments.look_again();
            self.reshape.look_again();
            // Work that was futile may not be any more.
            (
                core.paths.space.cleaner.gains,
                core.paths.space.cleaner.rest,
            ) = Default::default();
            core.paths.space.cleaner.again = true;
        }
    }

    /// Begins to verify the next batch whose ends are wrong.
    pub(super) fn verify_victims(&mut self, core: &mut Core, out: &mut Outbox) {
        while !core.paths.space.cleaner.verifying
            && core.paths.space.cleaner.ready.len() < READY_BOUND
        {
            let wrong = |(at, victim): (u32, &mut Victim)| {
                let ends = victim.ends.iter().find(|ends| ends.wrong)?;
                Some((at, victim.segment, ends.row, ends.rows))
            };
            let Some((at, segment, row, rows)) =
                core.paths.space.cleaner.victims.iter_mut().find_map(wrong)
            else {
                return;
            };
            core.paths.space.cleaner.verifying = true;
            if self.verify(
                VerifyGoal::Clean { victim: at },
                segment,
                row,
                rows,
                core,
                out,
            ) == 0
            {
                // No column is available.
                self.clean_verified(at, row, None, core);
            }
        }
    }

    /// Handles a verified batch of a victim.
    pub(crate) fn clean_verified(
        &mut self,
        at: u32,
        row: u32,
        found: Option<Verified>,
        core: &mut Core,
    ) {
        core.paths.space.cleaner.verifying = false;
        let is_trial = core
            .paths
            .space
            .cleaner
            .victims
            .get(at)
            .is_some_and(Victim::is_tried);
        let missed = match found {
            // The map may still lead to all live data in it.
            None => !is_trial,
            Some(found) if is_trial => self.misses_something(at, row, &found, core),
            Some(found) => {
                self.move_verified(at, row, &found, core);
                !found.lost.is_empty()
            }
        };
        let Some(victim) = core.paths.space.cleaner.victims.get_mut(at) else {
            return;
        };
        victim.missed |= missed;
        victim.ends.retain(|ends| ends.row != row);
    }

    /// True if live data of a batch is unreadable. (Index pages are rewritten elsewhere.)
    fn misses_something(&mut self, at: u32, row: u32, found: &Verified, core: &mut Core) -> bool {
        let Some(segment) = core
            .paths
            .space
            .cleaner
            .victims
            .get(at)
            .map(|victim| victim.segment)
        else {
            return false;
        };
        self.live_blocks(segment, row, &found.batch, core)
            .iter()
            .any(|live| live.key.volume() != VolumeId::INDEX && found.is_lost(&live.payload))
    }

    /// Moves the live blocks of a batch that is in memory already.
    fn move_verified(&mut self, at: u32, row: u32, found: &Verified, core: &mut Core) {
        let Some(segment) = core
            .paths
            .space
            .cleaner
            .victims
            .get(at)
            .map(|victim| victim.segment)
        else {
            return;
        };
        for Found {
            key,
            birth,
            from,
            payload,
        } in self.live_blocks(segment, row, &found.batch, core)
        {
            if found.is_lost(&payload) {
                continue;
            }
            let payload = core.store.memory.verified_payload(found, &payload);
            core.paths.space.cleaner.ready.push_back((
                at,
                Move {
                    key,
                    birth,
                    from,
                    checksum: None,
                    payload,
                    stream: None,
                },
            ));
            if let Some(victim) = core.paths.space.cleaner.victims.get_mut(at) {
                victim.ready += 1;
            }
        }
    }

    /// Live blocks of a batch. The next checkpoint writes pages in use elsewhere.
    fn live_blocks(
        &mut self,
        segment: SegmentId,
        row: u32,
        batch: &DecodedBatch,
        core: &mut Core,
    ) -> Vec<Found> {
        let data = core.store.pool.zones.shape(segment).data;
        let mut live = Vec::with_capacity(batch.entries.len());
        for decoded in &batch.entries {
            let Some(payload) = &decoded.payload else {
                continue;
            };
            let from = address_in(&core.store.pool.codec, segment, row, data, payload);
            match decoded.entry {
                Entry::Data { volume, lba, birth }
                | Entry::Move {
                    volume, lba, birth, ..
                } if core.store.volumes.shows(volume, lba, from) => {
                    live.push(Found {
                        key: BlockKey::new(volume, lba),
                        birth,
                        from,
                        payload: *payload,
                    });
                }
                Entry::Page { object, index } => {
                    self.rewrite_page(object, index, from, core);
                }
                _ => {}
            }
        }
        live
    }

    /// Units of a batch that are live at its addresses, by the map; `None` if the map contradicts
    /// it: then it is a stale batch, left where a member lost a write.
    pub(crate) fn live_in_batch(
        &self,
        segment: SegmentId,
        row: u32,
        batch: &DecodedBatch,
        core: &Core,
    ) -> Option<u32> {
        let data = core.store.pool.zones.shape(segment).data;
        let mut live = 0;
        for decoded in &batch.entries {
            let (Some(payload), Entry::Data { volume, lba, .. } | Entry::Move { volume, lba, .. }) =
                (&decoded.payload, &decoded.entry)
            else {
                continue;
            };
            let address = address_in(&core.store.pool.codec, segment, row, data, payload);
            match core.store.volumes.shown(*volume, *lba, address) {
                Some(checksum) if checksum != payload.checksum => return None,
                Some(_) => live += u32::from(payload.units),
                None => {}
            }
        }
        Some(live)
    }

    /// Blocks of a map page with addresses for which `lies` is true.
    pub(crate) fn mapped_blocks(
        &self,
        slot: PageSlot,
        lies: impl Fn(Address) -> bool,
        found: &mut Vec<MappedBlock>,
        core: &Core,
    ) {
        let Some(meta) = core.store.volumes.arena.meta(slot) else {
            return;
        };
        let first = u64::from(meta.index) * MAP_PAGE_ENTRIES as u64;
        for (lba, entry) in (first..).zip(core.store.volumes.arena.page(slot)) {
            if entry.has_payload() && lies(entry.address()) {
                let key = BlockKey::new(meta.volume, Lba(lba));
                found.push(MappedBlock {
                    key,
                    address: entry.address(),
                    units: entry.length_units(),
                    checksum: entry.checksum(),
                });
            }
        }
    }

    /// Continues the search of the map for live data of a victim.
    pub(super) fn search_map(&mut self, at: u32, core: &mut Core, out: &mut Outbox) {
        let ready = core.paths.space.cleaner.ready.len();
        let Some(victim) = core.paths.space.cleaner.victims.get_mut(at) else {
            return;
        };
        let Pass::Map { page: Some(first) } = victim.pass else {
            return;
        };
        if victim.runs.len() >= MAP_READS || ready >= READY_BOUND {
            return;
        }
        let (segment, pages) = (victim.segment, core.store.volumes.arena.slots());
        let mut found = Vec::new();
        let mut page = first;
        while page < pages && page < first + MAP_PAGES_PER_STEP && found.len() < MAP_READS {
            self.mapped_blocks(
                PageSlot(page),
                |address| core.store.pool.codec.segment(address) == segment,
                &mut found,
                core,
            );
            page += 1;
        }
        core.paths.space.cleaner.again |= found.is_empty();
        if let Some(victim) = core.paths.space.cleaner.victims.get_mut(at) {
            victim.pass = Pass::Map {
                page: (page < pages).then_some(page),
            };
        }
        for mapped in found {
            let (column, row, _) = core.paths.locate_block(
                segment,
                core.store.pool.codec.block(mapped.address),
                &core.store,
            );
            let block = LiveBlock {
                piece: mapped.piece(&core.store.pool.codec),
                key: mapped.key,
                birth: Lsn(0),
                from: mapped.address,
            };
            self.read_run(
                at,
                Run {
                    column,
                    row,
                    rows: block.piece.rows().1 + 1,
                    blocks: vec![block],
                },
                core,
                out,
            );
        }
    }
}

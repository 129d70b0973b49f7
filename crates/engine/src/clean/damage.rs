//! Victims whose tables are wrong. Three ways lead to what lives in a segment, each slower and
//! surer than the one before:
//!
//! 1 *Ends*: the two ends of each batch, as they are read (`clean.rs`). What they say is held
//!   against the map: a former batch, left where a member lost a write, names other checksums than
//!   the map. Where the ends do not verify, or are of a former batch, the whole batch is examined
//!   (`verify.rs`): one header after the other that its columns can give, until one does not
//!   contradict the map. (To rebuild the two ends by themselves is not enough: a member with wrong
//!   columns takes part in rebuilding the end that it does not hold.)
//! 2 *Whole*: all batches are examined. A former batch with other blocks in the same place
//!   contradicts nothing; it is noticed by what is still alive when all moves have committed.
//! 3 *Map*: all pages of the map are searched for what lives in the segment, and each of these
//!   blocks is read by itself, as users read it. What can not be had now is lost, and is told by
//!   volume and block. (The birth of a block is not known then, see `clean/repair.rs`.)
//!
//! Before the first of these, where segments are set aside already and space is short, a *trial*:
//! all that lives in the victim is read as on the first way, and nothing is moved. If something can
//! not be had, the victim is set aside as it is: it costs no space. (Elsewhere what is moved out of
//! it may take a segment, and it gives none back.) When enough is free again it is a candidate
//! again. What can be read in another way than by the ends of batches is not missed in a trial: the
//! ways that follow find it.
//!
//! So a victim ends: it is dead, or what is left can be read by nobody. Then it is set aside, and
//! not cleaned again before a start, or before a member is whole again or a scrub could read
//! everything, or when something in it has died and nothing else is left to gain. Such victims take
//! space and give none back, which counts as a debt that others pay by what they give. While it is
//! large and space is short ([`Engine::is_futile`]), victims are begun one at a time, and none
//! that might take what a checkpoint needs.

use super::force::GAIN_PARTS;
use super::{LiveBlock, Move, READY_BOUND, Run, Victim};
use crate::clean::Cleaner;
use crate::limits::{FUTILE_VICTIMS, MAP_PAGES_PER_STEP, MAP_READS};
use crate::map::PageSlot;
use crate::pending::BlockKey;
use crate::piece::Piece;
use crate::recover::place_in;
use crate::verification::VerifyGoal;
use crate::verify::Verified;
use crate::{Engine, Outbox};
use windrow_format::batch::{DecodedBatch, Entry, PayloadInfo};
use windrow_format::checkpoint::MAP_PAGE_ENTRIES;
use windrow_io::Payload;
use windrow_types::{
    ADDRESS_UNIT, Address, AddressCodec, FULL_BLOCK_UNITS, Lba, Lsn, SegmentId, VolumeId,
};

/// Debt with which victims count as fruitless.
pub(super) const FUTILE_BACKLOG: u64 = FUTILE_VICTIMS as u64 * GAIN_PARTS;

/// Which way what lives in a victim is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pass {
    /// All that lives in it is read, and nothing is moved.
    Trial,
    Ends,
    Whole,
    /// `page`: where the search in the map goes on; `None`: it is over.
    Map {
        page: Option<u32>,
    },
}

/// A block of the map.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MappedBlock {
    pub(crate) key: BlockKey,
    pub(crate) address: Address,
    pub(crate) units: u16,
    pub(crate) checksum: u32,
}

impl MappedBlock {
    /// Its bytes in the rows that it lies in.
    pub(crate) fn piece(&self, codec: &AddressCodec) -> Piece {
        let within = codec.offset_units(self.address) % u64::from(FULL_BLOCK_UNITS);
        Piece::of_units(within as u32, self.units, self.checksum)
    }
}

/// A live block of a batch, and what the batch says of its payload.
#[derive(Clone, Copy, Debug)]
struct Found {
    key: BlockKey,
    birth: Lsn,
    from: Address,
    payload: PayloadInfo,
}

impl Victim {
    /// True if the map is being searched for what lives in it.
    pub(super) fn is_searching(&self) -> bool {
        matches!(self.pass, Pass::Map { page: Some(_) })
    }

    /// True if it is only read.
    pub(super) fn is_tried(&self) -> bool {
        self.pass == Pass::Trial
    }

    /// True if there is no further way to what can not be had on this one.
    pub(super) fn is_last_pass(&self) -> bool {
        matches!(self.pass, Pass::Map { .. })
    }

    /// True if it is known that blocks of it are lost: then what is moved out of it gives no space
    /// back, and is moved only if there is plenty.
    pub(super) fn leaves_something(&self) -> bool {
        self.missed && self.is_last_pass()
    }

    /// Something still lives in it. False if there is no further way to it.
    pub(super) fn goes_another_way(&mut self) -> bool {
        let next = match self.pass {
            Pass::Trial if self.missed => return false,
            Pass::Trial => Pass::Ends,
            Pass::Ends if !self.missed => Pass::Whole,
            Pass::Ends | Pass::Whole => Pass::Map { page: Some(0) },
            Pass::Map { .. } => return false,
        };
        if matches!(next, Pass::Ends | Pass::Whole) {
            self.next_row = 0;
        }
        (self.pass, self.missed) = (next, false);
        true
    }
}

impl Cleaner {
    /// There is something to be looked at, and cleaning has had its turn.
    pub(crate) fn cleaning_has_more(&mut self) {
        self.again = true;
    }

    /// True if a victim goes on at once, although nothing is under way that would make it.
    pub(crate) fn cleaning_goes_on(&self) -> bool {
        self.again
    }
}

impl Engine {
    /// True if victims may only take space: some have left something behind, others have not made
    /// up for that, and space is short.
    pub(crate) fn is_futile(&self) -> bool {
        // (If none is set aside any more, all may be read again.)
        self.space.cleaner.backlog >= FUTILE_BACKLOG
            && self.space.segments.quarantined_for_damage_count() > 0
            && !self.has_room_for_repairs()
    }

    /// What could not be read may be had now.
    pub(crate) fn recheck_quarantined(&mut self) {
        if self.space.segments.quarantined_for_damage_count() > 0 {
            self.space.segments.look_again();
            self.reshape.look_again();
            // What was in vain may not be any more.
            (self.space.cleaner.gains, self.space.cleaner.rest) = Default::default();
            self.space.cleaner.again = true;
        }
    }

    /// Begins to examine the next batch whose ends are wrong.
    pub(super) fn verify_victims(&mut self, out: &mut Outbox) {
        while !self.space.cleaner.verifying && self.space.cleaner.ready.len() < READY_BOUND {
            let wrong = |(at, victim): (u32, &mut Victim)| {
                let ends = victim.ends.iter().find(|ends| ends.wrong)?;
                Some((at, victim.segment, ends.row, ends.rows))
            };
            let Some((at, segment, row, rows)) =
                self.space.cleaner.victims.iter_mut().find_map(wrong)
            else {
                return;
            };
            self.space.cleaner.verifying = true;
            if self.verify(VerifyGoal::Clean { victim: at }, segment, row, rows, out) == 0 {
                // No column is there.
                self.clean_verified(at, row, None);
            }
        }
    }

    /// A batch of a victim has been examined.
    pub(crate) fn clean_verified(&mut self, at: u32, row: u32, found: Option<Verified>) {
        self.space.cleaner.verifying = false;
        let is_trial = self
            .space
            .cleaner
            .victims
            .get(at)
            .is_some_and(Victim::is_tried);
        let missed = match found {
            // (The map may still lead to all that lives there.)
            None => !is_trial,
            Some(found) if is_trial => self.misses_something(at, row, &found),
            Some(found) => {
                self.move_verified(at, row, &found);
                !found.lost.is_empty()
            }
        };
        let Some(victim) = self.space.cleaner.victims.get_mut(at) else {
            return;
        };
        victim.missed |= missed;
        victim.ends.retain(|ends| ends.row != row);
    }

    /// Something that lives in a batch can not be had. (Pages of the index are written anew
    /// elsewhere.)
    fn misses_something(&mut self, at: u32, row: u32, found: &Verified) -> bool {
        let Some(segment) = self
            .space
            .cleaner
            .victims
            .get(at)
            .map(|victim| victim.segment)
        else {
            return false;
        };
        self.live_blocks(segment, row, &found.batch)
            .iter()
            .any(|live| live.key.volume() != VolumeId::INDEX && found.is_lost(&live.payload))
    }

    /// The live blocks of a batch are there already.
    fn move_verified(&mut self, at: u32, row: u32, found: &Verified) {
        let Some(segment) = self
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
        } in self.live_blocks(segment, row, &found.batch)
        {
            if found.is_lost(&payload) {
                continue;
            }
            let payload = self.verified_payload(found, &payload);
            self.space.cleaner.ready.push_back((
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
            if let Some(victim) = self.space.cleaner.victims.get_mut(at) {
                victim.ready += 1;
            }
        }
    }

    /// A copy of payload of a batch, as it is stored.
    pub(crate) fn verified_payload(&self, found: &Verified, payload: &PayloadInfo) -> Payload {
        let column_units = found.batch.frame.header.rows * u32::from(FULL_BLOCK_UNITS);
        let (column, at) = (
            &found.columns[(payload.unit / column_units) as usize],
            (payload.unit % column_units) as usize * ADDRESS_UNIT,
        );
        let length = usize::from(payload.units) * ADDRESS_UNIT;
        let mut copy = self.memory.buffers.get(length);
        copy.copy_from_slice(&column[at..at + length]);
        copy.freeze()
    }

    /// The live blocks of a batch. Pages that are in use are written elsewhere by the next
    /// checkpoint.
    fn live_blocks(&mut self, segment: SegmentId, row: u32, batch: &DecodedBatch) -> Vec<Found> {
        let data = self.pool.zones.shape(segment).data;
        let mut live = Vec::with_capacity(batch.entries.len());
        for decoded in &batch.entries {
            let Some(payload) = &decoded.payload else {
                continue;
            };
            let from = place_in(&self.pool.codec, segment, row, data, payload);
            match decoded.entry {
                Entry::Data { volume, lba, birth }
                | Entry::Move {
                    volume, lba, birth, ..
                } if self.map.volumes.shows(volume, lba, from) => {
                    live.push(Found {
                        key: BlockKey::new(volume, lba),
                        birth,
                        from,
                        payload: *payload,
                    });
                }
                Entry::Page { object, index } => {
                    self.rewrite_page(object, index, from);
                }
                _ => {}
            }
        }
        live
    }

    /// How many units of a batch live where it says, by the map; `None` if the map contradicts it:
    /// then it is a former batch, left where a member lost a write.
    pub(crate) fn live_in_batch(
        &self,
        segment: SegmentId,
        row: u32,
        batch: &DecodedBatch,
    ) -> Option<u32> {
        let data = self.pool.zones.shape(segment).data;
        let mut live = 0;
        for decoded in &batch.entries {
            let (Some(payload), Entry::Data { volume, lba, .. } | Entry::Move { volume, lba, .. }) =
                (&decoded.payload, &decoded.entry)
            else {
                continue;
            };
            let address = place_in(&self.pool.codec, segment, row, data, payload);
            match self.map.volumes.shown(*volume, *lba, address) {
                Some(checksum) if checksum != payload.checksum => return None,
                Some(_) => live += u32::from(payload.units),
                None => {}
            }
        }
        Some(live)
    }

    /// The blocks of a map page whose places `lies` holds for.
    pub(crate) fn mapped_blocks(
        &self,
        slot: PageSlot,
        lies: impl Fn(Address) -> bool,
        found: &mut Vec<MappedBlock>,
    ) {
        let Some(meta) = self.map.volumes.arena.meta(slot) else {
            return;
        };
        let first = u64::from(meta.index) * MAP_PAGE_ENTRIES as u64;
        for (lba, entry) in (first..).zip(self.map.volumes.arena.page(slot)) {
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

    /// Goes on through the map in search of what lives in a victim.
    pub(super) fn search_map(&mut self, at: u32, out: &mut Outbox) {
        let ready = self.space.cleaner.ready.len();
        let Some(victim) = self.space.cleaner.victims.get_mut(at) else {
            return;
        };
        let Pass::Map { page: Some(first) } = victim.pass else {
            return;
        };
        if victim.runs.len() >= MAP_READS || ready >= READY_BOUND {
            return;
        }
        let (segment, pages) = (victim.segment, self.map.volumes.arena.slots());
        let mut found = Vec::new();
        let mut page = first;
        while page < pages && page < first + MAP_PAGES_PER_STEP && found.len() < MAP_READS {
            self.mapped_blocks(
                PageSlot(page),
                |address| self.pool.codec.segment(address) == segment,
                &mut found,
            );
            page += 1;
        }
        self.space.cleaner.again |= found.is_empty();
        if let Some(victim) = self.space.cleaner.victims.get_mut(at) {
            victim.pass = Pass::Map {
                page: (page < pages).then_some(page),
            };
        }
        for mapped in found {
            let (column, row, _) =
                self.locate_block(segment, self.pool.codec.block(mapped.address));
            let block = LiveBlock {
                piece: mapped.piece(&self.pool.codec),
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
                out,
            );
        }
    }
}

//! What every component reads: the superblock, the layout, and whether the pool is in service.

use crate::api::{ControlError, Limits, PoolPlan, VolumeStatus};
use crate::base::piece::Piece;
use crate::store::member::slot_state::{self, Change};
use crate::store::plan::plan_zones;
use crate::store::verify::Verified;
use crate::store::volume::Volume;
use windrow_format::batch::PayloadInfo;
use windrow_format::checkpoint::VolumeState;
use windrow_format::superblock::{Features, Label, MemberState, Superblock};
use windrow_geometry::{JournalArea, ZoneMap};
use windrow_io::{BufPool, Payload};
use windrow_types::{
    ADDRESS_UNIT, AddressCodec, BLOCK_BYTES, BLOCK_SIZE, FULL_BLOCK_UNITS, MemberId, SegmentId,
};

/// State of the pool as a whole. Components get it by reference.
#[derive(Debug)]
pub(crate) struct Pool {
    /// The superblock as the next generation will record it.
    pub(crate) superblock: Superblock,
    pub(crate) zones: ZoneMap,
    pub(crate) codec: AddressCodec,
    pub(crate) plan: PoolPlan,
    pub(crate) limits: Limits,
    pub(crate) read_only: bool,
    pub(crate) stopped: Option<StopReason>,
    pub(crate) closing: Closing,
    pub(crate) now_ns: u64,
}

/// Reason that the pool stopped. A stopped pool does not restart by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// More members lost than the redundancy covers.
    TooManyLost,
    /// Shut down.
    Shutdown,
    /// A broken invariant: the engine stops rather than continue on wrong state.
    Internal(&'static str),
}

/// Whether the pool has been asked to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Closing {
    #[default]
    No,
    /// It ends, and stays with this host.
    Shutdown,
    /// It ends, and is released for other hosts.
    Export,
}

impl Closing {
    /// True from the request on.
    pub(crate) fn is_under_way(self) -> bool {
        self != Closing::No
    }
}

/// Memory that components share.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) buffers: BufPool,
    /// Compression, here and in jobs.
    pub(crate) codecs: windrow_reduction::Codecs,
    pub(crate) zeroes: Payload,
    pub(crate) ones: Payload,
}

impl Memory {
    /// Copy of a batch's payload, as it is stored.
    pub(crate) fn verified_payload(&self, found: &Verified, payload: &PayloadInfo) -> Payload {
        let column_units = found.batch.frame.header.rows * u32::from(FULL_BLOCK_UNITS);
        let (column, at) = (
            &found.columns[(payload.unit / column_units) as usize],
            (payload.unit % column_units) as usize * ADDRESS_UNIT,
        );
        let length = usize::from(payload.units) * ADDRESS_UNIT;
        let mut copy = self.buffers.get(length);
        copy.copy_from_slice(&column[at..at + length]);
        copy.freeze()
    }

    /// Content of a stored block for the client, decompressed if necessary. `None` if it cannot be
    /// decompressed: as its checksum is right, the software that wrote it was faulty.
    pub(crate) fn decompressed(
        &self,
        bytes: Payload,
        compressed: Option<Piece>,
    ) -> Option<Payload> {
        let Some(piece) = compressed else {
            return Some(bytes);
        };
        let mut block = self.buffers.get(BLOCK_SIZE);
        self.codecs
            .decompress_stored(&bytes[piece.range()], &mut block)
            .then(|| block.freeze())
    }
}

impl Pool {
    /// Kinds of content that the pool keeps in addition to user blocks.
    pub(crate) fn kept(&self) -> crate::store::plan::Kept {
        crate::store::plan::Kept::of(&self.superblock)
    }

    /// Number of the oldest checkpoint that is kept; 0 without one.
    pub(crate) fn oldest_checkpoint(&self) -> u64 {
        let kept = self.superblock.checkpoints.iter().flatten();
        kept.map(|root| root.id).min().unwrap_or(0)
    }

    /// True if the member is a journal device, in service or not.
    pub(crate) fn is_journal_device(&self, member: MemberId) -> bool {
        self.superblock.journals.devices() >> member.0 & 1 == 1
    }

    /// Changes the record of a member by the table of states; the next generation records it.
    /// Batches sealed before the newest checkpoint began were durable on all members in use when
    /// its root was written.
    pub(crate) fn change_member(
        &mut self,
        member: MemberId,
        change: Change,
    ) -> Result<(), &'static str> {
        let newest = self.superblock.checkpoints[0].map_or(0, |root| root.id);
        let generation = self.superblock.generation.next();
        slot_state::change(
            &mut self.superblock.members[member.index()],
            change,
            newest,
            generation,
        )
        .map(|_| ())
    }

    /// Member that a spare is to replace, for `status`.
    pub(crate) fn replaced_by(&self, spare: MemberId) -> Option<MemberId> {
        self.superblock.members[spare.index()].replaces.filter(|_| {
            slot_state::slot_state(&self.superblock.members[spare.index()])
                == slot_state::SlotState::Spare
        })
    }

    /// True if user writes may go to the first stream only.
    pub(crate) fn wants_one_user_stream(&self) -> bool {
        self.shares()
    }

    /// Bit mask of members that hold a part of a segment: in a zone with more members than columns
    /// only some do.
    pub(crate) fn members_of(&self, segment: SegmentId) -> u64 {
        let location = self.zones.locate(segment);
        (0..usize::from(self.zones.shape(segment).width)).fold(0, |mask, position| {
            mask | 1 << location.extent(position).0.0
        })
    }

    /// Bytes of a batch on all members: about the memory of a verification.
    pub(crate) fn batch_bytes(&self, segment: SegmentId, rows: u32) -> u64 {
        u64::from(self.zones.shape(segment).width) * u64::from(rows) * BLOCK_BYTES
    }

    /// True if blocks may share content.
    pub(crate) fn shares(&self) -> bool {
        self.superblock.features.incompatible & Features::SHARED != 0
    }

    pub(crate) fn rotating(&self) -> bool {
        self.zones
            .current()
            .any(|z| z.member_count() > usize::from(z.shape.width))
    }

    /// Capacity of the remaining members.
    pub(crate) fn plan_without(
        &self,
        zones: &ZoneMap,
        spare_per_mille: u16,
    ) -> Result<PoolPlan, ControlError> {
        plan_zones(zones, spare_per_mille, self.kept())
            .map_err(|error| ControlError::NoSpace(format!("without this member: {error}")))
    }

    /// True if the journal inside the members has an area on this one.
    pub(crate) fn moves_journal(&self, member: MemberId) -> bool {
        self.superblock
            .journals
            .internal
            .is_some_and(|area| area.members >> member.0 & 1 == 1)
    }

    /// The journal inside the members over the others: in the same bytes of each.
    pub(crate) fn journal_without(&self, member: MemberId) -> Option<JournalArea> {
        let area = self.superblock.journals.internal?;
        let members = area.members & !(1 << member.0);
        let bytes = area.end() - area.start;
        JournalArea::fit(
            members,
            area.copies,
            area.start,
            bytes,
            area.chunk_bytes,
            area.granule,
        )
        .map(|fit| JournalArea {
            power_safe: area.power_safe,
            ..fit
        })
    }

    pub(crate) fn is_spare(&self, member: MemberId) -> bool {
        self.superblock.members[member.index()].state == MemberState::Spare
    }

    pub(crate) fn is_label_of(&self, member: MemberId, bytes: Option<&[u8]>) -> bool {
        let label = bytes.and_then(|bytes| Label::decode(bytes).ok());
        label.is_some_and(|label| {
            (label.pool, label.member_uuid)
                == (
                    self.superblock.pool,
                    self.superblock.members[member.index()].uuid,
                )
        })
    }

    pub(crate) fn is_of_another_pool(&self, bytes: Option<&[u8]>) -> bool {
        bytes
            .and_then(|bytes| Label::decode(bytes).ok())
            .is_some_and(|label| label.pool != self.superblock.pool)
    }

    pub(crate) fn status_of(&self, v: &Volume) -> VolumeStatus {
        VolumeStatus {
            id: v.record.id,
            name: v.record.name.clone(),
            size_bytes: v.record.size_bytes,
            mapped_bytes: v.map.mapped_blocks * BLOCK_BYTES,
            read_only: self.read_only || v.record.read_only,
            sync: v.record.sync,
            compression: v.record.compression,
            dedup: v.record.dedup,
            shared_bytes: v.map.shared_blocks * BLOCK_BYTES,
            stored_bytes: v.map.stored_units * ADDRESS_UNIT as u64,
            deleting: v.record.state == VolumeState::Deleting,
        }
    }
}

//! Creation of a pool: labels, first superblock and empty tables on its members.

use crate::api::{PoolPlan, PoolSpec};
use crate::base::limits::BASE_STREAMS;
use crate::engine::Engine;
use crate::store::plan::*;
use crate::store::stream::Stream;
use windrow_format::checkpoint::PagePointer;
use windrow_format::superblock::{
    CheckpointRoot, Features, Journals, LABEL_OFFSET, Label, MemberRecord, MemberState, PoolState,
    Reduction, SLOT_BYTES, SLOT_COUNT, SLOT_OFFSET, SLOT_STRIDE, StreamPosition, Superblock,
    slot_offset,
};
#[cfg(test)]
use windrow_geometry::MAX_MEMBERS;
use windrow_geometry::{Zone, ZoneMap};
use windrow_io::MemberIo;
use windrow_types::{BatchSeq, Epoch, Generation, Lsn, MAX_STREAMS, MemberId, SegmentId, Uuid};

impl Engine {
    /// Plan of a pool, without touching any device.
    ///
    /// # Errors
    /// As [`Engine::format`], except for failing members.
    pub fn plan(spec: &PoolSpec) -> Result<PoolPlan, FormatError> {
        check_spec(spec)?;
        // Too few members are reported before a journal without room on them.
        let zones = ZoneMap::new(zones(spec)?);
        journals(spec)?;
        if u64::from(zones.segment_count()) > address_codec(spec.redundancy, &zones).max_segments()
        {
            return invalid(
                "the pool has more segments than addresses can name; use larger segments",
            );
        }
        let mut plan = plan_zones(
            &zones,
            spec.properties.spare_per_mille,
            Kept {
                shares: Shares::No,
                reduction: spec.properties.reduction,
            },
        )?;
        plan.overhead.journal_bytes_each = journal_bytes(spec);
        Ok(plan)
    }

    /// Creates a pool: labels and the first superblock on every member, durable on return. Old
    /// superblock slots are overwritten, so that those of an earlier pool cannot be taken for this
    /// one's.
    ///
    /// # Errors
    /// If the options are inconsistent, the members are too small, or one of them fails.
    pub fn format(io: &mut dyn MemberIo, spec: &PoolSpec) -> Result<(), FormatError> {
        let plan = Self::plan(spec)?;
        let superblock = first_superblock(spec, plan.zones, journals(spec)?);
        let empty = vec![0u8; SLOT_BYTES];
        for (index, (uuid, _)) in all_members(spec).enumerate() {
            let member = MemberId(index as u8);
            for slot in 0..SLOT_COUNT {
                io.write(member, SLOT_OFFSET + slot * SLOT_STRIDE, &empty)?;
            }
            let label = Label {
                version: windrow_format::superblock::FORMAT_VERSION,
                pool: spec.pool,
                pool_name: spec.name.clone(),
                member_uuid: *uuid,
                member,
            };
            io.write(
                member,
                LABEL_OFFSET,
                &padded(label.encode(), windrow_format::superblock::LABEL_BYTES),
            )?;
            let image = Superblock {
                member,
                member_uuid: *uuid,
                ..superblock.clone()
            }
            .encode();
            io.write(
                member,
                slot_offset(superblock.generation),
                &padded(image, SLOT_BYTES),
            )?;
        }
        for index in 0..all_members(spec).count() {
            io.flush(MemberId(index as u8))?;
        }
        Ok(())
    }
}

fn padded(mut bytes: Vec<u8>, len: usize) -> Vec<u8> {
    bytes.resize(len, 0);
    bytes
}

/// Incompatible flags of a new pool.
fn first_flags(spec: &PoolSpec, journals: &Journals) -> u64 {
    let journal = if *journals == Journals::default() {
        0
    } else {
        Features::JOURNAL
    };
    journal
        | if spec.properties.reduction == Reduction::Capacity {
            Features::CAPACITY
        } else {
            0
        }
}

fn first_superblock(spec: &PoolSpec, zones: Vec<Zone>, journals: Journals) -> Superblock {
    let mut replay = [Stream::closed_position(); MAX_STREAMS];
    for (segment, stream) in BASE_STREAMS.into_iter().enumerate() {
        replay[stream] = StreamPosition {
            segment: SegmentId(segment as u32),
            row: 0,
            seq: BatchSeq(1),
            next_segment: SegmentId::NONE,
        };
    }
    let root = CheckpointRoot {
        id: 1,
        lsn: Lsn(0),
        epoch: Epoch(1),
        replay,
        flushed_seq: [BatchSeq(0); MAX_STREAMS],
        flushed_through: Lsn(0),
        list: PagePointer::default(),
        list_pages: 0,
        last_volume: 0,
    };
    let members = all_members(spec);
    Superblock {
        features: Features {
            incompatible: first_flags(spec, &journals),
            ..Features::default()
        },
        journals,
        pool: spec.pool,
        pool_name: spec.name.clone(),
        member: MemberId(0),
        member_uuid: Uuid::default(),
        generation: Generation(1),
        parent_hash: 0,
        epoch: Epoch(1),
        host: Uuid::default(),
        state: PoolState::Exported,
        redundancy: spec.redundancy,
        address_offset_bits: address_codec(spec.redundancy, &ZoneMap::new(zones.clone()))
            .offset_bits(),
        created_unix_s: spec.created_unix_s,
        members: members
            .map(|(uuid, size)| MemberRecord::new(*uuid, MemberState::Online, *size))
            .collect(),
        zones,
        fences: Vec::new(),
        checkpoints: [Some(root), None],
        properties: spec.properties,
    }
}

/// Zones over `members` small members, of the layout after the pool's first one.
#[cfg(test)]
pub(crate) fn grown_for_model(superblock: &Superblock, members: usize) -> Vec<Zone> {
    let old = &superblock.zones;
    let sizes: Vec<(MemberId, u64)> = (0..members as u8)
        .map(|m| (MemberId(m), 24 << 20))
        .collect();
    let layout = Layout {
        redundancy: superblock.redundancy,
        segment_rows: old[0].shape.rows,
        chunk_rows: old[0].shape.chunk_rows,
        start: old[0].start,
        first_segment: old.last().map_or(0, Zone::end_segment),
        number: 1,
        members: &sizes,
    };
    old.iter()
        .cloned()
        .chain(lay_out(&layout).expect("members that fit"))
        .collect()
}

/// Zones of a pool for the model that loses this member: the present ones, and a layout over the
/// others.
#[cfg(test)]
pub(crate) fn shrunk_for_model(superblock: &Superblock, leaves: MemberId) -> Vec<Zone> {
    let old = &superblock.zones;
    let others = old.iter().fold(0u64, |mask, zone| mask | zone.members) & !(1 << leaves.0);
    let sizes: Vec<(MemberId, u64)> = (0..MAX_MEMBERS as u8)
        .filter(|m| others >> m & 1 == 1)
        .map(|m| (MemberId(m), 24 << 20))
        .collect();
    let layout = Layout {
        redundancy: superblock.redundancy,
        segment_rows: old[0].shape.rows,
        chunk_rows: old[0].shape.chunk_rows,
        start: old[0].start,
        first_segment: old.last().map_or(0, Zone::end_segment),
        number: old[0].layout + 1,
        members: &sizes,
    };
    old.iter()
        .cloned()
        .chain(lay_out(&layout).expect("members that fit"))
        .collect()
}

/// Superblock of a new pool of small members, whose identifiers are their numbers from 1 on.
#[cfg(test)]
pub(crate) fn first_for_model(
    redundancy: windrow_geometry::Redundancy,
    members: usize,
) -> Superblock {
    let spec = PoolSpec {
        name: "model".into(),
        redundancy,
        chunk_rows: None,
        segment_rows: None,
        align_bytes: 4096,
        pool: Uuid([9; 16]),
        members: (1..=members as u8)
            .map(|m| (Uuid([m; 16]), 24 << 20))
            .collect(),
        created_unix_s: 0,
        properties: windrow_format::superblock::Properties::DEFAULT,
        journal: None,
    };
    first_superblock(
        &spec,
        zones(&spec).expect("members that fit"),
        Journals::default(),
    )
}

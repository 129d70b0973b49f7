//! Encoding of the superblock: tables at fixed offsets with room for the largest pool, so that
//! growth never moves a field.
//!
//! ```text
//! 0      512   fixed part (signature, checksum, version, flags, identifiers, counts)
//! 512    256   properties
//! 768    256   reserved
//! 1024   768   checkpoints: 2 of 384
//! 1792   256   reserved
//! 2048  3072   fences: 32 of 96
//! 5120  1024   reserved
//! 6144  4096   members: 64 of 64
//! 10240 4096   zones: 64 of 64
//! 14336  512   journal
//! 14848 1536   reserved
//! ```
//! Signature, checksum and version keep place and meaning in every version. Reserved bytes are
//! written as zero and ignored: a version that uses them sets a feature flag.

use super::*;
use crate::bytes::{name_at, put, put_name, u8_at, u16_at, u32_at, u64_at, uuid_at};
use crate::checkpoint::pointer_at;
use crate::hash::{xxh3_64, xxh3_64_with_seed};
use crate::{put_shape, shape_at};
use windrow_geometry::MAX_MEMBERS;

// Offsets of the fixed part.
const CHECKSUM: usize = 8;
const VERSION: usize = 16;
const COMPATIBLE: usize = 24;
const READ_ONLY: usize = 32;
const INCOMPATIBLE: usize = 40;
const POOL: usize = 48;
const MEMBER: usize = 64;
const STATE: usize = 65;
const REDUNDANCY: usize = 66;
const COPIES: usize = 67;
const MEMBER_COUNT: usize = 68;
const ZONE_COUNT: usize = 72;
const FENCE_COUNT: usize = 76;
const MEMBER_UUID: usize = 80;
const GENERATION: usize = 96;
const PARENT_HASH: usize = 104;
const EPOCH: usize = 112;
const HOST: usize = 120;
const CREATED: usize = 136;
const NAME: usize = 144;
const ADDRESS_BITS: usize = 208;

// Offsets of the tables and the bytes of their records.
const PROPERTIES: usize = 512;
const CHECKPOINTS: usize = 1024;
const CHECKPOINT_BYTES: usize = 384;
const FENCES: usize = 2048;
const FENCE_BYTES: usize = 96;
const MEMBERS: usize = 6144;
const MEMBER_BYTES: usize = 64;
const ZONES: usize = 10240;
const ZONE_BYTES: usize = 64;
const JOURNAL: usize = 14336;

const _: () =
    assert!(NAME + 64 <= ADDRESS_BITS && ADDRESS_BITS < PROPERTIES && PROPERTIES < CHECKPOINTS);
const _: () = assert!(CHECKPOINTS + 2 * CHECKPOINT_BYTES <= FENCES);
const _: () = assert!(FENCES + MAX_FENCES * FENCE_BYTES <= MEMBERS);
const _: () = assert!(MEMBERS + MAX_MEMBERS * MEMBER_BYTES <= ZONES);
const _: () = assert!(ZONES + MAX_ZONES * ZONE_BYTES <= JOURNAL && JOURNAL + 512 <= SLOT_BYTES);
const _: () = assert!(
    SLOT_OFFSET + SLOT_COUNT * SLOT_STRIDE <= RESERVED_BYTES && SLOT_BYTES as u64 <= SLOT_STRIDE
);
const _: () = assert!(LABEL_OFFSET + LABEL_BYTES as u64 <= SLOT_OFFSET);

// Offsets in a checkpoint record.
const C_PRESENT: usize = 0;
const C_ID: usize = 8;
const C_LSN: usize = 16;
const C_EPOCH: usize = 24;
const C_FLUSHED_THROUGH: usize = 32;
const C_LIST: usize = 40;
const C_LIST_PAGES: usize = 56;
const C_LAST_VOLUME: usize = 60;
const C_FLUSHED_SEQ: usize = 64;
const C_REPLAY: usize = 128;
const POSITION_BYTES: usize = 24;
const _: () = assert!(
    C_FLUSHED_SEQ + 8 * MAX_STREAMS <= C_REPLAY
        && C_REPLAY + MAX_STREAMS * POSITION_BYTES <= CHECKPOINT_BYTES
);

/// Seed of the checksum: a copy of one member is not accepted as that of another.
fn seed(pool: &PoolUuid, member: MemberId) -> u64 {
    let mut owner = [0; 17];
    put(&mut owner, 0, &pool.0);
    put(&mut owner, 16, &[member.0]);
    xxh3_64(&owner)
}

pub(super) fn malformed<T>(what: &'static str) -> Result<T, SuperblockError> {
    Err(SuperblockError::Malformed(what))
}

impl Superblock {
    /// Encodes a slot.
    ///
    /// # Panics
    /// If a table is longer than the format allows or a name is not allowed.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = self.encode_content();
        let checksum = xxh3_64_with_seed(&out[VERSION..], seed(&self.pool, self.member));
        put(&mut out, CHECKSUM, &checksum.to_le_bytes());
        out
    }

    /// Hash of the fields common to all members: the next generation's `parent_hash`. Compatible
    /// flags are left out, so that software that does not know them computes the same hash.
    pub fn content_hash(&self) -> u64 {
        let mut out = self.encode_content();
        for (at, length) in [(MEMBER, 1), (MEMBER_UUID, 16), (COMPATIBLE, 8)] {
            out[at..at + length].fill(0);
        }
        xxh3_64(&out)
    }

    fn encode_content(&self) -> Vec<u8> {
        let (members, zones, fences) = (self.members.len(), self.zones.len(), self.fences.len());
        assert!(
            members <= MAX_MEMBERS && zones <= MAX_ZONES && fences <= MAX_FENCES,
            "{members} members, {zones} zones, {fences} fences"
        );
        assert_eq!(
            self.journals != Journals::default(),
            self.features.incompatible & Features::JOURNAL != 0,
            "a journal and its flag go together"
        );
        let mut out = vec![0; SLOT_BYTES];
        self.put_fixed(&mut out);
        put_properties(&mut out[PROPERTIES..], &self.properties);
        for (slot, root) in out[CHECKPOINTS..]
            .chunks_exact_mut(CHECKPOINT_BYTES)
            .zip(&self.checkpoints)
        {
            root.iter().for_each(|root| put_checkpoint(slot, root));
        }
        for (slot, fence) in out[FENCES..]
            .chunks_exact_mut(FENCE_BYTES)
            .zip(&self.fences)
        {
            put_fence(slot, fence);
        }
        for (slot, member) in out[MEMBERS..]
            .chunks_exact_mut(MEMBER_BYTES)
            .zip(&self.members)
        {
            put_member(slot, member);
        }
        for (slot, zone) in out[ZONES..].chunks_exact_mut(ZONE_BYTES).zip(&self.zones) {
            put_zone(slot, zone);
        }
        self.journals
            .internal
            .iter()
            .for_each(|area| put_journal(&mut out[JOURNAL..], area));
        self.journals
            .external
            .iter()
            .for_each(|area| put_journal(&mut out[JOURNAL + EXTERNAL..], area));
        put(
            &mut out,
            JOURNAL + DURABLE_LSN,
            &self.journals.durable_lsn.0.to_le_bytes(),
        );
        out
    }

    fn put_fixed(&self, out: &mut [u8]) {
        let (redundancy, copies) = match self.redundancy {
            Redundancy::None => (0, 0),
            Redundancy::Copies(copies) => (1, copies),
            Redundancy::Single => (5, 0),
            Redundancy::Double => (6, 0),
        };
        let state = match self.state {
            PoolState::Active => 1,
            PoolState::Exported => 2,
            PoolState::Destroyed => 3,
        };
        put(out, 0, &SUPERBLOCK_MAGIC);
        put(out, VERSION, &FORMAT_VERSION.to_le_bytes());
        put(out, COMPATIBLE, &self.features.compatible.to_le_bytes());
        put(out, READ_ONLY, &self.features.read_only.to_le_bytes());
        put(out, INCOMPATIBLE, &self.features.incompatible.to_le_bytes());
        put(out, POOL, &self.pool.0);
        put(out, MEMBER, &[self.member.0, state, redundancy, copies]);
        put(
            out,
            MEMBER_COUNT,
            &(self.members.len() as u32).to_le_bytes(),
        );
        put(out, ZONE_COUNT, &(self.zones.len() as u32).to_le_bytes());
        put(out, FENCE_COUNT, &(self.fences.len() as u32).to_le_bytes());
        put(out, MEMBER_UUID, &self.member_uuid.0);
        put(out, GENERATION, &self.generation.0.to_le_bytes());
        put(out, PARENT_HASH, &self.parent_hash.to_le_bytes());
        put(out, EPOCH, &self.epoch.0.to_le_bytes());
        put(out, HOST, &self.host.0);
        put(out, CREATED, &self.created_unix_s.to_le_bytes());
        put_name(out, NAME, &self.pool_name);
        put(out, ADDRESS_BITS, &[self.address_offset_bits]);
    }

    /// Decodes a slot. Unknown read-only features are accepted: see [`Features::allow_writing`].
    pub fn decode(bytes: &[u8]) -> Result<Self, SuperblockError> {
        let bytes = bytes
            .get(..SLOT_BYTES)
            .ok_or(SuperblockError::WrongLength)?;
        if bytes[..SUPERBLOCK_MAGIC.len()] != SUPERBLOCK_MAGIC {
            return Err(SuperblockError::NoSignature);
        }
        let (pool, member) = (uuid_at(bytes, POOL), MemberId(u8_at(bytes, MEMBER)));
        if xxh3_64_with_seed(&bytes[VERSION..], seed(&pool, member)) != u64_at(bytes, CHECKSUM) {
            return Err(SuperblockError::BadChecksum);
        }
        let version = u32_at(bytes, VERSION);
        if version > FORMAT_VERSION {
            return Err(SuperblockError::NewerVersion(version));
        }
        if version == 0 {
            return malformed("there is no version 0");
        }
        let features = Features {
            compatible: u64_at(bytes, COMPATIBLE),
            read_only: u64_at(bytes, READ_ONLY),
            incompatible: u64_at(bytes, INCOMPATIBLE),
        };
        match features.unknown().incompatible {
            0 => {}
            unknown => return Err(SuperblockError::UnknownFeatures(unknown)),
        }
        let count = |at: usize, most: usize, what: &'static str| {
            let count = u32_at(bytes, at) as usize;
            if count > most {
                malformed(what)
            } else {
                Ok(count)
            }
        };
        let members = count(MEMBER_COUNT, MAX_MEMBERS, "too many members")?;
        let zones = count(ZONE_COUNT, MAX_ZONES, "too many zones")?;
        let fences = count(FENCE_COUNT, MAX_FENCES, "too many fences")?;
        let superblock = Self {
            features,
            pool,
            pool_name: name_at(bytes, NAME)
                .ok_or(SuperblockError::Malformed("the pool name is not allowed"))?,
            member,
            member_uuid: uuid_at(bytes, MEMBER_UUID),
            generation: Generation(u64_at(bytes, GENERATION)),
            parent_hash: u64_at(bytes, PARENT_HASH),
            epoch: Epoch(u64_at(bytes, EPOCH)),
            host: uuid_at(bytes, HOST),
            state: decode_state(u8_at(bytes, STATE))?,
            redundancy: decode_redundancy(u8_at(bytes, REDUNDANCY), u8_at(bytes, COPIES))?,
            address_offset_bits: u8_at(bytes, ADDRESS_BITS),
            created_unix_s: u64_at(bytes, CREATED),
            members: bytes[MEMBERS..]
                .chunks_exact(MEMBER_BYTES)
                .take(members)
                .map(decode_member)
                .collect::<Result<_, _>>()?,
            zones: bytes[ZONES..]
                .chunks_exact(ZONE_BYTES)
                .take(zones)
                .map(decode_zone)
                .collect::<Result<_, _>>()?,
            fences: bytes[FENCES..]
                .chunks_exact(FENCE_BYTES)
                .take(fences)
                .map(decode_fence)
                .collect(),
            checkpoints: [
                decode_checkpoint(&bytes[CHECKPOINTS..])?,
                decode_checkpoint(&bytes[CHECKPOINTS + CHECKPOINT_BYTES..])?,
            ],
            properties: decode_properties(&bytes[PROPERTIES..])?,
            journals: if features.incompatible & Features::JOURNAL == 0 {
                Journals::default()
            } else {
                decode_journals(&bytes[JOURNAL..])?
            },
        };
        superblock.check()?;
        Ok(superblock)
    }
}

fn put_properties(out: &mut [u8], properties: &Properties) {
    put(out, 0, &properties.seal_age_ms.to_le_bytes());
    put(out, 4, &properties.spare_per_mille.to_le_bytes());
    // Older software knows the first two victim policies and refuses others here, so they have a
    // field of their own.
    let later = if properties.victim_policy > 1 {
        properties.victim_policy
    } else {
        0
    };
    put(
        out,
        6,
        &[
            properties.victim_policy - later,
            u8::from(properties.discard),
        ],
    );
    put(out, 40, &[properties.placement, later]);
    put(out, 42, &properties.victim_number.to_le_bytes());
    let default = Properties::DEFAULT;
    let warn_at = match properties.warn_at {
        at if at == default.warn_at => [0; 4],
        [0, ..] => [WARN_NEVER, 0, 0, 0],
        at => at,
    };
    put(out, 48, &warn_at);
    put(out, 44, &[properties.reduction as u8]);
    put(out, 8, &properties.rebuild_rate.to_le_bytes());
    put(
        out,
        16,
        &or_default(properties.rebuild_rate_min, default.rebuild_rate_min).to_le_bytes(),
    );
    let bound = or_default(
        properties.read_latency_bound_ms.into(),
        default.read_latency_bound_ms.into(),
    );
    put(out, 24, &bound.to_le_bytes());
    let age = u32::try_from(or_default(
        properties.flush_age_ms.into(),
        default.flush_age_ms.into(),
    ))
    .unwrap_or(u32::MAX);
    put(out, 52, &age.to_le_bytes());
    let days = or_default(
        properties.scrub_interval_days.into(),
        default.scrub_interval_days.into(),
    );
    put(out, 32, &days.to_le_bytes());
}

/// Encodes "never" in the first warning's byte, where 0 means the default.
const WARN_NEVER: u8 = 255;

fn decode_warn_at(bytes: &[u8]) -> Result<[u8; 4], SuperblockError> {
    match std::array::from_fn(|i| u8_at(bytes, 48 + i)) {
        [0, 0, 0, 0] => Ok(Properties::DEFAULT.warn_at),
        [WARN_NEVER, 0, 0, 0] => Ok([0; 4]),
        at if Properties::are_warnings(at) => Ok(at),
        _ => malformed("the warnings of a full pool are out of order"),
    }
}

/// Decodes a property that older software did not know: 0 is the default, any other number is one
/// more than the value.
fn or_default(value: u64, default: u64) -> u64 {
    if value == default {
        0
    } else {
        value.saturating_add(1)
    }
}

fn value_or(stored: u64, default: u64) -> u64 {
    stored.checked_sub(1).unwrap_or(default)
}

fn decode_properties(bytes: &[u8]) -> Result<Properties, SuperblockError> {
    let (victim_policy, discard) = (u8_at(bytes, 6), u8_at(bytes, 7));
    let spare_per_mille = u16_at(bytes, 4);
    let (placement, later) = (u8_at(bytes, 40), u8_at(bytes, 41));
    let later_is_wrong = later == 1
        || later > Properties::VICTIM_POLICY_MAX
        || (later > 0 && victim_policy > 0)
        || placement > Properties::PLACEMENT_MAX;
    if victim_policy > 1 || later_is_wrong || discard > 1 || spare_per_mille > 1000 {
        return malformed("a property has an unknown value");
    }
    let default = Properties::DEFAULT;
    let (Ok(read_latency_bound_ms), Ok(scrub_interval_days)) = (
        u32::try_from(value_or(
            u64_at(bytes, 24),
            default.read_latency_bound_ms.into(),
        )),
        u16::try_from(value_or(
            u64_at(bytes, 32),
            default.scrub_interval_days.into(),
        )),
    ) else {
        return malformed("a property is out of range");
    };
    Ok(Properties {
        spare_per_mille,
        seal_age_ms: u32_at(bytes, 0),
        flush_age_ms: value_or(u32_at(bytes, 52).into(), default.flush_age_ms.into()) as u32,
        victim_policy: victim_policy.max(later),
        victim_number: u16_at(bytes, 42),
        placement,
        discard: discard == 1,
        rebuild_rate: u64_at(bytes, 8),
        rebuild_rate_min: value_or(u64_at(bytes, 16), default.rebuild_rate_min),
        scrub_interval_days,
        read_latency_bound_ms,
        warn_at: decode_warn_at(bytes)?,
        reduction: Reduction::ALL
            .get(usize::from(u8_at(bytes, 44)))
            .copied()
            .ok_or(SuperblockError::Malformed(
                "a property has an unknown value",
            ))?,
    })
}

fn decode_state(value: u8) -> Result<PoolState, SuperblockError> {
    match value {
        1 => Ok(PoolState::Active),
        2 => Ok(PoolState::Exported),
        3 => Ok(PoolState::Destroyed),
        _ => malformed("the pool has an unknown state"),
    }
}

fn decode_redundancy(value: u8, copies: u8) -> Result<Redundancy, SuperblockError> {
    match (value, copies) {
        (0, 0) => Ok(Redundancy::None),
        (1, 2..=4) => Ok(Redundancy::Copies(copies)),
        (5, 0) => Ok(Redundancy::Single),
        (6, 0) => Ok(Redundancy::Double),
        _ => malformed("the pool has an unknown redundancy"),
    }
}

/// ```text
/// 0..16 identifier   16 state (1 online, 2 absent, 3 removed, 4 rebuilding, 5 spare)   17 absence (0 missing, 1 failed, 2 offline)
/// 18 of a spare: 1 + the member that it is to replace, 0: none
/// 24..32 usable bytes   32..40 absent since   40..48 missed from   48..56 listed from   56..64 reserved
/// ```
fn put_member(out: &mut [u8], member: &MemberRecord) {
    let state = match member.state {
        MemberState::Online => 1,
        MemberState::Absent => 2,
        MemberState::Removed => 3,
        MemberState::Rebuilding => 4,
        MemberState::Spare => 5,
    };
    let absence = match member.absence {
        Absence::Missing => 0,
        Absence::Failed => 1,
        Absence::Offline => 2,
    };
    put(out, 0, &member.uuid.0);
    put(
        out,
        16,
        &[
            state,
            absence,
            member.replaces.map_or(0, |member| member.0 + 1),
        ],
    );
    put(out, 24, &member.size_bytes.to_le_bytes());
    put(out, 32, &member.absent_since.0.to_le_bytes());
    put(out, 40, &member.missed_from.to_le_bytes());
    put(out, 48, &member.listed_from.to_le_bytes());
}

fn decode_member(bytes: &[u8]) -> Result<MemberRecord, SuperblockError> {
    let state = match u8_at(bytes, 16) {
        1 => MemberState::Online,
        2 => MemberState::Absent,
        3 => MemberState::Removed,
        4 => MemberState::Rebuilding,
        5 => MemberState::Spare,
        _ => return malformed("a member has an unknown state"),
    };
    let absence = match u8_at(bytes, 17) {
        0 => Absence::Missing,
        1 => Absence::Failed,
        2 => Absence::Offline,
        _ => return malformed("a member is absent for an unknown reason"),
    };
    Ok(MemberRecord {
        uuid: uuid_at(bytes, 0),
        state,
        absence,
        size_bytes: u64_at(bytes, 24),
        absent_since: Generation(u64_at(bytes, 32)),
        missed_from: u64_at(bytes, 40),
        listed_from: u64_at(bytes, 48),
        // (A member that no pool can have is ignored: the field is a hint.)
        replaces: u8_at(bytes, 18)
            .checked_sub(1)
            .filter(|member| usize::from(*member) < MAX_MEMBERS)
            .map(MemberId),
    })
}

/// ```text
/// 0..8 members   8..16 start   16..20 first segment   20..24 segments   24..36 shape   36..40 layout   40..64 reserved
/// ```
fn put_zone(out: &mut [u8], zone: &Zone) {
    put(out, 0, &zone.members.to_le_bytes());
    put(out, 8, &zone.start.to_le_bytes());
    put(out, 16, &zone.first_segment.to_le_bytes());
    put(out, 20, &zone.segments.to_le_bytes());
    put_shape(out, 24, &zone.shape);
    put(out, 36, &zone.layout.to_le_bytes());
}

fn decode_zone(bytes: &[u8]) -> Result<Zone, SuperblockError> {
    let Some(shape) = shape_at(bytes, 24) else {
        return malformed("a zone has an impossible shape");
    };
    Ok(Zone {
        members: u64_at(bytes, 0),
        start: u64_at(bytes, 8),
        first_segment: u32_at(bytes, 16),
        segments: u32_at(bytes, 20),
        shape,
        layout: u32_at(bytes, 36),
    })
}

/// Offset of the external journal's area and the durable LSN, after the area of the internal
/// journal.
const EXTERNAL: usize = 64;
const DURABLE_LSN: usize = 128;

/// ```text
/// 0..8 members (0: there is none)   8..16 start   16..20 bytes of a chunk   20..24 chunks   24 copies   25 flags (bit 0 power-safe)
/// 26..28 reserved   28..32 granule   32..64 reserved
/// ```
fn put_journal(out: &mut [u8], journal: &JournalArea) {
    put(out, 0, &journal.members.to_le_bytes());
    put(out, 8, &journal.start.to_le_bytes());
    put(out, 16, &journal.chunk_bytes.to_le_bytes());
    put(out, 20, &journal.chunks.to_le_bytes());
    put(out, 24, &[journal.copies, u8::from(journal.power_safe)]);
    put(out, 28, &journal.granule.to_le_bytes());
}

fn decode_journals(bytes: &[u8]) -> Result<Journals, SuperblockError> {
    let (internal, external) = (decode_journal(bytes)?, decode_journal(&bytes[EXTERNAL..])?);
    Ok(Journals {
        internal,
        external,
        durable_lsn: Lsn(u64_at(bytes, DURABLE_LSN)),
    })
}

fn decode_journal(bytes: &[u8]) -> Result<Option<JournalArea>, SuperblockError> {
    let journal = JournalArea {
        members: u64_at(bytes, 0),
        copies: u8_at(bytes, 24),
        start: u64_at(bytes, 8),
        chunk_bytes: u32_at(bytes, 16),
        chunks: u32_at(bytes, 20),
        granule: u32_at(bytes, 28),
        power_safe: u8_at(bytes, 25) & 1 == 1,
    };
    match journal.members {
        0 => Ok(None),
        _ if journal.is_valid() && u8_at(bytes, 25) <= 1 => Ok(Some(journal)),
        _ => malformed("an impossible journal"),
    }
}

/// ```text
/// 0..8 epoch   8..16 recovery LSN   16..24 next LSN   24..88 last accepted sequence number of each stream   88..96 covered LSN
/// ```
fn put_fence(out: &mut [u8], fence: &Fence) {
    put(out, 0, &fence.epoch.0.to_le_bytes());
    put(out, 8, &fence.recovery_lsn.0.to_le_bytes());
    put(out, 16, &fence.next_lsn.0.to_le_bytes());
    put_seqs(out, 24, &fence.last_seq);
    put(out, 88, &fence.covered_lsn.0.to_le_bytes());
}

fn decode_fence(bytes: &[u8]) -> Fence {
    Fence {
        epoch: Epoch(u64_at(bytes, 0)),
        recovery_lsn: Lsn(u64_at(bytes, 8)),
        covered_lsn: Lsn(u64_at(bytes, 88)),
        next_lsn: Lsn(u64_at(bytes, 16)),
        last_seq: seqs_at(bytes, 24),
    }
}

fn put_seqs(out: &mut [u8], at: usize, seqs: &[BatchSeq; MAX_STREAMS]) {
    for (i, seq) in seqs.iter().enumerate() {
        put(out, at + 8 * i, &seq.0.to_le_bytes());
    }
}

fn seqs_at(bytes: &[u8], at: usize) -> [BatchSeq; MAX_STREAMS] {
    std::array::from_fn(|i| BatchSeq(u64_at(bytes, at + 8 * i)))
}

/// ```text
/// 0 present   8..16 number   16..24 LSN   24..32 epoch   32..40 flushed through   40..56 list   56..60 list pages
/// 60..64 last volume   64..128 flushed sequence numbers   128..320 replay positions, 24 bytes each:
///     0..4 segment   4..8 row   8..16 sequence number   16..20 next segment   20..24 zero
/// 320..384 reserved
/// ```
fn put_checkpoint(out: &mut [u8], root: &CheckpointRoot) {
    put(out, C_PRESENT, &[1]);
    put(out, C_ID, &root.id.to_le_bytes());
    put(out, C_LSN, &root.lsn.0.to_le_bytes());
    put(out, C_EPOCH, &root.epoch.0.to_le_bytes());
    put(
        out,
        C_FLUSHED_THROUGH,
        &root.flushed_through.0.to_le_bytes(),
    );
    put(out, C_LIST, &root.list.to_bytes());
    put(out, C_LIST_PAGES, &root.list_pages.to_le_bytes());
    put(out, C_LAST_VOLUME, &root.last_volume.to_le_bytes());
    put_seqs(out, C_FLUSHED_SEQ, &root.flushed_seq);
    for (slot, position) in out[C_REPLAY..]
        .chunks_exact_mut(POSITION_BYTES)
        .zip(&root.replay)
    {
        put(slot, 0, &position.segment.0.to_le_bytes());
        put(slot, 4, &position.row.to_le_bytes());
        put(slot, 8, &position.seq.0.to_le_bytes());
        put(slot, 16, &position.next_segment.0.to_le_bytes());
    }
}

fn decode_checkpoint(bytes: &[u8]) -> Result<Option<CheckpointRoot>, SuperblockError> {
    match u8_at(bytes, C_PRESENT) {
        0 => return Ok(None),
        1 => {}
        _ => return malformed("a checkpoint is neither there nor absent"),
    }
    let position = |i: usize| {
        let at = C_REPLAY + i * POSITION_BYTES;
        StreamPosition {
            segment: SegmentId(u32_at(bytes, at)),
            row: u32_at(bytes, at + 4),
            seq: BatchSeq(u64_at(bytes, at + 8)),
            next_segment: SegmentId(u32_at(bytes, at + 16)),
        }
    };
    Ok(Some(CheckpointRoot {
        id: u64_at(bytes, C_ID),
        lsn: Lsn(u64_at(bytes, C_LSN)),
        epoch: Epoch(u64_at(bytes, C_EPOCH)),
        replay: std::array::from_fn(position),
        flushed_seq: seqs_at(bytes, C_FLUSHED_SEQ),
        flushed_through: Lsn(u64_at(bytes, C_FLUSHED_THROUGH)),
        list: pointer_at(bytes, C_LIST),
        list_pages: u32_at(bytes, C_LIST_PAGES),
        last_volume: u32_at(bytes, C_LAST_VOLUME),
    }))
}

use super::*;
use crate::bytes::COUNTER_MAX;
use crate::test_config;
use proptest::prelude::*;
use windrow_geometry::{Code, MAX_MEMBERS, Shape};
use windrow_types::{Address, VolumeId};

/// A way to spoil a value.
type Change<T> = dyn Fn(&mut T);

fn uuid(n: u64) -> Uuid {
    let mut bytes = [0x5a; 16];
    bytes[..8].copy_from_slice(&n.to_le_bytes());
    Uuid::from_random(bytes)
}

fn root(id: u64) -> CheckpointRoot {
    let position = |i: usize| StreamPosition {
        segment: SegmentId(i as u32),
        row: 5,
        seq: BatchSeq(id + i as u64),
        next_segment: SegmentId::NONE,
    };
    CheckpointRoot {
        id,
        lsn: Lsn(id * 1000),
        epoch: Epoch(2),
        replay: std::array::from_fn(position),
        flushed_seq: std::array::from_fn(|i| BatchSeq(i as u64)),
        flushed_through: Lsn(id * 999),
        list: PagePointer::to(Address(77), 0xdead_beef, 3, 5),
        list_pages: 3,
        last_volume: VolumeId::INDEX.0 - 1,
    }
}

const JOURNAL_BYTES: u64 = 16 << 20;

/// The largest possible superblock: every table full, every number large.
fn full() -> Superblock {
    let member = |i: u64| MemberRecord {
        uuid: uuid(i),
        state: [
            MemberState::Online,
            MemberState::Absent,
            MemberState::Rebuilding,
            MemberState::Spare,
            MemberState::Removed,
        ][i as usize % 5],
        absence: [Absence::Missing, Absence::Failed, Absence::Offline][i as usize % 3],
        size_bytes: u64::MAX - i,
        absent_since: Generation(i),
        missed_from: i * 3,
        listed_from: i * 5,
        replaces: (i % 2 == 1).then_some(MemberId(i as u8)),
    };
    let shape = Shape {
        width: 63,
        data: 61,
        code: Code::PQ,
        rows: 32,
        chunk_rows: 32,
    };
    let start =
        |i: u32| RESERVED_BYTES + JOURNAL_BYTES + u64::from(i % 32) * 100 * shape.extent_bytes();
    let zone = |i: u32| Zone {
        members: u64::MAX >> 1,
        start: start(i),
        first_segment: i * 100,
        segments: 100,
        shape,
        layout: i / 32,
    };
    let fence = |i: u64| Fence {
        epoch: Epoch(i + 1),
        recovery_lsn: Lsn(i),
        covered_lsn: Lsn(i / 2),
        next_lsn: Lsn(COUNTER_MAX),
        last_seq: [BatchSeq(COUNTER_MAX - i); MAX_STREAMS],
    };
    Superblock {
        features: Features {
            compatible: 1 << 63,
            read_only: 1,
            incompatible: Features::JOURNAL,
        },
        pool: uuid(1000),
        pool_name: "n".repeat(63),
        member: MemberId(63),
        member_uuid: uuid(63),
        generation: Generation(COUNTER_MAX),
        parent_hash: u64::MAX,
        epoch: Epoch(COUNTER_MAX),
        host: uuid(2000),
        state: PoolState::Active,
        redundancy: Redundancy::Double,
        address_offset_bits: 24,
        created_unix_s: u64::MAX,
        members: (0..MAX_MEMBERS as u64).map(member).collect(),
        zones: (0..MAX_ZONES as u32).map(zone).collect(),
        fences: (0..MAX_FENCES as u64).map(fence).collect(),
        checkpoints: [Some(root(8)), Some(root(7))],
        properties: Properties {
            spare_per_mille: 1000,
            seal_age_ms: u32::MAX,
            flush_age_ms: u32::MAX - 1,
            victim_policy: 6,
            victim_number: u16::MAX,
            placement: 6,
            discard: true,
            rebuild_rate: u64::MAX,
            rebuild_rate_min: u64::MAX - 1,
            scrub_interval_days: u16::MAX,
            read_latency_bound_ms: u32::MAX,
            warn_at: [1, 2, 99, 100],
            reduction: Reduction::Capacity,
        },
        journals: Journals {
            internal: JournalArea::fit(
                u64::MAX >> 1,
                3,
                RESERVED_BYTES,
                JOURNAL_BYTES,
                64 << 10,
                4096,
            ),
            external: JournalArea::fit(1 << 63, 1, RESERVED_BYTES, 1 << 30, 256 << 10, 512).map(
                |area| JournalArea {
                    power_safe: true,
                    ..area
                },
            ),
            durable_lsn: Lsn(COUNTER_MAX),
        },
    }
}

/// Recomputes the checksum after a change.
fn resign(bytes: &mut [u8]) {
    let fresh = |bytes: &[u8]| {
        let mut owner = bytes[48..64].to_vec();
        owner.push(bytes[64]);
        xxhash_rust::xxh3::xxh3_64_with_seed(&bytes[16..], xxhash_rust::xxh3::xxh3_64(&owner))
    };
    let checksum = fresh(bytes);
    bytes[8..16].copy_from_slice(&checksum.to_le_bytes());
}

#[test]
fn the_largest_superblock_fits_and_comes_back() {
    let superblock = full();
    let bytes = superblock.encode();
    assert_eq!(bytes.len(), SLOT_BYTES);
    assert_eq!(Superblock::decode(&bytes).unwrap(), superblock);
}

/// Found by fuzzing: the flag alone decoded as a pool without a journal, which could not be encoded
/// again.
#[test]
fn the_flag_of_a_journal_without_a_journal_is_refused() {
    let mut superblock = full();
    superblock.journals = Journals::default();
    superblock.features.incompatible = 0;
    let mut bytes = superblock.encode();
    assert!(Superblock::decode(&bytes).is_ok());
    bytes[40] |= Features::JOURNAL as u8;
    resign(&mut bytes);
    assert!(Superblock::decode(&bytes).is_err());
}

/// The byte was reserved, and zero: an older superblock has no value there. A member that no pool
/// can have is ignored.
#[test]
fn the_member_that_a_spare_replaces_is_zero_in_older_superblocks() {
    let mut superblock = full();
    superblock.members[2].replaces = Some(MemberId(0));
    superblock.members[3].replaces = None;
    let mut bytes = superblock.encode();
    let at = |member: usize| 6144 + 64 * member + 18;
    assert_eq!((bytes[at(2)], bytes[at(3)]), (1, 0));
    bytes[at(2)] = 0;
    for (value, replaces) in [(0, None), (64, Some(MemberId(63))), (65, None), (255, None)] {
        bytes[at(3)] = value;
        resign(&mut bytes);
        let members = Superblock::decode(&bytes).unwrap().members;
        assert_eq!(
            (members[2].replaces, members[3].replaces),
            (None, replaces),
            "{value}"
        );
    }
}

#[test]
fn the_smallest_superblock_comes_back() {
    let mut superblock = full();
    superblock.members.truncate(1);
    superblock.member = MemberId(0);
    superblock.member_uuid = uuid(0);
    superblock.zones.truncate(1);
    superblock.zones[0].members = 1;
    superblock.zones[0].shape = Shape {
        width: 1,
        data: 1,
        code: Code::None,
        rows: 8,
        chunk_rows: 4,
    };
    superblock.fences.clear();
    superblock.checkpoints = [None, None];
    superblock.redundancy = Redundancy::None;
    superblock.address_offset_bits = 11;
    superblock.state = PoolState::Destroyed;
    superblock.journals = Journals::default();
    superblock.features.incompatible = 0;
    assert_eq!(
        Superblock::decode(&superblock.encode()).unwrap(),
        superblock
    );
    superblock.checkpoints[0] = Some(root(1));
    superblock.state = PoolState::Exported;
    assert_eq!(
        Superblock::decode(&superblock.encode()).unwrap(),
        superblock
    );
}

#[test]
fn generations_take_the_slots_in_turn() {
    assert_eq!(
        [0, 1, 2, 3, 4].map(|g| slot_offset(Generation(g))),
        [65536, 131072, 196608, 262144, 65536]
    );
}

#[test]
fn the_kinds_of_refusal_are_distinguished() {
    let good = full().encode();
    let decode = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        Superblock::decode(&bytes).unwrap_err()
    };
    assert_eq!(
        decode(&|b| b.truncate(SLOT_BYTES - 1)),
        SuperblockError::WrongLength
    );
    assert_eq!(decode(&|b| b.fill(0)), SuperblockError::NoSignature);
    assert_eq!(decode(&|b| b[9000] ^= 1), SuperblockError::BadChecksum);
    assert_eq!(
        decode(&|b| b[64] = 62),
        SuperblockError::BadChecksum,
        "the copy of another member"
    );
    assert_eq!(
        decode(&|b| b[60] ^= 1),
        SuperblockError::BadChecksum,
        "the copy of another pool"
    );
    let signed = |change: &dyn Fn(&mut Vec<u8>)| {
        decode(&|b| {
            change(b);
            resign(b);
        })
    };
    assert_eq!(signed(&|b| b[16] = 2), SuperblockError::NewerVersion(2));
    assert_eq!(
        signed(&|b| b[47] = 0x80),
        SuperblockError::UnknownFeatures(1 << 63)
    );
    let malformed: [(&str, &Change<Vec<u8>>); 9] = [
        ("version 0", &|b| b[16] = 0),
        ("65 members", &|b| b[68] = 65),
        ("65 zones", &|b| b[72] = 65),
        ("33 fences", &|b| b[76] = 33),
        ("state", &|b| b[65] = 9),
        ("redundancy", &|b| b[66] = 2),
        ("name", &|b| b[144] = 0),
        ("own entry", &|b| b[6144 + 63 * 64] ^= 1),
        ("checkpoint", &|b| b[1024] = 7),
    ];
    for (what, change) in malformed {
        assert!(
            matches!(signed(change), SuperblockError::Malformed(_)),
            "{what}"
        );
    }
}

fn journal(superblock: &mut Superblock) -> &mut JournalArea {
    superblock
        .journals
        .internal
        .as_mut()
        .expect("the full superblock has a journal")
}

#[test]
fn impossible_relations_are_refused() {
    let wrong: [(&str, &Change<Superblock>); 32] = [
        ("no zone", &|s| s.zones.clear()),
        ("zones out of order", &|s| s.zones[1].first_segment -= 1),
        ("a zone off the grid", &|s| s.zones[40].start += 4096),
        ("extents of two sizes", &|s| s.zones[40].shape.rows = 64),
        ("two zones of a layout in the same extents", &|s| {
            s.zones[40].start = s.zones[41].start
        }),
        ("places that name no segments", &|s| {
            s.address_offset_bits = 46
        }),
        ("places too small for a segment", &|s| {
            s.address_offset_bits = 16
        }),
        ("an empty zone", &|s| s.zones[63].segments = 0),
        ("a zone of members that are not there", &|s| {
            s.members.truncate(63);
            s.member = MemberId(0);
            s.member_uuid = uuid(0);
        }),
        ("a zone in the reserved area", &|s| s.zones[0].start = 4096),
        ("a zone beyond any address", &|s| {
            s.zones[0].start = u64::MAX - 4095
        }),
        ("more segments than places", &|s| {
            s.zones[63].segments = u32::MAX - 10_000
        }),
        ("a journal in the reserved area", &|s| {
            journal(s).start = 4096
        }),
        ("a journal in a zone", &|s| journal(s).start += 4096),
        ("a journal with more copies than members", &|s| {
            journal(s).members = 3
        }),
        ("a journal device that holds data", &|s| {
            s.zones[0].members = u64::MAX
        }),
        ("a journal of odd chunks", &|s| {
            journal(s).chunk_bytes += 512
        }),
        ("fences out of order", &|s| s.fences.swap(0, 1)),
        ("orders used again", &|s| {
            s.fences[3].next_lsn = s.fences[3].recovery_lsn
        }),
        ("more in the log than there is", &|s| {
            s.fences[3].covered_lsn = s.fences[3].recovery_lsn.next()
        }),
        ("checkpoints out of order", &|s| s.checkpoints.swap(0, 1)),
        ("a generation that has no next one", &|s| {
            s.generation = Generation(u64::MAX)
        }),
        ("an epoch that has no next one", &|s| {
            s.epoch = Epoch(u64::MAX)
        }),
        ("a durable LSN beyond any LSN", &|s| {
            s.journals.durable_lsn = Lsn(COUNTER_MAX + 1)
        }),
        ("a fence whose next order has no next one", &|s| {
            s.fences[3].next_lsn = Lsn(u64::MAX)
        }),
        ("a fence after a batch that has no next one", &|s| {
            s.fences[3].last_seq[7] = BatchSeq(u64::MAX)
        }),
        ("a checkpoint that has no next one", &|s| {
            s.checkpoints[0].as_mut().expect("there are two").id = u64::MAX
        }),
        ("a checkpoint of an order that has no next one", &|s| {
            s.checkpoints[1].as_mut().expect("there are two").lsn = Lsn(u64::MAX)
        }),
        (
            "a stream that continues with a batch that has no next one",
            &|s| {
                s.checkpoints[1].as_mut().expect("there are two").replay[6].seq = BatchSeq(u64::MAX)
            },
        ),
        ("a volume that has no next one", &|s| {
            s.checkpoints[0]
                .as_mut()
                .expect("there are two")
                .last_volume = u32::MAX
        }),
        ("a volume of the number of the index's", &|s| {
            s.checkpoints[1]
                .as_mut()
                .expect("there are two")
                .last_volume = VolumeId::INDEX.0
        }),
        ("a stream that continues after any segment", &|s| {
            s.checkpoints[1].as_mut().expect("there are two").replay[6].row = u32::MAX
        }),
    ];
    for (what, change) in wrong {
        let mut superblock = full();
        change(&mut superblock);
        assert!(
            matches!(
                Superblock::decode(&superblock.encode()),
                Err(SuperblockError::Malformed(_))
            ),
            "{what}"
        );
    }
}

#[test]
fn the_content_hash_is_the_same_on_all_members_and_changes_with_the_content() {
    let superblock = full();
    let mut other = superblock.clone();
    other.member = MemberId(5);
    other.member_uuid = uuid(5);
    assert_eq!(superblock.content_hash(), other.content_hash());
    other.features.compatible = 0;
    assert_eq!(
        superblock.content_hash(),
        other.content_hash(),
        "software that ignores a flag sees the same history"
    );
    other.generation = Generation(1);
    assert_ne!(superblock.content_hash(), other.content_hash());
}

#[test]
fn unknown_flags_have_their_three_meanings() {
    let features = |compatible, read_only, incompatible| Features {
        compatible,
        read_only,
        incompatible,
    };
    assert!(features(2, 0, 0).allow_writing());
    assert!(!features(0, 4, 0).allow_writing());
    assert!(!features(0, 0, 1 << 40).allow_writing());
    assert_eq!(
        features(
            Features::GROWING | 2,
            2,
            1 << 40 | Features::STREAMS | Features::SHARED | Features::ZSTD
        )
        .unknown(),
        features(2, 2, 1 << 40)
    );
}

#[test]
fn a_label_comes_back_and_its_faults_are_told_apart() {
    let label = Label {
        version: 1,
        pool: uuid(1),
        pool_name: "tank".into(),
        member_uuid: uuid(2),
        member: MemberId(7),
    };
    let good = label.encode();
    assert_eq!(Label::decode(&good).unwrap(), label);
    let decode = |at: usize, value: u8, sign: bool| {
        let mut bytes = good.clone();
        bytes[at] = value;
        if sign {
            let checksum = xxhash_rust::xxh3::xxh3_64(&bytes[24..]);
            bytes[16..24].copy_from_slice(&checksum.to_le_bytes());
        }
        Label::decode(&bytes).unwrap_err()
    };
    assert_eq!(decode(0, 0, true), SuperblockError::NoSignature);
    assert_eq!(decode(40, 1, false), SuperblockError::BadChecksum);
    assert_eq!(decode(24, 2, true), SuperblockError::NewerVersion(2));
    assert!(matches!(
        decode(28, 64, true),
        SuperblockError::Malformed(_)
    ));
    assert!(matches!(decode(64, 0, true), SuperblockError::Malformed(_)));
    assert_eq!(
        Label::decode(&good[..4095]),
        Err(SuperblockError::WrongLength)
    );
}

proptest! {
    #![proptest_config(test_config(256))]

    #[test]
    fn any_bytes_are_survived(mut bytes in prop::collection::vec(any::<u8>(), SLOT_BYTES), signature in any::<bool>()) {
        if signature {
            bytes[..8].copy_from_slice(&SUPERBLOCK_MAGIC);
            resign(&mut bytes);
        }
        prop_assert!(Superblock::decode(&bytes).is_err());
        bytes[..16].copy_from_slice(&LABEL_MAGIC);
        prop_assert!(Label::decode(&bytes).is_err());
    }

    /// Damage under a valid checksum: either refused, or a value that encodes and decodes to
    /// itself.
    #[test]
    fn what_is_accepted_has_one_meaning(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let mut bytes = full().encode();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        resign(&mut bytes);
        if let Ok(superblock) = Superblock::decode(&bytes) {
            prop_assert_eq!(Superblock::decode(&superblock.encode()).unwrap(), superblock);
        }
    }
}

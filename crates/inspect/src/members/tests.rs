use super::*;
use crate::report::Severity;
use crate::test_pool::TestPool;
use windrow_format::superblock::{FORMAT_VERSION, MemberRecord, RESERVED_BYTES, slot_offset};
use windrow_geometry::Redundancy;
use windrow_types::{Generation, Uuid};

fn pool() -> TestPool {
    let mut pool = TestPool::new(Redundancy::Double, 6);
    pool.save();
    pool.save();
    pool
}

fn kinds(report: &InspectReport) -> Vec<(FindingKind, Severity)> {
    let mut kinds: Vec<_> = report
        .findings
        .list
        .iter()
        .map(|f| (f.kind, f.severity))
        .collect();
    kinds.dedup();
    kinds
}

#[test]
fn a_sound_pool_has_a_label_slots_and_a_quorum() {
    let mut pool = pool();
    let report = inspect_members(&mut pool.io);
    assert!(report.quorum && report.findings.list.is_empty());
    assert_eq!(report.newest.unwrap().generation, Generation(3));
    for member in &report.members {
        assert!(member.usable && member.label.is_some());
        let generations: Vec<Option<u64>> = member
            .slots
            .iter()
            .map(|s| s.generation.map(|g| g.0))
            .collect();
        assert_eq!(generations, [None, Some(1), Some(2), Some(3)]);
        assert_eq!(member.slots[0].problem.as_deref(), Some("no signature"));
    }
}

#[test]
fn a_generation_that_reached_one_member_rules() {
    let mut pool = pool();
    pool.superblock.parent_hash = pool.saved_hash;
    pool.superblock.generation = Generation(4);
    let copy = pool.superblock_of(3);
    pool.put(MemberId(3), slot_offset(Generation(4)), &copy.encode());
    let report = inspect_members(&mut pool.io);
    assert!(
        report.quorum && report.findings.list.is_empty(),
        "{:?}",
        report.findings
    );
    assert_eq!(report.newest.unwrap().generation, Generation(4));
    assert!(report.members.iter().all(|m| m.usable));
}

#[test]
fn a_torn_slot_is_a_note_and_the_generation_before_rules() {
    let mut pool = pool();
    for member in 0..6 {
        pool.put(MemberId(member), slot_offset(Generation(3)) + 9000, &[0xff]);
    }
    let report = inspect_members(&mut pool.io);
    assert_eq!(kinds(&report), [(FindingKind::SlotWrong, Severity::Note)]);
    assert_eq!(report.newest.unwrap().generation, Generation(2));
}

#[test]
fn half_of_the_members_are_no_quorum_unless_the_others_are_recorded() {
    let mut pool = pool();
    let all = pool.io.members.clone();
    for member in 0..3 {
        pool.io.members[member] = None;
    }
    let report = inspect_members(&mut pool.io);
    assert!(
        !report.quorum && kinds(&report).contains(&(FindingKind::QuorumMissing, Severity::Error))
    );
    pool.io.members = all;
    for member in 0..3 {
        pool.superblock.members[member].state = MemberState::Absent;
    }
    pool.save();
    for member in 0..3 {
        pool.io.members[member] = None;
    }
    let report = inspect_members(&mut pool.io);
    assert!(
        !report
            .findings
            .list
            .iter()
            .any(|finding| finding.message.contains("another host")),
        "{:?}",
        report.findings
    );
}

/// More than half are present, but more are missing than the redundancy covers: such a pool must
/// not be reported as importable.
#[test]
fn too_few_for_the_redundancy_cannot_be_imported() {
    let mut pool = TestPool::new(Redundancy::Single, 6);
    assert!(inspect_members(&mut pool.io).quorum);
    pool.io.members[1] = None;
    assert!(inspect_members(&mut pool.io).quorum);
    pool.io.members[2] = None;
    assert!(!inspect_members(&mut pool.io).quorum);
}

#[test]
fn a_stale_member_does_not_count() {
    let mut pool = pool();
    let old = pool.io.members[1].clone();
    pool.save();
    pool.save();
    pool.io.members[1] = old;
    let report = inspect_members(&mut pool.io);
    assert_eq!(
        kinds(&report),
        [(FindingKind::MemberAbsent, Severity::Repairable)]
    );
    assert!(!report.members[1].usable && report.members[0].usable);
}

#[test]
fn two_histories_are_distinguished() {
    let mut pool = pool();
    let mut other = pool.superblock_of(5);
    other.host = Uuid([9; 16]);
    pool.put(MemberId(5), slot_offset(Generation(3)), &other.encode());
    let report = inspect_members(&mut pool.io);
    assert_eq!(kinds(&report)[0], (FindingKind::Diverged, Severity::Error));
}

/// Power failed while the last generation was written, and only the journal device had received it.
/// The next start could not read the device, and continued with a sibling of the same number
/// (simulator, seed 4155 with journal devices only).
#[test]
fn a_diverged_journal_device_must_be_replaced() {
    let mut pool = TestPool::with_journal_devices(Redundancy::Double, 6, 1);
    let device = MemberId(6);
    pool.superblock.members[6].state = MemberState::Absent;
    pool.save();
    let mut other = pool.superblock_of(device.0);
    other.members[6].state = MemberState::Online;
    pool.put(
        device,
        slot_offset(pool.superblock.generation),
        &other.encode(),
    );
    let report = inspect_members(&mut pool.io);
    assert!(
        kinds(&report).contains(&(FindingKind::Diverged, Severity::Repairable)),
        "{:?}",
        report.findings
    );
    assert!(
        report.quorum && report.findings.worst == Some(Severity::Repairable),
        "{:?}",
        report.findings
    );
}

#[test]
fn a_member_of_another_pool_and_a_damaged_label_are_reported() {
    let mut pool = pool();
    let mut stranger = TestPool::new(Redundancy::Double, 6);
    stranger.superblock.pool = Uuid([8; 16]);
    stranger.save();
    pool.io.members[4] = stranger.io.members[4].clone();
    pool.put(MemberId(2), 4096 + 40, &[0xff; 8]);
    let report = inspect_members(&mut pool.io);
    let found = kinds(&report);
    assert!(
        found.contains(&(FindingKind::LabelWrong, Severity::Repairable))
            && found.contains(&(FindingKind::LabelWrong, Severity::Error))
    );
    assert!(report.members[2].label_problem.is_some() && report.members[2].usable);
    assert_eq!(report.newest.unwrap().pool, pool.superblock.pool);
}

/// Power failed while a growth was recorded. One new member holds that generation, and the old
/// members have continued without it with a sibling of the same number.
#[test]
fn a_reverted_growth_on_a_spare_does_not_rule() {
    let mut pool = pool();
    let (spare, uuid) = (MemberId(6), Uuid([99; 16]));
    pool.superblock
        .members
        .push(MemberRecord::new(uuid, MemberState::Spare, 1 << 30));
    pool.io.members.push(Some(vec![0; RESERVED_BYTES as usize]));
    let label = Label {
        version: FORMAT_VERSION,
        pool: pool.superblock.pool,
        pool_name: pool.superblock.pool_name.clone(),
        member_uuid: uuid,
        member: spare,
    };
    pool.put(spare, LABEL_OFFSET, &label.encode());
    pool.save();
    let mut left = Superblock {
        member: spare,
        member_uuid: uuid,
        ..pool.superblock.clone()
    };
    left.members[6].state = MemberState::Online;
    (0..SLOT_COUNT).for_each(|slot| pool.put(spare, SLOT_OFFSET + slot * SLOT_STRIDE, &[0; 8]));
    pool.put(spare, slot_offset(left.generation), &left.encode());
    let report = inspect_members(&mut pool.io);
    assert_eq!(
        report.newest.as_ref().map(|newest| newest.members[6].state),
        Some(MemberState::Spare)
    );
    assert!(
        report.quorum && kinds(&report) == [(FindingKind::Diverged, Severity::Note)],
        "{:?}",
        report.findings
    );
}

/// Two of three old members with double redundancy: the third may have continued with the new ones.
#[test]
fn a_growing_pool_needs_more_members_than_its_redundancy() {
    let mut pool = TestPool::new(Redundancy::Copies(3), 3);
    pool.superblock.set_growing(true);
    pool.save();
    assert!(inspect_members(&mut pool.io).quorum);
    pool.io.members[1] = None;
    let report = inspect_members(&mut pool.io);
    assert!(
        !report.quorum && kinds(&report).contains(&(FindingKind::QuorumMissing, Severity::Error))
    );
    pool.superblock.set_growing(false);
    pool.save();
    assert!(inspect_members(&mut pool.io).quorum);
}

/// Reduction as capacity without its flag: older software would open the pool and limit it by
/// blocks.
#[test]
fn capacity_comes_with_its_flag() {
    let mut pool = pool();
    pool.superblock.properties.reduction = Reduction::Capacity;
    pool.save();
    assert_eq!(
        kinds(&inspect_members(&mut pool.io)),
        [(FindingKind::FlagMissing, Severity::Repairable)]
    );
    pool.superblock.features.incompatible |= Features::CAPACITY;
    pool.save();
    let report = inspect_members(&mut pool.io);
    assert!(report.findings.list.is_empty(), "{:?}", report.findings);
}

/// Power failed while a spare replaced another member: its label named that slot already, and it
/// was still a spare. The label is a hint and is not rewritten (simulator, seed 10104325).
#[test]
fn a_label_may_name_a_slot_that_the_device_did_not_get() {
    let mut pool = pool();
    let member = MemberId(3);
    let uuid = pool.superblock.members[3].uuid;
    let label = |member_uuid| Label {
        version: FORMAT_VERSION,
        pool: pool.superblock.pool,
        pool_name: "another".to_owned(),
        member_uuid,
        member: MemberId(0),
    };
    let (hint, stranger) = (label(uuid).encode(), label(Uuid([77; 16])).encode());
    pool.put(member, LABEL_OFFSET, &hint);
    assert_eq!(kinds(&inspect_members(&mut pool.io)), []);
    pool.put(member, LABEL_OFFSET, &stranger);
    assert_eq!(
        kinds(&inspect_members(&mut pool.io)),
        [(FindingKind::LabelWrong, Severity::Repairable)]
    );
}

/// Power failed right after the exchange of a member in service: only other members have the
/// generation with the new device. The start identifies the device by its UUID, so the check must
/// not call the member missing (simulator, seed 34000020).
#[test]
fn a_device_that_was_just_exchanged_has_the_preceding_generation() {
    let mut pool = pool();
    let new = Uuid([77; 16]);
    let size_bytes = pool.superblock.members[3].size_bytes;
    pool.superblock
        .members
        .push(MemberRecord::new(new, MemberState::Spare, size_bytes));
    pool.io.members.push(None);
    pool.save();
    let of_spare = pool.superblock_of(6);
    pool.superblock.members[3].uuid = new;
    (
        pool.superblock.members[6].uuid,
        pool.superblock.members[6].state,
    ) = (Uuid::default(), MemberState::Removed);
    pool.save();
    for slot in 0..SLOT_COUNT {
        pool.put(
            MemberId(3),
            SLOT_OFFSET + slot * SLOT_STRIDE,
            &[0; SLOT_BYTES],
        );
    }
    let label = Label {
        version: FORMAT_VERSION,
        pool: pool.superblock.pool,
        pool_name: "test".to_owned(),
        member_uuid: new,
        member: MemberId(6),
    };
    pool.put(MemberId(3), LABEL_OFFSET, &label.encode());
    pool.put(
        MemberId(3),
        slot_offset(of_spare.generation),
        &of_spare.encode(),
    );
    let report = inspect_members(&mut pool.io);
    assert_eq!(
        kinds(&report),
        [(FindingKind::SlotWrong, Severity::Note)],
        "{:?}",
        report.findings
    );
    assert!(report.quorum && report.members[3].usable);
    // They say nothing about a device that the pool has in another slot.
    pool.superblock.members[3].uuid = Uuid([78; 16]);
    pool.superblock.generation = pool.superblock.generation.next();
    for member in (0..6).filter(|member| *member != 3) {
        let copy = pool.superblock_of(member);
        pool.put(
            MemberId(member),
            slot_offset(copy.generation),
            &copy.encode(),
        );
    }
    assert!(!inspect_members(&mut pool.io).members[3].usable);
}

/// Superblocks from a device's previous slot say nothing about another member (simulator, seed
/// 10105741).
#[test]
fn superblocks_of_another_slot_are_distinguished_from_those_of_another_device() {
    let mut pool = pool();
    (0..3).for_each(|_| pool.save());
    let member = MemberId(3);
    let old = slot_offset(Generation(3));
    let mut moved = Superblock {
        member: MemberId(0),
        generation: Generation(3),
        ..pool.superblock_of(member.0)
    };
    moved.members.swap(0, 3);
    let moved = moved.encode();
    Superblock::decode(&moved).expect("it is a superblock");
    pool.put(member, old, &moved);
    let report = inspect_members(&mut pool.io);
    assert_eq!(
        kinds(&report),
        [(FindingKind::SlotWrong, Severity::Note)],
        "{:?}",
        report.findings
    );
    assert!(report.quorum && report.members[3].usable);
    let another = pool.superblock_of(0);
    pool.put(member, old, &another.encode());
    assert_eq!(
        kinds(&inspect_members(&mut pool.io)),
        [(FindingKind::LabelWrong, Severity::Error)]
    );
}

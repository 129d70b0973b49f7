//! Labels, superblock slots, and the choice of the ruling superblock.
//!
//! 1. Read label and all four slots of every present member.
//! 2. The pool is the one that most members belong to.
//! 3. The newest valid generation of that pool rules. A member that is not in its table counts as
//!    absent. The same generation with another content, or a child that does not name its parent,
//!    is a divergence. Of several contents of one generation the one rules that does not use the
//!    members holding another one.
//! 4. A member is usable if it is online in the ruling superblock and at most one generation older.
//! 5. Quorum: more than half of the members that are not removed are usable, or every other one is
//!    recorded as absent. A retired journal device may be read nevertheless (`mark_retired`) if
//!    durable LSNs are missing.
//! 6. While the pool is marked as growing, more members of one zone must be present than the
//!    redundancy covers: a generation with more members may exist elsewhere, which must not start
//!    without them.

use crate::report::{
    Finding, FindingKind, Findings, InspectReport, MemberReport, Severity, SlotReport,
};
use std::collections::BTreeMap;
use windrow_format::superblock::{
    Features, LABEL_BYTES, LABEL_OFFSET, Label, MemberState, PoolState, Reduction, SLOT_BYTES,
    SLOT_COUNT, SLOT_OFFSET, SLOT_STRIDE, Superblock, SuperblockError,
};
use windrow_geometry::{JournalArea, MAX_MEMBERS, Zone};
use windrow_io::MemberIo;
use windrow_types::{BLOCK_BYTES, MemberId, PoolUuid};

/// A member and its decoded metadata.
struct Found {
    report: MemberReport,
    superblocks: Vec<Superblock>,
}

/// Reads labels and superblocks of all members and determines the ruling superblock. Writes
/// nothing.
pub fn inspect_members(io: &mut dyn MemberIo) -> InspectReport {
    let mut findings = Findings::default();
    let count = io.member_count().min(MAX_MEMBERS) as u8;
    let mut found: Vec<Found> = (0..count)
        .map(|m| read_member(io, MemberId(m), &mut findings))
        .collect();
    let pool = most_common_pool(&found);
    for member in &mut found {
        drop_foreign(member, pool, &mut findings);
    }
    let (newest, rules) = ruling(&found).map_or((None, false), |(newest, rules)| {
        (Some(newest.clone()), rules)
    });
    check_labels(&found, newest.as_ref(), &mut findings);
    let mut quorum = false;
    if let Some(newest) = &newest {
        found
            .iter_mut()
            .for_each(|member| drop_stranger(member, newest, &mut findings));
        check_history(&found, newest, &mut findings);
        quorum = judge_members(&mut found, newest, &mut findings) && rules;
        check_leaving(newest, &mut findings);
        check_reduction(newest, &mut findings);
        mark_retired(&mut found, newest);
        if newest.state == PoolState::Destroyed {
            findings.add(Finding::new(
                Severity::Note,
                FindingKind::PoolDestroyed,
                "the pool was destroyed",
            ));
        }
    }
    let refused = [
        FindingKind::QuorumMissing,
        FindingKind::JournalMissing,
        FindingKind::NewerSoftware,
    ];
    quorum &= !findings
        .list
        .iter()
        .any(|finding| finding.severity == Severity::Error && refused.contains(&finding.kind));
    InspectReport {
        members: found.into_iter().map(|f| f.report).collect(),
        newest,
        quorum,
        findings,
    }
}

fn read_member(io: &mut dyn MemberIo, member: MemberId, findings: &mut Findings) -> Found {
    let present = io.is_present(member);
    let size_bytes = if present { io.size(member) } else { 0 };
    let mut report = MemberReport {
        member,
        present,
        size_bytes,
        label: None,
        label_problem: None,
        slots: Vec::new(),
        generation: None,
        usable: false,
        retired: false,
    };
    let mut superblocks = Vec::new();
    if !present {
        return Found {
            report,
            superblocks,
        };
    }
    let mut bytes = vec![0; LABEL_BYTES];
    let label = io
        .read(member, LABEL_OFFSET, &mut bytes)
        .map_err(|e| e.to_string());
    match label.and_then(|()| Label::decode(&bytes).map_err(|e| e.to_string())) {
        Ok(label) => report.label = Some(label),
        Err(problem) => report.label_problem = Some(problem),
    }
    for slot in 0..SLOT_COUNT {
        let (slot, superblock) = read_slot(io, member, slot, findings);
        report.slots.push(slot);
        superblocks.extend(superblock);
    }
    Found {
        report,
        superblocks,
    }
}

fn read_slot(
    io: &mut dyn MemberIo,
    member: MemberId,
    slot: u64,
    findings: &mut Findings,
) -> (SlotReport, Option<Superblock>) {
    let offset = SLOT_OFFSET + slot * SLOT_STRIDE;
    let mut report = SlotReport {
        slot,
        offset,
        problem: None,
        generation: None,
        epoch: None,
        content_hash: None,
        parent_hash: None,
    };
    let mut bytes = vec![0; SLOT_BYTES];
    let mut is_newer = false;
    let decoded = match io.read(member, offset, &mut bytes) {
        Ok(()) => Superblock::decode(&bytes).map_err(|e| {
            is_newer = matches!(
                e,
                SuperblockError::NewerVersion(_) | SuperblockError::UnknownFeatures(_)
            );
            (e.to_string(), e == SuperblockError::NoSignature)
        }),
        Err(e) => Err((e.to_string(), false)),
    };
    match decoded {
        Ok(superblock) => {
            report.generation = Some(superblock.generation);
            report.epoch = Some(superblock.epoch);
            report.content_hash = Some(superblock.content_hash());
            report.parent_hash = Some(superblock.parent_hash);
            (report, Some(superblock))
        }
        Err((problem, unused)) => {
            if is_newer {
                // The other slots are older and do not describe the present.
                let message = format!("superblock slot {slot}: {problem}");
                findings.add(
                    Finding::new(Severity::Error, FindingKind::NewerSoftware, message)
                        .member(member),
                );
            } else if !unused {
                // A crash during a slot write leaves this; the other slots exist for that case.
                findings.add(
                    Finding::new(
                        Severity::Note,
                        FindingKind::SlotWrong,
                        format!("superblock slot {slot}: {problem}"),
                    )
                    .member(member),
                );
            }
            report.problem = Some(problem);
            (report, None)
        }
    }
}

fn most_common_pool(found: &[Found]) -> Option<PoolUuid> {
    let mut votes: BTreeMap<PoolUuid, usize> = BTreeMap::new();
    for member in found {
        if let Some(newest) = member.superblocks.iter().max_by_key(|s| s.generation) {
            *votes.entry(newest.pool).or_default() += 1;
        }
    }
    votes
        .into_iter()
        .max_by_key(|(_, votes)| *votes)
        .map(|(pool, _)| pool)
}

/// Chooses among the superblocks of the newest generation one that does not use the members holding
/// another one, else any. The flag is true in the first case.
fn ruling(found: &[Found]) -> Option<(&Superblock, bool)> {
    let all = || found.iter().flat_map(|f| &f.superblocks);
    let generation = all().map(|s| s.generation).max()?;
    let holders = || all().filter(|s| s.generation == generation);
    let has_use_for = |s: &Superblock, other: &Superblock| {
        s.members
            .get(other.member.index())
            .is_some_and(|record| record.uuid == other.member_uuid && record.is_in_use())
    };
    let rules = |s: &&Superblock| {
        holders().all(|other| other.content_hash() == s.content_hash() || !has_use_for(s, other))
    };
    holders()
        .find(rules)
        .map(|superblock| (superblock, true))
        .or_else(|| holders().next_back().map(|superblock| (superblock, false)))
}

/// Drops superblocks of other pools and other members, and compares the label. A device may hold
/// superblocks of its previous member slot, or of one that it was to get as a spare when power
/// failed; its label then names a slot it does not have. It is identified by its UUID, as at a
/// start. If a spare has just become a member, the generation with that change may not have reached
/// it; it then holds the preceding one.
fn drop_foreign(found: &mut Found, pool: Option<PoolUuid>, findings: &mut Findings) {
    let member = found.report.member;
    let Some(pool) = pool else { return };
    let own = found
        .report
        .label
        .as_ref()
        .map(|label| (label.pool, label.member_uuid));
    let has_moved = |s: &Superblock| s.pool == pool && Some((s.pool, s.member_uuid)) == own;
    let others = || {
        found
            .superblocks
            .iter()
            .filter(|s| s.pool != pool || s.member != member)
    };
    if !others().all(has_moved) {
        let message = "superblocks of another pool or another member";
        findings
            .add(Finding::new(Severity::Error, FindingKind::LabelWrong, message).member(member));
    } else if others().next().is_some() {
        let message = "superblocks of another member slot that this device had, or was to get";
        findings.add(Finding::new(Severity::Note, FindingKind::SlotWrong, message).member(member));
    }
    found
        .superblocks
        .retain(|s| s.pool == pool && (s.member == member || has_moved(s)));
    found.superblocks.iter_mut().for_each(|s| s.member = member);
    found.report.generation = found.superblocks.iter().map(|s| s.generation).max();
    let newest = found.superblocks.iter().max_by_key(|s| s.generation);
    if let (Some(own), Some(newest)) = (own, newest)
        && own != (newest.pool, newest.member_uuid)
    {
        findings.add(
            Finding::new(
                Severity::Repairable,
                FindingKind::LabelWrong,
                "label and superblock disagree",
            )
            .member(member),
        );
    }
}

/// Content of an unused slot is not the pool's: the device has left, and may have been wiped.
fn check_labels(found: &[Found], newest: Option<&Superblock>, findings: &mut Findings) {
    for Found { report, .. } in found {
        let record = newest.and_then(|newest| newest.members.get(report.member.index()));
        let has_left = record.is_some_and(|record| record.state == MemberState::Removed);
        if let Some(problem) = report.label_problem.as_ref().filter(|_| !has_left) {
            findings.add(
                Finding::new(
                    Severity::Repairable,
                    FindingKind::LabelWrong,
                    format!("label: {problem}"),
                )
                .member(report.member),
            );
        }
    }
}

/// A leaving member must agree between the zones and the feature flag.
fn check_leaving(newest: &Superblock, findings: &mut Findings) {
    let current = newest
        .zones
        .iter()
        .map(|zone| zone.layout)
        .max()
        .unwrap_or(0);
    let of = |newest_too: bool| {
        newest
            .zones
            .iter()
            .filter(move |zone| (zone.layout == current) == newest_too)
            .fold(0u64, |mask, zone| mask | zone.members)
    };
    let leaving = of(false) & !of(true);
    if (leaving != 0) != (newest.features.incompatible & Features::LEAVING != 0) {
        let message = "the feature flag of a leaving member contradicts the zones";
        findings.add(Finding::new(
            Severity::Repairable,
            FindingKind::MemberAbsent,
            message,
        ));
    }
    for (index, record) in newest
        .members
        .iter()
        .enumerate()
        .filter(|(index, _)| leaving >> index & 1 == 1)
    {
        let (severity, message) = match record.state {
            MemberState::Removed | MemberState::Spare => {
                (Severity::Error, "it is in the zones, but is not a member")
            }
            _ => (
                Severity::Note,
                "it is leaving the pool: its data moves to the other members",
            ),
        };
        findings.add(
            Finding::new(severity, FindingKind::MemberAbsent, message)
                .member(MemberId(index as u8)),
        );
    }
}

/// Reduction as capacity requires its flag: software that does not know it would limit the pool by
/// blocks.
fn check_reduction(newest: &Superblock, findings: &mut Findings) {
    if newest.properties.reduction == Reduction::Capacity
        && newest.features.incompatible & Features::CAPACITY == 0
    {
        let message = "reduction is set to capacity, but its feature flag is missing: older software would open the pool";
        findings.add(Finding::new(
            Severity::Repairable,
            FindingKind::FlagMissing,
            message,
        ));
    }
}

/// Drops superblocks of a device that the pool does not have in this slot (the old one after a
/// replacement).
fn drop_stranger(found: &mut Found, newest: &Superblock, findings: &mut Findings) {
    let member = found.report.member;
    let is_known = |s: &Superblock| {
        newest
            .members
            .get(member.index())
            .is_some_and(|record| record.uuid == s.member_uuid)
    };
    if found.superblocks.iter().all(is_known) {
        return;
    }
    found.superblocks.retain(is_known);
    found.report.generation = found.superblocks.iter().map(|s| s.generation).max();
    if found.superblocks.is_empty() {
        let message = "the device in its slot does not belong to the pool";
        findings
            .add(Finding::new(Severity::Note, FindingKind::MemberAbsent, message).member(member));
    }
}

fn check_history(found: &[Found], newest: &Superblock, findings: &mut Findings) {
    let hash = newest.content_hash();
    for member in found {
        for superblock in &member.superblocks {
            let distance = newest.generation.0 - superblock.generation.0;
            let diverged = match distance {
                0 => superblock.content_hash() != hash,
                1 => superblock.content_hash() != newest.parent_hash,
                _ => false,
            };
            if diverged {
                let message = format!(
                    "generation {} is not of the same history as generation {}",
                    superblock.generation, newest.generation
                );
                // A reverted growth leaves this on devices that are spares again. A journal device
                // that alone received a generation before a power failure, and was unreadable at
                // the next start, does not count until it is replaced.
                let is_spare = newest
                    .members
                    .get(member.report.member.index())
                    .is_some_and(|record| record.state == MemberState::Spare);
                let is_device = newest.journals.devices() >> member.report.member.0 & 1 == 1;
                let severity = match () {
                    () if is_spare => Severity::Note,
                    () if is_device => Severity::Repairable,
                    () => Severity::Error,
                };
                findings.add(
                    Finding::new(severity, FindingKind::Diverged, message)
                        .member(member.report.member),
                );
            }
        }
    }
}

/// Marks the journal devices that have left or are being rebuilt, and whose newest superblock is an
/// ancestor of the ruling one. Ancestry is followed from parent to parent by content, as far as
/// some member still holds them.
fn mark_retired(found: &mut [Found], newest: &Superblock) {
    let mut past = vec![(newest.generation.0, newest.content_hash())];
    let mut parent = Some((newest.generation.0.wrapping_sub(1), newest.parent_hash));
    while let Some((generation, hash)) = parent {
        past.push((generation, hash));
        let of_it = found
            .iter()
            .flat_map(|f| &f.superblocks)
            .find(|s| s.generation.0 == generation && s.content_hash() == hash);
        parent = of_it
            .filter(|s| s.generation.0 > 0)
            .map(|s| (s.generation.0 - 1, s.parent_hash));
    }
    for member in found
        .iter_mut()
        .filter(|f| newest.journals.devices() >> f.report.member.0 & 1 == 1)
    {
        let record = newest.members.get(member.report.member.index());
        let left = record.is_some_and(|record| {
            matches!(record.state, MemberState::Absent | MemberState::Rebuilding)
        });
        let own = member.superblocks.iter().max_by_key(|s| s.generation);
        member.report.retired =
            left && own.is_some_and(|s| past.contains(&(s.generation.0, s.content_hash())));
    }
}

/// Reason that a device is too small for its contents: a truncated file, a shrunk partition. A
/// start treats it as absent.
fn too_small(newest: &Superblock, member: MemberId, size_bytes: u64) -> Option<String> {
    let record = newest.members.get(member.index())?;
    // Block devices may be slightly smaller if no extent is affected.
    if size_bytes >= record.size_bytes {
        return None;
    }
    let end_of = |zone: &Zone| {
        // Extent `x` of a zone of `m` members is on the one with index `x mod m`
        // (docs/internals/format.md, 6).
        let (index, members) = (
            u64::from((zone.members & ((1 << member.0) - 1)).count_ones()),
            u64::from(zone.members.count_ones()),
        );
        let extents = u64::from(zone.segments) * u64::from(zone.shape.width);
        zone.start
            + extents.saturating_sub(index).div_ceil(members)
                * u64::from(zone.shape.rows)
                * BLOCK_BYTES
    };
    let zones = newest
        .zones
        .iter()
        .filter(|zone| zone.members >> member.0 & 1 == 1)
        .map(end_of);
    let journals = newest
        .journals
        .areas()
        .filter(|area| area.members >> member.0 & 1 == 1)
        .map(JournalArea::end);
    let needed = zones.chain(journals).max().unwrap_or(0);
    (size_bytes < needed)
        .then(|| format!("it has {size_bytes} bytes, the pool needs {needed}: it is not used"))
}

/// Sets `usable`; returns true if there is a quorum.
fn judge_members(found: &mut [Found], newest: &Superblock, findings: &mut Findings) -> bool {
    let (mut counted, mut present, mut unexplained, mut missing) = (0, 0, 0, 0);
    let (mut devices, mut devices_there) = (0, 0);
    for (index, record) in newest.members.iter().enumerate() {
        let member = MemberId(index as u8);
        if record.state == MemberState::Spare
            && !found.get(index).is_some_and(|found| found.report.present)
        {
            findings.add(
                Finding::new(
                    Severity::Note,
                    FindingKind::MemberAbsent,
                    "a spare: missing, or without a label",
                )
                .member(member),
            );
        }
        if matches!(record.state, MemberState::Removed | MemberState::Spare) {
            continue;
        }
        // Journal-only devices have no vote, and no part of a row.
        let votes = newest.journals.devices() >> member.0 & 1 == 0;
        counted += usize::from(votes);
        let report = found.get_mut(index).map(|f| &mut f.report);
        let generation = report.as_ref().and_then(|r| r.generation);
        let recorded_absent = matches!(record.state, MemberState::Absent | MemberState::Rebuilding);
        let too_small = report
            .as_ref()
            .filter(|r| r.present)
            .and_then(|r| too_small(newest, member, r.size_bytes));
        let current =
            generation.is_some_and(|g| g.next() >= newest.generation) && too_small.is_none();
        let is_there = current && !recorded_absent;
        present += usize::from(votes && is_there);
        unexplained += usize::from(votes && !current && !recorded_absent);
        devices += usize::from(!votes && !recorded_absent);
        devices_there += usize::from(!votes && is_there);
        if is_there {
            report.into_iter().for_each(|r| r.usable = true);
            continue;
        }
        missing += usize::from(votes);
        let (severity, message) = match (recorded_absent, generation) {
            (true, _) if record.state == MemberState::Rebuilding => (
                Severity::Repairable,
                "being rebuilt: it does not count yet".to_owned(),
            ),
            (true, _) => (
                Severity::Repairable,
                format!(
                    "recorded as absent since generation {}",
                    record.absent_since
                ),
            ),
            (false, _) if too_small.is_some() => {
                (Severity::Repairable, too_small.unwrap_or_default())
            }
            (false, None) => (
                Severity::Repairable,
                "missing, or without a valid superblock".to_owned(),
            ),
            (false, Some(g)) => (
                Severity::Repairable,
                format!("stale: generation {g} of {}", newest.generation),
            ),
        };
        findings.add(Finding::new(severity, FindingKind::MemberAbsent, message).member(member));
    }
    if newest.state == PoolState::Active && devices > 0 && devices_there == 0 {
        let message = "no journal device is present: durable operations may exist only there";
        findings.add(Finding::new(
            Severity::Error,
            FindingKind::JournalMissing,
            message,
        ));
    }
    let is_here = |f: &&Found| {
        !f.superblocks.is_empty()
            && too_small(newest, f.report.member, f.report.size_bytes).is_none()
    };
    let here = found
        .iter()
        .filter(is_here)
        .fold(0u64, |mask, f| mask | 1 << f.report.member.0);
    let needed_elsewhere = newest
        .zones
        .iter()
        .any(|zone| (zone.members & here).count_ones() as usize > zone.shape.tolerance());
    let alone = !newest.is_growing() || needed_elsewhere;
    let quorum = alone && (2 * present > counted || unexplained == 0);
    if !alone {
        let message = "too few members are present while the pool is growing: the others may have continued with the new ones";
        findings.add(Finding::new(
            Severity::Error,
            FindingKind::QuorumMissing,
            message,
        ));
    } else if !quorum {
        let message =
            format!("{present} of {counted} members are present: another host may have the others");
        findings.add(Finding::new(
            Severity::Error,
            FindingKind::QuorumMissing,
            message,
        ));
    }
    if missing > newest.redundancy.tolerance() {
        let message = format!(
            "{missing} members are missing, the redundancy covers {}",
            newest.redundancy.tolerance()
        );
        findings.add(Finding::new(
            Severity::Error,
            FindingKind::QuorumMissing,
            message,
        ));
    }
    quorum
}

#[cfg(test)]
mod tests;

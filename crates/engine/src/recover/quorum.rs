//! Quorum: the ruling superblock, and the members that may be trusted.
//!
//! The newest valid generation rules. It is trusted if more than half of the pool's members are
//! present, or if every missing member is recorded absent in it. Then no other side can have
//! continued without these. A member that the table calls online, but whose own superblock is more
//! than one generation old, has missed something and is not used. (A generation is complete on all
//! online members before the next begins, so a crash leaves a lag of at most one.)
//!
//! If the ruling generation is marked as growing, another generation may exist in which further
//! members hold data and by which nothing was written. A start without that one takes it back for
//! good. In addition to its own quorum it needs more members of one of its zones than the
//! redundancy covers. Then the other generation cannot start without them
//! (docs/internals/reshape.md).
//!
//! A member that was recorded absent and is present again is rebuilt (docs/internals/members.md).
//! If it is the one that left it keeps its content, else it is rebuilt completely. Until then it is
//! not read, and counts as lost. One whose own history continued without the pool stays out.
//!
//! A device with superblocks of the pool that is not in its table (the old one after a replacement)
//! is treated as absent, and noted. The same holds if it is smaller than the pool's data on it (a
//! truncated file, a shrunken partition).

use super::OpenError;
use super::retired::{self, Slots};
use crate::api::OpenOptions;
use crate::store::member::slot_state::{self, Change, Found};
use crate::store::member::{needed_bytes, no_quorum_without};
use windrow_format::superblock::{
    MemberRecord, MemberState, PoolState, SLOT_BYTES, SLOT_COUNT, SLOT_OFFSET, SLOT_STRIDE,
    Superblock, SuperblockError,
};
use windrow_geometry::{Redundancy, ZoneMap};
use windrow_io::MemberIo;
use windrow_types::{MemberId, Uuid};

/// Valid superblocks of one member.
fn slots_of(
    io: &mut dyn MemberIo,
    member: MemberId,
    why: &mut String,
    newer: &mut Option<OpenError>,
) -> Vec<Superblock> {
    let mut valid = Vec::new();
    let mut slot_bytes = vec![0u8; SLOT_BYTES];
    for slot in 0..SLOT_COUNT {
        let read = io.read(member, SLOT_OFFSET + slot * SLOT_STRIDE, &mut slot_bytes);
        let decode = |()| {
            Superblock::decode(&slot_bytes).map_err(|error| {
                match error {
                    SuperblockError::NewerVersion(version) => {
                        *newer = Some(OpenError::NewerVersion(version))
                    }
                    SuperblockError::UnknownFeatures(incompatible) => {
                        *newer = Some(OpenError::Features {
                            incompatible,
                            read_only: 0,
                        })
                    }
                    _ => {}
                }
                error.to_string()
            })
        };
        match read.map_err(|e| e.to_string()).and_then(decode) {
            Ok(superblock) => valid.push(superblock),
            Err(error) => *why = error,
        }
    }
    valid
}

/// The ruling superblock.
pub(super) struct Ruling {
    /// As found.
    pub(super) found: Superblock,
    /// As used: its member table has `Absent` for every member that must not be used.
    pub(super) superblock: Superblock,
    /// Members in use that are one generation behind because a crash cut its writing short. They
    /// are updated before the next generation begins, so that no member in use is ever more than
    /// one behind.
    pub(super) lagging: Vec<MemberId>,
    /// Devices in a member's slot that are not used, with the reason.
    pub(super) notes: Vec<String>,
    /// Bit mask of journal devices that may be read although they are not in service.
    pub(super) retired: u64,
}

/// Superblocks of members while they were readable, in the attempts of one start.
#[derive(Default)]
pub(super) struct Remembered(Vec<Slots>);

impl Remembered {
    /// Adds the remembered superblocks of members in the mask `failing` that are unreadable now,
    /// and remembers what was read.
    fn complete(&mut self, slots: &mut Vec<Slots>, failing: u64) {
        let is_read = |slots: &[Slots], member: MemberId| {
            slots.iter().any(|of| of.0 == member && !of.1.is_empty())
        };
        for of in std::mem::take(&mut self.0) {
            if failing >> of.0.0 & 1 == 1 && !is_read(slots, of.0) {
                slots.retain(|other| other.0 != of.0);
                slots.push(of);
            }
        }
        self.0.clone_from(slots);
    }
}

/// Finds the ruling superblock.
pub(super) fn newest(io: &mut dyn MemberIo, options: &OpenOptions) -> Result<Ruling, OpenError> {
    newest_without(io, options, 0, &mut Remembered::default())
}

/// As [`newest`]. Members in the mask `failing` are present but unusable. Their superblocks still
/// count for the choice: if the others were absent, only these have that recorded.
pub(super) fn newest_without(
    io: &mut dyn MemberIo,
    options: &OpenOptions,
    failing: u64,
    remembered: &mut Remembered,
) -> Result<Ruling, OpenError> {
    let mut why = String::from("no member is present");
    let mut newer = None;
    let there = (0..io.member_count() as u8)
        .map(MemberId)
        .filter(|member| io.is_present(*member))
        .collect::<Vec<_>>();
    let mut slots: Vec<Slots> = there
        .into_iter()
        .map(|member| (member, slots_of(io, member, &mut why, &mut newer)))
        .collect();
    remembered.complete(&mut slots, failing);
    let mut found: Vec<(MemberId, Superblock)> = slots
        .iter()
        .filter_map(|of| Some((of.0, retired::newest_of(of)?.clone())))
        .collect();
    // Newer software wrote here. Other slots have older content, which must not be taken for the
    // present.
    if let Some(newer) = newer {
        return Err(newer);
    }
    let Some(mut newest) = ruling(&found)? else {
        return Err(OpenError::NoSuperblock(why));
    };
    let (hash, parent) = (newest.content_hash(), newest.parent_hash);
    check_features(&newest, options)?;
    if newest.state == PoolState::Destroyed {
        return Err(OpenError::Destroyed);
    }
    let mut present = vec![false; newest.members.len()];
    let mut there = vec![Found::Nothing; newest.members.len()];
    if let Some((_, other)) = found
        .iter()
        .find(|(_, superblock)| superblock.pool != newest.pool)
    {
        return Err(OpenError::DifferentPools(newest.pool, other.pool));
    }
    // The index in a device's own copy may be stale: a spare keeps it until it has the generation
    // that gave it a member's slot.
    let mut notes = Vec::new();
    found.retain(|(member, superblock)| {
        if failing >> member.0 & 1 == 1 {
            return false;
        }
        let why = unfit(io, &newest, *member, superblock);
        if matches!(why, Some(Unfit::Small(_))) {
            there[member.index()] = Found::Short;
        }
        notes.extend(why.iter().map(|why| {
            format!(
                "the device in the place of member {member} ({}) is not used: {why}",
                superblock.member_uuid
            )
        }));
        why.is_none()
    });
    for (member, superblock) in &found {
        let record = &newest.members[member.index()];
        // Of this history: the identical generation, or the one that it names as its parent.
        let same = superblock.generation == newest.generation && superblock.content_hash() == hash;
        let current = same
            || (superblock.generation.next() == newest.generation
                && superblock.content_hash() == parent);
        present[member.index()] = current && record.state == MemberState::Online;
        let device = slot_state::found(record, superblock.generation, current);
        if device == Found::Apart && record.state == MemberState::Absent {
            notes.push(format!(
                "the device of member {member} ({}) is not used: it has generation {} of another history; the pool has continued without it since generation {}; later writes to the device are on it alone",
                superblock.member_uuid, superblock.generation, record.absent_since
            ));
        }
        there[member.index()] = device;
    }
    if newest.host != Uuid::default()
        && newest.host != options.host
        && !options.force
        && !options.read_only
    {
        return Err(OpenError::HostMismatch(newest.host));
    }
    let here = found
        .iter()
        .fold(failing, |mask, (member, _)| mask | 1 << member.0);
    check_quorum(&newest, &present, here, failing, options)?;
    // A remembered superblock does not make a missing device readable.
    let is_gone = |member: &u8| !io.is_present(MemberId(*member));
    let gone = (0..io.member_count() as u8)
        .filter(is_gone)
        .fold(0, |mask, member| mask | 1 << member);
    let retired = retired::readable(&newest, &slots, &present, failing) & !gone;
    notes.extend(check_journal_devices(
        &newest,
        (&present, &found),
        retired,
        options,
    )?);
    let as_found = newest.clone();
    let behind = |(member, s): &(MemberId, Superblock)| {
        (s.generation < newest.generation && present[member.index()]).then_some(*member)
    };
    let lagging = found.iter().filter_map(behind).collect();
    note_start(&mut newest, &there, options.read_only);
    check_redundancy(&newest)?;
    Ok(Ruling {
        found: as_found,
        superblock: newest,
        lagging,
        notes,
        retired,
    })
}

/// Reason that a device cannot have the pool's data.
enum Unfit {
    Foreign,
    Small(String),
}

impl std::fmt::Display for Unfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Foreign => f.write_str("it is not the pool's"),
            Self::Small(why) => f.write_str(why),
        }
    }
}

fn unfit(
    io: &dyn MemberIo,
    newest: &Superblock,
    member: MemberId,
    own: &Superblock,
) -> Option<Unfit> {
    if !names(newest, member, own.member_uuid) {
        return Some(Unfit::Foreign);
    }
    let size = io.size(member);
    // Block devices may differ by a little unused space.
    if size >= newest.members[member.index()].size_bytes {
        return None;
    }
    let needed = needed_bytes(
        &ZoneMap::new(newest.zones.clone()),
        &newest.journals,
        member,
    );
    (size < needed).then(|| Unfit::Small(format!("it has {size} bytes, the pool needs {needed}")))
}

/// True if the table has this device in this slot.
fn names(superblock: &Superblock, member: MemberId, uuid: Uuid) -> bool {
    superblock
        .members
        .get(member.index())
        .is_some_and(|record| record.uuid == uuid)
}

/// Records present and absent members. Only a writable start takes members back.
fn note_start(superblock: &mut Superblock, there: &[Found], read_only: bool) {
    let generation = superblock.generation.next();
    let newest = superblock.checkpoints[0].map_or(0, |root| root.id);
    for (record, found) in superblock.members.iter_mut().zip(there) {
        let found = if read_only && *found != Found::Current {
            Found::Nothing
        } else {
            *found
        };
        // The state of one member never refuses a start.
        let _: Result<bool, _> =
            slot_state::change(record, Change::Start(found), newest, generation);
    }
}

/// The newest generation. If members hold different ones of the same number, two sides wrote them
/// without each other. The one that continued has a table that calls all holders of the others
/// absent, or has other devices in their slots. If there is none, the choice is impossible.
fn ruling(found: &[(MemberId, Superblock)]) -> Result<Option<Superblock>, OpenError> {
    let Some(generation) = found.iter().map(|(_, s)| s.generation).max() else {
        return Ok(None);
    };
    let holders: Vec<&(MemberId, Superblock)> = found
        .iter()
        .filter(|(_, s)| s.generation == generation)
        .collect();
    let calls_absent = |s: &Superblock, member: MemberId, uuid: Uuid| {
        !names(s, member, uuid) || !s.members[member.index()].is_in_use()
    };
    let rules = |candidate: &Superblock| {
        let hash = candidate.content_hash();
        holders.iter().all(|(member, s)| {
            s.content_hash() == hash || calls_absent(candidate, *member, s.member_uuid)
        })
    };
    let mut rulers = holders.iter().filter(|(_, s)| rules(s)).map(|(_, s)| s);
    let Some(first) = rulers.next() else {
        return Err(OpenError::TwoHistories {
            generation: generation.0,
        });
    };
    if rulers.any(|s| s.content_hash() != first.content_hash()) {
        return Err(OpenError::TwoHistories {
            generation: generation.0,
        });
    }
    Ok(Some(first.clone()))
}

fn check_features(superblock: &Superblock, options: &OpenOptions) -> Result<(), OpenError> {
    let unknown = superblock.features.unknown();
    if unknown.incompatible != 0 || (unknown.read_only != 0 && !options.read_only) {
        return Err(OpenError::Features {
            incompatible: unknown.incompatible,
            read_only: unknown.read_only,
        });
    }
    Ok(())
}

fn check_quorum(
    newest: &Superblock,
    present: &[bool],
    here: u64,
    failing: u64,
    options: &OpenOptions,
) -> Result<(), OpenError> {
    // Journal-only devices have no vote.
    let votes = |member: usize| newest.journals.devices() >> member & 1 == 0;
    let has_place =
        |record: &MemberRecord| !matches!(record.state, MemberState::Removed | MemberState::Spare);
    let total = newest
        .members
        .iter()
        .enumerate()
        .filter(|(member, record)| votes(*member) && has_place(record))
        .count();
    let there = (0..present.len())
        .filter(|member| votes(*member) && (present[*member] || failing >> member & 1 == 1))
        .count();
    let all_recorded = newest.members.iter().enumerate().all(|(m, r)| {
        present[m] || failing >> m & 1 == 1 || r.state != MemberState::Online || !votes(m)
    });
    let alone = !newest.is_growing() || no_quorum_without(&newest.zones, here);
    if (alone && (there * 2 > total || all_recorded)) || options.force || options.read_only {
        return Ok(());
    }
    Err(OpenError::NoQuorum {
        present: there,
        total,
    })
}

/// Refuses to start a pool that was not shut down without its journal devices, unless their loss is
/// recorded. Durable data may be on them alone. (A whole device that fails writes is `retired`, and
/// is read.)
fn check_journal_devices(
    newest: &Superblock,
    (present, found): (&[bool], &[(MemberId, Superblock)]),
    retired: u64,
    options: &OpenOptions,
) -> Result<Option<String>, OpenError> {
    let devices = newest.journals.devices();
    let of_journal = |state: MemberState| {
        (0..present.len())
            .filter(move |m| devices >> m & 1 == 1 && newest.members[*m].state == state)
    };
    let expected: Vec<usize> = of_journal(MemberState::Online).collect();
    if newest.state != PoolState::Active
        || expected.is_empty()
        || expected
            .iter()
            .any(|m| present[*m] || retired >> m & 1 == 1)
    {
        return Ok(None);
    }
    // A present device that does not count is a stale copy as far as can be known.
    let old = |m: usize| {
        found
            .iter()
            .find(|(member, _)| member.index() == m)
            .map(|(_, own)| own.generation.0)
    };
    let describe = |m: &usize| {
        let uuid = newest.members[*m].uuid;
        old(*m).map_or_else(
            || format!("{m} ({uuid})"),
            |own| {
                format!(
                    "{m} ({uuid}; it has generation {own}, the pool {})",
                    newest.generation.0
                )
            },
        )
    };
    let which = expected.iter().map(describe).collect::<Vec<_>>().join(", ");
    if options.discard_journal {
        return Ok(Some(format!(
            "the journal devices {which} are discarded: durable writes that were on them alone are lost"
        )));
    }
    Err(OpenError::JournalMissing { which })
}

/// Allows replacing a journal device of a closed pool only if the pool was shut down or another
/// device is whole. Otherwise the device may have the only copy. (Its loss may be recorded while
/// the log lacks its durable records: only a start can decide that.)
pub(super) fn check_journal_device_replaced(
    ruling: &Ruling,
    member: MemberId,
    options: &OpenOptions,
) -> Result<(), OpenError> {
    let (devices, judged) = (ruling.found.journals.devices(), &ruling.superblock.members);
    let whole = |m: &usize| {
        devices >> m & 1 == 1 && *m != member.index() && judged[*m].state == MemberState::Online
    };
    if devices >> member.0 & 1 == 0
        || ruling.found.state != PoolState::Active
        || options.discard_journal
        || (0..judged.len()).any(|m| whole(&m))
    {
        return Ok(());
    }
    Err(OpenError::JournalMissing {
        which: format!("{member} ({})", judged[member.index()].uuid),
    })
}

pub(super) fn check_redundancy(newest: &Superblock) -> Result<(), OpenError> {
    let zones = ZoneMap::new(newest.zones.clone());
    let has_place = |m: &usize| {
        !matches!(
            newest.members[*m].state,
            MemberState::Removed | MemberState::Spare
        )
    };
    let lost: Vec<usize> = (0..newest.members.len())
        .filter(has_place)
        .filter(|m| newest.members[*m].state != MemberState::Online)
        .collect();
    let survives = zones
        .zones()
        .iter()
        .all(|z| lost.iter().filter(|m| z.members >> **m & 1 == 1).count() <= z.shape.tolerance());
    if survives {
        return Ok(());
    }
    let which = lost
        .iter()
        .map(|m| format!("{m} ({})", newest.members[*m].uuid))
        .collect::<Vec<_>>()
        .join(", ");
    Err(OpenError::TooManyMissing {
        missing: lost.len(),
        which,
        redundancy: Redundancy::name(newest.redundancy),
    })
}

#[cfg(test)]
mod model;

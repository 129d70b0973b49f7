//! Which superblock rules, and whether it may be trusted.
//!
//! The newest valid generation rules. It is trusted if more than half of the pool's members are
//! there, or if every member that is not there is recorded absent in it: then nobody else can have
//! gone on without us. A member that the table calls online but whose own superblock is more than
//! one generation old has missed something and is not used (a generation is complete on all online
//! members before the next begins, so one generation of lag is what a crash leaves).
//!
//! Where the generation that rules is marked as growing, there may be another one beside it in
//! which further members hold data, and by which nothing was written. A start without that one
//! takes it back for good. It needs, beside its own quorum, more members of one of its zones here
//! than the redundancy covers: then the other one can not start without them
//! (docs/internals/reshape.md).
//!
//! A member that was recorded absent and is there again is rebuilt (docs/internals/members.md):
//! from what it has if it is the one that left, else from nothing. Until that is done it is not
//! read, and counts as lost. One whose own history went on without the pool stays out.
//!
//! A device that bears superblocks of the pool but is not in its table (the old one after a
//! replacement), or that is smaller than what the pool has on it (a file cut short, a partition
//! made smaller), is as good as not there, and is noted.

use super::retired::Slots;
use super::{OpenError, retired};
use crate::OpenOptions;
use crate::member::slot_state::{self, Change, Found};
use crate::member::{needed_bytes, nobody_without};
use windrow_format::superblock::{
    MemberRecord, MemberState, PoolState, SLOT_BYTES, SLOT_COUNT, SLOT_OFFSET, SLOT_STRIDE,
    Superblock, SuperblockError,
};
use windrow_geometry::{Redundancy, ZoneMap};
use windrow_io::MemberIo;
use windrow_types::{MemberId, Uuid};

/// The valid superblocks of one member.
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

/// The superblock that rules.
pub(super) struct Ruling {
    /// As it was found.
    pub(super) found: Superblock,
    /// As it is used: its member table says `Absent` for every member that must not be used.
    pub(super) superblock: Superblock,
    /// Members in use whose own copy is one generation behind: a crash cut its writing short. They
    /// get it before a further generation begins, so that no member in use is ever more than one
    /// behind.
    pub(super) lagging: Vec<MemberId>,
    /// Devices in the place of a member that are not used, and why.
    pub(super) notes: Vec<String>,
    /// Journal devices that may be read although they are not in service, as a bit mask.
    pub(super) retired: u64,
}

/// What members bore when they could still be read, in the attempts of one start.
#[derive(Default)]
pub(super) struct Remembered(Vec<Slots>);

impl Remembered {
    /// Adds what is known of members in the mask `failing` that can not be read any more, and keeps
    /// what was read now.
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

/// Finds the superblock that rules.
pub(super) fn newest(io: &mut dyn MemberIo, options: &OpenOptions) -> Result<Ruling, OpenError> {
    newest_without(io, options, 0, &mut Remembered::default())
}

/// The same. Members in the mask `failing` are there, but can not be used. What they bear says what
/// rules all the same: if the others have been away, it is on record there alone.
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
    // Newer software was here. What it left in other slots is of a time before that, and must not
    // be taken for the present.
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
    // (The index in a device's own copy may be an old one: a spare keeps it until it bears the
    // generation that gave it a member's place.)
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
        // Of this history: the same generation to the byte, or the one that it says it followed.
        let same = superblock.generation == newest.generation && superblock.content_hash() == hash;
        let current = same
            || (superblock.generation.next() == newest.generation
                && superblock.content_hash() == parent);
        present[member.index()] = current && record.state == MemberState::Online;
        let device = slot_state::found(record, superblock.generation, current);
        if device == Found::Apart && record.state == MemberState::Absent {
            notes.push(format!(
                "the device of member {member} ({}) is not used: it bears generation {} of another history, this one has gone on without it since {}; what was written there since is there alone",
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
    // (What is remembered of one that is gone since does not make it readable.)
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

/// Why a device cannot be what the pool has in its place.
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
    // Block devices may differ by a little that nothing lies on.
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

/// True if the table has this device in this place.
fn names(superblock: &Superblock, member: MemberId, uuid: Uuid) -> bool {
    superblock
        .members
        .get(member.index())
        .is_some_and(|record| record.uuid == uuid)
}

/// Records who is there and who is not. Only a start that may write takes members back.
fn note_start(superblock: &mut Superblock, there: &[Found], read_only: bool) {
    let generation = superblock.generation.next();
    let newest = superblock.checkpoints[0].map_or(0, |root| root.id);
    for (record, found) in superblock.members.iter_mut().zip(there) {
        let found = if read_only && *found != Found::Current {
            Found::Nothing
        } else {
            *found
        };
        // No start of a pool is refused for what one member is.
        let _: Result<bool, _> =
            slot_state::change(record, Change::Start(found), newest, generation);
    }
}

/// The newest generation. If members hold different ones of the same number, they were written by
/// sides that did not see each other: the one whose table calls all holders of the others absent,
/// or has others in their place, is the one that went on; if there is none, nobody can tell.
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
    // Devices that hold nothing but a journal have no vote.
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
    let alone = !newest.is_growing() || nobody_without(&newest.zones, here);
    if (alone && (there * 2 > total || all_recorded)) || options.force || options.read_only {
        return Ok(());
    }
    Err(OpenError::NoQuorum {
        present: there,
        total,
    })
}

/// A pool that was not shut down is started without its journal devices only if their loss is on
/// record: what was promised may be there and nowhere else. (One that is whole and can not be
/// written is `retired`, and can be read.)
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
    // One that is there, and does not count, is an old copy of the device as far as anybody can
    // tell.
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
                    "{m} ({uuid}; what is there is of generation {own}, the pool of {})",
                    newest.generation.0
                )
            },
        )
    };
    let which = expected.iter().map(describe).collect::<Vec<_>>().join(", ");
    if options.discard_journal {
        return Ok(Some(format!(
            "the journal devices {which} are given up: what had been promised to be durable and was on them alone is lost"
        )));
    }
    Err(OpenError::JournalMissing { which })
}

/// A journal device is replaced, while the pool is not open, only if nothing can be on it alone:
/// the pool was shut down, or another device is whole. (Its loss may be on record, and the log may
/// not have what it had promised: only a start can tell.)
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

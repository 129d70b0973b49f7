//! Opening a pool: locks the members and recovers the engine; nothing runs yet.

use super::again::{borne_by, look_again, the_same};
use super::{DESTROYED_REMEDY, FoundPool, NEWER_REMEDY, host_id};
use crate::failure::{Failure, id};
use crate::registry::Registry;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use windrow_device::queue::Members as MemberTable;
use windrow_device::{
    DirectIo, DiscardPolicy, FileMember, LockMode, Member, MemberInfo, OpenOptions, SyncMembers,
    VolatileMember, VolatileOptions,
};
use windrow_engine::{Engine, OpenError, RebuildProgress, RebuildReport, RebuildWork};
use windrow_engine::{Limits, OpenReport};
use windrow_format::superblock::{MemberState, PoolState, Superblock};
use windrow_io::BufPool;
use windrow_types::MemberId;

/// Layer between the engine and the members.
#[derive(Clone, Debug, Default)]
pub enum MemberBackEnd {
    /// Nothing.
    #[default]
    Plain,
    /// A volatile cache in this process; a kill loses part of it. Test use only.
    VolatileCache(VolatileOptions),
}

/// Options of opening.
#[derive(Clone, Debug, Default)]
pub struct OpenRequest {
    /// Write nothing.
    pub read_only: bool,
    /// Import although another host has the pool, or members are missing without a record of it.
    pub force: bool,
    /// Start without the lost journal devices; records that were durable only there are lost.
    pub discard_journal: bool,
    /// Only with every member that the pool counts on.
    pub complete: bool,
    /// Limits.
    pub limits: Limits,
    /// Discards punch holes in file members.
    pub punch_holes: bool,
    /// Writes are not flushed: the device is, or becomes, a power-safe journal device. (When a pool
    /// is opened, its superblocks decide this.)
    pub power_safe: bool,
    /// Layer above the members.
    pub back_end: MemberBackEnd,
    /// Time for trying to get the members' locks. The kernel releases a killed daemon's members
    /// only after its last I/O.
    pub lock_patience: Duration,
}

/// An open pool.
pub struct OpenedPool {
    /// The engine.
    pub engine: Engine,
    /// Its members.
    pub members: MemberTable,
    /// The buffers that the engine uses.
    pub buffers: BufPool,
    /// Findings of recovery.
    pub report: OpenReport,
    /// Duration of recovery, without opening the members.
    pub recovery: Duration,
}

/// Idle buffers kept beyond those in use: one full set of batches in flight.
pub(crate) const KEEP_BYTES: usize = 256 << 20;

/// Opens and locks the device that is, or becomes, `member`. `what` names the action in a failure.
pub(crate) fn open_member(
    path: &Path,
    member: MemberId,
    request: &OpenRequest,
    what: &str,
) -> Result<Arc<dyn Member>, Failure> {
    open_device(path, member, request).map_err(|error| opening_failed(what, &error))
}

fn opening_failed(what: &str, error: &windrow_device::OpenError) -> Failure {
    let in_use = matches!(error, windrow_device::OpenError::InUse { .. });
    let (id, remedy) = if in_use {
        (id::POOL_BUSY, "stop the process that uses it")
    } else {
        (id::MEMBER_OPEN, "check the path and its permissions")
    };
    let holders = match error {
        windrow_device::OpenError::InUse { path } => crate::process::holders(path),
        _ => Vec::new(),
    };
    let why = if holders.is_empty() {
        error.to_string()
    } else {
        format!("{error}: {} has it", crate::process::names(&holders))
    };
    Failure::new(id, what, why).remedy(remedy)
}

fn open_device(
    path: &Path,
    member: MemberId,
    request: &OpenRequest,
) -> Result<Arc<dyn Member>, windrow_device::OpenError> {
    let mut options = if request.read_only {
        OpenOptions::read_only()
    } else {
        OpenOptions::default()
    };
    options.lock_patience = request.lock_patience;
    options.write_through = request.power_safe;
    if request.punch_holes {
        options.discard = DiscardPolicy::PunchHoles;
    }
    let opened = FileMember::open(path, &options)?;
    if let Some(warning) = cached(opened.info()) {
        tracing::warn!("{warning}");
    }
    Ok(match &request.back_end {
        MemberBackEnd::Plain => Arc::new(opened),
        MemberBackEnd::VolatileCache(_) if request.power_safe => Arc::new(opened),
        MemberBackEnd::VolatileCache(options) => {
            let seed = options
                .seed
                .wrapping_mul(64)
                .wrapping_add(u64::from(member.0));
            Arc::new(VolatileMember::new(
                opened,
                VolatileOptions {
                    seed,
                    ..options.clone()
                },
            ))
        }
    })
}

/// Remark on a member that is used through the page cache.
fn cached(info: &MemberInfo) -> Option<String> {
    match &info.direct {
        DirectIo::Yes { .. } => None,
        DirectIo::No { reason } => Some(format!(
            "{} is used through the page cache, which is slower and takes memory: {reason}",
            info.description
        )),
    }
}

/// The members of a pool, locked.
struct Locked {
    table: MemberTable,
    /// The pool as now read from them: the engine would take any pool that it finds on them.
    now: FoundPool,
    /// Devices that were found but cannot be opened.
    left_out: Vec<LeftOut>,
}

/// A device that is treated as missing.
struct LeftOut {
    note: String,
    /// The pool counts on it, or it may hold durable journal records.
    may_be_missed: bool,
}

/// Bit mask of members that are not flushed: journal devices that any of the superblocks declares
/// power-safe.
fn power_safe(pool: &FoundPool) -> u64 {
    let areas = pool
        .members
        .iter()
        .filter_map(|member| member.superblock.as_ref()?.journals.external.as_ref());
    areas
        .filter(|area| area.power_safe)
        .fold(0, |mask, area| mask | area.members)
}

/// Opens and locks all members. A member that fails to open (a dying drive that can only be read,
/// for example) is treated as missing; the engine decides whether the pool can start without it.
/// The same holds for any device in the slot of a spare or of a member out of service. It is an
/// error if
/// 1. the pool counts on the member, and it is in use or this process may not open it: the device
///    itself is healthy;
/// 2. it is the last journal device: durable records may be on it alone, and advice to discard them
///    would be wrong;
/// 3. it alone has the newest superblock: without it the pool would be opened in an older state.
///    (That generation may never have taken effect, but this cannot be known.)
fn open_members(found: &FoundPool, request: &OpenRequest) -> Result<Locked, Failure> {
    let slots = found
        .superblock()
        .map_or(0, |superblock| superblock.members.len());
    let highest = found
        .members
        .iter()
        .map(|member| member.slot.index() + 1)
        .max()
        .unwrap_or(0);
    let mut table: MemberTable = vec![None; slots.max(highest)];
    let (mut opened, mut closed) = (
        FoundPool {
            members: Vec::new(),
            ..found.clone()
        },
        Vec::new(),
    );
    let what = |slot: MemberId| format!("cannot open member {slot} of pool '{}'", found.name);
    // One deadline for all of them: a daemon that holds one holds all.
    let end = Instant::now() + request.lock_patience;
    for member in &found.members {
        let lock_patience = end.saturating_duration_since(Instant::now());
        let power_safe = power_safe(found) >> member.slot.0 & 1 == 1;
        match open_device(
            &member.path,
            member.slot,
            &OpenRequest {
                power_safe,
                lock_patience,
                ..request.clone()
            },
        ) {
            Ok(device) => {
                table[member.slot.index()] = Some(device);
                opened.members.push(member.clone());
            }
            Err(error) => closed.push((member, error)),
        }
    }
    let must_be_there = |pool: &FoundPool| {
        closed
            .iter()
            .find(|(member, error)| !may_be_left_out(pool, &opened, member.slot, error, request))
    };
    if let Some((member, error)) = must_be_there(found) {
        return Err(opening_failed(&what(member.slot), error));
    }
    let devices = opened
        .members
        .iter()
        .filter_map(|member| table[member.slot.index()].as_deref());
    // The engine handles a member that cannot be read.
    let now = look_again(
        &opened,
        devices,
        &format!("cannot open pool '{}'", found.name),
    )?;
    if power_safe(&now) & !power_safe(found) != 0 {
        let why = "another command has just made a device a journal that is not flushed";
        return Err(Failure::new(
            id::POOL_REFUSED,
            format!("cannot open pool '{}'", found.name),
            why,
        )
        .remedy("nothing was written; run it again"));
    }
    // (The pool may count on one only since it was found.)
    if let Some((member, error)) = must_be_there(&now) {
        return Err(opening_failed(&what(member.slot), error));
    }
    let generation =
        |superblock: Option<&Superblock>| superblock.map(|superblock| superblock.generation);
    if let Some((member, error)) = closed
        .iter()
        .find(|(member, _)| generation(member.superblock.as_ref()) > generation(now.superblock()))
    {
        let remedy = "without it the pool is in an older state: repair the device; or name the others with --members, and lose what was written since";
        return Err(opening_failed(&what(member.slot), error).remedy(remedy));
    }
    let left_out = closed.iter().map(|(member, error)| LeftOut {
        note: format!("member {} is left out: {error}", member.slot),
        may_be_missed: now.superblock().is_none_or(|superblock| {
            is_counted_on(superblock, member.slot) || is_journal_device(superblock, member.slot)
        }),
    });
    let left_out = left_out.collect();
    Ok(Locked {
        table,
        now,
        left_out,
    })
}

fn is_counted_on(superblock: &Superblock, slot: MemberId) -> bool {
    superblock
        .members
        .get(slot.index())
        .is_none_or(|record| matches!(record.state, MemberState::Online | MemberState::Rebuilding))
}

fn is_journal_device(superblock: &Superblock, slot: MemberId) -> bool {
    superblock.journals.devices() >> slot.0 & 1 == 1
}

/// True if a device that cannot be opened is treated as missing.
fn may_be_left_out(
    pool: &FoundPool,
    opened: &FoundPool,
    slot: MemberId,
    error: &windrow_device::OpenError,
    request: &OpenRequest,
) -> bool {
    let Some(superblock) = pool.superblock() else {
        return false;
    };
    let is_online = |slot: MemberId| {
        superblock
            .members
            .get(slot.index())
            .is_some_and(|record| record.state == MemberState::Online)
    };
    let another = || {
        opened
            .members
            .iter()
            .any(|member| is_journal_device(superblock, member.slot) && is_online(member.slot))
    };
    let needed = is_journal_device(superblock, slot)
        && is_online(slot)
        && superblock.state == PoolState::Active
        && !request.discard_journal;
    (has_failed(error) || !is_counted_on(superblock, slot)) && (!needed || another())
}

/// True if the device itself prevented the open: it is broken, gone, or has turned read-only.
fn has_failed(error: &windrow_device::OpenError) -> bool {
    let windrow_device::OpenError::System { source, .. } = error else {
        return false;
    };
    let kinds = [ErrorKind::ReadOnlyFilesystem, ErrorKind::NotFound];
    // EIO, ENXIO, ENODEV, ENOMEDIUM: the kernel has lost the device or cannot use it.
    kinds.contains(&source.kind())
        || source
            .raw_os_error()
            .is_some_and(|code| [5, 6, 19, 123].contains(&code))
}

/// The failure for an engine's refusal: each kind has its id.
fn refusal(found: &FoundPool, error: &OpenError) -> Failure {
    refusal_of(&format!("cannot open pool '{}'", found.name), found, error)
}

/// As [`refusal`], for another action.
pub(super) fn refusal_of(what: &str, found: &FoundPool, error: &OpenError) -> Failure {
    let id = match error {
        OpenError::NoSuperblock(_)
        | OpenError::DifferentPools(..)
        | OpenError::TwoHistories { .. }
        | OpenError::Destroyed => id::POOL_REFUSED,
        OpenError::Damage(_) | OpenError::Lost(_) => id::POOL_DAMAGED,
        OpenError::NewerVersion(_) | OpenError::Features { .. } => id::POOL_NEWER,
        OpenError::HostMismatch(_) => id::POOL_FOREIGN,
        OpenError::NoQuorum { .. } | OpenError::TooManyMissing { .. } => id::POOL_MEMBERS,
        OpenError::JournalMissing { .. } => id::POOL_JOURNAL,
        OpenError::MapMemory { .. } => id::POOL_MEMORY,
        OpenError::Member(_) => id::MEMBER_IO,
    };
    let failure = Failure::new(id, what, error);
    let missing = found.missing();
    if id == id::POOL_NEWER {
        // `windrow check` refuses it, too.
        failure.remedy(NEWER_REMEDY)
    } else if matches!(error, OpenError::Destroyed) {
        failure.remedy(DESTROYED_REMEDY)
    } else if id == id::POOL_MEMORY {
        failure.remedy("allow more with --map-memory")
    } else if id == id::POOL_JOURNAL {
        failure.remedy("connect them and name them with --members; --discard-journal starts without them and loses flushed writes since the last batch")
    } else if !missing.is_empty() {
        failure.remedy(format!("members {missing:?} were not found: name them with --members, or see --force in `windrow pool import --help`"))
    } else if id == id::POOL_DAMAGED {
        failure.remedy("see \"Emergency\" in docs/guide/problems.md; `windrow check --rebuild-map` shows what can be brought back, without changing anything")
    } else {
        failure.remedy(
            "see docs/guide/problems.md; `windrow check` verifies the members without changing them",
        )
    }
}

/// Permissions of a salvage of the map.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RebuildLeave {
    /// Write the result.
    pub write: bool,
    /// Also if the pool can be opened as it is, or is refused for another reason than damage.
    pub even_if_sound: bool,
    /// Also if members that the pool counts on were not found.
    pub without_missing: bool,
    /// Use no checkpoint although one can be read.
    pub without_checkpoint: bool,
}

/// Salvages the map of a pool from its batches (see [`Engine::rebuild_map`]); with `write`, makes
/// it the pool's state.
///
/// # Errors
/// - Those of [`open`].
/// - With `write` and without `without_missing`: members are missing that the pool counts on. Data
///   that only they hold would be lost for good.
/// - With `write` and without `even_if_sound`: the pool can be opened as it is, or is refused for
///   another reason than damage. A salvage would bring back trimmed blocks.
pub fn rebuild(
    found: &FoundPool,
    registry: &Registry,
    request: &OpenRequest,
    leave: RebuildLeave,
    watch: &mut dyn FnMut(RebuildProgress),
) -> Result<RebuildReport, Failure> {
    let RebuildLeave {
        write,
        even_if_sound,
        without_missing,
        without_checkpoint,
    } = leave;
    let Locked {
        table,
        now,
        left_out,
    } = open_members(found, request)?;
    if write && !without_missing {
        let give_up = |why: String| {
            let why = format!(
                "{why}: what cannot be read without them would be lost for good, although they may have it"
            );
            Failure::new(id::POOL_MEMBERS, format!("will not rebuild pool '{}'", now.name), why)
                .remedy("connect them, or name them with --members; or give --without-missing if they will never be there again")
        };
        must_be_complete(&now, &left_out).map_err(give_up)?;
    }
    left_out
        .iter()
        .for_each(|left_out| tracing::warn!("{}", left_out.note));
    let mut io = SyncMembers::new(table);
    let buffers = BufPool::new(KEEP_BYTES);
    let options = windrow_engine::OpenOptions {
        host: host_id(registry)?,
        read_only: !write,
        force: request.force,
        discard_journal: request.discard_journal,
        limits: request.limits,
    };
    if write && !even_if_sound {
        let look = windrow_engine::OpenOptions {
            read_only: true,
            ..options.clone()
        };
        let trial = Engine::open(&mut io, buffers.clone(), &look).map(drop);
        must_be_damaged(&now, trial)?;
    }
    Engine::rebuild_map(
        &mut io,
        buffers,
        &options,
        RebuildWork {
            write,
            without_checkpoint,
        },
        watch,
    )
    .map_err(|error| refusal(&now, &error))
}

/// Members that the pool counts on and that are missing or skipped. They may be absent only
/// temporarily (a cable, a controller).
fn must_be_complete(found: &FoundPool, left_out: &[LeftOut]) -> Result<(), String> {
    let missing = found.missing();
    let of_missing = (!missing.is_empty()).then(|| format!("members {missing:?} were not found"));
    let away: Vec<&String> = left_out
        .iter()
        .filter(|left_out| left_out.may_be_missed)
        .map(|left_out| &left_out.note)
        .chain(&of_missing)
        .collect();
    if away.is_empty() {
        Ok(())
    } else {
        Err(away
            .iter()
            .map(|text| text.as_str())
            .collect::<Vec<_>>()
            .join(", "))
    }
}

/// Only a damaged map is salvaged. A map beyond this command's memory limit, a failed read or
/// missing members prove no damage, and a salvage would discard the pool's state.
fn must_be_damaged(found: &FoundPool, trial: Result<(), OpenError>) -> Result<(), Failure> {
    let what = format!("will not rebuild pool '{}'", found.name);
    match trial {
        Err(OpenError::Damage(_) | OpenError::Lost(_)) => Ok(()),
        Ok(()) => {
            let why = "the pool can be opened as it is, and a rebuild would bring back blocks that were trimmed";
            Err(Failure::new(id::POOL_VALUE, what, why)
                .remedy("import it; or give --even-if-sound"))
        }
        // No permission helps with an unknown format.
        Err(error @ (OpenError::NewerVersion(_) | OpenError::Features { .. })) => {
            Err(refusal_of(&what, found, &error))
        }
        Err(error) => {
            let failure = refusal_of(&what, found, &error);
            let remedy = format!(
                "{}; or give --even-if-sound, which does not ask whether the pool is damaged",
                failure.remedy
            );
            Err(failure.remedy(remedy))
        }
    }
}

/// The failure for a pool that is not repaired offline.
pub fn incomplete(pool: &str, why: &str) -> Failure {
    let why = format!(
        "{why}: the pool would continue without them, count them as missing, and lack their data"
    );
    Failure::new(id::POOL_MEMBERS, format!("will not repair pool '{pool}'"), why)
        .remedy("connect them, or name them with --members; or serve the pool without them and replace them, as those that have no label any more")
}

/// Locks the members and recovers the pool.
///
/// # Errors
/// A member is in use or cannot be opened, or `complete` is set and one is missing; the engine
/// refuses the pool or cannot recover it.
pub fn open(
    found: &FoundPool,
    registry: &Registry,
    request: &OpenRequest,
) -> Result<OpenedPool, Failure> {
    let Locked {
        table,
        now,
        left_out,
    } = open_members(found, request)?;
    if request.complete {
        must_be_complete(&now, &left_out).map_err(|why| incomplete(&now.name, &why))?;
    }
    let buffers = BufPool::new(KEEP_BYTES);
    let options = windrow_engine::OpenOptions {
        host: host_id(registry)?,
        read_only: request.read_only,
        force: request.force,
        discard_journal: request.discard_journal,
        limits: request.limits,
    };
    let mut io = SyncMembers::new(table);
    let begin = Instant::now();
    let (engine, mut report) =
        Engine::open(&mut io, buffers.clone(), &options).map_err(|error| {
            let failure = refusal(&now, &error);
            let remedy = left_out
                .iter()
                .map(|left_out| left_out.note.as_str())
                .chain([failure.remedy.as_str()])
                .collect::<Vec<_>>()
                .join("; ");
            failure.remedy(remedy)
        })?;
    let recovery = begin.elapsed();
    report
        .notes
        .extend(left_out.into_iter().map(|left_out| left_out.note));
    for stray in &found.strays {
        let note = format!(
            "the device in the place of member {}, {}, is not the pool's (any more): it is not used",
            stray.label.member,
            stray.path.display()
        );
        report.notes.push(note);
    }
    Ok(OpenedPool {
        engine,
        members: io.into_members(),
        buffers,
        report,
        recovery,
    })
}

/// Members opened read-only, at their indexes, for inspecting a pool without the engine. With
/// `locked` no process may write them meanwhile; without it the content may change under the
/// reader.
///
/// # Errors
/// A member is in use or cannot be opened; two of them have the same index; with `locked`: one
/// belongs to another pool by now.
pub fn open_for_reading(
    members: &[super::FoundMember],
    locked: bool,
) -> Result<SyncMembers, Failure> {
    let slots = members
        .iter()
        .filter_map(|member| member.superblock.as_ref())
        .map(|superblock| superblock.members.len())
        .max()
        .unwrap_or(0);
    let highest = members
        .iter()
        .map(|member| member.slot.index() + 1)
        .max()
        .unwrap_or(0);
    let mut table: MemberTable = vec![None; slots.max(highest)];
    // A daemon that has just ended may still hold them.
    let lock_patience = Duration::from_secs(3);
    let options = OpenOptions {
        lock: if locked {
            LockMode::Shared
        } else {
            LockMode::None
        },
        lock_patience,
        ..OpenOptions::read_only()
    };
    for member in members {
        let what = format!(
            "cannot read member {} of pool '{}'",
            member.slot, member.label.pool_name
        );
        let opened = FileMember::open(&member.path, &options).map_err(|error| {
            Failure::new(id::MEMBER_OPEN, what.as_str(), error)
                .remedy("stop the process that uses it")
        })?;
        if locked && let Ok(borne) = borne_by(&opened, &member.path) {
            the_same(member, borne, &what)?;
        }
        if table[member.slot.index()]
            .replace(Arc::new(opened))
            .is_some()
        {
            let first = members
                .iter()
                .find(|other| other.slot == member.slot)
                .map_or(&member.path, |first| &first.path);
            let why = format!(
                "{} and {} are both member {}: one of them is a copy, or was replaced",
                first.display(),
                member.path.display(),
                member.slot
            );
            let failure = Failure::new(
                id::POOL_REFUSED,
                format!(
                    "cannot read members of pool '{}' together",
                    member.label.pool_name
                ),
                why,
            );
            return Err(failure.remedy("name only one of them"));
        }
    }
    Ok(SyncMembers::new(table))
}

#[cfg(test)]
mod tests {
    use super::*;
    use windrow_io::{MemberError, MemberErrorKind};

    /// A member without direct I/O is used through the page cache, and a remark reports that.
    #[test]
    fn a_member_in_the_page_cache_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("member");
        windrow_device::create_file(&path, 1 << 20, windrow_device::Allocation::Sparse).unwrap();
        let options = OpenOptions {
            direct: windrow_device::DirectMode::Never,
            ..OpenOptions::default()
        };
        let warning = cached(FileMember::open(&path, &options).unwrap().info()).unwrap();
        assert!(
            warning.contains(path.to_str().unwrap()) && warning.ends_with(": not wanted"),
            "{warning}"
        );
        let direct = DirectIo::Yes {
            memory_align: 512,
            offset_align: 512,
        };
        assert_eq!(
            cached(&MemberInfo {
                direct,
                ..FileMember::open(&path, &options).unwrap().info().clone()
            }),
            None
        );
    }

    /// A drive at the end of its life can only be read. A redundant pool must start without it. A
    /// condition that the administrator can repair is no device failure.
    #[test]
    fn only_what_is_wrong_with_the_device_itself_makes_it_absent() {
        let of = |code| {
            let source = std::io::Error::from_raw_os_error(code);
            has_failed(&windrow_device::OpenError::System {
                action: "open",
                path: "/dev/sdx".into(),
                source,
            })
        };
        let (erofs, eio, enxio, enodev, enoent) = (30, 5, 6, 19, 2);
        assert!([erofs, eio, enxio, enodev, enoent].into_iter().all(of));
        let (eacces, eperm, emfile, enomem) = (13, 1, 24, 12);
        assert!(![eacces, eperm, emfile, enomem].into_iter().any(of));
        assert!(!has_failed(&windrow_device::OpenError::InUse {
            path: "/dev/sdx".into()
        }));
    }

    /// A trial may fail without damage (a map larger than this command's limit, one failed read).
    /// That must not permit discarding the pool's state.
    #[test]
    fn only_what_is_damaged_is_rebuilt() {
        let found = FoundPool {
            name: "tank".to_owned(),
            pool: windrow_types::Uuid([1; 16]),
            members: Vec::new(),
            strays: Vec::new(),
            twins: None,
            is_searched: false,
        };
        let answer = |trial| must_be_damaged(&found, trial).map_err(|failure| failure.id);
        assert_eq!(
            answer(Err(OpenError::Damage(
                "no checkpoint can be read".to_owned()
            ))),
            Ok(())
        );
        assert_eq!(answer(Ok(())), Err(id::POOL_VALUE.to_owned()));
        let passing = MemberError {
            member: MemberId(1),
            kind: MemberErrorKind::Media,
            offset: 0,
            code: 5,
        };
        assert_eq!(
            answer(Err(OpenError::Member(passing))),
            Err(id::MEMBER_IO.to_owned())
        );
        assert_eq!(
            answer(Err(OpenError::NoQuorum {
                present: 1,
                total: 4
            })),
            Err(id::POOL_MEMBERS.to_owned())
        );
        let failure =
            must_be_damaged(&found, Err(OpenError::MapMemory { limit: 4096 })).unwrap_err();
        assert!(
            failure.id == id::POOL_MEMORY && failure.remedy.contains("--map-memory"),
            "{failure}"
        );
        // `windrow check` is not recommended: it refuses the pool for the same reason, and no
        // option helps.
        let failure = must_be_damaged(&found, Err(OpenError::NewerVersion(2))).unwrap_err();
        assert_eq!(
            (failure.id.as_str(), failure.remedy.as_str()),
            (id::POOL_NEWER, NEWER_REMEDY)
        );
    }
}

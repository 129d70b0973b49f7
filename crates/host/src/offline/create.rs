//! Creation of a pool.
//!
//! 1. Probe every member: content, use and size. Nothing is written.
//! 2. Plan with the engine: geometry, capacity, memory.
//! 3. Refuse members in use, and members with data unless `force` was given.
//! 4. Create missing files, lock all members, check that they are unchanged since the probe,
//!    format. If anything fails, files that were made here are removed, unless another command has
//!    taken them.

use super::capacity::{self, Capacity, Unused};
use super::files::{self, NewFile, Purpose};
use super::partition::{self, Partitioning, Planned};
use super::{must_be_as_probed, random_uuid, unmake};
use crate::failure::{Failure, id};
use crate::served::Served;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use windrow_device::probe::signature::Mark;
use windrow_device::probe::{ProbeReport, Target, named_twice, probe};
use windrow_device::queue::Members as MemberTable;
use windrow_device::{Allocation, FileMember, Member, OpenOptions, SyncMembers};
use windrow_engine::{Engine, FormatError};
use windrow_engine::{JournalSpec, PoolPlan, PoolSpec};
use windrow_format::superblock::{Label, Properties};
use windrow_geometry::Redundancy;
use windrow_types::{BLOCK_BYTES, MemberId, Uuid};

/// Request to create a pool.
#[derive(Clone, Debug)]
pub struct CreateRequest {
    /// Pool name.
    pub name: String,
    /// Redundancy.
    pub redundancy: Redundancy,
    /// Members: block devices or files.
    pub members: Vec<PathBuf>,
    /// Size of files that do not exist yet.
    pub file_bytes: Option<u64>,
    /// Method of allocating their space.
    pub allocation: Allocation,
    /// Rows of a chunk; `None`: by member size.
    pub chunk_rows: Option<u32>,
    /// Rows of a segment; `None`: by member size.
    pub segment_rows: Option<u32>,
    /// Extents are aligned to this many bytes.
    pub align_bytes: u64,
    /// Properties.
    pub properties: Properties,
    /// Bytes of the journal on each member; `None`: by member size; 0: no journal.
    pub journal_bytes: Option<u64>,
    /// Devices or files that hold only a journal.
    pub journal_devices: Vec<PathBuf>,
    /// They are power-safe: a completed write is durable without a flush.
    pub journal_power_safe: bool,
    /// Overwrite members that contain data.
    pub force: bool,
    /// Devices that get a partition table.
    pub partitioning: Partitioning,
}

/// State of a path that is to become a member.
#[derive(Clone, Debug)]
pub struct MemberTarget {
    /// Path.
    pub path: PathBuf,
    /// Present or future size in bytes.
    pub size_bytes: u64,
    /// A file that does not exist yet.
    pub is_new: bool,
    /// In use: never overwritten.
    pub in_use: bool,
    /// Neither a file nor a block device.
    pub is_unsuitable: bool,
    /// Contains something that would be lost.
    pub bears_data: bool,
    /// Description of the content, for people.
    pub remarks: Vec<String>,
    /// Mark of the content, compared again under the lock.
    mark: Mark,
    /// It is a disk, and the member is the one partition that is created on it.
    pub partition: Option<Planned>,
}

/// Effect of a creation.
#[derive(Clone, Debug)]
pub struct CreatePlan {
    /// Members.
    pub members: Vec<MemberTarget>,
    /// Geometry and capacity.
    pub plan: PoolPlan,
    spec: PoolSpec,
}

impl CreatePlan {
    /// Identifier of the pool that would be created.
    pub fn pool(&self) -> Uuid {
        self.spec.pool
    }

    /// Use of the bytes of its data members.
    pub fn capacity(&self) -> Capacity {
        let sizes: Vec<u64> = self.spec.members.iter().map(|member| member.1).collect();
        Capacity::of(&self.plan, &sizes)
    }

    /// Data members that are larger than the pool can use.
    pub fn unused(&self, request: &CreateRequest) -> Vec<Unused> {
        let members: Vec<(&Path, u64)> = self
            .members
            .iter()
            .zip(&self.spec.members)
            .map(|(target, member)| (target.path.as_path(), member.1))
            .collect();
        capacity::unused(&self.plan, request.redundancy, &members)
    }
}

fn what(request: &CreateRequest) -> String {
    format!("cannot create pool '{}'", request.name)
}

pub(super) fn own_label(bytes: &[u8]) -> Option<String> {
    Label::decode(bytes).ok().map(|label| {
        format!(
            "member {} of the windrow pool '{}'",
            label.member, label.pool_name
        )
    })
}

fn target(request: &CreateRequest, path: &Path) -> Result<MemberTarget, Failure> {
    if path.to_str().is_none() {
        let why = format!(
            "the path {} is not UTF-8, and could not be kept for the next start",
            path.display()
        );
        return Err(
            Failure::new(id::USAGE, what(request), why).remedy("give the member another name")
        );
    }
    if let Some(held) = Served::now().held(path) {
        return Err(held.failure(id::MEMBER_IN_USE, what(request), path));
    }
    let report: ProbeReport = probe(path, own_label).map_err(|error| {
        Failure::new(
            id::MEMBER_OPEN,
            what(request),
            format!("{}: {}", path.display(), files::reason(&error)),
        )
        .remedy("check the path and its permissions")
    })?;
    let is_new = report.target == Target::Missing;
    let size_bytes = match (is_new, request.file_bytes) {
        (false, _) => report.size_bytes / BLOCK_BYTES * BLOCK_BYTES,
        (true, Some(bytes)) => bytes,
        (true, None) => {
            return Err(files::does_not_exist(path, &what(request), "--size"));
        }
    };
    // (A disk without room for one stays unpartitioned.)
    let is_device = report.target == Target::BlockDevice;
    let partition = if is_device {
        partition::planned(path, request.partitioning, request.align_bytes)
    } else {
        None
    };
    let size_bytes = partition.as_ref().map_or(size_bytes, Planned::size_bytes);
    let bears_data = !report.signatures.is_empty() || report.has_data;
    Ok(MemberTarget {
        path: path.to_owned(),
        size_bytes,
        is_new,
        in_use: report.is_in_use() || report.target == Target::Unsuitable,
        is_unsuitable: report.target == Target::Unsuitable,
        bears_data,
        remarks: report.lines(),
        mark: report.mark,
        partition,
    })
}

/// Probes and plans; writes nothing. Members in use or with data are reported, not refused.
///
/// # Errors
/// A member cannot be probed, is named twice, or the engine refuses the geometry.
pub fn plan(request: &CreateRequest) -> Result<CreatePlan, Failure> {
    let members = request
        .members
        .iter()
        .chain(&request.journal_devices)
        .map(|path| target(request, path))
        .collect::<Result<Vec<_>, _>>()?;
    if let Some(twice) = named_twice(members.iter().map(|member| member.path.as_path())) {
        return Err(
            Failure::new(id::POOL_CREATE, what(request), twice.why).remedy("name each member once")
        );
    }
    if let Some(member) = members.iter().find(|member| member.is_unsuitable) {
        return Err(
            Failure::new(id::MEMBER_OPEN, what(request), member.remarks.join("; "))
                .remedy("name a block device, a file, or one that is to be made"),
        );
    }
    let mut identified = Vec::with_capacity(members.len());
    for member in &members {
        identified.push((random_uuid()?, member.size_bytes));
    }
    let created = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |elapsed| elapsed.as_secs());
    let devices = identified.split_off(request.members.len());
    let journal = (request.journal_bytes != Some(0) || !devices.is_empty()).then(|| JournalSpec {
        devices,
        power_safe: request.journal_power_safe,
        // The granule is that of the members once they have been made.
        ..JournalSpec::internal(request.journal_bytes, BLOCK_BYTES as u32)
    });
    let spec = PoolSpec {
        name: request.name.clone(),
        redundancy: request.redundancy,
        chunk_rows: request.chunk_rows,
        segment_rows: request.segment_rows,
        align_bytes: request.align_bytes,
        pool: random_uuid()?,
        members: identified,
        created_unix_s: created,
        journal,
        properties: request.properties,
    };
    let smallest = || {
        members[..request.members.len()]
            .iter()
            .min_by_key(|member| member.size_bytes)
            .filter(|member| !member.is_new)
    };
    let plan = Engine::plan(&spec).map_err(|error| match (&error, smallest()) {
        (FormatError::TooSmall { .. }, Some(member)) => {
            let failure = refusal(request, &error);
            let why = format!(
                "{} (the smallest, {}, has {} bytes)",
                failure.why,
                member.path.display(),
                member.size_bytes
            );
            Failure { why, ..failure }
        }
        _ => refusal(request, &error),
    })?;
    Ok(CreatePlan {
        members,
        plan,
        spec,
    })
}

/// The failure for a geometry that the engine refuses.
fn refusal(request: &CreateRequest, error: &FormatError) -> Failure {
    let remedy = match error {
        FormatError::Redundancy(_) => {
            "name as many members as that, or choose another --redundancy"
        }
        FormatError::TooSmall { .. } => {
            "choose larger devices or a larger --size, or give a smaller --segment"
        }
        FormatError::Invalid(_) => "give what is allowed, see `windrow pool create --help`",
        FormatError::Member(_) => "see the system's log, and choose another device",
    };
    Failure::new(id::POOL_CREATE, what(request), error).remedy(remedy)
}

/// Creates what was planned and returns the paths of the members. `progress` is called with
/// `(member, bytes)` while files are filled.
///
/// # Errors
/// A member is in use, contains data (without `force`), cannot be created or locked, or fails while
/// it is written.
pub fn create(
    request: &CreateRequest,
    plan: &CreatePlan,
    progress: &mut dyn FnMut(usize, u64),
) -> Result<Vec<PathBuf>, Failure> {
    must_be_usable(request, plan)?;
    let (mut made, mut partitions) = (Vec::new(), Vec::new());
    let outcome = make_files(request, plan, &mut made, progress)
        .and_then(|()| make_partitions(request, plan, &mut partitions))
        .and_then(|members| {
            format(request, &members, plan)?;
            Ok(members.into_iter().map(|(path, _)| path).collect())
        });
    if outcome.is_err() {
        made.iter()
            .for_each(|path| unmake(path, |member| member.label.pool == plan.pool()));
        partitions.iter().for_each(|partition| partition.undo());
    }
    outcome
}

/// Paths of members, with the probed content. A partition was just made, and its content was probed
/// with its disk.
type Members = Vec<(PathBuf, Option<Mark>)>;

fn make_partitions<'p>(
    request: &CreateRequest,
    plan: &'p CreatePlan,
    made: &mut Vec<&'p Planned>,
) -> Result<Members, Failure> {
    let mut members = Members::with_capacity(plan.members.len());
    for member in &plan.members {
        members.push(match &member.partition {
            None => (member.path.clone(), Some(member.mark)),
            Some(partition) => {
                let path = partition.make(member.mark, &what(request))?;
                made.push(partition);
                (path, None)
            }
        });
    }
    Ok(members)
}

/// Checks that no member is in use or has data to keep, that existing ones can be opened, and that
/// the others can be made. Nothing is written. Returns the warnings.
///
/// # Errors
/// A check fails; `force` skips the one for data.
pub fn must_be_usable(request: &CreateRequest, plan: &CreatePlan) -> Result<Vec<String>, Failure> {
    for member in &plan.members {
        if member.in_use {
            return Err(
                Failure::new(id::MEMBER_IN_USE, what(request), member.remarks.join("; "))
                    .remedy("choose another member, or release this one"),
            );
        }
        if member.bears_data && !request.force {
            let remedy = "choose another member, or give --force to overwrite it";
            return Err(
                Failure::new(id::MEMBER_IN_USE, what(request), member.remarks.join("; "))
                    .remedy(remedy),
            );
        }
        member.partition.as_ref().map_or(Ok(()), |partition| {
            partition.must_be_possible(&what(request))
        })?;
    }
    for member in plan.members.iter().filter(|member| !member.is_new) {
        open(request, &member.path, member)?;
    }
    let mut warnings = Vec::new();
    let mut room: HashMap<u64, u64> = HashMap::new();
    for member in plan.members.iter().filter(|member| member.is_new) {
        let (place, warning) = files::must_be_makeable(&new_file(request, member), &what(request))?;
        warnings.extend(warning);
        let wanted = room.entry(place.file_system).or_default();
        *wanted = wanted.saturating_add(member.size_bytes);
        if request.allocation != Allocation::Sparse && *wanted > place.free_bytes {
            let why = format!(
                "no room for {wanted} bytes of new files in {}, where {} bytes are free",
                place.folder.display(),
                place.free_bytes
            );
            return Err(Failure::new(id::MEMBER_OPEN, what(request), why)
                .remedy("make room, give a smaller --size, or give --sparse"));
        }
    }
    Ok(warnings)
}

fn new_file<'m>(request: &CreateRequest, member: &'m MemberTarget) -> NewFile<'m> {
    NewFile {
        path: &member.path,
        size_bytes: member.size_bytes,
        allocation: request.allocation,
        purpose: Purpose::NewPool,
    }
}

fn make_files(
    request: &CreateRequest,
    plan: &CreatePlan,
    made: &mut Vec<PathBuf>,
    progress: &mut dyn FnMut(usize, u64),
) -> Result<(), Failure> {
    for (number, member) in plan
        .members
        .iter()
        .enumerate()
        .filter(|(_, member)| member.is_new)
    {
        files::make(&new_file(request, member), &what(request), &mut |bytes| {
            progress(number, bytes)
        })?;
        made.push(member.path.clone());
    }
    Ok(())
}

/// Opens and locks the device of a member.
fn open(
    request: &CreateRequest,
    path: &Path,
    member: &MemberTarget,
) -> Result<FileMember, Failure> {
    let options = OpenOptions {
        lock_patience: Duration::from_secs(1),
        ..OpenOptions::default()
    };
    let failure = |why: String| Failure::new(id::MEMBER_OPEN, what(request), why);
    let opened = FileMember::open(path, &options).map_err(|error| {
        failure(error.to_string()).remedy("stop the process that uses it, or check its permissions")
    })?;
    if opened.info().size_bytes < member.size_bytes {
        return Err(failure(format!("{} became smaller", path.display()))
            .remedy("nothing was written; run it again"));
    }
    Ok(opened)
}

fn format(request: &CreateRequest, members: &Members, plan: &CreatePlan) -> Result<(), Failure> {
    let mut table: MemberTable = Vec::with_capacity(plan.members.len());
    for (member, (path, _)) in plan.members.iter().zip(members) {
        table.push(Some(Arc::new(open(request, path, member)?)));
    }
    let devices = || {
        table
            .iter()
            .flatten()
            .enumerate()
            .map(|(index, device)| (MemberId(index as u8), device))
    };
    for ((index, device), (_, mark)) in devices().zip(members) {
        mark.map_or(Ok(()), |mark| {
            must_be_as_probed(&**device, index, mark, &what(request))
        })?;
    }
    let mut spec = plan.spec.clone();
    if let Some(journal) = &mut spec.journal {
        journal.granule = super::granule(&table);
    }
    for (index, device) in devices() {
        super::erase(&**device)
            .map_err(|error| Failure::new(id::MEMBER_IO, what(request), error.of(index)))?;
    }
    Engine::format(&mut SyncMembers::new(table), &spec).map_err(|error| refusal(request, &error))
}

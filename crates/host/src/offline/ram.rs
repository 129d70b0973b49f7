//! Pools on members that are already open in this process and freshly formatted: for benchmarks on
//! memory and on scratch files.

use super::{OpenedPool, random_uuid};
use crate::Pool;
use crate::daemon::{control_failure, report};
use crate::failure::{Failure, id};
use std::sync::Arc;
use std::time::Instant;
use windrow_device::queue::Members as MemberTable;
use windrow_device::{Member, RamAllocation, RamMember, SyncMembers};
use windrow_engine::{
    Control, JournalSpec, Limits, MemberChange, OpenOptions, OpenPhase, PoolSpec,
};
use windrow_engine::{Engine, RebuildReport, RebuildWork};
use windrow_format::superblock::Properties;
use windrow_geometry::Redundancy;
use windrow_io::BufPool;
use windrow_types::{MemberId, Uuid};

/// Host of a scratch pool.
const SCRATCH_HOST: Uuid = Uuid([1; 16]);

/// A pool that this process discards.
#[derive(Clone, Debug)]
pub struct ScratchSpec {
    /// Redundancy.
    pub redundancy: Redundancy,
    /// Rows of a chunk; `None`: by member size.
    pub chunk_rows: Option<u32>,
    /// Rows of a segment; `None`: by member size.
    pub segment_rows: Option<u32>,
    /// Properties.
    pub properties: Properties,
    /// Limits.
    pub limits: Limits,
    /// Bytes of the journal on each member; `None`: by member size; 0: no journal.
    pub journal_bytes: Option<u64>,
    /// Number of members, the last ones, that hold only a journal.
    pub journal_devices: usize,
    /// These are power-safe: a completed write is durable without a flush.
    pub journal_power_safe: bool,
}

impl Default for ScratchSpec {
    fn default() -> Self {
        let properties = Properties {
            spare_per_mille: 100,
            seal_age_ms: 50,
            victim_policy: 0,
            discard: false,
            ..Properties::DEFAULT
        };
        Self {
            redundancy: Redundancy::Double,
            chunk_rows: None,
            segment_rows: None,
            properties,
            limits: Limits::default(),
            journal_bytes: None,
            journal_devices: 0,
            journal_power_safe: false,
        }
    }
}

/// Members in memory, allocated at once.
///
/// # Errors
/// There is not enough memory.
pub fn ram_members(count: usize, bytes: u64) -> Result<MemberTable, Failure> {
    let failure = |error: std::io::Error| {
        Failure::new(
            id::NOT_AVAILABLE,
            format!("cannot take {count} members of {bytes} bytes in memory"),
            error,
        )
    };
    let member = |_| {
        RamMember::new(bytes, RamAllocation::Preallocate)
            .map(|member| Some(Arc::new(member) as Arc<dyn Member>))
            .map_err(failure)
    };
    (0..count).map(member).collect()
}

/// Formats the members, whatever they contain, and opens the pool.
///
/// # Errors
/// The engine refuses the geometry, or a member fails.
pub fn scratch_pool(table: MemberTable, spec: &ScratchSpec) -> Result<OpenedPool, Failure> {
    let failure = |error: &dyn std::fmt::Display| {
        Failure::new(id::POOL_CREATE, "cannot create the scratch pool", error)
    };
    let mut members = Vec::with_capacity(table.len());
    for member in &table {
        members.push((
            random_uuid()?,
            member.as_ref().map_or(0, |member| member.info().size_bytes),
        ));
    }
    let devices = members.split_off(members.len().saturating_sub(spec.journal_devices));
    let journal = (spec.journal_bytes != Some(0) || !devices.is_empty()).then(|| JournalSpec {
        devices,
        power_safe: spec.journal_power_safe,
        ..JournalSpec::internal(spec.journal_bytes, super::granule(&table))
    });
    let spec_of_pool = PoolSpec {
        name: "scratch".to_owned(),
        redundancy: spec.redundancy,
        chunk_rows: spec.chunk_rows,
        segment_rows: spec.segment_rows,
        align_bytes: super::alignment(spec.segment_rows),
        pool: random_uuid()?,
        members,
        created_unix_s: 0,
        journal,
        properties: spec.properties,
    };
    let mut io = SyncMembers::new(table);
    Engine::format(&mut io, &spec_of_pool).map_err(|error| failure(&error))?;
    reopen_scratch(io.into_members(), spec.limits, &mut |_| {})
}

/// Opens a scratch pool again from its members; `watch` is called at the start of each phase.
///
/// # Errors
/// The engine refuses the pool, or a member fails.
pub fn reopen_scratch(
    table: MemberTable,
    limits: Limits,
    watch: &mut dyn FnMut(OpenPhase),
) -> Result<OpenedPool, Failure> {
    let mut io = SyncMembers::new(table);
    let buffers = BufPool::new(super::open::KEEP_BYTES);
    let options = OpenOptions {
        host: SCRATCH_HOST,
        read_only: false,
        force: false,
        discard_journal: false,
        limits,
    };
    let begin = Instant::now();
    let opened = Engine::open_watched(&mut io, buffers.clone(), &options, watch);
    let (engine, report) = opened
        .map_err(|error| Failure::new(id::POOL_OPEN, "cannot open the scratch pool", error))?;
    Ok(OpenedPool {
        engine,
        members: io.into_members(),
        buffers,
        report,
        recovery: begin.elapsed(),
    })
}

/// Salvages the map of a scratch pool from its batches, and writes it.
///
/// # Errors
/// The engine refuses the pool, or a member fails.
pub fn rebuild_scratch(table: MemberTable, limits: Limits) -> Result<RebuildReport, Failure> {
    let mut io = SyncMembers::new(table);
    let options = OpenOptions {
        host: SCRATCH_HOST,
        read_only: false,
        force: false,
        discard_journal: false,
        limits,
    };
    let rebuilt = Engine::rebuild_map(
        &mut io,
        BufPool::new(super::open::KEEP_BYTES),
        &options,
        RebuildWork {
            write: true,
            without_checkpoint: true,
        },
        &mut |_| {},
    );
    rebuilt.map_err(|error| Failure::new(id::POOL_OPEN, "cannot rebuild the scratch pool", error))
}

/// Declares the content of a member of a running scratch pool lost and starts its full rebuild.
///
/// # Errors
/// The redundancy does not cover it, or the pool has stopped.
pub fn replace_scratch(pool: &Pool, member: usize) -> Result<(), Failure> {
    let what = || "cannot replace a member of the scratch pool".to_owned();
    let size_bytes = report(pool)?
        .members
        .get(member)
        .map_or(0, |member| member.size_bytes);
    let exchange = MemberChange::Exchange {
        uuid: random_uuid()?,
        size_bytes,
        power_safe: false,
        spare: None,
    };
    for change in [MemberChange::TakeOut, MemberChange::Settle, exchange] {
        pool.control(Control::Member {
            member: MemberId(member as u8),
            change,
        })
        .map_err(|error| control_failure(what(), &error))?;
    }
    Ok(())
}

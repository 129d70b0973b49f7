//! Exhaustive mode: a short run on a tiny pool with a power cut at every moment.
//!
//! After each turn that ended a member command, copies of the world lose power, with every set of
//! the unflushed writes that may survive: all sets of up to six writes; of more: all, none, each
//! one alone, all but each one, and some random ones; then each one torn. Copies that keep all
//! writes or none are also started with every placement of one and two faults within redundancy
//! (see `world/branches.rs`). Half of the pools have a journal of the smallest size, and most of
//! their actions are flushed; some have it on devices.

use crate::members::{DeviceBug, VirtualMembers};
use crate::model::Asked;
use crate::run::Canary;
use crate::scenario::Scenario;
use crate::violation::{Broken, Violation};
use crate::workload::{Action, Workload};
use crate::world::{Cuts, World};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use windrow_engine::{Control, Engine, Limits, OpenOptions};
use windrow_format::superblock::RESERVED_BYTES;
use windrow_geometry::Redundancy;
use windrow_io::MemberIo;
use windrow_random::Rng;
use windrow_types::{BLOCK_BYTES, MemberId, Uuid};

/// Minimum number of extents of a member: pools whose maps may be larger (`reduction=capacity`,
/// deduplication) need more.
const EXTENTS: u64 = 160;
const SEGMENT_ROWS: u32 = 8;
/// Number of blocks of all volumes: few, so that they are overwritten again and again.
const VOLUME_BLOCKS: u64 = 24;

/// Bytes of the journal on each member.
const JOURNAL_BYTES: u64 = 64 << 10;

/// Memory for the map: a page for each possible volume, and for some that are being deleted.
const MAP_BYTES: u64 = 12 * BLOCK_BYTES;

/// Counts of a run's attempts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tried {
    /// Number of moments.
    pub moments: u64,
    /// Power cuts: moments with each of the sets of writes that may survive.
    pub cuts: u64,
    /// Number of different resulting images.
    pub images: u64,
    /// Starts: one for each image, with and without faults.
    pub starts: u64,
    /// Starts with faults in addition to the power cut.
    pub with_faults: u64,
    /// Images that had been started before: the earlier result was compared with the model of
    /// another moment.
    pub again: u64,
}

/// Tries all power cuts of a run of `actions` actions. With a canary they must find a violation.
pub fn run(seed: u64, actions: u64, canary: Canary) -> Result<Tried, Violation> {
    run_at(seed, actions, canary, None).map_err(|(_, violation)| violation)
}

/// Same, returning the moment of a failure. With `only` the power goes at that moment alone.
/// (Results of other starts are not compared then.)
pub fn run_at(
    seed: u64,
    actions: u64,
    canary: Canary,
    only: Option<u64>,
) -> Result<Tried, (u64, Violation)> {
    let moment = Cell::new(0);
    let result = catch_unwind(AssertUnwindSafe(|| {
        all(seed, actions, canary, only, &moment)
    }))
    .unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
        Err(Violation::new(Broken::Panic, text.unwrap_or_default()))
    });
    result.map_err(|violation| (moment.get(), violation))
}

fn scenario(seed: u64, rng: &mut Rng) -> Scenario {
    let (redundancy, count) = rng.pick(&[
        (Redundancy::None, 1),
        (Redundancy::Copies(2), 2),
        (Redundancy::Single, 3),
        (Redundancy::Double, 4),
    ]);
    let mut drawn = Scenario::draw(seed, 0);
    // The smallest journal: it wraps and is full within a few flushes.
    drawn
        .journal
        .iter_mut()
        .for_each(|journal| journal.bytes_each = Some(JOURNAL_BYTES));
    let size = RESERVED_BYTES
        + drawn
            .journal
            .as_ref()
            .and_then(|journal| journal.bytes_each)
            .unwrap_or(0)
        + EXTENTS * u64::from(SEGMENT_ROWS) * BLOCK_BYTES;
    let limits = Limits {
        pending_bytes: 1 << 20,
        map_bytes: MAP_BYTES,
        waiting_requests: 64,
        ..drawn.limits
    };
    let tiny = Scenario {
        redundancy,
        sizes: vec![size; count],
        chunk_rows: 4,
        segment_rows: SEGMENT_ROWS,
        limits,
        ..drawn
    };
    tiny.of_sufficient_size(u64::from(SEGMENT_ROWS) * BLOCK_BYTES)
}

fn all(
    seed: u64,
    actions: u64,
    canary: Canary,
    only: Option<u64>,
    moment: &Cell<u64>,
) -> Result<Tried, Violation> {
    let mut rng = Rng::stream(seed, "exhaustive");
    let scenario = scenario(seed, &mut rng);
    let options = OpenOptions {
        host: Uuid::from_random(rng.bytes16()),
        read_only: false,
        force: false,
        discard_journal: false,
        limits: scenario.limits,
    };
    let mut members = VirtualMembers::new(
        &scenario.all_sizes(),
        scenario.discard_fill,
        Rng::stream(seed, "members"),
    );
    members.set_power_safe(scenario.power_safe());
    Engine::format(&mut members, &scenario.spec(&mut rng))
        .map_err(|error| Violation::new(Broken::Open, error.to_string()))?;
    let mut world = World::new(seed, members, false);
    world.injected = canary;
    let report = world
        .start(&options)
        .map_err(|failure| Violation::new(Broken::Open, format!("{failure:?}")))?;
    let status = world.status();
    world.model.reopened(&report, &status, 0)?;
    match canary {
        Canary::DroppedFlush => world.members.set_canary(DeviceBug::DroppedFlush {
            members: scenario.redundancy.tolerance() + 1,
        }),
        Canary::DiscardBeforeFlush => world.members.set_canary(DeviceBug::DiscardBeforeFlush),
        Canary::None | Canary::InEngine(_) => {}
    }
    let mut workload = Workload::new(seed, VOLUME_BLOCKS);
    let first = workload.first_volume();
    act(&mut world, first);
    let (mut cuts, mut seen) = (Cuts::default(), 0);
    let (mut left, mut settling) = (actions, 0);
    // After the last action: a flush, and everything still in flight.
    while left > 0 || settling < 200 {
        if left > 0 && world.unanswered() < 4 && !world.model.volumes().is_empty() {
            let (action, _) = workload.next(&world.model);
            act(&mut world, action);
            left -= 1;
            let synchronous = scenario.journal.is_some() && rng.chance(600);
            if (left == 0 || synchronous)
                && let Some(volume) = world.model.volumes().keys().next().copied()
            {
                world.submit(volume, Asked::Flush);
            }
        }
        settling += u64::from(left == 0);
        if !world.turn()? {
            break;
        }
        // A moment differs from the preceding one by a command that has ended.
        let received = (0..world.members.member_count())
            .map(|m| world.members.member(MemberId(m as u8)).received);
        let ended: u64 = received
            .map(|r| r.written_bytes + r.flushes + r.discarded_bytes)
            .sum();
        if ended != seen {
            seen = ended;
            moment.set(moment.get() + 1);
            if !scenario
                .journal
                .as_ref()
                .is_none_or(|journal| journal.devices.is_empty())
            {
                let log = world.durable_lsns().0;
                world.model.keep_history(log);
            }
            if only.is_none_or(|only| only == moment.get()) {
                // Each moment has its own random numbers, so that it can be repeated alone.
                let mut sets = Rng::stream(seed, &format!("moment {}", moment.get()));
                world.try_all_cuts(
                    &options,
                    scenario.redundancy.tolerance(),
                    &mut sets,
                    &mut cuts,
                )?;
            }
        }
    }
    let Cuts {
        cuts,
        starts,
        with_faults,
        again,
        images,
        ..
    } = cuts;
    Ok(Tried {
        moments: moment.get(),
        cuts,
        images: images.len() as u64,
        starts,
        with_faults,
        again,
    })
}

fn act(world: &mut World, action: Action) {
    match action {
        Action::Request(volume, asked) => _ = world.submit(volume, asked),
        Action::Change(change) => world.change(change),
        Action::Checkpoint => world.command(Control::Checkpoint),
        Action::Count => world.command(Control::CountSharing),
        Action::Properties(properties) => world.command(Control::SetProperties(properties)),
        Action::Dedup(volume, dedup) => world.command(Control::VolumeDedup { volume, dedup }),
        Action::Compression(volume, compression) => world.command(Control::VolumeCompression {
            volume,
            compression,
        }),
        Action::Sync(volume, sync) => world.command(Control::VolumeSync { volume, sync }),
        Action::Scrub(command) => world.command(Control::Scrub(command)),
    }
}

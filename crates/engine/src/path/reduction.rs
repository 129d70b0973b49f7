//! Use of the space that compression and deduplication save: spare space, or capacity
//! (docs/internals/reduction.md, Space).
//!
//! With `spare` a pool takes the same number of blocks as without reduction: `used_blocks` is
//! compared with the plan. With `capacity` the charge is (`base/weight.rs`): the stored size of
//! blocks, and 256 units for each block in flight. So an overwrite of a compressed block needs the
//! difference to a whole one, until it is committed. The plan reserves map pages for more blocks
//! than there is payload (`store/plan.rs`), which makes the reserve larger.
//!
//! A change of the property:
//!
//! 1. The plan of the new way must hold the present data, else the change is refused with the
//!    number of missing bytes.
//! 2. The superblock with the new way is written. Until it is durable a crash may leave either way,
//!    so the pool keeps to the smaller limits and the larger reserve. Admission checks blocks and
//!    charge.
//! 3. Then only the new way counts.
//!
//! The flag that comes with `capacity` stays: afterwards there may be more ids of shared content
//! than older software expects.

use crate::api::{Control, ControlError, PoolPlan, ReductionUse};
use crate::path::Paths;
use crate::store::Store;
use crate::store::member::Ticket;
use crate::store::pool::Pool;
use windrow_format::superblock::Reduction;
use windrow_policy::analytic::fifo_waf;
use windrow_types::{ADDRESS_UNIT, BLOCK_BYTES, FULL_BLOCK_UNITS};

/// Space that data to be admitted needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Need {
    /// Number of blocks that will hold data and did not.
    pub(crate) blocks: u64,
    /// Units charged in addition to the present charge of its blocks.
    pub(crate) units: u64,
}

impl Need {
    /// Sum of both.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            blocks: self.blocks + other.blocks,
            units: self.units + other.units,
        }
    }
}

/// A change of the property that is not durable: a start may find either way.
#[derive(Debug)]
pub(crate) struct Change {
    /// The ticket of the superblock writer that puts it in force.
    pub(crate) ticket: Ticket,
    /// The previous plan.
    pub(crate) before: PoolPlan,
    /// Limit of blocks with data until then.
    pub(crate) blocks_max: u64,
}

/// State of the property.
#[derive(Debug, Default)]
pub(crate) struct ReductionState {
    pub(crate) change: Option<Box<Change>>,
}

/// A closed form in millionths.
fn cleaning_ppm(live: f64) -> u64 {
    // The spare factor is at least 3 %, so it is finite in a pool within its limits.
    let factor = fifo_waf(live.clamp(0.0, 0.999));
    if factor.is_finite() {
        (factor * 1_000_000.0) as u64
    } else {
        0
    }
}

impl ReductionState {
    /// True if a command has to wait until it is known which way is in force.
    pub(crate) fn waits_for_reduction(&self, command: &Control) -> bool {
        let changes_plan = matches!(
            command,
            Control::SetProperties(_)
                | Control::Grow { .. }
                | Control::Remove { .. }
                | Control::VolumeDedup { .. }
        );
        changes_plan && self.change.is_some()
    }

    /// True if the charge counts against usable space.
    pub(crate) fn counts_charge(&self, pool: &Pool) -> bool {
        pool.superblock.properties.reduction == Reduction::Capacity || self.change.is_some()
    }

    /// A plan for the new way, limited by the previous one while a start may find either.
    pub(crate) fn bounded_by_change(&self, pool: &Pool, plan: PoolPlan) -> PoolPlan {
        let Some(Change { before, .. }) = self.change.as_deref() else {
            return plan;
        };
        let usable_bytes = if pool.superblock.properties.reduction == Reduction::Capacity {
            plan.usable_bytes
        } else {
            before.usable_bytes
        };
        PoolPlan {
            usable_bytes,
            map_bytes: plan.map_bytes.min(before.map_bytes),
            index_pages: plan.index_pages.min(before.index_pages),
            map_pages_max: plan.map_pages_max.min(before.map_pages_max),
            checkpoint_segments: plan.checkpoint_segments.max(before.checkpoint_segments),
            reserve_segments: plan.reserve_segments.max(before.reserve_segments),
            ..plan
        }
    }
}

impl Paths {
    /// Bytes that count against usable space.
    pub(crate) fn used_bytes(&self, store: &Store) -> u64 {
        if self.reduction.counts_charge(&store.pool) {
            store.volumes.charge() * ADDRESS_UNIT as u64
        } else {
            store.volumes.used_blocks() * BLOCK_BYTES
        }
    }

    /// Bytes that need space in a pool with this plan: the used ones, and the index pages beyond
    /// the plan's limit. (A larger pool wrote these; a start drops them.)
    pub(crate) fn bytes_beside(&self, plan: &PoolPlan, store: &Store) -> u64 {
        self.used_bytes(store) + store.volumes.index_pages_beyond(plan) * BLOCK_BYTES
    }

    /// True if the pool has space for this.
    pub(crate) fn has_space(&self, need: Need, store: &Store) -> bool {
        let beyond = store.volumes.index_pages_beyond(&store.pool.plan);
        let units_max = (store.pool.plan.usable_bytes / ADDRESS_UNIT as u64)
            .saturating_sub(beyond * u64::from(FULL_BLOCK_UNITS));
        let fits_charge = need.units == 0 || store.volumes.charge() + need.units <= units_max;
        let blocks_max = match &self.reduction.change {
            Some(change) => change.blocks_max,
            None => (store.pool.plan.usable_bytes / BLOCK_BYTES).saturating_sub(beyond),
        };
        let fits_blocks =
            need.blocks == 0 || store.volumes.used_blocks() + need.blocks <= blocks_max;
        match (
            store.pool.superblock.properties.reduction,
            &self.reduction.change,
        ) {
            (_, Some(_)) => fits_charge && fits_blocks,
            (Reduction::Spare, None) => fits_blocks,
            (Reduction::Capacity, None) => fits_charge,
        }
    }
}

impl Paths {
    /// Checks that the pool fits the present properties with this plan.
    pub(crate) fn check_way(&self, plan: &PoolPlan, store: &Store) -> Result<(), ControlError> {
        let (way, usable) = (
            store.pool.superblock.properties.reduction,
            plan.usable_bytes,
        );
        let (used, what) = match way {
            Reduction::Spare => (
                store.volumes.used_blocks() * BLOCK_BYTES,
                "bytes of blocks hold data",
            ),
            Reduction::Capacity => (
                store.volumes.charge() * ADDRESS_UNIT as u64,
                "bytes are stored or on their way",
            ),
        };
        if used > usable {
            let (name, more) = (way.name(), used - usable);
            return Err(ControlError::NoSpace(format!(
                "{used} {what}, {usable} would be usable with reduction={name}: trim or delete {more} bytes first"
            )));
        }
        let (pages, most) = (store.volumes.arena.used_pages(), plan.map_pages_max);
        if pages > most {
            let text = format!(
                "the map has {pages} pages, {most} would be allowed with reduction={}: trim or delete something first",
                way.name()
            );
            return Err(ControlError::NoSpace(text));
        }
        Ok(())
    }
}

impl Paths {
    /// Status for `status`.
    pub(crate) fn reduction_use(&self, store: &Store) -> ReductionUse {
        let (blocks, charge) = (store.volumes.used_blocks(), store.volumes.charge());
        let full = 1.0 - f64::from(store.pool.superblock.properties.spare_per_mille) / 1000.0;
        let room = store.pool.plan.usable_bytes as f64 / full.max(0.001);
        let charged_bytes = charge * ADDRESS_UNIT as u64;
        // Charge of a block as a fraction of a whole one.
        let each = if blocks == 0 {
            0.0
        } else {
            (charge as f64 / (blocks * u64::from(FULL_BLOCK_UNITS)) as f64).min(1.0)
        };
        let known = |ppm: u64| if blocks == 0 { 0 } else { ppm };
        ReductionUse {
            way: store.pool.superblock.properties.reduction,
            blocks_bytes: blocks * BLOCK_BYTES,
            charged_bytes,
            room_bytes: room as u64,
            cleaning_now_ppm: cleaning_ppm(charged_bytes as f64 / room.max(1.0)),
            cleaning_full_spare_ppm: known(cleaning_ppm(full * each)),
            cleaning_full_capacity_ppm: known(cleaning_ppm(full)),
        }
    }
}

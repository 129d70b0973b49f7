//! What compression and deduplication save: spare space, or capacity (docs/internals/reserve.md).
//!
//! With `spare` a pool takes as many blocks as it would without them: `used_blocks` is compared
//! with the plan. With `capacity` the charge is (`weight.rs`): what blocks take as they are stored,
//! and 256 units for each that is on its way. So an overwrite of a packed block needs what that
//! block lacks of a whole one, until it is committed. The plan keeps pages of the map for more
//! blocks than there is payload (`format.rs`), which makes the reserve larger.
//!
//! 1 **The property changes.** The other way's plan must hold what there is, else it is refused
//!   with what is missing. 2 The superblock that says so is written. Until it is in
//! force a crash brings either way, so the pool keeps to both: the smaller bounds and the larger
//! reserve, and what is admitted fits by blocks and by charge. 3 Then the new way alone counts.
//!
//! The flag that comes with `capacity` stays: after it there may be more ids of shared content than
//! older software expects.

use crate::member::Ticket;
use crate::{Control, ControlError, ControlId, Engine, Outbox, PoolPlan};
use windrow_format::superblock::{Features, Properties, Reduction};
use windrow_policy::analytic::fifo_waf;
use windrow_types::{ADDRESS_UNIT, BLOCK_BYTES, FULL_BLOCK_UNITS};

/// What data needs that is to be admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Need {
    /// Blocks that will hold data and did not.
    pub(crate) blocks: u64,
    /// Units that are charged for it beyond what its blocks are charged already.
    pub(crate) units: u64,
}

impl Need {
    /// Both.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            blocks: self.blocks + other.blocks,
            units: self.units + other.units,
        }
    }
}

/// The property is being changed: it is not known yet which way a start would find.
#[derive(Debug)]
struct Change {
    /// The ticket of the superblock writer that puts it in force.
    ticket: Ticket,
    /// The plan that was in force before.
    before: PoolPlan,
    /// Most blocks that may hold data until then.
    blocks_max: u64,
}

/// State of the property.
#[derive(Debug, Default)]
pub(crate) struct ReductionState {
    change: Option<Box<Change>>,
}

/// What reduction is used for, and what that does to cleaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct ReductionUse {
    /// The way.
    pub way: Reduction,
    /// Bytes of blocks that hold data.
    pub blocks_bytes: u64,
    /// What these are charged: what they take as they are stored, with 32 bytes more for each
    /// packed one, and whole blocks for what is on its way.
    pub charged_bytes: u64,
    /// Bytes of payload in all segments but the reserve: what live data and the garbage among it
    /// share.
    pub room_bytes: u64,
    /// (user + moved) / user in millionths that uniform overwrites of everything would settle at,
    /// by the closed form for first-in-first-out cleaning, with what is live now.
    pub cleaning_now_ppm: u64,
    /// The same, were the pool filled by `spare` with data that is reduced as that which is there;
    /// 0: not known, as nothing is.
    pub cleaning_full_spare_ppm: u64,
    /// The same by `capacity`.
    pub cleaning_full_capacity_ppm: u64,
}

/// A closed form in millionths.
fn cleaning_ppm(live: f64) -> u64 {
    // (The spare factor is 3 % at least, so it is finite where a pool is within its bounds.)
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
}

impl Engine {
    /// True if the charge is what counts.
    fn counts_charge(&self) -> bool {
        self.pool.superblock.properties.reduction == Reduction::Capacity
            || self.admin.reduction.change.is_some()
    }

    /// What counts against usable space, in bytes.
    pub fn used_bytes(&self) -> u64 {
        if self.counts_charge() {
            self.map.volumes.charge() * ADDRESS_UNIT as u64
        } else {
            self.map.volumes.used_blocks() * BLOCK_BYTES
        }
    }

    /// What has to have space in a pool with this plan, in bytes: what counts, and the pages of the
    /// index of deduplication beyond those that the plan leaves room for (a larger pool wrote them;
    /// a start gives them up).
    pub(crate) fn bytes_beside(&self, plan: &PoolPlan) -> u64 {
        self.used_bytes() + self.map.volumes.index_pages_beyond(plan) * BLOCK_BYTES
    }

    /// True if the pool has space for this.
    pub(crate) fn has_space(&self, need: Need) -> bool {
        let beyond = self.map.volumes.index_pages_beyond(&self.pool.plan);
        let units_max = (self.pool.plan.usable_bytes / ADDRESS_UNIT as u64)
            .saturating_sub(beyond * u64::from(FULL_BLOCK_UNITS));
        let fits_charge = need.units == 0 || self.map.volumes.charge() + need.units <= units_max;
        let blocks_max = match &self.admin.reduction.change {
            Some(change) => change.blocks_max,
            None => (self.pool.plan.usable_bytes / BLOCK_BYTES).saturating_sub(beyond),
        };
        let fits_blocks =
            need.blocks == 0 || self.map.volumes.used_blocks() + need.blocks <= blocks_max;
        match (
            self.pool.superblock.properties.reduction,
            &self.admin.reduction.change,
        ) {
            (_, Some(_)) => fits_charge && fits_blocks,
            (Reduction::Spare, None) => fits_blocks,
            (Reduction::Capacity, None) => fits_charge,
        }
    }

    /// A plan for the way that is set, bounded by the one before as long as it is not known which a
    /// start would find.
    pub(crate) fn bounded_by_change(&self, plan: PoolPlan) -> PoolPlan {
        let Some(Change { before, .. }) = self.admin.reduction.change.as_deref() else {
            return plan;
        };
        let usable_bytes = if self.pool.superblock.properties.reduction == Reduction::Capacity {
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

    /// Sets properties among which what reduction is used for is another one.
    pub(crate) fn change_reduction(
        &mut self,
        id: ControlId,
        properties: Properties,
        out: &mut Outbox,
    ) -> Result<(), ControlError> {
        if self.reshape_status().active || self.reshape.reshape_is_coming() {
            let why = "data moves to a newer layout, after a growth or a removal: wait until `pool status` shows no growth or removal";
            return Err(ControlError::Invalid(why.into()));
        }
        let before = self.pool.plan.clone();
        let was = std::mem::replace(&mut self.pool.superblock.properties, properties);
        let plan = self
            .plan_now(properties.spare_per_mille)
            .map_err(|error| ControlError::NoSpace(error.to_string()));
        let fits = plan.and_then(|plan| self.check_way(&plan).map(|()| plan));
        let policy = fits.and_then(|plan| {
            self.policy_for(&properties, &plan)
                .map_err(ControlError::Invalid)
                .map(|policy| (plan, policy))
        });
        let (plan, policy) = policy.inspect_err(|_| self.pool.superblock.properties = was)?;
        let spare = if properties.reduction == Reduction::Capacity {
            &before
        } else {
            &plan
        };
        let blocks_max = spare.usable_bytes / BLOCK_BYTES;
        if properties.reduction == Reduction::Capacity {
            self.pool.superblock.features.incompatible |= Features::CAPACITY;
        }
        let ticket = self.durability.superblock_writer.request();
        self.admin.reduction.change = Some(Box::new(Change {
            ticket,
            before,
            blocks_max,
        }));
        let plan = self.bounded_by_change(plan);
        self.take_plan(plan);
        self.take_policy(policy);
        self.space
            .segments
            .set_rule(crate::recover::victim_rule(&properties));
        self.admin.control.when_recorded(id, ticket);
        self.superblock_step(out);
        Ok(())
    }

    /// Checks that the pool can be as the properties say now, with this plan.
    fn check_way(&self, plan: &PoolPlan) -> Result<(), ControlError> {
        let (way, usable) = (self.pool.superblock.properties.reduction, plan.usable_bytes);
        let (used, what) = match way {
            Reduction::Spare => (
                self.map.volumes.used_blocks() * BLOCK_BYTES,
                "bytes of blocks hold data",
            ),
            Reduction::Capacity => (
                self.map.volumes.charge() * ADDRESS_UNIT as u64,
                "bytes are stored or on their way",
            ),
        };
        if used > usable {
            let (name, more) = (way.name(), used - usable);
            return Err(ControlError::NoSpace(format!(
                "{used} {what}, {usable} would be usable with reduction={name}: trim or delete {more} bytes first"
            )));
        }
        let (pages, most) = (self.map.volumes.arena.used_pages(), plan.map_pages_max);
        if pages > most {
            let text = format!(
                "the map has {pages} pages, {most} would be allowed with reduction={}: trim or delete something first",
                way.name()
            );
            return Err(ControlError::NoSpace(text));
        }
        Ok(())
    }

    /// The way that was set is in force as soon as the superblock says so.
    pub(crate) fn reduction_step(&mut self, out: &mut Outbox) {
        if self
            .admin
            .reduction
            .change
            .take_if(|change| {
                self.durability
                    .superblock_writer
                    .has_recorded(change.ticket)
            })
            .is_none()
        {
            return;
        }
        if let Ok(plan) = self.plan_now(self.pool.superblock.properties.spare_per_mille) {
            self.take_plan(plan);
        }
        self.report_promises(out);
    }

    /// For `status`.
    pub(crate) fn reduction_use(&self) -> ReductionUse {
        let (blocks, charge) = (self.map.volumes.used_blocks(), self.map.volumes.charge());
        let full = 1.0 - f64::from(self.pool.superblock.properties.spare_per_mille) / 1000.0;
        let room = self.pool.plan.usable_bytes as f64 / full.max(0.001);
        let charged_bytes = charge * ADDRESS_UNIT as u64;
        // What a block is charged, of a whole one.
        let each = if blocks == 0 {
            0.0
        } else {
            (charge as f64 / (blocks * u64::from(FULL_BLOCK_UNITS)) as f64).min(1.0)
        };
        let known = |ppm: u64| if blocks == 0 { 0 } else { ppm };
        ReductionUse {
            way: self.pool.superblock.properties.reduction,
            blocks_bytes: blocks * BLOCK_BYTES,
            charged_bytes,
            room_bytes: room as u64,
            cleaning_now_ppm: cleaning_ppm(charged_bytes as f64 / room.max(1.0)),
            cleaning_full_spare_ppm: known(cleaning_ppm(full * each)),
            cleaning_full_capacity_ppm: known(cleaning_ppm(full)),
        }
    }
}

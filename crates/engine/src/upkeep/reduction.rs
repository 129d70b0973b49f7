//! Change of the reduction mode: steps between two generations of the superblock.

use crate::api::{ControlError, ControlId};
use crate::path::Core;
use crate::path::reduction::Change;
use crate::store::events::Outbox;
use crate::upkeep::Upkeep;
use windrow_format::superblock::{Features, Properties, Reduction};
use windrow_types::BLOCK_BYTES;

impl Upkeep {
    /// Sets properties with a changed use of reduction.
    pub(crate) fn change_reduction(
        &mut self,
        id: ControlId,
        properties: Properties,
        core: &mut Core,
        out: &mut Outbox,
    ) -> Result<(), ControlError> {
        if self.reshape_status(core).active || self.reshape.reshape_is_coming() {
            let why = "data moves to a newer layout, after a growth or a removal: wait until `pool status` shows no growth or removal";
            return Err(ControlError::Invalid(why.into()));
        }
        let before = core.store.pool.plan.clone();
        let was = std::mem::replace(&mut core.store.pool.superblock.properties, properties);
        let plan = self
            .plan_now(properties.spare_per_mille, core)
            .map_err(|error| ControlError::NoSpace(error.to_string()));
        let fits = plan.and_then(|plan| core.paths.check_way(&plan, &core.store).map(|()| plan));
        let policy = fits.and_then(|plan| {
            core.paths
                .policy_for(&properties, &plan, &core.store)
                .map_err(ControlError::Invalid)
                .map(|policy| (plan, policy))
        });
        let (plan, policy) = policy.inspect_err(|_| core.store.pool.superblock.properties = was)?;
        let spare = if properties.reduction == Reduction::Capacity {
            &before
        } else {
            &plan
        };
        let blocks_max = spare.usable_bytes / BLOCK_BYTES;
        if properties.reduction == Reduction::Capacity {
            core.store.pool.superblock.features.incompatible |= Features::CAPACITY;
        }
        let ticket = core.store.drives.superblock_writer.request();
        core.paths.reduction.change = Some(Box::new(Change {
            ticket,
            before,
            blocks_max,
        }));
        let plan = core
            .paths
            .reduction
            .bounded_by_change(&core.store.pool, plan);
        self.take_plan(plan, core);
        core.paths
            .space
            .take_policy(&mut core.store.segments, policy);
        core.store
            .segments
            .set_rule(crate::store::segment::victim_rule(&properties));
        core.paths.commands.when_recorded(id, ticket);
        core.paths.superblock_step(&mut core.store, out);
        Ok(())
    }
}

impl Upkeep {
    /// Activates the new way once its superblock is durable.
    pub(crate) fn reduction_step(&mut self, core: &mut Core, out: &mut Outbox) {
        if core
            .paths
            .reduction
            .change
            .take_if(|change| {
                core.store
                    .drives
                    .superblock_writer
                    .has_recorded(change.ticket)
            })
            .is_none()
        {
            return;
        }
        if let Ok(plan) = self.plan_now(core.store.pool.superblock.properties.spare_per_mille, core)
        {
            self.take_plan(plan, core);
        }
        self.report_promises(core, out);
    }
}

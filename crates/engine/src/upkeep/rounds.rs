//! What follows the end of a round of flushes, and results of fetches for upkeep.

use crate::path::Core;
use crate::store::events::Outbox;
use crate::store::fetch::{Ended, FetchGoal};
use crate::upkeep::Upkeep;

impl Upkeep {
    /// Begins or ends a round of flushes, and continues what waits for its end.
    pub(crate) fn check_flush_round(&mut self, core: &mut Core, out: &mut Outbox) {
        core.paths.flush_round_check(&mut core.store, out);
        self.after_rounds(core, out);
    }

    /// Continues what waits for the end of a round of flushes.
    pub(crate) fn after_rounds(&mut self, core: &mut Core, out: &mut Outbox) {
        while core.paths.durability.flush.take_ended() && core.store.pool.stopped.is_none() {
            self.checkpoint_step(core, out);
            self.rebuild_step(core, out);
            core.paths.flush_round_check(&mut core.store, out);
        }
    }

    /// Hands the result of a fetch to cleaning or the scrub, or to the data path.
    pub(crate) fn deliver_above(&mut self, ended: Ended, core: &mut Core, out: &mut Outbox) {
        let Some((goal, fetched)) = core.paths.deliver(ended, &mut core.store, out) else {
            return;
        };
        match goal {
            FetchGoal::CleanEnd {
                victim,
                batch_row,
                part,
            } => self.clean_end_read(victim, batch_row, part, fetched.ok(), core, out),
            FetchGoal::CleanRun { victim, run } => {
                self.clean_run_read(victim, run, fetched.ok(), core, out)
            }
            FetchGoal::Doubt { doubt, .. } => self.doubt_read(doubt, fetched.ok(), core, out),
            goal => unreachable!("{goal:?} belongs to the data path"),
        }
    }
}

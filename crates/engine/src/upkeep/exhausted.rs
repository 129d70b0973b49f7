//! Way out of a pool in which nothing frees space any more (`path/write/exhausted.rs` says when
//! data is refused).

use crate::api::Notice;
use crate::base::limits::{LAST_SEGMENTS, STREAM_USER};
use crate::path::Core;
use crate::store::events::Outbox;
use crate::store::plan::EDGE_UNITS;
use crate::upkeep::Upkeep;

impl Upkeep {
    /// Resolves exhaustion: refuses waiting data and lends a segment to other requests. True if
    /// that unblocked a request.
    pub(crate) fn relieve_exhausted(&mut self, core: &mut Core, out: &mut Outbox) -> bool {
        let room = core.paths.room_units(&core.store);
        let users_wait = (!core.paths.admission.waiting.is_empty()
            || core.paths.admission.is_held_up())
            && room < EDGE_UNITS + core.paths.room_for_index_pages();
        let volumes_wait = core.paths.commands.volumes_wait() && room == 0;
        if !(users_wait || volumes_wait) || !self.nothing_comes_free(core) {
            return false;
        }
        let committed = core.paths.durability.lsns.committed();
        if core.paths.admission.begin_refusing(committed) {
            out.notices.push(Notice::Exhausted {
                segments: core.store.segments.quarantined_for_damage_count(),
            });
        }
        // No short-circuit: all three are refused.
        let is_refused = core.paths.refuse_rmw_data(&mut core.store, out)
            | core.paths.refuses_next(&mut core.store, out)
            | core.paths.refuse_chunked(&mut core.store, out);
        // A checkpoint leaves one segment for the moves of a victim.
        let kept = match core.store.segments.quarantined_for_damage_count() {
            0 => 1,
            _ if volumes_wait && core.paths.commands.deletes_wait() => LAST_SEGMENTS,
            _ => core.paths.durability.checkpoint.reserve_segments() + 1,
        };
        is_refused
            || core.paths.lend_segment(kept, &mut core.store)
            || core.paths.refuse_all(&mut core.store, out)
    }
}

impl Upkeep {
    /// True if nothing in flight may free a segment.
    fn nothing_comes_free(&self, core: &Core) -> bool {
        let has_damage = core.store.segments.quarantined_for_damage_count() > 0;
        core.store.segments.free_count() <= core.paths.floor(STREAM_USER, &core.store)
            && core.store.segments.coming_count() == 0
            && !core.paths.space.cleaner.cleaning_goes_on()
            && core.paths.admission.placing.is_empty()
            && core.paths.users_are_written(&core.store)
            && !core.paths.durability.flush.is_under_way()
            && !(core.paths.durability.checkpoint.is_requested()
                && core.paths.durability.checkpoint.is_idle()
                && core.paths.durability.is_settled_after_start())
            && !core.paths.ranges.has_walks()
            && if has_damage {
                core.paths.nothing_is_moved(&core.store) && core.paths.checkpoint_rests(&core.store)
            } else {
                self.nothing_is_in_flight(core)
            }
    }
}

impl Upkeep {
    /// True if no command, job or batch is in flight: remaining moves and a checkpoint wait for
    /// segments.
    fn nothing_is_in_flight(&self, core: &Core) -> bool {
        core.store.drives.members.commands_have_ended()
            && core.store.reads.fetches.is_empty()
            && self.integrity.verifications.is_empty()
            && !core.paths.space.cleaner.has_reads()
            && core
                .paths
                .log
                .streams
                .iter()
                .all(|stream| stream.in_flight.is_empty())
            && core.store.drives.superblock_writer.has_recorded_all()
            && core.paths.checkpoint_rests(&core.store)
    }
}

impl Upkeep {
    /// True if a shutdown waits for a checkpoint that gets no segment, and nothing can free one.
    pub(crate) fn has_no_room_to_end(&self, core: &Core) -> bool {
        core.paths.durability.checkpoint.wants_segment()
            && core.paths.admission.is_idle()
            && core.paths.user_reads.is_empty()
            && self.nothing_comes_free(core)
    }
}

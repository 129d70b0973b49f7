//! From dead to free: the reuse rule, discards, and the flushes or checkpoints that free dead
//! segments when space is short.

use crate::base::fault_injection::InjectedBug;
use crate::base::limits::{CLEANED_STREAMS, STREAM_USER};
use crate::path::Core;
use crate::path::write::EDGE_UNITS;
use crate::store::events::Outbox;
use crate::store::member::Purpose;
use crate::store::segment::ReuseHorizon;
use crate::upkeep::Upkeep;
use windrow_io::MemberOp;
use windrow_types::{BatchSeq, Lsn};

impl Upkeep {
    /// Requests what keeps dead segments from being freed, if space is short.
    pub(super) fn hurry(&mut self, core: &mut Core, out: &mut Outbox) {
        self.hurry_for_repairs(core, out);
        let (held, wanted) = (
            core.paths.log.stream(STREAM_USER).reserved.len(),
            core.paths.segments_wanted(&core.store) as usize,
        );
        // While data is refused no write waits for segments. There must be more than the user
        // stream holds before data is admitted again.
        let short = held < wanted || core.paths.is_refusing_data(&core.store);
        let urgent = core.paths.durability.checkpoint.wants_segment()
            || self.removal_wants_room(core)
            || (short && self.wants_room(core));
        if short || urgent {
            // One round of member flushes for several segments, unless users stand still.
            let several = core.store.segments.dead_count()
                - core.store.segments.dead_in_replay_count()
                > crate::store::plan::cleaning_ahead(core.store.pool.plan.segments) / 2;
            if urgent {
                self.hurry_dead(short, several, core, out);
            } else if held + 1 < wanted
                && several
                && !core.paths.durability.flush.is_under_way()
                && core
                    .store
                    .segments
                    .wait_for_flush(&self.reuse_horizon(core))
            {
                // No write waits yet: a round that begins now ends before the reserved segments of
                // the user streams are used up. An earlier round would find fewer dead segments.
                if self.flush_would_free(core) {
                    core.paths.durability.flush.request();
                }
            }
        }
        // The victims' last moves are in partly filled batches and nothing else can fill them. So
        // no further victim may be begun although too little becomes free, or a request is stalled.
        // (Not earlier: each such batch costs a head and a footer of its own, garbage that cleaning
        // lacks.)
        let is_full = !core.paths.space.cleaner.victims.is_empty()
            && core.paths.space.cleaner.segments_needed() >= self.outputs(core)
            && !self.is_clean_enough(core);
        let is_out = urgent
            && core.store.segments.free_count() <= core.paths.floor(STREAM_USER, &core.store);
        if (is_full || is_out)
            && !core.paths.space.cleaner.is_reading()
            && !core.paths.moves_are_flying(&core.store)
        {
            CLEANED_STREAMS.into_iter().for_each(|id| {
                core.paths.seal(id, &mut core.store, out);
            });
        }
    }

    /// True if a flush of the written data would free dead segments.
    pub(crate) fn flush_would_free(&self, core: &Core) -> bool {
        let written = ReuseHorizon {
            durable: core.paths.durability.lsns.committed(),
            durable_cleaned: core.paths.moves_committed_through(&core.store),
            ..self.reuse_horizon(core)
        };
        core.store.segments.flush_would_free(&written)
    }

    /// A request waits for a segment: asks for a flush that frees dead segments, or for a
    /// checkpoint if nothing else does. `short`: the user stream has fewer segments reserved than
    /// it should.
    fn hurry_dead(&mut self, short: bool, several: bool, core: &mut Core, out: &mut Outbox) {
        let starved = core.paths.durability.checkpoint.wants_segment();
        let flush = core
            .store
            .segments
            .wait_for_flush(&self.reuse_horizon(core));
        // A checkpoint is forced only when nothing else can free a segment any more. (Blocks that
        // are read and wait for the cleaned stream do not count: that stream may be the one that is
        // stuck.)
        let stuck = !core.paths.space.cleaner.has_reads()
            && !core.paths.moves_are_flying(&core.store)
            && core.paths.users_are_written(&core.store);
        if flush && (several || stuck || starved || core.paths.room_units(&core.store) < EDGE_UNITS)
        {
            core.paths.durability.flush.request();
            self.seal_if_superseding(core, out);
        }
        // Segments that cleaning has just emptied become free with the requested flush; those that
        // wait for an open batch with the flush after it.
        let waits = || self.flush_would_free(core) || !core.paths.users_are_written(&core.store);
        let frees = stuck
            && core.paths.space.cleaner.victims.is_empty()
            && core.store.segments.checkpoint_frees()
            && core.paths.durability.checkpoint.is_idle()
            && !waits();
        // For a removal alone not for ever: each checkpoint makes young segments that the next one
        // would free.
        let for_users = starved || (short && self.wants_room(core));
        if frees {
            self.force_checkpoint(for_users, core);
        }
    }

    /// Seals an open user batch with a trim that dead segments wait for.
    fn seal_if_superseding(&mut self, core: &mut Core, out: &mut Outbox) {
        if core.paths.users_are_written(&core.store)
            && core.paths.durability.lsns.committed() == core.paths.durability.lsns.durable()
        {
            core.paths.seal_users(Lsn(u64::MAX), &mut core.store, out);
        }
    }

    /// Horizon with which the reuse rule compares.
    pub(crate) fn reuse_horizon(&self, core: &Core) -> ReuseHorizon {
        let oldest = core.paths.durability.checkpoint.kept_oldest;
        if core.store.observe.bug == InjectedBug::EarlyReuse {
            return ReuseHorizon {
                durable: Lsn(u64::MAX),
                durable_cleaned: BatchSeq(u64::MAX),
                oldest_checkpoint: oldest,
            };
        }
        ReuseHorizon {
            durable: core.paths.durability.lsns.durable(),
            durable_cleaned: core.paths.space.cleaner.numbers.durable(),
            oldest_checkpoint: oldest,
        }
    }

    /// Frees dead segments; discards them first if the pool does that. True if some are free now.
    pub(crate) fn free_segments(&mut self, core: &mut Core, out: &mut Outbox) -> bool {
        let horizon = self.reuse_horizon(core);
        core.store
            .segments
            .set_oldest_checkpoint(horizon.oldest_checkpoint);
        if core.store.segments.dead_count() == 0
            || core.store.pool.read_only
            || core.store.pool.stopped.is_some()
        {
            return false;
        }
        let free = core.store.segments.free_count();
        let discard = core.store.pool.superblock.properties.discard
            && core.store.pool.closing != crate::store::pool::Closing::Export;
        for segment in core.store.segments.free_dead(&horizon, discard) {
            let shape = *core.store.pool.zones.shape(segment);
            // After a salvage of the map two layouts may both have data in the same extents: then
            // nothing is discarded.
            let shared = core.store.segments.has_layers()
                && core
                    .store
                    .pool
                    .zones
                    .overlapping(segment)
                    .iter()
                    .any(|other| core.store.segments.get(*other).state.is_in_use());
            let extents = (0..usize::from(shape.width))
                .map(|p| core.store.pool.zones.locate(segment).extent(p))
                .filter(|(m, _)| core.store.drives.members.is_online(*m) && !shared);
            let extents: Vec<_> = extents
                .flat_map(|(m, offset)| {
                    [Some(m), core.store.drives.exchanges.shadow_of(m)]
                        .into_iter()
                        .flatten()
                        .map(move |m| (m, offset))
                })
                .collect();
            // Pins count the discards: the segment becomes free when the last one has ended, so
            // that no write can overtake a discard.
            core.store.segments.get_mut(segment).pins = extents.len() as u32;
            if extents.is_empty() {
                core.store.segments.discarded(segment);
            }
            for (member, offset) in extents {
                core.store.send(
                    member,
                    MemberOp::Discard {
                        offset,
                        length: shape.extent_bytes(),
                    },
                    Purpose::Discard { segment },
                    out,
                );
            }
        }
        core.store.segments.free_count() > free
    }
}

//! From dead to free: the reuse rule, discards, and the flushes or checkpoints that free dead
//! segments when space is short.

use crate::limits::{CLEANED_STREAMS, STREAM_USER};
use crate::member::Purpose;
use crate::segment::ReuseHorizon;
use crate::write::EDGE_UNITS;
use crate::{Engine, InjectedBug, Outbox};
use windrow_io::MemberOp;
use windrow_types::{BatchSeq, Lsn};

impl Engine {
    /// Requests what keeps dead segments from being freed, if space is short.
    pub(super) fn hurry(&mut self, out: &mut Outbox) {
        self.hurry_for_repairs(out);
        let (held, wanted) = (
            self.log.stream(STREAM_USER).reserved.len(),
            self.segments_wanted() as usize,
        );
        // While data is refused no write waits for segments. There must be more than the user
        // stream holds before data is admitted again.
        let short = held < wanted || self.is_refusing_data();
        let urgent = self.durability.checkpoint.wants_segment()
            || self.removal_wants_room()
            || (short && self.wants_room());
        if short || urgent {
            // One round of member flushes for several segments, unless users stand still.
            let several = self.space.segments.dead_count()
                - self.space.segments.dead_in_replay_count()
                > crate::format::cleaning_ahead(self.pool.plan.segments) / 2;
            if urgent {
                self.hurry_dead(short, several, out);
            } else if held + 1 < wanted
                && several
                && !self.durability.flush.is_under_way()
                && self.space.segments.wait_for_flush(&self.reuse_horizon())
            {
                // No write waits yet: a round that begins now ends before the reserved segments of
                // the user streams are used up. An earlier round would find fewer dead segments.
                if self.flush_would_free() {
                    self.durability.flush.request();
                }
            }
        }
        // The victims' last moves are in partly filled batches and nothing else can fill them. So
        // no further victim may be begun although too little becomes free, or a request is stalled.
        // (Not earlier: each such batch costs a head and a footer of its own, garbage that cleaning
        // lacks.)
        let is_full = !self.space.cleaner.victims.is_empty()
            && self.space.cleaner.segments_needed() >= self.outputs()
            && !self.is_clean_enough();
        let is_out = urgent && self.space.segments.free_count() <= self.floor(STREAM_USER);
        if (is_full || is_out) && !self.space.cleaner.is_reading() && !self.moves_are_flying() {
            CLEANED_STREAMS.into_iter().for_each(|id| {
                self.seal(id, out);
            });
        }
    }

    /// True if a flush of the written data would free dead segments.
    pub(crate) fn flush_would_free(&self) -> bool {
        let written = ReuseHorizon {
            durable: self.durability.lsns.committed(),
            durable_cleaned: self.moves_committed_through(),
            ..self.reuse_horizon()
        };
        self.space.segments.flush_would_free(&written)
    }

    /// A request waits for a segment: asks for a flush that frees dead segments, or for a
    /// checkpoint if nothing else does. `short`: the user stream has fewer segments reserved than
    /// it should.
    fn hurry_dead(&mut self, short: bool, several: bool, out: &mut Outbox) {
        let starved = self.durability.checkpoint.wants_segment();
        let flush = self.space.segments.wait_for_flush(&self.reuse_horizon());
        // A checkpoint is forced only when nothing else can free a segment any more. (Blocks that
        // are read and wait for the cleaned stream do not count: that stream may be the one that is
        // stuck.)
        let stuck =
            !self.space.cleaner.has_reads() && !self.moves_are_flying() && self.users_are_written();
        if flush && (several || stuck || starved || self.room_units() < EDGE_UNITS) {
            self.durability.flush.request();
            self.seal_if_superseding(out);
        }
        // Segments that cleaning has just emptied become free with the requested flush; those that
        // wait for an open batch with the flush after it.
        let waits = || self.flush_would_free() || !self.users_are_written();
        let frees = stuck
            && self.space.cleaner.victims.is_empty()
            && self.space.segments.checkpoint_frees()
            && self.durability.checkpoint.is_idle()
            && !waits();
        // For a removal alone not for ever: each checkpoint makes young segments that the next one
        // would free.
        let for_users = starved || (short && self.wants_room());
        if frees {
            self.force_checkpoint(for_users);
        }
    }

    /// Seals an open user batch with a trim that dead segments wait for.
    fn seal_if_superseding(&mut self, out: &mut Outbox) {
        if self.users_are_written()
            && self.durability.lsns.committed() == self.durability.lsns.durable()
        {
            self.seal_users(Lsn(u64::MAX), out);
        }
    }

    /// Horizon with which the reuse rule compares.
    pub(crate) fn reuse_horizon(&self) -> ReuseHorizon {
        let oldest = self.durability.checkpoint.kept_oldest;
        if self.observe.bug == InjectedBug::EarlyReuse {
            return ReuseHorizon {
                durable: Lsn(u64::MAX),
                durable_cleaned: BatchSeq(u64::MAX),
                oldest_checkpoint: oldest,
            };
        }
        ReuseHorizon {
            durable: self.durability.lsns.durable(),
            durable_cleaned: self.space.cleaner.numbers.durable(),
            oldest_checkpoint: oldest,
        }
    }

    /// Frees dead segments; discards them first if the pool does that. True if some are free now.
    pub(crate) fn free_segments(&mut self, out: &mut Outbox) -> bool {
        let horizon = self.reuse_horizon();
        self.space
            .segments
            .set_oldest_checkpoint(horizon.oldest_checkpoint);
        if self.space.segments.dead_count() == 0
            || self.pool.read_only
            || self.pool.stopped.is_some()
        {
            return false;
        }
        let free = self.space.segments.free_count();
        let discard = self.pool.superblock.properties.discard
            && self.pool.closing != crate::pool::Closing::Export;
        for segment in self.space.segments.free_dead(&horizon, discard) {
            let shape = *self.pool.zones.shape(segment);
            // After a salvage of the map two layouts may both have data in the same extents: then
            // nothing is discarded.
            let shared = self.space.segments.has_layers()
                && self
                    .pool
                    .zones
                    .overlapping(segment)
                    .iter()
                    .any(|other| self.space.segments.get(*other).state.is_in_use());
            let extents = (0..usize::from(shape.width))
                .map(|p| self.pool.zones.locate(segment).extent(p))
                .filter(|(m, _)| self.drives.members.is_online(*m) && !shared);
            let extents: Vec<_> = extents
                .flat_map(|(m, offset)| {
                    [Some(m), self.drives.exchanges.shadow_of(m)]
                        .into_iter()
                        .flatten()
                        .map(move |m| (m, offset))
                })
                .collect();
            // Pins count the discards: the segment becomes free when the last one has ended, so
            // that no write can overtake a discard.
            self.space.segments.get_mut(segment).pins = extents.len() as u32;
            if extents.is_empty() {
                self.space.segments.discarded(segment);
            }
            for (member, offset) in extents {
                self.send(
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
        self.space.segments.free_count() > free
    }
}

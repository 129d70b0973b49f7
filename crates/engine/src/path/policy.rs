//! Policy of the pool: the stream of each block (docs/internals/cleaning.md).
//!
//! 1. The placement sees each user block when it is placed, and each moved block when it is moved.
//!    It names a class, and [`Classes`] the stream of the class.
//! 2. The first user stream and the first stream of moved blocks exist in every pool. All
//!    guarantees rest on them: the log room (`path/write/room.rs`), the floors
//!    (`path/write/seal.rs`). The **further streams** take a block only if they can certainly seal
//!    it; other blocks go to the first one. They take segments only above the user floor.
//! 3. A further stream is opened once: it takes a segment, two checkpoints record its start, then
//!    it is used. Its chain is found whichever kept checkpoint is replayed. It stays open: an
//!    unused stream holds its open segment.
//! 4. With shared content (docs/internals/reduction.md) user writes go to the first stream only. So
//!    does everything that a start readmits from a journal, because that stream has reserved the
//!    segments for it.
//! 5. Knowledge of a placement about blocks is indexed by their map entries' numbers and in memory
//!    only: a start begins to learn again.

mod space;

pub(crate) use space::Space;

use crate::api::PoolPlan;
use crate::base::limits::{
    CLEANED_STREAMS, EXTRA_STREAM_SEGMENTS, EXTRA_STREAM_SPARE, LSNS_OPEN_MAX,
    PLACEMENT_FIXED_BYTES, SPARE_PER_MILLE_MIN, STREAM_CLEANED, STREAM_USER, USER_STREAMS,
    is_cleaned, is_user,
};
use crate::path::Paths;
use crate::store::Store;
use crate::store::events::Outbox;
use crate::store::pending::{BlockKey, PendingSlot};
use crate::store::segment::{SegmentState, Segments};
use windrow_format::checkpoint::MAP_PAGE_ENTRIES;
use windrow_format::superblock::{Features, Properties, StreamPosition};
use windrow_policy::any::{AnyPlacement, Classes};
use windrow_policy::kind::PlacementKind;
use windrow_policy::place::{Place, Placement, Survey};
use windrow_types::{FULL_BLOCK_UNITS, Lsn, SegmentId};

/// State of the policy.
#[derive(Debug)]
pub(crate) struct Policy {
    kind: PlacementKind,
    classes: Classes,
    placement: AnyPlacement,
    /// Number of blocks that the placement distinguishes; 0: it does not.
    blocks: u32,
    /// Bytes of memory for that.
    bytes: u64,
    /// Number of writes until the next survey of all segments.
    survey_in: u32,
    /// Set if streams are to be opened.
    opens: bool,
    /// Stream of the next block to place, once it is known.
    next_user: Option<usize>,
    /// Number of blocks that went to the first stream because their own could not take them.
    overflowed: u64,
    /// Number of blocks that went to further streams.
    pub(crate) further: u64,
    /// Highest LSN of a user block that went to one.
    last_further: Lsn,
}

/// Answer of a further stream to a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Takes {
    Yes,
    /// Later: batches of it are in flight.
    Later,
    No,
}

/// Segments in the form that a placement reads.
struct Look<'a>(&'a Segments);

impl Survey for Look<'_> {
    fn sealed(&self, each: &mut dyn FnMut(Place, u32)) {
        for id in (0..self.0.count()).map(SegmentId) {
            let segment = self.0.get(id);
            if segment.state == SegmentState::Sealed && is_data(segment.stream) {
                each(
                    self.0.spot(id),
                    segment.weight() / u32::from(FULL_BLOCK_UNITS),
                );
            }
        }
    }
}

fn is_data(stream: u8) -> bool {
    is_user(usize::from(stream)) || is_cleaned(usize::from(stream))
}

/// Number of streams beyond the first of either kind that a pool can afford.
///
/// Each holds at most two segments, the open one and its successor, which reduces the garbage
/// available to cleaning. All together they hold at most an eighth of the present spare, and at
/// most the spare of the least spare factor. So the claims of docs/internals/reserve.md hold under
/// any factor.
pub(crate) fn extra_streams(plan: &PoolPlan, spare_per_mille: u16) -> u32 {
    let data = u64::from(plan.segments.saturating_sub(plan.reserve_segments));
    let least = data * u64::from(SPARE_PER_MILLE_MIN) / 1000 / EXTRA_STREAM_SEGMENTS;
    let wanted = data * u64::from(spare_per_mille) / 1000 / EXTRA_STREAM_SPARE;
    least
        .min(wanted)
        .min((USER_STREAMS.len() + CLEANED_STREAMS.len() - 2) as u64) as u32
}

impl Policy {
    /// Blocks that went to another stream than the policy meant.
    pub(crate) fn overflowed(&self) -> u64 {
        self.overflowed
    }

    /// A block goes to another stream than the policy meant.
    pub(crate) fn note_overflow(&mut self) {
        self.overflowed += 1;
    }

    /// Policy of these properties. `pages`: limit of map pages. `bytes_max`: limit of bytes for a
    /// placement's state.
    ///
    /// # Errors
    /// It would take more memory, or there are more blocks than it can number.
    pub(crate) fn new(
        properties: &Properties,
        plan: &PoolPlan,
        segment_blocks: u32,
        segments: u32,
        pages: u64,
        bytes_max: u64,
    ) -> Result<Self, String> {
        let kind =
            PlacementKind::from_code(properties.placement).unwrap_or(PlacementKind::Separate);
        let classes = Classes::new(kind, extra_streams(plan, properties.spare_per_mille));
        // With one stream of either kind there is nothing to distinguish, but the learned state
        // also guides the choice of victims.
        let needed = if classes.is_plain() && kind != PlacementKind::Learned {
            0
        } else {
            u64::from(kind.bytes_per_block())
        };
        let blocks = if needed == 0 {
            0
        } else {
            pages * MAP_PAGE_ENTRIES as u64
        };
        let bytes = blocks * needed
            + if needed == 0 {
                0
            } else {
                PLACEMENT_FIXED_BYTES
            };
        if bytes > bytes_max {
            return Err(format!(
                "placement '{}' would keep {bytes} bytes in memory for this pool, {bytes_max} are allowed; use separate or generations",
                kind.name()
            ));
        }
        let Ok(blocks) = u32::try_from(blocks) else {
            return Err(format!(
                "placement '{}' cannot distinguish more than 2^32 blocks; use separate or generations",
                kind.name()
            ));
        };
        let kept = if classes.is_plain() && kind != PlacementKind::Learned {
            PlacementKind::Separate
        } else {
            kind
        };
        let placement = AnyPlacement::new(kept, blocks, segments, segment_blocks, classes.classes);
        Ok(Self {
            kind,
            classes,
            placement,
            blocks,
            bytes,
            survey_in: 1,
            opens: !classes.is_plain(),
            next_user: None,
            overflowed: 0,
            further: 0,
            last_further: Lsn(0),
        })
    }

    /// Policy without state.
    pub(crate) fn plain() -> Self {
        let kind = PlacementKind::Separate;
        let (classes, placement) = (Classes::new(kind, 0), AnyPlacement::new(kind, 0, 0, 1, 2));
        Self {
            kind,
            classes,
            placement,
            blocks: 0,
            bytes: 0,
            survey_in: 1,
            opens: false,
            next_user: None,
            overflowed: 0,
            further: 0,
            last_further: Lsn(0),
        }
    }

    /// True for the same placement with the same streams.
    fn is_like(&self, other: &Self) -> bool {
        (self.kind, self.classes, self.blocks) == (other.kind, other.classes, other.blocks)
    }

    /// Bytes of its state.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of streams of moved blocks that it uses.
    pub(crate) fn moved_streams(&self) -> u8 {
        self.classes.moved
    }

    /// The placement, with its knowledge of segments.
    pub(crate) fn placement(&self) -> &AnyPlacement {
        &self.placement
    }

    fn is_idle(&self) -> bool {
        self.classes.is_plain() && self.blocks == 0
    }

    /// Tag of a segment of a stream.
    pub(crate) fn tag(&self, stream: usize) -> u8 {
        if !is_user(stream) && !is_cleaned(stream) && self.placement.due().is_some() {
            // Pages of checkpoints are in no group.
            return 0;
        }
        let at = |streams: &[usize]| streams.iter().position(|s| *s == stream).unwrap_or(0) as u8;
        if is_user(stream) {
            self.placement.tag(
                self.classes
                    .class_of_user(at(&USER_STREAMS).min(self.classes.users - 1)),
            )
        } else {
            self.placement.tag(
                self.classes
                    .class_of_moved(at(&CLEANED_STREAMS).min(self.classes.moved - 1)),
            )
        }
    }

    fn extra(&self) -> impl Iterator<Item = usize> + use<> {
        let (users, moved) = (
            usize::from(self.classes.users),
            usize::from(self.classes.moved),
        );
        USER_STREAMS[1..users]
            .iter()
            .chain(&CLEANED_STREAMS[1..moved])
            .copied()
    }
}

impl Paths {
    /// Policy of these properties for a pool of this capacity.
    ///
    /// # Errors
    /// See [`Policy::new`].
    pub(crate) fn policy_for(
        &self,
        properties: &Properties,
        plan: &PoolPlan,
        store: &Store,
    ) -> Result<Policy, String> {
        let shapes = store
            .pool
            .zones
            .current()
            .map(|zone| crate::store::plan::payload_blocks(&zone.shape));
        let segment_blocks = shapes.max().unwrap_or(1) as u32;
        Policy::new(
            properties,
            plan,
            segment_blocks,
            store.segments.count(),
            store.volumes.arena.max_pages(),
            store.pool.limits.placement_bytes,
        )
    }

    /// Stream that a user block is meant for. The placement is called once for each block.
    pub(crate) fn stream_of_user(
        &mut self,
        key: BlockKey,
        pending: PendingSlot,
        store: &mut Store,
    ) -> usize {
        if let Some(stream) = self.space.policy.next_user {
            return stream;
        }
        store.segments.advance_user_clock();
        if self.space.policy.is_idle() {
            self.space.policy.next_user = Some(STREAM_USER);
            return STREAM_USER;
        }
        let now = store.segments.user_clock();
        self.space.survey_segments(&store.segments, now);
        let class = match self.space.policy_block(&store.volumes, key) {
            Some(block) => {
                self.note_death(key, block, Some(pending), false, store);
                self.space.policy.placement.user(block, now)
            }
            None if self.space.policy.blocks == 0 => self.space.policy.placement.user(0, now),
            None => self.space.policy.classes.class_of_user(0),
        };
        let stream = USER_STREAMS[usize::from(self.space.policy.classes.user(class))];
        self.space.policy.next_user = Some(stream);
        stream
    }

    /// Stream that takes the next block to place: `data`, or a record. `None`: it has to wait.
    pub(crate) fn choose_stream(
        &mut self,
        data: Option<(BlockKey, PendingSlot)>,
        entry_bytes: usize,
        units: u16,
        store: &mut Store,
        out: &mut Outbox,
    ) -> Option<usize> {
        let meant = data.map_or(STREAM_USER, |(key, pending)| {
            self.stream_of_user(key, pending, store)
        });
        if meant != STREAM_USER && !store.pool.wants_one_user_stream() {
            match self.extra_takes(meant, entry_bytes, units, store, out) {
                Takes::Yes => return Some(meant),
                Takes::Later => return None,
                Takes::No => {}
            }
        }
        self.make_room(STREAM_USER, entry_bytes, units, store, out)
            .then_some(STREAM_USER)
    }

    /// Records that the block, whose stream was chosen, was placed in `stream`.
    #[inline]
    pub(crate) fn user_placed(
        &mut self,
        key: BlockKey,
        stream: usize,
        lsn: Lsn,
        store: &mut Store,
    ) {
        if stream != STREAM_USER {
            self.space.policy.last_further = lsn;
        }
        let meant = self.space.policy.next_user.take();
        if meant.is_some_and(|meant| meant != stream) {
            self.space.policy.note_overflow();
        }
        self.note_placed(key, stream, store);
    }

    /// Records that a block was put into the open segment of a stream.
    #[inline(always)]
    pub(crate) fn note_placed(&mut self, key: BlockKey, stream: usize, store: &mut Store) {
        self.space.policy.further += u64::from(stream != STREAM_USER && stream != STREAM_CLEANED);
        if self.space.policy.kind == PlacementKind::Hotness && self.space.policy.blocks > 0 {
            self.note_place(key, stream, store);
        }
    }

    /// Tells the placement where a block is now.
    fn note_place(&mut self, key: BlockKey, stream: usize, store: &mut Store) {
        if let Some(block) = self.space.policy_block(&store.volumes, key) {
            let segment = self.log.stream(stream).position.segment;
            self.space
                .policy
                .placement
                .placed(block, segment.0, store.segments.user_clock());
        }
    }

    /// Records the death of the newest version of a block.
    fn note_death(
        &mut self,
        key: BlockKey,
        block: u32,
        pending: Option<PendingSlot>,
        trimmed: bool,
        store: &mut Store,
    ) {
        if !self.space.policy.placement.watches_deaths() {
            return;
        }
        // A version in flight has no known address yet; the death of the one in the map was
        // recorded when that one came.
        let flying = pending.is_some_and(|slot| self.log.pending.record(slot).in_flight > 1);
        let entry = store.volumes.look_up(key.volume(), key.lba());
        let place = Some(entry)
            .filter(|entry| entry.has_payload() && !flying)
            .map(|entry| {
                store
                    .segments
                    .spot(store.pool.codec.segment(entry.address()))
            });
        if place.is_some() || flying {
            let place = place.unwrap_or(Place {
                segment: 0,
                tag: 0,
                age: 0,
            });
            self.space
                .policy
                .placement
                .died(block, store.segments.user_clock(), place, trimmed);
        }
    }

    /// Records that a block was trimmed, or became all zeroes or ones.
    pub(crate) fn note_trim(
        &mut self,
        key: BlockKey,
        pending: Option<PendingSlot>,
        store: &mut Store,
    ) {
        if self.space.policy.blocks > 0
            && let Some(block) = self.space.policy_block(&store.volumes, key)
        {
            self.note_death(key, block, pending, true, store);
        }
    }

    /// Records that a trim of a range removed a block from `segment`.
    pub(crate) fn note_range_death(
        &mut self,
        key: BlockKey,
        segment: SegmentId,
        store: &mut Store,
    ) {
        if self.space.policy.blocks > 0
            && self.space.policy.placement.watches_deaths()
            && let Some(block) = self.space.policy_block(&store.volumes, key)
            && self.log.pending.find(key).is_none()
        {
            let place = store.segments.spot(segment);
            self.space
                .policy
                .placement
                .died(block, store.segments.user_clock(), place, true);
        }
    }

    /// Decides if a further stream takes an entry, and makes room for it as far as that is certain.
    /// It never begins a batch that it could not seal: it enters the last chunk of its segment only
    /// with a successor.
    pub(crate) fn extra_takes(
        &mut self,
        stream: usize,
        entry_bytes: usize,
        units: u16,
        store: &mut Store,
        out: &mut Outbox,
    ) -> Takes {
        loop {
            let s = self.log.stream(stream);
            if s.position.segment == SegmentId::NONE
                || s.usable_from > self.durability.checkpoint.kept_oldest
            {
                return Takes::No;
            }
            let shape = *store.pool.zones.shape(s.position.segment);
            let last_chunk = s.position.row + shape.chunk_rows >= shape.rows;
            if s.open.is_empty()
                && last_chunk
                && s.position.next_segment == SegmentId::NONE
                && !self.reserve_for_extra(stream, store)
            {
                return Takes::No;
            }
            let s = self.log.stream(stream);
            if s.open
                .table
                .takes(&shape, s.position.row, entry_bytes, units)
            {
                return Takes::Yes;
            }
            if s.open.is_empty() {
                return Takes::No;
            }
            if !self.seal_full(stream, store, out) {
                return Takes::Later;
            }
        }
    }

    fn reserve_for_extra(&mut self, stream: usize, store: &mut Store) -> bool {
        if store.segments.free_count() <= self.floor(STREAM_USER, store) {
            return false;
        }
        let Some(next) = store.segments.reserve() else {
            return false;
        };
        let s = self.log.stream_mut(stream);
        s.reserved.push_back(next);
        s.position.next_segment = next;
        true
    }

    /// Opens the further streams that the policy wants.
    pub(crate) fn open_streams(&mut self, store: &mut Store) {
        if !self.space.policy.opens
            || store.pool.read_only
            || store.pool.closing.is_under_way()
            || !self.durability.is_settled_after_start()
        {
            return;
        }
        let mut ready = true;
        let one = store.pool.wants_one_user_stream();
        for id in self
            .space
            .policy
            .extra()
            .filter(|id| !(one && is_user(*id)))
        {
            if self.log.stream(id).position.segment == SegmentId::NONE {
                if store.segments.free_count() <= self.floor(STREAM_USER, store) + 1 {
                    ready = false;
                    continue;
                }
                let Some(segment) = store.segments.reserve() else {
                    return;
                };
                // Software that supports three streams only must not open the pool. The flag is
                // active with the root that names the stream.
                store.pool.superblock.features.incompatible |= Features::STREAMS;
                store.segments.open(segment, id);
                let usable_from = self.durability.checkpoint.current() + 1;
                let s = self.log.stream_mut(id);
                s.position = StreamPosition {
                    segment,
                    row: 0,
                    seq: s.position.seq,
                    next_segment: SegmentId::NONE,
                };
                s.usable_from = usable_from;
            }
            if self.log.stream(id).usable_from > self.durability.checkpoint.kept_oldest {
                ready = false;
                if self.durability.checkpoint.is_idle() {
                    self.durability.checkpoint.request();
                }
            }
        }
        self.space.policy.opens = !ready;
    }

    /// True if everything in further user streams is durable: then a power cut leaves no gap in the
    /// LSNs of the first one.
    pub(crate) fn is_further_durable(&self, _store: &Store) -> bool {
        self.space.policy.last_further <= self.durability.lsns.durable()
    }

    /// True if further user streams hold LSNs that are not settled.
    pub(crate) fn has_further_lsns(&self, store: &Store) -> bool {
        !self.is_one_user_stream(store)
    }

    /// True if further user streams hold no valid entries: then the first one has all LSNs, without
    /// a gap.
    pub(crate) fn is_one_user_stream(&self, _store: &Store) -> bool {
        USER_STREAMS[1..].iter().all(|id| {
            let s = self.log.stream(*id);
            s.open.is_empty() && s.unsettled.is_empty()
        })
    }

    /// Last LSN up to which everything is committed.
    pub(crate) fn committed_through(&self, _store: &Store) -> Lsn {
        let mut first = self.durability.lsns.last().next();
        for id in USER_STREAMS {
            let s = self.log.stream(id);
            let flying = s.in_flight.iter().find_map(|batch| batch.lsns);
            first = flying
                .or(s.open.lsns)
                .map_or(first, |(begin, _)| first.min(begin));
        }
        if let Some((begin, _)) = self
            .admission
            .placing
            .front()
            .and_then(|placing| placing.entry().lsns())
        {
            first = first.min(begin);
        }
        first = self
            .admission
            .next_of_chunked()
            .map_or(first, |begin| first.min(begin));
        Lsn(first.0 - 1)
    }

    /// Drops the positions of batches whose LSNs are all committed.
    pub(crate) fn settle_unsettled(&mut self, _store: &mut Store) {
        let committed = self.durability.lsns.committed();
        for id in USER_STREAMS {
            let s = self.log.stream_mut(id);
            while s
                .unsettled
                .front()
                .is_some_and(|(_, last)| *last <= committed)
            {
                s.unsettled.pop_front();
            }
        }
    }

    /// Seals an open user batch that delays the commit of too many LSNs: until it is committed, all
    /// of them have to be replayed.
    #[inline(always)]
    pub(crate) fn seal_lagging_batches(
        &mut self,
        newest: Lsn,
        store: &mut Store,
        out: &mut Outbox,
    ) {
        if self.space.policy.classes.users != 1 {
            self.seal_lagging(newest, store, out);
        }
    }

    fn seal_lagging(&mut self, newest: Lsn, store: &mut Store, out: &mut Outbox) {
        for id in USER_STREAMS {
            if self
                .log
                .stream(id)
                .open
                .lsns
                .is_some_and(|(first, _)| first.0 + LSNS_OPEN_MAX < newest.0)
            {
                self.seal(id, store, out);
            }
        }
    }

    /// Seals every open user batch that has LSNs up to `horizon`. False if one could not be sealed.
    pub(crate) fn seal_users(&mut self, horizon: Lsn, store: &mut Store, out: &mut Outbox) -> bool {
        let mut sealed = true;
        for id in USER_STREAMS {
            if self
                .log
                .stream(id)
                .open
                .lsns
                .is_some_and(|(first, _)| first <= horizon)
            {
                sealed &= self.seal(id, store, out);
            }
        }
        sealed
    }

    /// True if no user batch is in flight.
    pub(crate) fn users_are_written(&self, _store: &Store) -> bool {
        USER_STREAMS
            .iter()
            .all(|id| self.log.stream(*id).in_flight.is_empty())
    }

    /// True if batches of moved blocks are in flight.
    pub(crate) fn moves_are_flying(&self, _store: &Store) -> bool {
        CLEANED_STREAMS
            .iter()
            .any(|id| !self.log.stream(*id).in_flight.is_empty())
    }

    /// Number up to which all batches of moved blocks are committed, whatever their stream.
    pub(crate) fn moves_committed_through(&self, _store: &Store) -> windrow_types::BatchSeq {
        let flying = CLEANED_STREAMS
            .iter()
            .filter_map(|id| self.log.stream(*id).in_flight.front())
            .map(|batch| batch.number.0)
            .min();
        windrow_types::BatchSeq(
            flying.map_or(self.space.cleaner.numbers.given().0, |first| first - 1),
        )
    }
}

//! Rebuild of members that lack data (docs/internals/members.md).
//!
//! A rebuilding member takes part in all writes. It lacks the segments that are *stale* on it: each
//! of their batches is verified, and the member's columns are written. After a flush the segment is
//! whole. When no segment is stale any more the member becomes online, by a new superblock
//! generation.
//!
//! The segments with the least redundancy left come first, among those the oldest. Only committed
//! batches are read: later ones are written to the member by their stream. `base/background.rs`
//! controls the rate and the priority of foreground I/O.

mod columns;

use crate::api::{Notice, RebuildStatus};
use crate::base::background::{Meter, Throttle, time_at};
use crate::base::fault_injection::InjectedBug;
use crate::base::limits::{
    REBUILD_CHECKPOINTS, REBUILD_FLUSH_NS, REBUILD_FLUSH_SEGMENTS, REBUILD_LOOK_NS,
    REBUILD_RETRY_NS, RESHAPE_VICTIMS,
};
use crate::base::slab::Slab;
use crate::path::{Core, Durability};
use crate::store::Drives;
use crate::store::events::Outbox;
use crate::store::member::Ticket;
use crate::store::member::slot_state::Change;
use crate::store::pool::Pool;
use crate::store::segment::{Segment, SegmentState};
use crate::store::verify::Verified;
use crate::upkeep::verification::VerifyGoal;
use crate::upkeep::{Integrity, Upkeep};
use columns::ColumnWrite;
use std::collections::BTreeMap;
use windrow_format::superblock::MemberState;
use windrow_geometry::Column;
use windrow_types::{BLOCK_BYTES, MemberId, SegmentId};

/// A segment being rebuilt; it is pinned.
#[derive(Debug)]
struct Current {
    segment: SegmentId,
    /// Row of the next batch.
    row: u32,
    /// End of the rows to rebuild.
    end: u32,
    /// Bit mask of the members on which all of it is rebuilt: none that joined after its begin.
    members: u64,
    /// Remaining bytes to rebuild, over all members.
    left_bytes: u64,
    verifications: usize,
    writes: usize,
    /// Set if a part of it was unreadable.
    damaged: bool,
    /// Set if it was tried before: the bytes written then are counted already.
    again: bool,
}

/// State of rebuilding.
#[derive(Debug, Default)]
pub(crate) struct Rebuild {
    /// Set while members are being rebuilt.
    active: bool,
    /// Segments to rebuild with their bytes over all members, the next one last.
    queue: Vec<(SegmentId, u64)>,
    queued_bytes: u64,
    /// Segments in progress, the oldest first: small ones in parallel, so that no member is idle at
    /// their ends.
    current: Vec<Current>,
    /// Column writes in flight.
    columns: Slab<ColumnWrite>,
    /// Segments with unreadable parts: they stay stale, and are retried later.
    failed: Vec<SegmentId>,
    failed_bytes: u64,
    /// Number of bytes of each of them that were never written.
    remaining: BTreeMap<SegmentId, u64>,
    /// Set if dead ones among them wait for checkpoints; and the number requested since the last
    /// try.
    hurries: bool,
    hurried: u32,
    /// The newest checkpoint requested for them.
    hurried_for: u64,
    /// Segments among them to be cleaned: unreadable parts of them may be dead, and the rest gets
    /// full redundancy elsewhere.
    to_empty: Vec<SegmentId>,
    /// Time of the next retry.
    retry_at_ns: u64,
    /// Superblock wish that records members as whole.
    recording: Option<Ticket>,
    /// Ticket of the superblock write that records the last joined member.
    joined_ticket: Ticket,
    throttle: Throttle,
    meter: Meter,
    sums: RebuildStatus,
}

impl Rebuild {
    /// Status for `status`.
    pub(crate) fn status(&self, now_ns: u64) -> RebuildStatus {
        let current: u64 = self.current.iter().map(|current| current.left_bytes).sum();
        let waits_ms = if self.sums.members.is_empty() {
            0
        } else {
            self.retry_at_ns.saturating_sub(now_ns).div_ceil(1_000_000)
        };
        let is_moving = waits_ms == 0 && !self.sums.members.is_empty();
        let bytes_per_second = if is_moving {
            self.meter.rate(now_ns, self.sums.written_bytes)
        } else {
            0
        };
        RebuildStatus {
            left_bytes: self.queued_bytes + current + self.failed_bytes,
            bytes_per_second,
            waits_ms,
            ..self.sums.clone()
        }
    }

    /// True if none of its reads, jobs and writes is pending.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.throttle.is_at_rest()
    }

    /// True if it has nothing to do soon.
    pub(crate) fn is_idle(&self) -> bool {
        !self.active || self.retry_at_ns > 0
    }

    /// Time of the next retry, or of the end of a pause.
    pub(crate) fn wake_at_ns(&self, now_ns: u64) -> Option<u64> {
        let waits = self.retry_at_ns > now_ns;
        let retry = waits.then_some(if self.hurries {
            self.retry_at_ns.min(now_ns + REBUILD_LOOK_NS)
        } else {
            self.retry_at_ns
        });
        retry
            .into_iter()
            .chain(self.throttle.wake_at_ns(now_ns))
            .min()
            .filter(|_| self.active)
    }
}

/// True if a member that may have missed writes since checkpoint `missed_from` may have missed a
/// part of this segment.
pub(crate) fn missed_segments(segment: &Segment, missed_from: u64) -> bool {
    segment.filled_rows > 0 && segment.last_checkpoint >= missed_from
}

impl Integrity {
    /// Adds a member that joins while the pool is in use. Segments rebuilt so far, or in progress,
    /// are so on the others only.
    pub(crate) fn rebuild_joined(
        &mut self,
        durability: &mut Durability,
        drives: &Drives,
        member: MemberId,
    ) {
        durability.journal_lost_copies();
        // The next superblock write records that it takes part.
        self.rebuild.joined_ticket = drives.superblock_writer.next_ticket();
        let rebuild = &mut self.rebuild;
        rebuild.active = true;
        rebuild.sums.members.retain(|other| *other != member);
        for current in &mut rebuild.current {
            current.members &= !(1 << member.0);
        }
        durability.flush.rebuilt.joined(member);
    }

    /// Accounts for blocks of a batch that are re-read, on one member or more; the rate counts each
    /// as if all were on one.
    pub(crate) fn rebuild_reads_again(&mut self, pool: &Pool, blocks: u32) {
        let bytes = u64::from(blocks) * BLOCK_BYTES;
        self.rebuild.sums.read_bytes += bytes;
        let properties = &pool.superblock.properties;
        self.rebuild
            .throttle
            .charge(time_at(bytes, properties.rebuild_rate), 0);
    }

    /// Requests a flush round that covers the rebuilt segments.
    pub(crate) fn flush_rebuilt(&mut self, durability: &mut Durability) {
        if !durability.flush.rebuilt.unflushed.is_empty() {
            durability.flush.request();
        }
    }
}

impl Upkeep {
    /// Determines the stale segments of rebuilding members after a start from checkpoint `root`.
    pub(crate) fn settle_stale(&mut self, root: u64, core: &mut Core) {
        let members = core.store.drives.members.rebuilding();
        let mut since_known = 0u64;
        for record in (0..64).filter(|m| members >> m & 1 == 1) {
            let record_of = &mut core.store.pool.superblock.members[record];
            if record_of.listed_from == 0 || root < record_of.listed_from {
                record_of.listed_from = root + 1;
                since_known |= 1 << record;
            }
        }
        for id in core.store.pool.zones.clone().segments() {
            let on = core.store.pool.members_of(id);
            let s = core.store.segments.get(id);
            // `missed_from` covers more than a list that is missing.
            let missed = |m: &usize| {
                since_known >> m & 1 == 1
                    && missed_segments(s, core.store.pool.superblock.members[*m].missed_from)
            };
            let by_checkpoint = (0..64).filter(missed).fold(0u64, |mask, m| mask | 1 << m);
            let stale = if s.filled_rows > 0 {
                (s.stale & !since_known | by_checkpoint) & members & on
            } else {
                0
            };
            core.store.segments.get_mut(id).stale = stale;
            if stale != 0 {
                core.store.segments.mark_dirty(id);
            }
        }
        self.integrity.rebuild.active = members != 0;
    }

    fn is_stale(&self, segment: SegmentId, core: &Core) -> bool {
        let s = core.store.segments.get(segment);
        let used = s.state.holds_batches() && s.filled_rows > 0;
        used && s.stale & core.store.drives.members.rebuilding() != 0
    }

    /// Continues the rebuild.
    pub(crate) fn rebuild_step(&mut self, core: &mut Core, out: &mut Outbox) {
        if !self.integrity.rebuild.active || core.store.pool.read_only {
            return;
        }
        let members = core.store.drives.members.rebuilding();
        self.announce_rebuilding(members, core, out);
        if !self.whole_members(core, out) {
            return;
        }
        let members = core.store.drives.members.rebuilding();
        self.integrity.rebuild.meter.note(
            core.store.pool.now_ns,
            self.integrity.rebuild.sums.written_bytes,
        );
        self.note_flushed(core);
        let stop = members == 0 || core.store.pool.closing.is_under_way();
        loop {
            self.close_rebuilt(stop, core);
            if stop && members == 0 && self.integrity.rebuild.current.is_empty() {
                // The last of them has failed.
                core.paths.durability.flush.forget_rebuilt();
                self.integrity.rebuild = Rebuild {
                    sums: RebuildStatus {
                        members: Vec::new(),
                        ..self.integrity.rebuild.sums.clone()
                    },
                    ..Rebuild::default()
                };
                return;
            }
            if stop || !self.behind_barrier(core) {
                return;
            }
            match self.next_to_rebuild(core) {
                Some(at)
                    if self.integrity.rebuild.current[at].row
                        >= self.integrity.rebuild.current[at].end => {}
                Some(_)
                    if !self
                        .integrity
                        .rebuild
                        .throttle
                        .may_begin(core.store.pool.now_ns, &core.store.observe.users) =>
                {
                    return;
                }
                Some(at) => self.rebuild_batch(at, core, out),
                None if !self.integrity.rebuild.current.is_empty()
                    || self.end_of_queue(core, out) =>
                {
                    return;
                }
                None => {}
            }
        }
    }

    /// Reports newly rebuilding members, and the bytes to rebuild.
    fn announce_rebuilding(&mut self, members: u64, core: &mut Core, out: &mut Outbox) {
        self.integrity
            .rebuild
            .sums
            .members
            .retain(|member| members >> member.0 & 1 == 1);
        let new: Vec<MemberId> = (0..64)
            .filter(|m| members >> m & 1 == 1)
            .map(MemberId)
            .filter(|m| !self.integrity.rebuild.sums.members.contains(m))
            .collect();
        if new.is_empty() {
            return;
        }
        self.integrity.rebuild.sums.members.extend(&new);
        self.integrity.rebuild.retry_at_ns = 0;
        self.integrity.rebuild.failed.clear();
        self.integrity.rebuild.remaining.clear();
        self.fill_queue(core);
        // A copy of a member in service lacks nothing: it is not reported before it is complete.
        for member in new
            .into_iter()
            .filter(|member| core.store.drives.exchanges.shadowed_by(*member).is_none())
        {
            let stale =
                |(s, _): &&(SegmentId, u64)| core.store.segments.get(*s).stale >> member.0 & 1 == 1;
            let segments = self.integrity.rebuild.queue.iter().filter(stale).count() as u32;
            out.notices
                .push(Notice::MemberRebuilding { member, segments });
        }
    }

    /// Index of a segment in progress with rows to begin; else the next one of the queue is added.
    fn next_to_rebuild(&mut self, core: &mut Core) -> Option<usize> {
        if let Some(at) = self
            .integrity
            .rebuild
            .current
            .iter()
            .position(|current| current.row < current.end)
        {
            return Some(at);
        }
        while let Some((segment, bytes)) = self.integrity.rebuild.queue.pop() {
            self.integrity.rebuild.queued_bytes -= bytes;
            if self.is_stale(segment, core) {
                core.store.segments.get_mut(segment).pins += 1;
                let (end, remaining) = (
                    self.committed_rows(segment, core),
                    self.integrity.rebuild.remaining.get(&segment).copied(),
                );
                let left_bytes = remaining.unwrap_or_else(|| self.stale_bytes(segment, core));
                let (members, again) =
                    (core.store.drives.members.rebuilding(), remaining.is_some());
                self.integrity.rebuild.current.push(Current {
                    segment,
                    row: 0,
                    end,
                    left_bytes,
                    members,
                    verifications: 0,
                    writes: 0,
                    damaged: false,
                    again,
                });
                return Some(self.integrity.rebuild.current.len() - 1);
            }
        }
        None
    }

    /// Bytes to rebuild of a segment, over all members.
    fn stale_bytes(&self, segment: SegmentId, core: &Core) -> u64 {
        let members = (core.store.segments.get(segment).stale
            & core.store.drives.members.rebuilding())
        .count_ones();
        u64::from(self.committed_rows(segment, core)) * u64::from(members) * BLOCK_BYTES
    }

    /// Begins the next batch of a segment in progress.
    fn rebuild_batch(&mut self, at: usize, core: &mut Core, out: &mut Outbox) {
        let segment = self.integrity.rebuild.current[at].segment;
        let (row, rows) = core
            .store
            .segments
            .get(segment)
            .batch_at(self.integrity.rebuild.current[at].row);
        self.integrity.rebuild.current[at].row = row + rows;
        let read = self.verify(VerifyGoal::Rebuild, segment, row, rows, core, out);
        if read == 0 {
            // No column is readable.
            self.integrity.rebuild.current[at].damaged = true;
            return;
        }
        self.integrity.rebuild.sums.read_bytes += read;
        self.integrity.rebuild.current[at].verifications += 1;
        let properties = &core.store.pool.superblock.properties;
        let of_member = u64::from(rows) * BLOCK_BYTES;
        let (bound, floor) = (
            time_at(of_member, properties.rebuild_rate),
            time_at(of_member, properties.rebuild_rate_min.max(1)),
        );
        let bytes = core.store.pool.batch_bytes(segment, rows);
        self.integrity
            .rebuild
            .throttle
            .begin(core.store.pool.now_ns, bytes, bound, floor);
    }

    /// Closes the segments without pending work and without rows to begin.
    fn close_rebuilt(&mut self, stop: bool, core: &mut Core) {
        let is_closed = |current: &mut Current| {
            (current.row >= current.end || stop)
                && current.verifications == 0
                && current.writes == 0
        };
        for current in self.integrity.rebuild.current.extract_if(.., is_closed) {
            core.store.segments.unpin(current.segment);
            if current.damaged {
                self.integrity.rebuild.failed.push(current.segment);
                self.integrity.rebuild.failed_bytes += current.left_bytes;
                self.integrity
                    .rebuild
                    .remaining
                    .insert(current.segment, current.left_bytes);
            } else if current.row >= current.end && !stop {
                if self
                    .integrity
                    .rebuild
                    .remaining
                    .remove(&current.segment)
                    .is_some()
                {
                    self.integrity.rebuild.sums.written_bytes += current.left_bytes;
                }
                core.paths
                    .durability
                    .flush
                    .rebuilt
                    .unflushed
                    .push((current.segment, current.members));
            }
        }
        // A member that flushes answers no reads meanwhile: with foreground I/O flushes are rare.
        let is_due = !core.store.observe.users.are_about(core.store.pool.now_ns)
            || core.store.pool.now_ns
                >= core
                    .paths
                    .durability
                    .flush
                    .rebuilt
                    .round_ns
                    .saturating_add(REBUILD_FLUSH_NS);
        if core.paths.durability.flush.rebuilt.unflushed.len() >= REBUILD_FLUSH_SEGMENTS && is_due {
            self.integrity.flush_rebuilt(&mut core.paths.durability);
        }
    }

    /// Handles a verified batch of a segment in progress: writes the columns of the rebuilding
    /// members.
    pub(crate) fn rebuild_verified(
        &mut self,
        segment: SegmentId,
        row: u32,
        rows: u32,
        found: Option<Verified>,
        core: &mut Core,
        out: &mut Outbox,
    ) {
        // A member that joined after the segment was begun gets it later.
        let members = self
            .integrity
            .rebuild
            .current
            .iter()
            .find(|current| current.segment == segment)
            .map_or(0, |current| current.members);
        let stale = core.store.segments.get(segment).stale
            & core.store.drives.members.rebuilding()
            & members;
        let (mut writes, mut written_bytes) = (0, 0);
        let mut damaged = found.as_ref().is_none_or(|found| !found.lost.is_empty());
        match found {
            _ if core.store.pool.stopped.is_some() => {}
            // The member's present content may be the only good copy of a part: only verified data
            // overwrites it.
            _ if damaged => self.integrity.rebuild.sums.damaged_batches += 1,
            None => {}
            Some(_) if core.store.observe.bug == InjectedBug::HollowRebuild && row == 0 => {}
            Some(found) => {
                for (c, column) in found.columns.into_iter().enumerate() {
                    let (member, offset) = core
                        .store
                        .pool
                        .zones
                        .locate(segment)
                        .address(row, Column(c as u8));
                    let target = if stale >> member.0 & 1 == 1 {
                        member
                    } else {
                        core.store
                            .drives
                            .exchanges
                            .shadow_of(member)
                            .unwrap_or(member)
                    };
                    if stale >> target.0 & 1 == 1 {
                        let bytes = column.len() as u64;
                        if bytes != u64::from(rows) * BLOCK_BYTES {
                            // Not read for this batch: it is repeated later.
                            damaged = true;
                            continue;
                        }
                        self.write_column(segment, (target, offset), column, core, out);
                        writes += 1;
                        written_bytes += bytes;
                    }
                }
            }
        }
        self.integrity.rebuild.throttle.end(
            core.store.pool.now_ns,
            core.store.pool.batch_bytes(segment, rows),
        );
        if let Some(current) = self
            .integrity
            .rebuild
            .current
            .iter_mut()
            .find(|current| current.segment == segment)
        {
            current.verifications -= 1;
            current.writes += writes;
            current.damaged |= damaged;
            if !current.again {
                self.integrity.rebuild.sums.written_bytes += written_bytes;
                current.left_bytes = current.left_bytes.saturating_sub(written_bytes);
            }
        }
    }

    /// Bit mask of the columns of the batch at this row to rebuild.
    pub(crate) fn stale_columns(&self, segment: SegmentId, row: u32, core: &Core) -> u64 {
        let stale = core.store.segments.get(segment).stale & core.store.drives.members.rebuilding();
        let is_stale = |c: &u8| {
            stale
                & core.store.drives.exchanges.stale_bits_of(
                    core.store
                        .pool
                        .zones
                        .locate(segment)
                        .address(row, Column(*c))
                        .0,
                )
                != 0
        };
        (0..core.store.pool.zones.shape(segment).width)
            .filter(is_stale)
            .fold(0, |mask, c| mask | 1 << c)
    }

    /// Marks segments covered by a completed flush as whole.
    fn note_flushed(&mut self, core: &mut Core) {
        let segments = core.paths.durability.flush.take_rebuilt();
        let rebuilding = core.store.drives.members.rebuilding();
        for (segment, members) in segments {
            self.integrity.rebuild.sums.segments_done += 1;
            core.store.segments.get_mut(segment).stale &= !(members & rebuilding);
            core.store.segments.mark_dirty(segment);
        }
    }

    /// Queues the stale segments.
    fn fill_queue(&mut self, core: &mut Core) {
        let mut stale: Vec<(usize, u64, SegmentId)> = Vec::new();
        let at_hand: Vec<SegmentId> = self
            .integrity
            .rebuild
            .current
            .iter()
            .map(|current| current.segment)
            .collect();
        for segment in (0..core.store.segments.count())
            .map(SegmentId)
            .filter(|segment| self.is_stale(*segment, core) && !at_hand.contains(segment))
        {
            let on = core.store.pool.members_of(segment);
            let lost = (0..64)
                .map(MemberId)
                .filter(|m| on >> m.0 & 1 == 1 && !core.store.holds(*m, segment))
                .count();
            stale.push((
                lost,
                u64::MAX - core.store.segments.get(segment).last_checkpoint,
                segment,
            ));
        }
        stale.sort_unstable_by_key(|(lost, age, segment)| {
            (*lost, *age, std::cmp::Reverse(segment.0))
        });
        self.integrity
            .rebuild
            .remaining
            .retain(|segment, _| stale.iter().any(|(_, _, other)| other == segment));
        let bytes = |segment| {
            self.integrity
                .rebuild
                .remaining
                .get(&segment)
                .copied()
                .unwrap_or_else(|| self.stale_bytes(segment, core))
        };
        self.integrity.rebuild.queue = stale
            .into_iter()
            .map(|(_, _, segment)| (segment, bytes(segment)))
            .collect();
        self.integrity.rebuild.queued_bytes = self
            .integrity
            .rebuild
            .queue
            .iter()
            .map(|(_, bytes)| bytes)
            .sum();
        self.integrity.rebuild.failed_bytes = 0;
        self.integrity.rebuild.sums.segments_total =
            self.integrity.rebuild.sums.segments_done + self.integrity.rebuild.queue.len() as u32;
    }

    /// Handles an empty queue. True if there is nothing to do now.
    fn end_of_queue(&mut self, core: &mut Core, out: &mut Outbox) -> bool {
        self.integrity.flush_rebuilt(&mut core.paths.durability);
        if core.paths.durability.flush.rebuilt.is_waiting() {
            return true;
        }
        let is_left = self
            .integrity
            .rebuild
            .failed
            .iter()
            .any(|segment| self.is_stale(*segment, core));
        if is_left && core.store.pool.now_ns < self.integrity.rebuild.retry_at_ns {
            self.empty_failed(core);
            self.leave_failed(core, out);
            self.hurry_failed(core);
            return true;
        }
        self.fill_queue(core);
        let all_failed = self
            .integrity
            .rebuild
            .queue
            .iter()
            .all(|(segment, _)| self.integrity.rebuild.failed.contains(segment))
            && !self.integrity.rebuild.queue.is_empty();
        if all_failed && self.integrity.rebuild.retry_at_ns == 0 {
            // Everything left is unreadable: the members stay as they are until a retry.
            self.integrity.rebuild.retry_at_ns = core.store.pool.now_ns + REBUILD_RETRY_NS;
            self.integrity.rebuild.failed_bytes =
                std::mem::take(&mut self.integrity.rebuild.queued_bytes);
            self.integrity.rebuild.queue.clear();
            self.integrity.rebuild.hurried = 0;
            self.hurry_failed(core);
            self.integrity.rebuild.to_empty = self.integrity.rebuild.failed.clone();
            self.empty_failed(core);
            return true;
        }
        (
            self.integrity.rebuild.retry_at_ns,
            self.integrity.rebuild.hurries,
        ) = (0, false);
        self.integrity.rebuild.failed.clear();
        if !self.integrity.rebuild.queue.is_empty() {
            return false;
        }
        // A generation that calls it whole must not be the first one that it gets: if the power
        // goes while that is written, its own superblock is too old for it to count, and a journal
        // device that does not count though it should is waited for.
        if !core
            .store
            .drives
            .superblock_writer
            .has_recorded(self.integrity.rebuild.joined_ticket)
            || !core.paths.durability.journal_is_whole()
        {
            return true;
        }
        if let Some(spare) = core
            .store
            .drives
            .shadow_is_rebuilt(&self.integrity.rebuild.sums.members.clone(), out)
        {
            self.integrity
                .rebuild
                .sums
                .members
                .retain(|member| *member != spare);
            if self.integrity.rebuild.sums.members.is_empty() {
                self.integrity.rebuild.active = false;
                return true;
            }
        }
        for member in self.integrity.rebuild.sums.members.clone() {
            let changed = core.store.pool.change_member(member, Change::Whole);
            debug_assert_eq!(changed, Ok(()));
        }
        let ticket = core.store.drives.superblock_writer.request();
        self.integrity.rebuild.recording = Some(ticket);
        core.paths.superblock_step(&mut core.store, out);
        true
    }

    /// Cleans segments with unreadable parts, one after the other: cleaning might never choose
    /// them, and they keep the members from becoming whole. Unreadable live data stays, and so does
    /// its segment.
    fn empty_failed(&mut self, core: &mut Core) {
        while core.paths.space.cleaner.victim_count() < RESHAPE_VICTIMS
            && self.has_room_for_repairs(core)
        {
            let Some(segment) = self.integrity.rebuild.to_empty.pop() else {
                return;
            };
            if self.is_stale(segment, core) && core.store.segments.take_candidate(segment) {
                self.begin_victim(segment, core);
            }
        }
    }

    /// Requests the checkpoints that dead segments wait for before they are free. Then they need
    /// not be read, and the members become whole without another try. (A segment may have been free
    /// already, and rewritten by batches that a start did not accept.) At most
    /// [`REBUILD_CHECKPOINTS`] between two tries: permanent damage must not cause endless
    /// checkpoints.
    fn hurry_failed(&mut self, core: &mut Core) {
        let waits = |segment: &&SegmentId| {
            self.is_stale(**segment, core)
                && (core.store.segments.get(**segment).state == SegmentState::Dead
                    || core.store.segments.waits_for_checkpoint(**segment))
        };
        self.integrity.rebuild.hurries = self
            .integrity
            .rebuild
            .failed
            .iter()
            .any(|segment| waits(&segment));
        if !self.integrity.rebuild.hurries {
            return;
        }
        // Each is counted once, however long it takes to begin. It also makes durable what
        // supersedes the dead blocks.
        let next = core.paths.durability.checkpoint.begun + 1;
        if core.paths.durability.checkpoint.is_idle()
            && self.integrity.rebuild.hurried < REBUILD_CHECKPOINTS
            && self.integrity.rebuild.hurried_for != next
        {
            self.integrity.rebuild.hurried += 1;
            self.integrity.rebuild.hurried_for = next;
            core.paths.durability.checkpoint.request();
        }
    }

    /// Makes streams leave segments with unreadable parts. An open segment is not cleaned, and
    /// without user writes it would never fill: the members would not become whole (simulator, seed
    /// 9971860).
    fn leave_failed(&mut self, core: &mut Core, out: &mut Outbox) {
        if self.has_room_for_repairs(core) && !core.store.pool.closing.is_under_way() {
            let failed = std::mem::take(&mut self.integrity.rebuild.failed);
            self.leave_segments(&failed, core, out);
            self.integrity.rebuild.failed = failed;
        }
    }

    /// Declares members whole once that is recorded, and not before: after a power cut they would
    /// be rebuilt again. False if it is not recorded yet.
    fn whole_members(&mut self, core: &mut Core, out: &mut Outbox) -> bool {
        if self
            .integrity
            .rebuild
            .recording
            .is_some_and(|ticket| !core.store.drives.superblock_writer.has_recorded(ticket))
        {
            return false;
        }
        if self.integrity.rebuild.recording.take().is_some() {
            let is_whole = |member: &MemberId| {
                core.store.pool.superblock.members[member.index()].state == MemberState::Online
            };
            let (whole, others): (Vec<_>, Vec<_>) = self
                .integrity
                .rebuild
                .sums
                .members
                .iter()
                .partition(|member| is_whole(member));
            self.integrity.rebuild.sums.members = others;
            for member in whole {
                core.store.drives.members.set_rebuilding(member, false);
                out.notices.push(Notice::MemberRebuilt { member });
                self.recheck_quarantined(core);
            }
            self.integrity.rebuild.active = core.store.drives.members.rebuilding() != 0;
            self.integrity.rebuild.remaining.clear();
        }
        self.integrity.rebuild.active
    }
}

//! Rebuild of members that come back (docs/members.md).
//!
//! A member that is rebuilt takes part in all writes. What it has missed are the segments that are *stale* on it: each of their batches is
//! examined, and the columns of the member are written as they must be. When that is flushed the segment is whole; when none is stale any
//! more the member is online, by a new superblock generation.
//!
//! The segments with the least redundancy left come first, of those the oldest. Only committed batches are looked at: what comes later
//! is written to the member by its stream.

use crate::examination::ExamineGoal;
use crate::examine::Examined;
use crate::limits::{EXAMINE_AHEAD, REBUILD_FLUSH_SEGMENTS, REBUILD_RETRY_NS};
use crate::member::Purpose;
use crate::member::life::Change;
use crate::segment::{Segment, SegmentState};
use crate::{Engine, Notice, Outbox, RebuildStatus, WrittenBytes};
use windrow_units::{BLOCK_SIZE, Column, MemberId, SegmentId};

/// The segment that is being rebuilt; it is pinned.
#[derive(Debug)]
struct Current {
    segment: SegmentId,
    /// The next batch.
    row: u32,
    /// Rows to be rebuilt.
    end: u32,
    /// Members for which all of it is.
    members: u64,
    examinations: usize,
    writes: usize,
    /// Something of it could not be had.
    damaged: bool,
}

/// State of rebuilding.
#[derive(Debug, Default)]
pub(crate) struct Rebuild {
    /// Members are being rebuilt.
    active: bool,
    /// Segments to go, the next one last.
    queue: Vec<SegmentId>,
    current: Option<Current>,
    /// Segments with something that could not be had: they stay stale, and are tried again later.
    failed: Vec<SegmentId>,
    /// When they are.
    retry_at_ns: u64,
    /// Rebuilt on these members, and not covered by a flush.
    unflushed: Vec<(SegmentId, u64)>,
    /// Rebuilt, and covered by the round of flushes with this number.
    flushing: Option<(Vec<(SegmentId, u64)>, u64)>,
    sums: RebuildStatus,
}

impl Rebuild {
    /// For `status`.
    pub(crate) fn status(&self) -> RebuildStatus {
        self.sums.clone()
    }

    /// True if none of its reads, jobs and writes is under way.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.current.as_ref().is_none_or(|current| current.examinations == 0 && current.writes == 0)
    }

    /// True if nothing more comes of it soon.
    pub(crate) fn is_idle(&self) -> bool {
        !self.active || self.retry_at_ns > 0
    }

    /// When it tries again what it could not have.
    pub(crate) fn wake_at_ns(&self, now_ns: u64) -> Option<u64> {
        (self.active && self.retry_at_ns > now_ns).then_some(self.retry_at_ns)
    }
}

/// True if a member that may have missed something since checkpoint `missed_from` may have missed a part of this segment.
pub(crate) fn missed_segments(segment: &Segment, missed_from: u64) -> bool {
    segment.filled_rows > 0 && segment.last_checkpoint >= missed_from
}

impl Engine {
    /// After a start from checkpoint `root`: which segments are stale on the members that are rebuilt.
    pub(crate) fn settle_stale(&mut self, root: u64) {
        let members = self.rebuilding();
        let mut since_known = 0u64;
        for record in (0..64).filter(|m| members >> m & 1 == 1) {
            let record_of = &mut self.superblock.members[record];
            if record_of.listed_from == 0 || root < record_of.listed_from {
                record_of.listed_from = root + 1;
                since_known |= 1 << record;
            }
        }
        for id in (0..self.segments.count()).map(SegmentId) {
            let on = self.members_of(id);
            let s = self.segments.get(id);
            // Since when a member may have missed something says more than a list that is not there.
            let missed = |m: &usize| since_known >> m & 1 == 1 && missed_segments(s, self.superblock.members[*m].missed_from);
            let by_checkpoint = (0..64).filter(missed).fold(0u64, |mask, m| mask | 1 << m);
            let stale = if s.filled_rows > 0 { (s.stale & !since_known | by_checkpoint) & members & on } else { 0 };
            self.segments.get_mut(id).stale = stale;
            if stale != 0 {
                self.segments.mark_dirty(id);
            }
        }
        self.rebuild.active = members != 0;
    }

    /// Members that hold a part of a segment, as a bit mask: of a zone with more members than columns only some do.
    pub(crate) fn members_of(&self, segment: SegmentId) -> u64 {
        let location = self.zones.locate(segment);
        (0..usize::from(self.zones.shape(segment).width)).fold(0, |mask, position| mask | 1 << location.extent(position).0.0)
    }

    /// Members being rebuilt, as a bit mask.
    fn rebuilding(&self) -> u64 {
        self.members.list.iter().enumerate().filter(|(_, m)| m.online && m.rebuilding).fold(0, |mask, (m, _)| mask | 1 << m)
    }

    fn is_stale(&self, segment: SegmentId) -> bool {
        let s = self.segments.get(segment);
        let used = !matches!(s.state, SegmentState::Free | SegmentState::Reserved | SegmentState::Discarding) && s.filled_rows > 0;
        used && s.stale & self.rebuilding() != 0
    }

    /// Goes on with the rebuild.
    pub(crate) fn rebuild_step(&mut self, out: &mut Outbox) {
        if !self.rebuild.active || self.read_only {
            return;
        }
        let members = self.rebuilding();
        self.announce_rebuilding(members, out);
        self.note_flushed();
        loop {
            if self.rebuild.current.is_none() {
                if members == 0 {
                    // The last of them has failed.
                    self.rebuild = Rebuild { sums: RebuildStatus { members: Vec::new(), ..self.rebuild.status() }, ..Rebuild::default() };
                    return;
                }
                if self.control.shutting_down() || !self.behind_barrier() {
                    return;
                }
                match self.rebuild.queue.pop() {
                    Some(segment) if self.is_stale(segment) => {
                        self.segments.get_mut(segment).pins += 1;
                        let end = self.committed_rows(segment);
                        self.rebuild.current = Some(Current { segment, row: 0, end, members, examinations: 0, writes: 0, damaged: false });
                    }
                    Some(_) => continue,
                    None if self.end_of_queue(out) => return,
                    None => continue,
                }
            }
            if !self.rebuild_current(members != 0, out) {
                return;
            }
        }
    }

    /// Goes on with the segment at hand; true if it is done.
    fn rebuild_current(&mut self, go_on: bool, out: &mut Outbox) -> bool {
        loop {
            let shutting_down = self.control.shutting_down();
            let Some(current) = &mut self.rebuild.current else { return true };
            let segment = current.segment;
            let stop = !go_on || shutting_down;
            if current.row < current.end && !stop {
                if current.examinations >= EXAMINE_AHEAD {
                    return false;
                }
                let (row, rows) = self.segments.get(segment).batch_at(current.row);
                current.row = row + rows;
                let read = self.examine(ExamineGoal::Rebuild, segment, row, rows, out);
                self.rebuild.sums.read_bytes += read;
                if let Some(current) = self.rebuild.current.as_mut() {
                    current.examinations += usize::from(read > 0);
                }
                continue;
            }
            if current.examinations > 0 || current.writes > 0 {
                return false;
            }
            let whole = current.row >= current.end && go_on && !current.damaged;
            let (damaged, members) = (current.damaged, current.members);
            self.rebuild.current = None;
            self.segments.unpin(segment);
            if whole {
                self.rebuild.unflushed.push((segment, members));
            } else if damaged {
                self.rebuild.failed.push(segment);
            }
            if self.rebuild.unflushed.len() >= REBUILD_FLUSH_SEGMENTS {
                self.flush_rebuilt();
            }
            return true;
        }
    }

    /// A batch of the segment at hand has been examined: the columns of the members that are rebuilt are written.
    pub(crate) fn rebuild_examined(&mut self, segment: SegmentId, row: u32, found: Option<Examined>, out: &mut Outbox) {
        let stale = self.segments.get(segment).stale & self.rebuilding();
        let mut writes = 0;
        let damaged = found.as_ref().is_none_or(|found| !found.lost.is_empty());
        match found {
            _ if self.stopped.is_some() => {}
            // What is on the member now may be the only good copy of a part: nothing that is not verified is written over it.
            _ if damaged => self.rebuild.sums.damaged_batches += 1,
            None => {}
            Some(found) => {
                for (c, column) in found.columns.into_iter().enumerate() {
                    let (member, offset) = self.zones.locate(segment).address(row, Column(c as u8));
                    if stale >> member.0 & 1 == 1 {
                        debug_assert!(column.len().is_multiple_of(BLOCK_SIZE));
                        let written = WrittenBytes { rebuild: column.len() as u64, ..Default::default() };
                        self.rebuild.sums.written_bytes += column.len() as u64;
                        self.send_write(member, offset, column, Purpose::Rebuild { segment }, &written, out);
                        writes += 1;
                    }
                }
            }
        }
        if let Some(current) = &mut self.rebuild.current {
            current.examinations -= 1;
            current.writes += writes;
            current.damaged |= damaged;
        }
    }

    /// A column has been written, or not: then its member is not rebuilt any more.
    pub(crate) fn column_rebuilt(&mut self, segment: SegmentId) {
        if let Some(current) = self.rebuild.current.as_mut().filter(|current| current.segment == segment) {
            current.writes -= 1;
        }
    }

    /// Asks for a flush of what has been rebuilt, unless one is under way.
    fn flush_rebuilt(&mut self) {
        if self.rebuild.flushing.is_none() && !self.rebuild.unflushed.is_empty() {
            let round = self.want_round();
            self.rebuild.flushing = Some((std::mem::take(&mut self.rebuild.unflushed), round));
        }
    }

    /// What a flush covers is whole.
    fn note_flushed(&mut self) {
        let ended = self.flush.ended;
        let Some((segments, _)) = self.rebuild.flushing.take_if(|(_, round)| *round <= ended) else { return };
        let rebuilding = self.rebuilding();
        for (segment, members) in segments {
            self.rebuild.sums.segments_done += 1;
            self.segments.get_mut(segment).stale &= !(members & rebuilding);
            self.segments.mark_dirty(segment);
        }
    }

    /// A member comes in while the pool is in use. What is rebuilt by now, or half, is so on the others only.
    pub(crate) fn rebuild_joined(&mut self, member: MemberId) {
        let rebuild = &mut self.rebuild;
        rebuild.active = true;
        rebuild.sums.members.retain(|other| *other != member);
        let current = rebuild.current.iter_mut().map(|current| &mut current.members);
        let flushing = rebuild.flushing.iter_mut().flat_map(|(segments, _)| segments.iter_mut());
        for members in rebuild.unflushed.iter_mut().chain(flushing).map(|(_, members)| members).chain(current) {
            *members &= !(1 << member.0);
        }
    }

    /// Members that were not among those that are rebuilt: what is stale on them is looked for.
    fn announce_rebuilding(&mut self, members: u64, out: &mut Outbox) {
        self.rebuild.sums.members.retain(|member| members >> member.0 & 1 == 1);
        let new: Vec<MemberId> = (0..64).filter(|m| members >> m & 1 == 1).map(MemberId).filter(|m| !self.rebuild.sums.members.contains(m)).collect();
        if new.is_empty() {
            return;
        }
        self.rebuild.sums.members.extend(&new);
        self.rebuild.retry_at_ns = 0;
        self.rebuild.failed.clear();
        self.fill_queue();
        for member in new {
            let stale = |s: &SegmentId| self.segments.get(*s).stale >> member.0 & 1 == 1;
            let segments = self.rebuild.queue.iter().filter(|s| stale(s)).count() as u32;
            out.notices.push(Notice::MemberRebuilding { member, segments });
        }
    }

    /// Looks for stale segments.
    fn fill_queue(&mut self) {
        let mut stale: Vec<(usize, u64, SegmentId)> = Vec::new();
        for segment in (0..self.segments.count()).map(SegmentId).filter(|segment| self.is_stale(*segment)) {
            let on = self.members_of(segment);
            let lost = (0..64).map(MemberId).filter(|m| on >> m.0 & 1 == 1 && !self.holds(*m, segment)).count();
            stale.push((lost, u64::MAX - self.segments.get(segment).last_checkpoint, segment));
        }
        stale.sort_unstable_by_key(|(lost, age, segment)| (*lost, *age, std::cmp::Reverse(segment.0)));
        self.rebuild.queue = stale.into_iter().map(|(_, _, segment)| segment).collect();
        self.rebuild.sums.segments_total = self.rebuild.sums.segments_done + self.rebuild.queue.len() as u32;
    }

    /// Nothing is left in the queue. True if there is nothing to do now.
    fn end_of_queue(&mut self, out: &mut Outbox) -> bool {
        self.flush_rebuilt();
        if self.rebuild.flushing.is_some() {
            return true;
        }
        if !self.rebuild.failed.is_empty() && self.now_ns < self.rebuild.retry_at_ns {
            return true;
        }
        self.fill_queue();
        if self.rebuild.queue.iter().all(|segment| self.rebuild.failed.contains(segment)) && !self.rebuild.queue.is_empty() && self.rebuild.retry_at_ns == 0 {
            // All that is left could not be had: the members stay as they are, and it is tried again after a while.
            self.rebuild.retry_at_ns = self.now_ns + REBUILD_RETRY_NS;
            self.rebuild.queue.clear();
            return true;
        }
        self.rebuild.retry_at_ns = 0;
        self.rebuild.failed.clear();
        if !self.rebuild.queue.is_empty() {
            return false;
        }
        for member in std::mem::take(&mut self.rebuild.sums.members) {
            if !(self.members.list[member.index()].online && self.members.list[member.index()].rebuilding) {
                continue;
            }
            self.members.list[member.index()].rebuilding = false;
            let changed = self.change_member(member, Change::Whole);
            debug_assert_eq!(changed, Ok(()));
            out.notices.push(Notice::MemberRebuilt { member });
        }
        self.rebuild.active = false;
        self.superblock_writer.wanted += 1;
        self.superblock_step(out);
        true
    }
}

//! Batches that a scrub can not have: no table says what is in them. The map does.
//!
//! 1 They are collected; at the end of the pass, or when they are many, all pages of the map are searched for what lies in them, a bounded part at a
//!   time. 2 Each block of a user is read by itself, as users read it. If it can be had it is moved like any other repair; if not it is lost, and is
//!   listed by volume and block. 3 Pages of the checkpoint are in memory: they are marked changed, so that the next checkpoint writes them
//!   elsewhere. 4 A batch in which nothing lives is not worth a word.
//!
//! A whole segment is in doubt if more lives in it than its tables say: then batches of it are former ones on all members that can be read.

use super::{Repair, Tally};
use crate::clean::MappedBlock;
use crate::fetch::{FetchGoal, FetchSpec};
use crate::limits::{MAP_PAGES_PER_STEP, MAP_READS, SCRUB_DOUBTS_MAX, STREAM_CHECKPOINT};
use crate::map::PageSlot;
use crate::pending::BlockKey;
use crate::slab::Slab;
use crate::{Engine, Outbox};
use std::collections::BTreeSet;
use windrow_io::Payload;
use windrow_units::{BLOCK_BYTES, Order, Place, SegmentId};

/// A batch that can not be had, or a segment.
#[derive(Debug)]
struct Doubt {
    segment: SegmentId,
    row: u32,
    rows: u32,
    lives: bool,
    /// Lost blocks in it that have been told.
    told: Vec<BlockKey>,
}

impl Doubt {
    fn covers(&self, segment: SegmentId, row: u32) -> bool {
        self.segment == segment && (self.row..self.row + self.rows).contains(&row)
    }
}

/// All that can not be had, until it is known what of it lives.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    list: Vec<Doubt>,
    /// The map is being searched; what comes meanwhile has to wait.
    searching: bool,
    /// Where the search goes on.
    page: u32,
    /// Blocks being read.
    reads: Slab<MappedBlock>,
    /// The last segment with any.
    last: Option<SegmentId>,
}

impl Doubts {
    /// True if there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty() && self.reads.is_empty()
    }

    /// True if blocks are being read.
    pub(super) fn has_reads(&self) -> bool {
        !self.reads.is_empty()
    }

    /// True if they have to be settled before there may be more.
    pub(super) fn is_due(&self) -> bool {
        self.searching || self.list.len() >= SCRUB_DOUBTS_MAX
    }

    /// Nobody will look for what lives in them; how many there are. (What is being read comes all the same.)
    pub(super) fn forget(&mut self) -> u64 {
        (self.searching, self.page) = (false, 0);
        std::mem::take(&mut self.list).len() as u64
    }

    /// Notes a batch.
    pub(super) fn add(&mut self, segment: SegmentId, row: u32, rows: u32, told: Vec<BlockKey>) {
        self.last = Some(segment);
        self.list.push(Doubt { segment, row, rows, lives: false, told });
    }
}

impl Engine {
    /// All batches of a segment have been examined. Do their tables say all that lives in it?
    pub(super) fn compare_live(&mut self, tally: Tally) {
        let Tally { segment, live, lost, rows, .. } = tally;
        let rows = rows.unwrap_or(0);
        let s = self.segments.get(segment);
        // (Older checkpoints keep pages alive that nothing points to any more; and to a segment that is written more has come.)
        let is_comparable = usize::from(s.stream) != STREAM_CHECKPOINT && self.committed_rows(segment) == rows;
        let known = u64::from(live);
        // (If a batch of it is in doubt, that is why.)
        if is_comparable && u64::from(s.live_units) > known && self.scrub.doubts.last != Some(segment) {
            self.scrub.doubts.add(segment, 0, rows, lost);
        }
    }

    /// Goes on through the map in search of what lives in what is in doubt; true when all is settled.
    pub(super) fn settle_doubts(&mut self, out: &mut Outbox) -> bool {
        if self.scrub.doubts.is_empty() {
            return true;
        }
        if self.scrub.doubts.reads.len() >= MAP_READS {
            return false;
        }
        let mut doubts = std::mem::take(&mut self.scrub.doubts.list);
        if !std::mem::replace(&mut self.scrub.doubts.searching, true) {
            doubts.sort_unstable_by_key(|doubt| (doubt.segment, doubt.row));
        }
        let (pages, first) = (self.volumes.arena.slots(), self.scrub.doubts.page);
        let mut found = Vec::new();
        let mut page = first;
        while page < pages && page < first + MAP_PAGES_PER_STEP && found.len() < MAP_READS {
            let slot = PageSlot(page);
            let lies = |place| self.doubt_at(&doubts, place).is_some();
            let before = found.len();
            self.mapped_blocks(slot, lies, &mut found);
            let image = self.volumes.arena.meta(slot).map(|meta| meta.pointer).filter(|pointer| pointer.present && lies(pointer.place));
            if image.is_some() {
                self.volumes.arena.mark_dirty(slot);
                self.scrub.rewritten = true;
            }
            for place in found[before..].iter().map(|block| block.place).chain(image.map(|image| image.place)) {
                self.doubt_at(&doubts, place).into_iter().for_each(|at| doubts[at].lives = true);
            }
            page += 1;
        }
        self.scrub.doubts.list = doubts;
        self.scrub.doubts.page = page;
        found.into_iter().for_each(|block| self.read_doubtful(block, out));
        if page < pages || self.scrub.doubts.has_reads() {
            // Blocks on their way wake it.
            self.scrub.later = !self.scrub.doubts.has_reads();
            return false;
        }
        self.end_doubts();
        true
    }

    /// Which of these, in their order, this place lies in.
    fn doubt_at(&self, doubts: &[Doubt], place: Place) -> Option<usize> {
        let segment = self.codec.segment(place);
        let of_segment = doubts.partition_point(|doubt| doubt.segment < segment);
        if doubts.get(of_segment)?.segment != segment {
            return None;
        }
        let row = self.locate_block(segment, self.codec.block(place)).1;
        let at = doubts.partition_point(|doubt| (doubt.segment, doubt.row) <= (segment, row)).checked_sub(1)?;
        doubts[at].covers(segment, row).then_some(at)
    }

    /// The map has been searched, and what was found has been read.
    fn end_doubts(&mut self) {
        let mut doubts = std::mem::take(&mut self.scrub.doubts.list);
        (self.scrub.doubts.searching, self.scrub.doubts.page) = (false, 0);
        if doubts.iter().any(|doubt| usize::from(self.segments.get(doubt.segment).stream) == STREAM_CHECKPOINT) {
            let mut tables = Vec::new();
            self.checkpoint.table_places(|place| tables.extend(self.doubt_at(&doubts, place).map(|at| (at, place))));
            tables.iter().for_each(|(at, _)| doubts[*at].lives = true);
            let places: BTreeSet<Place> = tables.into_iter().map(|(_, place)| place).collect();
            self.scrub.rewritten |= self.checkpoint.rewrite_where(|place| places.contains(&place));
        }
        self.scrub.sums.damaged_batches += doubts.iter().filter(|doubt| doubt.lives).count() as u64;
    }

    fn read_doubtful(&mut self, block: MappedBlock, out: &mut Outbox) {
        let (segment, number) = (self.codec.segment(block.place), self.codec.block(block.place));
        let (column, row, _) = self.locate_block(segment, number);
        let pieces = vec![block.piece(&self.codec)];
        let rows = pieces[0].rows().1 + 1;
        let goal = FetchGoal::Doubt { doubt: self.scrub.doubts.reads.insert(block) };
        self.scrub_reads_again(u64::from(rows) * BLOCK_BYTES);
        self.start_fetch(FetchSpec { segment, column, row, rows, pieces, goal, singly: false }, out);
    }

    /// A block in doubt has been read, or can not be had.
    pub(crate) fn doubt_read(&mut self, at: u32, bytes: Option<Payload>, out: &mut Outbox) {
        let Some(block) = self.scrub.doubts.reads.remove(at) else { return };
        let (MappedBlock { key, place, .. }, piece) = (block, block.piece(&self.codec));
        if !self.shows(key.volume(), key.lba(), place) {
            return;
        }
        match bytes {
            Some(bytes) => {
                let range = piece.range();
                let payload = bytes.slice(range.start, range.len());
                self.scrub.repairs.push_back(Repair { key, birth: Order(0), from: place, checksum: piece.checksum, payload });
            }
            None => {
                let doubt = self.doubt_at(&self.scrub.doubts.list, place).map(|at| &self.scrub.doubts.list[at]);
                if !doubt.is_some_and(|doubt| doubt.told.contains(&key)) {
                    self.note_scrub_loss(key, out);
                }
            }
        }
    }
}

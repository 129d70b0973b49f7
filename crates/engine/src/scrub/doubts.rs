//! Batches that a scrub can not have: no table says what is in them. The map does.
//!
//! 1 They are collected; at the end of the pass, or when they are many, all pages of the map are
//!   searched for what lies in them, a bounded part at a time. 2 Each block of a user is read by
//!   itself, as users read it, at the pace of the scrub. If it can be had it is moved like any
//!   other repair; if not it is lost, and is listed by volume and block. 3 Pages of the checkpoint
//!   are in memory: they are marked changed, so that the next checkpoint writes them elsewhere. 4 A
//!   batch in which nothing lives is not worth a word.
//!
//! Packed payload in a block that can not be had as a whole is read by itself in the same way: its
//! own checksum may be right.
//!
//! A whole segment is in doubt if more lives in it than its tables say: then batches of it are
//! former ones on all members that can be read.

use super::{Repair, Tally};
use crate::background::time_at;
use crate::clean::MappedBlock;
use crate::fetch::{FetchGoal, FetchSpec};
use crate::limits::{
    MAP_PAGES_PER_STEP, MAP_READS, SCRUB_DOUBTS_MAX, SCRUB_PAUSE_NS, STREAM_CHECKPOINT,
};
use crate::map::PageSlot;
use crate::pending::BlockKey;
use crate::piece::Piece;
use crate::slab::Slab;
use crate::{Engine, Outbox};
use std::collections::{BTreeSet, VecDeque};
use windrow_io::Payload;
use windrow_types::{Address, BLOCK_BYTES, Lsn, SegmentId};

/// A batch that can not be had, or a segment.
#[derive(Debug)]
struct Doubt {
    segment: SegmentId,
    row: u32,
    rows: u32,
    incarnations: bool,
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
    /// Blocks that wait for being read.
    waiting: VecDeque<Reading>,
    /// Blocks being read.
    reads: Slab<Reading>,
}

/// A block that is read by itself.
#[derive(Debug)]
struct Reading {
    block: MappedBlock,
    /// 0 if it is not known.
    birth: Lsn,
    /// It was found by the map, in what is in doubt.
    by_map: bool,
}

impl Doubts {
    /// True if there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty() && self.waiting.is_empty() && self.reads.is_empty()
    }

    /// True while the map is being searched.
    pub(super) fn is_searching(&self) -> bool {
        self.searching
    }

    /// True if blocks are being read.
    pub(super) fn has_reads(&self) -> bool {
        !self.reads.is_empty()
    }

    pub(super) fn is_found_by_map(&self, at: u32) -> bool {
        self.reads.get(at).is_some_and(|reading| reading.by_map)
    }

    /// True if they have to be settled before there may be more.
    pub(super) fn is_due(&self) -> bool {
        self.searching || self.list.len() >= SCRUB_DOUBTS_MAX
    }

    /// Nobody will look for what lives in them; how many there are. (What is being read comes all
    /// the same.)
    pub(super) fn forget(&mut self) -> u64 {
        (self.searching, self.page) = (false, 0);
        self.waiting.clear();
        std::mem::take(&mut self.list).len() as u64
    }

    /// A segment is written again; how many batches of its former life had something in them that
    /// has been found.
    pub(super) fn forget_segment(&mut self, segment: SegmentId) -> u64 {
        self.list
            .extract_if(.., |doubt| doubt.segment == segment)
            .filter(|doubt| doubt.incarnations)
            .count() as u64
    }

    /// A block is to be read by itself.
    pub(super) fn read(&mut self, block: MappedBlock, birth: Lsn) {
        self.waiting.push_back(Reading {
            block,
            birth,
            by_map: false,
        });
    }

    /// Notes a batch.
    pub(super) fn add(&mut self, segment: SegmentId, row: u32, rows: u32, told: Vec<BlockKey>) {
        self.list.push(Doubt {
            segment,
            row,
            rows,
            incarnations: false,
            told,
        });
    }
}

impl Engine {
    /// All batches of a segment have been examined. Do their tables say all that lives in it?
    pub(super) fn compare_live(&mut self, tally: Tally) {
        let Tally {
            segment,
            live,
            lost,
            doubted,
            rows,
            ..
        } = tally;
        let rows = rows.unwrap_or(0);
        let s = self.space.segments.get(segment);
        // (Older checkpoints keep pages alive that nothing points to any more; and to a segment
        // that is written more has come.)
        let is_comparable =
            usize::from(s.stream) != STREAM_CHECKPOINT && self.committed_rows(segment) == rows;
        let known = u64::from(live);
        // (If a batch of it is in doubt, that is why.)
        if is_comparable && u64::from(s.live_units) > known && !doubted {
            self.integrity.scrub.doubts.add(segment, 0, rows, lost);
        }
    }

    /// Goes on through the map in search of what lives in what is in doubt; true when all is
    /// settled.
    pub(super) fn settle_doubts(&mut self, out: &mut Outbox) -> bool {
        if self.integrity.scrub.doubts.is_empty() {
            return true;
        }
        if !self.read_doubtful(out) || self.integrity.scrub.doubts.reads.len() >= MAP_READS {
            return false;
        }
        let mut doubts = std::mem::take(&mut self.integrity.scrub.doubts.list);
        if !std::mem::replace(&mut self.integrity.scrub.doubts.searching, true) {
            doubts.sort_unstable_by_key(|doubt| (doubt.segment, doubt.row));
        }
        let (pages, first) = (
            self.map.volumes.arena.slots(),
            self.integrity.scrub.doubts.page,
        );
        let mut found = Vec::new();
        let mut page = first;
        while page < pages && page < first + MAP_PAGES_PER_STEP && found.len() < MAP_READS {
            let slot = PageSlot(page);
            let lies = |address| self.doubt_at(&doubts, address).is_some();
            let before = found.len();
            self.mapped_blocks(slot, lies, &mut found);
            let image = self
                .map
                .volumes
                .arena
                .meta(slot)
                .map(|meta| meta.pointer)
                .filter(|pointer| pointer.present && lies(pointer.address));
            if image.is_some() {
                self.map.volumes.arena.mark_dirty(slot);
                self.note_rewritten(true);
            }
            for address in found[before..]
                .iter()
                .map(|block| block.address)
                .chain(image.map(|image| image.address))
            {
                self.doubt_at(&doubts, address)
                    .into_iter()
                    .for_each(|at| doubts[at].incarnations = true);
            }
            page += 1;
        }
        self.integrity.scrub.doubts.list = doubts;
        self.integrity.scrub.doubts.page = page;
        self.integrity
            .scrub
            .doubts
            .waiting
            .extend(found.into_iter().map(|block| Reading {
                block,
                birth: Lsn(0),
                by_map: true,
            }));
        if !self.read_doubtful(out) {
            return false;
        }
        if page < pages || self.integrity.scrub.doubts.has_reads() {
            // Blocks on their way wake it.
            self.integrity.scrub.later = !self.integrity.scrub.doubts.has_reads();
            return false;
        }
        self.end_doubts();
        true
    }

    /// Which of these, in their order, this place lies in.
    fn doubt_at(&self, doubts: &[Doubt], address: Address) -> Option<usize> {
        let segment = self.pool.codec.segment(address);
        let of_segment = doubts.partition_point(|doubt| doubt.segment < segment);
        if doubts.get(of_segment)?.segment != segment {
            return None;
        }
        let row = self.locate_block(segment, self.pool.codec.block(address)).1;
        let at = doubts
            .partition_point(|doubt| (doubt.segment, doubt.row) <= (segment, row))
            .checked_sub(1)?;
        doubts[at].covers(segment, row).then_some(at)
    }

    /// The map has been searched, and what was found has been read.
    fn end_doubts(&mut self) {
        let mut doubts = std::mem::take(&mut self.integrity.scrub.doubts.list);
        (
            self.integrity.scrub.doubts.searching,
            self.integrity.scrub.doubts.page,
        ) = (false, 0);
        if doubts.iter().any(|doubt| {
            usize::from(self.space.segments.get(doubt.segment).stream) == STREAM_CHECKPOINT
        }) {
            let mut tables = Vec::new();
            self.durability.checkpoint.table_places(|address| {
                tables.extend(self.doubt_at(&doubts, address).map(|at| (at, address)))
            });
            tables
                .iter()
                .for_each(|(at, _)| doubts[*at].incarnations = true);
            let addresses: BTreeSet<Address> =
                tables.into_iter().map(|(_, address)| address).collect();
            let used = self
                .durability
                .checkpoint
                .rewrite_where(|address| addresses.contains(&address));
            self.note_rewritten(used);
        }
        self.integrity.scrub.sums.damaged_batches +=
            doubts.iter().filter(|doubt| doubt.incarnations).count() as u64;
    }

    /// Reads blocks that wait for it, as far as the pace goes. False if some are left.
    pub(super) fn read_doubtful(&mut self, out: &mut Outbox) -> bool {
        while let Some(Reading { block, .. }) = self.integrity.scrub.doubts.waiting.front() {
            let MappedBlock {
                key,
                address,
                checksum,
                ..
            } = *block;
            if self.map.volumes.shown(key.volume(), key.lba(), address) != Some(checksum) {
                // It is elsewhere by now, and its segment perhaps in use again.
                self.integrity.scrub.doubts.waiting.pop_front();
                continue;
            }
            if !self
                .integrity
                .scrub
                .throttle
                .may_begin(self.pool.now_ns, &self.observe.users)
            {
                return false;
            }
            if let Some(reading) = self.integrity.scrub.doubts.waiting.pop_front() {
                self.fetch_doubtful(reading, out);
            }
        }
        true
    }

    fn fetch_doubtful(&mut self, reading: Reading, out: &mut Outbox) {
        let block = reading.block;
        let (segment, number) = (
            self.pool.codec.segment(block.address),
            self.pool.codec.block(block.address),
        );
        let (column, row, _) = self.locate_block(segment, number);
        let pieces = vec![block.piece(&self.pool.codec)];
        let rows = pieces[0].rows().1 + 1;
        let bytes = u64::from(rows) * BLOCK_BYTES;
        self.integrity.scrub.sums.read_bytes += bytes;
        self.integrity.scrub.throttle.begin(
            self.pool.now_ns,
            bytes,
            time_at(bytes, self.integrity.scrub.sums.bytes_per_second),
            SCRUB_PAUSE_NS / MAP_READS as u64,
        );
        let goal = FetchGoal::Doubt {
            doubt: self.integrity.scrub.doubts.reads.insert(reading),
        };
        self.start_fetch(
            FetchSpec {
                segment,
                column,
                row,
                rows,
                pieces,
                goal,
                singly: false,
            },
            out,
        );
    }

    /// A lost block of a batch without tables: what its member returned is wrong, or could not be
    /// read. The member is absent: then it is neither.
    fn count_lost_rows(&mut self, address: Address, piece: Piece) {
        let (segment, number) = (
            self.pool.codec.segment(address),
            self.pool.codec.block(address),
        );
        let (column, row, _) = self.locate_block(segment, number);
        let (member, _) = self.pool.zones.locate(segment).address(row, column);
        if self.holds(member, segment) {
            self.integrity.scrub.sums.wrong_blocks +=
                u64::from(piece.rows().1 - piece.rows().0 + 1);
        }
    }

    /// A block in doubt has been read, or can not be had.
    pub(crate) fn doubt_read(&mut self, at: u32, bytes: Option<Payload>, out: &mut Outbox) {
        let Some(Reading {
            block,
            birth,
            by_map,
        }) = self.integrity.scrub.doubts.reads.remove(at)
        else {
            return;
        };
        let (
            MappedBlock {
                key,
                address,
                checksum,
                ..
            },
            piece,
        ) = (block, block.piece(&self.pool.codec));
        self.integrity.scrub.throttle.end(
            self.pool.now_ns,
            u64::from(piece.rows().1 + 1) * BLOCK_BYTES,
        );
        if self.map.volumes.shown(key.volume(), key.lba(), address) != Some(checksum) {
            return;
        }
        match bytes {
            Some(bytes) => {
                let range = piece.range();
                let payload = bytes.slice(range.start, range.len());
                self.integrity.scrub.repairs.push_back(Repair {
                    key,
                    birth,
                    from: address,
                    checksum,
                    payload,
                });
            }
            None => {
                let doubt = self
                    .doubt_at(&self.integrity.scrub.doubts.list, address)
                    .map(|at| &self.integrity.scrub.doubts.list[at]);
                if !by_map || !doubt.is_some_and(|doubt| doubt.told.contains(&key)) {
                    if by_map {
                        self.count_lost_rows(address, piece);
                    }
                    self.note_scrub_loss(key, out);
                }
            }
        }
    }
}

//! Doubts: batches with unreadable tables. The map provides their live blocks.
//!
//! 1. Doubts are collected. At the end of the pass, or when there are many, the map is searched for
//!    blocks in them, some pages at a time.
//! 2. Each user block found is read on its own, as a foreground read would, at the rate of the
//!    scrub. If it is readable it is moved like any other repair; if not it is lost, and is listed
//!    by volume and block.
//! 3. Checkpoint pages are in memory: they are marked dirty, so that the next checkpoint rewrites
//!    them.
//! 4. A batch without live data is not reported.
//!
//! Compressed payload in an unreadable block is read on its own in the same way: its own checksum
//! may match.
//!
//! A whole segment is in doubt if it has more live units than its tables name. Then some of its
//! batches are stale ones on all readable members.

use super::{Repair, Tally};
use crate::base::background::time_at;
use crate::base::limits::{
    MAP_PAGES_PER_STEP, MAP_READS, SCRUB_DOUBTS_MAX, SCRUB_PAUSE_NS, STREAM_CHECKPOINT,
};
use crate::base::piece::Piece;
use crate::base::slab::Slab;
use crate::path::Core;
use crate::path::cleaning::MappedBlock;
use crate::store::events::Outbox;
use crate::store::fetch::{FetchGoal, FetchSpec};
use crate::store::map::PageSlot;
use crate::store::pending::BlockKey;
use crate::upkeep::Upkeep;
use std::collections::{BTreeSet, VecDeque};
use windrow_io::Payload;
use windrow_types::{Address, BLOCK_BYTES, Lsn, SegmentId};

/// An unreadable batch, or a segment in doubt.
#[derive(Debug)]
struct Doubt {
    segment: SegmentId,
    row: u32,
    rows: u32,
    /// Set if live blocks were found in it.
    has_live: bool,
    /// Lost blocks in it, already reported.
    told: Vec<BlockKey>,
}

impl Doubt {
    fn covers(&self, segment: SegmentId, row: u32) -> bool {
        self.segment == segment && (self.row..self.row + self.rows).contains(&row)
    }
}

/// All doubts until their live blocks are known.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    list: Vec<Doubt>,
    /// Set while the map is searched; new doubts have to wait.
    searching: bool,
    /// Position of the search.
    page: u32,
    /// Blocks that wait to be read.
    waiting: VecDeque<Reading>,
    /// Blocks being read.
    reads: Slab<Reading>,
}

/// A block that is read on its own.
#[derive(Debug)]
struct Reading {
    block: MappedBlock,
    /// 0 if it is unknown.
    birth: Lsn,
    /// Set if the map search found it in a doubt.
    by_map: bool,
}

impl Doubts {
    /// True if there are no doubts.
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty() && self.waiting.is_empty() && self.reads.is_empty()
    }

    /// True while the map is searched.
    pub(super) fn is_searching(&self) -> bool {
        self.searching
    }

    /// True if blocks are being read.
    pub(super) fn has_reads(&self) -> bool {
        !self.reads.is_empty()
    }

    /// True if they have to be settled before more may be added.
    pub(super) fn is_due(&self) -> bool {
        self.searching || self.list.len() >= SCRUB_DOUBTS_MAX
    }

    /// Drops the doubts without a search; returns their number. (Pending reads still complete.)
    pub(super) fn forget(&mut self) -> u64 {
        (self.searching, self.page) = (false, 0);
        self.waiting.clear();
        std::mem::take(&mut self.list).len() as u64
    }

    /// Drops the doubts of a segment that is written again; returns the number of batches of its
    /// previous incarnation in which live blocks were found.
    pub(super) fn forget_segment(&mut self, segment: SegmentId) -> u64 {
        self.list
            .extract_if(.., |doubt| doubt.segment == segment)
            .filter(|doubt| doubt.has_live)
            .count() as u64
    }

    /// Queues a block to be read on its own.
    pub(super) fn read(&mut self, block: MappedBlock, birth: Lsn) {
        self.waiting.push_back(Reading {
            block,
            birth,
            by_map: false,
        });
    }

    /// Adds a batch.
    pub(super) fn add(&mut self, segment: SegmentId, row: u32, rows: u32, told: Vec<BlockKey>) {
        self.list.push(Doubt {
            segment,
            row,
            rows,
            has_live: false,
            told,
        });
    }
}

impl Upkeep {
    /// Compares the live count of a completely verified segment with its tables.
    pub(super) fn compare_live(&mut self, tally: Tally, core: &mut Core) {
        let Tally {
            segment,
            live,
            lost,
            doubted,
            rows,
            ..
        } = tally;
        let rows = rows.unwrap_or(0);
        let s = core.store.segments.get(segment);
        // Older checkpoints keep pages alive without references, and a segment still being written
        // has more.
        let is_comparable = usize::from(s.stream) != STREAM_CHECKPOINT
            && self.committed_rows(segment, core) == rows;
        let known = u64::from(live);
        // A batch in doubt explains the difference.
        if is_comparable && u64::from(s.live_units) > known && !doubted {
            self.integrity.scrub.doubts.add(segment, 0, rows, lost);
        }
    }

    /// Continues the search of the map for live blocks in doubts; true when all are settled.
    pub(super) fn settle_doubts(&mut self, core: &mut Core, out: &mut Outbox) -> bool {
        if self.integrity.scrub.doubts.is_empty() {
            return true;
        }
        if !self.read_doubtful(core, out) || self.integrity.scrub.doubts.reads.len() >= MAP_READS {
            return false;
        }
        let mut doubts = std::mem::take(&mut self.integrity.scrub.doubts.list);
        if !std::mem::replace(&mut self.integrity.scrub.doubts.searching, true) {
            doubts.sort_unstable_by_key(|doubt| (doubt.segment, doubt.row));
        }
        let (pages, first) = (
            core.store.volumes.arena.slots(),
            self.integrity.scrub.doubts.page,
        );
        let mut found = Vec::new();
        let mut page = first;
        while page < pages && page < first + MAP_PAGES_PER_STEP && found.len() < MAP_READS {
            let slot = PageSlot(page);
            let lies = |address| self.doubt_at(&doubts, address, core).is_some();
            let before = found.len();
            self.mapped_blocks(slot, lies, &mut found, core);
            let image = core
                .store
                .volumes
                .arena
                .meta(slot)
                .map(|meta| meta.pointer)
                .filter(|pointer| pointer.present && lies(pointer.address));
            if image.is_some() {
                core.store.volumes.arena.mark_dirty(slot);
                self.integrity.note_rewritten(&core.paths.durability, true);
            }
            for address in found[before..]
                .iter()
                .map(|block| block.address)
                .chain(image.map(|image| image.address))
            {
                self.doubt_at(&doubts, address, core)
                    .into_iter()
                    .for_each(|at| doubts[at].has_live = true);
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
        if !self.read_doubtful(core, out) {
            return false;
        }
        if page < pages || self.integrity.scrub.doubts.has_reads() {
            // Pending reads wake it.
            self.integrity.scrub.later = !self.integrity.scrub.doubts.has_reads();
            return false;
        }
        self.end_doubts(core);
        true
    }

    /// Index of the doubt, among these sorted ones, that contains the address.
    fn doubt_at(&self, doubts: &[Doubt], address: Address, core: &Core) -> Option<usize> {
        let segment = core.store.pool.codec.segment(address);
        let of_segment = doubts.partition_point(|doubt| doubt.segment < segment);
        if doubts.get(of_segment)?.segment != segment {
            return None;
        }
        let row = core
            .paths
            .locate_block(segment, core.store.pool.codec.block(address), &core.store)
            .1;
        let at = doubts
            .partition_point(|doubt| (doubt.segment, doubt.row) <= (segment, row))
            .checked_sub(1)?;
        doubts[at].covers(segment, row).then_some(at)
    }

    /// Ends a search after its blocks were read.
    fn end_doubts(&mut self, core: &mut Core) {
        let mut doubts = std::mem::take(&mut self.integrity.scrub.doubts.list);
        (
            self.integrity.scrub.doubts.searching,
            self.integrity.scrub.doubts.page,
        ) = (false, 0);
        if doubts.iter().any(|doubt| {
            usize::from(core.store.segments.get(doubt.segment).stream) == STREAM_CHECKPOINT
        }) {
            let mut tables = Vec::new();
            core.paths.durability.checkpoint.table_addresses(|address| {
                tables.extend(
                    self.doubt_at(&doubts, address, core)
                        .map(|at| (at, address)),
                )
            });
            tables
                .iter()
                .for_each(|(at, _)| doubts[*at].has_live = true);
            let addresses: BTreeSet<Address> =
                tables.into_iter().map(|(_, address)| address).collect();
            let used = core
                .paths
                .durability
                .checkpoint
                .rewrite_where(|address| addresses.contains(&address));
            self.integrity.note_rewritten(&core.paths.durability, used);
        }
        self.integrity.scrub.sums.damaged_batches +=
            doubts.iter().filter(|doubt| doubt.has_live).count() as u64;
    }

    /// Reads waiting blocks as far as the rate allows. False if some are left.
    pub(super) fn read_doubtful(&mut self, core: &mut Core, out: &mut Outbox) -> bool {
        while let Some(Reading { block, .. }) = self.integrity.scrub.doubts.waiting.front() {
            let MappedBlock {
                key,
                address,
                checksum,
                ..
            } = *block;
            if core.store.volumes.shown(key.volume(), key.lba(), address) != Some(checksum) {
                // It was moved meanwhile, and its segment may be in use again.
                self.integrity.scrub.doubts.waiting.pop_front();
                continue;
            }
            if !self
                .integrity
                .scrub
                .throttle
                .may_begin(core.store.pool.now_ns, &core.store.observe.users)
            {
                return false;
            }
            if let Some(reading) = self.integrity.scrub.doubts.waiting.pop_front() {
                self.fetch_doubtful(reading, core, out);
            }
        }
        true
    }

    fn fetch_doubtful(&mut self, reading: Reading, core: &mut Core, out: &mut Outbox) {
        let block = reading.block;
        let (segment, number) = (
            core.store.pool.codec.segment(block.address),
            core.store.pool.codec.block(block.address),
        );
        let (column, row, _) = core.paths.locate_block(segment, number, &core.store);
        let pieces = vec![block.piece(&core.store.pool.codec)];
        let rows = pieces[0].rows().1 + 1;
        let bytes = u64::from(rows) * BLOCK_BYTES;
        self.integrity.scrub.sums.read_bytes += bytes;
        self.integrity.scrub.throttle.begin(
            core.store.pool.now_ns,
            bytes,
            time_at(bytes, self.integrity.scrub.sums.bytes_per_second),
            SCRUB_PAUSE_NS / MAP_READS as u64,
        );
        let goal = FetchGoal::Doubt {
            by_map: reading.by_map,
            doubt: self.integrity.scrub.doubts.reads.insert(reading),
        };
        let ended = core.store.start_fetch(
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
        self.deliver_above(ended, core, out);
    }

    /// Counts the wrong rows of a lost block in a batch without tables: its member returned wrong
    /// data or failed the read. Rows of an absent member do not count.
    fn count_lost_rows(&mut self, address: Address, piece: Piece, core: &mut Core) {
        let (segment, number) = (
            core.store.pool.codec.segment(address),
            core.store.pool.codec.block(address),
        );
        let (column, row, _) = core.paths.locate_block(segment, number, &core.store);
        let (member, _) = core.store.pool.zones.locate(segment).address(row, column);
        if core.store.holds(member, segment) {
            self.integrity.scrub.sums.wrong_blocks +=
                u64::from(piece.rows().1 - piece.rows().0 + 1);
        }
    }

    /// Handles a block in doubt that was read or is unreadable.
    pub(crate) fn doubt_read(
        &mut self,
        at: u32,
        bytes: Option<Payload>,
        core: &mut Core,
        out: &mut Outbox,
    ) {
        self.forget_reopened(core);
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
        ) = (block, block.piece(&core.store.pool.codec));
        self.integrity.scrub.throttle.end(
            core.store.pool.now_ns,
            u64::from(piece.rows().1 + 1) * BLOCK_BYTES,
        );
        if core.store.volumes.shown(key.volume(), key.lba(), address) != Some(checksum) {
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
                    .doubt_at(&self.integrity.scrub.doubts.list, address, core)
                    .map(|at| &self.integrity.scrub.doubts.list[at]);
                if !by_map || !doubt.is_some_and(|doubt| doubt.told.contains(&key)) {
                    if by_map {
                        self.count_lost_rows(address, piece, core);
                    }
                    self.note_scrub_loss(key, core, out);
                }
            }
        }
    }
}

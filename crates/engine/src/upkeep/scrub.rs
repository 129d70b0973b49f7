//! Scrub: verifies every committed batch that holds live data, segment by segment
//! (docs/internals/members.md).
//!
//! 1. The next batch is read with all its columns.
//! 2. A job computes the correct content of each block (`store/verify.rs`).
//! 3. Live blocks of damaged rows are moved with their verified bytes, as cleaning moves them. If
//!    head or tail of the batch is affected, all its live blocks are. Checkpoint pages are marked
//!    dirty.
//! 4. For an unreadable batch the map provides the live blocks in it (`upkeep/scrub/doubts.rs`).
//! 5. Lost blocks are listed.
//! 6. At the end labels are read (`upkeep/scrub/labels.rs`), and the maps are searched for blocks
//!    that an earlier salvage declared lost: no batch has them (`upkeep/scrub/given_up.rs`).
//! 7. The pass ends when all moved blocks have their new address and a checkpoint has it: any
//!    damage found after that is new.
//!
//! Only batches in progress pin their segments, and none is begun while repairs wait for room: a
//! full pool never waits for a scrub. Position and results are in the counters of every checkpoint,
//! so the scrub resumes after a restart.

mod doubts;
mod given_up;
mod labels;
mod saved;

use crate::api::{ControlError, Notice, ScrubCommand, ScrubState, ScrubStatus, VolumeBlock};
use crate::base::background::{Throttle, time_at};
use crate::base::limits::{SCRUB_LOST_MAX, SCRUB_PAUSE_NS, SCRUB_SEGMENTS_PER_STEP};
use crate::base::piece::address_in;
use crate::path::cleaning::{MappedBlock, RepairFor};
use crate::path::{Core, Durability};
use crate::store::events::Outbox;
use crate::store::pending::BlockKey;
use crate::store::pool::Pool;
use crate::store::segment::SegmentState;
use crate::store::verify::{Verified, VerifyWork};
use crate::upkeep::verification::VerifyGoal;
use crate::upkeep::{Integrity, Upkeep};
use doubts::Doubts;
use given_up::GivenUp;
use labels::Labels;
use std::collections::VecDeque;
use windrow_format::batch::Entry;
use windrow_geometry::Column;
use windrow_io::Payload;
use windrow_types::{Address, FULL_BLOCK_UNITS, Lba, Lsn, SegmentId, VolumeId};

/// A live block of a damaged row.
#[derive(Debug)]
struct Repair {
    key: BlockKey,
    birth: Lsn,
    from: Address,
    /// Checksum of the stored bytes.
    checksum: u32,
    payload: Payload,
}

/// Result of a segment's tables.
#[derive(Debug)]
struct Tally {
    segment: SegmentId,
    /// Number of live units in them so far.
    live: u32,
    /// Lost blocks among them, already reported.
    lost: Vec<BlockKey>,
    /// Number of batches being verified.
    open: u32,
    /// Set if a batch of it is in doubt.
    doubted: bool,
    /// Number of rows, all of them begun; `None`: there are more.
    rows: Option<u32>,
}

/// State of scrubbing.
#[derive(Debug, Default)]
pub(crate) struct Scrub {
    /// Status as reported, except for values that depend on the time of the query.
    sums: ScrubStatus,
    /// Position of the next batch.
    segment: u32,
    row: u32,
    /// First segment with unfinished repairs: a restart resumes here. (Results of later segments
    /// then count twice.)
    settled: u32,
    /// Nanoseconds of run time before it was last started or resumed.
    active_ns: u64,
    /// Time of the last start or resumption.
    running_since_ns: u64,
    /// More segments are to be checked at once, but after other work had its turn.
    later: bool,
    throttle: Throttle,
    repairs: VecDeque<Repair>,
    /// Segments with pending work, and the present one.
    tallies: Vec<Tally>,
    /// Unreadable batches until their live blocks are known.
    doubts: Doubts,
    given_up: GivenUp,
    labels: Labels,
    /// Set if checkpoint pages are to be rewritten, and the first checkpoint that certainly has
    /// rewritten all pages found up to now.
    rewritten: bool,
    pages_until: u64,
    /// Number of the checkpoint that makes all repairs durable.
    checkpoint: Option<u64>,
    /// Time to check for the end of repairs or of a checkpoint, unless an event comes first; 0: it
    /// does not wait.
    look_at_ns: u64,
}

impl Scrub {
    /// Lists a block that refers to lost content, if this scrub lists that content.
    pub(crate) fn note_reference(&mut self, volume: VolumeId, lba: u64, content: Lba) {
        let lost = &mut self.sums.lost;
        let listed = lost
            .iter()
            .any(|block| block.volume == VolumeId::SHARED && block.lba == content.0);
        if listed && lost.len() < SCRUB_LOST_MAX {
            lost.push(VolumeBlock { volume, lba });
        }
    }

    /// Status for `status`.
    pub(crate) fn status(&self, segments: u32, now_ns: u64) -> ScrubStatus {
        let active_ms = self.active_ns(now_ns) / 1_000_000;
        ScrubStatus {
            active_ms,
            segments_done: self.segment.min(segments),
            segments_total: segments,
            ..self.sums.clone()
        }
    }

    /// Nanoseconds of run time.
    fn active_ns(&self, now_ns: u64) -> u64 {
        // After a restart it counts from its first step.
        let is_running = self.sums.state == ScrubState::Running && self.running_since_ns > 0;
        self.active_ns
            + if is_running {
                now_ns.saturating_sub(self.running_since_ns)
            } else {
                0
            }
    }

    /// True if none of its reads, jobs or repairs is pending.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.throttle.is_at_rest()
            && self.repairs.is_empty()
            && !self.doubts.has_reads()
            && !self.labels.is_under_way()
    }

    /// True if it has no further effect.
    pub(crate) fn is_idle(&self) -> bool {
        self.is_at_rest() && self.sums.state != ScrubState::Running
    }

    /// Time of its next step, unless an event comes first.
    pub(crate) fn wake_at_ns(&self, now_ns: u64) -> Option<u64> {
        let wake = if self.later {
            Some(now_ns + 1)
        } else {
            self.throttle.wake_at_ns(now_ns)
        };
        let wake = wake
            .into_iter()
            .chain((self.look_at_ns > now_ns).then_some(self.look_at_ns))
            .min();
        wake.filter(|_| self.sums.state == ScrubState::Running)
    }

    /// Drops the results of a segment that a stream begins to write: they are of its previous
    /// incarnation, which has no live data.
    pub(crate) fn forget_segment(&mut self, segment: SegmentId) {
        self.tallies.retain(|tally| tally.segment != segment);
        self.sums.damaged_batches += self.doubts.forget_segment(segment);
        if self.segment == segment.0 {
            self.row = 0;
        }
    }

    fn pause_clock(&mut self, now_ns: u64) {
        self.active_ns = self.active_ns(now_ns);
    }
}

impl Scrub {
    /// A column is read once more, row by row.
    pub(crate) fn scrub_reads_again(&mut self, bytes: u64) {
        self.sums.read_bytes += bytes;
        self.throttle
            .charge(time_at(bytes, self.sums.bytes_per_second), 0);
    }

    /// True if blocks in doubt may be looked for: nothing else is under way.
    pub(crate) fn may_settle_doubts(&self) -> bool {
        self.doubts.is_searching() || self.is_at_rest()
    }
}

impl Integrity {
    /// Records that a checkpoint page is in a damaged row. A checkpoint in progress may have taken
    /// its list of pages before.
    pub(crate) fn note_rewritten(&mut self, durability: &Durability, used: bool) {
        if used {
            (self.scrub.rewritten, self.scrub.pages_until) =
                (true, durability.checkpoint.begun + 1);
        }
    }

    pub(crate) fn scrub_waits(&mut self, pool: &Pool) {
        self.scrub.look_at_ns = pool.now_ns + SCRUB_PAUSE_NS;
    }
}

impl Upkeep {
    /// Drops the results of segments that streams have begun to write since. Each use of results
    /// calls this first.
    pub(crate) fn forget_reopened(&mut self, core: &mut Core) {
        for segment in core.store.segments.take_opened() {
            self.integrity.scrub.forget_segment(segment);
        }
    }

    /// Handles a command of the administrator.
    pub(crate) fn scrub_command(
        &mut self,
        command: ScrubCommand,
        core: &mut Core,
    ) -> Result<(), ControlError> {
        self.forget_reopened(core);
        let state = self.integrity.scrub.sums.state;
        let refuse = |why: &str| Err(ControlError::Invalid(why.to_owned()));
        let under_way = matches!(state, ScrubState::Running | ScrubState::Paused);
        match command {
            ScrubCommand::Start { .. } if under_way || !self.integrity.scrub.is_at_rest() => {
                return refuse("a scrub is under way");
            }
            ScrubCommand::Start {
                unix_s,
                bytes_per_second,
            } => {
                core.store.observe.wall.set(unix_s, core.store.pool.now_ns);
                let completed_unix_s = self.integrity.scrub.sums.completed_unix_s;
                let sums = ScrubStatus {
                    started_unix_s: unix_s,
                    bytes_per_second,
                    completed_unix_s,
                    ..ScrubStatus::default()
                };
                self.integrity.scrub = Scrub {
                    sums,
                    ..Scrub::default()
                };
                // The new scrub lists all names again.
                core.paths.damage.contents.forget_named();
                core.paths.damage.scrub_begins();
            }
            ScrubCommand::Pause if state != ScrubState::Running => {
                return refuse("no scrub is running");
            }
            ScrubCommand::Resume if state != ScrubState::Paused => {
                return refuse("no scrub is paused");
            }
            ScrubCommand::Stop if !under_way => return refuse("no scrub is in progress"),
            ScrubCommand::Pause | ScrubCommand::Resume | ScrubCommand::Stop => {}
        }
        self.integrity.scrub.pause_clock(core.store.pool.now_ns);
        self.integrity.scrub.running_since_ns = core.store.pool.now_ns;
        self.integrity.scrub.sums.state = match command {
            ScrubCommand::Start { .. } | ScrubCommand::Resume => ScrubState::Running,
            ScrubCommand::Pause => ScrubState::Paused,
            ScrubCommand::Stop => ScrubState::Stopped,
        };
        if command == ScrubCommand::Stop {
            self.integrity.scrub.sums.ended_unix_s =
                core.store.observe.wall.unix_s(core.store.pool.now_ns);
            self.integrity.scrub.sums.damaged_batches += self.integrity.scrub.doubts.forget();
        }
        Ok(())
    }

    /// Continues the scrub.
    pub(crate) fn scrub_step(&mut self, core: &mut Core, out: &mut Outbox) {
        self.forget_reopened(core);
        self.integrity.scrub.look_at_ns = 0;
        if core.store.pool.closing.is_under_way() {
            // The next start finds them again.
            self.integrity.scrub.repairs.clear();
        }
        self.feed_repairs(core);
        let given_up = core.paths.space.cleaner.take_given_up();
        self.integrity.scrub.sums.unmoved_blocks += given_up;
        self.integrity.scrub.sums.moved_blocks = self
            .integrity
            .scrub
            .sums
            .moved_blocks
            .saturating_sub(given_up);
        if self.integrity.scrub.sums.state != ScrubState::Running
            || core.store.pool.read_only
            || core.store.pool.closing.is_under_way()
        {
            return;
        }
        if self.integrity.scrub.running_since_ns == 0 {
            // It resumes after a restart.
            self.integrity.scrub.running_since_ns = core.store.pool.now_ns;
        }
        self.integrity.scrub.later = false;
        // Missing redundancy comes before redundancy that may be wrong.
        if !self.integrity.rebuild.is_idle() {
            return;
        }
        while self
            .integrity
            .scrub
            .throttle
            .may_begin(core.store.pool.now_ns, &core.store.observe.users)
        {
            if !self.integrity.scrub.repairs.is_empty() || core.paths.space.cleaner.has_repairs() {
                return self.integrity.scrub_waits(&core.store.pool);
            }
            if !self.read_doubtful(core, out) {
                return;
            }
            if self.integrity.scrub.doubts.is_due()
                && !(self.integrity.scrub.may_settle_doubts() && self.settle_doubts(core, out))
            {
                return;
            }
            match self.next_batch(core) {
                Next::Batch { segment, row, rows } => {
                    self.scrub_batch(segment, row, rows, core, out)
                }
                Next::Later => {
                    // A long run of segments without live data: other work first.
                    self.integrity.scrub.later = true;
                    return;
                }
                Next::End => return self.end_scrub(core, out),
            }
        }
    }

    /// The next batch to verify.
    fn next_batch(&mut self, core: &mut Core) -> Next {
        for _ in 0..SCRUB_SEGMENTS_PER_STEP {
            let pages_are_written =
                core.paths.durability.checkpoint.completed >= self.integrity.scrub.pages_until;
            if pages_are_written
                && self.integrity.scrub.repairs.is_empty()
                && self.integrity.scrub.doubts.is_empty()
                && self.repairs_committed(core)
            {
                // (Without a rate there is always something under way.)
                let open = self
                    .integrity
                    .scrub
                    .tallies
                    .iter()
                    .map(|tally| tally.segment.0)
                    .min();
                self.integrity.scrub.settled = open.map_or(self.integrity.scrub.segment, |open| {
                    open.min(self.integrity.scrub.segment)
                });
            }
            if self.integrity.scrub.segment >= core.store.segments.count() {
                return Next::End;
            }
            let segment = SegmentId(self.integrity.scrub.segment);
            let s = core.store.segments.get(segment);
            let holds_data = matches!(
                s.state,
                SegmentState::Open
                    | SegmentState::Sealed
                    | SegmentState::Cleaning
                    | SegmentState::Quarantined
            );
            let committed = self.committed_rows(segment, core);
            if holds_data && s.live_units > 0 && self.integrity.scrub.row < committed {
                let (row, rows) = core
                    .store
                    .segments
                    .get(segment)
                    .batch_at(self.integrity.scrub.row);
                if row + rows <= committed {
                    self.integrity.scrub.row = row + rows;
                    return Next::Batch { segment, row, rows };
                }
            }
            let rows = self.integrity.scrub.row;
            self.integrity
                .scrub
                .tallies
                .iter_mut()
                .filter(|tally| tally.segment == segment)
                .for_each(|tally| tally.rows = Some(rows));
            self.close_tally(segment, core);
            self.integrity.scrub.segment += 1;
            self.integrity.scrub.row = 0;
        }
        Next::Later
    }

    /// Handles a verified batch.
    pub(crate) fn scrub_verified(
        &mut self,
        segment: SegmentId,
        row: u32,
        rows: u32,
        work: VerifyWork,
        core: &mut Core,
        out: &mut Outbox,
    ) {
        self.forget_reopened(core);
        self.integrity.scrub.throttle.end(
            core.store.pool.now_ns,
            core.store.pool.batch_bytes(segment, rows),
        );
        self.integrity.scrub.sums.batches += 1;
        let tally = self
            .integrity
            .scrub
            .tallies
            .iter_mut()
            .find(|tally| tally.segment == segment);
        tally
            .into_iter()
            .for_each(|tally| (tally.live, tally.open) = (tally.live + work.live, tally.open - 1));
        match work.found {
            Some(found) if found.is_whole() => {}
            Some(found) => {
                let read = (0..)
                    .zip(&work.columns)
                    .filter(|(_, column)| column.is_some())
                    .fold(0, |read, (c, _)| read | 1 << c);
                self.take_damage((segment, row), &found, read, core, out);
            }
            // Only the map has its live blocks.
            None => {
                self.integrity
                    .scrub
                    .tallies
                    .iter_mut()
                    .filter(|tally| tally.segment == segment)
                    .for_each(|tally| tally.doubted = true);
                self.integrity
                    .scrub
                    .doubts
                    .add(segment, row, rows, Vec::new());
            }
        }
        self.close_tally(segment, core);
    }

    /// Compares the tables of a segment with its live count, once all of them are read.
    fn close_tally(&mut self, segment: SegmentId, core: &mut Core) {
        let is_closed =
            |tally: &mut Tally| tally.segment == segment && tally.open == 0 && tally.rows.is_some();
        let closed: Vec<Tally> = self
            .integrity
            .scrub
            .tallies
            .extract_if(.., is_closed)
            .collect();
        closed
            .into_iter()
            .for_each(|tally| self.compare_live(tally, core));
    }

    fn scrub_batch(
        &mut self,
        segment: SegmentId,
        row: u32,
        rows: u32,
        core: &mut Core,
        out: &mut Outbox,
    ) {
        let read = self.verify(VerifyGoal::Scrub, segment, row, rows, core, out);
        self.integrity.scrub.sums.read_bytes += read;
        if read > 0 {
            let (bytes, bound) = (
                core.store.pool.batch_bytes(segment, rows),
                time_at(read, self.integrity.scrub.sums.bytes_per_second),
            );
            self.integrity.scrub.throttle.begin(
                core.store.pool.now_ns,
                bytes,
                bound,
                SCRUB_PAUSE_NS,
            );
            match self
                .integrity
                .scrub
                .tallies
                .iter_mut()
                .find(|tally| tally.segment == segment)
            {
                Some(tally) => tally.open += 1,
                None => self.integrity.scrub.tallies.push(Tally {
                    segment,
                    live: 0,
                    lost: Vec::new(),
                    open: 1,
                    doubted: false,
                    rows: None,
                }),
            }
        }
    }

    /// Moves the live blocks of damaged rows and records the lost ones. `read`: bit mask of the
    /// columns that were readable.
    fn take_damage(
        &mut self,
        (segment, row): (SegmentId, u32),
        found: &Verified,
        read: u64,
        core: &mut Core,
        out: &mut Outbox,
    ) {
        let shape = *core.store.pool.zones.shape(segment);
        let rows = found.batch.frame.header.rows;
        let weak_ends = found.ends_are_weak();
        let (mut concerned, mut any) = (vec![false; rows as usize], false);
        for decoded in &found.batch.entries {
            let Some(payload) = &decoded.payload else {
                continue;
            };
            let lost = found.is_lost(payload);
            if !found.is_weak(payload) && !weak_ends && !lost {
                continue;
            }
            let address = address_in(&core.store.pool.codec, segment, row, shape.data, payload);
            let live = match decoded.entry {
                Entry::Data { volume, lba, birth }
                | Entry::Move {
                    volume, lba, birth, ..
                } => {
                    let live = core.store.volumes.shows(volume, lba, address);
                    let key = BlockKey::new(volume, lba);
                    if live && lost {
                        self.integrity
                            .scrub
                            .tallies
                            .iter_mut()
                            .filter(|tally| tally.segment == segment)
                            .for_each(|tally| tally.lost.push(key));
                        if payload.units == FULL_BLOCK_UNITS {
                            self.note_scrub_loss(key, core, out);
                        } else {
                            // The damage in the block may be its neighbours' alone.
                            let (units, checksum) = (payload.units, payload.checksum);
                            self.integrity.scrub.doubts.read(
                                MappedBlock {
                                    key,
                                    address,
                                    units,
                                    checksum,
                                },
                                birth,
                            );
                        }
                    } else if live {
                        let (checksum, payload) = (
                            payload.checksum,
                            core.store.memory.verified_payload(found, payload),
                        );
                        self.integrity.scrub.repairs.push_back(Repair {
                            key,
                            birth,
                            from: address,
                            checksum,
                            payload,
                        });
                    }
                    live
                }
                Entry::Page { object, index } => {
                    let used = self.rewrite_page(object, index, address, core);
                    self.integrity.note_rewritten(&core.paths.durability, used);
                    used
                }
                _ => false,
            };
            (payload.block()..=payload.last_block())
                .for_each(|block| concerned[(block % rows) as usize] |= live);
            any |= live;
        }
        // Damage in rows without live blocks is not counted.
        for (at, (wrong, concerned)) in (row..).zip(found.wrong.iter().zip(concerned)) {
            if concerned || (weak_ends && any) {
                self.count_wrong((segment, at), *wrong, read, core);
            }
        }
    }

    /// Counts the wrong blocks of a row, and, for each member, those that were readable.
    fn count_wrong(
        &mut self,
        (segment, row): (SegmentId, u32),
        wrong: u64,
        read: u64,
        core: &mut Core,
    ) {
        self.integrity.scrub.sums.wrong_blocks += u64::from(wrong.count_ones());
        for column in (0..64).filter(|column| (wrong & read) >> column & 1 == 1) {
            let (member, _) = core
                .store
                .pool
                .zones
                .locate(segment)
                .address(row, Column(column));
            core.store.drives.members.note_wrong_blocks(member, 1);
        }
    }

    fn note_scrub_loss(&mut self, key: BlockKey, core: &mut Core, out: &mut Outbox) {
        if key.volume() == windrow_types::VolumeId::INDEX {
            // No user data.
            return;
        }
        self.integrity.scrub.sums.lost_blocks += 1;
        if self.integrity.scrub.sums.lost.len() < SCRUB_LOST_MAX {
            self.integrity.scrub.sums.lost.push(VolumeBlock {
                volume: key.volume(),
                lba: key.lba().0,
            });
        }
        core.paths.note_lost(key, &mut core.store, out);
    }

    /// Passes repairs to the cleaned stream as far as it takes them.
    fn feed_repairs(&mut self, core: &mut Core) {
        while core.paths.space.cleaner.takes_repairs() {
            let Some(Repair {
                key,
                birth,
                from,
                checksum,
                payload,
            }) = self.integrity.scrub.repairs.pop_front()
            else {
                return;
            };
            if core.store.volumes.shown(key.volume(), key.lba(), from) == Some(checksum) {
                self.integrity.scrub.sums.moved_blocks += 1;
                core.paths.queue_repair(
                    RepairFor::Scrub,
                    (key, birth, from),
                    checksum,
                    payload,
                    &core.store,
                );
            }
        }
    }

    /// True if the awaited event has happened in a later part of the same engine step.
    pub(crate) fn scrub_goes_on(&self, core: &Core) -> bool {
        let is_waiting = self.integrity.scrub.sums.state == ScrubState::Running
            && self.integrity.scrub.look_at_ns > 0;
        // Repairs queued by others keep it waiting as well, and may wait for the members
        // themselves: seed 9850213.
        is_waiting
            && self.integrity.scrub.repairs.is_empty()
            && !core.paths.space.cleaner.has_repairs()
            && self
                .integrity
                .scrub
                .checkpoint
                .map_or(self.repairs_committed(core), |wanted| {
                    core.paths.durability.checkpoint.completed >= wanted
                })
    }

    /// Ends the pass when all its consequences are complete.
    fn end_scrub(&mut self, core: &mut Core, out: &mut Outbox) {
        if !self.integrity.scrub.may_settle_doubts() || !self.settle_doubts(core, out) {
            return;
        }
        if !self.integrity.scrub.repairs.is_empty() || !self.repairs_are_in_place(core, out) {
            return self.integrity.scrub_waits(&core.store.pool);
        }
        if !self.labels_are_done(core, out) {
            return;
        }
        if !self.search_given_up(core, out) {
            self.integrity.scrub.later = true;
            return;
        }
        core.paths.damage.scrub_completed();
        self.integrity.scrub.pause_clock(core.store.pool.now_ns);
        let ended_unix_s = core.store.observe.wall.unix_s(core.store.pool.now_ns);
        let sums = &mut self.integrity.scrub.sums;
        sums.state = ScrubState::Completed;
        // Not the later of the two: the clock may have been ahead when the previous scrub ended.
        let completed_unix_s = if ended_unix_s > 0 {
            ended_unix_s
        } else {
            sums.completed_unix_s
        };
        (sums.ended_unix_s, sums.completed_unix_s) = (ended_unix_s, completed_unix_s);
        let is_all_there = sums.lost_blocks == 0 && sums.damaged_batches == 0;
        out.notices.push(Notice::ScrubEnded {
            wrong_blocks: sums.wrong_blocks,
            lost_blocks: sums.lost_blocks,
            damaged_batches: sums.damaged_batches,
            unmoved_blocks: sums.unmoved_blocks,
        });
        if is_all_there {
            self.recheck_quarantined(core);
        }
        // A crash must not forget that the scrub completed. If checkpoint pages were rewritten, the
        // older checkpoint must not have the damaged ones either.
        core.paths.durability.checkpoint.request();
    }

    /// True if all moved blocks are durable at their new address, and so are rewritten checkpoint
    /// pages.
    fn repairs_are_in_place(&mut self, core: &mut Core, out: &mut Outbox) -> bool {
        if let Some(wanted) = self.integrity.scrub.checkpoint {
            return core.paths.durability.checkpoint.completed >= wanted;
        }
        if !self.repairs_committed(core) {
            self.hurry_repairs(core, out);
            return false;
        }
        if self.integrity.scrub.sums.moved_blocks == 0 && !self.integrity.scrub.rewritten {
            return true;
        }
        // It waits until everything that its pages show is durable.
        core.paths.durability.checkpoint.request();
        self.integrity.scrub.checkpoint = Some(core.paths.durability.checkpoint.begun + 1);
        false
    }
}

/// Next step of the scrub.
enum Next {
    Batch {
        segment: SegmentId,
        row: u32,
        rows: u32,
    },
    /// More segments are to be checked.
    Later,
    /// All segments are done.
    End,
}

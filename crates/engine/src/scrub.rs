//! Scrub: every committed batch that holds live data is examined, one segment after the other
//! (docs/internals/members.md).
//!
//! 1 The next batch is read, all columns of it. 2 A job finds what each block must be
//!   (`verify.rs`). 3 Live blocks of rows in which something
//! is wrong are moved with their verified bytes, as cleaning moves them; if an end of the batch is
//! concerned, all its live blocks are. Checkpoint pages are marked changed. 4 Of a batch that can
//! not be had the map says what lives in it (`scrub/doubts.rs`). 5 What is lost is listed. 6 At the
//! end labels are read (`scrub/labels.rs`), and the maps are searched for blocks that an earlier
//! rebuild gave up: no batch names them (`scrub/given_up.rs`). 7 The pass ends when all that it had
//! moved has its new place, and a checkpoint says so: whatever a scrub finds after that is new.
//!
//! Only the batches under way pin their segments, and none is begun while repairs wait for room: a
//! full pool never waits for a scrub. Where it stands and what it has found is in the counters that
//! every checkpoint keeps, so it goes on after a restart.

mod doubts;
mod given_up;
mod labels;

use crate::background::{Throttle, time_at};
use crate::clean::{MappedBlock, RepairFor};
use crate::limits::{SCRUB_LOST_MAX, SCRUB_PAUSE_NS, SCRUB_SEGMENTS_PER_STEP};
use crate::pending::BlockKey;
use crate::recover::place_in;
use crate::segment::SegmentState;
use crate::verification::VerifyGoal;
use crate::verify::{Verified, VerifyWork};
use crate::{
    ControlError, Engine, Notice, Outbox, ScrubCommand, ScrubState, ScrubStatus, VolumeBlock,
};
use doubts::Doubts;
use given_up::GivenUp;
pub(crate) use labels::LabelStep;
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
    /// Of what is stored.
    checksum: u32,
    payload: Payload,
}

/// What the tables of a segment say.
#[derive(Debug)]
struct Tally {
    segment: SegmentId,
    /// Live units that they name so far.
    live: u32,
    /// Blocks of them that are lost, and have been told.
    lost: Vec<BlockKey>,
    /// Batches being examined.
    open: u32,
    /// A batch of it is in doubt.
    doubted: bool,
    /// Rows, all of them begun; `None`: there are more.
    rows: Option<u32>,
}

/// State of scrubbing.
#[derive(Debug, Default)]
pub(crate) struct Scrub {
    /// As it is shown; what depends on the moment is filled in then.
    sums: ScrubStatus,
    /// Where it goes on.
    segment: u32,
    row: u32,
    /// Everything found in segments before this one is repaired: here it goes on after a restart.
    /// (What was found in later ones counts twice then.)
    settled: u32,
    /// Nanoseconds for which it was running before it was last begun or resumed.
    active_ns: u64,
    /// When it was last begun or resumed.
    running_since_ns: u64,
    /// More segments are to be looked at: at once, but after others had their turn.
    later: bool,
    throttle: Throttle,
    repairs: VecDeque<Repair>,
    /// Segments with something under way, and the one that it goes on in.
    tallies: Vec<Tally>,
    /// Batches that can not be had, until it is known what in them lives.
    doubts: Doubts,
    given_up: GivenUp,
    labels: Labels,
    /// Pages of the checkpoint are to be written elsewhere, and the first checkpoint that certainly
    /// has done so with all that were found up to now.
    rewritten: bool,
    pages_until: u64,
    /// All is where it belongs when the checkpoint with this number is durable.
    checkpoint: Option<u64>,
    /// It waits for repairs or a checkpoint, and looks then whether they are done if nothing has
    /// woken it before; 0: it does not.
    look_at_ns: u64,
}

impl Scrub {
    /// From the counters of a checkpoint. One that was running goes on at the beginning of the
    /// segment that it was in.
    pub(crate) fn restored(saved: &[u64]) -> Self {
        let mut counters = saved.iter().copied();
        let mut next = || counters.next().unwrap_or(0);
        let state = match next() {
            1 => ScrubState::Running,
            2 => ScrubState::Paused,
            3 => ScrubState::Completed,
            4 => ScrubState::Stopped,
            _ => ScrubState::None,
        };
        let segment = next().min(u64::from(u32::MAX)) as u32;
        let active_ns = next();
        let sums = ScrubStatus {
            state,
            started_unix_s: next(),
            bytes_per_second: next(),
            batches: next(),
            read_bytes: next(),
            wrong_blocks: next(),
            moved_blocks: next(),
            lost_blocks: next(),
            damaged_batches: next(),
            ended_unix_s: next(),
            completed_unix_s: next(),
            unmoved_blocks: next(),
            ..ScrubStatus::default()
        };
        Self {
            sums,
            segment,
            settled: segment,
            active_ns,
            ..Self::default()
        }
    }

    /// A block refers to content that is lost: if this scrub lists that, it lists the block as
    /// well.
    pub(crate) fn note_reference(&mut self, volume: VolumeId, lba: u64, content: Lba) {
        let lost = &mut self.sums.lost;
        let listed = lost
            .iter()
            .any(|block| block.volume == VolumeId::SHARED && block.lba == content.0);
        if listed && lost.len() < SCRUB_LOST_MAX {
            lost.push(VolumeBlock { volume, lba });
        }
    }

    /// For the counters of a checkpoint; their order is part of the format.
    pub(crate) fn saved(&self, now_ns: u64) -> [u64; 14] {
        let s = &self.sums;
        let state = match s.state {
            ScrubState::None => 0,
            ScrubState::Running => 1,
            ScrubState::Paused => 2,
            ScrubState::Completed => 3,
            ScrubState::Stopped => 4,
        };
        let segment = u64::from(self.settled);
        let sums = [
            s.batches,
            s.read_bytes,
            s.wrong_blocks,
            s.moved_blocks,
            s.lost_blocks,
            s.damaged_batches,
        ];
        let [batches, read_bytes, wrong, moved, lost, damaged] = sums;
        let (active_ns, [ended, completed]) =
            (self.active_ns(now_ns), [s.ended_unix_s, s.completed_unix_s]);
        [
            state,
            segment,
            active_ns,
            s.started_unix_s,
            s.bytes_per_second,
            batches,
            read_bytes,
            wrong,
            moved,
            lost,
            damaged,
            ended,
            completed,
            s.unmoved_blocks,
        ]
    }

    /// For `status`.
    pub(crate) fn status(&self, segments: u32, now_ns: u64) -> ScrubStatus {
        let active_ms = self.active_ns(now_ns) / 1_000_000;
        ScrubStatus {
            active_ms,
            segments_done: self.segment.min(segments),
            segments_total: segments,
            ..self.sums.clone()
        }
    }

    /// Nanoseconds for which it was running.
    fn active_ns(&self, now_ns: u64) -> u64 {
        // After a restart it runs from its first step on.
        let is_running = self.sums.state == ScrubState::Running && self.running_since_ns > 0;
        self.active_ns
            + if is_running {
                now_ns.saturating_sub(self.running_since_ns)
            } else {
                0
            }
    }

    /// True if a block that is read by itself belongs to a batch whose tables are unreadable.
    pub(crate) fn is_found_by_map(&self, doubt: u32) -> bool {
        self.doubts.is_found_by_map(doubt)
    }

    /// True if none of its reads, jobs or repairs is under way.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.throttle.is_at_rest()
            && self.repairs.is_empty()
            && !self.doubts.has_reads()
            && !self.labels.is_under_way()
    }

    /// True if nothing more comes of it.
    pub(crate) fn is_idle(&self) -> bool {
        self.is_at_rest() && self.sums.state != ScrubState::Running
    }

    /// When it goes on, if nothing else makes it.
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

    /// A stream begins to write a segment: what is known of it is of its former life, in which
    /// nothing lives any more.
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

impl Engine {
    /// A command of the administrator.
    pub(crate) fn scrub_command(&mut self, command: ScrubCommand) -> Result<(), ControlError> {
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
                self.observe.wall.set(unix_s, self.pool.now_ns);
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
                // Its list is a new one, with all names.
                self.integrity.survey.forget_named();
                self.integrity.damage.scrub_begins();
            }
            ScrubCommand::Pause if state != ScrubState::Running => {
                return refuse("no scrub is running");
            }
            ScrubCommand::Resume if state != ScrubState::Paused => {
                return refuse("no scrub is paused");
            }
            ScrubCommand::Stop if !under_way => return refuse("no scrub is under way"),
            ScrubCommand::Pause | ScrubCommand::Resume | ScrubCommand::Stop => {}
        }
        self.integrity.scrub.pause_clock(self.pool.now_ns);
        self.integrity.scrub.running_since_ns = self.pool.now_ns;
        self.integrity.scrub.sums.state = match command {
            ScrubCommand::Start { .. } | ScrubCommand::Resume => ScrubState::Running,
            ScrubCommand::Pause => ScrubState::Paused,
            ScrubCommand::Stop => ScrubState::Stopped,
        };
        if command == ScrubCommand::Stop {
            self.integrity.scrub.sums.ended_unix_s = self.observe.wall.unix_s(self.pool.now_ns);
            self.integrity.scrub.sums.damaged_batches += self.integrity.scrub.doubts.forget();
        }
        Ok(())
    }

    /// Goes on with the scrub.
    pub(crate) fn scrub_step(&mut self, out: &mut Outbox) {
        self.integrity.scrub.look_at_ns = 0;
        if self.admin.control.shutting_down() {
            // They are found again after the next start.
            self.integrity.scrub.repairs.clear();
        }
        self.feed_repairs();
        let given_up = self.space.cleaner.take_given_up();
        self.integrity.scrub.sums.unmoved_blocks += given_up;
        self.integrity.scrub.sums.moved_blocks = self
            .integrity
            .scrub
            .sums
            .moved_blocks
            .saturating_sub(given_up);
        if self.integrity.scrub.sums.state != ScrubState::Running
            || self.pool.read_only
            || self.admin.control.shutting_down()
        {
            return;
        }
        if self.integrity.scrub.running_since_ns == 0 {
            // It goes on after a restart.
            self.integrity.scrub.running_since_ns = self.pool.now_ns;
        }
        self.integrity.scrub.later = false;
        // Redundancy that is missing comes before redundancy that may be wrong.
        if !self.integrity.rebuild.is_idle() {
            return;
        }
        while self
            .integrity
            .scrub
            .throttle
            .may_begin(self.pool.now_ns, &self.observe.users)
        {
            if !self.integrity.scrub.repairs.is_empty() || self.space.cleaner.has_repairs() {
                return self.scrub_waits();
            }
            if !self.read_doubtful(out) {
                return;
            }
            if self.integrity.scrub.doubts.is_due()
                && !(self.integrity.scrub.may_settle_doubts() && self.settle_doubts(out))
            {
                return;
            }
            match self.next_batch() {
                Next::Batch { segment, row, rows } => self.scrub_batch(segment, row, rows, out),
                Next::Later => {
                    // A long stretch of segments without live data: others first.
                    self.integrity.scrub.later = true;
                    return;
                }
                Next::End => return self.end_scrub(out),
            }
        }
    }

    /// The next batch to be examined.
    fn next_batch(&mut self) -> Next {
        for _ in 0..SCRUB_SEGMENTS_PER_STEP {
            let pages_are_written =
                self.durability.checkpoint.completed >= self.integrity.scrub.pages_until;
            if pages_are_written
                && self.integrity.scrub.repairs.is_empty()
                && self.integrity.scrub.doubts.is_empty()
                && self.repairs_committed()
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
            if self.integrity.scrub.segment >= self.space.segments.count() {
                return Next::End;
            }
            let segment = SegmentId(self.integrity.scrub.segment);
            let s = self.space.segments.get(segment);
            let holds_data = matches!(
                s.state,
                SegmentState::Open
                    | SegmentState::Sealed
                    | SegmentState::Cleaning
                    | SegmentState::Quarantined
            );
            let committed = self.committed_rows(segment);
            if holds_data && s.live_units > 0 && self.integrity.scrub.row < committed {
                let (row, rows) = self
                    .space
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
            self.close_tally(segment);
            self.integrity.scrub.segment += 1;
            self.integrity.scrub.row = 0;
        }
        Next::Later
    }

    /// A batch has been examined.
    pub(crate) fn scrub_verified(
        &mut self,
        segment: SegmentId,
        row: u32,
        rows: u32,
        work: VerifyWork,
        out: &mut Outbox,
    ) {
        self.integrity
            .scrub
            .throttle
            .end(self.pool.now_ns, self.batch_bytes(segment, rows));
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
                self.take_damage((segment, row), &found, read, out);
            }
            // Only the map can tell what lives there.
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
        self.close_tally(segment);
    }

    /// Compares what the tables of a segment say with what lives in it, when all of them are there.
    fn close_tally(&mut self, segment: SegmentId) {
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
            .for_each(|tally| self.compare_live(tally));
    }

    fn scrub_batch(&mut self, segment: SegmentId, row: u32, rows: u32, out: &mut Outbox) {
        let read = self.verify(VerifyGoal::Scrub, segment, row, rows, out);
        self.integrity.scrub.sums.read_bytes += read;
        if read > 0 {
            let (bytes, bound) = (
                self.batch_bytes(segment, rows),
                time_at(read, self.integrity.scrub.sums.bytes_per_second),
            );
            self.integrity
                .scrub
                .throttle
                .begin(self.pool.now_ns, bytes, bound, SCRUB_PAUSE_NS);
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

    /// Has the live blocks of damaged rows moved, and notes those that are lost. `read`: the
    /// columns that could be read, as a bit mask.
    fn take_damage(
        &mut self,
        (segment, row): (SegmentId, u32),
        found: &Verified,
        read: u64,
        out: &mut Outbox,
    ) {
        let shape = *self.pool.zones.shape(segment);
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
            let address = place_in(&self.pool.codec, segment, row, shape.data, payload);
            let live = match decoded.entry {
                Entry::Data { volume, lba, birth }
                | Entry::Move {
                    volume, lba, birth, ..
                } => {
                    let live = self.map.volumes.shows(volume, lba, address);
                    let key = BlockKey::new(volume, lba);
                    if live && lost {
                        self.integrity
                            .scrub
                            .tallies
                            .iter_mut()
                            .filter(|tally| tally.segment == segment)
                            .for_each(|tally| tally.lost.push(key));
                        if payload.units == FULL_BLOCK_UNITS {
                            self.note_scrub_loss(key, out);
                        } else {
                            // What is wrong in the block may be its neighbours' alone.
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
                        let (checksum, payload) =
                            (payload.checksum, self.verified_payload(found, payload));
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
                    let used = self.rewrite_page(object, index, address);
                    self.note_rewritten(used);
                    used
                }
                _ => false,
            };
            (payload.block()..=payload.last_block())
                .for_each(|block| concerned[(block % rows) as usize] |= live);
            any |= live;
        }
        // What is wrong beside dead blocks is not counted.
        for (at, (wrong, concerned)) in (row..).zip(found.wrong.iter().zip(concerned)) {
            if concerned || (weak_ends && any) {
                self.count_wrong((segment, at), *wrong, read);
            }
        }
    }

    /// Counts the wrong blocks of a row, and those of them that could be read for their members as
    /// well.
    fn count_wrong(&mut self, (segment, row): (SegmentId, u32), wrong: u64, read: u64) {
        self.integrity.scrub.sums.wrong_blocks += u64::from(wrong.count_ones());
        for column in (0..64).filter(|column| (wrong & read) >> column & 1 == 1) {
            let (member, _) = self.pool.zones.locate(segment).address(row, Column(column));
            self.drives.members.note_wrong_blocks(member, 1);
        }
    }

    /// A page of the checkpoint lies in a damaged row; one that is under way may have taken its
    /// list of pages before that was known.
    fn note_rewritten(&mut self, used: bool) {
        if used {
            (
                self.integrity.scrub.rewritten,
                self.integrity.scrub.pages_until,
            ) = (true, self.durability.checkpoint.begun + 1);
        }
    }

    fn note_scrub_loss(&mut self, key: BlockKey, out: &mut Outbox) {
        if key.volume() == windrow_types::VolumeId::INDEX {
            // Nobody's data.
            return;
        }
        self.integrity.scrub.sums.lost_blocks += 1;
        if self.integrity.scrub.sums.lost.len() < SCRUB_LOST_MAX {
            self.integrity.scrub.sums.lost.push(VolumeBlock {
                volume: key.volume(),
                lba: key.lba().0,
            });
        }
        self.note_lost(key, out);
    }

    /// Hands repairs to the cleaned stream as far as it takes them.
    fn feed_repairs(&mut self) {
        while self.space.cleaner.takes_repairs() {
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
            if self.map.volumes.shown(key.volume(), key.lba(), from) == Some(checksum) {
                self.integrity.scrub.sums.moved_blocks += 1;
                self.queue_repair(RepairFor::Scrub, (key, birth, from), checksum, payload);
            }
        }
    }

    fn scrub_waits(&mut self) {
        self.integrity.scrub.look_at_ns = self.pool.now_ns + SCRUB_PAUSE_NS;
    }

    /// True if what it waits for has happened in a later part of the same step of the engine.
    pub(crate) fn scrub_goes_on(&self) -> bool {
        let is_waiting = self.integrity.scrub.sums.state == ScrubState::Running
            && self.integrity.scrub.look_at_ns > 0;
        // (Repairs that others have queued keep it waiting too, and may themselves wait for the
        // members: seed 9850213.)
        is_waiting
            && self.integrity.scrub.repairs.is_empty()
            && !self.space.cleaner.has_repairs()
            && self
                .integrity
                .scrub
                .checkpoint
                .map_or(self.repairs_committed(), |wanted| {
                    self.durability.checkpoint.completed >= wanted
                })
    }

    /// Everything has been examined: ends when all that follows from it is done.
    fn end_scrub(&mut self, out: &mut Outbox) {
        if !self.integrity.scrub.may_settle_doubts() || !self.settle_doubts(out) {
            return;
        }
        if !self.integrity.scrub.repairs.is_empty() || !self.repairs_are_in_place(out) {
            return self.scrub_waits();
        }
        if !self.labels_are_done(out) {
            return;
        }
        if !self.search_given_up(out) {
            self.integrity.scrub.later = true;
            return;
        }
        self.integrity.damage.scrub_completed();
        self.integrity.scrub.pause_clock(self.pool.now_ns);
        let ended_unix_s = self.observe.wall.unix_s(self.pool.now_ns);
        let sums = &mut self.integrity.scrub.sums;
        sums.state = ScrubState::Completed;
        // (Not the later of the two: the clock may have been ahead when the one before ended.)
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
            self.recheck_quarantined();
        }
        // A crash does not forget that the scrub was done. If checkpoint pages were rewritten, the
        // older of the two checkpoints has none of the damaged ones any more, too.
        self.durability.checkpoint.request();
    }

    /// True if all that was moved is durable in its new place, and so are checkpoint pages that lay
    /// in damaged rows.
    fn repairs_are_in_place(&mut self, out: &mut Outbox) -> bool {
        if let Some(wanted) = self.integrity.scrub.checkpoint {
            return self.durability.checkpoint.completed >= wanted;
        }
        if !self.repairs_committed() {
            self.hurry_repairs(out);
            return false;
        }
        if self.integrity.scrub.sums.moved_blocks == 0 && !self.integrity.scrub.rewritten {
            return true;
        }
        // It waits until all that its pages show is durable.
        self.durability.checkpoint.request();
        self.integrity.scrub.checkpoint = Some(self.durability.checkpoint.begun + 1);
        false
    }
}

/// What comes next.
enum Next {
    Batch {
        segment: SegmentId,
        row: u32,
        rows: u32,
    },
    /// More segments are to be looked at.
    Later,
    /// All are done.
    End,
}

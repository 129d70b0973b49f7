//! Sealing: an open batch gets its address, its header and its batch sequence number, and goes to a
//! worker.
//!
//! The last batch of a segment names the segment in which the stream continues, so that recovery
//! can follow the chain. It can be sealed only when there is one. [`Paths::floor`] decides which
//! streams may take the last free segments; docs/internals/reserve.md shows that this suffices.

use crate::base::fault_injection::InjectedBug;
use crate::base::limits::{
    CHECKPOINT_RESERVE, CLEANER_RESERVE, RELIEF_RESERVE, STREAM_CHECKPOINT, STREAM_CLEANED,
    STREAM_USER, STREAMS, is_cleaned, is_user,
};
use crate::base::stages::Stage;
use crate::path::Paths;
use crate::store::Store;
use crate::store::events::Outbox;
use crate::store::jobs::{Job, SealWork, Work};
use crate::store::member::Purpose;
use crate::store::pool::StopReason;
use crate::store::stream::{Batch, BatchStage, BlockCause, Item};
use windrow_format::batch::{BatchHeader, BatchPlan, TableWriter, plan_batch};
use windrow_geometry::Column;
use windrow_io::Payload;
use windrow_types::{BLOCK_BYTES, BatchSeq, SegmentId, StreamId};

impl Paths {
    /// True if the stream has a row to write to and may seal another batch when the open one is
    /// full.
    pub(crate) fn ready(&self, stream: usize, _store: &Store) -> bool {
        self.log.stream(stream).position.segment != SegmentId::NONE
    }

    /// Number of free segments that `stream` must not take.
    pub(crate) fn floor(&self, stream: usize, store: &Store) -> u32 {
        let checkpoint = if store.observe.bug == InjectedBug::ShortReserve {
            0
        } else {
            self.durability.checkpoint.reserve_segments()
        };
        let victims = self.space.cleaner.victim_count();
        match stream {
            // Each victim in progress may need one segment for its moves (or more, while a member
            // leaves) and gives one back. One more victim may always begin. (Where damage takes the
            // space, lent segments are counted apart: `path/write/exhausted.rs`.)
            STREAM_CHECKPOINT => {
                self.space.cleaner.segments_needed().max(1)
                    + if store.segments.quarantined_for_damage_count() > 0 {
                        0
                    } else {
                        RELIEF_RESERVE
                    }
            }
            STREAM_CLEANED if victims > 0 => 0,
            // Repairs keep a larger reserve (`upkeep/clean/repair.rs`). With this one the open
            // batch can be sealed even if a checkpoint ran in between.
            STREAM_CLEANED => CHECKPOINT_RESERVE,
            // Readmitted entries were given their room before the crash. A checkpoint that was cut
            // off may have taken as much since. None begins before they are in the log, and then
            // one more must fit.
            STREAM_USER if !self.durability.is_settled_after_start() => {
                checkpoint + CHECKPOINT_RESERVE + RELIEF_RESERVE
            }
            // Further streams of a policy share the floor of the user stream.
            _ => 2 * checkpoint + CHECKPOINT_RESERVE + CLEANER_RESERVE + RELIEF_RESERVE,
        }
    }

    fn may_take_segment(&self, stream: usize, store: &Store) -> bool {
        store.segments.free_count() > self.floor(stream, store)
    }

    /// Seals the open batch of a stream, full or not. False if that is not possible now: too many
    /// batches in flight, no segment, or no room would remain for entries that are admitted and not
    /// placed. Those come first then.
    pub(crate) fn seal(&mut self, stream: usize, store: &mut Store, out: &mut Outbox) -> bool {
        self.seal_open(stream, true, store, out)
    }

    /// Seals an open batch that takes no more. False as for [`Paths::seal`], except that a full
    /// batch wastes no room.
    pub(crate) fn seal_full(&mut self, stream: usize, store: &mut Store, out: &mut Outbox) -> bool {
        self.seal_open(stream, false, store, out)
    }

    fn seal_open(
        &mut self,
        stream: usize,
        early: bool,
        store: &mut Store,
        out: &mut Outbox,
    ) -> bool {
        let s = self.log.stream(stream);
        if s.open.is_empty() {
            return true;
        }
        let (shape, row) = (*store.pool.zones.shape(s.position.segment), s.position.row);
        if early && is_cleaned(stream) {
            // No victim was charged for its padding.
            self.space.ledger.move_others();
        }
        let s = self.log.stream(stream);
        match s.open.table.plan(&shape, row) {
            Some(plan) if early && stream == STREAM_USER && !self.leaves_room(&plan, store) => {
                false
            }
            Some(plan) => self.seal_as(stream, plan, store, out),
            None => {
                store.halt(StopReason::Internal("an open batch outgrew its chunk"), out);
                false
            }
        }
    }

    /// Fills the rest of the chunk with an empty batch, for a stream that leaves its segment. There
    /// must be no open batch.
    pub(crate) fn seal_empty(
        &mut self,
        stream: usize,
        store: &mut Store,
        out: &mut Outbox,
    ) -> bool {
        self.space.ledger.move_others();
        let s = self.log.stream(stream);
        debug_assert!(s.open.is_empty());
        let (shape, row) = (*store.pool.zones.shape(s.position.segment), s.position.row);
        let Some(mut plan) = plan_batch(&shape, row, 0, 0) else {
            return false;
        };
        plan.rows = shape.chunk_end(row).min(shape.rows) - row;
        plan.padding_blocks = plan.rows * u32::from(shape.data) - plan.head_blocks - 1;
        self.seal_as(stream, plan, store, out)
    }

    fn seal_as(
        &mut self,
        stream: usize,
        plan: BatchPlan,
        store: &mut Store,
        out: &mut Outbox,
    ) -> bool {
        let s = self.log.stream(stream);
        if s.in_flight.len() >= store.pool.limits.batches_in_flight as usize || store.pool.read_only
        {
            return false;
        }
        let position = s.position;
        let shape = *store.pool.zones.shape(position.segment);
        let ends_segment = position.row + plan.rows == shape.rows;
        let Some(next) = self.next_segment(stream, ends_segment, store) else {
            return false;
        };
        let header = self.batch_header(stream, plan.rows, next, store);
        store.segments.add_batch(
            position.segment,
            position.row,
            plan.rows,
            position.seq,
            self.durability.checkpoint.current(),
        );
        let (table, payloads) = self.close_open_batch(stream, &plan, ends_segment, store);
        self.go_on(stream, plan.rows, ends_segment.then_some(next), store);
        let bytes = u64::from(plan.rows) * u64::from(shape.data) * BLOCK_BYTES;
        store.observe.counters.log_bytes += bytes;
        if is_user(stream) {
            self.admission.reducing.sums.area_bytes +=
                u64::from(plan.compressed_blocks) * BLOCK_BYTES;
        }
        store.observe.counters.checkpoint_log_bytes += if stream == STREAM_CHECKPOINT {
            bytes
        } else {
            0
        };
        let cause = match stream {
            _ if is_user(stream) => BlockCause::User,
            _ if is_cleaned(stream) => BlockCause::Moved,
            _ => BlockCause::Checkpoint,
        };
        let items = self
            .log
            .stream(stream)
            .in_flight
            .back()
            .map_or(&[][..], |batch| &batch.items);
        let index_pages = if store.pool.shares() && stream == STREAM_USER {
            index_pages_of(items)
        } else {
            Vec::new()
        };
        let work = SealWork {
            stream,
            seq: position.seq,
            header,
            plan,
            table,
            payloads,
            index_pages,
            cause,
            buffers: store.memory.buffers.clone(),
            columns: Vec::new(),
            checksums: Vec::new(),
            written: Vec::new(),
        };
        out.jobs.push(Job(Work::Seal(Box::new(work))));
        true
    }

    /// Segment after the stream's open one; `None` if the batch that ends the open one has to wait
    /// for it.
    fn next_segment(
        &mut self,
        stream: usize,
        ends_segment: bool,
        store: &mut Store,
    ) -> Option<SegmentId> {
        let next = self.log.stream(stream).position.next_segment;
        if !ends_segment || next != SegmentId::NONE {
            return Some(next);
        }
        let taken = if self.may_take_segment(stream, store) {
            store.segments.reserve()
        } else {
            None
        };
        if taken.is_some() {
            self.space.ledger.take(stream);
        }
        taken
    }

    fn batch_header(
        &self,
        stream: usize,
        rows: u32,
        next_segment: SegmentId,
        store: &Store,
    ) -> BatchHeader {
        let position = self.log.stream(stream).position;
        let zone = store.pool.zones.zone(position.segment);
        BatchHeader {
            pool: store.pool.superblock.pool,
            epoch: store.pool.superblock.epoch,
            stream: StreamId(stream as u8),
            seq: position.seq,
            segment: position.segment,
            row: position.row,
            rows,
            shape: zone.shape,
            members: zone.members,
            next_segment,
            flushed_through: self.durability.durable_lsn(),
            flushed_seq: self.log.flushed_seqs(),
        }
    }

    /// Moves the open batch to the batches in flight; returns the input of the seal job.
    fn close_open_batch(
        &mut self,
        stream: usize,
        plan: &BatchPlan,
        last_of_segment: bool,
        store: &mut Store,
    ) -> (TableWriter, Vec<Payload>) {
        let now_ns = store.pool.now_ns;
        let number = if is_cleaned(stream) {
            self.space.cleaner.numbers.give()
        } else {
            BatchSeq(0)
        };
        let s = self.log.stream_mut(stream);
        let position = s.position;
        let open = std::mem::take(&mut s.open);
        if let Some((_, last)) = open.lsns {
            s.unsettled.push_back((position, last));
        }
        let opened_ns = if open.is_empty() {
            now_ns
        } else {
            open.since_ns
        };
        if let Some((items, payloads)) = s.spare.pop() {
            s.open.items = items;
            s.open.payloads = payloads;
        }
        s.in_flight.push_back(Batch {
            seq: position.seq,
            segment: position.segment,
            row: position.row,
            rows: plan.rows,
            head_blocks: plan.head_blocks,
            whole_blocks: plan.payload_blocks - plan.compressed_blocks,
            stage: BatchStage::Sealing,
            items: open.items,
            payloads: Vec::new(),
            checksums: Vec::new(),
            lsns: open.lsns,
            number,
            opened_ns,
            stage_ns: now_ns,
            lost_columns: 0,
            last_of_segment,
        });
        self.batch_stage(stream, Stage::WriteOpen, opened_ns, store);
        (open.table, open.payloads)
    }

    /// Moves the stream's position past a sealed batch, to the next segment if that batch ended its
    /// own.
    fn go_on(&mut self, stream: usize, rows: u32, next: Option<SegmentId>, store: &mut Store) {
        if next.is_some() {
            let tag = self.space.policy.tag(stream);
            let left = self.log.stream(stream).position.segment;
            store.segments.get_mut(left).tag = tag;
        }
        let s = self.log.stream_mut(stream);
        s.position.seq = s.position.seq.next();
        s.position.row += rows;
        if let Some(next) = next {
            s.position.segment = next;
            s.position.row = 0;
            s.reserved.pop_front();
            s.position.next_segment = s.reserved.front().copied().unwrap_or(SegmentId::NONE);
            store.segments.open(next, stream);
        }
        if stream == STREAM_USER {
            // All placed entries are sealed.
            self.admission.unsealed_units -= std::mem::take(&mut self.admission.opened_units);
            self.ensure_next_segment(store);
        }
    }

    /// A worker has assembled a batch: writes its columns.
    pub(crate) fn sealed(&mut self, work: SealWork, store: &mut Store, out: &mut Outbox) {
        if store.pool.stopped.is_some() {
            // The engine has stopped: nothing is written any more, and no request waits for it.
            return;
        }
        let now_ns = store.pool.now_ns;
        let segment = work.header.segment;
        let row = work.header.row;
        let columns = work.columns;
        let Some(batch) = self.log.stream_mut(work.stream).batch_mut(work.seq) else {
            return store.halt(StopReason::Internal("a sealed batch is not in flight"), out);
        };
        batch.checksums = work.checksums;
        batch.payloads = work.payloads;
        let since_ns = std::mem::replace(&mut batch.stage_ns, now_ns);
        self.batch_stage(work.stream, Stage::WriteEncode, since_ns, store);
        let mut lost = 0u64;
        let mut left = 0u8;
        for (c, (buf, written)) in columns.into_iter().zip(&work.written).enumerate() {
            let (member, offset) = store
                .pool
                .zones
                .locate(segment)
                .address(row, Column(c as u8));
            if let Some(spare) = store.drives.exchanges.shadow_of(member) {
                left += 1;
                let mut copy = store.memory.buffers.get(buf.len());
                copy.copy_from_slice(&buf);
                store.send_write(
                    spare,
                    offset,
                    copy,
                    Purpose::ShadowWrite {
                        stream: work.stream,
                        seq: work.seq,
                        column: c as u8,
                    },
                    written,
                    out,
                );
            }
            if store.drives.members.is_online(member) {
                left += 1;
                let purpose = Purpose::BatchWrite {
                    stream: work.stream,
                    seq: work.seq,
                    column: c as u8,
                };
                store.send_write(member, offset, buf, purpose, written, out);
            } else {
                lost |= 1 << c;
            }
        }
        if let Some(batch) = self.log.stream_mut(work.stream).batch_mut(work.seq) {
            batch.lost_columns |= lost;
            batch.stage = BatchStage::Writing { left };
        }
        if left == 0 {
            store.halt(StopReason::TooManyLost, out);
        }
    }

    /// Handles the end of one column write of a batch.
    pub(crate) fn batch_write_done(
        &mut self,
        stream: usize,
        seq: BatchSeq,
        column: u8,
        failed: bool,
        store: &mut Store,
        out: &mut Outbox,
    ) {
        if let Some(batch) = self.log.stream_mut(stream).batch_mut(seq)
            && failed
        {
            batch.lost_columns |= 1 << column;
        }
        self.batch_column_ended(stream, seq, store, out);
    }

    /// Counts an ended column write of a batch.
    pub(crate) fn batch_column_ended(
        &mut self,
        stream: usize,
        seq: BatchSeq,
        store: &mut Store,
        out: &mut Outbox,
    ) {
        let now_ns = store.pool.now_ns;
        let Some(batch) = self.log.stream_mut(stream).batch_mut(seq) else {
            return store.halt(
                StopReason::Internal("a written batch is not in flight"),
                out,
            );
        };
        let BatchStage::Writing { left } = &mut batch.stage else {
            return store.halt(
                StopReason::Internal("a batch was written before it was sealed"),
                out,
            );
        };
        *left -= 1;
        if *left == 0 {
            batch.stage = BatchStage::Written;
            let since_ns = std::mem::replace(&mut batch.stage_ns, now_ns);
            self.batch_stage(stream, Stage::WriteMembers, since_ns, store);
            self.commit_ready(store, out);
        }
    }

    /// Records the time of a batch stage; only user batches are counted.
    pub(super) fn batch_stage(
        &mut self,
        stream: usize,
        stage: Stage,
        since_ns: u64,
        store: &mut Store,
    ) {
        if is_user(stream) {
            store
                .observe
                .stages
                .record(stage, since_ns, store.pool.now_ns);
        }
    }

    /// Seals batches that have reached the age limit, so that acknowledged data is not at risk for
    /// long.
    pub(crate) fn seal_aged(&mut self, store: &mut Store, out: &mut Outbox) {
        for stream in STREAMS
            .into_iter()
            .filter(|stream| *stream != STREAM_CHECKPOINT)
        {
            let due = self.open_batch_due_ns(stream, store);
            let s = self.log.stream(stream);
            // Moves put nothing at risk: their batch is sealed partly filled only when no more of
            // them can come.
            let wait = is_cleaned(stream) && self.space.cleaner.is_reading();
            if !s.open.is_empty() && !wait && store.pool.now_ns >= due {
                self.seal(stream, store, out);
            }
        }
    }
}

/// Indexes of the payloads that are pages of the deduplication index.
fn index_pages_of(items: &[Item]) -> Vec<u32> {
    let payloads = (0..).zip(items.iter().filter(|item| item.has_payload()));
    payloads
        .filter(|(_, item)| matches!(item, Item::IndexPage { .. }))
        .map(|(number, _)| number)
        .collect()
}

//! Members: state, commands in flight, exact accounting, and the superblock writer.
//!
//! **A failed write or flush latches the member** at once: nothing is sent to it any more, and before the next
//! acknowledgement that depends on its absence (a commit that lost a column, a flush) the loss is recorded in a new
//! superblock generation on all others. Failed reads only count; the reader rebuilds.
//!
//! **Superblock writer.** One generation at a time: write the slot `g mod 4` on every online member, flush each, done. Whoever
//! wants something recorded raises `wanted`; a generation that was begun later covers it.

use crate::api::{MemberStats, Notice, Outbox, WrittenBytes};
use crate::slab::Slab;
use crate::{Engine, StopReason};
use windrow_io::{Buf, IoTag, MemberCommand, MemberDone, MemberOp};
use windrow_layout::superblock::{MemberState, SLOT_BYTES, Superblock, slot_offset};
use windrow_units::{Generation, MemberId, SegmentId, Seq, ZoneMap};

/// What a member command was for.
#[derive(Debug)]
pub enum Purpose {
    /// One column of a batch.
    BatchWrite {
        /// Stream.
        stream: usize,
        /// Batch.
        seq: Seq,
        /// Column.
        column: u8,
    },
    /// Part of a fetch.
    Fetch {
        /// Fetch number.
        fetch: u32,
        /// Column that was read.
        column: u8,
    },
    /// One column of a batch that is examined.
    Examine {
        /// Examination.
        examination: u32,
        /// Column.
        column: u8,
        /// One row of it, after the column as a whole could not be read.
        row: Option<u32>,
    },
    /// One column of a batch that is rebuilt.
    Rebuild {
        /// Segment.
        segment: SegmentId,
    },
    /// A flush of a round.
    Flush,
    /// A superblock slot.
    SuperblockWrite,
    /// The flush after it.
    SuperblockFlush,
    /// A discard of one extent of a segment.
    Discard {
        /// Segment.
        segment: SegmentId,
    },
}

/// One member at run time.
#[derive(Debug, Default)]
pub struct Member {
    /// Takes part in all writes, and in reads of what is whole on it.
    pub online: bool,
    /// Being rebuilt: counts as lost as long as that lasts.
    pub rebuilding: bool,
    /// Has completed writes that no flush covers yet.
    pub dirty: bool,
    /// Counters.
    pub stats: MemberStats,
}

/// All members.
#[derive(Debug)]
pub struct Members {
    /// By member id.
    pub list: Vec<Member>,
    /// Commands in flight.
    pub in_flight: Slab<Purpose>,
    /// True if a latched member is not recorded yet: commits and flushes wait.
    pub unrecorded_loss: bool,
}

/// State of the superblock writer.
#[derive(Debug, Default)]
pub struct SuperblockWriter {
    /// Bumped for each wish.
    pub wanted: u64,
    /// Wishes covered by the generation being written.
    writing: u64,
    /// Wishes covered by generations that are durable.
    pub done: u64,
    /// Commands of the present step not ended.
    left: u32,
    /// In the flush step.
    flushing: bool,
    /// A generation is being written.
    active: bool,
    /// Content hash of the generation written last: the next one's parent.
    pub written_hash: u64,
}

impl SuperblockWriter {
    /// The writer that goes on after this superblock.
    pub fn after(superblock: &Superblock) -> Self {
        Self { written_hash: superblock.content_hash(), ..Self::default() }
    }
}

impl Engine {
    /// Sends a write and counts its bytes.
    pub(crate) fn send_write(&mut self, member: MemberId, offset: u64, buf: Buf, purpose: Purpose, written: &WrittenBytes, out: &mut Outbox) {
        debug_assert_eq!(written.total(), buf.len() as u64);
        add(&mut self.members.list[member.index()].stats.written, written);
        self.send(member, MemberOp::Write { offset, buf }, purpose, out);
    }

    /// Sends any command.
    pub(crate) fn send(&mut self, member: MemberId, op: MemberOp, purpose: Purpose, out: &mut Outbox) {
        let stats = &mut self.members.list[member.index()].stats;
        match &op {
            MemberOp::Read { buf, .. } => stats.read_bytes += buf.len() as u64,
            MemberOp::Flush => stats.flushes += 1,
            MemberOp::Discard { length, .. } => stats.discarded_bytes += length,
            MemberOp::Write { .. } => {}
        }
        let tag = IoTag(u64::from(self.members.in_flight.insert(purpose)));
        out.commands.push(MemberCommand { member, tag, op });
    }

    pub(crate) fn is_online(&self, member: MemberId) -> bool {
        self.members.list[member.index()].online
    }

    /// True if what the member holds of the segment is there and counts.
    #[inline]
    pub(crate) fn holds(&self, member: MemberId, segment: SegmentId) -> bool {
        let m = &self.members.list[member.index()];
        m.online && !(m.rebuilding && self.segments.get(segment).stale >> member.0 & 1 == 1)
    }

    /// A member command has ended.
    pub(crate) fn member_done(&mut self, done: MemberDone, out: &mut Outbox) {
        let Some(purpose) = self.members.in_flight.remove(done.tag.0 as u32) else {
            return self.stop(StopReason::Internal("a member command came back twice"), out);
        };
        let failed = done.result.is_err();
        if let Err(error) = done.result {
            self.members.list[done.member.index()].stats.errors += 1;
            let is_read = matches!(purpose, Purpose::Fetch { .. } | Purpose::Examine { .. });
            let is_discard = matches!(purpose, Purpose::Discard { .. });
            let gone = error.kind == windrow_io::MemberErrorKind::Gone;
            if (!is_read && !is_discard) || gone {
                self.latch_member(done.member, error.to_string(), out);
            }
        }
        match purpose {
            Purpose::BatchWrite { stream, seq, column } => {
                if !failed {
                    self.members.list[done.member.index()].dirty = true;
                }
                self.batch_write_done(stream, seq, column, failed, out);
            }
            Purpose::Fetch { fetch, column } => self.fetch_read_done(fetch, column, done.buf, failed, out),
            Purpose::Examine { examination, column, row } => self.examine_read(examination, column, row, done.buf.filter(|_| !failed), out),
            Purpose::Rebuild { segment } => {
                self.members.list[done.member.index()].dirty |= !failed;
                self.column_rebuilt(segment);
            }
            Purpose::Flush => self.flush_done(done.member, failed, out),
            Purpose::SuperblockWrite | Purpose::SuperblockFlush => self.superblock_step_done(out),
            Purpose::Discard { segment } => self.discard_done(segment),
        }
    }

    /// Takes a member out of service. Stops the pool if more are gone than the redundancy covers.
    pub(crate) fn latch_member(&mut self, member: MemberId, error: String, out: &mut Outbox) {
        if !self.members.list[member.index()].online {
            return;
        }
        self.members.list[member.index()].online = false;
        self.members.list[member.index()].rebuilding = false;
        out.notices.push(Notice::MemberFailed { member, error });
        let record = &mut self.superblock.members[member.index()];
        // What was sealed before the newest checkpoint began was durable on all members in use when its root was written. One that was being
        // rebuilt has missed more.
        let newest = self.superblock.checkpoints[0].map_or(0, |root| root.id);
        record.missed_from = if record.state == MemberState::Online { newest } else { record.missed_from.min(newest) };
        record.listed_from = 0;
        record.state = MemberState::Absent;
        record.absent_since = self.superblock.generation.next();
        if !redundancy_holds(&self.zones, &self.members.list) {
            return self.stop(StopReason::TooManyLost, out);
        }
        self.members.unrecorded_loss = true;
        self.superblock_writer.wanted += 1;
        self.superblock_step(out);
    }

    /// Begins a generation if one is wanted and none is being written.
    pub(crate) fn superblock_step(&mut self, out: &mut Outbox) {
        if self.superblock_writer.active || self.superblock_writer.wanted == self.superblock_writer.done || self.stopped.is_some() || self.read_only {
            return;
        }
        self.superblock.parent_hash = self.superblock_writer.written_hash;
        self.superblock.generation = self.superblock.generation.next();
        self.superblock_writer.written_hash = self.superblock.content_hash();
        self.superblock_writer.writing = self.superblock_writer.wanted;
        self.superblock_writer.active = true;
        self.superblock_writer.flushing = false;
        let online: Vec<MemberId> = self.online_members();
        self.superblock_writer.left = online.len() as u32;
        for member in online {
            let buf = superblock_image(&self.superblock, member, &self.buffers);
            let written = WrittenBytes { superblock: SLOT_BYTES as u64, ..Default::default() };
            self.send_write(member, slot_offset(self.superblock.generation), buf, Purpose::SuperblockWrite, &written, out);
        }
    }

    fn superblock_step_done(&mut self, out: &mut Outbox) {
        let writer = &mut self.superblock_writer;
        writer.left -= 1;
        if writer.left > 0 || self.stopped.is_some() {
            return;
        }
        if !writer.flushing {
            writer.flushing = true;
            let online = self.online_members();
            self.superblock_writer.left = online.len() as u32;
            for member in online {
                self.send(member, MemberOp::Flush, Purpose::SuperblockFlush, out);
            }
            return;
        }
        writer.active = false;
        writer.done = writer.writing;
        if writer.done == writer.wanted {
            self.members.unrecorded_loss = false;
        }
        self.superblock_step(out);
        self.checkpoint_step(out);
        self.commit_ready(out);
        self.flush_round_check(out);
        self.control_step(out);
    }

    pub(crate) fn online_members(&self) -> Vec<MemberId> {
        (0..self.members.list.len() as u8).map(MemberId).filter(|m| self.is_online(*m)).collect()
    }
}

/// True if every zone survives the members that are gone.
pub(crate) fn redundancy_holds(zones: &ZoneMap, members: &[Member]) -> bool {
    zones.zones().iter().all(|zone| {
        let lost = (0..members.len()).filter(|m| zone.members >> m & 1 == 1 && (!members[*m].online || members[*m].rebuilding)).count();
        lost <= zone.shape.tolerance()
    })
}

/// The slot image of one member.
pub(crate) fn superblock_image(superblock: &Superblock, member: MemberId, buffers: &windrow_io::BufPool) -> Buf {
    let copy = Superblock { member, member_uuid: superblock.members[member.index()].uuid, ..superblock.clone() };
    let bytes = copy.encode();
    let mut buf = buffers.zeroed(SLOT_BYTES);
    buf[..bytes.len()].copy_from_slice(&bytes);
    buf
}

/// Adds counters.
pub(crate) fn add(to: &mut WrittenBytes, from: &WrittenBytes) {
    to.user += from.user;
    to.header += from.header;
    to.parity += from.parity;
    to.moved += from.moved;
    to.padding += from.padding;
    to.journal += from.journal;
    to.checkpoint += from.checkpoint;
    to.superblock += from.superblock;
    to.repair += from.repair;
    to.rebuild += from.rebuild;
}

/// The generation after a superblock's.
pub(crate) fn next_generation(superblock: &Superblock) -> Generation {
    superblock.generation.next()
}

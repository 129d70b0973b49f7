//! Members: state, commands in flight, exact accounting. `member/slot_state.rs` is the table of
//! states and events, `member/exchange.rs` what the administrator can do with members,
//! `member/writer.rs` the superblock writer, `member/send.rs` how commands go,
//! `member/scheduler.rs` which of them wait for others, `member/hangs.rs` which have no answer for
//! long.
//!
//! **A failed write or flush latches the member** at once: nothing is sent to it any more, and
//! before the next acknowledgement that depends on its absence (a commit that lost a column, a
//! flush) the loss is recorded in a new superblock generation on all others. Failed reads only
//! count; the reader rebuilds.

mod exchange;
mod hangs;
mod scheduler;
mod send;
mod shadow;
pub(crate) mod slot_state;
mod writer;

pub(crate) use exchange::{
    Exchanges, NOT_POWER_SAFE, is_power_safe, needed_bytes, sector_bytes_max,
};
pub(crate) use send::{Schedule, UnderWay};
pub(crate) use writer::{SuperblockWriter, Ticket, superblock_image};

use crate::api::{MemberStats, Notice, Outbox, WrittenBytes};
use crate::reshape::AfterLoss;
use crate::scrub::LabelStep;
use crate::slab::Slab;
use crate::{Engine, StopReason};
use slot_state::Change;
use windrow_format::superblock::{SLOT_BYTES, Superblock};
use windrow_geometry::{Zone, ZoneMap};
use windrow_io::{Buf, MemberDone, MemberOp};
use windrow_types::{BatchSeq, MemberId, SegmentId};

/// What a member command was for.
#[derive(Debug)]
pub enum Purpose {
    /// One column of a batch.
    BatchWrite {
        /// Stream.
        stream: usize,
        /// Batch.
        seq: BatchSeq,
        /// Column.
        column: u8,
    },
    /// The same of the shadow of a member.
    ShadowWrite {
        /// Stream.
        stream: usize,
        /// Batch.
        seq: BatchSeq,
        /// Column.
        column: u8,
    },
    /// Part of a fetch.
    Fetch {
        /// Fetch number.
        fetch: u32,
        /// Column that was read.
        column: u8,
        /// One row of it, where each is read by itself.
        row: Option<u8>,
    },
    /// Rows of one column of a batch that is examined.
    Verify {
        /// Examination.
        verification: u32,
        /// Column.
        column: u8,
        /// The first of them in the batch.
        first: u32,
        /// How many.
        rows: u32,
    },
    /// A column of a batch that is rebuilt, or a piece of it.
    Rebuild {
        /// Which of those on their way.
        column: u32,
    },
    /// A flush of a round.
    Flush,
    /// A copy of a journal record.
    JournalWrite,
    /// The flush after it.
    JournalFlush,
    /// A superblock slot.
    SuperblockWrite,
    /// The flush after it.
    SuperblockFlush,
    /// The label, looked at by a scrub.
    Label(LabelStep),
    /// A discard of one extent of a segment.
    Discard {
        /// Segment.
        segment: SegmentId,
    },
    /// None any more: its member was taken out of service, and nobody waits for it
    /// (docs/internals/members.md, "Members that answer nothing").
    Disowned {
        /// It may still change something on the device.
        changes: bool,
    },
}

impl Purpose {
    /// True if the command changes nothing on the member.
    pub(crate) fn is_read(&self) -> bool {
        matches!(
            self,
            Self::Fetch { .. }
                | Self::Verify { .. }
                | Self::Label(LabelStep::Read | LabelStep::ReadAgain)
                | Self::Disowned { changes: false }
        )
    }

    /// True if nobody waits for it.
    pub(crate) fn is_disowned(&self) -> bool {
        matches!(self, Self::Disowned { .. })
    }
}

/// One member at run time.
#[derive(Debug, Default)]
pub struct Member {
    /// Takes part in all writes, and in reads of what is whole on it.
    pub online: bool,
    /// Being rebuilt: counts as lost as long as that lasts.
    pub rebuilding: bool,
    /// How often a device has come into this place since the start: the same one again, or another.
    pub came: u32,
    /// Has completed writes that no flush covers yet.
    pub dirty: bool,
    /// Commands that have not ended, those included that are held back.
    pub in_flight: u32,
    /// Of these, the ones that nobody waits for.
    pub disowned: u32,
    /// A command of it has had no answer for long, and that was told.
    pub hangs: bool,
    /// The wish of the superblock writer that puts its loss on record.
    pub lost_ticket: Ticket,
    /// Why and when (seconds since 1970) it went out of service in this run.
    pub left: Option<(String, u64)>,
    /// Counters.
    pub stats: MemberStats,
}

/// All members.
#[derive(Debug)]
pub struct Members {
    /// By member id.
    pub list: Vec<Member>,
    /// Commands in flight or held back.
    pub in_flight: Slab<UnderWay>,
    /// When members that hang are looked for again.
    pub hang_look_ns: u64,
    /// True if a latched member is not recorded yet: commits and flushes wait.
    pub unrecorded_loss: bool,
    /// What was written to devices that other ones have replaced since.
    pub former: WrittenBytes,
}

impl Members {
    /// The member takes part from now on.
    pub fn enter_service(&mut self, member: MemberId) {
        self.list[member.index()].online = true;
    }

    /// The member takes part no longer.
    pub fn leave_service(&mut self, member: MemberId) {
        self.list[member.index()].online = false;
    }

    /// The member counts as lost while it is rebuilt.
    pub fn set_rebuilding(&mut self, member: MemberId, rebuilding: bool) {
        self.list[member.index()].rebuilding = rebuilding;
    }

    /// The member has completed writes that no flush covers, or a flush begins that covers them.
    pub fn set_dirty(&mut self, member: MemberId, dirty: bool) {
        self.list[member.index()].dirty = dirty;
    }

    /// The request to the superblock writer that records the loss of the member.
    pub fn set_lost_ticket(&mut self, member: MemberId, ticket: Ticket) {
        self.list[member.index()].lost_ticket = ticket;
    }

    /// Blocks with wrong checksums were read from the member.
    pub fn note_wrong_blocks(&mut self, member: MemberId, blocks: u64) {
        self.list[member.index()].stats.wrong_blocks += blocks;
    }

    /// A read of the member took longer than the bound.
    pub fn note_late_read(&mut self, member: MemberId) {
        self.list[member.index()].stats.slow_reads += 1;
    }
}

impl Members {
    pub(crate) fn is_online(&self, member: MemberId) -> bool {
        self.list[member.index()].online
    }

    pub(crate) fn online_members(&self) -> Vec<MemberId> {
        (0..self.list.len() as u8)
            .map(MemberId)
            .filter(|m| self.is_online(*m))
            .collect()
    }

    /// Members being rebuilt, as a bit mask.
    pub(crate) fn rebuilding(&self) -> u64 {
        self.list
            .iter()
            .enumerate()
            .filter(|(_, m)| m.online && m.rebuilding)
            .fold(0, |mask, (m, _)| mask | 1 << m)
    }

    /// One of these members that is out of use, or is being rebuilt.
    pub(crate) fn first_away(&self, members: u64) -> Option<MemberId> {
        let mut of = (0..self.list.len() as u8)
            .map(MemberId)
            .filter(|m| members >> m.0 & 1 == 1);
        of.find(|m| !self.list[m.index()].online || self.list[m.index()].rebuilding)
    }
}

impl Engine {
    /// True if what the member holds of the segment is there and counts.
    #[inline]
    pub(crate) fn holds(&self, member: MemberId, segment: SegmentId) -> bool {
        let m = &self.drives.members.list[member.index()];
        m.online && !(m.rebuilding && self.space.segments.get(segment).stale >> member.0 & 1 == 1)
    }

    /// A member command has ended.
    pub(crate) fn member_done(&mut self, done: MemberDone, out: &mut Outbox) {
        let Some(under_way) = self.drives.members.in_flight.remove(done.tag.0 as u32) else {
            return self.stop(
                StopReason::Internal("a member command came back twice"),
                out,
            );
        };
        self.drives.scheduler.leave_lane(done.member, &under_way);
        let purpose = under_way.purpose;
        self.drives.members.list[done.member.index()].in_flight -= 1;
        if purpose.is_disowned() {
            self.drives.members.list[done.member.index()].disowned -= 1;
            return;
        }
        let failed = done.result.is_err();
        if let Err(error) = done.result {
            self.drives.members.list[done.member.index()].stats.errors += 1;
            let is_read = purpose.is_read();
            let is_discard = matches!(purpose, Purpose::Discard { .. });
            let gone = error.kind == windrow_io::MemberErrorKind::Gone;
            if (!is_read && !is_discard) || gone {
                self.latch_member(done.member, Change::InjectedFault, error.to_string(), out);
            }
        }
        self.command_ended(done.member, purpose, done.buf, failed, out);
    }

    /// A command has ended, or will not go because its member is out of use or the pool has
    /// stopped: then it has failed.
    fn command_ended(
        &mut self,
        member: MemberId,
        purpose: Purpose,
        buf: Option<Buf>,
        failed: bool,
        out: &mut Outbox,
    ) {
        match purpose {
            Purpose::BatchWrite {
                stream,
                seq,
                column,
            } => {
                if !failed {
                    self.drives.members.list[member.index()].dirty = true;
                }
                self.batch_write_done(stream, seq, column, failed, out);
            }
            // (A shadow that failed is none any more: the member has the column.)
            Purpose::ShadowWrite { stream, seq, .. } => {
                self.drives.members.list[member.index()].dirty |= !failed;
                self.batch_column_ended(stream, seq, out);
            }
            Purpose::Fetch { fetch, column, row } => {
                self.fetch_read_done(fetch, column, row, member, buf.filter(|_| !failed), out)
            }
            Purpose::Verify {
                verification,
                column,
                first,
                rows,
            } => self.verify_read(
                verification,
                column,
                first..first + rows,
                buf.filter(|_| !failed),
                out,
            ),
            Purpose::Rebuild { column } => {
                self.drives.members.list[member.index()].dirty |= !failed;
                self.column_piece_written(column, failed, out);
            }
            Purpose::Flush => self.flush_done(member, failed, out),
            Purpose::JournalWrite => self.record_written(member, failed, out),
            Purpose::JournalFlush => self.records_flushed(out),
            Purpose::SuperblockWrite | Purpose::SuperblockFlush => self.superblock_step_done(out),
            Purpose::Label(step) => {
                self.label_step_done(member, step, buf.filter(|_| !failed), failed, out)
            }
            Purpose::Discard { segment } => self.space.segments.discard_done(segment),
            Purpose::Disowned { .. } => {}
        }
    }

    /// Takes a member out of service: it failed, or is taken out. Stops the pool if more are gone
    /// than the redundancy covers.
    pub(crate) fn latch_member(
        &mut self,
        member: MemberId,
        change: Change,
        error: String,
        out: &mut Outbox,
    ) {
        if !self.drives.members.list[member.index()].online {
            return;
        }
        self.drives.members.list[member.index()].online = false;
        self.drives.members.list[member.index()].rebuilding = false;
        let has_failed = matches!(change, Change::InjectedFault | Change::CutShort);
        let why = if has_failed {
            error.clone()
        } else {
            "taken out of service by the administrator".to_owned()
        };
        self.drives.members.list[member.index()].left =
            Some((why, self.observe.wall.unix_s(self.pool.now_ns)));
        self.drives.scheduler.cancel_held(member);
        self.drop_shadow_with(member, out);
        out.notices.push(if has_failed {
            Notice::MemberFailed { member, error }
        } else {
            Notice::MemberOffline { member }
        });
        match self.after_loss(member, out) {
            AfterLoss::Record => {}
            AfterLoss::Done => return,
            AfterLoss::Stop => return self.stop(StopReason::TooManyLost, out),
        }
        let changed = self.change_member(member, change);
        debug_assert_eq!(changed, Ok(()));
        if !redundancy_holds(&self.pool.zones, &self.drives.members.list) {
            return self.stop(StopReason::TooManyLost, out);
        }
        self.choose_journal();
        self.drives.members.unrecorded_loss = true;
        let ticket = self.durability.superblock_writer.request();
        self.drives.members.list[member.index()].lost_ticket = ticket;
        self.superblock_step(out);
    }

    /// Changes the record of a member as the table of states says; the next generation tells of it.
    /// What was sealed before the newest checkpoint began was durable on all members in use when
    /// its root was written.
    pub(crate) fn change_member(
        &mut self,
        member: MemberId,
        change: Change,
    ) -> Result<(), &'static str> {
        let newest = self.pool.superblock.checkpoints[0].map_or(0, |root| root.id);
        let generation = self.pool.superblock.generation.next();
        slot_state::change(
            &mut self.pool.superblock.members[member.index()],
            change,
            newest,
            generation,
        )
        .map(|_| ())
    }
}

/// True if every zone survives the members that are gone.
pub(crate) fn redundancy_holds(zones: &ZoneMap, members: &[Member]) -> bool {
    zones.zones().iter().all(|zone| {
        let lost = (0..members.len())
            .filter(|m| {
                zone.members >> m & 1 == 1 && (!members[*m].online || members[*m].rebuilding)
            })
            .count();
        lost <= zone.shape.tolerance()
    })
}

/// True if a pool of these zones and any others beside them does not start without these members (a
/// mask): more than the redundancy covers.
pub(crate) fn nobody_without(zones: &[Zone], members: u64) -> bool {
    zones
        .iter()
        .any(|zone| (zone.members & members).count_ones() as usize > zone.shape.tolerance())
}

/// Adds counters.
pub(crate) fn add(to: &mut WrittenBytes, from: &WrittenBytes) {
    to.user += from.user;
    to.header += from.header;
    to.parity += from.parity;
    to.moved += from.moved;
    to.padding += from.padding;
    to.index += from.index;
    to.journal += from.journal;
    to.checkpoint += from.checkpoint;
    to.superblock += from.superblock;
    to.repair += from.repair;
    to.rebuild += from.rebuild;
}

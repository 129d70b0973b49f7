//! Members: state, commands in flight, exact accounting.
//!
//! `store/member/slot_state.rs` is the table of states and events, and `store/member/writer.rs` is
//! the superblock writer. `store/member/send.rs` sends commands, `store/member/scheduler.rs` orders
//! them, and `store/member/hangs.rs` detects unresponsive members. `store/member/exchange.rs` and
//! `store/member/shadow.rs` keep the state of changes by the administrator; the steps of these are
//! in `upkeep/membership/`.
//!
//! **A failed write or flush takes the member out of service** at once: no further command is sent
//! to it. The loss is recorded in a new superblock generation on all other members. The next
//! acknowledgement that depends on the absence (a commit that lost a column, a flush) waits for
//! that. Failed reads are only counted; the reader reconstructs the data.

mod exchange;
mod hangs;
mod scheduler;
mod send;
mod shadow;
pub(crate) mod slot_state;
mod writer;

pub(crate) use exchange::{
    Changed, Exchanges, NOT_POWER_SAFE, is_power_safe, needed_bytes, refused, sector_bytes_max,
};
pub(crate) use send::{Schedule, UnderWay};
pub(crate) use shadow::{Shadow, Switch};
pub(crate) use writer::{SuperblockWriter, Ticket, superblock_image};

use crate::api::{MemberStats, Notice, WrittenBytes};
use crate::base::slab::Slab;
use crate::store::Store;
use crate::store::events::Outbox;
use crate::store::pool::StopReason;
use windrow_format::superblock::{SLOT_BYTES, Superblock};
use windrow_geometry::{Zone, ZoneMap};
use windrow_io::MemberOp;
use windrow_types::{BatchSeq, MemberId, SegmentId};

/// Step of the check of one label.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LabelStep {
    /// The label is read.
    Read,
    /// The read failed: it is repeated.
    ReadAgain,
    /// The label was wrong and is written.
    Write,
    /// The flush after the write.
    Flush,
}

/// Purpose of a member command.
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
    /// The same column for the shadow of the member.
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
        /// Number of the fetch.
        fetch: u32,
        /// Column that was read.
        column: u8,
        /// Row, if the rows are read one by one.
        row: Option<u8>,
    },
    /// Rows of one column of a batch that is verified.
    Verify {
        /// Number of the verification.
        verification: u32,
        /// Column.
        column: u8,
        /// First row within the batch.
        first: u32,
        /// Number of rows.
        rows: u32,
    },
    /// A column of a batch in rebuild, or a piece of it.
    Rebuild {
        /// Index among the columns in flight.
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
    /// A label step of a scrub.
    Label(LabelStep),
    /// A discard of one extent of a segment.
    Discard {
        /// Segment.
        segment: SegmentId,
    },
    /// Disowned: its member was taken out of service, and no request waits for it
    /// (docs/internals/members.md, "Unresponsive members").
    Disowned {
        /// True if it may still change the device.
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

    /// True if no request waits for it.
    pub(crate) fn is_disowned(&self) -> bool {
        matches!(self, Self::Disowned { .. })
    }
}

/// One member at run time.
#[derive(Debug, Default)]
pub struct Member {
    /// Takes part in all writes, and in reads of segments that are complete on it.
    pub online: bool,
    /// In rebuild: counts as lost meanwhile.
    pub rebuilding: bool,
    /// Number of times that a device has entered this slot since the start: the same one again, or
    /// another.
    pub came: u32,
    /// Has completed writes that no flush covers yet.
    pub dirty: bool,
    /// Commands that have not ended, held ones included.
    pub in_flight: u32,
    /// Of these, the disowned ones.
    pub disowned: u32,
    /// True if a command of it has had no answer for long, and that was reported.
    pub hangs: bool,
    /// Ticket of the superblock write that records its loss.
    pub lost_ticket: Ticket,
    /// Reason and time (seconds since 1970) at which it left service in this run.
    pub left: Option<(String, u64)>,
    /// Counters.
    pub stats: MemberStats,
}

/// All members.
#[derive(Debug)]
pub struct Members {
    /// Members by id.
    pub list: Vec<Member>,
    /// Commands in flight or held back.
    pub in_flight: Slab<UnderWay>,
    /// Time of the next check for unresponsive members.
    pub hang_look_ns: u64,
    /// True if the loss of a member is not recorded yet: commits and flushes wait.
    pub unrecorded_loss: bool,
    /// Bytes written to devices that have been replaced since.
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

impl Members {
    /// True if the member is in service, and not being rebuilt.
    pub(crate) fn is_whole(&self, member: MemberId) -> bool {
        self.list
            .get(member.index())
            .is_some_and(|m| m.online && !m.rebuilding)
    }

    /// Counts a failed command.
    pub(crate) fn note_error(&mut self, member: MemberId) {
        self.list[member.index()].stats.errors += 1;
    }

    /// A write has ended: what it wrote is not durable.
    pub(crate) fn note_written(&mut self, member: MemberId, failed: bool) {
        self.list[member.index()].dirty |= !failed;
    }
}

impl Store {
    /// Stops the pool for good: nothing is written any more. `Engine` refuses what waits.
    pub(crate) fn halt(&mut self, reason: StopReason, out: &mut Outbox) {
        if self.pool.stopped.is_some() {
            return;
        }
        if reason != StopReason::Shutdown {
            out.notices.push(Notice::Stopped {
                reason: self.stop_text(&reason),
            });
        }
        self.pool.stopped = Some(reason);
        self.drives.cancel_all_held();
    }

    /// Reason to stop, as text.
    pub(crate) fn stop_text(&self, reason: &StopReason) -> String {
        match reason {
            StopReason::TooManyLost => {
                let has_data = |at: &usize| {
                    self.pool
                        .zones
                        .zones()
                        .iter()
                        .any(|zone| zone.members >> at & 1 == 1)
                };
                let is_lost = |at: &usize| {
                    !self.drives.members.list[*at].online
                        || self.drives.members.list[*at].rebuilding
                };
                let lost: Vec<String> = (0..self.drives.members.list.len())
                    .filter(|at| has_data(at) && is_lost(at))
                    .map(|at| at.to_string())
                    .collect();
                format!(
                    "more members are lost than the redundancy covers (member {})",
                    lost.join(", ")
                )
            }
            StopReason::Internal(what) => format!("internal fault: {what}"),
            StopReason::Shutdown => "it was shut down".to_owned(),
        }
    }

    /// True if the member's part of the segment is present and valid.
    #[inline]
    pub(crate) fn holds(&self, member: MemberId, segment: SegmentId) -> bool {
        let m = &self.drives.members.list[member.index()];
        m.online && !(m.rebuilding && self.segments.get(segment).stale >> member.0 & 1 == 1)
    }
}

/// True if every zone survives the loss of the absent members.
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

/// True if a pool with these zones, and possibly others, does not start without these members (a
/// mask): more than the redundancy covers.
pub(crate) fn no_quorum_without(zones: &[Zone], members: u64) -> bool {
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

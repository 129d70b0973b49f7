//! The superblock writer: one generation at a time. It writes the slot `g mod 4` on every member in
//! use and flushes each. A component that needs something recorded calls `request` and gets a
//! ticket; the next generation that begins covers it.

use super::*;
use crate::store::Store;
use windrow_format::superblock::slot_offset;
use windrow_types::Lsn;

/// Number of a request to record the superblock. A generation that was begun after the request
/// covers it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Ticket(u64);

/// State of the superblock writer.
#[derive(Debug, Default)]
pub struct SuperblockWriter {
    /// The newest request.
    wanted: Ticket,
    /// Requests covered by the generation being written.
    writing: Ticket,
    /// Requests covered by generations that are durable.
    done: Ticket,
    /// Commands of the current step that have not ended.
    left: u32,
    /// True in the flush step.
    flushing: bool,
    /// True while a generation is being written.
    active: bool,
    /// Content hash of the last generation written: the parent of the next one.
    written_hash: u64,
}

impl SuperblockWriter {
    /// A writer that continues after this superblock.
    pub fn after(superblock: &Superblock) -> Self {
        Self {
            written_hash: superblock.content_hash(),
            ..Self::default()
        }
    }

    /// Asks for a generation with the superblock as it is when that begins.
    pub fn request(&mut self) -> Ticket {
        self.wanted = self.next_ticket();
        self.wanted
    }

    /// The ticket that the next request gets.
    pub fn next_ticket(&self) -> Ticket {
        Ticket(self.wanted.0 + 1)
    }

    /// True if a durable generation covers the request.
    pub fn has_recorded(&self, ticket: Ticket) -> bool {
        ticket <= self.done
    }

    /// True if durable generations cover all requests.
    pub fn has_recorded_all(&self) -> bool {
        self.done == self.wanted
    }

    /// True while a generation is being written.
    pub fn is_active(&self) -> bool {
        self.active
    }

    /// Begins the generation with this content.
    fn begin(&mut self, content_hash: u64) {
        self.written_hash = content_hash;
        self.writing = self.wanted;
        self.active = true;
        self.flushing = false;
    }

    /// A step begins: each of its commands ends once.
    fn begin_step(&mut self, commands: usize) {
        self.left = commands as u32;
    }

    /// All slots are written: the members are flushed.
    fn begin_flush(&mut self, commands: usize) {
        self.flushing = true;
        self.begin_step(commands);
    }

    /// One command of the step has ended.
    fn step_ended(&mut self) -> Step {
        assert!(
            self.left > 0,
            "a command of the superblock writer ended twice"
        );
        self.left -= 1;
        match (self.left, self.flushing) {
            (1.., _) => Step::Pending,
            (0, false) => Step::Flush,
            (0, true) => Step::Done,
        }
    }

    /// The generation is durable on all members in use.
    fn end(&mut self) {
        self.active = false;
        self.done = self.writing;
    }
}

/// What follows the end of a command of the superblock writer.
enum Step {
    /// Others of the same step have not ended.
    Pending,
    /// All slots are written: the members are flushed.
    Flush,
    /// All members are flushed.
    Done,
}

impl Store {
    /// Begins a generation if one is requested and none is being written. `durable`: LSN up to
    /// which everything is durable.
    pub(crate) fn superblock_step(&mut self, durable: Lsn, out: &mut Outbox) {
        let is_due = !self.drives.superblock_writer.is_active()
            && !self.drives.superblock_writer.has_recorded_all()
            && self.pool.stopped.is_none()
            && !self.pool.read_only;
        if !is_due {
            return;
        }
        if self.drives.exchanges.holds_superblocks() {
            return;
        }
        if self.pool.superblock.journals.areas().next().is_some() {
            self.pool.superblock.journals.durable_lsn = durable;
        }
        self.pool.superblock.parent_hash = self.drives.superblock_writer.written_hash;
        self.pool.superblock.generation = self.pool.superblock.generation.next();
        self.drives
            .superblock_writer
            .begin(self.pool.superblock.content_hash());
        let online: Vec<MemberId> = self.drives.members.online_members();
        self.drives.superblock_writer.begin_step(online.len());
        for member in online {
            let buf = superblock_image(&self.pool.superblock, member, &self.memory.buffers);
            let written = WrittenBytes {
                superblock: SLOT_BYTES as u64,
                ..Default::default()
            };
            self.send_write(
                member,
                slot_offset(self.pool.superblock.generation),
                buf,
                Purpose::SuperblockWrite,
                &written,
                out,
            );
        }
    }

    /// A write or flush of the superblock has ended. True if nothing of the generation is left to
    /// wait for.
    pub(crate) fn superblock_step_ended(&mut self, durable: Lsn, out: &mut Outbox) -> bool {
        let step = self.drives.superblock_writer.step_ended();
        if self.pool.stopped.is_some() {
            return false;
        }
        match step {
            Step::Pending => return false,
            Step::Flush => {
                let online = self.drives.members.online_members();
                self.drives.superblock_writer.begin_flush(online.len());
                for member in online {
                    self.send(member, MemberOp::Flush, Purpose::SuperblockFlush, out);
                }
                return false;
            }
            Step::Done => self.drives.superblock_writer.end(),
        }
        if self.drives.superblock_writer.has_recorded_all() {
            self.drives.members.unrecorded_loss = false;
        }
        self.superblock_step(durable, out);
        true
    }
}

/// Slot image for one member.
pub(crate) fn superblock_image(
    superblock: &Superblock,
    member: MemberId,
    buffers: &windrow_io::BufPool,
) -> windrow_io::Buf {
    let copy = Superblock {
        member,
        member_uuid: superblock.members[member.index()].uuid,
        ..superblock.clone()
    };
    let bytes = copy.encode();
    let mut buf = buffers.zeroed(SLOT_BYTES);
    buf[..bytes.len()].copy_from_slice(&bytes);
    buf
}

//! The superblock writer: one generation at a time. It writes the slot `g mod 4` on every member in
//! use and flushes each. A component that needs something recorded raises `wanted`; a generation
//! that begins later covers it.

use super::*;
use windrow_format::superblock::slot_offset;

/// State of the superblock writer.
#[derive(Debug, Default)]
pub struct SuperblockWriter {
    /// Number of requests.
    pub wanted: u64,
    /// Requests covered by the generation being written.
    writing: u64,
    /// Requests covered by durable generations.
    pub done: u64,
    /// Commands of the current step that have not ended.
    left: u32,
    /// True in the flush step.
    flushing: bool,
    /// True while a generation is being written.
    active: bool,
    /// Content hash of the last generation written: the parent of the next one.
    pub written_hash: u64,
}

impl SuperblockWriter {
    /// True while a generation is being written.
    pub fn is_active(&self) -> bool {
        self.active
    }

    /// A writer that continues after this superblock.
    pub fn after(superblock: &Superblock) -> Self {
        Self {
            written_hash: superblock.content_hash(),
            ..Self::default()
        }
    }
}

impl Engine {
    /// Begins a generation if one is requested and none is being written.
    pub(crate) fn superblock_step(&mut self, out: &mut Outbox) {
        if self.superblock_writer.active
            || self.superblock_writer.wanted == self.superblock_writer.done
            || self.stopped.is_some()
            || self.read_only
        {
            return;
        }
        if self.holds_superblocks() {
            return;
        }
        if self.superblock.journals.areas().next().is_some() {
            self.superblock.journals.durable_lsn = self.durable_lsn();
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
            let written = WrittenBytes {
                superblock: SLOT_BYTES as u64,
                ..Default::default()
            };
            self.send_write(
                member,
                slot_offset(self.superblock.generation),
                buf,
                Purpose::SuperblockWrite,
                &written,
                out,
            );
        }
    }

    pub(super) fn superblock_step_done(&mut self, out: &mut Outbox) {
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
}

/// Slot image for one member.
pub(crate) fn superblock_image(
    superblock: &Superblock,
    member: MemberId,
    buffers: &windrow_io::BufPool,
) -> Buf {
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

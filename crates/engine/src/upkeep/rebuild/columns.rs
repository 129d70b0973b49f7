//! Column writes to a rebuilding member: whole, or with foreground I/O in consecutive pieces, so
//! that a foreground read waits for at most one piece.

use crate::api::WrittenBytes;
use crate::base::limits::VERIFY_PIECE_ROWS;
use crate::path::Core;
use crate::store::events::Outbox;
use crate::store::member::Purpose;
use crate::upkeep::Upkeep;
use windrow_io::Buf;
use windrow_types::{BLOCK_SIZE, MemberId, SegmentId};

const PIECE_BYTES: usize = VERIFY_PIECE_ROWS as usize * BLOCK_SIZE;

/// A column being written.
#[derive(Debug)]
pub(super) struct ColumnWrite {
    segment: SegmentId,
    member: MemberId,
    offset: u64,
    /// Empty when the rest has been sent.
    column: Buf,
    bytes: usize,
    /// Number of bytes sent.
    gone: usize,
}

impl Upkeep {
    /// Writes a column; it counts as one unit of work until its last byte is written.
    pub(super) fn write_column(
        &mut self,
        segment: SegmentId,
        (member, offset): (MemberId, u64),
        column: Buf,
        core: &mut Core,
        out: &mut Outbox,
    ) {
        let bytes = column.len();
        self.integrity.rebuild.throttle.add(bytes as u64);
        let at = self.integrity.rebuild.columns.insert(ColumnWrite {
            segment,
            member,
            offset,
            column,
            bytes,
            gone: 0,
        });
        self.write_piece(at, core, out);
    }

    /// Writes the next piece of a column. False if there is none.
    fn write_piece(&mut self, at: u32, core: &mut Core, out: &mut Outbox) -> bool {
        let beside_users = core.store.observe.users.are_about(core.store.pool.now_ns);
        let Some(write) = self
            .integrity
            .rebuild
            .columns
            .get_mut(at)
            .filter(|write| write.gone < write.bytes)
        else {
            return false;
        };
        let (begin, left) = (write.gone, write.bytes - write.gone);
        let buf = if begin == 0 && (!beside_users || left <= PIECE_BYTES) {
            std::mem::replace(&mut write.column, core.store.memory.buffers.get(0))
        } else {
            let length = if beside_users {
                left.min(PIECE_BYTES)
            } else {
                left
            };
            let mut piece = core.store.memory.buffers.get(length);
            piece.copy_from_slice(&write.column[begin..begin + length]);
            piece
        };
        write.gone += buf.len();
        let (member, offset) = (write.member, write.offset + begin as u64);
        let written = WrittenBytes {
            rebuild: buf.len() as u64,
            ..Default::default()
        };
        core.store.send_write(
            member,
            offset,
            buf,
            Purpose::Rebuild { column: at },
            &written,
            out,
        );
        true
    }

    /// Handles a written piece of a column. If the write failed its member is not rebuilt any more.
    pub(crate) fn column_piece_written(
        &mut self,
        at: u32,
        failed: bool,
        core: &mut Core,
        out: &mut Outbox,
    ) {
        let Some(member) = self
            .integrity
            .rebuild
            .columns
            .get(at)
            .map(|write| write.member)
        else {
            return;
        };
        let goes_on = !failed
            && core.store.drives.members.is_online(member)
            && core.store.pool.stopped.is_none();
        if goes_on && self.write_piece(at, core, out) {
            return;
        }
        let Some(write) = self.integrity.rebuild.columns.remove(at) else {
            return;
        };
        self.integrity
            .rebuild
            .throttle
            .end(core.store.pool.now_ns, write.bytes as u64);
        if let Some(current) = self
            .integrity
            .rebuild
            .current
            .iter_mut()
            .find(|current| current.segment == write.segment)
        {
            current.writes -= 1;
        }
    }
}

//! Label check. A device with a damaged label is unknown to every later start, although the pool
//! uses it. Nothing else reads labels while a pool is open.
//!
//! At the end of a pass the label of each member in service, and of each spare, is read:
//!
//! 1. A label that does not verify, or names another pool or device, is rewritten and flushed; it
//!    counts as a wrong block, and is reported.
//! 2. A correct label is never written: an interrupted write may destroy it, and there is no other
//!    copy. So an unreadable label is re-read once. (Its name is that of the creation, its slot a
//!    hint: both may differ.)
//! 3. A spare has no other content, and gets no other command before it is needed. One that fails
//!    the write of its label is reported as well.
//! 4. A spare with the label of another pool is reported. It has no data of this pool, and another
//!    host with access to the drive uses it.

use crate::api::{Notice, WrittenBytes};
use crate::path::Core;
use crate::store::events::Outbox;
use crate::store::member::{LabelStep, Purpose};
use crate::upkeep::Upkeep;
use crate::upkeep::scrub::Scrub;
use windrow_format::superblock::{FORMAT_VERSION, LABEL_BYTES, LABEL_OFFSET, Label};
use windrow_io::{Buf, MemberOp};
use windrow_types::MemberId;

/// Progress of a pass with the labels. (A restart begins again.)
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Labels {
    #[default]
    Unread,
    /// Number of members being checked.
    UnderWay(u32),
    Done,
}

impl Labels {
    /// True if its commands are pending.
    pub(super) fn is_under_way(self) -> bool {
        matches!(self, Self::UnderWay(_))
    }

    /// Ends the check of a member.
    fn end_one(&mut self) {
        if let Self::UnderWay(left) = self {
            *left -= 1;
            *self = if *left == 0 { Self::Done } else { *self };
        }
    }
}

impl Scrub {
    /// The scrub no longer waits for the label of a member.
    pub(crate) fn label_given_up(&mut self) {
        self.labels.end_one();
    }
}

impl Upkeep {
    /// True when the labels of all members in service were checked in this pass.
    pub(super) fn labels_are_done(&mut self, core: &mut Core, out: &mut Outbox) -> bool {
        if self.integrity.scrub.labels == Labels::Unread {
            let members: Vec<MemberId> = (0..core.store.drives.members.list.len() as u8)
                .map(MemberId)
                .filter(|member| self.has_label(*member, core))
                .collect();
            self.integrity.scrub.labels = Labels::UnderWay(members.len() as u32);
            members
                .into_iter()
                .for_each(|member| self.read_label(member, LabelStep::Read, core, out));
        }
        self.integrity.scrub.labels == Labels::Done
    }

    /// True for a member in service, or a spare that was not disowned. (A spare that is becoming a
    /// copy of a member is excluded: its label is another one meanwhile.)
    fn has_label(&self, member: MemberId, core: &Core) -> bool {
        let is_emptied = core.store.pool.replaced_by(member).is_some();
        core.store.drives.members.is_online(member)
            || (core.store.pool.is_spare(member)
                && core.store.drives.members.list[member.index()].disowned == 0
                && !is_emptied)
    }

    fn read_label(&mut self, member: MemberId, step: LabelStep, core: &mut Core, out: &mut Outbox) {
        let buf = core.store.memory.buffers.get(LABEL_BYTES);
        core.store.send(
            member,
            MemberOp::Read {
                offset: LABEL_OFFSET,
                buf,
            },
            Purpose::Label(step),
            out,
        );
    }

    /// Handles a completed label command. No bytes: it failed, or was no read.
    pub(crate) fn label_step_done(
        &mut self,
        member: MemberId,
        step: LabelStep,
        buf: Option<Buf>,
        failed: bool,
        core: &mut Core,
        out: &mut Outbox,
    ) {
        // A member that left service is unknown, and must not be written.
        let is_there = self.has_label(member, core) && core.store.pool.stopped.is_none();
        match step {
            LabelStep::Read if is_there && failed => {
                self.read_label(member, LabelStep::ReadAgain, core, out)
            }
            LabelStep::Read | LabelStep::ReadAgain
                if is_there && !core.store.pool.is_label_of(member, buf.as_deref()) =>
            {
                if core.store.pool.is_spare(member)
                    && core.store.pool.is_of_another_pool(buf.as_deref())
                {
                    out.notices.push(Notice::SpareFailed { member });
                    self.integrity.scrub.labels.end_one();
                } else {
                    self.write_label(member, core, out);
                }
            }
            LabelStep::Write if is_there && !failed => core.store.send(
                member,
                MemberOp::Flush,
                Purpose::Label(LabelStep::Flush),
                out,
            ),
            LabelStep::Flush if is_there && !failed => {
                self.integrity.scrub.sums.wrong_blocks += 1;
                out.notices.push(Notice::LabelWritten { member });
                self.integrity.scrub.labels.end_one();
            }
            LabelStep::Read | LabelStep::ReadAgain | LabelStep::Write | LabelStep::Flush => {
                if failed && is_there && core.store.pool.is_spare(member) {
                    out.notices.push(Notice::SpareFailed { member });
                }
                self.integrity.scrub.labels.end_one();
            }
        }
    }

    fn write_label(&mut self, member: MemberId, core: &mut Core, out: &mut Outbox) {
        let (pool, pool_name) = (
            core.store.pool.superblock.pool,
            core.store.pool.superblock.pool_name.clone(),
        );
        let member_uuid = core.store.pool.superblock.members[member.index()].uuid;
        let bytes = Label {
            version: FORMAT_VERSION,
            pool,
            pool_name,
            member_uuid,
            member,
        }
        .encode();
        let mut buf = core.store.memory.buffers.get(LABEL_BYTES);
        buf.copy_from_slice(&bytes);
        let written = WrittenBytes {
            superblock: LABEL_BYTES as u64,
            ..WrittenBytes::default()
        };
        core.store.send_write(
            member,
            LABEL_OFFSET,
            buf,
            Purpose::Label(LabelStep::Write),
            &written,
            out,
        );
    }
}

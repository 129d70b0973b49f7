//! Labels: a device whose label is damaged is unknown to every later start, though the pool uses
//! it, and nothing else reads labels while a pool is open.
//!
//! At the end of a pass the label of each member in service, and of each spare, is read. One that
//! does not verify, or names another pool or device, is written again and flushed; it counts as a
//! wrong block, and is told. One that is right is never written: a write that is cut off may
//! destroy it, and there is no other copy. So one that can not be read is read once more. (Its name
//! is that of the creation, its slot a hint: they may differ.) A spare has nothing else, and no
//! other command goes to it before it is needed: one that does not take its label is told, too. So
//! is one that bears the label of another pool: nothing of this pool is on it, and somebody who
//! reaches the drive, too, has put it to use.

use crate::member::Purpose;
use crate::scrub::Scrub;
use crate::{Engine, Notice, Outbox, WrittenBytes};
use windrow_format::superblock::{FORMAT_VERSION, LABEL_BYTES, LABEL_OFFSET, Label, MemberState};
use windrow_io::{Buf, MemberOp};
use windrow_types::MemberId;

/// How far a pass has come with them. (A restart begins anew.)
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Labels {
    #[default]
    Unread,
    /// So many members are being looked at.
    UnderWay(u32),
    Done,
}

impl Labels {
    /// True if commands of it are under way.
    pub(super) fn is_under_way(self) -> bool {
        matches!(self, Self::UnderWay(_))
    }

    /// A member has been looked at.
    fn end_one(&mut self) {
        if let Self::UnderWay(left) = self {
            *left -= 1;
            *self = if *left == 0 { Self::Done } else { *self };
        }
    }
}

/// What is done with the label of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LabelStep {
    /// It is read.
    Read,
    /// That failed: once more.
    ReadAgain,
    /// It was wrong, and is written.
    Write,
    /// The flush after that.
    Flush,
}

impl Scrub {
    /// Nobody waits for the label of a member any more.
    pub(crate) fn label_given_up(&mut self) {
        self.labels.end_one();
    }
}

impl Engine {
    /// True when the labels of all members in service have been looked at in this pass.
    pub(super) fn labels_are_done(&mut self, out: &mut Outbox) -> bool {
        if self.integrity.scrub.labels == Labels::Unread {
            let members: Vec<MemberId> = (0..self.drives.members.list.len() as u8)
                .map(MemberId)
                .filter(|member| self.has_label(*member))
                .collect();
            self.integrity.scrub.labels = Labels::UnderWay(members.len() as u32);
            members
                .into_iter()
                .for_each(|member| self.read_label(member, LabelStep::Read, out));
        }
        self.integrity.scrub.labels == Labels::Done
    }

    /// In service, or a spare that has not been given up. (One that is to replace a member and is
    /// no copy of it yet is emptied: its label is another one meanwhile.)
    fn has_label(&self, member: MemberId) -> bool {
        let is_emptied = self.replaced_by(member).is_some();
        self.drives.members.is_online(member)
            || (self.is_spare(member)
                && self.drives.members.list[member.index()].disowned == 0
                && !is_emptied)
    }

    fn is_spare(&self, member: MemberId) -> bool {
        self.pool.superblock.members[member.index()].state == MemberState::Spare
    }

    fn read_label(&mut self, member: MemberId, step: LabelStep, out: &mut Outbox) {
        let buf = self.memory.buffers.get(LABEL_BYTES);
        self.send(
            member,
            MemberOp::Read {
                offset: LABEL_OFFSET,
                buf,
            },
            Purpose::Label(step),
            out,
        );
    }

    /// A command for a label has ended. No bytes: it failed, or was no read.
    pub(crate) fn label_step_done(
        &mut self,
        member: MemberId,
        step: LabelStep,
        buf: Option<Buf>,
        failed: bool,
        out: &mut Outbox,
    ) {
        // (Of a member that is not in service any more nothing is known, and it is not to be
        // written.)
        let is_there = self.has_label(member) && self.pool.stopped.is_none();
        match step {
            LabelStep::Read if is_there && failed => {
                self.read_label(member, LabelStep::ReadAgain, out)
            }
            LabelStep::Read | LabelStep::ReadAgain
                if is_there && !self.is_label_of(member, buf.as_deref()) =>
            {
                if self.is_spare(member) && self.is_of_another_pool(buf.as_deref()) {
                    out.notices.push(Notice::SpareFailed { member });
                    self.integrity.scrub.labels.end_one();
                } else {
                    self.write_label(member, out);
                }
            }
            LabelStep::Write if is_there && !failed => self.send(
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
                if failed && is_there && self.is_spare(member) {
                    out.notices.push(Notice::SpareFailed { member });
                }
                self.integrity.scrub.labels.end_one();
            }
        }
    }

    fn is_label_of(&self, member: MemberId, bytes: Option<&[u8]>) -> bool {
        let label = bytes.and_then(|bytes| Label::decode(bytes).ok());
        label.is_some_and(|label| {
            (label.pool, label.member_uuid)
                == (
                    self.pool.superblock.pool,
                    self.pool.superblock.members[member.index()].uuid,
                )
        })
    }

    fn is_of_another_pool(&self, bytes: Option<&[u8]>) -> bool {
        bytes
            .and_then(|bytes| Label::decode(bytes).ok())
            .is_some_and(|label| label.pool != self.pool.superblock.pool)
    }

    fn write_label(&mut self, member: MemberId, out: &mut Outbox) {
        let (pool, pool_name) = (
            self.pool.superblock.pool,
            self.pool.superblock.pool_name.clone(),
        );
        let member_uuid = self.pool.superblock.members[member.index()].uuid;
        let bytes = Label {
            version: FORMAT_VERSION,
            pool,
            pool_name,
            member_uuid,
            member,
        }
        .encode();
        let mut buf = self.memory.buffers.get(LABEL_BYTES);
        buf.copy_from_slice(&bytes);
        let written = WrittenBytes {
            superblock: LABEL_BYTES as u64,
            ..WrittenBytes::default()
        };
        self.send_write(
            member,
            LABEL_OFFSET,
            buf,
            Purpose::Label(LabelStep::Write),
            &written,
            out,
        );
    }
}

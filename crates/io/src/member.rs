//! What the engine asks of its members.
//!
//! Two ways: [`MemberCommand`]/[`MemberDone`] values in service, and the synchronous [`MemberIo`]
//! while a pool is created, opened or checked, when there are no clients and simple sequential code
//! is worth more than overlap.

use crate::Buf;
use windrow_types::MemberId;

/// Chosen by the engine, given back with the result.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct IoTag(pub u64);

/// One operation on one member. Offsets and lengths are multiples of 4096.
#[derive(Debug)]
pub struct MemberCommand {
    /// Which member.
    pub member: MemberId,
    /// Given back.
    pub tag: IoTag,
    /// What to do.
    pub op: MemberOp,
}

/// The operation. Buffers are owned by the command until it is done.
#[derive(Debug)]
pub enum MemberOp {
    /// Fill the buffer from `offset`.
    Read {
        /// Byte offset on the member.
        offset: u64,
        /// Its length says how much.
        buf: Buf,
    },
    /// Write the whole buffer at `offset`.
    Write {
        /// Byte offset on the member.
        offset: u64,
        /// The bytes.
        buf: Buf,
    },
    /// Make all completed writes durable.
    Flush,
    /// Tell the device that a range is not needed.
    Discard {
        /// Byte offset on the member.
        offset: u64,
        /// Bytes.
        length: u64,
    },
}

/// The end of a [`MemberCommand`].
#[derive(Debug)]
pub struct MemberDone {
    /// Which member.
    pub member: MemberId,
    /// The command's tag.
    pub tag: IoTag,
    /// The command's buffer, if it had one (contents undefined after a failed read).
    pub buf: Option<Buf>,
    /// Success or the fault.
    pub result: Result<(), MemberError>,
}

/// Kinds of faults of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemberErrorKind {
    /// The member is gone, or latched after an earlier fault.
    Gone,
    /// A medium error: this range cannot be read or written.
    Media,
    /// Anything else the system reported.
    Other,
    /// Power was cut (simulated members only): stop at once.
    PowerCut,
}

/// Code of an operation beyond the end of a member, as in `errno.h`.
const ERANGE: i32 = 34;

impl MemberErrorKind {
    /// What is said of it. A fault that is of no kind of its own is called what the system calls
    /// the error number `code`, such as "No space left on device".
    pub fn name(self, code: i32) -> String {
        if self != Self::Other || code == 0 {
            return format!("{self:?} error");
        }
        // What only this program says: nothing of the kind has come from the system.
        if code == ERANGE {
            return "the end of the device or file is reached".to_owned();
        }
        let said = std::io::Error::from_raw_os_error(code).to_string();
        said.split(" (os error")
            .next()
            .unwrap_or_default()
            .to_owned()
    }
}

/// A fault of a member. Small, so that it travels by value; the system's own message goes to the
/// event log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("member {member}: {} at byte {offset} (system error {code})", kind.name(*code))]
pub struct MemberError {
    /// Which member.
    pub member: MemberId,
    /// What kind.
    pub kind: MemberErrorKind,
    /// Byte offset of the operation.
    pub offset: u64,
    /// The system's error number, 0 if none.
    pub code: i32,
}

/// One read of [`MemberIo::read_many`].
#[derive(Debug)]
pub struct ReadItem {
    /// Which member.
    pub member: MemberId,
    /// Byte offset.
    pub offset: u64,
    /// Filled on success.
    pub buf: Buf,
    /// Set by `read_many`.
    pub result: Result<(), MemberError>,
}

/// Synchronous access to members, for creation, recovery and checks.
pub trait MemberIo {
    /// Number of slots in the member table; ids are `0..count`.
    fn member_count(&self) -> usize;
    /// False if the member is missing or latched.
    fn is_present(&self, member: MemberId) -> bool;
    /// Usable size in bytes, 0 if not present.
    fn size(&self, member: MemberId) -> u64;
    /// Its logical sector in bytes, 512 or 4096: offsets and lengths are multiples of it.
    fn sector_bytes(&self, _member: MemberId) -> u32 {
        512
    }
    /// Fills `buf` from `offset`.
    fn read(&mut self, member: MemberId, offset: u64, buf: &mut [u8]) -> Result<(), MemberError>;
    /// Reads many ranges, overlapping them where the back end can.
    fn read_many(&mut self, items: &mut [ReadItem]) {
        for item in items {
            item.result = self.read(item.member, item.offset, &mut item.buf);
        }
    }
    /// Writes `buf` at `offset`; not durable before [`MemberIo::flush`].
    fn write(&mut self, member: MemberId, offset: u64, buf: &[u8]) -> Result<(), MemberError>;
    /// Makes completed writes durable.
    fn flush(&mut self, member: MemberId) -> Result<(), MemberError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A member file on a full file system once was an "Other error", which tells nobody what to
    /// do.
    #[test]
    fn a_full_file_system_is_called_so() {
        let error = |kind, code| {
            MemberError {
                member: MemberId(2),
                kind,
                offset: 4096,
                code,
            }
            .to_string()
        };
        assert_eq!(
            error(MemberErrorKind::Other, 28),
            "member 2: No space left on device at byte 4096 (system error 28)"
        );
        assert_eq!(
            error(MemberErrorKind::Media, 5),
            "member 2: Media error at byte 4096 (system error 5)"
        );
        assert_eq!(
            error(MemberErrorKind::Other, 0),
            "member 2: Other error at byte 4096 (system error 0)"
        );
    }
}

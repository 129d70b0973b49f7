//! Interface between the engine and its members.
//!
//! There are two: [`MemberCommand`]/[`MemberDone`] values in service, and the synchronous
//! [`MemberIo`] while a pool is created, opened or checked. No clients are connected then, and
//! simple sequential code is worth more than overlap.

use crate::Buf;
use windrow_types::MemberId;

/// Tag chosen by the engine and returned with the result.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct IoTag(pub u64);

/// One operation on one member. Offsets and lengths are multiples of 4096.
#[derive(Debug)]
pub struct MemberCommand {
    /// Member addressed.
    pub member: MemberId,
    /// Tag returned with the result.
    pub tag: IoTag,
    /// The operation.
    pub op: MemberOp,
}

/// The operation. Buffers are owned by the command until it is done.
#[derive(Debug)]
pub enum MemberOp {
    /// Fill the buffer from `offset`.
    Read {
        /// Byte offset on the member.
        offset: u64,
        /// Destination; its length is the length of the read.
        buf: Buf,
    },
    /// Write the whole buffer at `offset`.
    Write {
        /// Byte offset on the member.
        offset: u64,
        /// Bytes to write.
        buf: Buf,
    },
    /// Make all completed writes durable.
    Flush,
    /// Tells the device that a range is unused.
    Discard {
        /// Byte offset on the member.
        offset: u64,
        /// Length in bytes.
        length: u64,
    },
}

/// Completion of a [`MemberCommand`].
#[derive(Debug)]
pub struct MemberDone {
    /// Member addressed.
    pub member: MemberId,
    /// The command's tag.
    pub tag: IoTag,
    /// The command's buffer, if it had one (contents undefined after a failed read).
    pub buf: Option<Buf>,
    /// Success or the fault.
    pub result: Result<(), MemberError>,
}

/// Kind of a member fault.
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
    /// Name of the fault for messages. A fault of no specific kind has the system's name of the
    /// error number `code`, such as "No space left on device".
    pub fn name(self, code: i32) -> String {
        if self != Self::Other || code == 0 {
            return format!("{self:?} error");
        }
        // The engine sets this code itself; the system returned no such error.
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

/// A fault of a member. Small, so that it travels by value; the system's own message is in the
/// event log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("member {member}: {} at byte {offset} (system error {code})", kind.name(*code))]
pub struct MemberError {
    /// Member with the fault.
    pub member: MemberId,
    /// Kind of the fault.
    pub kind: MemberErrorKind,
    /// Byte offset of the operation.
    pub offset: u64,
    /// The system's error number, 0 if none.
    pub code: i32,
}

/// One read of [`MemberIo::read_many`].
#[derive(Debug)]
pub struct ReadItem {
    /// Member to read.
    pub member: MemberId,
    /// Byte offset.
    pub offset: u64,
    /// Destination, filled on success.
    pub buf: Buf,
    /// Result, set by `read_many`.
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
    /// Logical sector of the member in bytes, 512 or 4096: offsets and lengths are multiples of it.
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

    /// A full file system under a member file must be named: "Other error" gives the administrator
    /// no next step.
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

//! Errors of members, of opening and creating them.

use rustix::io::Errno;
use std::io;
use std::path::PathBuf;
use windrow_io::{MemberError, MemberErrorKind};
use windrow_types::MemberId;

/// A fault of one operation on one member. The member does not know its own id; [`DeviceError::of`]
/// adds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{} at byte {offset} (system error {code})", kind.name(*code))]
pub struct DeviceError {
    /// Kind of fault.
    pub kind: MemberErrorKind,
    /// Byte offset of the operation, 0 for a flush.
    pub offset: u64,
    /// The system's error number, 0 if none.
    pub code: i32,
}

impl DeviceError {
    /// From a system error number.
    ///
    /// The kernel's block layer distinguishes a broken medium (`ENODATA`, `EIO`, `EREMOTEIO`,
    /// `EILSEQ`, `EBADMSG`) from a device that went away (`ENODEV`, `ENXIO`, `ESHUTDOWN`,
    /// `ENOLINK`, `ENOMEDIUM`); everything else is `Other`.
    pub fn from_code(code: i32, offset: u64) -> Self {
        let kind = match code {
            libc::EIO | libc::ENODATA | libc::EREMOTEIO | libc::EILSEQ | libc::EBADMSG => {
                MemberErrorKind::Media
            }
            libc::ENODEV | libc::ENXIO | libc::ESHUTDOWN | libc::ENOLINK | libc::ENOMEDIUM => {
                MemberErrorKind::Gone
            }
            _ => MemberErrorKind::Other,
        };
        Self { kind, offset, code }
    }

    /// Offset or length is not a multiple of the logical sector.
    pub fn misaligned(offset: u64) -> Self {
        Self {
            kind: MemberErrorKind::Other,
            offset,
            code: libc::EINVAL,
        }
    }

    /// Past the end of the member.
    pub fn out_of_range(offset: u64) -> Self {
        Self {
            kind: MemberErrorKind::Other,
            offset,
            code: libc::ERANGE,
        }
    }

    /// The member was opened read-only.
    pub fn read_only(offset: u64) -> Self {
        Self {
            kind: MemberErrorKind::Other,
            offset,
            code: libc::EROFS,
        }
    }

    /// The member is gone or latched.
    pub fn gone(offset: u64) -> Self {
        Self {
            kind: MemberErrorKind::Gone,
            offset,
            code: libc::ENODEV,
        }
    }

    pub(crate) fn from_errno(errno: Errno, offset: u64) -> Self {
        Self::from_code(errno.raw_os_error(), offset)
    }

    /// The same fault with the member named.
    pub fn of(self, member: MemberId) -> MemberError {
        MemberError {
            member,
            kind: self.kind,
            offset: self.offset,
            code: self.code,
        }
    }
}

/// Reason that a member could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A system call failed.
    #[error("cannot {action} {path}: {source}")]
    System {
        /// Attempted action.
        action: &'static str,
        /// The member.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// Another process, a mount or a volume manager holds it.
    #[error("{path} is in use by another process, mount or device")]
    InUse {
        /// The member.
        path: PathBuf,
    },
    /// Neither a regular file nor a block device.
    #[error("{path} is neither a regular file nor a block device")]
    WrongType {
        /// The member.
        path: PathBuf,
    },
    /// The file size limit of the process is below its size.
    #[error("{path} has {bytes} bytes, and the limit on the size of files (ulimit -f) is {limit}")]
    FileLimit {
        /// The member.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// O_DIRECT was required and is not possible.
    #[error("{path} cannot be used without the page cache: {reason}")]
    NoDirectIo {
        /// The member.
        path: PathBuf,
        /// Reason.
        reason: String,
    },
    /// The device writes in units larger than a block, so that no block would be atomic.
    #[error("{path} has sectors of {bytes} bytes; at most 4096 are supported")]
    SectorTooLarge {
        /// The member.
        path: PathBuf,
        /// Its logical sector.
        bytes: u32,
    },
}

/// Reason that a member file could not be created. No file remains.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The size is zero or not a multiple of 4096.
    #[error("the size of {path} must be a multiple of 4096 bytes and not zero")]
    Size {
        /// The file.
        path: PathBuf,
    },
    /// The file exists already.
    #[error("{path} exists already")]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The file system does not have enough space.
    #[error("no room for {bytes} bytes in {path}")]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// Requested bytes.
        bytes: u64,
    },
    /// The file system, or the process's file size limit, does not allow a file of this size.
    #[error(
        "{path} cannot be {bytes} bytes large: the file system or the limit on the size of files (ulimit -f) does not let it"
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Requested bytes.
        bytes: u64,
    },
    /// A system call failed.
    #[error("cannot {action} {path}: {source}")]
    System {
        /// Attempted action.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

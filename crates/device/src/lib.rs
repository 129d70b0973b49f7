//! Member devices: files, block devices, RAM, and back ends that count, forget or fail on purpose.
//! Linux only.
//!
//! Two layers:
//!
//! 1. [`Member`] is one drive, used synchronously from any thread. [`FileMember`] is the production
//!    one (regular file or block device); [`RamMember`] is memory for benchmarks, [`PacedMember`] a
//!    slower drive; [`CountingMember`], [`VolatileMember`] and [`FaultyMember`] wrap another member
//!    for tests.
//! 2. A [`queue`] carries [`windrow_io::MemberCommand`]s to many members and brings
//!    [`windrow_io::MemberDone`]s back: through io_uring, a pool of blocking threads, or
//!    synchronously in the caller. [`SyncMembers`] is the synchronous counterpart
//!    ([`windrow_io::MemberIo`]) for creation, recovery and checks.
//!
//! Also: [`create_file`], [`probe`](probe::probe) (contents and users of a device),
//! [`scan`](scan::scan) (search for members) and [`host`] (host identity, locked memory).
//!
//! This crate does not know the on-disk format: callers that search for labels pass the decoder.

mod counting;
pub mod disk;
mod error;
mod faulty;
mod file;
pub mod host;
mod member;
mod paced;
pub mod place;
pub mod probe;
pub mod queue;
mod ram;
mod random;
pub mod scan;
mod sync_members;
mod sysfs;
#[cfg(test)]
mod testing;
mod volatile;

pub use counting::{CountingMember, Counts};
pub use error::{CreateError, DeviceError, OpenError};
pub use faulty::{Fault, FaultId, FaultKind, FaultyMember};
pub use file::create::{Allocation, create_file, create_file_with_progress};
pub use file::{Access, DirectMode, DiscardPolicy, FileMember, LockMode, OpenOptions};
pub use member::{DirectIo, Discard, Member, MemberInfo, MemberKind};
pub use paced::{Pace, PacedMember};
pub use ram::{RamAllocation, RamMember};
pub use sync_members::SyncMembers;
pub use volatile::{VolatileMember, VolatileOptions};

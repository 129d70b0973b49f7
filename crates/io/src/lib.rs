//! Aligned buffers and the values that travel between front-ends, engine and members.
//!
//! A request goes down as [`Request`] and comes back as [`Completion`]. The engine sends
//! [`MemberCommand`] to its members and receives [`MemberDone`]. The holder of a value owns its
//! buffers: there is no borrowing across threads.

mod buffer;
mod member;
mod region;
mod request;
mod slabs;

pub use buffer::{Buf, BufPool, CONSTANT_BYTES, Payload};
pub use member::{
    IoTag, MemberCommand, MemberDone, MemberError, MemberErrorKind, MemberIo, MemberOp, ReadItem,
};
pub use region::Table;
pub use request::{Completion, Extent, ExtentState, Op, Reply, Request, RequestError, RequestId};

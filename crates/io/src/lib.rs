//! Aligned buffers and the values that travel between front-ends, engine and members.
//!
//! Requests go down as [`Request`], come back as [`Completion`]; the engine asks its members by
//! [`MemberCommand`] and hears of them by [`MemberDone`]. Buffers are owned by whoever holds the
//! value: there is no borrowing across threads.

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

//! NBD server: fixed newstyle negotiation and transmission over unix sockets and TCP.
//!
//! ```text
//! socket -> intake -> protocol::RequestParser -> group of requests -> Session::submit -+-> ready ------+
//!                                                                                       +-> Sink (any thread) -> Link -> ReplyQueue -> socket
//! ```
//!
//! [`protocol`] is pure and total: bytes in, actions out. Each connection has one thread
//! (`connection`), which reads, parses and submits in groups. Its shared part (`link`) sends
//! completions from any thread. Every queue is bounded by [`ServerOptions`], and the memory of all
//! of them together by one budget (`budget`). A client that misbehaves loses its connection and
//! nothing else.

#![forbid(unsafe_code)]

mod budget;
mod connection;
mod intake;
mod ledger;
mod link;
mod listen;
mod options;
pub mod protocol;
mod server;
mod socket;

pub use budget::Peer;
pub use connection::Ending;
pub use listen::Listen;
pub use options::ServerOptions;
pub use server::{
    ConnectionInfo, Event, Limit, Observer, PeerUsage, Server, ServerUsage, ShutdownReport, Watch,
};

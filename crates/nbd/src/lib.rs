//! NBD server: fixed newstyle negotiation and transmission over unix sockets and TCP.
//!
//! ```text
//! socket -> intake -> protocol::RequestParser -> group of requests -> Session::submit -+-> ready ------+
//!                                                                                       +-> Sink (any thread) -> Link -> ReplyQueue -> socket
//! ```
//!
//! [`protocol`] is pure and total: it sees bytes and gives actions. Around it, each connection has
//! one thread (`connection`), which reads, parses and submits in groups, and one shared part
//! (`link`), through which completions leave from whatever thread they come. Every queue is bounded
//! by [`ServerOptions`], and the memory of all of them together by one budget (`budget`); a client
//! that misbehaves loses its connection and nothing else.

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

use super::*;
use crate::budget::{Budget, MEMORY_BYTES_MIN, Peer};
use crate::protocol::Command;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::time::Duration;
use windrow_io::Payload;

/// A send that fails for lack of memory must end the connection: its replies are discarded, and the
/// client would wait for ever.
#[test]
fn a_send_that_fails_ends_the_connection() {
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    // A message that is too long for this kind of socket fails while the peer is there.
    rustix::net::sockopt::set_socket_send_buffer_size(&ours, 4096).unwrap();
    rustix::net::sockopt::set_socket_timeout(
        &theirs,
        rustix::net::sockopt::Timeout::Recv,
        Some(Duration::from_secs(10)),
    )
    .unwrap();
    let link = Link::new(
        Socket::new(ours),
        Bounds {
            requests: 1,
            bytes: 1 << 20,
        },
        |bell| Account::new(Budget::new(MEMORY_BYTES_MIN), 1, Peer::Unknown, bell),
    )
    .unwrap();
    let question = Question {
        cookie: 1,
        command: Command::Read,
        offset: 0,
        length: 1 << 20,
    };
    link.encode_and_send(&mut vec![Answer {
        question,
        result: Ok(Reply::Data(vec![Payload::zeroes()])),
    }]);
    assert!(link.is_broken());
    let end = rustix::net::recv(&theirs, &mut [0u8; 1], rustix::net::RecvFlags::empty());
    assert_eq!(
        end.map(|(length, _)| length),
        Ok(0),
        "the client hears of the end"
    );
}

//! Sessions that work on the connection's thread.

use crate::support::{Fixture, eventually};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use windrow_frontend::{ExportInfo, ExportSource, Session, Sink};
use windrow_io::{Buf, BufPool, Completion, Op, Reply, Request, RequestError};
use windrow_nbd::{Listen, Server, ServerOptions};
use windrow_types::VolumeId;

const PIECE: u32 = 1 << 20;

struct Source(BufPool);

impl ExportSource for Source {
    fn list(&self) -> Vec<ExportInfo> {
        vec![info()]
    }

    fn open(&self, _: &str, _: Arc<dyn Sink>) -> Result<Box<dyn Session>, RequestError> {
        let (lane, silent) = std::io::pipe().expect("a pipe");
        Ok(Box::new(Late {
            first: Mutex::default(),
            lane: lane.into(),
            _silent: silent.into(),
        }))
    }

    fn buffers(&self) -> &BufPool {
        &self.0
    }
}

fn info() -> ExportInfo {
    ExportInfo {
        name: String::new(),
        description: String::new(),
        volume: VolumeId(1),
        size_bytes: 64 << 20,
        read_only: false,
        min_block: 1,
        preferred_block: 4096,
        max_block: 32 << 20,
    }
}

/// The first request takes until the next look; all others are answered at once.
struct Late {
    first: Mutex<(bool, Vec<Completion>)>,
    lane: OwnedFd,
    _silent: OwnedFd,
}

impl Session for Late {
    fn submit(&self, requests: &mut Vec<Request>, ready: &mut Vec<Completion>) {
        for request in requests.drain(..) {
            let Op::Read { length, .. } = request.op else {
                panic!("only reads")
            };
            let mut data = Buf::unpooled(length as usize);
            data.fill(7);
            let completion = Completion {
                id: request.id,
                result: Ok(Reply::Data(vec![data.freeze()])),
                lsns: None,
            };
            let mut first = self.first.lock().expect("a lock");
            if std::mem::replace(&mut first.0, true) {
                ready.push(completion)
            } else {
                first.1.push(completion)
            }
        }
    }

    fn info(&self) -> ExportInfo {
        info()
    }

    fn attend(&self) -> Option<BorrowedFd<'_>> {
        Some(self.lane.as_fd())
    }

    fn progress(&self, ready: &mut Vec<Completion>) -> bool {
        ready.append(&mut self.first.lock().expect("a lock").1);
        false
    }
}

/// When the first pieces of a large read are sent, the last ones may be ready at once: they must be
/// sent, too, or the client hangs.
#[test]
fn pieces_that_are_there_at_once_are_sent_after_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("s");
    let server = Server::start(
        Arc::new(Source(BufPool::new(0))),
        vec![Listen::Unix(path.clone())],
        ServerOptions::default(),
    )
    .expect("a server");
    let fixture = Fixture::around(server, path, folder);
    let mut client = fixture.client("");
    for pieces in [2, 3, 32] {
        assert!(client.read(0, pieces * PIECE).iter().all(|byte| *byte == 7));
    }
    drop(client);
    eventually("the connection ends", || {
        fixture.server().connections().is_empty()
    });
}

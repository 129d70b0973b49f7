//! Input of a daemon's control socket: each complete line gets exactly one answer, an object of
//! this version. Invalid commands are not delivered.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use windrow_host::Failure;
use windrow_host::control::{
    CONTROL_VERSION, Command, ControlHandler, ControlServer, Reply, ServedPool,
};

struct Counting(AtomicUsize);

impl ControlHandler for Counting {
    fn serves(&self) -> ServedPool {
        ServedPool {
            name: "tank".to_owned(),
            pool: windrow_types::Uuid([7; 16]),
        }
    }

    fn handle(&self, command: Command) -> Result<Reply, Failure> {
        self.0.fetch_add(1, Ordering::SeqCst);
        // A parsed command can be encoded again.
        let said = serde_json::to_vec(&command).expect("a command");
        assert_eq!(serde_json::from_slice::<Command>(&said).ok(), Some(command));
        Ok(Reply::Done)
    }
}

static SERVER: LazyLock<(tempfile::TempDir, ControlServer, Arc<Counting>)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder");
    let counting = Arc::new(Counting(AtomicUsize::new(0)));
    let server =
        ControlServer::start(&folder.path().join("control"), counting.clone()).expect("it starts");
    (folder, server, counting)
});

fuzz_target!(|input: &[u8]| {
    let (_, server, counting) = &*SERVER;
    let before = counting.0.load(Ordering::SeqCst);
    let mut stream = UnixStream::connect(server.path()).expect("it listens");
    // The server may close it; earlier answers count.
    if stream
        .write_all(input)
        .and_then(|()| stream.shutdown(Shutdown::Write))
        .is_err()
    {
        return;
    }
    let answers: Vec<serde_json::Value> = BufReader::new(&stream)
        .lines()
        .map_while(Result::ok)
        .map(|line| serde_json::from_str(&line).expect("an object"))
        .collect();
    // On a slow machine a line may report that a command is running.
    let answers: Vec<serde_json::Value> = answers
        .into_iter()
        .filter(|answer| answer["working"].is_null())
        .collect();
    let lines = input.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(answers.len(), lines, "one answer to each line");
    assert!(
        answers
            .iter()
            .all(|answer| answer["version"] == CONTROL_VERSION
                && answer["ok"].is_null() != answer["error"].is_null())
    );
    let done = answers
        .iter()
        .filter(|answer| !answer["ok"].is_null())
        .count();
    assert_eq!(
        counting.0.load(Ordering::SeqCst) - before,
        done,
        "a refused command is not delivered"
    );
});

//! Replies of a daemon, as the commands read them: each line is a reply or a failure. A parsed
//! reply can be encoded again, and its text form does not panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use windrow_host::control::{Command, ControlClient, Reply};

/// More would not fit into the socket, which is not read meanwhile; nor would more questions.
const BYTES_MAX: usize = 64 << 10;
const ANSWERS_MAX: usize = 64;

fn look(reply: &Reply) {
    let said = serde_json::to_value(reply).expect("a reply");
    let again: Reply =
        serde_json::from_value(said.clone()).expect("what was understood can be said");
    assert_eq!(serde_json::to_value(&again).ok(), Some(said));
    if let Reply::Pool(report) = reply {
        assert!(report.exit_code() <= 3 && report.scrub.exit_code() <= 8);
        _ = (
            report.scrub.done_per_mille(),
            report.scrub.rate(),
            report.rebuild.done_per_mille(),
        );
        _ = (report.properties.to_properties(), report.volume("data"));
    }
}

fuzz_target!(|input: &[u8]| {
    let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    let input = &input[..input.len().min(BYTES_MAX)];
    (&theirs)
        .write_all(input)
        .and_then(|()| theirs.shutdown(Shutdown::Write))
        .expect("there is room");
    let mut client = ControlClient::over(ours, Path::new("control"));
    let lines = input.split_inclusive(|byte| *byte == b'\n').count();
    for _ in 0..lines.min(ANSWERS_MAX) {
        if let Ok(reply) = client.ask(Command::Checkpoint) {
            look(&reply);
        }
    }
    assert!(
        lines > ANSWERS_MAX || client.ask(Command::Checkpoint).is_err(),
        "it has nothing more to say"
    );
});

//! Numeric options at the ends of their ranges: an answer, or one line; never a panic. (That all of them have bounds is a test of the command line itself.)

use crate::support::{CREATE, World, both};
use std::process::{Command, Stdio};

/// Runs a command that must end by itself; what it said on standard error if it failed.
fn ends_in_order(world: &World, line: &str) -> Option<String> {
    let output = Command::new("timeout")
        .args(["--signal=KILL", "60", env!("CARGO_BIN_EXE_windrow")])
        .args(line.split_whitespace())
        .current_dir(world.path())
        .env("WINDROW_STATE", world.file("state"))
        .env("WINDROW_RUN", world.file("run"))
        .env_remove("WINDROW_LOG")
        .stdin(Stdio::null())
        .output()
        .expect("timeout runs");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let code = output.status.code();
    assert!(code.is_some_and(|code| code != 101 && code < 128) && !error.contains("panicked"), "{line}: {}: {}", output.status, both(&output));
    if code == Some(0) {
        return None;
    }
    assert!(error.starts_with("windrow: ") && error.lines().count() == 1, "{line}: {}", both(&output));
    Some(error)
}

/// A command that is quick, an option of it, and the ends of its range.
const OPTIONS: [(&str, &str, u64, u64); 24] = [
    ("plan", "--drives", 0, 1_000_000),
    ("plan layers", "--drives", 0, 1_000_000),
    ("plan gain", "--drives", 0, 1_000_000),
    ("advise t.csv --spare 20%", "--drives", 0, 1_000_000),
    ("inspect m0 m1 m2 m3", "--segment", 0, u32::MAX as u64),
    ("inspect m0 m1 m2 m3 --segment 0", "--row", 0, u32::MAX as u64),
    ("inspect m0 m1 m2 m3", "--chunk", 0, u32::MAX as u64),
    ("inspect m0 m1 m2 m3 --journal-device", "--chunk", 0, u32::MAX as u64),
    ("pool create --dry-run --redundancy 5 --size 64M new a b c", "--seal-age", 1, 3_600_000),
    ("replay t.csv --segment 64K --policy none --spare 20%", "--headers", 0, 1_048_576),
    ("replay t.csv --segment 64K --policy none --spare 20%", "--idle-cleaning", 0, 4_000_000),
    ("replay t.csv --segment 64K --policy none --spare 20% --idle-cleaning 1", "--rate", 1, 1_000_000_000),
    ("replay t.csv --segment 64K --policy none --spare 20%", "--repeat", 1, 1000),
    ("replay t.csv --segment 64K --policy none --spare 20%", "--seed", 0, u64::MAX),
    ("replay t.csv --segment 64K --policy separate+greedy --spare 20% --mode engine", "--flush-every", 0, 1_000_000_000_000),
    ("trace generate uniform g.csv --requests 10", "--seed", 0, u64::MAX),
    ("sim run --workload uniform --size 64M --passes 1 --policy none --spare 20%", "--seed", 0, u64::MAX),
    ("sim bursts --segments 20 --passes 1 --free 4", "--burst", 1, 1_000_000_000),
    ("sim bursts --segments 20 --passes 1 --burst 64", "--free", 0, 4_000_000),
    ("bench engine --size 16M --seconds 1 --rounds 1 --full 50%", "--members", 1, 1),
    ("bench engine --size 1M --seconds 1 --rounds 1 --full 50%", "--members", 1, 64),
    ("export disconnect tank/data", "--client", 0, u32::MAX as u64),
    ("pool set tank", "spare=", 0, u64::MAX),
    ("pool scrub tank", "--rate", 0, u64::MAX),
];

#[test]
fn the_ends_of_the_ranges_are_answered() {
    let world = World::with_volume(CREATE, "16M");
    world.succeeds("trace generate uniform t.csv --requests 200 --size 1M");
    for (command, option, least, most) in OPTIONS {
        for value in [0, 1, least, most, u64::MAX] {
            let line = if option.ends_with('=') { format!("{command} {option}{value}") } else { format!("{command} {option} {value}") };
            let said = ends_in_order(&world, &line);
            let is_outside = value < least || value > most;
            assert!(!is_outside || said.is_some_and(|said| said.contains(option)), "{line} is outside of the range");
        }
    }
}

/// `--drop-flush-every 0` divided by zero; a billion worker threads were begun.
#[test]
fn numbers_beyond_the_ranges_are_refused_with_these() {
    let world = World::new();
    for line in [
        "serve tank --volatile-cache 1 --drop-flush-every 0",
        "demo --drop-flush-every 0",
        "demo --seconds 0",
        "demo --seconds 604801",
        "bench engine --workers 0",
        "bench engine --workers 513",
        "bench engine --members 0",
        "bench engine --members 65",
        "bench engine --writers 1,1025",
        "bench engine --depth 65537",
        "bench dedup --copies 1001",
        "bench recovery --blocks 9999",
        "bench journal-study --flush 1000001",
        "trace generate uniform g.csv --requests 0",
    ] {
        let said = ends_in_order(&world, line).expect("refused");
        assert!(said.contains("between "), "{line}: {said}");
    }
}

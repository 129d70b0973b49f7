//! The daemon is killed again and again while it writes, on members with a volatile cache of which
//! a kill loses a part. After each kill the volume must hold a prefix of the sent requests that
//! covers every promise, and the members must be sound.
//!
//! `WINDROW_KILL_LOOPS=60 WINDROW_KILL_SEED=7` make it longer and different. A failure prints the
//! seed. The moment of a kill depends on the machine too, so reproducing a failure may take several
//! runs.

use crate::support;

use support::loops::{Loops, from_environment};

#[test]
fn flushed_writes_survive_every_kill() {
    let (loops, seed) = (
        from_environment("WINDROW_KILL_LOOPS", 6),
        from_environment("WINDROW_KILL_SEED", 1),
    );
    let mut run = Loops::new(seed, "");
    if let Err(why) = run.run(loops) {
        let kept = run.world.keep();
        panic!(
            "seed {seed}, after {:?}: {why}\nmembers kept in {}",
            run.summary,
            kept.display()
        );
    }
    eprintln!("seed {seed}: {:?}", run.summary);
    assert!(
        run.summary.promised > 0
            && run.summary.cleaned_segments > 0
            && run.summary.kills >= loops
            && run.summary.checks > 0,
        "{:?}",
        run.summary
    );
}

/// The loop finds members that acknowledge flushes without doing them; otherwise its success would
/// prove nothing.
#[test]
fn dropped_flushes_are_noticed() {
    for every in [1, 2] {
        is_noticed(100 + every, &format!("--drop-flush-every {every}"));
    }
}

/// The loop finds an engine that discards segments before the newer versions of their blocks are
/// durable.
#[test]
fn discards_before_the_flush_are_noticed() {
    for seed in [200, 201] {
        is_noticed(seed, "--early-reuse");
    }
}

/// Most loops until an injected fault must be found.
const CANARY_LOOPS_MAX: u64 = 60;

fn is_noticed(seed: u64, options: &str) {
    let mut run = Loops::new(seed, options);
    let why = run
        .run(CANARY_LOOPS_MAX)
        .expect_err("the planted fault is found");
    eprintln!(
        "{options}: found after {} sound loops: {why}",
        run.summary.loops
    );
}

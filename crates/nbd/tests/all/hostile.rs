//! Hostile clients, many of them: random programs, and valid ones with random changes. The same
//! functions are fuzz targets in `fuzz/`.

#[path = "../support/hostile.rs"]
mod programs;

use programs::{Target, handshake, requests, seeds, wire};
use proptest::prelude::*;

/// Random bytes, or a valid program with some bytes changed.
fn program() -> impl Strategy<Value = Vec<u8>> {
    let random = prop::collection::vec(any::<u8>(), 0..200);
    let entered = random
        .clone()
        .prop_map(|program| [vec![3], program].concat());
    let change = (
        prop::sample::select(seeds()),
        prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        random.clone(),
    );
    let changed = change.prop_map(|(mut program, changes, rest)| {
        changes
            .iter()
            .for_each(|(at, byte)| *at.get_mut(&mut program) = *byte);
        [program, rest].concat()
    });
    prop_oneof![random, entered, changed]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn negotiation_holds_its_bounds(program in program(), raw in any::<bool>()) {
        if raw { handshake(&program) } else { handshake(&wire(&program)) }
    }

    #[test]
    fn requests_are_checked_and_answered(program in program(), mode in any::<u8>()) {
        requests(&wire(&program), mode);
        requests(&program, mode);
    }
}

#[test]
fn a_connection_dies_alone() {
    let mut target = Target::new();
    let mut attack = |program: &[u8]| target.attack(&wire(program));
    for seed in seeds() {
        (0..=seed.len()).for_each(|end| attack(&seed[..end]));
    }
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(1000));
    let target = std::cell::RefCell::new(target);
    runner
        .run(&(program(), any::<bool>()), |(program, raw)| {
            target
                .borrow_mut()
                .attack(&if raw { program } else { wire(&program) });
            Ok(())
        })
        .unwrap();
}

/// The seeds are valid: their sessions succeed.
#[test]
fn seeds_are_valid() {
    let whole: Vec<Vec<u8>> = seeds().iter().map(|seed| wire(seed)).collect();
    assert!(
        whole
            .iter()
            .all(|wire| wire.windows(8).any(|part| part == b"IHAVEOPT"))
    );
    assert!(
        whole
            .iter()
            .filter(|wire| wire
                .windows(4)
                .any(|part| part == 0x2560_9513u32.to_be_bytes()))
            .count()
            >= 4
    );
}

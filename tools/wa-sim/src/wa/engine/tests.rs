use super::*;
use crate::wa::workload::{Pattern, Workload, fill};

const BLOCKS: u32 = 56_000;

/// Runs engine and simulated log with the same writes and the same space.
fn both(policy: &str, pattern: Pattern) -> (Outcome, f64) {
    let policy = Policy::from_name(policy).expect("a name");
    let writes = u64::from(BLOCKS) * 4;
    let load = || {
        fill(BLOCKS).chain(
            Workload::from(pattern)
                .stream(BLOCKS, 4)
                .take(writes as usize),
        )
    };
    let plan = EnginePlan {
        blocks: BLOCKS,
        segment_rows: 64,
        spare_per_mille: 100,
        steady_after: writes / 2,
        checkpoint_after: 500,
        flush_after: 0,
        journal: false,
    };
    let engine = run(&policy, &plan, load(), &mut |_| true).expect("a run");
    let model = engine
        .model(policy, &plan, load, &mut |_| true)
        .expect("a run");
    (engine, model)
}

#[test]
fn engine_and_simulated_log_agree_within_one_percent() {
    for pattern in [
        Pattern::Uniform,
        Pattern::HotCold {
            writes: 0.8,
            blocks: 0.2,
        },
    ] {
        let (engine, model) = both("separate+greedy", pattern);
        assert!(
            engine.steady > 3.5 && engine.victims > 10_000 && engine.moved_blocks > 500_000,
            "{engine:?}"
        );
        assert!(
            (engine.steady / model - 1.0).abs() < 0.01,
            "{}: model {model}, {engine:?}",
            pattern.name()
        );
    }
}

#[test]
fn what_the_engine_does_not_have_is_refused() {
    let plan = EnginePlan {
        blocks: 1000,
        segment_rows: 64,
        spare_per_mille: 100,
        steady_after: 0,
        checkpoint_after: 0,
        flush_after: 0,
        journal: false,
    };
    let refused = |name: &str, plan: &EnginePlan| {
        let policy = Policy::from_name(name).expect("a name");
        run(&policy, plan, fill(1000), &mut |_| true).expect_err("refused")
    };
    assert!(refused("none", &plan).contains("the nearest is separate"));
    assert!(
        refused(
            "separate",
            &EnginePlan {
                spare_per_mille: 10,
                ..plan
            }
        )
        .contains("spare")
    );
    assert!(
        refused(
            "separate",
            &EnginePlan {
                segment_rows: 7,
                ..plan
            }
        )
        .contains("segment")
    );
}

/// Flushes and a journal add writes, but do not change what cleaning moves: several user streams
/// are still used.
#[test]
fn beside_a_journal_sepbit_reaches_what_it_reaches_without() {
    let policy = Policy::from_name("sepbit").expect("a name");
    let writes = u64::from(BLOCKS) * 3;
    let load = || {
        fill(BLOCKS).chain(
            Workload::from(Pattern::HotCold {
                writes: 0.9,
                blocks: 0.1,
            })
            .stream(BLOCKS, 4)
            .take(writes as usize),
        )
    };
    let outcome = |flush_after: u64| {
        let steady_after = 2 * u64::from(BLOCKS);
        let plan = EnginePlan {
            blocks: BLOCKS,
            segment_rows: 64,
            spare_per_mille: 100,
            steady_after,
            checkpoint_after: 0,
            flush_after,
            journal: flush_after > 0,
        };
        run(&policy, &plan, load(), &mut |_| true).expect("a run")
    };
    // On one member the journal is cheaper than rows for two blocks. Incompressible data takes more
    // than its own size there.
    let (without, beside) = (outcome(0), outcome(2));
    assert!(
        without.journal == 0.0 && beside.journal > 1.0 && beside.padding < 0.01,
        "{without:?}\n{beside:?}"
    );
    assert_eq!((beside.user_streams, beside.moved_streams), (2, 4));
    assert!(
        beside.steady < without.steady * 1.02,
        "{without:?}\n{beside:?}"
    );
}

/// Durable writes of the trace cost the same as an equal number of artificial flushes.
#[test]
fn flushes_and_fua_of_the_operations_are_passed_on() {
    const FEW: u32 = 4000;
    let policy = Policy::from_name("separate").expect("a name");
    let plan = |flush_after| EnginePlan {
        blocks: FEW,
        segment_rows: 64,
        spare_per_mille: 300,
        steady_after: 0,
        checkpoint_after: 0,
        flush_after,
        journal: true,
    };
    let journal = |flush_after: u64, behind: Option<Operation>, before: Option<Operation>| {
        let load = (0..FEW)
            .map(Operation::write)
            .flat_map(move |write| before.into_iter().chain([write]).chain(behind));
        run(&policy, &plan(flush_after), load, &mut |_| true)
            .expect("a run")
            .journal
    };
    let (none, made, flushes, durable) = (
        journal(0, None, None),
        journal(1, None, None),
        journal(0, Some(Operation::Flush), None),
        journal(0, None, Some(Operation::Durable)),
    );
    assert!(
        none < 0.01 && made > 1.0 && flushes == made,
        "{none} {made} {flushes}"
    );
    assert!((durable / made - 1.0).abs() < 0.2, "{durable} {made}");
}

use super::*;
use crate::wa::workload::{Pattern, Workload, fill};

const BLOCKS: u32 = 56_000;

/// Engine and simulated log on the same writes, with the same space.
fn both(policy: &str, pattern: Pattern) -> (Outcome, f64) {
    let policy = Policy::from_name(policy).expect("a name");
    let writes = u64::from(BLOCKS) * 4;
    let load = || fill(BLOCKS).chain(Workload::from(pattern).stream(BLOCKS, 4).take(writes as usize));
    let plan = EnginePlan { blocks: BLOCKS, segment_rows: 64, spare_per_mille: 100, steady_after: writes / 2, checkpoint_after: 500 };
    let engine = run(&policy, &plan, load(), &mut |_| true).expect("a run");
    let model = engine.model(policy, &plan, load, &mut |_| true).expect("a run");
    (engine, model)
}

#[test]
fn engine_and_simulated_log_agree_within_one_percent() {
    for pattern in [Pattern::Uniform, Pattern::HotCold { writes: 0.8, blocks: 0.2 }] {
        let (engine, model) = both("separate+greedy", pattern);
        assert!(engine.steady > 3.5 && engine.victims > 10_000 && engine.moved_blocks > 500_000, "{engine:?}");
        assert!((engine.steady / model - 1.0).abs() < 0.01, "{}: model {model}, {engine:?}", pattern.name());
    }
}

#[test]
fn what_the_engine_does_not_have_is_refused() {
    let plan = EnginePlan { blocks: 1000, segment_rows: 64, spare_per_mille: 100, steady_after: 0, checkpoint_after: 0 };
    let refused = |name: &str, plan: &EnginePlan| {
        let policy = Policy::from_name(name).expect("a name");
        run(&policy, plan, fill(1000), &mut |_| true).expect_err("refused")
    };
    assert!(refused("none", &plan).contains("the nearest is separate"));
    assert!(refused("separate", &EnginePlan { spare_per_mille: 10, ..plan }).contains("spare"));
    assert!(refused("separate", &EnginePlan { segment_rows: 7, ..plan }).contains("segment"));
}

use super::*;
use crate::wa::run::{Plan, run_with_checkpoints};
use crate::wa::workload::{Pattern, Workload, fill};

const BLOCKS: u32 = 12_000;

/// Engine and simulated log on the same writes, with the same space in closed segments.
fn both(policy: &str, pattern: Pattern) -> (Outcome, f64) {
    let policy = Policy::from_name(policy).expect("a name");
    let passes = 14;
    let writes = u64::from(BLOCKS) * passes;
    let load = || fill(BLOCKS).chain(Workload::from(pattern).stream(BLOCKS, 4).take(writes as usize));
    let steady_after = writes / 2;
    let plan = EnginePlan { blocks: BLOCKS, segment_rows: 64, spare_per_mille: 30, steady_after, flush_every: 0 };
    let engine = run(&policy, &plan, load(), &mut |_| true).expect("a run");
    let shape = engine.equal_shape(BLOCKS);
    let model = Plan { shape, seed: 1, window: writes, steady_after, idle_free: 0 };
    let model = run_with_checkpoints(policy, &model, engine.checkpoint_every, load, &mut |_| true).expect("a run").steady;
    (engine, model)
}

#[test]
fn engine_and_simulated_log_agree() {
    for (policy, pattern) in [("separate+greedy", Pattern::Uniform), ("separate+greedy", Pattern::HotCold { writes: 0.8, blocks: 0.2 })] {
        let (engine, model) = both(policy, pattern);
        eprintln!("{policy} {}: {engine:?} model {model}", pattern.name());
        assert!((engine.steady / model - 1.0).abs() < 0.01, "{policy} {}: engine {}, model {model}: {engine:?}", pattern.name(), engine.steady);
    }
}

#[test]
#[ignore = "debug"]
fn debug_compare() {
    for name in ["separate+greedy", "separate+fifo", "separate+cost-benefit"] {
        for rows in [64u32, 128] {
            let policy = Policy::from_name(name).expect("a name");
            let blocks = 12_000 * rows / 64;
            let writes = u64::from(blocks) * 10;
            let load = || fill(blocks).chain(Workload::from(Pattern::Uniform).stream(blocks, 4).take(writes as usize));
            let plan = EnginePlan { blocks, segment_rows: rows, spare_per_mille: 30, steady_after: writes / 2, flush_every: 0 };
            let engine = run(&policy, &plan, load(), &mut |_| true).expect("a run");
            let shape = engine.equal_shape(blocks);
            let model = Plan { shape, seed: 1, window: writes, steady_after: writes / 2, idle_free: 0 };
            let a = run_with_checkpoints(policy, &model, 0, load, &mut |_| true).expect("a run").steady;
            let b = run_with_checkpoints(policy, &model, engine.checkpoint_every, load, &mut |_| true).expect("a run").steady;
            eprintln!("{name} {rows}: engine {:.3} model {a:.3} with checkpoints {b:.3} closed {:.1} eff {:.4} shape {:?} every {}", engine.steady, engine.closed_segments, engine.effective_spare, shape, engine.checkpoint_every);
        }
    }
}

use super::*;
use crate::wa::engine::{self, EnginePlan};
use crate::wa::workload::{Pattern, Workload, fill};

const BLOCKS: u32 = 56_000;

/// Runs engine and model with the same writes.
fn both(name: &str, pattern: Pattern) -> (engine::Outcome, Outcome) {
    let policy = Policy::from_name(name).expect("a name");
    let writes = u64::from(BLOCKS) * 4;
    let load = || {
        fill(BLOCKS).chain(
            Workload::from(pattern)
                .stream(BLOCKS, 4)
                .take(writes as usize),
        )
    };
    let steady_after = u64::from(BLOCKS) + writes / 2;
    let plan = EnginePlan {
        blocks: BLOCKS,
        segment_rows: 64,
        spare_per_mille: 100,
        steady_after,
        checkpoint_after: 0,
        flush_after: 0,
        journal: false,
    };
    let pool = Pool::plan(&policy, BLOCKS, 64, 100).expect("a pool");
    let served = engine::run(&policy, &plan, load(), &mut |_| true).expect("a run");
    let model = pool
        .run(&policy, steady_after, load, &mut |_| true)
        .expect("a run");
    assert_eq!(
        (
            served.segments,
            served.reserve_segments,
            served.segment_blocks
        ),
        (pool.segments, pool.reserve_segments, pool.segment_blocks)
    );
    assert_eq!(
        (served.user_streams, served.moved_streams),
        (pool.classes.users, pool.classes.moved)
    );
    let all = |(shapes, share): ([Shape; 2], f64)| f64::from(shapes[0].segments()) + share;
    let (measured, planned) = (all(served.equal_shapes(BLOCKS)), all(pool.shapes()));
    assert!(
        (measured / planned - 1.0).abs() < 0.01,
        "{measured} segments to clean in, {planned} were expected"
    );
    (served, model)
}

/// The model's figures for a pool agree with the engine, including space, streams and checkpoints,
/// and it ranks two policies in the same order.
#[test]
fn the_model_of_a_pool_meets_the_engine() {
    let pattern = Pattern::HotCold {
        writes: 0.9,
        blocks: 0.1,
    };
    let found = ["separate+greedy", "learned"].map(|name| both(name, pattern));
    for ((served, model), most) in found.iter().zip([0.06, 0.12]) {
        let measured = served.steady + served.checkpoints;
        assert!(
            (model.all() / measured - 1.0).abs() < most,
            "{model:?}, {served:?}"
        );
        assert!(
            model.checkpoints > 0.02 && (model.checkpoints / served.checkpoints - 1.0).abs() < 0.5,
            "{model:?}, {served:?}"
        );
    }
    let [(plain, of_plain), (learned, of_learned)] = &found;
    assert!(learned.steady < plain.steady && of_learned.all() < of_plain.all());
}

#[test]
fn pools_of_any_size_can_be_planned() {
    let policy = Policy::from_name("learned").expect("a name");
    for (blocks, of_segment, classes) in [
        (40_000, 16, 3 + 4),
        (4_000_000, 98_304, 1 + 1),
        (30_000_000, 16_384, 3 + 4),
    ] {
        let pool = Pool::plan(&policy, blocks, of_segment, 100).expect("a pool");
        let payload = pool.segment_blocks as f64 / f64::from(of_segment);
        assert!((0.8..1.0).contains(&payload), "{pool:?}");
        assert_eq!(pool.classes.users + pool.classes.moved, classes, "{pool:?}");
        let (shapes, _) = pool.shapes();
        assert!(
            shapes[0].segments() >= shapes[0].needed_segments()
                && shapes[1].segments() < pool.segments,
            "{pool:?}"
        );
    }
    assert!(
        Pool::plan(&policy, 40_000, 64, 10)
            .expect_err("too little spare")
            .contains("spare")
    );
}

use super::*;

const POOL: StudyPool = StudyPool {
    segments: 400,
    seed: 1,
};

#[test]
fn graph_1_has_its_double_hump_and_ends_at_the_closed_form() {
    let found = curve(POOL, 0.10, 8.0, &mut |_| true).expect("a curve");
    let (first, second) = (
        found.first_hump.expect("a hump"),
        found.second_hump.expect("another"),
    );
    assert!(
        first.1 > found.steady * 1.1 && second.1 > found.steady * 1.01 && first.0 < second.0,
        "{first:?} {second:?} {}",
        found.steady
    );
    // The header takes its part of the space and is written with each segment; one segment is open
    // or in reserve.
    let segments = f64::from(POOL.shape(0.10).segments());
    let expected =
        windrow_policy::analytic::greedy_waf(400.0 / (segments - 1.0), 255) * 256.0 / 255.0;
    assert!(
        (found.steady / expected - 1.0).abs() < 0.02,
        "{} for {expected}",
        found.steady
    );
    assert_eq!(
        found.windows[0],
        256.0 / 255.0,
        "free space is used up first: nothing is moved"
    );
}

#[test]
fn tables_1_and_2_double_the_emptiness_from_average_to_oldest() {
    let dynamic = emptiness(POOL, 0.10, 0.0, 6.0, &mut |_| true).expect("table 1");
    assert!(
        (0.08..0.11).contains(&dynamic.average),
        "{}",
        dynamic.average
    );
    assert!(
        (0.17..0.22).contains(&dynamic.victims),
        "{}",
        dynamic.victims
    );
    assert!(
        dynamic
            .by_age
            .windows(2)
            .all(|pair| pair[1] > pair[0] - 0.01),
        "{:?}",
        dynamic.by_age
    );
    let half = emptiness(POOL, 0.10, 0.5, 6.0, &mut |_| true).expect("table 2");
    // Table 2 has 20 and 40 %; 18.2 and 36.4 with the free space counted as dynamic.
    let near = |found: (f64, f64), expected: (f64, f64)| {
        (found.0 - expected.0).abs() < 5e-4 && (found.1 - expected.1).abs() < 5e-4
    };
    assert!(
        near(dynamic.source, (0.10, 0.20)) && near(half.source, (0.20, 0.40)),
        "{:?} {:?}",
        dynamic.source,
        half.source
    );
    assert!(
        near(dynamic.linear, (0.10, 0.20)) && near(half.linear, (0.182, 0.364)),
        "{:?} {:?}",
        dynamic.linear,
        half.linear
    );
    assert!(
        half.victims > dynamic.victims * 1.6 && half.steady < dynamic.steady,
        "{} {}",
        half.victims,
        half.steady
    );
}

#[test]
fn table_3_falls_with_every_step() {
    let steps = decomposition(POOL, 6.0, &mut |_| true).expect("table 3");
    assert_eq!(steps.len(), 4);
    assert!(
        steps
            .windows(2)
            .all(|pair| pair[1].learned < pair[0].learned),
        "{steps:?}"
    );
    assert!(
        steps[2].one_stream > steps[1].one_stream,
        "in one stream, what dies soon takes the free space: {steps:?}"
    );
    // The last step matches its name: 12 % of operations, which is right for uniform writes, left
    // 13 % of all space empty here.
    assert!(
        (steps[3].empty / 0.05 - 1.0).abs() < 0.05 && steps[2].empty == 0.0,
        "{steps:?}"
    );
    // The source's lines are its own factors: 5.65, 1 + 4.65 * 0.43, and so on.
    let mut waf = steps[0].source;
    for step in &steps[1..] {
        waf = 1.0 + (waf - 1.0) * step.source_factor.expect("a factor");
        assert!((waf - step.source).abs() < 0.006, "{step:?}");
    }
}

#[test]
fn pauses_take_cleaning_out_of_the_way_and_cost_writes() {
    let lines = bursts(
        POOL,
        Policy::of(PlacementKind::Mixed),
        0.2,
        1000,
        Pattern::Uniform,
        &[0, 16, 80],
        &mut |_| true,
    )
    .expect("bursts");
    assert!(
        lines[0].in_the_way > 1.0 && lines[1].in_the_way < 0.01,
        "{lines:?}"
    );
    assert!(
        lines[0].steady < lines[1].steady && lines[1].steady < lines[2].steady,
        "{lines:?}"
    );
    // On demand every move is in the way: both figures agree for the same time, including the
    // header of each segment.
    assert!(
        (lines[0].steady / ((1.0 + lines[0].in_the_way) * 256.0 / 255.0) - 1.0).abs() < 1e-9,
        "{lines:?}"
    );
}

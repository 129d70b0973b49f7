use super::*;

#[test]
fn small_sums_are_those_of_f32_to_the_last_digit() {
    let (mut tally, mut alone) = (Tally::new(1), 0.0f32);
    for round in 0..100_000u32 {
        tally.count(0);
        alone += 1.0;
        let portion = (round % 61) as f32 * 1.7;
        tally.add(0, portion, 120.0);
        alone += portion;
        if round % 100 == 0 {
            tally.fade_all(0.97);
            alone *= 0.97;
        }
        assert_eq!(tally.get(0).to_bits(), alone.to_bits(), "after {round}");
    }
    assert_eq!(tally.far, [0.0]);
}

#[test]
fn portions_of_different_size_keep_counting() {
    // Additions of surveys of very many segments, on average a tenth live, without fading: a single
    // f32 stops long before.
    let mut tally = Tally::new(1);
    for segment in 0..10_000_000u32 {
        tally.add(
            0,
            (segment.wrapping_mul(2_654_435_761) >> 8) as f32 * (26.0 / (1 << 24) as f32),
            130.0,
        );
    }
    assert!(
        (tally.get(0) / 130e6 - 1.0).abs() < 1e-3,
        "{}",
        tally.get(0)
    );
    tally.fade_all(0.5);
    assert!((tally.get(0) / 65e6 - 1.0).abs() < 1e-3, "{}", tally.get(0));
}

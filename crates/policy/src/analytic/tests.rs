use super::*;

/// Utilisation; limit of large segments; segments of 512, 128 and 64 blocks.
const TABLE: [(f64, f64, [f64; 3]); 6] = [
    (0.95, 10.172, [9.981, 9.447, 8.817]),
    (0.93, 7.318, [7.219, 6.939, 6.598]),
    (0.90, 5.179, [5.130, 4.990, 4.815]),
    (0.85, 3.519, [3.497, 3.434, 3.353]),
    (0.80, 2.693, [2.681, 2.644, 2.598]),
    (0.70, 1.876, [1.871, 1.854, 1.833]),
];

#[test]
fn known_values() {
    for (utilisation, limit, by_size) in TABLE {
        assert!(
            (fifo_waf(utilisation) - limit).abs() < 6e-4,
            "{utilisation}: {}",
            fifo_waf(utilisation)
        );
        for (blocks, wanted) in [512, 128, 64].into_iter().zip(by_size) {
            let found = greedy_waf(utilisation, blocks);
            assert!(
                (found - wanted).abs() < 6e-4,
                "{utilisation}, {blocks} blocks: {found}, {wanted}"
            );
        }
    }
}

#[test]
fn greedy_tends_to_the_limit() {
    for utilisation in [0.3, 0.5, 0.9, 0.98] {
        let found = greedy_waf(utilisation, 1 << 24);
        assert!(
            (found / fifo_waf(utilisation) - 1.0).abs() < 1e-4,
            "{utilisation}: {found}"
        );
    }
}

#[test]
fn ends_of_the_range() {
    assert_eq!((fifo_waf(0.0), greedy_waf(-1.0, 512)), (1.0, 1.0));
    assert_eq!(
        (fifo_waf(1.0), greedy_waf(2.0, 512)),
        (f64::INFINITY, f64::INFINITY)
    );
    assert!(
        fifo_waf(f64::NAN).is_nan()
            && greedy_waf(f64::NAN, 512).is_nan()
            && greedy_waf(0.5, 0).is_nan()
    );
    // So much spare space that victims are empty: nothing is moved.
    assert!((greedy_waf(0.01, 512) - 1.0).abs() < 1e-9);
    assert!((fifo_waf(0.01) - 1.0).abs() < 1e-9);
    assert!(greedy_waf(0.9, 1) >= 1.0 && greedy_waf(0.999, 2).is_finite());
}

#[test]
fn harmonic_numbers() {
    let mut sum = 0.0;
    for n in 1..2000u32 {
        sum += f64::from(n).recip();
        assert!((harmonic(f64::from(n)) - sum).abs() < 1e-12, "{n}");
    }
    assert!(harmonic(0.0).abs() < 1e-12);
    // H(1/2) = 2 - 2 ln 2.
    assert!((harmonic(0.5) - (2.0 - 2.0 * 2f64.ln())).abs() < 1e-12);
}

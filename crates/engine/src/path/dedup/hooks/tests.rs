use super::*;

/// Fingerprint number `n`.
fn print(n: u64) -> u128 {
    let half = |n: u64| {
        u128::from(
            n.wrapping_mul(0xd6e8_feb8_6659_fd93)
                ^ n.rotate_left(33).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        )
    };
    half(n) << 64 | half(n ^ 0x5555_5555)
}

#[test]
fn all_fingerprints_are_sampled_if_there_is_room() {
    let mut hooks = Hooks::new(1000, 1 << 20);
    (0..1000).for_each(|n| hooks.insert(print(n), n as u32 / 100, |_| 0));
    let found = (0..1000)
        .filter(|n| hooks.find(print(*n), |_| 0) == Some(*n as u32 / 100))
        .count();
    assert!(found >= 950, "{found} of 1000");
    assert!((5000..6000).all(|n| hooks.find(print(n), |_| 0).is_none()));
}

#[test]
fn a_sample_fits_if_not_all_do() {
    let fingerprints = 160_000;
    let mut hooks = Hooks::new(fingerprints, bytes_least(fingerprints));
    assert!(hooks.bytes() <= bytes_least(fingerprints) && hooks.sample_shift == 4);
    (0..fingerprints).for_each(|n| hooks.insert(print(n), n as u32 / 169, |_| 0));
    let found = (0..fingerprints)
        .filter(|n| hooks.find(print(*n), |_| 0) == Some(*n as u32 / 169))
        .count();
    assert!(
        (9_000..11_000).contains(&found),
        "{found} of {fingerprints}"
    );
}

#[test]
fn hooks_of_a_rewritten_page_are_gone() {
    let mut hooks = Hooks::new(1000, 1 << 20);
    hooks.insert(print(1), 7, |_| 3);
    assert_eq!(hooks.find(print(1), |_| 3), Some(7));
    assert_eq!(hooks.find(print(1), |_| 4), None);
    hooks.insert(print(1), 8, |_| 4);
    assert_eq!((hooks.find(print(1), |_| 4), hooks.entries()), (Some(8), 1));
}

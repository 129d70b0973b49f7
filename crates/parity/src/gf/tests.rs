use super::*;

#[test]
fn generator_has_full_order() {
    let mut seen = [false; 256];
    for exponent in 0..255 {
        let power = power_of_two(exponent);
        assert!(power != 0 && !seen[usize::from(power)], "2^{exponent}");
        seen[usize::from(power)] = true;
    }
    assert_eq!(power_of_two(255), 1);
    assert_eq!(power_of_two(8), REDUCTION);
}

#[test]
fn inverse_undoes_multiply() {
    for a in 1..=255u8 {
        assert_eq!(multiply(a, inverse(a)), 1);
    }
}

#[test]
fn multiply_is_a_ring_product() {
    for a in 0..=255u8 {
        assert_eq!(multiply(a, 2), double(a));
        for b in [0u8, 1, 2, 3, 29, 128, 254, 255] {
            assert_eq!(multiply(a, b), multiply(b, a));
            assert_eq!(multiply(a, b ^ 77), multiply(a, b) ^ multiply(a, 77));
        }
    }
}

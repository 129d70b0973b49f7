use super::*;
use std::collections::BTreeSet;

#[test]
fn equals_a_sorted_set() {
    for bound in [1u32, 64, 65, 4096, 4097, 65538, 64 * 64 * 64] {
        let (mut bits, mut model, mut state) =
            (BucketBits::new(bound), BTreeSet::new(), 0x9e37_79b9u64);
        for _ in 0..3000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let number = (state >> 33) as u32 % bound;
            if state >> 63 == 0 {
                bits.insert(number);
                model.insert(number);
            } else if let Some(member) = model.range(number..).next().copied() {
                bits.remove(member);
                model.remove(&member);
            }
            assert_eq!(bits.contains(number), model.contains(&number));
            assert_eq!(
                bits.next_from(number),
                model.range(number..).next().copied()
            );
            assert_eq!(bits.next_from(0), model.first().copied());
        }
        assert_eq!(bits.next_from(bound), None);
        bits.clear();
        assert_eq!(bits.next_from(0), None);
    }
}

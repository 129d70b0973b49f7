use super::*;
use crate::test_config;
use proptest::prelude::*;

#[test]
fn the_three_states_without_payload_are_what_they_say() {
    let states = [MapEntry::HOLE, MapEntry::ZERO, MapEntry::ONES]
        .map(|e| (e.state(), e.has_payload(), e.address(), e.checksum()));
    let none = |state| (Some(state), false, Address(0), 0);
    assert_eq!(
        states,
        [
            none(BlockState::Hole),
            none(BlockState::Zero),
            none(BlockState::Ones)
        ]
    );
    assert_eq!(MapEntry::default(), MapEntry::HOLE);
    assert_eq!(
        MapEntry::HOLE.to_bytes(),
        [0; 16],
        "a page of zeroes is a page of holes"
    );
}

#[test]
fn the_fields_lie_where_the_format_says() {
    let entry = MapEntry::plain(Address(0x2_3456_789a_bcde), 0x1122_3344);
    assert_eq!(entry.word0, 3 << 55 | 256 << 46 | 0x2_3456_789a_bcde);
    assert_eq!(entry.to_bytes()[8..], [0x44, 0x33, 0x22, 0x11, 0, 0, 0, 0]);
}

#[test]
fn every_state_has_its_number_and_other_numbers_are_none() {
    for number in 0..32u64 {
        let state = MapEntry {
            word0: number << 55,
            word1: 0,
        }
        .state();
        match state {
            Some(state) => assert_eq!(state as u64, number),
            None => assert!(number > 8),
        }
    }
}

proptest! {
    #![proptest_config(test_config(256))]

    #[test]
    fn plain_blocks_come_back(address in 0u64..1 << Address::BITS, checksum in any::<u32>()) {
        let entry = MapEntry::plain(Address(address), checksum);
        prop_assert_eq!(entry.state(), Some(BlockState::Plain));
        prop_assert!(entry.has_payload());
        prop_assert_eq!((entry.address(), entry.length_units(), entry.checksum()), (Address(address), FULL_BLOCK_UNITS, checksum));
        prop_assert_eq!(MapEntry::from_bytes(&entry.to_bytes()), entry);
    }

    #[test]
    fn any_words_are_survived(word0 in any::<u64>(), word1 in any::<u64>()) {
        let entry = MapEntry { word0, word1 };
        let _ = (entry.state(), entry.has_payload(), entry.length_units());
        prop_assert!(entry.address().0 >> Address::BITS == 0);
        prop_assert_eq!(MapEntry::from_bytes(&entry.to_bytes()), entry);
    }
}

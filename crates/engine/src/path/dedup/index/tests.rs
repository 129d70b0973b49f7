use super::*;
use std::collections::BTreeMap;

#[test]
fn a_used_entry_gets_a_second_chance() {
    let mut index = Index::new(8, 1 << 20);
    for id in 0..8 {
        assert_eq!(index.insert(u128::from(id) + 1, id), (id, None));
    }
    assert_eq!(index.find(1), Some(0));
    // The hand passes the first one, which was used, and takes the second.
    assert_eq!(index.insert(100, 8), (1, Some(1)));
    assert_eq!(
        (index.find(1), index.find(2), index.find(100)),
        (Some(0), None, Some(8))
    );
    index.remove(0);
    assert_eq!((index.find(1), index.entries()), (None, (7, 8)));
    assert_eq!(index.insert(200, 9), (0, None));
}

#[test]
fn it_keeps_within_its_bytes_and_has_only_inserted_entries() {
    let mut index = Index::new(1 << 20, 16 << 10);
    assert!(index.bytes() <= 16 << 10 && index.entries().1 < 1000);
    let mut state = 7u64;
    let (mut slots, mut there): (BTreeMap<u32, u32>, BTreeMap<u32, u128>) = Default::default();
    for id in 0..5000u32 {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let fingerprint = u128::from(state) << 64 | u128::from(id);
        let (slot, former) = index.insert(fingerprint, id);
        assert_eq!(slots.insert(slot, id), former);
        former.map(|former| there.remove(&former));
        there.insert(id, fingerprint);
        if id % 3 == 0 {
            index.remove(slot);
            slots.remove(&slot);
            there.remove(&id);
        }
        assert_eq!(index.entries().0, there.len() as u64);
    }
    for (id, fingerprint) in there {
        assert_eq!(index.find(fingerprint), Some(id));
    }
}

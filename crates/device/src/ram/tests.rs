use super::*;
use crate::testing::{SIZE, compare, refuses_bad_ranges, steps};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn content_is_as_in_the_model(steps in steps(), sparse in any::<bool>()) {
        let allocation = if sparse { RamAllocation::Sparse } else { RamAllocation::Preallocate };
        compare(&RamMember::new(SIZE, allocation).expect("memory"), &steps);
    }
}

#[test]
fn bad_ranges_and_sizes_are_refused() {
    refuses_bad_ranges(&RamMember::new(SIZE, RamAllocation::Sparse).expect("memory"));
    assert!(RamMember::new(100, RamAllocation::Sparse).is_err());
    assert!(RamMember::new(u64::MAX, RamAllocation::Sparse).is_err());
}

#[test]
fn a_sparse_member_gives_discarded_pages_back_and_a_preallocated_one_keeps_its_bytes() {
    for (allocation, expected) in [(RamAllocation::Sparse, 0), (RamAllocation::Preallocate, 5)] {
        let member = RamMember::new(SIZE, allocation).expect("memory");
        member.write_at(0, &[5; 16384]).expect("write");
        member.discard(512, 16384 - 1024).expect("discard");
        let mut buf = [0; 16384];
        member.read_at(0, &mut buf).expect("read");
        assert_eq!(
            (buf[4095], buf[4096], buf[12287], buf[12288]),
            (5, expected, expected, 5)
        );
    }
}

#[test]
fn writers_on_neighbouring_blocks_do_not_disturb_each_other() {
    let member = RamMember::new(2 << 20, RamAllocation::Sparse).expect("memory");
    let member = &member;
    std::thread::scope(|scope| {
        for writer in 0..4u64 {
            scope.spawn(move || {
                for round in 0..50u64 {
                    for block in (writer..512).step_by(4) {
                        member
                            .write_at(block * 4096, &[(round ^ block) as u8; 4096])
                            .expect("write");
                    }
                }
            });
        }
    });
    let mut content = [0; 4096];
    for block in 0..512u64 {
        member.read_at(block * 4096, &mut content).expect("read");
        assert!(content.iter().all(|b| *b == (49 ^ block) as u8));
    }
}

#[test]
fn a_write_over_two_chunks_arrives_whole() {
    let member = RamMember::new(SIZE, RamAllocation::Sparse).expect("memory");
    let data: Vec<u8> = (0..CHUNK_BYTES as usize).map(|i| (i / 512) as u8).collect();
    member.write_at(CHUNK_BYTES - 1024, &data).expect("write");
    let mut back = vec![0; data.len()];
    member.read_at(CHUNK_BYTES - 1024, &mut back).expect("read");
    assert_eq!(back, data);
}

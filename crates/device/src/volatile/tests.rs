use super::*;
use crate::testing::{SIZE, Step, compare, pattern, refuses_bad_ranges, steps};
use crate::{
    Allocation, CountingMember, FileMember, OpenOptions, RamAllocation, RamMember, create_file,
};
use proptest::prelude::*;
use std::sync::Arc;

fn ram() -> Arc<RamMember> {
    Arc::new(RamMember::new(SIZE, RamAllocation::Sparse).expect("memory"))
}

fn options(seed: u64, early: u16) -> VolatileOptions {
    VolatileOptions {
        seed,
        cache_bytes_max: 256 << 10,
        early_write_back_per_mille: early,
        drop_flush_every: None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn content_is_as_in_the_model(steps in steps(), seed in any::<u64>()) {
        compare(&VolatileMember::new(ram(), options(seed, 300)), &steps);
    }

    /// The invariant: each sector survives as at the last flush or as any version since.
    #[test]
    fn a_power_cut_loses_only_what_was_not_flushed(steps in steps(), seed in any::<u64>(), early in 0u16..500) {
        let inner = ram();
        let member = VolatileMember::new(inner.clone(), options(seed, early));
        let mut versions: Vec<Vec<Vec<u8>>> = vec![vec![vec![0; 512]]; (SIZE / 512) as usize];
        for step in &steps {
            match *step {
                Step::Write { sector, sectors, seed } => {
                    let offset = sector * 4096;
                    let data = pattern(offset, (sectors * 512).min(SIZE - offset) as usize, seed);
                    member.write_at(offset, &data).expect("write");
                    for (i, bytes) in data.chunks(512).enumerate() {
                        versions[(offset / 512) as usize + i].push(bytes.to_vec());
                    }
                }
                Step::Flush => {
                    member.flush().expect("flush");
                    versions.iter_mut().for_each(|v| drop(v.drain(..v.len() - 1)));
                }
                Step::Read { .. } => {}
            }
        }
        member.cut_power();
        prop_assert_eq!(member.flush().expect_err("no power").kind, MemberErrorKind::PowerCut);
        let mut left = vec![0; SIZE as usize];
        inner.read_at(0, &mut left).expect("read");
        for (sector, bytes) in left.chunks(512).enumerate() {
            prop_assert!(versions[sector].iter().any(|v| v == bytes), "sector {} holds a version from before the last flush", sector);
        }
    }
}

#[test]
fn bad_ranges_are_refused() {
    refuses_bad_ranges(&VolatileMember::new(ram(), VolatileOptions::default()));
}

#[test]
fn unflushed_writes_are_gone_when_the_backing_file_is_opened_again() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("member");
    create_file(&path, SIZE, Allocation::Preallocate).expect("create");
    let open = || FileMember::open(&path, &OpenOptions::default()).expect("open");
    let member = VolatileMember::new(open(), options(1, 0));
    member.write_at(0, &[1; 4096]).expect("write");
    member.flush().expect("flush");
    member.write_at(0, &[2; 4096]).expect("write");
    member.write_at(8192, &[2; 4096]).expect("write");
    assert_eq!(member.unflushed_bytes(), 8192);
    drop(member);
    let mut buf = [9; 12288];
    open().read_at(0, &mut buf).expect("read");
    assert_eq!((buf[0], buf[8192]), (1, 0));
}

#[test]
fn some_writes_go_through_early_some_are_torn_and_equal_seeds_agree() {
    let run = |seed| {
        let inner = ram();
        let member = VolatileMember::new(inner.clone(), options(seed, 200));
        for block in 0..60u64 {
            member
                .write_at(block * 4096, &[1 + block as u8; 4096])
                .expect("write");
        }
        let mut left = vec![0; SIZE as usize];
        inner.read_at(0, &mut left).expect("read");
        left
    };
    let left = run(7);
    let state = |block: &[u8]| block.chunks(512).filter(|sector| sector[0] != 0).count();
    let counts: Vec<usize> = left.chunks(4096).take(60).map(state).collect();
    assert!(
        counts.contains(&0) && counts.contains(&8) && counts.iter().any(|c| (1..8).contains(c)),
        "{counts:?}"
    );
    assert!(left == run(7) && left != run(8));
}

#[test]
fn the_cache_keeps_its_bound_and_a_flush_writes_long_runs_once() {
    let inner = Arc::new(CountingMember::new(ram()));
    let member = VolatileMember::new(inner.clone(), options(3, 0));
    for block in 0..200u64 {
        member.write_at(block * 4096, &[1; 4096]).expect("write");
        assert!(member.unflushed_bytes() <= 256 << 10);
    }
    member.flush().expect("flush");
    assert_eq!((inner.counts().flushes, member.unflushed_bytes()), (1, 0));
    let before = inner.counts();
    for block in (0..60u64).rev() {
        member.write_at(block * 4096, &[2; 4096]).expect("write");
    }
    member.flush().expect("flush");
    assert_eq!(
        (
            inner.counts().writes - before.writes,
            inner.counts().written_bytes - before.written_bytes
        ),
        (1, 60 * 4096)
    );
}

#[test]
fn the_canary_claims_flushes_that_were_not_done() {
    let inner = Arc::new(CountingMember::new(ram()));
    let member = VolatileMember::new(
        inner.clone(),
        VolatileOptions {
            drop_flush_every: Some(2),
            ..options(1, 0)
        },
    );
    for _ in 0..4 {
        member.write_at(0, &[1; 512]).expect("write");
        member.flush().expect("flush");
    }
    assert_eq!(inner.counts().flushes, 2);
    assert_eq!(member.unflushed_bytes(), 4096, "the fourth was not done");
}

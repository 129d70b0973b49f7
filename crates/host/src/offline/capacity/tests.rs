use super::*;
use windrow_engine::Engine;
use windrow_engine::{JournalSpec, PoolSpec};
use windrow_format::superblock::{Properties, Reduction};
use windrow_types::Uuid;

const MIB: u64 = 1 << 20;

fn planned(redundancy: Redundancy, sizes: &[u64], reduction: Reduction) -> PoolPlan {
    let spec = PoolSpec {
        name: "tank".to_owned(),
        redundancy,
        chunk_rows: Some(16),
        segment_rows: Some(64),
        align_bytes: 1 << 18,
        pool: Uuid([1; 16]),
        members: sizes
            .iter()
            .enumerate()
            .map(|(index, size)| (Uuid([index as u8 + 2; 16]), *size))
            .collect(),
        created_unix_s: 0,
        journal: Some(JournalSpec::internal(None, 4096)),
        properties: Properties {
            reduction,
            ..Properties::DEFAULT
        },
    };
    Engine::plan(&spec).expect("a plan")
}

#[test]
fn the_table_adds_up() {
    let sizes = [128, 128, 128, 192, 256].map(|mib| mib * MIB + 12288);
    for redundancy in [
        Redundancy::None,
        Redundancy::Copies(2),
        Redundancy::Single,
        Redundancy::Double,
    ] {
        for reduction in [Reduction::Spare, Reduction::Capacity] {
            let capacity = Capacity::of(&planned(redundancy, &sizes, reduction), &sizes);
            let taken: u64 = capacity.rows().iter().map(|(_, bytes)| bytes).sum();
            assert_eq!(
                capacity.raw_bytes - taken,
                capacity.usable_bytes,
                "{redundancy:?} {capacity:?}"
            );
            assert!(
                capacity.journal_bytes > 0
                    && capacity.spare_bytes > 0
                    && capacity.checkpoint_bytes > 0
            );
            assert_eq!(
                (
                    redundancy == Redundancy::None,
                    reduction == Reduction::Capacity
                ),
                (capacity.redundancy_bytes == 0, capacity.column_bytes > 0)
            );
        }
    }
}

#[test]
fn the_unused_rest_of_a_larger_member_is_shown() {
    let paths: Vec<PathBuf> = (0..5)
        .map(|index| PathBuf::from(format!("m{index}")))
        .collect();
    let said = |redundancy, mib: &[u64]| {
        let sizes: Vec<u64> = mib.iter().map(|mib| mib * MIB).collect();
        let members: Vec<(&Path, u64)> = paths
            .iter()
            .map(PathBuf::as_path)
            .zip(sizes.iter().copied())
            .collect();
        let list = unused(
            &planned(redundancy, &sizes, Reduction::Spare),
            redundancy,
            &members,
        );
        list.into_iter()
            .map(|unused| {
                (
                    unused.path.display().to_string(),
                    unused.unused_bytes / MIB,
                    unused.remedy,
                )
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(said(Redundancy::Single, &[128; 4]), []);
    assert_eq!(
        said(Redundancy::Single, &[128, 128, 128, 256]),
        [(
            "m3".to_owned(),
            128,
            "2 more members as large would use it".to_owned()
        )]
    );
    let both = said(Redundancy::Single, &[128, 128, 256, 192]);
    assert_eq!(
        both.iter()
            .map(|(path, mib, _)| (path.as_str(), *mib))
            .collect::<Vec<_>>(),
        [("m2", 128), ("m3", 64)]
    );
    assert_eq!(both[1].2, "one more member as large would use it");
    assert_eq!(
        said(Redundancy::Single, &[128, 256, 256, 256]),
        [],
        "three members make a zone of their own"
    );
}

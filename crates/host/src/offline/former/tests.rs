//! Devices that return from elsewhere, and devices that only look like it.

use super::*;
use crate::offline::tests::{create_pool, open_again};
use crate::offline::{Newcomer, examine, open_member, scan};
use crate::registry::Registry;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use windrow_device::{Fault, FaultKind, FaultyMember, LockMode};
use windrow_io::MemberErrorKind;

const APART: u8 = 0xa5;

/// Writes something unknown to the pool wherever there can be log or journal.
fn use_apart(path: &Path) {
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    let bytes = file.metadata().unwrap().len() - RESERVED_BYTES;
    file.write_all_at(&vec![APART; bytes as usize], RESERVED_BYTES)
        .unwrap();
}

/// Bytes after the superblocks that are not zero, and those of them that were written elsewhere.
fn left(path: &Path) -> (usize, usize) {
    let bytes = std::fs::read(path).unwrap();
    let log = &bytes[RESERVED_BYTES as usize..];
    (
        log.iter().filter(|byte| **byte != 0).count(),
        log.chunks(4096)
            .filter(|block| block.iter().all(|byte| *byte == APART))
            .count(),
    )
}

/// Erasing only its two ends would leave foreign batches after the end of the log, and the next
/// start would take them for the pool's.
#[test]
fn a_device_of_the_pool_that_was_used_apart_is_zeroed_and_no_other_one_is() {
    let (dir, others, state) = (
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    let registry = Registry::new(state.path());
    let (members, foreign) = (create_pool(dir.path()), create_pool(others.path()));
    let pool = open_again(&members, &registry);
    let this = examine(&members[0]).unwrap().unwrap().label.pool;
    let apart = [MemberId(1), MemberId(2)];
    apart
        .iter()
        .for_each(|member| pool.take_out(*member).unwrap());
    let blank = others.path().join("blank");
    std::fs::File::create(&blank)
        .unwrap()
        .set_len(32 << 20)
        .unwrap();
    [&members[1], &members[2], &foreign[0], &blank]
        .into_iter()
        .for_each(|path| use_apart(path));
    let newcomer = |path: &PathBuf, overwrite| Newcomer {
        path: path.clone(),
        overwrite,
    };
    assert_eq!(
        pool.add_spare(&newcomer(&members[2], false))
            .unwrap_err()
            .id,
        id::MEMBER_IN_USE
    );
    assert_eq!(
        (left(&members[2]).1, zeroed_first(&members[2], this)),
        (31 << 8, Some(32 << 20)),
        "nothing is written without leave"
    );
    // A spare is not rebuilt: only the label is written.
    pool.add_spare(&newcomer(&members[2], true)).unwrap();
    assert_eq!(left(&members[2]), (0, 0));
    let spare = FileMember::open(
        &members[2],
        &OpenOptions {
            lock: LockMode::None,
            ..OpenOptions::read_only()
        },
    )
    .unwrap();
    assert!(
        is_unused_spare(
            &spare,
            this,
            examine(&members[2]).unwrap().unwrap().label.member_uuid
        )
        .unwrap(),
        "it takes a place without being zeroed again"
    );
    let room =
        std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&members[2]).unwrap()) * 512;
    assert!(room >= 32 << 20, "what was reserved stays reserved: {room}");
    pool.replace(MemberId(1), &newcomer(&members[1], true), false)
        .unwrap();
    assert_eq!(left(&members[1]).1, 0);
    for path in [&foreign[0], &blank] {
        assert_eq!(zeroed_first(path, this), None);
        pool.add_spare(&newcomer(path, true)).unwrap();
        assert!(left(path).1 > 25 << 8, "only its ends are erased");
    }
    assert_eq!(pool.zeroing(), None);
    pool.shutdown(true).unwrap();
}

#[test]
fn a_device_that_is_zeroed_in_part_is_no_member_and_is_known_for_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let members = create_pool(dir.path());
    let label = examine(&members[3]).unwrap().unwrap().label;
    use_apart(&members[3]);
    let device =
        FaultyMember::new(open_member(&members[3], MemberId(3), &Default::default(), "").unwrap());
    let once = |range, kind| {
        device.add(Fault {
            kind,
            range,
            strikes: Some(1),
        })
    };
    for round in 0..4 {
        let broken = FaultKind::WriteError(MemberErrorKind::Media);
        match round {
            0 => once(SLOT_OFFSET..SLOT_OFFSET + 1, broken),
            1 => once(20 << 20..(20 << 20) + 1, broken),
            2 => once(
                31 << 20..(31 << 20) + 1,
                FaultKind::WriteError(MemberErrorKind::Gone),
            ),
            // The pool stops meanwhile.
            _ => once(0..0, broken),
        };
        let stopped = empty(&device, label.pool, "tank", "cannot", &mut |_, _| {
            round != 3
        })
        .unwrap_err();
        assert!(
            stopped.id == id::MEMBER_IO
                && stopped
                    .why
                    .contains("not labelled before all of it is zeroed"),
            "{stopped}"
        );
        let found = scan(&[dir.path().to_owned()]).remove(0);
        assert_eq!(
            (found.members.len(), found.strays.len(), found.missing()),
            (5, 1, vec![3]),
            "round {round}"
        );
        assert!(
            was_in(&device, label.pool).unwrap()
                && !is_unused_spare(&device, label.pool, label.member_uuid).unwrap()
        );
        device.clear();
    }
    empty(&device, label.pool, "tank", "cannot", &mut |_, _| true).unwrap();
    assert_eq!(
        (left(&members[3]), was_in(&device, label.pool).unwrap()),
        ((0, 0), false)
    );
    assert!(
        std::fs::read(&members[3])
            .unwrap()
            .iter()
            .all(|byte| *byte == 0)
    );
}

/// A drive that two hosts reach is a spare here and was put into another pool there: it must not be
/// zeroed.
#[test]
fn a_spare_that_joined_another_pool_is_not_taken_for_ours() {
    let (dir, others) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (members, foreign) = (create_pool(dir.path()), create_pool(others.path()));
    let blank = others.path().join("blank");
    std::fs::File::create(&blank)
        .unwrap()
        .set_len(32 << 20)
        .unwrap();
    let this = examine(&members[0]).unwrap().unwrap().label.pool;
    let open = |path: &Path| FileMember::open(path, &OpenOptions::read_only()).unwrap();
    assert_eq!(must_be_of(&open(&members[0]), this), Ok(()));
    assert!(
        must_be_of(&open(&foreign[0]), this)
            .unwrap_err()
            .contains("is member 0 of pool")
    );
    assert!(
        must_be_of(&open(&blank), this)
            .unwrap_err()
            .contains("has no label of this pool any more")
    );
}

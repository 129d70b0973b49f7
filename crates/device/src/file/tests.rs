use super::*;
use crate::testing::{SIZE, compare, refuses_bad_ranges, steps};
use crate::{Allocation, CreateError, create_file, create_file_with_progress};
use proptest::prelude::*;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use tempfile::TempDir;

fn created(allocation: Allocation) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("member");
    create_file(&path, SIZE, allocation).expect("create");
    (folder, path)
}

fn open(path: &Path, options: &OpenOptions) -> FileMember {
    FileMember::open(path, options).expect("open")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn content_is_as_in_the_model(steps in steps(), direct in any::<bool>()) {
        let (_folder, path) = created(Allocation::Preallocate);
        let direct = if direct { DirectMode::Preferred } else { DirectMode::Never };
        compare(&open(&path, &OpenOptions { direct, ..OpenOptions::default() }), &steps);
    }
}

#[test]
fn bad_ranges_are_refused_and_any_memory_is_taken() {
    let (_folder, path) = created(Allocation::Preallocate);
    let member = open(&path, &OpenOptions::default());
    refuses_bad_ranges(&member);
    let data: Vec<u8> = (0..3 * 4096 + 1).map(|i| (i / 3) as u8).collect();
    member.write_at(4096, &data[1..]).expect("an odd address");
    let mut back = vec![0; data.len()];
    member
        .read_at(4096, &mut back[1..])
        .expect("an odd address");
    assert_eq!(back[1..], data[1..]);
}

#[test]
fn what_was_asked_of_the_kernel_is_reported() {
    let (_folder, path) = created(Allocation::Preallocate);
    let info = open(&path, &OpenOptions::default()).info().clone();
    assert_eq!(
        (info.kind, info.size_bytes, info.read_only, info.discard),
        (MemberKind::File, SIZE, false, Discard::Ignored)
    );
    assert!(info.logical_sector.is_power_of_two() && (512..=4096).contains(&info.logical_sector));
    assert!(info.physical_sector >= info.logical_sector);
    let never = OpenOptions {
        direct: DirectMode::Never,
        ..OpenOptions::default()
    };
    assert!(matches!(
        open(&path, &never).info().direct,
        DirectIo::No { .. }
    ));
    let required = OpenOptions {
        direct: DirectMode::Required,
        ..OpenOptions::default()
    };
    match (info.direct, FileMember::open(&path, &required)) {
        (DirectIo::Yes { offset_align, .. }, Ok(member)) => {
            assert_eq!(member.info().logical_sector, offset_align.max(512))
        }
        (DirectIo::No { .. }, Err(OpenError::NoDirectIo { .. })) => {}
        (direct, opened) => panic!("{direct:?} but {opened:?}"),
    }
}

/// A journal device that is declared power-safe is not flushed. If it is a file, writes must be
/// synchronous: otherwise the file system does not record that allocated blocks are written, and
/// they read as zeroes after a power failure.
#[test]
fn a_file_that_is_never_flushed_is_written_synchronously() {
    let (_folder, path) = created(Allocation::Preallocate);
    let is_synchronous = |write_through, direct| {
        let member = open(
            &path,
            &OpenOptions {
                write_through,
                direct,
                ..OpenOptions::default()
            },
        );
        rustix::fs::fcntl_getfl(&member.fd).expect("flags").bits() & libc::O_DSYNC as u32 != 0
    };
    for direct in [DirectMode::Preferred, DirectMode::Never] {
        assert!(is_synchronous(true, direct) && !is_synchronous(false, direct));
    }
}

/// Without reported alignment, a sparse member file on a device with 4096-byte sectors must not
/// count as one with 512-byte sectors: the trial reads zeroes that are nowhere, and the first
/// 512-byte write would fail.
#[test]
fn the_trial_finds_no_sector_below_that_of_the_device() {
    let (_folder, path) = created(Allocation::Sparse);
    for least in [512, 4096] {
        let file = std::fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECT)
            .open(&path);
        let Ok(file) = file else {
            return eprintln!("SKIPPED: no O_DIRECT here");
        };
        let (memory, offset) =
            properties::tried_alignment(&file.into(), least).expect("one of them succeeds");
        assert!(memory >= least && offset >= least, "{memory}, {offset}");
    }
}

#[test]
fn a_lock_excludes_a_second_open_by_any_name_until_it_is_released() {
    let (folder, path) = created(Allocation::Sparse);
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).expect("link");
    let first = open(&path, &OpenOptions::default());
    for name in [&path, &link] {
        assert!(matches!(
            FileMember::open(name, &OpenOptions::default()),
            Err(OpenError::InUse { .. })
        ));
        assert!(matches!(
            FileMember::open(name, &OpenOptions::read_only()),
            Err(OpenError::InUse { .. })
        ));
    }
    open(
        &path,
        &OpenOptions {
            lock: LockMode::None,
            ..OpenOptions::read_only()
        },
    );
    let patient = crate::testing::patient();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| FileMember::open(&path, &patient).map(drop));
        std::thread::sleep(Duration::from_millis(30));
        drop(first);
        waiting
            .join()
            .expect("thread")
            .expect("the lock is released");
    });
    let _readers = [
        open(&path, &OpenOptions::read_only()),
        open(&link, &OpenOptions::read_only()),
    ];
    assert!(matches!(
        FileMember::open(&path, &OpenOptions::default()),
        Err(OpenError::InUse { .. })
    ));
}

#[test]
fn a_read_only_member_refuses_changes() {
    let (_folder, path) = created(Allocation::Sparse);
    let member = open(&path, &OpenOptions::read_only());
    assert_eq!(
        member.write_at(0, &[0; 4096]).expect_err("refused").code,
        libc::EROFS
    );
    assert_eq!(
        member.discard(0, 4096).expect_err("refused").code,
        libc::EROFS
    );
    member.read_at(0, &mut [0; 4096]).expect("read");
    member.flush().expect("nothing to flush");
}

#[test]
fn things_that_are_no_member_are_refused() {
    let folder = tempfile::tempdir().expect("folder");
    assert!(matches!(
        FileMember::open(folder.path(), &OpenOptions::default()),
        Err(OpenError::WrongType { .. })
    ));
    assert!(matches!(
        FileMember::open(Path::new("/dev/null"), &OpenOptions::default()),
        Err(OpenError::WrongType { .. })
    ));
    assert!(matches!(
        FileMember::open(&folder.path().join("none"), &OpenOptions::default()),
        Err(OpenError::System { .. })
    ));
}

#[test]
fn a_truncated_file_is_an_error_and_not_zeroes() {
    let (_folder, path) = created(Allocation::Sparse);
    let member = open(&path, &OpenOptions::default());
    std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .expect("open")
        .set_len(8192)
        .expect("truncate");
    let error = member
        .read_at(4096, &mut [0; 8192])
        .expect_err("half of it is gone");
    assert_eq!(error.code, libc::EIO);
}

#[test]
fn only_the_policy_that_says_so_punches_holes() {
    let (_folder, path) = created(Allocation::Written);
    let blocks = || std::fs::metadata(&path).expect("metadata").blocks();
    let before = blocks();
    assert!(before * 512 >= SIZE, "fully allocated");
    for discard in [DiscardPolicy::BlockDevicesOnly, DiscardPolicy::Never] {
        open(
            &path,
            &OpenOptions {
                discard,
                ..OpenOptions::default()
            },
        )
        .discard(0, SIZE)
        .expect("ignored");
        assert_eq!(blocks(), before);
    }
    let member = open(
        &path,
        &OpenOptions {
            discard: DiscardPolicy::PunchHoles,
            ..OpenOptions::default()
        },
    );
    assert!(matches!(member.info().discard, Discard::Real { .. }));
    member.discard(65536, 65536).expect("punch");
    member.flush().expect("flush");
    assert!(
        blocks() < before || before * 512 > SIZE + 65536,
        "room came back"
    );
    assert_eq!(std::fs::metadata(&path).expect("metadata").len(), SIZE);
}

#[test]
fn creation_allocates_as_requested_and_never_overwrites() {
    let folder = tempfile::tempdir().expect("folder");
    let blocks = |path: &Path| std::fs::metadata(path).expect("metadata").blocks() * 512;
    for (name, allocation, full) in [
        ("a", Allocation::Preallocate, true),
        ("b", Allocation::Written, true),
        ("c", Allocation::Sparse, false),
    ] {
        let path = folder.path().join(name);
        let mut heard = Vec::new();
        create_file_with_progress(&path, SIZE + 8192, allocation, &mut |bytes| {
            heard.push(bytes)
        })
        .expect("create");
        assert_eq!(blocks(&path) >= SIZE + 8192, full, "{allocation:?}");
        assert_eq!(
            heard.last().copied(),
            (allocation == Allocation::Written).then_some(SIZE + 8192)
        );
        assert_eq!(
            std::fs::metadata(&path).expect("metadata").mode() & 0o777,
            0o600
        );
        assert!(matches!(
            create_file(&path, SIZE, allocation),
            Err(CreateError::Exists { .. })
        ));
    }
    for size in [0, 4095, u64::MAX - 4095] {
        assert!(matches!(
            create_file(&folder.path().join("d"), size, Allocation::Sparse),
            Err(CreateError::Size { .. })
        ));
    }
    let huge = folder.path().join("huge");
    let refused = create_file(&huge, 1 << 55, Allocation::Preallocate);
    assert!(
        matches!(
            refused,
            Err(CreateError::TooLarge { .. } | CreateError::NoSpace { .. })
        ),
        "{refused:?}"
    );
    assert!(!huge.exists(), "nothing is left behind");
}

/// A file size that the file system does not support must not be reported as a lack of space.
#[test]
fn a_file_larger_than_the_file_system_limit_is_reported_as_such() {
    let path = Path::new("member");
    assert!(
        matches!(create::failure("allocate", path, 1 << 55, Errno::FBIG), CreateError::TooLarge { bytes, .. } if bytes == 1 << 55)
    );
    assert!(matches!(
        create::failure("allocate", path, 1 << 55, Errno::NOSPC),
        CreateError::NoSpace { .. }
    ));
}

#[test]
fn a_loop_device_is_a_block_device_with_its_own_sector_and_an_exclusive_lock() {
    for sector in [512, 4096] {
        let Some(device) = crate::testing::LoopDevice::attach(8 << 20, sector) else {
            return;
        };
        let member = open(device.path(), &crate::testing::patient());
        let info = member.info();
        assert_eq!(
            (info.kind, info.size_bytes, info.logical_sector),
            (MemberKind::BlockDevice, 8 << 20, sector)
        );
        assert!(matches!(
            FileMember::open(device.path(), &OpenOptions::default()),
            Err(OpenError::InUse { .. })
        ));
        refuses_bad_ranges(&member);
        member.write_at(1 << 20, &[7; 65536]).expect("write");
        member.flush().expect("flush");
        member.discard(1 << 20, 65536).expect("discard");
        member.write_at(1 << 20, &[8; 4096]).expect("write");
        let mut buf = [0; 4096];
        member.read_at(1 << 20, &mut buf).expect("read");
        assert_eq!(buf, [8; 4096]);
        drop(member);
        open(device.path(), &crate::testing::patient());
    }
}

/// A pool must not be served from its files and, by another daemon, from loop devices over them:
/// both would write, and the pool would be lost.
#[test]
fn a_file_and_a_loop_device_over_it_are_one_member() {
    let Some(device) = crate::testing::LoopDevice::attach(8 << 20, 512) else {
        return;
    };
    let file = device.backing().to_owned();
    let in_use = |path: &Path| {
        matches!(
            FileMember::open(path, &OpenOptions::default()),
            Err(OpenError::InUse { .. })
        )
    };
    assert!(in_use(&file), "the device may be in use by anybody");
    let looking = OpenOptions {
        lock: LockMode::None,
        ..OpenOptions::read_only()
    };
    FileMember::open(&file, &looking).expect("an open without a lock may read");
    let held = std::fs::File::open(&file).expect("the file");
    rustix::fs::flock(&held, rustix::fs::FlockOperation::NonBlockingLockExclusive)
        .expect("the lock of a daemon that was here before the device");
    assert!(in_use(device.path()), "the file is a member already");
    drop(held);
    drop(open(device.path(), &crate::testing::patient()));
}

/// Each loop device has its own lock, and the file under both has none.
#[test]
fn two_loop_devices_over_the_same_bytes_are_one_member() {
    let Some(first) = crate::testing::LoopDevice::attach(8 << 20, 512) else {
        return;
    };
    let member = open(first.path(), &crate::testing::patient());
    let open_other = |arguments: &[&str], options: &OpenOptions| {
        let other = crate::testing::LoopDevice::over(first.backing(), arguments)?;
        Some(FileMember::open(other.path(), options).map(drop))
    };
    let Some(same) = open_other(&[], &OpenOptions::default()) else {
        return;
    };
    assert!(matches!(same, Err(OpenError::InUse { .. })), "{same:?}");
    drop(member);
    let Some(free) = open_other(&[], &crate::testing::patient()) else {
        return;
    };
    free.expect("it is no longer held");
    let Some(upper) = crate::testing::LoopDevice::over(first.backing(), &["--offset", "4194304"])
    else {
        return;
    };
    let _upper = open(upper.path(), &crate::testing::patient());
    let Some(lower) = open_other(&["--sizelimit", "4194304"], &crate::testing::patient()) else {
        return;
    };
    lower.expect("parts of a file are members of their own");
}

/// A block device under a loop device is not locked like a file: a disk and a loop device over it
/// must not both become members.
#[test]
fn a_block_device_and_a_loop_device_over_it_are_one_member() {
    let Some(below) = crate::testing::LoopDevice::attach(8 << 20, 512) else {
        return;
    };
    let exclusive = || {
        rustix::fs::open(
            below.path(),
            OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .expect("free")
    };
    let in_use = |path: &Path| {
        matches!(
            FileMember::open(path, &OpenOptions::default()),
            Err(OpenError::InUse { .. })
        )
    };
    {
        let Some(above) = crate::testing::LoopDevice::over(below.path(), &[]) else {
            return;
        };
        assert!(
            in_use(below.path()),
            "the device over it may be in use by anybody"
        );
        let uses = crate::probe::probe(below.path(), |_| None)
            .expect("probe")
            .uses;
        let name = above
            .path()
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        assert_eq!(uses, [crate::probe::Use::Held { holder: name }]);
        let held = exclusive();
        assert!(in_use(above.path()), "what is below is a member already");
        drop(held);
        let file = std::fs::File::open(below.backing()).expect("the file");
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)
            .expect("a lock at the very bottom");
        assert!(in_use(above.path()), "also two steps down");
        drop(file);
        drop(open(above.path(), &crate::testing::patient()));
    }
    drop(open(below.path(), &crate::testing::patient()));
}

#[test]
fn a_range_is_zeroed_and_what_was_reserved_stays_reserved() {
    for allocation in [Allocation::Preallocate, Allocation::Sparse] {
        let (_folder, path) = created(allocation);
        let member = open(&path, &OpenOptions::default());
        member
            .write_at(0, &vec![7; SIZE as usize / 2])
            .expect("write");
        let before = std::fs::metadata(&path).expect("metadata").blocks();
        member.zero(8192, SIZE / 2 - 8192).expect("zero");
        member.flush().expect("flush");
        let bytes = std::fs::read(&path).expect("read");
        assert!(
            bytes.len() as u64 == SIZE
                && bytes[..8192].iter().all(|byte| *byte == 7)
                && bytes[8192..].iter().all(|byte| *byte == 0),
            "{allocation:?}"
        );
        let after = std::fs::metadata(&path).expect("metadata").blocks();
        assert!(
            if allocation == Allocation::Sparse {
                after <= before
            } else {
                after * 512 >= SIZE
            },
            "{allocation:?}: {before} {after}"
        );
        assert_eq!(
            member.zero(4096, SIZE).map_err(|error| error.code),
            Err(libc::ERANGE)
        );
    }
}

use super::*;

#[test]
fn the_host_id_is_stable_hashed_and_absent_for_images_never_started() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("machine-id");
    assert_eq!(host_id_from(&path), None);
    for unusable in [
        "",
        "uninitialized\n",
        "1234",
        "00000000000000000000000000000000\n",
        "zz345678901234567890123456789012",
    ] {
        std::fs::write(&path, unusable).expect("write");
        assert_eq!(host_id_from(&path), None, "{unusable:?}");
    }
    let id = |text: &str| {
        std::fs::write(&path, text).expect("write");
        host_id_from(&path).expect("usable")
    };
    let first = id("0123456789abcdef0123456789abcdef\n");
    assert_eq!(first, id("0123456789ABCDEF0123456789abcdef"));
    assert_ne!(first, id("1123456789abcdef0123456789abcdef\n"));
    assert_ne!(
        first,
        [
            0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab,
            0xcd, 0xef
        ]
    );
    assert_eq!(host_id(), host_id());
}

#[test]
fn an_impossible_capability_is_not_there() {
    assert!(!has_capability(63));
}

#[test]
fn memory_is_locked_where_that_is_permitted_without_limit_and_only_there() {
    let permitted = getrlimit(Resource::Memlock).current.is_none() || has_capability(CAP_IPC_LOCK);
    match lock_memory() {
        MemoryLock::Locked => {
            assert!(permitted);
            rustix::mm::munlockall().expect("unlock");
        }
        MemoryLock::NotLocked { reason } => assert!(!reason.is_empty()),
    }
}

#[test]
fn an_io_flusher_needs_the_capability() {
    // On a separate thread, because threads started later would inherit it.
    let result = std::thread::spawn(become_io_flusher)
        .join()
        .expect("thread");
    if let Err(error) = result {
        assert!(
            matches!(error.raw_os_error(), Some(libc::EPERM | libc::EINVAL)),
            "{error}"
        );
    }
}

#[test]
fn descriptors_are_allowed_up_to_the_hard_limit() {
    let hard = getrlimit(Resource::Nofile).maximum;
    assert_eq!(raise_descriptor_limit(), hard);
    assert_eq!(getrlimit(Resource::Nofile).current, hard);
}

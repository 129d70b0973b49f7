use super::*;

#[test]
fn a_file_below_dev_is_never_on_a_medium() {
    for path in ["/dev/sdzz", "/dev/../dev/sdzz", "/dev/./sdzz"] {
        // An unprivileged user cannot create one there anyway.
        match of_new_file(Path::new(path)) {
            Ok(place) => assert_eq!(place.keeps, Keeps::Devices, "{path}"),
            Err(error) => assert!(
                [
                    io::ErrorKind::PermissionDenied,
                    io::ErrorKind::ReadOnlyFilesystem
                ]
                .contains(&error.kind()),
                "{path}: {error}"
            ),
        }
    }
}

#[test]
fn the_type_of_a_file_system_is_found_by_its_number() {
    let table = "22 1 8:2 / / rw - ext4 /dev/sda2 rw\n23 22 0:5 / /mnt/dev rw,nosuid - devtmpfs udev rw\n24 22 0:31 / /tmp rw shared:3 - tmpfs tmpfs rw\n";
    let of = |text| type_in(table, DeviceNumber::parse(text).expect("a number"));
    assert_eq!(of("8:2").as_deref(), Some("ext4"));
    assert_eq!(of("0:5").as_deref(), Some("devtmpfs"));
    assert_eq!(of("0:31").as_deref(), Some("tmpfs"));
    assert_eq!(of("0:6"), None);
}

#[test]
fn what_cannot_be_a_folder_is_an_error() {
    let dir = tempfile::tempdir().expect("folder");
    std::fs::write(dir.path().join("file"), "").expect("file");
    assert!(of_new_file(&dir.path().join("file/x")).is_err());
    assert_eq!(
        of_new_file(&dir.path().join("none/x"))
            .expect_err("no folder")
            .kind(),
        io::ErrorKind::NotFound
    );
    let place = of_new_file(&dir.path().join("x")).expect("a folder");
    assert!(
        place.free_bytes > 0 && place.folder == std::fs::canonicalize(dir.path()).expect("there")
    );
    assert!(lets_be_as_large_as(&place, 1 << 20).expect("tried"));
    assert!(!lets_be_as_large_as(&place, u64::MAX).expect("tried"));
}

use super::*;

#[test]
fn entries_are_kept_and_names_stay_inside_the_folder() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::new(dir.path());
    assert_eq!(registry.load("tank").unwrap(), None);
    assert!(registry.all().is_empty());
    let names = ["tank", "../tank", "a/b", "ä"];
    for (number, name) in names.iter().enumerate() {
        registry
            .save(&PoolEntry::new(
                name,
                Uuid([number as u8; 16]),
                vec![PathBuf::from("/dev/x")],
            ))
            .unwrap();
    }
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        1,
        "nothing beside the folder of pools"
    );
    assert_eq!(registry.all().len(), names.len());
    assert_eq!(
        registry.load("../tank").unwrap().unwrap().pool,
        Uuid([1; 16])
    );
    registry.remove("tank").unwrap();
    registry.remove("tank").unwrap();
    assert_eq!(registry.load("tank").unwrap(), None);
}

/// Overwriting the file of the other pool must not lose its exports.
#[test]
fn exports_of_a_pool_that_gives_way_to_another_of_its_name_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::new(dir.path());
    let (first, second) = (Uuid([1; 16]), Uuid([2; 16]));
    let mut entry = PoolEntry::new("tank", first, Vec::new());
    entry.exports.withdrawn.insert("secret".to_owned());
    entry.last_volume = Some(VolumeId(3));
    registry.save(&entry).unwrap();
    registry
        .save(&PoolEntry::new("tank", second, Vec::new()))
        .unwrap();
    let kept = registry.set_aside(first).unwrap().unwrap();
    assert_eq!(
        (kept.exports, kept.last_volume),
        (entry.exports, Some(VolumeId(3)))
    );
    assert!(registry.set_aside(second).unwrap().is_none());
    registry.forget_exports(first).unwrap();
    assert!(registry.set_aside(first).unwrap().is_none());
    std::fs::write(registry.left_path(second), "{").unwrap();
    assert!(
        registry
            .set_aside(second)
            .is_err_and(|failure| failure.id == id::LOCAL_FILE)
    );
}

#[test]
fn a_broken_file_is_an_error_with_its_path_and_not_a_missing_pool() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::new(dir.path());
    registry
        .save(&PoolEntry::new("tank", Uuid([1; 16]), Vec::new()))
        .unwrap();
    let path = registry.path("tank");
    std::fs::write(&path, "{").unwrap();
    let failure = registry.load("tank").unwrap_err();
    assert!(
        failure.id == id::LOCAL_FILE && failure.what.contains("tank.json"),
        "{failure}"
    );
    assert!(registry.all().is_empty());
    // An unreadable entry must be listed, not skipped.
    let unreadable = registry.read_all().unwrap().unreadable;
    assert_eq!(unreadable, [("tank".to_owned(), failure)]);
    std::fs::write(dir.path().join("pools/notes.txt"), "x").unwrap();
    std::fs::write(dir.path().join("pools/%zz.json"), "x").unwrap();
    assert_eq!(
        registry.read_all().unwrap().unreadable.len(),
        1,
        "what is not of the registry"
    );
}

#[test]
fn the_host_identifier_is_made_once() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::new(dir.path());
    let first = registry.host_id().unwrap();
    assert_eq!(Registry::new(dir.path()).host_id().unwrap(), first);
    assert_ne!(first, Uuid::default());
    assert_eq!(
        std::fs::read_dir(dir.path().join("pools")).unwrap().count(),
        1,
        "no draft is left"
    );
}

/// A power cut soon after `pool create` must leave a complete file. With an empty one no pool
/// starts; without one the pool is another host's.
#[test]
fn the_host_identifier_is_durable_before_it_is_given_out() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::new(&dir.path().join("state"));
    let path = dir.path().join("state/pools/host-id");
    let synced = std::cell::RefCell::new(Vec::new());
    let sync = |file: &File| {
        let metadata = file.metadata()?;
        synced
            .borrow_mut()
            .push((metadata.is_dir(), metadata.len() == 37, path.exists()));
        file.sync_all()
    };
    registry.host_id_with(&sync).unwrap();
    let whole = (false, true, false);
    let folders: Vec<_> = synced
        .borrow()
        .iter()
        .map(|(is_folder, _, is_linked)| (*is_folder, *is_linked))
        .collect();
    assert_eq!(
        folders,
        [(true, false), (true, false), (false, false), (true, true)],
        "two folders are made, the file, its link"
    );
    assert_eq!(synced.borrow()[2], whole);
    synced.borrow_mut().clear();
    registry.host_id_with(&sync).unwrap();
    assert!(synced.borrow().is_empty(), "read only");
}

#[test]
fn an_empty_or_strange_host_identifier_is_reported_with_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::new(dir.path());
    let first = registry.host_id().unwrap();
    let path = dir.path().join("pools/host-id");
    for (content, why) in [
        (&b""[..], "it is empty"),
        (b"\n", "it is empty"),
        (b"tank\n", "it holds no identifier"),
        (b"\xff", "it holds no identifier"),
    ] {
        std::fs::write(&path, content).unwrap();
        let failure = registry.host_id().unwrap_err();
        let line = failure.to_string();
        assert!(
            failure.id == id::LOCAL_FILE
                && line.contains("host-id")
                && line.contains(why)
                && line.contains("remove it"),
            "{line}"
        );
    }
    std::fs::remove_file(&path).unwrap();
    assert_ne!(registry.host_id().unwrap(), first);
}

use super::*;

#[test]
fn entries_are_kept_and_names_stay_inside_the_folder() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::new(dir.path());
    assert_eq!(registry.load("tank").unwrap(), None);
    assert!(registry.all().is_empty());
    let names = ["tank", "../tank", "a/b", "ä"];
    for (number, name) in names.iter().enumerate() {
        registry.save(&PoolEntry::new(name, Uuid([number as u8; 16]), vec![PathBuf::from("/dev/x")])).unwrap();
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing beside the folder of pools");
    assert_eq!(registry.all().len(), names.len());
    assert_eq!(registry.load("../tank").unwrap().unwrap().pool, Uuid([1; 16]));
    registry.remove("tank").unwrap();
    registry.remove("tank").unwrap();
    assert_eq!(registry.load("tank").unwrap(), None);
}

#[test]
fn a_broken_file_is_an_error_with_its_path_and_not_a_missing_pool() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::new(dir.path());
    registry.save(&PoolEntry::new("tank", Uuid([1; 16]), Vec::new())).unwrap();
    let path = registry.path("tank");
    std::fs::write(&path, "{").unwrap();
    let failure = registry.load("tank").unwrap_err();
    assert!(failure.id == id::LOCAL_FILE && failure.what.contains("tank.json"), "{failure}");
    assert!(registry.all().is_empty());
}

#[test]
fn the_host_identifier_is_made_once() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::new(dir.path());
    let first = registry.host_id().unwrap();
    assert_eq!(Registry::new(dir.path()).host_id().unwrap(), first);
    assert_ne!(first, Uuid::default());
    assert_eq!(std::fs::read_dir(dir.path().join("pools")).unwrap().count(), 1, "no draft is left");
}

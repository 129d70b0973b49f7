//! A daemon's files: an entry of the registry of pools, and the identifier of the host. No content
//! makes it panic, and accepted content is kept.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use windrow_host::registry::Registry;

/// Never dropped; `cargo xtask fuzz` removes it with all of its temporary folder.
static FOLDER: LazyLock<tempfile::TempDir> =
    LazyLock::new(|| tempfile::tempdir().expect("a folder"));

fuzz_target!(|input: &[u8]| {
    let registry = Registry::new(FOLDER.path());
    let pools = FOLDER.path().join("pools");
    std::fs::create_dir_all(&pools).expect("a folder");
    std::fs::write(pools.join("tank.json"), input).expect("a file");
    let loaded = registry.load("tank");
    let listed = registry.all();
    if let Ok(Some(entry)) = loaded {
        registry.save(&entry).expect("what was read can be kept");
        let again = registry
            .load("tank")
            .expect("what was kept can be read")
            .expect("it is there");
        assert_eq!(
            serde_json::to_value(&again).ok(),
            serde_json::to_value(&entry).ok()
        );
    } else {
        assert!(
            listed.iter().all(|entry| entry.name != "tank"),
            "what cannot be read is not listed"
        );
    }
    std::fs::write(pools.join("host-id"), input).expect("a file");
    if let Ok(id) = registry.host_id() {
        assert_eq!(registry.host_id().ok(), Some(id));
    }
});

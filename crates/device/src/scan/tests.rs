use super::*;
use crate::{Allocation, create_file};

fn decode(bytes: &[u8]) -> Option<u8> {
    assert_eq!(bytes.len(), 4096);
    (bytes[..4] == *b"TEST").then(|| bytes[4])
}

#[test]
fn members_are_found_once_and_in_order_and_nothing_else_is_opened() {
    let folder = tempfile::tempdir().expect("folder");
    let at = |name: &str| folder.path().join(name);
    for (name, number) in [("b", 2u8), ("a", 1)] {
        create_file(&at(name), 16384, Allocation::Sparse).expect("create");
        let file = File::options().write(true).open(at(name)).expect("open");
        file.write_all_at(&[b'T', b'E', b'S', b'T', number], 4096).expect("write");
    }
    std::fs::write(at("short"), b"TEST").expect("write");
    std::fs::create_dir(at("folder")).expect("folder");
    std::os::unix::fs::symlink(at("a"), at("z")).expect("link");
    std::os::unix::fs::symlink(at("nowhere"), at("dangling")).expect("link");
    let status = std::process::Command::new("mkfifo").arg(at("pipe")).status();
    assert!(status.is_ok_and(|s| s.success()), "a pipe that would block if opened");

    let found = scan(&[folder.path().to_owned(), at("b"), at("nothing here")], decode);
    assert_eq!(found.members, [(at("a"), 1), (at("b"), 2)]);
    assert_eq!(found.unreadable.len(), 1);
    assert_eq!(found.unreadable[0].0, at("nothing here"));
}

#[test]
fn listed_block_devices_are_block_devices() {
    for path in block_devices() {
        assert!(std::fs::metadata(&path).is_ok_and(|m| m.file_type().is_block_device()), "{}", path.display());
    }
}

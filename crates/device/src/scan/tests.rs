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
        file.write_all_at(&[b'T', b'E', b'S', b'T', number], 4096)
            .expect("write");
    }
    std::fs::write(at("short"), b"TEST").expect("write");
    std::fs::create_dir(at("folder")).expect("folder");
    std::os::unix::fs::symlink(at("a"), at("z")).expect("link");
    std::os::unix::fs::symlink(at("nowhere"), at("dangling")).expect("link");
    let status = std::process::Command::new("mkfifo")
        .arg(at("pipe"))
        .status();
    assert!(
        status.is_ok_and(|s| s.success()),
        "a pipe that would block if opened"
    );

    let found = scan(
        &[folder.path().to_owned(), at("b"), at("nothing here")],
        decode,
    );
    assert_eq!(found.members, [(at("a"), 1), (at("b"), 2)]);
    assert_eq!(found.unreadable.len(), 1);
    assert_eq!(found.unreadable[0].0, at("nothing here"));
}

#[test]
fn listed_block_devices_are_block_devices() {
    for path in block_devices() {
        assert!(
            std::fs::metadata(&path).is_ok_and(|m| m.file_type().is_block_device()),
            "{}",
            path.display()
        );
    }
}

#[test]
fn what_is_excepted_is_passed_over_by_any_name() {
    let folder = tempfile::tempdir().expect("folder");
    let at = |name: &str| folder.path().join(name);
    for name in ["a", "b"] {
        std::fs::write(at(name), [&[0; 4096][..], b"TEST", &[7; 4092]].concat()).expect("write");
    }
    std::os::unix::fs::symlink(at("a"), at("link")).expect("link");
    let found = scan_except(
        &[folder.path().to_owned()],
        &[at("link"), at("nothing here")],
        decode,
    );
    assert_eq!(
        (found.members, found.unreadable.len()),
        (vec![(at("b"), 7)], 0)
    );
}

/// A network block device with a dead server, or one that the pool itself serves, must not block
/// the start of the pool.
#[test]
fn a_device_that_does_not_answer_is_left_out_and_the_others_are_read() {
    let (keep, wait) = mpsc::channel::<()>();
    let never = std::sync::Mutex::new(wait);
    let read = move |path: &Path| {
        if path == Path::new("hangs") {
            let _ = never.lock().expect("alone").recv();
        }
        Ok(Some(path.as_os_str().as_encoded_bytes().to_vec()))
    };
    // More than are read at once: the others must not be delayed, either.
    let paths: Vec<PathBuf> = (0..AT_ONCE + 10)
        .map(|number| {
            PathBuf::from(if number == 3 {
                "hangs".to_owned()
            } else {
                format!("{number}")
            })
        })
        .collect();
    let labels = read_devices(&paths, Duration::from_secs(2), &(Arc::new(read) as Reader));
    drop(keep);
    for (number, label) in labels.into_iter().enumerate() {
        match label {
            Ok(bytes) => assert_eq!(bytes, Some(number.to_string().into_bytes())),
            Err(error) => assert_eq!((number, error.kind()), (3, io::ErrorKind::TimedOut)),
        }
    }
}

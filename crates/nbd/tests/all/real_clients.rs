//! Foreign programs against the server: libnbd, nbdcopy, nbdinfo, qemu, fio. Their scripts are in
//! `tests/clients`; a test is skipped with a message if a program is missing.

use crate::support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use support::Fixture;
use windrow_frontend::ram::{Delivery, RamExport, RamSource};
use windrow_nbd::{Listen, Server, ServerOptions};

const SKIPPED: i32 = 77;

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/clients")
        .join(name)
}

/// Runs a command; false if it reports a missing dependency.
fn run(command: &mut Command) -> bool {
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("skipped: {command:?}: {error}");
            return false;
        }
    };
    let text = || {
        format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    };
    if output.status.code() == Some(SKIPPED) {
        eprintln!("skipped: {command:?}: {}", text());
        return false;
    }
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}",
        output.status,
        text()
    );
    true
}

/// Runs a script against a server with each delivery of completions.
fn against_both(name: &str) {
    for delivery in [Delivery::AtOnce, Delivery::Later] {
        let fixture = Fixture::new(ServerOptions::default());
        fixture.source.set_delivery(delivery);
        if run(Command::new("bash").arg(script(name)).arg(fixture.uri(""))) {
            fixture.wait_empty();
            assert!(fixture.source.counters().reads > 0);
        }
    }
}

#[test]
fn libnbd_legal_and_illegal_requests() {
    for delivery in [Delivery::AtOnce, Delivery::Later] {
        let fixture = Fixture::new(ServerOptions::default());
        fixture.source.set_delivery(delivery);
        // The bindings belong to the system's interpreter, which need not be the first in the path.
        let tried = ["python3", "/usr/bin/python3"];
        let ran = tried.iter().any(|python| {
            run(Command::new(python)
                .arg(script("protocol.py"))
                .arg(fixture.uri(""))
                .arg(fixture.uri("fixed")))
        });
        if ran {
            let counters = fixture.source.counters();
            assert!(
                counters.forced >= 6 && counters.flushes >= 3 && counters.statuses >= 2,
                "{counters:?}"
            );
        }
    }
}

#[test]
fn images_are_copied_and_compared() {
    against_both("images.sh");
}

#[test]
fn fio_verifies_what_it_wrote() {
    against_both("load.sh");
}

#[test]
fn nbdinfo_lists_all_exports() {
    let fixture = Fixture::new(ServerOptions::default());
    let Ok(output) = Command::new("nbdinfo")
        .args(["--list", "--json", &fixture.uri("")])
        .output()
    else {
        return eprintln!("skipped: nbdinfo is missing");
    };
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let info: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<&str> = info["exports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|export| export["export-name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["", "fixed"]);
    assert_eq!(info["exports"][1]["is_read_only"], true);
    assert_eq!(info["exports"][0]["description"], "volume in memory");
}

/// `qemu-nbd --list` asks twice about each export: the limit of options must allow that for all of
/// them.
#[test]
fn as_many_exports_as_there_can_be_are_listed() {
    const COUNT: usize = 4096;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let name = |number: usize| format!("{number:0255}");
    let exports: Vec<RamExport> = (0..COUNT)
        .map(|number| RamExport::new(&name(number), 4096))
        .collect();
    let server = Server::start(
        Arc::new(RamSource::new(&exports)),
        vec![Listen::Unix(path.clone())],
        ServerOptions::default(),
    )
    .unwrap();
    let fixture = Fixture::around(server, path, folder);
    match Command::new("qemu-nbd")
        .args(["--list", "-k"])
        .arg(&fixture.path)
        .output()
    {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(
                output.status.success() && text.contains("exports available: 4096"),
                "{}",
                String::from_utf8_lossy(&output.stderr)
            );
            let names: Vec<&str> = text
                .lines()
                .filter_map(|line| line.split_once("export: '")?.1.strip_suffix('\''))
                .collect();
            assert!(
                names
                    .iter()
                    .enumerate()
                    .all(|(number, found)| **found == *name(number))
                    && names.len() == COUNT,
                "{} names",
                names.len()
            );
        }
        Err(_) => eprintln!("skipped: qemu-nbd is missing"),
    }
    match Command::new("nbdinfo")
        .args(["--list", "--json", &fixture.uri("")])
        .output()
    {
        Ok(output) => {
            assert!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&output.stderr)
            );
            let info: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            let exports = info["exports"].as_array().unwrap();
            assert!(
                exports
                    .iter()
                    .enumerate()
                    .all(|(number, export)| export["export-name"] == name(number))
                    && exports.len() == COUNT
            );
        }
        Err(_) => eprintln!("skipped: nbdinfo is missing"),
    }
    fixture.wait_empty();
    assert_eq!(fixture.server().watch().usage().unwrap().refused, 0);
}

//! Packages that the tests use: production clients, and the compiler that fuzzing needs. A fresh
//! machine lacks them.

use crate::steps::Done;
use crate::tools;
use std::path::Path;

/// A system package, a check that it is installed, and the tests that need it.
struct Needed {
    package: &'static str,
    probe: Probe,
    without: &'static str,
}

enum Probe {
    Program(&'static str),
    PythonModule(&'static str),
}

const fn program(package: &'static str, program: &'static str, without: &'static str) -> Needed {
    Needed {
        package,
        probe: Probe::Program(program),
        without,
    }
}

const NEEDED: &[Needed] = &[
    program("fio", "fio", "fio as a client"),
    program("nbdkit", "nbdkit", "comparison with other NBD servers"),
    program("libnbd-bin", "nbdinfo", "nbdinfo and nbdcopy as clients"),
    Needed {
        package: "python3-libnbd",
        probe: Probe::PythonModule("nbd"),
        without: "the protocol, legal and illegal requests, by libnbd",
    },
    program("qemu-utils", "qemu-img", "qemu-img and qemu-io as clients"),
    program("xfsprogs", "mkfs.xfs", "an XFS file system on a volume"),
    program("e2fsprogs", "mkfs.ext4", "an ext4 file system on a volume"),
    program("nbdfuse", "nbdfuse", "files through FUSE"),
    program(
        "g++",
        "c++",
        "the fuzz targets: libFuzzer is compiled by it",
    ),
    Needed {
        package: "libpython3-stdlib",
        probe: Probe::PythonModule("sqlite3"),
        without: "a database on a volume",
    },
];

/// Installs missing packages if that is allowed, and reports which tests will be skipped otherwise.
pub fn install(root: &Path) -> Result<Done, String> {
    if missing(root).is_empty() {
        return Ok(Done::Passed("all present".to_owned()));
    }
    if is_root(root) && tools::find_program("apt-get").is_some() {
        let wanted: Vec<&str> = missing(root).iter().map(|needed| needed.package).collect();
        println!("installing {}", wanted.join(" "));
        // A second try, because mirrors fail occasionally.
        if let Err(first) = apt(root, &wanted) {
            println!("{first}; trying once more");
            match apt(root, &wanted) {
                Err(error) if tools::on_ci() => return Err(error),
                Err(error) => println!("{error}"),
                Ok(()) => {}
            }
        }
    }
    let left = missing(root);
    for needed in &left {
        println!(
            "{} is not installed: not tested: {}",
            needed.package, needed.without
        );
    }
    match left.len() {
        0 => Ok(Done::Passed("installed".to_owned())),
        _ if tools::on_ci() && is_root(root) => {
            Err("packages are missing after their installation".to_owned())
        }
        count => Ok(Done::Skipped(format!(
            "{count} packages are missing: {}",
            left.iter()
                .map(|needed| needed.package)
                .collect::<Vec<_>>()
                .join(" ")
        ))),
    }
}

fn missing(root: &Path) -> Vec<&'static Needed> {
    let present = |probe: &Probe| match probe {
        Probe::Program(name) => tools::find_program(name).is_some(),
        Probe::PythonModule(name) => {
            // The package serves the system's Python; another one may come first in the path.
            let system = "/usr/bin/python3";
            let mut python = tools::program(
                root,
                if Path::new(system).is_file() {
                    system
                } else {
                    "python3"
                },
            );
            python.arg("-c").arg(format!("import {name}"));
            tools::succeeds(python)
        }
    };
    NEEDED
        .iter()
        .filter(|needed| !present(&needed.probe))
        .collect()
}

fn apt(root: &Path, packages: &[&str]) -> Result<(), String> {
    let command = |arguments: &[&str]| {
        let mut command = tools::program(root, "apt-get");
        command
            .args(["-qq", "-o", "Dpkg::Use-Pty=0"])
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    tools::run(command(&["update"]), 300)?;
    let mut install = command(&["install", "-y", "--no-install-recommends"]);
    install.args(packages);
    tools::run(install, 900)
}

fn is_root(root: &Path) -> bool {
    let mut id = tools::program(root, "id");
    id.arg("-u");
    tools::output(id).is_ok_and(|text| text.trim() == "0")
}

//! `bench`: one benchmark with all its arguments, or the whole set in a short form with its results
//! in a folder.

use crate::tools;
use std::path::{Path, PathBuf};

const HOUR_S: u32 = 60 * 60;

/// A benchmark of the short form: the folder of its results, its arguments, and whether it needs
/// fio.
struct Short {
    folder: &'static str,
    arguments: &'static [&'static str],
    on_files: bool,
    needs_fio: bool,
}

const SHORT: &[Short] = &[
    Short {
        folder: "memory",
        arguments: &["engine", "--seconds", "3", "--rounds", "3"],
        on_files: false,
        needs_fio: false,
    },
    Short {
        folder: "memory",
        arguments: &["table", "--seconds", "0.3", "--rounds", "3"],
        on_files: false,
        needs_fio: false,
    },
    Short {
        folder: "memory",
        arguments: &[
            "steady",
            "--size",
            "256M",
            "--segment",
            "512K",
            "--utilisation",
            "50%,70%,90%",
        ],
        on_files: false,
        needs_fio: false,
    },
    Short {
        folder: "memory",
        arguments: &[
            "sync",
            "--size",
            "256M",
            "--seconds",
            "1",
            "--rounds",
            "3",
            "--threads",
            "1,16",
        ],
        on_files: false,
        needs_fio: false,
    },
    Short {
        folder: "modelled",
        arguments: &["journal-study", "--quick"],
        on_files: false,
        needs_fio: false,
    },
    Short {
        folder: "files",
        arguments: &[
            "engine",
            "--size",
            "512M",
            "--seconds",
            "5",
            "--rounds",
            "3",
            "--full",
            "70%,90%",
        ],
        on_files: true,
        needs_fio: false,
    },
    Short {
        folder: "files",
        arguments: &["read", "--size", "512M", "--seconds", "2", "--rounds", "3"],
        on_files: true,
        needs_fio: true,
    },
    Short {
        folder: "files",
        arguments: &[
            "sync",
            "--size",
            "256M",
            "--seconds",
            "2",
            "--rounds",
            "3",
            "--load",
            "flush,fua",
            "--part",
            "writes,nbd",
        ],
        on_files: true,
        needs_fio: true,
    },
    Short {
        folder: "files",
        arguments: &["nbd", "--size", "256M", "--seconds", "2", "--rounds", "3"],
        on_files: true,
        needs_fio: true,
    },
];

/// Runs `windrow-bench` with these arguments; without any, or with options only of the set, the
/// set.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    match options(root, arguments)? {
        Some((dir, results)) => all(root, &dir, &results),
        None => windrow_bench(root, arguments),
    }
}

/// Folders of scratch files and of results, if the set is requested.
fn options(root: &Path, arguments: &[String]) -> Result<Option<(PathBuf, PathBuf)>, String> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let (mut dir, mut results) = (target.join("bench-scratch"), target.join("bench-results"));
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let place = match argument.as_str() {
            "--dir" => &mut dir,
            "--results" => &mut results,
            // A benchmark's own name or option.
            _ => return Ok(None),
        };
        let value = rest
            .next()
            .ok_or_else(|| format!("`{argument}` needs a folder"))?;
        *place = std::path::absolute(value).map_err(|error| error.to_string())?;
    }
    Ok(Some((dir, results)))
}

fn windrow_bench(root: &Path, arguments: &[String]) -> Result<(), String> {
    let mut command = tools::cargo(root);
    command
        .args([
            "run",
            "--release",
            "--quiet",
            "--package",
            "windrow-bench",
            "--",
        ])
        .args(arguments);
    tools::run(command, HOUR_S)
}

/// Runs the whole set, regardless of failures.
fn all(root: &Path, dir: &Path, results: &Path) -> Result<(), String> {
    let failure = |error: std::io::Error| error.to_string();
    std::fs::create_dir_all(dir)
        .and_then(|()| std::fs::create_dir_all(results))
        .map_err(failure)?;
    let fio = tools::find_program("fio").is_some();
    let mut failed = Vec::new();
    for short in SHORT {
        let name = format!("{}: {}", short.folder, short.arguments.join(" "));
        if short.needs_fio && !fio {
            println!("\n== {name}\nskipped: fio is not installed");
            continue;
        }
        println!("\n== {name}");
        let mut arguments: Vec<String> = short
            .arguments
            .iter()
            .map(|argument| (*argument).to_owned())
            .collect();
        arguments.extend([
            "--results".to_owned(),
            results.join(short.folder).display().to_string(),
        ]);
        if short.on_files {
            arguments.extend(["--dir".to_owned(), dir.display().to_string()]);
        }
        failed.extend(windrow_bench(root, &arguments).err());
    }
    println!("\n== the engine's own thread");
    failed.extend(engine_thread(root, &results.join("engine-thread.txt")).err());
    // Benchmarks remove their files themselves; remaining files belong to others.
    _ = std::fs::remove_dir(dir);
    println!("\nresults are in {}", results.display());
    if failed.is_empty() {
        Ok(())
    } else {
        Err(failed.join("\n"))
    }
}

/// Processor time of the engine thread for each block.
fn engine_thread(root: &Path, path: &Path) -> Result<(), String> {
    let mut command = tools::cargo(root);
    command.args([
        "run",
        "--release",
        "--quiet",
        "--package",
        "windrow-engine",
        "--example",
        "engine_bench",
        "10000000",
        "3000000",
    ]);
    let text = tools::output(command)?;
    print!("{text}");
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_benchmark_and_folders_are_the_set() {
        let root = Path::new("/r");
        let words = |text: &str| {
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(options(root, &words("steady --size 1G")), Ok(None));
        assert_eq!(options(root, &words("--help")), Ok(None));
        let set = options(root, &words("--dir /d --results /o")).unwrap();
        assert_eq!(set, Some((PathBuf::from("/d"), PathBuf::from("/o"))));
        assert!(options(root, &[]).unwrap().is_some() && options(root, &words("--dir")).is_err());
    }
}

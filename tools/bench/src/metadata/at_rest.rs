//! File systems at rest: images that `mke2fs` and `mkfs.xfs` fill themselves. Nothing is mounted,
//! nothing is journalled.

use super::classes::Classes;
use super::files::Sample;
use super::system::System;
use super::{Totals, cannot};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::path::{Component, Path};
use windrow_host::Failure;
use windrow_types::BLOCK_SIZE;

/// A folder of the list that `mkfs.xfs` takes.
#[derive(Default)]
struct Folder<'a> {
    folders: BTreeMap<&'a str, Self>,
    files: Vec<&'a str>,
}

/// Creates an image of `bytes` bytes with the samples in it, and classifies its blocks.
pub fn look(
    system: System,
    samples: &[Sample],
    image_bytes: u64,
) -> Result<(Classes, Totals), Failure> {
    let failure = |error: &dyn std::fmt::Display| cannot("make an image of", system.name(), error);
    let folder = tempfile::Builder::new()
        .prefix("windrow-bench-")
        .tempdir()
        .map_err(|error| failure(&error))?;
    let (tree, image, list) = (
        folder.path().join("tree"),
        folder.path().join("image"),
        folder.path().join("list"),
    );
    let mut classes = Classes::new();
    let totals = stage(&tree, samples, &mut classes).map_err(|error| failure(&error))?;
    File::create(&image)
        .and_then(|image| image.set_len(image_bytes))
        .map_err(|error| failure(&error))?;
    match system {
        System::Ext4 => system.make(&image, &["-d", &tree.to_string_lossy()])?,
        System::Xfs => {
            std::fs::write(&list, of_xfs(&tree, samples)).map_err(|error| failure(&error))?;
            system.make(&image, &["-p", &list.to_string_lossy()])?;
        }
    }
    let mut file = File::open(&image).map_err(|error| failure(&error))?;
    let mut block = [0; BLOCK_SIZE];
    for number in 0..image_bytes / BLOCK_SIZE as u64 {
        file.read_exact(&mut block)
            .map_err(|error| failure(&error))?;
        if number == 0 {
            classes.set_journal(system.journal(&image, &block)?);
        }
        classes.count(number, &block);
    }
    Ok((classes, totals))
}

/// Copies of the files, under their original names.
fn stage(tree: &Path, samples: &[Sample], classes: &mut Classes) -> std::io::Result<Totals> {
    let mut totals = Totals::default();
    for sample in samples {
        let bytes = sample.read();
        let path = tree.join(&sample.name);
        path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        std::fs::write(path, &bytes)?;
        classes.note_file(&bytes);
        totals.note(bytes.len());
    }
    Ok(totals)
}

/// Prototype file of `mkfs.xfs -p`: files with the paths of their content, folders closed by `$`.
fn of_xfs(tree: &Path, samples: &[Sample]) -> String {
    let mut root = Folder::default();
    for sample in samples {
        let mut at = &mut root;
        let names: Vec<&str> = sample
            .name
            .components()
            .filter_map(|part| {
                if let Component::Normal(name) = part {
                    name.to_str()
                } else {
                    None
                }
            })
            .collect();
        let Some((file, folders)) = names.split_last() else {
            continue;
        };
        for name in folders {
            at = at.folders.entry(name).or_default();
        }
        at.files.push(file);
    }
    let mut text = "/nothing-to-start-from\n0 0\nd--755 0 0\n".to_owned();
    list(&root, tree, &mut text);
    text
}

fn list(folder: &Folder<'_>, place: &Path, text: &mut String) {
    for file in &folder.files {
        // Writing to a string never fails.
        _ = writeln!(text, "{file} ---644 0 0 {}", place.join(file).display());
    }
    for (name, below) in &folder.folders {
        _ = writeln!(text, "{name} d--755 0 0");
        list(below, &place.join(name), text);
    }
    text.push_str("$\n");
}

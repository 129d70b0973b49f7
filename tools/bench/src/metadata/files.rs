//! Files that the loads write: a sample of a tree, with content.
//!
//! They are chosen in the order of the fingerprints of their names, until there are enough bytes: a
//! fair sample of the tree that is the same each time. Then they are sorted by name.

use crate::metadata::cannot;
use std::path::{Path, PathBuf};
use windrow_host::Failure;
use windrow_host::failure::id;
use windrow_reduction::Fingerprint;

/// A file of the tree.
pub struct Sample {
    /// Name within the tree, without white space (which the list for `mkfs.xfs` cannot contain).
    pub name: PathBuf,
    source: PathBuf,
    /// Its size when it was chosen.
    pub bytes: u64,
}

impl Sample {
    /// Its content; empty if unreadable.
    pub fn read(&self) -> Vec<u8> {
        std::fs::read(&self.source).unwrap_or_default()
    }
}

/// Chooses files of the tree, of about `bytes` in total.
pub fn choose(tree: &Path, bytes: u64) -> Result<Vec<Sample>, Failure> {
    let mut found = Vec::new();
    std::fs::read_dir(tree)
        .map_err(|error| cannot("read the tree of files", tree.display(), error))?;
    walk(tree, tree, &mut found);
    found.sort_by_key(|file| Fingerprint::Fast.of(file.name.as_os_str().as_encoded_bytes()));
    let mut sum = 0;
    // One very large file would be the whole sample.
    found.retain(|file| {
        file.bytes <= bytes / 8 && sum < bytes && {
            sum += file.bytes;
            true
        }
    });
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found.dedup_by(|one, other| one.name == other.name);
    if found.is_empty() {
        let why = format!(
            "{} has no files of at most {} bytes",
            tree.display(),
            bytes / 8
        );
        return Err(Failure::new(id::USAGE, "cannot choose files", why)
            .remedy("name another tree with --tree, or more with --bytes"));
    }
    Ok(found)
}

/// All readable regular files below; links are not followed.
fn walk(tree: &Path, dir: &Path, found: &mut Vec<Sample>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let Ok(about) = entry.metadata() else {
            continue;
        };
        let source = entry.path();
        if about.is_dir() {
            walk(tree, &source, found);
        } else if about.is_file() && about.len() > 0 {
            let Some(name) = source.strip_prefix(tree).ok().and_then(Path::to_str) else {
                continue;
            };
            let name = name
                .replace(|c: char| c.is_whitespace() || c.is_control(), "_")
                .into();
            found.push(Sample {
                name,
                source,
                bytes: about.len(),
            });
        }
    }
}

//! Two names for the same bytes: a path given twice, links, two nodes of one device, a partition
//! and its disk, loop devices and their backing.

use super::usage::{is_same, span};
use crate::place::parent;
use crate::sysfs::{DeviceNumber, text};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Two of the given paths that share bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Twice {
    /// Index of the first.
    pub first: usize,
    /// Index of the second.
    pub second: usize,
    /// Shared bytes, for messages.
    pub why: String,
}

/// A path with the data that identifies its target.
struct Named<'p> {
    path: &'p Path,
    /// Metadata of an existing target.
    metadata: Option<fs::Metadata>,
    /// Location of a missing target.
    place: PathBuf,
    /// Folder of a block device in sysfs.
    folder: Option<PathBuf>,
}

impl<'p> Named<'p> {
    fn new(path: &'p Path) -> Self {
        let metadata = fs::metadata(path).ok();
        let folder = fs::canonicalize(parent(path)).unwrap_or_else(|_| parent(path).to_owned());
        let place = folder.join(path.file_name().unwrap_or_default());
        let number = metadata
            .as_ref()
            .filter(|metadata| metadata.file_type().is_block_device())
            .map(|metadata| DeviceNumber::from_raw(metadata.rdev()));
        Self {
            path,
            metadata,
            place,
            folder: number.and_then(DeviceNumber::folder),
        }
    }

    /// The disk of a partition.
    fn disk(&self) -> Option<&Path> {
        self.folder
            .as_deref()
            .filter(|folder| folder.join("partition").exists())
            .and_then(Path::parent)
    }

    /// Backing of a loop device.
    fn below(&self) -> Option<PathBuf> {
        text(&self.folder.as_ref()?.join("loop/backing_file")).map(PathBuf::from)
    }

    fn in_common(&self, other: &Self) -> Option<String> {
        let (one, two) = (self.path.display(), other.path.display());
        let is_same_path =
            || std::path::absolute(self.path).ok() == std::path::absolute(other.path).ok();
        let names = |kind: &str| {
            if is_same_path() {
                format!("{two} is named twice")
            } else {
                format!("{one} and {two} are two names of one {kind}")
            }
        };
        let (Some(metadata), Some(_)) = (&self.metadata, &other.metadata) else {
            let is_same_place =
                self.metadata.is_none() && other.metadata.is_none() && self.place == other.place;
            return is_same_place.then(|| names("file"));
        };
        if is_same(other.path, metadata) {
            return Some(names(if metadata.file_type().is_block_device() {
                "device"
            } else {
                "file"
            }));
        }
        if other.disk().is_some() && other.disk() == self.folder.as_deref() {
            return Some(format!("{two} is a partition of {one}"));
        }
        if self.disk().is_some() && self.disk() == other.folder.as_deref() {
            return Some(format!("{one} is a partition of {two}"));
        }
        self.over_the_same(other)
    }

    fn over_the_same(&self, other: &Self) -> Option<String> {
        let (one, two) = (self.path.display(), other.path.display());
        let is_over = |above: &Self, below: &Self| {
            above.below().is_some_and(|file| {
                below
                    .metadata
                    .as_ref()
                    .is_some_and(|metadata| is_same(&file, metadata))
            })
        };
        if is_over(self, other) {
            return Some(format!("{one} is a loop device over {two}"));
        }
        if is_over(other, self) {
            return Some(format!("{two} is a loop device over {one}"));
        }
        let (below, beside) = (self.below()?, other.below()?);
        if !fs::metadata(&below).is_ok_and(|metadata| is_same(&beside, &metadata)) {
            return None;
        }
        let (own, its) = (
            span(self.folder.as_deref()?),
            span(other.folder.as_deref()?),
        );
        (own.start < its.end && its.start < own.end).then(|| {
            format!(
                "{one} and {two} are loop devices over the same bytes of {}",
                below.display()
            )
        })
    }
}

/// The first two paths that share bytes.
pub fn named_twice<'p>(paths: impl IntoIterator<Item = &'p Path>) -> Option<Twice> {
    let named: Vec<Named<'_>> = paths.into_iter().map(Named::new).collect();
    for (second, other) in named.iter().enumerate() {
        for (first, one) in named[..second].iter().enumerate() {
            if let Some(why) = one.in_common(other) {
                return Some(Twice { first, second, why });
            }
        }
    }
    None
}

//! Finding members: which of these files and devices bear a label?
//!
//! The caller brings the decoder, because this crate does not know the format; it is shown the 4096 bytes at byte 4096.

#[cfg(test)]
mod tests;

use crate::file::resolved;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Where the label is.
const LABEL_OFFSET: u64 = 4096;
const LABEL_BYTES: usize = 4096;

/// What a scan found.
#[derive(Debug)]
pub struct Found<T> {
    /// Those with a label, in the order of the search, each file or device once.
    pub members: Vec<(PathBuf, T)>,
    /// Those that could not be read: something to tell when a member is missed.
    pub unreadable: Vec<(PathBuf, io::Error)>,
}

/// Looks at files and block devices, and at what lies directly in folders. Anything else (pipes, sockets, terminals) is passed over
/// without being opened. Nothing is locked or changed.
pub fn scan<T>(places: &[PathBuf], mut decode: impl FnMut(&[u8]) -> Option<T>) -> Found<T> {
    let mut found = Found { members: Vec::new(), unreadable: Vec::new() };
    let mut seen = HashSet::new();
    for place in places {
        let candidates = match fs::metadata(place) {
            Ok(metadata) if metadata.is_dir() => match folder_content(place) {
                Ok(content) => content,
                Err(error) => {
                    found.unreadable.push((place.clone(), error));
                    continue;
                }
            },
            Ok(_) => vec![place.clone()],
            Err(error) => {
                found.unreadable.push((place.clone(), error));
                continue;
            }
        };
        for path in candidates {
            match read_label(&path, &mut seen) {
                Ok(Some(bytes)) => found.members.extend(decode(&bytes).map(|label| (path, label))),
                Ok(None) => {}
                Err(error) => found.unreadable.push((path, error)),
            }
        }
    }
    found
}

/// All block devices of this system that have a size: disks, partitions, volumes of volume managers.
pub fn block_devices() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir("/sys/class/block") else { return Vec::new() };
    let mut devices: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| crate::sysfs::text(&entry.path().join("size")).is_some_and(|size| size != "0"))
        // Names with a slash in /dev have an exclamation mark in sysfs.
        .map(|entry| Path::new("/dev").join(entry.file_name().to_string_lossy().replace('!', "/")))
        .filter(|path| fs::metadata(path).is_ok_and(|m| m.file_type().is_block_device()))
        .collect();
    devices.sort();
    devices
}

fn folder_content(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut content = fs::read_dir(folder)?.map(|entry| entry.map(|e| e.path())).collect::<io::Result<Vec<_>>>()?;
    content.sort();
    Ok(content)
}

/// The label's bytes; `None` if this is no member for sure or was seen before.
fn read_label(path: &Path, seen: &mut HashSet<(bool, u64, u64)>) -> io::Result<Option<Vec<u8>>> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        // A dangling link is nothing.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let identity = if metadata.file_type().is_block_device() {
        (true, metadata.rdev(), 0)
    } else if metadata.is_file() {
        (false, metadata.dev(), metadata.ino())
    } else {
        return Ok(None);
    };
    if !seen.insert(identity) {
        return Ok(None);
    }
    // NONBLOCK: a drive without a medium must not make us wait for one.
    let file = fs::OpenOptions::new().read(true).custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK).open(resolved(path))?;
    read_block(&file)
}

fn read_block(file: &File) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; LABEL_BYTES];
    match file.read_exact_at(&mut bytes, LABEL_OFFSET) {
        Ok(()) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

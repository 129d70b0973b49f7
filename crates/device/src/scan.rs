//! Search for members: files and devices that hold a label.
//!
//! The caller passes the decoder, because this crate does not know the format; it receives the 4096
//! bytes at byte 4096.
//!
//! 1. Files, devices and the content of folders are listed in search order, each file or device
//!    once, whatever its names.
//! 2. Block devices are read by separate threads, many at once. One that does not answer in time
//!    counts as unreadable. Otherwise a network block device with a dead server, or a suspended
//!    mapping, would delay the start of every pool. It may even be a client of the pool that is
//!    starting.
//! 3. Labels are decoded in search order.

#[cfg(test)]
mod tests;

use crate::file::resolved;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Byte offset of the label.
const LABEL_OFFSET: u64 = 4096;
const LABEL_BYTES: usize = 4096;
/// Time limit for block devices to return their labels: that of a kernel command; a disk that spins
/// up needs half of it.
const PATIENCE: Duration = Duration::from_secs(30);
/// Number of block devices that are read at once.
const AT_ONCE: usize = 64;
/// Stack of a thread that reads one label.
const STACK_BYTES: usize = 128 << 10;

/// Identity of a file or device, whatever its names: true for a block device; number of the device,
/// or of the file system; number of the file.
pub type Identity = (bool, u64, u64);
/// The label's bytes; `None` if the file is too short for one.
type Bytes = io::Result<Option<Vec<u8>>>;
type Reader = Arc<dyn Fn(&Path) -> Bytes + Send + Sync>;

/// Result of a scan.
#[derive(Debug)]
pub struct Found<T> {
    /// Files and devices with a label, in search order, each once.
    pub members: Vec<(PathBuf, T)>,
    /// Unreadable files and devices, to be reported if a member is missing.
    pub unreadable: Vec<(PathBuf, io::Error)>,
}

/// Scans files and block devices, and the direct content of folders. Anything else (pipes, sockets,
/// terminals) is skipped without being opened. Nothing is locked or changed.
pub fn scan<T>(places: &[PathBuf], decode: impl FnMut(&[u8]) -> Option<T>) -> Found<T> {
    scan_except(places, &[], decode)
}

/// Same, but skips the files and devices in `except`, whatever their names in `places`.
pub fn scan_except<T>(
    places: &[PathBuf],
    except: &[PathBuf],
    decode: impl FnMut(&[u8]) -> Option<T>,
) -> Found<T> {
    scan_beside(
        places,
        except
            .iter()
            .filter_map(|path| identity(path).ok().flatten())
            .collect(),
        decode,
    )
}

/// Same, with the skipped ones given by identity: none of `except` is opened.
pub fn scan_beside<T>(
    places: &[PathBuf],
    except: HashSet<Identity>,
    mut decode: impl FnMut(&[u8]) -> Option<T>,
) -> Found<T> {
    let mut found = Found {
        members: Vec::new(),
        unreadable: Vec::new(),
    };
    let mut seen = except;
    let (files, devices) = candidates(places, &mut seen, &mut found.unreadable);
    let mut labels: Vec<(usize, PathBuf, Bytes)> = Vec::with_capacity(files.len() + devices.len());
    for (at, path) in files {
        let label = read_label(&path);
        labels.push((at, path, label));
    }
    let (order, devices): (Vec<usize>, Vec<PathBuf>) = devices.into_iter().unzip();
    let reader: Reader = Arc::new(read_label);
    let read = read_devices(&devices, PATIENCE, &reader);
    labels.extend(
        order
            .into_iter()
            .zip(devices)
            .zip(read)
            .map(|((at, path), label)| (at, path, label)),
    );
    labels.sort_by_key(|(at, ..)| *at);
    for (_, path, label) in labels {
        match label {
            Ok(Some(bytes)) => found
                .members
                .extend(decode(&bytes).map(|label| (path, label))),
            Ok(None) => {}
            Err(error) => found.unreadable.push((path, error)),
        }
    }
    found
}

type Numbered = Vec<(usize, PathBuf)>;

/// Regular files and block devices, including those in folders, with their number in search order.
fn candidates(
    places: &[PathBuf],
    seen: &mut HashSet<Identity>,
    unreadable: &mut Vec<(PathBuf, io::Error)>,
) -> (Numbered, Numbered) {
    let (mut files, mut devices) = (Vec::new(), Vec::new());
    for place in places {
        let content = match fs::metadata(place) {
            Ok(metadata) if metadata.is_dir() => folder_content(place),
            Ok(_) => Ok(vec![place.clone()]),
            Err(error) => Err(error),
        };
        let content = content.unwrap_or_else(|error| {
            unreadable.push((place.clone(), error));
            Vec::new()
        });
        for path in content {
            match identity(&path) {
                Ok(Some(identity)) if seen.insert(identity) => {
                    let at = files.len() + devices.len();
                    if identity.0 { &mut devices } else { &mut files }.push((at, path));
                }
                Ok(_) => {}
                Err(error) => unreadable.push((path, error)),
            }
        }
    }
    (files, devices)
}

/// Reads many devices at once, each for at most `patience`. The thread of an unresponsive device
/// remains until the device answers.
fn read_devices(paths: &[PathBuf], patience: Duration, read: &Reader) -> Vec<Bytes> {
    let too_late = || {
        io::Error::new(
            io::ErrorKind::TimedOut,
            format!("it has not answered within {} s", patience.as_secs()),
        )
    };
    let mut labels: Vec<Bytes> = paths.iter().map(|_| Err(too_late())).collect();
    for (group, labels) in paths.chunks(AT_ONCE).zip(labels.chunks_mut(AT_ONCE)) {
        let (sender, receiver) = mpsc::channel();
        for (at, path) in group.iter().enumerate() {
            let (own, reader, sender) = (path.clone(), read.clone(), sender.clone());
            // The receiver is gone if it took too long.
            let body = move || drop(sender.send((at, reader(&own))));
            if std::thread::Builder::new()
                .name("windrow-scan".to_owned())
                .stack_size(STACK_BYTES)
                .spawn(body)
                .is_err()
            {
                labels[at] = read(path);
            }
        }
        drop(sender);
        let end = Instant::now() + patience;
        // Ends when the last thread has ended.
        while let Ok((at, label)) =
            receiver.recv_timeout(end.saturating_duration_since(Instant::now()))
        {
            labels[at] = label;
        }
    }
    labels
}

/// All block devices of this system with a nonzero size: disks, partitions, volumes of volume
/// managers.
pub fn block_devices() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir("/sys/class/block") else {
        return Vec::new();
    };
    let mut devices: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| {
            crate::sysfs::text(&entry.path().join("size")).is_some_and(|size| size != "0")
        })
        // Names with a slash in /dev have an exclamation mark in sysfs.
        .map(|entry| Path::new("/dev").join(entry.file_name().to_string_lossy().replace('!', "/")))
        .filter(|path| fs::metadata(path).is_ok_and(|m| m.file_type().is_block_device()))
        .collect();
    devices.sort();
    devices
}

fn folder_content(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut content = fs::read_dir(folder)?
        .map(|entry| entry.map(|e| e.path()))
        .collect::<io::Result<Vec<_>>>()?;
    content.sort();
    Ok(content)
}

/// Identity of the file or device at this path, without opening it. `None` for a missing path, or
/// one that is neither a regular file nor a block device.
///
/// # Errors
/// This user lacks permission, or the file system fails.
pub fn identity(path: &Path) -> io::Result<Option<Identity>> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        // A dangling link counts as missing.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(if metadata.file_type().is_block_device() {
        Some((true, metadata.rdev(), 0))
    } else {
        metadata
            .is_file()
            .then(|| (false, metadata.dev(), metadata.ino()))
    })
}

/// Block devices below this one, recursively: the disk of a partition, the devices under a volume.
pub fn beneath(device: Identity) -> Vec<Identity> {
    let mut found = Vec::new();
    if device.0 {
        gather_beneath(
            crate::sysfs::DeviceNumber::from_raw(device.1).folder(),
            &mut found,
        );
    }
    found
}

fn gather_beneath(folder: Option<PathBuf>, found: &mut Vec<Identity>) {
    let Some(folder) = folder else { return };
    let disk = if folder.join("partition").exists() {
        folder.parent().map(Path::to_owned)
    } else {
        None
    };
    let slaves = fs::read_dir(folder.join("slaves"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| fs::canonicalize(entry.path()).ok());
    for below in disk.into_iter().chain(slaves) {
        let number = crate::sysfs::text(&below.join("dev"))
            .and_then(|text| crate::sysfs::DeviceNumber::parse(&text));
        let Some(number) = number else { continue };
        let identity = (true, rustix::fs::makedev(number.major, number.minor), 0);
        if !found.contains(&identity) {
            found.push(identity);
            gather_beneath(Some(below), found);
        }
    }
}

fn read_label(path: &Path) -> Bytes {
    // NONBLOCK: do not wait for a drive without a medium.
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK)
        .open(resolved(path))?;
    read_block(&file)
}

fn read_block(file: &File) -> Bytes {
    let mut bytes = vec![0; LABEL_BYTES];
    match file.read_exact_at(&mut bytes, LABEL_OFFSET) {
        Ok(()) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

//! Users of a device or file, from `/proc/self/mountinfo`, `/proc/swaps`, sysfs, and an attempt to
//! open it exclusively.

use super::{Target, Use};
use crate::file::resolved;
use crate::member::MemberKind;
use crate::sysfs::{DeviceNumber, text};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Uses of a block device: its own, those of its partitions, and those of its disk if it is a
/// partition.
pub(super) fn of_device(raw: u64) -> Vec<Use> {
    let number = DeviceNumber::from_raw(raw);
    let family = family(number);
    let mut uses = mounts(&family);
    uses.extend(swaps(&|path| {
        device_of(path).is_some_and(|d| family.contains(&d))
    }));
    for folder in family.iter().filter_map(|member| member.folder()) {
        let holders = fs::read_dir(folder.join("holders"))
            .into_iter()
            .flatten()
            .flatten();
        uses.extend(holders.map(|entry| Use::Held {
            holder: entry.file_name().to_string_lossy().into_owned(),
        }));
    }
    // The kernel does not list a loop device among the holders of its backing.
    uses.extend(loops(&is_one_of(&family)).map(|holder| Use::Held { holder }));
    uses
}

/// Uses of a regular file: swap, or the backing of a loop device.
pub(super) fn of_file(path: &Path) -> Vec<Use> {
    let wanted = fs::metadata(path);
    let same = |other: &Path| wanted.as_ref().is_ok_and(|wanted| is_same(other, wanted));
    let mut uses = swaps(&|other| same(other));
    uses.extend(loops(&same).map(|holder| Use::Held { holder }));
    uses
}

/// Loop devices over a file or block device.
fn loops(is_it: &dyn Fn(&Path) -> bool) -> impl Iterator<Item = String> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let over_it = move |folder: &Path| {
        text(&folder.join("loop/backing_file")).is_some_and(|file| is_it(Path::new(&file)))
    };
    devices
        .filter(move |entry| over_it(&entry.path()))
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
}

/// True for the path of one of these devices.
fn is_one_of(devices: &[DeviceNumber]) -> impl Fn(&Path) -> bool {
    |path| device_of(path).is_some_and(|device| devices.contains(&device))
}

/// True if the same bytes may be in use by a path that a lock on this one does not cover: a file or
/// block device under a loop device, a loop device over a locked target, or one of two loop devices
/// over the same bytes.
pub(crate) fn is_reached_by_another_way(path: &Path, kind: MemberKind) -> bool {
    let Ok(metadata) = fs::metadata(path) else {
        return false;
    };
    if kind == MemberKind::File {
        return loops(&|other: &Path| is_same(other, &metadata))
            .next()
            .is_some();
    }
    let number = DeviceNumber::from_raw(metadata.rdev());
    loops(&is_one_of(&family(number))).next().is_some()
        || number.folder().is_some_and(|folder| is_held_below(&folder))
}

/// True if the backing of a loop device is locked, or another loop device covers the same bytes of
/// it.
fn is_held_below(folder: &Path) -> bool {
    // The backing of a partition is that of its disk.
    let folder = if folder.join("partition").exists() {
        folder.parent().unwrap_or(folder)
    } else {
        folder
    };
    let Some(below) = text(&folder.join("loop/backing_file")).map(PathBuf::from) else {
        return false;
    };
    // A backing that cannot be inspected (deleted, or of another root) cannot be opened as a member
    // here, either.
    let Ok(backing) = fs::metadata(&below) else {
        return false;
    };
    let is_device = backing.file_type().is_block_device();
    if is_locked(
        &below,
        if is_device {
            Target::BlockDevice
        } else {
            Target::File
        },
    )
    .unwrap_or(false)
    {
        return true;
    }
    let own = span(folder);
    let is_over_it = |other: &Path| is_same(other, &backing);
    let is_held = loops(&is_over_it).any(|name| {
        let (other, device) = (
            Path::new("/sys/block").join(&name),
            Path::new("/dev").join(&name),
        );
        let there = span(&other);
        let is_other = fs::canonicalize(&other).is_ok_and(|other| other != folder);
        is_other
            && there.start < own.end
            && own.start < there.end
            && is_locked(&device, Target::BlockDevice).unwrap_or(false)
    });
    is_held
        || is_device
            && DeviceNumber::from_raw(backing.rdev())
                .folder()
                .is_some_and(|folder| is_held_below(&folder))
}

/// True for the same file, or the same block device under any name.
pub(super) fn is_same(path: &Path, file: &fs::Metadata) -> bool {
    let identity = |of: &fs::Metadata| {
        if of.file_type().is_block_device() {
            (true, of.rdev(), 0)
        } else {
            (false, of.dev(), of.ino())
        }
    };
    fs::metadata(path).is_ok_and(|other| identity(&other) == identity(file))
}

/// Byte range of the backing that a loop device covers.
pub(super) fn span(folder: &Path) -> Range<u64> {
    let number = |name: &str| {
        text(&folder.join("loop").join(name))
            .and_then(|text| text.parse().ok())
            .unwrap_or(0u64)
    };
    let (start, length) = (number("offset"), number("sizelimit"));
    start..if length == 0 {
        u64::MAX
    } else {
        start.saturating_add(length)
    }
}

/// True if another process has it exclusively.
pub(super) fn is_locked(path: &Path, target: Target) -> io::Result<bool> {
    let exclusive = if target == Target::BlockDevice {
        OFlags::EXCL
    } else {
        OFlags::empty()
    };
    match rustix::fs::open(
        path,
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | exclusive,
        Mode::empty(),
    ) {
        Ok(fd) if target == Target::File => {
            match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    // Unlocked explicitly, not only by closing: a forked child may have a copy of
                    // the descriptor.
                    let _ = rustix::fs::flock(&fd, FlockOperation::Unlock);
                    Ok(false)
                }
                Err(Errno::WOULDBLOCK) => Ok(true),
                // This file system has no locks, so nothing holds one.
                Err(_) => Ok(false),
            }
        }
        Ok(_) => Ok(false),
        Err(Errno::BUSY) => Ok(true),
        Err(errno) => Err(errno.into()),
    }
}

/// The device, its partitions, and its disk if it is a partition. (Sibling partitions do not
/// matter.)
fn family(number: DeviceNumber) -> Vec<DeviceNumber> {
    let mut family = vec![number];
    let Some(folder) = number.folder() else {
        return family;
    };
    let numbered = |path: PathBuf| text(&path.join("dev")).and_then(|t| DeviceNumber::parse(&t));
    if folder.join("partition").exists() {
        family.extend(folder.parent().and_then(|disk| numbered(disk.to_owned())));
    } else {
        let partitions = fs::read_dir(&folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|e| e.path())
            .filter(|p| p.join("partition").exists());
        family.extend(partitions.filter_map(numbered));
    }
    family
}

fn device_of(path: &Path) -> Option<DeviceNumber> {
    let metadata = fs::metadata(path).ok()?;
    metadata
        .file_type()
        .is_block_device()
        .then(|| DeviceNumber::from_raw(metadata.rdev()))
}

fn mounts(family: &[DeviceNumber]) -> Vec<Use> {
    mounts_in(
        &fs::read_to_string("/proc/self/mountinfo").unwrap_or_default(),
        family,
        &device_of,
    )
}

/// Mounts of these devices. Some file systems (those over several devices) show an artificial
/// number, so the named source is checked, too.
pub(super) fn mounts_in(
    table: &str,
    family: &[DeviceNumber],
    device_of: &dyn Fn(&Path) -> Option<DeviceNumber>,
) -> Vec<Use> {
    let mut uses: Vec<Use> = Vec::new();
    for line in table.lines() {
        let (Some((head, tail)), mut fields) = (line.split_once(" - "), line.split(' ')) else {
            continue;
        };
        let (Some(number), Some(point)) = (
            fields.nth(2).and_then(DeviceNumber::parse),
            head.split(' ').nth(4),
        ) else {
            continue;
        };
        let source = unescape(tail.split(' ').nth(1).unwrap_or_default());
        let named = if source.starts_with('/') {
            device_of(Path::new(&source))
        } else {
            None
        };
        if family.contains(&number) || named.is_some_and(|n| family.contains(&n)) {
            let found = Use::Mounted {
                device: source,
                mount_point: unescape(point),
            };
            if !uses.contains(&found) {
                uses.push(found);
            }
        }
    }
    uses
}

fn swaps(is_ours: &dyn Fn(&Path) -> bool) -> Vec<Use> {
    let table = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let names = table
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next())
        .map(unescape);
    names
        .filter(|name| is_ours(&resolved(Path::new(name))))
        .map(|device| Use::Swap { device })
        .collect()
}

/// Undoes the octal escapes (`\040` for a space) of the tables under `/proc`.
pub(super) fn unescape(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let digits = tail
            .get(..3)
            .filter(|d| first == b'\\' && d.iter().all(|b| (b'0'..b'8').contains(b)));
        match digits {
            Some(digits) => {
                out.push(
                    digits
                        .iter()
                        .fold(0u32, |value, b| value * 8 + u32::from(b - b'0'))
                        as u8,
                );
                rest = &tail[3..];
            }
            None => {
                out.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

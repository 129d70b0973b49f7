//! Kernel information about block devices under `/sys`.

use std::fs;
use std::path::{Path, PathBuf};

/// Number of a block device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct DeviceNumber {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

impl DeviceNumber {
    pub(crate) fn from_raw(raw: u64) -> Self {
        Self {
            major: rustix::fs::major(raw),
            minor: rustix::fs::minor(raw),
        }
    }

    /// Parses `major:minor`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.trim().split_once(':')?;
        Some(Self {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
        })
    }

    /// Its folder in sysfs, links resolved.
    pub(crate) fn folder(self) -> Option<PathBuf> {
        fs::canonicalize(format!("/sys/dev/block/{}:{}", self.major, self.minor)).ok()
    }
}

/// True if the device with this sysfs folder is hardware and not made of other devices. (A loop
/// device, device mapper, md, or network device may hold back writes, or the metadata to find them,
/// until a flush.)
pub(crate) fn is_the_medium_itself(folder: &Path) -> bool {
    let disk = if folder.join("partition").exists() {
        folder.parent().unwrap_or(folder)
    } else {
        folder
    };
    let is_made_of_others =
        fs::read_dir(disk.join("slaves")).is_ok_and(|mut others| others.next().is_some());
    disk.join("device").exists() && !is_made_of_others
}

/// Contents of a short text file, trimmed.
pub(crate) fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|t| t.trim().to_owned())
}

fn number(path: &Path) -> Option<u64> {
    text(path)?.parse().ok()
}

/// Limits of the request queue under a block device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct QueueLimits {
    pub(crate) rotational: bool,
    pub(crate) logical_sector: Option<u32>,
    pub(crate) physical_sector: Option<u32>,
    pub(crate) optimal_io_bytes: Option<u32>,
    pub(crate) discard_granularity_bytes: u32,
    pub(crate) can_discard: bool,
}

impl QueueLimits {
    /// Reads the limits of a device or, for a partition, of its disk. `None` if sysfs does not know
    /// the device.
    pub(crate) fn read(device: DeviceNumber) -> Option<Self> {
        let folder = device.folder()?;
        let queue = [folder.join("queue"), folder.parent()?.join("queue")]
            .into_iter()
            .find(|p| p.is_dir())?;
        let small = |name: &str| {
            number(&queue.join(name))
                .and_then(|n| u32::try_from(n).ok())
                .filter(|n| *n > 0)
        };
        Some(Self {
            rotational: number(&queue.join("rotational")) == Some(1),
            logical_sector: small("logical_block_size"),
            physical_sector: small("physical_block_size"),
            optimal_io_bytes: small("optimal_io_size"),
            discard_granularity_bytes: small("discard_granularity").unwrap_or(0),
            can_discard: number(&queue.join("discard_max_bytes")).unwrap_or(0) > 0,
        })
    }

    /// The larger of preferred write size and discard granularity, if it exceeds the sector size.
    pub(crate) fn erase_block_hint(&self) -> Option<u32> {
        let hint = self
            .optimal_io_bytes
            .unwrap_or(0)
            .max(self.discard_granularity_bytes);
        (hint > self.physical_sector.unwrap_or(4096).max(4096)).then_some(hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hardware_is_the_medium_itself() {
        let root = tempfile::tempdir().expect("folder");
        let made = |paths: &[&str]| {
            paths
                .iter()
                .for_each(|path| fs::create_dir_all(root.path().join(path)).expect("folder"))
        };
        let is = |disk: &str| is_the_medium_itself(&root.path().join(disk));
        made(&[
            "nvme0n1/device",
            "nvme0n1/slaves",
            "nvme0n1/nvme0n1p1/partition",
            "pmem0/device",
            "loop0/loop",
            "loop0/slaves",
            "dm-0/slaves/nvme0n1",
        ]);
        made(&["odd/device", "odd/slaves/sda"]);
        assert_eq!(["nvme0n1", "nvme0n1/nvme0n1p1", "pmem0"].map(is), [true; 3]);
        assert_eq!(["loop0", "dm-0", "odd", "not-there"].map(is), [false; 4]);
    }
}

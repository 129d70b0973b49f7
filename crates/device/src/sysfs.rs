//! What the kernel says of block devices under `/sys`.

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
        Self { major: rustix::fs::major(raw), minor: rustix::fs::minor(raw) }
    }

    /// Parses `major:minor`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.trim().split_once(':')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }

    /// Its folder in sysfs, links resolved.
    pub(crate) fn folder(self) -> Option<PathBuf> {
        fs::canonicalize(format!("/sys/dev/block/{}:{}", self.major, self.minor)).ok()
    }
}

/// One short text file, trimmed.
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
    /// Reads the limits of a device or, for a partition, of its disk. `None` if sysfs does not know the device.
    pub(crate) fn read(device: DeviceNumber) -> Option<Self> {
        let folder = device.folder()?;
        let queue = [folder.join("queue"), folder.parent()?.join("queue")].into_iter().find(|p| p.is_dir())?;
        let small = |name: &str| number(&queue.join(name)).and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0);
        Some(Self {
            rotational: number(&queue.join("rotational")) == Some(1),
            logical_sector: small("logical_block_size"),
            physical_sector: small("physical_block_size"),
            optimal_io_bytes: small("optimal_io_size"),
            discard_granularity_bytes: small("discard_granularity").unwrap_or(0),
            can_discard: number(&queue.join("discard_max_bytes")).unwrap_or(0) > 0,
        })
    }

    /// The larger of preferred write size and discard granularity, if it says more than the sector size does.
    pub(crate) fn erase_block_hint(&self) -> Option<u32> {
        let hint = self.optimal_io_bytes.unwrap_or(0).max(self.discard_granularity_bytes);
        (hint > self.physical_sector.unwrap_or(4096).max(4096)).then_some(hint)
    }
}

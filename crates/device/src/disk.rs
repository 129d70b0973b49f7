//! Whole disks: a partition table with one partition of our own type, so that other tools see that
//! the disk is in use.
//!
//! blkid, installers and mkfs find nothing on a bare member; all of them know GPT. Steps of
//! [`Disk::write_table`]:
//! 1. Open the disk with `O_EXCL`, and check that it is unchanged since it was probed.
//! 2. Write the table at both ends, and zeroes up to the partition and after it: tools would find a
//!    signature there. Flush.
//! 3. Make the kernel read the table (`BLKRRPART`), and wait until the partition is in sysfs and
//!    has a node.
//! 4. Close the disk: a partition cannot be locked while its disk is.

mod table;

use crate::probe::signature::{Mark, Window};
use crate::sysfs::{DeviceNumber, is_the_medium_itself, text};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use table::PARTITION_TYPE;

/// `_IO(0x12, 95)` of `linux/fs.h`.
const BLKRRPART: libc::Ioctl = 0x125f;
/// Time limit for the kernel and udev to create the node of a partition.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time limit for a link such as `/dev/disk/by-id/...-part1`, which udev creates slightly later.
const LINK_PATIENCE: Duration = Duration::from_secs(3);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Bytes zeroed at once.
const PIECE_BYTES: u64 = 1 << 20;

/// Reason that a disk did not get its partition.
#[derive(Debug, thiserror::Error)]
pub enum PartitionError {
    /// A system call failed.
    #[error("cannot {action} {path}: {source}")]
    System {
        /// Attempted action.
        action: &'static str,
        /// The disk.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The disk has changed since it was probed.
    #[error("{0} was written by another command after the probe")]
    Changed(PathBuf),
    /// The device type has no partitions.
    #[error("the kernel reads no partitions of {0} (a loop device needs `losetup -P`)")]
    NotScanned(PathBuf),
    /// Its existing partitions are in use.
    #[error("partitions of {0} are in use")]
    Busy(PathBuf),
    /// The partition table was written, but the partition did not appear.
    #[error(
        "{0} has a partition table now, but its partition has not shown in /sys and /dev within 10 s (does the kernel read GPT, CONFIG_EFI_PARTITION, and is /dev a devtmpfs?)"
    )]
    NoNode(PathBuf),
}

/// A block device that is not a partition.
#[derive(Clone, Debug)]
pub struct Disk {
    /// Path as given.
    pub path: PathBuf,
    /// Size in bytes.
    pub size_bytes: u64,
    /// True if hardware is directly below it: it is not a loop device, device mapper, array or
    /// network device.
    pub is_hardware: bool,
    sector: u64,
    folder: PathBuf,
}

impl Disk {
    /// The disk at this path; `None` if it is a file, a partition, or a device unknown to sysfs.
    ///
    /// # Errors
    /// It cannot be inspected.
    pub fn at(path: &Path) -> io::Result<Option<Self>> {
        let metadata = match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            metadata => metadata?,
        };
        if !metadata.file_type().is_block_device() {
            return Ok(None);
        }
        let Some(folder) = DeviceNumber::from_raw(metadata.rdev()).folder() else {
            return Ok(None);
        };
        if folder.join("partition").exists() {
            return Ok(None);
        }
        let number =
            |name: &str| text(&folder.join(name)).and_then(|text| text.parse::<u64>().ok());
        let (sectors, sector) = (
            number("size").unwrap_or(0),
            number("queue/logical_block_size").unwrap_or(512),
        );
        Ok(Some(Self {
            path: path.to_owned(),
            size_bytes: sectors * 512,
            is_hardware: is_the_medium_itself(&folder),
            sector,
            folder,
        }))
    }

    /// The disk of a partition; `None` if the path is not a partition.
    pub fn of_partition(partition: &Path) -> Option<Self> {
        let folder = folder_of(partition).filter(|folder| folder.join("partition").exists())?;
        Self::at(&node(folder.parent()?)).ok().flatten()
    }

    /// Logical sector size in bytes.
    pub fn sector_bytes(&self) -> u32 {
        self.sector as u32
    }

    /// True if its table has one partition, which was created as a member: of our type and name.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn has_only_our_partition(&self) -> io::Result<bool> {
        let disk = fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK)
            .open(&self.path)?;
        let mut head = vec![0; table::head_bytes(self.sector) as usize];
        disk.read_exact_at(&mut head, 0)?;
        Ok(table::has_only_our_partition(&head, self.sector))
    }

    /// Byte range of its one partition; `None` if there is no room for one, or the table does not
    /// support the sector size.
    pub fn partition(&self, align_bytes: u64) -> Option<Range<u64>> {
        [512, 4096]
            .contains(&self.sector)
            .then(|| table::partition(self.size_bytes, self.sector, align_bytes))?
    }

    /// False for a loop device created without `losetup -P`: the kernel reads no partitions of it.
    pub fn may_have_partitions(&self) -> bool {
        text(&self.folder.join("loop/partscan")).is_none_or(|scanned| scanned != "0")
    }

    /// Nodes of its current partitions.
    pub fn partitions(&self) -> Vec<PathBuf> {
        let folders = fs::read_dir(&self.folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path());
        folders
            .filter(|folder| folder.join("partition").exists())
            .map(|folder| node(&folder))
            .collect()
    }

    /// Creates the partition; returns its path. Previous contents of the disk are lost, whatever
    /// the result.
    ///
    /// # Errors
    /// It is in use, has changed since it was `probed`, fails, or cannot have partitions.
    pub fn write_table(
        &self,
        partition: &Range<u64>,
        probed: Mark,
    ) -> Result<PathBuf, PartitionError> {
        let disk = self.open()?;
        let now = Window::read(&disk).map_err(self.failed("read"))?.mark();
        if now != probed {
            return Err(PartitionError::Changed(self.path.clone()));
        }
        // Checked before anything is written: a loop device may have no partitions.
        if !self.may_have_partitions() {
            return Err(PartitionError::NotScanned(self.path.clone()));
        }
        let table = table::encode(self.size_bytes, self.sector, partition)
            .map_err(self.failed("make a partition table for"))?;
        let written = self
            .zero(&disk, 0..partition.start)
            .and_then(|()| self.zero(&disk, partition.end..self.size_bytes));
        let written = written.and_then(|()| {
            table
                .iter()
                .try_for_each(|(offset, bytes)| disk.write_all_at(bytes, *offset))
        });
        written
            .and_then(|()| disk.sync_all())
            .map_err(self.failed("write a partition table to"))?;
        self.read_again(&disk)?;
        let folder = self.wait_for(partition)?;
        drop(disk);
        Ok(self.named(&folder))
    }

    /// Erases the table.
    ///
    /// # Errors
    /// It is in use, or fails.
    pub fn erase_table(&self) -> Result<(), PartitionError> {
        let disk = self.open()?;
        let (head, tail) = (
            table::head_bytes(self.sector),
            table::tail_bytes(self.sector),
        );
        let end = self.size_bytes / self.sector * self.sector;
        let erased = self
            .zero(&disk, 0..head.min(end))
            .and_then(|()| self.zero(&disk, end.saturating_sub(tail)..end));
        erased
            .and_then(|()| disk.sync_all())
            .map_err(self.failed("erase the partition table of"))?;
        self.read_again(&disk)
    }

    fn failed(&self, action: &'static str) -> impl Fn(io::Error) -> PartitionError {
        let path = self.path.clone();
        move |source| PartitionError::System {
            action,
            path: path.clone(),
            source,
        }
    }

    /// Opens it exclusively. udev may hold it for a moment.
    fn open(&self) -> Result<File, PartitionError> {
        let end = Instant::now() + Duration::from_secs(2);
        loop {
            match fs::OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(libc::O_EXCL | libc::O_CLOEXEC)
                .open(&self.path)
            {
                Ok(disk) => return Ok(disk),
                Err(error)
                    if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < end =>
                {
                    std::thread::sleep(LOOK_AGAIN)
                }
                Err(error) => return Err(self.failed("open")(error)),
            }
        }
    }

    fn zero(&self, disk: &File, range: Range<u64>) -> io::Result<()> {
        let zeroes = vec![0; PIECE_BYTES as usize];
        let mut at = range.start;
        while at < range.end {
            let length = (range.end - at).min(PIECE_BYTES);
            disk.write_all_at(&zeroes[..length as usize], at)?;
            at += length;
        }
        Ok(())
    }

    /// Makes the kernel read the partition table.
    fn read_again(&self, disk: &File) -> Result<(), PartitionError> {
        let end = Instant::now() + Duration::from_secs(2);
        loop {
            // SAFETY: the descriptor is open during the borrow; the request takes no
            // argument and writes to no memory of this process.
            let result = unsafe { libc::ioctl(disk.as_raw_fd(), BLKRRPART) };
            if result == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            match Errno::from_io_error(&error) {
                Some(Errno::BUSY) if Instant::now() < end => std::thread::sleep(LOOK_AGAIN),
                Some(Errno::BUSY) => return Err(PartitionError::Busy(self.path.clone())),
                Some(Errno::INVAL | Errno::NOTTY) => {
                    return Err(PartitionError::NotScanned(self.path.clone()));
                }
                _ => {
                    return Err(self.failed("have the kernel read the partition table of")(
                        error,
                    ));
                }
            }
        }
    }

    /// Waits for the partition with these bytes and its node; returns its folder in sysfs.
    fn wait_for(&self, partition: &Range<u64>) -> Result<PathBuf, PartitionError> {
        let is_it = |folder: &Path| {
            let bytes = |name: &str| {
                text(&folder.join(name))
                    .and_then(|text| text.parse::<u64>().ok())
                    .map(|sectors| sectors * 512)
            };
            folder.join("partition").exists()
                && (bytes("start"), bytes("size"))
                    == (Some(partition.start), Some(partition.end - partition.start))
        };
        let end = Instant::now() + PATIENCE;
        loop {
            let mut folders = fs::read_dir(&self.folder)
                .into_iter()
                .flatten()
                .flatten()
                .map(|entry| entry.path());
            if let Some(folder) =
                folders.find(|folder| is_it(folder) && is_node_of(&node(folder), folder))
            {
                return Ok(folder);
            }
            if Instant::now() >= end {
                return Err(PartitionError::NoNode(self.path.clone()));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// The partition under the same kind of name as the disk: a name in `/dev/disk/by-id` stays
    /// valid when the kernel's names change.
    fn named(&self, folder: &Path) -> PathBuf {
        let by_link = PathBuf::from(format!("{}-part1", self.path.display()));
        let is_link = self.path.starts_with("/dev/disk")
            && fs::symlink_metadata(&self.path).is_ok_and(|metadata| metadata.is_symlink());
        let end = Instant::now() + LINK_PATIENCE;
        while is_link && Instant::now() < end {
            if is_node_of(&by_link, folder) {
                return by_link;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        node(folder)
    }
}

/// True if the first path is a partition of the disk at the second one.
pub fn is_partition_of(partition: &Path, disk: &Path) -> bool {
    let parent = folder_of(partition).filter(|folder| folder.join("partition").exists());
    let parent = parent.and_then(|folder| folder.parent().map(Path::to_owned));
    parent.is_some() && parent == folder_of(disk)
}

/// Folder in sysfs of the block device at this path.
fn folder_of(path: &Path) -> Option<PathBuf> {
    let metadata = fs::metadata(path)
        .ok()
        .filter(|metadata| metadata.file_type().is_block_device())?;
    DeviceNumber::from_raw(metadata.rdev()).folder()
}

/// The kernel's node of a device, by its folder in sysfs.
fn node(folder: &Path) -> PathBuf {
    // Names with a slash in /dev have an exclamation mark in sysfs.
    Path::new("/dev").join(
        folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .replace('!', "/"),
    )
}

fn is_node_of(node: &Path, folder: &Path) -> bool {
    let number = text(&folder.join("dev")).and_then(|text| DeviceNumber::parse(&text));
    let is_it = |metadata: fs::Metadata| {
        metadata.file_type().is_block_device()
            && Some(DeviceNumber::from_raw(metadata.rdev())) == number
    };
    fs::metadata(node).is_ok_and(is_it)
}

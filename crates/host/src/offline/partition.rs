//! Whole disks that get a partition table before they become members, and the removal of the table
//! if they do not.

use super::again::borne_by;
use super::{FoundMember, Newcomer};
use crate::failure::{Failure, id};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::path::{Path, PathBuf};
use windrow_device::disk::{Disk, PartitionError};
use windrow_device::probe::signature::Mark;
use windrow_device::{FileMember, LockMode, OpenOptions};
use windrow_geometry::Zone;

/// Smallest alignment of a partition.
const ALIGN_MIN: u64 = 1 << 20;
/// Largest alignment that a pool may have.
const ALIGN_MAX: u64 = 64 << 20;

/// Devices that get a partition table with one partition, which becomes the member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Partitioning {
    /// Disks: block devices that are hardware.
    #[default]
    Disks,
    /// Also loop devices, device-mapper volumes and the like.
    AllDevices,
    /// None: disks are used unpartitioned.
    Never,
}

/// A planned partition.
#[derive(Clone, Debug)]
pub struct Planned {
    disk: Disk,
    range: Range<u64>,
}

/// The partition that the device at this path would get.
pub fn planned(path: &Path, partitioning: Partitioning, align_bytes: u64) -> Option<Planned> {
    // A device that cannot be read is refused when it is probed.
    let disk = Disk::at(path).ok().flatten()?;
    let wanted = match partitioning {
        Partitioning::Never => false,
        Partitioning::Disks => disk.is_hardware,
        Partitioning::AllDevices => true,
    };
    let range = disk.partition(align_bytes).filter(|_| wanted)?;
    Some(Planned { disk, range })
}

/// The alignment of a pool with these zones.
pub fn alignment_of(zones: &[Zone]) -> u64 {
    let bits = zones.iter().fold(ALIGN_MAX, |bits, zone| {
        bits | zone.start | zone.shape.extent_bytes()
    });
    (1 << bits.trailing_zeros()).clamp(ALIGN_MIN, ALIGN_MAX)
}

impl Planned {
    /// Bytes of the partition.
    pub fn size_bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Bytes of the whole disk.
    pub fn disk_bytes(&self) -> u64 {
        self.disk.size_bytes
    }

    /// Bytes of a logical sector.
    pub(crate) fn sector_bytes(&self) -> u32 {
        self.disk.sector_bytes()
    }

    /// Members on the disk's present partitions.
    pub(crate) fn members(&self) -> Vec<FoundMember> {
        let options = OpenOptions {
            lock: LockMode::None,
            ..OpenOptions::read_only()
        };
        let borne = |path: PathBuf| {
            borne_by(&FileMember::open(&path, &options).ok()?, &path)
                .ok()
                .flatten()
        };
        self.disk
            .partitions()
            .into_iter()
            .filter_map(borne)
            .collect()
    }

    /// Makes it and returns its path. A failure leaves nothing of it.
    ///
    /// # Errors
    /// The disk is in use, was written since it was `probed`, fails, or has no partitions.
    pub fn make(&self, probed: Mark, what: &str) -> Result<PathBuf, Failure> {
        self.disk.write_table(&self.range, probed).map_err(|error| {
            let is_written = matches!(error, PartitionError::NoNode(_) | PartitionError::Busy(_));
            if is_written {
                self.undo();
            }
            let id = if matches!(error, PartitionError::Changed(_)) {
                id::MEMBER_IN_USE
            } else {
                id::MEMBER_OPEN
            };
            let remedy = match error {
                PartitionError::Changed(_) => {
                    "nothing was written; run it again to see what is there now"
                }
                _ => self.remedy_without(&error),
            };
            Failure::new(id, what, error).remedy(remedy)
        })
    }

    /// Advice if the device cannot be partitioned. A device that is no hardware is partitioned only
    /// on request (--partition).
    fn remedy_without(&self, error: &PartitionError) -> &'static str {
        match error {
            _ if self.disk.is_hardware => {
                "give --whole-disk to use the disk without a partition table"
            }
            PartitionError::NotScanned(_) => {
                "attach a loop device again with `losetup -P`, or leave --partition out"
            }
            _ => "leave --partition out to use the device without a partition table",
        }
    }

    /// Checks, before anything is written, that the device supports partitions.
    ///
    /// # Errors
    /// It is a loop device without them.
    pub(crate) fn must_be_possible(&self, what: &str) -> Result<(), Failure> {
        if self.disk.may_have_partitions() {
            return Ok(());
        }
        let error = PartitionError::NotScanned(self.disk.path.clone());
        let remedy = self.remedy_without(&error);
        Err(Failure::new(id::MEMBER_OPEN, what, error).remedy(remedy))
    }

    /// Removes the table again: the partition was not used.
    pub fn undo(&self) {
        Self::erase_table(&self.disk);
    }

    fn erase_table(disk: &Disk) {
        if let Err(error) = disk.erase_table() {
            tracing::warn!(
                "a partition table that was made for a member, and holds none, stays: {error}"
            );
        }
    }

    /// As [`Planned::undo`], unless a pool may have the partition.
    pub(crate) fn undo_unless_used(&self, partition: &Path) {
        let options = OpenOptions {
            lock_patience: std::time::Duration::from_secs(1),
            ..OpenOptions::default()
        };
        let Ok(device) = FileMember::open(partition, &options) else {
            return;
        };
        let is_unused = borne_by(&device, partition).is_ok_and(|borne| borne.is_none());
        drop(device);
        if is_unused {
            self.undo();
        }
    }
}

/// Removes the table of a disk whose one partition was made to be a member and no longer is. Best
/// effort: it can be erased by hand.
pub(crate) fn give_back(partition: &Path) {
    let Some(disk) = Disk::of_partition(partition) else {
        return;
    };
    match disk.has_only_our_partition() {
        Ok(true) => Planned::erase_table(&disk),
        Ok(false) => {}
        Err(error) => tracing::warn!(
            "the partition table of {} stays: {error}",
            disk.path.display()
        ),
    }
}

impl Newcomer {
    /// The request for the partition that was made on the disk. The disk's content was probed, and
    /// is erased.
    pub(crate) fn on(&self, partition: PathBuf) -> Self {
        Self {
            path: partition,
            overwrite: true,
        }
    }
}

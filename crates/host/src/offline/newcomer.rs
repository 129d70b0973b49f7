//! A device that is to come into a pool: probed as at the creation of a pool, erased where
//! superblocks lie, and labelled.

use super::create::own_label;
use crate::failure::{Failure, id};
use crate::served::Served;
use std::path::{Path, PathBuf};
use windrow_device::probe::signature::{self, HEAD_BYTES, Mark};
use windrow_device::probe::{Target, probe};
use windrow_device::{DeviceError, Member};
use windrow_format::superblock::{
    FORMAT_VERSION, LABEL_BYTES, LABEL_OFFSET, Label, RESERVED_BYTES,
};
use windrow_io::Buf;
use windrow_types::{MemberId, PoolUuid, Uuid};

/// A device that is to come into a pool.
#[derive(Clone, Debug)]
pub struct Newcomer {
    /// The device or file; it exists.
    pub path: PathBuf,
    /// Overwrite data or signatures on it. A device in use is refused all the same.
    pub overwrite: bool,
}

impl Newcomer {
    /// Probes whether it may be taken; writes nothing. Returns a mark of its content, to be
    /// compared again under the lock.
    ///
    /// # Errors
    /// It does not exist, is in use, or holds something.
    pub fn examine(&self, what: &str) -> Result<Mark, Failure> {
        let shown = self.path.display();
        if let Some(held) = Served::now().held(&self.path) {
            return Err(held.failure(id::MEMBER_IN_USE, what, &self.path));
        }
        let report = probe(&self.path, own_label).map_err(|error| {
            Failure::new(
                id::MEMBER_OPEN,
                what,
                format!("{shown}: {}", super::files::reason(&error)),
            )
            .remedy("check the path and its permissions")
        })?;
        if report.target == Target::Missing {
            return Err(
                Failure::new(id::MEMBER_OPEN, what, format!("{shown} does not exist"))
                    .remedy("check the path"),
            );
        }
        if report.is_in_use() || report.target == Target::Unsuitable {
            return Err(
                Failure::new(id::MEMBER_IN_USE, what, report.lines().join("; "))
                    .remedy("choose another device, or release this one"),
            );
        }
        if (!report.signatures.is_empty() || report.has_data) && !self.overwrite {
            return Err(
                Failure::new(id::MEMBER_IN_USE, what, report.lines().join("; "))
                    .remedy("choose another device, or give --overwrite"),
            );
        }
        Ok(report.mark)
    }
}

/// Erases everything before the extents (labels, superblocks), and signatures of other software
/// there or at the end. A leftover md signature would be assembled at the next boot. Nothing of the
/// pool is on the device then.
pub(crate) fn erase(device: &dyn Member) -> Result<(), DeviceError> {
    const { assert!(HEAD_BYTES >= RESERVED_BYTES) };
    signature::erase(device)?;
    device.flush()
}

/// Writes the label.
pub(crate) fn label(
    device: &dyn Member,
    pool: PoolUuid,
    pool_name: &str,
    member: MemberId,
    member_uuid: Uuid,
) -> Result<(), DeviceError> {
    let label = Label {
        version: FORMAT_VERSION,
        pool,
        pool_name: pool_name.to_owned(),
        member_uuid,
        member,
    };
    let mut block = Buf::unpooled(LABEL_BYTES);
    let bytes = label.encode();
    block[..bytes.len()].copy_from_slice(&bytes);
    device.write_at(LABEL_OFFSET, &block)?;
    device.flush()
}

/// Absolute path for the daemon, which may run in another folder. Links are kept: a
/// `/dev/disk/by-id` name is stable across boots; the kernel's name behind it is not.
pub fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

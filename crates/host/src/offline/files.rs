//! Files made to become members: only on request, and never where they would not last.
//!
//! A path that does not exist is usually a typing error. A file in devtmpfs is memory, named like a
//! disk: replacing a healthy member with it loses redundancy. So a file is made on request only,
//! never below `/dev`, and in memory only for a new pool, with a warning.

use super::again::unmake_if;
use crate::failure::{Failure, id};
use std::path::Path;
use windrow_device::place::{self, Keeps, Place};
use windrow_device::{Allocation, CreateError, create_file_with_progress};
use windrow_types::BLOCK_BYTES;

/// Use of a new file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// A member of a new pool.
    NewPool,
    /// A device for a pool that has data.
    Device,
}

/// A file to create.
#[derive(Clone, Copy, Debug)]
pub struct NewFile<'p> {
    /// Path.
    pub path: &'p Path,
    /// Bytes.
    pub size_bytes: u64,
    /// Method of allocating its space.
    pub allocation: Allocation,
    /// Purpose.
    pub purpose: Purpose,
}

/// The failure for a path that does not exist when no file was requested. `ask` names the option
/// that requests one.
pub fn does_not_exist(path: &Path, what: &str, ask: &str) -> Failure {
    let shown = path.display();
    if let Ok(target) = std::fs::read_link(path) {
        let why = format!(
            "{shown} is a link to {}, which does not exist",
            target.display()
        );
        return Failure::new(id::MEMBER_OPEN, what, why).remedy("check the path");
    }
    let is_device = place::of_new_file(path).is_ok_and(|place| place.keeps == Keeps::Devices)
        || super::absolute(path).starts_with("/dev");
    let remedy = match is_device {
        true => {
            "check the path (`lsblk` lists block devices); no file is made below /dev".to_owned()
        }
        false => format!("check the path, or give {ask} to make a file there"),
    };
    Failure::new(id::MEMBER_OPEN, what, format!("{shown} does not exist")).remedy(remedy)
}

/// Checks whether the file can be made, without making it. Returns the file system's space and the
/// warnings.
///
/// # Errors
/// It exists, its folder does not, it would be in memory, or there is no space.
pub fn must_be_makeable(
    file: &NewFile<'_>,
    what: &str,
) -> Result<(Place, Option<String>), Failure> {
    let shown = file.path.display();
    let refused =
        |why: String, remedy: &str| Failure::new(id::MEMBER_OPEN, what, why).remedy(remedy);
    if file.path.symlink_metadata().is_ok() {
        return Err(does_not_exist(file.path, what, ""));
    }
    if file.size_bytes == 0 || !file.size_bytes.is_multiple_of(BLOCK_BYTES) {
        let error = CreateError::Size {
            path: file.path.to_owned(),
        };
        return Err(refused(error.to_string(), "give another size, such as 10G"));
    }
    let place = place::of_new_file(file.path).map_err(|error| {
        let folder = file
            .path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let why = match error.kind() {
            std::io::ErrorKind::NotFound => {
                format!("the folder {} does not exist", folder.display())
            }
            _ => format!(
                "no file can be made in the folder {}: {}",
                folder.display(),
                reason(&error)
            ),
        };
        refused(why, "check the path, and the permissions of its folder")
    })?;
    let warning = match (place.keeps, file.purpose) {
        (Keeps::Medium, _) => None,
        (Keeps::Memory, Purpose::NewPool) => Some(format!(
            "{shown} is in memory (tmpfs or ramfs): it and what the pool keeps in it are gone after a restart"
        )),
        (Keeps::Memory, Purpose::Device) => {
            let why = format!(
                "{shown} does not exist, and {} is in memory (tmpfs or ramfs): a file there is gone after a restart",
                place.folder.display()
            );
            return Err(refused(why, "name a block device, or a file on a disk"));
        }
        (Keeps::Devices, _) => {
            let why = format!(
                "{shown} does not exist, and a file in {} would be in memory, and gone after a restart",
                place.folder.display()
            );
            return Err(refused(
                why,
                "check the path (`lsblk` lists block devices), or name a file on a disk",
            ));
        }
    };
    let fits = place::lets_be_as_large_as(&place, file.size_bytes).map_err(|error| {
        refused(
            format!(
                "no file can be made in the folder {}: {}",
                place.folder.display(),
                reason(&error)
            ),
            "check the folder",
        )
    })?;
    if !fits {
        let error = CreateError::TooLarge {
            path: file.path.to_owned(),
            bytes: file.size_bytes,
        };
        return Err(refused(
            error.to_string(),
            "give a smaller size, or choose another folder",
        ));
    }
    if file.allocation != Allocation::Sparse && file.size_bytes > place.free_bytes {
        let why = format!(
            "no room for {} bytes in {shown}: {} bytes are free in {}",
            file.size_bytes,
            place.free_bytes,
            place.folder.display()
        );
        return Err(refused(
            why,
            "make room, give a smaller size, or give --sparse",
        ));
    }
    Ok((place, warning))
}

/// Makes the file.
///
/// # Errors
/// As [`must_be_makeable`], or it fails while it is made; nothing is left of it.
pub fn make(file: &NewFile<'_>, what: &str, progress: &mut dyn FnMut(u64)) -> Result<(), Failure> {
    must_be_makeable(file, what)?;
    create_file_with_progress(file.path, file.size_bytes, file.allocation, progress).map_err(
        |error| {
            Failure::new(id::MEMBER_OPEN, what, error)
                .remedy("check the folder, its room and its permissions")
        },
    )
}

/// Removes a file that was made for a device that the pool did not take, and adds the result to the
/// failure. A file with a label stays if the pool may have taken it: the daemon was lost, the pool
/// has stopped, or a later step failed.
#[must_use]
pub fn unmake_after(path: &Path, failure: Failure) -> Failure {
    let is_unclear =
        [id::NO_DAEMON, id::POOL_STOPPED, id::LOCAL_FILE].contains(&failure.id.as_str());
    if unmake_if(path, |member| !is_unclear && member.superblock.is_none()) {
        return failure;
    }
    let stays = format!(
        "the file {}, which was made for this, stays, as the pool may use it",
        path.display()
    );
    let remedy = if failure.remedy.is_empty() {
        stays
    } else {
        format!("{}; {stays}", failure.remedy)
    };
    failure.remedy(remedy)
}

/// A system error in words, without its number.
pub(crate) fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error")
        .next()
        .unwrap_or_default()
        .to_lowercase()
}

//! Probe: what would be lost if this file or device became a member?
//!
//! 1. *In use?* Mounted (itself, its disk, or a partition of it), used as swap, held by another
//!    block device (a volume manager, a loop device), or not available exclusively.
//! 2. *Contents?* Known signatures, by [`signature::find`].
//!
//! The probe opens read-only and changes nothing; [`signature::erase`] removes what it would find.

pub mod signature;
#[cfg(test)]
mod tests;
mod twice;
mod usage;

pub use twice::{Twice, named_twice};
pub(crate) use usage::is_reached_by_another_way;

use signature::{Mark, Signature, Window};
use std::fs;
use std::io::{self, Seek};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Object at the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// Nothing: a file can be created there.
    Missing,
    /// A regular file.
    File,
    /// A block device.
    BlockDevice,
    /// An object that can never be a member.
    Unsuitable,
}

/// Reason that the target is in use. `--force` should not override these.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Use {
    /// A file system on it, its disk or one of its partitions is mounted.
    Mounted {
        /// The device that is mounted.
        device: String,
        /// Mount point.
        mount_point: String,
    },
    /// It or a partition of it is swap space in use.
    Swap {
        /// The device or file.
        device: String,
    },
    /// Another block device is built on it.
    Held {
        /// Its name, such as `dm-0` or `loop3`.
        holder: String,
    },
    /// Another process has it locked or opened exclusively.
    Locked,
}

impl std::fmt::Display for Use {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Mounted {
                device,
                mount_point,
            } => write!(f, "{device} is mounted on {mount_point}"),
            Self::Swap { device } => write!(f, "{device} is swap space in use"),
            Self::Held { holder } => write!(f, "{holder} is built on it"),
            Self::Locked => f.write_str("another process or the kernel holds it"),
        }
    }
}

/// Result of [`probe`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProbeReport {
    /// The path as given.
    pub path: PathBuf,
    /// Object at the path.
    pub target: Target,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Reasons why it is in use.
    pub uses: Vec<Use>,
    /// Known contents.
    pub signatures: Vec<Signature>,
    /// True if one of its ends (4 MiB at the start, 2 MiB at the end) has a nonzero byte: possibly
    /// data without a known signature.
    pub has_data: bool,
    /// Mark to detect, under its lock, writes after this probe.
    pub mark: Mark,
    /// Number of sampled blocks between the ends that are not zero, and number of samples read:
    /// `(found, read)`. Reported, but never a refusal: it may be left by a pool whose labels were
    /// erased, and every disk that was wiped with `wipefs` looks like that.
    pub samples: (u64, u64),
}

impl ProbeReport {
    /// True if it is in use.
    pub fn is_in_use(&self) -> bool {
        !self.uses.is_empty()
    }

    /// True if it is suitable, unused and without known contents.
    pub fn is_free(&self) -> bool {
        self.target != Target::Unsuitable && self.uses.is_empty() && self.signatures.is_empty()
    }

    /// One message line for each finding; empty if there is none.
    pub fn lines(&self) -> Vec<String> {
        let path = self.path.display();
        let mut lines = Vec::new();
        if self.target == Target::Unsuitable {
            lines.push(format!(
                "{path} is neither a regular file nor a block device"
            ));
        }
        lines.extend(
            self.uses
                .iter()
                .map(|found| format!("{path} is in use: {found}")),
        );
        lines.extend(
            self.signatures
                .iter()
                .map(|found| format!("{path} holds {found}, which would be overwritten")),
        );
        if self.signatures.is_empty() && self.has_data {
            lines.push(format!(
                "{path} holds data of an unknown kind, which would be overwritten"
            ));
        }
        let (found, read) = self.samples;
        if self.signatures.is_empty() && !self.has_data && found > 0 {
            lines.push(format!("{path} is empty at both ends, but {found} of {read} samples between hold data, which would be overwritten"));
        }
        lines
    }
}

/// Size of a file or block device in bytes. Writes nothing.
///
/// # Errors
/// It cannot be opened or measured, or is neither.
pub fn size_bytes(path: &Path) -> io::Result<u64> {
    let metadata = fs::metadata(path)?;
    if metadata.is_file() {
        return Ok(metadata.len());
    }
    if !metadata.file_type().is_block_device() {
        return Err(rustix::io::Errno::NOTBLK.into());
    }
    // NONBLOCK: do not wait for a drive without a medium.
    let mut file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK)
        .open(path)?;
    file.seek(io::SeekFrom::End(0))
}

/// Probes a file or device that is to become a member.
///
/// `own_label` receives the 4096 bytes at byte 4096 and describes them if they are one of our
/// labels ("member 3 of pool tank").
///
/// # Errors
/// The target exists and cannot be inspected or read.
pub fn probe(
    path: &Path,
    own_label: impl FnOnce(&[u8]) -> Option<String>,
) -> io::Result<ProbeReport> {
    let mut report = ProbeReport {
        path: path.to_owned(),
        target: Target::Missing,
        size_bytes: 0,
        uses: Vec::new(),
        signatures: Vec::new(),
        has_data: false,
        mark: Mark::default(),
        samples: (0, 0),
    };
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(report),
        Err(error) => return Err(error),
    };
    report.target = if metadata.file_type().is_block_device() {
        Target::BlockDevice
    } else if metadata.is_file() {
        Target::File
    } else {
        Target::Unsuitable
    };
    if report.target == Target::Unsuitable {
        return Ok(report);
    }
    report.uses = match report.target {
        Target::BlockDevice => usage::of_device(metadata.rdev()),
        _ => usage::of_file(path),
    };
    if report.uses.is_empty() && usage::is_locked(path, report.target)? {
        report.uses.push(Use::Locked);
    }
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK)
        .open(path)?;
    let window = Window::read(&file)?;
    report.size_bytes = window.size_bytes();
    report.has_data = window.has_data();
    report.mark = window.mark();
    report.samples = signature::sample(&file, report.size_bytes);
    if let Some(description) = window.at(4096, 4096).and_then(own_label) {
        report.signatures.push(Signature {
            name: description,
            offset: 4096,
        });
    }
    report.signatures.extend(signature::find(&window));
    Ok(report)
}

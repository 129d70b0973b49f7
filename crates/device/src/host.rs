//! This host: its identity, locked memory, and descriptor limits.

#[cfg(test)]
mod tests;

use rustix::mm::MlockAllFlags;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sha2::{Digest, Sha256};
use std::path::Path;

/// Mixed into the machine id, which is confidential: the result does not reveal it, and other
/// applications get other results.
const SALT: &[u8] = b"windrow host identity, version 1\0";
/// `CAP_IPC_LOCK` of `linux/capability.h`.
const CAP_IPC_LOCK: u32 = 14;
/// Of `linux/prctl.h`.
const PR_SET_IO_FLUSHER: libc::c_int = 57;

/// A stable identifier of this installation, from its machine id; `None` if it has none. The caller
/// then generates 16 random bytes once and keeps them.
pub fn host_id() -> Option<[u8; 16]> {
    ["/etc/machine-id", "/var/lib/dbus/machine-id"]
        .into_iter()
        .find_map(|path| host_id_from(Path::new(path)))
}

fn host_id_from(path: &Path) -> Option<[u8; 16]> {
    let text = std::fs::read_to_string(path).ok()?;
    let text = text.trim();
    // An image that was never booted has an empty file or the word "uninitialized".
    if text.len() != 32
        || !text.bytes().all(|b| b.is_ascii_hexdigit())
        || text.bytes().all(|b| b == b'0')
    {
        return None;
    }
    let hash = Sha256::new()
        .chain_update(SALT)
        .chain_update(text.to_ascii_lowercase())
        .finalize();
    hash[..16].try_into().ok()
}

/// Result of [`lock_memory`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MemoryLock {
    /// All memory of the process, present and future, stays resident.
    Locked,
    /// It does not stay resident.
    NotLocked {
        /// Reason, for the log.
        reason: String,
    },
}

/// Locks all present and future memory of the process, if that is permitted without a limit.
///
/// With a limit it is not tried: once the limit is reached every further allocation would fail,
/// which is worse than a page fault. From then on every mapping is made resident at once, including
/// a sparse [`RamMember`](crate::RamMember) and the stacks of threads.
pub fn lock_memory() -> MemoryLock {
    if getrlimit(Resource::Memlock).current.is_some() && !has_capability(CAP_IPC_LOCK) {
        return MemoryLock::NotLocked {
            reason: "the process may lock only a limited amount of memory (RLIMIT_MEMLOCK)"
                .to_owned(),
        };
    }
    match rustix::mm::mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE) {
        Ok(()) => MemoryLock::Locked,
        Err(errno) => MemoryLock::NotLocked {
            reason: format!("the kernel refuses: {errno}"),
        },
    }
}

/// Marks this thread, and every thread it starts from now on, as an I/O flusher
/// (`PR_SET_IO_FLUSHER`). Their own allocations then never wait for the device they serve. For a
/// server whose block devices are used on the same host. Needs `CAP_SYS_RESOURCE`.
///
/// # Errors
/// `EPERM` without the capability, `EINVAL` on kernels before 5.6.
pub fn become_io_flusher() -> std::io::Result<()> {
    const ON: libc::c_ulong = 1;
    const UNUSED: libc::c_ulong = 0;
    // SAFETY: this prctl takes numbers only and touches no memory of the process.
    let result = unsafe { libc::prctl(PR_SET_IO_FLUSHER, ON, UNUSED, UNUSED, UNUSED) };
    if result == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// Raises the soft limit of open descriptors to the hard limit: each member, connection and ring
/// needs some, and the usual limit of 1024 is for programs that use `select`. Returns the resulting
/// limit; `None`: no limit.
pub fn raise_descriptor_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    match setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    ) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    }
}

/// Raises the soft file size limit to the hard limit: members are files of any size.
pub fn raise_file_size_limit() {
    let maximum = getrlimit(Resource::Fsize).maximum;
    // (If that is refused the soft limit stays; a larger member is refused when it is opened.)
    let _stays = setrlimit(
        Resource::Fsize,
        Rlimit {
            current: maximum,
            maximum,
        },
    );
}

fn has_capability(number: u32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> number & 1 == 1)
}

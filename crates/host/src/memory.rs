//! Default memory for maps: a quarter of what this process may use.
//!
//! The engine takes the smaller of this and the need of a full pool's maps. The rest of the memory
//! is for other uses of the machine.

use std::path::{Path, PathBuf};
use windrow_types::BLOCK_BYTES;

/// Divisor of the machine's or control group's memory for the default limit.
const SHARE: u64 = 4;
/// Smallest limit in bytes: enough for 4 GiB of data.
const LEAST_BYTES: u64 = 16 << 20;
/// Limit in bytes if the kernel does not report the amount of memory.
const UNKNOWN_BYTES: u64 = 1 << 30;

/// Bytes of map memory for a block of data.
const MAP_ENTRY_BYTES: u64 = 16;

/// Data that maps of `limit` bytes can hold, if less than the whole pool needs (`full`, in bytes of
/// maps). Further writes fail with no space.
pub fn data_bytes_max(limit: u64, full: u64) -> Option<u64> {
    (limit < full).then_some(limit / MAP_ENTRY_BYTES * BLOCK_BYTES)
}

/// Default limit on the memory for maps, in bytes.
pub fn default_map_bytes() -> u64 {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let total = read(Path::new("/proc/meminfo")).and_then(|text| total_bytes(&text));
    let groups =
        read(Path::new("/proc/self/cgroup")).map_or_else(Vec::new, |text| limit_files(&text));
    share_of(
        total,
        groups
            .iter()
            .filter_map(|path| read(path))
            .filter_map(|text| text.trim().parse().ok()),
    )
}

/// The share of the smallest of these.
fn share_of(total: Option<u64>, limits: impl Iterator<Item = u64>) -> u64 {
    // (Control groups v1 report a huge number for "no limit".)
    let least = limits
        .chain(total)
        .min()
        .map_or(UNKNOWN_BYTES, |least| least / SHARE);
    least.max(LEAST_BYTES)
}

/// Memory of the machine, from `/proc/meminfo`.
fn total_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim()
        .strip_suffix("kB")?
        .trim()
        .parse::<u64>()
        .ok()
        .map(|kib| kib << 10)
}

/// Files with the limits of the control groups that contain this process, from `/proc/self/cgroup`:
/// its own group and its ancestors.
fn limit_files(cgroup: &str) -> Vec<PathBuf> {
    let of = |line: &str| -> Option<Vec<PathBuf>> {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, group) = (fields.next()?, fields.next()?, fields.next()?);
        let (root, file) = match (number, controllers) {
            ("0", "") => ("/sys/fs/cgroup", "memory.max"),
            (_, controllers) if controllers.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let groups = Path::new(group.trim_start_matches('/')).ancestors();
        Some(
            groups
                .map(|group| Path::new(root).join(group).join(file))
                .collect(),
        )
    };
    cgroup.lines().filter_map(of).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fixed 4 GiB would be too much for a small machine, and an error at 20 % of the space on a
    /// large one.
    #[test]
    fn maps_get_a_quarter_of_what_the_process_may_use() {
        assert_eq!(
            total_bytes("MemTotal:       24689460 kB\nMemFree: 1 kB\n"),
            Some(24_689_460 << 10)
        );
        assert_eq!(total_bytes("MemFree: 1 kB\n"), None);
        assert_eq!(share_of(Some(32 << 30), [].into_iter()), 8 << 30);
        assert_eq!(
            share_of(Some(32 << 30), [4 << 30, u64::MAX >> 1].into_iter()),
            1 << 30
        );
        assert_eq!(share_of(Some(32 << 30), [1 << 20].into_iter()), LEAST_BYTES);
        assert_eq!(share_of(None, [].into_iter()), UNKNOWN_BYTES);
    }

    #[test]
    fn maps_that_hold_the_whole_pool_have_no_limit_to_tell() {
        assert_eq!(
            (
                data_bytes_max(4 << 30, 4 << 30),
                data_bytes_max(4 << 30, (4 << 30) + 1)
            ),
            (None, Some(1 << 40))
        );
    }

    #[test]
    fn limits_are_looked_for_in_every_group_around_the_process() {
        let paths = |text: &str| {
            limit_files(text)
                .iter()
                .map(|path| path.display().to_string())
                .collect::<Vec<_>>()
        };
        let second = [
            "/sys/fs/cgroup/system.slice/w.service/memory.max",
            "/sys/fs/cgroup/system.slice/memory.max",
            "/sys/fs/cgroup/memory.max",
        ];
        assert_eq!(paths("0::/system.slice/w.service\n"), second);
        assert_eq!(
            paths("5:cpu,memory:/a\n3:cpuset:/b\n"),
            [
                "/sys/fs/cgroup/memory/a/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes"
            ]
        );
        assert!(paths("nonsense\n1:x\n").is_empty());
    }
}

//! File systems: creation, and location of the journal.

use super::{cannot, tools};
use std::ops::Range;
use std::path::Path;
use windrow_host::Failure;
use windrow_types::BLOCK_BYTES;

/// A file system under test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum System {
    /// ext4 with blocks of 4 KiB, without lazy initialisation.
    Ext4,
    /// XFS with sectors of 4 KiB.
    Xfs,
}

impl System {
    /// Name for `mount`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }

    /// Creates it on a device or in a file; `with`: further arguments.
    pub fn make(self, place: &Path, with: &[&str]) -> Result<(), Failure> {
        let (program, arguments): (_, &[&str]) = match self {
            Self::Ext4 => (
                "mke2fs",
                &[
                    "-q",
                    "-F",
                    "-t",
                    "ext4",
                    "-b",
                    "4096",
                    "-E",
                    "nodiscard,lazy_itable_init=0,lazy_journal_init=0",
                ],
            ),
            Self::Xfs => ("mkfs.xfs", &["-q", "-f", "-K", "-s", "size=4096"]),
        };
        let place = place.to_string_lossy();
        tools::run(
            program,
            arguments.iter().chain(with).copied().chain([&*place]),
        )
        .map(drop)
    }

    /// Block ranges of its journal; `first`: its first block.
    pub fn journal(self, place: &Path, first: &[u8; 4096]) -> Result<Vec<Range<u64>>, Failure> {
        let unknown = || {
            cannot(
                "find the journal",
                self.name(),
                "its superblock, or what debugfs says of it, is not as expected",
            )
        };
        let found = match self {
            // The eighth inode is the journal.
            Self::Ext4 => ranges(&tools::run(
                "debugfs",
                ["-R", "blocks <8>", &place.to_string_lossy()],
            )?),
            Self::Xfs => xfs_log(first),
        };
        found.filter(|found| !found.is_empty()).ok_or_else(unknown)
    }
}

/// Converts block numbers printed by debugfs to ranges.
fn ranges(printed: &str) -> Option<Vec<Range<u64>>> {
    let mut found: Vec<Range<u64>> = Vec::new();
    for word in printed.split_whitespace() {
        let number: u64 = word.parse().ok()?;
        match found.last_mut() {
            Some(last) if last.end == number => last.end += 1,
            _ => found.push(number..number + 1),
        }
    }
    Some(found)
}

/// Log range from the superblock of XFS: numbers are big-endian; block number 48..56 has the group
/// above `agblklog` bits and the block in the group below.
fn xfs_log(superblock: &[u8; 4096]) -> Option<Vec<Range<u64>>> {
    let word = |at: usize| {
        u64::from(u32::from_be_bytes([
            superblock[at],
            superblock[at + 1],
            superblock[at + 2],
            superblock[at + 3],
        ]))
    };
    let (start, group_blocks, length, group_bits) = (
        (word(48) << 32) | word(52),
        word(84),
        word(96),
        superblock[124],
    );
    let is_known = superblock.starts_with(b"XFSB")
        && word(4) == BLOCK_BYTES
        && start > 0
        && (1..32).contains(&group_bits);
    if !is_known {
        return None;
    }
    let first = (start >> group_bits) * group_blocks + (start & ((1 << group_bits) - 1));
    Some(std::iter::once(first..first + length).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journals_are_found() {
        assert_eq!(ranges("5 6 7 20\t21\n9"), Some(vec![5..8, 20..22, 9..10]));
        assert_eq!((ranges("debugfs: no"), ranges("")), (None, Some(vec![])));
        let mut block = [0; 4096];
        block[..4].copy_from_slice(b"XFSB");
        block[4..8].copy_from_slice(&4096u32.to_be_bytes());
        // Block 6 of the third group; groups of 1000 blocks, 10 bits.
        block[48..56].copy_from_slice(&(2u64 << 10 | 6).to_be_bytes());
        block[84..88].copy_from_slice(&1000u32.to_be_bytes());
        block[96..100].copy_from_slice(&500u32.to_be_bytes());
        block[124] = 10;
        assert_eq!(xfs_log(&block), Some(std::iter::once(2006..2506).collect()));
        block[0] = 0;
        assert_eq!(xfs_log(&block), None);
    }
}

//! Partition table of a disk with one partition: protective MBR, GPT, backup GPT. Pure: bytes in,
//! bytes out.
//!
//! The `gpt` crate writes to an in-memory image that keeps only the written sectors. It never
//! touches a device, and everything is written at once, under the lock of the caller.

use gpt::disk::LogicalBlockSize;
use gpt::partition_types::{OperatingSystem, Type};
use gpt::{GptConfig, mbr::ProtectiveMBR};
use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;

/// Type of a partition that is a member of a pool; udev, installers and `lsblk` identify it by
/// this.
pub const PARTITION_TYPE: &str = "7e5a4c8e-1d0b-4b9c-9a57-77696e64726f";
/// Name of the partition.
const NAME: &str = "windrow";
/// Bytes of the partition entries: 128 entries of 128 bytes.
const ENTRIES_BYTES: u64 = 128 * 128;

/// Bytes at the start of a disk that the table takes: MBR, header and entries.
pub(super) fn head_bytes(sector: u64) -> u64 {
    2 * sector + ENTRIES_BYTES
}

/// Bytes at its end: entries and header.
pub(super) fn tail_bytes(sector: u64) -> u64 {
    ENTRIES_BYTES + sector
}

/// Byte range of the partition on a disk of `size_bytes`: from a multiple of `align_bytes` on,
/// whole blocks of 4 KiB. `None` if there is no room for one.
pub fn partition(size_bytes: u64, sector: u64, align_bytes: u64) -> Option<Range<u64>> {
    let size = size_bytes / sector * sector;
    let start = head_bytes(sector).next_multiple_of(align_bytes.max(1 << 20));
    let end = size.checked_sub(tail_bytes(sector))? / 4096 * 4096;
    (start < end).then_some(start..end)
}

/// Byte ranges to write to the disk, by offset.
///
/// # Errors
/// The sector size is not 512 or 4096 bytes, or the partition does not fit.
pub(super) fn encode(
    size_bytes: u64,
    sector: u64,
    partition: &Range<u64>,
) -> io::Result<BTreeMap<u64, Vec<u8>>> {
    let other = |error: &dyn std::fmt::Display| io::Error::other(error.to_string());
    let mut image = Image {
        sector,
        size: size_bytes / sector * sector,
        at: 0,
        written: BTreeMap::new(),
    };
    let block = LogicalBlockSize::try_from(sector)?;
    let last = u32::try_from(image.size / sector - 1).unwrap_or(u32::MAX);
    ProtectiveMBR::with_lb_size(last)
        .overwrite_lba0(&mut image)
        .map_err(|error| other(&error))?;
    let config = GptConfig::new().writable(true).logical_block_size(block);
    let mut disk = config
        .create_from_device(image, None)
        .map_err(|error| other(&error))?;
    let kind = PARTITION_TYPE
        .parse::<Type>()
        .map_err(|error| other(&error))?;
    let kind = Type {
        os: OperatingSystem::Linux,
        ..kind
    };
    let (first, length) = (
        partition.start / sector,
        (partition.end - partition.start) / sector,
    );
    disk.add_partition_at(NAME, 1, first, length, kind, 0)
        .map_err(|error| other(&error))?;
    let image = disk.write().map_err(|error| other(&error))?;
    Ok(image.written)
}

/// True if the table in these first bytes of a disk has one partition, of our type and name.
pub(super) fn has_only_our_partition(head: &[u8], sector: u64) -> bool {
    let header = || {
        let block = LogicalBlockSize::try_from(sector).ok()?;
        let mut head = io::Cursor::new(head);
        let header = gpt::header::read_header_from_arbitrary_device(&mut head, block).ok()?;
        gpt::partition::file_read_partitions(&mut head, &header, block).ok()
    };
    let is_ours = |partition: &gpt::partition::Partition| {
        partition.name == NAME
            && partition
                .part_type_guid
                .guid
                .to_string()
                .eq_ignore_ascii_case(PARTITION_TYPE)
    };
    header().is_some_and(|partitions| {
        let mut used = partitions.values().filter(|partition| partition.is_used());
        used.next().is_some_and(is_ours) && used.next().is_none()
    })
}

/// A disk of zeroes of which only written sectors are kept.
#[derive(Debug)]
struct Image {
    sector: u64,
    size: u64,
    at: u64,
    written: BTreeMap<u64, Vec<u8>>,
}

impl Image {
    /// The part of the sector at the position that a transfer of this many bytes covers: the
    /// sector's offset on the disk, and the range inside it.
    fn part(&self, length: usize) -> (u64, Range<usize>) {
        let inside = (self.at % self.sector) as usize;
        let rest = (self.size.saturating_sub(self.at)).min(length as u64) as usize;
        (
            self.at - inside as u64,
            inside..inside + rest.min(self.sector as usize - inside),
        )
    }
}

impl Read for Image {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let (offset, range) = self.part(buf.len());
        let count = range.len();
        match self.written.get(&offset) {
            Some(bytes) => buf[..count].copy_from_slice(&bytes[range]),
            None => buf[..count].fill(0),
        }
        self.at += count as u64;
        Ok(count)
    }
}

impl Write for Image {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let (offset, range) = self.part(buf.len());
        let (count, sector) = (range.len(), self.sector as usize);
        if count > 0 {
            self.written
                .entry(offset)
                .or_insert_with(|| vec![0; sector])[range]
                .copy_from_slice(&buf[..count]);
        }
        self.at += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Image {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => i128::from(at),
            SeekFrom::End(distance) => i128::from(self.size) + i128::from(distance),
            SeekFrom::Current(distance) => i128::from(self.at) + i128::from(distance),
        };
        self.at = u64::try_from(at).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn disk(size: u64, sector: u64, align: u64) -> (Range<u64>, BTreeMap<u64, Vec<u8>>) {
        let partition = partition(size, sector, align).expect("room");
        let written = encode(size, sector, &partition).expect("a table");
        (partition, written)
    }

    /// Read back by the library, from a file with the encoded bytes.
    #[test]
    fn both_tables_say_the_same_partition() {
        for (size, sector, align) in [
            (64 * MIB, 512, MIB),
            (64 * MIB + 512 * 7, 512, 4 * MIB),
            (64 * MIB, 4096, MIB),
            (4 << 40, 512, 64 * MIB),
        ] {
            let (partition, written) = disk(size, sector, align);
            assert!(
                partition.start.is_multiple_of(align) && partition.start >= MIB,
                "{partition:?}"
            );
            assert!((partition.end - partition.start).is_multiple_of(4096));
            assert!(size - partition.end < 32 << 10, "nothing is wasted");
            let outside = |offset: &u64| {
                *offset + sector <= head_bytes(sector)
                    || *offset >= size / sector * sector - tail_bytes(sector)
            };
            assert!(written.keys().all(outside), "only the table is written");
            let file = tempfile::tempfile().expect("a file");
            file.set_len(size / sector * sector).expect("sparse");
            for (offset, bytes) in &written {
                std::os::unix::fs::FileExt::write_all_at(&file, bytes, *offset).expect("written");
            }
            let block = LogicalBlockSize::try_from(sector).expect("a sector");
            for only in [true, false] {
                // Without the first header the backup is used.
                if !only {
                    std::os::unix::fs::FileExt::write_all_at(
                        &file,
                        &vec![0; sector as usize],
                        sector,
                    )
                    .expect("erased");
                }
                let found = GptConfig::new()
                    .logical_block_size(block)
                    .open_from_device(file.try_clone().expect("a copy"))
                    .expect("a table");
                assert_eq!(found.partitions().len(), 1);
                let one = &found.partitions()[&1];
                assert_eq!(
                    (one.first_lba * sector, (one.last_lba + 1) * sector),
                    (partition.start, partition.end)
                );
                assert_eq!(
                    (
                        one.part_type_guid.guid.to_string().as_str(),
                        one.name.as_str()
                    ),
                    (PARTITION_TYPE, NAME)
                );
            }
            let mbr = &written[&0];
            assert_eq!(
                (mbr[450], &mbr[510..512]),
                (0xee, &[0x55, 0xaa][..]),
                "protective"
            );
        }
    }

    #[test]
    fn a_disk_without_room_gets_no_partition() {
        assert_eq!(partition(MIB, 512, MIB), None);
        assert_eq!(partition(64 * MIB, 512, 64 * MIB), None);
        assert_eq!(partition(0, 512, MIB), None);
        assert!(encode(64 * MIB, 1024, &(MIB..2 * MIB)).is_err());
    }

    /// A table that a pool did not make is not erased.
    #[test]
    fn our_table_is_distinguished_from_others() {
        for sector in [512, 4096] {
            let size = 64 * MIB;
            let (_, written) = disk(size, sector, MIB);
            let mut head = vec![0; head_bytes(sector) as usize];
            assert!(!has_only_our_partition(&head, sector), "no table");
            for (offset, bytes) in written.range(..head.len() as u64) {
                head[*offset as usize..][..bytes.len()].copy_from_slice(bytes);
            }
            assert!(has_only_our_partition(&head, sector));
            assert!(
                !has_only_our_partition(&head[..2 * sector as usize], sector),
                "a part of it"
            );
            // Another type in the entry: the header's checksum no longer matches.
            head[2 * sector as usize] ^= 1;
            assert!(!has_only_our_partition(&head, sector));
        }
    }
}

//! Signatures of file systems, volume managers, partition tables and disk images.
//!
//! Most are a few bytes at a fixed place: the table `FIXED`. The rest need a little more (a place that depends on the size, a check
//! that two bytes of boot code are not taken for a partition table) and have a function each. A false alarm costs the administrator a
//! `--force`; a miss costs data: so in doubt a signature counts.

use crate::{DeviceError, Member};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use windrow_io::Buf;

/// Bytes looked at (and erased) from the start: up to the end of the first ZFS label, and the superblocks behind it.
pub const HEAD_BYTES: u64 = 1 << 20;
/// Bytes looked at (and erased) before the end: two ZFS labels, all trailing RAID superblocks, the backup GPT.
const TAIL_BYTES: u64 = 1 << 20;

/// Something known that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Signature {
    /// What it is.
    pub name: String,
    /// Byte at which it shows.
    pub offset: u64,
}

impl std::fmt::Display for Signature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (signature at byte {})", self.name, self.offset)
    }
}

/// Start and end of a file or device, in memory.
pub struct Window {
    size: u64,
    head: Vec<u8>,
    tail_start: u64,
    tail: Vec<u8>,
}

impl Window {
    /// Reads the two ends.
    ///
    /// # Errors
    /// Of the reads.
    pub fn read(mut file: &File) -> io::Result<Self> {
        let size = file.seek(SeekFrom::End(0))?;
        let mut head = vec![0; size.min(HEAD_BYTES) as usize];
        file.read_exact_at(&mut head, 0)?;
        let tail_start = size.saturating_sub(TAIL_BYTES);
        let mut tail = vec![0; (size - tail_start) as usize];
        file.read_exact_at(&mut tail, tail_start)?;
        Ok(Self { size, head, tail_start, tail })
    }

    /// Bytes of the whole.
    pub fn size_bytes(&self) -> u64 {
        self.size
    }

    /// True if the start has a byte that is not zero.
    pub fn has_data(&self) -> bool {
        self.head.iter().any(|b| *b != 0)
    }

    /// A range, if it lies in one of the two ends.
    pub fn at(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let part = |bytes: &[u8], start: u64| -> Option<std::ops::Range<usize>> {
            let first = usize::try_from(offset.checked_sub(start)?).ok()?;
            let end = first.checked_add(length)?;
            (end <= bytes.len()).then_some(first..end)
        };
        if let Some(range) = part(&self.head, 0) {
            return self.head.get(range);
        }
        part(&self.tail, self.tail_start).and_then(|range| self.tail.get(range))
    }

    fn is(&self, offset: u64, magic: &[u8]) -> bool {
        self.at(offset, magic.len()) == Some(magic)
    }
}

struct Fixed {
    offset: u64,
    magic: &'static [u8],
    name: &'static str,
}

const fn fixed(offset: u64, magic: &'static [u8], name: &'static str) -> Fixed {
    Fixed { offset, magic, name }
}

const FIXED: &[Fixed] = &[
    fixed(0, b"XFSB", "an XFS file system"),
    fixed(65536 + 64, b"_BHRfS_M", "a Btrfs file system"),
    fixed(1024, &[0x10, 0x20, 0xf5, 0xf2], "an F2FS file system"),
    fixed(1024, &[0xe2, 0xe1, 0xf5, 0xe0], "an EROFS file system"),
    fixed(0, b"hsqs", "a SquashFS file system"),
    fixed(32768 + 1, b"CD001", "an ISO 9660 file system"),
    fixed(32768 + 1, b"BEA01", "a UDF file system"),
    fixed(65536 + 52, b"ReIsEr2Fs", "a ReiserFS file system"),
    fixed(65536 + 52, b"ReIsEr3Fs", "a ReiserFS file system"),
    fixed(65536 + 52, b"ReIsErFs", "a ReiserFS file system"),
    fixed(32768, b"JFS1", "a JFS file system"),
    fixed(3, b"NTFS    ", "an NTFS file system"),
    fixed(3, b"EXFAT   ", "an exFAT file system"),
    fixed(3, b"-FVE-FS-", "a BitLocker volume"),
    fixed(54, b"FAT12   ", "a FAT file system"),
    fixed(54, b"FAT16   ", "a FAT file system"),
    fixed(82, b"FAT32   ", "a FAT file system"),
    fixed(0, b"LUKS\xba\xbe", "a LUKS container"),
    fixed(0x4000, b"SKUL\xba\xbe", "the second header of a LUKS container"),
    fixed(0, &[0xfc, 0x4e, 0x2b, 0xa9], "a Linux RAID (md 1.1) member"),
    fixed(4096, &[0xfc, 0x4e, 0x2b, 0xa9], "a Linux RAID (md 1.2) member"),
    fixed(4096 + 24, &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81], "a bcache device"),
    fixed(4096 + 24, &[0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9, 0xd9, 0x6a, 0x60, 0xcf, 0x80, 0x3d, 0xf7, 0xef], "a bcachefs file system"),
    fixed(0, b"dmvdo001", "a VDO volume"),
    fixed(0, b"bluestore block device", "a Ceph BlueStore device"),
    fixed(512, b"EFI PART", "a GPT partition table"),
    fixed(4096, b"EFI PART", "a GPT partition table (4096-byte sectors)"),
    fixed(0, b"QFI\xfb", "a qcow2 disk image"),
    fixed(0, b"KDMV", "a VMDK disk image"),
    fixed(0, b"vhdxfile", "a VHDX disk image"),
    fixed(64, &[0x7f, 0x10, 0xda, 0xbe], "a VDI disk image"),
];

/// What it is and where it shows.
type Check = fn(&Window) -> Option<(&'static str, u64)>;

const CHECKS: &[Check] = &[ext, swap, logical_volume_manager, master_boot_record, backup_gpt, md_at_the_end, firmware_raid, zfs];

/// All known signatures in the window, by offset.
pub fn find(window: &Window) -> Vec<Signature> {
    let mut found: Vec<Signature> = Vec::new();
    let mut add = |name: &str, offset: u64| found.push(Signature { name: name.to_owned(), offset });
    for entry in FIXED.iter().filter(|entry| window.is(entry.offset, entry.magic)) {
        add(entry.name, entry.offset);
    }
    for (name, offset) in CHECKS.iter().filter_map(|check| check(window)) {
        add(name, offset);
    }
    found.sort_by_key(|signature| signature.offset);
    found
}

/// Zeroes both ends of a device, wherever a signature is looked for; what is zero at the end already is not written. Not durable before a flush.
///
/// # Errors
/// Of the writes.
pub fn erase(device: &dyn Member) -> Result<(), DeviceError> {
    let size = device.info().size_bytes;
    let zeroes = Buf::unpooled(HEAD_BYTES.max(TAIL_BYTES) as usize);
    let head = size.min(HEAD_BYTES);
    device.write_at(0, &zeroes[..head as usize])?;
    let start = size.saturating_sub(TAIL_BYTES).max(head);
    let mut tail = Buf::unpooled((size - start) as usize);
    // What cannot be read may well be written.
    let is_blank = device.read_at(start, &mut tail).is_ok() && tail.iter().all(|byte| *byte == 0);
    if !is_blank {
        device.write_at(start, &zeroes[..tail.len()])?;
    }
    device.erase_behind()
}

/// ext2, 3 and 4 share a magic; feature flags tell them apart.
fn ext(window: &Window) -> Option<(&'static str, u64)> {
    let superblock = window.at(1024, 1024)?;
    if superblock.get(56..58)? != [0x53, 0xef] {
        return None;
    }
    let word = |at: usize| superblock.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
    let (has_journal, incompatible, read_only) = (word(92) & 4 != 0, word(96), word(100));
    // Whatever ext2 and ext3 do not know: extents, 64-bit, flexible groups; huge files, checksums.
    let newer = incompatible & !0x1f != 0 || read_only & !0x7 != 0;
    Some((if newer { "an ext4 file system" } else { ["an ext2 file system", "an ext3 file system"][usize::from(has_journal)] }, 1080))
}

/// Swap space: the magic ends the first page, whose size depends on the machine that made it.
fn swap(window: &Window) -> Option<(&'static str, u64)> {
    [4096u64, 8192, 16384, 32768, 65536]
        .into_iter()
        .map(|page| page - 10)
        .find(|offset| window.is(*offset, b"SWAPSPACE2") || window.is(*offset, b"SWAP-SPACE"))
        .map(|offset| ("Linux swap space", offset))
}

/// LVM2: the label is in one of the first four sectors.
fn logical_volume_manager(window: &Window) -> Option<(&'static str, u64)> {
    (0..4).map(|sector| sector * 512).find(|at| window.is(*at, b"LABELONE") && window.is(*at + 24, b"LVM2 001")).map(|at| ("an LVM2 physical volume", at))
}

/// MBR: the two bytes at 510 also end boot sectors of file systems, so the four entries must look like partitions.
fn master_boot_record(window: &Window) -> Option<(&'static str, u64)> {
    if !window.is(510, &[0x55, 0xaa]) {
        return None;
    }
    let entries = window.at(446, 64)?;
    let plausible = entries.chunks(16).all(|entry| matches!(entry[0], 0 | 0x80));
    let used = |entry: &[u8]| entry[4] != 0 && entry[12..16] != [0; 4];
    (plausible && entries.chunks(16).any(used)).then_some(("an MBR partition table with partitions", 510))
}

fn backup_gpt(window: &Window) -> Option<(&'static str, u64)> {
    [512u64, 4096]
        .into_iter()
        .filter_map(|sector| (window.size / sector * sector).checked_sub(sector))
        .find(|at| window.is(*at, b"EFI PART"))
        .map(|at| ("the backup of a GPT partition table", at))
}

/// md 0.90 (in the byte order of its machine) and 1.0 are near the end.
fn md_at_the_end(window: &Window) -> Option<(&'static str, u64)> {
    let old = (window.size & !65535).checked_sub(65536);
    if let Some(at) = old.filter(|at| window.is(*at, &[0xfc, 0x4e, 0x2b, 0xa9]) || window.is(*at, &[0xa9, 0x2b, 0x4e, 0xfc])) {
        return Some(("a Linux RAID (md 0.90) member", at));
    }
    let at = ((window.size / 512).checked_sub(16)? & !7) * 512;
    window.is(at, &[0xfc, 0x4e, 0x2b, 0xa9]).then_some(("a Linux RAID (md 1.0) member", at))
}

/// RAID of mainboards and controllers: in the last sectors.
fn firmware_raid(window: &Window) -> Option<(&'static str, u64)> {
    let end = window.size / 512 * 512;
    if let Some(at) = end.checked_sub(1024).filter(|at| window.is(*at, b"Intel Raid ISM Cfg Sig. ")) {
        return Some(("an Intel firmware RAID member", at));
    }
    let at = end.checked_sub(512)?;
    window.is(at, &[0xde, 0x11, 0xde, 0x11]).then_some(("a DDF RAID member", at))
}

/// ZFS: four labels of 256 KiB, two at each end; the second half of each is a ring of uberblocks, in the byte order of its machine.
fn zfs(window: &Window) -> Option<(&'static str, u64)> {
    const LABEL: u64 = 256 << 10;
    let end = window.size / LABEL * LABEL;
    let labels = [Some(0), Some(LABEL), end.checked_sub(2 * LABEL), end.checked_sub(LABEL)];
    let slots = labels.into_iter().flatten().flat_map(|label| (LABEL / 2..LABEL).step_by(1024).map(move |slot| label + slot));
    let magic = 0x00ba_b10c_u64;
    slots.into_iter().find(|at| window.is(*at, &magic.to_le_bytes()) || window.is(*at, &magic.to_be_bytes())).map(|at| ("a ZFS pool member", at))
}

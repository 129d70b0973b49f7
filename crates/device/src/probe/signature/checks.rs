//! Signatures that need more than a few bytes at one position.

use super::Window;

/// Check that returns the format's name and the signature's offset.
type Check = fn(&Window) -> Option<(&'static str, u64)>;

pub(super) const ALL: &[Check] = &[
    ext,
    swap,
    logical_volume_manager,
    master_boot_record,
    backup_gpt,
    md_at_the_end,
    via,
    promise,
    ufs,
    device_mapper,
    zfs,
];

/// ext2, 3 and 4 share a magic; feature flags tell them apart.
fn ext(window: &Window) -> Option<(&'static str, u64)> {
    let superblock = window.at(1024, 1024)?;
    if superblock.get(56..58)? != [0x53, 0xef] {
        return None;
    }
    let word = |at: usize| {
        superblock
            .get(at..at + 4)
            .and_then(|b| b.try_into().ok())
            .map_or(0, u32::from_le_bytes)
    };
    let (has_journal, incompatible, read_only) = (word(92) & 4 != 0, word(96), word(100));
    // Features that ext2 and ext3 do not know: extents, 64-bit, flexible groups; huge files,
    // checksums.
    let newer = incompatible & !0x1f != 0 || read_only & !0x7 != 0;
    Some((
        if newer {
            "an ext4 file system"
        } else {
            ["an ext2 file system", "an ext3 file system"][usize::from(has_journal)]
        },
        1080,
    ))
}

/// Swap space: the magic ends the first page, whose size depends on the machine that created it.
fn swap(window: &Window) -> Option<(&'static str, u64)> {
    const ACTIVE: [&[u8]; 2] = [b"SWAPSPACE2", b"SWAP-SPACE"];
    const SUSPENDED: [&[u8]; 4] = [b"S1SUSPEND", b"S2SUSPEND", b"ULSUSPEND", b"LINHIB0001"];
    let ends = || {
        [4096u64, 8192, 16384, 32768, 65536]
            .into_iter()
            .map(|page| page - 10)
    };
    let any = |words: &[&[u8]]| ends().find(|at| words.iter().any(|word| window.is(*at, word)));
    any(&ACTIVE)
        .map(|at| ("Linux swap space", at))
        .or_else(|| any(&SUSPENDED).map(|at| ("a machine that sleeps (hibernation image)", at)))
}

/// LVM2: the label is in one of the first four sectors.
fn logical_volume_manager(window: &Window) -> Option<(&'static str, u64)> {
    (0..4)
        .map(|sector| sector * 512)
        .find(|at| window.is(*at, b"LABELONE") && window.is(*at + 24, b"LVM2 001"))
        .map(|at| ("an LVM2 physical volume", at))
}

/// MBR: the two bytes at 510 also end boot sectors of file systems, so the four entries must look
/// like partitions.
fn master_boot_record(window: &Window) -> Option<(&'static str, u64)> {
    if !window.is(510, &[0x55, 0xaa]) {
        return None;
    }
    let entries = window.at(446, 64)?;
    let plausible = entries.chunks(16).all(|entry| matches!(entry[0], 0 | 0x80));
    let used = |entry: &[u8]| entry[4] != 0 && entry[12..16] != [0; 4];
    (plausible && entries.chunks(16).any(used))
        .then_some(("an MBR partition table with partitions", 510))
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
    if let Some(at) = old.filter(|at| {
        window.is(*at, &[0xfc, 0x4e, 0x2b, 0xa9]) || window.is(*at, &[0xa9, 0x2b, 0x4e, 0xfc])
    }) {
        return Some(("a Linux RAID (md 0.90) member", at));
    }
    let at = ((window.size / 512).checked_sub(16)? & !7) * 512;
    window
        .is(at, &[0xfc, 0x4e, 0x2b, 0xa9])
        .then_some(("a Linux RAID (md 1.0) member", at))
}

/// VIA's RAID has only the two bytes of every boot sector, then a version and a checksum.
fn via(window: &Window) -> Option<(&'static str, u64)> {
    let at = (window.size / 512 * 512).checked_sub(512)?;
    let sector = window.at(at, 51)?;
    let sum = sector[..50]
        .iter()
        .fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    (sector[..2] == [0x55, 0xaa] && sector[2] <= 2 && sum == sector[50])
        .then_some(("a VIA firmware RAID member", at))
}

/// Promise superblocks: several distances from the end, in sectors.
fn promise(window: &Window) -> Option<(&'static str, u64)> {
    const DISTANCES: [u64; 13] = [
        16, 63, 255, 256, 399, 591, 675, 735, 911, 951, 974, 991, 3087,
    ];
    let places = DISTANCES
        .into_iter()
        .filter_map(|distance| (window.size / 512).checked_sub(distance));
    places
        .map(|sector| sector * 512)
        .find(|at| window.is(*at, b"Promise Technology, Inc."))
        .map(|at| ("a Promise firmware RAID member", at))
}

/// UFS 1 and 2 of the BSDs and of Solaris: four superblock positions, six magics, both byte orders.
fn ufs(window: &Window) -> Option<(&'static str, u64)> {
    const MAGICS: [u32; 6] = [
        0x0001_1954,
        0x1954_0119,
        0x0019_5612,
        0x0009_5014,
        0x0061_2195,
        0x0523_1994,
    ];
    const INSIDE: u64 = 1372;
    let is_magic = |at: u64| {
        MAGICS
            .iter()
            .any(|magic| window.is(at, &magic.to_le_bytes()) || window.is(at, &magic.to_be_bytes()))
    };
    [0, 8, 64, 256]
        .into_iter()
        .map(|kibibytes| (kibibytes << 10) + INSIDE)
        .find(|at| is_magic(*at))
        .map(|at| ("a UFS file system", at))
}

/// Device mapper pools: a metadata page with a magic number that the kernel defines in decimal.
fn device_mapper(window: &Window) -> Option<(&'static str, u64)> {
    const NUMBERS: [(u64, &str); 3] = [
        (27_022_010, "the metadata of a dm-thin pool"),
        (6_142_003, "the metadata of a dm-cache"),
        (2_126_579_579, "the metadata of a dm-era"),
    ];
    NUMBERS
        .into_iter()
        .find(|(number, _)| window.is(32, &number.to_le_bytes()))
        .map(|(_, name)| (name, 32))
}

/// ZFS: four labels of 256 KiB, two at each end; the second half of each is a ring of uberblocks,
/// in the byte order of its machine.
fn zfs(window: &Window) -> Option<(&'static str, u64)> {
    const LABEL: u64 = 256 << 10;
    let end = window.size / LABEL * LABEL;
    let labels = [
        Some(0),
        Some(LABEL),
        end.checked_sub(2 * LABEL),
        end.checked_sub(LABEL),
    ];
    let slots = labels.into_iter().flatten().flat_map(|label| {
        (LABEL / 2..LABEL)
            .step_by(1024)
            .map(move |slot| label + slot)
    });
    let magic = 0x00ba_b10c_u64;
    slots
        .into_iter()
        .find(|at| window.is(*at, &magic.to_le_bytes()) || window.is(*at, &magic.to_be_bytes()))
        .map(|at| ("a ZFS pool member", at))
}

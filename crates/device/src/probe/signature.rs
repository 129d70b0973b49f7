//! Signatures of file systems, volume managers, partition tables and disk images.
//!
//! Most are a few bytes at a fixed distance from the start or the end: the tables in `places`. The
//! rest have a function each, in `checks`: a position that depends on the size, or a check that the
//! two bytes of boot code are not taken for a partition table. A false alarm costs the
//! administrator a `--force`; a miss costs data. In doubt a signature counts, whatever its
//! checksum.
//!
//! All signatures of libblkid 2.41, which `wipefs` and every installer use, are known here with
//! their positions, except SysV and zoned Btrfs; some more are added.

mod checks;
mod places;

use crate::{DeviceError, Member};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use windrow_io::Buf;

/// Bytes read (and erased) at the start: VMFS and the second superblock of bcachefs are at 2 MiB.
pub const HEAD_BYTES: u64 = 4 << 20;
/// Bytes read (and erased) at the end: two ZFS labels, all trailing RAID superblocks (Promise has
/// one 1.5 MiB before it), the backup GPT.
const TAIL_BYTES: u64 = 2 << 20;
/// Number of samples between the two ends.
const SAMPLES: u64 = 256;
/// Bytes of one sample.
const SAMPLE_BYTES: u64 = 4096;

/// A known signature that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Signature {
    /// Name of its format.
    pub name: String,
    /// Byte offset of the signature.
    pub offset: u64,
}

impl std::fmt::Display for Signature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (signature at byte {})", self.name, self.offset)
    }
}

/// Both ends of a file or device, in memory.
pub struct Window {
    size: u64,
    head: Vec<u8>,
    tail_start: u64,
    tail: Vec<u8>,
}

/// Digest of both ends at one moment: two equal marks mean that nothing was written in between.
/// All-zero ends have the default mark, whatever the size. (Bytes after the last whole 4 KiB are
/// not included.) Comparable within one process only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mark(u64);

impl Mark {
    /// Mark of a device that is locked now.
    ///
    /// # Errors
    /// Of the reads.
    pub fn of_device(device: &dyn Member) -> Result<Self, DeviceError> {
        let (head, tail) = marked(device.info().size_bytes);
        let mut ends = [
            Buf::unpooled((head.end - head.start) as usize),
            Buf::unpooled((tail.end - tail.start) as usize),
        ];
        device.read_at(head.start, &mut ends[0])?;
        device.read_at(tail.start, &mut ends[1])?;
        Ok(Self::of(&[(head.start, &ends[0]), (tail.start, &ends[1])]))
    }

    fn of(ends: &[(u64, &[u8])]) -> Self {
        let mut hasher = DefaultHasher::new();
        let mut is_blank = true;
        for (start, end) in ends {
            let blocks = end
                .chunks(SAMPLE_BYTES as usize)
                .zip((*start..).step_by(SAMPLE_BYTES as usize));
            for (block, offset) in blocks.filter(|(block, _)| block.iter().any(|byte| *byte != 0)) {
                (offset, block).hash(&mut hasher);
                is_blank = false;
            }
        }
        Self(if is_blank { 0 } else { hasher.finish() })
    }
}

/// Byte ranges of both ends that are in the mark: whole blocks, which a member can read.
fn marked(size: u64) -> (Range<u64>, Range<u64>) {
    let usable = size / SAMPLE_BYTES * SAMPLE_BYTES;
    let head = usable.min(HEAD_BYTES);
    // A window reaches equally far back if the size is not a multiple of a block.
    let tail = usable.saturating_sub(TAIL_BYTES - SAMPLE_BYTES).max(head);
    (0..head, tail..usable)
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
        Ok(Self {
            size,
            head,
            tail_start,
            tail,
        })
    }

    /// Total size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size
    }

    /// True if one of the two ends has a nonzero byte.
    pub fn has_data(&self) -> bool {
        self.head.iter().chain(&self.tail).any(|b| *b != 0)
    }

    /// Mark to detect later writes.
    pub fn mark(&self) -> Mark {
        let (head, tail) = marked(self.size);
        let end = |range: &Range<u64>| {
            self.at(range.start, (range.end - range.start) as usize)
                .unwrap_or_default()
        };
        Mark::of(&[(head.start, end(&head)), (tail.start, end(&tail))])
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

/// Reads samples between the two ends; returns the number with a nonzero byte and the number read:
/// `(found, read)`. Data from before a new partition table or `wipefs` is still there, and it is
/// unknown whether it is wanted. An unreadable sample says nothing against the device, which may be
/// writable. No sample is read after the first failure: a failing disk takes seconds for each.
pub fn sample(file: &File, size: u64) -> (u64, u64) {
    let between = size.saturating_sub(HEAD_BYTES + TAIL_BYTES) / SAMPLE_BYTES;
    let wanted = between.min(SAMPLES);
    let mut found = 0;
    let mut bytes = vec![0; SAMPLE_BYTES as usize];
    for number in 0..wanted {
        if file
            .read_exact_at(
                &mut bytes,
                HEAD_BYTES + between * number / wanted * SAMPLE_BYTES,
            )
            .is_err()
        {
            return (found, number);
        }
        found += u64::from(bytes.iter().any(|byte| *byte != 0));
    }
    (found, wanted)
}

/// All known signatures in the window, by offset.
pub fn find(window: &Window) -> Vec<Signature> {
    let mut found: Vec<Signature> = Vec::new();
    let mut add = |name: &str, offset: u64| {
        found.push(Signature {
            name: name.to_owned(),
            offset,
        })
    };
    for place in places::FROM_START
        .iter()
        .filter(|place| window.is(place.distance, place.magic))
    {
        add(place.name, place.distance);
    }
    for place in places::FROM_END {
        let at = (window.size / place.unit * place.unit)
            .checked_sub(place.distance * place.unit)
            .map(|block| block + place.inside);
        if let Some(at) = at.filter(|at| window.is(*at, place.magic)) {
            add(place.name, at);
        }
    }
    for (name, offset) in checks::ALL.iter().filter_map(|check| check(window)) {
        add(name, offset);
    }
    found.sort_by_key(|signature| signature.offset);
    found.dedup();
    found
}

/// Zeroes both ends of a device, wherever a signature is searched; an end that is already zero is
/// not written. Not durable before a flush.
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
    // A range that cannot be read may still be writable.
    let is_blank = device.read_at(start, &mut tail).is_ok() && tail.iter().all(|byte| *byte == 0);
    if !is_blank {
        device.write_at(start, &zeroes[..tail.len()])?;
    }
    device.erase_behind()
}

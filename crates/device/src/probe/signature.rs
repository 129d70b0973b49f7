//! Signatures of file systems, volume managers, partition tables and disk images.
//!
//! Most are a few bytes at a fixed distance from the start or the end: the tables in `places`. The
//! rest need a little more (a place that depends on the size, a check that two bytes of boot code
//! are not taken for a partition table) and have a function each, in `checks`. A false alarm costs
//! the administrator a `--force`; a miss costs data: so in doubt a signature counts, whatever its
//! checksum says. What is known to libblkid 2.41, which `wipefs` and every installer ask, is known
//! here, with its places, and some more. (But for SysV and zoned Btrfs.)

mod checks;
mod places;

use crate::{DeviceError, Member};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use windrow_io::Buf;

/// Bytes looked at (and erased) from the start: VMFS and the second superblock of bcachefs are 2
/// MiB behind it.
pub const HEAD_BYTES: u64 = 4 << 20;
/// Bytes looked at (and erased) before the end: two ZFS labels, all trailing RAID superblocks
/// (Promise has one 1.5 MiB before it), the backup GPT.
const TAIL_BYTES: u64 = 2 << 20;
/// Places between the two ends that are read to see whether anything is there.
const SAMPLES: u64 = 256;
/// Bytes of one.
const SAMPLE_BYTES: u64 = 4096;

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

/// What the two ends held at one moment: of two marks that are equal nothing came between. Ends of
/// zeroes have the default one, whatever the size. (What lies behind the last whole 4 KiB is not in
/// it.) Compared within one process only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mark(u64);

impl Mark {
    /// Of a device that is locked now.
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

/// The bytes of both ends that are in the mark: whole blocks, which a member can be asked for.
fn marked(size: u64) -> (Range<u64>, Range<u64>) {
    let usable = size / SAMPLE_BYTES * SAMPLE_BYTES;
    let head = usable.min(HEAD_BYTES);
    // A window reaches so far back also where the size is no multiple of a block.
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

    /// Bytes of the whole.
    pub fn size_bytes(&self) -> u64 {
        self.size
    }

    /// True if one of the two ends has a byte that is not zero.
    pub fn has_data(&self) -> bool {
        self.head.iter().chain(&self.tail).any(|b| *b != 0)
    }

    /// To tell later whether they have been written since.
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

/// How many of so many places between the two ends hold a byte that is not zero: `(found, read)`.
/// What a disk held before a new partition table or `wipefs` came is still there, and nobody knows
/// whether it is wanted. A place that cannot be read tells nothing; it does not speak against the
/// device, as it may well be written. After the first one no further place is tried: a failing disk
/// takes seconds for each.
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

/// Zeroes both ends of a device, wherever a signature is looked for; what is zero at the end
/// already is not written. Not durable before a flush.
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

//! Traces of binary records of fixed layout.
//!
//! **blktrace**: 48 bytes and the announced payload, in the byte order of the recording machine:
//! magic `0x65617407`, sequence, time ns (8), sector (8), bytes, action, pid, device, cpu, error
//! (2), length of the payload (2). The low byte of `action` is the event (1 queued, 7 issued, 8
//! completed), its upper half flags: 1 read, 2 write, 4 preceding flush, 0x200 passed through,
//! 0x400 note, 0x2000 discard, 0x8000 FUA, ... as in the kernel's `blktrace_api.h`. Write-zeroes
//! have only the flag of writes, so they are read as writes.
//!
//! **vscsi** (VMware, the CloudPhysics traces), little-endian: version 1 has records of 32 bytes:
//! serial, length, segments (4 each), command, version (2 each), block of 512 bytes, time us (8
//! each). Version 2 has 40: command, version (2 each), serial, length, segments (4 each), block,
//! time, response time (8 each). Commands are SCSI's.

use crate::devices::Devices;
use crate::request::{Kind, Request};
use crate::text::Event;

const SECTOR: u64 = 512;

/// Decoded record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Decoded {
    /// Its length in bytes.
    pub bytes: usize,
    /// Its requests: a flush before a write is a separate one.
    pub requests: [Option<Request>; 2],
}

/// Bytes of a blktrace record without its payload.
pub const BLKTRACE_BYTES: usize = 48;
const MAGIC: u32 = 0x6561_7400;

/// True for the magic of either byte order.
pub fn is_blktrace(head: &[u8]) -> bool {
    byte_order(head).is_some()
}

/// `Some(true)` for big-endian records.
fn byte_order(head: &[u8]) -> Option<bool> {
    let magic: [u8; 4] = head.get(..4)?.try_into().ok()?;
    if u32::from_le_bytes(magic) & !0xff == MAGIC {
        return Some(false);
    }
    (u32::from_be_bytes(magic) & !0xff == MAGIC).then_some(true)
}

/// Event of a record.
pub fn blktrace_event(record: &[u8]) -> Option<Event> {
    let fields = Fields {
        record,
        big: byte_order(record)?,
    };
    if fields.u32(28) & (NOTE << 16) != 0 {
        return None;
    }
    match fields.u32(28) & 0xff {
        1 => Some(Event::Queued),
        7 => Some(Event::Issued),
        8 => Some(Event::Completed),
        _ => None,
    }
}

const READ: u32 = 1;
const WRITE: u32 = 1 << 1;
const FLUSH: u32 = 1 << 2;
const PASSED: u32 = 1 << 9;
const NOTE: u32 = 1 << 10;
const DISCARD: u32 = 1 << 13;
const FUA: u32 = 1 << 15;

struct Fields<'a> {
    record: &'a [u8],
    big: bool,
}

impl Fields<'_> {
    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        self.record
            .get(at..at + N)
            .and_then(|bytes| bytes.try_into().ok())
            .unwrap_or([0; N])
    }

    fn u16(&self, at: usize) -> u16 {
        if self.big {
            u16::from_be_bytes(self.array(at))
        } else {
            u16::from_le_bytes(self.array(at))
        }
    }

    fn u32(&self, at: usize) -> u32 {
        if self.big {
            u32::from_be_bytes(self.array(at))
        } else {
            u32::from_le_bytes(self.array(at))
        }
    }

    fn u64(&self, at: usize) -> u64 {
        if self.big {
            u64::from_be_bytes(self.array(at))
        } else {
            u64::from_le_bytes(self.array(at))
        }
    }
}

/// Decodes one record of at least [`BLKTRACE_BYTES`]. Only events of one kind count; otherwise each
/// request would occur three times.
pub fn blktrace(record: &[u8], event: Event, devices: &mut Devices) -> Result<Decoded, String> {
    let Some(big) = byte_order(record) else {
        return Err("no blktrace record begins here".to_owned());
    };
    let fields = Fields { record, big };
    let bytes = BLKTRACE_BYTES + usize::from(fields.u16(46));
    let nothing = Decoded {
        bytes,
        ..Decoded::default()
    };
    let flags = fields.u32(28) >> 16;
    if blktrace_event(record) != Some(event) || flags & (PASSED | NOTE) != 0 {
        return Ok(nothing);
    }
    let device = fields.u32(36);
    let device = devices.number(format!("{},{}", device >> 20, device & 0xf_ffff).as_bytes())?;
    let (sector, length, time) = (fields.u64(16), u64::from(fields.u32(24)), fields.u64(8));
    let kind = match () {
        () if flags & DISCARD != 0 => Some(Kind::Trim),
        () if flags & WRITE != 0 => Some(Kind::Write),
        () if flags & READ != 0 || (length > 0 && flags & FLUSH == 0) => Some(Kind::Read),
        () => None,
    };
    let before = (flags & FLUSH != 0).then(|| Request::new(Kind::Flush, device, 0, 0, time));
    let main = match kind.filter(|_| length > 0) {
        None => None,
        Some(kind) => {
            let offset = sector
                .checked_mul(SECTOR)
                .ok_or("its sector is beyond 2^64 bytes")?;
            Some(Request {
                fua: kind == Kind::Write && flags & FUA != 0,
                ..Request::new(kind, device, offset, length, time)
            })
        }
    };
    Ok(Decoded {
        bytes,
        requests: [before, main],
    })
}

/// The two layouts of vscsi traces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vscsi {
    /// 32 bytes.
    One,
    /// 40 bytes.
    Two,
}

impl Vscsi {
    /// Bytes of a record.
    pub fn bytes(self) -> usize {
        match self {
            Self::One => 32,
            Self::Two => 40,
        }
    }

    fn version_at(self) -> usize {
        match self {
            Self::One => 14,
            Self::Two => 2,
        }
    }

    /// Layout whose version number is at the right position in each of the records that `head`
    /// holds, at least two of them.
    pub fn detect(head: &[u8]) -> Option<Self> {
        [(Self::Two, 2), (Self::One, 1)]
            .into_iter()
            .find_map(|(layout, number)| {
                let mut records = head
                    .chunks_exact(layout.bytes())
                    .map(|record| record.get(layout.version_at() + 1) == Some(&number));
                (head.len() >= 2 * layout.bytes() && records.all(|right| right)).then_some(layout)
            })
    }

    /// Layout of a trace given as vscsi, by its first record.
    pub fn first(record: &[u8]) -> Option<Self> {
        [(Self::Two, 2), (Self::One, 1)]
            .into_iter()
            .find_map(|(layout, number)| {
                (record.get(layout.version_at() + 1) == Some(&number)).then_some(layout)
            })
    }
}

/// Decodes one record of the layout's size.
pub fn vscsi(record: &[u8], layout: Vscsi, devices: &mut Devices) -> Result<Decoded, String> {
    let fields = Fields { record, big: false };
    let (command, length, block, time) = match layout {
        Vscsi::One => (
            fields.u16(12),
            fields.u32(4),
            fields.u64(16),
            fields.u64(24),
        ),
        Vscsi::Two => (fields.u16(0), fields.u32(8), fields.u64(16), fields.u64(24)),
    };
    let version = record
        .get(layout.version_at() + 1)
        .copied()
        .unwrap_or_default();
    if version != if layout == Vscsi::One { 1 } else { 2 } {
        return Err(format!("its version is {version}"));
    }
    let bytes = layout.bytes();
    // READ, WRITE and SYNCHRONIZE CACHE in their command lengths. UNMAP has its ranges in its
    // payload, which is not recorded.
    let kind = match command {
        0x08 | 0x28 | 0xa8 | 0x88 => Kind::Read,
        0x0a | 0x2a | 0xaa | 0x8a => Kind::Write,
        0x35 | 0x91 => Kind::Flush,
        _ => {
            return Ok(Decoded {
                bytes,
                ..Decoded::default()
            });
        }
    };
    let device = devices.number(b"0")?;
    let time = time.checked_mul(1000).ok_or("its time is beyond 2^64 ns")?;
    if kind == Kind::Flush {
        return Ok(Decoded {
            bytes,
            requests: [Some(Request::new(kind, device, 0, 0, time)), None],
        });
    }
    let offset = block
        .checked_mul(SECTOR)
        .ok_or("its block is beyond 2^64 bytes")?;
    Ok(Decoded {
        bytes,
        requests: [
            Some(Request::new(kind, device, offset, u64::from(length), time)),
            None,
        ],
    })
}

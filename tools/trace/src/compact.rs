//! The compact format. `docs/lab/traces.md` has its byte tables.
//!
//! A head of 16 bytes, then chunks. A chunk is decoded on its own. Its checksum includes its
//! position, so that damage is found; a truncated tail loses only its last chunk. Requests are
//! coded as differences to the preceding one: a sequential write of the same size on the same
//! device takes one byte and its time.

use crate::devices::{DEVICES_MOST, Devices};
use crate::error::{Place, TraceError};
use crate::input::Input;
use crate::request::{Kind, Request, TRANSFER_BYTES_MOST};
use std::collections::{BTreeMap, VecDeque};
use xxhash_rust::xxh3::Xxh3;

/// First bytes of a file; the last one is the version.
pub const MAGIC: &[u8; 8] = b"WINDTRC1";
/// Bytes of the head of a file.
pub const HEAD_BYTES: usize = 16;
/// Bytes of the head of a chunk.
pub const CHUNK_HEAD_BYTES: usize = 24;
/// Maximum bytes of a chunk after its head.
pub const PAYLOAD_BYTES_MOST: usize = 256 << 10;
/// Size at which a chunk is closed.
const PAYLOAD_BYTES_USUAL: usize = 64 << 10;

/// Unit of offsets and lengths.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Granule {
    /// Byte for byte.
    Byte,
    /// Sectors of 512 bytes.
    Sector,
    /// Blocks of 4 KiB.
    Block,
}

impl Granule {
    /// Its size as a power of two.
    pub fn shift(self) -> u8 {
        match self {
            Self::Byte => 0,
            Self::Sector => 9,
            Self::Block => 12,
        }
    }

    fn of_shift(shift: u8) -> Option<Self> {
        [Self::Byte, Self::Sector, Self::Block]
            .into_iter()
            .find(|granule| granule.shift() == shift)
    }

    /// The request in whole granules: reads and writes are extended to all granules they touch,
    /// trims reduced to those they cover. `None` if nothing is left.
    pub fn align(self, request: &Request) -> Option<Request> {
        let size = 1u64 << self.shift();
        let down = |at: u64| at & !(size - 1);
        // The end of the last granule of the address space cannot be represented; the value stays
        // unchanged.
        let up = |at: u64| at.checked_add(size - 1).map_or(down(u64::MAX), down);
        let (from, to) = match request.kind {
            Kind::Flush => return Some(*request),
            _ if request.length == 0 => {
                return Some(Request {
                    offset: down(request.offset),
                    ..*request
                });
            }
            Kind::Read | Kind::Write => (down(request.offset), up(request.end())),
            Kind::Trim => (up(request.offset), down(request.end())),
        };
        (to > from).then(|| Request {
            offset: from,
            length: to - from,
            ..*request
        })
    }
}

const REQUESTS: u8 = 1;
const DEVICE: u8 = 2;
const END: u8 = 3;

// Bits of a request's first byte, above its kind.
const FUA: u8 = 1 << 2;
const SAME_DEVICE: u8 = 1 << 3;
const FOLLOWS: u8 = 1 << 4;
const SAME_LENGTH: u8 = 1 << 5;
const SAME_TIME: u8 = 1 << 6;
const RESERVED: u8 = 1 << 7;

/// Base of the differences of a chunk's requests.
#[derive(Clone, Debug, Default)]
struct Before {
    device: u32,
    time_ns: u64,
    /// By kind, in granules.
    lengths: [u64; 4],
    /// By device, in granules.
    ends: BTreeMap<u32, u64>,
}

fn code(kind: Kind) -> u8 {
    match kind {
        Kind::Read => 0,
        Kind::Write => 1,
        Kind::Trim => 2,
        Kind::Flush => 3,
    }
}

fn kind(first: u8) -> Kind {
    match first & 3 {
        0 => Kind::Read,
        1 => Kind::Write,
        2 => Kind::Trim,
        _ => Kind::Flush,
    }
}

/// Checksum of a chunk at `offset`: of its head without the checksum, and of its payload.
fn checksum(offset: u64, head: &[u8], payload: &[u8]) -> u64 {
    let mut state = Xxh3::with_seed(offset);
    state.update(head);
    state.update(payload);
    state.digest()
}

/// Encodes the format; the caller writes the bytes.
#[derive(Clone, Debug)]
pub struct Encoder {
    granule: Granule,
    before: Before,
    payload: Vec<u8>,
    count: u32,
    total: u64,
    named: usize,
    out: Vec<u8>,
    offset: u64,
}

impl Encoder {
    /// Starts a file.
    pub fn new(granule: Granule) -> Self {
        let mut out = MAGIC.to_vec();
        out.push(granule.shift());
        out.resize(HEAD_BYTES, 0);
        Self {
            granule,
            before: Before::default(),
            payload: Vec::new(),
            count: 0,
            total: 0,
            named: 0,
            out,
            offset: HEAD_BYTES as u64,
        }
    }

    /// Adds a request; false if nothing of it is left in whole granules. `names` are those of the
    /// devices, at least up to the request's.
    pub fn add(&mut self, request: &Request, names: &[String]) -> bool {
        let Some(request) = self.granule.align(request) else {
            return false;
        };
        if self.named <= request.device as usize {
            self.close();
            while self.named <= request.device as usize {
                let name = names.get(self.named).map_or("", String::as_str).as_bytes();
                self.chunk(DEVICE, self.named as u32, name);
                self.named += 1;
            }
        }
        self.put(&request);
        self.count += 1;
        self.total += 1;
        if self.payload.len() >= PAYLOAD_BYTES_USUAL {
            self.close();
        }
        true
    }

    fn put(&mut self, request: &Request) {
        let shift = self.granule.shift();
        let (offset, length) = (request.offset >> shift, request.length >> shift);
        let before = &mut self.before;
        let is_flush = request.kind == Kind::Flush;
        let end = before.ends.get(&request.device).copied().unwrap_or(0);
        let known = &mut before.lengths[usize::from(code(request.kind))];
        let bit = |holds: bool, bit: u8| if holds { bit } else { 0 };
        let first = code(request.kind)
            | bit(request.fua, FUA)
            | bit(request.device == before.device, SAME_DEVICE)
            | bit(!is_flush && offset == end, FOLLOWS)
            | bit(!is_flush && length == *known, SAME_LENGTH)
            | bit(request.time_ns == before.time_ns, SAME_TIME);
        self.payload.push(first);
        if first & SAME_DEVICE == 0 {
            put_number(&mut self.payload, u64::from(request.device));
        }
        if first & SAME_TIME == 0 {
            put_number(
                &mut self.payload,
                zigzag(request.time_ns.wrapping_sub(before.time_ns)),
            );
        }
        if !is_flush {
            if first & FOLLOWS == 0 {
                put_number(&mut self.payload, zigzag(offset.wrapping_sub(end)));
            }
            if first & SAME_LENGTH == 0 {
                put_number(&mut self.payload, length);
            }
            *known = length;
            before
                .ends
                .insert(request.device, offset.saturating_add(length));
        }
        before.device = request.device;
        before.time_ns = request.time_ns;
    }

    /// Closes a chunk of requests.
    fn close(&mut self) {
        if self.count > 0 {
            let payload = std::mem::take(&mut self.payload);
            self.chunk(REQUESTS, self.count, &payload);
            self.count = 0;
        }
        self.before = Before::default();
    }

    fn chunk(&mut self, kind: u8, count: u32, payload: &[u8]) {
        let mut head = [0; CHUNK_HEAD_BYTES];
        head[0] = kind;
        head[4..8].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        head[8..12].copy_from_slice(&count.to_le_bytes());
        let sum = checksum(self.offset, &head[..16], payload);
        head[16..].copy_from_slice(&sum.to_le_bytes());
        self.out.extend_from_slice(&head);
        self.out.extend_from_slice(payload);
        self.offset += (CHUNK_HEAD_BYTES + payload.len()) as u64;
    }

    /// Takes the encoded bytes.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// Ends the file and returns its last bytes.
    pub fn finish(mut self) -> Vec<u8> {
        self.close();
        let total = self.total.to_le_bytes();
        self.chunk(END, 0, &total);
        self.out
    }
}

/// Kind of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Chunk {
    /// Requests or names.
    More,
    /// End of the file, or of a truncated one.
    End {
        /// True if its end is missing.
        cut: bool,
    },
}

/// Reads the format.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    granule: Option<Granule>,
    total: u64,
}

impl Decoder {
    /// Reads the next chunk.
    pub fn chunk(
        &mut self,
        input: &mut Input<'_>,
        devices: &mut Devices,
        ready: &mut VecDeque<Request>,
    ) -> Result<Chunk, TraceError> {
        let offset = input.offset();
        let damaged = |what: &str| TraceError::Damaged {
            place: Place::Offset(offset),
            what: what.to_owned(),
        };
        let Some(granule) = self.granule else {
            let head = input.peek(HEAD_BYTES);
            if head.len() < HEAD_BYTES
                || !head.starts_with(MAGIC)
                || head[9..].iter().any(|byte| *byte != 0)
            {
                return Err(damaged("no head of a compact trace"));
            }
            self.granule = Some(
                Granule::of_shift(head[8])
                    .ok_or_else(|| damaged("a head with a granule that is not known"))?,
            );
            input.consume(HEAD_BYTES);
            return Ok(Chunk::More);
        };
        let head: [u8; CHUNK_HEAD_BYTES] = match input.peek(CHUNK_HEAD_BYTES).try_into() {
            // A file system may have kept the length of a truncated file and lost its content.
            Ok(head) if head == [0; CHUNK_HEAD_BYTES] => return Ok(Chunk::End { cut: true }),
            Ok(head) => head,
            Err(_) => return Ok(Chunk::End { cut: true }),
        };
        let word =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (length, count) = (word(4) as usize, word(8));
        if head[1..4] != [0; 3]
            || word(12) != 0
            || length > PAYLOAD_BYTES_MOST
            || !(REQUESTS..=END).contains(&head[0])
        {
            return Err(damaged("no head of a chunk"));
        }
        let whole = CHUNK_HEAD_BYTES + length;
        // One more byte shows whether anything follows.
        let bytes = input.peek(whole + 1);
        let Some(payload) = bytes.get(CHUNK_HEAD_BYTES..whole) else {
            return Ok(Chunk::End { cut: true });
        };
        let stored = u64::from_le_bytes([
            head[16], head[17], head[18], head[19], head[20], head[21], head[22], head[23],
        ]);
        let is_last = bytes.len() == whole;
        if checksum(offset, &head[..16], payload) != stored {
            return if is_last {
                Ok(Chunk::End { cut: true })
            } else {
                Err(damaged("a chunk whose checksum does not fit"))
            };
        }
        let end = match head[0] {
            REQUESTS => {
                let records = Records {
                    bytes: payload,
                    at: 0,
                    granule,
                    before: Before::default(),
                    devices: devices.names().len(),
                };
                let found = records
                    .read(count)
                    .map_err(|(at, what)| TraceError::Record {
                        place: Place::Offset(offset + (CHUNK_HEAD_BYTES + at) as u64),
                        what,
                    })?;
                self.total += found.len() as u64;
                ready.extend(found);
                false
            }
            DEVICE => {
                let known = devices.names().len();
                let number = devices.number(payload).map_err(|what| TraceError::Record {
                    place: Place::Offset(offset),
                    what,
                })?;
                // A name that exists already, or one out of order, would give numbers a second
                // meaning.
                if number as usize != known || number != count {
                    return Err(damaged("a name of a device out of turn"));
                }
                false
            }
            _ => {
                let total: [u8; 8] = payload
                    .try_into()
                    .map_err(|_| damaged("an end without content"))?;
                if !is_last || u64::from_le_bytes(total) != self.total {
                    return Err(damaged(if is_last {
                        "an end that counts another number of requests"
                    } else {
                        "data after the end"
                    }));
                }
                true
            }
        };
        input.consume(whole);
        Ok(if end {
            Chunk::End { cut: false }
        } else {
            Chunk::More
        })
    }
}

/// Requests of a chunk.
struct Records<'a> {
    bytes: &'a [u8],
    at: usize,
    granule: Granule,
    before: Before,
    devices: usize,
}

impl Records<'_> {
    fn read(mut self, count: u32) -> Result<Vec<Request>, (usize, String)> {
        // A request takes at least one byte, so a count cannot allocate more memory than the chunk
        // has.
        let mut found = Vec::with_capacity((count as usize).min(self.bytes.len()));
        for _ in 0..count {
            let at = self.at;
            let request = self.request().map_err(|what| (at, what.to_owned()))?;
            // Whole granules may exceed the requested range slightly.
            request
                .check_up_to(2 * TRANSFER_BYTES_MOST)
                .map_err(|what| (at, what.to_owned()))?;
            found.push(request);
        }
        if self.at < self.bytes.len() {
            Err((self.at, "more bytes than requests".to_owned()))
        } else {
            Ok(found)
        }
    }

    fn request(&mut self) -> Result<Request, &'static str> {
        let first = *self.bytes.get(self.at).ok_or("fewer bytes than requests")?;
        self.at += 1;
        let kind = kind(first);
        let is_flush = kind == Kind::Flush;
        if first & RESERVED != 0 || is_flush && first & (FOLLOWS | SAME_LENGTH) != 0 {
            return Err("a bit that has no meaning");
        }
        if first & SAME_DEVICE == 0 {
            self.before.device =
                u32::try_from(self.number()?).map_err(|_| "a device beyond all names")?;
        }
        let device = self.before.device;
        if device as usize >= self.devices.min(DEVICES_MOST) {
            return Err("a device without a name");
        }
        if first & SAME_TIME == 0 {
            self.before.time_ns = self.before.time_ns.wrapping_add(unzigzag(self.number()?));
        }
        let mut request = Request {
            fua: first & FUA != 0,
            ..Request::new(kind, device, 0, 0, self.before.time_ns)
        };
        if is_flush {
            return Ok(request);
        }
        let end = self.before.ends.get(&device).copied().unwrap_or(0);
        let offset = if first & FOLLOWS != 0 {
            end
        } else {
            end.wrapping_add(unzigzag(self.number()?))
        };
        let slot = usize::from(code(kind));
        let length = if first & SAME_LENGTH != 0 {
            self.before.lengths[slot]
        } else {
            self.number()?
        };
        self.before.lengths[slot] = length;
        self.before
            .ends
            .insert(device, offset.saturating_add(length));
        let bytes = |granules: u64| {
            granules
                .checked_mul(1 << self.granule.shift())
                .ok_or("an address beyond 2^64 bytes")
        };
        (request.offset, request.length) = (bytes(offset)?, bytes(length)?);
        Ok(request)
    }

    /// Seven bits per byte, the lowest first; the last byte has no top bit and is not 0 unless it
    /// is the only one.
    fn number(&mut self) -> Result<u64, &'static str> {
        let mut value = 0u64;
        for place in 0..10 {
            let byte = *self.bytes.get(self.at).ok_or("a number that is cut")?;
            self.at += 1;
            let bits = u64::from(byte & 0x7f);
            if place == 9 && bits > 1 || place > 0 && byte == 0 {
                return Err("a number that is not written as it must be");
            }
            value |= bits << (7 * place);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number of more than ten bytes")
    }
}

fn put_number(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

/// Maps small differences of either sign to small numbers.
fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ ((difference as i64) >> 63) as u64
}

fn unzigzag(coded: u64) -> u64 {
    (coded >> 1) ^ (coded & 1).wrapping_neg()
}

/// Files with valid checksums and any content.
#[cfg(test)]
pub mod tests_only {
    use super::*;

    /// A head and these chunks: kind, count, payload.
    pub fn signed(chunks: &[(u8, u32, Vec<u8>)]) -> Vec<u8> {
        let mut encoder = Encoder::new(Granule::Byte);
        for (kind, count, payload) in chunks {
            encoder.chunk(*kind, *count, payload);
        }
        encoder.take()
    }
}

//! Requests in flight and their answers.

use super::block::{BlockModel, BlockWrite, FULL};
use super::{Model, Served, VolumeModel};
use crate::content::{
    EMPTY, GARBAGE, HOLE, ONES, SECTOR, SECTORS, Stamps, ZERO, describe_sector, fill_sector,
    observe_sector,
};
use crate::violation::{Broken, Violation, ensure};
use windrow_format::checkpoint::{MAP_PAGE_ENTRIES, SyncMode};
use windrow_io::{Completion, Extent, Op, Payload, Reply, RequestError, RequestId};
use windrow_types::{BLOCK_BYTES, BLOCK_SIZE, VolumeId};

/// Maximum number of extents in a block status answer.
pub const MAX_EXTENTS: u32 = 64;

/// Content of a request, with stamps in place of bytes. Offsets and lengths in sectors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Asked {
    /// Read.
    Read {
        /// First sector.
        at: u64,
        /// Number of sectors.
        count: u64,
    },
    /// Write: one stamp for each block touched.
    Write {
        /// First sector.
        at: u64,
        /// Number of sectors.
        count: u64,
        /// One stamp for each block touched.
        stamps: Vec<u64>,
        /// Force unit access.
        fua: bool,
    },
    /// Trim, or write zeroes.
    Zero {
        /// First sector.
        at: u64,
        /// Number of sectors.
        count: u64,
        /// `None`: trim; else write zeroes with this `no_hole`.
        no_hole: Option<bool>,
        /// Force unit access.
        fua: bool,
    },
    /// Flush.
    Flush,
    /// Block status.
    Status {
        /// First sector.
        at: u64,
        /// Number of sectors.
        count: u64,
    },
}

/// Sectors described by one page of a map.
const LARGE_SECTORS: u64 = (MAP_PAGE_ENTRIES * SECTORS) as u64;

impl Asked {
    fn range(&self) -> Option<(u64, u64)> {
        match self {
            Self::Read { at, count }
            | Self::Write { at, count, .. }
            | Self::Zero { at, count, .. }
            | Self::Status { at, count } => Some((*at, *count)),
            Self::Flush => None,
        }
    }

    /// Blocks touched.
    pub fn block_range(&self) -> Option<std::ops::Range<u64>> {
        self.range()
            .map(|(at, count)| at / SECTORS as u64..(at + count).div_ceil(SECTORS as u64))
    }

    /// Number of blocks touched.
    pub fn blocks(&self) -> u64 {
        self.block_range()
            .map_or(0, |range| range.end - range.start)
    }

    /// True if it changes content.
    pub fn is_change(&self) -> bool {
        matches!(self, Self::Write { .. } | Self::Zero { .. })
    }

    /// True for a write-zeroes that must not leave a hole.
    pub fn leaves_no_hole(&self) -> bool {
        matches!(
            self,
            Self::Zero {
                no_hole: Some(true),
                ..
            }
        )
    }

    /// True if it carries content.
    pub fn is_write(&self) -> bool {
        matches!(self, Self::Write { .. })
    }

    /// Number of bytes that it reads.
    fn read_bytes(&self) -> u64 {
        if let Self::Read { count, .. } = self {
            count * SECTOR as u64
        } else {
            0
        }
    }

    /// True for an unaligned write-zeroes: a block of ones that it cuts becomes a block with
    /// payload.
    fn zeroes_edges(&self) -> bool {
        let sectors = SECTORS as u64;
        matches!(self, Self::Zero { at, count, no_hole: Some(_), .. } if !at.is_multiple_of(sectors) || !count.is_multiple_of(sectors))
    }

    /// True for an unaligned trim: in a full pool the partial blocks at its ends may stay
    /// unchanged.
    fn trims_edges(&self) -> bool {
        let sectors = SECTORS as u64;
        matches!(self, Self::Zero { at, count, no_hole: None, .. } if !at.is_multiple_of(sectors) || !count.is_multiple_of(sectors))
    }

    fn is_fua(&self) -> bool {
        matches!(
            self,
            Self::Write { fua: true, .. } | Self::Zero { fua: true, .. }
        )
    }

    /// Sectors of `block` that the request touches, as a bit mask.
    fn mask(&self, block: u64) -> u8 {
        let Some((at, count)) = self.range() else {
            return 0;
        };
        let first = block * SECTORS as u64;
        (0..SECTORS)
            .filter(|sector| (at..at + count).contains(&(first + *sector as u64)))
            .fold(0, |mask, sector| mask | 1 << sector)
    }

    /// New stamps of the block with this index. A block is a hole as a whole or not at all.
    fn stamp(&self, index: usize, mask: u8, scarce_pages: bool) -> u64 {
        match self {
            Self::Write { stamps, .. } => stamps[index],
            Self::Zero {
                no_hole: None | Some(false),
                ..
            } if mask == FULL => HOLE,
            // If pages of maps are scarce a range gets none, and stays a hole (seeds 8420423,
            // 10128795); a large range makes them scarce itself.
            Self::Zero {
                no_hole: Some(true),
                count,
                ..
            } if mask == FULL && (scarce_pages || *count > LARGE_SECTORS) => EMPTY,
            _ => ZERO,
        }
    }

    /// The engine's operation, with bytes.
    pub fn to_op(&self, volume: VolumeId, buffers: &windrow_io::BufPool) -> Op {
        let bytes = |sectors: u64| sectors * SECTOR as u64;
        match self {
            Self::Read { at, count } => Op::Read {
                offset: bytes(*at),
                length: bytes(*count) as u32,
            },
            Self::Write {
                at,
                count,
                stamps,
                fua,
            } => {
                let mut buf = buffers.get(bytes(*count) as usize);
                let first = at / SECTORS as u64;
                for (index, out) in buf.chunks_exact_mut(SECTOR).enumerate() {
                    let sector = at + index as u64;
                    let block = sector / SECTORS as u64;
                    fill_sector(
                        out,
                        volume,
                        block,
                        (sector % SECTORS as u64) as usize,
                        stamps[(block - first) as usize],
                    );
                }
                Op::Write {
                    offset: bytes(*at),
                    data: buf.freeze(),
                    fua: *fua,
                }
            }
            Self::Zero {
                at,
                count,
                no_hole: None,
                fua,
            } => Op::Trim {
                offset: bytes(*at),
                length: bytes(*count),
                fua: *fua,
            },
            Self::Zero {
                at,
                count,
                no_hole: Some(no_hole),
                fua,
            } => Op::WriteZeroes {
                offset: bytes(*at),
                length: bytes(*count),
                no_hole: *no_hole,
                fua: *fua,
            },
            Self::Flush => Op::Flush,
            Self::Status { at, count } => Op::BlockStatus {
                offset: bytes(*at),
                length: bytes(*count),
                max_extents: MAX_EXTENTS,
            },
        }
    }
}

/// A request in flight.
#[derive(Clone, Debug)]
pub struct InFlight {
    /// The volume.
    pub volume: VolumeId,
    /// Its content.
    pub asked: Asked,
    /// Highest acknowledged LSN when it was submitted.
    acknowledged: u64,
    /// For reads: newest known LSN of each block at that time.
    required: Vec<u64>,
    /// Smallest size in blocks that the volume may have had since: beyond it the request may be
    /// refused.
    limit: u64,
    /// Sync mode of the volume at that time, if known.
    pub(super) sync: Option<(SyncMode, u64)>,
    /// True if an unaligned trim met a pool that may have been full.
    met_full: bool,
}

impl InFlight {
    /// Records that the volume may become this small.
    pub fn lower_limit(&mut self, blocks: u64) {
        self.limit = self.limit.min(blocks);
    }
}

impl Model {
    /// Records a submitted request.
    pub fn submit(&mut self, id: RequestId, volume: VolumeId, asked: Asked) {
        let mut required = Vec::new();
        let limit = self
            .volumes
            .get(&volume)
            .map_or(0, VolumeModel::steady_blocks);
        if let (Some(range), Some(model)) = (asked.block_range(), self.volumes.get_mut(&volume)) {
            for (index, lba) in range.enumerate() {
                let Some(block) = model.blocks.get_mut(lba as usize) else {
                    continue;
                };
                if asked.is_change() {
                    let mask = asked.mask(lba);
                    let stamp = asked.stamp(index, mask, self.scarce_pages);
                    block.submit(BlockWrite {
                        request: id,
                        mask,
                        stamp,
                        first: 0,
                        last: 0,
                        above: self.acknowledged,
                        may_pass: false,
                    });
                } else {
                    required.push(block.newest());
                    block.readers += 1;
                }
            }
        }
        let sync = self
            .volumes
            .get(&volume)
            .and_then(|volume| volume.settings.known_sync());
        self.in_flight.insert(
            id,
            InFlight {
                volume,
                asked,
                acknowledged: self.acknowledged,
                required,
                limit,
                sync,
                met_full: false,
            },
        );
    }

    /// Checks an answered request. `full` returns whether the pool may refuse a write of this size
    /// because there is no space.
    pub fn complete(
        &mut self,
        completion: &Completion,
        full: impl Fn(u64) -> bool,
    ) -> Result<(), Violation> {
        let Some(mut request) = self.in_flight.remove(&completion.id) else {
            return Err(Violation::new(
                Broken::Protocol,
                format!(
                    "request {} was answered and is not in flight",
                    completion.id.0
                ),
            ));
        };
        let outcome = match &completion.result {
            Ok(reply) => {
                request.met_full = request.asked.trims_edges()
                    && (request.met_full || self.exhausted || full(self.bytes_in_flight()));
                self.succeeded(
                    completion.id,
                    &request,
                    reply,
                    completion.lsns.map(|(first, last)| (first.0, last.0)),
                )
            }
            Err(error) => {
                ensure!(
                    completion.lsns.is_none() || !request.asked.is_change(),
                    Protocol,
                    "a failed request has LSNs {:?}",
                    completion.lsns
                );
                self.failed(completion.id, &request, *error, full)
            }
        };
        outcome.map_err(|v| {
            Violation::new(
                v.broken,
                format!(
                    "{} (request {}: volume {} {:?})",
                    v.text, completion.id.0, request.volume, request.asked
                ),
            )
        })
    }

    /// True if unaligned trims are in flight: until they are answered, their effect depends on how
    /// full the pool is.
    pub fn trims_edges(&self) -> bool {
        self.in_flight
            .values()
            .any(|request| request.asked.trims_edges())
    }

    /// Records that the pool may be full now: trims in flight may leave partial blocks unchanged.
    pub fn note_full(&mut self) {
        self.in_flight
            .values_mut()
            .filter(|request| request.asked.trims_edges())
            .for_each(|request| request.met_full = true);
    }

    /// Upper bound of the bytes that requests in flight may need: the data of writes, and two
    /// blocks for the ends of each request.
    pub fn bytes_in_flight(&self) -> u64 {
        self.write_bytes_in_flight() + 2 * (self.in_flight.len() as u64 + 1) * BLOCK_BYTES
    }

    /// Blocks of which it is unknown whether a trim has left them unchanged.
    pub fn blocks_left_to_see(&self) -> Vec<(VolumeId, u64)> {
        let of = |(id, volume): (&VolumeId, &VolumeModel)| {
            let open = volume
                .blocks
                .iter()
                .enumerate()
                .filter(|(_, block)| block.is_left_to_see());
            open.map(|(lba, _)| (*id, lba as u64)).collect::<Vec<_>>()
        };
        self.volumes.iter().flat_map(of).collect()
    }

    fn failed(
        &mut self,
        id: RequestId,
        request: &InFlight,
        error: RequestError,
        full: impl Fn(u64) -> bool,
    ) -> Result<(), Violation> {
        let gone = self
            .volumes
            .get(&request.volume)
            .is_none_or(|volume| volume.deleting);
        match error {
            RequestError::NoVolume if gone => {}
            RequestError::OutOfRange
                if request
                    .asked
                    .block_range()
                    .is_some_and(|range| range.end > request.limit) => {}
            RequestError::NoSpace if request.asked.is_write() || request.asked.zeroes_edges() => {
                let bytes = if request.asked.is_write() {
                    request.asked.blocks()
                } else {
                    2
                } * BLOCK_BYTES;
                ensure!(
                    full(bytes + self.write_bytes_in_flight()),
                    Error,
                    "refused because there is no space, although there is room"
                );
                self.refused += 1;
            }
            // The change may or may not have happened: it stays open.
            RequestError::Io | RequestError::Stopped
                if self.lenient && request.asked.is_change() =>
            {
                return Ok(());
            }
            RequestError::NoSpace if self.exhausted && request.asked.is_change() => {
                self.refused += 1;
                return Ok(());
            }
            // The engine counts requested bytes; clients can only count what they received.
            RequestError::Io if self.lenient => {
                self.served.read_bytes += request.asked.read_bytes()
            }
            RequestError::Stopped if self.lenient => {}
            error => return Err(Violation::new(Broken::Error, format!("failed: {error}"))),
        }
        if let (Some(range), Some(volume)) = (
            request.asked.block_range(),
            self.volumes.get_mut(&request.volume),
        ) {
            for lba in range {
                let Some(block) = volume.blocks.get_mut(lba as usize) else {
                    continue;
                };
                if request.asked.is_change() {
                    block.withdraw(id);
                } else {
                    block.readers = block.readers.saturating_sub(1);
                }
            }
        }
        Ok(())
    }

    fn succeeded(
        &mut self,
        id: RequestId,
        request: &InFlight,
        reply: &Reply,
        lsns: Option<(u64, u64)>,
    ) -> Result<(), Violation> {
        match (&request.asked, reply) {
            (Asked::Flush, Reply::Done) => {
                if self
                    .sync_during(request)
                    .is_some_and(|mode| mode != SyncMode::Disabled)
                {
                    self.promised = self.promised.max(request.acknowledged);
                }
                self.served.flushes += 1;
            }
            (Asked::Read { at, count }, Reply::Data(slices)) => {
                let length: usize = slices.iter().map(Payload::len).sum();
                ensure!(
                    length as u64 == count * SECTOR as u64,
                    Protocol,
                    "{length} bytes came back"
                );
                let mut bytes = Vec::with_capacity(length);
                slices
                    .iter()
                    .for_each(|slice| bytes.extend_from_slice(slice));
                let promised = self.settled();
                self.served.read_bytes += length as u64;
                if let Some(volume) = self.volumes.get_mut(&request.volume) {
                    check_read(volume, request, *at, &bytes, promised)?;
                }
            }
            (Asked::Status { at, count }, Reply::Extents(extents)) => {
                if let Some(volume) = self.volumes.get_mut(&request.volume) {
                    check_status(volume, request, *at, *count, extents)?;
                }
            }
            (asked, Reply::Done) if asked.is_change() => {
                let Some((first, last)) = lsns else {
                    return Err(Violation::new(Broken::Protocol, "a change without LSNs"));
                };
                self.take_lsns(request, first, last)?;
                self.changed(id, request, first, last);
                self.served.count(asked);
            }
            (_, reply) => {
                return Err(Violation::new(
                    Broken::Protocol,
                    format!("answered with {reply:?}"),
                ));
            }
        }
        Ok(())
    }

    fn take_lsns(&mut self, request: &InFlight, first: u64, last: u64) -> Result<(), Violation> {
        ensure!(
            first <= last && first > self.accepted,
            Protocol,
            "LSNs {first}..{last} after a start at {}",
            self.accepted
        );
        ensure!(
            first > request.acknowledged,
            Protocol,
            "LSNs {first}..{last}, but {} had been acknowledged before the request was submitted",
            request.acknowledged
        );
        if request.asked.is_write() {
            ensure!(
                last - first + 1 == request.asked.blocks(),
                Protocol,
                "LSNs {first}..{last} for {} blocks",
                request.asked.blocks()
            );
        }
        let before = self.lsns.range(..=last).next_back();
        ensure!(
            before.is_none_or(|(_, end)| *end < first),
            Protocol,
            "LSNs {first}..{last} overlap {before:?} of another request"
        );
        self.lsns.insert(first, last);
        Ok(())
    }

    fn changed(&mut self, id: RequestId, request: &InFlight, first: u64, last: u64) {
        self.acknowledged = self.acknowledged.max(last);
        let mode = self.sync_during(request);
        if mode == Some(SyncMode::Always)
            || (mode == Some(SyncMode::Standard) && request.asked.is_fua())
        {
            self.promised = self.promised.max(last);
        }
        let promised = self.settled();
        let (Some(range), Some(volume)) = (
            request.asked.block_range(),
            self.volumes.get_mut(&request.volume),
        ) else {
            return;
        };
        for (index, lba) in range.enumerate() {
            let Some(block) = volume.blocks.get_mut(lba as usize) else {
                continue;
            };
            let own = first + index as u64;
            let (first, last) = if request.asked.is_write() {
                (own, own)
            } else {
                (first, last)
            };
            block.acknowledge(id, first, last, request.met_full);
            block.fold(promised);
        }
    }
}

/// Compares read content with the legal contents.
fn check_read(
    volume: &mut VolumeModel,
    request: &InFlight,
    at: u64,
    bytes: &[u8],
    promised: u64,
) -> Result<(), Violation> {
    let Some(range) = request.asked.block_range() else {
        return Ok(());
    };
    let mut sector = at;
    let mut sectors = bytes.chunks_exact(SECTOR);
    for (index, lba) in range.enumerate() {
        let mask = request.asked.mask(lba);
        let mut observed: Stamps = [ZERO; SECTORS];
        let first = sector;
        for (number, stamp) in observed.iter_mut().enumerate() {
            if mask >> number & 1 == 1 {
                *stamp = sectors.next().map_or(GARBAGE, |content| {
                    observe_sector(content, request.volume, lba, number)
                });
                sector += 1;
            }
        }
        let Some(block) = volume.blocks.get_mut(lba as usize) else {
            continue;
        };
        let required = request.required.get(index).copied().unwrap_or(0);
        if !block.explains(&observed, mask, required) {
            let content = &bytes[((first - at) as usize * SECTOR).min(bytes.len())..];
            return Err(wrong_bytes(
                block.describe(),
                lba,
                &observed,
                mask,
                required,
                content,
            ));
        }
        block.readers = block.readers.saturating_sub(1);
        block.fold(promised);
    }
    Ok(())
}

fn wrong_bytes(
    legal: String,
    lba: u64,
    observed: &Stamps,
    mask: u8,
    required: u64,
    content: &[u8],
) -> Violation {
    let masked = (0..SECTORS).filter(|s| mask >> s & 1 == 1);
    let sectors: Vec<String> = masked
        .zip(content.chunks_exact(SECTOR))
        .map(|(s, bytes)| match observed[s] {
            ZERO => format!("{s}: zero"),
            ONES => format!("{s}: ones"),
            _ => format!("{s}: {}", describe_sector(bytes)),
        })
        .collect();
    let text = format!(
        "block {lba} reads [{}]; required order {required}; legal: {legal}",
        sectors.join(", ")
    );
    Violation::new(Broken::Content, text)
}

/// Checks that the blocks reported as hole, zero or data are in that state.
fn check_status(
    volume: &mut VolumeModel,
    request: &InFlight,
    at: u64,
    count: u64,
    extents: &[Extent],
) -> Result<(), Violation> {
    let total: u64 = extents.iter().map(|extent| extent.length).sum();
    ensure!(
        total > 0 && total <= count * SECTOR as u64,
        Protocol,
        "the extents cover {total} bytes"
    );
    let Some(range) = request.asked.block_range() else {
        return Ok(());
    };
    let mut start = at * SECTOR as u64;
    for extent in extents {
        ensure!(
            extent.length > 0 && extent.length % SECTOR as u64 == 0,
            Protocol,
            "an extent of {} bytes",
            extent.length
        );
        for lba in start / BLOCK_BYTES..(start + extent.length).div_ceil(BLOCK_BYTES) {
            let Some(block) = volume.blocks.get(lba as usize) else {
                continue;
            };
            let required = request
                .required
                .get((lba - range.start) as usize)
                .copied()
                .unwrap_or(0);
            let legal = block.explains_status(extent.state, required);
            ensure!(
                legal,
                Content,
                "block {lba} is reported as {:?}; legal: {}",
                extent.state,
                block.describe()
            );
        }
        start += extent.length;
    }
    for lba in range {
        let Some(block) = volume.blocks.get_mut(lba as usize) else {
            continue;
        };
        block.readers = block.readers.saturating_sub(1);
    }
    Ok(())
}

impl Served {
    /// Counts a successful request that changes content.
    fn count(&mut self, asked: &Asked) {
        self.flushes += u64::from(asked.is_fua());
        if let Asked::Write { count, .. } = asked {
            self.written_bytes += count * SECTOR as u64;
        }
        for (index, lba) in asked.block_range().into_iter().flatten().enumerate() {
            let mask = asked.mask(lba);
            let is_fill =
                asked.is_write() && matches!(asked.stamp(index, mask, false), ZERO | ONES);
            self.fill_blocks += u64::from(mask == FULL && is_fill);
            self.partial_blocks += u64::from(mask != FULL);
        }
    }
}

impl Model {
    /// Applies block status after a start, before new requests: it distinguishes holes from zeroes
    /// where a crash left that open.
    pub fn settle_status(&mut self, volume: VolumeId, first_block: u64, extents: &[Extent]) {
        let Some(model) = self.volumes.get_mut(&volume) else {
            return;
        };
        let mut start = first_block * BLOCK_BYTES;
        for extent in extents {
            let blocks = start / BLOCK_BYTES..(start + extent.length).div_ceil(BLOCK_BYTES);
            let blocks = blocks.filter_map(|lba| usize::try_from(lba).ok());
            blocks.for_each(|lba| {
                model
                    .blocks
                    .get_mut(lba)
                    .into_iter()
                    .for_each(|block: &mut BlockModel| block.settle_status(extent.state))
            });
            start += extent.length;
        }
    }
}

const _: () = assert!(SECTOR * SECTORS == BLOCK_SIZE);

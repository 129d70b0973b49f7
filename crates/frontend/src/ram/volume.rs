//! One volume of the double.

use super::{MAX_REQUEST_BYTES, RamExport, locked};
use crate::ExportInfo;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, RwLock, RwLockReadGuard};
use windrow_io::{BufPool, Extent, ExtentState, Payload, RequestError};
use windrow_types::{BLOCK_SIZE, VolumeId};

const SHARD_BYTES: usize = 1 << 20;
const SHARD_BLOCKS: usize = SHARD_BYTES / BLOCK_SIZE;

struct Shard {
    bytes: Option<Box<[u8]>>,
    states: [ExtentState; SHARD_BLOCKS],
}

impl Shard {
    fn new() -> Mutex<Self> {
        Mutex::new(Self {
            bytes: None,
            states: [ExtentState::Hole; SHARD_BLOCKS],
        })
    }
}

pub(super) struct Volume {
    id: VolumeId,
    name: String,
    read_only: bool,
    size_bytes: AtomicU64,
    shards: RwLock<Vec<Mutex<Shard>>>,
}

/// A piece of a request inside one shard.
struct Part {
    shard: usize,
    start: usize,
    length: usize,
    done: usize,
}

fn parts(offset: u64, length: u64) -> impl Iterator<Item = Part> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done;
        let start = (at % SHARD_BYTES as u64) as usize;
        let part_length = (length - done).min((SHARD_BYTES - start) as u64);
        let part = Part {
            shard: (at / SHARD_BYTES as u64) as usize,
            start,
            length: part_length as usize,
            done: done as usize,
        };
        done += part_length;
        (part_length > 0).then_some(part)
    })
}

impl Volume {
    pub(super) fn new(id: VolumeId, export: &RamExport) -> Self {
        let volume = Self {
            id,
            name: export.name.clone(),
            read_only: export.read_only,
            size_bytes: AtomicU64::new(0),
            shards: RwLock::new(Vec::new()),
        };
        volume.resize(export.size_bytes);
        volume
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn info(&self) -> ExportInfo {
        ExportInfo {
            name: self.name.clone(),
            description: "volume in memory".to_owned(),
            volume: self.id,
            size_bytes: self.size_bytes.load(Ordering::SeqCst),
            read_only: self.read_only,
            min_block: 1,
            preferred_block: BLOCK_SIZE as u32,
            max_block: MAX_REQUEST_BYTES,
        }
    }

    pub(super) fn resize(&self, size_bytes: u64) {
        let mut shards = self
            .shards
            .write()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        shards.resize_with(size_bytes.div_ceil(SHARD_BYTES as u64) as usize, Shard::new);
        self.size_bytes.store(size_bytes, Ordering::SeqCst);
    }

    fn shards(&self) -> RwLockReadGuard<'_, Vec<Mutex<Shard>>> {
        self.shards
            .read()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Checks with the shards locked for reading, so that no resize comes between.
    fn check(&self, offset: u64, length: u64) -> Result<(), RequestError> {
        if length == 0 {
            return Err(RequestError::Invalid);
        }
        match offset.checked_add(length) {
            Some(end) if end <= self.size_bytes.load(Ordering::SeqCst) => Ok(()),
            _ => Err(RequestError::OutOfRange),
        }
    }

    pub(super) fn read(
        &self,
        offset: u64,
        length: u32,
        buffers: &BufPool,
    ) -> Result<Payload, RequestError> {
        let shards = self.shards();
        self.check(offset, length.into())?;
        let mut buf = buffers.get(length as usize);
        for part in parts(offset, length.into()) {
            let target = &mut buf[part.done..part.done + part.length];
            match &locked(&shards[part.shard]).bytes {
                Some(bytes) => target.copy_from_slice(&bytes[part.start..part.start + part.length]),
                None => target.fill(0),
            }
        }
        Ok(buf.freeze())
    }

    pub(super) fn write(&self, offset: u64, data: &[u8]) -> Result<(), RequestError> {
        let shards = self.shards();
        self.check(offset, data.len() as u64)?;
        if self.read_only {
            return Err(RequestError::ReadOnly);
        }
        for part in parts(offset, data.len() as u64) {
            let mut shard = locked(&shards[part.shard]);
            let bytes = shard
                .bytes
                .get_or_insert_with(|| vec![0; SHARD_BYTES].into_boxed_slice());
            bytes[part.start..part.start + part.length]
                .copy_from_slice(&data[part.done..part.done + part.length]);
            shard.states[part.start / BLOCK_SIZE..(part.start + part.length).div_ceil(BLOCK_SIZE)]
                .fill(ExtentState::Data);
        }
        Ok(())
    }

    /// Zeroes a range; whole blocks become holes or zeroes.
    pub(super) fn clear(&self, offset: u64, length: u64, hole: bool) -> Result<(), RequestError> {
        let shards = self.shards();
        self.check(offset, length)?;
        if self.read_only {
            return Err(RequestError::ReadOnly);
        }
        let state = if hole {
            ExtentState::Hole
        } else {
            ExtentState::Zero
        };
        for part in parts(offset, length) {
            let mut shard = locked(&shards[part.shard]);
            if let Some(bytes) = &mut shard.bytes {
                bytes[part.start..part.start + part.length].fill(0);
            }
            let whole = part.start.div_ceil(BLOCK_SIZE)..(part.start + part.length) / BLOCK_SIZE;
            if whole.start < whole.end {
                shard.states[whole].fill(state);
            }
        }
        Ok(())
    }

    pub(super) fn status(
        &self,
        offset: u64,
        length: u64,
        max_extents: u32,
    ) -> Result<Vec<Extent>, RequestError> {
        let shards = self.shards();
        self.check(offset, length)?;
        let mut extents: Vec<Extent> = Vec::new();
        for part in parts(offset, length) {
            let shard = locked(&shards[part.shard]);
            let mut at = part.start;
            let end = part.start + part.length;
            while at < end {
                let next = ((at / BLOCK_SIZE + 1) * BLOCK_SIZE).min(end);
                let (state, bytes) = (shard.states[at / BLOCK_SIZE], (next - at) as u64);
                at = next;
                let full = extents.len() == max_extents as usize;
                match extents.last_mut() {
                    Some(last) if last.state == state => last.length += bytes,
                    _ if full => return Ok(extents),
                    _ => extents.push(Extent {
                        length: bytes,
                        state,
                    }),
                }
            }
        }
        Ok(extents)
    }
}

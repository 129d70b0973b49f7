//! A member with a volatile write cache in the memory of this process. Test use only.
//!
//! A killed process loses nothing that it passed to the kernel, so SIGKILL alone cannot reveal a
//! missing device flush. With this member it can: writes stay in process memory, and are lost with
//! it, until a flush writes them to the inner member.
//!
//! 1. A write marks sectors of 512 bytes dirty in the cache, nothing else. Reads see the cache
//!    first.
//! 2. Like real caches, it writes some blocks back early: after a write, with a seeded chance,
//!    random dirty blocks (so in any order) go to the inner member, some of them only in part (torn
//!    at a sector). The same happens when the cache is full.
//! 3. A flush writes everything dirty to the inner member, flushes that, and only then drops the
//!    copies.
//! 4. Whatever is dirty when the process dies, or when the member is dropped, is lost.
//!
//! Invariant that the tests check: after a loss each sector holds what it held at the last flush,
//! or any version written since.
//!
//! One lock guards everything: this is a test device, and equal seeds with equal operations must
//! give equal losses.

#[cfg(test)]
mod tests;

use crate::DeviceError;
use crate::member::{Member, MemberInfo};
use crate::random::Random;
use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::Mutex;
use windrow_io::{Buf, BufPool, MemberErrorKind};

const BLOCK_BYTES: usize = 4096;
const SECTOR_BYTES: usize = 512;
/// Most blocks joined into one write of a flush.
const RUN_BLOCKS: usize = 256;
/// Maximum number of blocks of one early write-back.
const EARLY_BLOCKS_MAX: u64 = 16;

/// Behaviour of a [`VolatileMember`].
#[derive(Clone, Debug)]
pub struct VolatileOptions {
    /// Seed that decides which blocks are written back early.
    pub seed: u64,
    /// Limit of unflushed bytes; above it, random blocks are written back.
    pub cache_bytes_max: u64,
    /// Chance, in thousandths, that a write is followed by an early write-back of some blocks.
    pub early_write_back_per_mille: u16,
    /// A canary for the kill loops: every n-th flush is acknowledged but not performed (1: every
    /// one). A kill loop that does not notice this tests nothing. `None` is a correct device.
    pub drop_flush_every: Option<u32>,
}

impl Default for VolatileOptions {
    fn default() -> Self {
        Self {
            seed: 1,
            cache_bytes_max: 64 << 20,
            early_write_back_per_mille: 50,
            drop_flush_every: None,
        }
    }
}

/// A block in the cache. Only its dirty sectors have a meaning.
struct Cached {
    bytes: Buf,
    dirty: u8,
    /// Its index in `Cache::order`, so that a random one can be picked in constant time.
    position: usize,
}

struct Cache {
    blocks: HashMap<u64, Cached>,
    order: Vec<u64>,
    random: Random,
    flushes: u32,
    cut: bool,
}

/// A volatile write cache over the inner member.
pub struct VolatileMember<M> {
    inner: M,
    options: VolatileOptions,
    buffers: BufPool,
    cache: Mutex<Cache>,
}

impl<M: Member> VolatileMember<M> {
    /// An empty cache.
    pub fn new(inner: M, options: VolatileOptions) -> Self {
        let random = Random::new(options.seed);
        let cache = Cache {
            blocks: HashMap::new(),
            order: Vec::new(),
            random,
            flushes: 0,
            cut: false,
        };
        Self {
            inner,
            options,
            buffers: BufPool::new(4 << 20),
            cache: Mutex::new(cache),
        }
    }

    /// The inner member: the content that survives.
    pub fn inner(&self) -> &M {
        &self.inner
    }

    /// Bytes that would be lost now (whole blocks).
    pub fn unflushed_bytes(&self) -> u64 {
        (self.lock().blocks.len() * BLOCK_BYTES) as u64
    }

    /// Cuts power: a seeded part of the cache still reaches the inner member, sector by sector, the
    /// rest is lost, and every later operation fails with [`PowerCut`](MemberErrorKind::PowerCut).
    pub fn cut_power(&self) {
        let mut cache = self.lock();
        let mut numbers = std::mem::take(&mut cache.order);
        numbers.sort_unstable();
        for number in numbers {
            let mask = (cache.random.next() & cache.random.next()) as u8;
            if let Some(block) = cache.blocks.remove(&number) {
                // A failing inner device loses slightly more, which is legal.
                let _ = self.store(number, &block.bytes, block.dirty & mask);
            }
        }
        cache.blocks.clear();
        cache.cut = true;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn running(&self, offset: u64) -> Result<std::sync::MutexGuard<'_, Cache>, DeviceError> {
        let cache = self.lock();
        if cache.cut {
            Err(DeviceError {
                kind: MemberErrorKind::PowerCut,
                offset,
                code: 0,
            })
        } else {
            Ok(cache)
        }
    }

    /// Writes the sectors of `mask` to the inner member, which may have larger sectors: hence an
    /// RMW of the block.
    fn store(&self, number: u64, bytes: &[u8], mask: u8) -> Result<(), DeviceError> {
        let offset = number * BLOCK_BYTES as u64;
        match mask {
            0 => Ok(()),
            u8::MAX => self.inner.write_at(offset, bytes),
            _ => {
                let mut block = self.buffers.get(BLOCK_BYTES);
                self.inner.read_at(offset, &mut block)?;
                overlay(&mut block, bytes, mask);
                self.inner.write_at(offset, &block)
            }
        }
    }

    /// Writes back one random block, sometimes only a part of it.
    fn write_back_one(&self, cache: &mut Cache) -> Result<(), DeviceError> {
        if cache.order.is_empty() {
            return Ok(());
        }
        let pick = cache.random.below(cache.order.len() as u64) as usize;
        let number = cache.order[pick];
        let torn = if cache.random.chance(250) {
            cache.random.next() as u8
        } else {
            u8::MAX
        };
        let Some(block) = cache.blocks.get_mut(&number) else {
            return Ok(());
        };
        let mask = block.dirty & torn;
        self.store(number, &block.bytes, mask)?;
        block.dirty &= !mask;
        if block.dirty == 0 {
            cache.forget(number);
        }
        Ok(())
    }

    fn after_write(&self, cache: &mut Cache) -> Result<(), DeviceError> {
        if cache.random.chance(self.options.early_write_back_per_mille) {
            for _ in 0..1 + cache.random.below(EARLY_BLOCKS_MAX) {
                self.write_back_one(cache)?;
            }
        }
        let blocks_max = (self.options.cache_bytes_max / BLOCK_BYTES as u64).max(1) as usize;
        while cache.order.len() > blocks_max {
            self.write_back_one(cache)?;
        }
        Ok(())
    }

    /// Writes everything dirty to the inner member, whole blocks in long runs. The copies stay
    /// until the caller drops them.
    fn write_back_all(&self, cache: &Cache) -> Result<(), DeviceError> {
        let mut numbers = cache.order.clone();
        numbers.sort_unstable();
        let mut run = self.buffers.get(RUN_BLOCKS * BLOCK_BYTES);
        let mut at = 0;
        while at < numbers.len() {
            let first = numbers[at];
            let whole = numbers[at..]
                .iter()
                .take(RUN_BLOCKS)
                .enumerate()
                .take_while(|(i, number)| {
                    **number == first + *i as u64
                        && cache.blocks.get(number).is_some_and(|b| b.dirty == u8::MAX)
                })
                .count();
            for (i, number) in numbers[at..at + whole].iter().enumerate() {
                run[i * BLOCK_BYTES..(i + 1) * BLOCK_BYTES]
                    .copy_from_slice(&cache.blocks[number].bytes);
            }
            if whole > 0 {
                self.inner
                    .write_at(first * BLOCK_BYTES as u64, &run[..whole * BLOCK_BYTES])?;
                at += whole;
            } else {
                let block = &cache.blocks[&first];
                self.store(first, &block.bytes, block.dirty)?;
                at += 1;
            }
        }
        Ok(())
    }
}

impl Cache {
    fn forget(&mut self, number: u64) {
        if let Some(block) = self.blocks.remove(&number) {
            self.order.swap_remove(block.position);
            if let Some(moved) = self.order.get(block.position)
                && let Some(other) = self.blocks.get_mut(moved)
            {
                other.position = block.position;
            }
        }
    }

    fn put(&mut self, buffers: &BufPool, number: u64, within: usize, data: &[u8]) {
        let position = self.order.len();
        let block = self.blocks.entry(number).or_insert_with(|| Cached {
            bytes: buffers.get(BLOCK_BYTES),
            dirty: 0,
            position,
        });
        if block.position == position {
            self.order.push(number);
        }
        block.bytes[within..within + data.len()].copy_from_slice(data);
        block.dirty |= sector_mask(within, data.len());
    }
}

fn sector_mask(within: usize, length: usize) -> u8 {
    (within / SECTOR_BYTES..(within + length).div_ceil(SECTOR_BYTES))
        .fold(0, |mask, sector| mask | (1 << sector))
}

fn overlay(target: &mut [u8], source: &[u8], mask: u8) {
    for sector in (0..8).filter(|s| mask & (1 << s) != 0) {
        let range = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
        target[range.clone()].copy_from_slice(&source[range]);
    }
}

/// Cuts a range at block borders: (block, first byte in the block, range in the buffer).
fn cut(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        (done < length).then(|| {
            let at = offset + done as u64;
            let within = (at % BLOCK_BYTES as u64) as usize;
            let count = (BLOCK_BYTES - within).min(length - done);
            done += count;
            (at / BLOCK_BYTES as u64, within, done - count..done)
        })
    })
}

impl<M: Member> Member for VolatileMember<M> {
    fn info(&self) -> &MemberInfo {
        self.inner.info()
    }

    fn size_now(&self) -> Result<u64, DeviceError> {
        self.inner.size_now()
    }

    fn is_nameless(&self) -> bool {
        self.inner.is_nameless()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        let cache = self.running(offset)?;
        self.inner.read_at(offset, buf)?;
        for (number, within, range) in cut(offset, buf.len()) {
            let Some(block) = cache.blocks.get(&number) else {
                continue;
            };
            for (i, sector) in buf[range].chunks_mut(SECTOR_BYTES).enumerate() {
                let start = within + i * SECTOR_BYTES;
                if block.dirty & sector_mask(start, sector.len()) != 0 {
                    sector.copy_from_slice(&block.bytes[start..start + sector.len()]);
                }
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.info().check_write(offset, data.len() as u64)?;
        let mut cache = self.running(offset)?;
        for (number, within, range) in cut(offset, data.len()) {
            cache.put(&self.buffers, number, within, &data[range]);
        }
        self.after_write(&mut cache)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let mut cache = self.running(0)?;
        cache.flushes = cache.flushes.wrapping_add(1);
        if self
            .options
            .drop_flush_every
            .is_some_and(|every| cache.flushes.is_multiple_of(every.max(1)))
        {
            return Ok(());
        }
        self.write_back_all(&cache)?;
        self.inner.flush()?;
        cache.blocks.clear();
        cache.order.clear();
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.info().check_write(offset, length)?;
        let mut cache = self.running(offset)?;
        // Only whole blocks are dropped from the cache; partial blocks stay readable, which is
        // legal.
        let blocks = offset.div_ceil(BLOCK_BYTES as u64)..(offset + length) / BLOCK_BYTES as u64;
        let mut gone: Vec<u64> = cache
            .order
            .iter()
            .copied()
            .filter(|number| blocks.contains(number))
            .collect();
        gone.drain(..).for_each(|number| cache.forget(number));
        self.inner.discard(offset, length)
    }

    fn raw_fd(&self) -> Option<RawFd> {
        None
    }
}

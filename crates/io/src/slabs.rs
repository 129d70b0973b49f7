//! Buffers of one size that a large pool cuts out of huge pages.
//!
//! A *slab* is a region cut into pieces of one size. It keeps a list of its idle pieces; nothing
//! else refers to these. Pieces are taken from the slab that received one back last. Pieces in use
//! thus lie close together and other slabs become wholly idle.
//!
//! Invariant: a slab is allocated only when no piece of the size is idle. The number of slabs is
//! therefore bounded by the peak number of pieces in use, in whatever order pieces come back.

use crate::region::Region;
use std::ptr::NonNull;

/// A piece in use: its address, and the number of its slab.
pub(crate) struct Piece {
    pub(crate) ptr: NonNull<u8>,
    pub(crate) slab: u32,
}

struct Slab {
    region: Region,
    /// Numbers of the idle pieces; the last one is the warmest.
    idle: Vec<u16>,
    /// Its index in `Slabs::with_idle` while it has an idle piece.
    place: usize,
    /// Total number of pieces.
    pieces: usize,
}

impl Slab {
    /// Its bytes if it is wholly idle, else 0.
    fn spare_bytes(&self) -> usize {
        if self.idle.len() == self.pieces {
            self.region.len()
        } else {
            0
        }
    }
}

/// All slabs with pieces of one size.
pub(crate) struct Slabs {
    piece_bytes: usize,
    slabs: Vec<Option<Slab>>,
    /// Unused slab numbers.
    vacant: Vec<u32>,
    /// Slabs with an idle piece.
    with_idle: Vec<u32>,
}

impl Slabs {
    /// An empty set for pieces of this size, a power of two.
    pub(crate) fn new(piece_bytes: usize) -> Self {
        Self {
            piece_bytes,
            slabs: Vec::new(),
            vacant: Vec::new(),
            with_idle: Vec::new(),
        }
    }

    fn slab(&mut self, number: u32) -> &mut Slab {
        match &mut self.slabs[number as usize] {
            Some(slab) => slab,
            None => unreachable!("a slab stays as long as a piece of it is in use or on the list"),
        }
    }

    /// Takes an idle piece, if there is one. Also returns the bytes of its slab if that was wholly
    /// idle.
    pub(crate) fn take(&mut self) -> Option<(Piece, usize)> {
        let number = *self.with_idle.last()?;
        let piece_bytes = self.piece_bytes;
        let slab = self.slab(number);
        let spare = slab.spare_bytes();
        let piece = slab.idle.pop()?;
        // SAFETY: numbers of pieces are below `pieces`, so the address lies inside the region.
        let ptr = unsafe { slab.region.start().add(usize::from(piece) * piece_bytes) };
        if slab.idle.is_empty() {
            self.with_idle.pop();
        }
        Some((Piece { ptr, slab: number }, spare))
    }

    /// Allocates a slab and takes its first piece.
    pub(crate) fn cut(&mut self) -> Piece {
        let region = Region::new(self.piece_bytes);
        let ptr = region.start();
        let pieces = region.len() / self.piece_bytes;
        let number = self.vacant.pop().unwrap_or_else(|| {
            self.slabs.push(None);
            (self.slabs.len() - 1) as u32
        });
        let slab = Slab {
            region,
            idle: (1..pieces as u16).rev().collect(),
            place: self.with_idle.len(),
            pieces,
        };
        if !slab.idle.is_empty() {
            self.with_idle.push(number);
        }
        self.slabs[number as usize] = Some(slab);
        Piece { ptr, slab: number }
    }

    /// Takes a piece back. Returns the bytes of its slab if that is now wholly idle.
    pub(crate) fn give_back(&mut self, piece: &Piece) -> usize {
        let (place, piece_bytes) = (self.with_idle.len(), self.piece_bytes);
        let slab = self.slab(piece.slab);
        let at =
            (piece.ptr.as_ptr() as usize - slab.region.start().as_ptr() as usize) / piece_bytes;
        slab.idle.push(at as u16);
        let spare = slab.spare_bytes();
        if slab.idle.len() == 1 {
            slab.place = place;
            self.with_idle.push(piece.slab);
        }
        spare
    }

    /// True if the slab is the only one with idle pieces, and has several: without it the next
    /// piece would need a new one.
    pub(crate) fn is_last(&self) -> bool {
        match self.with_idle[..] {
            [number] => self.slabs[number as usize]
                .as_ref()
                .is_some_and(|slab| slab.pieces > 1),
            _ => false,
        }
    }

    /// Removes a wholly idle slab; dropping the returned region frees its memory.
    pub(crate) fn remove(&mut self, number: u32) -> Option<Region> {
        let slab = self.slabs[number as usize].take()?;
        self.vacant.push(number);
        self.with_idle.swap_remove(slab.place);
        if let Some(moved) = self.with_idle.get(slab.place).copied() {
            self.slab(moved).place = slab.place;
        }
        Some(slab.region)
    }

    /// Bytes of idle pieces.
    pub(crate) fn idle_bytes(&self) -> usize {
        self.slabs
            .iter()
            .flatten()
            .map(|slab| slab.idle.len() * self.piece_bytes)
            .sum()
    }

    /// Bytes of all slabs.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.slabs
            .iter()
            .flatten()
            .map(|slab| slab.region.len())
            .sum()
    }
}

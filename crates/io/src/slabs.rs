//! The buffers of one size that a large pool cuts out of huge pages.
//!
//! A *slab* is a region cut into pieces of one size. It remembers which of them are idle; nothing
//! else refers to these. Pieces are taken from the slab that has got one back last, so that those
//! in use lie close together and others become wholly idle.
//!
//! Invariant: a slab is made only when no piece of the size is idle. So there are never more of
//! them than the most pieces that were in use at once fill, in whatever order pieces come back.

use crate::region::Region;
use std::ptr::NonNull;

/// A piece in use: where it is, and the number of its slab.
pub(crate) struct Piece {
    pub(crate) ptr: NonNull<u8>,
    pub(crate) slab: u32,
}

struct Slab {
    region: Region,
    /// Numbers of the idle pieces; the last one is the warmest.
    idle: Vec<u16>,
    /// Its place in `Slabs::with_idle` while it has an idle piece.
    place: usize,
    /// Pieces in all.
    pieces: usize,
}

impl Slab {
    /// Its bytes if no piece of it is in use.
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
    /// Numbers that no slab has.
    vacant: Vec<u32>,
    /// Slabs with an idle piece.
    with_idle: Vec<u32>,
}

impl Slabs {
    /// None yet, for pieces of this size: a power of two.
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

    /// An idle piece, if there is one, and the bytes of its slab if that was wholly idle.
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

    /// The first piece of a new slab.
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

    /// Takes a piece back. The bytes of its slab if that is wholly idle now.
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

    /// Takes out a slab that is wholly idle; its memory goes with what is returned.
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

//! The ring: chunks that are filled one after the other, and reused when the log has their content.

use windrow_format::journal::RecordHeader;
use windrow_geometry::JournalArea;
use windrow_types::Lsn;

/// Chunks of a journal.
#[derive(Debug)]
pub(super) struct Ring {
    pub(super) area: JournalArea,
    /// Last LSN in each chunk; 0 if nothing in it is needed.
    pub(super) last: Vec<Lsn>,
    /// Chunk being filled, and the fill position.
    pub(super) chunk: u32,
    pub(super) offset: u32,
    /// True if that chunk takes no more records.
    closed: bool,
    /// True if a member's sectors are larger than the record granule: the ring is readable, but not
    /// writable.
    pub(super) unfit: bool,
}

impl Ring {
    /// A ring that resumes after `chunk`: never after a record that may be torn. `last` gives the
    /// last needed LSN of each chunk.
    pub(super) fn new(area: JournalArea, mut last: Vec<Lsn>, chunk: u32) -> Self {
        last.resize(area.chunks as usize, Lsn(0));
        Self {
            area,
            last,
            chunk,
            offset: area.chunk_bytes,
            closed: true,
            unfit: false,
        }
    }

    /// Makes the next record begin a chunk.
    pub(super) fn leave_chunk(&mut self) {
        (self.offset, self.closed) = (self.area.chunk_bytes, true);
    }

    /// The last record of the chunk takes less than reserved: the next one begins at its end.
    pub(super) fn shorten(&mut self, record: &RecordHeader, at_most: u32, bytes: u32) {
        if !self.closed && self.chunk == record.chunk && self.offset == record.offset + at_most {
            self.offset = record.offset + bytes;
        }
    }

    pub(super) fn is_free(&self, chunk: u32, durable: Lsn) -> bool {
        self.last[chunk as usize] <= durable
    }

    pub(super) fn next_chunk(&self) -> u32 {
        (self.chunk + 1) % self.area.chunks
    }

    /// Chunks in use: the one being filled and its predecessors, as far back as they are needed.
    pub(super) fn used(&self, durable: Lsn) -> u32 {
        let chunks = self.area.chunks;
        let is_used = |back: u32| !self.is_free((self.chunk + chunks - back) % chunks, durable);
        u32::from(is_used(0)) + (1..chunks).take_while(|back| is_used(*back)).count() as u32
    }

    /// Bytes left in the current chunk.
    pub(super) fn left(&self) -> usize {
        (self.area.chunk_bytes - self.offset) as usize
    }

    /// Continues in the next chunk; false if that is not free.
    pub(super) fn turn(&mut self, durable: Lsn) -> bool {
        let next = self.next_chunk();
        if !self.is_free(next, durable) {
            return false;
        }
        (self.chunk, self.offset, self.closed) = (next, 0, false);
        true
    }
}

//! Comparing: what has the fingerprint of a block is read and held against it, byte by byte, before the block refers to it.
//!
//! The block holds the id meanwhile, so it stays what it is; it may be moved. What can not be read, or is something else, is not referred to.

use crate::Engine;
use crate::Outbox;
use crate::fetch::{FetchGoal, FetchSpec};
use crate::piece::Piece;
use crate::slab::Slab;
use crate::write::Placing;
use windrow_io::Payload;
use windrow_layout::map_entry::MapEntry;
use windrow_units::{FULL_BLOCK_UNITS, Lba, VolumeId};

/// One comparison.
#[derive(Clone, Copy, Debug)]
struct Comparison {
    /// Number of the block in the queue.
    number: u64,
    id: u32,
    /// What is read, if it is packed.
    packed: Option<Piece>,
}

/// Those under way, and those whose reads are to be sent.
#[derive(Debug, Default)]
pub(crate) struct Comparisons {
    under_way: Slab<Comparison>,
    waiting: Vec<(u64, u32)>,
}

impl Comparisons {
    pub(crate) fn is_empty(&self) -> bool {
        self.under_way.is_empty() && self.waiting.is_empty()
    }
}

impl Engine {
    /// The block with this number in the queue is to be compared with content in the map.
    pub(super) fn compare(&mut self, number: u64, id: u32) {
        self.shared.comparisons.waiting.push((number, id));
    }

    /// Sends the reads.
    pub(crate) fn send_comparisons(&mut self, out: &mut Outbox) {
        while let Some((number, id)) = self.shared.comparisons.waiting.pop() {
            let content = self.volumes.get(VolumeId::SHARED).map_or(MapEntry::HOLE, |v| v.map.get(&self.volumes.arena, Lba(u64::from(id))));
            if !content.has_payload() {
                self.is_another(number, id);
                continue;
            }
            let segment = self.codec.segment(content.place());
            let (column, row, _) = self.locate_block(segment, self.codec.block(content.place()));
            let within = (self.codec.offset_units(content.place()) % u64::from(FULL_BLOCK_UNITS)) as u32;
            let piece = Piece::of_units(within, content.length_units(), content.checksum());
            let packed = Some(piece).filter(Piece::is_packed);
            let at = self.shared.comparisons.under_way.insert(Comparison { number, id, packed });
            let rows = piece.rows().1 + 1;
            self.start_fetch(FetchSpec { segment, column, row, rows, pieces: vec![piece], goal: FetchGoal::Compare { at }, singly: false }, out);
        }
    }

    /// What was read has come, or can not be had.
    pub(crate) fn compared(&mut self, at: u32, bytes: Option<Payload>) {
        let Some(Comparison { number, id, packed }) = self.shared.comparisons.under_way.remove(at) else { return };
        let bytes = bytes.and_then(|bytes| self.unpacked(bytes, packed));
        let Some(Placing::Data { payload, .. }) = self.admission.queued(number) else { return };
        match bytes.map(|bytes| bytes[..] == payload[..]) {
            Some(true) => {
                self.prove(id);
                self.becomes_reference(number, id);
            }
            Some(false) => self.is_another(number, id),
            None => {
                self.distrust(id);
                self.is_another(number, id);
            }
        }
    }
}

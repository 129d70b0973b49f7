//! Encoding of a record of the journal.

use windrow_format::batch::TableWriter;
use windrow_format::journal::{RecordHeader, compressed_record_bytes, encode_record, record_bytes};
use windrow_io::{Buf, BufPool, Payload};

/// Encodes a record, once for each copy.
#[derive(Debug)]
pub(crate) struct JournalWork {
    pub(crate) header: RecordHeader,
    pub(crate) table: TableWriter,
    pub(crate) payloads: Vec<Payload>,
    pub(crate) granule: u32,
    pub(crate) copies: usize,
    /// True if payloads are compressed where that makes them smaller.
    pub(crate) packs: bool,
    pub(crate) buffers: BufPool,
    /// Result: the same bytes in each.
    pub(crate) records: Vec<Buf>,
}

impl JournalWork {
    pub(crate) fn run(&mut self) {
        let compressed = self.compressed();
        let stored = || {
            self.payloads
                .iter()
                .zip(&compressed)
                .map(|(payload, compressed)| {
                    compressed.as_deref().unwrap_or_else(|| payload.bytes())
                })
        };
        let (entry_bytes, payloads) = (self.table.bytes().len(), self.table.payload_blocks());
        let bytes = compressed_record_bytes(
            entry_bytes,
            payloads,
            stored().map(<[u8]>::len).sum(),
            self.granule,
        );
        let mut first = self.buffers.get(bytes);
        encode_record(
            &self.header,
            &self.table,
            stored(),
            self.granule,
            &mut first,
        );
        for _ in 1..self.copies {
            let mut copy = self.buffers.get(bytes);
            copy.copy_from_slice(&first);
            self.records.push(copy);
        }
        self.records.push(first);
    }

    /// Compressed payloads, where that is smaller.
    fn compressed(&self) -> Vec<Option<Vec<u8>>> {
        let mut compressor = windrow_reduction::Compressor::default();
        self.payloads
            .iter()
            .map(|payload| {
                if self.packs {
                    compressor.pack(payload.bytes()).map(<[u8]>::to_vec)
                } else {
                    None
                }
            })
            .collect()
    }

    /// Upper bound of its bytes.
    pub(crate) fn bytes_at_most(&self) -> u32 {
        record_bytes(
            self.table.bytes().len(),
            self.table.payload_blocks(),
            self.granule,
        ) as u32
    }
}

//! Inspection of the journal.

use super::{DumpError, open_pool};
use crate::journal::{Chunk, Record, areas, read_chunk};
use crate::reader::PoolReader;
use serde::Serialize;
use windrow_format::batch::DecodedEntry;
use windrow_format::journal::RecordHeader;
use windrow_geometry::JournalArea;
use windrow_io::MemberIo;
use windrow_types::{Epoch, MemberId};

/// A copy of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct CopyLocation {
    /// Member.
    pub member: MemberId,
    /// Byte offset on the member.
    pub offset: u64,
}

/// One line of a list of records.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RecordSummary {
    /// True if it is on dedicated journal devices.
    pub external: bool,
    /// Record number, LSNs, address and durable LSN.
    pub header: RecordHeader,
    /// Length of the whole record in bytes, if it verifies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length: Option<u32>,
    /// True if a copy verifies to the last byte: the record counts unless a fence voids it.
    pub whole: bool,
    /// Number of entries.
    pub entry_count: u32,
    /// Number of payload blocks.
    pub payload_blocks: u32,
    /// Number of copies on members that count.
    pub copies: u32,
    /// Members whose copy differs or is unreadable.
    pub wrong: Vec<MemberId>,
}

/// A record with its entries.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RecordDump {
    /// Summary.
    #[serde(flatten)]
    pub summary: RecordSummary,
    /// Entries in order; none if the record does not verify.
    pub entries: Vec<DecodedEntry>,
}

/// A chunk of the journal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ChunkDump {
    /// Its number.
    pub chunk: u32,
    /// Locations of its copies, including members that do not count.
    pub copies: Vec<CopyLocation>,
    /// Reachable records, and at the end the header of an incomplete one.
    pub records: Vec<RecordDump>,
}

impl RecordSummary {
    fn of(record: &Record, external: bool) -> Self {
        let decoded = &record.decoded;
        Self {
            external,
            header: decoded.header.clone(),
            length: Some(decoded.length),
            whole: true,
            entry_count: decoded.entries.len() as u32,
            payload_blocks: decoded
                .entries
                .iter()
                .filter(|e| e.payload.is_some())
                .count() as u32,
            copies: record.copies as u32,
            wrong: record.wrong.iter().map(|wrong| wrong.member).collect(),
        }
    }

    fn torn(header: &RecordHeader, external: bool) -> Self {
        Self {
            external,
            header: header.clone(),
            length: None,
            whole: false,
            entry_count: 0,
            payload_blocks: 0,
            copies: 0,
            wrong: Vec::new(),
        }
    }
}

/// Any epoch: records that a start ignores are shown as well.
fn read(reader: &mut PoolReader<'_>, area: &JournalArea, chunk: u32) -> Chunk {
    read_chunk(reader, area, chunk, &(Epoch(0)..=Epoch(u64::MAX))).unwrap_or_default()
}

/// Records of all chunks, oldest first, including those that no start would count.
pub fn list_records(io: &mut dyn MemberIo) -> Result<Vec<RecordSummary>, DumpError> {
    let (mut reader, superblock) = open_pool(io)?;
    if areas(&superblock).next().is_none() {
        return Err(DumpError::NoJournal);
    }
    let mut list = Vec::new();
    for (area, external) in areas(&superblock) {
        for number in 0..area.chunks {
            let chunk = read(&mut reader, &area, number);
            list.extend(
                chunk
                    .records
                    .iter()
                    .map(|record| RecordSummary::of(record, external)),
            );
            list.extend(
                chunk
                    .torn
                    .iter()
                    .map(|header| RecordSummary::torn(header, external)),
            );
        }
    }
    list.sort_by_key(|record| (record.header.epoch, record.header.seq));
    Ok(list)
}

/// Decodes a chunk of the internal or the external journal, record by record.
pub fn dump_chunk(
    io: &mut dyn MemberIo,
    external: bool,
    chunk: u32,
) -> Result<ChunkDump, DumpError> {
    let (mut reader, superblock) = open_pool(io)?;
    let area = areas(&superblock)
        .find(|(_, of_devices)| *of_devices == external)
        .ok_or(DumpError::NoJournal)?
        .0;
    if chunk >= area.chunks {
        return Err(DumpError::NoChunk { chunk });
    }
    let found = read(&mut reader, &area, chunk);
    let whole = found.records.iter().map(|record| RecordDump {
        summary: RecordSummary::of(record, external),
        entries: record.decoded.entries.clone(),
    });
    let torn = found.torn.iter().map(|header| RecordDump {
        summary: RecordSummary::torn(header, external),
        entries: Vec::new(),
    });
    let copies = area
        .copies_of(chunk)
        .map(|(member, offset)| CopyLocation { member, offset })
        .collect();
    Ok(ChunkDump {
        chunk,
        copies,
        records: whole.chain(torn).collect(),
    })
}

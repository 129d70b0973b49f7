//! References to addresses, from map blocks and checkpoint pages, and a check that each entry is
//! possible.

use super::*;
use windrow_format::checkpoint::OBJECT_LEAF;
use windrow_format::map_entry::{BlockState, MapEntry};

/// Owner of a reference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    Block {
        volume: VolumeId,
        lba: Lba,
    },
    /// A checkpoint page, and the rows of the batch that its pointer names.
    Page {
        object: u32,
        index: Option<u32>,
        rows: (u32, u32),
    },
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Block {
                volume: VolumeId::INDEX,
                lba,
            } => write!(f, "page {lba} of the deduplication index"),
            Self::Block { volume, lba } => write!(f, "block {lba} of volume {volume}"),
            Self::Page {
                object,
                index: Some(index),
                ..
            } => write!(f, "checkpoint page {index} of object {object}"),
            Self::Page {
                object: OBJECT_LEAF,
                ..
            } => write!(f, "a checkpoint leaf"),
            Self::Page { .. } => write!(f, "a checkpoint list page"),
        }
    }
}

impl Owner {
    pub(super) fn mark(self, finding: Finding) -> Finding {
        match self {
            Self::Block { volume, lba } => finding.block(volume, lba),
            Self::Page { .. } => finding,
        }
    }

    /// True if the entry of the batch at `rows` describes this owner.
    pub(super) fn is(self, entry: &Entry, at: (u32, u32)) -> bool {
        match (self, entry) {
            (
                Self::Block { volume, lba },
                Entry::Data {
                    volume: v, lba: l, ..
                }
                | Entry::Move {
                    volume: v, lba: l, ..
                },
            ) => (volume, lba) == (*v, *l),
            (
                Self::Page {
                    object,
                    index,
                    rows,
                },
                Entry::Page {
                    object: o,
                    index: i,
                },
            ) => object == *o && index.is_none_or(|index| index == *i) && rows == at,
            _ => false,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Reference {
    pub(super) address: Address,
    pub(super) units: u16,
    pub(super) checksum: u32,
    pub(super) owner: Owner,
}

/// Limit of references held at once: 640 MiB. If there are more, the maps are walked once for each
/// part of the segments.
pub(super) const REFERENCES_AT_ONCE: u64 = 1 << 24;

/// Approximate limit of parts (a segment is not divided). With more references the limit rises to
/// 2.5 bytes per reference, in addition to 16 of its map.
pub(super) const MOST_PARTS: u64 = 16;

/// Number of references from maps and checkpoint to each segment that has any. Reports impossible
/// ones.
pub(super) fn count_references(
    reader: &PoolReader<'_>,
    tables: &Tables,
    pages: &[PageRef],
    report: &mut CheckReport,
) -> BTreeMap<SegmentId, u64> {
    let mut counts: BTreeMap<SegmentId, u64> = BTreeMap::new();
    let mut mapped: BTreeMap<VolumeId, u64> = BTreeMap::new();
    let mut given_up = GivenUp::default();
    for (volume, lba, entry) in tables.entries() {
        match check_entry(reader, tables, volume, &entry) {
            Ok(Refers::Nothing) => {}
            Ok(Refers::Content) => *mapped.entry(volume).or_default() += 1,
            Ok(Refers::Lost) => given_up.add((volume, lba), false, report),
            Ok(Refers::LostContent) => {
                *mapped.entry(volume).or_default() += 1;
                given_up.add((volume, lba), true, report);
            }
            Ok(Refers::Payload) => {
                *mapped.entry(volume).or_default() += 1;
                *counts
                    .entry(reader.codec.segment(entry.address()))
                    .or_default() += 1;
            }
            Err(message) => report.findings.add(
                Finding::new(Severity::Error, FindingKind::MapEntryWrong, message)
                    .block(volume, lba),
            ),
        }
    }
    given_up.end_run(report);
    for page in pages {
        *counts
            .entry(reader.codec.segment(page.pointer.address))
            .or_default() += 1;
    }
    let volume = |v: &windrow_format::checkpoint::VolumeRecord| VolumeReport {
        id: v.id,
        name: v.name.clone(),
        size_bytes: v.size_bytes,
        read_only: v.read_only,
        deleting: v.state == VolumeState::Deleting,
        mapped_blocks: mapped.get(&v.id).copied().unwrap_or(0) + tables.journalled_blocks(v.id),
        journal_blocks: tables.journalled_blocks(v.id),
    };
    report.volumes = tables.volumes.values().map(volume).collect();
    counts
}

/// Runs of segments with at most `at_once` references together (or one segment), and that number.
pub(super) fn parts_of(
    counts: &BTreeMap<SegmentId, u64>,
    at_once: u64,
) -> Vec<(std::ops::RangeInclusive<SegmentId>, u64)> {
    let mut parts: Vec<(std::ops::RangeInclusive<SegmentId>, u64)> = Vec::new();
    for (segment, count) in counts {
        match parts.last_mut() {
            Some((run, known)) if *known + count <= at_once => {
                (*run, *known) = (*run.start()..=*segment, *known + count)
            }
            _ => parts.push((*segment..=*segment, *count)),
        }
    }
    parts
}

/// References to these segments, in order of addresses. Impossible ones are omitted, doubled ones
/// reported and omitted.
pub(super) fn collect_references(
    reader: &PoolReader<'_>,
    tables: &Tables,
    pages: &[PageRef],
    (segments, count): &(std::ops::RangeInclusive<SegmentId>, u64),
    findings: &mut Findings,
) -> Vec<Reference> {
    // (One segment may be named by more references than fit into it.)
    let mut references = Vec::with_capacity((*count).min(1 << 30) as usize);
    let is_asked = |address: Address| segments.contains(&reader.codec.segment(address));
    for (volume, lba, entry) in tables
        .entries()
        .filter(|(.., entry)| entry.has_payload() && is_asked(entry.address()))
    {
        if check_entry(reader, tables, volume, &entry) == Ok(Refers::Payload) {
            let owner = Owner::Block { volume, lba };
            references.push(Reference {
                address: entry.address(),
                units: entry.length_units(),
                checksum: entry.checksum(),
                owner,
            });
        }
    }
    for page in pages.iter().filter(|page| is_asked(page.pointer.address)) {
        let rows = (
            u32::from(page.pointer.batch_row),
            u32::from(page.pointer.batch_rows),
        );
        let owner = Owner::Page {
            object: page.object,
            index: page.index,
            rows,
        };
        references.push(Reference {
            address: page.pointer.address,
            units: FULL_BLOCK_UNITS,
            checksum: page.pointer.checksum,
            owner,
        });
    }
    references.sort_unstable_by_key(|r| r.address);
    references.dedup_by(|later, first| {
        let same = later.address.0 < first.address.0 + u64::from(first.units);
        if same {
            let message = format!("{} and {} have the same address", first.owner, later.owner);
            findings.add(later.owner.mark(Finding::new(
                Severity::Error,
                FindingKind::PlaceShared,
                message,
            )));
        }
        same
    });
    references
}

/// Target of a map entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refers {
    Nothing,
    Payload,
    /// A block of the shared volume.
    Content,
    /// A block of the shared volume that was declared lost.
    LostContent,
    /// A user block that was declared lost.
    Lost,
}

/// User blocks that a salvage declared lost: reads of them are I/O errors. They arrive in map order
/// and are reported in runs, as they are often many.
#[derive(Default)]
struct GivenUp {
    run: Option<Run>,
}

struct Run {
    volume: VolumeId,
    first: Lba,
    blocks: u64,
    /// True if they refer to shared content that was declared lost.
    by_content: bool,
}

impl GivenUp {
    fn add(&mut self, (volume, lba): (VolumeId, Lba), by_content: bool, report: &mut CheckReport) {
        report.lost_blocks += 1;
        match &mut self.run {
            Some(run)
                if (run.volume, run.first.0 + run.blocks, run.by_content)
                    == (volume, lba.0, by_content) =>
            {
                run.blocks += 1
            }
            _ => {
                self.end_run(report);
                self.run = Some(Run {
                    volume,
                    first: lba,
                    blocks: 1,
                    by_content,
                });
            }
        }
    }

    fn end_run(&mut self, report: &mut CheckReport) {
        let Some(Run {
            volume,
            first,
            blocks,
            by_content,
        }) = self.run.take()
        else {
            return;
        };
        let which = match blocks {
            1 => format!("block {first}"),
            _ => format!("{blocks} blocks, {first} to {},", first.0 + blocks - 1),
        };
        let what = if by_content {
            "shared content declared lost by an earlier salvage"
        } else {
            "declared lost by an earlier salvage"
        };
        let message = format!(
            "{which} of volume {volume}: {what}; reads are I/O errors until they are written (from a backup) or trimmed"
        );
        report.findings.add(
            Finding::new(Severity::Error, FindingKind::BlockLost, message).block(volume, first),
        );
    }
}

/// Target of an entry, if it is present.
fn check_entry(
    reader: &PoolReader<'_>,
    tables: &Tables,
    volume: VolumeId,
    entry: &MapEntry,
) -> Result<Refers, String> {
    let state = entry.state().ok_or("the entry has an unknown state")?;
    match state {
        BlockState::Hole | BlockState::Zero | BlockState::Ones | BlockState::Lost => {
            let empty =
                entry.address() == Address(0) && entry.length_units() == 0 && entry.word1 == 0;
            // (In a hidden volume it is not a loss by itself: the blocks that refer to it are
            // reported.)
            let is_loss =
                state == BlockState::Lost && ![VolumeId::SHARED, VolumeId::INDEX].contains(&volume);
            let refers = if is_loss {
                Refers::Lost
            } else {
                Refers::Nothing
            };
            empty.then_some(refers).ok_or_else(|| {
                format!("a block of state {state:?} has an address, a length or a checksum")
            })
        }
        BlockState::Plain if entry.length_units() != FULL_BLOCK_UNITS => {
            Err(format!("a plain block of {} units", entry.length_units()))
        }
        BlockState::Lz4 if !(1..FULL_BLOCK_UNITS).contains(&entry.length_units()) => Err(format!(
            "a compressed block of {} units",
            entry.length_units()
        )),
        BlockState::Plain | BlockState::Lz4
            if entry.word1 >> 32 != 0 && volume != VolumeId::SHARED =>
        {
            Err("reserved bits are set".to_owned())
        }
        BlockState::Plain
            if !reader
                .codec
                .offset_units(entry.address())
                .is_multiple_of(u64::from(FULL_BLOCK_UNITS)) =>
        {
            Err(format!(
                "address {:#x} is not that of a block",
                entry.address().0
            ))
        }
        BlockState::Plain | BlockState::Lz4
            if !exists(reader, entry.address(), entry.length_units()) =>
        {
            Err(format!("address {:#x} does not exist", entry.address().0))
        }
        BlockState::Plain | BlockState::Lz4 => Ok(Refers::Payload),
        BlockState::Shared => {
            let id = entry.shared_id().unwrap_or_default();
            let content = tables.get(VolumeId::SHARED, id);
            match content.state() {
                _ if volume == VolumeId::SHARED
                    || entry.length_units() != 0
                    || entry.checksum() != 0 =>
                {
                    Err("a reference where none is possible".to_owned())
                }
                Some(BlockState::Plain | BlockState::Lz4)
                    if content.incarnation() == entry.incarnation() =>
                {
                    Ok(Refers::Content)
                }
                Some(BlockState::Plain | BlockState::Lz4) => Err(format!(
                    "it refers to incarnation {} of content {id}, which has incarnation {}",
                    entry.incarnation(),
                    content.incarnation()
                )),
                Some(BlockState::Lost) => Ok(Refers::LostContent),
                _ => Err(format!("it refers to content {id}, which does not exist")),
            }
        }
        BlockState::Zstd | BlockState::Unit => {
            Err(format!("state {state:?} is not used by this version"))
        }
    }
}

//! Replay: the recovery point, and the effect of the batches after the checkpoint on the tables.
//!
//! 1. `chain.rs` collects the valid batches.
//! 2. The recovery point is the highest LSN without a gap before it: every LSN up to it is in the
//!    checkpoint, in such a batch, or void.
//! 3. Durable operations that are missing are damage: recovery stops with the list.
//! 4. User entries with LSNs up to the recovery point take effect in ascending order, whatever
//!    their stream. Then the moves do, in the order of their stream. A move applies only if the map
//!    still has its old address and no replayed entry of its block is newer than its birth.
//!
//! Batches are applied one at a time, and their entries are not kept. Only the blocks of moves are
//! held, at most [`REPLAY_MOVES_AT_ONCE`] of them: more moves take further passes over the user
//! entries.

use super::chain::{Chains, Taken, closed_positions, collect, lsns_of, refuse_damage};
use super::fence::{batches_through, records_through};
use super::reader::Reader;
use super::tables::{apply_entry, settle_segments};
use super::{OpenError, SEQ_LEAP, Tables, journal};
use crate::api::OpenReport;
use crate::base::limits::{REPLAY_MOVES_AT_ONCE, STREAM_CHECKPOINT, USER_STREAMS};
use crate::base::piece::address_in;
use crate::store::pending::BlockKey;
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use windrow_format::batch::{DecodedBatch, DecodedEntry, Entry, PayloadInfo};
use windrow_format::map_entry::MapEntry;
use windrow_format::superblock::{CheckpointRoot, StreamPosition, Superblock};
use windrow_types::{AddressCodec, BLOCK_BYTES, BatchSeq, Lsn, MAX_STREAMS, SegmentId, VolumeId};

/// Positions at which a pool continues.
pub(super) struct Restart {
    /// Recovery point.
    pub(super) accepted: Lsn,
    /// Last LSN that the log has; LSNs above it are in the journal only.
    pub(super) covered: Lsn,
    pub(super) next_lsn: Lsn,
    pub(super) last_seq: [BatchSeq; MAX_STREAMS],
    pub(super) positions: [StreamPosition; MAX_STREAMS],
}

/// Result of replay.
pub(super) struct Outcome {
    pub(super) restart: Restart,
    /// The chains; their incomplete batches are to be completed.
    pub(super) chains: Chains,
    /// The journal.
    pub(super) journal: journal::Found,
    /// Operations that only the journal has.
    pub(super) readmitted: Vec<journal::Readmitted>,
    /// True if the chain of the checkpoint stream ends in damage.
    pub(super) checkpoint_broken: bool,
}

/// Replays everything after `root` into the tables.
pub(super) fn replay(
    reader: &mut Reader<'_>,
    superblock: &Superblock,
    root: &CheckpointRoot,
    tables: &mut Tables,
    discard_journal: bool,
    report: &mut OpenReport,
) -> Result<Outcome, OpenError> {
    let mut chains = collect(reader, superblock, root)?;
    let log = found_lsns(superblock, root, &chains, &[], Lsn(u64::MAX));
    let covered = log.accepted;
    chains.durable.claim(
        superblock,
        superblock.epoch,
        &[BatchSeq(0); MAX_STREAMS],
        superblock.journals.durable_lsn,
    );
    let (mut journal, mut lsns) = read_journal(reader, superblock, root, &log, &mut chains)?;
    if lsns.passed < chains.durable.through && reader.retired != 0 && !reader.reads_retired {
        // Something durable is missing: devices that have left may have it.
        reader.reads_retired = true;
        (journal, lsns) = read_journal(reader, superblock, root, &log, &mut chains)?;
    }
    if reader.reads_retired {
        let which: Vec<String> = (0..64)
            .filter(|m| reader.retired >> m & 1 == 1)
            .map(|m| m.to_string())
            .collect();
        report.notes.push(format!(
            "journal devices out of service were read ({}): the log lacked their durable writes",
            which.join(", ")
        ));
    }
    refuse_newer_epoch(superblock, &journal)?;
    let FoundLsns {
        accepted,
        passed,
        next_lsn,
    } = lsns;
    // Discarding a lost journal gives up its durable records. Durable records in the log stay
    // required.
    let passed = if discard_journal && chains.durable.through > passed {
        report.notes.push(format!(
            "the journal is discarded: operations {} to {} were durable and are lost",
            passed.next(),
            chains.durable.through
        ));
        chains.durable.through
    } else {
        passed
    };
    refuse_damage(reader, &chains, passed, &mut report.notes)?;
    apply(reader, superblock, root.lsn, covered, &chains, tables)?;
    // Every volume is in the tables with its size: blocks without one were deleted or cut off.
    let readmitted = journal
        .apply(
            superblock,
            (covered, accepted),
            reader.buffers,
            tables,
            &mut |_, _| {},
        )?
        .list;
    let mut positions = closed_positions();
    let mut last_seq = [BatchSeq(0); MAX_STREAMS];
    report.void_lsns = void_lsns(superblock, &chains, covered);
    // Only the checkpoint stream gets here with damage. The segments after it are in use, so that
    // stream continues elsewhere.
    let checkpoint_broken = chains
        .damage(chains.of(STREAM_CHECKPOINT), passed)
        .is_some();
    chains.drop_idle(superblock, root, covered, checkpoint_broken);
    for chain in chains.iter() {
        let broken = checkpoint_broken && chain.stream == STREAM_CHECKPOINT;
        settle_segments(root.id, chain, broken, tables);
        if broken {
            last_seq[chain.stream] = BatchSeq(chains.durable.seqs[chain.stream].0 + SEQ_LEAP);
            positions[chain.stream].seq = last_seq[chain.stream].next();
        } else {
            // A reserved successor that no batch names yet is free again.
            positions[chain.stream] = StreamPosition {
                next_segment: SegmentId::NONE,
                ..chain.next
            };
            last_seq[chain.stream] = chain.last_seq();
        }
        for batch in &chain.batches {
            report.batches += 1;
            report.batch_bytes += u64::from(batch.rows)
                * u64::from(tables.zones.shape(batch.segment).width)
                * BLOCK_BYTES;
            report.entries += u64::from(batch.entries);
        }
    }
    (report.recovery_lsn, report.log_lsn) = (accepted, covered);
    Ok(Outcome {
        restart: Restart {
            accepted,
            covered,
            next_lsn,
            last_seq,
            positions,
        },
        chains,
        journal,
        readmitted,
        checkpoint_broken,
    })
}

/// Refuses a journal with a record of an unknown epoch. An epoch is durable in the superblocks of
/// all members in use before its first record is written, so those superblocks are lost. A start
/// without them would silently roll the pool back, and the new epoch would reuse the number and the
/// LSNs of the lost one.
fn refuse_newer_epoch(superblock: &Superblock, journal: &journal::Found) -> Result<(), OpenError> {
    let (known, found) = (superblock.epoch, journal.highest_epoch);
    if found <= known {
        return Ok(());
    }
    let text = format!(
        "the journal has a record of epoch {found}, but no superblock is newer than epoch {known}"
    );
    Err(OpenError::Damage(format!(
        "{text}: the newest superblocks are lost, and later writes are unknown"
    )))
}

/// Reads the journal and adds the durability claims of its records.
fn read_journal(
    reader: &mut Reader<'_>,
    superblock: &Superblock,
    root: &CheckpointRoot,
    log: &FoundLsns,
    chains: &mut Chains,
) -> Result<(journal::Found, FoundLsns), OpenError> {
    let journal = journal::collect(reader, superblock, log.accepted, root.epoch)?;
    for (epoch, durable) in journal.claims() {
        chains
            .durable
            .claim(superblock, epoch, &[BatchSeq(0); MAX_STREAMS], durable);
    }
    // After the gapless part of the log only the journal counts: it lists every durable operation
    // there, and replay takes one or the other.
    let within = if journal.records.is_empty() {
        Lsn(u64::MAX)
    } else {
        log.passed
    };
    let lsns = found_lsns(superblock, root, chains, &journal.records, within);
    Ok((journal, lsns))
}

/// LSNs found in batches and records.
struct FoundLsns {
    /// Recovery point: the last LSN in effect.
    accepted: Lsn,
    /// Recovery point and the LSNs that a fence skipped right after it: unused LSNs are not
    /// missing.
    passed: Lsn,
    /// First LSN of the new epoch.
    next_lsn: Lsn,
}

/// Collects LSNs; those of a batch count if they begin at or below `within`.
fn found_lsns(
    superblock: &Superblock,
    root: &CheckpointRoot,
    chains: &Chains,
    records: &[journal::Record],
    within: Lsn,
) -> FoundLsns {
    // First, last, and whether there is an operation in it.
    let mut ranges: Vec<(u64, u64, bool)> = Vec::new();
    let mut seen = root.lsn.0;
    for fence in &superblock.fences {
        ranges.push((fence.recovery_lsn.0 + 1, fence.next_lsn.0 - 1, false));
        seen = seen.max(fence.next_lsn.0 - 1);
    }
    for batch in chains.users() {
        let through = batches_through(superblock, batch.epoch).min(within).0;
        for (first, last) in &batch.lsns {
            seen = seen.max(*last);
            if *first <= through {
                ranges.push((*first, (*last).min(through), true));
            }
        }
    }
    for record in records {
        let (h, through) = (
            &record.decoded.header,
            records_through(superblock, record.epoch()).0,
        );
        seen = seen.max(h.last.0);
        if h.first.0 <= through {
            ranges.push((h.first.0, h.last.0.min(through), true));
        }
    }
    ranges.sort_unstable();
    // LSNs that a fence skipped are passed over. They are no end, as none of them is in effect.
    let (mut passed, mut accepted) = (root.lsn.0, root.lsn.0);
    for (first, last, content) in ranges {
        if first > passed + 1 {
            break;
        }
        passed = passed.max(last);
        accepted = if content {
            accepted.max(last)
        } else {
            accepted
        };
    }
    FoundLsns {
        accepted: Lsn(accepted),
        passed: Lsn(passed),
        next_lsn: Lsn(seen.max(passed) + 1),
    }
}

/// Number of LSNs in batches that are void there.
fn void_lsns(superblock: &Superblock, chains: &Chains, covered: Lsn) -> u64 {
    let of_batch = |batch: &Taken| -> u64 {
        let through = batches_through(superblock, batch.epoch).min(covered).0;
        batch
            .lsns
            .iter()
            .map(|(first, last)| (last + 1).saturating_sub((*first).max(through + 1)))
            .sum()
    };
    chains.users().map(of_batch).sum()
}

/// Newest replayed LSN of the blocks that moves touch.
type Newest = HashMap<u64, Lsn, FxBuildHasher>;

fn apply(
    reader: &mut Reader<'_>,
    superblock: &Superblock,
    root_lsn: Lsn,
    accepted: Lsn,
    chains: &Chains,
    tables: &mut Tables,
) -> Result<(), OpenError> {
    let moves = chains.moves();
    let mut groups = move_groups(&moves, REPLAY_MOVES_AT_ONCE);
    if groups.is_empty() {
        groups.push(&[]);
    }
    for (pass, group) in groups.into_iter().enumerate() {
        let mut newest = Newest::default();
        for taken in group {
            for decoded in &taken.batch(reader)?.entries {
                if let Entry::Move { volume, lba, .. } = decoded.entry {
                    newest.insert(BlockKey::new(volume, lba).0, Lsn(0));
                }
            }
        }
        for_user_entries(reader, chains, &mut |taken, batch, decoded, lsn| {
            if lsn > batches_through(superblock, taken.epoch).min(accepted) || lsn <= root_lsn {
                return Ok(());
            }
            if let Entry::Data { volume, lba, .. } = decoded.entry
                && let Some(known) = newest.get_mut(&BlockKey::new(volume, lba).0)
            {
                *known = lsn;
            }
            if pass == 0 {
                apply_entry(&decoded.entry, shown(&tables.codec, batch, decoded), tables)?;
            }
            Ok(())
        })?;
        for taken in group {
            apply_moves(&taken.batch(reader)?, &newest, tables);
        }
    }
    tables.volumes.count_used();
    Ok(())
}

/// Batches of one epoch in a user stream, from the replay position on. LSNs ascend within an epoch.
/// They need not ascend into the next one: a start may readmit LSNs that void batches of the stream
/// have as well.
struct Head<'c> {
    left: std::slice::Iter<'c, Taken>,
    batch: Option<(&'c Taken, DecodedBatch)>,
    at: usize,
}

impl Head<'_> {
    /// First LSN of the next entry; reads the next batch if necessary.
    fn order(&mut self, reader: &mut Reader<'_>) -> Result<Option<Lsn>, OpenError> {
        loop {
            let Some((_, batch)) = &self.batch else {
                let Some(taken) = self.left.next() else {
                    return Ok(None);
                };
                self.batch = Some((taken, taken.batch(reader)?));
                self.at = 0;
                continue;
            };
            match batch.entries.get(self.at) {
                None => self.batch = None,
                Some(decoded) => match lsns_of(&decoded.entry) {
                    Some((lsn, _)) => return Ok(Some(lsn)),
                    None => self.at += 1,
                },
            }
        }
    }
}

/// Callback with an entry: its batch as found and as decoded, the entry, its LSN.
type EachEntry<'f> =
    &'f mut dyn FnMut(&Taken, &DecodedBatch, &DecodedEntry, Lsn) -> Result<(), OpenError>;

/// Visits the entries of all user streams in ascending order, with one batch of each stream and
/// epoch in memory. Of equal LSNs those of the older epoch come first.
fn for_user_entries(
    reader: &mut Reader<'_>,
    chains: &Chains,
    each: EachEntry<'_>,
) -> Result<(), OpenError> {
    let mut runs: Vec<&[Taken]> = USER_STREAMS
        .iter()
        .flat_map(|id| chains.of(*id).batches.chunk_by(|a, b| a.epoch == b.epoch))
        .collect();
    runs.sort_by_key(|run| run[0].epoch);
    let mut heads: Vec<Head<'_>> = runs
        .into_iter()
        .map(|run| Head {
            left: run.iter(),
            batch: None,
            at: 0,
        })
        .collect();
    loop {
        let mut least: Option<(Lsn, usize)> = None;
        for (at, head) in heads.iter_mut().enumerate() {
            if let Some(lsn) = head.order(reader)?
                && least.is_none_or(|(lowest, _)| lsn < lowest)
            {
                least = Some((lsn, at));
            }
        }
        let Some((lsn, at)) = least else {
            return Ok(());
        };
        let head = &mut heads[at];
        if let Some((taken, batch)) = &head.batch {
            each(taken, batch, &batch.entries[head.at], lsn)?;
        }
        head.at += 1;
    }
}

/// Batches in runs of at most `at_once` moves, but of at least one batch.
fn move_groups<'t>(batches: &'t [&'t Taken], at_once: u64) -> Vec<&'t [&'t Taken]> {
    let mut groups = Vec::new();
    let (mut first, mut moves) = (0, 0);
    for (at, batch) in batches.iter().enumerate() {
        if at > first && moves + u64::from(batch.moves) > at_once {
            groups.push(&batches[first..at]);
            (first, moves) = (at, 0);
        }
        moves += u64::from(batch.moves);
    }
    if first < batches.len() {
        groups.push(&batches[first..]);
    }
    groups
}

/// Map entry of an entry with payload, or of a reference; a hole for one without.
pub(super) fn shown(
    codec: &AddressCodec,
    batch: &DecodedBatch,
    decoded: &DecodedEntry,
) -> MapEntry {
    let h = &batch.frame.header;
    let stored = |p: &PayloadInfo| {
        MapEntry::stored(
            address_in(codec, h.segment, h.row, h.shape.data, p),
            p.units,
            p.checksum,
        )
    };
    match (&decoded.entry, &decoded.payload) {
        (
            Entry::Reference {
                id, incarnation, ..
            },
            _,
        ) => MapEntry::shared(*id, *incarnation),
        (_, None) => MapEntry::HOLE,
        (
            Entry::Data {
                volume: VolumeId::SHARED,
                birth,
                ..
            }
            | Entry::Move {
                volume: VolumeId::SHARED,
                birth,
                ..
            },
            Some(payload),
        ) => stored(payload).with_incarnation(birth.0 as u32),
        (_, Some(payload)) => stored(payload),
    }
}

fn apply_moves(batch: &DecodedBatch, newest: &Newest, tables: &mut Tables) {
    for decoded in &batch.entries {
        let Entry::Move {
            volume,
            lba,
            birth,
            from,
        } = &decoded.entry
        else {
            continue;
        };
        if newest
            .get(&BlockKey::new(*volume, *lba).0)
            .is_some_and(|lsn| lsn > birth)
        {
            continue;
        }
        let entry = shown(&tables.codec, batch, decoded);
        let Some((v, arena)) = tables.volumes.get_mut(*volume) else {
            continue;
        };
        let now = v.map.get(arena, *lba);
        if entry.has_payload() && now.has_payload() && now.address() == *from {
            // Repairs do not know births.
            v.map
                .replace(arena, *lba, entry.with_incarnation(now.incarnation()));
        }
    }
}

#[cfg(test)]
mod tests;

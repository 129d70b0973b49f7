//! Fences: each records, with the epoch that a start begins, everything that the start accepted of
//! earlier epochs. Everything beyond it is void for ever.

use super::replay;
use windrow_format::superblock::{
    CheckpointRoot, Features, Fence, MAX_FENCES, PoolState, Superblock,
};
use windrow_types::{Epoch, Lsn, Uuid};

/// The earliest fence after a batch of this epoch.
pub(super) fn fence_of(superblock: &Superblock, epoch: Epoch) -> Option<&Fence> {
    superblock
        .fences
        .iter()
        .filter(|f| f.epoch > epoch)
        .min_by_key(|f| f.epoch)
}

/// Last valid LSN in batches of this epoch. Accepted LSNs above it were in the journal only: they
/// are in batches of later epochs, or still in the journal.
pub(super) fn batches_through(superblock: &Superblock, epoch: Epoch) -> Lsn {
    fence_of(superblock, epoch).map_or(Lsn(u64::MAX), |f| f.covered_lsn)
}

/// Last valid LSN in journal records of this epoch.
pub(super) fn records_through(superblock: &Superblock, epoch: Epoch) -> Lsn {
    superblock
        .fences
        .iter()
        .filter(|f| f.epoch > epoch)
        .map(|f| f.recovery_lsn)
        .min()
        .unwrap_or(Lsn(u64::MAX))
}

/// Turns the superblock into that of the new epoch.
pub(super) fn raise_fence(
    superblock: &mut Superblock,
    restart: &replay::Restart,
    host: Uuid,
    root: &CheckpointRoot,
) {
    superblock.generation = superblock.generation.next();
    superblock.epoch = superblock.epoch.next();
    superblock.host = host;
    superblock.state = PoolState::Active;
    // This version does not maintain what flags unknown to it describe.
    superblock.features.compatible &= Features::KNOWN.compatible;
    superblock.checkpoints = [Some(*root), None];
    superblock.journals.durable_lsn = if superblock.journals.areas().next().is_some() {
        restart.accepted
    } else {
        Lsn(0)
    };
    superblock.fences.retain(|f| f.epoch > root.epoch);
    if superblock.fences.len() == MAX_FENCES {
        // Happens only after that many crashes without a checkpoint between them.
        superblock.fences.remove(fence_to_drop(&superblock.fences));
    }
    superblock.fences.push(Fence {
        epoch: superblock.epoch,
        recovery_lsn: restart.accepted,
        covered_lsn: restart.covered,
        next_lsn: restart.next_lsn,
        last_seq: restart.last_seq,
    });
}

/// Index of the fence that is needed least.
///
/// 1. A fence after which nothing was written before the next one adds nothing to that one.
/// 2. Else a fence that skipped no LSNs. Batches that it voids and a later fence accepts were
///    overwritten or voided by later recoveries (`chain.rs` detects a lost overwrite). Entries that
///    it left to the journal have the same content in old batches.
/// 3. Else the oldest. The LSNs that it skipped are covered by nothing else. The next start finds
///    the gap and refuses the pool, rather than losing everything after it.
fn fence_to_drop(fences: &[Fence]) -> usize {
    let skipped_none = |f: &Fence| f.next_lsn == f.recovery_lsn.next();
    let idle = fences.windows(2).position(|pair| {
        Fence {
            epoch: pair[1].epoch,
            ..pair[0]
        } == pair[1]
    });
    idle.or_else(|| fences.iter().position(skipped_none))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use windrow_types::{BatchSeq, MAX_STREAMS};

    /// A daemon that is killed repeatedly before it writes anything fills the list with equal
    /// fences. They must not displace the fence of a refused batch.
    #[test]
    fn a_fence_that_adds_nothing_is_dropped_first() {
        let fence = |epoch, accepted, next, last| Fence {
            epoch: Epoch(epoch),
            recovery_lsn: Lsn(accepted),
            covered_lsn: Lsn(accepted),
            next_lsn: Lsn(next),
            last_seq: [BatchSeq(last); MAX_STREAMS],
        };
        assert_eq!(
            fence_to_drop(&[
                fence(2, 5, 6, 3),
                fence(3, 7, 8, 4),
                fence(4, 7, 8, 4),
                fence(5, 9, 10, 5)
            ]),
            1,
            "the next one covers all of it"
        );
        assert_eq!(
            fence_to_drop(&[fence(2, 5, 9, 3), fence(3, 9, 10, 4), fence(4, 10, 11, 5)]),
            1,
            "the first one skipped LSNs"
        );
        assert_eq!(
            fence_to_drop(&[fence(2, 5, 9, 3), fence(3, 5, 9, 3), fence(4, 9, 10, 4)]),
            0,
            "so did the second one, the same"
        );
        assert_eq!(
            fence_to_drop(&[fence(2, 5, 9, 3), fence(3, 10, 15, 4)]),
            0,
            "both did"
        );
    }
}

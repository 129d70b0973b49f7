//! Fences: what a start accepted of all epochs before, on record with the epoch that it begins.
//! What lies beyond is void for ever.

use super::replay;
use windrow_format::superblock::{
    CheckpointRoot, Features, Fence, MAX_FENCES, PoolState, Superblock,
};
use windrow_types::{Epoch, Lsn, Uuid};

/// The earliest fence that a batch of this epoch lies behind.
pub(super) fn fence_of(superblock: &Superblock, epoch: Epoch) -> Option<&Fence> {
    superblock
        .fences
        .iter()
        .filter(|f| f.epoch > epoch)
        .min_by_key(|f| f.epoch)
}

/// The last order that a batch of this epoch may bring. What is behind it, and was accepted, only
/// the journal had: it is in batches of later epochs, or still in the journal.
pub(super) fn batches_through(superblock: &Superblock, epoch: Epoch) -> Lsn {
    fence_of(superblock, epoch).map_or(Lsn(u64::MAX), |f| f.covered_lsn)
}

/// The last order that a journal record of this epoch may bring.
pub(super) fn records_through(superblock: &Superblock, epoch: Epoch) -> Lsn {
    superblock
        .fences
        .iter()
        .filter(|f| f.epoch > epoch)
        .map(|f| f.recovery_lsn)
        .min()
        .unwrap_or(Lsn(u64::MAX))
}

/// The superblock of the new epoch.
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
    // This version does not keep up what belongs to flags that it does not know.
    superblock.features.compatible &= Features::KNOWN.compatible;
    superblock.checkpoints = [Some(*root), None];
    superblock.journals.durable_lsn = if superblock.journals.areas().next().is_some() {
        restart.accepted
    } else {
        Lsn(0)
    };
    superblock.fences.retain(|f| f.epoch > root.epoch);
    if superblock.fences.len() == MAX_FENCES {
        // Only after so many crashes without one checkpoint between them.
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

/// The fence that is missed least. One behind which nothing was written before the next one says
/// nothing that that one does not say. Else: what a fence voids that a later one accepts was
/// overwritten or voided by the recoveries since (where that write was lost, `chain.rs` finds out);
/// what it left to the journal has the same content in old batches. But the orders that it skipped
/// are covered by nothing else: one that skipped none goes first. (If all did, the next start finds
/// the gap and refuses the pool, rather than losing what is behind it.)
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

    /// A daemon that is killed again and again before it has written anything filled the list with
    /// fences that say the same, and the one that told of a refused batch went for them.
    #[test]
    fn a_fence_that_says_nothing_new_is_dropped_first() {
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
            "what it says the next one says"
        );
        assert_eq!(
            fence_to_drop(&[fence(2, 5, 9, 3), fence(3, 9, 10, 4), fence(4, 10, 11, 5)]),
            1,
            "the first one skipped orders"
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

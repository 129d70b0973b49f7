//! Batches of moves of all streams, in the order in which they were written.
//!
//! A block may have been moved several times by different streams, and the batches in between may
//! be gone. Its copies have one birth, and the last copy counts. An older one is in a freed
//! segment, parts of which may have been overwritten since by unreadable data (simulator, seed
//! 10128799). So of the next batches of all streams a batch goes first that is newer than no other
//! one ([`Incarnation::is_newer_than`]). Where the age is unknown either may go first.

use super::super::OpenError;
use super::super::chain::Taken;
use super::super::incarnation::Incarnation;
use super::super::reader::Reader;
use windrow_format::batch::DecodedBatch;

/// Next batch of a stream, and those after it.
struct Stream<'s> {
    incarnation: Incarnation,
    batch: DecodedBatch,
    taken: &'s Taken,
    rest: &'s [Taken],
}

/// Iterator over the batches; see the module.
pub(super) struct Moves<'s> {
    streams: Vec<Stream<'s>>,
}

impl<'s> Moves<'s> {
    /// Takes the batches of each stream, in order of their numbers. Of streams without a known
    /// order the first one goes first.
    pub(super) fn new(
        reader: &mut Reader<'_>,
        streams: impl Iterator<Item = &'s [Taken]>,
    ) -> Result<Self, OpenError> {
        let mut all = Self {
            streams: Vec::new(),
        };
        for batches in streams {
            all.streams.extend(Self::next_of(reader, batches)?);
        }
        Ok(all)
    }

    fn next_of(
        reader: &mut Reader<'_>,
        batches: &'s [Taken],
    ) -> Result<Option<Stream<'s>>, OpenError> {
        let Some((taken, rest)) = batches.split_first() else {
            return Ok(None);
        };
        let batch = taken.batch(reader)?;
        Ok(Some(Stream {
            incarnation: Incarnation::of(&batch.frame),
            batch,
            taken,
            rest,
        }))
    }

    /// Returns the next batch.
    pub(super) fn next(
        &mut self,
        reader: &mut Reader<'_>,
    ) -> Result<Option<(&'s Taken, DecodedBatch)>, OpenError> {
        let incarnations: Vec<&Incarnation> = self
            .streams
            .iter()
            .map(|stream| &stream.incarnation)
            .collect();
        if incarnations.is_empty() {
            return Ok(None);
        }
        let at = oldest(&incarnations);
        let Stream {
            batch, taken, rest, ..
        } = self.streams.remove(at);
        if let Some(next) = Self::next_of(reader, rest)? {
            self.streams.insert(at, next);
        }
        Ok(Some((taken, batch)))
    }
}

/// Index of the first one that is newer than no other one.
fn oldest(incarnations: &[&Incarnation]) -> usize {
    incarnations
        .iter()
        .position(|incarnation| {
            !incarnations
                .iter()
                .any(|other| incarnation.is_newer_than(other) == Some(true))
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use windrow_types::{BatchSeq, Epoch, MAX_STREAMS};

    fn incarnation(epoch: u64, stream: usize, seq: u64, flushed: &[(usize, u64)]) -> Incarnation {
        let mut all = [BatchSeq(0); MAX_STREAMS];
        flushed
            .iter()
            .for_each(|(stream, seq)| all[*stream] = BatchSeq(*seq));
        Incarnation {
            epoch: Epoch(epoch),
            stream,
            seq: BatchSeq(seq),
            flushed: all,
        }
    }

    fn oldest_of(incarnations: &[Incarnation]) -> usize {
        oldest(&incarnations.iter().collect::<Vec<_>>())
    }

    #[test]
    fn the_batch_that_others_know_to_be_flushed_goes_first() {
        let (old, new) = (
            incarnation(9, 2, 7, &[(6, 4)]),
            incarnation(9, 6, 23, &[(2, 15)]),
        );
        assert_eq!(oldest_of(&[new, old]), 1);
        assert_eq!(oldest_of(&[old, new]), 0);
    }

    #[test]
    fn a_batch_of_an_older_epoch_goes_first() {
        let (old, new) = (incarnation(9, 2, 7, &[]), incarnation(11, 6, 23, &[]));
        assert_eq!(oldest_of(&[new, old]), 1);
    }

    #[test]
    fn of_batches_without_a_known_order_the_first_stream_goes_first() {
        assert_eq!(
            oldest_of(&[incarnation(9, 6, 23, &[]), incarnation(9, 2, 7, &[])]),
            0
        );
        // One of three knows another one.
        assert_eq!(
            oldest_of(&[
                incarnation(9, 6, 23, &[(3, 2)]),
                incarnation(9, 3, 2, &[]),
                incarnation(9, 2, 7, &[])
            ]),
            1
        );
    }
}

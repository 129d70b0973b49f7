//! Placement: admitted blocks go, in LSN order, into the open batch of the user stream that the
//! policy selects (`path/policy.rs`). A full batch is sealed.

use super::admit::Placing;
use super::reduce::Reduction;
use crate::base::limits::STREAM_USER;
use crate::base::piece::units_of;
use crate::path::Paths;
use crate::path::dedup::Sharing;
use crate::store::Store;
use crate::store::events::Outbox;
use crate::store::pending::{BlockKey, PendingSlot};
use crate::store::stream::Item;
use windrow_format::batch::Entry;
use windrow_io::Payload;
use windrow_types::{FULL_BLOCK_UNITS, Lba, Lsn, VolumeId};

/// Upper bound of an entry's encoded length, except for volume records. The exact plan is made only
/// near the end of a batch.
const ENTRY_BOUND: usize = 64;
/// Bound for content and its first reference, which are in one batch.
const PAIR_BOUND: usize = 2 * ENTRY_BOUND;
/// Bound for a volume record with its name.
const RECORD_BOUND: usize = 160;

impl Paths {
    /// Places admitted entries as far as batches, segments and the limit of batches in flight
    /// permit.
    pub(crate) fn place(&mut self, store: &mut Store, out: &mut Outbox) {
        self.decide(store);
        self.admission.send_group(&store.memory, false, out);
        while let Some(front) = self.admission.placing.front() {
            let (bound, units) = match front {
                waiting if waiting.is_reducing() => return,
                Placing::Data {
                    sharing: Sharing::Reference(_),
                    ..
                } => (ENTRY_BOUND, 0),
                Placing::Data {
                    reduction, sharing, ..
                } => {
                    let bound = if *sharing == Sharing::Off {
                        ENTRY_BOUND
                    } else {
                        PAIR_BOUND
                    };
                    (
                        bound,
                        if let Reduction::Compressed(stored) = reduction {
                            units_of(stored)
                        } else {
                            FULL_BLOCK_UNITS
                        },
                    )
                }
                Placing::Fill { .. } => (ENTRY_BOUND, 0),
                Placing::Record { .. } => (RECORD_BOUND, 0),
            };
            // Entries readmitted at the start go to the first stream whatever the policy selects:
            // their room is reserved there.
            let data = match front {
                Placing::Data {
                    key,
                    pending,
                    sharing: Sharing::Off,
                    lsn,
                    ..
                } if !self.durability.journal.was_readmitted(*lsn) => Some((*key, *pending)),
                _ => None,
            };
            let Some(stream) = self.choose_stream(data, bound, units, store, out) else {
                return;
            };
            let Some(placing) = self.admission.placing.pop_front() else {
                return;
            };
            self.admission.reducing.placed += 1;
            // Room is counted in the first user stream; other streams take none of it.
            let room = if stream == STREAM_USER {
                &mut self.admission.opened_units
            } else {
                &mut self.admission.unsealed_units
            };
            *room = if stream == STREAM_USER {
                *room + placing.units()
            } else {
                *room - placing.units()
            };
            let entry = placing.entry();
            match placing {
                Placing::Data {
                    key,
                    lsn,
                    pending,
                    payload,
                    reduction,
                    sharing,
                } => {
                    let stored = if let Reduction::Compressed(stored) = reduction {
                        stored
                    } else {
                        payload
                    };
                    match sharing {
                        // Shared content and its first reference stay in the first stream, one
                        // after the other.
                        Sharing::Content { id, fingerprint } => {
                            let content = Entry::Data {
                                volume: VolumeId::SHARED,
                                lba: Lba(u64::from(id)),
                                birth: lsn,
                            };
                            self.append(
                                STREAM_USER,
                                &content,
                                Item::Content { id, lsn },
                                Some(stored),
                                Some(lsn),
                                store,
                            );
                            self.append_reference(key, lsn, pending, id, store);
                            self.note_content_placed(fingerprint, id, lsn, store);
                            self.place_index_pages(lsn, store);
                        }
                        Sharing::Reference(id) => {
                            self.append_reference(key, lsn, pending, id, store);
                            self.place_index_pages(lsn, store);
                        }
                        _ => {
                            self.user_placed(key, stream, lsn, store);
                            self.append(
                                stream,
                                &entry,
                                Item::Data { key, lsn, pending },
                                Some(stored),
                                Some(lsn),
                                store,
                            );
                        }
                    }
                    self.seal_lagging_batches(lsn, store, out);
                }
                Placing::Fill {
                    key,
                    lsn,
                    pending,
                    ones,
                } => {
                    self.append(
                        STREAM_USER,
                        &entry,
                        Item::Fill {
                            key,
                            lsn,
                            pending,
                            ones,
                        },
                        None,
                        Some(lsn),
                        store,
                    );
                    self.note_trim(key, Some(pending), store);
                }
                Placing::Record { lsn, .. } => {
                    self.append(STREAM_USER, &entry, Item::Record, None, Some(lsn), store);
                    if let Entry::Covered { first, .. } = entry {
                        self.log.stream_mut(STREAM_USER).open.cover(first);
                    }
                }
            }
        }
    }

    fn append_reference(
        &mut self,
        key: BlockKey,
        lsn: Lsn,
        pending: PendingSlot,
        id: u32,
        store: &mut Store,
    ) {
        let entry = Entry::Reference {
            volume: key.volume(),
            lba: key.lba(),
            birth: lsn,
            id: Lba(u64::from(id)),
            incarnation: store.volumes.ids.incarnation(id),
        };
        self.append(
            STREAM_USER,
            &entry,
            Item::Reference {
                key,
                lsn,
                pending,
                id,
            },
            None,
            Some(lsn),
            store,
        );
    }

    /// True if the open batch of a stream takes one more entry with a payload of `units` units (0:
    /// none). Seals the batch first if it is full.
    pub(crate) fn make_room(
        &mut self,
        stream: usize,
        entry_bytes: usize,
        units: u16,
        store: &mut Store,
        out: &mut Outbox,
    ) -> bool {
        loop {
            if !self.ready(stream, store) {
                return false;
            }
            let s = self.log.stream(stream);
            let shape = store.pool.zones.shape(s.position.segment);
            if s.open
                .table
                .takes(shape, s.position.row, entry_bytes, units)
            {
                return true;
            }
            if !self.seal_full(stream, store, out) {
                return false;
            }
        }
    }

    /// Adds an entry that [`Paths::make_room`] made room for.
    pub(crate) fn append(
        &mut self,
        stream: usize,
        entry: &Entry,
        item: Item,
        payload: Option<Payload>,
        lsn: Option<Lsn>,
        store: &mut Store,
    ) {
        let (now, recorded) = (store.pool.now_ns, self.durability.journal.recorded_lsn());
        let open = &mut self.log.stream_mut(stream).open;
        if open.is_empty() {
            open.since_ns = now;
        }
        if open.lsns.is_none_or(|(_, last)| last <= recorded) {
            open.at_risk_since_ns = now;
        }
        open.table
            .push_stored(entry, payload.as_deref().map_or(FULL_BLOCK_UNITS, units_of));
        open.items.push(item);
        open.payloads.extend(payload);
        if let Some(lsn) = lsn {
            open.cover(lsn);
        }
    }
}

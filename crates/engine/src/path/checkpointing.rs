//! State of checkpoints: numbers, pages of the newest one, and what of it is written. The steps are
//! in `upkeep/checkpoint.rs`.

mod rewrite;

use crate::base::limits::{CHECKPOINT_FIXED_PAGES, CHECKPOINT_MIN_LOG_BYTES};
use crate::path::Durability;
use crate::store::map::PageSlot;
use crate::store::member::Ticket;
use crate::store::segment::Segments;
use crate::store::volume::Volumes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use windrow_format::checkpoint::{
    LEAF_POINTERS, LeafRecord, OBJECT_LEAF, OBJECT_LIST, OBJECT_MAP, PagePointer,
    SegmentTableGeometry,
};
use windrow_format::superblock::StreamPosition;
use windrow_types::{Address, BLOCK_BYTES, BatchSeq, Lsn, MAX_STREAMS, VolumeId};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    Idle,
    Maps,
    Tables,
    Leaves,
    List,
    /// Top page with this index.
    Top(u32),
    Sync,
    Root {
        ticket: Ticket,
    },
}

/// A page to copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// Identified by its state when the checkpoint begins. Before its turn the slot may be reused
    /// for a page of a younger volume, which the image does not include.
    Map {
        slot: PageSlot,
        volume: VolumeId,
        index: u32,
    },
    Table {
        object: u32,
        index: u32,
    },
    Leaf {
        object: u32,
        leaf: u32,
    },
    List {
        index: u32,
    },
    Top {
        index: u32,
    },
}

/// A checkpoint in progress.
#[derive(Debug)]
pub(crate) struct Building {
    pub(crate) lsn: Lsn,
    pub(crate) replay: [StreamPosition; MAX_STREAMS],
    pub(crate) work: VecDeque<Work>,
    /// Pages appended and not committed.
    pub(crate) outstanding: u32,
    /// Leaves being written, by the index of their page entry.
    pub(crate) leaves: Vec<(u32, u32)>,
    pub(crate) records: Vec<LeafRecord>,
    pub(crate) list: Vec<PagePointer>,
    pub(crate) top: Vec<PagePointer>,
    /// Newest LSN that copied pages can show.
    pub(crate) contained: Lsn,
    pub(crate) contained_moves: BatchSeq,
    pub(crate) last_page: BatchSeq,
}

/// State of checkpointing.
#[derive(Debug)]
pub(crate) struct CheckpointState {
    pub(crate) current: u64,
    pub(crate) stage: Stage,
    pub(crate) building: Option<Building>,
    /// Pointers to the table pages.
    pub(crate) tables: BTreeMap<u32, Vec<PagePointer>>,
    pub(crate) leaves: BTreeMap<(u32, u32), PagePointer>,
    pub(crate) dirty_leaves: BTreeSet<(u32, u32)>,
    /// Table pages to rewrite although they are unchanged (their segment is being cleaned).
    pub(crate) rewrite: BTreeSet<(u32, u32)>,
    pub(crate) list: Vec<PagePointer>,
    pub(crate) retiring: Vec<Address>,
    pub(crate) retired: Vec<Address>,
    pub(crate) requested: bool,
    /// True if pages wait for a segment.
    pub(crate) wants_segment: bool,
    pub(crate) user_bytes_at_last: u64,
    /// Bytes that cleaning moved since the last checkpoint began, and would not have moved if young
    /// segments could be cleaned.
    pub(crate) opportunity_cost: u64,
    /// Log bytes when the last checkpoint began, the part of all checkpoints in them, and the size
    /// of the last checkpoint.
    pub(crate) log_bytes_at_begin: u64,
    pub(crate) bytes_at_begin: u64,
    pub(crate) last_bytes: u64,
    pub(crate) min_log_bytes: u64,
    pub(crate) reserve_segments: u32,
    pub(crate) geometry: SegmentTableGeometry,
    /// Newest LSN whose effect the tables show.
    pub(crate) applied: Lsn,
    /// Number of the last checkpoint begun. A control request is answered when a checkpoint that
    /// began after it is durable.
    pub(crate) begun: u64,
    pub(crate) completed: u64,
    /// Oldest checkpoint that the superblock on the members keeps.
    pub(crate) kept_oldest: u64,
}

/// Tables that recovery hands over.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    pub(crate) tables: BTreeMap<u32, Vec<PagePointer>>,
    pub(crate) leaves: BTreeMap<(u32, u32), PagePointer>,
    pub(crate) list: Vec<PagePointer>,
}

impl CheckpointState {
    /// Newest LSN whose effect the tables show.
    pub(crate) fn applied(&self) -> Lsn {
        self.applied
    }

    /// The effect of an operation is in the tables.
    #[inline]
    pub(crate) fn note_applied(&mut self, lsn: Lsn) {
        self.applied = self.applied.max(lsn);
    }

    /// State after the tables of checkpoint `id` were loaded.
    pub(crate) fn new(
        id: u64,
        loaded: Loaded,
        max_rows: u32,
        plan: &crate::api::PoolPlan,
        applied: Lsn,
    ) -> Self {
        Self {
            current: id,
            stage: Stage::Idle,
            building: None,
            tables: loaded.tables,
            leaves: loaded.leaves,
            dirty_leaves: BTreeSet::new(),
            rewrite: BTreeSet::new(),
            list: loaded.list,
            retiring: Vec::new(),
            retired: Vec::new(),
            requested: false,
            wants_segment: false,
            user_bytes_at_last: 0,
            opportunity_cost: 0,
            log_bytes_at_begin: 0,
            bytes_at_begin: 0,
            last_bytes: 0,
            min_log_bytes: CHECKPOINT_MIN_LOG_BYTES.min(plan.data_bytes / 8),
            reserve_segments: plan.checkpoint_segments,
            geometry: SegmentTableGeometry::new(max_rows),
            applied,
            begun: id,
            completed: id,
            kept_oldest: id,
        }
    }

    /// State in one line, for diagnosis.
    pub(crate) fn describe(&self) -> String {
        let building = self
            .building
            .as_ref()
            .map(|b| (b.work.len(), b.outstanding, b.contained, b.contained_moves));
        format!(
            "checkpoint {} {:?} requested {} (work, outstanding, contained, moves) {building:?}",
            self.current, self.stage, self.requested
        )
    }

    /// Number of the last checkpoint begun.
    pub(crate) fn current(&self) -> u64 {
        self.current
    }

    /// Segments that one checkpoint may need.
    pub(crate) fn reserve_segments(&self) -> u32 {
        self.reserve_segments
    }

    /// Adopts a changed capacity of the pool.
    pub(crate) fn set_plan(&mut self, plan: &crate::api::PoolPlan) {
        self.reserve_segments = plan.checkpoint_segments;
        self.min_log_bytes = CHECKPOINT_MIN_LOG_BYTES.min(plan.data_bytes / 8);
    }

    /// Requests a checkpoint.
    pub(crate) fn request(&mut self) {
        self.requested = true;
    }

    /// True if its pages wait for a segment.
    pub(crate) fn wants_segment(&self) -> bool {
        self.wants_segment
    }

    /// True if no checkpoint is being written.
    pub(crate) fn is_idle(&self) -> bool {
        self.stage == Stage::Idle
    }

    /// True if a checkpoint was requested and has not begun.
    pub(crate) fn is_requested(&self) -> bool {
        self.requested
    }

    pub(crate) fn retire(&mut self, pointer: PagePointer) {
        if pointer.present {
            self.retiring.push(pointer.address);
        }
    }
}

impl CheckpointState {
    pub(crate) fn set_table_pointer(
        &mut self,
        object: u32,
        index: u32,
        pointer: PagePointer,
    ) -> PagePointer {
        let table = self.tables.entry(object).or_default();
        if table.len() <= index as usize {
            table.resize(index as usize + 1, PagePointer::default());
        }
        std::mem::replace(&mut table[index as usize], pointer)
    }
}

impl Durability {
    /// Estimated log bytes of a checkpoint now; at least the size of the last one.
    pub(crate) fn checkpoint_cost(&self, volumes: &Volumes) -> u64 {
        let pages = (volumes.arena.dirty_pages() as u64 + CHECKPOINT_FIXED_PAGES) * BLOCK_BYTES;
        pages.max(self.checkpoint.last_bytes)
    }

    /// Adds the opportunity cost of a victim with `gained` bytes of garbage. The log since the last
    /// two checkpoints, which may not be cleaned yet, may hold a better victim: the excess bytes
    /// moved are a cost.
    ///
    /// A checkpoint begins when the sum reaches
    /// [`OPPORTUNITY_COST_RATIO`](crate::base::limits::OPPORTUNITY_COST_RATIO) times the cost of
    /// one: two checkpoints have to pass, and moves also gain space for later. Partly live segments
    /// count for less, as more of them dies while they wait.
    pub(crate) fn add_opportunity_cost(&mut self, segments: &Segments, gained: u64) {
        if self.checkpoint.is_idle() {
            self.checkpoint.opportunity_cost += segments.opportunity_cost(gained);
        }
    }

    /// Images of dropped pages are reached by older roots only; their leaves change.
    pub(crate) fn take_dropped_pages(&mut self, volumes: &mut Volumes) {
        for (volume, index, pointer) in std::mem::take(&mut volumes.dropped) {
            self.checkpoint.retire(pointer);
            self.checkpoint
                .dirty_leaves
                .insert((OBJECT_MAP + volume.0, index / LEAF_POINTERS as u32));
        }
    }

    pub(crate) fn leaf_pointers(
        &self,
        volumes: &Volumes,
        object: u32,
        leaf: u32,
    ) -> Vec<PagePointer> {
        let first = leaf as usize * LEAF_POINTERS;
        (first..first + LEAF_POINTERS)
            .map(|index| {
                if object >= OBJECT_MAP {
                    let volume = volumes.get(VolumeId(object - OBJECT_MAP));
                    let slot = volume.and_then(|v| v.map.slot(index as u64));
                    slot.and_then(|s| volumes.arena.meta(s))
                        .map_or(PagePointer::default(), |m| m.pointer)
                } else {
                    self.checkpoint
                        .tables
                        .get(&object)
                        .and_then(|t| t.get(index))
                        .copied()
                        .unwrap_or_default()
                }
            })
            .collect()
    }

    /// Notes the address of a committed checkpoint page.
    pub(crate) fn page_committed(
        &mut self,
        volumes: &mut Volumes,
        object: u32,
        index: u32,
        pointer: PagePointer,
    ) {
        let Some(building) = self.checkpoint.building.as_mut() else {
            return;
        };
        building.outstanding -= 1;
        match object {
            OBJECT_LEAF => {
                let key = building.leaves[index as usize];
                if let Some(old) = self.checkpoint.leaves.insert(key, pointer) {
                    self.checkpoint.retire(old);
                }
            }
            OBJECT_LIST => match (index as usize).checked_sub(building.list.len()) {
                None => building.list[index as usize] = pointer,
                Some(top) => building.top[top] = pointer,
            },
            _ => {
                self.checkpoint
                    .dirty_leaves
                    .insert((object, index / LEAF_POINTERS as u32));
                let old = if object >= OBJECT_MAP {
                    volumes.set_map_pointer(object, index, pointer)
                } else {
                    self.checkpoint.set_table_pointer(object, index, pointer)
                };
                self.checkpoint.retire(old);
            }
        }
    }
}

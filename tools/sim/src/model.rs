//! Reference model: the effect of every operation on every block, and its legal observations.
//!
//! Rules that the engine must satisfy:
//! 1. A read returns, for each block, content that a legal history explains (see [`block`]):
//!    everything acknowledged before the read was submitted has happened; requests in flight at the
//!    same time may have.
//! 2. LSNs are unique, above everything acknowledged before the request was submitted, and a write
//!    has one for each block.
//! 3. A completed flush makes durable every LSN acknowledged before it was submitted, a FUA request
//!    its own LSNs, an answered volume operation itself, a clean shutdown everything.
//! 4. After a crash the recovery point covers everything durable, and exactly the LSNs up to it are
//!    in effect. Requests that were never answered may be in effect if their LSN can be at or below
//!    the recovery point.

pub mod block;
mod recovery;
mod requests;
mod settings;

use crate::violation::{Violation, ensure};
use block::BlockModel;
use std::collections::BTreeMap;
use windrow_engine::{ControlError, ControlId, ControlReply};
use windrow_format::superblock::Properties;
use windrow_io::RequestId;
use windrow_types::{BLOCK_BYTES, VolumeId};

pub use recovery::{Contents, shown_properties};
pub use requests::{Asked, InFlight, MAX_EXTENTS};
pub use settings::Wanted;

/// A pending change of size, in blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resizing {
    /// Old size.
    pub from: u64,
    /// New size.
    pub to: u64,
}

/// Expected state of a volume.
#[derive(Clone, Debug)]
pub struct VolumeModel {
    /// Its name.
    pub name: String,
    /// Its blocks; their number is its size, the larger of both while it is being resized.
    pub blocks: Vec<BlockModel>,
    /// A resize that is not answered, or was interrupted by a crash.
    pub resizing: Option<Resizing>,
    /// A deletion that is not answered, or was interrupted by a crash.
    pub deleting: bool,
    /// Its settings.
    settings: settings::Settings,
}

impl VolumeModel {
    fn new(name: String, blocks: u64) -> Self {
        Self {
            name,
            blocks: vec![BlockModel::default(); blocks as usize],
            resizing: None,
            deleting: false,
            settings: Default::default(),
        }
    }

    /// Size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.blocks.len() as u64 * BLOCK_BYTES
    }

    /// Number of blocks that no pending resize affects: requests within them must not fail.
    pub fn steady_blocks(&self) -> u64 {
        (self.blocks.len() as u64).min(
            self.resizing
                .map_or(u64::MAX, |resizing| resizing.from.min(resizing.to)),
        )
    }
}

/// A volume operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VolumeChange {
    /// A new volume: name, blocks.
    Create(String, u64),
    /// A new size in blocks.
    Resize(VolumeId, u64),
    /// Delete.
    Delete(VolumeId),
}

/// Reference state of a pool.
#[derive(Clone, Default)]
pub struct Model {
    volumes: BTreeMap<VolumeId, VolumeModel>,
    in_flight: BTreeMap<RequestId, InFlight>,
    /// Creations that are not answered or were interrupted by a crash: name to blocks.
    creating: BTreeMap<String, u64>,
    /// LSNs assigned in this session: first to last.
    lsns: BTreeMap<u64, u64>,
    /// Highest acknowledged LSN.
    acknowledged: u64,
    /// Every LSN up to this one must survive.
    promised: u64,
    /// LSNs beyond this one may still be discarded with a journal: only older ones become history.
    history: Option<u64>,
    /// Newest LSN when a volume operation was last answered.
    changed: u64,
    /// Recovery point of the last start.
    accepted: u64,
    /// Properties: the last answered ones, then those requested since.
    properties: Vec<(ControlId, Properties)>,
    /// Number of requests refused because there was no space.
    pub refused: u64,
    /// Work completed for clients since the last start.
    pub served: Served,
    /// More has failed than the redundancy covers: a request may fail, but never return wrong
    /// bytes.
    pub lenient: bool,
    /// Damage has filled the pool: requests with data may be refused, completely or in part.
    pub exhausted: bool,
    /// Pages of maps may be scarce: zeroed ranges get none, and a start may drop pages of zeroes.
    pub scarce_pages: bool,
    /// Flushes of some volume had another meaning at some time: the engine's count of flushes is
    /// not checked.
    unusual_sync: bool,
}

/// Counters of work completed for clients since the last start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Served {
    /// Payload bytes of successful writes.
    pub written_bytes: u64,
    /// Bytes of successful reads.
    pub read_bytes: u64,
    /// Flushes and requests with FUA.
    pub flushes: u64,
    /// Whole blocks of zeroes or ones that were written.
    pub fill_blocks: u64,
    /// Blocks written in part: whether they became fills as a whole is not checked.
    pub partial_blocks: u64,
}

impl Model {
    /// The volumes.
    pub fn volumes(&self) -> &BTreeMap<VolumeId, VolumeModel> {
        &self.volumes
    }

    /// Number of requests in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Describes the oldest requests in flight.
    pub fn describe_in_flight(&self) -> String {
        let oldest = self.in_flight.iter().take(3).map(|(id, request)| {
            format!("{}: volume {} {:?}", id.0, request.volume, request.asked)
        });
        oldest
            .map(|text| text.chars().take(120).collect())
            .collect::<Vec<String>>()
            .join("; ")
    }

    /// Bytes of write requests in flight.
    pub fn write_bytes_in_flight(&self) -> u64 {
        self.in_flight
            .values()
            .filter(|request| request.asked.is_write())
            .map(|request| request.asked.blocks() * BLOCK_BYTES)
            .sum()
    }

    /// Highest acknowledged LSN.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Highest LSN that must survive with all below it.
    pub fn promised(&self) -> u64 {
        self.promised
    }

    /// Recovery point of the last start.
    pub fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Marks everything beyond this LSN as possibly discarded later.
    pub fn keep_history(&mut self, lsn: u64) {
        self.history = Some(lsn);
    }

    /// Records that a volume operation has been answered; no LSN above `newest` had been assigned.
    pub fn note_change(&mut self, newest: u64) {
        self.changed = self.changed.max(newest);
    }

    /// True if the state at any LSN from this one on is known: it follows the last start and the
    /// last volume operation.
    pub fn knows(&self, lsn: u64) -> bool {
        lsn >= self.accepted && lsn >= self.changed
    }

    /// Discards a journal: of the durable LSNs only those up to this one are certain.
    pub fn give_up(&mut self, lsn: u64) {
        self.promised = self.promised.min(lsn);
        self.volumes
            .values_mut()
            .for_each(|volume| volume.settings.lose());
    }

    /// LSN up to which nothing can be undone.
    fn settled(&self) -> u64 {
        self.promised.min(self.history.unwrap_or(u64::MAX))
    }

    /// True if a request in flight touches these blocks of a volume.
    pub fn is_touched(&self, volume: VolumeId, blocks: std::ops::Range<u64>) -> bool {
        self.in_flight.values().any(|request| {
            request.volume == volume
                && request
                    .asked
                    .block_range()
                    .is_some_and(|range| range.start < blocks.end && blocks.start < range.end)
        })
    }

    /// Records a submitted volume operation.
    pub fn submit_change(&mut self, change: &VolumeChange) {
        match change {
            VolumeChange::Create(name, blocks) => _ = self.creating.insert(name.clone(), *blocks),
            VolumeChange::Resize(volume, blocks) => {
                for request in self
                    .in_flight
                    .values_mut()
                    .filter(|request| request.volume == *volume)
                {
                    request.lower_limit(*blocks);
                }
                if let Some(volume) = self.volumes.get_mut(volume) {
                    let from = volume.blocks.len() as u64;
                    volume.resizing = Some(Resizing { from, to: *blocks });
                    volume
                        .blocks
                        .resize_with(from.max(*blocks) as usize, BlockModel::default);
                }
            }
            VolumeChange::Delete(volume) => {
                if let Some(volume) = self.volumes.get_mut(volume) {
                    volume.deleting = true;
                }
            }
        }
    }

    /// Records an answered volume operation. It is durable.
    pub fn complete_change(
        &mut self,
        change: &VolumeChange,
        result: &Result<ControlReply, ControlError>,
    ) -> Result<(), Violation> {
        match (change, result) {
            (VolumeChange::Create(name, blocks), Ok(ControlReply::Volume(id))) => {
                self.creating.remove(name);
                ensure!(
                    !self.volumes.contains_key(id),
                    Protocol,
                    "volume id {id} was given twice"
                );
                self.volumes
                    .insert(*id, VolumeModel::new(name.clone(), *blocks));
            }
            (VolumeChange::Create(name, _), Err(ControlError::NoSpace(_))) => {
                _ = self.creating.remove(name)
            }
            (VolumeChange::Resize(id, blocks), Ok(ControlReply::Done)) => {
                if let Some(volume) = self.volumes.get_mut(id) {
                    volume
                        .blocks
                        .resize_with(*blocks as usize, BlockModel::default);
                    volume.resizing = None;
                }
            }
            (VolumeChange::Resize(id, blocks), Err(ControlError::NoSpace(_))) => {
                if let Some(volume) = self.volumes.get_mut(id) {
                    let from = volume.resizing.take().map_or(0, |resizing| resizing.from);
                    ensure!(
                        *blocks > from,
                        Error,
                        "volume {id} cannot be made smaller: {result:?}"
                    );
                    volume.blocks.truncate(from as usize);
                }
            }
            (VolumeChange::Delete(id), Ok(ControlReply::Done)) => _ = self.volumes.remove(id),
            _ => {
                return Err(Violation::new(
                    crate::Broken::Error,
                    format!("{change:?} was answered with {result:?}"),
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

//! Effects of a crash, a start and the following reads on the model.

use super::block::{BlockModel, FULL, is_empty};
use super::{Model, VolumeModel};
use crate::content::{EMPTY, HOLE, ONES, SECTORS, Stamps, ZERO, observe_sector};
use crate::violation::{Violation, ensure};
use std::collections::BTreeMap;
use windrow_engine::{ControlError, ControlId, ControlReply, OpenReport, PoolStatus};
use windrow_format::superblock::{Properties, Reduction};
use windrow_io::ExtentState;
use windrow_types::{BLOCK_BYTES, BLOCK_SIZE, VolumeId};

impl Model {
    /// Applies a successful shutdown: everything acknowledged must survive.
    pub fn shut_down(&mut self) {
        self.promised = self.promised.max(self.acknowledged);
    }

    /// Records the engine's claim that LSNs up to this one are durable.
    pub fn claimed_durable(&mut self, lsn: u64) {
        self.promised = self.promised.max(lsn);
    }

    /// Number of blocks of a volume that need space: those that are neither all zeroes nor all
    /// ones. Only meaningful while nothing is in flight.
    pub fn blocks_with_data(&self, volume: VolumeId) -> u64 {
        self.volumes.get(&volume).map_or(0, |volume| {
            volume
                .blocks
                .iter()
                .filter(|block| block.has_data())
                .count() as u64
        })
    }

    /// Applies a start after a crash or a shutdown. `newest` is the newest LSN that the engine had
    /// assigned before.
    pub fn reopened(
        &mut self,
        report: &OpenReport,
        status: &PoolStatus,
        newest: u64,
    ) -> Result<(), Violation> {
        let accepted = report.recovery_lsn.0;
        // The root of a checkpoint is written when all of it is durable. Repairable pages are
        // repaired, and the preceding checkpoint serves for the others.
        let unused = report
            .notes
            .iter()
            .find(|note| note.starts_with("checkpoint ") && note.contains("is not used"));
        ensure!(unused.is_none() || self.lenient, Open, "{unused:?}");
        ensure!(
            accepted >= self.promised,
            Durability,
            "the recovery point is {accepted}, but LSNs up to {} were durable",
            self.promised
        );
        ensure!(
            accepted >= self.accepted,
            Durability,
            "P is {accepted}, at the start before it was {}",
            self.accepted
        );
        let newest = newest.max(self.accepted);
        ensure!(
            accepted <= newest,
            Durability,
            "P is {accepted}, but no order above {newest} was given"
        );
        self.in_flight.clear();
        self.lsns.clear();
        self.served = Default::default();
        self.properties_reopened(status)?;
        let scarce_pages = self.scarce_pages || 2 * status.map_pages >= status.map_pages_max;
        for volume in self.volumes.values_mut() {
            volume
                .blocks
                .iter_mut()
                .for_each(|block| block.crash(accepted));
            if scarce_pages {
                volume
                    .blocks
                    .iter_mut()
                    .for_each(|block| block.may_become_hole());
            }
        }
        self.volumes_reopened(status, accepted)?;
        self.accepted = accepted;
        self.promised = accepted;
        self.acknowledged = accepted;
        self.changed = self.changed.min(accepted);
        Ok(())
    }

    /// Reverts the model after a read-only start, before which the state was `before`: no later
    /// start finds less than it did.
    pub fn unlook(&mut self, before: Self) {
        *self = Self {
            accepted: self.accepted,
            promised: self.promised,
            ..before
        };
    }

    fn volumes_reopened(&mut self, status: &PoolStatus, accepted: u64) -> Result<(), Violation> {
        let found = |id: VolumeId| {
            status
                .volumes
                .iter()
                .find(|volume| volume.id == id && !volume.deleting)
        };
        let absent: Vec<VolumeId> = self
            .volumes
            .keys()
            .copied()
            .filter(|id| found(*id).is_none())
            .collect();
        for id in absent {
            let volume = self.volumes.remove(&id);
            let was_deleting = volume.as_ref().is_some_and(|volume| volume.deleting);
            ensure!(
                was_deleting,
                Durability,
                "volume {id} ({:?}) is gone",
                volume.map(|volume| volume.name)
            );
        }
        for shown in status.volumes.iter().filter(|volume| !volume.deleting) {
            ensure!(
                shown.size_bytes % BLOCK_BYTES == 0,
                Protocol,
                "volume {} has {} bytes",
                shown.id,
                shown.size_bytes
            );
            let blocks = shown.size_bytes / BLOCK_BYTES;
            match self.volumes.get_mut(&shown.id) {
                Some(volume) => {
                    ensure!(
                        volume.name == shown.name,
                        Content,
                        "volume {} is called {}, not {}",
                        shown.id,
                        shown.name,
                        volume.name
                    );
                    if !self.lenient {
                        volume.settings.check(shown)?;
                    }
                    volume.settings.found(shown);
                    let resized = volume.resizing.take();
                    let known = resized.map_or(blocks == volume.blocks.len() as u64, |resizing| {
                        blocks == resizing.from || blocks == resizing.to
                    });
                    ensure!(
                        known,
                        Durability,
                        "volume {} has {blocks} blocks, not {} ({resized:?})",
                        shown.id,
                        volume.blocks.len()
                    );
                    if resized.is_some_and(|resizing| blocks < resizing.to) {
                        // The growth preceded every write into the new part.
                        let lost = volume
                            .blocks
                            .iter()
                            .skip(blocks as usize)
                            .position(|block| !block.explains_status(ExtentState::Hole, accepted));
                        ensure!(
                            lost.is_none(),
                            Durability,
                            "volume {} has {blocks} blocks, but {lost:?} after them was written below the recovery point",
                            shown.id
                        );
                    }
                    volume.blocks.resize_with(blocks as usize, Default::default);
                    volume.deleting = false;
                }
                None => {
                    let created = self.creating.remove(&shown.name);
                    ensure!(
                        created == Some(blocks),
                        Content,
                        "volume {} ({}) of {blocks} blocks appeared; expected {created:?}",
                        shown.id,
                        shown.name
                    );
                    self.volumes
                        .insert(shown.id, VolumeModel::new(shown.name.clone(), blocks));
                }
            }
        }
        self.creating.clear();
        Ok(())
    }

    /// Applies a salvage that took everything up to `accepted`; `exact` if nothing was ever
    /// refused, so that sizes are known.
    pub fn rebuilt(
        &mut self,
        accepted: u64,
        status: &PoolStatus,
        exact: bool,
    ) -> Result<(), Violation> {
        ensure!(
            accepted >= self.promised,
            Durability,
            "a salvage takes LSNs up to {accepted}, up to {} were durable",
            self.promised
        );
        self.in_flight.clear();
        self.lsns.clear();
        self.volumes.retain(|_, volume| !volume.deleting);
        for (id, volume) in &mut self.volumes {
            volume
                .blocks
                .iter_mut()
                .for_each(|block| block.crash(accepted));
            let Some(shown) = status.volumes.iter().find(|shown| shown.id == *id) else {
                return Err(Violation::new(
                    crate::Broken::Durability,
                    format!("a rebuild of the map misses volume {id} ({})", volume.name),
                ));
            };
            let known =
                !exact || volume.resizing.is_some() || shown.size_bytes == volume.size_bytes();
            ensure!(
                known && shown.name == volume.name,
                Durability,
                "a rebuild of the map makes of volume {id} ({}) {shown:?}",
                volume.name
            );
            volume
                .blocks
                .truncate((shown.size_bytes / BLOCK_BYTES).min(volume.steady_blocks()) as usize);
        }
        Ok(())
    }

    /// Blocks that certainly hold data: no legal history makes them all zeroes or all ones.
    pub fn blocks_with_data_for_certain(&self) -> Vec<(VolumeId, u64)> {
        let holds = |block: &BlockModel| {
            [ZERO, ONES]
                .iter()
                .all(|stamp| !block.explains(&[*stamp; SECTORS], FULL, block.newest()))
        };
        let of = |(id, volume): (&VolumeId, &VolumeModel)| {
            let blocks = volume
                .blocks
                .iter()
                .enumerate()
                .filter(|(_, block)| holds(block));
            blocks.map(|(lba, _)| (*id, lba as u64)).collect::<Vec<_>>()
        };
        self.volumes.iter().flat_map(of).collect()
    }

    /// Number of blocks whose content a crash left open, of all volumes.
    pub fn uncertain_blocks(&self) -> usize {
        self.volumes
            .values()
            .flat_map(|volume| &volume.blocks)
            .filter(|block| !block.is_certain())
            .count()
    }

    /// Settles the blocks after a start, before new requests: the content that was read (and found
    /// legal) is certain from now on. At rest this also shows the effect of trims. `bytes` are
    /// whole blocks.
    pub fn settle(&mut self, volume: VolumeId, first_block: u64, bytes: &[u8]) {
        let Some(model) = self.volumes.get_mut(&volume) else {
            return;
        };
        for (index, content) in bytes.chunks_exact(BLOCK_SIZE).enumerate() {
            let lba = first_block + index as u64;
            let Some(block) = model.blocks.get_mut(lba as usize) else {
                return;
            };
            if !block.is_certain() || block.is_left_to_see() {
                let stamps = std::array::from_fn(|sector| {
                    let size = BLOCK_SIZE / SECTORS;
                    observe_sector(
                        &content[sector * size..(sector + 1) * size],
                        volume,
                        lba,
                        sector,
                    )
                });
                if block.is_certain() {
                    block.see(&stamps)
                } else {
                    block.settle(&stamps)
                }
            }
        }
    }
}

/// Content of every block of every volume.
pub type Contents = BTreeMap<VolumeId, Vec<Stamps>>;

/// Result of one start, for another with the same outcome.
impl Model {
    /// Content of all blocks, when everything was read and nothing is in flight.
    pub fn contents(&self) -> Contents {
        self.volumes
            .iter()
            .map(|(id, volume)| {
                (
                    *id,
                    volume
                        .blocks
                        .iter()
                        .map(|block| block.newest_content())
                        .collect(),
                )
            })
            .collect()
    }

    /// Checks, after a start and before any read, that reads and block status with this result are
    /// legal.
    pub fn check_contents(&self, contents: &Contents) -> Result<(), Violation> {
        let (own, other) = (self.volumes.keys(), contents.keys());
        ensure!(
            own.eq(other),
            Content,
            "volumes {:?} were read, there are {:?}",
            contents.keys(),
            self.volumes.keys()
        );
        for (id, volume) in &self.volumes {
            let blocks = contents.get(id).map_or(&[][..], Vec::as_slice);
            ensure!(
                blocks.len() == volume.blocks.len(),
                Content,
                "{} blocks of volume {id} were read, it has {}",
                blocks.len(),
                volume.blocks.len()
            );
            for (lba, (block, content)) in volume.blocks.iter().zip(blocks).enumerate() {
                let required = block.newest();
                let states: &[ExtentState] = match content {
                    // Read as zeroes after an earlier block status: it was one of the two.
                    all if all.contains(&EMPTY) && all.iter().all(|stamp| is_empty(*stamp)) => {
                        &[ExtentState::Hole, ExtentState::Zero]
                    }
                    [HOLE, rest @ ..] if *rest == [HOLE; SECTORS - 1] => &[ExtentState::Hole],
                    all if all.iter().all(|stamp| is_empty(*stamp)) => &[ExtentState::Zero],
                    _ => &[ExtentState::Data],
                };
                let read = content.map(|stamp| if is_empty(stamp) { ZERO } else { stamp });
                let legal = block.explains(&read, FULL, required)
                    && states
                        .iter()
                        .any(|state| block.explains_status(*state, required));
                ensure!(
                    legal,
                    Content,
                    "block {lba} of volume {id} reads {content:?} ({states:?}); required order {required}; legal: {}",
                    block.describe()
                );
            }
        }
        Ok(())
    }
}

/// Properties are set as a whole; an answer means that they, or some that were requested later, are
/// durable.
impl Model {
    /// Records requested properties.
    pub fn submit_properties(&mut self, id: ControlId, properties: Properties) {
        self.properties.push((id, properties));
    }

    /// Records the answer.
    pub fn complete_properties(
        &mut self,
        id: ControlId,
        result: &Result<ControlReply, ControlError>,
    ) -> Result<(), Violation> {
        let Some(at) = self.properties.iter().position(|(other, _)| *other == id) else {
            return Ok(());
        };
        match result {
            Ok(ControlReply::Done) => _ = self.properties.drain(..at),
            // Only more spare space can be refused because there is no room, and a change of the
            // reduction mode.
            Err(ControlError::NoSpace(_)) if self.may_want_more(at) => {
                _ = self.properties.remove(at)
            }
            // While data moves to a newer layout the mode stays.
            Err(ControlError::Invalid(why))
                if why.contains("no growth or removal") && self.may_turn(at) =>
            {
                _ = self.properties.remove(at)
            }
            other => {
                return Err(Violation::new(
                    crate::Broken::Error,
                    format!("{:?} was answered with {other:?}", self.properties[at].1),
                ));
            }
        }
        Ok(())
    }

    /// True if these properties may be refused because there is no space.
    fn may_want_more(&self, at: usize) -> bool {
        self.may_turn(at)
            || self.properties[..at]
                .iter()
                .any(|(_, before)| before.spare_per_mille < self.properties[at].1.spare_per_mille)
    }

    /// True if the reduction mode may have been another one when these properties were requested.
    fn may_turn(&self, at: usize) -> bool {
        self.properties[..at]
            .iter()
            .any(|(_, before)| before.reduction != self.properties[at].1.reduction)
    }

    /// Properties that must be shown when nothing is pending.
    pub fn properties(&self) -> Option<Properties> {
        self.properties.last().map(|(_, properties)| *properties)
    }

    /// True if properties are being changed.
    pub fn is_changing_properties(&self) -> bool {
        self.properties.len() > 1
    }

    fn properties_reopened(&mut self, status: &PoolStatus) -> Result<(), Violation> {
        let shown = shown_properties(status);
        // Unanswered, `reduction=spare` is reverted if the map that the start finds has more pages
        // than it allows (seed 43000805).
        let may_be_undone = self.is_changing_properties() && shown.reduction == Reduction::Capacity;
        let explains = |properties: &Properties| {
            let reduction = if may_be_undone {
                shown.reduction
            } else {
                properties.reduction
            };
            Properties {
                reduction,
                ..*properties
            } == shown
        };
        // Beyond redundancy the newest superblocks may be lost, and with them the last properties.
        let known = self.lenient
            || self.properties.is_empty()
            || self
                .properties
                .iter()
                .any(|(_, properties)| explains(properties));
        ensure!(
            known,
            Durability,
            "the properties are {shown:?}, not one of {:?}",
            self.properties
        );
        self.properties = vec![(ControlId(0), shown)];
        Ok(())
    }
}

/// Properties in a status.
pub fn shown_properties(status: &PoolStatus) -> Properties {
    Properties {
        spare_per_mille: status.spare_per_mille,
        seal_age_ms: status.seal_age_ms,
        discard: status.discard,
        ..status.properties
    }
}

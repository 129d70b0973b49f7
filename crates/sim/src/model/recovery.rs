//! What a crash, a start and the reading that follows mean for the model.

use super::{Model, VolumeModel};
use crate::content::{SECTORS, observe_sector};
use crate::violation::{Violation, ensure};
use windrow_engine::{OpenReport, PoolStatus};
use windrow_units::{BLOCK_BYTES, BLOCK_SIZE, VolumeId};

impl Model {
    /// The pool was shut down and said so: everything acknowledged must survive.
    pub fn shut_down(&mut self) {
        self.promised = self.promised.max(self.acknowledged);
    }

    /// The engine itself claims that orders up to this one are durable.
    pub fn claimed_durable(&mut self, order: u64) {
        self.promised = self.promised.max(order);
    }

    /// Blocks of a volume that need space: those that are neither all zeroes nor all ones. Only meaningful while nothing is in flight.
    pub fn blocks_with_data(&self, volume: VolumeId) -> u64 {
        self.volumes.get(&volume).map_or(0, |volume| volume.blocks.iter().filter(|block| block.has_data()).count() as u64)
    }

    /// The pool was started again after a crash or a shutdown. `newest` is the newest order that the engine had given before.
    pub fn reopened(&mut self, report: &OpenReport, status: &PoolStatus, newest: u64) -> Result<(), Violation> {
        let accepted = report.accepted_order.0;
        ensure!(accepted >= self.promised, Durability, "P is {accepted}, but orders up to {} were promised", self.promised);
        ensure!(accepted >= self.accepted, Durability, "P is {accepted}, at the start before it was {}", self.accepted);
        let newest = newest.max(self.accepted);
        ensure!(accepted <= newest, Durability, "P is {accepted}, but no order above {newest} was given");
        self.in_flight.clear();
        self.orders.clear();
        self.written_bytes = 0;
        for volume in self.volumes.values_mut() {
            volume.blocks.iter_mut().for_each(|block| block.crash(accepted));
        }
        self.volumes_reopened(status)?;
        self.accepted = accepted;
        self.promised = accepted;
        self.acknowledged = accepted;
        Ok(())
    }

    fn volumes_reopened(&mut self, status: &PoolStatus) -> Result<(), Violation> {
        let found = |id: VolumeId| status.volumes.iter().find(|volume| volume.id == id && !volume.deleting);
        let absent: Vec<VolumeId> = self.volumes.keys().copied().filter(|id| found(*id).is_none()).collect();
        for id in absent {
            let volume = self.volumes.remove(&id);
            let was_deleting = volume.as_ref().is_some_and(|volume| volume.deleting);
            ensure!(was_deleting, Durability, "volume {id} ({:?}) is gone", volume.map(|volume| volume.name));
        }
        for shown in status.volumes.iter().filter(|volume| !volume.deleting) {
            ensure!(shown.size_bytes % BLOCK_BYTES == 0, Protocol, "volume {} has {} bytes", shown.id, shown.size_bytes);
            let blocks = shown.size_bytes / BLOCK_BYTES;
            match self.volumes.get_mut(&shown.id) {
                Some(volume) => {
                    ensure!(volume.name == shown.name, Content, "volume {} is called {}, not {}", shown.id, shown.name, volume.name);
                    let resized = volume.resizing.take();
                    let known = blocks == volume.blocks.len() as u64 || resized == Some(blocks);
                    ensure!(known, Durability, "volume {} has {blocks} blocks, not {} (or {resized:?})", shown.id, volume.blocks.len());
                    volume.blocks.resize_with(blocks as usize, Default::default);
                    volume.deleting = false;
                }
                None => {
                    let created = self.creating.remove(&shown.name);
                    ensure!(created == Some(blocks), Content, "volume {} ({}) of {blocks} blocks appeared; expected {created:?}", shown.id, shown.name);
                    self.volumes.insert(shown.id, VolumeModel::new(shown.name.clone(), blocks));
                }
            }
        }
        self.creating.clear();
        Ok(())
    }

    /// Blocks whose content a crash left open, of all volumes.
    pub fn uncertain_blocks(&self) -> usize {
        self.volumes.values().flat_map(|volume| &volume.blocks).filter(|block| !block.is_certain()).count()
    }

    /// After a start, before new requests: what was read (and found legal) is the truth from now on. `bytes` are whole blocks.
    pub fn settle(&mut self, volume: VolumeId, first_block: u64, bytes: &[u8]) {
        let Some(model) = self.volumes.get_mut(&volume) else { return };
        for (index, content) in bytes.chunks_exact(BLOCK_SIZE).enumerate() {
            let lba = first_block + index as u64;
            let Some(block) = model.blocks.get_mut(lba as usize) else { return };
            if !block.is_certain() {
                let stamps = std::array::from_fn(|sector| {
                    let size = BLOCK_SIZE / SECTORS;
                    observe_sector(&content[sector * size..(sector + 1) * size], volume, lba, sector)
                });
                block.settle(&stamps);
            }
        }
    }
}

//! Salvage in copies: a copy of the pool, as a crash or a shutdown left it, gets a new map from its
//! batches.
//!
//! Nothing is lost. So no durable LSN may be discarded, and the resulting pool must start.
//!
//! 1. *On a checkpoint*: everything reads as after any other start, and no loss is reported.
//!    (Zeroes may have become holes.)
//! 2. *From batches alone*, as if no checkpoint were readable: every volume exists under its name,
//!    with its size or a larger one, and every block that holds data returns it. Left out is what
//!    such a salvage cannot know (crate `windrow-engine`, `recover/salvage.rs`): blocks that may be
//!    zeroes or ones, volumes that are being deleted, blocks of a pool that shares content, and of
//!    one whose starts have discarded LSNs that were not durable. Some of that may reappear.

use super::Run;
use crate::violation::{Broken, Violation, ensure};
use windrow_engine::{Engine, Loss, OpenOptions, OpenReport, RebuildWork};
use windrow_format::superblock::{Features, Superblock};
use windrow_io::BufPool;
use windrow_types::Lsn;

impl Run {
    /// Occasionally salvages a copy before a start.
    pub(super) fn rebuild_from_batches(&mut self) -> Result<(), Violation> {
        if self.goes_beyond
            || self.devices.discards
            || self.reads_are_fickle()
            || !self.emergency_rng.chance(60)
        {
            return Ok(());
        }
        if !self.is_done(|| "a copy of the pool gets a new map".to_owned()) {
            return Ok(());
        }
        let Some(superblock) = self.ruling() else {
            return Ok(());
        };
        let (members, model, newest) = (
            self.world.members.clone(),
            self.world.model.clone(),
            self.newest_lsn,
        );
        let alone = self.emergency_rng.chance(500);
        let options = OpenOptions {
            force: self.quorum_is_lost(),
            ..self.options()
        };
        let rebuilt = Engine::rebuild_map(
            &mut self.world.members,
            BufPool::new(1 << 20),
            &options,
            RebuildWork {
                write: true,
                without_checkpoint: alone,
            },
            &mut |_| (),
        );
        self.world.trace.tell(|| {
            format!("the map of a copy is rebuilt (from batches alone: {alone}): {rebuilt:?}")
        });
        let report = rebuilt.map_err(|error| {
            Violation::new(Broken::Open, format!("the map cannot be salvaged: {error}"))
        })?;
        let started = self.world.start(&options);
        let start = started.map_err(|failure| {
            Violation::new(
                Broken::Open,
                format!("after the rebuild of the map: {failure:?}"),
            )
        })?;
        let status = self.world.status();
        ensure!(
            report.lost_lsns.is_none(),
            Durability,
            "the rebuild of the map misses {:?}",
            report.lost_lsns
        );
        let recovery_lsn = self.or_never_given(report.recovery_lsn, &superblock);
        if report.checkpoint > 0 {
            // (The remainder of a batch without live data may be too little when others are absent:
            // that is reported, and loses nothing. Seed 9979771.)
            let is_dead = |loss: &Loss| {
                self.cured && loss.lsns.is_none() && loss.blocks.is_empty() && loss.more_runs == 0
            };
            ensure!(
                report.losses.iter().all(is_dead),
                Durability,
                "the rebuild of the map misses {:?}",
                report.losses
            );
            ensure!(
                report.lost_blocks_total == 0,
                Durability,
                "the rebuild of the map has lost {:?}",
                report.lost_blocks
            );
            // (It begins with LSNs above all that any batch names.)
            let found = OpenReport {
                recovery_lsn,
                ..start
            };
            self.world
                .model
                .reopened(&found, &status, self.newest_lsn)?;
            self.compare_reads()?;
        } else {
            self.world
                .model
                .rebuilt(recovery_lsn.0, &status, !self.has_voids)?;
            if superblock.features.incompatible & Features::SHARED == 0 && !self.has_voids {
                ensure!(
                    report.lost_blocks_total == 0,
                    Durability,
                    "the rebuild of the map has lost {:?}",
                    report.lost_blocks
                );
                self.read_data()?;
            }
        }
        self.maps_rebuilt += 1;
        self.world.power_cut();
        // (A removal may have ended in the copy: seed 8440194.)
        self.world.gone.clear();
        (self.world.members, self.world.model, self.newest_lsn) = (members, model, newest);
        Ok(())
    }

    /// LSNs between the two marks of a fence were never assigned. A start calls them accepted, and
    /// a read-only one leaves no fence that records it (seed 9930838); a salvage uses only assigned
    /// ones. If the last durable LSN is among those after the salvaged ones, both agree.
    fn or_never_given(&self, rebuilt: Lsn, superblock: &Superblock) -> Lsn {
        let promised = Lsn(self.world.model.promised());
        let is_between = superblock.fences.iter().any(|fence| {
            fence.recovery_lsn <= rebuilt && rebuilt < promised && promised < fence.next_lsn
        });
        if is_between { promised } else { rebuilt }
    }

    fn read_data(&mut self) -> Result<(), Violation> {
        for (volume, block) in self.world.model.blocks_with_data_for_certain() {
            self.world.read_back(volume, block, 1);
            if self.world.unanswered() >= 64 {
                self.world
                    .run_while("reading after the rebuild of the map", |world| {
                        world.unanswered() >= 32
                    })?;
            }
        }
        self.world
            .run_while("reading after the rebuild of the map", |world| {
                world.unanswered() > 0
            })
    }
}

//! End of a run: nothing is lost, nothing is left over, every counter is exact, also after a
//! shutdown.

use super::Run;
use super::hangs::Hanging;
use crate::content::SECTORS;
use crate::model::{Asked, VolumeChange};
use crate::scenario::Cycle;
use crate::violation::{Violation, ensure};
use windrow_engine::{Control, OpenOptions, ScrubCommand};
use windrow_format::checkpoint::{MAP_PAGE_ENTRIES, SyncMode};
use windrow_types::{BLOCK_BYTES, MemberId, VolumeId};

/// Pages of the map of a short-lived volume.
const PAGES: u64 = 4;

impl Run {
    /// Answers everything, flushes, quiesces and checks.
    pub(super) fn rest(&mut self) -> Result<(), Violation> {
        self.world.command(Control::Scrub(ScrubCommand::Stop));
        self.run_while("draining", |world| world.unanswered() > 0)?;
        let volume = self.world.model.volumes().keys().next().copied();
        // A volume whose flushes certainly have an effect.
        if let Some(volume) = volume.filter(|volume| !self.world.model.heeds_flushes(*volume)) {
            self.world.command(Control::VolumeSync {
                volume,
                sync: SyncMode::Standard,
            });
            self.run_while("setting its flushes back", |world| world.unanswered() > 0)?;
        }
        self.world
            .submit(volume.unwrap_or(VolumeId(1)), Asked::Flush);
        self.see_what_trims_left()?;
        self.world.run_to_rest()?;
        self.world.check_rest()
    }

    /// In a full pool trims may leave partial blocks unchanged: reads show which.
    fn see_what_trims_left(&mut self) -> Result<(), Violation> {
        self.run_while("flushing", |world| world.unanswered() > 0)?;
        for (volume, lba) in self.world.model.blocks_left_to_see() {
            self.world.read_back(volume, lba, 1);
            self.run_while("looking at what trims left", |world| world.unanswered() > 0)?;
        }
        Ok(())
    }

    /// Shuts down, then cuts the power: a clean pool must not be affected.
    pub(super) fn shut_down(&mut self) -> Result<(), Violation> {
        self.shut_down_beside(None)
    }

    /// Same, with a hung member.
    pub(super) fn shut_down_beside(&mut self, hanging: Option<Hanging>) -> Result<(), Violation> {
        let export = self.rng.chance(500);
        self.world.command(Control::Shutdown { export });
        if let Some(mut hanging) = hanging {
            while self.world.unanswered() > 0 && self.hanging_step(&mut hanging)? && self.turn()? {}
        }
        self.run_while("shutting down", |world| world.unanswered() > 0)?;
        if export {
            self.world.check_exported()?;
        }
        for _ in 0..1000 {
            if self.world.under_way() == 0 {
                break;
            }
            self.turn()?;
        }
        ensure!(
            self.world.under_way() == 0,
            Leak,
            "{} pending after the shutdown was answered",
            self.world.under_way()
        );
        self.world.model.shut_down();
        self.count_session();
        self.cut_power();
        self.devices_shut_down();
        (self.clean, self.owned) = (export, self.owned && !export);
        Ok(())
    }

    /// Runs the last start and all checks.
    pub(super) fn finish(&mut self) -> Result<(), Violation> {
        let cycle = Cycle::idle();
        if self.rng.chance(600) {
            self.return_members();
        }
        self.begin(&cycle)?;
        self.end_exchanges()?;
        self.rebuild()?;
        self.end_reshape()?;
        self.rest()?;
        self.compare_and_scrub()?;
        self.room_comes_back()?;
        self.rest()?;
        self.shut_down()?;
        self.trade_members()?;
        self.too_many_absent()?;
        self.begin(&cycle)?;
        self.rebuild()?;
        self.rest()?;
        self.shut_down()?;
        self.check_at_the_end()?;
        self.two_hosts()
    }

    /// Members that were away return and are rebuilt; then others leave, as many as the redundancy
    /// covers, so that reads depend on the rebuilt ones.
    fn trade_members(&mut self) -> Result<(), Violation> {
        if self.rng.chance(400) {
            return Ok(());
        }
        for _ in 0..2 {
            self.return_members();
            for _ in 0..self.rng.below(3) {
                self.crash_in_rebuild()?;
            }
            self.begin(&Cycle::idle())?;
            self.rebuild()?;
            self.compare()?;
            self.rest()?;
            self.shut_down()?;
            let mut healthy: Vec<MemberId> = self
                .data
                .iter()
                .copied()
                .filter(|member| !self.world.failing_members.contains(member))
                .collect();
            self.rng.shuffle(&mut healthy);
            healthy.truncate(
                self.scenario
                    .redundancy
                    .tolerance()
                    .saturating_sub(self.failing_data()),
            );
            for member in healthy {
                self.world.trace.tell(|| format!("member {member} goes"));
                self.note_fault(member, true);
                self.world.members.ailment_mut(member).gone = true;
            }
            self.begin(&Cycle::idle())?;
            self.some_writes()?;
            self.rest()?;
            self.shut_down()?;
        }
        Ok(())
    }

    /// Waits until no member is being rebuilt.
    pub(super) fn rebuild(&mut self) -> Result<(), Violation> {
        self.run_while("rebuilding", |world| {
            world
                .status()
                .members
                .iter()
                .any(|member| member.state == "rebuilding")
        })?;
        self.heal();
        Ok(())
    }

    /// Cuts the power at some moment of a rebuild, with concurrent writes and perhaps a checkpoint.
    fn crash_in_rebuild(&mut self) -> Result<(), Violation> {
        self.begin(&Cycle::idle())?;
        self.some_writes()?;
        if self.rng.chance(500) {
            self.world.command(Control::Checkpoint);
        }
        for _ in 0..self.rng.below(400) {
            if !self.turn()? {
                break;
            }
        }
        self.some_writes()?;
        for _ in 0..self.rng.below(40) {
            if !self.turn()? {
                break;
            }
        }
        self.count_session();
        self.cut_power();
        Ok(())
    }

    /// Writes a few blocks to all volumes.
    pub(super) fn some_writes(&mut self) -> Result<(), Violation> {
        let volumes: Vec<_> = self
            .world
            .model
            .volumes()
            .iter()
            .map(|(id, volume)| (*id, volume.blocks.len() as u64))
            .collect();
        for (id, blocks) in volumes.into_iter().filter(|(_, blocks)| *blocks > 0) {
            for _ in 0..20 {
                let (block, stamp) = (
                    self.rng.below(blocks),
                    u64::MAX / 3 + self.rng.below(1 << 40),
                );
                self.world.submit(
                    id,
                    Asked::Write {
                        at: block * 8,
                        count: 8,
                        stamps: vec![stamp],
                        fua: false,
                    },
                );
            }
            self.run_while("some writes", |world| world.unanswered() > 0)?;
        }
        Ok(())
    }

    /// Checks that with one member too few the pool does not start, and is not changed.
    fn too_many_absent(&mut self) -> Result<(), Violation> {
        let wanted = self.scenario.redundancy.tolerance() + 1;
        if wanted >= self.data.len() || !self.rng.chance(300) {
            return Ok(());
        }
        let mut healthy: Vec<MemberId> = self
            .data
            .iter()
            .copied()
            .filter(|member| !self.world.failing_members.contains(member))
            .collect();
        if healthy.len() < wanted {
            return Ok(());
        }
        self.rng.shuffle(&mut healthy);
        healthy.truncate(wanted);
        healthy
            .iter()
            .for_each(|member| self.world.members.ailment_mut(*member).gone = true);
        let force = self.rng.chance(500);
        let options = OpenOptions {
            host: self.host,
            read_only: false,
            force,
            discard_journal: false,
            limits: self.scenario.limits,
        };
        let started = self.world.start(&options);
        ensure!(
            started.is_err(),
            Open,
            "the pool started (force: {force}) although the members {healthy:?} are absent"
        );
        self.world.check_untouched()?;
        healthy
            .iter()
            .for_each(|member| self.world.members.ailment_mut(*member).gone = false);
        Ok(())
    }

    /// Checks that an empty pool needs segments only for its open streams and two checkpoints.
    fn segments_come_back(&mut self) -> Result<(), Violation> {
        for _ in 0..3 {
            self.world.command(Control::Checkpoint);
            self.run_while("a checkpoint of an empty pool", |world| {
                world.unanswered() > 0
            })?;
            self.rest()?;
        }
        let status = self.world.status();
        let held = status.plan.segments - status.free_segments;
        // Pages of the deduplication index outlive the contents they list, and each may lie in a
        // segment of its own.
        let pages = status.dedup.index_pages as u32;
        let text = || {
            format!(
                "an empty pool holds {held} of {} segments, {pages} pages of the index; {}",
                status.plan.segments,
                self.world.summary()
            )
        };
        ensure!(
            held <= status.plan.reserve_segments + pages,
            Leak,
            "{}",
            text()
        );
        Ok(())
    }

    /// Checks that nothing is mapped: only content shared between volumes may have pages. Then
    /// creates and deletes sparse volumes; memory use must not grow.
    fn memory_comes_back(&mut self) -> Result<(), Violation> {
        let status = self.world.status();
        if status.dedup.ids_bytes == 0 && status.dedup.index_pages == 0 {
            ensure!(
                status.map_pages == 0,
                Leak,
                "{} pages of the map after everything was trimmed",
                status.map_pages
            );
        }
        let mut before = None;
        for round in 0..3 {
            if !self.is_done(|| format!("volume short-lived-{round} comes and goes")) {
                continue;
            }
            self.short_lived_volume(round)?;
            let status = self.world.status();
            let held = (status.map_pages, status.map_bytes);
            // The first round may find a lower peak.
            let first = *before.get_or_insert(held);
            ensure!(
                held == first,
                Leak,
                "volumes came and went, and the map has (pages, bytes) {held:?} instead of {first:?}"
            );
        }
        Ok(())
    }

    /// A volume of some pages; some of its blocks are trimmed, the rest are deleted with it.
    fn short_lived_volume(&mut self, round: u64) -> Result<(), Violation> {
        let known: Vec<VolumeId> = self.world.model.volumes().keys().copied().collect();
        self.world.change(VolumeChange::Create(
            format!("short-lived-{round}"),
            PAGES * MAP_PAGE_ENTRIES as u64,
        ));
        self.run_while("creating a volume", |world| world.unanswered() > 0)?;
        // (There may be no room for one.)
        let Some(id) = self
            .world
            .model
            .volumes()
            .keys()
            .copied()
            .find(|id| !known.contains(id))
        else {
            return Ok(());
        };
        let first = |page: u64| page * (MAP_PAGE_ENTRIES * SECTORS) as u64;
        for page in 0..PAGES {
            self.world.submit(
                id,
                Asked::Write {
                    at: first(page),
                    count: SECTORS as u64,
                    stamps: vec![u64::MAX / 7 + page],
                    fua: false,
                },
            );
        }
        self.run_while("writing to a short-lived volume", |world| {
            world.unanswered() > 0
        })?;
        for page in 0..PAGES / 2 {
            self.world.submit(
                id,
                Asked::Zero {
                    at: first(page),
                    count: SECTORS as u64,
                    no_hole: None,
                    fua: false,
                },
            );
        }
        self.run_while("trimming a short-lived volume", |world| {
            world.unanswered() > 0
        })?;
        self.world.change(VolumeChange::Delete(id));
        self.rest()
    }

    /// Checks that a trim always works, and that there is room again afterwards.
    fn room_comes_back(&mut self) -> Result<(), Violation> {
        if !self.rng.chance(400) {
            return Ok(());
        }
        let volumes: Vec<_> = self
            .world
            .model
            .volumes()
            .iter()
            .map(|(id, volume)| (*id, volume.blocks.len() as u64 * 8))
            .collect();
        for (id, sectors) in &volumes {
            self.world.submit(
                *id,
                Asked::Zero {
                    at: 0,
                    count: *sectors,
                    no_hole: None,
                    fua: true,
                },
            );
        }
        self.rest()?;
        ensure!(
            self.world.status().used_bytes == 0,
            Accounting,
            "{} bytes are used after everything was trimmed",
            self.world.status().used_bytes
        );
        self.segments_come_back()?;
        self.memory_comes_back()?;
        let refused = self.world.model.refused;
        // In a tiny pool many volumes do not all get eight blocks.
        let mut left = self.world.status().plan.usable_bytes / BLOCK_BYTES;
        for (id, sectors) in volumes {
            let Some(rest) = left.checked_sub(sectors.min(64).div_ceil(8)) else {
                break;
            };
            left = rest;
            self.world.submit(
                id,
                Asked::Write {
                    at: 0,
                    count: sectors.min(64),
                    stamps: vec![u64::MAX / 2 + u64::from(id.0); 8],
                    fua: true,
                },
            );
        }
        self.rest()?;
        ensure!(
            self.world.model.refused == refused,
            Error,
            "a write into an empty pool was refused"
        );
        Ok(())
    }
}

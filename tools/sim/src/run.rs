//! One run of a seed, from creation to the last comparison.
//!
//! 1. Create the pool and cut the power at once: creation must be durable.
//! 2. For each cycle: start (some starts are cut off and repeated), read everything back and
//!    compare, work with faults within redundancy, end by a power cut or a shutdown.
//! 3. At the end: start, compare, flush, quiesce, leak and counter checks, two scrubs (the second
//!    one must not find what the first one repairs), shutdown, power cut, start with too many
//!    members absent (refused), start, compare.

mod beyond;
mod check;
mod devices;
mod emergency;
mod exchange;
mod faults;
mod finish;
mod full_ring;
mod growth;
mod halves;
mod hangs;
mod losses;
mod outcome;
mod removal;
mod replace;
mod scrub;
mod shadows;
mod spares;
mod steps;
mod tries;
mod turns;

use crate::members::{DeviceBug, VirtualMembers};
use crate::scenario::{Cycle, End, Scenario};
use crate::spread::Spread;
use crate::violation::{Broken, Violation, ensure};
use crate::workload::{Action, Workload};
use crate::world::{StartFailure, World};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use steps::Steps;
use windrow_engine::{Control, Engine, OpenOptions, OpenReport};
use windrow_format::superblock::Reduction;
use windrow_io::MemberIo;
use windrow_random::Rng;
use windrow_types::{BLOCK_BYTES, MemberId, Uuid};

pub use outcome::{Beyond, Canary, Outcome, RunOptions};
pub use steps::LeftOut;
pub use tries::Tries;

/// Number of blocks that one read of the comparison covers.
const READ_BACK_BLOCKS: u64 = 32;
/// Number of blocks that one block status of the comparison covers: its answer holds as many
/// extents.
const STATUS_BLOCKS: u64 = crate::model::MAX_EXTENTS as u64;

/// Runs a seed. Never panics: a panic of the engine is a violation.
pub fn run_seed(seed: u64, options: &RunOptions) -> Outcome {
    run_without(seed, options, &LeftOut::default())
}

/// Runs a seed without some of its steps.
pub fn run_without(seed: u64, options: &RunOptions, left_out: &LeftOut) -> Outcome {
    let mut run = Run::new(seed, options);
    run.steps = Steps::new(left_out.clone(), options.story);
    let result = catch_unwind(AssertUnwindSafe(|| run.all()));
    let violation = match result {
        Ok(result) => result.err(),
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()));
            Some(Violation::new(
                Broken::Panic,
                text.unwrap_or_else(|| "a panic without text".to_string()),
            ))
        }
    };
    Outcome {
        seed,
        trace_hash: run.world.trace.hash(),
        block_operations: run.done,
        power_cuts: run.power_cuts,
        checkpoints: run.checkpoints,
        segments_cleaned: run.segments_cleaned,
        further_blocks: run.further_blocks,
        repacked_bytes: run.repacked_bytes,
        gaps_readmitted: run.gaps_readmitted,
        refused: run.world.model.refused,
        wrong_blocks: run.wrong_blocks,
        rebuilt: run.rebuilt,
        faults: run.faults,
        replaced: run.replaced,
        exchanged: run.exchanged,
        spares_taken: run.spares.taken,
        renewed: run.shadows.taken,
        grown: run.grown,
        removed: run.removal.removed,
        removals_refused: run.removal.refused,
        devices_missed: run.devices.refused,
        journals_given_up: run.devices.given_up,
        checks: run.checks,
        maps_rebuilt: run.maps_rebuilt,
        starts_after_losses: run.losses.starts,
        starts_of_full_rings: run.full_rings.starts,
        cleaned_spread: if run.world.spread == Spread::default() {
            None
        } else {
            Some(run.segments_cleaned)
        },
        tries: run.world.tries.clone(),
        beyond: run.beyond,
        virtual_ns: run.world.now_ns(),
        violation,
        steps: run.steps.drawn,
        script: run.steps.take_script(),
        story: run.world.trace.take_story(),
    }
}

struct Run {
    scenario: Scenario,
    /// The data members, in order of their arrival.
    data: Vec<MemberId>,
    world: World,
    rng: Rng,
    seed: u64,
    steps: Steps,
    workload: Option<Workload>,
    /// Block operations done, and their limit.
    done: u64,
    bound: u64,
    /// Block operations of cycles that ended early because the power was cut at the loss of a
    /// journal device; they are done in cycles of their own.
    owed: u64,
    power_cuts: u64,
    checkpoints: u64,
    segments_cleaned: u64,
    further_blocks: u64,
    repacked_bytes: u64,
    gaps_readmitted: u64,
    wrong_blocks: u64,
    /// Members whose faults a rebuild repairs: they died, were away, or failed an operation, but
    /// nothing on them changed silently.
    curable: BTreeSet<MemberId>,
    /// Scrubs have repaired members as far as live data is concerned: batches without live data
    /// keep their damage.
    cured: bool,
    /// Number of members rebuilt.
    rebuilt: u64,
    /// Number of member faults.
    faults: u64,
    /// Number of members replaced by new devices.
    replaced: u64,
    /// Number of members that left and returned in service.
    exchanged: u64,
    exchange: Option<exchange::Exchange>,
    hangs: hangs::Hangs,
    spares: spares::Spares,
    shadows: shadows::Shadows,
    /// Number of activated growths.
    grown: u64,
    growth: Option<growth::Growth>,
    growth_rng: Rng,
    emergency_rng: Rng,
    losses: losses::Losses,
    full_rings: full_ring::FullRings,
    /// Number of maps salvaged from batches alone, and read.
    maps_rebuilt: u64,
    removal: removal::Removal,
    /// State of the journal devices.
    devices: devices::Devices,
    /// Number of offline checks.
    checks: u64,
    beyond: Beyond,
    goes_beyond: bool,
    newest_lsn: u64,
    /// A start has discarded LSNs that had been assigned.
    has_voids: bool,
    clean: bool,
    /// The pool certainly belongs to this host.
    owned: bool,
    host: Uuid,
    canary: DeviceBug,
}

impl Run {
    fn new(seed: u64, options: &RunOptions) -> Self {
        let mut scenario = Scenario::draw(seed, options.block_operations);
        let mut rng = Rng::stream(seed, "run");
        let canary = match options.canary {
            Canary::None | Canary::InEngine(_) => DeviceBug::None,
            Canary::DroppedFlush => DeviceBug::DroppedFlush {
                members: scenario.redundancy.tolerance() + 1,
            },
            Canary::DiscardBeforeFlush => {
                scenario.properties.discard = true;
                DeviceBug::DiscardBeforeFlush
            }
        };
        let mut members = VirtualMembers::new(
            &scenario.all_sizes(),
            scenario.discard_fill,
            Rng::stream(seed, "members"),
        );
        members.set_power_safe(scenario.power_safe());
        let ids = (scenario.sizes.len() as u8..scenario.all_sizes().len() as u8)
            .map(MemberId)
            .collect();
        let devices = devices::Devices::new(seed, if options.beyond { Vec::new() } else { ids });
        let host = Uuid::from_random(rng.bytes16());
        let mut world = World::new(seed, members, options.story);
        world.injected = options.canary;
        Self {
            data: (0..scenario.sizes.len() as u8).map(MemberId).collect(),
            scenario,
            world,
            rng,
            seed,
            steps: Steps::new(LeftOut::default(), false),
            workload: None,
            done: 0,
            bound: options.cut_at.unwrap_or(u64::MAX),
            owed: 0,
            power_cuts: 0,
            checkpoints: 0,
            segments_cleaned: 0,
            further_blocks: 0,
            repacked_bytes: 0,
            gaps_readmitted: 0,
            wrong_blocks: 0,
            curable: BTreeSet::new(),
            cured: false,
            rebuilt: 0,
            faults: 0,
            replaced: 0,
            exchanged: 0,
            exchange: None,
            hangs: hangs::Hangs::new(seed),
            spares: spares::Spares::new(seed),
            shadows: shadows::Shadows::new(seed),
            grown: 0,
            growth: None,
            growth_rng: Rng::stream(seed, "growth"),
            emergency_rng: Rng::stream(seed, "emergency"),
            losses: losses::Losses::new(seed),
            full_rings: full_ring::FullRings::new(seed),
            maps_rebuilt: 0,
            removal: removal::Removal::new(seed),
            devices,
            checks: 0,
            beyond: Beyond::default(),
            goes_beyond: options.beyond,
            newest_lsn: 0,
            has_voids: false,
            clean: false,
            owned: false,
            host,
            canary,
        }
    }

    fn all(&mut self) -> Result<(), Violation> {
        if self.goes_beyond {
            return self.all_beyond();
        }
        self.create()?;
        for (number, cycle) in self.scenario.cycles.clone().into_iter().enumerate() {
            if self.done >= self.bound {
                break;
            }
            if !self.is_done(|| format!("power cycle {number}")) {
                continue;
            }
            self.live(&cycle)?;
        }
        while self.owed > 0 && self.done < self.bound {
            let rest = Cycle {
                blocks: std::mem::take(&mut self.owed),
                ..Cycle::idle()
            };
            if self.is_done(|| "what is left of cycles that ended early".to_owned()) {
                self.live(&rest)?;
            }
        }
        self.finish()
    }

    /// Runs one cycle.
    fn live(&mut self, cycle: &Cycle) -> Result<(), Violation> {
        self.begin(cycle)?;
        self.work(cycle)?;
        self.end(cycle)
    }

    /// Creates the pool. Members too small for the engine's reserve are enlarged, as an
    /// administrator would do.
    fn create(&mut self) -> Result<(), Violation> {
        let spec = self.scenario.spec(&mut self.rng);
        self.world
            .trace
            .tell(|| format!("scenario: {:?}", self.scenario));
        let mut refused = String::new();
        for growth in 0..12 {
            let mut spec = spec.clone();
            let sizes: Vec<u64> = spec
                .members
                .iter()
                .map(|(_, size)| {
                    size + growth * (32 * u64::from(self.scenario.segment_rows) * BLOCK_BYTES)
                })
                .collect();
            spec.members
                .iter_mut()
                .zip(&sizes)
                .for_each(|(member, size)| member.1 = *size);
            if growth > 0 {
                self.world.members.resize(&sizes);
            }
            match Engine::format(&mut self.world.members, &spec) {
                Ok(()) => {
                    self.world.power_cut();
                    self.world.members.set_canary(self.canary);
                    return Ok(());
                }
                Err(error) => refused = error.to_string(),
            }
        }
        Err(Violation::new(
            Broken::Open,
            format!("the pool cannot be created: {refused}"),
        ))
    }

    /// Starts, possibly interrupted several times, and compares everything.
    fn begin(&mut self, cycle: &Cycle) -> Result<(), Violation> {
        if cycle.returns && self.is_done(|| "dead members return".to_owned()) {
            self.return_members();
        }
        let replaces = !self.take_undecided()
            && cycle.replaces
            && self.start_works()
            && self.is_done(|| "a member is replaced".to_owned());
        let was_shown = replaces && self.replace_member()?;
        if cycle.slots_rot && self.is_done(|| "superblock slots rot".to_owned()) {
            self.rot_slots();
        }
        if cycle.foreign_host && self.owned && self.is_done(|| "another host tries".to_owned()) {
            self.refuse_foreign_host()?;
        }
        // (A read-only start may show LSNs that are not durable, and records them nowhere: a device
        // that leaves now could take them along. Seed 9600747.)
        if was_shown {
            self.devices.ambush = None;
        } else if cycle.blocks > 0 && !self.devices.ids.is_empty() {
            if self.is_done(|| "something happens to journal devices".to_owned()) {
                self.devices_before_start()?;
            } else {
                self.devices.ambush = None;
            }
        }
        for count in &cycle.cut_starts {
            if !self.is_done(|| format!("a start is cut off after {count} writes and flushes")) {
                continue;
            }
            self.settle_devices()?;
            self.world.members.set_countdown(Some(*count));
            match self.open() {
                Err(StartFailure::PowerCut) => {
                    self.world
                        .trace
                        .tell(|| format!("start cut off after {count} writes and flushes"));
                    self.cut_power();
                    self.clean = false;
                }
                Err(StartFailure::Refused(text)) => {
                    return Err(Violation::new(
                        Broken::Open,
                        format!("start refused: {text}"),
                    ));
                }
                Ok(report) => {
                    // The start needed fewer writes than the countdown: cut it right afterwards
                    // instead.
                    self.opened(&report)?;
                    self.cut_power();
                    self.clean = false;
                }
            }
            self.world.members.set_countdown(None);
        }
        self.settle_devices()?;
        // (Findings of a read-only start are not recorded: with randomly failing reads, the next
        // start may find more. Seed 44837.)
        if cycle.look_first
            && !self.reads_are_fickle()
            && self.is_done(|| "a read-only start".to_owned())
        {
            self.look()?;
        }
        self.rebuild_from_batches()?;
        let predicted = self.predict()?;
        self.note(|| "start".to_owned());
        let report = match self.open() {
            Ok(report) => report,
            Err(failure) => {
                return Err(Violation::new(
                    Broken::Open,
                    format!("start failed: {failure:?}"),
                ));
            }
        };
        self.compare_predicted(predicted, report.recovery_lsn)?;
        self.opened(&report)?;
        self.devices.discards = false;
        (self.clean, self.owned) = (false, true);
        self.compare()?;
        if self.workload.is_none() {
            // A pool with compression accepts more blocks than fit uncompressed.
            let more = if self.scenario.properties.reduction == Reduction::Capacity {
                2
            } else {
                1
            };
            let blocks = self.world.status().plan.usable_bytes / BLOCK_BYTES
                * self.scenario.fill_per_mille
                / 1000
                * more;
            self.spread_volumes();
            let mut workload = Workload::new(self.seed, blocks);
            if self
                .scenario
                .journal
                .as_ref()
                .is_some_and(|journal| journal.bytes_each != Some(0))
            {
                workload = workload.with_syncs(self.seed);
            }
            if self.world.spread != Spread::default() {
                workload = workload.with_pressure(self.seed);
            }
            let first = workload.first_volume();
            self.workload = Some(workload);
            self.act(first);
            self.world
                .run_while("the first volume", |world| world.unanswered() > 0)?;
        }
        Ok(())
    }

    /// Volumes of a pool with a spread map put so few blocks into each page that a full pool has
    /// the drawn number of pages.
    fn spread_volumes(&mut self) {
        let status = self.world.status();
        let pages = self
            .scenario
            .spread_per_mille
            .filter(|_| !self.goes_beyond)
            .map(|share| status.map_pages_max * share / 1000);
        if let Some(pages) = pages {
            self.world.spread =
                Spread::runs_of((status.plan.usable_bytes / BLOCK_BYTES).div_ceil(pages.max(1)));
        }
    }

    /// Checks that a host to which the pool does not belong gets a refusal and changes nothing.
    fn refuse_foreign_host(&mut self) -> Result<(), Violation> {
        let host = Uuid::from_random(self.rng.bytes16());
        let options = OpenOptions {
            host,
            read_only: false,
            force: false,
            discard_journal: false,
            limits: self.scenario.limits,
        };
        let started = self.world.start(&options);
        ensure!(
            matches!(started, Err(StartFailure::Refused(_))),
            Open,
            "another host started the pool"
        );
        self.world.check_untouched()
    }

    /// Checks a read-only start: everything is readable, nothing is changed.
    fn look(&mut self) -> Result<(), Violation> {
        let (model, newest) = (self.world.model.clone(), self.newest_lsn);
        match self.open_with(true) {
            Ok(report) => self.opened(&report)?,
            Err(failure) => {
                return Err(Violation::new(
                    Broken::Open,
                    format!("read-only start failed: {failure:?}"),
                ));
            }
        }
        self.compare()?;
        self.world.check_untouched()?;
        self.world.power_cut();
        // LSNs that only a returning journal device has are read by a start that takes it back:
        // that start decides the recovery point (seed 35000550).
        self.world.model.unlook(model);
        self.newest_lsn = newest;
        Ok(())
    }

    fn open(&mut self) -> Result<OpenReport, StartFailure> {
        self.open_with(false)
    }

    fn open_with(&mut self, read_only: bool) -> Result<OpenReport, StartFailure> {
        let mut options = OpenOptions {
            read_only,
            ..self.options()
        };
        match self.world.start(&options) {
            Err(StartFailure::Refused(_)) if self.quorum_is_lost() => {
                options.force = true;
                self.world.start(&options)
            }
            other => other,
        }
    }

    /// True if half of the members or fewer are present: an automatic import may be refused.
    fn quorum_is_lost(&self) -> bool {
        let there = |member: &&MemberId| {
            self.world.members.is_present(**member) && !self.world.failing_members.contains(*member)
        };
        let count = self.data.len();
        let present = self.data.iter().filter(there).count();
        // (When a removal ends, the remaining members may need a majority of their own.)
        let stays = |member: &&MemberId| !self.may_be_leaving(**member);
        if self.leaving().is_some()
            && self.data.iter().filter(stays).filter(there).count() * 2 < count
        {
            return true;
        }
        // (During a growth also if the missing ones equal the redundancy.)
        present * 2 <= count
            || (self.scenario.grows > 0 && present <= self.scenario.redundancy.tolerance())
    }

    fn opened(&mut self, report: &OpenReport) -> Result<(), Violation> {
        self.note_removed();
        self.note_members();
        let status = self.world.status();
        self.world
            .model
            .reopened(report, &status, self.newest_lsn)?;
        self.gaps_readmitted +=
            u64::from(report.recovery_lsn > report.log_lsn && report.void_lsns > 0);
        ensure!(
            report.clean || !self.clean,
            Durability,
            "the pool was exported, but the start says that it was not clean"
        );
        self.has_voids |= report.recovery_lsn.0 < self.newest_lsn;
        self.newest_lsn = status.lsn.0;
        self.devices_opened();
        Ok(())
    }

    /// Reads every block of every volume, several reads at a time, and compares.
    fn compare(&mut self) -> Result<(), Violation> {
        self.compare_reads()?;
        let volumes: Vec<_> = self
            .world
            .model
            .volumes()
            .iter()
            .map(|(id, volume)| (*id, volume.blocks.len() as u64))
            .collect();
        for (id, blocks) in volumes {
            for first in (0..blocks).step_by(STATUS_BLOCKS as usize) {
                self.world
                    .look_at_status(id, first, STATUS_BLOCKS.min(blocks - first));
            }
            self.world
                .run_while("comparing block status", |world| world.unanswered() > 0)?;
        }
        let uncertain = self.world.model.uncertain_blocks();
        ensure!(
            uncertain == 0,
            Protocol,
            "{uncertain} blocks are uncertain after reading everything"
        );
        Ok(())
    }

    /// Reads everything and compares it.
    fn compare_reads(&mut self) -> Result<(), Violation> {
        let volumes: Vec<_> = self
            .world
            .model
            .volumes()
            .iter()
            .map(|(id, volume)| (*id, volume.blocks.len() as u64))
            .collect();
        for (id, blocks) in volumes {
            for first in (0..blocks).step_by(READ_BACK_BLOCKS as usize) {
                self.world
                    .read_back(id, first, READ_BACK_BLOCKS.min(blocks - first));
                if self.world.unanswered() >= 16 {
                    self.world
                        .run_while("comparing", |world| world.unanswered() >= 8)?;
                }
            }
        }
        self.world
            .run_while("comparing", |world| world.unanswered() > 0)?;
        Ok(())
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Request(volume, asked) => _ = self.world.submit(volume, asked),
            Action::Change(change) => self.world.change(change),
            Action::Checkpoint => self.world.command(Control::Checkpoint),
            Action::Count => self.world.command(Control::CountSharing),
            Action::Scrub(command) => self.world.command(Control::Scrub(command)),
            Action::Properties(properties) => {
                self.world.command(Control::SetProperties(properties))
            }
            Action::Dedup(volume, dedup) => {
                self.world.command(Control::VolumeDedup { volume, dedup })
            }
            Action::Compression(volume, compression) => {
                self.world.command(Control::VolumeCompression {
                    volume,
                    compression,
                })
            }
            Action::Sync(volume, sync) => self.world.command(Control::VolumeSync { volume, sync }),
        }
    }

    fn work(&mut self, cycle: &Cycle) -> Result<(), Violation> {
        let Some(mut workload) = self.workload.take() else {
            return Ok(());
        };
        let planned = self.done + cycle.blocks;
        let end = self.bound.min(planned);
        if self.exchange.is_none() {
            self.resume_exchange();
        }
        let of_devices = self.devices.draw_faults(cycle.blocks).into_iter();
        let mut of_devices: std::collections::VecDeque<_> = of_devices
            .map(|(after, fault)| (self.done + after, fault))
            .collect();
        let mut faults: std::collections::VecDeque<_> = cycle
            .faults
            .iter()
            .map(|(after, fault)| (self.done + after, *fault))
            .collect();
        while self.done < end && !self.is_ambushed() {
            let mut burst = workload.burst();
            while burst > 0
                && self.done < end
                && (self.world.unanswered() as u64) < workload.depth()
            {
                let (action, cost) = workload.next(&self.world.model);
                if self.is_done(|| format!("{action:?}")) {
                    self.act(action);
                }
                self.done += cost;
                burst -= 1;
            }
            while let Some((_, fault)) = faults.front().copied().filter(|(at, _)| *at <= self.done)
            {
                faults.pop_front();
                if self.is_done(|| format!("{fault:?} of a member")) {
                    self.fault_member(fault);
                }
            }
            while let Some((_, fault)) = of_devices
                .front()
                .copied()
                .filter(|(at, _)| *at <= self.done)
            {
                of_devices.pop_front();
                if self.is_done(|| format!("{fault:?} of a journal device")) {
                    self.fault_journal_device(fault);
                }
            }
            self.exchange_step()?;
            self.spare_step()?;
            self.shadow_step()?;
            self.growth_step()?;
            self.removal_step()?;
            self.flush_before_loss();
            let alive = self.turn()?;
            self.check_loss()?;
            self.check_full_ring()?;
            ensure!(
                alive || self.world.unanswered() == 0,
                Stuck,
                "nothing in progress; {}",
                self.world.summary()
            );
        }
        self.owed += if self.done < end {
            planned - self.done
        } else {
            0
        };
        self.workload = Some(workload);
        Ok(())
    }

    fn end(&mut self, cycle: &Cycle) -> Result<(), Violation> {
        let (mut export, mut hanging) = (false, None);
        match cycle.end {
            End::Shutdown => {
                self.end_exchanges()?;
                self.rest()?;
                let hanging = self.hang_at_the_end();
                return self.shut_down_beside(hanging);
            }
            End::CrashInCheckpoint => self.world.command(Control::Checkpoint),
            End::CrashInShutdown => {
                self.run_while("draining", |world| world.unanswered() > 0)?;
                export = self.rng.chance(300);
                self.owned &= !export;
                hanging = self.hang_at_the_end();
                self.world.command(Control::Shutdown { export });
            }
            End::Crash | End::CrashAndLoss => {}
        }
        // While the loss is being recorded, or when it is recorded and the log does not have what
        // was durable on the device.
        let turns = if self.is_ambushed() {
            self.rng.pick(&[0, 1, 2, 5, 10, 15, 20, 30, 40])
        } else {
            cycle.turns_to_crash
        };
        for _ in 0..turns
            + if hanging.is_some() {
                self.hangs.turns()
            } else {
                0
            }
        {
            if let Some(hanging) = &mut hanging {
                self.hanging_step(hanging)?;
            }
            let asked = self.world.unanswered_controls();
            if !self.turn()? {
                break;
            }
            if export && asked > 0 && self.world.unanswered_controls() == 0 {
                self.world.check_exported()?;
            }
            if hanging.is_some() {
                self.check_loss()?;
            }
        }
        self.count_session();
        if cycle.end == End::CrashInShutdown && self.world.unanswered_controls() == 0 {
            self.world.model.shut_down();
            self.clean = export;
            self.cut_power();
            self.devices_shut_down();
        } else {
            self.cut_power();
        }
        if cycle.end == End::CrashAndLoss
            && self.is_done(|| "a member does not come back".to_owned())
        {
            self.lose_member();
        }
        Ok(())
    }

    fn cut_power(&mut self) {
        self.note(|| "power cut".to_owned());
        self.note_devices();
        self.exchange = None;
        self.losses.leave();
        self.leave_growth();
        self.removal.leave();
        self.world.gone.clear();
        self.newest_lsn = self.newest_lsn.max(self.world.power_cut());
        self.leave_take_over();
        self.leave_shadow();
        self.power_cuts += 1;
    }

    fn count_session(&mut self) {
        let status = self.world.status();
        self.checkpoints += status.checkpoints;
        self.segments_cleaned += status.segments_cleaned;
        self.further_blocks += status.further_blocks;
        self.repacked_bytes += status.reduction.repacked_from_bytes;
    }
}

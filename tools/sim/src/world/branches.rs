//! Power cuts in copies of the world: one copy for each set of unflushed writes that may survive,
//! and copies of those with faults within redundancy. The faults are: each member absent, each with
//! its newest columns wrong or unreadable, and with two redundancy columns each pair of those.
//!
//! A start is a function of the image, faults included. Its result is kept by the hash of the
//! image. If the same image recurs at a later moment, or by another set of writes, the result is
//! compared with the model of that moment.

use super::{BUFFER_BYTES_KEPT, Pending, World};
use crate::members::{Ailment, Started, Survival, VirtualMembers};
use crate::model::{Asked, Contents, Model};
use crate::refusals::check_journal_refusal;
use crate::violation::{Broken, Violation, ensure};
use rustc_hash::{FxHashMap, FxHashSet};
use windrow_engine::{OpenError, OpenOptions, OpenReport, PoolStatus};
use windrow_io::{BufPool, MemberIo, MemberOp};
use windrow_random::{Rng, mix};
use windrow_types::{MemberId, VolumeId};

/// Up to this number of unflushed writes every set of them is tried.
const ALL_SETS_WRITES_MAX: usize = 6;
/// Number of random sets when there are more.
const DRAWN_SETS: u64 = 24;
/// Number of blocks that one read of the comparison covers.
const READ_BLOCKS: u64 = 32;
/// Number of moments for which an unused start result is kept.
const MOMENTS_KEPT: u64 = 8;

/// Additional fault at the start after a power cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wrong {
    /// The member is absent.
    Absent(MemberId),
    /// The member's last write has changed silently.
    Recent(MemberId),
    /// The member's last write is unreadable.
    Unreadable(MemberId),
}

impl Wrong {
    const fn member(self) -> MemberId {
        match self {
            Self::Absent(member) | Self::Recent(member) | Self::Unreadable(member) => member,
        }
    }
}

/// Every placement of up to `tolerance` (at most two) faults over `count` members; then of one on
/// the journal devices, if another one is left, and the absence of all of these: a start may be
/// refused then.
fn placements(count: usize, tolerance: usize, devices: &[MemberId]) -> Vec<Vec<Wrong>> {
    let single = |m: usize| {
        [Wrong::Absent, Wrong::Recent, Wrong::Unreadable].map(|wrong| wrong(MemberId(m as u8)))
    };
    let mut all: Vec<Vec<Wrong>> = Vec::new();
    if tolerance >= 1 {
        all.extend((0..count).flat_map(single).map(|wrong| vec![wrong]));
    }
    if tolerance >= 2 {
        let pairs = (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b)));
        all.extend(pairs.flat_map(|(a, b)| {
            single(a)
                .into_iter()
                .flat_map(move |one| single(b).into_iter().map(move |other| vec![one, other]))
        }));
    }
    if devices.len() >= 2 {
        all.extend(
            devices
                .iter()
                .flat_map(|device| single(device.index()))
                .map(|wrong| vec![wrong]),
        );
    }
    if !devices.is_empty() {
        all.push(
            devices
                .iter()
                .map(|device| Wrong::Absent(*device))
                .collect(),
        );
    }
    all
}

/// Tries a power cut with these survivors of the unflushed writes.
type Attempt<'a> = dyn FnMut(&dyn Fn(usize) -> Survival) -> Result<(), Violation> + 'a;

/// Passes every set of survivors of `writes` unflushed writes to `attempt`; of many writes some
/// sets. Then each write torn: its first sectors with all others, its last ones alone, at a random
/// position.
fn sets_of_survivors(
    writes: usize,
    rng: &mut Rng,
    attempt: &mut Attempt<'_>,
) -> Result<(), Violation> {
    let survives = |survives: bool| {
        if survives {
            Survival::Whole
        } else {
            Survival::Lost
        }
    };
    if writes <= ALL_SETS_WRITES_MAX {
        (0..1u32 << writes)
            .try_for_each(|set| attempt(&|write| survives(set >> write & 1 == 1)))?;
    } else {
        attempt(&|_| Survival::Whole)?;
        attempt(&|_| Survival::Lost)?;
        for one in 0..writes {
            attempt(&|write| survives(write == one))?;
            attempt(&|write| survives(write != one))?;
        }
        for _ in 0..DRAWN_SETS {
            let set: Vec<bool> = (0..writes).map(|_| rng.chance(500)).collect();
            attempt(&|write| survives(set[write]))?;
        }
    }
    for torn in 0..writes {
        let (first, last) = (Survival::First(rng.bits()), Survival::Last(rng.bits()));
        attempt(&|write| {
            if write == torn {
                first
            } else {
                Survival::Whole
            }
        })?;
        attempt(&|write| if write == torn { last } else { Survival::Lost })?;
    }
    Ok(())
}

/// Counts of the attempts of one moment, or of a whole run.
#[derive(Debug)]
pub struct Cuts {
    /// Moments with each of the sets of writes that may survive.
    pub cuts: u64,
    /// Starts, including those with faults.
    pub starts: u64,
    /// Starts with faults.
    pub with_faults: u64,
    /// Images, faults included, that an earlier start had recovered: its result was compared with
    /// the model of the moment.
    pub again: u64,
    /// Refused starts without the journal devices.
    pub refused: u64,
    /// Hashes of the images before faults.
    pub images: FxHashSet<u64>,
    moments: u64,
    recovered: FxHashMap<u64, Recovered>,
    /// Memory reused by every start.
    buffers: BufPool,
}

impl Default for Cuts {
    fn default() -> Self {
        let buffers = BufPool::new(BUFFER_BYTES_KEPT);
        Self {
            cuts: 0,
            starts: 0,
            with_faults: 0,
            again: 0,
            refused: 0,
            images: Default::default(),
            moments: 0,
            recovered: Default::default(),
            buffers,
        }
    }
}

/// Result of a start from an image. The same image gives the same result, so it is started once.
#[derive(Debug)]
struct Recovered {
    report: OpenReport,
    status: PoolStatus,
    /// Content and block status of all volumes.
    contents: Contents,
    /// Number of the moment that last needed it.
    moment: u64,
}

impl World {
    /// Cuts the power now in copies of this world, starts each again, compares everything. If all
    /// unflushed writes survive or none, every placement of faults is tried as well, else one of
    /// them in turn.
    pub fn try_all_cuts(
        &self,
        options: &OpenOptions,
        tolerance: usize,
        rng: &mut Rng,
        cuts: &mut Cuts,
    ) -> Result<(), Violation> {
        let started: Vec<&Started> = self
            .pending
            .values()
            .filter_map(|pending| {
                if let Pending::Command(started) = pending {
                    Some(started)
                } else {
                    None
                }
            })
            .collect();
        let in_flight = started
            .iter()
            .filter(|started| matches!(started.command.op, MemberOp::Write { .. }))
            .count();
        let cached: usize = (0..self.members.member_count())
            .map(|m| self.members.member(MemberId(m as u8)).cached_writes())
            .sum();
        let writes = in_flight + cached;
        let devices = self.journal_devices();
        let placements = placements(
            self.members.member_count() - devices.len(),
            tolerance,
            &devices,
        );
        cuts.moments += 1;
        if cuts.moments.is_multiple_of(MOMENTS_KEPT) {
            let since = cuts.moments - MOMENTS_KEPT;
            cuts.recovered
                .retain(|_, recovered| recovered.moment >= since);
        }
        let mut turn = rng.below(placements.len().max(1) as u64) as usize;
        let mut attempt = |survival: &dyn Fn(usize) -> Survival| {
            let image = self.members.after_cut(&started, survival);
            cuts.images.insert(image.hash());
            let all = [Survival::Lost, Survival::Whole]
                .iter()
                .any(|one| (0..writes).all(|write| survival(write) == *one));
            turn += 1;
            cuts.cuts += 1;
            let chosen = placements
                .iter()
                .enumerate()
                .filter(|(n, _)| all || n % placements.len() == turn % placements.len())
                .map(|(_, wrong)| &wrong[..]);
            for wrong in std::iter::once(&[][..]).chain(chosen) {
                self.try_cut(options, image.clone(), wrong, cuts).map_err(|violation| {
                    let survived: Vec<_> = (0..writes).map(|write| (write, survival(write))).filter(|(_, survival)| *survival != Survival::Lost).collect();
                    let text = format!("power cut at {} ns, of {writes} unflushed writes survive {survived:?}, {wrong:?}: {}", self.now_ns, violation.text);
                    Violation::new(violation.broken, text)
                })?;
            }
            Ok(())
        };
        sets_of_survivors(writes, rng, &mut attempt)
    }

    /// Tries one image with one placement of faults.
    fn try_cut(
        &self,
        options: &OpenOptions,
        mut image: VirtualMembers,
        wrong: &[Wrong],
        cuts: &mut Cuts,
    ) -> Result<(), Violation> {
        for wrong in wrong {
            match *wrong {
                Wrong::Absent(member) => image.ailment_mut(member).gone = true,
                Wrong::Recent(member) => image.corrupt_recent(member),
                Wrong::Unreadable(member) => image.member_mut(member).lose_recent(),
            }
        }
        let hash = mix(image.hash() ^ wrong.len() as u64);
        if let Some(recovered) = cuts.recovered.get_mut(&hash) {
            cuts.again += 1;
            recovered.moment = cuts.moments;
            let (mut model, newest) = self.model_at_cut();
            model.reopened(&recovered.report, &recovered.status, newest)?;
            return model.check_contents(&recovered.contents);
        }
        cuts.starts += 1;
        cuts.with_faults += u64::from(!wrong.is_empty());
        let mut world = World::with_buffers(0, image, false, cuts.buffers.clone());
        world.spread = self.spread;
        world
            .failing_members
            .extend(wrong.iter().map(|wrong| wrong.member()));
        let devices = self.journal_devices();
        let without_devices = !devices.is_empty()
            && devices
                .iter()
                .all(|device| wrong.contains(&Wrong::Absent(*device)));
        let recovered = world.recover(self, options, without_devices, cuts.moments)?;
        drop(world);
        ensure!(
            cuts.buffers.handles() == 1,
            Leak,
            "{} buffers outlive their engine",
            cuts.buffers.handles() - 1
        );
        match recovered {
            Some(recovered) => _ = cuts.recovered.insert(hash, recovered),
            None => cuts.refused += 1,
        }
        Ok(())
    }

    /// Cuts the power now in a copy in which no unflushed write survives, a failed member is back,
    /// and others are absent. A start is refused and writes nothing, or recovers everything
    /// durable. `landed`: commands in flight to the failed member took effect. False if it was
    /// refused.
    pub fn start_in_copy(
        &self,
        options: &OpenOptions,
        (failed, landed): (Option<MemberId>, bool),
        absent: &[MemberId],
    ) -> Result<bool, Violation> {
        let started: Vec<&Started> = self
            .pending
            .values()
            .filter_map(|pending| {
                if let Pending::Command(started) = pending {
                    Some(started)
                } else {
                    None
                }
            })
            .collect();
        let mut image = self.members.after_cut(&started, |_| Survival::Lost);
        let all: Vec<MemberId> = (0..image.member_count() as u8).map(MemberId).collect();
        for started in started
            .iter()
            .filter(|started| landed && Some(started.command.member) == failed)
        {
            if let MemberOp::Write { offset, buf } = &started.command.op {
                image.member_mut(started.command.member).write(*offset, buf);
            }
        }
        for member in &all {
            let is_gone =
                absent.contains(member) || (Some(*member) != failed && !image.is_present(*member));
            *image.ailment_mut(*member) = Ailment {
                gone: is_gone,
                ..Ailment::default()
            };
        }
        let mut world = World::with_buffers(0, image, false, BufPool::new(BUFFER_BYTES_KEPT));
        world.spread = self.spread;
        world.failing_members.extend(all);
        let (model, newest) = self.model_at_cut();
        world.model = model;
        // Failures are judged here.
        world.model.lenient = true;
        let Ok(report) = world.start(options) else {
            world.check_untouched()?;
            return Ok(false);
        };
        let status = world.status();
        world.model.reopened(&report, &status, newest)?;
        world.read_all()?;
        let lost = world.unreadable.iter().chain(&world.told_lost).next();
        ensure!(
            lost.is_none(),
            Durability,
            "it starts (force: {}), but {lost:?} is lost",
            options.force
        );
        Ok(true)
    }

    /// Reads everything.
    fn read_all(&mut self) -> Result<(), Violation> {
        let volumes: Vec<(VolumeId, u64)> = self
            .model
            .volumes()
            .iter()
            .map(|(id, volume)| (*id, volume.blocks.len() as u64))
            .collect();
        for (id, blocks) in volumes {
            for first in (0..blocks).step_by(READ_BLOCKS as usize) {
                self.read_back(id, first, READ_BLOCKS.min(blocks - first));
                if self.unanswered() >= 16 {
                    self.run_while("reading in a copy", |world| world.unanswered() >= 8)?;
                }
            }
        }
        self.run_while("reading in a copy", |world| world.unanswered() > 0)
    }

    /// Members that hold only a journal.
    pub(super) fn journal_devices(&self) -> Vec<MemberId> {
        let devices = self
            .engine
            .as_ref()
            .map_or(0, |engine| engine.journals().devices());
        (0..64)
            .filter(|member| devices >> member & 1 == 1)
            .map(MemberId)
            .collect()
    }

    /// The model after a power cut now, and the newest LSN that the engine has assigned.
    fn model_at_cut(&self) -> (Model, u64) {
        let mut model = self.model.clone();
        let newest = self.engine.as_ref().map_or(0, |engine| {
            let status = engine.status();
            model.claimed_durable(status.durable_lsn.0);
            status.lsn.0
        });
        (model, newest)
    }

    /// Starts the result of a power cut of another world; compares everything. Without the journal
    /// devices it may be refused; then the journal is discarded, and the result is not kept for
    /// other moments.
    fn recover(
        &mut self,
        before: &World,
        options: &OpenOptions,
        without_devices: bool,
        moment: u64,
    ) -> Result<Option<Recovered>, Violation> {
        // Half of the members or fewer do not start automatically; a member whose newest superblock
        // is wrong may count as absent.
        let devices = before.journal_devices();
        let count = self.members.member_count() - devices.len();
        let few = 2
            * (count
                - self
                    .failing_members
                    .iter()
                    .filter(|member| !devices.contains(member))
                    .count())
            <= count;
        let options = &OpenOptions {
            force: options.force || few,
            ..options.clone()
        };
        let (model, newest) = before.model_at_cut();
        self.model = model;
        let log = before.durable_lsns().0;
        let mut started = self.start(options);
        let refused = started.is_err()
            && matches!(
                self.refusal,
                Some(OpenError::JournalMissing { .. } | OpenError::Lost(_))
            )
            && without_devices;
        if refused {
            self.check_untouched()?;
            self.refusal.take().map_or(Ok(()), |error| {
                check_journal_refusal(&error, &devices, log, newest)
            })?;
            if !self.model.knows(log) {
                return Ok(None);
            }
            self.model.give_up(log);
            started = self.start(&OpenOptions {
                discard_journal: true,
                ..options.clone()
            });
        }
        let report = started.map_err(|failure| {
            Violation::new(Broken::Open, format!("start failed: {failure:?}"))
        })?;
        let status = self.status();
        self.model.reopened(&report, &status, newest)?;
        let volumes: Vec<(VolumeId, u64)> = self
            .model
            .volumes()
            .iter()
            .map(|(id, volume)| (*id, volume.blocks.len() as u64))
            .collect();
        for (id, blocks) in &volumes {
            for first in (0..*blocks).step_by(READ_BLOCKS as usize) {
                self.read_back(*id, first, READ_BLOCKS.min(blocks - first));
                self.look_at_status(*id, first, READ_BLOCKS.min(blocks - first));
            }
            self.run_while("comparing", |world| world.unanswered() > 0)?;
        }
        let uncertain = self.model.uncertain_blocks();
        ensure!(
            uncertain == 0,
            Protocol,
            "{uncertain} blocks are uncertain after reading everything"
        );
        let contents = self.model.contents();
        self.submit(
            volumes.first().map_or(VolumeId(1), |(id, _)| *id),
            Asked::Flush,
        );
        self.run_to_rest()?;
        self.check_rest()?;
        Ok((!refused).then_some(Recovered {
            report,
            status,
            contents,
            moment,
        }))
    }
}

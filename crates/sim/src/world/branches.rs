//! What would be if the power went now: copies of the world, one for each set of unflushed writes that may survive, and copies of those with
//! faults within redundancy: each member absent, each with its newest columns wrong, and with two redundancy columns each pair of those.

use super::{Pending, World};
use crate::members::{Started, VirtualMembers};
use crate::model::Asked;
use crate::rng::Rng;
use crate::violation::{Broken, Violation, ensure};
use std::collections::BTreeSet;
use windrow_engine::OpenOptions;
use windrow_io::{MemberIo, MemberOp};
use windrow_units::{MemberId, VolumeId};

/// Up to so many unflushed writes every set of them is tried.
const ALL_SETS_WRITES_MAX: usize = 6;
/// Sets drawn at random when there are more.
const DRAWN_SETS: u64 = 24;
/// Blocks that one read of the comparison covers.
const READ_BLOCKS: u64 = 32;

/// What else is wrong at the start after a power cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wrong {
    /// The member is not there.
    Absent(MemberId),
    /// What was written last to the member has changed silently.
    Recent(MemberId),
}

/// Every placement of up to `tolerance` (at most two) faults over `count` members.
fn placements(count: usize, tolerance: usize) -> Vec<Vec<Wrong>> {
    let single = |m: usize| [Wrong::Absent(MemberId(m as u8)), Wrong::Recent(MemberId(m as u8))];
    let mut all: Vec<Vec<Wrong>> = Vec::new();
    if tolerance >= 1 {
        all.extend((0..count).flat_map(single).map(|wrong| vec![wrong]));
    }
    if tolerance >= 2 {
        let pairs = (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b)));
        all.extend(pairs.flat_map(|(a, b)| single(a).into_iter().flat_map(move |one| single(b).into_iter().map(move |other| vec![one, other]))));
    }
    all
}

/// What was tried of one moment, or of a whole run.
#[derive(Clone, Debug, Default)]
pub struct Cuts {
    /// Starts, those with faults included.
    pub starts: u64,
    /// Starts with faults.
    pub with_faults: u64,
    /// Hashes of the images before faults.
    pub images: BTreeSet<u64>,
}

impl World {
    /// Cuts the power now in copies of this world, starts each again, compares everything. If all unflushed writes survive or none, every
    /// placement of faults is tried as well, else one of them in turn.
    pub fn try_all_cuts(&self, options: &OpenOptions, tolerance: usize, rng: &mut Rng, cuts: &mut Cuts) -> Result<(), Violation> {
        let started: Vec<&Started> =
            self.pending.values().filter_map(|pending| if let Pending::Command(started) = pending { Some(started) } else { None }).collect();
        let in_flight = started.iter().filter(|started| matches!(started.command.op, MemberOp::Write { .. })).count();
        let cached: usize = (0..self.members.member_count()).map(|m| self.members.member(MemberId(m as u8)).cached_writes()).sum();
        let writes = in_flight + cached;
        let placements = placements(self.members.member_count(), tolerance);
        let mut attempt = |keep: &dyn Fn(usize) -> bool| {
            let image = self.members.after_cut(&started, keep);
            cuts.images.insert(image.hash());
            let kept = (0..writes).filter(|write| keep(*write)).count();
            let all = kept == 0 || kept == writes;
            let turn = cuts.starts as usize;
            let chosen = placements.iter().enumerate().filter(|(n, _)| all || n % placements.len() == turn % placements.len()).map(|(_, wrong)| &wrong[..]);
            for wrong in std::iter::once(&[][..]).chain(chosen) {
                cuts.starts += 1;
                cuts.with_faults += u64::from(!wrong.is_empty());
                self.try_cut(options, image.clone(), wrong).map_err(|violation| {
                    let kept: Vec<usize> = (0..writes).filter(|write| keep(*write)).collect();
                    let text = format!("power cut at {} ns, of {writes} unflushed writes {kept:?} survive, {wrong:?}: {}", self.now_ns, violation.text);
                    Violation::new(violation.broken, text)
                })?;
            }
            Ok(())
        };
        if writes <= ALL_SETS_WRITES_MAX {
            return (0..1u32 << writes).try_for_each(|set| attempt(&|write| set >> write & 1 == 1));
        }
        attempt(&|_| true)?;
        attempt(&|_| false)?;
        for one in 0..writes {
            attempt(&|write| write == one)?;
            attempt(&|write| write != one)?;
        }
        for _ in 0..DRAWN_SETS {
            let set: Vec<bool> = (0..writes).map(|_| rng.chance(500)).collect();
            attempt(&|write| set[write])?;
        }
        Ok(())
    }

    fn try_cut(&self, options: &OpenOptions, image: VirtualMembers, wrong: &[Wrong]) -> Result<(), Violation> {
        let mut world = World::new(0, image, false);
        for wrong in wrong {
            match *wrong {
                Wrong::Absent(member) => world.members.ailment_mut(member).gone = true,
                Wrong::Recent(member) => world.members.corrupt_recent(member),
            }
            let (Wrong::Absent(member) | Wrong::Recent(member)) = *wrong;
            world.ailing.insert(member);
        }
        // Half of the members or fewer do not start by themselves; a member whose newest superblock is wrong may count as absent.
        let few = 2 * (self.members.member_count() - world.ailing.len()) <= self.members.member_count();
        let options = &OpenOptions { force: options.force || few, ..options.clone() };
        world.model = self.model.clone();
        let newest = self.engine.as_ref().map_or(0, |engine| {
            let status = engine.status();
            world.model.claimed_durable(status.durable_order.0);
            status.order.0
        });
        let report = world.start(options).map_err(|failure| Violation::new(Broken::Open, format!("start failed: {failure:?}")))?;
        let status = world.status();
        world.model.reopened(&report, &status, newest)?;
        let volumes: Vec<(VolumeId, u64)> = world.model.volumes().iter().map(|(id, volume)| (*id, volume.blocks.len() as u64)).collect();
        for (id, blocks) in &volumes {
            for first in (0..*blocks).step_by(READ_BLOCKS as usize) {
                world.read_back(*id, first, READ_BLOCKS.min(blocks - first));
                world.look_at_status(*id, first, READ_BLOCKS.min(blocks - first));
            }
            world.run_while("comparing", |world| world.unanswered() > 0)?;
        }
        let uncertain = world.model.uncertain_blocks();
        ensure!(uncertain == 0, Protocol, "{uncertain} blocks are uncertain after reading everything");
        world.submit(volumes.first().map_or(VolumeId(1), |(id, _)| *id), Asked::Flush);
        world.run_to_rest()?;
        world.check_rest()
    }
}

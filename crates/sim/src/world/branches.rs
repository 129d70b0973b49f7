//! What would be if the power went now: copies of the world, one for each set of unflushed writes that may survive.

use super::{Pending, World};
use crate::members::Started;
use crate::model::Asked;
use crate::rng::Rng;
use crate::violation::{Broken, Violation, ensure};
use windrow_engine::OpenOptions;
use windrow_io::{MemberIo, MemberOp};
use windrow_units::{MemberId, VolumeId};

/// Up to so many unflushed writes every set of them is tried.
const ALL_SETS_WRITES_MAX: usize = 6;
/// Sets drawn at random when there are more.
const DRAWN_SETS: u64 = 24;
/// Blocks that one read of the comparison covers.
const READ_BLOCKS: u64 = 32;

impl World {
    /// Cuts the power now in copies of this world, starts each again, compares everything. The number of copies.
    pub fn try_all_cuts(&self, options: &OpenOptions, rng: &mut Rng) -> Result<u64, Violation> {
        let started: Vec<&Started> =
            self.pending.values().filter_map(|pending| if let Pending::Command(started) = pending { Some(started) } else { None }).collect();
        let in_flight = started.iter().filter(|started| matches!(started.command.op, MemberOp::Write { .. })).count();
        let cached: usize = (0..self.members.member_count()).map(|m| self.members.member(MemberId(m as u8)).cached_writes()).sum();
        let writes = in_flight + cached;
        let mut tried = 0;
        let mut attempt = |keep: &dyn Fn(usize) -> bool| {
            tried += 1;
            self.try_cut(options, &started, keep).map_err(|violation| {
                let kept: Vec<usize> = (0..writes).filter(|write| keep(*write)).collect();
                Violation::new(violation.broken, format!("power cut at {} ns, of {writes} unflushed writes {kept:?} survive: {}", self.now_ns, violation.text))
            })
        };
        if writes <= ALL_SETS_WRITES_MAX {
            (0..1u32 << writes).try_for_each(|set| attempt(&|write| set >> write & 1 == 1))?;
            return Ok(tried);
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
        Ok(tried)
    }

    fn try_cut(&self, options: &OpenOptions, in_flight: &[&Started], keep: &dyn Fn(usize) -> bool) -> Result<(), Violation> {
        let mut world = World::new(0, self.members.after_cut(in_flight, keep), false);
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

//! A whole disk that comes into a pool: it gets a partition table, and its one partition is the
//! member.

use super::Pool;
use super::exchange::{Needs, journal_needs, must_fit_a_place, slot_for_another, spare_needs};
use super::replacement::must_replace_none;
use crate::failure::Failure;
use crate::offline::partition::{self, Partitioning, Planned};
use crate::offline::{FoundMember, Newcomer};
use windrow_engine::{MemberStatus, PoolStatus};
use windrow_types::MemberId;

/// Future place of a disk in the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The slot of a member.
    Member {
        /// Its slot.
        member: MemberId,
        /// The device is declared power-safe.
        power_safe: bool,
    },
    /// A spare.
    Spare {
        /// Proceed although it is too small for every member.
        small: bool,
    },
    /// A journal device.
    Journal {
        /// The device is declared power-safe.
        power_safe: bool,
    },
}

impl Pool {
    /// Calls `work` with a newcomer: the partition that is made on it, if it is a disk and
    /// `partitioning` asks for that. The whole disk is used if it is large enough and the partition
    /// would not be: for the member's slot, or otherwise for that of any member. Nothing is written
    /// before the partition is known to fit.
    ///
    /// # Errors
    /// Those of `work`, after which the table is removed again; or the disk is in use, holds
    /// something, or cannot be partitioned.
    pub fn on_partition<T>(
        &self,
        newcomer: &Newcomer,
        partitioning: Partitioning,
        place: Place,
        what: &str,
        work: impl FnOnce(&Newcomer) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let pool = self.status_now(what)?;
        let Some(planned) = partition::planned(
            &newcomer.path,
            partitioning,
            partition::alignment_of(&pool.plan.zones),
        ) else {
            return work(newcomer);
        };
        let counts = |status: &&MemberStatus| match place {
            Place::Member { member, .. } => status.member == member,
            _ => !["spare", "removed"].contains(&status.state) && !status.journal,
        };
        let is_too_small = |status: &MemberStatus| {
            planned.size_bytes() < status.needed_bytes
                && status.needed_bytes <= planned.disk_bytes()
        };
        if pool.members.iter().filter(counts).any(is_too_small) {
            tracing::warn!(
                "{} is used without a partition table: a partition would be too small for the place that it takes",
                newcomer.path.display()
            );
            return work(newcomer);
        }
        newcomer.examine(what)?;
        planned.must_be_possible(what)?;
        self.must_not_be_another_path(&pool, &planned, newcomer, what)?;
        let (slot, needs) = self.place_for(&planned, newcomer, place, what)?;
        // The table erases the signs that the disk was in this pool.
        self.empty_former(&pool, slot, newcomer, needs, what)?;
        let probed = newcomer.examine(what)?;
        let path = planned.make(probed, what)?;
        work(&newcomer.on(path.clone())).inspect_err(|_| planned.undo_unless_used(&path))
    }

    /// The slot that the partition gets, and its requirements.
    ///
    /// # Errors
    /// The partition does not fit, or nothing may come to that slot.
    fn place_for(
        &self,
        planned: &Planned,
        newcomer: &Newcomer,
        place: Place,
        what: &str,
    ) -> Result<(MemberId, Needs), Failure> {
        let pool = self.status_now(what)?;
        let (size, path) = (planned.size_bytes(), &newcomer.path);
        let (slot, needs) = match place {
            Place::Member { member, power_safe } => {
                let (pool, status) = self.replaceable(member, power_safe, what)?;
                if status.state == "online" && !status.journal && status.hangs_ms == 0 {
                    must_replace_none(&pool, what)?;
                    slot_for_another(&pool, what)?;
                }
                (
                    member,
                    Needs {
                        bytes: status.needed_bytes,
                        sector_max: status.sector_bytes_max,
                        power_safe: status.power_safe,
                    },
                )
            }
            Place::Spare { small } => {
                if !small {
                    must_fit_a_place(&pool, path, size, what)?;
                }
                (slot_for_another(&pool, what)?, spare_needs(&pool))
            }
            Place::Journal { power_safe } => {
                (slot_for_another(&pool, what)?, journal_needs(power_safe))
            }
        };
        needs.must_be_met(path, size, planned.sector_bytes(), what)?;
        Ok((slot, needs))
    }

    /// Refuses a disk with a member of this pool that is in service by another path to the drive.
    fn must_not_be_another_path(
        &self,
        pool: &PoolStatus,
        planned: &Planned,
        newcomer: &Newcomer,
        what: &str,
    ) -> Result<(), Failure> {
        let bare = crate::offline::examine(&newcomer.path).ok().flatten();
        let is_it = |found: &FoundMember| found.label.pool == pool.pool;
        planned
            .members()
            .iter()
            .chain(&bare)
            .filter(|found| is_it(found))
            .try_for_each(|found| self.must_not_be_served(found, &newcomer.path, what))
    }
}

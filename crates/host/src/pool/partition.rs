//! A whole disk that comes into a pool: it gets a partition table, and its one partition is the member.

use super::Pool;
use crate::failure::Failure;
use crate::offline::partition::{self, Partitioning, Planned};
use crate::offline::{FoundMember, Newcomer};
use windrow_engine::api::{MemberStatus, PoolStatus};
use windrow_units::MemberId;

impl Pool {
    /// Does `work` with a newcomer: with the partition that is made of it if it is a disk, and if `partitioning` wants that. The bare disk is used where the partition
    /// would be too small and the disk is not: for `member`'s place, or, without one, for that of any member.
    ///
    /// # Errors
    /// Of `work`, after which the table is taken away again; or the disk is in use, holds something, or cannot be partitioned.
    pub fn on_partition<T>(
        &self,
        newcomer: &Newcomer,
        partitioning: Partitioning,
        member: Option<MemberId>,
        what: &str,
        work: impl FnOnce(&Newcomer) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let pool = self.status_now(what)?;
        let Some(planned) = partition::planned(&newcomer.path, partitioning, partition::alignment_of(&pool.plan.zones)) else { return work(newcomer) };
        let counts = |status: &&MemberStatus| match member {
            Some(member) => status.member == member,
            None => !["spare", "removed"].contains(&status.state) && !status.journal,
        };
        let is_too_small = |status: &MemberStatus| planned.size_bytes() < status.needed_bytes && status.needed_bytes <= planned.disk_bytes();
        if pool.members.iter().filter(counts).any(is_too_small) {
            tracing::warn!("{} is used without a partition table: a partition would be too small for the place that it takes", newcomer.path.display());
            return work(newcomer);
        }
        let probed = newcomer.examine(what)?;
        self.must_not_be_another_path(&pool, &planned, newcomer, what)?;
        let path = planned.make(probed, what)?;
        work(&newcomer.on(path.clone())).inspect_err(|_| planned.undo_unless_used(&path))
    }

    /// A member of this pool on a partition of the disk is in service by another path to the drive.
    fn must_not_be_another_path(&self, pool: &PoolStatus, planned: &Planned, newcomer: &Newcomer, what: &str) -> Result<(), Failure> {
        let bare = crate::offline::examine(&newcomer.path).ok().flatten();
        let is_it = |found: &FoundMember| found.label.pool == pool.pool;
        planned.members().iter().chain(&bare).filter(|found| is_it(found)).try_for_each(|found| self.must_not_be_served(found, &newcomer.path, what))
    }
}

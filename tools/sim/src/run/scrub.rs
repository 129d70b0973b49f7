//! Repairs restore redundancy: whatever reads and scrubs find wrong has its redundancy again, and
//! other members may fail.
//!
//! An offline check of a copy, independent of the engine, lists the blocks in use, or in a row with
//! one in use, that are wrong on a present member.
//!
//! 1. After a full read, each reported repair has moved its block to an address where it is right.
//! 2. If the check finds damage, the first scrub finds some, or the checkpoint that ends it no
//!    longer needs those blocks.
//! 3. Before the second scrub, which starts at once and finds nothing, the check finds no more
//!    damage. Labels are right.
//! 4. So members that were silently wrong are healthy again: the rest of the run is without others,
//!    needs their content, and no read may need a repair.

use super::Run;
use crate::members::Ailment;
use crate::violation::{Violation, ensure};
use windrow_engine::{Control, ScrubCommand, ScrubState};
use windrow_format::superblock::{LABEL_BYTES, LABEL_OFFSET, Label};
use windrow_inspect::{CheckOptions, Finding, FindingKind, Severity, check};
use windrow_random::Rng;
use windrow_types::MemberId;

/// Free segments, in addition to those of two checkpoints, with which no repair is abandoned
/// because there is no room.
const ROOM_FOR_REPAIRS: u32 = 6;

impl Run {
    /// Reads everything, then scrubs.
    pub(super) fn compare_and_scrub(&mut self) -> Result<(), Violation> {
        // Often a scrub begins while repairs of the reads are still in flight.
        let rests = Rng::stream(self.seed, "rest before scrubs").chance(600);
        self.world.repaired.clear();
        self.compare()?;
        if rests {
            let had_room = self.has_room_for_repairs();
            self.rest()?;
            self.check_repairs_of_reads(had_room)?;
        }
        self.scrub(rests)
    }

    pub(super) fn has_room_for_repairs(&self) -> bool {
        let status = self.world.status();
        status.free_segments > 2 * status.plan.checkpoint_segments + ROOM_FOR_REPAIRS
    }

    /// Blocks in use, or in a row with one in use, that are wrong on a readable member in service;
    /// at rest.
    fn damage_in_use(&mut self) -> Result<Vec<Finding>, Violation> {
        if self.reads_are_fickle() {
            return Ok(Vec::new());
        }
        let report = check(
            &mut self.world.members.clone(),
            &CheckOptions::everything(),
            &mut |_| (),
        );
        ensure!(
            report.failure.is_none(),
            Check,
            "no check: {:?}",
            report.failure
        );
        let is_readable = |member: MemberId| {
            self.world.is_whole(member) && self.world.members.member(member).read_errors.is_empty()
        };
        let is_damage = |finding: &Finding| {
            let of_blocks = matches!(
                finding.kind,
                FindingKind::BlockWrong | FindingKind::ParityWrong
            );
            of_blocks
                && finding.severity > Severity::Note
                && finding.member.is_some_and(is_readable)
        };
        Ok(report.findings.list.into_iter().filter(is_damage).collect())
    }

    /// Checks that blocks repaired by reads are no longer wrong.
    fn check_repairs_of_reads(&mut self, had_room: bool) -> Result<(), Violation> {
        // A full pool abandons repairs; nothing is lost by that.
        if self.world.repaired.is_empty() || !had_room || !self.has_room_for_repairs() {
            return Ok(());
        }
        let damage = self.damage_in_use()?;
        let address =
            |finding: &Finding| Some((finding.volume?, self.world.spread.known(finding.lba?.0)));
        let left = damage.iter().find(|finding| {
            address(finding).is_some_and(|address| self.world.repaired.contains(&address))
        });
        ensure!(
            left.is_none(),
            Durability,
            "a read has repaired it, but: {left:?}"
        );
        Ok(())
    }

    /// Scrubs twice, the second time at once. Nothing may be lost. Without faults nothing is wrong.
    /// The second scrub does not find what the first one found and moved, unless a member has
    /// permanently unreadable ranges.
    pub(super) fn scrub(&mut self, rests: bool) -> Result<(), Violation> {
        for again in [false, true] {
            let damage = if rests && !again {
                self.damage_in_use()?
            } else {
                Vec::new()
            };
            let (before, labels) = (self.world.status(), self.world.labels_written);
            self.world.command(Control::Scrub(ScrubCommand::Start {
                unix_s: 0,
                bytes_per_second: 0,
            }));
            self.run_while("scrubbing", |world| {
                world.unanswered() > 0 || world.status().scrub.state == ScrubState::Running
            })?;
            let after = self.world.status();
            let scrub = after.scrub;
            ensure!(
                scrub.state == ScrubState::Completed,
                Protocol,
                "the scrub ended as {:?}",
                scrub.state
            );
            self.wrong_blocks += scrub.wrong_blocks;
            let (lost, damaged) = (scrub.lost_blocks, scrub.damaged_batches);
            // (A label is written in place, and that write may be misdirected.)
            let wrong = scrub.wrong_blocks - (self.world.labels_written - labels);
            ensure!(
                lost == 0 && damaged == 0,
                Durability,
                "within redundancy, but the scrub found {lost} blocks and {damaged} batches lost"
            );
            let steady = self
                .world
                .failing_members
                .iter()
                .all(|member| self.world.members.member(*member).read_errors.is_empty());
            let allowed = if again {
                !steady
            } else {
                !self.world.failing_members.is_empty()
            };
            ensure!(
                wrong == 0 || allowed,
                Durability,
                "scrub (second: {again}): {wrong} wrong blocks, faulty members {:?}",
                self.world.failing_members
            );
            // (Only the scrub could move it away.)
            let is_alone = (before.segments_cleaned, before.checkpoints)
                == (after.segments_cleaned, after.checkpoints);
            if wrong == 0 && is_alone && !damage.is_empty() {
                self.check_beside_pages()?;
            }
        }
        self.rest()?;
        let left = self.damage_in_use()?;
        ensure!(
            left.is_empty(),
            Durability,
            "scrubbed twice, but: {:?}",
            left.first()
        );
        self.check_labels()?;
        self.call_well();
        self.compare()
    }

    /// Checks the labels of writable members: without them a later start would not recognise them.
    fn check_labels(&mut self) -> Result<(), Violation> {
        let online: Vec<MemberId> = self
            .world
            .status()
            .members
            .iter()
            .filter(|m| m.state == "online")
            .map(|m| m.member)
            .collect();
        for member in online {
            if self.world.is_whole(member)
                && self.world.members.member(member).read_errors.is_empty()
                && *self.world.members.ailment_mut(member) == Ailment::default()
            {
                let mut bytes = vec![0; LABEL_BYTES];
                self.world
                    .members
                    .member(member)
                    .read(LABEL_OFFSET, &mut bytes);
                ensure!(
                    Label::decode(&bytes).is_ok(),
                    Durability,
                    "scrubbed twice, but member {member} has no label"
                );
            }
        }
        Ok(())
    }

    /// A scrub has found nothing although the check found damage, apart from pages of the newest
    /// checkpoint that the engine has released since (shared content without references: seed
    /// 9960644). The checkpoint that ends the scrub does not contain them.
    fn check_beside_pages(&mut self) -> Result<(), Violation> {
        self.rest()?;
        let left = self.damage_in_use()?;
        ensure!(
            left.is_empty(),
            Durability,
            "the scrub found nothing, but: {:?}",
            left.first()
        );
        Ok(())
    }

    /// Marks members as healthy if a scrub has found all their silent damage: others may fail.
    fn call_well(&mut self) {
        for member in self.data.clone() {
            let is_steady = self.world.members.member(member).read_errors.is_empty()
                && *self.world.members.ailment_mut(member) == Ailment::default();
            if is_steady
                && self.world.is_whole(member)
                && self.world.failing_members.remove(&member)
            {
                self.world
                    .trace
                    .tell(|| format!("member {member} was repaired by the scrubs"));
                self.curable.remove(&member);
                self.cured = true;
            }
        }
    }
}

//! Repairs restore redundancy: what reads and scrubs find wrong has its redundancy again, and
//! others may fail.
//!
//! An offline check of a copy, which knows nothing of the engine, says which blocks in use, or in a
//! row with one in use, are wrong on a member that is there.
//!
//! 1 Everything has been read: where a repair was told of, the block lies elsewhere and is right
//!   there. 2 If the check knows of damage, the first scrub
//! finds some, or the checkpoint that ends it has no use for what lies there. 3 Before the second
//! scrub, which is begun at once and finds nothing, the check knows of no damage any more. Labels
//! are right. 4 So members that were wrong in silence are well again: the rest of the run is
//! without others, needs what these bear, and no read may be repaired.

use super::Run;
use crate::members::Ailment;
use crate::violation::{Violation, ensure};
use windrow_engine::{Control, ScrubCommand, ScrubState};
use windrow_format::superblock::{LABEL_BYTES, LABEL_OFFSET, Label};
use windrow_inspect::{CheckOptions, Finding, FindingKind, Severity, check};
use windrow_random::Rng;
use windrow_types::MemberId;

/// Free segments beside those of two checkpoints with which no repair is given up for want of room.
const ROOM_FOR_REPAIRS: u32 = 6;

impl Run {
    /// Reads everything, then scrubs.
    pub(super) fn compare_and_scrub(&mut self) -> Result<(), Violation> {
        // Often a scrub begins while what the reads repair is still on its way.
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

    /// Blocks in use, or in a row with one in use, that are wrong on a member that is in service
    /// and can be read; at rest.
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

    /// What reads have repaired is not wrong any more.
    fn check_repairs_of_reads(&mut self, had_room: bool) -> Result<(), Violation> {
        // A full pool gives repairs up: nothing is lost by that.
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

    /// Scrubs twice, the second time at once. Nothing may be lost. Without faults nothing is wrong;
    /// what the first scrub finds wrong and moves, the second does not find any more, unless a
    /// member has places that can never be read.
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
            // (A label is written where it is, and that may go astray.)
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
                "scrub (second: {again}): {wrong} wrong blocks, ailing members {:?}",
                self.world.failing_members
            );
            // (Nothing but the scrub could move it away.)
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

    /// Members that take what is written have their labels, or a later start would not know them.
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

    /// A scrub has found nothing where the check knew of damage: beside pages that the newest
    /// checkpoint has, and the engine has given up since (those of shared content that nobody
    /// refers to any more: seed 9960644). The checkpoint that ends the scrub is without them.
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

    /// Members on which a scrub has found all that was wrong in silence are well: others may fail.
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
                    .tell(|| format!("member {member} was put right by the scrubs"));
                self.curable.remove(&member);
                self.cured = true;
            }
        }
    }
}

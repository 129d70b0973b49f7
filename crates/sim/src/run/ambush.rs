//! An ambush of members for data: one fails in service, flushes are on their way, and the power goes soon after it has been latched out.
//!
//! What must hold: its loss is on record before anything is acknowledged that depends on it. So in copies it is there again, with what it had when it failed, and
//! of the others as many as the redundancy covers are not. What came after its loss can not be read from the rest: either the rest knows of the loss, and a
//! start is refused, or everything that was promised is there.

use super::Run;
use crate::model::Asked;
use crate::scenario::{End, Fault};
use crate::violation::{Violation, ensure};
use windrow_engine::OpenOptions;
use windrow_io::MemberIo;
use windrow_random::Rng;
use windrow_units::{MemberId, VolumeId};

/// Copies of one ambush, each without other members.
const COPIES_MAX: usize = 4;
/// Turns until something is promised: then the power goes. Else it goes all the same.
const TURNS_MAX: u64 = 400;

/// State of ambushes.
pub(super) struct Ambush {
    rng: Rng,
    /// The one that is to fail, or has failed.
    pub(super) member: Option<MemberId>,
    /// What was promised when it was in service still.
    promised: u64,
    /// Starts of copies.
    pub(super) starts: u64,
}

impl Ambush {
    pub(super) fn new(seed: u64) -> Self {
        Self { rng: Rng::stream(seed, "ambushes of members"), member: None, promised: 0, starts: 0 }
    }
}

impl Run {
    /// A member is to fail with this fault. While others ail a start without further ones has to be refused in any case.
    pub(super) fn lay_ambush(&mut self, member: MemberId, fault: Fault) {
        let fails = matches!(fault, Fault::Death | Fault::WriteError | Fault::FlushError);
        if fails && self.ailing_data() == 1 && self.data.len() > 2 && self.ambush.rng.chance(500) {
            self.world.trace.tell(|| format!("the power is to go when member {member} has failed"));
            self.ambush.member = Some(member);
        }
    }

    /// True if a member has failed, and the power is to go.
    pub(super) fn is_member_ambushed(&self) -> bool {
        self.ambush.member.is_some_and(|member| !self.world.is_whole(member))
    }

    /// As long as the member has not failed there are flushes on their way.
    pub(super) fn wait_in_ambush(&mut self) {
        if self.ambush.member.is_none() || self.is_member_ambushed() {
            return;
        }
        self.ambush.promised = self.world.model.promised();
        if self.world.unanswered() < 64 && self.ambush.rng.chance(200) {
            self.flush_all();
        }
    }

    fn flush_all(&mut self) {
        let volumes: Vec<VolumeId> = self.world.model.volumes().keys().copied().collect();
        for volume in volumes.into_iter().filter(|volume| self.world.model.heeds_flushes(*volume)).collect::<Vec<_>>() {
            self.world.submit(volume, Asked::Flush);
        }
    }

    /// The member has failed: turns until the power goes.
    pub(super) fn spring_ambush(&mut self, end: End) -> Result<(), Violation> {
        // (A pool that shuts down takes no more requests.)
        if end != End::CrashInShutdown {
            self.flush_all();
        }
        let turns = if self.ambush.rng.chance(600) { TURNS_MAX } else { self.ambush.rng.pick(&[0, 1, 2, 5, 10, 20, 40]) };
        for _ in 0..turns {
            let has_promised = self.world.model.promised() > self.ambush.promised;
            if (turns == TURNS_MAX && has_promised) || !self.turn()? {
                break;
            }
        }
        Ok(())
    }

    /// The power has gone: the one that failed comes back, and others do not.
    pub(super) fn end_ambush(&mut self) -> Result<(), Violation> {
        let Some(failed) = self.ambush.member.take() else { return Ok(()) };
        // It may have had no occasion to fail, or others ail by now; and without journal devices there is no start anyway.
        if self.ailing_data() != 1 || !self.world.ailing.contains(&failed) || !self.start_works() {
            return Ok(());
        }
        let mut others: Vec<MemberId> = self.data.iter().copied().filter(|member| *member != failed).collect();
        self.ambush.rng.shuffle(&mut others);
        let count = self.scenario.redundancy.tolerance().min(others.len().saturating_sub(1));
        for _ in 0..others.len().min(COPIES_MAX) {
            others.rotate_left(1);
            self.start_after_ambush(failed, &others[..count]).map_err(|violation| {
                let text = format!("member {failed} failed and is back, {:?} are absent: {}", &others[..count], violation.text);
                Violation::new(violation.broken, text)
            })?;
        }
        Ok(())
    }

    fn start_after_ambush(&mut self, failed: MemberId, absent: &[MemberId]) -> Result<(), Violation> {
        let before = (self.world.members.clone(), self.world.model.clone(), self.world.ailing.clone());
        let (told_lost, unreadable) = (self.world.told_lost.clone(), self.world.unreadable.clone());
        self.world.members.ailment_mut(failed).gone = false;
        absent.iter().for_each(|member| self.world.members.ailment_mut(*member).gone = true);
        debug_assert!(self.world.members.is_present(failed));
        self.world.ailing.extend(self.data.iter().copied());
        // What fails is judged here.
        self.world.model.lenient = true;
        for force in [false, true] {
            self.ambush.starts += 1;
            let Ok(report) = self.world.start(&OpenOptions { force, ..self.options() }) else {
                self.world.check_untouched()?;
                continue;
            };
            let status = self.world.status();
            self.world.model.reopened(&report, &status, self.newest_order)?;
            self.compare_reads()?;
            let lost = self.world.unreadable.difference(&unreadable).chain(self.world.told_lost.difference(&told_lost)).next();
            ensure!(lost.is_none(), Durability, "it starts (force: {force}), but {lost:?} is lost");
            self.world.power_cut();
            break;
        }
        // (A removal may have come to its end in the copy.)
        self.world.gone.clear();
        (self.world.refusal, self.world.told_lost, self.world.unreadable) = (None, told_lost, unreadable);
        (self.world.members, self.world.model, self.world.ailing) = before;
        Ok(())
    }
}

//! Split brain: two hosts that see one half of the members each.
//!
//! Invariants: a part that is not more than half of the pool does not start automatically; a start
//! never mixes the halves, it shows one of the two histories completely or refuses; each half alone
//! continues to show its own.

use super::Run;
use super::devices::Promises;
use crate::model::Model;
use crate::scenario::Cycle;
use crate::violation::{Broken, Violation, ensure};
use crate::world::StartFailure;
use windrow_engine::OpenOptions;
use windrow_io::MemberIo;
use windrow_types::{MemberId, Uuid};

/// One of the hosts, and the knowledge of its clients.
struct Side {
    members: Vec<MemberId>,
    host: Uuid,
    model: Model,
    newest_lsn: u64,
    /// Keepers of the durable LSNs.
    promises: Promises,
}

impl Run {
    /// The pool is shut down and no member has faults. Both halves are started with force, one
    /// after the other or one alone.
    pub(super) fn two_hosts(&mut self) -> Result<(), Violation> {
        let count = self.data.len();
        let tolerance = self.scenario.redundancy.tolerance();
        // Journal devices could go to only one of the hosts.
        let devices = self
            .scenario
            .journal
            .as_ref()
            .is_some_and(|journal| !journal.devices.is_empty());
        if devices
            || count < 2
            || count > 2 * tolerance
            || !self.world.failing_members.is_empty()
            || !self.rng.chance(600)
        {
            return Ok(());
        }
        let (first, second) = self.draw_halves(count, tolerance);
        self.world
            .trace
            .tell(|| format!("two hosts: {:?} and {:?}", first.members, second.members));
        let both = self.rng.chance(700);
        let first = self.use_half(first, &second.members.clone())?;
        let second = if both {
            self.use_half(second, &first.members.clone())?
        } else {
            second
        };
        if !both {
            // The other half, alone and not forced, must never start, not even on the host that had
            // the pool. A majority may start: it cannot know.
            if 2 * second
                .members
                .iter()
                .filter(|member| !self.devices.is_one(**member))
                .count()
                <= count
            {
                self.refuse_half(&second, &first.members)?;
            }
            return self.all_together(&first, None);
        }
        self.all_together(&first, Some(&second))
    }

    fn draw_halves(&mut self, count: usize, tolerance: usize) -> (Side, Side) {
        let mut members = self.data.clone();
        self.rng.shuffle(&mut members);
        let least = (count - tolerance).max(1);
        let others =
            members.split_off(self.rng.between(least as u64, (count - least) as u64) as usize);
        let foreign = Uuid::from_random(self.rng.bytes16());
        let hosts = if self.rng.chance(500) {
            (self.host, foreign)
        } else {
            (foreign, self.host)
        };
        let side = |members, host| Side {
            members,
            host,
            model: self.world.model.clone(),
            newest_lsn: self.newest_lsn,
            promises: self.devices.promises(),
        };
        (side(members, hosts.0), side(others, hosts.1))
    }

    /// Makes only these members visible.
    fn show_only(&mut self, absent: &[MemberId]) {
        for member in (0..self.world.members.member_count() as u8).map(MemberId) {
            self.world.members.ailment_mut(member).gone = absent.contains(&member);
        }
    }

    /// A host imports its half with force and works on it; the power goes or it shuts down.
    fn use_half(&mut self, side: Side, others: &[MemberId]) -> Result<Side, Violation> {
        self.show_only(others);
        (self.world.model, self.newest_lsn, self.host, self.clean) =
            (side.model, side.newest_lsn, side.host, false);
        self.devices.set_promises(side.promises.clone());
        self.world.failing_members = others.iter().copied().collect();
        let options = OpenOptions {
            host: self.host,
            read_only: false,
            force: true,
            discard_journal: false,
            limits: self.scenario.limits,
        };
        let report = self.world.start(&options).map_err(|failure| {
            Violation::new(
                Broken::Open,
                format!("half a pool, with force: {failure:?}"),
            )
        })?;
        self.opened(&report)?;
        self.compare()?;
        self.some_writes()?;
        if self.rng.chance(500) {
            self.rest()?;
            self.shut_down()?;
        } else {
            self.count_session();
            self.cut_power();
        }
        self.world.failing_members.clear();
        Ok(Side {
            model: self.world.model.clone(),
            newest_lsn: self.newest_lsn,
            promises: self.devices.promises(),
            ..side
        })
    }

    /// Starts a half without force; it must be refused.
    fn refuse_half(&mut self, side: &Side, others: &[MemberId]) -> Result<(), Violation> {
        self.show_only(others);
        let options = OpenOptions {
            host: side.host,
            read_only: false,
            force: false,
            discard_journal: false,
            limits: self.scenario.limits,
        };
        let started = self.world.start(&options);
        ensure!(
            matches!(started, Err(StartFailure::Refused(_))),
            Open,
            "{:?} started without force although others may be in use",
            side.members
        );
        self.world.check_untouched()
    }

    /// All members in one machine again.
    fn all_together(&mut self, first: &Side, second: Option<&Side>) -> Result<(), Violation> {
        self.show_only(&[]);
        let Some(second) = second else {
            // Nothing happened on the other side: its members return and are rebuilt.
            (self.world.model, self.newest_lsn, self.host) =
                (first.model.clone(), first.newest_lsn, first.host);
            self.devices.set_promises(first.promises.clone());
            let absent = (0..self.world.members.member_count() as u8)
                .map(MemberId)
                .filter(|member| !first.members.contains(member));
            absent.for_each(|member| self.note_fault(member, true));
            self.begin(&Cycle::idle())?;
            self.rebuild()?;
            self.rest()?;
            return self.shut_down();
        };
        let (force, read_only) = (self.rng.chance(500), self.rng.chance(300));
        self.world.failing_members = (0..self.world.members.member_count() as u8)
            .map(MemberId)
            .collect();
        for host in [first.host, second.host] {
            let options = OpenOptions {
                host,
                read_only,
                force,
                discard_journal: false,
                limits: self.scenario.limits,
            };
            // It must be exactly one of the two histories.
            self.shows(first, &options)
                .or_else(|_| self.shows(second, &options))?;
        }
        // Each half alone still has its content; the run continues with one of them.
        let (kept, other) = if self.rng.chance(500) {
            (first, second)
        } else {
            (second, first)
        };
        let members = self.world.members.clone();
        self.half_alone(other, &kept.members)?;
        self.world.members = members;
        self.half_alone(kept, &other.members)
    }

    /// Checks that a start of all members, if not refused, shows the history of this side. Leaves
    /// the members unchanged.
    fn shows(&mut self, side: &Side, options: &OpenOptions) -> Result<(), Violation> {
        let members = self.world.members.clone();
        (self.world.model, self.newest_lsn, self.clean) =
            (side.model.clone(), side.newest_lsn, false);
        self.devices.set_promises(side.promises.clone());
        let shown = match self.world.start(options) {
            Err(_) => self.world.check_untouched(),
            Ok(report) => self.opened(&report).and_then(|()| self.compare()),
        };
        self.world.power_cut();
        self.world.members = members;
        shown
    }

    /// Continues with one half: everything is as its clients left it. The members of the other side
    /// are gone for good.
    fn half_alone(&mut self, side: &Side, others: &[MemberId]) -> Result<(), Violation> {
        self.show_only(others);
        (self.world.model, self.newest_lsn, self.host, self.clean) =
            (side.model.clone(), side.newest_lsn, side.host, false);
        self.devices.set_promises(side.promises.clone());
        self.world.failing_members = others.iter().copied().collect();
        self.begin(&Cycle::idle())?;
        self.rest()?;
        self.shut_down()
    }
}

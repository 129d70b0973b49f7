//! Model check of member states and quorum: explores every short history of a small pool against a
//! model that knows each device's real content.
//!
//! The superblocks, the table and the judgement at a start are the real ones; batches are bits. In
//! every reachable state:
//!
//! 1. A member that is trusted with a batch holds it.
//! 2. No more members count as lost than the redundancy covers, while the pool runs.
//! 3. Of two halves of the members never both start by themselves.
//! 4. A pool that did not split, with all its devices present, starts. Exception: power failed
//!    twice while the loss of a member was recorded, each time on another member. That is refused
//!    as two histories, and starts without one of the two.
//! 5. No write is lost: a pool that starts has every batch in its log.
//! 6. As long as no old member has the generation with a new layout, or with a journal device, the
//!    old members start without the new ones. The same holds after it was taken back.
//!
//! A removal goes through the two generations of `upkeep/reshape/removal.rs`. The one with the
//! layout over the others goes to all, the one without the member to the others. A growth goes
//! through the generations that `upkeep/reshape/coming.rs` writes. Power may fail when any of them
//! is on any subset of the devices.
//!
//! Spares and journal devices: `recover/quorum/model/slots.rs`.

use super::*;
use crate::store::member::slot_state::change;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use windrow_format::superblock::{Features, MemberRecord, slot_offset};
use windrow_io::{MemberError, MemberErrorKind};

mod slots;

const BATCHES_MAX: u32 = 3;
const CHECKPOINTS_MAX: u64 = 2;
const DEVICES_MAX: u8 = 9;

#[derive(Clone, Debug)]
struct Device {
    uuid: Uuid,
    slots: [Option<Rc<Superblock>>; SLOT_COUNT as usize],
    /// Batches on it, as bits.
    holds: u32,
    present: bool,
}

impl Device {
    fn new(number: u8) -> Self {
        Self {
            uuid: Uuid([number; 16]),
            slots: Default::default(),
            holds: 0,
            present: true,
        }
    }

    fn newest(&self) -> Option<&Rc<Superblock>> {
        self.slots.iter().flatten().max_by_key(|s| s.generation)
    }
}

/// A batch, and the checkpoint that was current when it was sealed.
type Batches = Vec<(u32, u64)>;

#[derive(Clone, Debug)]
struct Running {
    superblock: Superblock,
    /// Content hash of the generation that was written last.
    written: u64,
    /// By member: batches that it is not trusted with.
    stale: Vec<u32>,
    batches: Batches,
}

#[derive(Clone, Debug)]
struct World {
    devices: Vec<Device>,
    running: Option<Running>,
    /// Batches in the log by the ruling superblock, by its content hash.
    log: BTreeMap<u64, Batches>,
    batches: u32,
    devices_made: u8,
    used_apart: bool,
    /// The devices as they were in the beginning.
    images: Rc<Vec<Device>>,
    restored: bool,
    /// Number of original members; the devices after them are spares.
    old: usize,
    grows: u32,
}

/// Progress of a growth. A mask names the devices that have a generation when power is cut.
#[derive(Clone, Copy, Debug)]
enum Growth {
    /// Complete.
    Done,
    /// The generation that introduces the new members.
    CutIntroducing(usize),
    /// The one with the new layout.
    CutRecording(usize),
    /// That one is on the devices of the mask, and the others (second mask) fail, more than the
    /// redundancy covers. The growth is taken back, and the pool continues.
    TakenBack(usize, usize),
    /// The same, and power is cut when the generation that takes it back is on the first N of the
    /// remaining members.
    CutTakingBack(usize, usize, usize),
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Write,
    Checkpoint,
    Fault(usize),
    /// The same, and power fails when its record is on one member only.
    FaultAndCut(usize),
    TakeOut(usize),
    BringBack(usize),
    Exchange(usize),
    Rebuild(usize),
    PowerOff,
    Plug(usize),
    Grow(Growth),
    /// The member begins to leave; power is cut when that is recorded on the devices of the mask
    /// only.
    Leave(usize, Option<usize>),
    /// Leaving members are released; mask as above.
    LetGo(Option<usize>),
    /// A spare or a journal device is added, removed or takes a slot; mask as above.
    Slot(slots::SlotChange, Option<usize>),
    Start,
    StartAndCut,
    /// A forced start on another machine with this device only. Its old batches are cleaned away
    /// there.
    Apart(usize),
    /// The device is replaced by its image from the beginning.
    Restore(usize),
}

impl MemberIo for World {
    fn member_count(&self) -> usize {
        self.devices.len()
    }
    fn is_present(&self, member: MemberId) -> bool {
        self.devices[member.index()].present
    }
    fn size(&self, _: MemberId) -> u64 {
        1 << 30
    }
    fn read(&mut self, member: MemberId, offset: u64, buf: &mut [u8]) -> Result<(), MemberError> {
        let slot = ((offset - SLOT_OFFSET) / SLOT_STRIDE) as usize;
        buf.fill(0);
        if let Some(superblock) = &self.devices[member.index()].slots[slot] {
            buf.copy_from_slice(&superblock.encode());
        }
        Ok(())
    }
    fn write(&mut self, member: MemberId, offset: u64, _: &[u8]) -> Result<(), MemberError> {
        Err(MemberError {
            member,
            kind: MemberErrorKind::Other,
            offset,
            code: 0,
        })
    }
    fn flush(&mut self, _: MemberId) -> Result<(), MemberError> {
        Ok(())
    }
}

fn options(force: bool) -> OpenOptions {
    OpenOptions {
        host: Uuid([1; 16]),
        read_only: false,
        force,
        discard_journal: false,
        limits: Default::default(),
    }
}

impl World {
    fn new(redundancy: Redundancy, members: usize) -> Self {
        let superblock = crate::engine::format::first_for_model(redundancy, members);
        let mut world = Self {
            devices: Vec::new(),
            running: None,
            log: BTreeMap::new(),
            batches: 0,
            devices_made: members as u8,
            used_apart: false,
            images: Rc::default(),
            restored: false,
            old: members,
            grows: 0,
        };
        world.devices = (0..members).map(|m| Device::new(m as u8 + 1)).collect();
        world.log.insert(superblock.content_hash(), Vec::new());
        for member in 0..members {
            world.put(member, &superblock);
        }
        world
    }

    fn put(&mut self, member: usize, superblock: &Superblock) {
        let device = &mut self.devices[member];
        let slot = ((slot_offset(superblock.generation) - SLOT_OFFSET) / SLOT_STRIDE) as usize;
        let copy = Superblock {
            member: MemberId(member as u8),
            member_uuid: superblock.members[member].uuid,
            ..superblock.clone()
        };
        device.slots[slot] = Some(Rc::new(copy));
    }

    /// A pool in use that has spares as well.
    fn with_spares(redundancy: Redundancy, members: usize, spares: usize) -> Self {
        let mut world = Self::new(redundancy, members);
        assert!(world.start(false, false));
        for _ in 0..spares {
            world.devices_made += 1;
            let device = Device::new(world.devices_made);
            if let Some(running) = &mut world.running {
                running.superblock.members.push(MemberRecord::new(
                    device.uuid,
                    MemberState::Spare,
                    24 << 20,
                ));
                running.stale.push(0);
            }
            world.devices.push(device);
        }
        world.write_generation(false);
        world
    }

    /// Bit mask of members in use.
    fn in_use(&self) -> usize {
        let in_use = |r: &Running| {
            r.superblock
                .members
                .iter()
                .enumerate()
                .fold(0, |mask, (m, record)| {
                    mask | usize::from(record.is_in_use()) << m
                })
        };
        self.running.as_ref().map_or(0, in_use)
    }

    /// Writes the next generation to the members in use, or, if the power is cut, to the first of
    /// them.
    fn write_generation(&mut self, cut: bool) {
        let mask = self.in_use();
        self.write_generation_cut(cut.then_some(mask & mask.wrapping_neg()));
    }

    /// The same; power is cut when it is on the members in the mask only.
    fn write_generation_cut(&mut self, cut: Option<usize>) {
        self.write_generation_to(self.in_use() & cut.unwrap_or(usize::MAX));
        if cut.is_some() {
            self.running = None;
        }
    }

    fn write_generation_to(&mut self, mask: usize) {
        let Some(running) = &mut self.running else {
            return;
        };
        running.superblock.parent_hash = running.written;
        running.superblock.generation = running.superblock.generation.next();
        running.written = running.superblock.content_hash();
        let superblock = running.superblock.clone();
        self.log.insert(running.written, running.batches.clone());
        for member in (0..self.devices.len()).filter(|m| mask >> m & 1 == 1) {
            self.put(member, &superblock);
        }
    }

    /// As `upkeep/reshape/coming.rs` does. All members and spares are present and whole.
    fn grow(&mut self, growth: Growth) -> Option<()> {
        let all = (1 << self.devices.len()) - 1;
        let running = self.running.as_mut()?;
        let ready = |(m, r): (usize, &MemberRecord)| {
            r.state
                == if m < self.old {
                    MemberState::Online
                } else {
                    MemberState::Spare
                }
        };
        (running.superblock.members.iter().enumerate().all(ready)
            && self.devices.iter().all(|d| d.present))
        .then_some(())?;
        self.grows += 1;
        running.superblock.set_growing(true);
        let cut = |mut world: Self, mask: usize| {
            world.write_generation_to(mask);
            world.running = None;
            world
        };
        if let Growth::CutIntroducing(mask) = growth {
            *self = cut(self.clone(), mask);
            return Some(());
        }
        self.write_generation_to(all);
        let running = self.running.as_mut()?;
        let before = running.superblock.zones.clone();
        running.superblock.set_growing(false);
        running.superblock.zones =
            crate::engine::format::grown_for_model(&running.superblock, self.devices.len());
        for new in self.old..self.devices.len() {
            // No earlier batch is stored on it.
            self.devices[new].holds = (1 << self.batches) - 1;
            self.record(new, Change::Join);
        }
        let (mask, fails, written) = match growth {
            Growth::TakenBack(mask, fails) => (mask, fails, None),
            Growth::CutTakingBack(mask, fails, written) => (mask, fails, Some(written)),
            Growth::CutRecording(mask) => {
                *self = cut(self.clone(), mask);
                return Some(());
            }
            Growth::Done | Growth::CutIntroducing(_) => {
                self.write_generation_to(all);
                return Some(());
            }
        };
        self.write_generation_to(mask);
        (self.old..self.devices.len()).for_each(|new| assert!(self.record(new, Change::Leave)));
        (0..self.old)
            .filter(|m| fails >> m & 1 == 1)
            .for_each(|m| assert!(self.record(m, Change::Fault)));
        let running = self.running.as_mut()?;
        running.superblock.zones = before;
        running.superblock.set_growing(true);
        World::survives(&running.superblock).then_some(())?;
        let left = (0..self.old).filter(|m| fails >> m & 1 == 0);
        let reached = left
            .take(written.unwrap_or(self.old))
            .fold(0, |mask, m| mask | 1 << m);
        match written {
            Some(_) => *self = cut(self.clone(), reached),
            None => {
                self.write_generation_to(reached);
                self.end_growing();
            }
        }
        Some(())
    }

    /// As `upkeep/reshape/removal.rs` does.
    fn begin_removal(&mut self, member: usize, cut: Option<usize>) -> Option<()> {
        let running = self.running.as_mut()?;
        let (whole, zones) = (
            running
                .superblock
                .members
                .iter()
                .all(|r| r.state == MemberState::Online),
            &running.superblock.zones,
        );
        let (count, one_layout) = (
            running.superblock.members.len(),
            zones.iter().all(|z| z.layout == zones[0].layout),
        );
        (whole && one_layout && count > running.superblock.redundancy.min_members())
            .then_some(())?;
        running.superblock.zones =
            crate::engine::format::shrunk_for_model(&running.superblock, MemberId(member as u8));
        running.superblock.features.incompatible |= Features::LEAVING;
        self.write_generation_to(cut.unwrap_or(usize::MAX));
        if cut.is_some() {
            self.running = None;
        }
        Some(())
    }

    fn let_go(&mut self, cut: Option<usize>) -> Option<()> {
        let running = self.running.as_mut()?;
        let zones = ZoneMap::new(running.superblock.zones.clone());
        let leaving = zones.leaving();
        let gone: Vec<usize> = (0..running.superblock.members.len())
            .filter(|m| leaving >> m & 1 == 1)
            .collect();
        (leaving != 0
            && gone
                .iter()
                .all(|m| running.superblock.members[*m].state != MemberState::Rebuilding))
        .then_some(())?;
        running.superblock.zones = zones.current().cloned().collect();
        running.superblock.features.incompatible &= !Features::LEAVING;
        for member in gone {
            assert!(self.record(member, Change::Emptied));
            self.running.as_mut()?.superblock.members[member].uuid = Uuid::default();
        }
        self.write_generation_cut(cut);
        Some(())
    }

    /// As `Upkeep::end_growing`.
    fn end_growing(&mut self) {
        let Some(running) = self
            .running
            .as_mut()
            .filter(|running| running.superblock.is_growing())
        else {
            return;
        };
        let in_use = running
            .superblock
            .members
            .iter()
            .enumerate()
            .fold(0, |mask, (m, record)| {
                mask | u64::from(record.is_in_use()) << m
            });
        if no_quorum_without(&running.superblock.zones, in_use) {
            running.superblock.set_growing(false);
            self.write_generation(false);
        }
    }

    fn survives(superblock: &Superblock) -> bool {
        check_redundancy(superblock).is_ok()
    }

    /// A start with the present devices; false if it is refused.
    fn start(&mut self, force: bool, cut: bool) -> bool {
        let Ok(ruling) = newest(self, &options(force)) else {
            return false;
        };
        for member in &ruling.lagging {
            self.put(member.index(), &ruling.found);
        }
        let batches = self.log[&ruling.found.content_hash()].clone();
        let missed = |from: u64| {
            batches
                .iter()
                .filter(|(_, sealed)| *sealed >= from)
                .fold(0, |mask, (batch, _)| mask | batch)
        };
        let stale = ruling
            .superblock
            .members
            .iter()
            .map(|r| {
                if r.state == MemberState::Rebuilding {
                    missed(r.missed_from)
                } else {
                    0
                }
            })
            .collect();
        let mut superblock = ruling.superblock;
        superblock.state = PoolState::Active;
        let mut found = ruling.found;
        if force {
            found = crate::recover::step_after(&found);
            (0..self.devices.len())
                .filter(|m| superblock.members[*m].state == MemberState::Online)
                .for_each(|m| self.put(m, &found));
            superblock.generation = found.generation;
            self.log.insert(found.content_hash(), batches.clone());
        }
        // As `raise_fence` does: the next one follows the one found.
        self.running = Some(Running {
            superblock,
            written: found.content_hash(),
            stale,
            batches,
        });
        self.write_generation(cut);
        self.end_growing();
        true
    }

    fn record(&mut self, member: usize, event: Change) -> bool {
        let Some(running) = &mut self.running else {
            return false;
        };
        let newest = running.superblock.checkpoints[0].map_or(0, |root| root.id);
        let generation = running.superblock.generation.next();
        running
            .superblock
            .members
            .get_mut(member)
            .is_some_and(|record| change(record, event, newest, generation).unwrap_or(false))
    }

    fn joins(&mut self, member: usize) {
        self.take_part(member);
        self.write_generation(false);
    }

    /// Marks everything that the member may have missed as stale.
    fn take_part(&mut self, member: usize) {
        let Some(running) = &mut self.running else {
            return;
        };
        let from = running.superblock.members[member].missed_from;
        running.stale[member] = running
            .batches
            .iter()
            .filter(|(_, sealed)| *sealed >= from)
            .fold(0, |mask, (batch, _)| mask | batch);
    }

    /// One step; `None` if it is not possible here.
    fn step(&self, step: Step) -> Option<Self> {
        let mut world = self.clone();
        let in_use = |m: usize| self.in_use() >> m & 1 == 1;
        match (step, &mut world.running) {
            (Step::Write, Some(running)) if self.batches < BATCHES_MAX => {
                let batch = 1 << world.batches;
                world.batches += 1;
                running
                    .batches
                    .push((batch, running.superblock.checkpoints[0]?.id));
                world.log.insert(running.written, running.batches.clone());
                (0..world.devices.len())
                    .filter(|m| in_use(*m))
                    .for_each(|m| world.devices[m].holds |= batch);
            }
            (Step::Checkpoint, Some(running))
                if running.superblock.checkpoints[0]?.id < CHECKPOINTS_MAX =>
            {
                running.superblock.checkpoints[0].as_mut()?.id += 1;
                world.write_generation(false);
            }
            (Step::Fault(m) | Step::FaultAndCut(m) | Step::TakeOut(m), Some(_)) if in_use(m) => {
                let event = if matches!(step, Step::TakeOut(_)) {
                    Change::TakeOut
                } else {
                    Change::Fault
                };
                world.record(m, event);
                if World::survives(&world.running.as_ref()?.superblock) {
                    world.write_generation(matches!(step, Step::FaultAndCut(_)));
                } else if event == Change::TakeOut {
                    return None;
                } else {
                    world.running = None;
                }
            }
            (Step::BringBack(m), Some(running)) if !in_use(m) && self.devices.get(m)?.present => {
                let record = running.superblock.members.get(m)?;
                let own = self.devices[m]
                    .newest()
                    .filter(|s| s.member_uuid == record.uuid)?
                    .generation;
                let found = slot_state::found(record, own, false);
                if !world.record(m, Change::BringBack(found)) {
                    return None;
                }
                world.joins(m);
            }
            (Step::Exchange(m), Some(running)) if !in_use(m) && self.devices_made < DEVICES_MAX => {
                world.devices_made += 1;
                world.devices[m] = Device::new(world.devices_made);
                running.superblock.members[m].uuid = world.devices[m].uuid;
                assert!(world.record(m, Change::Exchange));
                world.joins(m);
            }
            (Step::Rebuild(m), Some(running))
                if running.superblock.members.get(m)?.state == MemberState::Rebuilding =>
            {
                world.devices[m].holds |= std::mem::take(&mut running.stale[m]);
                world.record(m, Change::Whole);
                world.write_generation(false);
            }
            (Step::Grow(growth), Some(_)) if self.grows < 2 => world.grow(growth)?,
            (Step::Leave(m, cut), Some(_)) => world.begin_removal(m, cut)?,
            (Step::LetGo(cut), Some(_)) => world.let_go(cut)?,
            (Step::Slot(change, cut), Some(_)) => world.change_slot(change, cut)?,
            (Step::PowerOff, Some(_)) => world.running = None,
            (Step::Plug(m), None) => world.devices.get_mut(m)?.present ^= true,
            (Step::Start, None) => world.start(false, false).then_some(())?,
            (Step::StartAndCut, None) => world.start(false, true).then_some(())?,
            (Step::Apart(m), None) if !self.used_apart && self.batches < BATCHES_MAX => {
                let mut alone = world.clone();
                (0..alone.devices.len())
                    .for_each(|other| alone.devices[other].present = other == m);
                alone.start(true, false).then_some(())?;
                alone.devices[m].holds = 0;
                alone.running.as_mut()?.batches.clear();
                let mut alone = alone.step(Step::Write)?;
                alone.running = None;
                (0..alone.devices.len())
                    .for_each(|other| alone.devices[other].present = self.devices[other].present);
                alone.used_apart = true;
                world = alone;
            }
            // An image of the last generations looks like the device itself: checksums of blocks
            // reveal its missing batches.
            (Step::Restore(m), None) if !self.restored => {
                let generation = |device: &Device| device.newest().map(|s| s.generation.0);
                let image = generation(&self.images[m])?;
                let left = |s: &Superblock| s.members[m].absent_since.0;
                let long_ago = |s: &Rc<Superblock>| {
                    image + 2 < s.generation.0 && (left(s) == 0 || image + 2 < left(s))
                };
                self.devices
                    .iter()
                    .all(|device| device.newest().is_some_and(long_ago))
                    .then_some(())?;
                world.devices[m] = self.images[m].clone();
                world.restored = true;
            }
            _ => return None,
        }
        Some(world)
    }

    fn check(&self) -> Result<(), String> {
        if let Some(running) = &self.running {
            for (m, record) in running.superblock.members.iter().enumerate() {
                for (batch, _) in running
                    .batches
                    .iter()
                    .filter(|(batch, _)| record.is_in_use() && running.stale[m] & batch == 0)
                {
                    if self.devices[m].holds & batch == 0 {
                        return Err(format!(
                            "member {m} is trusted with batch {batch:#x}, which it has not"
                        ));
                    }
                }
            }
            if !World::survives(&running.superblock) {
                return Err("the pool runs with more lost than the redundancy covers".to_owned());
            }
            if !self.used_apart && !self.restored && running.batches.len() < self.batches as usize {
                return Err(format!(
                    "the pool runs with {} batches of {}",
                    running.batches.len(),
                    self.batches
                ));
            }
            return Ok(());
        }
        let startable = |mask: usize| {
            let mut copy = self.clone();
            copy.devices
                .iter_mut()
                .enumerate()
                .for_each(|(m, device)| device.present = mask >> m & 1 == 1);
            newest(&mut copy, &options(false)).is_ok()
        };
        let all = (1 << self.devices.len()) - 1;
        for half in 1..=all / 2 {
            if !self.used_apart && !self.restored && startable(half) && startable(all & !half) {
                return Err(format!(
                    "the members {half:#b} and the others start without each other"
                ));
            }
        }
        let (old, by_itself) = (&self.devices[..self.old], (1 << self.old) - 1);
        let grown = |device: &Device| {
            device
                .newest()
                .is_some_and(|s| s.zones.iter().any(|z| z.layout > 0))
        };
        let whole = |s: &Rc<Superblock>| {
            s.members[..self.old]
                .iter()
                .all(|r| r.state == MemberState::Online)
        };
        let with_journal =
            |device: &Device| device.newest().is_some_and(|s| s.journals.devices() != 0);
        let touched = |device: &Device| grown(device) || with_journal(device);
        let untouched = !self.used_apart
            && !self.restored
            && !old.iter().any(touched)
            && old.iter().flat_map(Device::newest).all(whole);
        if self.devices.len() > self.old && untouched && !startable(by_itself) {
            return Err("the old members do not start without the new ones".to_owned());
        }
        if !self.used_apart && !self.restored && !startable(all) {
            let mut copy = self.clone();
            copy.devices
                .iter_mut()
                .for_each(|device| device.present = true);
            let refusal = newest(&mut copy, &options(false)).err();
            // Faults beyond the redundancy lose data.
            let beyond = matches!(refusal, Some(OpenError::TooManyMissing { .. }));
            let two_cuts = matches!(refusal, Some(OpenError::TwoHistories { .. }))
                && (0..self.devices.len()).any(|m| startable(all & !(1 << m)));
            if !beyond && !two_cuts {
                return Err(format!(
                    "all are there and the pool does not start: {refusal:?}"
                ));
            }
        }
        Ok(())
    }

    /// Key that distinguishes worlds.
    fn key(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let superblock = |s: &Superblock| (s.content_hash(), s.parent_hash, s.is_growing());
        for device in &self.devices {
            (
                device.uuid,
                device.holds,
                device.present,
                device.slots.clone().map(|s| s.map(|s| superblock(&s))),
            )
                .hash(&mut hasher);
        }
        self.running
            .as_ref()
            .map(|r| (superblock(&r.superblock), &r.stale, &r.batches))
            .hash(&mut hasher);
        (self.batches, self.used_apart, self.restored, self.grows).hash(&mut hasher);
        hasher.finish()
    }
}

fn steps(members: usize) -> Vec<Step> {
    let each: [fn(usize) -> Step; 9] = [
        Step::Restore,
        Step::Fault,
        Step::FaultAndCut,
        Step::TakeOut,
        Step::BringBack,
        Step::Exchange,
        Step::Rebuild,
        Step::Plug,
        Step::Apart,
    ];
    let general = [
        Step::Write,
        Step::Checkpoint,
        Step::PowerOff,
        Step::Start,
        Step::StartAndCut,
    ];
    general
        .into_iter()
        .chain(each.into_iter().flat_map(|of| (0..members).map(of)))
        .collect()
}

/// Variants of a growth of `members` by `new`.
fn growths(redundancy: Redundancy, members: usize, new: usize) -> Vec<Step> {
    let (all, tolerance) = (members + new, redundancy.tolerance() as u32);
    let mut list = vec![Growth::Done];
    list.extend((0..1 << all).map(Growth::CutIntroducing));
    list.extend((0..1 << all).map(Growth::CutRecording));
    for fails in 0..1usize << all {
        let old = (fails & ((1 << members) - 1)).count_ones();
        if fails.count_ones() <= tolerance || old > tolerance || members as u32 - old <= tolerance {
            continue;
        }
        // The devices that do not fail have the generation, and those that do may have it.
        for mask in (0..1usize << all).filter(|mask| (mask | fails) + 1 == 1 << all) {
            list.push(Growth::TakenBack(mask, fails));
            list.extend((0..members).map(|written| Growth::CutTakingBack(mask, fails, written)));
        }
    }
    list.into_iter().map(Step::Grow).collect()
}

/// Explores all worlds within `depth` steps of a new pool after `prefix`; returns their number.
fn explore(redundancy: Redundancy, members: usize, prefix: &[Step], depth: usize) -> usize {
    let mut first = World::new(redundancy, members);
    assert!(first.start(false, false));
    explore_from(first, &steps(members), prefix, depth)
}

fn explore_from(mut first: World, steps: &[Step], prefix: &[Step], depth: usize) -> usize {
    first.images = Rc::new(first.devices.clone());
    for step in prefix {
        first = first
            .step(*step)
            .unwrap_or_else(|| panic!("{step:?} of {prefix:?} is possible"));
    }
    let mut seen = BTreeSet::from([first.key()]);
    let mut layer: Vec<(World, Vec<Step>)> = vec![(first, prefix.to_vec())];
    for _ in 0..depth {
        let mut next = Vec::new();
        for (world, path) in &layer {
            for step in steps {
                let Some(after) = world.step(*step) else {
                    continue;
                };
                if !seen.insert(after.key()) {
                    continue;
                }
                let path: Vec<Step> = path.iter().copied().chain([*step]).collect();
                if let Err(why) = after.check() {
                    panic!("{why}\nafter {path:?}");
                }
                next.push((after, path));
            }
        }
        layer = next;
    }
    seen.len()
}

#[test]
fn no_short_history_of_a_mirror_breaks_the_rules() {
    let worlds = explore(Redundancy::Copies(2), 2, &[], 7);
    assert!(worlds > 10_000, "{worlds}");
}

#[test]
fn no_short_history_of_a_parity_pool_breaks_the_rules() {
    let worlds = explore(Redundancy::Single, 3, &[], 5);
    assert!(worlds > 5_000, "{worlds}");
}

#[test]
fn no_device_with_a_history_of_its_own_is_trusted() {
    use Step::*;
    let apart = [
        Write,
        Checkpoint,
        Fault(1),
        PowerOff,
        Apart(1),
        Plug(1),
        Start,
    ];
    let worlds = explore(Redundancy::Copies(2), 2, &apart, 5);
    assert!(worlds > 500, "{worlds}");
}

/// A start that is cut off leaves a member one generation behind. That one is used by force
/// elsewhere, while the others continue without it. It must not look like a member that left
/// unchanged. So the forced start must not give it the generation since which the others record it
/// as absent.
#[test]
fn a_device_that_lagged_and_was_used_apart_is_not_trusted() {
    use Step::*;
    let mut world = World::new(Redundancy::Copies(3), 3);
    assert!(world.start(false, false));
    for step in [
        Write,
        Checkpoint,
        PowerOff,
        StartAndCut,
        Apart(1),
        Plug(1),
        Start,
        PowerOff,
        Start,
        PowerOff,
        Plug(1),
        Start,
    ] {
        world = world.step(step).unwrap_or_else(|| panic!("{step:?}"));
        world
            .check()
            .unwrap_or_else(|why| panic!("{why} after {step:?}"));
    }
    assert_eq!(
        world.running.expect("it runs").superblock.members[1].state,
        MemberState::Absent
    );
}

/// The same for one half of a mirror that failed while a generation was written, so that it lagged
/// when its loss was recorded.
#[test]
fn a_half_that_missed_a_generation_and_was_used_apart_is_not_trusted() {
    use Step::*;
    let mut world = World::new(Redundancy::Copies(2), 2);
    assert!(world.start(false, false));
    let mut world = world.step(Write).expect("it runs");
    // The checkpoint's generation: member 1 fails the write of its superblock.
    world
        .running
        .as_mut()
        .and_then(|r| r.superblock.checkpoints[0].as_mut())
        .expect("there is one")
        .id += 1;
    world.write_generation_to(0b01);
    assert!(world.record(1, Change::Fault));
    world.write_generation(false);
    // While both sides have the same generation they are refused as two histories.
    let apart = world
        .step(PowerOff)
        .and_then(|world| world.step(Apart(1)))
        .expect("it is used apart");
    assert!(apart.step(Start).is_none());
    let mut world = apart;
    for step in [Plug(1), Start, PowerOff, Plug(1), Start] {
        world = world.step(step).unwrap_or_else(|| panic!("{step:?}"));
        world
            .check()
            .unwrap_or_else(|why| panic!("{why} after {step:?}"));
    }
    assert_eq!(
        world.running.expect("it runs").superblock.members[1].state,
        MemberState::Absent
    );
}

#[test]
fn no_old_image_is_trusted() {
    use Step::*;
    let image = [
        Write,
        Checkpoint,
        TakeOut(1),
        BringBack(1),
        Rebuild(1),
        Fault(1),
        Write,
        PowerOff,
        Restore(1),
    ];
    let worlds =
        explore(Redundancy::Copies(2), 2, &image, 4) + explore(Redundancy::Single, 3, &image, 4);
    assert!(worlds > 500, "{worlds}");
}

/// A growth is recorded in two steps. Otherwise both sides could start: old members without the new
/// layout, and the new members with it and the other old ones.
#[test]
fn no_growth_that_is_cut_off_splits_a_pool_or_makes_it_depend_on_the_new_members() {
    use Step::*;
    let mut worlds = 0;
    let pools = [
        (Redundancy::Copies(2), 2, 2, 2),
        (Redundancy::Single, 3, 2, 2),
        (Redundancy::Copies(3), 3, 2, 2),
        (Redundancy::None, 1, 2, 3),
    ];
    for (redundancy, members, new, depth) in pools {
        let first = World::with_spares(redundancy, members, new);
        let grown = growths(redundancy, members, new)
            .into_iter()
            .filter_map(|step| Some((step, first.step(Write)?.step(step)?)));
        let mut steps = vec![Write, PowerOff, Start, StartAndCut, Grow(Growth::Done)];
        steps.extend((0..members + new).flat_map(|m| [Plug(m), FaultAndCut(m), Rebuild(m)]));
        for (step, world) in grown {
            world
                .check()
                .unwrap_or_else(|why| panic!("{why}\nafter {step:?} of {members} and {new}"));
            println!("{step:?} of {redundancy:?} {members} and {new}");
            worlds += explore_from(world, &steps, &[], depth);
        }
    }
    assert!(worlds > 10_000, "{worlds}");
}

/// A member leaves, and power fails at any point of it, with any of the members missing before and
/// after.
#[test]
fn no_removal_that_is_cut_off_splits_a_pool_or_makes_it_depend_on_the_one_that_leaves() {
    use Step::*;
    let mut worlds = 0;
    for (redundancy, members, depth) in [
        (Redundancy::Copies(2), 3, 5),
        (Redundancy::Single, 4, 4),
        (Redundancy::None, 2, 5),
        (Redundancy::Copies(3), 4, 4),
    ] {
        let mut first = World::new(redundancy, members);
        assert!(first.start(false, false));
        let mut steps = vec![Write, PowerOff, Start, StartAndCut, LetGo(None)];
        steps.extend((0..1 << members).map(|mask| LetGo(Some(mask))));
        steps.extend(
            (0..members)
                .flat_map(|m| [Plug(m), Fault(m), FaultAndCut(m), BringBack(m), Rebuild(m)]),
        );
        let ways = [None].into_iter().chain((0..1usize << members).map(Some));
        for cut in ways {
            let begun = first
                .step(Write)
                .and_then(|world| world.step(Leave(members - 1, cut)))
                .expect("a removal begins");
            begun
                .check()
                .unwrap_or_else(|why| panic!("{why}\nafter {cut:?}"));
            worlds += explore_from(begun.clone(), &steps, &[], depth - 1);
            if let Some(gone) = begun.step(LetGo(None)) {
                worlds += explore_from(gone, &steps, &[], depth);
            }
        }
    }
    assert!(worlds > 10_000, "{worlds}");
}

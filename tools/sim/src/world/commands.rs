//! Requests of clients and administrators, and devices that are added and removed.

use super::pace::Pace;
use super::{Commanded, Pending, World};
use crate::members::VirtualMember;
use crate::model::{Asked, VolumeChange, Wanted};
use crate::violation::{Violation, ensure};
use windrow_engine::{
    Control, ControlError, ControlId, ControlReply, ControlRequest, Event, MemberChange,
};
use windrow_io::{MemberIo, Request, RequestId};
use windrow_types::{BLOCK_BYTES, MemberId, VolumeId};

impl World {
    /// Submits a request.
    pub fn submit(&mut self, volume: VolumeId, asked: Asked) -> RequestId {
        let id = RequestId(self.next_id);
        self.next_id += 1;
        let asked = self.spread.cut(asked);
        let op = self.spread.place(asked.to_op(volume, &self.buffers));
        self.trace.tell(|| {
            format!(
                "{} request {}: volume {volume} {asked:?}",
                self.now_ns, id.0
            )
        });
        if asked.leaves_no_hole() {
            self.model.scarce_pages = self.pages_may_be_scarce();
        }
        self.model.submit(id, volume, asked);
        self.events.push(Event::Request(Request { id, volume, op }));
        id
    }

    /// Reads whole blocks; the result is the settled content from then on.
    pub fn read_back(&mut self, volume: VolumeId, first_block: u64, blocks: u64) {
        self.look(volume, first_block, blocks, |at, count| Asked::Read {
            at,
            count,
        });
    }

    /// Requests the block status of whole blocks; the result is the settled status from then on.
    pub fn look_at_status(&mut self, volume: VolumeId, first_block: u64, blocks: u64) {
        self.look(volume, first_block, blocks, |at, count| Asked::Status {
            at,
            count,
        });
    }

    fn look(
        &mut self,
        volume: VolumeId,
        mut first_block: u64,
        mut blocks: u64,
        asks: impl Fn(u64, u64) -> Asked,
    ) {
        let sectors = BLOCK_BYTES / crate::content::SECTOR as u64;
        while blocks > 0 {
            let asked = self
                .spread
                .cut(asks(first_block * sectors, blocks * sectors));
            let cut = asked.blocks();
            let id = self.submit(volume, asked);
            self.reading_back.insert(id, (volume, first_block));
            (first_block, blocks) = (first_block + cut, blocks - cut);
        }
    }

    /// Submits a volume operation.
    pub fn change(&mut self, change: VolumeChange) {
        let size = |blocks: u64| self.spread.size_bytes(blocks);
        let command = match &change {
            VolumeChange::Create(name, blocks) => Control::VolumeCreate {
                name: name.clone(),
                size_bytes: size(*blocks),
            },
            VolumeChange::Resize(volume, blocks) => Control::VolumeResize {
                volume: *volume,
                size_bytes: size(*blocks),
                shrink: true,
            },
            VolumeChange::Delete(volume) => Control::VolumeDelete { volume: *volume },
        };
        self.model.submit_change(&change);
        self.control(command, Commanded::Volume(change));
    }

    /// Submits a control command without effect on content.
    pub fn command(&mut self, command: Control) {
        self.stopping |= matches!(command, Control::Shutdown { .. });
        self.exporting |= matches!(command, Control::Shutdown { export: true });
        let commanded = match command {
            Control::SetProperties(_) => Commanded::Properties,
            Control::Scrub(_) => Commanded::Scrub,
            Control::VolumeCompression { volume, .. } => Commanded::Setting(volume, "compression"),
            Control::VolumeDedup { volume, .. } => Commanded::Setting(volume, "deduplication"),
            Control::VolumeSync { volume, .. } => Commanded::Setting(volume, "sync"),
            _ => Commanded::Other,
        };
        self.control(command, commanded);
    }

    /// Sends a command about a member.
    pub fn member_command(&mut self, member: MemberId, change: MemberChange) -> ControlId {
        let commanded = if matches!(change, MemberChange::Settle) {
            Commanded::Settle
        } else {
            Commanded::Member
        };
        self.control(Control::Member { member, change }, commanded)
    }

    /// Lets the pool grow over spares.
    pub fn grow(&mut self, members: Vec<MemberId>) -> ControlId {
        self.grows = true;
        self.control(Control::Grow { members }, Commanded::Member)
    }

    /// Lets a member leave for good.
    pub fn remove(&mut self, member: MemberId) -> ControlId {
        self.grows = true;
        self.control(Control::Remove { member }, Commanded::Member)
    }

    /// Puts a new device in a slot that the pool does not use yet.
    pub fn put_device(&mut self, member: MemberId, device: VirtualMember) {
        if member.index() < self.members.member_count() {
            self.former_bytes += self
                .status()
                .member_stats
                .get(member.index())
                .map_or(0, |stats| stats.written.total());
            self.members.exchange(member, device);
            self.read_before[member.index()] = 0;
            return;
        }
        self.members.push(device);
        self.paces.push(Pace::new(self.rng.between(50, 200)));
        self.busy.push(Vec::new());
        self.read_before.push(0);
    }

    /// Lets time pass without events.
    pub fn let_time_pass(&mut self, ns: u64) {
        self.now_ns += ns;
        self.events.push(Event::Tick(self.now_ns));
    }

    /// True if a command about a member is answered.
    pub fn has_answer(&self, id: ControlId) -> bool {
        self.answers.contains_key(&id)
    }

    /// Takes the answer to a command about a member, once.
    pub fn take_answer(&mut self, id: ControlId) -> Option<Result<ControlReply, ControlError>> {
        self.answers.remove(&id)
    }

    /// Replaces the device of a settled member.
    pub fn exchange_device(
        &mut self,
        member: MemberId,
        device: VirtualMember,
    ) -> Result<VirtualMember, Violation> {
        self.check_settled(member)?;
        self.former_bytes += self.status().member_stats[member.index()].written.total();
        self.read_before[member.index()] = 0;
        Ok(self.members.exchange(member, device))
    }

    /// Empties a device in its slot, as a host does without the engine: the engine's byte counts
    /// since the start remain.
    pub fn empty_device(&mut self, member: MemberId) {
        let mut received = std::mem::take(&mut self.members.member_mut(member).received);
        received.read_bytes -= std::mem::take(&mut self.read_before[member.index()]);
        let emptied = self.members.member(member).successor();
        self.members.exchange(member, emptied);
        self.members.member_mut(member).received = received;
    }

    /// Checks the engine's claim that nothing is in flight to this member.
    pub fn check_settled(&self, member: MemberId) -> Result<(), Violation> {
        let of_it = |pending: &Pending| match pending {
            Pending::Command(started) if started.command.member == member => {
                Some(format!("{:?}", started.command.op))
            }
            _ => None,
        };
        let left: Vec<String> = self
            .pending
            .values()
            .filter_map(of_it)
            .map(|op| op.chars().take(60).collect())
            .collect();
        ensure!(
            left.is_empty(),
            Protocol,
            "member {member} is settled with commands in flight: {left:?}"
        );
        Ok(())
    }

    fn control(&mut self, command: Control, change: Commanded) -> ControlId {
        let id = ControlId(self.next_id);
        self.next_id += 1;
        if let Control::SetProperties(properties) = &command {
            self.model.submit_properties(id, *properties);
        }
        match &command {
            Control::VolumeSync { volume, sync } => {
                self.model.submit_setting(id, *volume, Wanted::Sync(*sync))
            }
            Control::VolumeCompression {
                volume,
                compression,
            } => self
                .model
                .submit_setting(id, *volume, Wanted::Compression(*compression)),
            Control::VolumeDedup { volume, dedup } => {
                self.model
                    .submit_setting(id, *volume, Wanted::Dedup(*dedup))
            }
            _ => {}
        }
        self.trace
            .tell(|| format!("{} control {}: {command:?}", self.now_ns, id.0));
        self.changes.insert(id, change);
        self.events
            .push(Event::Control(ControlRequest { id, command }));
        id
    }
}

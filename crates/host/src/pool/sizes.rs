//! Members that became too small while they were open.
//!
//! A truncated file reads as an error after its new end, and a scrub "repairs" it there block by
//! block. It would stay in service, and the next start would leave it out. So sizes are checked
//! when a scrub starts, and every few seconds by the hot-spare manager. A member that is too small
//! fails, and is rebuilt as a whole once it is large enough again. A copy that is too small does
//! not replace its member.

use super::Pool;
use windrow_engine::{MemberChange, MemberStatus};
use windrow_types::MemberId;

impl Pool {
    /// Fails members that are smaller than their slots need, and abandons copies that are.
    /// Measuring sends nothing to a device.
    pub fn check_sizes(&self) {
        let Some(status) = self.status() else { return };
        for slot in &status.members {
            match slot.state {
                "online" | "rebuilding" | "missing" | "faulted" | "offline" => {
                    self.check_size(slot)
                }
                "spare" => {
                    let place = slot
                        .replaces
                        .and_then(|member| status.members.get(member.index()));
                    if let Some(why) =
                        place.and_then(|place| self.cannot_replace(slot.member, place))
                    {
                        self.give_up_copy(slot, &why);
                    }
                }
                _ => {}
            }
        }
    }

    fn check_size(&self, member: &MemberStatus) {
        if member.state == "online"
            && self
                .0
                .driver
                .device(member.member)
                .is_some_and(|device| device.is_nameless())
        {
            let text = self.member_text(member.member);
            self.warn_once(&format!("the file of {text} was deleted: the member serves until the pool ends, and no later start finds it; replace it now"));
        }
        let Some(size) = self.too_small(member.member, member) else {
            return;
        };
        let reason = format!(
            "it has {size} bytes now, and its place needs {}: it was cut short while it was in use",
            member.needed_bytes
        );
        let what = format!("member {} is too small", member.member);
        if let Err(failure) = self.change(member.member, MemberChange::CutShort { reason }, &what) {
            // The redundancy does not cover its loss: the rest of it is worth more than nothing.
            tracing::error!(%failure, "member {} has {size} bytes now, and its place needs {}", member.member, member.needed_bytes);
        }
    }

    /// Abandons a copy. Its member stays in use; its slot is free again.
    fn give_up_copy(&self, spare: &MemberStatus, why: &str) {
        let what = format!("spare {} cannot replace a member", spare.member);
        // Changes of members are serialized; the next check tries again.
        let Ok(_one) = self.0.exchanging.try_lock() else {
            return;
        };
        if let Ok((_, now)) = self.member_status(spare.member, &what)
            && now.uuid == spare.uuid
            && now.replaces == spare.replaces
        {
            tracing::error!(
                "pool '{}': {what}: {why}; it is removed from the pool, and the member stays in use",
                self.name()
            );
            if let Err(failure) = self.call_off(spare.member, &what) {
                self.warn_once(&failure.to_string());
            }
        }
    }

    /// Reason that the device of a spare must not take a member's slot.
    pub(super) fn cannot_replace(&self, spare: MemberId, place: &MemberStatus) -> Option<String> {
        if let Some(size) = self.too_small(spare, place) {
            return Some(format!(
                "it has {size} bytes now, and the place needs {}",
                place.needed_bytes
            ));
        }
        let is_nameless = self
            .0
            .driver
            .device(spare)
            .is_some_and(|device| device.is_nameless());
        is_nameless.then(|| "its file was deleted: no later start would find it".to_owned())
    }

    /// Bytes of the device in a slot, if they are fewer than needed.
    pub(super) fn too_small(&self, slot: MemberId, place: &MemberStatus) -> Option<u64> {
        // A device that cannot be measured fails by itself when it is used.
        let size = self.0.driver.device(slot)?.size_now().ok()?;
        (size < place.needed_bytes).then_some(size)
    }
}

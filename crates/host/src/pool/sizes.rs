//! Members that became too small while they were open.
//!
//! A file that is cut short reads as an error behind its new end, and is written there again block by block: a scrub "repairs" it, it stays in service, and the
//! next start leaves it out. So sizes are looked at when a scrub begins, and every few seconds by the steward: such a member has failed.

use super::Pool;
use windrow_engine::api::{MemberChange, MemberStatus};
use windrow_units::MemberId;

impl Pool {
    /// Has members fail that have fewer bytes than their places need. Measuring sends nothing to a device.
    pub fn check_sizes(&self) {
        let Some(status) = self.status() else { return };
        for member in status.members.iter().filter(|member| ["online", "rebuilding"].contains(&member.state)) {
            let Some(size) = self.too_small(member.member, member) else { continue };
            let reason = format!("it has {size} bytes now, and its place needs {}: it was cut short while it was in use", member.needed_bytes);
            let what = format!("member {} is too small", member.member);
            if let Err(failure) = self.change(member.member, MemberChange::Fail { reason }, &what) {
                // The redundancy does not cover its loss: what is left of it is worth more than nothing.
                tracing::error!(%failure, "member {} has {size} bytes now, and its place needs {}", member.member, member.needed_bytes);
            }
        }
    }

    /// Bytes of the device in a slot, if they are fewer than a place needs.
    pub(super) fn too_small(&self, slot: MemberId, place: &MemberStatus) -> Option<u64> {
        // What cannot be measured fails by itself when it is used.
        let size = self.0.driver.device(slot)?.size_now().ok()?;
        (size < place.needed_bytes).then_some(size)
    }
}

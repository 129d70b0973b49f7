//! Invariants of commands, of counters and of a pool at rest.

use super::World;
use crate::model::shown_properties;
use crate::spread::Spread;
use crate::violation::{Violation, ensure};
use windrow_engine::Reduction;
use windrow_geometry::JournalArea;
use windrow_io::{MemberCommand, MemberIo};
use windrow_types::{BLOCK_BYTES, MemberId, VolumeId};

impl World {
    /// True if the map pages in use, now or after all requests are admitted, are so numerous that
    /// zeroed ranges may get no new ones.
    pub(super) fn pages_may_be_scarce(&self) -> bool {
        let status = self.status();
        // (Each request may need pages of its own if the map is spread.)
        self.spread != Spread::default()
            || 2 * (status.map_pages + 2 * self.unanswered() as u64) >= status.map_pages_max
    }

    /// Ids of shared content that these blocks of a volume refer to.
    pub fn content_ids(&self, volume: VolumeId, blocks: std::ops::Range<u64>) -> Vec<Option<u64>> {
        self.engine
            .as_ref()
            .map(|engine| engine.content_ids(volume, blocks))
            .unwrap_or_default()
    }

    /// Checks that a command is well formed, inside the member, and does not race with another one
    /// that changes the same range.
    pub(super) fn check_command(
        &mut self,
        command: &MemberCommand,
        kind: u64,
        offset: u64,
        length: u64,
    ) -> Result<(), Violation> {
        let member = command.member;
        let size = self.members.member(member).size();
        // In the journal the unit is the granule of its records; the zones begin after it.
        let in_journal = self.engine.as_ref().and_then(|engine| {
            let has_place = |area: &&JournalArea| area.members >> member.0 & 1 == 1;
            // A spare that becomes a copy of a member gets that member's records.
            let has_none = !engine.journals().areas().any(|area| has_place(&area));
            engine.journals().areas().find(|area| {
                (has_none || has_place(area)) && (area.start..area.end()).contains(&offset)
            })
        });
        let unit = in_journal.map_or(BLOCK_BYTES, |area| u64::from(area.granule));
        let aligned =
            offset.is_multiple_of(unit) && length.is_multiple_of(unit) && (length > 0 || kind == 3);
        ensure!(
            aligned && offset + length <= size,
            Protocol,
            "member {member}: {kind} at {offset} + {length} of {size} bytes"
        );
        if kind == 2 || kind == 4 {
            let busy = &mut self.busy[member.index()];
            let other = busy
                .iter()
                .find(|(start, len, _)| offset < start + len && *start < offset + length);
            ensure!(
                other.is_none(),
                Protocol,
                "member {member}: {kind} at {offset} + {length} while {other:?} is in flight"
            );
            busy.push((offset, length, command.tag.0));
        }
        Ok(())
    }

    /// Checks a pool at rest: nothing left over, everything durable (a flush has just completed),
    /// every counter exact.
    pub fn check_rest(&self) -> Result<(), Violation> {
        let status = self.status();
        ensure!(
            self.under_way() == 0 && self.unanswered() == 0,
            Leak,
            "{} in flight, {} unanswered",
            self.under_way(),
            self.unanswered()
        );
        ensure!(
            status.pending_bytes == 0,
            Leak,
            "{} bytes pending at rest",
            status.pending_bytes
        );
        ensure!(
            status.at_risk_bytes == 0,
            Leak,
            "{} bytes at risk after a flush",
            status.at_risk_bytes
        );
        if let Some(engine) = &self.engine {
            ensure!(
                engine.tables_are_empty(),
                Leak,
                "at rest, but something is in progress in the engine: {}",
                engine.describe()
            );
            // Cleaning that pauses in the middle of a segment holds the blocks that it moves.
            let (buffers, before) = (self.buffers.handles(), self.handles_at_start);
            ensure!(
                buffers <= before || !engine.is_quiet(),
                Leak,
                "{buffers} buffers are in use at rest, {before} were after the start"
            );
        }
        let acknowledged = self.model.acknowledged();
        let durable = status.durable_lsn.0;
        ensure!(
            durable >= acknowledged,
            Durability,
            "LSN {acknowledged} was acknowledged and flushed, the durable LSN is {durable}"
        );
        ensure!(
            status.lsn.0 >= durable,
            Protocol,
            "durable LSN {durable} beyond the newest {}",
            status.lsn
        );
        let mut used = 0;
        for (id, volume) in self.model.volumes() {
            let bytes = self.model.blocks_with_data(*id) * BLOCK_BYTES;
            used += bytes;
            let Some(shown) = status.volumes.iter().find(|shown| shown.id == *id) else {
                return Err(Violation::new(
                    crate::Broken::Protocol,
                    format!("volume {id} is not shown"),
                ));
            };
            ensure!(
                shown.mapped_bytes == bytes,
                Accounting,
                "volume {id}: {} mapped bytes, should be {bytes}",
                shown.mapped_bytes
            );
            self.model.check_settings(shown)?;
            ensure!(
                shown.size_bytes == volume.size_bytes(),
                Protocol,
                "volume {id} has {} bytes, should be {}",
                shown.size_bytes,
                volume.size_bytes()
            );
        }
        let shown = status.reduction_use;
        ensure!(
            shown.blocks_bytes == used,
            Accounting,
            "{} bytes of blocks are used, should be {used}",
            shown.blocks_bytes
        );
        let (charged, stored) = (shown.charged_bytes, status.stored_bytes);
        ensure!(
            (stored..=used).contains(&charged),
            Accounting,
            "{charged} bytes are charged for {stored} stored ones of {used}"
        );
        let counts = if shown.way == Reduction::Capacity {
            charged
        } else {
            used
        };
        ensure!(
            status.used_bytes == counts,
            Accounting,
            "{} used bytes, should be {counts} with {:?}",
            status.used_bytes,
            shown.way
        );
        let deleting = status
            .volumes
            .iter()
            .filter(|volume| volume.deleting)
            .count();
        ensure!(
            deleting == 0,
            Leak,
            "{deleting} volumes are still being deleted at rest"
        );
        self.check_user_counters()?;
        self.check_counters()
    }

    /// Checks that the engine counts client requests as the clients do.
    fn check_user_counters(&self) -> Result<(), Violation> {
        let (status, served) = (self.status(), &self.model.served);
        let counted = (
            status.user_write_bytes,
            status.user_read_bytes,
            status.flushes,
        );
        let flushes = if self.model.counts_flushes() {
            served.flushes
        } else {
            status.flushes
        };
        let asked = (served.written_bytes, served.read_bytes, flushes);
        ensure!(
            counted == asked,
            Accounting,
            "counted (bytes written, bytes read, flushes) {counted:?}, clients count {asked:?}"
        );
        let fills = served.fill_blocks..=served.fill_blocks + served.partial_blocks;
        ensure!(
            fills.contains(&status.fill_blocks),
            Accounting,
            "{} blocks of zeroes or ones were counted, clients wrote {fills:?}",
            status.fill_blocks
        );
        let (shown, set) = (shown_properties(&status), self.model.properties());
        ensure!(
            set == Some(shown),
            Protocol,
            "the properties are {shown:?}, set were {set:?}"
        );
        Ok(())
    }

    /// Checks that a pool opened read-only is unchanged.
    pub fn check_untouched(&self) -> Result<(), Violation> {
        for index in 0..self.members.member_count() {
            let received = self.members.member(MemberId(index as u8)).received;
            let touched = (
                received.written_bytes,
                received.flushes,
                received.discarded_bytes,
            );
            ensure!(
                touched == (0, 0, 0),
                Protocol,
                "a read-only start: member {index} received (written, flushes, discarded) {touched:?}"
            );
        }
        Ok(())
    }

    fn check_counters(&self) -> Result<(), Violation> {
        let status = self.status();
        let mut total = 0;
        for (index, stats) in status.member_stats.iter().enumerate() {
            let member = MemberId(index as u8);
            total += stats.written.total();
            let received = self.members.member(member).received;
            // For failed operations the engine counts the requested bytes, and a member that failed
            // and was rebuilt is healthy again.
            if self.failing_members.contains(&member)
                || !self.members.is_present(member)
                || received.errors > 0
            {
                continue;
            }
            let counted = (
                stats.written.total(),
                stats.flushes,
                stats.discarded_bytes,
                stats.read_bytes,
                stats.errors,
            );
            let read_bytes = received.read_bytes - self.read_before[index];
            let device = (
                received.written_bytes,
                received.flushes,
                received.discarded_bytes,
                read_bytes,
                received.errors,
            );
            ensure!(
                counted == device,
                Accounting,
                "member {member}: counted (written, flushes, discarded, read, errors) {counted:?}, received {device:?}; {:?}",
                stats.written
            );
        }
        total += self.former_bytes;
        ensure!(
            status.written.total() == total,
            Accounting,
            "the sum is {}, the members' {total}",
            status.written.total()
        );
        Ok(())
    }
}

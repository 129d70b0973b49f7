//! Notices of the engine in words, with the names that an administrator knows.

use crate::directory::Directory;
use crate::text::{quoted, shown};
use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};
use windrow_engine::Notice;
use windrow_types::{MemberId, VolumeId};

/// Severity of a notice in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Level {
    /// A change of state.
    Info,
    /// The pool continues, but an administrator should look.
    Warning,
    /// Something is lost or has stopped.
    Error,
}

impl Level {
    /// The name used in events.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// The level of a notice.
pub(crate) fn level(notice: &Notice) -> Level {
    match notice {
        Notice::Grown { .. }
        | Notice::Leaving { .. }
        | Notice::Removed { .. }
        | Notice::Reshaped
        | Notice::MemberNotSlow { .. } => Level::Info,
        Notice::MemberAnswers { .. }
        | Notice::ReplacementReady { .. }
        | Notice::Replaced { .. } => Level::Info,
        Notice::ReplacementEnded { .. } => Level::Warning,
        Notice::MemberRebuilt { .. }
        | Notice::ScrubEnded {
            wrong_blocks: 0,
            lost_blocks: 0,
            damaged_batches: 0,
            unmoved_blocks: 0,
        } => Level::Info,
        Notice::ScrubEnded {
            lost_blocks: 0,
            damaged_batches: 0,
            unmoved_blocks: 0,
            ..
        } => Level::Warning,
        Notice::LabelWritten { .. }
        | Notice::SpareFailed { .. }
        | Notice::StartNote { .. }
        | Notice::Repaired { .. }
        | Notice::MemberSlow { .. }
        | Notice::MemberHangs { .. }
        | Notice::MemberRebuilding { .. }
        | Notice::MemberOffline { .. } => Level::Warning,
        Notice::MemberMissing { .. }
        | Notice::Filling { .. }
        | Notice::Overcommitted { .. }
        | Notice::MapFull { .. } => Level::Warning,
        Notice::Exhausted { .. } => Level::Error,
        Notice::ScrubEnded { .. } | Notice::MemberFailed { .. } | Notice::Stopped { .. } => {
            Level::Error
        }
        Notice::Unrecoverable { .. }
        | Notice::UnrecoverableReference { .. }
        | Notice::UnnamedReferences { .. } => Level::Error,
    }
}

/// The kind of a notice, and its most messages in a minute. Kinds that a client or a device can
/// repeat have few.
pub(crate) fn kind(notice: &Notice) -> (&'static str, u32) {
    const FEW: u32 = 10;
    // All members of the largest pool may change their state at once, twice.
    const OF_MEMBERS: u32 = 128;
    match notice {
        Notice::MemberFailed { .. } => ("member_failed", OF_MEMBERS),
        Notice::MemberMissing { .. } => ("member_missing", OF_MEMBERS),
        Notice::MemberOffline { .. } => ("member_offline", OF_MEMBERS),
        Notice::MemberRebuilding { .. } => ("member_rebuilding", OF_MEMBERS),
        Notice::MemberRebuilt { .. } => ("member_rebuilt", OF_MEMBERS),
        Notice::ReplacementReady { .. } => ("replacement_ready", FEW),
        Notice::ReplacementEnded { .. } => ("replacement_ended", FEW),
        Notice::Replaced { .. } => ("replaced", FEW),
        Notice::StartNote { .. } => ("start_note", OF_MEMBERS),
        Notice::Removed { .. } => ("removed", OF_MEMBERS),
        Notice::Repaired { .. } => ("repaired", FEW),
        Notice::LabelWritten { .. } => ("label_written", OF_MEMBERS),
        Notice::SpareFailed { .. } => ("spare_failed", OF_MEMBERS),
        Notice::Unrecoverable { .. } => ("unrecoverable", FEW),
        Notice::UnrecoverableReference { .. } => ("unrecoverable_reference", FEW),
        Notice::UnnamedReferences { .. } => ("unnamed_references", FEW),
        Notice::Filling { .. } => ("filling", FEW),
        Notice::Overcommitted { .. } => ("overcommitted", FEW),
        Notice::MapFull { .. } => ("map_full", FEW),
        Notice::Exhausted { .. } => ("exhausted", FEW),
        Notice::MemberSlow { .. } => ("member_slow", FEW),
        Notice::MemberNotSlow { .. } => ("member_not_slow", FEW),
        Notice::MemberHangs { .. } => ("member_hangs", FEW),
        Notice::MemberAnswers { .. } => ("member_answers", FEW),
        Notice::ScrubEnded { .. } => ("scrub_ended", FEW),
        Notice::Grown { .. } => ("grown", FEW),
        Notice::Leaving { .. } => ("leaving", OF_MEMBERS),
        Notice::Reshaped => ("reshaped", FEW),
        Notice::Stopped { .. } => ("stopped", FEW),
    }
}

/// The member that a notice is about.
pub(crate) fn member_of(notice: &Notice) -> Option<MemberId> {
    match notice {
        Notice::MemberFailed { member, .. }
        | Notice::MemberMissing { member }
        | Notice::MemberOffline { member }
        | Notice::Repaired { member, .. }
        | Notice::LabelWritten { member }
        | Notice::SpareFailed { member }
        | Notice::MemberRebuilding { member, .. }
        | Notice::MemberRebuilt { member }
        | Notice::ReplacementReady { member, .. }
        | Notice::ReplacementEnded { member, .. }
        | Notice::Replaced { member }
        | Notice::MemberSlow { member, .. }
        | Notice::MemberNotSlow { member }
        | Notice::MemberHangs { member, .. }
        | Notice::MemberAnswers { member }
        | Notice::Leaving { member, .. }
        | Notice::Removed { member, .. } => Some(*member),
        _ => None,
    }
}

/// The volume that a notice is about.
pub(crate) fn volume_of(notice: &Notice) -> Option<VolumeId> {
    match notice {
        Notice::Repaired { volume, .. }
        | Notice::Unrecoverable { volume, .. }
        | Notice::UnrecoverableReference { volume, .. } => Some(*volume),
        _ => None,
    }
    .filter(|volume| *volume != VolumeId::SHARED)
}

/// A notice as a sentence, without the name of the pool.
pub(crate) fn sentence(notice: &Notice, names: &Directory) -> String {
    let member = member_of(notice)
        .map(|member| member_text(member, names))
        .unwrap_or_default();
    let volume = volume_of(notice).map_or_else(
        || "shared content".to_owned(),
        |volume| format!("volume '{}'", shown(&names.volume(volume))),
    );
    match notice {
        Notice::MemberFailed { error, .. } => format!(
            "{member} has failed and is out of service: {error}; see `windrow pool status {}`",
            quoted(&names.name)
        ),
        Notice::MemberMissing { member: slot } => {
            let place = names.place(*slot);
            let last = if place.path.is_empty() && !place.last_path.is_empty() {
                "; that is where it was last seen"
            } else {
                ""
            };
            format!("{member} is missing{last}")
        }
        Notice::MemberOffline { .. } => format!("{member} was taken out of service"),
        Notice::StartNote { note } => note.clone(),
        Notice::Repaired { lba, .. } => format!(
            "{volume}, block {lba}: {member} returned wrong bytes or none; repaired from redundancy"
        ),
        Notice::LabelWritten { .. } => {
            format!("the label of {member} was damaged and has been written again")
        }
        Notice::SpareFailed { .. } => format!(
            "{member}, a spare, does not answer or has lost its label: it cannot replace a member; replace it"
        ),
        Notice::Unrecoverable { lba, blocks, .. } => {
            format!(
                "{volume}, {}: data is lost, it can neither be read nor be reconstructed",
                blocks_text(*lba, *blocks)
            )
        }
        Notice::UnrecoverableReference { lba, content, .. } => {
            format!("{volume}, block {lba}: data is lost with shared content {content}")
        }
        Notice::UnnamedReferences { more } => {
            format!("{more} more blocks refer to shared content that is lost")
        }
        Notice::Filling { percent } => {
            format!("{percent} % of the usable space is in use: free some, or add members")
        }
        Notice::Overcommitted {
            provisioned_bytes,
            usable_bytes,
        } => {
            format!(
                "volumes promise {provisioned_bytes} bytes, the pool can store {usable_bytes}: watch `used`"
            )
        }
        Notice::MapFull {
            pages,
            by_memory: true,
        } => {
            format!(
                "a write was refused: all {pages} pages of the map are in use; allow more with --map-memory, or trim"
            )
        }
        Notice::MapFull { pages, .. } => {
            format!(
                "a write was refused: all {pages} pages of the map are in use, the most of a pool of this size, at a page for each MiB of a volume that holds data; trim, or add members"
            )
        }
        Notice::Exhausted { segments } => {
            format!(
                "no segment becomes free any more: {segments} segments hold blocks that cannot be read; delete or trim something, or bring the missing members back"
            )
        }
        Notice::MemberRebuilding { segments, .. } => {
            format!("{member} is rebuilt: {segments} segments of it are missing")
        }
        Notice::MemberRebuilt { .. } => format!("{member} is rebuilt and online"),
        Notice::ReplacementReady { spare, .. } => {
            format!("spare {spare} holds everything that {member} holds, and takes its place")
        }
        Notice::ReplacementEnded { spare, .. } => {
            format!(
                "{member} is not replaced by spare {spare}: one of the two has left service, or the replacement was called off"
            )
        }
        Notice::Replaced { .. } => format!(
            "a new device has taken the place of {member} and holds everything; the previous one is not used any more"
        ),
        Notice::MemberSlow {
            reads, slow_reads, ..
        } => format!(
            "{member} is slow: {slow_reads} of its last {reads} reads were late; others are asked instead"
        ),
        Notice::MemberNotSlow { .. } => format!("{member} answers in time again"),
        Notice::MemberHangs { commands, .. } => {
            format!("{member} has not answered for ten seconds; {commands} commands wait for it")
        }
        Notice::MemberAnswers { .. } => format!("{member} answers again"),
        Notice::ScrubEnded {
            wrong_blocks,
            lost_blocks,
            damaged_batches,
            unmoved_blocks,
        } => {
            let mut text =
                format!("a scrub has ended: {wrong_blocks} wrong blocks, {lost_blocks} lost");
            for (count, what) in [
                (damaged_batches, "damaged batches"),
                (unmoved_blocks, "not moved because there is no room"),
            ] {
                if *count > 0 {
                    // Writing to a string does not fail.
                    _ = write!(text, ", {count} {what}");
                }
            }
            text
        }
        Notice::Grown { members, segments } => format!(
            "the pool has grown to {members} members; the data of {segments} segments moves"
        ),
        Notice::Leaving { segments, .. } => {
            format!("{member} leaves; the data of {segments} segments moves to the others")
        }
        Notice::Removed { uuid, .. } => format!("{member} ({uuid}) has left the pool"),
        Notice::Reshaped => "all data has moved to the new layout".to_owned(),
        Notice::Stopped { reason } => {
            format!("the pool has stopped: {reason}; {}", next_step(reason))
        }
    }
}

/// A member with its known details.
pub(crate) fn member_text(member: MemberId, names: &Directory) -> String {
    let place = names.place(member);
    let known = [
        place.last_path.clone(),
        place.model.clone(),
        if place.serial.is_empty() {
            String::new()
        } else {
            format!("serial {}", place.serial)
        },
    ];
    let known: Vec<String> = known.into_iter().filter(|text| !text.is_empty()).collect();
    if known.is_empty() {
        format!("member {member}")
    } else {
        format!("member {member} ({})", known.join(", "))
    }
}

fn blocks_text(first: u64, blocks: u64) -> String {
    if blocks == 1 {
        format!("block {first}")
    } else {
        format!("blocks {first} to {}", first + blocks - 1)
    }
}

/// Next step after a pool has stopped for this reason.
pub(crate) fn next_step(reason: &str) -> &'static str {
    if reason.contains("redundancy covers") {
        "connect the lost members and restart the daemon; nothing was written without them"
    } else {
        "restart the daemon; what was flushed is on the members"
    }
}

/// A time in RFC 3339 format, in UTC.
pub(crate) fn rfc3339(at: SystemTime) -> String {
    // The last second of the year 9999.
    const LAST: u64 = 253_402_300_799;
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let unix_s = since.as_secs().min(LAST);
    // Days since 1 March 0000, in eras of 400 years.
    let days = unix_s / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day_of_month = day - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 {
        (year, month + 3)
    } else {
        (year + 1, month - 9)
    };
    let (hour, minute, second) = (unix_s / 3600 % 24, unix_s / 60 % 60, unix_s % 60);
    format!(
        "{:04}-{month:02}-{day_of_month:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z",
        era * 400 + year,
        since.subsec_millis()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_those_of_the_calendar() {
        let at = |millis: u64| rfc3339(UNIX_EPOCH + Duration::from_millis(millis));
        assert_eq!(at(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(at(951_868_800_000), "2000-03-01T00:00:00.000Z");
        assert_eq!(at(1_700_000_000_789), "2023-11-14T22:13:20.789Z");
        assert_eq!(at(4_107_542_399_001), "2100-02-28T23:59:59.001Z");
        assert_eq!(at(4_107_542_400_000), "2100-03-01T00:00:00.000Z");
        assert_eq!(rfc3339(UNIX_EPOCH - Duration::from_secs(5)), at(0));
    }
}

//! Member state machine: the effect of each event in each state. Pure; nothing else changes the
//! superblock's member table.
//!
//! [`next`] has exactly one answer for each pair of state and event (`TABLE`, shown in
//! docs/internals/members.md). Two rules determine it:
//!
//! 1. *A member is trusted only with writes that it was seen to complete.* The point since which it
//!    may have missed some is kept with it ([`Missed`]). Its content is useful only if it is the
//!    very device that left, as it left ([`Found`]).
//! 2. *A member that the administrator took out does not return*, and no unknown device is
//!    accepted, unless the administrator requests it.

use windrow_format::superblock::{Absence, MemberRecord, MemberState};
use windrow_types::Generation;

/// State of a slot of the member table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) enum SlotState {
    /// Takes part in everything.
    Online,
    /// Absent at a start.
    Missing,
    /// Failed in service.
    Failed,
    /// Taken out by the administrator.
    Offline,
    /// Takes part in writes; counts as lost.
    Rebuilding,
    /// Waits to take a member's place.
    Spare,
    /// Not in use.
    Removed,
}

/// Device found in the slot of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) enum Found {
    /// None, or a device that is not this member.
    Nothing,
    /// The member with the newest superblock, or the previous one, which a crash can leave.
    Current,
    /// The member, as it was when it left.
    AsLeft,
    /// The member, as of a time before it left.
    Older,
    /// The member, used without the pool since it left.
    Apart,
    /// The member, but too small for the pool's data on it. Data past its end is gone, even if it
    /// grows again.
    Short,
}

/// Event of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) enum Change {
    /// A write or flush failed, or the device is gone.
    Fault,
    /// Its device has become too small.
    CutShort,
    /// A start of the pool, with this device in the member's slot.
    Start(Found),
    /// No segment is stale on it any more.
    Whole,
    /// The administrator takes it out.
    TakeOut,
    /// The administrator brings back the device found in its slot.
    BringBack(Found),
    /// A new device takes its slot.
    Exchange,
    /// A spare takes the slot of another member, or the administrator frees the slot.
    GiveUp,
    /// A new device waits in this slot.
    Add,
    /// The pool grows onto it.
    Join,
    /// The growth is reverted before anything was written in the new layout.
    Leave,
    /// It becomes a journal device.
    Serve,
    /// A journal device that is out of use is dropped for good.
    Dismiss,
    /// It leaves, and no data is left on it.
    Emptied,
}

/// Point since which the member may have missed writes, after the event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Missed {
    /// Unchanged.
    AsBefore,
    /// Since the newest durable checkpoint, or an earlier point recorded before.
    Newest,
    /// From the beginning.
    Everything,
    /// Nothing.
    Nothing,
}

/// Answer of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// Nothing changes.
    Stays,
    /// The new state.
    To(SlotState, Missed),
    /// Not allowed, with the reason.
    Refused(&'static str),
    /// Impossible.
    Never,
}

use Answer::{Never, Refused, Stays, To};
use Change::{
    Add, BringBack, CutShort, Dismiss, Emptied, Exchange, Fault, GiveUp, Join, Leave, Serve, Start,
    TakeOut, Whole,
};
use Found::{Apart, AsLeft, Current, Nothing, Older, Short};
use SlotState::{Failed, Missing, Offline, Online, Rebuilding, Removed, Spare};

const IN_USE: Answer = Refused("it is in use; take it out first");
const HAS_IT: Answer = Refused("it is in use already");
const NOT_THERE: Answer = Refused("its device is absent");
const TOO_SMALL: Answer = Refused("its device is too small");
const USED_APART: Answer = Refused(
    "it was used without the pool since it left: its content is of another history; replace it instead",
);
const NO_MEMBER: Answer = Refused("it is not a member that holds data");
const HOLDS_DATA: Answer = Refused("it has a slot in the pool; replace it instead");
const NO_SPARE: Answer = Refused("it is no spare");
const TAKEN: Answer = Refused("the slot is taken");

/// Answer to [`Change::Start`] for a member that left on its own.
const fn returns(found: Found) -> Answer {
    match found {
        AsLeft => To(Rebuilding, Missed::AsBefore),
        Older => To(Rebuilding, Missed::Everything),
        Nothing | Current | Apart | Short => Stays,
    }
}

const fn brought_back(found: Found) -> Answer {
    match found {
        AsLeft => To(Rebuilding, Missed::AsBefore),
        Older => To(Rebuilding, Missed::Everything),
        Nothing => NOT_THERE,
        Short => TOO_SMALL,
        Current | Apart => USED_APART,
    }
}

/// New state of a slot.
pub(crate) const fn next(slot_state: SlotState, change: Change) -> Answer {
    match (slot_state, change) {
        (Online, Fault) => To(Failed, Missed::Newest),
        // A device that was cut short and grew again holds the newest superblock, and zeroes where
        // data was.
        (Online | Rebuilding | Failed, CutShort) => To(Failed, Missed::Everything),
        (Missing, CutShort) => To(Missing, Missed::Everything),
        (Offline, CutShort | Start(Short)) => To(Offline, Missed::Everything),
        (Online | Rebuilding | Missing, Start(Short)) => To(Missing, Missed::Everything),
        (Failed, Start(Short)) => To(Failed, Missed::Everything),
        (Online, Start(Nothing | Apart)) => To(Missing, Missed::Newest),
        (Online, Start(Current)) => Stays,
        // It left unnoticed, at an unknown time.
        (Online, Start(AsLeft | Older)) => To(Rebuilding, Missed::Everything),
        (Online, TakeOut) => To(Offline, Missed::Newest),

        (Rebuilding, Fault) => To(Failed, Missed::Newest),
        (Rebuilding, Start(Nothing | Apart)) => To(Missing, Missed::AsBefore),
        (Rebuilding, Start(Current)) => Stays,
        (Rebuilding, Start(AsLeft)) => To(Rebuilding, Missed::AsBefore),
        (Rebuilding, Start(Older)) => To(Rebuilding, Missed::Everything),
        (Rebuilding, Whole) => To(Online, Missed::Nothing),
        (Rebuilding, TakeOut) => To(Offline, Missed::Newest),

        // A command that was in flight when it failed returns later.
        (Missing | Failed | Offline, Fault) => Stays,
        (Missing | Failed, Start(found)) => returns(found),
        (Offline, Start(_)) => Stays,
        (Missing | Failed | Offline, TakeOut) => To(Offline, Missed::AsBefore),
        (Missing | Failed | Offline, BringBack(found)) => brought_back(found),
        (Missing | Failed | Offline, Exchange) => To(Rebuilding, Missed::Everything),

        (Spare, Fault | CutShort | Start(_)) => Stays,
        (Spare, GiveUp) => To(Removed, Missed::Nothing),
        // It holds no data yet, so it has missed nothing.
        (Spare, Join) => To(Online, Missed::Nothing),
        (Removed, Start(_)) => Stays,
        (Removed, Add) => To(Spare, Missed::Nothing),

        (Online | Missing | Failed | Offline | Spare | Removed, Whole)
        | (Removed, Fault | CutShort) => Never,
        (Online | Rebuilding, BringBack(_)) => HAS_IT,
        (Online | Rebuilding, Exchange) => IN_USE,
        (Online | Rebuilding | Missing | Failed | Offline, GiveUp) => HOLDS_DATA,
        (Spare | Removed, TakeOut | BringBack(_) | Exchange) => NO_MEMBER,
        (Removed, GiveUp | Join) => NO_MEMBER,
        (Online | Rebuilding | Missing | Failed | Offline, Join) => NO_SPARE,
        (Online | Failed | Offline, Leave) => To(Spare, Missed::Nothing),
        (Rebuilding | Missing | Spare | Removed, Leave) => Never,
        (Online | Rebuilding | Missing | Failed | Offline | Spare, Add) => TAKEN,

        // Older records have no copy on it: it is complete when the log has all that they made
        // durable.
        (Spare, Serve) => To(Rebuilding, Missed::Everything),
        (Removed, Serve | Dismiss) | (Spare, Dismiss) => NO_MEMBER,
        (Online | Rebuilding | Missing | Failed | Offline, Serve) => NO_SPARE,
        (Missing | Failed | Offline, Dismiss) => To(Removed, Missed::Nothing),
        (Online | Rebuilding, Dismiss) => IN_USE,

        (Online | Missing | Failed | Offline, Emptied) => To(Removed, Missed::Nothing),
        // The remaining rebuild concerns extents that are not in use: it ends first.
        (Rebuilding | Spare | Removed, Emptied) => Never,
    }
}

/// State that a record represents.
pub(crate) fn slot_state(record: &MemberRecord) -> SlotState {
    match (record.state, record.absence) {
        (MemberState::Online, _) => Online,
        (MemberState::Rebuilding, _) => Rebuilding,
        (MemberState::Spare, _) => Spare,
        (MemberState::Removed, _) => Removed,
        (MemberState::Absent, Absence::Missing) => Missing,
        (MemberState::Absent, Absence::Failed) => Failed,
        (MemberState::Absent, Absence::Offline) => Offline,
    }
}

/// Changes a record by the table. `newest` is the number of the newest durable checkpoint,
/// `generation` the superblock generation that will record the change. True if something changed.
///
/// # Errors
///
/// If the table refuses; the text is the reason.
pub(crate) fn change(
    record: &mut MemberRecord,
    change: Change,
    newest: u64,
    generation: Generation,
) -> Result<bool, &'static str> {
    let before = slot_state(record);
    let (to, missed) = match next(before, change) {
        Stays => return Ok(false),
        Refused(why) => return Err(why),
        Never => return Err("this cannot happen to it"),
        To(to, missed) => (to, missed),
    };
    record.missed_from = match (missed, before) {
        (Missed::AsBefore, _) => record.missed_from,
        (Missed::Newest, Online) => newest,
        (Missed::Newest, _) => record.missed_from.min(newest),
        (Missed::Everything | Missed::Nothing, _) => 0,
    };
    // The checkpoint that lists the stale segments of a member is forgotten with every event that
    // changes them.
    record.listed_from = 0;
    let in_use = |slot_state: SlotState| matches!(slot_state, Online | Rebuilding);
    record.absent_since = match to {
        Missing | Failed | Offline if in_use(before) => generation,
        Missing | Failed | Offline | Rebuilding => record.absent_since,
        Online | Spare | Removed => Generation(0),
    };
    (record.state, record.absence) = match to {
        Online => (MemberState::Online, Absence::Missing),
        Missing => (MemberState::Absent, Absence::Missing),
        Failed => (MemberState::Absent, Absence::Failed),
        Offline => (MemberState::Absent, Absence::Offline),
        Rebuilding => (MemberState::Rebuilding, Absence::Missing),
        Spare => (MemberState::Spare, Absence::Missing),
        Removed => (MemberState::Removed, Absence::Missing),
    };
    record.replaces = record.replaces.filter(|_| to == Spare);
    Ok(true)
}

/// Classifies a device by the member's record in the superblock in force, and by the device's own
/// newest superblock, of generation `own`. `current`: that is the superblock in force, or the
/// previous one.
pub(crate) fn found(record: &MemberRecord, own: Generation, current: bool) -> Found {
    let left = own.next() == record.absent_since || own.next().next() == record.absent_since;
    match slot_state(record) {
        Online | Rebuilding if current => Current,
        // It left with the generation before the one that recorded it absent, or with the one
        // before that if it missed the last.
        Rebuilding if left => AsLeft,
        Online | Rebuilding => Older,
        _ if own >= record.absent_since => Apart,
        _ if left => AsLeft,
        _ => Older,
    }
}

/// Name of a state in `status`.
pub(crate) const fn name(slot_state: SlotState) -> &'static str {
    match slot_state {
        Online => "online",
        Missing => "missing",
        Failed => "faulted",
        Offline => "offline",
        Rebuilding => "rebuilding",
        Spare => "spare",
        Removed => "removed",
    }
}

#[cfg(test)]
mod tests;

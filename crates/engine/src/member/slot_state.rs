//! The life of a member: what each event makes of each state. Pure; the superblock's member table
//! is changed by nothing else.
//!
//! [`next`] has exactly one answer for each pair of state and event ([`TABLE`], shown in
//! docs/internals/members.md). Two rules are behind it:
//!
//! 1. *A member is trusted with what it was seen to write, and with nothing else.* Since when it
//!    may have missed something travels with it ([`Missed`]); what it holds is of use only if it is
//!    the very device that left, as it left ([`Found`]).
//! 2. *Nothing comes back that the administrator has taken out*, and no device comes in that is not
//!    known, unless told to.

use windrow_format::superblock::{Absence, MemberRecord, MemberState};
use windrow_types::Generation;

/// State of a slot of the member table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) enum SlotState {
    /// Takes part in everything.
    Online,
    /// Was not there at a start.
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

/// What is found in the place of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) enum Found {
    /// Nothing, or a device that is not this member.
    Nothing,
    /// The member with the newest superblock, or the one before it that a crash can leave.
    Current,
    /// The member, as it was when it left.
    AsLeft,
    /// The member, of a time before it left.
    Older,
    /// The member, used since it left without the pool.
    Apart,
    /// The member, and too small for what the pool has on it: what lay behind its end is gone, also
    /// if it grows again.
    Short,
}

/// What happens to a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) enum Change {
    /// A write or flush failed, or the device is gone.
    InjectedFault,
    /// Its device has become too small.
    CutShort,
    /// A start of the pool, with this in the member's place.
    Start(Found),
    /// Nothing is stale on it any more.
    Whole,
    /// The administrator takes it out.
    TakeOut,
    /// The administrator brings back what is found in its place.
    BringBack(Found),
    /// A new device takes its place.
    Exchange,
    /// A spare: it takes the place of another. Or the administrator gives the slot up.
    GiveUp,
    /// A new device waits in this slot.
    Add,
    /// The pool grows over it.
    Join,
    /// The growth is taken back before anything was written by the new layout.
    Leave,
    /// It becomes a journal device.
    Serve,
    /// A journal device that is out of use is given up for good.
    Dismiss,
    /// It leaves, and nothing is left on it.
    Emptied,
}

/// Since when the member may have missed something, from then on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Missed {
    /// As before.
    AsBefore,
    /// Since the newest durable checkpoint, or since before if that is longer ago.
    Newest,
    /// From the beginning.
    Everything,
    /// Nothing.
    Nothing,
}

/// The answer of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// Nothing changes.
    Stays,
    /// The new state.
    To(SlotState, Missed),
    /// Not allowed; why.
    Refused(&'static str),
    /// Can not happen.
    Never,
}

use Answer::{Never, Refused, Stays, To};
use Change::{
    Add, BringBack, CutShort, Dismiss, Emptied, Exchange, GiveUp, InjectedFault, Join, Leave,
    Serve, Start, TakeOut, Whole,
};
use Found::{Apart, AsLeft, Current, Nothing, Older, Short};
use SlotState::{Failed, Missing, Offline, Online, Rebuilding, Removed, Spare};

const IN_USE: Answer = Refused("it is in use; take it out first");
const HAS_IT: Answer = Refused("it is in use already");
const NOT_THERE: Answer = Refused("its device is not there");
const TOO_SMALL: Answer = Refused("its device is too small");
const USED_APART: Answer = Refused(
    "it was used without the pool since it left: what it holds is of another history; replace it instead",
);
const NO_MEMBER: Answer = Refused("it is no member that holds data");
const HOLDS_DATA: Answer = Refused("it has a place in the pool; replace it instead");
const NO_SPARE: Answer = Refused("it is no spare");
const TAKEN: Answer = Refused("the slot is taken");

/// What [`Change::Start`] means for a member that left by itself.
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

/// What becomes of a slot.
pub(crate) const fn next(slot_state: SlotState, change: Change) -> Answer {
    match (slot_state, change) {
        (Online, InjectedFault) => To(Failed, Missed::Newest),
        // A device that is cut short and grows again bears the newest superblock, and zeroes where
        // data was.
        (Online | Rebuilding | Failed, CutShort) => To(Failed, Missed::Everything),
        (Missing, CutShort) => To(Missing, Missed::Everything),
        (Offline, CutShort | Start(Short)) => To(Offline, Missed::Everything),
        (Online | Rebuilding | Missing, Start(Short)) => To(Missing, Missed::Everything),
        (Failed, Start(Short)) => To(Failed, Missed::Everything),
        (Online, Start(Nothing | Apart)) => To(Missing, Missed::Newest),
        (Online, Start(Current)) => Stays,
        // It left unseen, nobody knows when.
        (Online, Start(AsLeft | Older)) => To(Rebuilding, Missed::Everything),
        (Online, TakeOut) => To(Offline, Missed::Newest),

        (Rebuilding, InjectedFault) => To(Failed, Missed::Newest),
        (Rebuilding, Start(Nothing | Apart)) => To(Missing, Missed::AsBefore),
        (Rebuilding, Start(Current)) => Stays,
        (Rebuilding, Start(AsLeft)) => To(Rebuilding, Missed::AsBefore),
        (Rebuilding, Start(Older)) => To(Rebuilding, Missed::Everything),
        (Rebuilding, Whole) => To(Online, Missed::Nothing),
        (Rebuilding, TakeOut) => To(Offline, Missed::Newest),

        // What was under way when it failed comes back later.
        (Missing | Failed | Offline, InjectedFault) => Stays,
        (Missing | Failed, Start(found)) => returns(found),
        (Offline, Start(_)) => Stays,
        (Missing | Failed | Offline, TakeOut) => To(Offline, Missed::AsBefore),
        (Missing | Failed | Offline, BringBack(found)) => brought_back(found),
        (Missing | Failed | Offline, Exchange) => To(Rebuilding, Missed::Everything),

        (Spare, InjectedFault | CutShort | Start(_)) => Stays,
        (Spare, GiveUp) => To(Removed, Missed::Nothing),
        // It holds nothing yet that anybody could miss.
        (Spare, Join) => To(Online, Missed::Nothing),
        (Removed, Start(_)) => Stays,
        (Removed, Add) => To(Spare, Missed::Nothing),

        (Online | Missing | Failed | Offline | Spare | Removed, Whole)
        | (Removed, InjectedFault | CutShort) => Never,
        (Online | Rebuilding, BringBack(_)) => HAS_IT,
        (Online | Rebuilding, Exchange) => IN_USE,
        (Online | Rebuilding | Missing | Failed | Offline, GiveUp) => HOLDS_DATA,
        (Spare | Removed, TakeOut | BringBack(_) | Exchange) => NO_MEMBER,
        (Removed, GiveUp | Join) => NO_MEMBER,
        (Online | Rebuilding | Missing | Failed | Offline, Join) => NO_SPARE,
        (Online | Failed | Offline, Leave) => To(Spare, Missed::Nothing),
        (Rebuilding | Missing | Spare | Removed, Leave) => Never,
        (Online | Rebuilding | Missing | Failed | Offline | Spare, Add) => TAKEN,

        // Records that were written before have no copy on it: it is whole when the log has what
        // they promised.
        (Spare, Serve) => To(Rebuilding, Missed::Everything),
        (Removed, Serve | Dismiss) | (Spare, Dismiss) => NO_MEMBER,
        (Online | Rebuilding | Missing | Failed | Offline, Serve) => NO_SPARE,
        (Missing | Failed | Offline, Dismiss) => To(Removed, Missed::Nothing),
        (Online | Rebuilding, Dismiss) => IN_USE,

        (Online | Missing | Failed | Offline, Emptied) => To(Removed, Missed::Nothing),
        // What is left to rebuild lies where nothing is in use: it ends first.
        (Rebuilding | Spare | Removed, Emptied) => Never,
    }
}

/// The state that a record shows.
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

/// Changes a record as the table says. `newest` is the number of the newest durable checkpoint,
/// `generation` the superblock generation that will tell of the change. True if something changed.
///
/// # Errors
/// The table refuses; the text says why.
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
        Never => return Err("this can not happen to it"),
        To(to, missed) => (to, missed),
    };
    record.missed_from = match (missed, before) {
        (Missed::AsBefore, _) => record.missed_from,
        (Missed::Newest, Online) => newest,
        (Missed::Newest, _) => record.missed_from.min(newest),
        (Missed::Everything | Missed::Nothing, _) => 0,
    };
    // Where it is listed what is stale on a member is forgotten with everything that changes what
    // that is.
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

/// What a device is, given the member's record in the superblock that rules and the device's own
/// newest superblock: of generation `own`; `current`: it is the one that rules, or the one before
/// it.
pub(crate) fn found(record: &MemberRecord, own: Generation, current: bool) -> Found {
    let left = own.next() == record.absent_since || own.next().next() == record.absent_since;
    match slot_state(record) {
        Online | Rebuilding if current => Current,
        // It left with the generation before it was recorded absent, or with the one before that if
        // it missed the last.
        Rebuilding if left => AsLeft,
        Online | Rebuilding => Older,
        _ if own >= record.absent_since => Apart,
        _ if left => AsLeft,
        _ => Older,
    }
}

/// How `status` calls a state.
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

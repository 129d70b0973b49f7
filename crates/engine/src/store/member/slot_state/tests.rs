//! The table as shown in docs/internals/members.md. `recover/quorum/model.rs` checks that its rules
//! are consistent.

use super::*;

const SLOT_STATES: [SlotState; 7] = [Online, Rebuilding, Missing, Failed, Offline, Spare, Removed];
const FOUND: [(Found, &str); 6] = [
    (Nothing, "nothing"),
    (Current, "it, with the newest superblock or the one before"),
    (AsLeft, "it, as it left"),
    (Older, "it, of a time before it left"),
    (Apart, "it, used without the pool since"),
    (Short, "it, too small"),
];

fn changes() -> Vec<(Change, String)> {
    let mut list = vec![(
        Fault,
        "a write or flush fails, or the device is gone".to_owned(),
    )];
    list.push((CutShort, "its device is too small now".to_owned()));
    list.extend(FOUND.map(|(found, text)| (Start(found), format!("a start finds {text}"))));
    list.push((Whole, "nothing is stale on it any more".to_owned()));
    list.push((TakeOut, "`pool offline`".to_owned()));
    list.extend(
        FOUND.map(|(found, text)| (BringBack(found), format!("`pool online` finds {text}"))),
    );
    list.push((
        Exchange,
        "another device is in its place (`pool replace`, a spare)".to_owned(),
    ));
    list.push((
        GiveUp,
        "`pool remove`, or a spare takes another's place".to_owned(),
    ));
    list.push((Add, "`pool add --spare`".to_owned()));
    list.push((Join, "`pool add`: the pool grows over it".to_owned()));
    list.push((
        Leave,
        "that growth is taken back before it is in force".to_owned(),
    ));
    list.push((
        Serve,
        "`pool add --journal`: it becomes a journal device".to_owned(),
    ));
    list.push((
        Dismiss,
        "`pool remove` of a journal device, whose promises the log has".to_owned(),
    ));
    list.push((
        Emptied,
        "it leaves (`pool remove`), and nothing is left on it".to_owned(),
    ));
    list
}

fn cell(answer: Answer) -> String {
    match answer {
        Stays => "=".to_owned(),
        Refused(_) => "refused".to_owned(),
        Never => "never".to_owned(),
        To(to, missed) => {
            let missed = match missed {
                Missed::AsBefore => ", what it missed before",
                Missed::Newest => ", misses from now on",
                Missed::Everything => ", everything",
                Missed::Nothing => "",
            };
            format!("**{}**{missed}", name(to))
        }
    }
}

/// The table in the form of the document.
fn table() -> String {
    let mut text = format!(
        "| event | {} |\n|---|{}\n",
        SLOT_STATES.map(name).join(" | "),
        "---|".repeat(SLOT_STATES.len())
    );
    for (change, what) in changes() {
        text += &format!(
            "| {what} | {} |\n",
            SLOT_STATES
                .map(|slot_state| cell(next(slot_state, change)))
                .join(" | ")
        );
    }
    text
}

#[test]
fn the_document_shows_the_table() {
    let document = include_str!("../../../../../../docs/internals/members.md");
    let table = table();
    assert!(
        document.contains(&table),
        "docs/internals/members.md must show this table:\n{table}"
    );
}

#[test]
fn a_record_follows_the_table_and_decodes_to_the_same_state() {
    for state_before in SLOT_STATES {
        for (event, _) in changes() {
            let mut record = record_of(state_before);
            let before = record.clone();
            let changed = change(&mut record, event, 7, Generation(30));
            match next(state_before, event) {
                Stays => assert!(changed == Ok(false) && record == before),
                Refused(why) => assert!(changed == Err(why) && record == before),
                Never => assert!(changed.is_err() && record == before),
                To(to, missed) => {
                    assert_eq!(
                        (changed, slot_state(&record)),
                        (Ok(true), to),
                        "{state_before:?} {event:?}"
                    );
                    let expected = match missed {
                        Missed::AsBefore => 5,
                        Missed::Newest if state_before == Online => 7,
                        Missed::Newest => 5,
                        Missed::Everything | Missed::Nothing => 0,
                    };
                    assert_eq!(
                        (record.missed_from, record.listed_from),
                        (expected, 0),
                        "{state_before:?} {event:?}"
                    );
                }
            }
        }
    }
}

fn record_of(slot_state: SlotState) -> MemberRecord {
    let mut record = MemberRecord::new(windrow_types::Uuid([1; 16]), MemberState::Online, 1 << 30);
    (record.state, record.absence) = match slot_state {
        Online => (MemberState::Online, Absence::Missing),
        Missing => (MemberState::Absent, Absence::Missing),
        Failed => (MemberState::Absent, Absence::Failed),
        Offline => (MemberState::Absent, Absence::Offline),
        Rebuilding => (MemberState::Rebuilding, Absence::Missing),
        Spare => (MemberState::Spare, Absence::Missing),
        Removed => (MemberState::Removed, Absence::Missing),
    };
    (record.missed_from, record.listed_from, record.absent_since) = (5, 6, Generation(20));
    record
}

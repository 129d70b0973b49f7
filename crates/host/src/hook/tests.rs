use super::*;
use windrow_types::{MemberId, VolumeId};

fn names() -> Arc<Directory> {
    let names = Directory::named("tank", Uuid([5; 16]));
    names.set_path(MemberId(3), "/srv/member".to_owned());
    Arc::new(names)
}

fn read(file: &std::path::Path) -> Vec<Value> {
    std::fs::read_to_string(file)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Events have a time, a severity, and a member's path in addition to its number.
#[test]
fn an_event_has_a_time_a_severity_and_a_path() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("events");
    let notifier = Notifier::start(Some(format!("cat >> {}", file.display())), names()).unwrap();
    notifier.notify(&Notice::MemberFailed {
        member: MemberId(3),
        error: "I/O error".to_owned(),
    });
    notifier.close();
    let event = &read(&file)[0];
    assert_eq!(
        (
            event["severity"].as_str(),
            event["path"].as_str(),
            event["pool"].as_str()
        ),
        (Some("error"), Some("/srv/member"), Some("tank"))
    );
    assert_eq!(
        event["pool_uuid"].as_str(),
        Some(&*Uuid([5; 16]).to_string())
    );
    let (time, message) = (
        event["time"].as_str().unwrap(),
        event["message"].as_str().unwrap(),
    );
    assert!(
        time.len() == 24
            && time.starts_with("20")
            && time.ends_with('Z')
            && time.as_bytes()[10] == b'T',
        "{time}"
    );
    assert!(
        message.starts_with("member 3 (/srv/member) has failed") && message.contains("I/O error"),
        "{message}"
    );
}

/// A client that rereads lost blocks, or a drive that repairs without end, must not fill the log
/// and the queue of events.
#[test]
fn a_flood_of_one_kind_is_counted_and_others_pass() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("events");
    let notifier = Notifier::start(Some(format!("cat >> {}", file.display())), names()).unwrap();
    for lba in 0..10_000 {
        notifier.notify(&Notice::Repaired {
            volume: VolumeId(1),
            lba,
            member: MemberId(3),
        });
    }
    notifier.notify(&Notice::MemberRebuilt {
        member: MemberId(3),
    });
    notifier.close();
    let events = read(&file);
    let of = |kind: &str| events.iter().filter(|event| event["event"] == kind).count();
    assert_eq!(
        (
            of("repaired"),
            of("member_rebuilt"),
            of("more"),
            events.len()
        ),
        (10, 1, 1, 12)
    );
    let more = events
        .iter()
        .find(|event| event["event"] == "more")
        .unwrap();
    assert_eq!(
        (
            more["of"].as_str(),
            more["count"].as_u64(),
            more["severity"].as_str()
        ),
        (Some("repaired"), Some(9990), Some("warning"))
    );
    assert_eq!(notifier.dropped(), 0);
}

#[test]
fn each_notice_reaches_the_command_as_one_line_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("events");
    let notifier = Notifier::start(Some(format!("cat >> {}", file.display())), names()).unwrap();
    notifier.notify(&Notice::Filling { percent: 80 });
    notifier.notify(&Notice::MemberFailed {
        member: MemberId(3),
        error: "gone".to_owned(),
    });
    notifier.close();
    let text = std::fs::read_to_string(file).unwrap();
    let events: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(events.len(), 2);
    assert_eq!(
        (events[0]["event"].as_str(), events[0]["percent"].as_u64()),
        (Some("filling"), Some(80))
    );
    assert_eq!(
        (events[1]["pool"].as_str(), events[1]["schema"].as_str()),
        (Some("tank"), Some(EVENT_SCHEMA))
    );
    assert_eq!(notifier.dropped(), 0);
}

#[test]
fn a_hook_that_does_not_keep_up_never_holds_the_pool() {
    let notifier = Notifier::start(Some("sleep 0.3".to_owned()), names()).unwrap();
    let begin = Instant::now();
    // Of several kinds, so that the limit of one kind does not apply.
    let member = MemberId(1);
    let kinds = [
        Notice::LabelWritten { member },
        Notice::SpareFailed { member },
        Notice::MemberRebuilt { member },
    ];
    kinds
        .iter()
        .cycle()
        .take(QUEUE + 10)
        .for_each(|notice| notifier.notify(notice));
    assert!(begin.elapsed() < Duration::from_secs(2));
    assert!(
        notifier.dropped() >= 8,
        "one may be running, the queue holds the rest"
    );
    // Not closed: the test does not wait for the runs.
    drop(notifier);
}

/// With a hanging script, waiting for each queued notice at the end would take hours, with the
/// members locked.
#[test]
fn a_hook_that_hangs_does_not_hold_up_the_end() {
    let notifier = Notifier::start(Some("sleep 1000; true".to_owned()), names()).unwrap();
    for _ in 0..5 {
        notifier.notify(&Notice::LabelWritten {
            member: MemberId(1),
        });
    }
    // The end comes, and the four waiting notices are counted; without a limit each of them takes
    // its timeout.
    notifier.close_within(Duration::from_millis(100));
    assert!(notifier.dropped() >= 4);
}

#[test]
fn the_end_of_a_scrub_is_as_loud_as_what_it_found() {
    let ended = |wrong_blocks, lost_blocks, damaged_batches| Notice::ScrubEnded {
        wrong_blocks,
        lost_blocks,
        damaged_batches,
        unmoved_blocks: 0,
    };
    assert_eq!(level(&ended(0, 0, 0)), Level::Info);
    assert_eq!(level(&ended(3, 0, 0)), Level::Warning);
    assert_eq!(level(&ended(3, 1, 0)), Level::Error);
    assert_eq!(level(&ended(0, 0, 1)), Level::Error);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("events");
    let notifier = Notifier::start(Some(format!("cat >> {}", file.display())), names()).unwrap();
    notifier.notify(&ended(3, 1, 0));
    notifier.close();
    let event: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(
        (
            event["event"].as_str(),
            event["wrong_blocks"].as_u64(),
            event["lost_blocks"].as_u64()
        ),
        (Some("scrub_ended"), Some(3), Some(1))
    );
}

/// A command that does not read a long event must not hold the thread in a write, or the pool never
/// ends.
#[test]
fn a_long_event_is_given_step_by_step() {
    let note = "x".repeat(1 << 20);
    let notifier = Notifier::start(Some("sleep 1000; true".to_owned()), names()).unwrap();
    notifier.notify(&Notice::StartNote { note: note.clone() });
    notifier.close_within(Duration::from_millis(100));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("events");
    let notifier = Notifier::start(Some(format!("cat >> {}", file.display())), names()).unwrap();
    notifier.notify(&Notice::StartNote { note });
    notifier.close();
    assert!(std::fs::read_to_string(file).unwrap().len() > 1 << 20);
}

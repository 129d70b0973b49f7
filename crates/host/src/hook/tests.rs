use super::*;
use windrow_units::MemberId;

#[test]
fn each_notice_reaches_the_command_as_one_line_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("events");
    let notifier = Notifier::start(Some(format!("cat >> {}", file.display())), "tank".to_owned()).unwrap();
    notifier.notify(Notice::Filling { percent: 80 });
    notifier.notify(Notice::MemberFailed { member: MemberId(3), error: "gone".to_owned() });
    notifier.close();
    let text = std::fs::read_to_string(file).unwrap();
    let events: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.len(), 2);
    assert_eq!((events[0]["event"].as_str(), events[0]["percent"].as_u64()), (Some("filling"), Some(80)));
    assert_eq!((events[1]["pool"].as_str(), events[1]["schema"].as_str()), (Some("tank"), Some(EVENT_SCHEMA)));
    assert_eq!(notifier.dropped(), 0);
}

#[test]
fn a_hook_that_does_not_keep_up_never_holds_the_pool() {
    let notifier = Notifier::start(Some("sleep 0.3".to_owned()), "tank".to_owned()).unwrap();
    let begin = Instant::now();
    for _ in 0..QUEUE + 10 {
        notifier.notify(Notice::Filling { percent: 90 });
    }
    assert!(begin.elapsed() < Duration::from_secs(2));
    assert!(notifier.dropped() >= 8, "one may be running, the queue holds the rest");
    // Not closed: the test does not wait for the runs.
    drop(notifier);
}

/// The end of the pool waited half a minute for each notice that had come together while a script hung: two hours, with the members locked.
#[test]
fn a_hook_that_hangs_does_not_hold_up_the_end() {
    let notifier = Notifier::start(Some("sleep 1000; true".to_owned()), "tank".to_owned()).unwrap();
    for _ in 0..5 {
        notifier.notify(Notice::Filling { percent: 90 });
    }
    // Ends at all, and the four that were waiting are counted; without a bound each of them takes its patience.
    notifier.close_within(Duration::from_millis(100));
    assert!(notifier.dropped() >= 4);
}

#[test]
fn the_end_of_a_scrub_is_as_loud_as_what_it_found() {
    let ended = |wrong_blocks, lost_blocks, damaged_batches| Notice::ScrubEnded { wrong_blocks, lost_blocks, damaged_batches, unmoved_blocks: 0 };
    assert_eq!(level(&ended(0, 0, 0)), Level::Info);
    assert_eq!(level(&ended(3, 0, 0)), Level::Warning);
    assert_eq!(level(&ended(3, 1, 0)), Level::Error);
    assert_eq!(level(&ended(0, 0, 1)), Level::Error);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("events");
    let notifier = Notifier::start(Some(format!("cat >> {}", file.display())), "tank".to_owned()).unwrap();
    notifier.notify(ended(3, 1, 0));
    notifier.close();
    let event: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!((event["event"].as_str(), event["wrong_blocks"].as_u64(), event["lost_blocks"].as_u64()), (Some("scrub_ended"), Some(3), Some(1)));
}

/// A command that does not read a long event kept the thread in a write: the pool never came to its end.
#[test]
fn a_long_event_is_given_step_by_step() {
    let note = "x".repeat(1 << 20);
    let notifier = Notifier::start(Some("sleep 1000; true".to_owned()), "tank".to_owned()).unwrap();
    notifier.notify(Notice::StartNote { note: note.clone() });
    notifier.close_within(Duration::from_millis(100));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("events");
    let notifier = Notifier::start(Some(format!("cat >> {}", file.display())), "tank".to_owned()).unwrap();
    notifier.notify(Notice::StartNote { note });
    notifier.close();
    assert!(std::fs::read_to_string(file).unwrap().len() > 1 << 20);
}

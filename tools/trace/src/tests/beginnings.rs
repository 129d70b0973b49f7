//! The beginning of a trace does not determine its content: completions of requests in flight,
//! messages, comments.

use super::samples::blktrace_record;
use super::*;

/// Lines of blkparse: `before` lines of a kind, then `requests` writes that are queued, issued and
/// completed.
fn blkparse(before: impl Fn(u64) -> String, lines: u64, requests: u64) -> String {
    let mut text: String = (0..lines).map(before).collect();
    for at in 0..requests {
        for (step, event) in ["Q", "D", "C"].into_iter().enumerate() {
            let time = lines * 1000 + at * 100 + step as u64;
            text += &format!(
                "  8,0    3 {at:8} {:14.9}   697  {event}   W {} + 8 [dd]\n",
                time as f64 * 1e-6,
                at * 8
            );
        }
    }
    text
}

fn completion(at: u64) -> String {
    format!(
        "  8,16   3 {at:8} {:14.9}     0  C   R {} + 8 [0]\n",
        at as f64 * 1e-6,
        1_000_000 + at * 8
    )
}

fn message(at: u64) -> String {
    format!(
        "  8,0    3        0 {:14.9}     0  m   N cfq697S / slice expired t=0\n",
        at as f64 * 1e-6
    )
}

/// Requests, the counted event, and the devices.
fn outcome(bytes: &[u8], options: &Options) -> (Vec<Request>, Option<Event>, Vec<String>) {
    let mut reader = Reader::new(bytes, options).expect("known");
    let requests = reader
        .by_ref()
        .map(|found| found.expect("readable"))
        .collect();
    (requests, reader.counted_event(), reader.devices().to_vec())
}

#[test]
fn queued_requests_count_whatever_a_text_begins_with() {
    let expected: Vec<Request> = (0..500)
        .map(|at| request(Kind::Write, 0, at * 4096, 4096, at * 100_000))
        .collect();
    // Fewer and more lines than are tried, and more bytes than are examined.
    for lines in [0, 60, 6000] {
        for before in [completion, message] {
            let text = blkparse(before, lines, 500);
            let (found, counted, devices) = outcome(text.as_bytes(), &Options::default());
            assert!(
                found == expected && counted == Some(Event::Queued),
                "{lines}: {} requests",
                found.len()
            );
            // A device with only completions does not belong to the trace.
            assert_eq!(devices, ["8,0"]);
        }
    }
}

#[test]
fn queued_requests_count_whatever_a_binary_trace_begins_with() {
    const READ: u32 = 1 << 16;
    const WRITE: u32 = 1 << 17;
    for big in [false, true] {
        let mut bytes: Vec<u8> = (0..7000)
            .flat_map(|at| blktrace_record(big, 8 | READ, at * 8, 4096, at, b""))
            .collect();
        for at in 0..500 {
            for action in [1, 7, 8] {
                bytes.extend(blktrace_record(
                    big,
                    action | WRITE,
                    at * 8,
                    4096,
                    7000 + at * 10 + u64::from(action),
                    b"dd",
                ));
            }
        }
        let (found, counted, _) = outcome(&bytes, &Options::default());
        let expected: Vec<Request> = (0..500)
            .map(|at| request(Kind::Write, 0, at * 4096, 4096, at * 10))
            .collect();
        assert!(
            found == expected && counted == Some(Event::Queued),
            "{} requests",
            found.len()
        );
    }
}

#[test]
fn what_counts_is_said_where_nothing_is_queued() {
    let text = blkparse(completion, 60, 100);
    let without = |events: &[&str]| -> String {
        let left_out = |line: &str| {
            events
                .iter()
                .any(|event| line.contains(&format!("  {event}   ")))
        };
        text.lines()
            .filter(|line| !left_out(line))
            .map(|line| format!("{line}\n"))
            .collect()
    };
    let (issued, counted, devices) = outcome(without(&["Q"]).as_bytes(), &Options::default());
    assert_eq!(
        (issued.len(), counted, devices),
        (100, Some(Event::Issued), vec!["8,0".to_owned()])
    );
    assert_eq!(
        (issued[0].time_ns, issued[99].time_ns),
        (0, 9_900_000),
        "times count from the first that counts"
    );
    let (completed, counted, devices) =
        outcome(without(&["Q", "D"]).as_bytes(), &Options::default());
    assert_eq!(
        (completed.len(), counted, devices),
        (
            160,
            Some(Event::Completed),
            vec!["8,16".to_owned(), "8,0".to_owned()]
        )
    );
    // One device of those that count after all.
    let one = |device: &str| {
        read(
            without(&["Q", "D"]).as_bytes(),
            &Options {
                device: Some(device.to_owned()),
                ..Options::default()
            },
        )
    };
    assert_eq!(
        (
            one("8,16").expect("its requests").len(),
            one("8,0").expect("its requests").len()
        ),
        (60, 100)
    );
    assert!(matches!(one("8,32"), Err(TraceError::Device(_))));
    // The selected event counts.
    let named = Options {
        event: Some(Event::Completed),
        ..Options::default()
    };
    assert_eq!(outcome(text.as_bytes(), &named).0.len(), 160);
}

/// A bad completion does not matter to a trace of queued requests; it does if completions count.
#[test]
fn a_bad_record_counts_only_if_its_event_does() {
    let bad = "  8,0    3        1 0.0     0  C   R 18446744073709551615 + 8 [0]\n";
    let text = blkparse(completion, 3, 2);
    let queued = format!("{bad}{text}");
    assert_eq!(
        read(queued.as_bytes(), &Options::default())
            .expect("readable")
            .len(),
        2
    );
    let only: String = text
        .lines()
        .filter(|line| line.contains("  C  "))
        .map(|line| format!("{line}\n"))
        .collect();
    let completed = format!("{}{bad}", only);
    let mut reader = Reader::new(
        completed.as_bytes(),
        &Options {
            format: Some(Format::Blkparse),
            ..Options::default()
        },
    )
    .expect("named");
    assert_eq!(
        reader.by_ref().take_while(Result::is_ok).count(),
        5,
        "what is before it comes first"
    );
    let error = read(
        completed.as_bytes(),
        &Options {
            format: Some(Format::Blkparse),
            ..Options::default()
        },
    )
    .expect_err("bad");
    assert_eq!(error.to_string(), "line 6: the sector is too large");
    let mut reader = Reader::new(
        completed.as_bytes(),
        &Options {
            format: Some(Format::Blkparse),
            skip_bad: true,
            ..Options::default()
        },
    )
    .expect("named");
    assert_eq!(
        (
            reader.by_ref().filter(Result::is_ok).count(),
            reader.skipped()
        ),
        (5, 1)
    );
}

/// If no more can be held a choice is made; a later contradiction is an error, never a request that
/// counts twice.
#[test]
fn a_choice_that_came_too_early_is_an_error() {
    let mut events = crate::events::Events::default();
    let place = Place::Line(1);
    let one = request(Kind::Read, 0, 0, 4096, 0);
    let mut held = 0u64;
    while !events.hold(Event::Completed, Ok([Some(one), None]), place) {
        held += 1;
    }
    assert_eq!(held + 1, 1 << 20);
    assert_eq!(events.decide(false).requests.len(), 1 << 20);
    assert!(events.choose(Some(Event::Completed)).is_ok() && events.choose(None).is_ok());
    let error = events
        .choose(Some(Event::Queued))
        .expect_err("too late")
        .to_string();
    assert!(
        error.contains("completed") && error.contains("queued"),
        "{error}"
    );
}

#[test]
fn comments_and_names_of_columns_decide_nothing() {
    let comments = "# who, when, where, and on which machine it was recorded\n\n".repeat(200);
    for (text, requests) in [
        ("W,0,4096,0\n", 1),
        (
            "device_id,opcode,offset,length,timestamp\n1,W,0,4096,5\n",
            1,
        ),
        ("13.191135 30 0 5 1\n", 1),
    ] {
        assert_eq!(
            read(format!("{comments}{text}").as_bytes(), &Options::default())
                .expect("readable")
                .len(),
            requests,
            "{text}"
        );
    }
}

use super::*;
use windrow_io::{Payload, RequestId};

const SECOND: u64 = 1_000_000_000;

fn ask(volume: u32, op: Op) -> Request {
    Request {
        id: RequestId(1),
        volume: VolumeId(volume),
        op,
    }
}

fn read(offset: u64) -> Op {
    Op::Read {
        offset,
        length: 4096,
    }
}

#[test]
fn all_kinds_of_one_volume_with_their_times() {
    let recorder = Recorder::default();
    recorder.see(&[ask(1, read(0))], 1);
    let token = recorder
        .start(Some(VolumeId(1)), 100)
        .expect("no recording runs")
        .token;
    let data = Payload::copy_of(&[0; 8192]);
    recorder.see(
        &[
            ask(1, read(4096)),
            ask(2, read(0)),
            ask(
                1,
                Op::Write {
                    offset: 512,
                    data,
                    fua: true,
                },
            ),
        ],
        150,
    );
    let (trim, zeroes) = (
        Op::Trim {
            offset: 8192,
            length: 4096,
            fua: false,
        },
        Op::WriteZeroes {
            offset: 0,
            length: 512,
            no_hole: true,
            fua: false,
        },
    );
    recorder.see(
        &[
            ask(1, trim),
            ask(1, zeroes),
            ask(
                1,
                Op::BlockStatus {
                    offset: 0,
                    length: 1,
                    max_extents: 1,
                },
            ),
            ask(1, Op::Flush),
        ],
        170,
    );
    let lot = recorder.take(token, false, 200).expect("mine");
    use RecordedKind::{Flush, Read, Trim, WriteFua};
    let expected = [
        Recorded(Read, 4096, 4096, 50, VolumeId(1)),
        Recorded(WriteFua, 512, 8192, 50, VolumeId(1)),
        Recorded(Trim, 8192, 4096, 70, VolumeId(1)),
        Recorded(Trim, 0, 512, 70, VolumeId(1)),
        Recorded(Flush, 0, 0, 70, VolumeId(1)),
    ];
    assert_eq!((lot.requests.as_slice(), lot.missed), (&expected[..], 0));
    assert_eq!(
        recorder
            .take(token, true, 300)
            .expect("still mine")
            .requests,
        []
    );
    assert_eq!(recorder.take(token, false, 301), None, "it has ended");
}

#[test]
fn requests_that_do_not_fit_are_counted_and_the_memory_is_bounded() {
    let recorder = Recorder::default();
    let token = recorder
        .start(Some(VolumeId(1)), 0)
        .expect("no recording runs")
        .token;
    for at in 0..RECORDED_MOST as u64 + 10 {
        recorder.see(&[ask(1, read(at * 4096))], at);
    }
    let lot = recorder.take(token, false, SECOND).expect("mine");
    assert_eq!((lot.requests.len(), lot.missed), (RECORDED_MOST, 10));
    recorder.see(&[ask(1, read(0))], 2 * SECOND);
    let next = recorder.take(token, true, 2 * SECOND).expect("mine");
    assert_eq!(
        (next.requests.len(), next.missed),
        (1, 0),
        "missed ones are told once"
    );
}

/// The two buffers are swapped; an ended recording keeps no memory.
#[test]
fn lots_follow_each_other_in_memory_that_is_there() {
    let recorder = Recorder::default();
    let token = recorder
        .start(Some(VolumeId(1)), 0)
        .expect("no recording runs")
        .token;
    for lot in 0..5u64 {
        recorder.see(
            &[ask(1, read(lot * 8192)), ask(1, read(lot * 8192 + 4096))],
            lot,
        );
        let taken = recorder.take(token, lot == 4, lot).expect("mine");
        assert_eq!(
            taken
                .requests
                .iter()
                .map(|request| request.1)
                .collect::<Vec<_>>(),
            [lot * 8192, lot * 8192 + 4096]
        );
        let room = if lot == 4 { 0 } else { RECORDED_MOST };
        assert_eq!(
            (
                lock(&recorder.buffer).requests.capacity(),
                lock(&recorder.spare).capacity()
            ),
            (room, room)
        );
    }
    assert!(recorder.start(Some(VolumeId(1)), 9).is_some());
    assert_eq!(lock(&recorder.spare).capacity(), RECORDED_MOST);
}

#[test]
fn a_submitting_thread_never_waits_for_a_take() {
    let recorder = Recorder::default();
    let token = recorder
        .start(Some(VolumeId(1)), 0)
        .expect("no recording runs")
        .token;
    let held = lock(&recorder.buffer);
    recorder.see(&[ask(1, read(0)), ask(2, read(0))], 5);
    drop(held);
    let lot = recorder.take(token, true, 6).expect("mine");
    assert_eq!((lot.requests.len(), lot.missed), (0, 1));
}

#[test]
fn there_is_one_recording_and_it_ends_when_its_owner_has_gone() {
    let recorder = Recorder::default();
    let first = recorder
        .start(Some(VolumeId(1)), 0)
        .expect("no recording runs")
        .token;
    assert_eq!(recorder.start(Some(VolumeId(2)), SECOND), None);
    let second = recorder
        .start(Some(VolumeId(2)), 40 * SECOND)
        .expect("the first is abandoned")
        .token;
    assert_eq!(recorder.take(first, false, 40 * SECOND), None);
    assert!(recorder.take(second, false, 41 * SECOND).is_some());
    for at in 0..=RECORDED_MOST as u64 {
        recorder.see(&[ask(2, read(at))], 41 * SECOND);
    }
    recorder.see(&[ask(2, read(0))], 80 * SECOND);
    assert_eq!(
        recorder.volume.load(Ordering::Relaxed),
        NO_VOLUME,
        "full and forgotten"
    );
    assert_eq!(recorder.take(second, false, 81 * SECOND), None);
}

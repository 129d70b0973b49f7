use super::*;
use windrow_io::{Extent, ExtentState, Payload, RequestId};

struct Collect(Mutex<Vec<Completion>>);

impl Sink for Collect {
    fn complete(&self, completions: &mut Vec<Completion>) {
        locked(&self.0).append(completions);
    }
}

fn sink() -> Arc<Collect> {
    Arc::new(Collect(Mutex::new(Vec::new())))
}

fn ask(session: &dyn Session, op: Op) -> Result<Reply, RequestError> {
    let mut ready = Vec::new();
    session.submit(
        &mut vec![Request {
            id: RequestId(7),
            volume: VolumeId(1),
            op,
        }],
        &mut ready,
    );
    assert_eq!(ready.len(), 1);
    ready.remove(0).result
}

fn read(session: &dyn Session, offset: u64, length: u32) -> Vec<u8> {
    match ask(session, Op::Read { offset, length }) {
        Ok(Reply::Data(slices)) => slices
            .iter()
            .flat_map(|slice| slice.bytes().to_vec())
            .collect(),
        other => panic!("unexpected answer {other:?}"),
    }
}

#[test]
fn what_was_written_is_read_across_shards_and_states_follow() {
    let source = RamSource::single(4 << 20);
    let session = source.open("", sink()).unwrap();
    let edge = (1 << 20) - 4096;
    let data = Payload::copy_of(&[7; 8192]);
    ask(
        &*session,
        Op::Write {
            offset: edge,
            data,
            fua: true,
        },
    )
    .unwrap();
    assert_eq!(read(&*session, edge - 512, 9216)[512..8704], [7; 8192]);
    ask(
        &*session,
        Op::WriteZeroes {
            offset: edge + 4096,
            length: 4096,
            no_hole: true,
            fua: false,
        },
    )
    .unwrap();
    let Ok(Reply::Extents(extents)) = ask(
        &*session,
        Op::BlockStatus {
            offset: 0,
            length: 4 << 20,
            max_extents: 9,
        },
    ) else {
        panic!()
    };
    let expected = [
        (edge, ExtentState::Hole),
        (4096, ExtentState::Data),
        (4096, ExtentState::Zero),
        ((3 << 20) - 4096, ExtentState::Hole),
    ];
    assert_eq!(
        extents,
        expected.map(|(length, state)| Extent { length, state })
    );
    assert_eq!(source.counters().forced, 1);
}

#[test]
fn illegal_ranges_and_set_faults_are_answered_as_errors() {
    let source = RamSource::single(1 << 20);
    let session = source.open("", sink()).unwrap();
    assert_eq!(
        ask(
            &*session,
            Op::Read {
                offset: 1,
                length: 0
            }
        )
        .unwrap_err(),
        RequestError::Invalid
    );
    assert_eq!(
        ask(
            &*session,
            Op::Read {
                offset: 1 << 20,
                length: 512
            }
        )
        .unwrap_err(),
        RequestError::OutOfRange
    );
    assert!(source.resize("", 2 << 20));
    assert_eq!(read(&*session, 1 << 20, 512), [0; 512]);
    source.fail(0..512, RequestError::Io);
    assert_eq!(
        ask(
            &*session,
            Op::Read {
                offset: 0,
                length: 512
            }
        )
        .unwrap_err(),
        RequestError::Io
    );
    assert_eq!(ask(&*session, Op::Flush).unwrap_err(), RequestError::Io);
    assert!(source.open("other", sink()).is_err());
}

#[test]
fn held_completions_come_only_when_released() {
    let source = RamSource::single(1 << 20);
    let collect = sink();
    let session = source.open("", collect.clone()).unwrap();
    source.set_delivery(Delivery::Held);
    let mut ready = Vec::new();
    session.submit(
        &mut vec![Request {
            id: RequestId(1),
            volume: VolumeId(1),
            op: Op::Flush,
        }],
        &mut ready,
    );
    assert!(ready.is_empty() && source.held() == 1);
    source.release();
    assert_eq!(locked(&collect.0).len(), 1);
}

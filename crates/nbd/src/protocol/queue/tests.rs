use super::*;
use proptest::prelude::*;

fn question(command: Command, length: u32) -> Question {
    Question {
        cookie: 0x1122_3344_5566_7788,
        command,
        offset: 8192,
        length,
    }
}

fn take(queue: &mut ReplyQueue, most: usize, pieces: usize) -> (Vec<u8>, Released) {
    let mut slices = vec![IoSlice::new(&[]); pieces];
    let count = queue.slices(&mut slices);
    let mut bytes: Vec<u8> = slices[..count]
        .iter()
        .flat_map(|slice| slice.to_vec())
        .collect();
    drop(slices);
    bytes.truncate(most);
    let released = queue.sent(bytes.len());
    (bytes, released)
}

fn all(queue: &mut ReplyQueue) -> Vec<u8> {
    take(queue, usize::MAX, 1000).0
}

#[test]
fn simple_and_structured_replies_have_their_form() {
    let data = Payload::copy_of(&[9; 1024]);
    let slices = || vec![data.slice(0, 512), data.slice(512, 512)];
    let mut queue = ReplyQueue::new(false);
    queue.push(&question(Command::Read, 1024), Ok(Reply::Data(slices())));
    queue.push(
        &question(Command::Write, 512),
        Err(Refusal::Volume(RequestError::OutOfRange)),
    );
    let cookie = 0x1122_3344_5566_7788u64.to_be_bytes();
    let head = |code: u32| {
        [
            &SIMPLE_REPLY_MAGIC.to_be_bytes()[..],
            &code.to_be_bytes(),
            &cookie,
        ]
        .concat()
    };
    assert_eq!(all(&mut queue), [head(0), vec![9; 1024], head(28)].concat());

    let mut queue = ReplyQueue::new(true);
    let chunk = |kind: u16, length: u32| {
        [
            &STRUCTURED_REPLY_MAGIC.to_be_bytes()[..],
            &[0, 1],
            &kind.to_be_bytes(),
            &cookie,
            &length.to_be_bytes(),
        ]
        .concat()
    };
    queue.push(&question(Command::Read, 1024), Ok(Reply::Data(slices())));
    assert_eq!(
        all(&mut queue),
        [
            chunk(1, 1032),
            8192u64.to_be_bytes().to_vec(),
            vec![9; 1024]
        ]
        .concat()
    );
    queue.push(&question(Command::Flush, 0), Ok(Reply::Done));
    assert_eq!(all(&mut queue), head(0), "nothing to carry: the short form");
    let extents = [
        (4096, ExtentState::Data),
        (4096, ExtentState::Hole),
        (0, ExtentState::Data),
        (1 << 40, ExtentState::Zero),
    ];
    let extents = extents
        .map(|(length, state)| Extent { length, state })
        .to_vec();
    queue.push(
        &question(Command::BlockStatus, 16384),
        Ok(Reply::Extents(extents)),
    );
    let list: Vec<u8> = [1u32, 4096, 0, 4096, 3, 8192, 2]
        .iter()
        .flat_map(|number| number.to_be_bytes())
        .collect();
    assert_eq!(all(&mut queue), [chunk(5, 28), list].concat());
    queue.push(
        &question(Command::Trim, 512),
        Err(Refusal::Volume(RequestError::ReadOnly)),
    );
    let message = b"the volume is read-only";
    let expected = [
        &chunk(0x8001, 6 + message.len() as u32)[..],
        &1u32.to_be_bytes(),
        &(message.len() as u16).to_be_bytes(),
        message,
    ]
    .concat();
    assert_eq!(all(&mut queue), expected);
    assert!(queue.is_empty());
}

#[test]
fn an_answer_that_does_not_fit_its_question_is_an_error_not_a_broken_stream() {
    let mut queue = ReplyQueue::new(false);
    queue.push(
        &question(Command::Read, 1024),
        Ok(Reply::Data(vec![Payload::copy_of(&[1; 512])])),
    );
    queue.push(&question(Command::Read, 1024), Ok(Reply::Done));
    queue.push(
        &question(Command::BlockStatus, 1024),
        Ok(Reply::Extents(Vec::new())),
    );
    let bytes = all(&mut queue);
    assert_eq!(bytes.len(), 3 * 16);
    assert!(
        bytes
            .chunks(16)
            .all(|reply| reply[4..8] == 5u32.to_be_bytes())
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn partial_sends_change_no_byte_and_release_everything_once(
        lengths in prop::collection::vec(0u32..3, 1..30),
        steps in prop::collection::vec((1usize..3000, 1usize..5), 1..200),
        structured in any::<bool>(),
    ) {
        let fill = |queue: &mut ReplyQueue| for (index, length) in lengths.iter().enumerate() {
            match *length {
                0 => queue.push(&question(Command::Write, 700), Ok(Reply::Done)),
                blocks => {
                    let data = Payload::copy_of(&vec![index as u8; blocks as usize * 512]);
                    queue.push(&question(Command::Read, blocks * 512), Ok(Reply::Data(vec![data])));
                }
            }
        };
        let (mut whole, mut parts) = (ReplyQueue::new(structured), ReplyQueue::new(structured));
        fill(&mut whole);
        fill(&mut parts);
        let (expected, sum) = take(&mut whole, usize::MAX, 1000);
        let (mut bytes, mut released) = (Vec::new(), Released::default());
        for (most, pieces) in steps.iter().cycle() {
            if parts.is_empty() {
                break;
            }
            let (part, freed) = take(&mut parts, *most, *pieces);
            bytes.extend(part);
            released.requests += freed.requests;
            released.bytes += freed.bytes;
            released.charges.add(freed.charges);
        }
        prop_assert_eq!(bytes, expected);
        prop_assert_eq!(released, sum);
        prop_assert_eq!(sum.requests as usize, lengths.len());
        let mut charged = Charges::default();
        lengths.iter().for_each(|length| charged.add(Charges::of(if *length == 0 { 4096 } else { 8192 })));
        prop_assert_eq!(sum.charges, charged, "a reply of less than a block may hold two");
    }
}

#[test]
fn waiting_replies_keep_no_much_larger_buffer_and_lose_no_byte() {
    let large = Payload::copy_of(
        &(0..1 << 20)
            .map(|at: u32| (at / 512) as u8)
            .collect::<Vec<u8>>(),
    );
    let mut queue = ReplyQueue::new(false);
    // The second reply uses most of the buffer: that may stay.
    queue.push(
        &question(Command::Read, 1024),
        Ok(Reply::Data(vec![
            large.slice(4096, 512),
            large.slice(8192, 512),
        ])),
    );
    queue.push(
        &question(Command::Read, 600 << 10),
        Ok(Reply::Data(
            (0..150)
                .map(|block| large.slice(block * 4096, 4096))
                .collect(),
        )),
    );
    let expected: Vec<u8> = queue
        .pieces
        .iter()
        .flat_map(|piece| {
            if let Piece::Data(data) = piece {
                data.to_vec()
            } else {
                vec![0xee; piece.len()]
            }
        })
        .collect();
    let (first, _) = take(&mut queue, 16 + 100, 1000);
    queue.settle();
    queue.push(
        &question(Command::Read, 512),
        Ok(Reply::Data(vec![large.slice(0, 512)])),
    );
    queue.settle();
    let held = |piece: &Piece| {
        if let Piece::Data(data) = piece {
            data.held_bytes()
        } else {
            0
        }
    };
    assert_eq!(
        queue
            .pieces
            .iter()
            .map(held)
            .filter(|bytes| *bytes == 4096)
            .count(),
        3,
        "both of the first, and the last"
    );
    assert_eq!(
        queue
            .pieces
            .iter()
            .map(held)
            .filter(|bytes| *bytes == 1 << 20)
            .count(),
        150
    );
    let sent = [first, all(&mut queue)].concat();
    assert_eq!(sent[16..1040], expected[16..1040]);
    assert_eq!(sent[1056..1056 + (600 << 10)], expected[1056..]);
    assert_eq!((sent.len(), queue.settled), (expected.len() + 16 + 512, 0));
}

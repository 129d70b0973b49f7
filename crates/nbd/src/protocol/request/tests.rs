use super::*;
use proptest::prelude::*;

const RULES: Rules = Rules {
    min_block: 512,
    max_block: MAX_REQUEST_BYTES,
    read_only: false,
    structured: true,
    base_allocation: true,
};

fn request(kind: u16, flags: u16, offset: u64, length: u32) -> Vec<u8> {
    let cookie = 0x0102_0304_0506_0708u64;
    [
        &REQUEST_MAGIC.to_be_bytes()[..],
        &flags.to_be_bytes(),
        &kind.to_be_bytes(),
        &cookie.to_be_bytes(),
        &offset.to_be_bytes(),
        &length.to_be_bytes(),
    ]
    .concat()
}

/// Feeds `input` in pieces, every second large payload through the direct way; a text for each
/// request and the end.
fn feed(rules: Rules, input: &[u8], cuts: &[usize], direct: bool) -> Vec<String> {
    let mut parser = RequestParser::new(rules, BufPool::new(1 << 20));
    let (mut used, mut list) = (0, Vec::new());
    let mut ends: Vec<usize> = cuts
        .iter()
        .map(|cut| cut % (input.len() + 1))
        .chain([input.len()])
        .collect();
    ends.sort_unstable();
    for end in ends {
        loop {
            if let Some(space) = parser.payload_space().filter(|_| direct) {
                let length = space.len().min(end - used);
                space[..length].copy_from_slice(&input[used..used + length]);
                parser.payload_received(length);
                used += length;
            }
            let (step_used, step) = parser.next(&input[used..end]);
            used += step_used;
            match step {
                RequestStep::More => break,
                RequestStep::Request(incoming) => list.push(match &incoming.action {
                    Action::Submit(Op::Write { offset, data, fua }) => {
                        format!(
                            "write {offset} {fua} {:?}",
                            data.bytes().iter().map(|b| u64::from(*b)).sum::<u64>()
                        )
                    }
                    action => format!("{:?} {action:?}", incoming.command),
                }),
                end => {
                    list.push(format!("{end:?}"));
                    return list;
                }
            }
        }
    }
    list
}

fn refusal(rules: Rules, input: Vec<u8>) -> Refusal {
    let (used, step) = RequestParser::new(rules, BufPool::new(0)).next(&input);
    assert_eq!(used, input.len());
    match step {
        RequestStep::Request(Incoming {
            action: Action::Refuse(refusal),
            ..
        }) => refusal,
        step => panic!("{step:?}"),
    }
}

#[test]
fn every_illegal_request_has_its_refusal_and_takes_its_payload_along() {
    use number::{BLOCK_STATUS, CACHE, FLUSH, READ, TRIM, WRITE, WRITE_ZEROES};
    let plain = |kind, flags, offset, length| refusal(RULES, request(kind, flags, offset, length));
    assert_eq!(plain(9, 0, 0, 512), Refusal::UnknownCommand);
    assert_eq!(plain(8, 0, 0, 512), Refusal::UnknownCommand, "resize");
    assert_eq!(plain(READ, 0, 1, 512), Refusal::Unaligned);
    assert_eq!(plain(READ, 0, 0, 513), Refusal::Unaligned);
    assert_eq!(plain(READ, 0, 0, 0), Refusal::Empty);
    assert_eq!(plain(READ, flag::NO_HOLE, 0, 512), Refusal::BadFlags);
    assert_eq!(
        plain(READ, 0, 0, MAX_REQUEST_BYTES + 512),
        Refusal::TooLarge
    );
    assert_eq!(
        plain(READ, 0, u64::MAX - 511, 512),
        Refusal::Volume(RequestError::OutOfRange)
    );
    assert_eq!(
        plain(FLUSH, 0, 512, 0),
        Refusal::Volume(RequestError::Invalid)
    );
    assert_eq!(plain(TRIM, flag::FAST_ZERO, 0, 512), Refusal::BadFlags);
    assert_eq!(plain(WRITE_ZEROES, flag::DF, 0, 512), Refusal::BadFlags);
    assert_eq!(plain(CACHE, 0, 0, 100), Refusal::Unaligned);
    let simple = Rules {
        structured: false,
        base_allocation: false,
        ..RULES
    };
    assert_eq!(
        refusal(simple, request(READ, flag::DF, 0, 512)),
        Refusal::BadFlags
    );
    assert_eq!(
        refusal(simple, request(BLOCK_STATUS, 0, 0, 512)),
        Refusal::NoContext
    );
    let fixed = Rules {
        read_only: true,
        ..RULES
    };
    assert_eq!(
        refusal(fixed, request(TRIM, 0, 0, 512)),
        Refusal::Volume(RequestError::ReadOnly)
    );
    let large = MAX_REQUEST_BYTES + 512;
    for (rules, length, expected) in [
        (fixed, 512, Refusal::Volume(RequestError::ReadOnly)),
        (RULES, 100, Refusal::Unaligned),
        (RULES, large, Refusal::TooLarge),
    ] {
        let input = [request(WRITE, 0, 0, length), vec![0; length as usize]].concat();
        assert_eq!(refusal(rules, input), expected);
    }
}

#[test]
fn legal_requests_become_operations() {
    let list = [
        request(number::READ, flag::DF | flag::FUA, 512, 1024),
        request(number::FLUSH, 0, 0, 0),
        request(number::TRIM, flag::FUA, 0, 1 << 31),
        request(
            number::WRITE_ZEROES,
            flag::NO_HOLE | flag::FAST_ZERO,
            0,
            512,
        ),
        request(number::CACHE, 0, 0, 512),
        request(number::BLOCK_STATUS, flag::REQ_ONE, 0, 512),
        request(number::DISCONNECT, 0, 0, 0),
    ];
    let expected = [
        "Read Submit(Read { offset: 512, length: 1024 })",
        "Flush Submit(Flush)",
        "Trim Submit(Trim { offset: 0, length: 2147483648, fua: true })",
        "WriteZeroes Submit(WriteZeroes { offset: 0, length: 512, no_hole: true, fua: false })",
        "Cache Cache",
        "BlockStatus Submit(BlockStatus { offset: 0, length: 512, max_extents: 1 })",
        "Disconnect",
    ];
    assert_eq!(feed(RULES, &list.concat(), &[], false), expected);
}

#[test]
fn hopeless_input_ends_the_connection() {
    let mut parser = RequestParser::new(RULES, BufPool::new(0));
    assert!(matches!(
        parser.next(&[1; 28]).1,
        RequestStep::Reject(Violation::RequestMagic)
    ));
    assert!(matches!(
        parser.next(&request(number::WRITE, 0, 0, u32::MAX)).1,
        RequestStep::Reject(Violation::RequestLength)
    ));
}

fn plausible() -> impl Strategy<Value = Vec<u8>> {
    let length = prop_oneof![
        Just(0u32),
        Just(512),
        Just(4096),
        Just(513),
        Just(COPY_BYTES),
        Just(COPY_BYTES + 512),
        any::<u32>()
    ];
    let one = (
        0u16..10,
        prop_oneof![4 => Just(0u16), 1 => 0u16..64],
        prop_oneof![Just(0u64), Just(4096), any::<u64>()],
        length,
        any::<u8>(),
    );
    let with_payload = one.prop_map(|(kind, flags, offset, length, fill)| {
        let payload = if kind == number::WRITE && length < 1 << 20 {
            vec![fill; length as usize]
        } else {
            Vec::new()
        };
        [request(kind, flags, offset, length), payload].concat()
    });
    prop::collection::vec(with_payload, 0..6).prop_map(|list| list.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn cuts_and_the_way_of_receiving_change_nothing(
        input in prop_oneof![plausible(), prop::collection::vec(any::<u8>(), 0..200)],
        cuts in prop::collection::vec(any::<usize>(), 0..12),
        direct in any::<bool>(),
    ) {
        prop_assert_eq!(feed(RULES, &input, &[], false), feed(RULES, &input, &cuts, direct));
    }
}

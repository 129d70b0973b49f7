use super::*;
use proptest::prelude::*;
use windrow_types::VolumeId;

struct Two {
    stopping: bool,
}

fn export(name: &str, read_only: bool) -> ExportInfo {
    ExportInfo {
        name: name.into(),
        description: "text".into(),
        volume: VolumeId(1),
        size_bytes: 1 << 20,
        read_only,
        min_block: 512,
        preferred_block: 4096,
        max_block: 32 << 20,
    }
}

impl Exports for Two {
    fn list(&mut self) -> Vec<ExportInfo> {
        vec![export("", false), export("second", true)]
    }
    fn info(&mut self, name: &str) -> Result<ExportInfo, RequestError> {
        if self.stopping {
            return Err(RequestError::Stopped);
        }
        self.list()
            .into_iter()
            .find(|export| export.name == name)
            .ok_or(RequestError::NoVolume)
    }
    fn open(&mut self, name: &str) -> Result<ExportInfo, Denied> {
        self.info(name).map_err(Denied::from)
    }
}

fn option(kind: u32, data: &[u8]) -> Vec<u8> {
    [
        &OPTION_MAGIC.to_be_bytes()[..],
        &kind.to_be_bytes(),
        &(data.len() as u32).to_be_bytes(),
        data,
    ]
    .concat()
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat()
}

fn context_data(name: &str, queries: &[&str]) -> Vec<u8> {
    let queries_data: Vec<u8> = queries.iter().flat_map(|query| text(query)).collect();
    [
        text(name),
        (queries.len() as u32).to_be_bytes().to_vec(),
        queries_data,
    ]
    .concat()
}

fn info_data(name: &str, wanted: &[u16]) -> Vec<u8> {
    let list: Vec<u8> = wanted.iter().flat_map(|kind| kind.to_be_bytes()).collect();
    [
        text(name),
        (wanted.len() as u16).to_be_bytes().to_vec(),
        list,
    ]
    .concat()
}

/// Feeds `input` in pieces that end at `cuts`; returns output, the last step and the number of
/// bytes used.
fn feed(input: &[u8], cuts: &[usize], stopping: bool) -> (Vec<u8>, HandshakeStep, usize) {
    let (mut handshake, mut exports, mut output) = (Handshake::new(), Two { stopping }, Vec::new());
    let (mut used, mut last) = (0, HandshakeStep::More);
    let mut ends: Vec<usize> = cuts
        .iter()
        .map(|cut| cut % (input.len() + 1))
        .chain([input.len()])
        .collect();
    ends.sort_unstable();
    for end in ends {
        loop {
            let (step_used, step) = handshake.advance(&input[used..end], &mut exports, &mut output);
            used += step_used;
            match step {
                HandshakeStep::More => break,
                HandshakeStep::Continue => {}
                step => return (output, step, used),
            }
            last = HandshakeStep::More;
        }
    }
    (output, last, used)
}

/// The replies in an output: option, kind, data.
fn replies(mut output: &[u8]) -> Vec<(u32, u32, Vec<u8>)> {
    let mut list = Vec::new();
    while !output.is_empty() {
        let mut reader = Reader(output);
        assert_eq!(reader.u64(), Some(OPTION_REPLY_MAGIC));
        let (option, kind, length) = (
            reader.u32().unwrap(),
            reader.u32().unwrap(),
            reader.u32().unwrap(),
        );
        list.push((option, kind, reader.take(length as usize).unwrap().to_vec()));
        output = reader.0;
    }
    list
}

fn kinds(output: &[u8]) -> Vec<u32> {
    replies(output)
        .into_iter()
        .map(|(_, kind, _)| kind)
        .collect()
}

const FLAGS: [u8; 4] = [0, 0, 0, 3];

#[test]
fn a_modern_client_enters_with_structured_replies_and_its_context() {
    let input = [
        &FLAGS[..],
        &option(option::STRUCTURED_REPLY, &[]),
        &option(
            option::SET_META_CONTEXT,
            &context_data("second", &["base:allocation", "x-other:thing"]),
        ),
        &option(
            option::GO,
            &info_data("second", &[info::NAME, info::DESCRIPTION, info::BLOCK_SIZE]),
        ),
        b"request",
    ]
    .concat();
    let (output, step, used) = feed(&input, &[], false);
    let HandshakeStep::Enter(agreement) = step else {
        panic!("{step:?}")
    };
    assert_eq!(
        used,
        input.len() - 7,
        "what follows belongs to transmission"
    );
    assert!(agreement.structured && agreement.base_allocation && agreement.info.read_only);
    use option_reply::{ACK, INFO, META_CONTEXT};
    assert_eq!(
        kinds(&output),
        [ACK, META_CONTEXT, ACK, INFO, INFO, INFO, INFO, ACK]
    );
    let sizes = &replies(&output)[6].2;
    assert_eq!(
        sizes[..],
        [
            &[0, 3][..],
            &512u32.to_be_bytes(),
            &4096u32.to_be_bytes(),
            &(32u32 << 20).to_be_bytes()
        ]
        .concat()
    );
}

#[test]
fn a_context_counts_only_for_the_export_it_was_set_for() {
    let input = |entered: &str| {
        let set = option(
            option::SET_META_CONTEXT,
            &context_data("", &["base:allocation"]),
        );
        [
            &FLAGS[..],
            &option(option::STRUCTURED_REPLY, &[]),
            &set,
            &option(option::GO, &info_data(entered, &[])),
        ]
        .concat()
    };
    for (entered, expected) in [("", true), ("second", false)] {
        let (_, HandshakeStep::Enter(agreement), _) = feed(&input(entered), &[], false) else {
            panic!()
        };
        assert_eq!(agreement.base_allocation, expected);
    }
}

#[test]
fn an_old_client_gets_its_zeroes_and_no_error_for_an_unknown_name() {
    let (output, step, _) = feed(
        &[&[0; 4][..], &option(option::EXPORT_NAME, b"second")].concat(),
        &[],
        false,
    );
    assert!(matches!(step, HandshakeStep::Enter(_)));
    assert_eq!(output.len(), 10 + TAIL_ZEROES);
    let (output, step, _) = feed(
        &[&FLAGS[..], &option(option::EXPORT_NAME, b"third")].concat(),
        &[],
        false,
    );
    assert_eq!(
        (output.len(), step),
        (0, HandshakeStep::Reject(Violation::Export))
    );
}

#[test]
fn wrong_or_unknown_options_are_answered_and_negotiation_continues() {
    let input = [
        &FLAGS[..],
        &option(5, &[]),
        &option(11, &[]),
        &option(option::LIST, b"x"),
        &option(
            option::SET_META_CONTEXT,
            &context_data("", &["base:allocation"]),
        ),
        &option(option::GO, &info_data("third", &[])),
        &option(option::INFO, b"\0\0\0\x09short"),
        &option(77, &vec![0; MAX_OPTION_BYTES as usize + 1]),
        &option(option::LIST_META_CONTEXT, &context_data("", &[])),
        &option(option::LIST, &[]),
        &option(option::ABORT, &[]),
    ]
    .concat();
    let (output, step, _) = feed(&input, &[], false);
    use option_reply::{ACK, INVALID, META_CONTEXT, SERVER, TOO_BIG, UNKNOWN, UNSUPPORTED};
    let expected = [
        UNSUPPORTED,
        UNSUPPORTED,
        INVALID,
        INVALID,
        UNKNOWN,
        INVALID,
        TOO_BIG,
        META_CONTEXT,
        ACK,
        SERVER,
        SERVER,
        ACK,
        ACK,
    ];
    assert_eq!(kinds(&output), expected);
    assert_eq!(step, HandshakeStep::Abort);
}

/// A client that names no export when there is no default gets the reason of the refusal, and can
/// still name one.
#[test]
fn without_a_default_a_client_has_to_name_an_export() {
    struct Named;
    impl Exports for Named {
        fn list(&mut self) -> Vec<ExportInfo> {
            vec![export("second", true)]
        }
        fn info(&mut self, name: &str) -> Result<ExportInfo, RequestError> {
            self.list()
                .into_iter()
                .find(|export| export.name == name)
                .ok_or(RequestError::NoVolume)
        }
        fn open(&mut self, name: &str) -> Result<ExportInfo, Denied> {
            self.info(name).map_err(Denied::from)
        }
    }
    let (mut handshake, mut output) = (Handshake::new(), Vec::new());
    handshake.advance(&FLAGS, &mut Named, &mut output);
    for kind in [option::INFO, option::GO] {
        output.clear();
        handshake.advance(&option(kind, &info_data("", &[])), &mut Named, &mut output);
        let (_, reply, text) = replies(&output).remove(0);
        assert_eq!(reply, option_reply::UNKNOWN);
        assert!(
            String::from_utf8_lossy(&text).contains("no export was named"),
            "{text:?}"
        );
    }
    let (_, step) = handshake.advance(
        &option(option::EXPORT_NAME, b"second"),
        &mut Named,
        &mut output,
    );
    assert!(matches!(step, HandshakeStep::Enter(_)));
}

#[test]
fn violations_end_the_connection() {
    let reject = |input: &[u8]| match feed(input, &[], false).1 {
        HandshakeStep::Reject(violation) => violation,
        step => panic!("{step:?}"),
    };
    assert_eq!(reject(&[0, 0, 0, 4]), Violation::ClientFlags);
    assert_eq!(
        reject(&[&[0; 4][..], &option(option::LIST, &[])].concat()),
        Violation::ClientFlags
    );
    assert_eq!(
        reject(&[&FLAGS[..], &[7; 16]].concat()),
        Violation::OptionMagic
    );
    let long = [
        &FLAGS[..],
        &OPTION_MAGIC.to_be_bytes(),
        &3u32.to_be_bytes(),
        &u32::MAX.to_be_bytes(),
    ]
    .concat();
    assert_eq!(reject(&long), Violation::OptionLength);
    let many: Vec<u8> = option(option::STRUCTURED_REPLY, &[]).repeat(MAX_OPTIONS as usize + 1);
    assert_eq!(
        reject(&[&FLAGS[..], &many].concat()),
        Violation::OptionCount
    );
}

#[test]
fn a_stopping_server_says_so() {
    let (output, _, _) = feed(
        &[&FLAGS[..], &option(option::GO, &info_data("", &[]))].concat(),
        &[],
        true,
    );
    assert_eq!(kinds(&output), [option_reply::SHUTDOWN]);
}

#[test]
fn long_texts_are_cut_at_a_character() {
    let text = "é".repeat(MAX_STRING_BYTES);
    assert_eq!(shortened(&text).len(), MAX_STRING_BYTES);
    assert_eq!(shortened(&format!("a{text}")).len(), MAX_STRING_BYTES - 1);
}

fn plausible() -> impl Strategy<Value = Vec<u8>> {
    let data = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        prop_oneof![Just(""), Just("second")].prop_map(|name| info_data(name, &[0, 1, 2, 3])),
        prop_oneof![Just(""), Just("second")]
            .prop_map(|name| context_data(name, &["base:allocation", "base:"])),
        Just(vec![0; MAX_OPTION_BYTES as usize + 5]),
    ];
    let options = prop::collection::vec(
        (0u32..14, data).prop_map(|(kind, data)| option(kind, &data)),
        0..6,
    );
    (options, prop::collection::vec(any::<u8>(), 0..50))
        .prop_map(|(options, tail)| [FLAGS.to_vec(), options.concat(), tail].concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn cuts_change_nothing(input in prop_oneof![plausible(), prop::collection::vec(any::<u8>(), 0..100)], cuts in prop::collection::vec(any::<usize>(), 0..12)) {
        prop_assert_eq!(feed(&input, &[], false), feed(&input, &cuts, false));
    }
}

/// A list of thousands of exports is longer than the most memory of one step.
#[test]
fn a_long_list_goes_out_in_pieces() {
    struct Many;
    const COUNT: usize = 4096;
    fn name(number: usize) -> String {
        format!("{number:0255}")
    }
    impl Exports for Many {
        fn list(&mut self) -> Vec<ExportInfo> {
            (0..COUNT)
                .map(|number| ExportInfo {
                    description: "d".repeat(5000),
                    ..export(&name(number), false)
                })
                .collect()
        }
        fn info(&mut self, _: &str) -> Result<ExportInfo, RequestError> {
            Ok(export("", false))
        }
        fn open(&mut self, _: &str) -> Result<ExportInfo, Denied> {
            Ok(export("", false))
        }
    }
    let (mut handshake, mut output, mut listed) = (Handshake::new(), Vec::new(), Vec::new());
    handshake.advance(&FLAGS, &mut Many, &mut output);
    let ask = option(option::LIST, &[]);
    let (used, mut step) = handshake.advance(&ask, &mut Many, &mut output);
    assert_eq!(used, ask.len());
    while step == HandshakeStep::Continue {
        output.clear();
        step = handshake.advance(&[], &mut Many, &mut output).1;
        assert!(output.len() < 128 << 10, "{} bytes at once", output.len());
        listed.extend(replies(&output));
    }
    assert_eq!(step, HandshakeStep::More);
    assert_eq!(
        listed.pop().map(|(_, kind, _)| kind),
        Some(option_reply::ACK)
    );
    assert!(
        listed
            .iter()
            .enumerate()
            .all(|(number, (_, _, data))| data[4..259] == *name(number).as_bytes())
            && listed.len() == COUNT
    );
    // `qemu-nbd --list` asks twice about each of them.
    for number in 0..2 * COUNT {
        let (_, step) = handshake.advance(
            &option(option::INFO, &info_data(&name(number), &[])),
            &mut Many,
            &mut output,
        );
        assert_eq!(step, HandshakeStep::Continue, "option {number}");
        output.clear();
    }
}

//! Properties for any bytes and any requests.

use super::*;
use crate::detect::FORMATS;
use proptest::prelude::*;

fn any_request() -> impl Strategy<Value = Request> {
    let range = (any::<u64>(), 0u64..1 << 33, any::<u8>()).prop_map(|(offset, length, shift)| {
        let offset = offset >> (shift % 64);
        (
            offset,
            length
                .min(request::TRANSFER_BYTES_MOST)
                .min(u64::MAX - offset),
        )
    });
    (0usize..4, any::<bool>(), 0u32..4, range, any::<u64>()).prop_map(
        |(kind, fua, device, (offset, length), time)| {
            let kind = request::KINDS[kind];
            let (offset, length) = if kind == Kind::Flush {
                (0, 0)
            } else {
                (offset, length)
            };
            Request {
                fua: fua && kind == Kind::Write,
                ..Request::new(kind, device, offset, length, time)
            }
        },
    )
}

/// Calls every function of a reader, to find panics.
fn exhaust(bytes: &[u8]) {
    for (_, format) in FORMATS {
        for skip_bad in [false, true] {
            let columns = (format == Format::Columns)
                .then(|| Columns::parse("op,lba,sectors,time_us,device").expect("columns"));
            let options = Options {
                format: Some(format),
                columns,
                skip_bad,
                ..Options::default()
            };
            if let Ok(reader) = Reader::new(bytes, &options) {
                let mut summary = Summary::default();
                reader.filter_map(Result::ok).for_each(|request| {
                    assert!(
                        request
                            .check_up_to(2 * request::TRANSFER_BYTES_MOST)
                            .is_ok()
                    );
                    summary.add(&request);
                });
                let _ = summary.figures();
            }
        }
    }
    let _ = read(bytes, &Options::default());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    #[test]
    fn any_bytes_give_requests_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        exhaust(&bytes);
    }

    #[test]
    fn any_text_of_the_usual_characters(text in "(fio version [23] iolog\n)?([0-9,. +\tRWDTFQCm\\[\\]a-f-]{0,60}\n){0,8}") {
        exhaust(text.as_bytes());
    }

    #[test]
    fn any_bytes_behind_a_right_beginning(begin in 0usize..6, bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let beginnings: [&[u8]; 6] = [compact::MAGIC, b"WINDTRC1\x0c\0\0\0\0\0\0\0", b"\x07\x74\x61\x65", b"\x65\x61\x74\x07", b"\x28\xb5\x2f\xfd", b"\x1f\x8b\x08\0"];
        exhaust(&[beginnings[begin], &bytes].concat());
    }

    /// A chunk with a valid checksum and any content: the decoder must handle it without the help
    /// of checksums.
    #[test]
    fn any_chunk_with_a_right_checksum(kind in 0u8..5, count in 0u32..40, payload in prop::collection::vec(any::<u8>(), 0..200)) {
        let bytes = compact::tests_only::signed(&[(2, 0, b"a".to_vec()), (kind, count, payload)]);
        exhaust(&bytes);
    }

    #[test]
    fn the_compact_format_gives_back_what_it_was_given(mut requests in prop::collection::vec(any_request(), 0..300)) {
        // A reader counts from the first request and has no negative times.
        if let Some(first) = requests.first().map(|request| request.time_ns) {
            requests.iter_mut().for_each(|request| request.time_ns = request.time_ns.saturating_sub(first));
        }
        if let Some(first) = requests.first_mut() {
            first.time_ns = 0;
        }
        prop_assert_eq!(read(&compact(&requests, Granule::Byte), &Options::default()).expect("readable"), requests.clone());
        let aligned: Vec<Request> = requests.iter().filter_map(|request| Granule::Block.align(request)).collect();
        prop_assert_eq!(read(&compact(&requests, Granule::Block), &Options::default()).expect("readable"), aligned);
    }

    #[test]
    fn csv_and_fio_give_back_what_they_can_say(mut requests in prop::collection::vec(any_request(), 1..60)) {
        let names: Vec<String> = (0..4).map(|number| format!("disk{number}")).collect();
        let first = requests[0].time_ns;
        requests.iter_mut().for_each(|request| {
            request.time_ns = request.time_ns.saturating_sub(first);
            // Neither format can represent more than microseconds, or names in another order.
            request.device = 0;
        });
        let written = |target| {
            let mut writer = Writer::new(Vec::new(), target, false).expect("memory");
            requests.iter().for_each(|request| writer.add(request, &names).expect("memory"));
            writer.finish().expect("memory").0
        };
        let options = |format| Options { format: Some(format), ..Options::default() };
        prop_assert_eq!(&read(&written(Target::Csv), &options(Format::Csv)).expect("readable"), &requests);
        let coarse: Vec<Request> = requests.iter().map(|request| Request { fua: false, time_ns: request.time_ns / 1000 * 1000, ..*request }).collect();
        prop_assert_eq!(read(&written(Target::Fio), &options(Format::Fio)).expect("readable"), coarse);
    }
}

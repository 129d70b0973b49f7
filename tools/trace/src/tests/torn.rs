//! The compact format when its end is missing, or when a byte of it is wrong.

use super::*;

fn many() -> Vec<Request> {
    // Several chunks: 64 KiB close one.
    (0..40_000u64)
        .map(|at| {
            request(
                Kind::Write,
                (at % 3) as u32,
                at * 7919 % 100_000 * 4096,
                4096,
                at * 1_000,
            )
        })
        .collect()
}

fn outcome(bytes: &[u8]) -> (usize, Option<TraceError>, bool) {
    let mut reader = Reader::new(
        bytes,
        &Options {
            format: Some(Format::Compact),
            ..Options::default()
        },
    )
    .expect("named");
    let (mut count, mut error) = (0, None);
    for found in reader.by_ref() {
        match found {
            Ok(_) => count += 1,
            Err(fault) => error = Some(fault),
        }
    }
    (count, error, reader.is_cut())
}

#[test]
fn a_cut_tail_costs_its_last_chunk_only() {
    let (requests, bytes) = (many(), compact(&many(), Granule::Block));
    assert_eq!(
        read(&bytes, &Options::default()).expect("readable"),
        requests
    );
    assert!(!outcome(&bytes).2, "a whole file is not cut");
    let mut before = requests.len();
    for kept in (compact::HEAD_BYTES..bytes.len()).rev().step_by(997) {
        let (count, error, cut) = outcome(&bytes[..kept]);
        assert!(error.is_none() && cut, "cut at {kept}: {error:?}");
        assert!(
            count <= before,
            "cut at {kept}: less of the file gives more requests"
        );
        before = count;
        // A file system may leave zeroes of the right length in place of a lost tail.
        let mut zeroed = bytes[..kept].to_vec();
        zeroed.resize(bytes.len(), 0);
        let (with_zeroes, error, _) = outcome(&zeroed);
        assert!(
            with_zeroes <= count && !matches!(error, Some(TraceError::Record { .. })),
            "zeroes from {kept}: {error:?}"
        );
    }
    assert!(before < requests.len() / 2);
}

#[test]
fn a_wrong_byte_is_found_wherever_it_is() {
    let requests: Vec<Request> = many()[..500].to_vec();
    let bytes = compact(&requests, Granule::Byte);
    for at in 0..bytes.len() {
        let mut wrong = bytes.clone();
        wrong[at] ^= 1 << (at % 8);
        let read_back = read(
            &wrong,
            &Options {
                format: Some(Format::Compact),
                ..Options::default()
            },
        );
        let (count, _, cut) = outcome(&wrong);
        // It is damage, or equivalent to a truncated end; never other requests.
        assert!(
            read_back.is_err() || cut && count <= requests.len(),
            "byte {at} was changed without being detected"
        );
        if let Ok(found) = read_back {
            assert_eq!(found, requests[..found.len()], "byte {at}");
        }
    }
}

#[test]
fn chunks_know_where_they_stand() {
    // Two files with one head: the chunks of one are not valid in the other at another position.
    let (one, other) = (
        compact(&many()[..10], Granule::Block),
        compact(&many()[10..40], Granule::Block),
    );
    let spliced = [&one[..one.len() - 32], &other[compact::HEAD_BYTES..]].concat();
    assert!(matches!(
        read(&spliced, &Options::default()),
        Err(TraceError::Damaged { .. })
    ));
}

#[test]
fn whole_granules() {
    let align = |kind, offset, length| {
        Granule::Block
            .align(&request(kind, 0, offset, length, 0))
            .map(|request| (request.offset, request.length))
    };
    assert_eq!(
        (align(Kind::Write, 4095, 2), align(Kind::Read, 4096, 4096)),
        (Some((0, 8192)), Some((4096, 4096)))
    );
    // A trim of parts of blocks has no effect.
    assert_eq!(
        (
            align(Kind::Trim, 1, 8192),
            align(Kind::Trim, 1, 4096),
            align(Kind::Flush, 0, 0)
        ),
        (Some((4096, 4096)), None, Some((0, 0)))
    );
    assert_eq!(
        (
            align(Kind::Write, 5000, 0),
            align(Kind::Write, u64::MAX - 1, 1)
        ),
        (Some((4096, 0)), None)
    );
}

#[test]
fn sequential_writes_of_one_size_take_a_byte_and_their_time() {
    let run: Vec<Request> = (0..10_000)
        .map(|at| request(Kind::Write, 0, at * 4096, 4096, at * 20_000))
        .collect();
    let bytes = compact(&run, Granule::Block).len();
    // 20 us take three bytes.
    assert!(bytes < 10_000 * 4 + 300, "{bytes}");
}

/// Chunks that no writer produces, with valid checksums: each is refused, with its position.
#[test]
fn wrong_content_under_a_right_checksum() {
    const NAME: (u8, u32, &[u8]) = (2, 0, b"a");
    // A write (1) of the same device (8) at the same time (64): its offset and length follow.
    const FIRST: u8 = 1 | 8 | 64;
    let fault = |chunks: &[(u8, u32, &[u8])]| {
        let chunks: Vec<(u8, u32, Vec<u8>)> = chunks
            .iter()
            .map(|(kind, count, payload)| (*kind, *count, payload.to_vec()))
            .collect();
        let bytes = compact::tests_only::signed(&chunks);
        read(&bytes, &Options::default())
            .map(|found| found.len())
            .map_err(|error| error.to_string())
    };
    let end = |total: u64| total.to_le_bytes();
    assert_eq!(
        fault(&[NAME, (1, 1, &[FIRST, 2, 1]), (3, 0, &end(1))]),
        Ok(1),
        "the sound one"
    );
    let requests =
        |payload: &[u8]| fault(&[NAME, (1, 1, payload), (3, 0, &end(1))]).expect_err("wrong");
    // The head of the file takes 16 bytes, a name of one letter 25, the head of the chunk 24.
    assert_eq!(
        requests(&[FIRST | 128, 2, 1]),
        "byte 65: a bit that has no meaning"
    );
    assert_eq!(
        requests(&[3 | 8 | 16 | 64]),
        "byte 65: a bit that has no meaning"
    );
    assert_eq!(
        requests(&[FIRST, 0x82, 0, 1]),
        "byte 65: a number that is not written as it must be"
    );
    assert_eq!(
        requests(&[
            FIRST, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 1
        ]),
        "byte 65: a number that is not written as it must be"
    );
    assert_eq!(requests(&[FIRST, 2]), "byte 65: a number that is cut");
    assert_eq!(
        requests(&[1 | 64, 1, 2, 1]),
        "byte 65: a device without a name"
    );
    assert_eq!(
        requests(&[FIRST, 1, 2]),
        "byte 65: its range goes beyond 2^64 bytes"
    );
    assert_eq!(
        requests(&[8 | 4 | 64, 2, 1]),
        "byte 65: only writes have FUA"
    );
    assert_eq!(
        requests(&[FIRST, 2, 1, 0]),
        "byte 68: more bytes than requests"
    );
    for (chunks, says) in [
        (&[NAME, NAME][..], "a name of a device out of turn"),
        (&[NAME, (2, 2, b"c")], "a name of a device out of turn"),
        (&[NAME, (3, 0, &[0; 7])], "an end without content"),
        (
            &[NAME, (3, 0, &[1, 0, 0, 0, 0, 0, 0, 0])],
            "an end that counts another number of requests",
        ),
        (&[NAME, (3, 0, &[0; 8]), NAME], "data after the end"),
        (&[NAME, (4, 0, b"")], "no head of a chunk"),
    ] {
        let error = fault(chunks).expect_err("wrong");
        assert!(error.ends_with(says), "{error} instead of {says}");
    }
}

use super::*;
use windrow_trace::{Options, Reader};

const ALL: Wish = Wish {
    size_bytes: None,
    trims: true,
    flushes: true,
    blocks_per_s: None,
};

fn requests(text: &str) -> Vec<Request> {
    Reader::new(text.as_bytes(), &Options::default())
        .expect("a trace")
        .map(|found| found.expect("a request"))
        .collect()
}

fn record(text: &str, wish: Wish) -> Result<Recorded, String> {
    let (requests, mut survey) = (requests(text), Survey::new(wish));
    requests.iter().for_each(|request| survey.add(request));
    let (bytes, written) = (survey.operations_bytes(), survey.written());
    let mut volume = survey.volume()?;
    requests.iter().for_each(|request| volume.add(request));
    let recorded = volume.finish();
    assert_eq!(recorded.written, written);
    assert!(
        recorded.operations.len() * size_of::<Operation>() <= bytes as usize,
        "more than was computed"
    );
    Ok(recorded)
}

#[test]
fn writes_count_every_touched_block_and_trims_only_covered_ones() {
    // 4095 bytes from 4095 on touch blocks 0 and 1; the trim covers block 1 only.
    let text =
        "W,4095,4095,0\nR,0,4096,1\nT,4000,8000,2\nW,1099511627776,8192,3\nF,0,0,4\nWF,0,4096,5\n";
    let (first, trim, far) = (
        Operation::Write { block: 0, count: 2 },
        Operation::Trim { block: 1, count: 1 },
        Operation::Write { block: 2, count: 2 },
    );
    let again = Operation::write(0);
    let all = record(text, ALL).expect("a volume");
    assert_eq!(
        all.operations,
        [
            first,
            trim,
            far,
            Operation::Flush,
            Operation::Durable,
            again
        ]
    );
    assert_eq!(
        (all.blocks, all.written, all.trims, all.flushes),
        (4, 5, 1, 2)
    );
    let writes = record(
        text,
        Wish {
            trims: false,
            flushes: false,
            ..ALL
        },
    )
    .expect("a volume");
    assert_eq!(writes.operations, [first, far, again]);
}

#[test]
fn devices_do_not_lie_over_each_other() {
    let two = record("W,0,4096,0,a\nW,0,4096,1,b\nW,0,4096,2,a\n", ALL).expect("a volume");
    assert_eq!(
        (two.blocks, two.operations[1], two.operations[2]),
        (2, Operation::write(1), Operation::write(0))
    );
}

#[test]
fn a_volume_of_a_size_has_the_addresses_of_the_trace_and_what_is_never_written() {
    let sized = |size| Wish {
        size_bytes: Some(size),
        ..ALL
    };
    let text = "W,40960,4096,0\nT,0,18446744073709551615,1\nT,8192,4096,2\nW,0,1,3\n";
    let found = record(text, sized(20 * 4096)).expect("a volume");
    let expected = [
        Operation::write(10),
        Operation::Trim {
            block: 0,
            count: 20,
        },
        Operation::Trim { block: 2, count: 1 },
        Operation::write(0),
    ];
    assert_eq!(
        (found.blocks, found.operations.as_slice(), found.written),
        (20, &expected[..], 2)
    );
    // Without a size, blocks that the trace never writes do not exist.
    assert_eq!(record(text, ALL).expect("a volume").blocks, 2);
    assert_eq!(
        record(text, sized(40_960)).expect_err("too small"),
        "it writes up to byte 45056, beyond a size of 40960"
    );
    assert!(
        record(text, sized(1 << 50))
            .expect_err("too large")
            .contains("16 TiB")
    );
    assert!(
        record("W,0,4096,0,a\nT,0,4096,1,b\n", sized(1 << 20))
            .expect_err("two")
            .contains("--device")
    );
    assert_eq!(
        record("T,0,4096,1\nW,0,0,2\n", ALL).expect_err("nothing"),
        "it writes nothing"
    );
}

#[test]
fn times_become_blocks_that_members_take_and_reads_take_some_of_them() {
    let timed = |per_s| Wish {
        flushes: false,
        blocks_per_s: Some(per_s),
        ..ALL
    };
    let arrival = |after, reads| Operation::Arrival { after, reads };
    // (Times in microseconds.) The read of two blocks comes between; the third write is earlier
    // than the trim; the last arrives with the preceding one.
    let text = "R,0,4096,0\nW,0,4096,1000000\nR,0,8192,1500000\nT,0,4096,3000000\nW,0,4096,2000000\nW,4096,4096,2500000\nR,0,4096,6000000\n";
    let found = record(text, timed(100.0)).expect("a volume");
    let trim = Operation::Trim { block: 0, count: 1 };
    let expected = [
        arrival(0, 0),
        Operation::write(0),
        arrival(200, 2),
        trim,
        Operation::write(0),
        Operation::write(1),
    ];
    assert_eq!(found.operations, expected);
    // A round ends with its last request, and the next one comes the mean of six distances later.
    assert_eq!(found.between, Some(arrival(300 + 600 / 6, 1)));
    let rounds: Vec<Operation> = found.rounds(2).collect();
    assert_eq!(
        rounds,
        [&expected[..], &[arrival(400, 1)], &expected[..]].concat()
    );
    // Half as many blocks per second of the trace, and values that do not fit are saturated.
    assert_eq!(
        record(text, timed(50.0)).expect("a volume").operations[2],
        arrival(100, 2)
    );
    assert_eq!(
        record(text, timed(1e12)).expect("a volume").operations[2],
        arrival(u32::MAX, 2)
    );
    // If they do not fit at all, the trace is refused: the sum of the rest and a mean must not
    // overflow.
    let absurd = "in its 6 s members take more than 2^53 blocks, which is not counted: a lower --rate, or a higher --time-scale";
    for per_s in [2e15, 1e300, f64::INFINITY] {
        assert_eq!(record(text, timed(per_s)).expect_err("absurd"), absurd);
    }
    // Without times there is no gap.
    assert_eq!(record(text, ALL).expect("a volume").rounds(2).count(), 8);
}

use super::*;

#[test]
fn writes_count_every_touched_block_and_trims_only_covered_ones() {
    // 4095 bytes from 4095 on touch blocks 0 and 1; the trim covers block 1 only.
    let text = "W,4095,4095,0\nR,0,4096,1\nT,4000,8000,2\nW,1099511627776,8192,3\n";
    let trace = Trace::parse(text, true).expect("valid");
    let expected = [Operation::Write { block: 0, count: 2 }, Operation::Trim { block: 1, count: 1 }, Operation::Write { block: 2, count: 2 }];
    assert_eq!((trace.blocks, trace.operations.as_slice(), trace.written()), (4, &expected[..], 4));
    assert_eq!(Trace::parse(text, false).expect("valid").operations.len(), 1, "one run of writes is left");
}

#[test]
fn a_line_that_is_no_request_is_named() {
    assert_eq!(Trace::parse("W,0,1,0\nX,0,1,0\n", true).expect_err("op"), "line 2: 'X,0,1,0' is not op,offset,length,time");
    assert!(Trace::parse("W,18446744073709551615,2,0", true).expect_err("overflow").contains("line 1"));
}

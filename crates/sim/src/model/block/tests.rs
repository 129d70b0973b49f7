use super::*;

fn write(request: u64, mask: u8, stamp: u64) -> BlockWrite {
    BlockWrite { request: RequestId(request), mask, stamp, first: 0, last: 0, above: 0 }
}

#[test]
fn a_read_sees_the_newest_acknowledged_or_something_concurrent() {
    let mut block = BlockModel::default();
    block.submit(write(1, FULL, 100));
    assert!(block.explains(&[0; 8], FULL, 0) && block.explains(&[100; 8], FULL, 0));
    block.acknowledge(RequestId(1), 5, 5);
    assert!(block.explains(&[0; 8], FULL, 0), "the read began before the answer");
    assert!(!block.explains(&[0; 8], FULL, 5), "the read began after the answer");
    block.submit(write(2, FULL, 200));
    let torn = [100, 100, 100, 100, 200, 200, 200, 200];
    assert!(!block.explains(&torn, FULL, 5), "a block is never torn");
    assert!(block.explains(&torn, 0xf0, 5) && block.explains(&torn, 0x0f, 5));
}

#[test]
fn partial_writes_compose_in_order() {
    let mut block = BlockModel::default();
    block.submit(write(1, FULL, 100));
    block.submit(write(2, 0b11, 200));
    block.acknowledge(RequestId(2), 2, 2);
    let composed = [200, 200, 100, 100, 100, 100, 100, 100];
    assert!(block.explains(&composed, FULL, 2), "the first may come before the second");
    assert!(block.explains(&[100; 8], FULL, 2), "or after it");
    block.acknowledge(RequestId(1), 1, 1);
    assert!(block.explains(&composed, FULL, 2));
    assert!(!block.explains(&[100; 8], FULL, 2), "now its order is known");
}

#[test]
fn a_crash_keeps_exactly_what_was_accepted() {
    let mut block = BlockModel::default();
    for request in 1..=4 {
        block.submit(write(request, FULL, request * 100));
    }
    block.acknowledge(RequestId(1), 10, 10);
    block.acknowledge(RequestId(2), 20, 20);
    block.acknowledge(RequestId(3), 30, 30);
    block.crash(20);
    assert!(block.explains(&[200; 8], FULL, 0) && block.explains(&[400; 8], FULL, 0));
    assert!(!block.explains(&[100; 8], FULL, 20) && !block.explains(&[300; 8], FULL, 0));
    block.settle(&[400; 8]);
    assert!(!block.explains(&[200; 8], FULL, 0));
}

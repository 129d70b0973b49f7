use super::*;

fn write(request: u64, mask: u8, stamp: u64) -> BlockWrite {
    BlockWrite {
        request: RequestId(request),
        mask,
        stamp,
        first: 0,
        last: 0,
        above: 0,
        may_pass: false,
    }
}

#[test]
fn a_read_sees_the_newest_acknowledged_or_something_concurrent() {
    let mut block = BlockModel::default();
    block.submit(write(1, FULL, 100));
    assert!(block.explains(&[0; 8], FULL, 0) && block.explains(&[100; 8], FULL, 0));
    block.acknowledge(RequestId(1), 5, 5, false);
    assert!(
        block.explains(&[0; 8], FULL, 0),
        "the read began before the answer"
    );
    assert!(
        !block.explains(&[0; 8], FULL, 5),
        "the read began after the answer"
    );
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
    block.acknowledge(RequestId(2), 2, 2, false);
    let composed = [200, 200, 100, 100, 100, 100, 100, 100];
    assert!(
        block.explains(&composed, FULL, 2),
        "the first may come before the second"
    );
    assert!(block.explains(&[100; 8], FULL, 2), "or after it");
    block.acknowledge(RequestId(1), 1, 1, false);
    assert!(block.explains(&composed, FULL, 2));
    assert!(
        !block.explains(&[100; 8], FULL, 2),
        "now its order is known"
    );
}

#[test]
fn a_crash_keeps_exactly_what_was_accepted() {
    let mut block = BlockModel::default();
    for request in 1..=4 {
        block.submit(write(request, FULL, request * 100));
    }
    block.acknowledge(RequestId(1), 10, 10, false);
    block.acknowledge(RequestId(2), 20, 20, false);
    block.acknowledge(RequestId(3), 30, 30, false);
    block.crash(20);
    assert!(block.explains(&[200; 8], FULL, 0) && block.explains(&[400; 8], FULL, 0));
    assert!(!block.explains(&[100; 8], FULL, 20) && !block.explains(&[300; 8], FULL, 0));
    block.settle(&[400; 8]);
    assert!(!block.explains(&[200; 8], FULL, 0));
}

#[test]
fn a_start_with_few_pages_may_make_holes_of_zeroes() {
    let states = |block: &BlockModel| {
        [ExtentState::Hole, ExtentState::Zero].map(|state| block.explains_status(state, 1))
    };
    let mut block = BlockModel::default();
    block.submit(write(1, FULL, ZERO));
    block.acknowledge(RequestId(1), 1, 1, false);
    assert_eq!(states(&block), [false, true]);
    block.may_become_hole();
    assert_eq!(states(&block), [true, true]);
    let mut block = BlockModel::default();
    block.submit(write(1, FULL >> 1, ZERO));
    block.acknowledge(RequestId(1), 1, 1, false);
    assert_eq!(states(&block), [false, true]);
    block.may_become_hole();
    assert_eq!(states(&block), [true, true], "zeroes in a part of a hole");
    let mut block = BlockModel::default();
    block.settle(&[100; 8]);
    block.may_become_hole();
    assert_eq!(states(&block), [false, false]);
}

#[test]
fn a_trim_in_a_full_pool_may_leave_a_block_as_it_was() {
    let trimmed = |may_pass| {
        let mut block = BlockModel::default();
        block.submit(write(1, FULL, ONES));
        block.acknowledge(RequestId(1), 1, 1, false);
        block.submit(write(2, 0b11, ZERO));
        block.acknowledge(RequestId(2), 2, 2, may_pass);
        block
    };
    let mut cut = [ONES; SECTORS];
    cut[..2].fill(ZERO);
    assert!(
        trimmed(false).explains(&cut, FULL, 2)
            && !trimmed(false).explains(&[ONES; SECTORS], FULL, 2)
    );
    let mut block = trimmed(true);
    assert!(
        block.explains(&cut, FULL, 2)
            && block.explains(&[ONES; SECTORS], FULL, 2)
            && block.is_left_to_see()
    );
    let torn = std::array::from_fn(|sector| if sector == 0 { ZERO } else { ONES });
    assert!(
        !block.explains(&torn, FULL, 2),
        "the end is trimmed as a whole or not at all"
    );
    block.fold(2);
    assert!(
        block.is_left_to_see(),
        "what is not known does not become history"
    );
    let mut other = block.clone();
    block.see(&cut);
    assert!(
        block.has_data() && !block.is_left_to_see() && !block.explains(&[ONES; SECTORS], FULL, 2)
    );
    other.see(&[ONES; SECTORS]);
    assert!(!other.has_data() && !other.is_left_to_see() && !other.explains(&cut, FULL, 2));
    // A full overwrite makes the trim's effect irrelevant.
    let mut block = trimmed(true);
    block.submit(write(3, FULL, 300));
    block.acknowledge(RequestId(3), 3, 3, false);
    assert!(!block.is_left_to_see() && block.explains(&[ONES; SECTORS], FULL, 1));
}

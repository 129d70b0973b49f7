use super::*;

fn block(number: u64, version: u32) -> [u8; BLOCK] {
    let mut bytes = [0; BLOCK];
    if version > 0 {
        stamp(number, version, &mut bytes);
    }
    bytes
}

fn judge(ledger: &Ledger, number: u64, bytes: &[u8]) -> Verdict {
    let mut verdict = Verdict::default();
    ledger.judge(number, bytes, &mut verdict);
    verdict
}

#[test]
fn a_flush_covers_what_was_acknowledged_before_it_was_sent() {
    let mut ledger = Ledger::new(4);
    assert_eq!(ledger.issue(1), Some(1));
    assert_eq!(ledger.issue(1), None, "one write to a block at a time");
    ledger.acknowledge(1);
    ledger.begin_flush();
    assert_eq!(ledger.issue(1), Some(2));
    ledger.acknowledge(1);
    assert!(
        judge(&ledger, 1, &block(1, 0)).is_good(),
        "nothing is promised before the flush is answered"
    );
    ledger.end_flush();
    assert_eq!(judge(&ledger, 1, &block(1, 0)).lost, 1);
    assert!(judge(&ledger, 1, &block(1, 1)).is_good());
    assert_eq!(judge(&ledger, 1, &block(1, 2)).newer, 1);
    assert_eq!(judge(&ledger, 1, &block(1, 3)).wrong, 1, "never sent");
    ledger.begin_flush();
    ledger.end_flush();
    assert_eq!(judge(&ledger, 1, &block(1, 1)).lost, 1);
}

#[test]
fn bytes_of_another_block_or_torn_ones_are_wrong() {
    let mut ledger = Ledger::new(4);
    ledger.issue(2);
    ledger.acknowledge(2);
    assert_eq!(judge(&ledger, 2, &block(3, 1)).wrong, 1);
    let mut torn = block(2, 1);
    torn[2048..].fill(0);
    assert_eq!(judge(&ledger, 2, &torn).wrong, 1);
    assert_eq!(version_of(2, &block(2, 1)), Some(1));
}

use super::*;

const VOLUME: VolumeId = VolumeId(7);

fn key(lba: u64) -> BlockKey {
    BlockKey::new(VOLUME, Lba(lba))
}

fn ranges(status: &DamageStatus) -> Vec<(u64, u64)> {
    status
        .lost
        .iter()
        .map(|range| (range.lba, range.blocks))
        .collect()
}

#[test]
fn blocks_join_to_ranges_and_are_named_once() {
    let mut damage = Damage::default();
    let named: Vec<bool> = [5, 7, 6, 6, 4, 9]
        .map(|lba| damage.note(key(lba), 50))
        .into();
    assert_eq!(named, [true, true, true, false, true, true]);
    let status = damage.status(8);
    assert_eq!(
        (status.lost_blocks, ranges(&status), status.since_unix_s),
        (5, vec![(4, 4), (9, 1)], 50)
    );
    damage.clear(VolumeId(8), Lba(0), Lba(100));
    damage.clear(VOLUME, Lba(5), Lba(7));
    assert_eq!(ranges(&damage.status(8)), [(4, 1), (7, 1), (9, 1)]);
    assert!(damage.note(key(5), 60), "it was written, and is lost again");
    damage.clear(VOLUME, Lba(0), Lba(u64::MAX));
    assert!(damage.is_empty());
    assert_eq!(damage.status(8), DamageStatus::default());
}

#[test]
fn the_sets_are_bounded_and_a_repeated_read_names_nothing_twice() {
    let mut damage = Damage::default();
    let most = DAMAGE_RANGES_MAX as u64;
    let named = (0..2 * most)
        .filter(|lba| damage.note(key(lba * 2), 1))
        .count() as u64;
    assert_eq!((named, damage.known.ranges.len() as u64), (most, most));
    assert_eq!(
        (0..2 * most)
            .filter(|lba| damage.note(key(lba * 2), 1))
            .count(),
        0
    );
    assert!(
        damage.status(4).lost_blocks >= 2 * most,
        "none is forgotten"
    );
    assert_eq!(damage.status(4).lost.len(), 4);
}

/// A scrub that passed the lost block before a restart of the daemon and then completes must not
/// make the block count as intact.
#[test]
fn a_scrub_resumed_after_a_start_forgets_nothing() {
    let mut damage = Damage::default();
    damage.scrub_begins();
    damage.note(key(5), 50);
    let mut back = Damage::restored(&damage.saved());
    back.note(key(900), 60);
    back.scrub_completed();
    assert!(!back.completing);
    assert_eq!(
        (back.status(8).lost_blocks, back.status(8).recalled_blocks),
        (1, 1)
    );
    back.scrub_begins();
    back.scrub_completed();
    assert!(back.completing, "this one has looked everywhere");
}

#[test]
fn a_checkpoint_keeps_the_number_and_the_first_ranges() {
    let mut damage = Damage::default();
    for lba in 0..100 {
        damage.note(key(lba * 2), 1_700_000_000);
    }
    let saved = damage.saved();
    assert_eq!(saved.len(), SAVED_WORDS);
    let mut back = Damage::restored(&saved);
    let status = back.status(64);
    assert_eq!(
        (
            status.lost_blocks,
            status.recalled_blocks,
            status.since_unix_s
        ),
        (0, 100, 1_700_000_000)
    );
    assert_eq!(status.recalled.len(), DAMAGE_SAVED_RANGES);
    assert_eq!(back.saved()[0], 100, "a second start recalls as much");
    assert!(back.note(key(0), 0));
    assert_eq!(
        (back.status(64).lost_blocks, back.status(64).recalled_blocks),
        (1, 99)
    );
    assert_eq!(Damage::restored(&[]).status(1), DamageStatus::default());
    let nonsense: Vec<u64> = std::iter::repeat_n(u64::MAX, SAVED_WORDS).collect();
    Damage::restored(&nonsense).status(64);
}

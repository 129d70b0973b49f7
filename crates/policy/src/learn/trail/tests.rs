use super::*;

#[test]
fn a_trail_follows_the_mean_and_knows_the_last_life() {
    let mut trail = Trail::default();
    assert_eq!(trail.cell(), UNKNOWN);
    for _ in 0..50 {
        trail = trail.lived(1 << 12);
    }
    assert_eq!(trail.cell(), 12 * ROWS + 12);
    let long = trail.lived(1 << 20);
    assert_eq!(long.cell() % ROWS, 20, "the last life");
    let mean = long.cell() / ROWS;
    assert!(
        (17..20).contains(&mean),
        "the mean has moved by a part of the way: octave {mean}"
    );
    let mut back = long;
    for _ in 0..30 {
        back = back.lived(1 << 12);
    }
    assert!(
        back.cell() / ROWS <= 12,
        "and comes back: {}",
        back.cell() / ROWS
    );
}

#[test]
fn lives_of_all_lengths_have_cells() {
    for life in [0, 1, 2, 3, 1000, u32::MAX - 1, u32::MAX] {
        let cell = Trail::default().lived(life).cell();
        assert!(cell < UNKNOWN, "life {life}");
    }
}

use super::*;

fn taken(moves: &[u32]) -> Vec<Taken> {
    moves.iter().map(|m| Taken::with_moves(*m)).collect()
}

#[test]
fn moves_are_taken_in_groups_that_fit() {
    let sizes = |moves: &[u32], at_once| -> Vec<usize> {
        let batches = taken(moves);
        move_groups(&batches.iter().collect::<Vec<_>>(), at_once)
            .iter()
            .map(|g| g.len())
            .collect()
    };
    assert_eq!(sizes(&[], 10), Vec::<usize>::new());
    assert_eq!(sizes(&[5, 5, 5, 0, 6], 10), [2, 2, 1]);
    assert_eq!(
        sizes(&[50, 1, 50], 10),
        [1, 1, 1],
        "a batch larger than the bound is a group of its own"
    );
    assert_eq!(sizes(&[1; 7], 10), [7]);
}

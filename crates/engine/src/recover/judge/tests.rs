use super::*;

/// The document's table, row by row: H, V, A, C, D and the meaning. `None`: the column does not
/// matter or cannot be known.
type Row = (
    u32,
    Option<bool>,
    Option<bool>,
    Option<bool>,
    Option<bool>,
    Option<bool>,
    Case,
    bool,
);

const NO: Option<bool> = Some(false);
const YES: Option<bool> = Some(true);
const ANY: Option<bool> = None;

const TABLE: [Row; 8] = [
    (1, NO, ANY, ANY, ANY, NO, Case::End, false),
    (2, NO, ANY, ANY, ANY, YES, Case::LostWhole, true),
    (3, YES, YES, ANY, ANY, NO, Case::EndAtVoid, false),
    (4, YES, YES, ANY, ANY, YES, Case::FenceContradicted, true),
    (5, YES, NO, NO, ANY, NO, Case::Torn, false),
    (6, YES, NO, NO, ANY, YES, Case::LostEntries, true),
    (7, YES, NO, YES, YES, ANY, Case::Accepted, false),
    (8, YES, NO, YES, NO, ANY, Case::AcceptedIncomplete, false),
];

fn found(header: bool, void: bool, verifies: bool, complete: bool) -> Found {
    match (header, void, verifies, complete) {
        (false, ..) => Found::Nothing,
        (true, true, ..) => Found::Void,
        (true, false, false, _) => Found::Unverified,
        (true, false, true, false) => Found::Incomplete,
        (true, false, true, true) => Found::Whole,
    }
}

#[test]
fn every_combination_has_exactly_one_row_and_the_code_agrees_with_it() {
    for bits in 0..32u8 {
        let bit = |n: u8| bits >> n & 1 == 1;
        let inputs = [bit(0), bit(1), bit(2), bit(3), bit(4)];
        let fits = |row: &&Row| {
            [row.1, row.2, row.3, row.4, row.5]
                .iter()
                .zip(inputs)
                .all(|(wanted, is)| wanted.is_none_or(|w| w == is))
        };
        let rows: Vec<&Row> = TABLE.iter().filter(fits).collect();
        assert_eq!(
            rows.len(),
            1,
            "H V A C D = {inputs:?} fits rows {:?}",
            rows.iter().map(|r| r.0).collect::<Vec<_>>()
        );
        let case = judge(found(inputs[0], inputs[1], inputs[2], inputs[3]), inputs[4]);
        assert_eq!(
            (case, case.damage().is_some()),
            (rows[0].6, rows[0].7),
            "row {}",
            rows[0].0
        );
    }
}

#[test]
fn a_stream_that_was_never_opened_has_rows_of_its_own() {
    assert_eq!(judge(Found::NeverOpened, false), Case::EndUnopened);
    assert_eq!(judge(Found::NeverOpened, true), Case::UnopenedContradicted);
    assert!(Case::EndUnopened.damage().is_none() && Case::UnopenedContradicted.damage().is_some());
}

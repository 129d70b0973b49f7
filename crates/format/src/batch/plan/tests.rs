use super::*;
use proptest::prelude::*;
use windrow_geometry::Code;

fn shape(data: u8, rows: u32, chunk_rows: u32) -> Shape {
    Shape {
        width: data + 1,
        data,
        code: Code::P,
        rows,
        chunk_rows,
    }
}

proptest! {
    /// Every piece lies in one column, pieces do not overlap, and all of them lie between the
    /// uncompressed blocks and the tail. The batch is the smallest one that satisfies this, and
    /// takes no more blocks than uncompressed payload would.
    #[test]
    fn pieces_stay_in_their_columns(
        data in 1u8..9,
        table in 1usize..40_000,
        whole in 0u32..40,
        compressed in proptest::collection::vec(1u16..256, 1..300),
    ) {
        let shape = shape(data, 2048, 2048);
        let plan = plan_compressed(&shape, 0, table, whole, &compressed).expect("a large chunk");
        let column = u64::from(plan.rows) * BLOCK_UNITS;
        let mut addresses = plan.places();
        let mut last = u64::from(plan.head_blocks + whole) * BLOCK_UNITS;
        for units in &compressed {
            let at = addresses.next(*units);
            prop_assert!(at >= last, "pieces lie over one another");
            last = at + u64::from(*units);
            prop_assert_eq!(at / column, (last - 1) / column, "a piece in two columns");
        }
        prop_assert_eq!(addresses.end_block(), u64::from(plan.head_blocks + plan.payload_blocks));
        prop_assert!(u64::from(plan.head_blocks + plan.payload_blocks) < u64::from(plan.rows) * u64::from(data), "no room for the tail");
        prop_assert!(plan.compressed_blocks as usize <= compressed.len(), "more blocks than pieces");
        let fewer = plan.rows - 1;
        let fits_in_fewer = fewer > 0 && compressed_end(plan.head_blocks, whole, fewer, &compressed) < u64::from(fewer) * u64::from(data);
        prop_assert!(!fits_in_fewer, "a smaller batch would do");
    }

    /// The quick answer agrees with the plan.
    #[test]
    fn the_quick_answer_is_right(
        data in 1u8..6,
        rows in 3u32..12,
        whole in 0u32..8,
        compressed in proptest::collection::vec(1u16..225, 1..60),
    ) {
        let shape = shape(data, rows, rows);
        let units = compressed.iter().map(|units| u64::from(*units)).sum();
        let plan = plan_compressed(&shape, 0, 100, whole, &compressed);
        if let Some(fits) = compressed_fits(&shape, 0, 100, whole, units) {
            prop_assert_eq!(fits, plan.is_some());
        }
    }
}

/// A remainder that is too short for another batch goes to the preceding batch; compressed payload
/// is placed as for that number of rows.
#[test]
fn the_rest_of_a_chunk_is_taken_along() {
    let shape = shape(2, 8, 8);
    let compressed = [200u16; 14];
    let plan = plan_compressed(&shape, 0, 100, 0, &compressed).expect("room");
    // 7 rows would do (1 + 11 blocks without gaps, and the tail), which leaves one, and a batch
    // needs two.
    assert_eq!(plan.rows, 8);
    let mut addresses = plan.places();
    let last = compressed.iter().map(|units| addresses.next(*units)).last();
    assert_eq!(
        addresses.end_block(),
        u64::from(plan.head_blocks + plan.payload_blocks)
    );
    assert!(
        last.is_some_and(|at| at > 8 * 256),
        "the second column is used"
    );
}

use super::*;
use proptest::prelude::*;

fn entries() -> impl Strategy<Value = Vec<IndexEntry>> {
    let steps = prop::collection::vec(
        (any::<u128>(), any::<u32>(), 0u64..1000),
        1..=INDEX_PAGE_ENTRIES,
    );
    (0u64..1 << 60, steps).prop_map(|(first, steps)| {
        let lsn = |lsn: &mut u64, step: u64| {
            *lsn += step;
            Some(Lsn(*lsn))
        };
        let lsns: Vec<Lsn> = steps
            .iter()
            .scan(first, |at, (.., step)| lsn(at, *step))
            .collect();
        steps
            .iter()
            .zip(lsns)
            .map(|((fingerprint, id, _), lsn)| IndexEntry {
                fingerprint: *fingerprint,
                id: *id,
                lsn,
            })
            .collect()
    })
}

proptest! {
    #![proptest_config(crate::test_config(200))]

    #[test]
    fn what_is_encoded_is_decoded(list in entries(), previous: u32) {
        let (mut page, mut found) = (vec![7; BLOCK_SIZE], Vec::new());
        encode_index_page(&list, previous, &mut page);
        let head = decode_index_page(&page, &mut found);
        prop_assert_eq!(head, Some(IndexPage { first: list[0].lsn, last: list[list.len() - 1].lsn, previous }));
        prop_assert_eq!(found, list);
    }

    /// The decoder accepts nothing that the encoder does not write.
    #[test]
    fn what_is_decoded_is_encoded_so(list in entries(), at in 0usize..BLOCK_SIZE, value: u8) {
        let (mut page, mut found) = (vec![0; BLOCK_SIZE], Vec::new());
        encode_index_page(&list, 3, &mut page);
        page[at] = value;
        if let Some(head) = decode_index_page(&page, &mut found) {
            let mut again = vec![1; BLOCK_SIZE];
            encode_index_page(&found, head.previous, &mut again);
            prop_assert_eq!(again, page);
        }
    }

    #[test]
    fn anything_can_be_decoded(bytes in prop::collection::vec(any::<u8>(), 0..5000)) {
        let mut page = bytes;
        prop_assert_eq!(decode_index_page(&page, &mut Vec::new()), None);
        page.splice(..page.len().min(4), INDEX_MAGIC);
        let _ = decode_index_page(&page, &mut Vec::new());
    }
}

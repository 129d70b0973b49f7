use super::*;
use std::collections::BTreeMap;

#[derive(Debug)]
struct Record {
    key: BlockKey,
    next: u32,
}

impl Link for Record {
    fn key(&self) -> BlockKey {
        self.key
    }

    fn next(&self) -> u32 {
        self.next
    }

    fn set_next(&mut self, next: u32) {
        self.next = next;
    }
}

fn random(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *state >> 24
}

/// Runs of insertions and removals, so that the table grows and shrinks, compared with a map of the
/// standard library.
#[test]
fn it_finds_what_a_map_finds() {
    for seed in 0..24u64 {
        let mut state = seed;
        let (mut index, mut records, mut model) = (
            Index::with_capacity((seed * 400) as usize),
            Vec::<Record>::new(),
            BTreeMap::new(),
        );
        for _ in 0..6 {
            let (grows, count) = (
                random(&mut state).is_multiple_of(2),
                random(&mut state) % 6000,
            );
            for _ in 0..count {
                let key = BlockKey(((random(&mut state) % 5) << 40) | (random(&mut state) % 8000));
                let next = model.range(key.0..).next().map(|(key, at)| (*key, *at));
                if grows && !model.contains_key(&key.0) {
                    let at = records.len() as u32;
                    records.push(Record { key, next: NONE });
                    index.insert(&mut records, at);
                    model.insert(key.0, at);
                } else if let (false, Some((found, at))) = (grows, next) {
                    index.remove(&mut records, at);
                    model.remove(&found);
                }
                assert_eq!(index.find(&records, key), model.get(&key.0).copied());
            }
            assert_eq!(index.len(), model.len());
            assert!(
                model
                    .iter()
                    .all(|(key, at)| index.find(&records, BlockKey(*key)) == Some(*at))
            );
            assert!(
                index.buckets >= LEAST
                    && index.heads[index.buckets..]
                        .iter()
                        .all(|head| *head == NONE)
            );
        }
    }
}

/// A write-back cache must not allocate memory in service: the table has its maximum size from the
/// start.
#[test]
fn it_grows_and_shrinks_within_the_memory_that_it_has() {
    let mut index = Index::with_capacity(5000);
    let memory = index.heads.len();
    let mut records: Vec<Record> = (0..20_000)
        .map(|n| Record {
            key: BlockKey(n),
            next: NONE,
        })
        .collect();
    let mut seen = Vec::new();
    for at in 0..20_000 {
        index.insert(&mut records[..=at], at as u32);
        seen.push(index.buckets);
    }
    assert_eq!(
        (seen[0], seen[LEAST], seen[19_999]),
        (LEAST, 2 * LEAST, memory)
    );
    for at in 0..20_000 {
        index.remove(&mut records, at as u32);
    }
    assert_eq!(
        (index.buckets, index.len(), index.heads.len()),
        (LEAST, 0, memory)
    );
}

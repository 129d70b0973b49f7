//! Tests of Windrow on modelled members: written data is read back, in virtual time and outside it,
//! and wrong data is detected.

use super::*;
use crate::content::Content;
use crate::device::{Device, DeviceOptions};
use crate::load::{Durability, LoadSpec, run};
use crate::mix::{DATA, TRANSACTION};
use crate::timings::Timings;
use std::collections::BTreeSet;
use windrow_engine::JournalSpec;
use windrow_format::superblock::Properties;
use windrow_geometry::Redundancy;
use windrow_random::Rng;

const MIB: u64 = 32;

fn image() -> Image {
    let timings = Timings::published();
    let blocks = MIB << 8;
    let options = DeviceOptions {
        protected: true,
        suspend: false,
        in_order: false,
    };
    let members = (0..5)
        .map(|_| Member {
            content: Content::new(blocks),
            device: Device::ssd(&timings, blocks, &options),
        })
        .collect();
    let spec = PoolSpec {
        name: "lab".into(),
        redundancy: Redundancy::Double,
        chunk_rows: None,
        segment_rows: None,
        align_bytes: BLOCK_BYTES,
        pool: Uuid([9; 16]),
        members: (0..5).map(|i| (Uuid([i + 1; 16]), MIB << 20)).collect(),
        created_unix_s: 0,
        properties: Properties::DEFAULT,
        journal: Some(JournalSpec::internal(None, BLOCK_BYTES as u32)),
    };
    Image::make(Members(members), &spec, 85, &timings.processor).unwrap()
}

fn open(image: Image) -> Pool {
    Pool::open(image, &Timings::published().processor).unwrap()
}

/// Reads of the whole volume.
fn all_of(pool: &Pool) -> Vec<Want> {
    let span = pool.span();
    (0..span)
        .step_by(64)
        .map(|block| Want::Read {
            block,
            count: 64.min(span - block),
        })
        .collect()
}

/// Returns the blocks that were written.
fn overwrites(pool: &mut Pool, seed: u64, rounds: u64) -> BTreeSet<u64> {
    let (mut rng, span) = (Rng::stream(seed, "test"), pool.span());
    let mut written = BTreeSet::new();
    for _ in 0..rounds {
        let write = |rng: &mut Rng| {
            let count = DATA.draw_write(rng);
            Want::Write {
                block: rng.below(span - count + 1),
                count,
                durable: rng.below(4) == 0,
            }
        };
        let wants: Vec<Want> = (0..16).map(|_| write(&mut rng)).collect();
        pool.do_all(&wants).unwrap();
        for want in wants {
            if let Want::Write { block, count, .. } = want {
                written.extend(block..block + count);
            }
        }
    }
    written
}

#[test]
fn content_is_kept_over_overwrites_cleaning_restarts_and_time() {
    let mut pool = open(image());
    pool.do_all(&all_of(&pool)).unwrap();
    overwrites(&mut pool, 1, 200);
    pool.do_all(&all_of(&pool)).unwrap();
    assert!(
        pool.status().segments_cleaned > 0,
        "the pool was to be filled until it cleans"
    );
    let mut pool = open(pool.close().unwrap());
    pool.start_clock();
    let spec = LoadSpec {
        tasks: vec![TRANSACTION; 8],
        durability: Durability::FlushAfter(4),
        warm: 50,
        requests: 2000,
        seed: 3,
    };
    let outcome = run(&mut pool, &spec, &mut |_, _| ()).unwrap();
    // Each counted request is a read or a write; a flush belongs to the preceding write.
    assert!(
        (2000 - 8..=2000 + 8).contains(&(outcome.reads.len() + outcome.writes.len())),
        "{} reads, {} writes",
        outcome.reads.len(),
        outcome.writes.len()
    );
    assert!(
        outcome.flushes.len() * 4 <= outcome.writes.len() + 8 * 4 && outcome.flushes.len() > 100,
        "{} flushes",
        outcome.flushes.len()
    );
    pool.do_all(&all_of(&pool)).unwrap();
}

#[test]
fn a_block_that_does_not_hold_its_newest_write_stops_the_study() {
    let mut pool = open(image());
    pool.do_all(&[
        Want::Write {
            block: 5,
            count: 3,
            durable: true,
        },
        Want::Read {
            block: 0,
            count: 16,
        },
    ])
    .unwrap();
    pool.versions[6] += 1;
    pool.do_all(&[Want::Read { block: 0, count: 6 }]).unwrap();
    let error = pool
        .do_all(&[Want::Read { block: 4, count: 4 }])
        .unwrap_err();
    assert!(error.contains("block 6"), "{error}");
}

#[test]
fn a_durable_write_takes_time_and_a_volatile_one_that_of_the_processor() {
    let mut pool = open(image());
    pool.do_all(&[Want::Write {
        block: 2000,
        count: 64,
        durable: true,
    }])
    .unwrap();
    let written = overwrites(&mut pool, 2, 10);
    let at_rest = (2000..2064).find(|block| !written.contains(block)).unwrap();
    pool.start_clock();
    let mut took = |want: Want| {
        let (begin, mut answers) = (pool.now_ns(), Vec::new());
        pool.ask(0, want);
        pool.answers(&mut answers).unwrap();
        pool.now_ns() - begin
    };
    // The engine's call and four blocks.
    assert_eq!(
        took(Want::Write {
            block: 100,
            count: 4,
            durable: false
        }),
        1000 + 4 * 530
    );
    // The first flush after a pause also covers waiting work. In addition to the processor's time:
    // a write and a flush of members, both limited by the controller.
    took(Want::Write {
        block: 300,
        count: 1,
        durable: true,
    });
    let durable = took(Want::Write {
        block: 200,
        count: 1,
        durable: true,
    });
    assert!((20_000..100_000).contains(&durable), "{durable}");
    // Data in flight is read from memory; other data from a member.
    assert_eq!(
        took(Want::Read {
            block: 200,
            count: 1
        }),
        1530
    );
    let read = took(Want::Read {
        block: at_rest,
        count: 1,
    });
    assert!((54_000..2_500_000).contains(&read), "{read}");
}

#[test]
fn bytes_of_the_engine_are_those_of_the_devices() {
    let mut pool = open(image());
    overwrites(&mut pool, 4, 20);
    let before = (pool.counters(), pool.status().written.total());
    pool.start_clock();
    let spec = LoadSpec {
        tasks: vec![DATA; 4],
        durability: Durability::Each,
        warm: 0,
        requests: 500,
        seed: 3,
    };
    run(&mut pool, &spec, &mut |_, _| ()).unwrap();
    pool.come_to_rest().unwrap();
    let devices = pool.counters().written_bytes - before.0.written_bytes;
    assert_eq!(pool.status().written.total() - before.1, devices);
}

use super::client::published;
use super::*;
use std::collections::BTreeMap;

/// Totals of a stream.
#[derive(Default)]
struct Seen {
    reads: u64,
    writes: u64,
    trims: u64,
    flushes: u64,
    written: u64,
    trimmed: u64,
    sizes: BTreeMap<(bool, u64), u64>,
    touched: Vec<bool>,
}

fn look(requests: impl Iterator<Item = Request>, bytes: u64) -> Seen {
    let mut seen = Seen {
        touched: vec![false; (bytes / BLOCK) as usize],
        ..Seen::default()
    };
    let mut before = 0;
    for request in requests {
        assert!(
            request.check().is_ok() && request.end() <= bytes && request.time_ns >= before,
            "{request:?}"
        );
        before = request.time_ns;
        match request.kind {
            Kind::Read => seen.reads += 1,
            Kind::Write => {
                seen.writes += 1;
                seen.written += request.length;
                (request.offset / BLOCK..request.end().div_ceil(BLOCK))
                    .for_each(|block| seen.touched[block as usize] = true);
            }
            Kind::Trim => {
                seen.trims += 1;
                seen.trimmed += request.length;
            }
            Kind::Flush => seen.flushes += 1,
        }
        *seen
            .sizes
            .entry((request.kind == Kind::Read, request.length))
            .or_default() += 1;
    }
    seen
}

fn close(found: f64, wanted: f64, within: f64, what: &str) {
    assert!(
        (found / wanted - 1.0).abs() <= within,
        "{what}: {found}, wanted {wanted}"
    );
}

#[test]
fn enterprise_has_the_sizes_and_places_of_the_standard() {
    const BYTES: u64 = 256 << 20;
    const REQUESTS: usize = 400_000;
    let seen = look(Load::Enterprise.requests(BYTES, 7).take(REQUESTS), BYTES);
    close(seen.reads as f64 / REQUESTS as f64, 0.40, 0.01, "reads");
    for (bytes, percent) in enterprise::SIZES {
        let found = seen.sizes[&(true, *bytes)] + seen.sizes[&(false, *bytes)];
        close(
            found as f64 / REQUESTS as f64 * 100.0,
            *percent as f64,
            if *percent < 5 { 0.06 } else { 0.02 },
            &format!("{bytes} bytes"),
        );
    }
    let mut parts = [0u64; 3];
    for request in Load::Enterprise.requests(BYTES, 7).take(REQUESTS) {
        assert_eq!(request.offset % BLOCK, 0);
        let percent = request.offset * 100 / BYTES;
        parts[if percent < 5 {
            0
        } else {
            1 + usize::from(percent >= 20)
        }] += 1;
    }
    for (found, wanted) in parts.into_iter().zip([0.5, 0.3, 0.2]) {
        close(found as f64 / REQUESTS as f64, wanted, 0.02, "locality");
    }
}

#[test]
fn the_client_has_the_published_totals_means_and_static_share() {
    // A hundredth of the space; the generator has no fixed sizes.
    let bytes = published::BYTES / 100 / BLOCK * BLOCK;
    let seen = look(Load::Client.requests(bytes, 3), bytes);
    let scaled = |value: u64| value as f64 * bytes as f64 / published::BYTES as f64;
    close(
        seen.writes as f64,
        scaled(published::WRITES),
        0.001,
        "writes",
    );
    close(
        seen.written as f64,
        scaled(published::WRITTEN_BYTES),
        0.002,
        "bytes written",
    );
    close(
        seen.written as f64 / seen.writes as f64 / 1024.0,
        21.56,
        0.002,
        "KiB of a write",
    );
    close(
        seen.trimmed as f64,
        scaled(published::TRIMMED_BYTES),
        0.03,
        "bytes trimmed",
    );
    close(seen.trims as f64, scaled(published::TRIMS), 0.03, "trims");
    close(
        seen.trimmed as f64 / seen.trims as f64 / 1024.0,
        320.96,
        0.02,
        "KiB of a trim",
    );
    let never =
        seen.touched.iter().filter(|touched| !**touched).count() as f64 / seen.touched.len() as f64;
    close(
        never * 100.0,
        published::STATIC_PERCENT as f64,
        0.02,
        "static share",
    );
    assert_eq!(Load::Client.writes(bytes), Some(seen.writes));
}

#[test]
fn the_talks_loads_have_its_columns_and_share_the_space() {
    const BYTES: u64 = 256 << 20;
    for (load, mix) in [
        (Load::Transaction, crate::mix::TRANSACTION),
        (Load::Data, crate::mix::DATA),
    ] {
        let seen = look(load.requests(BYTES, 5).take(200_000), BYTES);
        close(
            seen.reads as f64 / 200_000.0 * 100.0,
            mix.read_percent as f64,
            0.02,
            "reads",
        );
        let sum: u64 = mix.writes.iter().sum();
        for (size, parts) in crate::mix::SIZES.into_iter().zip(mix.writes) {
            let found = seen.sizes[&(false, size * BLOCK)] as f64 / seen.writes as f64;
            close(
                found,
                parts as f64 / sum as f64,
                0.10,
                &format!("{} writes of {size} blocks", load.name()),
            );
        }
    }
    let halves = Load::Talk
        .requests(BYTES, 5)
        .take(100_000)
        .filter(|request| request.offset < BYTES / 2)
        .count();
    close(halves as f64, 50_000.0, 0.02, "requests in the first half");
}

#[test]
fn jetstress_has_three_quarters_small_writes_with_an_eighth_of_the_bytes() {
    const BYTES: u64 = 1 << 30;
    let seen = look(Load::Jetstress.requests(BYTES, 1).take(300_000), BYTES);
    let small = |each: fn(u64, u64) -> u64| -> f64 {
        let of = |limit: u64| -> u64 {
            seen.sizes
                .iter()
                .filter(|((read, size), _)| !read && *size <= limit)
                .map(|((_, size), n)| each(*size, *n))
                .sum()
        };
        of(32 << 10) as f64 / of(u64::MAX) as f64
    };
    close(small(|_, n| n), 0.75, 0.01, "small writes");
    close(small(|size, n| size * n), 0.12, 0.03, "their bytes");
    // Heavy and quiet times: the heavy third of the time has nearly all of the writes.
    let writes = || {
        Load::Jetstress
            .requests(BYTES, 1)
            .take(300_000)
            .filter(|request| request.kind == Kind::Write)
    };
    let heavy = writes()
        .filter(|request| request.time_ns % 60_000_000_000 < 20_000_000_000)
        .count();
    assert!(
        heavy * 100 > writes().count() * 98,
        "{heavy} of {}",
        writes().count()
    );
}

#[test]
fn journalling_brings_32_to_80_kib_with_each_write_and_ends_a_round_durably() {
    const BYTES: u64 = 256 << 20;
    let blocks = BYTES / BLOCK;
    let data_begins = (blocks / 64 + blocks / 50) * BLOCK;
    let (mut along, mut all, mut rounds, mut data) = (0u64, Vec::new(), 0u64, 0u64);
    let seen = look(Load::Journalling.requests(BYTES, 2).take(400_000), BYTES);
    for request in Load::Journalling
        .requests(BYTES, 2)
        .take(400_000)
        .filter(|request| request.kind == Kind::Write)
    {
        if request.offset >= data_begins {
            all.push(along);
            (rounds, data, along) = (rounds + 1, data + request.length, 0);
        } else {
            along += request.length;
        }
    }
    assert!(
        all[1..]
            .iter()
            .all(|along| (32 << 10..=80 << 10).contains(along)),
        "of {rounds} rounds"
    );
    close(
        all.iter().sum::<u64>() as f64 / rounds as f64 / 1024.0,
        56.0,
        0.01,
        "KiB along",
    );
    let share = all.iter().sum::<u64>() as f64 / (all.iter().sum::<u64>() + data) as f64;
    assert!(
        (0.50..=0.60).contains(&share),
        "journal and metadata are {share} of all that is written"
    );
    close(seen.flushes as f64, rounds as f64, 0.001, "flushes");
    let commits = || {
        Load::Journalling
            .requests(BYTES, 2)
            .take(400_000)
            .filter(|request| request.fua)
    };
    close(
        commits().count() as f64,
        rounds as f64,
        0.001,
        "commit blocks",
    );
    assert!(
        commits().all(|request| request.length == BLOCK && request.offset < blocks / 64 * BLOCK),
        "in the journal, a block each"
    );
}

#[test]
fn a_seed_is_a_stream_and_a_name_a_load() {
    for load in Load::ALL {
        assert_eq!(Load::from_name(load.name()), Some(load));
        let take = |seed: u64| {
            load.requests(128 << 20, seed)
                .take(5000)
                .collect::<Vec<_>>()
        };
        assert!(take(1) == take(1) && take(1) != take(2), "{}", load.name());
        assert!(load.operations(128 << 20, 1).take(1000).count() == 1000);
    }
    assert_eq!(Load::from_name("jedec"), None);
    let write = Request::new(Kind::Write, 0, 4000, 200, 0);
    assert_eq!(
        operation(&write),
        Some(Operation::Write { block: 0, count: 2 }),
        "both blocks that it touches"
    );
    assert_eq!(
        operation(&Request {
            kind: Kind::Trim,
            ..write
        }),
        None,
        "no block that it covers"
    );
}

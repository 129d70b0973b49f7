//! Rates: writes with a share of distinct blocks, the others written before, to a volume with LZ4,
//! and to one with LZ4 and deduplication, in turn.

use super::super::reduce::{Figures, Kind, load};
use super::super::rounds::{RoundArguments, alternate, middle, ppm};
use super::super::scratch::Scratch;
use serde_json::{Value, json};
use windrow_console::figures::{factor, median};
use windrow_console::table::Table;
use windrow_host::Failure;

/// Random part of the blocks, in per cent.
const RANDOM: u32 = 25;

/// A row for each share of distinct blocks.
pub fn rows(
    scratch: &Scratch,
    rounds: &RoundArguments,
    distinct: &[u32],
    depth: usize,
) -> Result<Vec<Value>, Failure> {
    let kinds = [Kind::Undeduplicated, Kind::Hash, Kind::Verify];
    let cases: Vec<(u32, Kind)> = distinct
        .iter()
        .flat_map(|distinct| kinds.map(|kind| (*distinct, kind)))
        .collect();
    let names: Vec<String> = cases
        .iter()
        .map(|(distinct, kind)| format!("{distinct} % distinct, {kind:?}").to_lowercase())
        .collect();
    let time = rounds.time(5);
    let results = alternate(&names, rounds.rounds, &mut |case, step| {
        let (distinct, kind) = cases[case];
        load(scratch, depth, (RANDOM, distinct), kind, time, step)
    })?;
    let row = |(distinct, of): (&u32, &[Vec<Figures>])| {
        let rate = |figures: &Figures| figures.requests_per_second;
        let ratio = |with: &[Figures]| {
            median(
                &with
                    .iter()
                    .zip(&of[0])
                    .map(|(with, alone)| rate(with) / rate(alone).max(1e-9))
                    .collect::<Vec<_>>(),
            )
        };
        json!({
            "distinct_percent": distinct,
            "lz4_requests_per_second": middle(&of[0], rate) as u64,
            "hash_requests_per_second": middle(&of[1], rate) as u64,
            "verify_requests_per_second": middle(&of[2], rate) as u64,
            "lz4_cpu_ns": middle(&of[0], |figures| figures.cpu_ns) as u64,
            "hash_cpu_ns": middle(&of[1], |figures| figures.cpu_ns) as u64,
            "verify_cpu_ns": middle(&of[2], |figures| figures.cpu_ns) as u64,
            "hash_ratio_ppm": ppm(ratio(&of[1])),
            "verify_ratio_ppm": ppm(ratio(&of[2])),
            "hash_found_ppm": middle(&of[1], |figures| figures.found_ppm as f64) as u64,
            "verify_found_ppm": middle(&of[2], |figures| figures.found_ppm as f64) as u64,
        })
    };
    Ok(distinct
        .iter()
        .zip(results.chunks_exact(kinds.len()))
        .map(row)
        .collect())
}

/// Text table.
pub fn text(rows: &[Value]) -> String {
    let mut table = Table::new(&[
        "DISTINCT",
        "LZ4/S",
        "HASH/S",
        "VERIFY/S",
        "HASH : LZ4",
        "VERIFY : LZ4",
        "LZ4 NS",
        "HASH NS",
        "VERIFY NS",
        "HASH FOUND",
        "VERIFY FOUND",
    ]);
    for row in rows {
        let number = |field: &str| row[field].as_u64().unwrap_or(0);
        let plain = [
            "lz4_requests_per_second",
            "hash_requests_per_second",
            "verify_requests_per_second",
        ]
        .map(|field| number(field).to_string());
        let ratios = ["hash_ratio_ppm", "verify_ratio_ppm"].map(|field| factor(number(field)));
        let cpu =
            ["lz4_cpu_ns", "hash_cpu_ns", "verify_cpu_ns"].map(|field| number(field).to_string());
        let found = ["hash_found_ppm", "verify_found_ppm"].map(|field| factor(number(field)));
        let cells = [format!("{} %", number("distinct_percent"))]
            .into_iter()
            .chain(plain)
            .chain(ratios)
            .chain(cpu)
            .chain(found);
        table.row(cells.collect::<Vec<_>>());
    }
    format!(
        "LZ4 alone, and with deduplication, {RANDOM} % random bytes; found: share of blocks\n{}",
        table.render()
    )
}

//! The tables of `bench table`.

use super::super::chart::{Group, groups};
use super::{Figures, Kind};
use serde_json::{Value, json};
use windrow_console::figures::nanoseconds;
use windrow_console::table::Table;
use windrow_console::values::Size;

/// Columns of the comparison table. Only plain data is measured so far.
const COLUMNS: [(&str, &str); 8] = [
    ("PLAIN", "plain"),
    ("COMPRESS 0 %", "compress_0"),
    ("COMPRESS 75 %", "compress_75"),
    ("DEDUP+COMPRESS 0 %", "dedup_compress_0"),
    ("DEDUP+COMPRESS 75 %", "dedup_compress_75"),
    ("IN PLACE RAID-0", "in_place_raid_0"),
    ("IN PLACE RAID-5", "in_place_raid_5"),
    ("IN PLACE RAID-10", "in_place_raid_10"),
];

fn find(figures: &[Figures], kind: Kind, block: Size) -> Option<&Figures> {
    figures
        .iter()
        .find(|figures| figures.cell.kind == kind && u64::from(figures.cell.block_bytes) == block.0)
}

/// MB/s as counted by the published table: requests x KiB / 1024, truncated.
fn megabytes(per_second: f64, block: Size) -> u64 {
    (per_second as u64).saturating_mul(block.0) >> 20
}

fn shown(value: Option<u64>) -> String {
    value.map_or("-".to_owned(), |value| value.to_string())
}

/// Comparison table as JSON: unmeasured figures are null.
pub fn columns(blocks: &[Size], figures: &[Figures]) -> Vec<Value> {
    let row = |block: &Size| {
        let mut row = json!({ "block_bytes": block.0 });
        for (_, field) in COLUMNS {
            row[field] = Value::Null;
        }
        row["plain"] = json!(
            find(figures, Kind::RandomWrite, *block).map(|figures| figures.per_second as u64)
        );
        row
    };
    blocks.iter().map(row).collect()
}

fn comparable(
    blocks: &[Size],
    figures: &[Figures],
    value: impl Fn(&Figures, Size) -> u64,
) -> String {
    let mut heading = vec!["BLOCK"];
    heading.extend(COLUMNS.iter().map(|(title, _)| *title));
    let mut table = Table::new(&heading);
    for block in blocks {
        let plain = find(figures, Kind::RandomWrite, *block).map(|figures| value(figures, *block));
        table.row(
            [block.to_string(), shown(plain)]
                .into_iter()
                .chain(COLUMNS.iter().skip(1).map(|_| "-".to_owned())),
        );
    }
    table.render()
}

/// All tables.
pub fn text(head: &str, blocks: &[Size], writers: &[usize], figures: &[Figures]) -> String {
    let kinds = [
        Kind::RandomWrite,
        Kind::RandomRead,
        Kind::Mix,
        Kind::LinearWrite,
    ];
    let mut loads = Table::new(&[
        "BLOCK",
        "WRITE/S",
        "MB/S",
        "READ/S",
        "MB/S",
        "MIX/S",
        "MB/S",
        "LINEAR/S",
        "MB/S",
        "WRITE CPU NS",
    ]);
    let mut single = Table::new(&["BLOCK", "WRITES/S", "MEDIAN", "99.9 %"]);
    for block in blocks {
        let mut cells = vec![block.to_string()];
        for kind in kinds {
            let rate = find(figures, kind, *block).map(|figures| figures.per_second);
            cells.extend([
                shown(rate.map(|rate| rate as u64)),
                shown(rate.map(|rate| megabytes(rate, *block))),
            ]);
        }
        cells.push(shown(
            find(figures, Kind::RandomWrite, *block).map(|figures| figures.cpu_ns as u64),
        ));
        loads.row(cells);
        if let Some(one) = find(figures, Kind::Single, *block) {
            single.row([
                block.to_string(),
                format!("{:.0}", one.per_second),
                nanoseconds(one.p50_ns),
                nanoseconds(one.p99_9_ns),
            ]);
        }
    }
    let mut many = Table::new(&["WRITERS", "WRITES/S", "MEDIAN", "99.9 %"]);
    for count in writers {
        if let Some(row) = find(figures, Kind::Writers(*count), Size(4096)) {
            many.row([
                count.to_string(),
                format!("{:.0}", row.per_second),
                nanoseconds(row.p50_ns),
                nanoseconds(row.p99_9_ns),
            ]);
        }
    }
    format!(
        "{head}\n\nRandom writes per second\n{}\nRandom writes, MB/s\n{}\nLoads\n{}\nOne writer, one request in flight\n{}\n\
         Writers with one request of 4 KiB in flight each\n{}",
        comparable(blocks, figures, |figures, _| figures.per_second as u64),
        comparable(blocks, figures, |figures, block| megabytes(
            figures.per_second,
            block
        )),
        loads.render(),
        single.render(),
        many.render()
    )
}

/// MB/s of the loads by request size.
pub fn picture(blocks: &[Size], figures: &[Figures]) -> String {
    let kinds = [
        Kind::RandomWrite,
        Kind::LinearWrite,
        Kind::RandomRead,
        Kind::Mix,
    ];
    let names: Vec<String> = kinds.iter().map(|kind| kind.name()).collect();
    let group = |block: &Size| {
        let value = |kind: &Kind| {
            find(figures, *kind, *block).map(|figures| megabytes(figures.per_second, *block) as f64)
        };
        Group {
            label: block.to_string(),
            values: kinds.iter().map(value).collect(),
        }
    };
    groups(
        "MB/s by request size",
        &names.iter().map(String::as_str).collect::<Vec<_>>(),
        &blocks.iter().map(group).collect::<Vec<_>>(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_cut_off_not_rounded() {
        // The first row of the table of 2014 and others of it.
        for (per_second, kib, expected) in [
            (1_539_153.0, 4, 6012),
            (45_752.0, 4, 178),
            (793_145.0, 8, 6196),
            (25_705.0, 256, 6426),
        ] {
            assert_eq!(megabytes(per_second, Size(kib << 10)), expected);
        }
    }

    #[test]
    fn what_is_not_measured_has_its_column() {
        let rows = columns(&[Size(4096)], &[]);
        assert_eq!(rows[0].as_object().unwrap().len(), 1 + COLUMNS.len());
        assert!(
            rows[0]["plain"].is_null()
                && comparable(&[Size(4096)], &[], |_, _| 0).contains("IN PLACE RAID-10")
        );
    }
}

//! Tables, JSON, chart and goals of `bench journal-study`.

use super::super::chart::{Group, groups};
use super::super::report::{Findings, Goal};
use super::super::rounds::ppm;
use super::pressure_name;
use serde_json::{Value, json};
use windrow_console::figures::{factor, nanoseconds};
use windrow_console::table::Table;
use windrow_wa_sim::load::{Durability, percentile};
use windrow_wa_sim::study::{Configuration, Pressure, Row, StudySpec, Workload};

/// Percentiles shown, per million.
const PARTS: [(&str, u64); 5] = [
    ("50 %", 500_000),
    ("99 %", 990_000),
    ("99.9 %", 999_000),
    ("99.99 %", 999_900),
    ("99.9999 %", 999_999),
];
/// Percentile of the judged effects.
const JUDGED: u64 = 999_900;
/// Published effects of a dedicated journal device: IOPS, 99.99 % of reads, 99.99 % of writes with
/// an SSD and with memory; as factors.
const PUBLISHED: (f64, f64, f64, f64) = (1.36, 0.56, 0.25, 0.18);

/// A configuration as a multiple of its baseline.
#[derive(Clone, Copy)]
struct Effects {
    rate: f64,
    read: Option<f64>,
    write: Option<f64>,
}

fn effects(rows: &[Row], row: &Row) -> Option<Effects> {
    let same = |other: &&Row| {
        (other.workload, other.pressure, other.durability)
            == (row.workload, row.pressure, row.durability)
            && other.configuration == row.configuration.baseline()
    };
    let base = rows
        .iter()
        .find(same)
        .filter(|_| row.configuration != row.configuration.baseline())?;
    let times = |mine: &[u32], others: &[u32]| {
        Some(f64::from(percentile(mine, JUDGED)?) / f64::from(percentile(others, JUDGED)?.max(1)))
    };
    Some(Effects {
        rate: row.outcome.per_second() / base.outcome.per_second().max(1e-9),
        read: times(&row.outcome.reads, &base.outcome.reads),
        write: times(&row.outcome.writes, &base.outcome.writes),
    })
}

fn published_write(configuration: Configuration) -> Option<f64> {
    match configuration {
        Configuration::Ssd | Configuration::InPlaceSsd => Some(PUBLISHED.2),
        Configuration::Memory | Configuration::InPlaceMemory => Some(PUBLISHED.3),
        _ => None,
    }
}

fn percent(times: Option<f64>) -> String {
    times.map_or("-".to_owned(), |times| {
        format!("{:+.0} %", (times - 1.0) * 100.0)
    })
}

fn per_user_byte(bytes: u64, row: &Row) -> f64 {
    bytes as f64 / row.outcome.write_bytes.max(1) as f64
}

fn durability_name(durability: Durability) -> String {
    match durability {
        Durability::Each => "each write durable".to_owned(),
        Durability::FlushAfter(after) => format!("a flush after each {after} writes of a task"),
    }
}

/// Cases in execution order, each with its rows.
fn cases(rows: &[Row]) -> Vec<Vec<&Row>> {
    let mut cases: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        let same = |case: &&mut Vec<&Row>| {
            case.first().is_some_and(|first| {
                (first.workload, first.pressure, first.durability)
                    == (row.workload, row.pressure, row.durability)
            })
        };
        match cases.iter_mut().find(same) {
            Some(case) => case.push(row),
            None => cases.push(vec![row]),
        }
    }
    cases
}

fn case_name(row: &Row) -> String {
    format!(
        "{}, {}, {}",
        row.workload.name(),
        pressure_name(row.pressure),
        durability_name(row.durability)
    )
}

/// Bytes written per second relative to the baseline's at full load.
fn share_of_full(rows: &[Row], row: &Row) -> Option<f64> {
    let is_full = |other: &&Row| {
        other.pressure == Pressure::Full
            && other.durability == Durability::Each
            && (other.configuration, other.workload) == (row.configuration.baseline(), row.workload)
    };
    rows.iter().find(is_full).map(|full| {
        row.outcome.write_bytes_per_second() / full.outcome.write_bytes_per_second().max(1e-9)
    })
}

fn latency_cells(sorted: &[u32]) -> impl Iterator<Item = String> + '_ {
    PARTS.iter().map(|(_, part)| {
        percentile(sorted, *part).map_or("-".to_owned(), |ns| nanoseconds(u64::from(ns)))
    })
}

fn table(rows: &[Row], case: &[&Row]) -> String {
    let mut heading: Vec<String> = ["CONFIGURATION", "TASKS", "IOPS", "MB/S", "WRITTEN"]
        .map(str::to_owned)
        .to_vec();
    for kind in ["R", "W"] {
        heading.extend(PARTS.iter().map(|(name, _)| format!("{kind} {name}")));
    }
    heading.extend(
        [
            "F 50 %",
            "F 99.99 %",
            "WAF",
            "PROGRAMMED",
            "FLUSHES/WRITE",
            "IOPS +-",
            "R 99.99 +-",
            "W 99.99 +-",
            "PUBLISHED",
        ]
        .map(str::to_owned),
    );
    let mut table = Table::new(&heading.iter().map(String::as_str).collect::<Vec<_>>());
    for row in case {
        let outcome = &row.outcome;
        let mut cells = vec![
            row.configuration.name().to_owned(),
            row.tasks.to_string(),
            format!("{:.0}", outcome.per_second()),
            format!("{:.0}", outcome.bytes_per_second() / 1e6),
            share_of_full(rows, row)
                .map_or("-".to_owned(), |share| format!("{:.0} %", share * 100.0)),
        ];
        cells.extend(latency_cells(&outcome.reads).chain(latency_cells(&outcome.writes)));
        let flush = |part| {
            percentile(&outcome.flushes, part)
                .map_or("-".to_owned(), |ns| nanoseconds(u64::from(ns)))
        };
        cells.extend([flush(500_000), flush(JUDGED)]);
        cells.push(factor(ppm(per_user_byte(
            outcome.devices.written_bytes,
            row,
        ))));
        let programmed = outcome.devices.programmed_bytes;
        cells.push(if programmed == 0 {
            "-".to_owned()
        } else {
            factor(ppm(per_user_byte(programmed, row)))
        });
        cells.push(factor(ppm(
            outcome.devices.flushes as f64 / outcome.writes.len().max(1) as f64
        )));
        let found = effects(rows, row);
        cells.extend(
            [
                found.map(|e| e.rate),
                found.and_then(|e| e.read),
                found.and_then(|e| e.write),
            ]
            .map(percent),
        );
        let published = published_write(row.configuration).filter(|_| is_judged(row));
        cells.push(published.map_or(String::new(), |write| {
            format!(
                "{} {} {}",
                percent(Some(PUBLISHED.0)),
                percent(Some(PUBLISHED.1)),
                percent(Some(write))
            )
        }));
        table.row(cells);
    }
    table.render()
}

fn latency_json(sorted: &[u32]) -> Value {
    let part = |part: u64| percentile(sorted, part);
    json!({
        "count": sorted.len(), "mean_ns": sorted.iter().map(|ns| u64::from(*ns)).sum::<u64>().checked_div(sorted.len() as u64),
        "p50_ns": part(500_000), "p90_ns": part(900_000), "p99_ns": part(990_000), "p99_9_ns": part(999_000), "p99_99_ns": part(999_900),
        "p99_999_ns": part(999_990), "p99_9999_ns": part(999_999), "max_ns": sorted.last(),
    })
}

fn row_json(rows: &[Row], row: &Row) -> Value {
    let (outcome, found) = (&row.outcome, effects(rows, row));
    let by_cause: serde_json::Map<String, Value> = outcome
        .causes
        .iter()
        .map(|(name, bytes)| ((*name).to_owned(), json!(ppm(per_user_byte(*bytes, row)))))
        .collect();
    let flush_after = match row.durability {
        Durability::Each => None,
        Durability::FlushAfter(after) => Some(after),
    };
    json!({
        "configuration": row.configuration.name(), "workload": row.workload.name(), "pressure": pressure_name(row.pressure), "flush_after_writes": flush_after,
        "tasks": row.tasks, "virtual_ns": outcome.elapsed_ns, "requests_per_second": outcome.per_second() as u64,
        "bytes_per_second": outcome.bytes_per_second() as u64, "write_bytes_per_second": outcome.write_bytes_per_second() as u64,
        "share_of_full_ppm": share_of_full(rows, row).map(ppm),
        "read": latency_json(&outcome.reads), "write": latency_json(&outcome.writes), "flush": latency_json(&outcome.flushes),
        "device_bytes_per_user_byte_ppm": ppm(per_user_byte(outcome.devices.written_bytes, row)),
        "programmed_bytes_per_user_byte_ppm": ppm(per_user_byte(outcome.devices.programmed_bytes, row)), "by_cause_per_user_byte_ppm": by_cause,
        "device_flushes": outcome.devices.flushes, "suspended_programs": outcome.devices.suspensions,
        "to_baseline": found.map(|found| json!({
            "requests_ppm": ppm(found.rate), "read_p99_99_ppm": found.read.map(ppm), "write_p99_99_ppm": found.write.map(ppm),
        })),
    })
}

/// True for the case that the talk measured.
fn is_judged(row: &Row) -> bool {
    (row.workload, row.pressure, row.durability)
        == (Workload::Both, Pressure::Tenth, Durability::Each)
}

/// The three published effects: both loads at once, at a tenth of the load.
fn goals(rows: &[Row]) -> Vec<Goal> {
    let mut goals = Vec::new();
    for row in rows.iter().filter(|row| is_judged(row)) {
        let (Some(found), Some(write)) = (effects(rows, row), published_write(row.configuration))
        else {
            continue;
        };
        let of = |what: &str| {
            format!(
                "{}, {what}, of that with the journal on the data drives:",
                row.configuration.name()
            )
        };
        goals.push(Goal::at_least(of("IOPS"), found.rate, PUBLISHED.0));
        // With too few samples for a percentile there is nothing to judge.
        goals.extend(
            found
                .read
                .map(|read| Goal::at_most(of("99.99 % of reads"), read, PUBLISHED.1)),
        );
        goals.extend(
            found
                .write
                .map(|times| Goal::at_most(of("99.99 % of writes"), times, write)),
        );
    }
    goals
}

fn picture(spec: &StudySpec, rows: &[Row]) -> String {
    let names: Vec<&str> = spec
        .configurations
        .iter()
        .map(|configuration| configuration.name())
        .collect();
    let mut bars = Vec::new();
    for case in cases(rows)
        .iter()
        .filter(|case| case[0].durability == Durability::Each)
    {
        let of = |value: &dyn Fn(&Row) -> Option<f64>| {
            let find = |configuration: &Configuration| {
                case.iter()
                    .find(|row| row.configuration == *configuration)
                    .and_then(|row| value(row))
            };
            spec.configurations.iter().map(find).collect::<Vec<_>>()
        };
        let is_base = |row: &Row| row.configuration == row.configuration.baseline();
        let times = |row: &Row, effect: &dyn Fn(Effects) -> Option<f64>| {
            if is_base(row) {
                Some(1.0)
            } else {
                effects(rows, row).and_then(effect)
            }
        };
        let label = |what: &str| {
            format!(
                "{} {}: {what}",
                case[0].workload.name(),
                pressure_name(case[0].pressure)
            )
        };
        bars.push(Group {
            label: label("IOPS"),
            values: of(&|row| times(row, &|found| Some(found.rate))),
        });
        bars.push(Group {
            label: label("read 99.99 %"),
            values: of(&|row| times(row, &|found| found.read)),
        });
        bars.push(Group {
            label: label("write 99.99 %"),
            values: of(&|row| times(row, &|found| found.write)),
        });
    }
    groups(
        "Multiples of the same with the journal on the data drives",
        &names,
        &bars,
    )
}

/// Builds all results.
pub fn make(
    spec: &StudySpec,
    what: &str,
    rows: &[Row],
    settling: &[(Configuration, Vec<f64>)],
    modelled: bool,
) -> Findings {
    let mut text = format!(
        "{what}.\n+-: against the journal on the data drives of the same kind of array (internal, in-place); PUBLISHED: the same of the talk.\n\
         WRITTEN: bytes written each second, of the baseline's at full load\n",
    );
    for (configuration, steps) in settling {
        let steps: Vec<String> = steps.iter().map(|waf| format!("{waf:.2}")).collect();
        text.push_str(&format!(
            "{}: device bytes per user byte, each half of the live data overwritten: {}\n",
            configuration.name(),
            steps.join(" ")
        ));
    }
    for case in cases(rows) {
        text.push_str(&format!("{}\n{}", case_name(case[0]), table(rows, &case)));
    }
    let value = json!({
        "members": spec.members, "member_bytes": spec.member_bytes, "live_percent": spec.live_percent, "requests": spec.requests,
        "judged_requests": spec.judged_requests, "flush_requests": spec.flush_requests, "seed": spec.seed, "power_loss_protection": spec.devices.protected, "program_suspend": spec.devices.suspend,
        "reads_in_order": spec.devices.in_order,
        "published": { "requests_ppm": ppm(PUBLISHED.0), "read_p99_99_ppm": ppm(PUBLISHED.1), "write_p99_99_ssd_ppm": ppm(PUBLISHED.2), "write_p99_99_memory_ppm": ppm(PUBLISHED.3) },
        "modelled": modelled, "settling": settling.iter().map(|(configuration, steps)| json!({
            "configuration": configuration.name(), "device_bytes_per_user_byte_ppm": steps.iter().map(|waf| ppm(*waf)).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "results": rows.iter().map(|row| row_json(rows, row)).collect::<Vec<_>>(),
    });
    Findings {
        name: "journal-study",
        value,
        text,
        picture: picture(spec, rows),
        goals: goals(rows),
    }
}

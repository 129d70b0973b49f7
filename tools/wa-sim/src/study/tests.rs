//! Tests with a study too small for meaningful figures: it ends, its data is right, and it is
//! reproducible.

use super::*;

fn spec(configurations: &[Configuration]) -> StudySpec {
    StudySpec {
        members: 6,
        member_bytes: 32 << 20,
        live_percent: 80,
        configurations: configurations.to_vec(),
        workloads: vec![Workload::Both],
        pressures: vec![Pressure::Tenth, Pressure::Full],
        flushes: vec![2],
        flush_workloads: vec![Workload::Both],
        judged_requests: 1500,
        requests: 1500,
        flush_requests: 800,
        seed: 11,
        devices: DeviceOptions {
            protected: true,
            suspend: false,
            in_order: false,
        },
    }
}

fn rows(spec: &StudySpec) -> Vec<Row> {
    let mut study = Study::new(spec);
    study.run(&mut |_, _, _| ()).unwrap();
    study.rows
}

#[test]
fn equal_seeds_give_equal_studies_and_others_do_not() {
    let mut spec = spec(&[
        Configuration::Internal,
        Configuration::Memory,
        Configuration::InPlace,
    ]);
    let first = format!("{:?}", rows(&spec));
    assert!(first == format!("{:?}", rows(&spec)), "the same seed");
    spec.seed += 1;
    assert!(first != format!("{:?}", rows(&spec)), "another seed");
}

#[test]
fn every_configuration_serves_every_load() {
    let spec = spec(&Configuration::ALL);
    let rows = rows(&spec);
    // Seven with durable writes, four with flushes, at both load levels.
    assert_eq!(rows.len(), 2 * 7 + 2 * 4);
    for row in &rows {
        let outcome = &row.outcome;
        assert!(
            outcome.elapsed_ns > 0 && !outcome.reads.is_empty() && !outcome.writes.is_empty(),
            "{row:?}"
        );
        assert_eq!(
            outcome.flushes.is_empty(),
            row.durability == Durability::Each
        );
        // Two parities at least; a short run may leave data in the open batch.
        let waf = outcome.devices.written_bytes as f64 / outcome.write_bytes as f64;
        assert!((1.2..12.0).contains(&waf), "{:?} {waf}", row.configuration);
        assert_eq!(
            row.pressure == Pressure::Full,
            row.tasks == FULL_TASKS,
            "{row:?}"
        );
    }
    let find = |configuration, pressure| {
        let is = |row: &&Row| {
            (row.configuration, row.pressure, row.durability)
                == (configuration, pressure, Durability::Each)
        };
        rows.iter().find(is).map(|row| &row.outcome).unwrap()
    };
    for pressure in [Pressure::Tenth, Pressure::Full] {
        let (base, device) = (
            find(Configuration::InPlace, pressure),
            find(Configuration::InPlaceMemory, pressure),
        );
        assert!(
            device.per_second() > base.per_second(),
            "a journal device helps the array in place"
        );
    }
}

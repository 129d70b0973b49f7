//! Tests of `windrow-lab plan` and `windrow-lab trace` from a user's view: figures, forms,
//! refusals.

use crate::support;

use serde_json::Value;
use support::{World, both};

fn json(world: &World, line: &str) -> Value {
    serde_json::from_str(&world.succeeds(&format!("{line} -o json"))).expect("one object")
}

/// Expects one line with its id, exit code 4, nothing on standard output.
fn refused(world: &World, line: &str, id: &str, says: &str) {
    let output = world.run(line);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4), "{line}: {}", both(&output));
    assert!(
        error.starts_with(&format!("windrow: {id}: "))
            && error.lines().count() == 1
            && error.contains(says),
        "{line}: {error}"
    );
    assert!(output.stdout.is_empty(), "{line}");
}

#[test]
fn arrays_of_a_catalogue_of_ones_own() {
    let world = World::new();
    let catalogue = "[[drive]]\nid = \"mine\"\nname = \"Mine\"\ncapacity_gb = 1000\nprice = 100\nrandom_write_iops = 50000\nlinear_write_mb_s = 409.6\nerase_cycles = 3650\nwear_amplification = 4\n";
    std::fs::write(world.file("own.toml"), catalogue).unwrap();
    let report = json(
        &world,
        "windrow-lab plan --catalogue own.toml --drives 10 --topology 5,10 --usable 80% --cleaning 2 --compression 50%",
    );
    assert_eq!(report["schema"], "windrow/plan/1");
    let row = |at: usize| &report["rows"][at];
    let figures = |at: usize| {
        (
            row(at)["written"].as_str().unwrap(),
            [
                "landable_gb",
                "cost_per_gb",
                "random_write_iops",
                "overwrites_per_day",
            ]
            .map(|name| row(at)["outcome"][name].as_f64().unwrap()),
        )
    };
    let near = |found: [f64; 4], expected: [f64; 4]| {
        found
            .iter()
            .zip(expected)
            .all(|(found, expected)| (found / expected - 1.0).abs() < 1e-9)
    };
    // RAID-5 of ten: nine hold data. In place 2 / 4 / 2 * 10/9 overwrites; under the log 2 / 2 /
    // 0.8, and nine times 100,000 writes over two.
    for (at, written, expected) in [
        (
            0,
            "in place",
            [9000.0, 1.0 / 9.0, 50_000.0, 2.0 / 8.0 * 10.0 / 9.0],
        ),
        (1, "Windrow", [7200.0, 1.0 / 7.2, 450_000.0, 1.25]),
        (
            2,
            "Windrow, compressed for space",
            [14_400.0, 1.0 / 14.4, 450_000.0, 1.25],
        ),
        (
            3,
            "Windrow, compressed for wear",
            [7200.0, 1.0 / 7.2, 450_000.0, 2.5],
        ),
        (4, "in place", [5000.0, 0.2, 250_000.0, 2.0 / 8.0 * 2.0]),
    ] {
        let (found, values) = figures(at);
        assert!(
            found == written && near(values, expected),
            "{written}: {values:?}"
        );
    }
    assert!(
        world
            .succeeds("windrow-lab plan --catalogue own.toml --drives 10")
            .contains("mine   RAID-6    Windrow")
    );
    // The printed catalogue is readable.
    std::fs::write(
        world.file("copy.toml"),
        world.succeeds("windrow-lab plan drives --toml"),
    )
    .unwrap();
    assert_eq!(
        json(&world, "windrow-lab plan drives"),
        json(&world, "windrow-lab plan drives --catalogue copy.toml")
    );
}

#[test]
fn layers_mixes_tables_and_reports_of_drives() {
    let world = World::new();
    let stack = json(
        &world,
        "windrow-lab plan layers --file-system fat --topology 6 --drives 24 --drive-wear 3 --cleaning 1.5",
    );
    let product = |name: &str| stack["stack"][name].as_f64().unwrap();
    assert!(
        (product("alone") - 18.0).abs() < 1e-9
            && (product("under_windrow") - 2.0 * 1.5 * 1.003898 * 24.0 / 22.0 * 1.01).abs() < 1e-4
    );
    assert!(
        world
            .succeeds("windrow-lab plan layers")
            .contains("empty tail of 12 in 128 pages")
    );
    // ext4 with its data in the journal: 32 KiB twice and 32 KiB in addition.
    let full = json(
        &world,
        "windrow-lab plan layers --file-system ext4-journal --topology 0 --drives 4 --drive-wear 1",
    );
    assert_eq!(
        (
            full["stack"]["alone"].as_f64(),
            full["by_file_system"].as_array().map(Vec::len)
        ),
        (Some(3.0), Some(15))
    );
    // The talk: 7 and 4 are 3.3 and 5.7 years, 1 more than 20.
    let tuned = json(&world, "windrow-lab plan tuned --spare 7% --wear 7,4,1");
    let years: Vec<String> = tuned["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| format!("{:.1}", row["life_years"].as_f64().unwrap()))
        .collect();
    assert_eq!(years, ["3.0", "3.3", "5.7", "22.9", "3.0", "4.2", "3.6"]);
    assert!(
        world
            .succeeds("windrow-lab plan mixed --reads 10000 --writes 1000")
            .starts_with("2,703 operations a second: 1,892 reads, 811 writes")
    );
    let tables = world.succeeds("windrow-lab plan sources");
    assert!(
        tables.contains("Crucial M550 1TB")
            && tables.contains("1,531,800")
            && tables.contains("2,703, 1,892 and 811 ms")
    );
    let smart = r#"{"model_name":"A drive","user_capacity":{"bytes":1000000000000},"power_on_time":{"hours":8760},
        "nvme_smart_health_information_log":{"percentage_used":5,"data_units_written":200000000}}"#;
    std::fs::write(world.file("smart.json"), smart).unwrap();
    std::fs::write(
        world.file("ocp.json"),
        r#"{"Physical media units written":{"hi":0,"lo":307200000000000}}"#,
    )
    .unwrap();
    let report = json(&world, "windrow-lab plan smart smart.json ocp.json");
    assert_eq!(
        (
            report["findings"]["wear_amplification"].as_f64(),
            report["health"]["used_percent"].as_u64()
        ),
        (Some(3.0), Some(5))
    );
    // The drive sustained 1.12 overwrites a day of a load that it tripled: 3.37 of its flash, over
    // 1.5 and 0.9 under the log.
    let planned = json(
        &world,
        "windrow-lab plan --smart smart.json --smart ocp.json --drives 4 --topology 6 --cleaning 1.5",
    );
    assert!(
        (planned["rows"][1]["outcome"]["overwrites_per_day"]
            .as_f64()
            .unwrap()
            - 2048.0 * 3.0 / 1825.0 / 1.5 / 0.9)
            .abs()
            < 1e-6
    );
    // A drive that was used under a log: its 1.01 is no measure of random writes in place, and must
    // not be shown as three times the lifetime.
    std::fs::write(
        world.file("rows.json"),
        r#"{"Physical media units written":{"hi":0,"lo":103424000000000}}"#,
    )
    .unwrap();
    let in_place = |more: &str| {
        let planned = json(
            &world,
            &format!(
                "windrow-lab plan --smart smart.json --smart rows.json --drives 4 --topology 6 {more}"
            ),
        );
        planned["rows"][0]["outcome"]["overwrites_per_day"].as_f64()
    };
    assert_eq!(in_place(""), None);
    assert!(
        world
            .succeeds("windrow-lab plan --smart smart.json --smart rows.json --drives 4")
            .contains("written in long rows so far")
    );
    assert!(
        (in_place("--drive-wear 4").unwrap() - 2048.0 * 1.01 / 1825.0 / 4.0 / 3.0 * 2.0).abs()
            < 1e-6
    );
    refused(
        &world,
        "windrow-lab plan --smart smart.json --drive-wear 4",
        "WR-PLAN-001",
        "nothing to work on",
    );
}

/// Reports whose units or numbers differ from what their names suggest.
#[test]
fn reports_of_drives_are_read_in_their_own_units() {
    let world = World::new();
    let ata = r#"{"device":{"protocol":"ATA"},"model_name":"SATA 4Kn","serial_number":"S1","user_capacity":{"bytes":960197124096},"logical_block_size":4096,
        "power_on_time":{"hours":10000},"ata_smart_attributes":{"table":[{"id":241,"name":"Total_LBAs_Written","value":100,"raw":{"value":25000000000}},
        {"id":177,"name":"Wear_Leveling_Count","value":95,"raw":{"value":50}}]}}"#;
    let nvme = r#"{"device":{"protocol":"NVMe"},"model_name":"NVME 7T6","serial_number":"N1","nvme_total_capacity":7681501126656,"power_on_time":{"hours":12000},
        "nvme_smart_health_information_log":{"percentage_used":7,"data_units_written":900000000,"power_on_hours":12000}}"#;
    std::fs::write(world.file("ata.json"), ata).unwrap();
    std::fs::write(world.file("nvme.json"), format!("\u{feff}{nvme}")).unwrap();
    let report = json(&world, "windrow-lab plan smart ata.json");
    assert_eq!(
        report["health"]["host_bytes"].as_u64(),
        Some(102_400_000_000_000)
    );
    assert!(
        world
            .succeeds("windrow-lab plan smart ata.json")
            .contains("assumed: Total_LBAs_Written is taken for sectors of 4096 bytes")
    );
    let report = json(&world, "windrow-lab plan smart nvme.json");
    assert!(
        (report["findings"]["overwrites_per_day"].as_f64().unwrap()
            - 900e6 * 512e3 / 7_681_501_126_656.0 / 500.0)
            .abs()
            < 1e-9,
        "{report}"
    );
    assert!(json(&world, "windrow-lab plan --smart nvme.json --drives 8")["rows"][0]["outcome"]["landable_gb"].as_f64().unwrap() > 40_000.0);
    // Two drives: each separately, in any order, and never merged into one.
    std::fs::write(world.file("two.json"), format!("{ata}\n{nvme}\n")).unwrap();
    std::fs::write(world.file("list.json"), format!("[{ata},{nvme}]")).unwrap();
    for line in [
        "windrow-lab plan smart ata.json nvme.json",
        "windrow-lab plan smart two.json",
        "windrow-lab plan smart list.json",
    ] {
        let found = json(&world, line);
        let models: Vec<&str> = found["drives"]
            .as_array()
            .unwrap()
            .iter()
            .map(|drive| drive["health"]["model"].as_str().unwrap())
            .collect();
        assert!(
            models == ["SATA 4Kn", "NVME 7T6"] && found["health"].is_null(),
            "{line}: {found}"
        );
        assert!(
            world.succeeds(line).contains("SATA 4Kn S1\n")
                && world.succeeds(line).contains("NVME 7T6 N1\n")
        );
    }
    refused(
        &world,
        "windrow-lab plan --smart two.json",
        "WR-PLAN-001",
        "reports of 2 drives: SATA 4Kn S1, NVME 7T6 N1",
    );
    std::fs::write(
        world.file("wide.json"),
        nvme.encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect::<Vec<u8>>(),
    )
    .unwrap();
    refused(
        &world,
        "windrow-lab plan smart wide.json",
        "WR-PLAN-001",
        "UTF-16",
    );
}

#[test]
fn traces_are_shown_converted_and_drawn() {
    let world = World::new();
    std::fs::write(world.file("t.csv"), "W,0,4096,0,a\nW,4096,4096,500000,a\nR,0,512,1000000,b\nT,100,8192,1000000,a\nF,0,0,2000000,a\n").unwrap();
    let shown = |file: &str| {
        let mut figures = json(&world, &format!("windrow-lab trace info {file}"));
        figures["format"].take();
        figures
    };
    let figures = shown("t.csv");
    assert_eq!(
        (
            figures["requests"].as_u64(),
            figures["write"]["sequential"].as_u64(),
            figures["written_set_bytes"].as_u64()
        ),
        (Some(5), Some(1), Some(8192))
    );
    assert!((figures["requests_per_second"].as_f64().unwrap() - 2.5).abs() < 1e-9);
    for out in ["t.wtrc", "t.iolog", "t2.csv.gz", "t3.wtrc.gz"] {
        world.succeeds(&format!("windrow-lab trace convert t.csv {out}"));
        assert_eq!(shown(out), figures, "{out}");
    }
    // In whole blocks a trim keeps only the blocks that it covers completely.
    world.succeeds("windrow-lab trace convert t.wtrc blocks.wtrc --granule block");
    assert_eq!(
        (
            shown("blocks.wtrc")["trim"]["bytes"].as_u64(),
            shown("blocks.wtrc")["read"]["bytes"].as_u64()
        ),
        (Some(4096), Some(4096))
    );
    assert!(
        world
            .succeeds("windrow-lab trace info t.csv")
            .contains("write         2")
    );
    world.succeeds("windrow-lab trace plot t.csv t.svg --by-request");
    assert!(
        std::fs::read_to_string(world.file("t.svg"))
            .unwrap()
            .ends_with("</svg>\n")
    );
    // A truncated tail is reported, and the part before it is present.
    let whole = std::fs::read(world.file("t.wtrc")).unwrap();
    std::fs::write(world.file("cut.wtrc"), &whole[..whole.len() - 1]).unwrap();
    assert!(
        world
            .succeeds("windrow-lab trace info cut.wtrc")
            .contains("the end of the trace is missing")
    );
    std::fs::write(
        world.file("own.txt"),
        "0.5 write 8 2\n1.5 write 9 2\nbroken\n",
    )
    .unwrap();
    let own = json(
        &world,
        "windrow-lab trace info own.txt --columns time_s,op,block,blocks --skip-bad",
    );
    assert_eq!(
        (
            own["requests"].as_u64(),
            own["skipped_records"].as_u64(),
            own["written_set_bytes"].as_u64()
        ),
        (Some(2), Some(1), Some(3 * 4096))
    );
}

/// A volume rewritten in order costs nothing; one with random rewrites does, and more spare lowers
/// the cost.
#[test]
fn traces_are_replayed_on_a_simulated_pool() {
    let world = World::new();
    let linear: String = (0..8192u64)
        .map(|at| format!("W,{},4096,{at}\n", at % 2048 * 1_048_576))
        .collect();
    std::fs::write(world.file("linear.csv"), linear).unwrap();
    let mut at = 1u64;
    let mut random = || {
        at = at
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (at >> 33) % 2048
    };
    let scattered: String = (0..20_000)
        .map(|time| format!("W,{},4096,{time},disk{}\n", random() * 4096, time % 2))
        .collect();
    std::fs::write(world.file("random.csv"), scattered).unwrap();
    world.succeeds("windrow-lab trace convert random.csv random.wtrc");
    let waf = |line: &str| {
        let report = json(
            &world,
            &format!("windrow-lab replay {line} --segment 128K --policy none"),
        );
        (
            report["blocks"].as_u64().unwrap(),
            report["lines"]
                .as_array()
                .unwrap()
                .iter()
                .map(|line| line["traced"].as_f64().unwrap())
                .collect::<Vec<_>>(),
        )
    };
    assert_eq!(waf("linear.csv --spare 20%"), (2048, vec![1.0]));
    let (blocks, factors) = waf("random.csv --fill --spare 10%,30%");
    // Two disks of 2048 blocks, all of which are hit eventually.
    assert!(
        blocks > 4000 && factors[0] > 2.0 && factors[1] > 1.1 && factors[1] < factors[0],
        "{blocks} blocks, {factors:?}"
    );
    assert_eq!(waf("random.wtrc --fill --spare 10%,30%"), (blocks, factors));
    assert!(
        world
            .succeeds("windrow-lab replay random.csv --spare 10% --segment 128K")
            .contains("SECOND HALF")
    );
    refused(
        &world,
        "windrow-lab replay random.csv",
        "WR-BENCH-002",
        "smaller segments",
    );
    std::fs::write(world.file("reads.csv"), "R,0,4096,0\n").unwrap();
    refused(
        &world,
        "windrow-lab replay reads.csv",
        "WR-BENCH-002",
        "writes nothing",
    );
}

/// `count` writes of 4 KiB to random blocks among the first `blocks` blocks.
fn random_writes(count: u64, blocks: u64) -> String {
    let mut at = 1u64;
    let mut random = || {
        at = at
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (at >> 33) % blocks
    };
    (0..count)
        .map(|time| format!("W,{},4096,{time},disk\n", random() * 4096))
        .collect()
}

/// A volume of which the trace writes an eighth has seven eighths of cold data, and its spare space
/// serves that one eighth.
#[test]
fn a_volume_of_a_size_has_cold_data() {
    let world = World::new();
    std::fs::write(world.file("t.csv"), random_writes(12_000, 1024)).unwrap();
    let replay = |line: &str| {
        json(
            &world,
            &format!("windrow-lab replay t.csv --segment 128K --spare 10% --policy none {line}"),
        )
    };
    let (written, whole) = (replay("--fill"), replay("--size 32M --prefill linear"));
    let waf = |report: &Value| report["lines"][0]["second_half"].as_f64().unwrap();
    assert_eq!(
        (
            written["blocks"].as_u64(),
            whole["blocks"].as_u64(),
            whole["filled_blocks"].as_u64()
        ),
        (Some(1024), Some(8192), Some(8192))
    );
    assert!(
        waf(&written) > 3.0 && waf(&whole) < 1.3,
        "{} {}",
        waf(&written),
        waf(&whole)
    );
    // Windows are equally long everywhere: one for each hundredth of the trace, and those of the
    // fill.
    let windows = whole["lines"][0]["outcome"]["windows"]
        .as_array()
        .map(Vec::len);
    assert_eq!(
        (whole["window_blocks"].as_u64(), windows),
        (Some(120), Some((12_000 + 8192) / 120))
    );
    assert_eq!(
        (
            whole["seed"].as_u64(),
            whole["segment_bytes"].as_u64(),
            whole["space"].as_str(),
            whole["repeat"].as_u64()
        ),
        (Some(1), Some(128 << 10), Some("strict"), Some(1))
    );
    assert!(
        world
            .succeeds("windrow-lab replay t.csv --size 32M --prefill linear --segment 128K")
            .contains("written to a volume of 32 MiB")
    );
    refused(
        &world,
        "windrow-lab replay t.csv --size 1M",
        "WR-BENCH-002",
        "beyond a size of 1048576",
    );
    refused(
        &world,
        "windrow-lab replay t.csv --size 100T",
        "WR-BENCH-002",
        "16 TiB",
    );
    refused(
        &world,
        "windrow-lab replay t.csv --size 8T --memory 4G",
        "WR-BENCH-002",
        "--memory allows (4 GiB)",
    );
    refused(
        &world,
        "windrow-lab replay t.csv --memory 100K",
        "WR-BENCH-002",
        "for its operations",
    );
    for (line, says) in [
        ("--mode engine --report x.html", "--report"),
        ("--mode both --pictures x", "--pictures"),
        ("--mode engine --seed 2", "--seed"),
        ("--mode engine --headers 1", "--headers"),
        ("--no-flushes", "--no-flushes"),
        ("--flush-every 2", "--flush-every"),
        ("--headers 512", "in addition to its headers"),
    ] {
        refused(
            &world,
            &format!("windrow-lab replay t.csv {line}"),
            "WR-BENCH-002",
            says,
        );
    }
    let advice = json(
        &world,
        "windrow-lab advise t.csv --size 32M --prefill linear --spare 10% --repeat 1",
    );
    assert_eq!(
        (
            advice["blocks"].as_u64(),
            advice["filled"].as_bool(),
            advice["trace"]["end_is_missing"].as_bool()
        ),
        (Some(8192), Some(true), Some(false))
    );
    assert!(advice["best"]["waf"].as_f64().unwrap() < 1.3);
}

/// The client test by its trace equals the client test of the laboratory.
#[test]
fn gains_are_those_of_the_source_and_of_ones_own_drives() {
    let world = World::new();
    let report = json(&world, "windrow-lab plan gain");
    assert_eq!(report["schema"], "windrow/plan-gain/1");
    let found: Vec<String> = report["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| format!("{:.2}", row["gain"].as_f64().unwrap()))
        .collect();
    // The 2014 paper: four to seven times, and twelve to eighteen.
    assert_eq!(found, ["4.66", "12.42", "6.68", "17.81"]);
    // 4 / 2, two writes instead of one for each of nine of ten, four fifths used.
    let own = json(
        &world,
        "windrow-lab plan gain --drive-wear 4 --cleaning 2 --usable 80% --topology 5 --drives 10",
    );
    assert!(
        (own["rows"][0]["gain"].as_f64().unwrap() - 2.0 * 2.0 * 0.9 / 0.8).abs() < 1e-9,
        "{own}"
    );
    assert!(
        world
            .succeeds("windrow-lab plan gain")
            .contains("17.81 times")
    );
    refused(
        &world,
        "windrow-lab plan gain --drives 2 --topology 6",
        "WR-PLAN-002",
        "2 drives",
    );
}

/// Drives are queried with `smartctl`. Here it is a script, and the drive a device that exists
/// everywhere.
#[test]
fn a_drive_is_asked_with_smartctl() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    let bin = world.file("bin");
    std::fs::create_dir(&bin).unwrap();
    let smartctl = |script: &str| {
        let path = bin.join("smartctl");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    let asked = || {
        world
            .command("windrow-lab plan smart /dev/null -o json")
            .env("PATH", format!("{}:/usr/bin:/bin", bin.display()))
            .output()
            .unwrap()
    };
    let error =
        |output: &std::process::Output| String::from_utf8_lossy(&output.stderr).into_owned();
    // Without it.
    let output = world
        .command("windrow-lab plan smart /dev/null")
        .env("PATH", &bin)
        .output()
        .unwrap();
    assert!(
        output.status.code() == Some(4)
            && error(&output).contains("smartctl does not run")
            && error(&output).contains("install smartmontools")
    );
    // A status of 64 is an entry in the drive's error log: the query itself succeeded.
    let says = r#"{"model_name":"A drive","user_capacity":{"bytes":1000000000000},"nvme_smart_health_information_log":{"percentage_used":5,"data_units_written":200000000,"power_on_hours":8760}}"#;
    smartctl(&format!(
        "[ \"$*\" = \"-j -x /dev/null\" ] || exit 1\necho '{says}'\nexit 64"
    ));
    let output = asked();
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", error(&output)));
    assert_eq!(
        (
            &report["health"]["model"],
            &report["health"]["used_percent"]
        ),
        (&"A drive".into(), &5.into())
    );
    smartctl(
        r#"echo '{"smartctl":{"messages":[{"string":"Permission denied","severity":"error"}]}}'; exit 2"#,
    );
    let output = asked();
    assert!(
        output.status.code() == Some(4)
            && error(&output).contains("cannot ask /dev/null how it is: Permission denied"),
        "{}",
        error(&output)
    );
}

/// A trace of bursts: a thousand blocks in a second, then a minute of idle time. Times, rate and
/// scale determine how much can be moved in a pause.
#[test]
fn a_replay_in_time_cleans_in_the_pauses_of_the_trace() {
    let world = World::new();
    let mut lines = String::new();
    for at in 0..40_000u64 {
        let block = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
        lines += &format!(
            "W,{},4096,{}\n",
            block * 4096,
            at / 1000 * 60_000_000 + at % 1000 * 1000
        );
    }
    std::fs::write(world.file("b.csv"), lines).unwrap();
    let replay = |line: &str| {
        json(
            &world,
            &format!(
                "windrow-lab replay b.csv --fill --segment 128K --spare 20% --policy none {line}"
            ),
        )
    };
    let timed = replay("--idle-cleaning 0,12 --rate 10000");
    let time = &timed["time"];
    assert_eq!(
        (
            time["rate_blocks_per_s"].as_u64(),
            time["blocks_per_trace_s"].as_f64()
        ),
        (Some(10_000), Some(10_000.0))
    );
    assert_eq!(time["trace_ns"], 2_340_999_000_000u64);
    let [demand, pauses] = [0, 1].map(|at| &timed["lines"][at]);
    assert_eq!(
        (
            &demand["cleaning"]["idle_free"],
            &pauses["cleaning"]["idle_free"]
        ),
        (&0.into(), &12.into())
    );
    // On demand it equals a replay without times.
    assert_eq!(demand["traced"], replay("")["lines"][0]["traced"]);
    let figure = |line: &Value, name: &str| line["cleaning"][name].as_f64().unwrap();
    assert!((figure(demand, "steady") - figure(demand, "in_the_way") - 1.0).abs() < 1e-9);
    assert!(
        figure(pauses, "in_the_way") < figure(demand, "in_the_way") * 0.8
            && figure(pauses, "steady") > figure(demand, "steady"),
        "{pauses}"
    );
    assert!(pauses["outcome"]["counts"]["moved_idle"].as_u64() > Some(1000));
    // So fast, or on members so slow, that there is no pause; and a little of either.
    for line in ["--time-scale 100000 --rate 10000", "--rate 10"] {
        let found = replay(&format!("--idle-cleaning 12 {line}"));
        let outcome = &found["lines"][0]["outcome"];
        assert!(
            outcome["counts"]["moved_idle"] == 0 && outcome["behind_blocks"].as_u64() > Some(1000),
            "{line}: {found}"
        );
    }
    let few = replay("--idle-cleaning 12 --time-scale 59 --rate 3000");
    let moved = |found: &Value| {
        found["lines"][0]["outcome"]["counts"]["moved_idle"]
            .as_u64()
            .unwrap()
    };
    assert!(
        moved(&few) > 0
            && moved(&few) < pauses["outcome"]["counts"]["moved_idle"].as_u64().unwrap(),
        "{few}"
    );
    // Time continues from round to round.
    assert!(
        moved(&replay("--idle-cleaning 12 --rate 10000 --repeat 3"))
            > 2 * moved(&replay("--idle-cleaning 12 --rate 10000"))
    );
    let text = world.succeeds("windrow-lab replay b.csv --fill --segment 128K --spare 20% --policy none --idle-cleaning 0,12 --report b.html");
    assert!(
        text.contains("in pauses up to 12 free segments")
            && text.contains("times: 2341 s of trace, 100000 blocks"),
        "{text}"
    );
    let page = std::fs::read_to_string(world.file("b.html")).unwrap();
    assert!(
        page.contains("Cleaning in pauses: none+greedy/1 at 20 %")
            && page.contains("What users wait for: none+greedy/1 at 20 %")
    );
    std::fs::write(world.file("still.txt"), "W 0 8\nW 8 8\n").unwrap();
    refused(
        &world,
        "windrow-lab replay still.txt --format jesd219 --segment 4K --spare 50% --idle-cleaning 1",
        "WR-BENCH-002",
        "no times",
    );
    std::fs::write(world.file("one.csv"), "W,0,4096,7\nW,4096,4096,7\n").unwrap();
    refused(
        &world,
        "windrow-lab replay one.csv --segment 4K --spare 50% --idle-cleaning 1",
        "WR-BENCH-002",
        "come at one time",
    );
    // A rate beyond the countable blocks must be refused, not overflow.
    let absurd =
        "windrow-lab replay b.csv --idle-cleaning 1 --rate 1000000000 --time-scale 0.000001";
    refused(
        &world,
        absurd,
        "WR-BENCH-002",
        "more than 2^53 blocks, which is not counted: a lower --rate",
    );
    refused(
        &world,
        "windrow-lab replay b.csv --mode engine --idle-cleaning 1",
        "WR-BENCH-002",
        "--mode model",
    );
    for usage in [
        "--time-scale 2",
        "--rate 5",
        "--idle-cleaning 1 --time-scale 0",
        "--idle-cleaning 1 --rate 0",
    ] {
        assert_eq!(
            world
                .run(&format!("windrow-lab replay b.csv {usage}"))
                .status
                .code(),
            Some(2),
            "{usage}"
        );
    }
}

#[test]
fn the_jedec_client_test_is_replayed_from_its_trace() {
    let world = World::new();
    let tested = json(&world, "windrow-lab sim jedec --scale 400 --policy none");
    let bytes = tested["bytes"].as_u64().unwrap();
    world.succeeds(&format!(
        "windrow-lab trace generate jesd219-client c.wtrc --size {bytes}"
    ));
    let replayed = json(
        &world,
        &format!(
            "windrow-lab replay c.wtrc --size {bytes} --prefill linear --segment 1M --headers 1 --spare 5%,7%,10%,20% --policy none"
        ),
    );
    for at in 0..4 {
        let (found, expected) = (
            replayed["lines"][at]["traced"].as_f64().unwrap(),
            tested["lines"][at]["waf"].as_f64().unwrap(),
        );
        assert!((found / expected - 1.0).abs() < 1e-3, "{found} {expected}");
    }
}

#[test]
fn what_is_not_read_of_a_trace_is_said_and_devices_are_told_apart() {
    let world = World::new();
    let text = format!("{}broken\n", random_writes(2000, 512));
    std::fs::write(world.file("bad.csv"), &text).unwrap();
    world.succeeds("windrow-lab trace convert bad.csv whole.wtrc --skip-bad");
    let whole = std::fs::read(world.file("whole.wtrc")).unwrap();
    std::fs::write(world.file("cut.wtrc"), &whole[..whole.len() - 1]).unwrap();
    let shape = "--spare 30% --segment 64K";
    for (line, says, key, value) in [
        (
            "bad.csv --skip-bad",
            "1 records were left out",
            "skipped_records",
            Value::from(1),
        ),
        (
            "cut.wtrc",
            "the end of the trace is missing",
            "end_is_missing",
            Value::from(true),
        ),
    ] {
        for command in [
            format!("windrow-lab replay {line} {shape} --policy none"),
            format!("windrow-lab replay {line} {shape} --policy separate --mode engine"),
            format!("windrow-lab advise {line} --spare 30% --repeat 3"),
        ] {
            assert!(world.succeeds(&command).contains(says), "{command}");
            assert_eq!(json(&world, &command)["trace"][key], value, "{command}");
        }
    }
    // Two devices, or one of them: addresses must not be overlaid, and flushes must be known.
    std::fs::write(
        world.file("two.csv"),
        format!(
            "{}F,0,0,9000\nW,0,4096,9001,other\n",
            random_writes(2000, 512)
        ),
    )
    .unwrap();
    let blocks = |line: &str| json(&world, line)["blocks"].as_u64();
    let all = blocks(&format!("windrow-lab replay two.csv {shape} --policy none"));
    assert_eq!(
        blocks(&format!(
            "windrow-lab replay two.csv {shape} --policy none --device disk"
        )),
        all.map(|all| all - 1)
    );
    assert_eq!(
        (
            blocks("windrow-lab trace info two.csv"),
            blocks(&format!(
                "windrow-lab sim run --trace two.csv {shape} --policy none"
            ))
        ),
        (None, all)
    );
    assert!(
        world
            .succeeds(&format!("windrow-lab replay two.csv {shape}"))
            .contains("devices side by side")
    );
    refused(
        &world,
        "windrow-lab replay two.csv --size 2M",
        "WR-BENCH-002",
        "--device",
    );
    refused(
        &world,
        "windrow-lab trace info two.csv --device sdz",
        "WR-TRACE-001",
        "no device 'sdz'",
    );
    let flushed = json(
        &world,
        &format!("windrow-lab replay two.csv {shape} --policy separate --mode engine"),
    );
    assert_eq!(flushed["flushes"].as_u64(), Some(1));
    std::fs::write(
        world.file("hostile.csv"),
        "W,0,4096,0\nW,0,18446744073709551615,0\n",
    )
    .unwrap();
    refused(
        &world,
        "windrow-lab sim run --trace hostile.csv",
        "WR-TRACE-001",
        "no known format",
    );
    let many: String = (0..60u64)
        .map(|at| format!("W,{},4294967296,{at}\n", at << 32))
        .collect();
    std::fs::write(world.file("large.csv"), many).unwrap();
    refused(
        &world,
        "windrow-lab sim run --trace large.csv --memory 100M",
        "WR-BENCH-002",
        "--memory",
    );
    refused(
        &world,
        "windrow-lab replay large.csv --memory 100M",
        "WR-BENCH-002",
        "--memory",
    );
    refused(
        &world,
        "windrow-lab sim run --size 15T",
        "WR-BENCH-002",
        "--memory",
    );
}

/// The measured figure agrees with help and manual.
#[test]
fn what_deduplication_takes_is_what_help_and_manual_say() {
    let world = World::new();
    world.succeeds("pool create tank --redundancy 5 --size 1G --sparse a b c d");
    world.succeeds("pool create small --redundancy 5 --size 256M --sparse e f g h");
    world.succeeds(
        "pool create dense --redundancy 5 --size 1G --sparse --reduction capacity i j k l",
    );
    for (pool, expected) in [
        ("tank", 0.040..=0.041),
        ("small", 0.043..=0.044),
        ("dense", 0.117..=0.118),
    ] {
        let usable = || {
            json(&world, &format!("pool status {pool}"))["capacity"]["usable_bytes"]
                .as_f64()
                .unwrap()
        };
        let before = usable();
        world.succeeds(&format!("volume create {pool}/data 100M --dedup hash"));
        let taken = 1.0 - usable() / before;
        assert!(expected.contains(&taken), "{pool}: {taken}");
    }
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for text in ["docs/internals/reduction.md", "docs/guide/serve.md"]
        .map(|name| std::fs::read_to_string(root.join(name)).unwrap())
    {
        assert!(text.contains("3.9 to 4.4 %") && text.contains("11 to 13 %"));
    }
    assert!(
        world
            .succeeds("volume set --help")
            .replace("\n", " ")
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .contains("takes 3.9 to 4.4 % of the pool's usable space")
    );
}

/// At its limits a value is refused or computed; none is silently changed.
#[test]
fn values_at_the_edges_are_refused_or_computed() {
    let world = World::new();
    let drive = "--drive samsung-pm9d3a-7680";
    for (line, id, says) in [
        (
            "windrow-lab plan layers --write-size 0".to_owned(),
            "WR-CLI-001",
            "--write-size",
        ),
        (
            "windrow-lab plan layers --drive-spare 0%".to_owned(),
            "WR-CLI-001",
            "--drive-spare must be more than 0",
        ),
        (
            "windrow-lab plan layers --drive-spare 100%".to_owned(),
            "WR-CLI-001",
            "--drive-spare must be less than 100%",
        ),
        (
            "windrow-lab plan layers --cleaning uniform --usable 100%".to_owned(),
            "WR-CLI-001",
            "--usable",
        ),
        (
            "windrow-lab plan gain --cleaning uniform --usable 100%".to_owned(),
            "WR-CLI-001",
            "--usable",
        ),
        (
            "windrow-lab plan gain --usable 0".to_owned(),
            "WR-CLI-001",
            "--usable must be more than 0",
        ),
        (
            format!("windrow-lab plan {drive} --usable 100% --cleaning uniform"),
            "WR-CLI-001",
            "--usable must be less than 100%",
        ),
        (
            format!("windrow-lab plan {drive} --usable 99.99999999% --cleaning uniform"),
            "WR-CLI-001",
            "too little spare space",
        ),
        (
            format!("windrow-lab plan {drive} --compression 100%"),
            "WR-CLI-001",
            "--compression must be less than 100%",
        ),
        (
            format!("windrow-lab plan {drive} --drives 0"),
            "WR-PLAN-002",
            "0 drives",
        ),
        (
            "windrow-lab plan tuned --spare 0%".to_owned(),
            "WR-CLI-001",
            "--spare must be more than 0",
        ),
        (
            "windrow-lab sim graph --spare 0%".to_owned(),
            "WR-BENCH-002",
            "0.5 to 95 %",
        ),
        (
            "windrow-lab sim table 2 --static 100%".to_owned(),
            "WR-BENCH-002",
            "less than 100%",
        ),
        (
            "windrow-lab sim bursts --spare 100%".to_owned(),
            "WR-BENCH-002",
            "0.5 to 95 %",
        ),
        (
            "windrow-lab sim run --size 64M --static 100%".to_owned(),
            "WR-BENCH-002",
            "less than 100%",
        ),
        (
            "windrow-lab sim run --size 64M --trim 100%".to_owned(),
            "WR-BENCH-002",
            "less than 100%",
        ),
        (
            "windrow-lab sim run --size 0".to_owned(),
            "WR-BENCH-002",
            "--size 0 B",
        ),
        (
            "windrow-lab sim run --size 64M --segment 6K".to_owned(),
            "WR-BENCH-002",
            "--segment",
        ),
        (
            "windrow-lab sim speed --size 17T".to_owned(),
            "WR-BENCH-002",
            "--size",
        ),
    ] {
        refused(&world, &line, id, says);
    }
    let wear = |usable: &str| {
        json(
            &world,
            &format!("windrow-lab plan {drive} --cleaning uniform --usable {usable}"),
        )["assumptions"]["log_wear"]
            .as_f64()
            .unwrap()
    };
    assert!(
        wear("99.99%") > 4000.0 && wear("99.99%") > 5.0 * wear("99.9%") && wear("99.9%") < 1000.0,
        "{} {}",
        wear("99.99%"),
        wear("99.9%")
    );
    assert_eq!(json(&world, &format!("windrow-lab plan {drive} --usable 99.99%"))["assumptions"]["usable_share"].as_f64(), Some(0.9999));
    assert!(
        json(
            &world,
            &format!("windrow-lab plan {drive} --compression 99.99%")
        )["assumptions"]["compression"]
            .as_f64()
            .unwrap()
            > 9999.0
    );
    let inside = |spare: &str| {
        json(
            &world,
            &format!("windrow-lab plan layers --file-system none --drive-spare {spare}"),
        )["stack"]["alone"]
            .as_f64()
            .unwrap()
    };
    assert!(inside("0.05%") > inside("0.1%") && inside("99.95%") >= 1.0);
    assert!(
        world
            .succeeds("windrow-lab plan mixed --reads 100 --writes 100 --read-share 0")
            .starts_with("100 operations a second: 0 reads, 100 writes")
    );
    // Not a number, or not of this kind.
    for value in ["nan", "-1%", "-0", "101%", "1e400", "inf", ""] {
        for option in ["--usable", "--compression"] {
            let output = world
                .command("windrow-lab plan")
                .args([
                    drive.split(' ').next().unwrap(),
                    "samsung-pm9d3a-7680",
                    &format!("{option}={value}"),
                ])
                .output()
                .unwrap();
            assert_eq!(
                output.status.code(),
                Some(2),
                "{option} {value}: {}",
                both(&output)
            );
        }
    }
}

/// An impossible trace or value is not a bug of Windrow, and must not be reported as one.
#[test]
fn wrong_input_is_no_bug_to_report() {
    let world = World::new();
    std::fs::write(world.file("reads.csv"), "R,0,4096,0\nR,4096,4096,5\n").unwrap();
    std::fs::write(world.file("small.csv"), "W,0,4096,0\nW,4096,4096,5\n").unwrap();
    for line in [
        "windrow-lab replay reads.csv",
        "windrow-lab replay small.csv",
        "windrow-lab advise reads.csv",
        "windrow-lab sim run --trace reads.csv",
        "windrow-lab sim run --trace small.csv",
    ] {
        refused(&world, line, "WR-BENCH-002", "");
    }
}

/// Downloads as found: a byte order mark, truncated or padded compression, an unsupported
/// compression, a trace that starts with completions.
#[test]
fn traces_are_read_as_they_are_found() {
    let world = World::new();
    let text: String = (0..2000u64)
        .map(|at| format!("3,W,{},4096,{}\n", at * 7919 % 65_536 * 4096, 1000 + at))
        .collect();
    std::fs::write(world.file("mark.csv"), format!("\u{feff}{text}")).unwrap();
    assert_eq!(
        json(&world, "windrow-lab trace info mark.csv")["devices"],
        serde_json::json!(["3"])
    );
    world.succeeds("windrow-lab trace convert mark.csv whole.csv.gz");
    let packed = std::fs::read(world.file("whole.csv.gz")).unwrap();
    std::fs::write(
        world.file("padded.csv.gz"),
        [&packed[..], &[0; 512]].concat(),
    )
    .unwrap();
    assert_eq!(
        json(&world, "windrow-lab trace info padded.csv.gz")["requests"],
        2000
    );
    std::fs::write(world.file("cut.csv.gz"), &packed[..packed.len() - 300]).unwrap();
    refused(
        &world,
        "windrow-lab trace info cut.csv.gz",
        "WR-TRACE-003",
        "--skip-bad",
    );
    for command in [
        "windrow-lab trace info",
        "windrow-lab advise --spare 30% --repeat 3",
        "windrow-lab replay --spare 30% --segment 64K --policy none",
    ] {
        let found = json(&world, &format!("{command} cut.csv.gz --skip-bad"));
        let noticed = if found["trace"].is_object() {
            &found["trace"]
        } else {
            &found
        };
        assert!(
            noticed["end_is_missing"] == true
                && noticed["damage"]
                    .as_str()
                    .is_some_and(|why| why.contains("decompressed")),
            "{command}: {found}"
        );
    }
    assert!(
        world
            .succeeds("windrow-lab trace convert cut.csv.gz x.wtrc --skip-bad")
            .contains("the rest of the trace was not read: byte ")
    );
    std::fs::write(world.file("it's.bz2"), b"BZh91AY&SY").unwrap();
    let output = world
        .command("windrow-lab trace info")
        .arg("it's.bz2")
        .output()
        .unwrap();
    assert!(
        String::from_utf8_lossy(&output.stderr)
            .contains(r"compressed with bzip2; decompress it: bzip2 -dc 'it'\''s.bz2'"),
        "{}",
        both(&output)
    );
    let line = |at: u64, event: &str| {
        format!(
            "8,0 3 {at} {:.9} 697 {event} W {} + 8 [dd]\n",
            at as f64 * 1e-3,
            at * 8
        )
    };
    let completions: String = (0..60).map(|at| line(at, "C")).collect();
    let all: String = (60..100)
        .map(|at| line(at, "Q") + &line(at, "D") + &line(at, "C"))
        .collect();
    std::fs::write(world.file("busy.txt"), completions.clone() + &all).unwrap();
    std::fs::write(world.file("done.txt"), completions).unwrap();
    let of = |name: &str| {
        let found = json(&world, &format!("windrow-lab trace info {name}"));
        (
            found["requests"].as_u64(),
            found["counted_event"].as_str().map(str::to_owned),
        )
    };
    assert_eq!(of("busy.txt"), (Some(40), Some("queued".to_owned())));
    assert_eq!(of("done.txt"), (Some(60), Some("completed".to_owned())));
    assert!(
        world
            .succeeds("windrow-lab trace info done.txt")
            .contains("a request counts when it is completed")
    );
}

#[test]
fn an_error_is_reported_in_one_line() {
    let world = World::new();
    std::fs::write(
        world.file("bad.toml"),
        "[[drive]]\nid = \"a\"\nname = \"A\"\ncapacity_gb = 0\n",
    )
    .unwrap();
    std::fs::write(world.file("odd.toml"), "[[drive]]\nid = 3\n").unwrap();
    std::fs::write(world.file("text"), "no trace\n").unwrap();
    std::fs::write(world.file("t.csv"), "W,0,4096,0\nW,0,4096,later\n").unwrap();
    std::fs::write(
        world.file("t.gz"),
        [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0xff, 0xff],
    )
    .unwrap();
    world.succeeds("windrow-lab trace convert t.csv whole.wtrc --format csv --skip-bad");
    let mut wrong = std::fs::read(world.file("whole.wtrc")).unwrap();
    wrong[20] ^= 1;
    std::fs::write(world.file("wrong.wtrc"), wrong).unwrap();
    for (line, id, says) in [
        (
            "windrow-lab plan --catalogue none.toml",
            "WR-CLI-003",
            "none.toml",
        ),
        (
            "windrow-lab plan --catalogue bad.toml",
            "WR-PLAN-001",
            "capacity_gb is 0",
        ),
        (
            "windrow-lab plan --catalogue odd.toml",
            "WR-PLAN-001",
            "line 2",
        ),
        ("windrow-lab plan --drive none", "WR-PLAN-002", "none"),
        (
            "windrow-lab plan --drives 3 --topology 6",
            "WR-PLAN-002",
            "at least four",
        ),
        ("windrow-lab plan --usable 0%", "WR-CLI-001", "--usable"),
        ("windrow-lab plan smart text", "WR-PLAN-001", "not JSON"),
        ("windrow-lab trace info none", "WR-CLI-003", "none"),
        (
            "windrow-lab trace info text",
            "WR-TRACE-001",
            "no known format",
        ),
        (
            "windrow-lab trace info t.csv --format csv",
            "WR-TRACE-002",
            "line 2: the time is 'later'",
        ),
        (
            "windrow-lab trace info t.gz --format csv",
            "WR-TRACE-003",
            "cannot be decompressed",
        ),
        (
            "windrow-lab trace info wrong.wtrc",
            "WR-TRACE-003",
            "checksum",
        ),
        (
            "windrow-lab trace convert t.csv out.wtrc --format csv",
            "WR-TRACE-002",
            "line 2",
        ),
        (
            "windrow-lab trace convert whole.wtrc none/out.wtrc",
            "WR-CLI-003",
            "none/out.wtrc",
        ),
        ("windrow-lab trace plot - x.svg", "WR-CLI-001", "read twice"),
        (
            "windrow-lab trace plot whole.wtrc none/x.svg",
            "WR-CLI-003",
            "none/x.svg",
        ),
        (
            "windrow-lab trace plot whole.wtrc x.svg --kind trim",
            "WR-TRACE-001",
            "no request of that kind",
        ),
        (
            "windrow-lab trace record data/ out.wtrc",
            "WR-CLI-001",
            "does not name a volume",
        ),
        (
            "windrow-lab trace record data out.wtrc",
            "WR-CLI-002",
            "no daemon serves",
        ),
        (
            "windrow-lab trace record tank/data out.wtrc",
            "WR-CLI-002",
            "no daemon serves",
        ),
        (
            "windrow-lab trace record /dev/null out.wtrc",
            "WR-TRACE-004",
            "no block device",
        ),
        (
            "windrow-lab trace record /dev/none out.wtrc",
            "WR-TRACE-004",
            "No such file",
        ),
        (
            "windrow-lab trace generate jetstress out.wtrc --size 1M",
            "WR-CLI-001",
            "64 MiB",
        ),
        (
            "windrow-lab sim run --workload jetstress --size 1M",
            "WR-BENCH-002",
            "64 MiB",
        ),
        (
            "windrow-lab sim run --workload jesd219-client --static 10%",
            "WR-BENCH-002",
            "are for patterns",
        ),
        ("windrow-lab plan tuned --spare 0%", "WR-CLI-001", "--spare"),
    ] {
        refused(&world, line, id, says);
    }
    assert!(
        !world.file("out.wtrc").exists() && !world.file("x.svg").exists(),
        "nothing is left behind"
    );
}

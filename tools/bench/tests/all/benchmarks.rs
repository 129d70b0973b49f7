//! Every benchmark at a size too small for meaningful figures: it ends, its JSON has the required
//! fields, its files exist.

use crate::support;

use serde_json::Value;
use support::{World, installed};

/// Four members of 32 MiB, small segments.
const SMALL: &str = "--members 4 --size 32M --segment 256K --chunk 64K --rounds 1";

fn bench(world: &World, line: &str, name: &str) -> Value {
    let text = world.succeeds(&format!("windrow-bench {line} -o json"));
    let value: Value =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{line}: {error}\n{text}"));
    assert_eq!(value["schema"], format!("windrow/bench-{name}/1"), "{line}");
    assert!(
        value["conditions"]["processors"]
            .as_u64()
            .is_some_and(|count| count > 0),
        "{line}: {value}"
    );
    assert!(
        value["goals"].is_array()
            && value["results"]
                .as_array()
                .is_some_and(|rows| !rows.is_empty()),
        "{line}: {value}"
    );
    value
}

fn positive(row: &Value, fields: &[&str]) {
    for field in fields {
        assert!(
            row[*field].as_u64().is_some_and(|number| number > 0),
            "{field} of {row}"
        );
    }
}

#[test]
fn engine_in_memory_writes_its_files() {
    let world = World::new();
    let line = format!(
        "engine {SMALL} --seconds 0.05 --block 4K,64K --writers 1,2 --depth 8 --picture p.svg --results out"
    );
    let value = bench(&world, &line, "engine");
    let rows = value["results"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for row in rows {
        positive(
            row,
            &[
                "requests_per_second",
                "bytes_per_second",
                "latency_p50_ns",
                "write_amplification_ppm",
            ],
        );
        assert!(row["ratio_ppm"].is_null(), "memory has no linear rate");
    }
    assert_eq!(
        value["goals"].as_array().unwrap().len(),
        1,
        "the rate of 4 KiB writes of one writer"
    );
    for file in [
        "p.svg",
        "out/bench-engine.svg",
        "out/bench-engine.txt",
        "out/bench-engine.json",
    ] {
        assert!(
            std::fs::metadata(world.file(file)).is_ok_and(|file| file.len() > 100),
            "{file}"
        );
    }
    let saved: Value =
        serde_json::from_slice(&std::fs::read(world.file("out/bench-engine.json")).unwrap())
            .unwrap();
    assert_eq!(saved, value);
    let text = std::fs::read_to_string(world.file("out/bench-engine.txt")).unwrap();
    assert!(
        text.contains("REQUESTS/S") && text.contains("goal "),
        "{text}"
    );
    bench(
        &world,
        &format!("engine {SMALL} --seconds 0.05 --read-percent 70 --depth 8"),
        "engine",
    );
    bench(
        &world,
        &format!("engine {SMALL} --seconds 0.05 --linear --overwrite --depth 8"),
        "engine",
    );
}

#[test]
fn engine_on_files_knows_their_linear_rate_and_leaves_nothing() {
    let world = World::new();
    std::fs::create_dir(world.file("scratch")).unwrap();
    let value = bench(
        &world,
        &format!("engine {SMALL} --seconds 0.05 --dir scratch --full 50%"),
        "engine",
    );
    let row = &value["results"][0];
    positive(
        row,
        &[
            "requests_per_second",
            "linear_bytes_per_second",
            "ratio_ppm",
        ],
    );
    // The goal is a ratio to the share of data columns: half of four members with redundancy of
    // two.
    let (linear, data) = (
        row["linear_bytes_per_second"].as_u64().unwrap(),
        row["linear_data_bytes_per_second"].as_u64().unwrap(),
    );
    assert!(linear.abs_diff(data * 2) <= 2, "{row}");
    positive(
        &value["full"][0],
        &[
            "utilisation_ppm",
            "cleaning_waf_ppm",
            "linear_bytes_per_second",
            "ratio_ppm",
        ],
    );
    assert_eq!(std::fs::read_dir(world.file("scratch")).unwrap().count(), 0);
}

#[test]
fn table_has_all_its_columns() {
    let world = World::new();
    let value = bench(
        &world,
        &format!("table {SMALL} --seconds 0.02 --block 4K,64K --writers 1,3 --depth 8"),
        "table",
    );
    assert_eq!(value["results"].as_array().unwrap().len(), 5 * 2 + 2);
    value["results"]
        .as_array()
        .unwrap()
        .iter()
        .for_each(|row| positive(row, &["requests_per_second", "latency_p50_ns"]));
    let columns = value["columns"].as_array().unwrap();
    positive(&columns[1], &["block_bytes", "plain"]);
    assert!(
        columns[1]
            .as_object()
            .unwrap()
            .contains_key("dedup_compress_75")
            && columns[1]["in_place_raid_5"].is_null()
    );
}

#[test]
fn steady_measures_where_it_was_asked_to() {
    let world = World::new();
    let line = "steady --members 4 --size 32M --segment 128K --chunk 64K --utilisation 60%,80% --overwrites 1 --depth 8";
    let value = bench(&world, line, "steady");
    for (row, wanted) in value["results"]
        .as_array()
        .unwrap()
        .iter()
        .zip([600_000u64, 800_000])
    {
        positive(
            row,
            &[
                "cleaning_waf_ppm",
                "closed_form_ppm",
                "live_bytes",
                "slots_per_segment",
            ],
        );
        let measured = row["utilisation_ppm"].as_u64().unwrap();
        // A pool this small is coarse: near is enough here.
        assert!(measured.abs_diff(wanted) < 30_000, "{row}");
        assert_eq!(
            row["padding_waf_ppm"]
                .as_u64()
                .map(|padding| padding < 100_000),
            Some(true),
            "{row}"
        );
    }
}

#[test]
fn read_compares_with_the_raw_members() {
    let world = World::new();
    let value = bench(
        &world,
        &format!("read {SMALL} --seconds 0.05 --no-nbd --depth 8"),
        "read",
    );
    assert_eq!(value["results"].as_array().unwrap().len(), 3);
    value["results"]
        .as_array()
        .unwrap()
        .iter()
        .for_each(|row| positive(row, &["requests_per_second", "ratio_ppm", "latency_p50_ns"]));
    if installed(&["fio"]) {
        let value = bench(&world, &format!("read {SMALL} --seconds 1 --dir ."), "read");
        let names: Vec<&str> = value["results"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|row| row["target"].as_str())
            .collect();
        assert!(
            names.contains(&"volume over NBD") && names.contains(&"volume in process"),
            "{names:?}"
        );
        assert_eq!(value["goals"].as_array().unwrap().len(), 2);
    }
}

#[test]
fn rebuild_compares_with_the_raw_members_and_with_users_alone() {
    let world = World::new();
    std::fs::create_dir(world.file("scratch")).unwrap();
    for redundancy in ["1", "6"] {
        let line = format!(
            "rebuild {SMALL} --seconds 0.2 --per-second 200 --dir scratch --redundancy {redundancy}"
        );
        let value = bench(&world, &line, "rebuild");
        let rows = value["results"].as_array().unwrap();
        assert_eq!(rows.len(), 5);
        [0, 1, 4]
            .iter()
            .for_each(|row| positive(&rows[*row], &["rebuilt_bytes_per_second"]));
        rows[2..].iter().for_each(|row| {
            positive(
                row,
                &["read_p50_ns", "read_p99_ns", "write_p50_ns", "write_p99_ns"],
            )
        });
        positive(
            &value,
            &[
                "idle_ratio_ppm",
                "read_p99_ratio_ppm",
                "write_p99_ratio_ppm",
                "member_bytes",
            ],
        );
        assert_eq!(
            (
                value["goals"].as_array().unwrap().len(),
                std::fs::read_dir(world.file("scratch")).unwrap().count()
            ),
            (3, 0)
        );
    }
}

#[test]
fn nbd_compares_with_others() {
    if !installed(&["fio", "nbdkit"]) {
        return;
    }
    let world = World::new();
    let line = format!(
        "nbd {SMALL} --seconds 1 --pattern randwrite --depth 32 --dir . --peers nbdkit-memory,nbdkit-file-nocache"
    );
    let value = bench(&world, &line, "nbd");
    let rows = value["results"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    rows.iter().for_each(|row| {
        positive(
            row,
            &[
                "requests_per_second",
                "ratio_to_memory_peer_ppm",
                "ratio_to_file_peer_ppm",
                "latency_p50_ns",
            ],
        )
    });
    assert_eq!(
        value["goals"].as_array().unwrap().len(),
        3,
        "memory to memory, files to memory, files to files"
    );
}

#[test]
fn journal_study_is_the_same_every_time_and_runs_on_files_too() {
    let world = World::new();
    let line = "journal-study --size 32M --members 6 --requests 200 --workload both,data --configuration internal,memory,in-place,in-place-memory --flush 2";
    let value = bench(&world, line, "journal-study");
    let rows = value["results"].as_array().unwrap();
    // Two workloads at two load levels for four configurations; with flushes one workload for the
    // two that have them.
    assert_eq!(rows.len(), 2 * 2 * 4 + 2 * 2);
    for row in rows {
        positive(
            row,
            &[
                "requests_per_second",
                "write_bytes_per_second",
                "device_bytes_per_user_byte_ppm",
                "programmed_bytes_per_user_byte_ppm",
                "tasks",
            ],
        );
        positive(&row["read"], &["count", "p50_ns", "max_ns"]);
        assert!(
            row["read"]["p99_99_ns"].is_null(),
            "100 reads have no such percentile: {row}"
        );
        let is_base = ["internal", "in-place"].contains(&row["configuration"].as_str().unwrap());
        assert_eq!(row["to_baseline"].is_null(), is_base, "{row}");
    }
    assert_eq!(
        value["goals"].as_array().unwrap().len(),
        2,
        "IOPS with each journal device; for the percentiles there are too few samples"
    );
    assert_eq!(
        bench(&world, line, "journal-study")["results"],
        value["results"],
        "virtual time"
    );
    std::fs::create_dir(world.file("scratch")).unwrap();
    let line = "journal-study --size 32M --members 4 --seconds 0.1 --workload transaction --configuration padding,ssd,memory --pressure full --flush 0 --dir scratch";
    let value = bench(&world, line, "journal-study");
    let rows = value["results"].as_array().unwrap();
    assert_eq!(
        (
            rows.len(),
            std::fs::read_dir(world.file("scratch")).unwrap().count()
        ),
        (3, 0)
    );
    rows.iter().for_each(|row| {
        positive(
            row,
            &["requests_per_second", "device_bytes_per_user_byte_ppm"],
        )
    });
}

#[test]
fn dedup_finds_copies_with_little_memory() {
    let world = World::new();
    let line = format!(
        "dedup {SMALL} --seconds 0.05 --distinct 50 --depth 8 --image-size 8M --copies 1 --index 64K"
    );
    let value = bench(&world, &line, "dedup");
    positive(
        &value["rates"][0],
        &[
            "lz4_requests_per_second",
            "hash_requests_per_second",
            "verify_ratio_ppm",
            "hash_found_ppm",
        ],
    );
    let found = value["found"].as_array().unwrap();
    assert_eq!(found.len(), 3, "the image, a copy, a copy after a start");
    for row in &found[1..] {
        assert!(
            row["duplicates"].as_u64() > Some(1900) && row["found_ppm"].as_u64() > Some(850_000),
            "{row}"
        );
    }
    // No figure depends on time.
    let line = "dedup --part found --image-size 8M --copies 1 --index 64K";
    assert_eq!(bench(&world, line, "dedup")["found"], value["found"]);
}

/// A tree of texts and of incompressible files.
fn tree(world: &World) {
    let mut random = support::Random(3);
    for folder in 0..4 {
        let folder = world.file("tree").join(format!("folder {folder}"));
        std::fs::create_dir_all(&folder).unwrap();
        for number in 0..60 {
            let text =
                format!("file {number} says the same again and again; ").repeat(1 + 20 * number);
            let bytes = if number % 3 == 0 {
                random.bytes(1 + 700 * number)
            } else {
                text.into_bytes()
            };
            std::fs::write(folder.join(format!("file {number}")), bytes).unwrap();
        }
    }
}

#[test]
fn metadata_of_file_systems_at_rest() {
    if !installed(&["mke2fs", "debugfs", "mkfs.xfs"]) {
        return;
    }
    let world = World::new();
    tree(&world);
    let value = bench(
        &world,
        "metadata --at-rest --tree tree --bytes 64M",
        "metadata",
    );
    let rows = value["results"].as_array().unwrap();
    assert_eq!((rows.len(), value["files"].as_u64()), (2, Some(240)));
    for row in rows {
        // Each file is rounded up to blocks, and all of it is there.
        let data = row["data"]["written_bytes"].as_u64().unwrap();
        let user = row["user_bytes"].as_u64().unwrap();
        assert!(data > user && data < user + 240 * 4096, "{row}");
        assert!(
            row["metadata"]["lz4_saves_ppm"].as_u64() > Some(700_000)
                && row["metadata"]["written_bytes"].as_u64() > Some(100_000),
            "{row}"
        );
        assert!(
            row["journal"]["written_bytes"].as_u64() <= Some(8192),
            "nothing was journalled: {row}"
        );
    }
}

#[test]
fn metadata_of_mounted_file_systems() {
    if !installed(&[
        "mke2fs",
        "debugfs",
        "mkfs.xfs",
        "nbdfuse",
        "fusermount3",
        "losetup",
    ]) {
        return;
    }
    let world = World::new();
    tree(&world);
    let line = "metadata --tree tree --bytes 64M --write 8K,16K --case ext4-messages,xfs-messages";
    let output = world.run(&format!("windrow-bench {line} -o json"));
    if output.status.code() == Some(4)
        && String::from_utf8_lossy(&output.stderr).contains("--at-rest, which mounts nothing")
    {
        return eprintln!("skipped: nothing can be mounted here");
    }
    let value: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", support::both(&output)));
    let rows = value["results"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{value}");
    for row in rows {
        let number = |class: &str| row[class]["written_bytes"].as_u64().unwrap();
        let user = row["user_bytes"].as_u64().unwrap();
        // Each message is durable before the next one: the journal has at least one block for each;
        // and no block of a file is misclassified.
        assert!(
            number("data") >= user && number("data") < user + user / 10,
            "{row}"
        );
        assert!(
            number("journal") >= row["writes"].as_u64().unwrap() * 4096 && number("metadata") > 0,
            "{row}"
        );
        positive(row, &["beside_data_bytes_per_write"]);
    }
}

#[test]
fn sync_compares_a_journal_with_padding() {
    let world = World::new();
    let value = bench(
        &world,
        &format!(
            "sync {SMALL} --part writes --seconds 0.1 --settle 1 --threads 1,2 --load flush,log"
        ),
        "sync",
    );
    let rows = value["results"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 2 * 2, "{value}");
    for row in rows {
        positive(
            row,
            &[
                "writes_per_second",
                "commits_per_second",
                "member_bytes_per_user_byte_ppm",
                "member_flushes_per_commit_ppm",
            ],
        );
        let records = row["journal"]["record_bytes"].as_u64().unwrap();
        assert_eq!(records > 0, row["pool"] == "journal", "{row}");
    }
}

#[test]
fn sync_over_nbd_has_random_writes_and_a_write_ahead_log() {
    let world = World::new();
    let value = bench(
        &world,
        &format!(
            "sync {SMALL} --part writes,nbd --seconds 0.1 --settle 1 --threads 1 --load flush"
        ),
        "sync",
    );
    let Some(rows) = value["nbd"].as_array() else {
        return println!("skipped: fio is not installed");
    };
    let of = |load: &str, pool: &str| {
        rows.iter()
            .find(|row| {
                row["load"] == load && row["jobs"] == 1 && row["depth"] == 1 && row["pool"] == pool
            })
            .unwrap()
    };
    for load in ["random", "wal"] {
        let [journal, padding] = ["journal", "padding"].map(|pool| of(load, pool));
        let keys = [
            "writes_per_second",
            "flush_p50_ns",
            "member_bytes_per_user_byte_ppm",
            "member_flushes_per_flush_ppm",
        ];
        positive(journal, &keys);
        positive(padding, &keys);
        // One writer: a record goes to one more member than may be lost; a row goes to all.
        let flushes = |row: &Value| row["member_flushes_per_flush_ppm"].as_u64().unwrap();
        assert!(
            flushes(journal) < flushes(padding),
            "{load}: {journal} {padding}"
        );
    }
}

#[test]
fn reduce_compares_with_the_codec_alone() {
    let world = World::new();
    let value = bench(
        &world,
        &format!("reduce {SMALL} --seconds 0.05 --random 25,100 --depth 8"),
        "reduce",
    );
    for row in value["results"].as_array().unwrap() {
        // (Processor time is counted in ticks: at this size it may be zero.)
        positive(
            row,
            &[
                "plain_requests_per_second",
                "packed_requests_per_second",
                "tried_bytes",
            ],
        );
    }
    let packs = |at: usize| value["results"][at]["packed_user_bytes"].as_u64().unwrap();
    assert!(packs(0) > 0, "a quarter at random: {value}");
}

#[test]
fn recovery_tells_of_each_phase() {
    let world = World::new();
    let text =
        world.succeeds("windrow-bench recovery --blocks 10000 --room 400 --emergency -o json");
    let value: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(
        (value["schema"].as_str(), value["blocks"].as_u64()),
        (Some("windrow/bench-recovery/1"), Some(10_000))
    );
    positive(&value["recovery"], &["entries", "batches", "total_ns"]);
    assert!(
        value["recovery"]["phases"]
            .as_array()
            .is_some_and(|phases| !phases.is_empty()),
        "{value}"
    );
    positive(&value["recovery"]["emergency"], &["total_ns"]);
}

#[test]
fn wrong_requests_are_refused() {
    let world = World::new();
    for line in [
        "engine --block 1000",
        "read --block 512 --no-nbd",
        "rebuild --redundancy 0",
        "nbd --peers nbdkit-file",
    ] {
        let output = world.run(&format!("windrow-bench {line} --size 32M --members 4"));
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let known = error.starts_with("windrow: WR-CLI-001")
            || (line.starts_with("nbd") && error.contains("WR-CLI-004"));
        assert!(output.status.code() == Some(4) && known, "{line}: {error}");
    }
    assert_eq!(
        world.run("windrow-bench engine --seconds 0").status.code(),
        Some(2)
    );
    assert_eq!(
        world
            .run("windrow-bench metadata --case ntfs")
            .status
            .code(),
        Some(2)
    );
    assert_eq!(
        world.run("windrow-bench table --rounds 0").status.code(),
        Some(2)
    );
    assert_eq!(
        world
            .run("windrow-bench journal-study --configuration mirror")
            .status
            .code(),
        Some(2)
    );
}

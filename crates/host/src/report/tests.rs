use super::*;
use crate::scrub::LostBlock;
use windrow_engine::ScrubState;
use windrow_types::MemberId;

/// A report with all the values that readers should handle.
pub(crate) fn sample() -> PoolReport {
    let written = WrittenBytes {
        user: 60,
        parity: 30,
        header: 10,
        ..WrittenBytes::default()
    };
    PoolReport {
        schema: POOL_SCHEMA.to_owned(),
        pool: Uuid([7; 16]),
        name: "ta\"nk".to_owned(),
        redundancy: "6".to_owned(),
        state: "degraded".to_owned(),
        stop_reason: None,
        nbd: Some(crate::ConnectionReport {
            connections: 2,
            connections_max: 256,
            refused: 3,
            memory_bytes: 4096,
            memory_bytes_max: 1 << 28,
            ..Default::default()
        }),
        next_step: None,
        data: DataReport {
            state: DataState::Damaged,
            lost_blocks: 7,
            ..DataReport::default()
        },
        refuses_data: false,
        map_full: false,
        dropped_log_lines: 5,
        dropped_events: 0,
        served: true,
        generation: 3,
        epoch: 2,
        members: vec![MemberReport {
            member: MemberId(0).0,
            uuid: Uuid([9; 16]),
            path: "/dev/x".to_owned(),
            last_path: "/dev/x".to_owned(),
            model: "M".to_owned(),
            serial: "S".to_owned(),
            seen_unix_s: 0,
            reason: String::new(),
            since_unix_s: 0,
            state: "online".to_owned(),
            size_bytes: 1 << 30,
            slow: false,
            hangs_ms: 0,
            unanswered: 0,
            spare_in_seconds: None,
            replaces: None,
            leaving: false,
            journal: false,
            counters: MemberCounters {
                written,
                ..MemberCounters::default()
            },
        }],
        exports: vec![ExportReport {
            name: "da\"ta".to_owned(),
            volume: "data".to_owned(),
            size_bytes: 1 << 20,
            read_only: false,
            description: String::new(),
            default: false,
            clients: vec![crate::ClientReport {
                client: 3,
                export: "da\"ta".to_owned(),
                by_default: false,
                peer: "unix pid 1 uid 0".to_owned(),
                since_unix_s: 1,
                reads: 0,
                read_bytes: 0,
                writes: 0,
                written_bytes: 0,
                errors: 0,
                in_flight: 0,
            }],
        }],
        volumes: vec![VolumeReport {
            id: VolumeId(1),
            name: "data".to_owned(),
            size_bytes: 1 << 20,
            mapped_bytes: 4096,
            sync: Default::default(),
            compression: Default::default(),
            dedup: Default::default(),
            shared_bytes: 0,
            stored_bytes: 4096,
            exclusive_bytes: None,
            read_only: false,
            deleting: false,
        }],
        placement: PlacementReport::default(),
        properties: PropertyReport {
            spare_per_mille: 100,
            seal_age_ms: 50,
            victim_policy: "greedy".to_owned(),
            discard: true,
            ..PropertyReport::from(&windrow_format::superblock::Properties::DEFAULT)
        },
        capacity: CapacityReport {
            data_bytes: 1000,
            usable_bytes: 900,
            used_bytes: 60,
            segments: 10,
            free_segments: 8,
            data_segments: 0,
            data_live_bytes: 0,
            reserve_segments: 1,
            zones: Vec::new(),
            reduction: Default::default(),
        },
        space: SpaceReport {
            provisioned_bytes: 1 << 20,
            logical_bytes: 4096,
            unique_bytes: 4096,
            stored_bytes: 2048,
            ..SpaceReport::default()
        },
        bounds: BoundsReport {
            limits: Limits::default(),
            map_bytes: 1,
            map_bytes_full: 2,
            map_data_bytes_max: None,
            dedup_bytes: 0,
            dedup_bytes_max: 0,
            map_pages: 5,
            map_pages_max: 6,
            refused_map_pages: 7,
            refused_space: 8,
            pending_bytes: 3,
            at_risk_bytes: 4,
            users_per_1024_gained: Some(512),
            held_commands: 9,
        },
        counters: CounterReport {
            user_write_bytes: 60,
            user_read_bytes: 0,
            fill_blocks: 0,
            reduction: Default::default(),
            dedup: Default::default(),
            flushes: 1,
            checkpoints: 1,
            segments_cleaned: 0,
            lsn: 15,
            durable_lsn: 15,
            written,
            lifetime_user_bytes: 60,
            lifetime_member_bytes: 100,
            lifetime_reduction: Default::default(),
            lifetime_dedup: Default::default(),
        },
        amplification: AmplificationReport::new(&written, 60),
        rebuild: RebuildReport {
            members: vec![1],
            segments_done: 2,
            segments_total: 5,
            written_bytes: 20,
            total_bytes: 50,
            bytes_per_second: 3,
            left_seconds: Some(10),
            ..RebuildReport::default()
        },
        reshape: windrow_engine::ReshapeStatus::default(),
        journal: windrow_engine::JournalStatus::default(),
        stages: vec![windrow_engine::StageTimes {
            stage: "write_admission".to_owned(),
            times: windrow_types::LatencySummary {
                count: 3,
                mean_ns: 7,
                p50_ns: 6,
                p90_ns: 8,
                p99_ns: 9,
                p99_9_ns: 9,
                p99_99_ns: 9,
                max_ns: 9,
            },
        }],
        scrub: ScrubReport {
            state: ScrubState::Running,
            started_unix_s: 1_700_000_000,
            ended_unix_s: 0,
            completed_unix_s: 1_690_000_000,
            next_unix_s: None,
            active_ms: 1500,
            bytes_per_second: 9,
            segments_done: 4,
            segments_total: 10,
            batches: 11,
            read_bytes: 300,
            left_bytes: 700,
            shown_per_mille: 0,
            wrong_blocks: 12,
            moved_blocks: 13,
            unmoved_blocks: 15,
            lost_blocks: 1,
            damaged_batches: 14,
            lost: vec![LostBlock {
                volume: "data".to_owned(),
                block: 5,
            }],
        },
        latency: LatencyReport::default(),
    }
}

#[test]
fn amplification_in_exact_millionths() {
    let written = WrittenBytes {
        user: 4_000_000,
        moved: 1_000_000,
        parity: 1_333_333,
        header: 40_000,
        superblock: 1,
        ..WrittenBytes::default()
    };
    let report = AmplificationReport::new(&written, 4_000_000);
    assert_eq!(report.cleaning_ppm, 1_250_000);
    assert_eq!(report.total_ppm, 6_373_334 * 1_000_000 / 4_000_000);
    assert_eq!(report.header_ppm, 10_000);
    assert_eq!(
        (report.stored_ppm, report.per_stored_ppm),
        (1_000_000, report.total_ppm)
    );
    let reduced = AmplificationReport::new(
        &WrittenBytes {
            user: 1_000_000,
            ..written
        },
        4_000_000,
    );
    assert_eq!(
        (reduced.stored_ppm, reduced.per_stored_ppm),
        (250_000, 3_373_334),
        "of each byte a quarter is stored"
    );
    assert_eq!(
        AmplificationReport::new(&WrittenBytes::default(), 0),
        AmplificationReport::default(),
        "nothing written divides nothing"
    );
}

#[test]
fn a_rebuild_shows_its_share_and_its_end() {
    let status = RebuildStatus {
        members: vec![MemberId(1), MemberId(4)],
        segments_done: 2,
        segments_total: 5,
        read_bytes: 160,
        ..RebuildStatus::default()
    };
    let of = |written_bytes, left_bytes, bytes_per_second| -> RebuildReport {
        (&RebuildStatus {
            written_bytes,
            left_bytes,
            bytes_per_second,
            damaged_batches: 3,
            ..status.clone()
        })
            .into()
    };
    let expected = serde_json::json!({
        "members": [1, 4], "segments_done": 2, "segments_total": 5, "read_bytes": 160, "written_bytes": 40, "total_bytes": 131,
        "bytes_per_second": 9, "left_seconds": 10, "waits_seconds": 0, "damaged_batches": 3,
    });
    assert_eq!(serde_json::to_value(of(40, 91, 9)).unwrap(), expected);
    assert_eq!(
        serde_json::to_value(of(40, 91, 0)).unwrap()["left_seconds"],
        serde_json::Value::Null,
        "it does not move"
    );
    assert_eq!(of(0, 0, 0).left_seconds, None);
    for (written, left, per_mille) in [
        (0, 0, 0),
        (0, 91, 0),
        (40, 91, 305),
        (1, 999, 1),
        (9999, 1, 999),
        (u64::MAX / 2, u64::MAX / 2, 500),
    ] {
        assert_eq!(
            of(written, left, 9).done_per_mille(),
            per_mille,
            "{written} and {left}"
        );
    }
    // All is written, but the end is not recorded: the rebuild is done when no member is rebuilt
    // any more.
    assert_eq!(of(131, 0, 9).done_per_mille(), 999);
    assert_eq!(
        RebuildReport {
            members: Vec::new(),
            ..of(131, 0, 0)
        }
        .done_per_mille(),
        1000
    );
}

#[test]
fn a_report_survives_json() {
    let report = sample();
    let text = serde_json::to_string(&report).unwrap();
    let back: PoolReport = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&back).unwrap(), text);
    assert_eq!(back.bounds.users_per_1024_gained, Some(512));
    assert_eq!(
        (
            back.exit_code(),
            back.volume("data").map(|volume| volume.id)
        ),
        (5, Some(VolumeId(1)))
    );
}

#[test]
fn a_pool_that_fills_has_an_exit_code_of_its_own_while_it_is_online() {
    let mut report = sample();
    for (data, codes) in [
        (DataState::Intact, [0, 3, 1, 2]),
        (DataState::Damaged, [5, 5, 5, 2]),
        (DataState::Unknown, [5, 5, 5, 2]),
    ] {
        for ((state, warned), code) in [
            ("online", 0),
            ("online", 80),
            ("degraded", 80),
            ("stopped", 80),
        ]
        .into_iter()
        .zip(codes)
        {
            (report.state, report.space.warned_percent, report.data.state) =
                (state.to_owned(), warned, data);
            assert_eq!(report.exit_code(), code, "{state} {warned} {data:?}");
        }
    }
}

#[test]
fn the_report_of_a_daemon_without_stages_is_understood() {
    let mut value = serde_json::to_value(sample()).unwrap();
    assert_eq!(
        (&value["stages"][0]["stage"], &value["stages"][0]["p50_ns"]),
        (&"write_admission".into(), &6.into())
    );
    value.as_object_mut().unwrap().remove("stages");
    value["bounds"]
        .as_object_mut()
        .unwrap()
        .remove("held_commands");
    let report: PoolReport = serde_json::from_value(value).unwrap();
    assert_eq!((report.stages.len(), report.bounds.held_commands), (0, 0));
}

#[test]
fn the_report_of_a_daemon_before_zstd_is_understood() {
    let mut value = serde_json::to_value(sample()).unwrap();
    let counters = value["counters"].as_object_mut().unwrap();
    counters["reduction"] = serde_json::json!({"tried_bytes": 1, "compressed_user_bytes": 2, "lz4_bytes": 3, "stored_bytes": 4, "area_bytes": 5});
    counters["dedup"]["sums"] = serde_json::json!({"looked_up": 6});
    counters["written"].as_object_mut().unwrap().remove("index");
    let report: PoolReport = serde_json::from_value(value).unwrap();
    let counters = &report.counters;
    assert_eq!(
        (
            counters.reduction.codec_bytes,
            counters.dedup.sums.looked_up,
            counters.written.index
        ),
        (3, 6, 0)
    );
    let recorded: crate::recorder::Recorded = serde_json::from_str(r#"["w",4096,512,9]"#).unwrap();
    assert_eq!((recorded.1, recorded.4.0), (4096, 0));
}

#[test]
fn the_report_of_a_daemon_without_scrub_is_understood() {
    let mut value = serde_json::to_value(sample()).unwrap();
    value.as_object_mut().unwrap().remove("scrub");
    let report: PoolReport = serde_json::from_value(value).unwrap();
    assert_eq!(report.scrub, ScrubReport::default());
}

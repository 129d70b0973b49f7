use super::*;
use crate::rounding::printed;

const NVME: &str = r#"{"model_name":"A drive","user_capacity":{"bytes":1000000000000},"power_on_time":{"hours":8760},
    "nvme_smart_health_information_log":{"percentage_used":5,"data_units_written":200000000,"power_on_hours":8760}}"#;

#[test]
fn an_nvme_log_of_smartctl() {
    let health = parse(NVME).expect("a report");
    assert_eq!(
        (
            health.host_bytes,
            health.used_percent,
            health.power_on_hours
        ),
        (Some(102_400_000_000_000), Some(5), Some(8760))
    );
    let found = findings(&health, None);
    // 102.4 overwrites in a year took 5 %: 2048 in total, so 1.12 a day for five years, and 19
    // years more at this load.
    assert_eq!(found.wear_amplification, None);
    assert_eq!(
        found.overwrites_per_day.map(|value| printed(value, 3)),
        Some("0.281".into())
    );
    assert_eq!(
        (
            found.days_left.map(|days| printed(days, 0)),
            found
                .rated_overwrites_per_day
                .map(|value| printed(value, 2))
        ),
        (Some("6,935".into()), Some("1.12".into()))
    );
}

#[test]
fn flash_bytes_make_the_amplification() {
    let ocp = parse(r#"{"Physical media units written":{"hi":0,"lo":307200000000000}}"#)
        .expect("a report");
    let both = Health {
        flash_bytes: ocp.flash_bytes,
        ..parse(NVME).expect("a report")
    };
    assert_eq!(findings(&both, None).wear_amplification, Some(3.0));
    // 1.12 overwrites a day of a load that the drive tripled: the flash sustains 3.37, or 6144
    // cycles.
    let drive = as_drive(&both, &findings(&both, None)).expect("its size is known");
    assert_eq!(
        (
            drive.erase_cycles.map(|cycles| printed(cycles, 0)),
            drive.overwrites_per_day
        ),
        (Some("6,144".into()), None)
    );
    assert_eq!(
        drive.linear_rating().map(|rating| printed(rating, 2)),
        Some("3.37".into())
    );
    let plain = parse(r#"{"percent_used":7,"data_units_written":"12","power_on_hours":1}"#)
        .expect("a report");
    assert_eq!(
        (plain.used_percent, plain.host_bytes),
        (Some(7), Some(12 * 512_000))
    );
}

#[test]
fn a_drive_that_was_written_linearly_does_not_say_what_random_writes_would_cost() {
    let health = parse(NVME).expect("a report");
    let inside = |flash_bytes: u128| {
        let both = Health {
            flash_bytes: Some(flash_bytes),
            ..health.clone()
        };
        let drive = as_drive(&both, &findings(&both, None)).expect("its size is known");
        (
            drive.wear_amplification,
            drive.linear_rating().is_some(),
            drive.rating_is_net(),
        )
    };
    assert_eq!(
        inside(103_424_000_000_000),
        (None, true, false),
        "1.01: under a log"
    );
    assert_eq!(inside(204_800_000_000_000), (Some(2.0), true, false));
}

/// Measurement of an M500 in the 2017 paper: host and background program pages.
#[test]
fn ata_attributes_by_name() {
    let text = r#"{"ata_smart_attributes":{"table":[{"name":"Total_LBAs_Written","value":100,"raw":{"value":2000}},
        {"name":"Host_Program_Page_Count","raw":{"value":1000}},{"name":"FTL_Program_Page_Count","raw":{"value":8652}},
        {"name":"Percent_Lifetime_Remain","value":91,"raw":{"value":9}},{"name":"Unknown","raw":{"value":1}},{"raw":3}]}}"#;
    let health = parse(text).expect("a report");
    assert_eq!(
        (health.host_bytes, health.used_percent),
        (Some(1_024_000), Some(9))
    );
    assert_eq!(
        findings(
            &health,
            page_counts(&serde_json::from_str(text).expect("JSON"))
        )
        .wear_amplification,
        Some(9.652)
    );
}

#[test]
fn what_is_no_report_is_refused_and_nothing_panics() {
    assert!(matches!(parse("{"), Err(HealthError::Syntax(_))));
    for text in [
        "{}",
        "[]",
        "3",
        r#"{"data_units_written":-1}"#,
        r#"{"ata_smart_attributes":{"table":[3]}}"#,
    ] {
        assert_eq!(parse(text), Err(HealthError::Nothing), "{text}");
    }
    // More than possible: omitted, not wrapped around.
    let huge = format!(
        r#"{{"percent_used":1,"data_units_written":"{}"}}"#,
        u128::MAX
    );
    assert_eq!(parse(&huge).expect("a report").host_bytes, None);
    assert_eq!(
        findings(
            &Health {
                used_percent: Some(0),
                power_on_hours: Some(0),
                ..Health::default()
            },
            Some((0, 5))
        ),
        Findings::default()
    );
}

/// A report of one of two drives, with a serial number.
fn report(serial: &str, more: &str) -> String {
    format!(
        r#"{{"serial_number":"{serial}","nvme_smart_health_information_log":{{"percentage_used":5,"data_units_written":1000,"power_on_hours":10}}{more}}}"#
    )
}

#[test]
fn the_capacity_of_an_nvme_drive_is_all_of_it() {
    let capacity = |more: &str| parse(&report("A", more)).expect("a report").capacity_bytes;
    assert_eq!(
        capacity(r#","nvme_total_capacity":7681501126656,"nvme_unallocated_capacity":0"#),
        Some(7_681_501_126_656)
    );
    assert_eq!(
        capacity(r#","nvme_total_capacity":7681501126656,"user_capacity":{"bytes":1000000000000}"#),
        Some(7_681_501_126_656)
    );
    assert_eq!(
        capacity(r#","nvme_total_capacity":0,"user_capacity":{"bytes":1000000000000}"#),
        Some(1_000_000_000_000)
    );
    assert_eq!(capacity(""), None);
}

/// 10^9 of the maker's LBAs; sectors of 4 KiB, by the report or by the standard's own count.
#[test]
fn sectors_written_are_sectors_of_the_report() {
    let ata = |more: &str| {
        let table = r#"[{"name":"Total_LBAs_Written","value":100,"raw":{"value":25000000000}},{"name":"Wear_Leveling_Count","value":95,"raw":{"value":50}}]"#;
        parse(&format!(
            r#"{{"ata_smart_attributes":{{"table":{table}}}{more}}}"#
        ))
        .expect("a report")
    };
    let statistics = |valid: bool| {
        format!(
            r#","ata_device_statistics":{{"pages":[{{"number":1,"table":[{{"offset":24,"value":3000,"flags":{{"valid":{valid}}}}},{{"offset":16,"value":77}}]}},
            {{"number":7,"table":[{{"offset":8,"value":12,"flags":{{"valid":{valid}}}}}]}}]}}"#
        )
    };
    let health = ata("");
    assert!(
        health.host_bytes == Some(25_000_000_000 * 512)
            && health.assumed.len() == 1
            && health.assumed[0].contains("512 bytes"),
        "{health:?}"
    );
    let health = ata(r#","logical_block_size":4096"#);
    assert!(
        health.host_bytes == Some(102_400_000_000_000) && health.assumed[0].contains("4096 bytes"),
        "{health:?}"
    );
    let health = ata(&format!(
        r#","logical_block_size":4096{}"#,
        statistics(true)
    ));
    assert_eq!(
        (
            health.host_bytes,
            health.used_percent,
            health.power_on_hours,
            health.assumed.len()
        ),
        (Some(3000 * 4096), Some(12), Some(77), 0)
    );
    let health = ata(&format!(
        r#","logical_block_size":4096{}"#,
        statistics(false)
    ));
    assert_eq!(
        (health.host_bytes, health.used_percent),
        (Some(102_400_000_000_000), Some(5)),
        "what the drive calls invalid does not count"
    );
    let named = parse(r#"{"logical_block_size":4096,"ata_smart_attributes":{"table":[{"name":"Host_Writes_32MiB","raw":{"value":2}}]}}"#).expect("a report");
    assert_eq!((named.host_bytes, named.assumed.len()), (Some(64 << 20), 0));
}

#[test]
fn reports_of_sas() {
    let text = r#"{"device":{"type":"scsi","protocol":"SCSI"},"scsi_model_name":"VENDOR SAS 1T6","serial_number":"Z1","user_capacity":{"bytes":1600321314816},"logical_block_size":512,
        "power_on_time":{"hours":26195,"minutes":0},"scsi_percentage_used_endurance_indicator":11,
        "scsi_error_counter_log":{"read":{"gigabytes_processed":"9.000"},"write":{"gigabytes_processed":"123456.789","total_uncorrected_errors":0}}}"#;
    let health = parse(text).expect("a report");
    assert_eq!(
        (
            health.model.as_deref(),
            health.host_bytes,
            health.used_percent
        ),
        (Some("VENDOR SAS 1T6"), Some(123_456_789_000_000), Some(11))
    );
    let found = findings(&health, None);
    assert_eq!(
        found.overwrites_per_day.map(|value| printed(value, 4)),
        Some("0.0707".into())
    );
    let newer = parse(r#"{"endurance_used":{"current_percent":3},"scsi_error_counter_log":{"write":{"gigabytes_processed":12}}}"#).expect("a report");
    assert_eq!(
        (newer.host_bytes, newer.used_percent),
        (Some(12_000_000_000), Some(3))
    );
    for text in ["-1", "1e5", "x", "", ".5", "1.2.3"] {
        assert_eq!(gigabytes(text), None, "{text}");
    }
}

#[test]
fn several_drives_are_kept_apart() {
    let (one, other) = (
        report("A", r#","model_name":"M""#),
        report("B", r#","model_name":"M""#),
    );
    let drives = |text: &str| {
        parse_all(text).and_then(by_drive).map(|drives| {
            drives
                .into_iter()
                .map(|drive| drive.health.serial)
                .collect::<Vec<_>>()
        })
    };
    let both = Ok(vec![Some("A".to_owned()), Some("B".to_owned())]);
    assert_eq!(
        (
            drives(&format!("{one}\n{other}\n")),
            drives(&format!("[{one},{other}]")),
            drives(&format!("{one}{one}{other}"))
        ),
        (both.clone(), both.clone(), both)
    );
    // A log without a serial number belongs to the preceding drive, unless it contradicts it.
    let plain = r#"{"percent_used":5,"data_units_written":"1001","power_on_hours":10}"#;
    let joined = parse_all(&format!("{one}{plain}"))
        .and_then(by_drive)
        .expect("one drive");
    assert!(
        joined.len() == 1
            && joined[0].health.host_bytes == Some(1001 * 512_000)
            && joined[0].health.model.as_deref() == Some("M")
    );
    let other = r#"{"percent_used":5,"data_units_written":"2000","power_on_hours":10}"#;
    assert!(
        matches!(drives(&format!("{one}{other}")), Err(HealthError::Ambiguous(why)) if why.contains("what the host wrote"))
    );
    assert!(matches!(
        drives(&format!("{plain}{other}")),
        Err(HealthError::Ambiguous(_))
    ));
    // An empty one is named.
    let empty = r#"{"device":{"name":"/dev/sdb"}}"#;
    assert_eq!(
        drives(&format!("{one}{empty}"))
            .expect_err("empty")
            .to_string(),
        "report 2 of 2 in it has no health figures (/dev/sdb)"
    );
    assert_eq!(
        (drives("[]"), drives("")),
        (Err(HealthError::Nothing), Err(HealthError::Nothing))
    );
    assert!(matches!(
        drives(&format!("{one}{{")),
        Err(HealthError::Syntax(_))
    ));
}

//! What drives say of themselves, from the JSON of `smartctl -j -a`, `nvme smart-log -o json` and `nvme ocp smart-add-log -o json`.
//!
//! Bytes written by the host and bytes written to flash give the amplification inside the drive, measured over its whole life; wear in
//! per cent and the hours it took give what is left at the same load. Makers name ATA attributes as they like and count in their own units; only
//! attributes whose name says the unit, or whose unit is the same with all makers that use the name, are read.

use crate::drive::Drive;
use serde::Serialize;
use serde_json::Value;

/// A drive's figures; what it does not say is `None`.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Health {
    /// Model.
    pub model: Option<String>,
    /// Capacity in bytes.
    pub capacity_bytes: Option<u64>,
    /// Bytes the host has written.
    pub host_bytes: Option<u128>,
    /// Bytes written to flash.
    pub flash_bytes: Option<u128>,
    /// Share of the rated life that is used, in per cent; beyond 100 it goes on counting.
    pub used_percent: Option<u64>,
    /// Hours under power.
    pub power_on_hours: Option<u64>,
}

/// Text that is no such report.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HealthError {
    /// Not JSON.
    #[error("not JSON: {0}")]
    Syntax(String),
    /// JSON with nothing in it that is known here.
    #[error("no health figures in it: neither an NVMe log nor ATA attributes")]
    Nothing,
}

/// NVMe counts in thousands of sectors of 512 bytes.
const DATA_UNIT: u128 = 512_000;

/// Reads one report.
pub fn parse(text: &str) -> Result<Health, HealthError> {
    let json: Value = serde_json::from_str(text).map_err(|error| HealthError::Syntax(error.to_string()))?;
    let mut health = Health {
        model: json.get("model_name").and_then(Value::as_str).map(str::to_owned),
        capacity_bytes: json.pointer("/user_capacity/bytes").and_then(number).and_then(|bytes| u64::try_from(bytes).ok()),
        power_on_hours: json.pointer("/power_on_time/hours").and_then(hours),
        ..Health::default()
    };
    nvme(json.get("nvme_smart_health_information_log").unwrap_or(&json), &mut health);
    ocp(&json, &mut health);
    if let Some(table) = json.pointer("/ata_smart_attributes/table").and_then(Value::as_array) {
        table.iter().for_each(|attribute| ata(attribute, &mut health));
    }
    let says = health.host_bytes.is_some() || health.flash_bytes.is_some() || health.used_percent.is_some();
    if says { Ok(health) } else { Err(HealthError::Nothing) }
}

/// A number, also as text, and as the 128 bits in halves that some tools write.
fn number(value: &Value) -> Option<u128> {
    match value {
        Value::Number(number) => number.as_u64().map(u128::from),
        Value::String(text) => text.trim().parse().ok(),
        Value::Object(_) => {
            let part = |name: &str| value.get(name).and_then(Value::as_u64).map(u128::from);
            Some((part("hi")? << 64) | part("lo")?)
        }
        _ => None,
    }
}

fn hours(value: &Value) -> Option<u64> {
    number(value).and_then(|hours| u64::try_from(hours).ok())
}

fn nvme(log: &Value, health: &mut Health) {
    let units = log.get("data_units_written").and_then(number);
    health.host_bytes = units.and_then(|units| units.checked_mul(DATA_UNIT));
    let used = log.get("percentage_used").or_else(|| log.get("percent_used")).and_then(number);
    health.used_percent = used.and_then(|used| u64::try_from(used).ok());
    if let Some(known) = log.get("power_on_hours").and_then(hours) {
        health.power_on_hours = Some(known);
    }
}

/// The log of the Open Compute Project for data centre drives: bytes written to the media.
fn ocp(json: &Value, health: &mut Health) {
    let written = json.get("Physical media units written").or_else(|| json.get("physical_media_units_written"));
    if let Some(bytes) = written.and_then(number) {
        health.flash_bytes = Some(bytes);
    }
}

/// One ATA attribute. `raw` is what the maker counts, `value` runs from 100 down.
fn ata(attribute: &Value, health: &mut Health) {
    let Some(name) = attribute.get("name").and_then(Value::as_str) else { return };
    let raw = attribute.pointer("/raw/value").and_then(number);
    let times = |unit: u128| raw.and_then(|raw| raw.checked_mul(unit));
    let left = attribute.get("value").and_then(Value::as_u64).filter(|value| *value <= 100);
    match name {
        "Total_LBAs_Written" | "Total_Host_Sector_Write" => health.host_bytes = times(512),
        "Host_Writes_32MiB" => health.host_bytes = times(32 << 20),
        "Host_Writes_GiB" | "Lifetime_Writes_GiB" => health.host_bytes = times(1 << 30),
        "NAND_Writes_32MiB" => health.flash_bytes = times(32 << 20),
        "NAND_Writes_1GiB" | "NAND_Writes_GiB" => health.flash_bytes = times(1 << 30),
        "Percent_Lifetime_Used" => health.used_percent = raw.and_then(|raw| u64::try_from(raw).ok()),
        "Percent_Lifetime_Remain" | "SSD_Life_Left" | "Media_Wearout_Indicator" | "Wear_Leveling_Count" if health.used_percent.is_none() => {
            health.used_percent = left.map(|left| 100 - left);
        }
        _ => {}
    }
}

/// Pages programmed for the host and in the background (Crucial and Micron): amplification without knowing the size of a page.
pub fn page_counts(text: &str) -> Option<(u128, u128)> {
    let json: Value = serde_json::from_str(text).ok()?;
    let table = json.pointer("/ata_smart_attributes/table")?.as_array()?;
    let of = |names: &[&str]| {
        let attribute = table.iter().find(|attribute| attribute.get("name").and_then(Value::as_str).is_some_and(|name| names.contains(&name)))?;
        attribute.pointer("/raw/value").and_then(number)
    };
    Some((of(&["Host_Program_Page_Count"])?, of(&["FTL_Program_Page_Count", "Bckgnd_Program_Page_Cnt", "Bckgnd_Program_Page_Count"])?))
}

/// What follows from the figures.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Findings {
    /// Bytes to flash for each byte of the host, over the drive's life.
    pub wear_amplification: Option<f64>,
    /// Overwrites of the capacity each day so far.
    pub overwrites_per_day: Option<f64>,
    /// Days left until the rated life is used, at the same load.
    pub days_left: Option<f64>,
    /// Overwrites a day for five years that the wear so far allows: the drive's own rating for this load.
    pub rated_overwrites_per_day: Option<f64>,
}

/// Draws the conclusions. `pages` are the counts of [`page_counts`].
pub fn findings(health: &Health, pages: Option<(u128, u128)>) -> Findings {
    let ratio = |over: u128, under: u128| (under > 0).then(|| over as f64 / under as f64);
    let by_bytes = health.flash_bytes.zip(health.host_bytes).and_then(|(flash, host)| ratio(flash, host));
    let by_pages = pages.and_then(|(host, own)| ratio(host.saturating_add(own), host));
    let days = health.power_on_hours.filter(|hours| *hours > 0).map(|hours| hours as f64 / 24.0);
    let capacity = health.capacity_bytes.filter(|bytes| *bytes > 0).map(|bytes| bytes as f64);
    let overwrites = health.host_bytes.zip(capacity).map(|(host, capacity)| host as f64 / capacity);
    let used = health.used_percent.filter(|used| *used > 0).map(|used| used as f64 / 100.0);
    Findings {
        wear_amplification: by_bytes.or(by_pages),
        overwrites_per_day: overwrites.zip(days).map(|(overwrites, days)| overwrites / days),
        days_left: used.zip(days).map(|(used, days)| (days / used - days).max(0.0)),
        rated_overwrites_per_day: overwrites.zip(used).map(|(overwrites, used)| overwrites / used / crate::FIVE_YEARS_DAYS),
    }
}

/// Amplification inside a drive below which its load so far was linear, as under a log: that says nothing of what it would make of random writes in place.
pub const LINEAR_WEAR_MOST: f64 = 1.2;

/// The drive as it has measured itself: its rating is what its wear says of the load so far, its inside what it made of it, unless that load was linear.
/// `None` if it does not say its capacity.
pub fn as_drive(health: &Health, found: &Findings) -> Option<Drive> {
    let capacity = health.capacity_bytes.filter(|bytes| *bytes > 0)? as f64;
    let positive = |value: Option<f64>| value.filter(|value| *value > 0.0);
    let (rated, wear) = (positive(found.rated_overwrites_per_day), positive(found.wear_amplification));
    Some(Drive {
        id: "measured".to_owned(),
        name: health.model.clone().unwrap_or_else(|| "unnamed".to_owned()),
        class: "measured".to_owned(),
        capacity_gb: capacity / 1e9,
        price: None,
        currency: None,
        random_write_iops: None,
        random_read_iops: None,
        linear_write_mb_s: None,
        // What the load so far wore, without what the drive added to it.
        erase_cycles: rated.zip(wear).map(|(rated, wear)| rated * wear * crate::FIVE_YEARS_DAYS),
        overwrites_per_day: if wear.is_none() { rated } else { None },
        wear_amplification: wear.filter(|wear| *wear >= LINEAR_WEAR_MOST),
        source: "the drive's own report".to_owned(),
        year: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounding::printed;

    const NVME: &str = r#"{"model_name":"A drive","user_capacity":{"bytes":1000000000000},"power_on_time":{"hours":8760},
        "nvme_smart_health_information_log":{"percentage_used":5,"data_units_written":200000000,"power_on_hours":8760}}"#;

    #[test]
    fn an_nvme_log_of_smartctl() {
        let health = parse(NVME).expect("a report");
        assert_eq!((health.host_bytes, health.used_percent, health.power_on_hours), (Some(102_400_000_000_000), Some(5), Some(8760)));
        let found = findings(&health, None);
        // 102.4 overwrites in a year took 5 %: 2048 in all, so 1.12 a day for five years, and 19 years more at this load.
        assert_eq!(found.wear_amplification, None);
        assert_eq!(found.overwrites_per_day.map(|value| printed(value, 3)), Some("0.281".into()));
        assert_eq!(
            (found.days_left.map(|days| printed(days, 0)), found.rated_overwrites_per_day.map(|value| printed(value, 2))),
            (Some("6,935".into()), Some("1.12".into()))
        );
    }

    #[test]
    fn flash_bytes_make_the_amplification() {
        let ocp = parse(r#"{"Physical media units written":{"hi":0,"lo":307200000000000}}"#).expect("a report");
        let both = Health { flash_bytes: ocp.flash_bytes, ..parse(NVME).expect("a report") };
        assert_eq!(findings(&both, None).wear_amplification, Some(3.0));
        // 1.12 overwrites a day of a load that the drive tripled: the flash stands 3.37, or 6144 cycles.
        let drive = as_drive(&both, &findings(&both, None)).expect("its size is known");
        assert_eq!((drive.erase_cycles.map(|cycles| printed(cycles, 0)), drive.overwrites_per_day), (Some("6,144".into()), None));
        assert_eq!(drive.linear_rating().map(|rating| printed(rating, 2)), Some("3.37".into()));
        let plain = parse(r#"{"percent_used":7,"data_units_written":"12","power_on_hours":1}"#).expect("a report");
        assert_eq!((plain.used_percent, plain.host_bytes), (Some(7), Some(12 * 512_000)));
    }

    #[test]
    fn a_drive_that_was_written_linearly_does_not_say_what_random_writes_would_cost() {
        let health = parse(NVME).expect("a report");
        let inside = |flash_bytes: u128| {
            let both = Health { flash_bytes: Some(flash_bytes), ..health.clone() };
            let drive = as_drive(&both, &findings(&both, None)).expect("its size is known");
            (drive.wear_amplification, drive.linear_rating().is_some(), drive.rating_is_net())
        };
        assert_eq!(inside(103_424_000_000_000), (None, true, false), "1.01: under a log");
        assert_eq!(inside(204_800_000_000_000), (Some(2.0), true, false));
    }

    /// The way the 2017 paper measured an M500: host and background program pages.
    #[test]
    fn ata_attributes_by_name() {
        let text = r#"{"ata_smart_attributes":{"table":[{"name":"Total_LBAs_Written","value":100,"raw":{"value":2000}},
            {"name":"Host_Program_Page_Count","raw":{"value":1000}},{"name":"FTL_Program_Page_Count","raw":{"value":8652}},
            {"name":"Percent_Lifetime_Remain","value":91,"raw":{"value":9}},{"name":"Unknown","raw":{"value":1}},{"raw":3}]}}"#;
        let health = parse(text).expect("a report");
        assert_eq!((health.host_bytes, health.used_percent), (Some(1_024_000), Some(9)));
        assert_eq!(findings(&health, page_counts(text)).wear_amplification, Some(9.652));
    }

    #[test]
    fn what_is_no_report_is_refused_and_nothing_panics() {
        assert!(matches!(parse("{"), Err(HealthError::Syntax(_))));
        for text in ["{}", "[]", "3", r#"{"data_units_written":-1}"#, r#"{"ata_smart_attributes":{"table":[3]}}"#] {
            assert_eq!(parse(text), Err(HealthError::Nothing), "{text}");
        }
        // More than there can be: left out, not wrapped round.
        let huge = format!(r#"{{"percent_used":1,"data_units_written":"{}"}}"#, u128::MAX);
        assert_eq!(parse(&huge).expect("a report").host_bytes, None);
        assert_eq!(findings(&Health { used_percent: Some(0), power_on_hours: Some(0), ..Health::default() }, Some((0, 5))), Findings::default());
    }
}

//! Health figures reported by drives, from the JSON of `smartctl -j -a` (`-x` for more),
//! `nvme smart-log -o json` and `nvme ocp smart-add-log -o json`.
//!
//! Bytes written by the host and bytes written to flash give the amplification inside the drive,
//! measured over its whole lifetime; wear in per cent and the hours it took give the remaining
//! lifetime at the same load. Makers choose names and units of ATA attributes freely. Standardized
//! figures of a report (device statistics of ATA, logs of NVMe and SCSI) take precedence. Sector
//! attributes are assumed to count logical sectors of the reported size, and [`Health::assumed`]
//! records that.

use crate::drive::Drive;
use serde::Serialize;
use serde_json::Value;

/// Figures of a drive; unreported ones are `None`.
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
    /// Used share of the rated lifetime, in per cent; it may exceed 100.
    pub used_percent: Option<u64>,
    /// Power-on hours.
    pub power_on_hours: Option<u64>,
    /// Serial number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Assumptions about units that no standard defines.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub assumed: Vec<String>,
}

/// Contents of one report.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// Figures.
    pub health: Health,
    /// Counts of [`page_counts`].
    pub pages: Option<(u128, u128)>,
}

/// Reason that a text is not a report.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HealthError {
    /// Not JSON.
    #[error("not JSON: {0}")]
    Syntax(String),
    /// JSON without any known figures.
    #[error(
        "no health figures in it: no NVMe log, no ATA attributes or statistics, no SCSI log of errors"
    )]
    Nothing,
    /// One of several without any known figures.
    #[error("report {number} of {count} in it has no health figures{name}")]
    NothingIn {
        /// Its number, from 1.
        number: usize,
        /// Number of reports.
        count: usize,
        /// Name of its device, if reported.
        name: String,
    },
    /// Reports that may belong to one drive or to several.
    #[error("{0}")]
    Ambiguous(String),
}

/// NVMe counts in thousands of sectors of 512 bytes.
const DATA_UNIT: u128 = 512_000;

/// Reads the reports of a text: one, several in sequence (the output of several calls), or a list
/// of them.
pub fn parse_all(text: &str) -> Result<Vec<Report>, HealthError> {
    let mut values = Vec::new();
    for value in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        match value.map_err(|error| HealthError::Syntax(error.to_string()))? {
            Value::Array(list) => values.extend(list),
            value => values.push(value),
        }
    }
    let count = values.len();
    let read = |(number, value): (usize, &Value)| {
        let health = of_value(value).map_err(|error| match error {
            HealthError::Nothing if count > 1 => {
                let name = value
                    .pointer("/device/name")
                    .and_then(Value::as_str)
                    .map_or(String::new(), |name| format!(" ({name})"));
                HealthError::NothingIn {
                    number: number + 1,
                    count,
                    name,
                }
            }
            error => error,
        })?;
        Ok(Report {
            health,
            pages: page_counts(value),
        })
    };
    if values.is_empty() {
        Err(HealthError::Nothing)
    } else {
        values.iter().enumerate().map(read).collect()
    }
}

/// Reads one report.
pub fn parse(text: &str) -> Result<Health, HealthError> {
    of_value(&serde_json::from_str(text).map_err(|error| HealthError::Syntax(error.to_string()))?)
}

/// Merges the reports of each drive; later figures replace earlier ones. A report without a serial
/// number (a log of `nvme`) belongs to the preceding drive.
///
/// # Errors
/// A report without a serial number contradicts the preceding drive.
pub fn by_drive(reports: Vec<Report>) -> Result<Vec<Report>, HealthError> {
    let mut drives: Vec<Report> = Vec::new();
    for report in reports {
        let serial = report.health.serial.as_ref();
        let known = drives
            .iter()
            .position(|drive| serial.is_some() && drive.health.serial.as_ref() == serial);
        let place = match (known, drives.last()) {
            (Some(known), _) => Some(known),
            (None, Some(last)) if serial.is_none() || last.health.serial.is_none() => {
                if let Some(what) = contradiction(&last.health, &report.health) {
                    let why = format!(
                        "two reports differ in {what}, and not both say their serial number: they may be of two drives; give them in two calls"
                    );
                    return Err(HealthError::Ambiguous(why));
                }
                Some(drives.len() - 1)
            }
            _ => None,
        };
        match place {
            Some(place) => join(&mut drives[place], report),
            None => drives.push(report),
        }
    }
    Ok(drives)
}

/// A figure in which two reports differ by more than the time between them explains.
fn contradiction(one: &Health, next: &Health) -> Option<&'static str> {
    let differ = |one: Option<u128>, next: Option<u128>| {
        one.zip(next)
            .is_some_and(|(one, next)| one.abs_diff(next) > one.max(next) / 50 + 1)
    };
    let wide = |value: Option<u64>| value.map(u128::from);
    match () {
        () if one.model.is_some() && next.model.is_some() && one.model != next.model => {
            Some("their model")
        }
        () if one.capacity_bytes.is_some()
            && next.capacity_bytes.is_some()
            && one.capacity_bytes != next.capacity_bytes =>
        {
            Some("their capacity")
        }
        () if differ(one.host_bytes, next.host_bytes) => Some("what the host wrote"),
        () if differ(one.flash_bytes, next.flash_bytes) => Some("what was written to flash"),
        () if differ(wide(one.power_on_hours), wide(next.power_on_hours)) => {
            Some("hours under power")
        }
        () if differ(wide(one.used_percent), wide(next.used_percent)) => Some("rated life used"),
        () => None,
    }
}

fn join(drive: &mut Report, report: Report) {
    let (before, one) = (std::mem::take(&mut drive.health), report.health);
    // An assumption moves with its figure.
    let assumed = if one.host_bytes.is_some() {
        one.assumed
    } else {
        before.assumed
    };
    drive.health = Health {
        model: one.model.or(before.model),
        capacity_bytes: one.capacity_bytes.or(before.capacity_bytes),
        host_bytes: one.host_bytes.or(before.host_bytes),
        flash_bytes: one.flash_bytes.or(before.flash_bytes),
        used_percent: one.used_percent.or(before.used_percent),
        power_on_hours: one.power_on_hours.or(before.power_on_hours),
        serial: one.serial.or(before.serial),
        assumed,
    };
    drive.pages = report.pages.or(drive.pages);
}

fn of_value(json: &Value) -> Result<Health, HealthError> {
    let text = |names: &[&str]| {
        names
            .iter()
            .find_map(|name| json.get(name)?.as_str())
            .map(|text| text.trim().to_owned())
            .filter(|text| !text.is_empty())
    };
    let mut health = Health {
        model: text(&["model_name", "scsi_model_name"]),
        capacity_bytes: capacity(json),
        power_on_hours: json.pointer("/power_on_time/hours").and_then(hours),
        serial: text(&["serial_number"]),
        ..Health::default()
    };
    nvme(
        json.get("nvme_smart_health_information_log")
            .unwrap_or(json),
        &mut health,
    );
    ocp(json, &mut health);
    scsi(json, &mut health);
    if let Some(table) = json
        .pointer("/ata_smart_attributes/table")
        .and_then(Value::as_array)
    {
        let sector = json
            .get("logical_block_size")
            .and_then(number)
            .filter(|bytes| (512..=1 << 16).contains(bytes));
        table
            .iter()
            .for_each(|attribute| ata(attribute, sector, &mut health));
        statistics(json, sector.unwrap_or(512), &mut health);
    } else {
        statistics(
            json,
            json.get("logical_block_size")
                .and_then(number)
                .unwrap_or(512),
            &mut health,
        );
    }
    let says = health.host_bytes.is_some()
        || health.flash_bytes.is_some()
        || health.used_percent.is_some();
    if says {
        Ok(health)
    } else {
        Err(HealthError::Nothing)
    }
}

/// Capacity of the drive. The logs of an NVMe drive cover all of its namespaces, while the user
/// capacity may be that of one.
fn capacity(json: &Value) -> Option<u64> {
    let of = |path: &str| {
        json.pointer(path)
            .and_then(number)
            .and_then(|bytes| u64::try_from(bytes).ok())
            .filter(|bytes| *bytes > 0)
    };
    of("/user_capacity/bytes").max(of("/nvme_total_capacity"))
}

/// A number, also as text, and as the 128 bits in halves that some tools write.
fn number(value: &Value) -> Option<u128> {
    match value {
        Value::Number(number) => number.as_u64().map(u128::from).or_else(|| {
            // Older tools write 128 bits as a floating-point number.
            number
                .as_f64()
                .filter(|value| (0.0..1e30).contains(value) && value.fract() == 0.0)
                .map(|value| value as u128)
        }),
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
    let used = log
        .get("percentage_used")
        .or_else(|| log.get("percent_used"))
        .and_then(number);
    health.used_percent = used.and_then(|used| u64::try_from(used).ok());
    if let Some(known) = log.get("power_on_hours").and_then(hours) {
        health.power_on_hours = Some(known);
    }
}

/// Log of the Open Compute Project for data centre drives: bytes written to the media.
fn ocp(json: &Value, health: &mut Health) {
    let written = json
        .get("Physical media units written")
        .or_else(|| json.get("physical_media_units_written"));
    if let Some(bytes) = written.and_then(number) {
        health.flash_bytes = Some(bytes);
    }
}

/// Logs of SCSI and SAS: bytes written from the error counter log, in gigabytes of 10^9 with a
/// fraction, and the used share of the lifetime.
fn scsi(json: &Value, health: &mut Health) {
    let written = json.pointer("/scsi_error_counter_log/write/gigabytes_processed");
    let decimal = match written {
        Some(Value::String(text)) => Some(text.trim().to_owned()),
        Some(Value::Number(number)) => Some(number.to_string()),
        _ => None,
    };
    if let Some(bytes) = decimal.and_then(|text| gigabytes(&text)) {
        health.host_bytes = Some(bytes);
    }
    let used = json
        .get("scsi_percentage_used_endurance_indicator")
        .or_else(|| json.pointer("/endurance_used/current_percent"));
    if let Some(used) = used
        .and_then(number)
        .and_then(|used| u64::try_from(used).ok())
    {
        health.used_percent = Some(used);
    }
}

/// Converts `123456.789` gigabytes to bytes.
fn gigabytes(text: &str) -> Option<u128> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || fraction.len() > 18 || !digits(whole) || !digits(fraction) {
        return None;
    }
    let parts: u128 = format!("{whole}{fraction}").parse().ok()?;
    Some(parts.checked_mul(1_000_000_000)? / 10u128.pow(fraction.len() as u32))
}

/// Device statistics of ATA: standardized figures and units. They take precedence over attributes.
fn statistics(json: &Value, sector: u128, health: &mut Health) {
    let Some(pages) = json
        .pointer("/ata_device_statistics/pages")
        .and_then(Value::as_array)
    else {
        return;
    };
    let of = |page: u64, offset: u64| {
        let found = pages
            .iter()
            .find(|found| found.get("number").and_then(Value::as_u64) == Some(page))?;
        let table = found.get("table")?.as_array()?;
        let entry = table
            .iter()
            .find(|entry| entry.get("offset").and_then(Value::as_u64) == Some(offset))?;
        let is_valid = entry
            .pointer("/flags/valid")
            .and_then(Value::as_bool)
            .unwrap_or(true);
        entry.get("value").and_then(number).filter(|_| is_valid)
    };
    if let Some(bytes) = of(1, 0x18).and_then(|sectors| sectors.checked_mul(sector)) {
        (health.host_bytes, health.assumed) = (Some(bytes), Vec::new());
    }
    if let Some(hours) = of(1, 0x10).and_then(|hours| u64::try_from(hours).ok()) {
        health.power_on_hours = Some(hours);
    }
    if let Some(used) = of(7, 0x08).and_then(|used| u64::try_from(used).ok()) {
        health.used_percent = Some(used);
    }
}

/// One ATA attribute. `raw` is the maker's count, `value` falls from 100. `sector` is the size of a
/// logical sector, if reported.
fn ata(attribute: &Value, sector: Option<u128>, health: &mut Health) {
    let Some(name) = attribute.get("name").and_then(Value::as_str) else {
        return;
    };
    let raw = attribute.pointer("/raw/value").and_then(number);
    let times = |unit: u128| raw.and_then(|raw| raw.checked_mul(unit));
    let left = attribute
        .get("value")
        .and_then(Value::as_u64)
        .filter(|value| *value <= 100);
    match name {
        "Total_LBAs_Written" | "Total_Host_Sector_Write" => {
            let bytes = sector.unwrap_or(512);
            health.host_bytes = times(bytes);
            let source = if sector.is_some() {
                "the report's logical block"
            } else {
                "the report does not say a logical block"
            };
            health.assumed = vec![format!(
                "{name} is taken for sectors of {bytes} bytes ({source}); makers count in other units, too, and `smartctl -j -x` may say it in sectors"
            )];
        }
        "Host_Writes_32MiB" => (health.host_bytes, health.assumed) = (times(32 << 20), Vec::new()),
        "Host_Writes_GiB" | "Lifetime_Writes_GiB" => {
            (health.host_bytes, health.assumed) = (times(1 << 30), Vec::new())
        }
        "NAND_Writes_32MiB" => health.flash_bytes = times(32 << 20),
        "NAND_Writes_1GiB" | "NAND_Writes_GiB" => health.flash_bytes = times(1 << 30),
        "Percent_Lifetime_Used" => {
            health.used_percent = raw.and_then(|raw| u64::try_from(raw).ok())
        }
        "Percent_Lifetime_Remain"
        | "SSD_Life_Left"
        | "Media_Wearout_Indicator"
        | "Wear_Leveling_Count"
            if health.used_percent.is_none() =>
        {
            health.used_percent = left.map(|left| 100 - left);
        }
        _ => {}
    }
}

/// Pages programmed for the host and in the background (Crucial and Micron): they give the
/// amplification without the page size.
pub fn page_counts(json: &Value) -> Option<(u128, u128)> {
    let table = json.pointer("/ata_smart_attributes/table")?.as_array()?;
    let of = |names: &[&str]| {
        let attribute = table.iter().find(|attribute| {
            attribute
                .get("name")
                .and_then(Value::as_str)
                .is_some_and(|name| names.contains(&name))
        })?;
        attribute.pointer("/raw/value").and_then(number)
    };
    Some((
        of(&["Host_Program_Page_Count"])?,
        of(&[
            "FTL_Program_Page_Count",
            "Bckgnd_Program_Page_Cnt",
            "Bckgnd_Program_Page_Count",
        ])?,
    ))
}

/// Conclusions from the figures.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Findings {
    /// Flash bytes per host byte, over the drive's lifetime.
    pub wear_amplification: Option<f64>,
    /// Overwrites of the capacity per day so far.
    pub overwrites_per_day: Option<f64>,
    /// Days until the rated lifetime is used, at the same load.
    pub days_left: Option<f64>,
    /// Overwrites a day for five years allowed by the wear so far: the drive's own rating for this
    /// load.
    pub rated_overwrites_per_day: Option<f64>,
}

/// Computes the conclusions. `pages` are the counts of [`page_counts`].
pub fn findings(health: &Health, pages: Option<(u128, u128)>) -> Findings {
    let ratio = |over: u128, under: u128| (under > 0).then(|| over as f64 / under as f64);
    let by_bytes = health
        .flash_bytes
        .zip(health.host_bytes)
        .and_then(|(flash, host)| ratio(flash, host));
    let by_pages = pages.and_then(|(host, own)| ratio(host.saturating_add(own), host));
    let days = health
        .power_on_hours
        .filter(|hours| *hours > 0)
        .map(|hours| hours as f64 / 24.0);
    let capacity = health
        .capacity_bytes
        .filter(|bytes| *bytes > 0)
        .map(|bytes| bytes as f64);
    let overwrites = health
        .host_bytes
        .zip(capacity)
        .map(|(host, capacity)| host as f64 / capacity);
    let used = health
        .used_percent
        .filter(|used| *used > 0)
        .map(|used| used as f64 / 100.0);
    Findings {
        wear_amplification: by_bytes.or(by_pages),
        overwrites_per_day: overwrites
            .zip(days)
            .map(|(overwrites, days)| overwrites / days),
        days_left: used
            .zip(days)
            .map(|(used, days)| (days / used - days).max(0.0)),
        rated_overwrites_per_day: overwrites
            .zip(used)
            .map(|(overwrites, used)| overwrites / used / crate::FIVE_YEARS_DAYS),
    }
}

/// Amplification inside a drive below which its load so far was linear, as under a log. It does not
/// show the amplification of random writes in place.
pub const LINEAR_WEAR_MOST: f64 = 1.2;

/// The drive by its own measurements: its rating from its wear at the load so far, its
/// amplification as measured, unless that load was linear. `None` if its capacity is not reported.
pub fn as_drive(health: &Health, found: &Findings) -> Option<Drive> {
    let capacity = health.capacity_bytes.filter(|bytes| *bytes > 0)? as f64;
    let positive = |value: Option<f64>| value.filter(|value| *value > 0.0);
    let (rated, wear) = (
        positive(found.rated_overwrites_per_day),
        positive(found.wear_amplification),
    );
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
        // Wear of the load so far, without the drive's own amplification.
        erase_cycles: rated
            .zip(wear)
            .map(|(rated, wear)| rated * wear * crate::FIVE_YEARS_DAYS),
        overwrites_per_day: if wear.is_none() { rated } else { None },
        wear_amplification: wear.filter(|wear| *wear >= LINEAR_WEAR_MOST),
        source: "the drive's own report".to_owned(),
        year: None,
    })
}

#[cfg(test)]
mod tests;

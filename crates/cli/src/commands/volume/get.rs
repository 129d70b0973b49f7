//! `volume get`: properties of a volume by name.

use serde_json::{Value, json};
use windrow_console::context::{self, PoolPlace};
use windrow_console::output::Output;
use windrow_console::properties;
use windrow_console::values::VolumePath;
use windrow_host::Failure;
use windrow_host::failure::id;
use windrow_host::report::VolumeReport;

/// Runs it.
pub fn run(
    path: &VolumePath,
    property: Option<&str>,
    place: &PoolPlace,
    output: &Output,
) -> Result<u8, Failure> {
    let report = context::status(&path.pool, place)?;
    let what = format!(
        "cannot show volume '{}' of pool '{}'",
        path.volume, report.name
    );
    let unknown = || {
        Failure::new(id::VOLUME_UNKNOWN, &what, "there is no volume of this name")
            .remedy("see `windrow volume list POOL`")
    };
    let volume = report.volume(&path.volume).ok_or_else(unknown)?;
    let list = list(volume);
    let shown: Vec<(&str, String)> = list
        .iter()
        .map(|(name, value)| (*name, text(value)))
        .collect();
    match property {
        Some(property) => {
            let text = properties::one_of(shown, property, &what, "windrow volume get")?;
            let value = list
                .iter()
                .find(|(name, _)| *name == property)
                .map(|(_, value)| value);
            let json = json!({ "pool": report.name, "volume": volume.name, "property": property, "value": value });
            output.result("volume-get", &json, || text);
        }
        None => {
            let values: serde_json::Map<String, Value> = list
                .into_iter()
                .map(|(name, value)| (name.replace('-', "_"), value))
                .collect();
            output.result(
                "volume-get",
                &json!({ "pool": report.name, "volume": volume.name, "properties": values }),
                || properties::table(shown),
            );
        }
    }
    Ok(0)
}

/// Sizes are numbers of bytes.
fn list(volume: &VolumeReport) -> Vec<(&'static str, Value)> {
    vec![
        ("id", json!(volume.id)),
        ("size", json!(volume.size_bytes)),
        ("compression", json!(volume.compression.name())),
        ("dedup", json!(volume.dedup)),
        ("sync", json!(volume.sync)),
        ("mapped", json!(volume.mapped_bytes)),
        ("stored", json!(volume.stored_bytes)),
        ("shared", json!(volume.shared_bytes)),
        ("deleting", json!(volume.deleting)),
    ]
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(is) => (if *is { "yes" } else { "no" }).to_owned(),
        other => other.to_string(),
    }
}

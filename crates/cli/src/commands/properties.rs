//! `pool set` and `pool get`: properties by name.

use crate::values::Share;
use windrow_host::Failure;
use windrow_host::control::PropertyChange;
use windrow_host::failure::id;
use windrow_host::report::PropertyReport;

/// Names of the properties with what they mean.
pub const HELP: &str = "\
Properties:
  spare          share of the space that data may not fill, e.g. 10%
  seal-age       most milliseconds that acknowledged data waits in memory, e.g. 50
  victim-policy  which segments are cleaned: greedy or cost-benefit
  discard        tell drives which space is free: on or off";

/// Reads `NAME=VALUE` pairs.
pub fn parse(pairs: &[(String, String)]) -> Result<PropertyChange, Failure> {
    let mut change = PropertyChange::default();
    for (name, value) in pairs {
        let wrong = |why: String| Failure::new(id::POOL_VALUE, format!("cannot set '{name}'"), why).remedy("see `windrow pool set --help`");
        match name.as_str() {
            "spare" => change.spare_per_mille = Some(value.parse::<Share>().map_err(wrong)?.0),
            "seal-age" => {
                let digits = value.strip_suffix("ms").unwrap_or(value);
                change.seal_age_ms = Some(digits.parse().map_err(|_| wrong(format!("'{value}' is not a number of milliseconds")))?);
            }
            "victim-policy" => change.victim_policy = Some(value.clone()),
            "discard" => {
                change.discard = Some(match value.as_str() {
                    "on" => true,
                    "off" => false,
                    _ => return Err(wrong(format!("'{value}' is neither on nor off"))),
                });
            }
            _ => return Err(wrong("there is no such property".to_owned())),
        }
    }
    Ok(change)
}

/// The properties as name and value.
pub fn list(properties: &PropertyReport) -> Vec<(&'static str, String)> {
    vec![
        ("spare", Share(properties.spare_per_mille).to_string()),
        ("seal-age", format!("{}ms", properties.seal_age_ms)),
        ("victim-policy", properties.victim_policy.clone()),
        ("discard", if properties.discard { "on" } else { "off" }.to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_listed_can_be_set() {
        let properties = PropertyReport { spare_per_mille: 125, seal_age_ms: 20, victim_policy: "cost-benefit".to_owned(), discard: true };
        let pairs: Vec<(String, String)> = list(&properties).into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let change = parse(&pairs).unwrap();
        assert_eq!((change.spare_per_mille, change.seal_age_ms, change.discard), (Some(125), Some(20), Some(true)));
        assert_eq!(change.victim_policy.as_deref(), Some("cost-benefit"));
        for (name, value) in [("spare", "200%"), ("seal-age", "soon"), ("discard", "maybe"), ("colour", "red")] {
            assert_eq!(parse(&[(name.to_owned(), value.to_owned())]).unwrap_err().id, id::POOL_VALUE);
        }
    }
}

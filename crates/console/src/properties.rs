//! `pool set` and `pool get`: properties by name.

use crate::table::Table;
use crate::values::{Share, Size};
use windrow_host::Failure;
use windrow_host::control::PropertyChange;
use windrow_host::failure::id;
use windrow_host::report::PropertyReport;
use windrow_policy::kind::{PlacementKind, Policy};

/// Names and meanings of the properties.
pub const HELP: &str = "\
Properties:
  spare          share of the space that data may not fill, e.g. 10%
  seal-age       most milliseconds that acknowledged data waits in memory, e.g. 50
  flush-age      milliseconds after which unflushed data is flushed, so that an idle pool has no data at risk, e.g. 5000, or off
  policy         placement and victim policy together, e.g. learned, sepbit or separate+greedy; a placement alone selects its victim policy
  placement      streams for blocks: separate, dac, sfs, fadac, sepbit, generations, midas or learned
  victim-policy  segments to clean: greedy, cost-benefit, age-root, fifo, choices:N, window:N or gain
  discard        send discards for freed segments: on or off
  rebuild-rate   most bytes each second that a rebuild reads from, or writes to, one member, e.g. 200M, or none
  rebuild-rate-min  bytes each second of one member that a rebuild gets even while foreground I/O is active, e.g. 10M
  scrub-interval  days from the end of a scrub to the automatic start of the next one while the pool is served, e.g. 30, or off
  read-latency-bound  a read that takes longer, and much longer than usual, is answered from redundancy, e.g. 50ms, or off
  warn-at        fill levels in per cent at which a warning is logged, four at most, e.g. 80,90,95, or off
  reduction      use of the space saved by compression and deduplication: spare (cleaning moves less, the pool takes no more blocks) or capacity (it takes more blocks)";

/// Names and values as text.
pub fn table(list: Vec<(&'static str, String)>) -> String {
    let mut table = Table::new(&["PROPERTY", "VALUE"]);
    for (name, value) in list {
        table.row([name.to_owned(), format!(" {value}")]);
    }
    table.render()
}

/// The value of one property.
///
/// # Errors
/// There is none of this name; `what` names the action, and the help of `command` is the next step.
pub fn one_of(
    list: Vec<(&'static str, String)>,
    property: &str,
    what: &str,
    command: &str,
) -> Result<String, Failure> {
    let names = list
        .iter()
        .map(|(name, _)| *name)
        .collect::<Vec<_>>()
        .join(", ");
    let found = list
        .into_iter()
        .find(|(name, _)| *name == property)
        .map(|(_, value)| value);
    found.ok_or_else(|| {
        Failure::new(
            id::POOL_VALUE,
            what,
            format!("there is none of this name: there are {names}"),
        )
        .remedy(format!("see `{command} --help`"))
    })
}

/// Reads `NAME=VALUE` pairs.
pub fn parse(pairs: &[(String, String)]) -> Result<PropertyChange, Failure> {
    let mut change = PropertyChange::default();
    for (name, value) in pairs {
        let wrong = |why: String| {
            Failure::new(id::POOL_VALUE, format!("cannot set '{name}'"), why)
                .remedy("see `windrow pool set --help`")
        };
        match name.as_str() {
            "spare" => change.spare_per_mille = Some(value.parse::<Share>().map_err(wrong)?.0),
            "seal-age" => {
                change.seal_age_ms = Some(milliseconds(value).map_err(wrong)?);
            }
            "flush-age" if value == "off" => change.flush_age_ms = Some(0),
            "flush-age" => change.flush_age_ms = Some(milliseconds(value).map_err(wrong)?),
            "scrub-interval" if value == "off" => change.scrub_interval_days = Some(0),
            "scrub-interval" => {
                let digits = value.strip_suffix('d').unwrap_or(value);
                change.scrub_interval_days = Some(
                    digits
                        .parse()
                        .map_err(|_| wrong(format!("'{value}' is not a number of days")))?,
                );
            }
            "read-latency-bound" if value == "off" => change.read_latency_bound_ms = Some(0),
            "read-latency-bound" => {
                change.read_latency_bound_ms = Some(milliseconds(value).map_err(wrong)?)
            }
            "warn-at" if value == "off" => change.warn_at = Some(Vec::new()),
            "warn-at" => {
                let parts = value.split(',').map(|part| {
                    part.strip_suffix('%')
                        .unwrap_or(part)
                        .parse::<u8>()
                        .map_err(|_| format!("'{part}' is no percentage"))
                });
                change.warn_at = Some(parts.collect::<Result<_, _>>().map_err(wrong)?);
            }
            "reduction" => change.reduction = Some(value.clone()),
            "victim-policy" => change.victim_policy = Some(value.clone()),
            "placement" => change.placement = Some(value.clone()),
            // A pool does not have all placements of the laboratory; the daemon refuses the others.
            "policy"
                if value
                    .split(['+', '/'])
                    .next()
                    .is_some_and(|name| PlacementKind::from_name(name).is_none()) =>
            {
                change.placement = Some(value.clone())
            }
            "policy" => {
                let policy = Policy::from_name(value).map_err(wrong)?;
                if policy.streams != policy.placement.streams() {
                    return Err(wrong(
                        "how many streams there are follows from the size of the pool".to_owned(),
                    ));
                }
                change.placement = Some(policy.placement.name().to_owned());
                change.victim_policy = Some(policy.rule.name());
            }
            "discard" => {
                change.discard = Some(match value.as_str() {
                    "on" => true,
                    "off" => false,
                    _ => return Err(wrong(format!("'{value}' is neither on nor off"))),
                });
            }
            "rebuild-rate" if value == "none" => change.rebuild_rate = Some(0),
            "rebuild-rate" => change.rebuild_rate = Some(rate(value).map_err(wrong)?),
            "rebuild-rate-min" => change.rebuild_rate_min = Some(rate(value).map_err(wrong)?),
            _ => return Err(wrong("there is no such property".to_owned())),
        }
    }
    Ok(change)
}

fn milliseconds(text: &str) -> Result<u32, String> {
    text.strip_suffix("ms")
        .unwrap_or(text)
        .parse()
        .map_err(|_| format!("'{text}' is not a number of milliseconds"))
}

/// Bytes each second, with or without `/s`.
fn rate(text: &str) -> Result<u64, String> {
    text.strip_suffix("/s")
        .unwrap_or(text)
        .parse::<Size>()
        .map(|size| size.0)
}

/// A rate in a form that can be parsed back.
fn exact(bytes_per_second: u64) -> String {
    match bytes_per_second {
        0 => "none".to_owned(),
        whole if whole % (1 << 20) == 0 => format!("{}M/s", whole >> 20),
        other => format!("{other}/s"),
    }
}

/// The properties as name and value.
pub fn list(properties: &PropertyReport) -> Vec<(&'static str, String)> {
    vec![
        ("spare", Share(properties.spare_per_mille).to_string()),
        ("seal-age", format!("{}ms", properties.seal_age_ms)),
        (
            "flush-age",
            if properties.flush_age_ms == 0 {
                "off".to_owned()
            } else {
                format!("{}ms", properties.flush_age_ms)
            },
        ),
        ("placement", properties.placement.clone()),
        ("victim-policy", properties.victim_policy.clone()),
        (
            "discard",
            if properties.discard { "on" } else { "off" }.to_owned(),
        ),
        ("rebuild-rate", exact(properties.rebuild_rate)),
        ("rebuild-rate-min", exact(properties.rebuild_rate_min)),
        (
            "scrub-interval",
            if properties.scrub_interval_days == 0 {
                "off".to_owned()
            } else {
                format!("{}d", properties.scrub_interval_days)
            },
        ),
        (
            "read-latency-bound",
            if properties.read_latency_bound_ms == 0 {
                "off".to_owned()
            } else {
                format!("{}ms", properties.read_latency_bound_ms)
            },
        ),
        ("reduction", properties.reduction.clone()),
        (
            "warn-at",
            if properties.warn_at.is_empty() {
                "off".to_owned()
            } else {
                properties
                    .warn_at
                    .iter()
                    .map(u8::to_string)
                    .collect::<Vec<_>>()
                    .join(",")
            },
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_listed_can_be_set() {
        let properties = PropertyReport {
            spare_per_mille: 125,
            seal_age_ms: 20,
            flush_age_ms: 300,
            victim_policy: "window:9".to_owned(),
            placement: "sepbit".to_owned(),
            discard: true,
            rebuild_rate: 0,
            rebuild_rate_min: 300_001,
            scrub_interval_days: 7,
            read_latency_bound_ms: 0,
            warn_at: vec![70, 99],
            reduction: "capacity".to_owned(),
        };
        let pairs: Vec<(String, String)> = list(&properties)
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        let change = parse(&pairs).unwrap();
        assert_eq!(
            (change.spare_per_mille, change.seal_age_ms, change.discard),
            (Some(125), Some(20), Some(true))
        );
        assert_eq!(
            (change.victim_policy.as_deref(), change.placement.as_deref()),
            (Some("window:9"), Some("sepbit"))
        );
        let both = parse(&[("policy".to_owned(), "learned".to_owned())]).unwrap();
        assert_eq!(
            (both.victim_policy.as_deref(), both.placement.as_deref()),
            (Some("gain"), Some("learned"))
        );
        let unknown = parse(&[("policy".to_owned(), "best".to_owned())]).unwrap();
        assert_eq!(
            (unknown.victim_policy, unknown.placement.as_deref()),
            (None, Some("best")),
            "the pool knows which it has"
        );
        assert_eq!(
            (change.rebuild_rate, change.rebuild_rate_min),
            (Some(0), Some(300_001))
        );
        assert_eq!(
            (change.scrub_interval_days, change.warn_at),
            (Some(7), Some(vec![70, 99]))
        );
        assert_eq!(change.reduction.as_deref(), Some("capacity"));
        assert_eq!(
            (change.read_latency_bound_ms, milliseconds("70ms")),
            (Some(0), Ok(70))
        );
        for (name, value) in [
            ("rebuild-rate", "fast"),
            ("read-latency-bound", "late"),
            ("rebuild-rate-min", "none"),
            ("spare", "200%"),
            ("seal-age", "soon"),
            ("warn-at", "80,full"),
            ("policy", "learned/3"),
            ("discard", "maybe"),
            ("scrub-interval", "monthly"),
            ("colour", "red"),
        ] {
            assert_eq!(
                parse(&[(name.to_owned(), value.to_owned())])
                    .unwrap_err()
                    .id,
                id::POOL_VALUE
            );
        }
    }
}

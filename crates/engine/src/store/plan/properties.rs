//! Bounds of the properties of a pool.

use super::*;

const SPARE_PER_MILLE_MAX: u16 = 900;

/// Checks properties; the text describes the error.
pub(crate) fn check_properties(
    properties: &windrow_format::superblock::Properties,
) -> Result<(), String> {
    if !(SPARE_PER_MILLE_MIN..=SPARE_PER_MILLE_MAX).contains(&properties.spare_per_mille) {
        let percent = |per_mille: u16| f64::from(per_mille) / 10.0;
        let (least, most) = (percent(SPARE_PER_MILLE_MIN), percent(SPARE_PER_MILLE_MAX));
        return Err(format!(
            "the spare factor lies between {least} % and {most} %, {} % given",
            percent(properties.spare_per_mille)
        ));
    }
    if !(1..=3_600_000).contains(&properties.seal_age_ms) {
        return Err(format!(
            "the age bound lies between 1 ms and 1 hour, {} ms given",
            properties.seal_age_ms
        ));
    }
    if properties.flush_age_ms > 3_600_000 {
        return Err(format!(
            "the age at which data is flushed is 0 (off) or at most 1 hour, {} ms given",
            properties.flush_age_ms
        ));
    }
    let (rate, least) = (properties.rebuild_rate, properties.rebuild_rate_min);
    if !(REBUILD_RATE_MIN..=RATE_MAX).contains(&least) || rate > RATE_MAX {
        return Err(format!(
            "the guaranteed rate of a rebuild lies between {REBUILD_RATE_MIN} and {RATE_MAX} bytes per second, {least} given"
        ));
    }
    if rate != 0 && rate < least {
        return Err(format!(
            "the bound of a rebuild is 0 (none) or at least its guaranteed rate ({least} bytes per second), {rate} given"
        ));
    }
    if properties.read_latency_bound_ms > 3_600_000 {
        return Err(format!(
            "the bound on the latency of reads is 0 (off) or at most 1 hour, {} ms given",
            properties.read_latency_bound_ms
        ));
    }
    if !windrow_format::superblock::Properties::are_warnings(properties.warn_at) {
        let given: Vec<String> = properties
            .warn_at
            .iter()
            .filter(|at| **at > 0)
            .map(u8::to_string)
            .collect();
        return Err(format!(
            "warnings lie between 1 and 100 per cent, at most four, ascending; {} given",
            given.join(",")
        ));
    }
    if windrow_policy::select::Rule::from_code(properties.victim_policy, properties.victim_number)
        .is_none()
    {
        return Err(format!(
            "there is no victim policy of number {}",
            properties.victim_policy
        ));
    }
    if windrow_policy::kind::PlacementKind::from_code(properties.placement).is_none() {
        return Err(format!(
            "there is no placement of number {}",
            properties.placement
        ));
    }
    Ok(())
}

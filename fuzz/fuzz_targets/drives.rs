//! Reports of drives (JSON of `smartctl` and `nvme`) and catalogues of drives (TOML): a refusal, or
//! figures that are usable in calculations.
#![no_main]

use libfuzzer_sys::fuzz_target;
use windrow_plan::drive::Catalogue;
use windrow_plan::health::{as_drive, findings, parse_all};

/// True if a present figure is a number, and not below 0.
fn is_sound(figure: Option<f64>) -> bool {
    figure.is_none_or(|figure| figure.is_finite() && figure >= 0.0)
}

fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    for report in parse_all(&text).unwrap_or_default() {
        let (health, found) = (&report.health, findings(&report.health, report.pages));
        for figure in [
            found.wear_amplification,
            found.overwrites_per_day,
            found.days_left,
            found.rated_overwrites_per_day,
        ] {
            assert!(is_sound(figure), "{found:?} of {health:?}");
        }
        if let Some(drive) = as_drive(health, &found) {
            for figure in [
                Some(drive.capacity_gb),
                drive.erase_cycles,
                drive.overwrites_per_day,
                drive.wear_amplification,
            ] {
                assert!(is_sound(figure), "{drive:?}");
            }
        }
    }
    if let Ok(catalogue) = Catalogue::parse(&text) {
        for drive in &catalogue.drives {
            assert_eq!(catalogue.get(&drive.id), Some(drive));
            assert!(
                drive.capacity_gb > 0.0
                    && is_sound(drive.price)
                    && is_sound(drive.erase_cycles)
                    && is_sound(drive.wear_amplification),
                "{drive:?}"
            );
        }
    }
});

//! Classes of duty and of drives, and the gain of collecting random writes over writing them in
//! place.

use crate::topology::{DoesNotFit, Topology};
use serde::Serialize;

/// Share of the space that a load overwrites in a day (2014 paper, "How many overwrites a day do
/// you need?": low is far less than 5 %, medium 10 to 50 %, an email server 20 to 30 %; the range
/// between is not named there).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Duty {
    /// Less than 5 %.
    Low,
    /// 5 to 10 %.
    LowToMedium,
    /// 10 to 50 %.
    Medium,
    /// More.
    Heavy,
}

/// Duty of a load with this number of overwrites of the space per day.
pub fn duty(overwrites_per_day: f64) -> Duty {
    match overwrites_per_day {
        x if x < 0.05 => Duty::Low,
        x if x < 0.10 => Duty::LowToMedium,
        x if x <= 0.50 => Duty::Medium,
        _ => Duty::Heavy,
    }
}

/// Classes of drives by the overwrites a day that they sustain for five years (2017 paper, "A
/// Recapitulation").
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Endurance {
    /// Less than a consumer drive.
    BelowConsumer,
    /// About a tenth.
    Consumer,
    /// Two tenths.
    ReadIntensive,
    /// About one.
    DataCentre,
    /// Five and more.
    Enterprise,
}

/// Class that sustains this number of overwrites a day.
pub fn endurance(overwrites_per_day: f64) -> Endurance {
    match overwrites_per_day {
        x if x >= 5.0 => Endurance::Enterprise,
        x if x >= 1.0 => Endurance::DataCentre,
        x if x >= 0.2 => Endurance::ReadIntensive,
        x if x >= 0.1 => Endurance::Consumer,
        _ => Endurance::BelowConsumer,
    }
}

impl Endurance {
    /// Name in the paper.
    pub fn name(self) -> &'static str {
        match self {
            Self::BelowConsumer => "below consumer",
            Self::Consumer => "consumer",
            Self::ReadIntensive => "read intensive",
            Self::DataCentre => "data centre",
            Self::Enterprise => "enterprise",
        }
    }
}

/// Factor by which drives last longer under a log than in place:
/// `(w_drive / w_log) * (a_in_place * k / n) / usable share`.
pub fn gain(
    drive_wear: f64,
    log_wear: f64,
    usable_share: f64,
    topology: Topology,
    drives: u32,
) -> Result<f64, DoesNotFit> {
    let (n, k) = (f64::from(drives), f64::from(topology.data_drives(drives)?));
    Ok(drive_wear / log_wear * (topology.random_writes() * k / n) / usable_share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounding::printed;

    /// 2014, "Reduction of wear-amplification": four- to sevenfold for drives with much free space
    /// (3 : 1), twelve- to eighteenfold for those with little (8 : 1); 24 drives.
    #[test]
    fn composite_gains() {
        let gain = |wear, topology| {
            gain(wear, 1.3, 0.95, topology, 24)
                .map(|gain| printed(gain, 2))
                .expect("fits")
        };
        assert_eq!(
            (gain(3.0, Topology::Raid5), gain(3.0, Topology::Raid6)),
            ("4.66".to_owned(), "6.68".to_owned())
        );
        assert_eq!(
            (gain(8.0, Topology::Raid5), gain(8.0, Topology::Raid6)),
            ("12.42".to_owned(), "17.81".to_owned())
        );
    }

    #[test]
    fn classes_by_their_bounds() {
        assert_eq!(
            [0.04, 0.07, 0.25, 0.5, 0.51].map(duty),
            [
                Duty::Low,
                Duty::LowToMedium,
                Duty::Medium,
                Duty::Medium,
                Duty::Heavy
            ]
        );
        let names = [0.09, 0.11, 0.2, 0.913, 1.0, 5.479].map(|value| endurance(value).name());
        assert_eq!(
            names,
            [
                "below consumer",
                "consumer",
                "read intensive",
                "read intensive",
                "data centre",
                "enterprise"
            ]
        );
    }
}

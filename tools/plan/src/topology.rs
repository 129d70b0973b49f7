//! Topologies of drives: number of data drives, cost of a write, and parallel random writes.
//!
//! | topology, n drives | data drives | writes to drives for each random write in place | drives' worth of random writes |
//! |---|---|---|---|
//! | RAID-5 | n - 1 | 2 | 1 |
//! | RAID-6 | n - 2 | 3 | 1 |
//! | RAID-50, g groups | n - g | 2 | g |
//! | RAID-60, g groups | n - 2g | 3 | g |
//! | RAID-10 | n / 2 | 2 | n / 2 |
//!
//! Written in full rows a byte costs n / data drives in any topology. (2014 paper, "Next, we
//! need to consider the impact of Raid" and tables 1 to 7.)

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A topology.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Topology {
    /// No redundancy.
    Raid0,
    /// One parity for the whole set.
    Raid5,
    /// Two parities for the whole set.
    Raid6,
    /// Groups with one parity each.
    Raid50 {
        /// Number of groups.
        groups: u32,
    },
    /// Groups with two parities each.
    Raid60 {
        /// Number of groups.
        groups: u32,
    },
    /// Pairs of copies.
    Raid10,
}

/// Error: a topology is impossible with this number of drives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{topology} cannot be made of {drives} drives: {rule}")]
pub struct DoesNotFit {
    /// Topology.
    pub topology: Topology,
    /// Drives.
    pub drives: u32,
    /// The rule for it.
    pub rule: &'static str,
}

impl Topology {
    /// Number of drives' worth of data space, of `drives`.
    pub fn data_drives(self, drives: u32) -> Result<u32, DoesNotFit> {
        let fits = |good: bool, data: u32, rule: &'static str| {
            if good {
                Ok(data)
            } else {
                Err(DoesNotFit {
                    topology: self,
                    drives,
                    rule,
                })
            }
        };
        let group = |groups: u32| {
            drives
                .checked_div(groups)
                .filter(|size| size * groups == drives)
        };
        match self {
            Self::Raid0 => fits(drives >= 1, drives, "it takes at least one"),
            Self::Raid5 => fits(
                drives >= 3,
                drives.saturating_sub(1),
                "it takes at least three",
            ),
            Self::Raid6 => fits(
                drives >= 4,
                drives.saturating_sub(2),
                "it takes at least four",
            ),
            Self::Raid50 { groups } => fits(
                group(groups).is_some_and(|size| size >= 3),
                drives.saturating_sub(groups),
                "it takes equal groups of at least three",
            ),
            Self::Raid60 { groups } => fits(
                group(groups).is_some_and(|size| size >= 4),
                drives.saturating_sub(groups.saturating_mul(2)),
                "it takes equal groups of at least four",
            ),
            Self::Raid10 => fits(
                drives >= 2 && drives.is_multiple_of(2),
                drives / 2,
                "it takes an even number",
            ),
        }
    }

    /// Blocks written to drives for each random block written in place.
    pub fn random_writes(self) -> f64 {
        match self {
            Self::Raid0 => 1.0,
            Self::Raid5 | Self::Raid50 { .. } | Self::Raid10 => 2.0,
            Self::Raid6 | Self::Raid60 { .. } => 3.0,
        }
    }

    /// Parity blocks of a row (of a group's row).
    pub fn parities(self) -> u32 {
        match self {
            Self::Raid0 | Self::Raid10 => 0,
            Self::Raid5 | Self::Raid50 { .. } => 1,
            Self::Raid6 | Self::Raid60 { .. } => 2,
        }
    }

    /// Number of drives whose random write rate the set achieves: a parity group as a whole
    /// processes one write at a time.
    pub fn random_drives(self, drives: u32) -> u32 {
        match self {
            Self::Raid0 => drives,
            Self::Raid5 | Self::Raid6 => 1,
            Self::Raid50 { groups } | Self::Raid60 { groups } => groups,
            Self::Raid10 => drives / 2,
        }
    }

    /// Reads and writes of drives for one random block: read, modify, write; and: read the rest of
    /// the row, write the new parity. Copies read nothing.
    pub fn in_place(self, drives: u32) -> Result<[InPlace; 2], DoesNotFit> {
        let data = self.data_drives(drives)?;
        let writes = self.random_writes() as u32;
        let groups = match self {
            Self::Raid50 { groups } | Self::Raid60 { groups } => groups,
            _ => 1,
        };
        Ok(match self.parities() {
            0 => [InPlace { reads: 0, writes }; 2],
            parities => [
                InPlace {
                    reads: 1 + parities,
                    writes,
                },
                InPlace {
                    reads: data / groups - 1,
                    writes,
                },
            ],
        })
    }
}

/// Drive operations for one random block in place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct InPlace {
    /// Blocks read first.
    pub reads: u32,
    /// Blocks written.
    pub writes: u32,
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Raid0 => write!(f, "RAID-0"),
            Self::Raid5 => write!(f, "RAID-5"),
            Self::Raid6 => write!(f, "RAID-6"),
            Self::Raid50 { groups: 3 } => write!(f, "RAID-50"),
            Self::Raid60 { groups: 3 } => write!(f, "RAID-60"),
            Self::Raid50 { groups } => write!(f, "RAID-50x{groups}"),
            Self::Raid60 { groups } => write!(f, "RAID-60x{groups}"),
            Self::Raid10 => write!(f, "RAID-10"),
        }
    }
}

impl FromStr for Topology {
    type Err = String;

    /// Parses `0`, `5`, `6`, `10`, `50`, `60`, the last two with `xG` for G groups (three by
    /// default); a leading `RAID-` is optional.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let lower = text.to_ascii_lowercase();
        let plain = lower.trim_start_matches("raid").trim_start_matches('-');
        let (level, groups) = plain.split_once('x').unwrap_or((plain, "3"));
        let groups: u32 = groups.parse().unwrap_or(0);
        let grouped = plain.contains('x');
        match level {
            "0" if !grouped => Ok(Self::Raid0),
            "5" if !grouped => Ok(Self::Raid5),
            "6" if !grouped => Ok(Self::Raid6),
            "10" if !grouped => Ok(Self::Raid10),
            "50" if groups > 0 => Ok(Self::Raid50 { groups }),
            "60" if groups > 0 => Ok(Self::Raid60 { groups }),
            _ => Err(format!(
                "'{text}' is not a topology; write it as 0, 5, 6, 10, 50, 60, 50x4 or 60x2"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for name in [
            "RAID-0",
            "RAID-5",
            "RAID-6",
            "RAID-10",
            "RAID-50",
            "RAID-60",
            "RAID-50x4",
            "RAID-60x2",
        ] {
            assert_eq!(
                name.parse::<Topology>()
                    .map(|topology| topology.to_string()),
                Ok(name.to_owned())
            );
        }
        for wrong in ["", "7", "5x3", "50x0", "60x", "50xx", "raid"] {
            assert!(wrong.parse::<Topology>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn sets_that_cannot_be_made_are_refused() {
        assert!(
            Topology::Raid5.data_drives(2).is_err()
                && Topology::Raid6.data_drives(3).is_err()
                && Topology::Raid10.data_drives(5).is_err()
        );
        let wrong = Topology::Raid50 { groups: 5 }
            .data_drives(24)
            .expect_err("24 drives do not make five equal groups");
        assert_eq!(
            wrong.to_string(),
            "RAID-50x5 cannot be made of 24 drives: it takes equal groups of at least three"
        );
        assert!(
            Topology::Raid60 { groups: u32::MAX }
                .data_drives(24)
                .is_err()
                && Topology::Raid50 { groups: 0 }.data_drives(24).is_err()
        );
    }

    #[test]
    fn in_place_reads_what_it_must() {
        // RAID-6 of 24: either the block and both parities, or the other 21 blocks of the row.
        assert_eq!(
            Topology::Raid6.in_place(24),
            Ok([
                InPlace {
                    reads: 3,
                    writes: 3
                },
                InPlace {
                    reads: 21,
                    writes: 3
                }
            ])
        );
        assert_eq!(
            Topology::Raid5.in_place(3),
            Ok([
                InPlace {
                    reads: 2,
                    writes: 2
                },
                InPlace {
                    reads: 1,
                    writes: 2
                }
            ])
        );
        assert_eq!(
            Topology::Raid50 { groups: 3 }.in_place(24),
            Ok([
                InPlace {
                    reads: 2,
                    writes: 2
                },
                InPlace {
                    reads: 6,
                    writes: 2
                }
            ])
        );
        assert_eq!(
            Topology::Raid10.in_place(24),
            Ok([InPlace {
                reads: 0,
                writes: 2
            }; 2])
        );
    }
}

//! One drive model in one topology, alone or under a log: capacity, cost, rate, and overwrites a
//! day for five years.
//!
//! `n` drives of capacity `c`, `k` drives' worth of data space, `s` the share of it that a log lets
//! users fill, `a` blocks written to drives for each block, `w` further write amplification.
//!
//! | | linear | random, in place | random, under a log |
//! |---|---|---|---|
//! | landable GB | k c | k c | s k c; with compression times its factor |
//! | overwrites a day | rating / a, a = n / k, times n / k: the rating | rating / w_drive / a * n / k | rating / w_log / s |
//! | random writes a second | - | those of one drive times 1, groups, or n / 2 | members' linear rate (or a measured one) |
//!
//! Overwrites are of the landable surface. (2014 paper, "Source Data Tables and Explanatory Notes";
//! the last line but one there is the division by net space.) A drive that has only a published
//! rating is net of its own amplification already, so nothing is divided by `w_drive`.

use crate::BLOCK_BYTES;
use crate::drive::Drive;
use crate::topology::{DoesNotFit, Topology};
use serde::Serialize;

/// Write pattern of the drives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Use {
    /// Large linear writes by whole rows.
    Linear,
    /// Random writes of single blocks, in place.
    InPlace,
    /// Random writes of single blocks, collected into full rows.
    Log,
    /// Same, with compression that makes more addressable space.
    LogCompressed,
}

impl Use {
    /// True if users write to a log.
    pub fn is_log(self) -> bool {
        matches!(self, Self::Log | Self::LogCompressed)
    }
}

/// Random write rate of a log.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub enum LogRate {
    /// This rate for each drive's worth of data space: with one parity, with two, and with
    /// compression.
    PerDataDrive {
        /// One parity.
        single: f64,
        /// Two parities.
        double: f64,
        /// With compression.
        compressed: f64,
    },
    /// Rate limited by the members' linear rate: `k * rate / w_log / 4096`. One host may achieve
    /// less.
    Members,
}

/// Assumptions about everything except the drive.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Assumptions {
    /// Share of the data space that users may fill under a log.
    pub usable_share: f64,
    /// Blocks the log writes per user block: cleaning, headers, checkpoints. Without parity, which
    /// is in the topology.
    pub log_wear: f64,
    /// Addressable space with compression over that without.
    pub compression: f64,
    /// Cost of everything except the drives.
    pub chassis: f64,
    /// Licence per started TiB (1024 GB here) of the uncompressed surface; twice that with
    /// compression.
    pub licence_per_tib: f64,
    /// Random write rate of a log.
    pub log_rate: LogRate,
    /// True to omit `log_wear` for drives with only a published rating, as table 7 of the 2014
    /// paper does.
    pub net_rating_spares_log_wear: bool,
}

impl Assumptions {
    /// Assumptions of the 2014 paper: 95 % usable, 1.3 : 1, a chassis for 3600, 200 per started
    /// TiB, measured rates.
    pub fn paper_2014() -> Self {
        Self {
            usable_share: 0.95,
            log_wear: 1.3,
            compression: 2.0,
            chassis: 3600.0,
            licence_per_tib: 200.0,
            log_rate: LogRate::PerDataDrive {
                single: 66_600.0,
                double: 66_000.0,
                compressed: 42_000.0,
            },
            net_rating_spares_log_wear: true,
        }
    }

    /// Windrow with its defaults: a tenth spare, no licence, the members' rate; `log_wear` as the
    /// 2017 paper measured it for virtual machines.
    pub fn windrow() -> Self {
        Self {
            usable_share: 0.90,
            log_wear: 1.43,
            compression: 1.0,
            chassis: 0.0,
            licence_per_tib: 0.0,
            log_rate: LogRate::Members,
            net_rating_spares_log_wear: false,
        }
    }
}

/// Results. A value is `None` if a figure of the drive is missing.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Outcome {
    /// Space of all drives, GB.
    pub gross_gb: f64,
    /// Space that users address, GB.
    pub landable_gb: f64,
    /// Cost of the chassis.
    pub chassis: f64,
    /// Cost of the drives.
    pub media: Option<f64>,
    /// Cost of the licence; none without a log.
    pub licence: Option<f64>,
    /// Total cost.
    pub total: Option<f64>,
    /// Total over landable space.
    pub cost_per_gb: Option<f64>,
    /// Random writes of 4 KiB per second.
    pub random_write_iops: Option<f64>,
    /// Overwrites of the landable space a day for five years.
    pub overwrites_per_day: Option<f64>,
}

/// Plans `drives` drives of one model.
pub fn plan(
    drive: &Drive,
    drives: u32,
    topology: Topology,
    how: Use,
    assume: &Assumptions,
) -> Result<Outcome, DoesNotFit> {
    let n = f64::from(drives);
    let k = f64::from(topology.data_drives(drives)?);
    let net_gb = k * drive.capacity_gb;
    let plain_gb = if how.is_log() {
        net_gb * assume.usable_share
    } else {
        net_gb
    };
    let landable_gb = if how == Use::LogCompressed {
        plain_gb * assume.compression
    } else {
        plain_gb
    };
    let licence = how.is_log().then(|| {
        // Rounding in the last binary digit must not start another TiB.
        let tib_begun = (plain_gb / 1024.0 - 1e-9).ceil();
        assume.licence_per_tib * tib_begun * if how == Use::LogCompressed { 2.0 } else { 1.0 }
    });
    let media = drive.price.map(|price| price * n);
    let total = media.map(|media| assume.chassis + media + licence.unwrap_or(0.0));
    Ok(Outcome {
        gross_gb: n * drive.capacity_gb,
        landable_gb,
        chassis: assume.chassis,
        media,
        licence,
        total,
        cost_per_gb: total.map(|total| total / landable_gb),
        random_write_iops: iops(drive, drives, k, topology, how, assume),
        overwrites_per_day: overwrites(drive, n, k, topology, how, assume),
    })
}

fn iops(
    drive: &Drive,
    drives: u32,
    k: f64,
    topology: Topology,
    how: Use,
    assume: &Assumptions,
) -> Option<f64> {
    match (how, assume.log_rate) {
        (Use::Linear, _) => None,
        (Use::InPlace, _) => drive
            .random_write_iops
            .map(|each| each * f64::from(topology.random_drives(drives))),
        (Use::LogCompressed, LogRate::PerDataDrive { compressed, .. }) => Some(compressed * k),
        (Use::Log, LogRate::PerDataDrive { single, double, .. }) => Some(
            if topology.parities() == 2 {
                double
            } else {
                single
            } * k,
        ),
        (_, LogRate::Members) => drive
            .linear_write_mb_s
            .map(|rate| k * rate * 1e6 / assume.log_wear / BLOCK_BYTES as f64),
    }
}

fn overwrites(
    drive: &Drive,
    n: f64,
    k: f64,
    topology: Topology,
    how: Use,
    assume: &Assumptions,
) -> Option<f64> {
    match how {
        Use::Linear => drive.linear_rating(),
        Use::InPlace => {
            let inside = if drive.rating_is_net() {
                1.0
            } else {
                drive.wear_amplification?
            };
            Some(drive.random_rating()? / inside / topology.random_writes() * n / k)
        }
        Use::Log | Use::LogCompressed => {
            let spared = assume.net_rating_spares_log_wear && drive.rating_is_net();
            // With full rows a byte costs n / k, and n / k times the data space is the total: both
            // cancel.
            Some(
                drive.random_rating()?
                    / if spared { 1.0 } else { assume.log_wear }
                    / assume.usable_share,
            )
        }
    }
}

//! Overwrites a day of classes of drives, native and under a log, counted in *gross* bytes (2017
//! paper, tables 4 and 5).
//!
//! `E / w / (5 * 365)`, divided by the topology's writes per write, divided by the share that
//! compression leaves. Where the 2014 paper counts overwrites of the net surface and leaves
//! compression out (it makes space there), this one divides.

use crate::FIVE_YEARS_DAYS;
use crate::topology::{DoesNotFit, Topology};
use serde::Serialize;

/// One column of the tables.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Class {
    /// Name of the class.
    pub name: &'static str,
    /// Kind of flash, as printed.
    pub media: &'static str,
    /// Erase cycles.
    pub erase_cycles: f64,
    /// Amplification inside the drive (native) or of the log.
    pub wear_amplification: f64,
    /// True if a log writes full rows.
    pub log: bool,
    /// Share that compression removes.
    pub compression: f64,
}

/// Results.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Overwrites {
    /// Overwrites of a single drive.
    pub single: f64,
    /// Blocks written to drives for each block.
    pub amplification: f64,
    /// Overwrites of the set.
    pub set: f64,
    /// Overwrites of the set with compression.
    pub compressed: f64,
}

/// Native columns, then those under a log.
pub fn classes() -> [Class; 8] {
    let class = |name, media, erase_cycles, wear_amplification| Class {
        name,
        media,
        erase_cycles,
        wear_amplification,
        log: false,
        compression: 0.0,
    };
    let log = |class: Class, media| Class {
        media,
        wear_amplification: LOG_WEAR,
        log: true,
        compression: journalled_compression(),
        ..class
    };
    let consumer = class("consumer", "TLC", 2000.0, 10.0);
    let read_intensive = class("read intensive", "MLC", 3000.0, 9.4);
    let data_centre = class("data centre", "MLC", 5000.0, 3.0);
    let enterprise = class("enterprise", "pSLC", 30_000.0, 3.0);
    [
        consumer,
        read_intensive,
        data_centre,
        enterprise,
        log(consumer, "TLC"),
        // Printed so, with the same cycles as the MLC of the native column.
        log(read_intensive, "TLC"),
        log(data_centre, "MLC"),
        log(enterprise, "pSLC"),
    ]
}

/// Tested for virtual machines without trim ("In the case of ESS values").
pub const LOG_WEAR: f64 = 1.43;

/// 45 % of the writes are data, a quarter of which compression removes; 55 % are journal and
/// metadata, of which it removes 85 % ("How Compression Is Used").
pub fn journalled_compression() -> f64 {
    0.45 * 0.25 + 0.55 * 0.85
}

/// Computes one column.
pub fn overwrites(
    class: &Class,
    drives: u32,
    topology: Topology,
) -> Result<Overwrites, DoesNotFit> {
    let data = topology.data_drives(drives)?;
    let amplification = if class.log {
        f64::from(drives) / f64::from(data)
    } else {
        topology.random_writes()
    };
    let single = class.erase_cycles / class.wear_amplification / FIVE_YEARS_DAYS;
    let set = single / amplification;
    Ok(Overwrites {
        single,
        amplification,
        set,
        compressed: set / (1.0 - class.compression),
    })
}

//! Use of the bytes of a new pool's members: one table from raw to usable, and the unused rest of
//! members of different sizes.

use serde::Serialize;
use std::path::{Path, PathBuf};
use windrow_engine::PoolPlan;
use windrow_geometry::{Redundancy, Zone};

/// Split of the bytes of all data members. `raw_bytes` is the sum of all others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Capacity {
    /// All data members.
    pub raw_bytes: u64,
    /// Labels and superblocks, and the gap up to the alignment.
    pub labels_bytes: u64,
    /// The journal on the members.
    pub journal_bytes: u64,
    /// Not used: members are larger than others, or end between two segments.
    pub unused_bytes: u64,
    /// Parity or copies.
    pub redundancy_bytes: u64,
    /// Headers, tables and footers of batches.
    pub batch_bytes: u64,
    /// Images of the map.
    pub checkpoint_bytes: u64,
    /// Open segments, and room for cleaning.
    pub reserve_bytes: u64,
    /// The index of deduplication.
    pub index_bytes: u64,
    /// The spare factor.
    pub spare_bytes: u64,
    /// Ends of columns, if reduction adds capacity.
    pub column_bytes: u64,
    /// Bytes that data may fill.
    pub usable_bytes: u64,
}

/// A member with a part that no segment uses.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Unused {
    /// The member.
    pub path: PathBuf,
    /// Bytes.
    pub unused_bytes: u64,
    /// Change that would use them.
    pub remedy: String,
}

impl Capacity {
    /// Split of a plan over data members of these sizes.
    pub fn of(plan: &PoolPlan, sizes: &[u64]) -> Self {
        let count = sizes.len() as u64;
        let (raw_bytes, overhead) = (sizes.iter().sum::<u64>(), plan.overhead);
        let start = plan.zones.first().map_or(0, |zone| zone.start);
        let used: u64 = plan
            .zones
            .iter()
            .map(|zone| {
                u64::from(zone.segments) * u64::from(zone.shape.width) * zone.shape.extent_bytes()
            })
            .sum();
        Self {
            raw_bytes,
            labels_bytes: count * (start - overhead.journal_bytes_each),
            journal_bytes: count * overhead.journal_bytes_each,
            unused_bytes: raw_bytes - count * start - used,
            redundancy_bytes: used - plan.data_bytes,
            batch_bytes: overhead.batch_bytes,
            checkpoint_bytes: overhead.checkpoint_bytes,
            reserve_bytes: overhead.reserve_bytes,
            index_bytes: overhead.index_bytes,
            spare_bytes: overhead.spare_bytes,
            column_bytes: overhead.column_bytes,
            usable_bytes: plan.usable_bytes,
        }
    }

    /// The table of deductions from the raw bytes, in order, without zeros.
    pub fn rows(&self) -> Vec<(&'static str, u64)> {
        let rows = [
            ("labels and superblocks", self.labels_bytes),
            ("journal on the members", self.journal_bytes),
            ("unused parts of members", self.unused_bytes),
            ("parity or copies", self.redundancy_bytes),
            ("headers of batches", self.batch_bytes),
            ("checkpoints of the map", self.checkpoint_bytes),
            ("open segments, cleaning", self.reserve_bytes),
            ("index of deduplication", self.index_bytes),
            ("spare factor", self.spare_bytes),
            ("ends of compressed columns", self.column_bytes),
        ];
        rows.into_iter().filter(|(_, bytes)| *bytes > 0).collect()
    }
}

/// Offset at which a zone ends on its members.
fn end(zone: &Zone) -> u64 {
    let members = u64::from(zone.members.count_ones()).max(1);
    let extents = (u64::from(zone.segments) * u64::from(zone.shape.width)).div_ceil(members);
    zone.start + extents * zone.shape.extent_bytes()
}

/// Members that exceed what segments use of them by at least a segment.
pub fn unused(plan: &PoolPlan, redundancy: Redundancy, members: &[(&Path, u64)]) -> Vec<Unused> {
    let Some(first) = plan.zones.first() else {
        return Vec::new();
    };
    let extent = first.shape.extent_bytes();
    let used = |index: usize| {
        let mine = plan
            .zones
            .iter()
            .filter(|zone| zone.members >> index & 1 != 0);
        mine.map(end).max().unwrap_or(first.start)
    };
    let mut list = Vec::new();
    for (index, (path, size)) in members.iter().enumerate() {
        let used = used(index);
        let unused_bytes = size.saturating_sub(used);
        if unused_bytes < extent {
            continue;
        }
        let larger = members
            .iter()
            .filter(|(_, other)| other.saturating_sub(used) >= extent)
            .count();
        let missing = redundancy.min_members().saturating_sub(larger);
        let remedy = match missing {
            0 => "smaller segments (--segment) would use more of it".to_owned(),
            1 => "one more member as large would use it".to_owned(),
            missing => format!("{missing} more members as large would use it"),
        };
        list.push(Unused {
            path: path.to_path_buf(),
            unused_bytes,
            remedy,
        });
    }
    list
}

#[cfg(test)]
mod tests;

//! The state of data, apart from the state of members: a pool with all its members online may have
//! lost blocks.

use serde::{Deserialize, Serialize};
use windrow_engine::{PoolStatus, VolumeRange};
use windrow_types::VolumeId;

/// Loss of data, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataState {
    /// No block is known to be lost.
    #[default]
    Intact,
    /// Blocks are lost.
    Damaged,
    /// Blocks were found lost before the start. A scrub or a read of them shows whether they still
    /// are.
    Unknown,
}

impl DataState {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Intact, Self::Damaged, Self::Unknown];

    /// The name used in JSON and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Intact => "intact",
            Self::Damaged => "damaged",
            Self::Unknown => "unknown",
        }
    }
}

/// A range of lost blocks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LostRange {
    /// Volume; `#id` if it has been deleted.
    pub volume: String,
    /// First block of 4 KiB; its byte offset is 4096 times this.
    pub block: u64,
    /// Number of blocks.
    pub blocks: u64,
}

/// The state of data.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DataReport {
    /// State.
    pub state: DataState,
    /// Blocks found lost since the daemon started, and not written, trimmed or read well since.
    pub lost_blocks: u64,
    /// The first ranges of them.
    pub lost: Vec<LostRange>,
    /// Lower bound of the blocks that were found lost before the start and not verified since.
    pub unverified_blocks: u64,
    /// The remembered ranges of them.
    pub unverified: Vec<LostRange>,
    /// Time when the oldest of them was found, seconds since 1970; 0: none, or not known.
    pub since_unix_s: u64,
}

impl DataReport {
    /// Computes it from the engine's status.
    pub fn new(status: &PoolStatus) -> Self {
        let damage = &status.damage;
        let name = |id: VolumeId| {
            status
                .volumes
                .iter()
                .find(|volume| volume.id == id)
                .map_or_else(|| format!("#{}", id.0), |volume| volume.name.clone())
        };
        let named = |ranges: &[VolumeRange]| {
            ranges
                .iter()
                .map(|r| LostRange {
                    volume: name(r.volume),
                    block: r.lba,
                    blocks: r.blocks,
                })
                .collect()
        };
        let state = match (
            damage.lost_blocks + damage.lost_contents,
            damage.recalled_blocks,
        ) {
            (0, 0) => DataState::Intact,
            (0, _) => DataState::Unknown,
            _ => DataState::Damaged,
        };
        Self {
            state,
            lost_blocks: damage.lost_blocks,
            lost: named(&damage.lost),
            unverified_blocks: damage.recalled_blocks,
            unverified: named(&damage.recalled),
            since_unix_s: damage.since_unix_s,
        }
    }

    /// Text that follows the state of the pool in a line; empty if data is intact.
    pub fn remark(&self) -> String {
        match self.state {
            DataState::Intact => String::new(),
            DataState::Damaged if self.lost_blocks == 0 => {
                ", data damaged: content that volumes share is lost".to_owned()
            }
            DataState::Damaged => format!(", data damaged: {} blocks lost", self.lost_blocks),
            DataState::Unknown => {
                format!(
                    ", data unknown: {} blocks were lost before the start and are not verified since, run `windrow pool scrub`",
                    self.unverified_blocks
                )
            }
        }
    }
}

//! Policies by name and by number: the same names in the laboratory, on the command line and in a
//! pool's properties.
//!
//! A [`Policy`] is a placement and a victim rule, `PLACEMENT`, `PLACEMENT+RULE` or
//! `PLACEMENT+RULE/STREAMS`; a placement alone implies its default rule. The numbers of placements
//! and rules are part of the on-disk format of the superblock.

use crate::select::Rule;

/// A placement by name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PlacementKind {
    /// One stream.
    Mixed,
    /// User writes, moved blocks.
    Separate,
    /// Dynamic data clustering.
    Clusters,
    /// SFS.
    Hotness,
    /// FADaC.
    Fading,
    /// SepBIT.
    Invalidation,
    /// One stream further with each move.
    Generations,
    /// MiDAS.
    Chain,
    /// Windrow's own.
    Learned,
    /// Future knowledge.
    Oracle,
}

impl PlacementKind {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Mixed,
        Self::Separate,
        Self::Clusters,
        Self::Hotness,
        Self::Fading,
        Self::Invalidation,
        Self::Generations,
        Self::Chain,
        Self::Learned,
        Self::Oracle,
    ];

    /// Name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mixed => "none",
            Self::Separate => "separate",
            Self::Clusters => "dac",
            Self::Hotness => "sfs",
            Self::Fading => "fadac",
            Self::Invalidation => "sepbit",
            Self::Generations => "generations",
            Self::Chain => "midas",
            Self::Learned => "learned",
            Self::Oracle => "oracle",
        }
    }

    /// Looks up a placement by name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Default victim rule.
    pub const fn rule(self) -> Rule {
        match self {
            Self::Mixed => Rule::Greedy,
            Self::Learned => Rule::Gain,
            _ => Rule::AgeRoot,
        }
    }

    /// Default maximum number of streams.
    pub const fn streams(self) -> u8 {
        match self {
            Self::Mixed => 1,
            Self::Separate => 2,
            Self::Learned => 8,
            Self::Oracle => 64,
            _ => 6,
        }
    }

    /// Its number in a pool's properties; `None` for placements that only the laboratory has. An
    /// engine always separates moved blocks, and has no future knowledge.
    pub const fn code(self) -> Option<u8> {
        match self {
            Self::Mixed | Self::Oracle => None,
            Self::Separate => Some(0),
            Self::Clusters => Some(1),
            Self::Hotness => Some(2),
            Self::Fading => Some(3),
            Self::Invalidation => Some(4),
            Self::Generations => Some(5),
            Self::Learned => Some(6),
            Self::Chain => Some(7),
        }
    }

    /// Looks up a placement by number.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == Some(code))
    }

    /// Bytes that the placement keeps for each block.
    pub const fn bytes_per_block(self) -> u32 {
        match self {
            Self::Mixed | Self::Separate | Self::Generations => 0,
            Self::Clusters => 1,
            Self::Fading => 2,
            Self::Invalidation | Self::Chain => 5,
            Self::Learned => 6,
            Self::Hotness => 8,
            Self::Oracle => 4,
        }
    }
}

/// Placement and victim rule.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Policy {
    /// Placement of blocks.
    pub placement: PlacementKind,
    /// Victim rule.
    pub rule: Rule,
    /// Maximum number of streams.
    pub streams: u8,
}

impl Policy {
    /// A placement with its default rule.
    pub fn of(placement: PlacementKind) -> Self {
        Self {
            placement,
            rule: placement.rule(),
            streams: placement.streams(),
        }
    }

    /// Parses `PLACEMENT`, `PLACEMENT+RULE` or `PLACEMENT+RULE/STREAMS`.
    ///
    /// # Errors
    /// Lists the valid names.
    pub fn from_name(name: &str) -> Result<Self, String> {
        let (rest, streams) = name
            .split_once('/')
            .map_or((name, None), |(rest, streams)| (rest, Some(streams)));
        let (placement, rule) = rest
            .split_once('+')
            .map_or((rest, None), |(placement, rule)| (placement, Some(rule)));
        let known = || PlacementKind::ALL.map(PlacementKind::name).join(", ");
        let placement = PlacementKind::from_name(placement)
            .ok_or_else(|| format!("'{placement}' is no placement; there are {}", known()))?;
        let mut policy = Self::of(placement);
        if let Some(rule) = rule {
            let rules = "greedy, cost-benefit, age-root, fifo, choices:N, window:N, gain";
            policy.rule = Rule::from_name(rule)
                .ok_or_else(|| format!("'{rule}' is no victim rule; there are {rules}"))?;
        }
        if let Some(streams) = streams {
            policy.streams = streams
                .parse()
                .ok()
                .filter(|n| (1..=64).contains(n))
                .ok_or_else(|| format!("'{streams}' is not 1 to 64 streams"))?;
        }
        Ok(policy)
    }

    /// Name that [`Policy::from_name`] parses.
    pub fn name(&self) -> String {
        format!(
            "{}+{}/{}",
            self.placement.name(),
            self.rule.name(),
            self.streams
        )
    }
}

#[cfg(test)]
mod tests;

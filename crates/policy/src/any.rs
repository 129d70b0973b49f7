//! Any placement that an engine offers, and the mapping of its classes to streams.
//!
//! An engine keeps user writes and moved blocks in separate streams; recovery and the reserve
//! depend on that. A placement has one row of classes instead, which [`Classes`] maps: there are as
//! many streams of either kind as the pool can afford. With fewer streams than classes, the classes
//! that this kind of write uses least are merged: the cold ones for user writes, the hot ones for
//! moved blocks.

use crate::kind::PlacementKind;
use crate::learn::{Learned, LearnedOptions};
use crate::place::{
    Chain, Clusters, Due, Fading, Generations, Hotness, Invalidation, Mixed, Place, Placement,
    Separate, Survey,
};

/// Maximum number of user streams, and of cleaning streams, of an engine.
pub const USER_STREAMS_MAX: usize = 3;
/// See [`USER_STREAMS_MAX`].
pub const MOVED_STREAMS_MAX: usize = 4;

/// Dispatches to the placement in the enum.
macro_rules! all {
    ($any:expr, $placement:ident => $what:expr) => {
        match $any {
            AnyPlacement::Mixed($placement) => $what,
            AnyPlacement::Separate($placement) => $what,
            AnyPlacement::Clusters($placement) => $what,
            AnyPlacement::Hotness($placement) => $what,
            AnyPlacement::Fading($placement) => $what,
            AnyPlacement::Invalidation($placement) => $what,
            AnyPlacement::Generations($placement) => $what,
            AnyPlacement::Chain($placement) => $what,
            AnyPlacement::Learned($placement) => $what,
        }
    };
}
/// A placement by its kind.
pub enum AnyPlacement {
    /// One stream.
    Mixed(Mixed),
    /// Moved blocks in a separate stream.
    Separate(Separate),
    /// DAC.
    Clusters(Clusters),
    /// SFS.
    Hotness(Hotness),
    /// FADaC.
    Fading(Fading),
    /// SepBIT.
    Invalidation(Invalidation),
    /// Generations.
    Generations(Generations),
    /// MiDAS.
    Chain(Box<Chain>),
    /// Windrow's own.
    Learned(Box<Learned>),
}

impl core::fmt::Debug for AnyPlacement {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (name, streams) = all!(self, p => (core::any::type_name_of_val(p), p.streams()));
        write!(f, "{name} of {streams}")
    }
}

impl AnyPlacement {
    /// A placement for blocks `0 .. blocks` and segments `0 .. segments` of `segment_blocks`, with
    /// `classes` classes. A kind that is not available (future knowledge) becomes [`Separate`].
    pub fn new(
        kind: PlacementKind,
        blocks: u32,
        segments: u32,
        segment_blocks: u32,
        classes: u8,
    ) -> Self {
        match kind {
            PlacementKind::Mixed => Self::Mixed(Mixed),
            PlacementKind::Separate | PlacementKind::Oracle => Self::Separate(Separate),
            PlacementKind::Clusters => Self::Clusters(Clusters::new(blocks, classes)),
            PlacementKind::Hotness => Self::Hotness(Hotness::new(blocks, segments, classes)),
            PlacementKind::Fading => Self::Fading(Fading::new(blocks, classes)),
            PlacementKind::Invalidation => Self::Invalidation(Invalidation::new(blocks)),
            PlacementKind::Generations => Self::Generations(Generations::new(classes)),
            PlacementKind::Chain => {
                Self::Chain(Box::new(Chain::new(blocks, segment_blocks, classes)))
            }
            PlacementKind::Learned => {
                let options = LearnedOptions {
                    streams: classes,
                    segment_blocks,
                    open_cost: 0.5,
                };
                Self::Learned(Box::new(Learned::new(blocks, options)))
            }
        }
    }

    /// True if the placement wants a survey at each victim, too.
    pub fn surveys_victims(&self) -> bool {
        matches!(self, Self::Hotness(_))
    }
}

impl Placement for AnyPlacement {
    fn streams(&self) -> usize {
        all!(self, p => p.streams())
    }
    #[inline]
    fn user(&mut self, block: u32, now: u32) -> u8 {
        all!(self, p => p.user(block, now))
    }
    #[inline]
    fn moved(&mut self, block: u32, now: u32, from: Place) -> u8 {
        all!(self, p => p.moved(block, now, from))
    }
    #[inline]
    fn placed(&mut self, block: u32, segment: u32, now: u32) {
        all!(self, p => p.placed(block, segment, now));
    }
    #[inline]
    fn died(&mut self, block: u32, now: u32, place: Place, trimmed: bool) {
        all!(self, p => p.died(block, now, place, trimmed));
    }
    fn victim(&mut self, place: Place, live: u32, opened_at: u32, now: u32) {
        all!(self, p => p.victim(place, live, opened_at, now));
    }
    fn chosen(&mut self, price: f64) {
        all!(self, p => p.chosen(price));
    }
    fn survey(&mut self, now: u32, log: &dyn Survey) {
        all!(self, p => p.survey(now, log));
    }
    fn tag(&self, stream: u8) -> u8 {
        all!(self, p => p.tag(stream))
    }
    #[inline]
    fn rate(&self, place: Place) -> f32 {
        all!(self, p => p.rate(place))
    }
    fn due(&self) -> Option<Due> {
        all!(self, p => p.due())
    }
    fn group_of(&self, tag: u8) -> u8 {
        all!(self, p => p.group_of(tag))
    }
    fn watches_deaths(&self) -> bool {
        all!(self, p => p.watches_deaths())
    }
}

/// Mapping of a placement's classes to streams. Streams of a kind are numbered from 0; stream 0 of
/// either kind takes the classes that have no other stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Classes {
    kind: PlacementKind,
    /// Number of requested classes.
    pub classes: u8,
    /// Number of user streams.
    pub users: u8,
    /// Number of cleaning streams.
    pub moved: u8,
}

impl Classes {
    /// Mapping for a kind, with at most `extra` streams in addition to the first user and the first
    /// cleaning stream.
    pub fn new(kind: PlacementKind, mut extra: u32) -> Self {
        let (users_max, moved_max) = match kind {
            PlacementKind::Mixed | PlacementKind::Separate | PlacementKind::Oracle => (1, 1),
            PlacementKind::Invalidation | PlacementKind::Chain => (2, MOVED_STREAMS_MAX as u8),
            PlacementKind::Generations => (1, MOVED_STREAMS_MAX as u8),
            _ => (USER_STREAMS_MAX as u8, MOVED_STREAMS_MAX as u8),
        };
        let (mut users, mut moved) = (1, 1);
        // Moved blocks gain most from streams of their own kind; SepBIT depends on what it knows of
        // user writes.
        let mut turn = kind == PlacementKind::Invalidation;
        while extra > 0 && (users < users_max || moved < moved_max) {
            if (turn && users < users_max) || moved == moved_max {
                users += 1
            } else {
                moved += 1
            }
            (turn, extra) = (!turn, extra - 1);
        }
        let classes = match kind {
            PlacementKind::Mixed => 1,
            PlacementKind::Separate | PlacementKind::Oracle => 2,
            PlacementKind::Invalidation => 6,
            PlacementKind::Generations => 1 + moved,
            PlacementKind::Chain => 2 + moved,
            _ => moved.max(users),
        };
        Self {
            kind,
            classes,
            users,
            moved,
        }
    }

    /// True if there is only one stream of either kind.
    pub fn is_plain(&self) -> bool {
        self.users == 1 && self.moved == 1
    }

    /// User stream for a class.
    #[inline]
    pub fn user(&self, class: u8) -> u8 {
        match self.kind {
            PlacementKind::Clusters | PlacementKind::Fading => class
                .saturating_sub(self.classes.saturating_sub(self.users))
                .min(self.users - 1),
            // Most writes are not hot; they belong to the stream that also takes the remaining
            // classes.
            PlacementKind::Chain => u8::from(class == 0).min(self.users - 1),
            _ => class.min(self.users - 1),
        }
    }

    /// Cleaning stream for a class.
    #[inline]
    pub fn moved(&self, class: u8) -> u8 {
        class.saturating_sub(self.first_moved()).min(self.moved - 1)
    }

    /// Class of a user stream.
    pub fn class_of_user(&self, stream: u8) -> u8 {
        match self.kind {
            PlacementKind::Clusters | PlacementKind::Fading => {
                stream + self.classes.saturating_sub(self.users)
            }
            PlacementKind::Chain => u8::from(stream == 0),
            _ => stream,
        }
    }

    /// Class of a cleaning stream.
    pub fn class_of_moved(&self, stream: u8) -> u8 {
        stream + self.first_moved()
    }

    /// Class of the first cleaning stream.
    fn first_moved(&self) -> u8 {
        match self.kind {
            PlacementKind::Clusters | PlacementKind::Fading | PlacementKind::Mixed => 0,
            PlacementKind::Invalidation | PlacementKind::Chain => 2,
            PlacementKind::Generations | PlacementKind::Separate | PlacementKind::Oracle => 1,
            PlacementKind::Hotness | PlacementKind::Learned => {
                self.classes.saturating_sub(self.moved)
            }
        }
    }
}

#[cfg(test)]
mod tests;

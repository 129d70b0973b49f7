//! Any of the placements that an engine offers, and which of its streams their classes go to.
//!
//! An engine keeps what users write and what cleaning moves in streams of their own: recovery and
//! the reserve reckon with that. A placement knows one row of classes instead. [`Classes`]
//! translates: there are as many streams of either kind as the pool can afford, and where there are
//! fewer than classes, those are put together that this kind of write meets least: for users'
//! writes the cold ones, for moved blocks the hot ones.

use crate::kind::PlacementKind;
use crate::learn::{Learned, LearnedOptions};
use crate::place::{
    Chain, Clusters, Due, Fading, Generations, Hotness, Invalidation, Mixed, Place, Placement,
    Separate, Survey,
};

/// Most streams of users' writes, and of moved blocks, of an engine.
pub const USER_STREAMS_MAX: usize = 3;
/// See [`USER_STREAMS_MAX`].
pub const MOVED_STREAMS_MAX: usize = 4;

/// Does the same with whatever placement it is.
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
    /// Moved blocks apart.
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
    /// Ours.
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
    /// so many classes. What a kind does not have (the future) is [`Separate`].
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

    /// True if a survey is wanted at each victim, too.
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

/// Which streams the classes of a placement go to. Streams of a kind are numbered from 0; stream 0
/// of either kind takes what the others can not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Classes {
    kind: PlacementKind,
    /// Classes that are asked for.
    pub classes: u8,
    /// Streams of users' writes.
    pub users: u8,
    /// Streams of moved blocks.
    pub moved: u8,
}

impl Classes {
    /// For a kind, with at most so many streams beside the first of users and the first of moved
    /// blocks.
    pub fn new(kind: PlacementKind, mut extra: u32) -> Self {
        let (users_max, moved_max) = match kind {
            PlacementKind::Mixed | PlacementKind::Separate | PlacementKind::Oracle => (1, 1),
            PlacementKind::Invalidation | PlacementKind::Chain => (2, MOVED_STREAMS_MAX as u8),
            PlacementKind::Generations => (1, MOVED_STREAMS_MAX as u8),
            _ => (USER_STREAMS_MAX as u8, MOVED_STREAMS_MAX as u8),
        };
        let (mut users, mut moved) = (1, 1);
        // Moved blocks gain most by company of their kind; SepBIT lives by what it knows of users'
        // writes.
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

    /// True if there is but one stream of either kind.
    pub fn is_plain(&self) -> bool {
        self.users == 1 && self.moved == 1
    }

    /// The stream of users' writes for a class.
    #[inline]
    pub fn user(&self, class: u8) -> u8 {
        match self.kind {
            PlacementKind::Clusters | PlacementKind::Fading => class
                .saturating_sub(self.classes.saturating_sub(self.users))
                .min(self.users - 1),
            // What is not hot is most of it, and belongs to the stream that also takes what others
            // can not.
            PlacementKind::Chain => u8::from(class == 0).min(self.users - 1),
            _ => class.min(self.users - 1),
        }
    }

    /// The stream of moved blocks for a class.
    #[inline]
    pub fn moved(&self, class: u8) -> u8 {
        class.saturating_sub(self.first_moved()).min(self.moved - 1)
    }

    /// The class that a stream of users' writes stands for.
    pub fn class_of_user(&self, stream: u8) -> u8 {
        match self.kind {
            PlacementKind::Clusters | PlacementKind::Fading => {
                stream + self.classes.saturating_sub(self.users)
            }
            PlacementKind::Chain => u8::from(stream == 0),
            _ => stream,
        }
    }

    /// The class that a stream of moved blocks stands for.
    pub fn class_of_moved(&self, stream: u8) -> u8 {
        stream + self.first_moved()
    }

    /// The class that the first stream of moved blocks stands for.
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

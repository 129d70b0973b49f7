//! Placement: the choice of a stream for a block, by what is known of the block.
//!
//! A [`Placement`] receives every write, move, death and victim, and returns a stream. Streams are
//! numbers `0 .. streams()`; only the placement knows their meaning. Time is the number of user
//! block writes; it wraps at 32 bits, and only differences count.
//!
//! | placement | bytes per block | idea |
//! |---|---|---|
//! | [`Mixed`] | 0 | one stream |
//! | [`Separate`] | 0 | user writes, moved blocks |
//! | [`Clusters`] | 1 | up one stream with each write, down one with each move (dynamic data clustering) |
//! | [`Hotness`] | 8 | writes per time since the last, nearest centre of segments (SFS) |
//! | [`Fading`] | 2 | writes less moves, against a fading average, decades (FADaC) |
//! | [`Invalidation`] | 5 | lifetime of the version that dies, age of moved blocks (SepBIT) |
//! | [`Generations`] | 0 | one stream further with each move (the chain of MiDAS, without its sizing) |
//! | [`Chain`] | 5 | the same chain with groups sized by a model and a group for hot blocks (MiDAS) |
//! | [`Learned`] | 6 | Windrow's own: learns the lifetimes of blocks and places for the least cost |

mod peers;

use crate::chain::GROUPS;

pub use crate::chain::Chain;
pub use crate::learn::Learned;
pub use peers::{Clusters, Fading, Generations, Hotness, Invalidation, Mixed, Separate};

/// Maximum number of streams of any placement.
pub const STREAMS_MAX: usize = 64;

/// Number of candidate lists that a log keeps, see [`Due::list`].
pub const LISTS: usize = GROUPS + 1;

/// Knowledge of a sealed or open segment for placements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The segment.
    pub segment: u32,
    /// Tag that [`Placement::tag`] gave its stream when it was sealed. 0 also if it is unknown:
    /// after a start of an engine, and after a change of placement.
    pub tag: u8,
    /// Time since it was sealed; 0 if it is open.
    pub age: u32,
}

/// Source of the next victim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Due {
    /// Among the segments of this group ([`Placement::group_of`]).
    pub group: u8,
    /// True for the segment sealed first, whatever the rule of the log.
    pub first_sealed: bool,
}

impl Due {
    /// Index of the candidate list (of [`LISTS`]) for the victim. There is one for victims from
    /// anywhere, and one for those that the rule of the log picks of a group. Each group that
    /// yields its segment sealed first has a further one. Entries of a list were thus put there by
    /// the rule that takes them.
    pub fn list(due: Option<Self>) -> usize {
        match due {
            None => 0,
            Some(Self {
                first_sealed: false,
                ..
            }) => 1,
            Some(Self { group, .. }) => (2 + usize::from(group)).min(LISTS - 1),
        }
    }
}

/// Read access to the segments of a log, for a survey.
pub trait Survey {
    /// Calls `each` with place and live blocks of every sealed segment.
    fn sealed(&self, each: &mut dyn FnMut(Place, u32));
}

/// Chooses streams. All calls are in event order.
pub trait Placement {
    /// True if [`Placement::survey`] is wanted at each victim, too.
    const SURVEYS_VICTIMS: bool = false;
    /// Number of streams in use now, 1 to [`STREAMS_MAX`].
    fn streams(&self) -> usize;
    /// Reads the entries of blocks that are about to be written or moved, so that cache misses
    /// overlap. The result has no meaning; it keeps the reads from being optimised away. `written`:
    /// users write the blocks.
    fn touch(&self, _blocks: &[u32], _written: bool) -> u32 {
        0
    }
    /// The user writes a block; [`Placement::died`] was called for its last version if that was
    /// live.
    fn user(&mut self, block: u32, now: u32) -> u8;
    /// A live block of a victim moves.
    fn moved(&mut self, block: u32, now: u32, from: Place) -> u8;
    /// A block has been put into a segment.
    fn placed(&mut self, _block: u32, _segment: u32, _now: u32) {}
    /// The live version of a block died: overwritten, or trimmed.
    fn died(&mut self, _block: u32, _now: u32, _place: Place, _trimmed: bool) {}
    /// A segment is about to be cleaned; `sealed_at` and `opened_at` are times.
    fn victim(&mut self, _place: Place, _live: u32, _opened_at: u32, _now: u32) {}
    /// A victim was chosen at this price by the rule of the log.
    fn chosen(&mut self, _price: f64) {}
    /// Called now and then, so that a placement can look at all segments.
    fn survey(&mut self, _now: u32, _log: &dyn Survey) {}
    /// Mark of a segment of this stream when it is sealed.
    fn tag(&self, stream: u8) -> u8 {
        stream
    }
    /// Group of the next victim, for placements that limit the sizes of groups; `None`: from
    /// anywhere.
    #[inline]
    fn due(&self) -> Option<Due> {
        None
    }
    /// Group of the segments with this mark.
    fn group_of(&self, _tag: u8) -> u8 {
        0
    }
    /// Expected deaths per time and live block in a segment; the expected-gain rule needs it.
    /// Placements without knowledge return the same for all.
    fn rate(&self, _place: Place) -> f32 {
        1.0
    }
    /// True if [`Placement::died`] needs the place, which costs a look-up of the segment.
    fn watches_deaths(&self) -> bool {
        true
    }
}

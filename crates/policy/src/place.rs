//! Where blocks are written: which of a few streams, by what is known of the block.
//!
//! A [`Placement`] is told of every write, move, death and victim, and answers with a stream.
//! Streams are numbers `0 .. streams()`; what they mean is the placement's own affair. Time is the
//! number of blocks that users have written; it wraps at 32 bits, and differences are what counts.
//!
//! | placement | bytes per block | idea |
//! |---|---|---|
//! | [`Mixed`] | 0 | one stream |
//! | [`Separate`] | 0 | users' writes, moved blocks |
//! | [`Clusters`] | 1 | up one stream with each write, down one with each move (dynamic data clustering) |
//! | [`Hotness`] | 8 | writes per time since the last, nearest of centres of segments (SFS) |
//! | [`Fading`] | 2 | writes less moves, against a fading average, decades (FADaC) |
//! | [`Invalidation`] | 5 | life of the version that dies, age of moved blocks (SepBIT) |
//! | [`Generations`] | 0 | one stream further with each move (the chain of MiDAS, without its sizing) |
//! | [`Chain`] | 5 | the same chain with groups sized by a model and hot blocks apart (MiDAS) |
//! | [`Learned`] | 6 | ours: learns how long blocks live, places for the cheapest end, see there |

mod peers;

use crate::chain::GROUPS;

pub use crate::chain::Chain;
pub use crate::learn::Learned;
pub use peers::{Clusters, Fading, Generations, Hotness, Invalidation, Mixed, Separate};

/// Most streams of any placement.
pub const STREAMS_MAX: usize = 64;

/// Lists of candidates that a log keeps, see [`Due::list`].
pub const LISTS: usize = GROUPS + 1;

/// What a placement may know of a sealed or open segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The segment.
    pub segment: u32,
    /// The tag that [`Placement::tag`] gave its stream when it was sealed; 0 also where nobody
    /// knows: after a start of an engine, and once it has another placement.
    pub tag: u8,
    /// Time since it was sealed; 0 if it is open.
    pub age: u32,
}

/// Where the next victim is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Due {
    /// Among the segments of this group ([`Placement::group_of`]).
    pub group: u8,
    /// The one sealed first, whatever the rule of the log is.
    pub first_sealed: bool,
}

impl Due {
    /// Which of [`LISTS`] lists of candidates the victim is looked for in. There is one for victims
    /// that are due from anywhere, one for those that the rule of the log picks of a group, and one
    /// for each group that gives what it sealed first: so what is on a list was put there by the
    /// rule that takes it.
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

/// Chooses streams. All calls are in the order of events.
pub trait Placement {
    /// True if [`Placement::survey`] is wanted at each victim, too.
    const SURVEYS_VICTIMS: bool = false;
    /// Streams in use now, 1 to [`STREAMS_MAX`].
    fn streams(&self) -> usize;
    /// Reads what it keeps of blocks that are about to be written or moved, so that misses of the
    /// cache overlap; the answer says nothing, and is there so that the reads are not left out.
    /// `written`: users write them.
    fn touch(&self, _blocks: &[u32], _written: bool) -> u32 {
        0
    }
    /// The user writes a block; its last version, if it was live, has been told to
    /// [`Placement::died`] before.
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
    /// What a segment of this stream is marked with when it is sealed.
    fn tag(&self, stream: u8) -> u8 {
        stream
    }
    /// The group that a victim is to come from, for placements that say how large groups of
    /// segments are; `None`: from anywhere.
    #[inline]
    fn due(&self) -> Option<Due> {
        None
    }
    /// The group of segments that are marked with this.
    fn group_of(&self, _tag: u8) -> u8 {
        0
    }
    /// Expected deaths per time and live block in a segment: what choosing victims by expected gain
    /// asks for. Placements that know nothing say the same for all.
    fn rate(&self, _place: Place) -> f32 {
        1.0
    }
    /// True if [`Placement::died`] wants to be told the place, which costs a look at the segment.
    fn watches_deaths(&self) -> bool {
        true
    }
}

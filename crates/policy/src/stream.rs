//! Write streams: blocks of one stream share segments, so a stream should hold blocks that die at
//! about the same time.

/// A write stream. Its number is part of the on-disk format.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Stream {
    /// User blocks as written.
    User = 0,
    /// A second stream of user blocks, reserved for the separation of hot and cold ones.
    UserSecond = 1,
    /// Live blocks moved out of victims: they have outlived their neighbours once.
    Cleaned = 2,
    /// Pages of checkpoints: all pages of one checkpoint die together, when the next but one is
    /// complete.
    Checkpoint = 3,
}

impl Stream {
    /// All streams, in order of their numbers.
    pub const ALL: [Self; 4] = [
        Self::User,
        Self::UserSecond,
        Self::Cleaned,
        Self::Checkpoint,
    ];

    /// The number in headers and superblocks.
    #[inline]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Looks up a stream by its number.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::User),
            1 => Some(Self::UserSecond),
            2 => Some(Self::Cleaned),
            3 => Some(Self::Checkpoint),
            _ => None,
        }
    }
}

/// Reason that a block is written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Origin {
    /// A user wrote it.
    User,
    /// Cleaning or repair moves it.
    Moved,
    /// It is a page of a checkpoint.
    CheckpointPage,
}

/// Stream for a block. User and moved blocks are separate, because live blocks of victims are
/// colder than user writes. Mixed, every segment would keep some cold blocks that are moved again
/// and again.
#[inline]
pub const fn placement(origin: Origin) -> Stream {
    match origin {
        Origin::User => Stream::User,
        Origin::Moved => Stream::Cleaned,
        Origin::CheckpointPage => Stream::Checkpoint,
    }
}

#[cfg(test)]
mod tests;

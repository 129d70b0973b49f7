//! Identifiers and counters.

use core::fmt;
use serde::{Deserialize, Serialize};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The value as an index.
            #[inline]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
            /// The value that follows.
            #[inline]
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// Block number inside a volume, in units of 4 KiB.
    Lba(u64)
}
number! {
    /// A volume of the pool; never reused. 0 is not a user volume: it holds the content of shared
    /// blocks.
    VolumeId(u32)
}
impl VolumeId {
    /// The shared volume: its blocks are the content of shared blocks.
    pub const SHARED: Self = Self(0);
    /// The volume of deduplication index pages. User volumes have lower ids.
    pub const INDEX: Self = Self(0xff_ffff);

    /// True if the id is in the range of user volumes.
    pub fn is_of_user(self) -> bool {
        Self::SHARED < self && self < Self::INDEX
    }
}

number! {
    /// A segment of the pool.
    SegmentId(u32)
}
number! {
    /// Index of a member in the pool's member table (0 to 63).
    MemberId(u8)
}
number! {
    /// Index of a write stream.
    StreamId(u8)
}
number! {
    /// Pool-wide sequence number (LSN) of an admitted user block write, trim, zero or volume
    /// operation. 0 precedes all operations.
    Lsn(u64)
}
number! {
    /// Batch sequence number within a stream; starts at 1 and is never reused.
    BatchSeq(u64)
}
number! {
    /// Epoch, raised by every import for writing. Entries of an older epoch past the fence stay
    /// void.
    Epoch(u64)
}
number! {
    /// Superblock generation; the newest valid one of a quorum is used.
    Generation(u64)
}

impl SegmentId {
    /// On-disk value for "no segment".
    pub const NONE: Self = Self(u32::MAX);
}

/// A 128-bit identifier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

/// The identifier of a pool.
pub type PoolUuid = Uuid;

impl Uuid {
    /// A version-4 (random) identifier from 16 random bytes.
    pub fn from_random(mut bytes: [u8; 16]) -> Self {
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        Self(bytes)
    }

    /// Halves as little-endian words, for seeding checksums.
    pub fn words(&self) -> (u64, u64) {
        let (low, high) = self.0.split_at(8);
        let word = |half: &[u8]| {
            half.iter()
                .rev()
                .fold(0u64, |acc, b| (acc << 8) | u64::from(*b))
        };
        (word(low), word(high))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, b) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{b:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl core::str::FromStr for Uuid {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let hex: Vec<u8> = text.bytes().filter(|b| *b != b'-').collect();
        if hex.len() != 32 || !text.is_ascii() {
            return Err("an identifier has 32 hexadecimal digits");
        }
        let mut out = [0u8; 16];
        for (slot, pair) in out.iter_mut().zip(hex.chunks_exact(2)) {
            let digit = |b: u8| {
                (b as char)
                    .to_digit(16)
                    .ok_or("an identifier has only hexadecimal digits")
            };
            *slot = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
        }
        Ok(Self(out))
    }
}

impl Serialize for Uuid {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Uuid {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

//! Encoding of the label.
//!
//! ```text
//! 0..16 signature   16..24 XXH3-64 of the rest   24..28 version   28 member   29..32 zero
//! 32..48 pool   48..64 member identifier   64..128 pool name, padded with NULs   128..4096 reserved, zero
//! ```

use super::{FORMAT_VERSION, LABEL_BYTES, LABEL_MAGIC, Label, SuperblockError};
use crate::bytes::{name_at, put, put_name, u8_at, u32_at, u64_at, uuid_at};
use crate::hash::xxh3_64;
use windrow_geometry::MAX_MEMBERS;
use windrow_types::MemberId;

const CHECKSUM: usize = 16;
const VERSION: usize = 24;
const MEMBER: usize = 28;
const POOL: usize = 32;
const MEMBER_UUID: usize = 48;
const NAME: usize = 64;

impl Label {
    /// Encodes the label.
    ///
    /// # Panics
    /// If the pool name is not allowed ([`crate::name_is_valid`]).
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; LABEL_BYTES];
        put(&mut out, 0, &LABEL_MAGIC);
        put(&mut out, VERSION, &self.version.to_le_bytes());
        put(&mut out, MEMBER, &[self.member.0]);
        put(&mut out, POOL, &self.pool.0);
        put(&mut out, MEMBER_UUID, &self.member_uuid.0);
        put_name(&mut out, NAME, &self.pool_name);
        let checksum = xxh3_64(&out[VERSION..]);
        put(&mut out, CHECKSUM, &checksum.to_le_bytes());
        out
    }

    /// Decodes a label. The checksum is not seeded, so that a tool without knowledge of the pool
    /// can verify it.
    pub fn decode(bytes: &[u8]) -> Result<Self, SuperblockError> {
        let bytes = bytes
            .get(..LABEL_BYTES)
            .ok_or(SuperblockError::WrongLength)?;
        if bytes[..LABEL_MAGIC.len()] != LABEL_MAGIC {
            return Err(SuperblockError::NoSignature);
        }
        if xxh3_64(&bytes[VERSION..]) != u64_at(bytes, CHECKSUM) {
            return Err(SuperblockError::BadChecksum);
        }
        let version = u32_at(bytes, VERSION);
        if version > FORMAT_VERSION {
            return Err(SuperblockError::NewerVersion(version));
        }
        let member = MemberId(u8_at(bytes, MEMBER));
        let pool_name = name_at(bytes, NAME)
            .ok_or(SuperblockError::Malformed("the pool name is not allowed"))?;
        if version == 0 || member.index() >= MAX_MEMBERS {
            return Err(SuperblockError::Malformed("no such version or member"));
        }
        Ok(Self {
            version,
            pool: uuid_at(bytes, POOL),
            pool_name,
            member_uuid: uuid_at(bytes, MEMBER_UUID),
            member,
        })
    }
}

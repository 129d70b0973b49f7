//! Pages of the volume table.
//!
//! ```text
//! 0..4 id   4 state (1 active, 2 deleting)   5 flags (bit 0 read-only, bits 1..3 sync mode: 0 standard, 1 always, 2 disabled, bits 4..6
//! compression: 0 off, 1 LZ4, 2 zstd, 3 LZ4 then zstd, bits 6..8 deduplication: 0 off, 1 verify, 2 hash)   6..8 zero
//! 8..16 size in bytes   16..80 name, padded with NULs   80..128 reserved
//! ```

use super::{Compression, Dedup, PageError, SyncMode, VolumeRecord, VolumeState};
use crate::bytes::{name_at, put, put_name, u8_at, u32_at, u64_at};
use crate::size_can_be;
use windrow_types::{BLOCK_SIZE, VolumeId};

/// Bytes of a volume record.
pub const VOLUME_RECORD_BYTES: usize = 128;
/// Records in a page of the volume table.
pub const VOLUMES_PER_PAGE: usize = BLOCK_SIZE / VOLUME_RECORD_BYTES;
const _: () = assert!(VOLUMES_PER_PAGE == 32);

const V_SIZE: usize = 8;
const V_NAME: usize = 16;

/// Writes a page of the volume table: at most 32 slots; the rest of the page becomes free slots.
///
/// # Panics
/// If there are more slots, a record breaks the format's rules, or `page` is not 4096 bytes.
pub fn encode_volumes(slots: &[Option<VolumeRecord>], page: &mut [u8]) {
    assert!(
        slots.len() <= VOLUMES_PER_PAGE && page.len() == BLOCK_SIZE,
        "a page of {} volumes",
        slots.len()
    );
    page.fill(0);
    for (out, slot) in page.chunks_exact_mut(VOLUME_RECORD_BYTES).zip(slots) {
        let Some(volume) = slot else { continue };
        assert!(
            volume.id.is_of_user() && size_can_be(volume.size_bytes),
            "volume {} of {} bytes",
            volume.id,
            volume.size_bytes
        );
        let state = match volume.state {
            VolumeState::Active => 1,
            VolumeState::Deleting => 2,
        };
        put(out, 0, &volume.id.0.to_le_bytes());
        let flags = u8::from(volume.read_only)
            | volume.sync.to_u8() << 1
            | volume.compression.to_u8() << 4
            | volume.dedup.to_u8() << 6;
        put(out, 4, &[state, flags]);
        put(out, V_SIZE, &volume.size_bytes.to_le_bytes());
        put_name(out, V_NAME, &volume.name);
    }
}

/// Reads a page of the volume table: 32 slots.
pub fn decode_volumes(page: &[u8]) -> Result<Vec<Option<VolumeRecord>>, PageError> {
    if page.len() != BLOCK_SIZE {
        return Err(PageError::WrongLength);
    }
    page.chunks_exact(VOLUME_RECORD_BYTES)
        .map(decode_volume)
        .collect()
}

fn decode_volume(record: &[u8]) -> Result<Option<VolumeRecord>, PageError> {
    if record.iter().all(|b| *b == 0) {
        return Ok(None);
    }
    let id = VolumeId(u32_at(record, 0));
    let size_bytes = u64_at(record, V_SIZE);
    if !id.is_of_user() || !size_can_be(size_bytes) {
        return Err(PageError::Malformed(
            "a volume whose id no user's volume can have, or whose size none can",
        ));
    }
    let state = match u8_at(record, 4) {
        1 => VolumeState::Active,
        2 => VolumeState::Deleting,
        _ => return Err(PageError::Malformed("a volume of unknown state")),
    };
    let flags = u8_at(record, 5);
    let (sync, compression) = (
        SyncMode::from_u8(flags >> 1 & 7),
        Compression::from_u8(flags >> 4 & 3),
    );
    let (Some(sync), Some(compression), Some(dedup)) =
        (sync, compression, Dedup::from_u8(flags >> 6))
    else {
        return Err(PageError::Malformed("a volume with unknown flags"));
    };
    let read_only = flags & 1 == 1;
    let name =
        name_at(record, V_NAME).ok_or(PageError::Malformed("a volume name that is not allowed"))?;
    Ok(Some(VolumeRecord {
        id,
        state,
        read_only,
        sync,
        compression,
        dedup,
        size_bytes,
        name,
    }))
}

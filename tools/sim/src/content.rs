//! Block contents that reveal the origin of wrong bytes: the model describes each sector of 512
//! bytes by one number, its *stamp*: [`ZERO`] and [`ONES`] for sectors of equal bytes, else a
//! number that is unique to one write of one block. The bytes of a stamped sector are:
//! ```text
//! word 0        stamp
//! word 1        volume (24 bits), block (37 bits), sector (3 bits)
//! word 2 .. 63  pseudo-random, derived from words 0 and 1; of most stamps only the first words, and the others repeat the last one; of some only some bits of each byte
//! ```
//! Stamps from [`FIRST_COMMON`] on are for content shared by many blocks: their sectors contain
//! neither volume nor block.
//!
//! Blocks are thus compressible to different degrees, some not at all, some only by entropy coding
//! (zstd).

use windrow_types::{BLOCK_SIZE, VolumeId};

/// Bytes of a sector.
pub const SECTOR: usize = 512;
/// Sectors of a block.
pub const SECTORS: usize = BLOCK_SIZE / SECTOR;
/// Stamp of a sector of zeroes.
pub const ZERO: u64 = 0;
/// Stamp of a sector of 0xFF bytes.
pub const ONES: u64 = u64::MAX;
/// Stamp of an observed sector with foreign content; never written.
pub const GARBAGE: u64 = 1;
/// Stamp of the sectors of a block that was never written, or trimmed as a whole. They read as
/// zeroes; block status distinguishes them from zeroes.
pub const HOLE: u64 = 2;
/// Stamp of zero sectors of which it can no longer be known if they are a hole.
pub const EMPTY: u64 = 3;
/// The first stamp given to a write.
pub const FIRST_STAMP: u64 = 16;
/// The first stamp of content that does not depend on its block.
pub const FIRST_COMMON: u64 = 1 << 60;
/// Stamps of the eight sectors of a block.
pub type Stamps = [u64; SECTORS];

fn location(volume: VolumeId, lba: u64, sector: usize, stamp: u64) -> u64 {
    if (FIRST_COMMON..ONES).contains(&stamp) {
        return sector as u64;
    }
    u64::from(volume.0) << 40 | lba << 3 | sector as u64
}

/// Number of pseudo-random words of a sector, by its stamp.
const RANDOM_WORDS: [u32; 8] = [62, 62, 55, 48, 40, 24, 12, 2];

/// Bits of pseudo-random bytes that are used, by the stamp.
const BITS: [u64; 6] = [
    u64::MAX,
    u64::MAX,
    u64::MAX,
    u64::MAX,
    0x0f0f_0f0f_0f0f_0f0f,
    0x0303_0303_0303_0303,
];

#[inline]
fn filler(stamp: u64, location: u64) -> impl Iterator<Item = u64> {
    let mut x = windrow_random::mix(stamp ^ location.rotate_left(32));
    let drawn = windrow_random::mix(stamp) as usize;
    let (mut random, bits) = (
        RANDOM_WORDS[drawn % RANDOM_WORDS.len()],
        BITS[drawn / RANDOM_WORDS.len() % BITS.len()],
    );
    std::iter::repeat_with(move || {
        if random > 0 {
            x = x
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            random -= 1;
        }
        (x ^ (x >> 29)) & bits
    })
}

/// Writes the content of one sector into `out` (512 bytes).
pub fn fill_sector(out: &mut [u8], volume: VolumeId, lba: u64, sector: usize, stamp: u64) {
    match stamp {
        ZERO => out.fill(0),
        ONES => out.fill(0xff),
        _ => {
            let location = location(volume, lba, sector, stamp);
            let words = [stamp, location].into_iter().chain(filler(stamp, location));
            for (slot, word) in out.chunks_exact_mut(8).zip(words) {
                slot.copy_from_slice(&word.to_le_bytes());
            }
        }
    }
}

fn word(bytes: &[u8], index: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[index * 8 + i]))
}

fn is_authentic(bytes: &[u8]) -> bool {
    let (stamp, location) = (word(bytes, 0), word(bytes, 1));
    stamp >= FIRST_STAMP
        && bytes[16..]
            .chunks_exact(8)
            .zip(filler(stamp, location))
            .all(|(slot, word)| slot == word.to_le_bytes())
}

/// Stamp of a sector that was read, [`GARBAGE`] if its bytes do not belong at this location.
pub fn observe_sector(bytes: &[u8], volume: VolumeId, lba: u64, sector: usize) -> u64 {
    let first = word(bytes, 0);
    match first {
        0 if bytes == [0; SECTOR] => ZERO,
        u64::MAX if bytes == [0xff; SECTOR] => ONES,
        _ if word(bytes, 1) == location(volume, lba, sector, first) && is_authentic(bytes) => first,
        _ => GARBAGE,
    }
}

/// Describes the content of a sector.
pub fn describe_sector(bytes: &[u8]) -> String {
    if bytes.iter().all(|byte| *byte == bytes[0]) {
        return format!("512 bytes of {:#04x}", bytes[0]);
    }
    let (stamp, location) = (word(bytes, 0), word(bytes, 1));
    let from = format!(
        "stamp {stamp} of volume {} block {} sector {}",
        location >> 40,
        location >> 3 & ((1 << 37) - 1),
        location & 7
    );
    if is_authentic(bytes) {
        from
    } else {
        format!("garbage (as if {from})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_show_their_stamp_only_at_their_own_address() {
        let mut bytes = [0; SECTOR];
        for stamp in [ZERO, ONES, FIRST_STAMP, 123_456_789] {
            fill_sector(&mut bytes, VolumeId(3), 77, 5, stamp);
            assert_eq!(observe_sector(&bytes, VolumeId(3), 77, 5), stamp);
        }
        assert_eq!(observe_sector(&bytes, VolumeId(3), 78, 5), GARBAGE);
        fill_sector(&mut bytes, VolumeId(3), 77, 5, FIRST_COMMON + 9);
        assert_eq!(observe_sector(&bytes, VolumeId(4), 1, 5), FIRST_COMMON + 9);
        assert_eq!(observe_sector(&bytes, VolumeId(4), 1, 6), GARBAGE);
        fill_sector(&mut bytes, VolumeId(3), 77, 5, 123_456_789);
        assert!(describe_sector(&bytes).contains("volume 3 block 77 sector 5"));
        bytes[400] ^= 1;
        assert_eq!(observe_sector(&bytes, VolumeId(3), 77, 5), GARBAGE);
    }
}

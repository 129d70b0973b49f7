//! Little-endian fields at fixed offsets. Reads past the end yield zero and writes past the end are
//! dropped, so no decoder can panic on a short slice. Every caller checks its length first, and the
//! tests would show a wrong offset.

use crate::MAX_NAME_BYTES;
use windrow_types::Uuid;

#[inline]
fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk::<N>())
        .copied()
        .unwrap_or([0; N])
}

#[inline]
pub(crate) fn u8_at(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

#[inline]
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, at))
}

#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

#[inline]
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

/// Upper limit of counters that only ever increase (LSN, sequence number, epoch, generation,
/// checkpoint). At a billion increments a second it takes 146 years to get there. Decoders refuse
/// larger values, so code may add to an accepted counter without an overflow check.
pub(crate) const COUNTER_MAX: u64 = 1 << 62;

/// Error text of decoders for a larger counter.
pub(crate) const BEYOND_COUNT: &str = "a counter above its limit";

/// True if these numbers are valid counters.
#[inline]
pub(crate) fn are_counts(numbers: impl IntoIterator<Item = u64>) -> bool {
    numbers.into_iter().all(|number| number <= COUNTER_MAX)
}

/// True if every byte is zero. Works in pieces, so that the compiler compares many bytes at a time.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes
        .chunks(256)
        .all(|piece| piece.iter().fold(0, |any, byte| any | byte) == 0)
}

pub(crate) fn uuid_at(bytes: &[u8], at: usize) -> Uuid {
    Uuid(array_at(bytes, at))
}

/// Writes `field` at `at`.
#[inline]
pub(crate) fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    if let Some(slot) = bytes
        .get_mut(at..)
        .and_then(|rest| rest.get_mut(..field.len()))
    {
        slot.copy_from_slice(field);
    }
}

/// True if a name can be stored: 1 to 63 bytes without a NUL.
pub(crate) fn name_fits(name: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&name.len()) && !name.as_bytes().contains(&0)
}

/// Writes a name into a field of 64 bytes, padded with NULs.
///
/// # Panics
/// If the name does not fit: callers admit names by the same rule before a member is written.
pub(crate) fn put_name(bytes: &mut [u8], at: usize, name: &str) {
    assert!(
        name_fits(name),
        "a name of {} bytes reached the encoder",
        name.len()
    );
    put(bytes, at, name.as_bytes());
}

/// Reads a name from a field of 64 bytes; `None` if it is empty, too long, not UTF-8, or not padded
/// with NULs.
pub(crate) fn name_at(bytes: &[u8], at: usize) -> Option<String> {
    let field = bytes.get(at..at + MAX_NAME_BYTES + 1)?;
    let end = field.iter().position(|b| *b == 0)?;
    let (name, rest) = field.split_at(end);
    let name = std::str::from_utf8(name).ok()?;
    (name_fits(name) && is_zero(rest)).then(|| name.to_owned())
}

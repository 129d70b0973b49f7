//! Blocks of one repeated byte, 0x00 or 0xFF, which become map state and take no space.

/// Class of a block's content.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BlockClass {
    /// Anything else; needs a payload.
    Data,
    /// All bytes are 0x00.
    Zero,
    /// All bytes are 0xFF.
    Ones,
}

/// Distinguishes fills from data. An empty slice is data: nothing is known of it.
#[inline]
pub fn classify(block: &[u8]) -> BlockClass {
    let class = match block.first_chunk() {
        // The first word nearly always identifies data.
        Some(word) => match u64::from_ne_bytes(*word) {
            0 => BlockClass::Zero,
            u64::MAX => BlockClass::Ones,
            _ => return BlockClass::Data,
        },
        None => match block.first() {
            Some(0) => BlockClass::Zero,
            Some(0xff) => BlockClass::Ones,
            _ => return BlockClass::Data,
        },
    };
    if is_one_byte_repeated(block) {
        class
    } else {
        BlockClass::Data
    }
}

/// True if every byte equals the preceding one. Comparing a slice with itself shifted by one uses
/// the platform's memory comparison, which is as wide as the processor allows and stops at the
/// first difference.
fn is_one_byte_repeated(block: &[u8]) -> bool {
    block.is_empty() || block[1..] == block[..block.len() - 1]
}

#[cfg(test)]
mod tests;

//! Comparison of LZ4 data with a block without decompressing it.
//!
//! LZ4 is a series of sequences: literal bytes, then a copy of earlier output. As long as the
//! sequences have matched the block, the earlier output is the block's. So literals are compared
//! with the block, and each copy is compared within the block, `offset` bytes apart. Nothing is
//! written, in a fraction of the time of a decompression.
//! ```text
//! token (two lengths of 4 bits) | rest of the first length | bytes | offset (16 bits, little endian) | rest of the second length     the last one ends after its bytes
//! ```

/// Number of bytes by which a copy is longer than its encoded length.
const LEAST_COPY: usize = 4;

/// True if the bytes are LZ4 of the block.
pub(crate) fn is_lz4_of(compressed: &[u8], block: &[u8]) -> bool {
    compare(compressed, block).is_some()
}

/// `None`: they differ, or the input is not LZ4.
fn compare(mut compressed: &[u8], block: &[u8]) -> Option<()> {
    let mut at = 0;
    loop {
        let token = take(&mut compressed, 1)?[0];
        let length = rest_of_length(usize::from(token >> 4), &mut compressed)?;
        let bytes = take(&mut compressed, length)?;
        if block.get(at..at + length)? != bytes {
            return None;
        }
        at += length;
        if compressed.is_empty() {
            return (at == block.len()).then_some(());
        }
        let offset = take(&mut compressed, 2)?;
        let offset = usize::from(u16::from_le_bytes([offset[0], offset[1]]));
        let length = rest_of_length(usize::from(token & 15), &mut compressed)? + LEAST_COPY;
        let from = at.checked_sub(offset).filter(|_| offset > 0)?;
        // An overlapping copy repeats itself: each byte equals the one `offset` bytes earlier,
        // which is what is compared.
        if block.get(at..at + length)? != &block[from..from + length] {
            return None;
        }
        at += length;
    }
}

fn take<'a>(compressed: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = compressed.split_at_checked(length)?;
    *compressed = rest;
    Some(taken)
}

/// A length of 15 continues in the following bytes, to the first that is not 255.
fn rest_of_length(mut length: usize, compressed: &mut &[u8]) -> Option<usize> {
    if length < 15 {
        return Some(length);
    }
    loop {
        let more = take(compressed, 1)?[0];
        length += usize::from(more);
        if more < 255 {
            return Some(length);
        }
    }
}

#[cfg(test)]
mod tests;

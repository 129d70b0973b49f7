//! Compact history of a block's lifetimes, in 16 bits.

/// Low byte: fading mean of its lifetimes, in eighths of octaves; high byte: its last lifetime,
/// likewise. 0: it has not died yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Trail(pub u16);

/// Octaves of the mean, and of the last lifetime.
pub const ROWS: usize = 32;
/// Number of cells that trails are sorted into.
pub const CELLS: usize = ROWS * ROWS + 1;
/// The cell of blocks that have not died yet.
pub const UNKNOWN: usize = ROWS * ROWS;

/// Weight of the newest lifetime in the mean.
const NEWEST: f32 = 0.3;

impl Trail {
    /// Cell: octave of the mean, octave of the last lifetime.
    #[inline]
    pub fn cell(self) -> usize {
        if self.0 == 0 {
            return UNKNOWN;
        }
        usize::from(self.0 & 0xff) / 8 * ROWS + usize::from(self.0 >> 8) / 8
    }

    /// Trail after one more lifetime.
    #[inline]
    pub fn lived(self, life: u32) -> Self {
        let last = code(life as f32);
        let mean = if self.0 == 0 {
            last
        } else {
            let before = value((self.0 & 0xff) as u8);
            code(before + (life as f32 - before) * NEWEST)
        };
        Self(u16::from(mean) | u16::from(last) << 8)
    }
}

/// Eighths of octaves, rounded down, at least 1.
#[inline]
fn code(life: f32) -> u8 {
    // The exponent and the upper bits of the mantissa of a float are a logarithm, linear between
    // octaves.
    let bits = life.max(1.0).to_bits();
    ((bits >> 20) - (127 << 3)).clamp(1, 255) as u8
}

/// Midpoint of a code's range.
#[inline]
fn value(code: u8) -> f32 {
    f32::from_bits(((u32::from(code) + (127 << 3)) << 20) + (1 << 19))
}

#[cfg(test)]
mod tests;

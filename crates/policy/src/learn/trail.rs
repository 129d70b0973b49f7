//! What is remembered of a block's lives, in 16 bits.

/// Low byte: fading mean of its lives, in eighths of octaves; high byte: its last life, likewise. 0: it has not died yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Trail(pub u16);

/// Cells that trails are sorted into.
pub const CELLS: usize = 32 * 16 + 1;
/// The cell of blocks that have not died yet.
pub const UNKNOWN: usize = 32 * 16;

/// Weight of the newest life in the mean.
const NEWEST: f32 = 0.2;

impl Trail {
    /// The cell: octave of the mean, two octaves of the last life.
    #[inline]
    pub fn cell(self) -> usize {
        if self.0 == 0 {
            return UNKNOWN;
        }
        usize::from(self.0 & 0xff) / 8 * 16 + usize::from(self.0 >> 8) / 16
    }

    /// After one more life.
    #[inline]
    pub fn lived(self, life: u32) -> Self {
        let last = code(life as f32);
        let mean = if self.0 == 0 {
            last
        } else {
            let before = value((self.0 & 0xff) as u8);
            code(before + (life as f32 - before) * crate::learn::t(3, NEWEST))
        };
        Self(u16::from(mean) | u16::from(last) << 8)
    }
}

/// Eighths of octaves, rounded down, at least 1.
#[inline]
fn code(life: f32) -> u8 {
    // The exponent and the upper bits of the mantissa of a float are a logarithm, linear between octaves.
    let bits = life.max(1.0).to_bits();
    (((bits >> 20) - (127 << 3)).max(1)).min(255) as u8
}

/// The middle of what a code stands for.
#[inline]
fn value(code: u8) -> f32 {
    f32::from_bits(((u32::from(code) + (127 << 3)) << 20) + (1 << 19))
}

//! Contexts of the zstd library, created when first needed and reused: a context takes some hundred
//! KiB, a block a few microseconds.
//!
//! Frames have no checksum (the log has one) and no dictionary. The constant magic number at the
//! front of each frame is not stored.

use zstd_safe::{CCtx, CParameter, DCtx};

/// Level of newly written blocks. With 4 KiB at a time higher levels cost more than they save:
/// figures of the example `codec_bench` are in docs/internals/reduction.md.
pub(crate) const LEVEL: i32 = 1;
/// Level of cold blocks: they are compressed once, and read rarely.
pub(crate) const LEVEL_COLD: i32 = 3;
/// Magic number at the front of each frame.
const MAGIC: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();

/// A context for each direction.
#[derive(Default)]
pub(crate) struct Zstd {
    packing: Option<CCtx<'static>>,
    unpacking: Option<DCtx<'static>>,
    room: Vec<u8>,
}

impl std::fmt::Debug for Zstd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Zstd")
            .field("packing", &self.packing.is_some())
            .field("unpacking", &self.unpacking.is_some())
            .finish_non_exhaustive()
    }
}

impl Zstd {
    /// Compresses a block into a frame; `None` if that is no smaller, or if there is no memory for
    /// a context.
    pub(crate) fn pack(&mut self, level: i32, block: &[u8]) -> Option<&[u8]> {
        if self.packing.is_none() {
            self.packing = CCtx::try_create();
        }
        let context = self.packing.as_mut()?;
        context
            .set_parameter(CParameter::CompressionLevel(level))
            .ok()?;
        // Output that does not fit is an error of the library, and would save nothing.
        self.room.resize(block.len(), 0);
        let length = context.compress2(&mut self.room[..], block).ok()?;
        (length > MAGIC.len()).then(|| &self.room[..length])
    }

    /// Decompresses a frame without its magic number. False unless it yields exactly the length of
    /// `out`: nothing is written past it.
    pub(crate) fn decompress(&mut self, compressed: &[u8], out: &mut [u8]) -> bool {
        if self.unpacking.is_none() {
            self.unpacking = DCtx::try_create();
        }
        let Some(context) = self.unpacking.as_mut() else {
            return false;
        };
        self.room.clear();
        self.room.extend_from_slice(&MAGIC);
        self.room.extend_from_slice(compressed);
        let length = out.len();
        context
            .decompress(out, &self.room[..])
            .is_ok_and(|decompressed| decompressed == length)
    }
}

//! One stretch of random overwrites: bytes written by cause, and the mean share of live blocks.

use super::super::case::{EXPORT, failed};
use std::time::Duration;
use windrow_console::progress::Progress;
use windrow_engine::WrittenBytes;
use windrow_host::report::PoolReport;
use windrow_host::{Failure, Pool, daemon};
use windrow_load::session::{LoadResult, LoadSpec, run_watched};
use windrow_types::BLOCK_BYTES;

/// Parameters of the overwrites.
#[derive(Clone, Copy, Debug)]
pub struct Overwrites {
    /// Live set: the first bytes of the volume.
    pub span_bytes: u64,
    /// Bytes to write.
    pub bytes: u64,
    /// Requests in flight.
    pub depth: usize,
    /// Seed.
    pub seed: u64,
}

/// Measurements of the stretch.
pub struct Window {
    /// Mean of live blocks / payload slots of the closed segments.
    pub utilisation: f64,
    /// Payload capacity of a segment in blocks.
    pub slots_per_segment: u32,
    /// Bytes written to members, by cause.
    pub written: WrittenBytes,
    /// The load.
    pub load: LoadResult,
}

impl Window {
    /// (user + moved) / user.
    pub fn cleaning_waf(&self) -> f64 {
        (self.written.user + self.written.moved) as f64 / self.written.user.max(1) as f64
    }

    /// Bytes per byte written by the load.
    pub fn per_user_byte(&self, bytes: u64) -> f64 {
        bytes as f64 / self.load.bytes.max(1) as f64
    }

    /// Headers and footers per payload byte of batches.
    pub fn header_share(&self) -> f64 {
        self.written.header as f64 / (self.written.user + self.written.moved).max(1) as f64
    }

    /// Checkpoints and superblocks per byte written by the load.
    pub fn checkpoint_waf(&self) -> f64 {
        self.per_user_byte(self.written.checkpoint + self.written.superblock)
    }
}

/// Bytes written between two readings of the counters.
pub fn since(after: &WrittenBytes, before: &WrittenBytes) -> WrittenBytes {
    WrittenBytes {
        user: after.user - before.user,
        header: after.header - before.header,
        parity: after.parity - before.parity,
        moved: after.moved - before.moved,
        padding: after.padding - before.padding,
        journal: after.journal - before.journal,
        checkpoint: after.checkpoint - before.checkpoint,
        index: after.index - before.index,
        superblock: after.superblock - before.superblock,
        repair: after.repair - before.repair,
        rebuild: after.rebuild - before.rebuild,
    }
}

/// Sums over reports of closed segments.
#[derive(Default)]
struct Closed {
    live_bytes: u64,
    segments: u64,
}

impl Closed {
    fn add(&mut self, report: &PoolReport) {
        self.live_bytes += report.capacity.data_live_bytes;
        self.segments += u64::from(report.capacity.data_segments);
    }
}

/// Overwrites at random.
pub fn measure(pool: &Pool, overwrites: &Overwrites, label: &str) -> Result<Window, Failure> {
    let spec = LoadSpec {
        block_bytes: BLOCK_BYTES as u32,
        span_bytes: overwrites.span_bytes,
        writers: 1,
        depth: overwrites.depth,
        read_percent: 0,
        linear: false,
        time_max: Duration::from_secs(24 * 3600),
        bytes_max: overwrites.bytes,
        seed: overwrites.seed,
        random_percent: 100,
        distinct_percent: 0,
    };
    let before = daemon::report(pool)?;
    let mut closed = Closed::default();
    closed.add(&before);
    let mut progress = Progress::new(label);
    let load = run_watched(pool, EXPORT, &spec, &mut |done| {
        progress.bytes(done, overwrites.bytes);
        if let Some(report) = pool.report() {
            closed.add(&report);
        }
    })?;
    if load.errors > 0 {
        return Err(failed(pool, &load));
    }
    let after = daemon::report(pool)?;
    closed.add(&after);
    let written = since(&after.counters.written, &before.counters.written);
    let payload = (written.user + written.moved) as f64;
    let payload_share = payload / (payload + (written.header + written.padding) as f64).max(1.0);
    let data_blocks = after
        .capacity
        .zones
        .first()
        .map_or(1, |zone| zone.shape.data_blocks()) as f64;
    let slots = data_blocks * payload_share;
    let utilisation =
        closed.live_bytes as f64 / (closed.segments as f64 * slots * BLOCK_BYTES as f64).max(1.0);
    Ok(Window {
        utilisation,
        slots_per_segment: slots.round().max(1.0) as u32,
        written,
        load,
    })
}

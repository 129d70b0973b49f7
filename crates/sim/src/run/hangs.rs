//! Members that answer nothing any more when they are taken out of service: writes, flushes and superblocks are with the device, and land when it answers again, or never.
//!
//! From the moment in which somebody takes it out nobody waits for it ([`World::leave_behind`](crate::world::World::leave_behind)), nothing that is acknowledged without it depends on it
//! (`losses.rs`), and nothing comes in its place before its last command has ended.

use windrow_random::Rng;

/// Which of the members that leave hang before.
pub(super) struct Hangs {
    rng: Rng,
    /// So many of 1000.
    per_mille: u64,
}

impl Hangs {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng::stream(seed, "members that hang");
        Self { per_mille: rng.pick(&[0, 300, 700]), rng }
    }

    /// The steps before it is taken out, and for how many nanoseconds it hangs.
    pub(super) fn draw(&mut self) -> Option<(u32, u64)> {
        self.rng.chance(self.per_mille).then(|| {
            let for_ms = self.rng.pick(&[1, 10, 1_000, 100_000, 3_600_000]);
            (self.rng.pick(&[0, 1, 4, 16, 64]), for_ms * 1_000_000)
        })
    }
}

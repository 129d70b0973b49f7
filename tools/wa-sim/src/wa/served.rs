//! Cost of a policy in a pool of the engine, without the engine: a simulated log with the space,
//! the streams and the checkpoints of that pool.
//!
//! 1. *Space.* The engine's own planner computes the smallest pool that takes the blocks at a spare
//!    factor. Most of its reserve (`docs/internals/reserve.md`) is idle: open and free segments,
//!    pages of checkpoints. The part kept for victims and half of cleaning's free segments are in
//!    use. The rest is closed segments, and half of each open one.
//! 2. *Streams.* Classes of the placement go to the streams that such a pool affords
//!    (`windrow_policy::any::Classes`).
//! 3. *Checkpoints* begin when the engine's would ([`When::Priced`]), and are counted: small pools,
//!    and policies that leave little garbage in old segments, have many.
//!
//! It is a model: at its reserve limit an engine may redirect blocks of a further stream to the
//! first one, and checkpoints take time. Tests compare it with the engine.

use super::engine::{least_spec, properties};
use super::log::{Shape, Space, When};
use super::operation::Operation;
use super::run::{Outcome as Run, PlacementKind, Plan, Policy, drive};
use windrow_engine::{Engine, PoolSpec};
use windrow_format::superblock::RESERVED_BYTES;
use windrow_geometry::Redundancy;
use windrow_policy::any::{Classes, MOVED_STREAMS_MAX, USER_STREAMS_MAX};
use windrow_policy::learn::{Learned, LearnedOptions};
use windrow_policy::place::{
    Chain, Clusters, Due, Fading, Generations, Hotness, Invalidation, Place, Placement, Separate,
    Survey,
};
use windrow_types::{BLOCK_BYTES, Uuid};

/// Maximum number of rows of a segment, and those of a chunk.
const ROWS_MOST: u32 = 16_384;
const CHUNK_ROWS: u32 = 64;
/// Number of reserve segments in use: those for four victims, and two more.
const AT_WORK: f64 = 6.0;
/// Number of segments held by a further stream, and of the spare segments for each of them.
const STREAM_SEGMENTS: u64 = 2;
const STREAM_SPARE: u64 = 8 * STREAM_SEGMENTS;
/// Minimum spare factor, per mille.
const SPARE_LEAST: u64 = 30;

/// Properties of an engine's pool that affect a policy.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pool {
    blocks: u32,
    /// Number of segments, and of those in the reserve.
    pub segments: u32,
    /// See [`Pool::segments`].
    pub reserve_segments: u32,
    /// Payload blocks of a segment.
    pub segment_blocks: u32,
    /// Streams of the policy.
    pub classes: Classes,
}

/// Results, as shares of user bytes in the steady state.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Outcome {
    /// Cleaning write amplification, at least 1.
    pub cleaning: f64,
    /// Pages of checkpoints.
    pub checkpoints: f64,
}

impl Outcome {
    /// Sum of both.
    pub fn all(&self) -> f64 {
        self.cleaning + self.checkpoints
    }
}

impl Pool {
    /// Smallest pool for `blocks` blocks, with this number of blocks per segment including headers,
    /// at a spare factor per mille.
    ///
    /// # Errors
    /// The engine does not have the policy, or cannot have such a pool.
    pub fn plan(
        policy: &Policy,
        blocks: u32,
        of_segment: u32,
        spare_per_mille: u16,
    ) -> Result<Self, String> {
        let properties = properties(policy, spare_per_mille)?;
        // As few columns as the row limit allows.
        let columns = of_segment.div_ceil(ROWS_MOST).max(1);
        let chunk_rows = (of_segment / columns).clamp(1, CHUNK_ROWS);
        let rows = of_segment / columns / chunk_rows * chunk_rows;
        let member = |column: u32, segments: u64| {
            (
                Uuid([column as u8 + 1; 16]),
                RESERVED_BYTES + segments * u64::from(rows) * BLOCK_BYTES,
            )
        };
        let spec = least_spec(blocks, u64::from(blocks / of_segment.max(1)), |segments| {
            PoolSpec {
                name: "served".into(),
                redundancy: Redundancy::None,
                chunk_rows: Some(chunk_rows),
                segment_rows: Some(rows),
                align_bytes: BLOCK_BYTES,
                pool: Uuid([9; 16]),
                members: (0..columns)
                    .map(|column| member(column, segments))
                    .collect(),
                created_unix_s: 0,
                journal: None,
                properties,
            }
        })?;
        let planned = Engine::plan(&spec).map_err(|error| error.to_string())?;
        let (segments, reserve_segments) = (planned.segments, planned.reserve_segments);
        let data = u64::from(segments - reserve_segments);
        let payload = planned.usable_bytes as f64
            / (1.0 - f64::from(spare_per_mille) / 1000.0)
            / BLOCK_BYTES as f64;
        let further = |share: u64, of: u64| data * share / 1000 / of;
        let most = (USER_STREAMS_MAX + MOVED_STREAMS_MAX - 2) as u64;
        let extra = further(SPARE_LEAST, STREAM_SEGMENTS)
            .min(further(u64::from(spare_per_mille), STREAM_SPARE))
            .min(most) as u32;
        let segment_blocks = (payload / data as f64).round() as u32;
        Ok(Self {
            blocks,
            segments,
            reserve_segments,
            segment_blocks,
            classes: Classes::new(policy.placement, extra),
        })
    }

    /// Simulated logs with its space: the one below, the one above (they differ by a segment), and
    /// the weight of the second.
    pub fn shapes(&self) -> ([Shape; 2], f64) {
        let streams = f64::from(self.classes.users + self.classes.moved);
        let ahead = f64::from((self.segments / 128).clamp(2, 64)) / 2.0;
        let idle = f64::from(self.reserve_segments) - AT_WORK - ahead + (streams - 2.0);
        shapes_of(
            self.blocks,
            self.segment_blocks,
            f64::from(self.segments) - idle + streams / 2.0 + 1.0,
        )
    }

    /// Runs a policy in it.
    ///
    /// # Errors
    /// As `run::run`.
    pub fn run<I: Iterator<Item = Operation>>(
        &self,
        policy: &Policy,
        steady_after: u64,
        operations: impl Fn() -> I,
        tell: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Outcome, String> {
        let (shapes, share) = self.shapes();
        let mut found = [Outcome {
            cleaning: 0.0,
            checkpoints: 0.0,
        }; 2];
        // With many segments one more or less hardly matters.
        let runs = if self.segments < FEW {
            &shapes[..]
        } else {
            &shapes[usize::from(share > 0.5)..][..1]
        };
        for (outcome, shape) in found.iter_mut().zip(runs) {
            let plan = Plan {
                shape: *shape,
                seed: 1,
                window: u64::MAX,
                steady_after,
                idle_free: 0,
            };
            let run = self.simulate(policy, &plan, operations(), tell)?;
            let written = run.steady_counts.written.max(1) as f64;
            *outcome = Outcome {
                cleaning: run.steady,
                checkpoints: run.steady_counts.checkpoint_pages as f64 / written,
            };
        }
        let [below, above] = found;
        let between = |of: fn(&Outcome) -> f64| {
            if runs.len() < 2 {
                of(&below)
            } else {
                of(&below) + (of(&above) - of(&below)) * share
            }
        };
        Ok(Outcome {
            cleaning: between(|one| one.cleaning),
            checkpoints: between(|one| one.checkpoints),
        })
    }

    fn simulate(
        &self,
        policy: &Policy,
        plan: &Plan,
        operations: impl Iterator<Item = Operation>,
        tell: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Run, String> {
        let (classes, blocks, segments, how) = (
            self.classes,
            self.blocks,
            plan.shape.segments(),
            (policy.rule, When::Priced),
        );
        let count = classes.classes;
        // With one stream of either kind there is nothing to separate; but the learned lifetimes
        // also choose victims.
        match policy.placement {
            PlacementKind::Learned => {
                let options = LearnedOptions {
                    streams: count,
                    segment_blocks: self.segment_blocks,
                    open_cost: 0.5,
                };
                drive(
                    how,
                    plan,
                    InStreams {
                        inner: Learned::new(blocks, options),
                        classes,
                    },
                    operations,
                    tell,
                )
            }
            _ if classes.is_plain() => drive(how, plan, Separate, operations, tell),
            PlacementKind::Clusters => drive(
                how,
                plan,
                InStreams {
                    inner: Clusters::new(blocks, count),
                    classes,
                },
                operations,
                tell,
            ),
            PlacementKind::Hotness => drive(
                how,
                plan,
                InStreams {
                    inner: Hotness::new(blocks, segments, count),
                    classes,
                },
                operations,
                tell,
            ),
            PlacementKind::Fading => drive(
                how,
                plan,
                InStreams {
                    inner: Fading::new(blocks, count),
                    classes,
                },
                operations,
                tell,
            ),
            PlacementKind::Invalidation => drive(
                how,
                plan,
                InStreams {
                    inner: Invalidation::new(blocks),
                    classes,
                },
                operations,
                tell,
            ),
            PlacementKind::Generations => drive(
                how,
                plan,
                InStreams {
                    inner: Generations::new(count),
                    classes,
                },
                operations,
                tell,
            ),
            PlacementKind::Chain => drive(
                how,
                plan,
                InStreams {
                    inner: Chain::new(blocks, self.segment_blocks, count),
                    classes,
                },
                operations,
                tell,
            ),
            PlacementKind::Mixed | PlacementKind::Separate | PlacementKind::Oracle => {
                drive(how, plan, Separate, operations, tell)
            }
        }
    }
}

/// Number of segments below which a pool is simulated with one more and one less.
const FEW: u32 = 1000;

/// Logs with a fractional number of segments: the one below, the one above, and the weight of the
/// second.
pub(super) fn shapes_of(blocks: u32, segment_blocks: u32, segments: f64) -> ([Shape; 2], f64) {
    let of = |segments: f64| {
        // Slightly less than the next whole number.
        let spare = 1.0 - f64::from(blocks) / ((segments - 1e-6) * f64::from(segment_blocks));
        Shape {
            blocks,
            live_blocks: blocks,
            segment_blocks,
            header_blocks: 0,
            spare,
            space: Space::Strict,
        }
    };
    (
        [of(segments.floor()), of(segments.floor() + 1.0)],
        segments.fract(),
    )
}

/// A placement whose classes share the streams of a pool: user streams first, then cleaning
/// streams.
struct InStreams<P> {
    inner: P,
    classes: Classes,
}

impl<P: Placement> Placement for InStreams<P> {
    const SURVEYS_VICTIMS: bool = P::SURVEYS_VICTIMS;
    fn streams(&self) -> usize {
        usize::from(self.classes.users + self.classes.moved)
    }
    fn touch(&self, blocks: &[u32], written: bool) -> u32 {
        self.inner.touch(blocks, written)
    }
    #[inline]
    fn user(&mut self, block: u32, now: u32) -> u8 {
        self.classes.user(self.inner.user(block, now))
    }
    #[inline]
    fn moved(&mut self, block: u32, now: u32, from: Place) -> u8 {
        self.classes.users + self.classes.moved(self.inner.moved(block, now, from))
    }
    #[inline]
    fn placed(&mut self, block: u32, segment: u32, now: u32) {
        self.inner.placed(block, segment, now);
    }
    #[inline]
    fn died(&mut self, block: u32, now: u32, place: Place, trimmed: bool) {
        self.inner.died(block, now, place, trimmed);
    }
    fn victim(&mut self, place: Place, live: u32, opened_at: u32, now: u32) {
        self.inner.victim(place, live, opened_at, now);
    }
    fn chosen(&mut self, price: f64) {
        self.inner.chosen(price);
    }
    fn survey(&mut self, now: u32, log: &dyn Survey) {
        self.inner.survey(now, log);
    }
    fn tag(&self, stream: u8) -> u8 {
        match stream.checked_sub(self.classes.users) {
            None => self.inner.tag(self.classes.class_of_user(stream)),
            Some(moved) => self.inner.tag(self.classes.class_of_moved(moved)),
        }
    }
    #[inline]
    fn rate(&self, place: Place) -> f32 {
        self.inner.rate(place)
    }
    fn due(&self) -> Option<Due> {
        self.inner.due()
    }
    fn group_of(&self, tag: u8) -> u8 {
        self.inner.group_of(tag)
    }
    fn watches_deaths(&self) -> bool {
        self.inner.watches_deaths()
    }
}

#[cfg(test)]
mod tests;

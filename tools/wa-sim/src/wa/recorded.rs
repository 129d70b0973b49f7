//! A recorded trace as operations on a volume, in two passes over its requests.
//!
//! 1. [`Survey`] computes the volume and the number of operations, so that a request can be refused
//!    before memory is allocated.
//! 2. [`Volume`] creates them. Writes count every block they touch, trims only the blocks they
//!    cover completely, reads nothing.
//!
//! With times ([`Wish::blocks_per_s`]) each write and trim carries its distance from the preceding
//! one, in blocks that members process; reads take members' time, too.
//!
//! | volume | made of | blocks that the trace never writes |
//! |---|---|---|
//! | *written blocks* | the blocks that the trace writes, contiguous, device by device ([`Dense`]) | do not exist |
//! | *addresses* (with a given size) | all blocks of one device, at their addresses | exist: cold data after the fill |

use super::operation::Operation;
use windrow_trace::blocks::BLOCK;
use windrow_trace::{Dense, Kind, Request};

/// Options for a trace.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Wish {
    /// Bytes of the volume, whose addresses are those of the trace. `None`: the volume consists of
    /// the blocks that the trace writes.
    pub size_bytes: Option<u64>,
    /// Include trims.
    pub trims: bool,
    /// Pass on flushes and writes with FUA.
    pub flushes: bool,
    /// Blocks that members process per second of the trace. `None`: times are ignored.
    pub blocks_per_s: Option<f64>,
}

/// The first pass.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    wish: Wish,
    dense: Dense,
    /// Device whose addresses are the volume's; and true if there is a second one.
    device: Option<u32>,
    several: bool,
    /// End of the last written byte.
    end: u64,
    written: u64,
    operations: u64,
    /// Time of the latest request.
    latest_ns: u64,
}

/// Limit up to which time, in blocks that members process, is exact.
const TIME_MOST: f64 = (1u64 << 53) as f64;

/// A time in blocks that members process.
fn blocks_at(time_ns: u64, blocks_per_s: f64) -> f64 {
    time_ns as f64 * 1e-9 * blocks_per_s
}

impl Survey {
    /// An empty survey.
    pub fn new(wish: Wish) -> Self {
        Self {
            wish,
            ..Self::default()
        }
    }

    /// Adds a request.
    pub fn add(&mut self, request: &Request) {
        self.latest_ns = self.latest_ns.max(request.time_ns);
        let (flushes, arrivals) = (
            u64::from(self.wish.flushes),
            u64::from(self.wish.blocks_per_s.is_some()),
        );
        self.operations += match request.kind {
            Kind::Read => return,
            Kind::Flush => flushes,
            Kind::Trim => u64::from(self.wish.trims) * (1 + arrivals),
            Kind::Write => 1 + arrivals + flushes * u64::from(request.fua),
        };
        if self.wish.size_bytes.is_none() {
            self.dense.add(request);
        } else if request.kind != Kind::Flush && request.length > 0 {
            self.several |= *self.device.get_or_insert(request.device) != request.device;
        }
        if request.kind == Kind::Write && request.length > 0 {
            self.written += request.end().div_ceil(BLOCK) - request.offset / BLOCK;
            self.end = self.end.max(request.end());
        }
    }

    /// Number of blocks that it writes, repeated writes included.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Bytes of memory for operations in the second pass.
    pub fn operations_bytes(&self) -> u64 {
        self.operations
            .saturating_mul(size_of::<Operation>() as u64)
    }

    /// Number of blocks of the volume.
    ///
    /// # Errors
    /// The trace writes nothing, or not within one volume that can be simulated; or its times
    /// cannot be represented.
    pub fn blocks(&self) -> Result<u32, String> {
        if self
            .wish
            .blocks_per_s
            .is_some_and(|per_s| blocks_at(self.latest_ns, per_s) > TIME_MOST)
        {
            let seconds = self.latest_ns as f64 / 1e9;
            return Err(format!(
                "in its {seconds:.0} s members take more than 2^53 blocks, which is not counted: a lower --rate, or a higher --time-scale"
            ));
        }
        if self.written == 0 {
            return Err("it writes nothing".into());
        }
        let Some(size) = self.wish.size_bytes else {
            let few = u32::try_from(self.dense.count())
                .ok()
                .filter(|_| !self.dense.is_partial());
            return few.ok_or_else(|| "it writes at too many places".into());
        };
        if self.several {
            return Err(
                "a size is that of one device, and it has several: name one of them with --device"
                    .into(),
            );
        }
        if self.end > size {
            return Err(format!(
                "it writes up to byte {}, beyond a size of {size}",
                self.end
            ));
        }
        u32::try_from(size.div_ceil(BLOCK))
            .map_err(|_| "a volume of more than 16 TiB is not simulated".into())
    }

    /// Starts the second pass.
    ///
    /// # Errors
    /// As [`Survey::blocks`]; or there is no memory for the operations.
    pub fn volume(self) -> Result<Volume, String> {
        let (blocks, mut operations) = (self.blocks()?, Vec::new());
        let number = usize::try_from(self.operations).unwrap_or(usize::MAX);
        operations
            .try_reserve_exact(number)
            .map_err(|_| format!("there is no memory for {number} operations"))?;
        let places = if self.wish.size_bytes.is_some() {
            Places::Addresses
        } else {
            Places::Written(self.dense)
        };
        let times = self.wish.blocks_per_s.map(Times::new);
        Ok(Volume {
            wish: self.wish,
            places,
            times,
            recorded: Recorded {
                blocks,
                operations,
                ..Recorded::default()
            },
        })
    }
}

/// Arrival times of requests, in blocks that members process.
#[derive(Clone, Debug)]
struct Times {
    blocks_per_s: f64,
    requests: u64,
    /// Time of the latest request, and of the latest reported one.
    latest: u64,
    told: u64,
    /// Blocks read since.
    reads: u64,
    began: bool,
}

impl Times {
    fn new(blocks_per_s: f64) -> Self {
        Self {
            blocks_per_s,
            requests: 0,
            latest: 0,
            told: 0,
            reads: 0,
            began: false,
        }
    }

    /// Adds a request of any kind. An earlier time than that of a preceding request counts as the
    /// same.
    fn see(&mut self, request: &Request) {
        self.requests += 1;
        self.latest = self
            .latest
            .max(blocks_at(request.time_ns, self.blocks_per_s) as u64);
        if request.kind == Kind::Read && request.length > 0 {
            self.reads = self
                .reads
                .saturating_add(request.end().div_ceil(BLOCK) - request.offset / BLOCK);
        }
    }

    /// Arrival to report before the latest request, if any.
    fn arrival(&mut self) -> Option<Operation> {
        if !std::mem::replace(&mut self.began, true) {
            // Time begins here.
            (self.told, self.reads) = (self.latest, 0);
            return Some(Operation::Arrival { after: 0, reads: 0 });
        }
        let (after, reads) = (self.latest - self.told, self.reads);
        (self.told, self.reads) = (self.latest, 0);
        (after > 0 || reads > 0).then(|| Operation::Arrival {
            after: saturated(after),
            reads: saturated(reads),
        })
    }

    /// Gap between two rounds of the trace: the rest of the one, and the mean time between two
    /// requests.
    fn between(&self) -> Operation {
        let mean = self.latest / self.requests.saturating_sub(1).max(1);
        Operation::Arrival {
            after: saturated((self.latest - self.told).saturating_add(mean)),
            reads: saturated(self.reads),
        }
    }
}

fn saturated(blocks: u64) -> u32 {
    u32::try_from(blocks).unwrap_or(u32::MAX)
}

/// Mapping of the trace's blocks to the volume.
#[derive(Clone, Debug)]
enum Places {
    Written(Dense),
    Addresses,
}

/// The second pass.
#[derive(Clone, Debug)]
pub struct Volume {
    wish: Wish,
    places: Places,
    times: Option<Times>,
    recorded: Recorded,
}

impl Volume {
    /// First block and number of blocks of a write or a trim; `None` if empty.
    fn range(&mut self, request: &Request) -> Option<(u32, u32)> {
        let (first, count) = match &mut self.places {
            Places::Written(dense) => dense.range(request)?,
            Places::Addresses => {
                let (from, to) = match request.kind {
                    Kind::Trim => (request.offset.div_ceil(BLOCK), request.end() / BLOCK),
                    _ => (request.offset / BLOCK, request.end().div_ceil(BLOCK)),
                };
                let to = to.min(u64::from(self.recorded.blocks));
                (
                    from,
                    to.checked_sub(from)
                        .filter(|count| *count > 0 && request.length > 0)?,
                )
            }
        };
        // Both are below the number of blocks, which fits.
        Some((first as u32, count as u32))
    }

    /// Adds a request: the same ones, in the same order.
    pub fn add(&mut self, request: &Request) {
        if let Some(times) = &mut self.times {
            times.see(request);
        }
        if request.kind == Kind::Flush && self.wish.flushes {
            self.recorded.flushes += 1;
            self.recorded.operations.push(Operation::Flush);
        }
        if !matches!(request.kind, Kind::Write | Kind::Trim)
            || (request.kind == Kind::Trim && !self.wish.trims)
        {
            return;
        }
        let Some((block, count)) = self.range(request) else {
            return;
        };
        let recorded = &mut self.recorded;
        recorded
            .operations
            .extend(self.times.as_mut().and_then(Times::arrival));
        if request.kind == Kind::Trim {
            recorded.trims += 1;
            recorded.operations.push(Operation::Trim { block, count });
            return;
        }
        if request.fua && self.wish.flushes {
            recorded.flushes += 1;
            recorded.operations.push(Operation::Durable);
        }
        recorded.written += u64::from(count);
        recorded.operations.push(Operation::Write { block, count });
    }

    /// Returns the result.
    pub fn finish(self) -> Recorded {
        Recorded {
            between: self.times.map(|times| times.between()),
            ..self.recorded
        }
    }
}

/// A trace, ready to run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Recorded {
    /// Number of blocks of the volume.
    pub blocks: u32,
    /// Its writes, trims and flushes.
    pub operations: Vec<Operation>,
    /// Number of blocks written.
    pub written: u64,
    /// Number of trims.
    pub trims: u64,
    /// Number of flushes, and of writes with FUA.
    pub flushes: u64,
    /// Gap between two rounds, if times count.
    pub between: Option<Operation>,
}

impl Recorded {
    /// Repeats the trace. If times count, the first request of a round follows the last of the
    /// preceding round by the mean time between two requests.
    pub fn rounds(&self, rounds: u32) -> impl Iterator<Item = Operation> + use<'_> {
        (0..rounds).flat_map(|round| {
            self.between
                .filter(|_| round > 0)
                .into_iter()
                .chain(self.operations.iter().copied())
        })
    }
}

#[cfg(test)]
mod tests;

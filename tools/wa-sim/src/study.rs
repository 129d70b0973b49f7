//! Journal study: configurations, loads, results.
//!
//! 1. Each configuration is brought to its steady state once.
//! 2. Each case runs on a copy of that.
//! 3. The baseline of a family (Windrow; the array in place) runs first, at full load. Then the
//!    number of tasks is searched that writes a tenth of those bytes per second; all configurations
//!    of the family use that number.

use crate::content::Content;
use crate::device::{Device, DeviceOptions, Member, Members};
use crate::inplace::InPlace;
use crate::load::{Durability, LoadSpec, Outcome, Target, Want, run};
use crate::mix::{DATA, Mix, TRANSACTION};
use crate::pool::{Image, Pool};
use crate::timings::Timings;
use windrow_engine::{JournalSpec, PoolSpec};
use windrow_format::superblock::Properties;
use windrow_geometry::Redundancy;
use windrow_random::Rng;
use windrow_types::{BLOCK_BYTES, Uuid};

/// Bytes of a memory device: those of the talk's card.
const MEMORY_BYTES: u64 = 1 << 30;
/// Number of tasks at full load.
pub const FULL_TASKS: usize = 64;
/// Maximum number of overwrite steps, each of half the live bytes, until two give the same write
/// amplification.
const SETTLE_STEPS: u64 = 5;
/// Difference below which two steps count as equal.
const SETTLED: f64 = 0.02;
/// Number of concurrent requests outside virtual time.
const TOGETHER: usize = 64;

/// Compared configuration.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Configuration {
    /// Windrow without a journal.
    Padding,
    /// Windrow, the journal on its data drives.
    Internal,
    /// Windrow with a journal device like its drives.
    Ssd,
    /// Windrow with a power-safe memory device.
    Memory,
    /// An array in place, the journal on it.
    InPlace,
    /// The same, the journal on an SSD.
    InPlaceSsd,
    /// The same, the journal on a memory device.
    InPlaceMemory,
}

impl Configuration {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Padding,
        Self::Internal,
        Self::Ssd,
        Self::Memory,
        Self::InPlace,
        Self::InPlaceSsd,
        Self::InPlaceMemory,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Padding => "padding",
            Self::Internal => "internal",
            Self::Ssd => "ssd",
            Self::Memory => "memory",
            Self::InPlace => "in-place",
            Self::InPlaceSsd => "in-place-ssd",
            Self::InPlaceMemory => "in-place-memory",
        }
    }

    /// True for the arrays in place.
    pub fn is_in_place(self) -> bool {
        matches!(self, Self::InPlace | Self::InPlaceSsd | Self::InPlaceMemory)
    }

    /// Baseline of its comparison.
    pub fn baseline(self) -> Self {
        if self.is_in_place() {
            Self::InPlace
        } else {
            Self::Internal
        }
    }
}

/// Workload.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Workload {
    /// Transactions.
    Transaction,
    /// Data.
    Data,
    /// Half the tasks each.
    Both,
}

impl Workload {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Transaction, Self::Data, Self::Both];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Transaction => TRANSACTION.name,
            Self::Data => DATA.name,
            Self::Both => "both",
        }
    }

    /// Mixes of `count` tasks.
    pub fn tasks(self, count: usize) -> Vec<Mix> {
        let mix = |task: usize| match self {
            Self::Transaction => TRANSACTION,
            Self::Data => DATA,
            Self::Both => [TRANSACTION, DATA][task % 2],
        };
        (0..count).map(mix).collect()
    }
}

/// Load level.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Pressure {
    /// A tenth of the bytes per second that the baseline writes at full load.
    Tenth,
    /// [`FULL_TASKS`] tasks.
    Full,
}

/// Parameters of a study.
#[derive(Clone, Debug)]
pub struct StudySpec {
    /// Number of members.
    pub members: usize,
    /// Bytes of each member.
    pub member_bytes: u64,
    /// Live share of the usable space.
    pub live_percent: u64,
    /// Configurations.
    pub configurations: Vec<Configuration>,
    /// Workloads.
    pub workloads: Vec<Workload>,
    /// Load levels.
    pub pressures: Vec<Pressure>,
    /// Numbers of writes between two flushes of a task, in addition to the base case.
    pub flushes: Vec<u64>,
    /// Workloads for these.
    pub flush_workloads: Vec<Workload>,
    /// Requests of the case that the talk measured: both loads at a tenth.
    pub judged_requests: u64,
    /// Requests of the other cases with durable writes.
    pub requests: u64,
    /// Requests of a case with flushes.
    pub flush_requests: u64,
    /// Seed.
    pub seed: u64,
    /// Kind of SSDs.
    pub devices: DeviceOptions,
}

/// One configuration under one load.
#[derive(Clone, Debug)]
pub struct Row {
    /// Configuration.
    pub configuration: Configuration,
    /// Workload.
    pub workload: Workload,
    /// Load level.
    pub pressure: Pressure,
    /// Durability of writes.
    pub durability: Durability,
    /// Number of tasks.
    pub tasks: usize,
    /// Results.
    pub outcome: Outcome,
}

/// A target in its steady state.
#[derive(Clone, Debug)]
enum Steady {
    Pool(Box<Image>),
    InPlace(Box<InPlace>),
}

/// Progress callback: current item, done, total.
pub type Progress<'a> = dyn FnMut(&str, u64, u64) + 'a;

/// A study in progress.
pub struct Study<'a> {
    spec: &'a StudySpec,
    timings: Timings,
    steady: Vec<(Configuration, Steady)>,
    /// Number of tasks for a tenth of the load, by baseline and workload.
    tenths: Vec<(Configuration, Workload, usize)>,
    /// Results.
    pub rows: Vec<Row>,
    /// Device bytes per user byte, in the steps to the steady state.
    pub settling: Vec<(Configuration, Vec<f64>)>,
}

impl<'a> Study<'a> {
    /// A study with the published timings.
    pub fn new(spec: &'a StudySpec) -> Self {
        Self {
            spec,
            timings: Timings::published(),
            steady: Vec::new(),
            tenths: Vec::new(),
            rows: Vec::new(),
            settling: Vec::new(),
        }
    }

    /// Runs the whole study.
    ///
    /// # Errors
    /// A wrong answer, or no answer.
    pub fn run(&mut self, progress: &mut Progress<'_>) -> Result<(), String> {
        let mut durabilities = vec![Durability::Each];
        durabilities.extend(
            self.spec
                .flushes
                .iter()
                .map(|after| Durability::FlushAfter(*after)),
        );
        for durability in durabilities {
            for workload in self.spec.workloads.clone() {
                for pressure in self.spec.pressures.clone() {
                    for configuration in self.spec.configurations.clone() {
                        // The model of the array in place supports no other durability.
                        let is_wanted = !configuration.is_in_place()
                            && self.spec.flush_workloads.contains(&workload);
                        if durability == Durability::Each || is_wanted {
                            self.case(configuration, workload, pressure, durability, progress)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn case(
        &mut self,
        configuration: Configuration,
        workload: Workload,
        pressure: Pressure,
        durability: Durability,
        progress: &mut Progress<'_>,
    ) -> Result<(), String> {
        let tasks = match pressure {
            Pressure::Full => FULL_TASKS,
            Pressure::Tenth => self.tenth(configuration.baseline(), workload, progress)?,
        };
        let requests = match (durability, workload, pressure) {
            (Durability::Each, Workload::Both, Pressure::Tenth) => self.spec.judged_requests,
            (Durability::Each, ..) => self.spec.requests,
            (Durability::FlushAfter(_), ..) => self.spec.flush_requests,
        };
        let outcome = self.measure(
            configuration,
            workload,
            tasks,
            durability,
            requests,
            progress,
        )?;
        self.rows.push(Row {
            configuration,
            workload,
            pressure,
            durability,
            tasks,
            outcome,
        });
        Ok(())
    }

    /// Number of tasks with which the baseline writes about a tenth of its bytes per second at full
    /// load.
    fn tenth(
        &mut self,
        baseline: Configuration,
        workload: Workload,
        progress: &mut Progress<'_>,
    ) -> Result<usize, String> {
        if let Some((.., tasks)) = self
            .tenths
            .iter()
            .find(|(configuration, of, _)| (*configuration, *of) == (baseline, workload))
        {
            return Ok(*tasks);
        }
        let requests = self.spec.requests / 10;
        let mut rate = |study: &mut Self, tasks: usize| -> Result<f64, String> {
            Ok(study
                .measure(
                    baseline,
                    workload,
                    tasks,
                    Durability::Each,
                    requests,
                    progress,
                )?
                .write_bytes_per_second())
        };
        let wanted = rate(self, FULL_TASKS)? / 10.0;
        let step = if workload == Workload::Both { 2 } else { 1 };
        let (mut tasks, mut below) = (step, 0.0);
        loop {
            let now = rate(self, tasks)?;
            if now >= wanted || tasks >= FULL_TASKS {
                let nearer_below = tasks > step && wanted - below < now - wanted;
                let tasks = if nearer_below { tasks - step } else { tasks };
                self.tenths.push((baseline, workload, tasks));
                return Ok(tasks);
            }
            (tasks, below) = (tasks + step, now);
        }
    }

    fn measure(
        &mut self,
        configuration: Configuration,
        workload: Workload,
        tasks: usize,
        durability: Durability,
        requests: u64,
        progress: &mut Progress<'_>,
    ) -> Result<Outcome, String> {
        let label = format!("{}: {} x {tasks}", configuration.name(), workload.name());
        let spec = LoadSpec {
            tasks: workload.tasks(tasks),
            durability,
            warm: requests / 10,
            requests,
            seed: self.spec.seed,
        };
        let mut tell = |done: u64, all: u64| {
            if done.is_multiple_of(256) {
                progress(&label, done, all);
            }
        };
        let mut target: Box<dyn Target> = match self.steady(configuration, &mut tell)? {
            Steady::Pool(image) => {
                let mut pool = Pool::open((**image).clone(), &self.timings.processor)?;
                pool.start_clock();
                Box::new(pool)
            }
            Steady::InPlace(array) => array.clone(),
        };
        run(&mut *target, &spec, &mut tell).map_err(|why| format!("{label}: {why}"))
    }

    fn steady(
        &mut self,
        configuration: Configuration,
        tell: &mut dyn FnMut(u64, u64),
    ) -> Result<&Steady, String> {
        if let Some(at) = self.steady.iter().position(|(of, _)| *of == configuration) {
            return Ok(&self.steady[at].1);
        }
        let steady = if configuration.is_in_place() {
            self.steady_array(configuration, tell)
        } else {
            self.steady_pool(configuration, tell)?
        };
        self.steady.push((configuration, steady));
        Ok(&self.steady[self.steady.len() - 1].1)
    }

    fn member_blocks(&self) -> u64 {
        self.spec.member_bytes / BLOCK_BYTES
    }

    /// The journal device, if there is one, and its number of blocks.
    fn journal_device(&self, configuration: Configuration) -> Option<(Device, u64)> {
        match configuration {
            Configuration::Ssd | Configuration::InPlaceSsd => Some((
                Device::ssd(&self.timings, self.member_blocks(), &self.spec.devices),
                self.member_blocks(),
            )),
            Configuration::Memory | Configuration::InPlaceMemory => {
                Some((Device::memory(&self.timings), MEMORY_BYTES / BLOCK_BYTES))
            }
            _ => None,
        }
    }

    fn steady_array(
        &mut self,
        configuration: Configuration,
        tell: &mut dyn FnMut(u64, u64),
    ) -> Steady {
        let mut devices: Vec<Device> = (0..self.spec.members)
            .map(|_| Device::ssd(&self.timings, self.member_blocks(), &self.spec.devices))
            .collect();
        devices.extend(self.journal_device(configuration).map(|(device, _)| device));
        let mut array = InPlace::new(
            devices,
            self.spec.members,
            self.member_blocks(),
            &self.timings.in_place,
            self.spec.live_percent,
        );
        array.settle(SETTLE_STEPS * 50, self.spec.seed, tell);
        Steady::InPlace(Box::new(array))
    }

    fn steady_pool(
        &mut self,
        configuration: Configuration,
        tell: &mut dyn FnMut(u64, u64),
    ) -> Result<Steady, String> {
        let blocks = self.member_blocks();
        let member = |device: Device, blocks: u64| Member {
            content: Content::new(blocks),
            device,
        };
        let mut members: Vec<Member> = (0..self.spec.members)
            .map(|_| {
                member(
                    Device::ssd(&self.timings, blocks, &self.spec.devices),
                    blocks,
                )
            })
            .collect();
        let mut journal = JournalSpec::internal(None, BLOCK_BYTES as u32);
        if let Some((device, blocks)) = self.journal_device(configuration) {
            journal
                .devices
                .push((Uuid([0xd0; 16]), blocks * BLOCK_BYTES));
            journal.power_safe = configuration == Configuration::Memory;
            members.push(member(device, blocks));
        }
        let spec = PoolSpec {
            name: "study".into(),
            redundancy: Redundancy::Double,
            chunk_rows: None,
            segment_rows: None,
            align_bytes: BLOCK_BYTES,
            pool: Uuid([9; 16]),
            members: (0..self.spec.members)
                .map(|i| (Uuid([i as u8 + 1; 16]), self.spec.member_bytes))
                .collect(),
            created_unix_s: 0,
            properties: Properties::DEFAULT,
            journal: (configuration != Configuration::Padding).then_some(journal),
        };
        let image = Image::make(
            Members(members),
            &spec,
            self.spec.live_percent,
            &self.timings.processor,
        )?;
        let mut pool = Pool::open(image, &self.timings.processor)?;
        let steps = settle(&mut pool, self.spec.seed, tell)?;
        self.settling.push((configuration, steps));
        Ok(Steady::Pool(Box::new(pool.close()?)))
    }
}

/// Fills a pool, and overwrites it at random until its write amplification is steady. Returns that
/// of each step.
fn settle(pool: &mut Pool, seed: u64, tell: &mut dyn FnMut(u64, u64)) -> Result<Vec<f64>, String> {
    let (span, mut rng) = (pool.span(), Rng::stream(seed, "settle"));
    let step = span / 2;
    let all = span + SETTLE_STEPS * step;
    let mut wants = Vec::new();
    for block in (0..span).step_by(64) {
        wants.push(Want::Write {
            block,
            count: 64.min(span - block),
            durable: false,
        });
        if wants.len() == TOGETHER || block + 64 >= span {
            pool.do_all(&wants)?;
            wants.clear();
            tell(block / 256 * 256, all);
        }
    }
    let mut found: Vec<f64> = Vec::new();
    for number in 0..SETTLE_STEPS {
        let (mut done, before) = (0, pool.counters().written_bytes);
        while done < step {
            let count = [TRANSACTION, DATA][rng.below(2) as usize].draw_write(&mut rng);
            wants.push(Want::Write {
                block: rng.below(span - count + 1),
                count,
                durable: false,
            });
            done += count;
            if wants.len() == TOGETHER {
                pool.do_all(&wants)?;
                wants.clear();
                tell((span + number * step + done) / 256 * 256, all);
            }
        }
        found.push((pool.counters().written_bytes - before) as f64 / (done * BLOCK_BYTES) as f64);
        if let [.., before, last] = found[..]
            && (last / before - 1.0).abs() < SETTLED
        {
            break;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;

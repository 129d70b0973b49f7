//! Model of the talk's array: RAID-6 in place, and a file system on it with full data journaling.
//! It uses the same members and stores no content.
//!
//! **Array**, after md: rows of 4 KiB blocks over all members, chunks, rotating P and Q. A write of
//! some columns of a row reads either the old blocks with P and Q, or the other columns, whichever
//! is less; blocks in the stripe cache are not read. Then the new blocks, P and Q are written.
//!
//! **Journal**, after jbd2:
//! 1. A writer waits for the next commit; one commit is in progress at a time, and covers all
//!    waiting writers.
//! 2. Descriptors and data go to the ring.
//! 3. A flush.
//! 4. The commit block.
//! 5. A flush. All waiting writers are answered.
//! 6. Home: from a quarter of the ring on, the oldest commits are written to their home locations,
//!    `HOME_AT_ONCE` writes at a time. Blocks that a later commit contains again are left to that
//!    one. A commit without room in the ring waits for that. Reads of blocks that are not home yet
//!    are served from memory.
//!
//! Left out, each of which would make the baseline slower: metadata blocks, the write-intent
//! bitmap, waits for rows that another write is using.

mod layout;

use crate::device::{Device, sum};
use crate::load::{Target, Want};
use crate::mix::{DATA, TRANSACTION};
use crate::nand::{Ask, Counters, Wake};
use crate::timings::InPlaceTimings;
use layout::{Array, Group};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use windrow_random::Rng;
use windrow_types::BLOCK_BYTES;

/// Number of concurrent checkpoint writes to home locations.
const HOME_AT_ONCE: u32 = 32;
/// Number of blocks that one descriptor block names.
const DESCRIPTOR_BLOCKS: u64 = 500;
/// Number of answers or steps after which the model counts as stuck.
const STEPS_MAX: u32 = 10_000_000;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum What {
    Device(usize, Wake),
    Begin(usize),
    Answer(usize),
}

/// Action when all parts of an operation have ended.
#[derive(Clone, Copy, Debug)]
enum Then {
    Read(usize),
    Commit,
    Home(u64),
    Nothing,
}

/// An operation of several parts.
#[derive(Clone, Debug)]
struct Whole {
    left: u32,
    then: Then,
}

/// A row group: outstanding commands of its stage, and the writes that follow its reads.
#[derive(Clone, Debug)]
struct Part {
    left: u32,
    writes: Vec<(usize, u64, u64)>,
    whole: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Data,
    FlushData,
    Mark,
    FlushMark,
}

#[derive(Clone, Debug)]
struct Commit {
    number: u64,
    writes: Vec<(u64, u64)>,
    tasks: Vec<usize>,
    ring_blocks: u64,
    stage: Stage,
    home_left: u32,
    home_begun: bool,
}

/// Location of the journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JournalPlace {
    /// At the start of the array.
    Array,
    /// On the device that follows the members.
    Device,
}

/// The array with its file system.
#[derive(Clone, Debug)]
pub struct InPlace {
    devices: Vec<Device>,
    array: Array,
    members: usize,
    place: JournalPlace,
    timings: InPlaceTimings,
    span: u64,
    ring: u64,
    ring_head: u64,
    ring_used: u64,
    dirty: u64,
    now_ns: u64,
    heap: BinaryHeap<Reverse<(u64, u64, What)>>,
    sequence: u64,
    wholes: Vec<Option<Whole>>,
    parts: Vec<Option<Part>>,
    commands: Vec<FxHashMap<u64, usize>>,
    wanted: Vec<Want>,
    waiting: Vec<usize>,
    committing: Option<Commit>,
    commits: VecDeque<Commit>,
    last_commit: u64,
    /// Newest commit of each block that is not home.
    newest: FxHashMap<u64, u64>,
    home_under_way: u32,
    home_bytes: u64,
    journal_bytes: u64,
    parity_bytes: u64,
}

impl InPlace {
    /// An array of these members, followed by the journal device if there is one; a given
    /// percentage of it is used.
    pub fn new(
        devices: Vec<Device>,
        members: usize,
        member_blocks: u64,
        timings: &InPlaceTimings,
        live_percent: u64,
    ) -> Self {
        let chunk = timings.chunk_bytes.value / BLOCK_BYTES;
        let blocks = member_blocks / chunk * chunk * (members as u64 - 2);
        let ring = (timings.journal_bytes.value / BLOCK_BYTES).min(blocks / 16);
        Self {
            place: if devices.len() > members {
                JournalPlace::Device
            } else {
                JournalPlace::Array
            },
            commands: vec![FxHashMap::default(); devices.len()],
            devices,
            members,
            array: Array::new(
                members as u64,
                chunk,
                timings.stripe_cache_rows.value as usize,
            ),
            timings: timings.clone(),
            span: (blocks - ring) * live_percent / 100,
            ring,
            ring_head: 0,
            ring_used: 0,
            dirty: 0,
            now_ns: 0,
            heap: BinaryHeap::new(),
            sequence: 0,
            wholes: Vec::new(),
            parts: Vec::new(),
            wanted: Vec::new(),
            waiting: Vec::new(),
            committing: None,
            commits: VecDeque::new(),
            last_commit: 0,
            newest: FxHashMap::default(),
            home_under_way: 0,
            home_bytes: 0,
            journal_bytes: 0,
            parity_bytes: 0,
        }
    }

    /// Fills the array, and overwrites it at random until `overwrites` times the live blocks are
    /// written, outside virtual time.
    pub fn settle(
        &mut self,
        overwrites_percent: u64,
        seed: u64,
        progress: &mut dyn FnMut(u64, u64),
    ) {
        let mut rng = Rng::stream(seed, "settle");
        let all = self.span + self.span * overwrites_percent / 100;
        let mut done = 0;
        while done < self.span {
            let count = 64.min(self.span - done);
            self.write_now(self.ring + done, count);
            done += count;
            progress(done, all);
        }
        while done < all {
            let count = [TRANSACTION, DATA][rng.below(2) as usize].draw_write(&mut rng);
            let block = rng.below(self.span - count + 1);
            self.journal_now(count + 2);
            self.write_now(self.ring + block, count);
            done += count;
            progress(done, all);
        }
        // The ring stays this full from now on.
        let mut waiting = 0;
        while waiting < self.ring / 4 {
            let count = DATA.draw_write(&mut rng);
            let block = rng.below(self.span - count + 1);
            self.last_commit += 1;
            let commit = Commit {
                number: self.last_commit,
                writes: vec![(block, count)],
                tasks: Vec::new(),
                ring_blocks: count + 2,
                stage: Stage::FlushMark,
                home_left: 0,
                home_begun: false,
            };
            self.journal_now(count + 2);
            self.remember(&commit);
            self.ring_used += count + 2;
            self.commits.push_back(commit);
            waiting += count + 2;
        }
        self.dirty = 0;
    }

    fn journal_now(&mut self, count: u64) {
        let (first, rest) = self.ring_ranges(count);
        for (block, count) in [first, rest].into_iter().filter(|(_, count)| *count > 0) {
            match self.place {
                JournalPlace::Array => self.write_now(block, count),
                JournalPlace::Device => {
                    self.devices[self.members].do_now(Ask::Write { block, count })
                }
            }
        }
    }

    fn write_now(&mut self, block: u64, count: u64) {
        for group in self.array.groups(block, count) {
            let (_, writes) = self.array.plan(&group);
            for (member, block, count) in self.array.ranges(&group, writes) {
                self.devices[member].do_now(Ask::Write { block, count });
            }
        }
    }

    /// Next `count` blocks of the ring: one range, or two.
    fn ring_ranges(&mut self, count: u64) -> ((u64, u64), (u64, u64)) {
        let first = count.min(self.ring - self.ring_head);
        let ranges = ((self.ring_head, first), (0, count - first));
        self.ring_head = (self.ring_head + count) % self.ring;
        ranges
    }

    fn remember(&mut self, commit: &Commit) {
        for (block, count) in &commit.writes {
            (*block..block + count).for_each(|block| _ = self.newest.insert(block, commit.number));
        }
    }

    fn at(&mut self, time_ns: u64, what: What) {
        self.sequence += 1;
        self.heap.push(Reverse((time_ns, self.sequence, what)));
    }

    fn turn(&mut self) -> Result<(), String> {
        let Some(Reverse((time, _, what))) = self.heap.pop() else {
            return Err("nothing is in progress in the array".into());
        };
        self.now_ns = self.now_ns.max(time);
        match what {
            What::Device(device, wake) => {
                self.devices[device].wake(self.now_ns, wake);
                self.look_at(device);
            }
            What::Begin(task) => self.begin(task),
            What::Answer(task) => {
                return Err(format!("an answer to task {task} that is not waiting"));
            }
        }
        Ok(())
    }

    fn look_at(&mut self, device: usize) {
        let wakes = std::mem::take(self.devices[device].wakes());
        wakes
            .into_iter()
            .for_each(|(time, wake)| self.at(time, What::Device(device, wake)));
        // All of them before anything is submitted: numbers are reused.
        let done = std::mem::take(self.devices[device].done());
        let parts: Vec<usize> = done
            .iter()
            .filter_map(|id| self.commands[device].remove(id))
            .collect();
        parts.into_iter().for_each(|part| self.command_ended(part));
    }

    fn command(&mut self, device: usize, ask: Ask, part: usize) {
        let id = self.devices[device].submit(self.now_ns, ask);
        self.commands[device].insert(id, part);
        self.look_at(device);
    }

    fn whole(&mut self, left: usize, then: Then) -> usize {
        put(
            &mut self.wholes,
            Whole {
                left: left as u32,
                then,
            },
        )
    }

    fn command_ended(&mut self, number: usize) {
        let Some(part) = &mut self.parts[number] else {
            return;
        };
        part.left -= 1;
        if part.left > 0 {
            return;
        }
        let writes = std::mem::take(&mut part.writes);
        let whole = part.whole;
        if !writes.is_empty() {
            part.left = writes.len() as u32;
            for (device, block, count) in writes {
                self.dirty |= 1 << device;
                self.command(device, Ask::Write { block, count }, number);
            }
            return;
        }
        self.parts[number] = None;
        self.part_ended(whole);
    }

    fn part_ended(&mut self, number: usize) {
        let Some(whole) = &mut self.wholes[number] else {
            return;
        };
        whole.left -= 1;
        if whole.left == 0 {
            let then = whole.then;
            self.wholes[number] = None;
            self.go_on(then);
        }
    }

    fn go_on(&mut self, then: Then) {
        match then {
            Then::Read(task) => self.at(self.now_ns, What::Answer(task)),
            Then::Commit => self.commit_step(),
            Then::Home(number) => self.home_ended(number),
            Then::Nothing => {}
        }
    }

    /// Writes ranges of the array.
    fn array_write(&mut self, ranges: &[(u64, u64)], then: Then) {
        let groups: Vec<Group> = ranges
            .iter()
            .flat_map(|(block, count)| self.array.groups(*block, *count))
            .collect();
        let whole = self.whole(groups.len(), then);
        for group in groups {
            let (reads, columns) = self.array.plan(&group);
            self.parity_bytes += 2 * group.rows * BLOCK_BYTES;
            let (reads, writes) = (
                self.array.ranges(&group, reads),
                self.array.ranges(&group, columns),
            );
            let (begin, is_read, later) = if reads.is_empty() {
                (writes, false, Vec::new())
            } else {
                (reads, true, writes)
            };
            let part = put(
                &mut self.parts,
                Part {
                    left: begin.len() as u32,
                    writes: later,
                    whole,
                },
            );
            for (device, block, count) in begin {
                self.dirty |= if is_read { 0 } else { 1 << device };
                self.command(
                    device,
                    if is_read {
                        Ask::Read { block, count }
                    } else {
                        Ask::Write { block, count }
                    },
                    part,
                );
            }
        }
    }

    fn journal_write(&mut self, count: u64) {
        self.journal_bytes += count * BLOCK_BYTES;
        let (first, rest) = self.ring_ranges(count);
        let ranges: Vec<(u64, u64)> = [first, rest]
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .collect();
        match self.place {
            JournalPlace::Array => self.array_write(&ranges, Then::Commit),
            JournalPlace::Device => {
                let whole = self.whole(ranges.len(), Then::Commit);
                for (block, count) in ranges {
                    let part = put(
                        &mut self.parts,
                        Part {
                            left: 1,
                            writes: Vec::new(),
                            whole,
                        },
                    );
                    self.command(self.members, Ask::Write { block, count }, part);
                }
            }
        }
    }

    /// Flushes the journal: its device, or the members written since the last flush.
    fn journal_flush(&mut self) {
        let devices: Vec<usize> = match self.place {
            JournalPlace::Array => (0..self.members)
                .filter(|member| self.dirty >> member & 1 == 1)
                .collect(),
            JournalPlace::Device => vec![self.members],
        };
        self.flush(&devices, Then::Commit);
    }

    fn flush(&mut self, devices: &[usize], then: Then) {
        if devices.is_empty() {
            return self.go_on(then);
        }
        let whole = self.whole(devices.len(), then);
        for device in devices {
            self.dirty &= !(1 << device);
            let part = put(
                &mut self.parts,
                Part {
                    left: 1,
                    writes: Vec::new(),
                    whole,
                },
            );
            self.command(*device, Ask::Flush, part);
        }
    }

    /// Starts a task's request in the file system.
    fn begin(&mut self, task: usize) {
        match self.wanted[task] {
            Want::Read { block, count } => self.read(task, block, count),
            Want::Write { .. } => {
                self.waiting.push(task);
                self.begin_commit();
            }
            Want::Flush => self.at(self.now_ns, What::Answer(task)),
        }
    }

    fn read(&mut self, task: usize, block: u64, count: u64) {
        // Runs of blocks that are not in memory, then those of each chunk.
        let mut runs: Vec<(usize, u64, u64)> = Vec::new();
        for block in (block..block + count).filter(|block| !self.newest.contains_key(block)) {
            let (member, place) = self.array.place(self.ring + block);
            match runs.last_mut() {
                Some((last, first, count)) if *last == member && *first + *count == place => {
                    *count += 1
                }
                _ => runs.push((member, place, 1)),
            }
        }
        if runs.is_empty() {
            return self.at(self.now_ns, What::Answer(task));
        }
        let whole = self.whole(runs.len(), Then::Read(task));
        for (member, block, count) in runs {
            let part = put(
                &mut self.parts,
                Part {
                    left: 1,
                    writes: Vec::new(),
                    whole,
                },
            );
            self.command(member, Ask::Read { block, count }, part);
        }
    }

    fn begin_commit(&mut self) {
        if self.committing.is_some() || self.waiting.is_empty() {
            return;
        }
        let (mut writes, mut blocks, mut taken) = (Vec::new(), 0, 0);
        for task in &self.waiting {
            let Want::Write { block, count, .. } = self.wanted[*task] else {
                continue;
            };
            let with = blocks + count;
            if self.ring_used + with + with.div_ceil(DESCRIPTOR_BLOCKS) + 1 > self.ring {
                break;
            }
            (blocks, taken) = (with, taken + 1);
            writes.push((block, count));
        }
        if taken == 0 {
            return;
        }
        let tasks = self.waiting.drain(..taken).collect();
        self.last_commit += 1;
        let data = blocks + blocks.div_ceil(DESCRIPTOR_BLOCKS);
        let commit = Commit {
            number: self.last_commit,
            writes,
            tasks,
            ring_blocks: data + 1,
            stage: Stage::Data,
            home_left: 0,
            home_begun: false,
        };
        self.ring_used += commit.ring_blocks;
        self.remember(&commit);
        self.committing = Some(commit);
        self.journal_write(data);
    }

    fn commit_step(&mut self) {
        let Some(commit) = &mut self.committing else {
            return;
        };
        match commit.stage {
            Stage::Data => {
                commit.stage = Stage::FlushData;
                self.journal_flush();
            }
            Stage::FlushData => {
                commit.stage = Stage::Mark;
                self.journal_write(1);
            }
            Stage::Mark => {
                commit.stage = Stage::FlushMark;
                self.journal_flush();
            }
            Stage::FlushMark => {
                let Some(mut commit) = self.committing.take() else {
                    return;
                };
                for task in std::mem::take(&mut commit.tasks) {
                    self.at(self.now_ns, What::Answer(task));
                }
                self.commits.push_back(commit);
                self.begin_commit();
                self.go_home();
            }
        }
    }

    /// Starts writes to home locations while more than a quarter of the ring is in use.
    fn go_home(&mut self) {
        let (mut number, mut ahead) = (0, 0);
        while self.home_under_way < HOME_AT_ONCE
            && number < self.commits.len()
            && self.ring_used - ahead > self.ring / 4
        {
            let commit = &mut self.commits[number];
            (ahead, number) = (ahead + commit.ring_blocks, number + 1);
            if std::mem::replace(&mut commit.home_begun, true) {
                continue;
            }
            let (of, writes) = (commit.number, commit.writes.clone());
            let mut runs: Vec<(u64, u64)> = Vec::new();
            for block in writes
                .iter()
                .flat_map(|(block, count)| *block..block + count)
                .filter(|block| self.newest.get(block) == Some(&of))
            {
                match runs.last_mut() {
                    Some((first, count)) if *first + *count == block => *count += 1,
                    _ => runs.push((block, 1)),
                }
            }
            self.commits[number - 1].home_left = runs.len() as u32;
            for (block, count) in runs {
                self.home_under_way += 1;
                self.home_bytes += count * BLOCK_BYTES;
                self.array_write(&[(self.ring + block, count)], Then::Home(of));
            }
        }
        self.free_ring();
    }

    fn home_ended(&mut self, number: u64) {
        self.home_under_way -= 1;
        if let Some(commit) = self
            .commits
            .iter_mut()
            .find(|commit| commit.number == number)
        {
            commit.home_left -= 1;
        }
        self.go_home();
    }

    /// Frees the space of commits that are home, oldest first; their flushes are not waited for.
    fn free_ring(&mut self) {
        let mut freed = false;
        while self
            .commits
            .front()
            .is_some_and(|commit| commit.home_begun && commit.home_left == 0)
        {
            let Some(commit) = self.commits.pop_front() else {
                break;
            };
            self.ring_used -= commit.ring_blocks;
            for block in commit
                .writes
                .iter()
                .flat_map(|(block, count)| *block..block + count)
            {
                if self.newest.get(&block) == Some(&commit.number) {
                    self.newest.remove(&block);
                }
            }
            freed = true;
        }
        if freed && self.committing.is_none() && !self.waiting.is_empty() {
            let dirty: Vec<usize> = (0..self.members)
                .filter(|member| self.dirty >> member & 1 == 1)
                .collect();
            self.flush(&dirty, Then::Nothing);
            self.begin_commit();
        }
    }
}

/// Puts a value into the first free slot.
fn put<T>(list: &mut Vec<Option<T>>, value: T) -> usize {
    match list.iter().position(Option::is_none) {
        Some(at) => {
            list[at] = Some(value);
            at
        }
        None => {
            list.push(Some(value));
            list.len() - 1
        }
    }
}

impl Target for InPlace {
    fn span(&self) -> u64 {
        self.span
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn ask(&mut self, task: usize, want: Want) {
        if self.wanted.len() <= task {
            self.wanted.resize(task + 1, Want::Flush);
        }
        self.wanted[task] = want;
        self.at(
            self.now_ns + self.timings.request_ns.value,
            What::Begin(task),
        );
    }

    fn answers(&mut self, answers: &mut Vec<(usize, u64)>) -> Result<(), String> {
        for _ in 0..STEPS_MAX {
            if let Some(Reverse((time, _, What::Answer(task)))) = self.heap.peek().copied() {
                self.heap.pop();
                self.now_ns = self.now_ns.max(time);
                answers.push((task, self.now_ns));
                return Ok(());
            }
            self.turn()?;
        }
        Err("the array gives no answer".into())
    }

    fn counters(&self) -> Counters {
        sum(self.devices.iter().map(Device::counters))
    }

    fn causes(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("home", self.home_bytes),
            ("journal", self.journal_bytes),
            ("parity", self.parity_bytes),
        ]
    }
}

#[cfg(test)]
mod tests;

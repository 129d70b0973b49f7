//! Timed SSD: busy dies and channels, a protected write buffer, and garbage collection in between.
//!
//! 1. A command passes the link and the controller.
//! 2. A write is answered when all its blocks are in the buffer, in order of arrival. A full word
//!    line of blocks waits for its die.
//! 3. A read of buffered blocks is answered from the buffer. Otherwise each page that it touches is
//!    a read of a die and a transfer over its channel, and the answer passes the link.
//! 4. An idle die takes, in this order: a waiting read (at most `READS_AHEAD` in a row while
//!    something else waits); garbage collection, if hardly a block is free; else garbage collection
//!    and programs in turn. A die completes what it has begun, unless programs may be suspended. A
//!    drive *in order* does not let reads pass programs that waited for the die when the read
//!    arrived.
//!
//! Small drives have small blocks: one erase in `erase_every` takes the time of a whole production
//! block, the others none.

use crate::device::DeviceOptions;
use crate::ftl::{Collection, Ftl, Line, Shape};
use crate::timings::{SsdTimings, transfer_ns};
use std::collections::{BTreeSet, VecDeque};
use windrow_random::mix;
use windrow_types::BLOCK_BYTES;

/// Number of consecutive reads of a die while something else waits for it.
const READS_AHEAD: u32 = 8;
/// Number of free blocks of a die below which garbage collection begins.
const COLLECT_BELOW: usize = 3;
/// Number of free blocks below which it precedes programs.
const COLLECT_FIRST: usize = 1;
/// Blocks of a die that are free or being filled: negligible on a production drive, so they are not
/// taken from the spare here.
const KEPT_BLOCKS: u64 = COLLECT_BELOW as u64 + 2;
/// Minimum number of blocks of each die of a small drive, if possible.
const DIE_BLOCKS: u64 = 160;

/// Request to a drive, in blocks of 4 KiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    /// Read.
    Read {
        /// First block.
        block: u64,
        /// Number of blocks.
        count: u64,
    },
    /// Write.
    Write {
        /// First block.
        block: u64,
        /// Number of blocks.
        count: u64,
    },
    /// Make everything answered durable.
    Flush,
    /// Drop the content.
    Discard {
        /// First block.
        block: u64,
        /// Number of blocks.
        count: u64,
    },
}

/// Pending event of a drive; to be passed back when its time has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Wake {
    /// A command begins.
    Begin(u64),
    /// A command ends.
    End(u64),
    /// A die has finished its operation; the number distinguishes it from events that a suspension
    /// delayed.
    Die(u32, u32),
}

/// Counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Bytes written by the host.
    pub written_bytes: u64,
    /// Bytes programmed.
    pub programmed_bytes: u64,
    /// Bytes read by the host.
    pub read_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Erases of small blocks.
    pub erases: u64,
    /// Programs that were suspended for a read.
    pub suspensions: u64,
}

#[derive(Clone, Debug)]
struct Command {
    ask: Ask,
    /// Blocks still to be put into the buffer, or pages still to be read.
    left: u64,
}

#[derive(Clone, Copy, Debug)]
struct PageRead {
    command: u64,
    line: usize,
    page: usize,
    slots: u64,
    /// Number of host programs that must have begun on the die first.
    behind: u64,
}

#[derive(Clone, Copy, Debug)]
enum Doing {
    Read(PageRead),
    Program(Line),
    CollectRead,
    Erase,
    /// A suspension takes its time.
    Pause,
}

#[derive(Clone, Debug, Default)]
struct DieQueue {
    reads: VecDeque<PageRead>,
    programs: VecDeque<Line>,
    /// Host programs that have begun.
    begun: u64,
    moves: VecDeque<Line>,
    doing: Option<Doing>,
    ends_ns: u64,
    number: u32,
    reads_ahead: u32,
    collect_next: bool,
    erases: u64,
    /// A suspended program, and its remaining time.
    suspended: Option<(Line, u64)>,
}

/// Times at which a channel is free: for reads, and for all.
#[derive(Clone, Copy, Debug, Default)]
struct Channel {
    reads_until: u64,
    all_until: u64,
}

/// An SSD.
#[derive(Clone, Debug)]
pub struct Ssd {
    timings: SsdTimings,
    ftl: Ftl,
    dies: Vec<DieQueue>,
    channels: Vec<Channel>,
    link_read_until: u64,
    link_write_until: u64,
    commands: Vec<Option<Command>>,
    free: Vec<u64>,
    /// Writes whose blocks wait for room in the buffer.
    entering: VecDeque<u64>,
    buffered: u64,
    buffer_blocks: u64,
    /// Waiting flushes without protection: until no line with a lower number remains to be
    /// programmed.
    flushing: Vec<(u64, u64)>,
    /// Numbers of host lines that are not programmed.
    unprogrammed: BTreeSet<u64>,
    next_line: u64,
    erase_every: u64,
    protected: bool,
    suspend: bool,
    in_order: bool,
    /// Counters.
    pub counters: Counters,
    /// Pending events since the caller last took them.
    pub wakes: Vec<(u64, Wake)>,
    /// Commands that have ended since the caller last took them.
    pub done: Vec<u64>,
}

impl Ssd {
    /// A fresh drive with `usable` usable blocks.
    pub fn new(timings: &SsdTimings, usable: u64, options: &DeviceOptions) -> Self {
        let page_slots = timings.planes.value * timings.page_bytes.value / BLOCK_BYTES;
        let line_slots = page_slots * timings.pages_per_word_line.value;
        let dies = timings.channels.value * timings.dies_per_channel.value;
        let lines =
            (usable * timings.raw_per_mille_of_usable.value / 1000).div_ceil(line_slots * dies);
        let real_lines = timings.erase_block_bytes.value
            / (timings.page_bytes.value * timings.pages_per_word_line.value);
        let block_lines = (lines / DIE_BLOCKS).clamp(1, real_lines);
        let shape = Shape {
            dies: dies as usize,
            line_slots: line_slots as usize,
            page_slots: page_slots as usize,
            block_lines: block_lines as usize,
            die_blocks: (lines.div_ceil(block_lines) + KEPT_BLOCKS) as usize,
            usable,
        };
        Self {
            ftl: Ftl::new(shape),
            dies: vec![DieQueue::default(); dies as usize],
            channels: vec![Channel::default(); timings.channels.value as usize],
            link_read_until: 0,
            link_write_until: 0,
            commands: Vec::new(),
            free: Vec::new(),
            entering: VecDeque::new(),
            buffered: 0,
            buffer_blocks: timings.buffer_bytes.value / BLOCK_BYTES,
            flushing: Vec::new(),
            unprogrammed: BTreeSet::new(),
            next_line: 0,
            erase_every: real_lines / block_lines,
            protected: options.protected,
            suspend: options.suspend || timings.program_suspend.value != 0,
            in_order: options.in_order,
            timings: timings.clone(),
            counters: Counters::default(),
            wakes: Vec::new(),
            done: Vec::new(),
        }
    }

    /// Its tables.
    pub fn ftl(&self) -> &Ftl {
        &self.ftl
    }

    /// Submits a command; its number is returned in `done`.
    pub fn submit(&mut self, now: u64, ask: Ask) -> u64 {
        let id = self.free.pop().unwrap_or(self.commands.len() as u64);
        if id == self.commands.len() as u64 {
            self.commands.push(None);
        }
        let begins = match ask {
            Ask::Read { .. } => now + self.timings.controller_read_ns.value,
            Ask::Write { count, .. } => {
                let bytes = count * BLOCK_BYTES;
                self.link_write_until = self.link_write_until.max(now)
                    + transfer_ns(bytes, self.timings.link_write_bytes_per_second.value);
                self.link_write_until + self.timings.controller_write_ns.value
            }
            Ask::Flush => now + self.timings.flush_ns.value,
            Ask::Discard { .. } => now + self.timings.controller_write_ns.value,
        };
        self.commands[id as usize] = Some(Command { ask, left: 0 });
        self.wakes.push((begins, Wake::Begin(id)));
        id
    }

    /// Handles a wake whose time has come.
    pub fn wake(&mut self, now: u64, wake: Wake) {
        match wake {
            Wake::Begin(id) => self.begin(now, id),
            Wake::End(id) => self.end(id),
            Wake::Die(die, number) => {
                if self.dies[die as usize].number == number {
                    self.die_done(now, die as usize);
                }
            }
        }
    }

    fn end(&mut self, id: u64) {
        self.commands[id as usize] = None;
        self.free.push(id);
        self.done.push(id);
    }

    fn begin(&mut self, now: u64, id: u64) {
        let Some(ask) = self.commands[id as usize]
            .as_ref()
            .map(|command| command.ask)
        else {
            return;
        };
        match ask {
            Ask::Read { block, count } => self.begin_read(now, id, block, count),
            Ask::Write { count, .. } => {
                self.counters.written_bytes += count * BLOCK_BYTES;
                self.set_left(id, count);
                self.entering.push_back(id);
                self.enter(now);
            }
            Ask::Flush => {
                self.counters.flushes += 1;
                if self.protected {
                    return self.end(id);
                }
                if let Some(line) = self.ftl.pad() {
                    self.queue_line(now, line);
                }
                self.flushing.push((id, self.next_line));
                self.end_flushes();
            }
            Ask::Discard { block, count } => {
                (block..block + count).for_each(|block| self.ftl.forget(block));
                self.end(id);
                // Dies that had nothing to gain may have now.
                self.go_on_all(now);
            }
        }
    }

    fn set_left(&mut self, id: u64, left: u64) {
        if let Some(command) = &mut self.commands[id as usize] {
            command.left = left;
        }
    }

    fn begin_read(&mut self, now: u64, id: u64, block: u64, count: u64) {
        self.counters.read_bytes += count * BLOCK_BYTES;
        let mut pages: Vec<PageRead> = Vec::new();
        for block in block..block + count {
            let Some((line, page)) = self.ftl.locate(block) else {
                continue;
            };
            match pages
                .iter_mut()
                .find(|read| read.line == line && read.page == page)
            {
                Some(read) => read.slots += 1,
                None => pages.push(PageRead {
                    command: id,
                    line,
                    page,
                    slots: 1,
                    behind: 0,
                }),
            }
        }
        self.set_left(id, pages.len() as u64);
        if pages.is_empty() {
            return self.answer_read(now, id);
        }
        for mut read in pages {
            let die = self.ftl.die_of(read.line);
            if self.in_order {
                read.behind = self.dies[die].begun + self.dies[die].programs.len() as u64;
            }
            self.dies[die].reads.push_back(read);
            self.suspend(now, die);
            self.go_on(now, die);
        }
    }

    fn answer_read(&mut self, now: u64, id: u64) {
        let Some(Ask::Read { count, .. }) = self.commands[id as usize]
            .as_ref()
            .map(|command| command.ask)
        else {
            return;
        };
        let bytes = count * BLOCK_BYTES;
        self.link_read_until = self.link_read_until.max(now)
            + transfer_ns(bytes, self.timings.link_read_bytes_per_second.value);
        self.wakes.push((self.link_read_until, Wake::End(id)));
    }

    /// Puts blocks of waiting writes into the buffer, as far as there is room.
    fn enter(&mut self, now: u64) {
        while let Some(id) = self.entering.front().copied() {
            let Some(Command {
                ask: Ask::Write { block, count },
                left,
            }) = self.commands[id as usize].clone()
            else {
                return;
            };
            if left == 0 {
                self.entering.pop_front();
                self.end(id);
                continue;
            }
            if self.buffered >= self.buffer_blocks {
                return;
            }
            let Ok(filled) = self.ftl.write(block + count - left) else {
                return self.go_on_all(now);
            };
            self.buffered += 1;
            self.set_left(id, left - 1);
            if let Some(line) = filled {
                self.queue_line(now, line);
            }
        }
    }

    fn queue_line(&mut self, now: u64, mut line: Line) {
        if !line.moved {
            line.sequence = self.next_line;
            self.next_line += 1;
            self.unprogrammed.insert(line.sequence);
        }
        let queue = if line.moved {
            &mut self.dies[line.die].moves
        } else {
            &mut self.dies[line.die].programs
        };
        queue.push_back(line);
        self.go_on(now, line.die);
    }

    fn end_flushes(&mut self) {
        let oldest = self.unprogrammed.first().copied().unwrap_or(u64::MAX);
        while let Some((id, _)) = self
            .flushing
            .first()
            .copied()
            .filter(|(_, below)| *below <= oldest)
        {
            self.flushing.remove(0);
            self.end(id);
        }
    }

    /// Suspends the running program for a new read, if possible.
    fn suspend(&mut self, now: u64, number: usize) {
        let wait = self.timings.program_suspend_ns.value;
        let die = &mut self.dies[number];
        if let Some(Doing::Program(line)) = die.doing
            && self.suspend
            && die.suspended.is_none()
            && die.ends_ns > now + wait
            && die.reads_ahead < READS_AHEAD
        {
            die.suspended = Some((line, die.ends_ns - now));
            die.number += 1;
            die.ends_ns = now + wait;
            die.doing = Some(Doing::Pause);
            self.counters.suspensions += 1;
            self.wakes
                .push((now + wait, Wake::Die(number as u32, die.number)));
        }
    }

    fn go_on_all(&mut self, now: u64) {
        (0..self.dies.len()).for_each(|die| self.go_on(now, die));
    }

    /// Starts the next operation of an idle die.
    fn go_on(&mut self, now: u64, number: usize) {
        while self.dies[number].doing.is_none() {
            let Some((doing, ends)) = self.choose(now, number) else {
                return;
            };
            if ends == now && matches!(doing, Doing::Erase) {
                self.erased(number);
                continue;
            }
            let die = &mut self.dies[number];
            die.doing = Some(doing);
            die.ends_ns = ends;
            die.number += 1;
            self.wakes
                .push((ends, Wake::Die(number as u32, die.number)));
        }
    }

    /// Next operation of a die, and its end time.
    fn choose(&mut self, now: u64, number: usize) -> Option<(Doing, u64)> {
        let collection = self.ftl.collection(number, COLLECT_BELOW);
        let free = self.ftl.free_blocks(number);
        let die = &mut self.dies[number];
        let collects = collection != Collection::Nothing || !die.moves.is_empty();
        let others_wait = collects || !die.programs.is_empty() || die.suspended.is_some();
        let may_read = die
            .reads
            .front()
            .is_some_and(|read| read.behind <= die.begun);
        if may_read && (die.reads_ahead < READS_AHEAD || self.in_order || !others_wait) {
            let read = die.reads.pop_front()?;
            die.reads_ahead += 1;
            let ends = self.read_ends(now, number, read.page, read.slots);
            return Some((Doing::Read(read), ends));
        }
        die.reads_ahead = 0;
        if let Some((line, left)) = die.suspended.take() {
            return Some((Doing::Program(line), now + left));
        }
        die.collect_next = !die.collect_next;
        if collects && (free <= COLLECT_FIRST || die.programs.is_empty() || die.collect_next) {
            if let Some(line) = die.moves.pop_front() {
                return Some((Doing::Program(line), self.program_ends(now, &line)));
            }
            return match collection {
                Collection::Read { page, slots, .. } => Some((
                    Doing::CollectRead,
                    self.read_ends(now, number, page, slots as u64),
                )),
                Collection::Erase => Some((Doing::Erase, now + self.erase_ns(number))),
                Collection::Nothing => None,
            };
        }
        let line = die.programs.pop_front()?;
        die.begun += 1;
        Some((Doing::Program(line), self.program_ends(now, &line)))
    }

    fn erase_ns(&mut self, die: usize) -> u64 {
        self.dies[die].erases += 1;
        // Dies do not have their long erases at the same time.
        let whole = (self.dies[die].erases
            + die as u64 * self.erase_every / self.dies.len() as u64)
            .is_multiple_of(self.erase_every);
        if whole {
            self.timings.erase_ns.value
        } else {
            0
        }
    }

    fn read_ends(&mut self, now: u64, die: usize, page: usize, slots: u64) -> u64 {
        let read = now + self.timings.read_page_ns.value[page % 3];
        let rate = self.timings.channel_bytes_per_second.value;
        let page_ns = transfer_ns(self.timings.page_bytes.value, rate);
        let at = self.channel_of(die);
        let channel = &mut self.channels[at];
        let begin = channel.reads_until.max(read);
        // Of a program's data only the page being transferred goes first.
        let begin = begin + (channel.all_until.saturating_sub(begin)) % page_ns;
        let ends = begin + transfer_ns(slots * BLOCK_BYTES, rate);
        channel.reads_until = ends;
        channel.all_until = channel.all_until.max(begin) + (ends - begin);
        ends
    }

    fn program_ends(&mut self, now: u64, line: &Line) -> u64 {
        let bytes = self.ftl.shape().line_slots as u64 * BLOCK_BYTES;
        let transfer = transfer_ns(bytes, self.timings.channel_bytes_per_second.value);
        let at = self.channel_of(line.die);
        let channel = &mut self.channels[at];
        channel.all_until = channel.all_until.max(now) + transfer;
        let (mean, spread) = (
            self.timings.program_word_line_ns.value,
            self.timings.program_spread_per_mille.value,
        );
        let off = mean * spread / 1000;
        let place = line.number % (self.ftl.shape().block_lines * self.erase_every as usize);
        channel.all_until + mean - off + mix(place as u64) % (2 * off + 1)
    }

    fn channel_of(&self, die: usize) -> usize {
        die % self.channels.len()
    }

    fn die_done(&mut self, now: u64, number: usize) {
        match self.dies[number].doing.take() {
            Some(Doing::Read(read)) => {
                if let Some(command) = &mut self.commands[read.command as usize] {
                    command.left -= 1;
                    if command.left == 0 {
                        self.answer_read(now, read.command);
                    }
                }
            }
            Some(Doing::Program(line)) => {
                self.programmed(&line);
                self.end_flushes();
            }
            Some(Doing::CollectRead) => self.collected(now, number),
            Some(Doing::Erase) => self.erased(number),
            Some(Doing::Pause) | None => {}
        }
        self.enter(now);
        self.go_on(now, number);
    }

    fn programmed(&mut self, line: &Line) {
        self.ftl.programmed(line);
        let slots = self.ftl.shape().line_slots as u64;
        self.counters.programmed_bytes += slots * BLOCK_BYTES;
        if !line.moved {
            self.unprogrammed.remove(&line.sequence);
            self.buffered = self.buffered.saturating_sub(slots);
        }
    }

    fn collected(&mut self, now: u64, die: usize) {
        let mut filled = Vec::new();
        self.ftl.collected(die, &mut filled);
        filled
            .into_iter()
            .for_each(|line| self.queue_line(now, line));
    }

    fn erased(&mut self, die: usize) {
        self.ftl.erased(die);
        self.counters.erases += 1;
    }

    /// One line for diagnosis.
    pub fn describe(&self) -> String {
        let die = |die: &DieQueue| {
            format!(
                "{}/{}/{}",
                die.reads.len(),
                die.programs.len(),
                die.moves.len()
            )
        };
        let dies: Vec<String> = self
            .dies
            .iter()
            .enumerate()
            .map(|(at, of)| format!("{} free {}", die(of), self.ftl.free_blocks(at)))
            .collect();
        format!(
            "buffered {} of {}, entering {}, dies (reads/programs/moves) {}",
            self.buffered,
            self.buffer_blocks,
            self.entering.len(),
            dies.join(", ")
        )
    }

    /// True if it is idle.
    pub fn is_idle(&self) -> bool {
        self.free.len() == self.commands.len() && self.dies.iter().all(|die| die.doing.is_none())
    }

    /// Performs a command at once, outside virtual time.
    ///
    /// # Panics
    /// If commands are in flight.
    pub fn do_now(&mut self, ask: Ask) {
        assert!(
            self.is_idle(),
            "commands outside time while others are in flight"
        );
        match ask {
            Ask::Write { block, count } => {
                self.counters.written_bytes += count * BLOCK_BYTES;
                (block..block + count).for_each(|block| self.write_now(block));
            }
            Ask::Discard { block, count } => {
                (block..block + count).for_each(|block| self.ftl.forget(block))
            }
            Ask::Flush => self.counters.flushes += 1,
            Ask::Read { count, .. } => self.counters.read_bytes += count * BLOCK_BYTES,
        }
    }

    fn write_now(&mut self, block: u64) {
        loop {
            match self.ftl.write(block) {
                Ok(filled) => {
                    self.buffered += 1;
                    if let Some(line) = filled {
                        self.programmed(&line);
                        self.collect_now(line.die);
                    }
                    return;
                }
                Err(_) => (0..self.dies.len()).for_each(|die| self.collect_now(die)),
            }
        }
    }

    /// Collects until a die has enough free blocks.
    fn collect_now(&mut self, die: usize) {
        loop {
            match self.ftl.collection(die, COLLECT_BELOW) {
                Collection::Nothing => return,
                Collection::Erase => self.erased(die),
                Collection::Read { .. } => {
                    let mut filled = Vec::new();
                    self.ftl.collected(die, &mut filled);
                    filled.iter().for_each(|line| self.programmed(line));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;

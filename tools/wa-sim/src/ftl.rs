//! Flash translation layer of a modelled SSD: page-mapped, greedy garbage collection for each
//! die.
//!
//! A slot is 4 KiB. Slots of a **word line** (all planes, all pages of its cells) are programmed
//! together; word lines make up **blocks**, which are erased as a whole; each die has blocks of its
//! own.
//!
//! - A host write takes the next slot of the one word line that is being filled; when it is full,
//!   the next die follows. The last free block of a die is for garbage collection alone.
//! - Garbage collection of a die empties the block with the fewest live slots: its pages are read
//!   one after the other, and their live slots move to a word line of the same die. The empty block
//!   is then erased.
//! - A slot counts as written as soon as it is assigned: until its word line is programmed, its
//!   data is in the protected buffer.
//!
//! Invariants (`self_check`): the map and the owners of slots agree; `live` of a block counts the
//! slots that the map points to.

/// No slot, no owner.
const NONE: u32 = u32::MAX;

/// Sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Number of dies.
    pub dies: usize,
    /// Slots of a word line.
    pub line_slots: usize,
    /// Slots returned by one read: those of one page on all planes.
    pub page_slots: usize,
    /// Word lines of a block.
    pub block_lines: usize,
    /// Blocks of a die.
    pub die_blocks: usize,
    /// Blocks of 4 KiB that users see.
    pub usable: u64,
}

impl Shape {
    /// Slots of a block.
    pub fn block_slots(&self) -> usize {
        self.block_lines * self.line_slots
    }
}

/// A word line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line {
    /// Its die.
    pub die: usize,
    /// Its number in the whole drive.
    pub number: usize,
    /// True if garbage collection fills it.
    pub moved: bool,
    /// Sequence number for the caller, assigned when the line was full.
    pub sequence: u64,
}

/// A word line being filled.
#[derive(Clone, Copy, Debug)]
struct Filling {
    line: Line,
    slots: usize,
}

/// A block whose word lines are being assigned.
#[derive(Clone, Copy, Debug)]
struct OpenBlock {
    block: usize,
    lines: usize,
}

/// A block being emptied.
#[derive(Clone, Copy, Debug)]
struct Victim {
    block: usize,
    page: usize,
}

#[derive(Clone, Debug, Default)]
struct Die {
    free: Vec<usize>,
    host: Option<OpenBlock>,
    moves: Option<OpenBlock>,
    moving: Option<Filling>,
    victim: Option<Victim>,
}

/// Next step of a die's garbage collection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Collection {
    /// Nothing can be gained, or is needed.
    Nothing,
    /// Read this page (a word line and its page number), then call [`Ftl::collected`].
    Read {
        /// The word line.
        line: usize,
        /// Page number in the word line.
        page: usize,
        /// Live slots in it.
        slots: usize,
    },
    /// Erase the victim, then call [`Ftl::erased`].
    Erase,
}

/// The tables.
#[derive(Clone, Debug)]
pub struct Ftl {
    shape: Shape,
    map: Vec<u32>,
    owner: Vec<u32>,
    live: Vec<u32>,
    programmed: Vec<bool>,
    dies: Vec<Die>,
    filling: Option<Filling>,
    next_die: usize,
    erases: u64,
}

impl Ftl {
    /// A fresh drive.
    pub fn new(shape: Shape) -> Self {
        let blocks = shape.dies * shape.die_blocks;
        let die = |die: usize| Die {
            free: (die * shape.die_blocks..(die + 1) * shape.die_blocks)
                .rev()
                .collect(),
            ..Die::default()
        };
        Self {
            map: vec![NONE; shape.usable as usize],
            owner: vec![NONE; blocks * shape.block_slots()],
            live: vec![0; blocks],
            programmed: vec![false; blocks * shape.block_lines],
            dies: (0..shape.dies).map(die).collect(),
            filling: None,
            next_die: 0,
            erases: 0,
            shape,
        }
    }

    /// Sizes.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Number of blocks erased.
    pub fn erases(&self) -> u64 {
        self.erases
    }

    /// Number of free blocks of a die.
    pub fn free_blocks(&self, die: usize) -> usize {
        self.dies[die].free.len()
    }

    /// Word line and page of a block. `None`: not stored, or in the buffer.
    pub fn locate(&self, block: u64) -> Option<(usize, usize)> {
        let slot = self.map[block as usize];
        let line = slot as usize / self.shape.line_slots;
        (slot != NONE && self.programmed[line]).then(|| {
            (
                line,
                slot as usize % self.shape.line_slots / self.shape.page_slots,
            )
        })
    }

    /// The die of a word line.
    pub fn die_of(&self, line: usize) -> usize {
        line / (self.shape.die_blocks * self.shape.block_lines)
    }

    /// Writes a block: `Err` if no die has room now, else the word line that it completed, if any.
    pub fn write(&mut self, block: u64) -> Result<Option<Line>, Full> {
        let mut filling = match self.filling {
            Some(filling) => filling,
            None => Filling {
                line: self.next_line().ok_or(Full)?,
                slots: 0,
            },
        };
        let full = self.take(block as u32, &mut filling);
        self.filling = (!full).then_some(filling);
        Ok(full.then_some(filling.line))
    }

    /// Closes the word line that is being filled: it is programmed partly filled.
    pub fn pad(&mut self) -> Option<Line> {
        self.filling.take().map(|filling| filling.line)
    }

    /// Puts a block into the next slot of a word line; true if that was the last one.
    fn take(&mut self, block: u32, filling: &mut Filling) -> bool {
        let slot = filling.line.number * self.shape.line_slots + filling.slots;
        self.forget(u64::from(block));
        self.map[block as usize] = slot as u32;
        self.owner[slot] = block;
        self.live[slot / self.shape.block_slots()] += 1;
        filling.slots += 1;
        filling.slots == self.shape.line_slots
    }

    /// Drops the content of the block.
    pub fn forget(&mut self, block: u64) {
        let slot = std::mem::replace(&mut self.map[block as usize], NONE);
        if slot != NONE {
            self.owner[slot as usize] = NONE;
            self.live[slot as usize / self.shape.block_slots()] -= 1;
        }
    }

    /// Next word line for host writes, of the next die that has one.
    fn next_line(&mut self) -> Option<Line> {
        for _ in 0..self.shape.dies {
            let number = self.next_die;
            self.next_die = (number + 1) % self.shape.dies;
            let die = &mut self.dies[number];
            if die.host.is_none() && die.free.len() > 1 {
                die.host = die.free.pop().map(|block| OpenBlock { block, lines: 0 });
            }
            if let Some(line) = next_of(&mut die.host, self.shape.block_lines) {
                return Some(Line {
                    die: number,
                    number: line,
                    moved: false,
                    sequence: 0,
                });
            }
        }
        None
    }

    /// Records that a word line has been programmed.
    pub fn programmed(&mut self, line: &Line) {
        self.programmed[line.number] = true;
    }

    /// Next collection step: a page of the victim, its erase, or nothing. The call changes nothing
    /// but the choice of a victim, which requires at most `below` free blocks on the die.
    pub fn collection(&mut self, die: usize, below: usize) -> Collection {
        if self.dies[die].victim.is_none() {
            if self.dies[die].free.len() > below {
                return Collection::Nothing;
            }
            let Some(block) = self.fewest_live(die) else {
                return Collection::Nothing;
            };
            self.dies[die].victim = Some(Victim { block, page: 0 });
        }
        let Some(victim) = &mut self.dies[die].victim else {
            return Collection::Nothing;
        };
        let pages = self.shape.line_slots / self.shape.page_slots;
        while victim.page < self.shape.block_lines * pages {
            let (line, page) = (
                victim.block * self.shape.block_lines + victim.page / pages,
                victim.page % pages,
            );
            let first = line * self.shape.line_slots + page * self.shape.page_slots;
            let slots = self.owner[first..first + self.shape.page_slots]
                .iter()
                .filter(|owner| **owner != NONE)
                .count();
            if slots > 0 {
                return Collection::Read { line, page, slots };
            }
            victim.page += 1;
        }
        Collection::Erase
    }

    /// Closed block of a die with the fewest live slots, if emptying it gains anything.
    fn fewest_live(&self, number: usize) -> Option<usize> {
        let die = &self.dies[number];
        let lines = self.shape.block_lines;
        let is_open = |block: usize| {
            [die.host, die.moves]
                .iter()
                .flatten()
                .any(|open| open.block == block)
        };
        // Free blocks have nothing programmed; of the others the last word line is programmed last.
        let closed = (number * self.shape.die_blocks..(number + 1) * self.shape.die_blocks).filter(
            |block| {
                !is_open(*block)
                    && self.programmed[block * lines..(block + 1) * lines]
                        .iter()
                        .all(|programmed| *programmed)
            },
        );
        let best = closed.min_by_key(|block| self.live[*block])?;
        ((self.live[best] as usize) < self.shape.block_slots()).then_some(best)
    }

    /// Moves the live slots of the page named by [`Ftl::collection`], which has been read.
    /// Completed word lines are added to `filled`.
    pub fn collected(&mut self, die: usize, filled: &mut Vec<Line>) {
        let Some(victim) = self.dies[die].victim else {
            return;
        };
        let first = victim.block * self.shape.block_slots() + victim.page * self.shape.page_slots;
        for slot in first..first + self.shape.page_slots {
            let owner = self.owner[slot];
            if owner == NONE {
                continue;
            }
            let filling = self.dies[die].moving.or_else(|| {
                let state = &mut self.dies[die];
                if state.moves.is_none() {
                    state.moves = state.free.pop().map(|block| OpenBlock { block, lines: 0 });
                }
                let line = next_of(&mut state.moves, self.shape.block_lines)?;
                Some(Filling {
                    line: Line {
                        die,
                        number: line,
                        moved: true,
                        sequence: 0,
                    },
                    slots: 0,
                })
            });
            let Some(mut filling) = filling else {
                unreachable!("one block of each die is kept for garbage collection")
            };
            let full = self.take(owner, &mut filling);
            if full {
                filled.push(filling.line);
            }
            self.dies[die].moving = (!full).then_some(filling);
        }
        if let Some(victim) = &mut self.dies[die].victim {
            victim.page += 1;
        }
    }

    /// Records that the victim has been erased.
    pub fn erased(&mut self, die: usize) {
        let Some(victim) = self.dies[die].victim.take() else {
            return;
        };
        let lines = self.shape.block_lines;
        self.programmed[victim.block * lines..(victim.block + 1) * lines].fill(false);
        self.dies[die].free.insert(0, victim.block);
        self.erases += 1;
    }

    /// Compares the tables with each other.
    pub fn self_check(&self) -> Result<(), String> {
        let mut live = vec![0; self.live.len()];
        for (block, slot) in self
            .map
            .iter()
            .enumerate()
            .filter(|(_, slot)| **slot != NONE)
        {
            live[*slot as usize / self.shape.block_slots()] += 1;
            if self.owner[*slot as usize] != block as u32 {
                return Err(format!(
                    "block {block} is in slot {slot}, which belongs to {}",
                    self.owner[*slot as usize]
                ));
            }
        }
        let owned = self.owner.iter().filter(|owner| **owner != NONE).count();
        let mapped: u32 = live.iter().sum();
        if live != self.live || owned != mapped as usize {
            return Err(format!(
                "{mapped} blocks are mapped, {owned} slots are owned, counts {}",
                if live == self.live { "agree" } else { "differ" }
            ));
        }
        Ok(())
    }
}

/// No die has room for a host write: garbage collection must proceed first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

fn next_of(open: &mut Option<OpenBlock>, block_lines: usize) -> Option<usize> {
    let state = open.as_mut()?;
    let line = state.block * block_lines + state.lines;
    state.lines += 1;
    if state.lines == block_lines {
        *open = None;
    }
    Some(line)
}

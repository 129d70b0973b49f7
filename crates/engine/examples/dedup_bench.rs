//! How many duplicates the index of deduplication finds when memory knows next to nothing of what is stored: several copies of the image of a machine, with changes between.
//!
//! 1 The image: a file (of a file system made with `mkfs`), or else generated: files of 1 to 2048 blocks, most of them small, one in twenty like another one. 2 It is written, from its begin to its end, then copies
//! of it. In each copy 2 % of the blocks are new, in runs of 1 to 8, and 2 % of the pieces of 256 blocks have changed places. 3 The pool is started again, and one more copy is written.
//!
//! Found: share of the blocks that were written before, anywhere, that became references. The memory of the index is that part of the unique data which 64 MiB are of 64 GiB. Nothing here depends on time.
//! `cargo run --release -p windrow-engine --example dedup_bench [copies] [image]`

use std::collections::{HashMap, HashSet};
use windrow_engine::*;
use windrow_io::*;
use windrow_layout::checkpoint::Dedup;
use windrow_layout::superblock::Properties;
use windrow_units::{BLOCK_SIZE, MemberId, Redundancy, Uuid, VolumeId};

const MEMBERS: usize = 5;
/// Blocks of a request, and requests at a time.
const RUN: usize = 16;
const DEPTH: usize = 8;
/// Memory of the index to unique data.
const PART: usize = 1024;
/// Blocks of the generated image: 256 MiB.
const GENERATED: usize = 65_536;

/// Members that take memory for what was written alone.
struct Stores {
    bytes: u64,
    blocks: Vec<HashMap<u64, Box<[u8]>>>,
}

impl MemberIo for Stores {
    fn member_count(&self) -> usize {
        self.blocks.len()
    }
    fn is_present(&self, _: MemberId) -> bool {
        true
    }
    fn size(&self, _: MemberId) -> u64 {
        self.bytes
    }
    fn read(&mut self, member: MemberId, offset: u64, buf: &mut [u8]) -> Result<(), MemberError> {
        for (at, target) in (offset / BLOCK_SIZE as u64..).zip(buf.chunks_mut(BLOCK_SIZE)) {
            match self.blocks[member.index()].get(&at) {
                Some(block) => target.copy_from_slice(&block[..target.len()]),
                None => target.fill(0),
            }
        }
        Ok(())
    }
    fn write(&mut self, member: MemberId, offset: u64, buf: &[u8]) -> Result<(), MemberError> {
        for (at, source) in (offset / BLOCK_SIZE as u64..).zip(buf.chunks(BLOCK_SIZE)) {
            self.blocks[member.index()].insert(at, source.into());
        }
        Ok(())
    }
    fn flush(&mut self, _: MemberId) -> Result<(), MemberError> {
        Ok(())
    }
}

struct Driver {
    engine: Engine,
    io: Stores,
    options: OpenOptions,
    events: Vec<Event>,
    out: Outbox,
    control: Vec<ControlCompletion>,
    now_ns: u64,
}

impl Driver {
    fn new(member_bytes: u64, index_bytes: u64) -> Self {
        let spec = PoolSpec {
            name: "bench".into(),
            redundancy: Redundancy::Single,
            chunk_rows: None,
            segment_rows: None,
            align_bytes: 4096,
            pool: Uuid([9; 16]),
            members: (0..MEMBERS as u8).map(|i| (Uuid([i; 16]), member_bytes)).collect(),
            created_unix_s: 0,
            journal: None,
            properties: Properties { spare_per_mille: 100, ..Properties::DEFAULT },
        };
        let mut io = Stores { bytes: member_bytes, blocks: vec![HashMap::new(); MEMBERS] };
        Engine::format(&mut io, &spec).expect("format");
        let limits = Limits { index_bytes, ..Limits::default() };
        let options = OpenOptions { host: Uuid([1; 16]), read_only: false, force: false, discard_journal: false, limits };
        let (engine, _) = Engine::open(&mut io, BufPool::new(256 << 20), &options).expect("open");
        Self { engine, io, options, events: Vec::new(), out: Outbox::default(), control: Vec::new(), now_ns: 1 }
    }

    fn restart(&mut self) {
        let (engine, _) = Engine::open(&mut self.io, BufPool::new(256 << 20), &self.options).expect("open");
        (self.engine, self.out) = (engine, Outbox::default());
        self.pass();
    }

    /// Gives time to what goes on in the background.
    fn pass(&mut self) {
        for _ in 0..200 {
            self.now_ns += 50_000_000;
            self.events.push(Event::Tick(self.now_ns));
            self.settle();
        }
    }

    fn settle(&mut self) {
        while !self.events.is_empty() {
            self.engine.apply(&mut self.events, &mut self.out);
            for MemberCommand { member, tag, op } in self.out.commands.drain(..) {
                let buf = match op {
                    MemberOp::Read { offset, mut buf } => self.io.read(member, offset, &mut buf).map(|()| Some(buf)),
                    MemberOp::Write { offset, buf } => self.io.write(member, offset, &buf).map(|()| Some(buf)),
                    MemberOp::Flush | MemberOp::Discard { .. } => Ok(None),
                };
                self.events.push(Event::Member(MemberDone { member, tag, buf: buf.expect("stores do not fail"), result: Ok(()) }));
            }
            for mut job in self.out.jobs.drain(..) {
                job.run();
                self.events.push(Event::Job(job));
            }
            assert!(self.out.completions.drain(..).all(|completion| completion.result.is_ok()), "a write failed");
            self.control.append(&mut self.out.control);
        }
    }

    fn command(&mut self, command: Control) -> ControlReply {
        self.events.push(Event::Control(ControlRequest { id: ControlId(1), command }));
        self.settle();
        self.control.pop().expect("an answer").result.expect("done")
    }
}

fn xorshift(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

/// A block of an image: of the file, or generated from its number.
#[derive(Clone, Copy)]
enum Block {
    OfFile(usize),
    Made(u64),
}

fn bytes_of(block: Block, file: &[u8], target: &mut [u8]) {
    match block {
        Block::OfFile(at) => target.copy_from_slice(&file[at * BLOCK_SIZE..][..BLOCK_SIZE]),
        Block::Made(number) => {
            let mut random = xorshift(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
            target.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&random().to_le_bytes()));
            target[..8].copy_from_slice(&(number + 1).to_le_bytes());
        }
    }
}

/// The first image, as blocks.
fn generated(blocks: usize, random: &mut impl FnMut() -> u64) -> Vec<Block> {
    let mut image: Vec<Block> = Vec::with_capacity(blocks);
    let mut files: Vec<(usize, usize)> = Vec::new();
    while image.len() < blocks {
        let length = 1usize << (random() % 12).min(random() % 12);
        if !files.is_empty() && random().is_multiple_of(20) {
            let (first, length) = files[random() as usize % files.len()];
            image.extend_from_within(first..first + length);
            continue;
        }
        files.push((image.len(), length));
        image.extend((0..length).map(|_| Block::Made(random() >> 1)));
    }
    image.truncate(blocks);
    image
}

/// What has become of an image.
fn change(image: &mut [Block], random: &mut impl FnMut() -> u64) {
    let (mut changed, wanted) = (0, image.len() / 50);
    while changed < wanted {
        let (at, run) = (random() as usize % image.len(), 1 + random() as usize % 8);
        let end = (at + run).min(image.len());
        image[at..end].fill_with(|| Block::Made(random() >> 1));
        changed += end - at;
    }
    let pieces = image.len() / 256;
    for _ in 0..pieces / 100 {
        let (a, b) = (random() as usize % pieces * 256, random() as usize % pieces * 256);
        (0..256).for_each(|i| image.swap(a + i, b + i));
    }
}

/// Writes an image; gives the blocks that were there before, and those that were found.
fn write(driver: &mut Driver, volume: VolumeId, image: &[Block], file: &[u8], known: &mut HashSet<u128>) -> (u64, u64) {
    let before = driver.engine.status().dedup.sums.found;
    let mut duplicates = 0;
    let mut bytes = vec![0; RUN * BLOCK_SIZE];
    for (number, run) in image.chunks(RUN).enumerate() {
        for (block, target) in run.iter().zip(bytes.chunks_exact_mut(BLOCK_SIZE)) {
            bytes_of(*block, file, target);
            let is_data = target.iter().any(|byte| *byte != target[0]) || ![0, 0xff].contains(&target[0]);
            duplicates += u64::from(is_data && !known.insert(windrow_reduce::Print::Fast.of(target)));
        }
        let (offset, data) = ((number * RUN * BLOCK_SIZE) as u64, Payload::copy_of(&bytes[..run.len() * BLOCK_SIZE]));
        driver.events.push(Event::Request(Request { id: RequestId(0), volume, op: Op::Write { offset, data, fua: false } }));
        if number % DEPTH == DEPTH - 1 {
            driver.settle();
        }
    }
    driver.events.push(Event::Request(Request { id: RequestId(0), volume, op: Op::Flush }));
    driver.settle();
    driver.pass();
    (duplicates, driver.engine.status().dedup.sums.found - before)
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let copies: u64 = arguments.next().map_or(4, |number| number.parse().expect("a number of copies"));
    let file = arguments.next().map_or(Vec::new(), |path| std::fs::read(path).expect("an image"));
    let mut random = xorshift(0x9e37_79b9_7f4a_7c15);
    let from_file = || (0..file.len() / BLOCK_SIZE).map(Block::OfFile).collect();
    let mut image: Vec<Block> = if file.is_empty() { generated(GENERATED, &mut random) } else { from_file() };
    let zeroes = |block: &&Block| matches!(block, Block::OfFile(at) if file[at * BLOCK_SIZE..][..BLOCK_SIZE].iter().all(|byte| *byte == 0));
    let stored = image.len() - image.iter().filter(zeroes).count();
    let index_bytes = (stored * BLOCK_SIZE / PART) as u64;
    let image_bytes = (image.len() * BLOCK_SIZE) as u64;
    let mut driver = Driver::new((image_bytes * (copies + 3) / (MEMBERS as u64 - 1)).next_multiple_of(1 << 20) + (64 << 20), index_bytes);
    println!("image: {} MiB, {} MiB of it not zeroes; memory of the index: {} KiB", image_bytes >> 20, (stored * BLOCK_SIZE) >> 20, index_bytes >> 10);
    let mut known = HashSet::new();
    for copy in 0..=copies + 1 {
        let what = if copy == copies + 1 { "after a start" } else { "" };
        if copy == copies + 1 {
            driver.restart();
        }
        if copy > 0 {
            change(&mut image, &mut random);
        }
        let name = format!("copy{copy}");
        let ControlReply::Volume(volume) = driver.command(Control::VolumeCreate { name, size_bytes: image_bytes }) else { panic!("no volume") };
        driver.command(Control::VolumeDedup { volume, dedup: Dedup::Hash });
        let read = driver.engine.status().dedup.sums.pages_read;
        let (duplicates, found) = write(&mut driver, volume, &image, &file, &mut known);
        let status = driver.engine.status().dedup;
        let share = found as f64 * 100.0 / duplicates.max(1) as f64;
        let reads = (status.sums.pages_read - read) as f64 / found.max(1) as f64;
        println!(
            "copy {copy}: {duplicates} duplicates, {share:.1} % found, {reads:.4} pages read for each; unique {} MiB, index {} KiB of memory ({} entries, {} hooks), {} pages {what}",
            status.unique_bytes >> 20,
            status.index_bytes >> 10,
            status.index_entries_max,
            status.index_hooks,
            status.index_pages,
        );
    }
}

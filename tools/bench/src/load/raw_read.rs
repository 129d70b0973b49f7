//! Random reads of the members themselves: a number of reads in flight over all of them, without
//! the page cache, through the queue that the pool uses. Completions are handled in groups, as in
//! the pool: a member that completes its reads in a burst gets new ones before all are handled.

use std::time::{Duration, Instant};
use windrow_device::queue::{self, Members, Queue, QueueOptions, Reap};
use windrow_host::failure::{Failure, id};
use windrow_io::{Buf, IoTag, MemberCommand, MemberOp};
use windrow_load::random::Random;
use windrow_load::session::LoadResult;
use windrow_types::MemberId;

/// Parameters of the reads.
#[derive(Clone, Copy, Debug)]
pub struct RawReadSpec {
    /// Length and alignment of the reads.
    pub block_bytes: u32,
    /// Number of reads in flight over all members.
    pub depth: usize,
    /// Duration.
    pub time: Duration,
    /// Seed.
    pub seed: u64,
    /// Read every byte, as any user of the data does: that alone takes memory bandwidth.
    pub look: bool,
}

/// Number of completed reads that are handled, and of new ones that are started, in a group.
const GROUP_READS: usize = 4;

/// Reads at random addresses of all members.
///
/// # Errors
/// A member fails, or is smaller than one read.
pub fn measure(members: &Members, spec: &RawReadSpec) -> Result<LoadResult, Failure> {
    let failure = |error: &dyn std::fmt::Display| {
        Failure::new(id::MEMBER_IO, "cannot read the members", error)
    };
    let (mut submitter, mut reaper) =
        queue::open(members.clone(), &QueueOptions::default()).map_err(|error| failure(&error))?;
    let block = u64::from(spec.block_bytes);
    let blocks: Vec<u64> = members
        .iter()
        .map(|member| {
            member
                .as_ref()
                .map_or(0, |member| member.info().size_bytes / block)
        })
        .collect();
    if blocks.contains(&0) || blocks.is_empty() {
        return Err(failure(&"a member is smaller than one read"));
    }
    let mut random = Random::new(spec.seed);
    let mut read = |slot: usize, buf: Buf| {
        let member = random.below(blocks.len() as u64) as usize;
        let offset = random.below(blocks[member]) * block;
        MemberCommand {
            member: MemberId(member as u8),
            tag: IoTag(slot as u64),
            op: MemberOp::Read { offset, buf },
        }
    };
    let (mut commands, mut done) = (Vec::new(), Vec::new());
    let begin = Instant::now();
    let mut starts = vec![Duration::ZERO; spec.depth];
    let mut result = LoadResult::default();
    commands
        .extend((0..spec.depth).map(|slot| read(slot, Buf::unpooled(spec.block_bytes as usize))));
    let mut in_flight = commands.len();
    submitter.submit(&mut commands, &mut done);
    while in_flight > 0 {
        if done.is_empty() {
            reaper.wait(&mut done).map_err(|error| failure(&error))?;
        }
        let now = begin.elapsed();
        let group = done.len().min(GROUP_READS);
        for end in done.drain(..group) {
            let slot = end.tag.0 as usize;
            end.result.map_err(|error| failure(&error))?;
            in_flight -= 1;
            if let Some(buf) = end.buf.as_ref().filter(|_| spec.look) {
                std::hint::black_box(
                    buf.as_chunks::<8>()
                        .0
                        .iter()
                        .fold(0u64, |sum, word| sum ^ u64::from_ne_bytes(*word)),
                );
            }
            result.requests += 1;
            result.bytes += block;
            result
                .latency
                .record((now - starts[slot]).as_nanos() as u64);
            if let Some(buf) = end.buf.filter(|_| now < spec.time) {
                starts[slot] = now;
                commands.push(read(slot, buf));
                in_flight += 1;
            }
        }
        submitter.submit(&mut commands, &mut done);
    }
    result.elapsed = begin.elapsed();
    Ok(result)
}

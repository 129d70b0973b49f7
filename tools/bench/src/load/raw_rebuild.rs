//! Minimum work of a rebuild, done by the members alone: for each chunk of one member the same
//! chunk of `reads` others is read, then it is written. Without the page cache, through the queue
//! that the pool uses; the bytes are not read by the processor.

use std::time::{Duration, Instant};
use windrow_device::queue::{self, Members, Queue, QueueOptions, Reap};
use windrow_host::failure::{Failure, id};
use windrow_io::{Buf, IoTag, MemberCommand, MemberOp};
use windrow_types::MemberId;

/// Parameters.
#[derive(Clone, Copy, Debug)]
pub struct RawRebuildSpec {
    /// Member that is written; its data is lost.
    pub target: usize,
    /// Number of members read for each chunk, in turn, so that all have the same share.
    pub reads: usize,
    /// Bytes of a chunk.
    pub chunk_bytes: usize,
    /// Bytes to write to the target; at most its size.
    pub bytes: u64,
    /// Bytes at the start of each member that are not touched.
    pub begin: u64,
}

/// Number of chunks in flight.
const AHEAD: usize = 16;

struct Chunk {
    at: u64,
    left: usize,
    buf: Option<Buf>,
}

/// Runs it; returns the bytes written, and the time, including a flush of the target.
///
/// # Errors
/// A member fails.
pub fn measure(members: &Members, spec: &RawRebuildSpec) -> Result<(u64, Duration), Failure> {
    let failure = |error: &dyn std::fmt::Display| {
        Failure::new(id::MEMBER_IO, "cannot read and write the members", error)
    };
    let (mut submitter, mut reaper) =
        queue::open(members.clone(), &QueueOptions::default()).map_err(|error| failure(&error))?;
    let others: Vec<usize> = (0..members.len())
        .filter(|member| *member != spec.target)
        .collect();
    let least = members
        .iter()
        .flatten()
        .map(|member| member.info().size_bytes)
        .min()
        .unwrap_or(0);
    let count =
        (spec.bytes.min(least.saturating_sub(spec.begin)) / spec.chunk_bytes as u64) as usize;
    let (mut commands, mut done, mut idle) = (Vec::new(), Vec::new(), Vec::<Buf>::new());
    let mut chunks: Vec<Option<Chunk>> = (0..AHEAD).map(|_| None).collect();
    let (mut begun, mut ended) = (0, 0);
    let begin = Instant::now();
    while ended < count {
        for (slot, chunk) in chunks
            .iter_mut()
            .enumerate()
            .filter(|(_, chunk)| chunk.is_none())
        {
            if begun == count {
                break;
            }
            let at = spec.begin + (begun * spec.chunk_bytes) as u64;
            for turn in 0..spec.reads {
                let member = others[(begun + turn) % others.len()];
                let buf = idle
                    .pop()
                    .unwrap_or_else(|| Buf::unpooled(spec.chunk_bytes));
                commands.push(MemberCommand {
                    member: MemberId(member as u8),
                    tag: IoTag(slot as u64),
                    op: MemberOp::Read { offset: at, buf },
                });
            }
            *chunk = Some(Chunk {
                at,
                left: spec.reads,
                buf: None,
            });
            begun += 1;
        }
        submitter.submit(&mut commands, &mut done);
        if done.is_empty() {
            reaper.wait(&mut done).map_err(|error| failure(&error))?;
        }
        for end in done.drain(..) {
            end.result.map_err(|error| failure(&error))?;
            let slot = end.tag.0 as usize;
            let Some(chunk) = chunks[slot].as_mut() else {
                continue;
            };
            idle.extend(chunk.buf.take());
            if chunk.left == 0 {
                idle.extend(end.buf);
                chunks[slot] = None;
                ended += 1;
                continue;
            }
            chunk.left -= 1;
            chunk.buf = end.buf;
            if let Some(buf) = (chunk.left == 0).then(|| chunk.buf.take()).flatten() {
                let op = MemberOp::Write {
                    offset: chunk.at,
                    buf,
                };
                commands.push(MemberCommand {
                    member: MemberId(spec.target as u8),
                    tag: end.tag,
                    op,
                });
            }
        }
    }
    if let Some(target) = &members[spec.target] {
        target.flush().map_err(|error| failure(&error))?;
    }
    Ok(((count * spec.chunk_bytes) as u64, begin.elapsed()))
}

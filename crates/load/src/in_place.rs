//! Random writes of single blocks in place under two parities, measured on the members themselves:
//! each reads data and both parities, and writes them.

use super::linear::LinearResult;
use super::random::Random;
use std::time::{Duration, Instant};
use windrow_device::queue::{self, Members, Queue, QueueOptions, Reap};
use windrow_host::failure::{Failure, id};
use windrow_io::{Buf, IoTag, MemberCommand, MemberOp};
use windrow_types::MemberId;

const BLOCK: usize = 4096;
/// Writes in flight: as many as in the load that they are compared with.
const DEPTH: usize = 128;
/// Blocks of a write: data, and two parities.
const BLOCKS: usize = 3;

/// A write in flight.
#[derive(Clone, Copy)]
struct Update {
    /// The member of its data; the parities are on the two that follow.
    first: usize,
    row: u64,
    is_writing: bool,
    /// Commands that have not completed.
    left: usize,
}

/// Rewrites blocks at random for `time`. Everything on the members is lost. The result counts user
/// bytes: one block for each three that are written.
///
/// # Errors
/// A member fails, or there are fewer than three.
pub fn measure(
    members: &Members,
    time: Duration,
    seed: u64,
    progress: &mut dyn FnMut(u64),
) -> Result<LinearResult, Failure> {
    let failure = |error: &dyn std::fmt::Display| {
        Failure::new(id::MEMBER_IO, "cannot measure the members", error)
    };
    let rows = members
        .iter()
        .map(|member| {
            member
                .as_ref()
                .map_or(0, |member| member.info().size_bytes / BLOCK as u64)
        })
        .min()
        .unwrap_or(0);
    if rows == 0 || members.len() < BLOCKS {
        return Err(failure(
            &"there are too few members, or one is smaller than a block",
        ));
    }
    let (mut submitter, mut reaper) =
        queue::open(members.clone(), &QueueOptions::default()).map_err(|error| failure(&error))?;
    let mut random = Random::new(seed);
    let count = members.len();
    let mut draw = || Update {
        first: random.below(count as u64) as usize,
        row: random.below(rows),
        is_writing: false,
        left: BLOCKS,
    };
    let command = |slot: usize, update: &Update, member: usize, buf: Buf| {
        let offset = update.row * BLOCK as u64;
        let op = if update.is_writing {
            MemberOp::Write { offset, buf }
        } else {
            MemberOp::Read { offset, buf }
        };
        MemberCommand {
            member: MemberId(member as u8),
            tag: IoTag(slot as u64),
            op,
        }
    };
    let members_of = |update: &Update| [0, 1, 2].map(|at| (update.first + at) % count);
    let mut updates: Vec<Update> = (0..DEPTH).map(|_| draw()).collect();
    let mut held: Vec<Vec<Buf>> = (0..DEPTH).map(|_| Vec::with_capacity(BLOCKS)).collect();
    let (mut commands, mut done) = (Vec::new(), Vec::new());
    for (slot, update) in updates.iter().enumerate() {
        commands.extend(
            members_of(update).map(|member| command(slot, update, member, Buf::unpooled(BLOCK))),
        );
    }
    let begin = Instant::now();
    let (mut bytes, mut in_flight) = (0, commands.len());
    submitter.submit(&mut commands, &mut done);
    while in_flight > 0 {
        if done.is_empty() {
            reaper.wait(&mut done).map_err(|error| failure(&error))?;
        }
        let is_over = begin.elapsed() >= time;
        for end in done.drain(..) {
            in_flight -= 1;
            end.result.map_err(|error| failure(&error))?;
            let slot = end.tag.0 as usize;
            held[slot].extend(end.buf);
            updates[slot].left -= 1;
            if updates[slot].left > 0 {
                continue;
            }
            if updates[slot].is_writing {
                bytes += BLOCK as u64;
                if is_over {
                    continue;
                }
                updates[slot] = draw();
            } else {
                (updates[slot].is_writing, updates[slot].left) = (true, BLOCKS);
            }
            let update = updates[slot];
            commands.extend(
                members_of(&update)
                    .into_iter()
                    .zip(held[slot].drain(..))
                    .map(|(member, buf)| command(slot, &update, member, buf)),
            );
            in_flight += BLOCKS;
        }
        submitter.submit(&mut commands, &mut done);
        progress(bytes);
    }
    for member in members.iter().flatten() {
        member.flush().map_err(|error| failure(&error))?;
    }
    Ok(LinearResult {
        bytes,
        elapsed: begin.elapsed(),
    })
}

//! The members' own linear rate: all of them are written from their beginning at the same time,
//! with one write size, past the page cache.

use super::random::noise;
use std::time::{Duration, Instant};
use windrow_device::queue::{self, Members, Queue, QueueOptions, Reap};
use windrow_host::failure::{Failure, id};
use windrow_io::{Buf, IoTag, MemberCommand, MemberOp};
use windrow_types::MemberId;

/// Writes in flight on each member: about as many as the engine has there.
const DEPTH: usize = 8;

/// Result of a measurement.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinearResult {
    /// Bytes written to all members.
    pub bytes: u64,
    /// Time.
    pub elapsed: Duration,
}

impl LinearResult {
    /// Bytes per second over all members.
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

impl std::ops::AddAssign for LinearResult {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.elapsed += other.elapsed;
    }
}

/// Writes all members concurrently, `write_bytes` at a time, for `time`, starting again at their
/// ends; flushes them before the clock stops. Everything on them is lost.
///
/// # Errors
/// A member fails.
pub fn measure(
    members: &Members,
    write_bytes: usize,
    time: Duration,
    progress: &mut dyn FnMut(u64),
) -> Result<LinearResult, Failure> {
    measure_from(0, members, write_bytes, time, progress)
}

/// Measures from the position where `bytes_before`, written to all members together, would have
/// ended.
///
/// # Errors
/// A member fails.
pub fn measure_from(
    bytes_before: u64,
    members: &Members,
    write_bytes: usize,
    time: Duration,
    progress: &mut dyn FnMut(u64),
) -> Result<LinearResult, Failure> {
    let failure = |error: &dyn std::fmt::Display| {
        Failure::new(id::MEMBER_IO, "cannot measure the members", error)
    };
    let (mut submitter, mut reaper) =
        queue::open(members.clone(), &QueueOptions::default()).map_err(|error| failure(&error))?;
    let sizes: Vec<u64> = members
        .iter()
        .map(|member| {
            member.as_ref().map_or(0, |member| {
                member.info().size_bytes / write_bytes as u64 * write_bytes as u64
            })
        })
        .collect();
    if sizes.contains(&0) {
        return Err(failure(&"a member is smaller than one write"));
    }
    let source = noise(1, write_bytes);
    let first =
        bytes_before / members.len().max(1) as u64 / write_bytes as u64 * write_bytes as u64;
    let mut next = vec![first; members.len()];
    let mut write = |member: usize, buf: Buf| {
        let offset = next[member] % sizes[member];
        next[member] += write_bytes as u64;
        MemberCommand {
            member: MemberId(member as u8),
            tag: IoTag(0),
            op: MemberOp::Write { offset, buf },
        }
    };
    let (mut commands, mut done) = (Vec::new(), Vec::new());
    for member in (0..members.len()).flat_map(|member| [member; DEPTH]) {
        let mut buf = Buf::unpooled(write_bytes);
        buf.copy_from_slice(&source);
        commands.push(write(member, buf));
    }
    let begin = Instant::now();
    let (mut bytes, mut in_flight) = (0, commands.len());
    submitter.submit(&mut commands, &mut done);
    while in_flight > 0 {
        if done.is_empty() {
            reaper.wait(&mut done).map_err(|error| failure(&error))?;
        }
        let going_on = begin.elapsed() < time;
        for end in done.drain(..) {
            in_flight -= 1;
            end.result.map_err(|error| failure(&error))?;
            bytes += write_bytes as u64;
            if let Some(buf) = end.buf.filter(|_| going_on) {
                commands.push(write(end.member.index(), buf));
                in_flight += 1;
            }
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

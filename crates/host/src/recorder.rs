//! Records the requests of a volume, or of all volumes, for `windrow-lab trace record` and
//! `windrow-lab advise --live`.
//!
//! 1. An administrator starts a recording, and then repeatedly takes the recorded requests through
//!    the control socket.
//! 2. Front-ends pass requests to the recorder before they are executed. The submitting thread
//!    compares one number. Only if its volume is recorded it appends a line for each request to a
//!    buffer of fixed size. The lock is held for a few nanoseconds.
//! 3. The data path never waits: if the buffer is full or the lock is taken for long, the request
//!    is counted as missed and reported with the next lot. Two buffers are made, with all their
//!    pages touched, when a recording starts. They are swapped when a lot is taken, so that the
//!    data path neither allocates nor takes a page fault.
//! 4. A recording without an owner ends by itself: when the buffer is full and nothing was taken
//!    for half a minute. A new recording may then start.

use crate::sessions::lock;
use serde::{Deserialize, Serialize};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use windrow_io::{Op, Request};
use windrow_types::VolumeId;

/// Most requests kept until they are taken: 2 MiB, and the same again for the lot that is being
/// sent.
pub const RECORDED_MOST: usize = 1 << 16;
/// Age at which a recording from which nothing was taken counts as abandoned.
const PATIENCE_NS: u64 = 30_000_000_000;
/// Tries for the lock before the submitting thread counts the request as missed.
const TRIES: u32 = 8;
/// No volume has this number.
const NO_VOLUME: u64 = u64::MAX;
/// Stands for every volume; none has this number.
const ALL: u64 = u64::MAX - 1;

/// Kind of request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordedKind {
    /// Read.
    #[serde(rename = "r")]
    Read,
    /// Write.
    #[serde(rename = "w")]
    Write,
    /// Write with FUA.
    #[serde(rename = "wf")]
    WriteFua,
    /// Trim, or write of zeroes, which takes no space either.
    #[serde(rename = "t")]
    Trim,
    /// Flush.
    #[serde(rename = "f")]
    Flush,
}

/// One request: kind, offset and length in bytes, nanoseconds since the start of the recording,
/// volume. Serialized as a list, because there are many.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Recorded(
    pub RecordedKind,
    pub u64,
    pub u64,
    pub u64,
    #[serde(default)] pub VolumeId,
);

/// Requests recorded since the last take.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Lot {
    /// Names the recording.
    pub token: u64,
    /// Requests, in the order in which they were submitted.
    pub requests: Vec<Recorded>,
    /// Requests since the last lot that are not recorded.
    pub missed: u64,
}

#[derive(Default)]
struct Buffer {
    token: u64,
    volume: u64,
    begun_ns: u64,
    taken_ns: u64,
    requests: Vec<Recorded>,
}

/// The recorder on the path of requests.
pub(crate) struct Recorder {
    /// The volume that is recorded, or [`ALL`].
    volume: AtomicU64,
    missed: AtomicU64,
    buffer: Mutex<Buffer>,
    /// The buffer that is not filled. Locked before the other one.
    spare: Mutex<Vec<Recorded>>,
}

/// A buffer with all pages present.
fn made() -> Vec<Recorded> {
    let mut buffer = vec![
        Recorded(
            RecordedKind::Flush,
            u64::MAX,
            u64::MAX,
            u64::MAX,
            VolumeId(u32::MAX)
        );
        RECORDED_MOST
    ];
    buffer.clear();
    buffer
}

impl Default for Recorder {
    fn default() -> Self {
        Self {
            volume: AtomicU64::new(NO_VOLUME),
            missed: AtomicU64::new(0),
            buffer: Mutex::default(),
            spare: Mutex::default(),
        }
    }
}

fn recorded(Request { volume, op, .. }: &Request, time_ns: u64) -> Option<Recorded> {
    let (kind, offset, length) = match op {
        Op::Read { offset, length } => (RecordedKind::Read, *offset, u64::from(*length)),
        Op::Write { offset, data, fua } => (
            if *fua {
                RecordedKind::WriteFua
            } else {
                RecordedKind::Write
            },
            *offset,
            data.len() as u64,
        ),
        Op::Trim { offset, length, .. } | Op::WriteZeroes { offset, length, .. } => {
            (RecordedKind::Trim, *offset, *length)
        }
        Op::Flush => (RecordedKind::Flush, 0, 0),
        Op::BlockStatus { .. } => return None,
    };
    Some(Recorded(kind, offset, length, time_ns, *volume))
}

impl Recorder {
    /// Records requests. Costs one comparison if there is no recording.
    #[inline]
    pub(crate) fn see(&self, requests: &[Request], now_ns: u64) {
        let volume = self.volume.load(Ordering::Relaxed);
        if volume != NO_VOLUME {
            self.append(volume, requests, now_ns);
        }
    }

    #[cold]
    fn append(&self, volume: u64, requests: &[Request], now_ns: u64) {
        let is_of_volume = |request: &&Request| {
            (volume == ALL || u64::from(request.volume.0) == volume)
                && !matches!(request.op, Op::BlockStatus { .. })
        };
        let of_volume = || requests.iter().filter(is_of_volume);
        if of_volume().next().is_none() {
            return;
        }
        let tries = (0..TRIES).find_map(|_| {
            self.buffer.try_lock().ok().or_else(|| {
                std::hint::spin_loop();
                None
            })
        });
        let Some(mut buffer) = tries else {
            self.missed
                .fetch_add(of_volume().count() as u64, Ordering::Relaxed);
            return;
        };
        if buffer.volume != volume {
            // Another recording has started meanwhile.
            return;
        }
        let time_ns = now_ns.saturating_sub(buffer.begun_ns);
        for recorded in of_volume().filter_map(|request| recorded(request, time_ns)) {
            if buffer.requests.len() < buffer.requests.capacity() {
                buffer.requests.push(recorded);
                continue;
            }
            self.missed.fetch_add(1, Ordering::Relaxed);
            if now_ns.saturating_sub(buffer.taken_ns) > PATIENCE_NS {
                self.volume.store(NO_VOLUME, Ordering::Relaxed);
            }
        }
    }

    /// Starts a recording of one volume, or of all; `None` while another one runs.
    pub(crate) fn start(&self, volume: Option<VolumeId>, now_ns: u64) -> Option<Lot> {
        let volume = volume.map_or(ALL, |volume| u64::from(volume.0));
        // Allocated before the lock is taken, because it takes long.
        let requests = made();
        let mut spare = lock(&self.spare);
        let mut buffer = lock(&self.buffer);
        let goes_on = self.volume.load(Ordering::Relaxed) != NO_VOLUME
            && now_ns.saturating_sub(buffer.taken_ns) <= PATIENCE_NS;
        if goes_on {
            return None;
        }
        let token = buffer.token + 1;
        let before = std::mem::replace(
            &mut *buffer,
            Buffer {
                token,
                volume,
                begun_ns: now_ns,
                taken_ns: now_ns,
                requests,
            },
        );
        self.missed.store(0, Ordering::Relaxed);
        self.volume.store(volume, Ordering::Relaxed);
        drop(buffer);
        *spare = if before.requests.capacity() == 0 {
            made()
        } else {
            before.requests
        };
        spare.clear();
        Some(Lot {
            token,
            ..Lot::default()
        })
    }

    /// Takes the recorded requests, and ends the recording on request. `None` if it has ended
    /// already.
    pub(crate) fn take(&self, token: u64, end: bool, now_ns: u64) -> Option<Lot> {
        let mut spare = lock(&self.spare);
        let mut buffer = lock(&self.buffer);
        if buffer.token != token || self.volume.load(Ordering::Relaxed) == NO_VOLUME {
            return None;
        }
        buffer.taken_ns = now_ns;
        std::mem::swap(&mut buffer.requests, &mut *spare);
        let rest = if end {
            self.volume.store(NO_VOLUME, Ordering::Relaxed);
            std::mem::take(&mut buffer.requests)
        } else {
            Vec::new()
        };
        drop(buffer);
        // Memory is released here, not on the data path.
        drop(rest);
        let requests = spare.clone();
        spare.clear();
        if end {
            *spare = Vec::new();
        }
        Some(Lot {
            token,
            requests,
            missed: self.missed.swap(0, Ordering::Relaxed),
        })
    }
}

#[cfg(test)]
mod tests;

//! An [`ExportSource`] over plain memory: the double for tests and measurements of front-ends.
//!
//! A volume is a row of 1 MiB shards, each with its own lock and allocated on the first write to
//! it. In addition to its bytes each block has a state (hole, zero, data), so that block status
//! answers like a real volume. [`Delivery`] selects the delivery of completions: at once, from
//! another thread, or held until the test releases them. [`RamSource::fail`] makes a range fail.

mod volume;

use crate::{ExportInfo, ExportSource, Session, Sink};
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use volume::Volume;
use windrow_io::{BufPool, Completion, Op, Reply, Request, RequestError};
use windrow_types::VolumeId;

/// Largest request that the exports announce: 32 MiB.
pub const MAX_REQUEST_BYTES: u32 = 32 << 20;

/// Delivery of completions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Delivery {
    /// All in `ready`.
    AtOnce,
    /// All through the sink, from another thread, the last of a group first.
    Later,
    /// Only after [`RamSource::release`].
    Held,
}

/// Executed requests of each kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RamCounters {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Trims.
    pub trims: u64,
    /// Write-zeroes.
    pub zeroes: u64,
    /// Block status.
    pub statuses: u64,
    /// Requests with FUA among writes, trims and write-zeroes.
    pub forced: u64,
    /// Calls of `submit`.
    pub groups: u64,
}

/// Description of an export to create.
#[derive(Clone, Debug)]
pub struct RamExport {
    /// Name; empty for the default export.
    pub name: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Refuse writes.
    pub read_only: bool,
}

impl RamExport {
    /// A writable export.
    pub fn new(name: &str, size_bytes: u64) -> Self {
        Self {
            name: name.to_owned(),
            size_bytes,
            read_only: false,
        }
    }
}

type Parcel = (Arc<dyn Sink>, Vec<Completion>);

struct Shared {
    delivery: AtomicU8,
    faults: Mutex<Vec<(Range<u64>, RequestError)>>,
    faults_set: AtomicU64,
    counters: Mutex<RamCounters>,
    held: Mutex<Vec<Parcel>>,
    later: Mutex<Option<Sender<Parcel>>>,
}

/// Exports in memory.
pub struct RamSource {
    exports: Vec<Arc<Volume>>,
    buffers: BufPool,
    shared: Arc<Shared>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl RamSource {
    /// A source with these exports; the one with the empty name, if present, is the default.
    pub fn new(exports: &[RamExport]) -> Self {
        let volume = |(index, export): (usize, &RamExport)| {
            Arc::new(Volume::new(VolumeId(index as u32 + 1), export))
        };
        let shared = Shared {
            delivery: AtomicU8::new(Delivery::AtOnce as u8),
            faults: Mutex::new(Vec::new()),
            faults_set: AtomicU64::new(0),
            counters: Mutex::new(RamCounters::default()),
            held: Mutex::new(Vec::new()),
            later: Mutex::new(None),
        };
        Self {
            exports: exports.iter().enumerate().map(volume).collect(),
            buffers: BufPool::new(64 << 20),
            shared: Arc::new(shared),
        }
    }

    /// One writable default export.
    pub fn single(size_bytes: u64) -> Self {
        Self::new(&[RamExport::new("", size_bytes)])
    }

    /// Selects the delivery of completions of later requests.
    pub fn set_delivery(&self, delivery: Delivery) {
        if delivery == Delivery::Later {
            let mut later = locked(&self.shared.later);
            if later.is_none() {
                let (sender, receiver) = channel();
                std::thread::spawn(move || deliver_later(&receiver));
                *later = Some(sender);
            }
        }
        self.shared.delivery.store(delivery as u8, Ordering::SeqCst);
    }

    /// Number of requests whose completions are held.
    pub fn held(&self) -> usize {
        locked(&self.shared.held)
            .iter()
            .map(|(_, completions)| completions.len())
            .sum()
    }

    /// Releases all held completions.
    pub fn release(&self) {
        let parcels = std::mem::take(&mut *locked(&self.shared.held));
        for (sink, mut completions) in parcels {
            sink.complete(&mut completions);
        }
    }

    /// Makes later requests that touch `range` of any export fail with `error`; flushes count as
    /// touching byte 0.
    pub fn fail(&self, range: Range<u64>, error: RequestError) {
        locked(&self.shared.faults).push((range, error));
        self.shared.faults_set.fetch_add(1, Ordering::SeqCst);
    }

    /// Changes the size of an export; false if there is none of that name.
    pub fn resize(&self, name: &str, size_bytes: u64) -> bool {
        let found = self.exports.iter().find(|volume| volume.name() == name);
        found.inspect(|volume| volume.resize(size_bytes)).is_some()
    }

    /// Counts of executed requests.
    pub fn counters(&self) -> RamCounters {
        *locked(&self.shared.counters)
    }
}

fn deliver_later(receiver: &Receiver<Parcel>) {
    while let Ok((sink, mut completions)) = receiver.recv() {
        completions.reverse();
        sink.complete(&mut completions);
    }
}

impl ExportSource for RamSource {
    fn list(&self) -> Vec<ExportInfo> {
        self.exports.iter().map(|volume| volume.info()).collect()
    }

    fn open(&self, name: &str, sink: Arc<dyn Sink>) -> Result<Box<dyn Session>, RequestError> {
        let volume = self
            .exports
            .iter()
            .find(|volume| volume.name() == name)
            .ok_or(RequestError::NoVolume)?;
        Ok(Box::new(RamSession {
            volume: volume.clone(),
            buffers: self.buffers.clone(),
            shared: self.shared.clone(),
            sink,
        }))
    }

    fn buffers(&self) -> &BufPool {
        &self.buffers
    }
}

struct RamSession {
    volume: Arc<Volume>,
    buffers: BufPool,
    shared: Arc<Shared>,
    sink: Arc<dyn Sink>,
}

impl RamSession {
    fn execute(&self, op: &Op) -> Result<Reply, RequestError> {
        if self.shared.faults_set.load(Ordering::Relaxed) != 0 {
            self.find_fault(op)?;
        }
        match op {
            Op::Read { offset, length } => self
                .volume
                .read(*offset, *length, &self.buffers)
                .map(|data| Reply::Data(vec![data])),
            Op::Write { offset, data, .. } => {
                self.volume.write(*offset, data).map(|()| Reply::Done)
            }
            Op::Flush => Ok(Reply::Done),
            Op::Trim { offset, length, .. } => self
                .volume
                .clear(*offset, *length, true)
                .map(|()| Reply::Done),
            Op::WriteZeroes {
                offset,
                length,
                no_hole,
                ..
            } => self
                .volume
                .clear(*offset, *length, !no_hole)
                .map(|()| Reply::Done),
            Op::BlockStatus {
                offset,
                length,
                max_extents,
            } => self
                .volume
                .status(*offset, *length, *max_extents)
                .map(Reply::Extents),
        }
    }

    fn find_fault(&self, op: &Op) -> Result<(), RequestError> {
        let (offset, length) = match op {
            Op::Read { offset, length } => (*offset, u64::from(*length)),
            Op::Write { offset, data, .. } => (*offset, data.len() as u64),
            Op::Trim { offset, length, .. }
            | Op::WriteZeroes { offset, length, .. }
            | Op::BlockStatus { offset, length, .. } => (*offset, *length),
            Op::Flush => (0, 1),
        };
        let faults = locked(&self.shared.faults);
        let hit = faults
            .iter()
            .find(|(range, _)| offset < range.end && range.start < offset.saturating_add(length));
        hit.map_or(Ok(()), |(_, error)| Err(*error))
    }
}

fn count(counters: &mut RamCounters, op: &Op) {
    match op {
        Op::Read { .. } => counters.reads += 1,
        Op::Write { fua, .. } => {
            (counters.writes, counters.forced) =
                (counters.writes + 1, counters.forced + u64::from(*fua))
        }
        Op::Flush => counters.flushes += 1,
        Op::Trim { fua, .. } => {
            (counters.trims, counters.forced) =
                (counters.trims + 1, counters.forced + u64::from(*fua))
        }
        Op::WriteZeroes { fua, .. } => {
            (counters.zeroes, counters.forced) =
                (counters.zeroes + 1, counters.forced + u64::from(*fua))
        }
        Op::BlockStatus { .. } => counters.statuses += 1,
    }
}

impl Session for RamSession {
    fn submit(&self, requests: &mut Vec<Request>, ready: &mut Vec<Completion>) {
        {
            let mut counters = locked(&self.shared.counters);
            counters.groups += 1;
            requests
                .iter()
                .for_each(|request| count(&mut counters, &request.op));
        }
        let completions = requests.drain(..).map(|request| Completion {
            id: request.id,
            result: self.execute(&request.op),
            lsns: None,
        });
        let delivery = self.shared.delivery.load(Ordering::SeqCst);
        if delivery == Delivery::AtOnce as u8 {
            ready.extend(completions);
            return;
        }
        let parcel = (self.sink.clone(), completions.collect());
        if delivery == Delivery::Held as u8 {
            locked(&self.shared.held).push(parcel);
        } else if let Some(sender) = &*locked(&self.shared.later) {
            // The receiving thread ends only after this sender is gone.
            sender.send(parcel).unwrap_or_default();
        }
    }

    fn info(&self) -> ExportInfo {
        self.volume.info()
    }
}

#[cfg(test)]
mod tests;

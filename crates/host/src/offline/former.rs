//! A device that was in this very pool before.
//!
//! It may have been used separately, imported by force elsewhere. Then it holds batches and journal
//! records with the pool's identifier, and with positions, numbers and epochs that the pool itself
//! will reach. A rebuild writes only committed rows, so they would stay after the end of the log.
//! The next start would take them for the pool's own. So the whole device is zeroed before it comes
//! in again:
//!
//! 1. The label gets an unknown member identifier. From here on no start takes the device for a
//!    member, and `pool online` refuses it: members of the table are found by identifier. It keeps
//!    the pool's identifier, so after a crash the device is recognised and zeroed from the start.
//! 2. The superblocks are erased: if nothing else of the pool is found, the device must not be
//!    taken for the pool.
//! 3. Everything after them, in pieces.
//! 4. When all of that is durable, both ends, and with them the label.

use super::{erase, label, random_uuid};
use crate::failure::{Failure, id};
use crate::served::Served;
use std::path::Path;
use std::time::{Duration, Instant};
use windrow_device::disk::Disk;
use windrow_device::{DeviceError, FileMember, Member, OpenOptions};
use windrow_format::superblock::{
    LABEL_BYTES, LABEL_OFFSET, Label, RESERVED_BYTES, SLOT_BYTES, SLOT_COUNT, SLOT_OFFSET,
    SLOT_STRIDE, Superblock, SuperblockError,
};
use windrow_io::Buf;
use windrow_types::{MemberId, PoolUuid, Uuid};

/// Bytes zeroed at once; after each piece progress is reported and the caller may stop.
const PIECE_BYTES: u64 = 64 << 20;
/// Interval of the progress lines in the log.
const TELL_EVERY: Duration = Duration::from_secs(10);

fn label_of(device: &dyn Member) -> Result<Result<Label, SuperblockError>, DeviceError> {
    let mut bytes = Buf::unpooled(LABEL_BYTES);
    device.read_at(LABEL_OFFSET, &mut bytes)?;
    Ok(Label::decode(&bytes))
}

fn bears_superblock(device: &dyn Member, pool: PoolUuid) -> Result<bool, DeviceError> {
    let mut bytes = Buf::unpooled(SLOT_BYTES);
    for slot in 0..SLOT_COUNT {
        device.read_at(SLOT_OFFSET + slot * SLOT_STRIDE, &mut bytes)?;
        if Superblock::decode(&bytes).is_ok_and(|superblock| superblock.pool == pool) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// True if the device was in this pool, by its label or a superblock. (A label of newer software
/// does not name its pool, so it may be.)
pub(crate) fn was_in(device: &dyn Member, pool: PoolUuid) -> Result<bool, DeviceError> {
    if device.info().size_bytes < RESERVED_BYTES {
        return Ok(false);
    }
    match label_of(device)? {
        Ok(label) if label.pool == pool => Ok(true),
        Err(SuperblockError::NewerVersion(_)) => Ok(true),
        _ => bears_superblock(device, pool),
    }
}

/// True if the device is this spare and has been nothing else since it was added: a spare has a
/// label and no superblock.
pub(crate) fn is_unused_spare(
    device: &dyn Member,
    pool: PoolUuid,
    uuid: Uuid,
) -> Result<bool, DeviceError> {
    let is_it =
        label_of(device)?.is_ok_and(|label| label.pool == pool && label.member_uuid == uuid);
    Ok(is_it && !bears_superblock(device, pool)?)
}

/// Verifies that the head of the device has no label of another pool and no other known signature;
/// the error is the reason.
pub(crate) fn must_be_of(device: &dyn Member, pool: PoolUuid) -> Result<(), String> {
    let shown = &device.info().description;
    match label_of(device) {
        Err(error) => Err(error.to_string()),
        Ok(Ok(label)) if label.pool == pool => Ok(()),
        Ok(Ok(label)) => Err(format!(
            "{shown} is member {} of pool '{}' by now",
            label.member, label.pool_name
        )),
        Ok(Err(SuperblockError::NewerVersion(_))) => {
            Err(format!("{shown} has a label of newer software by now"))
        }
        Ok(Err(_)) => Err(format!("{shown} has no label of this pool any more")),
    }
}

/// Bytes zeroed before the file or device at this path comes into the pool. `None` if it was not in
/// the pool, is in use, or cannot be read. A disk was in it if one of its partitions was.
pub fn zeroed_first(path: &Path, pool: Uuid) -> Option<u64> {
    if Served::now().held(path).is_some() {
        return None;
    }
    let was = |path: &Path| {
        FileMember::open(path, &OpenOptions::read_only())
            .is_ok_and(|device| was_in(&device, pool).unwrap_or(false))
    };
    let partitions = Disk::at(path)
        .ok()
        .flatten()
        .map_or_else(Vec::new, |disk| disk.partitions());
    let is_former = was(path) || partitions.iter().any(|partition| was(partition));
    is_former.then(|| windrow_device::probe::size_bytes(path).ok())?
}

/// Zeroes all of a device, in the order above. `go_on` is called with the bytes done and their
/// total, and stops it with `false`.
///
/// # Errors
/// The device fails, or `go_on` stopped it: the device is unused, and the next try starts from the
/// beginning.
pub(crate) fn empty(
    device: &dyn Member,
    pool: PoolUuid,
    name: &str,
    what: &str,
    go_on: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<(), Failure> {
    let shown = &device.info().description;
    let failure = |why: String| {
        let why = format!(
            "{shown} was in this pool before, and is not labelled before all of it is zeroed: {why}"
        );
        Failure::new(id::MEMBER_IO, what, why)
            .remedy("choose another device, or try again: it is zeroed from the start then")
    };
    let failed = |error: DeviceError| failure(error.to_string());
    let slot = label_of(device)
        .map_err(failed)?
        .map_or(MemberId(0), |label| label.member);
    label(device, pool, name, slot, random_uuid()?).map_err(failed)?;
    device
        .zero(SLOT_OFFSET, RESERVED_BYTES - SLOT_OFFSET)
        .and_then(|()| device.flush())
        .map_err(failed)?;
    let all = device.info().size_bytes;
    tracing::info!(
        "{shown} was in pool '{name}' before: all of its {all} bytes are zeroed before it is labelled"
    );
    let mut told = Told::new(shown);
    let mut done = RESERVED_BYTES;
    while done < all {
        if !go_on(done, all) {
            return Err(failure("the pool has stopped meanwhile".to_owned()));
        }
        let length = PIECE_BYTES.min(all - done);
        device.zero(done, length).map_err(failed)?;
        done += length;
        told.note(done, all);
    }
    device.flush().and_then(|()| erase(device)).map_err(failed)
}

/// Progress lines of the log.
struct Told<'d> {
    shown: &'d str,
    begin: Instant,
    last: Instant,
}

impl<'d> Told<'d> {
    fn new(shown: &'d str) -> Self {
        Self {
            shown,
            begin: Instant::now(),
            last: Instant::now(),
        }
    }

    fn note(&mut self, done: u64, all: u64) {
        if self.last.elapsed() < TELL_EVERY {
            return;
        }
        self.last = Instant::now();
        let rate = (done as f64 / self.begin.elapsed().as_secs_f64()).max(1.0);
        let (percent, left) = (done as f64 * 100.0 / all as f64, (all - done) as f64 / rate);
        tracing::info!(
            "{}: {percent:.1} % zeroed, {:.0} MB/s, {left:.0} s left",
            self.shown,
            rate / 1e6
        );
    }
}

#[cfg(test)]
mod tests;

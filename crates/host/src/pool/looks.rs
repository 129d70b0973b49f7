//! Looks at devices that may never answer: each in its own thread, and one at a time for a device.
//! The caller gives up after a timeout; the thread ends when the device answers or fails.

use super::lock;
use crate::offline;
use std::path::Path;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use windrow_device::Member;

/// A look in flight: its device, and the channel that closes at its end.
type Look = (Weak<dyn Member>, Receiver<()>);

/// Looks in flight whose callers have given up.
#[derive(Default)]
pub(super) struct Looks(Mutex<Vec<Look>>);

impl Looks {
    /// True if a read of the device has ended, successfully or not, within `patience`. False at
    /// once while an earlier one is in flight.
    ///
    /// # Errors
    /// No thread could be started for it.
    pub(super) fn answers(
        &self,
        device: &Arc<dyn Member>,
        patience: Duration,
    ) -> std::io::Result<bool> {
        {
            let mut looks = lock(&self.0);
            looks.retain(|(_, end)| end.try_recv() == Err(TryRecvError::Empty));
            if looks
                .iter()
                .any(|(other, _)| other.ptr_eq(&Arc::downgrade(device)))
            {
                return Ok(false);
            }
        }
        let (ended, end) = channel();
        let looked_at = device.clone();
        let look = move || {
            // Only the answer counts, not its content or success.
            _ = offline::borne_by(&*looked_at, Path::new(""));
            drop(looked_at);
            _ = ended.send(());
        };
        std::thread::Builder::new()
            .name("windrow-look".to_owned())
            .spawn(look)?;
        let answers = end.recv_timeout(patience).is_ok();
        if !answers {
            lock(&self.0).push((Arc::downgrade(device), end));
        }
        Ok(answers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use windrow_device::{DeviceError, MemberInfo, RamAllocation, RamMember};

    /// A device whose reads wait until the test releases them.
    struct Slow {
        of: RamMember,
        gate: Mutex<()>,
        reads: AtomicU32,
    }

    impl Member for Slow {
        fn info(&self) -> &MemberInfo {
            self.of.info()
        }
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            drop(lock(&self.gate));
            self.of.read_at(offset, buf)
        }
        fn write_at(&self, _: u64, _: &[u8]) -> Result<(), DeviceError> {
            unreachable!("nothing is written")
        }
        fn flush(&self) -> Result<(), DeviceError> {
            unreachable!("nothing is flushed")
        }
        fn discard(&self, _: u64, _: u64) -> Result<(), DeviceError> {
            unreachable!("nothing is discarded")
        }
        fn raw_fd(&self) -> Option<std::os::fd::RawFd> {
            None
        }
    }

    /// The hot-spare manager looks again and again; each look at a spare that never answers must
    /// not add a thread.
    #[test]
    fn a_device_that_does_not_answer_is_looked_at_once() {
        let slow = Arc::new(Slow {
            of: RamMember::new(4 << 20, RamAllocation::Sparse).expect("memory"),
            gate: Mutex::default(),
            reads: AtomicU32::new(0),
        });
        let (device, looks): (Arc<dyn Member>, _) = (slow.clone(), Looks::default());
        let shut = lock(&slow.gate);
        assert!((0..5).all(|_| !looks.answers(&device, Duration::ZERO).expect("a thread")));
        while slow.reads.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(
            (slow.reads.load(Ordering::Relaxed), lock(&looks.0).len()),
            (1, 1)
        );
        drop(shut);
        while !looks
            .answers(&device, Duration::from_secs(60))
            .expect("a thread")
        {
            std::thread::yield_now();
        }
        assert!(lock(&looks.0).is_empty());
    }
}

//! The thread that reaps completions of member commands and drives the engine with them.

use crate::driver::{Caller, Driver};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use windrow_device::queue::{Reap, Reaper, Waker};
use windrow_engine::Event;

/// Completions passed to the engine at once. Members and their drivers report completions in
/// bursts. The sooner the first ones are answered, the sooner idle members get new work; shorter
/// groups pay more for locks and sends.
const GROUP_COMMANDS: usize = 4;

/// The running thread.
pub(crate) struct ReaperThread {
    waker: Waker,
    closing: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl ReaperThread {
    /// Starts it. An early end latches the pool: no command would ever complete again.
    pub(crate) fn start(driver: Arc<Driver>, mut reaper: Reaper) -> std::io::Result<Self> {
        let waker = reaper.waker();
        let closing = Arc::new(AtomicBool::new(false));
        let closed = closing.clone();
        let body = move || {
            let outcome = catch_unwind(AssertUnwindSafe(|| reap(&driver, &mut reaper, &closed)));
            match outcome {
                Ok(Ok(())) => {}
                Ok(Err(error)) => driver.stop(&format!("the queue of the members failed: {error}")),
                Err(panic) => driver.stop(&format!(
                    "the thread that reaps member commands failed: {}",
                    crate::workers::panic_text(&*panic)
                )),
            }
        };
        let thread = std::thread::Builder::new()
            .name("windrow-reaper".to_owned())
            .spawn(body)?;
        Ok(Self {
            waker,
            closing,
            thread,
        })
    }

    /// Ends it.
    pub(crate) fn close(self) {
        self.closing.store(true, Ordering::Release);
        self.waker.wake();
        if self.thread.thread().id() != std::thread::current().id() {
            drop(self.thread.join());
        }
    }
}

fn reap(driver: &Driver, reaper: &mut Reaper, closing: &AtomicBool) -> std::io::Result<()> {
    let mut done = Vec::new();
    loop {
        reaper.wait(&mut done)?;
        while !done.is_empty() {
            let count = done.len().min(GROUP_COMMANDS);
            driver.post_all(done.drain(..count).map(Event::Member));
            driver.drive(Caller::Service, None);
        }
        if closing.load(Ordering::Acquire) {
            return Ok(());
        }
    }
}

//! The log of a daemon: a bounded queue and a thread that writes it.
//!
//! Standard error may be a pipe that is read late or never, or a file on a file system that stalls.
//! Both may even be on a volume of the pool that this process serves. A thread that drives the
//! engine or answers clients and waits for such a write waits for itself: deadlock. Therefore:
//!
//! 1. Only the writer thread writes. All others append to the queue, which takes a lock for the
//!    time of one copy.
//! 2. A line that does not fit is dropped and counted; the writer logs the count when it writes
//!    again.
//! 3. At the end the queue has a bounded time to drain; then the process ends.
//!
//! Other writes of a daemon follow the same rule. The event command has a bounded queue and a
//! thread (`hook.rs`). Registry entries are written by threads of the control socket while no lock
//! is held that I/O needs (`daemon.rs`). With the state folder on a volume of the pool such a
//! command waits for the pool, and the pool does not wait for it.

use crate::sessions::lock;
use std::collections::VecDeque;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Most bytes of waiting lines.
const WAITING_BYTES: usize = 1 << 20;

/// Lines that this process has dropped.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Number of lines that this process has dropped since its start.
pub fn dropped_lines() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

#[derive(Default)]
struct State {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Lines dropped since the writer last logged the count.
    dropped: u64,
    /// The writer has a line in hand.
    is_writing: bool,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

/// A handle of the queue, and a writer for others: each write is a line, and never waits.
#[derive(Clone)]
pub struct LogQueue(Arc<Queue>);

impl LogQueue {
    /// Starts the thread that writes to `out`.
    ///
    /// # Errors
    /// There is no thread for it.
    pub fn start(out: impl Write + Send + 'static) -> std::io::Result<Self> {
        let queue = Self(Arc::default());
        let served = queue.clone();
        std::thread::Builder::new()
            .name("windrow-log".to_owned())
            .spawn(move || served.serve(out))?;
        Ok(queue)
    }

    /// Appends a line, or drops it; never waits for the reader.
    pub fn push(&self, line: &[u8]) {
        let mut state = lock(&self.0.state);
        if state.bytes + line.len() > WAITING_BYTES {
            state.dropped += 1;
            DROPPED.fetch_add(1, Ordering::Relaxed);
            return;
        }
        state.bytes += line.len();
        state.lines.push_back(line.to_vec());
        self.0.changed.notify_all();
    }

    /// Waits at most `patience` until all is written; true if it is.
    pub fn flush(&self, patience: Duration) -> bool {
        let waits = |state: &mut State| state.is_writing || !state.lines.is_empty();
        let (state, _) = self
            .0
            .changed
            .wait_timeout_while(lock(&self.0.state), patience, waits)
            .unwrap_or_else(|e| e.into_inner());
        state.lines.is_empty() && !state.is_writing
    }

    /// The writer's thread. It is not joined, as it may be blocked in a write when the process
    /// ends.
    fn serve(&self, mut out: impl Write) -> ! {
        loop {
            let mut state = self
                .0
                .changed
                .wait_while(lock(&self.0.state), |state| state.lines.is_empty())
                .unwrap_or_else(|e| e.into_inner());
            let line = state.lines.pop_front().unwrap_or_default();
            state.bytes -= line.len();
            state.is_writing = true;
            // Logged after the next line: only then is the reader known to be back, and earlier
            // lines precede the count.
            let dropped = if state.lines.is_empty() {
                std::mem::take(&mut state.dropped)
            } else {
                0
            };
            drop(state);
            // A reader that is gone does not come back, and there is nowhere left to report it.
            drop(out.write_all(&line));
            if dropped > 0 {
                drop(writeln!(
                    out,
                    " WARN {dropped} lines of the log were dropped, as they were not read in time"
                ));
            }
            drop(out.flush());
            lock(&self.0.state).is_writing = false;
            self.0.changed.notify_all();
        }
    }
}

impl Write for LogQueue {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    /// A pipe that is not read must not stop the threads that log, least of all the one with the
    /// engine.
    #[test]
    fn a_reader_that_stalls_costs_lines_and_no_time() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let queue = LogQueue::start(writer).unwrap();
        let line = [&[b'x'; 1023][..], b"\n"].concat();
        let lines = 4 * WAITING_BYTES / line.len();
        let before = dropped_lines();
        (0..lines).for_each(|_| queue.push(&line));
        assert!(!queue.flush(Duration::from_millis(1)), "the pipe is full");
        let dropped = dropped_lines() - before;
        assert!(dropped > 0 && dropped < lines as u64);
        // When the reader is back, the queued lines come, and the number of dropped ones.
        let says = format!("{dropped} lines of the log were dropped");
        let (mut text, mut part) = (Vec::new(), vec![0; 1 << 16]);
        while !String::from_utf8_lossy(&text[text.len().saturating_sub(200)..]).contains(&says) {
            let length = reader.read(&mut part).unwrap();
            text.extend_from_slice(&part[..length]);
        }
        let kept = text
            .split(|byte| *byte == b'\n')
            .filter(|found| found.len() == 1023)
            .count();
        assert_eq!(kept as u64, lines as u64 - dropped);
        queue.push(b"more\n");
        assert!(queue.flush(Duration::from_secs(60)));
    }
}

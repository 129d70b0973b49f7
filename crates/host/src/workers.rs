//! Threads for long work: parity and checksums of whole batches, and copies for members that are
//! not asynchronous.
//!
//! A plain queue under a mutex: a task is hundreds of microseconds of work, so the hand-over is
//! cheap in comparison, and small tasks never come here (see `driver`). A panic in a task ends
//! neither its thread nor a waiting client: it is caught and reported once through `on_panic`,
//! which latches the pool.

use crate::sessions::lock;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

struct Queue<T> {
    tasks: VecDeque<T>,
    closed: bool,
}

struct Shared<T> {
    queue: Mutex<Queue<T>>,
    wake: Condvar,
}

/// A fixed number of threads and their queue.
pub(crate) struct Workers<T> {
    shared: Arc<Shared<T>>,
    count: usize,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl<T: Send + 'static> Workers<T> {
    /// A queue for `count` threads (at least one), which start with [`Workers::start`].
    pub(crate) fn new(count: usize) -> Self {
        let shared = Shared {
            queue: Mutex::new(Queue {
                tasks: VecDeque::with_capacity(256),
                closed: false,
            }),
            wake: Condvar::new(),
        };
        Self {
            shared: Arc::new(shared),
            count: count.max(1),
            threads: Mutex::default(),
        }
    }

    /// Starts the threads.
    pub(crate) fn start(
        &self,
        run: impl Fn(T) + Clone + Send + 'static,
        on_panic: impl Fn(String) + Clone + Send + 'static,
    ) -> std::io::Result<()> {
        let mut threads = lock(&self.threads);
        for number in 0..self.count {
            let (shared, run, on_panic) = (self.shared.clone(), run.clone(), on_panic.clone());
            let body = move || serve(&shared, &run, &on_panic);
            threads.push(
                std::thread::Builder::new()
                    .name(format!("windrow-work-{number}"))
                    .spawn(body)?,
            );
        }
        Ok(())
    }

    /// Hands over `tasks` while fewer than two for each thread are waiting. The rest stays in the
    /// vector, and the caller, the producer, must run it itself: that is both help and
    /// back-pressure.
    pub(crate) fn offer(&self, tasks: &mut Vec<T>) {
        let given = {
            let mut queue = lock(&self.shared.queue);
            let room = (2 * self.count).saturating_sub(queue.tasks.len());
            let given = room.min(tasks.len());
            queue.tasks.extend(tasks.drain(..given));
            given
        };
        self.wake(given);
    }

    /// Hands over all `tasks`.
    pub(crate) fn push_all(&self, tasks: &mut Vec<T>) {
        let given = tasks.len();
        lock(&self.shared.queue).tasks.extend(tasks.drain(..));
        self.wake(given);
    }

    fn wake(&self, given: usize) {
        for _ in 0..given.min(self.count) {
            self.shared.wake.notify_one();
        }
    }

    /// Ends the threads; waiting tasks are dropped. A call from one of the threads does not wait
    /// for that one.
    pub(crate) fn close(&self) {
        {
            let mut queue = lock(&self.shared.queue);
            queue.closed = true;
            queue.tasks.clear();
        }
        self.shared.wake.notify_all();
        let threads = std::mem::take(&mut *lock(&self.threads));
        for thread in threads
            .into_iter()
            .filter(|thread| thread.thread().id() != std::thread::current().id())
        {
            // A panic in a task is caught inside; one outside of it has been reported by the panic
            // hook.
            drop(thread.join());
        }
    }
}

/// The text of a panic.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "unknown panic".to_owned())
}

fn serve<T>(shared: &Shared<T>, run: &impl Fn(T), on_panic: &impl Fn(String)) {
    loop {
        let task = {
            let mut queue = lock(&shared.queue);
            loop {
                if queue.closed {
                    return;
                }
                match queue.tasks.pop_front() {
                    Some(task) => break task,
                    None => {
                        queue = shared
                            .wake
                            .wait(queue)
                            .unwrap_or_else(|poisoned| poisoned.into_inner())
                    }
                }
            }
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(task))) {
            on_panic(panic_text(&*panic));
        }
    }
}

#[cfg(test)]
mod tests;

//! Slots of connections: a limited number; a new connection replaces the oldest idle one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::task::JoinHandle;

/// Requests of a connection that are in progress.
#[derive(Clone, Default)]
pub(crate) struct Requests(Arc<AtomicUsize>);

impl Requests {
    /// Counts a request until the guard is dropped.
    pub(crate) fn begin(&self) -> InProgress {
        self.0.fetch_add(1, Ordering::Relaxed);
        InProgress(self.0.clone())
    }

    fn is_idle(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

/// A request in progress.
pub(crate) struct InProgress(Arc<AtomicUsize>);

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The connections, oldest first.
pub(crate) struct Places {
    most: usize,
    taken: Vec<(JoinHandle<()>, Requests)>,
}

impl Places {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            taken: Vec::new(),
        }
    }

    /// Starts a connection if there is a free slot, or an idle connection to replace; else the
    /// connection is dropped.
    pub(crate) fn seat(&mut self, start: impl FnOnce(Requests) -> JoinHandle<()>) {
        self.taken.retain(|(task, _)| !task.is_finished());
        if self.taken.len() >= self.most {
            let Some(oldest) = self
                .taken
                .iter()
                .position(|(_, requests)| requests.is_idle())
            else {
                return;
            };
            self.taken.remove(oldest).0.abort();
        }
        let requests = Requests::default();
        self.taken.push((start(requests.clone()), requests));
    }
}

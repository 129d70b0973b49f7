//! Administrators' commands in flight, and the threads that wait for their answers.

use crate::sessions::lock;
use std::collections::HashMap;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};
use windrow_engine::{
    Control, ControlCompletion, ControlError, ControlId, ControlReply, ControlRequest,
};

type Answer = Result<ControlReply, ControlError>;

#[derive(Default)]
struct Table {
    last: u64,
    waiting: HashMap<ControlId, Option<Answer>>,
}

/// The table. Commands are rare: one condition variable wakes all waiters.
#[derive(Default)]
pub(crate) struct Controls {
    table: Mutex<Table>,
    answered: Condvar,
}

impl Controls {
    /// Gives a command its id.
    pub(crate) fn register(&self, command: Control) -> ControlRequest {
        let mut table = lock(&self.table);
        table.last += 1;
        let id = ControlId(table.last);
        table.waiting.insert(id, None);
        ControlRequest { id, command }
    }

    /// Delivers answers.
    pub(crate) fn complete(&self, answers: impl Iterator<Item = ControlCompletion>) {
        let mut table = lock(&self.table);
        for answer in answers {
            if let Some(slot) = table.waiting.get_mut(&answer.id) {
                slot.get_or_insert(answer.result);
            }
        }
        self.answered.notify_all();
    }

    /// Answers every waiting command with `Stopped`.
    pub(crate) fn fail_all(&self) {
        for slot in lock(&self.table).waiting.values_mut() {
            slot.get_or_insert(Err(ControlError::Stopped));
        }
        self.answered.notify_all();
    }

    /// Waits for the answer, at most `patience`. `None` if it has not come by then; a later answer
    /// is dropped.
    pub(crate) fn wait_within(&self, id: ControlId, patience: Option<Duration>) -> Option<Answer> {
        let end = patience.map(|patience| Instant::now() + patience);
        let mut table = lock(&self.table);
        loop {
            match table.waiting.get_mut(&id) {
                None => return Some(Err(ControlError::Stopped)),
                Some(slot) => {
                    if let Some(answer) = slot.take() {
                        table.waiting.remove(&id);
                        return Some(answer);
                    }
                }
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            table = match left {
                None => self
                    .answered
                    .wait(table)
                    .unwrap_or_else(|poisoned| poisoned.into_inner()),
                Some(Duration::ZERO) => {
                    table.waiting.remove(&id);
                    return None;
                }
                Some(left) => {
                    self.answered
                        .wait_timeout(table, left)
                        .unwrap_or_else(|poisoned| poisoned.into_inner())
                        .0
                }
            };
        }
    }
}

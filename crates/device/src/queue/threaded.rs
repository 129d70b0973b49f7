//! Queue with a pool of threads that block in the member's own methods: for kernels without
//! io_uring and for members without a descriptor.
//!
//! All threads take from the same lists (`waiting.rs`). A slow flush occupies one of them and
//! delays no other command, and an unresponsive member occupies its share of them. A thread that
//! has finished a command takes the next one itself, so no startable command waits while a thread
//! sleeps. When the submitter is dropped, waiting commands are dropped and running ones are waited
//! for.

use super::waiting::Waiting;
use super::{Members, Queue, Reap, Waker, answer_at_once, device_of, execute, put_device};
use crate::member::Member;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use windrow_io::{MemberCommand, MemberDone};
use windrow_types::MemberId;

const THREADS_MAX: u32 = 256;

struct Todo {
    members: Members,
    waiting: Waiting,
    stopped: bool,
}

#[derive(Default)]
struct Finished {
    done: Vec<MemberDone>,
    woken: bool,
}

struct Shared {
    todo: Mutex<Todo>,
    work: Condvar,
    finished: Mutex<Finished>,
    results: Condvar,
    in_flight: AtomicUsize,
}

impl Shared {
    fn todo(&self) -> MutexGuard<'_, Todo> {
        self.todo.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn finished(&self) -> MutexGuard<'_, Finished> {
        self.finished.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn work(&self) {
        let mut todo = self.todo();
        loop {
            let (command, device) = loop {
                if todo.stopped {
                    return;
                }
                match todo.waiting.next() {
                    Some(command) => {
                        let device = device_of(&todo.members, command.member).cloned();
                        break (command, device);
                    }
                    None => todo = self.work.wait(todo).unwrap_or_else(|e| e.into_inner()),
                }
            };
            drop(todo);
            let member = command.member;
            let done = execute(device.as_ref(), command);
            drop(device);
            todo = self.todo();
            // Released before the result is sent: its receiver may exchange the device.
            todo.waiting.release(member);
            self.finished().done.push(done);
            self.results.notify_one();
        }
    }
}

/// The submitting half; owns the threads.
pub struct ThreadedSubmitter {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// The waiting half.
pub struct ThreadedReaper {
    shared: Arc<Shared>,
}

/// Starts the threads.
///
/// # Errors
/// A thread could not be started.
pub fn threaded(members: Members, threads: u32) -> io::Result<(ThreadedSubmitter, ThreadedReaper)> {
    let threads = threads.clamp(1, THREADS_MAX);
    let shared = Arc::new(Shared {
        todo: Mutex::new(Todo {
            waiting: Waiting::new(threads, &members),
            members,
            stopped: false,
        }),
        work: Condvar::new(),
        finished: Mutex::default(),
        results: Condvar::new(),
        in_flight: AtomicUsize::new(0),
    });
    let mut submitter = ThreadedSubmitter {
        shared: shared.clone(),
        threads: Vec::new(),
    };
    for number in 0..threads {
        let shared = shared.clone();
        submitter.threads.push(
            std::thread::Builder::new()
                .name(format!("member-{number}"))
                .spawn(move || shared.work())?,
        );
    }
    Ok((submitter, ThreadedReaper { shared }))
}

#[cfg(test)]
impl ThreadedSubmitter {
    /// True if the member has waiting commands.
    pub(super) fn has_waiting(&self, member: MemberId) -> bool {
        self.shared.todo().waiting.has_waiting(member)
    }
}

impl Queue for ThreadedSubmitter {
    fn exchange(&mut self, member: MemberId, device: Option<Arc<dyn Member>>) -> io::Result<()> {
        let mut guard = self.shared.todo();
        let todo = &mut *guard;
        if todo.waiting.has_waiting(member) || todo.waiting.holds_place(member) {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        put_device(&mut todo.members, member, device);
        todo.waiting.adapt(&todo.members);
        drop(guard);
        // With another number of members, shares may have grown.
        self.shared.work.notify_all();
        Ok(())
    }

    fn submit(&mut self, commands: &mut Vec<MemberCommand>, done: &mut Vec<MemberDone>) {
        let mut todo = self.shared.todo();
        let mut added = 0;
        for command in commands.drain(..) {
            match answer_at_once(&todo.members, command) {
                Ok(answer) => done.push(answer),
                Err(command) => {
                    added += 1;
                    todo.waiting.push(command);
                }
            }
        }
        self.shared.in_flight.fetch_add(added, Ordering::AcqRel);
        drop(todo);
        for _ in 0..added.min(self.threads.len()) {
            self.shared.work.notify_one();
        }
    }

    fn in_flight(&self) -> usize {
        self.shared.in_flight.load(Ordering::Acquire)
    }
}

impl Drop for ThreadedSubmitter {
    fn drop(&mut self) {
        self.shared.todo().stopped = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // `work` catches panics of members, so there is no result to look at.
            let _ = thread.join();
        }
        self.shared.todo().waiting.clear();
    }
}

impl Reap for ThreadedReaper {
    fn wait(&mut self, done: &mut Vec<MemberDone>) -> io::Result<()> {
        let mut finished = self.shared.finished();
        while finished.done.is_empty() && !finished.woken {
            finished = self
                .shared
                .results
                .wait(finished)
                .unwrap_or_else(|e| e.into_inner());
        }
        finished.woken = false;
        self.shared
            .in_flight
            .fetch_sub(finished.done.len(), Ordering::AcqRel);
        done.append(&mut finished.done);
        Ok(())
    }

    fn waker(&self) -> Waker {
        let shared = self.shared.clone();
        Waker::new(move || {
            shared.finished().woken = true;
            shared.results.notify_one();
        })
    }
}

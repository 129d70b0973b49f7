//! The event hook: a command that is run for each notice, with the notice as JSON on its standard input.
//!
//! One run at a time, in order; at most `QUEUE` notices wait, further ones are dropped and counted, because nothing in the pool may ever wait
//! for a script. A run that takes longer than `PATIENCE` is killed, with all that it has started. At the end what is running or waiting has
//! `FAREWELL` in all.

use crate::sessions::lock;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use windrow_engine::api::Notice;

const QUEUE: usize = 256;
const PATIENCE: Duration = Duration::from_secs(30);
const FAREWELL: Duration = Duration::from_secs(10);

/// Schema of the JSON that the command gets.
pub const EVENT_SCHEMA: &str = "windrow/event/1";

/// Where notices go: the log, and the hook if there is one.
pub(crate) struct Notifier {
    sender: Mutex<Option<SyncSender<Notice>>>,
    dropped: Arc<AtomicU64>,
    /// When the last run has to be over; none as long as the pool runs.
    end: Arc<Mutex<Option<Instant>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Notifier {
    /// Starts the thread of the hook, if there is a command. `pool` is named in every event.
    pub(crate) fn start(command: Option<String>, pool: String) -> std::io::Result<Self> {
        let notifier = Self { sender: Mutex::default(), dropped: Arc::default(), end: Arc::default(), thread: Mutex::default() };
        let Some(command) = command else { return Ok(notifier) };
        let (sender, receiver) = sync_channel(QUEUE);
        let (dropped, end) = (notifier.dropped.clone(), notifier.end.clone());
        let body = move || serve(&receiver, &Hook { command, pool, end }, &dropped);
        *lock(&notifier.thread) = Some(std::thread::Builder::new().name("windrow-hook".to_owned()).spawn(body)?);
        *lock(&notifier.sender) = Some(sender);
        Ok(notifier)
    }

    /// Takes a notice; never waits.
    pub(crate) fn notify(&self, notice: Notice) {
        match level(&notice) {
            Level::Info => tracing::info!(?notice, "notice"),
            Level::Warning => tracing::warn!(?notice, "notice"),
            Level::Error => tracing::error!(?notice, "notice"),
        }
        if let Some(sender) = &*lock(&self.sender)
            && sender.try_send(notice).is_err()
        {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notices that the hook did not get because too many were waiting.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Runs what is waiting as far as the time goes, then ends the thread.
    pub(crate) fn close(&self) {
        self.close_within(FAREWELL);
    }

    fn close_within(&self, time: Duration) {
        *lock(&self.end) = Some(Instant::now() + time);
        drop(lock(&self.sender).take());
        if let Some(thread) = lock(&self.thread).take() {
            drop(thread.join());
        }
    }
}

/// How loud a notice is in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Level {
    /// A change of state.
    Info,
    /// It goes on, but somebody should look.
    Warning,
    /// Something is lost or has stopped.
    Error,
}

fn level(notice: &Notice) -> Level {
    match notice {
        Notice::Grown { .. } | Notice::Leaving { .. } | Notice::Removed { .. } | Notice::Restriped | Notice::MemberNotSlow { .. } => Level::Info,
        Notice::MemberAnswers { .. } => Level::Info,
        Notice::MemberRebuilt { .. } | Notice::ScrubEnded { wrong_blocks: 0, lost_blocks: 0, damaged_batches: 0, unmoved_blocks: 0 } => Level::Info,
        Notice::ScrubEnded { lost_blocks: 0, damaged_batches: 0, unmoved_blocks: 0, .. } => Level::Warning,
        Notice::LabelWritten { .. }
        | Notice::SpareFailed { .. }
        | Notice::StartNote { .. }
        | Notice::Repaired { .. }
        | Notice::MemberSlow { .. }
        | Notice::MemberHangs { .. }
        | Notice::MemberRebuilding { .. }
        | Notice::MemberOffline { .. } => Level::Warning,
        Notice::MemberMissing { .. } | Notice::Filling { .. } | Notice::Overcommitted { .. } | Notice::MapFull { .. } => Level::Warning,
        Notice::Exhausted { .. } => Level::Error,
        Notice::ScrubEnded { .. } | Notice::MemberFailed { .. } | Notice::Stopped { .. } => Level::Error,
        Notice::Unrecoverable { .. } | Notice::UnrecoverableReference { .. } | Notice::UnnamedReferences { .. } => Level::Error,
    }
}

/// What is run.
struct Hook {
    command: String,
    pool: String,
    end: Arc<Mutex<Option<Instant>>>,
}

impl Hook {
    fn is_over(&self) -> bool {
        lock(&self.end).is_some_and(|end| Instant::now() >= end)
    }
}

fn serve(receiver: &Receiver<Notice>, hook: &Hook, dropped: &AtomicU64) {
    while let Ok(notice) = receiver.recv() {
        if hook.is_over() {
            dropped.fetch_add(1, Ordering::Relaxed);
        } else if let Err(error) = run(hook, &notice) {
            tracing::warn!(%error, "the event hook failed");
        }
    }
}

fn run(hook: &Hook, notice: &Notice) -> std::io::Result<()> {
    let mut event = serde_json::to_value(notice)?;
    if let Some(fields) = event.as_object_mut() {
        fields.insert("schema".to_owned(), EVENT_SCHEMA.into());
        fields.insert("pool".to_owned(), hook.pool.as_str().into());
    }
    let mut command = Command::new("/bin/sh");
    // A group of its own: what the shell has started goes with it.
    let mut child = command.arg("-c").arg(&hook.command).stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0).spawn()?;
    let input = child.stdin.take().map(|input| Input::new(input, &event)).transpose();
    wait(&mut child, input.unwrap_or_default(), hook)
}

/// What the command has not taken of its event yet. Most events fit into the buffer of a pipe; of a long one a command that reads nothing must not keep this
/// thread in a write, where no patience ends it.
struct Input {
    pipe: std::process::ChildStdin,
    rest: Vec<u8>,
}

impl Input {
    fn new(pipe: std::process::ChildStdin, event: &serde_json::Value) -> std::io::Result<Self> {
        fcntl_setfl(&pipe, fcntl_getfl(&pipe)? | OFlags::NONBLOCK)?;
        Ok(Self { pipe, rest: format!("{event}\n").into_bytes() })
    }

    /// Gives what the pipe takes; false when there is nothing more to give. That a command does not read its event is its own affair.
    fn give(&mut self) -> bool {
        while !self.rest.is_empty() {
            match self.pipe.write(&self.rest) {
                Ok(length) => drop(self.rest.drain(..length)),
                Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
            }
        }
        false
    }
}

fn wait(child: &mut Child, mut input: Option<Input>, hook: &Hook) -> std::io::Result<()> {
    let end = Instant::now() + PATIENCE;
    let mut pause = Duration::from_millis(1);
    loop {
        // The end of the event is the end of its pipe.
        if input.as_mut().is_some_and(|input| !input.give()) {
            input = None;
        }
        if child.try_wait()?.is_some() {
            return Ok(());
        }
        if Instant::now() >= end || hook.is_over() {
            // It fails only if all of it has ended just now.
            kill_process_group(Pid::from_child(child), Signal::KILL).unwrap_or_default();
            child.wait()?;
            return Err(std::io::Error::other("it took too long and was killed"));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

#[cfg(test)]
mod tests;

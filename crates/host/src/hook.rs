//! The event hook: a command that is run for each notice, with the notice as JSON on its standard input.
//!
//! One run at a time, in order; at most `QUEUE` notices wait, further ones are dropped and counted, because nothing in the pool may ever wait
//! for a script. A run that takes longer than `PATIENCE` is killed.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use windrow_engine::api::Notice;

const QUEUE: usize = 256;
const PATIENCE: Duration = Duration::from_secs(30);

/// Schema of the JSON that the command gets.
pub const EVENT_SCHEMA: &str = "windrow/event/1";

/// Where notices go: the log, and the hook if there is one.
pub(crate) struct Notifier {
    sender: Mutex<Option<SyncSender<Notice>>>,
    dropped: AtomicU64,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Notifier {
    /// Starts the thread of the hook, if there is a command. `pool` is named in every event.
    pub(crate) fn start(command: Option<String>, pool: String) -> std::io::Result<Self> {
        let Some(command) = command else {
            return Ok(Self { sender: Mutex::new(None), dropped: AtomicU64::new(0), thread: Mutex::new(None) });
        };
        let (sender, receiver) = sync_channel(QUEUE);
        let thread = std::thread::Builder::new().name("windrow-hook".to_owned()).spawn(move || serve(&receiver, &command, &pool))?;
        Ok(Self { sender: Mutex::new(Some(sender)), dropped: AtomicU64::new(0), thread: Mutex::new(Some(thread)) })
    }

    /// Takes a notice; never waits.
    pub(crate) fn notify(&self, notice: Notice) {
        match level(&notice) {
            Level::Info => tracing::info!(?notice, "notice"),
            Level::Warning => tracing::warn!(?notice, "notice"),
            Level::Error => tracing::error!(?notice, "notice"),
        }
        if let Some(sender) = &*crate::sessions::lock(&self.sender)
            && sender.try_send(notice).is_err()
        {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notices that the hook did not get because too many were waiting.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Runs what is waiting, then ends the thread.
    pub(crate) fn close(&self) {
        drop(crate::sessions::lock(&self.sender).take());
        if let Some(thread) = crate::sessions::lock(&self.thread).take() {
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
        Notice::MemberRebuilt { .. } | Notice::ScrubEnded { wrong_blocks: 0, lost_blocks: 0, damaged_batches: 0 } => Level::Info,
        Notice::ScrubEnded { lost_blocks: 0, damaged_batches: 0, .. } => Level::Warning,
        Notice::Repaired { .. } | Notice::MemberSlow { .. } | Notice::MemberRebuilding { .. } | Notice::MemberOffline { .. } => Level::Warning,
        Notice::Filling { .. } | Notice::Overcommitted { .. } | Notice::MapFull { .. } => Level::Warning,
        Notice::ScrubEnded { .. } | Notice::MemberFailed { .. } | Notice::Stopped { .. } => Level::Error,
        Notice::Unrecoverable { .. } | Notice::UnrecoverableReference { .. } | Notice::UnnamedReferences { .. } => Level::Error,
    }
}

fn serve(receiver: &Receiver<Notice>, command: &str, pool: &str) {
    while let Ok(notice) = receiver.recv() {
        if let Err(error) = run(command, pool, &notice) {
            tracing::warn!(%error, "the event hook failed");
        }
    }
}

fn run(command: &str, pool: &str, notice: &Notice) -> std::io::Result<()> {
    let mut event = serde_json::to_value(notice)?;
    if let Some(fields) = event.as_object_mut() {
        fields.insert("schema".to_owned(), EVENT_SCHEMA.into());
        fields.insert("pool".to_owned(), pool.into());
    }
    let mut child = Command::new("/bin/sh").arg("-c").arg(command).stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // The event is smaller than a pipe's buffer, so this does not wait for the command; that it does not read it is its own affair.
        drop(writeln!(input, "{event}"));
    }
    wait(&mut child)
}

fn wait(child: &mut Child) -> std::io::Result<()> {
    let end = Instant::now() + PATIENCE;
    let mut pause = Duration::from_millis(1);
    while child.try_wait()?.is_none() {
        if Instant::now() >= end {
            child.kill()?;
            child.wait()?;
            return Err(std::io::Error::other("it took too long and was killed"));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(100));
    }
    Ok(())
}

#[cfg(test)]
mod tests;

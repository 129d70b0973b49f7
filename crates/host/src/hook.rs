//! The event hook: a command that runs for each notice, with the notice as JSON on its standard
//! input.
//!
//! 1. Commands run one at a time, in order. At most `QUEUE` notices wait; further ones are dropped
//!    and counted, because the pool must never wait for a script.
//! 2. A run that takes longer than `PATIENCE` is killed, with all the processes that it started.
//! 3. At the end, running and waiting commands have `FAREWELL` in all.
//! 4. A bounded number of each kind of notice reaches the log and the command in a minute, followed
//!    by the number of suppressed ones (`limiter.rs`).

use crate::directory::Directory;
use crate::limiter::{Held, Limiter};
use crate::sessions::lock;
use crate::wording::{Level, kind, level, member_of, rfc3339, sentence, volume_of};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Map, Value};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};
use windrow_engine::Notice;
use windrow_types::Uuid;

const QUEUE: usize = 256;
const PATIENCE: Duration = Duration::from_secs(30);
const FAREWELL: Duration = Duration::from_secs(10);

/// Schema of the command's JSON input.
pub const EVENT_SCHEMA: &str = "windrow/event/1";

/// Destination of notices: the log, and the hook if there is one.
pub(crate) struct Notifier {
    names: Arc<Directory>,
    limiter: Mutex<Limiter>,
    /// The limiter holds notices back.
    holds: AtomicBool,
    sender: Mutex<Option<SyncSender<String>>>,
    dropped: Arc<AtomicU64>,
    /// Deadline of the last run; `None` while the pool runs.
    end: Arc<Mutex<Option<Instant>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Notifier {
    /// Starts the thread of the hook, if there is a command.
    pub(crate) fn start(command: Option<String>, names: Arc<Directory>) -> std::io::Result<Self> {
        let notifier = Self {
            names,
            limiter: Mutex::default(),
            holds: AtomicBool::new(false),
            sender: Mutex::default(),
            dropped: Arc::default(),
            end: Arc::default(),
            thread: Mutex::default(),
        };
        let Some(command) = command else {
            return Ok(notifier);
        };
        let (sender, receiver) = sync_channel(QUEUE);
        let (dropped, end) = (notifier.dropped.clone(), notifier.end.clone());
        let body = move || serve(&receiver, &Hook { command, end }, &dropped);
        *lock(&notifier.thread) = Some(
            std::thread::Builder::new()
                .name("windrow-hook".to_owned())
                .spawn(body)?,
        );
        *lock(&notifier.sender) = Some(sender);
        Ok(notifier)
    }

    /// Takes a notice; never waits.
    pub(crate) fn notify(&self, notice: &Notice) {
        let (kind, burst) = kind(notice);
        let now = Instant::now();
        self.summarise(now, false);
        if !lock(&self.limiter).passes(kind, burst, now) {
            self.holds.store(true, Ordering::Relaxed);
            return;
        }
        let text = sentence(notice, &self.names);
        let mut event = serde_json::to_value(notice).unwrap_or_default();
        if let Some(fields) = event.as_object_mut() {
            self.add_names(fields, notice);
        }
        self.publish(level(notice), &text, event);
    }

    /// Logs the count of suppressed messages when their window has ended. Called periodically.
    pub(crate) fn look(&self) {
        if self.holds.load(Ordering::Relaxed) {
            self.summarise(Instant::now(), false);
        }
    }

    fn summarise(&self, now: Instant, all: bool) {
        let held = {
            let mut limiter = lock(&self.limiter);
            let held = limiter.take_held(now, all);
            self.holds.store(limiter.holds(), Ordering::Relaxed);
            held
        };
        for Held { kind, count } in held {
            let text = format!(
                "{count} more messages like this in the last minute: {}",
                kind.replace('_', " ")
            );
            self.publish(
                Level::Warning,
                &text,
                serde_json::json!({ "event": "more", "of": kind, "count": count }),
            );
        }
    }

    /// Adds names for the numbers in a notice.
    fn add_names(&self, fields: &mut Map<String, Value>, notice: &Notice) {
        if let Some(member) = member_of(notice) {
            let place = self.names.place(member);
            let known = [
                ("path", place.last_path),
                ("model", place.model),
                ("serial", place.serial),
            ];
            fields.extend(
                known
                    .into_iter()
                    .filter(|(_, text)| !text.is_empty())
                    .map(|(key, text)| (key.to_owned(), text.into())),
            );
            if place.uuid != Uuid::default() {
                fields
                    .entry("member_uuid")
                    .or_insert_with(|| place.uuid.to_string().into());
            }
        }
        if let Some(volume) = volume_of(notice) {
            fields.insert("volume_name".to_owned(), self.names.volume(volume).into());
        }
    }

    fn publish(&self, level: Level, text: &str, mut event: Value) {
        let name = &self.names.name;
        match level {
            Level::Info => tracing::info!("pool '{name}': {text}"),
            Level::Warning => tracing::warn!("pool '{name}': {text}"),
            Level::Error => tracing::error!("pool '{name}': {text}"),
        }
        let Some(sender) = &*lock(&self.sender) else {
            return;
        };
        if let Some(fields) = event.as_object_mut() {
            let time = rfc3339(SystemTime::now());
            let common = [
                ("schema", EVENT_SCHEMA),
                ("time", &time),
                ("severity", level.name()),
                ("pool", name),
                ("message", text),
            ];
            fields.extend(
                common
                    .into_iter()
                    .map(|(key, value)| (key.to_owned(), value.into())),
            );
            fields.insert("pool_uuid".to_owned(), self.names.pool.to_string().into());
        }
        if sender.try_send(event.to_string()).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notices dropped because the hook's queue was full.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Runs waiting commands until the deadline, then ends the thread.
    pub(crate) fn close(&self) {
        self.close_within(FAREWELL);
    }

    fn close_within(&self, time: Duration) {
        self.summarise(Instant::now(), true);
        *lock(&self.end) = Some(Instant::now() + time);
        drop(lock(&self.sender).take());
        if let Some(thread) = lock(&self.thread).take() {
            drop(thread.join());
        }
    }
}

/// The command and its environment.
struct Hook {
    command: String,
    end: Arc<Mutex<Option<Instant>>>,
}

impl Hook {
    fn is_over(&self) -> bool {
        lock(&self.end).is_some_and(|end| Instant::now() >= end)
    }
}

fn serve(receiver: &Receiver<String>, hook: &Hook, dropped: &AtomicU64) {
    while let Ok(event) = receiver.recv() {
        if hook.is_over() {
            dropped.fetch_add(1, Ordering::Relaxed);
        } else if let Err(error) = run(hook, &event) {
            tracing::warn!(%error, "the event hook failed");
        }
    }
}

fn run(hook: &Hook, event: &str) -> std::io::Result<()> {
    let mut command = Command::new("/bin/sh");
    // A process group of its own, so that all the processes that the shell started are killed with
    // it.
    let mut child = command
        .arg("-c")
        .arg(&hook.command)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()?;
    let input = child
        .stdin
        .take()
        .map(|input| Input::new(input, event))
        .transpose();
    wait(&mut child, input.unwrap_or_default(), hook)
}

/// Rest of the event that the command has not read. Most events fit into a pipe's buffer. Writes do
/// not block: a command that does not read a long event must not hold this thread past the timeout.
struct Input {
    pipe: std::process::ChildStdin,
    rest: Vec<u8>,
}

impl Input {
    fn new(pipe: std::process::ChildStdin, event: &str) -> std::io::Result<Self> {
        fcntl_setfl(&pipe, fcntl_getfl(&pipe)? | OFlags::NONBLOCK)?;
        Ok(Self {
            pipe,
            rest: format!("{event}\n").into_bytes(),
        })
    }

    /// Writes as much as the pipe takes; false when nothing is left. A command need not read its
    /// event.
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
        // Closing the pipe marks the end of the event.
        if input.as_mut().is_some_and(|input| !input.give()) {
            input = None;
        }
        if child.try_wait()?.is_some() {
            return Ok(());
        }
        if Instant::now() >= end || hook.is_over() {
            // Fails only if the whole group has just ended.
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

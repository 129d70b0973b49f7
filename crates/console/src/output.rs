//! Results in both forms: text for people, JSON for programs.

use crate::FAILED;
use clap::ValueEnum;
use serde::Serialize;
use serde_json::Value;
use std::io::Write;
use std::process::ExitCode;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;
use windrow_host::Failure;
use windrow_host::failure::id;
use windrow_host::log::LogQueue;

/// Exit code if the reader of the result went away: the shell's code for a program that SIGPIPE
/// ended, as it ends most.
pub const PIPE: u8 = 128 + 13;

/// Form of the output.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    /// Text for people.
    Text,
    /// JSON for programs: one object with a `schema` field.
    Json,
}

/// Printer of results.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    format: Format,
}

impl Output {
    /// Printer in this form.
    pub fn new(format: Format) -> Self {
        Self { format }
    }

    /// True if JSON was requested.
    pub fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// Prints a result: `value` with its schema `windrow/<name>/1` as JSON, or the text.
    pub fn result(&self, name: &str, value: &impl Serialize, text: impl FnOnce() -> String) {
        match self.format {
            Format::Text => {
                // The text may contain names given by users.
                let text = windrow_host::text::plain_lines(&text());
                let end = if text.is_empty() || text.ends_with('\n') {
                    ""
                } else {
                    "\n"
                };
                print(&format!("{text}{end}"));
            }
            Format::Json => {
                print(&format!("{}\n", with_schema(name, value)));
            }
        }
    }

    /// Prints a failure to standard error; in JSON form to standard output as well, so that a
    /// reader always finds one object there.
    pub fn failure(&self, failure: &Failure) {
        if self.is_json() {
            self.result(
                "error",
                &serde_json::json!({ "error": failure }),
                String::new,
            );
        }
        self.remark(failure);
    }

    /// Prints the failure of a command that has results: in JSON form they are in `report`.
    pub fn failure_after(&self, failure: &Failure, report: &impl Serialize) {
        if self.is_json() {
            self.result(
                "error",
                &serde_json::json!({ "error": failure, "report": report }),
                String::new,
            );
        }
        self.remark(failure);
    }

    /// Prints a failure alongside a result: to standard error only.
    pub fn remark(&self, failure: &Failure) {
        error_text(&format!("windrow: {failure}\n"));
    }
}

/// The queue to standard error, in a daemon.
static LOG: OnceLock<LogQueue> = OnceLock::new();
/// Time to drain the log lines at a daemon's end.
const LOG_END: Duration = Duration::from_secs(2);

/// Sends standard error through a queue from now on. `None` if no thread can be started for it.
pub fn queue_log() -> Option<LogQueue> {
    let queue = LogQueue::start(std::io::stderr()).ok()?;
    Some(LOG.get_or_init(|| queue).clone())
}

/// Drains the queue within a bounded time.
pub fn flush_log() {
    if let Some(queue) = LOG.get() {
        queue.flush(LOG_END);
    }
}

/// Writes to standard error. If that is closed, or its reader gone, there is nowhere left to report
/// it.
pub fn error_text(text: &str) {
    match LOG.get() {
        Some(queue) => queue.push(text.as_bytes()),
        None => drop(std::io::stderr().write_all(text.as_bytes())),
    }
}

/// A result in JSON form: one object with the schema `windrow/<name>/1`.
pub fn with_schema(name: &str, value: &impl Serialize) -> Value {
    let mut json = serde_json::to_value(value)
        .unwrap_or_else(|error| serde_json::json!({ "error": error.to_string() }));
    let schema = format!("windrow/{name}/1");
    match json.as_object_mut() {
        Some(fields) => {
            fields.entry("schema").or_insert(schema.into());
        }
        None => json = serde_json::json!({ "schema": schema, "value": json }),
    }
    json
}

/// The first error of standard output.
static LOST: Mutex<Option<std::io::Error>> = Mutex::new(None);

/// Writes to standard output. A failure is kept for [`end`].
pub fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        LOST.lock()
            .unwrap_or_else(|e| e.into_inner())
            .get_or_insert(error);
    }
}

/// Final exit code of a command that would end with `code`: a result that was not written is no
/// success. It is `failed` then, with a line on standard error, or without one [`PIPE`] if the
/// reader went away. Other codes than 0 stay.
pub fn end(code: u8, failed: u8) -> u8 {
    let Some(error) = LOST.lock().unwrap_or_else(|e| e.into_inner()).take() else {
        return code;
    };
    let left = error.kind() == std::io::ErrorKind::BrokenPipe;
    if !left {
        let failure = Failure::new(
            id::LOCAL_FILE,
            "cannot write the result to standard output",
            error,
        );
        Output::new(Format::Text).remark(
            &failure.remedy("make room, or send it elsewhere; what the command did is done"),
        );
    }
    match (code, left) {
        (0, true) => PIPE,
        (0, false) => failed,
        (code, _) => code,
    }
}

/// The exit code of a program whose command has ended; prints a failure, and checks that results
/// were written.
pub fn finish(output: &Output, outcome: Result<u8, Failure>) -> ExitCode {
    let code = outcome.unwrap_or_else(|failure| {
        output.failure(&failure);
        FAILED
    });
    ExitCode::from(end(code, FAILED))
}

//! Progress of long work: one line on standard error that is overwritten, with rate and remaining
//! time. Silent if standard error is no terminal.

use crate::values::Size;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(200);

/// A progress line.
pub struct Progress {
    what: String,
    begin: Instant,
    shown: Option<Instant>,
    terminal: bool,
}

impl Progress {
    /// Starts a line.
    pub fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            begin: Instant::now(),
            shown: None,
            terminal: std::io::stderr().is_terminal(),
        }
    }

    /// Shows bytes done of all bytes.
    pub fn bytes(&mut self, done: u64, all: u64) {
        if !self.is_due() {
            return;
        }
        let seconds = self.begin.elapsed().as_secs_f64().max(1e-9);
        let rate = done as f64 / seconds;
        let left = all.saturating_sub(done) as f64 / rate.max(1.0);
        let percent = if all == 0 {
            100.0
        } else {
            done as f64 * 100.0 / all as f64
        };
        self.line(&format!(
            "{percent:5.1} %  {}/s  {left:.0} s to go",
            Size(rate as u64)
        ));
    }

    /// Shows steps done of all steps.
    pub fn steps(&mut self, done: u64, all: u64) {
        if !self.is_due() {
            return;
        }
        let rate = done as f64 / self.begin.elapsed().as_secs_f64().max(1e-9);
        let left = all.saturating_sub(done) as f64 / rate.max(1e-9);
        let go = if done == 0 {
            String::new()
        } else {
            format!("  {rate:.0}/s  {left:.0} s to go")
        };
        self.line(&format!("{done} of {all}{go}"));
    }

    /// Shows a text, if an update is due.
    pub fn text(&mut self, text: &str) {
        if self.is_due() {
            self.line(text);
        }
    }

    /// Shows a text at once: before a step without progress reports.
    pub fn note(&mut self, text: &str) {
        if self.terminal {
            self.shown = Some(Instant::now());
            self.line(text);
        }
    }

    /// Shows time passed of all time, with a note.
    pub fn time(&mut self, all: Duration, note: &str) {
        if !self.is_due() {
            return;
        }
        let left = all.saturating_sub(self.begin.elapsed());
        self.line(&format!("{note}  {:.0} s to go", left.as_secs_f64().ceil()));
    }

    fn is_due(&mut self) -> bool {
        let due = self.terminal && self.shown.is_none_or(|shown| shown.elapsed() >= PAUSE);
        if due {
            self.shown = Some(Instant::now());
        }
        due
    }

    fn line(&self, text: &str) {
        crate::output::error_text(&format!("\r\x1b[K{}: {text}", self.what));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.terminal && self.shown.is_some() {
            crate::output::error_text("\r\x1b[K");
        }
    }
}

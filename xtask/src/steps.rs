//! List of steps: run in order, stop at the first failure, print a table at the end.

use std::time::{Duration, Instant};

/// Successful result of a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Done {
    /// Passed; the text is shown with it.
    Passed(String),
    /// Nothing to do, with the reason.
    Skipped(String),
}

/// A step that passed without a remark.
pub fn passed() -> Result<Done, String> {
    Ok(Done::Passed(String::new()))
}

#[derive(Debug)]
struct Row {
    name: &'static str,
    result: Result<Done, String>,
    took: Duration,
}

/// The steps run so far.
#[derive(Debug, Default)]
pub struct Steps {
    rows: Vec<Row>,
    only: Vec<String>,
}

impl Steps {
    /// Runs only the given steps, or all if none is given.
    pub fn new(only: &[String]) -> Self {
        Self {
            rows: Vec::new(),
            only: only.to_vec(),
        }
    }

    /// Runs a step unless an earlier one failed or it is not selected.
    pub fn step(&mut self, name: &'static str, work: impl FnOnce() -> Result<Done, String>) {
        let wanted = self.only.is_empty() || self.only.iter().any(|only| only == name);
        if self.failed() || !wanted {
            return;
        }
        println!("\n== {name}");
        let start = Instant::now();
        let result = work();
        let took = start.elapsed();
        match &result {
            Ok(Done::Skipped(why)) => println!("skipped: {why}"),
            Ok(Done::Passed(_)) => {}
            Err(message) => println!("FAILED: {message}"),
        }
        self.rows.push(Row { name, result, took });
    }

    /// True once a step has failed.
    pub fn failed(&self) -> bool {
        self.rows.iter().any(|row| row.result.is_err())
    }

    /// The table and the closing line that counts the steps.
    pub fn table(&self) -> String {
        let mut out = String::from("\nstep                     result   seconds  note\n");
        for row in &self.rows {
            let (word, note) = match &row.result {
                Ok(Done::Passed(note)) => ("passed", note.as_str()),
                Ok(Done::Skipped(why)) => ("skipped", why.as_str()),
                Err(message) => ("FAILED", message.as_str()),
            };
            let note = note.lines().next().unwrap_or_default();
            let line = format!(
                "{:<24} {word:<8} {:>7.1}  {note}",
                row.name,
                row.took.as_secs_f64()
            );
            out.push_str(line.trim_end());
            out.push('\n');
        }
        let total: Duration = self.rows.iter().map(|row| row.took).sum();
        out.push_str(&format!(
            "{:<24} {:<8} {:>7.1}\n\n{}",
            "all",
            "",
            total.as_secs_f64(),
            self.closing_line()
        ));
        out
    }

    fn closing_line(&self) -> String {
        let count = |test: fn(&Row) -> bool| self.rows.iter().filter(|row| test(row)).count();
        let passed = count(|row| matches!(row.result, Ok(Done::Passed(_))));
        let failed = count(|row| row.result.is_err());
        match count(|row| matches!(row.result, Ok(Done::Skipped(_)))) {
            0 => format!("{passed} passed, {failed} failed"),
            skipped => format!("{passed} passed, {failed} failed, {skipped} skipped"),
        }
    }
}

#[cfg(test)]
mod tests;

//! Results in both forms: text for people, JSON for programs.

use clap::ValueEnum;
use serde::Serialize;
use serde_json::Value;
use std::io::Write;
use windrow_host::Failure;

/// Form of the output.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// For programs: one object with a `schema` field.
    Json,
}

/// Where results go.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    format: Format,
}

impl Output {
    /// In this form.
    pub fn new(format: Format) -> Self {
        Self { format }
    }

    /// True if JSON was asked for.
    pub fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// Prints a result: `value` with its schema `windrow/<name>/1` as JSON, or the text.
    pub fn result(&self, name: &str, value: &impl Serialize, text: impl FnOnce() -> String) {
        match self.format {
            Format::Text => {
                let text = text();
                let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
                print(&format!("{text}{end}"));
            }
            Format::Json => {
                print(&format!("{}\n", with_schema(name, value)));
            }
        }
    }

    /// Prints a failure to standard error; in JSON form to standard output as well, so that a reader finds one object there in any case.
    pub fn failure(&self, failure: &Failure) {
        if self.is_json() {
            self.result("error", &serde_json::json!({ "error": failure }), String::new);
        }
        drop(writeln!(std::io::stderr(), "windrow: {failure}"));
    }
}

/// A result as programs get it: one object with the schema `windrow/<name>/1`.
pub fn with_schema(name: &str, value: &impl Serialize) -> Value {
    let mut json = serde_json::to_value(value).unwrap_or_else(|error| serde_json::json!({ "error": error.to_string() }));
    let schema = format!("windrow/{name}/1");
    match json.as_object_mut() {
        Some(fields) => {
            fields.entry("schema").or_insert(schema.into());
        }
        None => json = serde_json::json!({ "schema": schema, "value": json }),
    }
    json
}

/// Writes to standard output; a reader that went away is its own affair.
pub fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

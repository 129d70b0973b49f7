//! Notes of a load, from which a later process rebuilds the ledger. Lines of text; each is written
//! with one call before the request that it describes is sent:
//!
//! - `w BLOCK COUNT`, `t BLOCK COUNT`: a write, a trim. Their numbers follow from their sequence.
//! - `p NUMBER`: everything up to this number was promised.
//! - `m NAME`: a mark.
//! - `h SENT NUMBER[z] ...`: a judgement found this in the blocks; the ledger
//!   continues from there.
//!
//! A last line without its end was being written when the machine stopped; its request was not
//! sent.

use crate::ledger::Ledger;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

/// A file of notes that grows.
pub struct Notes {
    file: File,
    waiting: String,
}

impl Notes {
    pub fn append(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let file = File::options()
            .create(true)
            .append(true)
            .open(path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        // The rest of a truncated line must not run into the next one.
        file.set_len(whole_lines(&text).len() as u64)
            .map_err(|error| error.to_string())?;
        Ok(Self {
            file,
            waiting: String::new(),
        })
    }

    /// Adds an operation; written with [`Self::push`].
    pub fn operation(&mut self, is_trim: bool, block: u64, count: u64) {
        let kind = if is_trim { 't' } else { 'w' };
        _ = writeln!(self.waiting, "{kind} {block} {count}");
    }

    pub fn promise(&mut self, number: u64) -> Result<(), String> {
        _ = writeln!(self.waiting, "p {number}");
        self.push()
    }

    pub fn mark(&mut self, name: u64) -> Result<(), String> {
        _ = writeln!(self.waiting, "m {name}");
        self.push()
    }

    pub fn held(&mut self, ledger: &Ledger) -> Result<(), String> {
        let (sent, held) = ledger.held();
        _ = write!(self.waiting, "h {sent}");
        for (number, is_zero) in held {
            _ = write!(self.waiting, " {number}{}", if is_zero { "z" } else { "" });
        }
        self.waiting.push('\n');
        self.push()
    }

    pub fn push(&mut self) -> Result<(), String> {
        let waiting = std::mem::take(&mut self.waiting);
        self.file
            .write_all(waiting.as_bytes())
            .map_err(|error| format!("cannot write the notes: {error}"))
    }
}

fn whole_lines(text: &str) -> &str {
    text.rfind('\n').map_or("", |end| &text[..=end])
}

/// The ledger of the notes. With a mark, later promises do not count, and later requests may or may
/// not be in effect.
pub fn read(path: &Path, size_bytes: u64, mark: Option<&str>) -> Result<Ledger, String> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut ledger = Ledger::new(size_bytes);
    let mut is_binding = true;
    for line in whole_lines(&text).lines() {
        if line.starts_with('h') && !is_binding {
            // After the crash at the mark.
            break;
        }
        apply(line, &mut ledger, &mut is_binding, mark)
            .ok_or_else(|| format!("{}: cannot read the line '{line:.40}'", path.display()))?;
    }
    match mark {
        Some(name) if is_binding => Err(format!("{} has no mark {name}", path.display())),
        _ => Ok(ledger),
    }
}

fn apply(line: &str, ledger: &mut Ledger, is_binding: &mut bool, mark: Option<&str>) -> Option<()> {
    let (kind, rest) = line.split_once(' ')?;
    let number = |text: &str| text.parse::<u64>().ok();
    match kind {
        "w" | "t" => {
            let (block, count) = rest.split_once(' ')?;
            let (block, count) = (number(block)?, number(count)?);
            if block.checked_add(count)? > ledger.blocks() {
                return None;
            }
            if kind == "w" {
                ledger.wrote(block, count)
            } else {
                _ = ledger.trim(block, count);
            }
        }
        "p" if *is_binding => ledger.promise(number(rest)?),
        "p" => {}
        "m" => *is_binding &= mark != Some(rest),
        "h" => {
            let mut words = rest.split(' ');
            let sent = number(words.next()?)?;
            let held: Option<Vec<_>> = words
                .map(|word| Some((number(word.trim_end_matches('z'))?, word.ends_with('z'))))
                .collect();
            ledger.resume(sent, held?.into_iter());
        }
        _ => return None,
    }
    Some(())
}

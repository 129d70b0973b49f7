//! A load that records durable writes, a judge of the volume afterwards, and crashes made from the
//! logs of dm-log-writes. For the tests in a guest kernel (`tests/guest`): a process, or the whole
//! machine, may end at any moment, and another one judges.
//!
//! - `promises load --socket S --notes F [--export data] [--seconds N] [--seed N] [--hook COMMAND
//!   [--marks N]]`: writes, trims and flushes over NBD. Each request is noted before it is sent,
//!   each promise (an answered flush) afterwards. With a hook, the load at times waits until all is
//!   answered and flushed. Then it runs the command with the number of this mark as its argument.
//!   It ends after N marks, and with exit code 3 if the server goes away.
//! - `promises judge --socket S --notes F [--mark N]`: reads everything; ends with 1 if a promise
//!   is broken or a block's content is not explained by any order of events. With a mark, only
//!   earlier promises count. Otherwise the content is noted, and a further load can follow.
//! - `promises marks --log F`: the marks in a log of dm-log-writes.
//! - `promises replay --log F --onto F --mark NAME --seed N`: a member's state after a crash at the
//!   mark: all that was flushed before it, and a part, drawn from the seed, of the writes up to the
//!   next flush.

mod load;
mod log_writes;
mod notes;

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../../../../tests/support/ledger.rs"]
mod ledger;
#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../../../../tests/support/nbd.rs"]
mod nbd;
#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../../../../tests/support/random.rs"]
mod random;

use random::Random;
use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;

/// `--name value` pairs.
struct Options(HashMap<String, String>);

impl Options {
    fn parse(words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut words = words.peekable();
        let mut found = HashMap::new();
        while let Some(word) = words.next() {
            let name = word
                .strip_prefix("--")
                .ok_or_else(|| format!("'{word}' is no option"))?;
            let value = words
                .next()
                .ok_or_else(|| format!("{word} needs a value"))?;
            found.insert(name.to_owned(), value);
        }
        Ok(Self(found))
    }

    fn text(&self, name: &str) -> Result<&str, String> {
        self.0
            .get(name)
            .map(String::as_str)
            .ok_or_else(|| format!("--{name} is missing"))
    }

    fn path(&self, name: &str) -> Result<&Path, String> {
        self.text(name).map(Path::new)
    }

    fn number(&self, name: &str, otherwise: u64) -> Result<u64, String> {
        self.0.get(name).map_or(Ok(otherwise), |text| {
            text.parse()
                .map_err(|error| format!("--{name} {text}: {error}"))
        })
    }
}

fn connect(options: &Options) -> Result<nbd::Client, String> {
    let export = options.0.get("export").map_or("data", String::as_str);
    nbd::Client::connect(options.path("socket")?, export)
        .map_err(|error| format!("cannot connect: {error}"))
}

fn judge(options: &Options) -> Result<ExitCode, String> {
    let mut client = connect(options)?;
    let path = options.path("notes")?;
    let mark = options.0.get("mark").map(String::as_str);
    let mut ledger = notes::read(path, client.size_bytes, mark)?;
    let content = client
        .read_all()
        .map_err(|error| format!("the volume cannot be read: {error}"))?;
    let verdict = ledger.judge(&content)?;
    println!(
        "{} operations there, {} were promised",
        verdict.kept, verdict.promised
    );
    if mark.is_none() {
        notes::Notes::append(path)?.held(&ledger)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn run() -> Result<ExitCode, String> {
    let mut words = std::env::args().skip(1);
    let task = words.next().unwrap_or_default();
    let options = Options::parse(words)?;
    match task.as_str() {
        "load" => load::run(connect(&options)?, &options),
        "judge" => judge(&options),
        "marks" => {
            let log = log_writes::Log::open(options.path("log")?)?;
            log.marks()?.iter().for_each(|name| println!("{name}"));
            Ok(ExitCode::SUCCESS)
        }
        "replay" => {
            let log = log_writes::Log::open(options.path("log")?)?;
            let told = log.replay(
                options.path("onto")?,
                options.text("mark")?,
                options.number("seed", 0)?,
            )?;
            println!("{told}");
            Ok(ExitCode::SUCCESS)
        }
        other => Err(format!("no task '{other}': load, judge, marks, replay")),
    }
}

fn main() -> ExitCode {
    run().unwrap_or_else(|why| {
        eprintln!("promises: {why}");
        ExitCode::FAILURE
    })
}

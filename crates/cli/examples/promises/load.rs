//! The load: many requests in flight, one flush at a time.

use crate::ledger::{BLOCK, Ledger};
use crate::nbd::Client;
use crate::notes::{self, Notes};
use crate::{Options, Random};
use std::collections::HashMap;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

const IN_FLIGHT: usize = 16;
/// Most operations between two flushes.
const FLUSH_EVERY: u64 = 60;
/// Exit code of the load if the server goes away.
const SERVER_GONE: u8 = 3;

enum Sent {
    Flush { covers: u64 },
    Forced { number: u64, covers: u64 },
    Plain { number: u64 },
}

struct Load {
    client: Client,
    ledger: Ledger,
    notes: Notes,
    random: Random,
    under_way: HashMap<u64, Sent>,
    cookie: u64,
    operations: u64,
    flushes: u64,
    marks: u64,
}

/// Reason that a load ends early.
enum End {
    ServerGone(String),
    Fault(String),
}

impl From<String> for End {
    fn from(why: String) -> Self {
        Self::Fault(why)
    }
}

pub fn run(client: Client, options: &Options) -> Result<ExitCode, String> {
    let path = options.path("notes")?;
    let size_bytes = client.size_bytes;
    let ledger = if path.exists() {
        notes::read(path, size_bytes, None)?
    } else {
        Ledger::new(size_bytes)
    };
    let (under_way, random) = (HashMap::new(), Random(options.number("seed", 1)?));
    let notes = Notes::append(path)?;
    let mut load = Load {
        client,
        ledger,
        notes,
        random,
        under_way,
        cookie: 0,
        operations: 0,
        flushes: 0,
        marks: 0,
    };
    let ended = load.run(Duration::from_secs(options.number("seconds", 10)?), options);
    println!(
        "{} operations sent, {} flushes, {} marks",
        load.operations, load.flushes, load.marks
    );
    match ended {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(End::ServerGone(why)) => {
            println!("the server went away: {why}");
            Ok(ExitCode::from(SERVER_GONE))
        }
        Err(End::Fault(why)) => Err(why),
    }
}

impl Load {
    fn run(&mut self, time: Duration, options: &Options) -> Result<(), End> {
        let hook = options.0.get("hook");
        let end = Instant::now() + time;
        let mut next_flush = self.random.below(FLUSH_EVERY);
        let marks = options.number("marks", u64::MAX)?;
        while Instant::now() < end && self.marks < marks {
            if self.operations >= next_flush {
                next_flush = self.operations + 1 + self.random.below(FLUSH_EVERY);
                if let Some(hook) = hook
                    && self.random.below(3) == 0
                {
                    self.mark(hook)?;
                } else {
                    self.flush();
                }
            }
            while self.under_way.len() < IN_FLIGHT {
                self.send();
            }
            self.push()?;
            self.receive()?;
        }
        self.finish()
    }

    /// Waits until everything is answered, then flushes, and waits for the answer.
    fn finish(&mut self) -> Result<(), End> {
        self.push()?;
        while !self.under_way.is_empty() {
            self.receive()?;
        }
        self.flush();
        self.push()?;
        self.receive()
    }

    fn mark(&mut self, hook: &str) -> Result<(), End> {
        self.finish()?;
        let status = Command::new(hook).arg(self.marks.to_string()).status();
        if !status
            .map_err(|error| format!("cannot run the hook: {error}"))?
            .success()
        {
            return Err(End::Fault("the hook failed".to_owned()));
        }
        self.notes.mark(self.marks)?;
        self.marks += 1;
        Ok(())
    }

    fn flush(&mut self) {
        if self
            .under_way
            .values()
            .any(|sent| matches!(sent, Sent::Flush { .. }))
        {
            return;
        }
        self.cookie += 1;
        self.client.flush(self.cookie);
        self.under_way.insert(
            self.cookie,
            Sent::Flush {
                covers: self.ledger.acknowledged(),
            },
        );
    }

    fn send(&mut self) {
        self.cookie += 1;
        self.operations += 1;
        let blocks = self.ledger.blocks();
        let is_trim = self.random.below(12) == 0;
        let count = 1 + self.random.below(if is_trim { 16 } else { 8 });
        let block = self.random.below(blocks - count);
        self.notes.operation(is_trim, block, count);
        let sent = if is_trim {
            let number = self.ledger.trim(block, count);
            self.client
                .trim(self.cookie, block * BLOCK as u64, count as usize * BLOCK);
            Sent::Plain { number }
        } else {
            let is_forced = self.random.below(50) == 0;
            let covers = self.ledger.acknowledged();
            let (bytes, number) = self.ledger.write(block, count);
            self.client
                .write(self.cookie, block * BLOCK as u64, &bytes, is_forced);
            if is_forced {
                Sent::Forced { number, covers }
            } else {
                Sent::Plain { number }
            }
        };
        self.under_way.insert(self.cookie, sent);
    }

    fn push(&mut self) -> Result<(), End> {
        self.notes.push()?;
        self.client
            .push()
            .map_err(|error| End::ServerGone(error.to_string()))
    }

    fn receive(&mut self) -> Result<(), End> {
        let answer = self
            .client
            .answer()
            .map_err(|error| End::ServerGone(error.to_string()))?;
        if answer.error != 0 {
            return Err(End::Fault(format!(
                "a request failed with error {}",
                answer.error
            )));
        }
        match self
            .under_way
            .remove(&answer.cookie)
            .ok_or("an answer to no request".to_owned())?
        {
            Sent::Flush { covers } => {
                self.flushes += 1;
                self.ledger.promise(covers);
                self.notes.promise(covers)?;
            }
            Sent::Forced { number, covers } => {
                self.ledger.acknowledge(number);
                self.ledger.promise(covers.max(number));
                self.notes.promise(covers.max(number))?;
            }
            Sent::Plain { number } => self.ledger.acknowledge(number),
        }
        Ok(())
    }
}

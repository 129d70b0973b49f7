//! Loops of a load over NBD, a kill of the daemon and a judgement of the volume.

use super::ledger::Ledger;
use super::nbd::Client;
use super::{Random, Server, World};
use std::collections::HashMap;
use std::time::Duration;

/// Little room, so that segments are cleaned and reused within one loop or two.
const CREATE: &str = "pool create --redundancy 5 --size 24M --sparse --segment 128K --chunk 32K --seal-age 20 tank m0 m1 m2 m3";
const VOLUME_BYTES: u64 = 46 << 20;
const IN_FLIGHT: usize = 32;
/// Most acknowledged operations before a kill.
const OPERATIONS_MAX: u64 = 4000;

/// Sums over all loops.
#[derive(Default, Debug)]
pub struct Summary {
    pub loops: u64,
    pub kills: u64,
    pub sent: u64,
    pub promised: u64,
    pub kept: u64,
    pub flushes: u64,
    pub checks: u64,
    /// Cleaned segments shortly before each kill.
    pub cleaned_segments: u64,
}

pub struct Loops {
    pub world: World,
    pub ledger: Ledger,
    pub random: Random,
    pub options: String,
    /// A volatile cache between the daemon and its members; without it, written data survives a
    /// kill.
    pub has_volatile_cache: bool,
    pub summary: Summary,
}

enum Sent {
    Flush { covers: u64 },
    Forced { number: u64, covers: u64 },
    Plain { number: u64 },
}

impl Loops {
    pub fn new(seed: u64, options: &str) -> Self {
        Self::with_pool(CREATE, seed, options)
    }

    /// With another pool than the usual one.
    pub fn with_pool(create: &str, seed: u64, options: &str) -> Self {
        let world = World::with_volume(create, &VOLUME_BYTES.to_string());
        Self {
            world,
            ledger: Ledger::new(VOLUME_BYTES),
            random: Random(seed),
            options: options.to_owned(),
            has_volatile_cache: true,
            summary: Summary::default(),
        }
    }

    fn options(&mut self) -> String {
        let seed = self.random.next() >> 1;
        let cache = if self.has_volatile_cache {
            format!("--volatile-cache {seed}")
        } else {
            String::new()
        };
        format!("--punch-holes {cache} {}", self.options)
    }

    pub fn serve(&mut self) -> Result<Server, String> {
        let line = self.options();
        self.world
            .try_serve(&line)
            .map_err(|why| format!("the pool cannot be opened: {why}"))
    }

    /// Runs loops until one finds a fault.
    pub fn run(&mut self, loops: u64) -> Result<(), String> {
        let mut server = self.serve()?;
        self.fill(&server)?;
        for number in 0..loops {
            self.write_and_kill(server)?;
            if self.random.below(3) == 0 {
                self.interrupt_recovery();
            }
            server = self.serve()?;
            self.judge(&server)?;
            if number % 2 == 1 || number + 1 == loops {
                server = self.restart_and_check(server)?;
            }
        }
        Ok(())
    }

    /// Reads the whole volume and judges it.
    pub fn judge(&mut self, server: &Server) -> Result<(), String> {
        let content = server
            .client()
            .read_all()
            .map_err(|error| format!("the volume cannot be read: {error}"))?;
        let verdict = self.ledger.judge(&content)?;
        self.summary.loops += 1;
        self.summary.promised += verdict.promised;
        self.summary.kept += verdict.kept;
        Ok(())
    }

    /// Writes the whole volume once, so that cleaning has something to move from the first loop on.
    pub fn fill(&mut self, server: &Server) -> Result<(), String> {
        const BLOCKS: u64 = 256;
        let mut client = server.client();
        for block in (0..self.ledger.blocks()).step_by(BLOCKS as usize) {
            let (bytes, number) = self
                .ledger
                .write(block, BLOCKS.min(self.ledger.blocks() - block));
            client.write(0, block * 4096, &bytes, false);
            let (error, _) = client
                .finish()
                .map_err(|error| format!("the daemon went away: {error}"))?;
            if error != 0 {
                return Err(format!("a request failed with error {error}"));
            }
            self.ledger.acknowledge(number);
        }
        Ok(())
    }

    fn count_cleaned(&mut self) {
        let status = self.world.succeeds("stats tank -o json");
        let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
        self.summary.cleaned_segments += status["counters"]["segments_cleaned"]
            .as_u64()
            .expect("a counter");
    }

    /// Kills the server while it recovers, or soon after: a recovery must survive its own
    /// interruption.
    pub fn interrupt_recovery(&mut self) {
        let line = self.options();
        let mut child = self.world.start(&line);
        std::thread::sleep(Duration::from_millis(self.random.below(60)));
        child.kill().expect("a child");
        child.wait().expect("it is gone");
        self.summary.kills += 1;
    }

    /// A clean end, a check of the members at rest, and a new start.
    pub fn restart_and_check(&mut self, server: Server) -> Result<Server, String> {
        if !server.stop() {
            return Err("the daemon did not end cleanly".to_owned());
        }
        self.world.check()?;
        self.summary.checks += 1;
        self.serve()
    }

    /// Loads the volume until the daemon is killed.
    pub fn write_and_kill(&mut self, server: Server) -> Result<(), String> {
        let mut client = server.client();
        let mut server = Some(server);
        let mut under_way: HashMap<u64, Sent> = HashMap::new();
        let (mut cookie, mut answered, mut is_flushing) = (0, 0, false);
        let kill_at = 1 + self.random.below(OPERATIONS_MAX);
        // Half of the kills come right after the answer to a flush: that detects a flush that was
        // acknowledged but not done.
        let after_flush = self.random.below(2) == 0;
        let mut next_flush = 1 + self.random.below(200);
        loop {
            while server.is_some() && under_way.len() < IN_FLIGHT {
                cookie += 1;
                if !is_flushing && answered >= next_flush {
                    next_flush = answered + 1 + self.random.below(400);
                    is_flushing = true;
                    client.flush(cookie);
                    under_way.insert(
                        cookie,
                        Sent::Flush {
                            covers: self.ledger.acknowledged(),
                        },
                    );
                } else {
                    let sent = self.send(&mut client, cookie);
                    under_way.insert(cookie, sent);
                }
            }
            if server.is_some() {
                client
                    .push()
                    .map_err(|error| format!("the daemon went away: {error}"))?;
            }
            // After the kill: answers received by then count.
            let answer = match client.answer() {
                Ok(answer) => answer,
                Err(_) if server.is_none() => return Ok(()),
                Err(error) => return Err(format!("the daemon went away: {error}")),
            };
            if answer.error != 0 {
                return Err(format!("a request failed with error {}", answer.error));
            }
            let mut was_flush = false;
            match under_way
                .remove(&answer.cookie)
                .ok_or("an answer to no request")?
            {
                Sent::Flush { covers } => {
                    self.ledger.promise(covers);
                    self.summary.flushes += 1;
                    (is_flushing, was_flush) = (false, true);
                }
                Sent::Forced { number, covers } => {
                    self.ledger.acknowledge(number);
                    self.ledger.promise(covers.max(number));
                    answered += 1;
                }
                Sent::Plain { number } => {
                    self.ledger.acknowledge(number);
                    answered += 1;
                }
            }
            if answered == kill_at * 7 / 8 && !was_flush && server.is_some() {
                self.count_cleaned();
            }
            if answered >= kill_at
                && (was_flush || !after_flush)
                && let Some(server) = server.take()
            {
                server.kill();
                self.summary.kills += 1;
            }
        }
    }

    fn send(&mut self, client: &mut Client, cookie: u64) -> Sent {
        let blocks = self.ledger.blocks();
        self.summary.sent += 1;
        if self.random.below(12) == 0 {
            let count = 1 + self.random.below(16);
            let block = self.random.below(blocks - count);
            let number = self.ledger.trim(block, count);
            client.trim(cookie, block * 4096, count as usize * 4096);
            return Sent::Plain { number };
        }
        let count = 1 + self.random.below(8);
        let block = self.random.below(blocks - count);
        let is_forced = self.random.below(100) == 0;
        let covers = self.ledger.acknowledged();
        let (bytes, number) = self.ledger.write(block, count);
        client.write(cookie, block * 4096, &bytes, is_forced);
        if is_forced {
            Sent::Forced { number, covers }
        } else {
            Sent::Plain { number }
        }
    }
}

/// A number that the environment may set.
pub fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

//! The verifying load: random writes over NBD with many in flight and periodic flushes, all
//! recorded in the ledger.

use super::ledger::{BLOCK, Ledger, Verdict, stamp};
use std::io::{Error, Result};
use std::time::Duration;
use windrow_load::nbd_client::NbdClient;
use windrow_load::random::Random;

/// Writes in flight.
const DEPTH: usize = 64;
/// Cookies from here on are flushes.
const FLUSH: u64 = u64::MAX;

/// Writes until the time is over (then everything is flushed) or the server is gone (`Err`; the
/// ledger stays valid). `progress` is called with the number of acknowledged writes.
pub fn write(
    client: &mut NbdClient,
    ledger: &mut Ledger,
    seed: u64,
    flush_every: u64,
    time: Duration,
    progress: &mut dyn FnMut(u64),
) -> Result<u64> {
    let begin = std::time::Instant::now();
    let mut random = Random::new(seed);
    let mut bytes = vec![0; BLOCK];
    let (mut in_flight, mut acknowledged, mut flushing, mut flushed_at) = (0, 0u64, false, 0);
    loop {
        let going_on = begin.elapsed() < time;
        while going_on && in_flight < DEPTH {
            let block = random.below(ledger.blocks());
            let Some(version) = ledger.issue(block) else {
                continue;
            };
            stamp(block, version, &mut bytes);
            client.write(block, block * BLOCK as u64, &bytes)?;
            in_flight += 1;
        }
        let last = !going_on && in_flight == 0;
        if !flushing && (acknowledged >= flushed_at + flush_every || last) {
            if last && acknowledged == flushed_at {
                return Ok(acknowledged);
            }
            ledger.begin_flush();
            client.flush(FLUSH)?;
            (flushing, flushed_at) = (true, acknowledged);
        }
        client.push()?;
        // At least one answer, then all others that have arrived.
        loop {
            let answer = client.answer()?;
            if answer.error != 0 {
                return Err(Error::other(format!(
                    "a request failed with error {}",
                    answer.error
                )));
            }
            if answer.cookie == FLUSH {
                ledger.end_flush();
                flushing = false;
            } else {
                ledger.acknowledge(answer.cookie);
                acknowledged += 1;
                in_flight -= 1;
            }
            if !client.has_answer() {
                break;
            }
        }
        progress(acknowledged);
    }
}

/// Random writes without a ledger, for a rate if fio is not installed. Returns the number of
/// writes.
pub fn hammer(
    client: &mut NbdClient,
    seed: u64,
    span_bytes: u64,
    depth: usize,
    time: Duration,
    progress: &mut dyn FnMut(u64),
) -> Result<u64> {
    let begin = std::time::Instant::now();
    let mut random = Random::new(seed);
    let mut noise = vec![0; 4 << 20];
    random.fill(&mut noise);
    let (mut in_flight, mut done) = (0, 0);
    loop {
        let going_on = begin.elapsed() < time;
        while going_on && in_flight < depth {
            let at = random.below((noise.len() - BLOCK) as u64) as usize;
            client.write(
                0,
                random.below(span_bytes / BLOCK as u64) * BLOCK as u64,
                &noise[at..at + BLOCK],
            )?;
            in_flight += 1;
        }
        if in_flight == 0 {
            return Ok(done);
        }
        client.push()?;
        loop {
            let answer = client.answer()?;
            if answer.error != 0 {
                return Err(Error::other(format!(
                    "a request failed with error {}",
                    answer.error
                )));
            }
            (in_flight, done) = (in_flight - 1, done + 1);
            if !client.has_answer() || in_flight == 0 {
                break;
            }
        }
        progress(done);
    }
}

/// Reads the whole volume and judges every block.
pub fn verify(
    client: &mut NbdClient,
    ledger: &Ledger,
    progress: &mut dyn FnMut(u64),
) -> Result<Verdict> {
    const AT_ONCE: u64 = 64;
    let mut verdict = Verdict::default();
    let pieces = ledger.blocks().div_ceil(AT_ONCE);
    let length = |piece: u64| (ledger.blocks() - piece * AT_ONCE).min(AT_ONCE) * BLOCK as u64;
    let (mut next, mut in_flight) = (0, 0);
    while next < pieces || in_flight > 0 {
        while next < pieces && in_flight < 8 {
            client.read(next, next * AT_ONCE * BLOCK as u64, length(next) as u32)?;
            (next, in_flight) = (next + 1, in_flight + 1);
        }
        client.push()?;
        let answer = client.answer()?;
        in_flight -= 1;
        if answer.error != 0 {
            return Err(Error::other(format!(
                "a read failed with error {}",
                answer.error
            )));
        }
        for (at, bytes) in answer.data.chunks_exact(BLOCK).enumerate() {
            ledger.judge(answer.cookie * AT_ONCE + at as u64, bytes, &mut verdict);
        }
        progress(verdict.blocks * BLOCK as u64);
    }
    Ok(verdict)
}

//! The daemon is killed under a mixed load. One volume has an NBD load with a ledger. Another has
//! the kernel's ext4 (through nbdfuse and a loop device), with a verifying fio and a log that is
//! synced record by record. Every second kill is on members with a volatile cache, of which a kill
//! loses a part. After each kill:
//!
//! 1. the first volume holds a prefix of the sent requests that covers every promise;
//! 2. a copy of the second one, mounted once so that ext4 replays its journal, is clean for
//!    `e2fsck -fn`;
//! 3. in the mounted file system, every record whose fsync had returned is there, and fio finds
//!    every file complete that it had synced to the end;
//! 4. the pool ends cleanly, and `windrow check` with payload and parity finds no error.
//!
//! `cargo xtask kill-loop --kills 300` makes it long. If a program is missing or mounting is not
//! allowed the tests are skipped with a message; `kill-loop` fails then.

use crate::support;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use support::loops::{Loops, from_environment};
use support::mounted::{FileSystem, Mounted};
use support::{Random, Server, both, find, installed, tool};

/// Room for both volumes, and little more, so that segments are cleaned.
const CREATE: &str = "pool create --redundancy 5 --size 48M --sparse --segment 128K --chunk 32K --seal-age 20 tank m0 m1 m2 m3";
const FILE_SYSTEM: &str = "volume create tank/files 48M";
const RECORD_BYTES: usize = 512;
/// Most files of fio that are kept.
const WHOLE_MAX: u64 = 3;

fn record(number: u64) -> Vec<u8> {
    let mut bytes = Random(number).bytes(RECORD_BYTES);
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Load in the file system.
struct Work {
    log: Option<JoinHandle<()>>,
    /// Records whose fsync has returned.
    synced: Arc<AtomicU64>,
    churn: Child,
    said: PathBuf,
}

fn fio(files: &Path, name: &str, more: &[&str]) -> Command {
    let mut command = Command::new(find("fio").expect("it is installed"));
    command
        .arg(format!("--name={name}"))
        .arg(format!("--directory={}", files.display()))
        .args(["--ioengine=psync", "--bs=4k", "--verify=crc32c"]);
    // Without fio's own verification notes, which it would leave in the current folder.
    command
        .args([
            "--verify_fatal=1",
            "--randrepeat=1",
            "--allow_mounted_write=1",
            "--verify_state_save=0",
        ])
        .args(more)
        .stdin(Stdio::null());
    command
}

impl Work {
    fn begin(files: &Path, said: PathBuf, first: u64) -> Self {
        let synced = Arc::new(AtomicU64::new(first));
        let mut log = File::options()
            .create(true)
            .append(true)
            .open(files.join("log"))
            .expect("a log");
        let noted = synced.clone();
        // Ends with the daemon: then writes fail.
        let log = std::thread::spawn(move || {
            for number in first.. {
                if log
                    .write_all(&record(number))
                    .and_then(|()| log.sync_all())
                    .is_err()
                {
                    return;
                }
                noted.store(number + 1, Ordering::SeqCst);
            }
        });
        // (As a thread: a job that is a process has its own session, and outlives a kill.)
        let more = [
            "--thread",
            "--rw=randrw",
            "--size=6m",
            "--direct=1",
            "--fsync=16",
            "--verify_backlog=32",
            "--time_based",
            "--runtime=600",
        ];
        let told = File::create(&said).expect("a file");
        let churn = fio(files, "churn", &more)
            .stdout(told.try_clone().expect("a file"))
            .stderr(told)
            .spawn()
            .expect("fio starts");
        // A kill before anything was synced proves nothing.
        let end = Instant::now() + Duration::from_secs(10);
        while synced.load(Ordering::SeqCst) < first + 3 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        Self {
            log: Some(log),
            synced,
            churn,
            said,
        }
    }

    /// Ends the load after the kill. Returns the number of records that must be there.
    fn end(mut self) -> Result<u64, String> {
        self.log
            .take()
            .map(JoinHandle::join)
            .expect("once")
            .map_err(|_| "the log's writer panicked")?;
        drop(self.churn.kill());
        drop(self.churn.wait());
        let said = std::fs::read_to_string(&self.said).unwrap_or_default();
        // Its requests fail once the daemon is gone; the data that it has read must be right.
        if said.contains("bad header")
            || said.contains("bad magic")
            || said.contains("verify failed")
        {
            return Err(format!("fio read something wrong: {said}"));
        }
        Ok(self.synced.load(Ordering::SeqCst))
    }
}

struct Kills {
    loops: Loops,
    synced: u64,
    /// Files that fio wrote and synced, by round.
    whole: Vec<u64>,
    judges_volume: bool,
    /// Records that must be there, of all rounds.
    records: u64,
}

impl Kills {
    fn new(seed: u64, options: &str) -> Self {
        let loops = Loops::with_pool(CREATE, seed, options);
        loops.world.succeeds(FILE_SYSTEM);
        Self {
            loops,
            synced: 0,
            whole: Vec::new(),
            judges_volume: true,
            records: 0,
        }
    }

    /// `None` if mounting is not allowed.
    fn mount(&self, server: &Server) -> Option<(FileSystem, Mounted)> {
        let disk = Mounted::new(&self.loops.world, &server.uri("files"))?;
        if self.whole.is_empty() {
            tool(
                self.loops.world.path(),
                "mke2fs",
                &["-q", "-F", "-t", "ext4", "-b", "4096", "disk"],
            );
        }
        Some((FileSystem::new(&self.loops.world, &disk)?, disk))
    }

    fn run(&mut self, kills: u64) -> Result<bool, String> {
        let begin = Instant::now();
        let mut server = self.loops.serve()?;
        self.loops.fill(&server)?;
        for number in 0..kills {
            let Some(mounted) = self.mount(&server) else {
                return if number == 0 {
                    Ok(false)
                } else {
                    Err("it cannot be mounted any more".to_owned())
                };
            };
            self.whole(mounted.0.path(), number)?;
            let work = Work::begin(
                mounted.0.path(),
                self.loops.world.file("churn.txt"),
                self.synced,
            );
            let killed = self.loops.write_and_kill(server);
            self.synced = work.end()?;
            self.records += self.synced;
            drop(mounted);
            killed?;
            // Injected faults of the cache need it.
            self.loops.has_volatile_cache =
                !self.loops.has_volatile_cache || !self.loops.options.is_empty();
            server = self.loops.serve()?;
            if self.judges_volume {
                self.loops.judge(&server)?;
            }
            self.judge_copy()?;
            self.judge_files(&server)?;
            server = self.loops.restart_and_check(server)?;
            let (done, left) = (number + 1, kills - number - 1);
            let eta_s = begin.elapsed().as_secs_f64() / done as f64 * left as f64;
            eprintln!(
                "kill {done} of {kills}: {} records synced in all, {:.0} minutes left",
                self.synced,
                eta_s / 60.0
            );
        }
        if server.stop() {
            Ok(true)
        } else {
            Err("the daemon did not end cleanly".to_owned())
        }
    }

    /// A file that is written and synced to its end before the kill.
    fn whole(&mut self, files: &Path, number: u64) -> Result<(), String> {
        if let Some(old) = number.checked_sub(WHOLE_MAX) {
            std::fs::remove_file(files.join(format!("whole-{old}.0.0")))
                .map_err(|error| format!("a file of fio is gone: {error}"))?;
            self.whole.retain(|kept| *kept != old);
        }
        let output = fio(
            files,
            &format!("whole-{number}"),
            &[
                "--rw=randwrite",
                "--size=2m",
                "--end_fsync=1",
                "--do_verify=0",
            ],
        )
        .output()
        .expect("fio runs");
        if !output.status.success() {
            return Err(format!("fio: {}", both(&output)));
        }
        // Its name is durable with the folder.
        File::open(files)
            .and_then(|folder| folder.sync_all())
            .map_err(|error| error.to_string())?;
        self.whole.push(number);
        Ok(())
    }

    /// Checks a copy of the file system as the kill left it: the kernel replays the journal, and no
    /// other error is allowed.
    fn judge_copy(&self) -> Result<(), String> {
        let (world, copy) = (&self.loops.world, self.loops.world.file("copy"));
        let uri = format!(
            "nbd+unix:///files?socket={}",
            world.file("nbd.sock").display()
        );
        tool(world.path(), "nbdcopy", &[&uri, "copy"]);
        drop(FileSystem::of(&copy, world.file("copied")).ok_or("the copy cannot be mounted")?);
        let output = Command::new(find("e2fsck").expect("it is installed"))
            .args(["-fn"])
            .arg(&copy)
            .output()
            .expect("e2fsck runs");
        if output.status.success() {
            Ok(())
        } else {
            Err(format!("e2fsck -fn: {}", both(&output)))
        }
    }

    fn judge_files(&mut self, server: &Server) -> Result<(), String> {
        let mounted = self
            .mount(server)
            .ok_or("the file system cannot be mounted after a kill")?;
        let files = mounted.0.path();
        let log = std::fs::read(files.join("log")).map_err(|error| format!("the log: {error}"))?;
        let there = (log.len() / RECORD_BYTES) as u64;
        if there < self.synced {
            return Err(format!(
                "lost: {} records were synced, {there} are there",
                self.synced
            ));
        }
        for (number, bytes) in log
            .chunks_exact(RECORD_BYTES)
            .take(self.synced as usize)
            .enumerate()
        {
            if bytes != record(number as u64) {
                return Err(format!(
                    "wrong: record {number} of {} that were synced is not what was written",
                    self.synced
                ));
            }
        }
        for number in &self.whole {
            let more = [
                "--rw=randwrite",
                "--size=2m",
                "--direct=1",
                "--verify_only=1",
            ];
            let output = fio(files, &format!("whole-{number}"), &more)
                .output()
                .expect("fio runs");
            if !output.status.success() {
                return Err(format!(
                    "fio finds file whole-{number} wrong: {}",
                    both(&output)
                ));
            }
        }
        // Records after the last sync may be there in part; the next records follow those that
        // count.
        let cut = File::options()
            .write(true)
            .open(files.join("log"))
            .and_then(|log| log.set_len(self.synced * RECORD_BYTES as u64));
        cut.map_err(|error| error.to_string())
    }
}

fn obstacle() -> Option<&'static str> {
    if !Path::new("/dev/fuse").exists() {
        return Some("there is no /dev/fuse");
    }
    (!installed(&[
        "nbdfuse", "nbdcopy", "mke2fs", "e2fsck", "mount", "umount", "fio",
    ]))
    .then_some("a program is not installed")
}

/// Reports why nothing is tested, also to a user who has asked for the test by name.
fn skip(why: &str) {
    eprintln!("skipped: {why}");
    if let Some(note) = std::env::var_os("WINDROW_SKIPPED") {
        std::fs::write(note, why).expect("a note");
    }
}

#[test]
fn ext4_and_a_ledger_survive_kills_of_the_daemon() {
    if let Some(why) = obstacle() {
        return skip(why);
    }
    let (kills, seed) = (
        from_environment("WINDROW_KILLS", 4),
        from_environment("WINDROW_KILL_SEED", 1),
    );
    let mut run = Kills::new(seed, "");
    match run.run(kills) {
        Ok(false) => skip("no mount here"),
        Ok(true) => {
            eprintln!(
                "seed {seed}: {:?}, {} records of all rounds, {} synced",
                run.loops.summary, run.records, run.synced
            );
            assert!(
                run.synced > 0
                    && run.loops.summary.promised > 0
                    && run.loops.summary.kills >= kills,
                "{:?}",
                run.loops.summary
            );
        }
        Err(why) => {
            let kept = run.loops.world.keep();
            panic!(
                "seed {seed}, after {:?}: {why}\nmembers kept in {}",
                run.loops.summary,
                kept.display()
            );
        }
    }
}

/// Most kills until members that acknowledge flushes without doing them must be detected, by the
/// file system alone.
const CANARY_KILLS_MAX: u64 = 12;

#[test]
fn dropped_flushes_are_noticed_by_the_file_system() {
    if let Some(why) = obstacle() {
        return eprintln!("skipped: {why}");
    }
    let mut run = Kills::new(5, "--drop-flush-every 1");
    run.judges_volume = false;
    // A pool that cannot be opened any more, or is not sound, counts as a detection.
    let ended =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run.run(CANARY_KILLS_MAX)));
    match ended {
        Ok(Ok(false)) => eprintln!("skipped: no mount here"),
        Ok(Ok(true)) => panic!("dropped flushes were not noticed"),
        Ok(Err(why)) => {
            assert!(
                run.loops.summary.kills > 0,
                "this has nothing to do with flushes: {why}"
            );
            eprintln!("found after {} kills: {why}", run.loops.summary.kills);
        }
        Err(_) => eprintln!("found: a step that has to succeed has failed"),
    }
}

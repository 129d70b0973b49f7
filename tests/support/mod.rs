//! The command and its daemon in a temporary directory, and foreign programs that use it.
#![allow(dead_code, reason = "every test file uses another part")]

pub mod ledger;
pub mod loops;
pub mod mounted;
pub mod nbd;
pub mod pieces;
pub mod random;
pub mod ranges;

pub use random::Random;
pub use ranges::{RangedOption, refuses_with_the_bounds, the_ends_of_ranges_are_answered};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// Four sparse members of 64 MiB, one parity: about 160 MiB for data.
pub const CREATE: &str =
    "pool create --redundancy 5 --size 64M --sparse --segment 256K --chunk 64K tank m0 m1 m2 m3";

/// Programs with which lines of tests may begin; all others are of `windrow`.
const TOOLS: [&str; 2] = ["windrow-lab", "windrow-bench"];

/// A program of the workspace, built alongside the test. (Cargo provides only those of the package
/// under test.)
pub fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a file");
    let path = test
        .ancestors()
        .nth(2)
        .expect("target/PROFILE/deps/TEST")
        .join(name);
    assert!(
        path.is_file(),
        "{} is not built: cargo build --workspace --bins",
        path.display()
    );
    path
}

/// A directory with members, the registry and the sockets.
pub struct World {
    dir: tempfile::TempDir,
}

impl World {
    pub fn new() -> Self {
        // If temporary files are in memory, no file is made for a pool that has data.
        let is_memory = windrow_device::place::of_new_file(&std::env::temp_dir().join("x"))
            .is_ok_and(|place| place.keeps != windrow_device::place::Keeps::Medium);
        let dir = if is_memory {
            tempfile::tempdir_in("/var/tmp")
        } else {
            tempfile::tempdir()
        };
        Self {
            dir: dir.expect("a temporary directory"),
        }
    }

    /// Keeps the directory, for analysing a failure.
    pub fn keep(&mut self) -> PathBuf {
        self.dir.disable_cleanup(true);
        self.dir.path().to_owned()
    }

    /// A world with a pool `tank` and one volume `tank/data` of this size.
    pub fn with_volume(create: &str, size: &str) -> Self {
        let world = Self::new();
        world.succeeds(create);
        world.succeeds(&format!("volume create tank/data {size}"));
        world
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The command of a line of `windrow`, or of the program that it begins with.
    pub fn command(&self, line: &str) -> Command {
        let (name, line) = line
            .split_once(' ')
            .filter(|(first, _)| TOOLS.contains(first))
            .unwrap_or(("windrow", line));
        let mut command = Command::new(program(name));
        command
            .args(line.split_whitespace())
            .current_dir(self.path());
        command
            .env("WINDROW_STATE", self.file("state"))
            .env("WINDROW_RUN", self.file("run"))
            .env_remove("WINDROW_LOG");
        command
    }

    /// The command in a process that a shell has set up before: `ulimit`, `umask`, closed
    /// descriptors.
    pub fn command_under(&self, setup: &str, line: &str) -> Command {
        let direct = self.command(line);
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("{setup}; exec \"$0\" \"$@\"")])
            .arg(direct.get_program())
            .args(direct.get_args());
        command
            .current_dir(self.path())
            .envs(
                direct
                    .get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            )
            .env_remove("WINDROW_LOG");
        command
    }

    pub fn run(&self, line: &str) -> Output {
        self.command(line).output().expect("the command runs")
    }

    /// Runs a line that must end by itself within a minute; after that its processes are killed.
    pub fn bounded(&self, line: &str) -> Output {
        let direct = self.command(line);
        let mut command = Command::new("timeout");
        command
            .args(["--signal=KILL", "60"])
            .arg(direct.get_program())
            .args(direct.get_args())
            .stdin(Stdio::null());
        command
            .current_dir(self.path())
            .envs(
                direct
                    .get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            )
            .env_remove("WINDROW_LOG");
        command.output().expect("timeout runs")
    }

    pub fn succeeds(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(
            output.status.success(),
            "{line}: {}\n{}",
            output.status,
            both(&output)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Checks members at rest: all live data is read and verified.
    pub fn check(&self) -> Result<(), String> {
        let output = self.run("check tank --payload --parity");
        if output.status.code() == Some(0) {
            Ok(())
        } else {
            Err(format!("check: {}\n{}", output.status, both(&output)))
        }
    }

    /// Starts the daemon and waits until it is ready.
    pub fn serve(&self, extra: &str) -> Server {
        self.try_serve(extra)
            .unwrap_or_else(|why| panic!("serve {extra}: {why}"))
    }

    /// As [`World::serve`]; the error is the text on standard error if the daemon ends before it is
    /// ready.
    pub fn try_serve(&self, extra: &str) -> Result<Server, String> {
        self.ready(self.start(extra))
    }

    /// A daemon that is not waited for.
    pub fn not_ready(&self, child: Child) -> Server {
        Server {
            child,
            socket: self.file("nbd.sock"),
            ready: Value::Null,
        }
    }

    /// Waits until a started daemon is ready; the error is the text on standard error if it ends
    /// before.
    pub fn ready(&self, child: Child) -> Result<Server, String> {
        let mut server = self.not_ready(child);
        let mut line = String::new();
        let said = server.child.stdout.take().expect("a pipe");
        BufReader::new(said)
            .read_line(&mut line)
            .map_err(|error| error.to_string())?;
        server.ready = serde_json::from_str(&line).unwrap_or_default();
        if server.ready["event"] == "ready" {
            return Ok(server);
        }
        // Waited for, so that all of its output is in the log.
        drop(server.child.wait());
        Err(std::fs::read_to_string(self.file("serve.log")).unwrap_or_default())
    }

    /// Starts the daemon without waiting. Its standard error goes to `serve.log`.
    pub fn start(&self, extra: &str) -> Child {
        self.start_as(|line| self.command(line), extra)
    }

    /// As [`World::start`]; `command` makes one of a line.
    pub fn start_as(&self, command: impl FnOnce(&str) -> Command, extra: &str) -> Child {
        let log = std::fs::File::create(self.file("serve.log")).expect("a log");
        // Most tests that start without a member intend it, and must not wait for it.
        let patience = if extra.contains("--wait-for-members") {
            ""
        } else {
            "--wait-for-members 0"
        };
        let line =
            format!("serve tank -o json --no-memory-lock --nbd unix:nbd.sock {patience} {extra}");
        command(&line)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the daemon starts")
    }
}

/// Standard output and standard error.
pub fn both(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// A running daemon. Dropping it kills it.
pub struct Server {
    child: Child,
    pub socket: PathBuf,
    pub ready: Value,
}

impl Server {
    pub fn uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.socket.display())
    }

    pub fn client(&self) -> nbd::Client {
        nbd::Client::connect(&self.socket, "data").expect("the export is there")
    }

    /// Sends SIGKILL; the clients handle the end of their sockets.
    pub fn kill(mut self) {
        self.child.kill().expect("it was running");
        self.child.wait().expect("it is gone");
    }

    /// Sends SIGTERM and waits for the process. True if it ended cleanly.
    pub fn stop(self) -> bool {
        self.stop_by("-TERM")
    }

    /// Stops it by another signal.
    pub fn stop_by(mut self, signal: &str) -> bool {
        let told = Command::new("kill")
            .arg(signal)
            .arg(self.child.id().to_string())
            .status();
        assert!(told.expect("kill runs").success());
        self.child.wait().expect("it is gone").success()
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// False, with the reason printed, if one of the programs is not installed.
pub fn installed(programs: &[&str]) -> bool {
    let missing = |name: &&&str| find(name).is_none();
    match programs.iter().find(missing) {
        Some(name) => {
            eprintln!("skipped: {name} is not installed");
            false
        }
        None => true,
    }
}

/// Path of a program. Tools for file systems are often in folders outside a user's search path.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    folders
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// Runs a program, which must succeed; returns both of its outputs.
pub fn tool(dir: &Path, name: &str, arguments: &[&str]) -> String {
    let program = find(name).unwrap_or_else(|| panic!("{name} is not installed"));
    let output = Command::new(program)
        .args(arguments)
        .current_dir(dir)
        .output()
        .expect("it runs");
    assert!(
        output.status.success(),
        "{name} {arguments:?}: {}\n{}",
        output.status,
        both(&output)
    );
    both(&output)
}

//! A daemon as a child process, for the demonstration and for benchmarks, which measure and kill
//! it.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use windrow_host::control::{Command as ControlCommand, ControlClient, Reply};
use windrow_host::failure::{Failure, id};
use windrow_host::report::PoolReport;

/// A running daemon. Dropping it kills it.
pub struct ChildServer {
    child: Child,
    name: String,
    socket: PathBuf,
    control: PathBuf,
    ready: Value,
}

impl ChildServer {
    /// Starts `serve` with its sockets and its registry in `dir`, and waits until it is ready.
    /// `extra` adds arguments.
    pub fn start(
        dir: &Path,
        name: &str,
        extra: impl FnOnce(&mut Command),
    ) -> Result<Self, Failure> {
        let failure = |why: String| Failure::new(id::SERVE, "cannot start the server process", why);
        let (socket, control) = (
            dir.join(format!("{name}.nbd")),
            dir.join(format!("{name}.control")),
        );
        let program = std::env::current_exe().map_err(|error| failure(error.to_string()))?;
        let mut command = Command::new(program);
        command
            .args(["serve", name, "-o", "json", "--no-memory-lock", "--nbd"])
            .arg(format!("unix:{}", socket.display()))
            .arg("--control")
            .arg(&control);
        command
            .env("WINDROW_STATE", dir.join("state"))
            .env("WINDROW_RUN", dir)
            .stdout(Stdio::piped())
            .stdin(Stdio::null());
        extra(&mut command);
        let mut child = command
            .spawn()
            .map_err(|error| failure(error.to_string()))?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output)
                .read_line(&mut line)
                .map_err(|error| failure(error.to_string()))?;
        }
        let ready: Value = serde_json::from_str(&line).unwrap_or_default();
        if ready["event"] != "ready" {
            drop(child.kill());
            drop(child.wait());
            let reported: Option<Failure> = serde_json::from_value(ready["error"].clone()).ok();
            return Err(
                reported.unwrap_or_else(|| failure("it ended before it was ready".to_owned()))
            );
        }
        Ok(Self {
            child,
            name: name.to_owned(),
            socket,
            control,
            ready,
        })
    }

    /// The unix socket of its NBD server.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Its ready line.
    pub fn ready(&self) -> &Value {
        &self.ready
    }

    /// Sends a command.
    pub fn ask(&self, command: ControlCommand) -> Result<Reply, Failure> {
        let client = ControlClient::connect(&self.control, Some(&self.name))?;
        client
            .ok_or_else(|| {
                Failure::new(
                    id::NO_DAEMON,
                    "cannot reach the server process",
                    "it is gone",
                )
            })?
            .ask(command)
    }

    /// Its report.
    pub fn report(&self) -> Result<PoolReport, Failure> {
        match self.ask(ControlCommand::Status)? {
            Reply::Pool(report) => Ok(*report),
            _ => Err(windrow_console::context::unexpected()),
        }
    }

    /// Ends it cleanly.
    pub fn stop(mut self) -> Result<(), Failure> {
        self.ask(ControlCommand::Shutdown {
            export: false,
            force: false,
        })?;
        drop(self.child.wait());
        Ok(())
    }

    /// Kills it (SIGKILL), and waits until it is gone.
    pub fn kill(mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }

    /// Leaves it running; returns its process id.
    pub fn leave(self) -> u32 {
        let process = self.child.id();
        // The guard would kill it.
        std::mem::forget(self);
        process
    }
}

impl Drop for ChildServer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

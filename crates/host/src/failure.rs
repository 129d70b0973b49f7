//! Failures as administrators see them: a stable id, what failed, why, and what to do.
//!
//! The ids are an interface: scripts match them, so a released id never changes its meaning and is
//! never reused.

use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// The stable ids. `WR-<area>-<number>`.
pub mod id {
    /// A command line or configuration value is not valid.
    pub const USAGE: &str = "WR-CLI-001";
    /// The daemon of the pool cannot be reached, or does not understand the command.
    pub const NO_DAEMON: &str = "WR-CLI-002";
    /// A file or socket of windrow itself cannot be used.
    pub const LOCAL_FILE: &str = "WR-CLI-003";
    /// A tool or feature that the command needs is not available.
    pub const NOT_AVAILABLE: &str = "WR-CLI-004";
    /// No such pool is known or found.
    pub const POOL_UNKNOWN: &str = "WR-POOL-001";
    /// The pool cannot be created from what was given.
    pub const POOL_CREATE: &str = "WR-POOL-002";
    /// The pool cannot be opened.
    pub const POOL_OPEN: &str = "WR-POOL-003";
    /// The pool has stopped.
    pub const POOL_STOPPED: &str = "WR-POOL-004";
    /// The pool is served by a daemon, and the command needs it offline.
    pub const POOL_BUSY: &str = "WR-POOL-005";
    /// A property or value was refused.
    pub const POOL_VALUE: &str = "WR-POOL-006";
    /// There is no space.
    pub const POOL_NO_SPACE: &str = "WR-POOL-007";
    /// The members do not make a pool: no superblock, several pools, two histories, or destroyed.
    pub const POOL_REFUSED: &str = "WR-POOL-008";
    /// The pool is damaged beyond what redundancy covers.
    pub const POOL_DAMAGED: &str = "WR-POOL-009";
    /// The pool was written by newer software.
    pub const POOL_NEWER: &str = "WR-POOL-010";
    /// Another host has the pool.
    pub const POOL_FOREIGN: &str = "WR-POOL-011";
    /// Too few members are present.
    pub const POOL_MEMBERS: &str = "WR-POOL-012";
    /// The map needs more memory than it may use.
    pub const POOL_MEMORY: &str = "WR-POOL-013";
    /// The journal devices are missing and may hold records that are nowhere else.
    pub const POOL_JOURNAL: &str = "WR-POOL-014";
    /// A member cannot be opened.
    pub const MEMBER_OPEN: &str = "WR-MEMBER-001";
    /// A member is in use or contains data.
    pub const MEMBER_IN_USE: &str = "WR-MEMBER-002";
    /// A member failed.
    pub const MEMBER_IO: &str = "WR-MEMBER-003";
    /// The state of a member does not allow it.
    pub const MEMBER_STATE: &str = "WR-MEMBER-004";
    /// No such volume.
    pub const VOLUME_UNKNOWN: &str = "WR-VOLUME-001";
    /// A volume of this name exists.
    pub const VOLUME_EXISTS: &str = "WR-VOLUME-002";
    /// No such export.
    pub const EXPORT_UNKNOWN: &str = "WR-EXPORT-001";
    /// An export of this name exists.
    pub const EXPORT_EXISTS: &str = "WR-EXPORT-002";
    /// Clients are connected to what the command would remove.
    pub const IN_USE: &str = "WR-EXPORT-003";
    /// No such client is connected.
    pub const CLIENT_UNKNOWN: &str = "WR-EXPORT-004";
    /// A front-end cannot be started.
    pub const SERVE: &str = "WR-SERVE-001";
    /// The scrub is not in the state that the command is for.
    pub const SCRUB_STATE: &str = "WR-SCRUB-001";
    /// The content of the members cannot be decoded.
    pub const CHECK_DAMAGE: &str = "WR-CHECK-001";
    /// A catalogue of drives, or a drive's own report, cannot be understood.
    pub const PLAN_INPUT: &str = "WR-PLAN-001";
    /// The plan is impossible: no such drive, or a topology that the drives do not make.
    pub const PLAN_VALUE: &str = "WR-PLAN-002";
    /// The format of a trace file is unknown.
    pub const TRACE_FORMAT: &str = "WR-TRACE-001";
    /// A trace has a record that cannot be understood.
    pub const TRACE_RECORD: &str = "WR-TRACE-002";
    /// A trace is damaged: its compression or a checksum does not fit.
    pub const TRACE_DAMAGED: &str = "WR-TRACE-003";
    /// A trace cannot be recorded, or the recording cannot continue.
    pub const RECORDING: &str = "WR-TRACE-004";
    /// A benchmark or demonstration missed its expected result.
    pub const BENCH: &str = "WR-BENCH-001";
    /// A benchmark, simulation or replay cannot run with the values or the trace that it was given.
    pub const BENCH_INPUT: &str = "WR-BENCH-002";
    /// The load of a benchmark or demonstration did not complete on this machine.
    pub const BENCH_LOAD: &str = "WR-BENCH-003";
}

/// One failure.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// Stable id, one of [`id`].
    pub id: String,
    /// The action that failed.
    pub what: String,
    /// Its cause.
    pub why: String,
    /// The next step for the administrator; may be empty.
    pub remedy: String,
}

impl Failure {
    /// A failure without a remedy.
    pub fn new(id: &'static str, what: impl Into<String>, why: impl std::fmt::Display) -> Self {
        Self {
            id: id.to_owned(),
            what: what.into(),
            why: why.to_string(),
            remedy: String::new(),
        }
    }

    /// Adds what to do. If the process lacks a resource that has nothing to do with the file or
    /// device, that advice comes first.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = lacking(&self.why).map_or_else(|| remedy.into(), str::to_owned);
        self
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}: {}: {}",
            self.id,
            OneLine(&self.what),
            OneLine(&self.why)
        )?;
        if !self.remedy.is_empty() {
            write!(f, "; {}", OneLine(&self.remedy))?;
        }
        Ok(())
    }
}

/// Advice on a limit of the process or the host that the system's error names.
pub fn lacking(why: &str) -> Option<&'static str> {
    let answers = [
        (
            "(os error 23)",
            "the host has no more open files: end processes, or raise fs.file-max",
        ),
        (
            "oo many open files in system",
            "the host has no more open files: end processes, or raise fs.file-max",
        ),
        (
            "(os error 24)",
            "let it have more open files (ulimit -n, LimitNOFILE= of a unit)",
        ),
        // Some messages omit the number.
        (
            "oo many open files",
            "let it have more open files (ulimit -n, LimitNOFILE= of a unit)",
        ),
        ("(os error 12)", "let it have more memory"),
        (
            "size of files (ulimit -f) is ",
            "let it write larger files (ulimit -f, LimitFSIZE= of a unit)",
        ),
    ];
    answers
        .into_iter()
        .find(|(answer, _)| why.contains(answer))
        .map(|(_, remedy)| remedy)
}

/// Text that may contain names given by users: it yields no line break and no terminal control
/// sequence.
struct OneLine<'t>(&'t str);

impl std::fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for c in self.0.chars() {
            match c {
                '\n' => f.write_char(' ')?,
                c if crate::text::is_command(c) => write!(f, "{}", c.escape_default())?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    /// A volume's name must not write commands to the administrator's terminal.
    #[test]
    fn a_failure_is_one_line_without_commands_for_a_terminal() {
        let failure = Failure::new(id::USAGE, "cannot do 'a\x1b[2Jb\nc'", "no").remedy("try\tit");
        assert_eq!(
            failure.to_string(),
            "WR-CLI-001: cannot do 'a\\u{1b}[2Jb c': no; try\\tit"
        );
    }

    /// A process without a free descriptor must not cause advice to check the permissions of a
    /// path.
    #[test]
    fn what_the_process_lacks_is_named_with_and_without_the_number_of_the_error() {
        let errors = [(24, "ulimit -n"), (23, "fs.file-max")];
        for (error, says) in
            errors.map(|(code, says)| (std::io::Error::from_raw_os_error(code), says))
        {
            for why in [
                format!("m0: {error}"),
                format!("m0: {}", crate::offline::files::reason(&error)),
            ] {
                let failure = Failure::new(id::MEMBER_OPEN, "no", &why)
                    .remedy("check the path and its permissions");
                assert!(failure.remedy.contains(says), "{failure}");
            }
        }
    }
}

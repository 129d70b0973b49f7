//! Members that daemons of this host have open.
//!
//! Only its daemon opens such a member. Otherwise a search or command could wait for a device that
//! does not answer, would make udev probe it, and would read changing data. So a search skips these
//! members, and a command that names one reports which daemon has it.
//!
//! 1. The daemons are those with control sockets in the run folder or in the registry. They are
//!    asked concurrently, with a timeout.
//! 2. Members are identified by the numbers of the device, or of the file system and file, never by
//!    their paths.
//! 3. A daemon that does not answer still has its members: they are assumed at their paths in the
//!    registry.
//! 4. Members that this process serves itself are known in other ways, and do not count here.

use crate::control::{Command, ControlClient, Patience, Reply};
use crate::failure::{Failure, id};
use crate::paths;
use crate::process::end_commands;
use crate::registry::Registry;
use crate::sessions::lock;
use crate::text::quoted;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use windrow_device::scan::{Identity, beneath, identity};
use windrow_types::Uuid;

/// Timeouts for a daemon's answer. It answers without its engine, so they are short: a command that
/// shows other pools waits for a hanging daemon.
const PATIENCE: Patience = Patience {
    silence: Duration::from_secs(2),
    quick_answer: Duration::from_secs(3),
};
/// Age up to which answers are used again: a search asks about many paths.
const FRESH: Duration = Duration::from_secs(1);
/// Time for retries of a daemon that closes the connection: it has just ended, or is about to
/// listen.
const CLOSING: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(20);

/// A member that a daemon has open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OpenMember {
    /// Its slot.
    pub member: u8,
    /// Its identifier.
    pub uuid: Uuid,
    /// Its device or file.
    pub identity: Identity,
}

/// A daemon with members.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// Name of its pool.
    pub name: String,
    /// Identifier of its pool.
    pub pool: Uuid,
    /// Its process, if known.
    pub process: Option<u32>,
    /// Its end has been requested.
    pub is_ending: bool,
    /// Reason why it did not answer.
    pub silent: Option<Failure>,
}

impl Holder {
    /// The daemon in a sentence.
    pub fn subject(&self) -> String {
        self.process.map_or_else(
            || "a daemon".to_owned(),
            |process| format!("process {process}"),
        )
    }

    /// The failure of a command on a pool that is served.
    pub fn busy(&self, what: impl Into<String>) -> Failure {
        let silent = self
            .silent
            .as_ref()
            .map(|failure| format!(", and does not answer: {}", failure.why))
            .unwrap_or_default();
        let ending = if self.is_ending {
            ", and is about to end"
        } else {
            ""
        };
        let why = format!("{} serves it already{ending}{silent}", self.subject());
        let remedy = self.process.map_or_else(
            || "stop it first".to_owned(),
            |process| format!("stop that one first: {}", end_commands(process)),
        );
        Failure::new(id::POOL_BUSY, what, why).remedy(remedy)
    }
}

/// A member with the daemon that has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    /// Its slot, if known.
    pub member: Option<u8>,
    /// Its identifier, if known.
    pub uuid: Option<Uuid>,
    /// The daemon.
    pub holder: Arc<Holder>,
    /// The member is a partition of this device, or a volume on it.
    pub is_beneath: bool,
}

impl Held {
    /// The member and the daemon that has it, in a sentence about `path`.
    pub fn reason(&self, path: &Path) -> String {
        let member = self.member.map_or_else(
            || "a member".to_owned(),
            |member| format!("member {member}"),
        );
        let is = if self.is_beneath { "holds" } else { "is" };
        format!(
            "{} {is} {member} of pool '{}', which {} serves",
            path.display(),
            self.holder.name,
            self.holder.subject()
        )
    }

    /// The failure of a command on a member that a daemon has.
    pub fn failure(&self, id: &'static str, what: impl Into<String>, path: &Path) -> Failure {
        let remedy = format!(
            "ask the daemon (`windrow pool status {}`), or stop it first",
            quoted(&self.holder.name)
        );
        Failure::new(id, what, self.reason(path)).remedy(remedy)
    }
}

/// All members that daemons of this host have open.
#[derive(Clone, Debug, Default)]
pub struct Served {
    members: HashMap<Identity, Held>,
    holders: Vec<Arc<Holder>>,
}

/// The last answers, and their time.
static LATEST: Mutex<Option<(Instant, Arc<Served>)>> = Mutex::new(None);

impl Served {
    /// The daemons' answers of the last second, or new ones.
    pub fn now() -> Arc<Self> {
        let mut latest = lock(&LATEST);
        match &*latest {
            Some((at, served)) if at.elapsed() < FRESH => served.clone(),
            _ => Self::keep(&mut latest),
        }
    }

    /// New answers of the daemons.
    pub fn ask() -> Arc<Self> {
        Self::keep(&mut lock(&LATEST))
    }

    fn keep(latest: &mut Option<(Instant, Arc<Self>)>) -> Arc<Self> {
        let registry = Registry::new(&paths::state_dir());
        let served = Arc::new(Self::at(&sockets(&registry), &registry));
        *latest = Some((Instant::now(), served.clone()));
        served
    }

    /// Members of the daemons at these sockets.
    pub fn at(sockets: &[PathBuf], registry: &Registry) -> Self {
        Self::at_beside(std::process::id(), sockets, registry)
    }

    /// As [`Served::at`], without those of the process `own`.
    fn at_beside(own: u32, sockets: &[PathBuf], registry: &Registry) -> Self {
        let answers: Vec<_> = std::thread::scope(|scope| {
            let asked: Vec<_> = sockets
                .iter()
                .map(|socket| scope.spawn(move || ask_one(own, socket)))
                .collect();
            asked
                .into_iter()
                .map(|asked| {
                    asked
                        .join()
                        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                })
                .collect()
        });
        let mut served = Self::default();
        for (socket, answer) in sockets.iter().zip(answers) {
            match answer {
                Answer::Gone => {}
                Answer::Daemon(holder, members) => served.add(
                    holder,
                    members.into_iter().map(|open| (open.identity, Some(open))),
                ),
                Answer::Silent(process, failure) => {
                    // An unreadable entry names no members.
                    let known = registry.all().into_iter().find(|entry| {
                        entry.control.as_ref() == Some(socket)
                            || entry.name == paths::pool_of_socket(socket)
                    });
                    let Some(entry) = known else { continue };
                    let holder = Holder {
                        name: entry.name,
                        pool: entry.pool,
                        process,
                        is_ending: false,
                        silent: Some(failure),
                    };
                    let there = entry
                        .members
                        .iter()
                        .filter_map(|path| identity(path).ok().flatten());
                    served.add(holder, there.map(|identity| (identity, None)));
                }
            }
        }
        served
    }

    fn add(
        &mut self,
        holder: Holder,
        members: impl Iterator<Item = (Identity, Option<OpenMember>)>,
    ) {
        let holder = Arc::new(holder);
        self.holders.push(holder.clone());
        for (identity, open) in members {
            let held = Held {
                member: open.map(|open| open.member),
                uuid: open.map(|open| open.uuid),
                holder: holder.clone(),
                is_beneath: false,
            };
            // Opening a disk makes udev probe its partitions, too.
            for below in beneath(identity) {
                self.members.entry(below).or_insert_with(|| Held {
                    is_beneath: true,
                    ..held.clone()
                });
            }
            self.members.insert(identity, held);
        }
    }

    /// All daemons.
    pub fn daemons(&self) -> &[Arc<Holder>] {
        &self.holders
    }

    /// The devices and files of all members, and the devices under them.
    pub fn identities(&self) -> HashSet<Identity> {
        self.members.keys().copied().collect()
    }

    /// The member at this path, if a daemon has it.
    pub fn held(&self, path: &Path) -> Option<&Held> {
        if self.members.is_empty() {
            return None;
        }
        self.members.get(&identity(path).ok().flatten()?)
    }

    /// The daemon of a pool, by its identifier or name.
    pub fn daemon_of(&self, pool: &str) -> Option<&Holder> {
        let by_identifier = self
            .holders
            .iter()
            .find(|holder| holder.pool.to_string() == pool);
        by_identifier
            .or_else(|| self.holders.iter().find(|holder| holder.name == pool))
            .map(|holder| &**holder)
    }

    /// The daemon of the pool with this identifier.
    pub fn daemon_with(&self, pool: Uuid) -> Option<&Holder> {
        self.holders
            .iter()
            .find(|holder| holder.pool == pool)
            .map(|holder| &**holder)
    }

    /// The daemons with members in these places: files, devices, and folders of them.
    pub fn in_places(&self, places: &[PathBuf]) -> Vec<Arc<Holder>> {
        let mut found: Vec<Arc<Holder>> = Vec::new();
        if self.members.is_empty() {
            return found;
        }
        for place in places {
            let content = std::fs::read_dir(place).map_or_else(
                |_| vec![place.clone()],
                |entries| entries.flatten().map(|entry| entry.path()).collect(),
            );
            for held in content.iter().filter_map(|path| self.held(path)) {
                if !found.contains(&held.holder) {
                    found.push(held.holder.clone());
                }
            }
        }
        found
    }
}

/// Control sockets of this host, each once: those in the run folder, and others in the registry.
pub fn sockets(registry: &Registry) -> Vec<PathBuf> {
    // In a folder that others can write to, any process could answer as a daemon: commands that
    // talk to daemons refuse it.
    let folder = paths::trusted_run_dir().ok().flatten();
    let files = folder
        .and_then(|folder| std::fs::read_dir(folder).ok())
        .into_iter()
        .flatten()
        .flatten()
        .map(|file| file.path());
    let in_folder = files.filter(|path| {
        path.extension()
            .is_some_and(|extension| extension == "control")
    });
    let elsewhere = registry.all().into_iter().filter_map(|entry| entry.control);
    in_folder
        .chain(elsewhere)
        .collect::<BTreeSet<PathBuf>>()
        .into_iter()
        .collect()
}

enum Answer {
    Gone,
    Daemon(Holder, Vec<OpenMember>),
    /// Its process, if known, and the reason.
    Silent(Option<u32>, Failure),
}

fn ask_one(own: u32, socket: &Path) -> Answer {
    let begin = Instant::now();
    loop {
        let mut daemon = match ControlClient::connect_within(socket, None, PATIENCE) {
            Ok(Some(daemon)) => daemon,
            Ok(None) => return Answer::Gone,
            Err(failure) => return Answer::Silent(None, failure),
        };
        let process = daemon
            .process()
            .and_then(|process| u32::try_from(process.id()).ok());
        // Checked before it is asked: a daemon whose connections are all in use would take itself
        // for one that does not answer.
        if process == Some(own) {
            return Answer::Gone;
        }
        match daemon.ask(Command::Identify) {
            Ok(Reply::Daemon { process, .. }) if process == own => return Answer::Gone,
            Ok(Reply::Daemon {
                name,
                pool,
                process,
                ending,
                members,
            }) => {
                return Answer::Daemon(
                    Holder {
                        name,
                        pool,
                        process: Some(process),
                        is_ending: ending,
                        silent: None,
                    },
                    members,
                );
            }
            // Another program's socket.
            Ok(_) => return Answer::Gone,
            Err(failure)
                if failure.what.starts_with("lost the daemon") && begin.elapsed() < CLOSING =>
            {
                std::thread::sleep(PAUSE)
            }
            Err(failure) => return Answer::Silent(process, failure),
        }
    }
}

#[cfg(test)]
mod tests;

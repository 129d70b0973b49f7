//! The daemons of this host: all of them are asked at once, so that one that stands does not hide the others.

use crate::context::{PoolPlace, report_of};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use windrow_host::control::{ControlClient, Patience};
use windrow_host::failure::{Failure, id};
use windrow_host::paths;
use windrow_host::report::PoolReport;

/// What they answered.
#[derive(Default)]
pub struct Daemons {
    /// The pools that are served, by name.
    pub pools: BTreeMap<String, PoolReport>,
    /// Names of pools whose daemons do not answer, and why.
    pub silent: BTreeMap<String, Failure>,
}

/// Asks the daemons whose sockets are in the run folder, and the one at the socket that is named.
///
/// # Errors
/// The folder cannot be trusted or read.
pub fn ask_all(place: &PoolPlace) -> Result<Daemons, Failure> {
    let mut sockets = match paths::trusted_run_dir()? {
        Some(folder) => in_folder(&folder)?,
        None => Vec::new(),
    };
    sockets.extend(place.control.clone());
    let mut daemons = Daemons::default();
    let answers: Vec<_> = std::thread::scope(|scope| {
        let asked: Vec<_> = sockets.iter().map(|socket| scope.spawn(|| ask(socket))).collect();
        // A panic of such a thread is one of this command.
        asked.into_iter().map(|asked| asked.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    for (socket, answer) in sockets.iter().zip(answers) {
        match answer {
            Ok(Some(report)) => drop(daemons.pools.insert(report.name.clone(), report)),
            Ok(None) => {}
            Err(failure) => drop(daemons.silent.insert(paths::pool_of_socket(socket), failure)),
        }
    }
    Ok(daemons)
}

fn in_folder(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failure = |error| Failure::new(id::LOCAL_FILE, format!("cannot read the folder of control sockets {}", folder.display()), error);
    let files = std::fs::read_dir(folder).map_err(|error| failure(error).remedy("check your rights to it"))?;
    Ok(files.flatten().map(|file| file.path()).filter(|path| path.extension().is_some_and(|extension| extension == "control")).collect())
}

/// `None` if no daemon is there any more.
fn ask(socket: &Path) -> Result<Option<PoolReport>, Failure> {
    let daemon = ControlClient::connect_within(socket, None, Patience::ONE_OF_ALL)?;
    daemon.map(|mut daemon| report_of(&mut daemon)).transpose()
}

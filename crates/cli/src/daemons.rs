//! The daemons of this host, asked concurrently, so that a hanging one does not hide the others.

use std::collections::BTreeMap;
use std::path::Path;
use windrow_console::context::{PoolPlace, registry, report_of};
use windrow_host::control::{ControlClient, Patience};
use windrow_host::failure::{Failure, id};
use windrow_host::report::PoolReport;
use windrow_host::{paths, served};

/// Answers of the daemons.
#[derive(Default)]
pub struct Daemons {
    /// The pools that are served, by name.
    pub pools: BTreeMap<String, PoolReport>,
    /// Names of pools whose daemons do not answer, and the failures.
    pub silent: BTreeMap<String, Failure>,
}

/// Asks the daemons whose sockets are in the run folder, those elsewhere that the registry knows,
/// and the one at the given socket.
///
/// # Errors
/// The folder cannot be trusted or read.
pub fn ask_all(place: &PoolPlace) -> Result<Daemons, Failure> {
    if let Some(folder) = paths::trusted_run_dir()? {
        must_be_readable(&folder)?;
    }
    let registry = registry();
    let mut sockets = served::sockets(&registry);
    sockets.extend(
        place
            .control
            .clone()
            .filter(|control| !sockets.contains(control)),
    );
    let mut daemons = Daemons::default();
    let answers: Vec<_> = std::thread::scope(|scope| {
        let asked: Vec<_> = sockets
            .iter()
            .map(|socket| scope.spawn(|| ask(socket)))
            .collect();
        // A panic of such a thread is one of this command.
        asked
            .into_iter()
            .map(|asked| {
                asked
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect()
    });
    for (socket, answer) in sockets.iter().zip(answers) {
        match answer {
            Ok(Some(report)) => drop(daemons.pools.insert(report.name.clone(), report)),
            Ok(None) => {}
            Err(failure) => {
                // A socket elsewhere need not have the name of the pool.
                let known = registry
                    .all()
                    .into_iter()
                    .find(|entry| entry.control.as_ref() == Some(socket));
                daemons.silent.insert(
                    known.map_or_else(|| paths::pool_of_socket(socket), |entry| entry.name),
                    failure,
                );
            }
        }
    }
    Ok(daemons)
}

fn must_be_readable(folder: &Path) -> Result<(), Failure> {
    let failure = |error| {
        Failure::new(
            id::LOCAL_FILE,
            format!(
                "cannot read the folder of control sockets {}",
                folder.display()
            ),
            error,
        )
    };
    std::fs::read_dir(folder)
        .map(drop)
        .map_err(|error| failure(error).remedy("check your rights to it"))
}

/// `None` if the daemon has ended.
fn ask(socket: &Path) -> Result<Option<PoolReport>, Failure> {
    let daemon = ControlClient::connect_within(socket, None, Patience::ONE_OF_ALL)?;
    daemon.map(|mut daemon| report_of(&mut daemon)).transpose()
}

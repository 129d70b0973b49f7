//! A second daemon of a pool: refused at once, with the process of the first one.

use std::time::{Duration, Instant};
use windrow_console::context::PoolPlace;
use windrow_host::Failure;
use windrow_host::control::{Command, ControlClient, Patience, Reply};
use windrow_host::failure::id;
use windrow_host::offline::{self, FoundPool, PoolTarget};
use windrow_host::process::end_commands;
use windrow_host::served::Served;

/// Longest wait for a daemon that is about to end: its clients have some seconds to finish, and it
/// writes a checkpoint.
const ENDING: Duration = Duration::from_secs(30);
/// Time for retries of a daemon that closes the connection: it has just ended, or is about to
/// listen.
const CLOSING: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);

/// Waits while a daemon that has members of the pool is about to end, and this one is not. False if
/// there is none.
///
/// # Errors
/// It does not end.
pub fn wait_for_end(
    target: &PoolTarget,
    name: Option<&str>,
    is_ended: &dyn Fn() -> bool,
) -> Result<bool, Failure> {
    let begin = Instant::now();
    let mut is_said = false;
    // Without a name, any daemon with members in these places is in the way.
    let in_the_way = |served: &Served| {
        let unnamed = target
            .name
            .is_none()
            .then(|| served.in_places(&target.dirs).into_iter().next());
        offline::daemon_of(target, served).or(unnamed.flatten())
    };
    while let Some(daemon) = in_the_way(&Served::ask()) {
        if is_ended() {
            return Ok(true);
        }
        if !daemon.is_ending || begin.elapsed() >= ENDING {
            return Err(daemon.busy(format!(
                "cannot serve pool '{}'",
                name.unwrap_or(&daemon.name)
            )));
        }
        if !is_said {
            tracing::warn!(
                "{} serves the pool and is about to end: its end is waited for",
                daemon.subject()
            );
        }
        is_said = true;
        std::thread::sleep(PAUSE);
    }
    Ok(is_said)
}

/// Refuses if a daemon listens at the socket. Without this check the members' locks would be waited
/// for silently.
///
/// # Errors
/// There is one, whether it answers or not.
pub fn must_be_alone(found: &FoundPool, place: &PoolPlace) -> Result<(), Failure> {
    let (socket, begin) = (place.control_socket(&found.name), Instant::now());
    let what = format!("cannot serve pool '{}'", found.name);
    let refused = |why: String, remedy: &str| {
        Err(Failure::new(id::POOL_BUSY, what.clone(), why).remedy(remedy))
    };
    let mut is_said = false;
    loop {
        let Some(mut daemon) = ControlClient::connect_within(&socket, None, Patience::ONE_OF_ALL)?
        else {
            return Ok(());
        };
        let process = daemon
            .process()
            .map(|process| process.id().to_string())
            .unwrap_or_default();
        match daemon.ask(Command::Identify) {
            Ok(Reply::Daemon { ending: true, .. }) if begin.elapsed() < ENDING => {
                if !is_said {
                    tracing::warn!(
                        "process {process}, which serves the pool, is about to end: its end is waited for"
                    );
                }
                is_said = true;
            }
            Ok(Reply::Daemon {
                pool,
                process,
                ending,
                ..
            }) if pool == found.pool => {
                let about = if ending {
                    ", and has been about to end for 30 s"
                } else {
                    " already"
                };
                return refused(
                    format!("process {process} serves it{about}"),
                    &format!("stop that one first: {}", end_commands(process)),
                );
            }
            Ok(Reply::Daemon {
                name,
                pool,
                process,
                ..
            }) => {
                let why = format!(
                    "process {process} serves another pool, '{name}' ({pool}), with the socket {}",
                    socket.display()
                );
                return refused(why, "choose another socket with --control");
            }
            Ok(_) => return Err(windrow_console::context::unexpected()),
            // It has just ended.
            Err(failure)
                if failure.what.starts_with("lost the daemon") && begin.elapsed() < CLOSING => {}
            Err(failure) => {
                return refused(
                    format!("{}: {}", failure.what, failure.why),
                    &failure.remedy,
                );
            }
        }
        std::thread::sleep(PAUSE);
    }
}

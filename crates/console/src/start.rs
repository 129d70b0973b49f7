//! Start of every program: its surroundings, and its log.

use std::io::IsTerminal;
use std::sync::Arc;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Corrects inherited settings that could harm more than one command.
pub fn surroundings() {
    // Files that others can write to cannot be trusted: no inherited mask may create such files.
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask | rustix::fs::Mode::WGRP | rustix::fs::Mode::WOTH);
    // A write beyond the limit on the size of files is an error, as on a full file system, and must
    // not end the process.
    drop(signal_hook::flag::register(
        signal_hook::consts::SIGXFSZ,
        Arc::default(),
    ));
    windrow_device::host::raise_file_size_limit();
}

/// Starts the log to standard error. Errors: something was lost or stopped. Warnings: the pool
/// continues, but the administrator should look. Info: changes of state. Nothing is logged for
/// single requests. The log of a daemon goes through a queue: no thread of it may wait for the
/// reader of standard error. Panic messages go there too, as they come from any thread, also from
/// the one that has the engine.
pub fn log(is_daemon: bool) {
    let wanted = std::env::var("WINDROW_LOG")
        .ok()
        .and_then(|text| text.parse::<Targets>().ok());
    let filter = wanted.unwrap_or_else(|| Targets::new().with_default(LevelFilter::WARN));
    let registry = tracing_subscriber::registry().with(filter);
    // The reader of the log may be gone; an error message on standard error would end the logging
    // thread.
    let lines = fmt::layer().log_internal_errors(false).with_target(false);
    match is_daemon.then(crate::output::queue_log).flatten() {
        Some(queue) => {
            registry
                .with(
                    lines
                        .with_ansi(std::io::stderr().is_terminal())
                        .with_writer(move || queue.clone()),
                )
                .init();
            std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
        }
        None => registry.with(lines.with_writer(std::io::stderr)).init(),
    }
}

//! How every program starts: its surroundings, and its log.

use std::io::IsTerminal;
use std::sync::Arc;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Takes out of what the process was started with what would cost more than a command.
pub fn surroundings() {
    // What others can write to they can also make believe: no mask lets that happen by itself.
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask | rustix::fs::Mode::WGRP | rustix::fs::Mode::WOTH);
    // A write behind the limit on the size of files is an error, as on a full file system, and not
    // the end of the process.
    drop(signal_hook::flag::register(
        signal_hook::consts::SIGXFSZ,
        Arc::default(),
    ));
    windrow_device::host::raise_file_size_limit();
}

/// The log goes to standard error. Errors: something was lost or stopped; warnings: it goes on, but
/// somebody should look; info: changes of state. Nothing is logged for single requests. That of a
/// daemon goes through a queue: no thread of it may ever wait for the reader of standard error. The
/// message of a panic goes there too, as it comes from any thread, also from the one that has the
/// engine.
pub fn log(is_daemon: bool) {
    let wanted = std::env::var("WINDROW_LOG")
        .ok()
        .and_then(|text| text.parse::<Targets>().ok());
    let filter = wanted.unwrap_or_else(|| Targets::new().with_default(LevelFilter::WARN));
    let registry = tracing_subscriber::registry().with(filter);
    // The reader of the log may be gone; to complain of that on standard error would end the thread
    // that had something to log.
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

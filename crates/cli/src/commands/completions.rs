//! `completions`.

use crate::Arguments;
use clap::{Args, CommandFactory};
use windrow_host::Failure;

/// Arguments of `completions`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  windrow completions bash > /etc/bash_completion.d/windrow\n  windrow completions zsh > ~/.zfunc/_windrow"
)]
pub struct CompletionArguments {
    /// Shell.
    shell: clap_complete::Shell,
}

/// Prints the script.
pub fn run(arguments: &CompletionArguments) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(
        arguments.shell,
        &mut Arguments::command(),
        "windrow",
        &mut script,
    );
    windrow_console::output::print(&String::from_utf8_lossy(&script));
    Ok(0)
}

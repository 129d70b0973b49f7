//! `bench`: reproducible benchmarks whose figure is a ratio within one run.
//!
//! What is compared is measured in turn, round by round, so that a noisy spell hits both sides; medians over the rounds are shown, and the
//! median of the ratios of each round.

mod chart;
mod engine;
mod nbd;
mod scratch;
mod steady;

use crate::output::Output;
use clap::Subcommand;
use windrow_host::Failure;

/// The benchmarks.
#[derive(Subcommand)]
pub enum BenchCommand {
    /// Load in process on memory or on files; files against their own linear rate.
    Engine(engine::EngineArguments),
    /// Fill to a share of the space, overwrite at random, compare cleaning with the closed form.
    Steady(steady::SteadyArguments),
    /// NBD with fio: this server against `nbdkit memory`.
    Nbd(nbd::NbdArguments),
}

/// Runs one.
pub fn run(command: BenchCommand, output: &Output) -> Result<u8, Failure> {
    match command {
        BenchCommand::Engine(arguments) => engine::run(&arguments, output),
        BenchCommand::Steady(arguments) => steady::run(&arguments, output),
        BenchCommand::Nbd(arguments) => nbd::run(&arguments, output),
    }
}

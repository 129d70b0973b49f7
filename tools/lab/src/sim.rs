//! `windrow-lab sim`: the effect of a workload on drives, and of changes. See docs/lab/overview.md.

mod jedec;
pub mod pictures;
mod run;
mod source;
mod studies;

pub use source::Named;

use clap::Subcommand;
use windrow_console::output::Output;
use windrow_host::Failure;

/// Subcommands of `sim`.
#[derive(Subcommand)]
pub enum SimCommand {
    /// Run policies on a workload or a trace: write amplification over time and steady, victims by
    /// emptiness, emptiness by age.
    Run(run::RunArguments),
    /// Graph 1 of the 2017 source: write amplification over time for free space from 5 to 95 %.
    Graph(studies::GraphArguments),
    /// Tables 1 to 3 of the 2017 source: emptiness by age, static space, the decomposition of write
    /// amplification.
    Table(studies::TableArguments),
    /// JEDEC client test of the 2017 source on a stream like its trace: write amplification by
    /// spare, with the published one.
    Jedec(jedec::JedecArguments),
    /// Bursty load: cleaning on demand against cleaning in the pauses.
    Bursts(studies::BurstsArguments),
    /// Number of block writes per second that the simulator processes on one core.
    Speed(run::SpeedArguments),
}

/// Runs the subcommand.
pub fn run(command: SimCommand, output: &Output) -> Result<u8, Failure> {
    match command {
        SimCommand::Run(arguments) => run::run(&arguments, output),
        SimCommand::Graph(arguments) => studies::graph(&arguments, output),
        SimCommand::Table(arguments) => studies::table(&arguments, output),
        SimCommand::Jedec(arguments) => jedec::run(&arguments, output),
        SimCommand::Bursts(arguments) => studies::bursts(&arguments, output),
        SimCommand::Speed(arguments) => run::speed(&arguments, output),
    }
}

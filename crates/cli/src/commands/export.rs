//! `export`: the names that a daemon serves.

use crate::context::{self, PoolPlace, unexpected};
use crate::output::Output;
use crate::table::Table;
use crate::values::{Size, VolumePath};
use clap::Subcommand;
use windrow_host::Failure;
use windrow_host::control::{Command, Reply};

/// What can be done with exports. Every volume is served under its own name unless that is removed.
#[derive(Subcommand)]
pub enum ExportCommand {
    /// Serve a volume under a further name, or again under its own.
    #[command(
        after_help = "Examples:\n  windrow export add tank/data --name backup --read-only\n  windrow export add tank/data --name main --default\n\nA volume has its own name already: to give that another description, remove it first (export rm)."
    )]
    Add {
        /// POOL/VOLUME.
        volume: VolumePath,
        /// Name that clients ask for; else the volume's own.
        #[arg(long)]
        name: Option<String>,
        /// Refuse writes.
        #[arg(long)]
        read_only: bool,
        /// Text that clients see.
        #[arg(long, default_value = "")]
        description: String,
        /// Give it to clients that ask for no name.
        #[arg(long)]
        default: bool,
        #[command(flatten)]
        place: PoolPlace,
    },
    /// Show the exports of a pool.
    #[command(after_help = "Examples:\n  windrow export list tank\n  windrow export list tank -o json")]
    List {
        /// Pool.
        pool: String,
        #[command(flatten)]
        place: PoolPlace,
    },
    /// Stop serving a name. Connections that are open stay.
    #[command(name = "rm", after_help = "Examples:\n  windrow export rm tank/backup")]
    Remove {
        /// POOL/NAME.
        export: VolumePath,
        #[command(flatten)]
        place: PoolPlace,
    },
}

/// Runs it.
pub fn run(command: ExportCommand, output: &Output) -> Result<u8, Failure> {
    match command {
        ExportCommand::Add { volume, name, read_only, description, default, place } => {
            let name = name.unwrap_or_else(|| volume.volume.clone());
            let command = Command::ExportAdd { name: name.clone(), volume: volume.volume.clone(), read_only, description, default };
            context::ask(&volume.pool, &place, command)?;
            output.result("export-add", &serde_json::json!({ "pool": volume.pool, "volume": volume.volume, "export": name }), || {
                format!("volume {} is served as '{name}'", volume.volume)
            });
        }
        ExportCommand::List { pool, place } => {
            let Reply::Exports { exports } = context::ask(&pool, &place, Command::ExportList)? else { return Err(unexpected()) };
            output.result("export-list", &serde_json::json!({ "pool": pool, "exports": exports }), || {
                let mut table = Table::new(&["EXPORT", "VOLUME", "SIZE", "MODE", "DEFAULT"]);
                for export in &exports {
                    let mode = if export.read_only { "read-only" } else { "read-write" };
                    let default = if export.default { "yes" } else { "" };
                    table.row([export.name.clone(), export.volume.clone(), Size(export.size_bytes).to_string(), mode.to_owned(), default.to_owned()]);
                }
                table.render()
            });
        }
        ExportCommand::Remove { export, place } => {
            context::ask(&export.pool, &place, Command::ExportRemove { name: export.volume.clone() })?;
            output.result("export-rm", &serde_json::json!({ "pool": export.pool, "export": export.volume }), || {
                format!("'{}' is not served any more", export.volume)
            });
        }
    }
    Ok(0)
}

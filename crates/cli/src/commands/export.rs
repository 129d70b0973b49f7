//! `export`: the names that a daemon serves, and their clients.

use clap::Subcommand;
use windrow_console::context::{self, PoolPlace, unexpected};
use windrow_console::figures::clock;
use windrow_console::output::Output;
use windrow_console::table::Table;
use windrow_console::values::{ExportPath, Size, VolumePath};
use windrow_host::control::{Command, Reply};
use windrow_host::schedule::unix_now;
use windrow_host::{ClientReport, ExportReport, Failure};

/// Commands for exports. Every volume is served under its own name unless that is removed, or the
/// pool comes from another host.
#[derive(Subcommand)]
pub enum ExportCommand {
    /// Serve a volume under an additional name, or again under its own.
    #[command(
        after_help = "Examples:\n  windrow export add tank/data --name backup --read-only\n  windrow export add tank/data --default\n\nA volume has its own name already: to give that another description, remove it first (export rm).\nThere is no default export unless one is named: a client that names none is refused then."
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
        /// Give it to clients that name no export. An existing export can be made the default in
        /// this way.
        #[arg(long)]
        default: bool,
        /// Change the default although clients are connected by the present one: they are
        /// disconnected.
        #[arg(long, requires = "default")]
        force: bool,
        #[command(flatten)]
        place: PoolPlace,
    },
    /// Show the exports of a pool and their clients.
    #[command(
        after_help = "Examples:\n  windrow export list tank\n  windrow export list tank -o json"
    )]
    List {
        /// Pool.
        pool: String,
        #[command(flatten)]
        place: PoolPlace,
    },
    /// Stop serving a name. Refused while clients are connected to it (with --default: while some
    /// are that named no export).
    #[command(
        name = "rm",
        after_help = "Examples:\n  windrow export rm tank/backup\n  windrow export rm tank/backup --force\n  windrow export rm tank/data --default"
    )]
    Remove {
        /// POOL/NAME.
        export: VolumePath,
        /// Keep serving it, but not to clients that name no export.
        #[arg(long)]
        default: bool,
        /// Proceed although clients are connected: they are disconnected.
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        place: PoolPlace,
    },
    /// Disconnect clients: their requests in flight are answered, then the connection ends. They
    /// may reconnect.
    #[command(
        after_help = "Examples:\n  windrow export disconnect tank/data\n  windrow export disconnect tank --client 7\n  windrow export disconnect tank\n\nA client that does not end its connection within five seconds is cut off. `windrow export rm` keeps clients out."
    )]
    Disconnect {
        /// POOL, for the clients of all its exports, or POOL/EXPORT.
        #[arg(value_name = "POOL[/EXPORT]")]
        export: ExportPath,
        /// Only this client, by its number in `windrow export list`.
        #[arg(long, value_name = "ID")]
        client: Option<u32>,
        #[command(flatten)]
        place: PoolPlace,
    },
}

/// Runs it.
pub fn run(command: ExportCommand, output: &Output) -> Result<u8, Failure> {
    match command {
        ExportCommand::Add {
            volume,
            name,
            read_only,
            description,
            default,
            force,
            place,
        } => {
            let name = name.unwrap_or_else(|| volume.volume.clone());
            let command = Command::ExportAdd {
                name: name.clone(),
                volume: volume.volume.clone(),
                read_only,
                description,
                default,
                force,
            };
            context::ask(&volume.pool, &place, command)?;
            let value = serde_json::json!({ "pool": volume.pool, "volume": volume.volume, "export": name, "default": default });
            output.result("export-add", &value, || {
                let also = if default {
                    ", and to clients that name no export"
                } else {
                    ""
                };
                format!("volume {} is served as '{name}'{also}", volume.volume)
            });
        }
        ExportCommand::List { pool, place } => {
            let Reply::Exports {
                exports,
                not_served,
            } = context::ask(&pool, &place, Command::ExportList)?
            else {
                return Err(unexpected());
            };
            let value =
                serde_json::json!({ "pool": pool, "exports": exports, "not_served": not_served });
            output.result("export-list", &value, || describe(&exports, &not_served));
        }
        ExportCommand::Remove {
            export,
            default,
            force,
            place,
        } => {
            context::ask(
                &export.pool,
                &place,
                Command::ExportRemove {
                    name: export.volume.clone(),
                    default,
                    force,
                },
            )?;
            let value = serde_json::json!({ "pool": export.pool, "export": export.volume, "served": default });
            output.result("export-rm", &value, || match default {
                true => format!("'{}' is not the default export any more", export.volume),
                false => format!("'{}' is not served any more", export.volume),
            });
        }
        ExportCommand::Disconnect {
            export,
            client,
            place,
        } => {
            let command = Command::ExportDisconnect {
                export: export.export.clone(),
                client,
            };
            let reply = context::ask(&export.pool, &place, command)?;
            let Reply::Disconnected {
                clients,
                cut,
                unfinished,
            } = reply
            else {
                return Err(unexpected());
            };
            let value = serde_json::json!({ "pool": export.pool, "export": export.export, "clients": clients, "cut": cut, "unfinished": unfinished });
            output.result("export-disconnect", &value, || {
                disconnected(&clients, cut, unfinished)
            });
        }
    }
    Ok(0)
}

fn describe(exports: &[ExportReport], not_served: &[String]) -> String {
    let mut table = Table::new(&["EXPORT", "VOLUME", "SIZE", "MODE", "DEFAULT", "CLIENTS"]);
    for export in exports {
        let mode = if export.read_only {
            "read-only"
        } else {
            "read-write"
        };
        let default = if export.default { "yes" } else { "" };
        table.row([
            export.name.clone(),
            export.volume.clone(),
            Size(export.size_bytes).to_string(),
            mode.to_owned(),
            default.to_owned(),
            export.clients.len().to_string(),
        ]);
    }
    let mut text = table.render();
    if !not_served.is_empty() {
        text += &format!("not served: {}\n", not_served.join(", "));
    }
    let clients: Vec<&ClientReport> = exports.iter().flat_map(|export| &export.clients).collect();
    if !clients.is_empty() {
        text += &format!("\n{}", table_of(&clients));
    }
    text
}

fn table_of(clients: &[&ClientReport]) -> String {
    let mut table = Table::new(&[
        "CLIENT",
        "EXPORT",
        "PEER",
        "CONNECTED",
        "READS",
        "READ",
        "WRITES",
        "WRITTEN",
        "ERRORS",
        "IN FLIGHT",
    ]);
    let now = unix_now();
    for client in clients {
        let export = if client.by_default {
            format!("{} (by default)", client.export)
        } else {
            client.export.clone()
        };
        table.row([
            client.client.to_string(),
            export,
            client.peer.clone(),
            clock(now.saturating_sub(client.since_unix_s)),
            client.reads.to_string(),
            Size(client.read_bytes).to_string(),
            client.writes.to_string(),
            Size(client.written_bytes).to_string(),
            client.errors.to_string(),
            client.in_flight.to_string(),
        ]);
    }
    table.render()
}

fn disconnected(clients: &[ClientReport], cut: usize, unfinished: usize) -> String {
    let mut text = format!(
        "{} {} disconnected",
        clients.len(),
        if clients.len() == 1 {
            "client"
        } else {
            "clients"
        }
    );
    if cut > 0 {
        text += &format!(", {cut} cut off");
    }
    if unfinished > 0 {
        text += &format!("; {unfinished} of them end when the pool has answered their requests");
    }
    clients
        .iter()
        .for_each(|client| text += &format!("\n{} at '{}'", client.peer, client.export));
    text
}

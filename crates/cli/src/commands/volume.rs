//! `volume`: thin volumes of a pool, served or at rest.

mod get;

use clap::Subcommand;
use std::collections::HashMap;
use windrow_console::context::{self, PoolPlace, unexpected};
use windrow_console::output::Output;
use windrow_console::table::Table;
use windrow_console::values::{Size, VolumePath};
use windrow_format::checkpoint::{Compression, Dedup, SyncMode};
use windrow_host::Failure;
use windrow_host::control::{Command, Reply};
use windrow_host::report::VolumeReport;
use windrow_types::VolumeId;

/// Commands for volumes.
#[derive(Subcommand)]
pub enum VolumeCommand {
    /// Make a thin volume.
    #[command(
        after_help = "Examples:\n  windrow volume create tank/data 10G\n  windrow volume create tank/vm-7 512M --compression lz4-then-zstd --dedup hash\n  windrow volume create tank/vm-8 512M --default -o json"
    )]
    Create {
        /// POOL/VOLUME.
        volume: VolumePath,
        /// Its size, a multiple of 4K; it takes no space before it is written.
        size: Size,
        /// Compression of blocks, if it saves an eighth of a block. `off`; `lz4`: fast; `zstd`:
        /// smaller and slower; `lz4-then-zstd`: writes LZ4, and cleaning recompresses the blocks
        /// that it moves (the cold ones) with zstd.
        #[arg(long, value_parser = ["off", "lz4", "zstd", "lz4-then-zstd"], default_value = "off")]
        compression: String,
        /// Deduplication: blocks with the same content are stored once for all volumes with this
        /// setting. `hash` finds them by 128 bits of a cryptographic hash, `verify` by a fast one,
        /// and compares their bytes.
        #[arg(long, value_parser = ["off", "verify", "hash"], default_value = "off")]
        dedup: String,
        /// Also serve it to clients that name no export. Otherwise there is no default export.
        #[arg(long)]
        default: bool,
        /// Change the default although clients are connected by the present one: they are
        /// disconnected.
        #[arg(long, requires = "default")]
        force: bool,
        #[command(flatten)]
        place: PoolPlace,
    },
    /// Show the volumes of a pool. ALONE is what a deletion frees: stored bytes of the volume's
    /// blocks and of shared content that no other volume refers to.
    #[command(
        after_help = "Examples:\n  windrow volume list tank\n  windrow volume list tank --quick\n  windrow volume list tank -o json"
    )]
    List {
        /// Pool.
        pool: String,
        /// Do not count what each volume keeps for itself; with shared content the count walks the
        /// maps of all volumes.
        #[arg(long)]
        quick: bool,
        #[command(flatten)]
        place: PoolPlace,
    },
    /// Resize a volume. Data beyond a smaller size is lost.
    #[command(
        after_help = "Examples:\n  windrow volume resize tank/data 20G\n  windrow volume resize tank/data 5G --shrink"
    )]
    Resize {
        /// POOL/VOLUME.
        volume: VolumePath,
        /// New size, a multiple of 4K.
        size: Size,
        /// Allow a smaller size; data beyond it is lost.
        #[arg(long)]
        shrink: bool,
        /// Make it smaller although clients are connected: they are disconnected.
        #[arg(long, requires = "shrink")]
        force: bool,
        #[command(flatten)]
        place: PoolPlace,
    },
    /// Set the effect of flushes of a volume. `standard`: flush as the client requests; `always`:
    /// every write is durable before it is answered; `disabled`: flushes are answered at once, and
    /// a crash may lose recent writes.
    #[command(
        after_help = "Examples:\n  windrow volume sync tank/database always\n  windrow volume sync tank/scratch disabled\n  windrow volume sync tank/data standard -o json"
    )]
    Sync {
        /// POOL/VOLUME.
        volume: VolumePath,
        /// Effect of flushes.
        #[arg(value_parser = ["standard", "always", "disabled"])]
        sync: String,
        #[command(flatten)]
        place: PoolPlace,
    },
    /// Set properties of a volume. Compression and deduplication apply to new writes. Existing
    /// blocks stay as they are; with `zstd` or `lz4-then-zstd`, cleaning recompresses the blocks
    /// that it moves with zstd.
    #[command(
        after_help = "Examples:\n  windrow volume set tank/data --compression lz4\n  windrow volume set tank/archive --compression zstd\n  windrow volume set tank/data --dedup verify\n  windrow volume set tank/data --compression off --dedup off -o json",
        group = clap::ArgGroup::new("property").required(true).multiple(true).args(["compression", "dedup"])
    )]
    Set {
        /// POOL/VOLUME.
        volume: VolumePath,
        /// Compression of blocks, if it saves an eighth of a block. `off`; `lz4`: fast; `zstd`:
        /// smaller and slower; `lz4-then-zstd`: writes LZ4, and cleaning recompresses the blocks
        /// that it moves (the cold ones) with zstd.
        #[arg(long, value_parser = ["off", "lz4", "zstd", "lz4-then-zstd"])]
        compression: Option<String>,
        /// Deduplication: `off`, `hash` (128 bits of a cryptographic hash) or `verify` (a fast
        /// hash, then their bytes are compared). The first volume of a pool that is set takes 3.9
        /// to 4.4 % of the pool's usable space.
        #[arg(long, value_parser = ["off", "verify", "hash"])]
        dedup: Option<String>,
        #[command(flatten)]
        place: PoolPlace,
    },
    /// Show properties of a volume.
    #[command(
        after_help = "Examples:\n  windrow volume get tank/data\n  windrow volume get tank/data compression\n  windrow volume get tank/data size -o json"
    )]
    Get {
        /// POOL/VOLUME.
        volume: VolumePath,
        /// Only this property.
        property: Option<String>,
        #[command(flatten)]
        place: PoolPlace,
    },
    /// Rename a volume. Its export takes the new name, too: clients that ask for the old one are
    /// refused from then on, and connected clients stay.
    #[command(after_help = "Examples:\n  windrow volume rename tank/data archive")]
    Rename {
        /// POOL/VOLUME.
        volume: VolumePath,
        /// The new name, 1 to 63 bytes.
        name: String,
        #[command(flatten)]
        place: PoolPlace,
    },
    /// Estimate the effect of compression and deduplication on files, devices, trees or volumes.
    /// Reads, and writes nothing.
    Estimate(super::estimate::EstimateArguments),
    /// Delete a volume with all its data. Refused while clients are connected to it.
    #[command(
        after_help = "Examples:\n  windrow volume delete tank/data --yes\n  windrow volume delete tank/data --yes --force"
    )]
    Delete {
        /// POOL/VOLUME.
        volume: VolumePath,
        /// Confirm that its data is lost.
        #[arg(long)]
        yes: bool,
        /// Proceed although clients are connected: they are disconnected.
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        place: PoolPlace,
    },
}

/// Runs it.
pub fn run(command: VolumeCommand, output: &Output) -> Result<u8, Failure> {
    match command {
        VolumeCommand::Create {
            volume,
            size,
            compression,
            dedup,
            default,
            force,
            place,
        } => {
            let create = Command::VolumeCreate {
                name: volume.volume.clone(),
                size_bytes: size.0,
                default,
                force,
            };
            let mut reply = context::ask(&volume.pool, &place, create)?;
            let set = |command, what: String| {
                context::ask(&volume.pool, &place, command).map_err(|failure| {
                    let what = format!(
                        "volume '{}' is created, but without {what}: {}",
                        volume.volume, failure.what
                    );
                    Failure { what, ..failure }
                })
            };
            let compressed = named(&compression);
            if compressed != Compression::Off {
                reply = set(
                    Command::VolumeCompression {
                        name: volume.volume.clone(),
                        compression: compressed,
                    },
                    format!("--compression {compression}"),
                )?;
            }
            if let mode @ (Dedup::Verify | Dedup::Hash) = dedup_named(&dedup) {
                reply = set(
                    Command::VolumeDedup {
                        name: volume.volume.clone(),
                        dedup: mode,
                    },
                    format!("--dedup {dedup}"),
                )?;
            }
            show("volume-create", &volume, reply, output)
        }
        VolumeCommand::Resize {
            volume,
            size,
            shrink,
            force,
            place,
        } => {
            // An older daemon does not check `shrink`.
            let now = context::status(&volume.pool, &place)?;
            if !shrink
                && now
                    .volume(&volume.volume)
                    .is_some_and(|found| found.size_bytes > size.0)
            {
                return Err(Failure::new(
                    windrow_host::failure::id::POOL_VALUE,
                    format!("cannot resize volume '{}'", volume.volume),
                    "it would become smaller",
                )
                .remedy("give --shrink to lose what lies beyond the new size"));
            }
            let resize = Command::VolumeResize {
                name: volume.volume.clone(),
                size_bytes: size.0,
                shrink,
                force,
            };
            let reply = context::ask(&volume.pool, &place, resize)?;
            show("volume-resize", &volume, reply, output)
        }
        VolumeCommand::Estimate(arguments) => super::estimate::run(&arguments, output),
        VolumeCommand::Sync {
            volume,
            sync,
            place,
        } => {
            let mode = match sync.as_str() {
                "always" => SyncMode::Always,
                "disabled" => SyncMode::Disabled,
                _ => SyncMode::Standard,
            };
            let reply = context::ask(
                &volume.pool,
                &place,
                Command::VolumeSync {
                    name: volume.volume.clone(),
                    sync: mode,
                },
            )?;
            let Reply::Volume(report) = reply else {
                return Err(unexpected());
            };
            output.result("volume-sync", &report, || {
                format!("{}/{}: flushes are {sync}", volume.pool, volume.volume)
            });
            Ok(0)
        }
        VolumeCommand::Set {
            volume,
            compression,
            dedup,
            place,
        } => {
            let name = &volume.volume;
            let compressed = compression.iter().map(|value| Command::VolumeCompression {
                name: name.clone(),
                compression: named(value),
            });
            let shared = dedup.iter().map(|value| Command::VolumeDedup {
                name: name.clone(),
                dedup: dedup_named(value),
            });
            let mut reply = None;
            for command in compressed.chain(shared) {
                reply = Some(context::ask(&volume.pool, &place, command)?);
            }
            let Some(Reply::Volume(report)) = reply else {
                return Err(unexpected());
            };
            let values = [("compression", compression), ("dedup", dedup)];
            let said: Vec<String> = values
                .into_iter()
                .filter_map(|(name, value)| Some(format!("{name} {}", value?)))
                .collect();
            output.result("volume-set", &report, || {
                format!("{}/{}: {}", volume.pool, volume.volume, said.join(", "))
            });
            Ok(0)
        }
        VolumeCommand::Rename {
            volume,
            name,
            place,
        } => rename(&volume, name, &place, output),
        VolumeCommand::Get {
            volume,
            property,
            place,
        } => get::run(&volume, property.as_deref(), &place, output),
        VolumeCommand::Delete {
            volume,
            yes,
            force,
            place,
        } => {
            if !yes {
                return Err(Failure::new(
                    windrow_host::failure::id::USAGE,
                    format!("volume '{}' is not deleted", volume.volume),
                    "its data would be lost",
                )
                .remedy("give --yes to confirm"));
            }
            context::ask(
                &volume.pool,
                &place,
                Command::VolumeDelete {
                    name: volume.volume.clone(),
                    force,
                },
            )?;
            output.result(
                "volume-delete",
                &serde_json::json!({ "pool": volume.pool, "volume": volume.volume }),
                || {
                    format!(
                        "deleted {}/{}; its space comes back step by step",
                        volume.pool, volume.volume
                    )
                },
            );
            Ok(0)
        }
        VolumeCommand::List { pool, quick, place } => list(&pool, quick, &place, output),
    }
}

fn list(pool: &str, quick: bool, place: &PoolPlace, output: &Output) -> Result<u8, Failure> {
    let report = context::status(pool, place)?;
    let (served, mut volumes) = (report.served, report.volumes);
    let mut exact = true;
    let counts = if quick {
        None
    } else if volumes.iter().all(|volume| volume.shared_bytes == 0) {
        // Nothing is shared: all stored bytes are their volume's own.
        volumes
            .iter_mut()
            .for_each(|volume| volume.exclusive_bytes = Some(volume.stored_bytes));
        None
    } else {
        Some(context::ask(pool, place, Command::Sharing)?)
    };
    match counts {
        None => {}
        Some(Reply::Sharing(counted)) => {
            exact = counted.exact;
            let alone: HashMap<VolumeId, u64> = counted
                .volumes
                .iter()
                .map(|count| (count.id, count.exclusive_bytes))
                .collect();
            for volume in &mut volumes {
                volume.exclusive_bytes = alone.get(&volume.id).copied();
            }
        }
        Some(_) => return Err(unexpected()),
    }
    let value = serde_json::json!({ "pool": pool, "volumes": volumes, "exact": exact });
    output.result("volume-list", &value, || {
        let note = if exact {
            ""
        } else {
            "ALONE is not exact: blocks were shared, or ceased to be, while it was counted\n"
        };
        table(&volumes, served) + note
    });
    Ok(0)
}

fn rename(
    path: &VolumePath,
    new_name: String,
    place: &PoolPlace,
    output: &Output,
) -> Result<u8, Failure> {
    let reply = context::ask(
        &path.pool,
        place,
        Command::VolumeRename {
            name: path.volume.clone(),
            new_name,
        },
    )?;
    let Reply::Volume(report) = reply else {
        return Err(unexpected());
    };
    output.result("volume-rename", &report, || {
        format!(
            "{}/{} is {}/{} now",
            path.pool, path.volume, path.pool, report.name
        )
    });
    Ok(0)
}

fn named(compression: &str) -> Compression {
    Compression::ALL
        .into_iter()
        .find(|known| known.name() == compression)
        .unwrap_or_default()
}

fn dedup_named(dedup: &str) -> Dedup {
    match dedup {
        "hash" => Dedup::Hash,
        "verify" => Dedup::Verify,
        _ => Dedup::Off,
    }
}

fn show(name: &str, path: &VolumePath, reply: Reply, output: &Output) -> Result<u8, Failure> {
    let Reply::Volume(report) = reply else {
        return Err(unexpected());
    };
    output.result(name, &report, || {
        format!("{}/{}: {}", path.pool, path.volume, Size(report.size_bytes))
    });
    Ok(0)
}

/// The volumes as text. `served`: by a daemon.
pub fn table(volumes: &[VolumeReport], served: bool) -> String {
    if volumes.is_empty() {
        return "no volumes\n".to_owned();
    }
    let is_counted = volumes
        .iter()
        .any(|volume| volume.exclusive_bytes.is_some());
    let mut table = Table::new(&[
        "VOLUME",
        "ID",
        "SIZE",
        "MAPPED",
        "SHARED",
        if is_counted { "ALONE" } else { "STORED" },
        "STATE",
    ]);
    for volume in volumes {
        let state = match (volume.deleting, volume.read_only) {
            (true, _) => "deleting",
            _ if !served => "at rest",
            (false, true) => "read-only",
            (false, false) => "active",
        };
        let flushes = match volume.sync {
            SyncMode::Standard => "",
            SyncMode::Always => ", sync always",
            SyncMode::Disabled => ", sync disabled",
        };
        let compression = if volume.compression == Compression::Off {
            String::new()
        } else {
            format!(", {}", volume.compression.name())
        };
        let dedup = match volume.dedup {
            Dedup::Off => "",
            Dedup::Verify => ", dedup verify",
            Dedup::Hash => ", dedup hash",
        };
        let state = format!("{state}{flushes}{compression}{dedup}");
        // A volume made after the count has none.
        let alone = match volume.exclusive_bytes {
            None if is_counted => "-".to_owned(),
            bytes => Size(bytes.unwrap_or(volume.stored_bytes)).to_string(),
        };
        let [size, mapped, shared] = [volume.size_bytes, volume.mapped_bytes, volume.shared_bytes]
            .map(|bytes| Size(bytes).to_string());
        table.row([
            volume.name.clone(),
            volume.id.to_string(),
            size,
            mapped,
            shared,
            alone,
            state,
        ]);
    }
    table.render()
}

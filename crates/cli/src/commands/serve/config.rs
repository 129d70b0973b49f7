//! The configuration file of `serve`.

use super::connections::ConnectionArguments;
use super::metrics::{self, MetricsArguments};
use super::rights::SocketMode;
use serde::Deserialize;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use windrow_console::values::{MAP_MEMORY, Size, number_within, size_within};
use windrow_host::Failure;
use windrow_host::failure::id;
use windrow_nbd::{Listen, ServerOptions};

/// Largest file that is read, in bytes.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// Limits of `--pending`: below, hardly a batch fits; above, replay at a start takes too long.
pub(super) const PENDING_MIN: u64 = 4 << 20;
pub(super) const PENDING_MAX: u64 = 64 << 30;
/// Most worker threads.
pub(super) const WORKERS_MAX: u64 = 512;
/// Most of `--spare-patience` and `--wait-for-members`: ten years.
pub(super) const PATIENCE_MAX_S: u64 = 10 * 366 * 86400;

/// The parsed content.
#[derive(Debug, Default)]
pub struct Config {
    /// Pool.
    pub pool: Option<String>,
    /// Members.
    pub members: Vec<PathBuf>,
    /// NBD addresses.
    pub nbd: Vec<Listen>,
    /// Volume of the default export.
    pub default: Option<String>,
    /// TCP addresses that others can reach are allowed.
    pub allow_remote: bool,
    /// Metrics endpoint.
    pub metrics: MetricsArguments,
    /// Control socket.
    pub control: Option<PathBuf>,
    /// Mode of the sockets.
    pub socket_mode: Option<SocketMode>,
    /// Group of the sockets.
    pub socket_group: Option<String>,
    /// Event hook.
    pub event_command: Option<String>,
    /// Limit of pending bytes.
    pub pending: Option<Size>,
    /// Limit of map memory.
    pub map_memory: Option<Size>,
    /// Seconds for which the start waits for members.
    pub wait_for_members: Option<u64>,
    /// Worker threads.
    pub workers: Option<u64>,
    /// Limits of connections.
    pub connections: ConnectionArguments,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Raw {
    pool: Option<String>,
    members: Vec<PathBuf>,
    nbd: Vec<String>,
    default: Option<String>,
    allow_remote: bool,
    metrics: Option<SocketAddr>,
    metrics_hosts: Vec<String>,
    metrics_connections: Option<u64>,
    control: Option<PathBuf>,
    socket_mode: Option<String>,
    socket_group: Option<String>,
    event_command: Option<String>,
    pending_bytes: Option<String>,
    map_bytes: Option<String>,
    wait_for_members: Option<u64>,
    workers: Option<u64>,
    request_memory_bytes: Option<String>,
    connections: Option<u64>,
    connections_per_client: Option<u64>,
    connections_per_export: Option<u64>,
    handshakes: Option<u64>,
    handshake_seconds: Option<u64>,
    stall_seconds: Option<u64>,
    keepalive_seconds: Option<u64>,
}

/// A number from 1 to `most`, if present.
fn count(name: &str, value: Option<u64>, most: u64) -> Result<Option<u64>, String> {
    let parse = number_within(1, most);
    value
        .map(|value| parse(&value.to_string()).map_err(|why| format!("{name} = {value}: {why}")))
        .transpose()
}

impl Raw {
    fn metrics(&self) -> Result<MetricsArguments, String> {
        let host = |name: &String| {
            metrics::host_name(name).map_err(|why| format!("metrics_hosts: '{name}': {why}"))
        };
        Ok(MetricsArguments {
            metrics: self.metrics,
            metrics_host: self
                .metrics_hosts
                .iter()
                .map(host)
                .collect::<Result<_, _>>()?,
            metrics_connections: count(
                "metrics_connections",
                self.metrics_connections,
                metrics::CONNECTIONS_MAX,
            )?,
        })
    }

    fn connections(&self) -> Result<ConnectionArguments, String> {
        let (most, seconds) = (
            *ServerOptions::CONNECTIONS.end() as u64,
            *ServerOptions::SECONDS.end(),
        );
        let memory = self
            .request_memory_bytes
            .as_deref()
            .map(|text| bounded("request_memory_bytes", text, &ServerOptions::MEMORY_BYTES));
        Ok(ConnectionArguments {
            request_memory: memory.transpose()?,
            connections: count("connections", self.connections, most)?,
            connections_per_client: count(
                "connections_per_client",
                self.connections_per_client,
                most,
            )?,
            connections_per_export: count(
                "connections_per_export",
                self.connections_per_export,
                most,
            )?,
            handshakes: count("handshakes", self.handshakes, most)?,
            handshake_timeout: count("handshake_seconds", self.handshake_seconds, seconds)?,
            stall_timeout: count("stall_seconds", self.stall_seconds, seconds)?,
            keepalive: count("keepalive_seconds", self.keepalive_seconds, seconds)?,
        })
    }
}

fn bounded(name: &str, text: &str, bounds: &std::ops::RangeInclusive<u64>) -> Result<Size, String> {
    size_within(*bounds.start(), *bounds.end())(text)
        .map_err(|why| format!("{name} = \"{text}\": {why}"))
}

impl Config {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let failure = |why: String| {
            Failure::new(
                id::USAGE,
                format!("cannot use the configuration file {}", path.display()),
                why,
            )
            .remedy("see `windrow serve --help`")
        };
        let mut text = String::new();
        let file = std::fs::File::open(path).map_err(|error| failure(error.to_string()))?;
        // (Without a limit `/dev/zero` would be read until memory ends.)
        file.take(CONFIG_BYTES_MAX + 1)
            .read_to_string(&mut text)
            .map_err(|error| failure(error.to_string()))?;
        if text.len() as u64 > CONFIG_BYTES_MAX {
            return Err(failure(format!(
                "it is larger than {CONFIG_BYTES_MAX} bytes"
            )));
        }
        Self::parse(&text).map_err(failure)
    }

    /// Parses the content of a file (fuzz target `config`).
    pub fn parse(text: &str) -> Result<Self, String> {
        let raw: Raw = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| {
                text[..span.start.min(text.len())].matches('\n').count() + 1
            });
            format!(
                "line {line}: {}",
                error.message().trim().replace('\n', ", ")
            )
        })?;
        let (connections, metrics) = (raw.connections()?, raw.metrics()?);
        let workers = raw
            .workers
            .map(|count| {
                number_within(1, WORKERS_MAX)(&count.to_string())
                    .map_err(|why| format!("workers = {count}: {why}"))
            })
            .transpose()?;
        let pending = raw
            .pending_bytes
            .as_deref()
            .map(|text| bounded("pending_bytes", text, &(PENDING_MIN..=PENDING_MAX)))
            .transpose()?;
        let seconds = |seconds: u64| {
            number_within(0, PATIENCE_MAX_S)(&seconds.to_string())
                .map_err(|why| format!("wait_for_members = {seconds}: {why}"))
        };
        let wait_for_members = raw.wait_for_members.map(seconds).transpose()?;
        let nbd = raw
            .nbd
            .iter()
            .map(|text| {
                text.parse()
                    .map_err(|error: &str| format!("'{text}': {error}"))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            pool: raw.pool,
            members: raw.members,
            nbd,
            default: raw.default,
            allow_remote: raw.allow_remote,
            metrics,
            control: raw.control,
            socket_mode: raw.socket_mode.map(|text| text.parse()).transpose()?,
            socket_group: raw.socket_group,
            event_command: raw.event_command,
            pending,
            map_memory: raw
                .map_bytes
                .as_deref()
                .map(|text| bounded("map_bytes", text, &MAP_MEMORY))
                .transpose()?,
            wait_for_members,
            workers,
            connections,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_end_is_refused() {
        let error = Config::read(Path::new("/dev/zero")).unwrap_err();
        assert!(
            error.to_string().contains("larger than 1048576 bytes"),
            "{error}"
        );
    }

    #[test]
    fn a_file_is_read_and_mistakes_are_named() {
        let text = "pool = \"tank\"\nmembers = [\"/dev/sdb\"]\nnbd = [\"unix:/tmp/x\", \"tcp:127.0.0.1:10809\"]\npending_bytes = \"32M\"\nmetrics = \"127.0.0.1:9464\"\nwait_for_members = 30\ndefault = \"data\"\n";
        let config = Config::parse(text).unwrap();
        assert_eq!(
            (config.pool.as_deref(), config.nbd.len(), config.pending),
            (Some("tank"), 2, Some(Size(32 << 20)))
        );
        assert_eq!(config.wait_for_members, Some(30));
        assert_eq!(config.default.as_deref(), Some("data"));
        let rights = Config::parse("socket_mode = \"0660\"\nsocket_group = \"disk\"").unwrap();
        assert_eq!(
            (rights.socket_mode, rights.socket_group.as_deref()),
            ("0660".parse().ok(), Some("disk"))
        );
        assert!(
            Config::parse("socket_mode = \"0777\"")
                .unwrap_err()
                .contains("0777")
        );
        assert!(
            Config::parse("pols = \"tank\"")
                .unwrap_err()
                .contains("pols")
        );
        assert!(
            Config::parse("nbd = [\"tcp:localhost\"]")
                .unwrap_err()
                .contains("tcp:localhost")
        );
        assert_eq!(
            Config::parse("nbd = []\npool = 5").unwrap_err(),
            "line 2: invalid type: integer `5`, expected a string"
        );
        assert!(
            Config::parse("map_bytes = \"much\"")
                .unwrap_err()
                .contains("much")
        );
        let config = Config::parse("connections = 9\nhandshakes = 3\nstall_seconds = 7\nrequest_memory_bytes = \"1G\"\nworkers = 2").unwrap();
        let ConnectionArguments {
            connections,
            handshakes,
            stall_timeout,
            request_memory,
            ..
        } = config.connections;
        assert_eq!(
            (
                connections,
                handshakes,
                stall_timeout,
                request_memory,
                config.workers
            ),
            (Some(9), Some(3), Some(7), Some(Size(1 << 30)), Some(2))
        );
        assert_eq!(
            Config::parse("connections = 0").unwrap_err(),
            "connections = 0: it must be a whole number between 1 and 16384"
        );
        let config = Config::parse("metrics = \"127.0.0.1:1\"\nmetrics_hosts = [\"store.example\"]\nmetrics_connections = 9").unwrap();
        assert_eq!(
            (
                config.metrics.metrics_host.len(),
                config.metrics.metrics_connections
            ),
            (1, Some(9))
        );
        assert!(
            Config::parse("metrics_hosts = [\"a:1\"]")
                .unwrap_err()
                .contains("without a port")
        );
        assert!(
            Config::parse("metrics_connections = 0")
                .unwrap_err()
                .contains("between 1 and 4096")
        );
        assert!(
            Config::parse("workers = 100000")
                .unwrap_err()
                .contains("between 1 and 512")
        );
        assert!(
            Config::parse("pending_bytes = \"1\"")
                .unwrap_err()
                .contains("between 4 MiB and 64 GiB")
        );
        assert!(
            Config::parse("request_memory_bytes = \"1M\"")
                .unwrap_err()
                .contains("between 128 MiB and 1 TiB")
        );
    }
}

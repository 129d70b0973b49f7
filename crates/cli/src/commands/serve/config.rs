//! The configuration file of `serve`.

use super::rights::SocketMode;
use crate::values::Size;
use serde::Deserialize;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use windrow_host::Failure;
use windrow_host::failure::id;
use windrow_nbd::Listen;

/// Largest file that is read, in bytes.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// Its content, parsed.
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
    /// Metrics address.
    pub metrics: Option<SocketAddr>,
    /// Control socket.
    pub control: Option<PathBuf>,
    /// Mode of the sockets.
    pub socket_mode: Option<SocketMode>,
    /// Group of the sockets.
    pub socket_group: Option<String>,
    /// Event hook.
    pub event_command: Option<String>,
    /// Bound of pending bytes.
    pub pending: Option<Size>,
    /// Bound of map memory.
    pub map_memory: Option<Size>,
    /// Seconds for which the start waits for members.
    pub wait_for_members: Option<u64>,
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
    control: Option<PathBuf>,
    socket_mode: Option<String>,
    socket_group: Option<String>,
    event_command: Option<String>,
    pending_bytes: Option<String>,
    map_bytes: Option<String>,
    wait_for_members: Option<u64>,
}

impl Config {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let failure =
            |why: String| Failure::new(id::USAGE, format!("cannot use the configuration file {}", path.display()), why).remedy("see `windrow serve --help`");
        let mut text = String::new();
        let file = std::fs::File::open(path).map_err(|error| failure(error.to_string()))?;
        // (Without a bound `/dev/zero` would be read until memory ends.)
        file.take(CONFIG_BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| failure(error.to_string()))?;
        if text.len() as u64 > CONFIG_BYTES_MAX {
            return Err(failure(format!("it is larger than {CONFIG_BYTES_MAX} bytes")));
        }
        Self::parse(&text).map_err(failure)
    }

    /// Takes the content of a file apart (fuzz target `config`).
    pub fn parse(text: &str) -> Result<Self, String> {
        let raw: Raw = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            format!("line {line}: {}", error.message().trim().replace('\n', ", "))
        })?;
        let size = |text: Option<String>| text.map(|text| text.parse::<Size>()).transpose();
        let nbd = raw.nbd.iter().map(|text| text.parse().map_err(|error: &str| format!("'{text}': {error}"))).collect::<Result<_, _>>()?;
        Ok(Self {
            pool: raw.pool,
            members: raw.members,
            nbd,
            default: raw.default,
            allow_remote: raw.allow_remote,
            metrics: raw.metrics,
            control: raw.control,
            socket_mode: raw.socket_mode.map(|text| text.parse()).transpose()?,
            socket_group: raw.socket_group,
            event_command: raw.event_command,
            pending: size(raw.pending_bytes)?,
            map_memory: size(raw.map_bytes)?,
            wait_for_members: raw.wait_for_members,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_end_is_refused() {
        let error = Config::read(Path::new("/dev/zero")).unwrap_err();
        assert!(error.to_string().contains("larger than 1048576 bytes"), "{error}");
    }

    #[test]
    fn a_file_is_read_and_mistakes_are_named() {
        let text = "pool = \"tank\"\nmembers = [\"/dev/sdb\"]\nnbd = [\"unix:/tmp/x\", \"tcp:127.0.0.1:10809\"]\npending_bytes = \"32M\"\nmetrics = \"127.0.0.1:9464\"\nwait_for_members = 30\ndefault = \"data\"\n";
        let config = Config::parse(text).unwrap();
        assert_eq!((config.pool.as_deref(), config.nbd.len(), config.pending), (Some("tank"), 2, Some(Size(32 << 20))));
        assert_eq!(config.wait_for_members, Some(30));
        assert_eq!(config.default.as_deref(), Some("data"));
        let rights = Config::parse("socket_mode = \"0660\"\nsocket_group = \"disk\"").unwrap();
        assert_eq!((rights.socket_mode, rights.socket_group.as_deref()), ("0660".parse().ok(), Some("disk")));
        assert!(Config::parse("socket_mode = \"0777\"").unwrap_err().contains("0777"));
        assert!(Config::parse("pols = \"tank\"").unwrap_err().contains("pols"));
        assert!(Config::parse("nbd = [\"tcp:localhost\"]").unwrap_err().contains("tcp:localhost"));
        assert_eq!(Config::parse("nbd = []\npool = 5").unwrap_err(), "line 2: invalid type: integer `5`, expected a string");
        assert!(Config::parse("map_bytes = \"much\"").unwrap_err().contains("much"));
    }
}

//! Recording of volumes, through the daemon that serves them.

use super::Tap;
use windrow_console::context::{self, PoolPlace, unexpected};
use windrow_console::values::VolumePath;
use windrow_host::Failure;
use windrow_host::control::{Command, ControlClient, Reply};
use windrow_host::failure::id;
use windrow_host::recorder::{Lot, Recorded, RecordedKind};
use windrow_trace::{Kind, Request};
use windrow_types::VolumeId;

/// One volume of a pool, or all of them.
pub(super) struct VolumeTap {
    client: ControlClient,
    token: u64,
    pool: String,
    /// Volumes in the order of their first occurrence, and their names.
    volumes: Vec<VolumeId>,
    names: Vec<String>,
}

pub(super) fn request(
    Recorded(kind, offset, length, time_ns, _): Recorded,
    device: u32,
) -> Request {
    let (kind, fua) = match kind {
        RecordedKind::Read => (Kind::Read, false),
        RecordedKind::Write => (Kind::Write, false),
        RecordedKind::WriteFua => (Kind::Write, true),
        RecordedKind::Trim => (Kind::Trim, false),
        RecordedKind::Flush => (Kind::Flush, false),
    };
    Request {
        fua,
        ..Request::new(kind, device, offset, length, time_ns)
    }
}

fn ask(client: &mut ControlClient, command: Command) -> Result<Lot, Failure> {
    match client.ask(command)? {
        Reply::Recorded(lot) => Ok(lot),
        _ => Err(unexpected()),
    }
}

impl VolumeTap {
    /// Opens a recording; `source`: POOL or POOL/VOLUME.
    pub(super) fn open(source: &str, place: &PoolPlace) -> Result<Self, Failure> {
        let (pool, volume) = if source.contains('/') || source.is_empty() {
            let path: VolumePath = source.parse().map_err(|why: String| {
                Failure::new(id::USAGE, format!("cannot record '{source}'"), why)
                    .remedy("a block device is named by its path, such as /dev/nvme0n1")
            })?;
            (path.pool, Some(path.volume))
        } else {
            (source.to_owned(), None)
        };
        let mut client = context::daemon_of(&pool, place)?.ok_or_else(|| {
            Failure::new(id::NO_DAEMON, format!("cannot record {source}"), format!("no daemon serves pool '{pool}'"))
                .remedy("only a served volume is asked for anything: start `windrow serve`, or name its socket with --control")
        })?;
        let token = ask(&mut client, Command::RecordStart { name: volume })?.token;
        Ok(Self {
            client,
            token,
            pool,
            volumes: Vec::new(),
            names: Vec::new(),
        })
    }

    /// Number of a volume in the trace. A deleted volume is named by its number in the pool.
    fn device(&mut self, volume: VolumeId) -> Result<u32, Failure> {
        if let Some(at) = self.volumes.iter().position(|known| *known == volume) {
            return Ok(at as u32);
        }
        let Reply::Pool(report) = self.client.ask(Command::Status)? else {
            return Err(unexpected());
        };
        let name = report
            .volumes
            .into_iter()
            .find(|known| known.id == volume)
            .map_or_else(|| volume.to_string(), |known| known.name);
        self.names.push(format!("{}/{name}", self.pool));
        self.volumes.push(volume);
        Ok(self.volumes.len() as u32 - 1)
    }
}

impl Tap for VolumeTap {
    fn take(&mut self, end: bool) -> Result<(Vec<Request>, u64), Failure> {
        let lot = ask(
            &mut self.client,
            Command::RecordTake {
                token: self.token,
                end,
            },
        )?;
        let mut requests = Vec::with_capacity(lot.requests.len());
        for recorded in lot.requests {
            let request = request(recorded, self.device(recorded.4)?);
            // Invalid requests were refused by the pool, and are left out of the trace.
            if request.check().is_ok() {
                requests.push(request);
            }
        }
        Ok((requests, lot.missed))
    }

    fn names(&self) -> &[String] {
        &self.names
    }
}

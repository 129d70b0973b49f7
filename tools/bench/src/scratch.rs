//! Scratch members and pools of benchmarks.

use clap::Args;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use windrow_console::progress::Progress;
use windrow_console::values::{Size, count_within};
use windrow_device::queue::Members;
use windrow_device::{
    Allocation, FileMember, OpenOptions, Pace, PacedMember, create_file_with_progress,
};
use windrow_geometry::Redundancy;
use windrow_host::failure::{Failure, id};
use windrow_host::offline::{OpenedPool, ScratchSpec, ram_members, scratch_pool};
use windrow_host::{HostOptions, Pool, daemon};
use windrow_types::BLOCK_BYTES;

/// Limit of members of a pool, and of worker threads.
const MEMBERS_MAX: u64 = 64;
const WORKERS_MAX: u64 = 512;

/// Parameters of the members.
#[derive(Args, Clone, Debug)]
pub struct ScratchArguments {
    /// Number of members.
    #[arg(long, default_value = "8", value_parser = count_within(1, MEMBERS_MAX))]
    pub members: usize,
    /// Size of each.
    #[arg(long, default_value = "512M")]
    pub size: Size,
    /// Create the members as files in this folder (removed afterwards) instead of in memory.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Limit of each file's read and write rate together, bytes per second: simulates drives slower
    /// than this disk.
    #[arg(long, value_name = "RATE", requires = "dir", value_parser = rate)]
    pub member_rate: Option<Size>,
    /// Bytes of writes that each of these files answers before its rate applies: the protected
    /// write cache of a drive. Best with DIR in memory (/dev/shm), where flushes take no time, as
    /// on such a drive.
    #[arg(
        long,
        value_name = "SIZE",
        requires = "member_rate",
        default_value = "0"
    )]
    pub member_buffer: Size,
    /// Redundancy: 0, 1 (two copies), 5 or 6.
    #[arg(long, value_parser = ["0", "1", "5", "6"], default_value = "6")]
    pub redundancy: String,
    /// Chunk: maximum bytes that one batch writes to one member.
    #[arg(long, default_value = "256K")]
    pub chunk: Size,
    /// Bytes of a segment on one member; default by member size.
    #[arg(long)]
    pub segment: Option<Size>,
    /// Worker threads; default one less than the number of cores.
    #[arg(long, value_parser = count_within(1, WORKERS_MAX))]
    pub workers: Option<usize>,
}

impl ScratchArguments {
    /// This number of files of this size, RAID-6.
    pub fn of_files(members: usize, size_bytes: u64, dir: &Path) -> Self {
        let (size, dir, chunk) = (Size(size_bytes), Some(dir.to_owned()), Size(256 << 10));
        Self {
            members,
            size,
            dir,
            member_rate: None,
            member_buffer: Size(0),
            redundancy: "6".to_owned(),
            chunk,
            segment: None,
            workers: None,
        }
    }
}

/// Parses a rate above zero.
fn rate(text: &str) -> Result<Size, String> {
    match text.parse::<Size>().map_err(|error| error.to_string())? {
        Size(0) => {
            Err("a member with a rate of 0 never answers: leave the rate out for none".to_owned())
        }
        rate => Ok(rate),
    }
}

/// Members for one run; files are removed when it is dropped.
pub struct Scratch {
    /// The members.
    pub members: Members,
    /// Paths of file members.
    pub paths: Vec<PathBuf>,
    arguments: ScratchArguments,
    folder: Option<tempfile::TempDir>,
}

impl Scratch {
    /// Creates the members. Files are written once, so that the medium has its steady rate from the
    /// first second.
    pub fn make(arguments: &ScratchArguments) -> Result<Self, Failure> {
        let Some(dir) = &arguments.dir else {
            return Ok(Self {
                members: ram_members(arguments.members, arguments.size.0)?,
                paths: Vec::new(),
                arguments: arguments.clone(),
                folder: None,
            });
        };
        let made = tempfile::Builder::new()
            .prefix("windrow-bench-")
            .tempdir_in(dir);
        let folder = made.map_err(|error| {
            Failure::new(
                id::MEMBER_OPEN,
                format!("cannot make members in {}", dir.display()),
                error,
            )
        })?;
        let mut scratch = Self {
            members: Vec::new(),
            paths: Vec::new(),
            arguments: arguments.clone(),
            folder: None,
        };
        let mut progress = Progress::new("making members");
        let all = arguments.size.0 * arguments.members as u64;
        for number in 0..arguments.members {
            let before = number as u64 * arguments.size.0;
            let path = folder.path().join(format!("member-{number}"));
            scratch
                .members
                .extend(scratch.file(&path, arguments.size.0, &mut |bytes| {
                    progress.bytes(before + bytes, all)
                })?);
            scratch.paths.push(path);
        }
        scratch.folder = Some(folder);
        Ok(scratch)
    }

    /// Creates a file and writes it once, at the rate of members.
    fn file(&self, path: &Path, bytes: u64, done: &mut dyn FnMut(u64)) -> Result<Members, Failure> {
        let failure = |error: &dyn std::fmt::Display| {
            Failure::new(
                id::MEMBER_OPEN,
                format!("cannot make {}", path.display()),
                error,
            )
        };
        create_file_with_progress(path, bytes, Allocation::Written, done)
            .map_err(|error| failure(&error))?;
        let file =
            FileMember::open(path, &OpenOptions::default()).map_err(|error| failure(&error))?;
        Ok(vec![Some(match self.arguments.member_rate {
            Some(rate) => Arc::new(PacedMember::new(
                file,
                Pace {
                    bytes_per_second: rate.0,
                    buffer_bytes: self.arguments.member_buffer.0,
                },
            )),
            None => Arc::new(file),
        })])
    }

    /// A journal device of `bytes` bytes: like the members, or power-safe memory.
    pub fn journal_device(&self, bytes: u64, power_safe: bool) -> Result<Members, Failure> {
        match &self.folder {
            Some(folder) if !power_safe => {
                self.file(&folder.path().join("journal"), bytes, &mut |_| ())
            }
            _ => ram_members(1, bytes),
        }
    }

    /// Description: number, size and location of members, redundancy.
    pub fn describe(&self) -> String {
        let place = if self.is_files() {
            "in files"
        } else {
            "in memory"
        };
        let rate = self
            .arguments
            .member_rate
            .filter(|_| self.is_files())
            .map_or_else(String::new, |rate| match self.arguments.member_buffer {
                Size(0) => format!(" of {rate}/s"),
                buffer => format!(" of {rate}/s with buffers of {buffer}"),
            });
        format!(
            "{} members of {} {place}{rate}, RAID-{}",
            self.arguments.members, self.arguments.size, self.arguments.redundancy
        )
    }

    /// Same as JSON.
    pub fn json(&self) -> serde_json::Value {
        let arguments = &self.arguments;
        serde_json::json!({
            "members": arguments.members, "member_bytes": arguments.size.0, "files": self.is_files(),
            "member_bytes_per_second": arguments.member_rate.map(|rate| rate.0), "member_buffer_bytes": arguments.member_buffer.0, "redundancy": arguments.redundancy,
            "chunk_bytes": arguments.chunk.0, "segment_bytes": arguments.segment.map(|size| size.0),
        })
    }

    /// Maximum bytes that one batch writes to one member.
    pub fn chunk_bytes(&self) -> usize {
        self.arguments.chunk.0 as usize
    }

    /// True if the members are files.
    pub fn is_files(&self) -> bool {
        self.folder.is_some()
    }

    /// Reformats the members and starts a pool on them, with one volume `data` over this share of
    /// the usable space.
    pub fn pool(&self, spare_per_mille: u16, volume_percent: u64) -> Result<Pool, Failure> {
        self.pool_with_journal(spare_per_mille, volume_percent, None, &Vec::new(), false)
    }

    /// Same with a given journal size on each member (`None`: by member size; 0: no journal), and
    /// with journal devices.
    pub fn pool_with_journal(
        &self,
        spare_per_mille: u16,
        volume_percent: u64,
        journal_bytes: Option<u64>,
        devices: &Members,
        power_safe: bool,
    ) -> Result<Pool, Failure> {
        let rows = |size: Size| u32::try_from(size.0 / BLOCK_BYTES).ok();
        let mut spec = ScratchSpec {
            redundancy: match self.arguments.redundancy.as_str() {
                "0" => Redundancy::None,
                "1" => Redundancy::Copies(2),
                "5" => Redundancy::Single,
                _ => Redundancy::Double,
            },
            chunk_rows: rows(self.arguments.chunk),
            segment_rows: self.arguments.segment.and_then(rows),
            journal_bytes,
            journal_devices: devices.len(),
            journal_power_safe: power_safe,
            ..ScratchSpec::default()
        };
        spec.properties.spare_per_mille = spare_per_mille;
        let OpenedPool {
            engine,
            members,
            buffers,
            ..
        } = scratch_pool([&self.members[..], &devices[..]].concat(), &spec)?;
        let pool = Pool::start(
            engine,
            members,
            buffers,
            HostOptions {
                workers: self.arguments.workers,
                ..HostOptions::default()
            },
        )?;
        let usable = daemon::report(&pool)?.capacity.usable_bytes;
        let size = usable * volume_percent / 100 / BLOCK_BYTES * BLOCK_BYTES;
        daemon::create_volume(&pool, "data", size.max(BLOCK_BYTES))?;
        Ok(pool)
    }

    /// Number of members that a pool may lose.
    pub fn tolerance(&self) -> u64 {
        match self.arguments.redundancy.as_str() {
            "0" => 0,
            "6" => 2,
            _ => 1,
        }
    }

    /// Data columns as a share of all columns.
    pub fn data_share(&self) -> f64 {
        let members = self.arguments.members as f64;
        match self.arguments.redundancy.as_str() {
            "0" => 1.0,
            "1" => 0.5,
            "5" => (members - 1.0) / members,
            _ => (members - 2.0) / members,
        }
    }
}

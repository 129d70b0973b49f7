//! Recording of a block device of this machine, by the kernel's tracepoint `block_bio_queue`.
//!
//! 1. A separate trace instance is created in tracefs, so that other users' tracing is not
//!    affected; it is removed at the end, also after a failure.
//! 2. The kernel filters the event by the device; only its requests are buffered, in 8 MiB for each
//!    processor.
//! 3. Lines are read without waiting. The kernel reports lost events in lines of their own.

use super::Tap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use windrow_host::Failure;
use windrow_host::failure::id;
use windrow_trace::Request;
use windrow_trace::text::tracepoint::{EVENT, Line, tracepoint};

/// Mount points of tracefs.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// Buffer of each processor.
const BUFFER_KIB: u32 = 8192;
/// Maximum bytes read by one take, so that a flood does not delay writing.
const TAKE_MOST: usize = 16 << 20;

fn cannot(device: &Path, why: impl std::fmt::Display, remedy: &str) -> Failure {
    Failure::new(
        id::RECORDING,
        format!("cannot record {}", device.display()),
        why,
    )
    .remedy(remedy)
}

/// A trace instance; removed when dropped.
struct Instance(PathBuf);

impl Instance {
    fn set(&self, file: &str, value: &str) -> std::io::Result<()> {
        std::fs::write(self.0.join(file), value)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // If it cannot be removed, it stays; it records nothing any more.
        _ = self.set("tracing_on", "0");
        _ = std::fs::remove_dir(&self.0);
    }
}

pub struct DeviceTap {
    device: PathBuf,
    name: String,
    // Dropped before the instance, which cannot be removed while it is open.
    pipe: File,
    _instance: Instance,
    rest: Vec<u8>,
}

impl DeviceTap {
    /// Starts the recording.
    pub fn open(device: &Path) -> Result<Self, Failure> {
        let number = number_of(device)?;
        let ask_root = "it needs root and a kernel that permits tracing (tracefs, CONFIG_BLK_DEV_IO_TRACE); `blktrace` from elsewhere is read too";
        let root = PLACES
            .into_iter()
            .map(Path::new)
            .find(|place| place.join("instances").is_dir());
        let root =
            root.ok_or_else(|| cannot(device, "tracefs is missing or unreadable", ask_root))?;
        let path = root
            .join("instances")
            .join(format!("windrow-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| {
            cannot(
                device,
                format!("the kernel does not permit a trace: {error}"),
                ask_root,
            )
        })?;
        let instance = Instance(path);
        let event = format!("events/block/{EVENT}");
        let settings = [
            ("buffer_size_kb", BUFFER_KIB.to_string()),
            ("trace_clock", "mono".to_owned()),
            (&*format!("{event}/filter"), format!("dev == {number}")),
            (&*format!("{event}/enable"), "1".to_owned()),
        ];
        for (file, value) in settings {
            instance.set(file, &value).map_err(|error| {
                cannot(
                    device,
                    format!("the kernel refuses '{value}' for {file}: {error}"),
                    ask_root,
                )
            })?;
        }
        let pipe = OpenOptions::new()
            .read(true)
            .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
            .open(instance.0.join("trace_pipe"));
        let pipe = pipe.map_err(|error| {
            cannot(
                device,
                format!("the trace cannot be read: {error}"),
                ask_root,
            )
        })?;
        Ok(Self {
            device: device.to_owned(),
            name: device.display().to_string(),
            pipe,
            _instance: instance,
            rest: Vec::new(),
        })
    }
}

/// Device number of a whole device in the kernel's trace. Requests to a partition are traced with
/// the disk's addresses.
fn number_of(device: &Path) -> Result<u64, Failure> {
    let found =
        std::fs::metadata(device).map_err(|error| cannot(device, error, "check the path"))?;
    if !found.file_type().is_block_device() {
        return Err(cannot(
            device,
            "it is no block device",
            "name a disk such as /dev/nvme0n1, or POOL/VOLUME",
        ));
    }
    let (major, minor) = (
        rustix::fs::major(found.rdev()),
        rustix::fs::minor(found.rdev()),
    );
    if Path::new(&format!("/sys/dev/block/{major}:{minor}/partition")).exists() {
        return Err(cannot(
            device,
            "it is a partition",
            "name its disk: the kernel traces whole disks",
        ));
    }
    Ok(u64::from(major) << 20 | u64::from(minor))
}

impl Tap for DeviceTap {
    fn take(&mut self, _end: bool) -> Result<(Vec<Request>, u64), Failure> {
        let mut buffer = vec![0; 64 << 10];
        let (mut requests, mut missed, mut read) = (Vec::new(), 0, 0);
        while read < TAKE_MOST {
            match self.pipe.read(&mut buffer) {
                Ok(0) => break,
                Ok(bytes) => {
                    read += bytes;
                    self.rest.extend_from_slice(&buffer[..bytes]);
                    self.lines(&mut requests, &mut missed)?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(cannot(&self.device, error, "see the log of the kernel")),
            }
        }
        // Processors are read one after the other; within a take the requests are sorted by time.
        requests.sort_by_key(|request: &Request| request.time_ns);
        Ok((requests, missed))
    }

    fn names(&self) -> &[String] {
        std::slice::from_ref(&self.name)
    }
}

impl DeviceTap {
    /// Takes the complete lines.
    fn lines(&mut self, requests: &mut Vec<Request>, missed: &mut u64) -> Result<(), Failure> {
        let end = self
            .rest
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        let whole: Vec<u8> = self.rest.drain(..end).collect();
        for line in String::from_utf8_lossy(&whole).lines() {
            let read = tracepoint(line).map_err(|why| {
                cannot(
                    &self.device,
                    format!("the line '{line}' of the kernel cannot be understood: {why}"),
                    "tell us",
                )
            })?;
            match read {
                Line::Requests(found) => requests.extend(found.into_iter().flatten()),
                Line::Lost(events) => *missed += events,
                Line::Aside => {}
            }
        }
        Ok(())
    }
}

//! Data to estimate: files, devices and trees of this machine, and volumes, read only.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use windrow_console::context::{self, OpenedAtRest, PoolPlace};
use windrow_console::values::VolumePath;
use windrow_frontend::{ExportSource, Session, Sink};
use windrow_host::Failure;
use windrow_host::failure::id;
use windrow_host::offline::OpenRequest;
use windrow_host::served::Served;
use windrow_io::{Completion, Op, Reply, Request, RequestId};
use windrow_load::nbd_client::NbdClient;
use windrow_types::VolumeId;

/// Unit of reading and skipping.
pub const EXTENT_BYTES: u64 = 1 << 20;

/// Something to read.
pub struct Source {
    /// Its name as given.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    kind: Kind,
}

enum Kind {
    /// Files with their sizes: one, unless it is a tree.
    Files(Vec<(PathBuf, u64)>),
    /// A volume of a server.
    Served(Box<NbdClient>),
    /// A volume of a pool at rest.
    AtRest(Box<AtRest>),
}

struct AtRest {
    session: Box<dyn Session>,
    volume: VolumeId,
    answers: Receiver<Completion>,
    /// Lives as long as the session.
    _opened: OpenedAtRest,
}

/// Passes completions to the reader.
struct Answers(Mutex<Sender<Completion>>);

impl Sink for Answers {
    fn complete(&self, completions: &mut Vec<Completion>) {
        let sender = self
            .0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        // A reader that has gone has failed, and has reported that.
        completions
            .drain(..)
            .for_each(|completion| drop(sender.send(completion)));
    }
}

fn cannot(what: &str, why: impl std::fmt::Display) -> Failure {
    Failure::new(id::LOCAL_FILE, format!("cannot read {what}"), why)
        .remedy("check the path and your rights to it")
}

impl Source {
    /// Finds the source: an existing path, `nbd+unix:///EXPORT?socket=PATH`, or POOL/VOLUME.
    ///
    /// # Errors
    /// It is none of these, or cannot be read.
    pub fn find(text: &str, place: &PoolPlace) -> Result<Self, Failure> {
        if let Some(rest) = text.strip_prefix("nbd+unix:///") {
            return served(text, rest);
        }
        let path = Path::new(text);
        if path.exists() {
            return of_path(text, path);
        }
        let Ok(volume) = text.parse::<VolumePath>() else {
            return Err(Failure::new(
                id::USAGE,
                format!("cannot estimate '{text}'"),
                "there is no such file, device or directory",
            )
            .remedy("name one, or POOL/VOLUME"));
        };
        at_rest(text, &volume, place)
    }

    /// Reads extent after extent; those that are not `wanted` (by their number in this source) are
    /// skipped. `skipped` is called with the unreadable files of a tree.
    ///
    /// # Errors
    /// A source that is no file of a tree cannot be read.
    pub fn read(
        &mut self,
        wanted: &mut dyn FnMut() -> bool,
        each: &mut dyn FnMut(&[u8]),
        skipped: &mut dyn FnMut(&Path, &std::io::Error),
    ) -> Result<(), Failure> {
        match &mut self.kind {
            Kind::Files(files) => {
                let is_tree = files.len() != 1 || Path::new(&self.name).is_dir();
                for (path, size) in files {
                    match read_file(path, *size, wanted, each) {
                        Err(error) if is_tree => skipped(path, &error),
                        other => other.map_err(|error| cannot(&self.name, error))?,
                    }
                }
                Ok(())
            }
            Kind::Served(client) => extents(self.bytes, wanted, |offset, length| {
                let answer = client
                    .read(offset, offset, length)
                    .and_then(|()| client.push())
                    .and_then(|()| client.answer())
                    .map_err(|error| cannot(&self.name, error))?;
                if answer.error != 0 {
                    return Err(cannot(
                        &self.name,
                        format!("the server answers error {} at byte {offset}", answer.error),
                    ));
                }
                each(&answer.data);
                Ok(())
            }),
            Kind::AtRest(volume) => extents(self.bytes, wanted, |offset, length| {
                for part in volume.read(offset, length).map_err(|why| {
                    Failure::new(
                        id::MEMBER_IO,
                        format!("cannot read {} at byte {offset}", self.name),
                        why,
                    )
                })? {
                    each(&part);
                }
                Ok(())
            }),
        }
    }
}

impl AtRest {
    fn read(&mut self, offset: u64, length: u32) -> Result<Vec<windrow_io::Payload>, String> {
        let mut ready = Vec::new();
        let request = Request {
            id: RequestId(offset),
            volume: self.volume,
            op: Op::Read { offset, length },
        };
        self.session.submit(&mut vec![request], &mut ready);
        let answer = ready.pop().or_else(|| self.answers.recv().ok());
        match answer.map(|answer| answer.result) {
            Some(Ok(Reply::Data(parts))) => Ok(parts),
            Some(Ok(_)) | None => Err("the pool gave no data".to_owned()),
            Some(Err(error)) => Err(error.to_string()),
        }
    }
}

/// Walks `bytes` by extents.
fn extents(
    bytes: u64,
    wanted: &mut dyn FnMut() -> bool,
    mut read: impl FnMut(u64, u32) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut offset = 0;
    while offset < bytes {
        let length = EXTENT_BYTES.min(bytes - offset);
        if wanted() {
            read(offset, length as u32)?;
        }
        offset += length;
    }
    Ok(())
}

fn read_file(
    path: &Path,
    size: u64,
    wanted: &mut dyn FnMut() -> bool,
    each: &mut dyn FnMut(&[u8]),
) -> std::io::Result<()> {
    let mut file = File::open(path)?;
    let mut room = vec![0; EXTENT_BYTES.min(size) as usize];
    let mut offset = 0;
    while offset < size {
        let length = EXTENT_BYTES.min(size - offset) as usize;
        if wanted() {
            let mut filled = 0;
            while filled < length {
                match file.read(&mut room[filled..length])? {
                    // It became shorter.
                    0 => break,
                    count => filled += count,
                }
            }
            each(&room[..filled]);
            if filled < length {
                return Ok(());
            }
        } else {
            file.seek(SeekFrom::Current(length as i64))?;
        }
        offset += length as u64;
    }
    Ok(())
}

fn of_path(name: &str, path: &Path) -> Result<Source, Failure> {
    if let Some(held) = Served::now().held(path) {
        return Err(cannot(name, held.reason(path)));
    }
    let about = std::fs::metadata(path).map_err(|error| cannot(name, error))?;
    let mut files = Vec::new();
    if about.is_dir() {
        walk(path, &mut BTreeSet::new(), &mut files);
        files.sort();
    } else if about.is_file() || about.file_type().is_block_device() {
        let size = File::open(path)
            .and_then(|mut file| file.seek(SeekFrom::End(0)))
            .map_err(|error| cannot(name, error))?;
        files.push((path.to_owned(), size));
    } else {
        return Err(cannot(
            name,
            "it is neither a file, nor a block device, nor a directory",
        ));
    }
    Ok(Source {
        name: name.to_owned(),
        bytes: files.iter().map(|(_, size)| size).sum(),
        kind: Kind::Files(files),
    })
}

/// All regular files below; one with several names once. Symbolic links are not followed;
/// unreadable folders count as empty.
fn walk(dir: &Path, seen: &mut BTreeSet<(u64, u64)>, files: &mut Vec<(PathBuf, u64)>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let Ok(about) = entry.metadata() else {
            continue;
        };
        if about.is_dir() {
            walk(&entry.path(), seen, files);
        } else if about.is_file()
            && about.len() > 0
            && (about.nlink() == 1 || seen.insert((about.dev(), about.ino())))
        {
            files.push((entry.path(), about.len()));
        }
    }
}

fn served(name: &str, rest: &str) -> Result<Source, Failure> {
    let Some((export, socket)) = rest.split_once("?socket=") else {
        return Err(Failure::new(
            id::USAGE,
            format!("cannot estimate '{name}'"),
            "no socket is named",
        )
        .remedy("write it as nbd+unix:///EXPORT?socket=PATH"));
    };
    let client =
        NbdClient::connect(Path::new(socket), export).map_err(|error| cannot(name, error))?;
    Ok(Source {
        name: name.to_owned(),
        bytes: client.size_bytes(),
        kind: Kind::Served(Box::new(client)),
    })
}

fn at_rest(name: &str, path: &VolumePath, place: &PoolPlace) -> Result<Source, Failure> {
    let what = format!("cannot estimate '{name}'");
    let found = context::at_rest(&what, &path.pool, place).map_err(|failure| {
        let remedy =
            format!("read the volume from the daemon: nbd+unix:///{}?socket=PATH, with the path that `windrow serve --nbd unix:PATH` was given", path.volume);
        if failure.id == id::POOL_BUSY { failure.remedy(remedy) } else { failure }
    })?;
    let registry = context::registry();
    let opened = OpenedAtRest::open(
        &found,
        &registry,
        &OpenRequest {
            read_only: true,
            ..place.request()
        },
    )?;
    let unknown = || {
        Failure::new(
            id::VOLUME_UNKNOWN,
            what.clone(),
            format!("there is no volume '{}'", path.volume),
        )
        .remedy("see `windrow volume list POOL`")
    };
    let volume = windrow_host::daemon::report(&opened.pool)?
        .volume(&path.volume)
        .cloned()
        .ok_or_else(unknown)?;
    let (sender, answers) = channel();
    let session = opened
        .pool
        .open(&path.volume, Arc::new(Answers(Mutex::new(sender))))
        .map_err(|error| Failure::new(id::VOLUME_UNKNOWN, what.clone(), error))?;
    let at_rest = AtRest {
        session,
        volume: volume.id,
        answers,
        _opened: opened,
    };
    Ok(Source {
        name: name.to_owned(),
        bytes: volume.size_bytes,
        kind: Kind::AtRest(Box::new(at_rest)),
    })
}

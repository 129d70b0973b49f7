//! Loads on a mounted file system.
//!
//! - *copy*: files with their folders, and nothing durable before the end: the best case for a file
//!   system.
//! - *messages*: pieces of the files as files of their own; each is written under a temporary name,
//!   made durable, renamed, and its folder made durable, as mail servers, queues and object stores
//!   do; above a limit the oldest are removed.
//! - *overwrite*: pieces of an existing file are rewritten at random positions, each made durable,
//!   as databases do. They are some milliseconds apart: a file's change time advances only every
//!   few milliseconds, and without a new one there is nothing to journal.
//!
//! All bytes come from existing files. Positions and sizes are the same each time; the kernel
//! decides when it writes.

use super::files::Sample;
use super::{Totals, cannot};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;
use windrow_console::progress::Progress;
use windrow_host::Failure;
use windrow_load::random::Random;
use windrow_types::BLOCK_SIZE;

/// A load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// Files are copied.
    Copy,
    /// Small durable files are created and removed.
    Messages,
    /// A file is overwritten in place, durably.
    Overwrite,
}

/// Number of folders for messages.
const FOLDERS: usize = 16;
/// The file that is overwritten.
const TABLE: &str = "table";
/// Pause between two overwrites: more than the longest tick of the kernel's clock.
const APART: Duration = Duration::from_millis(11);
/// Number of messages that are kept.
const KEPT: usize = 1000;

/// Callback that records the blocks of a file, or of a part that begins at a block, before they are
/// written; an error ends the load.
pub type Note<'a> = &'a dyn Fn(&[u8]) -> std::io::Result<()>;

impl Load {
    /// Writes the required files.
    pub fn prepare(self, dir: &Path, samples: &[Sample], note: Note<'_>) -> Result<(), Failure> {
        let done = if self == Self::Overwrite {
            fill(&dir.join(TABLE), samples, note)
        } else {
            Ok(())
        };
        done.map_err(|error| cannot("write files in", dir.display(), error))
    }

    /// Runs the load in a folder. `sizes`: write sizes, in turn.
    pub fn run(
        self,
        dir: &Path,
        samples: &[Sample],
        sizes: &[usize],
        note: Note<'_>,
        progress: &mut Progress,
    ) -> Result<Totals, Failure> {
        let done = match self {
            Self::Copy => copy(dir, samples, note, progress),
            Self::Messages => messages(dir, samples, sizes, note, progress),
            Self::Overwrite => overwrite(dir, samples, sizes, note, progress),
        };
        done.map_err(|error| cannot("write files in", dir.display(), error))
    }
}

fn all(samples: &[Sample]) -> u64 {
    samples.iter().map(|sample| sample.bytes).sum()
}

fn copy(
    dir: &Path,
    samples: &[Sample],
    note: Note<'_>,
    progress: &mut Progress,
) -> std::io::Result<Totals> {
    let mut totals = Totals::default();
    for sample in samples {
        let bytes = sample.read();
        note(&bytes)?;
        let path = dir.join(&sample.name);
        path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        std::fs::write(path, &bytes)?;
        totals.note(bytes.len());
        progress.bytes(totals.bytes, all(samples));
    }
    File::open(dir)?.sync_all()?;
    Ok(totals)
}

/// The concatenated content of the files, in pieces of these sizes, in turn.
struct Pieces<'a> {
    samples: std::slice::Iter<'a, Sample>,
    sizes: std::iter::Cycle<std::slice::Iter<'a, usize>>,
    left: Vec<u8>,
}

impl<'a> Pieces<'a> {
    fn of(samples: &'a [Sample], sizes: &'a [usize]) -> Self {
        Self {
            samples: samples.iter(),
            sizes: sizes.iter().cycle(),
            left: Vec::new(),
        }
    }
}

impl Iterator for Pieces<'_> {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let size = *self.sizes.next()?;
        while self.left.len() < size {
            let Some(sample) = self.samples.next() else {
                break;
            };
            self.left.extend_from_slice(&sample.read());
        }
        let rest = self.left.split_off(size.min(self.left.len()));
        Some(std::mem::replace(&mut self.left, rest)).filter(|piece| !piece.is_empty())
    }
}

fn messages(
    dir: &Path,
    samples: &[Sample],
    sizes: &[usize],
    note: Note<'_>,
    progress: &mut Progress,
) -> std::io::Result<Totals> {
    let mut totals = Totals::default();
    let passing = dir.join("passing");
    std::fs::create_dir(&passing)?;
    (0..FOLDERS).try_for_each(|folder| std::fs::create_dir(dir.join(format!("{folder}"))))?;
    let place = |number: usize| {
        dir.join(format!("{}", number % FOLDERS))
            .join(format!("message-{number}"))
    };
    for (number, bytes) in Pieces::of(samples, sizes).enumerate() {
        note(&bytes)?;
        let (before, after) = (passing.join(format!("{number}")), place(number));
        let mut file = File::create(&before)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        std::fs::rename(&before, &after)?;
        after
            .parent()
            .map_or(Ok(()), |folder| File::open(folder)?.sync_all())?;
        if number >= KEPT {
            std::fs::remove_file(place(number - KEPT))?;
        }
        totals.note(bytes.len());
        progress.bytes(totals.bytes, all(samples));
    }
    Ok(totals)
}

/// The first quarter of the content, as one file.
fn fill(path: &Path, samples: &[Sample], note: Note<'_>) -> std::io::Result<()> {
    let (mut file, mut left) = (File::create(path)?, all(samples) / 4);
    for sample in samples {
        let mut bytes = sample.read();
        // Each sample begins at a block.
        bytes.resize(bytes.len().next_multiple_of(BLOCK_SIZE), 0);
        note(&bytes)?;
        file.write_all(&bytes)?;
        left = left.saturating_sub(bytes.len() as u64);
        if left == 0 {
            break;
        }
    }
    file.sync_all()
}

fn overwrite(
    dir: &Path,
    samples: &[Sample],
    sizes: &[usize],
    note: Note<'_>,
    progress: &mut Progress,
) -> std::io::Result<Totals> {
    let mut totals = Totals::default();
    let file = File::options().write(true).open(dir.join(TABLE))?;
    let blocks = file.metadata()?.len() / BLOCK_SIZE as u64;
    let mut random = Random::new(1);
    for bytes in Pieces::of(samples, sizes) {
        let whole = bytes.len() / BLOCK_SIZE;
        let Some(room) = blocks.checked_sub(whole as u64).filter(|_| whole > 0) else {
            continue;
        };
        let bytes = &bytes[..whole * BLOCK_SIZE];
        note(bytes)?;
        file.write_all_at(bytes, random.below(room + 1) * BLOCK_SIZE as u64)?;
        file.sync_all()?;
        totals.note(bytes.len());
        progress.bytes(totals.bytes, all(samples));
        std::thread::sleep(APART);
    }
    Ok(totals)
}

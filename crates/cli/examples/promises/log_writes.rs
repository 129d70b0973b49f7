//! The log of the device-mapper target `log-writes`
//! (Documentation/admin-guide/device-mapper/log-writes.rst of the kernel).
//!
//! Sector 0 (of the log's sector size) is the superblock: magic, version, number of entries, sector
//! size. The entries follow. Each has one sector with the header: sector, length in sectors, flags,
//! length of inline data. Inline data comes next (for a mark its name), then the data of a write.
//! All numbers are little-endian.
//!
//! The target logs a write when the flush that covers it is done, or at once if it has FUA. So the
//! entries up to a mark are those that were durable when the mark was set.

use crate::Random;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

const MAGIC: u64 = 0x006a_7366_7773_6872;
const FLUSH: u64 = 1;
const FORCED: u64 = 2;
const DISCARD: u64 = 4;
const MARK: u64 = 8;

/// A log that is not being written.
pub struct Log {
    file: File,
    sector_bytes: u64,
    entries: u64,
}

struct Entry {
    offset: u64,
    length: u64,
    flags: u64,
    /// Offset of its data in the log.
    data: u64,
    name: Option<String>,
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]))
}

impl Log {
    pub fn open(path: &Path) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        let file = File::open(path).map_err(failed)?;
        let mut head = [0; 28];
        file.read_exact_at(&mut head, 0).map_err(failed)?;
        if word(&head, 0) != MAGIC || word(&head, 8) != 1 {
            return Err(format!(
                "{} is no log of dm-log-writes of version 1",
                path.display()
            ));
        }
        let sector_bytes = u64::from(u32::from_le_bytes(std::array::from_fn(|byte| {
            head[24 + byte]
        })));
        Ok(Self {
            file,
            sector_bytes,
            entries: word(&head, 16),
        })
    }

    /// All entries in order, until `visit` returns false.
    fn walk(&self, mut visit: impl FnMut(Entry) -> Result<bool, String>) -> Result<(), String> {
        let mut at = self.sector_bytes;
        let mut sector = vec![0; self.sector_bytes as usize];
        for _ in 0..self.entries {
            self.file
                .read_exact_at(&mut sector, at)
                .map_err(|error| format!("the log ends early: {error}"))?;
            let (flags, inline) = (word(&sector, 16), word(&sector, 24) as usize);
            let length = word(&sector, 8) * self.sector_bytes;
            let name = (flags & MARK != 0).then(|| {
                String::from_utf8_lossy(sector.get(32..32 + inline).unwrap_or_default())
                    .trim_end_matches('\0')
                    .to_owned()
            });
            let entry = Entry {
                offset: word(&sector, 0) * self.sector_bytes,
                length,
                flags,
                data: at + self.sector_bytes,
                name,
            };
            at = entry.data + if flags & DISCARD == 0 { length } else { 0 };
            if !visit(entry)? {
                return Ok(());
            }
        }
        Ok(())
    }

    pub fn marks(&self) -> Result<Vec<String>, String> {
        let mut names = Vec::new();
        self.walk(|entry| {
            names.extend(entry.name);
            Ok(true)
        })?;
        Ok(names)
    }

    /// Writes the state after a crash at the mark to `onto`, which has the size of the member and
    /// is empty.
    pub fn replay(&self, onto: &Path, mark: &str, seed: u64) -> Result<String, String> {
        let onto = File::options()
            .write(true)
            .open(onto)
            .map_err(|error| format!("{}: {error}", onto.display()))?;
        let mut random = Random(seed);
        // A third of the crashes lose all unflushed writes, a third none, the others about half of
        // them.
        let kept_percent = [0, 100, 50][random.below(3) as usize];
        let (mut is_past, mut durable, mut kept, mut lost) = (false, 0u64, 0u64, 0u64);
        self.walk(|entry| {
            if let Some(name) = &entry.name {
                is_past |= name == mark;
                return Ok(true);
            }
            if !is_past {
                durable += 1;
                self.apply(&entry, &onto)?;
                return Ok(true);
            }
            if entry.flags & FORCED != 0 || (entry.flags & FLUSH != 0 && entry.length == 0) {
                return Ok(false);
            }
            if random.below(100) < kept_percent {
                kept += 1;
                self.apply(&entry, &onto)?;
            } else {
                lost += 1;
            }
            Ok(entry.flags & FLUSH == 0)
        })?;
        if is_past {
            Ok(format!(
                "{durable} durable entries, of the next {} {kept} kept",
                kept + lost
            ))
        } else {
            Err(format!("the log has no mark {mark}"))
        }
    }

    fn apply(&self, entry: &Entry, onto: &File) -> Result<(), String> {
        let mut data = vec![0; entry.length as usize];
        if entry.flags & DISCARD == 0 {
            self.file
                .read_exact_at(&mut data, entry.data)
                .map_err(|error| format!("the log ends early: {error}"))?;
        }
        onto.write_all_at(&data, entry.offset)
            .map_err(|error| format!("cannot write the member: {error}"))
    }
}

//! An in-memory disk that counts the writes to it, block by block.
//!
//! This process serves it over NBD; nbdfuse shows it as a file, and the kernel mounts that through
//! a loop device. Requests are multiples of 512 bytes; a partial write of a block counts as the
//! whole block, as it would be stored.

use super::classes::Classes;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use windrow_frontend::{ExportInfo, ExportSource, Session, Sink};
use windrow_io::{BufPool, Completion, Extent, ExtentState, Op, Reply, Request, RequestError};
use windrow_types::{BLOCK_BYTES, BLOCK_SIZE, VolumeId};

/// Name of the export.
pub const NAME: &str = "disk";

const SECTOR_BYTES: u64 = 512;
/// Largest announced request.
const MAX_REQUEST_BYTES: u32 = 32 << 20;

/// Content of a disk.
pub struct Content {
    /// Blocks that are not all zero.
    blocks: BTreeMap<u64, Box<[u8; BLOCK_SIZE]>>,
    /// Classifier of the blocks.
    pub classes: Classes,
    /// True while writes count.
    pub counting: bool,
}

impl Content {
    /// Current content of a block.
    pub fn block(&self, number: u64) -> [u8; BLOCK_SIZE] {
        self.blocks
            .get(&number)
            .map_or([0; BLOCK_SIZE], |block| **block)
    }

    /// Writes within one block.
    fn put(&mut self, number: u64, start: usize, bytes: &[u8]) {
        let mut block = if bytes.len() == BLOCK_SIZE {
            [0; BLOCK_SIZE]
        } else {
            self.block(number)
        };
        block[start..start + bytes.len()].copy_from_slice(bytes);
        if self.counting {
            self.classes.count(number, &block);
        }
        if block.iter().all(|byte| *byte == 0) {
            self.blocks.remove(&number);
        } else {
            self.blocks.insert(number, Box::new(block));
        }
    }
}

/// A disk in memory.
#[derive(Clone)]
pub struct Disk {
    bytes: u64,
    content: Arc<Mutex<Content>>,
    buffers: BufPool,
}

impl Disk {
    /// An empty disk of `bytes` bytes, a multiple of 4096; nothing counts yet.
    pub fn new(bytes: u64) -> Self {
        let content = Content {
            blocks: BTreeMap::new(),
            classes: Classes::new(),
            counting: false,
        };
        Self {
            bytes,
            content: Arc::new(Mutex::new(content)),
            buffers: BufPool::new(64 << 20),
        }
    }

    /// Its content.
    pub fn content(&self) -> MutexGuard<'_, Content> {
        self.content
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn info(&self) -> ExportInfo {
        ExportInfo {
            name: NAME.to_owned(),
            description: "a disk in memory that is watched".to_owned(),
            volume: VolumeId(1),
            size_bytes: self.bytes,
            read_only: false,
            min_block: SECTOR_BYTES as u32,
            preferred_block: BLOCK_SIZE as u32,
            max_block: MAX_REQUEST_BYTES,
        }
    }

    fn check(&self, offset: u64, length: u64) -> Result<(), RequestError> {
        if length == 0
            || !offset.is_multiple_of(SECTOR_BYTES)
            || !length.is_multiple_of(SECTOR_BYTES)
        {
            return Err(RequestError::Invalid);
        }
        offset
            .checked_add(length)
            .filter(|end| *end <= self.bytes)
            .map(|_| ())
            .ok_or(RequestError::OutOfRange)
    }

    fn execute(&self, op: &Op) -> Result<Reply, RequestError> {
        match op {
            Op::Read { offset, length } => self.read(*offset, *length),
            Op::Write { offset, data, .. } => {
                self.check(*offset, data.len() as u64)?;
                let mut content = self.content();
                let mut done = 0;
                for (number, start, length) in parts(*offset, data.len() as u64) {
                    content.put(number, start, &data[done..done + length]);
                    done += length;
                }
                Ok(Reply::Done)
            }
            Op::Trim { offset, length, .. } | Op::WriteZeroes { offset, length, .. } => {
                self.check(*offset, *length)?;
                let mut content = self.content();
                // No bytes are sent, so none are counted.
                let counting = std::mem::replace(&mut content.counting, false);
                parts(*offset, *length).for_each(|(number, start, length)| {
                    content.put(number, start, &[0; BLOCK_SIZE][..length])
                });
                content.counting = counting;
                Ok(Reply::Done)
            }
            Op::Flush => Ok(Reply::Done),
            Op::BlockStatus { offset, length, .. } => {
                self.check(*offset, *length)?;
                Ok(Reply::Extents(vec![Extent {
                    length: *length,
                    state: ExtentState::Data,
                }]))
            }
        }
    }

    fn read(&self, offset: u64, length: u32) -> Result<Reply, RequestError> {
        self.check(offset, length.into())?;
        let mut buf = self.buffers.get(length as usize);
        let content = self.content();
        let mut done = 0;
        for (number, start, length) in parts(offset, length.into()) {
            match content.blocks.get(&number) {
                Some(block) => {
                    buf[done..done + length].copy_from_slice(&block[start..start + length])
                }
                None => buf[done..done + length].fill(0),
            }
            done += length;
        }
        Ok(Reply::Data(vec![buf.freeze()]))
    }
}

/// Blocks of a range, with the start and length of the part in each.
fn parts(offset: u64, length: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let end = offset + length;
    (offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES)).map(move |number| {
        let (from, to) = (
            offset.max(number * BLOCK_BYTES),
            end.min((number + 1) * BLOCK_BYTES),
        );
        (number, (from % BLOCK_BYTES) as usize, (to - from) as usize)
    })
}

impl ExportSource for Disk {
    fn list(&self) -> Vec<ExportInfo> {
        vec![self.info()]
    }

    fn open(&self, name: &str, _: Arc<dyn Sink>) -> Result<Box<dyn Session>, RequestError> {
        if name == NAME {
            Ok(Box::new(self.clone()))
        } else {
            Err(RequestError::NoVolume)
        }
    }

    fn buffers(&self) -> &BufPool {
        &self.buffers
    }
}

impl Session for Disk {
    fn submit(&self, requests: &mut Vec<Request>, ready: &mut Vec<Completion>) {
        ready.extend(requests.drain(..).map(|request| Completion {
            id: request.id,
            result: self.execute(&request.op),
            lsns: None,
        }));
    }

    fn info(&self) -> ExportInfo {
        Self::info(self)
    }
}

#[cfg(test)]
mod tests {
    use super::super::classes::Class;
    use super::*;
    use windrow_io::Payload;

    #[test]
    fn a_part_of_a_block_counts_as_the_whole_and_zeroes_take_no_memory() {
        let disk = Disk::new(1 << 20);
        let write = |offset, bytes: &[u8]| {
            disk.execute(&Op::Write {
                offset,
                data: Payload::copy_of(bytes),
                fua: false,
            })
            .map(|_| ())
        };
        assert_eq!(write(0, &[1; 4096]), Ok(()));
        disk.content().counting = true;
        assert_eq!(write(512, &[2; 1024]), Ok(()));
        assert_eq!(write(8192 - 512, &[3; 1024]), Ok(()));
        assert_eq!(
            disk.content().classes.bytes(Class::Metadata).written,
            3 * 4096
        );
        let Ok(Reply::Data(read)) = disk.execute(&Op::Read {
            offset: 0,
            length: 2048,
        }) else {
            panic!("a read")
        };
        assert_eq!(
            (read[0][0], read[0][512], read[0][1535], read[0][1536]),
            (1, 2, 2, 1)
        );
        assert!(
            disk.execute(&Op::Trim {
                offset: 0,
                length: 4096,
                fua: false
            })
            .is_ok()
        );
        assert_eq!(write(4096, &[0; 8192]), Ok(()));
        assert!(disk.content().blocks.is_empty());
        assert_eq!(
            (write(100, &[1; 512]), write(1 << 20, &[1; 512])),
            (Err(RequestError::Invalid), Err(RequestError::OutOfRange))
        );
    }
}

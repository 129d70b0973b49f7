//! Reference model of a member, and random operations to compare the back ends with it.

use crate::Member;
use proptest::prelude::*;

pub(crate) const SIZE: u64 = 1 << 20;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Write { sector: u64, sectors: u64, seed: u8 },
    Read { sector: u64, sectors: u64 },
    Flush,
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let range = || (0u64..SIZE / 4096, 1u64..24);
    let step = prop_oneof![
        4 => (range(), any::<u8>()).prop_map(|((sector, sectors), seed)| Step::Write { sector, sectors, seed }),
        3 => range().prop_map(|(sector, sectors)| Step::Read { sector, sectors }),
        1 => Just(Step::Flush),
    ];
    proptest::collection::vec(step, 1..40)
}

pub(crate) fn pattern(offset: u64, length: usize, seed: u8) -> Vec<u8> {
    (0..length as u64)
        .map(|i| ((offset + i) / 7) as u8 ^ seed.wrapping_mul(31))
        .collect()
}

/// Runs the steps on a member of `SIZE` zero bytes, in units of its sector, and compares every read
/// and the final content with the model.
pub(crate) fn compare(member: &dyn Member, steps: &[Step]) {
    let mut model = vec![0u8; SIZE as usize];
    let sector_bytes = u64::from(member.info().logical_sector);
    let clip = |sector: u64, sectors: u64| {
        let offset = (sector * 4096 + sector * 512) % SIZE / sector_bytes * sector_bytes;
        let length = (sectors * sector_bytes).min(SIZE - offset);
        (offset, length as usize)
    };
    for step in steps {
        match *step {
            Step::Write {
                sector,
                sectors,
                seed,
            } => {
                let (offset, length) = clip(sector, sectors);
                let data = pattern(offset, length, seed);
                member.write_at(offset, &data).expect("write");
                model[offset as usize..][..length].copy_from_slice(&data);
            }
            Step::Read { sector, sectors } => {
                let (offset, length) = clip(sector, sectors);
                let mut data = vec![0xee; length];
                member.read_at(offset, &mut data).expect("read");
                assert!(
                    data == model[offset as usize..][..length],
                    "read of {length} bytes at {offset}"
                );
            }
            Step::Flush => member.flush().expect("flush"),
        }
    }
    let mut all = vec![0xee; SIZE as usize];
    member.read_at(0, &mut all).expect("read of everything");
    assert!(all == model, "content at the end");
}

/// Every member implementation must refuse these.
pub(crate) fn refuses_bad_ranges(member: &dyn Member) {
    let sector = u64::from(member.info().logical_sector);
    let size = member.info().size_bytes;
    let mut buf = vec![0u8; 2 * sector as usize];
    let code = |result: Result<(), crate::DeviceError>| result.expect_err("must be refused").code;
    assert_eq!(code(member.read_at(1, &mut buf)), libc::EINVAL);
    assert_eq!(code(member.read_at(0, &mut buf[..7])), libc::EINVAL);
    assert_eq!(code(member.write_at(sector + 8, &buf)), libc::EINVAL);
    assert_eq!(code(member.read_at(size - sector, &mut buf)), libc::ERANGE);
    assert_eq!(code(member.write_at(size, &buf)), libc::ERANGE);
    assert_eq!(
        code(member.write_at(u64::MAX - sector + 1, &buf)),
        libc::ERANGE
    );
    assert_eq!(code(member.discard(size, sector)), libc::ERANGE);
    member
        .read_at(size, &mut [])
        .expect("nothing at the end is inside");
    member
        .write_at(size, &[])
        .expect("nothing at the end is inside");
}

/// Default options with time for children of other tests that are between `fork` and `exec` and
/// hold copies of our descriptors.
pub(crate) fn patient() -> crate::OpenOptions {
    crate::OpenOptions {
        lock_patience: std::time::Duration::from_secs(10),
        ..crate::OpenOptions::default()
    }
}

/// A loop device over a file of its own; detached when dropped.
pub(crate) struct LoopDevice {
    path: std::path::PathBuf,
    backing: std::path::PathBuf,
    /// Kept while the device exists.
    _folder: Option<tempfile::TempDir>,
}

impl LoopDevice {
    /// `None` with a message if loop devices are not available.
    pub(crate) fn attach(size_bytes: u64, sector_bytes: u32) -> Option<Self> {
        let folder = tempfile::tempdir().ok()?;
        let backing = folder.path().join("backing");
        crate::create_file(&backing, size_bytes, crate::Allocation::Preallocate).ok()?;
        let mut device = Self::over(&backing, &["--sector-size", &sector_bytes.to_string()])?;
        device._folder = Some(folder);
        Some(device)
    }

    /// A loop device over a file of the caller.
    pub(crate) fn over(backing: &std::path::Path, arguments: &[&str]) -> Option<Self> {
        let output = std::process::Command::new("losetup")
            .args(["--find", "--show"])
            .args(arguments)
            .arg(backing)
            .output();
        match output {
            Ok(output) if output.status.success() => {
                let path = String::from_utf8_lossy(&output.stdout).trim().into();
                Some(Self {
                    path,
                    backing: backing.to_owned(),
                    _folder: None,
                })
            }
            _ => {
                eprintln!("SKIPPED: no loop device can be attached here");
                None
            }
        }
    }

    pub(crate) fn path(&self) -> &std::path::Path {
        &self.path
    }

    pub(crate) fn backing(&self) -> &std::path::Path {
        &self.backing
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = std::process::Command::new("losetup")
            .arg("--detach")
            .arg(&self.path)
            .status();
    }
}

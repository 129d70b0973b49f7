//! A volume as a file, by nbdfuse, and the file system in that file mounted by the kernel.

use super::{World, find};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The volume as a file: mounted by nbdfuse, which runs in the background until it is killed.
pub struct Mounted {
    child: Child,
    pub file: PathBuf,
}

impl Mounted {
    /// `None`, with the reason printed, if this is not allowed.
    pub fn new(world: &World, uri: &str) -> Option<Self> {
        let file = world.file("disk");
        std::fs::write(&file, []).unwrap();
        let child = Command::new(find("nbdfuse")?)
            .arg(&file)
            .arg(uri)
            .stderr(Stdio::piped())
            .spawn()
            .ok()?;
        let mut mounted = Self { child, file };
        let end = Instant::now() + Duration::from_secs(10);
        while std::fs::metadata(&mounted.file).map_or(0, |found| found.len()) == 0 {
            if mounted.child.try_wait().unwrap().is_some() || Instant::now() > end {
                eprintln!("skipped: nbdfuse cannot mount here");
                return None;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(mounted)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !unmount(&self.file) {
            drop(self.child.kill());
        }
        drop(self.child.wait());
    }
}

/// The file system of a [`Mounted`] volume, mounted through a loop device. To be dropped before it.
pub struct FileSystem {
    dir: PathBuf,
}

impl FileSystem {
    /// `None`, with the reason printed, if this is not allowed.
    pub fn new(world: &World, mounted: &Mounted) -> Option<Self> {
        Self::of(&mounted.file, world.file("files"))
    }

    /// The file system in any file.
    pub fn of(file: &Path, dir: PathBuf) -> Option<Self> {
        std::fs::create_dir_all(&dir).unwrap();
        let output = Command::new(find("mount")?)
            .args(["-o", "loop"])
            .arg(file)
            .arg(&dir)
            .output()
            .ok()?;
        if !output.status.success() {
            eprintln!("skipped: no loop mount here: {}", super::both(&output));
            return None;
        }
        Some(Self { dir })
    }

    pub fn path(&self) -> &Path {
        &self.dir
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        // After a crash of the server a process that used the files may hold them for a moment
        // longer.
        let end = Instant::now() + Duration::from_secs(5);
        while !unmount(&self.dir) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn unmount(path: &Path) -> bool {
    let unmounted = find("umount").map(|umount| {
        Command::new(umount)
            .arg(path)
            .stderr(Stdio::null())
            .status()
    });
    matches!(unmounted, Some(Ok(status)) if status.success())
}
